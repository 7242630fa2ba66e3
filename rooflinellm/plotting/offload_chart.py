"""The offload chart: how fast a model is with so many layers on the device, or experts on the host."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from rooflinellm._numeric import is_array
from rooflinellm.api import lookup
from rooflinellm.api.estimate import estimate
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.plotting import style
from rooflinellm.plotting.labels import LabelLayer, Note, PointLabel, halo_text, paragraph
from rooflinellm.results import Estimate, Phase
from rooflinellm.summary import system_text, weights_text
from rooflinellm.units import significant

Of = Literal["layers", "experts"]
LOOKS = {"decode": (style.BLUE, "o"), "prefill": (style.VERMILLION, "^")}
"""Colour and marker of the best placement, by phase."""
ROOM = 1.6
"""Factor between the outermost rates and the frame. [-]"""
FEW_DECADES = 300.0
"""Rates that span less have ticks at 2 and 5 too. [-]"""


def offload(
    model: Any,
    hardware: Any,
    *,
    of: Of | None = None,
    ax: Axes | None = None,
    label_size: float = style.LABEL_SIZE,
    **estimate_kwargs: Any,
) -> Axes:
    """Draw decode and prefill rates against what is left on the host, and mark the edge of what fits.

    The rates [tokens/s] are expected ones with their intervals, on a logarithmic axis. Lines are dashed where it does
    not fit, as if it did; what does not fit is shaded.

    Parameters
    ----------
    model : str, path or spec
        As in `rooflinellm.model`.
    hardware : str, path or spec
        As in `rooflinellm.system`, with a host.
    of : {'layers', 'experts'}, optional
        Layers on the device from none to all, or layers whose experts are on the host; None is experts where the model
        has any.
    ax : Axes, optional
        Where to draw; None makes a figure.
    label_size : float
        Size of the labels. [point]
    **estimate_kwargs
        As in `rooflinellm.estimate`, single values.

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    RooflineError
        No host, a model without experts, a wish for a placement, or what `estimate` raises.
    """
    for name in ("gpu_layers", "cpu_moe_layers"):
        if estimate_kwargs.get(name) is not None:
            raise InvalidRequest("the chart shows all placements; leave it out", where=name)
    for name, value in (*estimate_kwargs.items(), *(estimate_kwargs.get("overrides") or {}).items()):
        if is_array(value) or isinstance(value, list | tuple):
            raise InvalidRequest("a chart has one request; give a single value", where=name)
    spec, system = lookup.model(model), lookup.system(hardware)
    mixture = any(getattr(block.ffn, "kind", "") == "moe" for block in spec.layers)
    if of not in (None, "layers", "experts"):
        raise InvalidRequest(f"{of!r:.40} is not one of layers, experts", where="of")
    if of == "experts" and not mixture:
        raise InvalidRequest(f"{spec.id} has no experts", where="of", next_step='Use of="layers".')
    experts = mixture if of is None else of == "experts"
    keyword, most = ("cpu_moe_layers", len(spec.layers)) if experts else ("gpu_layers", len(spec.layers) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        answers = [estimate(spec, system, **{**estimate_kwargs, keyword: number}) for number in range(most + 1)]
    curve = _Curve(tuple(answers), experts)

    with style.styled():
        axes = style.axes_for(ax)
        if axes.name != "rectilinear":
            raise InvalidRequest(f"{axes.name} axes cannot hold this chart", where="ax")
        _set_up_axes(axes, curve)
        _draw(axes, curve, float(label_size))
    style.set_description(axes, curve.description)
    return axes


@dataclass(frozen=True)
class _Curve:
    """Estimates by number of layers on the device, or of layers whose experts are on the host."""

    answers: tuple[Estimate, ...]
    experts: bool

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that take time."""
        with_prompt = bool(self.answers[0].workload["prompt_tokens"])
        return ("decode", "prefill") if with_prompt else ("decode",)

    def rates(self, phase: str, which: str = "expected") -> list[float]:
        """One of the rates of each placement. [tokens/s]"""
        found: list[Phase] = [getattr(answer, phase) for answer in self.answers]
        return [float(getattr(each.tokens_per_s, which)) for each in found]

    @property
    def fits(self) -> list[bool]:
        """Whether each placement fits, as far as is known."""
        return [answer.memory.fits is None or bool(answer.memory.fits) for answer in self.answers]

    @property
    def best(self) -> int | None:
        """The placement that fits with the most on the device; None where none does."""
        good = [number for number, fits in enumerate(self.fits) if fits]
        if not good:
            return None
        return min(good) if self.experts else max(good)

    def words(self, number: int) -> str:
        """``45 of 81 layers on the device``."""
        if self.experts:
            return f"experts of {number} of {len(self.answers) - 1} layers on the host"
        return f"{number} of {len(self.answers) - 1} layers on the device"

    @property
    def what(self) -> str:
        first = self.answers[0]
        return f"{first.model.name} {weights_text(first.weights)}"

    @property
    def description(self) -> str:
        """The chart in words."""
        last = len(self.answers) - 1
        ends = [0, last] if self.best in (0, last, None) else [0, self.best, last]

        def said(number: int) -> str:
            rates = ", ".join(f"{phase} {significant(self.rates(phase)[number])} tok/s" for phase in self.phases)
            return f"{self.words(number)}: {rates}{'' if self.fits[number] else ' (does not fit)'}"

        edge = "No placement fits." if self.best is None else f"What fits ends at {self.words(self.best)}."
        system = system_text(self.answers[0].hardware)
        return f"Speed of {self.what} on {system} by placement. {edge} {'; '.join(map(said, ends))}."


def _set_up_axes(ax: Axes, curve: _Curve) -> None:
    rates = [rate for phase in curve.phases for which in ("low", "high") for rate in curve.rates(phase, which)]
    low, high = min(rates) / ROOM, max(rates) * ROOM
    ax.set_yscale("log")
    ax.set_xlim(-0.5, len(curve.answers) - 0.5)
    ax.set_ylim(low, high)
    subs = (1.0, 2.0, 5.0) if high / low < FEW_DECADES else (1.0,)
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=20))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    side = "Layers whose experts are on the host" if curve.experts else "Layers on the device (the head is one)"
    ax.set_xlabel(side, fontsize=9.5, color=style.INK)
    ax.set_ylabel("Rate [tokens/s]", fontsize=9.5, color=style.INK)
    ax.set_title(curve.what, loc="left", fontsize=10.5, color=style.INK, parse_math=False)
    ax.set_gid("rooflinellm-offload")
    style.frame(ax)


def _draw(ax: Axes, curve: _Curve, size: float) -> None:
    numbers = list(range(len(curve.answers)))
    layer = LabelLayer(ax)
    for start, stop in _spans([not fits for fits in curve.fits]):
        # A placement reaches half-way to its neighbours.
        ax.axvspan(start - 0.5, stop + 0.5, facecolor=style.GRID, edgecolor="none", zorder=0.5, gid="does-not-fit")
    marked = curve.best if curve.best is not None else numbers[-1]
    if curve.best is not None and not all(curve.fits):
        ax.axvline(curve.best, color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5, gid="edge")
        layer.line([(curve.best, ax.get_ylim()[0]), (curve.best, ax.get_ylim()[1])], 2.0)
    for rank, phase in enumerate(curve.phases):
        color, marker = LOOKS[phase]
        rates = curve.rates(phase)
        ax.fill_between(
            numbers, curve.rates(phase, "low"), curve.rates(phase, "high"), color=color, alpha=0.13, linewidth=0,
            zorder=1.0, gid=f"{phase}-interval",
        )  # fmt: skip
        for fitting in (True, False):
            for start, stop in _spans([fits is fitting for fits in curve.fits]):
                # The dashes begin where the line ends.
                first, last = (start, stop) if fitting else (max(start - 1, 0), min(stop + 1, numbers[-1]))
                ax.plot(
                    numbers[first : last + 1], rates[first : last + 1], color=color, linewidth=1.8 if fitting else 1.1,
                    linestyle="solid" if fitting else (0, (4, 2)), zorder=3.0, gid=f"{phase}-{start}",
                )  # fmt: skip
        points = list(zip([float(number) for number in numbers], rates, strict=True))
        for before, behind in pairwise(points):
            layer.line([before, behind], 6.0)
        ax.plot([marked], [rates[marked]], marker=marker, markersize=7, color=color, zorder=4.0, gid=f"{phase}-best")
        layer.marker((marked, rates[marked]), 4.5)
        rate = f"{significant(rates[marked])} tok/s"
        layer.add(
            ax,
            PointLabel(
                halo_text(size, f"{phase}-label"), ((f"{phase} {rate}", 0.0),), rank, at=(marked, rates[marked]),
                clearance=4.5, sides=((-1, 1), (1, 1), (-1, -1), (1, -1), (0, 1), (0, -1)),
            ),
        )  # fmt: skip
    layer.add(ax, Note(halo_text(size, "caption"), paragraph(*_captions(curve)), 9))


def _captions(curve: _Curve) -> tuple[str, str]:
    """What is marked; at length and in brief."""
    system = system_text(curve.answers[0].hardware)
    if curve.best is None:
        return f"{system}. No placement fits; dashed as if it did.", "Nothing fits."
    if all(curve.fits):
        return f"{system}. All placements fit.", "All fit."
    words = curve.words(curve.best)
    return f"{system}. What fits ends at {words}; shaded: does not fit.", f"Edge: {words}."


def _spans(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last index of each row of true values."""
    spans: list[tuple[int, int]] = []
    for index, flag in enumerate(flags):
        if flag and spans and spans[-1][1] == index - 1:
            spans[-1] = (spans[-1][0], index)
        elif flag:
            spans.append((index, index))
    return spans
