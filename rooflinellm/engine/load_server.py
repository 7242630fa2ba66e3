"""What serves a load: a plan with the times of all steps that can come up, and room for caches."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflinellm.engine.cache_room import CacheRoom
from rooflinellm.engine.load import Server
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.step_times import StepTimes
from rooflinellm.roofline import Overlap

FEW_LENGTHS = 16
"""Up to so many lengths of prompts the times of their last chunks are exact. [-]"""


def server_of(
    plan: Plan,
    room: CacheRoom,
    sequences: int,
    computed_tokens: Any,
    output_tokens: Any,
    longest: int,
    *,
    chunked: bool,
    skew: Any,
    overlap: Overlap,
) -> Server:
    """Prepare a server.

    Parameters
    ----------
    plan : Plan
        The plan.
    room : CacheRoom
        Room for caches.
    sequences : int
        Most requests at a time. [-]
    computed_tokens, output_tokens : ndarray
        Tokens that prefill computes, and tokens of the answer, of each request. [token]
    longest : int
        Tokens of the longest request. [token]
    chunked : bool
        Prompts share steps with sequences that decode.
    skew : float
        Routing skew of a mixture. [-]
    overlap : str
        What may overlap in the expectation.

    Returns
    -------
    Server
    """
    budget = plan.prefill_chunk
    most = int(min(budget, (computed_tokens.max() + output_tokens.max()) * sequences))
    kinds = np.unique(computed_tokens)
    last = [(int(each) - 1) % budget + 1 for each in kinds] if len(kinds) <= FEW_LENGTHS else []
    steps = StepTimes(
        plan, skew, overlap, step_tokens=max(most, 1), sequences=sequences, context=longest, chunks=last
    )  # fmt: skip
    # Chunks of one batch pass through devices in a row one behind the other.
    alone = plan.device_count == 1 or plan.placed_elsewhere
    in_flight = 1 if alone else max(plan.engine.batch_tokens // budget, 1)
    return Server(steps, room, budget, sequences, chunked, in_flight)
