"""Estimates over a grid: every combination of several models, systems, lengths, batches, formats or what-if values."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any

from rooflinellm._numeric import every, is_array
from rooflinellm.api import lookup
from rooflinellm.api.arguments import overrides_of
from rooflinellm.api.estimate import estimate
from rooflinellm.api.sweep_result import QUANTITIES, Sweep, SweepMemory, SweepPhase
from rooflinellm.errors import InvalidRequest, RooflineWarning, met
from rooflinellm.operators.model import ModelSpec
from rooflinellm.results import Estimate, Prediction
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry

COUNTED = ("prompt_tokens", "output_tokens", "cached_tokens", "context_tokens", "context_limit", "batch")
TIMED = ("queue_s", "tokenize_s")
"""Axes that are evaluated together, as arrays."""
LOOPED = (
    *("weights", "kv", "engine", "gpu_layers", "cpu_moe_layers", "prefill_chunk", "draft", "draft_tokens"),
    *("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
)
"""Axes of which each value is a plan of its own."""
FIXED = ("acceptance", "options")
"""Keywords that take one value for all points."""

BLOCK_POINTS = 65_536
MAX_POINTS = 250_000
"""About 400 MB of answers. [-]"""
MAX_PLANS = 20_000
MAX_PLACEMENTS = 5_000
"""Points that may each be placed anew where the model does not fit the devices. [-]"""

_ENTRY = (str, os.PathLike, ModelEntry, ModelSpec, HardwareSpec, SystemSpec)


def sweep(models: Any, hardware: Any, **axes: Any) -> Sweep:
    """Estimate every combination of what is given several of.

    Each list or array is an axis of the grid, like the dimensions of an outer product; single values hold for all
    points. Every point is what `rooflinellm.estimate` answers for it.

    Parameters
    ----------
    models : str, path, spec, or a list of them
        As in `rooflinellm.model`.
    hardware : str, path, spec, or a list of them
        As in `rooflinellm.system`.
    **axes
        Keywords of `rooflinellm.estimate`. Axes may be counts (`prompt_tokens`, `output_tokens`, `cached_tokens`,
        `context_tokens`, `context_limit`, `batch`), times (`queue_s`, `tokenize_s`), names and settings (`weights`,
        `kv`, `engine`, `gpu_layers`, `cpu_moe_layers`, `prefill_chunk` …), and values of `overrides`, each path an axis
        of its own: ``overrides={"hardware.memory.bandwidth_gb_s": [900, 1100]}``. At 0 on an axis of `draft_tokens`,
        `draft` and `acceptance` say nothing.

    Returns
    -------
    Sweep
        Arrays of shape (models, hardware, first axis, …), with a dimension only for what was given several of.

    Raises
    ------
    InvalidRequest
        An unknown axis, one without values or of more than one dimension, too many points, or what `estimate` refuses.
    RooflineError
        What `estimate` raises for any of the combinations.

    Warns
    -----
    RooflineWarning
        As `estimate`, once for all points.
    """
    grid = _grid(models, hardware, axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        columns, said = _evaluated(grid)
    found = _result(grid, columns, said)
    for text in found.warnings:
        warnings.warn(text, RooflineWarning, stacklevel=2)
    return found


@dataclass(frozen=True)
class _Grid:
    """What is asked: axes in their order, and single values."""

    models: tuple[ModelSpec, ...]
    systems: tuple[SystemSpec, ...]
    axes: dict[str, tuple[Any, ...]]
    paths: tuple[str, ...]
    fixed: dict[str, Any]

    @property
    def looped(self) -> list[str]:
        """Axes of which each value is a plan of its own."""
        return [name for name in self.axes if name not in self.numeric]

    @property
    def numeric(self) -> list[str]:
        """Axes that are evaluated as arrays."""
        return [name for name in self.axes if name in COUNTED or name in TIMED]

    def lengths(self, names: Sequence[str]) -> tuple[int, ...]:
        """Number of values on these axes."""
        return tuple(len(self.axes[name]) for name in names)

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Arguments of `estimate` for each plan."""
        names = self.looped
        models = {each.id: each for each in self.models}
        systems = {each.id: each for each in self.systems}
        for values in product(*(self.axes[name] for name in names)):
            chosen = dict(zip(names, values, strict=True))
            model = models[chosen.pop("model", self.models[0].id)]
            system = systems[chosen.pop("hardware", self.systems[0].id)]
            tried = {path: chosen.pop(path) for path in self.paths if path in chosen}
            overrides = {**self.fixed.get("overrides", {}), **tried}
            given = {**self.fixed, **chosen}
            if chosen.get("draft_tokens") == 0:  # on an axis of draft lengths: the answer without drafts
                given = {name: value for name, value in given.items() if name not in ("draft", "acceptance")}
            yield {**given, "model": model, "hardware": system, "overrides": overrides or None}


def _grid(models: Any, hardware: Any, given: Mapping[str, Any]) -> _Grid:
    axes: dict[str, tuple[Any, ...]] = {}
    fixed: dict[str, Any] = {}
    found_models = tuple(map(lookup.model, _entries("models", models)))
    found_systems = tuple(map(lookup.system, _entries("hardware", hardware)))
    for name, entry, found in (("model", models, found_models), ("hardware", hardware, found_systems)):
        if not isinstance(entry, _ENTRY):
            axes[name] = tuple(each.id for each in found)
            if len(set(axes[name])) < len(axes[name]):
                raise InvalidRequest(f"an entry is named twice: {', '.join(axes[name])}", where=name)
    overrides = overrides_of(given.get("overrides")) or {}
    for name, value in given.items():
        if name == "overrides":
            axes |= {path: _values(path, each) for path, each in overrides.items() if _is_several(each)}
            fixed["overrides"] = {path: each for path, each in overrides.items() if not _is_several(each)}
        elif name in FIXED or (name in (*COUNTED, *TIMED, *LOOPED) and not _is_several(value)):
            fixed[name] = value
        elif name in (*COUNTED, *TIMED, *LOOPED):
            axes[name] = _values(name, value)
        else:
            allowed = ", ".join((*COUNTED, *TIMED, *LOOPED, "overrides", *FIXED))
            raise InvalidRequest(f"'{name}' is no axis; there is {allowed}", where="axes")
    grid = _Grid(found_models, found_systems, axes, tuple(overrides), fixed)
    points, plans = math.prod(grid.lengths(list(axes))), math.prod(grid.lengths(grid.looped))
    for number, most, what in (
        (points, MAX_POINTS, "points"),
        (plans, MAX_PLANS, "combinations of names and settings"),
    ):
        if number > most:
            raise InvalidRequest(
                f"{number:,} {what}, more than {most:,}",
                where="axes",
                next_step="Give fewer values, or sweep a part of them at a time.",
            )
    return grid


def _entries(where: str, value: Any) -> list[Any]:
    if isinstance(value, _ENTRY):
        return [value]
    if not isinstance(value, list | tuple) or not value:
        raise InvalidRequest(f"{met(value)} names nothing; give one entry or a list of them", where=where)
    return list(value)


def _is_several(value: Any) -> bool:
    return isinstance(value, list | tuple | range) or getattr(value, "ndim", 0) > 0


def _values(name: str, value: Any) -> tuple[Any, ...]:
    """The values of an axis as plain ones."""
    if getattr(value, "ndim", 1) != 1:
        raise InvalidRequest(f"an axis has one dimension, not {value.ndim}", where=name)
    listed = [each.item() if is_array(each) and each.ndim == 0 else each for each in value]
    if not listed:
        raise InvalidRequest("an axis needs at least one value", where=name)
    for each in listed:
        if name in (*COUNTED, *TIMED) and (isinstance(each, bool) or not isinstance(each, int | float)):
            raise InvalidRequest(f"{met(each)} is no number", where=name)
    if name in COUNTED:
        return tuple(int(each) if math.isfinite(each) and each == int(each) else each for each in listed)
    return tuple(listed)


def _evaluated(grid: _Grid) -> tuple[dict[str, Any], list[str]]:
    """Values at each point by name, plans by points; and the warnings."""
    plans, points = math.prod(grid.lengths(grid.looped)), math.prod(grid.lengths(grid.numeric))
    store = _Store((plans, points))
    said: dict[str, None] = {}
    for row, arguments in enumerate(grid.combinations()):
        for index, answer in _answers(grid, arguments, points):
            store.put(row, index, answer, arguments["overrides"] or {})
            said |= dict.fromkeys(answer.warnings)
    return store.columns, list(said)


def _answers(grid: _Grid, arguments: Mapping[str, Any], points: int) -> Iterator[tuple[Any, Estimate]]:
    """Estimates of one plan, each with the indices of its points."""
    names = grid.numeric
    if not names:
        yield slice(None), estimate(**arguments)
        return
    import numpy as np

    shape = grid.lengths(names)
    axes = {name: np.asarray(grid.axes[name]) for name in names}

    def ask(index: Any) -> Estimate:
        places = np.unravel_index(index, shape)
        numbers = {name: values[place] for (name, values), place in zip(axes.items(), places, strict=True)}
        return estimate(**arguments, **numbers)

    for start in range(0, points, BLOCK_POINTS):
        yield from _placed_each(ask, np.arange(start, min(start + BLOCK_POINTS, points)), arguments)


def _placed_each(
    ask: Callable[[Any], Estimate], index: Any, arguments: Mapping[str, Any]
) -> Iterator[tuple[Any, Estimate]]:
    """Estimates of these points, in parts where they are not placed alike.

    An estimate places the largest case of its arrays. That is every point's own placement where all of them lie on the
    devices; else points are parted, until those that are left together need the same memory.
    """
    import numpy as np

    answer = ask(index)
    if _placed_alike(answer, arguments):
        yield index, answer
        return
    workload = answer.workload
    occupied = sum(workload[name] for name in ("context_tokens", "prompt_tokens", "output_tokens"))
    needs = np.stack(
        [np.broadcast_to(value, index.shape) for value in (workload["batch"], workload["context_limit"], occupied)]
    )
    kinds, kind = np.unique(needs, axis=1, return_inverse=True)
    rank = np.argsort(np.argsort(kinds[0] * kinds[1], kind="stable"))[kind.ravel()]
    if kinds.shape[1] > MAX_PLACEMENTS:
        raise InvalidRequest(
            f"{kinds.shape[1]:,} points may each lie differently on devices and host; at most {MAX_PLACEMENTS:,}",
            where="axes",
            next_step="Give fewer values, or one placement for all: gpu_layers, cpu_moe_layers.",
        )
    parts = [(0, kinds.shape[1], answer)]
    while parts:
        first, end, answer = parts.pop()
        those = index[(rank >= first) & (rank < end)]
        if end - first == 1 or _placed_alike(answer, arguments):
            yield those, answer
            continue
        middle = (first + end) // 2
        for low, high in ((first, middle), (middle, end)):
            parts.append((low, high, ask(index[(rank >= low) & (rank < high)])))


def _placed_alike(answer: Estimate, arguments: Mapping[str, Any]) -> bool:
    """Whether the placement of the largest case is that of each."""
    if answer.hardware.host is None or not (
        arguments.get("gpu_layers") is None and arguments.get("cpu_moe_layers") is None
    ):
        return True
    on_devices = answer.workload["gpu_layers"] is None and answer.workload["cpu_moe_layers"] is None
    return on_devices and (answer.memory.fits is None or every(answer.memory.fits))


_BYTES = ("resident_weight_bytes", "kv_allocated_bytes", "total_bytes", "usable_bytes")


class _Store:
    """Arrays of plans by points, each made when its first value comes."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.columns: dict[str, Any] = {}

    def put(self, row: int, index: Any, answer: Estimate, overrides: Mapping[str, Any]) -> None:
        """Keep an answer at some points of a plan."""
        for path in QUANTITIES:
            prediction = attrgetter(path)(answer)
            for kind in ("ideal", "expected", "low", "high"):
                number = math.nan if prediction is None else getattr(prediction, kind)
                self._set(f"{path}.{kind}", row, index, number, float)
        for name in ("prefill.bound", "decode.bound"):
            self._set(name, row, index, attrgetter(name)(answer), "U8")
        for name in (*_BYTES, "fits"):
            self._set(f"memory.{name}", row, index, getattr(answer.memory, name), object)
        names = {
            "model": answer.model.id,
            "hardware": answer.hardware.id,
            **{name: getattr(answer, name) for name in ("weights", "kv", "engine")},
            "basis": answer.decode.time_s.basis,
        }
        for name, value in names.items():
            self._set(name, row, index, value, object)
        for name, value in answer.workload.items():
            self._set(f"workload.{name}", row, index, value, object)
        for path, value in overrides.items():
            self._set(f"overrides.{path}", row, index, value, object)

    def _set(self, name: str, row: int, index: Any, value: Any, kind: Any) -> None:
        import numpy as np

        if name not in self.columns:
            self.columns[name] = np.empty(self.shape, dtype=kind)
        self.columns[name][row, index] = value


def _result(grid: _Grid, columns: Mapping[str, Any], said: Sequence[str]) -> Sweep:
    """The arrays in the order of the axes, under their names."""
    import numpy as np

    inner = [*grid.looped, *grid.numeric]
    order = [inner.index(name) for name in grid.axes]
    shape = grid.lengths(list(grid.axes))

    def column(name: str) -> Any:
        array = columns[name].reshape(grid.lengths(inner)).transpose(order)
        if array.dtype == object and not name.startswith("overrides."):
            array = _tightened(array)
        return array

    def prediction(path: str) -> Prediction:
        ideal, expected, low, high = (column(f"{path}.{kind}") for kind in ("ideal", "expected", "low", "high"))
        unit = "tokens/s" if path.endswith("tokens_per_s") else "J" if path.startswith("energy") else "s"
        return Prediction(ideal, expected, low, high, unit, basis)

    def phase(name: str) -> SweepPhase:
        return SweepPhase(
            tokens_per_s=prediction(f"{name}.tokens_per_s"),
            aggregate_tokens_per_s=prediction(f"{name}.aggregate_tokens_per_s"),
            time_s=prediction(f"{name}.time_s"),
            bound=column(f"{name}.bound"),
        )

    basis = " and ".join(sorted(set(columns["basis"].ravel().tolist())))
    workload = {name.partition(".")[2]: column(name) for name in columns if name.startswith("workload.")}
    for place, (name, values) in enumerate(grid.axes.items()):
        if name in (*COUNTED, *TIMED, *LOOPED) and name not in ("weights", "kv", "engine"):  # as asked
            along = [1] * len(shape)
            along[place] = len(values)
            axis = np.empty(len(values), dtype=object)
            axis[:] = values
            workload[name] = _tightened(np.broadcast_to(axis.reshape(along), shape))
    memory = SweepMemory(**{name: column(f"memory.{name}") for name in (*_BYTES, "fits")})
    return Sweep(
        axes=dict(grid.axes),
        prefill=phase("prefill"),
        decode=phase("decode"),
        **{name: prediction(name) for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "energy_j_per_token")},
        memory=memory,
        **{name: column(name) for name in ("model", "hardware", "weights", "kv", "engine", "basis")},
        workload=workload,
        overrides={name.partition(".")[2]: column(name) for name in columns if name.startswith("overrides.")},
        models=grid.models,
        systems=grid.systems,
        warnings=_warnings(memory.fits, said),
    )


def _tightened(array: Any) -> Any:
    """Whole numbers as int64 and truth values as bool, where there are no others; else as it is."""
    kinds = {type(value) for value in array.ravel().tolist()}
    if kinds == {bool}:
        return array.astype(bool)
    if kinds and kinds <= {int, float} and all(float(value).is_integer() for value in array.ravel().tolist()):
        return array.astype("int64")
    return array.astype(float) if kinds and kinds <= {int, float} else array


def _warnings(fits: Any, said: Sequence[str]) -> tuple[str, ...]:
    """The warnings of all points, those about memory counted."""
    values = fits.ravel().tolist()
    texts = [text for text in said if not text.startswith("memory: ")]
    lacking, unknown = values.count(False), values.count(None)
    if lacking:
        texts.append(
            f"memory: does not fit at {lacking:,} of {len(values):,} points; the answers there are as if it did"
        )
    if unknown:
        texts.append(
            f"memory: the capacity is not known at {unknown:,} of {len(values):,} points; whether it fits is open"
        )
    return tuple(texts)
