"""What commands of vLLM and MLX ask an estimate for."""

from __future__ import annotations

import json
from typing import Any

from rooflinellm.launch.models import Named, cache_type, named_format, named_model
from rooflinellm.launch.settings import Settings
from rooflinellm.operators.model import ModelSpec

# vllm --quantization: the format; None where only the checkpoint says it
_QUANTIZATIONS: dict[str, str | None] = {
    "fp8": "fp8", "awq": "awq", "awq_marlin": "awq", "gptq": "gptq", "gptq_marlin": "gptq", "bitsandbytes": "bnb-nf4",
    "modelopt": "fp8", "modelopt_fp4": "nvfp4", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "compressed-tensors": None,
    "auto": None, "none": None,
}  # fmt: skip
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float": "fp32", "float32": "fp32"}
_PLAIN = tuple(_DTYPES.values())
MLX_DRAFT_TOKENS = 3
"""Tokens drafted where nothing is said. [token]"""


def vllm_model(settings: Settings, given: ModelSpec | None) -> tuple[Named, str | None]:
    """The model, and its format where the command or the repository's name says one."""
    named = named_model(settings, "model", given)
    native = named.spec.native_format.partition(":")[2]
    asked = settings.text("quantization")
    name: str | None = None
    if asked is not None:
        if asked.lower() not in _QUANTIZATIONS:
            settings.unused.append(f"{settings.typed('quantization')} {asked[:40]} (name the format of the weights)")
        name = _QUANTIZATIONS.get(asked.lower())
    if name is not None:
        if native.startswith(name):
            return named, None
        return named, named_format(settings, "quantization", name, "vllm", named.spec)
    if named.is_file:
        return named, None
    if named.quantization is not None:
        return named, named_format(settings, "model", named.quantization, "vllm", named.spec)
    dtype = settings.text("dtype")
    if dtype is not None and dtype != "auto":
        if dtype not in _DTYPES:
            raise settings.error("dtype", f"'{dtype[:40]}' is none of auto, {', '.join(_DTYPES)}")
        if native in _PLAIN and native != _DTYPES[dtype]:
            return named, _DTYPES[dtype]
    return named, None


def vllm_keywords(settings: Settings, model: ModelSpec) -> dict[str, Any]:
    """Arguments of `estimate`; errors name the flag."""
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    found: dict[str, Any] = {name: settings.count(name, least=1) for name in names}
    if settings.on("expert_parallel"):
        found["expert_parallel"] = (found["tensor_parallel"] or 1) * (found["data_parallel"] or 1)
    cache = settings.text("kv")
    if cache is not None and cache != "auto":
        found["kv"] = cache_type(settings, "kv", "fp8" if cache.startswith("fp8") else cache, "vllm")
    found["context_limit"] = settings.human("context")
    found["prefill_chunk"] = settings.human("chunk")
    if settings.on("chunked") is False:
        settings.unused.append(f"{settings.typed('chunked')} (prompts are predicted in chunks)")
    return found | _workload(settings) | _speculation(settings)


def _workload(settings: Settings) -> dict[str, Any]:
    return {
        "prompt_tokens": settings.count("prompt"),
        "output_tokens": settings.count("output"),
        "context_tokens": settings.count("context_before"),
        "batch": settings.count("batch", least=1),
    }


def _speculation(settings: Settings) -> dict[str, Any]:
    """A draft model with the number of drafted tokens; other ways of speculation are named as not taken."""
    if settings.text("draft") is not None:
        tokens = settings.count("draft_tokens", least=1)
        return {"draft": named_model(settings, "draft").model, "draft_tokens": tokens or MLX_DRAFT_TOKENS}
    text = settings.text("speculation")
    if text is None:
        return {}
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise settings.error("speculation", f"'{text[:40]}' is no JSON", "Put it in single quotes.") from error
    if not isinstance(config, dict):
        raise settings.error("speculation", f"'{text[:40]}' is no JSON object")
    name, method, tokens = config.get("model"), config.get("method"), config.get("num_speculative_tokens")
    if not isinstance(name, str) or method not in (None, "draft_model") or type(tokens) is not int or tokens < 1:
        what = method if isinstance(method, str) else "without a draft model and its number of tokens"
        settings.unused.append(f"{settings.typed('speculation')} ({what[:60]})")
        return {}
    settings.texts("speculation")[-1] = (settings.typed("speculation"), name)
    return {"draft": named_model(settings, "speculation").model, "draft_tokens": tokens}


def mlx_model(settings: Settings, given: ModelSpec | None) -> tuple[Named, str | None]:
    """The model, and the format its repository's name says; without one it is in 16 bits."""
    named = named_model(settings, "model", given)
    if named.is_file or named.quantization is None:
        return named, None
    return named, named_format(settings, "model", named.quantization, "mlx", named.spec)


def mlx_keywords(settings: Settings, model: ModelSpec) -> dict[str, Any]:
    """Arguments of `estimate`; errors name the flag."""
    found = _workload(settings) | _speculation(settings)
    bits = settings.count("kv_bits", least=1)
    if bits is not None:
        if bits not in (4, 8):
            raise settings.error("kv_bits", f"a cache of {bits} bits is not known, but of 4 and of 8")
        found["kv"] = f"mlx_{bits}bit"
    return found | {
        "context_limit": settings.count("context", least=1),
        "prefill_chunk": settings.count("chunk", least=1),
    }
