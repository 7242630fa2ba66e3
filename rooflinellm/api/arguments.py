"""Check arguments: a clear error for what is impossible, plain numbers or arrays for the rest."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rooflinellm._numeric import is_array, maximum
from rooflinellm.api.options import DEFAULTS, Options
from rooflinellm.errors import InvalidRequest, met
from rooflinellm.specs.common import is_identifier

MAX_SECONDS = 1e9
LONGEST = 10**30
SMALLEST, LARGEST = 1e-12, 1e15
"""Limits of numbers above 0, so that no product or quotient of a few of them overflows."""

_COUNTS = ("draft_steps", "ubatch", "state_copies")

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
        raise InvalidRequest(f"{f'{value:,}' if abs(value) < LONGEST else met(value)} is not {allowed}", where=name)
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
        raise InvalidRequest(f"{met(value)} is not {allowed}", where=name)
    array = _array(name, value, allowed)
    bad = ~((array >= 0) & (array <= MAX_SECONDS))
    if bad.any():
        raise InvalidRequest(f"{array[bad].flat[0]:g} is not {allowed}", where=name)
    return float(array) if array.ndim == 0 else array


def share(name: str, value: Any) -> float:
    """A number from 0 to 1; None is 0."""
    if value is None:
        return 0.0
    if _is_number(value) and 0 <= value <= 1:
        return float(value)
    raise InvalidRequest(f"{met(value)} is not a number from 0 to 1", where=name)


def positive(name: str, value: Any) -> float:
    """A number above 0, neither tiny nor huge."""
    if _is_number(value) and SMALLEST <= value <= LARGEST:
        return float(value)
    limits = f", from {SMALLEST:g} to {LARGEST:g}" if isinstance(value, int | float) and value > 0 else ""
    raise InvalidRequest(f"{met(value)} is not a number above 0{limits}", where=name)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def one_of(name: str, value: Text, allowed: Sequence[str]) -> Text:
    """One of some words."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidRequest(f"{met(value)} is not one of {', '.join(allowed)}", where=name)
    return value


def name_of(name: str, value: Any) -> str:
    """A name: text that is not empty."""
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidRequest(f"{met(value)} is no name", where=name)


def id_of(name: str, value: Any) -> str:
    """An id as entries have: small letters and digits, with dots, dashes or plus signs between."""
    if isinstance(value, str) and is_identifier(value):
        return value
    raise InvalidRequest(f"{met(value)} is no id: small letters and digits, '-', '.', '_' or '+' between", where=name)


def path_of(name: str, value: Any) -> Path | None:
    """A path, or None."""
    if value is None or isinstance(value, str | os.PathLike):
        return None if value is None else Path(value)
    raise InvalidRequest(f"{met(value)} is no path", where=name)


def single_values(request: Mapping[str, Any], instead: str = "") -> None:
    """Refuse several values of an argument, but of `acceptance`, which may be a list; and overrides by arrays."""
    overrides = request.get("overrides")
    several = (list, tuple, range)
    for name, value in (*request.items(), *(overrides.items() if isinstance(overrides, Mapping) else ())):
        if is_array(value) or (isinstance(value, several) and name != "acceptance"):
            raise InvalidRequest(f"give one value{instead and '; '}{instead}", where=name)


def together(arguments: Mapping[str, Any]) -> None:
    """Refuse arrays that do not broadcast together, naming their shapes."""
    arrays = {name: value for name, value in arguments.items() if is_array(value) or isinstance(value, list | tuple)}
    if len(arrays) < 2:
        return
    import numpy as np

    try:
        shapes = {name: np.shape(value) for name, value in arrays.items()}
    except ValueError as error:
        raise InvalidRequest("a list of lists of unequal length", where="arguments") from error
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InvalidRequest(f"arrays of these shapes do not broadcast: {listed}", where="arguments") from error


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if isinstance(value, bool):
        return value
    raise InvalidRequest(f"{met(value)} is neither True nor False", where=name)


def sequence(name: str, value: Any) -> list[Any]:
    """A list, a tuple, a range or an array of one dimension, as plain values."""
    if getattr(value, "ndim", 0) == 1:
        return list(value.tolist())
    if isinstance(value, list | tuple | range):
        return list(value)
    raise InvalidRequest(f"{met(value)} is no list", where=name)


def options_of(value: Any) -> Options:
    """The options given, or the default ones."""
    if value is None:
        return DEFAULTS
    if isinstance(value, Options):
        single_values({name: getattr(value, name) for name in ("routing_skew", "verify_amortisation", *_COUNTS)})
        for name in ("swa_full", "kv_on_host", "must_fit"):
            flag(name, getattr(value, name))
        if value.kv_unified is not None:
            flag("kv_unified", value.kv_unified)
        for name in ("draft_weights", "first_token", "overlap", "mla", "overcommit"):
            if (word := getattr(value, name)) is not None:  # whether it is one of those allowed is looked at later
                name_of(name, word)
        for name in ("reserved_gib", "power_limit_w"):
            if (number := getattr(value, name)) is not None and not _is_number(number):
                raise InvalidRequest(f"{met(number)} is not a number", where=name)
        return value
    raise InvalidRequest(f"{met(value)} is no rooflinellm.Options", where="options")


def overrides_of(value: Any) -> Mapping[str, Any] | None:
    """Values by path, None where there are none."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(path, str) for path in value):
        raise InvalidRequest("give a mapping of paths to values", where="overrides")
    return value or None


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
        raise InvalidRequest(f"{met(value)} is not {allowed}", where=name) from error
