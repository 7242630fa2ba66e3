"""Configurations of Hugging Face's kind: what they say, what is refused, and that nothing hostile gets through.

The files under ``importers/huggingface`` are made up: the shapes of real families with small numbers, whose parameters
are added up by hand below. H is the hidden size of 16; V = 32 rows make 512 elements.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm import _yaml
from rooflinellm.cli.app import program
from rooflinellm.errors import InvalidRequest, InvalidSpec, RooflineError, UnreadableFile, UnsupportedModel
from rooflinellm.importers import huggingface, read
from rooflinellm.importers.entry_text import entry_text
from rooflinellm.importers.huggingface_config import Config
from rooflinellm.importers.huggingface_quantization import native_format
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import validate
from rooflinellm.specs.model import Attention, ModelEntry

FOLDER = Path(__file__).parent / "importers" / "huggingface"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}

EMBEDDING = 32 * 16
FINAL = 16
ENDS = 2 * EMBEDDING + FINAL
TIED = EMBEDDING + FINAL
ATTENTION = 2 * 16 * 16 + 2 * 8 * 16  # 4 query and 2 key/value heads of 4
WIDE = 2 * 32 * 16 + 2 * 16 * 16  # the same heads of 8
GATED = 3 * 16 * 24
PLAIN = 2 * 16 * 24
NORMS = 2 * 16
EXPERTS = 4 * 16 + 4 * 3 * 16 * 6  # a router, and 4 experts of 6
SHARED = 3 * 16 * 6
LATENT = 6 * 16 + 6 + 24 * 6 + 7 * 16 + 5 + 4 * 7 * 5 + 16 * 12
DELTA = (32 + 20) * 16 + 8 * 16 + 4 * 32 + 4 + 4 + 5 + 16 * 20
GATED_ATTENTION = WIDE + 32 * 16 + 8 + 8
MTP = 3 * 16 + 16 * 32
# Inner width 32: projections, convolution of 4 with its bias, A, D, step sizes, a norm, output.
MAMBA2 = (32 + 38 + 4) * 16 + 5 * 38 + 3 * 4 + 32 + 16 * 32
MAMBA = 64 * 16 + 5 * 32 + 32 + 3 * 32 + 32 + 16 * 32

TOTALS = {
    "tiny-llama": 2 * (ATTENTION + GATED + NORMS) + ENDS,
    "tiny-mistral": 2 * (WIDE + GATED + NORMS) + ENDS,
    "tiny-qwen2": 2 * (ATTENTION + 32 + GATED + NORMS) + TIED,
    "tiny-qwen3-moe": 2 * (WIDE + 16 + NORMS) + GATED + EXPERTS + ENDS,
    "tiny-gemma3": 7 * (WIDE + 16 + GATED + 2 * NORMS) + TIED,
    # Seven norms; gate and projection of a row of 4; two streams; a branch of rank 3; one layer of twice the width.
    "tiny-gemma3n": 3 * (WIDE + 16 + 7 * 16 + 2 * 4 * 16 + 2 * 2 + 4 * 2 + 2 * 16 + 16 + 2 * 3 * 16)
    + 4 * GATED
    + (20 * 12 + 12 * 16 + 4 + 2 * 16 * 16)
    + TIED,
    # A local layer of 8, a global one of 16 without values; a dense part beside the experts, seven norms, three scales.
    "tiny-gemma4-moe": WIDE + 16 + (2 * 64 * 16 + 16 * 16 + 32) + 2 * (EXPERTS + GATED + 7 * 16 + 1 + 16 + 4) + TIED,
    "tiny-gpt2": 2 * (4 * 256 + 48 + 16 + 2 * 16 * 64 + 64 + 16 + 2 * NORMS) + 64 * 16 + 2 * FINAL + EMBEDDING,
    "tiny-gpt-j": 2 * (4 * 256 + 2 * 16 * 64 + 64 + 16 + NORMS) + 2 * FINAL + 2 * EMBEDDING + 32,
    "tiny-gpt-neox": 2 * (4 * 256 + 48 + 16 + PLAIN + 24 + 16 + 2 * NORMS) + 2 * FINAL + 2 * EMBEDDING,
    "tiny-falcon": 2 * (2 * 256 + 2 * 4 * 16 + 2 * 16 * 64 + NORMS) + 2 * FINAL + EMBEDDING,
    "tiny-bloom": 2 * (4 * 256 + 48 + 16 + 2 * 16 * 64 + 64 + 16 + 2 * NORMS) + 32 + 2 * FINAL + EMBEDDING,
    # Its table of positions is two rows longer than it says.
    "tiny-opt": 2 * (4 * 256 + 48 + 16 + PLAIN + 24 + 16 + 2 * NORMS) + 32 * 16 + 2 * FINAL + EMBEDDING,
    "tiny-phi3": 2 * (4 * 256 + GATED + NORMS) + ENDS,
    "tiny-cohere2": 4 * (ATTENTION + GATED + 16) + TIED,
    "tiny-gpt-oss": 2 * (WIDE + 32 + 3 * 16 + 4 + 4 * 16 + 4 + 4 * GATED + 4 * (24 + 24 + 16) + NORMS) + ENDS,
    "tiny-deepseek-v3": 3 * (LATENT + NORMS) + GATED + 2 * (EXPERTS + 4 + SHARED) + ENDS,
    # Two of three layers have an indexer of their own: queries, keys, weights, a norm with a bias.
    "tiny-glm-dsa": 3 * (LATENT + NORMS)
    + GATED
    + 2 * (EXPERTS + 4 + SHARED)
    + 2 * (8 * 6 + 4 * 16 + 2 * 16 + 8)
    + ENDS,
    "tiny-deepseek-v4": 3 * (6 * 16 + 6 + 32 * 6 + 8 * 16 + 8 + 4 + 6 * 16 + 16 * 6)
    + (2 * 16 * 16 + 4 * 16 + 8)
    + (8 * 6 + 2 * 16 + 2 * 8 * 16 + 4 * 8 + 4)
    + (2 * 8 * 16 + 128 * 8 + 8)
    + 3 * (EXPERTS + SHARED + NORMS + 2 * (8 * 32 + 8 + 3))
    + (2 * 4 + 32 * 2)
    + (2 * 32 + 2 + 1)
    + ENDS,
    "tiny-llama4": 4 * (ATTENTION + NORMS) + 2 * (EXPERTS + SHARED) + 2 * GATED + ENDS,
    "tiny-qwen3-next": DELTA + GATED_ATTENTION + 2 * (EXPERTS + SHARED + 16 + NORMS) + ENDS,
    "tiny-qwen3.5": DELTA + GATED_ATTENTION + 2 * (GATED + NORMS) + TIED,
    "tiny-kimi-linear": (4 * 8 * 16 + 12 * 8 + 2 * (4 * 16 + 8 * 4) + 2 * 16 + 2 + 8 + 4)
    + (24 * 16 + 7 * 16 + 5 + 4 * 7 * 5 + 16 * 12)
    + GATED
    + (EXPERTS + 4 + SHARED)
    + 2 * NORMS
    + ENDS,
    "tiny-minimax": (5 * 16 * 16 + 16) + ATTENTION + 2 * (4 * 16 + 4 * GATED + NORMS) + ENDS,
    "tiny-mamba": 2 * (MAMBA + 7 * 32 + 32 + 16) + TIED,
    "tiny-mamba2-ssm": 2 * (MAMBA2 + 16) + TIED,
    "tiny-jamba": (MAMBA + 8 * 32 + 64 + 8) + GATED + ATTENTION + (4 * 16 + 4 * GATED) + 2 * NORMS + ENDS,
    # Two groups: 6 channels more. Experts work in 8, between two projections.
    "tiny-nemotron-h": 2 * (MAMBA2 + 6 * 16 + 5 * 6)
    + PLAIN
    + WIDE
    + (4 * 16 + 4 * 2 * 8 * 6 + 2 * 16 * 10 + 2 * 8 * 16)
    + 5 * 16
    + ENDS,
    "tiny-granite-hybrid": MAMBA2 + ATTENTION + 2 * (EXPERTS + 3 * 16 * 10 + NORMS) + TIED,
    "tiny-falcon-h1": 2 * (ATTENTION + MAMBA2 - 32 + GATED + NORMS) + ENDS,
    # Two thirds of 24, a multiple of 8.
    "tiny-lfm2": (3 * 256 + 256 + 3 * 16) + (ATTENTION + 8) + 2 * (3 * 16 * 16 + NORMS) + TIED,
    # Widths rounded up to 256; one layer without attention, one without a feed-forward part.
    "tiny-nas": ATTENTION + (2 * 256 + 2 * 64) + 2 * 3 * 16 * 256 + 4 * 16 + ENDS,
    # Two of three layers with 6 heads; a gate for each head; the first layer dense.
    "tiny-step": (WIDE + 4 * 16)
    + 2 * (WIDE + 4 * 16 * 8 + 6 * 16)
    + 3 * (16 + NORMS)
    + GATED
    + 2 * (EXPERTS + 4 + SHARED)
    + ENDS,
    "tiny-chatglm": 2 * (ATTENTION + 32 + GATED + NORMS) + ENDS,
}


def test_every_file_has_its_sum() -> None:
    assert set(TOTALS) == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_total_parameters(name: str) -> None:
    assert rl.model(FILES[name]).total_params == TOTALS[name]


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("tiny-deepseek-v3", LATENT + NORMS + EXPERTS + 4 + SHARED + MTP),
        ("tiny-qwen3.5", GATED_ATTENTION + GATED + NORMS + MTP),
        ("tiny-step", 2 * (WIDE + 4 * 16 * 8 + 6 * 16 + 16 + NORMS + GATED + MTP + EMBEDDING)),
        ("tiny-llama", 0),
    ],
)
def test_prediction_modules(name: str, params: int) -> None:
    assert rl.model(FILES[name]).mtp_params == params


@pytest.mark.parametrize("name", FILES)
def test_an_entry_says_where_it_comes_from_and_can_be_written(name: str) -> None:
    entry = rl.model(FILES[name]).entry
    assert entry.id == name
    assert any("imported from" in note for note in entry.notes)
    text = entry_text(entry)
    assert validate(ModelEntry, _yaml.parse(text), where="entry") == entry
    assert max(map(len, text.splitlines())) < 200


def kinds(name: str) -> list[str]:
    return [block.mixer.kind for block in rl.model(FILES[name]).layers]


def windows(name: str) -> list[int | None]:
    return [block.mixer.window for block in rl.model(FILES[name]).layers if isinstance(block.mixer, Attention)]


def test_layers_are_what_the_files_say() -> None:
    assert kinds("tiny-qwen3-next") == ["delta", "attention"]
    assert kinds("tiny-kimi-linear") == ["kda", "latent"]
    assert kinds("tiny-minimax") == ["lightning", "attention"]
    assert kinds("tiny-jamba") == ["mamba", "attention"]
    assert kinds("tiny-nemotron-h") == ["mamba2", "none", "attention", "none", "mamba2"]
    assert kinds("tiny-lfm2") == ["short_conv", "attention"]
    assert kinds("tiny-nas") == ["attention", "none", "attention"]
    assert [block.beside is not None for block in rl.model(FILES["tiny-falcon-h1"]).layers] == [True, True]


def test_windows_are_where_the_files_say() -> None:
    assert windows("tiny-step") == [None, 8, 8]
    assert windows("tiny-llama") == [None, None]
    assert windows("tiny-mistral") == [32, 32]
    assert windows("tiny-qwen2") == [None, 8]
    assert windows("tiny-gemma3") == [*[16] * 5, None, 16]
    assert windows("tiny-cohere2") == [16, 16, 16, None]
    assert windows("tiny-gpt-oss") == [8, None]
    chunks = [
        block.mixer.chunk for block in rl.model(FILES["tiny-llama4"]).layers if isinstance(block.mixer, Attention)
    ]
    assert chunks == [32, 32, 32, None]


def test_caches_are_shared_where_the_file_says() -> None:
    mixers = [block.mixer for block in rl.model(FILES["tiny-gemma3n"]).layers]
    assert [mixer.kv for mixer in mixers if isinstance(mixer, Attention)] == ["own", "own", "shared"]


def test_names_and_contexts() -> None:
    tiny = rl.model(FILES["tiny-llama"])
    assert (tiny.id, tiny.aliases, tiny.family) == ("tiny-llama", ("example/Tiny-Llama",), "llama")
    # 64 positions stretched eightfold; half a head's factors in a GGUF file.
    assert tiny.max_context_tokens == 512
    assert tiny.entry.rope_factors == 2
    assert rl.model(FILES["tiny-gemma3"]).max_context_tokens == 131_072
    assert rl.model(FILES["tiny-falcon"]).max_context_tokens == 2048
    assert rl.model(FILES["tiny-mamba"]).max_context_tokens == huggingface.UNLIMITED


def test_an_import_can_be_asked_for_an_estimate() -> None:
    found = rl.estimate(FILES["tiny-deepseek-v4"], "rtx-4090", weights="hf:bf16", engine="vllm", prompt_tokens=100)
    assert found.decode.time_s.ideal > 0


# ---------------------------------------------------------------------------------------------------- files and folders


def written(folder: Path, name: str, values: Any) -> Path:
    path = folder / name
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
    return path


def fixture(name: str) -> dict[str, Any]:
    values = json.loads(FILES[name].read_text(encoding="utf-8"))
    assert isinstance(values, dict)
    return values


def test_a_folder_is_read_through_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "My Model v2"
    folder.mkdir()
    written(folder, "config.json", fixture("tiny-mistral"))
    model = rl.model(folder)
    assert (model.id, model.native_format) == ("my-model-v2", "hf:bf16")
    assert rl.model(str(folder / "config.json")).total_params == model.total_params
    written(folder, "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}})
    assert rl.model(folder).native_format == "hf:nvfp4"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, "model.json", fixture("tiny-mistral"))
    first = rl.model(path)
    assert rl.model(path) is first
    written(tmp_path, "model.json", fixture("tiny-mistral") | {"num_hidden_layers": 3})
    assert rl.model(path).entry.layer_count == 3


def test_a_cached_repository_names_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "models--Example--Tiny" / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    written(folder, "config.json", fixture("tiny-mistral"))
    assert rl.model(folder).aliases == ("Example/Tiny",)


@pytest.mark.parametrize("given", ["/srv/checkpoint", "..", "", 7, "a b", "x" * 500])
def test_a_path_in_the_file_is_no_name(tmp_path: Path, given: Any) -> None:
    path = written(tmp_path, "tiny.json", fixture("tiny-mistral") | {"_name_or_path": given})
    assert rl.model(path).id == "tiny"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"no config\.json"):
        read(tmp_path)
    with pytest.raises(UnreadableFile):
        rl.model(tmp_path / "absent.json")
    (tmp_path / "other.bin").write_bytes(b"1")
    with pytest.raises(UnreadableFile, match="kind that is read"):
        rl.model(tmp_path / "other.bin")


# -------------------------------------------------------------------------------------------------------- quantisations


def compressed(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
        "ignore": ["lm_head"],
    }


QUANTISED: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "hf:awq"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "hf:gptq"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "hf:gptq-g32"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "hf:gptq-int8"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "hf:fp8-block"),
    ({"quant_method": "fp8", "weight_block_size": None}, "hf:fp8"),
    ({"quant_method": "fbgemm_fp8"}, "hf:fp8-channel"),
    ({"quant_method": "mxfp4"}, "hf:mxfp4"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "hf:bnb-int8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "hf:bnb-nf4"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "hf:bnb-nf4-dq"),
    (compressed(num_bits=8, type="float", strategy="channel"), "hf:fp8-channel"),
    (compressed(num_bits=8, type="float", strategy="tensor"), "hf:fp8"),
    (compressed(num_bits=8, type="float", strategy="block", group_size=None), "hf:fp8-block"),
    (compressed(num_bits=8, type="int", strategy="channel"), "hf:int8"),
    (compressed(num_bits=4, type="int", strategy="group", group_size=128), "hf:w4a16"),
    (compressed(num_bits=4, type="int", strategy="group", group_size=32), "hf:w4a16-g32"),
    (compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), "hf:nvfp4"),
    (compressed(num_bits=4, type="float", strategy="group", group_size=32), "hf:mxfp4"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "hf:fp8"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, "hf:nvfp4"),
    (
        {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.0.self_attn*", "*.mlp.shared_experts.*"]},
        "hf:nvfp4-experts",
    ),
    (
        {
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {
                "layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                "layers.0.self_attn.k_proj": {"quant_algo": "FP8"},
                "layers.0.mlp.experts": {"quant_algo": "NVFP4"},
            },
        },
        "hf:nvfp4",
    ),
]


@pytest.mark.parametrize(("quantisation", "expected"), QUANTISED)
@pytest.mark.parametrize("nested", [False, True])
def test_quantisations(quantisation: dict[str, Any], expected: str, nested: bool) -> None:
    part = {"quantization_config": quantisation}
    config = Config({"text_config": part} if nested else part, "config.json")
    assert native_format(config)[0] == expected


@pytest.mark.parametrize("name", [expected for _, expected in QUANTISED])
def test_quantisations_are_formats(name: str) -> None:
    assert rl.model("llama-3.1-8b").native_format
    family, _, stem = name.partition(":")
    assert (Path(__file__).resolve().parents[1] / "model_db" / "formats" / family / f"{stem}.yaml").is_file()


def test_what_a_checkpoint_excludes_is_said() -> None:
    part = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["model.layers.0.self_attn"],
    }
    name, notes = native_format(Config({"quantization_config": part}, "config.json"))
    assert name == "hf:fp8-block"
    assert len(notes) == 1
    assert "attention" in notes[0]


@pytest.mark.parametrize(
    "quantisation",
    [
        {"quant_method": "aqlm"},
        {"quant_method": "gptq", "bits": 3, "group_size": 128},
        {"quant_method": "awq", "bits": 4, "group_size": 64},
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        {"quant_method": "modelopt", "quant_algo": "W3A16"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        compressed(num_bits=2, type="int", strategy="group", group_size=128),
        {"quant_method": "compressed-tensors"},
        {},
        {"bits": 4},
    ],
)
def test_other_quantisations_are_refused_by_name(quantisation: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel, match="not described"):
        native_format(Config({"quantization_config": {"x": 1} | quantisation}, "config.json"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"torch_dtype": "bfloat16"}, "hf:bf16"),
        ({"dtype": "float16", "torch_dtype": "float32"}, "hf:fp16"),
        ({"torch_dtype": "torch.float32"}, "hf:fp32"),
        ({"text_config": {"dtype": "float16"}}, "hf:fp16"),
        ({"dtype": None}, "hf:bf16"),
    ],
)
def test_dtypes(values: dict[str, Any], expected: str) -> None:
    name, notes = native_format(Config(values, "config.json"))
    assert name == expected
    assert bool(notes) == (values == {"dtype": None})


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="int3"):
        native_format(Config({"dtype": "int3"}, "config.json"))


# ------------------------------------------------------------------------------------------------------------- refusals


def entry_of(values: dict[str, Any]) -> ModelEntry:
    return huggingface.entry_of(Config(values, "config.json"), named="made-up")


@pytest.mark.parametrize("name", huggingface.REFUSED)
def test_known_architectures_that_are_not_described(name: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        entry_of({"model_type": name})
    assert name in str(caught.value)
    assert huggingface.REFUSED[name] in str(caught.value)


@pytest.mark.parametrize("values", [{}, {"model_type": ""}, {"architectures": ["LlamaForCausalLM"]}])
def test_a_file_without_a_family_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel, match="model_type"):
        entry_of(fixture("tiny-llama") | {"model_type": None} | values)


def test_an_unknown_family_is_never_taken_for_llama() -> None:
    with pytest.raises(UnsupportedModel, match="'llama_next' is not described"):
        entry_of(fixture("tiny-llama") | {"model_type": "llama_next"})
    with pytest.raises(UnsupportedModel, match="'hyena'"):
        entry_of({"model_type": "llava", "text_config": {"model_type": "hyena"}})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tiny-gemma3", {"layer_types": ["linear_attention"] * 7}, "linear_attention"),
        ("tiny-deepseek-v3", {"attention_bias": True}, "attention_bias"),
        ("tiny-kimi-linear", {"attn_res_block_size": 4}, "attn_res_block_size"),
        ("tiny-opt", {"word_embed_proj_dim": 8}, "word_embed_proj_dim"),
        ("tiny-mamba2-ssm", {"attn_layer_idx": [1]}, "attn_layer_idx"),
        ("tiny-minimax", {"shared_intermediate_size": 8}, "shared experts"),
        ("tiny-chatglm", {"rmsnorm": False}, "RMS norms"),
        ("tiny-falcon-h1", {"projectors_bias": True}, "mamba_proj_bias"),
        ("tiny-nemotron-h", {"layers_block_type": ["mamba", "hyena"], "hybrid_override_pattern": None}, "hyena"),
    ],
)
def test_variants_that_are_not_described(name: str, change: dict[str, Any], message: str) -> None:
    values = fixture(name)
    if "text_config" in values:
        values["text_config"] |= change
    else:
        values |= change
    with pytest.raises(UnsupportedModel, match=message):
        entry_of(values)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("tiny-llama", "hidden_size", None),
        ("tiny-llama", "hidden_size", "16"),
        ("tiny-llama", "hidden_size", -16),
        ("tiny-llama", "hidden_size", 0),
        ("tiny-llama", "hidden_size", True),
        ("tiny-llama", "hidden_size", 16.5),
        ("tiny-llama", "hidden_size", 10**30),
        ("tiny-llama", "num_hidden_layers", 10**8),
        ("tiny-llama", "num_attention_heads", 3),
        ("tiny-llama", "num_key_value_heads", 3),
        ("tiny-llama", "attention_bias", "yes"),
        ("tiny-llama", "tie_word_embeddings", 1),
        ("tiny-llama", "rope_scaling", []),
        ("tiny-qwen3-moe", "num_experts_per_tok", 5),
        ("tiny-qwen3-moe", "mlp_only_layers", [0.5]),
        ("tiny-gpt-oss", "layer_types", ["sliding_attention"]),
        ("tiny-gpt-oss", "layer_types", "sliding_attention"),
        ("tiny-gpt-oss", "layer_types", [1, 2]),
        ("tiny-gemma3n", "intermediate_size", [24]),
        ("tiny-minimax", "attn_type_list", None),
        ("tiny-nas", "block_configs", [{}]),
        ("tiny-nas", "block_configs", [1, 2, 3]),
        ("tiny-nemotron-h", "hybrid_override_pattern", "MX"),
        ("tiny-nemotron-h", "hybrid_override_pattern", None),
        ("tiny-deepseek-v3", "kv_lora_rank", {"a": 1}),
        ("tiny-deepseek-v3", "num_nextn_predict_layers", 10**6),
        ("tiny-deepseek-v4", "compress_ratios", None),
        ("tiny-glm-dsa", "mlp_layer_types", ["dense", "sparse"]),
    ],
)
def test_a_wrong_field_is_named(name: str, field: str, value: Any) -> None:
    with pytest.raises(InvalidSpec) as caught:
        entry_of(fixture(name) | {field: value})
    assert caught.value.where is not None
    assert "config.json" in caught.value.where


# ------------------------------------------------------------------------------------------------------------ hostility


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"model_type": "llama"',
        "[]",
        "null",
        "42",
        '"llama"',
        '{"model_type": "llama", "hidden_size": NaN}',
        '{"model_type": "llama", "hidden_size": Infinity}',
        '{"model_type": "llama", "hidden_size": 1e999}',
        '{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        '{"model_type": ' + "[" * 900 + "]" * 900 + "}",
        "\x00\x01",
        "{'model_type': 'llama'}",
    ],
)
def test_broken_and_hostile_files(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "config.json", text)
    start = time.perf_counter()
    with pytest.raises(RooflineError):
        rl.model(path)
    assert time.perf_counter() - start < 1


def test_files_that_are_no_text_or_too_large(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UnreadableFile, match="UTF-8"):
        rl.model(path)
    path.write_bytes(b" " * 9_000_000)
    with pytest.raises(UnreadableFile, match="larger"):
        rl.model(path)


def test_infinity_elsewhere_is_no_fault() -> None:
    # Published files of state-space models hold it, in fields that are not read.
    assert "Infinity" in FILES["tiny-nemotron-h"].read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [2, 20, 60])
def test_truncated_files(tmp_path: Path, size: int) -> None:
    text = FILES["tiny-qwen3-next"].read_text(encoding="utf-8")
    with pytest.raises(RooflineError):
        rl.model(written(tmp_path, "config.json", text[:-size]))


def test_many_layers_take_no_time(tmp_path: Path) -> None:
    path = written(tmp_path, "config.json", fixture("tiny-llama") | {"num_hidden_layers": 10_000})
    start = time.perf_counter()
    assert rl.model(path).entry.layer_count == 10_000
    assert time.perf_counter() - start < 1


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.integers(0, 300),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(["auto", "full_attention", "mamba", "sparse", "shared", "M*E-", "LLG"]),
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def places(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a nested value."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [place for key, value in items for place in [(*path, key), *places(value, (*path, key))]]


@settings(max_examples=400, deadline=1000, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_change_gives_a_model_or_an_error_of_ours(data: st.DataObject) -> None:
    values = fixture(data.draw(st.sampled_from(sorted(FILES))))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(places(values)))
        target: Any = values
        for step in path:
            target = target[step]
        match data.draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                target[last] = data.draw(ANYTHING)
            case "remove":
                del target[last]
            case _:
                values[data.draw(st.sampled_from(OTHER_FIELDS))] = data.draw(ANYTHING)
        if not places(values):
            break
    before = copy.deepcopy(values)
    try:
        entry = entry_of(values)
    except RooflineError as error:
        assert str(error)
    else:
        assert ModelSpec(entry).total_params > 0
    assert values == before  # what is read is not changed


OTHER_FIELDS = [
    *("layer_types", "sliding_window", "quantization_config", "rope_scaling", "text_config", "model_type", "head_dim"),
    *("num_key_value_heads", "num_nextn_predict_layers", "tie_word_embeddings", "mlp_layer_types", "attention_bias"),
    *("thinker_config", "ssm_cfg", "linear_attn_config", "moe_layer_freq", "intermediate_size", "dtype"),
]


# ---------------------------------------------------------------------------------------------- the hub and the command


class _Hub(types.ModuleType):
    """Stands for the package huggingface_hub: serves files from a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__("huggingface_hub")
        self.folder = folder
        self.asked: list[tuple[str, str, str | None]] = []
        self.errors = types.ModuleType("huggingface_hub.errors")
        self.errors.EntryNotFoundError = FileNotFoundError  # type: ignore[attr-defined]

    def hf_hub_download(self, repository: str, name: str, revision: str | None = None) -> str:
        self.asked.append((repository, name, revision))
        if repository == "no/network":
            raise ConnectionError("no route")
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(name)
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Hub:
    module = _Hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", module.errors)
    return module


def test_a_repository_is_fetched_when_asked(hub: _Hub) -> None:
    written(hub.folder, "config.json", fixture("tiny-llama"))
    assert rl.model("hf://example/tiny-llama").total_params == TOTALS["tiny-llama"]
    assert hub.asked == [
        ("example/tiny-llama", "config.json", None),
        ("example/tiny-llama", "hf_quant_config.json", None),
    ]
    rl.model("hf://example/tiny-llama@main")
    assert hub.asked[-1][2] == "main"


def test_a_repository_is_never_fetched_unasked(hub: _Hub) -> None:
    with pytest.raises(rl.UnknownName):
        rl.model("example/tiny-llama")
    assert hub.asked == []


def test_what_a_repository_lacks(hub: _Hub) -> None:
    with pytest.raises(UnreadableFile, match=r"holds no config\.json"):
        rl.model("hf://example/empty")
    with pytest.raises(UnreadableFile, match="no route"):
        rl.model("hf://no/network")


@pytest.mark.parametrize("name", ["hf://", "hf://one", "hf://a/b/c", "hf://../etc", "hf://a b/c"])
def test_names_that_are_no_repository(hub: _Hub, name: str) -> None:
    with pytest.raises(InvalidRequest, match="no repository"):
        rl.model(name)


def test_the_hub_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InvalidRequest, match=r"pip install huggingface_hub"):
        rl.model("hf://example/tiny")


def test_the_command_writes_an_entry(tmp_path: Path) -> None:
    target = tmp_path / "tiny-llama.yaml"
    done = CliRunner().invoke(program, ["model", "import", str(FILES["tiny-llama"]), "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert rl.model(target).total_params == TOTALS["tiny-llama"]
    shown = CliRunner().invoke(program, ["model", "import", str(FILES["tiny-llama"])])
    assert shown.output == target.read_text(encoding="utf-8")


def test_the_command_says_why_it_cannot_write(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        program, ["model", "import", str(FILES["tiny-llama"]), "-o", str(tmp_path / "no" / "folder.yaml")]
    )
    assert isinstance(done.exception, UnreadableFile)
