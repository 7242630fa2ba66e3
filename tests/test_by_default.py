"""Defaults are those of the contract; where something else is mostly run, the answer says so."""

from __future__ import annotations

from typing import Any

import pytest

import rooflinellm as rl


def said(model: str, hardware: str, **keywords: Any) -> list[str]:
    found = rl.estimate(model, hardware, **keywords)
    return [text for text in found.assumptions if text.startswith(("weights: ", "engine: "))]


def test_a_model_published_in_few_bits() -> None:
    # openai/gpt-oss-20b has experts in MXFP4, as ggml-org/gpt-oss-20b-GGUF has.
    (text,) = said("gpt-oss-20b", "rtx-4090")
    assert text == "weights: Q4_K_M, as no format was asked for; published in MXFP4, which is mostly run"
    assert rl.estimate("gpt-oss-20b", "rtx-4090").weights == "gguf:q4_k_m"


@pytest.mark.parametrize("asked", [{"weights": "MXFP4"}, {"weights": "Q4_K_M"}, {"engine": "vllm"}])
def test_what_was_asked_for_needs_no_word(asked: dict[str, str]) -> None:
    assert said("gpt-oss-20b", "h100-sxm", **asked) == []


def test_a_model_in_sixteen_bits_is_mostly_run_in_others() -> None:
    assert said("llama-3.1-8b", "rtx-4090") == []
    assert said("llama-3.3-70b", "2x rtx-3090") == []  # layers one after the other


def test_devices_that_share_layers() -> None:
    (text,) = said("deepseek-v3", "8x h200-sxm", tensor_parallel=8)
    assert text.startswith("engine: llama.cpp, as none was asked for; ") and text.endswith(
        "vllm or sglang, in fp8-block"
    )
    assert said("deepseek-v3", "8x h200-sxm", tensor_parallel=8, engine="llama.cpp") == []


def test_a_native_format_that_is_not_there_is_not_spoken_of() -> None:
    entry = rl.model("qwen3-8b").entry.model_copy(update={"native_format": "hf:nope"})
    found = rl.estimate(entry, "rtx-4090")
    assert found.assumptions and not any("nope" in text for text in found.assumptions)
