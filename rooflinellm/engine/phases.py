"""A phase over the stages of a plan: bounds are maxima over resources, expectations sums over operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rooflinellm._numeric import divide, is_array, largest, maximum, minimum, most, total, where
from rooflinellm.engine.parallel import collectives_s, least_collectives_s
from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.plan import Crossing, Plan, Stage
from rooflinellm.engine.stage_time import StageTime, stage_time
from rooflinellm.roofline import Overlap


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Times and totals of a phase; the raw material of a `Phase`.

    `expected_scale` is how many devices work at the same time in the expectation, on average. Cycles of speculation are
    sums over named `parts`, each `repeats` times; choosing their tokens takes `sampling_s` on top. [-], [s]
    """

    ideal_s: Any
    expected_s: Any
    floor_s: Any
    crossing_s: Any
    compute_s: Any
    memory_s: Any
    link_s: Any
    flops: Any
    read_bytes: Any
    stages: tuple[StageTime, ...]
    expected_scale: Any
    ideal_scale: Any
    pass_tokens: int
    overlap: Overlap
    parts: tuple[tuple[str, PhaseTime], ...] = ()
    repeats: Any = 1
    sampling_s: Any = 0.0


def phase_time(
    plan: Plan,
    ideal_passes: Passes,
    expected_passes: Passes,
    skew: Any,
    overlap: Overlap,
    *,
    in_turn: Any,
    in_flight: Any = 1,
) -> PhaseTime:
    """Evaluate a phase.

    With stages s of N_s devices, each of which needs C_s to compute and M_s to read its memory, and L to copy:

        ideal, in turn:      max(sum_s max(C_s, M_s), L)
        ideal, side by side: max(C, max_s M_s / N_s, L), C the least of what devices can do, see `_together`
        expected:            (sum_s T_s + (m - 1) max_s T_s / N_s) / m + crossings, with m passes in flight

    Parameters
    ----------
    plan : Plan
        The plan.
    ideal_passes, expected_passes : Passes
        Passes of the ideal and of the expectation; they compute the same tokens.
    skew : array_like
        Routing skew of a mixture. [-]
    overlap : str
        What may overlap in the expectation, as in `roofline.time_s`.
    in_turn : array_like of bool
        Whether the stages can only work one after the other: the layers of one sequence.
    in_flight : array_like
        Passes that the devices work on at the same time. [-]

    Returns
    -------
    PhaseTime
    """
    stages = tuple(
        stage_time(stage, ideal_passes, expected_passes, skew, overlap) for stage in plan.stages if stage.kernels
    )
    compute: Any = total([stage.compute_s for stage in stages])
    memory: Any = total([stage.memory_s for stage in stages])
    # Groups of layers that work side by side tell one another side by side as well.
    told = least_collectives_s(plan.collectives, ideal_passes.packed) / where(in_turn, 1, plan.parallel.pipeline)
    link: Any = maximum(most(stage.link_s for stage in stages), told)
    serial: Any = total([maximum(stage.compute_s, stage.memory_s) for stage in stages])
    alone = len(stages) == 1 and stages[0].stage.tier == "device" and stages[0].stage.machine.devices == 1
    ideal = maximum(serial if alone else where(in_turn, serial, _together(plan, stages)), link)
    work: Any = total([stage.expected_s for stage in stages])
    floor: Any = total([stage.floor_s for stage in stages])
    scale: Any = 1.0
    if is_array(in_flight) or in_flight != 1:
        slowest = most(stage.expected_s / stage.stage.machine.devices for stage in stages)
        scale = divide(work, (work + (in_flight - 1) * slowest) / in_flight, empty=1.0)
        work, floor = work / scale, floor / scale
    crossing = sum_crossings(plan.crossings, expected_passes.packed)
    crossing = crossing + collectives_s(plan.collectives, expected_passes.packed) / scale
    # Sustained rates are never above printed ones, so this only mends the last bit of a floating-point sum.
    expected = maximum(total((work, crossing)), ideal)
    return PhaseTime(
        ideal_s=ideal,
        expected_s=expected,
        floor_s=floor,
        crossing_s=crossing,
        compute_s=compute,
        memory_s=memory,
        link_s=link,
        flops=total([stage.flops for stage in stages]),
        read_bytes=total([stage.read_bytes for stage in stages]),
        stages=stages,
        expected_scale=scale,
        ideal_scale=where(in_turn, 1, plan.main.machine.devices),
        pass_tokens=int(largest(run.tokens for run in expected_passes.packed)),
        overlap=overlap,
    )


def decode_interval(plan: Plan, time: PhaseTime, sequences: Any) -> Any:
    """Factor between the expected decode time and either end of its interval. [-]

    Of several stages each counts by its share of the time: the factors' logarithms are averaged.
    """
    return _spread(time, plan, lambda stage: stage.rates.decode_interval(sequences, stage.operators.kinds))


def prefill_interval(plan: Plan, time: PhaseTime) -> Any:
    """The same for prefill; weights that are copied to the device are multiplied there."""

    def factor(stage: Stage) -> float:
        rates = (plan.main if stage.stream else stage).rates
        return rates.prefill_interval(stage.operators.kinds)

    return _spread(time, plan, factor)


def _spread(time: PhaseTime, plan: Plan, factor: Callable[[Stage], Any]) -> Any:
    spread: Any = 1.0 if len(time.stages) > 1 else factor(time.stages[0].stage if time.stages else plan.main)
    if len(time.stages) > 1:
        whole = total(stage.expected_s for stage in time.stages)
        for stage in time.stages:
            spread = spread * factor(stage.stage) ** divide(stage.expected_s, whole)
    return most([spread, *(stage.stage.spill.spread for stage in time.stages if stage.stage.spill is not None)])


def _together(plan: Plan, stages: Sequence[StageTime]) -> Any:
    """Least time of stages that work side by side.

    Each device reads and computes its own part. A host that only lends memory leaves its part to the N devices:

        max(max_s C_s / N_s, (sum_s C_s + C_lent) / N)

    Of a part that the host computes any share may be computed by the devices too: if it takes the host C_h and the
    devices C_hd beside their own C_d, no division beats

        max(C_d, min(C_h, (C_d + C_hd) / (1 + C_hd / C_h)))
    """
    memory = most(stage.memory_s / stage.stage.machine.devices for stage in stages)
    own = [stage for stage in stages if stage.stage.tier == "device"]
    beside = [stage for stage in stages if stage.stage.tier != "device"]
    lent = [stage for stage in beside if plan.computes_on_main(stage.stage)]
    compute = most(stage.compute_s / stage.stage.machine.devices for stage in own)
    if lent:
        compute = maximum(compute, total(stage.compute_s for stage in (*own, *lent)) / plan.device_count)
    devices = compute
    for stage in beside:
        if plan.computes_on_main(stage.stage):
            continue
        here, there = stage.compute_s, stage.moved_compute_s
        shared = minimum(here, divide(devices + there, 1 + divide(there, here)))
        compute = maximum(compute, where(there > 0, shared, here))
    return maximum(memory, compute)


def sum_crossings(crossings: Sequence[Crossing], runs: Sequence[Run]) -> Any:
    """Expected time of activations between places over some passes. [s]"""
    seconds: Any = 0.0
    for crossing in crossings:
        for run in runs:
            each = crossing.link.latency_s + run.tokens * crossing.bytes_per_token / crossing.link.sustained_bandwidth
            seconds = seconds + run.passes * crossing.count * each
    return seconds
