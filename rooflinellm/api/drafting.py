"""Drafts of an estimate: how many, how often accepted, and what makes them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from rooflinellm import catalog
from rooflinellm._kept import Kept
from rooflinellm.api import lookup
from rooflinellm.api.arguments import count, name_of, scalar_count, share
from rooflinellm.api.options import Options
from rooflinellm.api.plans import Settled, entered
from rooflinellm.engine.acceptance import FORMS, cycle_tokens
from rooflinellm.engine.drafters import (
    FREE,
    HEADS,
    free_drafter,
    head_drafter,
    model_drafter,
    module_drafter,
    recipe_of,
)
from rooflinellm.engine.plan import Drafter, Plan
from rooflinellm.engine.speculation import Speculation
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.formats import FormatSpec

MOST_DRAFTED = 1024


def speculation_of(draft: Any, draft_tokens: Any, acceptance: Any, options: Options) -> Speculation | None:
    """How tokens are drafted, None without drafts.

    Raises
    ------
    InvalidRequest
        Drafts without acceptance or the other way round, or numbers out of range.
    """
    length = count("draft_tokens", draft_tokens, 0, MOST_DRAFTED)
    if hasattr(length, "dtype"):
        raise InvalidRequest("one draft length at a time", where="draft_tokens")
    if length == 0:
        if acceptance is not None:
            raise InvalidRequest(
                "acceptance is stated, and no tokens are drafted",
                where="draft_tokens",
                next_step="Give draft_tokens=4 or the like.",
            )
        return None
    if acceptance is None:
        raise InvalidRequest(
            f"{length} drafted tokens, and how many are accepted is not stated",
            where="acceptance",
            next_step=f"Give {FORMS}.",
        )
    steps = options.draft_steps
    amortised = options.verify_amortisation
    return Speculation(
        draft_tokens=int(length),
        draft_steps=int(length) if steps is None else scalar_count("draft_steps", steps, MOST_DRAFTED),
        cycle_tokens=cycle_tokens(acceptance, int(length)),
        amortisation=None if amortised is None else share("verify_amortisation", amortised),
    )


def with_drafter(settled: Settled, draft: Any) -> Settled:
    """The same with what drafts; errors as in `estimate`."""
    if draft is None:
        return settled
    kind = _kind_of(draft)
    other = None if kind is not None else lookup.model(draft)  # looked up each time: a file may change
    objects = (settled.plans,) if other is None else (settled.plans, other.entry)
    names = kind, settled.options.draft_weights
    return replace(settled, drafter=_drafters.of(objects, names, lambda: _drafter(settled, kind, other)))


def _kind_of(draft: Any) -> str | None:
    """What drafts without being a model of its own; None for a model."""
    if not isinstance(draft, str):
        return None
    kind = name_of("draft", draft).strip().lower().replace(" ", "").replace("_", "-")
    if kind in FREE or kind == "mtp":
        return kind
    return kind.replace("-", "") if kind.replace("-", "") in HEADS else None


def idle_draft(draft: Any, draft_tokens: Any) -> tuple[str, ...]:
    """What to warn of where something is to draft, and how many tokens is not said."""
    if draft is None or draft_tokens:
        return ()
    what = getattr(draft, "id", draft)
    return (f"draft: {what} takes memory and drafts nothing; give draft_tokens=4 and acceptance=0.7 or the like",)


MOST_KEPT = 256
_drafters = Kept[Drafter](MOST_KEPT)


def _drafter(settled: Settled, kind: str | None, other: ModelSpec | None) -> Drafter:
    model, fmt, engine = settled.model, settled.fmt, settled.engine
    compile_for = partial(_compiled, settled)
    if other is None:
        if kind in FREE:
            return free_drafter()
        if kind is None or kind == "mtp":
            return module_drafter(model, fmt, compile_for)
        return head_drafter(model, fmt, engine, kind, compile_for)
    weights = settled.options.draft_weights
    if weights is not None:
        fmt = catalog.weight_format(weights, engine.format_families)
    elif other.entry.file is not None:
        fmt = other.entry.file.fmt
    else:
        fmt = recipe_of(model, fmt)
    return model_drafter(other, fmt, compile_for)


def _compiled(settled: Settled, model: ModelSpec, fmt: FormatSpec) -> Plan:
    """Compile for the first device alone."""
    alone = settled.system.model_copy(update={"count": 1, "others": (), "host": None, "host_cpu": None})
    unlimited = replace(settled.options, power_limit_w=None)  # the device is limited already
    asked = entered(
        model, alone, fmt, settled.engine, settled.backend_name, settled.kv, settled.chunk, settled.build, unlimited
    )
    return asked.plan()
