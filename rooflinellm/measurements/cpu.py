"""A rented CPU from what a result says of it: virtual CPUs, instruction set and measured bandwidth."""

from __future__ import annotations

import re
from functools import lru_cache

from rooflinellm import units
from rooflinellm.specs.common import Quantity, Source
from rooflinellm.specs.hardware import Clock, HardwareSpec, Memory, Peak

MEASURED = "measured"
"""Memory type of such a device: its bandwidth is what a read test reached, no printed figure."""

FP32_PER_CLOCK = {"avx512f": 64, "avx2": 32, "": 16}
"""FP32 operations a clock and core, by the widest instructions. [FLOP/clock]"""
INT8_PER_CLOCK = {"amx_int8": 2048, "avx512_vnni": 256, "avx512f": 128, "avx2": 64, "": 64}
"""INT8 operations a clock and core; without AVX that is NEON with dot products. [OP/clock]"""
BF16_PER_CLOCK = {"amx_bf16": 1024, "avx512_bf16": 128}
"""BF16 operations a clock and core, where there are instructions for them. [FLOP/clock]"""
ASSUMED_GHZ = 2.8
"""All-core clock where the name states none. [GHz]"""

_CLOCK = re.compile(r"(?:@|\bT)\s*(?P<ghz>\d(?:\.\d+)?)\s*GHz", re.IGNORECASE)
_THREADS = re.compile(r"threads/core (?P<threads>\d+)")
_ARM_CORE = re.compile(r"Neoverse-\w\d", re.IGNORECASE)
_AMD = re.compile(r"\b(AMD|EPYC|Ryzen)\b", re.IGNORECASE)
_UNFIT = re.compile(r"[^a-z0-9]+")
_SOURCE = "row"


def threads_per_core(note: str | None, isa: str | None) -> int:
    """Hardware threads of a core, which add no arithmetic: as noted, else two with AVX and one without."""
    match = _THREADS.search(note or "")
    if match and int(match["threads"]) > 0:
        return int(match["threads"])
    return 2 if isa else 1


@lru_cache(maxsize=4096)
def rented_cpu(name: str, vcpus: int, threads: int | None, smt: int, isa: str, bandwidth_gb_s: float) -> HardwareSpec:
    """Make the device.

    Parameters
    ----------
    name : str
        As the system names it; a clock in it is taken.
    vcpus : int
        Hardware threads of the instance. [-]
    threads : int or None
        Threads that the test ran with; cores beyond them idle. [-]
    smt : int
        Hardware threads of a core. [-]
    isa : str
        Instruction sets, separated by spaces.
    bandwidth_gb_s : float
        Measured bandwidth. [GB/s]

    Returns
    -------
    HardwareSpec
        Peaks are cores x clock x operations a clock: an estimate, and no bound.
    """
    cores = max(vcpus // smt, 1)
    if threads:
        cores = min(cores, threads)
    match = _CLOCK.search(name)
    ghz = float(match["ghz"]) if match else ASSUMED_GHZ
    known = set(isa.split())
    rate = cores * ghz * units.GIGA / units.TERA

    def peak(precision: str, accumulate: str, per_clock: int) -> Peak:
        return Peak.model_validate(
            {
                "precision": precision,
                "accumulate": accumulate,
                "unit": "vector",
                "tflops": rate * per_clock,
                "kind": "estimate",
                "source": _SOURCE,
            }
        )

    peaks = [
        peak("fp32", "fp32", _first(FP32_PER_CLOCK, known)),
        peak("int8", "int32", _first(INT8_PER_CLOCK, known)),
    ]
    if known & BF16_PER_CLOCK.keys():
        peaks.append(peak("bf16", "fp32", _first(BF16_PER_CLOCK, known)))
    return HardwareSpec.model_validate(
        {
            "id": "rented-" + (_UNFIT.sub("-", name.lower()).strip("-") or "cpu"),
            "name": name,
            "vendor": "cloud",
            "architecture": architecture_of(known, name),
            "kind": "cpu",
            "memory": Memory(
                type=MEASURED,
                bandwidth_gb_s=Quantity(value=bandwidth_gb_s, kind="measured", source=_SOURCE),
                unified=True,
            ),
            "clock": Clock(advertised_mhz=ghz * 1000, kind="estimate", source=_SOURCE),
            "peaks": peaks,
            "compute_units": cores,
            "isa": isa or None,
            "sources": {_SOURCE: Source(title="the row of the result")},
        }
    )


def _first(table: dict[str, int], known: set[str]) -> int:
    return next(value for name, value in table.items() if not name or name in known)


def architecture_of(known: set[str], name: str) -> str:
    """What tells such processors apart for a profile: an Arm core's name, else the widest instructions and AMD's make.

    Parameters
    ----------
    known : set of str
        Instruction sets.
    name : str
        As the system names the processor.

    Returns
    -------
    str
        Such as ``neoverse-v1``, ``avx512-vnni`` or ``avx2-amd``.
    """
    core = _ARM_CORE.search(name)
    if core is not None:
        return core[0].lower()
    order = ("amx_int8", "avx512_bf16", "avx512_vnni", "avx512f", "avx2")
    widest = next((instructions.replace("_", "-") for instructions in order if instructions in known), "baseline")
    return f"{widest}-amd" if _AMD.search(name) else widest
