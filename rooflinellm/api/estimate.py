"""The main question: how fast does this model run on this hardware, and why."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rooflinellm import catalog
from rooflinellm._numeric import anywhere, every, is_array, largest, round_up
from rooflinellm.api import lookup
from rooflinellm.api.arguments import (
    at_least_one,
    count,
    name_of,
    one_of,
    positive,
    scalar_count,
    seconds,
    share,
    shown,
    together,
)
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import Options
from rooflinellm.api.overrides import has_arrays, override
from rooflinellm.api.stacking import each
from rooflinellm.engine.answer import Conventions, answer
from rooflinellm.engine.compile import choose_backend, compile_plan
from rooflinellm.engine.memory import LARGEST_BATCH, Allocation
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.results import Estimate
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.specs.profile import ProfileSpec
from rooflinellm.units import format_gib

MAX_TOKENS = 10**9
PLANS_KEPT = 512


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
    tensor_parallel, pipeline_parallel, expert_parallel, data_parallel : int
        Ways of spreading over devices; only 1 so far. [-]
    gpu_layers, cpu_moe_layers : int, optional
        Offload to the host; not available yet. [-]
    draft, draft_tokens, acceptance
        Speculative decoding; not available yet.
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

    Warns
    -----
    RooflineWarning
        The context is beyond what the model is made for, or it does not fit; the answer is "as if".

    Notes
    -----
    The ideal of a phase is one maximum over resources of the phase's totals; the expectation is a sum over operators of
    floor + max(bytes / (eta bandwidth), FLOPs / (eta peak)).
    """
    options = options or Options()
    _only_default(
        tensor_parallel=(tensor_parallel, 1),
        pipeline_parallel=(pipeline_parallel, 1),
        expert_parallel=(expert_parallel, 1),
        data_parallel=(data_parallel, 1),
        gpu_layers=(gpu_layers, None),
        cpu_moe_layers=(cpu_moe_layers, None),
        draft=(draft, None),
        draft_tokens=(draft_tokens, 0),
        acceptance=(acceptance, None),
    )
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InvalidRequest("give a mapping of paths to values", where="overrides")
    if overrides and has_arrays(overrides):
        ask = partial(estimate, model, hardware, weights=weights, kv=kv, engine=engine, options=options)
        ask = partial(ask, prefill_chunk=prefill_chunk)
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
    plan = _plan(model, hardware, weights, kv, engine, chunk, options, overrides)
    request = Request(
        prompt_tokens=counts["prompt_tokens"],
        output_tokens=counts["output_tokens"],
        cached_tokens=counts["cached_tokens"],
        context_tokens=counts["context_tokens"],
        sequences=counts["batch"],
        chunk=chunk,
        skew=share("routing_skew", options.routing_skew),
        overlap=one_of("overlap", options.overlap, ("operator", "phase", "none")),
    )
    if anywhere(request.cached_tokens > request.prompt_tokens):
        raise InvalidRequest(
            f"{shown(request.cached_tokens)} cached tokens of a prompt of {shown(request.prompt_tokens)}: "
            "at most the whole prompt can be cached",
            where="cached_tokens",
        )
    occupied = request.occupied_tokens
    if context_limit is None:
        limit = round_up(at_least_one(occupied), plan.engine.kv.block_tokens)
    else:
        limit = count("context_limit", context_limit, 1, MAX_TOKENS)
        if anywhere(occupied > limit):
            raise InvalidRequest(
                f"context, prompt and output occupy {shown(occupied)} tokens, more than the configured {shown(limit)}",
                where="context_limit",
                next_step="Raise context_limit, or leave it out.",
            )
    allocation = Allocation(
        unified=plan.engine.kv.unified if options.kv_unified is None else options.kv_unified,
        full_windows=options.swa_full,
        chunk=plan.prefill_chunk,
        state_copies=scalar_count("state_copies", options.state_copies),
    )
    conventions = Conventions(
        first_token=one_of("first_token", options.first_token, ("prefill", "extra_step")),
        queue_s=seconds("queue_s", queue_s),
        tokenize_s=seconds("tokenize_s", tokenize_s),
    )
    workload = {**counts, "context_limit": limit, "prefill_chunk": chunk}
    return _announced(
        _judged(
            answer(
                plan,
                request,
                allocation,
                limit,
                conventions,
                assumptions=_assumptions(plan),
                warnings=_beyond_training(plan, occupied),
                workload=workload,
            )
        )
    )


def _only_default(**given: tuple[Any, Any]) -> None:
    """Refuse what is part of the signature and not built yet, rather than ignore it."""
    for name, (value, default) in given.items():
        if is_array(value) or value != default:
            raise InvalidRequest(f"not available yet; leave it at {default}", where=name)


def choose(
    model: ModelSpec, weights: str | FormatSpec | None, engine: str | None
) -> tuple[FormatSpec, EngineSpec, str | None, str | None]:
    """Settle format and engine, each from the other where one is missing.

    A model that comes from a file is in the file's own format, unless another one is asked for.

    Returns
    -------
    tuple
        Format, engine, and the backend and the build's date that were asked for (None: the device's, a current one).
    """
    file = model.entry.file
    if file is not None and (weights is None or weights == file.fmt.id):
        weights = file.fmt
    if engine is None:
        if isinstance(weights, FormatSpec):
            engine = _ENGINE_OF_FAMILY.get(weights.family, "vllm")
        elif weights is None or catalog.gguf_type(weights):
            engine = "llama.cpp"
        else:
            engine = _ENGINE_OF_FAMILY.get(catalog.weight_format(weights, _FAMILIES).family, "vllm")
    spec, backend, build_date = catalog.engine(engine)
    if isinstance(weights, FormatSpec):
        return weights, spec, backend, build_date
    name = weights or spec.default_format or model.native_format
    fmt = catalog.weight_format(name, spec.format_families)
    return (file.fmt if file is not None and fmt.id == file.format else fmt), spec, backend, build_date


_FAMILIES = ("hf", "mlx", "exl", "gguf")
"""Whose format a name is that several families have and that does not mean GGUF."""
_ENGINE_OF_FAMILY = {"gguf": "llama.cpp", "mlx": "mlx", "hf": "vllm"}


def _plan(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    weights: str | FormatSpec | None,
    kv: str | None,
    engine: str | None,
    chunk: int | None,
    options: Options,
    overrides: Mapping[str, Any] | None,
) -> Plan:
    """Compile, or take the plan that was compiled before from the same names or entries."""
    named = None if overrides or options.profile is not None else _named(model, hardware, weights, engine)
    if named is not None:
        named = (*named, kv, chunk, options.mla, options.power_limit_w)
        if named in _named_plans:
            return _named_plans[named]
    plan = _compiled(model, hardware, weights, kv, engine, chunk, options, overrides)
    if named is not None:
        _named_plans[named] = plan
        if len(_named_plans) > PLANS_KEPT:
            _named_plans.popitem(last=False)
    return plan


def _named(*given: Any) -> tuple[Any, ...] | None:
    """A key of names that lead to packaged entries, which do not change while a program runs.

    None where the user has entries of their own, which may change at any time, or where a name may be a file's.
    """
    if not all(name is None or type(name) is str for name in given) or catalog.has_user_entries():
        return None
    return None if any(name is not None and os.path.exists(name) for name in given) else given


_named_plans: OrderedDict[Any, Plan] = OrderedDict()


def _compiled(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    weights: str | FormatSpec | None,
    kv: str | None,
    engine: str | None,
    chunk: int | None,
    options: Options,
    overrides: Mapping[str, Any] | None,
) -> Plan:
    model, system = lookup.model(model), lookup.system(hardware)
    fmt, engine_spec, backend, build_date = choose(model, weights, engine)
    make = partial(build, fmt=fmt, engine=engine_spec, backend=backend, kv=kv, chunk=chunk)
    make = partial(make, build_date=build_date, options=options)
    if overrides:
        return make(*override(model, system, overrides))
    profiles = catalog.profiles(options.profile)
    entries = (model, system.device, system.host, fmt, engine_spec, *profiles)
    key = (*map(id, entries), system.count, backend, build_date, kv, chunk, options.mla, options.power_limit_w)
    kept = _plans.get(key)
    if kept is not None and kept[0].device is system.device:
        return kept[-1]
    plan = make(model, system)
    _plans[key] = (system, profiles, plan)  # alive, so that their identities stay theirs
    if len(_plans) > PLANS_KEPT:
        _plans.popitem(last=False)
    return plan


_plans: OrderedDict[Any, tuple[SystemSpec, tuple[ProfileSpec, ...], Plan]] = OrderedDict()


def build(
    model: ModelSpec,
    system: SystemSpec,
    fmt: FormatSpec,
    engine: EngineSpec,
    backend: str | None,
    kv: str | None,
    chunk: int | None,
    build_date: str | None = None,
    options: Options | None = None,
) -> Plan:
    """Compile a plan from settled entries; errors as in `estimate`."""
    options = options or Options()
    if options.power_limit_w is not None:
        limit = positive("power_limit_w", options.power_limit_w)
        system = system.model_copy(update={"device": system.device.with_power_limit(limit)})
    form = None if options.mla is None else one_of("mla", options.mla, ("absorbed", "expanded"))
    if system.count > 1 and engine.several_devices != "layer_split":
        raise InvalidRequest(
            f"{engine.id} spreads over {system.count} devices by tensor parallelism, which is not available yet",
            where="tensor_parallel",
            next_step="Name one device, or use llama.cpp, which splits by layers.",
        )
    return compile_plan(
        model,
        system,
        fmt,
        engine,
        choose_backend(engine, system.device, backend),
        catalog.profiles(options.profile),
        catalog.encodings(),
        kv=kv or engine.kv.default,
        prefill_chunk=chunk,
        expanded=form == "expanded",
        build=build_date,
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


def _judged(estimate: Estimate) -> Estimate:
    """Add to the warnings what the memory plan says."""
    memory = estimate.memory
    if memory.fits is None:
        said = f"memory: the capacity of {estimate.hardware.device.id} is not known; whether it fits is open"
    elif not every(memory.fits):
        said = (
            f"memory: does not fit, {format_gib(largest([memory.total_bytes]))} of "
            f"{format_gib(memory.usable_bytes or 0)} usable; the answer is as if it did"
        )
    else:
        return estimate
    return replace(estimate, warnings=(*estimate.warnings, said))


def _announced(estimate: Estimate) -> Estimate:
    """Pass the warnings on to whoever listens."""
    for text in estimate.warnings:
        warnings.warn(text, RooflineWarning, stacklevel=3)
    return estimate
