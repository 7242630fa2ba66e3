"""The article's own numbers, through the public interface.

"Prefill vs. Decode" explains a request by a few figures: 50,000 tokens in 25 s, 18 GB on 600 GB/s, 40 tokens/s and
25 ms, a configured context of 262K and a prompt of 500 tokens. A1 … A14 are these figures and what follows from them by
arithmetic. A13 (five tokens a step when four drafts are always accepted) belongs to speculative decoding, which the
engine does not have yet; it comes with it.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm import roofline, units

GB, GIB = 10**9, 2**30

# A dense model whose one decode step reads a round number of bytes. All sizes are multiples of the hidden size d, and
# in BF16 with a head that is the embedding every parameter is read once a step:
#   d (V + 1 + L (2 + 2 H h + 2 H_kv h + 3 F)) x 2 bytes, with L 32, H h 4096, H_kv h 1024, F 14000.
LAYERS, PER_LAYER = 32, 2 + 2 * 4096 + 2 * 1024 + 3 * 14000
MODEL = """
id: round
name: A model of a round size
family: test
hidden: {hidden}
vocabulary: {vocabulary}
tied_embeddings: true
max_context_tokens: 1000000
native_format: hf:bf16
layers:
  - repeat: 32
    pattern:
      - mixer: {{kind: attention, heads: 32, kv_heads: 8, head_dim: 128}}
        ffn: {{kind: gated, intermediate: 14000}}
"""


def model_of(read_bytes: int, hidden: int, folder: Path) -> Any:
    vocabulary, rest = divmod(read_bytes // 2, hidden)
    assert rest == 0
    file = folder / "round.yaml"
    file.write_text(MODEL.format(hidden=hidden, vocabulary=vocabulary - 1 - LAYERS * PER_LAYER), encoding="utf-8")
    return rl.model(str(file))


@pytest.fixture
def model_18_gb(tmp_path: Path) -> Any:
    """A model of 18 GB: its decode step at an empty cache reads 18,000,000,000 bytes."""
    return model_of(18 * GB, 4000, tmp_path)


def device(bandwidth: str, compute: str = "100TFLOP/s", memory: str = "256GiB") -> str:
    return f"{memory},{bandwidth},{compute}@bf16"


def step(model: Any, hardware: str, **request: Any) -> Any:
    """One decode step at an empty cache."""
    asked = {"weights": "hf:bf16", "engine": "vllm", "prompt_tokens": 0, "output_tokens": 1} | request
    return rl.estimate(model, hardware, **asked)


def llama(hardware: str, **request: Any) -> Any:
    return rl.estimate("llama-3.1-8b", hardware, weights="hf:bf16", engine="vllm", **request)


# --------------------------------------------------------------------------------------------- A1, A2: prefill and TTFT


def device_with_a_prefill_of(seconds: float, **request: Any) -> str:
    """A device that needs so long for a compute-bound prefill; its bandwidth lets nothing else matter."""
    flops = llama(device("1000TB/s"), **request).prefill.flops
    return device("1000TB/s", f"{flops / seconds / 1e12!r}TFLOP/s")


def test_a1_and_a2_50000_tokens_at_2000_tokens_per_s_take_25_s() -> None:
    request = {"prompt_tokens": 50_000, "output_tokens": 1}
    found = llama(device_with_a_prefill_of(25.0, **request), **request)
    assert found.prefill.bound == "compute"
    assert found.prefill.time_s.ideal == pytest.approx(25.0, rel=1e-12)
    assert found.prefill.tokens_per_s.ideal == pytest.approx(2000.0, rel=1e-12)
    for end in ("ideal", "expected", "low", "high"):
        seconds = getattr(found.prefill.time_s, end)
        opposite = {"low": "high", "high": "low"}.get(end, end)
        assert getattr(found.prefill.tokens_per_s, opposite) == pytest.approx(50_000 / seconds, rel=1e-12)
        assert getattr(found.ttft_s, end) >= 25.0 * (1 - 1e-12)
    # The first token comes out of prefill: nothing is added to it.
    assert found.ttft_s == found.prefill.time_s


def test_the_four_addends_of_the_time_to_first_token() -> None:
    # 0.4 s queue + 0.1 s tokenisation + 25 s prefill + 0.025 s first step = 25.525 s, in the article's convention.
    request = {"prompt_tokens": 50_000, "output_tokens": 1}
    compute = device_with_a_prefill_of(25.0, **request).split(",")[2]
    per_step = llama(device("1TB/s"), prompt_tokens=0, context_tokens=50_000, output_tokens=1).decode.read_bytes
    hardware = f"256GiB,{per_step / 0.025 / 1e9!r}GB/s,{compute}"
    waits = {"queue_s": 0.4, "tokenize_s": 0.1}
    article = llama(hardware, **request, **waits, options=rl.Options(first_token="extra_step"))
    assert article.decode.bound == "memory"
    assert article.ttft_s.ideal == pytest.approx(25.525, rel=1e-9)
    engines = llama(hardware, **request, **waits)
    assert engines.ttft_s.ideal == pytest.approx(25.5, rel=1e-9)
    plain = llama(hardware, **request)
    assert plain.ttft_s.ideal == pytest.approx(25.0, rel=1e-9)
    assert plain.prefill.time_s == engines.prefill.time_s


# --------------------------------------------------------------------------------------- A3 … A8: rates and their times


@pytest.mark.parametrize(
    ("bandwidth", "rate", "milliseconds"),
    [
        ("720GB/s", 40.0, 25.0),  # A3
        ("180GB/s", 10.0, 100.0),  # A4
        ("1.44TB/s", 80.0, 12.5),
        ("600GB/s", 100 / 3, 30.0),  # A5
        ("1.2TB/s", 200 / 3, 15.0),  # A6
    ],
)
def test_a3_to_a6_a_rate_and_its_time_per_token(
    model_18_gb: Any, bandwidth: str, rate: float, milliseconds: float
) -> None:
    found = step(model_18_gb, device(bandwidth))
    assert found.decode.read_bytes == 18 * GB
    assert found.decode.bound == "memory"
    assert found.decode.tokens_per_s.ideal == pytest.approx(rate, rel=1e-14)
    assert found.tpot_s.ideal == pytest.approx(milliseconds / 1000, rel=1e-14)
    assert found.itl_s == found.tpot_s


def test_a7_twice_the_bandwidth_is_exactly_twice_the_rate(model_18_gb: Any) -> None:
    slow, fast = step(model_18_gb, device("600GB/s")), step(model_18_gb, device("1.2TB/s"))
    assert fast.decode.tokens_per_s.ideal == 2.0 * slow.decode.tokens_per_s.ideal


def test_the_ceiling_says_what_it_leaves_out(model_18_gb: Any) -> None:
    said = " ".join(step(model_18_gb, device("600GB/s")).assumptions)
    for word in ("once", "bandwidth", "activations", "sampling", "unpacking", "launches"):
        assert word in said


def test_the_expectation_is_below_the_ceiling(model_18_gb: Any) -> None:
    rate = step(model_18_gb, device("600GB/s")).decode.tokens_per_s
    assert 10 < rate.expected < rate.ideal


def test_a8_1000_tokens_per_s_over_100_users_are_10_each(model_18_gb: Any) -> None:
    # 18 GB at 180 GB/s: a step takes 100 ms and gives each of 100 users a token.
    found = step(model_18_gb, device("180GB/s", "10PFLOP/s"), batch=100)
    assert found.decode.aggregate_tokens_per_s.ideal == pytest.approx(1000.0, rel=1e-14)
    assert found.decode.tokens_per_s.ideal == pytest.approx(10.0, rel=1e-14)
    assert found.tpot_s.ideal == pytest.approx(0.1, rel=1e-14)


def test_a12_gib_are_not_gb(tmp_path: Path) -> None:
    found = step(model_of(18 * GIB, 4096, tmp_path), device("600GB/s"))
    assert found.decode.read_bytes == 19_327_352_832
    assert found.decode.tokens_per_s.ideal == pytest.approx(600e9 / 19_327_352_832, rel=1e-14)
    assert round(found.decode.tokens_per_s.ideal, 2) == 31.04
    assert round(step(model_of(18 * GB, 4000, tmp_path), device("600GB/s")).decode.tokens_per_s.ideal, 2) == 33.33


# ----------------------------------------------------------------------------- A9, A10: configured and occupied context


@pytest.mark.parametrize(
    ("name", "weights", "engine"), [("llama-3.1-8b", "Q4_K_M", None), ("qwen3-30b-a3b", "bf16", "vllm")]
)
def test_a9_a_configured_context_is_allocated_and_not_read(name: str, weights: str, engine: str | None) -> None:
    request = {"weights": weights, "engine": engine, "prompt_tokens": 500, "output_tokens": 0}
    hardware = "1TiB,1TB/s,100TFLOP/s@fp16"
    large = rl.estimate(name, hardware, context_limit=262_144, **request)
    small = rl.estimate(name, hardware, context_limit=8_192, **request)
    assert large.memory.kv_allocated_bytes / large.memory.kv_occupied_bytes == 524.288
    kv = {"Q4_K_M": "f16", "bf16": "bf16"}[weights]
    assert large.memory.kv_occupied_bytes == 500 * rl.model(name).kv_bytes_per_token(kv)
    # Neither the first token nor a step takes longer, and a step reads the cache of 500 tokens.
    assert large.ttft_s == small.ttft_s
    assert large.tpot_s == small.tpot_s
    assert large.decode.read_bytes == small.decode.read_bytes
    attention = [row for row in large.decode.operators if row.name.startswith("attention")]
    weights = [row for row in attention if row.name == "attention output"]
    assert (
        sum(row.read_bytes for row in attention) - sum(row.read_bytes for row in weights)
        == large.memory.kv_occupied_bytes
    )


def test_a9_each_sequence_has_a_configured_context_of_its_own() -> None:
    request = {"prompt_tokens": 500, "output_tokens": 0, "context_limit": 262_144}
    memory = llama(device("1TB/s", memory="1TiB"), batch=4, **request).memory
    assert memory.kv_allocated_bytes == 4 * 262_144 * 131_072
    assert memory.kv_occupied_bytes == 4 * 500 * 131_072


def test_more_occupied_than_configured_is_refused() -> None:
    llama(device("1TB/s"), prompt_tokens=500, output_tokens=12, context_limit=512)
    with pytest.raises(rl.RooflineError, match="context_limit"):
        llama(device("1TB/s"), prompt_tokens=500, output_tokens=13, context_limit=512)


def test_a10_40000_and_500_are_one_prefill_and_499_steps() -> None:
    found = llama(device("1TB/s"), prompt_tokens=40_000, output_tokens=500)
    alone = llama(device("1TB/s"), prompt_tokens=40_000, output_tokens=1)
    # Prefill: one pass over 40,000 tokens reads the weights once, and what was cached before: nothing.
    assert found.prefill.read_bytes == 15_009_849_344
    assert found.prefill.flops == alone.prefill.flops
    # Decode: 499 steps with 40,000 … 40,498 tokens in the cache.
    read = sum(15_009_849_344 + cached * 131_072 for cached in range(40_000, 40_499))
    assert found.decode.read_bytes == read
    assert found.decode.time_s.ideal == pytest.approx(read / 1e12, rel=1e-12)
    assert found.decode.tokens_per_s.ideal == pytest.approx(499 / found.decode.time_s.ideal, rel=1e-12)
    # It is not 499 times the first step.
    first = llama(device("1TB/s"), prompt_tokens=0, context_tokens=40_000, output_tokens=1)
    assert found.decode.time_s.ideal > 499 * first.decode.time_s.ideal * 1.001
    assert found.memory.kv_occupied_bytes == 40_500 * 131_072
    # The answer ends 499 steps after its first token.
    for end in ("ideal", "expected", "low", "high"):
        whole, ttft, decode = (getattr(value, end) for value in (found.e2e_s, found.ttft_s, found.decode.time_s))
        assert whole == pytest.approx(ttft + decode, rel=1e-12)
        assert getattr(found.tpot_s, end) == pytest.approx(decode / 499, rel=1e-12)


def test_a10_in_the_articles_convention_there_are_500_steps() -> None:
    request = {"prompt_tokens": 40_000, "output_tokens": 500}
    engines = llama(device("1TB/s"), **request)
    article = llama(device("1TB/s"), **request, options=rl.Options(first_token="extra_step"))
    one = llama(device("1TB/s"), prompt_tokens=0, context_tokens=40_000, output_tokens=1).decode.time_s.ideal
    assert article.ttft_s.ideal == pytest.approx(engines.ttft_s.ideal + one, rel=1e-12)
    assert article.e2e_s.ideal == pytest.approx(engines.e2e_s.ideal + one, rel=1e-5)
    assert article.decode.time_s == engines.decode.time_s


def test_a10_with_the_articles_rates_the_request_takes_32_seconds(model_18_gb: Any) -> None:
    # 40,000 tokens at 2,000 tokens/s and 499 gaps of 25 ms: 20 s + 12.475 s.
    flops = step(model_18_gb, device("1TB/s"), prompt_tokens=40_000).prefill.flops
    steps = step(model_18_gb, device("1TB/s"), prompt_tokens=40_000, output_tokens=500).decode.read_bytes
    hardware = device(f"{steps / 12.475 / 1e9!r}GB/s", f"{flops / 20 / 1e12!r}TFLOP/s")
    found = step(model_18_gb, hardware, prompt_tokens=40_000, output_tokens=500)
    assert found.prefill.tokens_per_s.ideal == pytest.approx(2000, rel=1e-12)
    assert found.decode.tokens_per_s.ideal == pytest.approx(40, rel=1e-12)
    assert found.e2e_s.ideal == pytest.approx(32.475, rel=1e-12)


def test_the_cache_of_40000_tokens() -> None:
    # 40,000 tokens x 32 layers x 8 heads x 128 x (K and V) x 2 bytes.
    found = llama(device("1TB/s"), prompt_tokens=40_000, output_tokens=0)
    assert found.memory.kv_occupied_bytes == 5_242_880_000
    assert round(5_242_880_000 / GIB, 2) == 4.88
    assert found.memory.kv_occupied_bytes == 40_000 * rl.model("llama-3.1-8b").kv_bytes_per_token("f16")


# ---------------------------------------------------------------------------------------------------- A11: the roofline


def test_a11_both_branches_meet_at_the_ridge() -> None:
    peak, bandwidth = 2.0**47, 2.0**40
    ridge = roofline.ridge_point(peak, bandwidth)
    assert ridge == 128.0
    assert roofline.attainable(ridge, peak, bandwidth) == peak == bandwidth * ridge
    assert roofline.attainable(ridge / 2, peak, bandwidth) == peak / 2
    assert roofline.attainable(1e30, peak, bandwidth) == peak


def test_a11_a_phase_sits_on_the_roofline() -> None:
    for prompt in (1, 16, 150, 200, 4096):
        phase = llama(device("1TB/s", "200TFLOP/s"), prompt_tokens=prompt).prefill
        assert phase.ridge_point == pytest.approx(200.0, rel=1e-12)
        assert phase.arithmetic_intensity == phase.flops / phase.read_bytes
        reached = phase.flops / phase.time_s.ideal
        assert reached == pytest.approx(roofline.attainable(phase.arithmetic_intensity, 200e12, 1e12), rel=1e-12)
        assert phase.bound == ("compute" if phase.arithmetic_intensity > 200 else "memory")


# -------------------------------------------------------------------------------- A14: a prefill of one token is a step


@pytest.mark.parametrize("hardware", ["1TiB,1TB/s,100TFLOP/s@fp16,200TOPS@int8", "rtx-4090", "2x rtx-4090"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "gemma-2-9b"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("context", [0, 1, 126, 127, 128, 5000])
@pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")
def test_a14_a_prefill_of_one_token_is_a_decode_step(name: str, hardware: str, batch: int, context: int) -> None:
    shared = {"context_tokens": context, "batch": batch}
    prefill = rl.estimate(name, hardware, prompt_tokens=1, output_tokens=0, **shared)
    decode = rl.estimate(name, hardware, prompt_tokens=0, output_tokens=1, **shared)
    assert prefill.prefill.flops == decode.decode.flops > 0
    assert prefill.prefill.read_bytes == decode.decode.read_bytes > 0
    assert prefill.prefill.time_s.ideal == pytest.approx(decode.decode.time_s.ideal, rel=1e-12)
    assert prefill.prefill.time_s.expected == pytest.approx(decode.decode.time_s.expected, rel=1e-12)
    assert prefill.ttft_s.ideal == pytest.approx(decode.ttft_s.ideal, rel=1e-12)
    assert prefill.ttft_s.expected == pytest.approx(decode.ttft_s.expected, rel=1e-12)


# ------------------------------------------------------------------------------------------- what else the article says


def test_no_rate_without_a_phase() -> None:
    found = llama(device("1TB/s"))
    for name in ("tokens_per_second", "tokens_per_s", "speed"):
        assert not hasattr(found, name)
    assert "prefill" in repr(found)
    assert "decode" in repr(found)


def test_prefill_is_bound_by_compute_and_single_stream_decode_by_memory() -> None:
    base = llama(device("1TB/s", "100TFLOP/s"), prompt_tokens=4096, output_tokens=64)
    wider = llama(device("2TB/s", "100TFLOP/s"), prompt_tokens=4096, output_tokens=64)
    faster = llama(device("1TB/s", "200TFLOP/s"), prompt_tokens=4096, output_tokens=64)
    assert (base.prefill.bound, base.decode.bound) == ("compute", "memory")
    assert wider.prefill.time_s.ideal == base.prefill.time_s.ideal
    assert faster.prefill.time_s.ideal == base.prefill.time_s.ideal / 2
    assert faster.decode.time_s.ideal == base.decode.time_s.ideal
    assert wider.decode.time_s.ideal == base.decode.time_s.ideal / 2


def test_the_name_of_a_phase_does_not_decide_its_bound() -> None:
    # The ridge point is 100 FLOP/byte, so 100 tokens of 2-byte weights: fewer are memory-bound, more compute-bound.
    def small(**request: Any) -> Any:
        return llama(device("1TB/s", "100TFLOP/s"), **request)

    assert small(prompt_tokens=8).prefill.bound == "memory"
    assert small(prompt_tokens=800).prefill.bound == "compute"
    assert small(prompt_tokens=0, output_tokens=1, batch=8).decode.bound == "memory"
    assert small(prompt_tokens=0, output_tokens=1, batch=800).decode.bound == "compute"


@pytest.mark.parametrize(("weights", "bits"), [("hf:bf16", 16), ("gguf:q8_0", 8.5), ("gguf:q4_0", 4.5)])
def test_the_intensity_of_a_single_stream_is_two_flops_for_each_weight_read(weights: str, bits: float) -> None:
    # FP16 1, 8 bits 2, 4 bits 4 FLOP/byte, less the scales of the format and a head of more bits.
    found = rl.estimate(
        "llama-3.1-70b", "1TiB,1TB/s,100TFLOP/s@fp16", weights=weights, prompt_tokens=0, output_tokens=1
    )
    assert found.decode.arithmetic_intensity == pytest.approx(2 / (bits / 8), rel=0.03)


def test_intensity_grows_with_the_prompt_and_with_the_batch_up_to_that_of_the_cache() -> None:
    prompts = [llama(device("1TB/s"), prompt_tokens=n).prefill.arithmetic_intensity for n in (1, 8, 64, 512, 4096)]
    assert prompts == sorted(prompts)
    batches = [
        llama(device("1TB/s", memory="100TiB"), prompt_tokens=0, context_tokens=8192, output_tokens=1, batch=b)
        for b in (1, 4, 16, 64, 256, 10_000)
    ]
    intensity = [found.decode.arithmetic_intensity for found in batches]
    assert intensity == sorted(intensity)
    # However large the batch, each sequence reads its own cache: 15.0 GFLOP and attention over 1.07 GB.
    limit = (2 * 7_504_924_672 + 32 * 4 * 32 * 128 * 8193) / (8192 * 131_072)
    assert intensity[-1] < limit
    assert intensity[-1] == pytest.approx(limit, rel=2e-3)


def test_longer_context_slows_both_phases() -> None:
    found = [
        llama(device("1TB/s"), prompt_tokens=512, context_tokens=context, output_tokens=64)
        for context in (0, 1, 1000, 32_000, 128_000)
    ]
    for earlier, later in pairwise(found):
        assert later.ttft_s.ideal > earlier.ttft_s.ideal
        assert later.ttft_s.expected > earlier.ttft_s.expected
        assert later.decode.tokens_per_s.ideal < earlier.decode.tokens_per_s.ideal
        assert later.decode.tokens_per_s.expected < earlier.decode.tokens_per_s.expected


def test_weights_pass_once_a_chunk_and_not_once_a_token() -> None:
    # Llama 3.1 8B: 15,009,849,344 bytes without the embedding, of them 1,050,673,152 of the head, needed once.
    chunked = llama(device("1TB/s"), prompt_tokens=4096, prefill_chunk=1024)
    whole = llama(device("1TB/s"), prompt_tokens=4096)
    assert whole.prefill.read_bytes == 15_009_849_344
    cached = (1024 + 2048 + 3072) * 131_072
    assert chunked.prefill.read_bytes == 4 * (15_009_849_344 - 1_050_673_152) + 1_050_673_152 + cached
    assert chunked.prefill.flops == whole.prefill.flops


def test_a_cached_prefix_leaves_the_rest_at_its_depth() -> None:
    # 40,000 tokens of chat and 200 more: 200 are computed, over 40,000 cached ones.
    turn = llama(device("1TB/s"), prompt_tokens=40_200, cached_tokens=40_000)
    assert turn.prefill.flops == llama(device("1TB/s"), prompt_tokens=200, context_tokens=40_000).prefill.flops
    assert turn.prefill.time_s == llama(device("1TB/s"), prompt_tokens=200, context_tokens=40_000).prefill.time_s
    assert turn.prefill.tokens_per_s.ideal == pytest.approx(200 / turn.prefill.time_s.ideal, rel=1e-12)
    # An edit at token 100 leaves 100 cached.
    edited = llama(device("1TB/s"), prompt_tokens=40_000, cached_tokens=100)
    assert edited.prefill.tokens_per_s.ideal == pytest.approx(39_900 / edited.prefill.time_s.ideal, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------------- units


def test_1_2_terabytes_per_s_are_1200_gigabytes_per_s() -> None:
    assert units.parse_bandwidth("1.2 TB/s") == units.parse_bandwidth("1200 GB/s") == 1.2e12
    slow, fast = (rl.hardware(device(text)).memory_bandwidth_bytes_per_s for text in ("1200GB/s", "1.2TB/s"))
    assert slow == fast == pytest.approx(1.2e12, rel=1e-15)


def test_binary_and_decimal_units_are_distinct() -> None:
    assert units.parse_bandwidth("1GiB/s") == 2**30
    assert units.parse_bandwidth("1GB/s") == 10**9
    assert units.parse_bytes("18GiB") / units.parse_bytes("18GB") == 2**30 / 10**9
    assert rl.hardware("24GiB,1GiB/s,1TFLOP/s@fp16").memory_bandwidth_bytes_per_s == pytest.approx(2**30, rel=1e-15)
    assert rl.hardware("24GiB,1GB/s,1TFLOP/s@fp16").memory_bytes == 24 * 2**30
    assert rl.hardware("24GB,1GB/s,1TFLOP/s@fp16").memory_bytes == 24 * 10**9


DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
numbers = st.one_of(
    st.integers(1, 10**6).map(str),
    st.floats(0.001, 1e6).map(lambda value: f"{value:.3f}").filter(lambda text: float(text) > 0),
)


@pytest.mark.parametrize("prefix", [*DECIMAL, *BINARY])
@given(number=numbers, space=st.sampled_from(["", " ", "  "]), case=st.sampled_from(["written", "upper", "lower"]))
def test_every_prefix_of_bytes_and_of_bandwidth(prefix: str, number: str, space: str, case: str) -> None:
    factor = (DECIMAL | BINARY)[prefix]
    written = {"written": prefix, "upper": prefix.upper(), "lower": prefix.lower()}[case]
    assert units.parse_bytes(f"{number}{space}{written}B") == pytest.approx(float(number) * factor, rel=1e-15)
    for per in ("/s", "ps", "/sec", " / s"):
        text = f"{number}{space}{written}B{per}"
        assert units.parse_bandwidth(text) == pytest.approx(float(number) * factor, rel=1e-15)


@pytest.mark.parametrize("prefix", DECIMAL)
@given(number=numbers, name=st.sampled_from(["FLOPS", "FLOP/s", "OPS", "flops", "OP/s"]))
def test_every_prefix_of_compute_rates(prefix: str, number: str, name: str) -> None:
    expected = float(number) * DECIMAL[prefix]
    assert units.parse_compute_rate(f"{number} {prefix}{name}") == pytest.approx(expected, rel=1e-15)


@given(
    left=st.sampled_from(sorted(DECIMAL | BINARY)),
    right=st.sampled_from(sorted(DECIMAL | BINARY)),
    number=st.integers(1, 10**6),
)
def test_units_convert_into_each_other(left: str, right: str, number: int) -> None:
    factor = DECIMAL | BINARY
    ratio = units.parse_bytes(f"{number}{left}B") / units.parse_bytes(f"{number}{right}B")
    assert ratio == pytest.approx(factor[left] / factor[right], rel=1e-14)


@pytest.mark.parametrize(
    "text",
    [
        *("", "GB", "24", "24 G", "24 Gb", "-1GB", "0GB", "1e999GB", "nanGB", "infGB", "24 GB/s", "1,5GB", "2 4GB"),
        *("24XB", "24EB", "24\u212aB"),  # the last with the sign of Kelvin
    ],
)
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=re.escape(f"'{text}'")):
        units.parse_bytes(text)


@pytest.mark.parametrize("text", ["", "1", "1 GB", "1 Gb/s", "1 Gbps", "GB/s", "0GB/s", "-1GB/s", "1GB/m", "1 TFLOP/s"])
def test_what_is_no_bandwidth(text: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=re.escape(f"'{text}'")):
        units.parse_bandwidth(text)


@pytest.mark.parametrize("text", ["", "1", "1 TFLOP", "TFLOP/s", "0TFLOP/s", "-1TFLOP/s", "1 TiFLOP/s", "1 TB/s"])
def test_what_is_no_compute_rate(text: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=re.escape(f"'{text}'")):
        units.parse_compute_rate(text)


def test_several_users_at_once_are_an_array(model_18_gb: Any) -> None:
    found = step(model_18_gb, device("180GB/s", "10PFLOP/s"), batch=np.array([1, 10, 100]))
    assert found.decode.aggregate_tokens_per_s.ideal == pytest.approx([10.0, 100.0, 1000.0], rel=1e-14)
    assert found.decode.tokens_per_s.ideal == pytest.approx([10.0, 10.0, 10.0], rel=1e-14)
