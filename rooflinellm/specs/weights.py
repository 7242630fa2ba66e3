"""Weights as a file stores them: bytes by tensor, so that what streams and what is resident are exact for that file."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, SkipValidation

from rooflinellm.specs.common import Spec
from rooflinellm.specs.formats import FormatSpec, Rule

OUTSIDE = -1
"""Layer of a tensor outside the layers: embedding, final norm, head."""

Family = Literal["gguf", "hf", "mlx", "exl"]
Natural = Annotated[int, Field(ge=0)]


class FileFormat(FormatSpec):
    """The format of one file: its own tensors say what they take, the rules are never asked."""

    id: str


class StoredTensor(NamedTuple):
    """What a file holds of one tensor class in one layer.

    `name` is the class that `operators.layers` derives, `tensor` the file's own name of it (of the first, where several
    make up one). `columns` is the length of a row where the file's rows are the class's rows. `bytes` count everything
    that belongs to it: scales, zero points, shapes. Layers behind the last one of the model are those of its
    multi-token-prediction module.
    """

    layer: int
    name: str
    tensor: str
    elements: int
    columns: int | None
    encoding: str
    bytes: int


class FileWeights(Spec):
    """The weights of a model as its files hold them.

    Attributes
    ----------
    path : str
        The file, the first of several, or the folder.
    files : int
        How many files there are. [-]
    family : str
        Family of formats, which decides the engine.
    label : str
        What the file calls its format, such as ``Q4_K - Medium``.
    format : str, optional
        Id of that format; asking for it means the file.
    tensors : tuple of StoredTensor
        Every class in every layer, once.
    idle_bytes : int
        Resident and read by no pass: towers, and what stands beside the text model. [byte]
    """

    path: str
    files: Annotated[int, Field(ge=1)]
    family: Family
    label: str
    format: str | None = None
    tensors: Annotated[tuple[StoredTensor, ...], SkipValidation]
    idle_bytes: Natural = 0

    @cached_property
    def by_place(self) -> dict[tuple[int, str], StoredTensor]:
        """The tensors by layer and class."""
        return {(tensor.layer, tensor.name): tensor for tensor in self.tensors}

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all tensors. [byte]"""
        return sum(tensor.bytes for tensor in self.tensors) + self.idle_bytes

    @cached_property
    def fmt(self) -> FileFormat:
        """The file as a format, so that it can stand wherever one is asked for."""
        return FileFormat(
            id=f"{self.family}:file ({self.label})",
            name=self.label,
            family=self.family,
            rules=(Rule(tensors=("*",), encoding="f16"),),
            vectors="f32",
        )
