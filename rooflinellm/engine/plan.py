"""A plan: everything declarative turned into coefficients, ready for plain arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from rooflinellm._kept import Kept
from rooflinellm._numeric import where
from rooflinellm.efficiency.collectives import Law
from rooflinellm.efficiency.rates import Rates
from rooflinellm.engine.layout import Layout
from rooflinellm.engine.passes import Sight
from rooflinellm.operators.graph import Kind
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.curves import CollectiveOf
from rooflinellm.specs.engine import Backend, EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec

PASSES_KEPT = 64
"""Results of passes that a stage remembers, some three for each shape; few shapes are met again and again. [-]"""

Tier = Literal["device", "host", "disk"]
"""Where a part of a model lies: in a device that computes, in the memory of its host, or on a drive."""


@dataclass(frozen=True, slots=True)
class PathRate:
    """The rate an operator is expected to compute at with many tokens, from so many in a pass on.

    At `half_tokens` it reaches half of the rate. [FLOP/s], [token]
    """

    min_tokens: int
    key: str
    flop_per_s: Any
    half_tokens: float


@dataclass(frozen=True, slots=True)
class Kernel:
    """Equal operators of all layers, as coefficients: what is to be done, on whatever device.

    Attributes
    ----------
    name, kind : str
        As in `operators.graph.Operator`.
    count : int
        Layers it stands in. [-]
    flops_per_token : int
        2 N: k of E experts in a mixture. [FLOP/token]
    weight_bytes : int or float
        Weights read once a pass; of a mixture, one expert of each layer. [byte]
    experts, active : int
        E and k; 0 elsewhere. [-]
    flops_per_pair : int
        Attention over one query-key pair. [FLOP]
    kv_bytes_per_token, kv_owned_bytes_per_token : int
        Keys and values of one token as they are read; and of the layers that hold a cache of their own, as they are
        written and allocated. [byte/token]
    cache_kind : str
        ``full``, ``sliding``, ``latent`` or ``indexer``; empty where nothing is cached.
    window, chunk : int or None
        Attention window, the token itself included; or fixed chunks. [token]
    expanded_flops_per_pair, expansion_flops_per_token : int
        The other form of latent attention: of one pair, and of expanding one cached token. 0 elsewhere. [FLOP]
    state_bytes : int
        Recurrent state of one sequence. [byte]
    activation_bytes_per_token : int
        Activations read and written. [byte/token]
    ranks : int
        Devices that have some of the experts each; the busiest decides. [-]
    """

    name: str
    kind: Kind
    count: int
    flops_per_token: int
    weight_bytes: Any
    experts: int
    active: int
    flops_per_pair: int
    kv_bytes_per_token: int
    kv_owned_bytes_per_token: int
    cache_kind: str
    window: int | None
    chunk: int | None
    expanded_flops_per_pair: int
    expansion_flops_per_token: int
    state_bytes: int
    activation_bytes_per_token: int
    ranks: int = 1

    @property
    def sight(self) -> Sight:
        """How it sees the passes of a phase."""
        if self.kind == "attention":
            return "attended"
        return "recurrent" if self.kind == "recurrent" else "packed"


@dataclass(frozen=True, slots=True)
class Speeds:
    """What a device can reach, and is expected to reach, in operators of one kind and encoding.

    Attributes
    ----------
    floor_s, floor_many_s : float
        Least time in one layer in a pass of few tokens, and of many. [s]
    sustained_bandwidth : Any
        Share of the bandwidth that they are expected to reach. [byte/s]
    few_tokens_flop_per_s : Any
        Rate of the matrix-vector kernels that serve passes of few tokens. [FLOP/s]
    ideal_key : str
        Fastest peak that the engine's rules allow.
    ideal_flop_per_s : Any
        Its rate at the highest clock. [FLOP/s]
    paths : tuple of PathRate
        What is expected instead, by tokens in a pass.
    """

    floor_s: float
    floor_many_s: float
    sustained_bandwidth: Any
    few_tokens_flop_per_s: Any
    ideal_key: str
    ideal_flop_per_s: Any
    paths: tuple[PathRate, ...]

    def path_key(self, tokens: int) -> str:
        """The peak that is expected in a pass of so many tokens; empty where nothing is multiplied."""
        for path in reversed(self.paths):
            if tokens >= path.min_tokens:
                return path.key
        return ""


class SpeedClass(NamedTuple):
    """What the speed of an operator depends on beside the device: kind, encoding, and how many devices do the same."""

    kind: Kind
    encoding: str | None
    copies: float


@dataclass(frozen=True)
class Operators:
    """The operators of a stage, in the order in which they run; stages of other devices may share them.

    Attributes
    ----------
    kernels : tuple of Kernel
        One for each row of equal operators.
    classes : tuple of SpeedClass
        Of each of them.
    """

    kernels: tuple[Kernel, ...]
    classes: tuple[SpeedClass, ...]

    @cached_property
    def by_sight(self) -> tuple[tuple[Sight, tuple[int, ...]], ...]:
        """Their numbers, by how they see passes."""
        found: dict[Sight, list[int]] = {}
        for number, kernel in enumerate(self.kernels):
            found.setdefault(kernel.sight, []).append(number)
        return tuple((sight, tuple(numbers)) for sight, numbers in found.items())

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds there are."""
        return frozenset(kernel.kind for kernel in self.kernels)

    @cached_property
    def kept(self) -> Kept[Any]:
        """Work of passes of some shapes, as it was added up last."""
        return Kept(PASSES_KEPT)


@dataclass(frozen=True, slots=True)
class Machine:
    """The numbers of a system that the arithmetic needs; arrays where a what-if asks for several values at once.

    Attributes
    ----------
    bandwidth : Any
        Printed memory bandwidth of one device. [byte/s]
    cache_bytes, cache_bandwidth : Any
        Last-level cache of one device. [byte], [byte/s]
    devices : int
        Devices in a row, each holding a share of the layers. [-]
    """

    bandwidth: Any
    cache_bytes: Any
    cache_bandwidth: Any
    devices: int


@dataclass(frozen=True, slots=True)
class Cache:
    """Layers that cache alike.

    Attributes
    ----------
    kind : str
        ``full``, ``sliding``, ``latent`` or ``indexer``.
    span : int or None
        Most tokens that a sequence needs to hold; None holds all. [token]
    bytes_per_token : int
        [byte/token]
    """

    kind: str
    span: int | None
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """What one device holds.

    Attributes
    ----------
    layers : int
        Layers, the head as one more behind the last. [-]
    weight_bytes : int
        [byte]
    caches : tuple of Cache
        What its layers cache.
    state_bytes : int
        Recurrent state of one sequence in its layers. [byte]
    copied_bytes : int
        Weights that devices of a team hold more than once between them. [byte]
    """

    layers: int
    weight_bytes: int
    caches: tuple[Cache, ...]
    state_bytes: int
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A way that bytes take between places.

    Attributes
    ----------
    kind : str
        ``pcie``, ``network``, ``disk`` …
    bandwidth : float
        Printed, in one direction. [byte/s]
    sustained_bandwidth : float
        What copies are expected to reach. [byte/s]
    latency_s : float
        What a copy takes at least. [s]
    laws : tuple
        Protocols of collectives over it, by collective, where they were measured.
    """

    kind: str
    bandwidth: float
    sustained_bandwidth: float
    latency_s: float
    laws: tuple[tuple[CollectiveOf, tuple[Law, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Crossing:
    """Activations that pass from one place to the next.

    Attributes
    ----------
    count : int
        How often in a pass. [-]
    bytes_per_token : int
        [byte/token]
    link : Link
        The way they take.
    """

    count: int
    bytes_per_token: int
    link: Link


@dataclass(frozen=True, slots=True)
class Collective:
    """What the devices of a team tell one another.

    Attributes
    ----------
    kind : str
        ``sum`` of what each has, ``exchange`` of tokens, or ``gather`` of logits.
    count : int
        How often in a pass. [-]
    bytes_per_token : float
        [byte/token]
    ranks : int
        Devices that take part. [-]
    link : Link
        The way they take.
    """

    kind: Literal["sum", "exchange", "gather"]
    count: int
    bytes_per_token: float
    ranks: int
    link: Link


@dataclass(frozen=True, slots=True)
class Stream:
    """Weights that are copied to where they are multiplied, pass by pass.

    Attributes
    ----------
    link : Link
        The way they take.
    from_tokens : int
        Tokens of a pass from which on they are copied; below, they are multiplied where they lie. 0 copies always.
        [token]
    from_tokens_of_experts : int
        The same of mixtures. [token]
    overlapped : bool
        The next layer's weights are copied while the last one's are multiplied.
    speeds : tuple of Speeds or None
        Of the stage's operators where the weights are copied to; None for those that stay.
    """

    link: Link
    from_tokens: int
    from_tokens_of_experts: int
    overlapped: bool
    speeds: tuple[Speeds | None, ...]


PAGING_SPREAD = 2.0
"""Least factor to either end of an interval where a driver pages: it moves what it likes. [-]"""


@dataclass(frozen=True, slots=True)
class Spill:
    """What a device does not hold and its driver keeps in system memory, as shares of each kind of content.

    Attributes
    ----------
    workspace, state, cache, weights : array_like
        Shares in system memory. [-]
    link : Link
        The way the device reads them by.
    """

    workspace: Any
    state: Any
    cache: Any
    weights: Any
    link: Link

    @property
    def spread(self) -> Any:
        """Least factor between the expected time and either end of its interval. [-]"""
        return where(self.workspace + self.state + self.cache + self.weights > 0, PAGING_SPREAD, 1.0)


@dataclass(frozen=True)
class Stage:
    """Equal devices in a row, or the host, with the part of the model that lies there.

    Attributes
    ----------
    tier : str
        ``device``, ``host`` or ``disk``.
    device : HardwareSpec
        What computes there.
    backend_name : str
        The engine's backend for it.
    operators : Operators
        Its operators.
    speeds : tuple of Speeds
        What it reaches in each of them.
    machine : Machine
        Its numbers.
    rates : Rates
        What it is expected to reach.
    shares : tuple of DeviceShare
        What each of the devices holds.
    stream : Stream or None
        Whether weights are copied elsewhere.
    team : int
        Devices behind each share, which work on every layer together. [-]
    bounded : bool
        Whether its compute rates are a bound; those of a typical processor are none.
    paging : Link or None
        How a device reads system memory that stands for its own; None where it has no other.
    spill : Spill or None
        What its driver keeps there.
    """

    tier: Tier
    device: HardwareSpec
    backend_name: str
    operators: Operators
    speeds: tuple[Speeds, ...]
    machine: Machine
    rates: Rates
    shares: tuple[DeviceShare, ...]
    stream: Stream | None = None
    bounded: bool = True
    team: int = 1
    paging: Link | None = None
    spill: Spill | None = None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Its operators."""
        return self.operators.kernels

    @cached_property
    def kept(self) -> Kept[Any]:
        """What passes of some shapes take, as it was worked out last."""
        return Kept(PASSES_KEPT)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What its devices are called in tables."""
        if self.tier != "device":
            return (self.tier,)
        count = len(self.shares) * self.team
        return tuple(self.device.id if count == 1 else f"{self.device.id} #{number}" for number in range(count))


@dataclass(frozen=True, slots=True)
class Drafter:
    """What drafts tokens for a model.

    Attributes
    ----------
    name : str
        What it is called.
    plan : Plan or None
        Its own plan; None where drafts cost nothing.
    resident_weight_bytes : int
        Weights that it adds: those that it shares with the model do not count. [byte]
    separate : bool
        Whether it is a model of its own, with buffers of its own.
    """

    name: str
    plan: Plan | None
    resident_weight_bytes: int
    separate: bool


@dataclass(frozen=True)
class Plan:
    """One model in one format on one system under one engine.

    `stages` are the devices in the order in which a token passes through them, then the host and the drive; the first
    one is what the engine runs on, even where nothing of the model lies there.
    """

    model: ModelSpec
    system: SystemSpec
    fmt: FormatSpec
    engine: EngineSpec
    kv: str
    layout: Layout
    stages: tuple[Stage, ...]
    crossings: tuple[Crossing, ...]
    widest_features: int
    resident_weight_bytes: int
    prefill_chunk: int
    build: str | None = None
    offload: Any = None
    drafter: Drafter | None = None
    parallel: Any = None  # engine.parallel.Parallel
    collectives: tuple[Collective, ...] = ()

    @property
    def main(self) -> Stage:
        """What the engine runs on."""
        return self.stages[0]

    @property
    def backend(self) -> Backend:
        """The engine's rules for that device."""
        return self.engine.backends[self.main.backend_name]

    @cached_property
    def engine_name(self) -> str:
        """Engine, backend and, where one was asked for, the build's date: ``llama.cpp:cuda@2024-05``."""
        return f"{self.engine.id}:{self.main.backend_name}{'' if self.build is None else f'@{self.build}'}"

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The operators of all stages."""
        return tuple(kernel for stage in self.stages for kernel in stage.kernels)

    @cached_property
    def speeds(self) -> tuple[Speeds, ...]:
        """What each of them is done with."""
        return tuple(speeds for stage in self.stages for speeds in stage.speeds)

    @cached_property
    def power_w(self) -> tuple[float, tuple[float, float]] | None:
        """Rated power of all devices, and what they may be set to; None where it is not known. [W]"""
        rated, limits = self.system.rated_power_w, self.system.power_range_w
        return None if rated is None or limits is None else (rated, limits)

    @property
    def rates(self) -> Rates:
        """Efficiencies of what the engine runs on."""
        return self.main.rates

    @property
    def evidence(self) -> int:
        """Series that the profile was fitted to, of the kind of device that has the fewest. [-]"""
        return min(stage.rates.evidence for stage in self.stages if stage.tier == "device")

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What others work out of the plan alone, by what they call it."""
        return {}

    @cached_property
    def device_count(self) -> int:
        """Devices that compute one after the other, without the host; a team of devices is one. [-]"""
        return sum(stage.machine.devices for stage in self.stages if stage.tier == "device")

    def computes_on_main(self, stage: Stage) -> bool:
        """Whether the devices that the engine runs on do what a stage has to: their own, or one that lends memory."""
        return stage is self.main or (stage.tier != "device" and stage.device is self.main.device)

    @cached_property
    def placed_elsewhere(self) -> bool:
        """Whether the host or a drive takes part in a pass, beyond looking up embeddings."""
        return any(
            stage.tier != "device" and any(k.kind != "embedding" for k in stage.kernels) for stage in self.stages
        )
