"""Every value of a device with its unit, its evidence and its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rooflinellm.specs.common import Quantity
from rooflinellm.specs.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a device, as its file has it."""

    field: str
    value: Any
    unit: str = ""
    evidence: str = ""
    source: str = ""
    note: str = ""
    pair: str = ""
    """What it is compared as, where that is less than the field says."""

    @property
    def number(self) -> str:
        """The value without its unit."""
        return f"{self.value:,.6g}" if isinstance(self.value, float) else f"{self.value}"

    def to_dict(self) -> dict[str, Any]:
        """The values that there are."""
        values = {name: getattr(self, name) for name in ("field", "value", "unit", "evidence", "source", "note")}
        return {name: value for name, value in values.items() if value not in ("", None)}


def device_facts(device: HardwareSpec) -> Iterator[Fact]:
    """Every value of a device, in the order of its file, each with its evidence and the key of its source."""

    def sourced(name: str, quantity: Quantity | None, unit: str, pair: str = "") -> Iterator[Fact]:
        if quantity is not None:
            yield Fact(name, quantity.value, unit, quantity.kind, quantity.source, _note(quantity, unit), pair)

    def plain(name: str, value: Any, unit: str = "") -> Iterator[Fact]:
        if value is not None and value != ():
            yield Fact(name, value, unit)

    memory = device.memory
    yield from plain("vendor", device.vendor)
    yield from plain("architecture", device.architecture)
    yield from plain("kind", device.kind)
    yield from plain("released", device.release_date)
    yield from plain("memory type", memory.type)
    yield from plain("memory shared with CPU", "yes" if memory.unified and device.kind != "cpu" else None)
    yield from sourced("memory", memory.capacity_gib, "GiB")
    if memory.configurations_gib:
        yield Fact("configurations", ", ".join(f"{size:g}" for size in memory.configurations_gib), "GiB")
    yield from sourced("usable memory", memory.usable_gib, "GiB")
    yield from sourced("usable share", memory.usable_fraction, "of the memory")
    yield from sourced("memory bandwidth", memory.bandwidth_gb_s, "GB/s")
    yield from plain("memory bus", memory.bus_bits, "bit")
    yield from plain("data rate", memory.data_rate_gt_s, "GT/s")
    if device.cache is not None:
        yield from sourced("last-level cache", device.cache.last_level_mib, "MiB")
        yield from sourced("cache bandwidth", device.cache.bandwidth_gb_s, "GB/s")
    if device.clock is not None:
        clock = device.clock
        note, of_highest = clock.note or "", clock.max_kind is not None
        yield Fact(
            "advertised clock", clock.advertised_mhz, "MHz", clock.kind, clock.source, "" if of_highest else note
        )
        if clock.max_mhz is not None:
            evidence = clock.max_kind or clock.kind
            yield Fact("highest clock", clock.max_mhz, "MHz", evidence, clock.source, note if of_highest else "")
    for peak in device.peak_list:
        name = f"peak {peak.key} ({peak.unit})"
        yield Fact(name, peak.tflops, "TFLOP/s", peak.kind, peak.source, peak.note or "", f"peak {peak.key}")
    yield from plain("compute units", device.compute_units)
    yield from plain("instruction set", device.isa)
    for link in device.links:
        words = [link.kind, f"{link.generation:g}" if link.generation else "", f"x{link.lanes}" if link.lanes else ""]
        name = "link " + " ".join(filter(None, words)) + (f" to {link.domain} devices" if link.domain > 1 else "")
        yield from sourced(name, link.gb_s_per_direction, "GB/s each way", f"link {link.kind}")
    if device.power is not None:
        yield from sourced("rated power", device.power.tdp_w, "W")
        limits = device.power.range_w
        if limits is not None:
            yield Fact("lowest power limit", limits.min, "W", limits.kind, limits.source, limits.note or "")
            yield Fact("highest power limit", limits.max, "W", limits.kind, limits.source)


def _note(quantity: Quantity, unit: str) -> str:
    """What a value's note says, and what other sources have for it."""
    parts = [quantity.note] if quantity.note else []
    for other in quantity.alternatives:
        parts.append(f"{other.value:,.6g} {unit} by {other.source}" + (f" ({other.note})" if other.note else ""))
    return "; ".join(parts)
