"""The ways in which the devices of a system can share a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from rooflinellm.api import lookup
from rooflinellm.api.lookup import Name
from rooflinellm.api.plans import parallel_of
from rooflinellm.engine.parallel import Parallel
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import MixtureOfExperts, ModelEntry

DEGREES = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
"""Arguments of `estimate` that say how devices share the work."""
ALL = "all"


def parallel_choices(
    model: Name | ModelEntry | ModelSpec, hardware: Name | HardwareSpec | SystemSpec
) -> tuple[Parallel, ...]:
    """List the degrees of parallelism that use every device of a system.

    Tensor x pipeline x data make up the devices, tensor divides the heads and is divided by the KV heads or divides
    them. The experts of a mixture are shared by the whole team of tensor x data, or by none beyond tensor parallelism.

    Parameters
    ----------
    model, hardware
        As in `estimate`.

    Returns
    -------
    tuple of Parallel
        In falling order of tensor, then of data parallelism; `Parallel.keywords` are arguments of `estimate`.

    Raises
    ------
    InvalidRequest
        Devices of different kinds, which share only layers.
    UnknownName, AmbiguousName
        As in `estimate`.
    """
    return _choices(lookup.model(model), lookup.system(hardware))


def _choices(model: ModelSpec, system: SystemSpec) -> tuple[Parallel, ...]:
    devices = _devices(system)
    degrees = [degree for degree in range(devices, 0, -1) if devices % degree == 0]
    mixture = any(isinstance(block.ffn, MixtureOfExperts) for block in model.layers)
    found = []
    for tensor, data in product(degrees, degrees):
        if devices % (tensor * data):
            continue
        team = tensor * data
        for expert in (1, team) if mixture and team > 1 else (1,):
            choice = Parallel(tensor, devices // team, expert, data)
            if _is_possible(choice, model, devices):
                found.append(choice)
    return tuple(found)


def _is_possible(choice: Parallel, model: ModelSpec, devices: int) -> bool:
    try:
        choice.checked(model, devices)
    except InvalidRequest:
        return False
    return True


def _devices(system: SystemSpec) -> int:
    if system.others:
        raise InvalidRequest("devices of different kinds share only layers", where="parallel")
    return system.device_count


def is_several(value: Any) -> bool:
    """Whether an argument of `sweep` is an axis."""
    return isinstance(value, list | tuple | range) or getattr(value, "ndim", 0) > 0


def parallel_axis(
    given: Mapping[str, Any], models: Sequence[ModelSpec], systems: Sequence[SystemSpec]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments of `sweep` with one axis `parallel` in place of degrees that are swept over, and what is to be noted.

    Of degrees given as lists, the combinations that use every device are the values; ``parallel="all"`` is every
    choice that is possible.

    Parameters
    ----------
    given : mapping of str to Any
        Arguments of `sweep`.
    models, systems : sequence
        What is swept over beside.

    Returns
    -------
    dict, tuple of str
        The arguments, in their order, and notes.

    Raises
    ------
    InvalidRequest
        Both `parallel` and degrees, something that is neither, systems of different numbers of devices, or no
        combination that is possible.
    """
    named = [name for name in DEGREES if name in given]
    several = [name for name in named if is_several(given[name])]
    if "parallel" not in given and not several:
        return dict(given), ()
    if "parallel" in given and named:
        raise InvalidRequest(f"it says what {named[0]} says; give either", where="parallel")
    counts = {_devices(system) for system in systems}
    if len(counts) > 1:
        raise InvalidRequest(
            f"systems of {' and '.join(map(str, sorted(counts)))} devices share a model in different ways",
            where="parallel",
            next_step="Sweep over each of them on its own.",
        )
    (devices,) = counts
    tried = tuple(_tried(given, named, models, systems))
    values = tuple(each for each in tried if all(_is_possible(each, model, devices) for model in models))
    if not values:
        raise InvalidRequest(
            f"none of the {len(tried)} combinations shares {models[0].id} over {devices} devices",
            where="parallel",
            next_step='Give degrees whose product is the number of devices, or parallel="all".',
        )
    changed: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("parallel", *several):
            changed.setdefault("parallel", values)
        elif name not in named:
            changed[name] = value
    left_out = len(tried) - len(values)
    note = f"{left_out} of {len(tried)} combinations of degrees do not share the model over {devices} devices; left out"
    return changed, (note,) if left_out else ()


def _tried(
    given: Mapping[str, Any], named: Sequence[str], models: Sequence[ModelSpec], systems: Sequence[SystemSpec]
) -> Iterable[Parallel]:
    asked = given.get("parallel")
    if named:
        lists = [list(given[name]) if is_several(given[name]) else [given[name]] for name in named]
        return (parallel_of(**dict(zip(named, degrees, strict=True))) for degrees in product(*lists))
    if isinstance(asked, str) and asked == ALL:
        return dict.fromkeys(choice for model in models for choice in _choices(model, systems[0]))
    listed = [asked] if isinstance(asked, Parallel) else asked
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(each, Parallel) for each in listed):
        raise InvalidRequest(
            f"{asked!r:.60} says not how devices share the work",
            where="parallel",
            next_step='Give "all", or some of what parallel_choices lists.',
        )
    return dict.fromkeys(listed)
