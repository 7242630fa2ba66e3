"""Formats: block sizes, recipes and the bytes they give, against published numbers.

Sources named below: "quantize README" is ggml-org/llama.cpp tools/quantize/README.md, "snapshots" are
ggml-org/llama.cpp tests/snapshots/*.schema (the types that llama.cpp's quantiser gives each tensor), both in the copy
that llama-cpp-python 0.3.36 on PyPI carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from rooflinellm import _resources
from rooflinellm.errors import InvalidSpec
from rooflinellm.operators import recipe
from rooflinellm.operators.recipe import OUTSIDE, ModelTraits, encoding_of, tensor_bytes, traits_of
from rooflinellm.operators.tensors import Tensor, vector
from rooflinellm.specs.common import load, validate
from rooflinellm.specs.formats import Encoding, Encodings, FormatSpec

GIB = 2**30
FOLDER = _resources.database("model_db") / "formats"
FILES = sorted(
    (family.name, file.name.removesuffix(".yaml"))
    for family in FOLDER.iterdir()
    if family.is_dir()
    for file in family.iterdir()
)


@cache
def table() -> Encodings:
    return load(Encodings, FOLDER / "encodings.yaml")


@cache
def read(name: str) -> FormatSpec:
    family, _, file = name.partition(":")
    return load(FormatSpec, FOLDER / family / f"{file}.yaml")


# -------------------------------------------------------------------------------------------- models, from their shapes


@dataclass(frozen=True)
class Shape:
    """A model as a list of tensors: those around the layers, and those of each layer."""

    ends: tuple[Tensor, ...]
    layers: tuple[tuple[Tensor, ...], ...]
    traits: ModelTraits

    @property
    def params(self) -> int:
        return sum(t.params for part in (self.ends, *self.layers) for t in part)


def attention(
    hidden: int, heads: int, kv_heads: int, head_dim: int, *, bias: int = 0, norms: int = 0, sinks: int = 0
) -> list[Tensor]:
    """`bias`: 1 for queries, keys and values, 2 for the output as well."""
    tensors = [
        Tensor("attn_q", heads * head_dim, hidden),
        Tensor("attn_k", kv_heads * head_dim, hidden),
        Tensor("attn_v", kv_heads * head_dim, hidden),
        Tensor("attn_output", hidden, heads * head_dim),
    ]
    biases = tensors[: {0: 0, 1: 3, 2: 4}[bias]]
    tensors += [vector(f"{t.name}.bias", t.rows) for t in biases]
    tensors += [vector("attn_q_norm", head_dim), vector("attn_k_norm", head_dim)] if norms else []
    return [*tensors, vector("attn_sinks", heads)] if sinks else tensors


def feed_forward(hidden: int, intermediate: int) -> list[Tensor]:
    return [
        Tensor("ffn_gate", intermediate, hidden),
        Tensor("ffn_up", intermediate, hidden),
        Tensor("ffn_down", hidden, intermediate),
    ]


def mixture(hidden: int, intermediate: int, experts: int, *, bias: bool = False) -> list[Tensor]:
    tensors = [
        Tensor("ffn_gate_inp", experts, hidden),
        Tensor("ffn_gate_exps", intermediate, hidden, experts),
        Tensor("ffn_up_exps", intermediate, hidden, experts),
        Tensor("ffn_down_exps", hidden, intermediate, experts),
    ]
    return tensors + [vector(f"{t.name}.bias", t.rows, t.copies) for t in tensors] if bias else tensors


def shape(layers: int, hidden: int, vocabulary: int, layer: Sequence[Tensor], *, gqa: int, tied: bool = False) -> Shape:
    ends = (vector("output_norm", hidden), Tensor("output", vocabulary, hidden))
    if not tied:
        ends += (Tensor("token_embd", vocabulary, hidden, use="lookup"),)
    written = ((*layer, vector("attn_norm", hidden), vector("ffn_norm", hidden)),) * layers
    return Shape(ends, written, traits_of(written, gqa=gqa, tied_embeddings=tied))


# Shapes: config.json of each model on Hugging Face.
MODELS = {
    "llama-3.1-8b": shape(32, 4096, 128256, attention(4096, 32, 8, 128) + feed_forward(4096, 14336), gqa=4),
    "llama-3.1-70b": shape(80, 8192, 128256, attention(8192, 64, 8, 128) + feed_forward(8192, 28672), gqa=8),
    "llama-3.2-1b": shape(16, 2048, 128256, attention(2048, 32, 8, 64) + feed_forward(2048, 8192), gqa=4, tied=True),
    "llama-2-13b": shape(40, 5120, 32000, attention(5120, 40, 40, 128) + feed_forward(5120, 13824), gqa=1),
    "qwen2.5-3b": shape(
        36, 2048, 151936, attention(2048, 16, 2, 128, bias=1) + feed_forward(2048, 11008), gqa=8, tied=True
    ),
    "qwen2.5-7b": shape(28, 3584, 152064, attention(3584, 28, 4, 128, bias=1) + feed_forward(3584, 18944), gqa=7),
    "qwen3-0.6b": shape(
        28, 1024, 151936, attention(1024, 16, 8, 128, norms=1) + feed_forward(1024, 3072), gqa=2, tied=True
    ),
    "qwen3-4b": shape(
        36, 2560, 151936, attention(2560, 32, 8, 128, norms=1) + feed_forward(2560, 9728), gqa=4, tied=True
    ),
    "qwen3-8b": shape(36, 4096, 151936, attention(4096, 32, 8, 128, norms=1) + feed_forward(4096, 12288), gqa=4),
    "qwen3-30b-a3b": shape(48, 2048, 151936, attention(2048, 32, 4, 128, norms=1) + mixture(2048, 768, 128), gqa=8),
    "qwen3-235b-a22b": shape(94, 4096, 151936, attention(4096, 64, 4, 128, norms=1) + mixture(4096, 1536, 128), gqa=16),
    "mixtral-8x7b": shape(32, 4096, 32000, attention(4096, 32, 8, 128) + mixture(4096, 14336, 8), gqa=4),
    "gpt-oss-20b": shape(
        24,
        2880,
        201088,
        attention(2880, 64, 8, 64, bias=2, sinks=1) + mixture(2880, 2880, 32, bias=True),
        gqa=8,
    ),
    "gpt-oss-120b": shape(
        36,
        2880,
        201088,
        attention(2880, 64, 8, 64, bias=2, sinks=1) + mixture(2880, 2880, 128, bias=True),
        gqa=8,
    ),
    "minimax-m2": shape(
        62,
        3072,
        200064,
        [
            *attention(3072, 48, 8, 128),
            vector("attn_q_norm", 6144),
            vector("attn_k_norm", 1024),
            *mixture(3072, 1536, 256),
            vector("exp_probs_b", 256),
        ],
        gqa=6,
    ),
}


def weight_bytes(model: Shape, name: str) -> int:
    encodings = table().encodings
    return sum(
        tensor_bytes(t, encodings[encoding_of(t, layer, model.traits, read(name), encodings)])
        for layer, part in [(OUTSIDE, model.ends), *enumerate(model.layers)]
        for t in part
    )


def chosen(model: Shape, name: str) -> dict[str, list[str]]:
    """Encodings by class of tensor: one a layer."""
    result: dict[str, list[str]] = {}
    for layer, part in [(OUTSIDE, model.ends), *enumerate(model.layers)]:
        for t in part:
            encoding = encoding_of(t, layer, model.traits, read(name), table().encodings)
            result.setdefault(t.name, []).append(encoding)
    return result


def test_shapes_have_the_published_parameters() -> None:
    # Hugging Face, parameter counts of the safetensors files.
    assert MODELS["llama-3.1-8b"].params == 8_030_261_248
    assert MODELS["llama-3.1-70b"].params == 70_553_706_496
    assert MODELS["qwen3-8b"].params == 8_190_735_360
    assert MODELS["gpt-oss-20b"].params == 20_914_757_184
    assert MODELS["minimax-m2"].params == 228_689_764_864


# ------------------------------------------------------------------------------------------------------------ encodings

# ggml-org/llama.cpp ggml/src/ggml-common.h, sizes asserted there; all but q8_1 (stale there) and q2_0 (absent there) as
# GGML_QUANT_SIZES of gguf 0.19.0 on PyPI has them.
GGML_BLOCKS = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2),
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q8_1": (32, 36),
    "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210),
    "q8_k": (256, 292), "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74),
    "iq2_s": (256, 82), "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18), "iq4_xs": (256, 136),
    "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17), "nvfp4": (64, 36), "q1_0": (128, 18), "q2_0": (64, 18),
}  # fmt: skip


@pytest.mark.parametrize("name", GGML_BLOCKS)
def test_blocks_of_ggml(name: str) -> None:
    encoding = table().encodings[name]
    assert (encoding.block_elements, encoding.block_bytes) == GGML_BLOCKS[name]


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("int4_g128", 4.125),
        ("int4_g128_zp", 4.15625),
        ("int4_g32_zp", 4.625),
        ("int8_g128", 8.1875),
        ("nf4", 4.5),
        ("nf4_dq", 4.126953125),  # Dettmers et al. (2023), QLoRA, section 3: 0.5 and 0.127 bits for the constants
        ("fp8_block128", 8.001953125),
        ("mxfp4", 4.25),
        ("nvfp4_g16", 4.5),
        ("mlx_3bit_g64", 3.5),
        ("mlx_4bit_g64", 4.5),
        ("mlx_4bit_g32", 5.0),
        ("mlx_5bit_g64", 5.5),
        ("mlx_6bit_g64", 6.5),
        ("mlx_8bit_g64", 8.5),
        ("exl3_2.5", 2.5),
        ("exl2_4.65", 4.5 + 8 * 307 / 128**2),
    ],
)
def test_bits_per_element(name: str, bits: float) -> None:
    encoding = table().encodings[name]
    assert encoding.bits_per_element == bits
    matrix = Tensor("attn_q", 4096, 4096)
    per_row = 8 * (encoding.row_scale_bytes or 0) / matrix.columns
    assert 8 * tensor_bytes(matrix, encoding) / matrix.params == pytest.approx(bits + per_row, rel=1e-6)


def test_bytes_of_a_tensor() -> None:
    encodings = table().encodings
    assert tensor_bytes(Tensor("a", 3, 512), encodings["q4_k"]) == 3 * 2 * 144
    assert tensor_bytes(Tensor("a", 3, 512, copies=4), encodings["q4_k"]) == 4 * 3 * 2 * 144
    # DeepSeek-V3 README_WEIGHTS.md: blocks that are not full are padded, so 3 x 513 begins 1 x 5 tiles.
    assert tensor_bytes(Tensor("a", 3, 513), encodings["fp8_block128"]) == 3 * 513 + 5 * 4
    assert tensor_bytes(Tensor("a", 3, 512, copies=4), encodings["fp8_tensor"]) == 4 * (3 * 512 + 4)
    assert tensor_bytes(Tensor("a", 3, 512, copies=4), encodings["fp8_channel"]) == 4 * 3 * (512 + 2)
    # Zero points of 4 bits, two to a byte along the output features: AutoAWQ packs K/128 x N/8 words of 4 bytes.
    assert tensor_bytes(Tensor("a", 64, 256), encodings["int4_g128_zp"]) == 64 * 256 // 2 + 2 * 64 * 2 + 2 * 64 // 2


def test_fallbacks_end_at_a_type_that_always_fits() -> None:
    encodings = table().encodings
    for name, encoding in encodings.items():
        chain = [name]
        while (following := encodings[chain[-1]].fallback) is not None:
            assert following not in chain
            chain.append(following)
        if encoding.fallback is not None:
            assert encodings[chain[-1]].block_elements == 1, chain


def test_kv_types() -> None:
    types = table().kv_types
    assert {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "fp8"} <= set(types)
    names = [name for key, kv_type in types.items() for name in (key, *kv_type.aliases)]
    assert len(names) == len(set(names))
    assert "fp16" in types["f16"].aliases


# --------------------------------------------------------------------------------------------------------- format files


@pytest.mark.parametrize(("family", "name"), FILES)
def test_file_is_what_its_name_says(family: str, name: str) -> None:
    spec = read(f"{family}:{name}")
    assert spec.id == f"{family}:{name}"
    assert spec.family == family
    assert spec.sources
    used = {spec.vectors} | {rule.encoding for rule in spec.rules}
    assert used | {rule.fallback for rule in spec.rules if rule.fallback} <= set(table().encodings)


@pytest.mark.parametrize("family", ["gguf", "hf", "mlx", "exl"])
def test_names_are_unique_within_a_family(family: str) -> None:
    owners: dict[str, str] = {}
    for name in (name for owner, name in FILES if owner == family):
        for alias in (name, *read(f"{family}:{name}").aliases):
            plain = "".join(c for c in alias.lower() if c.isalnum())
            assert owners.setdefault(plain, name) == name, alias


@pytest.mark.parametrize(
    ("alias", "name"),
    [  # as llama-bench prints them: ggml-org/llama.cpp src/llama-model-loader.cpp llama_ftype_name
        ("all F32", "f32"),
        ("mostly F16", "f16"),
        ("Q2_K - Medium", "q2_k"),
        ("Q3_K - Large", "q3_k_l"),
        ("Q4_K - Medium", "q4_k_m"),
        ("Q5_K - Small", "q5_k_s"),
        ("IQ2_M - 2.7 bpw", "iq2_m"),
        ("IQ3_S mix - 3.66 bpw", "iq3_m"),
        ("IQ4_XS - 4.25 bpw", "iq4_xs"),
        ("MXFP4 MoE", "mxfp4"),
        ("TQ2_0 - 2.06 bpw ternary", "tq2_0"),
    ],
)
def test_names_as_llama_bench_prints_them(alias: str, name: str) -> None:
    assert alias in read(f"gguf:{name}").aliases


def test_recipe_must_cover_every_tensor() -> None:
    rule = {"tensors": ["attn_q"], "encoding": "f16"}
    entry = {"schema": 1, "id": "gguf:x", "name": "x", "family": "gguf", "vectors": "f32", "rules": [rule]}
    with pytest.raises(InvalidSpec, match="last rule must match every tensor"):
        validate(FormatSpec, entry, where="x.yaml")
    entry["rules"] = [{"tensors": ["a*b"], "encoding": "f16"}, {"tensors": ["*"], "encoding": "f16"}]
    with pytest.raises(InvalidSpec, match=r"rules\.0\.tensors\.0"):
        validate(FormatSpec, entry, where="x.yaml")


def test_unknown_encoding_is_named() -> None:
    fmt = read("gguf:q4_0")
    with pytest.raises(InvalidSpec, match="gguf:q4_0: encoding 'q4_0' is not in the table"):
        encoding_of(Tensor("attn_q", 1, 32), 0, MODELS["llama-3.1-8b"].traits, fmt, {})


# ---------------------------------------------------------------------------------------------------- choices of layers


def test_more_bits() -> None:
    # quantize README's Q4_K_M and the snapshots: 32 layers -> 4 + 4 + 8; 28 -> 3 + 4 + 7.
    assert [i for i in range(32) if recipe.more_bits(i, 32)] == [
        0,
        1,
        2,
        3,
        6,
        9,
        12,
        15,
        18,
        21,
        24,
        27,
        28,
        29,
        30,
        31,
    ]
    assert [i for i in range(28) if recipe.more_bits(i, 28)] == [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    assert sum(recipe.more_bits(i, 80) for i in range(80)) == 40


def test_other_choices() -> None:
    assert [i for i in range(36) if recipe.first_eighth(i, 36)] == [0, 1, 2, 3]
    assert [i for i in range(36) if recipe.first_sixteenth(i, 36)] == [0, 1]
    assert [i for i in range(36) if recipe.middle_three_quarters(i, 36)] == list(range(4, 31))
    for choice in ("more_bits", "first_eighth", "first_eighth_counted", "first_sixteenth", "middle_three_quarters"):
        assert isinstance(recipe.chosen(choice, 3, 36), bool)


# --------------------------------------------------------------------------------------------- bits a weight, published

# quantize README, tables of meta-llama/Llama-3.1-8B.
BITS_PER_WEIGHT: Mapping[str, float] = {
    "iq1_s": 2.0042, "iq1_m": 2.1460, "iq2_xxs": 2.3824, "iq2_xs": 2.5882, "iq2_s": 2.7403, "iq2_m": 2.9294,
    "iq3_xxs": 3.2548, "iq3_xs": 3.4977, "iq3_s": 3.6606, "iq3_m": 3.7628, "iq4_xs": 4.4597, "iq4_nl": 4.6818,
    "q2_k_s": 2.9697, "q2_k": 3.1593, "q3_k_s": 3.6429, "q3_k_m": 3.9960, "q3_k_l": 4.2979, "q4_k_s": 4.6672,
    "q4_k_m": 4.8944, "q5_k_s": 5.5704, "q5_k_m": 5.7036, "q6_k": 6.5633, "q8_0": 8.5008, "f16": 16.0005,
}  # fmt: skip


@pytest.mark.parametrize("name", BITS_PER_WEIGHT)
def test_bits_per_weight_of_llama_8b(name: str) -> None:
    model = MODELS["llama-3.1-8b"]
    assert round(8 * weight_bytes(model, f"gguf:{name}") / model.params, 4) == BITS_PER_WEIGHT[name]


# ---------------------------------------------------------------------------------------------------------------- bytes


def test_bytes_that_are_known_exactly() -> None:
    # The file of Llama 3.1 holds 64 float factors of the rotary embedding beside the parameters.
    rope_factors = tensor_bytes(vector("rope_freqs", 64), table().encodings["f32"])
    assert weight_bytes(MODELS["llama-3.1-70b"], "gguf:q4_k_m") + rope_factors == 42_512_531_712
    assert weight_bytes(MODELS["qwen3-8b"], "gguf:q4_k_m") == 5_021_827_072
    # openai/gpt-oss-20b model.safetensors.index.json, total_size.
    assert weight_bytes(MODELS["gpt-oss-20b"], "hf:mxfp4") == 13_761_264_768
    assert weight_bytes(MODELS["llama-3.1-8b"], "hf:bf16") == 2 * 8_030_261_248 == 16_060_522_496
    # mlx-community/Llama-3.1-Nemotron-70B-Instruct-HF-8bit: exo-explore/exo@b5375f8cee43
    # resources/inference_model_cards, storage_size of the safetensors files.
    assert weight_bytes(MODELS["llama-3.1-70b"], "mlx:8bit") == 74_964_549_632


@pytest.mark.parametrize(
    ("model", "name", "size"),
    [
        # ggml-org/llama.cpp: tools/llama-bench/README.md, benches/mac-m2-ultra, docs/backend/snapdragon,
        # docs/build-riscv64-spacemit.md, as llama-bench prints sizes
        ("qwen2.5-7b", "gguf:q4_k_m", 4.36 * GIB),
        ("qwen2.5-7b", "gguf:q8_0", 7.54 * GIB),
        ("qwen3-30b-a3b", "gguf:q8_0", 30.25 * GIB),
        ("qwen3-30b-a3b", "gguf:q4_0", 16.18 * GIB),
        ("qwen3-0.6b", "gguf:q4_0", 358.78 * 2**20),
        ("llama-3.2-1b", "gguf:q4_0", 729.75 * 2**20),
        ("llama-2-13b", "gguf:q4_0", 6.86 * GIB),
        ("gpt-oss-120b", "gguf:mxfp4", 59.02 * GIB),
        # ikawrakow/ik_llama.cpp github-data, tables of llama-bench
        ("llama-3.1-8b", "gguf:iq2_xs", 2.42 * GIB),
        ("llama-3.1-8b", "gguf:q4_k_s", 4.38 * GIB),
        ("llama-3.1-8b", "gguf:q5_k_s", 5.21 * GIB),
        ("llama-3.1-8b", "gguf:bf16", 14.96 * GIB),
        ("qwen2.5-3b", "gguf:iq3_m", 1.38 * GIB),
        ("qwen2.5-3b", "gguf:q3_k_l", 1.58 * GIB),
        ("qwen2.5-3b", "gguf:q4_0", 1.70 * GIB),
        ("qwen2.5-3b", "gguf:q6_k", 2.36 * GIB),
        ("qwen2.5-3b", "gguf:q8_0", 3.05 * GIB),
        ("qwen3-235b-a22b", "gguf:q8_0", 232.77 * GIB),
        # gpustack/gguf-parser-go README
        ("qwen2.5-7b", "gguf:f16", 14.19 * GIB),
        ("llama-3.1-70b", "gguf:q4_0", 37.35 * GIB),
        # bartowski/Qwen_Qwen3-4B-GGUF, model card (decimal GB)
        ("qwen3-4b", "gguf:bf16", 8.05e9),
        ("qwen3-4b", "gguf:q8_0", 4.28e9),
        ("qwen3-4b", "gguf:q6_k_l", 3.40e9),
        ("qwen3-4b", "gguf:q5_k_m", 2.89e9),
        ("qwen3-4b", "gguf:q5_k_s", 2.82e9),
        ("qwen3-4b", "gguf:q4_1", 2.60e9),
        ("qwen3-4b", "gguf:q4_k_l", 2.59e9),
        ("qwen3-4b", "gguf:q4_k_m", 2.50e9),
        ("qwen3-4b", "gguf:q4_k_s", 2.38e9),
        # exo-explore/exo@b5375f8cee43 resources/inference_model_cards: mlx-community/MiniMax-M2*
        ("minimax-m2", "mlx:4bit", 128_666_664_960),
        ("minimax-m2", "mlx:5bit", 157_262_619_651),
        ("minimax-m2", "mlx:6bit", 185_842_639_299),
        ("minimax-m2", "mlx:8bit", 242_986_745_856),
        ("minimax-m2", "mlx:mxfp4", 121_537_496_794),
        ("gpt-oss-20b", "mlx:mxfp4-q8", 12_025_908_224),
    ],
)
def test_published_sizes(model: str, name: str, size: float) -> None:
    assert weight_bytes(MODELS[model], name) == pytest.approx(size, rel=0.005)


# ----------------------------------------------------------------------------------------- rules, against the snapshots


def test_a_70b_model_gets_more_bits_for_values() -> None:
    # snapshots, meta-llama-3.1-70b-instruct: attn_v is Q5_K where it would be Q3_K or Q4_K.
    model = MODELS["llama-3.1-70b"]
    assert set(chosen(model, "gguf:q2_k")["attn_v"]) == {"q5_k"}
    assert set(chosen(model, "gguf:q3_k_s")["attn_v"]) == {"q5_k"}
    assert chosen(model, "gguf:q4_k_m")["attn_v"].count("q6_k") == 40
    assert chosen(model, "gguf:q4_k_m")["attn_v"].count("q5_k") == 40
    assert set(chosen(model, "gguf:iq2_m")["attn_v"]) == {"q4_k"}
    assert set(chosen(MODELS["qwen2.5-7b"], "gguf:q4_k_m")["attn_v"]) == {"q4_k", "q6_k"}


def test_eight_experts() -> None:
    # ggml-org/llama.cpp src/llama-quant.cpp: with 8 experts keys and values are Q8_0, the output projection Q5_K.
    types = chosen(MODELS["mixtral-8x7b"], "gguf:q4_k_m")
    assert set(types["attn_k"]) == set(types["attn_v"]) == {"q8_0"}
    assert set(types["attn_output"]) == {"q5_k"}
    assert set(types["ffn_gate_inp"]) == {"f32"}
    assert types["ffn_down_exps"].count("q6_k") == 16
    assert set(chosen(MODELS["mixtral-8x7b"], "gguf:q3_k_l")["attn_output"]) == {"q3_k"}
    small = chosen(MODELS["mixtral-8x7b"], "gguf:iq2_xxs")
    assert set(small["attn_k"]) == set(small["attn_v"]) == {"q4_k"}
    assert set(small["attn_output"]) == {"q5_k"}


def test_rows_that_are_no_multiple_of_256() -> None:
    # snapshots, gpt-oss-120b (rows of 2880, attn_output of 4096).
    model = MODELS["gpt-oss-120b"]
    types = chosen(model, "gguf:q2_k")
    assert types["output"] == ["q8_0"]
    assert types["token_embd"] == ["q4_0"]
    assert set(types["attn_q"]) == {"q4_0"}
    assert set(types["attn_v"]) == {"q5_0"}
    assert set(types["attn_output"]) == {"q3_k"}
    assert chosen(model, "gguf:q6_k")["ffn_up_exps"][0] == "q8_0"
    assert chosen(model, "gguf:q5_k_s")["ffn_up_exps"][0] == "q5_1"
    # The head of the smallest mixes is Q5_K, and goes to Q8_0 rather than to the Q5_1 of other tensors.
    assert chosen(model, "gguf:iq2_m")["output"] == ["q8_0"]
    assert chosen(model, "gguf:iq2_m")["ffn_up_exps"][0] == "iq4_nl"


def test_rows_that_are_no_multiple_of_32_stay_in_16_bits() -> None:
    odd = Tensor("ffn_up", 64, 40)
    traits = MODELS["llama-3.1-8b"].traits
    for name in ("gguf:q4_k_m", "gguf:q8_0", "gguf:iq2_xs", "gguf:mxfp4"):
        assert encoding_of(odd, 3, traits, read(name), table().encodings) == "f16"
    assert encoding_of(odd, 3, traits, read("mlx:4bit"), table().encodings) == "bf16"


def test_tied_embeddings_take_the_type_of_the_head() -> None:
    tied, untied = MODELS["qwen3-4b"], MODELS["qwen3-8b"]
    assert chosen(tied, "gguf:q4_k_m")["output"] == chosen(untied, "gguf:q4_k_m")["output"] == ["q6_k"]
    assert chosen(untied, "gguf:q4_k_m")["token_embd"] == ["q4_k"]
    assert chosen(untied, "gguf:iq3_xxs")["token_embd"] == ["iq3_s"]
    table_itself = Tensor("token_embd", 151936, 2560, use="lookup")
    assert encoding_of(table_itself, OUTSIDE, tied.traits, read("gguf:q4_k_m"), table().encodings) == "q6_k"


def test_hybrid_models_count_the_projections_of_values() -> None:
    # Attention in every fourth of 48 layers: 12 projections, of which more_bits takes the first, the last two and every
    # third between. ggml-org/llama.cpp src/llama-quant.cpp counts attn_v, attn_qkv and attn_kv_b.
    hybrid = [[Tensor("attn_v", 64, 256)] if i % 4 == 3 else [Tensor("ssm_in", 64, 256)] for i in range(48)]
    traits = traits_of(hybrid, gqa=4, tied_embeddings=False)
    layers = [
        i
        for i in range(3, 48, 4)
        if encoding_of(hybrid[i][0], i, traits, read("gguf:q4_k_m"), table().encodings) == "q6_k"
    ]
    assert [(i - 3) // 4 for i in layers] == [0, 3, 6, 9, 10, 11]


def test_smallest_mixes_count_down_projections() -> None:
    # snapshots, deepseek-v3.1 [IQ2_XXS]: 61 layers, the first three dense, then routed and shared experts, so that the
    # first 61 // 8 = 7 down projections end in layer 4; [Q2_K_S] takes the first 7 layers.
    experts = [Tensor("ffn_down_exps", 64, 256, 256), Tensor("ffn_down_shexp", 64, 256)]
    layers = [[Tensor("ffn_down", 64, 256)] if i < 3 else experts for i in range(61)]
    traits = traits_of(layers, gqa=128, tied_embeddings=False)
    assert traits.experts == 256

    def raised(name: str, base: str) -> list[tuple[int, str]]:
        return [
            (i, t.name)
            for i, layer in enumerate(layers)
            for t in layer
            if encoding_of(t, i, traits, read(name), table().encodings) != base
        ]

    assert raised("gguf:iq2_xxs", "iq2_xxs") == [
        (0, "ffn_down"),
        (1, "ffn_down"),
        (2, "ffn_down"),
        (3, "ffn_down_exps"),
        (3, "ffn_down_shexp"),
        (4, "ffn_down_exps"),
        (4, "ffn_down_shexp"),
    ]
    assert {i for i, _ in raised("gguf:q2_k_s", "q2_k")} == set(range(7))


def test_vectors_and_routers_are_not_quantised() -> None:
    types = chosen(MODELS["gpt-oss-20b"], "gguf:mxfp4")
    for name in ("output_norm", "attn_sinks", "ffn_gate_inp", "ffn_down_exps.bias", "attn_q.bias"):
        assert set(types[name]) == {"f32"}, name
    assert set(types["ffn_down_exps"]) == {"mxfp4"}
    assert set(types["attn_q"]) == {"q8_0"}
    assert types["output"] == types["token_embd"] == ["q8_0"]


@pytest.mark.parametrize("name", [f"hf:{name}" for family, name in FILES if family == "hf"])
def test_checkpoints_keep_ends_router_and_norms_in_full(name: str) -> None:
    types = chosen(MODELS["qwen3-30b-a3b"], name)
    plain = read(name).vectors
    for kept in ("token_embd", "output", "output_norm", "ffn_gate_inp", "attn_norm"):
        assert set(types[kept]) == {plain}
    if name not in ("hf:bf16", "hf:fp16", "hf:fp32"):
        assert plain not in types["ffn_up_exps"]
    experts_only = ("hf:mxfp4", "hf:nvfp4-experts", "hf:w4a16-g32-experts")
    assert (set(types["attn_q"]) == {plain}) == (name in ("hf:bf16", "hf:fp16", "hf:fp32", *experts_only))


def test_traits_of_equal_layers_are_short() -> None:
    assert MODELS["llama-3.1-8b"].traits == ModelTraits(32, 4, 0, False)
    assert MODELS["qwen3-30b-a3b"].traits == ModelTraits(48, 8, 128, False)


def test_an_encoding_with_a_tile_needs_its_bytes() -> None:
    with pytest.raises(InvalidSpec, match="tile and tile_scale_bytes go together"):
        validate(Encoding, {"block_elements": 1, "block_bytes": 1, "tile": [2, 2], "source": "x"}, where="x.yaml")
