"""Whether the tensors that a model derives are those that its file holds: none missing, none left over, none of another
size.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflinellm.errors import UnsupportedModel
from rooflinellm.operators.graph import ROPE_FACTORS
from rooflinellm.operators.layers import block_tensors, embedding_tensors, head_tensors
from rooflinellm.operators.tensors import Tensor, vector
from rooflinellm.specs.model import ModelEntry
from rooflinellm.specs.weights import OUTSIDE, FileWeights, StoredTensor

_NEXT_STEP = "Nothing is guessed: please report the file's architecture, or write an entry for the model."


def check(entry: ModelEntry, file: FileWeights) -> None:
    """Compare the tensors of an imported model with those of its file, by layer, class, row length and elements.

    Parameters
    ----------
    entry : ModelEntry
        The model.
    file : FileWeights
        What its file holds. Tensors behind the last layer belong to a multi-token-prediction module and are not looked
        at.

    Raises
    ------
    UnsupportedModel
        Naming the first tensor that differs.
    """
    layers = entry.layer_count
    left = {place: held for place, held in file.by_place.items() if place[0] < layers}
    for layer, tensor in _derived(entry, file.family):
        held = left.pop((layer, tensor.name), None)
        if held is None:
            raise UnsupportedModel(
                f"the file has no tensor {tensor.name}{_place(layer)}", where=file.path, next_step=_NEXT_STEP
            )
        if not _fits(tensor, held):
            rows = f" in rows of {held.columns:,}" if held.columns and tensor.use == "matrix" else ""
            raise UnsupportedModel(
                f"tensor {held.tensor} holds {held.elements:,} elements{rows} of {tensor.name}{_place(layer)};"
                f" the model asks for {tensor.params:,} in rows of {tensor.columns:,}",
                where=file.path,
                next_step=_NEXT_STEP,
            )
    if left:
        held = next(iter(left.values()))
        raise UnsupportedModel(
            f"tensor {held.tensor}{_place(held.layer)} is not understood, and {len(left) - 1} more",
            where=file.path,
            next_step=_NEXT_STEP,
        )


def _derived(entry: ModelEntry, family: str) -> Iterator[tuple[int, Tensor]]:
    if entry.rope_factors is not None and family == "gguf":
        yield OUTSIDE, vector(ROPE_FACTORS, entry.rope_factors)
    for tensor in embedding_tensors(entry) + head_tensors(entry):
        yield OUTSIDE, tensor
    start = 0
    for group in entry.layers:
        for number, block in enumerate(group.pattern):
            tensors = block_tensors(block, entry.hidden)
            for repeat in range(group.repeat):
                for tensor in tensors:
                    yield start + repeat * len(group.pattern) + number, tensor
        start += group.repeat * len(group.pattern)


def _fits(tensor: Tensor, held: StoredTensor) -> bool:
    if held.elements != tensor.params:
        return False
    return held.columns is None or tensor.use != "matrix" or held.columns == tensor.columns


def _place(layer: int) -> str:
    return "" if layer == OUTSIDE else f" in layer {layer}"
