"""Labels that are placed when the chart is drawn: along lines, beside points, and clear of one another.

Where a label fits, and the angle of a line on paper, depend on the final size of the axes. So a `LabelLayer` settles
both each time the chart is drawn at another size: every label tries its places in order of preference, the important
labels first; the longest wording that finds a free place is taken; what finds none is left out.
"""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect
from matplotlib.text import Text
from numpy.typing import NDArray

from rooflinellm.plotting.style import FAINT, INK, PAPER

HALO_WIDTH = 2.5
GAP = 2.5
"""Free space between a label and its line or its marker. [point]"""
EDGE = 3.0
"""Free space between a label and the frame, and between two labels. [point]"""
LEADER_FROM = 9.0
"""Distance from which on a thin line joins a label with its point. [point]"""
CLEAR = 10.0
"""Cost below which a place counts as free: no line of the chart runs through the label."""

Pair = tuple[float, float]
Array = NDArray[np.float64]


class _Halo(AbstractPathEffect):
    """The letters in the colour of the paper, thickened."""

    def draw_path(self, renderer: Any, gc: Any, tpath: Any, affine: Any, rgbFace: Any = None) -> None:
        copy = renderer.new_gc()
        copy.copy_properties(gc)
        copy.set_linewidth(renderer.points_to_pixels(HALO_WIDTH))
        copy.set_foreground(PAPER)
        renderer.draw_path(copy, tpath, affine, (1.0, 1.0, 1.0))
        copy.restore()


class HaloText(Text):
    """Text on a white outline of itself.

    The outline is drawn apart: a path effect on the text proper would turn its letters into outlines in an SVG.
    """

    _outline = False

    def get_path_effects(self) -> list[AbstractPathEffect]:
        return [_Halo()] if self._outline else []

    def get_gid(self) -> str | None:
        gid = super().get_gid()
        return f"{gid}-halo" if self._outline and gid else gid

    def draw(self, renderer: RendererBase) -> None:
        self._outline = True
        try:
            super().draw(renderer)
        finally:
            self._outline = False
        super().draw(renderer)


class Box(NamedTuple):
    """A rectangle on paper: centre, half its sides, and its angle. [pixel], [rad]"""

    x: float
    y: float
    half_width: float
    half_height: float
    angle: float = 0.0

    def grown(self, margin: float) -> Box:
        """The same rectangle, larger by a margin on every side."""
        return self._replace(half_width=self.half_width + margin, half_height=self.half_height + margin)

    def corners(self) -> Array:
        """The four corners, in order."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        along = np.array([cos, sin]) * self.half_width
        across = np.array([-sin, cos]) * self.half_height
        return np.array([self.x, self.y]) + np.array([along + across, across - along, -along - across, along - across])

    def overlaps(self, other: Box) -> bool:
        """Tell whether two rectangles share more than an edge (the separating axis theorem)."""
        reach = math.hypot(self.half_width, self.half_height) + math.hypot(other.half_width, other.half_height)
        if math.hypot(self.x - other.x, self.y - other.y) >= reach:
            return False
        ours, theirs = self.corners(), other.corners()
        for angle in (self.angle, self.angle + math.pi / 2, other.angle, other.angle + math.pi / 2):
            axis = np.array([math.cos(angle), math.sin(angle)])
            a, b = ours @ axis, theirs @ axis
            if a.max() <= b.min() or b.max() <= a.min():
                return False
        return True

    def crossed_by(self, segments: Array) -> NDArray[np.bool_]:
        """Tell which line segments, rows of x0 y0 x1 y1, run through the rectangle."""
        cos, sin = math.cos(-self.angle), math.sin(-self.angle)
        turn = np.array([[cos, -sin], [sin, cos]])
        start = (segments[:, :2] - (self.x, self.y)) @ turn.T
        step = (segments[:, 2:] - (self.x, self.y)) @ turn.T - start
        half = np.array([self.half_width, self.half_height])
        still = np.abs(step) < 1e-12
        step = np.where(still, 1.0, step)
        enter, leave = (-half - start) / step, (half - start) / step
        enter, leave = np.minimum(enter, leave), np.maximum(enter, leave)
        within = np.abs(start) < half
        enter = np.where(still, np.where(within, -np.inf, np.inf), enter)
        leave = np.where(still, np.where(within, np.inf, -np.inf), leave)
        first, last = np.maximum(enter.max(axis=1), 0.0), np.minimum(leave.min(axis=1), 1.0)
        return np.asarray(first < last)

    def nearest(self, x: float, y: float) -> Pair:
        """The point of an upright rectangle that is nearest to another point."""
        return (
            min(max(x, self.x - self.half_width), self.x + self.half_width),
            min(max(y, self.y - self.half_height), self.y + self.half_height),
        )


class Place(NamedTuple):
    """Where a label may stand, what that costs, and from where a thin line leads to it."""

    box: Box
    cost: float
    leader_from: Pair | None = None


class View(NamedTuple):
    """The axes as they are drawn: data to pixels, their frame, and a point in pixels."""

    transform: Any
    frame: tuple[float, float, float, float]
    point: float

    def pixels(self, points: Sequence[Pair] | Array) -> Array:
        """Data to pixels."""
        return np.asarray(self.transform.transform(np.asarray(points, dtype=float)), dtype=float)

    def holds(self, box: Box) -> bool:
        """Tell whether a rectangle lies within the frame."""
        left, bottom, right, top = self.frame
        x, y = box.corners().T
        margin = EDGE * self.point / 2
        return bool(
            x.min() >= left + margin
            and x.max() <= right - margin
            and y.min() >= bottom + margin
            and y.max() <= top - margin
        )


@dataclass
class Label(ABC):
    """A text with several wordings, the best first.

    Attributes
    ----------
    text : Text
        The artist.
    wordings : tuple of str
        What it may say.
    rank : float
        Labels of a lower rank are placed first.
    required : bool
        It rather stands over a line than not at all.
    """

    text: Text
    wordings: tuple[str, ...]
    rank: float
    required: bool = True

    @abstractmethod
    def places(self, view: View, width: float, height: float) -> Iterator[Place]:
        """Yield where text of this size may stand. [pixel]"""


@dataclass
class PointLabel(Label):
    """Beside a point. `clearance` is the radius of its marker in points, `sides` the directions in order of preference."""

    at: Pair = (0.0, 0.0)
    clearance: float = 4.0
    sides: tuple[Pair, ...] = ((1, -1), (1, 0), (0, -1), (-1, -1), (1, 1), (-1, 1), (-1, 0), (0, 1))
    distances: tuple[float, ...] = (0.0, 5.0, 11.0, 18.0, 26.0, 36.0, 48.0)

    def places(self, view: View, width: float, height: float) -> Iterator[Place]:
        """As in `Label`."""
        ((x, y),) = view.pixels([self.at])
        for far, distance in enumerate(self.distances):
            for turn, (right, up) in enumerate(self.sides):
                away = (self.clearance + GAP + distance) * view.point / math.hypot(right, up)
                centre = x + right * (away + width / 2), y + up * (away + height / 2)
                box = Box(*centre, width / 2, height / 2)
                leader = None if distance < LEADER_FROM else (float(x), float(y))
                yield Place(box, far + turn / len(self.sides), leader)


@dataclass
class LineLabel(Label):
    """Along a straight line, beside it.

    Attributes
    ----------
    start, end : tuple of float
        Two points of the line, in data coordinates; what lies outside the frame is cut off.
    at : float
        Preferred place of the label's middle, 0 at the start … 1 at the end of what is seen.
    overhang : float
        Share of its length by which a label may begin before what is seen of the line.
    """

    start: Pair = (0.0, 0.0)
    end: Pair = (1.0, 1.0)
    at: float = 1.0
    overhang: float = 0.0

    def places(self, view: View, width: float, height: float) -> Iterator[Place]:
        """As in `Label`."""
        seen = clipped(view.pixels([self.start, self.end]), view.frame)
        if seen is None:
            return
        (x0, y0), (x1, y1) = seen
        length = math.hypot(x1 - x0, y1 - y0)
        angle = math.atan2(y1 - y0, x1 - x0)
        margin = EDGE * view.point
        first = width * (0.5 - self.overhang) + margin
        last = length - width / 2 - margin
        if length == 0 or last < first:
            return
        wanted = min(max(self.at * length, first), last)
        stride = max(height, width / 8)
        places = [wanted, *np.arange(wanted - stride, first, -stride), *np.arange(wanted + stride, last, stride)]
        for along in places:
            for below in (False, True):
                aside = (GAP * view.point + height / 2) * (-1 if below else 1)
                box = Box(
                    x0 + along * math.cos(angle) - aside * math.sin(angle),
                    y0 + along * math.sin(angle) + aside * math.cos(angle),
                    width / 2,
                    height / 2,
                    angle,
                )
                yield Place(box, 4 * abs(along - wanted) / length + (0.7 if below else 0.0))


@dataclass
class Note(Label):
    """A paragraph in a corner of the frame: the lower right one, else the upper left."""

    def places(self, view: View, width: float, height: float) -> Iterator[Place]:
        """As in `Label`."""
        left, bottom, right, top = view.frame
        margin = EDGE * view.point
        stride = 4 * view.point
        steps = np.arange(0.0, max((top - bottom) * 0.6 - height, stride), stride)
        for step in steps:
            yield Place(
                Box(right - margin - width / 2, bottom + margin + height / 2 + step, width / 2, height / 2), step / 1e3
            )
        for step in steps:
            yield Place(
                Box(left + margin + width / 2, top - margin - height / 2 - step, width / 2, height / 2), 1 + step / 1e3
            )


def paragraph(text: str, widths: Sequence[int] = (66, 54, 44, 36, 30, 24)) -> tuple[str, ...]:
    """Return a text in lines of at most so many characters, for each width."""
    return tuple(dict.fromkeys("\n".join(textwrap.wrap(text, width, break_long_words=False)) for width in widths))


def clipped(line: Array, frame: tuple[float, float, float, float]) -> tuple[Pair, Pair] | None:
    """Return the part of a segment within a rectangle (left, bottom, right, top), None where there is none."""
    (x0, y0), (x1, y1) = line.tolist()
    first, last = 0.0, 1.0
    for start, step, low, high in ((x0, x1 - x0, frame[0], frame[2]), (y0, y1 - y0, frame[1], frame[3])):
        if step == 0:
            if not low <= start <= high:
                return None
            continue
        enter, leave = sorted(((low - start) / step, (high - start) / step))
        first, last = max(first, enter), min(last, leave)
    if first >= last:
        return None
    return (
        (x0 + first * (x1 - x0), y0 + first * (y1 - y0)),
        (x0 + last * (x1 - x0), y0 + last * (y1 - y0)),
    )


@dataclass
class _Obstacles:
    """What labels keep clear of, in pixels: lines with what crossing one costs, and areas that are taken."""

    segments: Array
    costs: Array
    taken: list[Box]

    def cost(self, place: Place, view: View) -> float:
        """Cost of a place; infinite where it is taken or outside the frame."""
        box = place.box
        if not view.holds(box) or any(box.overlaps(other) for other in self.taken):
            return math.inf
        cost = place.cost
        if len(self.segments):
            cost += float(self.costs[box.crossed_by(self.segments)].sum())
        if place.leader_from is not None:
            leader = np.array([[*place.leader_from, *box.nearest(*place.leader_from)]])
            if any(other.crossed_by(leader)[0] for other in self.taken if not _contains(other, place.leader_from)):
                return math.inf
        return cost


def _contains(box: Box, point: Pair) -> bool:
    return abs(box.x - point[0]) < box.half_width and abs(box.y - point[1]) < box.half_height


@dataclass
class _Chart:
    """Lines and markers of the chart, in data coordinates."""

    lines: list[tuple[list[Pair], float]] = field(default_factory=list)
    markers: list[tuple[Pair, float]] = field(default_factory=list)

    def obstacles(self, view: View) -> _Obstacles:
        segments: list[Array] = []
        costs: list[float] = []
        for points, cost in self.lines:
            pixels = view.pixels(points)
            segments.append(np.hstack([pixels[:-1], pixels[1:]]))
            costs += [cost] * (len(points) - 1)
        taken = []
        if self.markers:
            centres = view.pixels([at for at, _ in self.markers])
            for (x, y), (_, radius) in zip(centres.tolist(), self.markers, strict=True):
                taken.append(Box(x, y, radius * view.point, radius * view.point))
        joined = np.vstack(segments) if segments else np.empty((0, 4))
        return _Obstacles(joined, np.asarray(costs, dtype=float), taken)


class LabelLayer(Artist):
    """Places the labels of an axes; draws nothing itself."""

    def __init__(self, ax: Axes) -> None:
        super().__init__()
        self.set_zorder(-1e6)  # drawn first, so that the labels stand where they belong when their turn comes
        self.set_in_layout(False)
        self._labels: list[Label] = []
        self._leaders: dict[int, Line2D] = {}
        self._chart = _Chart()
        self._placed_for: Any = None
        ax.add_artist(self)

    def line(self, points: Sequence[Pair], cost: float) -> None:
        """Add a line that labels keep clear of: from `CLEAR` on they rather change their wording than cross it."""
        self._chart.lines.append((list(points), cost))

    def marker(self, at: Pair, radius: float) -> None:
        """Add a marker that no label covers. [point]"""
        self._chart.markers.append((at, radius))

    def add(self, label: Label) -> None:
        """Add a label; its text takes part from the next drawing on."""
        axes = self.axes
        assert isinstance(axes, Axes)
        label.text.set(ha="center", va="center", zorder=10, clip_on=False, in_layout=False)
        self._labels.append(label)
        axes.add_artist(label.text)
        leader = Line2D([], [], color=FAINT, linewidth=0.6, zorder=9, visible=False)
        leader.set_in_layout(False)
        self._leaders[id(label)] = axes.add_line(leader)

    def draw(self, renderer: RendererBase) -> None:
        """Place the labels anew where the axes have changed."""
        axes, figure = self.axes, self.get_figure(root=True)
        if not self.get_visible() or not isinstance(axes, Axes) or figure is None:
            return
        point = renderer.points_to_pixels(1.0)
        state = (axes.bbox.bounds, axes.get_xlim(), axes.get_ylim(), figure.dpi, point, type(renderer))
        if state != self._placed_for:
            x0, y0, x1, y1 = axes.bbox.extents
            self._place(View(axes.transData, (x0, y0, x1, y1), point), renderer)
            self._placed_for = state

    def _place(self, view: View, renderer: RendererBase) -> None:
        obstacles = self._chart.obstacles(view)
        for label in sorted(self._labels, key=lambda label: label.rank):
            wording, place = self._best(label, view, obstacles, renderer)
            if place is not None:
                obstacles.taken.append(place.box.grown(EDGE * view.point / 2))
            self._show(label, wording, place, view)

    def _best(
        self, label: Label, view: View, obstacles: _Obstacles, renderer: RendererBase
    ) -> tuple[str, Place | None]:
        """The first wording with a free place, else the place that costs least where the label is required."""
        fallback: tuple[float, str, Place] | None = None
        for wording in label.wordings:
            width, height = _size(label.text, wording, renderer)
            best: tuple[float, Place] | None = None
            for place in label.places(view, width, height):
                if best is not None and place.cost >= best[0]:
                    continue
                cost = obstacles.cost(place, view)
                if cost < (math.inf if best is None else best[0]):
                    best = cost, place
            if best is None:
                continue
            if best[0] < CLEAR:
                return wording, best[1]
            if fallback is None or best[0] < fallback[0]:
                fallback = best[0], wording, best[1]
        if fallback is None or not label.required:
            return label.wordings[0], None
        return fallback[1:]

    def _show(self, label: Label, wording: str, place: Place | None, view: View) -> None:
        text, leader = label.text, self._leaders[id(label)]
        text.set_visible(place is not None)
        leader.set_visible(place is not None and place.leader_from is not None)
        if place is None:
            return
        box = place.box
        back = view.transform.inverted()
        text.set_text(wording)
        text.set_position(tuple(back.transform((box.x, box.y))))
        text.set_rotation(math.degrees(box.angle))
        if place.leader_from is not None:
            ends = back.transform([place.leader_from, box.nearest(*place.leader_from)])
            leader.set_data(ends[:, 0], ends[:, 1])


def _size(text: Text, wording: str, renderer: RendererBase) -> Pair:
    """Size of a wording in a text's font, upright. [pixel]"""
    scratch = Text(0, 0, wording, fontproperties=text.get_fontproperties())
    scratch.set_figure(text.get_figure(root=True))  # type: ignore[arg-type]
    extent = scratch.get_window_extent(renderer)
    return extent.width, extent.height


def halo_text(size: float, gid: str, *, color: str = INK, weight: str = "normal") -> HaloText:
    """Return a text for a label, still without words and place."""
    text = HaloText(0.0, 0.0, "", fontsize=size, color=color, fontweight=weight)
    text.set_gid(gid)
    return text
