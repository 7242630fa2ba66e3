"""The model entries: each is valid, consistent with what its maker states, and derives what the theory says."""

import math
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from rooflinellm.errors import InvalidRequest
from rooflinellm.operators import layers
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import load
from rooflinellm.specs.index import key_of
from rooflinellm.specs.model import (
    Attention,
    Block,
    CompressedAttention,
    GatedFFN,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
    ModelEntry,
    NoFFN,
    PlainFFN,
)

MODEL_DB = Path(__file__).resolve().parents[1] / "model_db"
FILES = {path.stem: path for path in sorted(MODEL_DB.glob("*/*.yaml")) if path.parent.name != "formats"}


@cache
def model(name: str) -> ModelSpec:
    return ModelSpec(load(ModelEntry, FILES[name]))


@pytest.mark.parametrize("name", FILES)
def test_entry_is_valid_and_lies_where_its_id_says(name):
    entry = model(name).entry
    assert entry.id == name
    assert entry.family == FILES[name].parent.name
    assert entry.release_date
    assert entry.license
    assert all(source.url and source.url.startswith("https://") for source in entry.sources.values())


@pytest.mark.parametrize("name", FILES)
def test_parameters_are_those_published(name):
    published = model(name).entry.published
    assert published is None or model(name).total_params == published.total_params


@pytest.mark.parametrize("name", FILES)
def test_native_format_is_known(name):
    family, _, fmt = model(name).native_format.partition(":")
    assert (MODEL_DB / "formats" / family / f"{fmt}.yaml").is_file()


@pytest.mark.parametrize("name", FILES)
def test_derivations_agree_with_the_layers_written_out(name):
    spec = model(name)
    tensors = [tensor for layer in spec.layer_tensors for tensor in layer]
    ends = layers.embedding_tensors(spec.entry) + layers.head_tensors(spec.entry)
    assert len(spec.layers) == len(spec.layer_tensors) == spec.entry.layer_count == spec.traits.layer_count
    assert spec.total_params == sum(tensor.params for tensor in (*tensors, *ends))
    # OLMo 1 has neither norms nor biases, and a tied head: nothing that is not multiplied.
    assert 0 < spec.active_params <= spec.total_params
    assert spec.kv_bytes_per_token("f16") == sum(cached(mixer) for block in spec.layers for mixer in block.mixers)


def cached(mixer):
    """Bytes that a token takes in 16 bits in the cache of one layer."""
    match mixer:
        case Attention(kv="own"):
            return 2 * mixer.kv_heads * (mixer.head_dim + mixer.value_dim) + indexed(mixer)
        case LatentAttention():
            return 2 * (mixer.kv_rank + mixer.rope_dim) + indexed(mixer)
        case CompressedAttention():
            return 2 * mixer.head_dim + (2 * mixer.head_dim // mixer.ratio if mixer.ratio else 0) + indexed(mixer)
    return 0


def indexed(mixer):
    """Bytes of an indexer's key in FP8, and of its scale."""
    indexer = mixer.indexer
    return 0 if indexer is None or indexer.shared else math.ceil((indexer.head_dim + 4) / indexer.ratio)


def test_no_file_of_an_entry_is_shadowed():
    assert len(FILES) == sum(1 for path in MODEL_DB.glob("*/*.yaml") if path.parent.name != "formats")


def test_names_belong_to_one_entry_each():
    owners = Counter()
    for name in FILES:
        # A set, because an entry may spell a name in ways that count as one.
        owners.update({key_of(name), *map(key_of, model(name).aliases)})
    assert [key for key, count in owners.items() if count > 1] == []


@pytest.mark.parametrize("name", FILES)
def test_an_entry_names_each_alias_once(name):
    keys = [key_of(name), *map(key_of, model(name).aliases)]
    assert len(keys) == len(set(keys))


# Parameters of the text model, from the shapes in each config.json, by two independent computations.
TOTAL_PARAMS = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen3-8b": 8_190_735_360,
    "gpt-oss-20b": 20_914_757_184,
    "gemma-3-27b": 27_009_346_304,
    # What llama.cpp prints for files converted from the repository: 6.74 B, 0.60 B, 619.57 M, 8.49 B and 13.51 B.
    "llama-2-7b": 6_738_415_616,
    "qwen3-0.6b": 596_049_920,
    "qwen1.5-0.5b": 619_570_176,
    "ministral-3-8b": 8_489_553_920,
    "ministral-3-14b": 13_506_073_600,
    # Black et al. (2022), "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", table 1.
    "gpt-neox-20b": 20_554_567_680,
}


@pytest.mark.parametrize(("name", "expected"), TOTAL_PARAMS.items())
def test_total_params(name, expected):
    assert model(name).total_params == expected


# Router, shared and active experts, head; no embedding lookup, norms, biases and sinks. Same origin.
ACTIVE_PARAMS = {
    # 32 (4096 (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336) + 128256 * 4096
    "llama-3.1-8b": 7_504_658_432,
    "qwen3-30b-a3b": 3_041_656_832,
    "mixtral-8x7b": 12_748_587_008,
    "gpt-oss-20b": 3_607_142_400,
    # OpenAI (2025), "gpt-oss-120b & gpt-oss-20b Model Card", table 1: 5.13 B active, of which the model card counts the
    # head but not the embedding.
    "gpt-oss-120b": 5_131_100_160,
}


@pytest.mark.parametrize(("name", "expected"), ACTIVE_PARAMS.items())
def test_active_params(name, expected):
    assert model(name).active_params == expected


# layers * kv_heads * (key + value size) * 2 bytes.
KV_BYTES = {
    ("llama-3.1-8b", "f16"): 131_072,
    ("llama-3.1-8b", "bf16"): 131_072,
    ("llama-3.1-70b", "f16"): 327_680,
    ("qwen3-8b", "f16"): 147_456,
    ("qwen3-30b-a3b", "f16"): 98_304,
    # Sliding layers count like the others: 24 * 8 * 2 * 64 * 2.
    ("gpt-oss-20b", "f16"): 49_152,
    # 34 bytes for 32 numbers: 2,281,701,376 bytes at 32,768 tokens.
    ("llama-3.1-8b", "q8_0"): 69_632,
    ("llama-3.1-8b", "q8_0/f16"): 34_816 + 65_536,
    ("llama-3.1-8b", "F16/Q4_0"): 65_536 + 18_432,
    ("llama-3.1-8b", "fp8"): 65_536,
}


@pytest.mark.parametrize(("name", "kv", "expected"), [(*key, value) for key, value in KV_BYTES.items()])
def test_kv_bytes_per_token(name, kv, expected):
    found = model(name).kv_bytes_per_token(kv)
    assert type(found) is int
    assert found == expected


@pytest.mark.parametrize("kv", ["", "q9_0", "f16/f16/f16", "f16/"])
def test_unknown_kv_type_is_refused(kv):
    with pytest.raises(InvalidRequest, match="q8_0"):
        model("llama-3.1-8b").kv_bytes_per_token(kv)


def windows(name):
    return [block.mixer.window for block in model(name).layers]


def test_sliding_layers_are_where_the_model_has_them():
    assert windows("gpt-oss-20b") == [128, None] * 12
    assert windows("gemma-2-9b") == [4096, None] * 21
    assert windows("gemma-3-27b") == [*([1024] * 5 + [None]) * 10, 1024, 1024]
    assert windows("mistral-7b-v0.1") == [4096] * 32
    assert windows("mistral-7b-v0.2") == [None] * 32


def test_traits():
    mixture = model("qwen3-30b-a3b").traits
    assert (mixture.layer_count, mixture.gqa, mixture.experts, mixture.tied_embeddings) == (48, 8, 128, False)
    dense = model("gemma-2-9b").traits
    assert (dense.layer_count, dense.gqa, dense.experts, dense.tied_embeddings) == (42, 2, 0, True)


def test_repr_is_one_line():
    text = repr(model("mixtral-8x7b"))
    assert text == "ModelSpec('mixtral-8x7b', 32 layers, 46.7 B parameters, 12.7 B active)"


def test_specs_of_the_same_entry_are_equal():
    entry = model("llama-3.1-8b").entry
    assert ModelSpec(entry) == ModelSpec(entry)
    assert {ModelSpec(entry), ModelSpec(entry)} == {ModelSpec(entry)}
    assert ModelSpec(entry) != model("llama-3.1-70b")


def shapes(tensors):
    return {t.name: (t.rows, t.columns, t.copies, t.use) for t in tensors}


def test_attention_tensors():
    attention = Attention(
        kind="attention", heads=8, kv_heads=2, head_dim=16, v_head_dim=24, qkv_bias=True, out_bias=True, sinks=True
    )
    assert shapes(layers.attention_tensors(attention, 100)) == {
        "attn_q": (128, 100, 1, "matrix"),
        "attn_k": (32, 100, 1, "matrix"),
        "attn_v": (48, 100, 1, "matrix"),
        "attn_output": (100, 192, 1, "matrix"),
        "attn_q.bias": (1, 128, 1, "vector"),
        "attn_k.bias": (1, 32, 1, "vector"),
        "attn_v.bias": (1, 48, 1, "vector"),
        "attn_output.bias": (1, 100, 1, "vector"),
        "attn_sinks": (1, 8, 1, "vector"),
    }


@pytest.mark.parametrize(("qk_norm", "query", "key"), [("head", 16, 16), ("full", 128, 32)])
def test_fused_attention_with_norms(qk_norm, query, key):
    attention = Attention(
        kind="attention", heads=8, kv_heads=2, head_dim=16, fused_qkv=True, qkv_bias=True, qk_norm=qk_norm
    )
    assert shapes(layers.attention_tensors(attention, 100)) == {
        "attn_qkv": (192, 100, 1, "matrix"),
        "attn_output": (100, 128, 1, "matrix"),
        "attn_qkv.bias": (1, 192, 1, "vector"),
        "attn_q_norm": (1, query, 1, "vector"),
        "attn_k_norm": (1, key, 1, "vector"),
    }


def test_feed_forward_tensors():
    gated = GatedFFN(kind="gated", intermediate=30)
    assert shapes(layers.ffn_tensors(gated, 10)) == {
        "ffn_gate": (30, 10, 1, "matrix"),
        "ffn_up": (30, 10, 1, "matrix"),
        "ffn_down": (10, 30, 1, "matrix"),
    }
    fused = GatedFFN(kind="gated", intermediate=30, fused=True, bias=True)
    assert shapes(layers.ffn_tensors(fused, 10)) == {
        "ffn_up": (60, 10, 1, "matrix"),
        "ffn_down": (10, 30, 1, "matrix"),
        "ffn_up.bias": (1, 60, 1, "vector"),
        "ffn_down.bias": (1, 10, 1, "vector"),
    }
    plain = PlainFFN(kind="plain", intermediate=30, bias=True)
    assert shapes(layers.ffn_tensors(plain, 10)) == {
        "ffn_up": (30, 10, 1, "matrix"),
        "ffn_down": (10, 30, 1, "matrix"),
        "ffn_up.bias": (1, 30, 1, "vector"),
        "ffn_down.bias": (1, 10, 1, "vector"),
    }
    assert layers.ffn_tensors(NoFFN(kind="none"), 10) == ()


def test_mixture_tensors():
    mixture = MixtureOfExperts(
        kind="moe",
        experts=4,
        active=2,
        intermediate=30,
        bias=True,
        router_bias=True,
        shared_intermediate=60,
        shared_gate=True,
    )
    assert shapes(layers.ffn_tensors(mixture, 10)) == {
        "ffn_gate_inp": (4, 10, 1, "matrix"),
        "ffn_gate_inp.bias": (1, 4, 1, "vector"),
        "ffn_gate_exps": (30, 10, 4, "matrix"),
        "ffn_up_exps": (30, 10, 4, "matrix"),
        "ffn_down_exps": (10, 30, 4, "matrix"),
        "ffn_gate_exps.bias": (1, 30, 4, "vector"),
        "ffn_up_exps.bias": (1, 30, 4, "vector"),
        "ffn_down_exps.bias": (1, 10, 4, "vector"),
        "ffn_gate_shexp": (60, 10, 1, "matrix"),
        "ffn_up_shexp": (60, 10, 1, "matrix"),
        "ffn_down_shexp": (10, 60, 1, "matrix"),
        "ffn_gate_inp_shexp": (1, 10, 1, "matrix"),
    }
    plain = MixtureOfExperts(kind="moe", experts=4, active=2, intermediate=30, gated=False, shared_intermediate=60)
    assert [t.name for t in layers.ffn_tensors(plain, 10)] == [
        "ffn_gate_inp",
        "ffn_up_exps",
        "ffn_down_exps",
        "ffn_up_shexp",
        "ffn_down_shexp",
    ]


ATTENTION = Attention(kind="attention", heads=2, kv_heads=1, head_dim=4)


@pytest.mark.parametrize("norms", range(9))
def test_norm_tensors(norms):
    block = Block(mixer=ATTENTION, ffn=NoFFN(kind="none"), norms=norms, norm_bias=True)
    tensors = layers.norm_tensors(block, 10)
    assert len({t.name for t in tensors}) == 2 * norms
    assert sum(t.params for t in tensors) == 2 * norms * 10


@pytest.mark.parametrize("tied", [False, True])
def test_the_head_counts_once(tied):
    entry = ModelEntry(
        id="tiny",
        name="Tiny",
        family="tiny",
        hidden=10,
        vocabulary=50,
        tied_embeddings=tied,
        head_bias=True,
        final_norm_bias=True,
        max_context_tokens=8,
        native_format="hf:bf16",
        layers=(LayerGroup(pattern=(Block(mixer=ATTENTION, ffn=NoFFN(kind="none"), norms=1),)),),
    )
    assert shapes(layers.head_tensors(entry)) == {
        "output_norm": (1, 10, 1, "vector"),
        "output_norm.bias": (1, 10, 1, "vector"),
        "output": (50, 10, 1, "matrix"),
        "output.bias": (1, 50, 1, "vector"),
    }
    assert shapes(layers.embedding_tensors(entry)) == ({} if tied else {"token_embd": (50, 10, 1, "lookup")})
    block = 10 * (8 + 4 + 4 + 8) + 10
    ends = 20 + 500 + 50
    spec = ModelSpec(entry)
    assert spec.total_params == block + ends + (0 if tied else 500)
    assert spec.active_params == block - 10 + 500
