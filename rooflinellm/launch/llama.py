"""What a command of llama.cpp's programs asks an estimate for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import Any

from rooflinellm.launch.experts import experts_on_host
from rooflinellm.launch.models import Named, cache_type, named_format, named_model, quantization_of
from rooflinellm.launch.settings import Settings
from rooflinellm.operators.model import ModelSpec

ENGINE = "llama.cpp"
BATCH_TOKENS, DEFAULT_QUANTIZATION = 2048, "Q4_K_M"
DRAFT_TOKENS = 16
"""Tokens drafted where nothing is said, until 2026. [token]"""


def model_and_weights(settings: Settings, given: ModelSpec | None) -> tuple[Named, str | None]:
    """The model, unless it is given, and the format that its file or repository names."""
    if settings.text("model") is not None or settings.text("repository") is None:
        named = named_model(settings, "model", given)
        key, quantization = "model", named.quantization
    else:
        key, quantization = "repository", _split_repository(settings)
        named = named_model(settings, "repository", given)
        if (file := settings.text("repository_file")) is not None:
            key, quantization = "repository_file", quantization_of(file, ENGINE) or quantization
        quantization = quantization or named.quantization
    if named.is_file:
        return named, None
    if quantization is not None:
        return named, named_format(settings, key, quantization, ENGINE, named.spec)
    weights = named_format(settings, key, DEFAULT_QUANTIZATION, ENGINE, named.spec, typed=False)
    settings.said.append(f"no quantisation in the model's name: {weights}")
    return named, weights


def _split_repository(settings: Settings) -> str | None:
    """Take the quantisation off ``owner/name:quantisation``."""
    typed, text = settings.texts("repository")[-1]
    repository, _, quantization = text.partition(":")
    settings.texts("repository")[-1] = (typed, repository)
    return quantization or None


def keywords(settings: Settings, model: ModelSpec) -> dict[str, Any]:
    """Arguments of `estimate` and, by name, of its options.

    Parameters
    ----------
    settings : Settings
        The command.
    model : ModelSpec
        The model, whose layers are counted.

    Raises
    ------
    InvalidRequest
        A value that is impossible.
    """
    layers = len(model.layers)
    found: dict[str, Any] = {"gpu_layers": _gpu_layers(settings, layers)}
    found["cpu_moe_layers"] = experts_on_host(settings, model)
    found |= _cache(settings) | _context(settings, model) | _chunk(settings) | _draft(settings) | _tests(settings)
    found |= _splits(settings)
    predicted = settings.count("predict", least=-2)
    if predicted is not None and predicted > 0:
        found["output_tokens"] = predicted
    if settings.on("swa_full"):
        found["swa_full"] = True
    threads = settings.text("threads")
    all_on_devices = found["gpu_layers"] == layers + 1 and not found["cpu_moe_layers"]
    if threads is not None and not all_on_devices:
        settings.unused.append(
            f"{settings.typed('threads')} {threads[:40]} (a processor is predicted with all its cores)"
        )
    return found


def _gpu_layers(settings: Settings, layers: int) -> int | None:
    """Layers on the devices, the head as one more; None where llama.cpp chooses."""
    text = settings.text("gpu_layers")
    if text is None or text in ("auto", "-1"):
        return None
    if text == "all":
        return layers + 1
    number = settings.count("gpu_layers", least=-2) or 0
    return layers + 1 if number < 0 else min(number, layers + 1)


def _cache(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    keys, values = settings.text("kv_keys"), settings.text("kv_values")
    if keys or values:
        key = "kv_keys" if keys else "kv_values"
        found["kv"] = cache_type(settings, key, f"{keys or 'f16'}/{values or 'f16'}", ENGINE)
    if settings.on("kv_on_host"):
        found["kv_on_host"] = True
    if settings.on("flash_attention") is False:
        settings.unused.append(f"{settings.typed('flash_attention')} off (attention is predicted as fused)")
    return found


def _context(settings: Settings, model: ModelSpec) -> dict[str, Any]:
    """Slots, and the context of each: ``-c`` is shared by all of them."""
    slots = settings.count("slots", least=-1)
    context = settings.count("context")
    found: dict[str, Any] = {}
    if settings.program.name == "llama-batched-bench":
        found, slots = _batched(settings)
    elif slots is not None and slots > 0:
        found["batch"] = slots
        if slots > 1:
            settings.said.append(f"{settings.typed('slots')} {slots}: all slots busy; one request alone is batch 1")
    unified = settings.on("kv_unified")
    if unified is not None:
        found["kv_unified"] = unified
    if context is not None:
        total, share = context or model.max_context_tokens, max(slots or 1, 1)
        found["context_limit"] = max(total // share, 1)
        if share > 1:
            how = "one pool of" if unified else "slots of"
            settings.said.append(
                f"{settings.typed('context')} {context}: {total:,} tokens for {share} requests, {how} "
                f"{total if unified else found['context_limit']:,}"
            )
    return found


def _batched(settings: Settings) -> tuple[dict[str, Any], int]:
    """Prompt, answer and sequences of llama-batched-bench: every combination of the three lists."""
    lists = [settings.counts(key) for key in ("batched_prompt", "batched_output", "batched_sequences")]
    for key, values in zip(("batched_prompt", "batched_output", "batched_sequences"), lists, strict=True):
        if not values:
            raise settings.error(key, "llama-batched-bench needs -npp, -ntg and -npl")
    return _arrays(("prompt_tokens", "output_tokens", "batch"), list(product(*lists))), max(lists[2])


def _tests(settings: Settings) -> dict[str, Any]:
    """Lengths of llama-bench's tests: prompts alone, answers alone, and both; each at every depth.

    A prompt alone is left out where a test has the same prompt and an answer: its estimate holds both phases.
    """
    if settings.program.name != "llama-bench":
        return {}
    prompts, outputs = settings.counts("bench_prompt"), settings.counts("bench_output")
    both: list[tuple[int, int]] = []
    for _, value in settings.texts("bench_both"):
        match = re.fullmatch(r"(\d{1,9}),(\d{1,9})", value)
        if not match:
            raise settings.error("bench_both", f"'{value[:40]}' is no pair of prompt and answer, such as 512,128")
        both.append((int(match[1]), int(match[2])))
    covered = {prompt for prompt, output in both if output}
    tests = [(prompt, 0) for prompt in prompts if prompt and prompt not in covered]
    tests += [(0, output) for output in outputs if output]
    tests += [pair for pair in both if any(pair)]
    if not tests:
        raise settings.error("bench_prompt", "no test is left", "Give -p, -n or -pg a number above 0.")
    points = [(prompt, output, depth) for depth in settings.counts("bench_depth") for prompt, output in tests]
    return _arrays(("prompt_tokens", "output_tokens", "context_tokens"), list(dict.fromkeys(points)))


def _arrays(names: Sequence[str], points: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Numbers for a single point, else lists; what is the same everywhere stays a number."""
    columns = dict(zip(names, zip(*points, strict=True), strict=True))
    return {name: list(column) if len(set(column)) > 1 else column[0] for name, column in columns.items()}


def _chunk(settings: Settings) -> dict[str, Any]:
    """Tokens of a prompt that pass at once: the smaller of ``-b`` and ``-ub``."""
    chunk, most = settings.count("chunk", least=1), settings.count("batch_tokens", least=1)
    if chunk is None and (most is None or most >= 512):
        return {}
    return {"prefill_chunk": min(chunk or 512, most or BATCH_TOKENS)}


def _draft(settings: Settings) -> dict[str, Any]:
    if settings.text("draft") is None:
        if settings.text("draft_tokens") is not None:
            settings.unused.append(f"{settings.typed('draft_tokens')} (no draft model is named)")
        return {}
    typed, text = settings.texts("draft")[-1]
    settings.texts("draft")[-1] = (typed, re.sub(r":[^/\\:]+$", "", text) if "-hf" in typed else text)
    tokens = settings.count("draft_tokens", least=1)
    return {"draft": named_model(settings, "draft").model, "draft_tokens": tokens or DRAFT_TOKENS}


def _splits(settings: Settings) -> dict[str, Any]:
    mode, shares = settings.text("split_mode"), _shares(settings)
    if mode == "tensor":
        return _tensor_parallel(settings, shares)
    if mode is not None and mode != "layer":
        settings.unused.append(f"{settings.typed('split_mode')} {mode[:40]} (several devices are split by layers)")
    return {"tensor_split": shares} if any(shares) else {}


def _tensor_parallel(settings: Settings, shares: Sequence[float]) -> dict[str, Any]:
    """Layers that all devices share in equal parts; how many there are is told by the parts, and by nothing else."""
    devices = sum(share > 0 for share in shares)
    if not devices:
        settings.unused.append(f"{settings.typed('split_mode')} tensor (say how many devices: tensor_parallel)")
        return {}
    if len({share for share in shares if share}) > 1:
        settings.unused.append(f"{settings.typed('tensor_split')} (devices share each layer in equal parts)")
    return {"tensor_parallel": devices} if devices > 1 else {}


def _shares(settings: Settings) -> tuple[float, ...]:
    """Parts of the devices; none where nothing is said."""
    text = settings.text("tensor_split")
    if text is None:
        return ()
    try:
        shares = tuple(float(part) for part in re.split(r"[,/;]", text))
    except ValueError:
        raise settings.error("tensor_split", f"'{text[:40]}' are no numbers, such as 3,1") from None
    if not all(0 <= share < 1e9 for share in shares):
        raise settings.error("tensor_split", f"'{text[:40]}' are not numbers from 0 on")
    return shares
