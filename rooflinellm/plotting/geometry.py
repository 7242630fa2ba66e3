"""Rectangles and lines on paper, in pixels: what overlaps what.

The functions take many rectangles at once, as rows of centre x, centre y, half the width, half the height and angle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Pair = tuple[float, float]
Frame = tuple[float, float, float, float]
"""Left, bottom, right, top."""
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Box(NamedTuple):
    """A rectangle: centre, half its sides, and its angle. [pixel], [rad]"""

    x: float
    y: float
    half_width: float
    half_height: float
    angle: float = 0.0

    def grown(self, margin: float) -> Box:
        """The same rectangle, larger by a margin on every side."""
        return self._replace(half_width=self.half_width + margin, half_height=self.half_height + margin)

    def nearest(self, point: Pair) -> Pair:
        """The point of an upright rectangle that is nearest to another point."""
        return (
            min(max(point[0], self.x - self.half_width), self.x + self.half_width),
            min(max(point[1], self.y - self.half_height), self.y + self.half_height),
        )


def rows(boxes: list[Box]) -> Array:
    """Rectangles as rows of an array."""
    return np.asarray(boxes, dtype=float).reshape(len(boxes), 5)


def _axes(boxes: Array) -> Array:
    """Directions along and across each rectangle; boxes x 2 x 2."""
    cos, sin = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
    return np.stack([np.stack([cos, sin], axis=-1), np.stack([-sin, cos], axis=-1)], axis=1)


def within(boxes: Array, frame: Frame, margin: float = 0.0) -> Flags:
    """Tell which rectangles lie inside a frame, that far from its edge."""
    reach = np.abs(_axes(boxes) * boxes[:, 2:4, None]).sum(axis=1) + margin
    low, high = boxes[:, :2] - reach, boxes[:, :2] + reach
    inside: Flags = ((low >= frame[:2]) & (high <= frame[2:])).all(axis=1)
    return inside


def overlapping(a: Array, b: Array) -> Flags:
    """Tell which pairs of rectangles share more than an edge, a x b (the separating axis theorem)."""
    axes_a, axes_b = _axes(a), _axes(b)
    apart = b[None, :, :2] - a[:, None, :2]
    overlap = np.ones((len(a), len(b)), dtype=bool)
    for axes in (axes_a[:, None], axes_b[None]):  # each pair's axes: those of a, then those of b
        distance = np.abs((apart[:, :, None, :] * axes).sum(axis=-1))
        reach_a = (np.abs((axes_a[:, None, :, None] * axes[:, :, None]).sum(axis=-1)) * a[:, None, 2:4, None]).sum(
            axis=2
        )
        reach_b = (np.abs((axes_b[None, :, :, None] * axes[:, :, None]).sum(axis=-1)) * b[None, :, 2:4, None]).sum(
            axis=2
        )
        overlap &= (distance < reach_a + reach_b).all(axis=-1)
    return overlap


def crossing(boxes: Array, segments: Array) -> Flags:
    """Tell which rectangles are crossed by which segments, rows of x0 y0 x1 y1; boxes x segments (the slab method)."""
    turn, half = _axes(boxes), boxes[:, None, 2:4]
    start = np.einsum("bkd,bsd->bsk", turn, segments[None, :, :2] - boxes[:, None, :2])
    step = np.einsum("bkd,bsd->bsk", turn, segments[None, :, 2:] - boxes[:, None, :2]) - start
    still = np.abs(step) < 1e-12
    step = np.where(still, 1.0, step)
    one, two = (-half - start) / step, (half - start) / step
    beside = np.abs(start) >= half
    enter = np.where(still, np.where(beside, np.inf, -np.inf), np.minimum(one, two))
    leave = np.where(still, np.where(beside, -np.inf, np.inf), np.maximum(one, two))
    crossed: Flags = np.maximum(enter.max(axis=-1), 0.0) < np.minimum(leave.min(axis=-1), 1.0)
    return crossed


def distances(boxes: Array, points: Array) -> Array:
    """Distances of points, rows of x and y, from upright rectangles; boxes x points."""
    beyond = np.maximum(np.abs(points[None] - boxes[:, None, :2]) - boxes[:, None, 2:4], 0.0)
    far: Array = np.hypot(beyond[..., 0], beyond[..., 1])
    return far


def clipped(start: Pair, end: Pair, frame: Frame) -> tuple[Pair, Pair] | None:
    """Return the part of a segment inside a frame, None where there is none."""
    (x0, y0), (x1, y1) = start, end
    first, last = 0.0, 1.0
    for at, step, low, high in ((x0, x1 - x0, frame[0], frame[2]), (y0, y1 - y0, frame[1], frame[3])):
        if step == 0:
            if not low <= at <= high:
                return None
            continue
        enter, leave = sorted(((low - at) / step, (high - at) / step))
        first, last = max(first, enter), min(last, leave)
    if first >= last:
        return None
    return (x0 + first * (x1 - x0), y0 + first * (y1 - y0)), (x0 + last * (x1 - x0), y0 + last * (y1 - y0))
