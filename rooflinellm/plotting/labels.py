"""Labels that are placed when the chart is drawn: along lines, beside points, and clear of one another.

Where a label fits, and the angle of a line on paper, depend on the final size of the axes. So a `LabelLayer` settles
both each time the chart is drawn at another size. Every label has wordings and places, each with a cost; the important
labels choose first, and those that found no good place come first in the next of a few attempts.
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

from rooflinellm.plotting.geometry import (
    Array,
    Box,
    Frame,
    Pair,
    clipped,
    crossing,
    distances,
    overlapping,
    rows,
    within,
)
from rooflinellm.plotting.style import FAINT, INK, PAPER

HALO_WIDTH = 2.5
GAP = 3.2
"""Free space between a label and its line or its marker. [point]"""
BREATH = 1.5
"""Free space between a label and any line. [point]"""
EDGE = 3.0
"""Free space between two labels; half of it between a label and the frame. [point]"""
LEADER_FROM = 9.0
"""Distance from which on a thin line joins a label with its point. [point]"""

CLEAR = 10.0
"""Cost from which on a label is left out, or comes first in the next attempt where it is required."""
MISTAKABLE = 4.0
"""Cost of a place that is nearer to another point than to the label's own."""
MISSING = 60.0
"""Cost of a required label that is not shown; one that is not required costs `CLEAR`."""
ATTEMPTS = 4


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

    halo = True
    _outline = False

    def get_path_effects(self) -> list[AbstractPathEffect]:
        return [_Halo()] if self._outline else []

    def get_gid(self) -> str | None:
        gid = super().get_gid()
        return f"{gid}-halo" if self._outline and gid else gid

    def draw(self, renderer: RendererBase) -> None:
        self._outline = self.halo
        try:
            if self.halo:
                super().draw(renderer)
        finally:
            self._outline = False
        super().draw(renderer)


def halo_text(size: float, gid: str, *, color: str = INK, halo: bool = True) -> HaloText:
    """Return a text for a label, still without words and place; small print over a band is clearer without a halo."""
    text = HaloText(0.0, 0.0, "", fontsize=size, color=color, parse_math=False)
    text.halo = halo
    text.set_gid(gid)
    return text


class Place(NamedTuple):
    """Where a label may stand, what that costs, the point it is for, and from where a thin line leads to it."""

    box: Box
    cost: float
    point: Pair | None = None
    leader_from: Pair | None = None


class View(NamedTuple):
    """The axes as they are drawn: data to pixels, their frame, and a point in pixels."""

    transform: Any
    frame: Frame
    point: float

    def pixels(self, points: Sequence[Pair]) -> Array:
        """Data to pixels."""
        return np.asarray(self.transform.transform(np.asarray(points, dtype=float)), dtype=float)

    def pixel(self, point: Pair) -> Pair:
        """A single point."""
        x, y = self.pixels([point])[0]
        return float(x), float(y)


@dataclass
class Label(ABC):
    """A text with several wordings.

    Attributes
    ----------
    text : Text
        The artist.
    wordings : tuple of (str, float)
        What it may say, each with what it costs to say no more than that.
    rank : float
        Labels of a lower rank are placed first.
    required : bool
        It rather stands over a line than not at all.
    """

    text: Text
    wordings: tuple[tuple[str, float], ...]
    rank: float
    required: bool = True

    @abstractmethod
    def places(self, view: View, width: float, height: float) -> Iterator[Place]:
        """Yield where text of this size may stand. [pixel]"""


@dataclass
class PointLabel(Label):
    """Beside a point.

    Attributes
    ----------
    at : tuple of float
        The point, in data coordinates.
    clearance : float
        Radius of its marker. [point]
    sides : tuple of tuple of float
        Directions, right and up, in order of preference.
    distances : tuple of float
        Distances to try. [point]
    """

    at: Pair = (0.0, 0.0)
    clearance: float = 4.0
    sides: tuple[Pair, ...] = ((1, -1), (1, 0), (0, -1), (-1, -1), (1, 1), (-1, 1), (-1, 0), (0, 1))
    distances: tuple[float, ...] = (0.0, 5.0, 11.0, 18.0, 26.0, 36.0, 48.0)

    def places(self, view: View, width: float, height: float) -> Iterator[Place]:
        """As in `Label`."""
        x, y = point = view.pixel(self.at)
        if not within(rows([Box(x, y, 0.0, 0.0)]), view.frame)[0]:
            return
        for far, distance in enumerate(self.distances):
            for turn, (right, up) in enumerate(self.sides):
                away = (self.clearance + GAP + distance) * view.point / math.hypot(right, up)
                centre = x + right * (away + width / 2), y + up * (away + height / 2)
                box = Box(*centre, width / 2, height / 2)
                cost = 1.5 * far + turn / len(self.sides)
                yield Place(box, cost, point, point if distance >= LEADER_FROM else None)


@dataclass
class LineLabel(Label):
    """Along a straight line, above or below it.

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
        seen = clipped(view.pixel(self.start), view.pixel(self.end), view.frame)
        if seen is None:
            return
        (x0, y0), (x1, y1) = seen
        length = math.hypot(x1 - x0, y1 - y0)
        angle = math.atan2(y1 - y0, x1 - x0)
        margin = EDGE * view.point
        first, last = width * (0.5 - self.overhang) + margin, length - width / 2 - margin
        if last < first:
            return
        wanted = min(max(self.at * length, first), last)
        stride = max(height, width / 8)
        for along in (wanted, *np.arange(wanted - stride, first, -stride), *np.arange(wanted + stride, last, stride)):
            for below in (False, True):
                aside = (GAP * view.point + height / 2) * (-1 if below else 1)
                box = Box(
                    x0 + along * math.cos(angle) - aside * math.sin(angle),
                    y0 + along * math.sin(angle) + aside * math.cos(angle),
                    width / 2,
                    height / 2,
                    angle,
                )
                yield Place(box, 4 * abs(along - wanted) / length + (2.0 if below else 0.0))


@dataclass
class Note(Label):
    """A paragraph in a corner of the frame: the lower right one, else the upper left."""

    def places(self, view: View, width: float, height: float) -> Iterator[Place]:
        """As in `Label`."""
        left, bottom, right, top = view.frame
        margin = EDGE * view.point
        lines = height / (float(self.text.get_fontsize()) * view.point)
        stride = 3 * view.point
        for step in np.arange(0.0, max((top - bottom) * 0.6 - height, stride), stride):
            cost = 0.4 * lines + 0.08 * step / view.point
            lower = Box(right - margin - width / 2, bottom + margin + height / 2 + step, width / 2, height / 2)
            upper = Box(left + margin + width / 2, top - margin - height / 2 - step, width / 2, height / 2)
            yield Place(lower, cost)
            yield Place(upper, cost + 3.0)


def paragraph(*texts: str, widths: Sequence[int] = (66, 54, 44, 36, 30, 24)) -> tuple[tuple[str, float], ...]:
    """Return wordings for a `Note`: each text, the longest first, in lines of at most so many characters."""
    wrapped: dict[str, float] = {}
    for shortness, text in enumerate(texts):
        for width in widths:
            lines = "\n".join(textwrap.wrap(text, width, break_long_words=False))
            wrapped.setdefault(lines, 2.0 * shortness)
    return tuple(wrapped.items())


class _Obstacles:
    """What labels keep clear of, in pixels: lines with what crossing one costs, points, and areas that are taken."""

    def __init__(self, view: View, segments: Array, costs: Array, points: Array, taken: Array) -> None:
        self.view, self.segments, self.costs, self.points, self.taken = view, segments, costs, points, taken

    def with_label(self, place: Place) -> _Obstacles:
        """The same, and one more label, with its thin line, to keep clear of."""
        taken = np.vstack([self.taken, rows([place.box.grown(EDGE * self.view.point / 2)])])
        segments, costs = self.segments, self.costs
        if place.leader_from is not None:
            segments = np.vstack([segments, [*place.leader_from, *place.box.nearest(place.leader_from)]])
            costs = np.append(costs, CLEAR / 2)
        return _Obstacles(self.view, segments, costs, self.points, taken)

    def cost(self, places: Sequence[Place]) -> Array:
        """Cost of each place; infinite where it is taken or outside the frame."""
        point = self.view.point
        boxes = rows([place.box for place in places])
        cost = np.array([place.cost for place in places])
        breathing = boxes + np.array([0.0, 0.0, BREATH * point, BREATH * point, 0.0])
        cost += crossing(breathing, self.segments) @ self.costs
        free = within(boxes, self.view.frame, EDGE * point / 2) & ~overlapping(boxes, self.taken).any(axis=1)
        of_points = [index for index, place in enumerate(places) if place.point is not None]
        if of_points:
            own = distances(boxes[of_points], np.array([places[of_points[0]].point]))[:, 0]
            other = distances(boxes[of_points], self.points).min(axis=1, initial=math.inf)
            cost[of_points] += np.where(other < own - 0.1, MISTAKABLE, 0.0)
        led = [index for index, place in enumerate(places) if place.leader_from is not None]
        if led:
            free[led] &= self._leaders_are_free([places[index] for index in led])
        return np.where(free, cost, math.inf)

    def _leaders_are_free(self, places: Sequence[Place]) -> Any:
        """Whether the thin lines cross no area that is taken, but that of the point they come from."""
        ends = [(place.leader_from, place.box.nearest(place.leader_from)) for place in places if place.leader_from]
        crossed = crossing(self.taken, np.array([[*start, *end] for start, end in ends]))
        from_here = distances(self.taken, np.array([ends[0][0]])) == 0
        return ~(crossed & ~from_here).any(axis=0)


class _Outcome(NamedTuple):
    """What became of a label: its cost, its words, and its place, None where it is left out."""

    cost: float
    wording: str
    place: Place | None


@dataclass
class _Chart:
    """Lines, markers and labelled points of the chart, in data coordinates."""

    lines: list[tuple[list[Pair], float]] = field(default_factory=list)
    markers: list[tuple[Pair, float]] = field(default_factory=list)
    points: list[Pair] = field(default_factory=list)

    def obstacles(self, view: View) -> _Obstacles:
        """All of it in pixels."""
        segments, costs = [np.empty((0, 4))], []
        for line, cost in self.lines:
            pixels = view.pixels(line)
            segments.append(np.hstack([pixels[:-1], pixels[1:]]))
            costs += [cost] * (len(line) - 1)
        points = view.pixels(self.points) if self.points else np.empty((0, 2))
        markers = [Box(*view.pixel(at), radius * view.point, radius * view.point) for at, radius in self.markers]
        return _Obstacles(view, np.vstack(segments), np.asarray(costs, dtype=float), points, rows(markers))


class LabelLayer(Artist):
    """Places the labels of an axes; draws nothing itself."""

    def __init__(self, ax: Axes) -> None:
        super().__init__()
        self.set_zorder(-1e6)  # drawn first, so that the labels stand where they belong when their turn comes
        self.set_in_layout(False)
        self._labels: list[Label] = []
        self._leaders: list[Line2D] = []
        self._chart = _Chart()
        self._placed_for: Any = None
        ax.add_artist(self)

    def line(self, points: Sequence[Pair], cost: float) -> None:
        """Add a line, with what it costs a label to cross it."""
        self._chart.lines.append((list(points), cost))

    def marker(self, at: Pair, radius: float) -> None:
        """Add a marker that no label covers. [point]"""
        self._chart.markers.append((at, radius))

    def add(self, ax: Axes, label: Label) -> None:
        """Add a label to the axes of the layer; it gets words and place when they are drawn."""
        label.text.set(ha="center", va="center", zorder=10, clip_on=False, in_layout=False)
        leader = Line2D([], [], color=FAINT, linewidth=0.6, zorder=3.5, visible=False)
        leader.set_in_layout(False)
        if isinstance(label, PointLabel):
            self._chart.points.append(label.at)
        self._labels.append(label)
        self._leaders.append(leader)
        ax.add_artist(label.text)
        ax.add_line(leader)

    def draw(self, renderer: RendererBase) -> None:
        """Place the labels anew where the axes have changed."""
        axes: Any = self.axes
        if axes is None or not self.get_visible():
            return
        point = float(np.asarray(renderer.points_to_pixels(1.0)))
        frame = tuple(axes.bbox.extents.round(2).tolist())  # a layout engine never comes to rest in the last digits
        state = (frame, axes.get_xlim(), axes.get_ylim(), point, type(renderer))
        if state != self._placed_for:
            view = View(axes.transData, frame, point)
            outcomes = self._settle(view, renderer)
            for label, leader, outcome in zip(self._labels, self._leaders, outcomes, strict=True):
                _show(label, leader, outcome, view)
            self._placed_for = state

    def _settle(self, view: View, renderer: RendererBase) -> list[_Outcome]:
        """The best of a few attempts, outcomes in the order of the labels."""
        sizes = [[_size(label.text, wording, renderer) for wording, _ in label.wordings] for label in self._labels]
        start = self._chart.obstacles(view)
        first: set[int] = set()
        best: tuple[float, list[_Outcome]] | None = None
        for _ in range(ATTEMPTS):
            obstacles = start
            outcomes: dict[int, _Outcome] = {}
            for index in sorted(range(len(self._labels)), key=lambda i: (i not in first, self._labels[i].rank)):
                outcome = _choose(self._labels[index], sizes[index], obstacles)
                if outcome.place is not None:
                    obstacles = obstacles.with_label(outcome.place)
                outcomes[index] = outcome
            total = sum(outcome.cost for outcome in outcomes.values())
            if best is None or total < best[0]:
                best = total, [outcomes[index] for index in range(len(self._labels))]
            struggling = {i for i, outcome in outcomes.items() if outcome.cost >= CLEAR and self._labels[i].required}
            if struggling <= first:
                break
            first |= struggling
        return [] if best is None else best[1]


def _choose(label: Label, sizes: Sequence[Pair], obstacles: _Obstacles) -> _Outcome:
    """The wording and the place that cost least together."""
    best = _Outcome(MISSING if label.required else CLEAR, "", None)
    for (wording, scarcity), (width, height) in zip(label.wordings, sizes, strict=True):
        places = [place for place in label.places(obstacles.view, width, height) if scarcity + place.cost < best.cost]
        if places:
            costs = scarcity + obstacles.cost(places)
            least = int(costs.argmin())
            if costs[least] < best.cost:
                best = _Outcome(float(costs[least]), wording, places[least])
    return best


def _show(label: Label, leader: Line2D, outcome: _Outcome, view: View) -> None:
    text, place = label.text, outcome.place
    text.set_visible(place is not None)
    leader.set_visible(place is not None and place.leader_from is not None)
    if place is None:
        return
    box, back = place.box, view.transform.inverted()
    text.set_text(outcome.wording)
    text.set_position(tuple(back.transform((box.x, box.y))))
    text.set_rotation(math.degrees(box.angle))
    if isinstance(label, Note):
        text.set_multialignment("right" if 2 * box.x > view.frame[0] + view.frame[2] else "left")
    if place.leader_from is not None:
        ends = back.transform([place.leader_from, box.nearest(place.leader_from)])
        leader.set_data(ends[:, 0], ends[:, 1])


def _size(text: Text, wording: str, renderer: RendererBase) -> Pair:
    """Size of a wording in a text's font, upright. [pixel]"""
    figure: Any = text.figure
    scratch = Text(0, 0, wording, fontproperties=text.get_fontproperties(), parse_math=False)
    scratch.set_figure(figure)
    extent = scratch.get_window_extent(renderer)
    return extent.width, extent.height
