"""Compile a model, a system, a format and an engine into a plan."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from rooflinellm.efficiency.rates import FEW, MANY, Rates, rates
from rooflinellm.engine.layout import Layout, OperatorRow, lay_out
from rooflinellm.engine.paths import Paths, attention_paths, other_engines, runs_on, weight_paths
from rooflinellm.engine.placement import split_by_layers
from rooflinellm.engine.plan import Kernel, Machine, PathRate, Plan
from rooflinellm.engine.workspace import batch_limits, widest_features
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators import linear, recurrent
from rooflinellm.operators.cache import CacheTypes
from rooflinellm.operators.graph import Mixing
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.engine import Backend, EngineSpec
from rooflinellm.specs.formats import Encodings, FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import Attention, Indexer, LatentAttention, Recurrent
from rooflinellm.specs.profile import ProfileSpec

VECTOR_PEAK = "fp32.fp32"
"""The peak that matrix-vector kernels are measured by."""


def choose_backend(engine: EngineSpec, device: HardwareSpec, asked: str | None) -> str:
    """The engine's backend for a device: the one asked for, else the first that is made for it.

    Raises
    ------
    InvalidRequest
        The engine has no such backend, or none for this device.
    """
    if asked is not None and asked not in engine.backends:
        raise InvalidRequest(
            f"{engine.id} has no backend '{asked}'; it has {', '.join(engine.backends)}", where="engine"
        )
    if asked is None and device.ad_hoc and "cuda" in engine.backends:
        return "cuda"
    able = [name for name, backend in engine.backends.items() if runs_on(backend, device)]
    if asked is None and able:
        return able[0]
    if asked in able:
        return asked
    named = engine.id if asked is None else f"{engine.id}:{asked}"
    instead = f"{engine.id} has {', '.join(able)} for it." if able else other_engines(device)
    isa = "" if device.isa is None else f", {device.isa}"
    raise InvalidRequest(
        f"{named} does not run on {device.name} ({device.vendor} {device.architecture}{isa})",
        where="engine",
        next_step=instead,
    )


class Compiler:
    """Compiles plans and keeps the last ones, and the layouts they share."""

    def __init__(self, capacity: int = 512) -> None:
        self._capacity = capacity
        self._layouts: OrderedDict[Any, tuple[Any, Layout]] = OrderedDict()

    def layout(self, model: ModelSpec, fmt: FormatSpec, encodings: Encodings) -> Layout:
        """The model in the format, from memory where it is known."""
        # Entries are large and frozen: identity is a cheaper key than content, and the entry is kept alive beside it.
        key = (id(model.entry), fmt.id, id(encodings))
        if key not in self._layouts:
            self._layouts[key] = (model.entry, lay_out(model, fmt, encodings.encodings))
            if len(self._layouts) > self._capacity:
                self._layouts.popitem(last=False)
        return self._layouts[key][1]


_compiler = Compiler()


class _Kernels:
    """Turns operator rows into kernels for one device, engine and backend."""

    def __init__(
        self,
        engine: EngineSpec,
        name: str,
        backend: Backend,
        device: HardwareSpec,
        rate: Rates,
        cache: CacheTypes,
        scale: float,
        rows: Sequence[OperatorRow],
        hidden: int,
        expanded: bool,
        build: str | None,
    ) -> None:
        self.engine, self.name, self.backend, self.device = engine, name, backend, device
        self.rate, self.cache, self.scale = rate, cache, scale
        self.hidden, self.expanded, self.build = hidden, expanded, build
        self.paths: dict[str, Paths] = {}
        self.seen = Counter(row.operator.name for row in rows)

    def name_of(self, row: OperatorRow) -> str:
        """The operator's name, with the encoding behind it where the format mixes several."""
        name, mixing = row.operator.name, row.operator.mixing
        if self.seen[name] == 1:
            return name
        if row.encoding is not None:
            return f"{name} ({row.encoding})"
        return name if mixing is None else f"{name} ({_span_name(mixing)})"

    def kernel(self, row: OperatorRow) -> Kernel:
        """One row as coefficients."""
        operator, count = row.operator, len(row.layers)
        paths = self._paths(row)
        rates = () if paths is None else self._path_rates(paths, row)
        mixing, moe = operator.mixing, operator.moe
        weight_bytes: float = row.weight_bytes if moe is None else row.expert_bytes
        recurrence = 0 if operator.recurrent is None else recurrent.flops_per_token(operator.recurrent, self.hidden)
        cached = 0 if mixing is None else count * self.cache.token_bytes(mixing.cache, expanded=self.expanded)
        return Kernel(
            name=self.name_of(row),
            kind=operator.kind,
            count=count,
            flops_per_token=count * (linear.flops(1, operator.active_params) + recurrence),
            weight_bytes=weight_bytes if self.scale == 1 else weight_bytes * self.scale,
            experts=0 if moe is None else moe.experts,
            active=0 if moe is None else moe.active,
            flops_per_pair=0 if mixing is None else count * mixing.flops_per_pair,
            kv_bytes_per_token=cached,
            kv_owned_bytes_per_token=cached if mixing is not None and mixing.owned else 0,
            cache_kind=_cache_kind(mixing),
            window=None if mixing is None else mixing.window,
            chunk=None if mixing is None else mixing.chunk,
            expanded_flops_per_pair=0 if mixing is None else count * mixing.expanded_flops_per_pair,
            expansion_flops_per_token=0 if mixing is None else count * mixing.expansion_flops_per_token,
            state_bytes=0 if operator.recurrent is None else count * self._state_bytes(operator.recurrent),
            activation_bytes_per_token=count
            * linear.activation_bytes(1, operator.inputs, operator.outputs, self.engine.activation_bytes),
            floor_s=count * self.rate.floor_s(operator.kind, FEW),
            floor_many_s=count * self.rate.floor_s(operator.kind, MANY),
            sustained_bandwidth=self.device.memory_bandwidth_bytes_per_s
            * self.rate.memory(operator.kind, row.encoding),
            few_tokens_flop_per_s=self._few_tokens(row) if rates else 0.0,
            ideal_key="" if paths is None else paths.ideal_key,
            ideal_flop_per_s=0.0 if paths is None else self.device.peak(paths.ideal_key) * self.device.clock_headroom,
            paths=rates,
        )

    def _state_bytes(self, mixer: Recurrent) -> int:
        """State of one sequence in one layer, in the engine's own types. [byte]"""
        elements, waiting = recurrent.state_elements(mixer, self.hidden)
        return elements * self.engine.kv.state_bytes + waiting * self.engine.kv.conv_state_bytes

    def _paths(self, row: OperatorRow) -> Paths | None:
        if row.operator.kind in ("attention", "recurrent"):
            return attention_paths(self.backend, self.device, self.cache.names, where=self.name, build=self.build)
        if row.encoding is None or row.operator.kind == "embedding":
            return None
        if row.encoding not in self.paths:
            self.paths[row.encoding] = weight_paths(
                self.backend, self.device, row.encoding, where=self.name, build=self.build
            )
        return self.paths[row.encoding]

    def _path_rates(self, paths: Paths, row: OperatorRow) -> tuple[PathRate, ...]:
        kind, encoding = row.operator.kind, row.encoding
        return tuple(
            PathRate(
                path.min_tokens,
                path.key,
                self.device.peak(path.key) * self.rate.compute(kind, encoding, path.key),
                self.rate.half_tokens(kind, encoding, path.key),
            )
            for path in paths.expected
        )

    def _few_tokens(self, row: OperatorRow) -> float:
        """Rate of matrix-vector kernels, on the vector units; without a known peak of theirs no limit. [FLOP/s]"""
        vector_peak = self.device.peaks.get(VECTOR_PEAK, math.inf)
        return vector_peak * self.rate.few_tokens(row.operator.kind, row.encoding)


def _span_name(mixing: Mixing) -> str:
    """What tells attention layers of one model apart."""
    if mixing.window is not None:
        return f"window {mixing.window:,}"
    if mixing.chunk is not None:
        return f"chunks of {mixing.chunk:,}"
    return "full"


def _cache_kind(mixing: Mixing | None) -> str:
    """Name of the kind of cache that an operator reads."""
    if mixing is None:
        return ""
    if isinstance(mixing.cache, LatentAttention):
        return "latent"
    if isinstance(mixing.cache, Indexer):
        return "indexer"
    if isinstance(mixing.cache, Attention) and mixing.cache.indexer is not None:
        return "full"
    return "full" if mixing.window is None and mixing.chunk is None else "sliding"


def _profiled_as(engine: EngineSpec, profiles: Sequence[ProfileSpec]) -> str:
    """The engine that profiles are asked for: the one a variant varies, where they do not know the variant."""
    known = any(engine.id in group.engines for profile in profiles for group in profile.groups)
    return engine.id if known or engine.variant_of is None else engine.variant_of


def compile_plan(
    model: ModelSpec,
    system: SystemSpec,
    fmt: FormatSpec,
    engine: EngineSpec,
    backend_name: str,
    profiles: Sequence[ProfileSpec],
    encodings: Encodings,
    *,
    kv: str,
    resident_weight_bytes: int | None = None,
    prefill_chunk: int | None = None,
    expanded: bool = False,
    build: str | None = None,
) -> Plan:
    """Turn everything declarative into coefficients.

    Parameters
    ----------
    model, system, fmt, engine, encodings
        The entries.
    profiles : sequence of ProfileSpec
        Efficiency profiles, the preferred one first.
    backend_name : str
        Backend of the engine.
    kv : str
        Type of the cache, or ``K/V``.
    resident_weight_bytes : int, optional
        Size of the actual file, where it is known; the recipe's bytes are scaled to it. [byte]
    prefill_chunk : int, optional
        Tokens of a prompt that pass at once; None takes the engine's default. [token]
    expanded : bool
        Latents are cached expanded, even if the engine would absorb them.
    build : str, optional
        Date of the engine's build, as ``2024-05``; None is a current one.

    Returns
    -------
    Plan

    Raises
    ------
    InvalidRequest
        The engine cannot run the format or the cache type.
    MissingSpec
        A peak or an efficiency that is needed is not known.
    """
    if fmt.family not in engine.format_families:
        raise InvalidRequest(
            f"{engine.id} does not run {fmt.id}; it runs {', '.join(engine.format_families)} formats",
            where="weights",
            next_step=other_engines(system.device, family=fmt.family),
        )
    cache = CacheTypes.parse(kv, encodings)
    for name in cache.names:
        if name not in engine.kv.types:
            raise InvalidRequest(
                f"{engine.id} has no cache type '{name}'; it has {', '.join(engine.kv.types)}", where="kv"
            )
    layout = _compiler.layout(model, fmt, encodings)
    scale = 1 if resident_weight_bytes is None else resident_weight_bytes / layout.resident_bytes
    device, backend = system.device, engine.backends[backend_name]
    rate = rates(profiles, device, _profiled_as(engine, profiles), backend_name, build)
    builder = _Kernels(
        engine,
        f"{engine.id}:{backend_name}",
        backend,
        device,
        rate,
        cache,
        scale,
        layout.rows,
        model.hidden,
        expanded or engine.kv.latent == "expanded",
        build,
    )
    kernels = tuple(builder.kernel(row) for row in layout.rows)
    resident = resident_weight_bytes or layout.resident_bytes
    return Plan(
        model=model,
        system=system,
        fmt=fmt,
        engine=engine,
        backend_name=backend_name,
        kv=cache.name,
        layout=layout,
        kernels=kernels,
        machine=Machine(
            bandwidth=device.memory_bandwidth_bytes_per_s,
            cache_bytes=device.cache_bytes,
            cache_bandwidth=device.cache_bandwidth_bytes_per_s,
            devices=system.count,
        ),
        rates=rate,
        shares=split_by_layers(layout, kernels, system.count, resident),
        widest_features=widest_features(model.entry),
        resident_weight_bytes=resident,
        prefill_chunk=prefill_chunk or batch_limits(engine, device).prefill_chunk,
        build=build,
    )
