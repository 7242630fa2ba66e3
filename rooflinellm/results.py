"""Results: what a prediction holds. Plain frozen dataclasses; whatever is costly is computed when it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from rooflinellm._numeric import plain
from rooflinellm._shown import in_unit, line, one_line
from rooflinellm.errors import MissingSpec

SCHEMA_VERSION = 1
FAMILY = " on its family"
"""What is said behind ``calibrated`` where the fit saw no result of the device itself."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One quantity: a bound, what is expected, and an interval around it.

    Attributes
    ----------
    ideal : float or ndarray
        The roofline's bound: no rate is higher, no time shorter.
    expected : float or ndarray
        What a real run is expected to show.
    low, high : float or ndarray
        Ends of the interval.
    unit : str
        Such as ``tokens/s`` or ``s``.
    basis : str
        ``nominal``, ``calibrated`` or ``measured``: where the efficiencies come from.
    """

    ideal: Any
    expected: Any
    low: Any
    high: Any
    unit: str
    basis: str

    def __repr__(self) -> str:
        low, high = in_unit(self.low, self.unit), in_unit(self.high, self.unit)
        expected, ideal = in_unit(self.expected, self.unit), in_unit(self.ideal, self.unit)
        return line("Prediction", [f"{expected} ({low} to {high})", f"ideal {ideal}"])

    def to_dict(self) -> dict[str, Any]:
        """The four numbers."""
        return {name: plain(getattr(self, name)) for name in ("ideal", "expected", "low", "high")}

    def __add__(self, other: Prediction | float) -> Prediction:
        """Add a prediction of the same unit, or a plain number to all four values."""
        if type(other) is float and other == 0:
            return self
        if not isinstance(other, Prediction):
            other = Prediction(other, other, other, other, self.unit, self.basis)
        return Prediction(
            self.ideal + other.ideal,
            self.expected + other.expected,
            self.low + other.low,
            self.high + other.high,
            self.unit,
            self.basis,
        )

    def map(self, change: Callable[[Any], Any]) -> Prediction:
        """All four values changed alike."""
        return Prediction(
            change(self.ideal), change(self.expected), change(self.low), change(self.high), self.unit, self.basis
        )

    def scaled(self, factor: Any, unit: str | None = None) -> Prediction:
        """All four values times a number, in another unit where one is named."""
        if type(factor) is int and factor == 1 and unit is None:
            return self
        return Prediction(
            self.ideal * factor,
            self.expected * factor,
            self.low * factor,
            self.high * factor,
            unit or self.unit,
            self.basis,
        )


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One row of a phase's table: an operator over all layers and passes of the phase.

    Attributes
    ----------
    name : str
        The operator.
    count : int
        Layers it stands in.
    flops : int or ndarray
        [FLOP]
    read_bytes : int or ndarray
        Bytes that cannot be avoided. [byte]
    compute_path : str
        ``precision.accumulate`` it is expected to compute in; empty where it multiplies nothing.
    time_s : float or ndarray
        Expected time. [s]
    bound : str or ndarray
        ``memory``, ``compute``, ``link`` or ``overhead``: the largest part of the expected time.
    share_of_expected : float or ndarray
        Of the phase's expected time. [-]
    percent_of_ideal : float or ndarray
        The operator's own roofline time over its expected time. [%]
    """

    name: str
    count: int
    flops: Any
    read_bytes: Any
    compute_path: str
    time_s: Any
    bound: Any
    share_of_expected: Any
    percent_of_ideal: Any

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class PlaceCost:
    """What the part of a model in one place costs in a phase; the copies between places are a row of their own.

    Attributes
    ----------
    place : str
        Devices of one kind, ``host``, ``disk`` or ``copies between places``.
    tier : str
        ``device``, ``host``, ``disk`` or ``link``.
    layers : int
        Layers there, the head as one more. [-]
    weight_bytes : int
        [byte]
    read_bytes : int or ndarray
        Bytes of the phase that cannot be avoided. [byte]
    time_s : float or ndarray
        Expected time. [s]
    share_of_read, share_of_expected : float or ndarray
        Of the phase's bytes and of its expected time. [-]
    """

    place: str
    tier: str
    layers: int
    weight_bytes: int
    read_bytes: Any
    time_s: Any
    share_of_read: Any
    share_of_expected: Any

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Ratios:
    """Quotients of a phase's totals; attributes as in `Phase`."""

    arithmetic_intensity: Any
    ridge_point: Any
    peak_flop_per_s: Any
    mfu: Any
    mbu: Any

    __repr__ = one_line


@dataclass(frozen=True)
class Phase:
    """Prefill or decode.

    Attributes
    ----------
    name : str
        ``prefill`` or ``decode``.
    tokens_per_s : Prediction
        Rate of one request. [tokens/s]
    aggregate_tokens_per_s : Prediction
        Rate of all requests of the batch together. [tokens/s]
    time_s : Prediction
        Time of the phase. [s]
    flops, read_bytes : int or ndarray
        Totals of the phase that cannot be avoided. [FLOP], [byte]
    bound : str or ndarray
        ``memory``, ``compute`` or ``link`` by the ideal's totals; ``overhead`` where launches and other fixed costs are
        more than half of the expected time.
    arithmetic_intensity : float or ndarray
        FLOPs over bytes read. [FLOP/byte]
    ridge_point : float or ndarray
        Intensity from which on compute is the limit, at the advertised clock. [FLOP/byte]
    peak_flop_per_s : float or ndarray
        Effective peak: FLOPs over the time each takes at the fastest peak its path allows, at the advertised clock.
        [FLOP/s]
    mfu, mbu : float or ndarray
        Share of the dense peaks at the advertised clock, and of the printed bandwidths, of all devices that take part
        that the phase's `flops` and `read_bytes` make use of in the expected time; see `rooflinellm.metrics`. [-]
    """

    name: str
    tokens_per_s: Prediction
    aggregate_tokens_per_s: Prediction
    time_s: Prediction
    flops: Any
    read_bytes: Any
    bound: Any
    _ratios: Callable[[], Ratios] = field(repr=False)
    _operators: Callable[[], tuple[OperatorCost, ...]] = field(repr=False)
    _by_place: Callable[[], tuple[PlaceCost, ...]] = field(repr=False)

    @cached_property
    def ratios(self) -> Ratios:
        """What follows from totals and time; each is an attribute of the phase as well."""
        return self._ratios()

    @property
    def arithmetic_intensity(self) -> Any:
        """FLOPs over bytes read. [FLOP/byte]"""
        return self.ratios.arithmetic_intensity

    @property
    def ridge_point(self) -> Any:
        """Intensity from which on compute is the limit. [FLOP/byte]"""
        return self.ratios.ridge_point

    @property
    def peak_flop_per_s(self) -> Any:
        """Effective peak. [FLOP/s]"""
        return self.ratios.peak_flop_per_s

    @property
    def mfu(self) -> Any:
        """Share of the dense peaks. [-]"""
        return self.ratios.mfu

    @property
    def mbu(self) -> Any:
        """Share of the printed bandwidths. [-]"""
        return self.ratios.mbu

    @cached_property
    def operators(self) -> tuple[OperatorCost, ...]:
        """Costs by operator, totals over the phase."""
        return self._operators()

    @cached_property
    def by_place(self) -> tuple[PlaceCost, ...]:
        """Costs by place: the devices, the host, a drive, and the copies between them."""
        return self._by_place()

    def __repr__(self) -> str:
        rate, time = self.tokens_per_s, self.time_s
        return (
            f"Phase({self.name}: {_short(rate.expected)} tokens/s of at most {_short(rate.ideal)}, "
            f"{_short(time.expected)} s, bound by {_short(self.bound)})"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON keys as the command line prints them."""
        return {
            "tokens_per_s": self.tokens_per_s.to_dict(),
            "aggregate_tokens_per_s": self.aggregate_tokens_per_s.to_dict(),
            "time_s": self.time_s.to_dict(),
            "bound": plain(self.bound),
            "arithmetic_intensity_flop_per_byte": plain(self.arithmetic_intensity),
            "ridge_point_flop_per_byte": plain(self.ridge_point),
            "mfu": plain(self.mfu),
            "mbu": plain(self.mbu),
            "flops": plain(self.flops),
            "read_bytes": plain(self.read_bytes),
        }


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """What one device, the host or a drive holds, and what programs get of its memory.

    `layers` counts the head as one more layer behind the last; `tier` is ``device``, ``host`` or ``disk``; `bytes` is
    the sum of the others.
    """

    device: str
    tier: str
    layers: int
    weight_bytes: Any
    kv_bytes: Any
    state_bytes: Any
    workspace_bytes: Any
    bytes: Any
    usable_bytes: int | None = None

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class MemoryPlan:
    """What must fit, and whether it does. All counts in bytes.

    Attributes
    ----------
    resident_weight_bytes : int
        All weights, those that several devices hold as often as they do. [byte]
    kv_allocated_bytes, kv_occupied_bytes : int or ndarray
        Cache of all sequences: as allocated for the configured context, and as filled after the last token. [byte]
    kv_by_kind : mapping of str to int or ndarray
        The allocation by kind of cache: ``full``, ``sliding``, ``latent``, ``indexer``. [byte]
    state_bytes : int or ndarray
        Recurrent state of all sequences. [byte]
    workspace_bytes : int or ndarray
        Compute buffers and the runtime's own memory, on all devices. [byte]
    total_bytes : int or ndarray
        The sum. [byte]
    usable_bytes : int or None
        What programs get of the devices' memory; None where it is not known. [byte]
    fits : bool, ndarray or None
        None where `usable_bytes` is not known.
    placement : tuple of PlacedPart
        What each device holds.
    draft_bytes : int or ndarray
        Weights, cache and buffers of what drafts tokens. [byte]
    copied_weight_bytes : int
        Of the weights, those that a device holds beside another one. [byte]
    """

    resident_weight_bytes: Any
    kv_allocated_bytes: Any
    kv_occupied_bytes: Any
    kv_by_kind: Mapping[str, Any]
    state_bytes: Any
    workspace_bytes: Any
    total_bytes: Any
    usable_bytes: int | None
    fits: Any
    placement: tuple[PlacedPart, ...]
    draft_bytes: Any
    copied_weight_bytes: int
    _largest_context: Callable[[], Any] = field(repr=False)
    _largest_batch: Callable[[], Any] = field(repr=False)

    def __repr__(self) -> str:
        usable = "an unknown amount" if self.usable_bytes is None else in_unit(self.usable_bytes, "bytes")
        return line(
            "MemoryPlan",
            [
                f"{in_unit(self.total_bytes, 'bytes')} of {usable}",
                f"weights {in_unit(self.resident_weight_bytes, 'bytes')}",
                f"KV cache {in_unit(self.kv_allocated_bytes, 'bytes')}",
                f"fits: {_short(self.fits)}",
            ],
        )

    @cached_property
    def max_context_tokens(self) -> Any:
        """Longest context per sequence that fits at this batch, at most what the model is made for. [token]"""
        return self._largest_context()

    @cached_property
    def max_batch(self) -> Any:
        """Most sequences that fit at this configured context. [-]"""
        return self._largest_batch()

    def to_dict(self) -> dict[str, Any]:
        """JSON keys as the command line prints them."""
        scalars = (
            "resident_weight_bytes", "kv_allocated_bytes", "kv_occupied_bytes", "state_bytes", "workspace_bytes",
            "draft_bytes", "copied_weight_bytes", "total_bytes", "usable_bytes", "fits", "max_context_tokens",
            "max_batch",
        )  # fmt: skip
        return {
            **{name: plain(getattr(self, name)) for name in scalars},
            "kv_by_kind": {kind: plain(value) for kind, value in self.kv_by_kind.items()},
            "placement": [part.to_dict() for part in self.placement],
        }


@dataclass(frozen=True)
class Estimate:
    """The answer of `estimate`.

    Attributes
    ----------
    prefill, decode : Phase
        The two workloads.
    ttft_s : Prediction
        Time to first token: queue, tokenisation, prefill and first token. [s]
    tpot_s : Prediction
        Time per output token after the first. [s]
    itl_s : Prediction
        Gap between streamed tokens; equal to `tpot_s` while a step gives one token. [s]
    e2e_s : Prediction
        Time to the last token. [s]
    memory : MemoryPlan
        What must fit.
    energy_j_per_token : Prediction or None
        Energy of one decoded token at the share of the rated power that the profile names, on every device; its
        `ideal` is that of the ideal time and no bound. Devices that wait in a layer split are charged as if they
        worked; where the maker lets the power be set, the interval spans its range. None where the rated power is not
        known. [J]
    assumptions : tuple of str
        What was taken for granted.
    warnings : tuple of str
        What makes the answer an "as if".
    model, hardware : object
        The `ModelSpec` and the `SystemSpec`.
    weights, kv, engine : str
        Canonical names.
    workload : mapping of str to Any
        The arguments that describe the request.
    speculation : SpeculationResult or None
        What drafting brings, where tokens are drafted.
    evidence : int
        Series of the device itself that the efficiencies were fitted to, of several kinds of device the fewest; 0 where
        they are those of its family, or nominal. [-]
    prefill_chunk : int
        Tokens of a prompt that the engine computes in one pass in the expectation. [token]
    """

    prefill: Phase
    decode: Phase
    ttft_s: Prediction
    tpot_s: Prediction
    itl_s: Prediction
    e2e_s: Prediction
    memory: MemoryPlan
    energy_j_per_token: Prediction | None
    warnings: tuple[str, ...]
    model: Any
    hardware: Any
    weights: str
    kv: str
    engine: str
    workload: Mapping[str, Any]
    _assumptions: Callable[[], tuple[str, ...]] = field(repr=False)
    speculation: Any = None
    evidence: int = 0
    prefill_chunk: int = 0

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """What was taken for granted."""
        return self._assumptions()

    def __repr__(self) -> str:
        basis = self.decode.time_s.basis
        return (
            f"Estimate({self.model.id} {self.weights} on {self.hardware.id}: "
            f"prefill {_short(self.prefill.tokens_per_s.expected)} tokens/s, "
            f"TTFT {_short(self.ttft_s.expected)} s, "
            f"decode {_short(self.decode.tokens_per_s.expected)} tokens/s, fits: {_short(self.memory.fits)}, "
            f"{basis}{'' if self.evidence or basis != 'calibrated' else FAMILY})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units, the unit in each key."""
        energy = self.energy_j_per_token
        return {
            "model": self.model.id,
            "hardware": self.hardware.id,
            "weights": self.weights,
            "kv": self.kv,
            "engine": self.engine,
            "workload": {name: plain(value) for name, value in self.workload.items()},
            "memory": self.memory.to_dict(),
            "prefill": self.prefill.to_dict(),
            "decode": self.decode.to_dict(),
            "ttft_s": self.ttft_s.to_dict(),
            "tpot_s": self.tpot_s.to_dict(),
            "itl_s": self.itl_s.to_dict(),
            "e2e_s": self.e2e_s.to_dict(),
            "energy_j_per_token": None if energy is None else energy.to_dict(),
            "speculation": None if self.speculation is None else self.speculation.to_dict(),
            "basis": self.decode.time_s.basis,
            "evidence_series": self.evidence,
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a phase, for tables: the keys of `to_dict` with the phase's values beside the request's."""
        shared = {
            "model": self.model.id,
            "hardware": self.hardware.id,
            "weights": self.weights,
            "kv": self.kv,
            "engine": self.engine,
            **{name: plain(value) for name, value in self.workload.items()},
        }
        phases = (self.prefill, self.decode)
        return [{**shared, "phase": phase.name, **flat_record(phase.to_dict())} for phase in phases]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def explain(self) -> str:
        """Say in words where each number comes from."""
        from rooflinellm.summary import explain_estimate

        return explain_estimate(self)

    def _repr_html_(self) -> str:
        from rooflinellm.summary import estimate_table

        return estimate_table([self]).to_html()


def flat_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without records in it: ``{"ttft_s": {"low": 1}}`` is ``{"ttft_s_low": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        flat |= {f"{name}_{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def data_frame(rows: Any) -> Any:
    """Rows, or columns by name, as a pandas data frame.

    Raises
    ------
    MissingSpec
        pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingSpec(
            "a data frame needs pandas, which is not installed",
            next_step="Install it: pip install pandas",
        ) from error
    return pd.DataFrame(rows)


def _short(value: Any) -> str:
    """A number in four digits, or an array's ends."""
    if hasattr(value, "dtype") and getattr(value, "size", 1) > 1:
        ends = value.ravel()
        return f"{_short(ends[0])}…{_short(ends[-1])}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
