"""Parts of a model on several devices, on the host and on a drive: identities, sums and order.

Devices are ad hoc where a law is exact: no cache, no boost clock, one peak, no links of their own.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm.cli import main
from rooflinellm.errors import InvalidRequest, MissingSpec, RooflineError

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")

ENDS = ("ideal", "expected", "low", "high")
GPU_GB_S, RAM_GB_S = 1000, 89.6
GPU = f"24GiB,{GPU_GB_S}GB/s,100TFLOP/s@fp16"
RAM = "ddr5-5600x2@64GiB"  # 2 channels x 8 bytes x 5.6 GT/s
DENSE, MIXTURE = "llama-3.1-8b", "gpt-oss-20b"
MODELS = (DENSE, MIXTURE, "qwen3-30b-a3b", "gemma-3-4b", "deepseek-v2-lite", "qwen3.5-4b", "gemma-3n-e2b")
FORMATS = ("Q4_K_M", "Q8_0", "F16", "MXFP4")


def ask(hardware: str, model: str = DENSE, **request: Any) -> Any:
    return rl.estimate(model, hardware, **{"engine": "llama.cpp", "weights": "Q8_0"} | request)


def step(hardware: str, model: str = DENSE, **request: Any) -> Any:
    """One decode step, with an empty cache where none is asked for."""
    return ask(hardware, model, **{"prompt_tokens": 0, "output_tokens": 1} | request).decode


def prefill(hardware: str, model: str = DENSE, **request: Any) -> Any:
    return ask(hardware, model, **{"prompt_tokens": 4096, "output_tokens": 0} | request).prefill


def ends(prediction: Any) -> list[float]:
    return [getattr(prediction, end) for end in ENDS]


def held(estimate: Any) -> dict[str, Any]:
    """What each place holds, by its name."""
    return {part.device: part for part in estimate.memory.placement}


def at_most(smaller: float, larger: float) -> bool:
    """Smaller or equal but for the last bits of a sum."""
    return smaller <= larger * (1 + 1e-12)


# ----------------------------------------------------------------------------------------------------------- identities


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
@pytest.mark.parametrize("rig", [f"{GPU} + {RAM}", f"rtx-4090 + 7950x + {RAM}", f"2x rtx-3090 + {RAM}"])
def test_all_layers_and_the_head_on_the_device_is_no_offload(model: str, rig: str) -> None:
    layers = len(rl.model(model).layers)
    plain = ask(rig, model)
    for asked in ({"gpu_layers": layers + 1}, {"cpu_moe_layers": 0}, {"gpu_layers": layers + 1, "cpu_moe_layers": 0}):
        assert ask(rig, model, **asked).to_dict() == plain.to_dict()


def test_a_host_changes_nothing_but_where_embeddings_lie() -> None:
    alone, beside = ask("rtx-4090"), ask(f"rtx-4090 + {RAM}")
    for phase in ("prefill", "decode"):
        assert ends(getattr(beside, phase).time_s) == ends(getattr(alone, phase).time_s)
    assert beside.memory.total_bytes == alone.memory.total_bytes
    embedding = 128_256 * 4096 * 34 // 32 + 64 * 4  # rows in 8-bit blocks of 32, and the factors of the rotation
    assert held(beside)["host"].bytes == held(beside)["host"].weight_bytes == embedding


@pytest.mark.parametrize("context", [0, 8192])
@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_no_layers_on_the_device_decode_as_the_host_alone(model: str, context: int) -> None:
    offloaded = step(f"rtx-4090 + 7950x + {RAM}", model, context_tokens=context, gpu_layers=0)
    alone = step(f"7950x + {RAM}", model, context_tokens=context)
    assert ends(offloaded.time_s) == pytest.approx(ends(alone.time_s), rel=1e-12)  # sums of another order
    assert (offloaded.flops, offloaded.read_bytes) == (alone.flops, alone.read_bytes)


@pytest.mark.parametrize("device", ["rtx-3090", "rtx-4090", "l40s"])
def test_a_second_card_adds_no_bandwidth_to_one_sequence(device: str) -> None:
    # Weights are read one after the other; only what the second cache holds is read faster.
    one, two = (step(name, context_tokens=4096) for name in (device, f"2x {device}"))
    spec = rl.hardware(device)
    cached = (spec.cache_bytes or 0) / spec.memory_bandwidth_bytes_per_s
    assert one.time_s.ideal - cached <= two.time_s.ideal <= one.time_s.ideal
    assert one.time_s.expected < two.time_s.expected < one.time_s.expected + 1e-3
    bare = [step(f"{count}x {GPU}", context_tokens=4096).time_s.ideal for count in (1, 2, 4)]
    assert bare == pytest.approx([bare[0]] * 3, rel=1e-12)


# ----------------------------------------------------------------------------------------------------------------- sums


@pytest.mark.parametrize("on_device", [0, 1, 16, 31, 32, 33])
def test_decode_is_the_sum_of_its_places(on_device: int) -> None:
    # F16 without a context: all weights but the table of embeddings, of which one row is read, each by its own memory.
    found = ask(
        f"{GPU} + {RAM}", weights="F16", prompt_tokens=0, output_tokens=1, gpu_layers=on_device
    )  # fmt: skip
    parts = held(found)
    host = parts["host"].weight_bytes - 128_256 * 4096 * 2
    device = found.memory.resident_weight_bytes - parts["host"].weight_bytes
    by_hand = device / (GPU_GB_S * 1e9) + host / (RAM_GB_S * 1e9)
    assert found.decode.time_s.ideal == pytest.approx(by_hand, rel=1e-4)


@settings(max_examples=60)
@given(data=st.data(), model=st.sampled_from(MODELS), weights=st.sampled_from(FORMATS), batch=st.integers(1, 8))
def test_places_hold_the_model_and_no_more(data: Any, model: str, weights: str, batch: int) -> None:
    spec = rl.model(model)
    layers = len(spec.layers)
    mixture = any(getattr(block.ffn, "kind", "") == "moe" for block in spec.layers)
    rig = data.draw(st.sampled_from((f"{GPU} + {RAM}", f"rtx-3090 + rtx-3060-12gb + {RAM}", f"3x p40 + {RAM}")))
    asked = {
        "gpu_layers": data.draw(st.integers(0, layers + 1)),
        "cpu_moe_layers": data.draw(st.integers(0, layers)) if mixture else None,
        "options": rl.Options(kv_on_host=data.draw(st.booleans())),
        "context_tokens": data.draw(st.integers(0, 20_000)),
        "batch": batch,
    }
    found = ask(rig, model, weights=weights, **asked)
    whole = ask(rig.partition(" + ddr")[0], model, weights=weights, context_tokens=asked["context_tokens"], batch=batch)
    parts, memory = found.memory.placement, found.memory
    assert sum(part.weight_bytes for part in parts) == memory.resident_weight_bytes
    assert memory.resident_weight_bytes == whole.memory.resident_weight_bytes
    assert sum(part.bytes for part in parts) == memory.total_bytes
    assert sum(part.layers for part in parts) == layers + 1
    for name in ("kv_allocated_bytes", "kv_occupied_bytes", "kv_by_kind", "state_bytes"):
        assert getattr(memory, name) == getattr(whole.memory, name)
    assert all(part.weight_bytes >= 0 and part.bytes >= part.weight_bytes for part in parts)
    for phase in (found.decode, found.prefill):
        rates = ends(phase.tokens_per_s)
        assert at_most(rates[2], rates[1]) and at_most(rates[1], rates[3]) and at_most(rates[3], rates[0])
        assert sum(row.read_bytes for row in phase.operators) == pytest.approx(phase.read_bytes)
    # Where a model lies changes what serves it, not what must be computed and read.
    assert found.decode.flops == pytest.approx(whole.decode.flops)
    assert found.decode.read_bytes == pytest.approx(whole.decode.read_bytes)


# ---------------------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize("rig", [f"{GPU} + {RAM}", f"rtx-3090 + 7950x + {RAM}", f"rtx-3090 + rtx-3060-12gb + {RAM}"])
def test_more_layers_on_the_device_are_never_slower(rig: str) -> None:
    times = [step(rig, context_tokens=2048, gpu_layers=number).time_s for number in range(34)]
    for fewer, more in pairwise(times):
        assert at_most(more.ideal, fewer.ideal)
        if more is not times[1]:  # the first one costs the way there and back
            assert at_most(more.expected, fewer.expected)


def test_experts_on_the_host_cost_more_the_more_there_are() -> None:
    times = [step(f"rtx-4090 + 7950x + {RAM}", MIXTURE, cpu_moe_layers=number).time_s for number in range(25)]
    for fewer, more in pairwise(times):
        assert fewer.ideal < more.ideal
        assert fewer.expected < more.expected


def test_experts_on_the_host_beat_as_many_whole_layers_there() -> None:
    # Of a layer's weights only a few experts are read, but attention always: it is what the device should keep.
    rig = f"24GiB,{GPU_GB_S}GB/s,100TFLOP/s@fp16 + {RAM}"
    experts = step(rig, MIXTURE, context_tokens=16_384, cpu_moe_layers=24)
    whole = step(rig, MIXTURE, context_tokens=16_384, gpu_layers=0)
    assert experts.time_s.ideal < whole.time_s.ideal
    assert experts.time_s.expected < whole.time_s.expected


def test_experts_on_the_host_share_the_memory() -> None:
    whole, found = (ask(f"{GPU} + {RAM}", MIXTURE, cpu_moe_layers=number) for number in (0, 12))
    moved = held(found)["host"].weight_bytes - held(whole)["host"].weight_bytes
    device = next(name for name in held(whole) if name != "host")
    assert held(whole)[device].weight_bytes - held(found)[device].weight_bytes == moved
    per_layer = 3 * 32 * 2880 * 2880 * 17 / 32  # gate, up and down of 32 experts, in MXFP4 in every file
    assert moved == pytest.approx(12 * per_layer, rel=0.01)
    assert found.memory.total_bytes == sum(part.bytes for part in held(found).values())
    assert found.memory.usable_bytes == held(found)[device].usable_bytes + held(found)["host"].usable_bytes


def test_attention_on_the_host_reads_its_cache_there() -> None:
    # 32 layers of 8 heads of 128, keys and values in 16 bits.
    cache = 32 * 2 * 8 * 128 * 2
    options = rl.Options(kv_on_host=True)
    near, far = (step(f"{GPU} + {RAM}", context_tokens=32_768, options=given) for given in (rl.Options(), options))
    moved = 32_768 * cache / (RAM_GB_S * 1e9) - 32_768 * cache / (GPU_GB_S * 1e9)
    assert far.time_s.ideal - near.time_s.ideal == pytest.approx(moved, rel=1e-3)
    found = ask(f"{GPU} + {RAM}", context_tokens=32_768, options=options)
    assert held(found)["host"].bytes - held(found)["host"].weight_bytes >= found.memory.kv_allocated_bytes


# -------------------------------------------------------------------------------------------------------------- prefill


def test_prefill_copies_the_weights_in_every_pass() -> None:
    # Nothing but the way there differs between two widths of it: bytes on the host, each pass anew.
    slow, fast = (f"rtx-4090 + {RAM}", "rtx-5090 + " + RAM)
    for rig, rate in ((slow, 32e9), (fast, 64e9)):
        link = max(link.gb_s_per_direction.value for link in rl.hardware(rig.partition(" +")[0]).links)
        assert link * 1e9 == pytest.approx(rate, rel=0.02)
    host = held(ask(slow, gpu_layers=0))["host"].weight_bytes - 128_256 * 4096 * 34 // 32
    for chunk, passes in ((512, 8), (1024, 4), (2048, 2)):
        whole, none = (prefill(slow, gpu_layers=number, prefill_chunk=chunk) for number in (33, 0))
        extra = none.time_s.expected - whole.time_s.expected
        copied = passes * host / 31.5e9
        assert copied < extra < 1.6 * copied
    at = [prefill(slow, gpu_layers=16, prefill_chunk=chunk).time_s.expected for chunk in (256, 512, 1024, 2048, 4096)]
    assert all(larger < smaller for smaller, larger in pairwise(at))


def test_a_few_tokens_are_computed_where_the_weights_lie() -> None:
    # ggml_backend_offload_op copies from 32 tokens on.
    rig = f"rtx-4090 + 7950x + {RAM}"
    few, many = (
        prefill(rig, gpu_layers=0, prompt_tokens=tokens).time_s.expected for tokens in (31, 32)
    )  # fmt: skip
    alone = prefill(f"7950x + {RAM}", prompt_tokens=31).time_s.expected
    assert few == pytest.approx(alone)
    assert many != pytest.approx(prefill(f"7950x + {RAM}", prompt_tokens=32).time_s.expected)


def test_cards_side_by_side_share_a_prefill() -> None:
    one, two = (prefill(f"{count}x {GPU}", prompt_tokens=8192) for count in (1, 2))
    assert two.time_s.ideal == pytest.approx(one.time_s.ideal / 2)
    assert one.time_s.expected / 2 < two.time_s.expected < one.time_s.expected


# --------------------------------------------------------------------------------------------- the host, and what it is


def test_memory_without_a_processor_has_no_compute_roof() -> None:
    unknown, known = (step(rig, gpu_layers=0, batch=4096) for rig in (f"{GPU} + {RAM}", f"{GPU} + 7950x + {RAM}"))
    single = step(f"{GPU} + {RAM}", gpu_layers=0)
    # Weights are read once; with 4,096 sequences a processor that is named computes for longer than that.
    assert unknown.time_s.ideal < 2 * single.time_s.ideal < known.time_s.ideal
    assert unknown.time_s.expected > 10 * unknown.time_s.ideal


def test_memory_without_a_capacity_leaves_open_whether_it_fits() -> None:
    open_, known = (ask(f"rtx-3060-12gb + {memory}", gpu_layers=8) for memory in ("ddr5-5600x2", RAM))
    assert (open_.memory.fits, known.memory.fits) == (None, True)
    assert open_.memory.usable_bytes is None
    assert [text for text in open_.warnings if "host" in text and "not known" in text]
    assert ends(open_.decode.time_s) == ends(known.decode.time_s)
    # What is only looked up needs no capacity, and a device that is too full is too full whatever the host holds.
    assert ask("rtx-3060-12gb + ddr5-5600x2").memory.fits is True
    assert ask("rtx-3060-12gb + ddr5-5600x2", weights="F16", gpu_layers=32).memory.fits is False


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_a_board_of_two_processors_reads_the_memory_of_both(model: str) -> None:
    boards = ("xeon-platinum-8480plus + ddr5-4800x8@256GiB", "2x xeon-platinum-8480plus + ddr5-4800x16@512GiB")
    one, two = (step(f"rtx-4090 + {board}", model, context_tokens=8192, gpu_layers=0).time_s for board in boards)
    held_by_a_cache = 105 * 2**20 / (2 * 307.2e9)
    assert two.ideal == pytest.approx(one.ideal / 2 - held_by_a_cache)
    assert one.expected / 2 <= two.expected
    if model == DENSE:  # launches on more cores take longer, which a few experts do not make up for
        assert two.expected < one.expected
    alone = step(boards[1], model, context_tokens=8192).time_s
    assert ends(two) == pytest.approx(ends(alone), rel=1e-12)


def test_a_drive_is_the_slowest_place() -> None:
    small = "ddr5-5600x2@16GiB"
    rigs = (f"rtx-4090 + 7950x + {RAM}", f"rtx-4090 + 7950x + {small} + nvme-gen4@2TB")
    roomy, tight = (ask(rig, "llama-3.3-70b", weights="Q4_K_M") for rig in rigs)
    parts = held(tight)
    assert tight.memory.fits is True
    assert tight.memory.usable_bytes == sum(part.usable_bytes for part in parts.values()) >= tight.memory.total_bytes
    assert parts["disk"].layers > 0 and parts["host"].layers > 0
    assert parts["host"].bytes <= 16 * 2**30
    # As few layers as need be: one more in memory would not fit.
    assert parts["host"].bytes + parts["disk"].weight_bytes / parts["disk"].layers > 16 * 2**30
    for phase in ("decode", "prefill"):
        slow, fast = getattr(tight, phase).time_s, getattr(roomy, phase).time_s
        assert slow.expected > fast.expected
        assert slow.ideal >= fast.ideal * (1 - 1e-12)  # the order of a sum
    # Each step reads the drive at its own rate at best.
    drive = 7.45e9  # Samsung 990 PRO, sequential read
    assert tight.tpot_s.ideal >= parts["disk"].weight_bytes / drive * 0.99
    slower = ask(f"rtx-4090 + 7950x + {small} + ssd@0.5GB/s@2TB", "llama-3.3-70b", weights="Q4_K_M")
    assert slower.decode.bound == "link"
    assert slower.tpot_s.ideal == pytest.approx(held(slower)["disk"].weight_bytes / 0.5e9, rel=0.01)


def test_without_room_anywhere_it_does_not_fit() -> None:
    small, roomy = (ask(f"rtx-4090 + 7950x + ddr5-5600x2@{size}GiB", "llama-3.3-70b") for size in (8, 128))
    assert (small.memory.fits, roomy.memory.fits) == (False, True)
    assert any("does not fit" in text for text in small.warnings)
    assert any("the host is too small" in text for text in small.assumptions)
    # The answer is as if the host were larger, so that it does not jump where it gets too small.
    assert small.workload["gpu_layers"] == roomy.workload["gpu_layers"]
    assert ends(small.decode.time_s) == ends(roomy.decode.time_s)


@pytest.mark.parametrize("host", ["ddr5-5600x2@32GiB", "ddr5-5600x2@16GiB + nvme-gen4@2TB"])
def test_a_context_that_fits_nowhere_is_not_faster(host: str) -> None:
    rates = [
        ask(f"rtx-4090 + 7950x + {host}", "llama-3.3-70b", weights="Q4_K_M", context_tokens=context)
        for context in (0, 8192, 32_768, 65_536, 131_000)
    ]
    assert (rates[0].memory.fits, rates[-1].memory.fits) == (True, False)
    assert all(
        more.decode.tokens_per_s.expected < fewer.decode.tokens_per_s.expected for fewer, more in pairwise(rates)
    )


# ----------------------------------------------------------------------------------------------- unequal devices, links


def test_shares_follow_memory_or_what_is_asked() -> None:
    rig = "rtx-3090 + rtx-3060-12gb"
    by_memory = [part.layers for part in ask(rig).memory.placement]
    assert by_memory == [23, 10]  # 25.38 and 12.63 GB that are usable: 22.04 of 33, and the border to the first
    for split, expected in (((1.0, 1.0), [17, 16]), ((1.0, 0.0), [33, 0]), ((0.0, 1.0), [0, 33]), ((2, 1), [22, 11])):
        found = ask(rig, options=rl.Options(tensor_split=split))
        assert [part.layers for part in found.memory.placement] == expected
    alone = step("rtx-3060-12gb").time_s
    assert step(rig, options=rl.Options(tensor_split=(0.0, 1.0))).time_s.ideal == alone.ideal


def test_unequal_devices_are_between_their_kinds() -> None:
    fast, slow, both = (step(rig).time_s for rig in ("rtx-4090", "rtx-3060-12gb", "rtx-4090 + rtx-3060-12gb"))
    assert fast.ideal < both.ideal < slow.ideal
    assert fast.expected < both.expected < slow.expected


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_network_is_slower_than_a_slot(phase: str) -> None:
    rigs = ("2x rtx-3090", "2x rtx-3090 + 25gbe", "2x rtx-3090 + 5gbe", "2x rtx-3090 + 1gbe")
    times = [getattr(ask(rig, prompt_tokens=4096), phase).time_s for rig in rigs]
    assert all(near.expected < far.expected for near, far in pairwise(times))
    assert {time.ideal for time in times} == {times[0].ideal}


# ------------------------------------------------------------------------------------------------------- what is chosen


@pytest.mark.parametrize(
    ("model", "rig", "weights"),
    [
        ("qwen2.5-14b", f"rtx-3060-12gb + 7950x + {RAM}", "Q8_0"),
        ("qwen3-30b-a3b", f"rtx-3060-12gb + 7950x + {RAM}", "Q4_K_M"),
        ("llama-3.3-70b", f"rtx-3090 + rtx-3060-12gb + {RAM}", "Q4_K_M"),
    ],
)
def test_what_is_chosen_is_the_fastest_that_fits(model: str, rig: str, weights: str) -> None:
    request = {"weights": weights, "context_tokens": 4096, "prompt_tokens": 0, "output_tokens": 1}
    chosen = ask(rig, model, **request)
    assert chosen.memory.fits is True
    assert any("fastest that fits" in text for text in chosen.assumptions)
    layers = len(rl.model(model).layers)
    tried = [{"gpu_layers": number} for number in range(layers + 2)]
    if model == "qwen3-30b-a3b":
        tried += [{"cpu_moe_layers": number} for number in range(layers + 1)]
        tried += [{"gpu_layers": layers + 1 - less, "cpu_moe_layers": 8} for less in range(0, layers, 6)]
    able = [found for found in (ask(rig, model, **request, **asked) for asked in tried) if found.memory.fits]
    assert 0 < len(able) < len(tried)
    best = min(found.decode.time_s.expected for found in able)
    assert at_most(chosen.decode.time_s.expected, best)
    asked = {name: chosen.workload[name] for name in ("gpu_layers", "cpu_moe_layers")}
    again = ask(rig, model, **request, **asked)
    assert ends(again.decode.time_s) == ends(chosen.decode.time_s)
    assert again.memory.placement == chosen.memory.placement


def test_what_fits_stays_on_the_device() -> None:
    found = ask(f"rtx-4090 + 7950x + {RAM}")
    assert found.workload["gpu_layers"] is None
    assert not any("fastest that fits" in text for text in found.assumptions)


@pytest.mark.parametrize(("spare", "layers"), [(0, 20), (-1, 19)])
def test_a_device_is_filled_to_the_last_byte(spare: int, layers: int) -> None:
    rig = f"rtx-4090 + {RAM}"
    needed = ask(rig, gpu_layers=20).memory.placement[0].bytes
    found = ask(rig, overrides={"hardware.memory.usable_gib": (needed + spare) / 2**30})
    assert found.memory.placement[0].usable_bytes == needed + spare
    assert found.workload["gpu_layers"] == layers


def test_a_larger_context_leaves_fewer_layers_on_the_device() -> None:
    rig = f"rtx-3060-12gb + 7950x + {RAM}"
    numbers = [
        ask(rig, "qwen2.5-14b", context_limit=limit).workload["gpu_layers"] for limit in (1024, 16_384, 32_768)
    ]  # fmt: skip
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[-1]


# --------------------------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    ("rig", "model", "asked"),
    [
        (f"rtx-4090 + 7950x + {RAM}", DENSE, {"gpu_layers": 12}),
        (f"rtx-4090 + {RAM}", MIXTURE, {"cpu_moe_layers": 10}),
        (f"rtx-4090 + {RAM}", DENSE, {"options": rl.Options(kv_on_host=True)}),
        ("rtx-4090 + rtx-3060-12gb + 5gbe", DENSE, {}),
    ],
)
def test_arrays_are_the_single_answers(rig: str, model: str, asked: dict[str, Any]) -> None:
    contexts, prompts = np.array([0, 700, 9000, 60_000]), np.array([1, 40, 512, 3000])
    together = ask(rig, model, context_tokens=contexts, prompt_tokens=prompts, output_tokens=8, **asked)
    for index, (context, prompt) in enumerate(zip(contexts, prompts, strict=True)):
        one = ask(rig, model, context_tokens=int(context), prompt_tokens=int(prompt), output_tokens=8, **asked)
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            found = [np.broadcast_to(each, contexts.shape)[index] for each in ends(getattr(together, name))]
            assert found == pytest.approx(ends(getattr(one, name)), rel=1e-12)
        assert np.broadcast_to(together.memory.total_bytes, contexts.shape)[index] == one.memory.total_bytes


# ------------------------------------------------------------------------------------------------------------ bad input

WRONG: dict[str, tuple[str, dict[str, Any], str, str]] = {
    # hardware, what is asked, where, what the message holds
    "below none": (f"rtx-4090 + {RAM}", {"gpu_layers": -1}, "gpu_layers", "from 0 to 33"),
    "beyond all": (f"rtx-4090 + {RAM}", {"gpu_layers": 34}, "gpu_layers", "from 0 to 33"),
    "half a layer": (f"rtx-4090 + {RAM}", {"gpu_layers": 1.5}, "gpu_layers", "1.5"),
    "several": (f"rtx-4090 + {RAM}", {"gpu_layers": [1, 2]}, "gpu_layers", "one placement at a time"),
    "words": (f"rtx-4090 + {RAM}", {"gpu_layers": "all"}, "gpu_layers", "'all'"),
    "no experts": (f"rtx-4090 + {RAM}", {"cpu_moe_layers": 3}, "cpu_moe_layers", "no experts"),
    "experts beyond all": (
        f"rtx-4090 + {RAM}", {"model": MIXTURE, "cpu_moe_layers": 25}, "cpu_moe_layers", "from 0 to 24"),
    "no host": ("rtx-4090", {"gpu_layers": 3}, "hardware 'nvidia-geforce-rtx-4090'", "+ ddr5-5600x2@64GiB"),
    "no host for a cache": ("rtx-4090", {"options": rl.Options(kv_on_host=True)}, "hardware", "+ ddr5-5600x2@64GiB"),
    "exllamav2": (
        f"rtx-4090 + {RAM}", {"engine": "exllamav2", "weights": "exl2_4", "gpu_layers": 3}, "gpu_layers", "llama.cpp"),
    "mlx": ("m3-max-40c", {"engine": "mlx", "weights": "mlx-4bit", "gpu_layers": 3}, "gpu_layers", "llama.cpp"),
    "parts for other devices": (
        f"2x rtx-3090 + {RAM}", {"options": rl.Options(tensor_split=(1.0,))}, "tensor_split", "2 devices"),
    "no parts": (f"2x rtx-3090 + {RAM}", {"options": rl.Options(tensor_split=(0.0, 0.0))}, "tensor_split", "part"),
    "negative parts": ("2x rtx-3090", {"options": rl.Options(tensor_split=(2.0, -1.0))}, "tensor_split", "part"),
    "parts that are no numbers": (
        "2x rtx-3090", {"options": rl.Options(tensor_split=(1.0, float("nan")))}, "tensor_split", "part"),
    "parts in words": ("2x rtx-3090", {"options": rl.Options(tensor_split=("1", "1"))}, "tensor_split", "part"),
    "one part": ("2x rtx-3090", {"options": rl.Options(tensor_split=5)}, "tensor_split", "part"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be(case: str) -> None:
    hardware, asked, where, said = WRONG[case]
    given = {"model": DENSE} | asked
    with pytest.raises(RooflineError) as caught:
        ask(hardware, **given)
    error = caught.value
    assert isinstance(error, InvalidRequest | MissingSpec)
    assert where in (error.where or "")
    assert said in str(error)
    assert error.next_step


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (("rtx-4090 + " + RAM, "--gpu-layers", "-1"), 2, "from 0 to 33"),
        (("rtx-4090 + " + RAM, "--gpu-layers", "34"), 2, "from 0 to 33"),
        (("rtx-4090 + " + RAM, "--gpu-layers", "1.5"), 2, "gpu-layers"),
        (("rtx-4090 + " + RAM, "--cpu-moe", "3"), 2, "no experts"),
        (("rtx-4090", "--gpu-layers", "3"), 2, "ddr5-5600x2@64GiB"),
        (("rtx-4090 + " + RAM, "--gpu-layers", "3", "--engine", "exllamav2", "--weights", "exl2_4"), 2, "llama.cpp"),
        (("rtx-4090 + 2x " + RAM,), 2, "channels"),
        ((f"rtx-4090 + {RAM} + ddr4-3200x2",), 2, "twice"),
        (("rtx-4090 + 5gbe + 10gbe",), 2, "twice"),
    ],
)
def test_the_command_line_says_so(
    typed: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("estimate", DENSE, *typed)) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert said in captured.err


def test_the_command_line_answers_as_python_does(capsys: pytest.CaptureFixture[str]) -> None:
    rig = f"rtx-4090 + 7950x + {RAM}"
    typed = ("--gpu-layers", "20", "--prompt", "512", "--weights", "Q8_0", "--json")
    assert main(("estimate", DENSE, rig, *typed)) == 0
    answer = json.loads(capsys.readouterr().out)
    expected = ask(rig, gpu_layers=20).to_dict()
    found = answer["results"][0] if "results" in answer else answer
    assert found["tpot_s"] == expected["tpot_s"]
    assert found["memory"]["placement"] == expected["memory"]["placement"]


def test_what_must_fit_raises() -> None:
    must = rl.Options(must_fit=True)
    with pytest.raises(rl.DoesNotFit, match="usable on nvidia-geforce-rtx-4090") as caught:
        rl.estimate("llama-3.3-70b", "rtx-4090", options=must)
    assert caught.value.next_step
    assert rl.estimate("llama-3.1-8b", "rtx-4090", options=must).memory.fits


def test_an_engine_that_only_copies_weights_keeps_the_cache_on_the_device() -> None:
    rig = "rtx-4090 + 7950x + ddr5-6000x2@96GiB"
    copied = held(ask(rig, engine="vllm", weights="bf16", gpu_layers=16, prompt_tokens=1_000, output_tokens=136))
    assert copied["host"].layers > 0
    assert (copied["host"].kv_bytes, copied["nvidia-geforce-rtx-4090"].kv_bytes) == (0, 1_136 * 131_072)
    # llama.cpp computes those layers on the host, where their cache is: half of the layers, half of it.
    computed = held(ask(rig, gpu_layers=17, prompt_tokens=1_000, output_tokens=24))
    assert computed["host"].kv_bytes == computed["nvidia-geforce-rtx-4090"].kv_bytes == 1_024 * 131_072 // 2


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_an_engine_that_only_copies_weights_has_no_use_for_the_processor(engine: str) -> None:
    # It multiplies all layers on the device, in the device's arithmetic, whatever stands beside it.
    request: dict[str, Any] = {"engine": engine, "weights": "bf16", "gpu_layers": 16, "prompt_tokens": 4096}
    unnamed, named = (ask(f"rtx-4090 + {host}", batch=64, **request) for host in (RAM, f"7950x + {RAM}"))
    for phase in ("prefill", "decode"):
        with_it, without = getattr(named, phase), getattr(unnamed, phase)
        assert ends(with_it.time_s) == ends(without.time_s)
        assert {row.compute_path for row in with_it.operators} == {"", "bf16.fp32"}
        assert [row.compute_path for row in with_it.operators] == [row.compute_path for row in without.operators]


@pytest.mark.parametrize("model", ["llama-3.3-70b", "qwen3-235b-a22b"])
def test_rows_add_up_where_copies_overlap_with_nothing(model: str) -> None:
    rig = "rtx-4090 + 7950x + ddr5-6000x2@192GiB"
    found = ask(rig, model, weights="Q4_K_M", prompt_tokens=2_000, options=rl.Options(overlap="none"))
    hidden = ask(rig, model, weights="Q4_K_M", prompt_tokens=2_000)
    for phase, other in ((found.prefill, hidden.prefill), (found.decode, hidden.decode)):
        assert sum(row.time_s for row in phase.operators) == pytest.approx(phase.time_s.expected, rel=1e-9)
        assert phase.time_s.expected > other.time_s.expected


def test_what_is_copied_is_bound_by_the_link_alone() -> None:
    # A device may take weights as they arrive: how fast the host reads them is no further bound.
    rigs = (f"rtx-4090 + 7950x + {memory}@96GiB" for memory in ("ddr4-2133x1", "ddr5-6000x2"))
    slow, fast = (step(rig, engine="vllm", weights="bf16", gpu_layers=16).time_s.ideal for rig in rigs)
    copied = held(ask("rtx-4090 + 7950x + ddr5-6000x2@96GiB", engine="vllm", weights="bf16", gpu_layers=16))["host"]
    assert slow == fast
    # Without the embedding, of which a row is looked up (128,256 x 4,096 in 16 bits).
    assert fast == pytest.approx((copied.weight_bytes - 128_256 * 4096 * 2) / 31.5e9, rel=1e-3)


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_what_is_copied_is_not_read_from_memory_besides(engine: str) -> None:
    # One layer of 32 is copied, faster than a slow device reads the others with the last norm and the head; what
    # arrives it only multiplies.
    matrices = (2 * 4096 + 2 * 1024 + 3 * 14_336) * 4096
    others = 31 * (matrices + 2 * 4096) + 4096 + 128_256 * 4096
    found = step(f"24GiB,100GB/s,100TFLOP/s@bf16 + {RAM}", engine=engine, weights="bf16", gpu_layers=32)
    assert found.time_s.ideal == pytest.approx(2 * others / 100e9 + 2 * matrices / 100e12, rel=1e-9)


@pytest.mark.parametrize("shared", [{}, {"tensor_parallel": 2}, {"pipeline_parallel": 2}])
def test_memory_of_a_host_that_computes_nothing_adds_no_arithmetic(shared: dict[str, int]) -> None:
    """vLLM and Transformers copy what lies on the host: the devices multiply all of it, wherever it lies."""
    cards = 2 if shared else 1
    asked = {"weights": "hf:f16", "engine": "vllm", "batch": 64, "prompt_tokens": 4_096, **shared}
    for layers in (33, 20, 0):
        found = ask(f"{cards}x {GPU} + {RAM}", gpu_layers=layers, **asked).prefill
        assert found.time_s.ideal >= found.flops / (cards * 100e12) * (1 - 1e-12)
        assert found.mfu == pytest.approx(found.flops / found.time_s.expected / (cards * 100e12))


def test_devices_that_weights_are_copied_to_take_part() -> None:
    """llama.cpp multiplies a long prompt on the card, a single token where the weights lie."""
    found = ask(f"{GPU} + {RAM}", gpu_layers=0, prompt_tokens=4_096)
    host = 2 * 8 * 5.6e9
    assert found.prefill.mfu < 1
    used = found.prefill.read_bytes / found.prefill.time_s.expected
    assert found.prefill.mbu == pytest.approx(used / (host + GPU_GB_S * 1e9))
    assert found.decode.mbu == pytest.approx(found.decode.read_bytes / found.decode.time_s.expected / host)
