"""Look entries up: devices, systems and models."""

from __future__ import annotations

import os

from rooflinellm import catalog
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
        Id, alias, Hugging Face id, or the path of a file.

    Returns
    -------
    ModelSpec

    Raises
    ------
    UnknownName, AmbiguousName, InvalidSpec, UnreadableFile, UnsupportedModel
    """
    if isinstance(name, ModelSpec):
        return name
    return _derived(catalog.model(name))


_known: dict[int, ModelSpec] = {}


def _derived(entry: ModelEntry) -> ModelSpec:
    """The model of an entry, derived once: what is cached in it serves every later estimate."""
    known = _known.get(id(entry))
    if known is None or known.entry is not entry:
        known = _known[id(entry)] = ModelSpec(entry)
    return known
