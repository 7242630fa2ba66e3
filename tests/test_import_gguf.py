"""GGUF files: the header read exactly, every architecture's tensors understood, and nothing hostile believed."""

import os
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.catalog import encodings
from rooflinellm.engine.layout import Layout, lay_out
from rooflinellm.errors import InvalidRequest, UnreadableFile, UnsupportedModel
from rooflinellm.importers import gguf, gguf_model
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.model import (
    Attention,
    DeltaNet,
    GatedFFN,
    KimiDelta,
    LatentAttention,
    Mamba,
    Mamba2,
    MixtureOfExperts,
    NoFFN,
    NoMixer,
    PlainFFN,
    ShortConvolution,
)

# --- files written by hand ------------------------------------------------------------------------------------------

TYPE_IDS = {name: number for number, (name, _, _) in gguf.GGML_TYPES.items()}
BLOCKS = {name: (block, size) for name, block, size in gguf.GGML_TYPES.values()}
Shape = tuple[int, ...]


def size_of(shape: Shape, encoding: str) -> int:
    block, size = BLOCKS[encoding]
    elements = 1
    for length in shape:
        elements *= length
    return elements // block * size


def text(value: str | bytes, order: str = "<") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw)) + raw


def value(item: Any, order: str = "<") -> bytes:
    """A value with its type in front; a tuple of a struct code and a list is an array of numbers."""
    codes = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "?": 7, "Q": 10, "q": 11, "d": 12}
    if isinstance(item, bool):
        return struct.pack(order + "I?", 7, item)
    if isinstance(item, int):
        return struct.pack(order + "II", 4, item)
    if isinstance(item, float):
        return struct.pack(order + "If", 6, item)
    if isinstance(item, str):
        return struct.pack(order + "I", 8) + text(item, order)
    if isinstance(item, tuple):
        code, numbers = item
        return struct.pack(f"{order}IIQ{len(numbers)}{code}", 9, codes[code], len(numbers), *numbers)
    if isinstance(item[0], str):
        return struct.pack(order + "IIQ", 9, 8, len(item)) + b"".join(text(each, order) for each in item)
    code = "?" if isinstance(item[0], bool) else "I"
    return struct.pack(f"{order}IIQ{len(item)}{code}", 9, codes[code], len(item), *item)


@dataclass
class File:
    """A GGUF file in the making: keys, and tensors as name, shape (row length first) and type."""

    keys: dict[str, Any] = field(default_factory=dict)
    tensors: list[tuple[str, Shape, str]] = field(default_factory=list)
    order: str = "<"
    version: int = 3
    alignment: int = 32

    def header(self) -> bytes:
        order = self.order
        parts = [b"GGUF", struct.pack(order + "IQQ", self.version, len(self.tensors), len(self.keys))]
        for key, item in self.keys.items():
            parts += [text(key, order), value(item, order)]
        offset = 0
        for name, shape, encoding in self.tensors:
            parts += [text(name, order), struct.pack(f"{order}I{len(shape)}Q", len(shape), *shape)]
            parts += [struct.pack(order + "IQ", TYPE_IDS[encoding], offset)]
            offset += self.padded(size_of(shape, encoding))
        return b"".join(parts)

    def padded(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment

    @property
    def tensor_bytes(self) -> int:
        return sum(size_of(shape, encoding) for _, shape, encoding in self.tensors)

    def write(self, path: Path) -> Path:
        header = self.header()
        with open(path, "wb") as stream:
            stream.write(header)
            data = sum(self.padded(size_of(shape, encoding)) for _, shape, encoding in self.tensors)
            stream.truncate(self.padded(len(header)) + data)  # sparse: nobody reads the data
        return path


# --- tiny models of every architecture, as llama.cpp's loader asks for them -------------------------------------------

H, HEADS, KV, HEAD, FF, VOCABULARY, EXPERTS, USED = 64, 4, 2, 16, 128, 96, 8, 2
Q, K = HEADS * HEAD, KV * HEAD
Tensors = dict[str, Shape]


def qkv(q: int = Q, k: int = K, v: int = K, out: int = Q, h: int = H) -> Tensors:
    return {"attn_q.weight": (h, q), "attn_k.weight": (h, k), "attn_v.weight": (h, v), "attn_output.weight": (out, h)}


def norms(*names: str, bias: bool = False) -> Tensors:
    made: Tensors = {f"{name}.weight": (H,) for name in names}
    return made | ({f"{name}.bias": (H,) for name in names} if bias else {})


def gated(ff: int = FF) -> Tensors:
    return {"ffn_gate.weight": (H, ff), "ffn_up.weight": (H, ff), "ffn_down.weight": (ff, H)}


def plain(ff: int = FF, bias: bool = False) -> Tensors:
    made: Tensors = {"ffn_up.weight": (H, ff), "ffn_down.weight": (ff, H)}
    return made | ({"ffn_up.bias": (ff,), "ffn_down.bias": (H,)} if bias else {})


def experts(ff: int = 32, *, shared: int = 0, gate: bool = True, width: int = H) -> Tensors:
    made: Tensors = {
        "ffn_gate_inp.weight": (H, EXPERTS),
        "ffn_up_exps.weight": (width, ff, EXPERTS),
        "ffn_down_exps.weight": (ff, width, EXPERTS),
    }
    if gate:
        made["ffn_gate_exps.weight"] = (width, ff, EXPERTS)
    if shared:
        made |= {"ffn_up_shexp.weight": (H, shared), "ffn_down_shexp.weight": (shared, H)}
        if gate:
            made["ffn_gate_shexp.weight"] = (H, shared)
    return made


def head_norms(width: int = HEAD, k: int | None = None) -> Tensors:
    return {"attn_q_norm.weight": (width,), "attn_k_norm.weight": (k or width,)}


def without(tensors: Tensors, *names: str) -> Tensors:
    return {name: shape for name, shape in tensors.items() if name not in names}


MOE = {"expert_count": EXPERTS, "expert_used_count": USED}
SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.time_step_rank": 8, "ssm.group_count": 2}
BOTH = norms("attn_norm", "ffn_norm")
FUSED_QKV: Tensors = {"attn_qkv.weight": (H, Q + 2 * K), "attn_output.weight": (Q, H)}


def mamba1(inner_norms: bool = False) -> Tensors:
    made: Tensors = {
        "ssm_in.weight": (H, 256),
        "ssm_conv1d.weight": (4, 128),
        "ssm_conv1d.bias": (128,),
        "ssm_x.weight": (128, 8 + 2 * 16),
        "ssm_dt.weight": (8, 128),
        "ssm_dt.bias": (128,),
        "ssm_a": (16, 128),
        "ssm_d": (128,),
        "ssm_out.weight": (128, H),
    }
    return made | (
        {"ssm_dt_norm.weight": (8,), "ssm_b_norm.weight": (16,), "ssm_c_norm.weight": (16,)} if inner_norms else {}
    )


def mamba2() -> Tensors:
    width = 128 + 2 * 2 * 16
    return {
        "ssm_in.weight": (H, 128 + width + 8),
        "ssm_conv1d.weight": (4, width),
        "ssm_conv1d.bias": (width,),
        "ssm_dt.bias": (8,),
        "ssm_a": (1, 8),
        "ssm_d": (1, 8),
        "ssm_norm.weight": (64, 2),
        "ssm_out.weight": (128, H),
    }


def delta_net(legacy: bool = False, apart: bool = False) -> Tensors:
    keys, values = 2 * 16, 8 * 16
    width = 2 * keys + values
    made: Tensors = {
        "ssm_conv1d.weight": (4, width),
        "ssm_dt.bias": (8,),
        "ssm_a": (8,),
        "ssm_norm.weight": (16,),
        "ssm_out.weight": (values, H),
    }
    made |= {"ssm_in.weight": (H, width + values)} if legacy else {"attn_qkv.weight": (H, width), "attn_gate.weight": (H, values)}
    made |= {"ssm_beta.weight": (H, 8), "ssm_alpha.weight": (H, 8)} if apart else {"ssm_ba.weight": (H, 16)}
    return made


def latent(q_rank: int | None = 24, *, legacy: bool = False) -> Tensors:
    """kv_lora_rank 32, rope 8, nope 16, values 16."""
    made: Tensors = {
        "attn_kv_a_mqa.weight": (H, 40),
        "attn_kv_a_norm.weight": (32,),
        "attn_output.weight": (HEADS * 16, H),
    }
    if q_rank is None:
        made["attn_q.weight"] = (H, HEADS * 24)
    else:
        made |= {"attn_q_a.weight": (H, q_rank), "attn_q_a_norm.weight": (q_rank,), "attn_q_b.weight": (q_rank, HEADS * 24)}
    if legacy:
        return made | {"attn_kv_b.weight": (32, HEADS * 32)}
    return made | {"attn_k_b.weight": (16, 32, HEADS), "attn_v_b.weight": (32, 16, HEADS)}


LATENT = {
    "attention.kv_lora_rank": 32,
    "attention.key_length": 40,
    "attention.value_length": 32,
    "attention.key_length_mla": 24,
    "attention.value_length_mla": 16,
    "rope.dimension_count": 8,
}
LEGACY_LATENT = LATENT | {"attention.key_length": 24, "attention.value_length": 16}
for _gone in ("attention.key_length_mla", "attention.value_length_mla"):
    del LEGACY_LATENT[_gone]


def kimi_delta() -> Tensors:
    made: Tensors = {f"attn_{part}.weight": (H, Q) for part in "qkv"}
    made |= {f"ssm_conv1d_{part}.weight": (4, 1, Q) for part in "qkv"}
    made |= {f"ssm_{part}_a.weight": (H, HEAD) for part in "fg"} | {f"ssm_{part}_b.weight": (HEAD, Q) for part in "fg"}
    return made | {
        "ssm_beta.weight": (H, HEADS),
        "ssm_a": (1, HEADS),
        "ssm_dt.bias": (Q,),
        "ssm_norm.weight": (HEAD,),
        "attn_output.weight": (Q, H),
    }


def short_convolution() -> Tensors:
    return {"shortconv.conv.weight": (3, H), "shortconv.in_proj.weight": (H, 3 * H), "shortconv.out_proj.weight": (H, H)}


def next_token(block: Tensors) -> Tensors:
    return block | {"nextn.eh_proj.weight": (2 * H, H), "nextn.enorm.weight": (H,), "nextn.hnorm.weight": (H,)}


def gemma3n_side() -> Tensors:
    return norms("post_norm", "laurel_post_norm", "altup_router_norm") | {
        "inp_gate.weight": (H, 32),
        "proj.weight": (32, H),
        "altup_correct_coef.weight": (4, 4),
        "altup_correct_scale.weight": (H,),
        "altup_predict_coef.weight": (4, 16),
        "altup_router.weight": (H, 4),
        "laurel_l.weight": (H, 8),
        "laurel_r.weight": (8, H),
    }


@dataclass(frozen=True)
class Case:
    """An architecture: keys, the tensors of each layer, and those outside the layers."""

    architecture: str
    layer: Callable[[int], Tensors]
    layers: int = 4
    keys: dict[str, Any] = field(default_factory=dict)
    outside: Tensors = field(default_factory=dict)
    tied: bool = True
    final_norm: str = "output_norm"
    name: str = ""

    def file(self, encoding: Callable[[str, Shape], str] | None = None) -> File:
        keys: dict[str, Any] = {
            "context_length": 4096,
            "embedding_length": H,
            "block_count": self.layers,
            "feed_forward_length": FF,
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV,
        } | self.keys
        tensors: Tensors = {"token_embd.weight": (H, VOCABULARY)}
        if self.final_norm:
            tensors[f"{self.final_norm}.weight"] = (H,)
        if not self.tied:
            tensors["output.weight"] = (H, VOCABULARY)
        tensors |= self.outside
        for index in range(self.layers):
            tensors |= {f"blk.{index}.{name}": shape for name, shape in self.layer(index).items()}
        choose = encoding or (lambda name, shape: "f32" if len(shape) == 1 else "f16")
        return File(
            {"general.architecture": self.architecture, "general.file_type": 1, "general.name": "Tiny"}
            | {f"{self.architecture}.{key}": item for key, item in keys.items() if item is not None},
            [(name, shape, choose(name, shape)) for name, shape in tensors.items()],
        )


def decoder(architecture: str, layer: Tensors, **more: Any) -> Case:
    return Case(architecture, lambda index: layer, **more)


ALL_BIASES = {"attn_qkv.bias": (Q + 2 * K,), "attn_output.bias": (H,)}
GPT: Tensors = norms("attn_norm", "ffn_norm", bias=True) | FUSED_QKV | ALL_BIASES | plain(bias=True)
POSITIONS: Tensors = {"position_embd.weight": (H, 4096), "output_norm.bias": (H,)}
FOUR = norms("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
PROBABILITIES = {"exp_probs_b.bias": (EXPERTS,)}
KEY_LENGTHS = {"attention.key_length": HEAD, "attention.value_length": HEAD}
HYBRID_HEADS = {"attention.head_count_kv": [0, 0, KV, 0]}

CASES = [
    decoder("llama", BOTH | qkv() | gated(), outside={"rope_freqs.weight": (8,)}),
    decoder("llama", BOTH | qkv() | experts(FF), keys=MOE, tied=False, name="llama-moe"),
    decoder(
        "llama",
        BOTH
        | qkv()
        | {"ffn_gate_inp.weight": (H, EXPERTS)}
        | {f"ffn_{part}.{n}.weight": (H, FF) for part in ("gate", "up") for n in range(EXPERTS)}
        | {f"ffn_down.{n}.weight": (FF, H) for n in range(EXPERTS)},
        keys=MOE,
        tied=False,
        name="llama-moe-separate",
    ),
    Case(
        "deci",
        lambda i: {**(norms("attn_norm") | qkv() if i != 1 else {}), **(norms("ffn_norm") | gated() if i != 2 else {})},
        keys={"attention.head_count": [4, 0, 4, 4], "attention.head_count_kv": [2, 0, 2, 2]},
    ),
    decoder("mistral3", BOTH | qkv(q=128, out=128, k=K, v=K) | gated(), keys={"attention.key_length": 32, "attention.value_length": 32, "attention.head_count_kv": 1}),
    decoder("smollm3", BOTH | qkv() | gated()),
    decoder("seed_oss", norms("attn_norm", "post_attention_norm") | qkv() | gated()),
    decoder("qwen", BOTH | {"attn_qkv.weight": (H, 3 * H), "attn_qkv.bias": (3 * H,), "attn_output.weight": (H, H)} | gated(FF // 2), keys={"attention.head_count_kv": None}, tied=False),
    decoder("qwen2", BOTH | qkv() | {"attn_q.bias": (Q,), "attn_k.bias": (K,), "attn_v.bias": (K,)} | gated()),
    decoder("qwen3", BOTH | qkv() | head_norms() | gated()),
    decoder("qwen2moe", BOTH | qkv() | experts(shared=48) | {"ffn_gate_inp_shexp.weight": (H,)}, keys=MOE, tied=False),
    decoder("qwen3moe", BOTH | qkv() | head_norms() | experts(), keys=MOE | KEY_LENGTHS),
    decoder("gemma", BOTH | qkv() | gated()),
    decoder("gemma2", FOUR | qkv() | gated(), keys={"attention.sliding_window": 1024}),
    decoder("gemma3", FOUR | qkv() | head_norms() | gated(), layers=8, keys={"attention.sliding_window": 512}),
    Case(
        "gemma3n",
        lambda i: FOUR | qkv() | head_norms() | gated() | gemma3n_side(),
        layers=25,
        keys={"attention.sliding_window": 512, "embedding_length_per_layer_input": 32},
        outside={
            "per_layer_token_embd.weight": (32 * 25, VOCABULARY),
            "per_layer_model_proj.weight": (H, 32 * 25),
            "per_layer_proj_norm.weight": (32,),
            "altup_proj.weight": (H, H, 3),
            "altup_unembd_proj.weight": (H, H, 3),
        },
    ),
    Case(
        "gemma4",
        lambda i: FOUR
        | norms("post_norm")
        | {"inp_gate.weight": (H, 32), "proj.weight": (32, H), "layer_output_scale.weight": (1,)}
        | gated(FF if i < 3 else 2 * FF)
        | (
            without(
                qkv() | head_norms() if i % 3 < 2 else qkv(2 * Q, 2 * HEAD, 2 * HEAD, 2 * Q) | head_norms(2 * HEAD),
                *(("attn_k.weight", "attn_v.weight", "attn_k_norm.weight") if i >= 4 else ()),
                *(("attn_v.weight",) if i == 2 else ()),
            )
        ),
        layers=6,
        keys={
            "attention.sliding_window": 512,
            "attention.sliding_window_pattern": [True, True, False, True, True, False],
            "attention.shared_kv_layers": 2,
            "attention.key_length": 2 * HEAD,
            "attention.value_length": 2 * HEAD,
            "attention.key_length_swa": HEAD,
            "attention.value_length_swa": HEAD,
            "attention.head_count_kv": [2, 2, 1, 2, 2, 1],
            "feed_forward_length": [FF, FF, FF, 2 * FF, 2 * FF, 2 * FF],
            "embedding_length_per_layer_input": 32,
        },
        outside={
            "rope_freqs.weight": (HEAD,),
            "per_layer_token_embd.weight": (32 * 6, VOCABULARY),
            "per_layer_model_proj.weight": (H, 32 * 6),
            "per_layer_proj_norm.weight": (32,),
        },
    ),
    decoder(
        "gemma4",
        FOUR
        | qkv()
        | head_norms()
        | gated(48)
        | {
            "ffn_gate_inp.weight": (H, EXPERTS),
            "ffn_gate_inp.scale": (H,),
            "ffn_gate_up_exps.weight": (H, 64, EXPERTS),
            "ffn_down_exps.weight": (32, H, EXPERTS),
            "ffn_down_exps.scale": (EXPERTS,),
        }
        | norms("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"),
        keys={"attention.sliding_window": 512, "attention.sliding_window_pattern": [True, True, True, False]} | MOE,
        name="gemma4-moe",
    ),
    decoder(
        "phi2",
        norms("attn_norm", bias=True) | FUSED_QKV | ALL_BIASES | plain(bias=True),
        tied=False,
        outside={"output_norm.bias": (H,), "output.bias": (VOCABULARY,)},
    ),
    decoder(
        "phi3",
        BOTH | FUSED_QKV | {"ffn_up.weight": (H, 2 * FF), "ffn_down.weight": (FF, H)},
        keys={"attention.sliding_window": 2047},
        outside={"rope_factors_long.weight": (8,), "rope_factors_short.weight": (8,)},
    ),
    decoder(
        "phimoe",
        norms("attn_norm", "ffn_norm", bias=True)
        | qkv()
        | {"attn_q.bias": (Q,), "attn_k.bias": (K,), "attn_v.bias": (K,), "attn_output.bias": (H,)}
        | experts(FF),
        keys=MOE,
        tied=False,
        outside={"output_norm.bias": (H,), "output.bias": (VOCABULARY,)},
    ),
    decoder(
        "gpt-oss",
        norms("attn_norm", "post_attention_norm")
        | qkv()
        | {"attn_q.bias": (Q,), "attn_k.bias": (K,), "attn_v.bias": (K,), "attn_output.bias": (H,)}
        | {"attn_sinks.weight": (HEADS,)}
        | experts()
        | {"ffn_gate_inp.bias": (EXPERTS,), "ffn_down_exps.bias": (H, EXPERTS)}
        | {"ffn_gate_exps.bias": (32, EXPERTS), "ffn_up_exps.bias": (32, EXPERTS)},
        keys=MOE | KEY_LENGTHS | {"attention.sliding_window": 128, "expert_feed_forward_length": 32},
        tied=False,
    ),
    decoder("deepseek", BOTH | qkv() | experts(shared=64), keys=MOE | {"expert_shared_count": 2}),
    Case(
        "deepseek2",
        lambda i: BOTH | latent() | (gated() if i == 0 else experts(shared=32) | PROBABILITIES),
        keys=MOE | LATENT | {"leading_dense_block_count": 1, "expert_shared_count": 1, "attention.head_count_kv": 1},
        tied=False,
    ),
    Case(
        "deepseek2",
        lambda i: BOTH | latent(None, legacy=True) | (gated() if i == 0 else experts(shared=64)),
        keys=MOE | LEGACY_LATENT,
        tied=False,
        name="deepseek2-lite-legacy",
    ),
    Case(
        "deepseek2",
        lambda i: (next_token if i == 3 else dict)(BOTH | latent() | (gated() if i == 0 else experts(shared=32))),
        keys=MOE | LATENT | {"nextn_predict_layers": 1},
        tied=False,
        name="deepseek2-mtp",
    ),
    decoder(
        "deepseek32",
        BOTH
        | latent()
        | gated()
        | {
            "indexer.k_norm.weight": (16,),
            "indexer.k_norm.bias": (16,),
            "indexer.proj.weight": (H, 2),
            "indexer.attn_k.weight": (H, 16),
            "indexer.attn_q_b.weight": (24, 32),
        },
        keys=LATENT | {"attention.indexer.head_count": 2, "attention.indexer.key_length": 16, "attention.indexer.top_k": 64},
    ),
    decoder("chatglm", BOTH | FUSED_QKV | {"attn_qkv.bias": (Q + 2 * K,)} | {"ffn_up.weight": (H, 2 * FF), "ffn_down.weight": (FF, H)}, tied=False),
    decoder("glm4", FOUR | qkv() | {"ffn_up.weight": (H, 2 * FF), "ffn_down.weight": (FF, H)}),
    Case(
        "glm4moe",
        lambda i: (next_token if i == 3 else dict)(
            norms("attn_norm", "post_attention_norm")
            | qkv()
            | {"attn_q.bias": (Q,), "attn_k.bias": (K,), "attn_v.bias": (K,)}
            | (gated() if i == 0 else experts(shared=32) | PROBABILITIES)
        ),
        keys=MOE | {"nextn_predict_layers": 1, "leading_dense_block_count": 1},
        tied=False,
    ),
    Case(
        "qwen3next",
        lambda i: norms("attn_norm", "post_attention_norm")
        | (qkv(2 * Q) | head_norms() if i == 3 else delta_net())
        | experts(shared=32)
        | {"ffn_gate_inp_shexp.weight": (H,)},
        keys=MOE | SSM | KEY_LENGTHS,
    ),
    Case(
        "qwen3next",
        lambda i: norms("attn_norm", "post_attention_norm")
        | (qkv(2 * Q) | head_norms() if i == 3 else delta_net(legacy=True))
        | experts(shared=32)
        | {"ffn_gate_inp_shexp.weight": (H,)},
        keys=MOE | SSM | KEY_LENGTHS,
        name="qwen3next-legacy",
    ),
    Case(
        "qwen35",
        lambda i: (next_token if i == 4 else dict)(
            norms("attn_norm", "post_attention_norm")
            | (qkv(2 * Q) | head_norms() if i >= 3 else delta_net(apart=True))
            | gated()
        ),
        layers=5,
        keys=SSM | KEY_LENGTHS | {"nextn_predict_layers": 1},
    ),
    Case(
        "qwen35moe",
        lambda i: norms("attn_norm", "post_attention_norm")
        | (qkv(2 * Q) | head_norms() if i == 3 else delta_net(apart=True))
        | without(experts(shared=32), "ffn_gate_exps.weight", "ffn_up_exps.weight")
        | {"ffn_gate_up_exps.weight": (H, 64, EXPERTS), "ffn_gate_inp_shexp.weight": (H,)},
        keys=MOE | SSM | KEY_LENGTHS,
    ),
    decoder("mamba", norms("attn_norm") | mamba1(), keys=SSM | {"attention.head_count": 0, "attention.head_count_kv": None}),
    decoder("mamba2", norms("attn_norm") | mamba2(), keys=SSM | {"attention.head_count": 0}),
    Case(
        "jamba",
        lambda i: BOTH | (qkv() if i == 2 else mamba1(inner_norms=True)) | (experts() if i % 2 else gated()),
        keys=MOE | SSM | HYBRID_HEADS,
    ),
    Case(
        "nemotron_h",
        lambda i: norms("attn_norm") | (mamba2(), plain(), qkv(), plain())[i],
        keys=SSM | {"attention.head_count_kv": [0, 0, KV, 0], "feed_forward_length": [0, FF, 0, FF]},
    ),
    Case(
        "nemotron_h_moe",
        lambda i: norms("attn_norm")
        | (
            mamba2()
            if i == 0
            else experts(gate=False, shared=48, width=32)
            | PROBABILITIES
            | {"ffn_latent_down.weight": (H, 32), "ffn_latent_up.weight": (32, H)}
            if i < 3
            else qkv()
        ),
        keys=SSM | MOE | {"attention.head_count_kv": [0, 0, 0, KV]},
    ),
    decoder("granite", BOTH | qkv() | gated()),
    decoder("granitemoe", BOTH | qkv() | experts(shared=32), keys=MOE),
    Case(
        "granitehybrid",
        lambda i: BOTH | (qkv() if i == 2 else mamba2()) | experts(shared=32),
        keys=MOE | SSM | HYBRID_HEADS,
    ),
    decoder("falcon", norms("attn_norm", "attn_norm_2", bias=True) | FUSED_QKV | plain(), outside={"output_norm.bias": (H,)}),
    Case(
        "falcon-h1",
        lambda i: {"attn_norm.weight": (H,), "ffn_norm": (H,)} | mamba2() | qkv() | gated(),
        keys=SSM | KEY_LENGTHS,
    ),
    Case(
        "lfm2",
        lambda i: BOTH | (qkv() | head_norms() if i == 2 else short_convolution()) | gated(),
        keys=HYBRID_HEADS | {"shortconv.l_cache": 3},
        final_norm="token_embd_norm",
    ),
    Case(
        "lfm2moe",
        lambda i: BOTH
        | (qkv() | head_norms() if i == 2 else short_convolution())
        | (gated() if i < 2 else experts() | PROBABILITIES),
        keys=MOE | HYBRID_HEADS | {"shortconv.l_cache": 3},
        final_norm="token_embd_norm",
    ),
    decoder("command-r", norms("attn_norm") | qkv() | {"attn_q_norm.weight": (HEAD, HEADS), "attn_k_norm.weight": (HEAD, KV)} | gated()),
    decoder("cohere2", norms("attn_norm") | qkv() | gated(), keys={"attention.sliding_window": 256}),
    decoder("olmo", qkv() | gated(), final_norm=""),
    decoder("olmo2", norms("post_attention_norm", "post_ffw_norm") | qkv() | head_norms(Q, K) | gated(), tied=False, keys={"attention.sliding_window": 256}),
    decoder("olmoe", BOTH | qkv() | head_norms(Q, K) | experts(FF), keys=MOE, tied=False),
    decoder(
        "starcoder2",
        norms("attn_norm", "ffn_norm", bias=True)
        | qkv()
        | {"attn_q.bias": (Q,), "attn_k.bias": (K,), "attn_v.bias": (K,), "attn_output.bias": (H,)}
        | plain(bias=True),
        keys={"attention.sliding_window": 256},
        outside={"output_norm.bias": (H,)},
    ),
    decoder("stablelm", norms("attn_norm", "ffn_norm", bias=True) | qkv() | gated(), tied=False, outside={"output_norm.bias": (H,)}),
    decoder("internlm2", BOTH | qkv() | gated(), tied=False),
    decoder("exaone", BOTH | qkv() | gated(), outside={"rope_freqs.weight": (8,)}),
    decoder("exaone4", norms("post_attention_norm", "post_ffw_norm") | qkv() | head_norms() | gated(), layers=64),
    Case("exaone-moe", lambda i: BOTH | qkv() | head_norms() | (gated() if i == 0 else experts(shared=32) | PROBABILITIES), keys=MOE, tied=False),
    decoder("minimax-m2", BOTH | qkv() | head_norms(Q, K) | experts(FF) | PROBABILITIES, keys=MOE, tied=False),
    decoder("hunyuan-moe", BOTH | qkv() | head_norms() | experts(shared=32), keys=MOE),
    decoder("hunyuan-dense", BOTH | qkv() | head_norms() | gated()),
    decoder("ernie4_5", BOTH | qkv() | gated()),
    Case("ernie4_5-moe", lambda i: BOTH | qkv() | (gated() if i == 0 else experts(shared=64) | PROBABILITIES), keys=MOE),
    Case("dots1", lambda i: BOTH | qkv() | head_norms() | (gated() if i == 0 else experts(shared=64)), keys=MOE, tied=False),
    decoder("bailingmoe2", BOTH | FUSED_QKV | head_norms() | experts(shared=32) | PROBABILITIES, keys=MOE, tied=False),
    decoder("gptj", norms("attn_norm", bias=True) | qkv() | plain(bias=True), tied=False, outside={"output_norm.bias": (H,), "output.bias": (VOCABULARY,)}),
    decoder("gptneox", GPT, tied=False, outside={"output_norm.bias": (H,)}),
    decoder("gpt2", GPT, outside=POSITIONS),
    decoder("starcoder", GPT, outside=POSITIONS),
    decoder("bloom", GPT, outside={"output_norm.bias": (H,), "token_embd_norm.weight": (H,), "token_embd_norm.bias": (H,)}),
    decoder("mpt", BOTH | FUSED_QKV | plain()),
    Case("llama4", lambda i: BOTH | qkv() | (experts(shared=32) if i % 2 else gated()), keys=MOE | {"interleave_moe_layer_step": 2}),
    Case(
        "kimi-linear",
        lambda i: BOTH | (latent(None) if i == 3 else kimi_delta()) | (gated() if i == 0 else experts(shared=32) | PROBABILITIES),
        keys=MOE | LATENT | {"kda.head_dim": HEAD, "ssm.conv_kernel": 4, "attention.head_count_kv": [0, 0, 0, HEADS]},
        tied=False,
    ),
    Case(
        "openelm",
        lambda i: BOTH
        | {"attn_qkv.weight": (H, (i + 1 + 2) * HEAD), "attn_output.weight": ((i + 1) * HEAD, H)}
        | head_norms()
        | gated(32 * (i + 1)),
        keys={"attention.head_count": [1, 2, 3, 4], "attention.head_count_kv": [1, 1, 1, 1], "feed_forward_length": [32, 64, 96, 128]}
        | KEY_LENGTHS,
    ),
]
BY_NAME = {case.name or case.architecture: case for case in CASES}


def mixed(name: str, shape: Shape) -> str:
    """Types as a dynamic mix has them: by tensor and layer, without a system."""
    if len(shape) == 1 or shape[0] % 32:
        return "f32"
    return ("q8_0", "q4_0", "q5_1", "f16", "iq4_nl", "mxfp4", "bf16")[sum(name.encode()) % 7]


def imported(case: Case, folder: Path, encoding: Callable[[str, Shape], str] | None = None) -> tuple[ModelSpec, File]:
    file = case.file(encoding)
    return ModelSpec(gguf_model.read(file.write(folder / "tiny.gguf"))), file


def layout_of(model: ModelSpec) -> Layout:
    assert model.entry.file is not None
    return lay_out(model, model.entry.file.fmt, encodings().encodings)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("encoding", [None, mixed], ids=["f16", "mixed"])
def test_every_architecture_is_understood_to_the_byte(
    name: str, encoding: Callable[[str, Shape], str] | None, tmp_path: Path
) -> None:
    model, file = imported(BY_NAME[name], tmp_path, encoding)
    layout = layout_of(model)
    assert layout.resident_bytes == file.tensor_bytes
    sizes = {tensor: size_of(shape, kind) for tensor, shape, kind in file.tensors}
    layers = model.entry.layer_count
    by_layer = [sum(size for tensor, size in sizes.items() if tensor.startswith(f"blk.{i}.")) for i in range(layers)]
    assert layout.layer_bytes == tuple(by_layer)
    predicted = sum(size for tensor, size in sizes.items() if tensor.startswith(f"blk.{layers}."))
    assert layout.idle_bytes == predicted


def test_every_listed_architecture_of_a_family_of_its_own_is_tested() -> None:
    from rooflinellm.importers.gguf_architectures import ARCHITECTURES

    tested = {case.architecture for case in CASES}
    assert tested <= set(ARCHITECTURES)
    kinds = {id(rules) for rules in ARCHITECTURES.values()}
    assert {id(ARCHITECTURES[name]) for name in tested} == kinds


# --- what the entries say -------------------------------------------------------------------------------------------


def attention(model: ModelSpec, layer: int) -> Attention:
    mixer = model.layers[layer].mixer
    assert isinstance(mixer, Attention)
    return mixer


def windows(model: ModelSpec) -> list[int | None]:
    return [attention(model, layer).window for layer in range(len(model.layers))]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemma2", [1024, None, 1024, None]),
        ("gemma3", [512] * 5 + [None, 512, 512]),
        ("gpt-oss", [128, None] * 2),
        ("cohere2", [256] * 3 + [None]),
        ("olmo2", [256] * 3 + [None]),
        ("exaone-moe", [128] * 3 + [None]),
        ("exaone4", ([4096] * 3 + [None]) * 16),
        ("gemma4", [512, 512, None] * 2),
        ("phi3", [None] * 4),  # llama.cpp switches the window of Phi-3 off
        ("starcoder2", [None] * 4),  # and never reads that of StarCoder 2
        ("llama", [None] * 4),
    ],
)
def test_windows_are_those_that_llama_cpp_applies(name: str, expected: list[int | None], tmp_path: Path) -> None:
    model, _ = imported(BY_NAME[name], tmp_path)
    assert windows(model) == expected


def test_a_window_that_the_file_lists(tmp_path: Path) -> None:
    case = BY_NAME["gemma3"]
    pattern = [False, True] * 4
    file = case.file()
    file.keys["gemma3.attention.sliding_window_pattern"] = pattern
    model = ModelSpec(gguf_model.read(file.write(tmp_path / "listed.gguf")))
    assert windows(model) == [512 if each else None for each in pattern]
    file.keys["gemma3.attention.sliding_window_pattern"] = 2
    assert windows(ModelSpec(gguf_model.read(file.write(tmp_path / "period.gguf")))) == [512, None] * 4
    del file.keys["gemma3.attention.sliding_window"]
    assert windows(ModelSpec(gguf_model.read(file.write(tmp_path / "none.gguf")))) == [None] * 8


def test_facts_that_only_tensors_tell(tmp_path: Path) -> None:
    oss, _ = imported(BY_NAME["gpt-oss"], tmp_path)
    mixer, ffn = attention(oss, 0), oss.layers[0].ffn
    assert (mixer.sinks, mixer.qkv_bias, mixer.out_bias) == (True, True, True)
    assert isinstance(ffn, MixtureOfExperts)
    assert (ffn.experts, ffn.active, ffn.bias, ffn.router_bias) == (EXPERTS, USED, True, True)
    assert not oss.tied_embeddings
    assert attention(imported(BY_NAME["qwen3"], tmp_path)[0], 0).qk_norm == "head"
    assert attention(imported(BY_NAME["olmo2"], tmp_path)[0], 0).qk_norm == "full"
    assert attention(imported(BY_NAME["command-r"], tmp_path)[0], 0).qk_norm == "full"
    phi3, _ = imported(BY_NAME["phi3"], tmp_path)
    assert attention(phi3, 0).fused_qkv
    assert phi3.layers[0].ffn == GatedFFN(kind="gated", intermediate=FF, fused=True)
    assert phi3.entry.rope_factors == 16
    assert phi3.tied_embeddings and phi3.vocabulary == VOCABULARY
    falcon, _ = imported(BY_NAME["falcon"], tmp_path)
    assert falcon.layers[0].ffn == PlainFFN(kind="plain", intermediate=FF)
    assert falcon.layers[0].norm_bias and falcon.entry.final_norm_bias
    assert imported(BY_NAME["gemma3"], tmp_path)[0].layers[0].norms == 4
    assert not imported(BY_NAME["olmo"], tmp_path)[0].entry.final_norm


def test_experts(tmp_path: Path) -> None:
    shared, _ = imported(BY_NAME["qwen2moe"], tmp_path)
    ffn = shared.layers[0].ffn
    assert isinstance(ffn, MixtureOfExperts)
    assert (ffn.shared_intermediate, ffn.shared_gate, ffn.intermediate) == (48, True, 32)
    stacked, separate = imported(BY_NAME["llama-moe"], tmp_path)[0], imported(BY_NAME["llama-moe-separate"], tmp_path)[0]
    assert stacked.layers == separate.layers
    assert stacked.total_params == separate.total_params
    layout = layout_of(stacked)
    idle = 3 * H * FF * (EXPERTS - USED) * 4 * 2
    assert layout.streamed_bytes == layout.resident_bytes - layout.embedding_bytes - idle
    beside = imported(BY_NAME["gemma4-moe"], tmp_path)[0].layers[0].ffn
    assert isinstance(beside, MixtureOfExperts) and beside.shared_intermediate == 48
    hidden = imported(BY_NAME["nemotron_h_moe"], tmp_path)[0].layers[1].ffn
    assert isinstance(hidden, MixtureOfExperts) and (hidden.expert_hidden, hidden.gated) == (32, False)
    first, *rest = (block.ffn for block in imported(BY_NAME["glm4moe"], tmp_path)[0].layers)
    assert isinstance(first, GatedFFN) and all(isinstance(each, MixtureOfExperts) for each in rest)


def test_latent_attention_split_or_not(tmp_path: Path) -> None:
    split, _ = imported(BY_NAME["deepseek2"], tmp_path)
    mixer = split.layers[0].mixer
    assert mixer == LatentAttention(
        kind="latent", heads=HEADS, q_rank=24, kv_rank=32, nope_dim=16, rope_dim=8, v_head_dim=16
    )
    assert split.kv_bytes_per_token("f16") == 4 * (32 + 8) * 2
    legacy, file = imported(BY_NAME["deepseek2-lite-legacy"], tmp_path)
    mixer = legacy.layers[0].mixer
    assert isinstance(mixer, LatentAttention) and mixer.q_rank is None and mixer.nope_dim == 16
    held = legacy.entry.file
    assert held is not None
    whole = size_of((32, HEADS * 32), "f16")
    assert held.by_place[0, "attn_k_b"].bytes + held.by_place[0, "attn_v_b"].bytes == whole
    sparse = imported(BY_NAME["deepseek32"], tmp_path)[0].layers[0].mixer
    assert isinstance(sparse, LatentAttention) and sparse.indexer is not None and sparse.indexer.top_k == 64


def test_a_prediction_module_is_held_and_not_streamed(tmp_path: Path) -> None:
    model, file = imported(BY_NAME["deepseek2-mtp"], tmp_path)
    assert len(model.layers) == 3 and model.entry.mtp is not None
    module = sum(size_of(shape, kind) for name, shape, kind in file.tensors if name.startswith("blk.3."))
    estimate = rl.estimate(model, "rtx-4090")
    assert estimate.memory.resident_weight_bytes == file.tensor_bytes
    assert layout_of(model).idle_bytes == module > 0
    assert sum(part.weight_bytes for part in estimate.memory.placement) == file.tensor_bytes
    bare = BY_NAME["deepseek2-mtp"].file()
    bare.tensors = [tensor for tensor in bare.tensors if not tensor[0].startswith("blk.3.")]
    stripped = ModelSpec(gguf_model.read(bare.write(tmp_path / "stripped.gguf")))
    assert stripped.layers == model.layers and stripped.entry.mtp is None


def test_layers_that_share_a_cache(tmp_path: Path) -> None:
    model, _ = imported(BY_NAME["gemma4"], tmp_path)
    assert [attention(model, i).kv for i in range(6)] == ["own"] * 4 + ["shared"] * 2
    assert [attention(model, i).head_dim for i in range(3)] == [HEAD, HEAD, 2 * HEAD]
    assert [attention(model, i).kv_projections for i in range(6)] == [True] * 4 + [False] * 2
    assert [attention(model, i).value_is_key for i in range(4)] == [False, False, True, False]
    assert model.kv_bytes_per_token("f16") == (3 * 2 * 2 * HEAD + 2 * 2 * HEAD) * 2
    older, _ = imported(BY_NAME["gemma3n"], tmp_path)
    assert [attention(older, i).kv for i in range(25)] == ["own"] * 20 + ["shared"] * 5
    assert all(attention(older, i).kv_projections for i in range(25))  # the file has them all the same


def test_mixers_other_than_attention(tmp_path: Path) -> None:
    delta = imported(BY_NAME["qwen35"], tmp_path)[0].layers[0].mixer
    assert delta == DeltaNet(kind="delta", key_heads=2, value_heads=8, key_dim=16, value_dim=16, conv_kernel=4)
    apart, stacked = (imported(BY_NAME[name], tmp_path)[0] for name in ("qwen3next", "qwen3next-legacy"))
    assert apart.layers == stacked.layers and apart.total_params == stacked.total_params
    assert attention(apart, 3).output_gate
    first = imported(BY_NAME["mamba"], tmp_path)[0].layers[0]
    assert first.mixer == Mamba(kind="mamba", inner=128, state=16, dt_rank=8) and isinstance(first.ffn, NoFFN)
    second = imported(BY_NAME["mamba2"], tmp_path)[0].layers[0].mixer
    assert second == Mamba2(kind="mamba2", heads=8, head_dim=16, state=16, groups=2)
    both = imported(BY_NAME["falcon-h1"], tmp_path)[0].layers[0]
    assert isinstance(both.mixer, Attention) and isinstance(both.beside, Mamba2)
    kimi = imported(BY_NAME["kimi-linear"], tmp_path)[0]
    assert isinstance(kimi.layers[0].mixer, KimiDelta) and isinstance(kimi.layers[3].mixer, LatentAttention)
    short = imported(BY_NAME["lfm2"], tmp_path)[0].layers[0].mixer
    assert short == ShortConvolution(kind="short_conv", kernel=3)
    parts = [(block.mixer.kind, block.ffn.kind) for block in imported(BY_NAME["nemotron_h"], tmp_path)[0].layers]
    assert parts == [("mamba2", "none"), ("none", "plain"), ("attention", "none"), ("none", "plain")]
    assert isinstance(imported(BY_NAME["deci"], tmp_path)[0].layers[1].mixer, NoMixer)


def test_chunks_of_llama_4(tmp_path: Path) -> None:
    model, _ = imported(BY_NAME["llama4"], tmp_path)
    assert [attention(model, i).chunk for i in range(4)] == [8192] * 3 + [None]


def test_layers_are_grouped(tmp_path: Path) -> None:
    model, _ = imported(BY_NAME["gemma3"], tmp_path)
    groups = [(group.repeat, len(group.pattern)) for group in model.entry.layers]
    assert sum(repeat * length for repeat, length in groups) == 8
    assert len(imported(BY_NAME["exaone4"], tmp_path)[0].entry.layers) == 1


# --- estimates from a file ------------------------------------------------------------------------------------------


def test_an_estimate_takes_the_bytes_of_the_file(tmp_path: Path) -> None:
    model, file = imported(BY_NAME["llama"], tmp_path, mixed)
    file.keys["general.file_type"] = 15
    model = ModelSpec(gguf_model.read(file.write(tmp_path / "mixed.gguf")))
    estimate = rl.estimate(model, "rtx-4090", prompt_tokens=0, output_tokens=1)
    assert estimate.weights == "gguf:file (Q4_K - Medium)"
    assert estimate.engine == "llama.cpp:cuda"
    assert estimate.memory.resident_weight_bytes == file.tensor_bytes
    assert layout_of(model).streamed_bytes == file.tensor_bytes - size_of((8,), "f32")  # tied: all but the factors
    assert rl.estimate(model, "rtx-4090", weights="Q4_K_M").weights == estimate.weights
    assert rl.estimate(model, "rtx-4090", weights=estimate.weights).weights == estimate.weights
    other = rl.estimate(model, "rtx-4090", weights="F16")
    assert other.weights == "gguf:f16" and other.memory.resident_weight_bytes != file.tensor_bytes
    with pytest.raises(InvalidRequest):
        rl.estimate(model, "rtx-4090", engine="vllm")
    another, _ = imported(BY_NAME["qwen3"], tmp_path)
    with pytest.raises(InvalidRequest, match="another model"):
        rl.estimate(another, "rtx-4090", weights=model.entry.file.fmt)  # type: ignore[union-attr]


def test_what_ifs_keep_the_file(tmp_path: Path) -> None:
    model, file = imported(BY_NAME["llama"], tmp_path)
    estimate = rl.estimate(model, "rtx-4090", overrides={"model.max_context_tokens": 100_000})
    assert estimate.memory.resident_weight_bytes == file.tensor_bytes
    with pytest.raises(UnsupportedModel, match="token_embd"):
        rl.estimate(model, "rtx-4090", overrides={"model.vocabulary": 100})


def test_an_entry_that_is_written_down_holds_no_file(tmp_path: Path) -> None:
    model, _ = imported(BY_NAME["llama"], tmp_path)
    assert "file" not in model.entry.model_dump()


def test_names_and_format(tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    file.keys["general.license"] = "apache-2.0"
    entry = gguf_model.read(file.write(tmp_path / "Tiny_Model  v1.5--Q4_K_M.gguf"))
    assert (entry.id, entry.name, entry.license, entry.family) == ("tiny_model-v1.5-q4_k_m", "Tiny", "apache-2.0", "llama")
    assert entry.native_format == "gguf:f16"
    assert entry.file is not None and (entry.file.label, entry.file.format) == ("F16", "gguf:f16")
    del file.keys["general.name"], file.keys["general.file_type"]
    entry = gguf_model.read(file.write(tmp_path / "ß.gguf"))
    assert entry.file is not None and (entry.file.label, entry.file.format) == ("mostly F16", None)
    assert (entry.id, entry.name) == ("model", "ß")


def test_types_agree_with_the_table_of_encodings() -> None:
    table = encodings().encodings
    for name, block, size in gguf.GGML_TYPES.values():
        if name in table:
            assert (table[name].block_elements, table[name].block_bytes) == (block, size), name
    missing = {name for name, _, _ in gguf.GGML_TYPES.values()} - set(table)
    assert missing == {"i8", "i16", "i32", "i64", "f64"}


def test_every_file_type_is_a_format_of_ours() -> None:
    from rooflinellm.importers.gguf_architectures import FILE_TYPES

    from rooflinellm.catalog import list_formats

    ids = {each.id for each in list_formats()}
    assert {f"gguf:{name}" for _, name in FILE_TYPES.values()} <= ids
