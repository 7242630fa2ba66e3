"""The lines of a chart over an axis of a sweep: one for each combination of the other axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, MultipleLocator, NullFormatter, NullLocator

from rooflinellm.api.sweep_result import Sweep
from rooflinellm.api.sweep_table import axis_label
from rooflinellm.errors import InvalidRequest
from rooflinellm.plotting import style
from rooflinellm.plotting.geometry import Array
from rooflinellm.plotting.roofs import device_names
from rooflinellm.summary import tokens_text

WIDE_SPAN = 20.0
"""Ratio of the largest to the smallest value from which on an axis is logarithmic. [-]"""
MOST_TICKS = 7
LOW_ROOM = 0.06
"""Room below the lowest rate of a logarithmic axis, in lengths of what is drawn. [-]"""
LETTER = 0.56
"""Width of a letter, about. [size of the letters]"""
MOST_ROOM = 0.65
"""Share of an axis that names behind the last point may take. [-]"""
X_WORDS = {
    "context_tokens": ("context", "Tokens in the cache before the prompt"),
    "prompt_tokens": ("prompt length", "Length of the prompt [tokens]"),
    "output_tokens": ("output length", "Length of the answer [tokens]"),
    "cached_tokens": ("cached tokens", "Cached tokens of the prompt"),
    "context_limit": ("context limit", "Configured context of a request [tokens]"),
    "batch": ("batch", "Batch: requests side by side"),
    "gpu_layers": ("layers on the device", "Layers on the device"),
    "cpu_moe_layers": ("layers with experts on the host", "Layers with experts on the host"),
    "draft_tokens": ("drafted tokens", "Tokens drafted in a cycle"),
    "prefill_chunk": ("prefill chunk", "Tokens of a prompt that pass at once"),
}
_TOKENS = ("context_tokens", "prompt_tokens", "output_tokens", "cached_tokens", "context_limit", "prefill_chunk")


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes
    ----------
    name, slug : str
        What it is called, and in the names of its parts.
    part : Sweep
        Its points, with the chart's axis only, in rising order.
    color, text_color : str
        Of its line and of its label.
    line_style : Any
        Of its line.
    """

    name: str
    slug: str
    part: Sweep
    color: str
    text_color: str
    line_style: Any

    @property
    def fits(self) -> Any:
        """Whether each point fits, or may."""
        return np.array([value is not False for value in self.part.memory.fits.ravel().tolist()])


def series_over(sweep: Any, x: str, *within: str) -> list[Series]:
    """The series over an axis, each with all points of the axes `within`, if there are such.

    Raises
    ------
    InvalidRequest
        No sweep, an axis that it does not have or that holds no numbers, or more series than can be told apart.
    """
    if not isinstance(sweep, Sweep):
        raise InvalidRequest(f"{type(sweep).__name__} is no result of sweep", where="sweep")
    if x not in sweep.axes:
        raise InvalidRequest(f"no axis '{x}'; there is {', '.join(sweep.axes) or 'none'}", where="x")
    if not _is_numeric(sweep, x):
        raise InvalidRequest(f"'{x}' holds no numbers; a chart needs an axis of numbers", where="x")
    others = {name: values for name, values in sweep.axes.items() if name not in (x, *within)}
    number = math.prod(map(len, others.values()))
    if number > len(style.SERIES):
        raise InvalidRequest(
            f"{number} lines are more than the {len(style.SERIES)} a chart can tell apart",
            where="sweep",
            next_step=f"Take a part of it first: sweep.select({max(others, key=lambda name: len(others[name]))}=…).",
        )
    found = []
    names = dict(zip((each.id for each in sweep.systems), device_names(sweep.systems), strict=True))
    for index, values in enumerate(product(*others.values())):
        chosen = dict(zip(others, values, strict=True))
        words = [
            names[value] if name == "hardware" else _named(sweep, name, value)
            for name, value in chosen.items()
            if len(others[name]) > 1
        ]
        alone = number == 1
        found.append(
            Series(
                name=" · ".join(words),
                slug=f"series-{index}",
                part=sweep.select(**chosen).sorted_by(x),
                color=style.SERIES[index],
                text_color=style.INK if alone else style.SERIES_TEXT[index],
                line_style=style.LINE_STYLES[index],
            )
        )
    return found


def longest_axis(sweep: Any) -> str:
    """The axis of numbers with the most values.

    Raises
    ------
    InvalidRequest
        There is none.
    """
    found: list[str] = [name for name in getattr(sweep, "axes", ()) if _is_numeric(sweep, name)]
    if not found:
        raise InvalidRequest(
            "no axis holds numbers; a chart needs one", where="x", next_step="Sweep over context_tokens or batch, say."
        )
    return max(found, key=lambda name: len(sweep.axes[name]))


def _is_numeric(sweep: Sweep, name: str) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in sweep.axes[name])


def _named(sweep: Sweep, name: str, value: Any) -> str:
    text = axis_label(sweep, name, value)
    if name in ("model", "weights", "engine", "draft"):
        return text
    return f"{'KV' if name == 'kv' else X_WORDS[name][0] if name in X_WORDS else name} {text}"


def x_values(series: Series) -> Array:
    """Where its points stand."""
    (values,) = series.part.axes.values()
    return np.asarray(values, dtype=float)


def spans_widely(*values: Array) -> bool:
    """Whether values, those that are drawn, are better told apart on a logarithmic axis."""
    drawn = np.concatenate([each[np.isfinite(each)].ravel() for each in values])
    positive = drawn[drawn > 0]
    return bool(positive.size and positive.max() >= WIDE_SPAN * positive.min())


def grows_by_factors(values: Array) -> bool:
    """Whether the values of an axis are spaced by factors rather than evenly: positive, and ever wider apart."""
    steps = np.diff(values)
    return bool(len(values) > 2 and values[0] > 0 and steps.min() >= 0 and steps.max() > 1.5 * steps.min())


def width_of(ax: Axes) -> float:
    """Width of the axes, about, without what stands beside them. [point]"""
    figure = ax.get_figure()
    assert figure is not None
    return float(max(0.85 * ax.get_window_extent().width * 72 / figure.dpi, 72.0))


def room_for(ax: Axes, letters: int, size: float) -> float:
    """Room for so many letters behind the last point, in lengths of the axis up to there."""
    share = min((LETTER * letters * size + 8.0) / width_of(ax), MOST_ROOM)
    return share / (1 - share)


def text_width(text: str, size: float) -> float:
    """Length of the longest line of a text in the font of the charts. [point]"""
    font = FontProperties(size=size)
    lines = [line for line in text.split("\n") if line.strip()]
    return max((float(TextPath((0, 0), line, prop=font).get_extents().width) for line in lines), default=0.0)


def set_up_x(ax: Axes, x: str, values: Array, *, room: float) -> None:
    """Scale, limits, ticks and name of the axis to the right; `room` for names behind the last point."""
    low, high = float(values.min()), float(values.max())
    tokens = x in _TOKENS
    write = tokens_text if tokens else _plain
    doubles = x in X_WORDS
    if grows_by_factors(np.unique(values)) and (doubles or spans_widely(values)):
        ax.set_xscale("log", base=2 if doubles else 10)
        factor = high / low
        ax.set_xlim(low / factor**0.03, high * factor**room)
        ticks = LogLocator(base=2, numticks=MOST_TICKS + 3) if doubles else LogLocator(subs=(1, 2, 5))
        ax.xaxis.set_major_locator(ticks)
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        span = high - low or max(abs(high), 1.0)
        ax.set_xlim(low - 0.03 * span, high + room * span)
        if tokens and span >= MOST_TICKS:
            ax.xaxis.set_major_locator(MultipleLocator(2 ** math.ceil(math.log2(span * (1 + room) / MOST_TICKS))))
        else:
            ax.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=all(value == int(value) for value in values)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value) if value >= 0 else ""))
    ax.set_xlabel(X_WORDS.get(x, (x, x))[1], fontsize=9.5, color=style.INK, parse_math=False)


def set_up_rates(axis: Axis, values: Sequence[Array], name: str, *, room: float = 0.08) -> bool:
    """Scale, limits, ticks and name of an axis of rates or times; returns whether it is logarithmic."""
    drawn = np.concatenate([each[np.isfinite(each)].ravel() for each in values])
    if not drawn.size or drawn.max() <= 0:
        raise InvalidRequest("there is nothing above 0 to draw", where="y")
    logarithmic = spans_widely(drawn)
    ax: Any = axis.axes
    side = "x" if axis is ax.xaxis else "y"
    limit = getattr(ax, f"set_{side}lim")
    if logarithmic:
        getattr(ax, f"set_{side}scale")("log")
        low, high = float(drawn[drawn > 0].min()), float(drawn.max())
        limit(low / (high / low) ** LOW_ROOM, high * (high / low) ** room)
        few = high / low < 300
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if few else (1,), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    else:
        limit(0, float(drawn.max()) * (1 + room))
        axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_label_text(name, fontsize=style.AXIS_SIZE, color=style.INK)
    return logarithmic


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:,.10g}"
