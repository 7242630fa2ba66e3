"""A model in a weight format: bytes by layer and rows of equal operators. No hardware yet."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.graph import ROPE_FACTORS, Operator, block_operators, end_operators
from rooflinellm.operators.model import ModelSpec
from rooflinellm.operators.recipe import ModelTraits, encoding_of, is_alike_in_layers, tensor_bytes
from rooflinellm.operators.tensors import Tensor
from rooflinellm.specs.formats import Encoding, FormatSpec
from rooflinellm.specs.weights import FileFormat, FileWeights

OUTSIDE_LAYERS = -1


@dataclass(slots=True)
class OperatorRow:
    """Operators of one name, shape and encoding, over all layers that have it.

    Attributes
    ----------
    operator : Operator
        The first of them.
    encoding : str or None
        Encoding of its largest matrix, which decides the compute path; None without matrices.
    layers : list of int
        The layers it stands in; -1 outside the layers. [-]
    bytes_by_layer : list of int
        Weights of each of them; of a mixture, all experts. [byte]
    expert_bytes_by_layer : list of int
        One expert of each; 0 elsewhere. [byte]
    """

    operator: Operator
    encoding: str | None
    layers: list[int] = field(default_factory=list)
    bytes_by_layer: list[int] = field(default_factory=list)
    expert_bytes_by_layer: list[int] = field(default_factory=list)

    @property
    def weight_bytes(self) -> int:
        """Weights of all of them; of a mixture, all experts. [byte]"""
        return sum(self.bytes_by_layer)

    @property
    def expert_bytes(self) -> int:
        """One expert of each; 0 elsewhere. [byte]"""
        return sum(self.expert_bytes_by_layer)

    def within(self, layers: Container[int]) -> OperatorRow:
        """The same operator in some of its layers only."""
        kept = [index for index, layer in enumerate(self.layers) if layer in layers]
        if len(kept) == len(self.layers):
            return self
        picked = (self.layers, self.bytes_by_layer, self.expert_bytes_by_layer)
        return OperatorRow(self.operator, self.encoding, *([values[index] for index in kept] for values in picked))


@dataclass(frozen=True, slots=True)
class Layout:
    """What a model weighs in a format.

    Attributes
    ----------
    rows : tuple of OperatorRow
        Every operator, equal ones together, in the order in which they run.
    layer_bytes : tuple of int
        Weights by layer. [byte]
    embedding_bytes, head_bytes : int
        Input embedding (0 when tied), and final norm with head. [byte]
    idle_bytes : int
        Held and read by no pass: what a file has beside the text model, such as a multi-token-prediction module. [byte]
    """

    rows: tuple[OperatorRow, ...]
    layer_bytes: tuple[int, ...]
    embedding_bytes: int
    head_bytes: int
    idle_bytes: int = 0

    @property
    def resident_bytes(self) -> int:
        """All weights. [byte]"""
        return sum(self.layer_bytes) + self.embedding_bytes + self.head_bytes + self.idle_bytes

    @property
    def streamed_bytes(self) -> int:
        """Weights that a pass of one token reads: no input embedding lookup, the active experts only. [byte]"""
        return sum(
            row.weight_bytes if row.operator.moe is None else row.expert_bytes * row.operator.moe.active
            for row in self.rows
            if row.operator.kind != "embedding"
        )


def lay_out(model: ModelSpec, fmt: FormatSpec, encodings: Mapping[str, Encoding]) -> Layout:
    """Give each tensor its encoding and add up.

    Parameters
    ----------
    model : ModelSpec
        The model.
    fmt : FormatSpec
        The weight format; a `FileFormat` takes each tensor as the model's file has it.
    encodings : mapping of str to Encoding
        All encodings, by name.

    Returns
    -------
    Layout

    Raises
    ------
    InvalidRequest
        The format of a file that is not the model's.
    """
    file = model.entry.file if isinstance(fmt, FileFormat) else None
    if isinstance(fmt, FileFormat) and (file is None or file.fmt != fmt):
        raise InvalidRequest(f"{fmt.id} is the format of another model's file", where="weights")
    builder = _Builder(fmt, encodings, model.traits, file)
    embedding, *last = end_operators(model.entry)
    embedding_bytes = builder.add(embedding, OUTSIDE_LAYERS)
    operators = {block: block_operators(block, model.hidden) for block in dict.fromkeys(model.layers)}
    layer_bytes = tuple(
        sum(builder.add(operator, layer) for operator in operators[block]) for layer, block in enumerate(model.layers)
    )
    head_bytes = sum(builder.add(operator, OUTSIDE_LAYERS) for operator in last)
    used = sum(layer_bytes) + embedding_bytes + head_bytes
    idle_bytes = 0 if file is None else file.total_bytes - used
    return Layout(tuple(builder.rows.values()), layer_bytes, embedding_bytes, head_bytes, idle_bytes)


class _Builder:
    """Collects operators into rows."""

    def __init__(
        self,
        fmt: FormatSpec,
        encodings: Mapping[str, Encoding],
        traits: ModelTraits,
        file: FileWeights | None,
    ) -> None:
        self.fmt, self.encodings, self.traits, self.file = fmt, encodings, traits, file
        self.rows: dict[tuple[Operator, str | None], OperatorRow] = {}
        # Most layers are like others: their operators are the same objects, which live as long as this does.
        self._row_of: dict[tuple[int, str | None], OperatorRow] = {}
        self._alike: dict[int, tuple[OperatorRow, int, int] | None] = {}

    def add(self, operator: Operator, layer: int) -> int:
        """Count one operator in; gives its bytes."""
        known = self._alike.get(id(operator)) if layer != OUTSIDE_LAYERS else None
        row, total, expert = known or self._row(operator, layer)
        if layer != OUTSIDE_LAYERS and id(operator) not in self._alike:
            self._alike[id(operator)] = (row, total, expert) if self._is_alike(operator) else None
        row.layers.append(layer)
        row.bytes_by_layer.append(total)
        row.expert_bytes_by_layer.append(expert)
        return total

    def _is_alike(self, operator: Operator) -> bool:
        """Whether an operator is the same in each layer."""
        return self.file is None and all(is_alike_in_layers(each, self.traits, self.fmt) for each in operator.tensors)

    def _row(self, operator: Operator, layer: int) -> tuple[OperatorRow, int, int]:
        """The row of an operator, its bytes in a layer, and those of one expert."""
        total = expert = 0
        names: list[tuple[int, str]] = []
        for tensor in operator.tensors:
            if tensor.name == ROPE_FACTORS and self.fmt.family != "gguf":
                continue
            name, size = self._stored(tensor, layer)
            total += size
            expert += size // tensor.copies
            if tensor.use == "matrix":
                names.append((tensor.params, name))
        encoding = max(names)[1] if names else None
        row = self._row_of.get((id(operator), encoding))
        if row is None:
            row = self.rows.setdefault((operator, encoding), OperatorRow(operator, encoding))
            self._row_of[id(operator), encoding] = row
        return row, total, 0 if operator.moe is None else expert

    def _stored(self, tensor: Tensor, layer: int) -> tuple[str, int]:
        """Encoding and bytes of a tensor: the file's, else those of the recipe."""
        if self.file is not None:
            stored = self.file.by_place[layer, tensor.name]
            return stored.encoding, stored.bytes
        name = encoding_of(tensor, layer, self.traits, self.fmt, self.encodings)
        return name, tensor_bytes(tensor, self.encodings[name])
