"""Charts use their width: labels stay inside, nothing is left empty, and only what is drawn has a key."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

import rooflinellm as rl
from rooflinellm.plotting.series import text_width

MODEL = "llama-3.1-8b"
COMPARED = rl.compare(MODEL, ["rtx-4090", "m3-max-40c", "2x rtx-3090"])
MOVED = rl.sensitivity(MODEL, "rtx-4090", with_swaps=False)


def drawn(chart: Any, of: Any, size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained")
    ax = chart(of, ax=figure.subplots())
    figure.canvas.draw()
    return figure, ax


def ends(ax: Any, start: str) -> list[tuple[float, float]]:
    """Left and right ends of the texts whose id begins so, in parts of the axes' width."""
    box = ax.get_window_extent()
    texts = [text.get_window_extent() for text in ax.texts if str(text.get_gid()).startswith(start)]
    return [((each.x0 - box.x0) / box.width, (each.x1 - box.x0) / box.width) for each in texts]


@pytest.mark.parametrize("size", [(9.0, 5.2), (5.2, 4.2)])
def test_labels_of_a_comparison_fill_its_width(size: tuple[float, float]) -> None:
    figure, ax = drawn(rl.plotting.compare, COMPARED, size)
    right = max(end for _, end in ends(ax, "label-"))
    assert 0.75 < right <= 1
    name = ax.xaxis.label.get_window_extent()
    assert name.x0 >= 0 and name.x1 <= figure.bbox.width


@pytest.mark.parametrize("size", [(9.0, 5.2), (5.2, 4.2)])
def test_labels_of_a_sensitivity_stay_inside(size: tuple[float, float]) -> None:
    _, ax = drawn(rl.plotting.sensitivity, MOVED, size)
    assert all(left >= 0 and right <= 1 for left, right in ends(ax, "label-"))


def test_the_table_and_the_chart_of_a_sensitivity_say_the_same() -> None:
    _, ax = drawn(rl.plotting.sensitivity, MOVED, (9.0, 5.2))
    row = next(row for row in MOVED.tables()[0].rows if row[0] == "memory bandwidth")
    said = {text.get_text() for text in ax.texts}
    assert f"{row[2]}, ideal {row[3]}".replace(" %", "") in said
    assert "10 % more" in ax.get_xlabel() and "10 % more" in MOVED.tables()[0].columns[0].heading


def test_only_what_is_drawn_has_a_key() -> None:
    def keys(of: Any) -> list[str]:
        _, ax = drawn(rl.plotting.timeline, of, (9.0, 5.2))
        return [text.get_text() for text in ax.get_legend().get_texts()]

    assert keys(rl.estimate(MODEL, "rtx-4090")) == ["prefill", "decode", "first token"]
    assert keys(rl.estimate(MODEL, "rtx-4090", queue_s=1.0))[0] == "waiting"


def test_small_print_over_a_band_has_no_halo() -> None:
    _, ax = drawn(rl.plotting.sweep, rl.sweep(MODEL, ["rtx-4090", "m3-max-40c"], context_tokens=[0, 65536]), (9.0, 5.2))
    texts = [each for each in ax.findobj() if str(getattr(each, "get_gid", lambda: "")() or "").startswith("label-")]
    halos = {str(text.get_gid()): text.halo for text in texts if hasattr(text, "halo")}
    assert halos.pop("label-notes", False) is False
    assert halos and all(halos.values())


def test_width_of_a_text_is_that_of_its_longest_line() -> None:
    assert text_width("", 8) == 0
    assert text_width("wide words\nw", 8) == pytest.approx(text_width("wide words", 8))
    assert text_width("wide words", 16) == pytest.approx(2 * text_width("wide words", 8), rel=0.02)
