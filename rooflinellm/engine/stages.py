"""Stages: the devices that a token passes through, the host and the drive, each with its operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from rooflinellm import units
from rooflinellm._kept import Kept
from rooflinellm.efficiency.collectives import OF, curve_for, laws_of
from rooflinellm.efficiency.rates import rates, way
from rooflinellm.engine.kernels import KernelBuilder, choose_backend
from rooflinellm.engine.layout import Layout, OperatorRow
from rooflinellm.engine.parallel import ALONE, Parallel
from rooflinellm.engine.placement import CACHED, Placement, shares
from rooflinellm.engine.plan import (
    Crossing,
    DeviceShare,
    Kernel,
    Link,
    Machine,
    Operators,
    SpeedClass,
    Stage,
    Stream,
    Tier,
)
from rooflinellm.operators.cache import CacheTypes
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.hardware import HardwareSpec, LinkKind, Network, SystemSpec
from rooflinellm.specs.hardware import Link as DeviceLink
from rooflinellm.specs.host import host_processor, is_typical
from rooflinellm.specs.profile import ProfileSpec, WayName

COLLECTIVE_WAYS: dict[str, WayName] = {
    "nvlink": "collectives over nvlink",
    "xgmi": "collectives over xgmi",
    "ici": "collectives over nvlink",
    "xelink": "collectives over xgmi",
    "pcie": "collectives over pcie",
}
"""Ways of collectives, by kind of link."""
HOST_LINKS = ("pcie", "nvlink-c2c")
"""Links that lead to the host."""
DEVICES_OF_A_HOST = 8
"""Devices that its PCIe joins, where bridges between pairs do not. [-]"""
DIRECT_NETWORK = 100 * units.GIGA / units.BITS_PER_BYTE
"""Networks from this rate on reach into the memory of devices (RDMA). [byte/s]"""


NO_OPERATORS = Operators((), ())
_whole = Kept[Operators](512)
_held = Kept[tuple[DeviceShare, ...]](512)


def joins(link: DeviceLink, devices: int) -> bool:
    """Whether a kind of link joins so many devices."""
    return link.domain >= devices or (link.kind == "pcie" and devices <= DEVICES_OF_A_HOST)


def profiled_as(engine: EngineSpec, profiles: Sequence[ProfileSpec]) -> str:
    """The engine that profiles are asked for: the one a variant varies, where they do not know the variant."""
    known = any(engine.id in group.engines for profile in profiles for group in profile.groups)
    return engine.id if known or engine.variant_of is None else engine.variant_of


class StageBuilder:
    """Turns a placement into stages."""

    def __init__(
        self,
        system: SystemSpec,
        engine: EngineSpec,
        profiles: Sequence[ProfileSpec],
        cache: CacheTypes,
        build: str | None,
        hidden: int,
        expanded: bool,
        scale: float,
        layout: Layout,
        pinned: bool,
        parallel: Parallel = ALONE,
    ) -> None:
        self.system, self.engine, self.profiles, self.cache = system, engine, profiles, cache
        self.build, self.hidden, self.expanded, self.scale = build, hidden, expanded, scale
        self.layout, self.pinned, self.parallel = layout, pinned, parallel
        self.seen = Counter(row.operator.name for row in layout.rows)

    def stages(self, placement: Placement, backend_name: str, resident: int) -> tuple[Stage, ...]:
        """The devices, then the host and the drive where something runs or lies there."""
        made: list[tuple[Tier, HardwareSpec, str, list[OperatorRow], list[int]]] = []
        for number, group in enumerate(self.system.groups):
            here = [index for index, each in enumerate(placement.places) if each.group == number]
            name = backend_name if number == 0 else choose_backend(self.engine, group.device, None)
            made.append(("device", group.device, name, placement.rows_at(self.layout, here), here))
        main = self.system.device
        for index, each in enumerate(placement.places):
            if each.tier == "device":
                continue
            rows = placement.rows_at(self.layout, (index,))
            device, name = main, backend_name
            if rows and self._computes_on_host:
                host = host_processor(self.system)
                assert host is not None  # `placed` has seen to it
                device, name = host, choose_backend(self.engine, host, None)
            made.append((each.tier, device, name, rows, [index]))
        built = [(part, self._kernels(self._team(part[0], part[1]), part[2]), part[3]) for part in made]
        operators = [self._operators(make, rows) for _, make, rows in built]
        held = [
            (row, kernel)
            for (_, _, rows), found in zip(built, operators, strict=True)
            for row, kernel in zip(rows, found.kernels, strict=True)
        ]
        share = self._shares(held, operators, placement, resident)
        copies = built[0][1]
        return tuple(
            Stage(
                tier=tier,
                device=device,
                backend_name=name,
                operators=found,
                speeds=make.speeds(found.classes),
                machine=Machine(
                    bandwidth=make.device.memory_bandwidth_bytes_per_s,
                    cache_bytes=0 if tier == "disk" else make.device.cache_bytes,  # it is the host's, which counts it
                    cache_bandwidth=make.device.cache_bandwidth_bytes_per_s,
                    devices=len(here),
                ),
                team=self.parallel.team if tier == "device" else 1,
                rates=make.rate,
                shares=tuple(share[index] for index in here),
                stream=self._stream(tier, rows, found.classes, copies, make),
                bounded=not is_typical(device),
                paging=self._paging(tier, device),
            )
            for ((tier, device, name, _, here), make, rows), found in zip(built, operators, strict=True)
            if tier == "device" or found.kernels or any(share[index].weight_bytes for index in here)
        )

    def _operators(self, make: KernelBuilder, rows: Sequence[OperatorRow]) -> Operators:
        """The operators of some rows; those of the whole model are the same on each device."""

        if not rows:
            return NO_OPERATORS

        def made() -> Operators:
            return Operators(tuple(map(make.kernel, rows)), tuple(map(make.speed_class, rows)))

        if tuple(map(id, rows)) != tuple(map(id, self.layout.rows)):
            return made()
        return _whole.of((self.layout, self.engine), (self.cache.names, self.scale, self.expanded, self.parallel), made)

    def _shares(
        self,
        held: Sequence[tuple[OperatorRow, Kernel]],
        operators: Sequence[Operators],
        placement: Placement,
        resident: int,
    ) -> tuple[DeviceShare, ...]:
        """What each place holds; where all runs in one place, it is the same on each device."""

        def made() -> tuple[DeviceShare, ...]:
            return shares(self.layout, held, placement, resident, self.parallel.weight_copies)

        if placement.only is None:
            return made()
        tiers = tuple(place.tier for place in placement.places)
        names = tiers, placement.only, placement.embedding, len(placement.layers), resident, self.parallel
        return _held.of((self.layout, *operators), names, made)

    @property
    def _computes_on_host(self) -> bool:
        return self.engine.offload is not None and self.engine.offload.mode == "layers"

    def _team(self, tier: Tier, device: HardwareSpec) -> HardwareSpec:
        """The devices that work on a layer together, as one."""
        return device.as_one(self.parallel.team) if tier == "device" else device

    def _kernels(self, device: HardwareSpec, backend_name: str) -> KernelBuilder:
        name, backend = f"{self.engine.id}:{backend_name}", self.engine.backends[backend_name]
        variant = None if self.engine.variant_of is None else self.engine.id
        era = self.engine.era(self.build)
        rate = rates(self.profiles, device, profiled_as(self.engine, self.profiles), backend_name, era, variant)
        return KernelBuilder(
            self.engine, name, backend, device, rate, self.cache, self.scale, self.hidden, self.expanded, self.build,
            self.seen, self.parallel,
        )  # fmt: skip

    def _stream(
        self,
        tier: Tier,
        rows: Sequence[OperatorRow],
        classes: tuple[SpeedClass, ...],
        device: KernelBuilder,
        own: KernelBuilder,
    ) -> Stream | None:
        """How weights of a stage come to where they are multiplied."""
        rules = self.engine.offload
        if tier == "device" or rules is None or not rows:
            return None
        if tier == "disk":
            assert self.system.disk is not None
            link = self._link("disk", self.system.disk.bandwidth_bytes_per_s)
            far = zip(rows, own.speeds(classes), strict=True)
            speeds = tuple(found if row.weight_bytes else None for row, found in far)
            return Stream(link, 0, 0, rules.overlapped, speeds)
        first = 0 if rules.mode == "stream" else rules.copies_from_tokens
        if first is None:
            return None
        moe = next((row.operator.moe for row in rows if row.operator.moe is not None), None)
        scaled = moe is not None and rules.counts_tokens_of_experts
        of_experts = first * moe.experts // moe.active if moe is not None and scaled else first
        # Attention goes where the weights around it go, with what is cached, unless it was told to stay.
        near = zip(classes, device.speeds(classes), strict=True)
        moved = tuple(None if self.pinned and each.kind in CACHED else found for each, found in near)
        return Stream(self._host_link("weights", self.system.device), first, of_experts, rules.overlapped, moved)

    def _paging(self, tier: Tier, device: HardwareSpec) -> Link | None:
        """How a discrete device reads system memory."""
        discrete = tier == "device" and device.kind != "cpu" and not device.memory.unified
        return self._host_link("paging", device) if discrete else None

    def crossings(self, placement: Placement) -> tuple[Crossing, ...]:
        """Activations that pass from place to place, by the way they take."""
        counts: Counter[Link] = Counter()
        path = placement.path()
        for before, behind in pairwise(path):
            tiers = {placement.places[before].tier, placement.places[behind].tier}
            if not self._computes_on_host and "host" in tiers:
                continue
            if tiers == {"device"} and self.parallel != ALONE:
                counts[self.collective_link()] += 1
            elif self.system.network is not None and tiers == {"device"}:
                counts[self._network_link(self.system.network)] += 1
            elif tiers != {"host", "disk"}:
                counts[self._host_link("devices" if tiers == {"device"} else "host", self.system.device)] += 1
        size = self.hidden * self.engine.activation_bytes
        return tuple(Crossing(count, size, link) for link, count in counts.items())

    def collective_link(self) -> Link:
        """The fastest way between the devices of a team."""
        links = [link for link in self.system.device.links if link.kind in COLLECTIVE_WAYS]
        able = [link for link in links if joins(link, self.parallel.team)]
        network = self.system.network
        if network is not None and network.bandwidth_bytes_per_s >= DIRECT_NETWORK:
            return self._link("collectives over network", network.bandwidth_bytes_per_s)
        if network is not None:
            return self._network_link(network)
        if not links:
            return self._measured(self._link("collectives over pcie", 0), "pcie", None)
        best = max(able or links, key=lambda link: link.gb_s_per_direction.value)
        link = self._link(COLLECTIVE_WAYS[best.kind], best.gb_s_per_direction.value * units.GB)
        return self._measured(link, best.kind, best.generation) if able else self._between_computers(link, best.domain)

    def _between_computers(self, fastest: Link, domain: int) -> Link:
        """The way of a team that no link joins, where no network is named: a port a device, as clusters have.

        Devices of a computer first add up over their own link, so that each port carries its share of a message. The
        bound has the fastest link: nothing is known of the network.
        """
        network = self._link("collectives over network", 0)
        shared = min(network.sustained_bandwidth * domain, fastest.sustained_bandwidth)
        return replace(network, bandwidth=fastest.bandwidth, sustained_bandwidth=shared)

    def _measured(self, link: Link, kind: LinkKind, generation: float | None) -> Link:
        """The link with the protocols of collectives that were measured over its kind."""
        asked = (kind, generation, profiled_as(self.engine, self.profiles), self.system.device.id)
        curves = ((of, curve_for(self.profiles, of, *asked)) for of in OF)
        return replace(link, laws=tuple((of, laws_of(curve)) for of, curve in curves if curve is not None))

    def _network_link(self, network: Network) -> Link:
        """The way between computers: the network's own, on top of what any border between devices costs."""
        link = self._link("network", network.bandwidth_bytes_per_s)
        return replace(link, latency_s=link.latency_s + self._host_link("devices", self.system.device).latency_s)

    def _host_link(self, name: WayName, device: HardwareSpec) -> Link:
        """The way between a device and its host, or between devices."""
        if device.memory.unified:
            return self._link(name, device.memory_bandwidth_bytes_per_s)
        known = [link for link in device.links if link.kind in HOST_LINKS]
        return self._link(name, max((link.gb_s_per_direction.value for link in known), default=0) * units.GB)

    def _link(self, name: WayName, bandwidth: float) -> Link:
        found = way(self.profiles, name)
        printed = bandwidth or (found.gb_s or 0) * units.GB
        return Link(name, printed, printed * found.share, found.latency_us * units.MICRO)
