"""The validation chart: predicted against measured rates, and how far the points lie from the diagonal."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cbook import normalize_kwargs
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rooflinellm.errors import InvalidRequest, met
from rooflinellm.measurements.accuracy import GROUPINGS, By, RowResult, ValidationResult, accuracy_of
from rooflinellm.plotting import style
from rooflinellm.units import significant

BAND = 0.2
"""Half the width of the band, of the measured rate. [-]"""
FAR = 1e6
"""Factor by which the diagonal and its band go beyond the frame, so that they are still there when someone pans."""
ROOM = 1.6
"""Factor between the outermost points and the frame. [-]"""
LEAST_SPAN = 10.0
FEW_DECADES = 100.0
"""Axes that span less have ticks at 2 and 5 too. [-]"""
MARKERS = ("o", "s", "^", "D", "v", "P", ">")
"""A shape for each colour of `style.SERIES`."""
RASTERISED = 500
"""Points from which a vector file holds them as a picture, so that it stays small. [-]"""
WIDE = 3.2
"""Width from which the caption says more. [inch]"""
NO_BREAK = "\N{NO-BREAK SPACE}"


def validation(
    result: ValidationResult,
    *,
    by: By = "engine",
    ax: Axes | None = None,
    note: str | None = None,
    point_kwargs: Mapping[str, Any] | None = None,
    legend: bool = True,
    label_size: float = style.LABEL_SIZE,
) -> Axes:
    """Draw what was predicted against what was measured, a point a result.

    Both axes are logarithmic and span the same rates [tokens/s], so that the diagonal is a perfect prediction; the
    band around it is ±20 %. Points above the diagonal were predicted too fast. A group has its colour and shape;
    decode is filled, prefill hollow. Results in seconds are not drawn.

    Parameters
    ----------
    result : ValidationResult
        What `rooflinellm.validate` returned.
    by : {'engine', 'population', 'phase', 'device', 'model'}
        What the points are grouped by; of more than 7 groups the smallest are drawn as one.
    ax : Axes, optional
        Where to draw; None makes a figure.
    note : str, optional
        What the caption says besides, such as where the results are from.
    point_kwargs : mapping, optional
        Properties of matplotlib collections, for the points.
    legend : bool
        Whether to name the groups.
    label_size : float
        Size of the legend and the caption. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    RooflineError
        No result of `validate`, no rate to draw, or an unknown grouping.
    """
    if not isinstance(result, ValidationResult):
        raise InvalidRequest(f"{type(result).__name__} is no result of validate", where="result")
    if by not in GROUPINGS:
        raise InvalidRequest(f"{by!r:.40} is not one of {', '.join(GROUPINGS)}", where="by")
    if not (isinstance(label_size, int | float) and not isinstance(label_size, bool) and 0 < label_size < 1000):
        raise InvalidRequest(f"{met(label_size)} is not a size in points above 0", where="label_size")
    if not (note is None or isinstance(note, str)):
        raise InvalidRequest(f"{met(note)} is no text", where="note")
    rows = _rates(result)
    groups = _groups(rows, by)
    words = _Words(groups, rows, len(result.predicted) - len(rows), by, note or "")

    with style.styled():
        axes = style.axes_for(ax)
        if axes.name != "rectilinear":
            raise InvalidRequest(f"{axes.name} axes have no diagonal", where="ax")
        _set_up_axes(axes, rows)
        _diagonal(axes)
        _points(axes, groups, len(rows), dict(point_kwargs or {}))
        if legend:
            _legend(axes, groups, by, float(label_size))
        _caption(axes, words.caption(wide=_width(axes) >= WIDE), float(label_size))
    style.set_description(axes, words.description)
    return axes


@dataclass(frozen=True)
class _Group:
    """Rows that are drawn alike."""

    name: str
    rows: tuple[RowResult, ...]
    color: str
    marker: str

    @property
    def error(self) -> float:
        """Median absolute error, devices equal. [-]"""
        return _median_error(self.rows)


def _rates(result: ValidationResult) -> tuple[RowResult, ...]:
    """The predicted rows in tokens/s."""
    rows = tuple(row for row in result.predicted if row.unit == "tokens/s")
    if not rows:
        what = "only times were predicted" if result.predicted else "no row was predicted"
        raise InvalidRequest(f"{what}, so there is no rate to draw", where="result")
    for row in rows:
        if not all(rate is not None and 0 < rate < math.inf for rate in (row.measured, row.expected)):
            raise InvalidRequest(f"row '{row.id}' has a rate that is not above 0", where="result")
    return rows


def _groups(rows: Sequence[RowResult], by: By) -> tuple[_Group, ...]:
    """Groups with their looks, the largest first; the smallest are one where colours run out."""
    named: dict[str, list[RowResult]] = {}
    for row in rows:
        named.setdefault(getattr(row, by) or "not stated", []).append(row)
    ordered = sorted(named.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(ordered) > len(style.SERIES):
        kept = len(style.SERIES) - 1
        rest = ordered[kept:]
        ordered = [*ordered[:kept], (f"{len(rest)} others", [row for _, of in rest for row in of])]
    colors = (*style.SERIES[:-1], style.QUIET)
    return tuple(
        _Group(name, tuple(of), color, marker)
        for (name, of), color, marker in zip(ordered, colors, MARKERS, strict=False)
    )


def _median_error(rows: Sequence[RowResult]) -> float:
    accuracy = accuracy_of("", rows)
    assert accuracy is not None
    return accuracy.mdape


def _percent(share: float) -> str:
    return f"{significant(100 * share, 2)} %" if share < 0.0995 else f"{100 * share:,.0f} %"


def _is_hollow(row: RowResult) -> bool:
    return row.phase == "prefill"


def _number(value: float, _position: int | None = None) -> str:
    return f"{value / 1000:,.12g}k" if value >= 10_000 else f"{value:,.12g}"


def _set_up_axes(ax: Axes, rows: Sequence[RowResult]) -> None:
    rates = [rate for row in rows for rate in (row.measured, row.expected) if rate is not None]
    low, high = min(rates) / ROOM, max(rates) * ROOM
    if high / low < LEAST_SPAN:
        more = math.sqrt(LEAST_SPAN * low / high)
        low, high = low / more, high * more
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal", adjustable="box")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(
            LogLocator(base=10, subs=(1.0, 2.0, 5.0) if high / low < FEW_DECADES else (1.0,), numticks=20)
        )
        axis.set_major_formatter(FuncFormatter(_number))
        axis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("Measured [tokens/s]", fontsize=9.5, color=style.INK)
    ax.set_ylabel("Predicted [tokens/s]", fontsize=9.5, color=style.INK)
    ax.set_title("Predicted against measured", loc="left", fontsize=10.5, color=style.INK, parse_math=False)
    ax.set_gid("rooflinellm-validation")
    style.frame(ax)


def _diagonal(ax: Axes) -> None:
    """The diagonal and its band, whose edges stay visible through many points."""
    low, high = ax.get_xlim()
    ends = (low / FAR, high * FAR)
    below, above = ([(1 + sign * BAND) * end for end in ends] for sign in (-1, 1))
    band = Polygon(
        [*zip(ends, above, strict=True), *zip(ends[::-1], below[::-1], strict=True)],
        facecolor=style.GRID, edgecolor="none", zorder=1.0, gid="band",
    )  # fmt: skip
    ax.add_patch(band)
    for gid, y, looks in (
        ("diagonal", ends, {"linewidth": 1.1}),
        ("band-below", below, {"linewidth": 0.7, "linestyle": (0, (5, 3))}),
        ("band-above", above, {"linewidth": 0.7, "linestyle": (0, (5, 3))}),
    ):
        ax.add_line(Line2D(ends, y, color=style.INK, zorder=4.0, gid=gid, **looks))


def _points(ax: Axes, groups: Sequence[_Group], count: int, point_kwargs: dict[str, Any]) -> None:
    """A collection for each group and way to draw it; the more points, the smaller and fainter."""
    size, alpha, edge = (30.0, 0.85, 1.1) if count <= 200 else (16.0, 0.6, 0.8) if count <= 1500 else (8.0, 0.45, 0.6)
    given: dict[str, Any] = normalize_kwargs(point_kwargs, PathCollection)
    small_first = sorted(groups, key=lambda group: len(group.rows))
    for number, group in enumerate(groups):
        for hollow in (True, False):
            rows = [row for row in group.rows if _is_hollow(row) is hollow]
            if not rows:
                continue
            looks: dict[str, Any] = {
                "s": size,
                "alpha": alpha,
                "linewidths": edge,
                "facecolors": "none" if hollow else group.color,
                "edgecolors": group.color if hollow else "none",
                "zorder": 3.0 - 0.1 * small_first.index(group),
                "rasterized": count > RASTERISED,
            }
            looks = normalize_kwargs(looks, PathCollection) | given
            measured: list[Any] = [row.measured for row in rows]
            expected: list[Any] = [row.expected for row in rows]
            points = ax.scatter(measured, expected, marker=group.marker, **looks)
            points.set_gid(f"{'prefill' if hollow else 'decode'}-{number}")


def _legend(ax: Axes, groups: Sequence[_Group], by: By, size: float) -> None:
    most = _letters(ax, size)
    labels = [f"{group.name} · {len(group.rows):,} · {_percent(group.error)}" for group in groups]
    numbers = max(map(len, labels)) <= most
    if not numbers:
        labels = [_shortened(group.name, most) for group in groups]
    handles = [
        _handle(
            label,
            marker=group.marker,
            markerfacecolor=group.color,
            markeredgecolor=group.color,
        )
        for group, label in zip(groups, labels, strict=True)
    ]
    phases = Counter(row.phase for group in groups for row in group.rows)
    filled = [phase for phase in phases if phase != "prefill"]
    if by != "phase" and "prefill" in phases and filled:
        grey = {"marker": "o", "markeredgecolor": style.QUIET}
        handles.append(_handle(f"filled: {', '.join(sorted(filled))}", markerfacecolor=style.QUIET, **grey))
        handles.append(_handle("hollow: prefill", markerfacecolor="none", **grey))
    legend = ax.legend(
        handles=handles,
        title=f"{by} · results · median error" if numbers else by,
        loc="upper left",
        fontsize=size,
        title_fontsize=size,
        alignment="left",
        frameon=True,
        framealpha=0.85,
        facecolor=style.PAPER,
        edgecolor="none",
        borderpad=0.2,
        borderaxespad=0.3,
        handletextpad=0.3,
        handlelength=1.2,
        labelspacing=0.25,
    )
    legend.set_zorder(5.0)
    legend.set_gid("legend")
    for text in (*legend.get_texts(), legend.get_title()):
        text.set_parse_math(False)


def _shortened(name: str, most: int) -> str:
    """A long name without its middle."""
    if len(name) <= most:
        return name
    head = most // 2
    return f"{name[:head]}…{name[len(name) - (most - head - 1) :]}"


def _handle(label: str, **looks: Any) -> Line2D:
    return Line2D([], [], linestyle="none", markersize=5.0, label=label, **looks)


def _width(ax: Axes) -> float:
    """Width that the axes will have about, as it is square. [inch]"""
    box = ax.get_window_extent()
    figure = ax.get_figure()
    assert figure is not None
    return float(min(box.width, box.height)) / float(figure.dpi)


def _letters(ax: Axes, size: float) -> int:
    """How many letters are less than half as wide as the axes, so that they stay clear of the diagonal."""
    return max(18, int(0.46 * _width(ax) * 72 / (0.5 * size)))


def _caption(ax: Axes, words: Sequence[str], size: float) -> None:
    """The caption in the corner below the diagonal."""
    lines = [line for text in words for line in textwrap.wrap(text, _letters(ax, size), break_long_words=False)]
    ax.text(
        0.985, 0.02, "\n".join(lines), transform=ax.transAxes, ha="right", va="bottom", fontsize=size, color=style.INK,
        linespacing=1.25, parse_math=False, zorder=5.0, gid="caption",
        bbox={"facecolor": style.PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
    ).set_in_layout(False)  # fmt: skip


@dataclass(frozen=True)
class _Words:
    """What a validation chart says."""

    groups: Sequence[_Group]
    rows: Sequence[RowResult]
    times: int
    by: By
    note: str

    def caption(self, *, wide: bool = True) -> list[str]:
        """Count, median error, note and band, a text each."""
        devices = len({row.device for row in self.rows})
        several = wide and devices > 1
        error = f"median error {_percent(_median_error(self.rows))}".replace(" %", f"{NO_BREAK}%")
        return [
            _counted(len(self.rows), "result") + f" on {_counted(devices, 'device')}" * wide,
            error + f" (devices{NO_BREAK}equal)" * several,
            *([f"without {_counted(self.times, 'time')} in seconds"] if self.times else []),
            *([self.note] if self.note else []),
            f"dashed: ±{100 * BAND:.0f}{NO_BREAK}%",
        ]

    @property
    def description(self) -> str:
        """The chart in words."""
        rates = [rate for row in self.rows for rate in (row.measured, row.expected) if rate is not None]
        ratios = [row.expected / row.measured for row in self.rows if row.expected and row.measured]
        inside = sum(abs(ratio - 1) <= BAND * (1 + 1e-9) for ratio in ratios) / len(ratios)
        fast = sum(ratio > 1 for ratio in ratios) / len(ratios)
        phases = Counter(row.phase for row in self.rows)
        groups = "; ".join(
            f"{group.name}: {_counted(len(group.rows), 'result')}, median error {_percent(group.error)}"
            for group in self.groups
        )
        *numbers, _ = self.caption()
        return (
            f"Predicted against measured rates, both logarithmic, from {significant(min(rates))} to"
            f" {significant(max(rates))} tokens/s: {'; '.join(numbers)}."
            f" {', '.join(f'{phase} {count:,}' for phase, count in phases.most_common())}."
            f" {_percent(inside)} of the points lie in the band of ±{100 * BAND:.0f} % around the diagonal,"
            f" {_percent(fast)} above the diagonal, predicted too fast. By {self.by}: {groups}."
        )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
