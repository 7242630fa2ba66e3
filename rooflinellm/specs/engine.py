"""Engines: what an inference engine does with a device."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rooflinellm.specs.common import Count, Entry, Spec
from rooflinellm.specs.hardware import DeviceKind

Tokens = Annotated[str, Field(pattern=r"^(?:>=|<)[0-9]{1,9}$")]


class PathRule(Spec):
    """Which arithmetic a product with weights of some encodings takes; the first peak of `use` that the device has.

    `weights` are patterns over encoding names (``q4_*``); `architectures` narrows to device architectures, `tokens` to
    passes of so many tokens.
    """

    weights: Annotated[tuple[str, ...], Field(min_length=1)]
    use: Annotated[tuple[str, ...], Field(min_length=1)]
    tokens: Tokens | None = None
    architectures: tuple[str, ...] | None = None
    note: str | None = None


class AttentionRule(Spec):
    """Which arithmetic attention takes, by the type of the cache."""

    use: Annotated[tuple[str, ...], Field(min_length=1)]
    kv: tuple[str, ...] = ("*",)
    architectures: tuple[str, ...] | None = None


class Backend(Spec):
    """An engine built for one kind of device. Rules are tried in order."""

    vendors: tuple[str, ...] = ("*",)
    kinds: tuple[DeviceKind, ...] | None = None
    rules: Annotated[tuple[PathRule, ...], Field(min_length=1)]
    attention: Annotated[tuple[AttentionRule, ...], Field(min_length=1)]
    runtime_mib: Annotated[float, Field(ge=0)] = 0
    note: str | None = None


class KvRules(Spec):
    """How the engine lays out its cache.

    sliding: ``window_and_chunk`` holds a window and one chunk more, ``full`` every token. `unified`: all sequences
    share one pool, so that a sliding layer's pool holds a window for each.
    """

    types: tuple[str, ...]
    default: str
    block_tokens: Count
    sliding: Literal["window_and_chunk", "full"]
    unified: bool = False
    state_bytes: Count = 4
    conv_state_bytes: Count = 4
    source: str


class Workspace(Spec):
    """Memory beside weights and cache: a rule in code, chosen by name, and the share of the memory the engine takes."""

    rule: Literal["llama.cpp", "profiled", "activations"]
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    graphs_mib: Annotated[float, Field(ge=0)] = 0
    source: str


class EngineSpec(Entry):
    """One engine.

    `prefill_chunk` tokens of a prompt pass through the model at once, `batch_tokens` are handed over at once (so many
    chunks can be in flight over several devices); `activation_bytes` is the width of an activation.
    """

    format_families: Annotated[tuple[str, ...], Field(min_length=1)]
    default_format: str | None = None
    backends: Annotated[dict[str, Backend], Field(min_length=1)]
    prefill_chunk: Count
    batch_tokens: Count
    activation_bytes: Count = 2
    several_devices: Literal["layer_split", "tensor_parallel", "single"]
    kv: KvRules
    workspace: Workspace

    @model_validator(mode="after")
    def _default_kv(self) -> EngineSpec:
        if self.kv.default not in self.kv.types:
            raise ValueError(f"default KV type '{self.kv.default}' is not among kv.types")
        return self


class MemoryEfficiency(Spec):
    """Share of the printed bandwidth that a long read sustains, by memory type."""

    types: Annotated[tuple[str, ...], Field(min_length=1)]
    efficiency: Annotated[float, Field(gt=0, le=1)]
    source: str


class KernelEfficiency(Spec):
    """What kernels reach in one engine and backend.

    `memory` multiplies the memory type's efficiency; `compute` is the share of the peak by operator kind
    (``linear``, ``attention``, ``experts``), on matrix or vector units; `floor_us` is the time below which a launch
    of an operator does not fall, by operator kind. [µs]
    """

    engines: tuple[str, ...] = ("*",)
    backends: tuple[str, ...] = ("*",)
    architectures: tuple[str, ...] = ("*",)
    memory: Annotated[float, Field(gt=0, le=1)]
    matrix: dict[str, Annotated[float, Field(gt=0, le=1)]]
    vector: dict[str, Annotated[float, Field(gt=0, le=1)]]
    floor_us: dict[str, Annotated[float, Field(ge=0)]]
    source: str


class Interval(Spec):
    """Factors that an expected time is divided and multiplied by for the ends of its interval."""

    decode: Annotated[float, Field(ge=1)]
    prefill: Annotated[float, Field(ge=1)]
    source: str


class ProfileSpec(Entry):
    """An efficiency profile: how far real runs stay from the roofline."""

    basis: Literal["nominal", "calibrated"]
    memory: Annotated[tuple[MemoryEfficiency, ...], Field(min_length=1)]
    kernels: Annotated[tuple[KernelEfficiency, ...], Field(min_length=1)]
    interval: Interval
    decode_power_fraction: Annotated[float, Field(gt=0, le=1)]
    prefill_power_fraction: Annotated[float, Field(gt=0, le=1)]
