"""The points of a roofline chart: one model on one system, as `estimate` answers it."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rooflinellm.api.estimate import estimate
from rooflinellm.api.plans import choose, entered
from rooflinellm.errors import InvalidRequest, RooflineWarning, met
from rooflinellm.plotting.roofs import Roof, Slope
from rooflinellm.results import Estimate, Phase
from rooflinellm.roofline import attainable
from rooflinellm.specs.hardware import SystemSpec
from rooflinellm.units import significant

PHASES = ("prefill", "decode")
_MEASURED_FIELDS = {"phase", "tokens_per_s", "batch", "hardware", "model", "label"}


@dataclass(frozen=True, slots=True)
class Point:
    """A phase on the chart.

    Attributes
    ----------
    phase : str
        ``prefill`` or ``decode``.
    batch : int
        Requests side by side.
    intensity : float
        FLOPs over bytes of weights and cache. [FLOP/byte]
    flop_per_s : float
        Expected rate, or the measured one. [FLOP/s]
    ideal_flop_per_s : float
        The bound on the roofs as they are drawn. [FLOP/s]
    tokens_per_s : float
        The rate of one request. [tokens/s]
    bound : str
        What limits it.
    label : str
        What a measured point is called.
    """

    phase: str
    batch: int
    intensity: float
    flop_per_s: float
    ideal_flop_per_s: float
    tokens_per_s: float
    bound: str
    label: str = ""

    @property
    def rate_text(self) -> str:
        """``146 tok/s``, or ``64 × 75.3 tok/s`` for a batch."""
        times = f"{self.batch:,} × " if self.batch > 1 else ""
        return f"{times}{significant(self.tokens_per_s, 3)} tok/s"


@dataclass(frozen=True, slots=True)
class Workload:
    """A model on a system.

    Attributes
    ----------
    estimate : Estimate
        The answer for a batch of one.
    prefill : Point or None
        Of one prompt; None where there is none.
    decode : tuple of Point
        By batch: those that fit the memory, all where none does.
    measured : tuple of Point
        What was measured.
    left_out : tuple of int
        Batches that do not fit the memory.
    linear_keys, attention_keys : tuple of str
        Peaks that the ideal counts on, for products with weights and for attention.
    """

    estimate: Estimate
    prefill: Point | None
    decode: tuple[Point, ...]
    measured: tuple[Point, ...]
    left_out: tuple[int, ...]
    linear_keys: tuple[str, ...]
    attention_keys: tuple[str, ...]

    @property
    def ideal_keys(self) -> tuple[str, ...]:
        """All peaks that the ideal counts on."""
        return tuple(dict.fromkeys((*self.linear_keys, *self.attention_keys)))

    @property
    def expected(self) -> tuple[Point, ...]:
        """Prefill and decode."""
        return (self.prefill, *self.decode) if self.prefill else self.decode

    @property
    def points(self) -> tuple[Point, ...]:
        """All points."""
        return (*self.expected, *self.measured)

    @property
    def one_at_a_time(self) -> bool:
        """Whether one request leaves devices idle: its bound is well below the roofs of all devices together."""
        system = self.estimate.hardware
        decode = self.estimate.decode
        together = attainable(
            decode.arithmetic_intensity,
            decode.peak_flop_per_s * system.count,
            system.device.memory_bandwidth_bytes_per_s * system.count,
        )
        return bool(_point(self.estimate, decode, 1).ideal_flop_per_s < 0.75 * together)


@dataclass(frozen=True, slots=True)
class Device:
    """A system of the chart with its lines, its workloads and its looks.

    Attributes
    ----------
    system : SystemSpec
        The system.
    name, slug : str
        What it is called on the chart and in the names of its parts.
    roofs : tuple of Roof
        Its peaks, the highest first.
    slopes : tuple of Slope
        Its memories, the one that weights live in first.
    workloads : tuple of Workload
        One a model.
    color, text_color : str
        Of its lines and of its labels.
    line_style : Any
        Of its lines.
    """

    system: SystemSpec
    name: str
    slug: str
    roofs: tuple[Roof, ...]
    slopes: tuple[Slope, ...]
    workloads: tuple[Workload, ...]
    color: str
    text_color: str
    line_style: Any


def workload(
    model: Any,
    hardware: Any,
    *,
    batches: Sequence[int],
    measured: Sequence[Mapping[str, Any]],
    weights: Any,
    **request: Any,
) -> Workload:
    """Estimate a model on a system for each batch; the warnings of `estimate` are kept in its answer only.

    Parameters
    ----------
    model, hardware, weights, **request
        As in `rooflinellm.estimate`.
    batches : sequence of int
        Batches to decode.
    measured : sequence of mapping
        Checked rows, see `check_measured`.

    Returns
    -------
    Workload
    """

    def ask(batch: int) -> Estimate:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflineWarning)
            return estimate(model, hardware, weights=weights, batch=batch, **request)

    first = ask(1)
    answers = {batch: ask(batch) for batch in batches}
    left_out = tuple(batch for batch, answer in answers.items() if answer.memory.fits is False)
    if len(left_out) == len(answers):
        left_out = ()
    linear, attention = _ideal_keys(first, weights, request.get("engine"))
    return Workload(
        estimate=first,
        prefill=_point(first, first.prefill, 1) if first.prefill.flops else None,
        decode=tuple(
            _point(answer, answer.decode, batch) for batch, answer in answers.items() if batch not in left_out
        ),
        measured=tuple(_measured_point(row, ask(row.get("batch", 1))) for row in measured),
        left_out=left_out,
        linear_keys=linear,
        attention_keys=attention,
    )


def _point(answer: Estimate, phase: Phase, batch: int) -> Point:
    """A phase's place; its ideal is cut at the roofs as drawn, which know no cache and only the advertised clock."""
    system = answer.hardware
    # A decode phase without steps takes no time; its totals are those of the next step.
    time = phase.time_s if phase.time_s.expected else answer.tpot_s
    roof = attainable(
        phase.arithmetic_intensity,
        phase.peak_flop_per_s * system.count,
        system.device.memory_bandwidth_bytes_per_s * system.count,
    )
    return Point(
        phase=phase.name,
        batch=batch,
        intensity=float(phase.arithmetic_intensity),
        flop_per_s=float(phase.flops / time.expected),
        ideal_flop_per_s=float(min(phase.flops / time.ideal, roof)),
        tokens_per_s=float(phase.tokens_per_s.expected),
        bound=str(phase.bound),
    )


def _measured_point(row: Mapping[str, Any], answer: Estimate) -> Point:
    """A measured rate at the intensity of its phase: FLOP/s and tokens/s are proportional."""
    phase = answer.prefill if row["phase"] == "prefill" else answer.decode
    if not phase.flops:
        raise InvalidRequest("a measured prefill needs prompt_tokens above 0", where="measured")
    expected, rate = _point(answer, phase, row.get("batch", 1)), float(row["tokens_per_s"])
    return Point(
        phase=expected.phase,
        batch=expected.batch,
        intensity=expected.intensity,
        flop_per_s=expected.flop_per_s * rate / expected.tokens_per_s,
        ideal_flop_per_s=expected.ideal_flop_per_s,
        tokens_per_s=rate,
        bound=expected.bound,
        label=str(row.get("label", "")),
    )


SMALL = 0.05
"""Share of a phase's FLOPs below which a product does not decide which peak applies (a router kept in FP32)."""


def _ideal_keys(answer: Estimate, weights: Any, engine: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Peaks that the ideal counts on, for weights and for attention: those of the plan for one device."""
    shares: dict[str, float] = {}
    for phase in (answer.prefill, answer.decode):
        for row in phase.operators:
            shares[row.name] = max(shares.get(row.name, 0.0), row.flops / phase.flops if phase.flops else 0.0)
    fmt, spec, backend, build_date = choose(answer.model, weights, engine)
    one = answer.hardware.model_copy(update={"count": 1, "others": ()})
    plan = entered(answer.model, one, fmt, spec, backend, answer.kv, None, build_date).plan()
    by_kind: tuple[dict[str, None], dict[str, None]] = ({}, {})
    for kernel, speeds in zip(plan.kernels, plan.speeds, strict=True):
        attention = kernel.kind == "attention"
        if speeds.ideal_key and (attention or shares.get(kernel.name, 1.0) >= SMALL):
            by_kind[attention][speeds.ideal_key] = None
    return tuple(by_kind[0]), tuple(by_kind[1])


def check_measured(rows: Any) -> list[dict[str, Any]]:
    """Check measured points.

    Raises
    ------
    InvalidRequest
        Rows that are no mappings, unknown or missing fields, impossible values.
    """
    if rows is None:
        return []
    if isinstance(rows, Mapping | str) or not isinstance(rows, Sequence):
        raise InvalidRequest("give a list of mappings with phase and tokens_per_s", where="measured")
    return [_checked_row(row, f"measured[{index}]") for index, row in enumerate(rows)]


def _checked_row(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise InvalidRequest(f"{met(row)} is not a mapping with phase and tokens_per_s", where=where)
    strangers = [str(name) for name in row if name not in _MEASURED_FIELDS]
    if strangers:
        raise InvalidRequest(
            f"unknown field {', '.join(strangers)}; there are {', '.join(sorted(_MEASURED_FIELDS))}", where=where
        )
    if row.get("phase") not in PHASES:
        raise InvalidRequest(f"phase {met(row.get('phase'))} is not one of {', '.join(PHASES)}", where=where)
    rate, batch = row.get("tokens_per_s"), row.get("batch", 1)
    if not isinstance(rate, numbers.Real) or isinstance(rate, bool) or not 0 < float(rate) < math.inf:
        raise InvalidRequest(f"tokens_per_s {met(rate)} is not a number above 0", where=where)
    if not isinstance(batch, numbers.Integral) or isinstance(batch, bool) or batch < 1:
        raise InvalidRequest(f"batch {met(batch)} is not a whole number from 1 on", where=where)
    return {**row, "batch": int(batch)}
