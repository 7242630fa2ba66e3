"""Cache sizes that llama.cpp and its fork ik_llama.cpp have logged ("KV buffer size"), to the printed digit.

llama.cpp pads a sliding-window pool to 256 cells, and one pool serves all sequences: gpt-oss 768 = pad(128 + 512),
256 = pad(128 + 128), 1024 = pad(4 x 128 + 512). ik_llama.cpp keeps every token of every layer (`swa_full`). Rows whose
source says only "log" are log lines in public GitHub issues and documents. A configured context is that of one
sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import rooflinellm as rl

MIB = 2**20
IK = "ikawrakow/ik_llama.cpp github-data"


@dataclass(frozen=True)
class Logged:
    """One logged cache: the part of it that was printed, in MiB, and the settings behind it."""

    model: str
    kind: str
    mib: float
    digits: int
    source: str
    context: int
    kv: str = "f16"
    sequences: int = 1
    ubatch: int | None = None
    full: bool = False

    def __str__(self) -> str:
        return f"{self.model}-{self.kind}-{self.context}x{self.sequences}-{self.kv.replace('/', '+')}"


TARGETS = [
    Logged("qwen3-30b-a3b", "full", 384.0, 2, f"{IK}/issues/380", 4096),
    Logged("qwen3-30b-a3b", "full", 3072.0, 2, f"{IK}/pull_requests/370", 32768),
    Logged("gpt-oss-20b", "sliding", 18.0, 2, "log, n_ctx 131072, n_ubatch 512: 768 cells, 12 layers", 131072),
    Logged(
        "gpt-oss-20b",
        "sliding",
        3.19,
        2,
        "ggml-org/llama.cpp docs/backend/snapdragon: n_ubatch 128, 256 cells, 12 layers",
        8192,
        kv="q8_0",
        ubatch=128,
    ),
    Logged("gpt-oss-120b", "sliding", 36.0, 2, "log: 4 sequences, 1024 cells, 18 layers", 32768, sequences=4),
    Logged("gemma-2-2b", "sliding", 416.0, 2, "log: 4 sequences, 8192 cells in all, 13 layers", 2048, sequences=4),
    Logged("gemma-2-2b", "full", 416.0, 2, "log (ollama): 8192 cells, 13 layers", 8192),
    Logged("gemma-2-2b", "sliding", 260.0, 2, "log (ollama): 5120 = 4096 + 1024 cells, 13 layers", 8192, ubatch=1024),
    Logged("gemma-3-4b", "full", 160.0, 2, "log (ollama): 8192 cells, 5 of 34 layers", 8192),
    Logged("gemma-3-4b", "sliding", 232.0, 2, "log (ollama): 2048 = 1024 + 1024 cells, 29 layers", 8192, ubatch=1024),
    Logged("gemma-3-27b", "total", 63488.0, 2, f"{IK}/issues/539", 131072, full=True),
    Logged("qwen3-235b-a22b", "full", 9212.0, 2, f"{IK}/issues/437", 65536, kv="q8_0/f16"),
    Logged("qwen3-235b-a22b", "full", 3196.0, 2, f"{IK}/issues/437", 32768, kv="q8_0"),
    Logged("qwen3-235b-a22b", "full", 1151.5, 2, f"{IK}/issues/389", 8192, kv="q8_0/f16"),
    Logged("qwen3-235b-a22b", "full", 6016.0, 2, f"{IK}/issues/629", 32768),
    Logged("qwen3-235b-a22b", "full", 1598.0, 2, f"{IK}/discussions/357", 16384, kv="q8_0"),
    Logged("qwen3-32b", "full", 2244.0, 2, f"{IK}/issues/503", 16896, kv="q8_0"),
    Logged("llama-2-13b", "full", 400.0, 2, f"{IK}/pull_requests/328", 512),
    Logged("llama-3.2-1b", "full", 1024.0, 2, "log (ollama)", 32768),
]


def estimate(target: Logged, kv: str) -> Any:
    return rl.estimate(
        target.model,
        "64TiB,1TB/s,100TFLOP/s@fp16",
        engine="llama.cpp",
        kv=kv,
        prompt_tokens=0,
        output_tokens=1,
        batch=target.sequences,
        context_limit=target.context,
        prefill_chunk=target.ubatch,
        options=rl.Options(swa_full=target.full),
    )


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_logged_cache(target: Logged) -> None:
    memory = estimate(target, target.kv).memory
    size = memory.kv_allocated_bytes if target.kind == "total" else memory.kv_by_kind[target.kind]
    assert round(size / MIB, target.digits) == target.mib
    assert sum(memory.kv_by_kind.values()) == memory.kv_allocated_bytes


@pytest.mark.parametrize(
    ("model", "context", "kv", "ubatch", "keys", "values"),
    [
        # Logs print keys and values apart as well.
        ("qwen3-30b-a3b", 4096, "f16", None, 192.0, 192.0),
        ("qwen3-30b-a3b", 32768, "f16", None, 1536.0, 1536.0),
        ("qwen3-235b-a22b", 65536, "q8_0/f16", None, 3196.0, 6016.0),
        ("qwen3-235b-a22b", 8192, "q8_0/f16", None, 399.5, 752.0),
        ("qwen3-32b", 16896, "q8_0", None, 1122.0, 1122.0),
    ],
)
def test_keys_and_values_apart(
    model: str, context: int, kv: str, ubatch: int | None, keys: float, values: float
) -> None:
    # A cache in two types differs from one in a single type by the difference of one half: K/V - K/K = V(V) - V(K).
    first, last = kv.split("/")[0], kv.split("/")[-1]
    both = {
        name: estimate(Logged(model, "full", 0, 0, "", context, ubatch=ubatch), name).memory.kv_by_kind["full"]
        for name in {f"{first}/{first}", f"{last}/{last}", kv}
    }
    assert both[f"{first}/{first}"] == 2 * keys * MIB
    assert both[f"{last}/{last}"] == 2 * values * MIB
    assert both[kv] == (keys + values) * MIB


def test_a_pool_shared_by_four_sequences_is_not_four_pools() -> None:
    # Apart, each sequence's pool is pad(128 + 512) = 768 cells; together they share pad(4 x 128 + 512) = 1024.
    target = Logged("gpt-oss-20b", "sliding", 24.0, 2, "", 32768, sequences=4)
    shared = estimate(target, "f16").memory.kv_by_kind
    apart = rl.estimate(
        "gpt-oss-20b",
        "1TiB,1TB/s,100TFLOP/s@fp16",
        batch=4,
        context_limit=32768,
        options=rl.Options(kv_unified=False),
    ).memory.kv_by_kind
    assert shared["sliding"] == 24 * MIB
    assert apart["sliding"] == 4 * 18 * MIB
    assert apart["full"] == shared["full"] == 4 * 32768 * 12 * 2048


def test_a_short_context_needs_no_more_than_itself() -> None:
    # 500 tokens of context are padded to 512 cells, fewer than 128 + 512.
    memory = estimate(Logged("gpt-oss-20b", "sliding", 0, 0, "", 500), "f16").memory
    assert memory.kv_by_kind["sliding"] == memory.kv_by_kind["full"] == 12 * 512 * 2048


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma-2-9b", "gemma-3-27b"])
def test_swa_full_keeps_every_token_of_every_layer(name: str) -> None:
    memory = estimate(Logged(name, "total", 0, 0, "", 65536, full=True), "f16").memory
    assert memory.kv_allocated_bytes == 65536 * rl.model(name).kv_bytes_per_token("f16")


def test_blocks_of_vllm() -> None:
    # vllm-project/vllm issue 10517: Llama 3.1 8B, 1,952 blocks of 16 tokens in 3.81 GiB.
    memory = rl.estimate(
        "llama-3.1-8b",
        "1TiB,1TB/s,100TFLOP/s@bf16",
        engine="vllm",
        prompt_tokens=0,
        output_tokens=1,
        context_limit=1952 * 16,
    ).memory
    assert round(memory.kv_allocated_bytes / 2**30, 2) == 3.81
    assert memory.kv_allocated_bytes == 1952 * 16 * 131_072
