"""Formats: how many bytes a tensor takes, and which tensor of a model gets which encoding."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from rooflinellm import _resources
from rooflinellm.specs.common import Count, Entry, Source, Spec, load

LayerChoice = Literal["more_bits", "first_eighth", "first_eighth_counted", "first_sixteenth", "middle_three_quarters"]
"""Named choices of layers i of n, as llama.cpp's quantiser makes them: see `operators.recipe.chosen`."""


class Encoding(Spec):
    """How numbers are packed: blocks along a row, each of so many bytes.

    `tile` is a rectangle of rows x columns that shares more bytes (a scale per 128 x 128 of FP8): `tile_scale_bytes`
    for each tile begun, beside the blocks. `row_scale_bytes` and `tensor_scale_bytes` stand once a row and once a
    matrix. `fallback` names the encoding of rows that are no multiple of the block.
    """

    block_elements: Count
    block_bytes: Count
    tile: tuple[Count, Count] | None = None
    tile_scale_bytes: Count | None = None
    row_scale_bytes: Count | None = None
    tensor_scale_bytes: Count | None = None
    fallback: str | None = None
    source: str
    note: str | None = None

    @property
    def bits_per_element(self) -> float:
        """Bits an element takes, scales of its block and tile included. [bit]"""
        bits = 8 * self.block_bytes / self.block_elements
        if self.tile is not None and self.tile_scale_bytes is not None:
            bits += 8 * self.tile_scale_bytes / (self.tile[0] * self.tile[1])
        return bits

    @model_validator(mode="after")
    def _tile_has_bytes(self) -> Encoding:
        if (self.tile is None) != (self.tile_scale_bytes is None):
            raise ValueError("tile and tile_scale_bytes go together")
        return self


class KvType(Spec):
    """A type for cached keys or values."""

    encoding: str
    aliases: tuple[str, ...] = ()


class Encodings(Spec):
    """The table of all encodings: ``model_db/formats/encodings.yaml``."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    encodings: dict[str, Encoding]
    kv_types: dict[str, KvType]
    sources: dict[str, Source] = {}

    @model_validator(mode="after")
    def _fallbacks_exist(self) -> Encodings:
        for name, encoding in self.encodings.items():
            if encoding.fallback is not None and encoding.fallback not in self.encodings:
                raise ValueError(f"encoding '{name}' falls back to '{encoding.fallback}', which is not listed")
            if encoding.source not in self.sources:
                raise ValueError(f"encoding '{name}' cites source '{encoding.source}', which is not listed")
        for name, kv_type in self.kv_types.items():
            if kv_type.encoding not in self.encodings:
                raise ValueError(f"KV type '{name}' has encoding '{kv_type.encoding}', which is not listed")
        return self


class Condition(Spec):
    """When a rule of a recipe holds; every field given must hold.

    `experts` counts routed experts a layer, 0 in a dense model; `min_gqa` query heads to a key/value head.
    """

    tied_embeddings: bool | None = None
    experts: Annotated[int, Field(ge=0)] | None = None
    min_experts: Count | None = None
    min_gqa: Count | None = None
    max_gqa: Count | None = None
    layer_count: Count | None = None


class Rule(Spec):
    """Tensors matched by class name get an encoding; `layers` narrows it to some layers, `first_layers` to the first n.

    A name may begin or end with ``*``: ``ffn_down*``, ``*_exps``. `fallback`, where given, is the encoding of rows that
    are no multiple of the block, in place of the encoding's own.
    """

    tensors: Annotated[tuple[Annotated[str, Field(pattern=r"^(\*|\*?[a-z0-9_.]+\*?)$")], ...], Field(min_length=1)]
    encoding: str
    fallback: str | None = None
    layers: LayerChoice | None = None
    first_layers: Count | None = None
    when: Condition | None = None


class FormatSpec(Entry):
    """A weight format: ordered rules, of which the first that matches a tensor decides.

    Tensor classes are those of GGUF (``attn_q``, ``ffn_down_exps``, ``token_embd``, ``output`` …); ``*`` matches any,
    and the last rule must. One-dimensional tensors (norms, biases) take `vectors`. `only_for` names the families
    of models that were trained in the format, where files of others in it are hardly published: it is proposed for no
    others.
    """

    id: Annotated[str, Field(pattern=r"^[a-z]+:[a-z0-9]+(?:[-._][a-z0-9]+)*$")]
    family: Literal["gguf", "hf", "mlx", "exl"]
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]
    vectors: str
    only_for: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _complete(self) -> FormatSpec:
        last = self.rules[-1]
        if "*" not in last.tensors or last.layers or last.first_layers or last.when:
            raise ValueError("the last rule must match every tensor: tensors ['*'] and no condition")
        if not self.id.startswith(f"{self.family}:"):
            raise ValueError(f"id '{self.id}' does not start with its family '{self.family}:'")
        return self


ENCODINGS = ("formats", "encodings.yaml")
"""Where the table of encodings lies below a ``model_db``."""


def packaged_encodings() -> Encodings:
    """The table of encodings that comes with the package."""
    return _encodings_below(cast(Hashable, _resources.database("model_db")))


@lru_cache(maxsize=4)
def _encodings_below(folder: Any) -> Encodings:
    return load(Encodings, folder.joinpath(*ENCODINGS))
