"""Requests of a load: lengths as numbers, arrays or distributions; arrivals at random or from a trace."""

from __future__ import annotations

import csv
import io
import math
import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rooflinellm import _yaml
from rooflinellm._shown import one_line
from rooflinellm.api.arguments import count, positive, scalar_count
from rooflinellm.errors import InvalidRequest, UnreadableFile, met

MOST_REQUESTS = 2_000_000
LARGEST_FILE = 100_000_000
"""[byte]"""
MOST_TOKENS = 2**22
"""Longest prompt or answer. [token]"""
TRACE_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
LENGTHS = 'a whole number, one for each request, or {"mean": m, "cv": c}'


@dataclass(frozen=True)
class Trace:
    """Requests as they came, arrays of one element each, in order of their arrival; the first arrives at 0.

    `cached_tokens` is None where the trace does not say. [s], [token]
    """

    arrival_s: Any
    prompt_tokens: Any
    output_tokens: Any
    cached_tokens: Any = None

    __repr__ = one_line


@dataclass(frozen=True)
class Requests:
    """Requests and how they come, arrays of one element each.

    Attributes
    ----------
    arrival_s : ndarray or None
        When they arrive; None in a closed loop. [s]
    clients : int
        Clients of a closed loop; 0 elsewhere. [-]
    prompt_tokens, output_tokens, cached_tokens, context_tokens : ndarray
        As in `estimate`. [token]
    """

    arrival_s: Any
    clients: int
    prompt_tokens: Any
    output_tokens: Any
    cached_tokens: Any
    context_tokens: Any

    __repr__ = one_line

    @property
    def computed_tokens(self) -> Any:
        """Prompt tokens that prefill computes: the last one always, for its logits. [token]"""
        return np.maximum(self.prompt_tokens - self.cached_tokens, 1)

    @property
    def before_tokens(self) -> Any:
        """In the cache before prefill. [token]"""
        return self.context_tokens + self.prompt_tokens - self.computed_tokens

    @property
    def longest(self) -> int:
        """Most tokens of a request. [token]"""
        return int((self.context_tokens + self.prompt_tokens + self.output_tokens).max())


def requests_of(
    rate: Any,
    concurrency: Any,
    stated_trace: Any,
    requests: Any,
    prompt: Any,
    output: Any,
    cached: Any,
    context: Any,
    seed: Any,
) -> Requests:
    """Check and draw requests, arguments as in `simulate_load`; arrivals and each kind of length have their own chance.

    Raises
    ------
    InvalidRequest
        Not one of rate, concurrency and trace; something missing or out of range.
    UnreadableFile
        A trace that cannot be read.
    """
    asked = {"rate": rate, "concurrency": concurrency, "trace": stated_trace}
    stated = [name for name, value in asked.items() if value is not None]
    if len(stated) != 1:
        found = "none" if not stated else " and ".join(stated)
        raise InvalidRequest(f"{found} given; a load needs one of rate, concurrency and trace", where="load")
    if not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or seed < 0:
        raise InvalidRequest(f"{seed!r:.40} is not a whole number from 0 on", where="seed")
    chances = [np.random.default_rng(each) for each in np.random.SeedSequence(int(seed)).spawn(5)]
    arrival = None
    if stated_trace is not None:
        read = trace(stated_trace)
        wanted = len(read.arrival_s) if requests is None else scalar_count("requests", requests, MOST_REQUESTS)
        if prompt is not None or output is not None:
            raise InvalidRequest(
                "lengths are those of the trace", where="prompt_tokens" if output is None else "output_tokens"
            )
        arrival, prompt, output = (each[:wanted] for each in (read.arrival_s, read.prompt_tokens, read.output_tokens))
        number, cached = len(arrival), cached if read.cached_tokens is None else read.cached_tokens[:wanted]
    else:
        for name, value in (("requests", requests), ("prompt_tokens", prompt), ("output_tokens", output)):
            if value is None:
                raise InvalidRequest("missing; a load needs it, unless there is a trace", where=name)
        number = scalar_count("requests", requests, MOST_REQUESTS)
        if rate is not None:
            arrival = poisson(positive("rate", rate), number, chances[0])
    drawn = [
        lengths(name, value, number, chance, least)
        for name, value, least, chance in zip(
            ("prompt_tokens", "output_tokens", "cached_tokens", "context_tokens"),
            (prompt, output, cached, context),
            (1, 0, 0, 0),
            chances[1:],
            strict=True,
        )
    ]
    over = drawn[2] > drawn[0]
    if isinstance(cached, Mapping):
        drawn[2] = np.minimum(drawn[2], drawn[0])
    elif over.any():
        raise InvalidRequest(
            f"{drawn[2][over][0]:,} cached tokens of a prompt of {drawn[0][over][0]:,}: "
            "at most the whole prompt can be cached",
            where="cached_tokens",
        )
    clients = 0 if concurrency is None else scalar_count("concurrency", concurrency, MOST_REQUESTS)
    return Requests(arrival, clients, *drawn)


def lengths(name: str, value: Any, requests: int, rng: np.random.Generator, least: int = 0) -> Any:
    """Lengths of all requests.

    Parameters
    ----------
    name : str
        The argument, for messages.
    value : int, array_like or mapping
        One for all, one for each, or mean and coefficient of variation of a log-normal distribution. [token]
    requests : int
        How many. [-]
    rng : Generator
        Source of chance.
    least : int
        The smallest that is allowed. [token]

    Returns
    -------
    ndarray of int
        [token]

    Raises
    ------
    InvalidRequest
        None of these, or out of range.
    """
    if isinstance(value, Mapping):
        return _drawn(name, value, requests, rng, least)
    if value is None or isinstance(value, str):
        raise InvalidRequest(f"{value!r:.40} is not {LENGTHS}", where=name)
    checked = np.asarray(count(name, value, least, MOST_TOKENS))
    if checked.ndim == 0:
        return np.full(requests, int(checked))
    if checked.shape != (requests,):
        raise InvalidRequest(f"an array of shape {checked.shape} for {requests:,} requests", where=name)
    return checked.astype(int)


def _drawn(name: str, value: Mapping[str, Any], requests: int, rng: np.random.Generator, least: int) -> Any:
    """Log-normal lengths: exp(N(mu, sigma)) with sigma^2 = ln(1 + cv^2) and mu = ln(mean) - sigma^2 / 2. [token]"""
    if not {"mean"} <= set(value) <= {"mean", "cv"}:
        raise InvalidRequest(f"a distribution of {', '.join(map(repr, value))} is not {LENGTHS}", where=name)
    mean, variation = _number(name, value["mean"], MOST_TOKENS), _number(name, value.get("cv", 1.0), 10.0)
    if mean < max(least, 1):
        raise InvalidRequest(f"a mean of {mean:g} tokens; at least {max(least, 1)} is allowed", where=name)
    variance = math.log(1 + variation**2)
    drawn = rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), requests)
    return np.clip(np.round(drawn), max(least, 1), MOST_TOKENS).astype(int)


def _number(name: str, value: Any, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= most:
        raise InvalidRequest(f"{value!r:.40} is not a number from 0 to {most:g}", where=name)
    return number


def poisson(rate: float, requests: int, rng: np.random.Generator) -> Any:
    """Arrivals at random at a mean rate [1/s]; the first is at 0. [s]"""
    gaps = rng.exponential(1 / rate, requests)
    gaps[0] = 0.0
    return np.cumsum(gaps)


def trace(given: Any) -> Trace:
    """Read a trace.

    Parameters
    ----------
    given : path or mapping
        A CSV file with the columns ``arrival_s``, ``prompt_tokens``, ``output_tokens`` and maybe ``cached_tokens``, or
        such columns by name.

    Returns
    -------
    Trace

    Raises
    ------
    UnreadableFile
        No such file, or one without the columns.
    InvalidRequest
        Columns of unequal length, or numbers out of range.
    """
    if isinstance(given, Mapping):
        missing = [name for name in TRACE_COLUMNS if name not in given]
        if missing:
            raise InvalidRequest(f"there is no {', '.join(missing)}", where="trace")
        columns = {name: given[name] for name in (*TRACE_COLUMNS, "cached_tokens") if given.get(name) is not None}
    elif isinstance(given, str | os.PathLike):
        columns = _read(Path(os.path.expanduser(given)))
    else:
        raise InvalidRequest(f"{met(given)} is neither a file nor columns by name", where="trace")
    try:
        arrival = np.asarray(columns.pop("arrival_s"), dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidRequest("arrival_s holds something that is no number", where="trace") from error
    if arrival.ndim != 1 or not 0 < arrival.size <= MOST_REQUESTS:
        raise InvalidRequest(f"{arrival.size:,} requests; from 1 to {MOST_REQUESTS:,} are allowed", where="trace")
    if not np.isfinite(arrival).all():
        raise InvalidRequest("arrival_s holds something that is not finite", where="trace")
    order, rng = np.argsort(arrival, kind="stable"), np.random.default_rng()
    read = {
        name: lengths(f"trace, {name}", column, arrival.size, rng, least=int(name == "prompt_tokens"))[order]
        for name, column in columns.items()
    }
    return Trace(arrival[order] - arrival.min(), **read)


def _read(path: Path) -> dict[str, Any]:
    """Columns of a CSV file by name."""
    where = f"trace {path}"
    try:
        reader = csv.DictReader(io.StringIO(_yaml.read_text(path, max_bytes=LARGEST_FILE), newline=""))
        names = [name for name in (*TRACE_COLUMNS, "cached_tokens") if name in (reader.fieldnames or ())]
        missing = [name for name in TRACE_COLUMNS if name not in names]
        if missing:
            raise UnreadableFile(
                f"no column {', '.join(missing)}", where=where, next_step=f"It needs {', '.join(TRACE_COLUMNS)}."
            )
        columns: dict[str, list[float]] = {name: [] for name in names}
        for row in reader:
            for name in names:
                columns[name].append(_cell(row[name], name, f"{where}, line {reader.line_num}"))
    except csv.Error as error:
        raise UnreadableFile(f"cannot be read: {error}", where=where) from error
    if not columns["arrival_s"]:
        raise UnreadableFile("holds no requests", where=where)
    return columns


def _cell(text: str | None, name: str, where: str) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UnreadableFile(f"{name} is {text!r:.40}, no number", where=where)
    return number
