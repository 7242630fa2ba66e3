"""What is said where a format or an engine that nobody named is not the one that is mostly run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rooflinellm import catalog
from rooflinellm.engine.plan import Plan
from rooflinellm.errors import RooflineError
from rooflinellm.summary import weights_text

FEW_BITS = 5.0
"""Bits of an element up to which a model that is published so is hardly run in another format. [bit]"""


def by_default(plan: Plan, weights: Any, engine: Any) -> tuple[str, ...]:
    """Say what stands in place of a format and an engine, and what is mostly run instead.

    Parameters
    ----------
    plan : Plan
        The plan.
    weights, engine : Any
        What was asked for; None is nothing.
    """
    if weights is not None or plan.model.entry.file is not None:
        return ()
    key = "by default", engine is None
    if key not in plan.memo:
        plan.memo[key] = tuple(_said(plan, named=engine is not None))
    found: tuple[str, ...] = plan.memo[key]
    return found


def _said(plan: Plan, *, named: bool) -> Iterator[str]:
    native = plan.model.native_format
    if _published_in_few_bits(native) and (own := _as_read_by(plan, native)) not in (None, plan.fmt.id):
        yield (
            f"weights: {weights_text(plan.fmt.id)}, as no format was asked for; published in "
            f"{weights_text(own or native)}, which is mostly run"
        )
    if not named and plan.parallel.devices > 1:
        yield (
            f"engine: {plan.engine.id}, as none was asked for; devices that share each layer mostly serve with vllm "
            f"or sglang, in {weights_text(native)}"
        )


def _published_in_few_bits(native: str) -> bool:
    encodings = catalog.encodings().encodings
    try:
        rules = catalog.weight_format(native).rules
    except RooflineError:  # a format of the user's own that is not there: nothing is said of it
        return False
    return any(encodings[rule.encoding].bits_per_element <= FEW_BITS for rule in rules)


def _as_read_by(plan: Plan, native: str) -> str | None:
    """The format of a name in the engine's own family; None where it has none."""
    try:
        return catalog.weight_format(native.partition(":")[2], plan.engine.format_families).id
    except RooflineError:
        return None
