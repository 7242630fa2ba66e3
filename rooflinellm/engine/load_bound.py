"""How fast a server could work off requests at best: the roofline over all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.phases import PhaseTime, phase_time
from rooflinellm.engine.plan import Plan

BLOCK = 65_536
"""Requests that are evaluated at a time. [-]"""


def least_busy_s(
    plan: Plan, computed_tokens: Any, cached_tokens: Any, output_tokens: Any, sequences: int, skew: Any
) -> float:
    """Least time in which requests can be worked off, however they are scheduled.

    Each device has to compute its part of all prompts and tokens, and to read its part of the weights for every
    `sequences` tokens that are decoded, and of each sequence's cache:

        T = max over devices of max(sum C_i, sum M_i)

    Prompts may be computed beside, while the weights are read anyway.

    Parameters
    ----------
    plan : Plan
        The plan.
    computed_tokens, cached_tokens, output_tokens : ndarray
        Prompt tokens that prefill computes, tokens in the cache before, tokens of the answer; of each request. [token]
    sequences : int
        Most sequences that decode at once. [-]
    skew : float
        Routing skew of a mixture. [-]

    Returns
    -------
    float
        [s]
    """
    stages = [stage for stage in plan.stages if stage.kernels]
    compute, memory = np.zeros(len(stages)), np.zeros(len(stages))
    for start in range(0, len(output_tokens), BLOCK):
        part = slice(start, start + BLOCK)
        new, cached, steps = computed_tokens[part], cached_tokens[part], np.maximum(output_tokens[part] - 1, 0)
        prefill = _ideal(plan, Run(1, new, 1, cached), skew)
        decode = _ideal(plan, Run(sequences, 1, steps, cached + new), skew)
        for index, (first, then) in enumerate(zip(prefill.stages, decode.stages, strict=True)):
            compute[index] += np.sum(first.compute_s) + np.sum(then.compute_s) / sequences
            memory[index] += np.sum(then.memory_s) / sequences
    devices = [stage.machine.devices for stage in stages]
    # What lies on the host may be computed by the devices.
    computes = [seconds if stage.tier == "device" else 0.0 for seconds, stage in zip(compute, stages, strict=True)]
    return float(max(max(each) / count for *each, count in zip(computes, memory, devices, strict=True)))


def _ideal(plan: Plan, run: Run, skew: Any) -> PhaseTime:
    passes = Passes((run,), (run,))
    return phase_time(plan, passes, passes, skew, "operator", in_turn=False)
