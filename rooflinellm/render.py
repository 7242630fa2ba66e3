"""Tables: one description, written as text, Markdown, HTML or CSV; and the words that go around them."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rooflinellm._numeric import is_array
from rooflinellm.units import GIGA, format_gib, format_seconds, significant

if TYPE_CHECKING:
    from rooflinellm.results import Estimate, MemoryPlan, Phase, Prediction

Align = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and the side its cells keep to."""

    heading: str
    align: Align = "right"


@dataclass(frozen=True)
class Table:
    """A table of text cells with a line above and lines below."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)

    def to_text(self, width: int | None = None) -> str:
        """For a terminal; cells are never cut, and a table wider than `width` loses columns from the right."""
        columns = self._shown(width)
        sizes = [self._size(index) for index in columns]
        lines = [self.title] if self.title else []
        lines.append(self._line([self.columns[index].heading for index in columns], columns, sizes))
        lines += [self._line([row[index] for index in columns], columns, sizes) for row in self.rows]
        lines += self.notes
        return "\n".join(lines)

    def _size(self, index: int) -> int:
        return max(len(self.columns[index].heading), *(len(row[index]) for row in self.rows), 0)

    def _shown(self, width: int | None) -> list[int]:
        columns = list(range(len(self.columns)))
        if width is not None and self.rows:
            while len(columns) > 2 and sum(self._size(index) + 2 for index in columns) - 2 > width:
                columns.pop()
        return columns

    def _line(self, cells: Sequence[str], columns: Sequence[int], sizes: Sequence[int]) -> str:
        parts = [
            cell.ljust(size) if self.columns[index].align == "left" else cell.rjust(size)
            for cell, index, size in zip(cells, columns, sizes, strict=True)
        ]
        return "  ".join(parts).rstrip()

    def to_markdown(self) -> str:
        """A Markdown table, with pipes in cells escaped."""
        rule = ["---" if column.align == "left" else "--:" for column in self.columns]
        heading = [column.heading for column in self.columns]
        lines = [f"**{_markdown(self.title)}**", ""] if self.title else []
        lines += [f"| {' | '.join(map(_markdown, heading))} |", f"| {' | '.join(rule)} |"]
        lines += [f"| {' | '.join(map(_markdown, row))} |" for row in self.rows]
        if self.notes:
            lines += ["", *(f"{_markdown(note)}  " for note in self.notes)]
        return "\n".join(lines)

    def to_html(self) -> str:
        """An HTML table without colours of its own, so that it suits light and dark pages; all text is escaped."""

        def cells(tag: str, values: Sequence[str]) -> str:
            return "".join(
                f'<{tag} style="text-align:{column.align}">{html.escape(value)}</{tag}>'
                for column, value in zip(self.columns, values, strict=True)
            )

        heading = cells("th", [column.heading for column in self.columns])
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        caption = f'<caption style="text-align:left">{html.escape(self.title)}</caption>' if self.title else ""
        notes = "".join(f"<div><small>{html.escape(note)}</small></div>" for note in self.notes)
        return f"<div><table>{caption}<thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>{notes}</div>"

    def to_csv(self) -> str:
        """Comma-separated values: headings and rows only."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([column.heading for column in self.columns])
        writer.writerows(self.rows)
        return buffer.getvalue().rstrip("\n")


def _markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def spread(value: Any, write: Callable[[float], str]) -> str:
    """A number as text, or the first and last of an array."""
    if is_array(value) and getattr(value, "size", 1) > 1:
        flat = value.ravel()
        return f"{write(float(flat[0]))} … {write(float(flat[-1]))}"
    return write(float(value))


def rate_text(prediction: Prediction, *, bound: bool = False) -> str:
    """A rate with its interval, as ``143 (95–215)``; with the bound, ``143 (95–215) of ≤ 218``."""

    def write(value: float) -> str:
        return significant(value, 3)

    text = f"{spread(prediction.expected, write)} ({spread(prediction.low, write)}–{spread(prediction.high, write)})"
    return f"{text} of ≤ {spread(prediction.ideal, write)}" if bound else text


def time_text(prediction: Prediction) -> str:
    """A duration, as ``31.2 ms``."""
    return spread(prediction.expected, format_seconds)


BOUND_WORDS = {
    "memory": "memory bandwidth",
    "compute": "compute",
    "link": "link",
    "overhead": "launches and other fixed costs",
}


def bound_text(phase: Phase) -> str:
    """What limits a phase, in words."""
    if is_array(phase.bound) and phase.bound.size > 1:
        return " / ".join(BOUND_WORDS[word] for word in dict.fromkeys(phase.bound.ravel().tolist()))
    return BOUND_WORDS[str(phase.bound)]


def fits_text(memory: MemoryPlan) -> str:
    """Whether it fits, with the numbers."""
    total = spread(memory.total_bytes, format_gib)
    if memory.usable_bytes is None:
        return f"needs {total}; the capacity is not known"
    usable = format_gib(memory.usable_bytes)
    fits = memory.fits
    if is_array(fits) and fits.size > 1:
        return f"fits: {int(fits.sum())} of {fits.size} cases, {total} of {usable}"
    return f"{'fits' if bool(fits) else 'does not fit'}: {total.removesuffix(' GiB')} of {usable}"


def estimate_table(estimates: Sequence[Estimate]) -> Table:
    """The four questions over prompt lengths: prefill time, first token, decode, and how they change with context."""
    first, last = estimates[0], estimates[-1]
    rows = [
        [
            spread(item.workload["prompt_tokens"], lambda value: f"{value:,.0f}"),
            rate_text(item.prefill.tokens_per_s),
            time_text(item.prefill.time_s),
            time_text(item.ttft_s),
            rate_text(item.decode.tokens_per_s, bound=True),
            f"{bound_text(item.prefill)} → {bound_text(item.decode)}",
        ]
        for item in estimates
    ]
    title = (
        f"{first.model.name} · {first.weights} · KV {first.kv} · {first.hardware.name} · {first.engine}    "
        f"{fits_text(last.memory)}"
    )
    notes = [f"basis: {first.decode.time_s.basis} · rates in tokens/s of one request, expected (low–high) of ≤ bound"]
    notes += [f"warning: {text}" for text in dict.fromkeys(text for item in estimates for text in item.warnings)]
    columns = [
        Column("prompt"), Column("prefill [tok/s]"), Column("prefill time"), Column("first token"),
        Column("decode, one request [tok/s]"), Column("limited by: prefill → decode", "left"),
    ]  # fmt: skip
    return Table(columns, rows, title, notes)


def operator_table(phase: Phase) -> Table:
    """Costs by operator: what each moves and multiplies, and what limits it."""
    rows = []
    for item in phase.operators:
        rows.append(
            [
                item.name,
                str(item.count),
                spread(item.flops, lambda value: significant(value / GIGA, 3)),
                spread(item.read_bytes, lambda value: significant(value / GIGA, 3)),
                item.compute_path or "–",
                spread(item.time_s, format_seconds),
                spread(item.share_of_expected, lambda value: f"{value:.0%}"),
                spread(item.percent_of_ideal, lambda value: f"{value:.0f} %"),
                str(item.bound) if not is_array(item.bound) else "/".join(dict.fromkeys(item.bound.ravel().tolist())),
            ]
        )
    columns = [
        Column("operator", "left"), Column("layers"), Column("GFLOP"), Column("GB read"), Column("computes in", "left"),
        Column("time"), Column("share"), Column("of ideal"), Column("limited by", "left"),
    ]  # fmt: skip
    title = (
        f"{phase.name}: {spread(phase.time_s.expected, format_seconds)}, "
        f"intensity {spread(phase.arithmetic_intensity, lambda v: significant(v, 3))} FLOP/byte, "
        f"ridge point {spread(phase.ridge_point, lambda v: significant(v, 3))} FLOP/byte"
    )
    return Table(columns, rows, title)


def explain_estimate(estimate: Estimate) -> str:
    """Where each number of an estimate comes from, in words."""
    lines = [estimate_table([estimate]).to_text(), ""]
    for phase in (estimate.prefill, estimate.decode):
        lines += [operator_table(phase).to_text(), ""]
    lines += [*(f"- {text}" for text in estimate.assumptions)]
    return "\n".join(lines)
