"""Several devices on one model: what each holds, what they tell one another, and what it brings.

By hand: `t` devices that share each layer hold a `t`-th of its matrices, all norms, and keys and values of at least one
head; the shapes are those of the models' config.json.
"""

from __future__ import annotations

import collections
import itertools
import json
import random
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.cli import main
from rooflinellm.engine.parallel import Parallel, collective_s, collectives, collectives_s, least_collectives_s
from rooflinellm.engine.passes import Run
from rooflinellm.engine.plan import Collective, Link
from rooflinellm.operators.experts import busiest_over_mean
from rooflinellm.summary import limit_shares

H100 = "80GiB,3350GB/s,989.4TFLOP/s@bf16"  # without a cache and without a higher clock
NVLINK = Link("nvlink", 450e9, 450e9, 3.5e-6)
WIRE = Link("nvlink", 450e9, 450e9, 0.0)

LLAMA_8B = 16_060_522_496
LLAMA_8B_NORMS = 65 * 4096 * 2
LLAMA_8B_KV_MATRICES = 32 * 2 * 1024 * 4096 * 2
LLAMA_8B_KV_TOKEN = 131_072
LLAMA_70B = 141_107_412_992
LLAMA_70B_STREAMED = 139_006_066_688
LLAMA_70B_NORMS = 161 * 8192 * 2
V3_LATENT_TOKEN = 61 * 576 * 2


def ask(model: str, hardware: Any, *, weights: str = "hf:bf16", engine: str = "vllm", **request: Any) -> Any:
    return rl.estimate(model, hardware, weights=weights, engine=engine, **request)


def step(model: str, hardware: str, *, cached: int = 0, batch: int = 1, **request: Any) -> Any:
    """One decode step on so many cached tokens of each sequence."""
    return ask(model, hardware, prompt_tokens=0, context_tokens=cached, output_tokens=1, batch=batch, **request)


# --------------------------------------------------------------------------------------------------------------- limits


def test_degrees_of_one_are_one_device() -> None:
    plain = ask("llama-3.1-8b", "h100-sxm", batch=4).to_dict()
    ones = dict.fromkeys(("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"), 1)
    assert ask("llama-3.1-8b", "h100-sxm", batch=4, **ones).to_dict() == plain


DEGREES = [
    ("llama-3.1-8b", 8, "bf16", {"tensor_parallel": 8}),
    ("llama-3.1-8b", 16, "bf16", {"tensor_parallel": 16}),
    ("llama-3.1-8b", 8, "bf16", {"tensor_parallel": 4, "pipeline_parallel": 2}),
    ("llama-3.1-8b", 8, "bf16", {"tensor_parallel": 2, "data_parallel": 4}),
    ("llama-3.1-8b", 7, "bf16", {"pipeline_parallel": 7}),
    ("deepseek-v3", 16, "fp8-block", {"tensor_parallel": 16}),
    ("deepseek-v3", 16, "fp8-block", {"expert_parallel": 16, "data_parallel": 16}),
    ("qwen3-30b-a3b", 4, "bf16", {"tensor_parallel": 4, "expert_parallel": 4}),
    ("nemotron-nano-9b-v2", 4, "bf16", {"tensor_parallel": 4}),
]


@pytest.mark.parametrize(("model", "devices", "weights", "degrees"), DEGREES)
def test_devices_add_up(model: str, devices: int, weights: str, degrees: dict[str, int]) -> None:
    memory = ask(model, f"{devices}x h100-sxm", weights=weights, batch=devices, **degrees).memory
    assert len(memory.placement) == devices
    for part, total in (
        ("bytes", memory.total_bytes),
        ("weight_bytes", memory.resident_weight_bytes),
        ("kv_bytes", memory.kv_allocated_bytes),
        ("state_bytes", memory.state_bytes),
        ("workspace_bytes", memory.workspace_bytes),
    ):
        assert sum(getattr(each, part) for each in memory.placement) == total
    model_bytes = ask(model, "1TiB,1TB/s,1PFLOP/s@bf16,1PFLOP/s@fp8", weights=weights).memory.resident_weight_bytes
    assert memory.resident_weight_bytes - memory.copied_weight_bytes == model_bytes
    assert memory.copied_weight_bytes >= 0


# --------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("t", [1, 2, 4, 8, 16, 32])
def test_keys_and_values_divide_up_to_the_kv_heads(t: int) -> None:
    # 32 query heads and 8 KV heads. From 8 devices on none has less than one (tenstorrent/vllm pull 50: heads of a
    # device are max(1, kv / tp)).
    memory = step("llama-3.1-8b", f"{t}x h100-sxm", cached=8191, tensor_parallel=t).memory
    token = LLAMA_8B_KV_TOKEN // min(t, 8)
    assert {part.kv_bytes for part in memory.placement} == {8192 * token}
    copied = (t - 1) * LLAMA_8B_NORMS + max(t // 8 - 1, 0) * LLAMA_8B_KV_MATRICES
    assert memory.copied_weight_bytes == copied
    assert memory.resident_weight_bytes == LLAMA_8B + copied


def test_seventy_billion_over_eight_devices() -> None:
    memory = step("llama-3.3-70b", "8x h100-sxm", cached=8191, tensor_parallel=8).memory
    assert {part.weight_bytes for part in memory.placement} == {(LLAMA_70B + 7 * LLAMA_70B_NORMS) // 8}
    assert {part.kv_bytes for part in memory.placement} == {8192 * 327_680 // 8}


def test_sixteen_devices_hold_a_kv_head_each_twice() -> None:
    # Llama 3.1 70B: 80 layers, 8 KV heads of 128: 2 x 80 x 128 x 2 bytes for a device with one head.
    memory = step("llama-3.1-70b", "16x h100-sxm", cached=15, tensor_parallel=16).memory
    assert {part.kv_bytes for part in memory.placement} == {16 * 40_960}


def test_every_device_holds_the_whole_latent() -> None:
    shared = step("deepseek-v3", "8x h200-sxm", weights="fp8-block", cached=8191, batch=8, tensor_parallel=8).memory
    assert {part.kv_bytes for part in shared.placement} == {8 * 8192 * V3_LATENT_TOKEN}
    own = {"data_parallel": 8, "expert_parallel": 8}
    apart = step("deepseek-v3", "8x h200-sxm", weights="fp8-block", cached=8191, batch=8, **own).memory
    assert {part.kv_bytes for part in apart.placement} == {8192 * V3_LATENT_TOKEN}


def test_matrices_that_make_latents_and_routers_are_on_every_device() -> None:
    memory = step("deepseek-v3", "8x mi325x", weights="bf16", tensor_parallel=8).memory
    latents = 61 * 7168 * (1536 + 576) * 2  # down projections of queries, of keys and values; what they make is divided
    routers = 58 * 256 * 7168 * 2
    assert memory.copied_weight_bytes == pytest.approx(7 * (latents + routers), rel=2e-3)


def test_experts_are_there_once_and_attention_with_each_copy() -> None:
    # Qwen3 30B-A3B: 48 layers of 128 experts, three matrices of 768 x 2048.
    own = {"data_parallel": 4, "expert_parallel": 4}
    memory = step("qwen3-30b-a3b", "4x h100-sxm", batch=4, **own).memory
    experts, whole = 48 * 128 * 3 * 768 * 2048 * 2, 2 * 30_532_122_624
    assert memory.resident_weight_bytes == experts + 4 * (whole - experts)
    shared = step("qwen3-30b-a3b", "4x h100-sxm", batch=4, tensor_parallel=4).memory
    assert shared.placement[0].weight_bytes == pytest.approx(
        (whole + 3 * 48 * 128 * 2048 * 2) / 4, rel=1e-4
    )  # and routers


# ---------------------------------------------------------------------------------------------------------------- ideal


@pytest.mark.parametrize(("t", "cached"), [(2, 0), (4, 1000), (8, 8000)])
def test_least_time_of_a_step(t: int, cached: int) -> None:
    found = step("llama-3.1-70b", f"{t}x {H100}", cached=cached, tensor_parallel=t)
    moved = LLAMA_70B_STREAMED + (t - 1) * LLAMA_70B_NORMS + cached * 327_680
    assert found.decode.read_bytes == pytest.approx(moved, rel=1e-9)
    assert found.decode.time_s.ideal == pytest.approx(moved / (t * 3.35e12), rel=1e-9)


def test_golden_step_over_eight_devices() -> None:
    # Weights over eight times the bandwidth, and two sums at once in each of 80 layers: 5.787571488689884 ms.
    found = step("llama-3.1-70b", f"8x {H100}", tensor_parallel=8)
    copies = 7 * LLAMA_70B_NORMS / (8 * 3.35e12)
    sums = collectives_s((Collective("sum", 160, 16_384, 8, NVLINK),), (Run(1, 1, 1, 0),))
    assert found.decode.time_s.ideal - copies + sums == pytest.approx(0.005787571488689884, rel=1e-9)


def test_the_bound_is_below_the_expectation() -> None:
    for t, batch in itertools.product((1, 2, 4, 8), (1, 64)):
        found = ask("llama-3.1-8b", f"{t}x h100-sxm", batch=batch, tensor_parallel=t)
        for phase in (found.prefill, found.decode):
            assert phase.time_s.ideal <= phase.time_s.low <= phase.time_s.expected


# ---------------------------------------------------------------------------------------------------------- collectives


def added(message: float, ranks: int, link: Link = NVLINK) -> Any:
    return collective_s(Collective("sum", 1, 1, ranks, link), message, link.bandwidth, link.latency_s)


def test_golden_sum_over_eight_devices() -> None:
    assert added(16_384, 8) == pytest.approx(3.7548622222222223e-06, rel=1e-9)


@pytest.mark.parametrize(("ranks", "switch"), [(8, 300_000), (4, 1_050_000), (16, 120_000), (3, 2_362_500)])
def test_where_a_sum_is_made_in_parts(ranks: int, switch: float) -> None:
    # M* = a b t / ((t - 1) (t - 2)); of eight devices, 3.5 us and 450 GB/s: 300 kB.
    at_once = 3.5e-6 + (ranks - 1) * switch / 450e9
    in_parts = 7e-6 + 2 * (ranks - 1) / ranks * switch / 450e9
    assert at_once == pytest.approx(in_parts, rel=1e-9)
    assert added(switch, ranks) == pytest.approx(at_once, rel=1e-9)
    assert added(0.9 * switch, ranks) == pytest.approx(3.5e-6 + (ranks - 1) * 0.9 * switch / 450e9, rel=1e-9)
    assert added(2 * switch, ranks) == pytest.approx(7e-6 + 4 * (ranks - 1) / ranks * switch / 450e9, rel=1e-9)


@pytest.mark.parametrize("message", [1, 1e5, 1e9, 1e12])
def test_two_devices_always_add_at_once(message: float) -> None:
    assert added(message, 2) == pytest.approx(3.5e-6 + message / 450e9, rel=1e-12)


def test_without_latency_a_sum_is_made_in_parts() -> None:
    for ranks in (3, 4, 8):
        assert added(1e6, ranks, WIRE) == pytest.approx(2 * (ranks - 1) / ranks * 1e6 / 450e9, rel=1e-12)


def test_more_devices_take_longer_over_a_large_message() -> None:
    times = [added(1e9, ranks) for ranks in (2, 4, 8, 16, 64)]
    assert times == sorted(times)
    assert times[-1] < 7e-6 + 2 * 1e9 / 450e9  # each sends and receives a message at most twice


def test_an_exchange_and_a_gathering() -> None:
    def told(kind: Any) -> Any:
        return collective_s(Collective(kind, 1, 100, 4, NVLINK), 1e6, NVLINK.bandwidth, NVLINK.latency_s)

    assert told("exchange") == pytest.approx(3.5e-6 + 1e8 * 3 / 16 / 450e9, rel=1e-9)
    assert told("gather") == pytest.approx(3.5e-6 + 1e8 * 3 / 4 / 450e9, rel=1e-9)


def of(model: str, parallel: Parallel) -> dict[str, Collective]:
    return {each.kind: each for each in collectives(rl.model(model), parallel, 2, NVLINK)}


@pytest.mark.parametrize(
    ("model", "sums"),
    [
        ("llama-3.1-70b", 2 * 80 + 1),
        ("llama-3.1-8b", 2 * 32 + 1),
        ("nemotron-nano-9b-v2", 56 + 1),
    ],  # one part in a layer
)
def test_sums_of_a_pass(model: str, sums: int) -> None:
    found = of(model, Parallel(tensor=8))
    assert (found["sum"].count, found["gather"].count) == (sums, 1)
    assert found["sum"].bytes_per_token == 2 * rl.model(model).hidden
    # Only tokens with logits are gathered.
    assert collectives_s((found["gather"],), (Run(1, 512, 1, 0, logits=0),)) == 0


def test_experts_of_all_copies_exchange_tokens() -> None:
    # Qwen3 30B-A3B: 48 layers, 8 experts a token. Copies that attend for themselves send what goes elsewhere.
    apart = of("qwen3-30b-a3b", Parallel(expert=4, data=4))
    assert set(apart) == {"exchange"}
    assert apart["exchange"].count == 2 * 48
    assert apart["exchange"].bytes_per_token == pytest.approx(2048 * 2 * 4 * (1 - 0.75**8), rel=1e-12)
    # Devices that have all tokens add up what their experts made of them.
    together = of("qwen3-30b-a3b", Parallel(tensor=4, expert=4))
    assert together["sum"].count == 2 * 48 + 1
    assert "exchange" not in together
    # Two devices of each copy sum over half of the tokens.
    both = of("qwen3-30b-a3b", Parallel(tensor=2, expert=4, data=2))
    assert (both["sum"].count, both["sum"].bytes_per_token) == (48 + 1, 2048 * 2 / 2)


@pytest.mark.parametrize(
    ("total", "touched", "ranks"), [(256, 8, 8), (128, 60, 4), (128, 8, 2), (256, 200, 16), (128, 96, 2)]
)
def test_the_busiest_device_has_more_experts_than_the_mean(total: int, touched: int, ranks: int) -> None:
    draw = random.Random(1)
    part = total // ranks
    loads = []
    for _ in range(4000):
        chosen = draw.sample(range(total), touched)
        loads.append(max(collections.Counter(expert // part for expert in chosen).values()))
    mean = sum(loads) / len(loads) / (touched / ranks)
    assert busiest_over_mean(total, touched, ranks) - 1 == pytest.approx(mean - 1, rel=0.15)


def test_devices_that_read_all_experts_are_equally_busy() -> None:
    assert busiest_over_mean(128, 128, 8) == 1
    assert busiest_over_mean(128, 8, 1) == 1
    assert busiest_over_mean(128, 1, 8) == 8  # one expert is on one device
    factors = [busiest_over_mean(128, touched, 8) for touched in (1, 8, 32, 64, 120, 128)]
    assert factors == sorted(factors, reverse=True)


def test_whole_experts_are_slower_at_a_small_batch() -> None:
    apart, shared = (
        expected("qwen3-30b-a3b", "4x h100-sxm", tensor_parallel=4, expert_parallel=degree) for degree in (4, 1)
    )
    assert apart > shared


def test_no_sum_is_faster_than_its_bytes() -> None:
    found = tuple(of("llama-3.1-8b", Parallel(tensor=8)).values())
    for run in (Run(1, 1, 1, 0), Run(1, 8192, 1, 0), Run(64, 1, 100, 0)):
        assert least_collectives_s(found, (run,)) <= collectives_s(found, (run,))


# ------------------------------------------------------------------------------------------------------------ speed


def expected(model: str, hardware: str, **request: Any) -> float:
    return float(step(model, hardware, **request).tpot_s.expected)


def test_a_slower_link_is_slower() -> None:
    pair = rl.system("2x a100-sxm-80gb")
    on_pcie = [link for link in pair.device.links if link.kind == "pcie"]
    device = pair.device.model_copy(update={"links": tuple(on_pcie)})
    fast, slow = (
        # Sums of one token take as long over PCIe: 4.4 us on two RTX PRO 6000, 4.9 us over the NVLink of two A100.
        ask("llama-3.1-8b", hardware, tensor_parallel=2, prompt_tokens=8192, batch=32)
        for hardware in (pair, pair.model_copy(update={"device": device}))
    )
    assert slow.tpot_s.expected > fast.tpot_s.expected
    assert slow.prefill.time_s.expected > fast.prefill.time_s.expected


def test_where_links_limit_the_limit_is_the_link() -> None:
    found = ask("llama-3.2-1b", "4x rtx-4090", tensor_parallel=4, prompt_tokens=8192)
    shares = limit_shares(found.prefill)
    assert max(shares, key=lambda word: shares[word]) == "link"
    exchange = [row for row in found.prefill.operators if row.name == "exchange between devices"]
    assert [row.bound for row in exchange] == ["link"]
    assert exchange[0].count == 2 * 16 + 2  # two sums a layer, of the embedding, and logits


def test_more_devices_gain_less_and_less() -> None:
    times = [expected("llama-3.1-8b", f"{t}x h100-sxm", tensor_parallel=t) for t in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    gains = [before / after for before, after in itertools.pairwise(times)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] < 2


def test_a_small_model_loses_by_a_second_device_over_pcie() -> None:
    small = [expected("qwen3-0.6b", f"{t}x rtx-4090", tensor_parallel=t) for t in (1, 2)]
    assert small[1] > small[0]


def test_norms_are_not_shared() -> None:
    def norms(found: Any) -> float:
        return sum(row.time_s for row in found.prefill.operators if row.name == "norms and residuals")

    one = ask("llama-3.1-8b", "h100-sxm", prompt_tokens=8192)
    eight = ask("llama-3.1-8b", "8x h100-sxm", tensor_parallel=8, prompt_tokens=8192)
    assert norms(eight) == pytest.approx(norms(one), rel=1e-2)


# ------------------------------------------------------------------------------------------------------------ pipeline


def test_one_sequence_gains_nothing_from_a_pipeline() -> None:
    one = step("llama-3.1-70b", "640GiB,3350GB/s,989.4TFLOP/s@bf16", cached=4096)
    eight = step("llama-3.1-70b", f"8x {H100}", cached=4096, pipeline_parallel=8)
    assert eight.decode.time_s.ideal == pytest.approx(one.decode.time_s.ideal, rel=1e-9)
    assert eight.tpot_s.expected >= one.tpot_s.expected


def test_a_pipeline_serves_as_many_sequences_in_the_time_of_one() -> None:
    # Steady state: a token each in max(p, m) t_stage. Stages of 5 ms: four in 20 ms with two parts of the batch under
    # way; eight parts would take 40 ms and read weights twice, so there are never more parts than stages.
    def token(batch: int) -> float:
        return expected("llama-3.1-70b", f"4x {H100}", batch=batch, pipeline_parallel=4)

    assert token(2) == pytest.approx(token(1), rel=1e-9)
    assert token(4) == pytest.approx(token(1), rel=1e-9)
    assert token(4) < token(8) < 2 * token(4)
    assert 4 / token(4) > 3.9 / token(1)


@pytest.mark.parametrize(("stages", "chunks", "bubble"), [(8, 32, 0.1794871794871795), (4, 4, 3 / 7)])
def test_golden_bubble_of_prefill(stages: int, chunks: int, bubble: float) -> None:
    # (p - 1) / (m + p - 1). llama.cpp has as many chunks under way as its batch of 2,048 tokens has.
    chunk = 2048 // chunks
    keywords: dict[str, Any] = {"weights": "Q8_0", "engine": "llama.cpp", "prompt_tokens": 2048}

    def time(hardware: str, size: int) -> float:
        found = rl.estimate("llama-3.1-8b", hardware, prefill_chunk=size, **keywords)
        rows = [row for row in found.prefill.operators if row.bound != "link"]
        return float(sum(row.time_s for row in rows))

    alone, shared = time("rtx-4090", chunk), time(f"{stages}x rtx-4090", chunk)
    assert shared == pytest.approx(alone / stages / (1 - bubble), rel=1e-6)


# -------------------------------------------------------------------------------------------------------------- copies


def test_copies_of_a_model_share_the_requests() -> None:
    four = ask("llama-3.1-8b", "4x h100-sxm", data_parallel=4, batch=8)
    one = ask("llama-3.1-8b", "h100-sxm", batch=2)
    assert four.tpot_s == one.tpot_s
    assert four.ttft_s == one.ttft_s
    assert four.decode.tokens_per_s == one.decode.tokens_per_s
    assert four.energy_j_per_token.expected == pytest.approx(one.energy_j_per_token.expected, rel=1e-12)
    for many, single in ((four.decode, one.decode), (four.prefill, one.prefill)):
        assert many.flops == 4 * single.flops
        assert many.read_bytes == 4 * single.read_bytes
        assert many.arithmetic_intensity == single.arithmetic_intensity
        rates = many.aggregate_tokens_per_s, single.aggregate_tokens_per_s
        assert rates[0].expected == pytest.approx(4 * rates[1].expected, rel=1e-12)
        assert sum(row.read_bytes for row in many.operators) == many.read_bytes
    assert four.memory.resident_weight_bytes == 4 * one.memory.resident_weight_bytes
    assert four.memory.total_bytes == 4 * one.memory.total_bytes
    assert four.memory.max_batch == 4 * one.memory.max_batch
    assert four.memory.max_context_tokens == one.memory.max_context_tokens


def test_each_copy_shares_memory_with_its_own_host_only() -> None:
    # On a DGX Spark layers on the host leave its memory to the device's cache: the two are one pool of each computer.
    one = ask("llama-3.1-70b", "dgx-spark", weights="hf:fp8", gpu_layers=20)
    two = ask("llama-3.1-70b", "2x dgx-spark", weights="hf:fp8", gpu_layers=20, data_parallel=2)
    device, _ = one.memory.placement
    assert one.memory.total_bytes + device.usable_bytes - device.bytes > 128 * 2**30  # so the pool is the limit
    assert two.memory.max_batch == 2 * one.memory.max_batch


def test_a_copy_without_a_request_does_nothing() -> None:
    two = ask("llama-3.1-8b", "4x h100-sxm", data_parallel=4, batch=2)
    one = ask("llama-3.1-8b", "h100-sxm")
    assert two.decode.read_bytes == 2 * one.decode.read_bytes
    assert two.decode.aggregate_tokens_per_s.expected == pytest.approx(2 * one.decode.tokens_per_s.expected, rel=1e-12)


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("model", "hardware", "weights", "degrees", "said"),
    [
        ("llama-3.1-8b", "8x h100-sxm", "bf16", {}, "tensor_parallel: vllm does not say.*Give tensor_parallel=8"),
        ("llama-3.1-8b", "6x h100-sxm", "bf16", {"tensor_parallel": 6}, "32 heads and 8 KV heads.*1, 2, 4, 8, 16, 32"),
        ("qwen2.5-3b", "16x h100-sxm", "bf16", {"tensor_parallel": 32}, "32 devices; the system has 16"),
        ("llama-3.1-8b", "8x h100-sxm", "bf16", {"tensor_parallel": 4}, "are 4 devices; the system has 8"),
        ("llama-3.1-8b", "h100-sxm + rtx-4090", "bf16", {"tensor_parallel": 2}, "different kinds share only layers"),
        ("llama-3.1-8b", "4x h100-sxm", "bf16", {"tensor_parallel": 4, "expert_parallel": 4}, "has no experts"),
        ("qwen3-30b-a3b", "12x h100-sxm", "bf16", {"data_parallel": 12, "expert_parallel": 12}, "1, 2, 4, 8"),
        ("llama-3.2-1b", "32x h100-sxm", "bf16", {"pipeline_parallel": 32}, "32 groups of 16 layers.*at most 16"),
        ("llama-3.1-8b", "h100-sxm", "bf16", {"tensor_parallel": 0}, "whole number from 1"),
        # Blocks of 128 x 128 (Qwen3 30B-A3B has experts of 768, 192 on each of four devices) and groups of 128 (the
        # 29,568 features of Qwen2.5 72B, which its makers padded to 29,696 to let eight devices share them).
        (
            "qwen3-30b-a3b",
            "4x h100-sxm",
            "fp8-block",
            {"tensor_parallel": 4},
            "768 features.*tensor_parallel=2, expert",
        ),
        ("qwen2.5-72b", "8x h100-sxm", "awq", {"tensor_parallel": 8}, "29,568 features.*pipeline_parallel"),
    ],
)
def test_what_devices_cannot_share(model: str, hardware: str, weights: str, degrees: dict[str, int], said: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=f"(?s){said}"):
        ask(model, hardware, weights=weights, **degrees)


def test_whole_blocks_are_shared() -> None:
    assert ask("qwen3-30b-a3b", "2x h100-sxm", weights="fp8-block", tensor_parallel=2).memory.fits
    own = {"tensor_parallel": 4, "expert_parallel": 4}
    assert ask("qwen3-30b-a3b", "4x h100-sxm", weights="fp8-block", **own).memory.fits
    assert ask("gpt-oss-120b", "8x h100-sxm", weights="mxfp4", tensor_parallel=8).memory.fits  # engines pad its experts


def test_a_link_that_joins_fewer_devices_is_named() -> None:
    said = ask("llama-3.1-8b", "16x h100-sxm", tensor_parallel=16).assumptions
    assert any("no link of nvidia-h100-sxm5-80gb joins 16 devices" in text for text in said)
    said = ask("llama-3.1-8b", "8x h100-sxm", tensor_parallel=8).assumptions
    assert not any("no link" in text for text in said)


# ----------------------------------------------------------------------------------------------------------- the cases


def within(measured: float, found: Any) -> None:
    """In the interval, and under the bound."""
    rate = found.decode.tokens_per_s
    assert rate.low <= measured <= rate.high
    assert measured <= rate.ideal


def test_seventy_billion_on_eight_h100() -> None:
    # sgl-project/sglang pull 4716: Llama 3.3 70B in 16 bits, without speculation, 88.61 tokens/s.
    within(88.61, ask("llama-3.3-70b", "8x h100-sxm", weights="fp16", engine="sglang", tensor_parallel=8))


def test_two_raspberry_pi_over_ethernet() -> None:
    # b4rtaz/distributed-llama pull 136: Llama 3 8B in 4 bits on two Raspberry Pi 5, 3.00 tokens/s. Its kernels are its
    # own, so that the interval of llama.cpp, of which this board was measured, says nothing of it.
    found = ask("llama-3-8b", "2x raspberry-pi-5 + 1gbe", weights="Q4_0", engine="llama.cpp", tensor_parallel=2)
    assert found.decode.tokens_per_s.expected / 2 < 3.0 <= found.decode.tokens_per_s.ideal


def test_prompt_over_two_cards_without_a_bridge() -> None:
    # turboderp-org/exllamav2 issue 734: Llama 3.3 70B at 4.5 bits on two RTX 3090, a prompt of 16k: 378.87 tokens/s.
    keywords: dict[str, Any] = {"engine": "exllamav2", "kv": "q8_0", "tensor_parallel": 2, "prompt_tokens": 16_384}
    rate = ask("llama-3.3-70b", "2x rtx-3090", weights="exl2-4.65", **keywords).prefill.tokens_per_s
    assert rate.low <= 378.87 <= rate.high <= rate.ideal


@pytest.mark.parametrize(
    ("model", "hardware", "t", "measured"),
    [
        # vllm-project/vllm issue 22331: gpt-oss-120b on A100s, 90 tokens/s alone, 77 to 78 on two and four.
        ("gpt-oss-120b", "a100-sxm-80gb", 1, 90),
        ("gpt-oss-120b", "a100-sxm-80gb", 2, 78),
        ("gpt-oss-120b", "a100-sxm-80gb", 4, 78),
        # vllm-project/tpu-inference pull 2661: Qwen2.5 3B, 2 KV heads on each of 8 TPUs, a step in 1.582 ms.
        ("qwen2.5-3b", "tpu-v6e", 8, 1000 / 1.582),
    ],
)
def test_no_measurement_is_above_the_bound(model: str, hardware: str, t: int, measured: float) -> None:
    weights = "mxfp4" if model.startswith("gpt") else "bf16"
    rate = ask(model, f"{t}x {hardware}", weights=weights, tensor_parallel=t).decode.tokens_per_s
    assert measured <= rate.ideal


# ------------------------------------------------------------------------------------------------------- command line


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


QWEN = ("qwen3-30b-a3b", "8x h100-sxm", "--weights", "bf16", "--engine", "vllm")


def test_command_line_takes_degrees(capsys: pytest.CaptureFixture[str]) -> None:
    degrees = ("--tp", "2", "--pp", "2", "--ep", "4", "--dp", "2")
    code, out, err = run(capsys, "estimate", *QWEN, *degrees, "-p", "512", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    same = ask("qwen3-30b-a3b", "8x h100-sxm", tensor_parallel=2, pipeline_parallel=2, expert_parallel=4,
               data_parallel=2)  # fmt: skip
    assert found["tpot_s"]["expected"] == same.tpot_s.expected
    assert len(found["memory"]["placement"]) == 8


def test_screen_names_degrees_and_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "estimate", *QWEN, "--tp", "4", "--pp", "2", "-p", "512", "-v")
    assert code == 0
    assert "8x H100 SXM5 80GB TP4 PP2 · vllm cuda" in out
    assert "exchange between devices" in out
    code, out, _ = run(capsys, "estimate", *QWEN, "--tp", "4", "--pp", "2", "-p", "512", "--show-command")
    assert out.rstrip().endswith("-tp 4 -pp 2")
    again = rl.from_command(out.strip())
    assert (again.keywords["tensor_parallel"], again.keywords["pipeline_parallel"]) == (4, 2)


def test_equal_devices_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "fit", "llama-3.3-70b", "8x h100-sxm", *QWEN[2:], "--tp", "8")
    assert code == 0
    assert [line.split()[:3] for line in out.splitlines() if "nvidia-h100" in line] == [
        ["8", "×", "nvidia-h100-sxm5-80gb"]
    ]


def test_what_would_hold_it_shares_layers(capsys: pytest.CaptureFixture[str]) -> None:
    found = rl.fit("llama-3.3-70b", "h100-sxm", weights="bf16", engine="vllm")
    assert found.fits is False
    assert found.alternatives[0].name == "2x H100 SXM5 80GB TP2"
    code, _, err = run(capsys, "fit", "llama-3.3-70b", "8x h100-sxm", *QWEN[2:])
    assert code == 2
    assert "Give --tp 8," in err


def test_degrees_are_an_axis_of_a_sweep() -> None:
    found = rl.sweep(
        "llama-3.1-8b", "8x h100-sxm", weights="bf16", engine="vllm", tensor_parallel=8, batch=[1, 8], data_parallel=1
    )
    assert found.tpot_s.expected.shape == (2,)
    some = rl.sweep("llama-3.1-8b", "8x h100-sxm", weights="bf16", engine="vllm", tensor_parallel=[4, 8])
    assert some.tpot_s.expected.shape == (1,)
    assert some.notes == ("1 of 2 combinations of degrees do not share the model over 8 devices; left out",)
    with pytest.raises(rl.InvalidRequest, match="8 devices"):
        rl.sweep("llama-3.1-8b", "8x h100-sxm", weights="bf16", engine="vllm", tensor_parallel=[2, 4])


@pytest.mark.parametrize(
    "degrees",
    [{"data_parallel": 4}, {"expert_parallel": 4, "data_parallel": 4}, {"tensor_parallel": 2, "pipeline_parallel": 2}],
)
def test_several_batches_at_once_are_each_alone(degrees: dict[str, int]) -> None:
    batches = [1, 2, 8, 100]
    together = ask("qwen3-30b-a3b", "4x h100-sxm", batch=batches, **degrees)
    for index, batch in enumerate(batches):
        alone = ask("qwen3-30b-a3b", "4x h100-sxm", batch=batch, **degrees)
        assert together.tpot_s.expected[index] == pytest.approx(alone.tpot_s.expected, rel=1e-12)
        assert together.decode.read_bytes[index] == pytest.approx(alone.decode.read_bytes, rel=1e-12)
        assert together.memory.total_bytes[index] == alone.memory.total_bytes
