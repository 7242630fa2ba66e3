"""Rules that hold for every entry, and those of models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel

from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import Entry, cited_sources
from rooflinellm.specs.index import Listed, key_of
from rooflinellm.specs.model import ModelEntry

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Level = Literal["error", "warning"]

PUBLISHED_TOLERANCE = 0.005
"""How far derived parameters may be from those the maker states. [-]"""
UNSOURCED = ("derived", "estimate")
"""Evidence that rests on no document of its own, so that a note may stand for publisher and address."""


class Finding(NamedTuple):
    """What a rule finds: the field, and what is wrong with it and how to mend it."""

    field: str
    message: str


@dataclass(frozen=True)
class Context:
    """What a rule may look at beside the entry: its file, and the names of all entries of its kind."""

    file: Traversable
    listed: tuple[Listed, ...]

    @cached_property
    def ids(self) -> dict[str, str]:
        """The ids there are, by what counts of a name."""
        return {key_of(each.id): each.id for each in self.listed}

    def others_called(self, name: str, but: str) -> list[str]:
        """Other entries with this alias."""
        key = key_of(name)
        return [each.id for each in self.listed if each.id != but and key in map(key_of, each.aliases)]


def _nothing(_entry: Any, _context: Context) -> Iterator[Finding]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule.

    Attributes
    ----------
    name : str
        Its name, as problems show it.
    level : {'error', 'warning'}
        What breaking it is.
    holds : str
        What it demands, in words.
    check : callable
        Yields what an entry gets wrong.
    """

    name: str
    level: Level
    holds: str
    check: Callable[[Any, Context], Iterator[Finding]] = _nothing


def file_name(entry: Entry, context: Context) -> Iterator[Finding]:
    """The file's name is the id."""
    stem = context.file.name.rpartition(".")[0]
    name = entry.id.rpartition(":")[2]
    if stem != name:
        yield Finding(
            "id", f"id '{entry.id}' is not the file's name; rename the file {name}.yaml, or the id to '{stem}'"
        )


def names(entry: Entry, context: Context) -> Iterator[Finding]:
    """An alias or a product that is another entry's id would never be reached."""
    for field, what in (("aliases", "alias"), ("products", "product")):
        for name in getattr(entry, field, ()):
            other = context.ids.get(key_of(name))
            if other is not None and other != entry.id:
                yield Finding(field, f"{what} '{name}' is the id of another entry, {other}; drop it")


def repeated_aliases(entry: Entry, _context: Context) -> Iterator[Finding]:
    """An alias that differs from id or alias in spelling only."""
    seen = {key_of(entry.id)}
    for alias in entry.aliases:
        if key_of(alias) in seen:
            message = f"alias '{alias}' says nothing new: case, spaces, dashes and underscores do not matter; drop it"
            yield Finding("aliases", message)
        seen.add(key_of(alias))


def shared_aliases(entry: Entry, context: Context) -> Iterator[Finding]:
    """A name that several entries share is asked back about; each of them must be called so."""
    own = key_of(f"{entry.name} {entry.id}")
    for alias in entry.aliases:
        strange = [word for word in re.split(r"[\s_\-]+", alias.lower()) if key_of(word) not in own]
        others = context.others_called(alias, entry.id) if strange else []
        if others:
            message = (
                f"alias '{alias}' belongs to {', '.join(others)} too, and this one's name does not hold "
                f"'{strange[0]}'; drop it where it is wrong"
            )
            yield Finding("aliases", message)


def unused_sources(entry: Entry, _context: Context) -> Iterator[Finding]:
    """A source that no value cites."""
    cited = set(cited_sources(entry))
    for key in entry.sources:
        if key not in cited:
            yield Finding(f"sources.{key}", f"source '{key}' is listed and never cited; cite it or drop it")


def vague_sources(entry: Entry, _context: Context) -> Iterator[Finding]:
    """A source that a reader cannot find."""
    if not entry.sources:
        yield Finding("sources", "no sources are listed; list where the values come from")
    evidence = _evidence(entry)
    for key, source in entry.sources.items():
        if source.publisher or source.url:
            continue
        documented = sorted(evidence.get(key, set()) - {*UNSOURCED, ""})
        if source.note and not documented:
            continue
        because = f"a {documented[0].replace('_', ' ')} value cites it; " if source.note else ""
        message = f"source '{key}' cannot be found: {because}add its publisher or url"
        yield Finding(f"sources.{key}", message + ("" if documented else ", or a note on what it follows from"))


def _evidence(spec: BaseModel) -> dict[str, set[str]]:
    """The kinds of evidence that each source is cited for."""
    found: dict[str, set[str]] = {}

    def walk(value: Any) -> None:
        if isinstance(value, tuple):
            for item in value:
                walk(item)
        elif isinstance(value, BaseModel):
            source = getattr(value, "source", None)
            if isinstance(source, str):
                found.setdefault(source, set()).add(getattr(value, "kind", ""))
            for name in type(value).model_fields:
                walk(getattr(value, name))

    walk(spec)
    return found


def in_folder(name: str, context: Context) -> Iterator[Finding]:
    """The file lies in the folder of its maker or family."""
    parent = Path(str(context.file)).absolute().parent.name
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if parent != slug:
        yield Finding("", f"lies in folder '{parent}', expected '{slug}'; move it when it goes into a database")


def _family(entry: ModelEntry, context: Context) -> Iterator[Finding]:
    return in_folder(entry.family, context)


def _published_size(entry: ModelEntry, _context: Context) -> Iterator[Finding]:
    if entry.published is not None:
        derived, stated = ModelSpec(entry).total_params, entry.published.total_params
        if abs(derived / stated - 1) > PUBLISHED_TOLERANCE:
            message = f"{derived:,} parameters by its layers, {stated:,} as published ({derived / stated - 1:+.1%})"
            yield Finding("published.total_params", message)


_SOURCES = "sources have a publisher or an address, estimates and results a note"
NAMED_RULES = (
    Rule("file-name", "error", "the file's name is the id", file_name),
    Rule("names", "error", "no alias is the id of another entry", names),
    Rule("aliases", "warning", "no alias repeats id or alias in another spelling", repeated_aliases),
    Rule("sources-found", "warning", _SOURCES, vague_sources),
)
ENTRY_RULES = (
    *NAMED_RULES[:3],
    Rule("aliases-shared", "warning", "an alias of several entries is part of each one's name", shared_aliases),
    Rule("sources-found", "error", _SOURCES, vague_sources),
)
MODEL_RULES = (
    *NAMED_RULES,
    Rule("folder", "warning", "the file lies in the folder of its family", _family),
    Rule("published-size", "warning", "the layers add up to the parameters that the maker states", _published_size),
)
