"""The main question: how fast does this model run on this hardware, and why."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rooflinellm._numeric import anywhere, every, largest, round_up
from rooflinellm.api.arguments import (
    at_least_one,
    count,
    name_of,
    one_of,
    options_of,
    overrides_of,
    scalar_count,
    seconds,
    share,
    shown,
    together,
)
from rooflinellm.api.by_default import by_default
from rooflinellm.api.drafting import idle_draft, speculation_of, with_drafter
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import Options
from rooflinellm.api.overrides import has_arrays
from rooflinellm.api.placing import choose_placement
from rooflinellm.api.plans import Setup, parallel_of, settle
from rooflinellm.api.stacking import each
from rooflinellm.engine.answer import Conventions, answer
from rooflinellm.engine.memory import LARGEST_BATCH
from rooflinellm.engine.parallel import ALONE
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request
from rooflinellm.errors import DoesNotFit, InvalidRequest, RooflineWarning
from rooflinellm.operators.experts import MEASURED_SKEW
from rooflinellm.operators.model import ModelSpec
from rooflinellm.results import Estimate
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.units import format_gib

MAX_TOKENS = 10**9


def estimate(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    weights: str | FormatSpec | None = None,
    kv: str | None = None,
    engine: str | None = None,
    prompt_tokens: Any = 512,
    output_tokens: Any = 128,
    cached_tokens: Any = 0,
    context_tokens: Any = 0,
    context_limit: Any = None,
    batch: Any = 1,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    expert_parallel: int = 1,
    data_parallel: int = 1,
    gpu_layers: int | None = None,
    cpu_moe_layers: int | None = None,
    draft: Any = None,
    draft_tokens: int = 0,
    acceptance: Any = None,
    prefill_chunk: int | None = None,
    queue_s: Any = 0.0,
    tokenize_s: Any = 0.0,
    options: Options | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Estimate:
    """Predict prefill, time to first token, decode and memory.

    Parameters
    ----------
    model : str, path or spec
        As in `rooflinellm.model`.
    hardware : str, path or spec
        As in `rooflinellm.system`.
    weights : str, optional
        Weight format; None is the file's own when the model comes from one, else the engine's default, or the model's
        native one. Both None: llama.cpp with Q4_K_M.
    kv : str, optional
        Type of the cache, or ``K/V``; None is the engine's default.
    engine : str, optional
        Engine, backend and build date, as ``llama.cpp:cuda@2024-05``; None follows from the format.
    prompt_tokens, output_tokens : int or array_like
        Length of the prompt and of the answer; either may be 0. [token]
    cached_tokens : int or array_like
        Tokens of the prompt that need no prefill. [token]
    context_tokens : int or array_like
        Tokens in the cache before the prompt. [token]
    context_limit : int or array_like, optional
        Configured maximum per sequence, for the allocation only; None is what is occupied. [token]
    batch : int or array_like
        Equal requests side by side. [-]
    tensor_parallel, pipeline_parallel, data_parallel : int
        Devices that share every product, groups of layers one after the other, and copies that serve requests of their
        own; their product is the number of devices. [-]
    expert_parallel : int
        Devices that share the experts of each layer, out of tensor x data; the copies then hold all else. [-]
    gpu_layers : int, optional
        Layers on the devices, the last ones, the head as one more behind them, as llama.cpp counts; the others stay in
        the host's memory. None is all of them where they fit, else the fastest that does, if the system has a host. [-]
    cpu_moe_layers : int, optional
        Layers, the first ones, whose experts stay in the host's memory; None as with `gpu_layers`. [-]
    draft : str or spec, optional
        What drafts tokens: a model, ``mtp`` (the model's own multi-token-prediction module), ``eagle`` or ``eagle3`` (a
        layer over the model's features), ``ngram`` (look-up, free of cost). None drafts at no cost, where
        `draft_tokens` is above 0.
    draft_tokens : int
        Tokens that are drafted in a cycle and verified in one pass; 0 drafts none. [token]
    acceptance : float, mapping or sequence
        How many of them are accepted: the probability of each; ``{"accepted_over_drafted": x}``, as logs count;
        ``{"length": x}``, tokens of a cycle with the verifier's own; or the shares of cycles that accept the first
        token, the first two, and so on. [-]
    prefill_chunk : int, optional
        Tokens of a prompt that pass at once; None is one pass in the ideal, the engine's default in the expectation.
        [token]
    queue_s, tokenize_s : float or array_like
        Waiting and tokenisation before prefill. [s]
    options : Options, optional
        Conventions and engine settings.
    overrides : mapping of str to Any, optional
        Values in place of an entry's own, by path: ``{"hardware.memory.bandwidth_gb_s": 1100}``.

    Returns
    -------
    Estimate

    Raises
    ------
    InvalidRequest
        Counts below their minimum, cached over prompt, occupied over `context_limit`, or something not available.
    UnknownName, AmbiguousName
        A name that is no entry, or that fits several.
    MissingSpec
        A value that is needed and not known, such as a peak the format needs.
    DoesNotFit
        It does not fit, and `Options(must_fit=True)` asked to raise.

    Warns
    -----
    RooflineWarning
        The context is beyond what the model is made for, or it does not fit; the answer is "as if".

    Notes
    -----
    The ideal of a phase is one maximum over resources of the phase's totals; the expectation is a sum over operators of
    floor + max(bytes / (eta bandwidth), FLOPs / (eta peak)).
    """
    options = options_of(options)
    parallel = parallel_of(tensor_parallel, pipeline_parallel, expert_parallel, data_parallel)
    overrides = overrides_of(overrides)
    if overrides and has_arrays(overrides):
        ask = partial(estimate, model, hardware, weights=weights, kv=kv, engine=engine, options=options)
        ask = partial(ask, tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel)
        ask = partial(ask, expert_parallel=expert_parallel, data_parallel=data_parallel)
        ask = partial(ask, draft=draft, draft_tokens=draft_tokens, acceptance=acceptance)
        ask = partial(ask, prefill_chunk=prefill_chunk, gpu_layers=gpu_layers, cpu_moe_layers=cpu_moe_layers)
        numbers = {
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
            "cached_tokens": cached_tokens,
            "context_tokens": context_tokens,
            "context_limit": context_limit,
            "batch": batch,
            "queue_s": queue_s,
            "tokenize_s": tokenize_s,
        }
        return _announced(each(ask, overrides, numbers))
    counts = {
        "prompt_tokens": count("prompt_tokens", prompt_tokens, 0, MAX_TOKENS),
        "output_tokens": count("output_tokens", output_tokens, 0, MAX_TOKENS),
        "cached_tokens": count("cached_tokens", cached_tokens, 0, MAX_TOKENS),
        "context_tokens": count("context_tokens", context_tokens, 0, MAX_TOKENS),
        "batch": count("batch", batch, 1, LARGEST_BATCH),
    }
    together({**counts, "context_limit": context_limit, "queue_s": queue_s, "tokenize_s": tokenize_s})
    kv = None if kv is None else name_of("kv", kv)
    chunk = prefill_chunk if prefill_chunk is not None else options.ubatch
    chunk = None if chunk is None else scalar_count("prefill_chunk", chunk)
    setup = Setup(weights, kv, engine, chunk, options, parallel, overrides)
    settled = settle(model, hardware, setup)
    request = Request(
        prompt_tokens=counts["prompt_tokens"],
        output_tokens=counts["output_tokens"],
        cached_tokens=counts["cached_tokens"],
        context_tokens=counts["context_tokens"],
        sequences=counts["batch"],
        chunk=chunk,
        skew=MEASURED_SKEW if options.routing_skew is None else share("routing_skew", options.routing_skew),
        overlap=one_of("overlap", options.overlap, ("operator", "phase", "none")),
        speculation=speculation_of(draft, draft_tokens, acceptance, options),
    )
    settled = with_drafter(settled, draft)
    if anywhere(request.cached_tokens > request.prompt_tokens):
        raise InvalidRequest(
            f"{shown(request.cached_tokens)} cached tokens of a prompt of {shown(request.prompt_tokens)}: "
            "at most the whole prompt can be cached",
            where="cached_tokens",
        )
    occupied = request.occupied_tokens
    if context_limit is None:
        limit = round_up(at_least_one(occupied), settled.engine.kv.block_tokens)
    else:
        limit = count("context_limit", context_limit, 1, MAX_TOKENS)
        if anywhere(occupied > limit):
            raise InvalidRequest(
                f"context, prompt and output occupy {shown(occupied)} tokens, more than the configured {shown(limit)}",
                where="context_limit",
                next_step="Raise context_limit, or leave it out.",
            )
    choice = choose_placement(settled, request, limit, gpu_layers, cpu_moe_layers)
    plan, allocation = choice.plan, choice.allocation
    conventions = Conventions(
        first_token=one_of("first_token", options.first_token, ("prefill", "extra_step")),
        queue_s=seconds("queue_s", queue_s),
        tokenize_s=seconds("tokenize_s", tokenize_s),
    )
    workload = {**counts, "context_limit": limit, "prefill_chunk": chunk}
    if request.speculation is not None:
        workload |= {"draft_tokens": draft_tokens, "tokens_per_cycle": request.speculation.cycle_tokens}
    if parallel != ALONE:
        workload |= parallel.keywords
    workload |= {"gpu_layers": choice.gpu_layers, "cpu_moe_layers": choice.cpu_moe_layers}
    return _announced(
        _judged(
            answer(
                plan,
                request,
                allocation,
                limit,
                conventions,
                assumptions=lambda: (*_assumptions(plan), *by_default(plan, weights, engine), *choice.said),
                warnings=(*_beyond_training(plan, occupied), *idle_draft(draft, draft_tokens)),
                workload=workload,
            ),
            plan,
            must_fit=options.must_fit,
        )
    )


def _assumptions(plan: Plan) -> tuple[str, ...]:
    memory = plan.system.device.memory
    if memory.unified and memory.capacity_gib is not None and memory.configurations_gib:
        return (
            f"memory: the largest configuration, {memory.capacity_gib.value:g} GiB; "
            f"write {plan.system.device.id}@{memory.configurations_gib[0]:g}GiB for another",
        )
    return ()


def _beyond_training(plan: Plan, occupied: Any) -> tuple[str, ...]:
    most = plan.model.max_context_tokens
    if anywhere(occupied > most):
        return (
            f"context: {int(largest([occupied])):,} tokens are beyond the {most:,} that {plan.model.id} is made for; "
            "the answer is as if it were",
        )
    return ()


def _judged(estimate: Estimate, plan: Plan, *, must_fit: bool) -> Estimate:
    """Add to the warnings what the memory plan says; raise `DoesNotFit` where it was asked for."""
    memory = estimate.memory
    if memory.fits is None:
        said = f"memory: the capacity of {_of_unknown_memory(estimate)} is not known; whether it fits is open"
    elif not every(memory.fits) and must_fit:
        raise DoesNotFit(
            f"{estimate.model.id} takes {format_gib(largest([memory.total_bytes]))}, more than "
            f"{format_gib(memory.usable_bytes or 0)} usable on {estimate.hardware.id}",
            where="memory",
            next_step="rl.fit says which formats, contexts and devices would do.",
        )
    elif not every(memory.fits):
        paging = any(stage.spill is not None for stage in plan.stages)
        said = (
            f"memory: does not fit, {format_gib(largest([memory.total_bytes]))} of "
            f"{format_gib(memory.usable_bytes or 0)} usable; "
            f"{'the driver pages the rest in system memory' if paging else 'the answer is as if it did'}"
        )
    else:
        return estimate
    return replace(estimate, warnings=(*estimate.warnings, said))


def _of_unknown_memory(estimate: Estimate) -> str:
    """The places of which it is not known how much they hold."""
    unknown = [part.device for part in estimate.memory.placement if part.usable_bytes is None]
    return " and ".join("the host's memory" if name == "host" else name for name in dict.fromkeys(unknown))


def _announced(estimate: Estimate) -> Estimate:
    """Pass the warnings on to whoever listens."""
    for text in estimate.warnings:
        warnings.warn(text, RooflineWarning, stacklevel=3)
    return estimate
