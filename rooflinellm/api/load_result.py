"""The answer of `simulate_load`: how long requests take, and what the server does meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rooflinellm._numeric import plain
from rooflinellm._shown import in_unit, line, one_line
from rooflinellm.render import Column, Table
from rooflinellm.results import data_frame
from rooflinellm.summary import basis_text, count_text, system_text, weights_text
from rooflinellm.units import format_gib, format_seconds, significant


@dataclass(frozen=True, slots=True)
class Spread:
    """How a time is spread over the requests. [s]"""

    p50: float
    p90: float
    p99: float
    mean: float

    def __repr__(self) -> str:
        said = (f"{name} {in_unit(getattr(self, name), 's')}" for name in ("mean", "p50", "p90", "p99"))
        return line("Spread", said)

    @classmethod
    def of(cls, times: Any) -> Spread:
        """Of an array of times, one at least."""
        p50, p90, p99 = (float(each) for each in np.percentile(times, (50, 90, 99)))
        return cls(p50, p90, p99, float(np.mean(times)))

    def to_dict(self) -> dict[str, float]:
        """The four numbers."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class RequestTimes:
    """Each request, arrays of one element each.

    Attributes
    ----------
    arrival_s, start_s, first_token_s, finish_s : ndarray
        When it arrives, when its prefill begins, when its first and its last token come. [s]
    prompt_tokens, output_tokens : ndarray
        Its lengths. [token]
    preemptions : ndarray
        How often it was thrown out of the cache and computed anew. [-]
    """

    arrival_s: Any
    start_s: Any
    first_token_s: Any
    finish_s: Any
    prompt_tokens: Any
    output_tokens: Any
    preemptions: Any

    __repr__ = one_line

    @property
    def queue_s(self) -> Any:
        """From arrival to the begin of prefill. [s]"""
        return self.start_s - self.arrival_s

    @property
    def ttft_s(self) -> Any:
        """From arrival to the first token. [s]"""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> Any:
        """From arrival to the last token. [s]"""
        return self.finish_s - self.arrival_s

    @property
    def tpot_s(self) -> Any:
        """Time of an output token after the first; 0 where there is none. [s]"""
        return (self.finish_s - self.first_token_s) / np.maximum(self.output_tokens - 1, 1)


@dataclass(frozen=True)
class LoadResult:
    """How a server fares under a load.

    Attributes
    ----------
    ttft_s, e2e_s, queue_s : Spread
        Time to first token, to the last one, and until prefill begins, from the arrival on. [s]
    tpot_s : Spread
        Time per output token after the first, over the requests that have a second one; where none has, what it would
        take alone. [s]
    throughput_tokens_per_s : float
        Output tokens of all requests over the duration. [tokens/s]
    requests_per_s : float
        Requests over the duration. [1/s]
    goodput_per_s : float
        Those of them that keep the limits `max_ttft_s` and `max_tpot_s`; all where there are none. [1/s]
    max_throughput_tokens_per_s : float
        What the roofline allows however many requests wait: the ideal. [tokens/s]
    mean_concurrency : float
        Requests that wait or are served, on average over time. [-]
    mean_batch : float
        Sequences that decode, on average over the time in which the server is busy. [-]
    utilisation : float
        Share of the time in which it is busy. [-]
    kv_peak_bytes : int
        Most that caches take on the device that fills first. [byte]
    kv_peak_share, kv_mean_share : float or None
        Of the room for them there, at most and on average over time; None where the memory is not known. [-]
    preemptions : int
        How often a sequence was thrown out of the cache and computed anew. [-]
    duration_s : float
        From the first arrival to the last token. [s]
    energy_j_per_token : float or None
        Energy of the busy devices for each output token, prompts included, at the share of the rated power that the
        profile names; None where the rated power is not known. [J]
    cost_per_million_tokens : float or None
        Of output tokens, at the price that was stated; idle time costs too.
    basis : str
        Where the expectation comes from, as in `Prediction`.
    evidence : int
        Series of the device itself that it was fitted to, as in `Estimate`. [-]
    requests : RequestTimes
        Each request.
    assumptions, warnings : tuple of str
        What was taken for granted, and what makes the answer an "as if".
    model, hardware : object
        The `ModelSpec` and the `SystemSpec`.
    weights, kv, engine : str
        Canonical names.
    workload : mapping of str to Any
        The arguments that describe the load.
    """

    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    queue_s: Spread
    throughput_tokens_per_s: float
    requests_per_s: float
    goodput_per_s: float
    max_throughput_tokens_per_s: float
    mean_concurrency: float
    mean_batch: float
    utilisation: float
    kv_peak_bytes: int
    kv_peak_share: float | None
    kv_mean_share: float | None
    preemptions: int
    duration_s: float
    energy_j_per_token: float | None
    cost_per_million_tokens: float | None
    basis: str
    evidence: int
    requests: RequestTimes = field(repr=False)
    assumptions: tuple[str, ...] = field(repr=False)
    warnings: tuple[str, ...]
    model: Any = field(repr=False)
    hardware: Any = field(repr=False)
    weights: str
    kv: str
    engine: str
    workload: Mapping[str, Any]

    def __repr__(self) -> str:
        return (
            f"LoadResult({self.model.id} {self.weights} on {self.hardware.id}: "
            f"{len(self.requests.arrival_s):,} requests, TTFT p50 {significant(self.ttft_s.p50)} s, "
            f"p99 {significant(self.ttft_s.p99)} s, {significant(self.throughput_tokens_per_s)} tokens/s)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single requests as plain values, in base units, the unit in each key."""
        shown = {"model": self.model.id, "hardware": self.hardware.id}
        shown |= {name: getattr(self, name) for name in ("weights", "kv", "engine")}
        shown["workload"] = {name: plain(value) for name, value in self.workload.items()}
        for name in ("ttft_s", "tpot_s", "e2e_s", "queue_s"):
            shown[name] = getattr(self, name).to_dict()
        names = [each.name for each in fields(self)]
        numbers = names[names.index("throughput_tokens_per_s") : names.index("requests")]
        shown |= {name: plain(getattr(self, name)) for name in numbers}
        return {**shown, "assumptions": list(self.assumptions), "warnings": list(self.warnings)}

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a request, in order of arrival."""
        each = self.requests
        names = [f.name for f in fields(each)] + ["queue_s", "ttft_s", "tpot_s", "e2e_s"]
        columns = [plain(getattr(each, name)) for name in names]
        rows = enumerate(zip(*columns, strict=True))
        return [{"request": number, **dict(zip(names, row, strict=True))} for number, row in rows]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def tables(self) -> list[Table]:
        """Times by percentile, and what the server does."""
        return [_times_table(self), _server_table(self)]

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def _times_table(load: LoadResult) -> Table:
    columns = [Column("", "left"), Column("median"), Column("p90"), Column("p99"), Column("mean"), Column("limit")]
    limits = {"first token": load.workload.get("max_ttft_s"), "each token after": load.workload.get("max_tpot_s")}
    rows = []
    for name, spread in (
        ("waiting", load.queue_s),
        ("first token", load.ttft_s),
        ("each token after", load.tpot_s if load.requests.output_tokens.max() > 1 else None),
        ("last token", load.e2e_s),
    ):
        limit = limits.get(name)
        numbers = ["–"] * 4 if spread is None else [format_seconds(each) for each in spread.to_dict().values()]
        rows.append([name, *numbers, "" if limit is None else f"≤ {format_seconds(limit)}"])
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    parts = [load.model.name, weights_text(load.weights), system_text(load.hardware), load.engine.replace(":", " ")]
    return Table(columns, rows, " · ".join(parts), [load_text(load)])


def load_text(load: LoadResult) -> str:
    """The load in words: requests, how they come, and their lengths."""
    work, each = load.workload, load.requests
    how = (
        f"{significant(work['rate'])} a second at random"
        if work.get("rate") is not None
        else f"{count_text(work['concurrency'])} at a time"
        if work.get("concurrency") is not None
        else "as in the trace"
    )
    prompt, output = (_length_text(array) for array in (each.prompt_tokens, each.output_tokens))
    return f"{count_text(len(each.arrival_s))} requests, {how}; prompt {prompt}, answer {output} tokens"


def _length_text(tokens: Any) -> str:
    if tokens.min() == tokens.max():
        return count_text(tokens[0])
    return f"{count_text(tokens.mean())} on average (to {count_text(tokens.max())})"


def _server_table(load: LoadResult) -> Table:
    limited = any(load.workload.get(name) is not None for name in ("max_ttft_s", "max_tpot_s"))
    share = load.goodput_per_s / load.requests_per_s if load.requests_per_s else 0.0
    room = "" if load.kv_peak_share is None else f", {load.kv_peak_share:.0%} of the room"
    again = f", {count_text(load.preemptions)} thrown out and computed anew" if load.preemptions else ""
    decoding = f", {significant(load.mean_batch)} decode at once"
    energy, cost = load.energy_j_per_token, load.cost_per_million_tokens
    rows = [
        [
            "throughput",
            f"{significant(load.throughput_tokens_per_s)} tok/s of ≤ {significant(load.max_throughput_tokens_per_s)}, "
            f"{significant(load.requests_per_s)} requests/s",
        ],
        ["within the limits", f"{significant(load.goodput_per_s)} requests/s, {share:.1%}"] if limited else [],
        ["busy", f"{load.utilisation:.0%} of {format_seconds(load.duration_s)}"],
        ["in the system", f"{significant(load.mean_concurrency)} requests{decoding}"],
        ["KV cache at most", f"{format_gib(load.kv_peak_bytes)}{room}{again}"],
        ["energy", f"{significant(energy)} J a token, prompts included"] if energy is not None else [],
        ["cost", f"{significant(cost)} a million tokens"] if cost is not None else [],
    ]
    notes = [f"basis: {basis_text(load.basis, load.evidence)}; times are what is expected, ≤ is the ideal"]
    return Table([Column("", "left"), Column("", "left")], [row for row in rows if row], notes=notes)
