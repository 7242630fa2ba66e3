"""A model as a result changed it."""

from __future__ import annotations

from typing import Any

from rooflinellm.measurements.workload import SkipRow
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.model import Block, MixtureOfExperts


def with_active_experts(model: ModelSpec, count: Any) -> ModelSpec:
    """The same model with another number of experts a token, where a result states one.

    Raises
    ------
    SkipRow
        The model has no experts, or not so many.
    """
    blocks = [block.ffn for group in model.entry.layers for block in group.pattern]
    mixtures = [ffn for ffn in blocks if isinstance(ffn, MixtureOfExperts)]
    if count is None or all(ffn.active == count for ffn in mixtures):
        return model
    if not isinstance(count, int) or any(not 0 < count <= ffn.experts for ffn in mixtures):
        raise SkipRow("the row cannot be read", f"{str(count)[:20]} active experts")
    key = id(model), count
    if key not in _reduced:
        groups = tuple(
            group.model_copy(update={"pattern": tuple(_reduced_block(block, count) for block in group.pattern)})
            for group in model.entry.layers
        )
        _reduced[key] = model, ModelSpec(model.entry.model_copy(update={"layers": groups}))
    return _reduced[key][1]


_reduced: dict[tuple[int, int], tuple[ModelSpec, ModelSpec]] = {}


def _reduced_block(block: Block, count: int) -> Block:
    if not isinstance(block.ffn, MixtureOfExperts):
        return block
    return block.model_copy(update={"ffn": block.ffn.model_copy(update={"active": count})})
