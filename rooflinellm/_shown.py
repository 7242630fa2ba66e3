"""How an object shows itself on one line: the key figures with their units, in place of every field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite, isnan
from typing import Any

from rooflinellm import units

LONGEST = 200
"""Most characters of a line; what is beyond is left out. [-]"""

FEW = 6
"""Most items of a collection that are written out. [-]"""

_WRITERS: Mapping[str, Callable[[float], str]] = {
    "bytes_per_s": lambda value: f"{units.significant(value / units.GB, 4)} GB/s",
    "flop_per_s": lambda value: f"{units.significant(value / units.TERA)} TFLOP/s",
    "tokens_per_s": lambda value: f"{units.significant(value)} tokens/s",
    "per_s": lambda value: f"{units.significant(value)} /s",
    "j_per_token": lambda value: f"{units.significant(value)} J",
    "bytes": units.format_gib,
    "tokens/s": lambda value: f"{units.significant(value)} tokens/s",
    "flops": lambda value: f"{units.significant(value / units.GIGA)} GFLOP",
    "J": lambda value: f"{units.significant(value)} J",
    "w": lambda value: f"{units.significant(value)} W",
    "s": units.format_seconds,
    "ms": lambda value: f"{units.significant(value)} ms",
}
"""How a number reads by the end of its name, or by its unit; the longest end first."""


def in_unit(value: Any, unit: str) -> str:
    """A number with its unit; the first and the last of an array.

    Parameters
    ----------
    value : float or ndarray
        In base units.
    unit : str
        A unit, or a name that ends in one, as ``ttft_s``.
    """
    if getattr(value, "ndim", 0):
        flat = value.ravel()
        if not flat.size:
            return "none"
        return in_unit(flat[0].item(), unit) + ("" if flat.size == 1 else f" … {in_unit(flat[-1].item(), unit)}")
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if not isfinite(value):
        return "unknown" if isnan(value) else str(value)
    end = next((end for end in _WRITERS if unit == end or unit.endswith(f"_{end}")), None)
    if end is not None and value >= 0:
        return _WRITERS[end](value)
    if isinstance(value, int):
        return f"{value:,}"
    return ("−" if value < 0 else "") + units.significant(abs(value))


def one_line(value: Any) -> str:
    """A result or a specification: its class and its own figures, those of what it holds by their names only.

    It stands in the classes as ``__repr__ = one_line``, which a dataclass then keeps.
    """
    return line(type(value).__name__, _parts(value))


def line(name: str, parts: Iterator[str] | Sequence[str]) -> str:
    """``Name(part, part)``, at most `LONGEST` characters long."""
    said: list[str] = []
    room = LONGEST - len(name) - len("(, …)")
    for part in parts:
        text = " ".join(part.split())
        room -= len(text) + len(", ")
        if room < 0:
            said.append("…")
            break
        said.append(text)
    return f"{name}({', '.join(said)})"


def _parts(value: Any) -> Iterator[str]:
    for name, usual in _fields(value):
        held = getattr(value, name)
        if name.startswith("_") or name == "schema_version" or _empty(held) or held is usual:
            continue
        text = _held(held, name)
        if text:
            yield text if name in ("id", "name") else f"{name}={text}"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Names of a dataclass, a named tuple or a specification, each with the value that it has where none is given."""
    if is_dataclass(value):
        yield from ((each.name, each.default) for each in fields(value))
    elif isinstance(value, tuple):
        defaults = getattr(type(value), "_field_defaults", {})
        yield from ((name, defaults.get(name, MISSING)) for name in getattr(type(value), "_fields", ()))
    else:
        yield from ((name, each.default) for name, each in type(value).model_fields.items())


def _empty(held: Any) -> bool:
    return held is None or (isinstance(held, str | Sequence | Mapping) and not held)


def _held(held: Any, name: str) -> str:
    """A field's value in few words."""
    if isinstance(held, str):
        return repr(held)
    if isinstance(held, bool | int | float) or hasattr(held, "dtype"):
        return in_unit(held, name)
    if isinstance(held, Mapping | Sequence):
        text = repr(held) if len(held) <= FEW else ""
        return text if 0 < len(text) <= LONGEST // 3 else f"{len(held):,} of them"
    for known in ("id", "expected", "value"):
        found = getattr(held, known, None)
        if found is not None and not callable(found):
            return repr(found) if isinstance(found, str) else in_unit(found, name)
    names = [getattr(getattr(held, each, None), "id", None) for each in ("model", "hardware")]
    return "" if None in names else " on ".join(map(str, names))
