"""What must hold for every model, device and request: bounds, scaling, monotony, sums, and one answer for one question.

Devices are ad hoc where a law is exact: no cache, no boost clock, one peak. Packaged devices and models are drawn at
random where it is about robustness.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm import catalog, units
from rooflinellm.operators import attention, experts

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")

ENDS = ("ideal", "expected", "low", "high")
# Dense, mixtures, sliding windows, tied and separate heads, many and few key/value heads.
MODELS = ("llama-3.1-8b", "qwen3-0.6b", "gemma-2-9b", "gemma-3-4b", "gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b")
FORMATS = (("Q4_K_M", "llama.cpp"), ("Q8_0", "llama.cpp"), ("bf16", "vllm"), ("fp8", "vllm"))

models = st.sampled_from(MODELS)
formats = st.sampled_from(FORMATS)
batches = st.one_of(st.just(1), st.integers(1, 512))
lengths = st.one_of(st.integers(0, 4), st.integers(0, 600), st.integers(0, 100_000))


def ad_hoc(bandwidth: float, compute: float, memory: float = 1024) -> str:
    """A device of so many GB/s, TFLOP/s and GiB."""
    return f"{memory!r}GiB,{bandwidth!r}GB/s,{compute!r}TFLOP/s@fp16"


machines = st.tuples(st.integers(10, 8000), st.integers(1, 3000)).map(lambda pair: ad_hoc(*pair))


def ask(model: Any, hardware: Any, form: tuple[str, str] = FORMATS[0], **request: Any) -> Any:
    weights, engine = form
    return rl.estimate(model, hardware, weights=weights, engine=engine, **request)


def step(model: Any, hardware: Any, form: tuple[str, str] = FORMATS[0], *, cached: int = 0, **request: Any) -> Any:
    """One decode step."""
    return ask(model, hardware, form, prompt_tokens=0, context_tokens=cached, output_tokens=1, **request)


def attends(row: Any) -> bool:
    """Attention proper, of whatever kind of layer: not the projections around it."""
    return row.name.startswith("attention") and row.name != "attention output"


def ends(prediction: Any) -> list[Any]:
    return [getattr(prediction, end) for end in ENDS]


def at_most(smaller: float, larger: float) -> bool:
    """Smaller or equal but for the last bits of a sum."""
    return smaller <= larger * (1 + 1e-12)


# -------------------------------------------------------------------------------------------------------- exact scaling


@given(
    model=models,
    form=formats,
    bandwidth=st.integers(100, 4000),
    share=st.integers(1, 100),
    prompt=st.integers(2048, 9000),
)
def test_twice_the_compute_halves_a_compute_bound_prefill(
    model: str, form: tuple[str, str], bandwidth: int, share: int, prompt: int
) -> None:
    # A ridge point of at most 100 FLOP/byte, 200 after doubling: thousands of tokens are bound by compute.
    compute = bandwidth * share / 1000
    request = {"prompt_tokens": prompt, "output_tokens": 8}
    base = ask(model, ad_hoc(bandwidth, compute), form, **request)
    double = ask(model, ad_hoc(bandwidth, 2 * compute), form, **request)
    assert base.prefill.bound == double.prefill.bound == "compute"
    assert double.prefill.time_s.ideal == base.prefill.time_s.ideal / 2
    assert double.prefill.tokens_per_s.ideal == base.prefill.tokens_per_s.ideal * 2
    if base.decode.arithmetic_intensity <= base.decode.ridge_point:
        assert double.decode.time_s.ideal == base.decode.time_s.ideal


@given(model=models, form=formats, bandwidth=st.integers(10, 2000), cached=lengths, steps=st.integers(1, 300))
def test_twice_the_bandwidth_doubles_decode(
    model: str, form: tuple[str, str], bandwidth: int, cached: int, steps: int
) -> None:
    request = {"prompt_tokens": 0, "context_tokens": cached, "output_tokens": steps}
    base = ask(model, ad_hoc(bandwidth, 2000), form, **request)
    double = ask(model, ad_hoc(2 * bandwidth, 2000), form, **request)
    for found in (base, double):
        assert found.decode.arithmetic_intensity < found.decode.ridge_point
    assert double.decode.tokens_per_s.ideal == 2 * base.decode.tokens_per_s.ideal
    assert double.decode.time_s.ideal == base.decode.time_s.ideal / 2


@given(model=models, form=formats, bandwidth=st.integers(10, 8000), cached=st.integers(1000, 100_000))
def test_a_large_batch_reads_the_cache_at_the_bandwidth(
    model: str, form: tuple[str, str], bandwidth: int, cached: int
) -> None:
    # Weights are shared and compute is no limit: the aggregate rate nears bandwidth / (cache bytes of a sequence).
    hardware = ad_hoc(bandwidth, 10**9)
    single = step(model, hardware, form, cached=cached).decode
    own = sum(row.read_bytes for row in single.operators if attends(row))
    shared = single.read_bytes - own
    rates = [
        step(model, hardware, form, cached=cached, batch=batch).decode.aggregate_tokens_per_s.ideal
        for batch in (1, 10, 100, 10_000, 1_000_000)
    ]
    limit = bandwidth * 1e9 / own
    assert rates == sorted(rates)
    assert rates[-1] < limit
    assert rates[-1] == pytest.approx(limit, rel=1.01 * shared / own / 1e6 + 1e-12)


# -------------------------------------------------------------------------------------------------- experts and windows


@given(count=st.integers(1, 600), share=st.floats(0, 1), tokens=st.integers(1, 5000), skew=st.floats(0, 1))
def test_experts_touched_lie_between_the_active_ones_and_all(
    count: int, share: float, tokens: int, skew: float
) -> None:
    active = max(1, round(count * share))
    touched = experts.expected_distinct(count, active, tokens, skew)
    assert at_most(active, touched)
    assert at_most(touched, min(count, active * tokens))
    assert at_most(touched, experts.expected_distinct(count, active, tokens + 1, skew))
    assert at_most(touched, experts.expected_distinct(count, active, tokens))
    assert experts.expected_distinct(count, active, 1, skew) == pytest.approx(active, rel=1e-9)
    assert experts.expected_distinct(count, active, 10**9) == pytest.approx(count, rel=1e-6)


@given(form=formats, hardware=machines, batch=batches, cached=lengths)
def test_more_even_routing_is_never_faster(form: tuple[str, str], hardware: str, batch: int, cached: int) -> None:
    def seconds(skew: float | None) -> float:
        options = rl.Options(routing_skew=skew)
        return step("qwen3-30b-a3b", hardware, form, cached=cached, batch=batch, options=options).tpot_s.expected

    times = [seconds(skew) for skew in (1.0, 0.6, experts.MEASURED_SKEW, 0.2, 0.0)]
    assert all(map(at_most, times, times[1:]))
    assert seconds(None) == times[2]


@given(new=st.integers(0, 300), cached=st.integers(0, 300), window=st.one_of(st.none(), st.integers(2, 200)))
def test_pairs_are_those_that_a_mask_leaves(new: int, cached: int, window: int | None) -> None:
    rows = np.arange(cached, cached + new)[:, None]
    columns = np.arange(cached + new)[None, :]
    visible = columns <= rows
    if window is not None:
        visible &= rows - columns < window
    assert attention.causal_pairs(new, cached, window) == visible.sum()


@given(
    passes=st.integers(0, 60),
    new=st.integers(1, 50),
    cached=st.integers(0, 200),
    window=st.one_of(st.none(), st.integers(2, 200)),
)
def test_a_run_of_passes_reads_what_its_passes_read(passes: int, new: int, cached: int, window: int | None) -> None:
    loop = sum(attention.cached_tokens_read(cached + i * new, window) for i in range(passes))
    assert attention.cached_tokens_read_in_run(passes, new, cached, window) == loop


@given(new=st.integers(0, 300), cached=st.integers(0, 300), chunk=st.integers(2, 200))
def test_pairs_within_chunks_are_those_that_a_mask_leaves(new: int, cached: int, chunk: int) -> None:
    rows = np.arange(cached, cached + new)[:, None]
    columns = np.arange(cached + new)[None, :]
    visible = (columns <= rows) & (columns // chunk == rows // chunk)
    assert attention.chunked_pairs(new, cached, chunk) == visible.sum()


@given(passes=st.integers(0, 60), new=st.integers(1, 300), cached=st.integers(0, 1000), chunk=st.integers(2, 200))
def test_a_run_within_chunks_reads_what_its_passes_read(passes: int, new: int, cached: int, chunk: int) -> None:
    loop = sum((cached + i * new) % chunk for i in range(passes))
    assert attention.chunk_tokens_read_in_run(passes, new, cached, chunk) == loop
    arrays = attention.chunk_tokens_read_in_run(
        np.array([passes, 0, 7.0]), np.array([new, new, 1.0]), np.array([cached, cached, 5.0]), chunk
    )
    assert arrays.tolist() == [loop, 0, sum((5 + i) % chunk for i in range(7))]


@given(new=st.integers(1, 64), cached=st.integers(0, 10**6), window=st.integers(2, 5000))
def test_a_window_saturates(new: int, cached: int, window: int) -> None:
    deep = cached + window
    assert attention.causal_pairs(new, deep, window) == new * window
    assert attention.cached_tokens_read(deep, window) == attention.cached_tokens_read(10**9, window) <= window


def test_decode_of_a_model_with_windows_only_does_not_slow_down_beyond_them() -> None:
    # Mistral 7B v0.1 keeps 4,096 tokens in every layer.
    found = [step("mistral-7b-v0.1", ad_hoc(1000, 100), cached=cached) for cached in (0, 2000, 4096, 8000, 32_000)]
    read = [one.decode.read_bytes for one in found]
    assert read[0] < read[1] < read[2] == read[3] == read[4]
    assert found[2].tpot_s == found[3].tpot_s == found[4].tpot_s
    assert found[3].memory.kv_occupied_bytes == found[4].memory.kv_occupied_bytes == 4096 * 131_072


# ------------------------------------------------------------------------------------------------------------- monotony


def never_worse(better: Any, worse: Any) -> None:
    """No time of one answer is longer than that of another, and no rate lower."""
    for end in ENDS:
        for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
            assert at_most(getattr(getattr(better, name), end), getattr(getattr(worse, name), end)), (name, end)
        for phase in ("prefill", "decode"):
            for name in ("tokens_per_s", "aggregate_tokens_per_s"):
                rates = [getattr(getattr(getattr(answer, phase), name), end) for answer in (worse, better)]
                assert at_most(*rates), (phase, name, end)


@cache
def every_model() -> tuple[str, ...]:
    return tuple(entry.id for entry in catalog.list_models())


@cache
def every_device() -> tuple[str, ...]:
    return tuple(entry.id for entry in catalog.list_hardware())


@settings(max_examples=80)
@given(
    data=st.data(),
    form=formats,
    bandwidth=st.integers(10, 8000),
    compute=st.integers(1, 3000),
    memory=st.integers(4, 400),
    factor=st.floats(1, 20),
    batch=batches,
    prompt=lengths,
    cached=lengths,
    output=st.integers(0, 300),
)
def test_better_hardware_is_never_worse(
    data: Any,
    form: tuple[str, str],
    bandwidth: int,
    compute: int,
    memory: int,
    factor: float,
    batch: int,
    prompt: int,
    cached: int,
    output: int,
) -> None:
    model = data.draw(st.sampled_from(every_model()))
    request = {"prompt_tokens": prompt, "context_tokens": cached, "output_tokens": output, "batch": batch}
    if form[1] == "vllm":
        memory += 70  # below 70 GiB its defaults are other ones: smaller chunks and buffers
    base = ask(model, ad_hoc(bandwidth, compute, memory), form, **request)
    for better in (
        ad_hoc(bandwidth * factor, compute, memory),
        ad_hoc(bandwidth, compute * factor, memory),
        ad_hoc(bandwidth, compute, memory * factor),
    ):
        found = ask(model, better, form, **request)
        never_worse(found, base)
        assert found.memory.total_bytes == base.memory.total_bytes
        assert found.memory.fits >= base.memory.fits
        assert found.memory.max_context_tokens >= base.memory.max_context_tokens
        assert found.memory.max_batch >= base.memory.max_batch


@settings(max_examples=80)
@given(
    model=models,
    form=formats,
    hardware=machines,
    batch=batches,
    prompt=st.integers(1, 20_000),
    cached=lengths,
    more=st.integers(1, 20_000),
    chunk=st.sampled_from([None, 64, 512, 5000]),
)
def test_longer_is_never_faster(
    model: str,
    form: tuple[str, str],
    hardware: str,
    batch: int,
    prompt: int,
    cached: int,
    more: int,
    chunk: int | None,
) -> None:
    shared = {"output_tokens": 16, "batch": batch, "prefill_chunk": chunk}
    base = ask(model, hardware, form, prompt_tokens=prompt, context_tokens=cached, **shared)
    deeper = ask(model, hardware, form, prompt_tokens=prompt, context_tokens=cached + more, **shared)
    never_worse(base, deeper)
    longer = ask(model, hardware, form, prompt_tokens=prompt + more, context_tokens=cached, **shared)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        for end in ENDS:
            assert at_most(getattr(getattr(base, name), end), getattr(getattr(longer, name), end)), (name, end)
    for found in (deeper, longer):
        for name in ("kv_allocated_bytes", "kv_occupied_bytes", "total_bytes"):
            assert getattr(found.memory, name) >= getattr(base.memory, name)
    assert base.prefill.flops < longer.prefill.flops
    assert base.prefill.flops <= deeper.prefill.flops


@settings(max_examples=80)
@given(
    model=models,
    form=formats,
    hardware=machines,
    cached=lengths,
    batch=st.integers(1, 600),
    more=st.integers(1, 600),
    prompt=st.integers(1, 3000),
)
def test_a_larger_batch_serves_more_in_all_and_no_one_faster(
    model: str, form: tuple[str, str], hardware: str, cached: int, batch: int, more: int, prompt: int
) -> None:
    request = {"prompt_tokens": prompt, "context_tokens": cached, "output_tokens": 16}
    small = ask(model, hardware, form, batch=batch, **request)
    large = ask(model, hardware, form, batch=batch + more, **request)
    for phase in ("prefill", "decode"):
        # All prompts share a chunk, so that what is expected of prefill depends on what fills the last one.
        # The interval of a batch is wider than that of one sequence.
        for end in ("ideal", "expected") if phase == "decode" else ("ideal",):
            rates = [getattr(getattr(found, phase).aggregate_tokens_per_s, end) for found in (small, large)]
            assert at_most(*rates), (phase, end)
            rates = [getattr(getattr(found, phase).tokens_per_s, end) for found in (large, small)]
            assert at_most(*rates), (phase, end)
        assert getattr(small, phase).aggregate_tokens_per_s.ideal == pytest.approx(
            batch * getattr(small, phase).tokens_per_s.ideal, rel=1e-12
        )
    for name in ("kv_allocated_bytes", "kv_occupied_bytes", "total_bytes"):
        assert getattr(large.memory, name) > getattr(small.memory, name)


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_a_larger_batch_over_several_devices_serves_more(model: str, count: int) -> None:
    hardware = f"{count}x {ad_hoc(1000, 100)}"
    found = [ask(model, hardware, prompt_tokens=300, output_tokens=9, batch=batch) for batch in (1, 2, 3, 8, 64)]
    for phase in ("prefill", "decode"):
        for end in ("ideal", "expected") if phase == "decode" else ("ideal",):  # as above
            rates = [getattr(getattr(one, phase).aggregate_tokens_per_s, end) for one in found]
            assert all(map(at_most, rates, rates[1:])), (phase, end)


@given(model=models, form=formats, hardware=machines, prompt=st.integers(1, 5000), cached=lengths, batch=batches)
def test_less_overlap_is_never_faster(
    model: str, form: tuple[str, str], hardware: str, prompt: int, cached: int, batch: int
) -> None:
    request = {"prompt_tokens": prompt, "context_tokens": cached, "output_tokens": 50, "batch": batch}
    found = [
        ask(model, hardware, form, **request, options=rl.Options(overlap=overlap))
        for overlap in ("phase", "operator", "none")
    ]
    for phase in ("prefill", "decode"):
        times = [getattr(one, phase).time_s for one in found]
        assert times[0].ideal == times[1].ideal == times[2].ideal
        expected = [time.expected for time in times]
        assert all(map(at_most, expected, expected[1:]))


@settings(max_examples=100)
@given(data=st.data(), prompt=st.one_of(st.integers(1, 64), st.integers(1, 9000)), cached=lengths)
def test_no_operator_is_expected_to_beat_its_own_roofline(data: Any, prompt: int, cached: int) -> None:
    # Of a single pass the ideal and the expectation do the same work: no row takes less than its FLOPs at the peak of
    # its path, at the highest clock, or than its bytes at the printed bandwidth.
    model = data.draw(st.sampled_from(MODELS))
    name, weights, engine = data.draw(st.sampled_from([(ad_hoc(500, 50), *FORMATS[0]), *answering()]))
    device = rl.hardware(name)
    request = {"prompt_tokens": prompt, "context_tokens": cached, "prefill_chunk": prompt}
    found = ask(model, name, (weights, engine), **request, output_tokens=2)
    for phase in (found.prefill, found.decode):
        for row in phase.operators:
            assert at_most(row.read_bytes / device.memory_bandwidth_bytes_per_s, row.time_s), row.name
            if row.flops:
                peak = device.peak(row.compute_path) * device.clock_headroom
                assert at_most(row.flops / peak, row.time_s), (row.name, row.compute_path)


@pytest.mark.parametrize(
    ("hardware", "form"),
    [
        (ad_hoc(500, 50), FORMATS[0]),
        (ad_hoc(500, 50), FORMATS[2]),
        ("rtx-4090", FORMATS[0]),
        ("rtx-4090", FORMATS[2]),
        ("h100-sxm", FORMATS[3]),
        ("m3-max-40c", FORMATS[0]),
        ("nvidia-tesla-m40-24gb", FORMATS[0]),
        ("nvidia-tesla-p100-pcie-16gb", FORMATS[0]),
        ("amd-epyc-9654", FORMATS[0]),
    ],
)
def test_no_prefill_is_expected_at_the_peak(hardware: str, form: tuple[str, str]) -> None:
    # Measured products of large matrices reach 50 to 90 % of the dense peak.
    prefill = ask("llama-3.1-8b", hardware, form, prompt_tokens=4096).prefill
    assert prefill.arithmetic_intensity > prefill.ridge_point
    assert prefill.time_s.expected > 1.05 * prefill.time_s.ideal


# ----------------------------------------------------------------------------------------------- any request whatsoever


@cache
def answering() -> tuple[tuple[str, str, str], ...]:
    """Devices with a format and an engine that run on them."""
    found = []
    for device in every_device():
        for weights, engine in (*FORMATS, ("IQ2_XXS", "llama.cpp"), ("F16", "llama.cpp"), ("awq", "vllm")):
            try:
                ask("llama-3.1-8b", device, (weights, engine))
            except (rl.MissingSpec, rl.InvalidRequest):
                continue
            found.append((device, weights, engine))
    return tuple(found)


def test_most_devices_run_most_formats() -> None:
    # Else the draws below would test little.
    assert len(every_device()) > 150
    assert len(every_model()) > 100
    assert len({device for device, _, _ in answering()}) > 0.9 * len(every_device())
    assert len(answering()) > 4 * len(every_device())


@st.composite
def requests(draw: Any) -> dict[str, Any]:
    prompt = draw(lengths)
    return {
        "prompt_tokens": prompt,
        "cached_tokens": draw(st.integers(0, prompt)),
        "context_tokens": draw(lengths),
        "output_tokens": draw(st.one_of(st.integers(0, 3), st.integers(0, 20_000))),
        "batch": draw(st.one_of(st.just(1), st.integers(1, 3000))),
        "prefill_chunk": draw(st.one_of(st.none(), st.integers(1, 4096))),
        "queue_s": draw(st.sampled_from([0.0, 1.5])),
        "options": rl.Options(
            first_token=draw(st.sampled_from(["prefill", "extra_step"])),
            overlap=draw(st.sampled_from(["operator", "phase", "none"])),
            routing_skew=draw(st.sampled_from([None, 0.5, 1.0])),
            kv_unified=draw(st.sampled_from([None, True, False])),
            swa_full=draw(st.booleans()),
        ),
    }


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value of nested dictionaries and lists, with its path."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}[{number}]")
    else:
        yield path, value


def check_any_answer(found: Any) -> None:
    """What holds of every answer."""
    for rate in (
        found.prefill.tokens_per_s,
        found.prefill.aggregate_tokens_per_s,
        found.decode.tokens_per_s,
        found.decode.aggregate_tokens_per_s,
    ):
        assert rate.unit == "tokens/s"
        assert 0 <= rate.low <= rate.expected <= rate.high <= rate.ideal
    for time in (
        found.prefill.time_s, found.decode.time_s, found.ttft_s, found.tpot_s, found.itl_s, found.e2e_s
    ):  # fmt: skip
        assert time.unit == "s"
        assert 0 <= time.ideal <= time.low <= time.expected <= time.high
    assert found.tpot_s.ideal > 0
    assert found.decode.tokens_per_s.low > 0
    # Numbers are numbers, and none is below 0.
    plain = found.to_dict()
    assert json.loads(found.to_json()) == plain
    for path, value in leaves(plain):
        assert isinstance(value, str | bool | int | float | None), path
        if isinstance(value, int | float):
            assert math.isfinite(value), path
            assert value >= 0, path
    # Whole numbers stay whole.
    for phase in (found.prefill, found.decode):
        assert type(phase.flops) is int
        assert type(phase.read_bytes) is int
    memory = found.memory
    for name in ("resident_weight_bytes", "kv_allocated_bytes", "kv_occupied_bytes", "state_bytes", "workspace_bytes"):
        assert type(getattr(memory, name)) is int, name
    # Parts add up to wholes.
    assert memory.total_bytes == (
        memory.resident_weight_bytes + memory.kv_allocated_bytes + memory.state_bytes + memory.workspace_bytes
    )
    assert sum(part.bytes for part in memory.placement) == memory.total_bytes
    assert sum(part.weight_bytes for part in memory.placement) == memory.resident_weight_bytes
    assert sum(memory.kv_by_kind.values()) == memory.kv_allocated_bytes
    assert set(memory.kv_by_kind) == {"full", "sliding", "latent", "indexer"}
    assert memory.kv_occupied_bytes <= memory.kv_allocated_bytes
    assert (memory.fits is None) == (memory.usable_bytes is None)
    for phase in (found.prefill, found.decode):
        for name in ("flops", "read_bytes"):
            assert sum(getattr(row, name) for row in phase.operators) == getattr(phase, name)
        assert phase.bound in ("memory", "compute", "link", "overhead")
        if phase.read_bytes:
            assert phase.arithmetic_intensity == phase.flops / phase.read_bytes
        for row in phase.operators:
            assert 0 <= row.percent_of_ideal <= 100


@settings(max_examples=300)
@given(data=st.data(), request=requests(), count=st.sampled_from([1, 1, 1, 2, 3, 4]))
def test_any_request_to_any_model_on_any_device(data: Any, request: dict[str, Any], count: int) -> None:
    model = data.draw(st.sampled_from(every_model()))
    device, weights, engine = data.draw(st.sampled_from(answering()))
    assume(count == 1 or engine == "llama.cpp")  # vLLM spreads by tensor parallelism, which is not there yet
    hardware = device if count == 1 else f"{count}x {device}"
    check_any_answer(ask(model, hardware, (weights, engine), **request))


@pytest.mark.parametrize("model", [MODELS[0], "gpt-oss-20b", "gemma-2-9b"])
@pytest.mark.parametrize("output", [0, 1, 2, 1000])
@pytest.mark.parametrize("prompt", [0, 1, 2, 1000])
@pytest.mark.parametrize("batch", [1, 7])
def test_the_smallest_requests(model: str, prompt: int, output: int, batch: int) -> None:
    check_any_answer(ask(model, "rtx-4090", prompt_tokens=prompt, output_tokens=output, batch=batch))


@settings(max_examples=60)
@given(request=requests(), model=models, count=st.sampled_from([1, 2]))
def test_the_rows_of_a_phase_add_up_to_its_expected_time(request: dict[str, Any], model: str, count: int) -> None:
    request["options"] = rl.Options()
    found = ask(model, f"{count}x rtx-3090", **request)
    # Decode below one step shows the next step: its rows are that step's, its time is 0.
    for phase, expected in (
        (found.prefill, found.prefill.time_s.expected),
        (found.decode, found.decode.time_s.expected or found.tpot_s.expected),
    ):
        if expected:
            assert sum(row.time_s for row in phase.operators) == pytest.approx(expected, rel=1e-9)
            assert sum(row.share_of_expected for row in phase.operators) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_rows_add_up_where_nothing_overlaps(model: str) -> None:
    found = ask(model, "rtx-3090", prompt_tokens=700, options=rl.Options(overlap="none"))
    for phase in (found.prefill, found.decode):
        assert sum(row.time_s for row in phase.operators) == pytest.approx(phase.time_s.expected, rel=1e-9)


# --------------------------------------------------------------------------------------------------- arrays and numbers


def same(array: Any, number: Any, index: tuple[int, ...], shape: tuple[int, ...], path: str) -> None:
    """An answer of arrays holds, at an index, what the answer to that element's numbers holds."""
    if isinstance(number, dict):
        assert set(array) == set(number), path
        for name, item in number.items():
            if name not in ("assumptions", "warnings"):
                same(array[name], item, index, shape, f"{path}.{name}")
    elif isinstance(number, list):
        assert len(array) == len(number), path
        for place, item in enumerate(number):
            same(array[place], item, index, shape, f"{path}[{place}]")
    else:
        element = np.broadcast_to(np.asarray(array, dtype=object), shape)[index]
        if isinstance(number, str | bool | None):
            assert element == number, path
        else:
            assert element == pytest.approx(number, rel=1e-12, abs=0), path


def rows(found: Any) -> list[dict[str, Any]]:
    """Rows of both phases; the path that a row takes is one for all elements."""
    kept = [row.to_dict() for phase in (found.prefill, found.decode) for row in phase.operators]
    return [{name: value for name, value in row.items() if name != "compute_path"} for row in kept]


def check_arrays(model: str, hardware: str, form: tuple[str, str], arrays: dict[str, Any], **fixed: Any) -> None:
    together = ask(model, hardware, form, **arrays, **fixed)
    shape = np.broadcast_shapes(*(np.shape(value) for value in arrays.values()))
    for index in np.ndindex(shape):
        element = {name: np.broadcast_to(value, shape)[index].item() for name, value in arrays.items()}
        single = ask(model, hardware, form, **element, **fixed)
        same(together.to_dict(), single.to_dict(), index, shape, str(element))
        for left, right in zip(rows(together), rows(single), strict=True):
            same(left, right, index, shape, f"{element} {right['name']}")


@settings(max_examples=25)
@given(
    data=st.data(), model=models, form=formats, machine=machines, real=st.booleans(), chunk=st.sampled_from([None, 77])
)
def test_arrays_hold_what_numbers_give(
    data: Any, model: str, form: tuple[str, str], machine: str, real: bool, chunk: int | None
) -> None:
    size = data.draw(st.integers(1, 4))

    def column(values: Any) -> Any:
        return np.array(data.draw(st.lists(values, min_size=size, max_size=size)))

    prompt = column(lengths)
    arrays = {
        "prompt_tokens": prompt,
        "cached_tokens": np.array([data.draw(st.integers(0, int(most))) for most in prompt]),
        "context_tokens": column(lengths),
        "output_tokens": column(st.one_of(st.integers(0, 3), st.integers(0, 2000))),
        "batch": column(batches),
        "queue_s": column(st.sampled_from([0.0, 0.25])),
    }
    first_token = data.draw(st.sampled_from(["prefill", "extra_step"]))
    fixed = {"prefill_chunk": chunk, "options": rl.Options(first_token=first_token)}
    check_arrays(model, "rtx-4090" if real else machine, form, arrays, **fixed)


@pytest.mark.parametrize("hardware", ["rtx-4090", "3x rtx-3090"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_arrays_broadcast_with_each_other_and_with_numbers(model: str, hardware: str) -> None:
    arrays = {
        "prompt_tokens": np.array([0, 1, 500]),
        "batch": np.array([[1], [2]]),
        "output_tokens": np.array([[[0]], [[1]], [[40]]]),
    }
    check_arrays(model, hardware, FORMATS[0], arrays, context_tokens=1000, context_limit=4096)


def test_a_configured_context_may_be_an_array() -> None:
    arrays = {"context_limit": np.array([700, 4096, 131_072]), "batch": np.array([[1], [5]])}
    check_arrays("gpt-oss-20b", "rtx-4090", FORMATS[0], arrays)
    check_arrays("gpt-oss-20b", "rtx-4090", FORMATS[2], arrays)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_any_sequence_is_an_array(kind: Any) -> None:
    found = ask("llama-3.1-8b", "rtx-4090", prompt_tokens=kind([100, 200]))
    assert found.prefill.time_s.ideal.shape == (2,)


@pytest.mark.parametrize("number", [np.int64(300), np.float64(300.0), np.array(300)])
def test_a_single_numpy_number_is_a_number(number: Any) -> None:
    found = ask("llama-3.1-8b", "rtx-4090", prompt_tokens=number)
    assert found.to_dict() == ask("llama-3.1-8b", "rtx-4090", prompt_tokens=300).to_dict()
    assert type(found.prefill.flops) is int


# ---------------------------------------------------------------------------------------------------- overridden values


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("hardware.memory.bandwidth_gb_s", [100, 1008, 5000]),
        ("hardware.peaks.2.tflops", [10, 100, 300]),
        ("hardware.cache.last_level_mib", [1, 72, 20_000]),
        ("hardware.clock.max_mhz", [2520, 2600, 5040]),
        ("hardware.memory.usable_gib", [2, 10, 23]),
        ("hardware.memory.capacity_gib", [24, 48, 96]),
        ("hardware.power.tdp_w", [100, 450, 1000]),
        ("model.max_context_tokens", [2048, 4096]),
    ],
)
@pytest.mark.parametrize(("model", "weights"), [("llama-3.1-8b", "hf:bf16"), ("gpt-oss-20b", "hf:mxfp4")])
def test_an_array_of_overrides_holds_what_each_override_gives(
    model: str, weights: str, path: str, values: list[float]
) -> None:
    form = (weights, "vllm")
    request = {"prompt_tokens": 700, "output_tokens": 100, "batch": 3}
    together = ask(model, "rtx-4090", form, **request, overrides={path: np.array(values)})
    differ = set()
    for index, value in enumerate(values):
        single = ask(model, "rtx-4090", form, **request, overrides={path: value})
        differ.add(json.dumps({**single.to_dict(), "assumptions": []}))
        same(together.to_dict(), single.to_dict(), (index,), (len(values),), f"{path}={value}")
    assert len(differ) > 1  # else there was nothing to tell apart


def test_an_override_is_the_value_itself() -> None:
    found = ask("llama-3.1-8b", "rtx-4090", overrides={"hardware.memory.bandwidth_gb_s": 1100})
    base = ask("llama-3.1-8b", "rtx-4090")
    # 72 MiB of cache are credited once a step.
    read, spared = base.decode.read_bytes, 127 * 72 * 2**20
    assert base.decode.time_s.ideal == pytest.approx((read - spared) / 1008e9, rel=1e-12)
    assert found.decode.time_s.ideal == pytest.approx((read - spared) / 1100e9, rel=1e-12)
    assert found.decode.read_bytes == read


def test_an_array_of_overrides_meets_an_array_of_contexts() -> None:
    bandwidth, context = np.array([[500.0], [1000.0]]), np.array([0, 1000, 50_000])
    found = ask(
        "llama-3.1-8b",
        "rtx-4090",
        context_tokens=context,
        overrides={"hardware.memory.bandwidth_gb_s": bandwidth},
    )
    assert found.decode.time_s.expected.shape == (2, 3)
    for row, gb_s in enumerate((500.0, 1000.0)):
        for column, cached in enumerate((0, 1000, 50_000)):
            single = ask(
                "llama-3.1-8b",
                "rtx-4090",
                context_tokens=cached,
                overrides={"hardware.memory.bandwidth_gb_s": gb_s},
            )
            same(found.to_dict(), single.to_dict(), (row, column), (2, 3), f"{gb_s} {cached}")


@pytest.mark.parametrize(
    "path", ["hardware", "memory.bandwidth_gb_s", "hardware.memory.speed", "model.layers.9.repeat", ""]
)
def test_an_override_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(rl.RooflineError):
        ask("llama-3.1-8b", "rtx-4090", overrides={path: 1})


# ------------------------------------------------------------------------------------------------- runs and their steps


@settings(max_examples=60)
@given(
    model=models,
    form=formats,
    hardware=machines,
    cached=st.one_of(st.integers(0, 300), st.integers(900, 1100), st.integers(4000, 4200), st.integers(0, 60_000)),
    tokens=st.integers(2, 80),
    batch=batches,
    prompt=st.sampled_from([0, 1, 5]),
)
def test_decode_is_the_sum_of_its_steps(
    model: str, form: tuple[str, str], hardware: str, cached: int, tokens: int, batch: int, prompt: int
) -> None:
    whole = ask(
        model, hardware, form, prompt_tokens=prompt, context_tokens=cached, output_tokens=tokens, batch=batch
    ).decode
    count = tokens - 1 if prompt else tokens
    steps = [step(model, hardware, form, cached=cached + prompt + i, batch=batch).decode for i in range(count)]
    assert whole.flops == sum(one.flops for one in steps)
    assert whole.read_bytes == sum(one.read_bytes for one in steps)
    expected = math.fsum(one.time_s.expected for one in steps)
    assert whole.time_s.expected == pytest.approx(expected, rel=1e-9)
    # One maximum over the whole phase is a bound on the sum of maxima, and the same while one resource limits all.
    ideal = math.fsum(one.time_s.ideal for one in steps)
    assert at_most(whole.time_s.ideal, ideal)
    if len({one.arithmetic_intensity > one.ridge_point for one in steps}) == 1:
        assert whole.time_s.ideal == pytest.approx(ideal, rel=1e-9)
    assert whole.tokens_per_s.expected == pytest.approx(count / whole.time_s.expected, rel=1e-12)


@settings(max_examples=80)
@given(
    model=models,
    form=formats,
    hardware=machines,
    cached=st.one_of(st.just(0), st.integers(1, 300), st.integers(1, 5000)),
    prompt=st.one_of(st.integers(150, 600), st.integers(600, 3000)),
    chunk=st.one_of(st.integers(60, 149), st.integers(150, 1500)),
)
def test_chunked_prefill_is_the_sum_of_its_chunks(
    model: str, form: tuple[str, str], hardware: str, cached: int, prompt: int, chunk: int
) -> None:
    request = {"output_tokens": 0, "prefill_chunk": chunk}
    whole = ask(model, hardware, form, prompt_tokens=prompt, context_tokens=cached, **request).prefill
    flops = read = 0
    expected = ideal = 0.0
    for start in range(0, prompt, chunk):
        new = min(chunk, prompt - start)
        part = ask(model, hardware, form, prompt_tokens=new, context_tokens=cached + start, **request).prefill
        # Only the last chunk computes logits.
        head = next(row for row in part.operators if row.name == "head")
        last = start + new == prompt
        flops += part.flops - (0 if last else head.flops)
        read += part.read_bytes - (0 if last else head.read_bytes)
        expected += part.time_s.expected - (0 if last else head.time_s)
        ideal += part.time_s.ideal
    assert whole.flops == flops
    assert whole.read_bytes == read
    assert whole.time_s.expected == pytest.approx(expected, rel=1e-9)
    assert at_most(whole.time_s.ideal, ideal)


@given(
    model=models,
    form=formats,
    batch=st.integers(1, 600),
    prompt=st.integers(1, 2000),
    chunk=st.integers(16, 2048),
)
def test_a_batch_reads_weights_no_more_often_than_its_tokens_fill_chunks(
    model: str, form: tuple[str, str], batch: int, prompt: int, chunk: int
) -> None:
    # Engines fill a chunk with tokens of whatever prompts are waiting, so B prompts of S tokens need ceil(B S / chunk)
    # passes; an ideal that counts more of them is no bound.
    request = {"prompt_tokens": prompt, "output_tokens": 0, "batch": batch}
    whole = ask(model, ad_hoc(500, 50), form, **request, prefill_chunk=10**9).prefill
    chunked = ask(model, ad_hoc(500, 50), form, **request, prefill_chunk=chunk).prefill
    assert chunked.flops == whole.flops
    passes = -(-batch * prompt // chunk)
    for one, many in zip(whole.operators, chunked.operators, strict=True):
        if not attends(one):
            assert many.read_bytes <= (1 if one.name == "head" else passes) * one.read_bytes, one.name


@given(
    model=models,
    form=formats,
    hardware=machines,
    batch=st.integers(2, 700),
    prompt=st.integers(1, 2000),
    chunk=st.sampled_from([None, 128, 512, 2048]),
)
def test_a_batch_of_prompts_is_no_slower_than_one_after_the_other(
    model: str, form: tuple[str, str], hardware: str, batch: int, prompt: int, chunk: int | None
) -> None:
    # An engine may always prefill them in turn; so a batch must not be said to need longer, least of all at best.
    request = {"prompt_tokens": prompt, "output_tokens": 0, "prefill_chunk": chunk}
    single = ask(model, hardware, form, **request).prefill.time_s
    together = ask(model, hardware, form, **request, batch=batch).prefill.time_s
    assert at_most(together.ideal, batch * single.ideal)
    assert at_most(together.expected, batch * single.expected)


@given(model=models, form=formats, hardware=machines, prompt=st.integers(1, 5000), batch=batches)
def test_without_a_chunk_the_ideal_is_one_pass_and_the_expectation_the_engines_chunks(
    model: str, form: tuple[str, str], hardware: str, prompt: int, batch: int
) -> None:
    default = {"llama.cpp": 512, "vllm": 8192}[form[1]]
    request = {"prompt_tokens": prompt, "batch": batch}
    free = ask(model, hardware, form, **request).prefill
    one_pass = ask(model, hardware, form, **request, prefill_chunk=10**9).prefill
    chunked = ask(model, hardware, form, **request, prefill_chunk=default).prefill
    assert free.read_bytes == one_pass.read_bytes
    assert free.time_s.ideal == one_pass.time_s.ideal
    assert free.time_s.expected == pytest.approx(chunked.time_s.expected, rel=1e-12)
    by_option = ask(model, hardware, form, **request, options=rl.Options(ubatch=default)).prefill
    assert by_option.time_s == chunked.time_s


@given(
    model=models, form=formats, hardware=machines, prompt=st.integers(1, 5000), depth=lengths, batch=st.integers(1, 8)
)
def test_a_cached_prefix(model: str, form: tuple[str, str], hardware: str, prompt: int, depth: int, batch: int) -> None:
    request = {"prompt_tokens": prompt, "context_tokens": depth, "output_tokens": 9, "batch": batch}
    plain = ask(model, hardware, form, **request)
    found = [
        ask(model, hardware, form, **request, cached_tokens=hit)
        for hit in sorted({0, 1, prompt // 3, prompt // 2, prompt - 1, prompt})
    ]
    assert found[0].prefill.to_dict() == plain.prefill.to_dict()
    assert found[0].ttft_s == plain.ttft_s
    bandwidth = rl.hardware(hardware).memory_bandwidth_bytes_per_s
    for earlier, later in pairwise(found):
        assert later.prefill.flops <= earlier.prefill.flops
        assert at_most(later.ttft_s.expected, earlier.ttft_s.expected)
        assert at_most(later.ttft_s.high, earlier.ttft_s.high)
        # The ideal reads what is cached and writes nothing, so a prefill of few tokens, which memory limits, gains
        # nothing from a hit: it may lose the time in which the hit is read, and no more.
        reading = max(0, later.prefill.read_bytes - earlier.prefill.read_bytes) / bandwidth
        assert at_most(later.ttft_s.ideal, earlier.ttft_s.ideal + reading)
        if all(one.prefill.arithmetic_intensity > one.prefill.ridge_point for one in (earlier, later)):
            assert at_most(later.ttft_s.ideal, earlier.ttft_s.ideal)
    for one in found:
        # Decode and memory are those of the whole prompt.
        assert one.decode.to_dict() == plain.decode.to_dict()
        assert one.memory.to_dict() == plain.memory.to_dict()
    # Of a prompt that is cached whole the last token is computed all the same.
    last = ask(model, hardware, form, **request | {"prompt_tokens": 1, "context_tokens": depth + prompt - 1})
    assert found[-1].prefill.to_dict() == last.prefill.to_dict()
    assert found[-1].prefill.tokens_per_s.ideal == pytest.approx(1 / found[-1].prefill.time_s.ideal, rel=1e-12)


# --------------------------------------------------------------------------------------------------------------- memory


@settings(max_examples=80)
@given(
    data=st.data(),
    form=st.sampled_from([*FORMATS, ("Q4_K_M", "llama.cpp")]),
    memory=st.integers(2, 300),
    count=st.sampled_from([1, 1, 2, 3]),
    batch=st.sampled_from([1, 1, 2, 7, 64]),
    unified=st.sampled_from([None, True, False]),
    full=st.booleans(),
    chunk=st.sampled_from([None, 64, 2048]),
)
def test_the_longest_context_fits_and_a_block_more_does_not(
    data: Any,
    form: tuple[str, str],
    memory: int,
    count: int,
    batch: int,
    unified: bool | None,
    full: bool,
    chunk: int | None,
) -> None:
    assume(count == 1 or form[1] == "llama.cpp")
    model = data.draw(st.sampled_from(every_model()))
    hardware = f"{count}x {ad_hoc(500, 50, memory)}"
    block = {"llama.cpp": 256, "vllm": 16}[form[1]]
    shared = {
        "prompt_tokens": 1,
        "output_tokens": 0,
        "batch": batch,
        "prefill_chunk": chunk,
        "options": rl.Options(kv_unified=unified, swa_full=full),
    }

    def fits(limit: int) -> bool:
        return ask(model, hardware, form, **shared, context_limit=limit).memory.fits

    longest = ask(model, hardware, form, **shared).memory.max_context_tokens
    most = rl.model(model).max_context_tokens
    assert type(longest) is int
    assert 0 <= longest <= most
    if longest:
        assert fits(longest)
    if longest < most:
        assert longest % block == 0
        assert not fits(longest + block)
        assert not fits(longest + 1)


@settings(max_examples=80)
@given(
    data=st.data(),
    form=st.sampled_from(FORMATS),
    memory=st.integers(2, 300),
    count=st.sampled_from([1, 1, 2, 3]),
    limit=st.integers(200, 40_000),
    unified=st.sampled_from([None, True, False]),
)
def test_the_largest_batch_fits_and_one_more_does_not(
    data: Any, form: tuple[str, str], memory: int, count: int, limit: int, unified: bool | None
) -> None:
    assume(count == 1 or form[1] == "llama.cpp")
    model = data.draw(st.sampled_from(every_model()))
    shared = {
        "prompt_tokens": 1,
        "output_tokens": 0,
        "context_limit": limit,
        "options": rl.Options(kv_unified=unified),
    }
    hardware = f"{count}x {ad_hoc(500, 50, memory)}"
    largest = ask(model, hardware, form, **shared).memory.max_batch
    assert type(largest) is int
    if largest:
        assert ask(model, hardware, form, **shared, batch=largest).memory.fits
    assert not ask(model, hardware, form, **shared, batch=largest + 1).memory.fits


def test_a_batch_that_is_said_to_fit_may_be_asked_for() -> None:
    # However much memory there is, `max_batch` is a batch that `estimate` takes.
    hardware = "1024TiB,1TB/s,100TFLOP/s@fp16"
    largest = ask("qwen3-0.6b", hardware, prompt_tokens=1, output_tokens=0).memory.max_batch
    assert ask("qwen3-0.6b", hardware, prompt_tokens=1, output_tokens=0, batch=largest).memory.fits


@given(model=models, form=formats, machine=machines, batch=batches, prompt=lengths, output=st.integers(0, 2000))
def test_memory_is_that_of_the_weights_the_cache_and_the_workspace(
    model: str, form: tuple[str, str], machine: str, batch: int, prompt: int, output: int
) -> None:
    found = ask(model, machine, form, prompt_tokens=prompt, output_tokens=output, batch=batch).memory
    elsewhere = ask(model, "rtx-4090", form).memory
    assert found.resident_weight_bytes == elsewhere.resident_weight_bytes
    assert found.usable_bytes is not None
    assert found.fits == (found.total_bytes <= found.usable_bytes)
    one = ask(model, machine, form, prompt_tokens=prompt, output_tokens=output).memory
    assert found.kv_occupied_bytes == batch * one.kv_occupied_bytes
    # The cache is the same however the occupied tokens came there, and whatever ends them.
    other = ask(model, machine, form, prompt_tokens=0, context_tokens=prompt, output_tokens=output, batch=batch).memory
    assert other.kv_occupied_bytes == found.kv_occupied_bytes
    assert other.kv_allocated_bytes == found.kv_allocated_bytes


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "gemma-3-27b"])
def test_devices_hold_about_equal_shares_of_the_layers(model: str, count: int) -> None:
    memory = ask(model, f"{count}x {ad_hoc(500, 50)}", batch=3, prompt_tokens=5000).memory
    layers = [part.layers for part in memory.placement]
    assert len(layers) == count
    assert sum(layers) == len(rl.model(model).layers) + 1  # the head counts as one more
    assert max(layers) - min(layers) <= 1
    assert len({part.device for part in memory.placement}) == count


# ----------------------------------------------------------------------------------------- conventions of the interface


@given(model=models, form=formats, hardware=machines, cached=lengths, output=st.integers(1, 300), batch=batches)
def test_without_a_prompt_there_is_decode_only(
    model: str, form: tuple[str, str], hardware: str, cached: int, output: int, batch: int
) -> None:
    found = ask(model, hardware, form, prompt_tokens=0, context_tokens=cached, output_tokens=output, batch=batch)
    assert ends(found.prefill.time_s) == [0, 0, 0, 0]
    assert ends(found.prefill.tokens_per_s) == [0, 0, 0, 0]
    assert (found.prefill.flops, found.prefill.read_bytes) == (0, 0)
    first = step(model, hardware, form, cached=cached, batch=batch)
    assert ends(found.ttft_s) == pytest.approx(ends(first.decode.time_s), rel=1e-12)
    assert ends(found.tpot_s) == pytest.approx([time / output for time in ends(found.decode.time_s)], rel=1e-12)
    assert found.e2e_s.ideal == pytest.approx(found.decode.time_s.ideal, rel=1e-9)
    assert found.e2e_s.expected == pytest.approx(found.decode.time_s.expected, rel=1e-9)
    assert found.decode.tokens_per_s.expected == pytest.approx(output / found.decode.time_s.expected, rel=1e-12)


@given(model=models, form=formats, hardware=machines, prompt=st.integers(1, 5000), cached=lengths, batch=batches)
def test_with_a_prompt_the_first_token_comes_out_of_prefill(
    model: str, form: tuple[str, str], hardware: str, prompt: int, cached: int, batch: int
) -> None:
    request = {"prompt_tokens": prompt, "context_tokens": cached, "batch": batch}
    none, one, two, many = (ask(model, hardware, form, **request, output_tokens=n) for n in (0, 1, 2, 40))
    following = step(model, hardware, form, cached=cached + prompt, batch=batch)
    for found in (none, one):
        assert ends(found.decode.time_s) == [0, 0, 0, 0]
        assert found.tpot_s == following.tpot_s
        assert found.decode.tokens_per_s == following.decode.tokens_per_s
        assert found.e2e_s == found.ttft_s == found.prefill.time_s
    assert two.decode.time_s == two.tpot_s == following.tpot_s
    assert many.ttft_s == one.ttft_s
    assert many.tpot_s.ideal >= two.tpot_s.ideal
    for found, steps in ((two, 1), (many, 39)):
        whole = [ttft + time for ttft, time in zip(ends(found.ttft_s), ends(found.decode.time_s), strict=True)]
        assert ends(found.e2e_s) == pytest.approx(whole, rel=1e-12)
        assert ends(found.decode.time_s) == pytest.approx([steps * time for time in ends(found.tpot_s)], rel=1e-12)
        assert found.itl_s == found.tpot_s
    occupied = [found.memory.kv_occupied_bytes for found in (none, one, two, many)]
    assert occupied == sorted(occupied)


@given(
    model=models,
    hardware=machines,
    prompt=st.integers(0, 3000),
    output=st.integers(0, 50),
    queue=st.floats(0, 100),
    tokenize=st.floats(0, 10),
    first_token=st.sampled_from(["prefill", "extra_step"]),
)
def test_waiting_is_added_to_the_first_token_and_to_the_whole(
    model: str, hardware: str, prompt: int, output: int, queue: float, tokenize: float, first_token: Any
) -> None:
    request = {"prompt_tokens": prompt, "output_tokens": output, "options": rl.Options(first_token=first_token)}
    plain = ask(model, hardware, **request)
    found = ask(model, hardware, **request, queue_s=queue, tokenize_s=tokenize)
    for name in ("ttft_s", "e2e_s"):
        expected = [time + queue + tokenize for time in ends(getattr(plain, name))]
        assert ends(getattr(found, name)) == pytest.approx(expected, rel=1e-12)
    assert found.tpot_s == plain.tpot_s
    assert found.prefill.to_dict() == plain.prefill.to_dict()
    assert found.decode.to_dict() == plain.decode.to_dict()


@given(model=models, form=formats, hardware=machines, prompt=st.integers(1, 3000), output=st.integers(1, 50))
def test_the_articles_first_token_costs_one_step_more(
    model: str, form: tuple[str, str], hardware: str, prompt: int, output: int
) -> None:
    request = {"prompt_tokens": prompt, "output_tokens": output}
    engines = ask(model, hardware, form, **request)
    article = ask(model, hardware, form, **request, options=rl.Options(first_token="extra_step"))
    first = step(model, hardware, form, cached=prompt)
    for one, other, added in zip(ends(article.ttft_s), ends(engines.ttft_s), ends(first.tpot_s), strict=True):
        assert one == pytest.approx(other + added, rel=1e-12)
    assert article.prefill.time_s == engines.prefill.time_s
    assert article.tpot_s == engines.tpot_s
    assert article.e2e_s.ideal == pytest.approx(engines.e2e_s.ideal + first.tpot_s.ideal, rel=1e-12)
    # Without a prompt there is nothing to add: the first token is the first step.
    alone = {"prompt_tokens": 0, "context_tokens": prompt, "output_tokens": output}
    extra = ask(model, hardware, form, **alone, options=rl.Options(first_token="extra_step"))
    assert extra.ttft_s == ask(model, hardware, form, **alone).ttft_s


@given(model=models, prompt=st.integers(0, 4000), output=st.integers(0, 100), batch=batches, watts=st.integers(1, 2000))
def test_energy_is_power_times_the_time_of_a_token(
    model: str, prompt: int, output: int, batch: int, watts: int
) -> None:
    found = ask(
        model,
        "rtx-4090",
        prompt_tokens=prompt,
        output_tokens=output,
        batch=batch,
        overrides={"hardware.power.tdp_w": watts},
    )
    share = ask(model, "rtx-4090", overrides={"hardware.power.tdp_w": 1000.0})
    share = share.energy_j_per_token.expected / share.tpot_s.expected / 1000
    assert 0.3 < share <= 1  # memory-bound decode does not draw the rated power
    for joules, seconds in zip(ends(found.energy_j_per_token), ends(found.tpot_s), strict=True):
        assert joules == pytest.approx(watts * share * seconds / batch, rel=1e-12)
    assert found.energy_j_per_token.unit == "J"
    assert ask(model, ad_hoc(100, 10)).energy_j_per_token is None


@pytest.mark.parametrize(
    "request_",
    [
        {"prompt_tokens": -1},
        {"output_tokens": -1},
        {"batch": 0},
        {"batch": [1, 0]},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": math.nan},
        {"prompt_tokens": math.inf},
        {"prompt_tokens": "many"},
        {"prompt_tokens": True},
        {"prompt_tokens": []},
        {"prompt_tokens": 10, "cached_tokens": 11},
        {"prompt_tokens": [10, 20], "cached_tokens": [10, 21]},
        {"prompt_tokens": 10, "output_tokens": 10, "context_tokens": 10, "context_limit": 29},
        {"context_limit": 0},
        {"prefill_chunk": 0},
        {"queue_s": -1.0},
        {"queue_s": math.nan},
        {"tokenize_s": math.inf},
        {"kv": "q3_0"},
        {"weights": "Q4_K_X"},
        {"options": rl.Options(routing_skew=1.5)},
        {"options": rl.Options(overlap="all")},  # type: ignore[arg-type]
        {"options": rl.Options(first_token="never")},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_impossible_requests_are_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(rl.RooflineError):
        rl.estimate("llama-3.1-8b", "rtx-4090", **request_)


def test_what_is_as_if_is_said() -> None:
    with pytest.warns(rl.RooflineWarning, match="does not fit"):
        found = ask("llama-3.1-70b", "rtx-4090")
    assert found.memory.fits is False
    assert any("does not fit" in text for text in found.warnings)
    with pytest.warns(rl.RooflineWarning, match="131,072"):
        found = ask("llama-3.1-8b", ad_hoc(1000, 100), prompt_tokens=131_072, output_tokens=1)
    assert found.memory.fits is True
    assert ask("llama-3.1-8b", ad_hoc(1000, 100), prompt_tokens=131_071, output_tokens=1).warnings == ()


def test_binary_gigabytes_of_a_printed_answer() -> None:
    found = ask("llama-3.1-8b", "rtx-4090")
    assert units.format_gib(found.memory.resident_weight_bytes) == "4.58 GiB"
