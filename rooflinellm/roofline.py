"""The roofline model: ridge point, attainable rate, time and bound. Nothing here knows what a language model is.

All functions are pure, take numbers or arrays, and work in FLOP, bytes and seconds.

References
----------
Williams, Waterman, Patterson (2009), "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52(4).
"""

from __future__ import annotations

from typing import Any, Literal

from rooflinellm._numeric import Numeric, is_array, maximum, minimum, where
from rooflinellm.errors import InvalidRequest

Overlap = Literal["phase", "operator", "none"]


def ridge_point(peak: Numeric, bandwidth: Numeric) -> Any:
    """Arithmetic intensity from which on compute is the limit: peak / bandwidth.

    Parameters
    ----------
    peak : array_like
        Peak compute rate. [FLOP/s]
    bandwidth : array_like
        Memory bandwidth. [byte/s]

    Returns
    -------
    float or ndarray
        [FLOP/byte]
    """
    return peak / bandwidth


def attainable(intensity: Numeric, peak: Numeric, bandwidth: Numeric) -> Any:
    """Compute rate that a roofline allows: min(peak, bandwidth x intensity).

    Parameters
    ----------
    intensity : array_like
        Arithmetic intensity, FLOPs over bytes moved. [FLOP/byte]
    peak : array_like
        Peak compute rate. [FLOP/s]
    bandwidth : array_like
        Memory bandwidth. [byte/s]

    Returns
    -------
    float or ndarray
        [FLOP/s]
    """
    return minimum(peak, bandwidth * intensity)


def time_s(flops: Any, read_bytes: Any, peak: Numeric, bandwidth: Numeric, *, overlap: Overlap = "phase") -> Any:
    """Time of work that needs compute and memory, in one of the three textbook forms.

    ``phase``
        max(sum F / P, sum B / b): everything overlaps with everything; a bound.
    ``operator``
        sum max(F / P, B / b): each operator overlaps with itself only; the shape of an expectation.
    ``none``
        sum (F / P + B / b): nothing overlaps.

    Parameters
    ----------
    flops, read_bytes : array_like
        Work of each operator, along the last axis; a number is one operator. [FLOP], [byte]
    peak, bandwidth : array_like
        Rates; they broadcast with the operators. [FLOP/s], [byte/s]
    overlap : {'phase', 'operator', 'none'}
        What may run at the same time.

    Returns
    -------
    float or ndarray
        [s]

    Raises
    ------
    InvalidRequest
        For another `overlap`.
    """
    compute, memory = _ratio(flops, peak), _ratio(read_bytes, bandwidth)
    if overlap == "phase":
        return maximum(_total(compute), _total(memory))
    if overlap == "operator":
        return _total(maximum(compute, memory))
    if overlap == "none":
        return _total(compute + memory)
    raise InvalidRequest(f"overlap '{overlap}' is not one of phase, operator, none", where="overlap")


def _ratio(amount: Any, rate: Numeric) -> Any:
    if isinstance(amount, list | tuple):
        import numpy as np

        return np.asarray(amount, dtype=float) / rate
    return amount / rate


def _total(value: Any) -> Any:
    return value.sum(axis=-1) if is_array(value) and value.ndim else value


BOUNDS = ("memory", "compute", "link", "overhead")
"""What can limit work."""


def bound(compute_s: Numeric, memory_s: Numeric, link_s: Numeric = 0.0, *, overhead: Any = False) -> Any:
    """Name the resource that takes longest: ``compute``, ``memory`` or ``link``; at a tie, ``memory``.

    Parameters
    ----------
    compute_s, memory_s, link_s : array_like
        Time each resource needs for its whole work. [s]
    overhead : array_like of bool
        Where fixed costs decide instead: ``overhead``.
    """
    code: Any = 1 * (compute_s > memory_s)
    if is_array(link_s) or link_s > 0:
        code = where(link_s > maximum(compute_s, memory_s), 2, code)
    if overhead is not False:
        code = where(overhead, 3, code)
    if not is_array(code):
        return BOUNDS[code]
    import numpy as np

    return np.array(BOUNDS)[code]


def sum_of_max(count: Numeric, a: Numeric, a_step: Numeric, b: Numeric, b_step: Numeric) -> Any:
    """Sum over i = 0 … count-1 of max(a + i a_step, b + i b_step), in closed form.

    Work that grows linearly from step to step is limited by one resource before the crossing of the two lines and by
    the other behind it; each part is an arithmetic series, n (first + last) / 2.

    Parameters
    ----------
    count : array_like
        Number of steps, at least 0. [-]
    a, b : array_like
        The two quantities at step 0.
    a_step, b_step : array_like
        What each grows by from step to step.

    Returns
    -------
    float or ndarray
        In the unit of `a` and `b`.
    """
    slope = a_step - b_step
    gap = b - a
    flat = slope == 0
    crossing = gap / where(flat, 1.0, slope)
    # `a` is the larger before the crossing when it grows more slowly, and behind it when it grows faster.
    head = _ceil(minimum(maximum(crossing, 0), count))
    head_is_a = where(flat, gap <= 0, slope < 0)
    head = where(flat, count, head)
    sum_a_head, sum_b_head = _series(head, a, a_step), _series(head, b, b_step)
    sum_a, sum_b = _series(count, a, a_step), _series(count, b, b_step)
    return where(head_is_a, sum_a_head + sum_b - sum_b_head, sum_b_head + sum_a - sum_a_head)


def _series(count: Numeric, first: Numeric, step: Numeric) -> Any:
    return count * first + step * (count * (count - 1) / 2)


def _ceil(value: Numeric) -> Any:
    return -(-value // 1)
