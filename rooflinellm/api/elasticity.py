"""How much a rate changes with a resource: d ln rate / d ln resource, by central differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm._numeric import maximum
from rooflinellm._shown import one_line
from rooflinellm.api.lists import fastest_16bit
from rooflinellm.engine.plan import Kernel, Operators, Plan
from rooflinellm.engine.request import Request, decode_time, prefill_time
from rooflinellm.results import Estimate
from rooflinellm.specs.hardware import DeviceGroup, HardwareSpec, SystemSpec
from rooflinellm.units import BITS_PER_BYTE, GB, GIB, MIB, TERA, significant

STEP = 0.01
"""Change of a resource to either side. [-]"""
STEP_OF_CAPACITY = 0.05
"""The same of an amount of memory: a context comes in blocks. [-]"""
Scale = Callable[[SystemSpec, float], SystemSpec]


@dataclass(frozen=True, slots=True)
class Elasticity:
    """Per cent that a rate changes with each per cent of a resource.

    Attributes
    ----------
    resource : str
        What changes.
    amount : str
        How much of it there is.
    is_rate : bool
        Whether it is a rate (of bytes, FLOPs or crossings a second): only these add up to 1 in the ideal.
    prefill_ideal, prefill_expected, decode_ideal, decode_expected : float or None
        d ln rate / d ln resource; None where the phase computes nothing. [-]
    context : float or None
        The same of the longest context that fits; None where only rates are asked for. [-]
    """

    resource: str
    amount: str
    is_rate: bool
    prefill_ideal: float | None = None
    prefill_expected: float | None = None
    decode_ideal: float | None = None
    decode_expected: float | None = None
    context: float | None = None

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Resource:
    """Something of a system that could be more or less.

    Attributes
    ----------
    name : str
        What it is called.
    amount : callable
        Says how much the system of an answer has of it; empty where it has none that counts.
    scale : callable
        The system with so many times as much.
    """

    name: str
    amount: Callable[[Estimate], str]
    scale: Scale
    is_rate: bool = True


def _devices(what: str) -> Scale:
    """Scale something of all devices, as `HardwareSpec.scaled` calls it."""

    def scale(system: SystemSpec, factor: float) -> SystemSpec:
        return _each_device(system, lambda device: device.scaled(**{what: factor}))

    return scale


def _each_device(system: SystemSpec, change: Callable[[HardwareSpec], HardwareSpec]) -> SystemSpec:
    others = tuple(DeviceGroup(device=change(group.device), count=group.count) for group in system.others)
    return system.model_copy(update={"device": change(system.device), "others": others})


def _host_bandwidth(system: SystemSpec, factor: float) -> SystemSpec:
    assert system.host is not None
    host = system.host.model_copy(update={"bandwidth_bytes_per_s": system.host.bandwidth_bytes_per_s * factor})
    cpu = None if system.host_cpu is None else system.host_cpu.scaled(bandwidth=factor)
    return system.model_copy(update={"host": host, "host_cpu": cpu})


def _host_compute(system: SystemSpec, factor: float) -> SystemSpec:
    assert system.host_cpu is not None
    return system.model_copy(update={"host_cpu": system.host_cpu.scaled(compute=factor)})


def _faster(name: str) -> Scale:
    """Scale the bandwidth of the part of a system that has this name."""

    def scale(system: SystemSpec, factor: float) -> SystemSpec:
        part = getattr(system, name)
        faster = part.model_copy(update={"bandwidth_bytes_per_s": part.bandwidth_bytes_per_s * factor})
        return system.model_copy(update={name: faster})

    return scale


def _gb_s(rate: float) -> str:
    return f"{significant(rate / GB, 4)} GB/s"


def _bandwidth(base: Estimate) -> str:
    return _gb_s(base.hardware.device.memory_bandwidth_bytes_per_s)


def _peak(base: Estimate) -> str:
    """One peak stands for all: they change together."""
    device = base.hardware.device
    known = fastest_16bit(device)
    return f"{significant((known or max(device.peaks.values())) / TERA, 3)} TFLOP/s{' 16-bit' if known else ''}"


def _host_peak(base: Estimate) -> str:
    cpu = base.hardware.host_cpu
    return "" if cpu is None else f"{significant(max(cpu.peaks.values()) / TERA, 3)} TFLOP/s"


def _cache(base: Estimate) -> str:
    size = base.hardware.device.cache_bytes
    return f"{significant(size / MIB, 3)} MiB" if size else ""


def _cache_rate(base: Estimate) -> str:
    device = base.hardware.device
    stated = device.cache is not None and device.cache.bandwidth_gb_s is not None
    return _gb_s(device.cache_bandwidth_bytes_per_s) if stated else ""


def _links(base: Estimate) -> str:
    system = base.hardware
    known = max((link.gb_s_per_direction.value for link in system.device.links), default=0.0)
    crossed = system.device_count > 1 or system.host is not None
    return _gb_s(known * GB) if known and crossed and system.network is None else ""


def _part_rate(name: str) -> Callable[[Estimate], str]:
    def amount(base: Estimate) -> str:
        part = getattr(base.hardware, name)
        return "" if part is None else _gb_s(part.bandwidth_bytes_per_s)

    return amount


RESOURCES = (
    Resource("memory bandwidth", _bandwidth, _devices("bandwidth")),
    Resource("compute", _peak, _devices("compute")),
    Resource("last-level cache", _cache, _devices("cache"), is_rate=False),
    Resource("cache bandwidth", _cache_rate, _devices("cache_bandwidth")),
    Resource("link", _links, _devices("links")),
    Resource("network", _part_rate("network"), _faster("network")),
    Resource("host memory bandwidth", _part_rate("host"), _host_bandwidth),
    Resource("host compute", _host_peak, _host_compute),
    Resource("drive bandwidth", _part_rate("disk"), _faster("disk")),
)
"""What rates can depend on; a system has some of them."""


def of_system(base: Estimate, ask: Callable[[SystemSpec], Estimate]) -> Iterator[Elasticity]:
    """Elasticities to what a system has.

    Parameters
    ----------
    base : Estimate
        The answer as it is.
    ask : callable
        The answer for another system, everything else being equal.
    """
    for resource in RESOURCES:
        amount = resource.amount(base)
        if not amount:
            continue
        less, more = (ask(resource.scale(base.hardware, 1 + sign * STEP)) for sign in (-1, 1))
        rates = {
            f"{phase}_{kind}": _slope(*(getattr(getattr(each, phase).tokens_per_s, kind) for each in (less, more)))
            for phase in ("prefill", "decode")
            for kind in ("ideal", "expected")
        }
        yield Elasticity(resource.name, amount, resource.is_rate, **rates)
    if base.hardware.device.memory_bytes is not None:
        yield _of_capacity(base, ask)


def _of_capacity(base: Estimate, ask: Callable[[SystemSpec], Estimate]) -> Elasticity:
    """How the longest context grows with the memory of the devices."""

    def at(factor: float) -> Any:
        def larger(device: HardwareSpec) -> HardwareSpec:
            return device.with_capacity(round((device.memory_bytes or 0) * factor))

        return ask(_each_device(base.hardware, larger)).memory.max_context_tokens

    count = base.hardware.device_count
    amount = f"{count} × " if count > 1 else ""
    amount += f"{significant((base.hardware.device.memory_bytes or 0) / GIB, 3)} GiB"
    tokens = [at(1 + sign * STEP_OF_CAPACITY) for sign in (-1, 1)]
    slope = None if None in tokens else _slope(tokens[0], tokens[1], STEP_OF_CAPACITY)
    return Elasticity("memory capacity", amount, is_rate=False, context=slope)


def of_bytes(plan: Plan, request: Request, base: Estimate) -> Iterator[Elasticity]:
    """Elasticities to the bits of weights and of the cache: the operators' bytes, everything else being equal.

    Parameters
    ----------
    plan, request
        What `base` is the answer of.
    base : Estimate
        The answer, for what there is of either.
    """
    bits = base.memory.resident_weight_bytes * BITS_PER_BYTE / base.model.total_params
    amounts = {
        "bits per weight": f"{significant(bits, 3)} bit",
        "bits per cached value": base.kv,
    }
    fields = {
        "bits per weight": ("weight_bytes",),
        "bits per cached value": ("kv_bytes_per_token", "kv_owned_bytes_per_token"),
    }
    steps = maximum(request.decode_steps, 1)
    for name, amount in amounts.items():
        times: dict[str, list[Any]] = {"prefill": [], "decode": []}
        for factor in (1 - STEP, 1 + STEP):
            other = _with_bytes(plan, dict.fromkeys(fields[name], factor))
            times["prefill"].append(prefill_time(other, request))
            times["decode"].append(decode_time(other, request, steps))
        slopes = {
            f"{phase}_{kind}": _negative(_slope(*(getattr(time, f"{kind}_s") for time in found)))
            for phase, found in times.items()
            for kind in ("ideal", "expected")
        }
        yield Elasticity(name, amount, is_rate=False, **slopes)


def _with_bytes(plan: Plan, factors: Mapping[str, float]) -> Plan:
    """The plan with operators that move so many times the bytes."""

    def scaled(kernel: Kernel) -> Kernel:
        changed: dict[str, Any] = {name: getattr(kernel, name) * factor for name, factor in factors.items()}
        return replace(kernel, **changed)

    def changed(operators: Operators) -> Operators:
        return replace(operators, kernels=tuple(map(scaled, operators.kernels)))

    return replace(plan, stages=tuple(replace(stage, operators=changed(stage.operators)) for stage in plan.stages))


def frozen_placement(estimate: Estimate) -> dict[str, int]:
    """The placement of an answer as keywords, so that small changes do not move layers; empty with a drive."""
    if any(part.device == "disk" for part in estimate.memory.placement):
        return {}
    names = ("gpu_layers", "cpu_moe_layers")
    return {name: estimate.workload[name] for name in names if estimate.workload[name] is not None}


def _slope(less: Any, more: Any, step: float = STEP) -> float | None:
    """Logarithmic slope between both sides of a resource; None where there is nothing. [-]"""
    if not less > 0 or not more > 0:
        return None
    return (math.log(more) - math.log(less)) / (math.log1p(step) - math.log1p(-step))


def _negative(value: float | None) -> float | None:
    return None if value is None else 0.0 - value
