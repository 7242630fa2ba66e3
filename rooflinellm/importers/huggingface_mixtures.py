"""Mixtures of experts over softmax attention, grouped or latent."""

from __future__ import annotations

from collections.abc import Sequence

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_parts import (
    Extra,
    Shape,
    attention,
    extra,
    gated,
    mixture,
    next_token,
    sparse_layers,
    windows,
)
from rooflinellm.specs.model import FFN, Attention, Block, LatentAttention, MixtureOfExperts


def layers_of(
    mixers: Sequence[Attention | LatentAttention],
    sparse: Sequence[bool],
    experts: MixtureOfExperts,
    intermediate: int | None,
    norms: int = 2,
    extras: Sequence[Extra] | None = None,
) -> list[Block]:
    """Layers with experts where `sparse` says so, and with a dense part elsewhere."""
    dense: FFN | None = None if intermediate is None else gated(intermediate)
    blocks = []
    for layer, (mixer, is_sparse) in enumerate(zip(mixers, sparse, strict=True)):
        ffn = experts if is_sparse or dense is None else dense
        blocks.append(Block(mixer=mixer, ffn=ffn, norms=norms, extra=() if extras is None else extras[layer]))
    return blocks


def dense_width(config: Config, sparse: Sequence[bool]) -> int | None:
    return None if all(sparse) else config.intermediate


def mixtral(config: Config) -> Shape:
    """Mixtral, and the mixtures whose ``intermediate_size`` is that of an expert."""
    experts = mixture(config, intermediate=config.intermediate)
    mixers = [attention(config, window=window) for window in windows(config, config.layers, "every")]
    return Shape(layers_of(mixers, [True] * config.layers, experts, None))


def minicpm_moe(config: Config) -> Shape:
    """MiniCPM with experts."""
    experts = mixture(config, intermediate=config.intermediate)
    return Shape(layers_of([attention(config)] * config.layers, [True] * config.layers, experts, None))


def olmoe(config: Config) -> Shape:
    """OLMoE and FlexOlmo: norms of whole queries and keys."""
    bias = config.flag("attention_bias")
    mixer = attention(config, qk_norm="full", qkv_bias=bias, out_bias=bias)
    experts = mixture(config, intermediate=config.intermediate)
    return Shape(layers_of([mixer] * config.layers, [True] * config.layers, experts, None))


def phimoe(config: Config) -> Shape:
    """Phi-3.5 MoE: norms with biases, and biases in attention and head where the file says so."""
    bias = config.flag("attention_bias")
    experts = mixture(config, intermediate=config.intermediate)
    blocks = [
        Block(
            mixer=attention(config, qkv_bias=bias, out_bias=bias, window=window),
            ffn=experts,
            norm_bias=True,
        )
        for window in windows(config, config.layers, "every")
    ]
    return Shape(blocks, head_bias=config.flag("lm_head_bias"), final_norm_bias=True)


def gpt_oss(config: Config) -> Shape:
    """gpt-oss: sinks, biases everywhere, every second layer within a window."""
    bias = config.flag("attention_bias", default=True)
    mixers = [
        attention(config, window=window, sinks=True, qkv_bias=bias, out_bias=bias)
        for window in windows(config, config.layers, 2)
    ]
    experts = mixture(config, intermediate=config.intermediate, bias=True, router_bias=True)
    return Shape(layers_of(mixers, [True] * config.layers, experts, None))


def dbrx(config: Config) -> Shape:
    """DBRX: its shapes lie in ``attn_config`` and ``ffn_config``."""
    inner, outer = config.part("attn_config"), config.part("ffn_config")
    if inner is None or outer is None:
        config.fault("attn_config", "attn_config and ffn_config are missing")
    mixer = attention(config, kv_heads=inner.count("kv_n_heads", default=1), fused_qkv=True)
    experts = MixtureOfExperts(
        kind="moe",
        experts=outer.count("moe_num_experts", default=4),
        active=outer.count("moe_top_k", default=1),
        intermediate=outer.count("ffn_hidden_size", default=3584),
    )
    return Shape(layers_of([mixer] * config.layers, [True] * config.layers, experts, None))


def granite_moe(config: Config) -> Shape:
    """Granite mixtures, with shared experts where the file names their width."""
    bias = config.flag("attention_bias")
    shared = config.count("shared_intermediate_size", default=0, least=0)
    experts = mixture(config, intermediate=config.intermediate, shared_intermediate=shared or None)
    mixer = attention(config, qkv_bias=bias, out_bias=bias)
    return Shape(layers_of([mixer] * config.layers, [True] * config.layers, experts, None))


def _stepped(config: Config, layers: int) -> list[bool]:
    """Qwen's way to say which layers have experts."""
    if config.values.get("mlp_layer_types") is not None:
        return sparse_layers(config, layers)
    dense = set(config.numbers("mlp_only_layers") or ())
    step = config.count("decoder_sparse_step", default=1)
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]


def qwen2_moe(config: Config) -> Shape:
    """Qwen 1.5 and 2 mixtures: biases in queries, keys and values, a gated shared expert."""
    layers = config.layers
    bias = config.flag("qkv_bias", default=True)
    mixers = [attention(config, qkv_bias=bias, window=window) for window in windows(config, layers, "upper")]
    sparse = _stepped(config, layers)
    experts = mixture(config, shared_gate=True)
    return Shape(layers_of(mixers, sparse, experts, dense_width(config, sparse)))


def qwen3_moe(config: Config) -> Shape:
    """Qwen3 mixtures: norms of queries and keys, no shared expert."""
    layers = config.layers
    bias = config.flag("attention_bias")
    mixers = [
        attention(config, qk_norm="head", qkv_bias=bias, out_bias=bias, window=window)
        for window in windows(config, layers, "upper")
    ]
    sparse = _stepped(config, layers)
    experts = mixture(config, shared_intermediate=None)
    return Shape(layers_of(mixers, sparse, experts, dense_width(config, sparse)))


def glm4_moe(config: Config) -> Shape:
    """GLM-4.5 to 4.7 and dots.llm1: DeepSeek's mixture over grouped attention."""
    layers, hidden, dots = config.layers, config.hidden, config.kind == "dots1"
    normed = dots or config.flag("use_qk_norm")
    bias = config.flag("attention_bias")
    mixers = [
        attention(
            config,
            qkv_bias=bias,
            out_bias=bias and dots,
            qk_norm="head" if normed else "none",
            window=window,
        )
        for window in windows(config, layers, "upper")
    ]
    sparse = sparse_layers(config, layers)
    experts = mixture(config, router_bias=True)
    blocks = layers_of(mixers, sparse, experts, dense_width(config, sparse))
    return Shape(blocks, mtp=next_token(config, blocks[-1], hidden))


def solar_open(config: Config) -> Shape:
    """Solar Open: GLM's mixture in every layer; its published count leaves the router's bias out."""
    bias = config.flag("attention_bias")
    normed = config.flag("use_qk_norm")
    mixer = attention(config, qkv_bias=bias, qk_norm="head" if normed else "none")
    sparse = sparse_layers(config, config.layers)
    return Shape(layers_of([mixer] * config.layers, sparse, mixture(config), dense_width(config, sparse)))


def hy_v3(config: Config) -> Shape:
    """Hunyuan 3: norms of queries and keys, biased router, a shared expert."""
    layers, bias = config.layers, config.flag("attention_bias")
    mixer = attention(config, qkv_bias=bias, out_bias=bias, qk_norm="head")
    sparse = sparse_layers(config, layers)
    experts = mixture(config, router_bias=True)
    blocks = layers_of([mixer] * layers, sparse, experts, dense_width(config, sparse))
    return Shape(blocks, mtp=next_token(config, blocks[-1], config.hidden))


def exaone_moe(config: Config) -> Shape:
    """K-EXAONE: windows in three of four layers, norms of queries and keys, a biased router."""
    layers = config.layers
    mixers = [attention(config, qk_norm="head", window=window) for window in windows(config, layers, 4)]
    sparse = sparse_layers(config, layers)
    experts = mixture(config, router_bias=True)
    return Shape(layers_of(mixers, sparse, experts, dense_width(config, sparse)))


def minimax_m2(config: Config) -> Shape:
    """MiniMax M2: norms of whole queries and keys, a biased router."""
    normed = config.flag("use_qk_norm", default=True)
    kind = config.text("qk_norm_type", default="per_layer")
    if normed and kind != "per_layer":
        config.unsupported(f"norms of queries and keys of the type '{kind}' are not described for minimax_m2")
    mixer = attention(config, qk_norm="full" if normed else "none")
    experts = mixture(
        config,
        intermediate=config.intermediate,
        router_bias=config.flag("use_routing_bias", default=True),
        shared_intermediate=config.count_or_none("shared_intermediate_size", least=0) or None,
    )
    return Shape(layers_of([mixer] * config.layers, [True] * config.layers, experts, None))


def ernie_moe(config: Config) -> Shape:
    """ERNIE 4.5 mixtures: a biased router from a first layer on, and shared experts."""
    layers, bias = config.layers, config.flag("use_bias")
    if bias:
        config.unsupported("ERNIE mixtures with biases (use_bias) are not described")
    first, every = (
        config.count("moe_layer_start_index", default=1, least=0),
        config.count("moe_layer_interval", default=1),
    )
    last = config.values.get("moe_layer_end_index", -1)
    last = layers - 1 if last in (-1, None) else config.count("moe_layer_end_index", least=0)
    sparse = [(layer + 1) % every == 0 and first <= layer <= last for layer in range(layers)]
    experts = mixture(config, router_bias=config.flag("moe_use_aux_free", default=True))
    return Shape(layers_of([attention(config)] * layers, sparse, experts, dense_width(config, sparse)))


def hunyuan_moe(config: Config) -> Shape:
    """Hunyuan mixtures: norms of queries and keys, shared experts as wide as the dense part."""
    layers, bias = config.layers, config.flag("attention_bias")
    mixer = attention(config, qkv_bias=bias, out_bias=bias, qk_norm="head")
    active = config.by_layer("moe_topk", layers, default=config.count("num_experts_per_tok", default=1), least=1)
    widths = config.by_layer("moe_intermediate_size", layers, default=config.intermediate, least=1)
    shared = config.by_layer("num_shared_expert", layers, default=1)
    blocks = [
        Block(
            mixer=mixer,
            ffn=MixtureOfExperts(
                kind="moe",
                experts=config.count("num_experts"),
                active=min(active[layer], config.count("num_experts")),
                intermediate=widths[layer],
                shared_intermediate=shared[layer] * config.intermediate or None,
            ),
        )
        for layer in range(layers)
    ]
    return Shape(blocks)


def bailing_moe(config: Config) -> Shape:
    """Ling and Ring: DeepSeek's mixture over grouped attention in one tensor."""
    layers = config.layers
    bias = config.flag("use_qkv_bias")
    mixer = attention(
        config,
        fused_qkv=True,
        qkv_bias=bias,
        out_bias=config.flag("use_bias"),
        qk_norm="head" if config.flag("use_qk_norm") else "none",
    )
    sparse = sparse_layers(config, layers)
    experts = mixture(config, router_bias=config.flag("moe_router_enable_expert_bias"))
    blocks = layers_of([mixer] * layers, sparse, experts, dense_width(config, sparse))
    return Shape(blocks, mtp=next_token(config, blocks[-1], config.hidden))


def afmoe(config: Config) -> Shape:
    """Trinity: a gate on attention, four norms, a biased router."""
    layers = config.layers
    every = config.count("global_attn_every_n_layers", default=4)
    mixers = [
        attention(config, window=window, qk_norm="head", output_gate=True) for window in windows(config, layers, every)
    ]
    first = config.count("num_dense_layers", default=1, least=0)
    experts = mixture(config, router_bias=True)
    sparse = [layer >= first for layer in range(layers)]
    return Shape(layers_of(mixers, sparse, experts, dense_width(config, sparse), norms=4))


def laguna(config: Config) -> Shape:
    """Laguna: heads may differ by layer, and a gate scales heads or elements."""
    layers, hidden = config.layers, config.hidden
    heads = config.by_layer("num_attention_heads_per_layer", layers, default=config.heads, least=1)
    mixers, gates = [], []
    for layer, window in enumerate(windows(config, layers, "listed")):
        mixer = attention(config, heads=heads[layer], window=window, qk_norm="head")
        per_head = config.values.get("gating") != "per-element"
        mixers.append(mixer)
        gates.append((extra("attn_gate", heads[layer] * (1 if per_head else mixer.head_dim), hidden),))
    sparse = sparse_layers(config, layers)
    experts = mixture(config, router_bias=True)
    return Shape(layers_of(mixers, sparse, experts, dense_width(config, sparse), extras=gates))


def step3(config: Config) -> Shape:
    """Step 3.5 and 3.7: local layers have their own heads, a gate scales each head, and prediction has dense layers."""
    layers, hidden = config.layers, config.hidden
    other = config.part("attention_other_setting") or config
    heads = config.count_or_none("num_sliding_attention_heads") or other.heads
    local = attention(config, heads=heads, kv_heads=other.kv_heads, qk_norm="head", window=config.window)
    mixers = [
        attention(config, qk_norm="head") if window is None else local for window in windows(config, layers, "listed")
    ]
    gates = [(extra("attn_gate", mixer.heads, hidden),) for mixer in mixers]
    sparse = sparse_layers(config, layers)
    if config.has("moe_layers_enum"):  # numbers in a text, or a list of them
        listed = isinstance(config.values["moe_layers_enum"], list)
        chosen = config.items("moe_layers_enum") if listed else config.text("moe_layers_enum").split(",")
        sparse = [any(str(part).strip() == str(layer) for part in chosen or ()) for layer in range(layers)]
    shared = config.count("share_expert_dim", "share_expert_dims", default=1280)
    experts = mixture(config, router_bias=True, shared_intermediate=shared)
    blocks = layers_of(mixers, sparse, experts, dense_width(config, sparse), extras=gates)
    behind = (extra("attn_gate", local.heads, hidden), extra("nextn.shared_head_head", config.vocabulary, hidden))
    draft = Block(mixer=local, ffn=gated(config.intermediate), extra=behind)
    return Shape(blocks, mtp=next_token(config, draft, hidden))


def mimo_v2(config: Config) -> Shape:
    """MiMo V2: local layers have their own heads and sinks."""
    layers = config.layers
    pattern = config.by_layer("hybrid_layer_pattern", layers) if config.has("hybrid_layer_pattern") else None
    if pattern is None:
        kinds = config.layer_types(layers)
        if kinds is None:
            config.fault("hybrid_layer_pattern", "missing; it tells which layers have a window")
        pattern = [int(kind == "sliding_attention") for kind in kinds]
    full = attention(
        config,
        v_head_dim=config.count("v_head_dim", default=config.head_dim),
        sinks=config.flag("add_full_attention_sink_bias"),
    )
    local = attention(
        config,
        heads=config.count("swa_num_attention_heads", default=config.heads),
        kv_heads=config.count("swa_num_key_value_heads", default=config.kv_heads),
        head_dim=config.count("swa_head_dim", default=config.head_dim),
        v_head_dim=config.count("swa_v_head_dim", "v_head_dim", default=config.head_dim),
        sinks=config.flag("add_swa_attention_sink_bias", default=True),
        window=config.window,
    )
    sparse = sparse_layers(config, layers)
    experts = mixture(config, router_bias=True)
    mixers = [local if is_local else full for is_local in pattern]
    return Shape(layers_of(mixers, sparse, experts, dense_width(config, sparse)))


def llama4(config: Config) -> Shape:
    """Llama 4: chunks in three of four layers, one routed and one shared expert in every or every second layer."""
    layers = config.layers
    kinds = config.layer_types(layers)
    if kinds is None:
        every = config.count("no_rope_layer_interval", default=4)
        local = config.numbers("no_rope_layers") or [int((layer + 1) % every != 0) for layer in range(layers)]
        kinds = ["chunked_attention" if flag else "full_attention" for flag in local]
    if len(kinds) < layers or not set(kinds) <= {"chunked_attention", "full_attention"}:
        config.fault("layer_types", "expected chunked_attention or full_attention for each layer")
    chunk = config.count_or_none("attention_chunk_size", least=2)
    bias = config.flag("attention_bias")
    mixers = [
        attention(config, qkv_bias=bias, out_bias=bias, chunk=chunk if kind == "chunked_attention" else None)
        for kind in kinds[:layers]
    ]
    step = config.count("interleave_moe_layer_step", default=1)
    chosen = config.numbers("moe_layers")
    sparse = [layer in chosen if chosen is not None else (layer + 1) % step == 0 for layer in range(layers)]
    width = config.intermediate
    experts = mixture(config, intermediate=width, shared_intermediate=width)
    return Shape(layers_of(mixers, sparse, experts, config.count("intermediate_size_mlp", default=2 * width)))
