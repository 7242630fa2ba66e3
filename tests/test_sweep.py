"""Sweeps: every point is the estimate of its arguments, whatever the axes; rows, tables, charts and the command."""

import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import rooflinellm as rl
from rooflinellm.api import sweep as sweep_module
from rooflinellm.api.frontier import frontier
from rooflinellm.api.sweep_result import QUANTITIES, Sweep
from rooflinellm.api.sweep_store import blocks
from rooflinellm.cli import main
from rooflinellm.cli.axes import Axis, Over, spaced
from rooflinellm.results import Estimate

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.RooflineWarning")

MODEL, CARD, MAC = "llama-3.1-8b", "rtx-4090", "m3-max-40c"
KINDS = ("ideal", "expected", "low", "high")
EXACT = 1e-12


def numbers(answer: Any, path: str) -> list[Any]:
    """The four values of a quantity of an estimate, or arrays of them of a sweep."""
    found = answer
    for name in path.split("."):
        found = getattr(found, name)
    return [getattr(found, kind) for kind in KINDS] if found is not None else [float("nan")] * 4


def assert_is_estimate(sweep: Sweep, at: tuple[int, ...], expected: Estimate) -> None:
    for path in QUANTITIES:
        values = [each[at] for each in numbers(sweep, path)]
        assert values == pytest.approx(numbers(expected, path), rel=EXACT, nan_ok=True), path
    assert (sweep.prefill.bound[at], sweep.decode.bound[at]) == (expected.prefill.bound, expected.decode.bound)
    for name in ("resident_weight_bytes", "kv_allocated_bytes", "total_bytes", "usable_bytes", "fits"):
        assert getattr(sweep.memory, name)[at] == getattr(expected.memory, name), name
    for name in ("weights", "kv", "engine"):
        assert getattr(sweep, name)[at] == getattr(expected, name)
    assert (sweep.model[at], sweep.hardware[at]) == (expected.model.id, expected.hardware.id)
    for name, value in expected.workload.items():
        assert sweep.workload[name][at] == value, name


def points(sweep: Sweep) -> Any:
    """Indices and values by axis of every point."""
    for at in np.ndindex(sweep.shape):
        yield at, {name: values[place] for (name, values), place in zip(sweep.axes.items(), at, strict=True)}


# --- the grid


def test_every_point_is_its_estimate() -> None:
    sweep = rl.sweep(
        [MODEL, "qwen3-30b-a3b"], [CARD, MAC], context_tokens=[0, 4096, 100_000], kv=["f16", "q8_0"], batch=[1, 8]
    )
    assert tuple(sweep.axes) == ("model", "hardware", "context_tokens", "kv", "batch")
    assert sweep.shape == sweep.ttft_s.expected.shape == (2, 2, 3, 2, 2)
    assert sweep.size == 48
    for at, values in points(sweep):
        assert_is_estimate(sweep, at, rl.estimate(values.pop("model"), values.pop("hardware"), **values))


@given(
    prompt=st.lists(st.integers(0, 20_000), min_size=1, max_size=3),
    output=st.lists(st.integers(0, 500), min_size=1, max_size=2),
    context=st.lists(st.integers(0, 200_000), min_size=1, max_size=3),
    batch=st.lists(st.integers(1, 300), min_size=1, max_size=2),
)
def test_any_grid_of_counts_is_its_estimates(
    prompt: list[int], output: list[int], context: list[int], batch: list[int]
) -> None:
    axes = {"prompt_tokens": prompt, "output_tokens": output, "context_tokens": context, "batch": batch}
    sweep = rl.sweep("gpt-oss-20b", "2x rtx-3090", **axes)
    for at, values in points(sweep):
        assert_is_estimate(sweep, at, rl.estimate("gpt-oss-20b", "2x rtx-3090", **values))


def test_each_point_is_placed_by_itself() -> None:
    # An estimate over arrays places its largest case; a point of a sweep is placed as if it were alone.
    rig, contexts = "rtx-4090 + ddr5-5600x2@64GiB", [0, 8_192, 32_768, 65_536, 131_072]
    for model in ("llama-3.3-70b", "llama-3.1-8b", "qwen3-30b-a3b"):
        sweep = rl.sweep(model, rig, context_tokens=contexts, batch=[1, 2])
        for at, values in points(sweep):
            assert_is_estimate(sweep, at, rl.estimate(model, rig, **values))
    layers = rl.sweep("llama-3.3-70b", rig, context_tokens=contexts).workload["gpu_layers"]
    assert len(set(layers.tolist())) > 1
    assert list(layers) == sorted(layers, reverse=True)


def test_settings_and_what_if_values_are_axes() -> None:
    rig, path = "rtx-4090 + ddr5-5600x2@64GiB", "hardware.memory.bandwidth_gb_s"
    sweep = rl.sweep(MODEL, rig, gpu_layers=[None, 0, 16], overrides={path: [500, 1000], "model.name": "Other"})
    assert tuple(sweep.axes) == ("gpu_layers", path)
    for at, values in points(sweep):
        expected = rl.estimate(
            MODEL, rig, gpu_layers=values["gpu_layers"], overrides={path: values[path], "model.name": "Other"}
        )
        assert numbers(sweep, "decode.tokens_per_s")[1][at] == pytest.approx(
            expected.decode.tokens_per_s.expected, rel=EXACT
        )
    assert sweep.overrides[path].tolist() == [[500, 1000]] * 3
    assert sweep.workload["gpu_layers"].tolist() == [[None, None], [0, 0], [16, 16]]
    weights = rl.sweep(MODEL, CARD, weights=("Q4_K_M", "fp8"), prefill_chunk=[128, 2048])
    assert weights.engine.tolist() == [["llama.cpp:cuda"] * 2, ["vllm:cuda"] * 2]
    assert weights.prefill.time_s.expected[0, 0] > weights.prefill.time_s.expected[0, 1]


def test_drafting_is_an_axis() -> None:
    request = {"draft": "llama-3.2-1b", "acceptance": 0.8, "prompt_tokens": 2048}
    sweep = rl.sweep(MODEL, CARD, draft_tokens=[0, 2, 4], batch=[1, 4], **request)
    for at, values in points(sweep):
        drafting = request if values["draft_tokens"] else {"prompt_tokens": 2048}
        assert_is_estimate(sweep, at, rl.estimate(MODEL, CARD, **values, **drafting))
    assert sweep.workload["draft_tokens"].tolist() == [[0, 0], [2, 2], [4, 4]]


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = {"context_tokens": np.arange(0, 5000, 250), "batch": [1, 3, 9]}
    whole = rl.sweep(MODEL, CARD, **axes)
    monkeypatch.setattr(sweep_module, "BLOCK_POINTS", 7)
    parts = rl.sweep(MODEL, CARD, **axes)
    assert parts.to_dict() == whole.to_dict()


def test_only_what_is_given_several_of_is_an_axis() -> None:
    one = rl.sweep(MODEL, CARD, context_tokens=1024)
    assert (one.axes, one.shape, one.size) == ({}, (), 1)
    assert_is_estimate(one, (), rl.estimate(MODEL, CARD, context_tokens=1024))
    assert rl.sweep([MODEL], [CARD], batch=range(1, 3)).axes == {
        "model": (MODEL,),
        "hardware": ("nvidia-geforce-rtx-4090",),
        "batch": (1, 2),
    }


def test_more_context_is_slower_and_more_batch_is_more_together() -> None:
    sweep = rl.sweep(MODEL, CARD, context_tokens=np.arange(0, 131_073, 8192), batch=[1, 2, 4, 8])
    for phase in (sweep.prefill, sweep.decode):
        rate = phase.tokens_per_s
        assert (np.diff(rate.expected, axis=0) < 0).all()
        assert (rate.low <= rate.expected).all() and (rate.expected <= rate.high).all()
        assert (rate.high <= rate.ideal * (1 + EXACT)).all()
    assert (np.diff(sweep.decode.aggregate_tokens_per_s.expected, axis=1) > 0).all()
    assert (np.diff(sweep.memory.total_bytes, axis=0) > 0).all()


# --- what is refused


@pytest.mark.parametrize(
    ("axes", "where", "said"),
    [
        ({"contxt": [1]}, "axes", "'contxt' is no axis; there is prompt_tokens"),
        ({"batch": []}, "batch", "at least one value"),
        ({"batch": [[1, 2], [3, 4]]}, "batch", "no number"),
        ({"batch": np.ones((2, 2))}, "batch", "one dimension, not 2"),
        ({"batch": [1, 0]}, "batch", "from 1 to"),
        ({"batch": [1.5]}, "batch", "1.5 is not a whole number"),
        ({"context_tokens": [float("nan")]}, "context_tokens", "whole number"),
        ({"context_tokens": [True]}, "context_tokens", "no number"),
        ({"context_tokens": ["4k"]}, "context_tokens", "no number"),
        ({"context_tokens": range(1000), "batch": range(1, 1001)}, "axes", "1,000,000 points, more than 250,000"),
        ({"gpu_layers": range(10**5)}, "axes", "100,000 combinations"),
        ({"overrides": [1]}, "overrides", "mapping"),
        ({"cached_tokens": [0, 600]}, "cached_tokens", "at most the whole prompt"),
    ],
)
def test_impossible_axes_are_refused(axes: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=said) as caught:
        rl.sweep(MODEL, CARD, **axes)
    assert caught.value.where == where


@pytest.mark.parametrize("hardware", [[], 7, [CARD, "4090"]])
def test_hardware_is_one_entry_or_a_list_of_different_ones(hardware: Any) -> None:
    with pytest.raises(rl.InvalidRequest):
        rl.sweep(MODEL, hardware, batch=[1])


def test_placements_are_not_searched_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "MAX_PLACEMENTS", 3)
    with pytest.raises(rl.InvalidRequest, match="gpu_layers"):
        rl.sweep("llama-3.3-70b", "rtx-4090 + ddr5-5600x2@64GiB", context_tokens=[0, 1, 2, 3])


def test_warnings_are_counted_and_said_once() -> None:
    with pytest.warns(rl.RooflineWarning) as caught:
        sweep = rl.sweep(MODEL, CARD, context_tokens=[0, 120_000], batch=[1, 8])
    assert [str(each.message) for each in caught] == list(sweep.warnings)
    assert sweep.warnings == ("memory: does not fit at 1 of 4 points; the answers there are as if it did",)


# --- views


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # one point does not fit
    SWEEP = rl.sweep(MODEL, [CARD, MAC], context_tokens=[0, 65_536], batch=[1, 8])


def test_records_are_tidy_and_in_order() -> None:
    records = SWEEP.to_records()
    assert len(records) == 8
    found = [(row["hardware"], row["context_tokens"], row["batch"]) for row in records]
    assert found == list(product(SWEEP.axes["hardware"], (0, 65_536), (1, 8)))
    assert records[1]["decode_tokens_per_s_expected"] == SWEEP.decode.tokens_per_s.expected[0, 0, 1]
    assert records[0]["memory_fits"] is True and records[3]["memory_fits"] is False
    assert [row["energy_j_per_token_expected"] is None for row in records] == [False] * 4 + [True] * 4
    frame = SWEEP.to_dataframe()
    assert list(frame["ttft_s_expected"]) == [row["ttft_s_expected"] for row in records]
    assert list(frame.columns) == list(records[0])


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(rl.MissingSpec, match="pip install pandas"):
        SWEEP.to_dataframe()


def test_json_holds_each_point_as_an_estimate_does() -> None:
    content = json.loads(SWEEP.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert content["axes"]["batch"] == [1, 8]
    expected = rl.estimate(MODEL, CARD, context_tokens=65_536, batch=8).to_dict()
    result = content["results"][3]
    for name in ("model", "hardware", "weights", "kv", "engine", "workload", "basis"):
        assert result[name] == expected[name]
    for name in ("prefill", "decode"):
        for quantity in ("tokens_per_s", "aggregate_tokens_per_s", "time_s"):
            assert result[name][quantity] == pytest.approx(expected[name][quantity], rel=EXACT)
    assert result["memory"].items() <= expected["memory"].items()


def test_a_part_is_the_sweep_of_that_part() -> None:
    part = SWEEP.select(hardware="apple-m3-max-40c", batch=8)
    assert part.axes == {"context_tokens": (0, 65_536)}
    alone = rl.sweep(MODEL, MAC, context_tokens=[0, 65_536], batch=8)
    assert part.decode.tokens_per_s.expected.tolist() == alone.decode.tokens_per_s.expected.tolist()
    assert set(part.hardware.tolist()) == {"apple-m3-max-40c"}
    with pytest.raises(rl.InvalidRequest, match="no axis 'kv'; there is hardware, context_tokens, batch"):
        SWEEP.select(kv="f16")
    with pytest.raises(rl.InvalidRequest, match="which has 1, 8"):
        SWEEP.select(batch=2)


def test_tables_fit_and_name_every_axis() -> None:
    table = SWEEP.table(bars=True)
    assert [column.heading for column in table.columns[:3]] == ["hardware", "context", "batch"]
    for width in (80, 100, 120):
        lines = table.to_text(width).splitlines()
        assert max(map(len, lines)) <= width
        headings = lines[2].split()
        assert headings[:3] == ["hardware", "context", "batch"] and "tok/s" in headings
    fits = [row[[column.heading for column in table.columns].index("fits")] for row in table.rows]
    assert fits == ["yes", "yes", "yes", "no", "yes", "yes", "yes", "yes"]
    bars = [row[-1].count("█") for row in table.rows]
    rates = SWEEP.decode.tokens_per_s.expected.ravel().tolist()
    assert [bars[at] for at in np.argsort(rates)] == sorted(bars)
    assert len(SWEEP.table(most=3).rows) == 3
    assert "3 of 8 points" in SWEEP.table(most=3).notes
    assert SWEEP._repr_html_().startswith("<div><table>")
    assert repr(SWEEP).startswith("Sweep(llama-3.1-8b on 2 systems: hardware 2 × context_tokens 2 × batch 2, 8 points")


# --- charts


def drawn(of: Any, size: tuple[float, float] = (8.0, 5.0), **keywords: Any) -> Axes:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    ax = of(ax=figure.subplots(), **keywords)
    figure.canvas.draw()
    return ax


def lines(ax: Axes) -> dict[str, Any]:
    return {str(each.get_gid()): np.asarray(each.get_data(), float) for each in ax.lines if each.get_gid()}


LONG = rl.sweep(MODEL, [CARD, MAC, "2x rtx-3090"], context_tokens=np.arange(0, 122_881, 8192))


def test_a_line_is_what_is_expected_and_its_ideal_lies_above() -> None:
    before = dict(matplotlib.rcParams)
    ax = drawn(LONG.plot)
    assert dict(matplotlib.rcParams) == before
    for index in range(3):
        x, y = lines(ax)[f"expected-series-{index}"]
        assert x.tolist() == list(LONG.axes["context_tokens"])
        assert y == pytest.approx(LONG.decode.tokens_per_s.expected[index])
        assert (lines(ax)[f"ideal-series-{index}"][1] >= y).all()
    assert "tokens/s" in ax.get_ylabel()
    assert f"RTX 4090: {LONG.decode.tokens_per_s.expected[0][0]:.0f} tokens/s" in rl.plotting.describe(ax)


@pytest.mark.parametrize("size", [(8.0, 5.0), (5.0, 3.5)])
def test_every_line_has_its_name_and_no_names_overlap(size: tuple[float, float]) -> None:
    ax = drawn(LONG.plot, size)
    names = [text for text in ax.texts if str(text.get_gid()).startswith("label-") and text.get_visible()]
    assert {text.get_text() for text in names} >= {"RTX 4090", "M3 Max", "2× RTX 3090"}
    boxes = [text.get_window_extent() for text in names]
    assert not any(a.overlaps(b) for at, a in enumerate(boxes) for b in boxes[:at])


def test_axes_are_logarithmic_where_values_are_spaced_by_factors() -> None:
    batches = rl.sweep(MODEL, CARD, batch=[1, 2, 4, 8, 16, 32])
    ax = drawn(lambda ax: batches.plot("batch", "decode.aggregate_tokens_per_s", ax=ax))
    assert ax.get_xscale() == "log"
    assert drawn(LONG.plot).get_xscale() == "linear"
    assert drawn(LONG.select(hardware="nvidia-geforce-rtx-4090").plot).get_yscale() == "linear"
    prompts = rl.sweep(MODEL, CARD, prompt_tokens=[128, 1024, 8192, 65_536])
    ax = drawn(lambda ax: prompts.plot(y="ttft_s", ax=ax))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_values_in_any_order_are_drawn_from_left_to_right() -> None:
    ax = drawn(rl.sweep(MODEL, CARD, context_tokens=[8192, 0, 4096]).plot)
    x, y = lines(ax)["expected-series-0"]
    assert x.tolist() == [0, 4096, 8192]
    assert (np.diff(y) < 0).all()


def test_what_does_not_fit_is_dotted() -> None:
    sweep = rl.sweep(MODEL, CARD, batch=[1, 2, 4, 8], context_tokens=65_536)
    fits = sweep.memory.fits
    assert 0 < fits.sum() < 4
    ax = drawn(lambda ax: sweep.plot(ax=ax))
    assert np.isfinite(lines(ax)["expected-series-0"][1]).tolist() == fits.tolist()
    assert np.isfinite(lines(ax)["beyond-series-0"][1]).sum() == 4 - fits.sum() + 1
    assert "not fit" in rl.plotting.describe(ax)


@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"x": "hardware"}, "x"), ({"x": "batch"}, "x"), ({"y": "speed"}, "y"), ({"label_size": 0}, "label_size"),
        ({"ax": 3}, "ax"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(keywords: dict[str, Any], where: str) -> None:
    with pytest.raises(rl.InvalidRequest) as caught:
        rl.plotting.sweep(LONG, **keywords)
    assert caught.value.where == where


def test_more_lines_than_can_be_told_apart_are_refused() -> None:
    sweep = rl.sweep(MODEL, CARD, context_tokens=range(3), batch=range(1, 10))
    with pytest.raises(rl.InvalidRequest, match="9 lines"):
        rl.plotting.sweep(sweep, x="context_tokens")
    with pytest.raises(rl.InvalidRequest, match="no result of sweep"):
        rl.plotting.pareto(rl.estimate(MODEL, CARD))
    with pytest.raises(rl.InvalidRequest, match="no axis holds numbers"):
        rl.sweep(MODEL, [CARD, MAC]).plot()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_no_point_of_the_frontier_is_beaten_and_every_other_is(found: list[tuple[int, int]]) -> None:
    x, y = np.array(found, dtype=float).T
    best = frontier(x, y)
    assert best.any()
    for at, (a, b) in enumerate(found):
        beaten = any(c >= a and d >= b and (c, d) != (a, b) for c, d in found)
        assert bool(best[at]) is not beaten


def test_the_pareto_chart_shows_batches_that_fit() -> None:
    sweep = rl.sweep(MODEL, [CARD, "h100-sxm"], batch=[1, 2, 4, 8, 16, 32, 64], context_tokens=4096)
    ax = drawn(lambda ax: rl.plotting.pareto(sweep, ax=ax))
    for index in range(2):
        fits = sweep.memory.fits[index]
        x, y = lines(ax)[f"points-series-{index}"]
        shown = (
            sweep.decode.tokens_per_s.expected[index][fits],
            sweep.decode.aggregate_tokens_per_s.expected[index][fits],
        )
        assert sorted(zip(x, y, strict=True)) == sorted(zip(*shown, strict=True))
        assert (np.diff(x) > 0).all() and (np.diff(y) < 0).all()
    assert not sweep.memory.fits.all()
    assert "left out, as it does not fit: batch" in rl.plotting.describe(ax)


# --- the command


def test_axes_as_they_are_typed() -> None:
    def read(text: str) -> Axis:
        found = Over().convert(text, None, None)
        assert isinstance(found, Axis)
        return found

    assert read("context=0:131072:33") == ("context_tokens", tuple(range(0, 131_073, 4096)))
    assert read("context=0:128k:3") == ("context_tokens", (0, 65_536, 131_072))
    assert read("batch=1,2,4,2") == ("batch", (1, 2, 4))
    assert read("weights=Q4_K_M, Q8_0") == ("weights", ("Q4_K_M", "Q8_0"))
    assert read("kv=q8_0/f16,f16") == ("kv", ("q8_0/f16", "f16"))
    assert read("--cpu-moe=0:4:3") == ("cpu_moe_layers", (0, 2, 4))
    assert read("hardware.memory.bandwidth_gb_s=100:200:3") == ("hardware.memory.bandwidth_gb_s", (100, 150, 200))


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(2, 50))
def test_spaced_values_reach_both_ends_evenly(start: int, stop: int, count: int) -> None:
    values = spaced(start, stop, count, whole=True)
    assert (values[0], values[-1], len(values)) == (start, stop, count)
    assert all(abs(value - (start + (stop - start) * at / (count - 1))) <= 0.5 for at, value in enumerate(values))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def test_the_command_shows_the_numbers_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "sweep", MODEL, CARD, "--over", "context=0:16384:3", "--over", "batch=1,2", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert list(content)[:3] == ["schema_version", "rooflinellm_version", "data_version"]
    expected = rl.sweep(MODEL, CARD, context_tokens=[0, 8192, 16_384], batch=[1, 2])
    assert content["results"] == json.loads(expected.to_json())["results"]
    code, out, _ = run(capsys, "sweep", MODEL, CARD, MAC, "--over", "weights=Q4_K_M,Q8_0", "--format", "csv")
    assert (code, len(out.splitlines())) == (0, 5)
    assert "decode_tokens_per_s_expected" in out.splitlines()[0]
    assert (
        run(capsys, "sweep", MODEL, CARD, "--over", "batch=1,2", "--format", "md")[1].count("\n| ") == 4
    )  # head, rule, two rows


def test_the_command_writes_a_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for more in ((), ("--pareto",), ("--x", "batch", "--y", "aggregate")):
        file = tmp_path / "chart.svg"
        code, out, _ = run(capsys, "sweep", MODEL, CARD, "--over", "batch=1,2,4", "-o", str(file), *more)
        assert code == 0 and "Basis: calibrated" in " ".join(out.split())
        assert file.read_text(encoding="utf-8").startswith("<?xml")
        file.unlink()


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ((), 2, "--over: missing"),
        (("--over", "foo=1"), 2, "'foo' is no axis; there is prompt"),
        (("--over", "context"), 2, "write it like context=0:131072:33"),
        (("--over", "context=0:5"), 2, "neither start:stop:count"),
        (("--over", "context=0:9:0"), 2, "0 values"),
        (("--over", "context=0:9:9999999"), 2, "9,999,999 values"),
        (("--over", "context=x"), 2, "no whole number"),
        (("--over", "context=-5,1"), 2, "--context: -5 is not a whole number"),
        (("--over", "hardware.memory.bandwidth_gb_s=nan"), 2, "'nan' is no number"),
        (("--over", "hardware.nothing=1,2"), 2, "no field 'nothing'"),
        (("--over", "batch=1,2", "--batch", "3"), 2, "--over batch and --batch exclude each other"),
        (("--over", "batch=1", "--over", "batch=2"), 2, "given twice"),
        (("--over", "batch=1,2", "--x", "context", "-o", "a.png"), 2, "--x"),
        (("--over", "batch=1,2", "--pareto"), 2, "name its file with -o"),
        (("--over", "context=1,2", "--pareto", "-o", "a.png"), 2, "no axis 'batch'"),
        (("--over", "batch=1,2", "-o", "a.xyz"), 2, "a.xyz"),
        (("--over", "gpu-layers=0,8"), 2, "does not name"),
        (("--over", "kv=f16,f99"), 2, "f99"),
    ],
)
def test_mistakes_are_said_in_a_line(
    capsys: pytest.CaptureFixture[str], typed: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = run(capsys, "sweep", MODEL, CARD, *typed)
    assert (found, out) == (code, "")
    assert said in err


def test_blocks_hold_each_point_once() -> None:
    axes = {"context_tokens": np.arange(0, 5000, 250), "batch": [1, 3, 9], "weights": ["Q4_K_M", "Q8_0"]}
    whole = rl.sweep(MODEL, CARD, **axes)
    parts = list(rl.sweep_blocks(MODEL, CARD, block_points=13, **axes))
    assert max(part.size for part in parts) <= 13
    records = [record for part in parts for record in part.to_records()]
    assert records == whole.to_records()
    assert rl.sweep(MODEL, [CARD, "rtx-3090"]).to_records() == [
        record for part in rl.sweep_blocks(MODEL, [CARD, "rtx-3090"], block_points=1) for record in part.to_records()
    ]


def test_blocks_have_no_limit_but_their_own() -> None:
    parts = rl.sweep_blocks(MODEL, CARD, context_tokens=range(1000), batch=range(1, 1001), block_points=1000)
    first = next(parts)
    assert first.shape == (1, 1000)
    with pytest.raises(rl.InvalidRequest, match="block_points"):
        next(rl.sweep_blocks(MODEL, CARD, block_points=0))


def test_parts_warn_once_of_what_they_have_in_common() -> None:
    with pytest.warns(rl.RooflineWarning) as said:
        parts = list(rl.sweep_blocks(MODEL, CARD, block_points=100, batch=range(1, 1001), context_tokens=4096))
    assert len(said) == 1 and "does not fit at" in str(said[0].message)
    assert sum(bool(part.warnings) for part in parts) > 5


@pytest.mark.parametrize(
    ("shape", "most"), [((7, 5), 3), ((7, 5), 5), ((7, 5), 12), ((2, 3, 4), 8), ((), 1), ((9,), 4)]
)
def test_blocks_cover_a_grid(shape: tuple[int, ...], most: int) -> None:
    seen = np.zeros(shape, dtype=int)
    for block in blocks(shape, most):
        seen[block] += 1
        assert seen[block].size <= most
    assert (seen == 1).all()
