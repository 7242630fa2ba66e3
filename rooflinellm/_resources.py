"""Where the data is: the two databases of the package, and the folders of the user.

An installed package carries the databases under ``rooflinellm/_data``; in a checkout they lie beside
``pyproject.toml``. They are handed out as a `Traversable`, since the package may be inside a zip file.
"""

from __future__ import annotations

import os
import sys
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rooflinellm.errors import UnreadableFile

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

APPLICATION = "rooflinellm"
PATH_VARIABLE = "ROOFLINELLM_PATH"


@cache
def database(name: Literal["hardware_db", "model_db"]) -> Traversable:
    """Return the folder of a packaged database.

    Parameters
    ----------
    name : {"hardware_db", "model_db"}

    Raises
    ------
    UnreadableFile
        Neither the package nor a checkout around it has the folder.
    """
    packaged = _packaged(name)
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    raise UnreadableFile(
        f"the database {name} is missing from this installation",
        where=str(packaged),
        next_step=f"reinstall {APPLICATION}",
    )


PARSED = "parsed.dat"


def parsed() -> bytes:
    """Return what `_parsed` wrote when the package was built; nothing in a checkout."""
    try:
        return _packaged(PARSED).read_bytes()
    except OSError:
        return b""


def _packaged(name: str) -> Traversable:
    """A file or folder of the package's data."""
    beside = Path(__file__).parent / "_data"
    if beside.is_dir():
        return beside / name
    from importlib.resources import files  # inside a zip file, or none; it brings tempfile, random and more

    return files(APPLICATION) / "_data" / name


def user_directories() -> list[Path]:
    """Return the folders searched for the user's own entries, the first to win first.

    These are the folders named by ``ROOFLINELLM_PATH`` (separated as in ``PATH``), then the configuration folder of the
    user, unless there is no home. They need not exist.
    """
    return list(_user_directories(*map(os.environ.get, _VARIABLES)))


_HOME = ("APPDATA", "USERPROFILE", "HOMEDRIVE", "HOMEPATH") if sys.platform == "win32" else ("XDG_CONFIG_HOME", "HOME")
_VARIABLES = (PATH_VARIABLE, *_HOME)
"""What decides where these folders are."""


@lru_cache(maxsize=16)
def _user_directories(*_values: str | None) -> tuple[Path, ...]:
    """The same, worked out once for each of the values that decide."""
    named = [_expand(part) for part in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if part.strip()]
    configured = _configuration_directory()
    return tuple(dict.fromkeys(named if configured is None else [*named, configured]))


def _configuration_directory() -> Path | None:
    if sys.platform == "win32":
        candidates = [os.environ.get("APPDATA", "")]
    elif sys.platform == "darwin":
        candidates = ["~/Library/Application Support"]
    else:
        candidates = [os.environ.get("XDG_CONFIG_HOME", ""), "~/.config"]
    # A relative XDG_CONFIG_HOME is invalid by its specification, and "~" stays as it is where the home is unknown.
    folders = [_expand(candidate) for candidate in candidates if candidate]
    return next((folder / APPLICATION for folder in folders if folder.is_absolute()), None)


def _expand(path: str) -> Path:
    return Path(os.path.expanduser(path))  # unlike Path.expanduser, never raises
