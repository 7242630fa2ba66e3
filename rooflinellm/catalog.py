"""Finds devices, systems, models, formats, engines and profiles by what people type: an id, an alias, a path, figures.

Names are looked up in the user's folders, then in the packaged databases, see `specs.index`; the grammar of systems and
of ad hoc devices stands in `specs.parsing`. An inexact match is a suggestion, never a result.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, get_args

from rooflinellm import _resources
from rooflinellm._kept import Kept
from rooflinellm.errors import (
    AmbiguousName,
    InvalidRequest,
    InvalidSpec,
    RooflineError,
    UnknownName,
    UnsupportedModel,
)
from rooflinellm.specs import parsing
from rooflinellm.specs.engine import EngineSpec, merge_variant
from rooflinellm.specs.formats import ENCODINGS, Encodings, FormatSpec, packaged_encodings
from rooflinellm.specs.hardware import HardwareSpec, StorageSpec, SystemSpec
from rooflinellm.specs.index import (
    YAML_SUFFIXES,
    File,
    Listed,
    Shelf,
    get,
    index_of,
    key_of,
    listed,
    load_file,
    open_entry,
    stamp_of,
    text_of,
    unknown,
)
from rooflinellm.specs.model import ModelEntry
from rooflinellm.specs.parsing import shown
from rooflinellm.specs.profile import ProfileSpec

Name = str | os.PathLike[str]
FORMAT_FAMILIES: tuple[str, ...] = get_args(FormatSpec.model_fields["family"].annotation)
NOT_GGUF_BY_DEFAULT = ("nvfp4", "fp16")
"""Formats that GGUF files can hold and whose bare name means another family's checkpoint."""

_IMPORTABLE = (".json", ".gguf", ".safetensors")
_BUILD = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12][0-9]|3[01]))?")

FITTED, KERNELS, NOMINAL = "calibrated", "kernels", "nominal"
"""Profiles that come with the package: fitted to runs of whole models, to single kernels, and set by hand."""

_DEVICES = Shelf("device", HardwareSpec, "hardware_db", ("devices",), 1, hint="`rooflinellm hardware list` shows all.")
_MODELS = Shelf(
    "model",
    ModelEntry,
    "model_db",
    (),
    1,
    hint="`rooflinellm model list` shows all; the path of a Hugging Face config.json or of a GGUF file will do too.",
)
_ENGINES = Shelf("engine", EngineSpec, "hardware_db", ("engines",), merge=merge_variant)
_STORAGE = Shelf("class of drives", StorageSpec, "hardware_db", ("storage",))
_PROFILES = Shelf("efficiency profile", ProfileSpec, "hardware_db", ("engines", "profiles"))
_FORMATS = {
    family: Shelf(
        "weight format",
        FormatSpec,
        "model_db",
        ("formats", family),
        prefix=f"{family}:",
        hint="`rooflinellm format list` shows all.",
    )
    for family in FORMAT_FAMILIES
}


_LISTS: dict[str, list[Shelf[Any]]] = {"hardware": [_DEVICES], "models": [_MODELS], "formats": [*_FORMATS.values()]}


def unknown_entry(kind: str, text: str) -> UnknownName:
    """The error for a name that none of the entries of a list has, ``hardware``, ``models`` or ``formats``."""
    return unknown(_LISTS[kind], text)


def hardware(name: Name | HardwareSpec) -> HardwareSpec:
    """Return a device.

    Parameters
    ----------
    name : str, path or HardwareSpec
        An id, an alias, the path of a YAML file, or figures such as ``24GiB,1008GB/s,165TFLOP/s@fp16``.

    Raises
    ------
    UnknownName, AmbiguousName
        No device of that name, or several.
    InvalidRequest
        Figures that are none.
    InvalidSpec, UnreadableFile
        The device's file is broken.
    """
    if isinstance(name, HardwareSpec):
        return name
    device = get(_DEVICES, name)
    if device is not None:
        return device
    text = text_of(name, "device")
    if "," in text:
        return parsing.ad_hoc_device(text)
    several = parsing.split_count(text) or "+" in text or "@" in text or parsing.sized(text)
    raise _unknown_device(text, "With a count, a capacity or '+' it is a system: use system()." if several else "")


def _unknown_device(text: str, next_step: str = "") -> UnknownName:
    return unknown([_DEVICES], text, next_step or _other_way_round(text, "model", _MODELS))


def _other_way_round(text: str, what: str, shelf: Shelf[Any]) -> str:
    """What to do where a name is of the other kind: models and hardware change places easily."""
    try:
        known = index_of(shelf).find(text) is not None
    except (AmbiguousName, InvalidSpec):
        known = True
    return f"{shown(text)} is a {what}: the model comes first, then the hardware." if known else ""


def system(name: Name | HardwareSpec | SystemSpec) -> SystemSpec:
    """Return devices and host memory that run a model together.

    Parameters
    ----------
    name : str, path, HardwareSpec or SystemSpec
        ``part ('+' part)*`` with ``part = [N 'x'] name ['@' capacity]``, such as ``2x rtx-3090 + ddr5-5600x2@64GiB``.
        Parts may be devices, system memory, a drive (``nvme-gen4@2TB``) and a network (``10gbe``). A processor beside
        an accelerator is the host, and its rated memory the system memory where none is named; a processor alone is
        the device, and memory beside it sets its bandwidth and capacity (shared by all processors).

    Returns
    -------
    SystemSpec
        Its name is the text in canonical form; `system` reads the same system back from it, except of a YAML path.

    Raises
    ------
    UnknownName, AmbiguousName, InvalidRequest, InvalidSpec, UnreadableFile
        As in `hardware`; processors of different kinds; a count that is no whole number from 1 to 1024.
    """
    if isinstance(name, SystemSpec):
        return name
    if isinstance(name, HardwareSpec | os.PathLike):
        return _alone(hardware(name))
    find = partial(get, _DEVICES)
    return parsing.system(text_of(name, "system"), find, _storage, _unknown_device)


def _alone(device: HardwareSpec) -> SystemSpec:
    """A device without anything beside it: the same system each time, since plans are kept by it."""
    return _systems.of((device,), (), lambda: SystemSpec(name=parsing.device_label(device), device=device))


_systems = Kept[SystemSpec](512)


def _storage(name: str) -> StorageSpec | None:
    """A class of drives; never a path, which may be a device's."""
    file = index_of(_STORAGE).find(name)
    return None if file is None else open_entry(_STORAGE, file)


def model(name: Name | ModelEntry) -> ModelEntry:
    """Return a model.

    Parameters
    ----------
    name : str, path or ModelEntry
        An id, an alias (the Hugging Face id of the model or of a known conversion), or the path of a YAML file.

    Raises
    ------
    UnknownName, AmbiguousName, InvalidRequest, InvalidSpec, UnreadableFile
        As in `hardware`.
    UnsupportedModel
        A path that importers read, see `import_path`.
    """
    if isinstance(name, ModelEntry):
        return name
    path = import_path(name)
    if path is not None:
        raise UnsupportedModel(f"importing {path.suffix or 'a folder'} is not available yet", where=str(path))
    entry = get(_MODELS, name)
    if entry is None:
        text = text_of(name, "model")
        device = parsing.device_name(text.partition("+")[0])
        raise unknown([_MODELS], text, _other_way_round(device, "device", _DEVICES))
    return entry


def import_path(name: Name) -> Path | None:
    """Return the path that an importer must read, None where `model` can answer.

    That is a ``*.json``, ``*.gguf`` or ``*.safetensors``, there or not, and else what is no known name and exists.
    """
    text = text_of(name, "model")
    path = Path(os.path.expanduser(text))
    if text.lower().endswith(YAML_SUFFIXES):
        return None
    if isinstance(name, os.PathLike) or text.lower().endswith(_IMPORTABLE):
        return path
    try:
        known = index_of(_MODELS).find(text) is not None
    except (AmbiguousName, InvalidSpec):
        known = True
    return path if not known and os.path.exists(path) else None


def _in_family(family: str, text: str) -> File | None:
    """A format of one family; its name may carry the family's: ``gguf:q4_k_m``, ``mlx-4bit``."""
    if family not in _FORMATS:
        raise InvalidRequest(f"no family of formats is called {shown(family)}; there are {', '.join(_FORMATS)}")
    index = index_of(_FORMATS[family])
    file = index.find(text)
    if file is None and text.lower().startswith(family):
        file = index.find(text[len(family) :].lstrip(":"))
    return file


def weight_format(name: str | FormatSpec, engine_families: Iterable[str] | None = None) -> FormatSpec:
    """Return a weight format.

    Parameters
    ----------
    name : str or FormatSpec
        A name (``Q4_K_M``), with its family where need be (``hf:mxfp4``).
    engine_families : iterable of str, optional
        The families an engine reads; the first that has the name wins. None: any, and a name that several have is
        ambiguous.

    Raises
    ------
    UnknownName, AmbiguousName, InvalidSpec, UnreadableFile
        As in `hardware`.
    InvalidRequest
        A format of a family that the engine does not read.
    """
    if isinstance(name, FormatSpec):
        return name
    text = text_of(name, "weight format")
    families = FORMAT_FAMILIES if engine_families is None else tuple(engine_families)
    found = [(_FORMATS[family], file) for family in families if (file := _in_family(family, text))]
    if len(found) > 1 and engine_families is None:
        candidates = [shelf.prefix + file.stem for shelf, file in found]
        raise AmbiguousName(f"{shown(text)} is a format of {len(found)} families", candidates=candidates)
    if found:
        return open_entry(*found[0])
    others = [family for family in FORMAT_FAMILIES if family not in families and _in_family(family, text)]
    if others:
        read = " or ".join(families)
        able = [entry.id for entry in list_engines() if others[0] in _families_of(entry.id)]
        raise InvalidRequest(
            f"{shown(text)} is a format of family {others[0]}; the engine reads {read}",
            where="weights",
            next_step=f"Engines that read it: {', '.join(able)}." if able else None,
        )
    raise unknown([_FORMATS[family] for family in families], text)


def _families_of(engine_id: str) -> tuple[str, ...]:
    """The families of formats that an engine reads; a broken file troubles only those who ask for it."""
    try:
        return engine(engine_id)[0].format_families
    except RooflineError:
        return ()


def gguf_type(name: str) -> bool:
    """Tell whether a name is a GGUF format's, so that llama.cpp is the engine to expect."""
    text = text_of(name, "weight format")
    if key_of(text) in NOT_GGUF_BY_DEFAULT:
        return False
    try:
        return _in_family("gguf", text) is not None
    except (AmbiguousName, InvalidSpec):
        return True


def encodings() -> Encodings:
    """Return the table of encodings: the user's own, or the packaged one."""
    for folder in _resources.user_directories():
        own = os.path.join(folder, "model_db", *ENCODINGS)
        if os.path.exists(own):
            return load_file(Encodings, Path(own), stamp_of(Path(own)))
    return packaged_encodings()


def kv_type(name: str) -> str:
    """Return the canonical name of a type for cached keys or values, such as ``f16`` for ``FP16``.

    Raises
    ------
    UnknownName
        No such type.
    """
    text = text_of(name, "KV type")
    types = encodings().kv_types
    aliases = {key_of(alias): each for each, kind in types.items() for alias in kind.aliases}
    names = aliases | {key_of(each): each for each in types}
    if key_of(text) in names:
        return names[key_of(text)]
    near = difflib.get_close_matches(key_of(text)[:80], types, cutoff=0.4)
    raise UnknownName(f"no KV type is called {shown(text)}; there are {', '.join(types)}", suggestions=near)


def engine(name: str | EngineSpec) -> tuple[EngineSpec, str | None, str | None]:
    """Return an engine with the backend and the build that were named: ``llama.cpp:cuda@2024-05``.

    Raises
    ------
    UnknownName, AmbiguousName, InvalidSpec, UnreadableFile
        As in `hardware`; a backend that the engine does not have.
    InvalidRequest
        A build that is no date.
    """
    if isinstance(name, EngineSpec):
        return name, None, None
    spec = get(_ENGINES, name)
    if spec is not None:
        return spec, None, None
    head, at, build = text_of(name, "engine").partition("@")
    base, colon, backend = head.partition(":")
    spec = get(_ENGINES, base)
    if spec is None:
        raise unknown([_ENGINES], base.strip(), f"Known: {', '.join(entry.id for entry in list_engines()) or 'none'}.")
    if at and not _BUILD.fullmatch(build.strip()):
        raise InvalidRequest(f"engine build {shown(build)} is no date; write it like {spec.id}:cuda@2024-05")
    named = next((each for each in spec.backends if key_of(each) == key_of(backend)), None)
    if colon and named is None:
        message = f"{spec.id} has no backend {shown(backend.strip())}"
        raise UnknownName(message, suggestions=spec.backends, next_step=f"It has {', '.join(spec.backends)}.")
    return spec, named, build.strip() if at else None


def profile(name: Name | ProfileSpec = "nominal") -> ProfileSpec:
    """Return an efficiency profile by id, alias or path; errors as in `hardware`."""
    if isinstance(name, ProfileSpec):
        return name
    found = get(_PROFILES, name)
    if found is None:
        raise unknown([_PROFILES], text_of(name, "profile"))
    return found


def profiles(name: Name | ProfileSpec | None = None) -> tuple[ProfileSpec, ...]:
    """Return the efficiency profiles to look things up in, in this order; the one of single kernels is among them.

    Parameters
    ----------
    name : str, path or ProfileSpec, optional
        The preferred profile; None is the fitted one. What it does not cover, the nominal one does; below a profile of
        a user's own measurements, the fitted one comes first.
    """
    preferred = profile(FITTED if name is None else name)
    behind = (FITTED, KERNELS, NOMINAL) if preferred.basis == "measured" else (KERNELS, NOMINAL)
    return (preferred, *(found for found in map(profile, behind) if found is not preferred))


def has_user_entries() -> bool:
    """Tell whether any folder for entries of the user's own exists."""
    return any(map(os.path.isdir, _resources.user_directories()))


def list_hardware(query: str = "") -> tuple[Listed, ...]:
    """Return the devices with every word of the query in id, name or aliases; case, spaces and dashes do not matter."""
    return listed([_DEVICES], query)


def list_models(query: str = "") -> tuple[Listed, ...]:
    """Return the models with every word of the query in id, name or aliases."""
    return listed([_MODELS], query)


def list_formats(query: str = "") -> tuple[Listed, ...]:
    """Return the weight formats with every word of the query in id, name or aliases."""
    return listed(_FORMATS.values(), query)


def list_engines(query: str = "") -> tuple[Listed, ...]:
    """Return the engines with every word of the query in id, name or aliases."""
    return listed([_ENGINES], query)
