"""Readers of trtllm-bench, GenAI-Perf and AIPerf: texts of our own in the shapes that the tools write."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.cli.app import run
from rooflinellm.errors import InvalidSpec
from rooflinellm.measurements import Resolved, Row, Skip, resolve
from rooflinellm.measurements.readers import parse

# NVIDIA/TensorRT-LLM, tensorrt_llm/bench/dataclasses/reporting.py, ReportUtility.get_statistics_dict
TRTLLM: dict[str, Any] = {
    "engine": {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "model_path": "None", "engine_dir": "None", "version": "1.1.0",
        "backend": "Pytorch", "dtype": "bfloat16", "kv_cache_dtype": "FP8", "quantization": "FP8",
    },
    "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.1, "clocks.mem": 2.619},
    "world_info": {
        "tp_size": 2, "pp_size": 1, "ep_size": -1, "world_size": 2, "max_batch_size": 64, "max_num_tokens": 8192,
        "scheduling_policy": "GUARANTEED_NO_EVICT", "kv_cache_percentage": 0.9, "issue_rate": 1e15,
    },
    "request_info": {
        "num_requests": 320, "avg_num_concurrent_requests": 31.6, "avg_input_length": 1024.0,
        "avg_output_length": 256.0,
    },
    "performance": {
        "total_latency_ms": 30000.0, "avg_request_latency_ms": 2900.0, "request_throughput_req_s": 10.7,
        "system_output_throughput_tok_s": 2730.0, "system_total_throughput_tok_s": 13650.0,
        "output_throughput_per_user_tok_s": 88.0, "output_throughput_per_gpu_tok_s": 1365.0,
        "request_latency_percentiles_ms": {"p50": 2890.0, "p99": 3100.0, "average": 2900.0},
    },
    "streaming_metrics": {
        "token_output_speed_tok_s": 95.0, "avg_ttft_ms": 210.0, "avg_tpot_ms": 10.5,
        "tpot_percentiles": {"p50": 10.4, "p99": 12.0}, "ttft_percentiles": {"p50": 190.0, "p99": 400.0},
    },
    "dataset": {"isl": {"average": 1024.0}, "osl": {"average": 256.0}},
}  # fmt: skip

# the same file, ReportUtility.report_statistics: headings between rules, labels of a width of their own
TRTLLM_TEXT = """\
[11/20/2025-10:11:12] [TRT-LLM] [I]

===========================================================
= PYTORCH BACKEND
===========================================================
Model:\t\t\tmeta-llama/Llama-3.1-8B-Instruct
Model Path:\t\tNone
TensorRT LLM Version:\t1.1.0
Dtype:\t\t\tbfloat16
KV Cache Dtype:\t\tFP8
Quantization:\t\tFP8

===========================================================
= MACHINE DETAILS
===========================================================
NVIDIA H100 80GB HBM3, memory 79.10 GB, 2.62 GHz

===========================================================
= REQUEST DETAILS
===========================================================
Number of requests:             320
Number of concurrent requests:  31.6000
Average Input Length (tokens):  1024.0000
Average Output Length (tokens): 256.0000
===========================================================
= WORLD + RUNTIME INFORMATION
===========================================================
TP Size:                2
PP Size:                1
EP Size:                None
Max Runtime Batch Size: 64
Max Runtime Tokens:     8192
Scheduling Policy:      GUARANTEED_NO_EVICT
KV Memory Percentage:   90.00%
Issue Rate (req/sec):   1.0000E+15

===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     10.7000
Total Output Throughput (tokens/sec):             2730.0000
Total Token Throughput (tokens/sec):              13650.0000
Total Latency (ms):                               30000.0000
Average request latency (ms):                     2900.0000
Per User Output Throughput [w/ ctx] (tps/user):   88.0000
Per GPU Output Throughput (tps/gpu):              1365.0000
Average time-to-first-token [TTFT] (ms):          210.0000
Average time-per-output-token [TPOT] (ms):        10.5000
Per User Output Speed (tps/user):                 95.0000

-- Per-Request Time-per-Output-Token [TPOT] Breakdown (ms)

[TPOT] MINIMUM: 9.9000
[TPOT] P99    : 12.0000
"""


def metric(avg: float, unit: str) -> dict[str, Any]:
    return {"unit": unit, "avg": avg, "p50": 0.9 * avg, "p99": 1.5 * avg}


LOADED = {
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
    "request_latency": metric(2000.0, "ms"),
    "time_to_first_token": metric(120.0, "ms"),
    "inter_token_latency": metric(7.5, "ms"),
    "output_token_throughput": {"unit": "tokens/sec", "avg": 1020.0},
    "output_sequence_length": metric(256.0, "tokens"),
    "input_sequence_length": metric(550.0, "tokens"),
}
# triton-inference-server/perf_analyzer, genai-perf/genai_perf/export_data/json_exporter.py: statistics beside the
# arguments; the second form is that of its tests/test_process_export_files.py
GENAI_PERF = LOADED | {
    "input_config": {
        "model": ["meta-llama/Llama-3.1-8B-Instruct"], "backend": "vllm", "concurrency": 8, "request_rate": None,
        "streaming": True, "synthetic_input_tokens_mean": 550, "output_tokens_mean": 256,
    }
}  # fmt: skip
GENAI_PERF_LATER = LOADED | {
    "input_config": {
        "model_names": ["meta-llama/Llama-3.1-8B-Instruct"], "endpoint": {"backend": "vllm", "url": "localhost:8001"},
        "perf_analyzer": {"path": "perf_analyzer", "stimulus": {"concurrency": 8}},
    }
}  # fmt: skip
# ai-dynamo/aiperf, src/aiperf/exporters/metrics_json_exporter.py; its configuration as loadgen, later as phases
AIPERF = LOADED | {
    "schema_version": "1.0", "aiperf_version": "0.5.0", "was_cancelled": False, "error_summary": [],
    "input_config": {
        "endpoint": {"model_names": ["meta-llama/Llama-3.1-8B-Instruct"], "type": "chat", "streaming": True},
        "loadgen": {"concurrency": 8, "request_count": 80},
    },
    "telemetry_data": {"endpoints": {"localhost:9401": {"gpus": {"gpu_0": {"gpu_name": "NVIDIA H200"}}}}},
    "start_time": "2026-01-15T10:00:00",
}  # fmt: skip
AIPERF_LATER = AIPERF | {
    "input_config": {
        "models": {"items": [{"name": "meta-llama/Llama-3.1-8B-Instruct"}]},
        "phases": [
            {"name": "warmup", "concurrency": 1},
            {"name": "profiling", "type": "concurrency", "concurrency": 8},
        ],
    }
}
# genai-perf/genai_perf/export_data/csv_exporter.py: thousands with commas, lengths with and without a unit
GENAI_PERF_CSV = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),"1,120.00",100.00,140.00,139.00,135.00,130.00,125.00,120.00,110.00
Inter Token Latency (ms),7.50,7.00,8.00,8.00,7.90,7.80,7.60,7.50,7.30
Request Latency (ms),"2,000.00",1.00,2.00,2.00,2.00,2.00,2.00,2.00,2.00
Output Sequence Length,256.00,250.00,260.00,260.00,258.00,257.00,256.00,256.00,255.00
Input Sequence Length,550.00,550.00,550.00,550.00,550.00,550.00,550.00,550.00,550.00

Metric,Value
Output Token Throughput (per sec),1020.00
Request Throughput (per sec),4.00
"""
# src/aiperf/exporters/metrics_csv_exporter.py: with a table of GPUs below
AIPERF_CSV = """\
Metric,avg,min,max,sum,p1,p50,p99,std
Input Sequence Length (tokens),550.00,550,550,44000,550.00,550.00,550.00,0.00
Inter Token Latency (ms),7.50,7.00,8.00,600.00,7.00,7.50,8.00,0.20
Output Sequence Length (tokens),256.00,256,256,20480,256.00,256.00,256.00,0.00
Time to First Token (ms),120.00,100.00,140.00,9600.00,100.00,119.00,139.00,9.00

Metric,Value
Output Token Throughput (tokens/sec),1020.00
Request Count,80.00


Endpoint,GPU_Index,GPU_Name,GPU_UUID,Metric,avg,min,max
localhost:9401,0,NVIDIA H200,GPU-1,GPU Power Usage (W),600.00,90.00,690.00
"""


def rows_of(text: str) -> list[Row]:
    return list(parse(text, "sample"))


@pytest.mark.parametrize("text", [json.dumps(TRTLLM), TRTLLM_TEXT], ids=["json", "printed"])
def test_trtllm_bench(text: str) -> None:
    rows = rows_of(text)
    assert [(row.test_kind, row.value, row.unit) for row in rows] == [
        ("throughput_server", 2730.0, "output tokens/s total"),
        ("ttft", 210.0, "ms mean"),
        ("tpot", 10.5, "ms mean"),
    ]
    for row in rows:
        assert row.problem is None
        assert (row.engine, row.engine_version, row.device) == ("TensorRT-LLM", "1.1.0", "NVIDIA H100 80GB HBM3")
        assert (row.weight_dtype, row.kv_dtype, row.tp, row.ep) == ("FP8", "FP8", 2, None)
        assert (row.input_tokens, row.output_tokens, row.batch_size_or_concurrency) == (1024, 256, 31.6)
    resolved = resolve(rows[2])
    assert isinstance(resolved, Resolved)
    assert (resolved.parallel.tensor, resolved.keywords["batch"], resolved.fmt.id) == (2, 32, "hf:fp8")


def test_several_reports_in_a_log() -> None:
    again = TRTLLM_TEXT.replace("2730.0000", "3000.0000").replace("Quantization:\t\tFP8", "Quantization:\t\tNone")
    rows = rows_of(TRTLLM_TEXT + again)
    assert [row.value for row in rows if row.test_kind == "throughput_server"] == [2730, 3000]
    assert [rows[0].weight_dtype, rows[3].weight_dtype] == ["FP8", "bf16"]
    assert rows[0].line < rows[3].line


def test_requests_that_wait_for_a_place_are_no_measure_of_a_prefill() -> None:
    """Of 500 requests under way the engine serves 64, so the mean TTFT is mostly waiting."""
    crowded = TRTLLM | {"request_info": TRTLLM["request_info"] | {"avg_num_concurrent_requests": 500.0}}
    throughput, ttft, tpot = rows_of(json.dumps(crowded))
    assert throughput.batch_size_or_concurrency == tpot.batch_size_or_concurrency == 64
    assert isinstance(resolve(ttft), Skip)
    assert isinstance(resolve(tpot), Resolved)


def test_speculation_is_told() -> None:
    assert str(resolve(rows_of(json.dumps(TRTLLM | {"decoding_stats": {"mode": "MTP"}}))[0])) == (
        "a server's speculation is not modelled yet"
    )


@pytest.mark.parametrize(
    ("record", "engine", "device"),
    [
        (GENAI_PERF, "vLLM", None),
        (GENAI_PERF_LATER, "vLLM", None),
        (AIPERF, None, "NVIDIA H200"),
        (AIPERF_LATER, None, "NVIDIA H200"),
    ],
    ids=["genai-perf", "genai-perf later", "aiperf", "aiperf later"],
)
def test_summaries_of_load_clients(record: dict[str, Any], engine: str | None, device: str | None) -> None:
    rows = rows_of(json.dumps(record))
    assert [(row.test_kind, row.value, row.unit) for row in rows] == [
        ("throughput_server", 1020.0, "output tokens/s total"),
        ("ttft", 120.0, "ms mean"),
        ("tpot", 7.5, "ms mean"),
    ]
    for row in rows:
        assert (row.engine, row.device, row.problem) == (engine, device, None)
        assert row.model == "meta-llama/Llama-3.1-8B-Instruct"
        assert (row.input_tokens, row.output_tokens, row.batch_size_or_concurrency) == (550, 256, 8)
    whole = replace(rows[2], engine="vLLM", device="NVIDIA H200", weight_dtype="fp8")
    resolved = resolve(whole)
    assert isinstance(resolved, Resolved)
    assert (resolved.quantity.of, resolved.quantity.measured) == ("tpot", pytest.approx(0.0075))


def test_csv_summaries() -> None:
    throughput, ttft, tpot = rows_of(GENAI_PERF_CSV)
    assert (throughput.value, ttft.value, tpot.value) == (1020, 1120, 7.5)
    assert (ttft.input_tokens, ttft.output_tokens, ttft.device) == (550, 256, None)
    assert {row.device for row in rows_of(AIPERF_CSV)} == {"NVIDIA H200"}
    said = replace(throughput, engine="vLLM", device="h200-sxm", weight_dtype="fp8", model="llama-3.1-8b")
    assert str(resolve(said)) == "the row does not state how many requests run side by side"


def test_times_in_other_units_and_requests_at_a_rate() -> None:
    (_, ttft, _) = rows_of(json.dumps(GENAI_PERF | {"time_to_first_token": {"avg": 0.12, "unit": "sec"}}))
    assert ttft.value == pytest.approx(120.0)
    (_, odd, _) = rows_of(json.dumps(GENAI_PERF | {"time_to_first_token": {"avg": 0.12, "unit": "fortnights"}}))
    said = replace(odd, device="h200-sxm", weight_dtype="fp8")
    assert str(resolve(said)) == "a unit that is no speed: fortnights"
    asked: dict[str, Any] = {"models": ["meta-llama/Llama-3.1-8B-Instruct"], "backend": "vllm"}
    for config in ({"request_rate": 4.0}, {"phases": [{"name": "profiling", "type": "poisson", "rate": 4.0}]}):
        for row in rows_of(json.dumps(GENAI_PERF | {"input_config": asked | config}))[:2]:
            assert "arriving requests" in str(resolve(replace(row, device="h200-sxm", weight_dtype="fp8")))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TRTLLM_TEXT.partition("Request Throughput")[0], "breaks off before its throughput"),
        ("Metric,avg,p99\nRequest Latency (ms),1.0,2.0\n", "none of throughput"),
        (json.dumps({"experiments": [], "version": "0.0.1", "service_kind": "openai"}), "record of every request"),
        (json.dumps({"metadata": {}, "metrics": {}, "error": None}), "record of every request"),
        (json.dumps({"engine": [], "request_info": {}, "performance": {}}), "no results that are known"),
        (json.dumps({"time_to_first_token": 3}), "no results that are known"),
        ('Metric,avg\n"Time To First Token (ms),1\n', "no valid CSV"),
    ],
)
def test_what_breaks_off_or_is_another_file(text: str, says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        rows_of(text)


@pytest.mark.parametrize("value", ["fast", None, [1], {"a": 1}, -3, "nan", 10**400, True, ""])
def test_values_that_are_no_numbers(value: Any) -> None:
    records = (
        GENAI_PERF | {"inter_token_latency": {"avg": value, "unit": "ms"}},
        GENAI_PERF | {"output_token_throughput": {"avg": value}, "input_config": value, "telemetry_data": value},
        TRTLLM | {"performance": {"system_output_throughput_tok_s": value}, "world_info": value, "machine": value},
        TRTLLM | {"streaming_metrics": {"avg_tpot_ms": value}, "request_info": {"avg_input_length": value}},
    )
    for record in records:
        for row in rows_of(json.dumps(record)):
            assert isinstance(resolve(row), Skip) or row.problem is None


def test_validate_takes_what_a_client_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile_export_aiperf.csv"
    path.write_text(AIPERF_CSV)
    stated: dict[str, Any] = {"model": "llama-3.1-8b", "weights": "fp8", "engine": "vllm"}
    result = rl.validate(path, tensor_parallel=2, concurrency=8, **stated)
    assert [row.status for row in result.rows] == ["predicted"] * 3
    assert {row.device for row in result.rows} == {"2x nvidia-h200-sxm-141gb"}
    options = ["--model", "llama-3.1-8b", "--weights", "fp8", "--engine", "vllm", "--tp", "2", "--concurrency", "8"]
    assert run(["validate", str(path), *options]) == 0
    assert "3" in capsys.readouterr().out
    with pytest.raises(rl.InvalidRequest, match="tensor_parallel"):
        rl.validate(path, tensor_parallel=0, **stated)
