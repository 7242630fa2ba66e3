"""Throughput against interactivity: what all requests get together over what each gets, along a batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rooflinellm.api.arguments import positive
from rooflinellm.api.frontier import frontier
from rooflinellm.api.sweep_result import Sweep
from rooflinellm.api.sweep_table import fixed_text, sweep_basis_text, sweep_title
from rooflinellm.plotting import style
from rooflinellm.plotting.geometry import Array, Flags
from rooflinellm.plotting.labels import CLEAR, LabelLayer, PointLabel, halo_text
from rooflinellm.plotting.series import Series, series_over, set_up_rates
from rooflinellm.plotting.sweep_chart import IDEAL, add_note, check_size
from rooflinellm.units import significant


@dataclass(frozen=True)
class _Trail:
    """A series with the points that are drawn; `ends` are those whose names come first."""

    series: Series
    names: tuple[str, ...]
    ends: tuple[int, int]
    each: Array
    together: Array
    best: Flags
    ideal: tuple[Array, Array]
    left_out: tuple[str, ...]


def pareto(
    sweep: Sweep,
    *,
    ax: Axes | None = None,
    ideal: bool = True,
    max_tpot_s: float | None = None,
    label_size: float = style.LABEL_SIZE,
) -> Axes:
    """Draw the rate of all requests together over the rate of each, as the batch grows.

    A point is a batch: further right each request is served faster, further up all of them together. The line joins
    the points that no other one of their series beats; those that one beats are hollow. Batches that do not fit the
    memory are left out, unless none fits. The thin dashed line is the ideal.

    With an axis `parallel`, a point is a batch and a way to share the model; points of all ways together make a front,
    upwards is the rate of all requests by device, and what others beat is a pale dot.

    Parameters
    ----------
    sweep : Sweep
        What `rooflinellm.sweep` returned, with an axis `batch` and maybe `parallel`; a line for each combination of the
        other axes.
    ax : Axes, optional
        Where to draw; None makes a figure.
    ideal : bool
        Whether to show the ideal.
    max_tpot_s : float, optional
        Longest time per output token, to mark its rate. [s]
    label_size : float
        Size of the labels. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    InvalidRequest
        No sweep, no axis `batch`, more than 7 lines, or a limit that is none.
    """
    shared = isinstance(sweep, Sweep) and "parallel" in sweep.axes
    trails = [_trail(series, shared) for series in series_over(sweep, "batch", *(["parallel"] if shared else []))]
    check_size(label_size)
    least = None if max_tpot_s is None else 1 / positive("max_tpot_s", max_tpot_s)
    with style.styled():
        axes = style.axes_for(ax)
        _draw(axes, sweep, trails, float(label_size), ideal=ideal, least=least)
    style.set_description(axes, _description(sweep, trails))
    return axes


def _trail(series: Series, shared: bool) -> _Trail:
    part = series.part
    shown = series.fits if series.fits.any() else np.ones(len(series.fits), dtype=bool)
    each, together = part.decode.tokens_per_s, part.decode.aggregate_tokens_per_s
    devices = part.systems[0].device_count if shared else 1  # alike in all systems of a sweep over ways to share
    names = np.array(_names(part, shared))
    x, y = each.expected.ravel()[shown], together.expected.ravel()[shown] / devices
    bound = each.ideal.ravel()[shown], together.ideal.ravel()[shown] / devices
    if shared:
        ahead = frontier(*bound)
        order = np.argsort(bound[0][ahead])
        bound = bound[0][ahead][order], bound[1][ahead][order]
    return _Trail(
        series=series,
        names=tuple(names[shown]),
        ends=(int(np.argmax(x)), int(np.argmax(y))) if shared else (0, len(x) - 1),
        each=x,
        together=y,
        best=frontier(x, y),
        ideal=bound,
        left_out=tuple(names[~shown]),
    )


def _names(part: Sweep, shared: bool) -> list[str]:
    """What the points of a series are called, in their order."""
    batches = [f"{batch:,}" for batch in part.workload["batch"].ravel().tolist()]
    if not shared:
        return batches
    ways = part.workload["parallel"].ravel().tolist()
    return [f"{way}, {batch}" for way, batch in zip(ways, batches, strict=True)]


def _draw(ax: Axes, sweep: Sweep, trails: list[_Trail], size: float, *, ideal: bool, least: float | None) -> None:
    shared = "parallel" in sweep.axes
    bounds = [trail.ideal for trail in trails] if ideal else []
    set_up_rates(
        ax.xaxis, [*(trail.each for trail in trails), *(x for x, _ in bounds)],
        "Decode rate of each request [tokens/s]", room=0.16,
    )  # fmt: skip
    set_up_rates(
        ax.yaxis, [*(trail.together for trail in trails), *(y for _, y in bounds)],
        f"Decode rate of all requests{' by device' if shared else ''} [tokens/s]",
    )  # fmt: skip
    style.set_title(ax, sweep_title(sweep))
    ax.set_gid("rooflinellm-pareto")
    style.frame(ax)
    layer = LabelLayer(ax)
    layer.set_gid("rooflinellm-labels")
    for index, trail in enumerate(trails):
        _draw_trail(ax, layer, trail, index, size, ideal=ideal)
    if least is not None:
        ax.axvline(least, color=style.INK, linewidth=0.9, linestyle=":", zorder=1.5).set_gid("limit")
    parts = ["points: parallelism, batch" if shared else "numbers: batch"]
    parts += [*(["thin dashed: ideal"] if ideal else []), *(["dotted: limit of TPOT"] if least else [])]
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
    shared = "parallel" in series.part.axes
    beaten = ~trail.best
    if beaten.any():
        few = {"markerfacecolor": style.PAPER, "zorder": 3.5, **dots}
        many = {**dots, "markersize": 3.0, "alpha": 0.45, "markeredgewidth": 0.0, "zorder": 2.5}
        line(trail.each[beaten], trail.together[beaten], "beaten", 0.0, **(many if shared else few))
    for place, (name, each, together) in enumerate(zip(trail.names, trail.each, trail.together, strict=True)):
        at = float(each), float(together)
        layer.marker(at, 2.8)
        if shared and not trail.best[place]:
            continue
        ends = place in trail.ends
        named = place == trail.ends[1] and series.name
        layer.add(
            ax,
            PointLabel(
                halo_text(
                    size, f"label-{name.replace(', ', '-').replace(' ', '-')}-{series.slug}", color=series.text_color
                ),
                ((f"{series.name}, {'' if shared else 'batch '}{name}", 0.0), (series.name, 2.0))
                if named
                else ((name, 0.0),),
                rank=0.0 if named else 1.0 if ends else 2.0,
                required=bool(named),
                at=at,
                clearance=2.8,
                sides=((0, 1), (1, 1), (1, 0), (-1, 1), (-1, 0), (0, -1), (-1, -1), (1, -1)),
                distances=(0.0, 5.0, 11.0, 18.0, 26.0, 36.0, 48.0) if named else (0.0, 3.0),
            ),
        )


def _slug(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _description(sweep: Sweep, trails: list[_Trail]) -> str:
    shared = "parallel" in sweep.axes
    word = "" if shared else "batch "
    by = " by device" if shared else ""
    sentences = [
        f"Decode rate of all requests{by} over that of each, by {'parallelism and ' if shared else ''}batch:"
        f" {sweep_title(sweep)}, {fixed_text(sweep)}."
    ]
    for trail in trails:
        ends = [
            f"{significant(float(trail.together[at]))} tokens/s{by} at {significant(float(trail.each[at]))} for each"
            f" with {word}{trail.names[at]}"
            for at in dict.fromkeys(trail.ends)
        ]
        out = f"; left out, as it does not fit: {word}{_listed(trail.left_out)}" if trail.left_out else ""
        beaten = np.array(trail.names)[~trail.best].tolist()
        if shared:
            rest = f"; {len(trail.names) - len(beaten)} of {len(trail.names)} are beaten by no other"
        else:
            rest = f"; beaten by another: batch {_listed(beaten)}" if len(beaten) else ""
        sentences.append(f"{trail.series.name or 'Expected'}: {', '.join(ends)}{rest}{out}.")
    sentences.append(f"Basis: {sweep_basis_text(sweep)}.")
    return " ".join(sentences)


def _listed(names: Sequence[str]) -> str:
    """Names of points; of many, how many there are."""
    return ("; " if any("," in name for name in names) else ", ").join(names[:6]) + (
        f" and {len(names) - 6} more" if len(names) > 6 else ""
    )
