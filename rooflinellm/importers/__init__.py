"""Files of models as entries: a configuration, a GGUF file, safetensors files. A module of its own reads each kind.

Importers read files and nothing else: no network (unless a repository is named as ``hf://…``), no code of the model's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rooflinellm.errors import UnreadableFile

if TYPE_CHECKING:
    from rooflinellm.specs.model import ModelEntry

HUB = "hf://"
"""What stands before the name of a repository whose configuration is to be fetched."""

KINDS = "config.json (or a folder that holds it), *.gguf, *.safetensors"


def read(path: str | os.PathLike[str]) -> ModelEntry:
    """Read the model that a file or a folder describes.

    Parameters
    ----------
    path : str or path
        ``config.json`` or another configuration of Hugging Face's kind, a GGUF file, safetensors, or a folder with any
        of them; of a configuration with safetensors beside it, both.

    Returns
    -------
    ModelEntry

    Raises
    ------
    UnreadableFile, InvalidSpec
        Not there, broken, or of no kind that is read.
    UnsupportedModel
        An architecture or a quantisation that is not described; the message names it.
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith(".gguf"):
        from rooflinellm.importers import gguf_model

        return gguf_model.read(path)
    folder = os.path.isdir(path)
    if name.endswith((".safetensors", ".safetensors.index.json")) or (folder and any(path.glob("*.safetensors"))):
        from rooflinellm.importers import safetensors_model

        return safetensors_model.read(path)
    if folder and not os.path.exists(path / "config.json") and any(path.glob("*.gguf")):
        from rooflinellm.importers import gguf_model

        return gguf_model.read_folder(path)
    if name.endswith(".json") or folder:
        from rooflinellm.importers import huggingface

        return huggingface.read(path)
    raise UnreadableFile(f"no file of a kind that is read; these are {KINDS}", where=str(path))
