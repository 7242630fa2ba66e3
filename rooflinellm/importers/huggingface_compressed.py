"""DeepSeek-V4 and GLM-5.3 Flash: several residual streams, attention over entries or pools of several tokens each."""

from __future__ import annotations

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_parts import (
    Extra,
    Shape,
    extra,
    gated,
    indexer,
    indexers,
    latent,
    mixture,
    sparse_layers,
    vector,
)
from rooflinellm.specs.model import Block, CompressedAttention, Indexer, KimiDelta

RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""Tokens of an entry by kind of layer; 0 has none. The first of the others has an indexer."""


def deepseek_v4(config: Config) -> Shape:
    """DeepSeek-V4 Flash and Pro."""
    layers, hidden = config.layers, config.hidden
    streams = config.count("hc_mult", default=4)
    hashed = _hashed(config, layers)
    by_token = mixture(config)
    routed = mixture(config, router_bias=True)
    table = extra("ffn_gate_tid2eid", config.vocabulary, by_token.active, "lookup")
    connections = (*_connection("hc_attn", streams, hidden), *_connection("hc_ffn", streams, hidden))
    mixers = {ratio: _attention(config, ratio) for ratio in set(_ratios(config, layers))}
    blocks = [
        Block(
            mixer=mixers[ratio],
            ffn=by_token if layer in hashed else routed,
            extra=(*connections, table) if layer in hashed else connections,
        )
        for layer, ratio in enumerate(_ratios(config, layers))
    ]
    head = (
        extra("hc_head_fn", streams, streams * hidden),
        vector("hc_head_base", streams),
        vector("hc_head_scale", 1),
    )
    return Shape(blocks, extra=head)


def glm5_next(config: Config) -> Shape:
    """GLM-5.3 Flash: three Kimi delta attentions to one latent attention, whose indexer pools its keys."""
    layers, hidden = config.layers, config.hidden
    streams, pool = config.count("hc_mult", default=4), config.count("index_kpool", default=16)
    kinds = config.layer_types(layers)
    if kinds is None or not set(kinds) <= {"linear_attention", "indexed_attention"}:
        config.fault("layer_types", "expected linear_attention or indexed_attention for each layer")
    delta = KimiDelta(
        kind="kda",
        heads=config.count("linear_num_heads"),
        head_dim=config.count("linear_head_dim"),
        conv_kernel=config.count("linear_conv_kernel_dim", default=4),
    )
    pooled = {"ratio": pool, "top_k": max(config.count("index_topk") // pool, 1)}
    choosers = [each.model_copy(update=pooled) for each in indexers(config, layers)]
    experts, sparse = mixture(config, router_bias=True), sparse_layers(config, layers)
    connections = (*_connection("hc_attn", streams, hidden), *_connection("hc_ffn", streams, hidden))
    blocks = [
        Block(
            mixer=delta if kind == "linear_attention" else latent(config, indexer=choosers[layer]),
            ffn=experts if sparse[layer] else gated(config.intermediate),
            extra=connections,
        )
        for layer, kind in enumerate(kinds)
    ]
    return Shape(blocks)


def _ratios(config: Config, layers: int) -> list[int]:
    kinds = config.layer_types(layers)
    if kinds is None:
        if not config.has("compress_ratios"):
            config.fault("compress_ratios", "missing; it tells how many tokens an entry of each layer stands for")
        return config.by_layer("compress_ratios", layers)
    strange = set(kinds) - set(RATIOS)
    if strange:
        config.unsupported(f"layers of the kind '{min(strange)}' are not described for {config.kind}")
    rates = config.part("compress_rates")
    found = {kind: rates.count(kind, default=size) if rates and size else size for kind, size in RATIOS.items()}
    return [found[kind] for kind in kinds]


def _hashed(config: Config, layers: int) -> set[int]:
    """Layers whose experts a table chooses by token."""
    kinds = config.layer_types(layers, "mlp_layer_types")
    if kinds is None:
        return set(range(min(config.count("num_hash_layers", default=3, least=0), layers)))
    return {layer for layer, kind in enumerate(kinds) if kind == "hash_moe"}


def _attention(config: Config, ratio: int) -> CompressedAttention:
    sparse: Indexer | None = None
    if ratio == RATIOS["compressed_sparse_attention"]:
        sparse = indexer(config, ratio=ratio)
    if config.kv_heads != 1:
        config.unsupported(f"compressed attention with {config.kv_heads} key/value heads is not described")
    return CompressedAttention(
        kind="compressed",
        heads=config.heads,
        head_dim=config.head_dim,
        q_rank=config.count("q_lora_rank"),
        output_groups=config.count("o_groups", default=8),
        output_rank=config.count("o_lora_rank", default=1024),
        window=config.window or 128,
        ratio=ratio or None,
        indexer=sparse,
    )


def _connection(name: str, streams: int, hidden: int) -> Extra:
    """How a part of a layer is fed from the residual streams and added to them."""
    size = (2 + streams) * streams
    return (
        extra(f"{name}_fn", size, streams * hidden),
        vector(f"{name}_base", size),
        vector(f"{name}_scale", 3),
    )
