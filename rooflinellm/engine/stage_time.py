"""What a stage does in a phase: the least work, and the time that its operators are expected to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from rooflinellm._kept import Kept
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
from rooflinellm.engine.plan import Kernel, Speeds, Spill, Stage, Stream
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
        Least time of either, on one of its devices; where all weights are copied, on what they are copied to. [s]
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
    """Work of some operators: of each, and in all. [FLOP], [byte]"""

    each: tuple[Work, ...]
    whole: Work


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
    works, times, least = [], [], []
    for sight, numbers in stage.operators.by_sight:
        for run in ideal_passes.seen(sight):
            passes, found, compute = _works(stage, sight, numbers, run)
            works.append((numbers, passes, found))
            least.append(passes * compute)
        times += [(numbers, *_times(stage, sight, numbers, run, skew)) for run in expected_passes.seen(sight)]
    floors = [(run.passes, _floors(stage, run)) for run in expected_passes.seen("packed")]
    done = [found.whole.times(passes) for _, passes, found in works]
    flops, read = map(total, zip(*done, strict=True)) if done else NO_WORK
    floor: Any = total([passes * found.whole for passes, found in floors])
    return StageTime(
        stage=stage,
        compute_s=total(least) if stage.bounded else 0.0,
        memory_s=ideal_memory_s(read, ideal_passes.passes, stage.machine, stage.machine.devices),
        moved_compute_s=0.0,
        link_s=0.0,
        expected_s=floor + _busy_s(_added([found.whole.times(passes) for _, passes, found in times]), 0, overlap),
        floor_s=floor,
        flops=flops,
        read_bytes=read,
        _works=lambda: _each_work(stage, works),
        _expectations=lambda: _each_expectation(stage, floors, times),
    )


def _works(stage: Stage, sight: Sight, numbers: Sequence[int], run: Run) -> tuple[Any, _Works, Any]:
    """How often a run has some work, the work, and the least time to compute it once. [-], …, [s]"""
    operators = stage.operators

    def once(find: Callable[[Kernel, Run], Work]) -> _Works:
        each = tuple([find(operators.kernels[number], run) for number in numbers])
        return _Works(each, Work(*map(total, zip(*each, strict=True))))

    def least(found: _Works) -> Any:
        return _least_compute_s([stage.speeds[number] for number in numbers], found.each)

    if sight == "attended":
        found = once(attention_work)
        return 1, found, least(found)
    key = sight, run.sequences, run.new_tokens, run.logits
    found = _remembered(operators.kept, key, lambda: once(pass_work))
    return run.passes, found, _remembered(stage.kept, ("least", *key), lambda: least(found))


def _times(stage: Stage, sight: Sight, numbers: Sequence[int], run: Run, skew: Any) -> tuple[Any, _Times]:
    """How often a run takes some times, and the times."""

    def once(find: Callable[[Kernel, Speeds, Run], Busy]) -> _Times:
        each = tuple([find(stage.kernels[number], stage.speeds[number], run) for number in numbers])
        return _Times(each, _added(each))

    if sight == "attended":
        return 1, once(attention_busy)
    key = sight, run.sequences, run.new_tokens, run.logits, skew
    return run.passes, _remembered(stage.kept, key, lambda: once(partial(pass_busy, skew=skew)))


def _floors(stage: Stage, run: Run) -> _Floors:
    """Floors of a pass of a run."""

    def found() -> _Floors:
        many, pairs = run.many, zip(stage.kernels, stage.speeds, strict=True)
        each = tuple([pass_floor_s(*pair, run.logits, many) for pair in pairs])
        return _Floors(each, total(each))

    return _remembered(stage.kept, ("floors", run.new_tokens, run.of_one, run.logits), found)


def _remembered(kept: Kept[Any], key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What was made for the same numbers before; arrays are not kept."""
    try:
        found: T = kept.of((), key, make)
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
    far = (None,) * len(stage.kernels) if stream is None else stream.speeds
    copied: Any = 0
    if stream is not None and stream.from_tokens == 0:
        copied = total([item.read_bytes for item, there in zip(works, far, strict=True) if there is not None])
    # What a drive delivers lands in memory and is read there; what a device fetches it may take as it arrives.
    moving: Any = total(reads)
    read = moving - copied if stage.tier == "host" else moving
    if stage.spill is not None:
        pairs = zip(stage.kernels, stage.speeds, strict=True)
        expectations = tuple(_paged(*pair, stage.spill, expected_passes, skew) for pair in pairs)
    else:
        assert stream is not None
        triples = zip(stage.kernels, stage.speeds, far, strict=True)
        expectations = tuple(_streamed(*each, stream, expected_passes, skew) for each in triples)
    floor, memory, compute, busy, link = map(total, zip(*expectations, strict=True))
    always = stage.tier == "host" and stream is not None and stream.from_tokens == 0
    return StageTime(
        stage=stage,
        compute_s=_least_compute_s(far if always else stage.speeds, works) if stage.bounded else 0.0,
        memory_s=ideal_memory_s(read, ideal_passes.passes, stage.machine, stage.machine.devices),
        moved_compute_s=0.0 if stream is None else _least_compute_s(far, works),
        link_s=0.0 if stream is None else copied / stream.link.bandwidth,
        expected_s=floor + _busy_s(Busy(memory, compute, busy), link, overlap),
        floor_s=floor,
        flops=total(flops),
        read_bytes=moving,
        _works=lambda: works,
        _expectations=lambda: expectations,
    )


def _least_compute_s(of_each: Sequence[Speeds | None], works: Sequence[Work]) -> Any:
    """Time of some work at the fastest peaks its operators may use. [s]"""
    groups: dict[str, tuple[Any, list[Any]]] = {}
    for speeds, item in zip(of_each, works, strict=True):
        if speeds is not None and speeds.ideal_key:
            groups.setdefault(speeds.ideal_key, (speeds.ideal_flop_per_s, []))[1].append(item.flops)
    return total(total(flops) / rate for rate, flops in groups.values())


def _busy_s(whole: Busy, link_s: Any, overlap: Overlap) -> Any:
    """Time of all operators beside their floors, by what may overlap. [s]"""
    if overlap == "operator":
        return whole.busy_s
    if overlap == "none":
        return whole.memory_s + whole.compute_s + link_s
    return most((whole.memory_s, whole.compute_s, link_s))


def _streamed(
    kernel: Kernel, here: Speeds, there: Speeds | None, stream: Stream, passes: Passes, skew: Any
) -> Expectation:
    """Time of an operator whose weights are copied in passes of many tokens, and multiplied where they lie in others.

    A copy takes a latency for each layer, and the bytes of the experts that are touched; it comes on top of the
    product, or hides behind it.
    """
    if there is None:
        return expect(kernel, here, passes, skew)
    summed = Expectation(0.0, 0.0, 0.0, 0.0)
    least = stream.from_tokens_of_experts if kernel.kind == "experts" else stream.from_tokens
    for one in passes.each():
        (packed,) = one.packed
        copied = _copied_bytes(kernel, one, skew)
        launches = packed.passes * (kernel.count if kernel.weight_bytes or kernel.kv_bytes_per_token else 0)
        copy = copied / stream.link.sustained_bandwidth + launches * stream.link.latency_s
        far = expect(kernel, there, one, skew)
        busy = maximum(far.busy_s, copy) if stream.overlapped else far.busy_s + copy
        far = far._replace(busy_s=busy, link_s=copy)
        near = expect(kernel, here, one, skew) if least else far
        copies = packed.tokens >= least
        summed = Expectation(
            *(
                getattr(summed, name) + where(copies, getattr(far, name), getattr(near, name))
                for name in ("floor_s", "memory_s", "compute_s", "busy_s", "link_s")
            )
        )
    return summed


def _paged(kernel: Kernel, speeds: Speeds, spill: Spill, passes: Passes, skew: Any) -> Expectation:
    """Time of an operator of whose content a share lies in system memory: its own, and what it reads over the link.

        T = T_resident + (w_W W + w_C C + w_S 2 S + w_A r A) / b_link

    W, C, S and A are the bytes of weights, cache, state and activations that its passes move, w the shares of each in
    system memory, and r how often activations are read, see `ACTIVATION_READS`.
    """
    own = expect(kernel, speeds, passes, skew)
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
