"""Cache and state sizes that llama.cpp, its fork ik_llama.cpp and Ollama have logged, to the printed digit.

llama.cpp pads a sliding-window pool to 256 cells, and one pool serves all sequences: gpt-oss 768 = pad(128 + 512),
256 = pad(128 + 128), 1024 = pad(4 x 128 + 512). ik_llama.cpp keeps every token of every layer. Rows whose source says
only "log" are log lines in public GitHub issues and documents. A configured context is that of one sequence.

One line that is known is not here, as no option expresses it: 2,074 MiB for 16,384 cells of DeepSeek V3 (ik_llama.cpp
pull request 394, a file of llama.cpp in the fork, without flash attention) are 61 layers of a latent of 576 as keys and
the same 512 again as values. llama.cpp has stored the latent once since pull request 19067.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

import rooflinellm as rl

MIB = 2**20
IK = "ikawrakow/ik_llama.cpp github-data"


@dataclass(frozen=True)
class Logged:
    """One logged cache: the part of it that was printed, in MiB, and the settings behind it.

    `kind` is one of `kv_by_kind`, or ``total`` for the whole cache, or ``state`` for recurrent state.
    """

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
    engine: str = "llama.cpp"
    expanded: bool = False
    copies: int = 1

    def __str__(self) -> str:
        return f"{self.model}-{self.kind}-{self.context}x{self.sequences}-{self.kv.replace('/', '+')}"


# Where one pool serves four sequences, its sliding layers have room for 4 windows and one chunk.
LLAMA_CPP = [
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
    # Of 42 layers, 24 hold a cache: 20 of them sliding, with a window of 512.
    Logged("gemma-4-e4b", "sliding", 60.0, 2, "log (ollama): 1536 = 512 + 1024 cells", 8192, ubatch=1024),
    Logged("gemma-4-e4b", "sliding", 160.0, 2, "qualcomm/GenieX pull request 1346: swa_full", 4096, full=True),
    Logged("gemma-4-e4b", "full", 64.0, 2, "qualcomm/GenieX pull request 1346", 4096),
    # Of 35 layers, 15 hold a cache: 12 of them sliding.
    Logged("gemma-4-e2b", "full", 12.0, 2, "log: 3 layers", 2048),
    Logged("gemma-4-e2b", "full", 48.0, 2, "log: 4 sequences, 8192 cells in all", 2048, sequences=4),
    Logged("gemma-4-e2b", "sliding", 48.0, 2, "log: 4096 = 4 x 512 + 2048 cells", 32768, sequences=4, ubatch=2048),
    Logged("gemma-4-12b", "sliding", 1920.0, 2, "log: 6144 = 4 x 1024 + 2048 cells", 32768, sequences=4, ubatch=2048),
    Logged("gemma-4-12b", "full", 68.0, 2, "log: 4 sequences, 8192 cells in all", 2048, kv="q8_0", sequences=4),
    Logged("gemma-4-12b", "sliding", 765.0, 2, "log: 4608 = 4 x 1024 + 512 cells", 2048, kv="q8_0", sequences=4),
    Logged("qwen3.6-27b", "full", 4352.0, 2, "log: 131072 cells, 16 of 64 layers", 32768, kv="q8_0", sequences=4),
    Logged("qwen3.5-9b", "full", 4224.0, 2, "log: 135168 cells, 8 of 32 layers", 33792, sequences=4),
    Logged("qwen3.5-9b", "full", 256.0, 2, "log: 96 MiB on the host, 160 on the device", 8192),
    Logged("qwen3.8-27b", "full", 512.0, 2, "log: 16 of 64 layers, without the 32 MiB of the drafting module", 8192),
    Logged("qwen3.5-2b", "full", 384.0, 2, "log: 6 of 24 layers", 32768),
    Logged("qwen3.5-2b", "full", 204.0, 2, "log: 6 of 24 layers", 32768, kv="q8_0"),
    Logged("qwen3.5-2b", "full", 108.0, 2, "log: 6 of 24 layers", 32768, kv="q4_0"),
    Logged("nemotron-nano-12b-v2", "full", 192.0, 2, "log of DictaLM 3.0, the same shapes: 6 of 62 layers", 8192),
    # Keys of 16 x 192 and values of 16 x 128, from a file without the tensors that absorb: 8 streams of 2048 cells.
    Logged("deepseek-coder-v2-lite", "total", 4320.0, 2, "log: 27 layers", 2048, sequences=8, expanded=True),
]

OLLAMA = [
    Logged("gemma-2-2b", "full", 416.0, 2, "log: 8192 cells, 13 layers", 8192),
    Logged("gemma-2-2b", "sliding", 260.0, 2, "log: 5120 = 4096 + 1024 cells, 13 layers", 8192, ubatch=1024),
    Logged("gemma-3-4b", "full", 160.0, 2, "log: 8192 cells, 5 of 34 layers", 8192),
    Logged("gemma-3-4b", "sliding", 232.0, 2, "log: 2048 = 1024 + 1024 cells, 29 layers", 8192, ubatch=1024),
    Logged("llama-3.2-1b", "full", 1024.0, 2, "log", 32768),
]

IK_LLAMA_CPP = [
    Logged("qwen3-30b-a3b", "full", 384.0, 2, f"{IK}/issues/380", 4096),
    Logged("qwen3-30b-a3b", "full", 3072.0, 2, f"{IK}/pull_requests/370", 32768),
    Logged("gemma-3-27b", "total", 63488.0, 2, f"{IK}/issues/539", 131072),
    Logged("qwen3-235b-a22b", "full", 9212.0, 2, f"{IK}/issues/437", 65536, kv="q8_0/f16"),
    Logged("qwen3-235b-a22b", "full", 3196.0, 2, f"{IK}/issues/437", 32768, kv="q8_0"),
    Logged("qwen3-235b-a22b", "full", 1151.5, 2, f"{IK}/issues/389", 8192, kv="q8_0/f16"),
    Logged("qwen3-235b-a22b", "full", 6016.0, 2, f"{IK}/issues/629", 32768),
    Logged("qwen3-235b-a22b", "full", 1598.0, 2, f"{IK}/discussions/357", 16384, kv="q8_0"),
    Logged("qwen3-32b", "full", 2244.0, 2, f"{IK}/issues/503", 16896, kv="q8_0"),
    Logged("llama-2-13b", "full", 400.0, 2, f"{IK}/pull_requests/328", 512),
    Logged("bitnet-b1.58-2b-4t", "full", 300.0, 2, f"{IK}/issues/388", 4096),
    Logged("glm-4-32b-0414", "full", 1952.0, 2, f"{IK}/pull_requests/344: GLM-Z1 32B, the same shapes", 32768),
    # Latents: 512 + 64 elements in 61 layers.
    Logged("deepseek-r1", "latent", 1166.62, 2, f"{IK}/issues/437", 32768, kv="q8_0"),
    Logged("deepseek-r1", "latent", 1458.28, 2, f"{IK}/issues/437", 40960, kv="q8_0"),
    Logged("deepseek-r1", "latent", 137.25, 2, f"{IK}/issues/285 and 245", 2048),
    Logged("deepseek-r1", "latent", 72.91, 2, f"{IK}/issues/285", 2048, kv="q8_0"),
    Logged("deepseek-r1", "latent", 1098.0, 2, f"{IK}/issues/596", 16384),
    Logged("deepseek-r1", "latent", 583.31, 2, f"{IK}/issues/538", 16384, kv="q8_0"),
    Logged("deepseek-r1", "latent", 2196.0, 2, f"{IK}/discussions/258, twice", 32768),
    Logged("deepseek-r1", "latent", 5468.55, 2, f"{IK}/discussions/258", 153600, kv="q8_0"),
    Logged("deepseek-r1", "latent", 601.54, 2, f"{IK}/pull_requests/287", 16896, kv="q8_0"),
    Logged("deepseek-r1", "latent", 549.0, 2, f"{IK}/pull_requests/239", 8192),
    Logged("deepseek-v3", "latent", 549.0, 2, f"{IK}/issues/305", 8192),
    Logged("deepseek-v3", "latent", 1166.62, 2, f"{IK}/issues/455", 32768, kv="q8_0"),
    Logged("deepseek-v3", "latent", 2196.0, 2, f"{IK}/discussions/258", 32768),
    Logged("deepseek-v3", "latent", 72.91, 2, f"{IK}/discussions/393", 2048, kv="q8_0"),
    # Expanded: keys of 192 and values of 128 elements a head.
    Logged("deepseek-r1", "total", 9760.0, 2, f"{IK}/issues/285", 2048, expanded=True),
    Logged("deepseek-r1", "total", 2440.0, 2, f"{IK}/discussions/242", 512, expanded=True),
    Logged("deepseek-coder-v2-lite", "total", 135.0, 2, f"{IK}/issues/230", 512, expanded=True),
]

# In 32 bits; the convolutions' part and the recurrence's are printed together.
STATES = [
    Logged("qwen3.5-9b", "state", 50.25, 2, "log: 24 layers, 2.25 + 48.00", 8192),
    Logged("qwen3.5-35b-a3b", "state", 62.81, 2, "log: 30 layers, 2.81 + 60.00", 8192),
    Logged("nemotron-nano-12b-v2", "state", 143.94, 2, "log of DictaLM 3.0: 28 layers", 8192),
    Logged("qwen3.8-27b", "state", 448.88, 2, "log: 3 x 149.625, two to roll back to for two drafts", 8192, copies=3),
]

TARGETS = [
    *LLAMA_CPP,
    *(replace(target, engine="ollama") for target in OLLAMA),
    *(replace(target, engine="ik_llama.cpp") for target in IK_LLAMA_CPP),
    *STATES,
]


def estimate(target: Logged, kv: str) -> Any:
    return rl.estimate(
        target.model,
        "64TiB,1TB/s,100TFLOP/s@fp16",
        engine=target.engine,
        kv=kv,
        prompt_tokens=0,
        output_tokens=1,
        batch=target.sequences,
        context_limit=target.context,
        options=rl.Options(
            ubatch=target.ubatch,
            swa_full=target.full,
            mla="expanded" if target.expanded else None,
            state_copies=target.copies,
        ),
    )


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_logged_cache(target: Logged) -> None:
    memory = estimate(target, target.kv).memory
    printed = {"total": memory.kv_allocated_bytes, "state": memory.state_bytes, **memory.kv_by_kind}[target.kind]
    assert f"{printed / MIB:.{target.digits}f}" == f"{target.mib:.{target.digits}f}"
    assert sum(memory.kv_by_kind.values()) == memory.kv_allocated_bytes


@pytest.mark.parametrize(
    ("model", "context", "kv", "keys", "values"),
    [
        # Logs print keys and values apart as well; latents are those of caches that hold them expanded.
        ("qwen3-30b-a3b", 4096, "f16", 192.0, 192.0),
        ("qwen3-30b-a3b", 32768, "f16", 1536.0, 1536.0),
        ("qwen3-235b-a22b", 65536, "q8_0/f16", 3196.0, 6016.0),
        ("qwen3-235b-a22b", 8192, "q8_0/f16", 399.5, 752.0),
        ("qwen3-32b", 16896, "q8_0", 1122.0, 1122.0),
        ("gemma-3-27b", 131072, "f16", 31744.0, 31744.0),
        ("deepseek-r1", 2048, "f16", 5856.0, 3904.0),
        ("deepseek-r1", 512, "f16", 1464.0, 976.0),
        ("deepseek-coder-v2-lite", 512, "f16", 81.0, 54.0),
    ],
)
def test_keys_and_values_apart(model: str, context: int, kv: str, keys: float, values: float) -> None:
    # Either half in 32 bits is larger by what it takes in 16.
    target = Logged(model, "total", 0, 0, "", context, engine="ik_llama.cpp", expanded=model.startswith("deepseek"))
    first, last = kv.split("/")[0], kv.split("/")[-1]

    def size(types: str) -> int:
        return int(estimate(target, types).memory.kv_allocated_bytes)

    half = {"key": size(f"f32/{last}") - size(f"f16/{last}"), "value": size(f"{first}/f32") - size(f"{first}/f16")}
    width = {"f16": 1.0, "q8_0": 17 / 32}
    assert half["key"] * width[first] == keys * MIB
    assert half["value"] * width[last] == values * MIB
    assert size(kv) == (keys + values) * MIB


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
