"""The operators of a model, in order: what each multiplies, attends to or looks up, and with which tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rooflinellm.operators import layers
from rooflinellm.operators.tensors import Tensor, vector
from rooflinellm.specs.model import Attention, Block, GatedFFN, MixtureOfExperts, ModelEntry, NoFFN

ROPE_FACTORS = "rope_freqs"
"""The one tensor that is no parameter: stored by GGUF files only."""

Kind = Literal["linear", "attention", "experts", "vector", "embedding", "head"]


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
    attention : Attention, optional
        Shape of the attention, where there is one.
    moe : MixtureOfExperts, optional
        Shape of the mixture, where there is one.
    """

    name: str
    kind: Kind
    tensors: tuple[Tensor, ...]
    inputs: int
    outputs: int
    attention: Attention | None = None
    moe: MixtureOfExperts | None = None

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
    return (*_mixer(block.mixer, hidden), *_feed_forward(block, hidden), elementwise)


def _mixer(mixer: Attention, hidden: int) -> tuple[Operator, ...]:
    tensors = layers.attention_tensors(mixer, hidden)
    output = tuple(t for t in tensors if t.name.startswith("attn_output"))
    projections = tuple(t for t in tensors if t not in output)
    queries = mixer.heads * mixer.head_dim
    mixed = mixer.heads * mixer.value_dim
    cached = mixer.kv_heads * (mixer.head_dim + mixer.value_dim)
    return (
        Operator("QKV projection", "linear", projections, hidden, queries + cached),
        Operator("attention", "attention", (), queries, mixed + cached, attention=mixer),
        Operator("attention output", "linear", output, mixed, hidden),
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
    parts = 3 if ffn.gated else 2
    operators = [
        Operator("router", "linear", router, hidden, ffn.experts),
        Operator(
            "experts",
            "experts",
            experts,
            ffn.active * (hidden + ffn.intermediate),
            ffn.active * (hidden + (parts - 1) * ffn.intermediate),
            moe=ffn,
        ),
    ]
    if ffn.shared_intermediate is not None:
        width = ffn.shared_intermediate
        operators.append(Operator("shared experts", "linear", shared, hidden + width, (parts - 1) * width + hidden))
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
    output = tuple(t for t in head if not t.name.startswith("output_norm"))
    norm = tuple(t for t in head if t not in output)
    lookups = layers.embedding_tensors(entry)
    if entry.rope_factors is not None:
        lookups = (*lookups, vector(ROPE_FACTORS, entry.rope_factors))
    return (
        Operator("embedding", "embedding", lookups, 0, entry.hidden),
        Operator("final norm", "vector", norm, entry.hidden, entry.hidden),
        Operator("head", "head", output, entry.hidden, entry.vocabulary),
    )
