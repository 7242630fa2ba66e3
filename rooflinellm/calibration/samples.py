"""Samples: measured times beside what each operator would need at printed rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflinellm.efficiency.rates import FEW, FEW_TOKENS, MANY
from rooflinellm.engine.evaluate import Passes, Run, attended_work, moved_bytes, multiplied
from rooflinellm.engine.kernels import VECTOR_PEAK
from rooflinellm.engine.plan import Kernel, Plan
from rooflinellm.errors import RooflineError
from rooflinellm.measurements.evaluate import Evaluator
from rooflinellm.measurements.population import population, series
from rooflinellm.measurements.resolver import Resolved
from rooflinellm.measurements.row import Row
from rooflinellm.operators.experts import MEASURED_SKEW
from rooflinellm.specs.profile import Level


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
    """

    names: dict[Level, str]
    launches: float
    memory_s: float
    tile_s: float
    tile_fixed_s: float
    vector_s: float


@dataclass(frozen=True, slots=True)
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
        In the order of the first row of each series.
    """
    votes: dict[tuple[str, ...], list[Sample]] = {}
    for row, resolved in rows:
        try:
            sample = _sample(row, resolved, evaluator)
        except RooflineError:
            continue  # `validate` reports the reason
        if sample is not None:
            votes.setdefault((sample.group, sample.series), []).append(sample)
    return [_median(group) for group in votes.values()]


def _median(group: Sequence[Sample]) -> Sample:
    ordered = sorted(group, key=lambda sample: sample.measured_s)
    return ordered[(len(ordered) - 1) // 2]


def _sample(row: Row, resolved: Resolved, evaluator: Evaluator) -> Sample | None:
    quantity = resolved.quantity
    if quantity.of not in ("prefill", "decode") or resolved.system.count > 1:
        return None
    plan, request = evaluator.plan(resolved), evaluator.request(resolved)
    if quantity.of == "prefill":
        passes = request.prefill_passes(plan.prefill_chunk)
        counted = request.sequences * request.computed_tokens
    else:
        steps = max(request.decode_steps, 1)
        passes = request.decode_passes(steps)
        counted = request.sequences * steps
    predicted = evaluator.predict(resolved)
    measured = counted * quantity.scale / quantity.measured
    if not math.isfinite(measured) or measured <= 0:
        return None
    engine = resolved.engine.variant_of or resolved.engine.id
    return Sample(
        row_id=row.id,
        group=f"{engine}:{plan.main.backend_name}",
        population=population(row, resolved),
        device=resolved.system.name,
        series=repr(series(row, resolved)),
        phase=quantity.of,
        sequences=request.sequences,
        measured_s=measured,
        ideal_s=counted * quantity.scale / predicted.ideal if predicted.ideal else 0.0,
        entries=tuple(_entries(plan, passes)),
    )


def _entries(plan: Plan, passes: Passes) -> Iterator[Entry]:
    device = plan.system.device
    for kernel, row in zip(plan.kernels, plan.layout.rows, strict=True):
        names: dict[Level, str] = {**plan.rates.names, "kind": kernel.kind}
        if row.encoding is not None:
            names["encoding"] = row.encoding
        for run in passes.of(kernel):
            if run.passes > 0:
                yield _entry(kernel, run, names, device.memory_bandwidth_bytes_per_s, device.peaks)


def _entry(kernel: Kernel, run: Run, names: dict[Level, str], bandwidth: float, peaks: dict[str, float]) -> Entry:
    launches = float(kernel.count * run.passes * (min(run.logits, 1) if kernel.kind == "head" else 1))
    names = {**names, "regime": MANY if run.new_tokens > FEW_TOKENS else FEW}
    path = next((path for path in reversed(kernel.paths) if run.tokens >= path.min_tokens), None)
    if path is not None:
        names = {**names, "path": path.key}
    if kernel.kind == "attention" and path is not None:
        flops, moved = attended_work(kernel, run)
        return Entry(names, launches, moved / bandwidth, flops / peaks[path.key], 0.0, math.inf)
    tokens, _ = multiplied(kernel, run)
    moved, share = moved_bytes(kernel, run, MEASURED_SKEW)
    memory = run.passes * moved / bandwidth
    if path is None:
        return Entry(names, launches, memory, 0.0, 0.0, math.inf)
    flops = float(run.passes * kernel.flops_per_token)
    peak, vector_peak = peaks[path.key], peaks.get(VECTOR_PEAK, math.inf)
    return Entry(
        names,
        launches,
        memory,
        flops * tokens / peak,
        flops * share / peak if tokens else 0.0,
        flops * tokens / vector_peak,
    )


def log_times(samples: Sequence[Sample]) -> Any:
    """Logarithms of the measured times. [-]"""
    return np.log([sample.measured_s for sample in samples])
