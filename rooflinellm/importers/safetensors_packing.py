"""How the weights of a checkpoint are packed, as its configuration says: what a stored number unpacks to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rooflinellm.importers.safetensors import DTYPE_BITS, SafeTensor
from rooflinellm.specs.weights import Family

PLAIN = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
"""Types that are encodings of their own."""


@dataclass(frozen=True)
class Packing:
    """How the quantised weights of a checkpoint are packed, as its configuration says.

    Attributes
    ----------
    family : str
        Family of formats, which decides the engine.
    method : str
        Name of the quantisation; empty where there is none.
    bits : int or None
        Bits of an element.
    encoding : str
        Encoding of packed weights, which tells the arithmetic.
    modules : mapping of str to int
        Bits of single modules that differ.
    """

    family: Family = "hf"
    method: str = ""
    bits: int | None = None
    encoding: str = ""
    modules: Mapping[str, int] = field(default_factory=dict)

    def unpack(self, tensor: SafeTensor, leaf: str) -> tuple[int, str]:
        """Elements of a weight once unpacked, and its encoding; 0 elements where the configuration does not say."""
        stored_in, bits = tensor.dtype, DTYPE_BITS[tensor.dtype]
        if leaf == "trellis":
            return (tensor.shape[0] * tensor.shape[1] * 256 if len(tensor.shape) == 3 else 0), self.encoding or "exl3_4"
        if leaf == "blocks":
            return tensor.elements * 2, "mxfp4"
        if leaf in ("qweight", "weight_packed") or stored_in in ("U32", "I32"):
            width = self.modules.get(tensor.name.removesuffix(f".{leaf}"), self.bits)
            if stored_in == "U8" and leaf == "weight_packed" and width is None:
                width = 4
            return (tensor.elements * bits // width if width else 0), self.encoding or "int4_g128"
        if stored_in == "F4":
            return tensor.elements, self.encoding or "nvfp4_g16"
        if stored_in == "U8" and self.method and not self.encoding.startswith("fp8"):
            return tensor.elements * 2, self.encoding or "nvfp4_g16"
        if stored_in in PLAIN:
            return tensor.elements, PLAIN[stored_in]
        if stored_in.startswith("F8"):
            return tensor.elements, self.encoding if self.encoding.startswith(("fp8", "mxfp8")) else "fp8_tensor"
        return tensor.elements, "int8_row" if stored_in == "I8" else stored_in.lower()


_INT4 = {32: "int4_g32_zp"}
_MLX = frozenset(
    {"mlx_3bit_g64", "mlx_4bit_g32", "mlx_4bit_g64", "mlx_5bit_g64", "mlx_6bit_g64", "mlx_8bit_g32", "mlx_8bit_g64"}
)


def packing_of(values: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> Packing:
    """How a checkpoint's weights are packed.

    Parameters
    ----------
    values : mapping
        The whole configuration.
    beside : mapping, optional
        ``hf_quant_config.json``.

    Returns
    -------
    Packing
    """
    mlx = values.get("quantization")
    if isinstance(mlx, dict) and "group_size" in mlx:
        return _packing_of_mlx(mlx)
    parts = [values, *(_object(values, name) for name in ("text_config", "llm_config", "language_config"))]
    found = next((each for part in parts if (each := _object(part, "quantization_config"))), None)
    found = found or _object(beside or {}, "quantization")
    if not found:
        return Packing()
    method = str(found.get("quant_algo") or found.get("quant_method") or "compressed-tensors").lower()[:40]
    bits = next((found[name] for name in ("bits", "w_bit") if type(found.get(name)) is int), None)
    group = next((found[name] for name in ("group_size", "q_group_size") if type(found.get(name)) is int), 128)
    if method in ("awq", "gptq", "auto-round", "intel/auto-round"):
        return Packing("hf", method, _width(bits, 4), "int8_g128" if bits == 8 else _INT4.get(group, "int4_g128_zp"))
    if method == "bitsandbytes":
        nested = found.get("bnb_4bit_use_double_quant") is True
        eight = found.get("load_in_8bit") is True or found.get("_load_in_8bit") is True
        return Packing("hf", method, None if eight else 4, "int8_row" if eight else "nf4_dq" if nested else "nf4")
    if method == "exl3":
        return Packing("exl", method, None, "exl3_4")
    if "fp4" in method:
        return Packing("hf", method, 4, "mxfp4" if method == "mxfp4" else "nvfp4_g16")
    if "fp8" in method:
        if found.get("weight_block_size") is not None or "pb" in method:
            return Packing("hf", method, None, "fp8_block128")
        return Packing("hf", method, None, "fp8_channel" if "channel" in method else "fp8_tensor")
    return _packing_of_groups(found, method)


def _object(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A nested object; an empty one where there is none."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _width(bits: Any, default: int) -> int:
    return bits if type(bits) is int and 1 <= bits <= 16 else default


def _packing_of_mlx(values: Mapping[str, Any]) -> Packing:
    bits, group, mode = _width(values.get("bits"), 4), values.get("group_size"), values.get("mode")
    encoding = f"mlx_{mode}" if mode in ("mxfp4", "nvfp4") else f"mlx_{bits}bit_g{group}"
    if encoding not in _MLX and mode not in ("mxfp4", "nvfp4"):
        encoding = "mlx_8bit_g64" if bits >= 8 else "mlx_4bit_g64"
    modules = {str(name): _width(each.get("bits"), bits) for name, each in values.items() if isinstance(each, dict)}
    return Packing("mlx", f"{bits}bit" if mode in (None, "affine") else str(mode), bits, encoding, modules)


def _packing_of_groups(found: Mapping[str, Any], method: str) -> Packing:
    """Compressed-tensors: the first group's weights."""
    groups = _object(found, "config_groups")
    weights = next((each for name in groups if (each := _object(_object(groups, name), "weights"))), {})
    bits, group, strategy = weights.get("num_bits"), weights.get("group_size"), weights.get("strategy")
    if weights.get("type") == "float":
        if bits == 4:
            return Packing("hf", method, 4, "mxfp4" if group == 32 else "nvfp4_g16")
        encodings = {"block": "fp8_block128", "channel": "fp8_channel"}
        return Packing("hf", method, None, encodings.get(str(strategy), "fp8_tensor"))
    if bits == 8 and found.get("format") != "pack-quantized":
        return Packing("hf", method, 8, "int8_row")
    if bits in (4, 8):
        return Packing("hf", method, bits, "int8_g128" if bits == 8 else "int4_g32_zp" if group == 32 else "int4_g128")
    return Packing("hf", method, bits if type(bits) is int and 1 <= bits <= 16 else None, "int4_g128")
