"""Latent attention and sparse attention: DeepSeek and what follows it, MiniMax M3."""

from __future__ import annotations

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_mixtures import dense_width, layers_of
from rooflinellm.importers.huggingface_parts import (
    Shape,
    attention,
    gated,
    indexers,
    latent,
    mixture,
    next_token,
    sparse_layers,
)
from rooflinellm.specs.model import Block, Indexer, LatentAttention


def deepseek(config: Config) -> Shape:
    """DeepSeek V2 to V3.2, Kimi K2, GLM-4.7-Flash and 5: latent attention, and the indexer of sparse attention."""
    layers, hidden = config.layers, config.hidden
    if config.flag("attention_bias"):
        config.unsupported("latent attention with biases (attention_bias) is not described")
    mixers = _latent_mixers(config, layers)
    sparse = sparse_layers(config, layers)
    if not config.has("n_routed_experts", "num_local_experts"):
        return Shape([Block(mixer=mixer, ffn=gated(config.intermediate)) for mixer in mixers])
    # V2 chooses experts without a bias; V3 and what follows it correct the choice by one.
    method = config.text("topk_method", default="greedy" if config.kind == "deepseek_v2" else "noaux_tc")
    biased = method == "noaux_tc" and config.kind != "mistral4"
    experts = mixture(config, router_bias=biased)
    blocks = layers_of(mixers, sparse, experts, dense_width(config, sparse))
    # Where layers share an indexer, the prediction module has one of its own, as the first layer has.
    last = blocks[-1].model_copy(update={"mixer": mixers[0]})
    return Shape(blocks, mtp=next_token(config, last, hidden))


def _latent_mixers(config: Config, layers: int) -> list[LatentAttention]:
    if config.kind not in ("deepseek_v32", "glm_moe_dsa"):
        return [latent(config)] * layers
    return [latent(config, indexer=each) for each in indexers(config, layers)]


def minimax_m3(config: Config) -> Shape:
    """MiniMax M3: an indexer chooses blocks of keys and values, a shared expert, dense first layers."""
    layers = config.layers
    sparsity = config.part("sparse_attention_config")
    if sparsity is None or not config.flag("use_qk_norm", default=True) or config.flag("attention_output_gate"):
        config.unsupported(
            "MiniMax M3 without sparse attention or norms of queries and keys, or with a gate, is not described"
        )
    block = sparsity.count("sparse_block_size")
    chooser = Indexer(
        heads=sparsity.count("sparse_num_index_heads"),
        head_dim=sparsity.count("sparse_index_dim"),
        top_k=sparsity.count("sparse_topk_blocks") * block,
    )
    sparse, full = attention(config, qk_norm="head", indexer=chooser), attention(config, qk_norm="head")
    chosen = sparsity.by_layer("sparse_attention_freq", layers, default=1)
    with_experts = sparse_layers(config, layers)
    width = config.intermediate
    experts = mixture(
        config,
        intermediate=width,
        router_bias=config.flag("use_routing_bias", default=True),
        shared_intermediate=config.count("shared_intermediate_size", default=width),
    )
    mixers = [sparse if flag else full for flag in chosen]
    dense = None if all(with_experts) else config.count("dense_intermediate_size")
    return Shape(layers_of(mixers, with_experts, experts, dense))
