"""What the terminal can show: its width, colours, and characters beyond ASCII."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import click

DEFAULT_WIDTH = 100
MIN_WIDTH = 20

_ASCII = str.maketrans(
    {
        "·": "-", "–": "-", "—": "-", "−": "-", "─": "-", "→": "->", "≤": "<=", "≥": ">=", "≈": "~", "±": "+-",
        "×": "x", "…": "...", "█": "#", "░": ".", "’": "'", "‘": "'", "“": '"', "”": '"', "²": "^2", "µ": "u",
        "η": "eta", "α": "alpha",
    }
)  # fmt: skip

_STYLES: dict[str, dict[str, object]] = {
    "title": {"bold": True},
    "heading": {"dim": True},
    "note": {"dim": True},
    "yes": {"fg": "green", "bold": True},
    "no": {"fg": "red", "bold": True},
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
}


@dataclass(frozen=True, slots=True)
class Terminal:
    """What one stream can show.

    Attributes
    ----------
    width : int
        Columns.
    colour : bool
        Whether escape codes are wanted.
    unicode : bool
        Whether it takes more than ASCII.
    """

    width: int
    colour: bool
    unicode: bool

    @classmethod
    def of(cls, stream: IO[str]) -> Terminal:
        """What a stream can show, by ``COLUMNS``, ``NO_COLOR``, ``FORCE_COLOR``, ``TERM`` and its encoding."""
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
        encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("_", "-")
        return cls(max(width, MIN_WIDTH), _wants_colour(stream), encoding.startswith(("utf-8", "utf8", "utf-16")))

    def text(self, text: str) -> str:
        """The text in characters that can be written."""
        if self.unicode:
            return text
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")

    def dress(self, role: str, text: str) -> str:
        """The text in the style of its role, where there are colours."""
        if role == "answer":
            role = "no" if text.startswith("does not") else "yes" if text.startswith("fits") else "title"
        return click.style(text, **_STYLES[role]) if self.colour and text and role in _STYLES else text  # type: ignore[arg-type]


def _wants_colour(stream: IO[str]) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def say(kind: str, text: str) -> None:
    """Write ``kind: text`` on standard error, further lines below it."""
    from rooflinellm.render import printable

    terminal = Terminal.of(sys.stderr)
    first, *rest = map(printable, terminal.text(text).splitlines() or [""])
    lines = [f"{terminal.dress(kind, kind)}: {first}", *rest]
    click.echo("\n".join(lines), err=True, color=terminal.colour)


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how much of a long task is done on one line of standard error, where that is a terminal.

    Parameters
    ----------
    label : str
        What is being done.

    Yields
    ------
    callable or None
        To be called with the steps that are done and all there are; None where nobody watches.
    """
    if not sys.stderr.isatty():
        yield None
        return

    def show(done: int, of: int) -> None:
        click.echo(f"\r{label}: {done / max(of, 1):4.0%}", nl=False, err=True)

    show(0, 1)
    try:
        yield show
    finally:
        click.echo("\r" + " " * (len(label) + 6) + "\r", nl=False, err=True)
