"""The best way to share a model over devices, and what it gives up: throughput against interactivity."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rooflinellm._shown import one_line
from rooflinellm.api.arguments import one_of, positive, sequence
from rooflinellm.api.frontier import frontier
from rooflinellm.api.largest_batch import End
from rooflinellm.api.lookup import Name
from rooflinellm.api.parallel_choices import ALL
from rooflinellm.api.sweep import sweep
from rooflinellm.api.sweep_result import Sweep
from rooflinellm.api.sweep_table import fixed_text, sweep_basis_text, sweep_title, system_names
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Prediction
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import gib_text
from rooflinellm.units import format_seconds, significant

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PREDICTED = ("tokens_per_s", "device_tokens_per_s", "aggregate_tokens_per_s", "ttft_s", "tpot_s")


@dataclass(frozen=True)
class ParallelPoint:
    """A way to share a model, with a batch.

    Attributes
    ----------
    hardware : str
        Id of the system.
    parallel : str
        Degrees, such as ``TP4 DP2``.
    degrees : dict of str to int
        The same as arguments of `estimate`.
    batch : int
        Requests side by side on all devices. [-]
    tokens_per_s, device_tokens_per_s, aggregate_tokens_per_s : Prediction
        Decode rate of each request; of all of them by device; and together. [tokens/s]
    ttft_s, tpot_s : Prediction
        Time to first token, all prompts prefilled together, and per output token. [s]
    total_bytes : int
        Memory on all devices. [byte]
    fits : bool or None
        None where the capacity is not known.
    meets : bool
        Whether it fits, or may, and keeps to the limits.
    ahead : bool
        Whether no other point of its system that meets them is better in both rates.
    """

    hardware: str
    parallel: str
    degrees: dict[str, int]
    batch: int
    tokens_per_s: Prediction
    device_tokens_per_s: Prediction
    aggregate_tokens_per_s: Prediction
    ttft_s: Prediction
    tpot_s: Prediction
    total_bytes: int
    fits: bool | None
    meets: bool
    ahead: bool

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        names = ("hardware", "parallel", "degrees", "batch", "total_bytes", "fits", "meets", "ahead")
        values = {name: getattr(self, name) for name in names}
        return values | {name: getattr(self, name).to_dict() for name in _PREDICTED}


@dataclass(frozen=True)
class BestParallel:
    """The answer of `best_parallel`; true where something meets the limits.

    Attributes
    ----------
    points : tuple of ParallelPoint
        Every combination, in the order of the sweep.
    limits : dict of str to float
        ``max_ttft_s`` and ``max_tpot_s``, as far as they were given. [s]
    sweep : Sweep
        The same as arrays, for `plotting.pareto`.
    """

    points: tuple[ParallelPoint, ...]
    limits: dict[str, float]
    sweep: Sweep

    __repr__ = one_line

    @cached_property
    def front(self) -> tuple[ParallelPoint, ...]:
        """Points that meet the limits and that no other one on the same system beats, the fastest for each first."""
        order = [system.id for system in self.sweep.systems]
        ahead = (point for point in self.points if point.ahead)
        return tuple(sorted(ahead, key=lambda each: (order.index(each.hardware), -each.tokens_per_s.expected)))

    @cached_property
    def by_hardware(self) -> dict[str, ParallelPoint]:
        """The point of the highest throughput within the limits, by id of the system; without systems that have none.

        Of equals the one that is faster for each request.
        """
        best: dict[str, ParallelPoint] = {}
        for point in self.front:
            known = best.get(point.hardware)
            if known is None or point.device_tokens_per_s.expected > known.device_tokens_per_s.expected:
                best[point.hardware] = point
        return best

    @property
    def best(self) -> ParallelPoint | None:
        """The highest throughput by device within the limits; None where nothing meets them."""
        return max(self.by_hardware.values(), key=lambda each: each.device_tokens_per_s.expected, default=None)

    def __bool__(self) -> bool:
        return self.best is not None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            "limits": dict(self.limits),
            "best": None if self.best is None else self.best.to_dict(),
            "best_by_hardware": {name: point.to_dict() for name, point in self.by_hardware.items()},
            "front": [point.to_dict() for point in self.front],
            "points": [point.to_dict() for point in self.points],
            "warnings": list(self.sweep.warnings),
        }

    def to_records(self) -> list[dict[str, Any]]:
        """One row a point."""
        return [point.to_dict() for point in self.points]

    @cached_property
    def by_way(self) -> tuple[ParallelPoint, ...]:
        """Of each way on each system the point of the highest throughput within the limits, the highest first.

        Of ways that have none, the one with the shortest time per token.
        """
        found: dict[tuple[str, str], ParallelPoint] = {}
        for point in self.points:
            known = found.setdefault((point.hardware, point.parallel), point)
            if _rank(point) > _rank(known):
                found[point.hardware, point.parallel] = point
        order = [system.id for system in self.sweep.systems]
        return tuple(sorted(found.values(), key=lambda each: (order.index(each.hardware), *(-x for x in _rank(each)))))

    def tables(self) -> list[Table]:
        """The front with what is best, and every way at its best."""
        front = self._table(self.front, self.by_hardware.values())
        front = replace(front, title=sweep_title(self.sweep), notes=self._notes())
        title = "Every way at its best within the limits" if self.limits else "Every way at its best"
        return [front, replace(self._table(self.by_way), title=title)]

    def _table(self, points: Sequence[ParallelPoint], best: Iterable[ParallelPoint] = ()) -> Table:
        """A row a point; nothing where there is none."""
        several = len(self.sweep.systems) > 1
        names, marked = system_names(self.sweep), list(best)
        columns = [
            *([Column("hardware", "left")] if several else []),
            Column("parallel", "left"),
            Column("batch"),
            Column("tok/s", group="each request"),
            Column("range", "left", group="each request", drop=4),
            Column("TPOT", group="each request", drop=2),
            Column("a device", group="all, tok/s"),
            Column("together", group="all, tok/s", drop=2),
            Column("first token", drop=1),
            Column("GiB", drop=3),
            Column("", "left", drop=-1),
        ]
        rows = [
            [
                *([names[point.hardware]] if several else []),
                point.parallel,
                f"{point.batch:,}",
                significant(point.tokens_per_s.expected),
                f"{significant(point.tokens_per_s.low)}–{significant(point.tokens_per_s.high)}",
                format_seconds(point.tpot_s.expected),
                significant(point.device_tokens_per_s.expected),
                significant(point.aggregate_tokens_per_s.expected),
                format_seconds(point.ttft_s.expected),
                gib_text(point.total_bytes),
                "best" if point in marked else _lacks(point),
            ]
            for point in points
        ]
        if not any(row[-1] for row in rows):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        return Table(columns if rows else (), rows)

    def _notes(self) -> list[str]:
        found, total = self.sweep, len(self.points)
        names = system_names(found)
        large = sum(point.fits is False for point in self.points)
        slow = total - large - sum(point.meets for point in self.points)
        words = {"max_ttft_s": "first token", "max_tpot_s": "TPOT"}
        limits = ", ".join(f"{words[name]} ≤ {format_seconds(value)}" for name, value in self.limits.items())
        left_out = [f"{large} for memory"] * bool(large) + [f"{slow} for the limits"] * bool(slow)
        best = list(self.by_hardware.values())
        within = f" within {limits}" if limits else ""
        notes = [f"highest throughput{within}: {_named(point, names)}" for point in best]
        if not best:
            notes.append(f"nothing keeps to the limits, {limits}{self._nearest(names)}" if limits else "nothing fits")
        largest = max(found.axes["batch"])
        if any(point.batch == largest for point in best):
            notes.append(f"batch {largest:,} is the largest that was tried; more may do more")
        notes += _against(best, names)
        notes += [
            f"{len(self.front)} of {total} combinations are beaten by no other"
            + (f"; left out: {', '.join(left_out)}" if left_out else ""),
            f"at {fixed_text(found)}; the devices share the batch, all its prompts are prefilled together",
            f"basis: {sweep_basis_text(found)}",
        ]
        return notes

    def _nearest(self, names: dict[str, str]) -> str:
        """What is fastest by each limit, in words."""
        able = [point for point in self.points if point.fits is not False]
        parts = []
        for name in self.limits:
            point = min(able, key=lambda each: getattr(each, name[4:]).expected, default=None)
            if point is not None:
                parts.append(f"{format_seconds(getattr(point, name[4:]).expected)} with {_named(point, names)}")
        return f"; least is {' and '.join(parts)}" if parts else ""

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def _rank(point: ParallelPoint) -> tuple[bool, float]:
    """Within the limits before all else; then by throughput, and beyond them by the time of a token."""
    return point.meets, point.device_tokens_per_s.expected if point.meets else -point.tpot_s.expected


def _lacks(point: ParallelPoint) -> str:
    return "" if point.meets else "does not fit" if point.fits is False else "too slow"


def _named(point: ParallelPoint, names: dict[str, str]) -> str:
    """A point in words, with its system where there are several."""
    return (f"{names[point.hardware]}, " if len(names) > 1 else "") + f"{point.parallel}, batch {point.batch:,}"


def _against(best: Sequence[ParallelPoint], names: dict[str, str]) -> list[str]:
    """The best of each further system against that of the first."""
    return [
        f"{names[point.hardware]}: "
        f"{significant(point.device_tokens_per_s.expected / best[0].device_tokens_per_s.expected)} times the throughput"
        f" of {names[best[0].hardware]} by device, each at its best"
        for point in best[1:]
    ]


def best_parallel(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec | Sequence[Any],
    *,
    batches: Sequence[int] = BATCHES,
    max_ttft_s: float | None = None,
    max_tpot_s: float | None = None,
    at: End = "expected",
    parallel: Any = ALL,
    **request: Any,
) -> BestParallel:
    """Find how the devices of a system best share a model: the highest throughput within limits of time.

    Every way to share it (`parallel_choices`) is tried with every batch. Those that fit and keep to the limits make a
    front of throughput by device against the rate of each request.

    Parameters
    ----------
    model : str, path or spec
        As in `estimate`.
    hardware : str, path, spec, or a list of them
        Systems of the same number of devices, to be compared.
    batches : sequence of int
        Requests side by side on all devices. [-]
    max_ttft_s, max_tpot_s : float, optional
        Longest time to first token, all prompts of a batch prefilled together, and per output token. [s]
    at : {'expected', 'low', 'high', 'ideal'}
        Which end of a prediction has to keep to the limits: ``high`` is the cautious choice.
    parallel : 'all' or sequence of Parallel
        Ways to try.
    **request
        As in `estimate`, single values; without batch and degrees of parallelism.

    Returns
    -------
    BestParallel

    Raises
    ------
    InvalidRequest
        Impossible numbers; a batch or degrees beside; and as `sweep`.
    """
    one_of("at", at, ("ideal", "expected", "low", "high"))
    if "batch" in request:
        raise InvalidRequest("give batches, a list", where="batch")
    limits = {
        name: positive(name, value)
        for name, value in (("max_ttft_s", max_ttft_s), ("max_tpot_s", max_tpot_s))
        if value is not None
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # combinations that are only tried
        found = sweep(model, hardware, parallel=parallel, batch=sequence("batches", batches), **request)
    extra = set(found.axes) - {"hardware", "parallel", "batch"}
    if extra:
        raise InvalidRequest("give one value, not several", where=min(extra))
    return BestParallel(tuple(_points(found, limits, at)), limits, found)


def _points(found: Sweep, limits: dict[str, float], at: End) -> list[ParallelPoint]:
    import numpy as np

    decode, memory = found.decode, found.memory
    devices = found.systems[0].device_count  # as many in each system, see `parallel_axis`
    each, together = decode.tokens_per_s, decode.aggregate_tokens_per_s
    by_device = together.scaled(1 / devices)
    fits = np.array(memory.fits, dtype=object).ravel()
    meets = np.array([value is not False for value in fits.tolist()])
    for name, most in limits.items():
        meets &= getattr(getattr(found, name[4:]), at).ravel() <= most
    ahead = np.zeros(found.size, dtype=bool)
    for system in found.systems:
        those = np.flatnonzero(meets & (found.hardware.ravel() == system.id))
        ahead[those] = frontier(each.expected.ravel()[those], by_device.expected.ravel()[those])
    ways = dict(zip(map(str, found.axes["parallel"]), found.axes["parallel"], strict=True))
    columns = {
        name: array.ravel().tolist()
        for name, array in (
            ("hardware", found.hardware),
            ("parallel", found.workload["parallel"]),
            ("batch", found.workload["batch"]),
            ("bytes", memory.total_bytes),
        )
    }
    predictions = dict(zip(_PREDICTED, (each, by_device, together, found.ttft_s, found.tpot_s), strict=True))

    def at_point(place: int) -> dict[str, Any]:
        return {name: each.map(lambda array: float(array.ravel()[place])) for name, each in predictions.items()}

    return [
        ParallelPoint(
            hardware=columns["hardware"][place],
            parallel=columns["parallel"][place],
            degrees=ways[columns["parallel"][place]].keywords,
            batch=int(columns["batch"][place]),
            total_bytes=int(columns["bytes"][place]),
            fits=fits[place],
            meets=bool(meets[place]),
            ahead=bool(ahead[place]),
            **at_point(place),
        )
        for place in range(found.size)
    ]
