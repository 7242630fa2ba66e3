"""Check the files of the databases: first against the schema, then by named rules, a function each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rooflinellm import _resources, _yaml, catalog
from rooflinellm._shown import one_line
from rooflinellm.api.lint_devices import DEVICE_RULES
from rooflinellm.api.lint_rules import MODEL_RULES, NAMED_RULES, Context, Level, Rule
from rooflinellm.errors import RooflineError, UnreadableFile
from rooflinellm.specs.common import Entry, load
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.index import YAML_SUFFIXES, Listed
from rooflinellm.specs.model import ModelEntry
from rooflinellm.specs.profile import ProfileSpec

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

VALID = "valid"
"""The rule that comes before all others: a file is readable and fits the schema."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a file gets wrong.

    Attributes
    ----------
    file : str
        The file, with the line where it is known.
    level : {'error', 'warning'}
        An error makes the entry unusable, ambiguous or untrustworthy; a warning is for its author.
    rule : str
        The rule's name.
    message : str
        What is wrong, and how to mend it.
    field : str
        The field, dotted, "" where it is the file or where the message names it.
    """

    file: str
    level: Level
    rule: str
    message: str
    field: str = ""

    __repr__ = one_line

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.level} [{self.rule}] {self.file}: {field}{self.message}"

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

    __repr__ = one_line

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
class _Kind:
    """A kind of entry: where its files lie, how one is read, and its rules."""

    database: Literal["hardware_db", "model_db"]
    folder: str
    skip: str
    read: Callable[[Traversable], Entry]
    listed: Callable[[], Iterable[Listed]]
    rules: tuple[Rule, ...]


def lint_hardware(files: Sequence[str | os.PathLike[str]] = ()) -> LintResult:
    """Check device files.

    Parameters
    ----------
    files : sequence of str or path
        Files, or folders of them; none checks every device there is. Files of engines and profiles are checked as such.

    Returns
    -------
    LintResult
    """
    return _lint(_DEVICES, {"backends": _ENGINES, "variant_of": _ENGINES, "basis": _PROFILES}, files)


def lint_models(files: Sequence[str | os.PathLike[str]] = ()) -> LintResult:
    """Check model files, and files of weight formats where they are named; as `lint_hardware`."""
    return _lint(_MODELS, {"rules": _FORMATS}, files)


def hardware_rules() -> tuple[Rule, ...]:
    """The rules for devices, in the order in which they are checked."""
    return (Rule(VALID, "error", "the file is readable, and every field is one that the schema knows"), *DEVICE_RULES)


def _lint(kind: _Kind, others: Mapping[str, _Kind], files: Sequence[str | os.PathLike[str]]) -> LintResult:
    found = list(_given(files) if files else _all(kind))
    listed: dict[int, tuple[Listed, ...]] = {}
    problems: list[Problem] = []
    for file in found:
        shown = _shown(file)
        try:
            chosen = _kind_of(file, kind, others) if files else kind
            entry = chosen.read(file)
        except RooflineError as error:
            where = (error.where or str(file)).replace(str(file), shown)
            problems.append(Problem(where, "error", VALID, error.message))
            continue
        if id(chosen) not in listed:
            listed[id(chosen)] = tuple(chosen.listed())
        context = Context(file, listed[id(chosen)])
        for rule in chosen.rules:
            problems += [
                Problem(shown, rule.level, rule.name, finding.message, finding.field)
                for finding in rule.check(entry, context)
            ]
    return LintResult(len(found), tuple(problems))


def _kind_of(file: Traversable, kind: _Kind, others: Mapping[str, _Kind]) -> _Kind:
    """The kind that a field gives away which only that one has."""
    values = _yaml.load(file)
    if not isinstance(values, Mapping):
        return kind
    return next((other for field, other in others.items() if field in values), kind)


def _given(files: Sequence[str | os.PathLike[str]]) -> Iterator[Path]:
    for name in files:
        path = Path(os.path.expanduser(name))
        if os.path.isdir(path):
            inside = sorted(child for child in path.rglob("*") if child.suffix in YAML_SUFFIXES)
            if not inside:
                raise UnreadableFile("a folder without YAML files", where=str(path))
            yield from inside
        else:
            yield path


def _all(kind: _Kind) -> Iterator[Traversable]:
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


def _device(file: Traversable) -> Entry:
    return load(HardwareSpec, file)


def _model(file: Traversable) -> Entry:
    return load(ModelEntry, file)


def _format(file: Traversable) -> Entry:
    return load(FormatSpec, file)


def _profile(file: Traversable) -> Entry:
    return load(ProfileSpec, file)


def _engine(file: Traversable) -> EngineSpec:
    return catalog.engine(str(file))[0]


_DEVICES = _Kind("hardware_db", "devices", "", _device, catalog.list_hardware, DEVICE_RULES)
_ENGINES = _Kind("hardware_db", "engines", "profiles", _engine, catalog.list_engines, NAMED_RULES)
_PROFILES = _Kind("hardware_db", "engines/profiles", "", _profile, tuple, NAMED_RULES[:1])
_MODELS = _Kind("model_db", "", "formats", _model, catalog.list_models, MODEL_RULES)
_FORMATS = _Kind("model_db", "formats", "", _format, catalog.list_formats, NAMED_RULES)
