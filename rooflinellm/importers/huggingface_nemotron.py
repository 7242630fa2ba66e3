"""Nemotron: layers of one part each, and layers whose widths a search has chosen."""

from __future__ import annotations

from typing import NoReturn

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_parts import Extra, Shape, attention, extra, gated, mixture, next_token, plain
from rooflinellm.specs.model import FFN, MAX_LAYERS, Attention, Block, Mamba2, MtpModule, NoFFN, NoMixer

NO_FFN = NoFFN(kind="none")

_LETTERS = {
    "M": "mamba",
    "-": "mlp",
    "*": "attention",
    "E": "moe",
}
_OTHER_NAMES = {"linear_attention": "mamba", "full_attention": "attention", "dense": "mlp", "sparse": "moe"}


def nemotron_h(config: Config) -> Shape:
    """Nemotron-H and Nemotron 3: each layer is one part, Mamba2, attention, feed-forward or experts."""
    kinds = _nemotron_kinds(config, "layers_block_type", "hybrid_override_pattern")
    if kinds is None:
        config.fault("hybrid_override_pattern", "missing; it tells what each layer is")
    blocks = {kind: _nemotron_block(config, kind) for kind in dict.fromkeys(kinds)}
    return Shape([blocks[kind] for kind in kinds], mtp=_nemotron_mtp(config))


def _nemotron_kinds(config: Config, listed: str, pattern: str) -> list[str] | None:
    kinds = config.texts(listed)
    if kinds is None:
        letters = config.text(pattern, default="")
        strange = set(letters) - set(_LETTERS)
        if strange:
            config.fault(pattern, f"'{min(strange)}' is no kind of layer; allowed: {', '.join(_LETTERS)}")
        return [_LETTERS[letter] for letter in letters] or None
    named = [_OTHER_NAMES.get(kind, kind) for kind in kinds]
    strange = set(named) - set(_LETTERS.values())
    if strange:
        config.unsupported(f"layers of the kind '{min(strange)}' are not described for nemotron_h")
    if len(named) > MAX_LAYERS:
        config.fault(listed, f"{len(named):,} layers")
    return named


def _nemotron_block(config: Config, kind: str) -> Block:
    nothing, bias = NoMixer(kind="none"), config.flag("mlp_bias")
    if kind == "attention":
        return Block(mixer=attention(config, kv_heads=config.kv_heads), ffn=NO_FFN, norms=1)
    if kind == "mlp":
        return Block(mixer=nothing, ffn=plain(config.intermediate, bias=bias), norms=1)
    if kind == "mamba":
        mixer = Mamba2(
            kind="mamba2",
            heads=config.count("mamba_num_heads"),
            head_dim=config.count("mamba_head_dim"),
            state=config.count("ssm_state_size"),
            groups=config.count("n_groups", default=8),
            conv_kernel=config.count("conv_kernel", default=4),
            conv_bias=config.flag("use_conv_bias", default=True),
            projection_bias=config.flag("use_bias", default=config.flag("mamba_proj_bias")),
        )
        return Block(mixer=mixer, ffn=NO_FFN, norms=1)
    width = config.count_or_none("moe_latent_size")
    shared = config.count("moe_shared_expert_intermediate_size", default=0, least=0)
    experts = mixture(config, gated=False, shared_intermediate=shared or None, expert_hidden=width)
    beside: Extra = ()
    if width is not None:
        beside = (extra("ffn_latent_down", width, config.hidden), extra("ffn_latent_up", config.hidden, width))
    return Block(mixer=nothing, ffn=experts, norms=1, extra=beside)


def _nemotron_mtp(config: Config) -> MtpModule | None:
    if not config.count("num_nextn_predict_layers", default=0, least=0):
        return None
    kinds = _nemotron_kinds(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    first, *others = [_nemotron_block(config, kind) for kind in kinds or ["attention", "moe"]]
    module = next_token(config, first, config.hidden)
    assert module is not None
    return MtpModule(pattern=(*module.pattern, *others))


def nemotron_nas(config: Config) -> Shape:
    """Llama-Nemotron, shaped by search: each layer has its own widths, or lacks a part."""
    hidden, layers = config.hidden, config.layers
    parts = config.items("block_configs")
    if parts is None or len(parts) < layers:
        config.fault("block_configs", f"expected one for each of {layers:,} layers")
    bias = config.flag("attention_bias")
    blocks = []
    for number, part in enumerate(parts[:layers]):
        if not isinstance(part, dict):
            config.fault("block_configs", f"layer {number} is no object")
        outer = Config(part, config.where, f"block_configs.{number}.")
        mixing, feeding = outer.part("attention"), outer.part("ffn")
        if mixing is None or feeding is None:
            _fault_nas(config, number, "attention and ffn are needed")
        for inner in (mixing, feeding):
            if inner.flag("replace_with_linear") or inner.has("sparsify", "window_length", "num_sink_tokens"):
                _fault_nas(config, number, "linear replacements, sparsity and windows are not described")
        mixer: Attention | NoMixer = NoMixer(kind="none")
        if not mixing.flag("no_op"):
            group = mixing.count("n_heads_in_group")
            if config.heads % group:
                _fault_nas(config, number, f"{config.heads} heads are no multiple of {group}")
            mixer = attention(config, kv_heads=config.heads // group, qkv_bias=bias, out_bias=bias)
        ffn: FFN = NO_FFN
        if not feeding.flag("no_op"):
            # Two thirds of the multiple, rounded up to 256.
            width = int(2 * feeding.number("ffn_mult") * hidden / 3)
            ffn = gated(-(-width // 256) * 256, bias=config.flag("mlp_bias"))
        blocks.append(Block(mixer=mixer, ffn=ffn, norms=(mixer.kind != "none") + (ffn.kind != "none")))
    return Shape(blocks)


def _fault_nas(config: Config, layer: int, message: str) -> NoReturn:
    config.unsupported(f"block_configs.{layer}: {message}")
