"""`hardware`: the database of devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.inputs import Group, examples
from rooflinellm.cli.listing import sources_table, write_lint, write_listing
from rooflinellm.cli.output import Output, output_options

if TYPE_CHECKING:
    from rooflinellm.render import Table
    from rooflinellm.specs.common import Quantity
    from rooflinellm.specs.hardware import HardwareSpec

command = Group("hardware", help="Devices: list, show with sources, compare, check files.")


@command.command("list", epilog=examples("hardware list rtx 30", "hardware list --json"))
@click.argument("query", nargs=-1)
@output_options
def listed(query: tuple[str, ...], output: Output) -> None:
    """Devices with all words of QUERY in their names; without one, all."""
    from rooflinellm.api.lists import list_hardware

    write_listing(output, "hardware", list_hardware(" ".join(query)))


@dataclass(frozen=True, slots=True)
class _Fact:
    """One value of a device, as its file has it."""

    field: str
    value: Any
    unit: str = ""
    evidence: str = ""
    source: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """Value and unit."""
        value = f"{self.value:,.6g}" if isinstance(self.value, float) else f"{self.value}"
        return f"{value} {self.unit}".strip()

    def to_dict(self) -> dict[str, Any]:
        """The values that there are."""
        values = {name: getattr(self, name) for name in ("field", "value", "unit", "evidence", "source", "note")}
        return {name: value for name, value in values.items() if value not in ("", None)}


def _facts(device: HardwareSpec) -> Iterator[_Fact]:
    """Every value of a device."""

    def sourced(name: str, quantity: Quantity | None, unit: str) -> Iterator[_Fact]:
        if quantity is not None:
            yield _Fact(name, quantity.value, unit, quantity.kind, quantity.source, quantity.note or "")

    def plain(name: str, value: Any, unit: str = "") -> Iterator[_Fact]:
        if value is not None and value != ():
            yield _Fact(name, value, unit)

    memory = device.memory
    yield from plain("vendor", device.vendor)
    yield from plain("architecture", device.architecture)
    yield from plain("kind", device.kind)
    yield from plain("released", device.release_date)
    yield from plain("memory type", memory.type + (", shared with the processor" if memory.unified else ""))
    yield from sourced("memory", memory.capacity_gib, "GiB")
    if memory.configurations_gib:
        yield _Fact("configurations", ", ".join(f"{size:g}" for size in memory.configurations_gib), "GiB")
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
        yield _Fact("advertised clock", clock.advertised_mhz, "MHz", clock.kind, clock.source, clock.note or "")
        if clock.max_mhz is not None:
            yield _Fact("highest clock", clock.max_mhz, "MHz", clock.kind, clock.source)
    for peak in device.peak_list:
        name = f"peak {peak.key} ({peak.unit})"
        yield _Fact(name, peak.tflops, "TFLOP/s", peak.kind, peak.source, peak.note or "")
    yield from plain("compute units", device.compute_units)
    yield from plain("instruction set", device.isa)
    for link in device.links:
        words = [link.kind, f"{link.generation:g}" if link.generation else "", f"x{link.lanes}" if link.lanes else ""]
        name = "link " + " ".join(filter(None, words)) + (f" to {link.domain} devices" if link.domain > 1 else "")
        yield from sourced(name, link.gb_s_per_direction, "GB/s each way")
    if device.power is not None:
        yield from sourced("rated power", device.power.tdp_w, "W")


@command.command("show", epilog=examples("hardware show rtx-4090", "hardware show ./my-card.yaml --json"))
@click.argument("name")
@output_options
def show(name: str, output: Output) -> None:
    """Every value of one device, with its unit, evidence and source."""
    from rooflinellm.api.lookup import hardware

    device = hardware(name)
    facts = list(_facts(device))
    output.write(
        tables=lambda: _show_tables(device, facts),
        payload=lambda: _show_payload(device, facts),
        records=lambda: [fact.to_dict() for fact in facts],
    )


def _show_tables(device: HardwareSpec, facts: list[_Fact]) -> list[Table]:
    from rooflinellm.render import Column, Table

    rows = [[fact.field, fact.text, fact.evidence, fact.source] for fact in facts]
    notes = [f"also called: {', '.join(device.aliases)}"] if device.aliases else []
    notes += [f"{fact.field}: {fact.note}" for fact in facts if fact.note]
    notes += device.notes
    columns = [Column("", "left"), Column("value", "left"), Column("evidence", "left"), Column("source", "left")]
    table = Table(columns, rows, device.name, notes, device.id)
    return [table, sources_table(device.sources)] if device.sources else [table]


def _show_payload(device: HardwareSpec, facts: list[_Fact]) -> dict[str, Any]:
    return {
        "id": device.id,
        "name": device.name,
        "aliases": list(device.aliases),
        "vendor": device.vendor,
        "architecture": device.architecture,
        "kind": device.kind,
        "memory_bytes": device.memory_bytes,
        "usable_bytes": device.usable_bytes,
        "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
        "cache_bytes": device.cache_bytes,
        "peaks_flop_per_s": dict(device.peaks),
        "tdp_w": device.tdp_w,
        "specs": [fact.to_dict() for fact in facts],
        "sources": {key: source.model_dump(exclude_none=True) for key, source in device.sources.items()},
        "notes": list(device.notes),
    }


@command.command("diff", epilog=examples("hardware diff rtx-3090 rtx-4090"))
@click.argument("first")
@click.argument("second")
@output_options
def diff(first: str, second: str, output: Output) -> None:
    """Two devices value by value, with the second over the first."""
    from rooflinellm.api.lookup import hardware

    devices = hardware(first), hardware(second)
    sides = [{fact.field: fact for fact in _facts(device)} for device in devices]
    differences = []
    for field in dict.fromkeys([*sides[0], *sides[1]]):
        before, after = sides[0].get(field), sides[1].get(field)
        if before is None or after is None or before.value != after.value:
            differences.append((field, before, after))
    output.write(
        tables=lambda: [_diff_table(devices, differences)],
        payload=lambda: {
            "first": devices[0].id,
            "second": devices[1].id,
            "differences": [_difference(*each) for each in differences],
        },
        records=lambda: [_difference(*each) for each in differences],
    )


def _ratio(before: _Fact | None, after: _Fact | None) -> float | None:
    if before is None or after is None:
        return None
    numbers = isinstance(before.value, int | float) and isinstance(after.value, int | float) and before.unit
    return after.value / before.value if numbers else None


def _difference(field: str, before: _Fact | None, after: _Fact | None) -> dict[str, Any]:
    known = before or after
    return {
        "field": field,
        "unit": known.unit if known is not None else "",
        "first": None if before is None else before.value,
        "second": None if after is None else after.value,
        "ratio": _ratio(before, after),
    }


def _diff_table(
    devices: tuple[HardwareSpec, HardwareSpec], differences: list[tuple[str, _Fact | None, _Fact | None]]
) -> Table:
    from rooflinellm.render import Column, Table

    rows = []
    for field, before, after in differences:
        ratio = _ratio(before, after)
        cells = ["–" if fact is None else fact.text for fact in (before, after)]
        rows.append([field, *cells, "" if ratio is None else f"{ratio:.2f}x"])
    columns = [
        Column("", "left"),
        Column(devices[0].name, "left"),
        Column(devices[1].name, "left"),
        Column("ratio"),
    ]
    return Table(columns, rows, "" if rows else "no differences")


@command.command("lint", epilog=examples("hardware lint", "hardware lint my-card.yaml"))
@click.argument("files", nargs=-1, metavar="[FILE]...")
@output_options
def lint(files: tuple[str, ...], output: Output) -> int:
    """Check device files (or folders of them); without one, all."""
    from rooflinellm.api.lint import lint_hardware

    return write_lint(output, lint_hardware(files))
