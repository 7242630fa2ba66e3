"""The roofline chart: lines and points where the numbers say, labels clear of one another, nothing global touched."""

import itertools
import json
import math
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import rooflinellm as rl
from rooflinellm.plotting import geometry, labels, style
from rooflinellm.plotting.labels import HaloText
from rooflinellm.roofline import attainable, ridge_point

matplotlib.use("Agg")

CARD, LLAMA = "nvidia-geforce-rtx-4090", "llama-3.1-8b"
SERIES = f"{CARD}-{LLAMA}"
Q4 = {"weights": "Q4_K_M"}


def empty_axes(width: float = 6.4, height: float = 4.8) -> Axes:
    """Return axes of a figure that pyplot does not know."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots()


def chart(
    hardware: Any = "rtx-4090", model: Any = LLAMA, *, size: tuple[float, float] = (6.4, 4.8), **keywords: Any
) -> Axes:
    return rl.plotting.roofline(hardware, model, ax=empty_axes(*size), **keywords)


def drawn(ax: Axes) -> Axes:
    ax.figure.canvas.draw()
    return ax


def line(ax: Axes, gid: str) -> Line2D:
    (found,) = [each for each in ax.lines if each.get_gid() == gid]
    return found


def gids(ax: Axes, start: str) -> list[str]:
    names = [str(each.get_gid()) for each in ax.lines]
    return [name for name in names if name.startswith(start)]


def place(mark: Line2D) -> tuple[float, float]:
    ((x,), (y,)) = mark.get_data()
    return float(x), float(y)


def words(ax: Axes) -> list[str]:
    """Return what the labels that are shown say."""
    return [text.get_text() for text in ax.texts if text.get_visible()]


@pytest.fixture(scope="module")
def llama_chart() -> Axes:
    return drawn(chart(**Q4))


# Lines


def test_both_axes_are_logarithmic(llama_chart: Axes) -> None:
    assert (llama_chart.get_xscale(), llama_chart.get_yscale()) == ("log", "log")
    assert "FLOP/byte" in llama_chart.get_xlabel()
    assert "TFLOP/s" in llama_chart.get_ylabel()
    ticks = [text.get_text() for text in llama_chart.get_yticklabels()]
    assert "100" in ticks and "1,000" in ticks  # TFLOP/s, not FLOP/s


@pytest.mark.parametrize("key", ["int8.int32", "fp16.fp16", "fp16.fp32"])
def test_a_roof_is_a_horizontal_line_at_its_peak_from_its_ridge_on(llama_chart: Axes, key: str) -> None:
    device = rl.hardware(CARD)
    x, y = line(llama_chart, f"roof-{key}-{CARD}").get_data()
    assert list(y) == [device.peak(key)] * 2
    ridge = ridge_point(device.peak(key), device.memory_bandwidth_bytes_per_s)
    assert x[0] == pytest.approx(ridge)
    assert x[1] > llama_chart.get_xlim()[1]
    assert place(line(llama_chart, f"ridge-{key}-{CARD}")) == pytest.approx((ridge, device.peak(key)))


def test_the_memory_line_has_the_bandwidth_as_its_slope(llama_chart: Axes) -> None:
    device = rl.hardware(CARD)
    x, y = line(llama_chart, f"roof-memory-{CARD}").get_data()
    assert np.asarray(y) / np.asarray(x) == pytest.approx([device.memory_bandwidth_bytes_per_s] * 2)
    assert y[1] == pytest.approx(device.peak("int8.int32"))
    assert x[0] < llama_chart.get_xlim()[0]
    (x0, y0), (x1, y1) = llama_chart.transData.transform(np.column_stack([x, y]))
    per_decade = llama_chart.transData.transform([[1, 1e12], [10, 1e13]])
    assert (y1 - y0) / (x1 - x0) == pytest.approx(np.divide(*(per_decade[1] - per_decade[0])[::-1]))


def test_the_frame_holds_all_ridges_and_points(llama_chart: Axes) -> None:
    (left, right), (bottom, top) = llama_chart.get_xlim(), llama_chart.get_ylim()
    for gid in [name for start in ("ridge-", "prefill-", "decode-", "ideal-") for name in gids(llama_chart, start)]:
        x, y = place(line(llama_chart, gid))
        assert left < x < right and bottom < y < top, gid


def test_without_a_model_there_is_a_roof_for_each_width() -> None:
    ax = chart("rtx-4090", None)
    keys = {key for name in gids(ax, "roof-") for key in re.findall(r"[a-z]+\d+\.[a-z]+\d+", name)}
    assert {"fp16.fp32", "int8.int32", "int4.int32", "fp32.fp32"} <= keys
    assert "fp64.fp64" not in keys
    low, high = ax.get_xlim()
    assert low <= 0.3 and high >= 3000
    assert not gids(ax, "decode-")


def test_precisions_may_be_named() -> None:
    ax = chart("h100-sxm", None, precisions=["fp8", "fp16.fp32"])
    assert len(gids(ax, "roof-")) == 3
    assert gids(ax, "roof-fp8") and gids(ax, "roof-fp16") and gids(ax, "roof-memory")
    same = chart("h100-sxm", None, precisions="FP8")
    assert len(gids(same, "roof-")) == 2


def test_peaks_of_one_rate_are_one_line() -> None:
    ax = chart("h100-sxm", None)
    rates = [place(line(ax, name))[1] for name in gids(ax, "ridge-")]
    assert len(rates) == len(set(rates))


def test_memory_levels_are_shown_where_they_are_known() -> None:
    ax = chart("rtx-4090 + ddr5-6000x2@96GiB", None, memory_levels=True)
    host = line(ax, f"roof-host1-{CARD}")
    x, y = host.get_data()
    assert y[0] / x[0] == pytest.approx(rl.system("rtx-4090 + ddr5-6000x2@96GiB").host.bandwidth_bytes_per_s)
    assert gids(ax, "roof-link")
    assert not gids(ax, "roof-cache")  # its bandwidth is not stated
    assert not gids(chart("rtx-4090 + ddr5-6000x2@96GiB", None), "roof-host")


def test_an_overridden_bandwidth_moves_the_line() -> None:
    ax = chart(overrides={"hardware.memory.bandwidth_gb_s": 500}, **Q4)
    x, y = line(ax, f"roof-memory-{CARD}").get_data()
    assert y[0] / x[0] == pytest.approx(500e9)


# Points


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_a_decode_point_stands_at_its_intensity_and_expected_rate(llama_chart: Axes, batch: int) -> None:
    phase = rl.estimate(LLAMA, CARD, batch=batch, **Q4).decode
    x, y = place(line(llama_chart, f"decode-{batch}-{SERIES}"))
    assert x == pytest.approx(phase.arithmetic_intensity)
    assert y == pytest.approx(phase.flops / phase.time_s.expected)


def test_the_prefill_point_is_that_of_one_prompt(llama_chart: Axes) -> None:
    phase = rl.estimate(LLAMA, CARD, **Q4).prefill
    x, y = place(line(llama_chart, f"prefill-{SERIES}"))
    assert x == pytest.approx(phase.arithmetic_intensity)
    assert y == pytest.approx(phase.flops / phase.time_s.expected)


def test_the_phases_differ_in_marker_and_not_in_colour_alone(llama_chart: Axes) -> None:
    prefill, decode = line(llama_chart, f"prefill-{SERIES}"), line(llama_chart, f"decode-1-{SERIES}")
    assert prefill.get_marker() == "^" and decode.get_marker() == "o"
    assert prefill.get_markerfacecolor() != style.PAPER


@pytest.mark.parametrize("point", ["prefill", "decode-1", "decode-64"])
def test_the_tick_is_the_ideal_on_the_roof_as_drawn(llama_chart: Axes, point: str) -> None:
    batch = int(point.partition("-")[2] or 1)
    answer = rl.estimate(LLAMA, CARD, batch=batch, **Q4)
    phase = answer.prefill if point == "prefill" else answer.decode
    bandwidth = rl.hardware(CARD).memory_bandwidth_bytes_per_s
    x, y = place(line(llama_chart, f"ideal-{point}-{SERIES}"))
    assert y == pytest.approx(attainable(x, phase.peak_flop_per_s, bandwidth))
    assert y <= attainable(x, rl.hardware(CARD).peak("int8.int32"), bandwidth) * (1 + 1e-9)
    expected = place(line(llama_chart, f"{point}-{SERIES}"))
    drop = line(llama_chart, f"drop-{point}-{SERIES}")
    assert np.column_stack(drop.get_data()).tolist() == [list(expected), [x, y]]
    assert expected[1] <= y


def test_the_trail_joins_the_batches_in_order(llama_chart: Axes) -> None:
    x, y = line(llama_chart, f"trail-{SERIES}").get_data()
    assert list(zip(x, y, strict=True)) == [
        place(line(llama_chart, f"decode-{batch}-{SERIES}")) for batch in (1, 2, 4, 8, 16, 32, 64)
    ]
    assert list(x) == sorted(x)


def test_batches_are_sorted_and_named_at_the_ends() -> None:
    ax = drawn(chart(batches=np.array([32, 4, 4]), **Q4))
    assert gids(ax, "decode-") == [f"decode-4-{SERIES}", f"decode-32-{SERIES}"]
    assert any("batch 4:" in text for text in words(ax)) and any("32 × " in text for text in words(ax))


def test_batches_that_do_not_fit_are_left_out() -> None:
    hardware, model = "2x rtx-3090", "llama-3.1-70b"
    ax = chart(hardware, model, size=(10, 6), **Q4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rl.RooflineWarning)
        fitting = [b for b in (1, 2, 4, 8, 16, 32, 64) if rl.estimate(model, hardware, batch=b, **Q4).memory.fits]
    assert 0 < len(fitting) < 7
    assert [int(name.split("-")[1]) for name in gids(ax, "decode-")] == fitting
    assert "do not fit the memory: batch 32, 64" in rl.plotting.describe(ax)
    assert any("does not fit" in text for text in words(drawn(ax)))


def test_several_devices_of_a_system_add_up_and_one_request_uses_one_of_them() -> None:
    ax = chart("2x rtx-3090", "llama-3.1-70b", batches=[1, 2], **Q4)
    one = rl.hardware("rtx-3090")
    x, y = line(ax, f"roof-memory-{one.id}").get_data()
    assert y[0] / x[0] == pytest.approx(2 * one.memory_bandwidth_bytes_per_s)
    ideal = place(line(ax, f"ideal-decode-1-{one.id}-llama-3.1-70b"))
    assert ideal[1] < 0.6 * 2 * one.memory_bandwidth_bytes_per_s * ideal[0]
    x, y = line(ax, f"roof-int8.int32-{one.id}").get_data()
    assert y[0] == pytest.approx(2 * one.peak("int8.int32"))
    assert any("2 × 936 GB/s" in text for text in words(drawn(ax)))


def test_what_does_not_fit_at_all_is_drawn_with_one_warning() -> None:
    with pytest.warns(rl.RooflineWarning, match="does not fit") as caught:
        ax = chart("rtx-4090", "llama-3.1-70b", **Q4)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert len(gids(ax, "decode-")) == 7
    assert "as if it did" in rl.plotting.describe(ax)


def test_measured_points_are_hollow_and_in_proportion() -> None:
    rows = [
        {"phase": "decode", "tokens_per_s": 120.0},
        {"phase": "prefill", "tokens_per_s": 9000, "label": r"my card for $3 and \frac{$"},
        {"phase": "decode", "tokens_per_s": 60, "batch": 8, "hardware": "rtx-4090", "model": LLAMA},
    ]
    ax = drawn(chart(measured=rows, size=(14, 9), **Q4))
    expected = rl.estimate(LLAMA, CARD, **Q4).decode
    mark = line(ax, f"measured-0-{SERIES}")
    x, y = place(mark)
    assert x == pytest.approx(expected.arithmetic_intensity)
    ratio = 120 / expected.tokens_per_s.expected
    assert y == pytest.approx(ratio * expected.flops / expected.time_s.expected)
    assert mark.get_markerfacecolor() == style.PAPER and mark.get_markeredgecolor() != style.PAPER
    assert line(ax, f"drop-measured-0-{SERIES}").get_linestyle() == ":"
    assert line(ax, f"measured-1-{SERIES}").get_marker() == "^"
    assert place(line(ax, f"measured-2-{SERIES}"))[0] == pytest.approx(place(line(ax, f"decode-8-{SERIES}"))[0])
    assert any(r"my card for $3 and \frac{$" in text for text in words(ax))
    assert "measured" in rl.plotting.describe(ax)


def test_without_a_prompt_there_is_no_prefill() -> None:
    ax = chart(prompt_tokens=0, context_tokens=4096, **Q4)
    assert not gids(ax, "prefill-") and gids(ax, "decode-1-")


def test_a_single_output_token_shows_the_next_step() -> None:
    ax = chart(output_tokens=1, **Q4)
    phase = rl.estimate(LLAMA, CARD, output_tokens=2, **Q4).decode
    assert place(line(ax, f"decode-1-{SERIES}")) == pytest.approx(
        (phase.arithmetic_intensity, phase.flops / phase.time_s.expected)
    )


def test_the_properties_of_lines_and_points_may_be_given() -> None:
    ax = chart(roof_kwargs={"lw": 4, "alpha": 0.5}, point_kwargs={"ms": 12}, **Q4)
    assert line(ax, f"roof-memory-{CARD}").get_linewidth() == 4
    assert line(ax, f"decode-8-{SERIES}").get_markersize() == 12


# Several series


def test_devices_differ_in_colour_line_style_and_name() -> None:
    names = ["rtx-4090", "rtx-3090", "m3-max-40c"]
    ax = drawn(chart(names, "qwen3-30b-a3b", size=(10, 6)))
    ids = [rl.hardware(name).id for name in names]
    lines = [line(ax, f"roof-memory-{each}") for each in ids]
    assert len({each.get_color() for each in lines}) == 3
    assert len({str(each._dash_pattern) for each in lines}) == 3
    said = words(ax)
    for name in ("RTX 4090", "RTX 3090", "M3 Max"):
        assert any(text.startswith(f"{name} memory") for text in said), name
        assert name in ax.get_title(loc="left")


def test_devices_that_share_a_short_name_keep_their_long_one() -> None:
    ax = drawn(chart(["m3-max-40c", "m3-max-30c"], None, size=(10, 6)))
    assert "40-core" in ax.get_title(loc="left") and "30-core" in ax.get_title(loc="left")


def test_models_differ_in_colour_and_marker() -> None:
    ax = chart("rtx-4090", [LLAMA, "qwen3-8b"], **Q4)
    first, second = (line(ax, f"decode-1-{CARD}-{model}") for model in (LLAMA, "qwen3-8b"))
    assert first.get_marker() != second.get_marker()
    assert first.get_markerfacecolor() != second.get_markerfacecolor()


def test_what_is_named_twice_is_drawn_once() -> None:
    ax = chart(["rtx-4090", "RTX 4090"], [LLAMA, LLAMA], **Q4)
    assert len(gids(ax, "roof-memory")) == 1 and len(gids(ax, "decode-1-")) == 1


# Labels

CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "one card": ("rtx-4090", LLAMA, Q4),
    "a server": ("h100-sxm", "llama-3.1-8b", {"weights": "fp8", "engine": "vllm"}),
    "unified memory": ("m3-max-40c", "gpt-oss-20b", {"weights": "MXFP4"}),
    "three devices": (["rtx-4090", "rtx-3090", "m3-max-40c"], "qwen3-30b-a3b", {}),
    "measured": (
        "rtx-4090",
        LLAMA,
        {"measured": [{"phase": "decode", "tokens_per_s": 130}, {"phase": "prefill", "tokens_per_s": 12000}], **Q4},
    ),
    "roofs alone": (["rtx-4090", "h100-sxm"], None, {}),
}
SIZES = ((6.4, 4.8), (10.0, 6.0), (4.0, 3.0))


def boxes(ax: Axes) -> dict[str, geometry.Box]:
    """Return the rectangle of each label that is shown, measured by matplotlib."""
    renderer = ax.figure.canvas.get_renderer()
    found = {}
    for text in ax.texts:
        if not text.get_visible():
            continue
        angle = text.get_rotation()
        text.set_rotation(0)
        extent = text.get_window_extent(renderer)
        text.set_rotation(angle)
        centre = (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2
        found[str(text.get_gid())] = geometry.Box(*centre, extent.width / 2, extent.height / 2, math.radians(angle))
    return found


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]:g}x{size[1]:g}")
@pytest.mark.parametrize("case", CASES)
def test_labels_keep_clear_of_one_another_and_inside(case: str, size: tuple[float, float]) -> None:
    hardware, model, keywords = CASES[case]
    ax = drawn(chart(hardware, model, size=size, **keywords))
    found = boxes(ax)
    rows = geometry.rows(list(found.values()))
    assert geometry.within(rows, tuple(ax.bbox.extents)).all()
    overlaps = geometry.overlapping(rows, rows)
    names = list(found)
    pairs = [(names[i], names[j]) for i, j in itertools.combinations(range(len(names)), 2) if overlaps[i, j]]
    assert not pairs
    marks = [place(each) for each in ax.lines if len(each.get_xdata()) == 1 and each.get_marker() != "_"]
    at = ax.transData.transform(marks)
    covered = geometry.distances(rows[rows[:, 4] == 0], at) == 0
    assert not covered.any()
    figure = ax.figure.bbox.extents
    for text in (ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label):
        extent = text.get_window_extent(ax.figure.canvas.get_renderer())
        assert extent.x0 >= figure[0] - 1 and extent.x1 <= figure[2] + 1 and extent.y1 <= figure[3] + 1


@pytest.mark.parametrize("case", ["one card", "a server", "unified memory", "measured"])
@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]:g}x{size[1]:g}")
def test_every_roof_ridge_and_end_point_of_one_device_is_labelled(case: str, size: tuple[float, float]) -> None:
    hardware, model, keywords = CASES[case]
    ax = drawn(chart(hardware, model, size=size, **keywords))
    hidden = [text.get_gid() for text in ax.texts if not text.get_visible()]
    assert not hidden
    assert any(text.startswith("memory ") and text.endswith(" GB/s") for text in words(ax))
    assert any("Intensity" in text for text in words(ax)) and any(rl.__version__ in text for text in words(ax))


@pytest.mark.parametrize("case", ["one card", "a server", "unified memory"])
def test_no_label_of_a_single_device_lies_on_a_roof(case: str) -> None:
    hardware, model, keywords = CASES[case]
    ax = drawn(chart(hardware, model, size=(10, 6), **keywords))
    roofs = [ax.transData.transform(np.column_stack(line(ax, name).get_data())) for name in gids(ax, "roof-")]
    crossed = geometry.crossing(geometry.rows(list(boxes(ax).values())), np.array([roof.ravel() for roof in roofs]))
    assert not crossed.any()


def test_the_words_of_the_labels(llama_chart: Axes) -> None:
    said = words(llama_chart)
    assert "memory 1,008 GB/s" in said
    assert "INT8 dense 661 TOP/s" in said
    assert any(re.fullmatch(r"FP16( dense)? 165 TFLOP/s", text) for text in said)
    assert any("655" in text and "ridge" in text for text in said)
    rate = rl.units.significant(rl.estimate(LLAMA, CARD, **Q4).decode.tokens_per_s.expected, 3)
    assert f"decode, batch 1: {rate} tok/s" in said
    caption = next(text for text in said if "Intensity" in text).replace("\n", " ")
    assert "weights and KV cache" in caption and "INT8 for weights" in caption


def slope_of(ax: Axes) -> float:
    x, y = line(ax, f"roof-memory-{CARD}").get_data()
    (x0, y0), (x1, y1) = ax.transData.transform(np.column_stack([x, y]))
    return math.degrees(math.atan2(y1 - y0, x1 - x0))


def test_the_label_of_a_diagonal_turns_with_it() -> None:
    ax = drawn(chart(**Q4))
    (label,) = [text for text in ax.texts if text.get_gid() == f"label-memory-{CARD}"]
    first = label.get_rotation()
    assert first == pytest.approx(slope_of(ax), abs=0.1)
    ax.figure.set_size_inches(5, 9)
    drawn(ax)
    assert label.get_rotation() == pytest.approx(slope_of(ax), abs=0.1)
    assert label.get_rotation() > first + 10


def test_labels_of_points_outside_the_view_are_hidden() -> None:
    ax = drawn(chart(**Q4))
    ax.set_xlim(20, 4000)
    ax.set_ylim(1e13, 1e15)
    drawn(ax)
    hidden = {text.get_gid() for text in ax.texts if not text.get_visible()}
    assert f"label-decode-1-{SERIES}" in hidden
    assert f"label-decode-64-{SERIES}" not in hidden
    assert geometry.within(geometry.rows(list(boxes(ax).values())), tuple(ax.bbox.extents)).all()


def test_drawing_again_changes_nothing() -> None:
    ax = drawn(drawn(chart(**Q4)))
    before = [(text.get_text(), text.get_position(), text.get_rotation()) for text in ax.texts]
    drawn(ax)
    assert [(text.get_text(), text.get_position(), text.get_rotation()) for text in ax.texts] == before


def contrast(color: str) -> float:
    """Contrast on white, as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 1.05 / (float(np.dot(linear, (0.2126, 0.7152, 0.0722))) + 0.05)


def test_text_is_dark_and_large_enough(llama_chart: Axes) -> None:
    for text in llama_chart.texts:
        assert contrast(text.get_color()) >= 4.5 and text.get_fontsize() >= 8
    assert all(contrast(color) >= 7 for color in style.SERIES_TEXT)


def test_series_can_be_told_apart_without_colour() -> None:
    assert (
        len(style.SERIES) == len(style.SERIES_TEXT) == len(style.LINE_STYLES) == len(set(map(str, style.LINE_STYLES)))
    )
    assert len(set(style.DECODE_MARKERS) | set(style.PREFILL_MARKERS)) == 8
    assert "#f0e442" not in map(str.lower, style.SERIES)  # yellow: too light for a line


# What is not touched


def test_global_settings_stay_as_they_are(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    ax = drawn(chart(**Q4))
    rl.plotting.save(ax, tmp_path / "chart.svg")
    assert dict(matplotlib.rcParams) == before


def test_the_axes_that_are_given_are_used() -> None:
    from matplotlib import pyplot as plt

    open_before = plt.get_fignums()
    figure = Figure()
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    assert rl.plotting.roofline("rtx-4090", ax=right) is right
    assert not left.lines and figure.axes == [left, right]
    assert figure.get_layout_engine() is None
    assert plt.get_fignums() == open_before


def test_without_axes_there_is_a_new_figure() -> None:
    from matplotlib import pyplot as plt

    open_before = plt.get_fignums()
    ax = rl.plotting.roofline("rtx-4090")
    try:
        assert len(plt.get_fignums()) == len(open_before) + 1
        assert ax.figure.get_layout_engine() is not None
    finally:
        plt.close(ax.figure)


def test_importing_the_package_is_cheap_and_hides_no_function() -> None:
    code = """
import json, sys
import rooflinellm as rl
from rooflinellm import plotting
heavy = sorted({"numpy", "matplotlib", "pydantic"} & set(sys.modules))
import importlib, pkgutil
for found in pkgutil.walk_packages(plotting.__path__, "rooflinellm.plotting."):
    importlib.import_module(found.name)
print(json.dumps(heavy + [name for name in plotting.__all__ if not callable(getattr(plotting, name))]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


# In words, and in files


def test_the_description_holds_names_and_numbers(llama_chart: Axes) -> None:
    text = rl.plotting.describe(llama_chart)
    assert text == rl.plotting.describe(llama_chart)
    for part in (
        "RTX 4090",
        "memory 1,008 GB/s",
        "INT8 dense 661 TOP/s with its ridge point at 655 FLOP/byte",
        "Llama 3.1 8B Q4_K_M",
        "prefill of 512 tokens",
        "decode at batch 1 ",
        "decode at batch 64 ",
    ):
        assert part in text
    assert "\n" not in text


def test_axes_without_a_chart_have_no_description() -> None:
    with pytest.raises(rl.RooflineError, match="no chart"):
        rl.plotting.describe(empty_axes())


def test_an_svg_keeps_its_text_and_names_its_parts(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        rl.plotting.save(chart(**Q4), tmp_path / name)
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert svg == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert re.search(r"<text[^>]*>memory 1,008 GB/s</text>", svg)
    assert f'id="roof-int8.int32-{CARD}"' in svg and f'id="prefill-{SERIES}"' in svg
    ids = re.findall(r'\bid="([^"]*)"', svg)
    assert len(ids) == len(set(ids))
    assert "decode at batch 64" in svg


def test_a_png_carries_its_description(tmp_path: Path) -> None:
    from PIL import Image

    ax = chart(**Q4)
    rl.plotting.save(ax.figure, tmp_path / "chart.png", dpi=60)
    with Image.open(tmp_path / "chart.png") as image:
        assert image.size == (384, 288)
        assert image.info["Description"] == rl.plotting.describe(ax)
    rl.plotting.save(ax, tmp_path / "chart.pdf")
    assert (tmp_path / "chart.pdf").read_bytes().startswith(b"%PDF")


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(rl.RooflineError, match="png, svg, pdf"):
        rl.plotting.save(chart("rtx-4090", None), tmp_path / "chart.doc")


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "keywords", "says"),
    [
        (([],), {}, "hardware"),
        ((None,), {}, "hardware"),
        ((["rtx-4090"] * 8,), {}, "hardware"),
        (("rtx-4090", []), {}, "model"),
        (("rtx-4090", [LLAMA] * 5), {}, "model"),
        (("no-such-card",), {}, "no-such-card"),
        (("rtx-4090", "no-such-model"), {}, "no-such-model"),
        (("rtx-4090", LLAMA), {"batches": []}, "batches"),
        (("rtx-4090", LLAMA), {"batches": [0, 1]}, "batches"),
        (("rtx-4090", LLAMA), {"batches": [-2]}, "batches"),
        (("rtx-4090", LLAMA), {"batches": [1.5]}, "batches"),
        (("rtx-4090", LLAMA), {"batches": 4}, "batches"),
        (("rtx-4090", LLAMA), {"batch": 4}, "batches"),
        (("rtx-4090", LLAMA), {"prompt_tokens": -1}, "prompt_tokens"),
        (("rtx-4090", LLAMA), {"prompt_tokens": [512, 1024]}, "prompt_tokens"),
        (("rtx-4090", LLAMA), {"overrides": {"hardware.memory.bandwidth_gb_s": [500, 600]}}, "overrides"),
        (("rtx-4090",), {"output_tokens": 10}, "model"),
        (("rtx-4090",), {"precisions": ["fp13"]}, "fp13"),
        (("rtx-4090",), {"precisions": []}, "precision"),
        (("rtx-3090",), {"precisions": ["fp8"]}, "fp8"),
        (("rtx-4090",), {"measured": [{"phase": "decode", "tokens_per_s": 1}]}, "measured"),
        (("rtx-4090", LLAMA), {"measured": {"phase": "decode", "tokens_per_s": 1}}, "measured"),
        (("rtx-4090", LLAMA), {"measured": ["decode"]}, "measured"),
        (("rtx-4090", LLAMA), {"measured": [{"phase": "both", "tokens_per_s": 1}]}, "phase"),
        (("rtx-4090", LLAMA), {"measured": [{"phase": "decode", "tokens_per_s": 0}]}, "tokens_per_s"),
        (("rtx-4090", LLAMA), {"measured": [{"phase": "decode", "tokens_per_s": math.nan}]}, "tokens_per_s"),
        (("rtx-4090", LLAMA), {"measured": [{"phase": "decode", "tokens_per_s": 1, "batch": 0}]}, "batch"),
        (("rtx-4090", LLAMA), {"measured": [{"phase": "decode", "tok/s": 1}]}, "tok/s"),
        (
            ("rtx-4090", LLAMA),
            {"measured": [{"phase": "decode", "tokens_per_s": 1, "hardware": "t4"}]},
            "not in the chart",
        ),
        ((["rtx-4090", "rtx-3090"], LLAMA), {"measured": [{"phase": "decode", "tokens_per_s": 1}]}, "hardware"),
        (("rtx-4090",), {"ax": "here"}, "axes"),
        (("rtx-4090",), {"label_size": 0}, "label_size"),
    ],
)
def test_mistakes_are_named(arguments: tuple[Any, ...], keywords: dict[str, Any], says: str) -> None:
    with pytest.raises(rl.RooflineError) as caught:
        rl.plotting.roofline(*arguments, **({"ax": empty_axes()} | keywords))
    assert says in str(caught.value)


def test_nothing_is_drawn_when_there_is_a_mistake() -> None:
    ax = empty_axes()
    with pytest.raises(rl.RooflineError):
        rl.plotting.roofline("rtx-4090", LLAMA, batches=[0], ax=ax)
    assert not ax.lines and not ax.texts


# Geometry


def test_rectangles_overlap_when_they_share_an_area() -> None:
    upright = geometry.rows([geometry.Box(0, 0, 2, 1)])
    others = geometry.rows(
        [
            geometry.Box(3.9, 0, 2, 1),
            geometry.Box(4.0, 0, 2, 1),
            geometry.Box(0, 2.1, 2, 1),
            geometry.Box(2.6, 1.6, 1, 1, math.pi / 4),  # its corner reaches in
            geometry.Box(3.2, 2.2, 1, 1, math.pi / 4),  # its upright outline would, it does not
        ]
    )
    assert geometry.overlapping(upright, others).tolist() == [[True, False, False, True, False]]
    assert geometry.overlapping(others, upright).ravel().tolist() == [True, False, False, True, False]
    assert geometry.overlapping(upright, geometry.rows([])).shape == (1, 0)


def test_segments_cross_a_turned_rectangle() -> None:
    turned = geometry.rows([geometry.Box(0, 0, 2, 0.5, math.pi / 4)])
    segments = np.array(
        [[-2, -2, 2, 2], [-2, 2, 2, -2], [0, 1.2, -1.2, 0], [1.0, 1.0, 1.1, 1.1], [5, 5, 6, 6], [0, 0, 0, 0]]
    )
    assert geometry.crossing(turned, segments.astype(float)).tolist() == [[True, True, False, True, False, True]]


def test_a_frame_holds_what_does_not_reach_over_its_edge() -> None:
    shapes = geometry.rows([geometry.Box(5, 5, 4, 1), geometry.Box(5, 5, 4, 1, math.pi / 2), geometry.Box(2, 5, 3, 1)])
    assert geometry.within(shapes, (0, 0, 10, 10)).tolist() == [True, True, False]
    assert geometry.within(shapes, (0, 0, 10, 10), margin=1.5).tolist() == [False, False, False]
    assert geometry.within(shapes, (0, 3, 10, 7)).tolist() == [True, False, False]


def test_lines_are_cut_at_the_frame() -> None:
    frame = (0.0, 0.0, 10.0, 5.0)
    assert geometry.clipped((-5, -5), (20, 20), frame) == ((0, 0), (5, 5))
    assert geometry.clipped((2, 3), (4, 3), frame) == ((2, 3), (4, 3))
    assert geometry.clipped((2, 6), (4, 6), frame) is None
    assert geometry.clipped((-3, 0), (-1, 5), frame) is None


def test_paragraphs_are_wrapped_and_the_short_one_costs() -> None:
    found = dict(labels.paragraph("one two three four", "one two", widths=(20, 9)))
    assert found == {"one two three four": 0.0, "one two\nthree\nfour": 0.0, "one two": 2.0}


def test_a_halo_leaves_the_text_alone() -> None:
    text = HaloText(0, 0, "words")
    text.set_gid("name")
    assert text.get_path_effects() == [] and text.get_gid() == "name"
