"""The tornado chart of a sensitivity: a row a resource, bars as long as decode and prefill follow it."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from rooflinellm.api.elasticity import Elasticity
from rooflinellm.api.sensitivity import NOTHING, PHASES, Sensitivity, percent_text
from rooflinellm.errors import InvalidRequest
from rooflinellm.plotting import style
from rooflinellm.plotting.series import text_width, width_of
from rooflinellm.plotting.sweep_chart import check_size
from rooflinellm.summary import bases_text, rate_text, what_text

APART, THICK = 0.2, 0.34
"""Distance of the bars of decode and prefill from the middle of their row, and their height. [row]"""
LOOKS = {
    "decode": (-APART, style.BLUE, style.SERIES_TEXT[0], ""),
    "prefill": (APART, style.VERMILLION, style.SERIES_TEXT[1], "////"),
}
GAP, INNER, MOST_ROOM = 12.0, 0.8, 0.42
"""Space around a label, the part of the width that names of rows leave, and most of it for labels. [point], [-], [-]"""
X_WORDS = "Change of the rate for 10 % more of it [%]"


def sensitivity(sensitivity: Sensitivity, *, ax: Axes | None = None, label_size: float = style.LABEL_SIZE) -> Axes:
    """Draw elasticities as a tornado: the resource that matters most on top, decode above prefill in each row.

    A bar is the expected rate's elasticity, the upright tick that of the ideal. To the right more of it helps, to the
    left it hurts.

    Parameters
    ----------
    sensitivity : Sensitivity
        What `rooflinellm.sensitivity` returned.
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
        No sensitivity.
    """
    if not isinstance(sensitivity, Sensitivity):
        raise InvalidRequest(f"{type(sensitivity).__name__} is no result of sensitivity", where="sensitivity")
    check_size(label_size)
    rows = sorted((each for each in sensitivity.elasticities if _known(each)), key=_most, reverse=True)
    with style.styled():
        axes = style.axes_for(ax)
        _draw(axes, sensitivity, rows, float(label_size))
    style.set_description(axes, _description(sensitivity, rows))
    return axes


def _known(each: Elasticity) -> list[tuple[str, float, float]]:
    """Phases with their expected and ideal elasticity."""
    found = [(phase, getattr(each, f"{phase}_expected"), getattr(each, f"{phase}_ideal")) for phase in PHASES]
    return [(phase, expected, ideal) for phase, expected, ideal in found if expected is not None and ideal is not None]


def _most(each: Elasticity) -> float:
    return max(abs(value) for _, *values in _known(each) for value in values)


def _draw(ax: Axes, of: Sensitivity, rows: list[Elasticity], size: float) -> None:
    ax.axvline(0, color=style.QUIET, linewidth=0.9, zorder=2.2)
    seen = set()
    for place, each in enumerate(rows):
        for phase, expected, ideal in _known(each):
            seen.add(phase)
            _draw_bar(ax, place, phase, expected, ideal, size)
    ax.set_xlim(*_limits(ax, rows, size))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(range(len(rows)), [_row_name(each) for each in rows], parse_math=False)
    ax.set_xlabel(X_WORDS, fontsize=9.5, color=style.INK)
    style.set_title(ax, _title(of))
    ax.set_gid("rooflinellm-sensitivity")
    style.frame(ax)
    ax.grid(False, axis="y")
    ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.xaxis.set_major_formatter(lambda value, _place: f"{10 * value:g}".replace("-", "−"))
    ax.tick_params(axis="y", length=0)
    ax.legend(handles=_key([phase for phase in PHASES if phase in seen]), fontsize=size, frameon=False, loc="best")


def _limits(ax: Axes, rows: list[Elasticity], size: float) -> tuple[float, float]:
    """Ends of the axis: of the bars, with room for the labels behind them."""
    pairs = [(expected, ideal) for each in rows for _, expected, ideal in _known(each)]
    ends = [0.0, *(value for pair in pairs for value in pair)]
    shares = []
    for side in (-1, 1):
        longest = max((text_width(_label(*pair), size) for pair in pairs if _side(*pair) == side), default=0.0)
        shares.append(min((longest + GAP) / (INNER * width_of(ax)), MOST_ROOM) if longest else 0.03)
    span = (max(ends) - min(ends) or 1.0) / (1 - sum(shares))
    return min(ends) - shares[0] * span, max(ends) + shares[1] * span


def _side(expected: float, ideal: float) -> int:
    """Which way a bar goes."""
    return -1 if min(expected, ideal) < -NOTHING else 1


def _label(expected: float, ideal: float) -> str:
    """Both figures; the axis says that they are per cent."""
    same = abs(expected - ideal) < 2 * NOTHING
    text = percent_text(expected) if same else f"{percent_text(expected)}, ideal {percent_text(ideal)}"
    return text.replace(" %", "")


def _draw_bar(ax: Axes, place: int, phase: str, expected: float, ideal: float, size: float) -> None:
    aside, color, ink, hatch = LOOKS[phase]
    y = place + aside
    (bar,) = ax.barh(y, expected, height=THICK, color=color, alpha=0.75, hatch=hatch, edgecolor=style.PAPER, zorder=2)
    bar.set_gid(f"bar-{phase}-{place}")
    tick = Line2D([ideal], [y], linestyle="none", marker="|", markersize=11, markeredgewidth=1.6, color=ink, zorder=3)
    tick.set_gid(f"ideal-{phase}-{place}")
    ax.add_line(tick)
    side = _side(expected, ideal)
    ax.annotate(
        _label(expected, ideal), (side * max(side * expected, side * ideal, 0.0), y), xytext=(5 * side, 0),
        textcoords="offset points", va="center", ha="left" if side > 0 else "right", fontsize=size, color=ink,
        gid=f"label-{phase}-{place}",
    )  # fmt: skip


def _key(phases: list[str]) -> list[Any]:
    bars: list[Any] = [
        Patch(
            facecolor=LOOKS[phase][1],
            alpha=0.75,
            hatch=LOOKS[phase][3],
            edgecolor=style.PAPER,
            label=f"{phase}, expected",
        )
        for phase in phases
    ]
    tick = Line2D([], [], linestyle="none", marker="|", markersize=11, markeredgewidth=1.6, color=style.INK)
    tick.set_label("ideal")
    return [*bars, tick]


def _title(of: Sensitivity) -> str:
    workload = of.estimate.workload
    parts = [what_text(of.estimate)]
    for name, word in (("context_tokens", "context"), ("prompt_tokens", "prompt"), ("batch", "batch")):
        if workload[name] > (1 if name == "batch" else 0):
            parts.append(f"{word} {workload[name]:,}")
    return " · ".join(parts)


def _row_name(each: Elasticity) -> str:
    return f"{each.resource}\n{each.amount}" if each.amount else each.resource


def _description(of: Sensitivity, rows: list[Elasticity]) -> str:
    base = of.estimate
    sentences = [f"Changes of the rates with 10 % more of a resource, {_title(of)}."]
    for each in rows:
        parts = [
            f"{phase} {percent_text(expected)} (ideal {percent_text(ideal)})" for phase, expected, ideal in _known(each)
        ]
        sentences.append(f"{each.resource[0].upper()}{each.resource[1:]}, {each.amount}: {', '.join(parts)}.")
    sentences.append(f"Decode now {rate_text(base.decode.tokens_per_s, bound=True)} tokens/s.")
    return " ".join([*sentences, f"Basis: {bases_text([base])}."])
