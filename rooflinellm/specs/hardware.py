"""Devices: what a piece of hardware can do, each value with its source."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rooflinellm import units
from rooflinellm._kept import Kept
from rooflinellm._shown import in_unit, line
from rooflinellm.errors import InvalidRequest, MissingSpec
from rooflinellm.specs.common import Count, Entry, Evidence, Name, Positive, Quantity, Source, Spec

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4"]
Accumulator = Literal["fp64", "fp32", "fp16", "int32"]
DeviceKind = Literal["gpu", "soc", "apu", "cpu", "accelerator"]

CACHE_BANDWIDTH_MULTIPLE = 4.0
"""Bandwidth of the last-level cache over that of the memory, where a device does not state it (an estimate)."""
POWER_EXPONENT = 0.5
"""How the clock follows a power limit below the rated power: between 1/3 and 1/2 (an estimate)."""
AS_ASKED = "as asked"
"""The source of what was typed about a device: an amount of memory, modules, a power limit."""


class Peak(Spec):
    """A dense peak rate: never one that counts zeros of 2:4 sparsity as work."""

    precision: Precision
    accumulate: Accumulator
    unit: Literal["matrix", "vector"]
    block_scaled: bool = False
    tflops: Positive
    kind: Evidence
    source: str
    note: str | None = None

    @property
    def key(self) -> str:
        """``precision.accumulate``, with ``.block`` behind it for block-scaled formats (MXFP8, NVFP4)."""
        return f"{self.precision}.{self.accumulate}" + (".block" if self.block_scaled else "")

    @property
    def flop_per_s(self) -> float:
        """The rate. [FLOP/s]"""
        return self.tflops * units.TERA


class Memory(Spec):
    """The memory that weights and cache live in."""

    type: str
    capacity_gib: Quantity | None = None
    configurations_gib: tuple[Positive, ...] = ()
    usable_gib: Quantity | None = None
    usable_fraction: Quantity | None = None
    unified: bool = False
    bus_bits: Count | None = None
    data_rate_gt_s: Positive | None = None
    bandwidth_gb_s: Quantity

    @field_validator("configurations_gib")
    @classmethod
    def _ascending(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if value != tuple(sorted(value)):
            raise ValueError("configurations must be listed in ascending order")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Memory:
        if self.bus_bits and self.data_rate_gt_s:
            product = self.bus_bits / units.BITS_PER_BYTE * self.data_rate_gt_s
            if abs(product / self.bandwidth_gb_s.value - 1) > 0.03:
                raise ValueError(
                    f"bandwidth_gb_s {self.bandwidth_gb_s.value:g} is not bus x data rate ({product:.1f} GB/s)"
                )
        if self.usable_gib and self.usable_fraction:
            raise ValueError("give usable_gib or usable_fraction, not both")
        if self.usable_fraction and self.usable_fraction.value > 1:
            raise ValueError(f"usable_fraction {self.usable_fraction.value:g} is more than 1")
        if self.capacity_gib and self.usable_gib and self.usable_gib.value > self.capacity_gib.value:
            raise ValueError("usable_gib is more than capacity_gib")
        if self.configurations_gib and (
            self.capacity_gib is None or self.capacity_gib.value != self.configurations_gib[-1]
        ):
            raise ValueError("capacity_gib must be the largest of configurations_gib")
        return self


class Cache(Spec):
    """The last cache before memory."""

    last_level_mib: Quantity
    bandwidth_gb_s: Quantity | None = None


class Clock(Spec):
    """The clock the peaks hold at, and the highest the part runs at (the ideal must be a bound).

    Where the highest is known in another way than the advertised one, ``max_kind`` says how, and the note is about it.
    """

    advertised_mhz: Positive
    max_mhz: Positive | None = None
    kind: Evidence
    max_kind: Evidence | None = None
    source: str
    note: str | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Clock:
        if self.max_mhz is not None and self.max_mhz < self.advertised_mhz:
            raise ValueError(f"max_mhz {self.max_mhz:g} is below advertised_mhz {self.advertised_mhz:g}")
        if self.max_kind is not None and self.max_mhz is None:
            raise ValueError("max_kind says how max_mhz is known: give max_mhz, or leave max_kind out")
        return self


LinkKind = Literal["pcie", "nvlink", "nvlink-c2c", "xgmi", "xelink", "ethernet", "ici", "neuronlink", "other"]


class Link(Spec):
    """A way to other devices or to the host."""

    kind: LinkKind
    generation: Annotated[float, Field(gt=0, le=10)] | None = None
    lanes: Annotated[int, Field(ge=1, le=128)] | None = None
    gb_s_per_direction: Quantity
    domain: Count = 1


class PowerRange(Spec):
    """The limits that the maker lets the power be set to (cTDP, TGP, power modes), without short boosts."""

    min: Positive
    max: Positive
    kind: Evidence
    source: str
    note: str | None = None


class Power(Spec):
    """Board or socket power: the rated one, and the range it can be set to where there is one."""

    tdp_w: Quantity
    range_w: PowerRange | None = None

    @model_validator(mode="after")
    def _rated_in_range(self) -> Power:
        limits = self.range_w
        if limits is not None and not limits.min <= self.tdp_w.value <= limits.max:
            raise ValueError(
                f"tdp_w {self.tdp_w.value:g} is not in range_w, {limits.min:g} to {limits.max:g}; mend one of them"
            )
        if limits is not None and limits.min == limits.max:
            raise ValueError(f"range_w from {limits.min:g} to {limits.max:g} is no range; leave it out")
        return self


class HardwareSpec(Entry):
    """One device: a card, a system on a chip, a CPU socket.

    Attributes hold what the file says; the properties give it in base units. `products` are the computers and phones it
    is sold in, which people name instead of it.
    """

    products: tuple[Name, ...] = ()
    vendor: str
    architecture: str
    kind: DeviceKind
    release_date: str | None = None
    memory: Memory
    cache: Cache | None = None
    clock: Clock | None = None
    peak_list: Annotated[tuple[Peak, ...], Field(alias="peaks", min_length=1)]
    compute_units: Count | None = None
    isa: str | None = None
    links: tuple[Link, ...] = ()
    power: Power | None = None
    ad_hoc: Annotated[bool, Field(exclude=True)] = False

    @model_validator(mode="after")
    def _peaks_differ(self) -> HardwareSpec:
        seen: set[str] = set()
        for peak in self.peak_list:
            if peak.key in seen:
                raise ValueError(f"peak '{peak.key}' is listed twice")
            seen.add(peak.key)
        return self

    def __repr__(self) -> str:
        return line("HardwareSpec", [repr(self.id), *self._figures()])

    __str__ = __repr__

    def _figures(self) -> Iterator[str]:
        """Memory, bandwidth, the highest 16-bit peak (else the first one) and the rated power, with their units."""
        if self.memory_bytes is not None:
            yield in_unit(self.memory_bytes, "bytes")
        yield in_unit(self.memory_bandwidth_bytes_per_s, "bytes_per_s")
        shown = [peak for peak in self.peak_list if peak.precision in ("fp16", "bf16")] or self.peak_list[:1]
        best = max(shown, key=lambda peak: peak.flop_per_s)
        yield f"{in_unit(best.flop_per_s, 'flop_per_s')} in {best.key}"
        if self.tdp_w is not None:
            yield in_unit(self.tdp_w, "w")

    @cached_property
    def peaks(self) -> dict[str, float]:
        """Dense peaks by ``precision.accumulate``, at the advertised clock. [FLOP/s]"""
        return {peak.key: peak.flop_per_s for peak in self.peak_list}

    def peak(self, key: str) -> float:
        """The dense peak of one precision and accumulator, at the advertised clock. [FLOP/s]

        Raises
        ------
        MissingSpec
            The device has no such path; another is never put in its place.
        """
        try:
            return self.peaks[key]
        except KeyError:
            raise MissingSpec(
                f"no peak '{key}'; it has {', '.join(self.peaks)}",
                where=f"{self.id}, field peaks",
                next_step="Add the peak to the device's file with its source, or choose a format it can compute in.",
            ) from None

    def peak_unit(self, key: str) -> str:
        """Whether a peak belongs to the ``matrix`` or the ``vector`` units."""
        return next(peak.unit for peak in self.peak_list if peak.key == key)

    @property
    def clock_headroom(self) -> float:
        """Highest clock over the clock the peaks hold at; 1 where it is not known. [-]"""
        if self.clock is None or self.clock.max_mhz is None:
            return 1.0
        return self.clock.max_mhz / self.clock.advertised_mhz

    @property
    def memory_bytes(self) -> int | None:
        """Printed capacity (the largest configuration), None where it depends on the machine. [byte]"""
        return None if self.memory.capacity_gib is None else round(self.memory.capacity_gib.value * units.GIB)

    @property
    def usable_bytes(self) -> int | None:
        """What a program can get of the memory. [byte]"""
        if self.memory.usable_gib is not None:
            return round(self.memory.usable_gib.value * units.GIB)
        if self.memory_bytes is None:
            return None
        share = 1.0 if self.memory.usable_fraction is None else self.memory.usable_fraction.value
        return int(self.memory_bytes * share)

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Printed memory bandwidth. [byte/s]"""
        return self.memory.bandwidth_gb_s.value * units.GB

    @property
    def cache_bytes(self) -> int:
        """Last-level cache; 0 where it is not known. [byte]"""
        return 0 if self.cache is None else round(self.cache.last_level_mib.value * units.MIB)

    @property
    def cache_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of the last-level cache. [byte/s]"""
        if self.cache is not None and self.cache.bandwidth_gb_s is not None:
            return self.cache.bandwidth_gb_s.value * units.GB
        return CACHE_BANDWIDTH_MULTIPLE * self.memory_bandwidth_bytes_per_s

    @property
    def tdp_w(self) -> float | None:
        """Rated power. [W]"""
        return None if self.power is None else self.power.tdp_w.value

    @property
    def power_range_w(self) -> tuple[float, float] | None:
        """The lowest and the highest power it can be set to; None where it is not known, or fixed. [W]"""
        limits = None if self.power is None else self.power.range_w
        return None if limits is None else (limits.min, limits.max)

    def with_capacity(self, capacity_bytes: int) -> HardwareSpec:
        """The same device with another amount of memory, as in ``m3-max-40c@64GiB``."""
        gib = capacity_bytes / units.GIB
        memory = self.memory
        asked = Quantity(value=gib, kind="estimate", source=AS_ASKED)
        usable = memory.usable_gib
        if usable is not None and memory.capacity_gib is not None:
            usable = usable.model_copy(update={"value": gib * usable.value / memory.capacity_gib.value})
        changed = {"capacity_gib": asked, "configurations_gib": (), "usable_gib": usable}
        return self.with_memory(memory.model_copy(update=changed))

    def with_memory(self, memory: Memory) -> HardwareSpec:
        """The same device with another memory, whose values may cite `AS_ASKED`."""
        return self._as_asked(memory=memory)

    def with_reserved(self, reserved_bytes: int) -> HardwareSpec:
        """The same device with less for a program, since others hold memory too; as it is where that is not known.

        Raises
        ------
        InvalidRequest
            Nothing would be left.
        """
        if self.usable_bytes is None:
            return self
        left = self.usable_bytes - reserved_bytes
        if left <= 0:
            raise InvalidRequest(
                f"{reserved_bytes / units.GIB:g} GiB held by others leave nothing of the "
                f"{self.usable_bytes / units.GIB:.1f} GiB of {self.id}",
                where="reserved_gib",
            )
        usable = Quantity(value=left / units.GIB, kind="estimate", source=AS_ASKED)
        return self.with_memory(self.memory.model_copy(update={"usable_gib": usable, "usable_fraction": None}))

    def with_power_limit(self, limit_w: float) -> HardwareSpec:
        """The same device held to less than its rated power, as with ``nvidia-smi --power-limit``.

        Clock and peaks fall by ``(limit_w / tdp_w) ** POWER_EXPONENT``, bandwidth does not. The highest clock stays,
        and the ideal with it: a limit holds on average, and the ideal must be a bound. A limit at or above the rated
        power changes nothing.

        Parameters
        ----------
        limit_w : float
            Power that the device may draw. [W]

        Raises
        ------
        InvalidRequest
            No positive power.
        MissingSpec
            The device's rated power or clock is not known.
        """
        if not 0 < limit_w < float("inf"):
            raise InvalidRequest(f"a power limit of {limit_w:g} W; it must be positive", where="power_limit_w")
        if self.power is None or self.clock is None:
            field = "power.tdp_w" if self.power is None else "clock.advertised_mhz"
            raise MissingSpec(
                "a power limit needs rated power and clock",
                where=f"{self.id}, field {field}",
                next_step="Add the value to the device's file with its source.",
            )
        if limit_w >= self.power.tdp_w.value:
            return self
        share = (limit_w / self.power.tdp_w.value) ** POWER_EXPONENT
        clock = self.clock
        slower = {"advertised_mhz": clock.advertised_mhz * share, "max_mhz": clock.max_mhz or clock.advertised_mhz}
        return self._as_asked(
            power=Power(tdp_w=Quantity(value=limit_w, kind="estimate", source=AS_ASKED)),
            clock=clock.model_copy(update=slower),
            peak_list=tuple(peak.model_copy(update={"tflops": peak.tflops * share}) for peak in self.peak_list),
        )

    def scaled(
        self,
        *,
        bandwidth: float = 1,
        compute: float = 1,
        cache: float = 1,
        cache_bandwidth: float = 1,
        links: float = 1,
    ) -> HardwareSpec:
        """The same device with other rates: each factor multiplies all that it names, `compute` every peak. [-]"""

        memory, level = self.memory, self.cache
        rate = None if memory.data_rate_gt_s is None else memory.data_rate_gt_s * bandwidth
        faster = {"bandwidth_gb_s": _times(memory.bandwidth_gb_s, bandwidth), "data_rate_gt_s": rate}
        if level is not None:
            own = None if level.bandwidth_gb_s is None else _times(level.bandwidth_gb_s, cache_bandwidth)
            level = level.model_copy(
                update={"last_level_mib": _times(level.last_level_mib, cache), "bandwidth_gb_s": own}
            )
        return self._as_asked(
            memory=memory.model_copy(update=faster),
            cache=level,
            links=tuple(
                link.model_copy(update={"gb_s_per_direction": _times(link.gb_s_per_direction, links)})
                for link in self.links
            ),
            peak_list=tuple(peak.model_copy(update={"tflops": peak.tflops * compute}) for peak in self.peak_list),
        )

    def as_one(self, count: int) -> HardwareSpec:
        """So many of a device as one: memory, caches, cores and arithmetic of all of them.

        What they have to tell one another, or what it costs one socket to read the other's memory, is not in the
        figures.
        """
        if count == 1:
            return self
        memory, cache = self.memory, self.cache
        rates = {"bandwidth_gb_s": _times(memory.bandwidth_gb_s, count), "bus_bits": (memory.bus_bits or 0) * count}
        if memory.capacity_gib is not None:
            rates["capacity_gib"] = _times(memory.capacity_gib, count)
        if memory.usable_gib is not None:
            rates["usable_gib"] = _times(memory.usable_gib, count)
        if cache is not None:
            rate = cache.bandwidth_gb_s and _times(cache.bandwidth_gb_s, count)
            level = {"last_level_mib": _times(cache.last_level_mib, count), "bandwidth_gb_s": rate}
            cache = cache.model_copy(update=level)
        return self._as_asked(
            name=f"{count}x {self.name}",
            memory=memory.model_copy(update={**rates, "bus_bits": rates["bus_bits"] or None}),
            cache=cache,
            compute_units=None if self.compute_units is None else self.compute_units * count,
            peak_list=tuple(peak.model_copy(update={"tflops": peak.tflops * count}) for peak in self.peak_list),
            power=None if self.power is None else Power(tdp_w=_times(self.power.tdp_w, count)),
        )

    def _as_asked(self, **changed: Any) -> HardwareSpec:
        """A copy with other values, of which some cite what was typed."""
        typed = Source(title="as typed in the system's description")
        copy = self.model_copy(update={**changed, "sources": {**self.sources, AS_ASKED: typed}})
        copy.__dict__.pop("peaks", None)  # derived from the list, and copied with it where it was asked for
        return copy


def _times(quantity: Quantity, count: float) -> Quantity:
    return quantity.model_copy(update={"value": quantity.value * count})


class HostMemory(Spec):
    """System RAM beside the devices, as in ``ddr5-5600x2@64GiB``."""

    name: str
    bandwidth_bytes_per_s: Positive
    capacity_bytes: int | None = None


class Disk(Spec):
    """A drive that holds what memory does not, as in ``nvme-gen4@2TB``."""

    name: str
    bandwidth_bytes_per_s: Positive
    capacity_bytes: int | None = None


class StorageSpec(Entry):
    """A class of drives: the most that its interface or its fastest members read in a row."""

    read_bandwidth_gb_s: Quantity

    @property
    def read_bandwidth_bytes_per_s(self) -> float:
        """[byte/s]"""
        return self.read_bandwidth_gb_s.value * units.GB


class Network(Spec):
    """What joins the devices where each sits in a computer of its own, as in ``10gbe``."""

    name: str
    bandwidth_bytes_per_s: Positive


class DeviceGroup(Spec):
    """Equal devices."""

    device: HardwareSpec
    count: Annotated[int, Field(ge=1, le=1024)] = 1


_groups = Kept[tuple[DeviceGroup, ...]](512)


class SystemSpec(Spec):
    """Devices, host memory and drives that run one model together.

    `device` and `count` are the first kind of device that computes, `others` the further kinds in the order in which
    they were named.
    """

    name: str
    device: HardwareSpec
    count: Annotated[int, Field(ge=1, le=1024)] = 1
    others: tuple[DeviceGroup, ...] = ()
    host: HostMemory | None = None
    host_cpu: HardwareSpec | None = None
    disk: Disk | None = None
    network: Network | None = None

    def __repr__(self) -> str:
        sizes = [group.device.memory_bytes for group in self.groups]
        rates = [group.count * group.device.memory_bandwidth_bytes_per_s for group in self.groups]
        parts = [repr(self.name), f"{self.device_count} device{'s' if self.device_count > 1 else ''}"]
        if None not in sizes:
            total = sum(group.count * (group.device.memory_bytes or 0) for group in self.groups)
            parts.append(in_unit(total, "bytes"))
        parts.append(in_unit(sum(rates), "bytes_per_s"))
        if self.rated_power_w is not None:
            parts.append(in_unit(self.rated_power_w, "w"))
        return line("SystemSpec", parts)

    __str__ = __repr__

    @property
    def id(self) -> str:
        """The system string in canonical form."""
        return self.name

    @property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """All kinds of devices that compute, the first one first."""

        def made() -> tuple[DeviceGroup, ...]:
            first = DeviceGroup.model_construct(device=self.device, count=self.count)  # both are checked already
            return (first, *self.others)

        return _groups.of((self.device, self.others), (self.count,), made)

    @property
    def device_count(self) -> int:
        """Devices of all kinds. [-]"""
        return self.count + sum(group.count for group in self.others)

    @property
    def rated_power_w(self) -> float | None:
        """Rated power of all devices, without the host; None where that of any is not known. [W]"""
        total = 0.0
        for group in self.groups:
            if group.device.tdp_w is None:
                return None
            total += group.count * group.device.tdp_w
        return total

    @property
    def power_range_w(self) -> tuple[float, float] | None:
        """Sums of what the devices may be set to draw at least and at most; None as in `rated_power_w`. [W]"""
        if (rated := self.rated_power_w) is None:
            return None
        ends = [(group, group.device.power_range_w) for group in self.groups if group.device.power_range_w is not None]
        lower = sum(group.count * ((group.device.tdp_w or 0.0) - limits[0]) for group, limits in ends if limits)
        higher = sum(group.count * (limits[1] - (group.device.tdp_w or 0.0)) for group, limits in ends if limits)
        return rated - lower, rated + higher
