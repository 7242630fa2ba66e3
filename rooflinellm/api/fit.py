"""Does it fit: this model in this format on this hardware, which formats and contexts do, and what would hold it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rooflinellm import catalog
from rooflinellm._shown import one_line
from rooflinellm.api import lookup
from rooflinellm.api.arguments import scalar_count, single_values
from rooflinellm.api.estimate import estimate
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import Options
from rooflinellm.errors import InvalidRequest, RooflineError, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, MemoryPlan
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import (
    count_text,
    device_text,
    devices_text,
    fits_text,
    gib_text,
    host_text,
    memory_table,
    placement_flags,
    placement_table,
    placement_text,
    tokens_text,
    weights_text,
    what_text,
)
from rooflinellm.units import BITS_PER_BYTE, GIB, format_gib, significant

COUNTS = (2, 3, 4, 6, 8)
"""Devices that machines are built with."""
HOST_GIB = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Memory that hosts are built with. [GiB]"""
SLOWEST = 0.25
"""Least memory bandwidth of another device over that of the one that was asked for. [-]"""
EDGE_FORMATS, EDGE_BEFORE = 14, 4


@dataclass(frozen=True, slots=True)
class FormatFit:
    """One weight format on the same hardware.

    Attributes
    ----------
    weights : str
        The format.
    bits_per_weight : float
        All weights over all parameters. [bit]
    resident_weight_bytes, total_bytes : int
        The weights, and everything at the wanted context. [byte]
    fits : bool or None
        At the wanted context and batch; None where the capacity is not known.
    max_context_tokens : int or None
        Longest context of a sequence that fits with this placement; 0 where not even the shortest does. [token]
    decode_tokens_per_s : float
        Expected rate of one request with the wanted context full. [tokens/s]
    gpu_layers, cpu_moe_layers : int or None
        Layers on the devices, the head as one more, and layers whose experts are on the host; None where nothing is on
        the host. [-]
    common : bool
        Whether files of such models are published in it, as far as `FormatSpec.only_for` says.
    """

    weights: str
    bits_per_weight: float
    resident_weight_bytes: int
    total_bytes: int
    fits: bool | None
    max_context_tokens: int | None
    decode_tokens_per_s: float
    gpu_layers: int | None = None
    cpu_moe_layers: int | None = None
    common: bool = True

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """The attributes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HardwareFit:
    """Other hardware that holds the same.

    Attributes
    ----------
    hardware, name : str
        What to type, and how it is called.
    usable_bytes, total_bytes : int
        What programs get of its memory, and what is needed there. [byte]
    max_context_tokens : int
        Longest context of a sequence that fits. [token]
    decode_tokens_per_s : float
        Expected rate of one request with the wanted context full. [tokens/s]
    """

    hardware: str
    name: str
    usable_bytes: int
    total_bytes: int
    max_context_tokens: int
    decode_tokens_per_s: float

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """The attributes."""
        return asdict(self)


@dataclass(frozen=True)
class FitResult:
    """The answer of `fit`.

    Attributes
    ----------
    model : ModelSpec
        The model.
    hardware : SystemSpec
        The devices.
    weights, kv, engine : str
        Canonical names.
    context_limit, batch : int
        The wanted context of each sequence, and how many there are. [token], [-]
    memory : MemoryPlan
        What takes the memory, and where it lies.
    gpu_layers, cpu_moe_layers : int or None
        The best placement: layers on the devices, the head as one more, and layers whose experts are on the host. None
        where nothing is on the host. [-]
    decode_tokens_per_s : float
        Expected rate of one request with the wanted context full, so placed. [tokens/s]
    devices_alone : MemoryPlan or None
        What takes the memory if nothing is on the host; None where nothing is.
    longest_context_tokens : int or None
        Longest context of a sequence that fits with as much on the host as need be; None where it is not known. [token]
    formats : tuple of FormatFit
        The formats that the engine can run there, the largest first.
    alternatives : tuple of HardwareFit
        Where it does not fit, what would hold it: more of the same devices, then the next larger ones.
    warnings : tuple of str
        What makes the answer an "as if".
    """

    model: ModelSpec
    hardware: SystemSpec
    weights: str
    kv: str
    engine: str
    context_limit: int
    batch: int
    memory: MemoryPlan
    formats: tuple[FormatFit, ...]
    alternatives: tuple[HardwareFit, ...]
    warnings: tuple[str, ...]
    gpu_layers: int | None
    cpu_moe_layers: int | None
    decode_tokens_per_s: float
    devices_alone: MemoryPlan | None
    longest_context_tokens: int | None
    _estimate: Estimate

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where the capacity is not known."""
        return None if self.memory.fits is None else bool(self.memory.fits)

    @property
    def headroom_bytes(self) -> int | None:
        """Usable memory that is left, negative where it lacks; None where the capacity is not known. [byte]"""
        usable = self.memory.usable_bytes
        return None if usable is None else int(usable - self.memory.total_bytes)

    @property
    def best_format(self) -> FormatFit | None:
        """The largest common format that fits."""
        return next((each for each in self.formats if each.fits and each.common), None)

    def __repr__(self) -> str:
        answer = {True: "fits", False: "does not fit", None: "unknown"}[self.fits]
        return (
            f"FitResult({self.model.id} {self.weights} on {self.hardware.id}: {answer}, "
            f"{format_gib(self.memory.total_bytes)} at {self.context_limit:,} tokens)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units, the unit in each key."""
        return {
            "model": self.model.id,
            "hardware": self.hardware.id,
            "weights": self.weights,
            "kv": self.kv,
            "engine": self.engine,
            "context_limit": self.context_limit,
            "batch": self.batch,
            "fits": self.fits,
            "headroom_bytes": self.headroom_bytes,
            "gpu_layers": self.gpu_layers,
            "cpu_moe_layers": self.cpu_moe_layers,
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "longest_context_tokens": self.longest_context_tokens,
            "devices_alone_bytes": None if self.devices_alone is None else self.devices_alone.total_bytes,
            "memory": self.memory.to_dict(),
            "best_format": None if self.best_format is None else self.best_format.weights,
            "formats": [each.to_dict() for each in self.formats],
            "alternatives": [each.to_dict() for each in self.alternatives],
            "warnings": list(self.warnings),
        }

    def tables(self, *, all_formats: bool = True) -> list[Table]:
        """The answer, memory by part and device, formats (all, or those around the edge), what else would hold it."""
        tables = [self._memory_table()]
        if len(self.memory.placement) > 1 and not self._shows_places:
            tables.append(placement_table(self.memory))
        tables.append(self._format_table(self.formats if all_formats else self._formats_at_the_edge()))
        if self.alternatives:
            tables.append(self._alternative_table())
        return tables

    @property
    def _shows_places(self) -> bool:
        """Whether a bar for all of the memory would say little, since it is in several places or too small there."""
        return self._is_placed or (self.fits is False and bool(self._lacking_words()))

    @property
    def _is_placed(self) -> bool:
        """Whether a part is left on the host."""
        return self.gpu_layers is not None

    def _placed_words(self) -> list[str]:
        """The placement in words, how fast it is, and what would be needed without it."""
        if self.devices_alone is None:
            return []
        if not placement_text(self._estimate.workload, len(self.model.layers)):
            return []
        flags = placement_flags(self._estimate.workload, self.engine)
        usable = sum(part.usable_bytes or 0 for part in self.devices_alone.placement if part.tier == "device")
        needed = sum(int(part.bytes) for part in self.devices_alone.placement if part.tier == "device")
        count = self.hardware.device_count
        return [
            f"fits with {host_text(self._estimate)}{f' ({flags})' if flags else ''}: "
            f"decode {significant(self.decode_tokens_per_s)} tok/s",
            f"all on the {'device' if count == 1 else f'{count} devices'} needs {gib_text(needed)} of "
            f"{format_gib(usable)}",
        ]

    def _lacking_words(self) -> list[str]:
        """How much the pieces of a system with a host hold together, where that is not enough."""
        host = None if self.hardware.host is None else self.hardware.host.capacity_bytes
        if host is None or self.fits is None or self.memory.usable_bytes is None:
            return []
        here = sum(part.usable_bytes or 0 for part in self.memory.placement if part.tier == "device")
        return [
            f"device and host together hold {format_gib(here + host)}, {format_gib(self.memory.total_bytes)} is needed"
        ]

    def _memory_table(self) -> Table:
        memory = self.memory
        table = placement_table(memory) if self._shows_places else memory_table(memory)
        sequences = "" if self.batch == 1 else f" for each of {self.batch:,} requests"
        notes = self._placed_words() if self.fits else self._lacking_words()
        notes.append(f"wanted: {self.context_limit:,} tokens of context{sequences}, KV cache in {self.kv}")
        if self.fits is None:
            notes.append(state_capacity(self.hardware))
        elif memory.max_context_tokens:
            whole = memory.max_context_tokens >= self.model.max_context_tokens
            all_of_it = ", all that the model is made for" if whole else ""
            so = " with this placement" if self._is_placed else ""
            notes.append(f"longest context that fits{so}: {memory.max_context_tokens:,} tokens{all_of_it}")
            if (self.longest_context_tokens or 0) > memory.max_context_tokens:
                notes.append(f"longest context with more on the host: {self.longest_context_tokens:,} tokens")
            if memory.max_batch:
                notes.append(f"most requests of {self.context_limit:,} tokens at once: {memory.max_batch:,}")
        answer = fits_text(memory, self.context_limit)
        return Table(table.columns, table.rows, what_text(self._estimate), notes, answer)

    def _formats_at_the_edge(self) -> list[FormatFit]:
        """The largest formats that fit with the next larger ones, and the one that was asked for."""
        common = [each for each in self.formats if each.common or each.weights == self.weights]
        first = next((index for index, each in enumerate(common) if each.fits is not False), len(common))
        start = max(min(first - EDGE_BEFORE, len(common) - EDGE_FORMATS), 0)
        shown = range(start, start + EDGE_FORMATS)
        return [each for index, each in enumerate(common) if index in shown or each.weights == self.weights]

    def _format_table(self, formats: Sequence[FormatFit]) -> Table:
        at = tokens_text(self.context_limit)
        placed = any(each.gpu_layers is not None for each in formats)
        rows = [
            [
                weights_text(each.weights) + (" *" if each.weights == self.weights else ""),
                f"{each.bits_per_weight:.2f}",
                gib_text(each.resident_weight_bytes),
                gib_text(each.total_bytes),
                _YES_NO[each.fits],
                *([_host_cell(each, len(self.model.layers))] if placed else []),
                "–" if not each.max_context_tokens else count_text(each.max_context_tokens),
                "–" if each.fits is False else significant(each.decode_tokens_per_s),
            ]
            for each in formats
        ]
        columns = [
            Column("format", "left"),
            Column("bits", drop=1),
            Column("weights, GiB", drop=1),
            Column(f"total at {at}, GiB"),
            Column("fits", "left"),
            *([Column("on the host", "left")] if placed else []),
            Column("longest context", drop=2 if placed else 0),
            Column(f"decode at {at}, tok/s", drop=0 if placed else 1),
        ]
        notes = ["* what was asked for"] if any(each.weights == self.weights for each in formats) else []
        if hidden := len(self.formats) - len(formats):
            notes.append(f"{hidden} more formats: -v")
        return Table(columns, rows, notes=notes)

    def _alternative_table(self) -> Table:
        rows = [
            [
                each.hardware,
                each.name,
                gib_text(each.total_bytes),
                gib_text(each.usable_bytes),
                count_text(each.max_context_tokens),
                significant(each.decode_tokens_per_s),
            ]
            for each in self.alternatives
        ]
        columns = [
            Column("would hold it", "left"),
            Column("", "left", drop=3),
            Column("needs, GiB", drop=2),
            Column("usable, GiB"),
            Column("longest context", drop=1),
            Column(f"decode at {tokens_text(self.context_limit)}, tok/s"),
        ]
        return Table(columns, rows)

    def __str__(self) -> str:
        return "\n\n".join(table.to_text() for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


_YES_NO = {True: "yes", False: "no", None: "?"}


def state_capacity(system: SystemSpec) -> str:
    """What to type so that the capacity is known."""
    device, host = system.device, system.host
    if host is not None and host.capacity_bytes is None and device.memory_bytes is not None:
        return f"say how much memory the host has: {host.name}@64GiB"
    if device.kind == "cpu":
        return f"say how much memory there is: '{device.id} + ddr5-5600x2@64GiB', or {device.id}@64GiB"
    return f"say how much memory there is: {device.id}@64GiB"


def _host_cell(each: FormatFit, layers: int) -> str:
    """What of a format stays on the host; empty where it does not fit at all."""
    if each.fits is False:
        return "–"
    return placement_text({"gpu_layers": each.gpu_layers, "cpu_moe_layers": each.cpu_moe_layers}, layers) or "nothing"


def fit(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    weights: str | FormatSpec | None = None,
    kv: str | None = None,
    engine: str | None = None,
    context_limit: int = 8192,
    batch: int = 1,
    **others: Any,
) -> FitResult:
    """Say whether a model fits, in which formats and at which contexts, and what would hold it if not.

    Parameters
    ----------
    model, hardware, weights, kv, engine, **others
        As in `estimate`: ``tensor_parallel``, ``gpu_layers``, ``draft``, ``options``, ``overrides`` and the like.
    context_limit : int
        Context to hold for each sequence. [token]
    batch : int
        Sequences side by side. [-]

    Returns
    -------
    FitResult

    Raises
    ------
    InvalidRequest, UnknownName, AmbiguousName, MissingSpec
        As in `estimate`.
    """
    context_limit, batch = scalar_count("context_limit", context_limit), scalar_count("batch", batch)
    for name in ("prompt_tokens", "output_tokens", "context_tokens"):
        if name in others:
            raise InvalidRequest("it is about memory; context_limit says how much is held", where=name)
    single_values(others)
    spec, system = lookup.model(model), lookup.system(hardware)
    request = _Request(spec, context_limit, {"kv": kv, "batch": batch, **others})
    wanted = request.on(system, weights, engine)
    memory = wanted.memory
    alone: MemoryPlan | None = None
    longest: int | None = memory.max_context_tokens
    if wanted.workload["gpu_layers"] is not None:
        alone = request.placed(len(wanted.model.layers) + 1).on(system, weights, engine).memory
        if others.get("gpu_layers") is None and others.get("cpu_moe_layers") is None:
            nothing_here = request.placed(0).on(system, weights, engine).memory
            longest = max(longest or 0, nothing_here.max_context_tokens or 0) or None
    return FitResult(
        model=wanted.model,
        hardware=wanted.hardware,
        weights=wanted.weights,
        kv=wanted.kv,
        engine=wanted.engine,
        context_limit=context_limit,
        batch=batch,
        memory=memory,
        formats=tuple(_formats(request, system, wanted)),
        alternatives=tuple(_alternatives(request, system, wanted, weights, engine)) if memory.fits is False else (),
        warnings=tuple(text for text in wanted.warnings if not text.startswith(("memory:", "draft:"))),
        gpu_layers=wanted.workload["gpu_layers"],
        cpu_moe_layers=wanted.workload["cpu_moe_layers"],
        decode_tokens_per_s=float(wanted.decode.tokens_per_s.expected),
        devices_alone=alone,
        longest_context_tokens=longest,
        _estimate=wanted,
    )


@dataclass(frozen=True, slots=True)
class _Request:
    """What is to be held, wherever that is: the whole context filled, without a word about what does not fit."""

    model: ModelSpec
    context_limit: int
    keywords: Mapping[str, Any]

    def placed(self, gpu_layers: int) -> _Request:
        """The same with so many layers on the devices."""
        return replace(self, keywords={**self.keywords, "gpu_layers": gpu_layers, "cpu_moe_layers": None})

    def over(self, devices: int) -> _Request:
        """The same with each layer shared by so many devices, and with no other degree."""
        others = dict.fromkeys(("pipeline_parallel", "expert_parallel", "data_parallel"), 1)
        return replace(self, keywords={**self.keywords, **others, "tensor_parallel": devices})

    def elsewhere(self) -> _Request:
        """The same without a wish for a placement and what-ifs about the hardware that was asked for."""
        kept = {
            path: value for path, value in (self.keywords.get("overrides") or {}).items() if path[:9] != "hardware."
        }
        options = self.keywords.get("options") or Options()
        anywhere = {
            "options": replace(options, kv_on_host=False, tensor_split=None, overcommit=None),
            "gpu_layers": None,
            "cpu_moe_layers": None,
        }
        return replace(self, keywords={**self.keywords, **anywhere, "overrides": kept or None})

    def on(self, system: Name | SystemSpec, weights: str | FormatSpec | None, engine: str | None) -> Estimate:
        """The next decode step at the end of the context; errors as in `estimate`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflineWarning)
            return estimate(
                self.model,
                system,
                weights=weights,
                engine=engine,
                prompt_tokens=0,
                output_tokens=0,
                context_tokens=self.context_limit,
                context_limit=self.context_limit,
                **self.keywords,
            )


def _formats(request: _Request, system: SystemSpec, wanted: Estimate) -> list[FormatFit]:
    """The formats of the engine's families that run there, the largest first."""
    families = catalog.engine(wanted.engine)[0].format_families
    found = []
    for listed in catalog.list_formats():
        if listed.id.partition(":")[0] not in families:
            continue
        try:
            item = wanted if listed.id == wanted.weights else request.on(system, listed.id, wanted.engine)
        except RooflineError:  # no compute path for it on this device, or a broken file of the user's
            continue
        memory, only_for = item.memory, catalog.weight_format(item.weights).only_for
        found.append(
            FormatFit(
                weights=item.weights,
                bits_per_weight=(memory.resident_weight_bytes - memory.copied_weight_bytes)
                * BITS_PER_BYTE
                / item.model.total_params,
                resident_weight_bytes=memory.resident_weight_bytes,
                total_bytes=memory.total_bytes,
                fits=None if memory.fits is None else bool(memory.fits),
                max_context_tokens=memory.max_context_tokens,
                decode_tokens_per_s=float(item.decode.tokens_per_s.expected),
                gpu_layers=item.workload["gpu_layers"],
                cpu_moe_layers=item.workload["cpu_moe_layers"],
                common=only_for is None or item.model.family in only_for,
            )
        )
    return sorted(found, key=lambda each: (-each.resident_weight_bytes, each.weights))


def _alternatives(
    request: _Request, system: SystemSpec, wanted: Estimate, weights: str | FormatSpec | None, engine: str | None
) -> Iterator[HardwareFit]:
    """What holds it: of each group of candidates the first few that do."""
    request = request.elsewhere()
    shares_layers = wanted.workload.get("tensor_parallel", 1) > 1
    shares_layers |= catalog.engine(wanted.engine)[0].several_devices != "layer_split"
    for most, group in _candidates(system, int(wanted.memory.total_bytes)):
        left = most
        for name in group:
            try:
                candidate = lookup.system(name)
                item = request.over(candidate.device_count if shares_layers else 1).on(candidate, weights, engine)
            except RooflineError:  # the engine does not run there
                continue
            if item.memory.fits is not True:
                continue
            yield HardwareFit(
                hardware=item.hardware.id,
                name=devices_text(item),
                usable_bytes=item.memory.usable_bytes or 0,
                total_bytes=item.memory.total_bytes,
                max_context_tokens=item.memory.max_context_tokens,
                decode_tokens_per_s=float(item.decode.tokens_per_s.expected),
            )
            left -= 1
            if not left:
                break


def _candidates(system: SystemSpec, needed: int) -> Iterator[tuple[int, Iterable[str | SystemSpec]]]:
    """Groups of hardware with enough memory, each with how many of it to name.

    These are the same with more memory of the host, where it has one; more of the same devices, or the same with more
    memory; then single devices of the same kind, and of others that are not much slower, each by memory and the fastest
    of equals first.
    """
    device, host = system.device, system.host
    if host is not None and host.capacity_bytes is not None and host.name in system.name:
        before, _, behind = system.name.partition(host.name)
        rest = behind.partition(" + ")[1:]
        larger = [size for size in HOST_GIB if size * GIB > host.capacity_bytes]
        # Without a wish for a placement the same may do.
        yield 1, [system, *(f"{before}{host.name}@{size}GiB{''.join(rest)}" for size in larger)]
    if device.usable_bytes and device.kind in ("gpu", "accelerator"):
        least = max(-(-needed // device.usable_bytes), system.count + 1)
        more = [count for count in COUNTS if count >= least]
        label = device_text(device) if device.ad_hoc else device.id
        alone = {"others": (), "host": None, "host_cpu": None, "disk": None, "network": None}
        yield 1, [system.model_copy(update={**alone, "name": f"{count}x {label}", "count": count}) for count in more]
    found: dict[str, list[tuple[float, float, str]]] = {"self": [], "kind": [], "other": []}
    for listed in catalog.list_hardware():
        try:
            other = catalog.hardware(listed.id)
        except RooflineError:
            continue
        size = _enough(other, needed)
        if other.id == device.id and size is not None and size <= (device.memory_bytes or 0):
            continue
        if size is None or other.memory_bandwidth_bytes_per_s < SLOWEST * device.memory_bandwidth_bytes_per_s:
            continue
        name = f"{other.id}@{size / GIB:g}GiB" if other.memory.configurations_gib else other.id
        group = "self" if other.id == device.id else "kind" if other.kind == device.kind else "other"
        found[group].append((size, -other.memory_bandwidth_bytes_per_s, name))
    for group, most in (("self", 1), ("kind", 3), ("other", 2)):
        yield most, [name for _, _, name in sorted(found[group])]


def _enough(device: HardwareSpec, needed: int) -> float | None:
    """The least memory a device is sold with that leaves enough to programs; about, as engines take a share. [byte]"""
    if device.memory_bytes is None or device.usable_bytes is None:
        return None
    share = device.usable_bytes / device.memory_bytes
    sizes = [size * GIB for size in device.memory.configurations_gib] or [float(device.memory_bytes)]
    return next((size for size in sizes if size * share >= 0.9 * needed), None)
