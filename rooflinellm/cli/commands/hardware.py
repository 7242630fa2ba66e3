"""`hardware`: the database of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.inputs import Group, examples
from rooflinellm.cli.listing import write_lint, write_listing
from rooflinellm.cli.output import Output, output_options

if TYPE_CHECKING:
    from rooflinellm.api.device_facts import Fact
    from rooflinellm.render import Table
    from rooflinellm.specs.hardware import HardwareSpec

MAX_HEADING = 16
"""Longer names of devices stand above the comparison of two. [characters]"""

command = Group("hardware", help="Devices: list, show with sources, compare, check files.")


@command.command("list", epilog=examples("hardware list rtx 30", "hardware list --json"))
@click.argument("query", nargs=-1)
@output_options
def listed(query: tuple[str, ...], output: Output) -> None:
    """Devices with all words of QUERY in their names; without one, all."""
    from rooflinellm.api.lists import list_hardware

    words = " ".join(query)
    write_listing(output, "hardware", list_hardware(words), words)


@command.command("show", epilog=examples("hardware show rtx-4090", "hardware show ./my-card.yaml --json"))
@click.argument("name")
@output_options
def show(name: str, output: Output) -> None:
    """Every value of one device, with its unit, evidence and source."""
    from rooflinellm.api.device_facts import device_facts
    from rooflinellm.api.lookup import hardware

    device = hardware(name)
    facts = list(device_facts(device))
    output.write(
        tables=lambda: _show_tables(device, facts),
        payload=lambda: _show_payload(device, facts),
        records=lambda: [fact.to_dict() for fact in facts],
    )


def _show_tables(device: HardwareSpec, facts: list[Fact]) -> list[Table]:
    """What the device is, its sourced values, and the sources by the numbers that stand with the values."""
    from rooflinellm.render import Column, Table

    numbers = {key: str(number) for number, key in enumerate(device.sources, 1)}
    about = [[fact.field, f"{fact.number} {fact.unit}".strip()] for fact in facts if not fact.evidence]
    called = [f"also called: {', '.join(device.aliases)}"] if device.aliases else []
    if device.products:
        called.append(f"sold in: {', '.join(device.products)}")
    left = (Column("", "left"), Column("", "left"))
    tables = [Table(left, about, device.name, called, device.id)]

    known = [fact for fact in facts if fact.evidence]
    room = max((len(fact.unit) for fact in known), default=0)
    rows = [
        [fact.field, f"{fact.number} {fact.unit:<{room}}", fact.evidence, fact.source, numbers.get(fact.source, "")]
        for fact in known
    ]
    notes = [f"{fact.field}: {fact.note}" for fact in facts if fact.note]
    columns = [Column("", "left"), Column(f"value {'':<{room}}"), Column("evidence", "left")]
    columns += [Column("source", "left", drop=1), Column("no.")]
    tables.append(Table(columns, rows, "", [*notes, *device.notes]))

    lines = []
    for key, source in device.sources.items():
        parts = [source.title, source.publisher, source.year, source.note, source.url]
        lines.append(f"{numbers[key]}  {key}: " + ", ".join(str(part) for part in parts if part is not None))
    return [*tables, Table((), (), "sources", lines)] if lines else tables


def _show_payload(device: HardwareSpec, facts: list[Fact]) -> dict[str, Any]:
    return {
        "id": device.id,
        "name": device.name,
        "aliases": list(device.aliases),
        "products": list(device.products),
        "vendor": device.vendor,
        "architecture": device.architecture,
        "kind": device.kind,
        "memory_bytes": device.memory_bytes,
        "usable_bytes": device.usable_bytes,
        "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
        "cache_bytes": device.cache_bytes,
        "peaks_flop_per_s": dict(device.peaks),
        "tdp_w": device.tdp_w,
        "power_range_w": None if device.power_range_w is None else list(device.power_range_w),
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
    sides = [_by_field(device) for device in devices]
    differences = []
    for field in _merged(list(sides[0]), list(sides[1])):
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


def _by_field(device: HardwareSpec) -> dict[str, Fact]:
    """Facts by what they are compared as; of several links of a kind each by its own name."""
    from rooflinellm.api.device_facts import device_facts

    found: dict[str, Fact] = {}
    for fact in device_facts(device):
        found[fact.field if fact.pair in found else fact.pair or fact.field] = fact
    return found


def _merged(first: list[str], second: list[str]) -> list[str]:
    """Both lists without repetition; what only the second has stands behind what it follows there."""
    merged = list(first)
    place = 0
    for field in second:
        if field not in merged:
            merged.insert(place, field)
        place = merged.index(field) + 1
    return merged


def _ratio(before: Fact | None, after: Fact | None) -> float | None:
    if before is None or after is None:
        return None
    numbers = isinstance(before.value, int | float) and isinstance(after.value, int | float) and before.unit
    return after.value / before.value if numbers else None


def _difference(field: str, before: Fact | None, after: Fact | None) -> dict[str, Any]:
    known = before or after
    return {
        "field": field,
        "unit": known.unit if known is not None else "",
        "first": None if before is None else before.value,
        "second": None if after is None else after.value,
        "ratio": _ratio(before, after),
    }


def _diff_table(
    devices: tuple[HardwareSpec, HardwareSpec], differences: list[tuple[str, Fact | None, Fact | None]]
) -> Table:
    from rooflinellm.render import Column, Table
    from rooflinellm.summary import device_text

    rows = []
    for field, before, after in differences:
        ratio, known = _ratio(before, after), before or after
        cells = ["–" if fact is None else fact.number for fact in (before, after)]
        rows.append([field, *cells, known.unit if known else "", "" if ratio is None else f"{ratio:.2f}x"])
    names = [device_text(device) for device in devices]
    if not rows:
        return Table((), (), f"{names[0]}: no differences")
    short = max(map(len, names)) <= MAX_HEADING
    columns = [Column("", "left"), *map(Column, names if short else ("first", "second")), Column("unit", "left")]
    return Table([*columns, Column("ratio")], rows, "" if short else f"first {names[0]}, second {names[1]}")


@command.command("stats", epilog=examples("hardware stats", "hardware stats --json"))
@output_options
def stats(output: Output) -> None:
    """How the values of all devices are known: counts by evidence."""
    from rooflinellm.api.lint_stats import evidence_counts

    counted = evidence_counts()
    output.write(
        tables=lambda: [counted.table()],
        payload=lambda: {"devices": counted.devices, "values": counted.records(), "broken": list(counted.broken)},
        records=counted.records,
    )


@command.command("lint", epilog=examples("hardware lint", "hardware lint my-card.yaml", "hardware lint --rules"))
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--rules", is_flag=True, help="List the rules instead.")
@output_options
def lint(files: tuple[str, ...], rules: bool, output: Output) -> int:
    """Check device files (or folders of them); without one, all."""
    from rooflinellm.api.lint import hardware_rules, lint_hardware

    if not rules:
        return write_lint(output, lint_hardware(files))
    if files:
        raise click.UsageError("--rules lists the rules and checks no files")
    listed = [{"rule": rule.name, "level": rule.level, "holds": rule.holds} for rule in hardware_rules()]
    output.write(tables=lambda: [_rules_table(listed)], payload=lambda: {"rules": listed}, records=lambda: listed)
    return 0


def _rules_table(rules: list[dict[str, str]]) -> Table:
    from rooflinellm.render import Table

    lines = [f"{each['rule']} ({each['level']}): {each['holds']}" for each in rules]
    return Table((), (), f"{len(rules)} rules", lines)
