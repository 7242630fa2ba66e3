"""Sizes of repositories of mlx-community against the weight bytes of the MLX formats.

The sizes are the sums over safetensors files that exo-explore/exo keeps (commit b5375f8cee43,
resources/inference_model_cards, storage_size.in_bytes). Sizes there that are a whole MiB or a tenth of a GiB are
rounded ones, some of them decimal figures read as binary, and left out. Conversions keep the towers for images and
sound, in 16 bits, and drop the module that predicts further tokens.

Left out as well are conversions with settings of their own: Qwen3-Coder-Next and Step 3.5 Flash, Gemma 4 26B-A4B in 4
and 6 bits (its dense part is in 8), and Gemma 4 E4B in 4 bits (its projection to per-layer inputs is in 16).
"""

from __future__ import annotations

import pytest

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm.engine.layout import lay_out
from rooflinellm.specs.formats import packaged_encodings

PLAIN = [
    ("deepseek-v3.2", "4bit", 378_086_226_621),
    ("glm-4.7", "4bit", 198_556_925_568),
    ("glm-4.7", "8bit-g32", 396_963_397_248),
    ("glm-5.1", "mxfp4-q8", 405_480_321_024),
    ("llama-3.1-70b", "8bit", 74_964_549_632),  # Llama-3.1-Nemotron-70B-Instruct, the same shapes
    ("minimax-m2.1", "8bit", 242_986_745_856),
    ("minimax-m2.5", "4bit", 128_666_664_960),
    ("minimax-m2.7", "mxfp4", 121_537_496_794),
    ("minimax-m2.7", "5bit", 157_262_619_651),
    ("minimax-m2.7", "6bit", 185_842_639_299),
    ("minimax-m2.7", "8bit", 243_002_680_786),
    ("nemotron-3-nano-30b-a3b", "4bit", 17_775_342_336),
    ("nemotron-3-nano-30b-a3b", "6bit", 25_667_611_392),
    ("nemotron-3-nano-30b-a3b", "bf16", 63_155_889_408),
    ("nemotron-nano-9b-v2", "4bit", 5_002_791_936),
]
WITH_TOWERS = [
    ("qwen3.5-2b", "8bit", 2_662_787_264),
    ("qwen3.5-9b", "4bit", 5_950_062_560),
    ("qwen3.5-27b", "4bit", 16_054_266_848),
    ("qwen3.5-35b-a3b", "8bit", 37_721_130_592),
    ("qwen3.5-122b-a10b", "6bit", 100_120_675_296),
    ("qwen3.5-122b-a10b", "bf16", 245_125_640_160),
    ("qwen3.5-397b-a17b", "6bit", 322_946_674_272),
    ("qwen3.5-397b-a17b", "8bit", 422_032_580_192),
    ("qwen3.6-27b", "8bit", 29_500_938_720),
    ("qwen3.6-27b", "bf16", 54_713_457_120),
    ("qwen3.6-35b-a3b", "4bit", 20_401_929_952),
    ("qwen3.6-35b-a3b", "8bit", 37_721_128_672),
    ("qwen3.6-35b-a3b", "bf16", 70_214_363_872),
    ("gemma-4-26b-a4b", "bf16", 51_611_872_412),
    ("gemma-4-31b", "4bit", 18_411_755_224),
    ("gemma-4-31b", "8bit", 33_762_858_712),
    ("gemma-4-31b", "bf16", 62_546_177_752),
    ("gemma-4-e2b", "6bit", 4_739_998_662),
    ("gemma-4-e4b", "8bit", 8_964_930_516),
]


def weight_bytes(model: str, fmt: str) -> int:
    return lay_out(
        rl.model(model), catalog.weight_format(f"mlx:{fmt}", ("mlx",)), packaged_encodings().encodings
    ).resident_bytes


@pytest.mark.parametrize(("model", "fmt", "size"), PLAIN)
def test_a_text_model(model: str, fmt: str, size: int) -> None:
    assert weight_bytes(model, fmt) == pytest.approx(size, rel=0.0005)


@pytest.mark.parametrize(("model", "fmt", "size"), WITH_TOWERS)
def test_a_model_with_towers(model: str, fmt: str, size: int) -> None:
    tower = rl.model(model).entry.tower_params
    assert tower is not None
    assert weight_bytes(model, fmt) + 2 * tower == pytest.approx(size, rel=0.005)


@pytest.mark.parametrize(
    ("model", "fmt", "size"),
    [
        ("qwen3.5-2b", "8bit", 2_662_787_264),
        ("qwen3.6-27b", "8bit", 29_500_938_720),
        ("qwen3.6-35b-a3b", "bf16", 70_214_363_872),
        ("gemma-4-31b", "bf16", 62_546_177_752),
    ],
)
def test_what_remains_are_headers_of_files(model: str, fmt: str, size: int) -> None:
    assert abs(size - weight_bytes(model, fmt) - 2 * (rl.model(model).entry.tower_params or 0)) < 2**20
