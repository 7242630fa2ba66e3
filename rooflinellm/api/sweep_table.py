"""How a sweep reads: a row a point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rooflinellm._numeric import is_array
from rooflinellm.api.sweep_result import Sweep
from rooflinellm.render import Column, Table
from rooflinellm.results import Prediction
from rooflinellm.summary import bases_by_system, gib_text, system_text, weights_text
from rooflinellm.units import format_seconds, significant

BAR_CELLS = 24

_HEADINGS = {
    "prompt_tokens": "prompt", "output_tokens": "output", "cached_tokens": "cached", "context_tokens": "context",
    "context_limit": "limit", "gpu_layers": "GPU layers", "cpu_moe_layers": "CPU experts", "prefill_chunk": "chunk",
    "kv": "KV", "queue_s": "queue", "tokenize_s": "tokenise",
}  # fmt: skip
_WORDS = ("model", "hardware", "weights", "kv", "engine", "draft", "parallel")


def sweep_basis_text(sweep: Sweep) -> str:
    """Where the expectation comes from, as `summary.bases_text` says it."""
    names = {system.id: system_text(system) for system in sweep.systems}
    found = zip(*(getattr(sweep, name).ravel().tolist() for name in ("basis", "evidence", "hardware")), strict=True)
    return bases_by_system((basis, evidence, names[system]) for basis, evidence, system in dict.fromkeys(found))


def sweep_table(sweep: Sweep, *, most: int | None, bars: bool = False) -> Table:
    """A row a point of a sweep.

    Parameters
    ----------
    sweep : Sweep
        The answers.
    most : int or None
        Of more points as many, evenly spread.
    bars : bool
        Add the decode rate as a bar: the expected rate, and up to the high end of its interval.

    Returns
    -------
    Table
    """
    import numpy as np

    shown = np.arange(sweep.size)
    if most is not None and sweep.size > most:
        shown = np.unique(np.linspace(0, sweep.size - 1, most).round().astype(int))
    points = _Points(sweep, shown)
    columns, cells = [], []

    def add(column: Column, texts: list[str]) -> None:
        columns.append(column)
        cells.append(texts)

    for name in sweep.axes:
        add(Column(_heading(name), "left" if name in _WORDS else "right"), points.labels(name))
    batched = bool((np.asarray(sweep.workload["batch"]) > 1).any())
    if (np.asarray(sweep.workload["prompt_tokens"]) > 0).any():
        group = "prefill, each" if batched else "prefill"
        rate = sweep.prefill.tokens_per_s
        add(Column("tok/s", group=group, drop=4), points.texts(rate.expected, significant))
        add(Column("range", "left", group=group, drop=9), points.ranges(rate))
    add(Column("first token", drop=3), points.texts(sweep.ttft_s.expected, format_seconds))
    group, rate = "decode, each request" if batched else "decode", sweep.decode.tokens_per_s
    add(Column("tok/s", group=group, drop=-1), points.texts(rate.expected, significant))
    add(Column("range", "left", group=group, drop=6), points.ranges(rate))
    add(Column("ideal", group=group, drop=5), points.texts(rate.ideal, lambda value: f"≤ {significant(value)}"))
    if batched:
        together = sweep.decode.aggregate_tokens_per_s.expected
        add(Column("all", group=group, drop=2), points.texts(together, significant))
    add(Column("bound", "left", drop=8), points.texts(sweep.decode.bound, str))
    add(Column("GiB", drop=7), points.texts(sweep.memory.total_bytes, gib_text))
    if False in sweep.memory.fits or None in sweep.memory.fits:
        add(
            Column("fits", "left", drop=1),
            points.texts(sweep.memory.fits, {True: "yes", False: "no", None: "?"}.__getitem__),
        )
    if bars:
        add(Column("decode tok/s", "left", drop=1), points.bars(rate))
    notes = [f"at {fixed_text(sweep)}", f"basis: {sweep_basis_text(sweep)}"]
    if len(shown) < sweep.size:
        notes.append(f"{len(shown)} of {sweep.size:,} points")
    notes += sweep.notes
    notes += [f"warning: {text}" for text in sweep.warnings]
    return Table(columns, list(zip(*cells, strict=True)), sweep_title(sweep), notes)


def sweep_title(sweep: Sweep) -> str:
    """What all points have in common: model, format, devices and engine."""
    parts = []
    for values, texts in (
        (sweep.model, {item.id: item.name for item in sweep.models}),
        (sweep.weights, {}),
        (sweep.kv, {}),
        (sweep.hardware, system_names(sweep)),
        (sweep.engine, {}),
    ):
        found = set(values.ravel().tolist())
        if len(found) > 1:
            continue
        (only,) = found
        if values is sweep.kv:
            parts += [f"KV {only}"] if only not in ("f16", "bf16") else []
        elif values is sweep.weights:
            parts.append(weights_text(only))
        else:
            parts.append(texts.get(only, only.replace(":", " ")))
    return " · ".join(parts)


def fixed_text(sweep: Sweep) -> str:
    """The request as far as all points share it: ``prompt 512, output 128, context 0``."""
    parts = []
    for name in ("prompt_tokens", "output_tokens", "context_tokens", "cached_tokens", "batch"):
        value = sweep.workload[name].flat[0]
        if name not in sweep.axes and (value or name not in ("context_tokens", "cached_tokens")):
            parts.append(f"{_heading(name)} {value:,}")
    return ", ".join(parts)


def system_names(sweep: Sweep) -> dict[str, str]:
    """What systems are called, by id; those of the same name are called by their ids."""
    names = {item.id: item.id if item.device.ad_hoc else system_text(item) for item in sweep.systems}
    texts = list(names.values())
    return {key: text if texts.count(text) == 1 else key for key, text in names.items()}


def _heading(name: str) -> str:
    """An axis as a heading; of a path the last part that says something."""
    return _HEADINGS.get(name, name.removesuffix(".value").rpartition(".")[2])


def axis_label(sweep: Sweep, name: str, value: Any) -> str:
    """A value of an axis as people name it."""
    if name == "model":
        return next(str(item.name) for item in sweep.models if item.id == value)
    if name == "hardware":
        return system_names(sweep)[value]
    if value is None:
        return "default"
    if name in ("queue_s", "tokenize_s"):
        return format_seconds(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return str(getattr(value, "id", value))


@dataclass(frozen=True)
class _Points:
    """Some points of a sweep, by their place in its order."""

    sweep: Sweep
    shown: Any

    def _at(self, values: Any) -> list[Any]:
        assert is_array(values)
        found: list[Any] = values.ravel()[self.shown].tolist()
        return found

    def texts(self, values: Any, write: Callable[[Any], str]) -> list[str]:
        """Values in words."""
        return [write(value) for value in self._at(values)]

    def ranges(self, rate: Prediction) -> list[str]:
        """Intervals."""
        ends = zip(self.texts(rate.low, significant), self.texts(rate.high, significant), strict=True)
        return [f"{low}–{high}" for low, high in ends]

    def labels(self, name: str) -> list[str]:
        """Values of an axis."""
        import numpy as np

        values = self.sweep.axes[name]
        texts = [axis_label(self.sweep, name, value) for value in values]
        places = np.unravel_index(self.shown, self.sweep.shape)[list(self.sweep.axes).index(name)]
        return [texts[place] for place in places]

    def bars(self, rate: Prediction) -> list[str]:
        """Expected rates as bars, and lighter up to the high end; as long as the highest of all is wide."""
        most = float(rate.high.max())
        found = []
        for expected, high in zip(self._at(rate.expected), self._at(rate.high), strict=True):
            length, whole = (round(BAR_CELLS * value / most) for value in (expected, high))
            found.append("█" * max(length, 1) + "░" * (whole - max(length, 1)))
        return found
