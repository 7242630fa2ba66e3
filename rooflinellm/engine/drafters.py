"""What drafts tokens: another model, the model's own module, a layer over its features, or nothing that costs."""

from __future__ import annotations

from collections.abc import Callable

from rooflinellm import catalog
from rooflinellm.engine.plan import Drafter, Plan
from rooflinellm.errors import UnsupportedModel
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.model import (
    Attention,
    Block,
    ExtraTensor,
    GatedFFN,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
)

Compile = Callable[[ModelSpec, FormatSpec], Plan]
"""Compiles a model in a format for the device and the engine that the first model has."""

FREE = ("ngram", "lookup", "prompt-lookup")
"""Drafts that are looked up in the text so far."""
HEADS = ("eagle", "eagle3")
EAGLE3_VOCABULARY = 32_000
"""Tokens that EAGLE-3 heads choose from. [token]"""
FEATURES = {"eagle": 2, "eagle3": 3}
"""Vectors of the hidden size that a head fuses: feature and embedding, or features of three layers. [-]"""
SIXTEEN_BIT = {"gguf": "f16", "mlx": "bf16", "hf": "bf16", "exl": "bf16"}
"""Format of heads, by the family of the model's."""


def free_drafter() -> Drafter:
    """Drafts looked up in the text so far: no weights, no time."""
    return Drafter("n-gram look-up", None, 0, separate=False)


def model_drafter(model: ModelSpec, fmt: FormatSpec, compile_for: Compile) -> Drafter:
    """Another model."""
    plan = compile_for(model, fmt)
    return Drafter(f"{model.id} {fmt.id}", plan, plan.resident_weight_bytes, separate=True)


def module_drafter(model: ModelSpec, fmt: FormatSpec, compile_for: Compile) -> Drafter:
    """The model's own module for multi-token prediction, which shares embedding and head with the model.

    Raises
    ------
    UnsupportedModel
        It has none.
    """
    entry = model.entry
    if entry.mtp is None:
        raise UnsupportedModel(
            f"{entry.id} has no module for multi-token prediction",
            where="draft",
            next_step="Name a draft model, eagle3 or ngram.",
        )
    layers = (LayerGroup(repeat=1, pattern=entry.mtp.pattern),)
    changed = {"id": f"{entry.id}-mtp", "layers": layers, "extra": entry.mtp.extra, "mtp": None, "file": None}
    plan = compile_for(ModelSpec(entry.model_copy(update=changed)), recipe_of(model, fmt))
    return Drafter("multi-token prediction", plan, sum(plan.layout.layer_bytes), separate=False)


def head_drafter(model: ModelSpec, fmt: FormatSpec, engine: EngineSpec, kind: str, compile_for: Compile) -> Drafter:
    """A dense layer of the model's size over its features: EAGLE with the model's head, EAGLE-3 with a smaller one.

    Queries, keys and values of an EAGLE-3 layer are of the fused features and of the last token's embedding, behind one
    another.

    References
    ----------
    Li et al. (2024), EAGLE, arXiv 2401.15077; Li et al. (2025), EAGLE-3, arXiv 2503.01840, and cnets.py of
    github.com/SafeAILab/EAGLE.
    """
    entry, third = model.entry, kind == "eagle3"
    fusing = ExtraTensor(name="fc", rows=entry.hidden, columns=FEATURES[kind] * entry.hidden)
    block = _plain_block(model)
    changed = {
        "id": f"{entry.id}-{kind}",
        "layers": (LayerGroup(repeat=1, pattern=(_with_embedding(block, entry.hidden) if third else block,)),),
        "extra": (fusing,),
        "mtp": None,
        "file": None,
        "vocabulary": min(EAGLE3_VOCABULARY, entry.vocabulary) if third else entry.vocabulary,
        "rope_factors": None,
    }
    sixteen = catalog.weight_format(SIXTEEN_BIT[fmt.family], engine.format_families)
    plan = compile_for(ModelSpec(entry.model_copy(update=changed)), sixteen)
    head = sum(row.weight_bytes for row in plan.layout.rows if row.operator.kind == "head")
    shared = plan.layout.embedding_bytes + (0 if third else head)
    return Drafter("EAGLE-3 head" if third else "EAGLE head", plan, plan.layout.resident_bytes - shared, separate=False)


def _with_embedding(block: Block, hidden: int) -> Block:
    """The layer with queries, keys and values of an embedding beside its input; none of latent attention."""
    mixer = block.mixer
    if not isinstance(mixer, Attention):
        return block
    rows = mixer.heads * mixer.head_dim + mixer.kv_heads * (mixer.head_dim + mixer.value_dim)
    return block.model_copy(update={"extra": (ExtraTensor(name="qkv_of_embedding", rows=rows, columns=hidden),)})


def recipe_of(model: ModelSpec, fmt: FormatSpec) -> FormatSpec:
    """The format as a recipe, where the model comes from a file."""
    file = model.entry.file
    return fmt if file is None or file.format is None else catalog.weight_format(file.format)


def _plain_block(model: ModelSpec) -> Block:
    """A dense layer of the model's size."""
    block = next((b for b in model.layers if isinstance(b.mixer, Attention | LatentAttention)), None)
    if block is None:
        raise UnsupportedModel(f"{model.id} has no attention to build a head from", where="draft")
    ffn = block.ffn
    if isinstance(ffn, MixtureOfExperts):
        ffn = GatedFFN(kind="gated", intermediate=ffn.active * ffn.intermediate + (ffn.shared_intermediate or 0))
    return block.model_copy(update={"ffn": ffn, "extra": (), "beside": None})
