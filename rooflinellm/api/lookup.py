"""Look entries up: devices, systems and models."""

from __future__ import annotations

import os
from pathlib import Path

from rooflinellm import catalog
from rooflinellm.importers import HUB, read
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry

Name = str | os.PathLike[str]


def hardware(name: Name | HardwareSpec) -> HardwareSpec:
    """Find a device.

    Parameters
    ----------
    name : str, path or HardwareSpec
        Id, alias, path of a YAML file, or an ad hoc device: capacity, bandwidth and peaks, as in
        ``24GiB,1008GB/s,165TFLOP/s@fp16``.

    Returns
    -------
    HardwareSpec

    Raises
    ------
    UnknownName, AmbiguousName, InvalidRequest, InvalidSpec, UnreadableFile
    """
    return catalog.hardware(name)


def system(text: Name | HardwareSpec | SystemSpec) -> SystemSpec:
    """Find a system of devices and host memory.

    Parameters
    ----------
    text : str, path, HardwareSpec or SystemSpec
        Parts joined by ``+``, each ``[N x] name [@ capacity]``: ``2x rtx-3090 + ddr5-5600x2@64GiB``.

    Returns
    -------
    SystemSpec

    Raises
    ------
    UnknownName, AmbiguousName, InvalidRequest, InvalidSpec, UnreadableFile
    """
    return catalog.system(text)


def model(name: Name | ModelEntry | ModelSpec) -> ModelSpec:
    """Find a model.

    Parameters
    ----------
    name : str, path, ModelEntry or ModelSpec
        Id, alias, Hugging Face id, or the path of a file: an entry in YAML, a ``config.json`` or the folder with it, a
        GGUF file. ``hf://organisation/name`` fetches the configuration of that repository, which nothing else does.

    Returns
    -------
    ModelSpec

    Raises
    ------
    UnknownName, AmbiguousName, InvalidSpec, UnreadableFile, UnsupportedModel
    """
    if isinstance(name, ModelSpec):
        return name
    if isinstance(name, str) and name.startswith(HUB):
        from rooflinellm.importers.huggingface_fetch import fetch

        return ModelSpec(fetch(name))
    path = None if isinstance(name, ModelEntry) else catalog.import_path(name)
    return _derived(catalog.model(name)) if path is None else _imported(path)


def _imported(path: Path) -> ModelSpec:
    """The model of a file, read again when the file, or the one beside it, has changed."""
    path = Path(os.path.abspath(path))  # a name such as `.` has none beside it
    files = (path, path / "config.json", path / "hf_quant_config.json", path.parent / "hf_quant_config.json")
    stamp = tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in map(_status, files) if status)
    known = _files.get(path)
    if known is None or known[0] != stamp:
        known = _files[path] = stamp, ModelSpec(read(path))
        if len(_files) > FILES_KEPT:
            _files.pop(next(iter(_files)))
    return known[1]


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


FILES_KEPT = 64
_files: dict[Path, tuple[object, ModelSpec]] = {}


_known: dict[int, ModelSpec] = {}


def _derived(entry: ModelEntry) -> ModelSpec:
    """The model of an entry, derived once: what is cached in it serves every later estimate."""
    known = _known.get(id(entry))
    if known is None or known.entry is not entry:
        known = _known[id(entry)] = ModelSpec(entry)
    return known
