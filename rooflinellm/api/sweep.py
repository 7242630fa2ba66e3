"""Estimates over a grid: every combination of several models, systems, lengths, batches, formats or what-if values."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from rooflinellm._numeric import every, is_array
from rooflinellm.api import lookup
from rooflinellm.api.arguments import overrides_of, scalar_count
from rooflinellm.api.estimate import estimate
from rooflinellm.api.parallel_choices import DEGREES, is_several, parallel_axis
from rooflinellm.api.sweep_result import Sweep, SweepMemory, SweepPhase
from rooflinellm.api.sweep_store import BYTES, KINDS, Store, blocks, tightened
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
    *("parallel", *DEGREES),
)
"""Axes of which each value is a plan of its own."""
FIXED = ("acceptance", "options")
"""Keywords that take one value for all points."""

BLOCK_POINTS = 32_768
"""Points that are evaluated together: their arrays stay in a processor's cache. [-]"""
MAX_POINTS = 250_000
"""Of one answer, about 100 MB; `sweep_blocks` has no limit. [-]"""
MAX_PLANS = 20_000
MAX_PLACEMENTS = 5_000
"""Points that may each be placed anew where the model does not fit the devices. [-]"""
_COUNT = re.compile(r"\d[\d,]*")

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
        `draft` and `acceptance` say nothing. ``parallel="all"`` is an axis of every way to share the model over all
        devices (`rooflinellm.parallel_choices`), or give some of them; degrees of parallelism that are given as lists
        become such an axis, without the combinations that do not make up the devices.

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
    return _swept(_grid(models, hardware, axes))


def _swept(grid: _Grid, known: set[str] | None = None) -> Sweep:
    """Evaluate a grid, and say what makes answers an "as if".

    `known` holds the kinds of warnings that were said before, which are not said again; it grows by those that are.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        columns, said = _evaluated(grid)
    found = _result(grid, columns, said)
    known = set() if known is None else known
    for text in found.warnings:
        kind = _COUNT.sub("", text)
        if kind not in known:
            known.add(kind)
            warnings.warn(text, RooflineWarning, stacklevel=3)
    return found


def sweep_blocks(models: Any, hardware: Any, *, block_points: int = BLOCK_POINTS, **axes: Any) -> Iterator[Sweep]:
    """`sweep` in parts: for grids that are larger than memory, or to look at the first answers before the last.

    Parameters
    ----------
    models, hardware, **axes
        As in `sweep`; as many points as there is patience for.
    block_points : int
        Most points of a part. [-]

    Yields
    ------
    Sweep
        A part of the grid, the last axis moving fastest; together they hold each point once. Axes that were given
        several values stay axes.

    Raises
    ------
    InvalidRequest, RooflineError
        As `sweep`, as soon as the part is reached.

    Warns
    -----
    RooflineWarning
        As `sweep`, of the first part that there is something to say of; `Sweep.warnings` has them of each.
    """
    most = scalar_count("block_points", block_points, MAX_POINTS)
    grid = _grid(models, hardware, axes, largest=False)
    names, known = list(grid.axes), set[str]()
    for block in blocks(grid.lengths(names), most):
        yield _swept(grid.part({name: grid.axes[name][part] for name, part in zip(names, block, strict=True)}), known)


@dataclass(frozen=True)
class _Grid:
    """What is asked: axes in their order, and single values."""

    models: tuple[ModelSpec, ...]
    systems: tuple[SystemSpec, ...]
    axes: dict[str, tuple[Any, ...]]
    paths: tuple[str, ...]
    fixed: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def looped(self) -> list[str]:
        """Axes of which each value is a plan of its own."""
        return [name for name in self.axes if name not in self.numeric]

    @property
    def numeric(self) -> list[str]:
        """Axes that are evaluated as arrays."""
        return [name for name in self.axes if name in COUNTED or name in TIMED]

    def part(self, axes: dict[str, tuple[Any, ...]]) -> _Grid:
        """The grid of some of the values of each axis."""
        models = tuple(each for each in self.models if each.id in axes.get("model", (each.id,)))
        systems = tuple(each for each in self.systems if each.id in axes.get("hardware", (each.id,)))
        return replace(self, axes=axes, models=models, systems=systems)

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
            if "parallel" in chosen:
                chosen |= chosen.pop("parallel").keywords
            tried = {path: chosen.pop(path) for path in self.paths if path in chosen}
            overrides = {**self.fixed.get("overrides", {}), **tried}
            given = {**self.fixed, **chosen}
            if chosen.get("draft_tokens") == 0:  # on an axis of draft lengths: the answer without drafts
                given = {name: value for name, value in given.items() if name not in ("draft", "acceptance")}
            yield {**given, "model": model, "hardware": system, "overrides": overrides or None}


def _grid(models: Any, hardware: Any, given: Mapping[str, Any], *, largest: bool = True) -> _Grid:
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
    given, notes = parallel_axis(given, found_models, found_systems)
    for name, value in given.items():
        if name == "overrides":
            axes |= {path: _values(path, each) for path, each in overrides.items() if is_several(each)}
            fixed["overrides"] = {path: each for path, each in overrides.items() if not is_several(each)}
        elif name in FIXED or (name in (*COUNTED, *TIMED, *LOOPED) and not is_several(value)):
            fixed[name] = value
        elif name in (*COUNTED, *TIMED, *LOOPED):
            axes[name] = _values(name, value)
        else:
            allowed = ", ".join((*COUNTED, *TIMED, *LOOPED, "overrides", *FIXED))
            raise InvalidRequest(f"'{name}' is no axis; there is {allowed}", where="axes")
    grid = _Grid(found_models, found_systems, axes, tuple(overrides), fixed, notes)
    points, plans = math.prod(grid.lengths(list(axes))), math.prod(grid.lengths(grid.looped))
    for number, most, what in (
        (points, MAX_POINTS, "points"),
        (plans, MAX_PLANS, "combinations of names and settings"),
    ):
        if number > most and largest:
            raise InvalidRequest(
                f"{number:,} {what}, more than {most:,}",
                where="axes",
                next_step="Give fewer values, or go through them in parts: rl.sweep_blocks.",
            )
    return grid


def _entries(where: str, value: Any) -> list[Any]:
    if isinstance(value, _ENTRY):
        return [value]
    if not isinstance(value, list | tuple) or not value:
        raise InvalidRequest(f"{met(value)} names nothing; give one entry or a list of them", where=where)
    return list(value)


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


def _evaluated(grid: _Grid) -> tuple[Store, list[str]]:
    """Values at each point; and the warnings."""
    plans, shape = math.prod(grid.lengths(grid.looped)), grid.lengths(grid.numeric)
    store = Store(plans, shape)
    said: dict[str, None] = {}
    for row, arguments in enumerate(grid.combinations()):
        for box, answer in _answers(grid, arguments, shape):
            store.put(row, box, answer, arguments["overrides"] or {})
            said |= dict.fromkeys(answer.warnings)
    return store, list(said)


def _answers(
    grid: _Grid, arguments: Mapping[str, Any], shape: tuple[int, ...]
) -> Iterator[tuple[tuple[Any, ...], Estimate]]:
    """Estimates of one plan, each with the indices of its points.

    The points of a block are a part of the grid and stay one: each axis is an array along a dimension of its own, so
    that what does not depend on an axis is not computed anew for each of its values.
    """
    if not shape:
        yield (), estimate(**arguments)
        return
    import numpy as np

    axes = {name: np.asarray(grid.axes[name]) for name in grid.numeric}
    for block in blocks(shape, BLOCK_POINTS):
        parts = [values[part] for values, part in zip(axes.values(), block, strict=True)]
        numbers: dict[str, Any] = dict(zip(axes, np.ix_(*parts), strict=True))
        answer = estimate(**arguments, **numbers)
        if _placed_alike(answer, arguments):
            yield block, answer
            continue
        places = np.meshgrid(*(np.arange(part.start, part.stop) for part in block), indexing="ij")
        points = np.stack([each.ravel() for each in places])
        yield from _placed_each(points, axes, arguments)


def _placed_each(
    points: Any, axes: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Iterator[tuple[tuple[Any, ...], Estimate]]:
    """Estimates of these points, in parts where they are not placed alike.

    An estimate places the largest case of its arrays. That is every point's own placement where all of them lie on the
    devices; else points are parted, until those that are left together need the same memory.
    """
    import numpy as np

    def ask(which: Any) -> Estimate:
        places = zip(axes.items(), points[:, which], strict=True)
        numbers: dict[str, Any] = {name: values[place] for (name, values), place in places}
        return estimate(**arguments, **numbers)

    answer = ask(slice(None))
    workload = answer.workload
    occupied = sum(workload[name] for name in ("context_tokens", "prompt_tokens", "output_tokens"))
    count = points.shape[1]
    needs = np.stack(
        [np.broadcast_to(value, count) for value in (workload["batch"], workload["context_limit"], occupied)]
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
        those = (rank >= first) & (rank < end)
        if end - first == 1 or _placed_alike(answer, arguments):
            yield tuple(points[:, those]), answer
            continue
        middle = (first + end) // 2
        for low, high in ((first, middle), (middle, end)):
            parts.append((low, high, ask((rank >= low) & (rank < high))))


def _placed_alike(answer: Estimate, arguments: Mapping[str, Any]) -> bool:
    """Whether the placement of the largest case is that of each."""
    if answer.hardware.host is None or not (
        arguments.get("gpu_layers") is None and arguments.get("cpu_moe_layers") is None
    ):
        return True
    on_devices = answer.workload["gpu_layers"] is None and answer.workload["cpu_moe_layers"] is None
    return on_devices and (answer.memory.fits is None or every(answer.memory.fits))


def _result(grid: _Grid, store: Store, said: Sequence[str]) -> Sweep:
    """The arrays in the order of the axes, under their names."""
    import numpy as np

    inner = [*grid.looped, *grid.numeric]
    order = [inner.index(name) for name in grid.axes]
    shape, plans = grid.lengths(list(grid.axes)), grid.lengths(grid.looped)

    def column(name: str) -> Any:
        array = store.column(name)
        return np.broadcast_to(array.reshape(plans + array.shape[1:]), plans + store.shape).transpose(order)

    def prediction(path: str) -> Prediction:
        ideal, expected, low, high = (column(f"{path}.{kind}") for kind in KINDS)
        unit = "tokens/s" if path.endswith("tokens_per_s") else "J" if path.startswith("energy") else "s"
        return Prediction(ideal, expected, low, high, unit, basis)

    def phase(name: str) -> SweepPhase:
        return SweepPhase(
            tokens_per_s=prediction(f"{name}.tokens_per_s"),
            aggregate_tokens_per_s=prediction(f"{name}.aggregate_tokens_per_s"),
            time_s=prediction(f"{name}.time_s"),
            bound=column(f"{name}.bound"),
        )

    basis = " and ".join(sorted(set(store.column("basis").ravel().tolist())))
    workload = {name.partition(".")[2]: column(name) for name in store.names if name.startswith("workload.")}
    for place, (name, values) in enumerate(grid.axes.items()):
        if name in (*COUNTED, *TIMED, *LOOPED) and name not in ("weights", "kv", "engine"):  # as asked
            along = [1] * len(shape)
            along[place] = len(values)
            axis = np.empty(len(values), dtype=object)
            axis[:] = list(map(str, values)) if name == "parallel" else values
            workload[name] = np.broadcast_to(tightened(axis).reshape(along), shape)
    memory = SweepMemory(**{name: column(f"memory.{name}") for name in (*BYTES, "fits")})
    return Sweep(
        axes=dict(grid.axes),
        prefill=phase("prefill"),
        decode=phase("decode"),
        **{name: prediction(name) for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "energy_j_per_token")},
        memory=memory,
        **{name: column(name) for name in ("model", "hardware", "weights", "kv", "engine", "basis", "evidence")},
        workload=workload,
        overrides={name.partition(".")[2]: column(name) for name in store.names if name.startswith("overrides.")},
        models=grid.models,
        systems=grid.systems,
        warnings=_warnings(memory.fits, said),
        notes=grid.notes,
    )


def _warnings(fits: Any, said: Sequence[str]) -> tuple[str, ...]:
    """The warnings of all points, those about memory counted."""
    texts = [text for text in said if not text.startswith("memory: ")]
    unknown = int((fits == None).sum()) if fits.dtype == object else 0  # noqa: E711 - elementwise
    lacking = int((fits == False).sum())  # noqa: E712 - elementwise, and None is neither
    if lacking:
        texts.append(f"memory: does not fit at {lacking:,} of {fits.size:,} points; the answers there are as if it did")
    if unknown:
        texts.append(
            f"memory: the capacity is not known at {unknown:,} of {fits.size:,} points; whether it fits is open"
        )
    return tuple(texts)
