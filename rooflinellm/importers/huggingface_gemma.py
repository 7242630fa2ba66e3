"""Gemma 3n and 4: tables of embeddings for each layer, shared caches, global layers with their own heads."""

from __future__ import annotations

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_parts import Extra, Shape, attention, extra, gated, mixture, vector, windows
from rooflinellm.specs.model import FFN, Attention, Block


def gemma3n(config: Config) -> Shape:
    """Gemma 3n: alternating updates, a low-rank branch beside attention, last layers without a cache of their own."""
    layers, hidden = config.layers, config.hidden
    owned = layers - config.count("num_kv_shared_layers", default=15, least=0)
    widths = config.by_layer("intermediate_size", layers, least=1)
    streams, rank = config.count("altup_num_inputs", default=4), config.count("laurel_rank", default=64)
    beside: Extra = (
        *_gate(config),
        extra("altup_correct_coef", streams, streams),
        extra("altup_predict_coef", streams * streams, streams),
        extra("altup_router", streams, hidden),
        vector("altup_correct_scale", hidden),
        extra("laurel_l", rank, hidden),
        extra("laurel_r", hidden, rank),
    )
    blocks = [
        # Four norms around the two parts, and those of the per-layer input, the low-rank branch and the router.
        Block(
            mixer=attention(config, window=window, qk_norm="head", kv="own" if layer < owned else "shared"),
            ffn=gated(widths[layer]),
            norms=7,
            extra=beside,
        )
        for layer, window in enumerate(windows(config, layers, 5))
    ]
    more = (
        extra("altup_proj", (streams - 1) * hidden, hidden),
        extra("altup_unembd_proj", (streams - 1) * hidden, hidden),
    )
    return Shape(blocks, extra=(*_tables(config, layers), *more))


def _gate(config: Config) -> Extra:
    """How a layer takes up its row of the tables."""
    size = config.count("hidden_size_per_layer_input")
    return extra("inp_gate", size, config.hidden), extra("proj", config.hidden, size)


def _tables(config: Config, layers: int) -> Extra:
    """A table for each layer (all in one), and the projection of the embedding that is added to its rows."""
    size = config.count("hidden_size_per_layer_input")
    rows = config.count("vocab_size_per_layer_input", default=config.vocabulary)
    return (
        extra("per_layer_token_embd", rows, layers * size, "lookup"),
        extra("per_layer_model_proj", layers * size, config.hidden),
        vector("per_layer_proj_norm", size),
    )


def gemma4(config: Config) -> Shape:
    """Gemma 4: dense, with experts beside the dense part, or with tables of embeddings for each layer (E2B, E4B)."""
    layers, hidden = config.layers, config.hidden
    owned = layers - config.count("num_kv_shared_layers", default=0, least=0)
    tables = config.kind == "gemma4_text" and config.count("hidden_size_per_layer_input", least=0) > 0
    sizes = windows(config, layers, 6)
    if sizes[-1] is not None:
        sizes[-1] = None  # the last layer is always global
    experts = None
    if config.flag("enable_moe_block"):
        experts = mixture(config, shared_intermediate=config.intermediate)
    wide = config.flag("use_double_wide_mlp")
    beside: Extra = (vector("layer_output_scale", 1), *(_gate(config) if tables else ()))
    if experts is not None:
        beside = (*beside, vector("ffn_gate_inp.scale", hidden), vector("ffn_down_exps.scale", experts.experts))
    blocks = []
    for layer, window in enumerate(sizes):
        width = config.intermediate * (2 if wide and layer >= owned else 1)
        ffn: FFN = gated(width) if experts is None else experts
        blocks.append(
            Block(
                mixer=_attention4(config, window, shared=layer >= owned),
                ffn=ffn,
                norms=4 + (1 if tables else 0) + (3 if experts is not None else 0),
                extra=beside,
            )
        )
    return Shape(blocks, extra=_tables(config, layers) if tables else ())


def _attention4(config: Config, window: int | None, *, shared: bool) -> Attention:
    """Attention of one layer; global ones have larger heads, and keys that serve as values where the file says so."""
    kv = "shared" if shared else "own"
    if window is not None:
        return attention(config, window=window, qk_norm="head", kv=kv)
    equal = config.flag("attention_k_eq_v")
    kv_heads = config.count_or_none("num_global_key_value_heads") if equal else None
    return attention(
        config,
        head_dim=config.count("global_head_dim", default=512),
        kv_heads=kv_heads or config.kv_heads,
        qk_norm="head",
        kv=kv,
        value_is_key=equal,
    )
