"""Arithmetic that takes Python numbers and numpy arrays alike.

Python integers stay integers, so counts of single requests are exact however large; numpy is touched only when an
argument is an array.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numeric: TypeAlias = float | NDArray[Any]
else:
    Numeric = Any


_PLAIN = frozenset({int, float, bool})


def is_array(value: Any) -> bool:
    """Tell whether a value is a numpy array (or scalar) rather than a Python number."""
    return type(value) not in _PLAIN and hasattr(value, "dtype")


def minimum(a: Numeric, b: Numeric) -> Any:
    """The smaller, elementwise."""
    if (type(a) in _PLAIN or not hasattr(a, "dtype")) and (type(b) in _PLAIN or not hasattr(b, "dtype")):
        return a if a < b else b
    import numpy as np

    return np.minimum(a, b)


def maximum(a: Numeric, b: Numeric) -> Any:
    """The larger, elementwise."""
    if (type(a) in _PLAIN or not hasattr(a, "dtype")) and (type(b) in _PLAIN or not hasattr(b, "dtype")):
        return a if a > b else b
    import numpy as np

    return np.maximum(a, b)


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`, elementwise."""
    if type(condition) is bool:
        return a if condition else b
    if is_array(condition) or is_array(a) or is_array(b):
        import numpy as np

        return np.where(condition, a, b)
    return a if condition else b


def ceil_div(a: Numeric, b: Numeric) -> Any:
    """Division rounded up, exact for integers."""
    return -(-a // b)


def round_up(a: Numeric, block: int) -> Any:
    """The next multiple of `block`."""
    return ceil_div(a, block) * block


def divide(a: Numeric, b: Numeric, *, empty: float = 0.0) -> Any:
    """`a / b`, and `empty` where `b` is 0: a rate over no time, a share of nothing."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a / b if b else empty
    if is_array(a) or is_array(b):
        import numpy as np

        if np.all(b):
            return a / b
        a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
        return np.divide(a, b, out=np.full(a.shape, empty), where=b != 0)
    return a / b if b else empty


def total(values: Iterable[Any]) -> Any:
    """The sum of numbers and arrays, elementwise; those of equal shape first, so that few sums are of the full one."""
    values = tuple(values)
    if len(values) == 1:
        return values[0]
    if _PLAIN.issuperset(map(type, values)):
        return sum(values)
    plain: Any = 0
    arrays = []
    for value in values:
        if type(value) in _PLAIN or not hasattr(value, "shape"):
            plain += value
        else:
            arrays.append(value)
    if not arrays:
        return plain
    by_shape: dict[tuple[int, ...], Any] = {}
    for value in arrays:
        known = by_shape.get(value.shape)
        by_shape[value.shape] = value if known is None else known + value
    for array in sorted(by_shape.values(), key=lambda each: each.size):
        plain = array if type(plain) in _PLAIN and plain == 0 else plain + array
    return plain


def every(condition: Any) -> bool:
    """Tell whether a condition holds everywhere."""
    return bool(condition.all()) if is_array(condition) else bool(condition)


def anywhere(condition: Any) -> bool:
    """Tell whether a condition holds somewhere."""
    return bool(condition.any()) if is_array(condition) else bool(condition)


def largest(values: Iterable[Any]) -> Any:
    """The largest of some numbers and of all elements of some arrays; 0 of none."""
    return max((value.max() if is_array(value) else value for value in values), default=0)


def most(values: Iterable[Any]) -> Any:
    """The largest of some numbers or arrays, elementwise; 0 of none."""
    found: Any = None
    for value in values:
        found = value if found is None else maximum(found, value)
    return 0.0 if found is None else found


def mean(value: Any) -> Any:
    """The mean of an array's elements, or the number itself."""
    return value.mean() if is_array(value) else value


def plain(value: Any) -> Any:
    """Turn numpy values into what JSON can hold."""
    return value.tolist() if is_array(value) else value
