"""One request (or a batch of equal ones): prefill, first token, decode, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rooflinellm import roofline
from rooflinellm._numeric import ceil_div, divide, largest, maximum, minimum, where
from rooflinellm.engine.evaluate import Expectation, Passes, Run, Work, expect, ideal_memory_s, work
from rooflinellm.engine.plan import Kernel, Plan
from rooflinellm.results import OperatorCost, Phase, Prediction
from rooflinellm.roofline import Overlap

NOMINAL_SKEW = 0.0


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
    """

    prompt_tokens: Any
    output_tokens: Any
    cached_tokens: Any
    context_tokens: Any
    sequences: Any
    chunk: int | None
    skew: Any = NOMINAL_SKEW
    overlap: Overlap = "operator"

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
        alone = _chunks(1, new, chunk, cached)
        by_sequence = tuple(replace(run, sequences=sequences) for run in alone)
        packed = _chunks(1, sequences * new, chunk, cached)
        return Passes((packed[0], replace(packed[1], logits=sequences)), by_sequence)

    def decode_passes(self, steps: Any) -> Passes:
        """Decode as one-token passes."""
        runs = (Run(self.sequences, 1, steps, self.decode_start),)
        return Passes(runs, runs)


def _chunks(sequences: Any, new: Any, chunk: Any, cached: Any) -> tuple[Run, Run]:
    """Full chunks without logits, and the last one with."""
    before = maximum(ceil_div(new, chunk) - 1, 0)
    done = before * chunk
    return (
        Run(sequences, chunk, before, cached, logits=0),
        Run(sequences, new - done, where(new > 0, 1, 0), cached + done),
    )


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Times and totals of a phase; the raw material of a `Phase`."""

    ideal_s: Any
    expected_s: Any
    floor_s: Any
    compute_s: Any
    memory_s: Any
    flops: Any
    read_bytes: Any
    works: tuple[Work, ...]
    expectations: tuple[Expectation, ...]
    ideal_scale: Any
    expected_scale: Any
    pass_tokens: int
    overlap: Overlap


def phase_time(
    plan: Plan,
    ideal_passes: Passes,
    expected_passes: Passes,
    request: Request,
    *,
    ideal_scale: Any = 1,
    expected_scale: Any = 1,
) -> PhaseTime:
    """Evaluate a phase: the ideal as one maximum over its totals, the expectation as a sum over operators.

    Parameters
    ----------
    plan : Plan
        The plan.
    ideal_passes, expected_passes : Passes
        Passes of the ideal and of the expectation; they compute the same tokens.
    request : Request
        For routing skew and overlap.
    ideal_scale, expected_scale : array_like
        Devices that work at the same time. [-]

    Returns
    -------
    PhaseTime
    """
    machine = plan.machine
    works = tuple(work(kernel, ideal_passes) for kernel in plan.kernels)
    flops: Any = sum(item.flops for item in works)
    read: Any = sum(item.read_bytes for item in works)
    compute: Any = sum(
        item.flops / kernel.ideal_flop_per_s
        for item, kernel in zip(works, plan.kernels, strict=True)
        if kernel.ideal_key
    )
    memory = ideal_memory_s(read, ideal_passes.count, machine, machine.devices)
    ideal = maximum(compute, memory) / ideal_scale
    expectations = tuple(expect(kernel, expected_passes, request.skew) for kernel in plan.kernels)
    floor: Any = sum(item.floor_s for item in expectations)
    if request.overlap == "operator":
        busy: Any = sum(item.busy_s for item in expectations)
    else:
        memory_total: Any = sum(item.memory_s for item in expectations)
        compute_total: Any = sum(item.compute_s for item in expectations)
        busy = memory_total + compute_total if request.overlap == "none" else maximum(memory_total, compute_total)
    # Sustained rates are never above printed ones, so this only mends the last bit of a floating-point sum.
    expected = maximum((floor + busy) / expected_scale, ideal)
    return PhaseTime(
        ideal_s=ideal,
        expected_s=expected,
        floor_s=floor / expected_scale,
        compute_s=compute,
        memory_s=memory,
        flops=flops,
        read_bytes=read,
        works=works,
        expectations=expectations,
        ideal_scale=ideal_scale,
        expected_scale=expected_scale,
        pass_tokens=int(largest(run.tokens for run in expected_passes.packed)),
        overlap=request.overlap,
    )


def prefill_time(plan: Plan, request: Request) -> PhaseTime:
    """Prefill of the batch's prompts together; over several devices its chunks are pipelined."""
    devices = plan.machine.devices
    passes = request.prefill_passes(plan.prefill_chunk)
    scale: Any = 1
    if devices > 1:
        in_flight = maximum(minimum(passes.count, max(plan.engine.batch_tokens // plan.prefill_chunk, 1)), 1)
        scale = in_flight * devices / (in_flight + devices - 1)
    return phase_time(
        plan,
        request.prefill_passes(request.chunk),
        passes,
        request,
        ideal_scale=where(request.computed_tokens * request.sequences > 1, devices, 1),
        expected_scale=scale,
    )


def decode_time(plan: Plan, request: Request, steps: Any) -> PhaseTime:
    """Decode steps; the layers of one sequence run one device after the other, more sequences may be pipelined."""
    passes = request.decode_passes(steps)
    scale = where(request.sequences > 1, plan.machine.devices, 1)
    return phase_time(plan, passes, passes, request, ideal_scale=scale)


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
    plan: Plan, name: str, time: PhaseTime, tokens: Any, sequences: Any, shown: Prediction, rate_time: Prediction
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

    Returns
    -------
    Phase
    """
    rate = rate_prediction(tokens, rate_time)
    headroom = plan.system.device.clock_headroom
    peak = divide(time.flops, time.compute_s) / headroom
    return Phase(
        name=name,
        tokens_per_s=rate,
        aggregate_tokens_per_s=rate.scaled(sequences),
        time_s=shown,
        flops=time.flops,
        read_bytes=time.read_bytes,
        bound=_bound(time, time.expected_s),
        arithmetic_intensity=divide(time.flops, time.read_bytes),
        ridge_point=roofline.ridge_point(peak, plan.machine.bandwidth),
        peak_flop_per_s=peak,
        _operators=lambda: tuple(
            _operator_cost(plan, kernel, item, expectation, time)
            for kernel, item, expectation in zip(plan.kernels, time.works, time.expectations, strict=True)
        ),
    )


def _operator_cost(plan: Plan, kernel: Kernel, item: Work, expectation: Expectation, time: PhaseTime) -> OperatorCost:
    machine = plan.machine
    busy = expectation.memory_s + expectation.compute_s if time.overlap == "none" else expectation.busy_s
    total = expectation.floor_s + busy
    seconds = total / time.expected_scale
    compute = item.flops / kernel.ideal_flop_per_s if kernel.ideal_key else 0.0
    own_ideal = maximum(compute, item.read_bytes / machine.bandwidth) / time.ideal_scale
    return OperatorCost(
        name=kernel.name,
        count=kernel.count,
        flops=item.flops,
        read_bytes=item.read_bytes,
        compute_path=path_key(kernel, time.pass_tokens),
        time_s=seconds,
        bound=_bound(expectation, total),
        share_of_expected=divide(seconds, time.expected_s),
        percent_of_ideal=100 * minimum(divide(own_ideal, seconds, empty=1.0), 1.0),
    )


def _bound(time: PhaseTime | Expectation, total: Any) -> Any:
    """The roofline's verdict, or ``overhead`` where floors are more than half of the total time [s]."""
    return where(time.floor_s > total / 2, "overhead", roofline.bound(time.compute_s, time.memory_s))


def path_key(kernel: Kernel, tokens: int) -> str:
    """The peak an operator is expected to compute at in a pass of so many tokens; empty where it multiplies nothing."""
    return next((path.key for path in reversed(kernel.paths) if tokens >= path.min_tokens), "")
