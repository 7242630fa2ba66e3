"""One model and one request on several systems, side by side."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rooflinellm._numeric import is_array
from rooflinellm._shown import line, one_line
from rooflinellm.api import lookup
from rooflinellm.api.arguments import count, single_values
from rooflinellm.api.default_prompts import default_prompts
from rooflinellm.api.estimate import MAX_TOKENS, estimate
from rooflinellm.api.lookup import Name
from rooflinellm.errors import InvalidRequest, RooflineError, RooflineWarning, met
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, data_frame
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import bases_text, count_text, gib_text, interval_text, system_text, weights_text
from rooflinellm.units import format_seconds, significant

ENERGY_NOTE = (
    "J/token: energy of a decoded token, at the share of the rated power (W) that decode takes, of devices too that "
    "wait for their layers"
)


@dataclass(frozen=True)
class ComparedSystem:
    """A row of a comparison.

    Attributes
    ----------
    system : SystemSpec
        The system.
    name : str
        What it is called.
    estimates : tuple of Estimate
        One a prompt length; none where it cannot run.
    reason : str
        Why it cannot run; empty where it can.
    """

    system: SystemSpec
    name: str
    estimates: tuple[Estimate, ...]
    reason: str = ""

    __repr__ = one_line

    @property
    def power_w(self) -> float | None:
        """Rated power of all its devices, without the host; None where it is not known. [W]"""
        return self.system.rated_power_w

    def to_dict(self) -> dict[str, Any]:
        """JSON keys as the command line prints them."""
        return {
            "hardware": self.system.id,
            "name": self.name,
            "runs": bool(self.estimates),
            "reason": self.reason or None,
            "rated_power_w": self.power_w,
            "results": [item.to_dict() for item in self.estimates],
        }


@dataclass(frozen=True)
class Comparison:
    """The answer of `compare`.

    Attributes
    ----------
    model : ModelSpec
        The model, the same on all systems.
    prompt_tokens : tuple of int
        Lengths of the prompt. [token]
    rows : tuple of ComparedSystem
        The systems as they were named.
    differences : tuple of str
        What is not the same on all systems, in words: engine and backend, weight format, type of the cache, where the
        expectation comes from. Empty where nothing differs.
    warnings : tuple of str
        What makes some answers an "as if", each with the system's name.
    """

    model: ModelSpec
    prompt_tokens: tuple[int, ...]
    rows: tuple[ComparedSystem, ...]
    differences: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """All answers, by system and prompt length."""
        return tuple(item for row in self.rows for item in row.estimates)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            "model": self.model.id,
            "prompt_tokens": list(self.prompt_tokens),
            "rows": [row.to_dict() for row in self.rows],
            "differences": list(self.differences),
            "warnings": list(self.warnings),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a system and prompt length; of a system that cannot run one row with the reason."""
        records: list[dict[str, Any]] = []
        for row in self.rows:
            shared = {"model": self.model.id, "hardware": row.system.id, "name": row.name, "runs": not row.reason}
            if row.reason:
                records.append({**shared, "reason": row.reason})
            records += [{**shared, "rated_power_w": row.power_w, **_flat(item)} for item in row.estimates]
        return records

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def table(self) -> Table:
        """Rows by system and prompt length."""
        return _table(self)

    def __repr__(self) -> str:
        parts = [
            f"{row.name} {significant(float(row.estimates[0].decode.tokens_per_s.expected))} tokens/s"
            if row.estimates and row.estimates[0].memory.fits is not False
            else f"{row.name} cannot run"
            if row.reason
            else f"{row.name} does not fit"
            for row in self.rows
        ]
        return line("Comparison", [self.model.id, f"decode: {parts[0]}", *parts[1:]])

    def _repr_html_(self) -> str:
        return self.table().to_html()


def compare(
    model: Name | ModelEntry | ModelSpec, hardware: Any, *, prompt_tokens: Any = None, **request: Any
) -> Comparison:
    """Estimate one model on several systems, everything else being equal.

    A system on which it cannot run (an engine that does not run there, a peak that is not known) is a row with the
    reason. Where no engine is named each system gets the backend that suits it; `Comparison.differences` says so.

    Parameters
    ----------
    model : str, path or spec
        As in `rooflinellm.model`.
    hardware : sequence of str, path or spec
        As in `rooflinellm.system`, at least one.
    prompt_tokens : int or sequence of int, optional
        Lengths of the prompt; None is 512 and 8,192, as far as the context holds them. [token]
    **request
        As in `rooflinellm.estimate`, single values.

    Returns
    -------
    Comparison

    Raises
    ------
    InvalidRequest
        No system, arrays (see `rooflinellm.sweep`), or impossible numbers.
    UnknownName, AmbiguousName
        A name that is no entry, or that fits several.
    RooflineError
        It can run on none of the systems: what `estimate` raises for the first.

    Warns
    -----
    RooflineWarning
        As `estimate`, each system named.
    """
    entry = lookup.model(model)
    systems = list({each.id: each for each in map(lookup.system, _listed(hardware, "hardware"))}.values())
    if prompt_tokens is None:
        prompt_tokens = default_prompts(entry.max_context_tokens, request)
    asked = _listed(prompt_tokens, "prompt_tokens")
    for each in asked:
        single_values({"prompt_tokens": each})
    prompts = tuple(dict.fromkeys(int(count("prompt_tokens", each, 0, MAX_TOKENS)) for each in asked))
    single_values(request, "sweep takes several")
    names = [each.id if each.device.ad_hoc else system_text(each) for each in systems]
    rows, errors = [], []
    for system, name in zip(systems, names, strict=True):
        name = name if names.count(name) == 1 else system.id
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RooflineWarning)
                answers = tuple(estimate(entry, system, prompt_tokens=prompt, **request) for prompt in prompts)
            rows.append(ComparedSystem(system, name, answers))
        except RooflineError as error:
            errors.append(error)
            reason = f"{error.where}: {error.message}" if error.where else error.message
            rows.append(ComparedSystem(system, name, (), reason))
    if len(errors) == len(rows):
        raise errors[0]
    said = tuple(dict.fromkeys(f"{row.name}: {text}" for row in rows for text in _distinct(row)))
    for text in said:
        warnings.warn(text, RooflineWarning, stacklevel=2)
    return Comparison(entry, prompts, tuple(rows), tuple(_differences(rows)), said)


def _listed(value: Any, where: str) -> list[Any]:
    """One or several, as plain values."""
    if isinstance(value, str | os.PathLike | int | HardwareSpec | SystemSpec):
        return [value]
    try:
        found = [each.item() if is_array(each) and each.size == 1 else each for each in value]
    except TypeError as error:
        raise InvalidRequest(f"{met(value)} is no list", where=where) from error
    if not found:
        raise InvalidRequest("give at least one", where=where)
    return found


def _distinct(row: ComparedSystem) -> list[str]:
    """Warnings of a system, of those that begin alike the one of the longest prompt."""
    return list({text.partition(":")[0]: text for item in row.estimates for text in item.warnings}.values())


def _differences(rows: list[ComparedSystem]) -> Iterator[str]:
    """Say what is not the same on all systems."""
    writers: dict[str, tuple[str, Callable[[str], str]]] = {
        "engine": ("engines", lambda text: text.replace(":", " ")),
        "weights": ("weight formats", weights_text),
        "kv": ("types of the KV cache", str),
        "decode.time_s.basis": ("bases", str),
    }
    for field, (what, write) in writers.items():
        found: dict[str, list[str]] = {}
        for row in rows:
            for item in row.estimates[:1]:
                found.setdefault(write(attrgetter(field)(item)), []).append(row.name)
        if len(found) > 1:
            yield f"{what} differ: " + "; ".join(f"{name} on {', '.join(on)}" for name, on in found.items())


def _flat(item: Estimate) -> dict[str, Any]:
    """The numbers of an estimate that a comparison shows, by flat keys."""
    memory = item.memory
    flat: dict[str, Any] = {
        "weights": item.weights,
        "kv": item.kv,
        "engine": item.engine,
        **item.workload,
        "fits": memory.fits,
        "total_bytes": memory.total_bytes,
        "usable_bytes": memory.usable_bytes,
        "max_context_tokens": memory.max_context_tokens,
    }
    predictions = {
        "prefill_tokens_per_s": item.prefill.tokens_per_s,
        "ttft_s": item.ttft_s,
        "decode_tokens_per_s": item.decode.tokens_per_s,
        "decode_aggregate_tokens_per_s": item.decode.aggregate_tokens_per_s,
        "energy_j_per_token": item.energy_j_per_token,
    }
    for name, prediction in predictions.items():
        numbers = dict.fromkeys(("ideal", "expected", "low", "high")) if prediction is None else prediction.to_dict()
        flat |= {f"{name}_{kind}": number for kind, number in numbers.items()}
    return {**flat, "prefill_bound": item.prefill.bound, "decode_bound": item.decode.bound}


def _table(comparison: Comparison) -> Table:
    items = comparison.estimates
    batched = items[0].workload["batch"] > 1
    prefill, decode = ("prefill, each", "decode, each request") if batched else ("prefill", "decode")
    columns = [
        Column("hardware", "left"),
        Column("fits", "left", drop=-1),
        Column("GiB", drop=6),
        Column("prompt", drop=0),
        Column("tok/s", group=prefill, drop=2),
        Column("range", "left", group=prefill, drop=9),
        Column("ideal", group=prefill, drop=10),
        Column("first token", drop=-1),
        Column("tok/s", group=decode, drop=-1),
        Column("range", "left", group=decode, drop=5),
        Column("ideal", group=decode, drop=4),
        *([Column("all", group=decode, drop=1)] if batched else []),
        Column("J/token", drop=3, note=ENERGY_NOTE),
        Column("W", drop=7),
    ]
    rows = [cells for row in comparison.rows for cells in _rows(row, len(columns), batched=batched)]
    same = [comparison.model.name]
    for values in ([weights_text(item.weights) for item in items], [item.engine.replace(":", " ") for item in items]):
        same += [values[0]] if len(set(values)) == 1 else []
    notes = [f"{row.name} cannot run it: {row.reason}" for row in comparison.rows if row.reason]
    lacking = dict.fromkeys(row.name for row in comparison.rows for item in row.estimates if item.memory.fits is False)
    notes += [f"no rates where it does not fit ({', '.join(lacking)}); as if it did: estimate"] if lacking else []
    notes += list(comparison.differences)
    notes.append(f"basis: {bases_text(items)}")
    return Table(columns, rows, " · ".join(same), notes)


def _rows(row: ComparedSystem, width: int, *, batched: bool) -> Iterator[list[str]]:
    """A line a prompt length, the system's name before the first."""
    if row.reason:
        yield [row.name, "cannot run", *["–"] * (width - 2)]
    for number, item in enumerate(row.estimates):
        first, decode, prefill = number == 0, item.decode.tokens_per_s, item.prefill.tokens_per_s
        prompted = item.workload["prompt_tokens"] > 0
        fits = {True: "yes", False: "no", None: "?"}[item.memory.fits]
        energy, power = item.energy_j_per_token, row.power_w
        cells = [row.name if first else "", fits, gib_text(item.memory.total_bytes)]
        cells.append(count_text(item.workload["prompt_tokens"]))
        if item.memory.fits is False:  # what it would do if it did is no ground to buy it
            blank = ["–"] * (width - len(cells) - 1)
            yield [*cells, *blank, "" if not first else "–" if power is None else count_text(power)]
            continue
        cells += (
            [significant(prefill.expected), interval_text(prefill), f"≤ {significant(prefill.ideal)}"]
            if prompted
            else ["–", "", ""]
        )
        cells.append(format_seconds(item.ttft_s.expected))
        cells += [significant(decode.expected), interval_text(decode), f"≤ {significant(decode.ideal)}"]
        cells += [significant(item.decode.aggregate_tokens_per_s.expected)] if batched else []
        cells += ["–" if energy is None else significant(energy.expected)]
        cells.append("" if not first else "–" if power is None else count_text(power))
        yield cells
