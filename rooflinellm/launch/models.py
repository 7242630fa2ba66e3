"""Which model and format a command names: a file at hand, or what the name of a file or a repository says."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from rooflinellm import catalog
from rooflinellm.api import lookup
from rooflinellm.errors import InvalidRequest, RooflineError
from rooflinellm.launch.settings import Settings
from rooflinellm.launch.shell import WHERE
from rooflinellm.operators.model import ModelSpec

if TYPE_CHECKING:
    from rooflinellm.measurements.names import Names

_MADE = re.compile(
    r"[-_.](?:unsloth[-_.]|quantized[-_.])?(?P<quantization>bnb[-_]4bit|w\d+a\d+|fp8[-_]dynamic)$", re.IGNORECASE
)
"""How checkpoints for vLLM end that were quantised after the fact."""
NAME_IT = "Name the model beside the command."
_CACHED = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")


class Named(NamedTuple):
    """A model, and the format its name says (None: the file's own, or nothing said)."""

    model: str
    spec: ModelSpec
    quantization: str | None
    is_file: bool


def named_model(settings: Settings, key: str, given: ModelSpec | None = None) -> Named:
    """The model of a flag; one that is given takes the name's place, and the name still says the format.

    Raises
    ------
    InvalidRequest
        The flag is missing, or its value no model that is known.
    RooflineError
        A file that cannot be read.
    """
    text = settings.text(key)
    if given is not None:
        says = None if given.entry.file is not None else quantization_of(text or "", settings.program.engine)
        return Named(given.id, given, says, is_file=given.entry.file is not None)
    if not text:
        raise InvalidRequest(f"the command of {settings.program.name} names no model", where=WHERE, next_step=NAME_IT)
    path = os.path.expanduser(text)
    if catalog.import_path(text) is not None and os.path.exists(path):
        return Named(path, lookup.model(path), None, is_file=True)
    name = text.replace("\\", "/").partition("?")[0].rstrip("/")
    if cached := _CACHED.search(name):
        name = f"{cached['owner']}/{cached['name']}"
    parts = name.split("/")
    quantization = quantization_of(parts[-1], settings.program.engine)
    try:
        bare = _MADE.sub("", parts[-1]).removesuffix(f"-{quantization}")
        spec = _names().model([name, *parts[:0:-1], bare])
    except RooflineError as error:
        raise settings.rewrite(key, error, NAME_IT) from error
    return Named(spec.id, spec, quantization, is_file=False)


def weight_format_of(quantization: str, engine: str, model: ModelSpec) -> str:
    """The id of the format that a quantisation's name means to an engine; errors as of the names of results."""
    return _names().weight_format(quantization, catalog.engine(engine)[0], model).id


def _names() -> Names:
    # Imported where a name is looked up: most commands are written without one, and start the sooner.
    from rooflinellm.measurements.names import default_names

    return default_names()


def quantization_of(name: str, engine: str) -> str | None:
    """The quantisation that the name of a file or repository ends with: one of the engine's formats, or its like."""
    families = catalog.engine(engine)[0].format_families
    if "gguf" not in families:
        if made := _MADE.search(name):
            return made["quantization"]
        listed = [each.id.partition(":") for each in catalog.list_formats()]
        formats = [own for family, _, own in listed if family in families and name.lower().endswith(f"-{own}")]
        if formats:
            return max(formats, key=len)
    from rooflinellm.measurements.names import quant_in

    return quant_in(name)


def named_format(
    settings: Settings, key: str, quantization: str, engine: str, model: ModelSpec, *, typed: bool = True
) -> str:
    """The format of a quantisation's name, as `estimate` takes it; an error names the flag.

    Where a typed one is computed as another, that is said.
    """
    try:
        found = weight_format_of(quantization, engine, model)
    except RooflineError as error:
        raise settings.rewrite(key, error, "Name the format of the weights beside the command.") from error
    written = format_text(found)
    plain = re.sub(r"^ud-", "", quantization, flags=re.IGNORECASE)
    if typed and engine == "llama.cpp" and plain.lower() != written.lower():
        settings.said.append(f"{quantization}: computed as {written}")
    return written


def format_text(name: str) -> str:
    """A format's id as people type it: ``Q4_K_M``, ``fp8``, ``mlx-4bit``."""
    family, _, own = name.rpartition(":")
    return own.upper() if family == "gguf" else f"mlx-{own}" if family == "mlx" else own


def cache_type(settings: Settings, key: str, text: str, engine: str) -> str | None:
    """The type of the cache, ``K/V`` where they differ, None for the engine's own; an error names the flag."""
    try:
        return _names().kv(text, catalog.engine(engine)[0])
    except RooflineError as error:
        raise settings.rewrite(key, error) from error
