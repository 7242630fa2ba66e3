"""How charts look: colours, markers and line styles that do not depend on seeing colour, and how a chart is kept.

Colour never stands alone: a device also has its line style, a phase and a model their marker, and every line its name.
Text is dark and at least 8 points; colour is for lines and markers.

References
----------
Okabe, Ito (2008), "Color Universal Design: how to make figures and presentations that are friendly to colorblind
people".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rooflinellm._files import write_whole
from rooflinellm.errors import InvalidRequest

INK = "#222222"
QUIET = "#555555"
FAINT = "#8c8c8c"
GRID = "#e4e4e4"
PAPER = "#ffffff"

BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, BLACK = "#e69f00", "#56b4e9", "#000000"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""Okabe-Ito colours in order of use; the yellow is left out, since it is too light for a line."""

SERIES_TEXT = ("#004b76", "#8a3d00", "#005c43", "#7a3d5f", "#6b4a00", "#1f5673", BLACK)
"""The same hues for text, dark enough to read (at least 7:1 on white)."""

LINE_STYLES: tuple[Any, ...] = (
    "solid",
    (0, (6, 2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (2.5, 1.5)),
    (0, (8, 2, 2, 2, 2, 2)),
    (0, (4, 1, 1, 1, 1, 1)),
    (0, (1.2, 1.2)),
)
DECODE_MARKERS = ("o", "s", "D", "h")
PREFILL_MARKERS = ("^", "v", "<", ">")

MINIMUM_TEXT_SIZE = 8.0
AXIS_SIZE = 9.5
"""Size of the names of axes. [point]"""
LABEL_SIZE = 8.5
RESOLUTION_DPI = 150

_DESCRIPTION = "rooflinellm_description"
_STYLE: Any = {
    "figure.figsize": (8.0, 5.0),
    "font.size": 9,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}


@contextmanager
def styled() -> Iterator[None]:
    """Make artists in our style; global settings are as before when it ends."""
    with rc_context(_STYLE):
        yield


def axes_for(ax: Axes | None) -> Axes:
    """Return the caller's axes, or those of a new figure.

    Raises
    ------
    InvalidRequest
        Something that is no axes.
    """
    if ax is None:
        from matplotlib import pyplot as plt

        return plt.subplots(layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise InvalidRequest(f"{type(ax).__name__} is no matplotlib axes", where="ax")
    return ax


def frame(ax: Axes) -> None:
    """A light grid behind the data, and no more of a frame than the two axes need."""
    ax.set_axisbelow(True)
    ax.grid(True, which="major", color=GRID, linewidth=0.7, linestyle="solid")
    ax.grid(False, which="minor")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(which="both", labelsize=9, labelcolor=INK)


def set_description(ax: Axes, text: str) -> None:
    """Keep what a chart shows, in words, with its axes."""
    setattr(ax, _DESCRIPTION, text)


def describe(ax: Axes) -> str:
    """Say in words what a chart shows, as its alternative text.

    Parameters
    ----------
    ax : Axes
        What a function of this package returned.

    Returns
    -------
    str
        Names, lines and points with their numbers.

    Raises
    ------
    InvalidRequest
        Axes without such a chart.
    """
    text = getattr(ax, _DESCRIPTION, None)
    if not isinstance(text, str):
        raise InvalidRequest("these axes hold no chart of rooflinellm", where="ax")
    return text


def set_title(ax: Axes, text: str, *, fontsize: float = 10.5, **others: Any) -> None:
    """Give axes a title on the left, wrapped where it is long.

    Wrapping measures lines as formulas whatever `parse_math` says, and fails on what is none: a text with dollar signs
    stays on its line.
    """
    ax.set_title(text, loc="left", fontsize=fontsize, color=INK, wrap="$" not in text, parse_math=False, **others)


def save(chart: Axes | Figure, path: str | os.PathLike[str], *, dpi: float = RESOLUTION_DPI) -> None:
    """Write a chart to a file, with its description inside; a chart made anew gives the same bytes.

    Text stays text in an SVG, and the parts of the chart have names (``id``).

    Parameters
    ----------
    chart : Axes or Figure
        The chart.
    path : str or path
        The file; its ending (``.png``, ``.svg``, ``.pdf``) decides the kind.
    dpi : float
        Resolution of a PNG. [pixel/inch]

    Raises
    ------
    InvalidRequest
        Another ending, or a file that cannot be written.
    """
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in ("png", "svg", "pdf"):
        raise InvalidRequest(f"'{kind}' is not one of png, svg, pdf", where="path")
    try:
        write_whole(path, lambda file: _write(chart, file, kind, dpi))
    except OSError as error:
        raise InvalidRequest(f"cannot write: {error.strerror or error}", where="path") from error


def svg_text(chart: Axes | Figure) -> str:
    """A chart as the text of the SVG file that `save` writes."""
    buffer = StringIO()
    _write(chart, buffer, "svg", RESOLUTION_DPI)
    return buffer.getvalue()


def _write(chart: Axes | Figure, target: str | os.PathLike[str] | StringIO, kind: str, dpi: float) -> None:
    parent: Any = chart if isinstance(chart, Figure) else chart.figure
    figure = None if parent is None else parent.figure  # of a subfigure, the whole
    if figure is None:
        raise InvalidRequest("the axes were removed from their figure", where="chart")
    text = " ".join(describe(ax) for ax in figure.axes if hasattr(ax, _DESCRIPTION))
    metadata: dict[str, Any] = {
        "png": {"Description": text, "Software": None},
        "svg": {"Description": text, "Date": None, "Creator": None},
        "pdf": {"Subject": text, "CreationDate": None, "Creator": None, "Producer": None},
    }[kind]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "rooflinellm", "pdf.fonttype": 42}):
        figure.savefig(target, format=kind, dpi=dpi, metadata=metadata)
