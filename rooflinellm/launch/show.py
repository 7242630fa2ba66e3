"""The command that checks an estimate on the real thing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from rooflinellm import catalog
from rooflinellm._numeric import is_array
from rooflinellm.errors import InvalidRequest, RooflineError
from rooflinellm.launch.llama import BATCH_TOKENS
from rooflinellm.launch.models import format_text, quantization_of
from rooflinellm.measurements.names import default_names
from rooflinellm.results import Estimate

_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
_OF_A_TEST = ("output_tokens", "context_tokens", "cached_tokens", "batch")
_MADE_ON_LOADING = {"fp8": "fp8", "bnb-nf4": "bitsandbytes"}
"""Formats that vLLM makes of 16-bit weights when it loads them, and what its flag calls them."""


def launch_command(estimate: Estimate) -> str:
    """The command that measures what an estimate predicts.

    Parameters
    ----------
    estimate : Estimate
        Of one request or batch; none of its arguments an array.

    Returns
    -------
    str
        For llama.cpp ``llama-bench``, or ``llama-batched-bench`` for a batch; for vLLM ``vllm bench latency``; for MLX
        ``mlx_lm.benchmark``. Where no repository of the model is known in the format, the model is named as such a
        file or folder is called.

    Raises
    ------
    InvalidRequest
        No command is known for the engine, or none that starts from such a cache.

    Notes
    -----
    `rooflinellm.from_command` reads the same workload out of it. Tokens of the prompt that were cached count as context
    before it, which takes the same time. Options of an estimate, such as a cache on the host, are not in it.
    """
    engine = estimate.engine.partition(":")[0]
    if engine not in _COMMANDS:
        raise InvalidRequest(
            f"no command known for {engine}", where="launch_command", next_step=f"Known are {', '.join(_COMMANDS)}."
        )
    arrays = [name for name, value in estimate.workload.items() if is_array(value)]
    if arrays:
        raise InvalidRequest(
            f"a command measures one case; arrays are {', '.join(arrays)}",
            where="launch_command",
            next_step="Estimate one of them.",
        )
    return " ".join(_COMMANDS[engine](estimate))


def check_commands(estimates: Sequence[Estimate]) -> list[str]:
    """Commands that measure both phases apart, over the prompt lengths of several estimates; empty where none is known.

    Parameters
    ----------
    estimates : sequence of Estimate
        Of the same model, hardware and engine.
    """
    alike = len({tuple(item.workload[name] for name in _OF_A_TEST) for item in estimates}) == 1
    if alike and estimates[0].engine.partition(":")[0] == "llama.cpp":
        # A longer prompt may leave fewer layers on the device, and a command has one number of them.
        settings = {tuple(_llama_settings(item)): None for item in estimates}
        placed = ([item for item in estimates if tuple(_llama_settings(item)) == each] for each in settings)
        return [command for group in placed for command in _llama_checks(group)]
    measured = [max(estimates, key=lambda item: int(item.workload["prompt_tokens"]))] if alike else estimates
    try:
        return list(dict.fromkeys(map(launch_command, measured)))
    except InvalidRequest:
        return []


def _llama_checks(estimates: Sequence[Estimate]) -> list[str]:
    first = estimates[0]
    workload = first.workload
    lengths = ",".join(str(item.workload["prompt_tokens"]) for item in estimates if item.workload["prompt_tokens"])
    batch, context, steps = workload["batch"], workload["context_tokens"], max(workload["output_tokens"], 1)
    model = " ".join(["-m", _gguf_name(first), *_llama_settings(first)])
    if batch > 1:
        cells = batch * max(item.workload["context_limit"] for item in estimates)
        return [f"llama-batched-bench {model} -c {cells} -npp {lengths or 1} -ntg {steps} -npl {batch}"]
    depth = f" -d {context}" if context else ""
    depths = ",".join(str(context + item.workload["prompt_tokens"]) for item in estimates)
    prefill = [f"llama-bench {model} -p {lengths} -n 0{depth}"] if lengths else []
    return [*prefill, f"llama-bench {model} -p 0 -n {steps} -d {depths}"]


def _gguf_name(estimate: Estimate) -> str:
    return shlex.quote(f"{estimate.model.id}-{format_text(estimate.weights)}.gguf")


def _llama_settings(estimate: Estimate) -> list[str]:
    """Flags beyond llama.cpp's defaults: placement, type of the cache, tokens that pass at once."""
    workload, words = estimate.workload, list[str]()
    if workload["gpu_layers"] is not None:
        words += ["-ngl", str(workload["gpu_layers"])]
    if workload["cpu_moe_layers"]:
        words += ["-ncmoe", str(workload["cpu_moe_layers"])]
    if estimate.kv != "f16":
        keys, _, values = estimate.kv.partition("/")
        words += ["-ctk", keys, "-ctv", values or keys]
    chunk = workload["prefill_chunk"]
    if chunk is not None:
        words += [*(["-b", str(chunk)] if chunk > BATCH_TOKENS else []), "-ub", str(chunk)]
    return words


def _llama(estimate: Estimate) -> list[str]:
    workload = estimate.workload
    cached, batch = workload["cached_tokens"], workload["batch"]
    prompt, output = workload["prompt_tokens"] - cached, workload["output_tokens"]
    context = workload["context_tokens"] + cached
    settings = ["-m", _gguf_name(estimate), *_llama_settings(estimate)]
    if workload["gpu_layers"] is None and estimate.hardware.device.kind != "cpu":
        settings += ["-ngl", "99"]
    settings += ["-fa", "1"]
    if batch > 1:
        if context or not prompt:
            raise _from_nothing("llama-batched-bench")
        cells = batch * workload["context_limit"]
        lengths = ["-c", cells, "-npp", prompt, "-ntg", output, "-npl", batch]
        return ["llama-batched-bench", *settings, *map(str, lengths)]
    lengths = ["-p", prompt, "-n", 0 if prompt else max(output, 1)]
    if prompt and output:
        lengths += ["-pg", f"{prompt},{output}"]
    return ["llama-bench", *settings, *map(str, [*lengths, "-d", context])]


def _vllm(estimate: Estimate) -> list[str]:
    workload = estimate.workload
    _starts_empty(estimate, "vllm bench latency")
    model, own = _repository(estimate, "vllm")
    words: list[Any] = ["vllm", "bench", "latency", "--model", model, *own]
    words += ["--input-len", workload["prompt_tokens"], "--output-len", workload["output_tokens"]]
    words += ["--batch-size", workload["batch"], "--max-model-len", workload["context_limit"]]
    if estimate.kv != catalog.engine("vllm")[0].kv.default:
        words += ["--kv-cache-dtype", _DTYPES.get({"f16": "fp16"}.get(estimate.kv, estimate.kv), estimate.kv)]
    if workload["prefill_chunk"] is not None:
        words += ["--max-num-batched-tokens", workload["prefill_chunk"]]
    for flag, name in (("-tp", "tensor"), ("-pp", "pipeline"), ("-dp", "data")):
        degree = workload.get(f"{name}_parallel", 1)
        words += [flag, degree] if degree > 1 else []
    if workload.get("expert_parallel", 1) > 1:
        words.append("--enable-expert-parallel")
    return [*map(str, words)]


def _mlx(estimate: Estimate) -> list[str]:
    workload, engine = estimate.workload, catalog.engine("mlx")[0]
    _starts_empty(estimate, "mlx_lm.benchmark")
    if estimate.kv != engine.kv.default or workload["prefill_chunk"] not in (None, engine.prefill_chunk):
        raise InvalidRequest(
            "mlx_lm.benchmark has no flag for the type of the cache or for the tokens that pass at once",
            where="launch_command",
            next_step="Leave kv and prefill_chunk out.",
        )
    words = ["-p", workload["prompt_tokens"], "-g", workload["output_tokens"], "-b", workload["batch"]]
    return ["mlx_lm.benchmark", "--model", _repository(estimate, "mlx")[0], *map(str, words)]


_COMMANDS: dict[str, Callable[[Estimate], list[str]]] = {"llama.cpp": _llama, "vllm": _vllm, "mlx": _mlx}


def _starts_empty(estimate: Estimate, program: str) -> None:
    workload = estimate.workload
    if workload["context_tokens"] or workload["cached_tokens"] or not workload["prompt_tokens"]:
        raise _from_nothing(program)
    if not workload["output_tokens"]:
        raise InvalidRequest(
            f"{program} measures an answer of at least one token", where="launch_command", next_step="Ask for output."
        )


def _from_nothing(program: str) -> InvalidRequest:
    return InvalidRequest(
        f"no command known: {program} starts from a prompt and an empty cache",
        where="launch_command",
        next_step="Ask for a prompt, with no context or cached tokens before it.",
    )


def _repository(estimate: Estimate, engine: str) -> tuple[str, list[str]]:
    """A repository with the model in its format and flags that make it so, else what such a folder is called."""
    model, weights = estimate.model, estimate.weights
    repositories = [alias for alias in model.aliases if "/" in alias and not alias.upper().endswith("GGUF")]
    plain = [alias for alias in repositories if quantization_of(alias, engine) is None]
    own = format_text(weights).removeprefix("mlx-")
    natural = model.native_format if engine == "vllm" else catalog.engine(engine)[0].default_format
    if weights == natural:
        return (plain or [model.id])[0], []
    for alias in repositories:
        if _format_in(alias, engine, model) == weights:
            return alias, []
    if engine == "vllm" and model.native_format.partition(":")[2] in _DTYPES:
        if own in _DTYPES:
            return (plain or [model.id])[0], ["--dtype", _DTYPES[own]]
        if own in _MADE_ON_LOADING:
            return (plain or [model.id])[0], ["--quantization", _MADE_ON_LOADING[own]]
    return f"{model.id}-{own}", []


def _format_in(alias: str, engine: str, model: Any) -> str | None:
    quantization = quantization_of(alias, engine)
    if quantization is None:
        return None
    try:
        return default_names().weight_format(quantization, catalog.engine(engine)[0], model).id
    except RooflineError:
        return None
