"""Golden values: parameters, bytes, FLOPs and times of real models, to the unit where they are whole numbers.

Each number was derived twice outside this library, from the shapes in the models' config.json (the parameter totals are
also those that Hugging Face counts in the safetensors files): as a closed form for a layer, and as a list of tensors.
Conventions: attention is causal; a window counts the newest token itself; `cached` tokens stand in the cache before
the step, so that a decode step computes cached + 1 pairs and reads what is cached; prefill computes the logits of the
last position only. An ad hoc device stands for a real one of the same peak and bandwidth: it has no last-level cache
and no boost clock.
"""

from __future__ import annotations

from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm import roofline
from rooflinellm.operators import attention, experts, linear

ROOMY = "1TiB,1TB/s,1000TFLOP/s@bf16,1000TFLOP/s@fp16"
H100 = "640GiB,3350GB/s,989.4TFLOP/s@bf16"
A100 = "640GiB,2039GB/s,312TFLOP/s@bf16"
RTX_3090_INT8 = "640GiB,936.2GB/s,284.7TOPS@int8"

LLAMA_8B_STREAMED = 15_009_849_344  # 2 bytes x (8,030,261,248 parameters - 128,256 x 4,096 of the embedding)
LLAMA_8B_HEAD = 2 * 128_256 * 4096


def checkpoint(model: str, hardware: str = ROOMY, *, weights: str = "hf:bf16", **request: Any) -> Any:
    """A Hugging Face checkpoint: weights as published, cache in BF16."""
    return rl.estimate(model, hardware, weights=weights, engine="vllm", **request)


def decode_step(model: str, hardware: str = ROOMY, *, cached: int = 0, batch: int = 1, **request: Any) -> Any:
    """One step on top of so many cached tokens in each sequence."""
    found = checkpoint(model, hardware, prompt_tokens=0, context_tokens=cached, output_tokens=1, batch=batch, **request)
    return found.decode


def exactly(found: Any, expected: int) -> None:
    """The same whole number, as a whole number."""
    assert type(found) is int
    assert found == expected


def attends(row: Any) -> bool:
    """Attention proper, of whatever kind of layer: not the projections around it."""
    return row.name.startswith("attention") and row.name != "attention output"


# ----------------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.3-70b", 70_553_706_496),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("mixtral-8x7b", 46_702_792_704),
        ("gpt-oss-20b", 20_914_757_184),
        ("gemma-2-9b", 9_241_705_984),
    ],
)
def test_total_parameters(name: str, total: int) -> None:
    exactly(rl.model(name).total_params, total)


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("qwen3-30b-a3b", 3_041_656_832),
        ("mixtral-8x7b", 12_748_587_008),
        ("gpt-oss-20b", 3_607_142_400),
        # Dense: all matrices but the lookup of an embedding that is not the head, and no norm vector.
        ("llama-3.1-8b", 8_030_261_248 - 128_256 * 4096 - (2 * 32 + 1) * 4096),
        ("llama-3.1-70b", 70_553_706_496 - 128_256 * 8192 - (2 * 80 + 1) * 8192),
        ("llama-3.3-70b", 70_553_706_496 - 128_256 * 8192 - (2 * 80 + 1) * 8192),
        ("qwen3-8b", 8_190_735_360 - 151_936 * 4096 - (2 * 36 + 1) * 4096 - 36 * 2 * 128),
        ("gemma-2-9b", 9_241_705_984 - (4 * 42 + 1) * 3584),
    ],
)
def test_parameters_multiplied_for_each_token(name: str, active: int) -> None:
    exactly(rl.model(name).active_params, active)


# --------------------------------------------------------------------------------------------------------- weight bytes


@pytest.mark.parametrize(
    ("name", "weights", "engine", "size"),
    [
        ("llama-3.1-70b", "Q4_K_M", "llama.cpp", 42_512_531_712),
        ("llama-3.3-70b", "Q4_K_M", "llama.cpp", 42_512_531_712),
        ("qwen3-8b", "Q4_K_M", "llama.cpp", 5_021_827_072),
        ("llama-3.1-8b", "bf16", "vllm", 16_060_522_496),
        ("gpt-oss-20b", "mxfp4", "vllm", 13_761_264_768),
    ],
)
def test_resident_weight_bytes(name: str, weights: str, engine: str, size: int) -> None:
    found = rl.estimate(name, ROOMY, weights=weights, engine=engine)
    exactly(found.memory.resident_weight_bytes, size)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("llama-3.1-8b", LLAMA_8B_STREAMED),
        ("llama-3.1-70b", 139_006_066_688),
        ("llama-3.3-70b", 139_006_066_688),
        # 8 of 128 experts of 9,437,184 bytes in each of 48 layers, and 2,459,856,896 beside experts and embedding.
        ("qwen3-30b-a3b", 6_083_735_552),
        # The embedding is the head: nothing is left out.
        ("gemma-2-9b", 2 * 9_241_705_984),
        ("gemma-3-27b", 54_018_692_608),
    ],
)
def test_bytes_of_a_decode_step_at_an_empty_cache(name: str, size: int) -> None:
    exactly(decode_step(name).read_bytes, size)


# ---------------------------------------------------------------------------------------------------------------- cache


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("llama-3.3-70b", 327_680),
        ("qwen3-8b", 147_456),
        ("qwen3-30b-a3b", 98_304),
        ("mixtral-8x7b", 32 * 8 * 2 * 128 * 2),
        ("gpt-oss-20b", 24 * 8 * 2 * 64 * 2),
        ("gemma-2-9b", 42 * 8 * 2 * 256 * 2),
    ],
)
@pytest.mark.parametrize("kv", ["f16", "bf16", "fp16"])
def test_cache_bytes_of_a_token(name: str, kv: str, size: int) -> None:
    exactly(rl.model(name).kv_bytes_per_token(kv), size)


@pytest.mark.parametrize(
    ("kv", "size"),
    [
        # Blocks of 32: q8_0 34, q5_1 24, q5_0 22, q4_1 20, q4_0 and iq4_nl 18 bytes.
        ("f32", 262_144),
        ("q8_0", 131_072 * 34 // 64),
        ("q5_1", 131_072 * 24 // 64),
        ("q5_0", 131_072 * 22 // 64),
        ("q4_1", 131_072 * 20 // 64),
        ("q4_0", 131_072 * 18 // 64),
        ("iq4_nl", 131_072 * 18 // 64),
        ("fp8", 65_536),
        ("q8_0/f16", 65_536 * 34 // 64 + 65_536),
        ("f16/q4_0", 65_536 + 65_536 * 18 // 64),
    ],
)
def test_cache_bytes_by_type(kv: str, size: int) -> None:
    exactly(rl.model("llama-3.1-8b").kv_bytes_per_token(kv), size)


def test_a_quantised_cache_of_32768_tokens() -> None:
    found = rl.estimate("llama-3.1-8b", ROOMY, kv="q8_0", prompt_tokens=32_768, output_tokens=0, context_limit=32_768)
    exactly(found.memory.kv_allocated_bytes, 2_281_701_376)
    exactly(found.memory.kv_occupied_bytes, 2_281_701_376)


def test_pages_of_16_tokens_are_held_whole() -> None:
    found = checkpoint("llama-3.1-8b", prompt_tokens=1000, output_tokens=0)
    exactly(found.memory.kv_allocated_bytes, 132_120_576)
    exactly(found.memory.kv_occupied_bytes, 1000 * 131_072)


def test_windows_hold_no_more_than_themselves() -> None:
    # Gemma 3 27B, 32,768 tokens: 10 full layers, 52 that keep 1,024 tokens.
    found = checkpoint("gemma-3-27b", prompt_tokens=32_768, output_tokens=0)
    exactly(found.memory.kv_occupied_bytes, 3_120_562_176)


# ------------------------------------------------------------------------------------------------------ pairs and FLOPs


def test_pairs_of_a_windowed_prefill() -> None:
    exactly(attention.causal_pairs(8192, 0, 1024), 7_864_832)


@pytest.mark.parametrize(
    ("name", "prompt", "cached", "flops", "of_attention"),
    [
        ("llama-3.1-8b", 4096, 0, 61_574_775_570_432, 4_399_120_252_928),
        ("llama-3.1-70b", 8192, 0, 1_209_475_629_318_144, 87_971_667_640_320),
        ("llama-3.3-70b", 8192, 0, 1_209_475_629_318_144, 87_971_667_640_320),
        ("qwen3-8b", 512, 8192, 9_665_072_070_656, 2_551_361_568_768),
        ("gpt-oss-20b", 4096, 0, 26_557_758_947_328, 1_751_151_280_128),
        ("qwen3-30b-a3b", 2048, 0, 12_834_789_916_672, 1_650_072_748_032),
        ("mixtral-8x7b", 2048, 0, 52_781_652_115_456, 1_100_048_498_688),
    ],
)
@pytest.mark.parametrize("chunk", [None, 300, 512])
@pytest.mark.parametrize("depth", ["context_tokens", "cached_tokens"])
def test_prefill_flops(
    name: str, prompt: int, cached: int, flops: int, of_attention: int, chunk: int | None, depth: str
) -> None:
    request = {"prompt_tokens": prompt, "output_tokens": 0, "prefill_chunk": chunk}
    if depth == "context_tokens":
        request |= {"context_tokens": cached}
    else:
        request |= {"prompt_tokens": prompt + cached, "cached_tokens": cached}
    prefill = checkpoint(name, **request).prefill
    exactly(prefill.flops, flops)
    exactly(sum(row.flops for row in prefill.operators if attends(row)), of_attention)


def test_chunks_read_the_weights_again_and_the_head_once() -> None:
    # 16 chunks of 2,048 tokens: 16 passes without the head, and the head.
    prefill = checkpoint("llama-3.1-8b", prompt_tokens=32_768, output_tokens=0, prefill_chunk=2048).prefill
    exactly(sum(row.read_bytes for row in prefill.operators if not attends(row)), 224_397_492_224)
    exactly(prefill.read_bytes, 224_397_492_224 + 131_072 * sum(range(0, 32_768, 2048)))


# ------------------------------------------------------------------------------------------------------ bytes of a step


@pytest.mark.parametrize(
    ("batch", "cached", "size"),
    [(1, 0, LLAMA_8B_STREAMED), (1, 8192, 16_083_591_168), (32, 2048, 23_599_783_936)],
)
def test_bytes_of_a_decode_step(batch: int, cached: int, size: int) -> None:
    exactly(decode_step("llama-3.1-8b", cached=cached, batch=batch).read_bytes, size)


def test_bytes_of_a_decode_step_beyond_the_window() -> None:
    # Gemma 3 27B, 32,768 cached tokens of 8,192 bytes a layer: weights, 10 layers at full length, 52 at 1,024.
    exactly(decode_step("gemma-3-27b", cached=32_768).read_bytes, 57_139_254_784)


def test_flops_of_a_decode_step() -> None:
    # Llama 3.1 8B, 32 sequences of 2,048 cached tokens.
    exactly(decode_step("llama-3.1-8b", cached=2048, batch=32).flops, 514_674_655_232)


# -------------------------------------------------------------------------------------------------------------- experts


@pytest.mark.parametrize(
    ("count", "active", "tokens", "expected"),
    [
        (128, 8, 2, 15.5),
        (128, 8, 32, 111.77103534374396),
        (8, 2, 4, 5.46875),
        (256, 8, 64, 222.4424876855104),
        (512, 10, 64, 367.11268783684136),
        (32, 4, 8, 21.004514694213867),
    ],
)
def test_experts_that_uniform_routing_touches(count: int, active: int, tokens: int, expected: float) -> None:
    assert experts.expected_distinct(count, active, tokens) == pytest.approx(expected, rel=1e-9)
    touched = 0.0
    for _ in range(tokens):
        touched += (count - touched) * active / count
    assert touched == pytest.approx(expected, rel=1e-9)
    assert experts.expected_distinct(count, active, tokens, skew=1.0) == pytest.approx(active, rel=1e-12)


def test_uneven_routing_touches_fewer_experts() -> None:
    # Half of 128 experts take 75 % of the load: two groups of 64, of which a token chooses 6 and 2.
    uneven = experts.expected_distinct(64, 6, 4) + experts.expected_distinct(64, 2, 4)
    assert uneven == pytest.approx(28.4637451171875, rel=1e-9)
    assert uneven < experts.expected_distinct(128, 8, 4)


# ------------------------------------------------------------------------------ ridge points, critical batch, intensity


@pytest.mark.parametrize(
    ("hardware", "weights", "engine", "ridge"),
    [
        (H100, "hf:bf16", "vllm", 295.34328358208955),
        (A100, "hf:bf16", "vllm", 153.01618440411966),
    ],
)
def test_ridge_points(hardware: str, weights: str, engine: str, ridge: float) -> None:
    found = rl.estimate("llama-3.1-8b", hardware, weights=weights, engine=engine)
    assert found.prefill.ridge_point == pytest.approx(ridge, rel=1e-9)
    assert found.decode.ridge_point == pytest.approx(ridge, rel=1e-9)


def test_ridge_point_of_8_bit_integers() -> None:
    device = rl.hardware(RTX_3090_INT8)
    ridge = roofline.ridge_point(device.peak("int8.int32"), device.memory_bandwidth_bytes_per_s)
    assert ridge == pytest.approx(304.101687673574, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "key", "ridge"),
    [("h100-sxm", "bf16.fp32", 295.34328358208955), ("rtx-3090", "int8.int32", 304.101687673574)],
)
def test_ridge_points_of_entries(name: str, key: str, ridge: float) -> None:
    # Data sheets round: 989.4 and 989 TFLOP/s, 936 and 936.2 GB/s.
    device = rl.hardware(name)
    found = roofline.ridge_point(device.peak(key), device.memory_bandwidth_bytes_per_s)
    assert found == pytest.approx(ridge, rel=2e-3)


def test_critical_batch_of_a_large_layer() -> None:
    assert linear.critical_tokens(989.4e12, 3350e9, 2) == pytest.approx(295.34328358208955, rel=1e-9)


@pytest.mark.parametrize(("width", "intensity"), [(2.0, 4.0), (1.0625, 7.529411764705882)])
def test_intensity_of_grouped_attention_in_decode(width: float, intensity: float) -> None:
    # Llama 3.1 8B: 4 query heads to a key/value head; FLOPs of a pair over the bytes of its cached token.
    read = attention.decode_read_bytes(1, 1, 8, 128, 128, width, width)
    assert attention.flops_per_pair(32, 128, 128) / read == pytest.approx(intensity, rel=1e-9)


def test_intensity_of_a_decode_step() -> None:
    found = decode_step("llama-3.1-8b", cached=2048, batch=32)
    assert found.arithmetic_intensity == pytest.approx(21.808447764934655, rel=1e-9)


def crossing(xs: tuple[int, int], gaps: tuple[float, float]) -> float:
    """Where a straight line through two points is 0."""
    return xs[0] - gaps[0] * (xs[1] - xs[0]) / (gaps[1] - gaps[0])


def gap(cached: int, batch: int) -> float:
    """Seconds that compute needs more than memory for a decode step of Llama 3.1 8B on an H100."""
    found = decode_step("llama-3.1-8b", H100, cached=cached, batch=batch)
    return found.flops / 989.4e12 - found.read_bytes / 3350e9


def test_batch_from_which_decode_is_bound_by_compute() -> None:
    # 128 cached tokens a sequence: (P / b) / (FLOPs / peak - cache / b) sequences.
    found = crossing((400, 500), (gap(128, 400), gap(128, 500)))
    assert found == pytest.approx(437.96648418094117, rel=1e-6)
    assert decode_step("llama-3.1-8b", H100, cached=128, batch=437).bound == "memory"
    assert decode_step("llama-3.1-8b", H100, cached=128, batch=438).bound == "compute"


@pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")
def test_context_from_which_no_batch_is_bound_by_compute() -> None:
    # A sequence's own FLOPs against its own cache, weights shared by infinitely many left out: 393.06 tokens.
    def own(cached: int) -> float:
        return gap(cached, 2) - gap(cached, 1)

    assert crossing((300, 400), (own(300), own(400))) == pytest.approx(393.06209016393444, rel=1e-6)
    assert decode_step("llama-3.1-8b", H100, cached=392, batch=10**6).bound == "compute"
    assert decode_step("llama-3.1-8b", H100, cached=394, batch=10**6).bound == "memory"


# ---------------------------------------------------------------------------------------------------------------- times


def test_ideal_prefill_bound_by_compute() -> None:
    found = checkpoint("llama-3.1-8b", H100, prompt_tokens=4096, output_tokens=1)
    assert found.prefill.bound == "compute"
    assert found.prefill.time_s.ideal == pytest.approx(0.0622344608555003, rel=1e-9)
    assert found.ttft_s.ideal == pytest.approx(0.0622344608555003, rel=1e-9)


def test_ideal_prefill_bound_by_memory() -> None:
    found = checkpoint("llama-3.1-8b", H100, prompt_tokens=64, output_tokens=1)
    assert found.prefill.arithmetic_intensity < found.prefill.ridge_point
    assert found.prefill.time_s.ideal == pytest.approx(0.004480552042985074, rel=1e-9)


def test_a_step_of_a_batch_in_the_scaling_book() -> None:
    # "How to scale your model", inference: 26e9 bytes of weights and 6.7e9 of cache for each of 240, on 6.56e12 byte/s.
    seconds = roofline.time_s(0.0, 26e9 + 240 * 6.7e9, 1e15, 8 * 8.2e11)
    assert seconds == pytest.approx(0.24908536585365854, rel=1e-9)


@pytest.mark.parametrize("where", ["context_tokens", "prompt_tokens"])
def test_decode_over_a_growing_cache(where: str) -> None:
    # Llama 3.1 8B, 499 steps from 40,000 cached tokens on: the sum of (weights + cached x 131,072) / bandwidth.
    request = {"prompt_tokens": 0, "context_tokens": 40_000, "output_tokens": 499}
    if where == "prompt_tokens":
        request = {"prompt_tokens": 40_000, "output_tokens": 500}
    decode = checkpoint("llama-3.1-8b", H100, **request).decode
    assert decode.time_s.ideal == pytest.approx(3.0216112745456716, rel=1e-9)


def test_decode_across_a_window() -> None:
    # Gemma 3 27B, 2,000 steps from 600 cached tokens on: 52 layers fill their window of 1,024 on the way.
    request = {"prompt_tokens": 0, "context_tokens": 600, "output_tokens": 2000}
    decode = checkpoint("gemma-3-27b", H100, **request).decode
    assert decode.time_s.ideal == pytest.approx(32.57715861779104, rel=1e-9)
