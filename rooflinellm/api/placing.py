"""Where a model lies: as asked for, or the fastest placement that fits, found by search over the analytic model."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm._numeric import every, is_array, largest
from rooflinellm.api.arguments import count, one_of, scalar_count
from rooflinellm.api.plans import Settled
from rooflinellm.engine.memory import Allocation, fits_devices, memory_plan
from rooflinellm.engine.paging import paged
from rooflinellm.engine.placement import Offload
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request, decode_time
from rooflinellm.errors import InvalidRequest, met


@dataclass(frozen=True, slots=True)
class Placed:
    """A plan with its placement.

    Attributes
    ----------
    plan : Plan
        The plan.
    allocation : Allocation
        How the cache is laid out.
    gpu_layers, cpu_moe_layers : int or None
        The placement in numbers; None where nothing is on the host. [-]
    said : tuple of str
        What was chosen, in words.
    """

    plan: Plan
    allocation: Allocation
    gpu_layers: int | None
    cpu_moe_layers: int | None
    said: tuple[str, ...]


def choose_placement(
    settled: Settled, request: Request, limit: Any, gpu_layers: Any = None, cpu_moe_layers: Any = None
) -> Placed:
    """Place a model for a request.

    Without a wish, everything is on the devices if it fits there, or if there is no host; else the fastest of the
    placements that fit: as many whole layers on the devices as they hold, or all layers but the experts of as few as
    need be. Where the host is too small for each of them, it is as if it were not. Where the driver is to page, it is
    asked to hold all of the wish.

    Parameters
    ----------
    settled : Settled
        Entries and settings.
    request : Request
        What is asked; of arrays the largest case is placed.
    limit : array_like
        Configured context of one sequence. [token]
    gpu_layers, cpu_moe_layers : int, optional
        As asked for. [-]

    Returns
    -------
    Placed

    Raises
    ------
    InvalidRequest
        More layers than there are, experts of a model without any, or a system that names no host.
    """
    wish = _wish(settled, gpu_layers, cpu_moe_layers)
    asked = gpu_layers is not None or cpu_moe_layers is not None
    plan = settled.plan(wish)
    allocation = _allocation(settled, plan)
    if settled.options.overcommit is not None:
        one_of("overcommit", settled.options.overcommit, ("paging",))
        return _placed(paged(plan, request.sequences, limit, allocation), allocation, wish, ())
    if asked or settled.engine.offload is None or settled.system.host is None or settled.system.device.kind == "cpu":
        return _placed(plan, allocation, wish, ())
    search = _Search(settled, request, limit, allocation)
    if search.fits(wish):
        return _placed(plan, allocation, wish, ())
    found = search.best(wish)
    if found is None:
        return _placed(plan, allocation, wish, ())
    fits = search.fits(found)
    how = "the fastest that fits, by search" if fits else "all that the device holds; the host is too small"
    return _placed(settled.plan(found), allocation, found, (f"{_words(settled, found)} ({how})",))


def _wish(settled: Settled, gpu_layers: Any, cpu_moe_layers: Any) -> Offload:
    """What was asked for, checked."""
    layers, options = len(settled.model.layers), settled.options
    here: int | None = None
    if gpu_layers is not None:
        here = _layers("gpu_layers", gpu_layers, layers + 1, f"{settled.model.id} has {layers} layers, and the head")
        here = None if here == layers + 1 else here
    experts = 0
    if cpu_moe_layers is not None:
        experts = _layers("cpu_moe_layers", cpu_moe_layers, layers, f"{settled.model.id} has {layers} layers")
        mixtures = any(getattr(block.ffn, "kind", "") == "moe" for block in settled.model.layers)
        if experts and not mixtures:
            raise InvalidRequest(
                f"{settled.model.id} has no experts", where="cpu_moe_layers", next_step="Use gpu_layers instead."
            )
    parts = options.tensor_split
    if parts is not None:
        devices = settled.system.device_count
        if not _are_parts(parts, devices):
            raise InvalidRequest(
                f"{met(parts)} is not a part for each of {devices} devices, in numbers from 0 on",
                where="tensor_split",
                next_step=f"Write one number a device, such as {(1.0,) * devices}.",
            )
    host_itself = settled.system.device.kind == "cpu"  # where nothing is left elsewhere, as llama.cpp has it
    return Offload(
        gpu_layers=None if host_itself else here,
        cpu_moe_layers=0 if host_itself else experts,
        cache_on_host=options.kv_on_host and not host_itself,
        shares=None if parts is None else tuple(float(part) for part in parts),
    )


def _are_parts(parts: Any, devices: int) -> bool:
    """Whether it is a number from 0 on for each device, of which one is not 0."""
    if not isinstance(parts, Sequence) or len(parts) != devices:
        return False
    return all(isinstance(part, numbers.Real) and 0 <= float(part) < math.inf for part in parts) and sum(parts) > 0


def _layers(name: str, value: Any, most: int, known: str) -> int:
    """A number of layers; an error names what the model has."""
    try:
        checked = count(name, value, 0, most)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, where=name, next_step=f"{known}.") from None
    if is_array(checked):
        raise InvalidRequest(
            "an array is not allowed here; one placement at a time", where=name, next_step="Give one whole number."
        )
    return int(checked)


def _allocation(settled: Settled, plan: Plan) -> Allocation:
    options = settled.options
    return Allocation(
        unified=plan.engine.kv.unified if options.kv_unified is None else options.kv_unified,
        full_windows=options.swa_full,
        chunk=plan.prefill_chunk,
        state_copies=scalar_count("state_copies", options.state_copies),
    )


def _placed(plan: Plan, allocation: Allocation, offload: Offload, said: tuple[str, ...]) -> Placed:
    host = offload.uses_host
    layers = len(plan.model.layers) + 1
    return Placed(
        plan=plan,
        allocation=allocation,
        gpu_layers=(layers if offload.gpu_layers is None else offload.gpu_layers) if host else None,
        cpu_moe_layers=offload.cpu_moe_layers if host else None,
        said=said,
    )


def _words(settled: Settled, offload: Offload) -> str:
    layers = len(settled.model.layers) + 1
    parts = []
    if offload.gpu_layers is not None:
        parts.append(f"{offload.gpu_layers} of {layers} layers on the device, the others on the host")
    if offload.cpu_moe_layers:
        parts.append(f"the experts of {offload.cpu_moe_layers} layers on the host")
    if offload.disk_layers:
        parts.append(f"{offload.disk_layers} of these layers on the drive")
    return f"placement: {'; '.join(parts)}"


class _Search:
    """Placements that fit, and the fastest of them."""

    def __init__(self, settled: Settled, request: Request, limit: Any, allocation: Allocation) -> None:
        self.settled, self.allocation = settled, allocation
        self.limit, self.sequences = int(largest([limit])), int(largest([request.sequences]))
        self.context = int(largest([request.occupied_tokens]))
        self.step = replace(
            request, prompt_tokens=0, output_tokens=1, cached_tokens=0, context_tokens=self.context,
            sequences=self.sequences,
        )  # fmt: skip
        self.layers = len(settled.model.layers)

    def fits(self, offload: Offload) -> bool:
        """Whether all of it fits; unknown memory of the host holds everything."""
        plan = self.settled.plan(offload)
        fits = memory_plan(plan, self.sequences, self.limit, self.context, self.allocation).fits
        return fits is None or every(fits)

    def devices_fit(self, offload: Offload) -> bool:
        """Whether the devices hold their part."""
        return every(fits_devices(self.settled.plan(offload), self.sequences, self.limit, self.allocation))

    def best(self, wish: Offload) -> Offload | None:
        """The fastest placement that fits, or where none does the fastest of which the devices hold their part.

        None where they hold no part at all.
        """
        candidates = [each for each in (self._whole_layers(wish), self._experts(wish)) if each is not None]
        able = [each for each in map(self._on_drive, candidates) if each is not None]
        if not able:
            most = 0 if self.settled.system.disk is None else self.layers
            able = [replace(each, disk_layers=most) for each in candidates]
        return min(able, key=self._step_s, default=None)

    def _whole_layers(self, wish: Offload) -> Offload | None:
        """As many layers on the devices as they hold."""
        return self._most(self.layers, lambda number: replace(wish, gpu_layers=number))

    def _experts(self, wish: Offload) -> Offload | None:
        """All layers on the devices but for the experts of the first ones, as few as need be."""
        if not any(getattr(block.ffn, "kind", "") == "moe" for block in self.settled.model.layers):
            return None
        found = self._most(self.layers, lambda number: replace(wish, cpu_moe_layers=self.layers - number))
        if found is not None:
            return found
        return self._most(self.layers, lambda number: replace(wish, gpu_layers=number, cpu_moe_layers=self.layers))

    def _most(self, most: int, at: Callable[[int], Offload]) -> Offload | None:
        """The largest number, from 0 on, at which the devices hold their part, by bisection."""
        if not self.devices_fit(at(0)):
            return None
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.devices_fit(at(middle)) else (low, middle - 1)
        return at(low)

    def _on_drive(self, offload: Offload) -> Offload | None:
        """The placement with as few layers on a drive as need be for the host to hold the others."""
        if self.fits(offload):
            return offload
        if self.settled.system.disk is None:
            return None
        low, high = 0, self.layers
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(replace(offload, disk_layers=middle)) else (middle + 1, high)
        found = replace(offload, disk_layers=low)
        return found if self.fits(found) else None

    def _step_s(self, offload: Offload) -> float:
        return float(decode_time(self.settled.plan(offload), self.step, 1).expected_s)
