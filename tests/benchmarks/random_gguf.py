"""GGUF files of Llama architecture with random weights: they run at the speed of real ones, and say nothing.

Requires the packages `gguf` and `numpy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, LlamaFileType
from numpy.typing import NDArray

VOCABULARY = 32_000
CONTEXT = 4096
SIGMA = 0.02
"""Spread of the weights: small enough that no activation overflows."""
Q4_K_BYTES, Q4_K_WEIGHTS = 144, 256
"""A block of Q4_K: two 16-bit scales, 12 bytes of 6-bit scales and minima, 128 of 4-bit weights."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    name: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the matrices of a layer."""
        kv = self.width // self.heads * self.kv_heads
        return {
            "attn_q": (self.width, self.width),
            "attn_k": (kv, self.width),
            "attn_v": (kv, self.width),
            "attn_output": (self.width, self.width),
            "ffn_gate": (self.ffn, self.width),
            "ffn_up": (self.ffn, self.width),
            "ffn_down": (self.width, self.ffn),
        }


SHAPES = (
    Shape("0.4b", width=1024, layers=24, heads=16, kv_heads=8, ffn=4096),
    Shape("1.1b", width=2048, layers=22, heads=32, kv_heads=4, ffn=5632),
    Shape("3.0b", width=3072, layers=28, heads=24, kv_heads=8, ffn=8192),
)
"""Narrow and deep; TinyLlama's; Llama 3.2 3B's but for the vocabulary."""


def _quantised(encoding: GGMLQuantizationType) -> Callable[[NDArray[np.float32]], NDArray[np.generic]]:
    return lambda weights: gguf.quants.quantize(weights, encoding)


def _random_q4_k(weights: NDArray[np.float32]) -> NDArray[np.generic]:
    """Blocks of random bytes with scales that keep the weights small; `gguf` does not quantise to Q4_K."""
    rows, columns = weights.shape
    blocks = np.random.default_rng(0).integers(0, 256, (rows, columns // Q4_K_WEIGHTS, Q4_K_BYTES), np.uint8)
    # A weight is d * scale * q - dmin * minimum, with 6-bit scale and minimum and 4-bit q.
    scales = np.array([SIGMA / (32 * 8), SIGMA / 32], np.float16).view(np.uint8)
    blocks[:, :, :4] = scales
    return blocks.reshape(rows, -1)


FORMATS: dict[str, tuple[GGMLQuantizationType, LlamaFileType, Callable[[NDArray[np.float32]], NDArray[np.generic]]]] = {
    "F16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16, lambda weights: weights.astype(np.float16)),
    "Q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0, _quantised(GGMLQuantizationType.Q8_0)),
    "Q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0, _quantised(GGMLQuantizationType.Q4_0)),
    "Q4_K": (GGMLQuantizationType.Q4_K, LlamaFileType.MOSTLY_Q4_K_S, _random_q4_k),
}


def write(path: Path, shape: Shape, form: str) -> None:
    """Write a file; every layer holds the same weights, which takes a moment instead of minutes.

    Parameters
    ----------
    path : Path
        Where to; replaced if it is there.
    shape : Shape
        Sizes.
    form : str
        One of `FORMATS`, for all matrices.
    """
    encoding, file_type, encode = FORMATS[form]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random {shape.name}")
    writer.add_file_type(file_type)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    _add_tokenizer(writer)

    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> NDArray[np.generic]:
        return encode(random.standard_normal((rows, columns), np.float32) * np.float32(SIGMA))

    def add(name: str, data: NDArray[np.generic]) -> None:
        writer.add_tensor(name, data, raw_dtype=encoding)

    table = matrix(VOCABULARY, shape.width)
    add("token_embd.weight", table)
    layer = {name: matrix(*size) for name, size in shape.matrices().items()}
    ones = np.ones(shape.width, np.float32)
    for index in range(shape.layers):
        for name, data in layer.items():
            add(f"blk.{index}.{name}.weight", data)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{index}.{name}.weight", ones)
    writer.add_tensor("output_norm.weight", ones)
    add("output.weight", table)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """The least that a runtime loads: control tokens, the bytes, and words that no text has."""
    special = ["<unk>", "<s>", "</s>"]
    single = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [f"▁w{number}" for number in range(VOCABULARY - len(special) - len(single))]
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2
    kinds += [gguf.TokenType.BYTE] * len(single) + [gguf.TokenType.NORMAL] * len(words)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *single, *words])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
