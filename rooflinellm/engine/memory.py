"""What must fit: weights, cache as allocated, workspace; on which device; and how far it could go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm._numeric import anywhere, ceil_div, every, maximum, minimum, round_up, where
from rooflinellm.engine.plan import DeviceShare, Plan, Stage
from rooflinellm.engine.workspace import workspace_bytes
from rooflinellm.results import MemoryPlan, PlacedPart
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.hardware import HardwareSpec

LARGEST_BATCH = 10**6
"""Most sequences that a request may ask for. [-]"""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Options of the cache's layout.

    Attributes
    ----------
    unified : bool
        All sequences share one pool.
    full_windows : bool
        Sliding layers hold every token.
    chunk : int
        Tokens of a prompt that pass at once. [token]
    state_copies : int
        Copies of recurrent state that are kept, to roll rejected drafts back. [-]
    """

    unified: bool
    full_windows: bool
    chunk: int
    state_copies: int = 1


def cells(plan: Plan, window: int | None, sequences: Any, limit: Any, allocation: Allocation) -> Any:
    """Tokens that the cache of one layer has room for, over all sequences.

    Full attention holds the configured context of each sequence, rounded up to the engine's block. A sliding layer
    holds a window (for each sequence, where they share a pool) and one chunk more, rounded up, but no more than the
    context:

        pad(min(n_ctx, W n_seq + n_chunk))

    Parameters
    ----------
    plan : Plan
        Its engine names the rule and the block.
    window : int or None
        Attention window. [token]
    sequences : array_like
        Sequences, n_seq. [-]
    limit : array_like
        Configured context of one sequence. [token]
    allocation : Allocation
        Options.

    Returns
    -------
    int or ndarray
        [token]

    References
    ----------
    ggml-org/llama.cpp, src/llama-kv-cache-iswa.cpp.
    """
    rules = plan.engine.kv
    per_sequence = round_up(limit, rules.block_tokens)
    if window is None or rules.sliding == "full" or allocation.full_windows:
        return sequences * per_sequence
    sharing, pools = (sequences, 1) if allocation.unified else (1, sequences)
    context = per_sequence * sharing
    return pools * round_up(minimum(context, window * sharing + allocation.chunk), rules.block_tokens)


@dataclass(frozen=True, slots=True)
class Held:
    """What one device, the host or a drive holds, by kind. [byte]"""

    weights: Any
    kv: Any
    state: Any
    workspace: Any
    drafts: Any = 0

    @property
    def total(self) -> Any:
        """All of it. [byte]"""
        return self.weights + self.kv + self.state + self.workspace + self.drafts


def held(plan: Plan, stage: Stage, share: DeviceShare, sequences: Any, limit: Any, allocation: Allocation) -> Held:
    """Weights, cache and workspace of one device, or of what lies on the host or on a drive."""
    kv: Any = sum(
        cache.bytes_per_token * cells(plan, cache.span, sequences, limit, allocation) for cache in share.caches
    )
    works = stage.tier == "device" or (stage.tier == "host" and stage.kernels)
    own = workspace_bytes(plan, sequences, limit, allocation.chunk, stage) if works else 0
    return Held(
        weights=share.weight_bytes + share.copied_bytes,
        kv=kv,
        state=share.state_bytes * sequences * allocation.state_copies,
        workspace=own * stage.team,
        drafts=draft_bytes(plan, sequences, limit, allocation) if share is plan.main.shares[0] else 0,
    )


def draft_bytes(plan: Plan, sequences: Any, limit: Any, allocation: Allocation) -> Any:
    """What drafts tokens takes on the first device: its weights, its cache of the same context, its buffers. [byte]"""
    drafter = plan.drafter
    if drafter is None or drafter.plan is None:
        return 0
    caches = [(drafter.plan, cache) for share in drafter.plan.main.shares for cache in share.caches]
    kv = sum(cache.bytes_per_token * cells(own, cache.span, sequences, limit, allocation) for own, cache in caches)
    state = sum(share.state_bytes for share in drafter.plan.main.shares) * sequences * allocation.state_copies
    beside = workspace_bytes(drafter.plan, sequences, limit, allocation.chunk) if drafter.separate else 0
    return drafter.resident_weight_bytes + kv + state + beside


def usable_bytes(plan: Plan, stage: Stage) -> int | None:
    """What programs get of the memory of one device, of the host or of a drive; None where it is not known. [byte]"""
    key = "usable", id(stage)  # a plan keeps its stages
    if key not in plan.memo:
        plan.memo[key] = _usable(plan, stage)
    found: int | None = plan.memo[key]
    return found


def _usable(plan: Plan, stage: Stage) -> int | None:
    if stage.tier == "device":
        usable = usable_of_device(stage.device, plan.engine)
        return None if usable is None else usable * stage.team
    if stage.tier == "disk":
        return None if plan.system.disk is None else plan.system.disk.capacity_bytes or LARGEST_DISK
    if plan.system.device.memory.unified:
        return plan.system.device.memory_bytes
    return None if plan.system.host is None else plan.system.host.capacity_bytes


LARGEST_DISK = 10**15
"""Room on a drive whose capacity is not stated. [byte]"""


def usable_of_device(device: HardwareSpec, engine: EngineSpec) -> int | None:
    """Memory of one device that the engine takes: the usable part, or the share of the capacity it is set to. [byte]"""
    if device.usable_bytes is None or device.memory_bytes is None:
        return None
    return min(device.usable_bytes, int(device.memory_bytes * engine.workspace.memory_fraction))


def _contents(plan: Plan, sequences: Any, limit: Any, allocation: Allocation) -> list[tuple[Stage, DeviceShare, Held]]:
    """What each place holds."""
    return [
        (stage, share, held(plan, stage, share, sequences, limit, allocation))
        for stage in plan.stages
        for share in stage.shares
    ]


def _shared_bytes(plan: Plan) -> int | None:
    """Memory that devices share with their host; None where they do not, or where it is not known. [byte]"""
    if "shared" not in plan.memo:
        device = plan.system.device
        size = device.memory_bytes if device.memory.unified else None
        plan.memo["shared"] = None if size is None else size * plan.system.device_count // plan.parallel.replicas
    found: int | None = plan.memo["shared"]
    return found


def _slack(plan: Plan, contents: Sequence[tuple[Stage, DeviceShare, Held]]) -> tuple[Any, bool]:
    """The least room that any place has left, below 0 where something does not fit; and whether all places are known.

    A host of unknown memory holds what is only looked up. [byte]
    """
    slack: Any = None
    known = True
    shared: Any = 0
    together = _shared_bytes(plan)
    for stage, _, parts in contents:
        usable, taken = usable_bytes(plan, stage), parts.total
        shared = 0 if together is None else shared + taken
        if usable is not None:
            slack = usable - taken if slack is None else minimum(slack, usable - taken)
        elif stage.tier == "device" or stage.kernels:
            known = False
    if together is not None:
        left = together - shared
        slack = left if slack is None else minimum(slack, left)
    return 0 if slack is None else slack, known


def fits_devices(plan: Plan, sequences: Any, limit: Any, allocation: Allocation) -> Any:
    """Whether the devices hold their part, whatever the host does; a device of unknown memory holds everything."""
    fits: Any = True
    for stage in plan.stages:
        usable = usable_bytes(plan, stage) if stage.tier == "device" else None
        if usable is not None:
            for share in stage.shares:
                fits = fits & (held(plan, stage, share, sequences, limit, allocation).total <= usable)
    return fits


def memory_plan(plan: Plan, sequences: Any, limit: Any, occupied: Any, allocation: Allocation) -> MemoryPlan:
    """Add up what must fit.

    Parameters
    ----------
    plan : Plan
        The plan.
    sequences : array_like
        Sequences in the batch. [-]
    limit : array_like
        Configured context of one sequence. [token]
    occupied : array_like
        Tokens of a sequence after its last token. [token]
    allocation : Allocation
        Options of the cache's layout.

    Returns
    -------
    MemoryPlan
    """
    kinds: dict[str, Any] = {"full": 0, "sliding": 0, "latent": 0, "indexer": 0}
    filled: Any = 0
    state: Any = 0
    shares = [(stage, share) for stage in plan.stages for share in stage.shares]
    for _, share in shares:
        state = state + share.state_bytes * sequences * allocation.state_copies
        for cache in share.caches:
            kinds[cache.kind] += cache.bytes_per_token * cells(plan, cache.span, sequences, limit, allocation)
            tokens = occupied if cache.span is None else minimum(occupied, cache.span)
            filled = filled + cache.bytes_per_token * sequences * tokens
    replicas = plan.parallel.replicas
    contents = _contents(plan, sequences, limit, allocation)
    slack, known = _slack(plan, contents)
    placement = tuple(_placed_parts(plan, contents)) * replicas
    if replicas > 1:
        alike = len(placement) // replicas
        placement = tuple(replace(part, device=f"{part.device}, copy {n // alike}") for n, part in enumerate(placement))
        kinds = {kind: size * replicas for kind, size in kinds.items()}
        filled, state = filled * replicas, state * replicas
    weights = (plan.resident_weight_bytes + sum(share.copied_bytes for _, share in shares)) * replicas
    kv_bytes: Any = sum(kinds.values())
    drafts = draft_bytes(plan, sequences, limit, allocation) * replicas
    total: Any = sum(part.bytes for part in placement)
    return MemoryPlan(
        resident_weight_bytes=weights,
        kv_allocated_bytes=kv_bytes,
        kv_occupied_bytes=filled,
        kv_by_kind=kinds,
        state_bytes=state,
        workspace_bytes=total - kv_bytes - state - weights - drafts,
        draft_bytes=drafts,
        copied_weight_bytes=weights - plan.resident_weight_bytes,
        total_bytes=total,
        usable_bytes=_total_usable(plan),
        fits=None if not known and every(slack >= 0) else slack >= 0,
        placement=placement,
        _largest_context=lambda: _largest_context(plan, sequences, allocation),
        _largest_batch=lambda: _largest_batch(plan, limit, allocation),
    )


def _placed_parts(plan: Plan, contents: Sequence[tuple[Stage, DeviceShare, Held]]) -> Iterator[PlacedPart]:
    """What each device holds; those of a team equal parts of what the team does."""
    named: dict[int, Iterator[str]] = {}
    for stage, share, parts in contents:
        usable, whole = usable_bytes(plan, stage), parts.total
        names = named.setdefault(id(stage), iter(stage.names))
        for number in range(stage.team):
            yield PlacedPart(
                device=next(names),
                tier=stage.tier,
                layers=share.layers,
                weight_bytes=_part(parts.weights, number, stage.team),
                kv_bytes=_part(parts.kv, number, stage.team),
                state_bytes=_part(parts.state, number, stage.team),
                workspace_bytes=_part(parts.workspace, number, stage.team),
                bytes=_part(whole, number, stage.team),
                usable_bytes=None if usable is None else usable // stage.team,
            )


def _part(count: Any, number: int, parts: int) -> Any:
    """One of equal parts, so that all of them add up to the count. [byte]"""
    return count if parts == 1 else count * (number + 1) // parts - count * number // parts


def _total_usable(plan: Plan) -> int | None:
    """Memory of the devices, and of the host and a drive where they take part in a pass. [byte]"""
    total = 0
    for stage in plan.stages:
        if stage.tier == "device" or stage.kernels:
            usable = usable_bytes(plan, stage)
            if usable is None:
                return None
            if stage.tier == "device" or not plan.system.device.memory.unified:
                total += usable * len(stage.shares) * plan.parallel.replicas
    return total


def _known(plan: Plan) -> bool:
    """Whether the memory of every device is known, so that there is a most that fits."""
    return all(usable_bytes(plan, stage) is not None for stage in plan.stages if stage.tier == "device")


def _largest_context(plan: Plan, sequences: Any, allocation: Allocation) -> Any:
    if not _known(plan):
        return None
    block, most = plan.engine.kv.block_tokens, plan.model.max_context_tokens
    blocks = _largest(
        lambda count: _slack(plan, _contents(plan, sequences, count * block, allocation))[0],
        ceil_div(most, block),
        sequences,
    )
    return minimum(blocks * block, most)


def _largest_batch(plan: Plan, limit: Any, allocation: Allocation) -> Any:
    if not _known(plan):
        return None
    return plan.parallel.replicas * _largest(
        lambda count: _slack(plan, _contents(plan, count, limit, allocation))[0],
        LARGEST_BATCH // plan.parallel.replicas,
        limit,
    )


def _largest(slack: Callable[[Any], Any], most: int, like: Any) -> Any:
    """The largest count up to `most` for which the slack is not below 0; 0 where not even 1 has any.

    The slack falls with the count, nearly in proportion: the first steps go to where a straight line would cross 0, the
    later ones halve what is left in turn with that.
    """
    low, high = 0 * like, 0 * like + most
    above, below = slack(low), slack(high)
    low, high = where(below >= 0, most, low), where(below >= 0, most + 1, high)
    high = where(above < 0, low + 1, high)
    step = 0
    while anywhere(high - low > 1):
        step += 1
        guess = (low + high) // 2
        if step <= 3 or step % 2:
            guess = low + (high - low) * maximum(above, 0) // maximum(above - below, 1)
            guess = minimum(maximum(guess, low + 1), high - 1)
        open_ = high - low > 1
        left = slack(where(open_, guess, low))
        good, bad = open_ & (left >= 0), open_ & (left < 0)
        low, above = where(good, guess, low), where(good, left, above)
        high, below = where(bad, guess, high), where(bad, left, below)
    return low
