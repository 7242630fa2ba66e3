"""A phase over the stages of a plan: bounds are maxima over resources, expectations sums over operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm._numeric import divide, is_array, largest, maximum, minimum, most, total, where
from rooflinellm.efficiency.rates import FEW_TOKENS
from rooflinellm.engine.evaluate import Expectation, Passes, Run, Work, expect, ideal_memory_s, moved_bytes, work
from rooflinellm.engine.parallel import collectives_s, least_collectives_s
from rooflinellm.engine.plan import Crossing, Kernel, Plan, Spill, Stage, Stream
from rooflinellm.roofline import Overlap

ACTIVATION_READS = 4
"""How often products of many tokens read a paged activation, which no cache keeps for the next tile of weights.

An RTX 3080 whose driver paged its compute buffer took 10.3, 11.0 and 15.2 ms longer for each token of prompts of 417,
1,641 and 6,538 tokens, or 130 to 190 MB at 12.6 GB/s, of 38 MB of activations (sudoingX/qwen38-mtp,
sweeps/rtx-3090.md). [-]
"""


@dataclass(frozen=True, slots=True)
class StageTime:
    """What one stage does in a phase.

    Attributes
    ----------
    stage : Stage
        The stage.
    works, expectations : tuple
        Of its operators.
    compute_s, memory_s : array_like
        Least time of either, on one of its devices. [s]
    moved_compute_s : array_like
        Least compute time where its weights can be copied to. [s]
    link_s : array_like
        Least time of what must be copied. [s]
    expected_s, floor_s : array_like
        Expected time of all its operators, and the floors in it. [s]
    flops, read_bytes : array_like
        Of all its operators, at least. [FLOP], [byte]
    """

    stage: Stage
    works: tuple[Work, ...]
    expectations: tuple[Expectation, ...]
    compute_s: Any
    memory_s: Any
    moved_compute_s: Any
    link_s: Any
    expected_s: Any
    floor_s: Any
    flops: Any
    read_bytes: Any


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
        _stage_time(stage, ideal_passes, expected_passes, skew, overlap) for stage in plan.stages if stage.kernels
    )
    compute: Any = total(stage.compute_s for stage in stages)
    memory: Any = total(stage.memory_s for stage in stages)
    # Groups of layers that work side by side tell one another side by side as well.
    told = least_collectives_s(plan.collectives, ideal_passes.packed) / where(in_turn, 1, plan.parallel.pipeline)
    link: Any = maximum(most(stage.link_s for stage in stages), told)
    serial: Any = total(maximum(stage.compute_s, stage.memory_s) for stage in stages)
    alone = len(stages) == 1 and stages[0].stage.tier == "device" and stages[0].stage.machine.devices == 1
    ideal = maximum(serial if alone else where(in_turn, serial, _together(stages)), link)
    work: Any = total(stage.expected_s for stage in stages)
    floor: Any = total(stage.floor_s for stage in stages)
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
        flops=total(stage.flops for stage in stages),
        read_bytes=total(stage.read_bytes for stage in stages),
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
    return _spread(time, plan, lambda stage: stage.rates.decode_interval(sequences))


def prefill_interval(plan: Plan, time: PhaseTime) -> Any:
    """The same for prefill; weights that are copied to the device are multiplied there."""
    return _spread(time, plan, lambda stage: (plan.main if stage.stream else stage).rates.prefill_interval)


def _spread(time: PhaseTime, plan: Plan, factor: Callable[[Stage], Any]) -> Any:
    spread: Any = 1.0 if len(time.stages) > 1 else factor(time.stages[0].stage if time.stages else plan.main)
    if len(time.stages) > 1:
        whole = total(stage.expected_s for stage in time.stages)
        for stage in time.stages:
            spread = spread * factor(stage.stage) ** divide(stage.expected_s, whole)
    return most([spread, *(stage.stage.spill.spread for stage in time.stages if stage.stage.spill is not None)])


def _together(stages: Sequence[StageTime]) -> Any:
    """Least time of stages that work side by side.

    Each device reads and computes its own part. Of the host's part any share may be computed by the devices as well:
    if it takes the host C_h and the devices C_hd beside their own C_d, no division beats

        max(C_d, min(C_h, (C_d + C_hd) / (1 + C_hd / C_h)))
    """
    memory = most(stage.memory_s / stage.stage.machine.devices for stage in stages)
    devices = most(stage.compute_s / stage.stage.machine.devices for stage in stages if stage.stage.tier == "device")
    compute = devices
    for stage in stages:
        if stage.stage.tier == "device":
            continue
        here, there = stage.compute_s, stage.moved_compute_s
        shared = minimum(here, divide(devices + there, 1 + divide(there, here)))
        compute = maximum(compute, where(there > 0, shared, here))
    return maximum(memory, compute)


def _stage_time(stage: Stage, ideal_passes: Passes, expected_passes: Passes, skew: Any, overlap: Overlap) -> StageTime:
    works = tuple([work(kernel, ideal_passes) for kernel in stage.kernels])
    flops, reads = zip(*works, strict=True)
    streamed = stage.stream is not None and stage.stream.from_tokens == 0
    moved = stage.stream.kernels if stage.stream is not None else (None,) * len(stage.kernels)
    copied: Any = 0
    if streamed:
        copied = total(item.read_bytes for item, kernel in zip(works, moved, strict=True) if kernel is not None)
    # What a drive delivers lands in memory and is read there; what a device fetches it may take as it arrives.
    moving: Any = total(reads)
    read = moving - copied if stage.tier == "host" else moving
    if stage.spill is not None:
        expectations = tuple(_paged(kernel, stage.spill, expected_passes, skew) for kernel in stage.kernels)
    elif stage.stream is None:
        expectations = tuple([expect(kernel, expected_passes, skew) for kernel in stage.kernels])
    else:
        expectations = tuple(
            _streamed(kernel, there, stage.stream, expected_passes, skew)
            for kernel, there in zip(stage.kernels, moved, strict=True)
        )
    columns = Expectation(*zip(*expectations, strict=True))
    floor: Any = total(columns.floor_s)
    return StageTime(
        stage=stage,
        works=works,
        expectations=expectations,
        compute_s=_least_compute_s(stage.kernels, works) if stage.bounded else 0.0,
        memory_s=ideal_memory_s(read, ideal_passes.count, stage.machine, stage.machine.devices),
        moved_compute_s=0.0 if stage.stream is None else _least_compute_s(moved, works),
        link_s=copied / stage.stream.link.bandwidth if stage.stream is not None else 0.0,
        expected_s=floor + _busy_s(columns, overlap),
        floor_s=floor,
        flops=total(flops),
        read_bytes=moving,
    )


def _least_compute_s(kernels: Sequence[Kernel | None], works: Sequence[Work]) -> Any:
    """Time of some work at the fastest peaks its operators may use. [s]"""
    groups: dict[str, tuple[Any, list[Any]]] = {}
    for kernel, item in zip(kernels, works, strict=True):
        if kernel is not None and kernel.ideal_key:
            groups.setdefault(kernel.ideal_key, (kernel.ideal_flop_per_s, []))[1].append(item.flops)
    return total(total(flops) / rate for rate, flops in groups.values())


def _busy_s(columns: Expectation, overlap: Overlap) -> Any:
    """Time of operators beside their floors, by what may overlap; the columns hold a value of each. [s]"""
    if overlap == "operator":
        return total(columns.busy_s)
    memory, compute, link = total(columns.memory_s), total(columns.compute_s), total(columns.link_s)
    return memory + compute + link if overlap == "none" else most((memory, compute, link))


def _streamed(kernel: Kernel, there: Kernel | None, stream: Stream, passes: Passes, skew: Any) -> Expectation:
    """Time of an operator whose weights are copied in passes of many tokens, and multiplied where they lie in others.

    A copy takes a latency for each layer, and the bytes of the experts that are touched; it comes on top of the
    product, or hides behind it.
    """
    if there is None:
        return expect(kernel, passes, skew)
    summed = Expectation(0.0, 0.0, 0.0, 0.0)
    least = stream.from_tokens_of_experts if kernel.kind == "experts" else stream.from_tokens
    for one in passes.each():
        (packed,) = one.packed
        copied = _copied_bytes(there, one, skew)
        launches = packed.passes * (kernel.count if kernel.weight_bytes or kernel.kv_bytes_per_token else 0)
        copy = copied / stream.link.sustained_bandwidth + launches * stream.link.latency_s
        far = expect(there, one, skew)
        busy = maximum(far.busy_s, copy) if stream.overlapped else far.busy_s + copy
        far = far._replace(busy_s=busy, link_s=copy)
        near = expect(kernel, one, skew) if least else far
        copies = packed.tokens >= least
        summed = Expectation(
            *(
                getattr(summed, name) + where(copies, getattr(far, name), getattr(near, name))
                for name in ("floor_s", "memory_s", "compute_s", "busy_s", "link_s")
            )
        )
    return summed


def _paged(kernel: Kernel, spill: Spill, passes: Passes, skew: Any) -> Expectation:
    """Time of an operator of whose content a share lies in system memory: its own, and what it reads over the link.

        T = T_resident + (w_W W + w_C C + w_S 2 S + w_A r A) / b_link

    W, C, S and A are the bytes of weights, cache, state and activations that its passes move, w the shares of each in
    system memory, and r how often activations are read, see `ACTIVATION_READS`.
    """
    own = expect(kernel, passes, skew)
    crossed: Any = 0.0
    for one in passes.each():
        (packed,) = one.packed
        share = spill.cache if kernel.kind == "attention" else spill.weights
        content = share * _copied_bytes(kernel, one, skew)
        sequences = sum(run.sequences for run in one.by_sequence)
        state = spill.state * packed.passes * sequences * 2 * kernel.state_bytes
        reads = where(packed.tokens > FEW_TOKENS, ACTIVATION_READS, 1)
        activations = packed.passes * packed.tokens * kernel.activation_bytes_per_token
        crossed = crossed + content + state + spill.workspace * reads * activations
    link = crossed / spill.link.sustained_bandwidth
    return own._replace(busy_s=own.busy_s + link, link_s=link)


def _copied_bytes(kernel: Kernel, passes: Passes, skew: Any) -> Any:
    """Weights of the experts that are touched, or what attention reads of the cache, over a run. [byte]"""
    if kernel.kind == "attention":
        return work(kernel, passes).read_bytes
    bare = replace(kernel, activation_bytes_per_token=0, state_bytes=0)
    return sum(packed.passes * moved_bytes(bare, packed, skew)[0] for packed in passes.packed)


def sum_crossings(crossings: Sequence[Crossing], runs: Sequence[Run]) -> Any:
    """Expected time of activations between places over some passes. [s]"""
    seconds: Any = 0.0
    for crossing in crossings:
        for run in runs:
            each = crossing.link.latency_s + run.tokens * crossing.bytes_per_token / crossing.link.sustained_bandwidth
            seconds = seconds + run.passes * crossing.count * each
    return seconds
