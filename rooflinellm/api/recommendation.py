"""The answer of `recommend`: what meets a wish, what comes nearest, and what it takes at least."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rooflinellm import catalog
from rooflinellm._shown import one_line
from rooflinellm.api.cost import cost_per_million_tokens
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, Prediction, data_frame, flat_record
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.hardware import SystemSpec
from rooflinellm.specs.parsing import capacity_label
from rooflinellm.summary import (
    bases_text,
    count_text,
    devices_text,
    gib_text,
    interval_text,
    params_text,
    system_text,
    tokens_text,
    weights_text,
)
from rooflinellm.units import GB, TERA, format_gib, format_seconds, significant

ROWS = 15
"""Systems that a table shows unless all are asked for."""
What = Literal["memory", "decode", "first token", "power", "price"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wished for; None is no matter.

    Attributes
    ----------
    min_tokens_per_s : float or None
        Decode rate of each request. [tokens/s]
    max_ttft_s : float or None
        Time to first token. [s]
    max_power_w : float or None
        Rated power of all devices. [W]
    budget : float or None
        Price. [currency]
    context, prompt_tokens, batch : int
        Context to hold, prompt that ends it, requests side by side. [token], [token], [-]
    """

    min_tokens_per_s: float | None
    max_ttft_s: float | None
    max_power_w: float | None
    budget: float | None
    context: int
    prompt_tokens: int
    batch: int

    __repr__ = one_line

    def text(self) -> str:
        """The wish in words."""
        parts = []
        if self.min_tokens_per_s is not None:
            each = "" if self.batch == 1 else " for each request"
            parts.append(f"at least {significant(self.min_tokens_per_s)} tok/s{each}")
        if self.max_ttft_s is not None:
            parts.append(f"first token of {count_text(self.prompt_tokens)} within {format_seconds(self.max_ttft_s)}")
        if self.max_power_w is not None:
            parts.append(f"at most {count_text(self.max_power_w)} W")
        if self.budget is not None:
            parts.append(f"at most {significant(self.budget)} to buy")
        requests = "" if self.batch == 1 else f" for each of {self.batch:,} requests"
        return ", ".join([*parts, f"context {tokens_text(self.context)}{requests}"])


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a system lacks.

    Attributes
    ----------
    what : str
        ``memory``, ``decode``, ``first token``, ``power`` or ``price``.
    wanted, got : float or None
        In bytes, tokens/s, seconds, watts or currency; of memory what is needed and what there is. None is unknown.
    is_bound : bool
        Whether `got` is the roofline's bound, which no run beats, rather than what is expected.
    """

    what: What
    wanted: float
    got: float | None
    is_bound: bool = False

    __repr__ = one_line

    @property
    def factor(self) -> float:
        """How far it is off, as a factor of at least 1; infinite where something is not known. [-]"""
        if not self.got:
            return math.inf
        return self.wanted / self.got if self.what in ("memory", "decode") else self.got / self.wanted

    def text(self) -> str:
        """In words."""
        most = "at most " if self.is_bound else ""
        if self.what == "memory":
            there = "how much there is, is not known" if self.got is None else f"there are {format_gib(self.got)}"
            return f"needs {format_gib(self.wanted)}, {there}"
        if self.what == "decode":
            return f"decode {most}{significant(self.got or 0)} of {significant(self.wanted)} tok/s"
        if self.what == "first token":
            least = "at least " if self.is_bound else ""
            return f"first token {least}{format_seconds(self.got or 0)}, not {format_seconds(self.wanted)}"
        unit = " W" if self.what == "power" else ""
        if self.got is None:
            return f"{self.what} not known"
        return f"{self.what} {count_text(self.got)}{unit}, not {count_text(self.wanted)}{unit}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the factor is None where something is not known."""
        return {**asdict(self), "factor": self.factor if math.isfinite(self.factor) else None}


def severity(shortfalls: Sequence[Shortfall]) -> tuple[float, ...]:
    """All factors that something is off by, the largest first: what sorts by it comes nearest first. [-]"""
    return tuple(sorted((each.factor for each in shortfalls), reverse=True))


@dataclass(frozen=True, slots=True)
class Need:
    """What a format takes at least, whatever the hardware.

    Attributes
    ----------
    weights, engine : str
        The format, and the engine that decides how the cache is laid out.
    bits_per_weight : float
        All weights over all parameters. [bit]
    held_bytes : float
        Weights, cache and state. [byte]
    step_bytes : float
        Bytes that a decode step reads. [byte]
    prompt_flops : float
        FLOPs of the prompts. [FLOP]
    """

    weights: str
    engine: str
    bits_per_weight: float
    held_bytes: float
    step_bytes: float
    prompt_flops: float

    __repr__ = one_line

    def to_dict(self, wish: Wish) -> dict[str, Any]:
        """The attributes, with the rates that follow from the wish."""
        rate, time = wish.min_tokens_per_s, wish.max_ttft_s
        return {
            **asdict(self),
            "least_bandwidth_bytes_per_s": None if rate is None else self.step_bytes * rate,
            "least_flop_per_s": None if time is None else self.prompt_flops / time,
        }


@dataclass(frozen=True)
class Met:
    """A system that meets the wish.

    Attributes
    ----------
    estimate : Estimate
        The prompt that ends the context, and the decode step behind it.
    wish : Wish
        What it meets.
    bits_per_weight : float
        Of the format. [bit]
    price, price_per_hour : float or None
        To buy and to rent. [currency]
    """

    estimate: Estimate
    wish: Wish
    bits_per_weight: float
    price: float | None
    price_per_hour: float | None

    __repr__ = one_line

    @property
    def system(self) -> SystemSpec:
        """The system."""
        found: SystemSpec = self.estimate.hardware
        return found

    @property
    def weights(self) -> str:
        """The format."""
        return self.estimate.weights

    @property
    def memory_bytes(self) -> int:
        """Printed memory of all devices and of the host. [byte]"""
        devices = sum((group.device.memory_bytes or 0) * group.count for group in self.system.groups)
        host = self.system.host
        return devices + (0 if host is None else host.capacity_bytes or 0)

    @property
    def safe(self) -> bool:
        """Whether the slow end of the interval meets it too."""
        wish, answer = self.wish, self.estimate
        fast = wish.min_tokens_per_s is None or answer.decode.tokens_per_s.low >= wish.min_tokens_per_s
        return bool(fast and (wish.max_ttft_s is None or answer.ttft_s.high <= wish.max_ttft_s))

    @property
    def cost_per_million_tokens(self) -> Prediction | None:
        """Rent of a million decoded tokens, of all requests together; None without a price. [currency/1e6 tokens]"""
        if self.price_per_hour is None:
            return None
        return cost_per_million_tokens(self.price_per_hour, self.estimate.decode.aggregate_tokens_per_s)

    @property
    def price_per_token_per_s(self) -> float | None:
        """Price over the expected decode rate of all requests; None without a price. [currency s/token]"""
        if self.price is None:
            return None
        return self.price / float(self.estimate.decode.aggregate_tokens_per_s.expected)

    def rank(self, *, priced: bool) -> tuple[Any, ...]:
        """Sort key: price, where there are any, else memory; then rated power, unknown last; then the faster."""
        price = (self.price is None, self.price or 0.0) if priced else (False, 0.0)
        power = self.system.rated_power_w
        rate = float(self.estimate.decode.tokens_per_s.expected)
        return (*price, self.memory_bytes, math.inf if power is None else power, -rate, self.system.id)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in base units."""
        answer, memory = self.estimate, self.estimate.memory
        energy, cost = answer.energy_j_per_token, self.cost_per_million_tokens
        return {
            "hardware": self.system.id,
            "name": system_text(self.system),
            "weights": answer.weights,
            "bits_per_weight": self.bits_per_weight,
            "engine": answer.engine,
            "kv": answer.kv,
            "safe": self.safe,
            "decode_tokens_per_s": answer.decode.tokens_per_s.to_dict(),
            "decode_aggregate_tokens_per_s": answer.decode.aggregate_tokens_per_s.to_dict(),
            "ttft_s": answer.ttft_s.to_dict(),
            "memory_bytes": self.memory_bytes,
            "total_bytes": memory.total_bytes,
            "usable_bytes": memory.usable_bytes,
            "gpu_layers": answer.workload["gpu_layers"],
            "cpu_moe_layers": answer.workload["cpu_moe_layers"],
            "tensor_parallel": answer.workload.get("tensor_parallel", 1),
            "rated_power_w": self.system.rated_power_w,
            "energy_j_per_token": None if energy is None else energy.to_dict(),
            "price": self.price,
            "price_per_hour": self.price_per_hour,
            "price_per_token_per_s": self.price_per_token_per_s,
            "cost_per_million_tokens": None if cost is None else cost.to_dict(),
            "basis": answer.decode.time_s.basis,
        }


@dataclass(frozen=True)
class NearMiss:
    """A system that does not meet the wish, in the format that comes nearest.

    Attributes
    ----------
    system : SystemSpec
        The system.
    weights : str
        The format.
    shortfalls : tuple of Shortfall
        What it lacks.
    estimate : Estimate or None
        The answer; None where the roofline ruled it out.
    """

    system: SystemSpec
    weights: str
    shortfalls: tuple[Shortfall, ...]
    estimate: Estimate | None

    __repr__ = one_line

    @property
    def worst(self) -> float:
        """The largest factor that it is off by. [-]"""
        return self.severity[0]

    @property
    def severity(self) -> tuple[float, ...]:
        """All factors that it is off by, the largest first: what sorts by it comes nearest first. [-]"""
        return severity(self.shortfalls)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "hardware": self.system.id,
            "name": system_text(self.system),
            "weights": self.weights,
            "shortfalls": [each.to_dict() for each in self.shortfalls],
        }


@dataclass(frozen=True)
class Recommendation:
    """The answer of `recommend`.

    Attributes
    ----------
    model : ModelSpec
        The model.
    wish : Wish
        What was wished for.
    met : tuple of Met
        Systems that meet it in expectation, the cheapest first.
    nearest : tuple of NearMiss
        Systems that do not, the nearest first.
    needs : tuple of Need
        What each format takes at least.
    systems, ruled_out, estimates : int
        Systems that were looked at; formats on them that memory or roofline ruled out; those that were estimated. [-]
    least_bits : float
        Bits per weight below which no format was tried. [bit]
    warnings : tuple of str
        What makes the answer an "as if".
    """

    model: ModelSpec
    wish: Wish
    met: tuple[Met, ...]
    nearest: tuple[NearMiss, ...]
    needs: tuple[Need, ...]
    systems: int
    ruled_out: int
    estimates: int
    least_bits: float
    warnings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.met)

    @property
    def best(self) -> Met | None:
        """The cheapest system that meets the wish."""
        return self.met[0] if self.met else None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            "model": self.model.id,
            "wish": asdict(self.wish),
            "found": bool(self.met),
            "met": [each.to_dict() for each in self.met],
            "nearest": [each.to_dict() for each in self.nearest],
            "needs": [each.to_dict(self.wish) for each in self.needs],
            "systems": self.systems,
            "ruled_out": self.ruled_out,
            "estimates": self.estimates,
            "min_bits_per_weight": self.least_bits,
            "warnings": list(self.warnings),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a system that meets the wish."""
        ranked = enumerate(self.met, 1)
        return [{"model": self.model.id, "rank": rank, **flat_record(each.to_dict())} for rank, each in ranked]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def tables(self, *, most: int | None = ROWS) -> list[Table]:
        """What meets the wish (so many of them, None is all), or what comes nearest; and what it takes at least."""
        found = _met_table(self, most) if self.met else _nearest_table(self)
        return [found, _needs_table(self)] if self.needs else [found]

    def __str__(self) -> str:
        return "\n\n".join(table.to_text() for table in self.tables())

    def __repr__(self) -> str:
        best = self.best
        if best is None:
            return f"Recommendation({self.model.id}: nothing of {self.systems:,} systems, {self.wish.text()})"
        return (
            f"Recommendation({self.model.id}: {len(self.met):,} of {self.systems:,} systems, first {best.system.id} "
            f"in {weights_text(best.weights)}, {self.wish.text()})"
        )

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def _met_table(found: Recommendation, most: int | None) -> Table:
    shown = found.met[:most]
    prices = any(each.price is not None for each in found.met)
    rents = any(each.price_per_hour is not None for each in found.met)
    batched = found.wish.batch > 1
    columns = [
        Column("hardware", "left"),
        Column("weights", "left", drop=-1),
        Column("bits", drop=8),
        Column("GiB", group="memory", drop=4),
        Column("of", group="memory", drop=4),
        Column("tok/s", group="decode, each" if batched else "decode", drop=-1),
        Column("range", "left", group="decode, each" if batched else "decode", drop=2),
        Column("safe", "left", drop=-1, note="safe: even the slow end of what is expected does"),
        Column("first token", drop=1 if found.wish.max_ttft_s is None else -1),
        Column("J/token", drop=6),
        Column("W", drop=3),
        *([Column("price", drop=-1), Column("per tok/s", drop=5)] if prices else []),
        *([Column("per 1M tokens", drop=-1)] if rents else []),
    ]
    rows = [_met_row(each, prices=prices, rents=rents) for each in shown]
    by = "price" if prices else "the size of their memory"
    notes = [f"each with the format of most bits that does; ranked by {by}, then by rated power"]
    if len(found.met) > len(shown):
        notes.append(f"{len(shown)} of {len(found.met)} systems; all: -v")
    if any(each.system.host is not None for each in shown):
        notes.append(
            "with system memory: layers or experts on the host; its processor is a typical one"
            + (", its price is not included" if prices else "")
        )
    notes += _sharing_notes(each.estimate for each in shown)
    notes += _tried_notes(found)
    notes.append(f"basis: {bases_text(each.estimate for each in shown)}")
    return Table(columns, rows, _title(found), notes, f"{len(found.met)} of {found.systems} systems do")


def _met_row(each: Met, *, prices: bool, rents: bool) -> list[str]:
    answer, memory = each.estimate, each.estimate.memory
    rate, energy, power = answer.decode.tokens_per_s, answer.energy_j_per_token, each.system.rated_power_w
    cells = [
        _name(each.system, answer),
        weights_text(each.weights),
        f"{each.bits_per_weight:.2f}",
        gib_text(memory.total_bytes),
        "?" if memory.usable_bytes is None else gib_text(memory.usable_bytes),
        significant(rate.expected),
        interval_text(rate),
        "yes" if each.safe else "no",
        format_seconds(answer.ttft_s.expected),
        "–" if energy is None else significant(energy.expected),
        "–" if power is None else count_text(power),
    ]
    if prices:
        per_rate = each.price_per_token_per_s
        cells += ["–" if each.price is None else count_text(each.price)]
        cells += ["–" if per_rate is None else significant(per_rate)]
    if rents:
        cost = each.cost_per_million_tokens
        cells.append("–" if cost is None else significant(cost.expected))
    return cells


def _name(system: SystemSpec, answer: Estimate | None) -> str:
    """What a system is called, and how its devices share the work; an amount of memory beside it counts."""
    text = system_text(system) if answer is None else devices_text(answer)
    host = system.host
    return text if host is None or host.capacity_bytes is None else f"{text}@{capacity_label(host.capacity_bytes)}"


def _sharing_notes(answers: Iterable[Estimate | None]) -> Iterator[str]:
    """How several devices share the work, where there are any."""
    several = [answer for answer in answers if answer is not None and answer.hardware.device_count > 1]
    shared = [answer for answer in several if answer.workload.get("tensor_parallel", 1) > 1]
    if shared:
        engines = {answer.engine.partition(":")[0] for answer in shared}
        split = any(each.tensor_split and each.tensor_split.experimental for each in map(_engine, engines))
        yield "TP: the devices share each layer" + (", which the engine calls experimental" if split else "")
    if len(several) > len(shared):
        yield "several devices without TP: layers in a row, one device at a time for each token"


def _engine(name: str) -> EngineSpec:
    return catalog.engine(name)[0]


def _nearest_table(found: Recommendation) -> Table:
    rows = [
        [
            _name(each.system, each.estimate),
            weights_text(each.weights),
            "; ".join(item.text() for item in each.shortfalls),
        ]
        for each in found.nearest
    ]
    columns = [Column("nearest", "left"), Column("weights", "left"), Column("lacks", "left")]
    notes = ["at most, at least: the roofline's bound, which no run beats"]
    notes += _sharing_notes(each.estimate for each in found.nearest)
    return Table(columns, rows, _title(found), [*notes, *_tried_notes(found)], f"none of {found.systems} systems does")


def _tried_notes(found: Recommendation) -> Sequence[str]:
    if not found.least_bits:
        return []
    return [f"formats below {found.least_bits:g} bits per weight were not tried: --min-bits 0 or --weights tries them"]


def _title(found: Recommendation) -> str:
    return f"{found.model.name} · {found.wish.text()}"


def _needs_table(found: Recommendation) -> Table:
    wish = found.wish
    columns = [
        Column("what it takes at least", "left"),
        Column("bits"),
        Column("memory, GiB"),
        *([Column("bandwidth, GB/s")] if wish.min_tokens_per_s is not None else []),
        *([Column("compute, TFLOP/s")] if wish.max_ttft_s is not None else []),
    ]
    rows = []
    first = found.needs[0].engine if found.best is None else found.best.estimate.engine.partition(":")[0]
    for each in (need for need in found.needs if need.engine == first):
        least = each.to_dict(wish)
        row = [weights_text(each.weights), f"{each.bits_per_weight:.2f}", gib_text(each.held_bytes)]
        if wish.min_tokens_per_s is not None:
            row.append(significant(least["least_bandwidth_bytes_per_s"] / GB))
        if wish.max_ttft_s is not None:
            row.append(significant(least["least_flop_per_s"] / TERA))
        rows.append(row)
    params = params_text(found.model.active_params)
    notes = [f"memory: weights and cache; the rates are bounds, with {params} parameters multiplied for each token"]
    return Table(columns, rows, notes=notes)
