"""Models: what a model needs, as an ordered list of layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rooflinellm.specs.common import Count, Entry, Spec

MAX_LAYERS = 10_000


class Attention(Spec):
    """Softmax attention with grouped key/value heads.

    `window` counts the newest token itself. `qk_norm`: ``head`` norms each head (one vector of head size for queries
    and one for keys), ``full`` norms the whole projection.
    """

    kind: Literal["attention"]
    heads: Count
    kv_heads: Count
    head_dim: Count
    v_head_dim: Count | None = None
    window: Annotated[int, Field(ge=2, le=10**9)] | None = None
    sinks: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    fused_qkv: bool = False

    @model_validator(mode="after")
    def _groups(self) -> Attention:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}")
        return self

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim


class GatedFFN(Spec):
    """Feed-forward block with a gate: down(act(gate(x)) * up(x)). `fused`: gate and up are one tensor."""

    kind: Literal["gated"]
    intermediate: Count
    bias: bool = False
    fused: bool = False


class PlainFFN(Spec):
    """Feed-forward block without a gate: down(act(up(x)))."""

    kind: Literal["plain"]
    intermediate: Count
    bias: bool = False


class MixtureOfExperts(Spec):
    """Router and experts; `shared_intermediate` is the width of all shared experts together."""

    kind: Literal["moe"]
    experts: Count
    active: Count
    intermediate: Count
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_intermediate: Count | None = None
    shared_gate: bool = False

    @model_validator(mode="after")
    def _active(self) -> MixtureOfExperts:
        if self.active > self.experts:
            raise ValueError(f"active {self.active} is more than experts {self.experts}")
        if self.shared_gate and self.shared_intermediate is None:
            raise ValueError("shared_gate needs shared_intermediate")
        return self


class NoFFN(Spec):
    """A block without a feed-forward part."""

    kind: Literal["none"]


Mixer = Annotated[Attention, Field()]
FFN = Annotated[GatedFFN | PlainFFN | MixtureOfExperts | NoFFN, Field(discriminator="kind")]


class Block(Spec):
    """One layer: a token mixer and a feed-forward part, and how many norm vectors of the hidden size it holds."""

    mixer: Mixer
    ffn: FFN
    norms: Annotated[int, Field(ge=0, le=8)] = 2
    norm_bias: bool = False


class LayerGroup(Spec):
    """A pattern of blocks, repeated."""

    repeat: Count = 1
    pattern: Annotated[tuple[Block, ...], Field(min_length=1)]


class Published(Spec):
    """What the maker states: a check, never an input."""

    total_params: Count | Annotated[int, Field(ge=1)]
    source: str


class ModelEntry(Entry):
    """One model.

    `rope_factors` is the number of frequency factors that a GGUF file stores beside the parameters (Llama 3.1's
    scaling of rotary positions: half the head size); other files leave them to the code.
    """

    family: str
    release_date: str | None = None
    license: str | None = None
    hidden: Count
    vocabulary: Count
    tied_embeddings: bool
    head_bias: bool = False
    rope_factors: Count | None = None
    final_norm_bias: bool = False
    max_context_tokens: Count
    native_format: str
    layers: Annotated[tuple[LayerGroup, ...], Field(min_length=1)]
    published: Published | None = None

    @model_validator(mode="after")
    def _bounded(self) -> ModelEntry:
        if self.layer_count > MAX_LAYERS:
            raise ValueError(f"{self.layer_count} layers; at most {MAX_LAYERS} are allowed")
        return self

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return sum(group.repeat * len(group.pattern) for group in self.layers)

    def blocks(self) -> Iterator[Block]:
        """The layers in order, written out."""
        for group in self.layers:
            for _ in range(group.repeat):
                yield from group.pattern
