"""Output of clients that load any server: GenAI-Perf and AIPerf, their JSON and CSV summaries.

Neither names the engine (GenAI-Perf may), the format or the parallelism; AIPerf's JSON names the GPUs it watched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooflinellm.errors import InvalidSpec
from rooflinellm.measurements.row import Row, from_cells

_RATE = "output_token_throughput"
_METRICS = {
    _RATE: ("throughput_server", "output tokens/s total"),
    "time_to_first_token": ("ttft", "ms mean"),
    "inter_token_latency": ("tpot", "ms mean"),
}
"""Kind of test and unit of what is scored. Both tools give a request's mean gap as its inter-token latency."""
_LENGTHS = {"input_tokens": "input_sequence_length", "output_tokens": "output_sequence_length"}
_MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
_ENGINES = {"vllm": "vLLM", "tensorrtllm": "TensorRT-LLM", "tensorrtllm_engine": "TensorRT-LLM", "sglang": "SGLang"}
_CSV_METRIC = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^()]*)\))?")
_LONGEST_SEARCH = 10_000


def is_known(record: Mapping[str, Any]) -> bool:
    """Tell whether an object is a summary."""
    return any(isinstance(record.get(name), dict) and "avg" in record[name] for name in _METRICS)


def raw_hint(record: Mapping[str, Any]) -> str | None:
    """Which file to give instead, where an object belongs to the tools' records of every request."""
    if "experiments" in record and "service_kind" in record:
        return "Give profile_export_genai_perf.json, the summary beside it."
    if isinstance(record.get("metadata"), dict) and isinstance(record.get("metrics"), dict):
        return "Give profile_export_aiperf.json, the summary beside it."
    return None


def from_record(record: Mapping[str, Any], file: str, line: int) -> Iterator[Row]:
    """Rows of one run: its throughput, mean time to first token and mean time per output token."""
    config = record.get("input_config")
    phases = config.get("phases") if isinstance(config, Mapping) else None
    rate = _found(config, ("request_rate",)) or _found(phases, ("rate",))
    backend = _found(config, ("backend",))
    cells: dict[str, Any] = {
        "engine": _ENGINES.get(str(backend).lower()),
        "model": _found(config, ("model_names", "model", "models")),
        "batch_size_or_concurrency": _found(config, ("concurrency",)),
        "device": _gpu(record.get("telemetry_data")),
        "source_date": str(record.get("start_time") or "")[:10],
        **{field: _average(record.get(metric)) for field, metric in _LENGTHS.items()},
    }
    extra = {"request_rate": rate} if rate else {"closed_loop": True}
    for name, (kind, unit) in _METRICS.items():
        metric = record.get(name)
        value = _average(metric)
        if value is None:
            continue
        assert isinstance(metric, Mapping)
        if unit.startswith("ms"):
            value, unit = _in_milliseconds(value, str(metric.get("unit", "ms")))
        named = {**cells, "test_kind": kind, "unit": unit, "value": value, "id": f"{file}:{line}:{name}"}
        yield from_cells(named, kind="server", file=file, line=line, extra=extra)


def from_csv(lines: Sequence[Sequence[str]], file: str) -> Iterator[Row]:
    """Rows of a CSV summary: tables of ``Metric,avg,…`` and of ``Metric,Value``, AIPerf's with one of GPUs below.

    Raises
    ------
    InvalidSpec
        None of the metrics that are scored.
    """
    record: dict[str, Any] = {}
    gpus: set[str] = set()
    header: Sequence[str] = ()
    for cells in lines:
        if not any(cell.strip() for cell in cells):
            header = ()
        elif not header:
            header = [cell.strip() for cell in cells]
        else:
            named = dict(zip(header, cells, strict=False))
            if "GPU_Name" in named:
                gpus.add(named["GPU_Name"].strip())
                continue
            metric = _CSV_METRIC.fullmatch(named.get("Metric", "").strip())
            value = named.get("avg") or named.get("Value")
            if metric and value:
                key = metric["name"].lower().replace(" ", "_")
                record[key] = {"avg": value.replace(",", ""), "unit": metric["unit"] or ""}
    if not is_known(record):
        raise InvalidSpec("none of throughput, time to first token and inter-token latency is in it", where=file)
    record["telemetry_data"] = {"gpu_name": gpus.pop()} if len(gpus) == 1 else None
    yield from from_record(record, file, 1)


def _average(metric: Any) -> Any:
    return metric.get("avg") if isinstance(metric, Mapping) else None


def _in_milliseconds(value: Any, unit: str) -> tuple[Any, str]:
    """A time in ms; as it is, with its unit, where that is none of time."""
    factor = _MILLISECONDS.get(unit.lower())
    if factor is None:
        return value, unit
    try:
        return float(value) * factor, "ms mean"
    except (TypeError, ValueError, OverflowError):
        return value, "ms mean"  # the row then says that it is no number


def _found(config: Any, names: Sequence[str]) -> Any:
    """The first single value under one of some names, wherever a version of the tools has it; warm-ups left out."""
    queue = [config]
    for part in queue:
        if len(queue) > _LONGEST_SEARCH:
            return None
        if isinstance(part, Mapping):
            if "warmup" in (part.get("name"), part.get("type")):
                continue
            for name in names:
                value = part.get(name)
                value = value[0] if isinstance(value, list) and value else value
                if isinstance(value, Mapping):
                    value = _found(value, ("name",))
                if isinstance(value, str | int | float) and not isinstance(value, bool):
                    return value
            queue += part.values()
        elif isinstance(part, list):
            queue += part
    return None


def _gpu(telemetry: Any) -> str | None:
    """The GPU that was watched, where all were of one kind."""
    found, queue = set(), [telemetry]
    for part in queue:
        if isinstance(part, Mapping):
            if isinstance(part.get("gpu_name"), str):
                found.add(part["gpu_name"])
            queue += part.values()
        elif isinstance(part, list):
            queue += part
        if len(queue) > _LONGEST_SEARCH:
            break
    return found.pop() if len(found) == 1 else None
