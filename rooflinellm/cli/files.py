"""Files that commands write: checked before the work, and written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from rooflinellm import _files
from rooflinellm.cli.mistakes import as_given

TABLES = {".csv": "csv", ".json": "json", ".md": "md"}
"""Formats of the answer on standard output, by the ending of a file that people want it in."""
CHARTS = (".png", ".svg", ".pdf")
"""Endings that a chart may have."""


def target_of(path: str, option: str, endings: tuple[str, ...] = ()) -> Path:
    """The path, if a file can be written there.

    Parameters
    ----------
    path : str
        As it was typed.
    option : str
        The option it was typed for, for the message.
    endings : tuple of str
        What it may end in; empty allows anything.

    Raises
    ------
    InvalidRequest
        Another ending, a folder, or one that is not there or cannot be written in.
    """
    from rooflinellm.errors import InvalidRequest

    option = as_given(option)
    target = Path(os.path.expanduser(path))
    if os.path.isdir(target):
        raise InvalidRequest(f"'{path}' is a folder", where=option)
    if endings and target.suffix.lower() not in endings:
        raise InvalidRequest(
            f"'{target.name}' ends in none of {', '.join(endings)}", where=option, next_step=_redirected(path, target)
        )
    if not os.path.isdir(target.parent):
        raise InvalidRequest(f"'{path}' would lie in '{target.parent}', which is no folder", where=option)
    if not os.access(target.parent, os.W_OK):
        raise InvalidRequest(f"'{path}' would lie in '{target.parent}', which is not yours to write in", where=option)
    return target


def _redirected(path: str, target: Path) -> str | None:
    """How a table gets into a file, where the command has one in this format."""
    ctx = click.get_current_context(silent=True)
    form = TABLES.get(target.suffix.lower())
    if form is None or ctx is None or all(parameter.name != "form" for parameter in ctx.command.params):
        return None
    return f"For the table itself: -f {form} > {path}"


def write_whole(target: Path, option: str, save: Callable[[Path], object]) -> None:
    """Let `save` write a file beside the target, which takes its place when it is done; see `_files.write_whole`.

    Raises
    ------
    InvalidRequest
        It cannot be written.
    """
    from rooflinellm.errors import InvalidRequest

    try:
        _files.write_whole(target, save)
    except OSError as error:
        raise InvalidRequest(f"cannot write '{target}': {error.strerror or error}", where=as_given(option)) from error
