"""Recipes: which encoding a format gives a tensor, and how many bytes the tensor takes in it.

The rules themselves are data (``model_db/formats``); here stands what their words mean: the named choices of layers,
the conditions, the fallbacks of rows that are no multiple of a block, and the bytes of a matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from rooflinellm.errors import InvalidSpec
from rooflinellm.operators.tensors import Tensor
from rooflinellm.specs.formats import Condition, Encoding, FormatSpec, LayerChoice, Rule

OUTSIDE = -1
"""Layer of a tensor outside the layers: embedding, final norm, head."""

KEPT_EXPERTS = "mxfp4"
"""Encoding of experts that are published in it: requantising them would lose quality and save nothing."""

_VALUE_CLASSES = frozenset({"attn_v", "attn_qkv", "attn_kv_b"})
"""Classes that llama.cpp's quantiser counts and treats as the projection of values."""


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What a recipe may ask about a model.

    Attributes
    ----------
    layer_count : int
        Layers. [-]
    gqa : int
        Query heads to a key/value head, heads // kv_heads of the first attention layer. [-]
    experts : int
        Routed experts of a layer, the most of any layer; 0 in a dense model. [-]
    tied_embeddings : bool
        Whether the head is the input embedding.
    mxfp4_experts : bool
        Whether the maker publishes the experts in MXFP4: every GGUF mix then keeps them.
    value_tensors : tuple of int
        Tensors of each layer that count as projections of values (``attn_v``, ``attn_qkv``, ``attn_kv_b``); empty where
        every layer has one. [-]
    down_tensors : tuple of int
        Down projections of each layer (routed and shared experts are one each); empty where every layer has one. [-]
    """

    layer_count: int
    gqa: int
    experts: int
    tied_embeddings: bool
    mxfp4_experts: bool = False
    value_tensors: tuple[int, ...] = ()
    down_tensors: tuple[int, ...] = ()


def traits_of(
    layers: Sequence[Sequence[Tensor]], *, gqa: int, tied_embeddings: bool, mxfp4_experts: bool = False
) -> ModelTraits:
    """Traits of a model from the tensors of its layers.

    Parameters
    ----------
    layers : sequence of sequence of Tensor
        The tensors of each layer, in order.
    gqa : int
        Query heads to a key/value head of the first attention layer. [-]
    tied_embeddings : bool
        Whether the head is the input embedding.

    Returns
    -------
    ModelTraits
    """
    values = tuple(sum(t.name in _VALUE_CLASSES for t in layer) for layer in layers)
    downs = tuple(sum(t.use == "matrix" and t.name.startswith("ffn_down") for t in layer) for layer in layers)
    stacked = (t.copies for layer in layers for t in layer if t.name.endswith("_exps"))
    return ModelTraits(
        layer_count=len(layers),
        gqa=gqa,
        experts=max(stacked, default=0),
        tied_embeddings=tied_embeddings,
        mxfp4_experts=mxfp4_experts,
        value_tensors=() if set(values) == {1} else values,
        down_tensors=() if set(downs) == {1} else downs,
    )


def more_bits(layer: int, layers: int) -> bool:
    """Whether layer i of n is among those that a medium mix gives more bits.

        i < n // 8   or   i >= 7 n // 8   or   (i - n // 8) mod 3 = 2

    Parameters
    ----------
    layer, layers : int
        i, counted from 0, and n. [-]

    Returns
    -------
    bool

    References
    ----------
    ggml-org/llama.cpp, src/llama-quant.cpp, ``use_more_bits`` in ``llama_tensor_get_type_impl``.
    """
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def first_eighth(layer: int, layers: int) -> bool:
    """Whether layer i of n is in the first eighth: i < n // 8.

    Parameters
    ----------
    layer, layers : int
        i, counted from 0, and n. [-]

    Returns
    -------
    bool

    References
    ----------
    ggml-org/llama.cpp, src/llama-quant.cpp, ``llama_tensor_get_type_impl``, branch of ``FFN_DOWN``.
    """
    return layer < layers // 8


def first_sixteenth(layer: int, layers: int) -> bool:
    """Whether layer i of n is in the first sixteenth: i < n // 16.

    Parameters
    ----------
    layer, layers : int
        i, counted from 0, and n. [-]

    Returns
    -------
    bool

    References
    ----------
    ggml-org/llama.cpp, src/llama-quant.cpp, ``llama_tensor_get_type_impl``, branch of ``FFN_DOWN``.
    """
    return layer < layers // 16


def middle_three_quarters(layer: int, layers: int) -> bool:
    """Whether layer i of n is neither in the first nor in the last eighth: n // 8 <= i < 7 n // 8.

    Parameters
    ----------
    layer, layers : int
        i, counted from 0, and n. [-]

    Returns
    -------
    bool

    References
    ----------
    ggml-org/llama.cpp, src/llama-quant.cpp, ``llama_tensor_get_type_impl``, branches of ``FFN_GATE`` and ``FFN_UP``.
    """
    return layers // 8 <= layer < 7 * layers // 8


def chosen(choice: LayerChoice, layer: int, layers: int) -> bool:
    """Whether a named choice of layers holds for layer i of n.

    Parameters
    ----------
    choice : str
        ``first_eighth_counted`` is the first eighth too; what it counts is told by `position`.
    layer, layers : int
        i, counted from 0, and n. [-]

    Returns
    -------
    bool
    """
    match choice:
        case "more_bits":
            return more_bits(layer, layers)
        case "first_eighth" | "first_eighth_counted":
            return first_eighth(layer, layers)
        case "first_sixteenth":
            return first_sixteenth(layer, layers)
        case "middle_three_quarters":
            return middle_three_quarters(layer, layers)


def position(tensor: Tensor, layer: int, traits: ModelTraits, *, counted: bool = False) -> tuple[int, int]:
    """Place i of n that a recipe's choice of layers looks at.

    llama.cpp's quantiser does not always look at the layer. Projections of values are counted: i is how many came
    before, n how many there are (a hybrid model has some layers without). Gate, up and down projections are counted as
    well, against the number of layers; with experts it takes the layer instead, except for the down projections of
    mixes of one and two bits (`counted`).

    Parameters
    ----------
    tensor : Tensor
        The tensor.
    layer : int
        Its layer, counted from 0. [-]
    traits : ModelTraits
        The model.
    counted : bool
        Count down projections though the model has experts.

    Returns
    -------
    tuple of int
        i and n. [-]

    References
    ----------
    ggml-org/llama.cpp, src/llama-quant.cpp: ``init_quantize_state_counters``, ``layer_info`` in
    ``llama_tensor_get_type_impl``. The order within a layer is that of names: ``ffn_down_exps`` before
    ``ffn_down_shexp``.
    """
    if tensor.name in _VALUE_CLASSES and traits.value_tensors:
        before = _before(traits.value_tensors)
        return before[layer], before[-1]
    if tensor.name.startswith("ffn_") and traits.down_tensors and (counted or traits.experts <= 1):
        second = tensor.name.endswith("_shexp") and traits.down_tensors[layer] > 1
        return _before(traits.down_tensors)[layer] + second, traits.layer_count
    return layer, traits.layer_count


@lru_cache(maxsize=256)
def _before(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Running sum of counts, with 0 in front: entry i is the sum before layer i, the last one the sum of all."""
    return tuple(accumulate(counts, initial=0))


def encoding_of(
    tensor: Tensor, layer: int, traits: ModelTraits, fmt: FormatSpec, encodings: Mapping[str, Encoding]
) -> str:
    """Name of the encoding that a format gives a tensor.

    The first rule decides whose names, choice of layers and condition all hold; vectors take the format's `vectors`.
    Rows that are no multiple of the encoding's block move on along the chain of fallbacks.

    Parameters
    ----------
    tensor : Tensor
        The tensor. The head of a tied model is called ``output``.
    layer : int
        Its layer, counted from 0; −1 outside the layers. [-]
    traits : ModelTraits
        The model.
    fmt : FormatSpec
        The format.
    encodings : mapping of str to Encoding
        The table.

    Returns
    -------
    str
        A key of the table.

    Raises
    ------
    InvalidSpec
        A rule names an encoding that the table does not hold.
    """
    if tensor.use == "vector":
        return fmt.vectors
    if traits.mxfp4_experts and fmt.family == "gguf" and tensor.name.endswith("_exps"):
        return KEPT_EXPERTS
    rule = next(rule for rule in fmt.rules if _holds(rule, tensor, layer, traits))
    name, fallback = rule.encoding, rule.fallback
    while (step := _step(name, fallback, tensor.columns, fmt, encodings)) != name:
        name, fallback = step, None
    return name


def is_alike_in_layers(tensor: Tensor, traits: ModelTraits, fmt: FormatSpec) -> bool:
    """Whether a format gives a tensor the same encoding in each layer: the first rule for it is one for all layers."""
    if tensor.use == "vector" or (traits.mxfp4_experts and fmt.family == "gguf" and tensor.name.endswith("_exps")):
        return True
    for rule in fmt.rules:
        if _named(rule.tensors, tensor.name) and (rule.when is None or _met(rule.when, traits)):
            return rule.layers is None and rule.first_layers is None
    return False


def _step(name: str, fallback: str | None, columns: int, fmt: FormatSpec, encodings: Mapping[str, Encoding]) -> str:
    """The same name where rows fit the block or nothing is left to fall back to, else the next of the chain."""
    if name not in encodings:
        raise InvalidSpec(f"encoding '{name}' is not in the table of encodings", where=fmt.id)
    encoding = encodings[name]
    if columns % encoding.block_elements == 0:
        return name
    return fallback or encoding.fallback or name


def _holds(rule: Rule, tensor: Tensor, layer: int, traits: ModelTraits) -> bool:
    if not _named(rule.tensors, tensor.name):
        return False
    if rule.when is not None and not _met(rule.when, traits):
        return False
    if rule.layers is None and rule.first_layers is None:
        return True
    if layer == OUTSIDE:
        return False
    place, places = position(tensor, layer, traits, counted=rule.layers == "first_eighth_counted")
    if rule.first_layers is not None and place >= rule.first_layers:
        return False
    return rule.layers is None or chosen(rule.layers, place, places)


@lru_cache(maxsize=4096)
def _named(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a class name is one of the patterns; ``*`` stands at either end for anything."""
    return any(_fits(pattern, name) for pattern in patterns)


def _fits(pattern: str, name: str) -> bool:
    core = pattern.strip("*")
    match pattern.startswith("*"), pattern.endswith("*"):
        case False, False:
            return name == core
        case False, True:
            return name.startswith(core)
        case True, False:
            return name.endswith(core)
        case _:
            return core in name


def _met(when: Condition, traits: ModelTraits) -> bool:
    """Whether every field of a condition that is given holds."""
    return (
        when.tied_embeddings in (None, traits.tied_embeddings)
        and when.experts in (None, traits.experts)
        and when.layer_count in (None, traits.layer_count)
        and (when.min_experts is None or traits.experts >= when.min_experts)
        and (when.min_gqa is None or traits.gqa >= when.min_gqa)
        and (when.max_gqa is None or traits.gqa <= when.max_gqa)
    )


def tensor_bytes(tensor: Tensor, encoding: Encoding) -> int:
    """Bytes of a tensor in an encoding.

    With R rows of C columns, c copies, blocks of B elements and b_B bytes, tiles of R_t x C_t elements with b_t bytes,
    and b_r and b_m bytes more for each row and each copy:

        c (R ceil(C / B) b_B + ceil(R / R_t) ceil(C / C_t) b_t + R b_r + b_m)

    A block or tile that has begun counts whole.

    Parameters
    ----------
    tensor : Tensor
        The tensor.
    encoding : Encoding
        The encoding.

    Returns
    -------
    int
        [byte]
    """
    size = tensor.rows * _parts(tensor.columns, encoding.block_elements) * encoding.block_bytes
    if encoding.tile is not None and encoding.tile_scale_bytes is not None:
        tile_rows, tile_columns = encoding.tile
        tiles = _parts(tensor.rows, tile_rows) * _parts(tensor.columns, tile_columns)
        size += tiles * encoding.tile_scale_bytes
    if encoding.row_scale_bytes is not None:
        size += tensor.rows * encoding.row_scale_bytes
    if encoding.tensor_scale_bytes is not None:
        size += encoding.tensor_scale_bytes
    return size * tensor.copies


def _parts(length: int, size: int) -> int:
    """Parts of a size that a length takes, the last one begun: ceil(length / size)."""
    return -(-length // size)
