"""Hardware to choose from: every device of the database, several of the common cards, and cards beside a host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rooflinellm import catalog
from rooflinellm.api import lookup
from rooflinellm.errors import RooflineError
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.parsing import device_label
from rooflinellm.units import GIB

COMMON = (
    *("nvidia-geforce-rtx-3060-12gb", "nvidia-geforce-rtx-3090", "nvidia-geforce-rtx-4060-ti-16gb"),
    *("nvidia-geforce-rtx-4070-ti-super", "nvidia-geforce-rtx-4080-super", "nvidia-geforce-rtx-4090"),
    *("nvidia-geforce-rtx-5060-ti-16gb", "nvidia-geforce-rtx-5070-ti", "nvidia-geforce-rtx-5080"),
    *("nvidia-geforce-rtx-5090", "nvidia-rtx-a6000", "nvidia-rtx-6000-ada"),
    *("nvidia-rtx-pro-6000-blackwell-workstation", "amd-radeon-rx-7900-xtx", "amd-radeon-rx-9070-xt"),
    *("amd-radeon-ai-pro-r9700", "amd-instinct-mi50-32gb", "intel-arc-b580", "intel-arc-pro-b60"),
    *("nvidia-tesla-p40", "nvidia-l40s", "nvidia-a100-sxm4-80gb", "nvidia-h100-sxm5-80gb"),
    *("nvidia-h200-sxm-141gb", "amd-instinct-mi300x"),
)
"""Cards that people buy or rent more than one of."""
COUNTS = (2, 4)
HOSTED = COMMON[:18]
"""Cards of desktop computers, whose memory may hold a part of a model."""
HOST = "ddr5-5600x2"
"""Memory beside them: two channels of DDR5-5600, as mainboards of 2022 to 2025 take it."""
HOST_GIB = (64, 128)
CHANNELS_BITS = 128
"""Width of a desktop processor's memory. [bit]"""
DESKTOP_GIB = (16.0, 32.0, 64.0, 96.0, 128.0, 192.0)
SERVER_GIB = (64.0, 128.0, 256.0, 512.0, 768.0, 1_024.0)
"""Amounts of memory that processors are sold with, up to two channels and above."""


@dataclass(frozen=True)
class Candidate:
    """Hardware that may come with more or less memory.

    Attributes
    ----------
    systems : tuple of SystemSpec
        The same with ever more memory; one where there is no choice.
    with_host : bool
        Whether it stands for the devices with a part of the model on their host: without one they are listed too.
    """

    systems: tuple[SystemSpec, ...]
    with_host: bool = False


def database() -> list[Candidate]:
    """Every device of the database, with its choices of memory; several common cards; and such cards with a host."""
    found = list(_devices())
    known = {each.systems[0].device.id: each.systems[0].device for each in found}
    for name in (each for each in COMMON if each in known):
        found += [Candidate((_system(known[name], count),)) for count in COUNTS]
    for name in (each for each in HOSTED if each in known):
        found.append(Candidate(tuple(lookup.system(f"{name} + {HOST}@{size}GiB") for size in HOST_GIB), with_host=True))
    return found


def named(hardware: Sequence[Any]) -> list[Candidate]:
    """Hardware as it was named, each once, a processor without an amount of memory in all; errors as in `system`."""
    systems = {each.id: each for each in map(lookup.system, hardware)}
    return [Candidate(tuple(_sized(each)) or (each,)) for each in systems.values()]


def _sized(system: SystemSpec) -> Iterator[SystemSpec]:
    """A system of one processor whose amount of memory is not said, in every amount; nothing of others."""
    if system.device.kind == "cpu" and system.device_count == 1 and system.device.memory_bytes is None:
        for size in _sizes(system.device):
            device = system.device.with_capacity(round(size * GIB))
            yield system.model_copy(update={"name": f"{system.id}@{size:g}GiB", "device": device})


def _devices() -> Iterator[Candidate]:
    for listed in catalog.list_hardware():
        try:
            device = catalog.hardware(listed.id)
        except RooflineError:  # a broken file of the user's troubles only those who ask for it
            continue
        sizes = device.memory.configurations_gib or (_sizes(device) if device.memory_bytes is None else ())
        sized = [device.with_capacity(round(size * GIB)) for size in sizes] or [device]
        yield Candidate(tuple(_system(each, 1) for each in sized))


def _sizes(device: HardwareSpec) -> tuple[float, ...]:
    wide = (device.memory.bus_bits or 0) > CHANNELS_BITS
    return SERVER_GIB if wide else DESKTOP_GIB


def _system(device: HardwareSpec, count: int) -> SystemSpec:
    label = device_label(device)
    return SystemSpec(name=label if count == 1 else f"{count}x {label}", device=device, count=count)
