"""Turns of a conversation: what they hold, and how they are read."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rooflinellm import _yaml
from rooflinellm._numeric import is_array
from rooflinellm._shown import one_line
from rooflinellm.api.arguments import count
from rooflinellm.api.estimate import MAX_TOKENS
from rooflinellm.errors import InvalidRequest, UnreadableFile, met

MOST_TURNS = 10_000
LARGEST_FILE = 10_000_000
"""[byte]"""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation: all that was said before, and something new behind it.

    Attributes
    ----------
    new_tokens : int
        Tokens behind the last answer: what the user says, the result of a tool; of the first turn the system message
        and the list of tools as well. [token]
    output_tokens : int
        Tokens of the answer, thinking included. [token]
    edit_at : int or None
        Position of the first token of the history that is not as it was: 0 for a system message that holds the time of
        day, its length for a list of tools behind it, the beginning of an answer whose thinking is dropped. Everything
        from there on is computed again. None only appends. [token]
    """

    new_tokens: int
    output_tokens: int = 0
    edit_at: int | None = None

    __repr__ = one_line


def checked_turns(given: Any) -> list[Turn]:
    """Turns from objects, mappings or tuples; errors as in `prefix_cache`."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise InvalidRequest(f"{met(given)} is no list of turns", where="turns")
    if not 1 <= len(given) <= MOST_TURNS:
        raise InvalidRequest(f"{len(given):,} turns; give 1 to {MOST_TURNS:,}", where="turns")
    return [_turn(each, number) for number, each in enumerate(given, 1)]


def _turn(given: Any, number: int) -> Turn:
    where = f"turn {number}"
    names = [each.name for each in fields(Turn)]
    if isinstance(given, Turn):
        values = {name: getattr(given, name) for name in names}
    elif isinstance(given, Mapping):
        values = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes) and len(given) <= len(names):
        values = dict(zip(names, given, strict=False))
    else:
        raise InvalidRequest(f"{met(given)} is no turn; it has {', '.join(names)}", where=where)
    unknown = [str(name) for name in values if name not in names]
    if unknown or "new_tokens" not in values:
        said = f"unknown: {', '.join(unknown)}" if unknown else "new_tokens is missing"
        raise InvalidRequest(f"{said}; a turn has {', '.join(names)}", where=where)
    edit = values.get("edit_at")
    return Turn(
        new_tokens=_whole(f"{where}, new_tokens", values["new_tokens"]),
        output_tokens=_whole(f"{where}, output_tokens", values.get("output_tokens", 0)),
        edit_at=None if edit is None else _whole(f"{where}, edit_at", edit),
    )


def _whole(where: str, value: Any) -> int:
    if is_array(value):
        value = value.item() if value.size == 1 else value.tolist()
    checked = count(where, value, 0, MAX_TOKENS)
    if is_array(checked):
        raise InvalidRequest("give one whole number", where=where)
    return int(checked)


def read_turns(path: str | os.PathLike[str]) -> list[Turn]:
    """Turns from a file: CSV with the fields as headings, or a JSON list as `prefix_cache` takes it.

    Raises
    ------
    UnreadableFile
        It cannot be read, or holds something else.
    InvalidRequest
        As `prefix_cache`.
    """
    file = Path(os.path.expanduser(path))
    listed = file.suffix.lower() == ".json"
    text = _yaml.read_text(file, max_bytes=LARGEST_FILE)
    try:
        turns = json.loads(text) if listed else None
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"no JSON: {error}", where=str(path)) from error
    if listed:
        return checked_turns(turns)
    rows = csv.DictReader(text.splitlines())
    try:
        return checked_turns([_numbers(row, f"{path}, line {rows.line_num}") for row in rows])
    except csv.Error as error:
        raise UnreadableFile(f"no CSV: {error}", where=str(path)) from error


def _numbers(row: Mapping[str | None, Any], where: str) -> dict[str, int]:
    """Cells of a line as whole numbers; empty ones are left out."""
    found = {}
    for name, cell in row.items():
        if name is None or cell is None or not cell.strip():
            if name is None:
                raise UnreadableFile("more cells than headings", where=where)
            continue
        try:
            found[name.strip()] = int(cell.strip().replace("_", ""))
        except ValueError as error:
            raise UnreadableFile(f"'{cell[:40]}' is no whole number", where=where) from error
    return found
