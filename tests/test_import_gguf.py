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
    made |= (
        {"ssm_in.weight": (H, width + values)}
        if legacy
        else {"attn_qkv.weight": (H, width), "attn_gate.weight": (H, values)}
    )
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
        made |= {
            "attn_q_a.weight": (H, q_rank),
            "attn_q_a_norm.weight": (q_rank,),
            "attn_q_b.weight": (q_rank, HEADS * 24),
        }
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
    return {
        "shortconv.conv.weight": (3, H),
        "shortconv.in_proj.weight": (H, 3 * H),
        "shortconv.out_proj.weight": (H, H),
    }


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
    decoder(
        "mistral3",
        BOTH | qkv(q=128, out=128, k=K, v=K) | gated(),
        keys={"attention.key_length": 32, "attention.value_length": 32, "attention.head_count_kv": 1},
    ),
    decoder("smollm3", BOTH | qkv() | gated()),
    decoder("seed_oss", norms("attn_norm", "post_attention_norm") | qkv() | gated()),
    decoder(
        "qwen",
        BOTH
        | {"attn_qkv.weight": (H, 3 * H), "attn_qkv.bias": (3 * H,), "attn_output.weight": (H, H)}
        | gated(FF // 2),
        keys={"attention.head_count_kv": None},
        tied=False,
    ),
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
        lambda i: (
            FOUR
            | norms("post_norm")
            | {"inp_gate.weight": (H, 32), "proj.weight": (32, H), "layer_output_scale.weight": (1,)}
            | gated(FF if i < 3 else 2 * FF)
            | (
                without(
                    qkv() | head_norms() if i % 3 < 2 else qkv(2 * Q, 2 * HEAD, 2 * HEAD, 2 * Q) | head_norms(2 * HEAD),
                    *(("attn_k.weight", "attn_v.weight", "attn_k_norm.weight") if i >= 4 else ()),
                    *(("attn_v.weight",) if i == 2 else ()),
                )
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
        keys=LATENT
        | {"attention.indexer.head_count": 2, "attention.indexer.key_length": 16, "attention.indexer.top_k": 64},
    ),
    Case(
        "glm-dsa",
        lambda i: (
            BOTH
            | latent()
            | gated()
            | (
                {
                    "indexer.k_norm.weight": (16,),
                    "indexer.k_norm.bias": (16,),
                    "indexer.proj.weight": (H, 2),
                    "indexer.attn_k.weight": (H, 16),
                    "indexer.attn_q_b.weight": (24, 32),
                }
                if i != 2
                else {}
            )
        ),
        keys=LATENT
        | {"attention.indexer.head_count": 2, "attention.indexer.key_length": 16, "attention.indexer.top_k": 64},
    ),
    decoder(
        "chatglm",
        BOTH | FUSED_QKV | {"attn_qkv.bias": (Q + 2 * K,)} | {"ffn_up.weight": (H, 2 * FF), "ffn_down.weight": (FF, H)},
        tied=False,
    ),
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
        lambda i: (
            norms("attn_norm", "post_attention_norm")
            | (qkv(2 * Q) | head_norms() if i == 3 else delta_net())
            | experts(shared=32)
            | {"ffn_gate_inp_shexp.weight": (H,)}
        ),
        keys=MOE | SSM | KEY_LENGTHS,
    ),
    Case(
        "qwen3next",
        lambda i: (
            norms("attn_norm", "post_attention_norm")
            | (qkv(2 * Q) | head_norms() if i == 3 else delta_net(legacy=True))
            | experts(shared=32)
            | {"ffn_gate_inp_shexp.weight": (H,)}
        ),
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
        lambda i: (
            norms("attn_norm", "post_attention_norm")
            | (qkv(2 * Q) | head_norms() if i == 3 else delta_net(apart=True))
            | without(experts(shared=32), "ffn_gate_exps.weight", "ffn_up_exps.weight")
            | {"ffn_gate_up_exps.weight": (H, 64, EXPERTS), "ffn_gate_inp_shexp.weight": (H,)}
        ),
        keys=MOE | SSM | KEY_LENGTHS,
    ),
    decoder(
        "mamba", norms("attn_norm") | mamba1(), keys=SSM | {"attention.head_count": 0, "attention.head_count_kv": None}
    ),
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
        lambda i: (
            norms("attn_norm")
            | (
                mamba2()
                if i == 0
                else experts(gate=False, shared=48, width=32)
                | PROBABILITIES
                | {"ffn_latent_down.weight": (H, 32), "ffn_latent_up.weight": (32, H)}
                if i < 3
                else qkv()
            )
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
    decoder(
        "falcon", norms("attn_norm", "attn_norm_2", bias=True) | FUSED_QKV | plain(), outside={"output_norm.bias": (H,)}
    ),
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
        lambda i: (
            BOTH
            | (qkv() | head_norms() if i == 2 else short_convolution())
            | (gated() if i < 2 else experts() | PROBABILITIES)
        ),
        keys=MOE | HYBRID_HEADS | {"shortconv.l_cache": 3},
        final_norm="token_embd_norm",
    ),
    decoder(
        "command-r",
        norms("attn_norm") | qkv() | {"attn_q_norm.weight": (HEAD, HEADS), "attn_k_norm.weight": (HEAD, KV)} | gated(),
    ),
    decoder("cohere2", norms("attn_norm") | qkv() | gated(), keys={"attention.sliding_window": 256}),
    decoder("olmo", qkv() | gated(), final_norm=""),
    decoder(
        "olmo2",
        norms("post_attention_norm", "post_ffw_norm") | qkv() | head_norms(Q, K) | gated(),
        tied=False,
        keys={"attention.sliding_window": 256},
    ),
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
    decoder(
        "stablelm",
        norms("attn_norm", "ffn_norm", bias=True) | qkv() | gated(),
        tied=False,
        outside={"output_norm.bias": (H,)},
    ),
    decoder("internlm2", BOTH | qkv() | gated(), tied=False),
    decoder("exaone", BOTH | qkv() | gated(), outside={"rope_freqs.weight": (8,)}),
    decoder("exaone4", norms("post_attention_norm", "post_ffw_norm") | qkv() | head_norms() | gated(), layers=64),
    Case(
        "exaone-moe",
        lambda i: BOTH | qkv() | head_norms() | (gated() if i == 0 else experts(shared=32) | PROBABILITIES),
        keys=MOE,
        tied=False,
    ),
    decoder("minimax-m2", BOTH | qkv() | head_norms(Q, K) | experts(FF) | PROBABILITIES, keys=MOE, tied=False),
    decoder("hunyuan-moe", BOTH | qkv() | head_norms() | experts(shared=32), keys=MOE),
    decoder("hunyuan-dense", BOTH | qkv() | head_norms() | gated()),
    decoder("ernie4_5", BOTH | qkv() | gated()),
    Case(
        "ernie4_5-moe", lambda i: BOTH | qkv() | (gated() if i == 0 else experts(shared=64) | PROBABILITIES), keys=MOE
    ),
    Case(
        "dots1",
        lambda i: BOTH | qkv() | head_norms() | (gated() if i == 0 else experts(shared=64)),
        keys=MOE,
        tied=False,
    ),
    decoder("bailingmoe2", BOTH | FUSED_QKV | head_norms() | experts(shared=32) | PROBABILITIES, keys=MOE, tied=False),
    decoder(
        "gptj",
        norms("attn_norm", bias=True) | qkv() | plain(bias=True),
        tied=False,
        outside={"output_norm.bias": (H,), "output.bias": (VOCABULARY,)},
    ),
    decoder("gptneox", GPT, tied=False, outside={"output_norm.bias": (H,)}),
    decoder("gpt2", GPT, outside=POSITIONS),
    decoder("starcoder", GPT, outside=POSITIONS),
    decoder(
        "bloom", GPT, outside={"output_norm.bias": (H,), "token_embd_norm.weight": (H,), "token_embd_norm.bias": (H,)}
    ),
    decoder("mpt", BOTH | FUSED_QKV | plain()),
    Case(
        "llama4",
        lambda i: BOTH | qkv() | (experts(shared=32) if i % 2 else gated()),
        keys=MOE | {"interleave_moe_layer_step": 2},
    ),
    Case(
        "kimi-linear",
        lambda i: (
            BOTH
            | (latent(None) if i == 3 else kimi_delta())
            | (gated() if i == 0 else experts(shared=32) | PROBABILITIES)
        ),
        keys=MOE | LATENT | {"kda.head_dim": HEAD, "ssm.conv_kernel": 4, "attention.head_count_kv": [0, 0, 0, HEADS]},
        tied=False,
    ),
    Case(
        "openelm",
        lambda i: (
            BOTH
            | {"attn_qkv.weight": (H, (i + 1 + 2) * HEAD), "attn_output.weight": ((i + 1) * HEAD, H)}
            | head_norms()
            | gated(32 * (i + 1))
        ),
        keys={
            "attention.head_count": [1, 2, 3, 4],
            "attention.head_count_kv": [1, 1, 1, 1],
            "feed_forward_length": [32, 64, 96, 128],
        }
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
    stacked, separate = (
        imported(BY_NAME["llama-moe"], tmp_path)[0],
        imported(BY_NAME["llama-moe-separate"], tmp_path)[0],
    )
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
    legacy, _ = imported(BY_NAME["deepseek2-lite-legacy"], tmp_path)
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
    assert (entry.id, entry.name, entry.license, entry.family) == (
        "tiny_model-v1.5-q4_k_m",
        "Tiny",
        "apache-2.0",
        "llama",
    )
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
    from rooflinellm.catalog import list_formats
    from rooflinellm.importers.gguf_architectures import FILE_TYPES

    ids = {each.id for each in list_formats()}
    assert {f"gguf:{name}" for _, name in FILE_TYPES.values()} <= ids


# --- reading the header ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [32, 64, 256])
def test_versions_byte_orders_and_alignments(order: str, version: int, alignment: int, tmp_path: Path) -> None:
    file = BY_NAME["qwen3"].file(mixed)
    file.order, file.version, file.alignment = order, version, alignment
    file.keys |= {
        "general.alignment": alignment,
        "test.text": "größe",
        "test.number": 2**31,
        "test.real": 0.5,
        "test.truth": True,
        "test.signed": ("q", [-(2**60), 7]),
        "test.bytes": ("B", [1, 2, 3]),
        "test.double": ("d", [1e300]),
        "tokenizer.ggml.tokens": ["a", "", "ccc"],
        "tokenizer.ggml.scores": ("f", [0.0, 1.0, 2.0]),
    }
    header = gguf.read_header(file.write(tmp_path / "x.gguf"))
    assert (header.version, header.big_endian) == (version, order == ">")
    assert header.metadata["test.text"] == "größe" and header.metadata["test.number"] == 2**31
    assert header.metadata["test.real"] == 0.5 and header.metadata["test.truth"] is True
    assert header.metadata["test.signed"] == (-(2**60), 7) and header.metadata["test.bytes"] == (1, 2, 3)
    assert header.metadata["test.double"] == (1e300,)
    assert header.metadata["tokenizer.ggml.tokens"] == gguf.Skipped(3) == header.metadata["tokenizer.ggml.scores"]
    assert [(each.name, each.shape, each.encoding) for each in header.tensors] == file.tensors
    assert header.data_offset % alignment == 0
    assert all(each.offset % alignment == 0 for each in header.tensors)
    assert header.tensor_bytes == file.tensor_bytes


def test_scalars_of_every_type(tmp_path: Path) -> None:
    codes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    body = b"".join(text(f"k{kind}") + struct.pack(f"<I{code}", kind, 1) for kind, code in codes.items())
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(codes)) + body)
    assert gguf.read_header(path).metadata == {f"k{kind}": 1 for kind in codes}


def test_a_long_text_is_skipped_over_the_edge_of_a_chunk(tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    file.keys |= {"tokenizer.chat_template": "x" * (3 * gguf.CHUNK_BYTES), "tokenizer.ggml.tokens": ["y" * 999] * 5000}
    file.keys |= {"test.last": 7}
    header = gguf.read_header(file.write(tmp_path / "x.gguf"))
    assert header.metadata["tokenizer.chat_template"] == gguf.Skipped(3 * gguf.CHUNK_BYTES)
    assert header.metadata["tokenizer.ggml.tokens"] == gguf.Skipped(5000)
    assert header.metadata["test.last"] == 7 and len(header.tensors) == len(file.tensors)
    assert header.bytes_read < 7 * gguf.CHUNK_BYTES


def test_strings_that_are_longer_than_a_chunk(tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    file.keys |= {"tokenizer.ggml.tokens": ["z" * (2 * gguf.CHUNK_BYTES), "", "z" * gguf.CHUNK_BYTES], "test.last": 7}
    assert gguf.read_header(file.write(tmp_path / "x.gguf")).metadata["test.last"] == 7


def big_file(path: Path, size: int = 40 * 10**9) -> tuple[Path, int]:
    """A Llama of 80 layers whose data is a hole, with the vocabulary of a real one."""
    file = File(
        {
            "general.architecture": "llama",
            "general.file_type": 15,
            "llama.context_length": 131072,
            "llama.embedding_length": 8192,
            "llama.block_count": 80,
            "llama.attention.head_count": 64,
            "llama.attention.head_count_kv": 8,
            "tokenizer.ggml.tokens": [f"token{number}" for number in range(128_256)],
            "tokenizer.ggml.merges": [f"to ken{number}" for number in range(280_147)],
            "tokenizer.ggml.token_type": [1] * 128_256,
        },
        [("token_embd.weight", (8192, 128_256), "q4_k"), ("output_norm.weight", (8192,), "f32")],
    )
    file.tensors += [("output.weight", (8192, 128_256), "q6_k"), ("rope_freqs.weight", (64,), "f32")]
    for layer in range(80):
        shapes = {"attn_q": (8192, 8192), "attn_k": (8192, 1024), "attn_v": (8192, 1024), "attn_output": (8192, 8192)}
        shapes |= {"ffn_gate": (8192, 28672), "ffn_up": (8192, 28672), "ffn_down": (28672, 8192)}
        more = layer < 10 or layer >= 70 or (layer - 10) % 3 == 2
        for name, shape in shapes.items():
            better = (more and name in ("attn_v", "ffn_down")) or (name == "attn_v" and not more)
            kind = ("q6_k" if more else "q5_k") if better else "q4_k"
            file.tensors.append((f"blk.{layer}.{name}.weight", shape, kind))
        file.tensors += [(f"blk.{layer}.{name}.weight", (8192,), "f32") for name in ("attn_norm", "ffn_norm")]
    file.write(path)
    assert path.stat().st_size > size
    return path, file.tensor_bytes


@pytest.mark.skipif(os.name == "nt", reason="no sparse files by default")
def test_a_file_of_40_gb_is_read_by_its_header_alone(tmp_path: Path) -> None:
    path, size = big_file(tmp_path / "Llama-3.3-70B-Q4_K_M.gguf")
    header = gguf.read_all(path)
    assert header.bytes_read < 12 * 2**20 and header.bytes_read < header.data_offset + gguf.CHUNK_BYTES
    assert header.tensor_bytes == size == 42_512_531_712  # the size of the published file's tensors
    tracemalloc.start()
    try:
        entry = gguf_model.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * 2**20
    estimate = rl.estimate(ModelSpec(entry), "h100-sxm", prompt_tokens=0, output_tokens=1, context_tokens=0)
    assert estimate.memory.resident_weight_bytes == size
    assert estimate.decode.read_bytes == pytest.approx(size - size_of((8192, 128_256), "q4_k") - 256, rel=1e-9)


# --- split files ----------------------------------------------------------------------------------------------------


def split(case: Case, folder: Path, parts: int = 3, prefix: str = "tiny") -> tuple[list[Path], File]:
    """A model in several files; only the first has the keys."""
    whole = case.file(mixed)
    share = -(-len(whole.tensors) // parts)
    paths = []
    for number in range(parts):
        keys = {"split.no": ("H", number), "split.count": ("H", parts), "split.tensors.count": len(whole.tensors)}
        flat = {key: item[1] if isinstance(item, tuple) else item for key, item in keys.items()}
        tensors = whole.tensors[number * share : (number + 1) * share]
        part = File((whole.keys if number == 0 else {}) | flat, tensors)
        paths.append(part.write(folder / f"{prefix}-{number + 1:05}-of-{parts:05}.gguf"))
    return paths, whole


@pytest.mark.parametrize("given", [0, 1, 2])
def test_the_parts_of_a_split_model_are_summed_whichever_is_named(given: int, tmp_path: Path) -> None:
    paths, whole = split(BY_NAME["qwen3moe"], tmp_path)
    entry = gguf_model.read(paths[given])
    assert entry.file is not None and entry.file.files == 3
    assert entry.file.total_bytes == whole.tensor_bytes
    assert entry.id == "tiny"
    assert layout_of(ModelSpec(entry)).resident_bytes == whole.tensor_bytes


def test_a_split_model_that_is_not_whole(tmp_path: Path) -> None:
    paths, _ = split(BY_NAME["qwen3moe"], tmp_path)
    paths[1].unlink()
    with pytest.raises(UnreadableFile, match=r"part 2 of 3 is missing: tiny-00002-of-00003\.gguf"):
        gguf_model.read(paths[0])
    other, _ = split(BY_NAME["qwen3moe"], tmp_path, parts=4)
    other[1].rename(paths[1])
    with pytest.raises(UnreadableFile, match="its header says part 2 of 4, not 2 of 3"):
        gguf_model.read(paths[0])
    renamed = paths[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(UnreadableFile, match="which its name does not say"):
        gguf_model.read(renamed)


def test_parts_that_hold_the_same_tensor_or_too_few(tmp_path: Path) -> None:
    paths, _ = split(BY_NAME["llama"], tmp_path, parts=2)
    first, second = (
        File(
            {"split.no": number, "split.count": 2, "split.tensors.count": count},
            [("a.weight", (32,), "f32"), (other, (32,), "f32")],
        )
        for number, count, other in ((0, 4, "b.weight"), (1, 4, "c.weight"))
    )
    first.write(paths[0])
    second.write(paths[1])
    with pytest.raises(UnreadableFile, match=r"tensor 'a\.weight' is in another part too"):
        gguf.read_all(paths[0])
    second.tensors[0] = ("d.weight", (32,), "f32")
    first.keys["split.tensors.count"] = 5
    first.write(paths[0])
    second.write(paths[1])
    with pytest.raises(UnreadableFile, match=r"split\.tensors\.count is 5, the parts hold 4"):
        gguf.read_all(paths[0])


def test_a_folder_with_one_model(tmp_path: Path) -> None:
    _, whole = split(BY_NAME["qwen3moe"], tmp_path)
    BY_NAME["llama"].file().write(tmp_path / "mmproj-tiny.gguf")
    model = rl.model(tmp_path)
    assert model.entry.file is not None and model.entry.file.total_bytes == whole.tensor_bytes
    assert rl.model(str(tmp_path / "tiny-00003-of-00003.gguf")).layers == model.layers
    BY_NAME["llama"].file().write(tmp_path / "other.gguf")
    with pytest.raises(UnsupportedModel, match=r"2 models \(other\.gguf, tiny-00001-of-00003\.gguf\)"):
        rl.model(tmp_path)


# --- what is broken, lies or means harm -----------------------------------------------------------------------------


def raw(keys: bytes = b"", tensors: bytes = b"", *, n_keys: int = 0, n_tensors: int = 0, tail: int = 4096) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + keys + tensors + b"\0" * tail


def info(name: str | bytes, shape: Shape, type_id: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dims + struct.pack("<IQ", type_id, offset)


HOSTILE = {
    "empty": (b"", "too few"),
    "a few bytes": (b"GGUF\3\0\0\0", "too few"),
    "another format": (b"PK\3\4" + b"\0" * 100, "no GGUF file"),
    "the older GGML": (b"lmgg" + b"\0" * 100, "no GGUF file"),
    "version 1": (b"GGUF" + struct.pack("<III", 1, 0, 0) + b"\0" * 64, "version 1;"),
    "version 4": (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4;"),
    "version 0": (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version 0;"),
    "2^63 keys": (raw(n_keys=2**63), "do not fit"),
    "2^64 - 1 tensors": (raw(n_tensors=2**64 - 1), "do not fit"),
    "a key of 4 GB": (raw(struct.pack("<Q", 2**32), n_keys=1), "a key of 4,294,967,296 bytes"),
    "a key of 2^64 - 1 bytes": (raw(struct.pack("<Q", 2**64 - 1), n_keys=1), "a key of"),
    "a text of 4 GB": (raw(text("k") + struct.pack("<IQ", 8, 2**32), n_keys=1), "a value of 4,294,967,296 bytes"),
    "a text of 2^64 - 1 bytes": (raw(text("k") + struct.pack("<IQ", 8, 2**64 - 1), n_keys=1), "a value of"),
    "an array of 2^61 floats": (raw(text("k") + struct.pack("<IIQ", 9, 6, 2**61), n_keys=1), "a value of"),
    "an array of 2^60 texts": (raw(text("k") + struct.pack("<IIQ", 9, 8, 2**60), n_keys=1), "do not fit"),
    "an array of long texts": (
        raw(text("k") + struct.pack("<IIQQ", 9, 8, 2, 2**63) + b"\0" * 64, n_keys=1),
        "a string that is longer than the file",
    ),
    "a text behind the end": (
        raw(text("k") + struct.pack("<IIQQ", 9, 8, 1, 100_000) + b"\0" * 64, n_keys=1),
        "a string that is longer than the file",
    ),
    "arrays in arrays": (
        raw(text("k") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 200, n_keys=1),
        "an array of arrays",
    ),
    "an unknown type of value": (raw(text("k") + struct.pack("<I", 13), n_keys=1), "has type 13"),
    "an unknown type of item": (raw(text("k") + struct.pack("<IIQ", 9, 77, 1), n_keys=1), "an array of type 77"),
    "a key twice": (raw((text("k") + value(1)) * 2, n_keys=2), "occurs twice"),
    "a key without a name": (raw(text("") + value(1), n_keys=1), "without a name"),
    "a key that is no text": (raw(text(b"\xff\xfe") + value(1), n_keys=1), "no valid UTF-8"),
    "a text that is none": (raw(text("k") + struct.pack("<I", 8) + text(b"\xc3("), n_keys=1), "no valid UTF-8"),
    "alignment 0": (raw(text("general.alignment") + value(0), n_keys=1), "no power of two"),
    "alignment 48": (raw(text("general.alignment") + value(48), n_keys=1), "no power of two"),
    "alignment in words": (raw(text("general.alignment") + value("32"), n_keys=1), "no power of two"),
    "alignment true": (raw(text("general.alignment") + value(True), n_keys=1), "no power of two"),
    "alignment 2^31": (
        raw(text("general.alignment") + value(2**31), info("a", (32,)), n_keys=1, n_tensors=1),
        "cut short",
    ),
    "a tensor twice": (raw(b"", info("a", (8,)) + info("a", (8,), 0, 32), n_tensors=2), "tensor 'a' occurs twice"),
    "a tensor with a long name": (raw(b"", info("a" * 256, (8,)), n_tensors=1), "a tensor name of 256 bytes"),
    "a tensor that is no text": (raw(b"", info(b"\xff", (8,)), n_tensors=1), "no valid UTF-8"),
    "five dimensions": (raw(b"", info("a", (1, 1, 1, 1, 1)), n_tensors=1), "5 dimensions"),
    "2^32 - 1 dimensions": (raw(b"", text("a") + struct.pack("<I", 2**32 - 1), n_tensors=1), "dimensions"),
    "no elements": (raw(b"", info("a", (8, 0)), n_tensors=1), "is empty"),
    "2^252 elements": (raw(b"", info("a", (2**63,) * 4), n_tensors=1), "more than the whole file"),
    "an unknown tensor type": (raw(b"", info("a", (8,), 99), n_tensors=1), "type 99"),
    "a withdrawn tensor type": (raw(b"", info("a", (8,), 4), n_tensors=1), "type 4,"),
    "rows of half a block": (raw(b"", info("a", (100, 2), 12), n_tensors=1), "no whole blocks of q4_k"),
    "a tensor that is larger than the file": (raw(b"", info("a", (4096, 4096)), n_tensors=1), "more than the whole"),
    "a tensor beside the grid": (raw(b"", info("a", (8,), 0, 8), n_tensors=1), "no multiple of the alignment"),
    "a tensor behind the end": (raw(b"", info("a", (8,), 0, 2**20), n_tensors=1), "cut short"),
    "a tensor at 2^64 - 32": (raw(b"", info("a", (8,), 0, 2**64 - 32), n_tensors=1), "cut short"),
    "tensors that overlap": (raw(b"", info("a", (64,)) + info("b", (8,), 0, 32), n_tensors=2), "overlap"),
    "tensors at one place": (raw(b"", info("a", (8,)) + info("b", (8,)), n_tensors=2), "overlap"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_refused_at_once(name: str, tmp_path: Path) -> None:
    content, expected = HOSTILE[name]
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    started = time.perf_counter()
    with pytest.raises(UnreadableFile, match=expected) as caught:
        gguf_model.read(path)
    assert time.perf_counter() - started < 1
    assert str(path) in str(caught.value) and caught.value.exit_code == 3


def test_a_header_that_is_cut_anywhere(tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    file.keys |= {"tokenizer.ggml.tokens": ["a", "bb"], "test.array": [1, 2, 3]}
    whole = file.header()
    path = tmp_path / "x.gguf"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UnreadableFile):
            gguf_model.read(path)
    path.write_bytes(whole + b"\0" * 100)
    with pytest.raises(UnreadableFile, match="cut short"):
        gguf_model.read(path)
    file.write(path)
    os.truncate(path, path.stat().st_size - 64)
    with pytest.raises(UnreadableFile, match="behind the end of the file; it is cut short, download it again"):
        gguf_model.read(path)


@pytest.mark.skipif(os.name == "nt", reason="no sparse files by default")
def test_a_huge_file_of_traps_takes_neither_long_nor_much(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    many = raw(text("k") + struct.pack("<IIQ", 9, 8, 2**30), n_keys=1, tail=0)
    apart = raw(text("k") + struct.pack("<IIQ", 9, 8, 2**20), n_keys=1, tail=0)
    keys = raw(b"".join(text(f"{n:05}") + value([n] * 16_000) for n in range(40)), n_keys=40, tail=0)
    for content, expected in ((many, "no model has so many"), (apart, "bytes of header"), (keys, "numbers in arrays")):
        with open(path, "wb") as stream:
            stream.write(content)
            if content is apart:  # texts that end far from where they begin, each in a piece of its own
                for number in range(400):
                    stream.seek(len(content) + number * (8 + 2 * gguf.CHUNK_BYTES))
                    stream.write(struct.pack("<Q", 2 * gguf.CHUNK_BYTES))
            stream.truncate(2**40)
        started = time.perf_counter()
        with pytest.raises(UnreadableFile, match=expected):
            gguf_model.read(path)
        assert time.perf_counter() - started < 2  # well below one second where nothing else runs
        tracemalloc.start()
        try:
            with pytest.raises(UnreadableFile):
                gguf_model.read(path)
            assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
        finally:
            tracemalloc.stop()


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="No such file"):
        gguf_model.read(tmp_path / "none.gguf")
    with pytest.raises(UnreadableFile, match="a folder, or no regular file"):
        gguf_model.read(tmp_path)
    with pytest.raises(UnreadableFile):
        gguf_model.read("a\0b.gguf")
    if os.name == "posix":
        os.mkfifo(tmp_path / "pipe.gguf")
        for path in (tmp_path / "pipe.gguf", Path("/dev/zero")):
            with pytest.raises(UnreadableFile, match="no regular file"):
                gguf_model.read(path)


LIES = {
    "block_count": (2**31, "at most"),
    "embedding_length": ("64", "expected a whole number"),
    "context_length": (None, "missing"),
    "attention.head_count": (0.5, "expected a whole number"),
    "attention.head_count_kv": ([2, 2], "2 values for 4 layers"),
    "attention.key_length": (0, "no possible model"),
    "nextn_predict_layers": (9, "of them predicting"),
}


@pytest.mark.parametrize("key", LIES)
def test_keys_that_lie(key: str, tmp_path: Path) -> None:
    item, expected = LIES[key]
    file = BY_NAME["llama"].file()
    if item is None:
        del file.keys[f"llama.{key}"]
    else:
        file.keys[f"llama.{key}"] = item
    with pytest.raises(UnreadableFile, match=expected):
        gguf_model.read(file.write(tmp_path / "x.gguf"))


@pytest.mark.parametrize(
    ("key", "item"), [("general.architecture", 7), ("general.file_type", "Q4_K_M"), ("general.name", 3)]
)
def test_general_keys_of_a_wrong_type(key: str, item: Any, tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    file.keys[key] = item
    with pytest.raises(UnreadableFile, match=key):
        gguf_model.read(file.write(tmp_path / "x.gguf"))
    del file.keys["general.architecture"]
    with pytest.raises(UnreadableFile, match=r"general\.architecture is missing"):
        gguf_model.read(file.write(tmp_path / "x.gguf"))


def changed(case: Case, **changes: Shape | None) -> File:
    """A file with tensors added, reshaped or (None) taken away; ``__`` stands for a dot."""
    file = case.file()
    tensors = {name: (shape, kind) for name, shape, kind in file.tensors}
    for name, shape in changes.items():
        name = name.replace("__", ".")
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = (shape, "f32")
    file.tensors = [(name, shape, kind) for name, (shape, kind) in tensors.items()]
    return file


NOT_UNDERSTOOD: list[tuple[str, dict[str, Shape | None], str]] = [
    ("llama", {"blk__2__mystery__weight": (64, 64)}, r"blk\.2\.mystery"),
    ("llama", {f"blk__{i}__mystery__weight": (64, 64) for i in range(4)}, r"blk\.0\.mystery\.weight in layer 0 is not"),
    ("llama", {"mystery__weight": (64, 64)}, r"mystery\.weight is not understood"),
    ("llama", {"blk__7__attn_q__weight": (64, 64)}, r"blk\.7\.attn_q\.weight is of layer 7, and there are 4"),
    ("llama", {"blk__1__attn_q__weight": None}, "layer 1 make no layer of llama: there is feed-forward part"),
    ("llama", {"blk__3__ffn_down__weight": None}, "layer 3 make no layer of llama: there is mixer"),
    ("llama", {"blk__3__ffn_gate__weight": None}, r"blk\.0\.ffn_gate has none like it in layer 3"),
    ("llama", {f"blk__{i}__ffn_gate__weight": None for i in range(4)}, "the file has no tensor ffn_gate in layer 0"),
    ("llama", {"blk__1__ffn_norm__weight": None}, r"blk\.0\.ffn_norm has none like it in layer 1"),
    ("llama", {f"blk__{i}__attn_v__weight": None for i in range(4)}, "no tensor attn_v in layer 0"),
    ("llama", {"output_norm__weight": None}, r"no tensor output_norm\.weight"),
    ("llama", {"token_embd__weight": None}, r"no tensor token_embd\.weight"),
    ("gpt-oss", {"output__weight": None}, r"no tensor output\.weight"),
    ("llama", {"blk__0__attn_q__weight": (64, 96)}, r"blk\.0\.attn_q\.weight holds 6,144 elements"),
    (
        "llama",
        {"blk__0__attn_output__weight": (32, 128)},
        r"blk\.0\.attn_output\.weight holds 4,096 elements in rows of 32",
    ),
    ("llama", {"token_embd__weight": (96, 64)}, r"token_embd\.weight holds 6,144 elements in rows of 96"),
    ("llama", {"blk__0__attn_q": (64, 64)}, r"are one to us"),
    ("qwen2", {"blk__0__attn_v__bias": None}, r"attn_v\.bias has none like it in layer 0"),
    ("llama-moe", {"blk__0__ffn_down_exps__weight": None}, "layer 0 has a router and no experts"),
    (
        "nemotron_h",
        {"blk__0__ffn_up__weight": (64, 128), "blk__0__ffn_down__weight": (128, 64)},
        "make no layer of nemotron_h: there is mixer and feed-forward part",
    ),
    ("mamba", {"blk__1__ffn_up__weight": (64, 64), "blk__1__ffn_down__weight": (64, 64)}, "make no layer of mamba"),
    ("deepseek2", {"blk__1__attn_kv_b__weight": (32, 128)}, r"attn_kv_b has none like it|holds"),
]


@pytest.mark.parametrize(("name", "changes", "expected"), NOT_UNDERSTOOD)
def test_tensors_that_are_not_understood_are_named(
    name: str, changes: dict[str, Shape | None], expected: str, tmp_path: Path
) -> None:
    path = changed(BY_NAME[name], **changes).write(tmp_path / "x.gguf")
    with pytest.raises(UnsupportedModel, match=expected):
        ModelSpec(gguf_model.read(path))


def test_more_layers_than_tensors(tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    file.keys["llama.block_count"] = 5
    with pytest.raises(UnsupportedModel, match="layer 4 make no layer of llama: there is nothing"):
        gguf_model.read(file.write(tmp_path / "x.gguf"))


def test_other_kinds_of_gguf_files_and_unknown_architectures(tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    file.keys["general.architecture"] = "rwkv7"
    with pytest.raises(UnsupportedModel, match="architecture 'rwkv7' is not described"):
        gguf_model.read(file.write(tmp_path / "x.gguf"))
    file.keys["general.architecture"] = "clip"
    with pytest.raises(UnsupportedModel, match="vision projector"):
        gguf_model.read(file.write(tmp_path / "x.gguf"))
    for kind in ("adapter", "imatrix", "mmproj"):
        file.keys |= {"general.architecture": "llama", "general.type": kind}
        with pytest.raises(UnsupportedModel, match=kind):
            gguf_model.read(file.write(tmp_path / "x.gguf"))


def test_types_without_a_kernel_are_read_and_not_run(tmp_path: Path) -> None:
    model, file = imported(BY_NAME["llama"], tmp_path, lambda name, shape: "i32")
    assert layout_of(model).resident_bytes == file.tensor_bytes
    with pytest.raises(rl.RooflineError, match="i32"):
        rl.estimate(model, "rtx-4090")


def test_scales_beside_a_tensor_are_its_bytes(tmp_path: Path) -> None:
    file = BY_NAME["llama"].file()
    bare = ModelSpec(gguf_model.read(file.write(tmp_path / "bare.gguf")))
    file.tensors += [("blk.0.attn_q.scale", (1,), "f32"), ("blk.0.attn_q.input_scale", (1,), "f32")]
    scaled = ModelSpec(gguf_model.read(file.write(tmp_path / "scaled.gguf")))
    assert scaled.total_params == bare.total_params
    assert layout_of(scaled).layer_bytes[0] == layout_of(bare).layer_bytes[0] + 8
    file.tensors.append(("blk.0.attn_z.scale", (1,), "f32"))
    with pytest.raises(UnsupportedModel, match="attn_z"):
        ModelSpec(gguf_model.read(file.write(tmp_path / "stray.gguf")))


# --- files that other people's code wrote ---------------------------------------------------------------------------


def written(path: Path, kinds: Iterator[Any], oracle: Any, **options: Any) -> dict[str, tuple[Shape, str, int]]:
    """A Llama by the `gguf` package, with random weights of the given types in turn."""
    np = pytest.importorskip("numpy")
    width, random = 256, np.random.default_rng(7)
    writer = oracle.GGUFWriter(path, "llama", **options)
    writer.add_name("Written")
    writer.add_context_length(2048)
    writer.add_embedding_length(width)
    writer.add_block_count(3)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(oracle.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_token_list([f"<{number}>" for number in range(512)])
    writer.add_token_scores([0.0] * 512)
    expected: dict[str, tuple[Shape, str, int]] = {}

    def tensor(name: str, *shape: int) -> None:
        kind = oracle.GGMLQuantizationType.F32 if len(shape) == 1 else next(kinds)
        block, size = oracle.GGML_QUANT_SIZES[kind]
        row = shape[-1] // block * size
        data = random.integers(0, 256, size=(*shape[:-1], row), dtype=np.uint8)
        plain = {"F32": np.float32, "F16": np.float16, "F64": np.float64}.get(kind.name) or {
            "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
        }.get(kind.name)  # fmt: skip
        if plain is not None:
            writer.add_tensor(name, random.integers(0, 9, size=shape).astype(plain))
        else:
            writer.add_tensor(name, data, raw_dtype=kind)
        expected[name] = (shape[::-1], kind.name.lower(), data.nbytes)

    tensor("token_embd.weight", 512, width)
    tensor("output_norm.weight", width)
    tensor("output.weight", 512, width)
    for layer in range(3):
        tensor(f"blk.{layer}.attn_norm.weight", width)
        tensor(f"blk.{layer}.ffn_norm.weight", width)
        for part, rows in (("q", 256), ("k", 128), ("v", 128), ("output", 256)):
            tensor(f"blk.{layer}.attn_{part}.weight", rows, width)
        tensor(f"blk.{layer}.ffn_gate.weight", 512, width)
        tensor(f"blk.{layer}.ffn_up.weight", 512, width)
        tensor(f"blk.{layer}.ffn_down.weight", width, 512)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def in_turn(oracle: Any) -> Iterator[Any]:
    """Every type the package can write; Q8_1 apart, whose size it has wrong (activations only, no file has it)."""
    kinds = [kind for kind in oracle.GGML_QUANT_SIZES if kind.name != "Q8_1"]
    while True:
        yield from kinds


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_a_file_by_the_gguf_package_is_read_exactly(order: str, tmp_path: Path) -> None:
    oracle = pytest.importorskip("gguf")
    path = tmp_path / "written.gguf"
    expected = written(path, in_turn(oracle), oracle, endianess=oracle.GGUFEndian[order])
    header = gguf.read_all(path)
    assert {each.name: (each.shape, each.encoding, each.bytes) for each in header.tensors} == expected
    assert header.big_endian is (order == "BIG")
    assert header.metadata["general.name"] == "Written"
    assert header.metadata["tokenizer.ggml.tokens"] == gguf.Skipped(512)
    model = ModelSpec(gguf_model.read(path))
    assert layout_of(model).resident_bytes == sum(size for _, _, size in expected.values())
    if order == "LITTLE":
        reader = oracle.GGUFReader(path)
        theirs = {each.name: (tuple(int(n) for n in each.shape), int(each.n_bytes)) for each in reader.tensors}
        assert {each.name: (each.shape, each.bytes) for each in header.tensors} == theirs
        offsets = {each.name: int(each.data_offset) for each in reader.tensors}
        assert {each.name: header.data_offset + each.offset for each in header.tensors} == offsets


def test_parts_by_the_gguf_package_are_summed_exactly(tmp_path: Path) -> None:
    oracle = pytest.importorskip("gguf")
    path = tmp_path / "written.gguf"
    expected = written(path, in_turn(oracle), oracle, split_max_tensors=9)
    parts = sorted(tmp_path.glob("written-*.gguf"))
    assert len(parts) > 2
    header = gguf.read_all(parts[-1])
    assert {each.name: (each.shape, each.encoding, each.bytes) for each in header.tensors} == expected
    entry = gguf_model.read(parts[1])
    assert entry.file is not None and entry.file.files == len(parts)
    assert layout_of(ModelSpec(entry)).resident_bytes == sum(size for _, _, size in expected.values())


def test_our_table_of_types_is_theirs() -> None:
    oracle = pytest.importorskip("gguf")
    ours = {number: (name, block, size) for number, (name, block, size) in gguf.GGML_TYPES.items()}
    for kind, (block, size) in oracle.GGML_QUANT_SIZES.items():
        if kind.name != "Q8_1":
            assert ours[int(kind)] == (kind.name.lower(), block, size)
