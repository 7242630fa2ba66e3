"""What-ifs: replace values of an entry by path, one value or an array of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from rooflinellm._numeric import is_array
from rooflinellm.engine.plan import Kernel, Machine, Plan
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import Spec, validate
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry

ROOTS = ("hardware", "model")


def with_value(data: Any, path: list[str], value: Any, where: str) -> Any:
    """A copy of plain values with one of them replaced; the value of a sourced quantity stands in for the quantity.

    Raises
    ------
    InvalidRequest
        A path that leads nowhere, naming what there is.
    """
    step, rest = path[0], path[1:]
    if isinstance(data, list):
        index = int(step) if step.isdigit() else len(data)
        if index >= len(data):
            raise InvalidRequest(f"'{step}' is not an index from 0 to {len(data) - 1}", where=where)
        return [*data[:index], with_value(data[index], rest, value, where) if rest else value, *data[index + 1 :]]
    if not isinstance(data, Mapping) or step not in data:
        known = ", ".join(map(str, data)) if isinstance(data, Mapping) else "nothing below it"
        raise InvalidRequest(f"no field '{step}'; there is {known}", where=where)
    if rest:
        return {**data, step: with_value(data[step], rest, value, where)}
    old = data[step]
    if isinstance(old, Mapping) and "value" in old and not isinstance(value, Mapping):
        return {**data, step: {**old, "value": value}}
    return {**data, step: value}


def override(
    model: ModelSpec,
    system: SystemSpec,
    values: Mapping[str, Any],
) -> tuple[ModelSpec, SystemSpec]:
    """The same entries with some values replaced.

    Parameters
    ----------
    model, system
        The entries.
    values : mapping of str to Any
        Values by dotted path, which starts with ``hardware`` or ``model``.

    Returns
    -------
    tuple of ModelSpec and SystemSpec

    Raises
    ------
    InvalidRequest
        A path that leads nowhere.
    InvalidSpec
        A value that the entry does not allow.
    """
    for path, value in values.items():
        root, *rest = path.split(".")
        if root not in ROOTS or not rest:
            raise InvalidRequest(
                f"'{path}' is no path of a value; it starts with {' or '.join(f'{name}.' for name in ROOTS)}",
                where="overrides",
                next_step='Write it like {"hardware.memory.bandwidth_gb_s": 1100}.',
            )
        where = f"overrides, {path}"
        if root == "hardware":
            device = _replaced(HardwareSpec, system.device, rest, value, where)
            system = system.model_copy(update={"device": device})
        else:
            entry = _replaced(ModelEntry, model.entry, rest, value, where)
            model = ModelSpec(entry.model_copy(update={"file": model.entry.file}))
    return model, system


def _replaced(kind: type[Any], spec: Spec, path: list[str], value: Any, where: str) -> Any:
    data = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    changed = with_value(data, path, value, where)
    if isinstance(spec, HardwareSpec):
        changed = _without_derived_rate(changed, path) | {"ad_hoc": spec.ad_hoc}
    return validate(kind, changed, where=where)


def _without_derived_rate(data: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Drop what an overridden value contradicts: a bandwidth that was asked for is no longer bus x data rate."""
    if path == ["memory", "bandwidth_gb_s"] or path == ["memory", "bandwidth_gb_s", "value"]:
        memory = {name: value for name, value in data["memory"].items() if name != "data_rate_gt_s"}
        return {**data, "memory": memory}
    return data


def variants(values: Mapping[str, Any]) -> tuple[list[dict[str, Any]], tuple[int, ...] | None]:
    """Write array values out: one mapping of plain values for each element, and the arrays' common shape.

    Returns
    -------
    tuple
        The mappings, and None for the shape where no value is an array.
    """
    arrays = {path: value for path, value in values.items() if is_array(value) or isinstance(value, list | tuple)}
    if not arrays:
        return [dict(values)], None
    import numpy as np

    try:
        broadcast = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in arrays.values()))
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"arrays do not broadcast, or hold no numbers: {error}", where="overrides") from error
    shape = broadcast[0].shape
    flat = [array.ravel().tolist() for array in broadcast]
    return [dict(values) | dict(zip(arrays, row, strict=True)) for row in zip(*flat, strict=True)], shape


def stacked(plans: list[Plan], shape: tuple[int, ...]) -> Plan:
    """One plan whose machine and rates are arrays, from plans that differ in nothing else.

    Raises
    ------
    InvalidRequest
        The values change more than rates: the shape of the model, or which path is taken.
    """
    first = plans[0]
    kernels = []
    for group in zip(*(plan.kernels for plan in plans), strict=True):
        paths = tuple(
            replace(path, flop_per_s=_array([kernel.paths[i].flop_per_s for kernel in group], shape))
            for i, path in enumerate(group[0].paths)
        )
        stacks = {
            name: _array([getattr(kernel, name) for kernel in group], shape)
            for name in ("ideal_flop_per_s", "sustained_bandwidth", "few_tokens_flop_per_s")
        }
        kernels.append(replace(group[0], paths=paths, **stacks))
        if any(_identity(kernel) != _identity(group[0]) for kernel in group):
            raise InvalidRequest("an array can only replace rates and capacities of hardware", where="overrides")
    machine = Machine(
        **{
            field.name: _array([getattr(plan.machine, field.name) for plan in plans], shape)
            for field in fields(Machine)
            if field.name != "devices"
        },
        devices=first.machine.devices,
    )
    return replace(first, kernels=tuple(kernels), machine=machine)


def _identity(kernel: Kernel) -> tuple[Any, ...]:
    return (
        kernel.name,
        kernel.flops_per_token,
        kernel.weight_bytes,
        kernel.kv_bytes_per_token,
        kernel.window,
        kernel.floor_s,
        kernel.ideal_key,
        tuple((path.min_tokens, path.key) for path in kernel.paths),
    )


def _array(values: list[Any], shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.asarray(values, dtype=float).reshape(shape)
