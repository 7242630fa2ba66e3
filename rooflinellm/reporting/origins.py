"""Where the values of devices, hosts and models come from."""

from __future__ import annotations

from collections.abc import Iterator

from rooflinellm.api.device_facts import device_facts
from rooflinellm.render import Column, Table
from rooflinellm.reporting.blocks import Block, Cited, Heading, Sources
from rooflinellm.results import Estimate
from rooflinellm.specs.common import Source
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.summary import device_text, gib_text
from rooflinellm.units import GB, significant


def origins(estimates: list[Estimate]) -> Iterator[Block]:
    """Every value of each device with its evidence and source; hosts, drives and networks; the model.

    Parameters
    ----------
    estimates : list of Estimate
        One of each system, whose values may have been replaced.
    """
    devices: dict[str, HardwareSpec] = {}
    for item in estimates:
        system: SystemSpec = item.hardware
        found = [group.device for group in system.groups]
        for device in [*found, *([system.host_cpu] if system.host_cpu is not None else [])]:
            devices.setdefault(device_text(device), device)
    for name, device in devices.items():
        yield from _of_device(name, device)
    around = list(dict.fromkeys(row for item in estimates for row in _around(item.hardware)))
    if around:
        columns = [Column("part", "left"), Column("GB/s"), Column("GiB"), Column("from", "left")]
        yield Heading("Around the devices")
        yield Table(columns, [list(row) for row in around], "Host memory, drives and networks, as named")
    entry = estimates[0].model.entry
    yield Heading(f"Model: {entry.name}")
    if entry.sources:
        yield Sources([_cited(f"[{number}]", source) for number, source in enumerate(entry.sources.values(), 1)])
    else:
        yield Sources([Cited("", "the file that was given; it names no source")])


def _of_device(name: str, device: HardwareSpec) -> Iterator[Block]:
    numbers = {key: f"[{number}]" for number, key in enumerate(device.sources, 1)}
    facts = [fact for fact in device_facts(device) if fact.evidence]
    cited = {fact.source for fact in facts}
    rows = [
        [fact.field, f"{fact.number} {fact.unit}", fact.evidence, numbers.get(fact.source, fact.source), fact.note]
        for fact in facts
    ]
    columns = [Column("value", "left"), Column(""), Column("evidence", "left"), Column("source", "left")]
    columns.append(Column("note", "left"))
    yield Heading(name)
    yield Table(columns, rows, f"Values of {name}, and how each is known", device.notes)
    yield Sources([_cited(numbers[key], source) for key, source in device.sources.items() if key in cited])


def _cited(number: str, source: Source) -> Cited:
    parts = [source.title, source.publisher, source.year, source.note]
    return Cited(number, ", ".join(str(part) for part in parts if part is not None), source.url)


def _around(system: SystemSpec) -> Iterator[tuple[str, str, str, str]]:
    named = {
        "its name (data rate x channels, or the rate that was typed)": system.host,
        "its class in the data, or the rate that was typed": system.disk,
        "its name": system.network,
    }
    for origin, part in named.items():
        if part is not None:
            capacity = getattr(part, "capacity_bytes", None)
            size = "–" if capacity is None else gib_text(capacity)
            yield part.name, significant(part.bandwidth_bytes_per_s / GB), size, origin
