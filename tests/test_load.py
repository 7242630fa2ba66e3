"""A server under load: laws of queueing, limits without a queue, conservation, and steps that agree with the engine."""

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import rooflinellm as rl
from rooflinellm.api.load_result import LoadResult
from rooflinellm.api.plans import Setup, settle
from rooflinellm.cli import main
from rooflinellm.engine.cache_room import cache_room
from rooflinellm.engine.load import Server, Workload, serve
from rooflinellm.engine.load_bound import least_busy_s
from rooflinellm.engine.memory import Allocation
from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.phases import phase_time
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.step_times import NOTHING, StepTimes
from rooflinellm.operators.experts import MEASURED_SKEW

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.RooflineWarning")

MODEL, CARD, SERVER = "llama-3.1-8b", "rtx-4090", "h100-sxm"
SPREAD: dict[str, Any] = {"prompt_tokens": {"mean": 512, "cv": 1.0}, "output_tokens": {"mean": 128, "cv": 1.0}}
TIMES = ("ttft_s", "tpot_s", "e2e_s", "queue_s")


def load(model: str = MODEL, hardware: str = SERVER, **asked: Any) -> LoadResult:
    """A load on a server under vLLM, unless asked otherwise."""
    settings = {"weights": "fp8"} if hardware == SERVER else {}
    return rl.simulate_load(model, hardware, **{**settings, **asked})


BUSY = load(rate=40, requests=4_000, **SPREAD)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["load", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


# --- laws


@pytest.mark.parametrize("found", [BUSY, load(concurrency=24, requests=2_000, think_s=0.3, tokenize_s=0.01, **SPREAD)])
def test_little(found: LoadResult) -> None:
    # Little (1961): L = lambda W; L is summed up over time, W over requests.
    assert found.mean_concurrency == pytest.approx(found.requests_per_s * found.e2e_s.mean, rel=1e-9)


@pytest.mark.parametrize("rho", [0.5, 0.7])
def test_one_server_of_equal_service_waits_as_pollaczek_and_khinchine_say(rho: float) -> None:
    # M/D/1: mean wait = rho s / (2 (1 - rho))
    service = float(rl.estimate(MODEL, SERVER, weights="fp8", prompt_tokens=2_000, output_tokens=1).ttft_s.expected)
    found = load(rate=rho / service, requests=60_000, prompt_tokens=2_000, output_tokens=1, max_sequences=1)
    assert found.queue_s.mean == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.03)
    assert found.utilisation == pytest.approx(rho, rel=0.01)
    assert found.ttft_s.mean - found.queue_s.mean == pytest.approx(service, rel=1e-9)
    # and each request as Lindley (1952) says: W' = max(0, W + s - gap)
    waited = 0.0
    for gap, queue in zip(np.diff(found.requests.arrival_s).tolist(), found.requests.queue_s[1:].tolist(), strict=True):
        waited = max(0.0, waited + service - gap)
        assert abs(queue - waited) < 1e-6 * service


def test_a_rare_request_meets_nobody() -> None:
    # M/G/infinity: without load every request is alone.
    alone = rl.estimate(MODEL, SERVER, weights="fp8", prompt_tokens=700, output_tokens=60)
    found = load(rate=0.002, requests=300, prompt_tokens=700, output_tokens=60)
    assert found.ttft_s.p50 == pytest.approx(alone.ttft_s.expected, rel=1e-6)
    assert found.tpot_s.p50 == pytest.approx(alone.tpot_s.expected, rel=1e-6)
    assert found.queue_s.p50 == 0
    assert found.mean_batch <= 1.01


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_a_closed_loop_keeps_its_clients_busy(clients: int) -> None:
    # X = C / (E2E + think), between the rush at the start and the end, when clients have nothing left to ask.
    found = load(concurrency=clients, requests=100 * clients, think_s=0.5, **SPREAD)
    ends = np.sort(found.requests.finish_s)
    first, last = len(ends) // 10, len(ends) * 9 // 10
    rate = (last - first) / (ends[last] - ends[first])
    assert rate == pytest.approx(clients / (found.e2e_s.mean + 0.5), rel=0.03)
    assert found.requests_per_s <= clients / (found.e2e_s.mean + 0.5) * 1.01
    assert found.mean_concurrency <= clients


def test_equal_clients_decode_as_a_batch_does() -> None:
    # 16 clients whose prompts are cached: all decode together, step by step, as a batch of 16 of `estimate`.
    batch = rl.estimate(MODEL, SERVER, weights="fp8", prompt_tokens=512, output_tokens=400, batch=16)
    found = load(concurrency=16, requests=16, prompt_tokens=512, output_tokens=400, prefill_chunk=8_192)
    assert found.tpot_s.mean == pytest.approx(float(batch.tpot_s.expected), rel=1e-6)
    assert found.ttft_s.mean == pytest.approx(float(batch.ttft_s.expected), rel=1e-6)


def _next_token_s(batch: int, context: int) -> float:
    same: dict[str, Any] = {"prompt_tokens": 0, "context_tokens": context, "output_tokens": 1, "batch": batch}
    return float(rl.estimate(MODEL, SERVER, weights="fp8", **same).tpot_s.expected)


def _alone_ttft_s(prompt: int) -> float:
    return float(rl.estimate(MODEL, SERVER, weights="fp8", prompt_tokens=prompt, output_tokens=1).ttft_s.expected)


@pytest.mark.parametrize("clients", [8, 32])
def test_a_closed_loop_settles_at_the_fixed_point(clients: int) -> None:
    # X = C / (TTFT + (N - 1) TPOT(B) + think) and B = X (N - 1) TPOT(B): short prompts, so that they hardly disturb
    prompt, output, think = 8, 512, 1.0
    batch, rate = float(clients), 0.0
    for _ in range(100):
        token = _next_token_s(max(round(batch), 1), prompt + output // 2)
        rate = clients / (_alone_ttft_s(prompt) + (output - 1) * token + think)
        batch = rate * (output - 1) * token
    spread = {"mean": output, "cv": 0.7}  # else all clients ask at the same time
    found = load(concurrency=clients, requests=100 * clients, prompt_tokens=prompt, output_tokens=spread, think_s=think)
    assert found.requests_per_s == pytest.approx(rate, rel=0.05)
    assert found.mean_batch == pytest.approx(batch, rel=0.05)


def test_at_saturation_prompts_and_tokens_share_the_time() -> None:
    # Without chunks a request takes its prefill and its share of the decode steps: X (t_pre + (N - 1) T(B) / B) = 1.
    prompt, output, slots = 2_000, 100, 64
    found = load(
        rate=1e6, requests=3_000, prompt_tokens=prompt, output_tokens=output, max_sequences=slots, chunked_prefill=False
    )
    together = rl.estimate(MODEL, SERVER, weights="fp8", prompt_tokens=prompt, output_tokens=1, batch=4)
    prefill = float(together.prefill.time_s.expected) / 4  # as many prompts as a step holds
    token = _next_token_s(slots, prompt + output // 2) / slots
    assert found.requests_per_s == pytest.approx(1 / (prefill + (output - 1) * token), rel=0.02)


def test_more_load_is_slower_for_each_and_faster_for_all() -> None:
    rates = [2, 10, 30, 60]
    found = [load(rate=rate, requests=1_500, **SPREAD) for rate in rates]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        means = [getattr(each, name).mean for each in found]
        assert means == sorted(means)
    throughputs = [each.throughput_tokens_per_s for each in found]
    assert throughputs == sorted(throughputs)
    clients = [load(concurrency=count, requests=1_500, **SPREAD) for count in (1, 4, 16, 64)]
    assert sorted(each.throughput_tokens_per_s for each in clients) == [c.throughput_tokens_per_s for c in clients]


def test_no_throughput_is_above_the_ideal() -> None:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        (MODEL, SERVER, {}),
        (MODEL, CARD, {}),
        ("gpt-oss-20b", CARD, {}),
        (MODEL, "2x rtx-3090", {}),
        ("qwen3-30b-a3b", "rtx-4090 + 7950x + ddr5-6000x2@96GiB", {"weights": "Q8_0"}),
    ]
    for model, hardware, settings in cases:
        for clients in (1, 256):
            found = load(model, hardware, concurrency=clients, requests=600, **SPREAD, **settings)
            assert 0 < found.throughput_tokens_per_s <= found.max_throughput_tokens_per_s, (model, hardware)


# --- conservation and chance


def test_every_request_is_served_whole_and_in_order() -> None:
    each = BUSY.requests
    assert len(each.arrival_s) == 4_000
    times = (each.arrival_s, each.start_s, each.first_token_s, each.finish_s)
    for earlier, later in itertools.pairwise(times):
        assert (later >= earlier).all()
    tokens = each.output_tokens.sum()
    assert BUSY.throughput_tokens_per_s * BUSY.duration_s == pytest.approx(tokens, rel=1e-12)
    assert each.arrival_s[0] == 0 and (np.diff(each.arrival_s) >= 0).all()
    assert (np.diff(each.start_s) >= 0).all()  # first come, first served


def test_a_seed_gives_the_same_answer_and_another_seed_another_one() -> None:
    again, other = load(rate=40, requests=4_000, **SPREAD), load(rate=40, requests=4_000, seed=1, **SPREAD)
    assert again.to_json() == BUSY.to_json()
    assert again.to_records() == BUSY.to_records()
    assert other.ttft_s != BUSY.ttft_s
    assert other.ttft_s.p50 == pytest.approx(BUSY.ttft_s.p50, rel=0.3)


def test_lengths_and_arrivals_are_distributed_as_asked() -> None:
    found = load(
        rate=10, requests=10_000, prompt_tokens={"mean": 600, "cv": 0.5}, output_tokens={"mean": 40, "cv": 0}, seed=2
    ).requests
    assert found.prompt_tokens.mean() == pytest.approx(600, rel=0.02)
    assert found.prompt_tokens.std() / found.prompt_tokens.mean() == pytest.approx(0.5, rel=0.05)
    assert (found.output_tokens == 40).all()
    gaps = np.diff(found.arrival_s)
    assert gaps.mean() == pytest.approx(0.1, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # exponential


def test_arrays_of_lengths_are_taken_as_they_are() -> None:
    found = load(rate=5, requests=3, prompt_tokens=[100, 200, 300], output_tokens=[5, 0, 1], cached_tokens=[0, 50, 300])
    assert found.requests.prompt_tokens.tolist() == [100, 200, 300]
    assert found.throughput_tokens_per_s * found.duration_s == pytest.approx(6)


def test_any_server_ends_every_request_within_its_room() -> None:
    plan, chance = _plan(MODEL, SERVER, "fp8"), random.Random(3)
    preemptions = 0
    for case in range(40):
        count, rng = chance.randint(1, 50), np.random.default_rng(case)
        prompt, output = (rng.integers(1, chance.choice((3, 300, 2_000)), count, endpoint=True) for _ in range(2))
        cached = rng.integers(0, 500, count) * chance.randint(0, 1)
        slots, budget = chance.choice((1, 3, 50)), chance.choice((1, 8, 64, 8_192))
        longest = int((prompt + output + cached).max())
        free = cache_room(plan, Allocation(False, False, budget), longest)
        capacity = int(free.of(longest) * chance.choice((1, 1.3, 3, 20)))
        steps = StepTimes(plan, 0.0, "operator", step_tokens=budget, sequences=slots, context=longest)
        server = Server(steps, replace(free, capacity_bytes=capacity), budget, slots, chance.random() < 0.7)
        arrival = None if chance.random() < 0.4 else np.cumsum(rng.exponential(chance.choice((1e-4, 1e-2, 1)), count))
        served = serve(server, Workload(arrival, chance.randint(1, 20), 0.1, prompt, cached, output))
        times = (served.arrival_s, served.start_s, served.first_token_s, served.finish_s)
        assert all((later >= earlier).all() for earlier, later in itertools.pairwise(times))
        assert served.held_peak_bytes <= capacity
        assert served.held_byte_s <= capacity * served.duration_s * (1 + 1e-9)
        assert served.system_s == pytest.approx((served.finish_s - served.arrival_s).sum(), rel=1e-9)
        assert served.preemptions.any() or served.computed_tokens == prompt.sum()
        assert served.computed_tokens >= prompt.sum()
        preemptions += served.preemptions.sum()
    assert preemptions > 0


# --- one request, and the parts of a step


@pytest.mark.parametrize(
    ("model", "hardware", "settings"),
    [
        (MODEL, CARD, {}),
        (MODEL, "2x rtx-3090", {}),
        ("gpt-oss-20b", CARD, {}),
        ("qwen3-next-80b-a3b", "h200-sxm", {"weights": "fp8"}),
        ("gpt-oss-120b", "rtx-4090 + 7950x + ddr5-6000x2@96GiB", {}),
    ],
)
@pytest.mark.parametrize(
    "request_", [(7, 3, 0), (100, 50, 0), (5_000, 80, 0), (3_000, 20, 2_500), (512, 4, 512)], ids=str
)
def test_one_request_is_an_estimate(
    model: str, hardware: str, settings: dict[str, Any], request_: tuple[int, int, int]
) -> None:
    prompt, output, cached = request_
    lengths = {"prompt_tokens": prompt, "output_tokens": output, "cached_tokens": cached, "tokenize_s": 0.25}
    one = rl.simulate_load(model, hardware, rate=1, requests=1, **lengths, **settings)
    same = rl.estimate(model, hardware, **lengths, **settings)
    # chunks that end a cached prompt lie between points of the grid
    within = 1e-9 if not cached else 2e-3
    assert one.ttft_s.mean == pytest.approx(float(same.ttft_s.expected), rel=within)
    assert one.tpot_s.mean == pytest.approx(float(same.tpot_s.expected), rel=1e-9)
    assert one.e2e_s.mean == pytest.approx(float(same.e2e_s.expected), rel=within)


def _plan(model: str, hardware: str, weights: str | None, engine: str | None = None) -> Plan:
    return settle(model, hardware, Setup(weights=weights, engine=engine)).plan()


@pytest.mark.parametrize(
    ("model", "hardware", "weights", "within"),
    [
        (MODEL, SERVER, "fp8", 0.01),
        (MODEL, "2x rtx-3090", None, 0.01),
        ("qwen3-30b-a3b", SERVER, "bf16", 0.01),
        ("deepseek-v2-lite", "h200-sxm", "bf16", 0.01),
        ("qwen3-next-80b-a3b", "h200-sxm", "fp8", 0.01),
        ("gemma-3-27b", CARD, "Q4_K_M", 0.01),
        ("gpt-oss-120b", "rtx-4090 + 7950x + ddr5-6000x2@96GiB", None, 0.01),
        ("llama-4-scout", "h200-sxm", "fp8", 0.03),  # attention within chunks leaps at their ends
    ],
)
def test_steps_take_what_the_engine_says(model: str, hardware: str, weights: str | None, within: float) -> None:
    plan, chance = _plan(model, hardware, weights), random.Random(5)
    most = plan.prefill_chunk
    steps = StepTimes(plan, MEASURED_SKEW, "operator", step_tokens=most, sequences=300, context=30_000)

    def engine(passes: Passes) -> float:
        return float(phase_time(plan, passes, passes, MEASURED_SKEW, "operator", in_turn=False).expected_s)

    for _ in range(60):
        batch, context, count = chance.randint(0, 300), chance.randint(0, 15_000), chance.randint(1, 400)
        left = most - batch
        chunks = []
        for _ in range(chance.randint(1, 3)):
            if left > 0:
                chunks.append((chance.randint(1, left), chance.choice((0, chance.randint(0, 14_000)))))
                left -= chunks[-1][0]
        prompt = sum(new for new, _ in chunks)
        ending = chance.randint(0, len(chunks)) if batch < 297 else 0
        if prompt > 8:  # at fewer, a head on the host is not copied
            decoding = (Run(batch, 1, 1, context),) if batch else ()
            own = (*decoding, *(Run(1, new, 1, cached) for new, cached in chunks))
            longest = max(new for new, _ in chunks)
            passes = Passes((Run(1, batch + prompt, 1, 0, logits=batch + ending, of_one=longest),), own)
            if plan.main.stream is None and all(stage.stream is None for stage in plan.stages):
                expected = engine(passes)
                assert steps.mixed_s(batch, batch * context, chunks, ending) == pytest.approx(expected, rel=within)
        if batch:
            run_ = (Run(batch, 1, count, context),)
            assert steps.decode_s(batch, batch * context, count) == pytest.approx(engine(Passes(run_, run_)), rel=1e-9)


def test_a_batch_between_two_contexts_is_between_them() -> None:
    steps = StepTimes(_plan(MODEL, SERVER, "fp8"), 0.0, "operator", step_tokens=512, sequences=8, context=4_000)
    ends = [steps.decode_s(8, 8 * context, 5) for context in (1_000, 1_001)]
    for extra in range(1, 8):
        mixed = steps.decode_s(8, 8_000 + extra, 5)
        assert mixed == pytest.approx(ends[0] + extra / 8 * (ends[1] - ends[0]), rel=1e-12)
    # The same where a chunk of a prompt is computed beside them: each token in a cache is read once.
    ends = [steps.mixed_s(8, 8 * context, [(256, 0)], 0) for context in (1_000, 1_001)]
    assert ends[0] < ends[1]
    for extra in range(1, 8):
        mixed = steps.mixed_s(8, 8_000 + extra, [(256, 0)], 0)
        assert mixed == pytest.approx(ends[0] + extra / 8 * (ends[1] - ends[0]), rel=1e-12)


@pytest.mark.parametrize("cached", [0, 4_000])
def test_attention_to_a_chunk_between_two_points_is_on_the_chord(cached: int) -> None:
    # It grows as x^2: a chord from a to 1.12 a lies above by (x - a) (1.12 a - x), at most (0.12 / 2)^2 a^2.
    plan, most = _plan(MODEL, "80GiB,1000GB/s,100TFLOP/s@fp16", "Q8_0", "llama.cpp"), 8_000
    steps = StepTimes(plan, 0.0, "operator", step_tokens=most, sequences=1, context=most)
    above = []
    for new in range(200, most, 150):
        packed, own = Run(1, new, 1, 0, logits=0), Run(1, new, 1, cached)
        whole, attended = (
            float(phase_time(plan, passes, passes, 0.0, "operator", in_turn=False).expected_s)
            for passes in (Passes((packed,), (own,)), Passes((NOTHING,), (own,)))
        )
        above.append((steps.mixed_s(0, 0, [(new, cached)], 0) - whole) / attended)
    assert -1e-9 < min(above) < 1e-4
    assert 0.001 < max(above) < 0.0036


def test_a_prompt_of_several_chunks_does_not_queue_behind_itself() -> None:
    found = load(concurrency=1, requests=2, prompt_tokens=60_000, output_tokens=2)
    assert found.requests.arrival_s[0] == 0
    assert found.ttft_s.mean > 0.5  # several passes
    assert found.requests.queue_s.tolist() == [0, 0]


def test_without_a_second_token_the_next_one_is_that_of_an_estimate() -> None:
    found = load(rate=1, requests=3, prompt_tokens=700, output_tokens=1)
    same = rl.estimate(MODEL, SERVER, weights="fp8", prompt_tokens=700, output_tokens=1)
    assert found.tpot_s.mean == pytest.approx(float(same.tpot_s.expected), rel=1e-9)
    assert [row[1] for row in found.tables()[0].rows][2] == "–"


# --- memory

TIGHT: dict[str, Any] = {"weights": "bf16", "engine": "vllm", "prompt_tokens": 900, "output_tokens": 900}
"""16 GB of weights leave cards of 24 GiB room for about twenty of these."""


def test_caches_never_take_more_than_there_is_and_all_requests_end() -> None:
    found = load(hardware=CARD, rate=20, requests=400, **TIGHT)
    assert found.preemptions > 0
    assert found.kv_peak_share is not None and found.kv_mean_share is not None
    assert 0.9 < found.kv_peak_share <= 1
    assert found.kv_mean_share < found.kv_peak_share
    assert (found.requests.finish_s > found.requests.first_token_s).all()
    assert found.requests.preemptions.sum() == found.preemptions
    roomy = load(hardware=CARD, rate=20, requests=400, **{**TIGHT, "weights": "fp8"}, kv="fp8")
    assert roomy.preemptions < found.preemptions
    # Little's law holds through it
    assert found.mean_concurrency == pytest.approx(found.requests_per_s * found.e2e_s.mean, rel=1e-9)


def test_who_decodes_alone_goes_on_beside_a_prompt() -> None:
    plan, budget = _plan(MODEL, SERVER, "fp8"), 512
    steps = StepTimes(plan, 0.0, "operator", step_tokens=budget, sequences=2, context=5_000)
    server = Server(steps, cache_room(plan, Allocation(False, False, budget), 5_000), budget, 2, True)
    # While the second prompt passes in eight chunks, each of these passes gives the first request a token too.
    lengths = np.array([100, 8 * (budget - 1)]), np.zeros(2, dtype=int), np.array([40, 1])
    served = serve(server, Workload(np.array([0.0, 1e-6]), 2, 0.0, *lengths))
    beside = [steps.mixed_s(1, 100 + i, [(budget - 1, i * (budget - 1))], int(i == 7)) for i in range(8)]
    decoded = sum(beside) + steps.decode_s(1, 108, 31)
    assert served.finish_s[0] - served.first_token_s[0] == pytest.approx(decoded, rel=1e-9)


def test_chunks_beside_someone_who_decodes_follow_one_another_over_cards_in_a_row() -> None:
    # The next token needs the last one's: no two steps are under way at once, unlike those of a prompt alone.
    plan, budget = _plan(MODEL, "2x rtx-3090", "Q4_K_M"), 512
    steps = StepTimes(plan, 0.0, "operator", step_tokens=budget, sequences=2, context=5_000)
    server = Server(steps, cache_room(plan, Allocation(False, False, budget), 5_000), budget, 2, in_flight=4)
    prompt = 8 * (budget - 1)
    lengths = np.array([100, prompt]), np.zeros(2, dtype=int), np.array([40, 1])
    served = serve(server, Workload(np.array([0.0, 1e-6]), 2, 0.0, *lengths))
    beside = [steps.mixed_s(1, 100 + i, [(budget - 1, i * (budget - 1))], int(i == 7)) for i in range(8)]
    decoded = sum(beside) + steps.decode_s(1, 108, 31)
    assert served.finish_s[0] - served.first_token_s[0] == pytest.approx(decoded, rel=1e-9)
    alone = serve(server, Workload(np.zeros(1), 1, 0.0, *(each[1:] for each in lengths)))
    assert alone.first_token_s[0] < 0.8 * sum(beside)


def test_the_least_time_of_a_single_request_is_that_of_its_steps() -> None:
    # 100 prompt tokens are computed beside; 100 further tokens are a step each, the first comes out of the prompt.
    plan = _plan(MODEL, "80GiB,1000GB/s,100TFLOP/s@fp16", "Q8_0", "llama.cpp")
    one = rl.estimate(MODEL, "80GiB,1000GB/s,100TFLOP/s@fp16", weights="Q8_0", prompt_tokens=100, output_tokens=101)
    assert one.decode.bound == "memory"
    lengths = (np.array([count]) for count in (100, 0, 101))
    assert least_busy_s(plan, *lengths, 1, MEASURED_SKEW) == pytest.approx(one.decode.read_bytes / 1e12, rel=1e-12)
    # Four at once read the weights a quarter as often each.
    weights = one.decode.read_bytes - sum(100 + i for i in range(100)) * 131_072
    together = least_busy_s(plan, *(np.full(4, count) for count in (100, 0, 101)), 4, MEASURED_SKEW)
    assert together == pytest.approx((weights + 4 * (one.decode.read_bytes - weights)) / 1e12, rel=1e-12)


def test_the_least_time_of_prompts_alone_is_that_of_their_arithmetic() -> None:
    # Llama 3.1 8B: 2 operations a parameter and token, 4 a pair of tokens, dimension and layer, the head at the last.
    plan = _plan(MODEL, "80GiB,1000GB/s,100TFLOP/s@fp16", "Q8_0", "llama.cpp")
    matrices = 32 * (2 * 4096 + 2 * 1024 + 3 * 14_336) * 4096
    pairs = (1000 * 1001 // 2, 1000 * 500 + 500 * 501 // 2)  # the second one's first 1,000 tokens are cached
    flops = 2 * matrices * 1500 + 4 * 4096 * 32 * sum(pairs) + 2 * 2 * 128_256 * 4096
    lengths = np.array([1000, 500]), np.array([0, 1000]), np.array([1, 1])
    assert least_busy_s(plan, *lengths, 8, MEASURED_SKEW) == pytest.approx(flops / 1e14, rel=1e-12)


def test_who_is_thrown_out_keeps_the_first_token() -> None:
    plan, budget = _plan(MODEL, SERVER, "fp8"), 512
    free = cache_room(plan, Allocation(False, False, budget), 400)
    room = replace(free, capacity_bytes=int(free.of(400) + free.of(150)))  # both prompts, and one whole answer
    steps = StepTimes(plan, 0.0, "operator", step_tokens=budget, sequences=2, context=400)
    prompt, output = np.array([100, 100]), np.array([300, 300])
    workload = Workload(np.zeros(2), 2, 0.0, prompt, np.zeros(2, dtype=int), output)
    served = serve(Server(steps, room, budget, 2, True), workload)
    assert served.preemptions.tolist() == [0, 1]
    # Both prompts were computed in the same pass; the second one again, long after its answer began.
    assert served.first_token_s[0] == served.first_token_s[1] < served.finish_s[0] / 2


def test_the_room_is_what_the_memory_plan_leaves() -> None:
    plan = _plan(MODEL, CARD, "bf16", "vllm")
    memory = rl.estimate(MODEL, CARD, weights="bf16", engine="vllm", prompt_tokens=1_000, output_tokens=0).memory
    room = cache_room(plan, Allocation(False, False, plan.prefill_chunk), 1_000)
    assert memory.usable_bytes is not None
    assert room.capacity_bytes == memory.usable_bytes - memory.resident_weight_bytes - memory.workspace_bytes
    # 32 layers x 2 x 8 heads x 128 in 16 bits (config.json of meta-llama/Llama-3.1-8B): 131,072 bytes a token
    assert room.block_tokens == 16
    assert int(room.of(1_000)) == 63 * 16 * 131_072
    assert int(room.of(0)) == 0


def test_windows_and_states_bound_what_a_sequence_takes() -> None:
    plan = _plan("gpt-oss-20b", SERVER, None)
    room = cache_room(plan, Allocation(False, False, 512), 100_000)
    steps = np.diff(room.held_bytes)
    assert steps[-1] < steps[0]  # behind the window, the sliding half of the layers takes no more
    hybrid = cache_room(_plan("qwen3-next-80b-a3b", "h200-sxm", "fp8"), Allocation(False, False, 512), 4_000)
    assert hybrid.held_bytes[1] > 2 * (hybrid.held_bytes[2] - hybrid.held_bytes[1])  # the state comes with the first


def test_what_does_not_fit_is_answered_as_if() -> None:
    with pytest.warns(rl.RooflineWarning, match="memory: does not fit"):
        found = rl.simulate_load(
            "llama-3.3-70b", CARD, weights="Q8_0", rate=1, requests=3, prompt_tokens=100, output_tokens=10
        )
    assert found.kv_peak_share is None
    assert found.e2e_s.mean > 0


def test_one_at_a_time_and_many_at_a_time() -> None:
    alone = load(rate=50, requests=200, max_sequences=1, **SPREAD)
    assert alone.mean_batch <= 1
    together = load(rate=50, requests=200, **SPREAD)
    assert together.mean_batch > 3
    assert together.e2e_s.mean < alone.e2e_s.mean
    begin, end = alone.requests.start_s, alone.requests.finish_s
    assert (begin[1:] >= end[:-1] - 1e-9).all()


def test_cached_prompts_come_sooner_and_take_room_all_the_same() -> None:
    asked = {"rate": 20, "requests": 400, "prompt_tokens": 4_000, "output_tokens": 50}
    cold, warm = load(**asked), load(**asked, cached_tokens=3_900)
    assert warm.ttft_s.mean < cold.ttft_s.mean / 2
    one = {**asked, "requests": 1}
    assert load(**one, cached_tokens=3_900).kv_peak_bytes == load(**one).kv_peak_bytes


def test_without_chunks_prompts_stop_those_who_decode() -> None:
    asked: dict[str, Any] = {"rate": 0.8, "requests": 300, "prompt_tokens": 4_000, "output_tokens": 200}
    shared = load(hardware=CARD, **asked, weights="fp8")
    stalled = load(hardware=CARD, **asked, weights="fp8", chunked_prefill=False)
    assert stalled.tpot_s.mean > shared.tpot_s.mean
    assert stalled.ttft_s.mean < shared.ttft_s.mean


# --- what is asked of it


def test_goodput_counts_requests_within_all_limits() -> None:
    each = BUSY.requests
    limits = {"max_ttft_s": BUSY.ttft_s.p90, "max_tpot_s": float(np.median(each.tpot_s))}
    found = load(rate=40, requests=4_000, **SPREAD, **limits)
    good = (each.ttft_s <= limits["max_ttft_s"]) & (each.tpot_s <= limits["max_tpot_s"])
    assert found.goodput_per_s == pytest.approx(good.sum() / found.duration_s)
    assert 0 < found.goodput_per_s < found.requests_per_s
    assert BUSY.goodput_per_s == BUSY.requests_per_s


def test_energy_and_cost() -> None:
    # NVIDIA H100 SXM5: 700 W
    priced = load(rate=40, requests=4_000, **SPREAD, price_per_hour=3.6)
    tokens = priced.throughput_tokens_per_s * priced.duration_s
    assert priced.cost_per_million_tokens == pytest.approx(3.6 / 3600 * priced.duration_s / tokens * 1e6)
    assert priced.energy_j_per_token is not None
    assert priced.energy_j_per_token * tokens < 700 * priced.duration_s
    assert load("llama-3.2-1b", "m3-max-40c", rate=1, requests=2, **SPREAD).energy_j_per_token is None


def test_too_much_load_is_said() -> None:
    with pytest.warns(rl.RooflineWarning, match="requests come faster"):
        load(rate=500, requests=3_000, max_sequences=64, **SPREAD)
    assert not BUSY.warnings


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    columns = {"arrival_s": [5.0, 2.0, 2.5], "prompt_tokens": [300, 100, 200], "output_tokens": [3, 1, 2]}
    path = tmp_path / "trace.csv"
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = load(trace=path)
    assert found.requests.arrival_s.tolist() == [0.0, 0.5, 3.0]
    assert found.requests.prompt_tokens.tolist() == [100, 200, 300]
    assert found.requests.output_tokens.tolist() == [1, 2, 3]
    assert load(trace=columns).to_json() == found.to_json()
    assert len(load(trace=path, requests=2).requests.arrival_s) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no column arrival_s"),
        ("arrival_s,prompt_tokens\n1,2", "no column output_tokens"),
        ("arrival_s,prompt_tokens,output_tokens\n", "holds no requests"),
        ("arrival_s,prompt_tokens,output_tokens\n1,two,3", "line 2: prompt_tokens is 'two'"),
        ("arrival_s,prompt_tokens,output_tokens\n1,2", "line 2: output_tokens is None"),
        ("arrival_s,prompt_tokens,output_tokens\nnan,2,3", "line 2: arrival_s is 'nan'"),
    ],
)
def test_a_broken_trace_is_an_error_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content, encoding="utf-8")
    code, out, err = run(capsys, MODEL, SERVER, "-w", "fp8", "--trace", str(path))
    assert (code, out) == (3, "")
    assert said in err and "trace.csv" in err


ASKED: dict[str, Any] = {"rate": 1, "requests": 2, "prompt_tokens": 10, "output_tokens": 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": None}, "needs one of rate, concurrency and trace"),
        ({"concurrency": 2}, "rate and concurrency given"),
        ({"requests": None}, "requests: missing"),
        ({"prompt_tokens": None}, "prompt_tokens: missing"),
        ({"rate": 0}, "rate: 0 is not a number above 0"),
        ({"rate": math.inf}, "rate: inf is not a number above 0"),
        ({"requests": 0}, "requests: 0 is not"),
        ({"prompt_tokens": 0}, "prompt_tokens: 0 is not"),
        ({"output_tokens": -1}, "output_tokens: -1 is not"),
        ({"prompt_tokens": [1, 2, 3]}, r"prompt_tokens: an array of shape \(3,\) for 2 requests"),
        ({"prompt_tokens": {"mean": 5, "sd": 2}}, "prompt_tokens: a distribution of 'mean', 'sd' is not"),
        ({"prompt_tokens": {"mean": math.nan}}, "prompt_tokens: nan is not a number"),
        ({"prompt_tokens": {"mean": 0.2}}, "prompt_tokens: a mean of 0.2"),
        ({"prompt_tokens": "ten"}, "prompt_tokens: 'ten' is not"),
        ({"cached_tokens": 11}, "cached_tokens: 11 cached tokens of a prompt of 10"),
        ({"seed": -1}, "seed: -1 is not"),
        ({"seed": 1.5}, "seed: 1.5 is not"),
        ({"think_s": -1}, "think_s: -1 is not"),
        ({"max_ttft_s": 0}, "max_ttft_s: 0 is not"),
        ({"max_sequences": 0}, "max_sequences: 0 is not"),
        ({"prefill_chunk": 0}, "prefill_chunk: 0 is not"),
        ({"price_per_hour": -2}, "price_per_hour: -2 is not"),
        ({"context_limit": 11}, "context_limit: context, prompt and output of a request occupy 12"),
        ({"prompt_tokens": 2**22, "context_tokens": 2**22}, "at most 4,194,304"),
        ({"batch": 2}, r"batch: not available under load; leave it at 1 \(give concurrency\)"),
        ({"tensor_parallel": 2}, "tensor_parallel: tensor 2 x pipeline 1"),
        ({"draft_tokens": 3}, "draft_tokens: not available under load"),
        ({"overrides": {"hardware.memory.bandwidth_gb_s": [1, 2]}}, "overrides: one value for each path"),
        ({"overrides": 3}, "overrides: give a mapping"),
        ({"speed": 3}, "speed: there is no such argument"),
        ({"options": rl.Options(overlap="phase")}, "overlap: 'phase' is not one of"),
        ({"options": rl.Options(first_token="extra_step")}, "first_token: 'extra_step' is not one of"),
        ({"trace": {"arrival_s": [1]}, "rate": None}, "trace: there is no prompt_tokens, output_tokens"),
        ({"trace": 3, "rate": None}, "trace: 3 is neither a file nor columns"),
    ],
)
def test_bad_input_is_a_clear_error(change: dict[str, Any], said: str) -> None:
    with pytest.raises(rl.RooflineError, match=said):
        load(**{**ASKED, **change})


# --- answers


def test_the_json_holds_plain_finite_numbers() -> None:
    for found in (BUSY, load(rate=1, requests=3, prompt_tokens=10, output_tokens=1)):
        shown = json.loads(found.to_json())
        for name in TIMES:
            spread = shown[name]
            assert set(spread) == {"p50", "p90", "p99", "mean"}
            assert 0 <= spread["p50"] <= spread["p90"] <= spread["p99"]
        assert shown["workload"]["seed"] == 0
        assert 0 < shown["utilisation"] <= 1
    assert "4,000 requests" in repr(BUSY)
    assert "<table>" in BUSY._repr_html_()


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    load(rate=40, requests=4_000, progress=lambda done, of: told.append((done, of)), **SPREAD)
    assert len(told) >= 3
    assert told == sorted(told)
    assert all(1_000 <= done <= of == 4_000 for done, of in told)


def test_every_thousandth_request_is_told() -> None:
    # One at a time, so that none of them ends together with another.
    told: list[int] = []
    one: dict[str, Any] = {"max_sequences": 1, "prompt_tokens": 100, "output_tokens": 1}
    load(rate=40, requests=2_500, progress=lambda done, _: told.append(done), **one)
    assert told == [1_000, 2_000]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = (MODEL, SERVER, "-w", "fp8", "--rate", "20", "--requests", "200", "-p", "1k~1", "-n", "50")
    code, out, err = run(capsys, *common, "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    same = load(rate=20, requests=200, prompt_tokens={"mean": 1024, "cv": 1}, output_tokens=50)
    assert {name: shown[name] for name in same.to_dict()} == json.loads(same.to_json())
    assert list(shown)[:3] == ["schema_version", "rooflinellm_version", "data_version"]
    code, out, _ = run(capsys, *common, "--max-ttft", "0.5", "--price-per-hour", "2", "-v")
    assert code == 0
    for words in ("first token", "each token after", "≤ 500 ms", "throughput", "a million tokens", "assumptions"):
        assert words in out
    code, out, _ = run(capsys, *common, "--format", "csv")
    assert len(out.splitlines()) == 201
    assert out.startswith("request,arrival_s,start_s,first_token_s,finish_s,prompt_tokens,output_tokens,preemptions")
    chart = tmp_path / "requests.png"
    code, out, _ = run(capsys, *common, "-o", str(chart))
    assert code == 0 and "Requests over time" in out
    assert chart.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give one of --rate, --concurrency and --trace"),
        (("--rate", "1", "--concurrency", "2"), "give one of --rate, --concurrency and --trace"),
        (("--rate", "-3"), "--rate: -3.0 is not a number above 0"),
        (("--rate", "1", "-p", "5~x"), "'5~x' is no length"),
        (("--rate", "1", "-p", "5~nan"), "'5~nan' is no length"),
        (("--rate", "1", "--requests", "0"), "--requests: 0 is not"),
        (("--rate", "1", "--cached", "1k"), "--cached: 1,024 cached tokens of a prompt of 512"),
        (("--rate", "1", "-o", "chart.txt"), "'chart.txt' ends in none of .png"),
    ],
)
def test_what_is_typed_wrong(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, MODEL, SERVER, "-w", "fp8", *arguments)
    assert (code, out) == (2, "")
    assert said in err


# --- the timeline


def draw(of: Any, **settings: Any) -> Any:
    return rl.plotting.timeline(of, ax=Figure(layout="constrained").subplots(), **settings)


def bars(ax: Any, name: str) -> list[tuple[float, float]]:
    found = {patch.get_gid(): patch for patch in ax.patches if str(patch.get_gid()).startswith(f"{name}-")}
    return [(patch.get_x(), patch.get_width()) for patch in found.values()]


def test_the_timeline_of_an_estimate() -> None:
    item = rl.estimate(MODEL, CARD, prompt_tokens=8_192, output_tokens=200, queue_s=0.4)
    ax = draw(item)
    (waiting, *_), (prefill, ideal), (decode, *_) = (bars(ax, name) for name in ("waiting", "prefill", "decode"))
    assert waiting == (0, pytest.approx(0.4))
    assert prefill == (pytest.approx(0.4), pytest.approx(item.prefill.time_s.expected))
    assert ideal[1] == pytest.approx(item.prefill.time_s.ideal)
    assert decode == (pytest.approx(item.ttft_s.expected), pytest.approx(item.decode.time_s.expected))
    said = rl.plotting.describe(ax)
    assert "Expected: waiting 400 ms" in said and "Basis: calibrated" in said
    bare = draw(rl.estimate(MODEL, CARD, prompt_tokens=0, output_tokens=5))
    assert [width for _, width in bars(bare, "prefill")] == [0, 0]
    assert bare.get_xlabel() == "Time [ms]"


def test_the_timeline_of_a_load() -> None:
    ax = draw(BUSY, requests=12)
    each = BUSY.requests
    found = {name: np.array(bars(ax, name)) for name in ("waiting", "prefill", "decode")}
    scale = 1_000 if ax.get_xlabel() == "Time [ms]" else 1
    assert found["waiting"].sum(axis=1) == pytest.approx(each.start_s[:12] * scale)
    assert found["prefill"].sum(axis=1) == pytest.approx(each.first_token_s[:12] * scale)
    assert found["decode"].sum(axis=1) == pytest.approx(each.finish_s[:12] * scale)
    assert "The first 12 requests" in rl.plotting.describe(ax)
    assert len(bars(draw(BUSY, requests=200), "decode")) == 200


@pytest.mark.parametrize(
    ("of", "settings", "said"),
    [
        (3, {}, "int is no result"),
        (BUSY, {"requests": 0}, "requests: 0 is not"),
        (BUSY, {"requests": 401}, "requests: 401 is not"),
        (BUSY, {"label_size": 0}, "label_size"),
        (rl.estimate(MODEL, CARD, prompt_tokens=[1, 2]), {}, "several requests"),
        (rl.estimate(MODEL, CARD), {"requests": 2}, "an estimate is one request"),
    ],
    ids=str,
)
def test_what_no_timeline_can_be_drawn_of(of: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(rl.RooflineError, match=said):
        draw(of, **settings)
