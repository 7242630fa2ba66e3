"""What a report is made of, before it is written as HTML or as Markdown. All text is plain, as it was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rooflinellm.render import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph; `role` is ``lead`` for the answer in a sentence, ``note`` for small print."""

    text: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading below that of the section."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Terms:
    """A list of names with what they stand for."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Cards:
    """Small tables beside one another, as many as there is room for."""

    tables: Sequence[Table]


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines to type."""

    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Cited:
    """A source: its number on the page, what it is, and its address."""

    number: str
    text: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """A list of sources."""

    items: Sequence[Cited]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that is drawn when it is written: on wide screens and paper, and again for narrow screens.

    Attributes
    ----------
    key : str
        Its name in ids and in the names of files.
    title : str
        What it is, in a few words.
    draw : callable
        Draws on axes and returns them.
    wide, narrow : tuple of float
        Width and height. [inch]
    """

    key: str
    title: str
    draw: Callable[[Axes], Axes]
    wide: tuple[float, float]
    narrow: tuple[float, float]


Block = Words | Heading | Bullets | Terms | Cards | Commands | Sources | Chart | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it; `key` is its anchor."""

    key: str
    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    footer: str

    @property
    def charts(self) -> list[Chart]:
        """All charts."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Chart)]
