"""The names of all entries: which file holds what is asked for, and what there is.

The folders of the user come before the packaged databases. A lookup by id opens one file. A lookup by alias scans the
heads of all files of its kind, once a process and without validating them: a broken file troubles only those who ask
for it.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, cast

from rooflinellm import _resources, _yaml
from rooflinellm._shown import one_line
from rooflinellm.errors import AmbiguousName, InvalidRequest, InvalidSpec, UnknownName, UnreadableFile
from rooflinellm.specs.common import Entry, Spec, load, validate
from rooflinellm.specs.parsing import shown

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MAX_SUGGESTIONS = 5
MAX_TEXT = 2_000
HEAD_BYTES = 65_536
YAML_SUFFIXES = (".yaml", ".yml")

Stamp = tuple[int, int, int, int]
_UNREADABLE: Stamp = (0, 0, 0, 0)
_PACKAGED = -1

_AnySpec = TypeVar("_AnySpec", bound=Spec)
_AnyEntry = TypeVar("_AnyEntry", bound=Entry)
_IGNORED = re.compile(r"[\s_\-‐-―−]+")  # white space, and every dash that a web page may put into a name
_HEAD_NAME = re.compile(r"^name:[ \t]+(?P<value>.+?)[ \t]*\r?$", re.MULTILINE)
_HEAD_LISTS = ("aliases", "products")
_LIST = re.compile(r".*(?:\n(?![^\s\-#\]]).*)*")  # the rest of the line, and the lines below that belong to it
_SCALAR = re.compile(
    r"""'[^'\\\n]*'|"[^"\\\n]*"|[^\s'"\[\]{}#&*!|>%@`,:-](?:[^'"\[\]{}#:\n]|:(?=\S))*"""  # quoted or plain, on a line
)


class Listed(NamedTuple):
    """An entry as lists show it."""

    id: str
    name: str
    aliases: tuple[str, ...]
    products: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return one_line(self)


class _Head(NamedTuple):
    """What a file says about its names."""

    name: str
    aliases: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


class File(NamedTuple):
    """A file of a database.

    `stamp` changes when the file is edited (None: packaged, never looked at again); files of one `layer` are of one
    database.
    """

    stem: str
    file: Traversable
    stamp: Stamp | None
    layer: int


@dataclass(frozen=True)
class Shelf(Generic[_AnyEntry]):
    """One kind of entry and where its files lie; `depth` is how many folders may stand between.

    `merge` completes the fields of an entry with ``variant_of`` from those of the entry it names, if the kind has any.
    """

    noun: str
    spec: type[_AnyEntry]
    database: Literal["hardware_db", "model_db"]
    folder: tuple[str, ...]
    depth: int = 0
    prefix: str = ""
    hint: str = ""
    merge: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] | None = None


def _walk(folder: Traversable, depth: int) -> Iterator[Traversable]:
    """YAML files below a folder, in order of their names; what cannot be listed holds none."""
    try:
        children = sorted((child for child in folder.iterdir() if child.name[:1] != "."), key=lambda child: child.name)
        for child in children:
            if child.name.endswith(YAML_SUFFIXES):
                yield child
            elif depth and child.name != "formats" and child.is_dir():
                yield from _walk(child, depth - 1)
    except (OSError, ValueError):  # the latter from inside a zip file
        return


def _files(folder: Traversable, depth: int, layer: int) -> Iterator[File]:
    for file in _walk(folder, depth):
        stamp = None if layer == _PACKAGED else _stamp_or_none(file)
        yield File(file.name.rpartition(".")[0], file, stamp, layer)


def stamp_of(file: Traversable) -> Stamp:
    """What changes when a regular file is replaced or edited: device, inode, time and size."""
    status = regular_status(file)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def regular_status(file: Traversable | Path) -> os.stat_result:
    """Status of a regular file; `UnreadableFile` for anything else, since opening a pipe would wait."""
    try:
        status = os.stat(str(file))
    except (OSError, ValueError) as error:
        raise UnreadableFile(getattr(error, "strerror", None) or str(error), where=str(file)) from error
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile("a folder, or no regular file", where=str(file))
    return status


def _stamp_or_none(file: Traversable) -> Stamp:
    try:
        return stamp_of(file)
    except UnreadableFile:
        return _UNREADABLE  # the file has its place, and is reported when someone asks for it


@lru_cache(maxsize=2048)
def _load_cached(spec: type[Spec], file: Traversable, stamp: Stamp | None) -> Spec:
    return load(spec, file)


def load_file(spec: type[_AnySpec], file: Traversable, stamp: Stamp | None) -> _AnySpec:
    """Read and validate a file, once for each of its versions."""
    return cast(_AnySpec, _load_cached(spec, cast(Hashable, file), stamp))


@lru_cache(maxsize=256)
def _values(file: Traversable, stamp: Stamp | None) -> Any:
    """Plain values of a file, read once for each of its versions."""
    return _yaml.load(file)


@lru_cache(maxsize=256)
def _merge_cached(shelf: Shelf[Any], file: Traversable, stamp: Stamp | None, base: File) -> Spec:
    text = _yaml.read_text(file)
    assert shelf.merge is not None
    merged = shelf.merge(_values(cast(Hashable, base.file), base.stamp), _yaml.parse(text, where=str(file)))
    return cast(Spec, validate(shelf.spec, merged, where=str(file), text=text))


def _load_entry(shelf: Shelf[_AnyEntry], file: Traversable, stamp: Stamp | None) -> _AnyEntry:
    """Read and validate an entry, a variant on top of the entry it varies."""
    name = None
    if shelf.merge is not None:
        values = _values(cast(Hashable, file), stamp)
        name = values.get("variant_of") if isinstance(values, Mapping) else None
    if name is None:
        return load_file(shelf.spec, file, stamp)
    base = index_of(shelf).find(name) if isinstance(name, str) else None
    below = None if base is None else _values(cast(Hashable, base.file), base.stamp)
    if base is None or not isinstance(below, Mapping) or "variant_of" in below:
        message = f"variant_of {shown(str(name))} is no {shelf.noun}, or a variant itself"
        raise InvalidSpec(message, where=f"{file}, field variant_of")
    return cast(_AnyEntry, _merge_cached(shelf, cast(Hashable, file), stamp, base))


@lru_cache(maxsize=8192)
def _head(file: Traversable, stamp: Stamp | None) -> _Head:
    """Read name, aliases and products from a file without validating it; never raises."""
    stem = file.name.rpartition(".")[0]
    if stamp == _UNREADABLE:
        return _Head(stem)
    try:
        with file.open("rb") as stream:
            text = stream.read(HEAD_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return _Head(stem)
    name = _HEAD_NAME.search(text)
    names = _strings(name["value"]) if name else ()
    return _Head(names[0] if names else stem, *(_list_below(text, key) for key in _HEAD_LISTS))


def _list_below(text: str, key: str) -> tuple[str, ...]:
    """The strings of a list of the outermost mapping; of a key that is there twice, those of the last."""
    begin = f"{key}:"
    place = text.rfind(f"\n{begin}") + 1
    if not place and not text.startswith(begin):
        return ()
    found = _LIST.match(text, place + len(begin))
    assert found is not None  # it matches an empty text
    return _strings(found[0])


def _strings(value: str) -> tuple[str, ...]:
    """Read a YAML string or list of strings: plain ones quickly, all others with the YAML parser."""
    body = value.strip()
    if body.startswith("[") and body.endswith("]"):
        items = body[1:-1].split(",")
    elif body.startswith("- "):
        items = re.split(r"(?:^|\n)[ \t]*- ", body)
    else:
        items = [body]
    plain = [item.strip() for item in items if item.strip()]
    if all(_SCALAR.fullmatch(item) for item in plain):
        return tuple(item.strip("'\"") for item in plain)
    try:
        parsed = _yaml.parse(f"value: {value}")["value"]
    except (InvalidSpec, TypeError, KeyError):
        return ()
    return tuple(str(item) for item in (parsed if isinstance(parsed, list) else [parsed]))


def key_of(text: str) -> str:
    """What counts of a name: not its case, white space, dashes and underscores; dots, plus signs and slashes do."""
    return _IGNORED.sub("", text.lower())


def _natural(text: str) -> list[str | int]:
    """Sort key that puts 9 before 10."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"([0-9]+)", text))]


class Index:
    """The names of one kind of entry. Files come in order of precedence; the aliases are read when first asked for."""

    def __init__(self, prefix: str, files: Iterable[File]) -> None:
        self.prefix = prefix
        self.entries: dict[str, list[File]] = {}
        for file in files:
            self.entries.setdefault(file.stem, []).append(file)
        self.ids: dict[str, list[str]] = {}
        for stem in self.entries:
            self.ids.setdefault(key_of(stem), []).append(stem)

    def listed(self, stem: str) -> Listed:
        """An entry with all its names: one that replaces another answers to the other's aliases too."""
        heads = [_head(cast(Hashable, file.file), file.stamp) for file in self.entries[stem]]
        aliases = dict.fromkeys(alias for head in heads for alias in head.aliases)
        products = dict.fromkeys(each for head in heads for each in head.products)
        return Listed(self.prefix + stem, heads[0].name, tuple(aliases), tuple(products))

    @cached_property
    def aliases(self) -> dict[str, list[str]]:
        """Entries by normalised alias or product."""
        return self._by_key(lambda entry: map(key_of, (*entry.aliases, *entry.products)))

    @cached_property
    def sold_in(self) -> dict[str, list[str]]:
        """Entries by product and alias together, in either order: ``mac mini m4 pro``, ``m4 pro mac mini``."""

        def keys(entry: Listed) -> Iterator[str]:
            for pair in product(map(key_of, entry.products), map(key_of, entry.aliases)):
                yield "".join(pair)
                yield "".join(reversed(pair))

        return self._by_key(keys)

    def _by_key(self, keys: Callable[[Listed], Iterable[str]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for stem in self.entries:
            for key in set(keys(self.listed(stem))):
                found.setdefault(key, []).append(stem)
        return found

    def find(self, text: str) -> File | None:
        """The file of a name, None where there is no such name."""
        key = key_of(text)
        stems = [text] if text in self.entries else self.ids.get(key) or self.aliases.get(key)
        stems = stems or self.sold_in.get(key) or []
        if not key or not stems:
            return None
        if len(stems) > 1:
            candidates = sorted((self.prefix + stem for stem in stems), key=_natural)
            raise AmbiguousName(f"{shown(text)} fits {len(stems)} entries", candidates=candidates)
        first, *others = self.entries[stems[0]]
        for other in others:
            if other.layer == first.layer:
                raise InvalidSpec(f"{other.file} holds an entry of the same id", where=str(first.file))
        return first


@lru_cache(maxsize=64)
def _packaged(shelf: Shelf[Any], root: Traversable) -> tuple[File, ...]:
    for part in shelf.folder:
        root = root / part
    return tuple(_files(root, shelf.depth, _PACKAGED))


@lru_cache(maxsize=64)
def _cached_index(shelf: Shelf[Any], root: Traversable, user: tuple[File, ...]) -> Index:
    return Index(shelf.prefix, (*user, *_packaged(shelf, cast(Hashable, root))))


def index_of(shelf: Shelf[Any]) -> Index:
    """The names as they are now: the folders of the user are looked at each time, the packaged files once."""
    user: list[File] = []
    for layer, directory in enumerate(_resources.user_directories()):
        folder = os.path.join(directory, shelf.database, *shelf.folder)
        if os.path.isdir(folder):
            user.extend(_files(Path(folder), shelf.depth, layer))
    return _cached_index(shelf, cast(Hashable, _resources.database(shelf.database)), tuple(user))


def unknown(shelves: Sequence[Shelf[Any]], text: str, next_step: str = "") -> UnknownName:
    """Make the error for a name that is none, with the nearest there are.

    First come names that the text is part of or contains, then those that look alike.
    """
    names: dict[str, list[str]] = {}
    for shelf in shelves:
        index = index_of(shelf)
        for table in (index.ids, index.aliases):
            for key, stems in table.items():
                names.setdefault(key, []).extend(index.prefix + stem for stem in stems)
    key = key_of(text)[:80]
    inside = [name for name in names if len(key) > 1 and (key in name or (len(name) > 3 and name in key))]
    inside.sort(key=lambda name: (abs(len(name) - len(key)), _natural(name)))
    near = [*inside, *difflib.get_close_matches(key, names, n=2 * MAX_SUGGESTIONS, cutoff=0.55)]
    suggestions = list(dict.fromkeys(entry for name in near for entry in names[name]))[:MAX_SUGGESTIONS]
    meant = f"Did you mean: {', '.join(suggestions)}?" if suggestions else ""
    step = " ".join(filter(None, (meant, next_step or shelves[0].hint)))
    message = f"no {shelves[0].noun} is called {shown(text)}"
    return UnknownName(message, suggestions=suggestions, next_step=step or None)


def text_of(name: object, what: str) -> str:
    """The name or path that was given, checked to be text that a file system can hold."""
    text = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str):
        raise InvalidRequest(f"{what} must be a name, a path or a specification, not {type(name).__name__}")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what}: {shown(text)} is no valid text") from None
    text = text.strip()
    if not text or "\0" in text or len(text) > MAX_TEXT:
        raise InvalidRequest(
            f"{what}: {shown(text)} is no name: empty, longer than {MAX_TEXT:,} characters or with a NUL"
        )
    return text


def get(shelf: Shelf[_AnyEntry], name: object) -> _AnyEntry | None:
    """The entry of a name or the content of a YAML file, None where the name is none."""
    text = text_of(name, shelf.noun)
    if isinstance(name, os.PathLike) or text.lower().endswith(YAML_SUFFIXES):
        path = Path(os.path.expanduser(text))
        return _load_entry(shelf, path, stamp_of(path))
    file = index_of(shelf).find(text)
    return None if file is None else open_entry(shelf, file)


def open_entry(shelf: Shelf[_AnyEntry], file: File) -> _AnyEntry:
    """Read the entry of a file, whose name must be the entry's id."""
    if file.stamp == _UNREADABLE:
        stamp_of(file.file)
    spec = _load_entry(shelf, file.file, file.stamp)
    if spec.id != shelf.prefix + file.stem:
        message = f"id '{spec.id}' is not the file's name; expected '{shelf.prefix}{file.stem}'"
        raise InvalidSpec(message, where=f"{file.file}, field id", next_step="Rename the file, or change the id.")
    return spec


def listed(shelves: Iterable[Shelf[Any]], query: str) -> tuple[Listed, ...]:
    """Return the entries with every word of a query in id, name, aliases or products, in order of their ids."""
    if not isinstance(query, str):
        raise InvalidRequest(f"a query must be text, not {type(query).__name__}")
    words = [word for word in _IGNORED.split(query.lower()) if word]
    found = []
    for shelf in shelves:
        index = index_of(shelf)
        for stem in sorted(index.entries, key=_natural):
            entry = index.listed(stem)
            names = "\n".join(map(key_of, (entry.id, entry.name, *entry.aliases, *entry.products)))
            if all(word in names for word in words):
                found.append(entry)
    return tuple(found)
