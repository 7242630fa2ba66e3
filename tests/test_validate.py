"""Predicted against measured: statistics with known answers, files of rows, and the command."""

import csv
import gzip
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm._resources import database
from rooflinellm.api.validate import validate
from rooflinellm.cli.terminal import progress
from rooflinellm.errors import InvalidRequest, InvalidSpec, UnreadableFile
from rooflinellm.measurements.accuracy import ROW_COLUMNS, RowResult, ValidationResult, accuracy_of
from rooflinellm.measurements.population import AT_DEPTH

COLUMNS = (
    "id", "device", "device_count", "backend", "engine", "model", "hf_model_id", "arch_note", "quant", "ngl",
    "test_kind", "prompt_tokens", "gen_tokens", "depth_tokens", "tokens_per_s", "quality", "population",
)  # fmt: skip


def line(**cells: Any) -> dict[str, Any]:
    base = {
        "device": "NVIDIA GeForce RTX 3090", "device_count": 1, "backend": "CUDA", "engine": "llama.cpp",
        "hf_model_id": "meta-llama/Meta-Llama-3-8B", "arch_note": "dense", "quant": "Q4_K_M", "ngl": 99,
        "test_kind": "decode", "prompt_tokens": 0, "gen_tokens": 128, "depth_tokens": 0, "quality": "A",
        "population": "gpu_mainline",
    }  # fmt: skip
    return base | cells


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(lines)
    return path


def expected(**keywords: Any) -> Any:
    arguments = {"prompt_tokens": 0, "output_tokens": 128} | keywords
    estimate = rl.estimate("llama-3-8b", "rtx-3090", weights="Q4_K_M", engine="llama.cpp:cuda", **arguments)
    return estimate.decode.tokens_per_s


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rate, deep = expected(), expected(context_tokens=4096)
    large = rl.estimate("llama-3-8b", "rtx-3090", weights="Q8_0", prompt_tokens=0).decode.tokens_per_s
    lines = [
        line(id="exact", tokens_per_s=rate.expected),
        line(id="again", tokens_per_s=rate.expected / 1.2),
        line(id="and again", tokens_per_s=rate.expected / 1.1),
        line(id="impossible", tokens_per_s=large.ideal * 1.5, quant="Q8_0"),
        line(id="deep", tokens_per_s=deep.expected / 1.1, depth_tokens=4096),
        line(id="elsewhere", device="NVIDIA GeForce RTX 4090", tokens_per_s=100, quality="B"),
        line(id="rumour", tokens_per_s=1, quality="C"),
        line(id="nobody", device="Abacus 3000", tokens_per_s=1, quality="B"),
        line(id="broken", tokens_per_s="fast"),
    ]
    return write(tmp_path / "rows.csv", lines)


def row(error: float, device: str = "a", series: object = None, **changed: Any) -> RowResult:
    """A row whose prediction is faster by so many percent."""
    measured = RowResult(
        id="x", phase="decode", measured=100.0, unit="tokens/s", status="predicted", ideal=200.0,
        expected=100.0 * (1 + error), low=90.0, high=120.0, population="p", device=device, series=series or object(),
    )  # fmt: skip
    return replace(measured, **changed)


def test_a_series_has_one_vote_and_devices_weigh_the_same() -> None:
    same = object()
    repeats = [row(0.5, series=same), row(0.5, series=same), row(0.1, series=same)]
    found = accuracy_of("all", [*repeats, row(0.1), row(0.2, device="b")])
    assert found is not None
    assert (found.rows, found.series, found.devices) == (5, 3, 2)
    # series of a: 0.5 and 0.1, half a vote each; of b: 0.2, a whole one
    assert found.mdape == pytest.approx(0.2)
    assert found.p90 == pytest.approx(0.5)
    assert found.bias == pytest.approx(math.log(1.2))
    assert (found.coverage, found.width, found.above_ideal) == (1.0, pytest.approx(120 / 90), 0.0)


def test_an_error_of_times_is_too_slow_where_the_time_is_too_long() -> None:
    found = accuracy_of("all", [row(0.25, unit="s", low=90.0, ideal=50.0)])
    assert found is not None
    assert found.bias == pytest.approx(-math.log(1.25))
    assert found.mdape == pytest.approx(0.25)  # of the number itself
    assert found.above_ideal == 0.0
    fast = row(0.0, unit="s", ideal=110.0)
    assert fast.above_ideal == pytest.approx(1.1)


def test_nothing_has_no_accuracy() -> None:
    assert accuracy_of("all", []) is None
    empty = ValidationResult(())
    assert empty.overall is None and empty.by("device") == () and empty.coverage == {}
    assert "Coverage" in empty.to_text()


def test_intervals_that_miss_and_rows_without_a_bound() -> None:
    rows = [row(0.0, ideal=None), row(0.0, low=101.0, ideal=None)]
    found = accuracy_of("all", rows)
    assert found is not None
    assert (found.coverage, found.above_ideal) == (0.5, None)


def test_a_table(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    result = validate(table, rows_out=out)
    by_id = {each.id: each for each in result.rows}
    assert len(result.rows) == 9
    assert by_id["exact"].expected == pytest.approx(by_id["exact"].measured)
    assert by_id["rumour"].reason == "quality C was not asked for"
    assert by_id["nobody"].reason == "no entry for device 'Abacus 3000'"
    assert by_id["broken"].reason.startswith("the row cannot be read")
    assert result.coverage == {"A": (5, 6), "B": (1, 2)}
    assert dict(result.skipped) == {"no entry for device 'Abacus 3000'": 1, "the row cannot be read": 1}
    (above,) = result.above_ideal
    assert (above.example, above.rows, above.worst) == ("impossible", 1, pytest.approx(1.5))
    (deep,) = [each for each in result.by("population") if each.name == AT_DEPTH]
    # 1.1 too fast at depth, and 1.1 (the median of three) at depth 0: the slow-down itself is right
    assert deep.mdape == pytest.approx(0, abs=1e-9)
    assert {each.name for each in result.by("device")} == {"nvidia-geforce-rtx-3090", "nvidia-geforce-rtx-4090"}
    assert {each.name for each in result.by("engine")} == {"llama.cpp:cuda"}
    with open(out, newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        written = list(reader)
    assert tuple(reader.fieldnames or ()) == ROW_COLUMNS
    assert [each["id"] for each in written] == [each.id for each in result.rows]
    assert written[0]["status"] == "predicted" and written[-1]["status"] == "skipped"
    assert float(written[0]["expected"]) == pytest.approx(by_id["exact"].expected)
    assert float(written[0]["low"]) <= float(written[0]["expected"]) <= float(written[0]["high"])
    assert float(written[0]["high"]) <= float(written[0]["ideal"])
    assert written[7]["expected"] == "" and written[7]["measured"] == "1"


def test_quality_c_is_scored_when_asked(table: Path) -> None:
    result = validate(table, quality="abc")
    assert result.quality == "ABC"
    assert {each.id for each in result.rows if each.status == "skipped"} == {"nobody", "broken"}
    assert validate(table, quality="B").coverage == {"B": (1, 2)}
    for wrong in ("", "D", "AX"):
        with pytest.raises(InvalidRequest):
            validate(table, quality=wrong)


def test_what_a_file_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "bench.md"
    path.write_text(
        "| model | size | params | backend | ngl | test | t/s |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | CUDA | 99 | tg128 | 100.00 ± 1.00 |\n",
        encoding="utf-8",
    )
    assert validate(path).rows[0].reason == "the row names no device"
    one, two = validate(path, hardware="rtx-3090").rows[0], validate(path, hardware="2x rtx-3090").rows[0]
    assert (one.status, one.device, two.device) == (
        "predicted",
        "nvidia-geforce-rtx-3090",
        "2x nvidia-geforce-rtx-3090",
    )
    assert one.quality == ""
    assert validate(path, hardware="rtx-3090").coverage == {"": (1, 1)}


def test_files(table: Path, tmp_path: Path) -> None:
    assert len(validate([table, table]).rows) == 18
    assert len(validate(str(table)).rows) == 9
    with pytest.raises(InvalidRequest):
        validate([])
    with pytest.raises(UnreadableFile):
        validate(tmp_path / "nothing.csv")
    with pytest.raises(UnreadableFile):
        validate(table, rows_out=tmp_path / "no" / "folder.csv")
    (tmp_path / "words.txt").write_text("some words", encoding="utf-8")
    with pytest.raises(InvalidSpec):
        validate(tmp_path / "words.txt")


def test_plain_values(table: Path) -> None:
    result = validate(table)
    plain = json.loads(result.to_json())
    assert plain["coverage"]["A"] == {"predicted": 5, "rows": 6}
    assert plain["by_population"][0]["rows"] == 6
    assert plain["above_ideal"][0]["example"] == "impossible"
    assert result.to_records()[0]["id"] == "exact"
    assert "ValidationResult(6 of 9 rows predicted" in repr(result)
    assert "<table>" in result._repr_html_()
    assert len(result.to_dataframe()) == 9
    with pytest.raises(InvalidRequest):
        result.by("colour")  # type: ignore[arg-type]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    code = "import sys; from rooflinellm.cli.app import run; sys.exit(run())"
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-c", code, "validate", *map(str, arguments)],
        capture_output=True, text=True, encoding="utf-8", env=environment, check=False,
    )  # fmt: skip


def test_the_command(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    shown = command(table, "--rows", out)
    assert shown.returncode == 0 and shown.stderr == ""
    assert "decode dense, gpu_mainline" in shown.stdout and "Rows above the ideal" in shown.stdout
    assert len(out.read_text(encoding="utf-8").splitlines()) == 10
    answer = json.loads(command(table, "--json", "--by", "device").stdout)
    assert {each["name"] for each in answer["by_device"]} == {"nvidia-geforce-rtx-3090", "nvidia-geforce-rtx-4090"}
    assert answer["schema_version"] == 1
    lines = command(table, "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("name,rows,series,devices,mdape")


def test_exit_codes_of_the_command(table: Path, tmp_path: Path) -> None:
    assert command(table, "--max-error", "1000").returncode == 0
    failed = command(table, "--max-error", "0.1")
    assert failed.returncode == 1 and "more than 0.1 %" in failed.stderr
    assert command(table, "--by", "colour").returncode == 2
    assert command(tmp_path / "nothing.csv").returncode == 3
    (tmp_path / "words.txt").write_text("some words", encoding="utf-8")
    assert command(tmp_path / "words.txt").returncode == 3
    nothing = write(tmp_path / "nothing_predicted.csv", [line(id="1", device="Abacus 3000", tokens_per_s=1)])
    assert command(nothing, "--max-error", "50").returncode == 1
    assert command(nothing).returncode == 0


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of the shipped results of Apple devices: two groups of kernels, quickly fitted."""
    with gzip.open(
        str(database("hardware_db") / "measurements" / "single-user.csv.gz"), "rt", encoding="utf-8"
    ) as file:
        reader = csv.DictReader(file)
        lines = [each for each in reader if each["device"].startswith("Apple")][::3]
    path = tmp_path_factory.mktemp("shipped") / "metal.csv"
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, reader.fieldnames or ())
        writer.writeheader()
        writer.writerows(lines)
    return path


@pytest.mark.parametrize("key", ["series", "device"])
def test_held_out(metal: Path, key: Any) -> None:
    told: list[tuple[int, int]] = []
    found, seen = validate(metal, leave_out=key, progress=lambda done, of: told.append((done, of))), validate(metal)
    assert found.left_out == key and seen.left_out is None
    assert told == sorted(told) and told[-1][0] == told[-1][1]
    assert len(found.rows) == len(seen.rows)
    assert found.overall is not None and seen.overall is not None
    # What was not seen is predicted worse, and said to be less certain.
    assert found.overall.mdape > seen.overall.mdape
    assert found.overall.above_ideal == pytest.approx(seen.overall.above_ideal, rel=1e-12)  # the bound is not fitted
    assert f"each {key} left out" in found.to_text() and "left out" not in seen.to_text()
    assert found.to_dict()["left_out"] == key
    for each in found.predicted:
        assert each.low is not None and each.expected is not None and each.high is not None
        assert each.low <= each.expected <= each.high


def test_a_device_that_is_left_out_has_no_say(metal: Path, tmp_path: Path) -> None:
    with open(metal, newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        lines = list(reader)
    found = validate(metal, leave_out="device")
    device = found.predicted[0].device
    own = {each.id for each in found.rows if each.device == device}
    for each in lines:
        if each["id"] in own:
            each["tokens_per_s"] = str(float(each["tokens_per_s"]) * 0.8)
    path = tmp_path / "slower.csv"
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, reader.fieldnames or ())
        writer.writeheader()
        writer.writerows(lines)
    slower = validate(path, leave_out="device")
    pairs = [pair for pair in zip(found.rows, slower.rows, strict=True) if pair[0].status == "predicted"]
    for first, second in pairs:
        if first.device == device:
            assert second.measured == pytest.approx(0.8 * (first.measured or 0))
            assert second.expected == pytest.approx(first.expected, rel=1e-9)
    assert any(first.expected != second.expected for first, second in pairs)


def test_what_cannot_be_left_out(table: Path, metal: Path) -> None:
    with pytest.raises(InvalidRequest, match="too few"):
        validate(table, leave_out="series")
    with pytest.raises(InvalidRequest, match="colour"):
        validate(metal, leave_out="colour")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="none can be named"):
        validate(metal, leave_out="device", profile="nominal")
    shown = command(metal, "--leave-out", "series")
    assert shown.returncode == 0 and shown.stderr == ""  # no progress where nobody watches
    assert "each series left out" in shown.stdout
    assert command(table, "--leave-out", "device").returncode == 2
    assert command(table, "--leave-out", "colour").returncode == 2


def test_progress_is_one_line_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress("fitting") as told:
        assert told is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress("fitting") as told:
        assert told is not None
        told(1, 4)
    shown = capsys.readouterr()
    assert "fitting:  25%" in shown.err and shown.err.endswith("\r") and "\n" not in shown.err and shown.out == ""
