"""A server under load: how long requests wait and take when others are served beside them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rooflinellm._numeric import is_array
from rooflinellm.api.arguments import flag, one_of, options_of, positive, scalar_count, seconds, share
from rooflinellm.api.load_result import LoadResult, RequestTimes, Spread
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import Options
from rooflinellm.api.overrides import has_arrays
from rooflinellm.api.placing import Placed, choose_placement
from rooflinellm.api.plans import Setup, settle
from rooflinellm.api.workloads import MOST_TOKENS, Requests, requests_of
from rooflinellm.engine.cache_room import CacheRoom, cache_room
from rooflinellm.engine.load import Served, Server, Workload, serve
from rooflinellm.engine.load_bound import least_busy_s
from rooflinellm.engine.load_server import server_of
from rooflinellm.engine.parallel import Parallel
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request
from rooflinellm.engine.workspace import batch_limits
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.experts import MEASURED_SKEW
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.units import MEGA, format_gib, significant

MOST_SEQUENCES = 65_536
MOST_DEVICES = 1024
USUAL_SEQUENCES = 256
"""Requests that are served at a time by an engine which leaves that to its user. [-]"""
MOST_CHUNK = 2**20
OVERRUN = 0.05
"""Share of the requests that are still in the system when the last one arrives, from which on the load is too much."""
SECONDS_PER_HOUR = 3600
NOT_UNDER_LOAD: dict[str, Any] = {
    "batch": 1,
    "pipeline_parallel": 1,
    "draft": None,
    "draft_tokens": 0,
    "acceptance": None,
    "queue_s": 0.0,
}
"""Arguments of `estimate` that a simulation does not take, and what they may be all the same."""


def simulate_load(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    rate: float | None = None,
    concurrency: int | None = None,
    requests: int | None = None,
    prompt_tokens: Any = None,
    output_tokens: Any = None,
    seed: int = 0,
    trace: Any = None,
    think_s: float = 0.0,
    max_ttft_s: float | None = None,
    max_tpot_s: float | None = None,
    max_sequences: int | None = None,
    chunked_prefill: bool = True,
    price_per_hour: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    weights: str | FormatSpec | None = None,
    kv: str | None = None,
    engine: str | None = None,
    cached_tokens: Any = 0,
    context_tokens: Any = 0,
    context_limit: int | None = None,
    gpu_layers: int | None = None,
    cpu_moe_layers: int | None = None,
    prefill_chunk: int | None = None,
    tokenize_s: float = 0.0,
    options: Options | None = None,
    overrides: Mapping[str, Any] | None = None,
    **others: Any,
) -> LoadResult:
    """Simulate a server under load, step by step: continuous batching with a paged cache.

    A step computes a token of every sequence that decodes, and with what is left of its budget of tokens, prompts in
    the order of their arrival, in chunks. Times of steps are those of `estimate`.

    Parameters
    ----------
    model, hardware
        As in `estimate`.
    rate : float, optional
        Requests that arrive in a second, at random (a Poisson process). Give this, `concurrency` or `trace`. [1/s]
    concurrency : int, optional
        Clients of a closed loop: each sends its next request when the last one is done. [-]
    requests : int
        How many; of a trace, its first ones. [-]
    prompt_tokens, output_tokens : int, array_like or mapping
        Lengths: one for all, one for each request, or ``{"mean": 512, "cv": 1.0}`` for a log-normal distribution with
        this mean and coefficient of variation. A prompt has one token at least. [token]
    seed : int
        Of chance: the same seed gives the same answer.
    trace : path or mapping, optional
        A CSV file with the columns ``arrival_s``, ``prompt_tokens``, ``output_tokens`` and maybe ``cached_tokens``, or
        such columns by name.
    think_s : float
        What a client of a closed loop waits between. [s]
    max_ttft_s, max_tpot_s : float, optional
        Limits that a request has to keep to count for the goodput. [s]
    max_sequences : int, optional
        Most requests that are served at a time; None is the engine's default, or 256 where it leaves that to its user.
    chunked_prefill : bool
        Prompts share steps with sequences that decode; else these wait until the prompts are done.
    price_per_hour : float, optional
        What the system costs in an hour, in any currency.
    progress : callable, optional
        Called now and then with the requests that are done and all there are.
    weights, kv, engine, context_limit, gpu_layers, cpu_moe_layers, tokenize_s, options, overrides
        As in `estimate`, single values.
    cached_tokens, context_tokens : int, array_like or mapping
        As in `estimate`: tokens of the prompt that need no prefill, and tokens in the cache before it; both take room.
    prefill_chunk : int, optional
        Most tokens of a step, as vLLM's ``max_num_batched_tokens``; None is the engine's default. [token]
    **others
        ``tensor_parallel``, ``expert_parallel`` and ``data_parallel`` as in `estimate`; its further arguments at their
        defaults.

    Returns
    -------
    LoadResult

    Raises
    ------
    InvalidRequest
        Not one of `rate`, `concurrency` and `trace`, or something impossible or not available.
    UnreadableFile
        A trace that cannot be read.
    UnknownName, AmbiguousName, MissingSpec
        As in `estimate`.

    Warns
    -----
    RooflineWarning
        It does not fit (the answer is "as if"), or requests come faster than they are served.

    Notes
    -----
    A request is admitted when a slot is free and its whole prompt finds room in the cache; where sequences outgrow the
    room, the one admitted last is thrown out and computed anew. Caches are not shared between requests.

    References
    ----------
    Little (1961): mean concurrency = throughput times mean time in the system. Pollaczek-Khinchine: with one request at
    a time of equal service s, the mean wait is rho s / (2 (1 - rho)).
    """
    options = options_of(options)
    chunked_prefill = flag("chunked_prefill", chunked_prefill)
    parallel = _parallel(others)
    _check_others(others, options, overrides)
    load = requests_of(
        rate, concurrency, trace, requests, prompt_tokens, output_tokens, cached_tokens, context_tokens, seed
    )
    _check_limit(context_limit, load)
    before, think = _single_seconds("tokenize_s", tokenize_s), _single_seconds("think_s", think_s)
    limits = {
        name: None if value is None else positive(name, value)
        for name, value in (("max_ttft_s", max_ttft_s), ("max_tpot_s", max_tpot_s), ("price_per_hour", price_per_hour))
    }
    chunk = prefill_chunk if prefill_chunk is not None else options.ubatch
    chunk = None if chunk is None else scalar_count("prefill_chunk", chunk, MOST_CHUNK)
    settled = settle(model, hardware, Setup(weights, kv, engine, chunk, options, parallel, overrides))
    skew = MEASURED_SKEW if options.routing_skew is None else share("routing_skew", options.routing_skew)
    largest = Request(load.longest - 1, 1, 0, 0, 1, chunk, skew, options.overlap)
    placed = choose_placement(settled, largest, load.longest, gpu_layers, cpu_moe_layers)
    plan = placed.plan
    room, said = _room(placed, load)
    sequences, slots_said = _sequences(plan, max_sequences, len(load.output_tokens))
    server = server_of(
        plan,
        room,
        sequences,
        load.computed_tokens,
        load.output_tokens,
        load.longest,
        chunked=bool(chunked_prefill),
        skew=skew,
        overlap=options.overlap,
    )
    served = serve(
        server,
        Workload(
            load.arrival_s, load.clients, think + before, load.computed_tokens, load.before_tokens, load.output_tokens
        ),
        progress,
    )
    if rate is not None and served.backlog > max(OVERRUN * len(load.output_tokens), sequences):
        said.append(
            f"load: requests come faster ({significant(float(rate))} a second) than they are served "
            f"({significant(len(load.output_tokens) / served.duration_s)}); waiting grows with their number"
        )
    for text in said:
        warnings.warn(text, RooflineWarning, stacklevel=2)
    workload = {
        "rate": None if rate is None else float(rate),
        "concurrency": load.clients or None,
        "requests": len(load.output_tokens),
        "prompt_tokens": float(load.prompt_tokens.mean()),
        "output_tokens": float(load.output_tokens.mean()),
        "cached_tokens": float(load.cached_tokens.mean()),
        "context_tokens": float(load.context_tokens.mean()),
        "seed": int(seed),
        "think_s": think,
        "tokenize_s": before,
        **limits,
        "max_sequences": sequences,
        "prefill_chunk": server.step_tokens,
        "chunked_prefill": server.chunked,
        "gpu_layers": placed.gpu_layers,
        "cpu_moe_layers": placed.cpu_moe_layers,
    }
    least_s = least_busy_s(plan, load.computed_tokens, load.before_tokens, load.output_tokens, sequences, skew)
    assumptions = (*slots_said, *_assumptions(plan, server), *placed.said)
    return _result(plan, load, served, server, workload, least_s, assumptions, tuple(said))


def _parallel(others: dict[str, Any]) -> Parallel:
    """How devices share the work; takes its arguments out of the others."""
    degrees = {
        name: scalar_count(f"{name}_parallel", others.pop(f"{name}_parallel", 1), MOST_DEVICES)
        for name in ("tensor", "expert", "data")
    }
    parallel = Parallel(**degrees)
    if parallel.replicas > 1:
        raise InvalidRequest(
            "copies of a model share no load here",
            where="data_parallel",
            next_step="Simulate one copy with its share of the requests.",
        )
    return parallel


def _check_others(others: Mapping[str, Any], options: Options, overrides: Any) -> None:
    """Refuse what a simulation does not take, rather than ignore it."""
    for name, value in others.items():
        if name not in NOT_UNDER_LOAD:
            raise InvalidRequest("there is no such argument", where=name)
        if is_array(value) or value != NOT_UNDER_LOAD[name]:
            instead = {"batch": " (give concurrency)", "queue_s": " (it is part of the answer)"}.get(name, "")
            raise InvalidRequest(f"not available under load; leave it at {NOT_UNDER_LOAD[name]}{instead}", where=name)
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InvalidRequest("give a mapping of paths to values", where="overrides")
    if overrides and has_arrays(overrides):
        raise InvalidRequest("one value for each path; a load is a single case", where="overrides")
    one_of("overlap", options.overlap, ("operator", "none"))
    one_of("first_token", options.first_token, ("prefill",))


def _check_limit(context_limit: Any, load: Requests) -> None:
    if load.longest > MOST_TOKENS:
        raise InvalidRequest(f"a request of {load.longest:,} tokens; at most {MOST_TOKENS:,} are allowed", where="load")
    if context_limit is not None and load.longest > scalar_count("context_limit", context_limit):
        raise InvalidRequest(
            f"context, prompt and output of a request occupy {load.longest:,} tokens, more than the configured "
            f"{context_limit:,}",
            where="context_limit",
            next_step="Raise context_limit, or leave it out.",
        )


def _single_seconds(name: str, value: Any) -> float:
    checked = seconds(name, value)
    if is_array(checked):
        raise InvalidRequest("give one value", where=name)
    return float(checked)


def _room(placed: Placed, load: Requests) -> tuple[CacheRoom, list[str]]:
    """Room for caches, without end where even the longest request has none; and what is to be warned of."""
    plan, said = placed.plan, []
    room = cache_room(plan, placed.allocation, load.longest)
    needed = int(room.of(load.longest))
    if room.capacity_bytes is None:
        said.append(f"memory: the capacity of {plan.system.device.id} is not known; caches have room without end")
    elif needed > room.capacity_bytes:
        said.append(
            f"memory: does not fit, the longest request takes {format_gib(needed)} and weights leave "
            f"{format_gib(max(room.capacity_bytes, 0))}; the answer is as if there were room without end"
        )
        room = CacheRoom(None, room.block_tokens, room.held_bytes)
    most = plan.model.max_context_tokens
    if load.longest > most:
        said.append(
            f"context: {load.longest:,} tokens are beyond the {most:,} that {plan.model.id} is made for; "
            "the answer is as if it were"
        )
    return room, said


def _sequences(plan: Plan, asked: Any, requests: int) -> tuple[int, tuple[str, ...]]:
    """Most requests at a time, and in words where that comes from."""
    if asked is not None:
        return min(scalar_count("max_sequences", asked, MOST_SEQUENCES), requests), ()
    own = batch_limits(plan.engine, plan.main.device).sequences
    if own > 1:
        return min(own, requests), (f"at most {own:,} requests at a time, as {plan.engine.id} does by default",)
    said = f"at most {USUAL_SEQUENCES} requests at a time; {plan.engine.id} leaves that to its user"
    return min(USUAL_SEQUENCES, requests), (said,)


def _assumptions(plan: Plan, server: Server) -> tuple[str, ...]:
    rates, kinds = plan.rates, plan.main.operators.kinds
    prefill, decode = rates.prefill_interval(kinds), float(rates.decode_interval(2, kinds))
    widths = f"{prefill:.2g} in prefill and {decode:.2g} in decode"
    how = "prompts share steps with decoding" if server.chunked else "decoding waits for prompts"
    said = [
        f"steps of up to {server.step_tokens:,} tokens, {how}; caches in blocks of {server.room.block_tokens} tokens",
        "a request is admitted when its prompt finds room; the one admitted last is thrown out where room runs short",
        f"times of steps are expected ({rates.basis}); a single one may be off by a factor of {widths}",
    ]
    if any(kernel.window is not None or kernel.chunk is not None for kernel in plan.kernels):
        said.append("attention within windows at the mean context of the sequences that decode together")
    return tuple(said)


def _result(
    plan: Plan,
    load: Requests,
    served: Served,
    server: Server,
    workload: dict[str, Any],
    least_s: float,
    assumptions: tuple[str, ...],
    said: tuple[str, ...],
) -> LoadResult:
    before = workload["tokenize_s"]
    each = RequestTimes(
        served.arrival_s,
        served.start_s + before,
        served.first_token_s + before,
        served.finish_s + before,
        load.prompt_tokens,
        load.output_tokens,
        served.preemptions,
    )
    seconds_all, tokens = served.duration_s + before, int(load.output_tokens.sum())
    more = load.output_tokens > 1
    good = np.ones(len(more), dtype=bool)
    if workload["max_ttft_s"] is not None:
        good &= each.ttft_s <= workload["max_ttft_s"]
    if workload["max_tpot_s"] is not None:
        good &= each.tpot_s <= workload["max_tpot_s"]
    busy_s = served.decode_s + served.prefill_s
    rates, price = plan.rates, workload["price_per_hour"]
    energy = None
    rated = plan.system.rated_power_w
    if rated is not None and tokens:
        drawn = served.decode_s * rates.decode_power_fraction + served.prefill_s * rates.prefill_power_fraction
        energy = rated * drawn / tokens
    cost = None if price is None or not tokens else price * seconds_all / SECONDS_PER_HOUR / tokens * MEGA
    capacity = server.room.capacity_bytes
    arrived = len(more) / seconds_all
    tpot = each.tpot_s[more]
    if not len(tpot):  # of the next token, as in `estimate`; nobody decodes beside
        tpot = [server.steps.decode_s(1, tokens, 1) for tokens in (load.before_tokens + load.computed_tokens).tolist()]
    return LoadResult(
        ttft_s=Spread.of(each.ttft_s),
        tpot_s=Spread.of(tpot),
        e2e_s=Spread.of(each.e2e_s),
        queue_s=Spread.of(served.start_s - served.arrival_s),
        throughput_tokens_per_s=tokens / seconds_all,
        requests_per_s=arrived,
        goodput_per_s=float(good.sum()) / seconds_all,
        max_throughput_tokens_per_s=tokens / least_s,
        mean_concurrency=(served.system_s + before * len(more)) / seconds_all,
        mean_batch=served.decoding_s / busy_s,
        utilisation=min(busy_s / seconds_all, 1.0),
        kv_peak_bytes=served.held_peak_bytes,
        kv_peak_share=served.held_peak_bytes / capacity if capacity else None,
        kv_mean_share=served.held_byte_s / served.duration_s / capacity if capacity else None,
        preemptions=int(served.preemptions.sum()),
        duration_s=seconds_all,
        energy_j_per_token=energy,
        cost_per_million_tokens=cost,
        basis=rates.basis,
        evidence=plan.evidence,
        requests=each,
        assumptions=assumptions,
        warnings=said,
        model=plan.model,
        hardware=plan.system,
        weights=plan.fmt.id,
        kv=plan.kv,
        engine=plan.engine_name,
        workload=workload,
    )
