"""How fast this computer reads memory and multiplies matrices, measured with numpy.

References
----------
McCalpin, Memory Bandwidth and Machine Balance in Current High Performance Computers, 1995 (STREAM): arrays well beyond
the last cache, and the best of several runs, since a disturbance can only slow a run down.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from rooflinellm import units

CACHES_BEYOND = 4
"""The array that is read, over the last-level cache: what stays in it counts little. [-]"""
LEAST_BYTES, MOST_BYTES = 256 * units.MIB, 8 * units.GIB
"""Bounds of the array; the smaller one also stands for an unknown cache. [byte]"""
MEMORY_SHARE = 0.25
"""The array is at most this share of the memory that is free. [-]"""
LEAST_RUNS = 3
SMALLEST_MATRIX, LARGEST_MATRIX = 512, 4096
"""Rows of the square matrices, doubled from one to the other as time allows. [-]"""


@dataclass(frozen=True)
class Reading:
    """Rates of several runs.

    Attributes
    ----------
    rates : tuple of float
        One a run. [byte/s] or [FLOP/s]
    threads : int or None
        Threads that ran; None where BLAS chose.
    size : int
        What was read [byte], or rows of the matrices [-].
    others : mapping of int to float
        The best rates at other thread counts or sizes.
    """

    rates: tuple[float, ...]
    threads: int | None
    size: int
    others: Mapping[int, float] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """The rate of the fastest run."""
        return max(self.rates)

    @property
    def median(self) -> float:
        """The rate of the run in the middle."""
        return median(self.rates)


def array_bytes(cache_bytes: int | None, available_bytes: int | None) -> int:
    """The size of an array that caches do not hide. [byte]"""
    wanted = min(max(CACHES_BEYOND * (cache_bytes or 0), LEAST_BYTES), MOST_BYTES)
    return wanted if available_bytes is None else max(min(wanted, int(MEMORY_SHARE * available_bytes)), units.MIB)


def thread_counts(cores: int, threads: int) -> list[int]:
    """Thread counts to try: powers of two, one a core, and all."""
    counts = {1, min(cores, threads), threads}
    power = 2
    while power < threads:
        counts.add(power)
        power *= 2
    return sorted(counts)


def read_bandwidth(cores: int, threads: int, size: int, seconds: float) -> Reading:
    """The rate at which threads read an array, at the thread count that reads fastest.

    Each thread has a part of the array, which it has written itself (so that it lies near), and reduces it with a
    bitwise or: eight bytes an operation, nothing written, and numpy releases the interpreter's lock meanwhile.

    Parameters
    ----------
    cores, threads : int
        Cores, and threads to use at most. [-]
    size : int
        The array. [byte]
    seconds : float
        Time to spend; each thread count gets at least `LEAST_RUNS` runs. [s]
    """
    counts = thread_counts(cores, threads)
    found = {count: tuple(_read(count, size, seconds / len(counts))) for count in counts}
    fastest = max(counts, key=lambda count: max(found[count]))
    others = {count: max(rates) for count, rates in found.items() if count != fastest}
    return Reading(found[fastest], fastest, size, others)


def _read(threads: int, size: int, seconds: float) -> Iterator[float]:
    """Rates of runs with so many threads. [byte/s]"""
    word = np.dtype(np.uint64).itemsize
    words = max(size // threads // word, 1)
    barrier = threading.Barrier(threads + 1)

    def reader() -> None:
        with suppress(threading.BrokenBarrierError):
            try:
                part = np.ones(words, np.uint64)
                while True:
                    barrier.wait()
                    np.bitwise_or.reduce(part)
                    barrier.wait()
            except MemoryError:
                barrier.abort()

    workers = [threading.Thread(target=reader, daemon=True) for _ in range(threads)]
    try:
        for worker in workers:
            worker.start()

        def run() -> None:
            barrier.wait()
            barrier.wait()

        try:
            for duration in durations(run, seconds):
                yield threads * words * word / duration
        except threading.BrokenBarrierError:
            raise MemoryError(f"no memory for an array of {units.format_gib(size)}") from None
    finally:  # after an interrupt too
        barrier.abort()
        for worker in workers:
            worker.join()


def durations(run: Callable[[], object], seconds: float) -> Iterator[float]:
    """How long runs take, the first left out, until the time is over. [s]"""
    end = time.perf_counter() + seconds
    run()
    count = 0
    while count < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        yield max(time.perf_counter() - start, 1e-9)
        count += 1


def matmul_rate(seconds: float, largest: int = LARGEST_MATRIX, smallest: int = SMALLEST_MATRIX) -> Reading:
    """The rate of FP32 products of square matrices, at the size that is multiplied fastest. [FLOP/s]

    Parameters
    ----------
    seconds : float
        Time to spend; a larger size is tried only if it is likely to fit. [s]
    largest, smallest : int
        Rows of the matrices. [-]
    """
    end = time.perf_counter() + seconds
    found: dict[int, tuple[float, ...]] = {}
    size = smallest
    while not found or (size <= largest and time.perf_counter() + _expected_s(found, size) < end):
        left = max(end - time.perf_counter(), 0)
        found[size] = tuple(_multiply(size, left / 4 if size < largest else left))
        size *= 2
    fastest = max(found, key=lambda each: max(found[each]))
    return Reading(
        found[fastest], None, fastest, {each: max(rates) for each, rates in found.items() if each != fastest}
    )


def _expected_s(found: Mapping[int, tuple[float, ...]], size: int) -> float:
    """Time of the fewest runs at the next size. [s]"""
    return (LEAST_RUNS + 1) * 2 * size**3 / max(max(rates) for rates in found.values())


def _multiply(size: int, seconds: float) -> Iterator[float]:
    """Rates of products of two matrices of so many rows: 2 size³ operations each. [FLOP/s]"""
    random = np.random.default_rng(0)
    a, b = (random.random((size, size), np.float32) for _ in range(2))
    product = np.empty((size, size), np.float32)
    for duration in durations(lambda: np.matmul(a, b, out=product), seconds):
        yield 2 * size**3 / duration


def blas_name() -> str:
    """The library that multiplies numpy's matrices, with its version."""
    try:
        config: Any = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas.get('version', '')}".strip()
    except (KeyError, TypeError, AttributeError):
        return "BLAS"
