"""What llama.cpp knows of each architecture and a GGUF header does not say. What is not listed is not read.

Everything else follows from the keys and from the tensors that are there. Windows are those that llama.cpp applies,
since it is what runs the file: it ignores the window of a Mistral 7B or a Phi-3.

References
----------
ggml-org/llama.cpp, src/models (``load_arch_hparams`` and ``load_arch_tensors`` of each architecture) and
src/llama-hparams.cpp (``set_swa_pattern``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Use = Literal["matrix", "lookup", "vector"]


@dataclass(frozen=True)
class Windows:
    """Which layers attend within a window: of each `period` layers all but the last, unless the file has a list.

    Attributes
    ----------
    period : int
        0: every attention layer. [layer]
    size : int or None
        Where the file names none; None: it must, unless it is `optional`. [token]
    optional : bool
        A file that names no size has no windows.
    chunks : bool
        Fixed chunks of that size instead.
    listed : bool
        The file must list them.
    layer_count : int or None
        Only models of so many layers. [layer]
    """

    period: int
    size: int | None = None
    optional: bool = False
    chunks: bool = False
    listed: bool = False
    layer_count: int | None = None


@dataclass(frozen=True)
class Architecture:
    """What to expect of a file of one architecture.

    Attributes
    ----------
    windows : Windows, optional
        Which layers have a window.
    parts : str
        What a layer is made of: a mixer and a feed-forward part, the mixer alone, either of them, or anything.
    ffn : str
        Form of the feed-forward parts: gate and up apart, in one tensor, or no gate.
    tied : bool
        The head may be the input embedding.
    final_norm : str or None
        Name of the final norm.
    output_gate : bool
        The query projection holds a gate of the same size.
    keys_as_values : bool
        Layers without a projection of values use their keys.
    dense_beside_experts : bool
        A layer with experts has its dense part beside them, as a shared expert.
    shared_from : int, optional
        First layer that reads the cache of another one, where the file does not say how many do.
    extra : mapping of str to str
        Tensors of a layer that no layer kind describes, and their use.
    """

    windows: Windows | None = None
    parts: Literal["both", "mixer", "one", "any"] = "both"
    ffn: Literal["gated", "fused", "plain"] = "gated"
    tied: bool = True
    final_norm: str | None = "output_norm"
    output_gate: bool = False
    keys_as_values: bool = False
    dense_beside_experts: bool = False
    shared_from: int | None = None
    extra: Mapping[str, Use] = field(default_factory=dict)


_GATED = Architecture()
_GATED_UNTIED = Architecture(tied=False)
_FUSED = Architecture(ffn="fused")
_PLAIN = Architecture(ffn="plain")
_PLAIN_UNTIED = Architecture(ffn="plain", tied=False)
_MIXER = Architecture(parts="mixer")
_SHORT_CONVOLUTIONS = Architecture(final_norm="token_embd_norm")
_GATED_QUERIES = Architecture(output_gate=True)
_NEMOTRON = Architecture(parts="one", ffn="plain", extra={"ffn_latent_down": "matrix", "ffn_latent_up": "matrix"})
_PER_LAYER_INPUT: dict[str, Use] = {"inp_gate": "matrix", "proj": "matrix"}
_ALTERNATING_UPDATES: dict[str, Use] = {
    "altup_correct_coef": "matrix",
    "altup_correct_scale": "vector",
    "altup_predict_coef": "matrix",
    "altup_router": "matrix",
    "laurel_l": "matrix",
    "laurel_r": "matrix",
}


def _each(names: str, architecture: Architecture) -> Iterator[tuple[str, Architecture]]:
    return ((name, architecture) for name in names.split())


ARCHITECTURES: Mapping[str, Architecture] = dict(
    (
        *_each("llama mistral3 mistral4 smollm3 minicpm maincoder granite granitemoe granitehybrid", _GATED),
        *_each("qwen2 qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe", _GATED),
        *_each("gemma command-r openelm refact exaone seed_oss pangu-embedded", _GATED),
        *_each("deepseek deepseek2 deepseek32 glm-dsa glm4moe", _GATED),
        *_each("jamba falcon-h1 hunyuan-moe hunyuan-dense hunyuan_vl ernie4_5 ernie4_5-moe", _GATED),
        *_each("qwen qwen2moe stablelm internlm2 baichuan orion xverse plamo dbrx olmoe", _GATED_UNTIED),
        *_each("phimoe minimax-m2 dots1 bailingmoe bailingmoe2 kimi-linear", _GATED_UNTIED),
        *_each("phi3 chatglm glm4", _FUSED),
        *_each("gpt2 gptj bloom mpt falcon starcoder starcoder2 arcee", _PLAIN),
        *_each("phi2 gptneox codeshell nemotron apertus", _PLAIN_UNTIED),
        *_each("mamba mamba2", _MIXER),
        *_each("qwen3next qwen35 qwen35moe", _GATED_QUERIES),
        *_each("nemotron_h nemotron_h_moe", _NEMOTRON),
        ("lfm2moe", _SHORT_CONVOLUTIONS),
        ("lfm2", replace(_SHORT_CONVOLUTIONS, windows=Windows(0, optional=True))),
        ("deci", Architecture(parts="any")),
        ("olmo", Architecture(final_norm=None)),
        ("olmo2", Architecture(Windows(4, optional=True), tied=False)),
        ("gemma2", Architecture(Windows(2, 4096))),
        ("gemma3", Architecture(Windows(6, optional=True))),
        ("gemma3n", Architecture(Windows(5), shared_from=20, extra=_PER_LAYER_INPUT | _ALTERNATING_UPDATES)),
        (
            "gemma4",
            Architecture(
                Windows(0, listed=True),
                keys_as_values=True,
                dense_beside_experts=True,
                extra={
                    **_PER_LAYER_INPUT,
                    "layer_output_scale": "vector",
                    "ffn_gate_inp.scale": "vector",
                    "ffn_down_exps.scale": "vector",
                },
            ),
        ),
        ("gpt-oss", Architecture(Windows(2), tied=False)),
        ("cohere2", Architecture(Windows(4))),
        ("exaone4", Architecture(Windows(4, 4096, layer_count=64))),
        ("exaone-moe", Architecture(Windows(4, 128), tied=False)),
        ("llama4", Architecture(Windows(4, 8192, chunks=True))),
    )
)

OUTSIDE_LAYERS: Mapping[str, Use] = {
    "position_embd": "lookup",
    "token_embd_norm": "vector",
    "token_embd_norm.bias": "vector",
    "per_layer_token_embd": "lookup",
    "per_layer_model_proj": "matrix",
    "per_layer_proj_norm": "vector",
    "altup_proj": "matrix",
    "altup_unembd_proj": "matrix",
}
"""Tensors outside the layers beside embedding, final norm and head."""

FILE_TYPES: Mapping[int, tuple[str, str]] = {
    0: ("all F32", "f32"),
    1: ("F16", "f16"),
    2: ("Q4_0", "q4_0"),
    3: ("Q4_1", "q4_1"),
    7: ("Q8_0", "q8_0"),
    8: ("Q5_0", "q5_0"),
    9: ("Q5_1", "q5_1"),
    10: ("Q2_K - Medium", "q2_k"),
    11: ("Q3_K - Small", "q3_k_s"),
    12: ("Q3_K - Medium", "q3_k_m"),
    13: ("Q3_K - Large", "q3_k_l"),
    14: ("Q4_K - Small", "q4_k_s"),
    15: ("Q4_K - Medium", "q4_k_m"),
    16: ("Q5_K - Small", "q5_k_s"),
    17: ("Q5_K - Medium", "q5_k_m"),
    18: ("Q6_K", "q6_k"),
    19: ("IQ2_XXS - 2.0625 bpw", "iq2_xxs"),
    20: ("IQ2_XS - 2.3125 bpw", "iq2_xs"),
    21: ("Q2_K - Small", "q2_k_s"),
    22: ("IQ3_XS - 3.3 bpw", "iq3_xs"),
    23: ("IQ3_XXS - 3.0625 bpw", "iq3_xxs"),
    24: ("IQ1_S - 1.5625 bpw", "iq1_s"),
    25: ("IQ4_NL - 4.5 bpw", "iq4_nl"),
    26: ("IQ3_S - 3.4375 bpw", "iq3_s"),
    27: ("IQ3_S mix - 3.66 bpw", "iq3_m"),
    28: ("IQ2_S - 2.5 bpw", "iq2_s"),
    29: ("IQ2_M - 2.7 bpw", "iq2_m"),
    30: ("IQ4_XS - 4.25 bpw", "iq4_xs"),
    31: ("IQ1_M - 1.75 bpw", "iq1_m"),
    32: ("BF16", "bf16"),
    36: ("TQ1_0 - 1.69 bpw ternary", "tq1_0"),
    37: ("TQ2_0 - 2.06 bpw ternary", "tq2_0"),
    38: ("MXFP4 MoE", "mxfp4"),
    39: ("NVFP4", "nvfp4"),
    40: ("Q1_0", "q1_0"),
    41: ("Q2_0", "q2_0"),
}
"""``general.file_type``: what llama.cpp prints for it, and the name of the format."""

GUESSED = 1024
"""A bit of ``general.file_type``: the type was guessed from the tensors."""
