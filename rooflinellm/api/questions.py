"""The four questions about a model on a system: prefill, first token and decode, and how they change with context."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rooflinellm._shown import one_line
from rooflinellm.api import lookup
from rooflinellm.api.arguments import scalar_count, sequence, single_values
from rooflinellm.api.default_prompts import default_prompts
from rooflinellm.api.estimate import MAX_TOKENS, estimate
from rooflinellm.api.lookup import Name
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Table
from rooflinellm.results import Estimate, data_frame
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import estimate_table, growth_table

MORE_TOKENS = 512
"""Prompt on top of each context for which prefill is shown. [token]"""
CONTEXTS = (0, 4_096, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576)
SHORT_CONTEXTS = (0, 512, 1_024, 2_048, 4_096)
SHORT = 16_384
"""Below this limit `SHORT_CONTEXTS` are shown. [token]"""
OF_A_PROMPT = ("prompt_tokens", "output_tokens", "context_tokens", "context_limit", "cached_tokens", "queue_s")
"""What is of one request and does not go with it from context to context."""


@dataclass(frozen=True)
class ByContext:
    """Speed and memory over amounts of occupied context.

    Attributes
    ----------
    decode : tuple of Estimate
        The next decode step, by amount of context.
    prefill : tuple of Estimate
        A prompt of `MORE_TOKENS` on top of the same contexts.
    """

    decode: tuple[Estimate, ...] = ()
    prefill: tuple[Estimate, ...] = ()

    __repr__ = one_line

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each amount of context."""
        return [
            {
                "context_tokens": decode.workload["context_tokens"],
                "decode_tokens_per_s": decode.decode.tokens_per_s.to_dict(),
                "prefill_tokens_per_s": prefill.prefill.tokens_per_s.to_dict(),
                "kv_occupied_bytes": decode.memory.kv_occupied_bytes,
                "total_bytes": decode.memory.total_bytes,
                "fits": decode.memory.fits,
            }
            for decode, prefill in zip(self.decode, self.prefill, strict=True)
        ]

    def table(self) -> Table:
        """A column for each amount of context."""
        return growth_table(self.decode, self.prefill)

    def _repr_html_(self) -> str:
        return self.table().to_html()


@dataclass(frozen=True)
class Questions:
    """The answer of `questions`.

    Attributes
    ----------
    estimates : tuple of Estimate
        One a prompt length: prefill time, time to first token and decode rate of a request.
    by_context : ByContext
        How both phases change as the context fills.
    """

    estimates: tuple[Estimate, ...]
    by_context: ByContext

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            "results": [item.to_dict() for item in self.estimates],
            "by_context": self.by_context.to_records(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a prompt length and phase, as of each estimate."""
        return [record for item in self.estimates for record in item.to_records()]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def tables(self) -> list[Table]:
        """By prompt length, and by context."""
        return [estimate_table(self.estimates), self.by_context.table()]

    def __repr__(self) -> str:
        parts = [f"{item.workload['prompt_tokens']}: TTFT {item.ttft_s.expected:.4g} s" for item in self.estimates]
        first = self.estimates[0]
        return f"Questions({first.model.id} on {first.hardware.id}, prompts {', '.join(parts)})"

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def questions(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    prompts: Sequence[int] | None = None,
    contexts: Sequence[int] | None = None,
    **request: Any,
) -> Questions:
    """Answer the four questions: prefill time at these prompts, first token, decode rate, and all of it over context.

    Rates are those of one request, never of all together.

    Parameters
    ----------
    model, hardware
        As in `estimate`.
    prompts : sequence of int, optional
        Lengths of the prompt: an everyday one and a long one; None is 512 and 8,192, as far as the context holds them.
        [token]
    contexts : sequence of int, optional
        Amounts of occupied context; None goes from empty to what the model is made for. [token]
    **request
        As in `estimate`, single values; without prompt_tokens.

    Returns
    -------
    Questions

    Raises
    ------
    InvalidRequest
        No prompt length, or impossible numbers; and as `estimate`.

    Warns
    -----
    RooflineWarning
        A single prompt length does not show how prefill grows; and as `estimate`.
    """
    single_values(request)
    if "prompt_tokens" in request:
        raise InvalidRequest("name lengths of the prompt as prompts", where="prompt_tokens")
    if prompts is None:
        lengths = list(default_prompts(lookup.model(model).max_context_tokens, request))
    else:
        lengths = _whole("prompts", prompts)
    if prompts is not None and len(set(lengths)) == 1:
        text = "prompts: one length does not show how prefill grows; give an everyday one and a long one"
        warnings.warn(text, RooflineWarning, stacklevel=2)
    estimates = tuple(estimate(model, hardware, prompt_tokens=each, **request) for each in dict.fromkeys(lengths))
    return Questions(estimates, by_context(model, hardware, contexts=contexts, **request))


def by_context(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    contexts: Sequence[int] | None = None,
    **request: Any,
) -> ByContext:
    """The next decode step, and the prefill of a little more, over amounts of context.

    Parameters
    ----------
    model, hardware, contexts
        As in `questions`.
    **request
        As in `estimate`; what is of one request, such as its lengths, is left out.

    Returns
    -------
    ByContext
    """
    if contexts is None:
        made_for = lookup.model(model).max_context_tokens
        most = min(made_for, request.get("context_limit") or made_for)
        shown = [tokens for tokens in (SHORT_CONTEXTS if most < SHORT else CONTEXTS) if tokens < most] + [most]
    else:
        shown = _whole("contexts", contexts, least=0)
    others = of_any_context(request)

    # One by one, not as an array: these few cost less than numpy takes to load.
    def over(prompt: int) -> tuple[Estimate, ...]:
        return tuple(estimate(model, hardware, prompt_tokens=prompt, context_tokens=each, **others) for each in shown)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # the table says what fits; a longer context is asked for here
        return ByContext(over(0), over(MORE_TOKENS))


def of_any_context(request: dict[str, Any]) -> dict[str, Any]:
    """The keywords of an estimate that hold at every amount of context."""
    return {name: value for name, value in request.items() if name not in OF_A_PROMPT} | {"output_tokens": 0}


def _whole(name: str, values: Any, least: int = 1) -> list[int]:
    """Whole numbers, at least one of them."""
    values = sequence(name, values)
    if not values:
        raise InvalidRequest("an empty list is no list of whole numbers", where=name)
    return [0 if least == 0 and each == 0 else scalar_count(name, each, MAX_TOKENS) for each in values]
