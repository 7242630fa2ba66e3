"""Ways to share a model over devices: which there are, what a sweep and its front make of them."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

import rooflinellm as rl
from rooflinellm.api.frontier import frontier
from rooflinellm.cli.app import run
from rooflinellm.engine.parallel import Parallel

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.RooflineWarning")

DENSE, MIXTURE, EIGHT = "llama-3.3-70b", "qwen3-30b-a3b", "8x h100-sxm"
SERVED: dict[str, Any] = {"weights": "fp8", "engine": "vllm"}


def test_choices_of_a_dense_model() -> None:
    """2^3 = 8 devices are tensor x pipeline x data in (3 + 2 choose 2) = 10 ways; 64 heads and 8 KV heads allow all."""
    found = rl.parallel_choices(DENSE, EIGHT)
    assert len(found) == len(set(found)) == 10
    assert {(each.tensor, each.pipeline, each.data) for each in found} == {
        (t, p, d) for t, p, d in product((1, 2, 4, 8), repeat=3) if t * p * d == 8
    }
    assert {each.expert for each in found} == {1}
    assert [str(each) for each in found[:3]] == ["TP8", "TP4 DP2", "TP4 PP2"]
    assert rl.parallel_choices(DENSE, "h100-sxm") == (Parallel(),)


def test_heads_limit_tensor_parallelism() -> None:
    """Three devices divide none of 32 heads (Llama 3.1 8B), but 32 layers and the requests."""
    assert {str(each) for each in rl.parallel_choices("llama-3.1-8b", "3x h100-sxm")} == {"PP3", "DP3"}


def test_experts_go_to_the_whole_team_or_to_none() -> None:
    found = rl.parallel_choices(MIXTURE, EIGHT)  # 128 experts, 4 KV heads
    assert all(each.expert in (1, each.team) for each in found)
    assert Parallel(1, 1, 8, 8) in found
    assert Parallel(8, 1, 8, 1) in found


@pytest.mark.parametrize("choice", rl.parallel_choices(MIXTURE, "4x h100-sxm"), ids=str)
def test_every_choice_is_one_of_estimate(choice: Parallel) -> None:
    answer = rl.estimate(MIXTURE, "4x h100-sxm", **SERVED, **choice.keywords, batch=8)
    assert answer.decode.tokens_per_s.expected > 0


def test_devices_of_different_kinds_share_only_layers() -> None:
    with pytest.raises(rl.InvalidRequest, match="different kinds"):
        rl.parallel_choices(DENSE, "rtx-3090 + rtx-4090")


def test_a_sweep_over_all_choices_is_what_estimate_says() -> None:
    found = rl.sweep(DENSE, EIGHT, **SERVED, parallel="all", batch=[1, 64])
    assert list(found.axes) == ["parallel", "batch"]
    assert found.axes["parallel"] == rl.parallel_choices(DENSE, EIGHT)
    for choice in found.axes["parallel"][::4]:
        answer = rl.estimate(DENSE, EIGHT, **SERVED, **choice.keywords, batch=64)
        part = found.select(parallel=choice, batch=64)
        # Sums of numbers are compensated since Python 3.12, those of arrays are not.
        assert part.decode.tokens_per_s.expected == pytest.approx(answer.decode.tokens_per_s.expected, rel=1e-12)
        assert part.ttft_s.high == pytest.approx(answer.ttft_s.high, rel=1e-12)
    records = found.to_records()
    assert [row["parallel"] for row in records[::2]] == list(map(str, found.axes["parallel"]))
    assert (records[2]["tensor_parallel"], records[2]["data_parallel"]) == (4, 2)
    assert json.loads(found.to_json())["axes"]["parallel"][0] == "TP8"


def test_degrees_as_lists_leave_out_what_does_not_use_the_devices() -> None:
    found = rl.sweep(DENSE, EIGHT, **SERVED, tensor_parallel=[1, 2, 4, 8], data_parallel=np.array([1, 2, 4, 8]))
    assert [str(each) for each in found.axes["parallel"]] == ["DP8", "TP2 DP4", "TP4 DP2", "TP8"]
    assert found.notes == ("12 of 16 combinations of degrees do not share the model over 8 devices; left out",)
    assert found.notes[0] in found.table().notes
    fixed = rl.sweep(DENSE, EIGHT, **SERVED, tensor_parallel=[2, 4], data_parallel=2)
    assert [str(each) for each in fixed.axes["parallel"]] == ["TP4 DP2"]


@pytest.mark.parametrize(
    ("hardware", "axes", "says"),
    [
        (EIGHT, {"parallel": "some"}, "how devices share"),
        (EIGHT, {"parallel": []}, "how devices share"),
        (EIGHT, {"parallel": "all", "tensor_parallel": 8}, "give either"),
        (EIGHT, {"tensor_parallel": [3, 5]}, "none of the 2 combinations"),
        (EIGHT, {"tensor_parallel": ["many"]}, "tensor_parallel"),
        ([EIGHT, "4x h100-sxm"], {"parallel": "all"}, "4 and 8 devices"),
    ],
)
def test_what_is_no_way_to_share(hardware: Any, axes: dict[str, Any], says: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=says):
        rl.sweep(DENSE, hardware, **SERVED, **axes)


def test_the_best_keeps_to_the_limits_and_the_front_is_beaten_by_none() -> None:
    found = rl.best_parallel(DENSE, EIGHT, **SERVED, batches=(1, 8, 64, 256), max_tpot_s=0.015, max_ttft_s=3.0)
    assert found
    assert found.best in found.front
    for point in found.front:
        assert point.fits
        assert point.tpot_s.expected <= 0.015
        assert point.ttft_s.expected <= 3.0
        assert point.device_tokens_per_s.expected == pytest.approx(point.aggregate_tokens_per_s.expected / 8)
    able = [point for point in found.points if point.meets]
    assert found.best is not None
    assert found.best.device_tokens_per_s.expected == max(each.device_tokens_per_s.expected for each in able)
    x, y = (
        np.array([getattr(each, name).expected for each in able]) for name in ("tokens_per_s", "device_tokens_per_s")
    )
    assert [each.ahead for each in able] == frontier(x, y).tolist()
    again = rl.estimate(DENSE, EIGHT, **SERVED, **found.best.degrees, batch=found.best.batch)
    assert again.tpot_s.expected == found.best.tpot_s.expected


def test_every_way_is_shown_at_its_best() -> None:
    found = rl.best_parallel(DENSE, EIGHT, weights="bf16", engine="vllm", batches=(1, 64), max_tpot_s=0.02)
    assert found.by_way[0].parallel == "TP8"
    assert {point.parallel for point in found.by_way} == {str(each) for each in rl.parallel_choices(DENSE, EIGHT)}
    for point in found.by_way:
        alike = [each for each in found.points if each.parallel == point.parallel and each.meets]
        assert point.meets == bool(alike)
        if alike:
            assert point.device_tokens_per_s.expected == max(each.device_tokens_per_s.expected for each in alike)
    (alone,) = (point for point in found.by_way if point.parallel == "DP8")
    assert alone.fits is False  # 141 GB of weights on a device of 80 GB
    assert "does not fit" in found.tables()[1].to_text(120)


def test_limits_only_take_away() -> None:
    free = rl.best_parallel(DENSE, EIGHT, **SERVED, batches=(1, 64))
    tight = rl.best_parallel(DENSE, EIGHT, **SERVED, batches=(1, 64), max_tpot_s=0.0100)
    cautious = rl.best_parallel(DENSE, EIGHT, **SERVED, batches=(1, 64), max_tpot_s=0.0100, at="high")
    assert free.best is not None and tight.best is not None
    assert tight.best.device_tokens_per_s.expected < free.best.device_tokens_per_s.expected
    assert sum(point.meets for point in cautious.points) < sum(point.meets for point in tight.points)


def test_nothing_meets_the_impossible() -> None:
    found = rl.best_parallel(DENSE, "2x h100-sxm", **SERVED, batches=(1, 8), max_tpot_s=1e-4)
    assert not found
    assert found.best is None
    assert found.front == ()
    first, ways = (table.to_text(100) for table in found.tables())
    assert "nothing keeps to the limits" in first
    assert "too slow" in ways
    assert found.to_dict()["best"] is None


def test_systems_are_compared_at_their_best() -> None:
    found = rl.best_parallel(DENSE, ["8x h200-sxm", "8x b200"], **SERVED, batches=(1, 64), max_tpot_s=0.03)
    assert len(found.by_hardware) == 2
    assert "times the throughput of 8x H200" in found.tables()[0].to_text(200)
    first, second = found.by_hardware.values()
    assert second.device_tokens_per_s.expected > first.device_tokens_per_s.expected  # 8.0 against 4.8 TB/s


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"batch": 4}, "batches"),
        ({"batches": []}, "at least one"),
        ({"max_tpot_s": -1}, "max_tpot_s"),
        ({"at": "median"}, "at"),
        ({"prompt_tokens": [1, 2]}, "one value"),
        ({"tensor_parallel": 8}, "give either"),
    ],
)
def test_impossible_wishes(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=says):
        rl.best_parallel(DENSE, EIGHT, **SERVED, **asked)


def test_the_chart_draws_one_front_for_all_ways() -> None:
    found = rl.sweep(DENSE, EIGHT, **SERVED, parallel="all", batch=[1, 8, 64])
    ax = rl.plotting.pareto(found, max_tpot_s=0.02)
    (front,) = (line for line in ax.lines if str(line.get_gid()).startswith("frontier"))
    each, together = found.decode.tokens_per_s.expected, found.decode.aggregate_tokens_per_s.expected / 8
    assert max(front.get_ydata()) == pytest.approx(together.max())  # type: ignore[arg-type]
    assert max(front.get_xdata()) == pytest.approx(each.max())  # type: ignore[arg-type]
    (limit,) = (line for line in ax.lines if line.get_gid() == "limit")
    assert limit.get_xdata()[0] == pytest.approx(50)  # type: ignore[index]
    ax.figure.canvas.draw()
    assert "TP8, 1" in {text.get_text() for text in ax.texts}
    assert "by device" in rl.plotting.describe(ax)
    with pytest.raises(rl.InvalidRequest, match="max_tpot_s"):
        rl.plotting.pareto(found, max_tpot_s=0)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart = tmp_path / "front.png"
    start = ["sweep", DENSE, EIGHT, "-w", "fp8", "--parallel"]
    assert run([*start, "--over", "batch=1,8,64", "--pareto", "-o", str(chart), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["best"]["parallel"] in {point["parallel"] for point in answer["front"]}
    assert {point["batch"] for point in answer["points"]} == {1, 8, 64}
    assert chart.stat().st_size > 0
    assert run([*start, "-b", "8", "--max-tpot", "0.0001"]) == 1
    assert "nothing keeps to the limits" in capsys.readouterr().out
    for wrong, says in (
        (["--over", "context=1,2"], "not over context"),
        (["--tp", "8"], "leave out --tp"),
        (["--max-tpot", "fast"], "--max-tpot"),
        (["--pareto"], "name its file"),
        (["--plot"], "leave out --x and --plot"),
    ):
        assert run([*start, *wrong]) == 2
        assert says in capsys.readouterr().err
    assert run(["sweep", DENSE, EIGHT, "--max-tpot", "1"]) == 2
    assert run(["sweep", DENSE, EIGHT]) == 2
    assert "--over" in capsys.readouterr().err
