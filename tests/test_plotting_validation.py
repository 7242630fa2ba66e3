"""The validation chart: points and band where the numbers say, words that count them, nothing global touched."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

import rooflinellm as rl
from rooflinellm.cli import main
from rooflinellm.measurements.accuracy import RowResult, ValidationResult
from rooflinellm.plotting import style

matplotlib.use("Agg")

NUMBER = itertools.count()


def row(measured: float | None, expected: float | None, **changed: Any) -> RowResult:
    made = RowResult(
        id="x", phase="decode", measured=measured, unit="tokens/s", status="predicted", ideal=1e6, expected=expected,
        engine="llama.cpp:cuda", device="a", model="m", population="p", series=next(NUMBER),
    )  # fmt: skip
    return replace(made, **changed)


def result(*rows: RowResult) -> ValidationResult:
    return ValidationResult(rows)


MIXED = result(
    row(100, 110),
    row(50, 100, engine="mlx", device="b"),
    row(1000, 1100, phase="prefill"),
    row(2000, 1500, phase="prefill"),
    row(10, 9, engine=""),
    row(None, None, status="skipped"),
    row(0.5, 0.6, unit="s", phase="ttft"),
)


def empty_axes(size: float = 6.0) -> Axes:
    """Return axes of a figure that pyplot does not know."""
    figure = Figure(figsize=(size, size), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots()


def chart(of: ValidationResult = MIXED, *, size: float = 6.0, **keywords: Any) -> Axes:
    ax = rl.plotting.validation(of, ax=empty_axes(size), **keywords)
    ax.figure.canvas.draw()
    return ax


def points(ax: Axes) -> dict[str, PathCollection]:
    return {str(each.get_gid()): each for each in ax.collections if isinstance(each, PathCollection)}


def caption(ax: Axes) -> str:
    (found,) = [text.get_text() for text in ax.texts if text.get_gid() == "caption"]
    return found.replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")


def legend(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_both_axes_are_logarithmic_and_the_same() -> None:
    ax = chart()
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_aspect()) == ("log", "log", 1.0)
    assert ax.get_xlim() == ax.get_ylim()
    low, high = ax.get_xlim()
    assert low < 9 and high > 2000
    assert "tokens/s" in ax.get_xlabel() and "tokens/s" in ax.get_ylabel()
    box = ax.get_window_extent()
    assert box.width == pytest.approx(box.height, rel=1e-3)


def test_the_band_is_20_percent_around_the_diagonal() -> None:
    ax = chart()
    lines = {each.get_gid(): np.asarray(each.get_data(), float) for each in ax.lines}
    for gid, ratio in (("diagonal", 1.0), ("band-below", 0.8), ("band-above", 1.2)):
        measured, predicted = lines[gid]
        assert predicted / measured == pytest.approx([ratio] * 2)
        assert measured[0] < ax.get_xlim()[0] and measured[1] > ax.get_xlim()[1]
    (band,) = [each for each in ax.patches if each.get_gid() == "band"]
    corners = band.get_xy()
    assert {round(y / x, 9) for x, y in corners} == {0.8, 1.2}
    assert "±20 %" in caption(ax)


def test_a_point_a_rate_and_no_ideal() -> None:
    drawn = points(chart())
    places = np.ma.vstack([each.get_offsets() for each in drawn.values()])
    expected = {(100, 110), (50, 100), (1000, 1100), (2000, 1500), (10, 9)}
    assert sorted(map(tuple, places.tolist())) == sorted(expected)


def test_decode_is_filled_and_prefill_hollow_in_the_colour_of_the_group() -> None:
    ax = chart(point_kwargs={"alpha": 1.0})
    drawn = points(ax)
    blue = to_rgba(style.BLUE)
    assert tuple(drawn["decode-0"].get_facecolor()[0]) == blue
    assert len(drawn["prefill-0"].get_facecolor()) == 0
    assert tuple(drawn["prefill-0"].get_edgecolor()[0]) == blue
    assert legend(ax)[-2:] == ["filled: decode", "hollow: prefill"]


def test_groups_differ_in_colour_and_shape_and_are_named() -> None:
    ax = chart()
    assert [label.split(" · ")[:2] for label in legend(ax)[:3]] == [
        ["llama.cpp:cuda", "3"],
        ["mlx", "1"],
        ["not stated", "1"],
    ]
    handles = ax.get_legend().legend_handles[:3]
    assert len({each.get_marker() for each in handles}) == len({each.get_markerfacecolor() for each in handles}) == 3
    assert ax.get_legend().get_title().get_text().startswith("engine")


def test_more_groups_than_colours_leave_the_smallest_together() -> None:
    rows = [row(100 + n, 120, model=f"m{n}") for n in range(10) for _ in range(10 - n)]
    ax = chart(result(*rows), by="model")
    names = [label.split(" · ")[:2] for label in legend(ax)]
    assert names[:2] == [["m0", "10"], ["m1", "9"]]
    assert names[-1] == ["4 others", "10"]
    assert sum(len(each.get_offsets()) for each in points(ax).values()) == len(rows)


@pytest.mark.parametrize("by", ["population", "phase", "device"])
def test_other_groupings(by: Any) -> None:
    assert f"By {by}: " in rl.plotting.describe(chart(by=by))


def test_long_names_lose_their_middle_and_small_charts_the_numbers() -> None:
    ax = chart(result(row(10, 10, model="a" * 50 + "z"), row(10, 10, model="$m_1$")), by="model", size=3.5)
    long, plain = sorted(legend(ax), key=len, reverse=True)
    assert "…" in long and long.endswith("z") and len(long) < 30
    assert plain == "$m_1$"
    assert "device" not in caption(ax)


def test_the_caption_counts_and_says_the_median_error() -> None:
    text = caption(chart(note="of last year"))
    rates = result(*(each for each in MIXED.rows if each.unit == "tokens/s"))
    assert rates.overall is not None
    assert "5 results on 2 devices" in text
    assert f"median error {100 * rates.overall.mdape:.0f} %" in text
    assert "without 1 time in seconds" in text and "of last year" in text


def test_the_description() -> None:
    ax = chart(note="of last year")
    text = rl.plotting.describe(ax)
    assert "from 9.00 to 2,000 tokens/s" in text
    assert "5 results on 2 devices" in text and "of last year" in text
    assert "decode 3, prefill 2" in text
    assert "60 % of the points lie in the band of ±20 %" in text and "60 % above the diagonal" in text
    assert "mlx: 1 result, median error 100 %" in text


def test_the_edge_of_the_band_is_inside() -> None:
    text = rl.plotting.describe(chart(result(row(100, 120), row(100, 80), row(100, 121))))
    assert "67 % of the points" in text


def test_a_single_point_has_axes_with_ticks() -> None:
    ax = chart(result(row(100, 100)))
    low, high = ax.get_xlim()
    assert high / low >= 9.99
    assert len([tick for tick in ax.get_xticks() if low <= tick <= high]) >= 2


def test_many_points_are_small_faint_and_a_picture_in_vector_files(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    measured = 10 ** random.uniform(0, 4, 5000)
    rows = [row(float(m), float(m * f)) for m, f in zip(measured, random.lognormal(0, 0.2, 5000), strict=True)]
    many, few = chart(result(*rows)), chart()
    (cloud,) = points(many).values()
    assert len(cloud.get_offsets()) == 5000 and cloud.get_rasterized()
    lone = points(few)["decode-0"]
    assert cloud.get_sizes()[0] < lone.get_sizes()[0] and cloud.get_alpha() < lone.get_alpha()
    assert not lone.get_rasterized()
    rl.plotting.save(many, tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 400_000


def test_the_axes_given_are_drawn_on_and_returned() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert rl.plotting.validation(MIXED, ax=right, legend=False) is right
    assert right.collections and not left.collections
    assert right.get_legend() is None


def test_without_axes_there_is_a_new_figure() -> None:
    from matplotlib import pyplot as plt

    ax = rl.plotting.validation(MIXED)
    try:
        assert plt.fignum_exists(ax.figure.number)
    finally:
        plt.close(ax.figure)


def test_global_settings_stay_as_they_are() -> None:
    before = dict(matplotlib.rcParams)
    chart()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("of", "keywords", "message"),
    [
        ("llama", {}, "str is no result"),
        (result(), {}, "no row was predicted"),
        (result(row(None, None, status="skipped")), {}, "no row was predicted"),
        (result(row(1.0, 1.0, unit="s")), {}, "only times"),
        (result(row(0.0, 1.0)), {}, "not above 0"),
        (result(row(1.0, float("nan"))), {}, "not above 0"),
        (result(row(1.0, None)), {}, "not above 0"),
        (MIXED, {"by": "colour"}, "population, engine"),
        (MIXED, {"by": ["engine"]}, "population, engine"),
        (MIXED, {"ax": 3}, "no matplotlib axes"),
        (MIXED, {"ax": Figure().add_subplot(projection="polar")}, "no diagonal"),
        (MIXED, {"label_size": 0}, "size in points"),
        (MIXED, {"note": 3}, "no text"),
    ],
)
def test_mistakes(of: Any, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(rl.RooflineError, match=message):
        rl.plotting.validation(of, **{"ax": empty_axes(), **keywords})


TABLE = """id,device,engine,backend,hf_model_id,quant,ngl,test_kind,gen_tokens,depth_tokens,tokens_per_s,quality
one,NVIDIA GeForce RTX 3090,llama.cpp,CUDA,meta-llama/Meta-Llama-3-8B,Q4_K_M,99,decode,128,0,130,A
"""


def test_the_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text(TABLE, encoding="utf-8")
    out = tmp_path / "chart.svg"
    assert main(["validate", str(tmp_path / "rows.csv"), "--plot", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "1 result on 1 device" in text and "llama.cpp:cuda" in text
    assert "fitted to" not in text  # the user's results, not those that come with the program
    assert "population" in capsys.readouterr().out
    assert main(["validate", str(tmp_path / "rows.csv"), "--plot", str(out), "--by", "model"]) == 0
    assert "By model: llama-3-8b" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "message"), [("chart.gif", ".png, .svg, .pdf"), ("no/chart.png", "no folder"), ("d.png", "is a folder")]
)
def test_the_command_says_before_it_starts_that_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    (tmp_path / "d.png").mkdir()
    assert main(["validate", "--plot", str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out
