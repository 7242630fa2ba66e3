"""Systems side by side: prefill and decode of one request, expected with its interval, and the ideal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from rooflinellm.api.compare import ComparedSystem, Comparison
from rooflinellm.errors import InvalidRequest
from rooflinellm.plotting import style
from rooflinellm.plotting.roofs import device_names
from rooflinellm.plotting.series import LOW_ROOM, MOST_ROOM, set_up_rates, text_width, width_of
from rooflinellm.plotting.sweep_chart import check_size
from rooflinellm.results import Estimate, Phase
from rooflinellm.summary import bases_text, interval_text, weights_text
from rooflinellm.units import format_seconds, significant

APART = 0.19
"""Distance of prefill and decode from the middle of their row. [row]"""
LOOKS = {
    "prefill": (APART, style.VERMILLION, style.SERIES_TEXT[1], "^"),
    "decode": (-APART, style.BLUE, style.SERIES_TEXT[0], "o"),
}
MOST = 16
X_WORDS = ("Rate of each request [tokens/s]", "bar: low to high, upright: ideal")
LABEL_GAP, LEAST_ROOM = 14.0, 0.04
"""Space before and behind a label, and the least behind the last mark. [point], [-]"""
TICK_WIDTH = 40.0
"""Room for the number at a tick. [point]"""


def compare(
    comparison: Comparison,
    *,
    prompt_tokens: int | None = None,
    ax: Axes | None = None,
    label_size: float = style.LABEL_SIZE,
) -> Axes:
    """Draw the rates of a comparison, a row a system: prefill above, decode below, on one logarithmic axis.

    A marker is what is expected, the bar through it the interval, the upright tick the ideal. Hollow markers are of
    systems whose memory it does not fit.

    Parameters
    ----------
    comparison : Comparison
        What `rooflinellm.compare` returned; at most 16 systems.
    prompt_tokens : int, optional
        Which of its prompt lengths to show; None is the longest. [token]
    ax : Axes, optional
        Where to draw; None makes a figure.
    label_size : float
        Size of the labels. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    InvalidRequest
        No comparison, a prompt length that it does not have, or too many systems.
    """
    if not isinstance(comparison, Comparison):
        raise InvalidRequest(f"{type(comparison).__name__} is no result of compare", where="comparison")
    if len(comparison.rows) > MOST:
        raise InvalidRequest(f"{len(comparison.rows)} systems are more than {MOST}", where="comparison")
    prompt = max(comparison.prompt_tokens) if prompt_tokens is None else prompt_tokens
    if prompt not in comparison.prompt_tokens:
        known = ", ".join(f"{each:,}" for each in comparison.prompt_tokens)
        raise InvalidRequest(f"{prompt!r:.40} is not one of {known}", where="prompt_tokens")
    check_size(label_size)
    place = comparison.prompt_tokens.index(prompt)
    shown = [(row, row.estimates[place] if row.estimates else None) for row in comparison.rows]
    with style.styled():
        axes = style.axes_for(ax)
        _draw(axes, comparison, shown, prompt, float(label_size))
    style.set_description(axes, _description(comparison, shown, prompt))
    return axes


_Rows = list[tuple[ComparedSystem, Estimate | None]]


def _phases(item: Estimate) -> list[Phase]:
    return [phase for phase in (item.prefill, item.decode) if phase.tokens_per_s.expected > 0]


def _draw(ax: Axes, comparison: Comparison, shown: _Rows, prompt: int, size: float) -> None:
    rates = [phase.tokens_per_s for _, item in shown if item is not None for phase in _phases(item)]
    ends = np.array([(rate.low, rate.ideal) for rate in rates], dtype=float)
    room = _room(ax, shown, size)
    logarithmic = set_up_rates(ax.xaxis, [ends], _x_words(ax), room=room)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    _ticks_up_to(ax, float(ends.max()), width_of(ax) / (1 + room))
    names = device_names([row.system for row, _ in shown])
    ticks = [_row_name(name, item) for name, (_, item) in zip(names, shown, strict=True)]
    ax.set_yticks(range(len(shown)), ticks, parse_math=False)
    style.set_title(ax, _title(comparison, prompt))
    ax.set_gid("rooflinellm-compare")
    style.frame(ax)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    floor = ax.get_xlim()[0]
    for place, (_, item) in enumerate(shown):
        if place:
            ax.axhline(place - 0.5, color=style.GRID, linewidth=0.7, zorder=0.5)
        if item is None:
            ax.annotate(
                "cannot run it", (0.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=size,
                color=style.QUIET, gid=f"reason-{place}",
            )  # fmt: skip
            continue
        for phase in _phases(item):
            _draw_phase(ax, place, item, phase, size, floor if logarithmic else 0.0)


def _draw_phase(ax: Axes, place: int, item: Estimate, phase: Phase, size: float, floor: float) -> None:
    aside, color, ink, marker = LOOKS[phase.name]
    rate, y = phase.tokens_per_s, place - aside
    key = f"{phase.name}-{place}"

    def line(x: list[float], up: list[float], gid: str, **looks: Any) -> None:
        made = Line2D(x, up, color=color, **looks)
        made.set_gid(f"{gid}-{key}")
        ax.add_line(made)

    line([floor, rate.ideal], [y, y], "lead", linewidth=0.6, alpha=0.35, zorder=1.0)
    line([rate.low, rate.high], [y, y], "range", linewidth=6.0, alpha=0.3, solid_capstyle="butt", zorder=2.0)
    line([rate.ideal], [y], "ideal", linestyle="none", marker="|", markersize=10, markeredgewidth=1.6, zorder=3.0)
    fill = style.PAPER if item.memory.fits is False else color
    line(
        [rate.expected],
        [y],
        "expected",
        linestyle="none",
        marker=marker,
        markersize=6.5,
        markerfacecolor=fill,
        zorder=4.0,
    )
    ax.annotate(
        _label(item, phase), (rate.ideal, y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=size,
        color=ink, parse_math=False, gid=f"label-{key}",
    )  # fmt: skip


def _label(item: Estimate, phase: Phase) -> str:
    said = f"{phase.name} {significant(phase.tokens_per_s.expected)}"
    return f"{said}, first token {format_seconds(item.ttft_s.expected)}" if phase.name == "prefill" else said


def _room(ax: Axes, shown: _Rows, size: float) -> float:
    """Length of the axis behind the last mark that labels take, in lengths of what lies before.

    Each label begins behind its own mark: the longest ones are of prefill, whose marks are the last ones.
    """
    marks = [
        (phase.tokens_per_s, _label(item, phase)) for _, item in shown if item is not None for phase in _phases(item)
    ]
    low, high = min(rate.low for rate, _ in marks), max(rate.ideal for rate, _ in marks)
    whole, room = width_of(ax), LEAST_ROOM
    for rate, label in marks:
        place = math.log(rate.ideal / low) / math.log(high / low) if high > low else 1.0
        share = min((text_width(label, size) + LABEL_GAP) / whole, MOST_ROOM)
        room = max(room, (place + LOW_ROOM) / (1 - share) - 1 - LOW_ROOM)
    return room


def _x_words(ax: Axes) -> str:
    """The name of the axis, on two lines where one is too short."""
    one = "; ".join(X_WORDS)
    return one if text_width(one, style.AXIS_SIZE) < width_of(ax) else ";\n".join(X_WORDS)


def _ticks_up_to(ax: Axes, most: float, width: float) -> None:
    """Ticks where there are marks, as many as fit the width, and none where only labels stand. [point]"""
    low = ax.get_xlim()[0]
    ticks = [float(tick) for tick in ax.xaxis.get_major_locator().tick_values(low, most) if low <= tick <= most]
    ax.set_xticks(ticks[:: math.ceil(len(ticks) * TICK_WIDTH / width)] if ticks else [])
    ax.xaxis.set_minor_locator(NullLocator())


def _row_name(name: str, item: Estimate | None) -> str:
    return f"{name}\ndoes not fit" if item is not None and item.memory.fits is False else name


def _title(comparison: Comparison, prompt: int) -> str:
    items = comparison.estimates
    parts = [comparison.model.name]
    for values in ([weights_text(item.weights) for item in items], [item.engine.replace(":", " ") for item in items]):
        parts += [values[0]] if len(set(values)) == 1 else []
    return " · ".join([*parts, f"prompt {prompt:,}"])


def _description(comparison: Comparison, shown: _Rows, prompt: int) -> str:
    sentences = [f"Prefill and decode rates side by side, {_title(comparison, prompt)}."]
    for row, item in shown:
        if item is None:
            sentences.append(f"{row.name} cannot run it: {row.reason}.")
            continue
        rates = [
            f"{phase.name} {significant(phase.tokens_per_s.expected)} tokens/s ({interval_text(phase.tokens_per_s)},"
            f" ideal {significant(phase.tokens_per_s.ideal)})"
            for phase in _phases(item)
        ]
        lacking = "; does not fit the memory" if item.memory.fits is False else ""
        sentences.append(
            f"{row.name}: {', '.join(rates)}, first token after {format_seconds(item.ttft_s.expected)}{lacking}."
        )
    sentences += [f"{text[0].upper()}{text[1:]}." for text in comparison.differences]
    return " ".join([*sentences, f"Basis: {bases_text(comparison.estimates)}."])
