"""How far predictions are from what was measured: rows, groups of rows, and all of it together."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rooflinellm._files import write_whole
from rooflinellm._shown import one_line
from rooflinellm.errors import InvalidRequest, UnreadableFile
from rooflinellm.measurements import accuracy_tables
from rooflinellm.measurements.population import AT_DEPTH
from rooflinellm.render import Table

Status = Literal["predicted", "skipped"]
LeftOut = Literal["series", "device"]
By = Literal["population", "engine", "phase", "device", "model"]
GROUPINGS: tuple[By, ...] = ("population", "engine", "phase", "device", "model")
ROW_COLUMNS = ("id", "phase", "measured", "ideal", "expected", "low", "high", "unit", "status", "reason")
ABOVE_BY = 1e-9
"""Relative difference that is rounding and not a result above its bound. [-]"""


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row, predicted or skipped.

    Attributes
    ----------
    id : str
        The row's.
    phase : str
        ``prefill``, ``decode``, ``run`` (both, one after the other), ``serving``, ``ttft``, ``tpot`` or ``request``.
    measured, ideal, expected, low, high : float or None
        In `unit`. The ideal is None where there is no bound, all but the measured one where the row is skipped.
    unit : str
        ``tokens/s`` or ``s``.
    status : {'predicted', 'skipped'}
        Whether there is a prediction.
    reason : str
        Why not.
    population, engine, device, model, weights : str
        What the row is counted under.
    quality : str
        The source's, empty where it has none.
    series : object
        Equal for rows that repeat one test.
    """

    id: str
    phase: str
    measured: float | None
    unit: str
    status: Status
    ideal: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    population: str = ""
    engine: str = ""
    device: str = ""
    model: str = ""
    weights: str = ""
    quality: str = ""
    series: Any = field(default=None, repr=False)

    __repr__ = one_line

    @property
    def log_error(self) -> float:
        """Logarithm of the predicted speed over the measured one; more than 0 is too fast. [-]"""
        assert self.expected is not None and self.measured is not None
        ratio = math.log(self.expected / self.measured)
        return -ratio if self.unit == "s" else ratio

    @property
    def above_ideal(self) -> float:
        """Measured speed over the ideal one; more than 1 breaks the bound. [-]"""
        assert self.ideal is not None and self.measured is not None
        return self.ideal / self.measured if self.unit == "s" else self.measured / self.ideal

    def cells(self) -> dict[str, str]:
        """The columns of the file of rows, as text."""
        return {name: _cell(getattr(self, name)) for name in ROW_COLUMNS}


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far off the predictions of a group of rows are.

    A series has one vote, however many rows repeat it: the median of its rows' errors. The devices of a group weigh
    the same, however many series they have.

    Attributes
    ----------
    name : str
        The group.
    rows, series, devices : int
        Predicted rows, and of how many tests on how many devices. [-]
    mdape, p90 : float
        Median and 90th percentile of the absolute error of the predicted number over the measured one. [-]
    bias : float
        Median logarithm of the predicted speed over the measured one: more than 0 is too fast. [-]
    coverage : float or None
        Share of the measured numbers between `low` and `high`. [-]
    width : float or None
        Median of `high` over `low`. [-]
    above_ideal : float or None
        Share of the rows with a bound that are faster than it. [-]
    """

    name: str
    rows: int
    series: int
    devices: int
    mdape: float
    p90: float
    bias: float
    coverage: float | None
    width: float | None
    above_ideal: float | None

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class AboveIdeal:
    """Rows of one kind that are faster than their bound: which, how many, and by how much at most."""

    phase: str
    device: str
    model: str
    weights: str
    engine: str
    rows: int
    worst: float
    example: str

    __repr__ = one_line


@dataclass(frozen=True)
class ValidationResult:
    """Predicted against measured.

    Attributes
    ----------
    rows : tuple of RowResult
        Every row read, in order.
    relative : tuple of RowResult
        Decode at depth over decode at depth 0, where both were measured: the slow-down alone, a ratio.
    quality : str
        The qualities that were asked for.
    left_out : {'series', 'device'} or None
        What the profiles that predicted the rows had not seen.
    """

    rows: tuple[RowResult, ...]
    relative: tuple[RowResult, ...] = ()
    quality: str = "AB"
    left_out: LeftOut | None = None

    @cached_property
    def predicted(self) -> tuple[RowResult, ...]:
        """The rows with a prediction."""
        return tuple(row for row in self.rows if row.status == "predicted")

    @cached_property
    def overall(self) -> Accuracy | None:
        """All rows together; None without any."""
        return accuracy_of("all", self.predicted)

    @cached_property
    def coverage(self) -> dict[str, tuple[int, int]]:
        """Predicted rows and all rows, by quality (``""``: no quality stated), of those asked for."""
        asked = [row for row in self.rows if row.quality in ("", *self.quality)]
        return {
            quality: (sum(row.status == "predicted" for row in of), len(of))
            for quality in ("A", "B", "C", "")
            if (of := [row for row in asked if row.quality == quality])
        }

    @cached_property
    def skipped(self) -> tuple[tuple[str, int], ...]:
        """Reasons why rows of the asked qualities were skipped, the commonest first, with their number."""
        asked = (row for row in self.rows if row.status == "skipped" and row.quality in ("", *self.quality))
        return tuple(Counter(row.reason.partition(": ")[0] for row in asked).most_common())

    @cached_property
    def above_ideal(self) -> tuple[AboveIdeal, ...]:
        """Rows that are faster than their bound, by kind, most rows first."""
        kinds: dict[tuple[str, ...], list[RowResult]] = {}
        for row in self.predicted:
            if row.ideal is not None and row.above_ideal > 1 + ABOVE_BY:
                kinds.setdefault((row.phase, row.device, row.model, row.weights, row.engine), []).append(row)
        found = []
        for kind, rows in kinds.items():
            worst = max(rows, key=lambda row: row.above_ideal)
            phase, device, model, weights, engine = kind
            found.append(
                AboveIdeal(phase, device, model, weights, engine, len(rows), worst.above_ideal, example=worst.id)
            )
        return tuple(sorted(found, key=lambda each: (-each.rows, -each.worst)))

    def by(self, grouping: By) -> tuple[Accuracy, ...]:
        """Accuracy of every group: by population, engine, phase, device or model; the largest groups first.

        By population, decode at depth relative to depth 0 is a group of its own.
        """
        if grouping not in GROUPINGS:
            raise InvalidRequest(f"{grouping!r:.40} is not one of {', '.join(GROUPINGS)}", where="by")
        groups: dict[str, list[RowResult]] = {}
        for row in self.predicted:
            groups.setdefault(getattr(row, grouping), []).append(row)
        found = [accuracy_of(name, rows) for name, rows in groups.items()]
        if grouping == "population":
            found.append(accuracy_of(AT_DEPTH, self.relative))
        return tuple(sorted(filter(None, found), key=lambda each: (-each.rows, each.name)))

    def tables(self, grouping: By = "population") -> list[Table]:
        """Accuracy, coverage, reasons and rows above the ideal, as tables."""
        return accuracy_tables.tables(self, grouping)

    def to_text(self, grouping: By = "population") -> str:
        """The tables as text."""
        return "\n\n".join(table.to_text() for table in self.tables(grouping))

    def to_dict(self, grouping: By | None = None) -> dict[str, Any]:
        """Plain values: accuracy by every grouping (or by one), coverage, reasons, rows above the ideal."""
        groupings = GROUPINGS if grouping is None else (grouping,)
        return {
            "quality": self.quality,
            "left_out": self.left_out,
            "overall": None if self.overall is None else asdict(self.overall),
            **{f"by_{name}": [asdict(each) for each in self.by(name)] for name in groupings},
            "coverage": {
                quality or "unrated": {"predicted": predicted, "rows": rows}
                for quality, (predicted, rows) in self.coverage.items()
            },
            "skipped": [{"reason": reason, "rows": rows} for reason, rows in self.skipped],
            "above_ideal": [asdict(each) for each in self.above_ideal],
        }

    def to_json(self) -> str:
        """The plain values as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False, indent=2)

    def to_records(self) -> list[dict[str, Any]]:
        """A dictionary a row."""
        return [{key: value for key, value in asdict(row).items() if key != "series"} for row in self.rows]

    def to_dataframe(self) -> Any:
        """A pandas data frame, a line a row; needs pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("data frames need pandas: pip install pandas") from error
        return pd.DataFrame(self.to_records())

    def write_rows(self, path: str | os.PathLike[str]) -> None:
        """Write a line a row: id, phase, measured, ideal, expected, low, high, unit, status, reason.

        Raises
        ------
        UnreadableFile
            The file cannot be written.
        """
        try:
            write_whole(path, self._save_rows)
        except OSError as error:
            raise UnreadableFile(f"cannot be written: {error.strerror or error}", where=os.fspath(path)) from error

    def _save_rows(self, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, ROW_COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(row.cells() for row in self.rows)

    def __repr__(self) -> str:
        overall = f", MdAPE {self.overall.mdape:.1%}" if self.overall else ""
        return f"ValidationResult({len(self.predicted):,} of {len(self.rows):,} rows predicted{overall})"

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def accuracy_of(name: str, rows: Sequence[RowResult]) -> Accuracy | None:
    """Accuracy of some predicted rows: a vote a series, devices equal."""
    if not rows:
        return None
    by_series: dict[Any, list[RowResult]] = {}
    for row in rows:
        by_series.setdefault((row.series, row.population, row.unit), []).append(row)
    per_device = Counter(same[0].device for same in by_series.values())
    votes = [(median(row.log_error for row in same), 1 / per_device[same[0].device]) for same in by_series.values()]
    errors = [
        (abs(math.expm1(-vote if same[0].unit == "s" else vote)), weight)
        for (vote, weight), same in zip(votes, by_series.values(), strict=True)
    ]
    inside: list[tuple[float, float]] = []
    widths: list[tuple[float, float]] = []
    for same in by_series.values():
        weight = 1 / per_device[same[0].device]
        spans = [(row.low, row.high, row.measured) for row in same if row.low is not None]
        if not spans:
            continue
        hits = [float(low <= measured <= high) for low, high, measured in spans]  # type: ignore[operator]
        inside.append((sum(hits) / len(hits), weight))
        widths.append((median(high / low for low, high, _ in spans), weight))  # type: ignore[operator]
    bounded = [row for row in rows if row.ideal is not None]
    return Accuracy(
        name=name,
        rows=len(rows),
        series=len(by_series),
        devices=len(per_device),
        mdape=_quantile(errors, 0.5),
        p90=_quantile(errors, 0.9),
        bias=_quantile(votes, 0.5),
        coverage=sum(hit * weight for hit, weight in inside) / sum(weight for _, weight in inside) if inside else None,
        width=_quantile(widths, 0.5) if widths else None,
        above_ideal=sum(row.above_ideal > 1 + ABOVE_BY for row in bounded) / len(bounded) if bounded else None,
    )


def _quantile(values: Sequence[tuple[float, float]], share: float) -> float:
    """The value up to which a share of the weight lies, between two values their mean by rank."""
    ordered = sorted(values)
    total = sum(weight for _, weight in ordered)
    reached = 0.0
    for index, (value, weight) in enumerate(ordered):
        reached += weight
        if reached > share * total * (1 + 1e-12):
            return value
        if math.isclose(reached, share * total, rel_tol=1e-12) and index + 1 < len(ordered):
            return (value + ordered[index + 1][0]) / 2
    return ordered[-1][0]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
