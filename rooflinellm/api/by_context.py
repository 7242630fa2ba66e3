"""How both phases change as the context fills: estimates over amounts of occupied context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rooflinellm.api import lookup
from rooflinellm.api.estimate import estimate
from rooflinellm.results import Estimate

MORE_TOKENS = 512
"""Prompt on top of each context for which prefill is shown. [token]"""
CONTEXTS = (0, 4_096, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576)
SHORT_CONTEXTS = (0, 512, 1_024, 2_048, 4_096)
SHORT = 16_384
"""Below this limit `SHORT_CONTEXTS` are shown. [token]"""
OF_A_REQUEST = ("prompt_tokens", "output_tokens", "context_tokens", "context_limit", "cached_tokens", "queue_s")
"""Keywords of an estimate that the amount of context takes the place of."""


class Growth(NamedTuple):
    """Estimates over amounts of context: of the next decode step, and of a little more prompt."""

    decode: list[Estimate]
    prefill: list[Estimate]


def contexts_up_to(most: int) -> list[int]:
    """Amounts of context to show, the last one `most`. [token]"""
    return [tokens for tokens in (SHORT_CONTEXTS if most < SHORT else CONTEXTS) if tokens < most] + [most]


def of_growth(request: dict[str, Any]) -> dict[str, Any]:
    """The keywords of an estimate that hold at every amount of context."""
    return {name: value for name, value in request.items() if name not in OF_A_REQUEST} | {"output_tokens": 0}


def by_context(model: Any, hardware: Any, *, contexts: Sequence[int] | None = None, **request: Any) -> Growth:
    """Estimate the next decode step, and the prefill of a little more, over amounts of context.

    Parameters
    ----------
    model, hardware : str, path or spec
        As in `rooflinellm.estimate`.
    contexts : sequence of int, optional
        Tokens in the cache; None is steps up to what the model is made for, or to `context_limit`. [token]
    **request
        As in `rooflinellm.estimate`; lengths and waiting are left out.

    Returns
    -------
    Growth

    Raises
    ------
    RooflineError
        What `rooflinellm.estimate` raises.
    """
    spec, others = lookup.model(model), of_growth(request)
    if contexts is None:
        longest = estimate(spec, hardware, prompt_tokens=0, **others).model.max_context_tokens
        contexts = contexts_up_to(min(longest, request.get("context_limit") or longest))

    # One by one, not as an array: these few cost less than numpy takes to load.
    def over(prompt: int) -> list[Estimate]:
        return [estimate(spec, hardware, prompt_tokens=prompt, context_tokens=each, **others) for each in contexts]

    return Growth(over(0), over(MORE_TOKENS))
