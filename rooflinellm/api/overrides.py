"""What-ifs: replace values of an entry by path, one value or an array of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflinellm._numeric import is_array
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


def has_arrays(values: Mapping[str, Any]) -> bool:
    """Tell whether any value is an array of values to try."""
    return any(is_array(value) or isinstance(value, list | tuple) for value in values.values())
