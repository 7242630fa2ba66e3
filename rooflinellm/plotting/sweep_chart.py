"""The chart of a sweep: a rate or a time over an axis, expected with its interval, and the ideal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import normalize_kwargs
from matplotlib.lines import Line2D

from rooflinellm.api.sweep_result import Sweep
from rooflinellm.api.sweep_table import fixed_text, sweep_basis_text, sweep_title
from rooflinellm.errors import InvalidRequest, met
from rooflinellm.plotting import style
from rooflinellm.plotting.labels import CLEAR, LabelLayer, Note, PointLabel, halo_text, paragraph
from rooflinellm.plotting.series import (
    X_WORDS,
    Series,
    longest_axis,
    room_for,
    series_over,
    set_up_rates,
    set_up_x,
    x_values,
)
from rooflinellm.units import significant

Y_WORDS = {
    "prefill.tokens_per_s": "Prefill rate of each request [tokens/s]",
    "prefill.aggregate_tokens_per_s": "Prefill rate of all requests [tokens/s]",
    "prefill.time_s": "Time of prefill [s]",
    "decode.tokens_per_s": "Decode rate of each request [tokens/s]",
    "decode.aggregate_tokens_per_s": "Decode rate of all requests [tokens/s]",
    "decode.time_s": "Time of decode [s]",
    "ttft_s": "Time to first token [s]",
    "tpot_s": "Time per output token [s]",
    "itl_s": "Gap between tokens [s]",
    "e2e_s": "Time to the last token [s]",
    "energy_j_per_token": "Energy per token [J]",
}
FEW = 3
"""Lines up to which bands are as strong as they can be read."""
MARKED = 20
"""Points of a line up to which each has a marker. [-]"""
AS_IF = (0, (1, 1.6))
"""Line style of points that do not fit the memory."""
IDEAL = (0, (5, 3))


def sweep(
    sweep: Sweep,
    *,
    x: str | None = None,
    y: str = "decode.tokens_per_s",
    ax: Axes | None = None,
    band: bool = True,
    ideal: bool = True,
    line_kwargs: Mapping[str, Any] | None = None,
    label_size: float = style.LABEL_SIZE,
) -> Axes:
    """Draw a quantity of a sweep over one of its axes, a line for each combination of the others.

    A line is what is expected, the band around it the interval, the thin dashed line the ideal; dotted is what does
    not fit the memory. Axes are logarithmic where values are spaced by factors.

    Parameters
    ----------
    sweep : Sweep
        What `rooflinellm.sweep` returned.
    x : str, optional
        An axis of numbers; None is the one with the most values.
    y : str
        The quantity: ``decode.tokens_per_s``, ``prefill.tokens_per_s``, ``ttft_s`` …
    ax : Axes, optional
        Where to draw; None makes a figure.
    band, ideal : bool
        Whether to show interval and ideal.
    line_kwargs : mapping, optional
        Properties of matplotlib lines, for the lines of the expectation.
    label_size : float
        Size of the labels. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    InvalidRequest
        No sweep, an axis or a quantity that it does not have, or more than 7 lines.
    """
    x = longest_axis(sweep) if x is None else x
    lines = series_over(sweep, x)
    if y not in Y_WORDS:
        raise InvalidRequest(f"{met(y)} is not one of {', '.join(Y_WORDS)}", where="y")
    check_size(label_size)
    with style.styled():
        axes = style.axes_for(ax)
        drawing = _Drawing(axes, lines, x, y, float(label_size), dict(line_kwargs or {}), band=band, ideal=ideal)
        drawing.draw(sweep)
    style.set_description(axes, _description(sweep, lines, x, y))
    return axes


def check_size(label_size: Any) -> None:
    """Refuse what is no size of letters."""
    if not (isinstance(label_size, int | float) and not isinstance(label_size, bool) and 0 < label_size < 1000):
        raise InvalidRequest(f"{met(label_size)} is not a size in points above 0", where="label_size")


class _Drawing:
    """Puts lines on an axes."""

    def __init__(
        self,
        ax: Axes,
        lines: list[Series],
        x: str,
        y: str,
        label_size: float,
        line_kwargs: dict[str, Any],
        *,
        band: bool,
        ideal: bool,
    ) -> None:
        self.ax, self.lines, self.x, self.y, self.size = ax, lines, x, y, label_size
        self.line_kwargs: dict[str, Any] = normalize_kwargs(line_kwargs, Line2D)
        self.band, self.ideal = band, ideal
        self.several = len(lines) > 1

    def draw(self, sweep: Sweep) -> None:
        """Draw everything."""
        predictions = [series.part.quantity(self.y) for series in self.lines]
        shown = [each.expected for each in predictions]
        shown += [end for each in predictions if self.band for end in (each.low, each.high)]
        shown += [each.ideal for each in predictions if self.ideal]
        names = [series.name for series in self.lines] if self.several else ["expected"]
        room = room_for(self.ax, max(map(len, names)), self.size)
        set_up_x(self.ax, self.x, np.concatenate([x_values(each) for each in self.lines]), room=room)
        self.logarithmic = set_up_rates(self.ax.yaxis, shown, Y_WORDS[self.y])
        style.set_title(self.ax, sweep_title(sweep))
        self.ax.set_gid("rooflinellm-sweep")
        style.frame(self.ax)
        self.layer = LabelLayer(self.ax)
        self.layer.set_gid("rooflinellm-labels")
        for series in self.lines:
            self._series(series)
        self._note(fixed_text(sweep))

    def _series(self, series: Series) -> None:
        prediction = series.part.quantity(self.y)
        x = x_values(series)
        low, expected, high, ideal = map(
            self._drawable, (prediction.low, prediction.expected, prediction.high, prediction.ideal)
        )
        if self.band:
            area = self.ax.fill_between(
                x,
                low,
                high,
                color=series.color,
                alpha=0.16 if len(self.lines) <= FEW else 0.08,
                linewidth=0,
                zorder=1.5,
            )
            area.set_gid(f"band-{series.slug}")
        if self.ideal:
            self._line(
                x, ideal, f"ideal-{series.slug}", 0.4 * CLEAR, color=series.color, linewidth=0.9, linestyle=IDEAL
            )
        fits = series.fits
        beyond = ~fits
        beyond[:-1] |= ~fits[1:]
        beyond[1:] |= ~fits[:-1]
        looks: dict[str, Any] = {"color": series.color, "linewidth": 2.0}
        if len(x) <= MARKED:
            looks |= {"marker": "o", "markersize": 3.6}
        if not fits.all():
            as_if = looks | {"linestyle": AS_IF, "markerfacecolor": style.PAPER, "zorder": 2.8}
            self._line(x, np.where(beyond, expected, np.nan), f"beyond-{series.slug}", CLEAR, **as_if)
        looks |= {"linestyle": series.line_style, "zorder": 3.0, **self.line_kwargs}
        self._line(x, np.where(fits, expected, np.nan), f"expected-{series.slug}", CLEAR, **looks)
        if self.several:
            self._name(series, series.name, x, expected, rank=0.0)
        else:
            self._name(series, "expected", x, expected, rank=0.0)
            if self.ideal:
                self._name(series, "ideal", x, ideal, rank=1.0)

    def _drawable(self, values: Any) -> Any:
        return np.where(values > 0, values, np.nan) if self.logarithmic else values

    def _line(self, x: Any, y: Any, gid: str, cost: float, **looks: Any) -> None:
        line = Line2D(x, y, **{"solid_capstyle": "butt", "zorder": 2.5, **looks})
        line.set_gid(gid)
        self.ax.add_line(line)
        seen = [(float(right), float(up)) for right, up in zip(x, y, strict=True) if np.isfinite(up)]
        if len(seen) > 1:
            self.layer.line(seen, cost)

    def _name(self, series: Series, name: str, x: Any, y: Any, *, rank: float) -> None:
        """The name at the end of a line."""
        seen = np.flatnonzero(np.isfinite(y))
        if not seen.size:
            return
        at = float(x[seen[-1]]), float(y[seen[-1]])
        self.layer.add(
            self.ax,
            PointLabel(
                halo_text(self.size, f"label-{name}-{series.slug}", color=series.text_color),
                ((name, 0.0),),
                rank=rank,
                at=at,
                clearance=2.5,
                sides=((1, 0), (1, 0.35), (1, -0.35), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1)),
            ),
        )

    def _note(self, request: str) -> None:
        parts = ["line: expected"] if self.several else []
        parts += ["band: low to high"] if self.band else []
        parts += ["thin dashed: ideal"] if self.ideal and self.several else []
        parts += ["dotted: does not fit"] if not all(series.fits.all() for series in self.lines) else []
        add_note(self.layer, self.ax, [*parts, request], self.size)


def counted(number: int) -> str:
    """``1 point does``, ``3 points do``."""
    return "1 point does" if number == 1 else f"{number} points do"


def add_note(layer: LabelLayer, ax: Axes, parts: list[str], size: float) -> None:
    """Small print in a corner, where there is room."""
    label = halo_text(max(size - 0.5, style.MINIMUM_TEXT_SIZE), "label-notes", color=style.QUIET, halo=False)
    layer.add(ax, Note(label, paragraph("; ".join(parts)), rank=3.0, required=False))


def _description(sweep: Sweep, lines: list[Series], x: str, y: str) -> str:
    what = Y_WORDS[y].partition(" [")[0]
    values = x_values(lines[0])
    first = f"{what} over {X_WORDS.get(x, (x,))[0]}, {sweep_title(sweep)}, {fixed_text(sweep)}"
    sentences = [f"{first}: {len(values)} points from {values[0]:,.6g} to {values[-1]:,.6g}."]
    for series in lines:
        prediction = series.part.quantity(y)
        ends = []
        for at in dict.fromkeys((0, len(values) - 1)):
            numbers = [
                significant(float(getattr(prediction, kind)[at])) for kind in ("expected", "low", "high", "ideal")
            ]
            expected, low, high, bound = numbers
            ends.append(f"{expected} {prediction.unit} ({low}–{high}, ideal {bound}) at {values[at]:,.6g}")
        beyond = [values[at] for at in np.flatnonzero(~series.fits)]
        lacking = f"; {counted(len(beyond))} not fit the memory, the first at {beyond[0]:,.6g}" if beyond else ""
        sentences.append(f"{series.name or 'Expected'}: {', '.join(ends)}{lacking}.")
    sentences.append(f"Basis: {sweep_basis_text(sweep)}.")
    return " ".join(sentences)
