"""Throughput against interactivity: what all requests get together over what each gets, along a batch axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rooflinellm.api.sweep_result import Sweep
from rooflinellm.api.sweep_table import fixed_text, sweep_title
from rooflinellm.plotting import style
from rooflinellm.plotting.geometry import Array, Flags
from rooflinellm.plotting.labels import CLEAR, LabelLayer, PointLabel, halo_text
from rooflinellm.plotting.series import Series, series_over, set_up_rates, x_values
from rooflinellm.plotting.sweep_chart import IDEAL, add_note, check_size
from rooflinellm.summary import basis_text
from rooflinellm.units import significant


def frontier(x: Array, y: Array) -> Flags:
    """Tell which points no other one beats: none has as much of both, and more of one.

    Parameters
    ----------
    x, y : ndarray
        Two values of each point, both the better the higher.

    Returns
    -------
    ndarray of bool
    """
    no_less = (x[None] >= x[:, None]) & (y[None] >= y[:, None])
    more = (x[None] > x[:, None]) | (y[None] > y[:, None])
    beaten: Flags = np.asarray((no_less & more).any(axis=1))
    return ~beaten


@dataclass(frozen=True)
class _Trail:
    """A series with the points that are drawn."""

    series: Series
    batches: Array
    each: Array
    together: Array
    best: Flags
    ideal: tuple[Array, Array]
    left_out: tuple[int, ...]


def pareto(sweep: Sweep, *, ax: Axes | None = None, ideal: bool = True, label_size: float = style.LABEL_SIZE) -> Axes:
    """Draw the rate of all requests together over the rate of each, as the batch grows.

    A point is a batch: further right each request is served faster, further up all of them together. The line joins
    the points that no other one of their series beats; those that one beats are hollow. Batches that do not fit the
    memory are left out, unless none fits. The thin dashed line is the ideal.

    Parameters
    ----------
    sweep : Sweep
        What `rooflinellm.sweep` returned, with an axis `batch`; a line for each combination of the other axes.
    ax : Axes, optional
        Where to draw; None makes a figure.
    ideal : bool
        Whether to show the ideal.
    label_size : float
        Size of the labels. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    InvalidRequest
        No sweep, no axis `batch`, or more than 7 lines.
    """
    trails = [_trail(series) for series in series_over(sweep, "batch")]
    check_size(label_size)
    with style.styled():
        axes = style.axes_for(ax)
        _draw(axes, sweep, trails, float(label_size), ideal=ideal)
    style.set_description(axes, _description(sweep, trails))
    return axes


def _trail(series: Series) -> _Trail:
    shown = series.fits if series.fits.any() else np.ones(len(series.fits), dtype=bool)
    decode = series.part.decode
    each, together = decode.tokens_per_s, decode.aggregate_tokens_per_s
    batches = x_values(series)
    x, y = each.expected[shown], together.expected[shown]
    return _Trail(
        series=series,
        batches=batches[shown],
        each=x,
        together=y,
        best=frontier(x, y),
        ideal=(each.ideal[shown], together.ideal[shown]),
        left_out=tuple(int(batch) for batch in batches[~shown]),
    )


def _draw(ax: Axes, sweep: Sweep, trails: list[_Trail], size: float, *, ideal: bool) -> None:
    bounds = [trail.ideal for trail in trails] if ideal else []
    set_up_rates(
        ax.xaxis, [*(trail.each for trail in trails), *(x for x, _ in bounds)],
        "Decode rate of each request [tokens/s]", room=0.16,
    )  # fmt: skip
    set_up_rates(
        ax.yaxis, [*(trail.together for trail in trails), *(y for _, y in bounds)],
        "Decode rate of all requests [tokens/s]",
    )  # fmt: skip
    style.set_title(ax, sweep_title(sweep))
    ax.set_gid("rooflinellm-pareto")
    style.frame(ax)
    layer = LabelLayer(ax)
    layer.set_gid("rooflinellm-labels")
    for index, trail in enumerate(trails):
        _draw_trail(ax, layer, trail, index, size, ideal=ideal)
    parts = ["numbers: batch", *(["thin dashed: ideal"] if ideal else [])]
    if any(trail.left_out for trail in trails):
        parts.append("left out: what does not fit")
    add_note(layer, ax, [*parts, fixed_text(sweep)], size)


def _draw_trail(ax: Axes, layer: LabelLayer, trail: _Trail, index: int, size: float, *, ideal: bool) -> None:
    series = trail.series

    def line(x: Any, y: Any, gid: str, cost: float, **looks: Any) -> None:
        made = Line2D(x, y, color=series.color, **looks)
        made.set_gid(f"{gid}-{series.slug}")
        ax.add_line(made)
        if cost and len(x) > 1:
            layer.line(list(zip(x.tolist(), y.tolist(), strict=True)), cost)

    if ideal:
        line(*trail.ideal, "ideal", 0.4 * CLEAR, linewidth=0.9, linestyle=IDEAL, zorder=2.0)
    order = np.argsort(trail.each[trail.best])
    x, y = trail.each[trail.best][order], trail.together[trail.best][order]
    line(x, y, "frontier", CLEAR, linewidth=1.8, linestyle=series.line_style, zorder=3.0)
    dots = {"linestyle": "none", "marker": style.DECODE_MARKERS[index % len(style.DECODE_MARKERS)], "markersize": 5.5}
    line(x, y, "points", 0.0, markeredgecolor=style.PAPER, markeredgewidth=0.6, zorder=4.0, **dots)
    beaten = ~trail.best
    if beaten.any():
        hollow = {"markerfacecolor": style.PAPER, "zorder": 3.5, **dots}
        line(trail.each[beaten], trail.together[beaten], "beaten", 0.0, **hollow)
    last = len(trail.batches) - 1
    for place, (batch, each, together) in enumerate(zip(trail.batches, trail.each, trail.together, strict=True)):
        at = float(each), float(together)
        layer.marker(at, 2.8)
        ends = place in (0, last)
        named = place == last and series.name
        layer.add(
            ax,
            PointLabel(
                halo_text(size, f"label-{int(batch)}-{series.slug}", color=series.text_color),
                ((f"{series.name}, batch {batch:,.0f}", 0.0), (series.name, 2.0))
                if named
                else ((f"{batch:,.0f}", 0.0),),
                rank=0.0 if named else 1.0 if ends else 2.0,
                required=bool(named),
                at=at,
                clearance=2.8,
                sides=((0, 1), (1, 1), (1, 0), (-1, 1), (-1, 0), (0, -1), (-1, -1), (1, -1)),
                distances=(0.0, 5.0, 11.0, 18.0, 26.0, 36.0, 48.0) if named else (0.0, 3.0),
            ),
        )


def _description(sweep: Sweep, trails: list[_Trail]) -> str:
    sentences = [f"Decode rate of all requests over that of each, by batch: {sweep_title(sweep)}, {fixed_text(sweep)}."]
    for trail in trails:
        ends = [
            f"{significant(float(trail.together[at]))} tokens/s at {significant(float(trail.each[at]))} for each with"
            f" batch {trail.batches[at]:,.0f}"
            for at in dict.fromkeys((0, len(trail.batches) - 1))
        ]
        out = f"; left out, as it does not fit: batch {', '.join(f'{batch:,}' for batch in trail.left_out)}"
        beaten = [f"{batch:,.0f}" for batch in trail.batches[~trail.best]]
        beaten_text = f"; beaten by another: batch {', '.join(beaten)}" if beaten else ""
        sentences.append(
            f"{trail.series.name or 'Expected'}: {', '.join(ends)}{beaten_text}{out if trail.left_out else ''}."
        )
    sentences.append(f"Basis: {basis_text(str(sweep.decode.time_s.basis))}.")
    return " ".join(sentences)
