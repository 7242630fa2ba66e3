"""Tables: one description, written as text, Markdown, HTML or CSV; and the words that go around them."""

from __future__ import annotations

import csv
import html
import io
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

Align = Literal["left", "right"]
Style = Callable[[str, str], str]
"""Dresses a piece of text for a terminal, given its role: ``title``, ``answer``, ``heading`` or ``note``."""

_GAP = "  "
SENTENCE = 40
"""Characters of a cell from which on a browser may break its lines. [-]"""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and how its cells are laid out.

    Attributes
    ----------
    heading : str
        The name over the cells.
    align : {'right', 'left'}
        The side its cells keep to.
    group : str
        A name that stands over neighbouring columns which share it.
    drop : int
        Where the table is too wide, the columns with the highest number go first, from the right.
    note : str
        What explains the column; stands below the table while the column is shown.
    """

    heading: str
    align: Align = "right"
    group: str = ""
    drop: int = 0
    note: str = ""

    @property
    def full_heading(self) -> str:
        """The heading with its group, where there is no second line for it."""
        return f"{self.group}: {self.heading}" if self.group else self.heading


@dataclass(frozen=True)
class Table:
    """A table of text cells with a line above and lines below."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    answer: str = ""
    """What answers the title; stands to its right."""
    commands: Sequence[str] = field(default_factory=tuple)
    """What to type, below everything and never wrapped."""

    def map(self, change: Callable[[str], str]) -> Table:
        """The same table with every text changed, as for a terminal that lacks some characters."""
        columns = [
            replace(each, heading=change(each.heading), group=change(each.group), note=change(each.note))
            for each in self.columns
        ]
        rows = [[change(cell) for cell in row] for row in self.rows]
        notes, commands = [change(note) for note in self.notes], [change(line) for line in self.commands]
        return Table(columns, rows, change(self.title), notes, change(self.answer), commands)

    def to_text(self, width: int | None = None, style: Style | None = None, rule: str = "─") -> str:
        """For a terminal; cells are never cut or wrapped.

        Parameters
        ----------
        width : int, optional
            A table wider than this loses columns, down to two; longer notes are wrapped. None is without limit.
        style : callable, optional
            Dresses title, headings and notes.
        rule : str
            The character that continues a group's name over its columns.
        """
        dress = style or (lambda _role, text: text)
        plain = self.map(printable)
        shown = plain._shown(width)
        sizes = plain._sizes(shown)
        lines = plain._title_lines(width, dress)
        if any(plain.columns[index].group for index in shown):
            lines.append(dress("heading", plain._group_line(shown, sizes, rule)))
        if shown:
            headings = [column.heading for column in plain.columns]
            if any(headings):
                lines.append(dress("heading", plain._line(headings, shown, sizes)))
        lines += [plain._line(row, shown, sizes) for row in plain.rows]
        lines += [dress("note", line) for note in plain.notes_of(shown) for line in wrapped(note, width)]
        lines += [_GAP + line for line in plain.commands]
        return "\n".join(lines)

    def notes_of(self, shown: Iterable[int] | None = None) -> list[str]:
        """The lines below, with those of the columns that are shown; None is all of them."""
        columns = self.columns if shown is None else [self.columns[index] for index in shown]
        return [*self.notes, *dict.fromkeys(column.note for column in columns if column.note)]

    def left_out(self, width: int) -> list[str]:
        """Headings of the columns that `to_text` leaves out at a width, each with its group."""
        shown = self._shown(width)
        return [
            f"{column.group.partition(',')[0]} {column.heading}".strip()
            for index, column in enumerate(self.columns)
            if index not in shown
        ]

    @property
    def full_width(self) -> int:
        """Characters of a line with all columns. [-]"""
        return self._width(range(len(self.columns)))

    def _width(self, shown: Sequence[int]) -> int:
        return sum(self._sizes(shown).values()) + len(_GAP) * (len(shown) - 1)

    def _title_lines(self, width: int | None, dress: Style) -> list[str]:
        """Title and answer: on one line with the answer to the right, or on two where they are too long for it."""
        title, answer = self.title, self.answer
        if not answer or not title or (width is not None and len(title) + len(answer) + 2 * len(_GAP) > width):
            parts = (("title", title), ("answer", answer))
            return [dress(role, line) for role, text in parts if text for line in wrapped(text, width)]
        gap = 2 * len(_GAP) if width is None else width - len(title) - len(answer)
        return [dress("title", title) + " " * gap + dress("answer", answer)]

    def _size(self, index: int) -> int:
        return max(len(self.columns[index].heading), *(len(row[index]) for row in self.rows), 0)

    def _sizes(self, shown: Sequence[int]) -> dict[int, int]:
        """Width of each column; a group's name may widen its last one."""
        sizes = {index: self._size(index) for index in shown}
        for group, members in self._groups(shown):
            if group:
                lacking = len(group) - sum(sizes[index] for index in members) - len(_GAP) * (len(members) - 1)
                sizes[members[-1]] += max(lacking, 0)
        return sizes

    def _groups(self, shown: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        for group, members in groupby(shown, key=lambda index: self.columns[index].group):
            yield group, list(members)

    def _shown(self, width: int | None) -> list[int]:
        shown = list(range(len(self.columns)))
        while width is not None and len(shown) > 2:
            if self._width(shown) <= width:
                break
            shown.remove(max(shown[1:], key=lambda index: (self.columns[index].drop, index)))
        return shown

    def _group_line(self, shown: Sequence[int], sizes: Mapping[int, int], rule: str) -> str:
        parts = []
        for group, members in self._groups(shown):
            width = sum(sizes[index] for index in members) + len(_GAP) * (len(members) - 1)
            parts.append(f"{group} ".ljust(width, rule)[:width] if group else " " * width)
        return _GAP.join(parts).rstrip()

    def _line(self, cells: Sequence[str], shown: Sequence[int], sizes: Mapping[int, int]) -> str:
        parts = [
            cells[index].ljust(sizes[index])
            if self.columns[index].align == "left"
            else cells[index].rjust(sizes[index])
            for index in shown
        ]
        return _GAP.join(parts).rstrip()

    def to_markdown(self) -> str:
        """A Markdown table, with pipes in cells escaped."""
        rule = ["---" if column.align == "left" else "--:" for column in self.columns]
        heading = [column.full_heading for column in self.columns]
        title = " · ".join(filter(None, (self.title, self.answer)))
        lines = [f"**{_markdown(title)}**", ""] if title else []
        if heading:
            lines += [f"| {' | '.join(map(_markdown, heading))} |", f"| {' | '.join(rule)} |"]
        lines += [f"| {' | '.join(map(_markdown, row))} |" for row in self.rows]
        if notes := self.notes_of():
            lines += ["", *(f"{_markdown(note)}  " for note in notes)]
        if self.commands:
            lines += ["", "```", *map(printable, self.commands), "```"]
        return "\n".join(lines)

    def to_html(self) -> str:
        """An HTML table without colours of its own, so that it suits light and dark pages; all text is escaped."""
        # Notebooks break lines wherever they can, between the ends of a range too.
        sentences = {index for index in range(len(self.columns)) if self._size(index) > SENTENCE}

        def cells(tag: str, values: Sequence[str]) -> str:
            return "".join(
                f'<{tag} style="text-align:{column.align}{"" if index in sentences else ";white-space:nowrap"}">'
                f"{html.escape(value)}</{tag}>"
                for index, (column, value) in enumerate(zip(self.columns, values, strict=True))
            )

        heading = f"<tr>{cells('th', [column.heading for column in self.columns])}</tr>"
        if any(column.group for column in self.columns):
            spans = self._groups(range(len(self.columns)))
            over = "".join(
                f'<th colspan="{len(members)}" style="text-align:left">{html.escape(group)}</th>'
                for group, members in spans
            )
            heading = f"<tr>{over}</tr>{heading}"
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        title = " · ".join(filter(None, (self.title, self.answer)))
        caption = f'<caption style="text-align:left">{html.escape(title)}</caption>' if title else ""
        notes = "".join(f"<div><small>{html.escape(note)}</small></div>" for note in self.notes_of())
        notes += "".join(f"<div><code>{html.escape(line)}</code></div>" for line in self.commands)
        return f"<div><table>{caption}<thead>{heading}</thead><tbody>{body}</tbody></table>{notes}</div>"

    def to_csv(self) -> str:
        """Comma-separated values: headings and rows only."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([column.full_heading for column in self.columns])
        writer.writerows(self.rows)
        return buffer.getvalue().rstrip("\n")


def _markdown(text: str) -> str:
    return printable(text).replace("|", "\\|")


def printable(text: str) -> str:
    """The text on one line and without control characters, which a file may hold and a terminal would obey."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def wrapped(text: str, width: int | None) -> list[str]:
    """The lines of a sentence; what does not fit the width goes on below, indented by two, and no word is cut."""
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(
        text, max(width, 20), subsequent_indent=_GAP, break_long_words=False, break_on_hyphens=False
    ) or [text]
