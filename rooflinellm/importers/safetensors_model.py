"""Safetensors files as a model.

The configuration beside the files tells the layers (`huggingface`); the headers tell the bytes, and what only tensors
tell: whether there is a head of its own, and how many rows the embedding has. Packed weights count as what they unpack
to, scales and zero points as bytes. Whether the tensors are exactly those that the layers derive is checked where a
model is made of the entry (`operators.stored`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflinellm.errors import InvalidSpec, UnsupportedModel
from rooflinellm.importers import huggingface
from rooflinellm.importers.gguf_model import grouped
from rooflinellm.importers.huggingface_config import Config, read_json
from rooflinellm.importers.huggingface_quantization import native_format
from rooflinellm.importers.pieces import Piece, cut
from rooflinellm.importers.safetensors import MAX_TENSORS_OF_ALL, Files, SafeTensor, fault, locate, read_header
from rooflinellm.importers.safetensors_names import Place, causal_mask, pattern_of, place_of
from rooflinellm.importers.safetensors_packing import PLAIN, Packing, packing_of
from rooflinellm.specs.model import Attention, Block, GatedFFN, LatentAttention, MixtureOfExperts, ModelEntry
from rooflinellm.specs.weights import OUTSIDE, FileWeights, StoredTensor

CONFIG = huggingface.CONFIG


def read(path: str | os.PathLike[str]) -> ModelEntry:
    """Read safetensors files, with the configuration beside them, as a model.

    Parameters
    ----------
    path : str or path
        A file, any of several parts, the index, or the folder.

    Returns
    -------
    ModelEntry
        The layers of the configuration, with the files' own bytes in `file`.

    Raises
    ------
    UnreadableFile, InvalidSpec
        A header or the configuration is broken, or a part is missing.
    UnsupportedModel
        There is no configuration, or the architecture or a tensor is not understood.
    """
    files = locate(Path(path))
    config = files.folder / CONFIG
    if files.paths[0].name.startswith("adapter_"):
        raise UnsupportedModel("an adapter, not a model", where=str(files.paths[0]), next_step="Name the model itself.")
    if not os.path.isfile(config):
        raise UnsupportedModel(
            f"there is no {CONFIG} beside the files, and their headers do not tell the model's shape",
            where=str(files.folder),
            next_step=f"Put the model's {CONFIG} into the folder.",
        )
    values = read_json(config)
    beside_path = files.folder / huggingface.QUANTISATION
    beside = read_json(beside_path) if os.path.isfile(beside_path) else None
    packing = packing_of(values, beside)
    entry, known = _shape(values, config, beside)
    collector = _Collector(entry, packing, files, known if packing.family == "hf" else None)
    for number, file in enumerate(files.paths):
        collector.add_file(number, file)
    return collector.entry()


def _shape(values: Mapping[str, Any], path: Path, beside: Mapping[str, Any] | None) -> tuple[ModelEntry, str | None]:
    """The entry of the configuration, and the format it names if that is one of ours.

    How the weights are packed is told by the files, so that the layers do not hang on it.
    """
    quantised = ("quantization_config", "quantization", "compression_config")
    plain = {
        name: {key: each for key, each in value.items() if key not in quantised} if isinstance(value, dict) else value
        for name, value in values.items()
        if name not in quantised
    }
    whole = Config(values, str(path))
    entry = huggingface.entry_of(Config(plain, str(path)), named=huggingface.name_of(whole, path))
    try:
        known, _ = native_format(whole, None if beside is None else Config(beside, str(path)))
    except (UnsupportedModel, InvalidSpec):
        return entry, None
    return entry.model_copy(update={"native_format": known}), known


@dataclass(slots=True)
class _Sum:
    """What the files hold of one class in one layer; its largest tensor names the encoding."""

    tensor: str
    bytes: int = 0
    elements: int = 0
    encoding: str = ""
    largest: int = 0

    def stored(self, layer: int, name: str) -> StoredTensor:
        return StoredTensor(layer, name, self.tensor, self.elements, None, self.encoding, self.bytes)


class _Collector:
    """Adds the tensors of all files up, by layer and class."""

    def __init__(self, entry: ModelEntry, packing: Packing, files: Files, known: str | None) -> None:
        self.model, self.packing, self.files, self.known = entry, packing, files, known
        self.blocks = tuple(entry.blocks())
        self.places: dict[str, Place] = {}
        self.seen: set[int] = set()
        self.norms: dict[int, dict[int, list[tuple[Place, SafeTensor]]]] = {}
        self.embedding: tuple[int, ...] = ()
        self.idle_bytes = 0
        self.expected = Counter(files.index.values())
        self.sums: dict[tuple[int, str], _Sum] = {}

    def add_file(self, number: int, path: Path) -> None:
        """Count the tensors of one file in."""
        missing = self.expected[number]
        for tensor in read_header(path):
            key = hash(tensor.name)
            if key in self.seen:
                raise fault(path, f"tensor {tensor.name!r:.100} is in another file too")
            self.seen.add(key)
            if len(self.seen) > MAX_TENSORS_OF_ALL:
                raise fault(path, f"more than {MAX_TENSORS_OF_ALL:,} tensors; no model has so many")
            missing -= self.files.index.get(key) == number
            self._add(tensor, path)
        if missing:
            raise fault(path, f"{missing:,} tensors that the index places in this file are not in it")

    def _add(self, tensor: SafeTensor, path: Path) -> None:
        pattern, numbers = pattern_of(tensor.name)
        place = self.places.get(pattern)
        if place is None:
            place = self.places[pattern] = place_of(pattern)
        if place.kind == "skip" or causal_mask(tensor.name, tensor.shape):
            return
        if place.kind == "idle":
            self.idle_bytes += tensor.bytes
            return
        layer = OUTSIDE
        if place.kind == "layer":
            digits = numbers[place.layer]
            layer = int(digits) if len(digits) < 7 else len(self.blocks)
            if layer >= len(self.blocks):
                self.idle_bytes += tensor.bytes
                return
        if place.kind == "unknown" or not place.name:
            raise UnsupportedModel(
                f"tensor {tensor.name!r:.200} is not understood",
                where=str(path),
                next_step=f"Name the {CONFIG} to import the shape alone, and the weights' format when you ask.",
            )
        if place.norm >= 0:
            self.norms.setdefault(layer, {}).setdefault(place.norm, []).append((place, tensor))
            return
        for piece in self._divided(self._piece(place, tensor, path), layer):
            self._sum(layer, piece)

    def _piece(self, place: Place, tensor: SafeTensor, path: Path) -> Piece:
        name = place.name
        if place.role == "companion":
            return Piece(name, tensor.name, "", tensor.bytes, 0, None)
        if place.role == "bias" or len(tensor.shape) < 2:
            elements, encoding = tensor.elements, PLAIN.get(tensor.dtype, tensor.dtype.lower())
        else:
            elements, encoding = self.packing.unpack(tensor, place.leaf)
        if not elements and tensor.elements:
            raise UnsupportedModel(
                f"tensor {tensor.name!r:.200} is packed, and {CONFIG} does not say in how many bits", where=str(path)
            )
        if name == "token_embd" and len(tensor.shape) > 1:
            self.embedding = tensor.shape
        return Piece(name, tensor.name, encoding, tensor.bytes, elements, None)

    def _divided(self, piece: Piece, layer: int) -> Iterator[Piece]:
        """A piece under the classes of its layer; rows of two classes are cut apart."""
        if layer == OUTSIDE:
            yield piece
            return
        block = self.blocks[layer]
        name = _renamed(piece.name, block)
        if name == "ffn_gate_inp.bias" and isinstance(block.ffn, MixtureOfExperts) and not block.ffn.router_bias:
            # A correction of the routing that some count among the parameters and others do not.
            yield piece._replace(name="ffn_gate_inp", elements=0)
            return
        stem, bias = name.removesuffix(".bias"), ".bias" if name.endswith(".bias") else ""
        if stem.startswith("ffn_gate_up"):
            fused = isinstance(block.ffn, GatedFFN) and block.ffn.fused
            if fused:
                yield piece._replace(name=f"ffn_up{bias}")
                return
            suffix = stem.removeprefix("ffn_gate_up")
            yield from cut(piece, (f"ffn_gate{suffix}{bias}", 1), (f"ffn_up{suffix}{bias}", 1), same_rows=False)
        elif name == "attn_kv_b" and isinstance(block.mixer, LatentAttention):
            parts = ("attn_k_b", block.mixer.nope_dim), ("attn_v_b", block.mixer.v_head_dim)
            yield from cut(piece, *parts, same_rows=False)
        else:
            yield piece if name == piece.name else piece._replace(name=name)

    def _sum(self, layer: int, piece: Piece) -> None:
        """Add a piece to its class; thousands of experts make one sum."""
        held = self.sums.get((layer, piece.name))
        if held is None:
            held = self.sums[layer, piece.name] = _Sum(piece.tensor)
        held.bytes += piece.bytes
        held.elements += piece.elements
        if piece.elements > held.largest or not held.encoding:
            held.encoding, held.largest = piece.encoding, piece.elements

    def entry(self) -> ModelEntry:
        """The configuration's entry with what the files say."""
        for layer, norms in self.norms.items():
            for number, position in enumerate(sorted(norms)):
                derived = _NORM_NAMES[number] if number < len(_NORM_NAMES) else f"norm_{number}"
                for place, tensor in norms[position]:
                    name = f"{derived}.bias" if place.role == "bias" else derived
                    encoding = PLAIN.get(tensor.dtype, tensor.dtype.lower())
                    self._sum(layer, Piece(name, tensor.name, encoding, tensor.bytes, tensor.elements, None))
        tied = self._settle_head()
        label = self.packing.method if self.known is None else self.known.partition(":")[2]
        file = FileWeights(
            path=str(self.files.paths[0] if len(self.files.paths) == 1 else self.files.folder),
            files=len(self.files.paths),
            family=self.packing.family,
            label=label,
            format=self.known,
            tensors=tuple(held.stored(layer, name) for (layer, name), held in self.sums.items()),
            idle_bytes=self.idle_bytes,
        )
        rows = self.embedding[0] if self.embedding else self.model.vocabulary
        layers = grouped([self._projected(layer, block) for layer, block in enumerate(self.blocks)])
        changed = {"tied_embeddings": tied, "vocabulary": rows or 1, "layers": layers, "file": file}
        return self.model.model_copy(update=changed)

    def _projected(self, layer: int, block: Block) -> Block:
        """A layer that reads another one's cache has projections of its own only if the files hold them."""
        mixer = block.mixer
        if not isinstance(mixer, Attention) or mixer.kv == "own":
            return block
        has = any((layer, name) in self.sums for name in ("attn_k", "attn_qkv"))
        return block.model_copy(update={"mixer": mixer.model_copy(update={"kv_projections": has})})

    def _settle_head(self) -> bool:
        """Whether the head is the embedding: it is where the files hold none, whatever the configuration says."""
        head, embedding = (OUTSIDE, "output"), (OUTSIDE, "token_embd")
        if self.model.tied_embeddings:
            self.sums.pop(head, None)  # a copy, which no engine loads
        if head in self.sums or embedding not in self.sums:
            return False
        self.sums[head] = self.sums.pop(embedding)
        return True


_NORM_NAMES = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")


def _renamed(name: str, block: Block) -> str:
    """A class under the name it has in this layer."""
    if isinstance(block.ffn, MixtureOfExperts):
        if name in _DENSE and block.ffn.shared_intermediate is not None:
            return f"{name}_shexp"
    elif "_shexp" in name and name != "ffn_gate_inp_shexp":
        return name.replace("_shexp", "")
    return name


_DENSE = frozenset({"ffn_gate", "ffn_up", "ffn_down", "ffn_gate_up"})
