"""The roofline chart: a system's peaks and bandwidth as roofs, a model's prefill and decode as points below them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cbook import normalize_kwargs
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rooflinellm.api import lookup
from rooflinellm.api.arguments import count, scalar_count
from rooflinellm.errors import InvalidRequest, RooflineWarning, met
from rooflinellm.operators.model import ModelSpec
from rooflinellm.plotting import roofline_words as words
from rooflinellm.plotting import style
from rooflinellm.plotting.labels import CLEAR, LabelLayer, LineLabel, Note, PointLabel, halo_text, paragraph
from rooflinellm.plotting.roofs import Roof, check_precisions, device_names, roofs, slopes
from rooflinellm.plotting.workload import Device, Point, Workload, check_measured, workload
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.units import TERA, significant

FAR = 1e4
"""Factor by which lines go beyond the frame, so that they are still there when someone pans."""
BEFORE, BEHIND = 3.5, 8.0
"""Factors between the outermost points or ridges and the frame: to the left, and to the right, where names stand."""
EMPTY_CHART = (0.3, 3000.0)
MAX_TOKENS = 10**9
MAX_BATCH = 10**6


def roofline(
    hardware: Any,
    model: Any = None,
    *,
    weights: Any = None,
    kv: str | None = None,
    engine: str | None = None,
    prompt_tokens: int = 512,
    context_tokens: int = 0,
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    measured: Sequence[Mapping[str, Any]] | None = None,
    precisions: Sequence[str] | None = None,
    memory_levels: bool = False,
    ax: Axes | None = None,
    roof_kwargs: Mapping[str, Any] | None = None,
    point_kwargs: Mapping[str, Any] | None = None,
    label_size: float = style.LABEL_SIZE,
    **estimate_kwargs: Any,
) -> Axes:
    """Draw the rooflines of one or several systems, and where prefill and decode of a model stand below them.

    Both axes are logarithmic: arithmetic intensity [FLOP/byte] to the right, compute rate [FLOP/s] upwards. A filled
    marker is what is expected, the tick above it the ideal, the line between them what is lost; decode climbs with the
    batch along a thin line. Hollow markers are measured.

    Parameters
    ----------
    hardware : str, path, spec, or a sequence of them
        As in `rooflinellm.system`; at most 7.
    model : str, path, spec, or a sequence of them, optional
        As in `rooflinellm.model`; at most 4. None draws the roofs alone.
    weights, kv, engine, prompt_tokens, context_tokens, **estimate_kwargs
        As in `rooflinellm.estimate`, single values.
    batches : sequence of int
        Batches to decode; those that do not fit the memory are left out. [-]
    measured : sequence of mapping, optional
        Measured points: ``phase`` (``prefill`` or ``decode``), ``tokens_per_s`` of one request, and where need be
        ``batch``, ``hardware``, ``model`` and ``label``.
    precisions : sequence of str, optional
        Peaks to show, ``fp16`` or ``fp16.fp32``. None shows those that the model's ideal counts on and a 16-bit one;
        without a model one of each width.
    memory_levels : bool
        Show caches, host memory and links too, where their bandwidth is known.
    ax : Axes, optional
        Where to draw; None makes a figure.
    roof_kwargs, point_kwargs : mapping, optional
        Properties of matplotlib lines, for the roofs and for the points.
    label_size : float
        Size of the labels. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    RooflineError
        No hardware, names that are no entries, impossible counts, unknown precisions, or what `estimate` raises.

    Warns
    -----
    RooflineWarning
        What `estimate` warns of for one request.
    """
    systems = [lookup.system(item) for item in _several(hardware, "hardware", len(style.SERIES), _HARDWARE)]
    systems = list({system.id: system for system in systems}.values())
    models = [] if model is None else [lookup.model(item) for item in _several(model, "model", 4, _MODEL)]
    models = list({item.id: item for item in models}.values())
    wanted = check_precisions(precisions, systems)
    rows = check_measured(measured)
    request = _request(
        models,
        {"kv": kv, "engine": engine, "prompt_tokens": prompt_tokens, "context_tokens": context_tokens},
        estimate_kwargs,
    )
    shown = sorted({scalar_count("batches", batch, MAX_BATCH) for batch in _listed(batches)})
    if not (isinstance(label_size, int | float) and not isinstance(label_size, bool) and 0 < label_size < 1000):
        raise InvalidRequest(f"{met(label_size)} is not a size in points above 0", where="label_size")

    answers: list[tuple[Workload, ...]] = []
    by_series = _by_series(rows, systems, models)
    for system in systems:
        answers.append(
            tuple(
                workload(
                    item, system, batches=shown, measured=by_series[system.id, item.id], weights=weights, **request
                )
                for item in models
            )
        )
    for text in dict.fromkeys(text for row in answers for item in row for text in item.estimate.warnings):
        warnings.warn(text, RooflineWarning, stacklevel=2)
    devices = _devices(systems, answers, wanted, memory_levels)

    with style.styled():
        axes = style.axes_for(ax)
        _Drawing(axes, devices, models, float(label_size), dict(roof_kwargs or {}), dict(point_kwargs or {})).draw()
    style.set_description(axes, words.description(devices, axes.get_xlim()))
    return axes


_HARDWARE: tuple[type, ...] = (str, os.PathLike, HardwareSpec, SystemSpec)
_MODEL: tuple[type, ...] = (str, os.PathLike, ModelEntry, ModelSpec)


def _several(value: Any, where: str, most: int, single: tuple[type, ...]) -> list[Any]:
    items = [value] if isinstance(value, single) else value
    if not isinstance(items, list | tuple) or not items:
        raise InvalidRequest(f"{met(value)} names nothing; give one entry or a list of them", where=where)
    if len(items) > most:
        raise InvalidRequest(f"{len(items)} entries are more than the {most} a chart can tell apart", where=where)
    return list(items)


def _listed(batches: Any) -> list[Any]:
    try:
        found = list(batches)
    except TypeError as error:
        raise InvalidRequest(f"{met(batches)} is not a sequence of whole numbers", where="batches") from error
    if not found:
        raise InvalidRequest("no batch; give at least one", where="batches")
    return [item.item() if hasattr(item, "item") else item for item in found]


def _request(models: Sequence[ModelSpec], named: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `estimate`, as far as they can be checked here."""
    if "batch" in others:
        raise InvalidRequest("a chart shows several batches; name them in batches", where="batch")
    if others and not models:
        raise InvalidRequest("these arguments describe a request; name a model", where=", ".join(others))
    for name in ("prompt_tokens", "context_tokens", "output_tokens", "cached_tokens"):
        value = named.get(name, others.get(name, 0))
        if hasattr(count(name, value, 0, MAX_TOKENS), "dtype"):
            raise InvalidRequest("an array is not allowed here; give one whole number", where=name)
    for path, value in (others.get("overrides") or {}).items():
        if hasattr(value, "dtype") or isinstance(value, list | tuple):
            raise InvalidRequest("an array is not allowed here; give one value", where=f"overrides, {path}")
    return {**named, **others}


def _by_series(
    rows: Sequence[Mapping[str, Any]], systems: Sequence[SystemSpec], models: Sequence[ModelSpec]
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Measured rows by system and model."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {
        (system.id, model.id): [] for system in systems for model in models
    }
    if rows and not models:
        raise InvalidRequest("measured points need a model", where="measured")
    for row in rows:
        if ("hardware" not in row and len(systems) > 1) or ("model" not in row and len(models) > 1):
            raise InvalidRequest("with several series each point names its hardware and model", where="measured")
        key = (
            lookup.system(row["hardware"]).id if "hardware" in row else systems[0].id,
            lookup.model(row["model"]).id if "model" in row else models[0].id,
        )
        if key not in found:
            raise InvalidRequest(f"{key[1]} on {key[0]} is not in the chart", where="measured")
        found[key].append(row)
    return found


def _devices(
    systems: Sequence[SystemSpec],
    answers: Sequence[tuple[Workload, ...]],
    precisions: tuple[str, ...] | None,
    memory_levels: bool,
) -> list[Device]:
    devices = []
    names = device_names(systems)
    for index, (system, workloads, name) in enumerate(zip(systems, answers, names, strict=True)):
        if workloads:  # with the values that overrides have replaced
            system = workloads[0].estimate.hardware
        keys = dict.fromkeys(key for item in workloads for key in item.ideal_keys)
        devices.append(
            Device(
                system=system,
                name=name,
                slug=_slug(system.id) if len(systems) > 1 else system.device.id,
                roofs=roofs(system, keys, precisions, with_model=bool(workloads), alone=len(systems) == 1),
                slopes=slopes(system, memory_levels=memory_levels),
                workloads=workloads,
                color=style.SERIES[index] if len(systems) > 1 else style.INK,
                text_color=style.SERIES_TEXT[index] if len(systems) > 1 else style.INK,
                line_style=style.LINE_STYLES[index],
            )
        )
    return devices


def _slug(text: str) -> str:
    """A name that may stand in an XML id."""
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in text)


def _number(value: float, _position: int | None = None) -> str:
    return f"{value:,.12g}"


def _number_of_tera(value: float, _position: int | None = None) -> str:
    return f"{value / TERA:,.12g}"


class _Drawing:
    """Puts devices and workloads on an axes."""

    def __init__(
        self,
        ax: Axes,
        devices: Sequence[Device],
        models: Sequence[ModelSpec],
        label_size: float,
        roof_kwargs: dict[str, Any],
        point_kwargs: dict[str, Any],
    ) -> None:
        self.ax, self.devices, self.models = ax, devices, models
        self.size = label_size
        self.roof_kwargs: dict[str, Any] = normalize_kwargs(roof_kwargs, Line2D)
        self.point_kwargs: dict[str, Any] = normalize_kwargs(point_kwargs, Line2D)
        self.several = len(devices) > 1
        self.low, self.high = self._intensities()

    def draw(self) -> None:
        """Draw everything."""
        self._set_up_axes()
        self.layer = LabelLayer(self.ax)
        self.layer.set_gid("rooflinellm-labels")
        for device in self.devices:
            self._roofs(device)
            self._slopes(device)
        for device in self.devices:
            for index, item in enumerate(device.workloads):
                self._workload(device, item, index)
        self._notes()

    def _intensities(self) -> tuple[float, float]:
        """Limits of the horizontal axis, from points and ridges. [FLOP/byte]"""
        ridges = [roof.ridge for device in self.devices for roof in device.roofs]
        points = [point.intensity for device in self.devices for item in device.workloads for point in item.points]
        if not points:
            points = [EMPTY_CHART[0] * BEFORE, EMPTY_CHART[1] / BEHIND]
        return min([*points, *ridges]) / BEFORE, max([*points, *ridges]) * BEHIND

    def _set_up_axes(self) -> None:
        ax, devices = self.ax, self.devices
        rates = [point.flop_per_s for device in devices for item in device.workloads for point in item.points]
        highest = max(roof.flop_per_s for device in devices for roof in device.roofs)
        lowest = min(device.slopes[0].bytes_per_s for device in devices) * self.low
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(self.low, self.high)
        ax.set_ylim(min([lowest / 1.3, *(rate / 3 for rate in rates)]), max([highest, *rates]) * 2.5)
        for axis, written in ((ax.xaxis, _number), (ax.yaxis, _number_of_tera)):
            axis.set_major_locator(LogLocator(base=10, numticks=12))
            axis.set_major_formatter(FuncFormatter(written))
            axis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("Arithmetic intensity [FLOP/byte]", fontsize=9.5, color=style.INK)
        ax.set_ylabel("Compute rate [TFLOP/s]", fontsize=9.5, color=style.INK)
        style.set_title(ax, words.title(self.devices))
        ax.set_gid("rooflinellm-roofline")
        style.frame(ax)

    def _roofs(self, device: Device) -> None:
        """Horizontal lines from their ridge on, with names and marks."""
        top = next((roof for roof in device.roofs if roof.applies), device.roofs[0])
        for roof in device.roofs:
            strong = roof.applies or not device.workloads
            color = device.color if self.several or strong else style.FAINT
            end = self.high * FAR
            self._line(
                [(roof.ridge, roof.flop_per_s), (end, roof.flop_per_s)],
                f"roof-{'-'.join(roof.keys)}-{device.slug}",
                2.5 * CLEAR,
                color=color,
                linestyle=device.line_style,
                linewidth=1.8 if strong else 1.0,
            )
            prefix = f"{device.name} " if self.several else ""
            self.layer.add(
                self.ax,
                LineLabel(
                    halo_text(self.size, f"label-roof-{'-'.join(roof.keys)}-{device.slug}", color=device.text_color),
                    (
                        (f"{prefix}{roof.name} {roof.amount}", 0.0),
                        (f"{prefix}{roof.short_name} {roof.amount}", 1.5),
                        (f"{prefix}{roof.amount}", 1.4 * CLEAR),
                    ),
                    rank=2.0 if strong else 5.0,
                    start=(roof.ridge, roof.flop_per_s),
                    end=(end, roof.flop_per_s),
                    at=1.0,
                    overhang=0.85,
                ),
            )
            self._ridge(device, roof, color, first=roof is top)

    def _ridge(self, device: Device, roof: Roof, color: str, *, first: bool) -> None:
        at = (roof.ridge, roof.flop_per_s)
        key = f"{'-'.join(roof.keys)}-{device.slug}"
        mark = Line2D(
            [at[0]], [at[1]], linestyle="none", marker="d", markersize=5, markerfacecolor=color,
            markeredgecolor=style.PAPER, markeredgewidth=0.6, zorder=4,
        )  # fmt: skip
        mark.set_gid(f"ridge-{key}")
        self.ax.add_line(mark)
        self.layer.marker(at, 3.0)
        number = significant(roof.ridge, 3)
        long = ((f"ridge {number} FLOP/byte", 0.0),) if first and not self.several else ()
        self.layer.add(
            self.ax,
            PointLabel(
                halo_text(self.size, f"label-ridge-{key}", color=device.text_color),
                (*long, (f"{number} FLOP/byte", 1.0), (number, 3.0)),
                rank=6.0 if first else 7.0,
                required=False,
                at=at,
                clearance=3.0,
                sides=((-1, 1), (-1, 0), (0, 1), (1, -1), (0, -1)),
                distances=(0.0, 4.0, 8.0),
            ),
        )

    def _slopes(self, device: Device) -> None:
        """Diagonal lines up to the highest roof, with their names along them."""
        highest = device.roofs[0].flop_per_s
        for number, slope in enumerate(device.slopes):
            start, end = self.low / FAR, highest / slope.bytes_per_s
            main = slope.kind == "memory"
            self._line(
                [(start, start * slope.bytes_per_s), (end, highest)],
                f"roof-{slope.kind}{number or ''}-{device.slug}",
                2.5 * CLEAR if main else 0.6 * CLEAR,
                color=device.color if main or self.several else style.FAINT,
                linestyle=device.line_style if main else "dotted",
                linewidth=1.8 if main else 1.2,
            )
            prefix = f"{device.name} " if self.several else ""
            self.layer.add(
                self.ax,
                LineLabel(
                    halo_text(self.size, f"label-{slope.kind}{number or ''}-{device.slug}", color=device.text_color),
                    ((f"{prefix}{slope.name} {slope.amount}", 0.0), (f"{prefix}{slope.amount}", 3.0)),
                    rank=1.0 if main else 5.5,
                    required=main,
                    start=(self.low, self.low * slope.bytes_per_s),
                    end=(end, highest),
                    at=0.42,
                ),
            )

    def _line(self, points: list[tuple[float, float]], gid: str, cost: float, **looks: Any) -> None:
        looks = {"solid_capstyle": "butt", "zorder": 2.0, **looks, **self.roof_kwargs}
        line = Line2D([x for x, _ in points], [y for _, y in points], **looks)
        line.set_gid(gid)
        self.ax.add_line(line)
        self.layer.line(points, cost)

    def _workload(self, device: Device, item: Workload, index: int) -> None:
        """Points with their drop lines, the batch trail, and measured points."""
        one_of_all = not self.several and len(self.models) == 1
        color = device.color if self.several else style.SERIES[index]
        ink = device.text_color if self.several else style.INK if one_of_all else style.SERIES_TEXT[index]
        key = f"{device.slug}-{_slug(item.estimate.model.id)}"
        name = " ".join(
            [
                *([device.name] if self.several else []),
                *([item.estimate.model.name] if len(self.models) > 1 else []),
            ]
        )
        colors = {"decode": color, "prefill": style.VERMILLION if one_of_all else color}
        markers = {"decode": style.DECODE_MARKERS[index], "prefill": style.PREFILL_MARKERS[index]}
        sizes = {"decode": 6.5, "prefill": 8.0}

        if len(item.decode) > 1:
            trail = [(point.intensity, point.flop_per_s) for point in item.decode]
            x, y = [at for at, _ in trail], [rate for _, rate in trail]
            self.ax.add_line(Line2D(x, y, color=color, linewidth=0.9, zorder=3, gid=f"trail-{key}"))
            self.layer.line(trail, CLEAR)
        for point in item.expected:
            first, last = (point is item.decode[end] for end in (0, -1))
            first = first or point is item.prefill
            size = sizes[point.phase] if first or last else 3.6
            suffix = f"-{point.batch}" if point.phase == "decode" else ""
            gid = f"{point.phase}{suffix}-{key}"
            self._marker(point, gid, markers[point.phase], size, colors[point.phase], filled=True)
            if first or last:
                self._drop(point, colors[point.phase], gid, "solid")
                prompt = item.estimate.workload["prompt_tokens"]
                self._point_label(point, gid, name, size, ink, first=first, prompt=prompt)
        for number, point in enumerate(item.measured):
            gid = f"measured-{number}-{key}"
            self._drop(point, colors[point.phase], gid, "dotted")
            self._marker(point, gid, markers[point.phase], sizes[point.phase], colors[point.phase], filled=False)
            self._point_label(point, gid, name, sizes[point.phase], ink, first=True, measured=True)

    def _drop(self, point: Point, color: str, gid: str, line_style: Any) -> None:
        """A line from a point up to its ideal, which gets a tick."""
        ends = [(point.intensity, point.flop_per_s), (point.intensity, point.ideal_flop_per_s)]
        x, y = [point.intensity] * 2, [end[1] for end in ends]
        drop = Line2D(x, y, color=color, linewidth=1.0, linestyle=line_style, zorder=2.5, gid=f"drop-{gid}")
        tick = Line2D(
            x[1:], y[1:], color=color, linestyle="none", marker="_", markersize=8, markeredgewidth=1.4, zorder=4.5,
            gid=f"ideal-{gid}",
        )  # fmt: skip
        self.ax.add_line(drop)
        self.ax.add_line(tick)
        self.layer.line(ends, CLEAR)
        self.layer.marker(ends[1], 2.5)

    def _marker(self, point: Point, gid: str, marker: str, size: float, color: str, *, filled: bool) -> None:
        looks = {
            "linestyle": "none",
            "marker": marker,
            "markersize": size,
            "markerfacecolor": color if filled else style.PAPER,
            "markeredgecolor": style.PAPER if filled else color,
            "markeredgewidth": 0.6 if filled else 1.3,
            "zorder": 5,
            **self.point_kwargs,
        }
        mark = Line2D([point.intensity], [point.flop_per_s], **looks)
        mark.set_gid(gid)
        self.ax.add_line(mark)
        self.layer.marker((point.intensity, point.flop_per_s), size / 2)

    def _point_label(
        self,
        point: Point,
        gid: str,
        name: str,
        size: float,
        color: str,
        *,
        first: bool,
        prompt: int = 0,
        measured: bool = False,
    ) -> None:
        """A point's name and rate; the first of each phase is shown whatever it takes."""
        rate = point.rate_text
        if point.phase == "prefill":
            what, long = "prefill", f"prefill {prompt:,} tokens" if prompt else "prefill"
        else:
            what, long = f"batch {point.batch:,}", f"decode, batch {point.batch:,}"
        if measured:
            what = point.label or "measured"
            long = f"{what} {long}"
        wordings = [(f"{long}: {rate}", 0.0), (f"{what}: {rate}", 2.0), (rate, 6.0)]
        if name:
            wordings = [(f"{name}, {what}: {rate}", 0.0), (f"{name}: {rate}", 3.0)]
        label = PointLabel(
            halo_text(self.size, f"label-{gid}", color=color),
            tuple(wordings),
            rank=0.0 if first else 4.0,
            required=first,
            at=(point.intensity, point.flop_per_s),
            clearance=size / 2,
        )
        self.layer.add(self.ax, label)

    def _notes(self) -> None:
        for rank, gid, texts, color in (
            (3.1, "label-notes", words.small_print(self.devices), style.QUIET),
            (3.2, "label-caption", words.caption(self.devices), style.INK),
        ):
            label = halo_text(max(self.size - 0.5, style.MINIMUM_TEXT_SIZE), gid, color=color)
            self.layer.add(self.ax, Note(label, paragraph(*texts), rank=rank, required=False))
