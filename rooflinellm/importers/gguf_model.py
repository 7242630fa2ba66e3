"""A GGUF file as a model: its keys and its tensors give the layers, its tensors the bytes.

The entry carries the file's bytes by tensor class and layer. Whether the classes that it derives are exactly those of
the file is checked where a model is made of it (`operators.stored`), so nothing in a file is passed over in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from rooflinellm.errors import UnreadableFile, UnsupportedModel, met
from rooflinellm.importers.gguf import SPLIT_NAME, GgufHeader, GgufTensor, read_all
from rooflinellm.importers.gguf_architectures import ARCHITECTURES, FILE_TYPES, GUESSED, OUTSIDE_LAYERS
from rooflinellm.importers.gguf_layers import Keys, Layer, extra_tensor, parent_of, whole
from rooflinellm.importers.pieces import Piece, stored
from rooflinellm.specs.common import Source
from rooflinellm.specs.model import (
    Block,
    ExtraTensor,
    LayerGroup,
    ModelEntry,
    MtpModule,
    NoFFN,
    NoMixer,
)
from rooflinellm.specs.weights import OUTSIDE, FileWeights

MAX_PERIOD = 12
MAX_LAYERS = 512  # as llama.cpp
_IN_LAYER = re.compile(r"blk\.(?P<layer>0|[1-9][0-9]{0,5})\.(?P<rest>.+)")
_SEPARATE_EXPERT = re.compile(r"(?P<part>ffn_(?:gate|up|down))\.(?P<expert>0|[1-9][0-9]{0,4})")
_ROPE = ("rope_freqs", "rope_factors_long", "rope_factors_short")


def read(path: str | os.PathLike[str]) -> ModelEntry:
    """Read a GGUF file, or all parts of a split one, as a model.

    Parameters
    ----------
    path : str or path
        The file, or any of its parts.

    Returns
    -------
    ModelEntry
        With the file's own bytes in `file`.

    Raises
    ------
    UnreadableFile
        The header is broken, contradicts itself or lacks a key.
    UnsupportedModel
        An architecture that is not known, or no language model.
    """
    return entry_of(read_all(path))


def read_folder(folder: Path) -> ModelEntry:
    """Read the one model whose GGUF files lie in a folder, projectors apart; errors as in `read`.

    Raises
    ------
    UnsupportedModel
        There are several models, or none.
    """
    files: dict[str, Path] = {}
    for path in sorted(folder.glob("*.gguf")):
        part = SPLIT_NAME.fullmatch(path.name)
        if not path.name.lower().startswith("mmproj"):
            files.setdefault(path.name if part is None else part["prefix"], path)
    if len(files) != 1:
        found = ", ".join(path.name for path in list(files.values())[:4]) or "none but projectors"
        raise UnsupportedModel(
            f"the folder holds {len(files)} models ({found})", where=str(folder), next_step="Name one of the files."
        )
    return read(next(iter(files.values())))


def entry_of(header: GgufHeader) -> ModelEntry:
    """Make an entry of a header; errors as in `read`."""
    try:
        return _Importer(header).entry()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        shown = f" (found {met(first['input'])})" if isinstance(first.get("input"), str | int | float) else ""
        raise UnreadableFile(
            f"the header describes no possible model: {place}: {first['msg']}{shown}", where=str(header.path)
        ) from error


class _Importer:
    """One header on its way to an entry."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.where = str(header.path)
        architecture = header.metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise UnreadableFile("general.architecture is missing or no text", where=self.where)
        self.keys = Keys(header, architecture)
        kind = self.keys.text("general.type")
        if kind not in (None, "model") or architecture == "clip":
            what = kind if kind not in (None, "model") else "vision projector"
            raise UnsupportedModel(
                f"a GGUF file of type {what!r:.40}, not a model",
                where=self.where,
                next_step="Name the file of the model itself.",
            )
        if architecture not in ARCHITECTURES:
            raise UnsupportedModel(
                f"architecture {met(architecture)} is not described, and guessing would give wrong numbers",
                where=self.where,
                next_step="Write an entry for it (CONTRIBUTING.md), or name a model of the database.",
            )
        self.rules = ARCHITECTURES[architecture]
        self.outside: dict[str, GgufTensor] = {}
        self.hidden = self.keys.number("embedding_length")
        blocks, predicted = self.keys.number("block_count"), self.keys.number("nextn_predict_layers", 0)
        self.layers = blocks - predicted
        if not 1 <= self.layers <= blocks <= MAX_LAYERS:
            raise self.keys.fault(
                f"{architecture}.block_count",
                f"{blocks:,} layers, {predicted:,} of them predicting; {MAX_LAYERS:,} at most",
            )
        self.blocks = [self._layer(index) for index in range(blocks)]
        self._sort_tensors()

    def _layer(self, index: int) -> Layer:
        return Layer(index, self.keys, self.rules, self.hidden, self.layers)

    def _sort_tensors(self) -> None:
        """Give each tensor to its layer, under its class."""
        for tensor in self.header.tensors:
            match = _IN_LAYER.fullmatch(tensor.name)
            if match is None:
                self._put(self.outside, _class_of(tensor.name), tensor)
                continue
            index = int(match["layer"])
            if index >= len(self.blocks):
                raise UnsupportedModel(
                    f"tensor {tensor.name} is of layer {index}, and there are {len(self.blocks)}", where=self.where
                )
            layer, name = self.blocks[index], _class_of(match["rest"])
            expert = _SEPARATE_EXPERT.fullmatch(name)
            if expert is not None:
                layer.experts.setdefault(f"{expert['part']}_exps", []).append(tensor)
            else:
                self._put(layer.tensors, name, tensor)

    def _put(self, tensors: dict[str, GgufTensor], name: str, tensor: GgufTensor) -> None:
        if name in tensors:
            raise UnsupportedModel(f"tensors {tensors[name].name} and {tensor.name} are one to us", where=self.where)
        tensors[name] = tensor

    def entry(self) -> ModelEntry:
        """The entry, with the file's weights."""
        embedding = self._outside("token_embd")
        vocabulary = embedding.shape[1] if len(embedding.shape) > 1 else 1
        specs = [layer.block() for layer in self.blocks]
        self._check_layers(specs[: self.layers])
        label, known = self._format()
        name = self.keys.text("general.name")
        stem = re.sub(r"-[0-9]{5}-of-[0-9]{5}$", "", self.header.path.stem)
        factors = [self.outside[key].elements for key in _ROPE if key in self.outside]
        pieces = [*self._pieces_outside(), *self._pieces(specs)]
        norm = self.rules.final_norm
        if self.rules.tied is False:
            self._outside("output")
        if norm is not None:
            self._outside(norm)
        return ModelEntry(
            id=slug(stem),
            name="".join(filter(str.isprintable, name or stem)) or slug(stem),
            family=slug(self.keys.architecture),
            license=self.keys.text("general.license"),
            hidden=self.hidden,
            vocabulary=vocabulary,
            tied_embeddings="output" not in self.outside,
            head_bias="output.bias" in self.outside,
            rope_factors=sum(factors) or None,
            final_norm=norm is not None,
            final_norm_bias=f"{norm}.bias" in self.outside,
            max_context_tokens=self.keys.number("context_length"),
            native_format=f"gguf:{known or 'f16'}",
            layers=grouped(specs[: self.layers]),
            extra=tuple(self._extra(norm)),
            mtp=self._mtp(specs),
            file=FileWeights(
                path=self.where,
                files=self.header.files,
                family="gguf",
                label=label,
                format=None if known is None else f"gguf:{known}",
                tensors=stored(pieces),
            ),
            sources={"file": Source(title=f"{self.header.path.name}, header")},
        )

    def _check_layers(self, specs: Sequence[Block]) -> None:
        """Whether each layer has the parts of its architecture, and layers of a kind the same tensors."""
        first: dict[object, Layer] = {}
        for layer, spec in zip(self.blocks, specs, strict=False):
            mixes, feeds = not isinstance(spec.mixer, NoMixer), not isinstance(spec.ffn, NoFFN)
            whole = {"both": mixes and feeds, "mixer": mixes and not feeds, "one": mixes != feeds, "any": True}
            if not whole[self.rules.parts]:
                parts = [part for part, there in (("mixer", mixes), ("feed-forward part", feeds)) if there]
                raise UnsupportedModel(
                    f"the tensors of layer {layer.index} make no layer of {self.keys.architecture}:"
                    f" there is {' and '.join(parts) or 'nothing'}",
                    where=self.where,
                )
            other = first.setdefault(layer.kind(spec), layer)
            different = layer.names() ^ other.names()
            if different:
                name = min(different)
                has, lacks = (layer, other) if name in layer.names() else (other, layer)
                raise UnsupportedModel(
                    f"tensor blk.{has.index}.{name} has none like it in layer {lacks.index}, which is of the same kind",
                    where=self.where,
                )

    def _outside(self, name: str) -> GgufTensor:
        if name not in self.outside:
            raise UnsupportedModel(f"there is no tensor {name}.weight", where=self.where)
        return self.outside[name]

    def _extra(self, norm: str | None) -> Iterator[ExtraTensor]:
        for name, use in OUTSIDE_LAYERS.items():
            if name in self.outside and name.removesuffix(".bias") != norm:
                yield extra_tensor(name, self.outside[name], use)

    def _mtp(self, specs: Sequence[Block]) -> MtpModule | None:
        held = [
            spec for layer, spec in zip(self.blocks, specs, strict=True) if layer.index >= self.layers and layer.tensors
        ]
        return MtpModule(pattern=tuple(held)) if held else None

    def _pieces_outside(self) -> Iterator[tuple[int, Piece]]:
        norm = self.rules.final_norm
        names = {} if "output" in self.outside else {"token_embd": "output"}
        names |= {f"{norm}": "output_norm", f"{norm}.bias": "output_norm.bias"} | dict.fromkeys(_ROPE, "rope_freqs")
        for name, tensor in self.outside.items():
            parent = parent_of(name)
            if parent in self.outside:
                yield OUTSIDE, whole(names.get(parent, parent), tensor)._replace(elements=0, columns=None)
            else:
                yield OUTSIDE, whole(names.get(name, name), tensor)

    def _pieces(self, specs: Sequence[Block]) -> Iterator[tuple[int, Piece]]:
        for layer, spec in zip(self.blocks, specs, strict=True):
            for piece in layer.pieces(spec):
                yield layer.index, piece

    def _format(self) -> tuple[str, str | None]:
        """What the file calls its format, and the name the format has among ours."""
        value = self.header.metadata.get("general.file_type")
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise UnreadableFile(f"general.file_type is {met(value)}, not a number", where=self.where)
        if value is not None and value & ~GUESSED in FILE_TYPES:
            return FILE_TYPES[value & ~GUESSED]
        by_encoding: dict[str, int] = {}
        for tensor in self.header.tensors:
            by_encoding[tensor.encoding] = by_encoding.get(tensor.encoding, 0) + tensor.bytes
        most = max(by_encoding, key=by_encoding.__getitem__)
        return f"mostly {most.upper()}", None


def _class_of(name: str) -> str:
    """A tensor's name without what its class does not need."""
    name = name.removesuffix(".weight")
    return "exp_probs_b.bias" if name == "exp_probs_b" else name


def grouped(blocks: Sequence[Block]) -> tuple[LayerGroup, ...]:
    """Layers as groups of repeated patterns: at each place the pattern that covers most, the shortest of equals."""
    numbers: dict[Block, int] = {}
    kinds = [numbers.setdefault(block, len(numbers)) for block in blocks]
    groups, start = [], 0
    while start < len(blocks):
        best, covered = 1, _repeats(kinds, start, 1)
        for period in range(2, min(MAX_PERIOD, len(blocks) - start) + 1):
            if (length := _repeats(kinds, start, period) * period) > covered and length > period:
                best, covered = period, length
        groups.append(LayerGroup(repeat=covered // best, pattern=tuple(blocks[start : start + best])))
        start += covered
    return tuple(groups)


def _repeats(kinds: Sequence[int], start: int, period: int) -> int:
    """How often the pattern of so many layers stands here, one after the other."""
    end = start + period
    while end < len(kinds) and kinds[end] == kinds[end - period]:
        end += 1
    return (end - start) // period


def slug(text: str) -> str:
    """A text as an identifier: lower case, words joined by single marks."""
    words = re.sub(r"[^a-z0-9._+-]+", "-", text.lower())
    joined = re.sub(r"[-._+]*([-._+])[-._+]*", r"\1", words).strip("-._+")[:100].strip("-._+")
    return joined or "model"
