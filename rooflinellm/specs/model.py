"""Models: what a model needs, as an ordered list of layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rooflinellm.specs.common import Count, Entry, Spec
from rooflinellm.specs.weights import FileWeights

MAX_LAYERS = 10_000


class Indexer(Spec):
    """Lightning indexer of sparse attention: its own keys choose what the attention reads.

    A `shared` one takes the choice of an earlier layer's, and has neither weights nor keys. A key stands for `ratio`
    tokens, and `top_k` counts keys.
    """

    heads: Count
    head_dim: Count
    top_k: Count
    ratio: Count = 1
    shared: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that are chosen."""
        return self.top_k * self.ratio


class Attention(Spec):
    """Softmax attention with grouped key/value heads.

    `window` counts the newest token itself; `chunk` attends within fixed chunks of so many tokens instead (Llama 4).
    `qk_norm`: ``head`` norms each head (one vector of head size for queries and one for keys), ``full`` norms the whole
    projection. `kv`: ``shared`` reads another layer's cache and holds none; `kv_projections` tells whether it still has
    the weights (which no pass reads then). `value_is_key`: keys serve as values, there is no value projection (the
    cache holds both all the same). An `indexer` chooses the tokens that are read.
    """

    kind: Literal["attention"]
    heads: Count
    kv_heads: Count
    head_dim: Count
    v_head_dim: Count | None = None
    window: Annotated[int, Field(ge=2, le=10**9)] | None = None
    chunk: Annotated[int, Field(ge=2, le=10**9)] | None = None
    sinks: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    fused_qkv: bool = False
    output_gate: bool = False
    kv: Literal["own", "shared"] = "own"
    kv_projections: bool = True
    value_is_key: bool = False
    indexer: Indexer | None = None

    @model_validator(mode="after")
    def _groups(self) -> Attention:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}")
        if self.window is not None and self.chunk is not None:
            raise ValueError("give window or chunk, not both")
        if self.indexer is not None and (self.window is not None or self.chunk is not None or self.kv == "shared"):
            raise ValueError("an indexer needs a whole cache of its own")
        if self.kv == "own" and not self.kv_projections:
            raise ValueError("a layer with a cache of its own needs kv_projections")
        if self.value_is_key and self.value_dim != self.head_dim:
            raise ValueError("value_is_key needs values as wide as keys")
        return self

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim


class LatentAttention(Spec):
    """Multi-head latent attention: a token's keys and values are one latent of `kv_rank` and a rotary key of
    `rope_dim`.

    `q_rank` None projects queries directly.
    """

    kind: Literal["latent"]
    heads: Count
    q_rank: Count | None = None
    kv_rank: Count
    nope_dim: Count
    rope_dim: Annotated[int, Field(ge=0, le=10**9)]
    v_head_dim: Count
    indexer: Indexer | None = None

    @property
    def latent_dim(self) -> int:
        """Elements cached for one token."""
        return self.kv_rank + self.rope_dim


class CompressedAttention(Spec):
    """Attention with one key/value head whose keys serve as values, each cached once (DeepSeek-V4).

    A query sees the last `window` tokens and, with a `ratio`, entries that stand for so many tokens each. An `indexer`
    chooses `top_k` of those; without one all are read. Queries come from a rank, the output passes through
    `output_groups` groups of a rank each.
    """

    kind: Literal["compressed"]
    heads: Count
    head_dim: Count
    q_rank: Count
    output_groups: Count
    output_rank: Count
    window: Annotated[int, Field(ge=2, le=10**9)]
    ratio: Annotated[int, Field(ge=2, le=10**6)] | None = None
    indexer: Indexer | None = None

    @model_validator(mode="after")
    def _consistent(self) -> CompressedAttention:
        if (self.heads * self.head_dim) % self.output_groups:
            raise ValueError(f"heads x head_dim is no multiple of output_groups {self.output_groups}")
        if self.indexer is not None and (self.indexer.shared or self.indexer.ratio != self.ratio):
            raise ValueError("an indexer needs keys of its own for as many tokens as the entries it chooses from")
        return self


class CompressedLatents(LatentAttention):
    """The cache of `CompressedAttention` beyond its window: one latent for `ratio` tokens."""

    ratio: Count


class DeltaNet(Spec):
    """Gated delta net: a matrix state for each value head, and a short convolution over queries, keys and values."""

    kind: Literal["delta"]
    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count
    conv_kernel: Count = 4

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


class KimiDelta(Spec):
    """Kimi delta attention: a delta net with a decay for each channel.

    Decay and output gate are projections of the rank of one head, or of `full_rank`.
    """

    kind: Literal["kda"]
    heads: Count
    head_dim: Count
    conv_kernel: Count = 4
    full_rank: bool = False

    @property
    def conv_channels(self) -> int:
        """Channels of the convolutions over queries, keys and values."""
        return 3 * self.heads * self.head_dim


class Mamba(Spec):
    """Selective state space of the first kind, a scan on the vector units. `inner_norms`: norms of dt, B, C (Jamba)."""

    kind: Literal["mamba"]
    inner: Count
    state: Count
    dt_rank: Count
    conv_kernel: Count = 4
    conv_bias: bool = True
    inner_norms: bool = False

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution."""
        return self.inner


class Mamba2(Spec):
    """Selective state space of the second kind. `gated_norm`: a norm of the inner width before the output."""

    kind: Literal["mamba2"]
    heads: Count
    head_dim: Count
    state: Count
    groups: Count = 1
    conv_kernel: Count = 4
    conv_bias: bool = True
    projection_bias: bool = False
    gated_norm: bool = True

    @property
    def inner(self) -> int:
        """Inner width."""
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution."""
        return self.inner + 2 * self.groups * self.state


class ShortConvolution(Spec):
    """Gated short convolution over the hidden size (LFM2)."""

    kind: Literal["short_conv"]
    kernel: Count
    bias: bool = False


class LightningAttention(Spec):
    """Linear attention with a fixed decay and an output gate (MiniMax-01)."""

    kind: Literal["lightning"]
    heads: Count
    head_dim: Count


class NoMixer(Spec):
    """A layer that mixes no tokens."""

    kind: Literal["none"]


Recurrent = DeltaNet | KimiDelta | Mamba | Mamba2 | ShortConvolution | LightningAttention
Softmax = Attention | LatentAttention | CompressedAttention
Mixer = Annotated[Softmax | Recurrent | NoMixer, Field(discriminator="kind")]


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
    """Router and experts; `shared_intermediate` is the width of all shared experts together.

    `expert_hidden` is the size the experts work in where a projection leads into it and out of it again (the extra
    tensors ``ffn_latent_down`` and ``ffn_latent_up``).
    """

    kind: Literal["moe"]
    experts: Count
    active: Count
    intermediate: Count
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_intermediate: Count | None = None
    shared_gate: bool = False
    expert_hidden: Count | None = None

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


FFN = Annotated[GatedFFN | PlainFFN | MixtureOfExperts | NoFFN, Field(discriminator="kind")]


class ExtraTensor(Spec):
    """A tensor that no layer kind describes, such as a learned position table or a low-rank side branch.

    `use`: ``matrix`` is multiplied by each token, ``lookup`` read one row a token, ``vector`` added or scaled.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+(?:[.][a-z0-9_]+)*$")]
    rows: Count
    columns: Count
    use: Literal["matrix", "lookup", "vector"] = "matrix"


class Block(Spec):
    """One layer: a token mixer, perhaps a second one beside it, and a feed-forward part.

    `norms` is how many norm vectors of the hidden size the layer holds.
    """

    mixer: Mixer
    beside: Mixer | None = None
    ffn: FFN
    norms: Annotated[int, Field(ge=0, le=8)] = 2
    norm_bias: bool = False
    extra: tuple[ExtraTensor, ...] = ()

    @property
    def mixers(self) -> tuple[Softmax | Recurrent | NoMixer, ...]:
        """The token mixers, one or two."""
        return (self.mixer,) if self.beside is None else (self.mixer, self.beside)


class LayerGroup(Spec):
    """A pattern of blocks, repeated."""

    repeat: Count = 1
    pattern: Annotated[tuple[Block, ...], Field(min_length=1)]


class Published(Spec):
    """What the maker states: a check, never an input."""

    total_params: Annotated[int, Field(ge=1)]
    source: str


class MtpModule(Spec):
    """A multi-token-prediction module: blocks behind the last layer, resident and read only when it drafts."""

    pattern: Annotated[tuple[Block, ...], Field(min_length=1)]
    extra: tuple[ExtraTensor, ...] = ()


class ModelEntry(Entry):
    """One model.

    `extra` are tensors outside the layers. `mtp` is the multi-token-prediction module and `tower_params` what vision
    and audio towers hold; neither counts among the parameters of the text model. `rope_factors` is the number of
    frequency factors that a GGUF file stores beside the parameters (Llama 3.1's scaling of rotary positions: half the
    head size); other files leave them to the code. `file` is what importers add: the bytes of the file at hand; it is
    no part of a written entry.
    """

    family: str
    release_date: str | None = None
    license: str | None = None
    hidden: Count
    vocabulary: Count
    tied_embeddings: bool
    head_bias: bool = False
    rope_factors: Count | None = None
    final_norm: bool = True
    final_norm_bias: bool = False
    max_context_tokens: Count
    native_format: str
    layers: Annotated[tuple[LayerGroup, ...], Field(min_length=1)]
    extra: tuple[ExtraTensor, ...] = ()
    mtp: MtpModule | None = None
    tower_params: Annotated[int, Field(ge=1)] | None = None
    published: Published | None = None
    file: Annotated[FileWeights | None, Field(exclude=True)] = None

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
