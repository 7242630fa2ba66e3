"""What stands around a table: notes of columns follow the columns, and what is left out is named."""

from __future__ import annotations

import re

import pytest

import rooflinellm as rl
from rooflinellm.cli import main
from rooflinellm.render import Column, Table

WIDE = Table(
    [Column("name", "left"), Column("rate", group="decode, each"), Column("why", "left", drop=1, note="why: because")],
    [["one", "1,000", "a long reason for it"]],
    notes=["always"],
)


def test_a_note_follows_its_column() -> None:
    assert "why: because" in WIDE.to_text()
    assert "why: because" in WIDE.to_text(WIDE.full_width)
    narrow = WIDE.to_text(WIDE.full_width - 1)
    assert "why" not in narrow and "always" in narrow
    assert "why: because" in WIDE.to_markdown() and "why: because" in WIDE.to_html()


def test_what_is_left_out_has_a_name() -> None:
    assert WIDE.left_out(WIDE.full_width) == []
    assert WIDE.left_out(WIDE.full_width - 1) == ["why"]
    two = Table([Column("a"), Column("b"), Column("range", group="decode, each", drop=1)], [["1", "2", "3" * 30]])
    assert two.left_out(20) == ["decode range"]


def test_figures_stay_on_one_line_in_notebooks() -> None:
    page = rl.compare("llama-3.1-8b", ["rtx-4090"])._repr_html_()
    assert re.search(r'<td style="text-align:left;white-space:nowrap">[\d,]+–[\d,]+</td>', page)
    assert re.search(r'<td style="text-align:right;white-space:nowrap">≤ 52,000</td>', page)
    long = Table([Column("x", "left")], [["word " * 20]]).to_html()
    assert "nowrap" not in long


@pytest.mark.parametrize(
    ("columns", "typed", "left_out"),
    [
        (80, ["compare", "llama-3.1-8b", "rtx-4090", "m3-max-40c"], "decode range"),
        (60, ["compare", "llama-3.1-8b", "rtx-4090", "m3-max-40c"], "GiB"),
        (200, ["compare", "llama-3.1-8b", "rtx-4090", "m3-max-40c"], ""),
        (70, ["estimate", "deepseek-v3", "8x h200-sxm", "--tp", "8"], "decode limit"),
        (60, ["recommend", "llama-3.1-8b", "--min-tokens-per-s", "30", "--hardware", "rtx-4090"], "J/token"),
    ],
)
def test_a_narrow_terminal_explains_what_it_shows(
    columns: int, typed: list[str], left_out: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(typed) == 0
    out = " ".join(capsys.readouterr().out.split())
    said = re.search(r"columns left out: (.*?); (COLUMNS=\d+) or -f md shows them", out)
    assert (said is None) == (not left_out)
    if said is None:
        return
    names = said[1].split(", ")
    assert left_out in names
    for name in names:
        heading = name.rpartition(" ")[2]
        assert f" {heading}: " not in out.partition("columns left out")[0]
    monkeypatch.setenv(*said[2].split("="))
    assert main(typed) == 0
    assert "columns left out" not in capsys.readouterr().out


def test_no_rates_where_it_does_not_fit() -> None:
    with pytest.warns(rl.RooflineWarning, match="does not fit"):
        found = rl.compare("llama-3.3-70b", ["rtx-4090", "2x rtx-3090"])
    rows = found.table().rows
    assert [row[1] for row in rows] == ["no", "no", "yes", "yes"]
    assert set(rows[0][4:-1]) == {"–"} and set(rows[1][4:-1]) == {"–"}
    assert "–" not in rows[2][4:-1]
    assert found.rows[0].estimates[0].decode.tokens_per_s.expected > 10  # the result has them, "as if"
    assert "RTX 4090 does not fit" in repr(found)
    assert any("no rates where it does not fit (RTX 4090)" in note for note in found.table().notes)


def test_a_short_pass_behind_context_is_told_from_long_prompts() -> None:
    said = "prefill of 512 more is one short pass; the rates of long prompts have passes of 2,048"
    assert said in rl.questions("llama-3.1-8b", "m3-max-40c", engine="mlx", contexts=[0, 512]).by_context.table().notes
    assert rl.estimate("llama-3.1-8b", "rtx-4090").prefill_chunk == 512
    assert not rl.questions("llama-3.1-8b", "rtx-4090", contexts=[0, 512]).by_context.table().notes
