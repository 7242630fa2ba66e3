"""What many families share: attention, feed-forward parts, mixtures, windows, and the shape of a whole model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rooflinellm.importers.huggingface_config import Config
from rooflinellm.specs.model import (
    Attention,
    Block,
    ExtraTensor,
    GatedFFN,
    Indexer,
    LatentAttention,
    MixtureOfExperts,
    MtpModule,
    PlainFFN,
)

Extra = tuple[ExtraTensor, ...]

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")


@dataclass(frozen=True)
class Shape:
    """What a family makes of a configuration.

    Attributes
    ----------
    blocks : sequence of Block
        Every layer.
    extra : tuple of ExtraTensor
        Tensors outside the layers.
    mtp : MtpModule, optional
        Multi-token-prediction module.
    head_bias, final_norm, final_norm_bias : bool
        What stands behind the layers.
    """

    blocks: Sequence[Block]
    extra: Extra = ()
    mtp: MtpModule | None = None
    head_bias: bool = False
    final_norm: bool = True
    final_norm_bias: bool = False


def extra(name: str, rows: int, columns: int, use: Literal["matrix", "lookup", "vector"] = "matrix") -> ExtraTensor:
    """A tensor that no layer kind describes."""
    return ExtraTensor(name=name, rows=rows, columns=columns, use=use)


def vector(name: str, length: int) -> ExtraTensor:
    """A vector that no layer kind describes."""
    return ExtraTensor(name=name, rows=1, columns=length, use="vector")


def attention(config: Config, **given: Any) -> Attention:
    """Softmax attention with the heads of the file; what is given wins."""
    shape: dict[str, Any] = {"heads": config.heads, "kv_heads": config.kv_heads, "head_dim": config.head_dim}
    return Attention(kind="attention", **(shape | given))


def gated(intermediate: int, *, bias: bool = False, fused: bool = False) -> GatedFFN:
    """Feed-forward part with a gate."""
    return GatedFFN(kind="gated", intermediate=intermediate, bias=bias, fused=fused)


def plain(intermediate: int, *, bias: bool = False) -> PlainFFN:
    """Feed-forward part without a gate."""
    return PlainFFN(kind="plain", intermediate=intermediate, bias=bias)


def mixture(config: Config, **given: Any) -> MixtureOfExperts:
    """Router and experts, with as many as the file says; what is given wins.

    Shared experts: ``shared_expert_intermediate_size``, or a number of them, each as wide as a routed one.
    """
    width = given.pop("intermediate", None) or config.count("moe_intermediate_size", "expert_ffn_hidden_size")
    shared = config.count_or_none("shared_expert_intermediate_size", least=0)
    if shared is None:
        names = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
        shared = width * config.count(*names, default=0, least=0)
    shape: dict[str, Any] = {
        "experts": config.count(*EXPERTS),
        "active": config.count(*ACTIVE),
        "intermediate": width,
        "shared_intermediate": shared or None,
    }
    if shape["active"] > shape["experts"]:
        config.fault(ACTIVE[0], f"{shape['active']} experts a token of {shape['experts']}")
    return MixtureOfExperts(kind="moe", **(shape | given))


def latent(config: Config, **given: Any) -> LatentAttention:
    """Multi-head latent attention."""
    shape: dict[str, Any] = {
        "heads": config.heads,
        "q_rank": config.count_or_none("q_lora_rank"),
        "kv_rank": config.count("kv_lora_rank"),
        "nope_dim": config.count("qk_nope_head_dim"),
        "rope_dim": config.count("qk_rope_head_dim", least=0),
        "v_head_dim": config.count("v_head_dim"),
    }
    return LatentAttention(kind="latent", **(shape | given))


def indexer(config: Config, **given: Any) -> Indexer:
    """Indexer of sparse attention."""
    shape = {
        "heads": config.count("index_n_heads"),
        "head_dim": config.count("index_head_dim"),
        "top_k": config.count("index_topk"),
    }
    return Indexer(**(shape | given))


def indexers(config: Config, layers: int) -> list[Indexer]:
    """Indexer of each layer: its own, or the choice of an earlier one."""
    own = indexer(config)
    kinds = config.layer_types(layers, "indexer_types")
    if kinds is None:
        # Of so many layers one chooses; the first ones always do.
        every = config.count("index_topk_freq", default=1)
        first = config.count("index_skip_topk_offset", default=2, least=0)
        kinds = ["shared" if max(layer - first + 1, 0) % every else "full" for layer in range(layers)]
    if not set(kinds) <= {"full", "shared"}:
        config.unsupported("indexers of other types than 'full' and 'shared' are not described")
    shared = own.model_copy(update={"shared": True})
    return [own if kind == "full" else shared for kind in kinds]


WindowRule = Literal["never", "every", "upper", "listed"] | int
"""Which layers have a window where the file has no list: none; all, if it names a size; all from ``max_window_layers``
on, if ``use_sliding_window``; it must have one; or of so many layers all but the last."""


def windows(config: Config, layers: int, rule: WindowRule) -> list[int | None]:
    """Window of each layer, None where it attends to everything."""
    kinds = config.layer_types(layers)
    if kinds is not None and rule != "never":
        known = {"full_attention", "sliding_attention", "attention", "global", "local"}
        strange = set(kinds) - known
        if strange:
            config.unsupported(f"layers of the kind '{min(strange)}' are not described for {config.kind}")
        local = [kind in ("sliding_attention", "local") for kind in kinds]
        if any(local) and config.window is None:
            config.fault("sliding_window", "missing, and layer_types has sliding layers")
        return [config.window if is_local else None for is_local in local]
    size = None if rule == "never" else config.window
    if size is None:
        return [None] * layers
    if rule == "listed":
        config.fault("layer_types", "missing; it tells which layers have a window")
    if rule == "upper":
        first = config.count("max_window_layers", default=layers, least=0)
        return [size if config.flag("use_sliding_window") and layer >= first else None for layer in range(layers)]
    if rule == "every":
        return [size if config.flag("use_sliding_window", default=True) else None] * layers
    pattern = config.values.get("sliding_window_pattern", config.values.get("_sliding_window_pattern"))
    if isinstance(pattern, str) and 0 < len(pattern) <= layers and set(pattern) <= {"L", "G"}:
        return [size if pattern[layer % len(pattern)] == "L" else None for layer in range(layers)]
    period = config.count("sliding_window_pattern", "_sliding_window_pattern", default=rule)
    return [size if (layer + 1) % period else None for layer in range(layers)]


def sparse_layers(config: Config, layers: int) -> list[bool]:
    """Which layers have experts.

    ``mlp_layer_types`` lists it; else all from ``first_k_dense_replace`` on, of these those that ``moe_layer_freq``
    picks.
    """
    kinds = config.layer_types(layers, "mlp_layer_types")
    if kinds is not None:
        strange = set(kinds) - {"dense", "sparse"}
        if strange:
            config.unsupported(f"feed-forward parts of the kind '{min(strange)}' are not described for {config.kind}")
        return [kind == "sparse" for kind in kinds]
    if isinstance(config.values.get("moe_layer_freq"), list):
        return [bool(flag) for flag in config.by_layer("moe_layer_freq", layers)]
    first = config.count("first_k_dense_replace", "num_dense_layers", default=0, least=0)
    every = config.count("moe_layer_freq", default=1)
    return [layer >= first and layer % every == 0 for layer in range(layers)]


def next_token(config: Config, block: Block, hidden: int, *names: str) -> MtpModule | None:
    """A multi-token-prediction module of the common kind, as DeepSeek-V3 has it.

    Each of its layers norms the hidden state and the next token's embedding, projects both into one, and ends in a
    norm; embedding and head are the model's.
    """
    count = config.count(*(names or ("num_nextn_predict_layers",)), default=0, least=0)
    if not count:
        return None
    behind = (
        vector("nextn.enorm", hidden),
        vector("nextn.hnorm", hidden),
        extra("nextn.eh_proj", hidden, 2 * hidden),
        vector("nextn.shared_head_norm", hidden),
    )
    if count > 64:
        config.fault(names[0] if names else "num_nextn_predict_layers", f"{count:,} prediction layers")
    return MtpModule(pattern=(block.model_copy(update={"extra": (*block.extra, *behind)}),) * count)
