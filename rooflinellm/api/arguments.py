"""Check arguments: a clear error for what is impossible, plain numbers or arrays for the rest."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rooflinellm._numeric import is_array, maximum
from rooflinellm.errors import InvalidRequest

MAX_SECONDS = 1e9

Text = TypeVar("Text", bound=str)


def count(name: str, value: Any, least: int, most: int) -> Any:
    """A whole number, or an array of them, within its limits; a single one becomes an `int`, an array float64.

    Raises
    ------
    InvalidRequest
        Naming the argument, the value met and what is allowed.
    """
    allowed = f"a whole number from {least:,} to {most:,}"
    if type(value) is int:
        if least <= value <= most:
            return value
        raise InvalidRequest(f"{value:,} is not {allowed}", where=name)
    array = _array(name, value, allowed)
    bad = ~((array >= least) & (array <= most) & (array == array.round()))
    if bad.any():
        raise InvalidRequest(f"{array[bad].flat[0]:g} is not {allowed}", where=name)
    return int(array) if array.ndim == 0 else array


def scalar_count(name: str, value: Any, most: int = 10**9) -> int:
    """A single whole number from 1 on; errors as in `count`."""
    checked = count(name, value, 1, most)
    if is_array(checked):
        raise InvalidRequest("an array is not allowed here; give one whole number", where=name)
    return int(checked)


def seconds(name: str, value: Any) -> Any:
    """A duration, or an array of them, of at least 0. [s]"""
    allowed = f"a duration in seconds from 0 to {MAX_SECONDS:g}"
    if type(value) in (int, float):
        if 0 <= value <= MAX_SECONDS:
            return float(value)
        raise InvalidRequest(f"{value} is not {allowed}", where=name)
    array = _array(name, value, allowed)
    bad = ~((array >= 0) & (array <= MAX_SECONDS))
    if bad.any():
        raise InvalidRequest(f"{array[bad].flat[0]:g} is not {allowed}", where=name)
    return float(array) if array.ndim == 0 else array


def share(name: str, value: Any) -> float:
    """A number from 0 to 1; None is 0."""
    if value is None:
        return 0.0
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if 0 <= number <= 1:
            return number
    raise InvalidRequest(f"{value!r:.60} is not a number from 0 to 1", where=name)


def positive(name: str, value: Any) -> float:
    """A finite number above 0."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if 0 < number < math.inf:
            return number
    raise InvalidRequest(f"{value!r:.60} is not a number above 0", where=name)


def one_of(name: str, value: Text, allowed: Sequence[str]) -> Text:
    """One of some words."""
    if value not in allowed:
        raise InvalidRequest(f"{value!r:.60} is not one of {', '.join(allowed)}", where=name)
    return value


def name_of(name: str, value: Any) -> str:
    """A name: text that is not empty."""
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidRequest(f"{value!r:.60} is no name", where=name)


def single_values(request: Mapping[str, Any]) -> None:
    """Refuse several values of an argument, but of `acceptance`, which may be a list; and overrides by arrays."""
    overrides = request.get("overrides")
    for name, value in (*request.items(), *(overrides.items() if isinstance(overrides, Mapping) else ())):
        if is_array(value) or (isinstance(value, list | tuple) and name != "acceptance"):
            raise InvalidRequest("give one value", where=name)


def together(arguments: Mapping[str, Any]) -> None:
    """Refuse arrays that do not broadcast together, naming their shapes."""
    arrays = {name: value for name, value in arguments.items() if is_array(value) or isinstance(value, list | tuple)}
    if len(arrays) < 2:
        return
    import numpy as np

    shapes = {name: np.shape(value) for name, value in arrays.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InvalidRequest(f"arrays of these shapes do not broadcast: {listed}", where="arguments") from error


def at_least_one(value: Any) -> Any:
    """The value, at least 1."""
    return maximum(value, 1)


def shown(value: Any) -> str:
    """A number, or the largest of an array, as text."""
    return f"{int(value.max() if is_array(value) else value):,}"


def _array(name: str, value: Any, allowed: str) -> Any:
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isfinite(value):
        raise InvalidRequest(f"{value} is not {allowed}", where=name)
    import numpy as np

    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or array.size == 0:
            raise TypeError
        return array.astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"{value!r:.60} is not {allowed}", where=name) from error
