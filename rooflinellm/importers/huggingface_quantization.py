"""Which weight format a checkpoint is in: its ``quantization_config``, ``hf_quant_config.json`` or its dtype."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from rooflinellm.importers.huggingface_config import Config

DTYPES = {
    "bfloat16": "hf:bf16",
    "bf16": "hf:bf16",
    "float16": "hf:fp16",
    "fp16": "hf:fp16",
    "half": "hf:fp16",
    "float32": "hf:fp32",
    "fp32": "hf:fp32",
    "float": "hf:fp32",
    "float8_e4m3fn": "hf:fp8",
}
UNNAMED = "hf:bf16"
"""Taken where a file names no dtype."""

ALGORITHMS = {
    "FP8": "hf:fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "hf:fp8-channel",
    "FP8_PB_WO": "hf:fp8-block",
    "NVFP4": "hf:nvfp4",
    "NVFP4_AWQ": "hf:nvfp4",
    "W4A16_NVFP4": "hf:nvfp4",
    "W4A16_AWQ": "hf:awq",
    "INT4_AWQ": "hf:awq",
    "INT8_SQ": "hf:int8",
    "W8A8_SQ_PER_CHANNEL": "hf:int8",
    "MXFP4": "hf:mxfp4",
}
"""``quant_algo`` of NVIDIA's ModelOpt."""

EXPERTS_ONLY = {"hf:nvfp4": "hf:nvfp4-experts", "hf:w4a16-g32": "hf:w4a16-g32-experts"}
"""Formats whose checkpoints may leave everything but the routed experts in 16 bits."""

_PARTS = {
    "attention": ("self_attn", ".attn.", "attention", "linear_attn", "q_proj", "kv_a_proj"),
    "shared experts": ("shared_expert",),
    "dense feed-forward parts": ("mlp.(gate|up|gate_up|down)_proj", ".mlp*", "mlp.gate_up_proj"),
}
"""How the patterns of excluded modules call the parts that are worth a word; embedding and head always stay out."""

_VECTORS = ("norm", "bias", "conv1d", "vision", "visual", "audio")


def native_format(config: Config, beside: Config | None = None) -> tuple[str, tuple[str, ...]]:
    """Settle the format of a checkpoint.

    Parameters
    ----------
    config : Config
        The whole configuration.
    beside : Config, optional
        ``hf_quant_config.json`` beside it, which counts where it says more.

    Returns
    -------
    tuple
        Id of the format, and notes on what stands outside it.

    Raises
    ------
    UnsupportedModel
        A quantisation that no format describes.
    """
    inner = config.part("text_config") or config.part("llm_config") or config.part("language_config")
    found = next(
        (part for part in (config.part("quantization_config"), _quantisation(inner)) if part is not None), None
    )
    if beside is not None:
        named = beside.part("quantization") or beside
        if named.has("quant_algo"):
            found = named
    if found is None:
        return _of_dtype(config, inner)
    name, excluded = _of_quantisation(found), _excluded(found)
    if name == "hf:fp8-block" and config.values.get("expert_dtype") == "fp4":
        name = "hf:mxfp4-fp8"
    if {"attention", "shared experts"} <= set(excluded):
        name = EXPERTS_ONLY.get(name, name)
    if not excluded or name in ("hf:mxfp4", *EXPERTS_ONLY.values()):
        return name, ()
    return name, (
        f"the checkpoint leaves {', '.join(excluded)} in 16 bits, in all layers or in some; {name} counts them as its"
        " rules say",
    )


def _quantisation(config: Config | None) -> Config | None:
    return None if config is None else config.part("quantization_config")


def _of_dtype(config: Config, inner: Config | None) -> tuple[str, tuple[str, ...]]:
    for part in (config, inner):
        if part is not None and part.has("dtype", "torch_dtype"):
            name = part.text("dtype", "torch_dtype").removeprefix("torch.")
            if name not in DTYPES:
                part.unsupported(f"weights in '{name:.40}' are not described; known: {', '.join(DTYPES)}")
            return DTYPES[name], ()
    return UNNAMED, ("the configuration names no dtype; BF16 is taken",)


def _of_quantisation(part: Config) -> str:
    if part.has("quant_algo"):
        return _of_modelopt(part)
    method = part.text("quant_method", default="").lower()
    match method:
        case "fp8" if part.values.get("weight_block_size") is None:
            return "hf:fp8"
        case "fp8":
            if part.numbers("weight_block_size") != [128, 128]:
                _refuse(part, "FP8 in blocks of another size than 128 x 128")
            return "hf:fp8-block"
        case "fbgemm_fp8":
            return "hf:fp8-channel"
        case "mxfp4":
            return "hf:mxfp4"
        case "awq":
            return _grouped(
                part, {(4, 128): "hf:awq"}, part.count("bits", "w_bit", default=4), "group_size", "q_group_size"
            )
        case "gptq":
            known = {(4, 128): "hf:gptq", (4, 32): "hf:gptq-g32", (8, 128): "hf:gptq-int8"}
            return _grouped(part, known, part.count("bits"), "group_size")
        case "bitsandbytes":
            return _of_bitsandbytes(part)
        case "compressed-tensors" | "modelopt" | "":
            return _of_compressed_tensors(part)
        case _:
            _refuse(part, f"quantisation by '{method:.40}'")


def _refuse(part: Config, what: str) -> NoReturn:
    part.unsupported(
        f"{what} is not described; take quantization_config out of the file to import the shape alone, and name the"
        " weights when you ask"
    )


def _grouped(part: Config, known: dict[tuple[int, int], str], bits: int, *names: str) -> str:
    size = next((part.values[name] for name in names if type(part.values.get(name)) is int), 128)
    if (bits, size) not in known:
        _refuse(part, f"{bits} bits in groups of {size}")
    return known[bits, size]


def _of_bitsandbytes(part: Config) -> str:
    if part.flag("load_in_8bit", "_load_in_8bit"):
        return "hf:bnb-int8"
    if not part.flag("load_in_4bit", "_load_in_4bit", default=True):
        _refuse(part, "bitsandbytes in neither 4 nor 8 bits")
    return "hf:bnb-nf4-dq" if part.flag("bnb_4bit_use_double_quant") else "hf:bnb-nf4"


def _of_modelopt(part: Config) -> str:
    """ModelOpt; of mixed precision, the algorithm of the parts that hold the most: experts, then feed-forward parts."""
    algorithm = part.text("quant_algo")
    if algorithm == "MIXED_PRECISION":
        layers = part.part("quantized_layers")
        if layers is None:
            _refuse(part, "mixed precision without a list of layers (quantized_layers)")
        counted = Counter[str]()
        for name, value in layers.values.items():
            inner = value.get("quant_algo") if isinstance(value, dict) else None
            counted[inner if isinstance(inner, str) else ""] += 100 if "expert" in name else 10 if "mlp" in name else 1
        algorithm = counted.most_common(1)[0][0] if counted else ""
    if algorithm not in ALGORITHMS:
        _refuse(part, f"quantisation by ModelOpt's '{algorithm:.40}'")
    return ALGORITHMS[algorithm]


def _of_compressed_tensors(part: Config) -> str:
    groups = part.part("config_groups")
    names = list(groups.values) if groups is not None else []
    if groups is None or not names:
        _refuse(part, "a quantization_config without quant_method and config_groups")
    found = set()
    for name in names:
        group = groups.part(name)
        weights = None if group is None else group.part("weights")
        if weights is not None:
            found.add(_of_weights(weights))
    if len(found) != 1:
        _refuse(part, f"quantisation in {len(found)} formats at once ({', '.join(sorted(found))})")
    return found.pop()


def _of_weights(weights: Config) -> str:
    """Format of one group of compressed-tensors: type, bits, strategy and group size."""
    bits, kind = weights.count("num_bits"), weights.text("type", default="int")
    group = weights.count_or_none("group_size", least=-1)
    group = None if group in (None, -1, 0) else group
    strategy = weights.text("strategy", default="channel" if group is None else "group")
    match kind, bits, strategy, group:
        case "float", 8, "block", _:
            return "hf:fp8-block"
        case "float", 8, "tensor", _:
            return "hf:fp8"
        case "float", 8, "channel", _:
            return "hf:fp8-channel"
        case "float", 4, _, 16:
            return "hf:nvfp4"
        case "float", 4, _, 32:
            return "hf:mxfp4"
        case "int", 8, "channel" | "tensor", _:
            return "hf:int8"
        case "int", 4, _, 128:
            return "hf:w4a16"
        case "int", 4, _, 32:
            return "hf:w4a16-g32"
        case _:
            _refuse(weights, f"{kind:.20} weights of {bits} bits by {strategy:.20}, groups of {group}")


def _excluded(part: Config) -> list[str]:
    """Parts of a model that are left out of the quantisation, of those that matter for the bytes."""
    names = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "llm_int8_skip_modules")
    patterns = [value for name in names for value in part.items(name) or () if isinstance(value, str)]
    patterns = [pattern for pattern in patterns if not any(word in pattern for word in _VECTORS)]
    return [label for label, words in _PARTS.items() if any(word in each for each in patterns for word in words)]
