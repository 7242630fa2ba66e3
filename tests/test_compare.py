"""Comparisons: each row is the estimate of its system, one that cannot run is a row with the reason."""

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import rooflinellm as rl
from rooflinellm.api.compare import Comparison
from rooflinellm.cli import main

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.RooflineWarning")

MODEL, CARD, MAC = "llama-3.1-8b", "rtx-4090", "m3-max-40c"
PAIR = "2x rtx-3090"
THREE = rl.compare(MODEL, [PAIR, CARD, MAC])
FP8 = rl.compare(MODEL, [CARD, MAC], weights="fp8")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def test_each_row_is_the_estimate_of_its_system() -> None:
    assert THREE.prompt_tokens == (512, 8192)
    for row, name in zip(THREE.rows, (PAIR, CARD, MAC), strict=True):
        expected = [rl.estimate(MODEL, name, prompt_tokens=prompt).to_dict() for prompt in (512, 8192)]
        assert [item.to_dict() for item in row.estimates] == expected
        assert row.system == rl.system(name)


def test_the_rated_power_is_of_all_devices() -> None:
    # NVIDIA: GeForce RTX 3090 350 W, GeForce RTX 4090 450 W (graphics card power); Apple states none for the M3 Max
    assert [row.power_w for row in THREE.rows] == [700, 450, None]
    energy = [row.estimates[0].energy_j_per_token for row in THREE.rows]
    assert [each is None for each in energy] == [False, False, True]


def test_it_says_what_differs_and_only_that() -> None:
    (said,) = THREE.differences
    assert said.startswith("engines differ: llama.cpp cuda on 2x RTX 3090, RTX 4090; llama.cpp metal on Apple M3 Max")
    assert rl.compare(MODEL, [PAIR, CARD]).differences == ()


def test_a_system_that_cannot_run_it_is_a_row_with_the_reason() -> None:
    card, mac = FP8.rows
    assert card.estimates and not card.reason
    assert not mac.estimates and "vllm does not run on Apple M3 Max" in mac.reason
    assert any("cannot run it: " in note and mac.reason in note for note in FP8.table().notes)
    assert [record.get("reason", "") == mac.reason for record in FP8.to_records()] == [False, False, True]


def test_where_it_runs_nowhere_the_first_reason_is_raised() -> None:
    with pytest.raises(rl.RooflineError, match="vllm does not run on Apple M3 Max"):
        rl.compare(MODEL, [MAC, "m1-max-32c"], weights="fp8")
    with pytest.raises(rl.InvalidRequest, match="context_limit"):
        rl.compare(MODEL, [CARD, MAC], context_limit=16)


def test_a_mistyped_name_is_an_error_and_no_row() -> None:
    with pytest.raises(rl.UnknownName):
        rl.compare(MODEL, [CARD, "rtx-4091"])
    with pytest.raises(rl.AmbiguousName):
        rl.compare(MODEL, [CARD, "3080"])
    with pytest.raises(rl.UnknownName):
        rl.compare("llama-99", [CARD])


@pytest.mark.parametrize(
    ("hardware", "keywords", "where"),
    [
        ([], {}, "hardware"), (3.5, {}, "hardware"), ([CARD], {"prompt_tokens": []}, "prompt_tokens"),
        ([CARD], {"batch": [1, 2]}, "batch"), ([CARD], {"context_tokens": np.arange(3)}, "context_tokens"),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(hardware: Any, keywords: dict[str, Any], where: str) -> None:
    with pytest.raises(rl.InvalidRequest) as caught:
        rl.compare(MODEL, hardware, **keywords)
    assert caught.value.where == where


def test_one_name_and_one_length_will_do_and_twins_are_one_row() -> None:
    found = rl.compare(MODEL, CARD, prompt_tokens=2048)
    assert (len(found.rows), found.prompt_tokens) == (1, (2048,))
    assert len(rl.compare(MODEL, [CARD, "4090", "nvidia-geforce-rtx-4090"]).rows) == 1
    assert len(rl.compare(MODEL, [CARD, CARD + " + ddr5-5600x2@64GiB"]).rows) == 2


def test_warnings_name_the_system() -> None:
    with pytest.warns(rl.RooflineWarning) as caught:
        found = rl.compare("llama-3.3-70b", [CARD, MAC])
    assert [str(each.message) for each in caught] == list(found.warnings)
    (said,) = found.warnings
    assert said.startswith("RTX 4090: memory: does not fit")


def test_records_and_json_hold_base_units() -> None:
    records = THREE.to_records()
    assert [(row["name"], row["prompt_tokens"]) for row in records[:3]] == [
        ("2x RTX 3090", 512),
        ("2x RTX 3090", 8192),
        ("RTX 4090", 512),
    ]
    for record, item in zip(records, THREE.estimates, strict=True):
        assert record["decode_tokens_per_s_low"] == item.decode.tokens_per_s.low
        assert record["ttft_s_ideal"] == item.ttft_s.ideal
        assert record["fits"] is item.memory.fits
    content = json.loads(THREE.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert content["rows"][1]["results"][0]["prefill"] == THREE.rows[1].estimates[0].prefill.to_dict()
    assert list(THREE.to_dataframe()["hardware"]) == [record["hardware"] for record in records]


@pytest.mark.parametrize("of", [THREE, FP8, rl.compare(MODEL, [CARD, MAC], batch=4, prompt_tokens=[0, 512])])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_tables_fit_and_keep_the_answer(of: Comparison, width: int) -> None:
    lines = of.table().to_text(width).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[2].split()[:2] == ["hardware", "fits"]
    assert "first token" in lines[2] and "tok/s" in lines[2]
    assert of._repr_html_().count("<tr>") == 2 + len(of.table().rows)


# --- the chart


def drawn(of: Comparison, size: tuple[float, float] = (8.0, 4.0), **keywords: Any) -> Axes:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    ax = rl.plotting.compare(of, ax=figure.subplots(), **keywords)
    figure.canvas.draw()
    return ax


def test_marks_stand_at_the_numbers() -> None:
    before = dict(matplotlib.rcParams)
    ax = drawn(THREE)
    assert dict(matplotlib.rcParams) == before
    at = {str(line.get_gid()): list(line.get_xdata()) for line in ax.lines}
    for place, row in enumerate(THREE.rows):
        for phase in (row.estimates[1].prefill, row.estimates[1].decode):
            rate, key = phase.tokens_per_s, f"{phase.name}-{place}"
            assert at[f"expected-{key}"] == [rate.expected]
            assert at[f"range-{key}"] == [rate.low, rate.high]
            assert at[f"ideal-{key}"] == [rate.ideal]
    assert ax.get_xscale() == "log" and "tokens/s" in ax.get_xlabel()
    short = drawn(THREE, prompt_tokens=512)
    assert list(short.lines[-1].get_xdata()) == [THREE.rows[-1].estimates[0].decode.tokens_per_s.expected]


@pytest.mark.parametrize("size", [(8.0, 4.0), (5.0, 3.2)])
def test_labels_stay_inside_and_apart(size: tuple[float, float]) -> None:
    ax = drawn(THREE, size)
    labels = [text for text in ax.texts if str(text.get_gid()).startswith("label-")]
    assert len(labels) == 6
    boxes = [text.get_window_extent() for text in labels]
    assert max(box.x1 for box in boxes) <= ax.figure.bbox.x1
    assert not any(a.overlaps(b) for index, a in enumerate(boxes) for b in boxes[:index])


def test_the_chart_says_what_does_not_run_or_fit() -> None:
    ax = drawn(FP8)
    assert [text.get_text() for text in ax.texts if str(text.get_gid()).startswith("reason-")] == ["cannot run it"]
    assert "vllm does not run on Apple M3 Max" in rl.plotting.describe(ax)
    ax = drawn(rl.compare("llama-3.3-70b", [CARD, MAC]))
    ticks = [text.get_text() for text in ax.get_yticklabels()]
    assert ["does not fit" in text for text in ticks] == [True, False]
    assert "engines differ" in rl.plotting.describe(ax).lower()


@pytest.mark.parametrize(
    ("of", "keywords", "where"),
    [
        (1, {}, "comparison"), (THREE, {"prompt_tokens": 7}, "prompt_tokens"),
        (THREE, {"label_size": -1}, "label_size"), (THREE, {"ax": "x"}, "ax"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(of: Any, keywords: dict[str, Any], where: str) -> None:
    with pytest.raises(rl.InvalidRequest) as caught:
        rl.plotting.compare(of, **keywords)
    assert caught.value.where == where


# --- the command


def test_the_command_shows_the_numbers_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "compare", MODEL, PAIR, CARD, MAC, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert list(content)[:3] == ["schema_version", "rooflinellm_version", "data_version"]
    assert {key: content[key] for key in THREE.to_dict()} == json.loads(THREE.to_json())
    code, out, _ = run(capsys, "compare", MODEL, CARD, MAC, "-p", "1k", "--format", "csv")
    assert (code, len(out.splitlines())) == (0, 3)
    code, out, _ = run(capsys, "compare", MODEL, CARD, MAC, "--weights", "fp8")
    assert code == 0 and "'fp8' is hf:fp8, which vllm reads; vllm does not run" in " ".join(out.split())


def test_the_command_writes_a_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "compare.png"
    code, out, _ = run(capsys, "compare", MODEL, CARD, MAC, "-o", str(file))
    assert code == 0 and str(file) in out
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ((), 2, "HARDWARE"),
        (("rtx-4091",), 2, "no device is called"),
        (("3080",), 2, "Say which"),
        ((CARD, "--prompt", "x"), 2, "--prompt"),
        ((CARD, "--batch", "0"), 2, "--batch: 0 is not a whole number"),
        ((MAC, "--weights", "fp8"), 2, "does not run on"),
        ((CARD, "-o", "x.doc"), 2, "x.doc"),
        (("google-tpu-v4", "--engine", "llama.cpp"), 2, "does not run on"),
    ],
)
def test_mistakes_are_said_in_a_line(
    capsys: pytest.CaptureFixture[str], typed: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = run(capsys, "compare", MODEL, *typed)
    assert (found, out) == (code, "")
    assert said in err


@pytest.mark.filterwarnings("error::rooflinellm.RooflineWarning")
def test_no_prompt_that_nobody_named_is_beyond_the_context() -> None:
    # Of its own accord a model made for 4,096 tokens is asked for the short prompt alone, and nothing is warned of.
    assert rl.compare("phi-3-mini-4k", "rtx-4090").prompt_tokens == (512,)
    assert rl.compare("llama-3.1-8b", "rtx-4090").prompt_tokens == (512, 8192)
    assert rl.compare("llama-3.1-8b", "rtx-4090", context_limit=8192).prompt_tokens == (512,)
    asked = rl.questions("phi-3-mini-4k", "rtx-4090").estimates
    assert [each.workload["prompt_tokens"] for each in asked] == [512]
    found = rl.report("phi-3-mini-4k", ["rtx-4090", "rtx-3090"], batch=4)
    assert found.comparison.prompt_tokens == (512,)
    assert not found.warnings


def test_prompts_that_nobody_named_keep_to_a_context_that_is_another_one() -> None:
    short = {"model.max_context_tokens": 4_096}
    found = rl.compare("llama-3.1-8b", ["rtx-4090", "rtx-3090"], overrides=short)
    assert found.prompt_tokens == (512,)
    assert rl.compare("llama-3.1-8b", ["rtx-4090", "rtx-3090"]).prompt_tokens == (512, 8_192)
