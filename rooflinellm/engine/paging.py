"""Paging: what a driver keeps in system memory when a discrete device is asked to hold more than it can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rooflinellm._numeric import anywhere, divide, maximum, minimum
from rooflinellm.engine.memory import Allocation, Held, held, usable_bytes
from rooflinellm.engine.plan import Plan, Spill, Stage
from rooflinellm.engine.workspace import runtime_bytes


def paged(plan: Plan, sequences: Any, limit: Any, allocation: Allocation) -> Plan:
    """Return the plan with what its discrete devices cannot hold in system memory, read over the link.

    What was allocated last is the first to go: the compute buffer, then recurrent state, the cache and the weights. So
    decode falls by a step when the state goes and then little while the cache is empty, as it was measured on an RTX
    3080: 45 tokens/s when all fits, 24 when 0.2 GiB do not, 20 at any more.

    Parameters
    ----------
    plan : Plan
        The plan.
    sequences, limit : array_like
        Sequences, and the configured context of each. [-], [token]
    allocation : Allocation
        Options of the cache's layout.

    Returns
    -------
    Plan
        Of devices that hold their part, and of those that share the host's memory, nothing changes.

    References
    ----------
    sudoingX/qwen38-mtp, sweeps/rtx-3090.md, section on the RTX 3080.
    """
    stages = tuple(_with_spill(plan, stage, sequences, limit, allocation) for stage in plan.stages)
    changed = any(stage is not before for stage, before in zip(stages, plan.stages, strict=True))
    return replace(plan, stages=stages) if changed else plan


def _with_spill(plan: Plan, stage: Stage, sequences: Any, limit: Any, allocation: Allocation) -> Stage:
    usable = usable_bytes(plan, stage)
    if stage.paging is None or usable is None:
        return stage
    runtime = runtime_bytes(plan, stage)
    parts = [held(plan, stage, share, sequences, limit, allocation) for share in stage.shares]
    out = [_spilled(each, runtime, usable) for each in parts]

    def share(kind: str, fixed: int = 0) -> Any:
        whole: Any = sum(getattr(each, kind) - fixed for each in parts)
        return divide(sum(getattr(each, kind) for each in out), whole)

    spill = Spill(share("workspace", runtime), share("state"), share("kv"), share("weights"), stage.paging)
    return replace(stage, spill=spill) if anywhere(spill.spread > 1) else stage


def _spilled(parts: Held, runtime: int, usable: int) -> Held:
    """What of each kind a device of so much memory cannot hold; the runtime's own memory stays. [byte]"""
    lacking = maximum(parts.total - usable, 0)
    found = []
    for size in (parts.workspace - runtime, parts.state, parts.kv, parts.weights):
        found.append(minimum(lacking, size))
        lacking = lacking - found[-1]
    workspace, state, kv, weights = found
    return Held(weights, kv, state, workspace)
