"""Measured results as functions take them: which files, and what these leave out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rooflinellm import _resources
from rooflinellm.api.arguments import sequence
from rooflinellm.errors import InvalidRequest, met
from rooflinellm.measurements.kernels import FILE as KERNELS
from rooflinellm.measurements.readers import KINDS, read
from rooflinellm.measurements.row import Row
from rooflinellm.specs.parsing import split_count

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
QUALITIES = "ABC"
_FIELDS = {
    "model": "model",
    "hardware": "device",
    "weights": "quant",
    "engine": "engine",
    "tensor_parallel": "tp",
    "concurrency": "batch_size_or_concurrency",
}
"""Fields of a row by what may be stated in its place."""


def measured_rows(files: Paths | None, stated: Mapping[str, str | int | None]) -> Iterator[Row]:
    """Read results.

    Parameters
    ----------
    files : path or iterable of path, optional
        Files as `rooflinellm.measurements.readers.read` takes them; None is the results that come with the package.
    stated : mapping of str to str or int
        What files do not say themselves: ``model``, ``hardware``, ``weights``, ``engine``, ``tensor_parallel``,
        ``concurrency``.

    Raises
    ------
    InvalidRequest
        No files.
    UnreadableFile, InvalidSpec
        A file that is not there, is of no known kind, or breaks off.
    """
    named = {_FIELDS[name]: value for name, value in stated.items()}
    for path in _files(files):
        for row in read(path):
            yield _completed(row, named)


def asked_qualities(quality: str) -> str:
    """Check the qualities that were asked for, and put them in order."""
    asked = quality.upper() if isinstance(quality, str) else ""
    if not asked or set(asked) - set(QUALITIES):
        raise InvalidRequest(f"{quality!r:.40} is no quality; give some of {', '.join(QUALITIES)}", where="quality")
    return "".join(each for each in QUALITIES if each in asked)


def given_files(files: Paths) -> list[str | os.PathLike[str]]:
    """One file or several, as a list."""
    given = [files] if isinstance(files, str | os.PathLike) else sequence("files", files)
    if not given:
        raise InvalidRequest("no files of results were given", where="files")
    for each in given:
        if not isinstance(each, str | os.PathLike):
            raise InvalidRequest(f"{met(each)} is no path", where="files")
    return given


def _files(files: Paths | None) -> Iterator[str | os.PathLike[str] | Traversable]:
    if files is not None:
        yield from given_files(files)
        return
    folder = _resources.database("hardware_db") / "measurements"
    shipped = sorted(
        (file for file in folder.iterdir() if file.name.endswith((".csv", ".csv.gz")) and file.name != KERNELS),
        key=lambda file: file.name,
    )
    if not shipped:
        raise InvalidRequest(
            "this version comes without measured results",
            where="files",
            next_step=f"Give a file: {KINDS}.",
        )
    yield from shipped


def _completed(row: Row, stated: Mapping[str, str | int | None]) -> Row:
    """The row with what its file leaves out."""
    changed: dict[str, Any] = {}
    for name, value in stated.items():
        own = getattr(row, name) or (row.device_id or row.device_key if name == "device" else None)
        own = own or (row.hf_model_id if name == "model" else row.weight_dtype if name == "quant" else None)
        if value and not own:
            changed[name] = value
    if "device" in changed and (counted := split_count(changed["device"])):
        changed["device"], changed["device_count"] = counted[1], float(counted[0])
    return replace(row, **changed) if changed else row
