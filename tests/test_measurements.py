"""Readers of benchmark output, and what of an estimate each measured row is compared with."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.engine.placement import Offload
from rooflinellm.errors import InvalidSpec, RooflineError, UnreadableFile
from rooflinellm.measurements import Quantity, Resolved, Row, Skip, read, resolve
from rooflinellm.measurements.cpu import rented_cpu
from rooflinellm.measurements.evaluate import Evaluator
from rooflinellm.measurements.names import Names, bench_type, default_names, quant_in, split_model
from rooflinellm.measurements.readers import parse
from rooflinellm.measurements.row import from_cells
from rooflinellm.units import GIB

# --- readers: the shapes are those of the tools' own documentation

# llama.cpp, tools/llama-bench/README.md, "Different prefilled context", with the log lines that stand around a table
BENCH_MARKDOWN = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4080, compute capability 8.9, VMM: yes
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |           pp512 |      7340.20 ± 23.45 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |           tg128 |        120.60 ± 0.59 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |    tg128 @ d512 |        116.71 ± 0.60 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |     pp512+tg128 |        501.20 ± 2.00 |

build: 8cf427ff (5163)
"""

# the same page, "JSON"; fields that no row uses are left out
BENCH_RECORD: dict[str, Any] = {
    "build_commit": "8cf427ff",
    "build_number": 5163,
    "cpu_info": "AMD Ryzen 7 7800X3D 8-Core Processor",
    "gpu_info": "NVIDIA GeForce RTX 4080",
    "backends": "CUDA",
    "model_filename": "models/Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    "model_type": "qwen2 7B Q4_K - Medium",
    "model_size": 4677120000,
    "model_n_params": 7615616512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_threads": 8,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": -1,
    "n_cpu_moe": 0,
    "split_mode": "layer",
    "no_kv_offload": False,
    "flash_attn": -1,
    "tensor_buft_overrides": "none",
    "n_prompt": 0,
    "n_gen": 128,
    "n_depth": 0,
    "test_time": "2025-04-24T11:58:51Z",
    "avg_ns": 1076767880,
    "avg_ts": 118.881588,
    "stddev_ts": 1.041811,
    "samples_ts": [119.03, 120.178],
}
BENCH_CSV = """\
build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,model_n_params,n_batch,n_ubatch,\
type_k,type_v,n_gpu_layers,n_prompt,n_gen,n_depth,test_time,avg_ts,stddev_ts
"8cf427ff","5163","AMD Ryzen 7 7800X3D 8-Core Processor","NVIDIA GeForce RTX 4080","CUDA",\
"models/Qwen2.5-7B-Instruct-Q4_K_M.gguf","qwen2 7B Q4_K - Medium","4677120000","7615616512","2048","512","f16","f16",\
"-1","512","0","0","2025-04-24T11:57:09Z","7285.676949","100.064434"
"""

# llama.cpp, tools/batched-bench/README.md
BATCHED_MARKDOWN = """\
main: n_kv_max = 2048, n_batch = 2048, n_ubatch = 512, flash_attn = 0, is_pp_shared = 0, n_gpu_layers = 99,
n_threads = 8

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |    128 |    1 |    256 |    0.108 |  1186.64 |    3.079 |    41.57 |    3.187 |    80.32 |
|   128 |    128 |    4 |   1024 |    0.198 |  2590.47 |    3.445 |   148.60 |    3.643 |   281.10 |
"""
BATCHED_JSONL = (
    '{"n_kv_max": 2048, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 0, "is_pp_shared": 1, "n_gpu_layers": 99, '
    '"n_threads": 8, "n_threads_batch": 8, "pp": 128, "tg": 64, "pl": 2, "n_kv": 256, "t_pp": 0.233810, '
    '"speed_pp": 547.453064, "t_tg": 3.503684, "speed_tg": 36.532974, "t": 3.737494, "speed": 68.495094}\n'
)
# ik_llama.cpp, llama-sweep-bench: the prompt of a line lies behind N_KV tokens, its answer behind the prompt
SWEEP_MARKDOWN = """\
main: n_kv_max = 8192, n_batch = 2048, n_ubatch = 512, flash_attn = 1, n_gpu_layers = 99, n_threads = 1

|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|   512 |    128 |   1024 |    0.480 |  1066.67 |    1.000 |   128.00 |
"""
# vLLM, vllm/benchmarks/serve.py: `vllm bench serve --save-result --metadata device=h100-sxm weights=fp8`
VLLM_SERVE = {
    "date": "20260101-120000", "backend": "vllm", "label": None, "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 100, "device": "h100-sxm", "weights": "fp8",
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 16, "duration": 50.0, "completed": 100,
    "total_input_tokens": 102400, "total_output_tokens": 12800, "request_throughput": 2.0, "output_throughput": 1500.0,
    "total_token_throughput": 2304.0, "mean_ttft_ms": 80.0, "median_ttft_ms": 70.0, "mean_tpot_ms": 9.0,
    "median_tpot_ms": 8.9, "mean_itl_ms": 9.0,
}  # fmt: skip
VLLM_LATENCY = {"avg_latency": 1.5, "latencies": [1.5, 1.5], "percentiles": {"50": 1.5, "99": 1.5}}
VLLM_THROUGHPUT = {
    "elapsed_time": 10.0, "num_requests": 100, "total_num_tokens": 64000, "requests_per_second": 10.0,
    "tokens_per_second": 6400.0,
}  # fmt: skip
# SGLang, python/sglang/bench_serving.py: an object a run is appended
SGLANG = {
    "backend": "sglang", "dataset_name": "random", "request_rate": "inf", "max_concurrency": 4,
    "random_input_len": 1024,
    "random_output_len": 128, "random_range_ratio": 1.0, "duration": 20.0, "completed": 40, "total_input_tokens": 40960,
    "total_output_tokens": 5120, "total_output_tokens_retokenized": 5119, "request_throughput": 2.0,
    "input_throughput": 2048.0, "output_throughput": 256.0, "mean_ttft_ms": 60.0, "mean_tpot_ms": 12.0,
    "server_info": {"model_path": "Qwen/Qwen3-8B", "tp_size": 1, "version": "0.5.9"},
}  # fmt: skip


def rows_of(text: str) -> list[Row]:
    return list(parse(text, "sample"))


def test_llama_bench_markdown() -> None:
    rows = rows_of(BENCH_MARKDOWN)
    assert [(row.test_kind, row.prompt_tokens, row.gen_tokens, row.depth_tokens) for row in rows] == [
        ("prefill", 512, 0, 0),
        ("decode", 0, 128, 0),
        ("decode", 0, 128, 512),
        ("mixed", 512, 128, 0),
    ]
    first = rows[0]
    assert (first.device, first.device_count, first.backend) == ("NVIDIA GeForce RTX 4080", 1, "CUDA")
    assert (first.tokens_per_s, first.tokens_per_s_sd) == (7340.20, 23.45)
    assert (first.file_size_gib, first.params_b, first.engine_build) == (4.36, 7.62, "8cf427ff (5163)")
    assert (first.line, first.kv_type) == (5, "f16/f16")


def test_llama_bench_markdown_counts_devices_and_reads_older_names() -> None:
    text = BENCH_MARKDOWN.replace("           pp512 |", "          pp 512 |").replace(
        "VMM: yes\n", "VMM: yes\n  Device 1: NVIDIA GeForce RTX 4080, compute capability 8.9, VMM: yes\n"
    )
    first = rows_of(text)[0]
    assert (first.device, first.device_count) == ("NVIDIA GeForce RTX 4080", 2)
    assert (first.test_kind, first.prompt_tokens) == ("prefill", 512)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_llama_bench_other_forms(form: str) -> None:
    text = {"json": json.dumps([BENCH_RECORD]), "jsonl": json.dumps(BENCH_RECORD) + "\n", "csv": BENCH_CSV}[form]
    (row,) = rows_of(text)
    assert row.model == "Qwen2.5-7B-Instruct-Q4_K_M.gguf (qwen2 7B Q4_K - Medium)"
    assert (row.device, row.device_count, row.ngl) == ("NVIDIA GeForce RTX 4080", 1, "-1")
    assert row.file_size_gib is not None and round(row.file_size_gib * GIB) == 4677120000
    assert row.tokens_per_s == (7285.676949 if form == "csv" else 118.881588)
    assert (row.n_ubatch, row.engine_build) == (512, "8cf427ff (5163)")
    resolved = resolve(row)
    assert isinstance(resolved, Resolved)
    assert (resolved.model.id, resolved.fmt.id, resolved.system.name) == (
        "qwen2.5-7b", "gguf:q4_k_m", "nvidia-geforce-rtx-4080",
    )  # fmt: skip


def test_llama_bench_on_several_devices_and_on_the_cpu() -> None:
    two = BENCH_RECORD | {"gpu_info": "NVIDIA GeForce RTX 4080, NVIDIA GeForce RTX 4080"}
    (row,) = rows_of(json.dumps([two]))
    assert (row.device, row.device_count) == ("NVIDIA GeForce RTX 4080", 2)
    (row,) = rows_of(json.dumps([BENCH_RECORD | {"backends": "CPU", "gpu_info": ""}]))
    assert (row.device, row.ngl, row.backend) == ("AMD Ryzen 7 7800X3D 8-Core Processor", "0", "CPU")


def test_llama_batched_bench() -> None:
    rows = rows_of(BATCHED_MARKDOWN)
    assert [(row.test_kind, row.batch_size, row.tokens_per_s, row.depth_tokens) for row in rows] == [
        ("prefill", 1, 1186.64, 0),
        ("decode", 1, 41.57, 128),
        ("batched_prefill", 4, 2590.47, 0),
        ("batched_decode", 4, 148.60, 128),
    ]
    assert {row.n_ubatch for row in rows} == {512}
    assert len({row.id for row in rows}) == 4
    prefill, decode = rows_of(BATCHED_JSONL)
    assert (prefill.test_kind, prefill.tokens_per_s, decode.tokens_per_s) == ("batched_prefill", 547.453064, 36.532974)
    assert decode.extra == {"shared_prompt": 1}


def test_llama_sweep_bench() -> None:
    prefill, decode = rows_of(SWEEP_MARKDOWN)
    assert (prefill.depth_tokens, prefill.prompt_tokens, prefill.tokens_per_s) == (1024, 512, 1066.67)
    assert (decode.depth_tokens, decode.gen_tokens, decode.tokens_per_s) == (1536, 128, 128.0)


def test_vllm_serve() -> None:
    throughput, ttft, tpot = rows_of(json.dumps(VLLM_SERVE))
    assert (throughput.value, throughput.unit, throughput.test_kind) == (
        1500.0, "output tokens/s total", "throughput_server",
    )  # fmt: skip
    assert (ttft.value, tpot.value) == (80.0, 9.0)
    assert (ttft.input_tokens, ttft.output_tokens, ttft.batch_size_or_concurrency) == (1024, 128, 16)
    assert (ttft.engine, ttft.device, ttft.weight_dtype) == ("vLLM", "h100-sxm", "fp8")
    resolved = resolve(tpot)
    assert isinstance(resolved, Resolved)
    assert resolved.quantity == Quantity("tpot", "s", pytest.approx(0.009))
    assert str(resolve(replace(tpot, device=None))) == "the row names no device"


def test_vllm_latency_and_throughput() -> None:
    (latency,) = rows_of(json.dumps(VLLM_LATENCY))
    assert (latency.test_kind, latency.value, latency.unit) == ("request_latency", 1.5, "s")
    (throughput,) = rows_of(json.dumps(VLLM_THROUGHPUT))
    assert (throughput.value, throughput.unit) == (6400.0, "input+output tokens/s total")


def test_a_run_at_a_rate_is_no_fixed_concurrency() -> None:
    _, ttft, _ = rows_of(json.dumps(VLLM_SERVE | {"request_rate": 4.0}))
    assert isinstance(resolve(ttft), Skip)
    _, _, tpot = rows_of(json.dumps(VLLM_SERVE | {"spec_decode_acceptance_length": 2.4}))
    assert str(resolve(tpot)) == "a server's speculation is not modelled yet"


def test_sglang_lines() -> None:
    rows = rows_of("".join(json.dumps(SGLANG | {"max_concurrency": count}) + "\n" for count in (1, 4)))
    assert len(rows) == 6
    assert {row.engine for row in rows} == {"SGLang"}
    assert (rows[0].model, rows[0].tp, rows[0].input_tokens) == ("Qwen/Qwen3-8B", 1, 1024)
    assert [row.line for row in rows] == [1, 1, 1, 2, 2, 2]


def test_gzip_is_told_from_the_content(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"  # whatever the name says
    path.write_bytes(gzip.compress(BENCH_MARKDOWN.encode()))
    assert len(list(read(path))) == 4
    assert len(list(read(str(path)))) == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("some words\nmore words\n", "no results that are known"),
        ("a,b,c\n1,2,3\n", "no results that are known"),
        ("{}", "no results that are known"),
        ("[]", "without results"),
        ("[1, 2]", "expected an object"),
        ('[\n  {"avg_ts": 1,\n', "breaks off"),
        ('{"avg_ts": 1, "n_prompt"\n', "no valid JSON"),
        (BENCH_MARKDOWN.replace("|  99 |           pp512", "|           pp512"), "cells in a table"),
        ("\n".join(BENCH_MARKDOWN.splitlines()[:4]), "without results"),
        ('id,test_kind,tokens_per_s\n1,decode,"2\n', "no valid CSV"),
        ("id,id,test_kind,tokens_per_s\n", "stands twice"),
    ],
)
def test_what_is_no_output_of_a_tool(text: str, says: str) -> None:
    with pytest.raises(InvalidSpec, match=says) as caught:
        rows_of(text)
    assert str(caught.value).startswith("sample")
    assert caught.value.exit_code == 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, content in (
        (tmp_path / "text.csv", b"\xff\xfe\x00"),
        (tmp_path / "broken.gz", gzip.compress(b"x" * 100)[:-9]),
        (tmp_path / "nothing.csv", None),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UnreadableFile, match=path.name):
            list(read(path))
    with pytest.raises(UnreadableFile):
        list(read(tmp_path))


def test_a_bad_row_is_skipped_and_the_others_are_not() -> None:
    lines = [
        "id,test_kind,tokens_per_s,device_count",
        "1,decode,fast,1",
        "2,decode,-1,1",
        "3,decode,nan,1",
        "4,decode,5",
    ]
    text = "\n".join([*lines, "5,decode,5,1", ""])
    rows = rows_of(text)
    assert [row.id for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row.line for row in rows] == [2, 3, 4, 5, 6]
    assert [row.problem is None for row in rows] == [False, False, False, False, True]
    for row in rows:
        assert isinstance(resolve(row), Skip)
    assert str(resolve(rows[0])) == "the row cannot be read: tokens_per_s 'fast' is no number of at least 0"
    (row,) = rows_of('id,test_kind,value,unit,extra\n1,tpot,5,ms,"{not json"\n')
    assert str(resolve(row)) == "the row cannot be read: extra is no JSON"


# --- names


@pytest.mark.parametrize(
    ("text", "quant"),
    [
        ("llama 8B Q4_K - Medium", "Q4_K - Medium"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL (qwen3moe 30B.A3B Q4_K - Medium)", "Q4_K - Medium"),
        ("llama4 17Bx16E (Scout) Q4_K - Medium", "Q4_K - Medium"),
        ("Meta-Llama-3-8B-Instruct.Q8_0.gguf", "Q8_0"),
        ("DeepSeek-V4-Flash-UD-IQ2_XXS-00001-of-00003.gguf", "IQ2_XXS"),
        ("Qwen3-14B-4bit", "4bit"),
        ("Qwen2.5-Coder-32B-Instruct-AWQ", "AWQ"),
        ("some-model", None),
    ],
)
def test_the_quantisation_in_a_name(text: str, quant: str | None) -> None:
    assert quant_in(text) == quant


def test_types_of_llama_bench() -> None:
    assert bench_type("qwen3moe 30B.A3B Q8_0") == ("qwen3moe 30B.A3B", "Q8_0")
    assert bench_type("llama 7B mostly Q4_0") == ("llama 7B", "Q4_0")
    assert bench_type("hunyuan-moe A13B Q6_K") == ("hunyuan-moe A13B", "Q6_K")
    assert split_model("a.gguf (llama 8B Q8_0)") == ("a.gguf", "llama 8B Q8_0")
    assert split_model("a (unsloth GGUF)") == ("a (unsloth GGUF)", None)


@pytest.mark.parametrize(
    ("text", "params_b", "model"),
    [
        ("llama 8B Q4_K - Medium", 8.03, "llama-3.1-8b"),
        ("llama 7B Q4_0", 6.74, "llama-2-7b"),
        ("llama 7B Q4_0", 7.24, "mistral-7b-v0.1"),  # one type, another model
        ("Qwen3-Coder-30B-A3B-Instruct-BF16-00001-of-00002 (qwen3moe 30B.A3B BF16)", 30.53, "qwen3-coder-30b-a3b"),
        ("unsloth/gemma-3-4b-it-qat-GGUF", None, "gemma-3-4b"),
        ("shisa-v2-llama3.1-8b.i1-Q4_K_M (llama 8B Q4_K - Medium)", 8.03, "llama-3.1-8b"),
        ("Llama2 7B EXL2 3.0 bpw", 7.0, "llama-2-7b"),
        ("qwen3:8b", None, "qwen3-8b"),
    ],
)
def test_models_by_what_results_call_them(text: str, params_b: float | None, model: str) -> None:
    assert default_names().model((text,), params_b).id == model


@pytest.mark.parametrize(
    "text", ["llama 1B Q4_0", "a model nobody knows", "/some/file.gguf", "Qwen3-14B/../..", "x" * 5000]
)
def test_models_that_are_not_told(text: str) -> None:
    with pytest.raises(RooflineError):
        default_names().model((text,))


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("NVIDIA GeForce RTX 4080", "nvidia-geforce-rtx-4080"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-sxm5-80gb"),
        ("Tesla T4", "nvidia-t4"),
        ("AMD Radeon 8060S Graphics (RADV GFX1151)", "amd-ryzen-ai-max-plus-395-8060s"),
        ("a100_sxm", "nvidia-a100-sxm4-80gb"),
    ],
)
def test_devices_by_what_results_call_them(text: str, device: str) -> None:
    assert default_names().device(text).id == device


def test_the_table_of_names() -> None:
    names = Names()
    for catalogue in (names._devices, names._models, names._engines, names._formats):
        for alias, entry in catalogue.aliases.items():
            found = catalogue.find(alias)
            assert len(found) <= 1, f"{alias} ({entry}) fits {found}"
    for bench in names.bench_types:
        assert bench_type(f"{bench.type} Q8_0") == (bench.type, "Q8_0")


# --- resolve: rows as their sources print them

BENCHES = "ggml-org/llama.cpp benches/dgx-spark/dgx-spark.md"
XIONGJIE = "XiongjieDai/GPU-Benchmarks-on-LLM-Inference, LLaMA 3/Gaming GPUs/3090_6_v3.ipynb@aa72e0ec86"
SPARE = "SpareCores/sc-inspector-data@804d3c71dd"
TRT = "NVIDIA/TensorRT-LLM docs/source/performance/perf-overview.md, v0.9.0"
SILICON = "ai-dynamo/aiconfigurator systems/silicon_sample.csv@095f58a51c4c"
INFERENCEX = "SemiAnalysisAI/InferenceX experimental/single_node_decodeonly/README.md@843c6254ff69"
LLAMA = {"engine": "llama.cpp", "batch_size": 1, "device_count": 1, "depth_tokens": 0}
SPARK = LLAMA | {
    "device": "NVIDIA DGX Spark (GB10)", "backend": "CUDA", "model": "gpt-oss 120B MXFP4 MoE",
    "hf_model_id": "ggml-org/gpt-oss-120b-GGUF", "params_b": 116.83, "file_size_gib": 59.02, "quant": "MXFP4",
    "ngl": 99,
    "n_ubatch": 2048, "source": BENCHES, "source_date": "2026-02-05",
}  # fmt: skip
RTX3090 = LLAMA | {
    "device": "NVIDIA GeForce RTX 3090", "backend": "CUDA", "model": "llama 8B Q4_K - Medium", "params_b": 8.03,
    "file_size_gib": 4.58, "quant": "Q4_K_M", "ngl": 99, "source": XIONGJIE, "source_date": "2024-05-12",
}  # fmt: skip
# kvcache-ai/ktransformers, doc/en/DeepseekR1_V3_tutorial.md
KTRANSFORMERS = {
    "device": "RTX 4090D 24GB", "device_count": 1, "tp": 1, "engine": "ktransformers", "model": "DeepSeek-V3 Q4_K_M",
    "hf_model_id": "deepseek-ai/DeepSeek-V3", "weight_dtype": "Q4_K_M", "batch_size_or_concurrency": 1,
    "input_tokens": 969, "output_tokens": 300, "test_kind": "offload_decode", "value": 15.4, "unit": "tokens/s decode",
}  # fmt: skip
EPYC = LLAMA | {
    "device": "AMD EPYC 9R14", "device_count": 2, "backend": "CPU", "ngl": 0, "threads": 192, "n_batch": 2048,
    "n_ubatch": 512, "model": "llama-7b.Q4_K_M.gguf (llama 7B Q4_K - Medium)", "hf_model_id": "huggyllama/llama-7b",
    "params_b": 6.7384, "file_size_gib": 3.8, "quant": "Q4_K_M", "kv_type": "f16/f16", "vcpus": 192,
    "measured_bandwidth_gb_s": 711.9, "isa": "avx2 avx512f avx512_vnni avx512_bf16", "population": "cpu",
    "source": SPARE,
    "note": "cloud instance aws/c7a.48xlarge; 192 vCPU (threads/core 1), 2 socket(s), 2 NUMA node(s)",
}  # fmt: skip
H200 = {
    "device": "H200", "device_key": "h200_sxm", "device_count": 1, "tp": 1, "engine": "TensorRT-LLM",
    "engine_version": "v0.9.0", "source": TRT,
}  # fmt: skip
B200 = {
    "device": "b200_sxm", "device_count": 1, "tp": 1, "pp": 1, "ep": 1, "dp": 1, "engine": "vllm",
    "engine_version": "0.19.0", "model": "MiniMax-M2.5", "hf_model_id": "MiniMaxAI/MiniMax-M2.5",
    "weight_dtype": "nvfp4", "batch_size_or_concurrency": 32, "input_tokens": 8192, "output_tokens": 1024,
    "source": SILICON,
}  # fmt: skip
FILLED = {
    "device": "H200", "device_count": 1, "tp": 1, "engine": "vLLM", "model": "Qwen3-30B-A3B-FP8",
    "hf_model_id": "Qwen/Qwen3-30B-A3B-FP8", "weight_dtype": "FP8", "batch_size_or_concurrency": 10,
    "input_tokens": 32768, "output_tokens": 100, "source": INFERENCEX,
    "extra": {"mode": "DecodeBenchConnector (KV filled, no prefill)"},
}  # fmt: skip


def local(base: dict[str, Any], **cells: Any) -> Row:
    return from_cells(base | cells, kind="local", file="rows.csv", line=2)


def server(base: dict[str, Any], **cells: Any) -> Row:
    named = {key: value for key, value in (base | cells).items() if key != "extra"}
    return from_cells(named, kind="server", file="rows.csv", line=2, extra=(base | cells).get("extra"))


PREDICTED: dict[str, tuple[Row, str, dict[str, Any], Quantity, int | None]] = {
    "prefill of a prompt, the file's size is what is resident": (
        local(SPARK, test_kind="prefill", prompt_tokens=2048, gen_tokens=0, tokens_per_s=2443.91),
        "nvidia-dgx-spark-gb10",
        {"prompt_tokens": 2048, "output_tokens": 0, "context_tokens": 0, "prefill_chunk": 2048,
        "weights": "gguf:mxfp4"},
        Quantity("prefill", "tokens/s", 2443.91),
        round(59.02 * GIB),
    ),
    "tg32 @ d4096 is 32 steps behind 4096 tokens": (
        local(SPARK, test_kind="decode", prompt_tokens=0, gen_tokens=32, depth_tokens=4096, tokens_per_s=55.67),
        "nvidia-dgx-spark-gb10",
        {"prompt_tokens": 0, "output_tokens": 32, "context_tokens": 4096, "engine": "llama.cpp:cuda@2026-02"},
        Quantity("decode", "tokens/s", 55.67),
        round(59.02 * GIB),
    ),
    "batched rates are of all sequences": (
        local(
            SPARK, engine="llama.cpp (llama-batched-bench)", test_kind="batched_decode", batch_size=4, n_batch=2048,
            prompt_tokens=512, gen_tokens=32, depth_tokens=512, tokens_per_s=98.51,
        ),
        "nvidia-dgx-spark-gb10",
        {"batch": 4, "prompt_tokens": 0, "context_tokens": 512, "output_tokens": 32},
        Quantity("decode", "tokens/s", 98.51),
        round(59.02 * GIB),
    ),
    "tokens of one pass are those of all sequences": (
        local(
            SPARK, test_kind="batched_prefill", batch_size=8, n_batch=2048, prompt_tokens=512, gen_tokens=0,
            tokens_per_s=2500,
        ),
        "nvidia-dgx-spark-gb10",
        {"batch": 8, "prompt_tokens": 512, "prefill_chunk": 2048},
        Quantity("prefill", "tokens/s", 2500),
        round(59.02 * GIB),
    ),
    "tg512 starts at an empty cache": (
        local(RTX3090, test_kind="decode", prompt_tokens=0, gen_tokens=512, tokens_per_s=109.0),
        "nvidia-geforce-rtx-3090",
        {"prompt_tokens": 0, "output_tokens": 512, "context_tokens": 0, "engine": "llama.cpp:cuda@2024-05"},
        Quantity("decode", "tokens/s", 109.0),
        round(4.58 * GIB),
    ),
    "several devices are a layer split": (
        local(RTX3090, device_count=6, test_kind="decode", prompt_tokens=0, gen_tokens=512, tokens_per_s=104.17),
        "6x nvidia-geforce-rtx-3090",
        {"output_tokens": 512},
        Quantity("decode", "tokens/s", 104.17),
        round(4.58 * GIB),
    ),
    "pg512+128 counts both over the time of both": (
        local(RTX3090, test_kind="mixed", prompt_tokens=512, gen_tokens=128, tokens_per_s=388.15),
        "nvidia-geforce-rtx-3090",
        {"prompt_tokens": 512, "output_tokens": 129},
        Quantity("run", "tokens/s", 388.15, tokens=640),
        round(4.58 * GIB),
    ),
    "a wall rate includes prefill": (
        local(
            RTX3090, model="gemma-3-12b-it-Q8_0.gguf", hf_model_id="google/gemma-3-12b-it", params_b=None,
            file_size_gib=None, quant="gguf-q8_0", test_kind="batched_decode", batch_size=16, gen_tokens=256,
            depth_tokens=512, tokens_per_s=116.6, note="metric aggregate_output; wall rate (includes prefill)",
            source="LottoLottoLotto/4x3090-llm-benchmarks data/benchmarks.jsonl@bd222811db, model and kind of row",
        ),
        "nvidia-geforce-rtx-3090",
        {"prompt_tokens": 512, "output_tokens": 256, "batch": 16, "weights": "gguf:q8_0"},
        Quantity("run", "tokens/s", 116.6),
        None,
    ),
    "a file called F16 whose experts are MXFP4": (
        local(
            SPARK, device="AMD Radeon AI PRO R9700 32GB", backend="ROCm", model="gpt-oss-20b-F16 (gpt-oss 20B F16)",
            hf_model_id="openai/gpt-oss-20b", params_b=20.91, file_size_gib=12.83, quant="F16", test_kind="decode",
            gen_tokens=128, tokens_per_s=100, source="kyuz0/amd-r9700-ai-toolboxes, model and kind of row",
        ),
        "amd-radeon-ai-pro-r9700",
        {"weights": "gguf:mxfp4", "engine": "llama.cpp:rocm@2026-02"},
        Quantity("decode", "tokens/s", 100),
        round(12.83 * GIB),
    ),
    "a client counts N tokens over N - 1 steps": (
        local(
            LLAMA, device="RTX 3090", backend="CUDA", engine="llama-server", model="Qwen3-32B llama.cpp Q4_K_M",
            quant="Q4_K_M", kv_type="default", test_kind="decode", prompt_tokens=0, gen_tokens=101, depth_tokens=23,
            tokens_per_s=17.467, note="HTTP server timing",
            source="AlexHiesch/apple-silicon-llm-bench results/bench_20260425_022611.csv@c230ae411c, on another device",
        ),
        "nvidia-geforce-rtx-3090",
        {"output_tokens": 101, "context_tokens": 23},
        Quantity("decode", "tokens/s", 17.467, scale=1.01),
        None,
    ),
    "a cache of q8_0": (
        local(
            RTX3090, model="Gemma3-12B Q4_0", hf_model_id="google/gemma-3-12b-it", params_b=None, file_size_gib=None,
            quant="Q4_0", kv_type="q8_0/q8_0", test_kind="decode", gen_tokens=128, depth_tokens=512, tokens_per_s=60,
            source="https://github.com/ikawrakow/ik_llama.cpp/pull/351, on another device",
        ),
        "nvidia-geforce-rtx-3090",
        {"kv": "q8_0", "weights": "gguf:q4_0"},
        Quantity("decode", "tokens/s", 60),
        None,
    ),
    "a sweep over tokens of one pass": (
        local(
            RTX3090, model="llama 8B Q4_0", params_b=None, file_size_gib=None, quant="Q4_0", n_ubatch=16,
            test_kind="prefill", prompt_tokens=512, gen_tokens=0, depth_tokens=32768, tokens_per_s=844.62,
            source="https://github.com/ggml-org/llama.cpp/pull/17505",
        ),
        "nvidia-geforce-rtx-3090",
        {"prompt_tokens": 512, "context_tokens": 32768, "prefill_chunk": 16},
        Quantity("prefill", "tokens/s", 844.62),
        None,
    ),
    "a rented CPU of two sockets is one machine": (
        local(EPYC, test_kind="decode", prompt_tokens=0, gen_tokens=128, tokens_per_s=32.8824),
        "AMD EPYC 9R14, 192 vCPU",
        {"output_tokens": 128, "engine": "llama.cpp:cpu", "kv": "f16"},
        Quantity("decode", "tokens/s", 32.8824),
        round(3.8 * GIB),
    ),
    "a static batch, a rate a device": (
        server(
            H200, model="LLaMA 7B", hf_model_id="meta-llama/Llama-2-7b-hf", weight_dtype="FP8",
            test_kind="throughput_offline", batch_size_or_concurrency=896, input_tokens=128, output_tokens=128,
            value=20618, unit="output tokens/s/GPU", note="static batch, whole-run throughput incl. prefill",
        ),
        "nvidia-h200-sxm-141gb",
        {"prompt_tokens": 128, "output_tokens": 128, "batch": 896, "weights": "hf:fp8"},
        Quantity("run", "tokens/s", 20618, tokens=128),
        None,
    ),
    "in-flight batching at the largest load": (
        server(
            H200, model="GPTJ 6B", hf_model_id="EleutherAI/gpt-j-6b", weight_dtype="FP8", engine_version="v0.11.0",
            test_kind="throughput_offline", input_tokens=128, output_tokens=128, value=25116.54,
            unit='tokens/s total (over TP GPUs); doc says "token throughput", matches output tokens/s',
        ),
        "nvidia-h200-sxm-141gb",
        {"prompt_tokens": 128, "output_tokens": 128},
        Quantity("serving", "tokens/s", 25116.54, tokens=128),
        None,
    ),
    "samples of so many tokens": (
        server(
            H200, model="gptj-99", hf_model_id="EleutherAI/gpt-j-6b", weight_dtype="fp8",
            test_kind="throughput_offline",
            input_tokens=1000, output_tokens=69, value=40, unit="samples/s total system",
        ),
        "nvidia-h200-sxm-141gb",
        {"prompt_tokens": 1000, "output_tokens": 69},
        Quantity("serving", "tokens/s", 2760, tokens=69),
        None,
    ),
    "prompt and answer counted together": (
        server(
            H200, model="GPT-J 6B", hf_model_id="EleutherAI/gpt-j-6b", weight_dtype="FP8",
            test_kind="throughput_server",
            batch_size_or_concurrency=8, input_tokens=467, output_tokens=256, value=1406,
            unit="input+output tokens/s total",
        ),
        "nvidia-h200-sxm-141gb",
        {"batch": 8},
        Quantity("serving", "tokens/s", 1406, tokens=723),
        None,
    ),
    "first token of a batch as given": (
        server(
            H200, model="GPT-J 6B", hf_model_id="EleutherAI/gpt-j-6b", weight_dtype="FP8", test_kind="ttft",
            batch_size_or_concurrency=64, input_tokens=128, value=102, unit="ms",
            note="1st token latency, batch as given",
        ),
        "nvidia-h200-sxm-141gb",
        {"prompt_tokens": 128, "batch": 64},
        Quantity("ttft", "s", pytest.approx(0.102)),
        None,
    ),
    "time per output token beside other requests": (
        server(B200, test_kind="tpot", value=21.9394, unit="ms (aggregate per request; mean-vs-median not stated)"),
        "nvidia-b200-sxm-180gb",
        {"prompt_tokens": 8192, "output_tokens": 1024, "batch": 32, "weights": "hf:nvfp4", "kv": "fp8"},
        Quantity("tpot", "s", pytest.approx(0.0219394)),
        None,
    ),
    "a cache that was filled without a prefill": (
        server(FILLED, test_kind="throughput_server", value=513.73, unit="output tokens/s total"),
        "nvidia-h200-sxm-141gb",
        {"prompt_tokens": 0, "context_tokens": 32768, "output_tokens": 100, "batch": 10},
        Quantity("decode", "tokens/s", 513.73),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("trap", PREDICTED)
def test_rows_that_are_predicted(trap: str) -> None:
    row, system, keywords, quantity, size = PREDICTED[trap]
    resolved = resolve(row)
    assert isinstance(resolved, Resolved), resolved
    assert resolved.system.name == system
    assert {key: resolved.keywords.get(key) for key in keywords} == keywords
    assert resolved.quantity == quantity
    assert resolved.resident_weight_bytes == size
    predicted = Evaluator().predict(resolved)
    assert 0 < predicted.low <= predicted.expected <= predicted.high
    if predicted.ideal is not None:
        if quantity.unit == "s":
            assert predicted.ideal <= predicted.low
        else:
            assert predicted.high <= predicted.ideal * (1 + 1e-12)


ELSEWHERE: dict[str, tuple[Row, str, Offload | None, bool]] = {
    # what the system is, what stays on its host, and whether its figures are a bound
    "layers on the CPU, which is not named": (
        local(RTX3090, ngl=26, test_kind="decode", tokens_per_s=16),
        "nvidia-geforce-rtx-3090 + ddr5-5600x2", Offload(gpu_layers=26), False,
    ),
    "the head on the CPU": (
        local(RTX3090, ngl=32, test_kind="decode", tokens_per_s=60),
        "nvidia-geforce-rtx-3090 + ddr5-5600x2", Offload(gpu_layers=32), False,
    ),
    "the head on the device": (
        local(RTX3090, ngl=33, test_kind="decode", tokens_per_s=118.88), "nvidia-geforce-rtx-3090", None, True,
    ),
    "nothing on the device": (
        local(RTX3090, device="NVIDIA GeForce RTX 3090 + AMD Ryzen 7 5800X, DDR4-2133 dual channel",
              device_id="rtx-3090",
              ngl=0, test_kind="decode", tokens_per_s=6),
        "nvidia-geforce-rtx-3090 + amd-ryzen-7-5800x + ddr4-2133x2", Offload(gpu_layers=0), True,
    ),
    "the channels of the processor": (
        local(RTX3090, device="NVIDIA GeForce RTX 3090 + Intel Core i9-13900K", device_id="rtx-3090", ngl=20,
              test_kind="decode", tokens_per_s=30),
        "nvidia-geforce-rtx-3090 + intel-core-i9-13900k + DDR5-5600 of intel-core-i9-13900k", Offload(gpu_layers=20),
        True,
    ),
    "experts on the CPU, which shares the memory": (
        local(SPARK, n_cpu_moe="10 of 36", test_kind="decode", tokens_per_s=10.93),
        "nvidia-dgx-spark-gb10", Offload(cpu_moe_layers=10), True,
    ),
    "a cache on the host": (
        replace(local(RTX3090, test_kind="decode", tokens_per_s=60), extra={"no_kv_offload": True}),
        "nvidia-geforce-rtx-3090 + ddr5-5600x2", Offload(cache_on_host=True), False,
    ),
    "two computers": (
        local(SPARK, device_count=2, note="toolbox rocm-7_2; 2-node RPC cluster", test_kind="prefill",
              prompt_tokens=512, tokens_per_s=58.89),
        "2x nvidia-dgx-spark-gb10", None, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ELSEWHERE)
def test_rows_with_parts_elsewhere(case: str) -> None:
    row, system, offload, bounded = ELSEWHERE[case]
    resolved = resolve(row)
    assert isinstance(resolved, Resolved), resolved
    assert (resolved.system.name, resolved.offload, resolved.bounded) == (system, offload, bounded)
    assert (resolved.system.network is not None) == (case == "two computers")
    predicted = Evaluator().predict(resolved)
    assert (predicted.ideal is not None) == bounded
    assert 0 < predicted.low <= predicted.expected <= predicted.high


def test_experts_on_a_host_of_several_sockets() -> None:
    resolved, whole, single = (
        resolve(server(KTRANSFORMERS, extra={"offload": "experts on CPU", "active_experts": active, "cpu": cpu}))
        for active, cpu in ((6, "2x Xeon Gold 6454S (32c/socket)"), (8, "2x Xeon Gold 6454S"), (8, "Xeon Gold 6454S"))
    )
    assert isinstance(resolved, Resolved) and isinstance(whole, Resolved) and isinstance(single, Resolved)
    assert resolved.offload == Offload(cpu_moe_layers=61)
    assert resolved.quantity == Quantity("decode", "tokens/s", 15.4)
    assert resolved.system.host is not None
    assert resolved.system.host.bandwidth_bytes_per_s == 2 * 8 * 8 * 4.8e9
    assert resolved.system.host_cpu is not None and resolved.system.host_cpu.compute_units == 64
    # Of 58 layers with experts, 2 experts of 3 x 7168 x 2048 parameters less.
    left_out = 58 * 2 * 3 * 7168 * 2048
    assert whole.model.active_params - resolved.model.active_params == left_out
    assert whole.model.total_params == resolved.model.total_params
    rates = [Evaluator().predict(each) for each in (resolved, whole, single)]
    assert rates[0].expected > rates[1].expected > rates[2].expected
    assert resolve(server(KTRANSFORMERS, extra={"offload": "experts on CPU", "active_experts": 6, "cpu": "2x 6454S"}))


def test_old_builds_count_the_cache_as_layers() -> None:
    # ggml-org/llama.cpp, pull request 4309: before it, values and keys were two more layers behind the head.
    # Only with all of them on the device did the cache go there.
    found = [
        resolve(local(RTX3090, ngl=layers, source_date=date, test_kind="decode", tokens_per_s=60))
        for date in ("2023-09-06", "2024-05-01")
        for layers in (20, 33, 35)
    ]
    assert [each.offload for each in found if isinstance(each, Resolved)] == [
        Offload(gpu_layers=20, cache_on_host=True), Offload(cache_on_host=True), None,
        Offload(gpu_layers=20), None, None,
    ]  # fmt: skip


SKIPPED: dict[str, tuple[Row, str]] = {
    "a GPU and a CPU, nobody says how": (
        local(RTX3090, backend="CUDA+CPU", population="offload", test_kind="decode", tokens_per_s=16),
        "the row does not say what stays on the host",
    ),
    "experts of a dense model": (
        local(RTX3090, n_cpu_moe=12, test_kind="decode", tokens_per_s=16),
        "parts of dense layers on the host are not modelled",
    ),
    "no number of layers": (
        local(RTX3090, ngl="some", test_kind="decode", tokens_per_s=16),
        "the row cannot be read: ngl 'some' is no number of layers",
    ),
    "drafts": (
        local(RTX3090, engine="llama-server", test_kind="spec_decode", gen_tokens=192, tokens_per_s=70.03),
        "the row does not say how many tokens were drafted and accepted",
    ),
    "drafts, noted with the cache": (
        local(RTX3090, kv_type="spec-e2b", test_kind="decode", tokens_per_s=70.03),
        "the row does not say how many tokens were drafted and accepted",
    ),
    "a rented CPU without a bandwidth": (
        local(EPYC, measured_bandwidth_gb_s=None, test_kind="decode", tokens_per_s=2.9132),
        "the bandwidth of the rented CPU was not measured",
    ),
    "too large for the device": (
        local(RTX3090, file_size_gib=40.0, params_b=None, model="Llama-3.3-70B-Instruct-Q4_K_M.gguf",
        test_kind="decode",
              tokens_per_s=3),
        "the weights do not fit the devices: part of them must have been elsewhere",
    ),
    "a label that cannot be": (
        local(RTX3090, params_b=30.0, hf_model_id="meta-llama/Llama-3.1-8B", test_kind="decode", tokens_per_s=3),
        "the row's parameter count is another model's: 30 B, llama-3.1-8b",
    ),
    "fewer threads than cores": (
        local(
            EPYC, device="AMD Ryzen 9 7950X", vcpus=None, measured_bandwidth_gb_s=None, threads=4, device_count=1,
            test_kind="decode", tokens_per_s=3,
        ),
        "fewer threads than cores are not modelled yet: 4 of 16",
    ),
    "no prompt": (
        local(RTX3090, test_kind="prefill", tokens_per_s=3), "the row does not state the length of the prompt",
    ),
    "disaggregated": (
        server(B200, test_kind="tpot_disagg", value=5.3168, unit="ms"),
        "disaggregated prefill and decode is not modelled yet",
    ),
    "eight devices, nobody says how": (
        server(B200, device_count=8, tp=None, test_kind="throughput_offline", value=1,
        unit="output tokens/s total system"),
        "the row does not say how the model is spread over several devices",
    ),
    "waiting": (
        server(B200, test_kind="ttft", value=500.3038, unit="ms"),
        "time to first token under load needs a simulation of the load",
    ),
    "arrivals at a rate": (
        server(H200, model="LLaMA 3.1 8B", hf_model_id="meta-llama/Llama-3.1-8B", weight_dtype="BF16", test_kind="ttft",
               input_tokens=467, output_tokens=256, value=23, unit="ms mean", extra={"qps": "2", "req_per_s": 2}),
        "latency under arriving requests needs a simulation of the load",
    ),
    "power": (
        server(B200, test_kind="energy", value=9891.8, unit="W system mean under load"),
        "energy is not a speed",
    ),
    "experts somewhere": (
        server(B200, engine="ktransformers", test_kind="offload_decode", value=16.8, unit="tokens/s decode"),
        "the row does not say what stays on the host",
    ),
    "experts in memory of a host that nobody names": (
        server(B200, engine="ktransformers", test_kind="offload_decode", value=16.8, unit="tokens/s decode",
               extra={"offload": "experts on CPU"}),
        "the row does not name the host",
    ),
    "experts in memory of a host that nobody knows": (
        server(B200, engine="ktransformers", test_kind="offload_decode", value=16.8, unit="tokens/s decode",
               extra={"offload": "experts on CPU", "cpu": "2x Xeon Platinum 6666X (48c/socket)"}),
        "no entry for processor 'Xeon Platinum 6666X (48c/socket)'",
    ),
    "somewhere on a drive": (
        server(KTRANSFORMERS, engine="HF Accelerate", weight_dtype="FP16", extra={"lowest_offload_device": "disk"}),
        "the row does not say how much of the model the device holds: the rest on disk",
    ),
    "a part of the experts": (
        server(KTRANSFORMERS, extra={"gpu_expert_ratio": 0.4, "cpu": "Xeon Gold 6454S"}),
        "a part of the experts of each layer on the host is not modelled yet",
    ),
    "prompts beside a host": (
        server(KTRANSFORMERS, test_kind="prefill_latency", value=105, unit="prompt tokens/s",
               extra={"offload": "experts on CPU", "cpu": "2x Xeon Gold 6454S"}),
        "prefill of a server with parts on its host is not modelled yet",
    ),
    "more experts than there are": (
        server(KTRANSFORMERS, extra={"active_experts": 300, "offload": "experts on CPU", "cpu": "2x Xeon Gold 6454S"}),
        "the row cannot be read: 300 active experts",
    ),
    "no first token of a cache that was filled": (
        server(FILLED, test_kind="ttft", value=341.57, unit="ms"),
        "the cache was filled without a prefill",
    ),
    "an unknown engine": (local(RTX3090, engine="hipfire", test_kind="decode", tokens_per_s=3),
    "no entry for engine 'hipfire'"),
    "an unknown format": (
        local(RTX3090, quant="gguf-custom", model="x", hf_model_id="meta-llama/Llama-3.1-8B", test_kind="decode",
        tokens_per_s=3),
        "no format of llama.cpp is called 'gguf-custom'",
    ),
    "an unknown device": (local(RTX3090, device="Abacus 3000", test_kind="decode", tokens_per_s=3),
    "no entry for device 'Abacus 3000'"),
    "no rate": (local(RTX3090, test_kind="decode"), "the row holds no rate"),
    "half a device": (
        local(RTX3090, device_count=0.5, test_kind="decode", tokens_per_s=3),
        "the row cannot be read: device_count 0.5 is no whole number from 1 to 1024",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SKIPPED)
def test_rows_that_are_skipped(case: str) -> None:
    row, reason = SKIPPED[case]
    resolved = resolve(row)
    assert isinstance(resolved, Skip), resolved
    assert str(resolved) == reason


def test_an_evaluated_row_is_the_estimate() -> None:
    for trap in ("tg512 starts at an empty cache", "several devices are a layer split", "a cache of q8_0"):
        resolved = resolve(replace(PREDICTED[trap][0], file_size_gib=None))
        assert isinstance(resolved, Resolved)
        predicted = Evaluator().predict(resolved)
        estimate = rl.estimate(resolved.model, resolved.system, **resolved.keywords)
        rate = estimate.decode.aggregate_tokens_per_s
        assert (predicted.ideal, predicted.expected, predicted.low, predicted.high) == pytest.approx(
            (rate.ideal, rate.expected, rate.low, rate.high)
        )
    resolved = resolve(replace(PREDICTED["a sweep over tokens of one pass"][0]))
    assert isinstance(resolved, Resolved)
    predicted = Evaluator().predict(resolved)
    estimate = rl.estimate(resolved.model, resolved.system, **resolved.keywords)
    assert predicted.expected == pytest.approx(estimate.prefill.aggregate_tokens_per_s.expected)
    assert predicted.ideal == pytest.approx(estimate.prefill.aggregate_tokens_per_s.ideal)


def test_the_size_of_the_file_counts() -> None:
    row = PREDICTED["tg512 starts at an empty cache"][0]
    small, large = (resolve(replace(row, file_size_gib=size)) for size in (4.58, 9.16))
    assert isinstance(small, Resolved) and isinstance(large, Resolved)
    evaluator = Evaluator()
    ratio = (evaluator.predict(small).ideal or 0) / (evaluator.predict(large).ideal or math.inf)
    assert ratio == pytest.approx(2, rel=0.02)
    assert evaluator.plan(small).resident_weight_bytes == round(4.58 * GIB)


def test_a_rented_cpu() -> None:
    device = rented_cpu("Intel(R) Xeon(R) CPU @ 2.50GHz", 16, 8, 2, "avx2 avx512f avx512_vnni", 50.0)
    assert device.compute_units == 8
    assert device.memory_bandwidth_bytes_per_s == 50e9
    assert device.peaks == pytest.approx({"fp32.fp32": 8 * 2.5e9 * 64, "int8.int32": 8 * 2.5e9 * 256})
    assert {peak.kind for peak in device.peak_list} == {"estimate"}
    resolved = resolve(PREDICTED["a rented CPU of two sockets is one machine"][0])
    assert isinstance(resolved, Resolved)
    assert not resolved.bounded and Evaluator().predict(resolved).ideal is None


def test_a_shared_prompt_has_no_bound_here() -> None:
    row = PREDICTED["batched rates are of all sequences"][0]
    resolved = resolve(replace(row, extra={"shared_prompt": 1}))
    assert isinstance(resolved, Resolved) and not resolved.bounded
