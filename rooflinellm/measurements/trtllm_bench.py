"""Output of ``trtllm-bench throughput`` and ``latency``: its JSON report (``--report_json``), or what it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rooflinellm.errors import InvalidSpec
from rooflinellm.measurements.row import Row, from_cells

ENGINE = "TensorRT-LLM"
_PARTS = ("engine", "request_info", "performance")
_HEADING = re.compile(r"^= (?P<name>[A-Z+ ]+?)(?: \(.*\))?\s*$", re.MULTILINE)
_OVERVIEW = "PERFORMANCE OVERVIEW"
_BEGINS = ("PYTORCH BACKEND", "ENGINE DETAILS")
_LINE = re.compile(r"^(?P<label>[A-Z][^:]*?):\s+(?P<value>\S.*?)\s*$")
_MACHINE = re.compile(r"^(?P<name>.+?), memory [\d.]+ GB")
_LABELS = {
    "Model": ("engine", "model"),
    "TensorRT-LLM Version": ("engine", "version"),
    "TensorRT LLM Version": ("engine", "version"),
    "Dtype": ("engine", "dtype"),
    "KV Cache Dtype": ("engine", "kv_cache_dtype"),
    "Quantization": ("engine", "quantization"),
    "TP Size": ("world_info", "tp_size"),
    "PP Size": ("world_info", "pp_size"),
    "EP Size": ("world_info", "ep_size"),
    "Max Runtime Batch Size": ("world_info", "max_batch_size"),
    "Number of concurrent requests": ("request_info", "avg_num_concurrent_requests"),
    "Average Input Length (tokens)": ("request_info", "avg_input_length"),
    "Average Output Length (tokens)": ("request_info", "avg_output_length"),
    "Total Output Throughput (tokens/sec)": ("performance", "system_output_throughput_tok_s"),
    "Average time-to-first-token [TTFT] (ms)": ("streaming_metrics", "avg_ttft_ms"),
    "Average time-per-output-token [TPOT] (ms)": ("streaming_metrics", "avg_tpot_ms"),
}
"""Lines of the printed report by their place in the JSON."""
_FORMATS = {
    "FP8_BLOCK_SCALES": "fp8-block",
    "W4A16_AWQ": "awq",
    "W4A16_GPTQ": "gptq",
    "W4A16_MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "W4A8_MXFP4_MXFP8": "mxfp4",
}
"""Formats that are called otherwise elsewhere, by what TensorRT-LLM calls them."""
_TYPES = {"bfloat16": "bf16", "float16": "fp16"}


def is_known(record: Mapping[str, Any]) -> bool:
    """Tell whether an object is a report."""
    return all(isinstance(record.get(part), dict) for part in _PARTS)


def is_report(text: str) -> bool:
    """Tell whether a text, such as a log, holds a printed report."""
    return any(match["name"] == _OVERVIEW for match in _HEADING.finditer(text))


def from_text(text: str, file: str) -> Iterator[Row]:
    """Rows of every report in a log.

    Raises
    ------
    InvalidSpec
        A report that breaks off before its throughput.
    """
    report: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    section, start, ended = "", 0, False
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _HEADING.match(line):
            section = heading["name"].strip()
            if ended and (section in _BEGINS or section == _OVERVIEW):
                yield from _of_report(report, file, start)
                report, ended = {part: {} for part in _PARTS}, False
            if section == _OVERVIEW:
                start, ended = number, True
            elif section.startswith("DECODING STATISTICS"):
                report["decoding_stats"] = {"mode": "printed"}
        elif section == "MACHINE DETAILS" and (machine := _MACHINE.match(line)):
            report["machine"] = {"name": machine["name"]}
        elif (found := _LINE.match(line)) and found["label"] in _LABELS:
            part, key = _LABELS[found["label"]]
            value = found["value"]
            report.setdefault(part, {})[key] = None if value == "None" else value
    yield from _of_report(report, file, start)


def _of_report(report: Mapping[str, Any], file: str, line: int) -> Iterator[Row]:
    if "system_output_throughput_tok_s" not in report["performance"]:
        raise InvalidSpec("the report breaks off before its throughput", where=f"{file}, line {line}")
    yield from from_record(report, file, line)


def from_record(record: Mapping[str, Any], file: str, line: int) -> Iterator[Row]:
    """Rows of one run: throughput, and of a streaming run the mean time to first token and per output token.

    The requests under way are what the report counts on average, at most those that the engine takes at a time; where
    it counts more, the others waited, which a mean time to first token contains.
    """
    engine, world, requests = (_part(record, name) for name in ("engine", "world_info", "request_info"))
    quantization, dtype = engine.get("quantization"), engine.get("dtype")
    cells: dict[str, Any] = {
        "engine": ENGINE,
        "engine_version": engine.get("version"),
        "model": engine.get("model"),
        "device": _part(record, "machine").get("name"),
        "device_count": _positive(world.get("world_size")),
        "weight_dtype": _FORMATS.get(str(quantization), quantization or _TYPES.get(str(dtype), dtype)),
        "kv_dtype": engine.get("kv_cache_dtype") or _TYPES.get(str(dtype), dtype),
        **{name: _positive(world.get(f"{name}_size")) for name in ("tp", "pp", "ep")},
        "input_tokens": requests.get("avg_input_length"),
        "output_tokens": requests.get("avg_output_length"),
    }
    under_way = _positive(requests.get("avg_num_concurrent_requests"))
    most = _positive(world.get("max_batch_size"))
    queued = under_way is not None and most is not None and under_way > most
    cells["batch_size_or_concurrency"] = most if queued else under_way
    drafts = {"speculation": True} if record.get("decoding_stats") else {}
    streaming = _part(record, "streaming_metrics")
    for source, key, kind, unit in (
        (_part(record, "performance"), "system_output_throughput_tok_s", "throughput_server", "output tokens/s total"),
        (streaming, "avg_ttft_ms", "ttft", "ms mean"),
        (streaming, "avg_tpot_ms", "tpot", "ms mean"),
    ):
        if source.get(key) is None:
            continue
        extra = drafts | ({"arrival": "all at once"} if queued and kind == "ttft" else {})
        named = {**cells, "test_kind": kind, "unit": unit, "value": source[key], "id": f"{file}:{line}:{key}"}
        yield from_cells(named, kind="server", file=file, line=line, extra=extra or None)


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _positive(value: Any) -> float | None:
    """A number above 0; None for all else, such as an expert parallelism of -1, which means none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number > 0 else None
