"""Serving metrics: definitions of the field and what separates them, conversions, utilisation of an estimate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm.errors import InvalidRequest

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")

metrics = rl.metrics


def test_first_token_is_the_sum_of_its_four_parts() -> None:
    assert metrics.ttft_s(0.5, 0.01, 1.0, 0.02) == pytest.approx(1.53)
    # The same as an estimate's, where the first token comes out of prefill.
    found = rl.estimate("llama-3.1-8b", "rtx-4090", queue_s=0.5, tokenize_s=0.01)
    assert metrics.ttft_s(0.5, 0.01, found.prefill.time_s.expected) == pytest.approx(found.ttft_s.expected)


def test_whole_answer_of_an_estimate() -> None:
    found = rl.estimate("llama-3.1-8b", "rtx-4090", output_tokens=300)
    first, token, whole = (found.ttft_s.expected, found.tpot_s.expected, found.e2e_s.expected)
    assert metrics.e2e_s(first, token, 300) == pytest.approx(whole, rel=1e-12)
    assert metrics.tpot_s(whole, first, 300) == pytest.approx(token, rel=1e-12)
    assert metrics.tokens_per_s(token) == pytest.approx(found.decode.tokens_per_s.expected, rel=1e-12)


def test_three_times_per_output_token() -> None:
    # 1 s to the first of 11 tokens, 3 s to the last: 10 gaps of 0.2 s.
    assert metrics.tpot_s(3.0, 1.0, 11) == pytest.approx(0.2)
    assert metrics.tpot_s(3.0, 1.0, 11, "tokens") == pytest.approx(2 / 11)
    assert metrics.tpot_s(3.0, 1.0, 11, "whole_answer") == pytest.approx(3 / 11)  # guidellm
    assert metrics.tpot_s(np.array([3.0, 5.0]), 1.0, 11).tolist() == pytest.approx([0.2, 0.4])


def test_one_token_has_no_gap() -> None:
    with pytest.raises(InvalidRequest, match="output_tokens"):
        metrics.tpot_s(1.0, 1.0, 1)
    assert metrics.tpot_s(1.0, 1.0, 1, "tokens") == 0
    assert metrics.e2e_s(1.0, 0.1, 1) == 1.0


def test_latency_between_tokens_divides_by_gaps() -> None:
    # NVIDIA/TensorRT-LLM pull request 8378: sum of latencies over tokens less requests, not over tokens.
    streams = [[1.0, 1.1, 1.2, 1.3], [2.0, 2.5]]
    assert metrics.gaps_s(streams[0]) == pytest.approx([0.1, 0.1, 0.1])
    tokens, requests, total = 6, 2, 0.3 + 0.5
    assert metrics.mean_itl_s(streams) == pytest.approx(total / (tokens - requests))
    assert metrics.mean_itl_s(streams) != pytest.approx(total / tokens)
    # The mean of TPOT over requests weighs both answers alike.
    each = [metrics.tpot_s(stream[-1], stream[0], len(stream)) for stream in streams]
    assert sum(each) / 2 == pytest.approx(0.3)


def test_gaps_count_pieces_that_arrived_not_tokens_of_their_text() -> None:
    # CentML/flexible-inference-bench pull request 66: 15 spaces are one token when the text is tokenised again, so the
    # divisor comes from the pieces that arrived: one more than there are gaps.
    arrivals = [0.5 + 0.1 * number for number in range(16)]
    assert len(metrics.gaps_s(arrivals)) + 1 == 16
    assert metrics.mean_itl_s([arrivals]) == pytest.approx(metrics.tpot_s(arrivals[-1], arrivals[0], 16))


def test_pieces_of_several_tokens_are_further_apart_while_tokens_are_faster() -> None:
    # vllm-project/vllm issue 48892: with drafts the gap rises from 22.4 to 159.6 ms while TPOT falls from 37.2 to 27.5.
    assert metrics.itl_s(0.0275, 159.6 / 27.5) == pytest.approx(0.1596)
    plain = rl.estimate("llama-3.1-8b", "rtx-4090")
    drafted = rl.estimate("llama-3.1-8b", "rtx-4090", draft="ngram", draft_tokens=4, acceptance=0.8)
    assert plain.itl_s == plain.tpot_s
    assert drafted.tpot_s.expected < plain.tpot_s.expected < drafted.itl_s.expected
    pieces = drafted.speculation.tokens_per_cycle
    assert drafted.itl_s.expected == pytest.approx(metrics.itl_s(drafted.tpot_s.expected, pieces))


def test_thinking_comes_before_the_answer() -> None:
    # vllm-project/guidellm pull request 742: the first token of any kind is not the first of the answer.
    found = rl.estimate("qwen3-8b", "rtx-4090", prompt_tokens=512, output_tokens=1001)
    answer = metrics.first_answer_token_s(found.ttft_s.expected, 1000, found.tpot_s.expected)
    assert answer == pytest.approx(found.e2e_s.expected, rel=1e-12)
    assert answer > 10 * found.ttft_s.expected


def test_a_thousand_tokens_over_a_hundred_users() -> None:
    # The article this package started from: 1,000 tokens/s in all are 10 for each of 100 users, one every 100 ms.
    each = metrics.per_request_tokens_per_s(1000, concurrency=100)
    assert each == 10
    assert metrics.tpot_of_rate_s(each) == pytest.approx(0.1)
    assert metrics.aggregate_tokens_per_s(each, concurrency=100) == 1000
    assert metrics.per_device_tokens_per_s(1000, devices=8) == 125
    for convert in (metrics.per_request_tokens_per_s, metrics.aggregate_tokens_per_s):
        with pytest.raises(TypeError, match="concurrency"):
            convert(1000)
        with pytest.raises(InvalidRequest, match="concurrency"):
            convert(1000, concurrency=0)


def test_rates_of_an_estimate_convert() -> None:
    found = rl.estimate("llama-3.1-8b", "h100-sxm", batch=100).decode
    each = metrics.per_request_tokens_per_s(found.aggregate_tokens_per_s.expected, concurrency=100)
    assert each == pytest.approx(found.tokens_per_s.expected, rel=1e-12)


def test_a_run_with_prefill_in_it_is_slower_than_its_streams_together() -> None:
    # sudoingX/qwen38-mtp, sweeps/multi-gpu.md: four streams of 16,384 tokens of prompt decode at 19.13 tokens/s each,
    # and the whole run gives 29.48. With 7.57 s of prefill before one stream of 34.19 the run gives 6.91: 65 tokens.
    together = metrics.aggregate_tokens_per_s(19.13, concurrency=4)
    assert together == pytest.approx(76.52)
    assert together > 2.5 * 29.48
    assert metrics.throughput_tokens_per_s(1, 65, duration_s=7.57 + 65 / 34.19) == pytest.approx(6.91, rel=0.01)


def test_goodput_counts_requests_that_meet_every_objective() -> None:
    first, token = [0.2, 0.4, 0.9, 0.3], [0.02, 0.05, 0.01, 0.03]
    objectives = {"max_ttft_s": 0.5, "max_tpot_s": 0.04}
    assert metrics.slo_attainment(first, token, **objectives) == 0.5
    assert metrics.slo_attainment(first, token) == 1
    assert metrics.slo_attainment(first, token, max_ttft_s=0.5) == 0.75
    assert metrics.goodput_per_s(first, token, duration_s=2.0, **objectives) == 1.0
    assert metrics.slo_attainment([0.1], [0.0], max_tpot_s=0.01) == 1  # one token: TPOT counts as 0, as vLLM has it
    with pytest.raises(InvalidRequest, match="first_s"):
        metrics.slo_attainment([], [])
    with pytest.raises(InvalidRequest, match="duration_s"):
        metrics.goodput_per_s(first, token, duration_s=0)


@pytest.mark.parametrize(
    ("function", "arguments", "where"),
    [
        ("tokens_per_s", (0.0,), "token_s"),
        ("tpot_of_rate_s", (-1.0,), "rate"),
        ("e2e_s", (1.0, 0.1, 0), "output_tokens"),
        ("tpot_s", (1.0, 2.0, 5), "whole_s"),
        ("tpot_s", (2.0, 1.0, 5, "mean"), "definition"),
        ("gaps_s", ([1.0, 0.5],), "arrivals_s"),
        ("mean_itl_s", ([[1.0]],), "streams_s"),
        ("mbu", (1e9, 0.0, 1e12), "time_s"),
        ("mfu", (1e9, 1.0, 0.0), "peak"),
    ],
)
def test_impossible_numbers_are_refused(function: str, arguments: tuple[object, ...], where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        getattr(metrics, function)(*arguments)


def test_utilisation_of_a_known_step() -> None:
    # 16e9 bytes in 20 ms on 1e12 byte/s: 80 %; 2 x 8e9 FLOPs in 20 ms on 1e14 FLOP/s: 0.8 %.
    assert metrics.mbu(16e9, 0.02, 1e12) == pytest.approx(0.8)
    assert metrics.mfu(16e9, 0.02, 1e14) == pytest.approx(0.008)
    found = rl.estimate("llama-3.1-8b", "24GiB,1000GB/s,100TFLOP/s@fp16", prompt_tokens=4096)
    for phase in (found.prefill, found.decode):
        seconds = phase.flops / (phase.peak_flop_per_s * phase.mfu)
        assert phase.read_bytes / (1e12 * phase.mbu) == pytest.approx(seconds, rel=1e-12)
    assert found.prefill.time_s.expected == pytest.approx(found.prefill.flops / (1e14 * found.prefill.mfu), rel=1e-12)


@given(
    hardware=st.sampled_from(
        [
            *("rtx-4090", "h100-sxm", "m3-max-40c", "2x rtx-3090", "7950x + ddr5-6000x2@96GiB", "strix-halo"),
            *("rtx-4090 + 7950x + ddr5-6000x2@96GiB", "rtx-5090 + ddr5-5600x2@192GiB"),
        ]
    ),
    model=st.sampled_from(["qwen3-0.6b", "llama-3.1-8b", "llama-3.3-70b", "qwen3-30b-a3b", "gpt-oss-120b"]),
    prompt=st.integers(1, 9000),
    context=st.integers(0, 30_000),
    batch=st.sampled_from([1, 4, 64, 700]),
    draft=st.sampled_from([None, "ngram", "eagle3", "qwen3-0.6b"]),
)
def test_no_utilisation_is_above_one(
    hardware: str, model: str, prompt: int, context: int, batch: int, draft: str | None
) -> None:
    request = {} if draft is None else {"draft": draft, "draft_tokens": 4, "acceptance": 0.9}
    found = rl.estimate(model, hardware, prompt_tokens=prompt, context_tokens=context, batch=batch, **request)
    for phase in (found.prefill, found.decode):
        assert 0 < phase.mfu <= 1
        assert 0 < phase.mbu <= 1


def test_nothing_computed_is_nothing_utilised() -> None:
    found = rl.estimate("llama-3.1-8b", "rtx-4090", prompt_tokens=np.array([0, 512]), output_tokens=8).prefill
    assert found.mfu[0] == found.mbu[0] == 0
    assert found.mfu[1] > found.mbu[1] > 0


def test_drafts_do_not_move_the_ridge() -> None:
    plain = rl.estimate("llama-3.1-8b", "rtx-4090").decode
    drafted = rl.estimate("llama-3.1-8b", "rtx-4090", draft="ngram", draft_tokens=4, acceptance=0.8).decode
    assert drafted.ridge_point == pytest.approx(plain.ridge_point, rel=1e-9)
    assert drafted.arithmetic_intensity > 4 * plain.arithmetic_intensity


def test_the_glossary_names_every_metric() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "pages" / "glossary.md").read_text(encoding="utf-8")
    public = [name for name, value in vars(metrics).items() if callable(value) and value.__module__ == metrics.__name__]
    for name in public:
        assert name.startswith("_") or f"`{name}" in page, name
