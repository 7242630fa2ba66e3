"""Devices and models that nobody has: whatever validates, up to the limits of the schema, gives a finite, ordered and
monotone answer, or an error of ours."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflinellm as rl
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import validate
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.model import ModelEntry

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.errors.RooflineWarning")

SOURCES = {"made-up": {"title": "nothing"}}
PREDICTED = ("ttft_s", "tpot_s", "itl_s", "e2e_s")


def positive(least: float = 1e-8, most: float = 1e14) -> st.SearchStrategy[float]:
    """Numbers of every size alike."""
    return st.floats(math.log10(least), math.log10(most)).map(lambda exponent: float(f"{10**exponent:.6g}"))


def sourced(value: float) -> dict[str, Any]:
    return {"value": value, "kind": "estimate", "source": "made-up"}


@st.composite
def devices(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.sampled_from([positive(), positive(1, 10_000)]))
    keys = draw(
        st.lists(
            st.sampled_from(["fp16.fp32", "fp16.fp16", "int8.int32", "fp32.fp32", "bf16.fp32"]), min_size=1, unique=True
        )
    )
    entry: dict[str, Any] = {
        "id": "made-up", "name": "Made up", "vendor": draw(st.sampled_from(["nvidia", "amd", "apple", "intel"])),
        "architecture": "none", "kind": draw(st.sampled_from(["gpu", "cpu", "soc"])), "sources": SOURCES,
        "memory": {
            "type": draw(st.sampled_from(["GDDR6X", "HBM3", "DDR5", "LPDDR5X", "odd"])),
            "bandwidth_gb_s": sourced(draw(size)), "capacity_gib": sourced(draw(size)), "unified": draw(st.booleans()),
        },
        "peaks": [
            {
                "precision": key.split(".")[0], "accumulate": key.split(".")[1], "unit": "matrix", "tflops": draw(size),
                "kind": "estimate", "source": "made-up",
            }
            for key in keys
        ],
    }  # fmt: skip
    if draw(st.booleans()):
        entry["cache"] = {"last_level_mib": sourced(draw(size))}
        if draw(st.booleans()):
            entry["cache"]["bandwidth_gb_s"] = sourced(draw(size))
    if draw(st.booleans()):
        slow, fast = sorted((draw(size), draw(size)))
        entry["clock"] = {"advertised_mhz": slow, "max_mhz": fast, "kind": "estimate", "source": "made-up"}
    if draw(st.booleans()):
        entry["power"] = {"tdp_w": sourced(draw(size))}
    if draw(st.booleans()):
        entry["links"] = [{"kind": "pcie", "gb_s_per_direction": sourced(draw(size))}]
    return entry


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    width = st.one_of(st.integers(1, 64), st.integers(1, 20_000), st.integers(1, 10**9))
    groups, kv_heads = draw(st.integers(1, 64)), draw(st.integers(1, 200))
    mixer: dict[str, Any] = {
        "kind": "attention", "heads": groups * kv_heads, "kv_heads": kv_heads, "head_dim": draw(width),
    }  # fmt: skip
    if draw(st.booleans()):
        mixer |= {"window": draw(st.integers(2, 10**6))}
    experts = draw(st.integers(1, 1000))
    ffn = draw(
        st.sampled_from(
            [
                {"kind": "gated", "intermediate": draw(width)},
                {"kind": "plain", "intermediate": draw(width)},
                {"kind": "none"},
                {
                    "kind": "moe", "experts": experts, "active": draw(st.integers(1, experts)),
                    "intermediate": draw(width),
                },
            ]
        )
    )  # fmt: skip
    return {
        "id": "made-up", "name": "Made up", "family": "none", "sources": SOURCES, "hidden": draw(width),
        "vocabulary": draw(width), "tied_embeddings": draw(st.booleans()), "native_format": "hf:bf16",
        "max_context_tokens": draw(st.integers(1, 10**7)),
        "layers": [{"repeat": draw(st.integers(1, 500)), "pattern": [{"mixer": mixer, "ffn": ffn}]}],
    }  # fmt: skip


requests = st.fixed_dictionaries(
    {
        "prompt_tokens": st.one_of(st.integers(0, 3), st.integers(0, 10**6)),
        "output_tokens": st.one_of(st.integers(0, 3), st.integers(0, 10**5)),
        "context_tokens": st.one_of(st.just(0), st.integers(0, 10**7)),
        "batch": st.one_of(st.just(1), st.integers(1, 10_000)),
    }
)


def answer(model: Any, hardware: Any, **request: Any) -> Any:
    """An answer that is finite and ordered, None where there is an error of ours."""
    try:
        found = rl.estimate(model, hardware, **request)
    except rl.RooflineError as error:
        assert str(error)
        return None
    json.dumps(found.to_dict(), allow_nan=False)
    for name in PREDICTED:
        time = getattr(found, name)
        assert 0 <= time.ideal <= time.low <= time.expected <= time.high < math.inf, name
    for phase in (found.prefill, found.decode):
        rate = phase.tokens_per_s
        assert 0 <= rate.low <= rate.expected <= rate.high <= rate.ideal < math.inf
    return found


def device_of(entry: dict[str, Any]) -> HardwareSpec:
    return validate(HardwareSpec, entry, where="made-up")


@given(entry=devices(), request=requests, engine=st.sampled_from(["llama.cpp", "vllm", None]))
def test_any_device(entry: dict[str, Any], request: dict[str, Any], engine: str | None) -> None:
    answer("qwen3-0.6b", device_of(entry), engine=engine, **request)


@given(entry=models(), request=requests, weights=st.sampled_from(["Q4_K_M", "Q8_0", "F16", "bf16", "fp8"]))
def test_any_model(entry: dict[str, Any], request: dict[str, Any], weights: str) -> None:
    try:
        model = ModelSpec(validate(ModelEntry, entry, where="made-up"))
    except rl.RooflineError:
        return
    assert model.active_params > 0
    answer(model, "rtx-4090", weights=weights, **request)


@given(entry=devices(), factor=st.floats(1, 1e6), part=st.sampled_from(["bandwidth_gb_s", "peaks", "capacity_gib"]))
def test_a_better_device_has_no_worse_ideal(entry: dict[str, Any], factor: float, part: str) -> None:
    better = json.loads(json.dumps(entry))
    if part == "peaks":
        for peak in better["peaks"]:
            peak["tflops"] = min(peak["tflops"] * factor, 9e14)
    else:
        better["memory"][part]["value"] = min(better["memory"][part]["value"] * factor, 9e14)
    pair = [answer("qwen3-0.6b", device_of(each), weights="Q8_0", prompt_tokens=700) for each in (entry, better)]
    if None in pair:
        assert pair == [None, None]
        return
    for name in PREDICTED:
        worse_s, better_s = (getattr(each, name).ideal for each in pair)
        assert better_s <= worse_s * (1 + 1e-12), name


def test_most_of_what_is_drawn_is_answered() -> None:
    found: list[bool] = []

    @given(entry=devices())
    def tried(entry: dict[str, Any]) -> None:
        found.append(answer("qwen3-0.6b", device_of(entry), engine="llama.cpp") is not None)

    tried()
    assert sum(found) > 0.3 * len(found)
