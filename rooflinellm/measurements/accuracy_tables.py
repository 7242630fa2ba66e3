"""Accuracy as tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rooflinellm.render import Column, Table
from rooflinellm.units import significant

if TYPE_CHECKING:
    from rooflinellm.measurements.accuracy import By, ValidationResult

COMMONEST = 10
"""Reasons that are shown. [-]"""
MOST_KINDS = 40
"""Kinds of rows above the ideal that are shown. [-]"""


def tables(result: ValidationResult, grouping: By) -> list[Table]:
    """Accuracy by a grouping, coverage, reasons of skipped rows, and rows above the ideal."""
    found = [_accuracy_table(result, grouping), _coverage_table(result)]
    if result.skipped:
        found.append(_skip_table(result))
    if result.above_ideal:
        found.append(_above_table(result))
    return found


def _percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if abs(value) < 0.0995 else f"{100 * value:,.0f} %"


def _accuracy_table(result: ValidationResult, grouping: By) -> Table:
    columns = [
        Column(grouping, "left"), Column("rows"), Column("series"), Column("devices"), Column("MdAPE"), Column("P90"),
        Column("bias"), Column("inside"), Column("width"), Column("above"),
    ]  # fmt: skip
    groups = list(result.by(grouping))
    if result.overall is not None and len(groups) > 1:
        groups.append(result.overall)
    rows = [
        [
            each.name,
            f"{each.rows:,}",
            f"{each.series:,}",
            f"{each.devices:,}",
            _percent(each.mdape),
            _percent(each.p90),
            f"{100 * math.expm1(each.bias):+.0f} %",
            _percent(each.coverage),
            "–" if each.width is None else f"{each.width:.2f}",
            _percent(each.above_ideal),
        ]
        for each in groups
    ]
    notes = [
        "a series (same device, model, format, test and lengths) has one vote, the median of its rows;"
        " devices weigh the same within a group",
        "bias: median predicted over measured speed; inside: share between low and high; width: median high over low;"
        " above: share of rows faster than their ideal",
    ]
    title = f"Predicted against measured, by {grouping}"
    if result.left_out is not None:
        title += f", each {result.left_out} left out"
        notes.append(
            f"held out: each result is predicted by a fit to the others that has not seen its {result.left_out},"
            " with the interval that their own held-out errors give"
        )
    return Table(columns, rows, title, notes)


def _coverage_table(result: ValidationResult) -> Table:
    rows = [
        [quality or "unrated", f"{predicted:,}", f"{total:,}", _percent(predicted / total)]
        for quality, (predicted, total) in result.coverage.items()
    ]
    columns = [Column("quality", "left"), Column("predicted"), Column("rows"), Column("share")]
    return Table(columns, rows, "Coverage")


def _skip_table(result: ValidationResult) -> Table:
    rows = [[reason, f"{count:,}"] for reason, count in result.skipped[:COMMONEST]]
    more = len(result.skipped) - COMMONEST
    notes = [f"and {more} more reasons"] if more > 0 else []
    return Table([Column("skipped because", "left"), Column("rows")], rows, "Rows without a prediction", notes)


def _above_table(result: ValidationResult) -> Table:
    rows = [
        [
            each.phase,
            each.device,
            each.model,
            each.weights,
            each.engine,
            f"{each.rows:,}",
            significant(each.worst, 3),
            each.example,
        ]
        for each in result.above_ideal[:MOST_KINDS]
    ]
    columns = [
        Column("phase", "left"), Column("device", "left"), Column("model", "left"), Column("format", "left"),
        Column("engine", "left"), Column("rows"), Column("worst"), Column("example", "left"),
    ]  # fmt: skip
    more = len(result.above_ideal) - MOST_KINDS
    notes = ["worst: measured over ideal speed; the ideal counts the least that any run must do"]
    notes += [f"and {more} more kinds"] if more > 0 else []
    return Table(columns, rows, "Rows above the ideal", notes)
