"""Conversations and agents under prefix caching: what each turn computes again, and how long its first token takes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rooflinellm._numeric import is_array
from rooflinellm._shown import one_line
from rooflinellm.api.arguments import options_of, single_values
from rooflinellm.api.estimate import estimate
from rooflinellm.api.lookup import Name
from rooflinellm.api.plans import Setup, parallel_of, settle
from rooflinellm.api.turns import Turn, checked_turns
from rooflinellm.engine.prefix import PrefixCaching, prefix_caching
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, Prediction, data_frame, flat_record
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import bases_text, count_text, what_text
from rooflinellm.units import format_gib, format_seconds, significant


@dataclass(frozen=True, slots=True)
class PrefixTurn:
    """A turn as it is served.

    Attributes
    ----------
    prompt_tokens, output_tokens : int
        Whole prompt, history included, and answer. [token]
    common_tokens : int
        Tokens from the beginning on that are the same as in the cache. [token]
    cached_tokens, computed_tokens : int
        Tokens of the prompt that are taken from the cache, and the others. [token]
    ttft_s, ttft_without_s : Prediction
        Time to first token with prefix caching and without. [s]
    e2e_s : Prediction
        Time to the last token, with. [s]
    """

    prompt_tokens: int
    output_tokens: int
    common_tokens: int
    cached_tokens: int
    computed_tokens: int
    ttft_s: Prediction
    ttft_without_s: Prediction
    e2e_s: Prediction

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {key: each.to_dict() if isinstance(each, Prediction) else each for key, each in values.items()}


@dataclass(frozen=True)
class PrefixTrace:
    """The answer of `prefix_cache`.

    Attributes
    ----------
    turns : tuple of PrefixTurn
        In order.
    rules : PrefixCaching
        Where the engine can resume this model.
    ttft_s, ttft_without_s : Prediction
        Sum over the turns. [s]
    cache_bytes : int
        Cache and state of the conversation after its last turn, which have to be kept. [byte]
    checkpoint_bytes : int
        All checkpoints after the last turn, in the memory of the host. [byte]
    estimate : Estimate
        All turns, as arrays.
    """

    turns: tuple[PrefixTurn, ...]
    rules: PrefixCaching
    ttft_s: Prediction
    ttft_without_s: Prediction
    cache_bytes: int
    checkpoint_bytes: int
    estimate: Estimate

    @property
    def hit_rate(self) -> float:
        """Tokens taken from the cache over tokens of all prompts. [-]"""
        return sum(turn.cached_tokens for turn in self.turns) / sum(turn.prompt_tokens for turn in self.turns)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        one = self.estimate
        return {
            "model": one.model.id,
            "hardware": one.hardware.id,
            "weights": one.weights,
            "kv": one.kv,
            "engine": one.engine,
            "block_tokens": self.rules.block_tokens,
            "resumes_at": "checkpoints" if self.rules.at_checkpoints else "blocks",
            "turns": [turn.to_dict() for turn in self.turns],
            "ttft_s": self.ttft_s.to_dict(),
            "ttft_without_s": self.ttft_without_s.to_dict(),
            "hit_rate": self.hit_rate,
            "cache_bytes": self.cache_bytes,
            "checkpoint_bytes": self.checkpoint_bytes,
            "basis": self.ttft_s.basis,
            "assumptions": list(one.assumptions),
            "warnings": list(one.warnings),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a turn."""
        return [{"turn": number, **flat_record(turn.to_dict())} for number, turn in enumerate(self.turns, 1)]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def table(self) -> Table:
        """A row a turn, and their sum."""
        return _table(self)

    def __repr__(self) -> str:
        return (
            f"PrefixTrace({len(self.turns)} turns, {100 * self.hit_rate:.0f} % of prompt tokens cached, "
            f"first tokens {self.ttft_s.expected:.4g} s in all, {self.ttft_without_s.expected:.4g} s without caching)"
        )

    def _repr_html_(self) -> str:
        return self.table().to_html()


def prefix_cache(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    turns: Sequence[Turn | Mapping[str, Any] | Sequence[int]],
    **request: Any,
) -> PrefixTrace:
    """Follow a conversation or an agent through an engine's prefix cache.

    Each turn's prompt is the last one's with its answer and new tokens behind. Of it the engine takes from its cache
    what is the same from the beginning on, rounded down to where it can resume; attention still reads all of it. The
    last token of an answer was never fed back, so it is not in the cache. The cache is warm: nothing of the
    conversation is evicted between its turns.

    Parameters
    ----------
    model, hardware
        As in `estimate`.
    turns : sequence
        `Turn` objects, mappings with its fields, or ``(new_tokens, output_tokens[, edit_at])``.
    **request
        As in `estimate`, single values; without prompt, output and cached tokens, which the turns say.

    Returns
    -------
    PrefixTrace

    Raises
    ------
    InvalidRequest
        No turns, impossible numbers, an edit behind the history, or arrays.
    MissingSpec
        The engine is not known to reuse prefixes; and as `estimate`.

    Warns
    -----
    RooflineWarning
        As `estimate`.
    """
    asked = checked_turns(turns)
    for name in request:
        if name in ("prompt_tokens", "output_tokens", "cached_tokens"):
            raise InvalidRequest("the turns say it already", where=name)
    single_values(request)
    import numpy as np

    options = options_of(request.get("options"))
    chosen = {name: request.get(name) for name in ("weights", "kv", "engine", "overrides")}
    degrees = {name: value for name, value in request.items() if name.endswith("_parallel")}
    setup = Setup(**chosen, options=options, parallel=parallel_of(**degrees))
    plan = settle(model, hardware, setup).plan()
    rules = prefix_caching(plan, full_windows=options.swa_full)
    shapes, saved = _walk(asked, rules)
    prompts, outputs, common, cached = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
    lengths: dict[str, Any] = {"prompt_tokens": prompts, "output_tokens": outputs}
    warm = estimate(model, hardware, **lengths, cached_tokens=cached, **request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # the same again
        cold = estimate(model, hardware, **lengths, **request)
    served = tuple(
        PrefixTurn(
            prompt_tokens=int(prompts[at]),
            output_tokens=int(outputs[at]),
            common_tokens=int(common[at]),
            cached_tokens=int(cached[at]),
            computed_tokens=int(prompts[at] - cached[at]),
            ttft_s=_at(warm.ttft_s, at),
            ttft_without_s=_at(cold.ttft_s, at),
            e2e_s=_at(warm.e2e_s, at),
        )
        for at in range(len(asked))
    )
    memory = warm.memory
    return PrefixTrace(
        turns=served,
        rules=rules,
        ttft_s=warm.ttft_s.map(lambda values: float(values.sum())),
        ttft_without_s=cold.ttft_s.map(lambda values: float(values.sum())),
        cache_bytes=int(_element(memory.kv_occupied_bytes, -1) + _element(memory.state_bytes, -1)),
        checkpoint_bytes=len(saved) * rules.checkpoint_bytes,
        estimate=warm,
    )


def _walk(turns: Sequence[Turn], rules: PrefixCaching) -> tuple[list[tuple[int, int, int, int]], tuple[int, ...]]:
    """Prompt, output, common and cached tokens of each turn; and the checkpoints at the end. [token]"""
    walked: list[tuple[int, int, int, int]] = []
    history = held = 0
    saved: tuple[int, ...] = ()
    for number, turn in enumerate(turns, 1):
        if turn.edit_at is not None and turn.edit_at > history:
            raise InvalidRequest(
                f"an edit at token {turn.edit_at:,} of a history of {history:,}",
                where=f"turn {number}, edit_at",
                next_step="Count from the beginning of the conversation; what is appended is no edit.",
            )
        prompt = history + turn.new_tokens
        if prompt == 0:
            raise InvalidRequest("a prompt of no tokens", where=f"turn {number}, new_tokens")
        common = held if turn.edit_at is None else min(held, turn.edit_at)
        hit = rules.hit_tokens(common, prompt, saved)
        saved = rules.save(saved, hit, prompt)
        walked.append((prompt, turn.output_tokens, common, hit))
        history = prompt + turn.output_tokens
        held = prompt + max(turn.output_tokens - 1, 0)
    return walked, saved


def _element(values: Any, at: int) -> Any:
    """An element of an array that may be a number, or of one element."""
    return values[at if values.size > 1 else 0].item() if is_array(values) and values.ndim else values


def _at(prediction: Prediction, at: int) -> Prediction:
    """The prediction of one turn."""
    return prediction.map(lambda values: float(_element(values, at)))


SHOWN = 40
"""Most turns that a table shows: the first ones and the last. [-]"""


def _table(trace: PrefixTrace) -> Table:
    columns = [
        Column("turn"),
        Column("prompt"),
        Column("cached"),
        Column("computed"),
        Column("time", group="first token"),
        Column("range", "left", group="first token", drop=2),
        Column("ideal", group="first token", drop=3),
        Column("uncached", group="first token"),
        Column("faster", drop=1),
    ]
    numbered = list(enumerate(trace.turns, 1))
    hidden = len(numbered) - SHOWN
    if hidden > 0:
        numbered = numbered[: SHOWN // 2] + numbered[-SHOWN // 2 :]
    rows = []
    for number, turn in numbered:
        counts = (turn.prompt_tokens, turn.cached_tokens, turn.computed_tokens)
        rows.append([str(number), *map(count_text, counts), *_times(turn.ttft_s, turn.ttft_without_s)])
    sums = [
        sum(getattr(turn, name) for turn in trace.turns)
        for name in ("prompt_tokens", "cached_tokens", "computed_tokens")
    ]
    rows.append(["all", *map(count_text, sums), *_times(trace.ttft_s, trace.ttft_without_s)])
    rules = trace.rules
    if rules.at_checkpoints:
        where = "at the checkpoint before the change: windows and states cannot be rewound"
    else:
        where = "at any token" if rules.block_tokens == 1 else f"at blocks of {rules.block_tokens:,} tokens"
    kept = f"kept for it: {format_gib(trace.cache_bytes)} of cache"
    if trace.checkpoint_bytes:
        kept += f", {format_gib(trace.checkpoint_bytes)} of checkpoints"
    notes = [f"resumes {where}; the last token of a prompt is always computed", kept]
    notes += [f"{hidden:,} turns are not shown"] if hidden > 0 else []
    notes.append(f"basis: {bases_text([trace.estimate])}")
    notes += [f"warning: {text}" for text in trace.estimate.warnings]
    return Table(
        columns, rows, what_text(trace.estimate), notes, f"{100 * trace.hit_rate:.0f} % of prompt tokens cached"
    )


def _times(warm: Prediction, cold: Prediction) -> list[str]:
    faster = f"{significant(cold.expected / warm.expected, 2)}x" if warm.expected > 0 else ""
    return [
        format_seconds(warm.expected),
        f"{format_seconds(warm.low)} – {format_seconds(warm.high)}",
        f"≥ {format_seconds(warm.ideal)}",
        format_seconds(cold.expected),
        faster,
    ]
