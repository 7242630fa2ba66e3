"""Which population a row belongs to, and which rows are repeats of one test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rooflinellm.measurements.resolver import Resolved
from rooflinellm.measurements.row import Row
from rooflinellm.measurements.server import ALONE
from rooflinellm.operators.model import ModelSpec

ModelKind = Literal["dense", "moe", "hybrid"]
MAINLINE = ("cuda", "metal", "mlx")
AT_DEPTH = "decode, depth over depth 0"

_SERVER = {
    "throughput_offline": "server throughput",
    "throughput_server": "server throughput",
    "tpot": "server TPOT",
    "decode_latency": "server TPOT",
    "ttft": "server TTFT",
    "prefill_latency": "server prefill",
    "batched_decode": "server batched decode",
    "request_latency": "server request latency",
    "spec_decode_speedup": "speculation",
    "offload_decode": "offload decode",
    "energy": "energy",
}
_PHASES = {
    "prefill": "prefill",
    "batched_prefill": "prefill",
    "decode": "decode",
    "batched_decode": "decode",
    "spec_decode": "decode",
    "mixed": "run",
    "ttft": "ttft",
    "tpot": "tpot",
    "prefill_latency": "prefill",
    "decode_latency": "tpot",
    "request_latency": "request",
    "offload_decode": "decode",
}


def population(row: Row, resolved: Resolved | None = None) -> str:
    """The population a row is scored in; without `resolved`, as far as the row itself tells.

    One device and one sequence: dense decode and prefill by kind of backend, decode of mixtures and hybrids, CPUs.
    Batches, several devices, offload and servers stand apart.
    """
    kind = (row.test_kind or "other").removesuffix("_disagg")
    if row.kind == "server":
        return _server_population(row, kind)
    phase = "prefill" if "prefill" in kind else "run" if kind == "mixed" else "decode"
    if kind == "spec_decode":
        return "speculation"
    if row.population == "offload" or "+CPU" in (row.backend or "") or (resolved is not None and resolved.offload):
        named = "" if resolved is None or resolved.bounded else ", host not named"
        return f"offload {phase}{named}"
    if kind.startswith("batched") or (row.batch_size or 1) > 1:
        return f"batched {phase}, aggregate"
    on_cpu = row.population == "cpu" or (row.backend or "").upper().startswith("CPU")
    if on_cpu:
        return f"cloud CPU {phase}" if row.vcpus else f"CPU {phase}"
    if (row.device_count or 1) > 1:
        return f"several devices, {phase}"
    group = row.population or _group(row, resolved)
    if phase == "decode":
        moe = model_kind(resolved.model) != "dense" if resolved else (row.arch_note or "").startswith("MoE")
        return "decode MoE and hybrid" if moe else f"decode dense, {group}"
    return f"{phase}, {group}"


def _server_population(row: Row, kind: str) -> str:
    name = _SERVER.get(kind, kind)
    if name == "server TTFT":
        count = row.batch_size_or_concurrency
        alone = count is not None and count <= ALONE
        return f"server TTFT, concurrency ≤ {ALONE}" if alone else "server TTFT, under load"
    return name


def _group(row: Row, resolved: Resolved | None) -> str:
    backend = (resolved.backend if resolved else None) or (row.backend or "").lower()
    if resolved and not resolved.backend:
        backend = {"nvidia": "cuda", "apple": "metal"}.get(resolved.system.device.vendor.lower(), backend)
    return "gpu_mainline" if backend in MAINLINE else "gpu_other"


def phase_of(row: Row) -> str:
    """What a row is about, in one word, whether it can be resolved or not."""
    kind = (row.test_kind or "").removesuffix("_disagg")
    return _PHASES.get(kind, "serving" if row.kind == "server" else kind or "unknown")


@dataclass(frozen=True, slots=True)
class Series:
    """What rows that repeat one test agree in."""

    device: str
    model: str
    weights: str
    test: str
    lengths: tuple[float | int | None, ...]


def series(row: Row, resolved: Resolved) -> Series:
    """The series of a row: rows that agree in device, model, format, test and lengths, those of passes among them."""
    keywords = resolved.keywords
    names = ("prompt_tokens", "output_tokens", "context_tokens", "batch", "prefill_chunk")
    return Series(
        device=resolved.system.name,
        model=resolved.model.id,
        weights=resolved.fmt.id,
        test=row.test_kind or resolved.quantity.of,
        lengths=tuple(keywords.get(name) for name in names),
    )


def shallow(row: Row, resolved: Resolved) -> tuple[object, ...]:
    """What a decode row at depth and its partner at depth 0 agree in."""
    return (
        resolved.system.name,
        resolved.model.id,
        resolved.fmt.id,
        resolved.resident_weight_bytes,
        resolved.engine.id,
        resolved.backend,
        row.engine_build,
        row.kv_type,
        row.flash_attn,
        row.collection,
        row.batch_size,
    )


def model_kind(model: ModelSpec) -> ModelKind:
    """Whether a model is dense, a mixture of experts, or has layers without softmax attention (which comes first)."""
    kind: ModelKind = "dense"
    for block in model.layers:
        mixer = getattr(block, "mixer", None)
        if mixer is not None and mixer.kind not in ("attention", "latent"):
            return "hybrid"
        if getattr(block.ffn, "kind", "") == "moe":
            kind = "moe"
    return kind
