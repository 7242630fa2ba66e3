"""A launch command as arguments of an estimate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from rooflinellm._shown import one_line
from rooflinellm.api.lookup import Name
from rooflinellm.api.lookup import model as find_model
from rooflinellm.api.options import Options
from rooflinellm.errors import RooflineWarning
from rooflinellm.launch import llama, servers
from rooflinellm.launch.models import Named
from rooflinellm.launch.settings import Settings
from rooflinellm.launch.shell import parse
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.model import ModelEntry


class Launch(NamedTuple):
    """What a launch command asks for.

    Attributes
    ----------
    model : str, path or spec
        First argument of `rooflinellm.estimate`.
    keywords : dict of str to Any
        Its keywords; lists where a benchmark runs several tests.
    warnings : tuple of str
        Flags that are not taken into account, one each.
    assumptions : tuple of str
        How the others are read, where that is not plain.
    """

    model: Any
    keywords: dict[str, Any]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]

    def __repr__(self) -> str:
        return one_line(self)


class _Reader(NamedTuple):
    model: Callable[[Settings, ModelSpec | None], tuple[Named, str | None]]
    keywords: Callable[[Settings, ModelSpec], dict[str, Any]]


_READERS = {
    "llama.cpp": _Reader(llama.model_and_weights, llama.keywords),
    "vllm": _Reader(servers.vllm_model, servers.vllm_keywords),
    "mlx": _Reader(servers.mlx_model, servers.mlx_keywords),
}
_OPTIONS = frozenset(each.name for each in fields(Options))


def from_command(text: str, model: Name | ModelEntry | ModelSpec | None = None) -> Launch:
    """Read a launch command of llama.cpp, vLLM or MLX.

    Parameters
    ----------
    text : str
        A command of ``llama-server``, ``llama-cli``, ``llama-bench``, ``vllm serve``, ``mlx_lm.generate`` and their
        like, as it is typed into a shell; with environment, path and line continuations if it has them.
    model : str, path or spec, optional
        In place of the command's model, such as where its file has no telling name.

    Returns
    -------
    Launch
        Model and keywords of `rooflinellm.estimate`, and what is not taken into account.

    Raises
    ------
    InvalidRequest
        No program that is known, a flag without its value, or a value that is impossible; it names the flag.
    UnknownName, AmbiguousName, UnreadableFile, InvalidSpec, UnsupportedModel
        Of `model`, or of a file that the command names and that is there.

    Warns
    -----
    RooflineWarning
        For each flag that matters, or is unknown, and is not taken into account.

    Notes
    -----
    A model that is no file at hand is recognised by the name of its file or repository. The hardware is not in a
    command; it is named beside it.
    """
    settings = Settings(parse(text))
    engine = settings.program.engine
    reader = _READERS[engine]
    named, weights = reader.model(settings, None if model is None else find_model(model))
    found = {"engine": engine, "weights": weights, **reader.keywords(settings, named.spec)}
    found = {name: value for name, value in found.items() if value is not None}
    options = {name: found.pop(name) for name in _OPTIONS & found.keys()}
    if options:
        found["options"] = Options(**options)
    unused = tuple(dict.fromkeys(f"not taken into account: {each}" for each in settings.unused))
    for each in unused:
        warnings.warn(each, RooflineWarning, stacklevel=2)
    return Launch(named.model if model is None else model, found, unused, tuple(dict.fromkeys(settings.said)))
