"""Samples: measured times beside what each operator would need at printed rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from rooflinellm.efficiency.rates import FEW, MANY
from rooflinellm.engine.evaluate import (
    attended_work,
    attention_parts,
    moved_bytes,
    multiplied,
    written_per_token,
)
from rooflinellm.engine.kernels import VECTOR_PEAK, choose_backend
from rooflinellm.engine.parallel import collectives_s
from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.plan import Kernel, Plan, Speeds
from rooflinellm.engine.request import Request
from rooflinellm.errors import RooflineError
from rooflinellm.measurements.evaluate import Evaluator
from rooflinellm.measurements.population import population, series
from rooflinellm.measurements.resolver import Resolved
from rooflinellm.measurements.row import Row
from rooflinellm.operators.experts import MEASURED_SKEW, busiest_over_mean
from rooflinellm.specs.profile import Level

KINDS = ("prefill", "decode", "tpot", "ttft", "serving")
"""Quantities that samples are made of."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator over one run of passes, at printed rates.

    Attributes
    ----------
    names : dict of Level to str
        What factors may depend on.
    launches : float
        Launches of the operator. [-]
    memory_s : float
        Bytes over printed bandwidth. [s]
    tile_s, tile_fixed_s : float
        FLOPs over the path's peak; and what one token of `half_tokens` adds. [s]
    vector_s : float
        FLOPs over the 32-bit vector peak; infinite where no matrix-vector kernel serves. [s]
    passes : float
        Passes that the times above are each of; 1 where they are totals of passes that are all alike. [-]
    memory_step_s, tile_step_s : float
        What either grows by from pass to pass. [s]
    """

    names: dict[Level, str]
    launches: float = 0.0
    memory_s: float = 0.0
    tile_s: float = 0.0
    tile_fixed_s: float = 0.0
    vector_s: float = math.inf
    passes: float = 1.0
    memory_step_s: float = 0.0
    tile_step_s: float = 0.0

    def scaled(self, share: float) -> Entry:
        """The same for a share of the passes."""
        if share == 1:
            return self
        times = ("launches", "memory_s", "tile_s", "tile_fixed_s", "vector_s", "memory_step_s", "tile_step_s")
        return replace(self, **{name: getattr(self, name) * share for name in times})


COLUMNS = tuple(each.name for each in fields(Entry))[1:]
"""The numbers of an entry, in the order of `Sample.columns`."""


@dataclass(frozen=True)
class Sample:
    """One vote: the median of the rows of a series.

    Attributes
    ----------
    row_id : str
        The row it is taken from.
    group : str
        Engine and backend, as ``llama.cpp:cuda``.
    population, device, series : str
        What it is counted under.
    phase : str
        ``prefill`` or ``decode``.
    sequences : int
        Sequences side by side. [-]
    measured_s : float
        Time of the phase. [s]
    ideal_s : float
        Its bound; 0 where there is none. [s]
    entries : tuple of Entry
        The operators.
    """

    row_id: str
    group: str
    population: str
    device: str
    series: str
    phase: str
    sequences: int
    measured_s: float
    ideal_s: float
    entries: tuple[Entry, ...]

    @cached_property
    def columns(self) -> Any:
        """Numbers of its entries, a row each."""
        return np.array([[getattr(entry, name) for name in COLUMNS] for entry in self.entries])

    @cached_property
    def names(self) -> tuple[tuple[tuple[Level, str], ...], ...]:
        """What factors of its entries may depend on."""
        return tuple(tuple(entry.names.items()) for entry in self.entries)


def samples(rows: Iterable[tuple[Row, Resolved]], evaluator: Evaluator) -> list[Sample]:
    """Turn resolved rows of single-phase tests into samples, one a series.

    Parameters
    ----------
    rows : iterable of (Row, Resolved)
        Results and what they measure; rows of other quantities are left out.
    evaluator : Evaluator
        Compiles the plans.

    Returns
    -------
    list of Sample
        One a series, and of builds and variants that the fit tells apart one each; in the order of their first rows.
    """
    votes: dict[tuple[str | None, ...], list[Sample]] = {}
    for row, resolved in rows:
        try:
            sample = _sample(row, resolved, evaluator)
        except RooflineError:
            continue  # `validate` reports the reason
        if sample is not None:
            names = sample.entries[0].names
            key = (sample.group, sample.series, names.get("era"), names.get("variant"))
            votes.setdefault(key, []).append(sample)
    return [_median(group) for group in votes.values()]


def _median(group: Sequence[Sample]) -> Sample:
    ordered = sorted(group, key=lambda sample: sample.measured_s)
    return ordered[(len(ordered) - 1) // 2]


def group_of(resolved: Resolved) -> str:
    """The group of kernels that a result is of: engine and backend, as ``llama.cpp:cuda``."""
    engine, device = resolved.engine, resolved.system.device
    return f"{engine.variant_of or engine.id}:{choose_backend(engine, device, resolved.backend)}"


def is_of_kernels(resolved: Resolved) -> bool:
    """Whether a result tells of the kernels of one group: on one device or one team, with nothing on its host."""
    parallel = resolved.parallel
    alone = resolved.system.device_count == 1 or (parallel.team == parallel.devices > 1)
    if not alone or resolved.offload is not None or resolved.drafts is not None:
        return False
    return resolved.quantity.of in KINDS and ("batch" in resolved.keywords or resolved.quantity.of != "serving")


def series_of(row: Row, resolved: Resolved) -> str:
    """The series of a result, as text."""
    return repr(series(row, resolved))


def _sample(row: Row, resolved: Resolved, evaluator: Evaluator) -> Sample | None:
    quantity = resolved.quantity
    if not is_of_kernels(resolved):
        return None
    plan, request = evaluator.plan(resolved), evaluator.request(resolved)
    predicted = evaluator.predict(resolved)
    counted, parts = _parts(quantity.of, plan, request)
    if quantity.unit == "s":
        measured, ideal = quantity.measured / quantity.scale, predicted.ideal or 0.0
    else:
        counted = counted if quantity.tokens is None else request.sequences * quantity.tokens
        measured = counted * quantity.scale / quantity.measured
        ideal = counted * quantity.scale / predicted.ideal if predicted.ideal else 0.0
    measured -= sum(share * collectives_s(plan.collectives, passes.packed) for passes, share in parts)
    if not math.isfinite(measured) or measured <= 0:
        return None
    return Sample(
        row_id=row.id,
        group=group_of(resolved),
        population=population(row, resolved),
        device=resolved.system.name,
        series=series_of(row, resolved),
        phase="prefill" if quantity.of in ("prefill", "ttft") else "decode",
        sequences=request.sequences,
        measured_s=measured,
        ideal_s=ideal,
        entries=tuple(entry.scaled(share) for passes, share in parts for entry in _entries(plan, passes)),
    )


def _parts(of: str, plan: Plan, request: Request) -> tuple[float, list[tuple[Passes, float]]]:
    """Tokens that are counted, and passes whose time adds up to what was measured, each with its weight.

    As `measurements.evaluate` adds them up: a time per token has a step of all requests and the prefill of the others;
    a busy server prefills as many requests as it decodes.
    """
    prefill = request.prefill_passes(plan.prefill_chunk)
    if of in ("prefill", "ttft"):
        return request.sequences * request.computed_tokens, [(prefill, 1.0)]
    steps = max(request.decode_steps, 1)
    decode = request.decode_passes(steps)
    if of == "decode":
        return request.sequences * steps, [(decode, 1.0)]
    if of == "serving":
        return request.sequences * request.output_tokens, [(decode, 1.0), (prefill, 1.0)]
    alone = replace(request, sequences=1).prefill_passes(plan.prefill_chunk)
    waits = [(alone, (request.sequences - 1) / steps)] if request.sequences > 1 and request.prompt_tokens else []
    return request.sequences, [(decode, 1 / steps), *waits]


def _entries(plan: Plan, passes: Passes) -> Iterator[Entry]:
    device = plan.system.device.as_one(plan.main.team)
    for kernel, speeds, row in zip(plan.kernels, plan.speeds, plan.layout.rows, strict=True):
        names: dict[Level, str] = {**plan.rates.names, "kind": kernel.kind}
        if row.encoding is not None:
            names["encoding"] = row.encoding
        seen = passes.seen(kernel.sight)
        for run in passes.packed:
            if run.passes > 0:
                yield from _floors(kernel, run, names)
        for run in seen:
            if run.passes > 0:
                yield from _busy(kernel, speeds, run, names, device.memory_bandwidth_bytes_per_s, device.peaks)


def _floors(kernel: Kernel, run: Run, names: dict[Level, str]) -> Iterator[Entry]:
    """Launches of an operator over a run, apart by the floors that they lie between."""
    launches = _launches(kernel, run)
    many = 0.0 if kernel.kind == "head" else float(run.many)
    for regime, share in ((FEW, 1 - many), (MANY, many)):
        if share > 0:
            yield Entry({**names, "regime": regime}, launches * share)


def _launches(kernel: Kernel, run: Run) -> float:
    """Launches of an operator over a run; the head's only where logits are computed. [-]"""
    return float(kernel.count * run.passes * (min(run.logits, 1) if kernel.kind == "head" else 1))


def _busy(
    kernel: Kernel, speeds: Speeds, run: Run, names: dict[Level, str], bandwidth: float, peaks: dict[str, float]
) -> Iterator[Entry]:
    path = next((path for path in reversed(speeds.paths) if run.tokens >= path.min_tokens), None)
    if path is not None:
        names = {**names, "path": path.key}
    if kernel.kind == "attention" and path is not None:
        yield from _attention(kernel, run, names, bandwidth, peaks[path.key])
        return
    tokens, _ = multiplied(kernel, run)
    moved, share = moved_bytes(kernel, run, MEASURED_SKEW)
    passes = float(run.passes)
    if kernel.ranks > 1:
        passes *= float(busiest_over_mean(kernel.experts, share * kernel.active, kernel.ranks))
    memory = passes * moved / bandwidth
    if path is None:
        yield Entry(names, memory_s=memory)
        return
    flops = passes * kernel.flops_per_token
    peak, vector_peak = peaks[path.key], peaks.get(VECTOR_PEAK, math.inf)
    yield Entry(
        names,
        memory_s=memory,
        tile_s=flops * tokens / peak,
        tile_fixed_s=flops * share / peak if tokens else 0.0,
        vector_s=flops * tokens / vector_peak,
    )


def _attention(kernel: Kernel, run: Run, names: dict[Level, str], bandwidth: float, peak: float) -> Iterator[Entry]:
    """Attention over a run, in the parts that the engine adds up; passes within chunks count by their totals there."""
    if kernel.chunk is not None and run.new_tokens != 1:
        flops, moved = attended_work(kernel, run)
        yield Entry(names, memory_s=moved / bandwidth, tile_s=flops / peak)
        return
    written = run.tokens * written_per_token(kernel)
    cached = run.sequences * kernel.kv_bytes_per_token
    for part in attention_parts(kernel, run):
        if part.passes > 0 and part.repeats > 0:
            yield Entry(
                names,
                memory_s=(written + cached * part.read) / bandwidth,
                tile_s=run.sequences * part.flops / peak,
                passes=float(part.passes),
                memory_step_s=cached * part.read_step / bandwidth,
                tile_step_s=run.sequences * part.flops_step / peak,
            ).scaled(float(part.repeats))


def log_times(samples: Sequence[Sample]) -> Any:
    """Logarithms of the measured times. [-]"""
    return np.log([sample.measured_s for sample in samples])
