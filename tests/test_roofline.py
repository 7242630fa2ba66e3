"""The roofline itself: pure functions, against the definition, against loops, and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from rooflinellm import roofline
from rooflinellm.errors import RooflineError

rates = st.floats(1e6, 1e18)
work = st.floats(0, 1e20)
operators = st.lists(st.tuples(work, work), min_size=1, max_size=20)


def split(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    flops, read = np.array(pairs).T
    return flops, read


# ------------------------------------------------------------------------------------------- ridge point and attainable


def test_ridge_point_is_peak_over_bandwidth() -> None:
    assert roofline.ridge_point(100e12, 500e9) == 200.0


def test_attainable_below_at_and_above_the_ridge() -> None:
    peak, bandwidth = 128e12, 512e9  # powers of two apart, so that halves and doubles are exact
    ridge = roofline.ridge_point(peak, bandwidth)
    assert roofline.attainable(0, peak, bandwidth) == 0
    assert roofline.attainable(ridge / 2, peak, bandwidth) == peak / 2
    assert roofline.attainable(ridge, peak, bandwidth) == peak == bandwidth * ridge
    assert roofline.attainable(ridge * 2, peak, bandwidth) == peak
    assert roofline.attainable(math.inf, peak, bandwidth) == peak


@given(peak=rates, bandwidth=rates, intensity=st.floats(0, 1e12))
def test_attainable_is_the_lower_of_both_roofs(peak: float, bandwidth: float, intensity: float) -> None:
    found = roofline.attainable(intensity, peak, bandwidth)
    assert found == min(peak, bandwidth * intensity)


def test_attainable_takes_arrays() -> None:
    found = roofline.attainable(np.array([1.0, 10.0, 100.0]), 50.0, 2.0)
    assert_allclose(found, [2.0, 20.0, 50.0], rtol=0)
    found = roofline.attainable(10.0, np.array([5.0, 50.0]), np.array([[1.0], [3.0]]))
    assert_allclose(found, [[5.0, 10.0], [5.0, 30.0]], rtol=0)


# -------------------------------------------------------------------------------------------------- time in three forms


def test_time_of_one_operator() -> None:
    # 3e12 FLOP at 1e12 FLOP/s take 3 s, 2e9 bytes at 1e9 byte/s take 2 s.
    assert roofline.time_s(3e12, 2e9, 1e12, 1e9) == 3.0
    assert roofline.time_s(3e12, 2e9, 1e12, 1e9, overlap="operator") == 3.0
    assert roofline.time_s(3e12, 2e9, 1e12, 1e9, overlap="none") == 5.0


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_time_of_several_operators(kind: type) -> None:
    # Seconds of compute 3, 1 and of memory 2, 4: max(4, 6), 3 + 4, and 4 + 6.
    flops, read = kind([3e12, 1e12]), kind([2e9, 4e9])
    assert roofline.time_s(flops, read, 1e12, 1e9) == 6.0
    assert roofline.time_s(flops, read, 1e12, 1e9, overlap="operator") == 7.0
    assert roofline.time_s(flops, read, 1e12, 1e9, overlap="none") == 10.0


def test_time_sums_along_the_last_axis_only() -> None:
    flops, read = np.array([[3e12, 1e12], [5e12, 5e12]]), np.array([[2e9, 4e9], [1e9, 1e9]])
    assert_allclose(roofline.time_s(flops, read, 1e12, 1e9), [6.0, 10.0], rtol=0)
    assert_allclose(roofline.time_s(flops, read, 1e12, 1e9, overlap="operator"), [7.0, 10.0], rtol=0)
    assert_allclose(roofline.time_s(flops, read, 1e12, 1e9, overlap="none"), [10.0, 12.0], rtol=0)


def test_each_operator_may_have_its_own_peak() -> None:
    # 4e12 FLOP at 1e12 and 4e12 FLOP at 4e12: 4 s and 1 s.
    peaks = np.array([1e12, 4e12])
    assert roofline.time_s([4e12, 4e12], [0.0, 0.0], peaks, 1e9) == 5.0


@given(pairs=operators, peak=rates, bandwidth=rates)
def test_more_overlap_is_never_slower(pairs: list[tuple[float, float]], peak: float, bandwidth: float) -> None:
    flops, read = split(pairs)
    phase, operator, none = (
        roofline.time_s(flops, read, peak, bandwidth, overlap=overlap) for overlap in ("phase", "operator", "none")
    )
    slack = 1 + 1e-12
    assert phase <= operator * slack
    assert operator <= none * slack
    assert none <= 2 * phase * slack


@given(pairs=operators, peak=rates, bandwidth=rates)
def test_time_is_the_definition(pairs: list[tuple[float, float]], peak: float, bandwidth: float) -> None:
    flops, read = split(pairs)
    compute = [f / peak for f, _ in pairs]
    memory = [b / bandwidth for _, b in pairs]
    expected = {
        "phase": max(math.fsum(compute), math.fsum(memory)),
        "operator": math.fsum(map(max, compute, memory)),
        "none": math.fsum(compute + memory),
    }
    for overlap, seconds in expected.items():
        assert_allclose(roofline.time_s(flops, read, peak, bandwidth, overlap=overlap), seconds, rtol=1e-12)


@given(flops=st.floats(1, 1e20), read=st.floats(1, 1e20), peak=rates, bandwidth=rates)
def test_time_and_attainable_are_one_model(flops: float, read: float, peak: float, bandwidth: float) -> None:
    rate = flops / roofline.time_s(flops, read, peak, bandwidth)
    assert_allclose(rate, roofline.attainable(flops / read, peak, bandwidth), rtol=1e-12)


@given(flops=work, read=work, peak=rates, bandwidth=rates, factor=st.floats(1, 1e3))
def test_a_better_machine_is_never_slower(
    flops: float, read: float, peak: float, bandwidth: float, factor: float
) -> None:
    for overlap in ("phase", "operator", "none"):
        base = roofline.time_s(flops, read, peak, bandwidth, overlap=overlap)
        assert roofline.time_s(flops, read, peak * factor, bandwidth, overlap=overlap) <= base
        assert roofline.time_s(flops, read, peak, bandwidth * factor, overlap=overlap) <= base


def test_an_unknown_overlap_is_refused() -> None:
    with pytest.raises(RooflineError, match="phase, operator, none"):
        roofline.time_s(1.0, 1.0, 1.0, 1.0, overlap="some")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------- bound


@pytest.mark.parametrize(
    ("compute", "memory", "link", "expected"),
    [
        (2.0, 1.0, 0.0, "compute"),
        (1.0, 2.0, 0.0, "memory"),
        (1.0, 1.0, 0.0, "memory"),
        (0.0, 0.0, 0.0, "memory"),
        (1.0, 2.0, 3.0, "link"),
        (2.0, 1.0, 3.0, "link"),
        (2.0, 1.0, 2.0, "compute"),
        (1.0, 2.0, 2.0, "memory"),
    ],
)
def test_bound_names_the_slowest_resource(compute: float, memory: float, link: float, expected: str) -> None:
    assert roofline.bound(compute, memory, link) == expected
    arrays = roofline.bound(np.array([compute]), np.array([memory]), np.array([link]))
    assert arrays.tolist() == [expected]


def test_bound_broadcasts() -> None:
    found = roofline.bound(np.array([1.0, 3.0]), 2.0, np.array([[0.0], [5.0]]))
    assert found.tolist() == [["memory", "compute"], ["link", "link"]]


@given(flops=st.floats(1, 1e20), read=st.floats(1, 1e20), peak=rates, bandwidth=rates)
def test_bound_agrees_with_the_ridge_point(flops: float, read: float, peak: float, bandwidth: float) -> None:
    ratio = (flops / read) / roofline.ridge_point(peak, bandwidth)
    named = roofline.bound(flops / peak, read / bandwidth)
    if ratio > 1 + 1e-9:
        assert named == "compute"
    elif ratio < 1 - 1e-9:
        assert named == "memory"


# ----------------------------------------------------------------------------------------------- sum over growing steps


def loop(count: int, a: float, a_step: float, b: float, b_step: float) -> float:
    return math.fsum(max(a + i * a_step, b + i * b_step) for i in range(count))


starts = st.floats(0, 1e3)
steps = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))


@given(count=st.integers(0, 300), a=starts, a_step=steps, b=starts, b_step=steps)
def test_sum_of_max_is_the_loop(count: int, a: float, a_step: float, b: float, b_step: float) -> None:
    assert_allclose(
        roofline.sum_of_max(count, a, a_step, b, b_step), loop(count, a, a_step, b, b_step), rtol=1e-9, atol=1e-9
    )


@given(
    count=st.integers(0, 60),
    a=st.integers(-50, 50),
    a_step=st.integers(-9, 9),
    b=st.integers(-50, 50),
    b_step=st.integers(-9, 9),
)
def test_sum_of_max_of_whole_numbers_is_exact(count: int, a: int, a_step: int, b: int, b_step: int) -> None:
    # Whole numbers cross at whole steps and between them, meet, run in parallel, rise and fall.
    assert roofline.sum_of_max(count, a, a_step, b, b_step) == loop(count, a, a_step, b, b_step)


@pytest.mark.parametrize(
    ("a", "a_step", "b", "b_step"),
    [
        (10, 1, 0, 3),  # meet at step 5
        (0, 3, 10, 1),  # the same, the other way round
        (5, 1, 5, 2),  # meet at the first step
        (0, 1, 9, 2),  # never meet
        (9, 2, 0, 1),
        (4, 1, 4, 1),  # the same line
        (7, 1, 4, 1),  # parallel
        (4, 1, 7, 1),
        (0, 0, 3, 0),  # constant
    ],
)
@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 40])
def test_sum_of_max_where_the_lines_meet(a: int, a_step: int, b: int, b_step: int, count: int) -> None:
    assert roofline.sum_of_max(count, a, a_step, b, b_step) == loop(count, a, a_step, b, b_step)


def test_sum_of_max_takes_arrays() -> None:
    count, a = np.array([0, 3, 17]), np.array([[1.0], [40.0]])
    found = roofline.sum_of_max(count, a, 0.5, 2.0, np.array([1.5, 0.5, 2.5]))
    expected = [[loop(n, x, 0.5, 2.0, y) for n, y in zip(count, (1.5, 0.5, 2.5), strict=True)] for x in (1.0, 40.0)]
    assert_allclose(found, expected, rtol=1e-12)


def test_sum_of_max_of_many_steps_is_fast_and_exact() -> None:
    # 1e9 steps of max(i, n/2): n/2 steps of n/2, then the series from n/2 to n - 1.
    n = 10**9
    half = n // 2
    assert roofline.sum_of_max(n, 0, 1, half, 0) == half * half + (half + n - 1) * half / 2


@given(count=st.integers(1, 200), a=starts, a_step=steps, b=starts, b_step=steps)
def test_sum_of_max_lies_between_its_bounds(count: int, a: float, a_step: float, b: float, b_step: float) -> None:
    series = [count * first + step * count * (count - 1) / 2 for first, step in ((a, a_step), (b, b_step))]
    found = roofline.sum_of_max(count, a, a_step, b, b_step)
    assert max(series) * (1 - 1e-12) <= found <= sum(series) * (1 + 1e-12)


def test_lines_that_all_but_run_in_parallel_do_not_derail_the_sum() -> None:
    # Their crossing lies beyond any step, and beyond what a float holds: the larger line wins throughout.
    assert roofline.sum_of_max(4, 1.0, 5e-324, 2.0, 0.0) == 8.0
    assert roofline.sum_of_max(4, 2.0, 0.0, 1.0, 5e-324) == 8.0
