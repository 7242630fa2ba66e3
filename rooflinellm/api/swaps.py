"""What could be changed about a request that runs already: other devices, more of them, more memory, fewer bits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rooflinellm import catalog
from rooflinellm._shown import one_line
from rooflinellm.api.ladder import ladder
from rooflinellm.api.lists import fastest_16bit
from rooflinellm.errors import RooflineError
from rooflinellm.results import Estimate
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.parsing import device_label
from rooflinellm.summary import device_text, tokens_text, weights_text
from rooflinellm.units import BITS_PER_BYTE, GIB

DEVICES, OTHER_MAKERS, FORMATS = 3, 2, 3
"""Other devices, of the same maker and of others, and formats to try at most."""
FASTER = 1.15
"""Least bandwidth of a device over that of the next slower one that is tried. [-]"""
EQUAL = 1.1
"""Bandwidths that differ by less than this count as equal. [-]"""
FEWER_BITS = 0.93
"""Most bits of a format over those of the next larger one that is tried. [-]"""
MODULE_RATES = (3_200, 3_600, 4_800, 5_200, 5_600, 6_000, 6_400, 7_200, 8_000)
"""Data rates of memory modules that are sold. [MT/s]"""
HOST = "ddr5-5600x2@64GiB"
"""Memory beside a card, where the system names none."""
_MODULES = re.compile(r"(?P<type>ddr(?P<generation>\d))-(?P<rate>\d+)x(?P<channels>\d+)(?:@(?P<gib>\d+)GiB)?")
_RATED = re.compile(r"(DDR\d)-(\d+)")
CHANNEL_BITS = 64
_LAST_RATE = {"4": 3_600, "5": 8_000}
"""Fastest modules of a generation of DDR. [MT/s]"""

Ask = Callable[..., Estimate]


@dataclass(frozen=True)
class Swap:
    """A change and the answer after it.

    Attributes
    ----------
    kind : str
        ``device``, ``more devices``, ``memory``, ``host memory``, ``weights`` or ``kv``.
    change : str
        What it is changed to, in words.
    keywords : dict
        What differs in the call: ``hardware``, ``weights``, ``kv`` or ``tensor_parallel``.
    estimate : Estimate
        The answer after it.
    decode_gain, prefill_gain : float or None
        Expected rate after over before; None where the phase computes nothing. [-]
    """

    kind: str
    change: str
    keywords: dict[str, Any]
    estimate: Estimate
    decode_gain: float | None
    prefill_gain: float | None

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """The change with the main numbers after it."""
        after = self.estimate
        return {
            "kind": self.kind,
            "change": self.change,
            "hardware": after.hardware.id,
            "weights": after.weights,
            "kv": after.kv,
            "fits": None if after.memory.fits is None else bool(after.memory.fits),
            "total_bytes": after.memory.total_bytes,
            "usable_bytes": after.memory.usable_bytes,
            "max_context_tokens": after.memory.max_context_tokens,
            "rated_power_w": after.hardware.rated_power_w,
            "prefill_tokens_per_s": after.prefill.tokens_per_s.to_dict(),
            "ttft_s": after.ttft_s.to_dict(),
            "decode_tokens_per_s": after.decode.tokens_per_s.to_dict(),
            "decode_gain": self.decode_gain,
            "prefill_gain": self.prefill_gain,
        }


def swaps(base: Estimate, ask: Ask) -> list[Swap]:
    """The changes that can be made, the one that helps decode most first; those that do not fit come last.

    Parameters
    ----------
    base : Estimate
        The answer as it is.
    ask : callable
        The answer with other keywords; what it refuses is left out.
    """
    found = []
    for kind, change, keywords in _candidates(base):
        try:
            after = ask(**keywords)
        except RooflineError:  # the engine or the format does not run there
            continue
        if (after.hardware.id, after.weights, after.kv) == (base.hardware.id, base.weights, base.kv):
            continue
        gains = [
            getattr(after, name).tokens_per_s.expected / rate
            if (rate := getattr(base, name).tokens_per_s.expected)
            else None
            for name in ("decode", "prefill")
        ]
        found.append(Swap(kind, change, keywords, after, *gains))
    return sorted(found, key=lambda each: (each.estimate.memory.fits is False, -(each.decode_gain or 0), each.change))


_Candidate = tuple[str, str, dict[str, Any]]


def _candidates(base: Estimate) -> Iterator[_Candidate]:
    system = base.hardware
    if not system.others:
        yield from _better_devices(system)
    yield from _more_devices(base)
    yield from _more_memory(base)
    yield from _fewer_bits(base)
    if base.kv in ("f16", "bf16"):
        for name in ("q8_0", "fp8"):
            yield "kv", f"KV {name}", {"kv": name}


def _with_device(system: SystemSpec, device: HardwareSpec, count: int) -> SystemSpec:
    label = device_label(device)
    beside = "" if device.kind == "cpu" or system.device.ad_hoc else system.id.partition(" + ")[2]
    name = " + ".join(filter(None, (label if count == 1 else f"{count}x {label}", beside)))
    return system.model_copy(update={"name": name, "device": device, "count": count})


def _better_devices(system: SystemSpec) -> Iterator[_Candidate]:
    """Devices of the same kind with no less memory or compute and with more bandwidth, first of the same maker."""
    device, size = system.device, system.device.memory_bytes or 0
    rate, compute = device.memory_bandwidth_bytes_per_s, fastest_16bit(device) or 0.0
    better: dict[bool, list[HardwareSpec]] = {True: [], False: []}
    for listed in catalog.list_hardware():
        try:
            other = catalog.hardware(listed.id)
        except RooflineError:
            continue
        if other.kind != device.kind or other.memory_bandwidth_bytes_per_s < FASTER * rate:
            continue
        sized = _with_memory_of(other, size)
        if sized is not None and (fastest_16bit(other) or 0.0) >= compute:
            better[other.vendor == device.vendor].append(sized)
    for same, most in ((True, DEVICES), (False, OTHER_MAKERS)):
        for other in _steps(better[same], rate)[:most]:
            after = _with_device(system, other, system.count)
            text = device_text(other)
            yield "device", text if system.count == 1 else f"{system.count}x {text}", {"hardware": after}


def _steps(devices: list[HardwareSpec], rate: float) -> list[HardwareSpec]:
    """Devices of ever more bandwidth, each well above the last; of about equals the one with the least memory."""
    found: list[HardwareSpec] = []
    while faster := [each for each in devices if each.memory_bandwidth_bytes_per_s >= FASTER * rate]:
        rate = min(each.memory_bandwidth_bytes_per_s for each in faster)
        equals = [each for each in faster if each.memory_bandwidth_bytes_per_s <= EQUAL * rate]
        found.append(min(equals, key=lambda each: (each.memory_bytes or 0, each.tdp_w or math.inf, each.id)))
        rate = found[-1].memory_bandwidth_bytes_per_s
    return found


def _with_memory_of(device: HardwareSpec, least_bytes: int) -> HardwareSpec | None:
    """The device with at least so much memory, in the smallest configuration that has it; None without one."""
    sizes = [size for size in device.memory.configurations_gib if size * GIB >= least_bytes]
    if sizes:
        return device.with_capacity(round(sizes[0] * GIB))
    if device.memory_bytes is None:
        return device.with_capacity(least_bytes) if least_bytes else device
    return device if device.memory_bytes >= least_bytes else None


def _more_devices(base: Estimate) -> Iterator[_Candidate]:
    """Twice the devices, which share every product where the engine does not split layers over them."""
    system = base.hardware
    if system.device.kind not in ("gpu", "accelerator") or system.others:
        return
    count = 2 * system.count
    keywords: dict[str, Any] = {"hardware": _with_device(system, system.device, count)}
    tensor = base.workload.get("tensor_parallel", 1)
    engine = catalog.engine(base.engine.partition(":")[0])[0]
    if tensor > 1 or engine.several_devices == "tensor_parallel":
        keywords["tensor_parallel"] = 2 * tensor
    yield "more devices", f"{count}x {device_text(system.device)}", keywords


def _more_memory(base: Estimate) -> Iterator[_Candidate]:
    """Larger configurations of a device, and more or faster modules beside it."""
    system = base.hardware
    device = system.device
    if device.memory.unified and device.kind != "cpu" and not device.ad_hoc:
        sizes = catalog.hardware(device.id).memory.configurations_gib if _is_listed(device) else ()
        for size in [size for size in sizes if size * GIB > (device.memory_bytes or 0)][:1]:
            larger = device.with_capacity(round(size * GIB))
            yield "memory", f"{size:g} GiB", {"hardware": _with_device(system, larger, system.count)}
    text = system.id if device.kind != "cpu" else _with_modules(system)
    modules = _MODULES.search(text)
    if modules is not None:
        yield from _other_modules(text, modules)
    elif system.host is None and device.kind == "gpu" and not device.memory.unified and base.memory.fits is False:
        yield "host memory", f"layers on the host, {HOST}", {"hardware": f"{system.id} + {HOST}"}


def _with_modules(system: SystemSpec) -> str:
    """The text of a processor with its memory as modules, as far as they are known."""
    memory, rated = system.device.memory, _RATED.fullmatch(system.device.memory.type)
    if " + " in system.id or rated is None or memory.bus_bits is None:
        return system.id
    name, at, amount = system.id.partition("@")
    return f"{name} + {rated[1].lower()}-{rated[2]}x{memory.bus_bits // CHANNEL_BITS}{at}{amount}"


def _is_listed(device: HardwareSpec) -> bool:
    return any(entry.id == device.id for entry in catalog.list_hardware(device.id))


def _other_modules(text: str, modules: re.Match[str]) -> Iterator[_Candidate]:
    rate, gib = int(modules["rate"]), modules["gib"]
    of_type = f"{modules['type']}-{{}}x{modules['channels']}"
    faster = [each for each in MODULE_RATES if rate < each <= _LAST_RATE.get(modules["generation"], 0)]
    changes = [(faster[-1], gib)] if faster else []
    changes += [(rate, str(2 * int(gib)))] if gib else []
    for new_rate, amount in changes:
        named = of_type.format(new_rate) + (f"@{amount}GiB" if amount else "")
        yield "host memory", named, {"hardware": text[: modules.start()] + named + text[modules.end() :]}


def _fewer_bits(base: Estimate) -> Iterator[_Candidate]:
    """The next smaller formats of the same family, each well below the last."""
    family = base.weights.partition(":")[0]
    last, tried = base.memory.resident_weight_bytes * BITS_PER_BYTE / base.model.total_params, 0
    for step in ladder(base.model, (family,)):
        if tried < FORMATS and step.bits_per_weight < FEWER_BITS * last:
            last, tried = step.bits_per_weight, tried + 1
            yield "weights", f"{weights_text(step.weights)}, {step.bits_per_weight:.2f} bit", {"weights": step.weights}


def context_text(estimate: Estimate) -> str:
    """The longest context that fits, in words."""
    most = estimate.memory.max_context_tokens
    return "?" if most is None else tokens_text(most) if most else "–"
