"""What `sweep` returns: arrays with a dimension for each axis, and their views as rows, tables and charts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from rooflinellm._numeric import is_array
from rooflinellm._shown import one_line
from rooflinellm.errors import InvalidRequest, met
from rooflinellm.render import Table
from rooflinellm.results import Prediction, data_frame
from rooflinellm.units import significant

if TYPE_CHECKING:
    from rooflinellm.operators.model import ModelSpec
    from rooflinellm.specs.hardware import SystemSpec

ROWS_SHOWN = 24


@dataclass(frozen=True)
class SweepPhase:
    """Prefill or decode at every point; attributes as in `Phase`."""

    tokens_per_s: Prediction
    aggregate_tokens_per_s: Prediction
    time_s: Prediction
    bound: Any

    __repr__ = one_line


@dataclass(frozen=True)
class SweepMemory:
    """What must fit at every point; attributes as in `MemoryPlan`. [byte]"""

    resident_weight_bytes: Any
    kv_allocated_bytes: Any
    total_bytes: Any
    usable_bytes: Any
    fits: Any

    __repr__ = one_line


@dataclass(frozen=True)
class Sweep:
    """The answer of `sweep`; every array has the shape of the grid, a dimension for each of `axes`, in their order.

    Attributes
    ----------
    axes : mapping of str to tuple
        The values of each axis: what was given several of. ``model`` and ``hardware`` hold ids.
    prefill, decode : SweepPhase
        The two workloads.
    ttft_s, tpot_s, itl_s, e2e_s : Prediction
        As in `Estimate`. [s]
    energy_j_per_token : Prediction
        As in `Estimate`; NaN in the arrays, and None in rows, where the rated power is not known. [J]
    memory : SweepMemory
        What must fit; `usable_bytes` and `fits` hold None where they are not known.
    model, hardware, weights, kv, engine : ndarray of str
        Ids and canonical names at each point.
    basis : ndarray of str
        Where the expectation comes from.
    evidence : ndarray of int
        Series of the device itself that it was fitted to, as in `Estimate`. [-]
    workload : mapping of str to ndarray
        The request at each point.
    overrides : mapping of str to ndarray
        Values that stand in place of an entry's own, by path.
    models, systems : tuple
        The `ModelSpec` and the `SystemSpec` of each.
    warnings : tuple of str
        What makes some answers an "as if".
    notes : tuple of str
        What was asked for and is not in the grid.
    """

    axes: Mapping[str, tuple[Any, ...]]
    prefill: SweepPhase
    decode: SweepPhase
    ttft_s: Prediction
    tpot_s: Prediction
    itl_s: Prediction
    e2e_s: Prediction
    energy_j_per_token: Prediction
    memory: SweepMemory
    model: Any
    hardware: Any
    weights: Any
    kv: Any
    engine: Any
    basis: Any
    evidence: Any
    workload: Mapping[str, Any]
    overrides: Mapping[str, Any]
    models: tuple[ModelSpec, ...]
    systems: tuple[SystemSpec, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    def quantity(self, path: str) -> Prediction:
        """A quantity by its dotted name, such as ``decode.tokens_per_s`` or ``ttft_s``.

        Raises
        ------
        InvalidRequest
            Another name.
        """
        if path not in QUANTITIES:
            raise InvalidRequest(f"{met(path)} is not one of {', '.join(QUANTITIES)}", where="quantity")
        found: Any = self
        for name in path.split("."):
            found = getattr(found, name)
        assert isinstance(found, Prediction)
        return found

    def select(self, **chosen: Any) -> Sweep:
        """The part with these values of some axes, without those axes.

        Parameters
        ----------
        **chosen
            Axis and value, as in ``select(hardware="rtx-4090", batch=1)``; a path goes in as ``**{path: value}``.

        Raises
        ------
        InvalidRequest
            An axis that the sweep does not have, or a value that is not on it.
        """
        index: list[Any] = [slice(None)] * len(self.axes)
        for name, value in chosen.items():
            if name not in self.axes:
                raise InvalidRequest(f"no axis '{name}'; there is {', '.join(self.axes) or 'none'}", where="select")
            values = self.axes[name]
            if value not in values:
                shown = ", ".join(map(str, values[:8])) + (" …" if len(values) > 8 else "")
                raise InvalidRequest(f"{met(value)} is not on the axis, which has {shown}", where=name)
            index[list(self.axes).index(name)] = values.index(value)
        part: Sweep = _with_arrays(self, lambda array: array[(*index, ...)])
        return replace(part, axes={name: values for name, values in self.axes.items() if name not in chosen})

    def sorted_by(self, axis: str) -> Sweep:
        """The same points with the values of an axis in rising order."""
        import numpy as np

        values = self.axes[axis]
        order = np.argsort(np.asarray(values), kind="stable")
        index = [slice(None)] * list(self.axes).index(axis) + [order]
        part: Sweep = _with_arrays(self, lambda array: array[(*index, ...)])
        return replace(part, axes={**self.axes, axis: tuple(values[place] for place in order)})

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a point, such as ``decode_tokens_per_s_expected``; the last axis moves fastest."""
        columns = {name: _listed(array) for name, array in self._columns().items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame: tidy, a row a point.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame({name: array.ravel() for name, array in self._columns().items()})

    def to_dict(self) -> dict[str, Any]:
        """Axes, and at each point what `Estimate.to_dict` holds of these quantities, in base units."""
        columns = {path: _listed(array) for path, array in _arrays(self)}
        results = []
        for point in range(self.size):
            result: dict[str, Any] = {}
            for (*above, name), values in columns.items():
                place = result
                for key in above:
                    place = place.setdefault(key, {})
                place[name] = values[point]
            results.append(result)
        axes = {name: list(map(_label, values)) for name, values in self.axes.items()}
        return {"axes": axes, "results": results, "warnings": list(self.warnings), "notes": list(self.notes)}

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def table(self, *, most: int | None = ROWS_SHOWN, bars: bool = False) -> Table:
        """A row a point; of more than `most` as many, evenly spread. `bars` adds the decode rate as a bar."""
        from rooflinellm.api.sweep_table import sweep_table

        return sweep_table(self, most=most, bars=bars)

    def plot(self, x: str | None = None, y: str = "decode.tokens_per_s", *, ax: Any = None, **looks: Any) -> Any:
        """Draw a quantity over an axis: `rooflinellm.plotting.sweep`; `x` is by default the longest axis of numbers."""
        from rooflinellm import plotting

        return plotting.sweep(self, x=x, y=y, ax=ax, **looks)

    def __repr__(self) -> str:
        names = [
            self.model.flat[0] if len(self.models) == 1 else f"{len(self.models)} models",
            self.hardware.flat[0] if len(self.systems) == 1 else f"{len(self.systems)} systems",
        ]
        axes = " × ".join(f"{name} {len(values)}" for name, values in self.axes.items()) or "no axis"
        rates = self.decode.tokens_per_s.expected
        return (
            f"Sweep({' on '.join(names)}: {axes}, {self.size:,} point{'' if self.size == 1 else 's'}, "
            f"decode {significant(float(rates.min()))}…{significant(float(rates.max()))} tokens/s)"
        )

    def _repr_html_(self) -> str:
        return self.table().to_html()

    def _columns(self) -> dict[str, Any]:
        """Arrays by the keys of `to_records`."""
        bare = ("workload", "overrides")
        return {"_".join(path[1:] if path[0] in bare else path): array for path, array in _arrays(self)}


QUANTITIES = (
    *(f"{phase}.{name}" for phase in ("prefill", "decode") for name in ("tokens_per_s", "aggregate_tokens_per_s")),
    *("prefill.time_s", "decode.time_s", "ttft_s", "tpot_s", "itl_s", "e2e_s", "energy_j_per_token"),
)
"""Predictions at each point, by dotted name."""

_ORDER = ("model", "hardware", "weights", "kv", "engine", "workload", "overrides", "memory")
"""Fields that rows begin with."""


def _with_arrays(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same result with every array changed."""
    if is_array(value):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _with_arrays(each, change) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: _with_arrays(part, change) for name, part in parts.items()})
    return value


def _arrays(sweep: Sweep) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every array with the path of its value, in the order of rows."""
    names = [field.name for field in fields(sweep)]
    for name in (*_ORDER, *(each for each in names if each not in _ORDER)):
        yield from _below(getattr(sweep, name), (name,))


def _below(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if is_array(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _below(each, (*path, key))
    elif isinstance(value, Prediction | SweepPhase | SweepMemory):
        for field in fields(value):
            yield from _below(getattr(value, field.name), (*path, field.name))


def _listed(array: Any) -> list[Any]:
    """Plain values in order; None for what is not known."""
    return [None if value != value else value for value in array.ravel().tolist()]


def _label(value: Any) -> Any:
    """A value of an axis as JSON can hold it."""
    return value if value is None or isinstance(value, str | int | float) else str(getattr(value, "id", value))
