"""Launch commands: read into the arguments of an estimate, and written to check one.

The meaning of flags is that of ggml-org/llama.cpp (tools/server/README.md, tools/llama-bench/README.md),
vllm-project/vllm (docs.vllm.ai, Engine Arguments) and ml-explore/mlx-lm (mlx_lm/generate.py, server.py, benchmark.py).
"""

import csv
import io
import json
import string
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm.cli import main
from rooflinellm.errors import RooflineWarning
from rooflinellm.launch.command import Launch
from rooflinellm.launch.flags import NOTED, PROGRAMS, SILENT
from rooflinellm.launch.repositories import repository
from rooflinellm.launch.show import check_commands, launch_commands

LLAMA = "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"
MIXTURE = "Qwen3-30B-A3B-Q4_K_M.gguf"
LAYERS = {"llama-3.1-8b": 32, "qwen3-30b-a3b": 48, "gpt-oss-120b": 36, "deepseek-r1": 61}  # config.json of each
RIG = "rtx-4090 + 7950x + ddr5-6000x2@96GiB"


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ROOFLINELLM_PATH", "ROOFLINELLM_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def read(command: str, model: Any = None) -> Launch:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        return rl.from_command(command, model)


def server(flags: str, file: str = LLAMA) -> Launch:
    return read(f"llama-server -m {file} {flags}")


def estimate(launch: Launch, hardware: str = "rtx-4090") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        return rl.estimate(launch.model, hardware, **launch.keywords)


# --- commands that people post


def test_gpt_oss_with_experts_on_the_processor() -> None:
    launch = read(
        "llama-server -m gpt-oss-120b-mxfp4-00001-of-00003.gguf -ngl 99 --n-cpu-moe 27 -c 65536 -fa on -ub 2048 --jinja"
    )
    assert launch.model == "gpt-oss-120b"
    assert launch.keywords == {
        "engine": "llama.cpp", "weights": "MXFP4", "gpu_layers": LAYERS["gpt-oss-120b"] + 1, "cpu_moe_layers": 27,
        "context_limit": 65536, "prefill_chunk": 2048,
    }  # fmt: skip
    assert (launch.warnings, launch.assumptions) == ((), ())
    placed = estimate(launch, RIG)
    assert placed.weights == "gguf:mxfp4"
    assert placed.workload["cpu_moe_layers"] == 27
    assert placed.workload["context_limit"] == 65536


def test_vllm_serve_with_an_fp8_cache() -> None:
    launch = read("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768 --kv-cache-dtype fp8 -tp 1")
    assert launch.model == "llama-3.1-8b"
    assert launch.keywords == {"engine": "vllm", "tensor_parallel": 1, "kv": "fp8", "context_limit": 32768}
    assert launch.warnings == ()
    answer = estimate(launch)
    assert (answer.engine, answer.kv, answer.weights) == ("vllm:cuda", "fp8", "hf:bf16")


@pytest.mark.parametrize(
    ("command", "model", "keywords"),
    [
        (  # a path, an environment and line continuations
            "CUDA_VISIBLE_DEVICES=0 ./build/bin/llama-server \\\n  --model /Qwen3-30B-A3B-2507-UD-Q4_K_XL.gguf "
            "\\ \n --n-gpu-layers 99 --host 0.0.0.0 --port 8080 --temp 0.7 --top-k 20 --no-mmap",
            "qwen3-30b-a3b-2507",
            {"weights": "Q4_K_M", "gpu_layers": 49},
        ),
        (  # Windows, whose paths are written with backslashes and whose lines go on behind ^ or `
            'C:\\llama\\llama-cli.exe ^\n -m "C:\\models\\gemma-3-27b-it-q4_0.gguf" ^\n -ngl 63 -n 256',
            "gemma-3-27b",
            {"weights": "Q4_0", "gpu_layers": 63, "output_tokens": 256},
        ),
        (
            "llama-server -hf unsloth/Qwen3-30B-A3B-GGUF:Q6_K --ctx-size 16384",
            "qwen3-30b-a3b",
            {"weights": "Q6_K", "context_limit": 16384},
        ),
        ("llama-server -hf ggml-org/gpt-oss-20b-GGUF", "gpt-oss-20b", {"weights": "MXFP4"}),
        (
            "llama-cli -hf bartowski/Meta-Llama-3.1-8B-Instruct-GGUF -hff Meta-Llama-3.1-8B-Instruct-Q8_0.gguf",
            "llama-3.1-8b",
            {"weights": "Q8_0"},
        ),
        (
            "cd llama && sudo ./llama-server --model=Mixtral-8x7B-Instruct-v0.1.Q4_K_M.gguf -c 8192 2>&1 | tee log",
            "mixtral-8x7b",
            {"weights": "Q4_K_M", "context_limit": 8192},
        ),
        (
            "docker run --gpus all -v /m:/models -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server-cuda "
            f"-m /models/{LLAMA} -c 512 --host 0.0.0.0 --n-gpu-layers 99",
            "llama-3.1-8b",
            {"weights": "Q4_K_M", "context_limit": 512, "gpu_layers": 33},
        ),
        (
            "docker run --runtime nvidia --gpus all --ipc=host vllm/vllm-openai:latest --model Qwen/Qwen3-32B-AWQ",
            "qwen3-32b",
            {"weights": "awq"},
        ),
        (
            "python3 -m vllm.entrypoints.openai.api_server --model RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8 "
            "--max_model_len=32k --trust-remote-code --max-num-batched-tokens 4096",
            "llama-3.1-8b",
            {"weights": "fp8", "context_limit": 32_000, "prefill_chunk": 4096},
        ),
        (
            "vllm serve openai/gpt-oss-120b --tensor-parallel-size 2 --port 8000",
            "gpt-oss-120b",
            {"tensor_parallel": 2},
        ),
        (
            "vllm serve --port 1 deepseek-ai/DeepSeek-V3 -tp 8 -pp 2 --enable-expert-parallel --max-model-len 32K",
            "deepseek-v3",
            {"tensor_parallel": 8, "pipeline_parallel": 2, "expert_parallel": 8, "context_limit": 32_768},
        ),
        (
            "mlx_lm.generate --model mlx-community/Meta-Llama-3.1-8B-Instruct-4bit --max-tokens 500",
            "llama-3.1-8b",
            {"weights": "mlx-4bit", "output_tokens": 500},
        ),
        (
            "python -m mlx_lm server --model mlx-community/gpt-oss-20b-MXFP4-Q8 --port 8080 --kv-bits 8",
            "gpt-oss-20b",
            {"weights": "mlx-mxfp4-q8", "kv": "mlx_8bit"},
        ),
        (
            "mlx_lm.server --model mlx-community/Meta-Llama-3.1-8B-Instruct-8bit --max-kv-size 8192 "
            "--prefill-step-size 512",
            "llama-3.1-8b",
            {"weights": "mlx-8bit", "context_limit": 8192, "prefill_chunk": 512},
        ),
        ("mlx_lm benchmark --model Qwen/Qwen3-8B -p 2048 -g 64 -b 4", "qwen3-8b",
         {"prompt_tokens": 2048, "output_tokens": 64, "batch": 4}),
        (
            "vllm serve neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w4a16 --served-model-name a b",
            "llama-3.1-70b",
            {"weights": "w4a16"},
        ),
        (
            "vllm serve unsloth/Llama-3.3-70B-Instruct-bnb-4bit --load-format bitsandbytes --enable-prefix-caching",
            "llama-3.3-70b",
            {"weights": "bnb-nf4"},
        ),
        ("vllm bench latency --model Qwen/Qwen3-8B", "qwen3-8b",  # its defaults: vllm/benchmarks/latency.py
         {"prompt_tokens": 32, "output_tokens": 128, "batch": 8}),
    ],
)  # fmt: skip
def test_commands_as_people_write_them(command: str, model: str, keywords: dict[str, Any]) -> None:
    launch = read(command)
    assert launch.model == model
    assert {name: value for name, value in launch.keywords.items() if name != "engine"} == keywords
    assert launch.warnings == ()


def test_a_cached_repository_is_known_by_its_folder() -> None:
    folder = "~/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f"
    assert read(f"vllm serve {folder}").model == "llama-3.1-8b"


# --- llama.cpp, flag by flag


@pytest.mark.parametrize("flag", ["-ngl", "--gpu-layers", "--n-gpu-layers", "--n_gpu_layers"])
@pytest.mark.parametrize(
    ("value", "layers"),
    [("30", 30), ("0", 0), ("33", 33), ("99", 33), ("all", 33), ("-2", 33), ("-1", None), ("auto", None)],
)  # fmt: skip
def test_layers_on_the_device(flag: str, value: str, layers: int | None) -> None:
    assert server(f"{flag} {value}").keywords.get("gpu_layers") == layers


@pytest.mark.parametrize(
    ("flags", "layers"),
    [
        ("-ncmoe 20", 20),
        ("--n-cpu-moe 99", 48),
        ("-cmoe", 48),
        ("--cpu-moe", 48),
        ("-ot exps=CPU", 48),
        ("-ot '.ffn_.*_exps.=CPU'", 48),
        (r"--override-tensor '\.ffn_(up|down|gate)_exps\.=CPU'", 48),
        (r"-ot 'blk\.(0|1|2|3)\.ffn_.*_exps\.=CPU'", 4),
        (r"-ot 'blk\.([0-9]|1[0-9])\.ffn_.*_exps\.=CPU_REPACK'", 20),
        (r"-ot 'blk\.[0-9]\.ffn_.*exps=CUDA0,exps=CPU'", 38),  # the first that is found counts
        (r"-ot 'blk\.0\.ffn_.*_exps=CPU' -ot 'blk\.1\.ffn_.*_exps=CPU'", 2),
        ("-ngl 99", None),
    ],
)
def test_experts_on_the_host(flags: str, layers: int | None) -> None:
    launch = server(flags, MIXTURE)
    assert launch.keywords.get("cpu_moe_layers") == layers
    assert launch.warnings == ()


def test_dense_layers_in_front_are_counted_as_llama_cpp_counts() -> None:
    # DeepSeek R1: the first 3 of 61 layers have no experts; --n-cpu-moe counts them too
    launch = server("-ot exps=CPU", "DeepSeek-R1-Q4_K_M.gguf")
    assert launch.keywords["cpu_moe_layers"] == LAYERS["deepseek-r1"]
    assert server(r"-ot 'blk\.([0-9])\.ffn_.*_exps=CPU'", "DeepSeek-R1-Q4_K_M.gguf").keywords["cpu_moe_layers"] == 10


def test_experts_of_other_layers_are_counted_as_of_the_first() -> None:
    launch = server(r"-ot 'blk\.(2[0-9]|3[0-9]|4[0-9])\.ffn_.*_exps\.=CPU'", MIXTURE)
    assert launch.keywords["cpu_moe_layers"] == 28
    assert "first layers" in launch.assumptions[0]


@pytest.mark.parametrize("pattern", ["ffn_up_exps=CPU", "attn=CPU", "output=CPU"])
def test_other_tensors_on_the_host_are_named(pattern: str) -> None:
    assert any("-ot" in text for text in server(f"-ot '{pattern}'", MIXTURE).warnings)
    assert any("-ot" in text for text in server("-ot ffn_up=CPU").warnings)  # a dense model


def test_a_dense_model_has_no_experts_to_leave() -> None:
    launch = server("--cpu-moe -ngl 99")
    assert "cpu_moe_layers" not in launch.keywords
    assert "no experts" in launch.assumptions[0]


@pytest.mark.parametrize(
    ("flags", "kv"),
    [
        ("-ctk q8_0 -ctv q8_0", "q8_0"),
        ("--cache-type-k q8_0 --cache-type-v q4_0", "q8_0/q4_0"),
        ("-ctk q8_0", "q8_0/f16"),
        ("-ctv bf16", "f16/bf16"),
        ("", None),
    ],
)
def test_types_of_the_cache(flags: str, kv: str | None) -> None:
    assert server(flags).keywords.get("kv") == kv


@pytest.mark.parametrize(
    ("flags", "batch", "limit"),
    [
        ("-c 32768", None, 32768),
        ("-c 32768 -np 1", 1, 32768),
        ("-c 32768 -np 4", 4, 8192),
        ("-c 32768 --parallel 4", 4, 8192),
        ("-c 10000 -np 3", 3, 3333),
        ("-c 32768 -np 4 --kv-unified", 4, 8192),
        ("-c 0", None, 131072),  # that of the model: max_position_embeddings
        ("-c 0 -np 2", 2, 65536),
        ("-np 4", 4, None),
        ("-np -1 -c 4096", None, 4096),
    ],
)
def test_slots_share_the_context(flags: str, batch: int | None, limit: int | None) -> None:
    keywords = server(flags).keywords
    assert (keywords.get("batch"), keywords.get("context_limit")) == (batch, limit)


@pytest.mark.parametrize("more", ["", "--kv-unified", "--no-kv-unified"])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_the_cache_is_as_large_as_asked_whatever_the_slots(slots: int, more: str) -> None:
    # 2 x 8 KV heads x 128 x 2 bytes x 32 layers = 128 KiB a token
    answer = estimate(server(f"-c 32768 -np {slots} {more}"))
    assert answer.memory.kv_allocated_bytes == 32768 * 131072


@pytest.mark.parametrize(
    ("flags", "option", "value"),
    [
        ("-nkvo", "kv_on_host", True),
        ("--no-kv-offload", "kv_on_host", True),
        ("--swa-full", "swa_full", True),
        ("-ts 3,1", "tensor_split", (3.0, 1.0)),
        ("--tensor-split 0.5,0.5", "tensor_split", (0.5, 0.5)),
        ("-kvu", "kv_unified", True),
        ("--no-kv-unified", "kv_unified", False),
    ],
)
def test_options(flags: str, option: str, value: Any) -> None:
    launch = server(flags)
    assert launch.keywords["options"] == rl.Options(**{option: value})
    assert launch.warnings == ()


@pytest.mark.parametrize(
    ("flags", "chunk"),
    [("-ub 2048", 2048), ("-b 256", 256), ("-b 4096 -ub 1024", 1024), ("-b 512 -ub 1024", 512), ("-b 2048", None)],
)
def test_tokens_that_pass_at_once(flags: str, chunk: int | None) -> None:
    assert server(flags).keywords.get("prefill_chunk") == chunk


@pytest.mark.parametrize("flag", ["--draft-max", "--draft", "--spec-draft-n-max"])
def test_a_draft_model(flag: str) -> None:
    keywords = server(f"-md Llama-3.2-1B-Instruct-Q8_0.gguf {flag} 8").keywords
    assert (keywords["draft"], keywords["draft_tokens"]) == ("llama-3.2-1b", 8)


def test_a_draft_model_of_vllm_and_of_mlx() -> None:
    config = json.dumps({"model": "meta-llama/Llama-3.2-1B-Instruct", "num_speculative_tokens": 5})
    vllm = read(f"vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config '{config}'").keywords
    mlx = read("mlx_lm.server --model Qwen/Qwen3-8B --draft-model Qwen/Qwen3-0.6B").keywords
    assert (vllm["draft"], vllm["draft_tokens"]) == ("llama-3.2-1b", 5)
    assert (mlx["draft"], mlx["draft_tokens"]) == ("qwen3-0.6b", 3)


def test_threads_matter_only_to_the_processor() -> None:
    assert server("-ngl 99 -t 8").warnings == ()
    assert server("-ngl 20 -t 8").warnings[0].startswith("not taken into account: -t 8")
    assert server("-ngl 99 -ncmoe 4 -t 8", MIXTURE).warnings[0].startswith("not taken into account: -t 8")


@pytest.mark.parametrize("flags", ["-fa", "-fa on", "-fa 1", "--flash-attn auto", ""])
def test_fused_attention_is_what_is_predicted(flags: str) -> None:
    assert server(flags).warnings == ()
    assert "-fa off" in server("-fa off").warnings[0]


# --- llama-bench


@pytest.mark.parametrize(
    ("flags", "prompt", "output", "context"),
    [
        ("", [512, 0], [0, 128], 0),  # its defaults
        ("-p 1024 -n 0", 1024, 0, 0),
        ("-p 0 -n 64 -d 4096", 0, 64, 4096),
        ("-p 512,1024 -n 16", [512, 1024, 0], [0, 0, 16], 0),
        ("-p 512 -p 1024 -n 0", [512, 1024], 0, 0),
        ("-p 128-1024*2 -n 0", [128, 256, 512, 1024], 0, 0),
        ("-p 0 -n 100-300+100", 0, [100, 200, 300], 0),
        ("-p 512 -n 0 -d 0,4096", 512, 0, [0, 4096]),
        ("-p 0 -n 0 -pg 512,128", 512, 128, 0),
        ("-p 512 -n 0 -pg 512,128", 512, 128, 0),  # the prompt alone is a part of it
        ("-p 256 -n 0 -pg 512,128", [256, 512], [0, 128], 0),
    ],
)
def test_tests_of_llama_bench(flags: str, prompt: Any, output: Any, context: Any) -> None:
    launch = read(f"llama-bench -m {LLAMA} {flags} -r 3 -o md")
    keywords = launch.keywords
    assert (keywords["prompt_tokens"], keywords["output_tokens"], keywords["context_tokens"]) == (
        prompt,
        output,
        context,
    )
    assert launch.warnings == ()
    estimate(launch)


def test_a_list_of_settings_counts_with_its_first() -> None:
    launch = read(f"llama-bench -m {LLAMA} -ngl 10,20,30 -ub 512,1024 -ts 3/1")
    assert (launch.keywords["gpu_layers"], launch.keywords["prefill_chunk"]) == (10, 512)
    assert {"-ngl 10,20,30: the first of the list", "-ub 512,1024: the first of the list"} == set(launch.assumptions)
    assert launch.keywords["options"].tensor_split == (3.0, 1.0)
    launch = read(f"llama-bench -m {LLAMA} -m {MIXTURE} -fa 1,0 -ctk f16,q8_0")
    assert (launch.model, launch.keywords["kv"], launch.warnings) == ("llama-3.1-8b", "f16", ())
    assert len(launch.assumptions) == 3


def test_llama_batched_bench_runs_every_combination() -> None:
    keywords = read(f"llama-batched-bench -m {LLAMA} -c 16384 -npp 128,512 -ntg 128 -npl 1,4 -fa 1").keywords
    assert keywords["prompt_tokens"] == [128, 128, 512, 512]
    assert (keywords["output_tokens"], keywords["batch"]) == (128, [1, 4, 1, 4])
    assert keywords["context_limit"] == 4096


# --- vLLM


@pytest.mark.parametrize(
    ("flags", "weights"),
    [
        ("", None),
        ("--quantization fp8", "fp8"),
        ("-q awq_marlin", "awq"),
        ("--quantization bitsandbytes", "bnb-nf4"),
        ("--dtype auto", None),
        ("--dtype bfloat16", None),  # as published
        ("--dtype half", "fp16"),
        ("--dtype float32", "fp32"),
    ],
)
def test_weights_of_vllm(flags: str, weights: str | None) -> None:
    launch = read(f"vllm serve meta-llama/Llama-3.1-8B-Instruct {flags}")
    assert launch.keywords.get("weights") == weights
    assert launch.warnings == ()


def test_a_checkpoint_that_is_quantised_already_stays_as_it_is() -> None:
    assert "weights" not in read("vllm serve deepseek-ai/DeepSeek-V3 --quantization fp8").keywords
    assert "weights" not in read("vllm serve openai/gpt-oss-120b --dtype bfloat16").keywords


@pytest.mark.parametrize(
    "flags",
    [
        "--max-num-seqs 64",
        "--gpu-memory-utilization 0.95",
        "--cpu-offload-gb 10",
        "--enforce-eager",
        "--no-enable-chunked-prefill",
        "--enable-chunked-prefill=False",
        "--quantization quark",
        "-O3",
        "--compilation-config.level 3",
        '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\'',
    ],
)
def test_what_vllm_is_told_and_an_estimate_cannot_say_is_named(flags: str) -> None:
    (said,) = read(f"vllm serve Qwen/Qwen3-8B {flags}").warnings
    assert said.startswith(f"not taken into account: {flags.split('=')[0].split(' ')[0]}")


# --- nothing is passed over in silence


def test_unknown_flags_are_named_and_flags_behind_them_still_count() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        launch = rl.from_command(f"llama-server --fancy 3 -m {LLAMA} --no-thing --rpc host:50052 -c 4096 stray")
    assert tuple(str(each.message) for each in heard) == launch.warnings
    assert launch.warnings == (
        "not taken into account: --fancy (unknown to llama-server)",
        "not taken into account: --no-thing (unknown to llama-server)",
        "not taken into account: --rpc host:50052 (devices behind a network)",
        "not taken into account: stray",
    )
    assert launch.keywords["context_limit"] == 4096


def test_the_values_of_unknown_flags_are_not_repeated() -> None:
    assert "s3cret" not in repr(server("--some-token s3cret --api-key s3cret"))


def test_variables_and_programs_before_it_are_named() -> None:
    launch = read(f"CUDA_VISIBLE_DEVICES=1 GGML_CUDA_ENABLE_UNIFIED_MEMORY=1 taskset -c 0-7 llama-server -m {LLAMA}")
    assert launch.warnings == (
        "not taken into account: GGML_CUDA_ENABLE_UNIFIED_MEMORY",
        "not taken into account: taskset -c 0-7",
    )


@pytest.mark.parametrize("program", sorted({each.name for each in PROGRAMS.values()}))
def test_every_flag_of_the_tables_is_set_named_or_known_to_make_no_difference(program: str) -> None:
    flags = next(each.flags for each in PROGRAMS.values() if each.name == program)
    bare = {
        "llama-batched-bench": f"-m {LLAMA} -npp 1 -ntg 1 -npl 1",
        "vllm serve": "Qwen/Qwen3-8B",
    }.get(program, f"-m {LLAMA}" if program.startswith("llama") else "--model Qwen/Qwen3-8B")
    before = read(f"{program} {bare}")
    for name, flag in flags.items():
        value = "" if flag.takes == "nothing" else " 1"
        if flag.key == SILENT:
            assert read(f"{program} {bare} {name}{value}") == before, name
        elif flag.key == NOTED:
            (said,) = read(f"{program} {bare} {name}{value}").warnings
            assert said.startswith(f"not taken into account: {name}"), name


# --- the model


def test_a_file_that_is_there_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": False, "head_dim": 128,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    launch = read(f"vllm serve {folder} --max-model-len 4096")
    assert launch.model == str(folder)
    assert estimate(launch).model.total_params == rl.model("llama-3.1-8b").total_params


def test_a_broken_file_is_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + struct.pack("<I", 3))
    with pytest.raises(rl.RooflineError) as caught:
        read("llama-server -m broken.gguf")
    assert caught.value.exit_code == 3


def test_a_name_that_says_nothing_needs_the_model_beside_it() -> None:
    with pytest.raises(rl.InvalidRequest, match=r"(?s)-m: no entry for model.*Name the model"):
        read("llama-server -m model.gguf")
    launch = read("llama-server -m my-own-tune-Q6_K.gguf -ngl 99", "llama-3.1-8b")
    assert (launch.model, launch.keywords["weights"], launch.keywords["gpu_layers"]) == ("llama-3.1-8b", "Q6_K", 33)


def test_a_name_without_quantisation() -> None:
    launch = read("llama-server -m llama-3.1-8b.gguf")
    assert launch.keywords["weights"] == "Q4_K_M"
    assert launch.assumptions == ("no quantisation in the model's name: Q4_K_M",)


def test_a_format_that_is_computed_as_another_is_said() -> None:
    assert "Q4_K_XL: computed as Q4_K_M" in server("", "Qwen3-30B-A3B-UD-Q4_K_XL.gguf").assumptions


# --- what is wrong


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", ["no command", "llama-server"]),
        ("ollama run llama3", ["commands of ollama are not read", "--engine ollama", "vllm serve"]),
        ("something run llama3", ["no known program", "vllm serve"]),
        ("llama-server -m 'x.gguf", ["quotation"]),
        ("llama-server", ["names no model"]),
        ("llama-server -m", ["-m", "value must follow"]),
        (f"llama-server -m -c 4096 {LLAMA}", ["-m", "not -c"]),
        (f"llama-server -m {LLAMA} -ngl many", ["-ngl", "'many'", "whole number"]),
        (f"llama-server -m {LLAMA} -c -5", ["-c", "'-5'"]),
        (f"llama-server -m {LLAMA} -c 1e4", ["-c", "'1e4'"]),
        (f"llama-server -m {LLAMA} -c 99999999999", ["-c"]),
        (f"llama-server -m {LLAMA} -ctk q9_9", ["-ctk", "q9_9"]),
        (f"llama-server -m {LLAMA} -ctv fp8", ["-ctv"]),
        (f"llama-server -m {LLAMA} -ts a,b", ["-ts", "numbers"]),
        (f"llama-server -m {LLAMA} -ts nan", ["-ts"]),
        (f"llama-server -m {LLAMA} -ot CPU", ["-ot", "exps=CPU"]),
        (f"llama-server -m {LLAMA} -ot '(=CPU'", ["-ot", "regular expression"]),
        (f"llama-server -m {LLAMA} -ub 0", ["-ub"]),
        (f"llama-bench -m {LLAMA} -p 0 -n 0", ["no test"]),
        (f"llama-bench -m {LLAMA} -pg 512", ["-pg", "512,128"]),
        (f"llama-bench -m {LLAMA} -p 1-9*1", ["-p", "without an end"]),
        (f"llama-bench -m {LLAMA} -p 1-999999999", ["-p", "values"]),
        (f"llama-batched-bench -m {LLAMA} -npp 1", ["-npl"]),
        ("vllm serve Qwen/Qwen3-8B --max-model-len lots", ["--max-model-len", "'lots'"]),
        ("vllm serve Qwen/Qwen3-8B --dtype int3", ["--dtype", "bfloat16"]),
        ("vllm serve Qwen/Qwen3-8B --kv-cache-dtype int3", ["--kv-cache-dtype"]),
        ("vllm serve Qwen/Qwen3-8B -tp 0", ["-tp"]),
        ("vllm serve Qwen/Qwen3-8B --speculative-config nonsense", ["--speculative-config", "JSON"]),
        ("vllm serve Qwen/Qwen3-8B --speculative-config [1]", ["--speculative-config", "object"]),
        ("mlx_lm.generate --model Qwen/Qwen3-8B --kv-bits 5", ["--kv-bits", "5"]),
    ],
)
def test_a_malformed_command_says_what_and_where(command: str, said: list[str]) -> None:
    with pytest.raises(rl.InvalidRequest) as caught:
        read(command)
    text = str(caught.value)
    assert text.startswith("command")
    assert all(part in text for part in said), text


WORD = st.one_of(
    st.sampled_from(sorted({name for program in PROGRAMS.values() for name in program.flags})),
    st.sampled_from([LLAMA, "llama-bench", "vllm serve Qwen/Qwen3-8B", "-1", "0", "8", "q8_0", "exps=CPU"]),
    st.text(string.printable, max_size=8),
)  # fmt: skip


@given(st.lists(WORD, max_size=12))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_typed_is_read_or_refused(words: list[str]) -> None:
    try:
        launch = read(f"llama-server -m {LLAMA} " + " ".join(words))
    except rl.RooflineError as error:
        assert str(error)
    else:
        assert launch.keywords["engine"] in ("llama.cpp", "vllm", "mlx")


# --- and back


def workload_of(estimate: Any) -> dict[str, Any]:
    return {**estimate.workload, "weights": estimate.weights, "kv": estimate.kv, "engine": estimate.engine}


@given(
    prompt=st.integers(0, 20_000),
    output=st.integers(1, 2_000),
    context=st.integers(0, 20_000),
    kv=st.sampled_from([None, "q8_0", "q8_0/f16", "q4_0"]),
    weights=st.sampled_from(["Q4_K_M", "Q8_0", "IQ4_XS", "BF16", "Q2_K_L"]),
    chunk=st.sampled_from([None, 256, 2048, 4096]),
    layers=st.sampled_from([None, 0, 20, 33]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_llama_bench_there_and_back(
    prompt: int, output: int, context: int, kv: str | None, weights: str, chunk: int | None, layers: int | None
) -> None:
    keywords = {"kv": kv, "weights": weights, "prefill_chunk": chunk, "gpu_layers": layers, "context_tokens": context}
    asked = estimate(
        Launch("llama-3.1-8b", {**keywords, "prompt_tokens": prompt, "output_tokens": output}, (), ()), RIG
    )
    command = rl.launch_command(asked)
    assert command.startswith("llama-bench -m llama-3.1-8b-")
    again = estimate(read(command), RIG)
    assert workload_of(again) == workload_of(asked)
    assert again.e2e_s == asked.e2e_s


@given(
    prompt=st.integers(1, 4_000),
    output=st.integers(1, 500),
    batch=st.integers(2, 64),
    spare=st.integers(0, 4_000),
    engine=st.sampled_from(["llama.cpp", "vllm", "mlx"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_there_and_back(prompt: int, output: int, batch: int, spare: int, engine: str) -> None:
    keywords = {"engine": engine, "prompt_tokens": prompt, "output_tokens": output, "batch": batch}
    if engine != "mlx":
        keywords["context_limit"] = prompt + output + spare
    hardware = "m3-max-40c" if engine == "mlx" else "h100-sxm"
    asked = estimate(Launch("llama-3.1-8b", keywords, (), ()), hardware)
    again = estimate(read(rl.launch_command(asked)), hardware)
    assert workload_of(again) == workload_of(asked)


@pytest.mark.parametrize("weights", sorted(each.id for each in rl.list_formats() if not each.id.startswith("exl:")))
def test_formats_there_and_back(weights: str) -> None:
    engine = {"gguf": "llama.cpp", "hf": "vllm", "mlx": "mlx"}[weights.partition(":")[0]]
    hardware = "m3-max-40c" if engine == "mlx" else "7950x" if ":tq" in weights else "rtx-4090"
    asked = estimate(Launch("qwen3-30b-a3b", {"engine": engine, "weights": weights}, (), ()), hardware)
    (command,), notes = launch_commands([asked])
    assert all("no repository" in note for note in notes)
    again = estimate(read(command), hardware)
    assert workload_of(again) == workload_of(asked)


def test_experts_there_and_back() -> None:
    asked = estimate(Launch("gpt-oss-120b", {"weights": "MXFP4", "cpu_moe_layers": 30}, (), ()), RIG)
    command = rl.launch_command(asked)
    assert " -ngl 37 -ncmoe 30 -fa 1 " in command
    assert workload_of(estimate(read(command), RIG)) == workload_of(asked)


def test_cached_tokens_are_context_to_llama_bench() -> None:
    asked = rl.estimate("llama-3.1-8b", "rtx-4090", prompt_tokens=1000, cached_tokens=600, context_tokens=100)
    assert rl.launch_command(asked).endswith("-p 400 -n 0 -pg 400,128 -d 700")
    assert estimate(read(rl.launch_command(asked))).e2e_s.expected == pytest.approx(asked.e2e_s.expected)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"engine": "sglang"}, "no command known for sglang"),
        ({"engine": "ollama"}, "no command known for ollama"),
        ({"engine": "vllm", "context_tokens": 100}, "empty cache"),
        ({"engine": "vllm", "prompt_tokens": 0}, "starts from a prompt"),
        ({"engine": "vllm", "output_tokens": 0}, "at least one token"),
        ({"batch": 4, "context_tokens": 100}, "empty cache"),
        ({"prompt_tokens": [1, 2]}, "arrays are prompt_tokens"),
    ],
)
def test_where_no_command_is_known_it_is_said(keywords: dict[str, Any], said: str) -> None:
    answer = rl.estimate("llama-3.1-8b", "rtx-4090", **keywords)
    with pytest.raises(rl.InvalidRequest, match=said):
        rl.launch_command(answer)


def test_checks_over_several_prompts_measure_the_phases_apart() -> None:
    answers = [rl.estimate("llama-3.1-8b", RIG, prompt_tokens=prompt, gpu_layers=20) for prompt in (512, 8192)]
    assert check_commands(answers).commands == [
        "llama-bench -m llama-3.1-8b-Q4_K_M.gguf -ngl 20 -fa 1 -p 512,8192 -n 0",
        "llama-bench -m llama-3.1-8b-Q4_K_M.gguf -ngl 20 -fa 1 -p 0 -n 128 -d 512,8192",
    ]
    unknown = check_commands([rl.estimate("llama-3.1-8b", "rtx-4090", engine="sglang")])
    assert unknown == ([], ["no command known for sglang"])


@pytest.mark.parametrize("cached", [0, 3584, 4096])
def test_both_kinds_of_commands_measure_the_same_test(cached: int) -> None:
    answer = rl.estimate("llama-3.1-8b", "rtx-4090", prompt_tokens=4096, cached_tokens=cached, context_tokens=100)
    prefill, decode = check_commands([answer]).commands
    settings, _, _ = rl.launch_command(answer).partition(" -p ")
    computed = max(4096 - cached, 1)
    assert prefill == f"{settings} -p {computed} -n 0 -d {4196 - computed}"
    assert decode == f"{settings} -p 0 -n 128 -d 4196"
    assert rl.launch_command(answer).endswith(f" -p {computed} -n 0 -pg {computed},128 -d {4196 - computed}")


@pytest.mark.parametrize(
    ("keywords", "flags"),
    [({"tensor_parallel": 2}, "-sm tensor -ts 1/1"), ({"pipeline_parallel": 2}, "-sm layer"), ({}, "-sm layer")],
)
def test_how_devices_share_the_work_is_in_the_command(keywords: dict[str, int], flags: str) -> None:
    asked = rl.estimate("llama-3.3-70b", "2x rtx-5090", weights="Q4_K_M", **keywords)
    command = rl.launch_command(asked)
    assert f" {flags} " in command
    said = read(command).keywords  # layers in a row are what llama.cpp does by itself
    assert said.get("tensor_parallel") == keywords.get("tensor_parallel")
    if "pipeline_parallel" not in keywords:
        assert rl.estimate("llama-3.3-70b", "2x rtx-5090", **said).e2e_s == asked.e2e_s


def test_degrees_without_a_flag_are_named() -> None:
    asked = rl.estimate("llama-3.1-8b", "4x rtx-4090", tensor_parallel=2, data_parallel=2)
    with pytest.warns(rl.RooflineWarning, match="no flag for data_parallel=2"):
        assert " -sm tensor -ts 1/1 " in rl.launch_command(asked)
    assert check_commands([asked]).notes == ["the command has no flag for data_parallel=2"]


@pytest.mark.parametrize(
    ("flags", "keywords", "unused"),
    [
        ("-sm tensor -ts 1,1,1,1", {"tensor_parallel": 4}, ""),
        ("-sm tensor -ts 1,1,0", {"tensor_parallel": 2}, ""),
        ("-sm tensor -ts 3,1", {"tensor_parallel": 2}, "-ts (devices share each layer in equal parts)"),
        ("-sm tensor", {}, "-sm tensor (say how many devices: tensor_parallel)"),
        ("-sm row -ts 1,1", {}, "-sm row (several devices are split by layers)"),
    ],
)
def test_split_modes(flags: str, keywords: dict[str, int], unused: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rl.RooflineWarning)
        found = server(flags)
    assert {name: found.keywords[name] for name in found.keywords if name == "tensor_parallel"} == keywords
    assert found.warnings == ((f"not taken into account: {unused}",) if unused else ())


@pytest.mark.parametrize(
    ("model", "weights", "engine", "named"),
    [
        ("qwen3-32b", "awq", "vllm", "Qwen/Qwen3-32B-AWQ"),
        ("qwen3-32b", "mlx-4bit", "mlx", "mlx-community/Qwen3-32B-4bit"),
        ("llama-3.3-70b", "awq", "vllm", None),
        ("llama-3.1-8b", "awq", "vllm", None),
    ],
)
def test_a_repository_fits_format_and_engine(model: str, weights: str, engine: str, named: str | None) -> None:
    name, _, notes = repository(rl.model(model), catalog.weight_format(weights).id, engine)
    assert name == (named or f"{model}-{weights}")
    assert notes == (
        () if named else (f"no repository of {model} in {weights} is known: put yours in the place of {name}",)
    )


def test_no_repository_of_another_engine_is_named() -> None:
    engines = {"hf": "vllm", "mlx": "mlx"}
    for model in map(rl.model, ("llama-3.1-8b", "qwen3-32b", "gpt-oss-20b")):
        for weights in ("hf:awq", "hf:gptq", "hf:w4a16", "hf:fp8", "hf:nvfp4", "mlx:4bit", "mlx:8bit", "mlx:bf16"):
            engine = engines[weights.partition(":")[0]]
            name = repository(model, weights, engine)[0].lower()
            assert "gguf" not in name
            assert engine == "mlx" or "mlx" not in name


DRAFT = {"draft": "qwen3-0.6b", "draft_tokens": 4, "acceptance": 0.7}


@pytest.mark.parametrize(
    ("engine", "hardware", "flags"),
    [
        ("llama.cpp", "rtx-4090", "llama-server -m qwen3-8b-Q4_K_M.gguf -ngl 99 -fa 1 -c 768 -np 1 "
         "-md qwen3-0.6b-Q4_K_M.gguf --spec-draft-n-max 4"),
        ("vllm", "h200-sxm", '"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4}'),
        ("mlx", "m3-max-40c", "--draft-model Qwen/Qwen3-0.6B --num-draft-tokens 4 -m 128"),
    ],
)  # fmt: skip
def test_a_draft_model_is_in_the_command(engine: str, hardware: str, flags: str) -> None:
    weights = "Q4_K_M" if engine == "llama.cpp" else None
    asked = rl.estimate("qwen3-8b", hardware, engine=engine, weights=weights, **DRAFT)
    (command,), notes = launch_commands([asked])
    assert flags in command
    assert any("2.77 tokens a cycle" in note for note in notes)
    keywords = read(command).keywords
    assert (keywords["draft"], keywords["draft_tokens"]) == ("qwen3-0.6b", 4)
    assert check_commands([asked]).commands == [command]


def test_drafts_that_no_command_makes_are_named() -> None:
    asked = rl.estimate("qwen3-8b", "rtx-4090", **{**DRAFT, "draft": "eagle3"})
    with pytest.warns(rl.RooflineWarning, match=r"without speculation \(EAGLE-3 head, 4 tokens drafted a cycle\)"):
        assert rl.launch_command(asked).startswith("llama-bench")


def test_each_placement_is_checked_by_a_command_of_its_own() -> None:
    rig = "rtx-4090 + ddr5-5600x2@64GiB"
    answers = [rl.estimate("llama-3.3-70b", rig, weights="Q4_K_M", prompt_tokens=each) for each in (512, 8192)]
    few, many = (item.workload["gpu_layers"] for item in answers)
    assert few > many
    commands = check_commands(answers).commands
    assert [f"-ngl {few} " in each for each in commands] == [True, True, False, False]
    assert [f"-ngl {many} " in each for each in commands] == [False, False, True, True]


# --- the command line


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["estimate", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def test_an_estimate_from_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"llama-server -m {LLAMA} -ngl 30 -c 32768 -ctk q8_0 -np 4 --rpc host:1"
    code, out, err = run(capsys, RIG, "--from", command, "--json", "-p", "512")
    workload = json.loads(out)["workload"]
    assert code == 0
    assert {name: workload[name] for name in ("gpu_layers", "batch", "context_limit")} == {
        "gpu_layers": 30, "batch": 4, "context_limit": 8192,
    }  # fmt: skip
    assert json.loads(out)["kv"] == "q8_0/f16"
    assert "warning: not taken into account: --rpc host:1" in err
    assert "note: -c 32768: 32,768 tokens for 4 requests, slots of 8,192" in err


def test_options_go_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"llama-server -m {LLAMA} -c 32768 -ctk q8_0 -np 4"
    _, out, _ = run(capsys, "qwen3-8b", "rtx-4090", "--from", command, "--json", "-p", "64", "-b", "2", "--kv", "f16")
    answer = json.loads(out)
    assert (answer["model"], answer["kv"], answer["workload"]["batch"]) == ("qwen3-8b", "f16", 2)
    assert answer["workload"]["context_limit"] == 8192


def test_default_prompts_are_those_that_the_context_holds(capsys: pytest.CaptureFixture[str]) -> None:
    for context, prompts in ((4096, ["512"]), (16384, ["512", "8192"])):
        _, out, _ = run(capsys, "rtx-4090", "--from", f"llama-server -m {LLAMA} -c {context}", "--format", "csv")
        assert [row["workload.prompt_tokens"] for row in csv.DictReader(io.StringIO(out))] == prompts
    assert run(capsys, "rtx-4090", "--from", f"llama-server -m {LLAMA} -c 4096", "-p", "8k")[0] == 2


def test_the_tests_of_a_benchmark_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "rtx-4090", "--from", f"llama-bench -m {LLAMA} -p 512 -n 128 -d 0,4096", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(row["workload.prompt_tokens"], row["workload.context_tokens"]) for row in rows] == [
        ("512", "0"), ("0", "0"), ("512", "4096"), ("0", "4096"),
    ]  # fmt: skip
    code, out, _ = run(capsys, "rtx-4090", "--from", f"llama-bench -m {LLAMA}")
    assert code == 0
    assert "llama-bench -m llama-3.1-8b-Q4_K_M.gguf -ngl 99 -fa 1 -p 512 -n 0 -d 0" in out


def test_show_command_prints_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "llama-3.1-8b", "rtx-4090", "--show-command", "-p", "512")
    assert (code, err) == (0, "")
    assert out == "llama-bench -m llama-3.1-8b-Q4_K_M.gguf -ngl 99 -fa 1 -p 512 -n 0 -pg 512,128 -d 0\n"
    _, out, _ = run(capsys, "llama-3.1-8b", "rtx-4090", "--show-command", "--json")
    assert len(json.loads(out)["commands"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("rtx-4090", "--from", "llama-server"), 2, "names no model"),
        (("rtx-4090", "--from", "frobnicate -m x"), 2, "no known program"),
        (("rtx-4090", "--from", f"llama-server -m {LLAMA} -ngl x"), 2, "-ngl"),
        (("rtx-9999", "--from", f"llama-server -m {LLAMA}"), 2, "rtx-9999"),
        (("rtx-4090", "--from", f"llama-server -m {LLAMA} -ngl 20"), 2, "ddr5"),  # no host is named
        (("llama-3.1-8b",), 2, "HARDWARE: missing"),
        (("a", "b", "c"), 2, "unexpected extra argument"),
        (("llama-3.1-8b", "rtx-4090", "--show-command", "-e", "sglang"), 2, "no command known for sglang"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str) -> None:
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert said in err


def test_a_processor_has_nothing_to_offload() -> None:
    plain = estimate(server(""), "7950x")
    for flags in ("-ngl 0", "-ngl 99", "-nkvo"):
        assert estimate(server(flags), "7950x").decode.tokens_per_s == plain.decode.tokens_per_s
