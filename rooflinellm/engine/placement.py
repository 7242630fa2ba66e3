"""Where a model's parts lie: which place holds which layers, experts and caches."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from rooflinellm.engine.layout import OUTSIDE_LAYERS, Layout, OperatorRow
from rooflinellm.engine.plan import Cache, DeviceShare, Kernel, Tier
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.graph import Kind

LOOKED_UP = ("embedding", "tables")
"""Operators that read a row of a table for a token."""
CACHED: tuple[Kind, ...] = ("attention", "recurrent")
"""Operators that run where their cache or state lies."""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere weights and cache can lie.

    Attributes
    ----------
    tier : str
        ``device``, ``host`` or ``disk``.
    group : int
        Which kind of device of the system; -1 elsewhere.
    usable_bytes : int or None
        What programs get of its memory; None where it is not known. [byte]
    """

    tier: Tier
    group: int = -1
    usable_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Offload:
    """How a model is divided.

    Attributes
    ----------
    gpu_layers : int or None
        Layers on the devices, the last ones, the head as one more behind them; None is all. [-]
    cpu_moe_layers : int
        Layers, the first ones, whose experts stay on the host. [-]
    cache_on_host : bool
        Cache and attention stay on the host.
    shares : tuple of float or None
        Parts of the devices in what they hold; None follows their memory.
    disk_layers : int
        Layers, the first ones of the host's, whose weights lie on a drive. [-]
    """

    gpu_layers: int | None = None
    cpu_moe_layers: int = 0
    cache_on_host: bool = False
    shares: tuple[float, ...] | None = None
    disk_layers: int = 0

    @property
    def uses_host(self) -> bool:
        """Whether something is left on the host."""
        return self.gpu_layers is not None or self.cpu_moe_layers > 0 or self.cache_on_host


@dataclass(frozen=True)
class Placement:
    """The place of each part, as an index into `places`.

    Attributes
    ----------
    places : tuple of Place
        All of them, the devices first.
    layers : tuple of int
        Place of each layer, and of the head behind the last. [-]
    experts, caches : tuple of int
        Place of each layer's experts, and of its cache or state. [-]
    embedding : int
        Place of what is looked up. [-]
    """

    places: tuple[Place, ...]
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    caches: tuple[int, ...]
    embedding: int

    @cached_property
    def only(self) -> int | None:
        """The place where everything runs; None where there are several."""
        used = {*self.layers, *self.experts, *self.caches}
        return self.layers[0] if len(used) == 1 else None

    def runs(self, row: OperatorRow) -> tuple[int, ...]:
        """The place where an operator runs, in each of its layers; a lookup counts with the layer behind it."""
        if self.only is not None:
            return (self.only,) * len(row.layers)
        kind = row.operator.kind
        by_layer = self.experts if kind == "experts" else self.caches if kind in CACHED else self.layers
        outside = self.layers[0] if kind == "embedding" else self.layers[-1]
        return tuple(outside if layer == OUTSIDE_LAYERS else by_layer[layer] for layer in row.layers)

    def holds(self, row: OperatorRow) -> tuple[int, ...]:
        """The place where an operator's weights lie, in each of its layers."""
        if row.operator.kind == "embedding" and row.operator.name in LOOKED_UP:
            return (self.embedding,) * len(row.layers)
        return self.runs(row)

    def rows_at(self, layout: Layout, places: Container[int]) -> list[OperatorRow]:
        """The operators that run at some places."""
        if self.only is not None:
            return list(layout.rows) if self.only in places else []
        found = []
        for row in layout.rows:
            held = {layer for layer, place in zip(row.layers, self.runs(row), strict=True) if place in places}
            if held:
                found.append(row.within(held))
        return found

    def path(self) -> list[int]:
        """The places that a token passes through, in order, each change a crossing."""
        if self.only is not None:
            return [self.only]
        steps: list[int] = []
        for layer, experts, cache in zip(self.layers[:-1], self.experts, self.caches, strict=True):
            steps += [layer, cache, layer, experts, layer]
        steps.append(self.layers[-1])
        return [step for index, step in enumerate(steps) if index == 0 or step != steps[index - 1]]


def place(
    layers: int,
    places: Sequence[Place],
    offload: Offload,
    *,
    embedding_on_host: bool,
    computes_on_host: bool,
    head_last: bool = False,
) -> Placement:
    """Divide a model of so many layers, by llama.cpp's rule.

    The head counts as one more layer behind the last. The last `gpu_layers` of them go to the devices, in order, each
    device's part in proportion to its share and a layer on the border to the earlier device; the others stay on the
    host, and the first ones of these on a drive.

    Parameters
    ----------
    layers : int
        Layers without the head. [-]
    places : sequence of Place
        The devices, then the host and the drive where there are any.
    offload : Offload
        How it is divided.
    embedding_on_host : bool
        What is looked up stays on the host, where there is one.
    computes_on_host : bool
        What lies on the host is computed there, cache and all; else only weights lie there.
    head_last : bool
        The head goes to the devices after all layers, instead of before them.

    Returns
    -------
    Placement

    Raises
    ------
    InvalidRequest
        There is no host and something to leave on it.
    """
    devices = [index for index, each in enumerate(places) if each.tier == "device"]
    host = next((index for index, each in enumerate(places) if each.tier == "host"), None)
    drive = next((index for index, each in enumerate(places) if each.tier == "disk"), None)
    whole = layers + 1
    here = whole if offload.gpu_layers is None else min(offload.gpu_layers, whole)
    if host is None and (here < whole or offload.cpu_moe_layers or offload.cache_on_host):
        raise InvalidRequest(
            "nothing can stay on the host: there is no device beside it",
            where="gpu_layers",
            next_step="Leave it out, or name a device and its host, such as rtx-4090 + ddr5-5600x2@64GiB.",
        )
    parts = offload.shares or _by_memory([places[index] for index in devices])
    total = sum(parts)
    ends = [math.ceil(round(upto / total * here, 9)) for upto in accumulate(parts)]
    start = max((layers if head_last else whole) - here, 0)
    outside = -1 if host is None else host
    by_layer = [outside] * start
    for device, (begin, end) in zip(devices, pairwise((0, *ends)), strict=True):
        by_layer += [device] * (end - begin)
    by_layer += [outside] * (whole - len(by_layer))
    experts = [outside if layer < offload.cpu_moe_layers else by_layer[layer] for layer in range(layers)]
    caches = by_layer[:layers]
    if offload.cache_on_host:
        caches = [outside] * layers
    elif not computes_on_host:
        caches = [devices[0] if where == host else where for where in caches]
    if drive is not None:
        moved = [layer for layer in range(layers) if experts[layer] == host][: offload.disk_layers]
        for layer in moved:
            experts[layer] = drive
            if by_layer[layer] == host:
                by_layer[layer] = drive  # its cache stays in memory
    return Placement(
        places=tuple(places),
        layers=tuple(by_layer),
        experts=tuple(experts),
        caches=tuple(caches),
        embedding=host if embedding_on_host and host is not None else by_layer[0],
    )


def _by_memory(devices: Sequence[Place]) -> tuple[float, ...]:
    """Parts of the devices in proportion to their memory; equal ones where it is not known of all."""
    if any(device.usable_bytes is None for device in devices):
        return (1.0,) * len(devices)
    return tuple(float(device.usable_bytes or 0) for device in devices)


def shares(
    layout: Layout,
    held: Sequence[tuple[OperatorRow, Kernel]],
    placement: Placement,
    resident_weight_bytes: int,
    copies: Callable[[OperatorRow], float],
) -> tuple[DeviceShare, ...]:
    """Add up what each place holds.

    Parameters
    ----------
    layout : Layout
        Bytes by operator and layer.
    held : sequence of (OperatorRow, Kernel)
        The operators with what they cache.
    placement : Placement
        Where they lie.
    resident_weight_bytes : int
        Weights as they are on disk; the layout's bytes are scaled to it. [byte]
    copies : callable
        How often the devices of a place hold an operator's weights between them. [-]

    Returns
    -------
    tuple of DeviceShare
        One for each place; weights and cache add up to the model's.
    """
    scale = resident_weight_bytes / layout.resident_bytes
    weights = [0] * len(placement.places)
    copied = [0.0] * len(placement.places)
    for row in layout.rows:
        more = copies(row) - 1
        holds = placement.holds(row)
        parts = zip(row.bytes_by_layer, holds, strict=True)
        if holds.count(holds[0]) == len(holds):
            parts = zip((row.weight_bytes,), holds[:1], strict=True)
        for size, index in parts:
            weights[index] += size
            if placement.places[index].tier == "device":
                copied[index] += size * more
    weights = [round(size * scale) for size in weights]
    weights[placement.layers[-1]] += resident_weight_bytes - sum(weights)  # what no pass reads, and what rounding left
    found = []
    for index in range(len(placement.places)):
        caches: dict[tuple[str, int | None], int] = {}
        state = 0
        for row, kernel in held:
            here = placement.runs(row).count(index)
            state += here * (kernel.state_bytes // kernel.count)
            if here and kernel.kv_owned_bytes_per_token:
                key = kernel.cache_kind, cache_span(kernel)
                caches[key] = caches.get(key, 0) + here * (kernel.kv_owned_bytes_per_token // kernel.count)
        found.append(
            DeviceShare(
                layers=placement.layers.count(index),
                weight_bytes=weights[index],
                caches=tuple(Cache(kind, most, size) for (kind, most), size in caches.items()),
                state_bytes=state,
                copied_bytes=round(copied[index] * scale),
            )
        )
    return tuple(found)


def cache_span(kernel: Kernel) -> int | None:
    """Tokens that a sequence needs to hold for an operator: a window or a chunk; None for all. [token]

    Sparse attention reads a choice of the cache and must hold all of it.
    """
    return kernel.window or kernel.chunk if kernel.cache_kind == "sliding" else None
