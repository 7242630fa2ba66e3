"""Engines: what an inference engine does with a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rooflinellm.specs.common import Count, Entry, Identifier, Positive, Spec, cited_sources
from rooflinellm.specs.hardware import DeviceKind

Tokens = Annotated[str, Field(pattern=r"^(?:>=|<)[0-9]{1,9}$")]
Month = Annotated[str, Field(pattern=r"^[0-9]{4}-(?:0[1-9]|1[0-2])$")]
Peaks = Annotated[tuple[str, ...], Field(min_length=1)]

NOT_INHERITED = ("aliases",)
"""What a variant does not take over from the engine it varies."""


class Rule(Spec):
    """What all rules on arithmetic share.

    The first peak of `use` that the device has is expected; the fastest of them is what the ideal allows, so that a
    list goes on where a build or an option may take a faster path than the usual one. Rules behind one that holds for
    passes of any size and has a peak of the device are not reached.

    `architectures` are patterns over the device's architecture (``ada``) or instruction set (``sm_89``, ``*amx*``), as
    its file states them. A rule holds for builds of the months `since` … before `until`; a build that is not named is a
    current one.
    """

    use: Peaks
    architectures: tuple[str, ...] | None = None
    since: Month | None = None
    until: Month | None = None
    source: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Rule:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError(f"since {self.since} is not before until {self.until}")
        return self


class PathRule(Rule):
    """Which arithmetic a product with weights of some encodings takes.

    `weights` are patterns over encoding names (``q4_*``); `tokens` narrows to passes of so many tokens.
    """

    weights: Annotated[tuple[str, ...], Field(min_length=1)]
    tokens: Tokens | None = None


class AttentionRule(Rule):
    """Which arithmetic attention takes, by the type of the cache."""

    kv: tuple[str, ...] = ("*",)


class Backend(Spec):
    """An engine built for one kind of device. Rules are tried in order; `source` is theirs where they name no other.

    `runtime_mib` is what the runtime itself takes of a device: context, libraries, kernels.
    """

    vendors: tuple[str, ...] = ("*",)
    kinds: tuple[DeviceKind, ...] | None = None
    architectures: tuple[str, ...] | None = None
    rules: Annotated[tuple[PathRule, ...], Field(min_length=1)]
    attention: Annotated[tuple[AttentionRule, ...], Field(min_length=1)]
    runtime_mib: Annotated[float, Field(ge=0)] = 0
    source: str
    note: str | None = None


class PrefixRules(Spec):
    """Where the engine can resume a prompt whose beginning it has computed before.

    With attention over everything any multiple of `block_tokens` will do. Sliding and recurrent layers resume at a
    ``block`` as well (for recurrent ones, of so many tokens that a block of cache is as large as a state), or only at a
    ``checkpoint``: at the end of each prompt, and every `checkpoint_tokens` on the way. At most `checkpoints` are kept.
    """

    block_tokens: Count
    sliding: Literal["block", "checkpoint"] = "block"
    recurrent: Literal["block", "checkpoint"] = "checkpoint"
    checkpoint_tokens: Count | None = None
    checkpoints: Count | None = None
    source: str
    note: str | None = None


class KvRules(Spec):
    """How the engine lays out its cache.

    sliding: ``window_and_chunk`` holds a window and one chunk more, ``full`` every token. `unified`: all sequences
    share one pool, so that a sliding layer's pool holds a window for each. latent: latent attention is kept
    ``absorbed`` (the latent itself) or ``expanded`` (keys and values of every head). `state_bytes` and
    `conv_state_bytes` are the width of recurrent state and of what waits for a convolution. `prefix`: whether
    beginnings of prompts are reused; null where it is not known that the engine does.
    """

    types: tuple[str, ...]
    default: str
    block_tokens: Count
    sliding: Literal["window_and_chunk", "full"]
    unified: bool = False
    latent: Literal["absorbed", "expanded"] = "absorbed"
    state_bytes: Count = 4
    conv_state_bytes: Count = 4
    prefix: PrefixRules | None = None
    source: str


class Workspace(Spec):
    """Memory beside weights and cache: a rule in code, chosen by name (see `engine.workspace`), and its numbers.

    `memory_fraction` is the share of a device's memory that weights, cache and workspace may take together;
    `graphs_mib` stands beside the rule's own sum. `copies` counts how often the features of a pass are alive at once,
    `logit_bytes` what the sampler holds for a logit; `mib_per_token` and `mib_per_sequence` are reserves of an engine
    that states them.
    """

    rule: Literal["llama.cpp", "profiled", "activations", "reserved"]
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    graphs_mib: Annotated[float, Field(ge=0)] = 0
    copies: Positive = 1
    logit_bytes: Annotated[float, Field(ge=0)] = 0
    mib_per_token: Annotated[float, Field(ge=0)] = 0
    mib_per_sequence: Annotated[float, Field(ge=0)] = 0
    source: str


class OffloadRules(Spec):
    """What the engine does with weights that lie beside the devices.

    mode: in ``layers`` the host's processor computes its layers, in ``stream`` weights are copied to the device pass by
    pass. With ``layers``, passes of `copies_from_tokens` tokens and more are copied all the same, those of mixtures
    from so many tokens of an expert on where `counts_tokens_of_experts`; null never copies. `overlapped`: copying and
    computing go on at the same time. `embedding_on_host`: what is looked up is never on a
    device (where the system names no host, it counts there all the same). `head_last_until`: builds before this month
    moved the head to the devices after all layers, later ones before them.
    """

    mode: Literal["layers", "stream"]
    copies_from_tokens: Count | None = None
    counts_tokens_of_experts: bool = False
    overlapped: bool = False
    embedding_on_host: bool = False
    head_last_until: Month | None = None
    source: str


class TensorSplit(Spec):
    """Devices sharing each layer where asked for, under an engine that puts layers in a row by itself.

    It works with these `backends` and types of the cache (`kv`), and not for models with `mixers_without` it.
    """

    backends: Annotated[tuple[str, ...], Field(min_length=1)]
    kv: Annotated[tuple[str, ...], Field(min_length=1)]
    mixers_without: tuple[str, ...] = ()
    experimental: bool = False
    source: str
    note: str | None = None


class Limits(Spec):
    """Tokens of a prompt that pass through the model at once, and sequences that an engine makes room for.

    Of an engine's exceptions, the first that fits a device holds: devices of fewer than `below_gib`, or of some
    `architectures`.
    """

    below_gib: Positive | None = None
    architectures: tuple[str, ...] | None = None
    prefill_chunk: Count
    sequences: Count = 1


class EngineSpec(Entry):
    """One engine.

    `prefill_chunk` tokens of a prompt pass through the model at once and room is made for `sequences`, but for the
    exceptions in `smaller_devices`; `batch_tokens` are handed over at once (so many chunks can be in flight over
    several devices); `activation_bytes` is the width of an activation; `sampling_ns_per_logit` is what choosing one
    more token takes on the host, for each entry of the vocabulary. Builds before and from one of the months `eras` on
    differ so much that results of the ones say little of the others. A file with `variant_of` holds only what differs
    from another engine, see `merge_variant`.
    """

    variant_of: Identifier | None = None
    format_families: Annotated[tuple[str, ...], Field(min_length=1)]
    default_format: str | None = None
    backends: Annotated[dict[str, Backend], Field(min_length=1)]
    prefill_chunk: Count
    sequences: Count = 1
    smaller_devices: tuple[Limits, ...] = ()
    batch_tokens: Count
    activation_bytes: Count = 2
    several_devices: Literal["layer_split", "tensor_parallel", "single"]
    tensor_split: TensorSplit | None = None
    offload: OffloadRules | None = None
    sampling_ns_per_logit: Annotated[float, Field(ge=0)] = 0
    eras: tuple[Month, ...] = ("2024-08",)
    kv: KvRules
    workspace: Workspace

    def era(self, build: str | None) -> str | None:
        """Name of the era that a build of this date is of; None is the current one.

        Parameters
        ----------
        build : str, optional
            Year, month and perhaps day of the build; None is a current one.

        Returns
        -------
        str or None
        """
        ended = (month for month in sorted(self.eras) if build is not None and build < month)
        return next((f"before-{month}" for month in ended), None)

    @model_validator(mode="after")
    def _default_kv(self) -> EngineSpec:
        if self.kv.default not in self.kv.types:
            raise ValueError(f"default KV type '{self.kv.default}' is not among kv.types")
        return self

    @model_validator(mode="after")
    def _backends_cite_listed_sources(self) -> EngineSpec:
        for name, backend in self.backends.items():
            for key in cited_sources(backend):
                if key not in self.sources:
                    raise ValueError(f"source '{key}' is cited in backend '{name}' but not listed under sources")
        return self


def merge_variant(base: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the fields of a variant from the engine it varies.

    Mappings are merged key by key, anything else is replaced, and null removes what the other engine has.

    Parameters
    ----------
    base, variant : mapping
        Plain values of the two files; neither is changed.

    Returns
    -------
    dict
    """
    return _merged({key: value for key, value in base.items() if key not in NOT_INHERITED}, variant)


def _merged(base: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in variant.items():
        below = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = _merged(below, value)
        else:
            result[key] = value
    return result
