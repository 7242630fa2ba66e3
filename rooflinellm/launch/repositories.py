"""What a model is called in a command: a repository that holds it in its format, else a name that such a file has."""

from __future__ import annotations

import shlex

from rooflinellm import catalog
from rooflinellm.errors import RooflineError
from rooflinellm.launch.models import format_text, quantization_of, weight_format_of
from rooflinellm.operators.model import ModelSpec

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""Plain formats, and what vLLM's flags call them."""
_MADE_ON_LOADING = {"fp8": "fp8", "bnb-nf4": "bitsandbytes"}
"""Formats that vLLM makes of 16-bit weights when it loads them, and what its flag calls them."""
_FOR_ONE_ENGINE = {"gguf": "llama.cpp", "mlx": "mlx"}
"""Words in the names of repositories whose files only one engine reads, and the engine."""


def gguf_name(model: ModelSpec, weights: str) -> str:
    """What a GGUF file of the model in a format is called."""
    return shlex.quote(f"{model.id}-{format_text(weights)}.gguf")


def repository(model: ModelSpec, weights: str, engine: str) -> tuple[str, list[str], tuple[str, ...]]:
    """Where an engine finds a model in a format.

    Returns
    -------
    str, list of str, tuple of str
        A repository, else what a folder of it is called; flags that make it so; what is to be said about it.
    """
    repositories = [alias for alias in model.aliases if "/" in alias and _is_read_by(alias, engine)]
    plain = next((alias for alias in repositories if quantization_of(alias, engine) is None), None)
    own = format_text(weights).removeprefix("mlx-")
    natural = model.native_format if engine == "vllm" else catalog.engine(engine)[0].default_format
    flags: list[str] | None = [] if weights == natural else None
    if flags is None:
        held = next((alias for alias in repositories if _format_in(alias, engine, model) == weights), None)
        if held is not None:
            return held, [], ()
        if engine == "vllm" and model.native_format.partition(":")[2] in DTYPES:
            if own in DTYPES:
                flags = ["--dtype", DTYPES[own]]
            elif own in _MADE_ON_LOADING:
                flags = ["--quantization", _MADE_ON_LOADING[own]]
    if flags is not None and plain is not None:
        return plain, flags, ()
    name = model.id if flags is not None else f"{model.id}-{own}"
    return name, flags or [], (f"no repository of {model.id} in {own} is known: put yours in the place of {name}",)


def _is_read_by(repository: str, engine: str) -> bool:
    """Whether the name of a repository does not say that its files are another engine's."""
    words = repository.lower().replace("/", "-").replace("_", "-").split("-")
    return all(reader == engine for word, reader in _FOR_ONE_ENGINE.items() if word in words)


def _format_in(repository: str, engine: str, model: ModelSpec) -> str | None:
    quantization = quantization_of(repository, engine)
    if quantization is None:
        return None
    try:
        return weight_format_of(quantization, engine, model)
    except RooflineError:
        return None
