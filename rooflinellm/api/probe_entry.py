"""The device file of what was measured on this computer: every value with its kind and source."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

from rooflinellm import catalog, units
from rooflinellm.errors import InvalidRequest, RooflineError
from rooflinellm.measurements.computer import Computer
from rooflinellm.measurements.cpu import MEASURED, architecture_of
from rooflinellm.specs.common import validate
from rooflinellm.specs.hardware import HardwareSpec

if TYPE_CHECKING:
    from rooflinellm.measurements.speed import Reading
    from rooflinellm.measurements.torch_speed import Gpu

INT8_OVER_FP32 = {"amx_int8": 32, "avx512_vnni": 4, "avx_vnni": 4, "avx512f": 2, "avx2": 2, "asimddp": 4}
"""INT8 operations a clock over FP32 ones, by the first of these instruction sets that there is. [-]

VNNI and Arm's dot products add up four products where FP32 has one; without them AVX2 takes two instructions for that.
"""
BF16_OVER_FP32 = {"amx_bf16": 16, "avx512_bf16": 2}
"""BF16 operations a clock over FP32 ones, likewise. [-]"""

BANDWIDTH, MATMUL, RATIO, SYSTEM, TORCH = "read-bandwidth", "matrix-product", "instructions", "system", "torch"
"""Keys of the sources."""
PUBLISHER = "rooflinellm probe"
NOT_QUITE_A_BOUND = (
    "Peaks are what matrix products reached, a few per cent below what the arithmetic could do, so an ideal from them"
    " is no strict bound."
)
_UNFIT = re.compile(r"[^a-z0-9]+")
_DIGITS = 4


def cpu_entry(
    computer: Computer,
    read: Reading,
    product: Reading,
    bf16: Reading | None,
    software: str,
    cores: int,
    id: str | None = None,
) -> HardwareSpec:
    """The device of what was measured on a CPU.

    Parameters
    ----------
    computer : Computer
        What the system says of it.
    read, product : Reading
        Read bandwidth [byte/s], and FP32 matrix products [FLOP/s].
    bf16 : Reading, optional
        BF16 matrix products. [FLOP/s]
    software : str
        What multiplied the matrices, and with how many threads.
    cores : int
        Cores that took part. [-]
    id : str, optional
        The device's id; None takes it from its name.
    """
    flags = set(computer.isa)
    peaks = [_peak("fp32", "fp32", product.best, MEASURED, MATMUL)]
    words = []
    for precision, accumulate, table in (("int8", "int32", INT8_OVER_FP32), ("bf16", "fp32", BF16_OVER_FP32)):
        found = next(((name, ratio) for name, ratio in table.items() if name in flags), None)
        if found is None or (precision == "bf16" and bf16 is not None):
            continue
        peaks.append(_peak(precision, accumulate, found[1] * product.best, "derived", RATIO))
        words.append(f"{precision.upper()} {found[1]} ({found[0].upper().replace('_', '-')})")
    today = date.today().isoformat()
    sources: dict[str, Any] = {
        BANDWIDTH: _source(f"Read bandwidth measured on {today}", _read_note(read)),
        MATMUL: _source(f"FP32 matrix products measured on {today}", _product_note(product, software)),
    }
    if words:
        note = f"{', '.join(words)}; the rate of the matrix products times that"
        sources[RATIO] = _source("Operations a clock over those in FP32, by instruction set", note)
    if bf16 is not None:
        peaks.append(_peak("bf16", "fp32", bf16.best, MEASURED, TORCH))
        sources[TORCH] = _source(f"BF16 matrix products measured on {today}", f"PyTorch, {_runs(bf16, units.GIGA)}")
    memory: dict[str, Any] = {"type": MEASURED, "unified": True}
    data = _entry(computer.name, id, sources) | {
        "vendor": _vendor(computer.name),
        "architecture": architecture_of(flags, computer.name),
        "kind": "cpu",
        "memory": memory | _capacity(computer.memory_bytes, computer.available_bytes, computer.system, sources),
        "peaks": peaks,
        "compute_units": cores,
        "isa": " ".join(computer.isa) or None,
    }
    data["memory"]["bandwidth_gb_s"] = _quantity(read.best / units.GB, BANDWIDTH)
    if computer.cache_bytes:
        data["cache"] = {"last_level_mib": _quantity(computer.cache_bytes / units.MIB, SYSTEM)}
    return _made(data)


def gpu_entry(gpu: Gpu, id: str | None = None) -> HardwareSpec:
    """The device of what was measured on a GPU."""
    today = date.today().isoformat()
    products = ", ".join(f"{key} {_runs(reading, units.TERA)} TFLOP/s" for key, reading in gpu.peaks.items())
    read = f"sum over {gpu.bandwidth.size / units.MIB:,.0f} MiB, {_runs(gpu.bandwidth, units.GB)} GB/s"
    sources: dict[str, Any] = {
        BANDWIDTH: _source(f"Read bandwidth measured on {today}", f"{gpu.software}; {read}"),
        MATMUL: _source(f"Matrix products measured on {today}", f"{gpu.software}; {products}"),
    }
    if not gpu.peaks:
        raise InvalidRequest("no matrix product ran on the GPU", where="device", next_step="Check the PyTorch build.")
    memory = {"type": MEASURED} | _capacity(gpu.memory_bytes, gpu.available_bytes, gpu.software, sources)
    memory["bandwidth_gb_s"] = _quantity(gpu.bandwidth.best / units.GB, BANDWIDTH)
    peaks = []
    for key, reading in gpu.peaks.items():
        precision, accumulate = key.split(".")
        unit = "vector" if precision == "fp32" or gpu.architecture in ("kepler", "maxwell", "pascal") else "matrix"
        peaks.append(_peak(precision, accumulate, reading.best, MEASURED, MATMUL, unit))
    data = _entry(gpu.name, id, sources) | {
        "vendor": "nvidia",
        "architecture": gpu.architecture,
        "kind": "gpu",
        "memory": memory,
        "peaks": peaks,
        "compute_units": gpu.compute_units,
        "isa": gpu.isa,
    }
    if gpu.cache_bytes:
        data["cache"] = {"last_level_mib": _quantity(gpu.cache_bytes / units.MIB, SYSTEM)}
    return _made(data)


def _read_note(read: Reading) -> str:
    others = ", ".join(f"{count}: {rate / units.GB:.1f}" for count, rate in sorted(read.others.items()))
    return (
        f"{counted(read.threads or 1)} of numpy.bitwise_or.reduce over {read.size / units.MIB:,.0f} MiB, nothing"
        f" written; {_runs(read, units.GB)} GB/s" + (f"; best with other thread counts: {others}" if others else "")
    )


def _product_note(product: Reading, software: str) -> str:
    return f"numpy.matmul of {product.size} x {product.size} matrices, {software}; {_runs(product, units.GIGA)} GFLOP/s"


def counted(count: int) -> str:
    """Words for so many threads."""
    return f"{count} thread{'s' * (count != 1)}"


def _runs(reading: Reading, scale: float) -> str:
    count = len(reading.rates)
    return f"best of {count} runs {reading.best / scale:,.1f}, median {reading.median / scale:,.1f}"


# --- entries --------------------------------------------------------------------------------------------------------


def _entry(name: str, id: str | None, sources: dict[str, Any]) -> dict[str, Any]:
    return {"id": free_id(id or name), "name": name, "sources": sources, "notes": [NOT_QUITE_A_BOUND]}


def free_id(text: str) -> str:
    """An id from a name or a file's name; not that of another device, whose fitted efficiencies would be taken."""
    slug = _UNFIT.sub("-", text.lower()).strip("-")[:80].strip("-") or "computer"
    try:
        known = catalog.hardware(slug).id == slug
    except RooflineError:
        known = False
    return f"probed-{slug}" if known else slug


def _made(data: dict[str, Any]) -> HardwareSpec:
    return validate(HardwareSpec, data, where="this computer")


def _source(title: str, note: str) -> dict[str, Any]:
    return {"title": title, "publisher": PUBLISHER, "year": date.today().year, "note": note}


def _quantity(value: float, source: str) -> dict[str, Any]:
    return {"value": _rounded(value), "kind": MEASURED, "source": source}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _peak(precision: str, accumulate: str, rate: float, kind: str, source: str, unit: str = "vector") -> dict[str, Any]:
    return {
        "precision": precision,
        "accumulate": accumulate,
        "unit": unit,
        "tflops": _rounded(rate / units.TERA),
        "kind": kind,
        "source": source,
    }


def _capacity(total: int | None, available: int | None, system: str, sources: dict[str, Any]) -> dict[str, Any]:
    """Memory as the system states it: all of it, and what is free."""
    sources[SYSTEM] = _source("What the system states", f"{system}; memory that is free is that of the moment")
    found = {}
    if total:
        found["capacity_gib"] = _quantity(total / units.GIB, SYSTEM)
        if available and available <= total:
            found["usable_gib"] = _quantity(min(available / units.GIB, found["capacity_gib"]["value"]), SYSTEM)
    return found


def _vendor(name: str) -> str:
    lower = name.lower()
    return next((vendor for vendor in ("amd", "intel", "apple", "ampere", "qualcomm") if vendor in lower), "unknown")
