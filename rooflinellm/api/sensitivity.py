"""Which resource to pay for: how rates change with each of them, and what concrete changes would bring."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from rooflinellm.api import lookup
from rooflinellm.api.arguments import flag, overrides_of, single_values
from rooflinellm.api.drafting import speculation_of
from rooflinellm.api.elasticity import Elasticity, frozen_placement, of_bytes, of_system
from rooflinellm.api.estimate import estimate
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import Options
from rooflinellm.api.overrides import has_arrays, override
from rooflinellm.api.placing import choose_placement
from rooflinellm.api.plans import Setup, settle
from rooflinellm.api.swaps import Swap, context_text, swaps
from rooflinellm.engine.parallel import Parallel
from rooflinellm.engine.request import Request
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.experts import MEASURED_SKEW
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, data_frame
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import bases_text, count_text, fits_text, rate_text, what_text
from rooflinellm.units import format_seconds, significant

PHASES = ("decode", "prefill")
NOTHING = 0.005
"""Elasticities below this count as none. [-]"""


@dataclass(frozen=True)
class Sensitivity:
    """The answer of `sensitivity`.

    Attributes
    ----------
    estimate : Estimate
        The answer as it is.
    elasticities : tuple of Elasticity
        By resource: those of the system, then bits of weights and cache.
    swaps : tuple of Swap
        Concrete changes, the one that helps decode most first.
    """

    estimate: Estimate
    elasticities: tuple[Elasticity, ...]
    swaps: tuple[Swap, ...]

    def of(self, resource: str) -> Elasticity:
        """The elasticities to a resource.

        Raises
        ------
        InvalidRequest
            The system has no such resource.
        """
        for each in self.elasticities:
            if each.resource == resource:
                return each
        known = ", ".join(each.resource for each in self.elasticities)
        raise InvalidRequest(f"{resource!r:.40} is not one of {known}", where="resource")

    def rest(self, phase: str, kind: str = "expected") -> float | None:
        """Share of a phase's time that no rate of the system shortens: launches, latencies, fixed costs. [-]

        One minus the sum of the elasticities to all rates. That sum is 1 in the ideal, which is a sum of quotients of
        work and rates, or a maximum of them (Euler's theorem on homogeneous functions).
        """
        parts = [getattr(each, f"{phase}_{kind}") for each in self.elasticities if each.is_rate]
        return None if not parts or None in parts else 1 - sum(parts)

    def limiting(self, phase: str) -> Elasticity | None:
        """The rate that a phase's expected rate follows most; None where the phase computes nothing."""
        known = [each for each in self.elasticities if each.is_rate and getattr(each, f"{phase}_expected") is not None]
        return max(known, key=lambda each: float(getattr(each, f"{phase}_expected")), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        base = self.estimate
        return {
            "model": base.model.id,
            "hardware": base.hardware.id,
            "weights": base.weights,
            "kv": base.kv,
            "engine": base.engine,
            "workload": dict(base.workload),
            "basis": base.decode.time_s.basis,
            "fits": None if base.memory.fits is None else bool(base.memory.fits),
            "prefill_tokens_per_s": base.prefill.tokens_per_s.to_dict(),
            "ttft_s": base.ttft_s.to_dict(),
            "decode_tokens_per_s": base.decode.tokens_per_s.to_dict(),
            "elasticities": [each.to_dict() for each in self.elasticities],
            "rest": {phase: self.rest(phase) for phase in PHASES},
            "swaps": [each.to_dict() for each in self.swaps],
            "warnings": list(base.warnings),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a resource."""
        base = self.estimate
        shared = {"model": base.model.id, "hardware": base.hardware.id, "weights": base.weights, "kv": base.kv}
        return [{**shared, **each.to_dict()} for each in self.elasticities]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def tables(self) -> list[Table]:
        """Elasticities by resource; and changes with the numbers after them, if any were asked for."""
        return [_elasticity_table(self), *([_swap_table(self)] if self.swaps else [])]

    def __str__(self) -> str:
        return "\n\n".join(table.to_text() for table in self.tables())

    def __repr__(self) -> str:
        parts = []
        for phase in PHASES:
            most = self.limiting(phase)
            if most is not None:
                parts.append(f"{phase} follows {most.resource} ({getattr(most, f'{phase}_expected'):.2f})")
        return f"Sensitivity({self.estimate.model.id} on {self.estimate.hardware.id}: {', '.join(parts)})"

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def sensitivity(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    with_swaps: bool = True,
    **request: Any,
) -> Sensitivity:
    """Say which resource a rate depends on, and what concrete changes would bring.

    Parameters
    ----------
    model, hardware
        As in `rooflinellm.estimate`.
    with_swaps : bool
        Whether to try other devices, more of them, more memory and fewer bits.
    **request
        As in `rooflinellm.estimate`, single values.

    Returns
    -------
    Sensitivity
        Elasticities d ln rate / d ln resource of ideal and expected rates: 1 is "10 % more of it makes it 10 % faster",
        0 "nothing". A placement on the host stays as it is.

    Raises
    ------
    InvalidRequest
        Arrays, or what `rooflinellm.estimate` refuses.
    RooflineError
        As `rooflinellm.estimate`.

    Warns
    -----
    RooflineWarning
        As `rooflinellm.estimate`.

    Notes
    -----
    Central differences of the engine's answers at 1 % less and more. At a ridge point, where two resources bind, each
    gets a part.
    """
    single_values({name: value for name, value in request.items() if name != "overrides"}, "it is about one request")
    with_swaps = flag("with_swaps", with_swaps)
    spec, system = lookup.model(model), lookup.system(hardware)
    overrides = overrides_of(request.pop("overrides", None))
    if overrides:
        if has_arrays(overrides):
            raise InvalidRequest("give a mapping of paths to single values", where="overrides")
        spec, system = override(spec, system, overrides)
    base = estimate(spec, system, **request)
    frozen = {**request, **frozen_placement(base)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        found = list(of_system(base, partial(estimate, spec, **frozen)))
        if base.speculation is None:
            found += of_bytes(*_planned(spec, system, base, request), base)
        given = {"hardware": system, "weights": base.weights, **request}

        def ask(**changed: Any) -> Estimate:
            return estimate(spec, **{**given, **changed})

        others = swaps(base, ask) if with_swaps else []
    return Sensitivity(base, tuple(found), tuple(others))


def _planned(spec: ModelSpec, system: SystemSpec, base: Estimate, given: Mapping[str, Any]) -> tuple[Any, Request]:
    """The plan and the request that an answer comes from."""
    options = given.get("options") or Options()
    workload = base.workload
    chunk = workload["prefill_chunk"]
    degrees = {each.name: workload.get(f"{each.name}_parallel", 1) for each in fields(Parallel)}
    parallel = Parallel(**degrees)
    setup = Setup(given.get("weights"), given.get("kv"), given.get("engine"), chunk, options, parallel)
    settled = settle(spec, system, setup)
    request = Request(
        prompt_tokens=workload["prompt_tokens"],
        output_tokens=workload["output_tokens"],
        cached_tokens=workload["cached_tokens"],
        context_tokens=workload["context_tokens"],
        sequences=workload["batch"],
        chunk=chunk,
        skew=MEASURED_SKEW if options.routing_skew is None else options.routing_skew,
        overlap=options.overlap,
        speculation=speculation_of(None, 0, None, options),
    )
    return choose_placement(settled, request, workload["context_limit"], **frozen_placement(base)).plan, request


def _elasticity_table(found: Sensitivity) -> Table:
    base = found.estimate
    columns = [
        Column("10 % more of it makes it faster by", "left"),
        Column("there is", "left", drop=4),
        *(
            Column(heading, group=phase, drop=drop)
            for phase in PHASES
            for heading, drop in (("expected", 0), ("ideal", 2))
        ),
        Column("context", drop=1),
    ]
    names = [f"{phase}_{kind}" for phase in PHASES for kind in ("expected", "ideal")]
    rows = [
        [each.resource, each.amount, *(percent_text(getattr(each, name)) for name in names), percent_text(each.context)]
        for each in found.elasticities
    ]
    rest = {phase: found.rest(phase) for phase in PHASES}
    if any(value is not None and value > NOTHING for value in rest.values()):
        rows.append(
            [
                "nothing: launches and latencies",
                "",
                percent_text(rest["decode"]),
                "",
                percent_text(rest["prefill"]),
                "",
                "",
            ]
        )
    notes = [f"now: decode {rate_text(base.decode.tokens_per_s, bound=True)} tok/s"]
    if base.prefill.tokens_per_s.expected:
        prefill = f"prefill {rate_text(base.prefill.tokens_per_s, bound=True)} tok/s"
        notes = [f"{notes[0]}; {prefill}; first token {format_seconds(base.ttft_s.expected)}"]
    notes.append("context: the longest that fits, up to what the model is made for")
    notes += [fits_text(base.memory, base.workload["context_limit"]), f"basis: {bases_text([base])}"]
    return Table(columns, rows, what_text(base), notes, _answer(found))


def _answer(found: Sensitivity) -> str:
    """What each phase follows most, in words."""
    parts = []
    for phase in PHASES:
        most = found.limiting(phase)
        if most is not None:
            rest = found.rest(phase) or 0.0
            name = "fixed costs" if rest > getattr(most, f"{phase}_expected") else most.resource
            parts.append(f"{phase}: {name}")
    return ", ".join(parts)


def percent_text(elasticity: float | None) -> str:
    """An elasticity as the per cent that 10 % more of a resource bring."""
    if elasticity is None:
        return ""
    return "0" if abs(elasticity) < NOTHING else f"{10 * elasticity:.1f} %".replace("-", "−")


def _swap_table(found: Sensitivity) -> Table:
    columns = [
        Column("change", "left"),
        Column("fits", "left"),
        Column("tok/s", group="decode", drop=0),
        Column("gain", group="decode"),
        Column("tok/s", group="prefill", drop=2),
        Column("gain", group="prefill", drop=1),
        Column("first token"),
        Column("longest context", drop=4),
        Column("W", drop=3),
    ]
    rows = [_swap_row("now", found.estimate, None, None)]
    rows += [_swap_row(each.change, each.estimate, each.decode_gain, each.prefill_gain) for each in found.swaps]
    notes = ["gain: expected rate after the change over the one before; W: rated power of the devices"]
    return Table(columns, rows, "what would change it", notes)


def _swap_row(change: str, after: Estimate, decode_gain: float | None, prefill_gain: float | None) -> list[str]:
    power = after.hardware.rated_power_w
    return [
        change,
        {True: "yes", False: "no", None: "?"}[None if after.memory.fits is None else bool(after.memory.fits)],
        significant(after.decode.tokens_per_s.expected),
        "" if decode_gain is None else f"{decode_gain:.2f}×",
        significant(after.prefill.tokens_per_s.expected),
        "" if prefill_gain is None else f"{prefill_gain:.2f}×",
        format_seconds(after.ttft_s.expected),
        context_text(after),
        "–" if power is None else count_text(power),
    ]
