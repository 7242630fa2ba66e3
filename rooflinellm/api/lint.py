"""Check the files of the databases: first against the schema, then by named rules, a function each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from rooflinellm import _resources, catalog
from rooflinellm.errors import RooflineError, UnreadableFile
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import Entry, cited_sources, load
from rooflinellm.specs.hardware import HardwareSpec, Precision
from rooflinellm.specs.index import YAML_SUFFIXES, Listed, key_of
from rooflinellm.specs.model import ModelEntry

Level = Literal["error", "warning"]
AnyEntry = TypeVar("AnyEntry", bound=Entry)

PUBLISHED_TOLERANCE = 0.005
"""How far derived parameters may be from those the maker states. [-]"""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a file gets wrong.

    Attributes
    ----------
    file : str
        The file, with the line where it is known.
    level : {'error', 'warning'}
        An error makes the entry unusable or ambiguous; a warning is for its author.
    rule : str
        The rule's name.
    message : str
        What is wrong.
    """

    file: str
    level: Level
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.level}: {self.message} [{self.rule}]"

    def to_dict(self) -> dict[str, str]:
        """The attributes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LintResult:
    """What was looked at, and what was found.

    Attributes
    ----------
    files : int
        Files that were read.
    problems : tuple of Problem
        In order of the files.
    """

    files: int
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> int:
        """Number of errors."""
        return sum(problem.level == "error" for problem in self.problems)

    @property
    def warnings(self) -> int:
        """Number of warnings."""
        return len(self.problems) - self.errors

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return self.errors == 0

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "files": self.files,
            "errors": self.errors,
            "warnings": self.warnings,
            "problems": [problem.to_dict() for problem in self.problems],
        }


@dataclass(frozen=True, slots=True)
class _Kind(Generic[AnyEntry]):
    """A kind of entry, where its files lie, and its rules."""

    spec: type[AnyEntry]
    database: Literal["hardware_db", "model_db"]
    folder: str
    skip: str
    listed: Callable[[], Iterable[Listed]]
    rules: tuple[tuple[str, Level, Callable[[AnyEntry, Traversable], Iterator[str]]], ...]


def lint_hardware(files: Sequence[str | os.PathLike[str]] = ()) -> LintResult:
    """Check device files.

    Parameters
    ----------
    files : sequence of str or path
        Files, or folders of them; none checks every device there is.

    Returns
    -------
    LintResult
    """
    return _lint(_HARDWARE, files)


def lint_models(files: Sequence[str | os.PathLike[str]] = ()) -> LintResult:
    """Check model files; as `lint_hardware`."""
    return _lint(_MODELS, files)


def _lint(kind: _Kind[Any], files: Sequence[str | os.PathLike[str]]) -> LintResult:
    found = list(_given(files) if files else _all(kind))
    names = _names(kind.listed())
    problems: list[Problem] = []
    for file in found:
        try:
            entry = load(kind.spec, file)
        except RooflineError as error:
            where = (error.where or str(file)).replace(str(file), _shown(file))
            problems.append(Problem(where, "error", "valid", error.message))
            continue
        for rule, level, check in kind.rules:
            problems += [Problem(_shown(file), level, rule, message) for message in check(entry, file)]
        problems += [Problem(_shown(file), "error", "names", message) for message in _names_taken(entry, names)]
    return LintResult(len(found), tuple(problems))


def _given(files: Sequence[str | os.PathLike[str]]) -> Iterator[Path]:
    for name in files:
        path = Path(os.path.expanduser(name))
        if path.is_dir():
            inside = sorted(child for child in path.rglob("*") if child.suffix in YAML_SUFFIXES)
            if not inside:
                raise UnreadableFile("a folder without YAML files", where=str(path))
            yield from inside
        else:
            yield path


def _all(kind: _Kind[Any]) -> Iterator[Traversable]:
    roots: list[Traversable] = [_resources.database(kind.database)]
    roots += [folder / kind.database for folder in _resources.user_directories()]
    for root in roots:
        yield from _below(root / kind.folder if kind.folder else root, kind.skip)


def _below(folder: Traversable, skip: str) -> Iterator[Traversable]:
    try:
        children = sorted(folder.iterdir(), key=lambda child: child.name)
    except OSError:
        return
    for child in children:
        if child.name.startswith(".") or child.name == skip:
            continue
        if child.name.endswith(YAML_SUFFIXES):
            yield child
        elif child.is_dir():
            yield from _below(child, skip)


def _shown(file: Traversable) -> str:
    """The file as one would type it: from the current folder where it lies below it."""
    path = Path(str(file))
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _names(entries: Iterable[Listed]) -> dict[str, str]:
    """The ids there are, by what counts of a name."""
    return {key_of(entry.id): entry.id for entry in entries}


def _names_taken(entry: Entry, ids: dict[str, str]) -> Iterator[str]:
    """An alias that is another entry's id would never be reached."""
    for alias in entry.aliases:
        other = ids.get(key_of(alias))
        if other is not None and other != entry.id:
            yield f"alias '{alias}' is the id of another entry, {other}"


def _file_name(entry: Entry, file: Traversable) -> Iterator[str]:
    stem = file.name.rpartition(".")[0]
    if stem != entry.id:
        yield f"id '{entry.id}' is not the file's name; expected '{stem}'"


def _folder(name: str, file: Traversable) -> Iterator[str]:
    parent = Path(str(file)).parent.name
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if parent != slug:
        yield f"lies in folder '{parent}', expected '{slug}'"


def _repeated_aliases(entry: Entry, _file: Traversable) -> Iterator[str]:
    seen = {key_of(entry.id)}
    for alias in entry.aliases:
        if key_of(alias) in seen:
            yield f"alias '{alias}' says nothing new: case, spaces, dashes and underscores do not matter"
        seen.add(key_of(alias))


def _unused_sources(entry: Entry, _file: Traversable) -> Iterator[str]:
    cited = set(cited_sources(entry))
    for key in entry.sources:
        if key not in cited:
            yield f"source '{key}' is listed and never cited"


def _vague_sources(entry: Entry, _file: Traversable) -> Iterator[str]:
    if not entry.sources:
        yield "no sources are listed"
    for key, source in entry.sources.items():
        if source.url is None and source.publisher is None and source.note is None:
            yield f"source '{key}' has neither address, publisher nor note: a reader cannot find it"


_NARROWER: tuple[tuple[Precision, Precision], ...] = (
    ("fp64", "fp32"),
    ("fp32", "fp16"),
    ("fp16", "fp8"),
    ("fp8", "fp4"),
    ("int8", "int4"),
)


def _peak_order(device: HardwareSpec, _file: Traversable) -> Iterator[str]:
    """Narrower numbers are never slower on the same units."""
    peaks = {(peak.precision, peak.accumulate, peak.unit, peak.block_scaled): peak.tflops for peak in device.peak_list}
    for (precision, accumulate, unit, scaled), rate in peaks.items():
        for wide, narrow in _NARROWER:
            slower = peaks.get((narrow, accumulate, unit, scaled)) if precision == wide else None
            if slower is not None and slower < 0.99 * rate:
                yield f"peak of {narrow} ({slower:g}) is below that of {wide} ({rate:g} TFLOP/s) on {unit} units"


def _published_size(entry: ModelEntry, _file: Traversable) -> Iterator[str]:
    if entry.published is not None:
        derived, stated = ModelSpec(entry).total_params, entry.published.total_params
        if abs(derived / stated - 1) > PUBLISHED_TOLERANCE:
            yield f"{derived:,} parameters by its layers, {stated:,} as published ({derived / stated - 1:+.1%})"


_EVERY_ENTRY: tuple[tuple[str, Level, Callable[[Any, Traversable], Iterator[str]]], ...] = (
    ("file-name", "error", _file_name),
    ("aliases", "warning", _repeated_aliases),
    ("sources-found", "warning", _vague_sources),
)
_HARDWARE = _Kind(
    HardwareSpec,
    "hardware_db",
    "devices",
    "",
    catalog.list_hardware,
    (
        *_EVERY_ENTRY,
        ("folder", "warning", lambda device, file: _folder(device.vendor, file)),
        ("sources-used", "warning", _unused_sources),
        ("peak-order", "warning", _peak_order),
    ),
)
_MODELS = _Kind(
    ModelEntry,
    "model_db",
    "",
    "formats",
    catalog.list_models,
    (
        *_EVERY_ENTRY,
        ("folder", "warning", lambda entry, file: _folder(entry.family, file)),
        ("published-size", "warning", _published_size),
    ),
)
