"""Lengths that nobody typed: the prompts that are shown unasked, and the warnings that are about them alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

OF_A_REQUEST = ("context_tokens", "prompt_tokens", "output_tokens")


def default_prompts(model: Any, keywords: Mapping[str, Any]) -> tuple[int, ...]:
    """Lengths of the prompt that are shown where nobody names any."""
    from rooflinellm.api.default_prompts import default_prompts as those_within

    return those_within(_made_for(model), keywords)


def asked_warnings(texts: Iterable[str], model: Any, given: Mapping[str, Any]) -> list[str]:
    """Warnings without the one about a long context, where the lengths that were typed are within the model's.

    It is then about the prompt and the answer that are assumed on top of them.
    """
    from rooflinellm.api.default_prompts import largest_length

    typed = sum(largest_length(given.get(name, 0)) for name in OF_A_REQUEST)
    return [text for text in texts if not _is_of_context(text) or typed > _made_for(model)]


def _is_of_context(text: str) -> bool:
    """Whether a warning has this code; where several systems are compared, their names stand before it."""
    return text.startswith("context: ") or ": context: " in text


def _made_for(model: Any) -> int:
    from rooflinellm.api.lookup import model as find

    return find(model).max_context_tokens
