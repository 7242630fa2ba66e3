"""Texts that mutations start from: small, valid, and of every kind that a parser knows."""

from __future__ import annotations

import gzip
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# --- files of models


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _keys(values: dict[str, Any]) -> bytes:
    parts = []
    for key, item in values.items():
        parts.append(_text(key))
        if isinstance(item, str):
            parts.append(struct.pack("<I", 8) + _text(item))
        elif isinstance(item, list) and isinstance(item[0], str):
            parts.append(struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(_text, item)))
        elif isinstance(item, list):
            parts.append(struct.pack(f"<IIQ{len(item)}I", 9, 4, len(item), *item))
        else:
            parts.append(struct.pack("<II", 4, item))
    return b"".join(parts)


def gguf(experts: bool = False) -> bytes:
    """A Llama of two layers, or one with experts, layers listed one by one."""
    keys: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "Seed",
        "general.file_type": 1,
        "general.alignment": 32,
        "llama.context_length": 512,
        "llama.embedding_length": 32,
        "llama.block_count": 2,
        "llama.attention.head_count": [2, 2],
        "llama.attention.head_count_kv": 1,
        "llama.expert_count": 4 * experts,
        "llama.expert_used_count": 2 * experts,
        "tokenizer.ggml.tokens": ["a", "b", "cc", ""],
    }
    shapes = {"token_embd.weight": (32, 8), "output_norm.weight": (32,), "output.weight": (32, 8)}
    for layer in range(2):
        name = f"blk.{layer}."
        shapes |= {f"{name}attn_norm.weight": (32,), f"{name}ffn_norm.weight": (32,)}
        shapes |= {f"{name}attn_{part}.weight": (32, rows) for part, rows in (("q", 32), ("k", 16), ("v", 16))}
        shapes |= {f"{name}attn_output.weight": (32, 32)}
        if experts:
            shapes |= {f"{name}ffn_gate_inp.weight": (32, 4), f"{name}ffn_down_exps.weight": (64, 32, 4)}
            shapes |= {f"{name}ffn_gate_exps.weight": (32, 64, 4), f"{name}ffn_up_exps.weight": (32, 64, 4)}
        else:
            shapes |= {f"{name}ffn_gate.weight": (32, 64), f"{name}ffn_up.weight": (32, 64)}
            shapes |= {f"{name}ffn_down.weight": (64, 32)}
    infos, offset = [], 0
    for name, shape in shapes.items():
        kind, size = (0, 4) if len(shape) == 1 else (1, 2)
        infos.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
        for length in shape:
            size *= length
        offset += -(-size // 32) * 32
    header = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + _keys(keys) + b"".join(infos)
    return header + b"\0" * (-len(header) % 32 + offset)


CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 64,
    "vocab_size": 8,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def safetensors_header() -> dict[str, Any]:
    """The header of a Llama of two layers."""
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [8, 32], "lm_head.weight": [8, 32]}
    shapes["model.norm.weight"] = [32]
    for layer in range(2):
        name = f"model.layers.{layer}."
        shapes |= {f"{name}{norm}.weight": [32] for norm in ("input_layernorm", "post_attention_layernorm")}
        rows = {"self_attn.q_proj": [32, 32], "self_attn.k_proj": [16, 32], "self_attn.v_proj": [16, 32]}
        rows |= {"self_attn.o_proj": [32, 32], "mlp.gate_proj": [64, 32], "mlp.up_proj": [64, 32]}
        rows |= {"mlp.down_proj": [32, 64]}
        shapes |= {f"{name}{module}.weight": shape for module, shape in rows.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return header


def packed(header: Any) -> bytes:
    text = json.dumps(header).encode()
    end = max((each["data_offsets"][1] for each in safetensors_header().values() if "dtype" in each), default=0)
    return struct.pack("<Q", len(text)) + text + b"\0" * end


@cache
def _encoded(*texts: str) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


def _files(*names: str) -> list[bytes]:
    return [(ROOT / name).read_bytes() for name in names]


def configs() -> list[bytes]:
    """Configurations of each kind of layer; small ones, from the tests of the importer."""
    folder = ROOT / "tests" / "importers" / "huggingface"
    return [json.dumps(CONFIG).encode(), *(file.read_bytes() for file in sorted(folder.glob("*.json")))]


def indices() -> list[bytes]:
    """The index of a checkpoint in one file."""
    listed = dict.fromkeys((name for name in safetensors_header() if name != "__metadata__"), "a.safetensors")
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": listed}).encode()]


# --- entries


def yaml_texts() -> list[bytes]:
    """Documents with everything that YAML offers and some that it does not."""
    return [
        *_encoded(
            "a: 1\nb: [1, 2.5, ~]\nc: {d: 'e', f: \"g\\u00e9\"}\n",
            "a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n",
            "- 1e12\n- 0x1F\n- 0o17\n- 1_000\n- .5\n- 12:30\n- 2024-05-01\n- no\n",
            "a: |\n  text\n  more\nb: >-\n  folded\n? key\n: value\n",
            "# remark\n---\na: !!str 1\nb: !tag x\n...\n",
        ),
        *_files("model_db/formats/gguf/q8_0.yaml"),
    ]


def devices() -> list[bytes]:
    """Accelerators, an integrated one and a processor."""
    names = ("nvidia-geforce-rtx-4090", "apple-m3-max-40c", "amd-epyc-9654", "nvidia-h100-sxm5-80gb")
    found = {file.stem: file for file in (ROOT / "hardware_db" / "devices").rglob("*.yaml")}
    return [found[name].read_bytes() for name in names]


def models() -> list[bytes]:
    """Dense, windowed, with experts, latent attention, recurrent layers."""
    names = ("llama-3.1-8b", "gemma-3-4b", "gpt-oss-20b", "deepseek-v2-lite", "deepseek-v3", "qwen3-next-80b-a3b")
    found = {file.stem: file for file in (ROOT / "model_db").rglob("*.yaml")}
    return [found[name].read_bytes() for name in names]


def formats() -> list[bytes]:
    """A mix, a plain one, and tiles."""
    folder = "model_db/formats/"
    return _files(f"{folder}gguf/q4_k_m.yaml", f"{folder}gguf/q8_0.yaml", f"{folder}hf/fp8-block.yaml")


def encodings() -> list[bytes]:
    """A table of two encodings."""
    return list(
        _encoded(
            """\
schema: 1
encodings:
  f16: {block_elements: 1, block_bytes: 2, source: made-up}
  q8_0: {block_elements: 32, block_bytes: 34, fallback: f16, source: made-up}
  tiled: {block_elements: 1, block_bytes: 1, tile: [128, 128], tile_scale_bytes: 4, source: made-up}
kv_types:
  f16: {encoding: f16, aliases: [fp16]}
sources:
  made-up: {title: none}
"""
        )
    )


def engines() -> list[bytes]:
    """Engines of every family."""
    folder = "hardware_db/engines/"
    return _files(f"{folder}vllm.yaml", f"{folder}mlx.yaml", f"{folder}ollama.yaml")


def profiles() -> list[bytes]:
    """The profile that is written by hand."""
    return _files("hardware_db/engines/profiles/nominal.yaml")


# --- what people type


def commands() -> list[bytes]:
    """Launch commands of each program, with the flags that matter."""
    return list(
        _encoded(
            "llama-server -m Qwen3-0.6B-Q8_0.gguf -ngl 99 -c 16384 -fa on -ub 2048 --jinja",
            "llama-server -m a-Q4_K_M.gguf --n-cpu-moe 27 -ot '.ffn_.*_exps.=CPU' -ctk q8_0 -ctv q8_0 -np 4 -kvu",
            "CUDA_VISIBLE_DEVICES=0 ./build/bin/llama-server \\\n  --model /Qwen3-0.6B-UD-Q4_K_XL.gguf -ts 1 -sm row",
            "llama-bench -m x-Q8_0.gguf -p 512,2048 -n 128 -d 0,4096 -r 3 -b 2048 -pg 512,128",
            "llama-batched-bench -m x-Q8_0.gguf -c 16384 -npp 128 -ntg 128 -npl 1,2,4",
            "cd llama && sudo ./llama-cli --model=x.gguf --draft-max 8 -n 64 2>&1 | tee log",
            "vllm serve Qwen/Qwen3-0.6B --tensor-parallel-size 2 --max-model-len 32K --kv-cache-dtype fp8",
            "vllm serve Qwen/Qwen3-0.6B -tp 8 -pp 2 --enable-expert-parallel --gpu-memory-utilization 0.9",
            'vllm serve Qwen/Qwen3-0.6B --speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\'',
            "vllm bench latency --model Qwen/Qwen3-0.6B --input-len 512 --output-len 128 --batch-size 8",
            "mlx_lm.generate --model mlx-community/Qwen3-0.6B-4bit --max-tokens 100 --max-kv-size 4096",
        )
    )


def systems() -> list[bytes]:
    """Systems of every part."""
    return list(
        _encoded(
            "rtx-4090",
            "2x rtx-3090 + ddr5-5600x2@64GiB",
            "m3-max-40c@64GiB",
            "rtx-4090 + 7950x + ddr5-6000x2@96GiB + nvme-gen4@2TB",
            "8x h100-sxm",
            "2x 2x rtx-3090 + 10gbe",
            "2x amd-epyc-9654 + ddr5-4800x12@384GiB + ssd@6.5GB/s@2TB",
            "24GiB,1008GB/s,165TFLOP/s@fp16,330TFLOP/s@int8 + ddr4-3200x4",
        )
    )


def ad_hoc() -> list[bytes]:
    """Devices by their figures."""
    return list(
        _encoded(
            "24GiB,1008GB/s,165TFLOP/s@fp16",
            "24GiB,1008GB/s,165TFLOP/s@fp16.fp32,330TFLOP/s@int8,660TOPS@int4",
            "128 GB, 273 GB/s, 62 TFLOP/s@fp16",
            "1.5TB,8TB/s,2.5PFLOP/s@fp16,5PFLOP/s@fp8",
        )
    )


def axes() -> list[bytes]:
    """Axes of sweeps, and counts."""
    return list(
        _encoded(
            "context=0:131072:33", "batch=1,2,4", "weights=Q4_K_M,Q8_0", "hardware.memory.bandwidth_gb_s=1:2:3", "32K"
        )
    )


def overrides() -> list[bytes]:
    """Values by path."""
    return list(
        _encoded(
            "hardware.memory.bandwidth_gb_s=1100",
            "hardware.memory.capacity_gib=48",
            "hardware.peaks.0.tflops=[10, 20]",
            "hardware.clock.max_mhz=2600",
            "model.max_context_tokens=4096",
            "model.layers.0.repeat=10",
            "model.hidden_size=1024",
        )
    )


def names() -> list[bytes]:
    """Names of everything."""
    return list(
        _encoded("q8_0", "q8_0/f16", "llama.cpp:cuda@2024-05", "gguf:q4_k_m", "mlx-4bit", "llama-3.1-8b", "rtx")
    )


# --- results and traces


def _first_lines(name: str, lines: int = 4) -> bytes:
    with gzip.open(ROOT / "hardware_db" / "measurements" / f"{name}.csv.gz") as stream:
        return b"".join(stream.readline() for _ in range(lines))


def results() -> list[bytes]:
    """What each tool writes."""
    bench = {
        "build_number": 5163, "cpu_info": "AMD Ryzen 7 7800X3D", "gpu_info": "NVIDIA GeForce RTX 4080",
        "backends": "CUDA", "model_filename": "Qwen2.5-7B-Instruct-Q4_K_M.gguf", "model_type": "qwen2 7B Q4_K - Medium",
        "model_size": 4677120000, "model_n_params": 7615616512, "n_batch": 2048, "n_ubatch": 512, "type_k": "f16",
        "type_v": "f16", "n_gpu_layers": -1, "n_cpu_moe": 0, "n_prompt": 0, "n_gen": 128, "n_depth": 0,
        "test_time": "2025-04-24T11:58:51Z", "avg_ts": 118.9, "stddev_ts": 1.0, "samples_ts": [119.03, 120.178],
    }  # fmt: skip
    vllm = {
        "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 100, "device": "h100-sxm",
        "weights": "fp8", "request_rate": "inf", "max_concurrency": 16, "duration": 50.0, "completed": 100,
        "total_input_tokens": 102400, "total_output_tokens": 12800, "output_throughput": 1500.0,
        "median_ttft_ms": 70.0, "mean_ttft_ms": 80.0, "mean_tpot_ms": 9.0, "median_tpot_ms": 8.9,
    }  # fmt: skip
    sglang = {
        "backend": "sglang", "dataset_name": "random", "request_rate": "inf", "max_concurrency": 4,
        "random_input_len": 1024, "random_output_len": 128, "random_range_ratio": 1.0, "duration": 20.0,
        "completed": 40, "total_input_tokens": 40960, "total_output_tokens": 5120, "median_ttft_ms": 60.0,
        "median_tpot_ms": 8.0, "output_throughput": 256.0,
    }  # fmt: skip
    latency = {"avg_latency": 1.5, "latencies": [1.5, 1.5], "percentiles": {"50": 1.5, "99": 1.5}}
    batched = {
        "n_kv_max": 2048, "n_batch": 2048, "n_ubatch": 512, "is_pp_shared": 0, "n_gpu_layers": 99, "pp": 128,
        "tg": 64, "pl": 2, "n_kv": 256, "t_pp": 0.23, "speed_pp": 547.4, "t_tg": 3.5, "speed_tg": 36.5, "t": 3.7,
        "speed": 68.4,
    }  # fmt: skip
    csv = ",".join(map(str, bench)) + "\n" + ",".join(f'"{value}"' for value in bench.values()) + "\n"
    return [
        *_encoded(
            """\
  Device 0: NVIDIA GeForce RTX 4080, compute capability 8.9, VMM: yes
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |           pp512 |      7340.20 ± 23.45 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |    tg128 @ d512 |        116.71 ± 0.60 |

build: 8cf427ff (5163)
""",
            """\
main: n_kv_max = 2048, n_batch = 2048, n_ubatch = 512, flash_attn = 0, is_pp_shared = 0, n_gpu_layers = 99

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |    128 |    4 |   1024 |    0.198 |  2590.47 |    3.445 |   148.60 |    3.643 |   281.10 |
""",
            """\
|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|   512 |    128 |   1024 |    0.480 |  1066.67 |    1.000 |   128.00 |
""",
            csv,
        ),
        *map(_first_lines, ("single-user", "server")),
        *(json.dumps(record).encode() for record in ([bench], vllm, sglang, latency, batched)),
        json.dumps(bench).encode() + b"\n" + json.dumps(bench).encode() + b"\n",
    ]


def turns() -> list[bytes]:
    """Turns of a conversation."""
    return list(
        _encoded(
            "new_tokens,output_tokens,edit_at\n1000,200,\n300,100,10\n",
            '[{"new_tokens": 1000, "output_tokens": 200}, [300, 100, 10], {"new_tokens": 1}]',
        )
    )


def traces() -> list[bytes]:
    """Requests as they arrive."""
    return list(
        _encoded(
            "arrival_s,prompt_tokens,output_tokens\n0,512,128\n0.5,1000,20\n1e1,3,4\n",
            "arrival_s,prompt_tokens,output_tokens,cached_tokens\n0,512,128,100\n2,5,5,0\n",
        )
    )
