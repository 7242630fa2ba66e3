"""Measure this computer: a device for estimates, every value with how it was found."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflinellm import units
from rooflinellm.api.probe_entry import BF16_OVER_FP32, counted, cpu_entry, gpu_entry
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.measurements.computer import Computer, this_computer
from rooflinellm.render import Column, Table
from rooflinellm.specs.hardware import HardwareSpec

if TYPE_CHECKING:
    from rooflinellm.measurements.speed import Reading

DEVICES = ("cpu", "cuda")
LEAST_SECONDS, MOST_SECONDS = 0.01, 3600.0
MOST_THREADS = 4096
BANDWIDTH_SHARE = 0.6
"""Share of the time that goes to reading memory; the rest goes to matrix products. [-]"""

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""What the usual BLAS libraries read when they are loaded."""
UNSTEADY = 0.75
"""Median over best run below which a measurement is not to be trusted. [-]"""


@dataclass(frozen=True)
class Probe:
    """A computer as it was measured.

    Attributes
    ----------
    hardware : HardwareSpec
        The device, as `rooflinellm.estimate` takes it.
    """

    hardware: HardwareSpec

    def to_yaml(self) -> str:
        """The device as a file, which `rooflinellm.hardware` reads."""
        import yaml

        data = self.hardware.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        last = {name: data.pop(name) for name in ("sources", "notes")}  # as in the files of the database
        ordered = {"schema": 1} | {name: value for name, value in data.items() if name != "schema"} | last
        head = "# Written by `rooflinellm probe`: values of one computer, each with how it was found.\n"
        return head + yaml.safe_dump(ordered, sort_keys=False, width=120, allow_unicode=True)

    def records(self) -> list[dict[str, Any]]:
        """A row a value, in base units."""
        device, memory = self.hardware, self.hardware.memory
        rows = [_record("read bandwidth", device.memory_bandwidth_bytes_per_s, "byte/s", memory.bandwidth_gb_s)]
        rows += [_record(f"peak {peak.key}", peak.flop_per_s, "FLOP/s", peak) for peak in device.peak_list]
        if memory.capacity_gib is not None:
            rows.append(_record("memory", device.memory_bytes, "byte", memory.capacity_gib))
        if memory.usable_gib is not None:
            rows.append(_record("free memory", device.usable_bytes, "byte", memory.usable_gib))
        if device.cache is not None:
            rows.append(_record("last-level cache", device.cache_bytes, "byte", device.cache.last_level_mib))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """For JSON, in base units."""
        device = self.hardware
        return {
            "id": device.id,
            "name": device.name,
            "kind": device.kind,
            "architecture": device.architecture,
            "compute_units": device.compute_units,
            "isa": device.isa,
            "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
            "memory_bytes": device.memory_bytes,
            "usable_bytes": device.usable_bytes,
            "cache_bytes": device.cache_bytes or None,
            "peaks_flop_per_s": dict(device.peaks),
            "values": self.records(),
            "sources": {key: source.model_dump(exclude_none=True) for key, source in device.sources.items()},
        }

    def table(self) -> Table:
        """The values as a table, with how they were found below."""
        rows = []
        for record in self.records():
            scale, unit = _SHOWN[record["unit"]]
            if unit == "GiB" and record["value"] < units.GIB:
                scale, unit = units.MIB, "MiB"
            rows.append([record["value_of"], units.significant(record["value"] / scale), unit, record["evidence"]])
        device = self.hardware
        title = f"{device.name}, {device.compute_units} {'cores' if device.kind == 'cpu' else 'multiprocessors'}"
        notes = [f"{source.title}: {source.note}" for source in device.sources.values()]
        columns = [Column("", "left"), Column("value"), Column("", "left"), Column("evidence", "left")]
        return Table(columns, rows, title, [*notes, *device.notes], device.isa or "")

    def __str__(self) -> str:
        return self.table().to_text()

    def __repr__(self) -> str:
        return f"<Probe of {self.hardware.name}>"

    def _repr_html_(self) -> str:
        return self.table().to_html()


_SHOWN: dict[str, tuple[float, str]] = {
    "byte/s": (units.GB, "GB/s"),
    "FLOP/s": (units.GIGA, "GFLOP/s"),
    "byte": (units.GIB, "GiB"),
}


def _record(name: str, value: float | None, unit: str, quantity: Any) -> dict[str, Any]:
    return {"value_of": name, "value": value, "unit": unit, "evidence": quantity.kind, "source": quantity.source}


def probe(
    *,
    seconds: float = 10.0,
    threads: int | None = None,
    device: str = "cpu",
    id: str | None = None,
    progress: Callable[[str], object] | None = None,
) -> Probe:
    """Measure this computer.

    Read bandwidth is that of numpy threads over an array well beyond the last-level cache, at the thread count that
    reads fastest; the FP32 peak is the rate of matrix products in numpy's BLAS. Peaks of other precisions follow from
    that by the instruction sets. Each is the best of several runs, since a disturbance only slows a run down. An NVIDIA
    GPU is measured with PyTorch, where that is installed.

    Parameters
    ----------
    seconds : float
        Time to spend, about; a slow computer takes longer for the fewest runs. [s]
    threads : int, optional
        Threads to use at most; None is all that the process may use. Fewer than that must be said before numpy is
        loaded, or threadpoolctl be installed, so that its BLAS keeps to them. [-]
    device : {'cpu', 'cuda'}
        What to measure.
    id : str, optional
        The device's id; None takes it from its name.
    progress : callable, optional
        Called with a few words before each measurement.

    Returns
    -------
    Probe

    Raises
    ------
    InvalidRequest
        Impossible arguments; fewer threads than BLAS can be told now; no GPU; too little memory.
    """
    if device not in DEVICES:
        raise InvalidRequest(f"{device!r:.40} is no device; there are {', '.join(DEVICES)}", where="device")
    _check_number("seconds", seconds, LEAST_SECONDS, MOST_SECONDS, "s")
    say = progress or (lambda _text: None)
    if device == "cuda":
        if threads is not None:
            raise InvalidRequest("threads are of the CPU", where="threads", next_step="Leave them out for a GPU.")
        return _gpu(seconds, id, say)
    computer = this_computer()
    if threads is not None:
        _check_number("threads", threads, 1, MOST_THREADS, "threads")
        if threads > computer.threads or threads != int(threads):
            allowed = f"there are {computer.threads} that this process may use"
            raise InvalidRequest(f"{threads:g} threads; {allowed}", where="threads", next_step="Leave it out for all.")
    try:
        return _cpu(computer, seconds, threads, id, say)
    except MemoryError as error:
        raise InvalidRequest(
            f"too little memory to measure: {error}", where="this computer", next_step="Close programs and try again."
        ) from error


def _check_number(name: str, value: Any, least: float, most: float, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidRequest(f"{value!r:.40} is not between {least:g} and {most:g} {unit}", where=name)


# --- CPU ------------------------------------------------------------------------------------------------------------


def _cpu(computer: Computer, seconds: float, asked: int | None, id: str | None, say: Callable[[str], object]) -> Probe:
    threads = asked or computer.threads
    cores = min(computer.cores, threads)
    with blas_threads(threads, needed=threads < computer.threads):
        from rooflinellm.measurements import speed

        say("read bandwidth")
        size = speed.array_bytes(computer.cache_bytes, computer.available_bytes)
        read = speed.read_bandwidth(cores, threads, size, BANDWIDTH_SHARE * seconds)
        say("matrix products")
        product = speed.matmul_rate((1 - BANDWIDTH_SHARE) * seconds)
        blas = speed.blas_name()
        bf16 = _measured_bf16(computer, (1 - BANDWIDTH_SHARE) * seconds)
    _warn_of_unrest({"read bandwidth": read, "matrix products": product})
    return Probe(cpu_entry(computer, read, product, bf16, f"{blas}, up to {counted(threads)}", cores, id))


def _measured_bf16(computer: Computer, seconds: float) -> Reading | None:
    """With PyTorch, where the processor has instructions for it."""
    if not set(computer.isa) & {*BF16_OVER_FP32, "bf16"}:
        return None
    from rooflinellm.measurements.torch_speed import bf16_on_cpu

    return bf16_on_cpu(seconds)


def _warn_of_unrest(readings: dict[str, Reading]) -> None:
    """Say so where runs differ by more than a quiet computer's do."""
    unsteady = [name for name, reading in readings.items() if reading.median < UNSTEADY * reading.best]
    if unsteady:
        warnings.warn(
            f"{' and '.join(unsteady)}: the median run is below {UNSTEADY:.0%} of the best; other programs were busy,"
            " or the clock varied. Close them and probe again, with more seconds.",
            RooflineWarning,
            stacklevel=4,
        )


@contextmanager
def blas_threads(threads: int, *, needed: bool) -> Iterator[None]:
    """Hold numpy's BLAS to so many threads; where it cannot be, go on all the same unless that is needed.

    Raises
    ------
    InvalidRequest
        numpy is loaded, so that its BLAS has its threads already, and threadpoolctl is not there to change them.
    """
    if "numpy" not in sys.modules:  # BLAS reads these when it is loaded
        before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
        try:
            import numpy  # noqa: F401 - loaded for its BLAS

            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        return
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        if needed:
            raise InvalidRequest(
                f"numpy's BLAS is loaded already and cannot be held to {threads} threads",
                where="threads",
                next_step="Probe before numpy is loaded, as the command line does, or install threadpoolctl.",
            ) from None
        yield
        return
    with threadpool_limits(threads, user_api="blas"):
        yield


# --- GPU ------------------------------------------------------------------------------------------------------------


def _gpu(seconds: float, id: str | None, say: Callable[[str], object]) -> Probe:
    from rooflinellm.measurements.torch_speed import measure_gpu

    say("the GPU")
    return Probe(gpu_entry(measure_gpu(seconds), id))
