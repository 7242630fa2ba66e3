"""Fetches the configuration of a repository from the Hugging Face Hub: only when asked, by a name that begins with
``hf://``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rooflinellm.errors import InvalidRequest, UnreadableFile
from rooflinellm.importers import HUB
from rooflinellm.importers.huggingface import CONFIG, QUANTISATION, read

if TYPE_CHECKING:
    from rooflinellm.specs.model import ModelEntry

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_NAME = re.compile(rf"(?P<repository>{_PART}/{_PART})(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]{{0,119}}))?")


def fetch(name: str) -> ModelEntry:
    """Read the model of a repository, through the cache of ``huggingface_hub``.

    Parameters
    ----------
    name : str
        ``hf://organisation/name``, and ``@revision`` behind it where another than the newest is meant.

    Returns
    -------
    ModelEntry

    Raises
    ------
    InvalidRequest
        No name of a repository, or the package ``huggingface_hub`` is missing.
    UnreadableFile
        The repository, or its configuration, cannot be had.
    InvalidSpec, UnsupportedModel
        As in `huggingface.read`.
    """
    match = _NAME.fullmatch(name.removeprefix(HUB))
    if match is None:
        raise InvalidRequest(f"'{name:.100}' is no repository; write it like {HUB}Qwen/Qwen3-8B", where="model")
    file = _download(match["repository"], CONFIG, match["revision"])
    assert file is not None
    _download(match["repository"], QUANTISATION, match["revision"], needed=False)
    return read(file)


def _download(repository: str, name: str, revision: str | None, *, needed: bool = True) -> Path | None:
    """Put one file of a repository into the cache; None where it has none and needs none."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError as error:
        raise InvalidRequest(
            f"fetching {HUB}{repository} needs the package huggingface_hub",
            where="model",
            next_step="Install it with `pip install huggingface_hub`, or name a file.",
        ) from error
    try:
        return Path(hf_hub_download(repository, name, revision=revision))
    except EntryNotFoundError as error:
        if not needed:
            return None
        raise UnreadableFile(f"the repository holds no {name}", where=HUB + repository) from error
    except Exception as error:  # the package raises what its own transport raises: connections, HTTP, time-outs
        if not needed:
            return None
        raise UnreadableFile(f"{type(error).__name__}: {error}"[:300], where=HUB + repository) from error
