"""The grammar of what people type for hardware: ad hoc devices, system memory, counts, capacities and whole systems.

Nothing here looks anything up: `system` is handed the functions that do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rooflinellm import units
from rooflinellm.errors import AmbiguousName, InvalidRequest, InvalidSpec, RooflineError, UnreadableFile
from rooflinellm.specs.common import Quantity, validate
from rooflinellm.specs.hardware import (
    AS_ASKED,
    DeviceGroup,
    Disk,
    HardwareSpec,
    HostMemory,
    Network,
    StorageSpec,
    SystemSpec,
)

Find = Callable[[str], HardwareSpec | None]
"""Returns the device of a name, None where there is no such name."""
FindStorage = Callable[[str], StorageSpec | None]
"""Returns the class of drives of a name, None where there is no such name."""
Part = HostMemory | Disk | Network | tuple[int, HardwareSpec]
"""One part of a system."""

MAX_COUNT = 1024
MAX_PARTS = 16
MIN_CAPACITY, MAX_CAPACITY = units.MIB, 1024 * units.TIB
MIN_RATE, MAX_RATE = units.MEGA, units.PETA * units.MEGA
"""Rates that are believed. [byte/s or FLOP/s]"""
CHANNEL_BYTES = 8
"""Width of a memory channel as boards count them, up to DDR5. [byte]"""
MAX_WIDTH = 128 * CHANNEL_BYTES
"""Widest bus of system memory that is believed. [byte]"""

AD_HOC = "ad-hoc"
AD_HOC_EXAMPLE = "24GiB,1008GB/s,165TFLOP/s@fp16"
ACCUMULATORS: dict[str, tuple[str, ...]] = {
    "fp64": ("fp64",),
    "fp32": ("fp32",),
    "tf32": ("fp32",),
    "fp16": ("fp32", "fp16"),
    "bf16": ("fp32",),
    "fp8": ("fp32", "fp16"),
    "fp6": ("fp32",),
    "fp4": ("fp32",),
    "int8": ("int32",),
    "int4": ("int32",),
}
"""What a precision may accumulate in; where none is written, a rate holds for each of them."""
_VECTOR = ("fp64", "fp32")

_COUNT = re.compile(r"(?P<count>[-+]?[0-9]+(?:\.[0-9]+)?)\s*[x×]\s*(?P<rest>.+)", re.IGNORECASE | re.DOTALL)
_MEMORY = re.compile(
    r"(?P<type>ddr[1-9]|lpddr[1-9]x?)-?(?P<rate>[1-9][0-9]{2,4})(?:mt/s|mhz)?"
    r"(?:x(?P<channels>[0-9]{1,6}))?(?:@(?P<bits>[0-9]{1,6})-?bits?)?(?:@(?P<capacity>.+))?",
    re.IGNORECASE,
)
_NETWORK = re.compile(r"(?P<gbit>[0-9]+(?:\.[0-9]+)?)(?:gbe|gbit/s|gbps)", re.IGNORECASE)
_DRIVE = re.compile(r"(?:ssd|disk)@(?P<rate>[^@]+?)(?:@(?P<capacity>[^@]+))?", re.IGNORECASE)
_MEMORY_START = re.compile(r"(?:lp)?ddr[1-9]", re.IGNORECASE)
_SOLD_AS = re.compile(r"\s*(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?)\s*(?P<prefix>[GTgt])B\s*")
_SIZED = re.compile(r"(?P<name>.+?)[\s_\-]+(?P<amount>[0-9]+\s*[GT]i?B)", re.IGNORECASE | re.DOTALL)
_BARE_MEMORY = re.compile(r"[0-9]+\s*[GT]i?B?(?:\s+(?:of\s+)?(?:ram|memory|ddr[1-9]?))?", re.IGNORECASE)
_WRITE_MEMORY = "Write system memory like ddr5-5600x2@64GiB (two channels) or lpddr5x-8533@128bit@32GiB."
_WRITE_SYSTEM = "Write a system like 2x rtx-3090 + ddr5-5600x2@64GiB."


def shown(text: str) -> str:
    """Quote what was typed, cut to a readable length and safe to print."""
    cut = text if len(text) <= 80 else text[:79] + "…"
    return f"'{cut}'" if cut.isprintable() else ascii(cut)


def without_spaces(text: str) -> str:
    """Drop all white space."""
    return "".join(text.split())


def split_count(text: str) -> tuple[str, str] | None:
    """Split ``2x rtx-3090`` into the count as written and the rest; None where there is no such prefix."""
    match = _COUNT.fullmatch(text.strip())
    return (match["count"], match["rest"].strip()) if match else None


def count(text: str) -> int:
    """Read the number of devices, from 1 to 1024.

    Raises
    ------
    InvalidRequest
        No whole number, or out of range.
    """
    number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if not 1 <= number <= MAX_COUNT:
        raise InvalidRequest(f"a count of {shown(text)} devices; allowed is a whole number from 1 to {MAX_COUNT:,}")
    return number


def capacity(text: str) -> int:
    """Read an amount of bytes: ``64GiB`` (binary) or ``64GB`` (decimal). [byte]

    Raises
    ------
    InvalidRequest
        No amount of memory, or one that no machine has.
    """
    amount = units.parse_bytes(_plain(text))
    if not MIN_CAPACITY <= amount <= MAX_CAPACITY:
        raise InvalidRequest(f"{shown(text)} of memory; allowed is 1 MiB to 1 PiB")
    return round(amount)


def memory_capacity(text: str) -> int:
    """Read how much memory a device or its modules have, by the label they are sold under: 64GB is 64 GiB. [byte]

    Chips and modules hold powers of two, which makers write in GB and TB. Drives, files and bandwidths are decimal, see
    `capacity`.

    Raises
    ------
    InvalidRequest
        As `capacity`.
    """
    label = _SOLD_AS.fullmatch(text)
    return capacity(text if label is None else f"{label['number']}{label['prefix'].upper()}iB")


def capacity_label(amount: int, read: Callable[[str], int] = memory_capacity) -> str:
    """Write an amount of memory so that `read` gets the same back: ``64GiB``, ``64000MB``, ``1234567B``."""
    for unit, name in ((units.GIB, "GiB"), (units.GB, "GB"), (units.MIB, "MiB"), (units.MB, "MB")):
        text = f"{amount // int(unit)}{name}"
        if amount % unit == 0 and read(text) == amount:
            return text
    return f"{amount}B"


def host_memory(text: str) -> HostMemory | None:
    """Read a specification of system memory, or return None where the text is none.

    The bandwidth is channels x 8 bytes, or the stated bus width, times the transfer rate:
    ``ddr5-5600x2@64GiB``, ``ddr4-3200x2``, ``lpddr5x-8533@128bit@32GiB``.

    Raises
    ------
    InvalidRequest
        It begins as one and goes on as none, or says neither channels nor width.
    """
    packed = without_spaces(text).replace("×", "x")
    if not _MEMORY_START.match(packed):
        return None
    match = _MEMORY.fullmatch(packed)
    if match is None:
        raise InvalidRequest(f"{shown(text)} is no system memory", next_step=_WRITE_MEMORY)
    module = f"{match['type'].lower()}-{match['rate']}"
    channels, bits = match["channels"], match["bits"]
    if channels and bits:
        raise InvalidRequest(f"{shown(text)} gives channels and a bus width; give one", next_step=_WRITE_MEMORY)
    if not channels and not bits:
        step = f"Add the channels or the bus width: {module}x2 for two channels, or {module}@128bit."
        raise InvalidRequest(f"{shown(text)} does not say how many channels there are", next_step=step)
    if channels and module.startswith("lp"):
        step = f"State the bus width, such as {module}@128bit."
        raise InvalidRequest(f"{shown(text)}: LPDDR channels differ in width", next_step=step)
    if channels:
        name, width = f"{module}x{int(channels)}", float(int(channels) * CHANNEL_BYTES)
    else:
        name, width = f"{module}@{int(bits)}bit", int(bits) / units.BITS_PER_BYTE
    if not 1 <= width <= MAX_WIDTH:
        limits = f"1 to {MAX_WIDTH // CHANNEL_BYTES} channels, or 8 to {MAX_WIDTH * units.BITS_PER_BYTE:,} bits"
        raise InvalidRequest(f"{shown(text)}: a bus of {width:g} bytes; allowed is {limits}", next_step=_WRITE_MEMORY)
    return HostMemory(
        name=name,
        bandwidth_bytes_per_s=width * int(match["rate"]) * units.MEGA,
        capacity_bytes=None if match["capacity"] is None else memory_capacity(match["capacity"]),
    )


def network(text: str) -> Network | None:
    """Read a network by its rate in Gbit/s, such as ``10gbe``, or return None where the text is none.

    Raises
    ------
    InvalidRequest
        A rate that no network has.
    """
    match = _NETWORK.fullmatch(without_spaces(text))
    if match is None:
        return None
    rate = float(match["gbit"])
    if not 0.001 <= rate <= 10_000:
        raise InvalidRequest(f"a network of {rate:g} Gbit/s; allowed is 0.001 to 10,000")
    return Network(name=f"{rate:.15g}gbe", bandwidth_bytes_per_s=rate * units.GIGA / units.BITS_PER_BYTE)


def disk(text: str, find: FindStorage) -> Disk | None:
    """Read a drive: a class such as ``nvme-gen4@2TB``, or its rate as in ``ssd@6.5GB/s@2TB``; None where it is none.

    Raises
    ------
    InvalidRequest
        A rate or an amount that is none.
    """
    match = _DRIVE.fullmatch(without_spaces(text))
    if match is not None:
        # What the name says is the rate, so that the name reads the same again.
        shown_rate = f"{_rate(units.parse_bandwidth, match['rate']) / units.GB:.15g}GB/s"
        rate, name, amount = units.parse_bandwidth(shown_rate), f"ssd@{shown_rate}", match["capacity"]
    else:
        kind, at, rest = text.partition("@")
        found = find(kind.strip())
        if found is None:
            return None
        rate, name, amount = found.read_bandwidth_bytes_per_s, found.id, rest if at else None
    return Disk(name=name, bandwidth_bytes_per_s=rate, capacity_bytes=None if amount is None else capacity(amount))


def ad_hoc_device(text: str) -> HardwareSpec:
    """Read a device given by its figures: capacity, bandwidth, then one or more dense peaks.

    A precision without an accumulator (``@fp16``) stands for every accumulator of it that has no peak of its own in the
    text. The device has no cache, no links and no rated power.

    Raises
    ------
    InvalidRequest
        A field that is none, or too few.
    """
    fields = [field.strip() for field in text.split(",")]
    if len(fields) < 3:
        message = f"{shown(text)} is no ad hoc device: it needs a capacity, a bandwidth and at least one peak"
        raise InvalidRequest(message, next_step=f"Write it like {AD_HOC_EXAMPLE}.")
    try:
        memory = capacity(fields[0]) / units.GIB
        bandwidth = _rate(units.parse_bandwidth, fields[1]) / units.GB
        peaks = _peaks(fields[2:])
        figure = {"kind": "estimate", "source": AD_HOC}
        data: dict[str, Any] = {
            "id": AD_HOC,
            "name": without_spaces(text),
            "vendor": AD_HOC,
            "architecture": AD_HOC,
            "kind": "gpu",
            "memory": {
                "type": AD_HOC,
                "capacity_gib": {"value": memory, **figure},
                "bandwidth_gb_s": {"value": bandwidth, **figure},
            },
            "peaks": [
                {
                    "precision": precision,
                    "accumulate": accumulate,
                    "unit": "vector" if precision in _VECTOR else "matrix",
                    "tflops": rate / units.TERA,
                    **figure,
                }
                for (precision, accumulate), rate in peaks.items()
            ],
            "sources": {AD_HOC: {"title": "as typed"}},
            "ad_hoc": True,
        }
        return validate(HardwareSpec, data, where=AD_HOC)
    except (InvalidRequest, InvalidSpec) as error:
        step = error.next_step or f"An ad hoc device is written like {AD_HOC_EXAMPLE}."
        raise InvalidRequest(error.message, where=f"ad hoc device {shown(text)}", next_step=step) from None


def _peaks(fields: list[str]) -> dict[tuple[str, str], float]:
    """Rates by precision and accumulator; what is stated exactly wins over what is stated for all. [FLOP/s]"""
    exact: dict[tuple[str, str], float] = {}
    general: dict[tuple[str, str], float] = {}
    for field in fields:
        rate_text, at, key = field.partition("@")
        precision, dot, accumulate = without_spaces(key).lower().partition(".")
        allowed = ACCUMULATORS.get(precision)
        if not at or allowed is None:
            names = ", ".join(ACCUMULATORS)
            raise InvalidRequest(f"{shown(field)}: a peak is a rate, '@' and a precision, one of {names}")
        if dot and accumulate not in allowed:
            keys = ", ".join(f"{precision}.{name}" for name in allowed)
            raise InvalidRequest(f"{shown(field)}: {precision} accumulates as {keys}")
        rate = _rate(units.parse_compute_rate, rate_text)
        for name in (accumulate,) if dot else allowed:
            table = exact if dot else general
            if (precision, name) in table:
                raise InvalidRequest(f"{shown(field)}: the peak of {precision}.{name} is given twice")
            table[precision, name] = rate
    return general | exact


def _rate(parse: Callable[[str], float], text: str) -> float:
    """A bandwidth or a compute rate that some machine could have, so that no time under- or overflows."""
    rate = parse(_plain(text))
    if not MIN_RATE <= rate <= MAX_RATE:
        raise InvalidRequest(f"{shown(text)} is beyond every machine, of the past or to come")
    return rate


def _plain(text: str) -> str:
    """Refuse characters that only look like letters or digits of a quantity."""
    if not text.isascii():
        raise InvalidRequest(f"{shown(text)} is no quantity: write digits and units in plain letters, such as 24GiB")
    return text.strip()


def system(text: str, find: Find, find_storage: FindStorage, unknown: Callable[[str], RooflineError]) -> SystemSpec:
    """Read a system: ``part ('+' part)*``.

    A part is ``[N 'x'] name ['@' capacity]``, figures of an ad hoc device, system memory, a drive or a network.

    Parameters
    ----------
    text : str
        Such as ``2x rtx-3090 + ddr5-5600x2@64GiB``.
    find, find_storage : callable
        Look up a device, and a class of drives.
    unknown : callable
        Makes the error for a name that is none.

    Raises
    ------
    InvalidRequest
        What is typed describes no system, or one that is not supported.
    """
    devices: dict[str, tuple[int, HardwareSpec]] = {}
    beside: dict[type, HostMemory | Disk | Network] = {}
    for part in _parts(text, find, find_storage, unknown):
        if isinstance(part, tuple):
            number, device = part
            label = device_label(device)
            devices[label] = (number + devices[label][0] if label in devices else number, device)
        elif type(part) in beside:
            raise InvalidRequest(f"{shown(text)} names {_NAMES[type(part)]} twice", next_step=_WRITE_SYSTEM)
        else:
            beside[type(part)] = part
    return _assemble(text, devices, beside)


_NAMES = {HostMemory: "system memory", Disk: "a drive", Network: "a network"}


def device_label(device: HardwareSpec) -> str:
    """Write a device as it stands in a system string."""
    if device.ad_hoc:
        return device.name
    amount = _asked_capacity(device)
    return device.id if amount is None else f"{device.id}@{capacity_label(amount)}"


def _asked_capacity(device: HardwareSpec) -> int | None:
    """The amount of memory that was typed behind a device. [byte]"""
    printed = device.memory.capacity_gib
    return device.memory_bytes if printed is not None and printed.source == AS_ASKED else None


def _parts(text: str, find: Find, find_storage: FindStorage, unknown: Callable[[str], RooflineError]) -> list[Part]:
    """Split at the plus signs; a name may hold one itself (``ryzen ai max+ 395``), so the longest part wins."""
    pieces = text.split("+")
    if len(pieces) > MAX_PARTS:
        raise InvalidRequest(f"a system of {len(pieces)} parts; allowed are {MAX_PARTS}")
    parts: list[Part] = []
    start = 0
    while start < len(pieces):
        for end in range(len(pieces), start, -1):
            last_try = end == start + 1
            candidate = "+".join(pieces[start:end]).strip()
            try:
                part = _part(candidate, find, find_storage) if candidate else None
            except (AmbiguousName, InvalidSpec):
                raise  # the name is one, whatever is wrong with it
            except RooflineError:
                if last_try:
                    raise
                continue
            if part is not None:
                parts.append(part)
                break
            if last_try and not candidate:
                raise InvalidRequest(f"{shown(text)} has an empty part", next_step=_WRITE_SYSTEM)
            if last_try and _BARE_MEMORY.fullmatch(candidate):
                message = f"{shown(candidate)} is an amount of memory without its kind and channels"
                raise InvalidRequest(message, next_step=_WRITE_MEMORY)
            if last_try:
                raise unknown(device_name(candidate))
        start = end
    return parts


def _part(text: str, find: Find, find_storage: FindStorage) -> Part | None:
    beside = host_memory(text) or network(text) or disk(text, find_storage)
    if beside is not None:
        return beside
    prefix = split_count(text)
    try:
        device = _device(text, find)  # first, since a name may look like a count, as `5800x3d` does
    except UnreadableFile:
        if prefix is None:
            raise
        device = None  # `2x my.yaml` is no path
    if device is not None:
        return 1, device
    if prefix is None:
        return None
    if _MEMORY_START.match(prefix[1]):
        raise InvalidRequest(f"{shown(text)}: the channels stand behind the memory", next_step=_WRITE_MEMORY)
    device = _device(prefix[1], find)
    return None if device is None else (count(prefix[0]), device)


def _device(text: str, find: Find) -> HardwareSpec | None:
    device = find(text)
    if device is not None:
        return device
    if "," in text:
        return None if split_count(text) else ad_hoc_device(text)
    name, at, amount = text.rpartition("@")
    if not at:
        return _sized_device(text, find)
    device = find(name.strip())
    return None if device is None else device.with_capacity(memory_capacity(amount))


def sized(text: str) -> tuple[str, str] | None:
    """Split ``mac mini m4 pro 64GB`` into the name and the amount of memory; None where there is none."""
    match = _SIZED.fullmatch(text.strip())
    return (match["name"], match["amount"].upper()) if match else None  # as in all names, case does not matter


def _sized_device(text: str, find: Find) -> HardwareSpec | None:
    """A device with one of the amounts of memory it is sold with behind its name, as in ``m3 max 128GB``."""
    parts = sized(text)
    if parts is None:
        return None
    name, amount = parts[0], memory_capacity(parts[1])
    try:
        found = [find(name)]
    except AmbiguousName as error:
        found = [find(each) for each in error.candidates]
    able = [device for device in found if device is not None and _comes_with(device, amount)]
    if len(able) > 1:
        candidates = [f"{device.id}@{capacity_label(amount)}" for device in able]
        raise AmbiguousName(f"{shown(text)} fits {len(able)} entries", candidates=candidates)
    if not able:
        return None
    return able[0].with_capacity(amount) if able[0].memory.configurations_gib else able[0]


def _comes_with(device: HardwareSpec, amount: int) -> bool:
    sizes = device.memory.configurations_gib
    return amount in [size * units.GIB for size in sizes] if sizes else amount == device.memory_bytes


def device_name(text: str) -> str:
    """The part of a ``[N x] name [@ capacity]`` that is the name."""
    prefix = split_count(text)
    if prefix and re.fullmatch(r"[0-9]{1,4}", prefix[0]) and int(prefix[0]) <= MAX_COUNT:
        text = prefix[1]
    return text.partition("@")[0].strip()


def _assemble(
    text: str, devices: dict[str, tuple[int, HardwareSpec]], beside: dict[type, HostMemory | Disk | Network]
) -> SystemSpec:
    """Decide which part computes, and what the processor and the system memory are to it."""
    if not devices:
        raise InvalidRequest(f"{shown(text)} names no device that computes", next_step=_WRITE_SYSTEM)
    memory: Any = beside.get(HostMemory)
    accelerators = [label for label, (_, device) in devices.items() if device.kind != "cpu"]
    cpus = [label for label in devices if label not in accelerators]
    if len(cpus) > 1:
        step = f"Name one kind, such as {shown('2x ' + cpus[0])}."
        raise InvalidRequest(f"processors of different kinds ({', '.join(cpus)}) are not supported", next_step=step)
    computing = accelerators or cpus
    host_label = cpus[0] if accelerators and cpus else None
    number, device = devices[computing[0]]
    name = " + ".join(_counted(*devices[label]) for label in computing)
    if device.kind == "cpu" and Network not in beside:
        number, device = 1, device.as_one(number)  # of one board, and one machine to what runs on it
    host, host_cpu = memory, None
    if host_label is not None:
        sockets, processor = devices[host_label]
        host_cpu = processor.as_one(sockets)
        name += f" + {_counted(sockets, processor)}"
        host = memory or memory_of(host_cpu, sockets)
    if memory is not None:
        amount = memory.capacity_bytes
        name += f" + {memory.name}" + ("" if amount is None else f"@{capacity_label(amount)}")
        if device.kind in ("cpu", "apu") and (device.kind == "cpu" or device.memory.unified):
            device, host = with_memory(device, number, memory), None
        elif device.kind == "soc" and device.memory.unified:
            step = f"Write its amount behind it, such as {device.id}@64GiB."
            raise InvalidRequest(f"{device.id} has no memory beside its own", next_step=step)
        if amount is not None and any(_asked_capacity(devices[label][1]) for label in cpus):
            raise InvalidRequest(f"{shown(text)} gives the amount of system memory twice", next_step=_WRITE_MEMORY)
    drive: Any = beside.get(Disk)
    if drive is not None:
        name += f" + {drive.name}" + (
            "" if drive.capacity_bytes is None else f"@{capacity_label(drive.capacity_bytes, capacity)}"
        )
    joined: Any = beside.get(Network)
    if joined is not None:
        name += f" + {joined.name}"
    others = tuple(DeviceGroup(device=devices[label][1], count=devices[label][0]) for label in computing[1:])
    return SystemSpec(
        name=name,
        device=device,
        count=number,
        others=others,
        host=host,
        host_cpu=host_cpu,
        disk=drive,
        network=joined,
    )


def memory_of(processor: HardwareSpec, sockets: int = 1) -> HostMemory:
    """The rated memory of a board's processor, or of all of them."""
    count = "" if sockets == 1 else f"{sockets}x "
    return HostMemory(
        name=f"{count}{processor.memory.type} of {processor.id}",
        bandwidth_bytes_per_s=processor.memory_bandwidth_bytes_per_s,
        capacity_bytes=_asked_capacity(processor),
    )


def _counted(number: int, device: HardwareSpec) -> str:
    return device_label(device) if number == 1 else f"{count(str(number))}x {device_label(device)}"


def with_memory(device: HardwareSpec, number: int, memory: HostMemory) -> HardwareSpec:
    """A processor with the modules it was given, shared equally among the processors of the board."""
    if memory.capacity_bytes is not None:
        device = device.with_capacity(memory.capacity_bytes // number)
    rate = Quantity(value=memory.bandwidth_bytes_per_s / number / units.GB, kind="derived", source=AS_ASKED)
    modules = {"type": memory.name.partition("-")[0].upper(), "bandwidth_gb_s": rate}
    cleared = {"bus_bits": None, "data_rate_gt_s": None}
    return device.with_memory(device.memory.model_copy(update=modules | cleared))
