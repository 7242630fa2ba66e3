"""What must fit: weights, cache as allocated, workspace; on which device; and how far it could go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rooflinellm._numeric import anywhere, ceil_div, maximum, minimum, round_up, where
from rooflinellm.engine.plan import DeviceShare, Plan
from rooflinellm.engine.workspace import workspace_bytes
from rooflinellm.results import MemoryPlan, PlacedPart

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


def device_bytes(plan: Plan, share: DeviceShare, sequences: Any, limit: Any, allocation: Allocation) -> Any:
    """Weights, cache and workspace of one device. [byte]"""
    kv = sum(cache.bytes_per_token * cells(plan, cache.span, sequences, limit, allocation) for cache in share.caches)
    state = share.state_bytes * sequences * allocation.state_copies
    return share.weight_bytes + kv + state + workspace_bytes(plan, sequences, limit, allocation.chunk)


def _fit(plan: Plan, sequences: Any, limit: Any, allocation: Allocation, usable: int) -> Any:
    """Whether every device holds its part."""
    fullest: Any = 0
    for share in plan.shares:
        fullest = maximum(fullest, device_bytes(plan, share, sequences, limit, allocation))
    return fullest <= usable


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
    for cache in (cache for share in plan.shares for cache in share.caches):
        held = cells(plan, cache.span, sequences, limit, allocation)
        kinds[cache.kind] = kinds[cache.kind] + cache.bytes_per_token * held
        tokens = occupied if cache.span is None else minimum(occupied, cache.span)
        filled = filled + cache.bytes_per_token * sequences * tokens
    state = sum(share.state_bytes for share in plan.shares) * sequences * allocation.state_copies
    devices = plan.machine.devices
    workspace = devices * workspace_bytes(plan, sequences, limit, allocation.chunk)
    device_usable = usable_bytes(plan)
    placement = tuple(
        PlacedPart(
            device=plan.system.device.id if devices == 1 else f"{plan.system.device.id} #{number}",
            layers=share.layers,
            weight_bytes=share.weight_bytes,
            bytes=device_bytes(plan, share, sequences, limit, allocation),
        )
        for number, share in enumerate(plan.shares)
    )
    kv_bytes: Any = sum(kinds.values())
    return MemoryPlan(
        resident_weight_bytes=plan.resident_weight_bytes,
        kv_allocated_bytes=kv_bytes,
        kv_occupied_bytes=filled,
        kv_by_kind=kinds,
        state_bytes=state,
        workspace_bytes=workspace,
        total_bytes=plan.resident_weight_bytes + kv_bytes + state + workspace,
        usable_bytes=None if device_usable is None else device_usable * devices,
        fits=None if device_usable is None else _fit(plan, sequences, limit, allocation, device_usable),
        placement=placement,
        _largest_context=lambda: _largest_context(plan, sequences, allocation, device_usable),
        _largest_batch=lambda: _largest_batch(plan, limit, allocation, device_usable),
    )


def usable_bytes(plan: Plan) -> int | None:
    """Memory of one device that the engine takes: the usable part, or the share of the capacity it is set to. [byte]"""
    device = plan.system.device
    if device.usable_bytes is None or device.memory_bytes is None:
        return None
    return min(device.usable_bytes, int(device.memory_bytes * plan.engine.workspace.memory_fraction))


def _largest_context(plan: Plan, sequences: Any, allocation: Allocation, usable: int | None) -> Any:
    if usable is None:
        return None
    block, most = plan.engine.kv.block_tokens, plan.model.max_context_tokens
    blocks = _largest(
        lambda count: _fit(plan, sequences, count * block, allocation, usable), ceil_div(most, block), sequences
    )
    return minimum(blocks * block, most)


def _largest_batch(plan: Plan, limit: Any, allocation: Allocation, usable: int | None) -> Any:
    if usable is None:
        return None
    return _largest(lambda count: _fit(plan, count, limit, allocation, usable), LARGEST_BATCH, limit)


def _largest(fits: Any, most: int, like: Any) -> Any:
    """The largest count up to `most` for which `fits` holds, by bisection; 0 where not even 1 does."""
    low, high = 0 * like, 0 * like + most
    while anywhere(low < high):
        middle = (low + high + 1) // 2
        good = fits(middle)
        low, high = where(good, middle, low), where(good, high, middle - 1)
    return low
