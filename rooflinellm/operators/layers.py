"""The tensors of a model, declared once: parameters, bytes in any format, FLOPs and recipes all derive from them.

Names are GGUF's classes without the layer number and ``.weight``; a bias keeps its ``.bias``. Rows are output features,
columns input features. Each function describes one part of one layer, or what stands around the layers.
"""

from __future__ import annotations

from rooflinellm.specs.model import (
    FFN,
    Attention,
    Block,
    GatedFFN,
    MixtureOfExperts,
    ModelEntry,
    NoFFN,
    PlainFFN,
)

from .tensors import Tensor, vector

Tensors = tuple[Tensor, ...]

_NORM_NAMES = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")


def attention_tensors(attention: Attention, hidden: int) -> Tensors:
    """Tensors of softmax attention in one layer.

    With H query heads, H_kv key/value heads and heads of d_k (keys, queries) and d_v (values), of a hidden size d:

        W_q: H d_k x d,   W_k: H_kv d_k x d,   W_v: H_kv d_v x d,   W_o: d x H d_v

    A fused projection stacks the rows of the first three. Norms of queries and keys, sinks and biases are vectors.

    Parameters
    ----------
    attention : Attention
    hidden : int
        Hidden size of the model, d. [-]

    Returns
    -------
    tuple of Tensor

    References
    ----------
    Ainslie et al. (2023), "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints".
    """
    query_rows = attention.heads * attention.head_dim
    key_rows = attention.kv_heads * attention.head_dim
    value_rows = attention.kv_heads * attention.value_dim
    if attention.fused_qkv:
        projections: Tensors = (Tensor("attn_qkv", query_rows + key_rows + value_rows, hidden),)
    else:
        projections = (
            Tensor("attn_q", query_rows, hidden),
            Tensor("attn_k", key_rows, hidden),
            Tensor("attn_v", value_rows, hidden),
        )
    output = Tensor("attn_output", hidden, attention.heads * attention.value_dim)
    tensors = [*projections, output]
    if attention.qkv_bias:
        tensors += [_bias(projection) for projection in projections]
    if attention.out_bias:
        tensors.append(_bias(output))
    if attention.qk_norm == "head":
        tensors += [vector("attn_q_norm", attention.head_dim), vector("attn_k_norm", attention.head_dim)]
    elif attention.qk_norm == "full":
        tensors += [vector("attn_q_norm", query_rows), vector("attn_k_norm", key_rows)]
    if attention.sinks:
        tensors.append(vector("attn_sinks", attention.heads))
    return tuple(tensors)


def ffn_tensors(ffn: FFN, hidden: int) -> Tensors:
    """Tensors of the feed-forward part of one layer.

    Of a hidden size d and an intermediate size F: gate and up are F x d, down is d x F. A mixture of E experts has
    each of them E times and a router of E x d; its shared experts are one more block of their common width.

    Parameters
    ----------
    ffn : GatedFFN, PlainFFN, MixtureOfExperts or NoFFN
    hidden : int
        Hidden size of the model, d. [-]

    Returns
    -------
    tuple of Tensor

    References
    ----------
    Shazeer (2020), "GLU Variants Improve Transformer".
    Shazeer et al. (2017), "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer".
    """
    match ffn:
        case NoFFN():
            return ()
        case GatedFFN(fused=True):
            # llama.cpp keeps gate and up in one tensor of twice the rows, under the name of the up projection.
            up = Tensor("ffn_up", 2 * ffn.intermediate, hidden)
            return _with_biases((up, Tensor("ffn_down", hidden, ffn.intermediate)), ffn.bias)
        case GatedFFN() | PlainFFN():
            gated = isinstance(ffn, GatedFFN)
            return _with_biases(_projections("", ffn.intermediate, hidden, gated=gated), ffn.bias)
        case MixtureOfExperts():
            return _mixture_tensors(ffn, hidden)


def _mixture_tensors(ffn: MixtureOfExperts, hidden: int) -> Tensors:
    router = Tensor("ffn_gate_inp", ffn.experts, hidden)
    experts = _projections("_exps", ffn.intermediate, hidden, gated=ffn.gated, copies=ffn.experts)
    tensors = [*_with_biases((router,), ffn.router_bias), *_with_biases(experts, ffn.bias)]
    if ffn.shared_intermediate is not None:
        tensors += _projections("_shexp", ffn.shared_intermediate, hidden, gated=ffn.gated)
    if ffn.shared_gate:
        tensors.append(Tensor("ffn_gate_inp_shexp", 1, hidden))
    return tuple(tensors)


def norm_tensors(block: Block, hidden: int) -> Tensors:
    """Norm vectors of the hidden size in one layer, with their biases if they have them.

    Norms of queries and keys belong to the attention.

    Parameters
    ----------
    block : Block
    hidden : int
        Hidden size of the model. [-]

    Returns
    -------
    tuple of Tensor
    """
    names = [*_NORM_NAMES, *(f"norm_{number}" for number in range(len(_NORM_NAMES), block.norms))][: block.norms]
    return _with_biases(tuple(vector(name, hidden) for name in names), block.norm_bias)


def block_tensors(block: Block, hidden: int) -> Tensors:
    """All tensors of one layer.

    Parameters
    ----------
    block : Block
    hidden : int
        Hidden size of the model. [-]

    Returns
    -------
    tuple of Tensor
    """
    return norm_tensors(block, hidden) + attention_tensors(block.mixer, hidden) + ffn_tensors(block.ffn, hidden)


def embedding_tensors(entry: ModelEntry) -> Tensors:
    """Tensors before the layers: the input embedding, unless it is the head's own matrix.

    Parameters
    ----------
    entry : ModelEntry

    Returns
    -------
    tuple of Tensor
        ``token_embd``, read one row a token; nothing where it is tied to the head, which counts once, as ``output``.
    """
    return () if entry.tied_embeddings else (Tensor("token_embd", entry.vocabulary, entry.hidden, use="lookup"),)


def head_tensors(entry: ModelEntry) -> Tensors:
    """Tensors after the layers: the final norm and the output head.

    Parameters
    ----------
    entry : ModelEntry

    Returns
    -------
    tuple of Tensor
        ``output`` is multiplied by each token that is sampled from.
    """
    norm = _with_biases((vector("output_norm", entry.hidden),), entry.final_norm_bias)
    head = _with_biases((Tensor("output", entry.vocabulary, entry.hidden),), entry.head_bias)
    return norm + head


def _projections(suffix: str, intermediate: int, hidden: int, *, gated: bool, copies: int = 1) -> Tensors:
    """Gate (if there is one), up and down of a feed-forward block, in this order."""
    gate = Tensor(f"ffn_gate{suffix}", intermediate, hidden, copies)
    up = Tensor(f"ffn_up{suffix}", intermediate, hidden, copies)
    down = Tensor(f"ffn_down{suffix}", hidden, intermediate, copies)
    return (gate, up, down) if gated else (up, down)


def _with_biases(tensors: Tensors, biased: bool) -> Tensors:
    return tensors + tuple(_bias(tensor) for tensor in tensors) if biased else tensors


def _bias(tensor: Tensor) -> Tensor:
    """The bias of a matrix (one number a row) or of a norm (one an element)."""
    length = tensor.columns if tensor.use == "vector" else tensor.rows
    return vector(f"{tensor.name}.bias", length, tensor.copies)
