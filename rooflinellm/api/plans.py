"""From names and settings to a plan: settled entries, compiled once and kept."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm import catalog, units
from rooflinellm._kept import Kept
from rooflinellm.api import lookup
from rooflinellm.api.arguments import name_of, one_of, overrides_of, positive, scalar_count
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import DEFAULTS, Options
from rooflinellm.api.overrides import override
from rooflinellm.engine.compile import compile_plan
from rooflinellm.engine.kernels import choose_backend
from rooflinellm.engine.parallel import ALONE, Parallel
from rooflinellm.engine.placement import Offload
from rooflinellm.engine.plan import Drafter, Plan
from rooflinellm.errors import InvalidRequest, met
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.specs.profile import ProfileSpec

KEPT = 1024
FILE_MARKS = (".yaml", ".yml", ".json", ".gguf", ".safetensors", "~")
"""What names of files have in them, even where more stands around: ``2x my-card.yaml``, ``my-engine.yaml:cuda``."""
MOST_DEVICES = 1024
NOTHING_ELSEWHERE = Offload()
_FAMILIES = ("hf", "mlx", "exl", "gguf")
"""Whose format a name is that several families have and that does not mean GGUF."""
_ENGINE_OF_FAMILY = {"gguf": "llama.cpp", "mlx": "mlx", "hf": "vllm"}


def parallel_of(
    tensor_parallel: Any = 1, pipeline_parallel: Any = 1, expert_parallel: Any = 1, data_parallel: Any = 1
) -> Parallel:
    """How devices share the work, by the arguments of `estimate`; errors as there."""
    return Parallel(
        tensor=scalar_count("tensor_parallel", tensor_parallel, MOST_DEVICES),
        pipeline=scalar_count("pipeline_parallel", pipeline_parallel, MOST_DEVICES),
        expert=scalar_count("expert_parallel", expert_parallel, MOST_DEVICES),
        data=scalar_count("data_parallel", data_parallel, MOST_DEVICES),
    )


@dataclass(frozen=True, slots=True)
class Setup:
    """What is asked for beside model, hardware and request, as in `estimate`."""

    weights: str | FormatSpec | None = None
    kv: str | None = None
    engine: str | None = None
    chunk: int | None = None
    options: Options = DEFAULTS
    parallel: Parallel = ALONE
    overrides: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """Entries in place of names, with the settings that go into a plan.

    Attributes
    ----------
    model, system, fmt, engine
        The entries; those of a power limit and of what-ifs already changed.
    backend_name : str
        The engine's backend for the first device.
    kv : str
        Type of the cache.
    chunk : int or None
        Tokens of a prompt that pass at once. [token]
    build : str or None
        Date of the engine's build.
    options : Options
        The options.
    profiles : tuple of ProfileSpec
        Efficiency profiles, the preferred one first.
    plans : dict of Offload to Plan
        What was compiled already.
    drafter : Drafter or None
        What drafts tokens.
    parallel : Parallel
        How the devices share the work.
    """

    model: ModelSpec
    system: SystemSpec
    fmt: FormatSpec
    engine: EngineSpec
    backend_name: str
    kv: str
    chunk: int | None
    build: str | None
    options: Options
    profiles: tuple[ProfileSpec, ...]
    plans: OrderedDict[Offload, Plan]
    drafter: Drafter | None = None
    parallel: Parallel = ALONE

    def plan(self, offload: Offload = NOTHING_ELSEWHERE) -> Plan:
        """Compile with a part of the model on the host, or take the plan from memory; errors as in `estimate`."""
        if offload not in self.plans:
            self.plans[offload] = compile_plan(
                self.model,
                self.system,
                self.fmt,
                self.engine,
                self.backend_name,
                self.profiles,
                catalog.encodings(),
                kv=self.kv,
                prefill_chunk=self.chunk,
                expanded=self.options.mla == "expanded",
                build=self.build,
                offload=offload,
                parallel=self.parallel,
            )
            if len(self.plans) > KEPT:
                self.plans.popitem(last=False)
        plan = self.plans[offload]
        return plan if self.drafter is None else replace(plan, drafter=self.drafter)


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


def settle(model: Name | ModelEntry | ModelSpec, hardware: Name | HardwareSpec | SystemSpec, setup: Setup) -> Settled:
    """Look up what is named, or take what was settled before from the same names or entries; errors as in `estimate`.

    Entries are large and frozen: identity is a cheaper key than content, and they are kept alive beside it.
    """
    _check_names(setup)
    options = setup.options
    settings = (setup.kv, setup.chunk, options.mla, options.power_limit_w, options.reserved_gib, setup.parallel)
    own = options.profile
    key: Any = None
    given = (model, hardware, setup.weights, setup.engine)
    if not setup.overrides and own is None and _are_names(given):
        key = given, settings
        if (known := _kept.get(key)) is not None:  # so they were no file's
            return _with_options(known, options)
        if any(isinstance(name, str) and _may_be_a_file(name) for name in given):
            key = None
    if key is None:
        spec, system = lookup.model(model), lookup.system(hardware)
        fmt, engine, backend, build = choose(spec, setup.weights, setup.engine)
        profiles = catalog.profiles(own)
    else:  # the same names lead to the same entries
        spec = _packaged.of((), ("model", model), lambda: lookup.model(model))
        system = _packaged.of((), ("system", hardware), lambda: lookup.system(hardware))
        named_choice = "choice", setup.weights, setup.engine
        fmt, engine, backend, build = _packaged.of(
            (spec,), named_choice, lambda: choose(spec, setup.weights, setup.engine)
        )
        profiles = _packaged.of((), ("profiles",), catalog.profiles)
    if setup.overrides:
        spec, system = override(spec, system, setup.overrides)
    elif key is None:
        entries = (spec.entry, system.device, system.others, system.host, system.host_cpu, system.disk, system.network)
        objects = (*entries, fmt, engine, *profiles, catalog.encodings())
        key = (tuple(map(id, objects)), system.count, backend, build, settings)
        if key in _kept and _kept[key].system is system:
            return _with_options(_kept[key], setup.options)
    try:
        settled = entered(
            spec, system, fmt, engine, backend, setup.kv, setup.chunk, build, setup.options, setup.parallel, profiles
        )
    except InvalidRequest as error:
        if error.where == "engine" and setup.engine is None and isinstance(setup.weights, str):
            raise _not_here(setup.weights, fmt, engine, error) from error
        raise
    if key is not None:
        _kept[key] = settled
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    return settled


def _not_here(weights: str, fmt: FormatSpec, engine: EngineSpec, error: InvalidRequest) -> InvalidRequest:
    """The error for a format that settled on an engine, which nobody named and which does not run on the device.

    Short names belong to one family of formats only, as `q4` and `4bit` do, and who types them may mean another's.
    """
    digit = next((letter for letter in weights if letter.isdigit()), None)
    same = [each.id for each in catalog.list_formats(f"q{digit}") if each.id.startswith("gguf:")] if digit else []
    meant = f"Which one is meant: {', '.join(same)}? " if same else ""
    return InvalidRequest(
        f"{met(weights)} is {fmt.id}, which {engine.id} reads; {error.message}",
        where="weights",
        next_step=f"{meant}`rooflinellm format list` shows all.",
    )


def _check_names(setup: Setup) -> None:
    """Refuse what is no name of a format, a type of cache or an engine."""
    if setup.kv is not None:
        name_of("kv", setup.kv)
    if setup.engine is not None and not isinstance(setup.engine, os.PathLike):
        name_of("engine", setup.engine)
    if setup.weights is not None and not isinstance(setup.weights, FormatSpec | os.PathLike):
        name_of("weights", setup.weights)
    overrides_of(setup.overrides)


_kept: OrderedDict[Any, Settled] = OrderedDict()
_packaged = Kept[Any](4096)


def _with_options(settled: Settled, options: Options) -> Settled:
    """The same for a request with other options, of which none changes a plan."""
    return settled if settled.options == options else replace(settled, options=options)


def _may_be_a_file(name: str) -> bool:
    """Whether a name, or a part of it, may lead to a file, which may change at any time."""
    return name != name.strip() or any(mark in name.lower() for mark in FILE_MARKS) or os.path.exists(name)


def _are_names(given: tuple[Any, ...]) -> bool:
    """Whether they are names that lead to packaged entries, which do not change while a program runs.

    Not where the user has entries of their own, which may change at any time.
    """
    return all(name is None or type(name) is str for name in given) and not catalog.has_user_entries()


def entered(
    model: ModelSpec,
    system: SystemSpec,
    fmt: FormatSpec,
    engine: EngineSpec,
    backend: str | None,
    kv: str | None,
    chunk: int | None,
    build: str | None = None,
    options: Options = DEFAULTS,
    parallel: Parallel = ALONE,
    profiles: tuple[ProfileSpec, ...] | None = None,
) -> Settled:
    """Settle entries that were looked up already; errors as in `estimate`."""
    if options.power_limit_w is not None:
        limit = positive("power_limit_w", options.power_limit_w)
        system = system.model_copy(update={"device": system.device.with_power_limit(limit)})
    if options.reserved_gib:
        reserved = round(positive("reserved_gib", options.reserved_gib) * units.GIB)
        others = tuple(
            group.model_copy(update={"device": group.device.with_reserved(reserved)}) for group in system.others
        )
        system = system.model_copy(update={"device": system.device.with_reserved(reserved), "others": others})
    if options.mla is not None:
        one_of("mla", options.mla, ("absorbed", "expanded"))
    devices = system.device_count
    if parallel != ALONE:
        if system.others:
            raise InvalidRequest("devices of different kinds share only layers", where="tensor_parallel")
        parallel.checked(model, devices)
    elif devices > 1 and engine.several_devices != "layer_split":
        raise InvalidRequest(
            f"{engine.id} does not say by itself how {devices} devices share the work",
            where="tensor_parallel",
            next_step=f"Give tensor_parallel={devices}, or degrees of tensor, pipeline and data that make {devices}.",
        )
    return Settled(
        model=model,
        system=system,
        fmt=fmt,
        engine=engine,
        backend_name=choose_backend(engine, system.device, backend),
        kv=kv or engine.kv.default,
        chunk=chunk,
        build=build,
        options=options,
        profiles=catalog.profiles(options.profile) if profiles is None else profiles,
        plans=OrderedDict(),
        parallel=parallel,
    )
