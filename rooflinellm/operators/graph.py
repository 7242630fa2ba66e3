"""The operators of a model, in order: what each multiplies, attends to or looks up, and with which tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rooflinellm.operators import attention, layers
from rooflinellm.operators.cache import CacheShape
from rooflinellm.operators.tensors import Tensor, vector
from rooflinellm.specs.model import (
    Attention,
    Block,
    CompressedAttention,
    CompressedLatents,
    GatedFFN,
    Indexer,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
    ModelEntry,
    NoFFN,
    NoMixer,
    Recurrent,
)

ROPE_FACTORS = "rope_freqs"
"""The one tensor that is no parameter: stored by GGUF files only."""

Kind = Literal["linear", "attention", "recurrent", "experts", "vector", "embedding", "head"]


@dataclass(frozen=True, slots=True)
class Mixing:
    """What softmax attention does with the cache in one layer.

    Attributes
    ----------
    cache : Attention, LatentAttention, CompressedAttention or Indexer
        Whose keys and values are read.
    flops_per_pair : int
        FLOPs of one query-key pair. [FLOP]
    window, chunk : int or None
        Tokens that a query may see, itself included; or the fixed chunks it stays within. [token]
    owned : bool
        Whether the layer holds the cache it reads.
    expanded_flops_per_pair, expansion_flops_per_token : int
        The other form of latent attention: cheaper pairs, after each cached latent has been expanded again. 0 where
        there is none. [FLOP]
    """

    cache: CacheShape
    flops_per_pair: int
    window: int | None = None
    chunk: int | None = None
    owned: bool = True
    expanded_flops_per_pair: int = 0
    expansion_flops_per_token: int = 0


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of one layer (or of the model's ends).

    Attributes
    ----------
    name : str
        As tables print it; operators of the same name in different layers form one row.
    kind : str
        Which formula and which efficiency apply.
    tensors : tuple of Tensor
        Its weights.
    inputs, outputs : int
        Features read and written for a token, beside weights and cache. [-]
    mixing : Mixing, optional
        What attention does with the cache.
    recurrent : Recurrent, optional
        The mixer whose state is read and written.
    moe : MixtureOfExperts, optional
        Shape of the mixture, where there is one.
    kv_share : tuple of int and float, optional
        KV heads of a projection to queries, keys and values, and the share of keys and values in its rows. [-]
    """

    name: str
    kind: Kind
    tensors: tuple[Tensor, ...]
    inputs: int
    outputs: int
    mixing: Mixing | None = None
    recurrent: Recurrent | None = None
    moe: MixtureOfExperts | None = None
    kv_share: tuple[int, float] | None = None

    @property
    def active_params(self) -> int:
        """Matrix elements that one token is multiplied with: k of E experts, no vectors, no lookups. [-]"""
        share = 1 if self.moe is None else self.moe.active
        return sum(t.params // t.copies * min(t.copies, share) for t in self.tensors if t.use == "matrix")


def block_operators(block: Block, hidden: int) -> tuple[Operator, ...]:
    """Operators of one layer, in the order in which they run.

    Parameters
    ----------
    block : Block
        The layer.
    hidden : int
        Hidden size. [-]

    Returns
    -------
    tuple of Operator
    """
    norms = layers.norm_tensors(block, hidden)
    elementwise = Operator("norms and residuals", "vector", norms, 2 * hidden * block.norms, hidden * block.norms)
    mixers = sum((_mixer(mixer, hidden) for mixer in block.mixers), start=())
    extra = layers.extra_tensors(block.extra)
    tables = tuple(tensor for tensor in extra if tensor.use == "lookup")
    branches = tuple(tensor for tensor in extra if tensor.use != "lookup")
    side: tuple[Operator, ...] = ()
    if branches:
        side = (_linear("side branches", branches),)
    return (*mixers, *_feed_forward(block, hidden), *side, *_resident("tables", tables), elementwise)


def _resident(name: str, tensors: tuple[Tensor, ...]) -> tuple[Operator, ...]:
    """Tensors that are held and not read: of a table one row a token, of unused projections nothing."""
    return (Operator(name, "embedding", tensors, 0, 0),) if tensors else ()


def _linear(name: str, tensors: tuple[Tensor, ...]) -> Operator:
    """Products with some matrices, one behind the other; vectors ride along."""
    matrices = [tensor for tensor in tensors if tensor.use == "matrix"]
    inputs, outputs = sum(t.columns for t in matrices), sum(t.rows for t in matrices)
    return Operator(name, "linear", tensors, inputs, outputs)


def _mixer(mixer: Mixer, hidden: int) -> tuple[Operator, ...]:
    match mixer:
        case Attention():
            return _attention(mixer, hidden)
        case LatentAttention():
            return _latent_attention(mixer, hidden)
        case CompressedAttention():
            return _compressed_attention(mixer, hidden)
        case NoMixer():
            return ()
        case _:
            return _recurrent(mixer, hidden)


def _attention(mixer: Attention, hidden: int) -> tuple[Operator, ...]:
    tensors = layers.attention_tensors(mixer, hidden)
    output = tuple(t for t in tensors if t.name.startswith("attn_output"))
    # Biases and norms of unused projections stay where they are: they weigh nothing.
    unused = tuple(t for t in tensors if t.use == "lookup")
    indexing = tuple(t for t in tensors if t.name.startswith("indexer"))
    projections = tuple(t for t in tensors if t not in (*output, *unused, *indexing))
    queries = mixer.heads * mixer.head_dim
    mixed = mixer.heads * mixer.value_dim
    cached = mixer.kv_heads * (mixer.head_dim + mixer.value_dim) if mixer.kv == "own" else 0
    mixing = Mixing(
        mixer,
        attention.flops_per_pair(mixer.heads, mixer.head_dim, mixer.value_dim),
        window=mixer.window if mixer.indexer is None else mixer.indexer.tokens,
        chunk=mixer.chunk,
        owned=mixer.kv == "own",
    )
    return (
        Operator(
            "QKV projection",
            "linear",
            projections,
            hidden,
            queries + cached,
            kv_share=(mixer.kv_heads, cached / (queries + cached)),
        ),
        *(_indexer(mixer.indexer, indexing) if mixer.indexer is not None and indexing else ()),
        *_resident("unused projections", unused),
        Operator("attention", "attention", (), queries, mixed + cached, mixing=mixing),
        Operator("attention output", "linear", output, mixed, hidden),
    )


def _latent_attention(mixer: LatentAttention, hidden: int) -> tuple[Operator, ...]:
    tensors = layers.latent_attention_tensors(mixer, hidden)
    indexing = tuple(t for t in tensors if t.name.startswith("indexer"))
    output = tuple(t for t in tensors if t.name == "attn_output")
    up = tuple(t for t in tensors if t.name in ("attn_k_b", "attn_v_b"))
    down = tuple(t for t in tensors if t not in (*indexing, *output, *up))
    heads, indexer = mixer.heads, mixer.indexer
    mixing = Mixing(
        mixer,
        attention.flops_per_pair(heads, mixer.latent_dim, mixer.kv_rank),
        window=None if indexer is None else indexer.tokens,
        expanded_flops_per_pair=attention.flops_per_pair(heads, mixer.nope_dim + mixer.rope_dim, mixer.v_head_dim),
        expansion_flops_per_token=2 * mixer.kv_rank * heads * (mixer.nope_dim + mixer.v_head_dim),
    )
    queries, mixed = heads * (mixer.nope_dim + mixer.rope_dim), heads * mixer.v_head_dim
    operators = [
        _linear("QKV down projection", down),
        _linear("KV up projection", up),
        Operator("attention", "attention", (), queries, mixed, mixing=mixing),
        Operator("attention output", "linear", output, mixed, hidden),
    ]
    if indexer is not None and not indexer.shared:
        operators[2:2] = _indexer(indexer, indexing)
    return tuple(operators)


def _indexer(indexer: Indexer, tensors: tuple[Tensor, ...]) -> tuple[Operator, Operator]:
    """Projections of an indexer, and its scores over all keys."""
    width = indexer.heads * indexer.head_dim
    scores = Mixing(indexer, 2 * width // indexer.ratio)
    return (
        _linear("indexer projection", tensors),
        Operator("indexer", "attention", (), width, indexer.top_k, mixing=scores),
    )


def _compressed_attention(mixer: CompressedAttention, hidden: int) -> tuple[Operator, ...]:
    """Attention within the window, and over entries of several tokens each.

    An entry of m tokens counts as a share of each of them: a pair and a cached token cost the m-th part, and the choice
    of k entries is one of k m tokens.
    """
    tensors = layers.compressed_attention_tensors(mixer, hidden)
    indexing = tuple(t for t in tensors if t.name.startswith("indexer"))
    output = tuple(t for t in tensors if t.name.startswith("attn_output"))
    projections = tuple(t for t in tensors if t not in (*indexing, *output))
    width, ratio, indexer = mixer.heads * mixer.head_dim, mixer.ratio, mixer.indexer
    flops = attention.flops_per_pair(mixer.heads, mixer.head_dim, mixer.head_dim)
    local = Mixing(mixer, flops, window=mixer.window)
    operators = [
        _linear("QKV projection", projections),
        Operator("attention", "attention", (), width, width + mixer.head_dim, mixing=local),
    ]
    if ratio is not None:
        held = CompressedLatents(
            kind="latent",
            heads=mixer.heads,
            kv_rank=mixer.head_dim,
            nope_dim=mixer.head_dim,
            rope_dim=0,
            v_head_dim=mixer.head_dim,
            ratio=ratio,
        )
        chosen = None if indexer is None else indexer.tokens
        far = Mixing(held, flops // ratio, window=chosen)
        operators.append(Operator("attention to entries", "attention", (), width, width, mixing=far))
    if indexer is not None:
        operators[1:1] = _indexer(indexer, indexing)
    return (*operators, _linear("attention output", output))


def _recurrent(mixer: Recurrent, hidden: int) -> tuple[Operator, ...]:
    tensors = layers.recurrent_tensors(mixer, hidden)
    vectors = tuple(t for t in tensors if t.use == "vector")
    output = tuple(t for t in tensors if t.use == "matrix" and t.name.endswith(("ssm_out", "out_proj", "attn_output")))
    projections = tuple(t for t in tensors if t not in (*vectors, *output))
    mixed = sum(t.columns for t in output)
    return (
        _linear("mixer projection", projections),
        Operator(f"{mixer.kind} mixer", "recurrent", vectors, 2 * mixed, mixed, recurrent=mixer),
        _linear("mixer output", output),
    )


def _feed_forward(block: Block, hidden: int) -> tuple[Operator, ...]:
    ffn = block.ffn
    if isinstance(ffn, NoFFN):
        return ()
    tensors = layers.ffn_tensors(ffn, hidden)
    if not isinstance(ffn, MixtureOfExperts):
        down = tuple(t for t in tensors if t.name.startswith("ffn_down"))
        up = tuple(t for t in tensors if t not in down)
        widened = ffn.intermediate * (2 if isinstance(ffn, GatedFFN) else 1)
        name = "FFN gate and up" if isinstance(ffn, GatedFFN) else "FFN up"
        return (
            Operator(name, "linear", up, hidden, widened),
            Operator("FFN down", "linear", down, ffn.intermediate, hidden),
        )
    router = tuple(t for t in tensors if t.name.startswith("ffn_gate_inp") and "shexp" not in t.name)
    shared = tuple(t for t in tensors if "shexp" in t.name)
    experts = tuple(t for t in tensors if t not in router and t not in shared)
    parts, width = 3 if ffn.gated else 2, ffn.expert_hidden or hidden
    operators = [
        Operator("router", "linear", router, hidden, ffn.experts),
        Operator(
            "experts",
            "experts",
            experts,
            ffn.active * (width + ffn.intermediate),
            ffn.active * (width + (parts - 1) * ffn.intermediate),
            moe=ffn,
        ),
    ]
    if ffn.shared_intermediate is not None:
        operators.append(_linear("shared experts", shared))
    return tuple(operators)


def end_operators(entry: ModelEntry) -> tuple[Operator, ...]:
    """Operators outside the layers: the embedding lookup, the final norm and the head.

    Parameters
    ----------
    entry : ModelEntry
        The model.

    Returns
    -------
    tuple of Operator
    """
    head = layers.head_tensors(entry)
    output = tuple(t for t in head if t.name in ("output", "output.bias"))
    norm = tuple(t for t in head if t.name.startswith("output_norm"))
    others = tuple(t for t in head if t not in (*output, *norm))
    lookups = layers.embedding_tensors(entry)
    if entry.rope_factors is not None:
        lookups = (*lookups, vector(ROPE_FACTORS, entry.rope_factors))
    beside = (_linear("beside the layers", others),) if others else ()
    return (
        Operator("embedding", "embedding", lookups, 0, entry.hidden),
        *beside,
        Operator("final norm", "vector", norm, entry.hidden, entry.hidden),
        Operator("head", "head", output, entry.hidden, entry.vocabulary),
    )
