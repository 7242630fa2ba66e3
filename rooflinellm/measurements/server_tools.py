"""Output of the benchmark clients of serving engines: vLLM and SGLang.

Neither names the device; vLLM writes what ``--metadata KEY=VALUE`` was given into its result, so that ``device``,
``tp``, ``weights`` and the like may stand there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooflinellm.measurements.row import Row, from_cells

_SERVE = ("output_throughput", "completed")
_LATENCY = ("avg_latency", "percentiles")
_THROUGHPUT = ("elapsed_time", "num_requests", "tokens_per_second")
_METADATA: Mapping[str, tuple[str, ...]] = {
    "device": ("device", "hardware", "gpu"),
    "device_count": ("device_count", "gpus", "num_gpus"),
    "tp": ("tp", "tensor_parallel", "tensor_parallel_size", "tp_size"),
    "pp": ("pp", "pipeline_parallel_size", "pp_size"),
    "dp": ("dp", "data_parallel_size", "dp_size"),
    "ep": ("ep", "expert_parallel_size", "ep_size"),
    "weight_dtype": ("weights", "weight_dtype", "quantization", "quant"),
    "kv_dtype": ("kv", "kv_dtype", "kv_cache_dtype"),
    "engine_version": ("engine_version", "version", "vllm_version"),
    "model": ("model_id", "model"),
    "batch_size_or_concurrency": ("batch_size",),
    "input_tokens": ("input_len", "random_input_len"),
    "output_tokens": ("output_len", "random_output_len"),
    "source_date": ("date",),
}


def is_known(record: Mapping[str, Any]) -> bool:
    """Tell whether an object is a result of one of the clients."""
    return any(set(keys) <= record.keys() for keys in (_SERVE, _LATENCY, _THROUGHPUT))


def from_record(record: Mapping[str, Any], file: str, line: int) -> Iterator[Row]:
    """Rows of one run: its throughput, time to first token and time per output token."""
    cells = _metadata(record)
    if set(_LATENCY) <= record.keys():
        yield _row(
            cells | {"engine": "vLLM", "test_kind": "request_latency", "unit": "s"}, "avg_latency", record, file, line
        )
        return
    if not set(_SERVE) <= record.keys():
        cells |= _means(record, "total_prompt_tokens", "total_output_tokens", "num_requests")
        if "output_tokens_per_second" in record:
            key, unit = "output_tokens_per_second", "output tokens/s total"
        else:
            key, unit = "tokens_per_second", "input+output tokens/s total"
        yield _row(cells | {"engine": "vLLM", "test_kind": "throughput_offline", "unit": unit}, key, record, file, line)
        return
    sglang = "random_range_ratio" in record or "total_output_tokens_retokenized" in record
    cells |= _means(record, "total_input_tokens", "total_output_tokens", "completed")
    cells["engine"] = "SGLang" if sglang else "vLLM"
    limit = record.get("max_concurrency")
    if limit:
        cells["batch_size_or_concurrency"] = limit
    rate = record.get("request_rate")
    extra = {"request_rate": rate} if rate not in (None, "inf", float("inf")) else {}
    if _speculates(record):
        extra["speculation"] = record.get("accept_length") or record.get("spec_decode_acceptance_length") or True
    for key, kind, unit in (
        ("output_throughput", "throughput_server", "output tokens/s total"),
        ("mean_ttft_ms", "ttft", "ms mean"),
        ("mean_tpot_ms", "tpot", "ms mean"),
    ):
        if record.get(key):
            yield _row(cells | {"test_kind": kind, "unit": unit}, key, record, file, line, extra)


def _row(
    cells: Mapping[str, Any],
    key: str,
    record: Mapping[str, Any],
    file: str,
    line: int,
    extra: Mapping[str, Any] | None = None,
) -> Row:
    named = {**cells, "value": record.get(key), "id": f"{file}:{line}:{key}"}
    return from_cells(named, kind="server", file=file, line=line, extra=extra or None)


def _metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    sources: Sequence[Mapping[str, Any]] = (record, _server_info(record))
    found: dict[str, Any] = {}
    for field, keys in _METADATA.items():
        for source in sources:
            value = next((source[key] for key in keys if source.get(key) not in (None, "")), None)
            if value is not None and not isinstance(value, list | dict):
                found[field] = value
                break
    return found


def _server_info(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What SGLang's server says of itself."""
    info = record.get("server_info")
    if not isinstance(info, dict):
        return {}
    path = info.get("model_path")
    return {**info, "model": path} if path else info


def _means(record: Mapping[str, Any], prompts: str, outputs: str, requests: str) -> dict[str, Any]:
    """Mean lengths of the requests that completed, where the run counts its tokens."""
    count = record.get(requests)
    if not isinstance(count, int) or count <= 0:
        return {}
    found = {}
    for field, key in (("input_tokens", prompts), ("output_tokens", outputs)):
        total = record.get(key)
        if isinstance(total, int | float) and total > 0:
            found[field] = total / count
    return found


def _speculates(record: Mapping[str, Any]) -> bool:
    return bool(record.get("accept_length")) or any(str(key).startswith("spec_decode") for key in record)
