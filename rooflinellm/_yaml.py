"""Strict YAML: YAML 1.2 scalars, no duplicate keys, no tags, bounded size and aliases, errors with file and line.

PyYAML is imported for the first text that the package does not know already.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflinellm import _parsed
from rooflinellm.errors import UnreadableFile

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MAX_FILE_BYTES = 4_000_000
READ_BYTES = 65_536
"""What is read of a file at first: asking for the largest size at once would reserve that much memory each time."""


def read_text(file: Path | Traversable, *, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Read a small text file.

    Raises
    ------
    UnreadableFile
        Not there, a folder, not readable, not UTF-8, or larger than `max_bytes`.
    """
    try:
        if isinstance(file, Path) and file.exists() and not file.is_file():
            raise UnreadableFile("a folder, or no regular file", where=str(file))
        with file.open("rb") as stream:
            data = stream.read(min(READ_BYTES, max_bytes + 1))
            if len(data) == READ_BYTES:
                data += stream.read(max_bytes + 1 - READ_BYTES)
    except (OSError, ValueError) as error:  # the latter of a path with a NUL
        raise UnreadableFile(getattr(error, "strerror", None) or str(error), where=str(file)) from error
    if len(data) > max_bytes:
        raise UnreadableFile(f"the file is larger than {max_bytes:,} bytes", where=str(file))
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"not UTF-8 text (byte {error.start})", where=str(file)) from error


def load(file: Path | Traversable) -> Any:
    """Read a YAML file into plain Python values.

    Raises
    ------
    UnreadableFile
        The file cannot be read.
    InvalidSpec
        It is no YAML, repeats a key, uses a tag, or expands into too many nodes.
    """
    return parse(read_text(file), where=str(file))


def parse(text: str, *, where: str = "text") -> Any:
    """Read YAML text into plain Python values; errors as in `load`."""
    if (value := _parsed.known(text)) is not _parsed.UNKNOWN:
        return value
    from rooflinellm import _strict_yaml

    return _strict_yaml.parse(text, where)


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """Find the line, from 1, on which the value at a path of keys and indices stands.

    The deepest part of the path that exists counts, so that a missing field points at the mapping that lacks it.
    """
    from rooflinellm import _strict_yaml

    return _strict_yaml.line_of(text, path)
