"""Safetensors: headers read exactly, packed weights unpacked to parameters, and nothing hostile believed."""

import json
import os
import struct
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.catalog import encodings
from rooflinellm.engine.layout import Layout, lay_out
from rooflinellm.errors import InvalidSpec, UnreadableFile, UnsupportedModel
from rooflinellm.importers import safetensors, safetensors_model
from rooflinellm.importers.safetensors_names import pattern_of, place_of
from rooflinellm.importers.safetensors_packing import packing_of
from rooflinellm.operators.model import ModelSpec

Shape = tuple[int, ...]
Tensors = Mapping[str, tuple[str, Shape]]

H, VOCABULARY, FF, LAYERS = 64, 96, 128, 2
CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": H,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": FF,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MATRICES: dict[str, Shape] = {
    "self_attn.q_proj": (64, H),
    "self_attn.k_proj": (32, H),
    "self_attn.v_proj": (32, H),
    "self_attn.o_proj": (H, 64),
    "mlp.gate_proj": (FF, H),
    "mlp.up_proj": (FF, H),
    "mlp.down_proj": (H, FF),
}
VECTORS: dict[str, Shape] = {
    "input_layernorm": (H,),
    "post_attention_layernorm": (H,),
    "self_attn.q_norm": (16,),
    "self_attn.k_norm": (16,),
}


def size_of(dtype: str, shape: Shape) -> int:
    elements = 1
    for length in shape:
        elements *= length
    return elements * safetensors.DTYPE_BITS[dtype] // 8


def header_of(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + size_of(dtype, shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw, at


def write(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Path:
    header, size = header_of(tensors, metadata)
    with open(path, "wb") as stream:
        stream.write(header)
        stream.truncate(len(header) + size)
    return path


def model_tensors(dtype: str = "BF16", *, tied: bool = False, prefix: str = "model.") -> dict[str, tuple[str, Shape]]:
    made: dict[str, tuple[str, Shape]] = {f"{prefix}embed_tokens.weight": (dtype, (VOCABULARY, H))}
    made[f"{prefix}norm.weight"] = (dtype, (H,))
    if not tied:
        made["lm_head.weight"] = (dtype, (VOCABULARY, H))
    for layer in range(LAYERS):
        for name, shape in (VECTORS | MATRICES).items():
            made[f"{prefix}layers.{layer}.{name}.weight"] = (dtype, shape)
    return made


def folder_of(tmp_path: Path, tensors: Tensors, config: Mapping[str, Any] = CONFIG) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    return tmp_path


def bytes_of(tensors: Tensors) -> int:
    return sum(size_of(*each) for each in tensors.values())


def layout_of(model: ModelSpec) -> Layout:
    assert model.entry.file is not None
    return lay_out(model, model.entry.file.fmt, encodings().encodings)


# --- files and folders ----------------------------------------------------------------------------------------------


def test_a_header_is_read_exactly(tmp_path: Path) -> None:
    tensors = {"b": ("F32", (3, 5)), 'a "quoted"\\ name': ("BF16", (7,)), "ü": ("I64", ()), "e": ("F8_E4M3", (0, 4))}
    tensors["f"] = ("F4", (2, 8))
    path = write(tmp_path / "x.safetensors", tensors, {"format": "pt", "note": 'a } brace, a { and a "quote"'})
    read = safetensors.read_header(path)
    assert {each.name: (each.dtype, each.shape) for each in read} == tensors
    assert [each.bytes for each in read] == [size_of(*each) for each in tensors.values()]


@pytest.mark.parametrize("given", ["", "model.safetensors"])
def test_a_single_file_with_its_configuration(given: str, tmp_path: Path) -> None:
    tensors = model_tensors()
    folder = folder_of(tmp_path, tensors)
    model = rl.model(folder / given if given else str(folder))
    assert model.entry.file is not None
    assert (model.entry.file.label, model.entry.file.family, model.entry.file.files) == ("bf16", "hf", 1)
    assert layout_of(model).resident_bytes == bytes_of(tensors)
    assert model.total_params == bytes_of(tensors) // 2
    estimate = rl.estimate(folder / given if given else str(folder), "h100-sxm", prompt_tokens=0, output_tokens=1)
    assert (estimate.weights, estimate.engine) == ("hf:file (bf16)", "vllm:cuda")
    assert estimate.memory.resident_weight_bytes == bytes_of(tensors)
    assert layout_of(model).streamed_bytes == bytes_of(tensors) - VOCABULARY * H * 2


def sharded(folder: Path, tensors: Tensors, parts: int = 3, *, index: bool = True) -> list[Path]:
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    names = list(tensors)
    paths, places = [], {}
    for number in range(parts):
        path = folder / f"model-{number + 1:05}-of-{parts:05}.safetensors"
        mine = names[number::parts]
        paths.append(write(path, {name: tensors[name] for name in mine}))
        places |= dict.fromkeys(mine, path.name)
    if index:
        content = {"metadata": {"total_size": bytes_of(tensors), "total_parameters": 1.5}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(content, indent=2), encoding="utf-8")
    return paths


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("given", ["folder", "part", "index"])
def test_parts_are_summed(index: bool, given: str, tmp_path: Path) -> None:
    tensors = model_tensors()
    paths = sharded(tmp_path, tensors, index=index)
    if given == "index" and not index:
        return
    path = {"folder": tmp_path, "part": paths[1], "index": tmp_path / "model.safetensors.index.json"}[given]
    model = rl.model(path)
    assert model.entry.file is not None and model.entry.file.files == 3
    assert layout_of(model).resident_bytes == bytes_of(tensors)


def test_files_that_belong_to_no_model_of_the_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, model_tensors())
    write(folder / "consolidated.safetensors", {"x": ("F32", (8,))})
    write(folder / "other.safetensors", {"x": ("F32", (8,))})
    assert layout_of(rl.model(folder)).resident_bytes == bytes_of(model_tensors())
    (folder / "model.safetensors").rename(folder / "first.safetensors")
    with pytest.raises(UnsupportedModel, match="does not say which files") as caught:
        rl.model(folder)
    assert "model.safetensors.index.json" in str(caught.value)


def test_what_is_missing(tmp_path: Path) -> None:
    paths = sharded(tmp_path, model_tensors(), index=False)
    paths[1].unlink()
    with pytest.raises(UnreadableFile, match=r"part 2 of 3 is missing: model-00002-of-00003\.safetensors"):
        rl.model(tmp_path)
    sharded(tmp_path, model_tensors())
    paths[2].unlink()
    with pytest.raises(UnreadableFile, match=r"is missing: model-00003-of-00003\.safetensors"):
        rl.model(tmp_path)
    sharded(tmp_path, model_tensors())
    (tmp_path / "config.json").unlink()
    with pytest.raises(UnsupportedModel, match=r"no config\.json beside the files") as caught:
        safetensors_model.read(paths[0])
    assert caught.value.next_step is not None
    with pytest.raises(UnreadableFile, match="No such file"):
        rl.model(tmp_path / "none.safetensors")
    write(tmp_path / "adapter_model.safetensors", {"x": ("F32", (8,))})
    with pytest.raises(UnsupportedModel, match="an adapter"):
        rl.model(tmp_path / "adapter_model.safetensors")


def test_an_index_that_lies(tmp_path: Path) -> None:
    tensors = model_tensors()
    sharded(tmp_path, tensors)
    path = tmp_path / "model.safetensors.index.json"
    content = json.loads(path.read_text())
    content["weight_map"]["model.more.weight"] = "model-00001-of-00003.safetensors"
    path.write_text(json.dumps(content))
    with pytest.raises(UnreadableFile, match="1 tensors that the index places in this file are not in it"):
        rl.model(tmp_path)
    for text, expected in (
        ("", "no index of"),
        ("[]", "no index of"),
        ("{}", "no index of"),
        ('{"weight_map": {}}', "empty"),
        ('{"weight_map": []}', "is no object"),
        ('{"weight_map": {"a": "../../etc/passwd"}}', "is no name of a safetensors file"),
        ('{"weight_map": {"a": "b/c.safetensors"}}', "is no name of a safetensors file"),
        ('{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}', "occurs twice"),
        ('{"weight_map": {"a": "x.safetensors"}', "no valid JSON"),
        ('{"weight_map": {"a": NaN}}', "no valid JSON"),
        ('{"weight_map": {"a": "x.safetensors"}} {}', "no valid JSON"),
        ('{"weight_map": {"a": "none.safetensors"}}', "is missing"),
        ('{"a": ' + "[" * 100_000, "no valid JSON"),
    ):
        path.write_text(text)
        with pytest.raises(UnreadableFile, match=expected):
            rl.model(path)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    tensors = model_tensors()
    paths = sharded(tmp_path, tensors, index=False)
    first = next(iter(tensors))
    write(paths[2], {first: tensors[first]})
    with pytest.raises(UnreadableFile, match="is in another file too"):
        rl.model(tmp_path)


# --- facts that only the tensors tell -------------------------------------------------------------------------------


def test_the_head_is_the_embedding_where_there_is_none(tmp_path: Path) -> None:
    tied = rl.model(folder_of(tmp_path, model_tensors(tied=True)))
    assert tied.tied_embeddings  # whatever the configuration says
    assert layout_of(tied).streamed_bytes == bytes_of(model_tensors(tied=True))
    copied = rl.model(folder_of(tmp_path, model_tensors(), CONFIG | {"tie_word_embeddings": True}))
    assert copied.tied_embeddings
    assert layout_of(copied).resident_bytes == bytes_of(model_tensors(tied=True))  # no engine loads the copy


def test_rows_of_the_embedding(tmp_path: Path) -> None:
    model = rl.model(folder_of(tmp_path, model_tensors(), CONFIG | {"vocab_size": 90}))
    assert model.vocabulary == VOCABULARY


def test_towers_and_predictors_are_held_and_not_read(tmp_path: Path) -> None:
    tensors = model_tensors()
    more: dict[str, tuple[str, Shape]] = {
        "model.visual.blocks.0.attn.qkv.weight": ("BF16", (192, 64)),
        "vision_tower.encoder.layers.3.mlp.fc1.weight": ("BF16", (64, 64)),
        "mtp.layers.0.self_attn.q_proj.weight": ("BF16", (64, 64)),
        f"model.layers.{LAYERS}.eh_proj.weight": ("BF16", (64, 128)),
        f"model.layers.{LAYERS}.self_attn.q_proj.weight": ("BF16", (64, 64)),
    }
    model = rl.model(folder_of(tmp_path, tensors | more))
    assert layout_of(model).idle_bytes == bytes_of(more)
    assert layout_of(model).resident_bytes == bytes_of(tensors) + bytes_of(more)
    buffers: dict[str, tuple[str, Shape]] = {"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (8,))}
    model = rl.model(folder_of(tmp_path, tensors | buffers))
    assert layout_of(model).resident_bytes == bytes_of(tensors)  # rebuilt, not loaded


@pytest.mark.parametrize(
    ("more", "gone", "expected"),
    [
        ({"model.mystery.weight": ("BF16", (64,))}, (), r"'model\.mystery\.weight' is not understood"),
        ({"model.layers.1.mystery.weight": ("BF16", (64,))}, (), r"'model\.layers\.1\.mystery\.weight' is not"),
        ({"strange.layers.1.mlp.up_proj.weight": ("BF16", (64,))}, (), "is not understood"),
        ({"model.layers.0.self_attn.q_proj.bias": ("BF16", (64,))}, (), r"q_proj\.bias in layer 0 is not understood"),
        ({}, ("model.layers.1.mlp.up_proj.weight",), "no tensor ffn_up in layer 1"),
        ({}, ("model.norm.weight",), "no tensor output_norm"),
        ({"model.layers.0.mlp.up_proj.weight": ("BF16", (64, 64))}, (), "holds 4,096 elements of ffn_up in layer 0"),
        ({"model.layers.1.input_layernorm.weight": ("BF16", (32,))}, (), "holds 32 elements of attn_norm"),
    ],
)
def test_tensors_that_are_not_understood_are_named(
    more: dict[str, tuple[str, Shape]], gone: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    tensors = {name: each for name, each in (model_tensors() | more).items() if name not in gone}
    with pytest.raises(UnsupportedModel, match=expected):
        rl.model(folder_of(tmp_path, tensors))


def test_an_architecture_that_is_not_described(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="rwkv"):
        rl.model(folder_of(tmp_path, model_tensors(), CONFIG | {"model_type": "rwkv"}))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3", "hidden_size": NaN}')
    with pytest.raises((InvalidSpec, UnreadableFile)):
        safetensors_model.read(tmp_path)


# --- packed weights -------------------------------------------------------------------------------------------------


def quantised(kind: str) -> tuple[dict[str, tuple[str, Shape]], dict[str, Any]]:
    """A checkpoint as its library writes it, with the configuration."""
    made = {name: each for name, each in model_tensors("F16").items() if not any(part in name for part in MATRICES)}
    config: dict[str, Any] = {}
    for layer in range(LAYERS):
        for module, (rows, columns) in MATRICES.items():
            name = f"model.layers.{layer}.{module}"
            match kind:
                case "awq":
                    made[f"{name}.qweight"] = ("I32", (columns, rows // 8))
                    made[f"{name}.qzeros"] = ("I32", (columns // 32, rows // 8))
                    made[f"{name}.scales"] = ("F16", (columns // 32, rows))
                    config = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
                case "gptq" | "gptq-3bit":
                    bits = 4 if kind == "gptq" else 3
                    made[f"{name}.qweight"] = ("I32", (columns * bits // 32, rows))
                    made[f"{name}.qzeros"] = ("I32", (columns // 32, rows * bits // 32))
                    made[f"{name}.scales"] = ("F16", (columns // 32, rows))
                    made[f"{name}.g_idx"] = ("I32", (columns,))
                    config = {"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": True}
                case "w4a16":
                    made[f"{name}.weight_packed"] = ("I32", (rows, columns // 8))
                    made[f"{name}.weight_scale"] = ("BF16", (rows, columns // 32))
                    made[f"{name}.weight_shape"] = ("I64", (2,))
                    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
                    config = {
                        "quant_method": "compressed-tensors",
                        "format": "pack-quantized",
                        "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
                    }
                case "nvfp4":
                    made[f"{name}.weight"] = ("U8", (rows, columns // 2))
                    made[f"{name}.weight_scale"] = ("F8_E4M3", (rows, columns // 16))
                    made[f"{name}.weight_scale_2"] = ("F32", ())
                    made[f"{name}.input_scale"] = ("F32", ())
                    config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
                case "nvfp4-packed":
                    made[f"{name}.weight_packed"] = ("U8", (rows, columns // 2))
                    made[f"{name}.weight_scale"] = ("F8_E4M3", (rows, columns // 16))
                    made[f"{name}.weight_global_scale"] = ("F32", (1,))
                    made[f"{name}.input_global_scale"] = ("F32", (1,))
                    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
                    config = {
                        "quant_method": "compressed-tensors",
                        "format": "nvfp4-pack-quantized",
                        "config_groups": {"group_0": {"weights": weights}},
                    }
                case "fp8-block":
                    made[f"{name}.weight"] = ("F8_E4M3", (rows, columns))
                    made[f"{name}.weight_scale_inv"] = ("F32", (-(-rows // 128), -(-columns // 128)))
                    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}
                case "int8":
                    made[f"{name}.weight"] = ("I8", (rows, columns))
                    made[f"{name}.weight_scale"] = ("BF16", (rows, 1))
                    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
                    config = {
                        "quant_method": "compressed-tensors",
                        "format": "int-quantized",
                        "config_groups": {"group_0": {"weights": weights}},
                    }
                case "bnb":
                    made[f"{name}.weight"] = ("U8", (rows * columns // 2, 1))
                    made[f"{name}.weight.absmax"] = ("U8", (rows * columns // 64,))
                    made[f"{name}.weight.quant_map"] = ("F32", (16,))
                    made[f"{name}.weight.nested_absmax"] = ("F32", (1,))
                    made[f"{name}.weight.nested_quant_map"] = ("F32", (256,))
                    made[f"{name}.weight.quant_state.bitsandbytes__nf4"] = ("U8", (100,))
                    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
                case "mlx":
                    bits = 8 if "down" in module else 4
                    made[f"{name}.weight"] = ("U32", (rows, columns * bits // 32))
                    made[f"{name}.scales"] = ("BF16", (rows, columns // 64))
                    made[f"{name}.biases"] = ("BF16", (rows, columns // 64))
                    config.setdefault("group_size", 64)
                    config.setdefault("bits", 4)
                    if bits == 8:
                        config[name] = {"group_size": 64, "bits": 8}
                case "exl3":
                    made[f"{name}.trellis"] = ("I16", (columns // 16, rows // 16, 16 * 4))
                    made[f"{name}.suh"] = ("F16", (columns,))
                    made[f"{name}.svh"] = ("F16", (rows,))
                    config = {"quant_method": "exl3", "bits": 4.0}
    return made, {"quantization" if kind == "mlx" else "quantization_config": config}


QUANTISED = {
    "awq": ("int4_g32_zp", "hf", "awq"),
    "gptq": ("int4_g32_zp", "hf", "gptq-g32"),
    "gptq-3bit": ("int4_g32_zp", "hf", "gptq"),
    "w4a16": ("int4_g32_zp", "hf", "w4a16-g32"),
    "nvfp4": ("nvfp4_g16", "hf", "nvfp4"),
    "nvfp4-packed": ("nvfp4_g16", "hf", "nvfp4"),
    "fp8-block": ("fp8_block128", "hf", "fp8-block"),
    "int8": ("int8_row", "hf", "int8"),
    "bnb": ("nf4_dq", "hf", "bnb-nf4-dq"),
    "mlx": ("mlx_4bit_g64", "mlx", "4bit"),
    "exl3": ("exl3_4", "exl", "exl3"),
}


@pytest.mark.parametrize("kind", QUANTISED)
def test_packed_weights_are_unpacked_to_parameters(kind: str, tmp_path: Path) -> None:
    tensors, more = quantised(kind)
    model = rl.model(folder_of(tmp_path, tensors, CONFIG | more))
    plain = rl.model(folder_of(tmp_path, model_tensors()))
    assert model.total_params == plain.total_params
    assert layout_of(model).resident_bytes == bytes_of(tensors)
    file = model.entry.file
    assert file is not None
    encoding, family, label = QUANTISED[kind]
    assert (file.by_place[0, "attn_q"].encoding, file.family, file.label) == (encoding, family, label)
    assert file.by_place[0, "attn_q"].encoding in encodings().encodings
    assert file.by_place[-1, "output"].encoding == "f16"
    scales = sum(size_of(*each) for name, each in tensors.items() if "layers.0.self_attn.q_proj." in name)
    assert file.by_place[0, "attn_q"].bytes == scales


def test_experts_in_blocks_of_mxfp4(tmp_path: Path) -> None:
    config = CONFIG | {
        "model_type": "gpt_oss",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "intermediate_size": 32,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"],
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    }
    made = {name: each for name, each in model_tensors().items() if "layers" not in name}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        for part, shape in MATRICES.items():
            if part.startswith("self_attn"):
                made |= {f"{name}{part}.weight": ("BF16", shape), f"{name}{part}.bias": ("BF16", shape[:1])}
        made |= {f"{name}{part}.weight": ("BF16", (H,)) for part in ("input_layernorm", "post_attention_layernorm")}
        made |= {
            f"{name}self_attn.sinks": ("BF16", (4,)),
            f"{name}mlp.router.weight": ("BF16", (4, H)),
            f"{name}mlp.router.bias": ("BF16", (4,)),
            f"{name}mlp.experts.gate_up_proj_blocks": ("U8", (4, 64, 2, 16)),
            f"{name}mlp.experts.gate_up_proj_scales": ("U8", (4, 64, 2)),
            f"{name}mlp.experts.gate_up_proj_bias": ("BF16", (4, 64)),
            f"{name}mlp.experts.down_proj_blocks": ("U8", (4, 64, 1, 16)),
            f"{name}mlp.experts.down_proj_scales": ("U8", (4, 64, 1)),
            f"{name}mlp.experts.down_proj_bias": ("BF16", (4, 64)),
        }
    model = rl.model(folder_of(tmp_path, made, config))
    file = model.entry.file
    assert file is not None and layout_of(model).resident_bytes == bytes_of(made)
    gate, down = file.by_place[0, "ffn_gate_exps"], file.by_place[0, "ffn_down_exps"]
    assert (gate.encoding, gate.elements, gate.bytes) == ("mxfp4", 4 * 32 * 64, 4 * 32 * 2 * 17)
    assert (down.encoding, down.elements, down.bytes) == ("mxfp4", 4 * 64 * 32, 4 * 64 * 17)
    assert rl.estimate(model, "h100-sxm").weights == "hf:file (mxfp4)"


def test_packed_without_a_word_on_how(tmp_path: Path) -> None:
    tensors, _ = quantised("gptq")
    with pytest.raises(UnsupportedModel, match=r"is packed, and config\.json does not say"):
        rl.model(folder_of(tmp_path, tensors))


@pytest.mark.parametrize(
    "values",
    [
        {"quantization_config": "awq"},
        {"quantization_config": {"quant_method": ["awq"]}},
        {"quantization_config": {"quant_method": "gptq", "bits": "4"}},
        {"quantization_config": {"quant_method": "gptq", "bits": -1, "group_size": None}},
        {"quantization_config": {"config_groups": {"a": {"weights": None}, "b": 3}}},
        {"quantization": {"group_size": 64, "bits": 10**9}},
        {"text_config": {"quantization_config": {"quant_algo": 7}}},
    ],
)
def test_a_quantisation_that_makes_no_sense_breaks_nothing(values: dict[str, Any]) -> None:
    packing = packing_of(values)
    assert packing.bits is None or 1 <= packing.bits <= 16


# --- families -------------------------------------------------------------------------------------------------------


def every(layers: int, prefix: str, modules: Mapping[str, Shape], dtype: str = "BF16") -> dict[str, tuple[str, Shape]]:
    return {f"{prefix}.{layer}.{name}": (dtype, shape) for layer in range(layers) for name, shape in modules.items()}


def small(kind: str, **more: Any) -> dict[str, Any]:
    return {name: each for name, each in CONFIG.items() if name != "head_dim"} | {"model_type": kind} | more


def test_gpt_2_with_its_masks(tmp_path: Path) -> None:
    modules: dict[str, Shape] = {f"{norm}.{leaf}": (H,) for norm in ("ln_1", "ln_2") for leaf in ("weight", "bias")}
    modules |= {"attn.c_attn.weight": (H, 3 * H), "attn.c_attn.bias": (3 * H,), "attn.c_proj.weight": (H, H)}
    modules |= {"attn.c_proj.bias": (H,), "mlp.c_fc.weight": (H, 4 * H), "mlp.c_fc.bias": (4 * H,)}
    modules |= {"mlp.c_proj.weight": (4 * H, H), "mlp.c_proj.bias": (H,)}
    made = every(LAYERS, "h", modules) | {"wte.weight": ("BF16", (96, H)), "wpe.weight": ("BF16", (128, H))}
    made |= {"ln_f.weight": ("BF16", (H,)), "ln_f.bias": ("BF16", (H,))}
    masks = every(LAYERS, "h", {"attn.bias": (1, 1, 128, 128)}, "U8")
    config = {"model_type": "gpt2", "n_embd": H, "n_layer": LAYERS, "n_head": 4, "n_positions": 128, "vocab_size": 96}
    model = rl.model(folder_of(tmp_path, made | masks, config))
    assert model.tied_embeddings and layout_of(model).resident_bytes == bytes_of(made)


def test_mixtral_with_an_expert_each(tmp_path: Path) -> None:
    experts = {
        f"block_sparse_moe.experts.{n}.w{w}.weight": (H, FF) if w == 2 else (FF, H) for n in range(4) for w in (1, 2, 3)
    }
    attention = {f"{name}.weight": shape for name, shape in MATRICES.items() if name.startswith("self_attn")}
    norms: dict[str, Shape] = {f"{norm}.weight": (H,) for norm in ("input_layernorm", "post_attention_layernorm")}
    modules = {**experts, **attention, **norms, "block_sparse_moe.gate.weight": (4, H)}
    made = every(LAYERS, "model.layers", modules)
    made |= {name: each for name, each in model_tensors().items() if "layers" not in name}
    config = small("mixtral", num_local_experts=4, num_experts_per_tok=2)
    model = rl.model(folder_of(tmp_path, made, config))
    layout = layout_of(model)
    assert layout.resident_bytes == bytes_of(made)
    idle = LAYERS * 3 * H * FF * 2 * 2
    assert layout.streamed_bytes == bytes_of(made) - idle - VOCABULARY * H * 2


def test_latent_attention_in_fp8_with_a_prediction_layer(tmp_path: Path) -> None:
    latent: dict[str, Shape] = {"q_a_proj": (24, H), "q_b_proj": (4 * 24, 24), "kv_a_proj_with_mqa": (40, H)}
    latent |= {"kv_b_proj": (4 * 32, 32), "o_proj": (H, 4 * 16)}
    scales = {name: (-(-shape[0] // 128), -(-shape[1] // 128)) for name, shape in latent.items()}
    vectors: dict[str, Shape] = {"self_attn.q_a_layernorm.weight": (24,), "self_attn.kv_a_layernorm.weight": (32,)}
    vectors |= {f"{norm}.weight": (H,) for norm in ("input_layernorm", "post_attention_layernorm")}
    layers, prefix = LAYERS + 1, "model.layers"
    made = every(layers, prefix, {f"self_attn.{name}.weight": shape for name, shape in latent.items()}, "F8_E4M3")
    made |= every(
        layers, prefix, {f"self_attn.{name}.weight_scale_inv": shape for name, shape in scales.items()}, "F32"
    )
    made |= every(layers, prefix, vectors)
    made |= {f"{prefix}.0.mlp.{part}_proj.weight": ("BF16", (FF, H)) for part in ("gate", "up")}
    made[f"{prefix}.0.mlp.down_proj.weight"] = ("BF16", (H, FF))
    for layer in (1, 2):
        name = f"{prefix}.{layer}.mlp"
        made |= {f"{name}.gate.weight": ("BF16", (4, H)), f"{name}.gate.e_score_correction_bias": ("F32", (4,))}
        for part in ("experts.0", "experts.1", "experts.2", "experts.3", "shared_experts"):
            made |= {f"{name}.{part}.{each}_proj.weight": ("BF16", (32, H)) for each in ("gate", "up")}
            made[f"{name}.{part}.down_proj.weight"] = ("BF16", (H, 32))
    made[f"{prefix}.2.eh_proj.weight"] = ("BF16", (H, 2 * H))
    made |= {name: each for name, each in model_tensors().items() if "layers" not in name}
    config = small(
        "deepseek_v3",
        num_key_value_heads=4,
        q_lora_rank=24,
        kv_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_intermediate_size=32,
        first_k_dense_replace=1,
        num_nextn_predict_layers=1,
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    )
    model = rl.model(folder_of(tmp_path, made, config))
    layout, file = layout_of(model), model.entry.file
    assert file is not None and layout.resident_bytes == bytes_of(made)
    assert layout.idle_bytes == sum(size_of(*each) for name, each in made.items() if ".layers.2." in name)
    keys, values = file.by_place[0, "attn_k_b"], file.by_place[0, "attn_v_b"]
    assert keys.encoding == "fp8_block128"
    assert keys.bytes + values.bytes == size_of("F8_E4M3", latent["kv_b_proj"]) + 4


def test_gate_and_up_in_one(tmp_path: Path) -> None:
    modules: dict[str, Shape] = {"self_attn.qkv_proj.weight": (128, H), "self_attn.o_proj.weight": (H, 64)}
    modules |= {"mlp.gate_up_proj.weight": (2 * FF, H), "mlp.down_proj.weight": (H, FF)}
    modules |= {f"{norm}.weight": (H,) for norm in ("input_layernorm", "post_attention_layernorm")}
    made = every(LAYERS, "model.layers", modules)
    made |= {name: each for name, each in model_tensors().items() if "layers" not in name}
    model = rl.model(folder_of(tmp_path, made, small("phi3")))
    assert model.entry.file is not None and model.entry.file.by_place[1, "ffn_up"].elements == 2 * FF * H
    assert layout_of(model).resident_bytes == bytes_of(made)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.3.self_attn.q_proj.weight", ("layer", "attn_q")),
        ("model.language_model.layers.3.mlp.experts.17.up_proj.weight", ("layer", "ffn_up_exps")),
        ("transformer.h.0.attn.c_attn.bias", ("layer", "attn_qkv.bias")),
        ("transformer.h.0.mlp.c_proj.weight", ("layer", "ffn_down")),
        ("transformer.h.0.attn.c_proj.weight", ("layer", "attn_output")),
        ("gpt_neox.layers.4.attention.query_key_value.weight", ("layer", "attn_qkv")),
        ("model.layers.9.block_sparse_moe.experts.7.w2.weight", ("layer", "ffn_down_exps")),
        ("model.layers.9.mlp.shared_experts.gate_proj.weight", ("layer", "ffn_gate_shexp")),
        ("model.layers.9.mlp.gate.e_score_correction_bias", ("layer", "ffn_gate_inp.bias")),
        ("model.layers.9.mlp.gate.weight", ("layer", "ffn_gate_inp")),
        ("model.layers.9.self_attn.kv_a_proj_with_mqa.weight", ("layer", "attn_kv_a_mqa")),
        ("model.layers.0.linear_attn.in_proj_qkvz.weight", ("layer", "ssm_in")),
        ("model.layers.0.linear_attn.A_log", ("layer", "ssm_a")),
        ("backbone.layers.0.mixer.D", ("layer", "ssm_d")),
        ("backbone.layers.0.mixer.dt_bias", ("layer", "ssm_dt")),
        ("backbone.layers.0.mixer.dt_proj.bias", ("layer", "ssm_dt.bias")),
        ("backbone.layers.0.norm.weight", ("layer", "norm")),
        ("model.layers.0.conv.conv.weight", ("layer", "shortconv.conv")),
        ("transformer.wte.weight", ("outside", "token_embd")),
        ("lm_head.weight", ("outside", "output")),
        ("transformer.ln_f.bias", ("outside", "output_norm.bias")),
        ("backbone.norm_f.weight", ("outside", "output_norm")),
        ("model.visual.patch_embed.proj.weight", ("idle", "")),
        ("mtp.fc.weight", ("idle", "")),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", ("skip", "")),
    ],
)
def test_names_of_many_families(name: str, expected: tuple[str, str]) -> None:
    pattern, _ = pattern_of(name)
    place = place_of(pattern)
    assert (place.kind, place.name) == expected


def test_which_number_is_the_layer() -> None:
    pattern, numbers = pattern_of("model.layers.3.mlp.experts.17.up_proj.weight")
    assert pattern == "model.layers.#.mlp.experts.#.up_proj.weight"
    assert numbers[place_of(pattern).layer] == "3"


# --- what is broken, lies or means harm -----------------------------------------------------------------------------


def raw(text: str | bytes, tail: int = 64, length: int | None = None) -> bytes:
    body = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(body) if length is None else length) + body + b"\0" * tail


def entry(dtype: Any = "F32", shape: Any = (16,), offsets: Any = (0, 64)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def one(**values: Any) -> str:
    return json.dumps({"a": entry(**values)})


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too few"),
    "eight bytes": (b"\0" * 8, "too few"),
    "a header of 2^64 - 1 bytes": (raw("{}", length=2**64 - 1), "no safetensors file: a header of"),
    "a header of 4 GB": (raw("{}", length=2**32), "no safetensors file: a header of"),
    "a header that is longer than the file": (raw("{}", length=1000), "cut short"),
    "another format": (b"PK\3\4" + b"\x77" * 100, "no safetensors file"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "pointer of Git LFS"),
    "no text": (raw(b"\xff\xfe{}"), "no valid UTF-8"),
    "no object": (raw("[1, 2, 3] "), "no JSON object"),
    "a blank before the object": (raw(" {} "), "no JSON object"),
    "no end": (raw('{"a": '), "described by no object"),
    "a comma at the end": (raw(one()[:-1] + ",}"), "no valid JSON"),
    "more behind the object": (raw(one() + "{}"), "no valid JSON"),
    "a key twice": (raw(one()[:-1] + ", " + one()[1:]), "occurs twice"),
    "a field twice": (raw('{"a": {"dtype": "F32", "dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}'), "twice"),
    "nothing for an entry": (raw('{"a": null}'), "described by no object"),
    "a deep object": (raw('{"a": ' + '{"b": ' * 1000 + "1" + "}" * 1001), "described by no object"),
    "a deep list": (
        raw('{"a": {"dtype": "F32", "shape": ' + "[" * 2000 + "]" * 2000 + "}}"),
        "kind|no valid|needs dtype",
    ),
    "a deep metadata": (raw('{"__metadata__": {"a": {"b": "c"}}}'), "no object of texts"),
    "metadata of numbers": (raw('{"__metadata__": {"a": 1}}'), "no object of texts"),
    "a field too few": (raw('{"a": {"dtype": "F32", "shape": [16]}}'), "needs dtype, shape and data_offsets"),
    "a field too many": (raw(json.dumps({"a": entry() | {"more": 1}})), "needs dtype, shape and data_offsets"),
    "NaN": (raw('{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 64]}}'), "NaN is no JSON number"),
    "infinity": (raw('{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 64]}}'), "has shape"),
    "a number of 5000 digits": (
        raw('{"a": {"dtype": "F32", "shape": [' + "9" * 4000 + "]}}"),
        "needs dtype|no valid|shape",
    ),
    "an unknown type": (raw(one(dtype="F128")), "dtype 'F128', which is not known"),
    "a type that is a number": (raw(one(dtype=7)), "which is not known"),
    "a shape that is a text": (raw(one(shape="16")), "has shape"),
    "a negative length": (raw(one(shape=[-16])), "has shape"),
    "half a length": (raw(one(shape=[16.0])), "has shape"),
    "a length that is true": (raw(one(shape=[True, 16])), "has shape"),
    "nine lengths": (raw(one(shape=[1] * 9)), "has shape"),
    "2^63 elements": (raw(one(shape=[2**62, 2**62])), "does not take 64 bytes"),
    "a length of 2^64": (raw(one(shape=[2**64])), "has shape"),
    "too few bytes": (raw(one(offsets=[0, 32])), "does not take 32 bytes"),
    "offsets backwards": (raw(one(offsets=[64, 0])), "expected its start and its end"),
    "three offsets": (raw(one(offsets=[0, 32, 64])), "expected its start and its end"),
    "negative offsets": (raw(one(offsets=[-64, 0])), "expected its start and its end"),
    "a gap": (raw(one(offsets=[64, 128]), tail=128), "64 bytes before tensor 'a' belong to no tensor"),
    "a tail": (raw(one(), tail=100), "36 bytes behind the last tensor"),
    "cut data": (raw(one(), tail=60), "ends 4 bytes behind the end of the file; it is cut short"),
    "an overlap": (raw(json.dumps({"a": entry(), "b": entry(offsets=[32, 96])}), tail=96), "'a' and 'b' overlap"),
    "one place for two": (raw(json.dumps({"a": entry(), "b": entry()})), "'a' and 'b' overlap"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_refused_at_once(name: str, tmp_path: Path) -> None:
    content, expected = HOSTILE[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    started = time.perf_counter()
    with pytest.raises(UnreadableFile, match=expected) as caught:
        safetensors.read_header(path)
    assert time.perf_counter() - started < 1
    assert str(path) in str(caught.value) and caught.value.exit_code == 3


def test_a_file_that_is_cut_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path / "x.safetensors", {"a": ("F32", (4,)), "b": ("BF16", (2, 2))}, {"format": "pt"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UnreadableFile):
            safetensors.read_header(path)


BIG = 2**24 - 4096


@pytest.mark.parametrize(
    "text",
    [
        b"{" + b" " * BIG,
        b'{"a":' + b"[" * BIG,
        b'{"a":' + b'{"b":' * (BIG // 5),
        b'{"a":{"shape":[' + b"1," * (BIG // 2) + b"1]}}",
        b'{"__metadata__":{' + b",".join(b'"%d":"%d"' % (n, n) for n in range(900_000)) + b"}}",
        b'{"__metadata__":{"a":"' + b"x" * BIG + b'"}}',
        b'{"' + b"\\\\" * (BIG // 2) + b'":1}',
        b'{"' + b"\\u" * (BIG // 2),
        b'{"a":{' + b'"' * BIG,
        b"{"
        + b",".join(b'"%d":{"dtype":"U8","shape":[],"data_offsets":[%d,%d]}' % (n, n, n + 1) for n in range(260_000)),
    ],
    ids=[
        "blanks",
        "lists",
        "objects",
        "a list",
        "metadata",
        "a text",
        "escapes",
        "broken escapes",
        "quotes",
        "entries",
    ],
)
def test_a_huge_header_takes_neither_long_nor_much(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw(text[: 2**24]))
    started = time.perf_counter()
    with pytest.raises(UnreadableFile):
        safetensors.read_header(path)
    assert time.perf_counter() - started < 4  # about one second, on a machine that does nothing else
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableFile):
            safetensors.read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="a folder, or no regular file"):
        safetensors.read_header(tmp_path)
    if os.name == "posix":
        os.mkfifo(tmp_path / "x.safetensors")
        with pytest.raises(UnreadableFile, match="no regular file"):
            safetensors.read_header(tmp_path / "x.safetensors")


# --- files that other people's code wrote ---------------------------------------------------------------------------


def test_a_file_by_the_safetensors_package_is_read_exactly(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import save_file

    random = np.random.default_rng(3)
    types = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_]
    arrays = {f"t{i}": random.integers(0, 2, size=(i + 1, 3, 5)).astype(kind) for i, kind in enumerate(types)}
    arrays |= {"scalar": np.zeros((), np.float32), 'ünïcode "q"': np.zeros((2, 2), np.float16)}
    path = tmp_path / "x.safetensors"
    save_file(arrays, path, metadata={"format": "np", "text": 'with "quotes", {braces} and \\ more'})
    read = {each.name: each for each in safetensors.read_header(path)}
    assert set(read) == set(arrays)
    assert all(read[name].shape == array.shape and read[name].bytes == array.nbytes for name, array in arrays.items())
    with safe_open(path, framework="np") as theirs:
        for name in theirs.keys():  # noqa: SIM118
            assert list(read[name].shape) == theirs.get_slice(name).get_shape()
            assert read[name].dtype == theirs.get_slice(name).get_dtype()
    data = path.read_bytes()
    start = len(data) - max(each.end for each in read.values())
    for name, array in arrays.items():
        assert data[start + read[name].start : start + read[name].end] == array.tobytes()
