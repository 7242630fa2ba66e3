"""The processor beside the devices: the one that is named, else a typical one for the memory that is."""

from __future__ import annotations

from typing import Any

from rooflinellm import units
from rooflinellm.specs.common import validate
from rooflinellm.specs.hardware import HardwareSpec, HostMemory, SystemSpec
from rooflinellm.specs.parsing import with_memory

TYPICAL = "typical-cpu"
TYPICAL_CORES, TYPICAL_GHZ = 8, 4.5
"""A desktop processor of the years 2020 to 2025, where none is named. [-], [GHz]"""
FP32_PER_CLOCK, INT8_PER_CLOCK = 32, 64
"""Operations a clock and core of AVX2: two 256-bit units, without dot-product instructions. [-]"""


def host_processor(system: SystemSpec) -> HardwareSpec | None:
    """Return the processor that computes what is left on the host.

    Parameters
    ----------
    system : SystemSpec
        The system.

    Returns
    -------
    HardwareSpec or None
        The named processor with the named memory. Memory without a processor gets a typical one, which is no bound (see
        `is_typical`); so does a device that shares its memory with processors of its own. None where neither is known.
    """
    if system.device.kind == "cpu":
        return None
    if system.host_cpu is not None:
        described = system.host is None or system.host.name.endswith(f"of {system.host_cpu.id}")
        return system.host_cpu if described or system.host is None else with_memory(system.host_cpu, 1, system.host)
    if system.host is not None:
        return _typical(system.host)
    memory = system.device.memory
    if not memory.unified:
        return None
    shared = HostMemory(
        name=f"{memory.type.lower()} of {system.device.id}",
        bandwidth_bytes_per_s=system.device.memory_bandwidth_bytes_per_s,
        capacity_bytes=system.device.memory_bytes,
    )
    return _typical(shared)


def is_typical(device: HardwareSpec) -> bool:
    """Tell whether a processor stands for an unknown one, so that its arithmetic bounds nothing."""
    return device.id == TYPICAL


def _typical(memory: HostMemory) -> HardwareSpec:
    rate = TYPICAL_CORES * TYPICAL_GHZ * units.GIGA / units.TERA
    figure = {"kind": "estimate", "source": TYPICAL}
    capacity = memory.capacity_bytes
    data: dict[str, Any] = {
        "id": TYPICAL,
        "name": f"typical processor with {memory.name}",
        "vendor": "any",
        "architecture": "avx2",
        "kind": "cpu",
        "memory": {
            "type": memory.name.partition("-")[0].upper(),
            "bandwidth_gb_s": {"value": memory.bandwidth_bytes_per_s / units.GB, **figure},
            **({} if capacity is None else {"capacity_gib": {"value": capacity / units.GIB, **figure}}),
        },
        "compute_units": TYPICAL_CORES,
        "peaks": [
            {"precision": "fp32", "accumulate": "fp32", "unit": "vector", "tflops": rate * FP32_PER_CLOCK, **figure},
            {"precision": "int8", "accumulate": "int32", "unit": "vector", "tflops": rate * INT8_PER_CLOCK, **figure},
        ],
        "sources": {TYPICAL: {"title": f"{TYPICAL_CORES} cores with AVX2 at {TYPICAL_GHZ:g} GHz, assumed"}},
    }
    return validate(HardwareSpec, data, where=TYPICAL)
