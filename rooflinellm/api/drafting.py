"""What drafts tokens: another model, the model's own module, a layer over its features, or nothing that costs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from rooflinellm import catalog
from rooflinellm.api import lookup
from rooflinellm.api.arguments import count, name_of, scalar_count, share
from rooflinellm.api.options import Options
from rooflinellm.api.plans import Settled, entered
from rooflinellm.engine.acceptance import FORMS, cycle_tokens
from rooflinellm.engine.plan import Drafter
from rooflinellm.engine.speculation import Speculation
from rooflinellm.errors import InvalidRequest, UnsupportedModel
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.model import (
    Attention,
    Block,
    ExtraTensor,
    GatedFFN,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
)

MOST_DRAFTED = 1024
FREE = ("ngram", "lookup", "prompt-lookup")
HEADS = ("eagle", "eagle3")
EAGLE3_VOCABULARY = 32_000
"""Tokens that EAGLE-3 heads choose from. [token]"""
EAGLE3_FEATURES = 3
"""Layers of the model whose features EAGLE-3 reads. [-]"""


def speculation_of(draft: Any, draft_tokens: Any, acceptance: Any, options: Options) -> Speculation | None:
    """How tokens are drafted, None without drafts.

    Raises
    ------
    InvalidRequest
        Drafts without acceptance or the other way round, or numbers out of range.
    """
    length = count("draft_tokens", draft_tokens, 0, MOST_DRAFTED)
    if hasattr(length, "dtype"):
        raise InvalidRequest("one draft length at a time", where="draft_tokens")
    if length == 0:
        if acceptance is not None:
            raise InvalidRequest(
                "acceptance is stated, and no tokens are drafted", where="draft_tokens", next_step="Give draft_tokens."
            )
        return None
    if acceptance is None:
        raise InvalidRequest(
            f"{length} drafted tokens, and how many are accepted is not stated",
            where="acceptance",
            next_step=f"Give {FORMS}.",
        )
    steps = options.draft_steps
    amortised = options.verify_amortisation
    return Speculation(
        draft_tokens=int(length),
        draft_steps=int(length) if steps is None else scalar_count("draft_steps", steps, MOST_DRAFTED),
        cycle_tokens=cycle_tokens(acceptance, int(length)),
        amortisation=None if amortised is None else share("verify_amortisation", amortised),
    )


def with_drafter(settled: Settled, draft: Any) -> Settled:
    """The same with what drafts; errors as in `estimate`."""
    if draft is None:
        return settled
    key = draft if isinstance(draft, str) else id(draft), settled.options.draft_weights
    kept = _drafters.get((id(settled.plans), key))
    if kept is None or kept[0] is not settled.plans:
        kept = (settled.plans, _drafter(settled, draft))
        _drafters[id(settled.plans), key] = kept
        if len(_drafters) > MOST_KEPT:
            _drafters.popitem(last=False)
    return replace(settled, drafter=kept[1])


MOST_KEPT = 256
_drafters: OrderedDict[Any, tuple[Any, Drafter]] = OrderedDict()


def _drafter(settled: Settled, draft: Any) -> Drafter:
    if not isinstance(draft, str):
        return _model(settled, draft)
    kind = name_of("draft", draft).strip().lower().replace(" ", "").replace("_", "-")
    if kind in FREE:
        return Drafter("n-gram look-up", None, 0, separate=False)
    if kind == "mtp":
        return _module(settled)
    if kind.replace("-", "") in HEADS:
        return _head(settled, kind.replace("-", ""))
    return _model(settled, draft)


def _model(settled: Settled, draft: Any) -> Drafter:
    """Another model, in the format of the first unless it says otherwise."""
    model = lookup.model(draft)
    weights = settled.options.draft_weights
    if weights is not None:
        fmt = catalog.weight_format(weights, settled.engine.format_families)
    elif model.entry.file is not None:
        fmt = model.entry.file.fmt
    else:
        fmt = _format(settled)
    plan = _settled(settled, model, fmt)
    return Drafter(f"{model.id} {fmt.id}", plan, plan.resident_weight_bytes, separate=True)


def _module(settled: Settled) -> Drafter:
    """The model's own module for multi-token prediction, which shares embedding and head with the model."""
    entry = settled.model.entry
    if entry.mtp is None:
        raise UnsupportedModel(
            f"{entry.id} has no module for multi-token prediction",
            where="draft",
            next_step="Name a draft model, eagle3 or ngram.",
        )
    layers = (LayerGroup(repeat=1, pattern=entry.mtp.pattern),)
    changed = {"id": f"{entry.id}-mtp", "layers": layers, "extra": entry.mtp.extra, "mtp": None, "file": None}
    plan = _settled(settled, ModelSpec(entry.model_copy(update=changed)), _format(settled))
    return Drafter("multi-token prediction", plan, sum(plan.layout.layer_bytes), separate=False)


def _head(settled: Settled, kind: str) -> Drafter:
    """A layer like the model's own over its features: EAGLE with the model's head, EAGLE-3 with a smaller one."""
    entry = settled.model.entry
    third = kind == "eagle3"
    features = EAGLE3_FEATURES if third else 2
    fusing = ExtraTensor(name="fc", rows=entry.hidden, columns=features * entry.hidden)
    changed = {
        "id": f"{entry.id}-{kind}",
        "layers": (LayerGroup(repeat=1, pattern=(_plain_block(settled.model),)),),
        "extra": (fusing,),
        "mtp": None,
        "file": None,
        "vocabulary": min(EAGLE3_VOCABULARY, entry.vocabulary) if third else entry.vocabulary,
        "rope_factors": None,
    }
    head = ModelSpec(entry.model_copy(update=changed))
    plan = _settled(
        settled, head, catalog.weight_format(_SIXTEEN_BIT[settled.fmt.family], settled.engine.format_families)
    )
    layout = plan.layout
    held = (
        layout.resident_bytes - layout.embedding_bytes
        if third
        else layout.resident_bytes - layout.embedding_bytes - layout.head_bytes
    )
    return Drafter("EAGLE-3 head" if third else "EAGLE head", plan, held, separate=False)


_SIXTEEN_BIT = {"gguf": "f16", "mlx": "bf16", "hf": "bf16", "exl": "bf16"}


def _plain_block(model: ModelSpec) -> Block:
    """A dense layer of the model's size."""
    block = next((b for b in model.layers if isinstance(b.mixer, Attention | LatentAttention)), None)
    if block is None:
        raise UnsupportedModel(f"{model.id} has no attention to build a head from", where="draft")
    ffn = block.ffn
    if isinstance(ffn, MixtureOfExperts):
        ffn = GatedFFN(kind="gated", intermediate=ffn.active * ffn.intermediate + (ffn.shared_intermediate or 0))
    return block.model_copy(update={"ffn": ffn, "extra": (), "beside": None})


def _format(settled: Settled) -> Any:
    """The model's format, as a recipe where the model comes from a file."""
    file = settled.model.entry.file
    return settled.fmt if file is None or file.format is None else catalog.weight_format(file.format)


def _settled(settled: Settled, model: ModelSpec, fmt: Any) -> Any:
    """Compile for the first device alone."""
    alone = settled.system.model_copy(update={"count": 1, "others": (), "host": None, "host_cpu": None})
    unlimited = replace(settled.options, power_limit_w=None)  # the device is limited already
    asked = entered(
        model, alone, fmt, settled.engine, settled.backend_name, settled.kv, settled.chunk, settled.build, unlimited
    )
    return asked.plan()
