"""What a benchmark measures that keeps a number of requests under way: a simulation of the server and its clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflinellm.engine.cache_room import CacheRoom, cache_room
from rooflinellm.engine.load import Workload, serve
from rooflinellm.engine.load_server import server_of
from rooflinellm.engine.memory import Allocation
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request

ROUNDS = 10
"""Requests of a benchmark for each that it keeps under way, as aiperf and vLLM's own examples take. [-]"""
MOST_REQUESTS = 20_000


def mean_ttft_s(plan: Plan, request: Request) -> float:
    """Mean time to first token of clients that each send their next request when the last one is answered.

    All of them start at the same time, which the mean contains.

    Parameters
    ----------
    plan : Plan
        The plan.
    request : Request
        One request, and how many there are at a time.

    Returns
    -------
    float
        [s]
    """
    clients = int(request.sequences)
    count = max(min(ROUNDS * clients, MOST_REQUESTS), clients)
    prompt, output = int(request.computed_tokens), max(int(request.output_tokens), 1)
    longest = prompt + output
    computed, outputs = np.full(count, prompt), np.full(count, output)
    allocation = Allocation(unified=plan.engine.kv.unified, full_windows=False, chunk=plan.prefill_chunk)
    room = cache_room(plan, allocation, longest)
    if room.capacity_bytes is not None and int(room.of(longest)) > room.capacity_bytes:
        room = CacheRoom(None, room.block_tokens, room.held_bytes)  # it ran, whatever the plan says
    nothing: Any = np.zeros(count, dtype=int)
    server = server_of(
        plan, room, clients, computed, outputs, longest, chunked=True, skew=request.skew, overlap=request.overlap
    )
    served = serve(server, Workload(None, clients, 0.0, computed, nothing, outputs))
    return float(np.mean(served.first_token_s - served.arrival_s))
