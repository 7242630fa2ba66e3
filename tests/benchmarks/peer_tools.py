"""How each peer is asked what a result measured: its names for our devices, models and formats, and its call.

Nothing of a peer is copied here: each is imported, and called through what it documents. What it needs of a model
(sizes, parameter counts) is taken from our entry of that model; no name is guessed, and what is in no table below
is not asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rooflinellm.measurements import Resolved
from rooflinellm.measurements.evaluate import Evaluator

SHORT = 4096
"""Context up to which a tool that knows none is asked for decode. [token]"""

TOO_LARGE = "size, which does not fit, it says"

LLAMA_CPP = ("llama.cpp", "ollama")


class NotAsked(Exception):
    """Why a peer is not asked about a row, in words that are counted."""


@dataclass(frozen=True)
class Question:
    """What a row measured, in terms that every tool shares.

    Attributes
    ----------
    of : str
        ``decode``, ``prefill`` (one request, token/s), ``ttft``, ``tpot`` (a server, s).
    prompt, output, context, batch : int
        Tokens of a request, tokens in the cache before it, and requests side by side.
    devices : int
        Devices that share every layer.
    resolved : Resolved
        The row in this library's terms.
    """

    of: str
    prompt: int
    output: int
    context: int
    batch: int
    devices: int
    resolved: Resolved

    @property
    def mean_context(self) -> int:
        """Tokens in the cache in the middle of the answer. [token]"""
        return max(self.context + self.prompt + self.output // 2, 1)

    @property
    def device(self) -> str:
        """Our id of the device."""
        return self.resolved.system.device.id


def question_of(resolved: Resolved) -> Question | None:
    """The question of a row; None where it is none that any peer answers."""
    of, keywords, parallel = resolved.quantity.of, resolved.keywords, resolved.parallel
    if of not in ("decode", "prefill", "ttft", "tpot") or resolved.offload or resolved.drafts:
        return None
    question = Question(
        of,
        keywords["prompt_tokens"],
        keywords["output_tokens"],
        keywords.get("context_tokens", 0),
        keywords.get("batch", 1),
        resolved.system.count,
        resolved,
    )
    alone = question.devices == 1 and question.batch == 1
    if of in ("decode", "prefill") and not alone:
        return None
    return question if parallel.tensor == question.devices == parallel.devices else None


@dataclass(frozen=True)
class Peer:
    """A tool: `ask` takes a question and gives the rate [token/s] or time [s], or raises `NotAsked`."""

    name: str
    package: str | None
    ask: Callable[[Question], float]

    @property
    def version(self) -> str | None:
        """Version, empty for a rule; None where it is not installed."""
        if self.package is None:
            return ""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


def _name(table: dict[str, Any], ours: str, what: str) -> Any:
    if ours not in table:
        raise NotAsked(what)
    return table[ours]


def _need(condition: object, why: str) -> None:
    if not condition:
        raise NotAsked(why)


@cache
def _evaluator() -> Evaluator:
    return Evaluator()


def weight_bytes(question: Question) -> int:
    """Size of the weights: the row's file, else the format's own sum. [byte]"""
    given = question.resolved.resident_weight_bytes
    return given or int(_evaluator().plan(question.resolved).resident_weight_bytes)


def _is_mixture(question: Question) -> bool:
    return any(getattr(block.ffn, "kind", "") == "moe" for block in question.resolved.model.layers)


def _rate_or_time(question: Question, seconds: float) -> float:
    """A prompt's time as the row counts it: a rate for local results, else seconds."""
    return question.prompt / seconds if question.of == "prefill" else seconds


# --- rules of thumb -----------------------------------------------------------------------------------------------

LLMFIT_EFFICIENCY = 0.55
"""llmfit's factor for what its formula leaves out (AlexsJones/llmfit, README "How it works" and
llmfit-core/src/fit.rs@a6839af1ef78). [-]"""


def llmfit_rule(bandwidth_bytes_per_s: float, weights_bytes: float) -> float:
    """llmfit's decode rate of a dense model that is on a GPU whose bandwidth it knows. [token/s]

    0.55 · bandwidth / size: llmfit is a program in Rust, of which this is the one formula. It counts mixtures in
    other ways, and adjusts for offload.
    """
    return LLMFIT_EFFICIENCY * bandwidth_bytes_per_s / weights_bytes


def _bandwidth_question(question: Question) -> tuple[float, float]:
    _need(question.of == "decode", "prefill and servers")
    _need(question.resolved.system.device.kind != "cpu" and question.resolved.backend != "cpu", "processors")
    _need(not _is_mixture(question), "mixtures of experts")
    _need(question.mean_context <= SHORT, "long contexts")
    return question.resolved.system.device.memory_bandwidth_bytes_per_s, weight_bytes(question)


def _ask_llmfit(question: Question) -> float:
    return llmfit_rule(*_bandwidth_question(question))


def _ask_bandwidth(question: Question) -> float:
    bandwidth, size = _bandwidth_question(question)
    return bandwidth / size


# --- ridgepoint ---------------------------------------------------------------------------------------------------

RIDGEPOINT_DEVICES = {
    "nvidia-a100-sxm4-40gb": "a100-40gb",
    "nvidia-a100-sxm4-80gb": "a100-80gb",
    "nvidia-h100-sxm5-80gb": "h100-80gb",
    "nvidia-h200-sxm-141gb": "h200-141gb",
    "nvidia-b200-sxm-180gb": "b200-192gb",
    "nvidia-gb200-nvl72": "gb200-192gb",
    "nvidia-l40s": "l40s-48gb",
    "amd-instinct-mi300x": "mi300x-192gb",
    "nvidia-geforce-rtx-3090": "rtx3090-24gb",
    "nvidia-geforce-rtx-4090": "rtx4090-24gb",
    "nvidia-geforce-rtx-5090": "rtx5090-32gb",
}
RIDGEPOINT_ENGINES = {"llama.cpp": "llamacpp", "ollama": "llamacpp", "vllm": "vllm", "sglang": "sglang"}
RIDGEPOINT_FORMATS = {
    "hf:bf16": "bf16",
    "hf:fp16": "fp16",
    "hf:fp8": "fp8",
    "hf:fp8-block": "fp8",
    "hf:awq": "awq",
    "hf:gptq": "gptq",
    "gguf:f16": "fp16",
    "gguf:bf16": "bf16",
    "gguf:q8_0": "q8_0",
    "gguf:q6_k": "q6_k",
    "gguf:q5_k_m": "q5_k_m",
    "gguf:q4_k_m": "q4_k_m",
    "gguf:q4_0": "q4_0",
    "gguf:q3_k_m": "q3_k_m",
}


def _ridgepoint_shape(question: Question) -> dict[str, Any]:
    """What ridgepoint's core is given; its adapter would read it from the Hub. Layers with a growing cache count."""
    model = question.resolved.model
    mixers = [block.mixer for block in model.layers if hasattr(block, "mixer")]
    growing = [each for each in mixers if each.kind == "latent" or (each.kind == "attention" and not each.window)]
    _need(growing, "models")
    first = growing[0]
    shape = {
        "id": model.id,
        "layers": len(model.layers),
        "kv_layers": len(growing),
        "d_model": model.hidden,
        "n_params": model.total_params,
        "active_params": model.active_params if _is_mixture(question) else model.total_params,
    }
    if first.kind == "latent":
        return shape | {"geom": "mla", "d_c": first.kv_rank, "d_rope": first.rope_dim}
    if first.heads == first.kv_heads:
        return shape | {"geom": "mha", "head_dim": first.head_dim, "n_heads": first.heads}
    return shape | {"geom": "gqa", "head_dim": first.head_dim, "n_kv_heads": first.kv_heads}


def _ask_ridgepoint(question: Question) -> float:
    from ridgepoint import _core  # type: ignore[import-not-found]

    _need(question.batch == 1, "more than one request")
    _need(question.of != "prefill" or not question.context, "prompts after a context")
    arguments = _ridgepoint_shape(question) | {
        "gpu": _name(RIDGEPOINT_DEVICES, question.device, "devices"),
        "engine": _name(RIDGEPOINT_ENGINES, question.resolved.engine.id, "engines"),
        "dtype": _name(RIDGEPOINT_FORMATS, question.resolved.fmt.id, "formats"),
        "kv_cache_dtype": "fp8" if question.resolved.keywords.get("kv") == "fp8" else "fp16",
        "count": question.devices,
        "ctx": question.mean_context,
        "prompt": max(question.prompt, 1),
        "as_json": True,
    }
    found = json.loads(_core.fit_shape(**arguments))
    _need(found["verdict"]["serves"], TOO_LARGE)
    speed = found["speed"]
    if question.of in ("prefill", "ttft"):
        return _rate_or_time(question, speed["ttft_s"]["best"])
    rate = float(speed["decode_tok_s"]["best"])
    return rate if question.of == "decode" else 1 / rate


# --- servcalc -----------------------------------------------------------------------------------------------------

SERVCALC_DEVICES = {
    "nvidia-geforce-rtx-3070": "RTX 3070",
    "nvidia-geforce-rtx-3090": "RTX 3090",
    "nvidia-geforce-rtx-3090-ti": "RTX 3090 Ti",
    "nvidia-geforce-rtx-4070-ti": "RTX 4070 Ti",
    "nvidia-geforce-rtx-4090": "RTX 4090",
    "nvidia-geforce-rtx-5090": "RTX 5090",
    "nvidia-t4": "T4",
    "nvidia-v100-pcie-16gb": "V100 16GB",
    "nvidia-v100-sxm2-16gb": "V100 16GB",
    "nvidia-v100-sxm2-32gb": "V100 32GB",
    "nvidia-a10": "A10",
    "nvidia-a40": "A40",
    "nvidia-rtx-a6000": "RTX A6000",
    "nvidia-rtx-6000-ada": "RTX 6000 Ada",
    "nvidia-a100-sxm4-40gb": "A100 40GB",
    "nvidia-a100-sxm4-80gb": "A100 80GB",
    "nvidia-h100-sxm5-80gb": "H100 80GB",
    "nvidia-h200-sxm-141gb": "H200",
    "nvidia-b200-sxm-180gb": "B200",
    "nvidia-l4": "L4",
}
SERVCALC_FORMATS = {
    "hf:bf16": None,
    "hf:fp16": None,
    "hf:fp8": "fp8",
    "hf:fp8-block": "fp8",
    "hf:awq": "awq",
    "hf:gptq": "gptq",
    "gguf:f16": None,
    "gguf:bf16": None,
    "gguf:q8_0": "gguf_q8_0",
    "gguf:q6_k": "gguf_q6_k",
    "gguf:q5_k_m": "gguf_q5_k_m",
    "gguf:q4_k_m": "gguf_q4_k_m",
    "gguf:q4_0": "gguf_q4_0",
}
SERVCALC_MODELS = {
    "llama-7b": "llama",
    "llama-30b": "llama",
    "llama-2-7b": "llama",
    "llama-2-13b": "llama",
    "llama-2-70b": "llama",
    "llama-3-8b": "llama",
    "llama-3-70b": "llama",
    "llama-3.1-8b": "llama",
    "llama-3.1-70b": "llama",
    "llama-3.2-1b": "llama",
    "llama-3.2-3b": "llama",
    "llama-3.3-70b": "llama",
    "codellama-34b": "llama",
    "tinyllama-1.1b": "llama",
    "smollm-135m": "llama",
    "mistral-7b-v0.1": "mistral",
    "mistral-7b-v0.2": "mistral",
    "qwen1.5-0.5b": "qwen2",
    "deepseek-r1-distill-qwen-7b": "qwen2",
    "gemma-2b": "gemma",
}
"""Our models whose ``model_type`` it takes, as their config.json on the Hugging Face Hub has it."""


def _servcalc_config(question: Question) -> dict[str, Any]:
    model = question.resolved.model
    block: Any = model.layers[0]
    return {
        "model_type": _name(SERVCALC_MODELS, model.id, "models"),
        "_name_or_path": model.id,
        "hidden_size": model.hidden,
        "num_hidden_layers": len(model.layers),
        "num_attention_heads": block.mixer.heads,
        "num_key_value_heads": block.mixer.kv_heads,
        "head_dim": block.mixer.head_dim,
        "intermediate_size": block.ffn.intermediate,
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": model.tied_embeddings,
    }


def _ask_servcalc(question: Question) -> float:
    import servcalc  # type: ignore[import-not-found]

    _need(question.devices == 1, "several devices")
    gpu = _name(SERVCALC_DEVICES, question.device, "devices")
    quant = _name(SERVCALC_FORMATS, question.resolved.fmt.id, "formats")
    config = _servcalc_config(question)
    engine = question.resolved.engine.id
    if question.of in ("decode", "prefill"):
        _need(engine in LLAMA_CPP, "engines")
        _need(question.of != "prefill" or not question.context, "prompts after a context")
        # Decode alone is static batching, in its words: else prompts of later requests come between. A prompt is asked
        # as its profile comes, in pieces, which is nearer than all at once. The first token comes out of the prompt.
        prompt, output = max(question.context, question.prompt, 1), max(question.output + 1, 2)
        batching = "static" if question.of == "decode" else "continuous"
        room = max(prompt + output, 2048)
        profile = servcalc.profiles.ollama(num_parallel=1, num_ctx=room, quant=quant, batching=batching)
    else:
        _need(engine == "vllm", "engines")
        prompt, output = question.prompt, max(question.output, 2)
        kv_bits = 8 if question.resolved.keywords.get("kv") == "fp8" else 16
        profile = servcalc.profiles.vllm(quant=quant, kv_bits=kv_bits)
    try:
        found = servcalc.estimate(
            config,
            gpu,
            workload=servcalc.Workload(prompt, output, (question.batch,)),
            profile=profile,
            weight_bytes=question.resolved.resident_weight_bytes,
        ).points[0]
    except servcalc.DoesNotFitError:
        raise NotAsked(TOO_LARGE) from None
    if question.of in ("prefill", "ttft"):
        return _rate_or_time(question, found.ttft_ms.mid / 1000)
    _need(found.feasible, "load that the engine refuses, it says")
    seconds = float(found.itl_ms.mid) / 1000
    return 1 / seconds if question.of == "decode" else seconds


# --- llm-cal ------------------------------------------------------------------------------------------------------

LLM_CAL_DEVICES = {
    "nvidia-b200-sxm-180gb": "B200",
    "nvidia-gb200-nvl72": "GB200",
    "nvidia-h100-sxm5-80gb": "H100",
    "nvidia-h200-sxm-141gb": "H200",
    "nvidia-l40s": "L40S",
    "nvidia-l4": "L4",
    "nvidia-rtx-6000-ada": "RTX6000-Ada",
    "nvidia-geforce-rtx-4090": "RTX4090",
    "nvidia-a100-sxm4-80gb": "A100-80G",
    "nvidia-a100-sxm4-40gb": "A100-40G",
    "nvidia-a40": "A40",
    "nvidia-a10": "A10",
    "nvidia-v100-sxm2-32gb": "V100-SXM2-32G",
    "nvidia-t4": "T4",
    "amd-instinct-mi300x": "MI300X",
}


@cache
def _llm_cal_device(name: str) -> Any:
    from llm_cal.hardware.loader import lookup  # type: ignore[import-not-found]

    return lookup(name)


def _llm_cal_profile(question: Question) -> Any:
    from llm_cal.architecture import profile  # type: ignore[import-not-found]

    model, moe = question.resolved.model, None
    for block in model.layers:
        ffn: Any = block.ffn
        if getattr(ffn, "kind", "") == "moe":
            moe = profile.MoETraits(ffn.experts, 0, ffn.active, ffn.intermediate)
    return profile.ArchitectureProfile(
        model_type=model.family,
        architectures=(),
        family=profile.Family.TRANSFORMER,
        num_hidden_layers=len(model.layers),
        hidden_size=model.hidden,
        vocab_size=model.vocabulary,
        confidence=profile.Confidence.HIGH,
        moe=moe,
    )


def _ask_llm_cal(question: Question) -> float:
    from llm_cal.performance import compute  # type: ignore[import-not-found]

    gpu = _llm_cal_device(_name(LLM_CAL_DEVICES, question.device, "devices"))
    model, profile = question.resolved.model, _llm_cal_profile(question)
    _need(question.batch == 1, "more than one request")
    if question.of in ("prefill", "ttft"):
        _need(not question.context, "prompts after a context")
        found = compute.estimate_prefill(profile, model.total_params, gpu, question.devices, question.prompt)
        return _rate_or_time(question, found.latency_ms.value / 1000)
    _need(question.devices == 1, "decode on several devices")
    _need(question.mean_context <= SHORT, "long contexts")
    # One device tells nobody anything, and a model card's share of active parameters is what it prefers.
    found = compute.estimate_decode(
        profile,
        weight_bytes(question),
        gpu,
        1,
        cluster_comm_efficiency=1.0,
        moe_active_params_ratio=model.active_params / model.total_params,
    )
    rate = float((found.moe_active_tokens_per_sec if profile.is_moe else found.cluster_tokens_per_sec).value)
    return rate if question.of == "decode" else 1 / rate


# --- llm-flops ----------------------------------------------------------------------------------------------------

LLM_FLOPS_DEVICES = {
    "nvidia-a100-sxm4-80gb": "A100-80GB-SXM",
    "nvidia-a100-sxm4-40gb": "A100-40GB-SXM",
    "nvidia-h100-sxm5-80gb": "H100-SXM",
    "nvidia-h200-sxm-141gb": "H200-SXM",
    "nvidia-v100-sxm2-32gb": "V100-SXM2",
    "nvidia-t4": "T4",
    "nvidia-l4": "L4",
    "nvidia-l40s": "L40S",
    "nvidia-a10": "a10",
    "nvidia-rtx-a6000": "A6000",
    "nvidia-geforce-rtx-3090": "RTX3090",
    "nvidia-geforce-rtx-4090": "RTX4090",
}
LLM_FLOPS_MODELS = {
    "llama-7b": "meta-llama/Llama-2-7b-hf",  # the same sizes
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "llama-2-13b": "meta-llama/Llama-2-13b-hf",
    "llama-2-70b": "meta-llama/Llama-2-70b-hf",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3-70b": "meta-llama/Meta-Llama-3-70B",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B",
    "llama-3.3-70b": "meta-llama/Llama-3.1-70B",  # the same sizes
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B",
    "mistral-7b-v0.1": "mistralai/Mistral-7B-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "gemma-2b": "google/gemma-2b",
    "phi-2": "microsoft/phi-2",
    "deepseek-r1-distill-qwen-7b": "Qwen/Qwen2.5-7B",  # the same sizes
}
LLM_FLOPS_FORMATS = {
    "hf:bf16": "bf16",
    "hf:fp16": "fp16",
    "hf:fp8": "fp8",
    "hf:fp8-block": "fp8",
    "gguf:bf16": "bf16",
    "gguf:f16": "fp16",
}
LLM_FLOPS_NEAREST = {"gguf:q8_0": "int8", "gguf:q4_0": "int4", "gguf:q4_k_m": "int4"}
"""Formats by bits alone. It multiplies in them, where llama.cpp has other paths."""


def _ask_llm_flops(question: Question, formats: dict[str, str] = LLM_FLOPS_FORMATS) -> float:
    import llmflops  # type: ignore[import-not-found]

    gpu = _name(LLM_FLOPS_DEVICES, question.device, "devices")
    model = _name(LLM_FLOPS_MODELS, question.resolved.model.id, "models")
    precision = _name(formats, question.resolved.fmt.id, "formats")
    split = {"tensor_parallel": question.devices}
    if question.of == "tpot":
        found = llmflops.throughput(
            model,
            gpu=gpu,
            precision=precision,
            sequence_length=question.context + question.prompt,
            output_tokens=question.output,
            max_batch=question.batch,
            parallelism=split,
            allow_hf_fetch=False,
        )
        _need(found["kv_fits"], TOO_LARGE)
        return float(found["decode_step_ms"]) / 1000
    _need(question.of != "prefill" or not question.context, "prompts after a context")
    details = llmflops.estimate(
        model,
        batch_size=question.batch,
        sequence_length=question.prompt if question.of in ("prefill", "ttft") else question.mean_context,
        precision=precision,
        gpu=gpu,
        include_backward=False,
        causal=True,
        parallelism=split if question.devices > 1 else None,
        allow_hf_fetch=False,
    )["details"]
    of = details["parallelism"] if question.devices > 1 else details["performance"]
    _need(of["fits_per_gpu"] if question.devices > 1 else details["memory"]["fits_on_gpu"], TOO_LARGE)
    if question.of == "decode":
        return float(of["decode_tokens_per_second"])
    return _rate_or_time(question, float(of["prefill_latency_s"]))


PEERS = (
    Peer("bandwidth / size", None, _ask_bandwidth),
    Peer("llmfit's rule", None, _ask_llmfit),
    Peer("ridgepoint", "ridgepoint", _ask_ridgepoint),
    Peer("servcalc", "servcalc", _ask_servcalc),
    Peer("llm-cal", "llm-cal", _ask_llm_cal),
    Peer("llm-flops", "llm-flops", _ask_llm_flops),
    Peer("llm-flops, GGUF by bits", "llm-flops", lambda question: _ask_llm_flops(question, LLM_FLOPS_NEAREST)),
)
