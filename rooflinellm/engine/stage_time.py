"""What a stage does in a phase: the least work, and the time that its operators are expected to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from rooflinellm._numeric import maximum, most, total, where
from rooflinellm.efficiency.rates import FEW_TOKENS
from rooflinellm.engine.evaluate import (
    IDLE,
    NO_WORK,
    Busy,
    Expectation,
    Work,
    attention_busy,
    attention_work,
    expect,
    ideal_memory_s,
    moved_bytes,
    pass_busy,
    pass_floor_s,
    pass_work,
    work,
)
from rooflinellm.engine.passes import Passes, Run, Sight
from rooflinellm.engine.plan import Kernel, Spill, Stage, Stream
from rooflinellm.roofline import Overlap

T = TypeVar("T")

ACTIVATION_READS = 4
"""How often products of many tokens read a paged activation, which no cache keeps for the next tile of weights.

An RTX 3080 whose driver paged its compute buffer took 10.3, 11.0 and 15.2 ms longer for each token of prompts of 417,
1,641 and 6,538 tokens, or 130 to 190 MB at 12.6 GB/s, of 38 MB of activations (sudoingX/qwen38-mtp,
sweeps/rtx-3090.md). [-]
"""


@dataclass(frozen=True)
class StageTime:
    """What one stage does in a phase.

    Attributes
    ----------
    stage : Stage
        The stage.
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
    works, expectations : tuple
        Of each of its operators; worked out when they are asked for.
    """

    stage: Stage
    compute_s: Any
    memory_s: Any
    moved_compute_s: Any
    link_s: Any
    expected_s: Any
    floor_s: Any
    flops: Any
    read_bytes: Any
    _works: Callable[[], tuple[Work, ...]]
    _expectations: Callable[[], tuple[Expectation, ...]]

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """What each operator must do."""
        return self._works()

    @cached_property
    def expectations(self) -> tuple[Expectation, ...]:
        """What each operator is expected to take."""
        return self._expectations()


def stage_time(stage: Stage, ideal_passes: Passes, expected_passes: Passes, skew: Any, overlap: Overlap) -> StageTime:
    """Evaluate a stage.

    Parameters
    ----------
    stage : Stage
        The stage.
    ideal_passes, expected_passes, skew, overlap
        As in `phases.phase_time`.

    Returns
    -------
    StageTime
    """
    if stage.stream is None and stage.spill is None:
        return _in_place(stage, ideal_passes, expected_passes, skew, overlap)
    return _over_a_link(stage, ideal_passes, expected_passes, skew, overlap)


class _Works(NamedTuple):
    """Work of some operators: of each, and in all, with the least time to compute it. [FLOP], [byte], [s]"""

    each: tuple[Work, ...]
    flops: Any
    read_bytes: Any
    compute_s: Any


class _Times(NamedTuple):
    """Times of some operators: of each, and in all. [s]"""

    each: tuple[Busy, ...]
    whole: Busy


class _Floors(NamedTuple):
    """The same of floors. [s]"""

    each: tuple[Any, ...]
    whole: Any


def _in_place(stage: Stage, ideal_passes: Passes, expected_passes: Passes, skew: Any, overlap: Overlap) -> StageTime:
    """A stage whose weights lie where they are multiplied.

    Attention is added up over each run. All else takes the same in each pass of a run, whatever the context, and passes
    of the same shape are met again and again: what they take is remembered.
    """
    works, times = [], []
    for sight, numbers, kernels in stage.by_sight:
        works += [(numbers, *_works(stage, sight, kernels, run)) for run in ideal_passes.seen(sight)]
        times += [(numbers, *_times(stage, sight, kernels, run, skew)) for run in expected_passes.seen(sight)]
    floors = [(run.passes, _floors(stage, run)) for run in expected_passes.seen("packed")]
    read: Any = total([passes * found.read_bytes for _, passes, found in works])
    floor: Any = total([passes * found.whole for passes, found in floors])
    return StageTime(
        stage=stage,
        compute_s=total([passes * found.compute_s for _, passes, found in works]) if stage.bounded else 0.0,
        memory_s=ideal_memory_s(read, ideal_passes.passes, stage.machine, stage.machine.devices),
        moved_compute_s=0.0,
        link_s=0.0,
        expected_s=floor + _busy_s(_added([found.whole.times(passes) for _, passes, found in times]), 0, overlap),
        floor_s=floor,
        flops=total([passes * found.flops for _, passes, found in works]),
        read_bytes=read,
        _works=lambda: _each_work(stage, works),
        _expectations=lambda: _each_expectation(stage, floors, times),
    )


def _works(stage: Stage, sight: Sight, kernels: Sequence[Kernel], run: Run) -> tuple[Any, _Works]:
    """How often a run does some work, and the work."""
    if sight == "attended":
        return 1, _worked(kernels, [attention_work(kernel, run) for kernel in kernels])
    key = "work", sight, run.sequences, run.new_tokens, run.logits
    return run.passes, _remembered(stage, key, lambda: _worked(kernels, [pass_work(kernel, run) for kernel in kernels]))


def _worked(kernels: Sequence[Kernel], each: Sequence[Work]) -> _Works:
    flops, read = zip(*each, strict=True)
    return _Works(tuple(each), total(flops), total(read), _least_compute_s(kernels, each))


def _times(stage: Stage, sight: Sight, kernels: Sequence[Kernel], run: Run, skew: Any) -> tuple[Any, _Times]:
    """How often a run takes some times, and the times."""
    if sight == "attended":
        return 1, _timed([attention_busy(kernel, run) for kernel in kernels])
    key = "time", sight, run.sequences, run.new_tokens, run.logits, skew
    return run.passes, _remembered(stage, key, lambda: _timed([pass_busy(kernel, run, skew) for kernel in kernels]))


def _timed(each: Sequence[Busy]) -> _Times:
    return _Times(tuple(each), _added(each))


def _floors(stage: Stage, run: Run) -> _Floors:
    """Floors of a pass of a run."""

    def found() -> _Floors:
        many = run.many
        each = tuple([pass_floor_s(kernel, run.logits, many) for kernel in stage.kernels])
        return _Floors(each, total(each))

    return _remembered(stage, ("floor", run.new_tokens, run.of_one, run.logits), found)


def _remembered(stage: Stage, key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What was made for the same numbers before; arrays are not kept."""
    try:
        found: T = stage.kept.of((), key, make)
        return found
    except TypeError:  # an array is no key
        return make()


def _added(each: Sequence[Busy]) -> Busy:
    """The sum of some times."""
    if len(each) == 1:
        return each[0]
    return Busy(*map(total, zip(*each, strict=True))) if each else IDLE


def _each_work(stage: Stage, works: Iterable[tuple[tuple[int, ...], Any, _Works]]) -> tuple[Work, ...]:
    """What each operator of a stage must do over all runs."""
    found = [NO_WORK] * len(stage.kernels)
    for numbers, passes, part in works:
        for number, (flops, read) in zip(numbers, part.each, strict=True):
            before = found[number]
            found[number] = Work(before.flops + passes * flops, before.read_bytes + passes * read)
    return tuple(found)


def _each_expectation(
    stage: Stage,
    floors: Sequence[tuple[Any, _Floors]],
    times: Iterable[tuple[tuple[int, ...], Any, _Times]],
) -> tuple[Expectation, ...]:
    """What each operator of a stage is expected to take over all runs."""
    columns = [[passes * floor for floor in found.each] for passes, found in floors]
    floor = columns[0] if len(columns) == 1 else [sum(each) for each in zip(*columns, strict=True)]
    found = [Expectation(each, 0.0, 0.0, 0.0) for each in floor or [0.0] * len(stage.kernels)]
    for numbers, passes, part in times:
        for number, (memory, compute, busy) in zip(numbers, part.each, strict=True):
            before = found[number]
            found[number] = Expectation(
                before.floor_s,
                before.memory_s + passes * memory,
                before.compute_s + passes * compute,
                before.busy_s + passes * busy,
            )
    return tuple(found)


def _over_a_link(stage: Stage, ideal_passes: Passes, expected_passes: Passes, skew: Any, overlap: Overlap) -> StageTime:
    """A stage that reads a part of what it needs over a link, or whose weights are copied to where they are used."""
    works = tuple([work(kernel, ideal_passes) for kernel in stage.kernels])
    flops, reads = zip(*works, strict=True)
    stream = stage.stream
    moved = (None,) * len(stage.kernels) if stream is None else stream.kernels
    copied: Any = 0
    if stream is not None and stream.from_tokens == 0:
        copied = total([item.read_bytes for item, kernel in zip(works, moved, strict=True) if kernel is not None])
    # What a drive delivers lands in memory and is read there; what a device fetches it may take as it arrives.
    moving: Any = total(reads)
    read = moving - copied if stage.tier == "host" else moving
    if stage.spill is not None:
        expectations = tuple(_paged(kernel, stage.spill, expected_passes, skew) for kernel in stage.kernels)
    else:
        assert stream is not None
        expectations = tuple(
            _streamed(kernel, there, stream, expected_passes, skew)
            for kernel, there in zip(stage.kernels, moved, strict=True)
        )
    floor, memory, compute, busy, link = map(total, zip(*expectations, strict=True))
    return StageTime(
        stage=stage,
        compute_s=_least_compute_s(stage.kernels, works) if stage.bounded else 0.0,
        memory_s=ideal_memory_s(read, ideal_passes.passes, stage.machine, stage.machine.devices),
        moved_compute_s=0.0 if stream is None else _least_compute_s(moved, works),
        link_s=0.0 if stream is None else copied / stream.link.bandwidth,
        expected_s=floor + _busy_s(Busy(memory, compute, busy), link, overlap),
        floor_s=floor,
        flops=total(flops),
        read_bytes=moving,
        _works=lambda: works,
        _expectations=lambda: expectations,
    )


def _least_compute_s(kernels: Sequence[Kernel | None], works: Sequence[Work]) -> Any:
    """Time of some work at the fastest peaks its operators may use. [s]"""
    groups: dict[str, tuple[Any, list[Any]]] = {}
    for kernel, item in zip(kernels, works, strict=True):
        if kernel is not None and kernel.ideal_key:
            groups.setdefault(kernel.ideal_key, (kernel.ideal_flop_per_s, []))[1].append(item.flops)
    return total(total(flops) / rate for rate, flops in groups.values())


def _busy_s(whole: Busy, link_s: Any, overlap: Overlap) -> Any:
    """Time of all operators beside their floors, by what may overlap. [s]"""
    if overlap == "operator":
        return whole.busy_s
    if overlap == "none":
        return whole.memory_s + whole.compute_s + link_s
    return most((whole.memory_s, whole.compute_s, link_s))


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
