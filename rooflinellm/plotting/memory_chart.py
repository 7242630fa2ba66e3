"""The memory chart: what each device and the host hold, as stacks against what they can."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

from rooflinellm._numeric import is_array
from rooflinellm.api.fit import FitResult
from rooflinellm.errors import InvalidRequest
from rooflinellm.plotting import style
from rooflinellm.results import Estimate, PlacedPart
from rooflinellm.summary import device_text, system_text, weights_text
from rooflinellm.units import GIB, format_gib, significant

KINDS = (
    ("weights", "weight_bytes", style.BLUE, ""),
    ("KV cache", "kv_bytes", style.ORANGE, "////"),
    ("recurrent state", "state_bytes", style.GREEN, "...."),
    ("workspace", "workspace_bytes", style.FAINT, "xxxx"),
)
"""What a stack is made of, from the left: name, attribute, colour and hatch."""
BAR = 0.46
"""Height of a bar; the rest of its row is for its name. [-]"""
APART = 0.4
"""Room between the devices and the host, in rows. [-]"""
FAR = 3.0
"""Capacity over the largest stack from which on it is written and not drawn. [-]"""
BELOW = 0.52
"""Room below the axes for the numbers and the name of the scale, above the legend. [inch]"""
NARROW = 4.5
"""Width of the axes below which words are short. [inch]"""


def memory(answer: Estimate | FitResult, *, ax: Axes | None = None, label_size: float = style.LABEL_SIZE) -> Axes:
    """Draw what takes the memory: a bar for each device, the host and the drive, with a line where each is full.

    Parameters
    ----------
    answer : Estimate or FitResult
        What `rooflinellm.estimate` or `rooflinellm.fit` returned, of single values.
    ax : Axes, optional
        Where to draw; None makes a figure.
    label_size : float
        Size of the labels. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    InvalidRequest
        Something else, or arrays.
    """
    if not isinstance(answer, Estimate | FitResult):
        raise InvalidRequest(f"{type(answer).__name__} is no result of estimate or fit", where="answer")
    plan = answer.memory
    if is_array(plan.total_bytes):
        raise InvalidRequest("an estimate of arrays has no single memory; ask for one case", where="answer")
    parts = tuple(part for part in plan.placement if part.bytes or part.tier == "device")
    bars = _bars(parts, {group.device.id: device_text(group.device) for group in answer.hardware.groups})
    largest = max(float(bar.part.bytes) for bar in bars)
    limit = max(largest, *(bar.capacity for bar in bars if bar.capacity < FAR * largest), 1.0) / GIB * 1.04

    with style.styled():
        axes = style.axes_for(ax)
        if axes.name != "rectilinear":
            raise InvalidRequest(f"{axes.name} axes have no bars", where="ax")
        shown = _draw(axes, bars, limit, float(label_size))
        handles: list[Any] = [
            Patch(facecolor=color, hatch=hatch, edgecolor=style.PAPER, linewidth=0, label=name)
            for name, key, color, hatch in KINDS
            if key in shown
        ]
        if any(bar.capacity / GIB <= limit for bar in bars):
            handles.append(Line2D([], [], color=style.INK, linewidth=1.6, label="usable"))
        narrow = _width(axes) < NARROW
        figure = axes.get_figure()
        assert figure is not None
        looks: dict[str, Any] = {
            "bbox_to_anchor": (0.0, 0.0),
            "bbox_transform": axes.transAxes + ScaledTranslation(0.0, -BELOW, figure.dpi_scale_trans),
            "ncols": 3 if narrow else len(handles),
        }
        axes.legend(
            handles=handles, loc="upper left", frameon=False, fontsize=label_size, borderaxespad=0.0, handlelength=1.4,
            columnspacing=1.2, handleheight=0.9, **looks,
        ).set_gid("legend")  # fmt: skip
        what = f"{answer.model.name} {weights_text(answer.weights)}"
        title = what if narrow else f"Memory of {what} on {system_text(answer.hardware)}"
        axes.set_title(title, loc="left", fontsize=10.5, color=style.INK, parse_math=False)
    style.set_description(axes, _description(answer, bars))
    return axes


@dataclass(frozen=True)
class _Bar:
    """A place with its name and where its bar stands."""

    part: PlacedPart
    name: str
    at: float

    @property
    def capacity(self) -> float:
        """What can lie there; infinite where that is not known, or a drive's. [byte]"""
        usable = self.part.usable_bytes
        return math.inf if usable is None or self.part.tier == "disk" else float(usable)

    @property
    def words(self) -> str:
        """``RTX 4090: 23.5 of 23.6 GiB``."""
        held = format_gib(float(self.part.bytes))
        if self.capacity == math.inf:
            return f"{self.name}: {held}"
        over = float(self.part.bytes) - self.capacity
        lacking = f", {format_gib(over)} too much" if over > 0 else ""
        return f"{self.name}: {held.removesuffix(' GiB')} of {format_gib(self.capacity)}{lacking}"


def _bars(parts: Sequence[PlacedPart], names: dict[str, str]) -> tuple[_Bar, ...]:
    bars: list[_Bar] = []
    at = 0.0
    for part in parts:
        if part.tier != "device" and bars and bars[-1].part.tier == "device":
            at -= APART
        device, _, number = part.device.partition(" #")
        name = names.get(device, {"host": "Host", "disk": "Drive"}.get(device, device))
        bars.append(_Bar(part, f"{name} #{number}" if number else name, at))
        at -= 1.0
    return tuple(bars)


def _draw(ax: Axes, bars: Sequence[_Bar], limit: float, size: float) -> set[str]:
    """The bars with their names; returns the kinds that some bar holds."""
    shown = set()
    for bar in bars:
        start = 0.0
        for name, key, color, hatch in KINDS:
            length = float(getattr(bar.part, key)) / GIB
            if not length:
                continue
            ax.barh(
                bar.at, length, BAR, left=start, color=color, hatch=hatch, edgecolor=style.PAPER, linewidth=0,
                zorder=2.0, gid=f"{bar.part.device} {name}",
            )  # fmt: skip
            start += length
            shown.add(key)
        if bar.capacity / GIB <= limit:
            ends = [bar.at - 0.68 * BAR, bar.at + 0.5 * BAR]
            for color, width, halo in ((style.PAPER, 4.0, " halo"), (style.INK, 1.6, "")):
                ax.plot(
                    [bar.capacity / GIB] * 2, ends, color=color, linewidth=width, solid_capstyle="butt", zorder=4.0,
                    gid=f"{bar.part.device} usable{halo}",
                )  # fmt: skip
        ax.text(
            0.0, bar.at + 0.6 * BAR, bar.words, ha="left", va="bottom", fontsize=size, color=style.INK,
            parse_math=False, zorder=5.0, gid=f"{bar.part.device} name",
        ).set_in_layout(False)  # fmt: skip
    ax.set_xlim(0.0, limit)
    ax.set_ylim(bars[-1].at - 0.5, 0.75)
    ax.set_yticks([])
    ax.set_xlabel("Memory [GiB]", fontsize=9.5, color=style.INK)
    ax.set_gid("rooflinellm-memory")
    style.frame(ax)
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    return shown


def _width(ax: Axes) -> float:
    """Width of the axes. [inch]"""
    figure = ax.get_figure()
    assert figure is not None
    return float(ax.get_window_extent().width) / float(figure.dpi)


def _description(answer: Estimate | FitResult, bars: Sequence[_Bar]) -> str:
    fits = {True: "It fits", False: "It does not fit", None: "Whether it fits is not known"}[
        None if answer.memory.fits is None else bool(answer.memory.fits)
    ]
    said = []
    for bar in bars:
        kinds = ", ".join(
            f"{significant(float(getattr(bar.part, key)) / GIB)} GiB {name}"
            for name, key, *_ in KINDS
            if getattr(bar.part, key)
        )
        said.append(f"{bar.words} ({kinds})" if kinds else bar.words)
    return (
        f"Memory of {answer.model.name} {weights_text(answer.weights)} on {system_text(answer.hardware)}. "
        f"{fits}. {'; '.join(said)}."
    )
