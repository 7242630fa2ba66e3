"""A ``config.json`` of Hugging Face's kind as a model.

What is read is declarative: the family (``model_type``) says how its fields are to be understood, the fields give the
widths. Only families that are described are read; anything else is refused by name, never taken for Llama.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from rooflinellm.errors import InvalidSpec, UnreadableFile, met
from rooflinellm.importers import huggingface_compressed as compressed
from rooflinellm.importers import huggingface_dense as dense
from rooflinellm.importers import huggingface_gemma as gemma
from rooflinellm.importers import huggingface_hybrid as hybrid
from rooflinellm.importers import huggingface_latent as latent
from rooflinellm.importers import huggingface_mixtures as mixtures
from rooflinellm.importers import huggingface_nemotron as nemotron
from rooflinellm.importers.gguf_model import grouped, slug
from rooflinellm.importers.huggingface_config import Config, read_json
from rooflinellm.importers.huggingface_defaults import DEFAULTS, TIED
from rooflinellm.importers.huggingface_parts import Shape
from rooflinellm.importers.huggingface_quantization import native_format
from rooflinellm.specs.common import Source
from rooflinellm.specs.model import Attention, ModelEntry

CONFIG, QUANTISATION = "config.json", "hf_quant_config.json"
UNLIMITED = 1_048_576
"""Longest context where a family has no positions and names no length. [token]"""

_DEEPSEEK = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa", "mistral4")
FAMILIES: Mapping[str, Callable[[Config], Shape]] = {
    **dict.fromkeys(dense.DENSE, dense.dense),
    "minicpm": lambda config: (mixtures.minicpm_moe if config.has("num_experts") else dense.dense)(config),
    "qwen": dense.qwen,
    "stablelm": dense.stablelm,
    "gpt_neo": dense.gpt_neo,
    "opt": dense.opt,
    "bloom": dense.bloom,
    "mpt": dense.mpt,
    "falcon": dense.falcon,
    "chatglm": dense.chatglm,
    "glm": dense.glm,
    "glm4": dense.glm,
    "mixtral": mixtures.mixtral,
    "olmoe": mixtures.olmoe,
    "flex_olmo": mixtures.olmoe,
    "phimoe": mixtures.phimoe,
    "gpt_oss": mixtures.gpt_oss,
    "dbrx": mixtures.dbrx,
    "granitemoe": mixtures.granite_moe,
    "granitemoeshared": mixtures.granite_moe,
    "qwen2_moe": mixtures.qwen2_moe,
    "qwen3_moe": mixtures.qwen3_moe,
    "qwen3_vl_moe_text": mixtures.qwen3_moe,
    "qwen3_omni_moe_text": mixtures.qwen3_moe,
    "glm4_moe": mixtures.glm4_moe,
    "dots1": mixtures.glm4_moe,
    "solar_open": mixtures.solar_open,
    "hy_v3": mixtures.hy_v3,
    "exaone_moe": mixtures.exaone_moe,
    "minimax_m2": mixtures.minimax_m2,
    "minimax_m3": latent.minimax_m3,
    "minimax_m3_vl_text": latent.minimax_m3,
    "ernie4_5_moe": mixtures.ernie_moe,
    "hunyuan_v1_moe": mixtures.hunyuan_moe,
    "bailing_moe": mixtures.bailing_moe,
    "bailing_moe_v2": mixtures.bailing_moe,
    "afmoe": mixtures.afmoe,
    "laguna": mixtures.laguna,
    "step3p5": mixtures.step3,
    "step3p7": mixtures.step3,
    "mimo_v2_flash": mixtures.mimo_v2,
    "llama4_text": mixtures.llama4,
    **dict.fromkeys((*_DEEPSEEK, "youtu", "minicpm3"), latent.deepseek),
    "deepseek_v4": compressed.deepseek_v4,
    "deepseek_ref": compressed.deepseek_v4,
    "glm5_next_text": compressed.glm5_next,
    "qwen3_next": hybrid.qwen_next,
    "qwen3_5_text": hybrid.qwen_next,
    "qwen3_5_moe_text": hybrid.qwen_next,
    "olmo_hybrid": hybrid.olmo_hybrid,
    "kimi_linear": hybrid.kimi_linear,
    "bailing_hybrid": hybrid.kimi_linear,
    "minimax": hybrid.minimax,
    "minimax_m1": hybrid.minimax,
    "minimax_text_01": hybrid.minimax,
    "lfm2": hybrid.lfm2,
    "lfm2_moe": hybrid.lfm2,
    "mamba": hybrid.mamba,
    "falcon_mamba": hybrid.mamba,
    "mamba2": hybrid.mamba2,
    "mamba_ssm": hybrid.mamba_ssm,
    "jamba": hybrid.jamba,
    "granitemoehybrid": hybrid.granite_hybrid,
    "falcon_h1": hybrid.falcon_h1,
    "nemotron_h": nemotron.nemotron_h,
    "nemotron-nas": nemotron.nemotron_nas,
    "gemma3n_text": gemma.gemma3n,
    "gemma4_text": gemma.gemma4,
    "gemma4_unified_text": gemma.gemma4,
}
"""What makes layers of a configuration, by ``model_type``."""

REFUSED: Mapping[str, str] = {
    "zamba": "one block of weights serves several layers",
    "zamba2": "blocks of weights serve several layers, with an adapter for each",
    "rwkv": "RWKV's time mixing is not described",
    "rwkv5": "RWKV's time mixing is not described",
    "rwkv6": "RWKV's time mixing is not described",
    "rwkv7": "RWKV's time mixing is not described",
    "recurrent_gemma": "Griffin's recurrence (RG-LRU) is not described",
    "xlstm": "xLSTM's memory is not described",
    "mllama": "cross-attention to images is not described",
    "mllama_text_model": "cross-attention to images is not described",
    "longcat_flash": "layers of two attentions and experts that pass tokens on are not described",
    "kimi_k3": "residuals of whole layer blocks (attn_res_block_size) and gated latent attention are not described",
    "t5": "encoders with decoders are not described",
    "bart": "encoders with decoders are not described",
    "whisper": "encoders with decoders are not described",
    "bert": "encoders are not described",
    "roberta": "encoders are not described",
}
"""Why a known architecture is not read."""

_NESTED = ("text_config", "llm_config", "language_config", "text_model_config")
_WRAPPERS = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "llama4": "llama4_text"}
_WRAPPERS |= {"gemma4_unified": "gemma4_unified_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
_WRAPPERS |= {"minimax_m3_vl": "minimax_m3_vl_text", "glm5_next": "glm5_next_text"}
_WRAPPERS |= {"qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text", "mistral3": "mistral", "llava": "llama"}
_WRAPPERS |= {"qwen3_omni_moe": "qwen3_omni_moe_text", "qwen3_omni_moe_thinker": "qwen3_omni_moe_text"}
"""Kind of the nested configuration where it does not say."""

_FAMILY_NAMES = {"gpt_neox": "gpt-neox", "gptj": "gpt-j", "gpt_oss": "gpt-oss", "phi-msft": "phi"}


def read(path: Path) -> ModelEntry:
    """Read a configuration.

    Parameters
    ----------
    path : path
        A JSON file, or a folder with ``config.json``. ``hf_quant_config.json`` beside it is honoured.

    Returns
    -------
    ModelEntry
        With the notes that it was imported, and from what.

    Raises
    ------
    UnreadableFile, InvalidSpec
        No such file, no JSON, or a field that is missing or wrong.
    UnsupportedModel
        An architecture or a quantisation that is not described.
    """
    if os.path.isdir(path):
        if not os.path.isfile(path / CONFIG):
            raise UnreadableFile(f"the folder holds no {CONFIG}", where=str(path))
        path = path / CONFIG
    whole = Config(read_json(path), str(path))
    beside = _quantisation_beside(path)
    return entry_of(whole, named=name_of(whole, path), beside=beside)


def _quantisation_beside(path: Path) -> Config | None:
    """``hf_quant_config.json`` of a folder, or ``NAME.hf_quant_config.json`` beside ``NAME.json``."""
    name = QUANTISATION if path.name == CONFIG else f"{path.name.removesuffix('.json')}.{QUANTISATION}"
    file = path.with_name(name)
    return Config(read_json(file), str(file)) if os.path.isfile(file) else None


def name_of(config: Config, path: Path) -> str:
    """The repository's name if the file gives one, else that of the file or its folder."""
    given = config.values.get("_name_or_path")
    if isinstance(given, str) and re.fullmatch(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?", given) and given.strip("./"):
        return given
    cached = next((part for part in path.parts if part.startswith("models--")), None)
    if cached is not None:
        return cached.removeprefix("models--").replace("--", "/")
    return path.absolute().parent.name if path.name == CONFIG else path.name.removesuffix(".json")


def entry_of(whole: Config, *, named: str, beside: Config | None = None) -> ModelEntry:
    """Make an entry of a configuration; errors as in `read`."""
    config = _text_part(whole)
    try:
        shape = FAMILIES[config.kind](config)
        if not shape.blocks:
            config.fault("num_hidden_layers", "no layers")
        weights, notes = native_format(whole, beside)
        return _entry(whole, config, shape, named, weights, notes)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        shown = f" (found {met(first['input'])})" if isinstance(first.get("input"), str | int | float) else ""
        message = f"describes no possible {config.kind} model: {place}: {first['msg']}{shown}"
        raise InvalidSpec(message, where=whole.where) from error


def _text_part(whole: Config) -> Config:
    """The language model's own configuration, of a family that is described."""
    outer = _kind_of(whole)
    if outer in REFUSED:
        whole.unsupported(f"model_type '{outer}': {REFUSED[outer]}")
    thinker = whole.part("thinker_config")
    if thinker is not None:  # a model that speaks as well: the part that reads and writes text
        return _text_part(Config({"model_type": outer, **thinker.values}, whole.where, "thinker_config."))
    nested = next((name for name in _NESTED if isinstance(whole.values.get(name), dict)), None)
    values, prefix, kind = whole.values, "", outer
    if nested is not None and (outer not in FAMILIES or not whole.has("hidden_size", "num_hidden_layers")):
        values, prefix = whole.values[nested], f"{nested}."
        inner = values.get("model_type")
        kind = inner if isinstance(inner, str) else _WRAPPERS.get(outer, "")
        kind = _WRAPPERS.get(kind, kind)
        tied = whole.values.get("tie_word_embeddings")
        if tied is not None and values.get("tie_word_embeddings") is None:
            values = {**values, "tie_word_embeddings": tied}
    kind = _WRAPPERS.get(kind, kind) if nested is None else kind
    if kind in REFUSED:
        whole.unsupported(f"model_type '{kind}': {REFUSED[kind]}")
    if kind not in FAMILIES:
        if not kind:
            whole.unsupported("the file names no model_type; nothing tells how its fields are to be read")
        whole.unsupported(f"model_type '{kind:.60}' is not described")
    return Config({**values, "model_type": kind}, whole.where, prefix, DEFAULTS.get(kind))


def _kind_of(whole: Config) -> str:
    if isinstance(whole.values.get("ssm_cfg"), dict) and not whole.has("model_type"):
        return "mamba_ssm"
    return whole.text("model_type", default="")


def _entry(whole: Config, config: Config, shape: Shape, named: str, weights: str, notes: tuple[str, ...]) -> ModelEntry:
    tied_by_default = config.kind in TIED or config.kind == "mamba_ssm"
    said = [f"imported from {Path(whole.where).name} ({config.kind}); not checked against a published parameter count"]
    if config.prefix or whole.has("vision_config", "audio_config"):
        said.append("the text model alone; what vision and audio towers hold is not counted")
    context, remark = _context(whole, config)
    named = "".join(filter(str.isprintable, named))
    identifier = slug(named.rpartition("/")[2])
    return ModelEntry(
        id=identifier,
        name=named.rpartition("/")[2] or identifier,
        aliases=(named,) if "/" in named else (),
        family=_FAMILY_NAMES.get(config.kind, slug(config.kind.removesuffix("_text"))),
        hidden=config.hidden,
        vocabulary=_vocabulary(config),
        tied_embeddings=config.flag("tie_word_embeddings", "tie_embeddings", "tie_embedding", default=tied_by_default),
        head_bias=shape.head_bias,
        final_norm=shape.final_norm,
        final_norm_bias=shape.final_norm_bias,
        rope_factors=_rope_factors(config, shape),
        max_context_tokens=context,
        native_format=weights,
        layers=grouped(shape.blocks),
        extra=shape.extra,
        mtp=shape.mtp,
        sources={"config": Source(title=f"{named} {CONFIG}", note="read by the importer")},
        notes=(*said, *remark, *notes),
    )


def _vocabulary(config: Config) -> int:
    """Rows of the embedding; the authors of Mamba pad what their file names."""
    rows = config.vocabulary
    if config.kind != "mamba_ssm":
        return rows
    multiple = config.count("pad_vocab_size_multiple", default=8)
    return -(-rows // multiple) * multiple


def _context(whole: Config, config: Config) -> tuple[int, tuple[str, ...]]:
    """Longest context: positions of the file, stretched where the file says by how much."""
    names = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "model_max_length", "n_ctx")
    positions = config.count_or_none(*names, "max_seq_len")
    if positions is None and config is not whole:
        positions = whole.count_or_none(*names)
    if positions is None:
        return UNLIMITED, (f"the file names no longest context; {UNLIMITED:,} tokens are taken",)
    scaling = _scaling(config)
    if scaling is None or scaling.values.get("factor") is None:
        return positions, ()
    factor = scaling.number("factor")
    original = scaling.count_or_none("original_max_position_embeddings")
    kind = scaling.text("rope_type", "type", default="")
    if original is not None:
        return min(max(positions, int(original * factor)), 10**9), ()
    if kind in ("linear", "dynamic", "yarn") and not config.kind.startswith("gemma"):
        return min(int(positions * factor), 10**9) or 1, ()
    return positions, ()


def _scaling(config: Config) -> Config | None:
    """How rotary positions are stretched: ``rope_scaling``, or ``rope_parameters`` of newer files."""
    for name in ("rope_scaling", "rope_parameters"):
        part = config.part(name)
        if part is not None and part.values:
            return part
    return None


def _rope_factors(config: Config, shape: Shape) -> int | None:
    """Frequency factors that a GGUF file of the model stores: Llama 3.1's scaling has one for each pair of a head."""
    scaling = _scaling(config)
    if scaling is None or scaling.text("rope_type", "type", default="") != "llama3":
        return None
    heads = (mixer for block in shape.blocks for mixer in block.mixers if isinstance(mixer, Attention))
    first = next(heads, None)
    return None if first is None or first.head_dim < 2 else first.head_dim // 2
