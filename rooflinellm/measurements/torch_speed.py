"""How fast an NVIDIA GPU reads memory and multiplies matrices, measured with PyTorch, which is optional."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from rooflinellm.errors import InvalidRequest
from rooflinellm.measurements.speed import LEAST_RUNS, Reading, durations

SIZE = 8192
"""Rows of the square matrices on a GPU. [-]"""
CPU_SIZE = 2048
"""Rows of the square matrices on a CPU. [-]"""
MEMORY_SHARE = 0.25
"""An array takes at most this share of the memory that is free. [-]"""
CACHES_BEYOND = 16
"""The array over the last-level cache. [-]"""
MOST_BYTES = 4 * 2**30

ARCHITECTURES: dict[tuple[int, int | None], str] = {
    (3, None): "kepler", (5, None): "maxwell", (6, None): "pascal", (7, 0): "volta", (7, 2): "volta",
    (7, 5): "turing", (8, 9): "ada", (8, None): "ampere", (9, None): "hopper", (10, 3): "blackwell-ultra",
    (10, None): "blackwell", (11, None): "blackwell", (12, None): "blackwell",
}  # fmt: skip
"""By compute capability; None is any other minor version."""


@dataclass(frozen=True)
class Gpu:
    """What the driver says of a GPU, and what was measured.

    Attributes
    ----------
    name, architecture, isa : str
        Such as ``NVIDIA GeForce RTX 4090``, ``ada`` and ``sm_89``.
    compute_units : int
        Streaming multiprocessors. [-]
    memory_bytes, available_bytes : int
        All of the memory, and what was free. [byte]
    cache_bytes : int or None
        Second-level cache. [byte]
    bandwidth : Reading
        Read bandwidth. [byte/s]
    peaks : dict
        Rates of matrix products by ``precision.accumulate``. [FLOP/s]
    software : str
        PyTorch and CUDA, with versions.
    """

    name: str
    architecture: str
    isa: str
    compute_units: int
    memory_bytes: int
    available_bytes: int
    cache_bytes: int | None
    bandwidth: Reading
    peaks: dict[str, Reading]
    software: str


def bf16_on_cpu(seconds: float) -> Reading | None:
    """The rate of BF16 products on the CPU; None where PyTorch is not there or cannot. [FLOP/s]"""
    if importlib.util.find_spec("torch") is None:
        return None
    torch: Any = importlib.import_module("torch")
    try:
        a = torch.ones((CPU_SIZE, CPU_SIZE), dtype=torch.bfloat16)
        rates = tuple(2 * CPU_SIZE**3 / duration for duration in durations(lambda: a @ a, seconds))
    except (RuntimeError, MemoryError):
        return None
    return Reading(rates, None, CPU_SIZE)


def measure_gpu(seconds: float) -> Gpu:
    """Measure the first GPU.

    Parameters
    ----------
    seconds : float
        Time to spend. [s]

    Raises
    ------
    InvalidRequest
        PyTorch is not there, or sees no GPU.
    """
    torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    if torch is None or not torch.cuda.is_available() or torch.version.cuda is None:
        what = "needs PyTorch, which is not installed" if torch is None else "found no NVIDIA GPU that PyTorch can use"
        raise InvalidRequest(
            f"'cuda' {what}", where="device", next_step="Install PyTorch with CUDA, or measure the CPU."
        )
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    major, minor = properties.major, properties.minor
    cache = getattr(properties, "L2_cache_size", 0) or None
    kinds = list(_products(torch, (major, minor)))
    share = seconds / (len(kinds) + 1)
    bandwidth = _read(torch, _array_bytes(cache, free), share)
    peaks = {}
    for key, product in kinds:
        try:
            rates = tuple(2 * SIZE**3 / duration for duration in _on_gpu(torch, product, share))
        except (RuntimeError, AttributeError):  # this build or this GPU has no such product
            continue
        peaks[key] = Reading(rates, None, SIZE)
    return Gpu(
        name=properties.name,
        architecture=ARCHITECTURES.get((major, minor)) or ARCHITECTURES.get((major, None)) or f"sm_{major}{minor}",
        isa=f"sm_{major}{minor}",
        compute_units=properties.multi_processor_count,
        memory_bytes=total,
        available_bytes=free,
        cache_bytes=cache,
        bandwidth=bandwidth,
        peaks=peaks,
        software=f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}",
    )


def _array_bytes(cache_bytes: int | None, free: int) -> int:
    """An array that the cache does not hide. [byte]"""
    return min(max(CACHES_BEYOND * (cache_bytes or 0), MOST_BYTES), int(MEMORY_SHARE * free))


def _read(torch: Any, size: int, seconds: float) -> Reading:
    """Rates of sums over an array, which read it and write next to nothing. [byte/s]"""
    array = torch.zeros(size // 4, dtype=torch.float32, device="cuda")
    rates = tuple(array.numel() * 4 / duration for duration in _on_gpu(torch, array.sum, seconds))
    return Reading(rates, None, array.numel() * 4)


def _on_gpu(torch: Any, run: Callable[[], object], seconds: float) -> Iterator[float]:
    """How long runs take on the GPU's clock, the first left out, until the time is over. [s]"""
    end = time.perf_counter() + seconds
    run()
    count = 0
    while count < LEAST_RUNS or time.perf_counter() < end:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        run()
        after.record()
        torch.cuda.synchronize()
        yield max(before.elapsed_time(after), 1e-6) / 1000
        count += 1


def _products(torch: Any, capability: tuple[int, int]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Matrix products by ``precision.accumulate``; cuBLAS adds up halves in 32 bits."""

    @cache
    def matrix(kind: Any) -> Any:
        # Random numbers: of constants the GPU draws less power, and clocks higher than it does in earnest.
        return torch.randint(-100, 100, (SIZE, SIZE), device="cuda").to(kind)

    def multiply(kind: Any, tf32: bool = False) -> Callable[[], object]:
        def run() -> object:
            before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = tf32
            try:
                return matrix(kind) @ matrix(kind)
            finally:
                torch.backends.cuda.matmul.allow_tf32 = before

        return run

    yield "fp16.fp32", multiply(torch.float16)
    if capability >= (8, 0):
        yield "bf16.fp32", multiply(torch.bfloat16)
        yield "tf32.fp32", multiply(torch.float32, tf32=True)
    yield "fp32.fp32", multiply(torch.float32)
    if capability >= (7, 5):
        yield "int8.int32", lambda: torch._int_mm(matrix(torch.int8), matrix(torch.int8))
