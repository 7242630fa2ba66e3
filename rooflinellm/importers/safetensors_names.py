"""Names that Hugging Face's checkpoints give tensors, and the classes they belong to.

A name is a path: what stands around the model, ``layers`` and a number, a module, and a leaf (``weight``, ``bias``, or
a part of a quantised weight). Modules are named alike in most families; the few that call two things by one name are
told apart by the layer that they are in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["weight", "bias", "companion"]

_WRAPPERS = frozenset(
    {
        "",
        *("model", "transformer", "language_model", "text_model", "gpt_neox", "backbone", "decoder", "llm"),
        *("model.language_model", "language_model.model", "model.text_model", "model.model", "model.decoder"),
        *("transformer.encoder", "language_model.backbone", "thinker.model", "model.llm"),
    }
)
_LAYERS = frozenset({"layers", "h", "blocks"})
_BESIDE = re.compile(
    r"(?:model\.|language_model\.|thinker\.)*(?:"
    r"vision_tower|vision_model|visual|vision_encoder|vision_language_adapter|vision_embed_tokens|vision_projection"
    r"|multi_modal_projector|mm_projector|audio_tower|audio_model|audio_projection_layer|embed_vision|embed_audio"
    r"|image_newline|patch_merger|pre_mm_projector_norm|mlp1|connector|vit|aligner|projector|talker|token2wav|code2wav"
    r")(?:\.|$)"
)
_PREDICTION = re.compile(r"(?:model\.|language_model\.)*(?:mtp|mtp_layers|mtp_block|nextn|draft_model)(?:\.|$)")
_BUFFERS = re.compile(
    r"(?:.*\.)?(?:act_fn\.(?:beta|eps)|rotary_emb\.inv_freq|rotary_pos_emb\.inv_freq|masked_bias|attn\.bias\.mask|rotary_emb\.(?:cos|sin)_cached)"
)
_CAUSAL_MASK = re.compile(r"(?:.*\.)?(?:attn|attention|self_attn)\.(?:attention\.)?bias")

_NORMS = (
    *(
        "input_layernorm",
        "ln_1",
        "attention_norm",
        "operator_norm",
        "norm_1",
        "ln_attn",
        "self_attn_layer_norm",
        "norm",
    ),
    *("norm_attn_norm.norm_1", "pre_attention_layernorm", "pre_self_attn_layernorm"),
    *("attention_layernorm", "feedforward_layernorm"),
    *(
        "post_attention_layernorm",
        "ln_2",
        "ffn_norm",
        "norm_2",
        "ln_mlp",
        "pre_feedforward_layernorm",
        "pre_ff_layernorm",
    ),
    *("norm_attn_norm.norm_2", "pre_mlp_layernorm", "final_layer_norm"),
    *("post_self_attn_layernorm", "post_feedforward_layernorm", "post_mlp_layernorm"),
    *("pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"),
    *("post_per_layer_input_norm", "laurel.post_laurel_norm", "altup.router_norm"),
)
"""Modules that are norms of the hidden size."""

_ATTENTION = {
    **dict.fromkeys(("q_proj", "wq", "query"), "attn_q"),
    **dict.fromkeys(("k_proj", "wk", "key"), "attn_k"),
    **dict.fromkeys(("v_proj", "wv", "value"), "attn_v"),
    **dict.fromkeys(("o_proj", "out_proj", "wo", "dense", "c_proj"), "attn_output"),
    **dict.fromkeys(("qkv_proj", "query_key_value", "qkv", "c_attn", "Wqkv", "W_pack", "wqkv"), "attn_qkv"),
    **dict.fromkeys(("q_norm", "q_layernorm", "query_layernorm", "q_ln"), "attn_q_norm"),
    **dict.fromkeys(("k_norm", "k_layernorm", "key_layernorm", "k_ln"), "attn_k_norm"),
    "sinks": "attn_sinks",
    "q_a_proj": "attn_q_a",
    "q_a_layernorm": "attn_q_a_norm",
    "q_b_proj": "attn_q_b",
    "kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "kv_a_layernorm": "attn_kv_a_norm",
    "kv_b_proj": "attn_kv_b",
    "indexer.wq_b": "indexer.attn_q_b",
    "indexer.wk": "indexer.attn_k",
    "indexer.weights_proj": "indexer.proj",
    "indexer.k_norm": "indexer.k_norm",
    "indexer.q_proj": "indexer.attn_q",
    "indexer.k_proj": "indexer.attn_k",
    "indexer.q_norm": "indexer.q_norm",
    "g_proj": "attn_gate",
    "output_gate": "attn_gate",
    "norm": "attn_norm_inner",
    "attn_sub_norm": "attn_sub_norm",
    "q_conv1d": "ssm_conv1d_q",
    "k_conv1d": "ssm_conv1d_k",
    "v_conv1d": "ssm_conv1d_v",
    "f_a_proj": "ssm_f_a",
    "f_b_proj": "ssm_f_b",
    "g_a_proj": "ssm_g_a",
    "g_b_proj": "ssm_g_b",
    "b_proj": "ssm_beta",
    "A_log": "ssm_a",
    "dt_bias": "ssm_dt",
    "o_norm": "ssm_norm",
}
_RECURRENT = {
    "in_proj": "ssm_in",
    **dict.fromkeys(("in_proj_qkvz", "in_proj_qkv", "in_proj_z", "q_proj", "k_proj", "v_proj", "g_proj"), "ssm_in"),
    **dict.fromkeys(("in_proj_ba", "in_proj_b", "in_proj_a", "a_proj", "b_proj"), "ssm_ba"),
    **dict.fromkeys(("conv1d", "q_conv1d", "k_conv1d", "v_conv1d"), "ssm_conv1d"),
    "o_norm": "ssm_norm",
    "o_proj": "ssm_out",
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
    "dt_bias": "ssm_dt",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "norm": "ssm_norm",
    "dt_layernorm": "ssm_dt_norm",
    "b_layernorm": "ssm_b_norm",
    "c_layernorm": "ssm_c_norm",
    "out_proj": "ssm_out",
}
_FEED_FORWARD = {
    **dict.fromkeys(("gate_proj", "w1", "c_fc_0"), "ffn_gate"),
    **dict.fromkeys(("up_proj", "w3", "c_fc_1", "fc1", "c_fc", "fc_in", "dense_h_to_4h"), "ffn_up"),
    **dict.fromkeys(("down_proj", "w2", "c_proj", "fc2", "fc_out", "dense_4h_to_h"), "ffn_down"),
    **dict.fromkeys(("gate_up_proj", "gate_and_up_proj"), "ffn_gate_up"),
    "ffn_sub_norm": "ffn_sub_norm",
    "act_fn.alpha_p": "ffn_act",
    "act_fn.alpha_n": "ffn_act",
}
_MIXTURE = {
    **dict.fromkeys(("gate", "router", "gate.wg", "router.layer", "router.proj"), "ffn_gate_inp"),
    **dict.fromkeys(
        ("gate.e_score_correction_bias", "e_score_correction_bias", "gate.expert_bias", "expert_bias"),
        "ffn_gate_inp.bias",
    ),
    "moe_statics.e_score_correction_bias": "ffn_gate_inp.bias",
    "gate.moe_statics.e_score_correction_bias": "ffn_gate_inp.bias",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "shared_expert_gate": "ffn_gate_inp_shexp",
    "input_linear": "ffn_gate_up_exps",
    "output_linear": "ffn_down_exps",
    "fc1_latent_proj": "ffn_latent_down",
    "fc2_latent_proj": "ffn_latent_up",
    "experts.mlp.w1": "ffn_gate_exps",
    "experts.mlp.v1": "ffn_up_exps",
    "experts.mlp.w2": "ffn_down_exps",
}
_ONES = {
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "layer_scalar": "layer_output_scale",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "altup.correct_output_scale": "altup_correct_scale",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "fc1": "ffn_up",
    "fc2": "ffn_down",
    "shared_mlp.input_linear": "ffn_gate_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}


def _modules() -> dict[str, str]:
    """Every module of a layer and its class."""
    found = dict(_ONES)
    for place in ("self_attn", "attn", "attention", "self_attention", "attn.attention", "norm_attn_norm.attn", "mixer"):
        found |= {f"{place}.{name}": kind for name, kind in _ATTENTION.items()}
    for place in ("mamba", "mixer", "linear_attn"):
        own = place != "linear_attn"  # Nemotron-H calls every part of a layer its mixer, attention too
        found |= {
            f"{place}.{name}": kind
            for name, kind in _RECURRENT.items()
            if not (own and _ATTENTION.get(name, "").startswith("attn_") and name not in ("norm", "out_proj"))
        }
    for place in ("mlp", "feed_forward", "ffn", "block_sparse_moe", "mixer"):
        plain = {f"{place}.{name}": kind for name, kind in _FEED_FORWARD.items() if f"{place}.{name}" not in found}
        found |= plain
        found |= {f"{place}.{name}": kind for name, kind in _MIXTURE.items()}
        for part in ("experts", "experts.#", "switch_mlp"):
            found |= {f"{place}.{part}.{name}": f"{kind}_exps" for name, kind in _FEED_FORWARD.items()}
        for part in ("shared_expert", "shared_experts", "shared_mlp"):
            found |= {f"{place}.{part}.{name}": f"{kind}_shexp" for name, kind in _FEED_FORWARD.items()}
    found |= {f"experts.{name}": f"{kind}_exps" for name, kind in _FEED_FORWARD.items()}
    found |= {name: kind for name, kind in _MIXTURE.items() if name.startswith("router")}
    return found


_MODULES: Mapping[str, str] = _modules()
_OUTSIDE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("embed_tokens", "wte", "word_embeddings", "embeddings", "embed_in", "tok_embeddings"),
            *("embedding.word_embeddings", "embedding"),
        ),
        "token_embd",
    ),
    **dict.fromkeys(("wpe", "embed_positions"), "position_embd"),
    "word_embeddings_layernorm": "token_embd_norm",
    **dict.fromkeys(("lm_head", "embed_out", "output", "output_layer"), "output"),
    **dict.fromkeys(
        (
            *("norm", "final_layernorm", "ln_f", "norm_f", "final_layer_norm", "embedding_norm"),
            *("encoder.final_layernorm", "decoder.final_layer_norm"),
        ),
        "output_norm",
    ),
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "altup_projections.#": "altup_proj",
    "altup_unembed_projections.#": "altup_unembd_proj",
}

WEIGHTS = frozenset({"weight", "qweight", "weight_packed", "blocks", "trellis"})
"""Leaves that hold the elements, packed or not."""

_COMPANIONS = frozenset(
    {
        *("scales", "qzeros", "g_idx", "biases", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_shape"),
        *(
            "weight_zero_point",
            "weight_g_idx",
            "weight_global_scale",
            "input_global_scale",
            "input_scale",
            "output_scale",
        ),
        *("activation_scale", "k_scale", "v_scale", "kv_scale", "q_scale", "prob_output_scale", "SCB", "weight_format"),
        *("absmax", "quant_map", "nested_absmax", "nested_quant_map", "scale", "zero_point"),
        *("suh", "svh", "su", "sv", "mcg", "mul1"),
    }
)
_SUFFIX = re.compile(
    r"(?P<module>.*_proj)_(?P<leaf>blocks|scales|bias|scale|scale_inv|weight_scale|weight_scale_2|input_scale)"
)
_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.|$)")


@dataclass(frozen=True)
class Place:
    """Where a tensor belongs.

    Attributes
    ----------
    kind : str
        In a layer, outside the layers, beside the text model (``idle``), a buffer that engines rebuild (``skip``), or
        nothing that is known.
    layer : int
        Which of the numbers in the name counts the layers.
    name : str
        Class; empty where the layer has no such module.
    leaf : str
        Last part of the name.
    role : str
        Elements of the class, its bias, or what belongs to it and has no elements.
    norm : int
        Position among the norms; −1 where it is none.
    """

    kind: Literal["layer", "outside", "idle", "skip", "unknown"]
    layer: int = 0
    name: str = ""
    leaf: str = ""
    role: Role = "weight"
    norm: int = -1


def pattern_of(name: str) -> tuple[str, list[str]]:
    """A name with ``#`` for the numbers in it, and the numbers."""
    numbers: list[str] = []

    def note(match: re.Match[str]) -> str:
        numbers.append(match[0])
        return "#"

    return _NUMBER.sub(note, name), numbers


def place_of(pattern: str) -> Place:
    """Where tensors of a pattern belong.

    Parameters
    ----------
    pattern : str
        A name with ``#`` for the numbers, as `pattern_of` makes it.

    Returns
    -------
    Place
    """
    if _BESIDE.match(pattern) or _PREDICTION.match(pattern):
        return Place("idle")
    if _BUFFERS.fullmatch(pattern):
        return Place("skip")
    module, leaf, role = _leaf(pattern)
    parts = module.split(".")
    start = next((i for i in range(len(parts) - 1) if parts[i] in _LAYERS and parts[i + 1] == "#"), None)
    if start is None:
        return _outside(module, leaf, role)
    if ".".join(parts[:start]) not in _WRAPPERS:
        return Place("unknown")
    layer, inner = parts[: start + 1].count("#"), ".".join(parts[start + 2 :])
    if inner in _NORMS and role != "companion":
        return Place("layer", layer, "norm", leaf, role, _NORMS.index(inner))
    kind = _MODULES.get(inner)
    if kind is None:
        return Place("layer", layer, "", leaf, role)
    if role == "bias":
        kind = "ssm_dt" if kind == "ssm_dt" and not inner.endswith("dt_proj") else f"{kind}.bias"
    return Place("layer", layer, kind, leaf, role)


def _outside(module: str, leaf: str, role: Role) -> Place:
    for wrapper in sorted(_WRAPPERS, key=len, reverse=True):
        if not wrapper or module.startswith(f"{wrapper}."):
            name = _OUTSIDE.get(module.removeprefix(f"{wrapper}.") if wrapper else module)
            if name is not None:
                return Place("outside", 0, f"{name}.bias" if role == "bias" else name, leaf, role)
    return Place("unknown")


def _leaf(pattern: str) -> tuple[str, str, Role]:
    """Module, leaf, and what the leaf is to the module; a parameter that stands for itself is its own weight."""
    head, weight, tail = pattern.rpartition(".weight.")
    if weight and tail.partition(".")[0] in ("absmax", "quant_map", "nested_absmax", "nested_quant_map", "quant_state"):
        return head, tail, "companion"
    module, _, leaf = pattern.rpartition(".")
    if leaf in WEIGHTS:
        return module, leaf, "weight"
    if leaf == "bias":
        return module, leaf, "bias"
    if pattern.endswith(".router.scale"):
        return pattern, "weight", "weight"
    if leaf in _COMPANIONS:
        return module, leaf, "companion"
    suffix = _SUFFIX.fullmatch(pattern)
    if suffix is not None:
        role: Role = "bias" if suffix["leaf"] == "bias" else "weight" if suffix["leaf"] == "blocks" else "companion"
        return suffix["module"], suffix["leaf"], role
    return pattern, "weight", "weight"


def causal_mask(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is the mask that GPT-2 and its kin keep among their weights."""
    return len(shape) == 4 and shape[:2] == (1, 1) and _CAUSAL_MASK.fullmatch(name) is not None
