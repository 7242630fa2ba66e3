"""Lengths of the prompt that are shown where nobody names any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROMPTS = (512, 8_192)
"""An everyday one and a long one. [token]"""
BESIDE = {"context_tokens": 0, "output_tokens": 128}
"""What else takes room in a context, and how much of it where none is named, as in `estimate`. [token]"""
MADE_FOR = "model.max_context_tokens"
"""The override of what a model is made for."""


def default_prompts(most_tokens: int, request: Mapping[str, Any]) -> tuple[int, ...]:
    """Those of `PROMPTS` that the configured context holds and the model is made for; at least the first.

    Parameters
    ----------
    most_tokens : int
        What the model is made for, where the request does not say otherwise. [token]
    request : mapping of str to Any
        Arguments of `estimate`.
    """
    overrides = request.get("overrides")
    made_for = overrides.get(MADE_FOR) if isinstance(overrides, Mapping) else None
    room = most_tokens if made_for is None else largest_length(made_for)
    if (limit := request.get("context_limit")) is not None:
        room = min(room, largest_length(limit))
    room -= sum(largest_length(request.get(name, least)) for name, least in BESIDE.items())
    return tuple(prompt for prompt in PROMPTS if prompt <= room) or PROMPTS[:1]


def largest_length(value: Any) -> int:
    """The largest of some lengths; what is no length is for `estimate` to refuse."""
    try:
        return int(max(value) if isinstance(value, list | tuple) else value)
    except (TypeError, ValueError, OverflowError):
        return 0
