"""Context: a long answer is the sum of its steps, whatever the layers; what is configured costs memory and no time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflinellm as rl

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")

EXACT = 1e-12
# Dense, sliding windows, chunks, latents, a state, mixtures, sparse attention.
KINDS = {
    "dense": "llama-3.1-8b",
    "windows": "gemma-3-27b",
    "windows and a mixture": "gpt-oss-20b",
    "chunks and a mixture": "llama-4-scout",
    "latents and a mixture": "deepseek-v3",
    "sparse latents": "deepseek-v3.2",
    "states": "qwen3.5-9b",
    "states and a mixture": "qwen3-next-80b-a3b",
    "states alone": "mamba2-2.7b",
    "a mixture": "qwen3-30b-a3b",
}
kinds = st.sampled_from(sorted(KINDS))
machines = st.tuples(st.integers(10, 8000), st.integers(1, 3000)).map(
    lambda pair: f"4096GiB,{pair[0]}GB/s,{pair[1]}TFLOP/s@fp16"
)
contexts = st.one_of(
    st.just(0), st.integers(1, 300), st.integers(900, 1100), st.integers(2000, 2100), st.integers(8100, 8300),
    st.integers(0, 200_000),
)  # fmt: skip


def ask(kind: str, hardware: str = "4096GiB,1000GB/s,100TFLOP/s@fp16", **request: Any) -> Any:
    return rl.estimate(KINDS[kind], hardware, weights="Q8_0", engine="llama.cpp", **request)


@settings(max_examples=100)
@given(
    kind=kinds,
    hardware=machines,
    context=contexts,
    tokens=st.integers(2, 120),
    batch=st.sampled_from([1, 1, 3, 64]),
    prompt=st.sampled_from([0, 1, 7]),
)
def test_an_answer_is_the_sum_of_its_steps(
    kind: str, hardware: str, context: int, tokens: int, batch: int, prompt: int
) -> None:
    """FLOPs and bytes to the last one, expected time to the last digits; the ideal is one maximum over their sums."""
    whole = ask(kind, hardware, prompt_tokens=prompt, context_tokens=context, output_tokens=tokens, batch=batch)
    count = tokens - 1 if prompt else tokens
    steps = [
        ask(kind, hardware, prompt_tokens=0, context_tokens=context + prompt + i, output_tokens=1, batch=batch).decode
        for i in range(count)
    ]
    decode = whole.decode
    assert decode.flops == sum(step.flops for step in steps)
    assert decode.read_bytes == sum(step.read_bytes for step in steps)
    assert decode.time_s.expected == pytest.approx(math.fsum(s.time_s.expected for s in steps), rel=EXACT)
    assert whole.tpot_s.expected == pytest.approx(decode.time_s.expected / count, rel=EXACT)
    memory = decode.read_bytes / rl.hardware(hardware).memory_bandwidth_bytes_per_s
    compute = decode.flops / decode.peak_flop_per_s
    assert decode.time_s.ideal == pytest.approx(max(memory, compute), rel=EXACT)
    total = math.fsum(step.time_s.ideal for step in steps)
    assert decode.time_s.ideal <= total * (1 + EXACT)
    if len({step.arithmetic_intensity > step.ridge_point for step in steps}) == 1:
        assert decode.time_s.ideal == pytest.approx(total, rel=1e-11)


@given(kind=kinds, hardware=machines, prompt=st.integers(1, 3000), context=contexts, batch=st.sampled_from([1, 5]))
def test_prefill_on_a_filled_cache(kind: str, hardware: str, prompt: int, context: int, batch: int) -> None:
    """A prompt on top of a cache is what is left of one long prompt whose beginning is cached."""
    request = {"output_tokens": 0, "batch": batch}
    on_top = ask(kind, hardware, prompt_tokens=prompt, context_tokens=context, **request)
    rest = ask(kind, hardware, prompt_tokens=context + prompt, cached_tokens=context, **request)
    assert on_top.prefill.to_dict() == rest.prefill.to_dict()
    empty = ask(kind, hardware, prompt_tokens=prompt, **request)
    assert on_top.prefill.flops >= empty.prefill.flops
    assert on_top.prefill.read_bytes >= empty.prefill.read_bytes
    assert on_top.prefill.time_s.expected >= empty.prefill.time_s.expected * (1 - EXACT)


@given(
    kind=kinds, prompt=st.integers(1, 2000), output=st.integers(0, 300), more=st.integers(0, 200_000),
    batch=st.sampled_from([1, 4]),
)  # fmt: skip
def test_a_configured_context_is_allocated_and_never_read(
    kind: str, prompt: int, output: int, more: int, batch: int
) -> None:
    request = {"prompt_tokens": prompt, "output_tokens": output, "batch": batch}
    tight = ask(kind, **request)
    roomy = ask(kind, context_limit=prompt + output + more + 256, **request)
    assert roomy.prefill.to_dict() == tight.prefill.to_dict()
    assert roomy.decode.to_dict() == tight.decode.to_dict()
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        assert getattr(roomy, name) == getattr(tight, name)
    assert roomy.memory.kv_occupied_bytes == tight.memory.kv_occupied_bytes
    assert roomy.memory.kv_allocated_bytes >= tight.memory.kv_allocated_bytes
    assert tight.memory.kv_occupied_bytes <= tight.memory.kv_allocated_bytes


def test_262144_configured_and_500_occupied() -> None:
    # The article this package started from: a server of 262,144 tokens asked with 500 is no benchmark of 262,144.
    request = {"prompt_tokens": 500, "output_tokens": 0, "weights": "bf16", "engine": "vllm"}
    small, large = (rl.estimate("llama-3.1-8b", "h100-sxm", context_limit=n, **request) for n in (8192, 262_144))
    assert large.memory.kv_allocated_bytes / large.memory.kv_occupied_bytes == pytest.approx(524.288)
    assert large.ttft_s == small.ttft_s


def test_a_thinking_answer_slows_down_on_the_way() -> None:
    # 32,000 tokens of thinking on 1,000 of prompt: the mean step is that of the middle, 1,000 + 16,000 - 1 cached.
    request = {"weights": "bf16", "engine": "vllm"}
    whole = rl.estimate("qwen3-8b", "h100-sxm", prompt_tokens=1000, output_tokens=32_000, **request)
    steps = {
        cached: rl.estimate(
            "qwen3-8b", "h100-sxm", prompt_tokens=0, context_tokens=cached, output_tokens=1, **request
        ).tpot_s
        for cached in (1000, 16_999, 32_998)
    }
    assert whole.tpot_s.expected == pytest.approx(steps[16_999].expected, rel=1e-9)
    assert steps[1000].expected < whole.tpot_s.expected < steps[32_998].expected
    first_step_only = whole.ttft_s.expected + 31_999 * steps[1000].expected
    assert whole.e2e_s.expected > 1.05 * first_step_only
