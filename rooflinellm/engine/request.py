"""One request (or a batch of equal ones): prefill, first token, decode, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard

from rooflinellm import metrics, roofline
from rooflinellm._numeric import ceil_div, divide, is_array, maximum, minimum, most, where
from rooflinellm.engine.evaluate import Expectation, Work
from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.phases import PhaseTime, phase_time
from rooflinellm.engine.plan import Plan, Speeds, Stage
from rooflinellm.operators.experts import MEASURED_SKEW
from rooflinellm.results import OperatorCost, Phase, PlaceCost, Prediction, Ratios
from rooflinellm.roofline import Overlap


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the system; every count may be an array.

    Attributes
    ----------
    prompt_tokens, output_tokens : array_like
        Length of the prompt and of the answer. [token]
    cached_tokens : array_like
        Tokens of the prompt that need no prefill. [token]
    context_tokens : array_like
        Tokens in the cache before the prompt. [token]
    sequences : array_like
        Requests in the batch. [-]
    chunk : int or None
        Chunk asked for; None is one pass in the ideal and the engine's chunk in the expectation. [token]
    skew : array_like
        Routing skew of a mixture. [-]
    overlap : str
        What may overlap in the expectation, as in `roofline.time_s`.
    speculation : Speculation or None
        How tokens are drafted, see `engine.speculation`.
    """

    prompt_tokens: Any
    output_tokens: Any
    cached_tokens: Any
    context_tokens: Any
    sequences: Any
    chunk: int | None
    skew: Any = MEASURED_SKEW
    overlap: Overlap = "operator"
    speculation: Any = None

    @property
    def computed_tokens(self) -> Any:
        """Prompt tokens that prefill computes: the last one always, for its logits. [token]"""
        return minimum(self.prompt_tokens, maximum(self.prompt_tokens - self.cached_tokens, 1))

    @property
    def prefill_start(self) -> Any:
        """Tokens in the cache when prefill starts. [token]"""
        return self.context_tokens + self.prompt_tokens - self.computed_tokens

    @property
    def decode_start(self) -> Any:
        """Tokens in the cache when decode starts. [token]"""
        return self.context_tokens + self.prompt_tokens

    @property
    def decode_steps(self) -> Any:
        """Decode steps: one less than output tokens where the first comes out of prefill. [-]"""
        return maximum(self.output_tokens - where(self.prompt_tokens > 0, 1, 0), 0)

    @property
    def occupied_tokens(self) -> Any:
        """Tokens of a sequence after the last. [token]"""
        return self.context_tokens + self.prompt_tokens + self.output_tokens

    def prefill_passes(self, chunk: Any) -> Passes:
        """Prefill in chunks of so many tokens, of all sequences together; None is a single pass.

        B prompts of S tokens take ceil(B S / chunk) passes; the last token of each prompt has logits.
        """
        new, cached, sequences = self.computed_tokens, self.prefill_start, self.sequences
        if chunk is None:
            whole = (Run(sequences, new, where(new > 0, 1, 0), cached),)
            return Passes(whole, whole)
        packed = _chunks(1, sequences * new, chunk, cached, logits=sequences, of_one=minimum(new, chunk))
        return Passes(packed, _chunks(sequences, new, chunk, cached))

    def decode_passes(self, steps: Any) -> Passes:
        """Decode as one-token passes."""
        runs = (Run(self.sequences, 1, steps, self.decode_start),)
        return Passes(runs, runs)


def _chunks(sequences: Any, new: Any, chunk: Any, cached: Any, logits: Any = 1, of_one: Any = None) -> tuple[Run, Run]:
    """Full chunks without logits, and the last one with."""
    before = maximum(ceil_div(new, chunk) - 1, 0)
    done = before * chunk
    last = None if of_one is None else minimum(of_one, new - done)
    return (
        Run(sequences, chunk, before, cached, logits=0, of_one=of_one),
        Run(sequences, new - done, where(new > 0, 1, 0), cached + done, logits, last),
    )


def prefill_time(plan: Plan, request: Request) -> PhaseTime:
    """Prefill of the batch's prompts together; over several devices its chunks are pipelined."""
    devices = plan.device_count
    passes = request.prefill_passes(plan.prefill_chunk)
    in_flight: Any = 1
    if devices > 1 and not plan.placed_elsewhere:
        in_flight = maximum(minimum(passes.passes, max(plan.engine.batch_tokens // plan.prefill_chunk, 1)), 1)
    return phase_time(
        plan,
        request.prefill_passes(request.chunk),
        passes,
        request.skew,
        request.overlap,
        in_turn=in_turn(plan, request.computed_tokens * request.sequences),
        in_flight=in_flight,
    )


def decode_time(plan: Plan, request: Request, steps: Any) -> PhaseTime:
    """Decode steps; the layers of one sequence run one device after the other, more sequences may be pipelined."""
    passes = request.decode_passes(steps)
    expected, groups = passes, plan.parallel.pipeline
    if groups > 1:  # as many parts of the batch as there are groups of layers are under way at the same time
        expected = replace(request, sequences=ceil_div(request.sequences, groups)).decode_passes(steps)
    return phase_time(plan, passes, expected, request.skew, request.overlap, in_turn=in_turn(plan, request.sequences))


def in_turn(plan: Plan, tokens: Any) -> Any:
    """Whether stages can only work one after the other: on a single token, by an engine that lets them wait."""
    waits = plan.engine.offload is None or not (plan.engine.offload.overlapped and plan.placed_elsewhere)
    return (tokens <= 1) & waits


def time_prediction(time: PhaseTime, factor: Any, basis: str) -> Prediction:
    """Times with their interval: the expected time over and times a factor, never below the ideal. [s]"""
    return Prediction(
        time.ideal_s,
        time.expected_s,
        maximum(time.expected_s / factor, time.ideal_s),
        time.expected_s * factor,
        "s",
        basis,
    )


def rate_prediction(count: Any, time: Prediction) -> Prediction:
    """Rates of a count over a time; nothing over no time is 0. [1/s]"""
    return Prediction(
        divide(count, time.ideal),
        divide(count, time.expected),
        divide(count, time.high),
        divide(count, time.low),
        "tokens/s",
        time.basis,
    )


def phase(
    plan: Plan,
    name: str,
    time: PhaseTime,
    tokens: Any,
    sequences: Any,
    shown: Prediction,
    rate_time: Prediction,
    copies: Any = 1,
) -> Phase:
    """Views over an evaluated phase.

    Parameters
    ----------
    plan : Plan
        The plan.
    name : str
        ``prefill`` or ``decode``.
    time : PhaseTime
        Totals.
    tokens : array_like
        Tokens of one request that `rate_time` is for. [token]
    sequences : array_like
        Requests in the batch. [-]
    shown : Prediction
        The phase's time. [s]
    rate_time : Prediction
        Time that the rate is taken over; that of the next step where decode has none. [s]
    copies : array_like
        Copies of the model that do the same beside one another. [-]

    Returns
    -------
    Phase
    """
    rate = rate_prediction(tokens, rate_time)
    alone = not is_array(copies) and copies == 1
    return Phase(
        name=name,
        tokens_per_s=rate,
        aggregate_tokens_per_s=rate.scaled(sequences),
        time_s=shown,
        flops=time.flops if alone else time.flops * copies,
        read_bytes=time.read_bytes if alone else time.read_bytes * copies,
        bound=_bound(time, time.expected_s),
        _ratios=lambda: _ratios(plan, time),
        _operators=lambda: tuple(_rows(plan, time, copies)),
        _by_place=lambda: tuple(_places(plan, time, copies)),
    )


def _ratios(plan: Plan, time: PhaseTime) -> Ratios:
    """Quotients of the totals, at the peaks of the advertised clocks."""
    peak = divide(time.flops, _advertised_compute_s(time))
    return Ratios(
        arithmetic_intensity=divide(time.flops, time.read_bytes),
        ridge_point=roofline.ridge_point(peak, _bandwidth(time, plan)),
        peak_flop_per_s=peak,
        mfu=metrics.mfu(time.flops, time.expected_s, _total_peak(plan, time)),
        mbu=metrics.mbu(time.read_bytes, time.expected_s, _total_bandwidth(plan, time)),
    )


def _rows(plan: Plan, time: PhaseTime, copies: Any) -> Iterator[OperatorCost]:
    """Operators of all stages, as often as the phase repeats them, and the copies between stages."""
    often = time.repeats * copies
    for prefix, part in time.parts or (("", time),):
        expected, ideal = time.repeats / part.expected_scale, time.repeats / part.ideal_scale
        for stage in part.stages:
            place, tier = stage.stage, stage.stage.tier
            behind, bandwidth = "" if tier == "device" else f", {tier}", place.machine.bandwidth
            rows = zip(place.kernels, place.speeds, stage.works, stage.expectations, strict=True)
            for kernel, speeds, work, spent in rows:
                busy = spent.memory_s + spent.compute_s + spent.link_s if part.overlap == "none" else spent.busy_s
                once = spent.floor_s + busy
                compute = work.flops / speeds.ideal_flop_per_s if speeds.ideal_key and place.bounded else 0.0
                least, seconds = maximum(compute, work.read_bytes / bandwidth) * ideal, once * expected
                yield OperatorCost(
                    name=prefix + kernel.name + behind,
                    count=kernel.count,
                    flops=work.flops * often,
                    read_bytes=work.read_bytes * often,
                    compute_path=speeds.path_key(part.pass_tokens),
                    time_s=seconds,
                    bound=_bound(spent, once),
                    share_of_expected=divide(seconds, time.expected_s),
                    percent_of_ideal=100 * minimum(divide(least, seconds, empty=1.0), 1.0),
                )
    count = sum(crossing.count for crossing in plan.crossings) + sum(each.count for each in plan.collectives)
    if count:
        name = "exchange between devices" if plan.collectives else "copies between places"
        yield _beside(name, count, time.crossing_s, "link", time)
    if time.parts:
        yield _beside("choosing drafted tokens", 1, time.sampling_s, "overhead", time)


def _beside(name: str, count: int, seconds: Any, bound: str, time: PhaseTime) -> OperatorCost:
    """A row of something that multiplies nothing and reads no weights."""
    return OperatorCost(
        name=name,
        count=count,
        flops=0,
        read_bytes=0,
        compute_path="",
        time_s=seconds,
        bound=bound,
        share_of_expected=divide(seconds, time.expected_s),
        percent_of_ideal=0.0,
    )


def _places(plan: Plan, time: PhaseTime, copies: Any) -> Iterator[PlaceCost]:
    """Costs of the stages, and of the copies between them."""
    done = {id(each.stage): each for each in time.stages}
    for stage in plan.stages:
        own = done.get(id(stage))
        read: Any = 0 if own is None else own.read_bytes
        seconds: Any = 0.0 if own is None else own.expected_s / time.expected_scale
        alike = len(stage.shares) * stage.team * (plan.parallel.replicas if stage.tier == "device" else 1)
        yield PlaceCost(
            place=stage.names[0] if alike == 1 else f"{alike}x {stage.device.id}",
            tier=stage.tier,
            layers=sum(share.layers for share in stage.shares),
            weight_bytes=sum(share.weight_bytes + share.copied_bytes for share in stage.shares)
            * plan.parallel.replicas,
            read_bytes=read * copies,
            time_s=seconds,
            share_of_read=divide(read, time.read_bytes),
            share_of_expected=divide(seconds, time.expected_s),
        )
    if plan.crossings:
        share = divide(time.crossing_s, time.expected_s)
        yield PlaceCost("copies between places", "link", 0, 0, 0, time.crossing_s, 0.0, share)


def _advertised_compute_s(time: PhaseTime) -> Any:
    """Time of the phase's FLOPs at the peaks of the advertised clocks. [s]"""
    stages = [stage for _, part in time.parts or (("", time),) for stage in part.stages]
    return time.repeats * sum(stage.compute_s * stage.stage.device.clock_headroom for stage in stages)


class _AtWork(NamedTuple):
    """Equal devices that take part in a phase, and FLOPs that they may do with the peak of each. [FLOP], [FLOP/s]"""

    stage: Stage
    counted: list[tuple[Any, float]]


def _at_work(plan: Plan, time: PhaseTime) -> Iterable[_AtWork]:
    """What takes part, each once: not what only looks up embeddings, but the devices that weights are copied to."""
    found: dict[int, _AtWork] = {}

    def add(stage: Stage, works: Sequence[Work], speeds: Sequence[Speeds | None]) -> None:
        key = stage if stage.tier == "device" else stage.device  # the host computes what lies on a drive too
        rates = [(work.flops, own.ideal_flop_per_s) for work, own in zip(works, speeds, strict=True) if _computes(own)]
        found.setdefault(id(key), _AtWork(stage, [])).counted.extend(rates)

    for each in time.stages:
        stage, stream = each.stage, each.stage.stream
        if stage.operators.kinds <= {"embedding"}:
            continue
        if plan.computes_on_main(stage):
            add(plan.main, each.works, stage.speeds if stream is None else stream.speeds)
            continue
        add(stage, each.works, stage.speeds)
        if stream is not None and stage.tier == "host" and time.pass_tokens >= stream.from_tokens:
            add(plan.main, each.works, stream.speeds)
    return found.values()


def _computes(speeds: Speeds | None) -> TypeGuard[Speeds]:
    return speeds is not None and bool(speeds.ideal_key)


def _total_peak(plan: Plan, time: PhaseTime) -> Any:
    """Peaks of all devices that take part, each at the arithmetic of its own operators; the fastest part's. [FLOP/s]"""
    peaks: list[Any] = []
    for _, part in time.parts or (("", time),):
        total: Any = 0.0
        for stage, counted in _at_work(plan, part):
            seconds = sum(flops / rate for flops, rate in counted) * stage.device.clock_headroom
            total = total + stage.machine.devices * divide(sum(flops for flops, _ in counted), seconds)
        peaks.append(total)
    return most(peaks)


def _total_bandwidth(plan: Plan, time: PhaseTime) -> Any:
    """Printed bandwidths of all devices that take part. [byte/s]"""
    return sum(stage.machine.devices * stage.machine.bandwidth for stage, _ in _at_work(plan, time))


def _bandwidth(time: PhaseTime, plan: Plan) -> Any:
    """Printed bandwidth that the phase's bytes meet on average. [byte/s]"""
    if len(time.stages) <= 1:
        return plan.main.machine.bandwidth if not time.stages else time.stages[0].stage.machine.bandwidth
    read: Any = 0.0
    seconds: Any = 0.0
    for stage in time.stages:
        here = stage.read_bytes
        read, seconds = read + here, seconds + here / stage.stage.machine.bandwidth
    return divide(read, seconds, empty=1.0)


def _bound(time: PhaseTime | Expectation, total: Any) -> Any:
    """The roofline's verdict, or ``overhead`` where floors are more than half of the total time [s]."""
    return roofline.bound(time.compute_s, time.memory_s, time.link_s, overhead=time.floor_s > total / 2)
