"""The lines of a roofline chart: which of a system's peaks and memories are shown, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from rooflinellm.errors import InvalidRequest, MissingSpec, met
from rooflinellm.roofline import ridge_point
from rooflinellm.specs.hardware import HardwareSpec, Peak, Precision, SystemSpec
from rooflinellm.summary import device_text
from rooflinellm.units import GB, TERA, significant

SIXTEEN_BITS = ("fp16.fp32", "bf16.fp32", "fp16.fp16", "bf16.bf16")
SAME_RATE = 0.005
"""Peaks that differ by less are one line."""

_EIGHT_BITS = ("int8", "fp8")
_FOUR_BITS = ("int4", "fp4")
_FAMILY = re.compile(r"^(?:Apple|Instinct|Radeon(?= (?:RX|PRO|AI))) ")
_REMARK = re.compile(r" \([^()]*\)")
_CAPACITY = re.compile(r" \d+ ?GB$")
_LINKS = {"pcie": "PCIe", "nvlink": "NVLink", "nvlink-c2c": "NVLink-C2C", "xgmi": "xGMI", "xelink": "Xe Link"}


@dataclass(frozen=True, slots=True)
class Roof:
    """A horizontal line: a dense peak of a whole system, at the advertised clock.

    Attributes
    ----------
    keys : tuple of str
        The peaks of this rate, ``precision.accumulate``.
    name : str
        Such as ``FP16 dense``.
    short_name : str
        The precisions alone.
    flop_per_s : float
        The rate of all devices together. [FLOP/s]
    ridge : float
        Where it meets the memory's line. [FLOP/byte]
    amount : str
        The rate as text.
    applies : bool
        A model of the chart may compute at it.
    """

    keys: tuple[str, ...]
    name: str
    short_name: str
    flop_per_s: float
    ridge: float
    amount: str
    applies: bool


@dataclass(frozen=True, slots=True)
class Slope:
    """A diagonal line: the bandwidth of a memory or a link of a whole system.

    Attributes
    ----------
    kind : str
        ``memory``, ``cache``, ``host`` or ``link``.
    name : str
        What it is called.
    bytes_per_s : float
        The bandwidth of all devices together. [byte/s]
    amount : str
        The bandwidth as text.
    """

    kind: str
    name: str
    bytes_per_s: float
    amount: str


def roofs(
    system: SystemSpec,
    ideal_keys: Collection[str],
    precisions: Sequence[str] | None,
    *,
    with_model: bool,
    alone: bool = True,
) -> tuple[Roof, ...]:
    """Choose the peaks to show, the highest first.

    Parameters
    ----------
    system : SystemSpec
        The system.
    ideal_keys : collection of str
        Peaks that the ideal of the chart's models counts on.
    precisions : sequence of str, optional
        Precisions (``fp16``) or peaks (``fp16.fp32``) to show instead.
    with_model : bool
        Whether the chart has models: then theirs are shown, else one of each width.
    alone : bool
        Whether the system is the only one of the chart: then a 16-bit peak is shown beside the models'.

    Returns
    -------
    tuple of Roof
    """
    device = system.device
    if precisions is not None:
        wanted = [peak.key for peak in device.peak_list if peak.precision in precisions or peak.key in precisions]
    elif with_model:
        wanted = list(ideal_keys)
        if alone and not any(key in wanted for key in SIXTEEN_BITS[:2]):
            wanted += _first(device, SIXTEEN_BITS)
    else:
        wanted = _one_of_each_width(device)
    peaks = [peak for peak in device.peak_list if peak.key in wanted]
    groups: list[list[Peak]] = []
    for peak in sorted(peaks, key=lambda peak: -peak.flop_per_s):
        if groups and groups[-1][0].flop_per_s <= peak.flop_per_s * (1 + SAME_RATE):
            groups[-1].append(peak)
        else:
            groups.append([peak])
    return tuple(_roof(system, group, ideal_keys) for group in groups)


def _roof(system: SystemSpec, group: list[Peak], ideal_keys: Collection[str]) -> Roof:
    device, rate = system.device, group[0].flop_per_s
    short = ", ".join(dict.fromkeys(_precision(peak, device) for peak in group))
    units = {peak.unit for peak in group}
    kind = {"matrix": " dense", "vector": " vector"}[units.pop()] if len(units) == 1 else ""
    operations = "TOP/s" if all(peak.precision.startswith("int") for peak in group) else "TFLOP/s"
    times = f"{system.count} × " if system.count > 1 else ""
    return Roof(
        keys=tuple(peak.key for peak in group),
        name=short + kind,
        short_name=short,
        flop_per_s=rate * system.count,
        ridge=float(ridge_point(rate, device.memory_bandwidth_bytes_per_s)),
        amount=f"{times}{significant(rate / TERA, 3)} {operations}",
        applies=any(peak.key in ideal_keys for peak in group),
    )


def _precision(peak: Peak, device: HardwareSpec) -> str:
    """``FP16``; with the accumulator where a wider one has a rate of its own."""
    name = peak.precision.upper() + (" block-scaled" if peak.block_scaled else "")
    widest = "int32" if peak.precision.startswith("int") else "fp32"
    other = device.peaks.get(f"{peak.precision}.{widest}" + (".block" if peak.block_scaled else ""))
    if peak.accumulate == widest or other is None or abs(other / peak.flop_per_s - 1) < SAME_RATE:
        return name
    return f"{name} ({peak.accumulate.upper()} sums)"


def _one_of_each_width(device: HardwareSpec) -> list[str]:
    wanted = _first(device, SIXTEEN_BITS)
    for width in (_EIGHT_BITS, _FOUR_BITS):
        rates = {peak.key: peak.flop_per_s for peak in device.peak_list if peak.precision in width}
        highest = max(rates.values(), default=0.0)
        wanted += [key for key, rate in rates.items() if rate >= highest * (1 - SAME_RATE)]
    vector = [peak.key for peak in device.peak_list if peak.precision == "fp32"]
    return wanted + vector or [peak.key for peak in device.peak_list]


def _first(device: HardwareSpec, keys: Iterable[str]) -> list[str]:
    return [key for key in keys if key in device.peaks][:1]


def slopes(system: SystemSpec, *, memory_levels: bool) -> tuple[Slope, ...]:
    """The memory's line, and with `memory_levels` those of stated caches, of host memory and of links."""
    device, times = system.device, f"{system.count} × " if system.count > 1 else ""

    def slope(kind: str, name: str, gb_s: float, count: int = 1) -> Slope:
        amount = f"{times if count > 1 else ''}{float(f'{gb_s:.4g}'):,g} GB/s"
        return Slope(kind, name, gb_s * GB * count, amount)

    found = [slope("memory", "memory", device.memory.bandwidth_gb_s.value, system.count)]
    if not memory_levels:
        return tuple(found)
    if device.cache is not None and device.cache.bandwidth_gb_s is not None:
        found.append(slope("cache", "last-level cache", device.cache.bandwidth_gb_s.value, system.count))
    if system.host is not None:
        found.append(slope("host", "host memory", system.host.bandwidth_bytes_per_s / GB))
    for link in device.links:
        name = _LINKS.get(link.kind, link.kind)
        generation = f" {link.generation:g}" if link.generation is not None else ""
        found.append(slope("link", f"{name}{generation}", link.gb_s_per_direction.value))
    return tuple(found)


def check_precisions(precisions: Sequence[str] | None, systems: Iterable[SystemSpec]) -> tuple[str, ...] | None:
    """Settle what `precisions` asks for.

    Raises
    ------
    InvalidRequest
        A word that is no precision, or none at all.
    MissingSpec
        A precision that no device of the chart has.
    """
    if precisions is None:
        return None
    asked = (precisions,) if isinstance(precisions, str) else tuple(precisions)
    known = get_args(Precision)
    if not asked:
        raise InvalidRequest(f"no precision; name some of {', '.join(known)}", where="precisions")
    systems = list(systems)
    for name in asked:
        if not isinstance(name, str) or name.lower().split(".")[0] not in known:
            raise InvalidRequest(f"{met(name)} is not one of {', '.join(known)}", where="precisions")
        peaks = [peak for system in systems for peak in system.device.peak_list]
        if not any(name.lower() in (peak.precision, peak.key) for peak in peaks):
            there = ", ".join(dict.fromkeys(peak.key for peak in peaks))
            raise MissingSpec(f"no device of the chart has a peak '{name}'; there are {there}", where="precisions")
    return tuple(name.lower() for name in asked)


def device_names(systems: Sequence[SystemSpec]) -> list[str]:
    """Names for a chart, all different; of several, without family, capacity and remarks where that will do."""
    full = [system.id if system.device.ad_hoc else device_text(system.device) for system in systems]
    brief = [_CAPACITY.sub("", _REMARK.sub("", _FAMILY.sub("", name))).strip() for name in full]
    if len(systems) == 1:
        brief = full
    names = [short if brief.count(short) == 1 else long for short, long in zip(brief, full, strict=True)]
    names = [
        f"{system.count}× {name}" if system.count > 1 and not system.device.ad_hoc else name
        for system, name in zip(systems, names, strict=True)
    ]
    return [name if names.count(name) == 1 else system.id for system, name in zip(systems, names, strict=True)]
