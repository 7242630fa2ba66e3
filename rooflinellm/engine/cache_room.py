"""Room for the caches of a server's requests: what the plan leaves of each device, in blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rooflinellm._numeric import ceil_div
from rooflinellm.engine.memory import Allocation, cells, usable_bytes
from rooflinellm.engine.memory import held as held_by
from rooflinellm.engine.plan import DeviceShare, Plan, Stage


@dataclass(frozen=True)
class CacheRoom:
    """Room for caches on the device that fills first.

    Attributes
    ----------
    capacity_bytes : int or None
        What is left beside weights and workspace; None where the memory is not known. [byte]
    block_tokens : int
        Tokens of a block. [token]
    held_bytes : ndarray
        What a sequence takes, by its number of blocks. [byte]
    """

    capacity_bytes: int | None
    block_tokens: int
    held_bytes: Any

    def of(self, tokens: Any) -> Any:
        """What sequences of so many tokens take, one or each of an array. [byte]"""
        return self.held_bytes[ceil_div(tokens, self.block_tokens)]

    @property
    def most_for_a_block(self) -> int:
        """The most that one more block takes. [byte]"""
        return int(np.diff(self.held_bytes).max())


def cache_room(plan: Plan, allocation: Allocation, longest: int) -> CacheRoom:
    """Find the device that fills first.

    Parameters
    ----------
    plan : Plan
        The plan.
    allocation : Allocation
        Options of the cache's layout.
    longest : int
        Tokens of the longest sequence. [token]

    Returns
    -------
    CacheRoom
        Of sliding layers a sequence holds a window and a chunk at most, recurrent layers a state each.
    """
    block = plan.engine.kv.block_tokens
    tokens = np.arange(ceil_div(longest, block) + 2) * block
    own = replace(allocation, unified=False)

    def held(share: DeviceShare) -> Any:
        taken = sum(cache.bytes_per_token * cells(plan, cache.span, 1, tokens, own) for cache in share.caches)
        return np.where(tokens > 0, taken + share.state_bytes * own.state_copies, 0)

    def left(stage: Stage, share: DeviceShare) -> int | None:
        usable = usable_bytes(plan, stage)
        return None if usable is None else int(usable - held_by(plan, stage, share, 0, longest, allocation).total)

    rooms = [
        CacheRoom(left(stage, share), block, held(share))
        for stage in plan.stages
        for share in stage.shares
        if share.caches or share.state_bytes
    ]
    known = [room for room in rooms if room.capacity_bytes is not None]
    if not known:
        whole = sum(room.held_bytes for room in rooms)
        return CacheRoom(None, block, whole if rooms else np.zeros(len(tokens), dtype=int))
    return min(known, key=lambda room: (room.capacity_bytes or 0) / max(int(room.held_bytes[-1]), 1))
