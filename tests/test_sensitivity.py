"""Sensitivity: elasticities are derivatives of estimates, swaps are estimates, and bounds obey the roofline."""

import json
import math
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import rooflinellm as rl
from rooflinellm.api.elasticity import STEP
from rooflinellm.api.ladder import ladder
from rooflinellm.api.sensitivity import Sensitivity
from rooflinellm.cli import main

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.RooflineWarning")

MODEL, CARD = "llama-3.1-8b", "rtx-4090"
AD_HOC = "24GiB,1000GB/s,100TFLOP/s@fp16,200TFLOP/s@int8"  # no cache, no links
HYBRID = "rtx-4090 + 7950x + ddr5-6000x2@96GiB"
ONE = rl.sensitivity(MODEL, CARD)
SPLIT = rl.sensitivity("llama-3.3-70b", HYBRID, with_swaps=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


# --- elasticities


def test_decode_of_a_dense_model_follows_bandwidth_and_a_long_prefill_compute() -> None:
    found = rl.sensitivity(MODEL, AD_HOC, prompt_tokens=4096, with_swaps=False)
    bandwidth, compute = found.of("memory bandwidth"), found.of("compute")
    assert bandwidth.decode_ideal == pytest.approx(1) and compute.decode_ideal == pytest.approx(0, abs=1e-9)
    assert bandwidth.prefill_ideal == pytest.approx(0, abs=1e-9) and compute.prefill_ideal == pytest.approx(1)
    assert 0.5 < float(bandwidth.decode_expected or 0) <= 1
    assert 0.5 < float(compute.prefill_expected or 0) <= 1
    decode, prefill = found.limiting("decode"), found.limiting("prefill")
    assert decode is bandwidth and prefill is compute


def test_the_bytes_of_a_memory_bound_step_are_weights_and_cache() -> None:
    # Without a cache beside the memory the ideal step time is (weights + KV) / bandwidth.
    found = rl.sensitivity(MODEL, AD_HOC, prompt_tokens=16_384, with_swaps=False)
    weights, cached = found.of("bits per weight").decode_ideal, found.of("bits per cached value").decode_ideal
    assert weights is not None and cached is not None
    assert weights + cached == pytest.approx(-1, abs=1e-4)
    steps = 127  # of 128 tokens the first comes out of prefill; the k-th step reads a cache of 16,384 + k
    read = found.estimate.decode.read_bytes / steps
    mean_kv = found.estimate.model.kv_bytes_per_token("f16") * (16_384 + (steps + 1) / 2)
    assert cached == pytest.approx(-mean_kv / read, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "hardware", "keywords"),
    [
        (MODEL, CARD, {}),
        (MODEL, "h100-sxm", {"weights": "fp8", "prompt_tokens": 200}),
        (MODEL, "m3-max-40c@64GiB", {"batch": 16}),
        (MODEL, "7950x@64GiB", {}),
        ("qwen3-30b-a3b", "2x rtx-3090", {"prompt_tokens": 4096, "batch": 8}),
        ("llama-3.3-70b", HYBRID, {}),
        ("llama-3.3-70b", "4x h100-sxm", {"weights": "fp8", "tensor_parallel": 4}),
        ("gpt-oss-120b", "rtx-3090 + 7950x + ddr5-6000x2@96GiB", {}),
    ],
)
def test_elasticities_to_all_rates_add_up_to_one_in_the_ideal(
    model: str, hardware: str, keywords: dict[str, Any]
) -> None:
    # Euler: times are homogeneous of degree -1 in the rates; latencies and launches make the expectation less than 1.
    found = rl.sensitivity(model, hardware, with_swaps=False, **keywords)
    for phase in ("prefill", "decode"):
        ideal, expected = found.rest(phase, "ideal"), found.rest(phase)
        assert ideal is not None and ideal == pytest.approx(0, abs=2e-4)
        assert expected is not None and -2e-3 <= expected < 1


def test_an_elasticity_is_the_slope_of_estimates_with_overrides() -> None:
    rates = [
        rl.estimate(MODEL, CARD, overrides={"hardware.memory.bandwidth_gb_s": 1008 * factor}).decode.tokens_per_s
        for factor in (1 - STEP, 1 + STEP)
    ]
    width = math.log((1 + STEP) / (1 - STEP))
    found = ONE.of("memory bandwidth")
    for kind in ("ideal", "expected"):
        slope = math.log(getattr(rates[1], kind) / getattr(rates[0], kind)) / width
        assert getattr(found, f"decode_{kind}") == pytest.approx(slope, rel=1e-9)


def test_twice_the_bandwidth_is_the_estimate_with_that_override() -> None:
    card = rl.hardware(CARD)
    scaled = rl.estimate(MODEL, card.scaled(bandwidth=2))
    typed = rl.estimate(MODEL, CARD, overrides={"hardware.memory.bandwidth_gb_s": 2016})
    assert scaled.decode.to_dict() == typed.decode.to_dict()
    assert scaled.prefill.to_dict() == typed.prefill.to_dict()
    faster = card.scaled(compute=2)
    assert faster.peaks == {key: 2 * rate for key, rate in card.peaks.items()}
    assert faster.memory == card.memory and card.peak("fp16.fp32") == rl.hardware(CARD).peak("fp16.fp32")


def test_layers_on_the_host_make_its_memory_count_most() -> None:
    limiting = SPLIT.limiting("decode")
    assert limiting is not None and limiting.resource == "host memory bandwidth"
    assert SPLIT.estimate.workload["gpu_layers"] is not None
    assert SPLIT.of("host compute").decode_ideal == pytest.approx(0, abs=1e-9)
    with pytest.raises(rl.InvalidRequest, match="host memory bandwidth"):
        ONE.of("host memory bandwidth")


def test_memory_buys_context_until_the_model_ends_it() -> None:
    assert ONE.of("memory capacity").context == 0  # all of 128k fits
    tight = rl.sensitivity("llama-3.3-70b", "2x rtx-3090", with_swaps=False)
    before = tight.estimate.memory.max_context_tokens
    slope = tight.of("memory capacity").context
    assert before < tight.estimate.model.max_context_tokens
    assert slope is not None and slope > 3  # most of the memory is weights, so the rest grows by much more


def test_a_phase_that_computes_nothing_has_no_elasticity() -> None:
    found = rl.sensitivity(MODEL, CARD, prompt_tokens=0, with_swaps=False)
    assert found.of("compute").prefill_ideal is None and found.rest("prefill") is None
    assert found.limiting("prefill") is None
    assert found.of("compute").decode_expected is not None


def test_overrides_hold_for_everything() -> None:
    typed = {"hardware.memory.bandwidth_gb_s": 500}
    found = rl.sensitivity(MODEL, CARD, overrides=typed, with_swaps=False)
    assert found.estimate.to_dict() == rl.estimate(MODEL, CARD, overrides=typed).to_dict()
    assert found.of("memory bandwidth").amount.startswith("500")


# --- swaps


def test_swaps_are_estimates() -> None:
    now = ONE.estimate
    for swap in ONE.swaps:
        again = rl.estimate(MODEL, **{"hardware": CARD, "weights": now.weights, **swap.keywords})
        assert again.to_dict() == swap.estimate.to_dict(), swap.change
        gain = swap.estimate.decode.tokens_per_s.expected / now.decode.tokens_per_s.expected
        assert swap.decode_gain == pytest.approx(gain)
    assert {swap.kind for swap in ONE.swaps} == {"device", "more devices", "weights", "kv"}
    assert rl.sensitivity(MODEL, CARD, with_swaps=False).swaps == ()


def test_the_swap_that_helps_decode_most_comes_first_and_better_devices_are_better() -> None:
    gains = [swap.decode_gain or 0 for swap in ONE.swaps]
    assert gains == sorted(gains, reverse=True)
    card = rl.hardware(CARD)
    devices = [swap.estimate.hardware.device for swap in ONE.swaps if swap.kind == "device"]
    assert devices and all(each.memory_bandwidth_bytes_per_s > card.memory_bandwidth_bytes_per_s for each in devices)
    assert all(each.kind == "gpu" and (each.memory_bytes or 0) >= (card.memory_bytes or 0) for each in devices)
    assert "nvidia-geforce-rtx-5090" in {each.id for each in devices}


def test_twice_the_devices_share_every_product_under_engines_that_work_so() -> None:
    found = rl.sensitivity("llama-3.3-70b", "h100-sxm", weights="fp8")
    (twice,) = [swap for swap in found.swaps if swap.kind == "more devices"]
    again = rl.estimate("llama-3.3-70b", "2x h100-sxm", weights="fp8", tensor_parallel=2)
    assert twice.estimate.decode.to_dict() == again.decode.to_dict()


def test_memory_can_be_swapped_where_it_comes_in_sizes_or_modules() -> None:
    mac = rl.sensitivity("llama-3.3-70b", "m3-max-40c@48GiB")
    (larger,) = [swap for swap in mac.swaps if swap.kind == "memory"]
    assert larger.estimate.hardware.id == "apple-m3-max-40c@64GiB"  # Apple sold the 40-core chip with 48, 64 and 128 GB
    pc = rl.sensitivity(MODEL, "7950x + ddr5-5200x2@32GiB")
    changed = {swap.estimate.hardware.id for swap in pc.swaps if swap.kind == "host memory"}
    assert {"amd-ryzen-9-7950x + ddr5-8000x2@32GiB", "amd-ryzen-9-7950x + ddr5-5200x2@64GiB"} == changed
    lacking = rl.sensitivity("llama-3.3-70b", CARD)
    (host,) = [swap for swap in lacking.swaps if swap.kind == "host memory"]
    assert lacking.estimate.memory.fits is False and host.estimate.memory.fits is True


def test_the_ladder_goes_down_in_bits_from_what_was_released() -> None:
    llama = ladder(rl.model(MODEL), ("gguf",))
    assert llama[0].weights == "gguf:bf16"
    bits = [step.bits_per_weight for step in llama]
    assert bits == sorted(bits, reverse=True) and len(set(bits)) == len(bits)
    # The experts of gpt-oss are MXFP4 in every GGUF, so that its formats differ by no more than 2 %.
    assert [step.weights for step in ladder(rl.model("gpt-oss-120b"), ("gguf",))] == ["gguf:mxfp4"]
    # DeepSeek V3 was released in FP8: BF16 would hold no more.
    assert ladder(rl.model("deepseek-v3"), ("gguf",))[0].weights == "gguf:q8_0"


# --- input, tables, command


@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"batch": [1, 2]}, "batch"),
        ({"overrides": {"hardware.memory.bandwidth_gb_s": [1, 2]}}, "overrides"),
        ({"overrides": 3}, "overrides"),
        ({"batch": 0}, "batch"),
    ],
)
def test_impossible_arguments_are_refused(keywords: dict[str, Any], where: str) -> None:
    with pytest.raises(rl.InvalidRequest) as caught:
        rl.sensitivity(MODEL, CARD, **keywords)
    assert caught.value.where == where


@pytest.mark.parametrize("of", [ONE, SPLIT])
@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_and_keep_the_answer(of: Sensitivity, width: int) -> None:
    texts = [table.to_text(width) for table in of.tables()]
    assert max(len(line) for text in texts for line in text.splitlines()) <= width
    assert "memory bandwidth" in texts[0] and "expected" in texts[0] and "ideal" in texts[0]
    assert "decode: " in texts[0].partition("10 %")[0]


def test_json_holds_what_the_library_says(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "sensitivity", MODEL, CARD, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert {key: content[key] for key in ONE.to_dict()} == json.loads(ONE.to_json())
    code, out, _ = run(capsys, "sensitivity", MODEL, CARD, "--no-swaps", "-p", "4k", "-f", "csv")
    assert (code, len(out.splitlines())) == (0, 1 + len(ONE.elasticities))
    assert list(ONE.to_dataframe()["resource"]) == [each.resource for each in ONE.elasticities]


@pytest.mark.parametrize(
    ("typed", "said"),
    [(("rtx-4091",), "no device is called"), ((CARD, "--batch", "0"), "--batch: 0"), ((CARD, "-o", "x.doc"), "x.doc")],
)
def test_mistakes_are_said_in_a_line(capsys: pytest.CaptureFixture[str], typed: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, "sensitivity", MODEL, *typed)
    assert (code, out) == (2, "") and said in err


# --- the chart


def drawn(of: Sensitivity, size: tuple[float, float] = (8.0, 4.5)) -> Axes:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    ax = rl.plotting.sensitivity(of, ax=figure.subplots())
    figure.canvas.draw()
    return ax


def test_bars_are_as_long_as_the_elasticities() -> None:
    before = dict(matplotlib.rcParams)
    ax = drawn(SPLIT)
    assert dict(matplotlib.rcParams) == before
    lengths = {str(bar.get_gid()): bar.get_width() for bar in ax.patches if bar.get_gid()}  # type: ignore[attr-defined]
    names = [text.get_text().partition("\n")[0] for text in ax.get_yticklabels()]
    for place, name in enumerate(names):
        assert lengths[f"bar-decode-{place}"] == pytest.approx(SPLIT.of(name).decode_expected)
        assert lengths[f"bar-prefill-{place}"] == pytest.approx(SPLIT.of(name).prefill_expected)
    assert "host memory bandwidth" in rl.plotting.describe(ax).lower()


@pytest.mark.parametrize("size", [(8.0, 4.5), (6.0, 4.5)])
def test_labels_stay_inside(size: tuple[float, float]) -> None:
    ax = drawn(SPLIT, size)
    ends = [text.get_window_extent() for text in ax.texts]
    assert ends and max(box.x1 for box in ends) <= ax.figure.bbox.x1
    assert min(box.x0 for box in ends) >= ax.get_window_extent().x0


def test_only_a_sensitivity_can_be_drawn() -> None:
    with pytest.raises(rl.InvalidRequest):
        rl.plotting.sensitivity(1)  # type: ignore[arg-type]


def test_the_command_writes_a_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "tornado.png"
    code, out, _ = run(capsys, "sensitivity", MODEL, CARD, "--no-swaps", "-o", str(file))
    assert code == 0 and str(file) in out
    assert file.read_bytes().startswith(b"\x89PNG")
