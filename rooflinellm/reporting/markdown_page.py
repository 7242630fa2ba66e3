"""A report as Markdown, with charts as files beside it or without any."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rooflinellm.render import Table, printable
from rooflinellm.reporting.blocks import (
    Bullets,
    Cards,
    Chart,
    Commands,
    Heading,
    Page,
    Section,
    Sources,
    Terms,
    Words,
)

_MARKED = re.compile(r"[\\`*\[\]]")
_ADDRESS = re.compile(r"https?://[^\s<>]+")


def markdown_page(page: Page, pictures: Mapping[str, tuple[str, str]] | None = None) -> str:
    """Write a report as Markdown; what would be markup in a name is shown as it is.

    Parameters
    ----------
    page : Page
        The report.
    pictures : mapping of str to (str, str), optional
        File and description of each chart by its key; a chart that is not in it is left out.
    """
    parts = [f"# {_text(page.title)}", _text(page.subtitle)]
    parts += [_section(section, pictures or {}) for section in page.sections]
    return "\n\n".join([*parts, "---", _text(page.footer)]) + "\n"


def _text(text: str) -> str:
    """Plain text that a renderer shows as it is."""
    marked = _MARKED.sub(lambda match: f"\\{match[0]}", printable(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _section(section: Section, pictures: Mapping[str, tuple[str, str]]) -> str:
    parts = [f"## {_text(section.heading)}"]
    for block in section.blocks:
        if isinstance(block, Chart):
            if block.key in pictures:
                file, description = pictures[block.key]
                parts.append(f"![{_text(description)}](<{file}>)")
        else:
            parts.append(_WRITERS[type(block)](block))
    return "\n\n".join(parts)


def _list(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _sources(block: Sources) -> str:
    items = []
    for item in block.items:
        link = ""
        if item.url:
            link = f" <{item.url}>" if _ADDRESS.fullmatch(item.url) else f" {_text(item.url)}"
        items.append(f"{_text(item.number)} {_text(item.text)}{link}")
    return _list(items)


def _table(table: Table) -> str:
    """The title on a line of its own, as it is no cell."""
    notes = replace(table.map(_text), notes=()).to_markdown()
    return "\n\n".join([notes, _list([_text(note) for note in table.notes_of()])]) if table.notes_of() else notes


def _commands(block: Commands) -> str:
    lines = [printable(line) for line in block.lines]
    ticks = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, ticks + 1)
    return "\n".join([f"{fence}bash", *lines, fence])


_WRITERS: dict[type, Callable[[Any], str]] = {
    Words: lambda block: _text(block.text),
    Heading: lambda block: f"### {_text(block.text)}",
    Bullets: lambda block: _list([_text(item) for item in block.items]),
    Terms: lambda block: _list([f"{_text(name)}: {_text(text)}" for name, text in block.pairs]),
    Cards: lambda block: "\n\n".join(map(_table, block.tables)),
    Commands: _commands,
    Sources: _sources,
    Table: _table,
}
