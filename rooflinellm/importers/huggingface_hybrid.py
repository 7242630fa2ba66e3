"""Families with recurrent layers: delta nets, state spaces, short convolutions, lightning attention."""

from __future__ import annotations

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_parts import (
    Extra,
    Shape,
    attention,
    extra,
    gated,
    latent,
    mixture,
    next_token,
    sparse_layers,
)
from rooflinellm.specs.model import (
    FFN,
    Block,
    DeltaNet,
    KimiDelta,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    NoFFN,
    ShortConvolution,
)

NO_FFN = NoFFN(kind="none")
RECURRENT_NAMES = frozenset({"linear_attention", "mamba", "mamba2", "conv", "kda", "recurrent"})


def _recurrent(config: Config, kinds: list[str]) -> list[bool]:
    """Which layers are recurrent, of a list of kinds."""
    strange = set(kinds) - RECURRENT_NAMES - {"full_attention", "attention"}
    if strange:
        config.unsupported(f"layers of the kind '{min(strange)}' are not described for {config.kind}")
    return [kind in RECURRENT_NAMES for kind in kinds]


def _kinds(config: Config, layers: int) -> list[str] | None:
    return config.layer_types(layers, "layer_types", "layers_block_type", "layer_type_list")


def _delta(config: Config) -> DeltaNet:
    return DeltaNet(
        kind="delta",
        key_heads=config.count("linear_num_key_heads"),
        value_heads=config.count("linear_num_value_heads"),
        key_dim=config.count("linear_key_head_dim"),
        value_dim=config.count("linear_value_head_dim"),
        conv_kernel=config.count("linear_conv_kernel_dim", default=4),
    )


def qwen_next(config: Config) -> Shape:
    """Qwen3-Next, 3.5 and 3.6: three gated delta nets to one gated attention, dense or with experts."""
    layers, hidden = config.layers, config.hidden
    kinds = _kinds(config, layers)
    if kinds is None:
        every = config.count("full_attention_interval", default=4)
        kinds = ["linear_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    gate, bias = config.flag("attn_output_gate", default=True), config.flag("attention_bias")
    full = attention(config, qk_norm="head", output_gate=gate, qkv_bias=bias, out_bias=bias)
    delta = _delta(config)
    dense_only = set(config.numbers("mlp_only_layers") or ())
    step = config.count("decoder_sparse_step", default=1)
    experts = None
    if config.count("num_experts", default=0, least=0):
        experts = mixture(config, shared_gate=True)
    blocks = []
    for layer, recurrent in enumerate(_recurrent(config, kinds)):
        is_sparse = experts is not None and layer not in dense_only and (layer + 1) % step == 0
        ffn: FFN = experts if experts is not None and is_sparse else gated(config.intermediate)
        blocks.append(Block(mixer=delta if recurrent else full, ffn=ffn))
    predictor = Block(mixer=full, ffn=blocks[-1].ffn)
    return Shape(blocks, mtp=next_token(config, predictor, hidden, "mtp_num_hidden_layers"))


def olmo_hybrid(config: Config) -> Shape:
    """OLMo Hybrid: three delta nets to one attention with norms of whole queries and keys."""
    layers = config.layers
    kinds = _kinds(config, layers)
    if kinds is None:
        config.fault("layer_types", "missing; it tells which layers are recurrent")
    full, delta = attention(config, qk_norm="full"), _delta(config)
    ffn = gated(config.intermediate)
    return Shape([Block(mixer=delta if recurrent else full, ffn=ffn) for recurrent in _recurrent(config, kinds)])


def kimi_linear(config: Config) -> Shape:
    """Kimi Linear and Ling 3: Kimi delta attention, and latent attention in every fourth or sixth layer."""
    layers, hidden, ling = config.layers, config.hidden, config.kind == "bailing_hybrid"
    inner = config.part("linear_attn_config") or config
    for name in ("use_full_rank_gate",):
        if inner.flag(name):
            config.unsupported(f"Kimi delta attention with {name} is not described")
    for name in ("attn_res_block_size", "routed_expert_hidden_size", "mla_use_output_gate"):
        if config.values.get(name):
            config.unsupported(f"'{name}' (Kimi K3) is not described")
    kinds = _kinds(config, layers)
    if kinds is None and inner is not config:
        full_layers = set(inner.numbers("full_attn_layers", least=1) or ())
        kinds = ["full_attention" if layer + 1 in full_layers else "kda" for layer in range(layers)]
    elif kinds is None:
        every = config.count("layer_group_size", default=6) if ling else 0
        if not ling:
            config.fault("linear_attn_config", "missing; it tells which layers are recurrent")
        kinds = ["kda" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    delta = KimiDelta(
        kind="kda",
        heads=inner.count("num_heads", "linear_num_heads", default=config.heads),
        head_dim=inner.count("linear_head_dim", "head_dim"),
        conv_kernel=inner.count("short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
        full_rank=ling,
    )
    full = latent(config)
    gate: Extra = (extra("attn_gate", config.heads, hidden),) if ling else ()
    sparse = sparse_layers(config, layers)
    experts = mixture(config, router_bias=True)
    blocks = [
        Block(
            mixer=delta if recurrent else full,
            ffn=experts if sparse[layer] else gated(config.intermediate),
            extra=() if recurrent else gate,
        )
        for layer, recurrent in enumerate(_recurrent(config, kinds))
    ]
    predictor = Block(mixer=full, ffn=blocks[-1].ffn, extra=gate)
    return Shape(blocks, mtp=next_token(config, predictor, hidden))


def minimax(config: Config) -> Shape:
    """MiniMax-01 and M1: seven layers of lightning attention to one of softmax attention, experts in all."""
    layers = config.layers
    kinds = _kinds(config, layers)
    if kinds is None:
        flags = config.numbers("attn_type_list")
        if flags is None or len(flags) < layers:
            config.fault("attn_type_list", "missing or too short; it tells which layers are recurrent")
        kinds = ["full_attention" if flag else "linear_attention" for flag in flags[:layers]]
    if config.count("shared_intermediate_size", default=0, least=0):
        config.unsupported("MiniMax with shared experts is not described")
    full = attention(config)
    linear = LightningAttention(kind="lightning", heads=config.heads, head_dim=config.head_dim)
    experts = mixture(config, intermediate=config.intermediate)
    return Shape([Block(mixer=linear if recurrent else full, ffn=experts) for recurrent in _recurrent(config, kinds)])


def lfm2(config: Config) -> Shape:
    """LFM2: short convolutions, attention in some layers, dense or with experts."""
    layers = config.layers
    kinds = _kinds(config, layers)
    if kinds is None:
        full_layers = config.numbers("full_attn_idxs")
        full_layers = list(range(layers)) if full_layers is None else full_layers
        kinds = ["full_attention" if layer in full_layers else "conv" for layer in range(layers)]
    width = config.count("block_ff_dim", "intermediate_size")
    if config.kind == "lfm2" and config.flag("block_auto_adjust_ff_dim", default=True):
        width = int(config.number("block_ffn_dim_multiplier", default=1.0) * (2 * width // 3))
        multiple = config.count("block_multiple_of", default=256)
        width = -(-width // multiple) * multiple
    full = attention(config, qk_norm="head")
    kernel, bias = config.count("conv_L_cache", default=3), config.flag("conv_bias")
    convolution = ShortConvolution(kind="short_conv", kernel=kernel, bias=bias)
    experts, dense = None, layers
    if config.kind == "lfm2_moe":
        experts = mixture(config, router_bias=config.flag("use_expert_bias", default=True))
        dense = config.count("num_dense_layers", default=2, least=0)
    blocks = []
    for layer, recurrent in enumerate(_recurrent(config, kinds)):
        ffn: FFN = gated(width) if experts is None or layer < dense else experts
        blocks.append(Block(mixer=convolution if recurrent else full, ffn=ffn))
    return Shape(blocks)


def _rank(config: Config, *names: str) -> int:
    """Rank of the time step: a sixteenth of the hidden size, rounded up, where it is ``auto``."""
    if config.values.get(names[0]) == "auto":
        return -(-config.hidden // 16)
    return config.count(*names, default=-(-config.hidden // 16))


def mamba(config: Config) -> Shape:
    """Mamba and Falcon Mamba, as Transformers writes them."""
    inner = config.count("intermediate_size", default=config.count("expand", default=2) * config.hidden)
    if config.flag("use_bias"):
        config.unsupported("Mamba with biases of its projections (use_bias) is not described")
    mixer = Mamba(
        kind="mamba",
        inner=inner,
        state=config.count("state_size", default=16),
        dt_rank=_rank(config, "time_step_rank"),
        conv_kernel=config.count("conv_kernel", default=4),
        conv_bias=config.flag("use_conv_bias", default=True),
    )
    return Shape([Block(mixer=mixer, ffn=NO_FFN, norms=1)] * config.layers)


def mamba2(config: Config) -> Shape:
    """Mamba2, as Transformers writes it."""
    bias = config.flag("use_bias")
    heads, size = config.count("num_heads", default=128), config.count("head_dim", default=64)
    mixer = Mamba2(
        kind="mamba2",
        heads=heads,
        head_dim=size,
        state=config.count("state_size", default=128),
        groups=config.count("n_groups", default=8),
        conv_kernel=config.count("conv_kernel", default=4),
        conv_bias=config.flag("use_conv_bias", default=True),
        projection_bias=bias,
    )
    return Shape([Block(mixer=mixer, ffn=NO_FFN, norms=1)] * config.layers)


def mamba_ssm(config: Config) -> Shape:
    """Both kinds as the authors' own library writes them (``ssm_cfg``), the second with its defaults."""
    inner = config.part("ssm_cfg")
    if inner is None:
        config.fault("ssm_cfg", "missing; it tells the kind of the layers")
    if config.items("attn_layer_idx") or config.count("d_intermediate", default=0, least=0):
        config.unsupported("attention or feed-forward layers between state spaces (attn_layer_idx) are not described")
    width = inner.count("expand", default=2) * config.hidden
    if inner.text("layer", default="Mamba1") == "Mamba1":
        mixer: Mixer = Mamba(
            kind="mamba",
            inner=width,
            state=inner.count("d_state", default=16),
            dt_rank=_rank(config, "dt_rank"),
            conv_kernel=inner.count("d_conv", default=4),
        )
    else:
        size = inner.count("headdim", default=64)
        mixer = Mamba2(
            kind="mamba2",
            heads=width // size or 1,
            head_dim=size,
            state=inner.count("d_state", default=128),
            groups=inner.count("ngroups", default=1),
            conv_kernel=inner.count("d_conv", default=4),
        )
    return Shape([Block(mixer=mixer, ffn=NO_FFN, norms=1)] * config.layers)


def jamba(config: Config) -> Shape:
    """Jamba: seven Mamba layers to one of attention, experts in every second layer."""
    layers = config.layers
    period, offset = config.count("attn_layer_period", default=8), config.count("attn_layer_offset", default=4, least=0)
    every, first = (
        config.count("expert_layer_period", default=2),
        config.count("expert_layer_offset", default=1, least=0),
    )
    if config.flag("mamba_proj_bias"):
        config.unsupported("Jamba with biases of its projections (mamba_proj_bias) is not described")
    recurrent = Mamba(
        kind="mamba",
        inner=config.count("mamba_expand", default=2) * config.hidden,
        state=config.count("mamba_d_state", default=16),
        dt_rank=_rank(config, "mamba_dt_rank"),
        conv_kernel=config.count("mamba_d_conv", default=4),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        inner_norms=True,
    )
    full = attention(config)
    experts = None
    if config.count("num_experts", default=16) > 1:
        experts = mixture(config, intermediate=config.intermediate)
    blocks = []
    for layer in range(layers):
        ffn: FFN = experts if experts is not None and layer % every == first else gated(config.intermediate)
        blocks.append(Block(mixer=full if layer % period == offset else recurrent, ffn=ffn))
    return Shape(blocks)


def _mamba2_of_hybrid(config: Config, **given: bool) -> Mamba2:
    """The second state space under the names that Granite and Falcon use."""
    heads = config.count("mamba_n_heads", default=128)
    inner = config.count("mamba_d_ssm", default=config.count("mamba_expand", default=2) * config.hidden)
    size = config.values.get("mamba_d_head")
    return Mamba2(
        kind="mamba2",
        heads=heads,
        head_dim=inner // heads or 1 if size in (None, "auto") else config.count("mamba_d_head"),
        state=config.count("mamba_d_state", default=256),
        groups=config.count("mamba_n_groups", default=1),
        conv_kernel=config.count("mamba_d_conv", default=4),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        **given,
    )


def granite_hybrid(config: Config) -> Shape:
    """Granite 4: Mamba2, attention in some layers, a shared feed-forward part and perhaps experts."""
    layers = config.layers
    kinds = _kinds(config, layers) or ["mamba"] * layers
    bias = config.flag("attention_bias")
    full = attention(config, qkv_bias=bias, out_bias=bias)
    recurrent = _mamba2_of_hybrid(config, projection_bias=config.flag("mamba_proj_bias"))
    shared = config.count("shared_intermediate_size", default=1024)
    ffn: FFN = gated(shared)
    if config.count("num_local_experts", default=0, least=0):
        ffn = mixture(config, intermediate=config.intermediate, shared_intermediate=shared)
    return Shape([Block(mixer=recurrent if flag else full, ffn=ffn) for flag in _recurrent(config, kinds)])


def falcon_h1(config: Config) -> Shape:
    """Falcon-H1: attention and Mamba2 side by side in each layer."""
    bias = config.flag("attention_bias")
    if config.flag("mamba_proj_bias") != config.flag("projectors_bias"):
        config.unsupported("Falcon-H1 with a bias of only one projection (mamba_proj_bias) is not described")
    block = Block(
        mixer=attention(config, qkv_bias=bias, out_bias=bias),
        beside=_mamba2_of_hybrid(
            config,
            projection_bias=config.flag("mamba_proj_bias"),
            gated_norm=config.flag("mamba_rms_norm"),
        ),
        ffn=gated(config.intermediate, bias=config.flag("mlp_bias")),
    )
    return Shape([block] * config.layers)
