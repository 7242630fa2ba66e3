"""Evaluate a profile for one device, engine and backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rooflinellm import units
from rooflinellm.errors import MissingSpec
from rooflinellm.specs.engine import KernelEfficiency, ProfileSpec
from rooflinellm.specs.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Rates:
    """What a profile says of one device under one engine.

    Attributes
    ----------
    basis : str
        ``nominal`` or ``calibrated``.
    memory : float
        Share of the printed bandwidth that operators sustain. [-]
    matrix, vector : mapping of str to float
        Share of the peak that an operator kind reaches on matrix and on vector units. [-]
    floors_s : mapping of str to float
        Least time of an operator, by kind. [s]
    decode_interval, prefill_interval : float
        Factor between the expected time and either end of its interval. [-]
    decode_power_fraction, prefill_power_fraction : float
        Share of the rated power that a phase draws. [-]
    """

    basis: str
    memory: float
    matrix: Mapping[str, float]
    vector: Mapping[str, float]
    floors_s: Mapping[str, float]
    decode_interval: float
    prefill_interval: float
    decode_power_fraction: float
    prefill_power_fraction: float

    def compute(self, unit: str, kind: str) -> float:
        """Share of a peak that an operator kind reaches. [-]"""
        return (self.matrix if unit == "matrix" else self.vector)[kind]


def rates(profile: ProfileSpec, device: HardwareSpec, engine: str, backend: str) -> Rates:
    """Look up what a profile says: the first entry that matches decides.

    Parameters
    ----------
    profile : ProfileSpec
        The profile.
    device : HardwareSpec
        The device.
    engine, backend : str
        Ids, such as ``llama.cpp`` and ``cuda``.

    Returns
    -------
    Rates

    Raises
    ------
    MissingSpec
        The profile says nothing about the memory type, or about the engine and backend.
    """
    kernels = _kernels(profile, device, engine, backend)
    return Rates(
        basis=profile.basis,
        memory=_memory(profile, device) * kernels.memory,
        matrix=kernels.matrix,
        vector=kernels.vector,
        floors_s={kind: floor * units.MICRO for kind, floor in kernels.floor_us.items()},
        decode_interval=profile.interval.decode,
        prefill_interval=profile.interval.prefill,
        decode_power_fraction=profile.decode_power_fraction,
        prefill_power_fraction=profile.prefill_power_fraction,
    )


def _memory(profile: ProfileSpec, device: HardwareSpec) -> float:
    for row in profile.memory:
        if any(fnmatchcase(device.memory.type.lower(), pattern.lower()) for pattern in row.types):
            return row.efficiency
    raise MissingSpec(
        f"no efficiency for memory type '{device.memory.type}'", where=f"profile {profile.id}, field memory"
    )


def _kernels(profile: ProfileSpec, device: HardwareSpec, engine: str, backend: str) -> KernelEfficiency:
    asked = {"engines": engine, "backends": backend, "architectures": device.architecture}
    for row in profile.kernels:
        if all(any(fnmatchcase(name, p) for p in getattr(row, field)) for field, name in asked.items()):
            return row
    raise MissingSpec(
        f"no efficiency for {engine} on {backend} and {device.architecture}",
        where=f"profile {profile.id}, field kernels",
    )
