"""Batches: the largest within limits, unequal contexts, and prompts beside running answers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm.api.plans import Setup, settle
from rooflinellm.engine.step_times import StepTimes
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.experts import MEASURED_SKEW

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")

CARD = "4096GiB,1000GB/s,100TFLOP/s@fp16"
FORM = {"weights": "Q8_0", "engine": "llama.cpp"}
models = st.sampled_from(
    ["llama-3.1-8b", "gemma-3-27b", "gpt-oss-20b", "deepseek-v3", "qwen3.5-9b", "qwen3-30b-a3b", "llama-4-scout"]
)
hardware = st.sampled_from(
    [CARD, "rtx-4090", "h100-sxm", "2x rtx-3090", "rtx-4090 + ddr5-6000x2@512GiB", "m3-ultra-80c@512GiB"]
)
KINDS = ("ideal", "expected", "low", "high")


def step(model: str, device: str, context: int, batch: int) -> Any:
    request = {"prompt_tokens": 0, "context_tokens": context, "output_tokens": 1, "batch": batch}
    return rl.estimate(model, device, **request, **FORM)


# -------------------------------------------------------------------------------------------------------- single passes


@given(model=models, device=hardware, context=st.integers(0, 30_000), batch=st.integers(1, 80))
def test_equal_contexts_are_a_step_of_a_batch(model: str, device: str, context: int, batch: int) -> None:
    found, whole = rl.mixed_step(model, device, contexts=[context] * batch, **FORM), step(model, device, context, batch)
    for kind in KINDS:
        assert getattr(found.time_s, kind) == pytest.approx(getattr(whole.decode.time_s, kind), rel=1e-12)
    assert (found.flops, found.read_bytes) == (whole.decode.flops, whole.decode.read_bytes)
    assert found.slowdown == 1


@given(model=models, contexts=st.lists(st.integers(0, 40_000), min_size=1, max_size=8))
def test_unequal_contexts_cost_what_each_costs(model: str, contexts: list[int]) -> None:
    """Attention is the sum over the sequences, the rest of the step that of the batch; order does not matter."""

    def attention(found: Any) -> float:
        rows = [row for row in found.decode.operators if row.name.startswith("attention") and "output" not in row.name]
        return math.fsum(row.read_bytes for row in rows)

    found = rl.mixed_step(model, CARD, contexts=contexts, **FORM)
    batch = step(model, CARD, 0, len(contexts))
    each = math.fsum(attention(step(model, CARD, context, 1)) for context in contexts)
    assert found.read_bytes == pytest.approx(batch.decode.read_bytes - attention(batch) + each, rel=1e-12)
    assert rl.mixed_step(model, CARD, contexts=contexts[::-1], **FORM) == found
    ends = [step(model, CARD, pick(contexts), len(contexts)).decode.time_s for pick in (min, max)]
    assert ends[0].expected * (1 - 1e-12) <= found.time_s.expected <= ends[1].expected * (1 + 1e-12)


@given(model=models, device=hardware, chunk=st.integers(1, 4000), before=st.integers(0, 20_000))
def test_a_chunk_alone_is_a_prefill(model: str, device: str, chunk: int, before: int) -> None:
    found = rl.mixed_step(model, device, contexts=[], chunk_tokens=chunk, chunk_context=before, **FORM)
    request = {"prompt_tokens": chunk, "context_tokens": before, "output_tokens": 0, "prefill_chunk": chunk}
    prefill = rl.estimate(model, CARD, **request, **FORM).prefill
    assert (found.flops, found.read_bytes) == (prefill.flops, prefill.read_bytes)
    assert found.decode_s is None
    assert found.slowdown is None
    alone = rl.mixed_step(model, CARD, contexts=[], chunk_tokens=chunk, chunk_context=before, **FORM)
    assert alone.time_s.expected == pytest.approx(prefill.time_s.expected, rel=1e-12)


@given(model=models, batch=st.integers(1, 60), chunk=st.integers(1, 2000), context=st.integers(0, 20_000))
def test_a_chunk_beside_running_requests_saves_a_read_of_the_weights(
    model: str, batch: int, chunk: int, context: int
) -> None:
    both = rl.mixed_step(model, CARD, contexts=[context] * batch, chunk_tokens=chunk, **FORM)
    decode = rl.mixed_step(model, CARD, contexts=[context] * batch, **FORM)
    prefill = rl.mixed_step(model, CARD, contexts=[], chunk_tokens=chunk, **FORM)
    assert both.flops == decode.flops + prefill.flops
    assert both.read_bytes < decode.read_bytes + prefill.read_bytes
    assert decode.time_s.expected <= both.time_s.expected
    assert both.time_s.ideal <= (decode.time_s.ideal + prefill.time_s.ideal) * (1 + 1e-12)
    assert both.decode_s == decode.time_s


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "qwen3.5-9b", "qwen3-30b-a3b", "deepseek-v3"])
def test_a_simulated_server_takes_the_same_steps(model: str) -> None:
    """The load simulation looks steps up in tables of its own; both come to the same time."""
    plan = settle(model, CARD, Setup("Q8_0", None, "llama.cpp")).plan()
    limits = {"step_tokens": 512, "sequences": 16, "context": 9000, "chunks": (300,)}
    steps = StepTimes(plan, MEASURED_SKEW, "operator", **limits)
    for context, count, chunk, last in ((4000, 8, 300, False), (4000, 8, 300, True), (700, 1, 0, False)):
        looked_up = steps.mixed_s(count, context * count, [(chunk, 0)] if chunk else [], int(last))
        found = rl.mixed_step(model, CARD, contexts=[context] * count, chunk_tokens=chunk, last_chunk=last, **FORM)
        assert looked_up == pytest.approx(found.time_s.expected, rel=1e-12)


def test_only_the_last_chunk_computes_logits() -> None:
    last, other = (
        rl.mixed_step("qwen3-0.6b", CARD, contexts=[], chunk_tokens=512, last_chunk=last, **FORM)
        for last in (True, False)
    )
    assert last.flops - other.flops == 2 * 151_936 * 1024


# ------------------------------------------------------------------------------------------------------ chunked prefill


@given(
    model=models,
    device=hardware,
    prompt=st.integers(1, 20_000),
    contexts=st.lists(st.integers(0, 20_000), min_size=1, max_size=5),
    budget=st.integers(6, 5000),
)
def test_chunked_prefill_is_the_sum_of_its_passes(
    model: str, device: str, prompt: int, contexts: list[int], budget: int
) -> None:
    chunk = budget - len(contexts)
    if prompt / chunk > 30:
        budget = (chunk := -(-prompt // 30)) + len(contexts)
    found = rl.chunked_prefill(model, CARD, prompt_tokens=prompt, contexts=contexts, budgets=[budget], **FORM)
    whole, row = found.rows
    passes = []
    for number, start in enumerate(range(0, prompt, chunk)):
        new, grown = min(chunk, prompt - start), [context + number for context in contexts]
        request = {"chunk_tokens": new, "chunk_context": start, "last_chunk": start + new == prompt}
        passes.append(rl.mixed_step(model, CARD, contexts=grown, **request, **FORM))
    assert row.steps == len(passes)
    assert row.read_bytes == pytest.approx(sum(one.read_bytes for one in passes), rel=1e-12)
    for kind in KINDS:
        each = [getattr(one.time_s, kind) for one in passes]
        assert getattr(row.ttft_s, kind) == pytest.approx(math.fsum(each), rel=1e-9)
        assert getattr(row.longest_gap_s, kind) == pytest.approx(max(each), rel=1e-9)
    assert whole.longest_gap_s.expected == pytest.approx(whole.ttft_s.expected + found.decode_s.expected)


def test_chunks_bound_the_gap_and_delay_the_prompt() -> None:
    # Agrawal et al. (2024), "Sarathi-Serve", arXiv:2403.02310: without chunks a generation stalls for a whole prefill.
    request = {"weights": "bf16", "engine": "vllm", "budgets": (8192, 2048, 512)}
    found = rl.chunked_prefill("llama-3.1-8b", "h100-sxm", prompt_tokens=32_768, contexts=[4096] * 32, **request)
    whole, *rows = found.rows
    assert whole.longest_gap_s.expected > 50 * found.decode_s.expected
    gaps = [row.longest_gap_s.expected for row in found.rows]
    assert gaps == sorted(gaps, reverse=True)
    assert rows[-1].longest_gap_s.expected < 4 * found.decode_s.expected
    firsts = [row.ttft_s.expected for row in rows]
    assert firsts == sorted(firsts)
    # Weights of 15 GB and the earlier chunks' cache are read again in each of the passes.
    assert [row.steps for row in rows] == [5, 17, 69]
    chunk, token = 512 - 32, 131_072
    again = token * chunk * 69 * 68 // 2
    running = token * sum(32 * (4096 + number) for number in range(69))
    weights = rows[-1].read_bytes - again - running
    assert weights / 69 == pytest.approx(15.0e9, rel=0.01)


def test_rows_and_table_of_chunks() -> None:
    found = rl.chunked_prefill("llama-3.1-8b", "rtx-4090", prompt_tokens=4000, contexts=np.array([100, 2000]))
    assert [row["budget_tokens"] for row in found.to_records()] == [None, 512, 1024, 2048, 8192]
    assert json.loads(found.to_json()) == found.to_dict()
    assert "prompt alone" in found.table().to_text(80)
    assert found.to_dataframe()["steps"].tolist()[1:] == [8, 4, 2, 1]
    assert "<table" in found._repr_html_()


@pytest.mark.parametrize(
    ("function", "request_", "where"),
    [
        ("mixed_step", {"contexts": []}, "contexts"),
        ("mixed_step", {"contexts": 5}, "contexts"),
        ("mixed_step", {"contexts": [-1]}, "contexts"),
        ("mixed_step", {"contexts": [1], "chunk_tokens": -1}, "chunk_tokens"),
        ("mixed_step", {"contexts": [1], "prompt_tokens": 5}, "prompt_tokens"),
        ("chunked_prefill", {"contexts": [], "prompt_tokens": 5}, "contexts"),
        ("chunked_prefill", {"contexts": [1], "prompt_tokens": 0}, "prompt_tokens"),
        ("chunked_prefill", {"contexts": [1, 2], "prompt_tokens": 5, "budgets": [2]}, "budgets"),
        ("largest_batch", {"batch": 4}, "batch"),
        ("largest_batch", {"max_tpot_s": 0}, "max_tpot_s"),
        ("largest_batch", {"at": "best"}, "at"),
        ("largest_batch", {"prompt_tokens": [5, 6]}, "prompt_tokens"),
    ],
)
def test_impossible_requests_are_refused(function: str, request_: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        getattr(rl, function)("llama-3.1-8b", "rtx-4090", **request_)


# ------------------------------------------------------------------------------------------------------- largest batch


@given(
    model=models,
    tpot=st.floats(0.001, 0.5),
    ttft=st.floats(0.01, 30),
    at=st.sampled_from(KINDS),
    prompt=st.integers(1, 5000),
)
def test_the_largest_batch_meets_every_limit_and_one_more_does_not(
    model: str, tpot: float, ttft: float, at: Any, prompt: int
) -> None:
    request = {"prompt_tokens": prompt, "output_tokens": 50, **FORM}
    found = rl.largest_batch(model, "h100-sxm", max_tpot_s=tpot, max_ttft_s=ttft, at=at, **request)

    def meets(batch: int) -> bool:
        one = rl.estimate(model, "h100-sxm", batch=batch, **request)
        return getattr(one.tpot_s, at) <= tpot and getattr(one.ttft_s, at) <= ttft and bool(one.memory.fits)

    assert found.batch == 0 or meets(found.batch)
    assert not meets(found.batch + 1)
    alone = {"memory": found.by_memory, "max_tpot_s": found.by_tpot, "max_ttft_s": found.by_ttft}
    assert found.batch == min(alone.values()) == alone[found.limited_by]


def test_without_limits_memory_decides() -> None:
    request = {"prompt_tokens": 2048, "output_tokens": 256, "weights": "bf16", "engine": "vllm"}
    found = rl.largest_batch("llama-3.1-8b", "h100-sxm", **request)
    assert (found.limited_by, found.by_tpot, found.by_ttft) == ("memory", None, None)
    assert found.batch == rl.estimate("llama-3.1-8b", "h100-sxm", **request).memory.max_batch
    assert found.estimate.workload["batch"] == found.batch
    assert found.to_dict()["batch"] == found.batch


def test_a_cautious_limit_allows_less() -> None:
    request = {"prompt_tokens": 2048, "output_tokens": 256, "max_tpot_s": 0.03, **FORM}
    batches = [
        rl.largest_batch("llama-3.1-8b", "h100-sxm", at=at, **request).by_tpot for at in ("high", "expected", "low")
    ]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1]
