"""Numbers of real cases, derived by hand beside the assertion: bytes, FLOPs, seconds and memory of the engine.

The golden values check totals; here stand the parts from which they come, in the formats and on the devices that people
use.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm.api.plans import Setup, settle
from rooflinellm.engine.evaluate import (
    attended_work,
    attention_busy,
    attention_work,
    expect,
    pass_busy,
    work,
    written_per_token,
)
from rooflinellm.engine.passes import Run
from rooflinellm.engine.request import Request
from rooflinellm.engine.stage_time import stage_time

MIB, GIB = 2**20, 2**30
ROOMY = "1TiB,600GB/s,1000TFLOP/s@fp16"


def row(phase: Any, name: str) -> Any:
    found = [each for each in phase.operators if each.name == name]
    assert len(found) == 1, [each.name for each in phase.operators]
    return found[0]


def attends(row: Any) -> bool:
    """Attention proper, of whatever kind of layer: not the projections around it."""
    return row.name.startswith("attention") and row.name != "attention output"


def step(model: str, hardware: str = ROOMY, *, cached: int = 0, **request: Any) -> Any:
    return rl.estimate(model, hardware, prompt_tokens=0, context_tokens=cached, output_tokens=1, **request)


# -------------------------------------------------------------------------------------------------------------- weights

# Llama 3.1 8B in Q4_K_M: blocks of 256 elements in 144 bytes (Q4_K) or 210 (Q6_K). Of 32 layers these 16 get more bits
# for values and down projections: the first four, the last four, and every third between (6, 9, 12 … 27).
Q4_K, Q6_K = 144, 210
DOWN = 4096 * 14336 // 256  # 229,376 blocks
VALUES = 4096 * 1024 // 256  # 16,384 blocks
TABLE = 128_256 * 4096 // 256  # 2,052,096 blocks


def test_feed_forward_bytes_of_a_mixed_format() -> None:
    decode = step("llama-3.1-8b").decode
    # 16 x 229,376 x 210 and 16 x 229,376 x 144; gate and up: 32 x 2 x 229,376 x 144.
    assert row(decode, "FFN down (q6_k)").read_bytes == 16 * DOWN * Q6_K == 770_703_360
    assert row(decode, "FFN down (q4_k)").read_bytes == 16 * DOWN * Q4_K == 528_482_304
    assert row(decode, "FFN gate and up").read_bytes == 64 * DOWN * Q4_K == 2_113_929_216


def test_all_bytes_of_a_mixed_format() -> None:
    found = step("llama-3.1-8b")
    attention = 32 * (2 * 4096 * 4096 // 256 + VALUES) * Q4_K + 16 * VALUES * (Q4_K + Q6_K)
    feed_forward = 64 * DOWN * Q4_K + 16 * DOWN * (Q4_K + Q6_K)
    norms = 65 * 4096 * 4
    rotary = 64 * 4  # frequency factors, which the file stores beside the parameters
    streamed = attention + feed_forward + norms + TABLE * Q6_K
    assert found.decode.read_bytes == streamed == 4_617_396_224
    # llama-bench prints 4.58 GiB for this file: the head in Q6_K, and the embedding in Q4_K, which is not streamed.
    assert found.memory.resident_weight_bytes == streamed + TABLE * Q4_K + rotary == 4_912_898_304


def test_a_mixture_reads_the_experts_it_chose() -> None:
    # Mixtral 8x7B in BF16, a layer: attention 2 x 4096^2 + 2 x 4096 x 1024, router 8 x 4096, two norms, and 2 of 8
    # experts of 3 x 4096 x 14336 = 176,160,768; then the final norm and a head of 32,000 x 4096.
    layer = 41_943_040 + 32_768 + 8_192 + 2 * 176_160_768
    found = step("mixtral-8x7b", weights="hf:bf16", engine="vllm")
    assert found.decode.read_bytes == 2 * (32 * layer + 4096 + 32_000 * 4096) == 25_497_706_496
    assert row(found.decode, "experts").read_bytes == 2 * 32 * 2 * 176_160_768
    # Resident are all 8 experts, and the embedding.
    layer += 6 * 176_160_768
    assert found.memory.resident_weight_bytes == 2 * (32 * layer + 4096 + 2 * 32_000 * 4096) == 2 * 46_702_792_704


def test_an_expert_of_mxfp4_carries_its_biases() -> None:
    # gpt-oss-20b: an expert is 3 matrices of 2880 x 2880 in blocks of 32 elements and 17 bytes, and 3 biases of 2880 in
    # BF16; 4 of 32 in each of 24 layers.
    expert = 3 * 2880 * 2880 // 32 * 17 + 3 * 2880 * 2
    found = step("gpt-oss-20b", weights="hf:mxfp4", engine="vllm")
    assert row(found.decode, "experts").read_bytes == 24 * 4 * expert == 1_270_702_080


# ----------------------------------------------------------------------------------------------------- cache at a depth


def test_cache_of_a_model_with_windows() -> None:
    # gpt-oss-20b: 8 heads x (64 + 64) x 2 bytes = 2,048 bytes a token and layer; 12 full layers, 12 of a window of 128.
    found = step("gpt-oss-20b", cached=100)
    assert sum(each.read_bytes for each in found.decode.operators if attends(each)) == 24 * 100 * 2048
    memory = rl.estimate("gpt-oss-20b", ROOMY, prompt_tokens=5000, output_tokens=0, context_limit=8192).memory
    assert memory.kv_occupied_bytes == 12 * 5000 * 2048 + 12 * 128 * 2048 == 126_025_728
    assert memory.kv_by_kind["full"] == 12 * 8192 * 2048 == 201_326_592
    assert memory.kv_by_kind["sliding"] == 12 * 768 * 2048 == 18_874_368  # pad256(128 + 512)
    # From 10,000 to 20,000 cached tokens only the full layers read more.
    deep, deeper = (step("gpt-oss-20b", cached=cached).decode for cached in (10_000, 20_000))
    assert deeper.read_bytes - deep.read_bytes == 12 * 10_000 * 2048
    assert deeper.flops - deep.flops == 12 * 10_000 * 2 * 64 * (64 + 64)


def test_cache_of_a_batch_below_its_window() -> None:
    # Gemma 2 9B, 8 sequences of 3,000 tokens: 42 layers x 8 heads x 512 x 2 bytes; the window of 4,096 is not reached.
    found = step("gemma-2-9b", cached=3000, batch=8)
    weights = step("gemma-2-9b").decode.read_bytes
    assert found.decode.read_bytes - weights == 8 * 42 * 3000 * 8192 == 8_257_536_000


def test_cache_in_two_types() -> None:
    # Llama 3.1 70B, keys in q8_0 (34 bytes for 32), values in f16: 80 layers x 1024 x (1.0625 + 2) bytes.
    found = step("llama-3.1-70b", cached=32_768, kv="q8_0/f16")
    cache = row(found.decode, "attention").read_bytes
    assert cache == 32_768 * 80 * (1024 * 34 // 32 + 2048) == 8_220_835_840


# ---------------------------------------------------------------------------------------------------------------- FLOPs


def test_prefill_flops_of_a_mixture_with_windows() -> None:
    # gpt-oss-20b, 1,000 tokens. Multiplied for each: 3,607,142,400 parameters, of which the head 201,088 x 2,880 once.
    # Pairs: 1000 x 1001 / 2 in a full layer, 1000 x 128 - 128 x 127 / 2 in a windowed one; a pair 2 x 64 x (64 + 64).
    head = 201_088 * 2_880
    linear = 2 * (3_607_142_400 - head) * 1000 + 2 * head
    pairs = 12 * 500_500 + 12 * 119_872
    prefill = rl.estimate("gpt-oss-20b", ROOMY, prompt_tokens=1000, output_tokens=0).prefill
    assert prefill.flops == linear + pairs * 2 * 64 * 128 == 6_179_146_285_056
    assert row(prefill, "head").flops == 2 * head
    assert row(prefill, "router").flops == 2 * 24 * 32 * 2880 * 1000


def test_prefill_flops_at_a_depth() -> None:
    # Qwen3 8B, 100 tokens on top of 10,000: 100 x 10,000 + 100 x 101 / 2 pairs in 36 layers of 32 heads of 128.
    prefill = rl.estimate("qwen3-8b", ROOMY, prompt_tokens=100, context_tokens=10_000, output_tokens=0).prefill
    assert row(prefill, "attention").flops == 36 * 2 * 32 * 256 * 1_005_050 == 592_802_611_200
    assert row(prefill, "attention").read_bytes == 36 * 10_000 * 8 * 256 * 2


# -------------------------------------------------------------------------------------------------------------- experts


def test_experts_that_a_batch_touches_in_the_expectation() -> None:
    # Qwen3-30B-A3B: 128 experts, 8 a token. Four sequences touch 128 (1 - (15/16)^4) = 29.123046875, two 15.5; all
    # tokens agreeing (skew 1), 8. The time between goes into reading experts, at one and the same sustained bandwidth.
    def seconds(batch: int, prompt: int, skew: float) -> float:
        request = {"prompt_tokens": prompt, "output_tokens": 0, "batch": batch}
        options = rl.Options(routing_skew=skew)
        found = rl.estimate("qwen3-30b-a3b", ROOMY, options=options, **request)
        rows = [each for each in (found.prefill if prompt else found.decode).operators if "experts" in each.name]
        # The ideal counts eight experts whatever the routing: of 2,048 x 768 elements, gate and up in 144 bytes for
        # 256, down in 144 in half of the 48 layers and in 210 in the others.
        assert sum(each.read_bytes for each in rows) == 8 * 2048 * 768 // 256 * (48 * 2 * 144 + 24 * 144 + 24 * 210)
        return sum(each.time_s for each in rows)

    def extra(batch: int, prompt: int = 0) -> float:
        return seconds(batch, prompt, 0.0) - seconds(batch, prompt, 1.0)

    assert extra(4) / extra(2) == pytest.approx((29.123046875 - 8) / (15.5 - 8), rel=1e-9)
    assert extra(1) == pytest.approx(0, abs=1e-12)
    # The tokens of a prompt choose for themselves, as sequences do.
    assert extra(1, prompt=4) == pytest.approx(extra(4), rel=1e-9)
    assert extra(2, prompt=2) == pytest.approx(extra(4), rel=1e-9)


# ---------------------------------------------------------------------------------------------------------------- times


def test_ideal_decode_on_a_card_with_a_large_cache() -> None:
    # RTX 4090: 1,008 GB/s, and 72 MiB of cache that need not be read again in each step:
    # (4,617,396,224 - 75,497,472) / 1.008e12 = 4.5059 ms, 221.9 tokens/s.
    found = step("llama-3.1-8b", "rtx-4090")
    assert found.decode.time_s.ideal == pytest.approx((4_617_396_224 - 72 * MIB) / 1.008e12, rel=1e-12)
    assert round(found.decode.tokens_per_s.ideal, 1) == 221.9


def test_ideal_of_a_model_that_fits_the_cache() -> None:
    # A cache of 8 GiB holds all 4.6 GB: then its own bandwidth is the limit, four times the memory's where not stated.
    found = step("llama-3.1-8b", "rtx-4090", overrides={"hardware.cache.last_level_mib": 8192})
    assert found.decode.time_s.ideal == pytest.approx(4_617_396_224 / (4 * 1.008e12), rel=1e-12)


def test_ideal_prefill_at_the_highest_clock_and_the_fastest_path() -> None:
    # RTX 4090, 4,096 tokens. Weights in K-quants may be multiplied as 8-bit integers (660.6 TOPS), attention in 16 bits
    # (330.3 TFLOP/s with 16-bit accumulation), both at 2,820 of the advertised 2,520 MHz.
    boost = 2820 / 2520
    attention = 4_399_120_252_928
    linear = 61_574_775_570_432 - attention
    prefill = rl.estimate("llama-3.1-8b", "rtx-4090", prompt_tokens=4096, output_tokens=0).prefill
    assert prefill.bound == "compute"
    assert prefill.time_s.ideal == pytest.approx(
        linear / (660.6e12 * boost) + attention / (330.3e12 * boost), rel=1e-12
    )
    # The ridge point is that of the advertised clock.
    effective = (linear + attention) / (linear / 660.6e12 + attention / 330.3e12)
    assert prefill.ridge_point == pytest.approx(effective / 1.008e12, rel=1e-12)


def test_two_cards_take_turns_for_one_sequence_and_share_a_prefill() -> None:
    # RTX 3090: 936 GB/s (384 bit x 19.5 GT/s), 6 MiB of cache each. Layers are split: one sequence reads all weights,
    # one card after the other; a prefill is spread over both.
    one = rl.hardware("rtx-3090")
    bandwidth, cache = one.memory_bandwidth_bytes_per_s, one.cache_bytes
    assert bandwidth == pytest.approx(936e9, rel=1e-3)
    assert cache == 6 * MIB
    pair = rl.estimate("llama-3.1-70b", "2x rtx-3090", prompt_tokens=4096, output_tokens=2)
    read = 42_512_531_712 - 128_256 * 8192 // 256 * 144 - 64 * 4 + 4096 * 327_680
    assert pair.decode.read_bytes == read
    assert pair.decode.time_s.ideal == pytest.approx((read - 2 * cache) / bandwidth, rel=1e-12)
    assert pair.memory.fits
    many = rl.estimate("llama-3.1-70b", "2x rtx-3090", prompt_tokens=1, output_tokens=2, batch=2).decode
    assert many.time_s.ideal == pytest.approx((many.read_bytes - 2 * cache) / bandwidth / 2, rel=1e-12)


@pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")
def test_prefill_over_two_cards_is_a_pipeline_of_chunks() -> None:
    # llama.cpp hands over 2,048 tokens as 4 chunks of 512. Over p = 2 cards m = 4 chunks leave a bubble of
    # (p - 1) / (m + p - 1) = 1/5, so they are 2 x 4/5 = 1.6 times as fast as one; a single chunk is no faster. On top
    # come the copies from card to card: 4,096 numbers of 4 bytes a token at 80 % of 31.5 GB/s, and 210 µs a chunk.
    def seconds(hardware: str, prompt: int) -> float:
        return rl.estimate("llama-3.1-8b", hardware, prompt_tokens=prompt, output_tokens=0).prefill.time_s.expected

    for prompt, gain in ((512, 1), (1024, 4 / 3), (2048, 1.6), (8192, 1.6)):
        copies = prompt // 512 * 210e-6 + prompt * 4096 * 4 / (0.8 * 31.5e9)
        together = seconds("rtx-3090", prompt) / gain + copies
        assert seconds("2x rtx-3090", prompt) == pytest.approx(together, rel=1e-12)


def test_expected_time_of_one_operator_by_bandwidth() -> None:
    # Llama 3.1 8B in BF16, one token: a row's time is a floor and its bytes over a share of the bandwidth. Bytes are
    # those of the weights and 2 for each number read or written: 4,096 and 2 x 14,336 beside gate and up, 4,096 and
    # 4,096 beside the output of attention; in each of 32 layers.
    def seconds(name: str, gb_s: int) -> float:
        hardware = f"1TiB,{gb_s}GB/s,1e9TFLOP/s@bf16"
        return row(step("llama-3.1-8b", hardware, weights="hf:bf16", engine="vllm").decode, name).time_s

    shares, floors = [], []
    for name, weights, numbers in (
        ("FFN gate and up", 2 * 4096 * 14336, 4096 + 2 * 14336),
        ("attention output", 4096 * 4096, 4096 + 4096),
    ):
        slow, fast, faster = (seconds(name, gb_s) for gb_s in (100, 200, 400))
        assert slow - fast == pytest.approx(2 * (fast - faster), rel=1e-9)
        moved = 32 * 2 * (weights + numbers)
        shares.append(moved / 200e9 / (slow - fast))
        floors.append(2 * fast - slow)
    # Both are products with weights of one encoding: one share, one floor.
    assert shares[0] == pytest.approx(shares[1], rel=1e-6)
    assert 0.4 < shares[0] <= 1 + 1e-9
    assert floors[0] == pytest.approx(floors[1], rel=1e-6)
    assert 0 < floors[0] < 0.01


def test_expected_time_of_one_operator_by_compute() -> None:
    # 512 tokens through gate and up: 32 layers x 2 x 2 x 4096 x 14336 x 512 FLOP, at a share of the peak below 1.
    def wide(tflops: int) -> Any:
        hardware = f"1TiB,1e9GB/s,{tflops}TFLOP/s@fp16"
        return row(rl.estimate("llama-3.1-8b", hardware, prompt_tokens=512).prefill, "FFN gate and up")

    slow, fast, faster = (wide(tflops) for tflops in (10, 20, 40))
    assert slow.flops == 32 * 2 * 2 * 4096 * 14336 * 512
    assert (slow.bound, slow.compute_path, slow.count) == ("compute", "fp16.fp16", 32)
    assert slow.time_s - fast.time_s == pytest.approx(2 * (fast.time_s - faster.time_s), rel=1e-9)
    share = slow.flops / 20e12 / (slow.time_s - fast.time_s)
    assert 0.1 < share < 0.95


@settings(max_examples=60)
@given(
    model=st.sampled_from(["gpt-oss-20b", "gemma-3-4b", "llama-3.1-8b"]),
    prompt=st.one_of(st.integers(1, 300), st.integers(1, 3000)),
    cached=st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 3000)),
    chunk=st.integers(20, 700),
    batch=st.integers(1, 3),
)
def test_expected_attention_does_the_work_of_the_ideal(
    model: str, prompt: int, cached: int, chunk: int, batch: int
) -> None:
    # Ideal and expectation each count over the passes in their own way. Without a limit of bandwidth, what a device of
    # half the peak takes longer goes into the FLOPs of the row; without one of compute, half the bandwidth into reading
    # the cache. Either at one share of the peak and of the bandwidth, whatever the request.
    def longer(slow: str, fast: str, **request: Any) -> list[tuple[Any, float]]:
        phases = [rl.estimate(model, device, output_tokens=0, **request).prefill for device in (slow, fast)]
        pairs = zip(*(phase.operators for phase in phases), strict=True)
        return [(left, left.time_s - right.time_s) for left, right in pairs if attends(left)]

    request = {"prompt_tokens": prompt, "context_tokens": cached, "batch": batch, "prefill_chunk": chunk}
    plain = {"prompt_tokens": 1000, "context_tokens": 0, "batch": 1, "prefill_chunk": 1000}
    devices = ("64TiB,1e9GB/s,1TFLOP/s@fp16", "64TiB,1e9GB/s,2TFLOP/s@fp16")
    for (found, more), (reference, most) in zip(longer(*devices, **request), longer(*devices, **plain), strict=True):
        assert more / found.flops == pytest.approx(most / reference.flops, rel=1e-9)
        assert more / found.flops * 2e12 > 1

    devices = ("64TiB,1GB/s,1e9TFLOP/s@fp16", "64TiB,2GB/s,1e9TFLOP/s@fp16")
    plain |= {"context_tokens": 1}
    deep, flat = longer(*devices, **request), longer(*devices, **request | {"context_tokens": 0})
    one, none = longer(*devices, **plain), longer(*devices, **plain | {"context_tokens": 0})
    for (found, more), (empty, less), (first, much), (_, little) in zip(deep, flat, one, none, strict=True):
        per_byte = (much - little) / first.read_bytes
        read = found.read_bytes - empty.read_bytes
        assert more - less == pytest.approx(read * per_byte, rel=1e-6, abs=1e-9 * less)
        assert per_byte * 2e9 >= 1


def test_expected_attention_moves_the_new_token_as_well() -> None:
    # Llama 3.1 8B in BF16, one token, in a layer: the query (4,096 numbers), its result (4,096), and keys and values of
    # 2 x 1,024, written to the cache and perhaps read back: 5 to 7 times the 4,096 bytes that one cached token takes.
    def longer(cached: int) -> float:
        devices = ("1TiB,1GB/s,1e9TFLOP/s@bf16", "1TiB,2GB/s,1e9TFLOP/s@bf16")
        slow, fast = (
            row(step("llama-3.1-8b", device, cached=cached, weights="hf:bf16", engine="vllm").decode, "attention")
            for device in devices
        )
        return slow.time_s - fast.time_s

    assert 5 <= longer(0) / (longer(1) - longer(0)) <= 7


def test_the_interval_is_a_factor_around_the_expectation_within_the_ideal() -> None:
    found = [rl.estimate("llama-3.1-8b", "rtx-4090", prompt_tokens=prompt) for prompt in (1, 512, 4096)]
    for times in ([one.prefill.time_s for one in found], [one.tpot_s for one in found]):
        factor = times[0].high / times[0].expected
        assert 1 < factor < 10
        for time in times:
            assert time.high == pytest.approx(time.expected * factor, rel=1e-12)
            assert time.low == pytest.approx(max(time.expected / factor, time.ideal), rel=1e-12)
            assert time.basis in ("nominal", "calibrated")


# --------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("model", "mib"),
    [
        # 512 tokens x (vocabulary + hidden size) x 4 bytes: llama.cpp's logged compute buffers with flash attention.
        ("llama-3.1-8b", 258.5),
        ("llama-3.1-70b", 266.5),
        ("gpt-oss-20b", 398.375),
    ],
)
def test_logged_compute_buffers(model: str, mib: float) -> None:
    engine, _, _ = catalog.engine("llama.cpp")
    runtime = engine.backends["cuda"].runtime_mib * MIB
    assert (step(model).memory.workspace_bytes - runtime) / MIB == mib
    assert (step(model, prefill_chunk=1024).memory.workspace_bytes - runtime) / MIB == 2 * mib


def test_the_longest_context_by_hand() -> None:
    # 8 GiB less weights 4,912,898,304, buffer 258.5 MiB and runtime: what is left holds so many blocks of 256 tokens of
    # 131,072 bytes.
    engine, _, _ = catalog.engine("llama.cpp")
    runtime = round(engine.backends["cuda"].runtime_mib * MIB)
    left = 8 * GIB - 4_912_898_304 - int(258.5 * MIB) - runtime
    blocks = left // (256 * 131_072)
    found = rl.estimate("llama-3.1-8b", "8GiB,600GB/s,100TFLOP/s@fp16")
    assert found.memory.max_context_tokens == 256 * blocks == 22_784
    # Configured to 4,096 tokens, so many sequences fit.
    found = rl.estimate("llama-3.1-8b", "8GiB,600GB/s,100TFLOP/s@fp16", context_limit=4096)
    assert found.memory.max_batch == left // (4096 * 131_072) == 5


def test_an_engine_takes_a_share_of_the_memory() -> None:
    # vLLM takes a share of the 24 GiB (gpu_memory_utilization, about 0.9), llama.cpp what is usable of them.
    device = rl.hardware("rtx-4090")
    assert device.memory_bytes == 24 * GIB
    engine, _, _ = catalog.engine("vllm")
    share = engine.workspace.memory_fraction
    assert 0.85 < share < 0.95
    shared = rl.estimate("qwen3-8b", "rtx-4090", weights="awq", engine="vllm").memory
    assert shared.usable_bytes == int(share * 24 * GIB) < device.usable_bytes
    assert rl.estimate("qwen3-8b", "rtx-4090").memory.usable_bytes == device.usable_bytes


# --------------------------------------------------------------------------------------------------------- explanations


@pytest.mark.parametrize(
    ("weights", "engine", "path", "attention"),
    [
        ("Q4_K_M", "llama.cpp", "int8.int32", "fp16.fp16"),
        ("hf:bf16", "vllm", "bf16.fp32", "bf16.fp32"),
    ],
)
def test_the_assumptions_name_the_arithmetic(weights: str, engine: str, path: str, attention: str) -> None:
    found = rl.estimate("qwen3-0.6b", "rtx-4090", weights=weights, engine=engine)
    said = next(text for text in found.assumptions if "compute path" in text)
    assert re.search(rf"prefill \S*{re.escape(path)}", said)
    assert re.search(rf"decode \S*{re.escape(path)}", said)
    assert re.search(rf"attention \S*{re.escape(attention)}", said)
    assert row(found.prefill, "FFN gate and up").compute_path == path
    assert row(found.prefill, "attention").compute_path == attention


def test_the_rows_of_a_mixture_name_its_parts() -> None:
    names = [each.name for each in step("gpt-oss-20b").decode.operators]
    for name in ("embedding", "QKV projection", "attention", "router", "experts", "head"):
        assert any(each == name or each.startswith(f"{name} (") for each in names)


def test_rows_of_one_name_are_one_row() -> None:
    # Two kinds of attention layers are two rows, and a reader must be able to tell them apart.
    names = [each.name for each in step("gpt-oss-20b").decode.operators]
    assert len(set(names)) == len(names)


# ------------------------------------------------------------------------------------------------- runs of many passes


def chunked() -> tuple[Any, Any]:
    """Attention within chunks of 8,192 tokens (Llama 4 Scout), and what a device reaches in it."""
    plan = settle("llama-4-scout", ROOMY, Setup(weights="Q4_K_M")).plan()
    (found,) = [pair for pair in zip(plan.kernels, plan.speeds, strict=True) if pair[0].chunk is not None]
    assert found[0].chunk == 8192
    return found


def test_steps_over_chunks_are_the_sum_of_their_parts() -> None:
    kernel, speeds = chunked()
    # From within a chunk over two whole ones into a fourth, and the same in pieces of which none reaches over an end.
    whole = Run(3, 1, 20_000, 5_000)
    parts = [Run(3, 1, 3_192, 5_000), Run(3, 1, 8_192, 8_192), Run(3, 1, 8_192, 16_384), Run(3, 1, 424, 24_576)]
    assert sum(part.passes for part in parts) == whole.passes
    for find in (lambda run: attention_busy(kernel, speeds, run), lambda run: attention_work(kernel, run)):
        summed = [sum(values) for values in zip(*map(find, parts), strict=True)]
        assert list(find(whole)) == pytest.approx(summed, rel=1e-12)
    # A whole chunk reads 0 + 1 + … + 8,191 cached tokens for each sequence, in keys and values.
    assert attention_work(kernel, parts[1]).read_bytes == 3 * 8_191 * 8_192 // 2 * kernel.kv_bytes_per_token


def test_chunks_of_a_prompt_write_all_of_it() -> None:
    kernel, _ = chunked()
    read, per_token = 512 * (0 + 1 + 2 + 3) * kernel.kv_bytes_per_token, written_per_token(kernel)
    assert attended_work(kernel, Run(1, 512, 4, 0))[1] == read + 4 * 512 * per_token
    assert attended_work(kernel, Run(2, 512, 4, 0))[1] == 2 * (read + 4 * 512 * per_token)


def test_nothing_fits_where_the_weights_do_not() -> None:
    with pytest.warns(rl.RooflineWarning, match="does not fit"):
        memory = rl.estimate("llama-3.3-70b", "rtx-4090", weights="F16", context_limit=4096).memory
    assert (memory.max_batch, memory.max_context_tokens) == (0, 0)


def test_a_path_is_taken_from_its_tokens_on() -> None:
    # On RDNA3 llama.cpp multiplies up to 128 tokens in 8-bit integers and more of them in halves.
    plan = settle("llama-3.1-8b", "rx-7900-xtx", Setup(weights="Q4_K_M", engine="llama.cpp")).plan()
    pairs = zip(plan.kernels, plan.speeds, strict=True)
    several = [pair for pair in pairs if len(pair[1].paths) == 2 and pair[0].kind == "linear"]
    assert several
    for kernel, speeds in several:
        assert [path.min_tokens for path in speeds.paths] == [0, 129]
        for tokens, path in zip((128, 129), speeds.paths, strict=True):
            found = pass_busy(kernel, speeds, Run(1, tokens, 1, 0), 0.0).compute_s
            tiles = (tokens + path.half_tokens) / path.flop_per_s
            vectors = tokens / min(speeds.few_tokens_flop_per_s, path.flop_per_s)
            assert found == pytest.approx(kernel.flops_per_token * min(tiles, vectors), rel=1e-12)
            assert speeds.path_key(tokens) == path.key


@pytest.mark.parametrize("model", ["gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b", "llama-4-scout"])
def test_a_stage_adds_up_what_its_operators_take(model: str) -> None:
    plan = settle(model, "1TiB,600GB/s,1000TFLOP/s@fp16", Setup(weights="Q4_K_M")).plan()
    (stage,) = plan.stages
    for request in (Request(1300, 70, 0, 9_000, 3, None), Request(0, 400, 0, 5, 1, None)):
        for passes in (request.prefill_passes(512), request.decode_passes(request.decode_steps)):
            found = stage_time(stage, passes, passes, 0.33, "operator")
            works = [work(kernel, passes) for kernel in stage.kernels]
            taken = [expect(*pair, passes, 0.33) for pair in zip(stage.kernels, stage.speeds, strict=True)]
            assert [tuple(each) for each in found.works] == [tuple(each) for each in works]
            for row, alone in zip(found.expectations, taken, strict=True):
                assert list(row) == pytest.approx(list(alone), rel=1e-12)
            assert found.read_bytes == sum(each.read_bytes for each in works)
            summed = sum(each.floor_s + each.busy_s for each in taken)
            assert found.expected_s == pytest.approx(summed, rel=1e-12)
