"""Speculative decoding: formulas against published values, limits, and what no draft can do."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm.engine import acceptance
from rooflinellm.errors import InvalidRequest
from rooflinellm.summary import request_notes

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")

CARD = "4096GiB,1000GB/s,100TFLOP/s@fp16"
alphas = st.floats(0, 1)
lengths = st.integers(1, 12)


def ask(model: str = "llama-3.1-8b", hardware: str = CARD, **request: Any) -> Any:
    given = {"weights": "bf16", "engine": "vllm", "prompt_tokens": 512} | request
    return rl.estimate(model, hardware, **given)


def drafted(length: int, accepted: Any, **request: Any) -> Any:
    return ask(draft=request.pop("draft", "ngram"), draft_tokens=length, acceptance=accepted, **request)


# ------------------------------------------------------------------------------------------------------------ formulas


def test_tokens_of_a_cycle() -> None:
    # Leviathan et al. (2023), equation 1: (1 - 0.6^4) / (1 - 0.6).
    assert acceptance.tokens_per_cycle(0.6, 3) == pytest.approx(2.176, rel=1e-12)


@given(alpha=alphas, length=st.integers(0, 6))
def test_tokens_of_a_cycle_by_enumeration(alpha: float, length: int) -> None:
    """Over all outcomes of the drafts: those before the first rejected one, and the verifier's own."""
    expected = 0.0
    for outcome in product((True, False), repeat=length):
        chance = math.prod(alpha if each else 1 - alpha for each in outcome)
        accepted = next((at for at, each in enumerate(outcome) if not each), length)
        expected += chance * (accepted + 1)
    assert acceptance.tokens_per_cycle(alpha, length) == pytest.approx(expected, rel=1e-9)


def test_speed_and_operations_of_the_paper() -> None:
    # Leviathan et al. (2023), theorems 3.8 and 3.11, with alpha 0.8, four drafts and a draft cost of 0.1.
    cycle = acceptance.tokens_per_cycle(0.8, 4)
    assert acceptance.speedup(cycle, 4, 0.1) == pytest.approx(2.4011428571428572, rel=1e-12)
    assert acceptance.operations_factor(cycle, 4, 0.1) == pytest.approx(1.6063779152784392, rel=1e-12)
    assert acceptance.speedup(cycle, 4, 0.1, 1.0) > acceptance.speedup(cycle, 4, 0.1, 1.5)


def test_a_tree_of_drafts() -> None:
    # 1 + 0.7 + 0.15 + 0.7 (0.6 + 0.2) + 0.7 x 0.6 x 0.5; siblings exclude one another.
    nodes = {"a": 0.7, "b": 0.15, "aa": 0.6, "ab": 0.2, "aaa": 0.5}
    assert acceptance.tree_tokens_per_cycle(nodes) == pytest.approx(2.62, rel=1e-12)
    for wrong in ({"a": 0.7, "b": 0.4}, {"ab": 0.5}, {"a": -0.1}):
        with pytest.raises(InvalidRequest, match="acceptance"):
            acceptance.tree_tokens_per_cycle(wrong)


@given(alpha=alphas, length=lengths)
def test_a_chain_is_a_tree_without_branches(alpha: float, length: int) -> None:
    chain = {"a" * depth: alpha for depth in range(1, length + 1)}
    assert acceptance.tree_tokens_per_cycle(chain) == pytest.approx(acceptance.tokens_per_cycle(alpha, length))


def test_shares_by_position_add_up() -> None:
    # vllm-project/vllm issue 48892: rates by position are of all cycles, and add up to the length it reports.
    shares = [0.9, 0.8, 0.7, 0.55, 0.45]
    assert acceptance.cycle_tokens(shares, 5) == pytest.approx(1 + sum(shares)) == pytest.approx(4.40)


@given(alpha=st.floats(0.01, 0.99), length=lengths)
def test_a_share_of_drafts_is_no_probability(alpha: float, length: int) -> None:
    """What logs call acceptance rate, accepted over drafted, is (E - 1) / gamma; and back."""
    cycle = acceptance.tokens_per_cycle(alpha, length)
    share = (cycle - 1) / length
    assert share <= alpha * (1 + 1e-12)
    assert acceptance.alpha_of_share(share, length) == pytest.approx(alpha, abs=1e-9)
    assert acceptance.cycle_tokens({"accepted_over_drafted": share}, length) == pytest.approx(cycle)
    assert acceptance.cycle_tokens({"length": cycle}, length) == pytest.approx(cycle)


def test_a_cycle_gives_from_one_token_to_all_and_one_more() -> None:
    assert acceptance.cycle_tokens({"length": 1}, 4) == 1
    assert acceptance.cycle_tokens({"length": 5}, 4) == 5
    for beyond in (0.99, 5.01):
        with pytest.raises(InvalidRequest, match="1 to 5"):
            acceptance.cycle_tokens({"length": beyond}, 4)


@given(alpha=alphas, length=lengths)
def test_more_acceptance_and_longer_drafts_give_more(alpha: float, length: int) -> None:
    cycle = acceptance.tokens_per_cycle(alpha, length)
    assert 1 <= cycle <= length + 1
    assert acceptance.tokens_per_cycle(alpha, length + 1) >= cycle
    assert acceptance.tokens_per_cycle(min(alpha + 0.1, 1), length) >= cycle


# -------------------------------------------------------------------------------------------------------------- limits


def test_drafts_that_are_always_accepted_give_five_tokens_a_step() -> None:
    found = drafted(4, 1.0)
    assert found.speculation.tokens_per_cycle == 5
    assert found.itl_s.ideal == pytest.approx(5 * found.tpot_s.ideal, rel=1e-12)


def test_drafts_that_are_never_accepted_give_one_and_are_no_faster() -> None:
    plain, none = ask(), drafted(4, 0.0)
    assert none.speculation.tokens_per_cycle == 1
    assert none.speculation.speedup <= 1
    assert none.decode.tokens_per_s.expected <= plain.decode.tokens_per_s.expected
    assert drafted(4, 0.0, draft="llama-3.2-1b").decode.tokens_per_s.expected < none.decode.tokens_per_s.expected


def test_no_drafts_are_a_plain_decode() -> None:
    assert ask(draft="llama-3.2-1b").decode.time_s == ask().decode.time_s


@given(
    model=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "qwen3.5-9b", "deepseek-v3"]),
    bandwidth=st.integers(100, 8000),
    compute=st.integers(1, 2000),
    length=lengths,
    alpha=alphas,
    batch=st.sampled_from([1, 4, 64, 512]),
    context=st.integers(0, 60_000),
    draft=st.sampled_from(["ngram", "llama-3.2-1b"]),
)
def test_bytes_a_second_never_exceed_the_bandwidth(
    model: str, bandwidth: int, compute: int, length: int, alpha: float, batch: int, context: int, draft: str
) -> None:
    """Drafts spread the bytes of a pass over more tokens; they add no bandwidth and no compute."""
    hardware = f"4096GiB,{bandwidth}GB/s,{compute}TFLOP/s@fp16"
    request = {"model": model, "hardware": hardware, "weights": "Q8_0", "engine": "llama.cpp", "batch": batch}
    found = drafted(length, alpha, context_tokens=context, output_tokens=64, draft=draft, **request)
    decode = found.decode
    for seconds in (decode.time_s.ideal, decode.time_s.low, decode.time_s.expected):
        assert decode.read_bytes / seconds <= bandwidth * 1e9 * (1 + 1e-9)
        assert decode.flops / seconds <= compute * 1e12 * (1 + 1e-9)
    # No rate is above gamma + 1 tokens for each of the ideal's verifying passes; none is shorter than a plain step.
    plain = ask(context_tokens=context + 512, prompt_tokens=0, output_tokens=1, **request).decode
    assert decode.tokens_per_s.ideal <= (length + 1) * plain.tokens_per_s.ideal * (1 + 1e-9)


def test_fewer_bytes_for_each_useful_token() -> None:
    plain, found = ask(), drafted(4, 0.8)
    assert found.decode.read_bytes < plain.decode.read_bytes
    assert found.decode.flops > plain.decode.flops


# -------------------------------------------------------------------------------------------------- what it depends on


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-8b"])
def test_the_gain_goes_as_the_batch_computes(model: str) -> None:
    # Four drafts, always the same acceptance: verifying B x 5 tokens becomes a matter of compute.
    gains = [drafted(4, 0.7, model=model, batch=batch).speculation.speedup for batch in (1, 16, 64, 256, 1024)]
    assert gains[0] > 2
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 1


@pytest.mark.parametrize(("draft", "chosen"), [("ngram", 4), ("llama-3.2-1b", 8)])
@pytest.mark.parametrize("batch", [1, 3])
def test_each_drafted_token_is_chosen_from_all_logits(draft: str, chosen: int, batch: int) -> None:
    # llama.cpp looks through 128,256 logits at 4 ns each: of what drafts and of what verifies, for each sequence.
    found = drafted(4, {"length": 3.0}, draft=draft, batch=batch, output_tokens=301, engine="llama.cpp")
    (row,) = [each for each in found.decode.operators if each.name == "choosing drafted tokens"]
    assert row.time_s == pytest.approx(300 / 3 * batch * chosen * 128_256 * 4e-9)


def test_a_mixture_reads_more_experts_to_verify() -> None:
    dense, mixture = (drafted(4, 0.7, model=model).speculation for model in ("llama-3.1-8b", "qwen3-30b-a3b"))
    assert mixture.verify_steps > dense.verify_steps >= 1
    assert mixture.speedup < dense.speedup


@pytest.mark.parametrize(("saved", "steps"), [(1.0, 1.0), (0.8, 1.8), (0.0, 5.0)])
def test_verifying_by_a_stated_amortisation(saved: float, steps: float) -> None:
    # T_verify(n) = T_1 (1 + (1 - a) (n - 1)), with n = 5.
    options = rl.Options(verify_amortisation=saved)
    assert drafted(4, 0.7, options=options).speculation.verify_steps == pytest.approx(steps, rel=0.01)


def test_a_draft_model_takes_memory_and_time() -> None:
    free, model = drafted(4, 0.7), drafted(4, 0.7, draft="llama-3.2-1b")
    assert free.memory.draft_bytes == 0
    cache = rl.model("llama-3.2-1b").kv_bytes_per_token("bf16") * model.workload["context_limit"]
    weights = ask("llama-3.2-1b").memory.resident_weight_bytes
    assert model.memory.draft_bytes >= weights + cache
    assert model.memory.total_bytes - free.memory.total_bytes == model.memory.draft_bytes
    assert free.speculation.draft_share == pytest.approx(0)
    assert 0 < model.speculation.draft_share < 0.9
    assert model.speculation.speedup < free.speculation.speedup


@pytest.mark.parametrize(("target", "draft"), [("qwen3-32b", "qwen3-0.6b"), ("qwen3.5-27b", "qwen3.5-0.8b")])
def test_a_draft_model_takes_what_it_would_take_alone(target: str, draft: str) -> None:
    # Weights, cache, recurrent state and buffers of its own.
    shared: dict[str, Any] = {"weights": "Q4_K_M", "engine": "llama.cpp:cuda", "prompt_tokens": 2048}
    both = rl.estimate(target, "h100-sxm", draft=draft, draft_tokens=4, acceptance=0.7, **shared)
    alone = rl.estimate(draft, "h100-sxm", **shared)
    assert both.memory.draft_bytes == alone.memory.total_bytes


def test_the_best_draft_is_found_by_search() -> None:
    assert drafted(4, 0.02, draft="llama-3.2-1b").speculation.best_draft_tokens == 0
    poor, good = (drafted(4, alpha, draft="llama-3.2-1b").speculation.best_draft_tokens for alpha in (0.4, 0.9))
    assert poor < good
    rates = {n: drafted(n, 0.8, draft="llama-3.2-1b").decode.tokens_per_s.expected for n in range(1, 17)}
    best = drafted(4, 0.8, draft="llama-3.2-1b").speculation.best_draft_tokens
    assert rates[best] >= 0.999 * max(rates.values())


def test_heads_and_modules_draft_for_less_than_a_model() -> None:
    shares = {
        draft: drafted(3, 0.7, draft=draft, model="qwen3.5-27b").speculation.draft_share
        for draft in ("mtp", "eagle3", "qwen3-8b", "ngram")
    }
    assert shares["ngram"] == pytest.approx(0)
    assert 0 < shares["eagle3"] < shares["qwen3-8b"]
    assert 0 < shares["mtp"] < shares["qwen3-8b"]


def test_a_head_of_three_features_chooses_from_32_000_tokens() -> None:
    # EAGLE-3 for Llama 3.1 8B, in 16 bits: 3 x 4,096 features become 4,096, one layer of the model with its norms,
    # whose queries, keys and values see the embedding beside them, the final norm, a head of 32,000 rows
    # (draft_vocab_size of the published config.json), and the layer's cache. The published file has 850 MB.
    memory = drafted(4, 0.7, draft="eagle3").memory
    layer = (2 * 4096 + 2 * 1024 + 4096 + 2 * 1024 + 3 * 14_336) * 4096 + 2 * 4096
    head = 3 * 4096 * 4096 + layer + 4096 + 32_000 * 4096
    assert 2 * head == pytest.approx(850e6, rel=2e-3)
    assert memory.draft_bytes == 2 * head + memory.kv_allocated_bytes // 32


def test_a_head_of_two_features_shares_the_output_matrix_alone() -> None:
    # EAGLE for Llama 3.1 8B: feature and embedding become 4,096, one layer, norms; all else is the model's own.
    memory = drafted(4, 0.7, draft="eagle").memory
    layer = (2 * 4096 + 2 * 1024 + 3 * 14_336) * 4096 + 2 * 4096
    assert memory.draft_bytes == 2 * (2 * 4096 * 4096 + layer + 4096) + memory.kv_allocated_bytes // 32


def test_sequences_of_a_batch_gain_alike() -> None:
    found = drafted(4, 0.7, batch=8)
    cycle = found.speculation
    aggregate = 8 * cycle.tokens_per_cycle / cycle.cycle_s.expected
    assert found.decode.aggregate_tokens_per_s.expected == pytest.approx(aggregate, rel=1e-9)


def test_rolling_back_a_state_takes_a_copy_for_each_draft() -> None:
    kept = drafted(4, 0.7, model="qwen3.5-9b", options=rl.Options(state_copies=5)).memory.state_bytes
    assert kept == 5 * ask("qwen3.5-9b").memory.state_bytes


def test_a_draft_that_drafts_nothing_is_warned_of() -> None:
    with pytest.warns(rl.RooflineWarning, match=r"qwen3-0.6b takes memory and drafts nothing; give draft_tokens=4"):
        idle = rl.estimate("qwen3-8b", "rtx-4090", draft="qwen3-0.6b")
    alone = rl.estimate("qwen3-8b", "rtx-4090")
    assert idle.memory.total_bytes > alone.memory.total_bytes
    assert idle.decode.tokens_per_s == alone.decode.tokens_per_s
    assert rl.fit("qwen3-8b", "rtx-4090", draft="qwen3-0.6b").warnings == ()  # where only memory is asked about


def test_what_drafting_brings_is_one_line() -> None:
    answer = rl.estimate("qwen3-32b", "rtx-4090", draft="qwen3-0.6b", draft_tokens=4, acceptance=0.7)
    drafts = answer.speculation
    (line,) = [text for text in request_notes([answer]) if text.startswith("speculation")]
    assert line.startswith("speculation: qwen3-0.6b Q4_K_M, 4 tokens drafted, 2.77 tokens a cycle: ")
    assert f"{drafts.speedup:.2f} times the speed without" in line
    assert line.endswith(f"; fastest with {drafts.best_draft_tokens}") == (drafts.best_draft_tokens != 4)
    assert "qwen3-0.6b" in repr(drafts) and len(repr(drafts)) < 120 and "\n" not in repr(drafts)
    assert drafts.draft_model.id == "qwen3-0.6b" and drafts.draft_weights == "gguf:q4_k_m"
    assert (
        rl.estimate("qwen3-32b", "rtx-4090", draft="eagle3", draft_tokens=4, acceptance=0.7).speculation.draft_model
        is None
    )


def test_cached_tokens_and_context_are_said() -> None:
    answer = rl.estimate("llama-3.1-8b", "rtx-4090", prompt_tokens=4096, cached_tokens=3584, context_tokens=100)
    assert request_notes([answer]) == [
        "prompt of 4,096: 3,584 tokens are cached; prefill rate and time are those of the other 512",
        "in the cache before the prompt: 100 tokens",
    ]
    assert request_notes([rl.estimate("llama-3.1-8b", "rtx-4090")]) == []


def test_a_draft_from_a_file_is_what_the_file_holds_now(tmp_path: Path) -> None:
    database = Path(__file__).parents[1] / "model_db" / "qwen"
    texts = [(database / f"{name}.yaml").read_text() for name in ("qwen3-0.6b", "qwen3-1.7b")]
    file = tmp_path / "draft.yaml"
    for draft in (file, str(file)):
        held = []
        for text in texts:
            file.write_text(text)
            held.append(drafted(4, 0.5, model="qwen3-8b", draft=draft).memory.draft_bytes)
        named = [
            drafted(4, 0.5, model="qwen3-8b", draft=name).memory.draft_bytes for name in ("qwen3-0.6b", "qwen3-1.7b")
        ]
        assert held == named and held[0] < held[1]
    with pytest.warns(rl.RooflineWarning, match="drafts nothing"):
        ask("qwen3-8b", draft=file)
