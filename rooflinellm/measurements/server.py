"""The workload of a row of server results: its own unit says what was counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rooflinellm.measurements.local import DEFAULT_OUTPUT
from rooflinellm.measurements.row import Row
from rooflinellm.measurements.workload import Quantity, SkipRow, Workload, tokens
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.units import MILLI

ALONE = 4
"""Concurrency up to which the time to first token is that of a prefill; above, it is mostly waiting. [-]"""
SMALLEST_KV = "fp8"
"""Type of the cache where the row names none and the weights have 8 bits or less."""


def server_workload(row: Row, engine: EngineSpec) -> Workload:
    """The workload of a server row.

    Raises
    ------
    SkipRow
        Lengths that are not stated, load that is no fixed number of requests, a unit that is none of speed.
    """
    if not row.value:
        raise SkipRow("the row holds no value")
    unit, kind = (row.unit or "").lower(), row.test_kind or ""
    kv = _kv(row, engine)
    if unit == "s" or unit.startswith("ms"):
        seconds = row.value * (1.0 if unit == "s" else MILLI)
        return _seconds(row, kind, seconds, kv)
    if "tokens/s" in unit or unit.startswith(("samples/s", "queries/s")):
        return _rate(row, kind, unit, kv)
    raise SkipRow("a unit that is no speed", (row.unit or "none")[:60])


def _kv(row: Row, engine: EngineSpec) -> str | None:
    """The type of the cache: as stated, else 8 bits beside weights of 8 bits or less, else the engine's default."""
    stated = (row.kv_dtype or "").lower()
    small = re.match(r"fp8|nvfp4|fp4|mxfp4", (row.weight_dtype or "").lower()) is not None
    for name in ("fp8", "bf16", "f16"):
        if stated.startswith(name.replace("f16", "fp16") if name == "f16" else name):
            return name if name in engine.kv.types else None
    return SMALLEST_KV if small and SMALLEST_KV in engine.kv.types else None


def _lengths(row: Row, *, output: bool = True) -> dict[str, Any]:
    prompt, generated = tokens(row.input_tokens), tokens(row.output_tokens)
    if not prompt or (output and not generated):
        raise SkipRow("the row does not state the lengths of prompt and output")
    return {"prompt_tokens": prompt, "output_tokens": generated}


def _concurrency(row: Row) -> int:
    count = row.batch_size_or_concurrency
    if not count:
        raise SkipRow("the row does not state how many requests run side by side")
    return max(round(count), 1)


def _arrivals(extra: Mapping[str, Any]) -> bool:
    """Whether requests arrive at a rate, or as recorded, instead of being kept at a number."""
    return any(key in extra for key in ("qps", "rps", "request_rate", "arrival"))


def _seconds(row: Row, kind: str, seconds: float, kv: str | None) -> Workload:
    extra = row.extra or {}
    if kind == "request_latency":
        arguments = {**_lengths(row), "batch": _concurrency(row)}
        return Workload(arguments, Quantity("request", "s", seconds), kv)
    if _arrivals(extra):
        raise SkipRow("latency under arriving requests needs a simulation of the load")
    concurrency = _concurrency(row)
    if kind in ("tpot", "decode_latency"):
        arguments = {**_lengths(row), "batch": concurrency}
        if _without_prefill(extra):
            arguments = _filled(arguments)
        return Workload(arguments, Quantity("tpot", "s", seconds), kv)
    if kind in ("ttft", "prefill_latency"):
        if _without_prefill(extra):
            raise SkipRow("the cache was filled without a prefill")
        lengths = {**_lengths(row, output=False), "output_tokens": 0}
        loaded = concurrency > ALONE and "batch as given" not in (row.note or "") and kind == "ttft"
        if loaded:
            return Workload({**_lengths(row), "batch": concurrency}, Quantity("loaded_ttft", "s", seconds), kv)
        if "batch as given" in (row.note or "") or kind == "prefill_latency":
            return Workload({**lengths, "batch": concurrency}, Quantity("ttft", "s", seconds), kv)
        return Workload({**lengths, "batch": 1}, Quantity("ttft", "s", seconds), kv)
    raise SkipRow("a kind of test that is not known", kind[:40])


def _without_prefill(extra: Mapping[str, Any]) -> bool:
    """Whether the benchmark fills the cache itself and only decodes."""
    return "no prefill" in str(extra.get("mode", ""))


def _filled(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same lengths with the prompt in the cache."""
    return {**arguments, "prompt_tokens": 0, "context_tokens": arguments["prompt_tokens"]}


def _rate(row: Row, kind: str, unit: str, kv: str | None) -> Workload:
    """A throughput: output, prompt or all tokens, of a device or of all."""
    value = row.value or 0.0
    extra, note = row.extra or {}, row.note or ""
    devices = row.device_count or 1
    per_device = "/gpu" in unit
    measured = value * devices if per_device else value
    if "cache hits" in unit or "per 8-gpu node" in unit:
        raise SkipRow("a mean of production traffic")
    if unit.startswith(("samples/s", "queries/s")):
        if not row.output_tokens:
            raise SkipRow("the row does not state the lengths of prompt and output")
        measured *= row.output_tokens
    scale = 1 / devices if per_device else 1.0
    measured *= scale
    if kind == "prefill_latency" or unit.startswith(("prompt tokens", "input tokens")):
        lengths = {**_lengths(row, output=False), "output_tokens": 0}
        arguments = {**lengths, "batch": _concurrency(row)}
        return Workload(arguments, Quantity("prefill", "tokens/s", measured, scale), kv)
    if kind == "offload_decode" and unit.endswith("decode"):
        # In the cache is what was prompted; an answer whose length is not stated is as long as is usual.
        arguments = {**_lengths(row, output=False), "batch": _concurrency(row)}
        arguments["output_tokens"] = arguments["output_tokens"] or DEFAULT_OUTPUT
        return Workload(arguments, Quantity("decode", "tokens/s", measured, scale), kv)
    if _arrivals(extra):
        raise SkipRow("throughput under arriving requests needs a simulation of the load")
    lengths = _lengths(row)
    counted = lengths["output_tokens"] + (lengths["prompt_tokens"] if unit.startswith("input+output") else 0)
    if _without_prefill(extra):
        arguments = _filled({**lengths, "batch": _concurrency(row)})
        return Workload(arguments, Quantity("decode", "tokens/s", measured, scale), kv)
    if kind == "batched_decode" and "incl. prefill" not in unit:
        arguments = {**lengths, "batch": _concurrency(row)}
        return Workload(arguments, Quantity("decode", "tokens/s", measured, scale), kv)
    if "static" in note or kind in ("batched_decode", "offload_decode"):
        arguments = {**lengths, "batch": _concurrency(row)}
        return Workload(arguments, Quantity("run", "tokens/s", measured, scale, counted), kv)
    if kind not in ("throughput_offline", "throughput_server"):
        raise SkipRow("a kind of test that is not known", kind[:40])
    arguments = dict(lengths)
    if row.batch_size_or_concurrency or "closed_loop" in extra:
        arguments["batch"] = _concurrency(row)
    return Workload(arguments, Quantity("serving", "tokens/s", measured, scale, counted), kv)
