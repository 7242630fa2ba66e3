"""Charts of memory and of placements: the bars and lines are the library's numbers, and the words count them."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

import rooflinellm as rl
from rooflinellm.api.fit import fit
from rooflinellm.errors import InvalidRequest, RooflineError, RooflineWarning
from rooflinellm.units import GIB

matplotlib.use("Agg")

RIG = "rtx-4090 + ddr5-6000x2@64GiB"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        yield


def empty_axes(width: float = 8.0, height: float = 5.0) -> Axes:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots()


def bars(ax: Axes) -> dict[str, Rectangle]:
    return {str(each.get_gid()): each for each in ax.patches if isinstance(each, Rectangle)}


def lines(ax: Axes) -> dict[str, Any]:
    return {str(each.get_gid()): each for each in ax.lines if each.get_gid()}


# --- memory


@pytest.mark.parametrize("hardware", ["rtx-4090", RIG, "2x rtx-3090 + ddr5-6000x2@32GiB"])
def test_bars_are_the_parts_of_the_memory_plan(hardware: str) -> None:
    answer = rl.estimate("llama-3.3-70b", hardware, prompt_tokens=4096)
    ax = rl.plotting.memory(answer, ax=empty_axes())
    found = bars(ax)
    for part in answer.memory.placement:
        for name, size in (("weights", part.weight_bytes), ("KV cache", part.kv_bytes)):
            if size:
                assert found[f"{part.device} {name}"].get_width() == pytest.approx(size / GIB)
        own = [each.get_width() for gid, each in found.items() if gid.startswith(part.device + " ")]
        assert sum(own) == pytest.approx(part.bytes / GIB)
        assert part.usable_bytes is not None
        line = lines(ax)[f"{part.device} usable"]
        assert line.get_xdata() == pytest.approx([part.usable_bytes / GIB] * 2)
    rows = [found[f"{part.device} weights"].get_y() for part in answer.memory.placement]
    assert rows == sorted(rows, reverse=True)


def test_memory_in_words() -> None:
    text = rl.plotting.describe(rl.plotting.memory(rl.estimate("llama-3.3-70b", "rtx-4090"), ax=empty_axes()))
    assert "It does not fit" in text
    assert "too much" in text
    result = fit("llama-3.3-70b", RIG)
    text = rl.plotting.describe(rl.plotting.memory(result, ax=empty_axes()))
    assert "It fits. RTX 4090: 23.3 of 23.6 GiB" in text
    assert f"Host: {result.memory.placement[1].bytes / GIB:.1f} of 64.0 GiB" in text


def test_a_capacity_far_off_is_written_and_not_drawn() -> None:
    answer = rl.estimate("llama-3.3-70b", "rtx-4090 + ddr5-6000x2@512GiB")
    ax = rl.plotting.memory(answer, ax=empty_axes())
    assert "host usable" not in lines(ax)
    assert ax.get_xlim()[1] < 64
    assert any("of 512 GiB" in text.get_text() for text in ax.texts)
    drive = rl.estimate("qwen3-235b-a22b", f"{RIG} + nvme-gen4@2TB")
    ax = rl.plotting.memory(drive, ax=empty_axes())
    assert any(text.get_text().startswith("Drive: ") for text in ax.texts)


def test_what_has_no_memory_to_draw() -> None:
    wrong: list[Any] = ["llama-3.1-8b", None, rl.estimate("llama-3.1-8b", "rtx-4090", batch=[1, 2])]
    for each in wrong:
        with pytest.raises(InvalidRequest, match="answer"):
            rl.plotting.memory(each)


@pytest.mark.parametrize(("width", "height"), [(8.0, 5.0), (4.2, 3.2)])
def test_names_of_bars_are_inside_and_apart(width: float, height: float) -> None:
    answer = rl.estimate("gpt-oss-120b", "2x rtx-3090 + ddr5-6000x2@96GiB", prompt_tokens=512)
    ax = rl.plotting.memory(answer, ax=empty_axes(width, height))
    figure: Any = ax.figure
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 3
    frame = ax.get_window_extent()
    for index, box in enumerate(boxes):
        assert frame.x0 - 1 <= box.x0
        assert box.x1 <= frame.x1 + 1
        assert not any(box.overlaps(other) for other in boxes[:index])
        assert not any(box.overlaps(bar.get_window_extent().padded(-0.5)) for bar in bars(ax).values())


# --- offload


@pytest.fixture(scope="module")
def chart() -> Axes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        ax = rl.plotting.offload("llama-3.3-70b", RIG, ax=empty_axes(), prompt_tokens=512)
        figure: Any = ax.figure
        figure.canvas.draw()
        return ax


def test_lines_are_estimates_by_layers(chart: Axes) -> None:
    edge = rl.estimate("llama-3.3-70b", RIG, prompt_tokens=512).workload["gpu_layers"]
    found = lines(chart)
    for phase in ("decode", "prefill"):
        fitting = found[f"{phase}-0"]
        numbers = [int(number) for number in fitting.get_xdata()]
        assert numbers == list(range(edge + 1))
        for number in (0, 20, edge):
            answer = rl.estimate("llama-3.3-70b", RIG, prompt_tokens=512, gpu_layers=number)
            rate = getattr(answer, phase).tokens_per_s.expected
            assert fitting.get_ydata()[number] == pytest.approx(rate, rel=1e-9)
        beyond = found[f"{phase}-{edge + 1}"]
        assert (beyond.get_xdata()[0], beyond.get_xdata()[-1]) == (edge, 81)
        assert found[f"{phase}-best"].get_xdata()[0] == edge
    assert found["edge"].get_xdata()[0] == edge
    (shaded,) = [patch for patch in chart.patches if patch.get_gid() == "does-not-fit"]
    across = (
        shaded.get_path().transformed(shaded.get_patch_transform()).vertices[:, 0]
    )  # a polygon before matplotlib 3.9
    assert (across.min(), across.max()) == (edge + 0.5, 81.5)
    assert f"{edge} of 81 layers on the device" in rl.plotting.describe(chart)
    assert chart.get_yscale() == "log"


def test_labels_say_the_rates(chart: Axes) -> None:
    words = [text.get_text() for text in chart.findobj(Text) if isinstance(text, Text)]
    assert any(text.startswith("decode ") and text.endswith(" tok/s") for text in words)
    assert any(text.startswith("prefill ") and text.endswith(" tok/s") for text in words)


def test_experts_on_the_host() -> None:
    rig = "2x rtx-3090 + ddr5-6000x2@96GiB"
    ax = rl.plotting.offload("gpt-oss-120b", rig, ax=empty_axes(4.2, 3.2), prompt_tokens=0)
    found = lines(ax)
    assert not any(gid.startswith("prefill") for gid in found)
    edge = int(found["decode-best"].get_xdata()[0])
    fits = [
        rl.estimate("gpt-oss-120b", rig, prompt_tokens=0, cpu_moe_layers=each).memory.fits for each in (edge - 1, edge)
    ]
    assert fits == [False, True]
    assert "experts are on the host" in ax.get_xlabel()
    layers = rl.plotting.offload("gpt-oss-120b", rig, of="layers", ax=empty_axes(), prompt_tokens=0)
    assert "Layers on the device" in layers.get_xlabel()


def test_where_nothing_or_everything_fits() -> None:
    nothing = rl.plotting.offload("qwen3-235b-a22b", RIG, ax=empty_axes(), prompt_tokens=0)
    assert "No placement fits" in rl.plotting.describe(nothing)
    assert "edge" not in lines(nothing)
    everything = rl.plotting.offload("llama-3.1-8b", RIG, ax=empty_axes(), prompt_tokens=0)
    assert "edge" not in lines(everything)
    assert not [patch for patch in everything.patches if patch.get_gid() == "does-not-fit"]


@pytest.mark.parametrize(
    ("model", "hardware", "named", "error"),
    [
        ("llama-3.1-8b", RIG, {"of": "experts"}, InvalidRequest),
        ("llama-3.1-8b", RIG, {"of": "heads"}, InvalidRequest),
        ("llama-3.1-8b", RIG, {"gpu_layers": 3}, InvalidRequest),
        ("llama-3.1-8b", RIG, {"prompt_tokens": [1, 2]}, InvalidRequest),
        ("llama-3.1-8b", RIG, {"overrides": {"hardware.memory.bandwidth_gb_s": [1, 2]}}, InvalidRequest),
        ("llama-3.1-8b", "rtx-4090", {}, InvalidRequest),
        ("no-such-model", RIG, {}, RooflineError),
    ],
)
def test_what_cannot_be_drawn(model: str, hardware: str, named: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        rl.plotting.offload(model, hardware, ax=empty_axes(), **named)


def test_charts_are_saved_the_same_again(tmp_path: Path) -> None:
    files = []
    for number in range(2):
        ax = rl.plotting.memory(rl.estimate("llama-3.3-70b", RIG), ax=empty_axes())
        rl.plotting.save(ax, tmp_path / f"{number}.svg")
        files.append((tmp_path / f"{number}.svg").read_bytes())
    assert files[0] == files[1]
    assert b"Host: " in files[0]
