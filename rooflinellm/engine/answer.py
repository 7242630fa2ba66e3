"""Put the parts of an estimate together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from rooflinellm._numeric import anywhere, ceil_div, largest, maximum, minimum, where
from rooflinellm.engine.memory import Allocation, memory_plan
from rooflinellm.engine.parallel import expected_collective_s
from rooflinellm.engine.phases import decode_interval, prefill_interval
from rooflinellm.engine.plan import Plan, Stage
from rooflinellm.engine.request import Request, decode_time, phase, prefill_time, time_prediction
from rooflinellm.engine.speculation import speculation_result, speculative_time
from rooflinellm.engine.stages import joins
from rooflinellm.results import Estimate, Prediction
from rooflinellm.units import GB, MICRO

LARGE_MESSAGE = 2.0**26
"""Of a collective, to say what gets through. [byte]"""

FirstToken = Literal["prefill", "extra_step"]


@dataclass(frozen=True, slots=True)
class Conventions:
    """What stands around the model's own work.

    Attributes
    ----------
    first_token : {'prefill', 'extra_step'}
        Whether the first token comes out of prefill's logits, as engines do it, or costs one more decode step.
    queue_s, tokenize_s : array_like
        Waiting and tokenisation before prefill. [s]
    """

    first_token: FirstToken = "prefill"
    queue_s: Any = 0.0
    tokenize_s: Any = 0.0


def answer(
    plan: Plan,
    request: Request,
    allocation: Allocation,
    limit: Any,
    conventions: Conventions,
    *,
    assumptions: Callable[[], Iterable[str]],
    warnings: tuple[str, ...],
    workload: Mapping[str, Any],
) -> Estimate:
    """Evaluate a plan for a request.

    Parameters
    ----------
    plan : Plan
        The plan.
    request : Request
        The request.
    allocation : Allocation
        Options of the cache's layout.
    limit : array_like
        Configured context of one sequence. [token]
    conventions : Conventions
        What stands around the model's work.
    assumptions : callable
        Gives what the caller takes for granted, when it is asked for; the plan's own assumptions are added.
    warnings : tuple of str
        What the caller has to warn of.
    workload : mapping of str to Any
        The request as it was given.

    Returns
    -------
    Estimate
    """
    rates, replicas = plan.rates, plan.parallel.replicas
    batch = request.sequences
    if replicas > 1:
        request = replace(request, sequences=ceil_div(batch, replicas))
    sequences = request.sequences  # of each copy of the model
    steps = request.decode_steps
    shown_steps = maximum(steps, 1)  # the rate is that of the next step where there is none
    prefill = prefill_time(plan, request)
    decode_of = decode_time if request.speculation is None else speculative_time
    decode = decode_of(plan, request, shown_steps)
    prefill_s = time_prediction(prefill, prefill_interval(plan, prefill), rates.basis)
    width = decode_interval(plan, decode, sequences)
    rated_s = time_prediction(decode, width, rates.basis)
    tpot = rated_s.scaled(1 / shown_steps)
    decode_s = rated_s.scaled(where(steps > 0, 1, 0))

    before = conventions.queue_s + conventions.tokenize_s
    # Without a prompt the first token is the first decode step; so it is, on top of prefill, in the article's
    # convention.
    first_step = 1 if conventions.first_token == "extra_step" else where(request.prompt_tokens > 0, 0, 1)
    ttft = prefill_s + before
    e2e = ttft + decode_s
    if anywhere(first_step > 0):
        first = time_prediction(decode_time(plan, request, 1), width, rates.basis).scaled(first_step)
        ttft = ttft + first
        counted_twice = where(request.prompt_tokens > 0, 0, where(steps > 0, 1, 0))
        e2e = e2e + first.scaled(1 - counted_twice)

    copies = 1 if replicas == 1 else minimum(batch, replicas)  # a copy without a request does nothing
    energy: Prediction | None = None
    if plan.power_w is not None:
        rated, limits = plan.power_w
        energy = tpot.scaled(rated * rates.decode_power_fraction / batch, "J")
        # Where the maker lets the power be set, the interval is that of the limits too.
        energy = replace(energy, low=energy.low * (limits[0] / rated), high=energy.high * (limits[1] / rated))
    return Estimate(
        prefill=phase(plan, "prefill", prefill, request.computed_tokens, batch, prefill_s, prefill_s, copies),
        decode=phase(plan, "decode", decode, shown_steps, batch, decode_s, rated_s, copies),
        ttft_s=ttft,
        tpot_s=tpot,
        itl_s=tpot if request.speculation is None else tpot.scaled(request.speculation.cycle_tokens),
        e2e_s=e2e,
        memory=memory_plan(plan, sequences, limit, request.occupied_tokens, allocation),
        energy_j_per_token=energy,
        _assumptions=lambda: (*assumptions(), *_assumptions(plan, prefill.pass_tokens, decode.pass_tokens)),
        warnings=warnings,
        model=plan.model,
        hardware=plan.system,
        weights=plan.fmt.id,
        kv=plan.kv,
        engine=plan.engine_name,
        workload=workload,
        speculation=speculation_result(plan, request, tpot),
        evidence=plan.evidence,
        prefill_chunk=plan.prefill_chunk,
    )


def _evidence(plan: Plan) -> str:
    """What a fitted profile has seen of the device."""
    if plan.rates.basis == "nominal":
        return ""
    seen = plan.evidence
    if seen:
        return f" (fitted on {seen:,} series of this device)"
    return " (this device not seen under current builds; its family's values)"


def _energy(plan: Plan) -> str:
    """What a token's energy is counted from."""
    if plan.power_w is None:
        return "energy: not known, for want of a rated power"
    rated, limits = plan.power_w
    text = f"energy: {plan.rates.decode_power_fraction:.0%} of the rated power in decode, {rated:,.0f} W"
    if limits[0] < rated or rated < limits[1]:
        text += f" ({limits[0]:,.0f} to {limits[1]:,.0f} W may be set, which its interval spans)"
    if plan.parallel.devices == 1 and plan.device_count > 1:
        text += "; devices that wait for their layers are charged as if they worked, so it is an upper end"
    return text


def _paging(stage: Stage) -> str:
    """What a driver keeps in system memory."""
    spill = stage.spill
    assert spill is not None
    shares = {"the compute buffer": spill.workspace, "state": spill.state, "the cache": spill.cache,
              "weights": spill.weights}  # fmt: skip
    parts = [f"{largest([share]):.0%} of {name}" for name, share in shares.items() if anywhere(share > 0)]
    rate = spill.link.sustained_bandwidth / GB
    return f"paging: {', '.join(parts)} of {stage.device.id} in system memory, read at {rate:.3g} GB/s"


def _assumptions(plan: Plan, prefill_tokens: int, decode_tokens: int) -> tuple[str, ...]:
    """What the plan takes for granted; passes of other numbers of tokens say the same up to where paths change."""
    if "path starts" not in plan.memo:
        plan.memo["path starts"] = sorted({path.min_tokens for speeds in plan.speeds for path in speeds.paths})
    starts = plan.memo["path starts"]
    key = "said", bisect_right(starts, prefill_tokens), bisect_right(starts, decode_tokens)
    if key not in plan.memo:
        plan.memo[key] = _said(plan, prefill_tokens, decode_tokens)
    found: tuple[str, ...] = plan.memo[key]
    return found


def _said(plan: Plan, prefill_tokens: int, decode_tokens: int) -> tuple[str, ...]:
    """The same in passes of so many tokens."""

    def keys(attention: bool, tokens: int) -> str:
        pairs = zip(plan.kernels, plan.speeds, strict=True)
        found = (speeds.path_key(tokens) for kernel, speeds in pairs if (kernel.kind == "attention") == attention)
        return "/".join(dict.fromkeys(key for key in found if key)) or "none"

    rates = plan.rates
    ideal = "/".join(dict.fromkeys(speeds.ideal_key for speeds in plan.speeds if speeds.ideal_key))
    said = [
        f"ideal: weights once a pass, cache at the occupied context, printed bandwidth, fastest of {ideal};"
        " no activations, cache writes, sampling, unpacking or launches",
        f"compute path expected: prefill {keys(False, prefill_tokens)}, decode {keys(False, decode_tokens)},"
        f" attention {keys(True, decode_tokens)}",
        f"expected: {rates.basis} efficiencies of each kind of operator{_evidence(plan)}, and a least time for each",
        f"prefill in chunks of {plan.prefill_chunk:,} tokens in the expectation",
        _energy(plan),
    ]
    if any(kernel.experts for kernel in plan.kernels):
        said.append(
            "experts: the ideal reads the active ones only; the expectation those that tokens touch as they are routed"
        )
    said += [_paging(stage) for stage in plan.stages if stage.spill is not None]
    if plan.parallel.devices > 1:
        shared = plan.parallel
        said.append(
            f"devices: tensor {shared.tensor} x pipeline {shared.pipeline} x data {shared.data}"
            + (f", experts over {shared.expert}" if shared.expert > 1 else "")
            + "; even shares, sums over devices on top"
        )
        if plan.collectives:
            first = plan.collectives[0]
            small = expected_collective_s(first, 0) / MICRO
            large = LARGE_MESSAGE / expected_collective_s(replace(first, bytes_per_token=1), LARGE_MESSAGE) / GB
            said.append(
                f"between devices: {first.link.bandwidth / GB:.3g} GB/s in one direction; a {first.kind} of a small "
                f"message takes {small:.3g} µs, of a large one {large:.3g} GB/s get through"
                + ("" if first.link.laws else " (this kind of link not measured)")
            )
        links = plan.system.device.links
        if links and not any(joins(link, shared.team) for link in links) and plan.system.network is None:
            said.append(
                f"no link of {plan.system.device.id} joins {shared.team} devices: the ideal is as if its fastest "
                "one did, the expectation has a port of 400 Gb/s a device; a network is written behind them: + 400gbe"
            )
    elif plan.device_count > 1:
        said.append(
            f"layers split over {plan.device_count} devices: one sequence decodes on one device after the other"
        )
    headroom = plan.system.device.clock_headroom
    if headroom > 1:
        said.append(f"ideal at the highest clock, {headroom:.2f} times the advertised one")
    return tuple(said)
