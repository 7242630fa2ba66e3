"""What the families' own code takes for fields that a configuration leaves out.

A ``config.json`` may hold only what differs from its class: the ``text_config`` of Gemma 3 names neither heads nor
vocabulary. Without these values such a file says too little; with another family's it would be read wrongly.

References
----------
huggingface/transformers 5.24.0, src/transformers/models, ``configuration_*.py`` of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TIED = frozenset(
    (
        *(
            "gemma",
            "gemma2",
            "gemma3_text",
            "gemma3n_text",
            "gemma4_text",
            "gemma4_unified_text",
            "gpt2",
            "gpt_bigcode",
        ),
        *("gpt_neo", "opt", "bloom", "mpt", "falcon", "starcoder2", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe"),
        *("smollm3", "lfm2", "lfm2_moe", "mamba", "falcon_mamba", "minicpm", "minicpm3", "granite_swa", "youtu"),
    )
)
"""Families whose head is the input embedding where the file does not say (``tie_word_embeddings``)."""

_GEMMA3 = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
}
_GEMMA4 = _GEMMA3 | {
    "vocab_size": 262_144,
    "num_hidden_layers": 30,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262_144,
}
_MISTRAL = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
}
_LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"vocab_size": 32_000, "max_position_embeddings": 2048},
    "mistral": _MISTRAL | {"sliding_window": 4096},
    "ministral": _MISTRAL | {"sliding_window": 4096},
    "ministral3": {"vocab_size": 131_072, "head_dim": 128, "max_position_embeddings": 262_144},
    "mixtral": _MISTRAL | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "qwen2_moe": {
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    "qwen3": {"vocab_size": 151_936, "head_dim": 128, "max_position_embeddings": 32_768, "sliding_window": 4096},
    "qwen3_moe": {
        "vocab_size": 151_936,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "sliding_window": 4096,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    "qwen3_next": {
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "max_position_embeddings": 32_768,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 512,
        "num_experts_per_tok": 10,
    },
    "qwen3_vl_text": {"vocab_size": 151_936, "head_dim": 128, "max_position_embeddings": 128_000},
    "gemma": {
        "vocab_size": 256_000,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "max_position_embeddings": 8192,
    },
    "gemma2": {
        "vocab_size": 256_000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
    },
    "gemma3_text": _GEMMA3,
    "gemma3n_text": {
        "vocab_size": 262_400,
        "vocab_size_per_layer_input": 262_144,
        "hidden_size": 2048,
        "hidden_size_per_layer_input": 256,
        "intermediate_size": 16_384,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "max_position_embeddings": 32_768,
        "sliding_window": 512,
    },
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4 | {"hidden_size_per_layer_input": 0},
    "phi": {"vocab_size": 51_200, "max_position_embeddings": 2048},
    "phi3": {"vocab_size": 32_064, "max_position_embeddings": 4096},
    "gpt2": {"vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
    "gpt_bigcode": {"vocab_size": 50_257, "n_positions": 1024},
    "gpt_neo": {"vocab_size": 50_257, "max_position_embeddings": 2048},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "max_position_embeddings": 131_072},
    "opt": {"vocab_size": 50_272, "max_position_embeddings": 2048},
    "cohere": {"vocab_size": 256_000, "max_position_embeddings": 8192},
    "cohere2": {"vocab_size": 256_000, "max_position_embeddings": 8192, "sliding_window": 4096},
    "falcon": {"max_position_embeddings": 2048},
    "olmo3": {"sliding_window": 4096},
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT | {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
    "kimi_k2": _LATENT,
    "llama4_text": {
        "vocab_size": 202_048,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16_384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "attention_chunk_size": 8192,
    },
    "minimax_m2": {"head_dim": 128},
    "mamba": {"vocab_size": 50_280},
    "falcon_mamba": {"vocab_size": 50_280},
    "nemotron_h": {"head_dim": 128},
}
"""By ``model_type``."""
