"""Results and specifications show themselves on one line, with units and without internals."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import rooflinellm as rl
from rooflinellm._shown import LONGEST, in_unit
from rooflinellm.results import Prediction

INTERNALS = re.compile(r"schema_version|<function|<object| at 0x|lambda|array\(|_\w+=(?=<)|\b\d{10,}\b")
MODEL, DEVICE, BOTH = "llama-3.1-8b", "rtx-4090", ["rtx-4090", "m3-max-40c"]
SERVED: dict[str, Any] = {"requests": 5, "prompt_tokens": 100, "output_tokens": 10}
ANSWERS: dict[str, Callable[[], Any]] = {
    "estimate": lambda: rl.estimate("qwen3-30b-a3b", "2x rtx-3090 + ddr5-5600x2@64GiB"),
    "estimate of arrays": lambda: rl.estimate(MODEL, DEVICE, prompt_tokens=[1, 500], batch=np.array([[1], [4]])),
    "model entry": lambda: rl.model("deepseek-v3").entry,
    "hardware": lambda: [rl.hardware("h100-sxm"), rl.hardware("m3-max-40c")],
    "sweep": lambda: rl.sweep(MODEL, BOTH, context_tokens=[0, 1024], batch=[1, 2]),
    "compare": lambda: rl.compare("llama-3.3-70b", [*BOTH, "2x rtx-3090", "h100-sxm", "7950x@64GiB"]),
    "fit": lambda: rl.fit("llama-3.3-70b", DEVICE),
    "recommend": lambda: rl.recommend(MODEL, min_tokens_per_s=30, hardware=BOTH),
    "recommend nothing": lambda: rl.recommend(MODEL, min_tokens_per_s=3000, hardware=BOTH),
    "sensitivity": lambda: rl.sensitivity(MODEL, DEVICE),
    "check": lambda: rl.check_claim(MODEL, DEVICE, tokens_per_s=100),
    "load": lambda: rl.simulate_load(MODEL, DEVICE, rate=1, **SERVED),
    "questions": lambda: rl.questions(MODEL, DEVICE, contexts=[0, 512]),
    "prefix": lambda: rl.prefix_cache(MODEL, DEVICE, [(100, 10), {"new_tokens": 5}]),
    "largest batch": lambda: rl.largest_batch(MODEL, DEVICE, max_tpot_s=0.1),
    "mixed step": lambda: rl.mixed_step(MODEL, DEVICE, contexts=[10, 20], chunk_tokens=64),
    "chunked prefill": lambda: rl.chunked_prefill(MODEL, DEVICE, prompt_tokens=600, contexts=[10, 20]),
    "command": lambda: rl.from_command("llama-server -m qwen3-8b-Q4_K_M.gguf -c 32768 -ctk q8_0 -ctv q8_0"),
    "options": lambda: [rl.Options(), rl.Options(ubatch=256, swa_full=True, mla="expanded"), rl.Turn(100, 10)],
    "lists": lambda: [rl.list_hardware(), rl.list_models(), rl.list_formats()],
    "parallel": lambda: rl.best_parallel(MODEL, "2x h100-sxm", engine="vllm", weights="bf16", batches=(1, 4)),
    "disaggregated": lambda: rl.disaggregated(MODEL, "h100-sxm", "h100-sxm", engine="vllm", weights="bf16"),
}


def held(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield an object of the package and what it holds, an item of each collection."""
    if depth > 6:
        return
    if isinstance(value, dict):
        for each in list(value.values())[:2]:
            yield from held(each, depth + 1)
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        if type(value) not in (list, tuple):
            yield value
        for each in value[:2]:
            yield from held(each, depth + 1)
    elif type(value).__module__.startswith("rooflinellm"):
        yield value
        if is_dataclass(value):
            names = [each.name for each in fields(value) if not each.name.startswith("_")]
        else:
            names = list(type(value).model_fields) if isinstance(value, BaseModel) else getattr(value, "_fields", [])
        for name in [*names, *(name for name in ("operators", "by_place", "ratios") if hasattr(value, name))]:
            yield from held(getattr(value, name), depth + 1)


@pytest.mark.parametrize("name", ANSWERS)
def test_whatever_is_answered_shows_itself_on_one_line(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rl.RooflineWarning)
        answer = ANSWERS[name]()
    shown = {type(each).__name__: repr(each) for each in held(answer)}
    assert shown
    for kind, text in shown.items():
        assert len(text) <= LONGEST, (kind, text)
        assert "\n" not in text, (kind, text)
        assert not INTERNALS.search(text), (kind, text)


def test_figures_have_their_units() -> None:
    assert repr(rl.hardware("rtx-4090")) == (
        "HardwareSpec('nvidia-geforce-rtx-4090', 24.0 GiB, 1,008 GB/s, 330 TFLOP/s in fp16.fp16, 450 W)"
    )
    assert (
        repr(rl.system("2x rtx-3090"))
        == "SystemSpec('2x nvidia-geforce-rtx-3090', 2 devices, 48.0 GiB, 1,872 GB/s, 700 W)"
    )
    said = repr(rl.estimate("llama-3.1-8b", "rtx-4090").memory)
    assert re.fullmatch(
        r"MemoryPlan\([\d.]+ GiB of 23.6 GiB, weights 4.58 GiB, KV cache [\d.]+ GiB, fits: True\)", said
    )
    assert repr(Prediction(218.3, 142.5, 124.1, 163.5, "tokens/s", "calibrated")) == (
        "Prediction(142 tokens/s (124 tokens/s to 164 tokens/s), ideal 218 tokens/s)"
    )


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (2**30, "kv_bytes", "1.00 GiB"),
        (1.008e12, "memory_bandwidth_bytes_per_s", "1,008 GB/s"),
        (0.0071, "tpot_s", "7.10 ms"),
        (142.46, "tokens_per_s", "142 tokens/s"),
        (450.0, "tdp_w", "450 W"),
        (2.0, "J", "2.00 J"),
        (7, "layers", "7"),
        (-0.5, "gain", "−0.500"),
        (True, "fits", "True"),
        (np.array([1.0, 2.0]), "time_s", "1.00 s … 2.00 s"),
        (float("nan"), "J", "unknown"),
    ],
)
def test_the_end_of_a_name_says_the_unit(value: Any, unit: str, said: str) -> None:
    assert in_unit(value, unit) == said


def test_completion_offers_what_a_specification_has_itself() -> None:
    offered = {name for name in dir(rl.hardware("rtx-4090")) if not name.startswith("_")}
    assert {"id", "memory", "peaks", "peak", "memory_bytes", "sources", "tdp_w"} <= offered
    assert not {"model_dump", "model_fields", "model_copy", "parse_obj", "json", "copy"} & offered
