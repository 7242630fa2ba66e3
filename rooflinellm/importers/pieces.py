"""Tensors of a file on their way to the classes that models are described by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rooflinellm.specs.weights import StoredTensor


class Piece(NamedTuple):
    """A tensor of a file, or a part of one, and what it adds to a class.

    `columns` is the length of a row where the file's rows are the class's; scales and the like have no elements.
    """

    name: str
    tensor: str
    encoding: str
    bytes: int
    elements: int
    columns: int | None


def cut(piece: Piece, *parts: tuple[str, int], same_rows: bool) -> Iterator[Piece]:
    """Divide a piece among classes by their shares of its rows; the last one takes what division leaves.

    Parameters
    ----------
    piece : Piece
        The piece.
    *parts : tuple of str and int
        Class and share.
    same_rows : bool
        The classes' rows are those of the file.

    Yields
    ------
    Piece
    """
    total = sum(share for _, share in parts)
    left_bytes, left_elements = piece.bytes, piece.elements
    for number, (name, share) in enumerate(parts, start=1):
        last = number == len(parts)
        size = left_bytes if last else piece.bytes * share // total
        elements = left_elements if last else piece.elements * share // total
        left_bytes, left_elements = left_bytes - size, left_elements - elements
        yield Piece(name, piece.tensor, piece.encoding, size, elements, piece.columns if same_rows else None)


def stored(pieces: Iterable[tuple[int, Piece]]) -> tuple[StoredTensor, ...]:
    """Add up the pieces of each class in each layer; the largest of them names the encoding.

    Parameters
    ----------
    pieces : iterable of tuple of int and Piece
        Layer and piece.

    Returns
    -------
    tuple of StoredTensor
    """
    classes: dict[tuple[int, str], list[Piece]] = {}
    for layer, piece in pieces:
        classes.setdefault((layer, piece.name), []).append(piece)
    held = []
    for (layer, name), parts in classes.items():
        largest = max(parts, key=lambda piece: piece.elements)
        columns = {piece.columns for piece in parts if piece.elements}
        held.append(
            StoredTensor(
                layer=layer,
                name=name,
                tensor=parts[0].tensor,
                elements=sum(piece.elements for piece in parts),
                columns=columns.pop() if len(columns) == 1 else None,
                encoding=largest.encoding,
                bytes=sum(piece.bytes for piece in parts),
            )
        )
    return tuple(held)
