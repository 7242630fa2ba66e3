"""How the values of the device database are known: counts by field and kind of evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from rooflinellm import catalog
from rooflinellm.errors import RooflineError
from rooflinellm.render import Column, Table
from rooflinellm.specs.common import Evidence

KINDS: tuple[str, ...] = get_args(Evidence)
PARTS = {
    "memory.capacity_gib": "memory",
    "memory.usable_gib": "usable",
    "memory.usable_fraction": "usable",
    "memory.bandwidth_gb_s": "bandwidth",
    "cache": "cache",
    "clock": "clock",
    "peak_list": "peaks",
    "links": "links",
    "power": "power",
}


@dataclass(frozen=True, slots=True)
class EvidenceCounts:
    """Values of all devices, by part and kind of evidence.

    Attributes
    ----------
    devices : int
        Devices that were counted.
    counts : dict of str to dict of str to int
        Values by part, then by kind of evidence.
    broken : tuple of str
        What is wrong with the files that could not be counted.
    """

    devices: int
    counts: dict[str, dict[str, int]]
    broken: tuple[str, ...] = ()

    @property
    def total(self) -> dict[str, int]:
        """Values by kind of evidence."""
        return {kind: sum(each[kind] for each in self.counts.values()) for kind in KINDS}

    def records(self) -> list[dict[str, Any]]:
        """A row a part, and one for all."""
        rows = {**self.counts, "all": self.total}
        return [{"part": part, **counts, "values": sum(counts.values())} for part, counts in rows.items()]

    def table(self) -> Table:
        """One row a part."""
        records = self.records()
        rows = [
            [record["part"], *(f"{record[kind]:,}" for kind in KINDS), f"{record['values']:,}"] for record in records
        ]
        whole = records[-1]["values"] or 1
        rows.append(["share", *(f"{100 * records[-1][kind] / whole:.0f} %" for kind in KINDS), ""])
        headings = [Column(kind.replace("_", " ")) for kind in KINDS]
        notes = [f"warning: {text}" for text in self.broken]
        return Table(
            [Column("", "left"), *headings, Column("values", drop=1)], rows, f"{self.devices:,} devices", notes
        )


def evidence_counts() -> EvidenceCounts:
    """Count the values of every device there is, by how they are known."""
    counts: dict[str, Counter[str]] = {part: Counter() for part in PARTS.values()}
    devices, broken = 0, []
    for item in catalog.list_hardware():
        try:
            device = catalog.hardware(item.id)
        except RooflineError as error:
            broken.append(str(error))
            continue
        devices += 1
        for path, kind in _kinds(device):
            part = next((name for prefix, name in PARTS.items() if path.startswith(prefix)), path)
            counts.setdefault(part, Counter())[kind] += 1
    by_kind = {part: {kind: found[kind] for kind in KINDS} for part, found in counts.items()}
    return EvidenceCounts(devices, by_kind, tuple(broken))


def _kinds(spec: BaseModel, path: str = "") -> Iterator[tuple[str, str]]:
    """The path and evidence of every value that states one."""
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if name in ("kind", "max_kind") and path and value in KINDS:
            yield path, value
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                yield from _kinds(item, f"{path}.{name}".lstrip("."))
