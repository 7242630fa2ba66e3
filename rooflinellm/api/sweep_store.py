"""The values of a sweep while it is evaluated: columns that are filled block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np

from rooflinellm._numeric import is_array
from rooflinellm.api.sweep_result import QUANTITIES
from rooflinellm.results import Estimate

KINDS = ("ideal", "expected", "low", "high")
EXACT = 2**53
"""Whole numbers up to here are exact in 64-bit floating point."""
LARGEST = 2.0**63
BYTES = ("resident_weight_bytes", "kv_allocated_bytes", "total_bytes", "usable_bytes")
_PREDICTIONS = tuple((path, attrgetter(path)) for path in QUANTITIES)


def blocks(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Parts of a grid of at most so many points each: the last axes whole, as far as that goes, the others in parts.

    Parameters
    ----------
    shape : sequence of int
        Lengths of the axes. [-]
    most : int
        Points of a block. [-]

    Yields
    ------
    tuple of slice
        Along each axis.
    """
    steps: list[int] = []
    room = max(most, 1)
    for length in reversed(shape):
        parts = math.ceil(length / max(min(length, room), 1))
        steps.insert(0, math.ceil(length / parts))  # parts of nearly the same length
        room = room // length if parts == 1 else 1
    starts = (range(0, length, step) for length, step in zip(shape, steps, strict=True))
    for first in product(*starts):
        yield tuple(
            slice(start, min(start + step, length)) for start, step, length in zip(first, steps, shape, strict=True)
        )


class Store:
    """Columns of a value for each plan and point.

    Parameters
    ----------
    plans : int
        Plans. [-]
    shape : tuple of int
        Lengths of the axes of a plan's points. [-]
    """

    def __init__(self, plans: int, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._columns: dict[str, Any] = {}
        self._one = (plans, *(1 for _ in shape))
        self._full = (plans, *shape)
        self._filled: dict[str, set[int]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in the order in which they were first filled."""
        return tuple(self._columns)

    def column(self, name: str) -> Any:
        """An array of plans by points, of length 1 along axes where it does not depend on the point."""
        array = self._columns[name]
        return tightened(array) if name in self._filled and not name.startswith("overrides.") else array

    def put(self, row: int, box: tuple[Any, ...], answer: Estimate, overrides: Mapping[str, Any]) -> None:
        """Keep an answer at some points of a plan."""
        for path, of in _PREDICTIONS:
            prediction = of(answer)
            for kind in KINDS:
                number = math.nan if prediction is None else getattr(prediction, kind)
                self._numbers(f"{path}.{kind}", row, box, number, float)
        for name in ("prefill.bound", "decode.bound"):
            self._numbers(name, row, box, attrgetter(name)(answer), "U8")
        for name in (*BYTES, "fits"):
            self._values(f"memory.{name}", row, box, getattr(answer.memory, name))
        names = {
            "model": answer.model.id,
            "hardware": answer.hardware.id,
            **{name: getattr(answer, name) for name in ("weights", "kv", "engine")},
            "basis": answer.decode.time_s.basis,
            "evidence": answer.evidence,
        }
        for name, value in names.items():
            self._values(name, row, box, value)
        for name, value in answer.workload.items():
            self._values(f"workload.{name}", row, box, value)
        for path, value in overrides.items():
            self._values(f"overrides.{path}", row, box, value)

    def _numbers(self, name: str, row: int, box: tuple[Any, ...], value: Any, kind: Any) -> None:
        """Keep what differs from point to point."""
        if name not in self._columns:
            if is_array(value) and (1, *value.shape) == self._full and value.dtype == np.dtype(kind):
                self._columns[name] = value[np.newaxis]  # it is the whole column
                return
            self._columns[name] = np.empty(self._full, dtype=kind)
        self._columns[name][(row, *box)] = value

    def _values(self, name: str, row: int, box: tuple[Any, ...], value: Any) -> None:
        """Keep what is often the same at all points of a plan."""
        if name not in self._columns:
            self._columns[name], self._filled[name] = np.empty(self._one, dtype=object), set()
        array, filled = self._columns[name], self._filled[name]
        several = is_array(value) and value.size > 1
        value = value if several or not is_array(value) else value.item()
        if array.shape == self._one and (several or (row in filled and array[row].item() != value)):
            array = self._columns[name] = _spread(array, filled, self._full, value)
        if array.shape == self._one:
            array[row] = value
            filled.add(row)
            return
        if array.dtype != object and not _holds(array.dtype, value):
            array = self._columns[name] = array.astype(object)
        array[(row, *box)] = value


def _spread(array: Any, filled: set[int], shape: tuple[int, ...], value: Any) -> Any:
    """A column with room for a value at each point: an array of numbers, where it holds nothing else."""
    kind = np.asarray(value).dtype
    held = {row: array[row].item() for row in filled}
    numeric = kind.kind in "bf" and all(_holds(kind, each) for each in held.values())
    found = np.empty(shape, dtype=kind if numeric else object)
    for row, each in held.items():
        found[row] = each
    return found


def _holds(kind: Any, value: Any) -> bool:
    """Whether an array of truth values or of 64-bit numbers can hold a value as it is."""
    own = np.asarray(value).dtype.kind
    if kind.kind == "b" or own not in "if":
        return bool(own == kind.kind)
    return is_array(value) or abs(value) <= EXACT


def tightened(array: Any) -> Any:
    """Whole numbers as int64 and truth values as bool, where there are no others; else as it is."""
    if array.dtype == object:
        kinds = {type(value) for value in array.ravel().tolist()}
        if kinds == {bool}:
            return array.astype(bool)
        if not kinds or not kinds <= {int, float}:
            return array
        array = array.astype(float)
    if array.dtype.kind == "f" and np.array_equal(array, np.rint(array)) and np.abs(array).max(initial=0) < LARGEST:
        return array.astype("int64")
    return array
