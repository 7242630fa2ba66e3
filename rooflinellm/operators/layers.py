"""The tensors of a model, declared once: parameters, bytes in any format, FLOPs and recipes all derive from them.

Names are GGUF's classes without the layer number and ``.weight``; a bias keeps its ``.bias``. Rows are output features,
columns input features. Each function describes one part of one layer, or what stands around the layers.
"""

from __future__ import annotations

from rooflinellm.specs.model import (
    FFN,
    Attention,
    Block,
    CompressedAttention,
    DeltaNet,
    ExtraTensor,
    GatedFFN,
    KimiDelta,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    MixtureOfExperts,
    ModelEntry,
    NoFFN,
    NoMixer,
    PlainFFN,
    ShortConvolution,
)

from .tensors import Tensor, Use, vector

Tensors = tuple[Tensor, ...]

_NORM_NAMES = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")


def attention_tensors(attention: Attention, hidden: int) -> Tensors:
    """Tensors of softmax attention in one layer.

    With H query heads, H_kv key/value heads and heads of d_k (keys, queries) and d_v (values), of a hidden size d:

        W_q: H d_k x d,   W_k: H_kv d_k x d,   W_v: H_kv d_v x d,   W_o: d x H d_v

    A fused projection stacks the rows of the first three; an output gate doubles the rows of the query. Norms of
    queries and keys, sinks and biases are vectors. Projections of keys and values that a layer has and does not use,
    since it reads another layer's cache, are resident like a table.

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
    query_rows = attention.heads * attention.head_dim * (2 if attention.output_gate else 1)
    key_rows = attention.kv_heads * attention.head_dim
    value_rows = attention.kv_heads * attention.value_dim
    query = Tensor("attn_q", query_rows, hidden)
    # A layer that reads another one's cache may still hold projections of its own, which nothing multiplies.
    use: Use = "matrix" if attention.kv == "own" else "lookup"
    key, value = Tensor("attn_k", key_rows, hidden, use=use), Tensor("attn_v", value_rows, hidden, use=use)
    if not attention.kv_projections:
        projections: Tensors = (query,)
    elif attention.value_is_key:
        projections = (query, key)
    elif attention.fused_qkv:
        projections = (Tensor("attn_qkv", query_rows + key_rows + value_rows, hidden),)
    else:
        projections = (query, key, value)
    output = Tensor("attn_output", hidden, attention.heads * attention.value_dim)
    tensors = [*projections, output]
    if attention.qkv_bias:
        tensors += [_bias(projection) for projection in projections]
    if attention.out_bias:
        tensors.append(_bias(output))
    if attention.qk_norm == "head":
        norms = [vector("attn_q_norm", attention.head_dim), vector("attn_k_norm", attention.head_dim)]
        tensors += norms if attention.kv_projections else norms[:1]
    elif attention.qk_norm == "full":
        tensors += [vector("attn_q_norm", query_rows), vector("attn_k_norm", key_rows)]
    if attention.sinks:
        tensors.append(vector("attn_sinks", attention.heads))
    if attention.indexer is not None and not attention.indexer.shared:
        indexer = attention.indexer
        tensors += [
            Tensor("indexer.attn_q", indexer.heads * indexer.head_dim, hidden),
            Tensor("indexer.attn_k", indexer.head_dim, hidden),
            *(vector(f"indexer.{part}_norm", indexer.head_dim) for part in "qk"),
        ]
    return tuple(tensors)


def latent_attention_tensors(latent: LatentAttention, hidden: int) -> Tensors:
    """Tensors of multi-head latent attention in one layer, the expansion split into keys and values as GGUF has it.

    With H heads, ranks r_q and r_kv, and head parts nope, rope and v, of a hidden size d:

        W_qa: r_q x d,   W_qb: H (nope + rope) x r_q,   W_kva: (r_kv + rope) x d,
        W_kb: H r_kv x nope,   W_vb: H v x r_kv,   W_o: d x H v

    Parameters
    ----------
    latent : LatentAttention
    hidden : int
        Hidden size of the model, d. [-]

    Returns
    -------
    tuple of Tensor

    References
    ----------
    DeepSeek-AI (2024), "DeepSeek-V2", arXiv:2405.04434, section 2.1.
    """
    query_rows = latent.heads * (latent.nope_dim + latent.rope_dim)
    if latent.q_rank is None:
        query: list[Tensor] = [Tensor("attn_q", query_rows, hidden)]
    else:
        query = [
            Tensor("attn_q_a", latent.q_rank, hidden),
            vector("attn_q_a_norm", latent.q_rank),
            Tensor("attn_q_b", query_rows, latent.q_rank),
        ]
    tensors = [
        *query,
        Tensor("attn_kv_a_mqa", latent.latent_dim, hidden),
        vector("attn_kv_a_norm", latent.kv_rank),
        Tensor("attn_k_b", latent.heads * latent.kv_rank, latent.nope_dim),
        Tensor("attn_v_b", latent.heads * latent.v_head_dim, latent.kv_rank),
        Tensor("attn_output", hidden, latent.heads * latent.v_head_dim),
    ]
    if latent.indexer is not None and not latent.indexer.shared:
        indexer = latent.indexer
        tensors += [
            Tensor("indexer.attn_q_b", indexer.heads * indexer.head_dim, latent.q_rank or hidden),
            Tensor("indexer.attn_k", indexer.head_dim, hidden),
            Tensor("indexer.proj", indexer.heads, hidden),
            vector("indexer.k_norm", indexer.head_dim),
            vector("indexer.k_norm.bias", indexer.head_dim),
        ]
        if indexer.ratio > 1:
            tensors += [
                Tensor("indexer.compressor_gate", indexer.head_dim, hidden),
                vector("indexer.compressor_ape", indexer.ratio * indexer.head_dim),
            ]
    return tuple(tensors)


def compressed_attention_tensors(mixer: CompressedAttention, hidden: int) -> Tensors:
    """Tensors of compressed attention in one layer.

    With H heads of h, query rank r_q, g output groups of rank r_o, of a hidden size d:

        W_qa: r_q x d,   W_qb: H h x r_q,   W_kv: h x d,   W_oa: g r_o x H h / g,   W_ob: d x g r_o

    Entries for m tokens come from a projection and a gate of c h x d each and a table of m x c h positions; where an
    indexer chooses among them, c = 2 (neighbouring entries overlap), and the indexer's keys are made alike.

    Parameters
    ----------
    mixer : CompressedAttention
    hidden : int
        Hidden size of the model, d. [-]

    Returns
    -------
    tuple of Tensor

    References
    ----------
    huggingface/transformers 5.24.0, src/transformers/models/deepseek_v4/modeling_deepseek_v4.py.
    """
    width, ranks = mixer.heads * mixer.head_dim, mixer.output_groups * mixer.output_rank
    tensors = [
        Tensor("attn_q_a", mixer.q_rank, hidden),
        vector("attn_q_a_norm", mixer.q_rank),
        Tensor("attn_q_b", width, mixer.q_rank),
        Tensor("attn_kv", mixer.head_dim, hidden),
        vector("attn_kv_norm", mixer.head_dim),
        vector("attn_sinks", mixer.heads),
        Tensor("attn_output_a", ranks, width // mixer.output_groups),
        Tensor("attn_output_b", hidden, ranks),
    ]
    if mixer.ratio is not None:
        tensors += _compressor("attn_compressor", mixer.head_dim, mixer.ratio, hidden, mixer.indexer is not None)
    if mixer.indexer is not None and mixer.ratio is not None:
        indexer = mixer.indexer
        tensors += [
            Tensor("indexer.attn_q_b", indexer.heads * indexer.head_dim, mixer.q_rank),
            Tensor("indexer.proj", indexer.heads, hidden),
            *_compressor("indexer.compressor", indexer.head_dim, mixer.ratio, hidden, True),
        ]
    return tuple(tensors)


def _compressor(name: str, size: int, ratio: int, hidden: int, overlapping: bool) -> Tensors:
    width = size * (2 if overlapping else 1)
    return (
        Tensor(f"{name}_kv", width, hidden),
        Tensor(f"{name}_gate", width, hidden),
        vector(f"{name}_ape", ratio * width),
        vector(f"{name}_norm", size),
    )


def recurrent_tensors(mixer: Mixer, hidden: int) -> Tensors:
    """Tensors of a recurrent mixer in one layer: projections are matrices, convolutions, decays and norms vectors.

    Parameters
    ----------
    mixer : DeltaNet, KimiDelta, Mamba, Mamba2, ShortConvolution or LightningAttention
    hidden : int
        Hidden size of the model. [-]

    Returns
    -------
    tuple of Tensor

    References
    ----------
    Yang et al. (2024), "Gated Delta Networks", arXiv:2412.06464; Kimi Team (2025), "Kimi Linear", arXiv:2510.26692;
    Gu and Dao (2023), "Mamba", arXiv:2312.00752; Dao and Gu (2024), "Transformers are SSMs", arXiv:2405.21060;
    MiniMax (2025), "MiniMax-01", arXiv:2501.08313; Liquid AI (2025), LFM2 model card.
    """
    match mixer:
        case DeltaNet():
            values = mixer.value_heads * mixer.value_dim
            return (
                Tensor("ssm_in", mixer.conv_channels + values, hidden),
                Tensor("ssm_ba", 2 * mixer.value_heads, hidden),
                vector("ssm_conv1d", mixer.conv_kernel * mixer.conv_channels),
                vector("ssm_a", mixer.value_heads),
                vector("ssm_dt", mixer.value_heads),
                vector("ssm_norm", mixer.value_dim),
                Tensor("ssm_out", hidden, values),
            )
        case KimiDelta():
            width, rank = mixer.heads * mixer.head_dim, mixer.head_dim
            gates: Tensors = tuple(Tensor(f"ssm_{gate}", width, hidden) for gate in "fg")
            if not mixer.full_rank:
                gates = (
                    *(Tensor(f"ssm_{gate}_a", rank, hidden) for gate in "fg"),
                    *(Tensor(f"ssm_{gate}_b", width, rank) for gate in "fg"),
                )
            return (
                *(Tensor(name, width, hidden) for name in ("attn_q", "attn_k", "attn_v")),
                *(vector(f"ssm_conv1d_{part}", mixer.conv_kernel * width) for part in "qkv"),
                *gates,
                Tensor("ssm_beta", mixer.heads, hidden),
                vector("ssm_a", mixer.heads),
                vector("ssm_dt", width),
                vector("ssm_norm", mixer.head_dim),
                Tensor("attn_output", hidden, width),
            )
        case Mamba():
            return (*_mamba_tensors(mixer, hidden), *_mamba_norms(mixer))
        case Mamba2():
            projected = mixer.inner + mixer.conv_channels + mixer.heads
            tensors = [
                Tensor("ssm_in", projected, hidden),
                vector("ssm_conv1d", mixer.conv_kernel * mixer.conv_channels),
                *(vector(name, mixer.heads) for name in ("ssm_a", "ssm_d", "ssm_dt")),
                Tensor("ssm_out", hidden, mixer.inner),
            ]
            tensors += [vector("ssm_conv1d.bias", mixer.conv_channels)] if mixer.conv_bias else []
            tensors += [vector("ssm_norm", mixer.inner)] if mixer.gated_norm else []
            tensors += (
                [vector("ssm_in.bias", projected), vector("ssm_out.bias", hidden)] if mixer.projection_bias else []
            )
            return tuple(tensors)
        case ShortConvolution():
            matrices = (Tensor("shortconv.in_proj", 3 * hidden, hidden), Tensor("shortconv.out_proj", hidden, hidden))
            biases = [vector("shortconv.conv.bias", hidden), *map(_bias, matrices)] if mixer.bias else []
            return (*matrices, vector("shortconv.conv", mixer.kernel * hidden), *biases)
        case LightningAttention():
            width = mixer.heads * mixer.head_dim
            return (
                Tensor("attn_qkv", 3 * width, hidden),
                Tensor("attn_gate", width, hidden),
                vector("attn_norm_inner", width),
                Tensor("attn_output", hidden, width),
            )
        case _:
            raise TypeError(f"{mixer.kind} is no recurrent mixer")


def _mamba_tensors(mixer: Mamba, hidden: int) -> Tensors:
    tensors = (
        Tensor("ssm_in", 2 * mixer.inner, hidden),
        vector("ssm_conv1d", mixer.conv_kernel * mixer.inner),
        Tensor("ssm_x", mixer.dt_rank + 2 * mixer.state, mixer.inner),
        Tensor("ssm_dt", mixer.inner, mixer.dt_rank),
        vector("ssm_dt.bias", mixer.inner),
        vector("ssm_a", mixer.inner * mixer.state),
        vector("ssm_d", mixer.inner),
        Tensor("ssm_out", hidden, mixer.inner),
    )
    return (*tensors, vector("ssm_conv1d.bias", mixer.inner)) if mixer.conv_bias else tensors


def _mamba_norms(mixer: Mamba) -> Tensors:
    if not mixer.inner_norms:
        return ()
    return (
        vector("ssm_dt_norm", mixer.dt_rank),
        vector("ssm_b_norm", mixer.state),
        vector("ssm_c_norm", mixer.state),
    )


def mixer_tensors(mixer: Mixer, hidden: int) -> Tensors:
    """Tensors of any token mixer in one layer.

    Parameters
    ----------
    mixer : Mixer
    hidden : int
        Hidden size of the model. [-]

    Returns
    -------
    tuple of Tensor
    """
    match mixer:
        case Attention():
            return attention_tensors(mixer, hidden)
        case LatentAttention():
            return latent_attention_tensors(mixer, hidden)
        case CompressedAttention():
            return compressed_attention_tensors(mixer, hidden)
        case NoMixer():
            return ()
        case _:
            return recurrent_tensors(mixer, hidden)


def extra_tensors(extra: tuple[ExtraTensor, ...]) -> Tensors:
    """Tensors that an entry lists beside those of its layer kinds."""
    return tuple(Tensor(tensor.name, tensor.rows, tensor.columns, use=tensor.use) for tensor in extra)


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
    experts = _projections("_exps", ffn.intermediate, ffn.expert_hidden or hidden, gated=ffn.gated, copies=ffn.experts)
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
    mixers = sum((mixer_tensors(mixer, hidden) for mixer in block.mixers), start=())
    return norm_tensors(block, hidden) + mixers + ffn_tensors(block.ffn, hidden) + extra_tensors(block.extra)


def embedding_tensors(entry: ModelEntry) -> Tensors:
    """Tensors before the layers: the input embedding, unless it is the head's own matrix, and other tables.

    Parameters
    ----------
    entry : ModelEntry

    Returns
    -------
    tuple of Tensor
        ``token_embd``, read one row a token; nothing where it is tied to the head, which counts once, as ``output``.
    """
    tables = tuple(tensor for tensor in extra_tensors(entry.extra) if tensor.use == "lookup")
    return (
        tables
        if entry.tied_embeddings
        else (
            Tensor("token_embd", entry.vocabulary, entry.hidden, use="lookup"),
            *tables,
        )
    )


def head_tensors(entry: ModelEntry) -> Tensors:
    """Tensors after the layers: the final norm and the output head, and what stands outside the layers beside them.

    Parameters
    ----------
    entry : ModelEntry

    Returns
    -------
    tuple of Tensor
        ``output`` is multiplied by each token that is sampled from.
    """
    norm = _with_biases((vector("output_norm", entry.hidden),), entry.final_norm_bias) if entry.final_norm else ()
    head = _with_biases((Tensor("output", entry.vocabulary, entry.hidden),), entry.head_bias)
    others = tuple(tensor for tensor in extra_tensors(entry.extra) if tensor.use != "lookup")
    return norm + others + head


def mtp_tensors(entry: ModelEntry) -> Tensors:
    """Tensors of the multi-token-prediction module, which shares embedding and head with the model.

    Parameters
    ----------
    entry : ModelEntry

    Returns
    -------
    tuple of Tensor
        Nothing where there is no module.
    """
    if entry.mtp is None:
        return ()
    blocks = sum((block_tensors(block, entry.hidden) for block in entry.mtp.pattern), start=())
    return blocks + extra_tensors(entry.mtp.extra)


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
