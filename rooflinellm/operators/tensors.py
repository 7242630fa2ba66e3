"""Tensors: the one list from which parameters, bytes in any format and FLOPs derive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Use = Literal["matrix", "lookup", "vector"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight tensor of one layer.

    Attributes
    ----------
    name : str
        Class in GGUF's terms: ``attn_q``, ``ffn_down_exps``, ``token_embd``, ``output``, ``attn_norm`` …
    rows : int
        Output features. [-]
    columns : int
        Input features: the dimension along which blocks are packed. [-]
    copies : int
        Experts stacked in the tensor. [-]
    use : {'matrix', 'lookup', 'vector'}
        Multiplied by every token, read one row a token, or added and scaled (norms, biases).
    """

    name: str
    rows: int
    columns: int
    copies: int = 1
    use: Use = "matrix"

    @property
    def params(self) -> int:
        """Elements. [-]"""
        return self.rows * self.columns * self.copies


def vector(name: str, length: int, copies: int = 1) -> Tensor:
    """A norm or bias vector, one for each copy."""
    return Tensor(name, 1, length, copies, "vector")
