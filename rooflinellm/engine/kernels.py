"""Operators of a model as coefficients, and what a device reaches in them under an engine."""

from __future__ import annotations

import math
from collections import Counter

from rooflinellm._kept import Kept
from rooflinellm.efficiency.rates import FEW, MANY, Rates
from rooflinellm.engine.layout import OperatorRow
from rooflinellm.engine.parallel import ALONE, Parallel
from rooflinellm.engine.paths import Paths, attention_paths, other_engines, runs_on, weight_paths
from rooflinellm.engine.plan import Kernel, PathRate, SpeedClass, Speeds
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators import linear, recurrent
from rooflinellm.operators.cache import CacheTypes
from rooflinellm.operators.graph import Mixing
from rooflinellm.specs.engine import Backend, EngineSpec
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.model import Attention, Indexer, LatentAttention, Recurrent

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


_speed = Kept[Speeds](16_384)
_speeds = Kept[tuple[Speeds, ...]](4096)


class KernelBuilder:
    """Turns operator rows into kernels, and into speeds of one device, engine and backend."""

    def __init__(
        self,
        engine: EngineSpec,
        name: str,
        backend: Backend,
        device: HardwareSpec,
        rate: Rates,
        cache: CacheTypes,
        scale: float,
        hidden: int,
        expanded: bool,
        build: str | None,
        seen: Counter[str],
        parallel: Parallel = ALONE,
    ) -> None:
        self.engine, self.name, self.backend, self.device = engine, name, backend, device
        self.rate, self.cache, self.scale = rate, cache, scale
        self.hidden, self.expanded, self.build = hidden, expanded, build
        self.seen, self.parallel = seen, parallel

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
        mixing, moe = operator.mixing, operator.moe
        weight_bytes: float = row.weight_bytes if moe is None else row.expert_bytes
        weight_copies, cache_copies = self.parallel.weight_copies(row), self.parallel.cache_copies(row)
        weight_bytes = weight_bytes if weight_copies == 1 else weight_bytes * weight_copies
        recurrence = 0 if operator.recurrent is None else recurrent.flops_per_token(operator.recurrent, self.hidden)
        cached = 0 if mixing is None else count * self.cache.token_bytes(mixing.cache, expanded=self.expanded)
        cached = cached if cache_copies == 1 else round(cached * cache_copies)
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
            * self.parallel.activation_copies(row)
            * linear.activation_bytes(1, operator.inputs, operator.outputs, self.engine.activation_bytes),
            ranks=self.parallel.expert if operator.kind == "experts" else 1,
        )

    def _state_bytes(self, mixer: Recurrent) -> int:
        """State of one sequence in one layer, in the engine's own types. [byte]"""
        elements, waiting = recurrent.state_elements(mixer, self.hidden)
        return elements * self.engine.kv.state_bytes + waiting * self.engine.kv.conv_state_bytes

    def speed_class(self, row: OperatorRow) -> SpeedClass:
        """What its speed depends on beside the device."""
        return SpeedClass(row.operator.kind, row.encoding, self.parallel.work_copies(row))

    def speeds(self, classes: tuple[SpeedClass, ...]) -> tuple[Speeds, ...]:
        """Speeds of some operators: the same for all of a class, of whatever model."""
        names = self.name, self.build, self.cache.names, classes
        of = self.backend, self.device, self.rate
        return _speeds.of(of, names, lambda: tuple([self._speed(each) for each in classes]))

    def _speed(self, asked: SpeedClass) -> Speeds:
        names = self.name, self.build, self.cache.names, asked
        return _speed.of((self.backend, self.device, self.rate), names, lambda: self._look_up(asked))

    def _look_up(self, asked: SpeedClass) -> Speeds:
        device, rate, kind = self.device, self.rate, asked.kind
        paths = self._paths(asked)
        rates = () if paths is None else self._path_rates(paths, asked)
        return Speeds(
            floor_s=rate.floor_s(kind, FEW),
            floor_many_s=rate.floor_s(kind, MANY),
            sustained_bandwidth=device.memory_bandwidth_bytes_per_s * rate.memory(kind, asked.encoding),
            few_tokens_flop_per_s=self._few_tokens(asked) / asked.copies if rates else 0.0,
            ideal_key="" if paths is None else paths.ideal_key,
            ideal_flop_per_s=0.0 if paths is None else device.peak(paths.ideal_key) * device.clock_headroom,
            paths=rates,
        )

    def _paths(self, asked: SpeedClass) -> Paths | None:
        if asked.kind in ("attention", "recurrent"):
            return attention_paths(self.backend, self.device, self.cache.names, where=self.name, build=self.build)
        if asked.encoding is None or asked.kind == "embedding":
            return None
        return weight_paths(self.backend, self.device, asked.encoding, where=self.name, build=self.build)

    def _path_rates(self, paths: Paths, asked: SpeedClass) -> tuple[PathRate, ...]:
        kind, encoding, copies = asked
        return tuple(
            PathRate(
                path.min_tokens,
                path.key,
                self.device.peak(path.key) * self.rate.compute(kind, encoding, path.key) / copies,
                self.rate.half_tokens(kind, encoding, path.key),
            )
            for path in paths.expected
        )

    def _few_tokens(self, asked: SpeedClass) -> float:
        """Rate of matrix-vector kernels, on the vector units; without a known peak of theirs no limit. [FLOP/s]"""
        vector_peak = self.device.peaks.get(VECTOR_PEAK, math.inf)
        return vector_peak * self.rate.few_tokens(asked.kind, asked.encoding)


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
