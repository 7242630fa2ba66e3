"""Questions and faults that users of other calculators reported, where the right answer about memory is exact.

Each test names the public report. What a log prints holds to its last digit; what a report rounds, to its rounding.
"""

from __future__ import annotations

from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm import roofline
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.cache import CacheTypes
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.formats import packaged_encodings
from rooflinellm.specs.model import Attention, Block, GatedFFN, LayerGroup, ModelEntry

KIB, MIB, GIB = 2**10, 2**20, 2**30
ROOMY = "64TiB,1TB/s,100TFLOP/s@fp16,100TFLOP/s@bf16"


def memory(model: str, context: int, **request: Any) -> Any:
    """Memory for one sequence, or `batch`, of so many tokens of configured context."""
    given = {"engine": "llama.cpp", "prompt_tokens": 0, "output_tokens": 1, "context_limit": context} | request
    return rl.estimate(model, ROOMY, **given).memory


# ---------------------------------------------------------------------------------------------------- recurrent state


@pytest.mark.parametrize("context", [256, 8192, 131_072])
def test_state_is_of_a_sequence_not_of_a_token(context: int) -> None:
    # lmstudio-ai/lmstudio-bug-tracker issue 1862: 4 cells of Qwen3.6 27B, 48 layers of 48 x 128 x 128 elements and 3
    # columns of 2 x 16 x 128 + 48 x 128 that wait for the convolution, in 32 bits.
    assert memory("qwen3.6-27b", context, batch=4).state_bytes == 598.5 * MIB


@pytest.mark.parametrize(
    ("model", "printed"),
    [
        ("qwen3.5-9b", 50.251),  # lmstudio-ai/lmstudio-bug-tracker issue 1563
        ("qwen3.6-27b", 149.712),  # ggml-org/llama.cpp issue 24541
    ],
)
def test_a_checkpoint_is_the_state_and_a_header(model: str, printed: float) -> None:
    header = printed * MIB - memory(model, 8192).state_bytes
    assert 0 < header < 0.1 * MIB


def test_copies_of_state_to_roll_back_to() -> None:
    one, three = (memory("qwen3.8-27b", 8192, options=rl.Options(state_copies=copies)) for copies in (1, 3))
    assert (one.state_bytes, three.state_bytes) == (149.625 * MIB, 3 * 149.625 * MIB)
    assert three.total_bytes - one.total_bytes == 2 * 149.625 * MIB
    assert three.kv_by_kind == one.kv_by_kind
    for wrong in (0, -1, 1.5, None):
        with pytest.raises(InvalidRequest, match="state_copies"):
            memory("qwen3.8-27b", 8192, options=rl.Options(state_copies=wrong))


def test_pages_of_state_and_cache_in_a_hybrid() -> None:
    # vllm-project/vllm issue 40691, Qwen3.5 27B: a log of 290,864 tokens, and of room for 33.04 requests of 32,768.
    # Pages are of one size: the state of a layer, or as many tokens of a layer as hold it, in multiples of 16. Each of
    # the 16 layers that attend shares its pages with three that do not.
    found = memory("qwen3.5-27b", 32_768, engine="vllm", weights="hf:bf16")
    state, token = found.state_bytes // 48, found.kv_allocated_bytes // 32_768 // 16
    assert (state, token) == (3_207_168, 4096)
    page = -(-state // (16 * token)) * 16
    assert (page, 290_864 % page) == (784, 0)
    request = -(-32_768 // page) + 3
    held = 4 * (290_864 // page)
    assert held / request < 33.05
    assert (held + 3) / request >= 33.04


# ------------------------------------------------------------------------------------------------------------- caches


def test_8_bit_cache_is_8_5_bits() -> None:
    # ggml-org/llama.cpp issue 11200, Qwen2.5 Coder 32B: keys and values of 2,176 MiB each.
    assert memory("qwen2.5-coder-32b", 32_768, kv="q8_0").kv_allocated_bytes == 4352 * MIB


@pytest.mark.parametrize(
    ("model", "context", "gib"),
    [
        # unslothai/unsloth pull request 4757; grouped heads would make them 2.08 and 6.67.
        ("deepseek-v3.1", 163_840, 10.72),
        ("kimi-k2.5", 262_144, 17.16),
    ],
)
def test_latents_are_more_than_grouped_heads_say(model: str, context: int, gib: float) -> None:
    found = memory(model, context)
    assert round(found.kv_allocated_bytes / GIB, 2) == gib
    assert found.kv_by_kind["latent"] == found.kv_allocated_bytes


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_a_latent_is_kept_once_with_its_positions(engine: str) -> None:
    # LMCache/LMCache pull request 694: 2 x 512 elements are wrong, (512 + 64) right.
    assert memory("deepseek-v3", 16_384, engine=engine).kv_allocated_bytes == 16_384 * 70_272
    assert 61 * 2 * 512 * 2 == 124_928 > 70_272


def test_windows_do_not_hold_the_context() -> None:
    # ollama/ollama pull request 16958, Gemma 4 26B-A4B: 3.00 GB, not 56.37; 1,536 cells in 25 layers, all in 5.
    found = memory("gemma-4-26b-a4b", 131_072)
    assert found.kv_by_kind["sliding"] == 25 * 1536 * 2 * 8 * 256 * 2
    assert found.kv_by_kind["full"] == 5 * 131_072 * 2 * 2 * 512 * 2
    assert round(found.kv_allocated_bytes / 1e9, 2) == 3.0


def test_convolutions_among_attention_have_no_cache() -> None:
    # gpustack/gguf-parser-go issue 31, LFM2 1.2B: 6 of 16 layers.
    assert memory("lfm2-1.2b", 32_768).kv_allocated_bytes == 384 * MIB


def test_a_block_of_a_hybrid() -> None:
    # jundot/omlx issue 2725, Qwen3.8 27B: 64 tokens are 4 MiB, not the 16 of all 64 layers.
    assert 64 * rl.model("qwen3.8-27b").kv_bytes_per_token("f16") == 4 * MIB


def test_growth_of_gemma4() -> None:
    # raullenchai/Rapid-MLX pull request 1423, 12B: 16 KiB a token beyond the windows; all layers alike would be 384.
    short, long = (memory("gemma-4-12b", context) for context in (16_384, 65_536))
    assert long.kv_allocated_bytes - short.kv_allocated_bytes == (65_536 - 16_384) * 16 * KIB


def test_a_pool_of_the_largest_context() -> None:
    # redhat-performance/configiq issue 112, Gemma 4 31B: vLLM holds 626,949 tokens in 64.68 GiB. At the model's own
    # context, with chunks of 8,192 tokens; 80 KiB of full attention a token, the rest are windows.
    found = memory("gemma-4-31b", 262_144, engine="vllm", weights="hf:bf16", prefill_chunk=8192)
    assert found.kv_by_kind["full"] == 262_144 * 80 * KIB
    assert found.kv_allocated_bytes / 262_144 == pytest.approx(64.68 * GIB / 626_949, rel=0.001)


def test_what_remains_for_the_cache() -> None:
    # vllm-project/vllm issue 10517, Llama 3.1 8B: 23,648 tokens in 2.89 GiB; weights of 14.9888 GiB, which are the
    # model's and a table of 131,072 x 128 angles in 16 bits.
    found = memory("llama-3.1-8b", 23_648, engine="vllm", weights="hf:bf16")
    assert round(found.kv_allocated_bytes / GIB, 2) == 2.89
    assert round((found.resident_weight_bytes + 131_072 * 128 * 2) / GIB, 4) == 14.9888


def test_a_table_of_the_scaling_book() -> None:
    # jax-ml/scaling-book, inference.md: LLaMA 2 13B in 16 bits, 8,192 tokens, 8 devices of 0.82 TB/s.
    found = memory("llama-2-13b", 8192, engine="vllm", weights="hf:bf16")
    assert round(found.kv_allocated_bytes / 1e9, 1) == 6.7
    assert round(found.resident_weight_bytes / 1e9) == 26
    for batch, milliseconds in ((1, 4.98), (8, 12.13), (16, 20.30), (32, 36.65)):
        seconds = roofline.time_s(0.0, 26e9 + batch * 6.7e9, 1e15, 8 * 0.82e12)
        assert 1e3 * seconds == pytest.approx(milliseconds, abs=0.0051)


# -------------------------------------------------------------------------------------------------- weights, elements


@pytest.mark.parametrize(("tied", "total"), [(True, 15_191_712), (False, 24_407_712)])
def test_a_tied_head_is_counted_once(tied: bool, total: int) -> None:
    # karpathy/llama2.c issue 378: a checkpoint with both copies counts 32,000 x 288 more.
    block = Block(
        mixer=Attention(kind="attention", heads=6, kv_heads=6, head_dim=48),
        ffn=GatedFFN(kind="gated", intermediate=768),
    )
    entry = ModelEntry(
        id="stories-15m",
        name="Stories 15M",
        family="llama",
        hidden=288,
        vocabulary=32_000,
        tied_embeddings=tied,
        max_context_tokens=256,
        native_format="hf:fp32",
        layers=(LayerGroup(pattern=(block,), repeat=6),),
    )
    assert ModelSpec(entry).total_params == total


@pytest.mark.parametrize(("encoding", "width"), [("nvfp4", 0.5625), ("nvfp4_g16", 0.5625), ("mxfp4", 0.53125)])
def test_4_bit_floats_have_scales(encoding: str, width: float) -> None:
    # Andyyyy64/whichllm pull request 99: 4 + 8/16 and 4 + 8/32 bits.
    found = packaged_encodings().encodings[encoding]
    assert found.block_bytes / found.block_elements == width


def test_an_8_bit_cache_type_is_a_block_of_32() -> None:
    types = CacheTypes.parse("q8_0", packaged_encodings())
    assert (types.key.block_elements, types.key.block_bytes) == (32, 34)


# ------------------------------------------------------------------------------------------------------------- devices


@pytest.mark.parametrize("chip", ["apple-m3-pro-14c", "apple-m3-max-30c"])
def test_working_set_of_a_mac(chip: str) -> None:
    # ollama/ollama issue 2370: recommendedMaxWorkingSetSize of a MacBook Pro of 36 GiB, in MB.
    usable = rl.system(f"{chip}@36GiB").device.usable_bytes
    assert usable is not None
    assert round(usable / 1e6, 2) == 28_991.03


def test_working_set_of_a_large_mac() -> None:
    # ggml-org/llama.cpp issue 1870: M2 Max of 64 GiB stops at 47 to 49 GB, as GiB 48.
    assert rl.system("apple-m2-max-38c@64GiB").device.usable_bytes == 48 * GIB


@pytest.mark.parametrize(("device", "mib"), [("nvidia-titan-rtx", 24_219), ("nvidia-quadro-rtx-8000", 48_601)])
def test_an_advertised_capacity_is_binary_and_less_a_reserve(device: str, mib: int) -> None:
    # lambdal/lambda-tensorflow-benchmark pull request 10: what nvidia-smi shows of 24 and 48 GB.
    found = rl.hardware(device)
    assert found.memory_bytes is not None
    assert found.usable_bytes is not None
    assert found.usable_bytes == pytest.approx(mib * MIB, rel=0.001)
    assert found.memory_bytes in (24 * GIB, 48 * GIB)


def test_units_of_capacity() -> None:
    # unslothai/unsloth pull request 9570: 45 GiB were shown as 45 GB of a card of 48 GB.
    binary, decimal = (rl.hardware(f"{size},1TB/s,100TFLOP/s@fp16").memory_bytes for size in ("45GiB", "48.3GB"))
    assert (binary, decimal) == (48_318_382_080, 48_300_000_000)
