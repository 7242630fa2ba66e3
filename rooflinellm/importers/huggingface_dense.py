"""Dense families: one attention and one feed-forward part a layer. Most differ from Llama in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_parts import (
    Extra,
    Shape,
    WindowRule,
    attention,
    extra,
    gated,
    next_token,
    plain,
    vector,
    windows,
)
from rooflinellm.specs.model import FFN, Block

Switch = bool | tuple[str, bool]
"""A truth value, or the field that holds it and what absence means."""


@dataclass(frozen=True)
class Dense:
    """How a family differs from Llama.

    Attributes
    ----------
    qkv_bias, out_bias, ffn_bias, norm_bias, head_bias : bool or tuple
        Biases of projections, norms (the final one too) and head.
    qk_norm : str
        Norms of queries and keys.
    ffn : str
        Gate and up apart, in one tensor, or no gate.
    fused_qkv : bool
        Queries, keys and values are one tensor.
    norms : int
        Norm vectors of a layer. [-]
    final_norm : bool
        The final norm has weights.
    windows : str or int
        See `windows`.
    sinks : bool
        Attention has sinks.
    positions : bool
        There is a learned table of positions.
    inner_norms : bool
        A norm before each of the two output projections.
    activation : int
        Parameters of a layer's activation function. [-]
    mtp : bool
        ``num_nextn_predict_layers`` counts modules of the common kind.
    """

    qkv_bias: Switch = ("attention_bias", False)
    out_bias: Switch = ("attention_bias", False)
    ffn_bias: Switch = ("mlp_bias", False)
    norm_bias: Switch = False
    head_bias: Switch = False
    qk_norm: Literal["none", "head", "full"] = "none"
    ffn: Literal["gated", "fused", "plain"] = "gated"
    fused_qkv: bool = False
    norms: int = 2
    final_norm: bool = True
    windows: WindowRule = "never"
    sinks: bool = False
    positions: bool = False
    inner_norms: bool = False
    activation: int = 0
    mtp: bool = False


_PLAIN_BIASED = Dense(True, True, True, True, ffn="plain")
_QWEN2 = Dense(True, False, windows="upper")
_NO_BIAS = Dense(False, False, False)

FOUR_TIMES = frozenset({"gpt2", "gpt_bigcode", "gptj", "phi-msft"})
"""Families whose feed-forward part is four times the hidden size where the file names no width."""

DENSE: Mapping[str, Dense] = {
    "llama": Dense(),
    "cwm": Dense(False, False, windows="listed"),
    "helium": Dense(),
    "seed_oss": Dense(("attention_bias", True), ("attention_out_bias", False)),
    "mistral": Dense(False, False, False, windows="every"),
    "ministral": Dense(False, False, False, windows="every"),
    "ministral3": Dense(False, False, False, windows="every"),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": Dense(qk_norm="head", windows="upper"),
    "qwen3_vl_text": Dense(qk_norm="head"),
    "mimo": Dense(("attention_bias", True), False, mtp=True),
    "gemma": Dense(),
    "gemma2": Dense(norms=4, windows=2),
    "gemma3_text": Dense(norms=4, qk_norm="head", windows=6),
    "phi": Dense(True, True, True, True, True, ffn="plain", norms=1),
    "phi-msft": Dense(True, True, True, True, True, ffn="plain", norms=1),
    "phi3": Dense(False, False, False, fused_qkv=True, ffn="fused", windows="every"),
    "starcoder2": Dense(("use_bias", True), ("use_bias", True), ("use_bias", True), True, ffn="plain", windows="every"),
    "gpt2": Dense(True, True, True, True, ffn="plain", fused_qkv=True, positions=True),
    "gpt_bigcode": Dense(True, True, True, True, ffn="plain", fused_qkv=True, positions=True),
    "gptj": Dense(False, False, True, True, True, ffn="plain", norms=1),
    "gpt_neox": Dense(("attention_bias", True), ("attention_bias", True), True, True, ffn="plain", fused_qkv=True),
    "cohere": Dense(norms=1),
    "cohere2": Dense(norms=1, windows=4),
    "olmo": Dense(norms=0, final_norm=False),
    "olmo2": Dense(qk_norm="full"),
    "olmo3": Dense(qk_norm="full", windows=4),
    "internlm": Dense(("bias", True), ("bias", True), False),
    "internlm2": Dense(("bias", False), ("bias", False), False, fused_qkv=True),
    "internlm3": Dense(("qkv_bias", False), ("bias", False), ("bias", False)),
    "baichuan": Dense(False, False, False, fused_qkv=True),
    "orion": Dense(norm_bias=True),
    "exaone": Dense(),
    "exaone4": Dense(False, False, False, qk_norm="head", windows=4),
    "granite": Dense(),
    "granite_swa": Dense(sinks=True, windows="listed"),
    "hunyuan_v1_dense": Dense(qk_norm="head"),
    "ernie4_5": Dense(("use_bias", False), ("use_bias", False), ("use_bias", False)),
    "smollm3": Dense(windows="upper"),
    "apertus": Dense(qk_norm="head", ffn="plain", activation=2),
    "arcee": Dense(ffn="plain"),
    "nemotron": Dense(norm_bias=True, ffn="plain"),
    "bitnet": Dense(inner_norms=True),
    "minicpm": Dense(),
}


def dense(config: Config) -> Shape:
    """A family of the table."""
    family, hidden = DENSE[config.kind], config.hidden
    if config.kind in ("phi", "nemotron") and config.flag("qk_layernorm"):
        config.unsupported("norms of queries and keys with biases (qk_layernorm) are not described")
    qk_norm = "full" if config.kind in ("cohere",) and config.flag("use_qk_norm") else family.qk_norm
    kv_heads = config.kv_heads
    if config.kind == "gpt_bigcode" and config.flag("multi_query", default=True):
        kv_heads = 1
    given = {
        "kv_heads": kv_heads,
        "qkv_bias": _switch(config, family.qkv_bias),
        "out_bias": _switch(config, family.out_bias),
        "qk_norm": qk_norm,
        "fused_qkv": family.fused_qkv,
        "sinks": family.sinks,
    }
    width = config.intermediate_or_four if config.kind in FOUR_TIMES else config.intermediate
    bias = _switch(config, family.ffn_bias)
    ffn: FFN = (
        plain(width, bias=bias) if family.ffn == "plain" else gated(width, bias=bias, fused=family.ffn == "fused")
    )
    norm_bias = _switch(config, family.norm_bias)
    beside = _inside(config, family, width)
    blocks = [
        Block(
            mixer=attention(config, window=window, **given),
            ffn=ffn,
            norms=family.norms,
            norm_bias=norm_bias,
            extra=beside,
        )
        for window in windows(config, config.layers, family.windows)
    ]
    return Shape(
        blocks,
        extra=_positions(config, hidden) if family.positions else (),
        mtp=next_token(config, blocks[-1], hidden) if family.mtp else None,
        head_bias=_switch(config, family.head_bias),
        final_norm=family.final_norm,
        final_norm_bias=norm_bias,
    )


def _switch(config: Config, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else config.flag(switch[0], default=switch[1])


def _inside(config: Config, family: Dense, width: int) -> Extra:
    """Vectors inside a layer that no part describes."""
    norms = (vector("attn_sub_norm", config.heads * config.head_dim), vector("ffn_sub_norm", width))
    activation = (vector("ffn_act", family.activation),) if family.activation else ()
    return (*(norms if family.inner_norms else ()), *activation)


def _positions(config: Config, hidden: int, more: int = 0) -> Extra:
    rows = config.count("n_positions", "max_position_embeddings", "n_ctx") + more
    return (extra("position_embd", rows, hidden, "lookup"),)


def qwen(config: Config) -> Shape:
    """The first Qwen, whose ``intermediate_size`` counts gate and up together."""
    if not config.flag("no_bias", default=True):
        config.unsupported("biases beside those of the attention (no_bias: false) are not described for qwen")
    mixer = attention(config, qkv_bias=True, fused_qkv=True)
    return Shape([Block(mixer=mixer, ffn=gated(config.intermediate // 2))] * config.layers)


def stablelm(config: Config) -> Shape:
    """StableLM: norms with biases, one of them for both branches where they are parallel."""
    parallel = config.flag("use_parallel_residual")
    mixer = attention(
        config,
        qkv_bias=config.flag("use_qkv_bias"),
        qk_norm="full" if config.flag("qk_layernorm") else "none",
    )
    block = Block(mixer=mixer, ffn=gated(config.intermediate), norms=1 if parallel else 2, norm_bias=True)
    return Shape([block] * config.layers, final_norm_bias=True)


def gpt_neo(config: Config) -> Shape:
    """GPT-Neo: global and local attention in turn, biases everywhere but in queries, keys and values."""
    layers, kinds = config.layers, config.texts("attention_layers")
    if kinds is None:
        pattern = config.items("attention_types") or [[["global", "local"], layers // 2]]
        kinds = []
        for part in pattern:
            if (
                not isinstance(part, list)
                or len(part) != 2
                or not isinstance(part[0], list)
                or type(part[1]) is not int
            ):
                config.fault("attention_types", "expected pairs of kinds and a count")
            kinds += [str(kind) for kind in part[0]] * min(max(part[1], 0), layers)
    if len(kinds) < layers or not set(kinds) <= {"global", "local"}:
        config.fault("attention_types", f"expected 'global' or 'local' for each of {layers:,} layers")
    size = config.count("window_size", default=256, least=2)
    blocks = [
        Block(
            mixer=attention(config, out_bias=True, window=size if kind == "local" else None),
            ffn=plain(config.intermediate_or_four, bias=True),
            norm_bias=True,
        )
        for kind in kinds[:layers]
    ]
    return Shape(blocks, extra=_positions(config, config.hidden), final_norm_bias=True)


def opt(config: Config) -> Shape:
    """OPT: GPT-2's layers with biases that may be off, and a table of positions two rows longer."""
    bias, affine = config.flag("enable_bias", default=True), config.flag("layer_norm_elementwise_affine", default=True)
    if config.count("word_embed_proj_dim", default=config.hidden) != config.hidden:
        config.unsupported("embeddings narrower than the hidden size (word_embed_proj_dim) are not described")
    block = Block(
        mixer=attention(config, qkv_bias=bias, out_bias=bias),
        ffn=plain(config.intermediate_or_four, bias=bias),
        norms=2 if affine else 0,
        norm_bias=affine,
    )
    final = affine and config.flag("do_layer_norm_before", default=True)
    final = final and not config.flag("_remove_final_layer_norm")
    table = _positions(config, config.hidden, more=2)
    return Shape([block] * config.layers, extra=table, final_norm=final, final_norm_bias=final)


def bloom(config: Config) -> Shape:
    """BLOOM: biases everywhere, and a norm behind the embedding."""
    block = Block(
        mixer=attention(config, qkv_bias=True, out_bias=True, fused_qkv=True),
        ffn=plain(4 * config.hidden, bias=True),
        norm_bias=True,
    )
    norm = (vector("token_embd_norm", config.hidden), vector("token_embd_norm.bias", config.hidden))
    return Shape([block] * config.layers, extra=norm, final_norm_bias=True)


def mpt(config: Config) -> Shape:
    """MPT: no biases, ALiBi in place of positions."""
    if not config.flag("no_bias", default=True):
        config.unsupported("MPT with biases (no_bias: false) is not described")
    inner = config.part("attn_config")
    kv_heads = inner.count_or_none("kv_n_heads") if inner is not None else None
    if inner is not None and not inner.flag("alibi", default=True):
        config.unsupported("MPT with a table of positions (alibi: false) is not described")
    if inner is not None and inner.flag("qk_ln", default=False):
        config.unsupported("MPT with norms of queries and keys (qk_ln) is not described")
    mixer = attention(config, kv_heads=kv_heads or config.heads, fused_qkv=True)
    width = config.count("expansion_ratio", default=4) * config.hidden
    return Shape([Block(mixer=mixer, ffn=plain(width))] * config.layers)


def falcon(config: Config) -> Shape:
    """Falcon: one key/value head or groups, attention beside the feed-forward part."""
    grouped, bias = config.flag("new_decoder_architecture"), config.flag("bias")
    if grouped:
        norms = config.count("num_ln_in_parallel_attn", default=2)
    else:
        norms = 1 if config.flag("parallel_attn", default=True) else 2
    several = grouped or not config.flag("multi_query", default=True)
    kv_heads = config.count("num_kv_heads", "n_head_kv", default=config.heads) if several else 1
    block = Block(
        mixer=attention(config, kv_heads=kv_heads, qkv_bias=bias, out_bias=bias, fused_qkv=True),
        ffn=plain(config.count("ffn_hidden_size", default=4 * config.hidden), bias=bias),
        norms=norms,
        norm_bias=True,
    )
    return Shape([block] * config.layers, final_norm_bias=True)


def chatglm(config: Config) -> Shape:
    """ChatGLM 2 and 3, GLM-4 of 2024."""
    if not config.flag("rmsnorm", default=True) or not config.flag("post_layer_norm", default=True):
        config.unsupported("ChatGLM without RMS norms or without a final norm is not described")
    bias = config.flag("add_bias_linear")
    several = config.flag("multi_query_attention")
    mixer = attention(
        config,
        kv_heads=config.count("multi_query_group_num") if several else config.heads,
        qkv_bias=bias or config.flag("add_qkv_bias"),
        out_bias=bias,
        fused_qkv=True,
    )
    return Shape([Block(mixer=mixer, ffn=gated(config.intermediate, bias=bias, fused=True))] * config.layers)


def glm(config: Config) -> Shape:
    """GLM-4 of 2024 in Transformers, and GLM-4 of 2025 with norms behind both parts."""
    mixer = attention(config, qkv_bias=config.flag("attention_bias", default=True))
    norms = 4 if config.kind.startswith("glm4") else 2
    return Shape([Block(mixer=mixer, ffn=gated(config.intermediate, fused=True), norms=norms)] * config.layers)
