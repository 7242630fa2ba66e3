"""Engines: their files, the arithmetic they choose, what they refuse and what they reserve.

Paths are checked against what the engines' sources say (see the files in hardware_db/engines), memory against what logs
print; the numbers of issues and pull requests stand beside them.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm.engine import paths
from rooflinellm.engine.compile import compile_plan
from rooflinellm.engine.kernels import choose_backend
from rooflinellm.engine.memory import Allocation, memory_plan
from rooflinellm.engine.paths import ComputePath, attention_paths, runs_on, weight_paths
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.workspace import batch_limits, workspace_bytes
from rooflinellm.errors import InvalidRequest, InvalidSpec, MissingSpec, RooflineError
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.engine import Backend, EngineSpec, merge_variant
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec

MIB, GIB = 2**20, 2**30
ENGINES = (
    "exllamav2",
    "exllamav3",
    "ik_llama.cpp",
    "koboldcpp",
    "ktransformers",
    "llama.cpp",
    "lm-studio",
    "mlc-llm",
    "mlx",
    "mlx-vlm",
    "ollama",
    "sglang",
    "tensorrt-llm",
    "transformers",
    "vllm",
)
VARIANTS = {
    "ollama": "llama.cpp",
    "lm-studio": "llama.cpp",
    "koboldcpp": "llama.cpp",
    "ik_llama.cpp": "llama.cpp",
    "ktransformers": "sglang",
}
RTX_4090 = "nvidia-geforce-rtx-4090"
RTX_5090 = "nvidia-geforce-rtx-5090"
P40 = "nvidia-tesla-p40"
P100 = "nvidia-tesla-p100-pcie-16gb"
V100 = "nvidia-v100-sxm2-32gb"
T4 = "nvidia-t4"
A100 = "nvidia-a100-sxm4-80gb"
H100 = "nvidia-h100-sxm5-80gb"
B200 = "nvidia-b200-sxm-180gb"
M3_MAX = "apple-m3-max-40c"
STRIX_HALO = "amd-ryzen-ai-max-plus-395-8060s"
RX_7900_XTX = "amd-radeon-rx-7900-xtx"
MI300X = "amd-instinct-mi300x"
ARC_B580 = "intel-arc-b580"
EPYC = "amd-epyc-9654"


def engine(name: str) -> EngineSpec:
    return catalog.engine(name)[0]


@cache
def model(name: str) -> ModelSpec:
    return cast(ModelSpec, rl.model(name))


def backends() -> list[tuple[str, str]]:
    return [(name, backend) for name in ENGINES for backend in engine(name).backends]


def plan_of(name: str, device: str, model_name: str = "llama-3.1-8b", **more: Any) -> Plan:
    """The plan of an engine with its defaults."""
    spec, backend, build = catalog.engine(name)
    system = catalog.system(device)
    fmt = more.pop("weights", None) or spec.default_format or "hf:bf16"
    return compile_plan(
        model(model_name),
        system,
        catalog.weight_format(fmt, spec.format_families),
        more.pop("spec", spec),
        choose_backend(spec, system.device, backend),
        catalog.profiles("nominal"),
        catalog.encodings(),
        kv=more.pop("kv", spec.kv.default),
        build=build,
        **more,
    )


def expected_key(found: paths.Paths, tokens: int) -> str:
    return [path.key for path in found.expected if path.min_tokens <= tokens][-1]


# --- Files ------------------------------------------------------------------------------------------------------------


def test_the_engines_of_the_database() -> None:
    assert tuple(entry.id for entry in catalog.list_engines()) == ENGINES


@pytest.mark.parametrize("name", ENGINES)
def test_every_file_is_valid_and_cites_its_sources(name: str) -> None:
    spec = engine(name)
    assert spec.id == name
    for backend in spec.backends.values():
        assert backend.source in spec.sources
        keys = [key for rule in (*backend.rules, *backend.attention) for key in rule.use]
        assert set(keys) <= KNOWN_PEAKS
    assert {spec.kv.source, spec.workspace.source} <= set(spec.sources)
    assert set(spec.kv.types) <= set(catalog.encodings().kv_types)
    if spec.default_format is not None:
        assert catalog.weight_format(spec.default_format).family in spec.format_families


KNOWN_PEAKS = {
    *("fp64.fp64", "fp32.fp32", "tf32.fp32", "fp16.fp32", "fp16.fp16", "bf16.fp32", "fp8.fp32", "int8.int32"),
    *("fp8.fp32.block", "fp4.fp32.block"),
}


def test_patterns_of_rules_fit_something() -> None:
    """A misspelt encoding, architecture or vendor would never match."""
    devices = [catalog.hardware(entry.id) for entry in catalog.list_hardware()]
    encodings, kv_types = catalog.encodings().encodings, catalog.encodings().kv_types
    lost = []
    for name, backend_name in backends():
        backend = engine(name).backends[backend_name]
        served = [device for device in devices if runs_on(backend, device)]
        assert served, (name, backend_name)
        named = [(pattern, tuple(encodings)) for rule in backend.rules for pattern in rule.weights]
        named += [(pattern, tuple(kv_types)) for rule in backend.attention for pattern in rule.kv]
        lost += [(name, pattern) for pattern, names in named if not any(paths.fits_any([pattern], n) for n in names)]
        for rule in (*backend.rules, *backend.attention):
            for pattern in (*(rule.architectures or ()), *(backend.architectures or ())):
                if not any(paths.fits_architecture([pattern], device) for device in devices):
                    lost.append((name, pattern))
    assert lost == []


@pytest.mark.parametrize(("name", "backend"), backends())
def test_every_device_and_format_runs_or_says_what_to_do(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices that differ in nothing the rules look at are tried once."""
    monkeypatch.setattr(paths, "other_engines", lambda *_, **__: "Take another engine.")
    spec = engine(name)
    rules = spec.backends[backend]
    formats = [catalog.weight_format(entry.id) for entry in catalog.list_formats()]
    encodings = {rule.encoding for fmt in formats if fmt.family in spec.format_families for rule in fmt.rules}
    kinds = {
        (device.vendor, device.kind, device.architecture, device.isa, frozenset(device.peaks)): device
        for device in (catalog.hardware(entry.id) for entry in catalog.list_hardware())
        if runs_on(rules, device)
    }
    for device in kinds.values():
        computed = 0
        for encoding in encodings:
            try:
                found = weight_paths(rules, device, encoding, where=name)
            except (InvalidRequest, MissingSpec) as error:
                assert error.next_step
                continue
            computed += 1
            assert found.expected[0].min_tokens == 0
            assert all(a.min_tokens < b.min_tokens and a.key != b.key for a, b in pairwise(found.expected))
            peaks = [device.peaks[path.key] for path in found.expected]
            assert device.peaks[found.ideal_key] >= max(peaks)
        for kv in spec.kv.types:
            try:
                attention = attention_paths(rules, device, (kv, kv), where=name)
            except (InvalidRequest, MissingSpec) as error:
                assert error.next_step
            else:
                assert device.peaks[attention.ideal_key] >= device.peaks[attention.expected[0].key]
        if (name, device.isa) not in WITHOUT_HALVES:
            assert computed, device.id
            plan = plan_of(f"{name}:{backend}", device.id)
            assert plan.main.backend_name == backend
            pairs = zip(plan.kernels, plan.speeds, strict=True)
            assert all(speeds.paths for kernel, speeds in pairs if kernel.flops_per_token)


WITHOUT_HALVES = {("exllamav2", "sm_61")}
"""Devices that have no rate for halves, which these engines compute in."""


# --- Paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "device", "encoding", "few", "many", "ideal"),
    [
        # llama.cpp on CUDA: integers from Turing on; Volta hands large passes to cuBLAS; sm_60 has no DP4A
        ("llama.cpp", RTX_4090, "q4_k", "int8.int32", "int8.int32", "int8.int32"),
        ("llama.cpp", RTX_4090, "iq4_xs", "int8.int32", "int8.int32", "int8.int32"),
        ("llama.cpp", RTX_4090, "f16", "fp16.fp16", "fp16.fp16", "fp16.fp16"),
        ("llama.cpp", RTX_4090, "bf16", "bf16.fp32", "bf16.fp32", None),
        ("llama.cpp", RTX_4090, "mxfp4", "int8.int32", "int8.int32", "int8.int32"),
        ("llama.cpp", T4, "q4_0", "int8.int32", "int8.int32", "int8.int32"),
        ("llama.cpp", T4, "bf16", "fp32.fp32", "fp32.fp32", "fp16.fp16"),
        ("llama.cpp", V100, "q4_0", "int8.int32", "fp16.fp32", "fp16.fp32"),
        ("llama.cpp", P100, "q4_0", "fp32.fp32", "fp16.fp16", "fp16.fp16"),
        ("llama.cpp", P40, "q4_0", "int8.int32", "int8.int32", "int8.int32"),
        ("llama.cpp", P40, "f16", "fp32.fp32", "fp32.fp32", "fp32.fp32"),
        ("llama.cpp", RTX_5090, "mxfp4", "int8.int32", "fp4.fp32.block", "fp4.fp32.block"),
        ("llama.cpp", RTX_5090, "nvfp4", "int8.int32", "fp4.fp32.block", "fp4.fp32.block"),
        ("llama.cpp", B200, "mxfp4", "int8.int32", "int8.int32", None),
        # Metal unpacks to halves from 9 tokens on
        ("llama.cpp", M3_MAX, "q4_k", "fp32.fp32", "fp16.fp32", None),
        ("mlx", M3_MAX, "mlx_4bit_g64", "fp32.fp32", "fp16.fp32", None),
        # AMD: integers in HIP; in Vulkan too, in current builds
        ("llama.cpp:rocm", STRIX_HALO, "q4_0", "int8.int32", "int8.int32", None),
        ("llama.cpp:rocm", MI300X, "q4_k", "int8.int32", "int8.int32", "int8.int32"),
        ("llama.cpp:vulkan", STRIX_HALO, "q4_0", "fp16.fp16", "int8.int32", None),
        ("llama.cpp:vulkan", STRIX_HALO, "iq2_xs", "fp16.fp16", "fp16.fp16", None),
        ("llama.cpp:vulkan", RTX_4090, "q4_k", "fp16.fp16", "fp16.fp16", "fp16.fp16"),
        ("llama.cpp:sycl", ARC_B580, "q4_0", "fp16.fp32", "fp16.fp32", "fp16.fp32"),
        ("llama.cpp", EPYC, "q4_0", "int8.int32", "int8.int32", "int8.int32"),
        ("llama.cpp", EPYC, "bf16", "bf16.fp32", "bf16.fp32", "bf16.fp32"),
        ("llama.cpp", EPYC, "f16", "fp32.fp32", "fp32.fp32", "fp32.fp32"),
        # Servers: the units of the format where there are any, else unpacked to 16 bits
        ("vllm", H100, "fp8_channel", "fp8.fp32", "fp8.fp32", "fp8.fp32"),
        ("vllm", A100, "fp8_channel", "bf16.fp32", "bf16.fp32", None),
        ("vllm", H100, "bf16", "bf16.fp32", "bf16.fp32", None),
        ("vllm", RTX_4090, "int4_g128_zp", "bf16.fp32", "bf16.fp32", None),
        ("vllm", T4, "int4_g128_zp", "fp16.fp32", "fp16.fp32", None),
        ("vllm", B200, "nvfp4_g16", "fp4.fp32.block", "fp4.fp32.block", "fp4.fp32.block"),
        ("vllm", RTX_5090, "nvfp4_g16", "fp4.fp32.block", "fp4.fp32.block", "fp4.fp32.block"),
        ("vllm", H100, "nvfp4_g16", "bf16.fp32", "bf16.fp32", None),
        ("vllm", H100, "mxfp4", "bf16.fp32", "bf16.fp32", None),
        ("vllm", B200, "mxfp4", "fp8.fp32.block", "fp8.fp32.block", "fp8.fp32.block"),
        ("sglang", H100, "fp8_block128", "fp8.fp32", "fp8.fp32", "fp8.fp32"),
        ("tensorrt-llm", B200, "mxfp4", "fp8.fp32.block", "fp8.fp32.block", "fp8.fp32.block"),
        ("tensorrt-llm", H100, "int4_g128", "fp16.fp32", "fp16.fp32", "fp8.fp32"),
        ("exllamav2", RTX_4090, "exl2_4", "fp16.fp16", "fp16.fp16", "fp16.fp16"),
        ("exllamav3", RTX_4090, "exl3_4", "fp16.fp32", "fp16.fp32", "fp16.fp16"),
        ("transformers", A100, "nf4", "fp16.fp32", "fp16.fp32", None),
        # Variants take the rules of their engine
        ("ollama", RTX_4090, "q4_k", "int8.int32", "int8.int32", "int8.int32"),
        ("lm-studio", M3_MAX, "q4_k", "fp32.fp32", "fp16.fp32", None),
    ],
)
def test_paths(name: str, device: str, encoding: str, few: str, many: str, ideal: str | None) -> None:
    """Few tokens are a decode step of one sequence, many a chunk of a prompt."""
    spec, asked, build = catalog.engine(name)
    hardware = catalog.hardware(device)
    backend = spec.backends[choose_backend(spec, hardware, asked)]
    found = weight_paths(backend, hardware, encoding, where=name, build=build)
    assert (expected_key(found, 1), expected_key(found, 512)) == (few, many)
    if ideal is None:  # peaks that are equal on the device have no order
        assert hardware.peaks[found.ideal_key] >= max(hardware.peaks[few], hardware.peaks[many])
    else:
        assert found.ideal_key == ideal


@pytest.mark.parametrize(
    ("name", "device", "kv", "expected"),
    [
        ("llama.cpp", RTX_4090, ("f16", "f16"), "fp16.fp16"),
        ("llama.cpp", P40, ("f16", "f16"), "fp32.fp32"),
        ("llama.cpp", M3_MAX, ("q8_0", "q8_0"), "fp16.fp32"),
        ("llama.cpp", EPYC, ("f16", "f16"), "fp32.fp32"),
        ("vllm", H100, ("bf16", "bf16"), "bf16.fp32"),
        ("vllm", H100, ("fp8", "fp8"), "fp8.fp32"),
        ("vllm", A100, ("fp8", "fp8"), "bf16.fp32"),
        ("sglang", H100, ("fp8", "fp8"), "fp8.fp32"),
        ("tensorrt-llm", H100, ("fp8", "fp8"), "fp8.fp32"),
    ],
)
def test_attention_paths(name: str, device: str, kv: tuple[str, str], expected: str) -> None:
    spec, hardware = engine(name), catalog.hardware(device)
    backend = spec.backends[choose_backend(spec, hardware, None)]
    assert attention_paths(backend, hardware, kv, where=name).expected == (ComputePath(0, expected),)


def test_where_llama_cpp_changes_its_path() -> None:
    backend = engine("llama.cpp").backends["cuda"]
    volta = weight_paths(backend, catalog.hardware(V100), "q4_0", where="llama.cpp")
    assert volta.expected == (ComputePath(0, "int8.int32"), ComputePath(64, "fp16.fp32"))
    first = weight_paths(backend, catalog.hardware(P100), "q4_0", where="llama.cpp")
    assert first.expected == (ComputePath(0, "fp32.fp32"), ComputePath(9, "fp16.fp16"))


@pytest.mark.parametrize(
    ("name", "device", "encoding", "many"),
    [
        # MMQ became the default in 2024-06, with int8 on tensor cores (ggml-org/llama.cpp 8075, 7676)
        ("llama.cpp:cuda@2024-05", RTX_4090, "q4_k", "fp16.fp16"),
        ("llama.cpp:cuda@2024-05-31", RTX_4090, "q4_k", "fp16.fp16"),
        ("llama.cpp:cuda@2024-06", RTX_4090, "q4_k", "int8.int32"),
        ("llama.cpp:cuda@2024-06-01", RTX_4090, "q4_k", "int8.int32"),
        ("llama.cpp:cuda@2024-06", RTX_4090, "iq4_xs", "fp16.fp16"),  # 8495
        ("llama.cpp:cuda@2024-07", RTX_4090, "iq4_xs", "int8.int32"),
        ("llama.cpp:cuda@2024-05", P40, "q4_k", "int8.int32"),
        # FP4 units, 2025-12 (17906)
        ("llama.cpp:cuda@2025-11", RTX_5090, "mxfp4", "int8.int32"),
        ("llama.cpp:cuda@2025-12", RTX_5090, "mxfp4", "fp4.fp32.block"),
        # matrix cores in HIP, 2025 (14624, 17576)
        ("llama.cpp:rocm@2025-06", MI300X, "q4_k", "fp16.fp32"),
        ("llama.cpp:rocm@2025-07", MI300X, "q4_k", "int8.int32"),
        ("llama.cpp:rocm@2025-10", RX_7900_XTX, "q4_k", "fp16.fp32"),
        ("llama.cpp:rocm@2025-11", RX_7900_XTX, "q4_k", "int8.int32"),
        # matrix units of the M5, 2025-10 (16634)
        ("llama.cpp:metal@2025-09", "apple-m5-10c", "q4_0", "fp32.fp32"),
        ("llama.cpp:metal@2025-10", "apple-m5-10c", "q4_0", "fp16.fp32"),
        ("llama.cpp:metal@2025-09", M3_MAX, "q4_0", "fp16.fp32"),
        # int8 on matrix units in Vulkan, 2026-09 (27952)
        ("llama.cpp:vulkan@2026-08", STRIX_HALO, "q4_0", "fp16.fp16"),
        ("llama.cpp:vulkan@2026-09", STRIX_HALO, "q4_0", "int8.int32"),
        ("ollama:cuda@2024-05", RTX_4090, "q4_k", "fp16.fp16"),
    ],
)
def test_paths_of_older_builds(name: str, device: str, encoding: str, many: str) -> None:
    spec, backend, build = catalog.engine(name)
    assert backend is not None
    found = weight_paths(spec.backends[backend], catalog.hardware(device), encoding, where=name, build=build)
    assert expected_key(found, 512) == many


def test_a_build_is_part_of_an_estimate() -> None:
    now = rl.estimate("llama-3.1-8b", RTX_4090, engine="llama.cpp", prompt_tokens=2048, output_tokens=0)
    then = rl.estimate("llama-3.1-8b", RTX_4090, engine="llama.cpp:cuda@2024-05", prompt_tokens=2048, output_tokens=0)
    assert (now.engine, then.engine) == ("llama.cpp:cuda", "llama.cpp:cuda@2024-05")
    # 660.6 TOP/s of int8 against 330.3 TFLOP/s of halves that add up in 16 bits; attention takes halves in both.
    assert now.prefill.time_s.ideal < then.prefill.time_s.ideal < 2 * now.prefill.time_s.ideal
    assert "int8.int32" not in {row.compute_path for row in then.prefill.operators}


# --- Rules ------------------------------------------------------------------------------------------------------------


def device_with(**tflops: float) -> HardwareSpec:
    """A device of an imaginary architecture; peaks as ``fp16_fp32=100``. [TFLOP/s]"""
    real = catalog.hardware(RTX_4090).model_dump(by_alias=True)
    peaks = []
    for name, value in tflops.items():
        precision, _, accumulate = name.partition("_")
        peaks.append({**real["peaks"][0], "precision": precision, "accumulate": accumulate, "tflops": value})
    return HardwareSpec.model_validate({**real, "peaks": peaks, "architecture": "Fancy", "isa": "FA_1"})


def backend_of(*rules: dict[str, Any]) -> Backend:
    return Backend.model_validate(
        {"rules": [{"weights": ["*"], **rule} for rule in rules], "attention": [{"use": ["a.b"]}], "source": "s"}
    )


def test_the_first_peak_there_is_is_expected_and_the_fastest_the_ideal() -> None:
    device = device_with(fp16_fp32=100, fp16_fp16=200, fp32_fp32=50)
    backend = backend_of({"use": ["int8.int32", "fp32.fp32", "fp16.fp16"]})
    found = weight_paths(backend, device, "q4_0", where="x")
    assert (found.expected, found.ideal_key) == ((ComputePath(0, "fp32.fp32"),), "fp16.fp16")


def test_rules_that_no_pass_reaches_are_not_in_the_ideal() -> None:
    device = device_with(fp16_fp32=100, fp32_fp32=50)
    slow, fast = {"use": ["fp32.fp32"]}, {"use": ["fp16.fp32"]}

    def keys(*rules: dict[str, Any]) -> tuple[str, str, str]:
        found = weight_paths(backend_of(*rules), device, "q4_0", where="x")
        return expected_key(found, 1), expected_key(found, 100), found.ideal_key

    assert keys(slow, fast) == ("fp32.fp32", "fp32.fp32", "fp32.fp32")
    assert keys({**slow, "tokens": ">=9"}, fast) == ("fp16.fp32", "fp32.fp32", "fp16.fp32")
    assert keys({**slow, "tokens": "<9"}, fast) == ("fp32.fp32", "fp16.fp32", "fp16.fp32")
    # A rule without a peak of the device does not stand in the way; nor does one for another architecture.
    assert keys({"use": ["int8.int32"]}, slow, fast) == ("fp32.fp32", "fp32.fp32", "fp32.fp32")
    assert keys({**fast, "architectures": ["other", "fa_2"]}, slow) == ("fp32.fp32", "fp32.fp32", "fp32.fp32")
    for pattern in ("fancy", "FANCY", "fan*", "fa_1", "*_1"):
        assert keys({**fast, "architectures": [pattern]}, slow)[2] == "fp16.fp32"
    # Few tokens have a path even where only a rule for many has a peak.
    assert keys({**fast, "tokens": ">=9"}, {"use": ["int8.int32"]}) == ("fp16.fp32", "fp16.fp32", "fp16.fp32")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (None, "fp16.fp32"),
        ("2024-05", "fp32.fp32"),
        ("2024-05-31", "fp32.fp32"),
        ("2024-06", "fp16.fp16"),
        ("2024-06-01", "fp16.fp16"),
        ("2025-01", "fp16.fp32"),
        ("2031-12", "fp16.fp32"),
    ],
)
def test_rules_by_date(build: str | None, expected: str) -> None:
    backend = backend_of(
        {"use": ["fp32.fp32"], "until": "2024-06"},
        {"use": ["fp16.fp16"], "since": "2024-06", "until": "2025-01"},
        {"use": ["fp16.fp32"], "since": "2025-01"},
    )
    device = device_with(fp16_fp32=100, fp16_fp16=200, fp32_fp32=50)
    found = weight_paths(backend, device, "q4_0", where="x", build=build)
    assert (found.expected, found.ideal_key) == ((ComputePath(0, expected),), expected)


@pytest.mark.parametrize(
    "rule",
    [
        {"use": []},
        {"use": ["fp16.fp32"], "since": "2024"},
        {"use": ["fp16.fp32"], "since": "2024-13"},
        {"use": ["fp16.fp32"], "since": "2024-06", "until": "2024-06"},
        {"use": ["fp16.fp32"], "since": "2024-07", "until": "2024-06"},
        {"use": ["fp16.fp32"], "tokens": "9"},
        {"use": ["fp16.fp32"], "tokens": "<=9"},
        {"use": ["fp16.fp32"], "weights": []},
        {"use": ["fp16.fp32"], "kernel": "mmq"},
    ],
)
def test_rules_that_are_none(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        backend_of(rule)


# --- What an engine does not run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "device", "weights", "message", "able"),
    [
        ("vllm", M3_MAX, None, "vllm does not run on Apple M3 Max", ("llama.cpp", "mlx")),
        ("mlx", RTX_4090, None, "mlx does not run on NVIDIA", ("llama.cpp", "vllm", "exllamav3")),
        ("exllamav3", RX_7900_XTX, None, "exllamav3 does not run on AMD", ("llama.cpp", "exllamav2")),
        ("tensorrt-llm", V100, None, "tensorrt-llm does not run on", ("llama.cpp", "vllm")),
        ("sglang", RX_7900_XTX, None, "sglang does not run on", ("llama.cpp", "vllm")),
        ("ik_llama.cpp", MI300X, None, "ik_llama.cpp does not run on", ("llama.cpp", "vllm")),
        ("llama.cpp", "google-tpu-v5e", None, "llama.cpp does not run on", ("vllm",)),
        ("llama.cpp:metal", RTX_4090, None, "llama.cpp:metal does not run on", ("cuda, vulkan",)),
        ("llama.cpp:cpu", RTX_4090, None, "llama.cpp:cpu does not run on", ("cuda, vulkan",)),
        ("vllm", RTX_4090, "Q4_K_M", "family gguf", ("llama.cpp", "ollama")),
        ("llama.cpp", H100, "fp8", "family hf", ("vllm", "sglang", "tensorrt-llm")),
        ("llama.cpp", M3_MAX, "mlx-4bit", "family mlx", ("mlx",)),
        ("exllamav3", RTX_4090, "exl2-4.0", "exl2_4", ("exllamav2",)),
        ("exllamav2", RTX_4090, "exl3-4.0", "exl3_4", ("exllamav3",)),
        ("transformers", B200, "nvfp4", "nvfp4_g16", ("vllm", "sglang", "tensorrt-llm")),
        ("llama.cpp", M3_MAX, "nvfp4", "nvfp4", ()),
    ],
)
def test_an_engine_that_cannot_names_one_that_can(
    name: str, device: str, weights: str | None, message: str, able: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rl.estimate("llama-3.1-8b", device, engine=name, weights=weights)
    assert message in str(caught.value)
    assert caught.value.next_step
    listed = caught.value.next_step.rstrip(".").split(": ")[-1].split(", ")
    for other in able:
        assert other in listed or other in caught.value.next_step
    assert name not in listed


def test_a_format_as_an_object_of_another_family() -> None:
    with pytest.raises(InvalidRequest) as caught:
        rl.estimate("llama-3.1-8b", RTX_4090, engine="vllm", weights=catalog.weight_format("gguf:q4_k_m"))
    assert "llama.cpp" in str(caught.value.next_step)


def test_no_engine_at_all() -> None:
    with pytest.raises(InvalidRequest, match="No engine in the database runs models on"):
        rl.estimate("llama-3.1-8b", "groq-lpu-v1")


def test_a_missing_peak_is_not_replaced() -> None:
    with pytest.raises(MissingSpec, match=r"exllamav2:cuda uses for weights in exl2_4") as caught:
        rl.estimate("llama-3.1-8b", P40, engine="exllamav2")
    assert caught.value.next_step


def test_a_cache_that_the_engine_does_not_have() -> None:
    with pytest.raises(InvalidRequest, match="no cache type 'q4_0'"):
        rl.estimate("llama-3.1-8b", H100, engine="vllm", kv="q4_0")


def test_figures_run_on_every_engine() -> None:
    for name in ENGINES:
        fmt = engine(name).default_format or "hf:bf16"
        for key in ("fp16", "bf16", "fp32"):
            device = f"24GiB,1008GB/s,165TFLOP/s@{key}"
            try:
                assert rl.estimate("llama-3.1-8b", device, engine=name, weights=fmt).decode.tokens_per_s.ideal > 0
            except MissingSpec as error:
                assert error.next_step


def test_a_broken_engine_is_left_out_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hardware_db" / "engines"
    folder.mkdir(parents=True)
    (folder / "broken.yaml").write_text("schema: 1\nid: broken\nname: Broken\n")
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    with pytest.raises(InvalidSpec):
        catalog.engine("broken")
    assert "broken" not in paths.other_engines(catalog.hardware(RTX_4090))
    with pytest.raises(InvalidRequest) as caught:
        rl.estimate("llama-3.1-8b", RTX_4090, weights="Q4_K_M", engine="vllm")
    assert "broken" not in str(caught.value)


# --- Variants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "base"), VARIANTS.items())
def test_variants_inherit(name: str, base: str) -> None:
    variant, origin = engine(name), engine(base)
    assert variant.variant_of == base
    assert not set(variant.aliases) & set(origin.aliases)
    assert set(origin.sources) <= set(variant.sources)
    assert variant.prefill_chunk == origin.prefill_chunk
    assert variant.workspace == origin.workspace


def test_variants_differ() -> None:
    base = engine("llama.cpp")
    assert engine("ollama").backends["cuda"] == base.backends["cuda"]
    assert set(base.backends) - set(engine("ollama").backends) == {"sycl", "opencl"}
    assert engine("ollama").kv.types == ("f16", "q8_0", "q4_0")
    assert engine("ollama").kv.block_tokens == base.kv.block_tokens
    assert (base.kv.sliding, engine("ik_llama.cpp").kv.sliding) == ("window_and_chunk", "full")
    assert engine("ik_llama.cpp").backends["cuda"].architectures == (
        *("turing", "ampere", "ada", "hopper", "blackwell*", "rubin"),
    )
    assert engine("ik_llama.cpp").backends["cuda"].rules == base.backends["cuda"].rules
    assert engine("ktransformers").backends["cpu"].kinds == ("cpu",)


def test_merge() -> None:
    base = {"id": "a", "aliases": ["x"], "backends": {"p": {"rules": [1, 2], "n": 1}, "q": {"n": 2}}, "chunk": 512}
    variant = {"id": "b", "backends": {"p": {"rules": [3]}, "q": None, "r": {"n": 4}}, "chunk": None, "missing": None}
    before = (repr(base), repr(variant))
    assert merge_variant(base, variant) == {"id": "b", "backends": {"p": {"rules": [3], "n": 1}, "r": {"n": 4}}}
    assert (repr(base), repr(variant)) == before
    assert merge_variant(base, {}) == {key: value for key, value in base.items() if key != "aliases"}


def own_engine(folder: Path, name: str, text: str) -> Path:
    file = folder / "hardware_db" / "engines" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"schema: 1\nid: {name}\nname: {name}\n{text}", encoding="utf-8")
    return file


def test_a_variant_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    own_engine(tmp_path, "mine", "variant_of: llama.cpp\nprefill_chunk: 1024\nkv: {default: q8_0}\n")
    mine = engine("mine:cuda")
    assert (mine.prefill_chunk, mine.kv.default, mine.kv.block_tokens) == (1024, "q8_0", 256)
    answer = rl.estimate("llama-3.1-8b", RTX_4090, engine="mine")
    assert (answer.engine, answer.kv, answer.weights) == ("mine:cuda", "q8_0", "gguf:q4_k_m")
    elsewhere = own_engine(tmp_path / "elsewhere", "other", "variant_of: mlx\nprefill_chunk: 512\n")
    assert catalog.engine(str(elsewhere))[0].prefill_chunk == 512
    # What is edited is read again, be it the variant or the engine below it.
    own_engine(tmp_path, "mine", "variant_of: llama.cpp\nprefill_chunk: 256\n")
    assert engine("mine").prefill_chunk == 256
    text = (Path(__file__).parent.parent / "hardware_db" / "engines" / "llama.cpp.yaml").read_text(encoding="utf-8")
    below = own_engine(tmp_path, "llama.cpp", "")
    below.write_text(text.replace("batch_tokens: 2048", "batch_tokens: 4096"), encoding="utf-8")
    assert engine("mine").batch_tokens == 4096


@pytest.mark.parametrize("name", ["nothing", "ollama", "mine", "[llama.cpp]", "7"])
def test_variants_of_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such engine, a variant, itself, no name."""
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    own_engine(tmp_path, "mine", f"variant_of: {name}\n")
    with pytest.raises(InvalidSpec, match="variant_of"):
        catalog.engine("mine")


def test_errors_of_a_variant_name_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    for text in ("prefill_chunk: many", "kv: {default: f64}", "backends: {cuda: {source: nowhere}}", "colour: red"):
        own_engine(tmp_path, "mine", f"variant_of: llama.cpp\n{text}\n")
        with pytest.raises(InvalidSpec, match=r"mine\.yaml"):
            catalog.engine("mine")


def test_a_variant_is_as_efficient_as_its_engine() -> None:
    base = rl.estimate("llama-3.1-8b", RTX_4090, engine="llama.cpp")
    for name in ("ollama", "lm-studio", "koboldcpp", "ik_llama.cpp"):
        assert rl.estimate("llama-3.1-8b", RTX_4090, engine=name).decode.time_s == base.decode.time_s


# --- Defaults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "name", "found"),
    [
        (None, None, ("llama.cpp", "gguf:q4_k_m")),
        ("Q4_K_M", None, ("llama.cpp", "gguf:q4_k_m")),
        ("MXFP4", None, ("llama.cpp", "gguf:mxfp4")),
        ("BF16", None, ("llama.cpp", "gguf:bf16")),
        ("F16", None, ("llama.cpp", "gguf:f16")),
        ("NVFP4", None, ("vllm", "hf:nvfp4")),
        ("AWQ", None, ("vllm", "hf:awq")),
        ("fp8", None, ("vllm", "hf:fp8")),
        ("hf:mxfp4", None, ("vllm", "hf:mxfp4")),
        (None, "llama.cpp", ("llama.cpp", "gguf:q4_k_m")),
        (None, "ollama", ("ollama", "gguf:q4_k_m")),
        (None, "vllm", ("vllm", "hf:bf16")),
        (None, "sglang", ("sglang", "hf:bf16")),
        (None, "exllamav3", ("exllamav3", "exl:exl3-4.0")),
        ("bf16", "vllm", ("vllm", "hf:bf16")),
        ("MXFP4", "vllm", ("vllm", "hf:mxfp4")),
    ],
)
def test_defaults_by_format(weights: str | None, name: str | None, found: tuple[str, str]) -> None:
    answer = rl.estimate("llama-3.1-8b", RTX_5090, weights=weights, engine=name)
    assert (answer.engine.partition(":")[0], answer.weights) == found


@pytest.mark.parametrize(
    ("weights", "name", "found"),
    [("mlx-4bit", None, "mlx:4bit"), (None, "mlx", "mlx:bf16"), ("4bit", "mlx", "mlx:4bit")],
)
def test_defaults_by_format_on_apple(weights: str | None, name: str | None, found: str) -> None:
    answer = rl.estimate("llama-3.1-8b", M3_MAX, weights=weights, engine=name)
    assert (answer.engine, answer.weights) == ("mlx:metal", found)


@pytest.mark.parametrize(
    ("device", "backend"),
    [
        (RTX_4090, "cuda"),
        ("nvidia-dgx-spark-gb10", "cuda"),
        (M3_MAX, "metal"),
        (RX_7900_XTX, "rocm"),
        (STRIX_HALO, "rocm"),
        (ARC_B580, "sycl"),
        ("qualcomm-snapdragon-x-elite", "opencl"),
        (EPYC, "cpu"),
    ],
)
def test_default_backends_of_llama_cpp(device: str, backend: str) -> None:
    assert choose_backend(engine("llama.cpp"), catalog.hardware(device), None) == backend


@pytest.mark.parametrize(
    ("name", "device", "chunk", "sequences"),
    [
        ("llama.cpp", RTX_4090, 512, 1),
        ("mlx", M3_MAX, 2048, 1),
        # vLLM: get_batch_defaults
        ("vllm", H100, 8192, 1024),
        ("vllm", B200, 8192, 1024),
        ("vllm", A100, 2048, 256),
        ("vllm", RTX_4090, 2048, 256),
        # SGLang: chunked_prefill_size by memory
        ("sglang", RTX_4090, 2048, 24),
        ("sglang", H100, 8192, 256),
        ("sglang", B200, 16384, 512),
        ("tensorrt-llm", H100, 8192, 2048),
    ],
)
def test_limits_by_device(name: str, device: str, chunk: int, sequences: int) -> None:
    limits = batch_limits(engine(name), catalog.hardware(device))
    assert (limits.prefill_chunk, limits.sequences) == (chunk, sequences)
    if name not in ("llama.cpp", "mlx"):
        assert plan_of(name, device).prefill_chunk == chunk


# --- Cache ------------------------------------------------------------------------------------------------------------


def memory_of(plan: Plan, limit: int, sequences: int = 1) -> Any:
    allocation = Allocation(unified=plan.engine.kv.unified, full_windows=False, chunk=plan.prefill_chunk)
    return memory_plan(plan, sequences, limit, limit, allocation)


@pytest.mark.parametrize(
    ("name", "device", "tokens"),
    [
        ("llama.cpp", RTX_4090, 1024),  # pages of 256
        ("vllm", H100, 1008),  # 16
        ("sglang", H100, 1001),  # 1
        ("tensorrt-llm", H100, 1024),  # 32
        ("exllamav2", RTX_4090, 1024),  # 256
        ("exllamav3", RTX_4090, 1024),
        ("mlx", M3_MAX, 1024),  # 256
        ("mlc-llm", RTX_4090, 1008),
        ("transformers", H100, 1001),
    ],
)
def test_blocks(name: str, device: str, tokens: int) -> None:
    """Llama 3.1 8B: 32 layers of 8 heads of 128, keys and values in 2 bytes: 131,072 bytes a token."""
    assert memory_of(plan_of(name, device), 1001).kv_allocated_bytes == 131_072 * tokens


@pytest.mark.parametrize(
    ("name", "device", "kv", "bytes_per_element"),
    [
        ("llama.cpp", RTX_4090, "q8_0", 34 / 32),
        ("llama.cpp", RTX_4090, "q4_0", 18 / 32),
        ("ollama", RTX_4090, "q8_0", 34 / 32),
        ("vllm", H100, "fp8", 1),
        ("sglang", H100, "fp8", 1),
        ("tensorrt-llm", H100, "fp8", 1),
        ("exllamav3", RTX_4090, "q4_0", 18 / 32),
    ],
)
def test_cache_types(name: str, device: str, kv: str, bytes_per_element: float) -> None:
    memory = memory_of(plan_of(name, device, kv=kv), 1024)
    assert memory.kv_allocated_bytes == 65_536 * bytes_per_element * 1024


def test_windows() -> None:
    """Gemma 3 4B: 29 of 34 layers see 1,024 tokens."""

    def sliding(name: str, device: str) -> Any:
        plan = plan_of(name, device, "gemma-3-4b")
        per_token = sum(
            cache.bytes_per_token
            for stage in plan.stages
            for share in stage.shares
            for cache in share.caches
            if cache.span
        )
        return memory_of(plan, 32_768).kv_by_kind["sliding"] / per_token

    assert sliding("llama.cpp", RTX_4090) == 1024 + 512
    assert sliding("ik_llama.cpp", RTX_4090) == 32_768
    assert sliding("koboldcpp", RTX_4090) == 32_768
    assert sliding("vllm", H100) == 1024 + 8192


# --- Workspace --------------------------------------------------------------------------------------------------------


def buffer_mib(plan: Plan) -> float:
    """The workspace less what the runtime takes."""
    found = workspace_bytes(plan, 1, 131_072, plan.prefill_chunk)
    return float(found / MIB - plan.backend.runtime_mib)


@pytest.mark.parametrize(
    ("name", "mib", "source"),
    [
        # "compute buffer size" at n_ubatch 512 with flash attention, the same on CUDA, Metal, Vulkan and CPU
        ("qwen2.5-3b", 300.75, "SciSharp/LLamaSharp 1099"),
        ("qwen2.5-7b", 304.00, "JamePeng/llama-cpp-python 1"),
        ("llama-3-8b", 258.50, "logs in public repositories"),
        ("llama-3.3-70b", 266.50, "logs in public repositories"),
        ("llama-2-7b", 70.50, "logs in public repositories"),
        ("gpt-oss-20b", 398.38, "logs in public repositories"),
        ("qwen3-30b-a3b", 300.75, "logs in public repositories"),
    ],
)
def test_compute_buffers_of_llama_cpp(name: str, mib: float, source: str) -> None:
    assert source
    for backend, device in (("cuda", RTX_4090), ("metal", M3_MAX), ("vulkan", STRIX_HALO), ("cpu", EPYC)):
        assert round(buffer_mib(plan_of(f"llama.cpp:{backend}", device, name)), 2) == pytest.approx(mib, abs=0.011)


def test_a_wide_feed_forward_part_beside_a_small_vocabulary() -> None:
    """Llama 2 7B: 4 x 512 x 2 (11,008 + 4,096) is less than the logits; twice the chunk takes twice as much."""
    plan = plan_of("llama.cpp", RTX_4090, "llama-2-7b")
    assert buffer_mib(plan) == 4 * 512 * (32_000 + 4096) / MIB == 70.5
    assert buffer_mib(plan_of("llama.cpp", RTX_4090, "llama-2-7b", prefill_chunk=1024)) == 141


@pytest.mark.parametrize(
    ("name", "device", "chunk", "sequences", "gib"),
    [
        # "PyTorch activation peak memory" and its successors in vLLM's log
        ("llama-3.1-8b", H100, 8192, 1024, 1.44),  # a log of October 2026: 12 bytes a logit of 1,024 sequences
        ("llama-3.1-8b", "nvidia-a10g", 2048, 8, 0.22),  # a log of few sequences: the pass itself
        ("llama-3.2-1b", RTX_4090, 8192, 8, 0.45),
    ],
)
def test_activation_peak_of_vllm(name: str, device: str, chunk: int, sequences: int, gib: float) -> None:
    spec = engine("vllm").model_copy(update={"prefill_chunk": chunk, "sequences": sequences, "smaller_devices": ()})
    plan = plan_of("vllm", device, name, spec=spec)
    assert (buffer_mib(plan) - spec.workspace.graphs_mib) / 1024 == pytest.approx(gib, rel=0.1)


def test_memory_of_vllm() -> None:
    """0.92 of the capacity, of which weights, activations, graphs and what is not PyTorch's are taken away."""
    plan = plan_of("vllm", H100)
    memory = memory_of(plan, 131_072)
    assert memory.usable_bytes == int(0.92 * 80 * GIB)
    beside = (memory.total_bytes - memory.kv_allocated_bytes - memory.resident_weight_bytes) / GIB
    # A log of October 2026 on an H100: 1.44 activations, 0.26 not PyTorch's, 0.23 graphs.
    assert beside == pytest.approx(1.44 + 0.26 + 0.23, rel=0.1)


def test_reserve_of_sglang() -> None:
    """512 + 1.5 x 8,192 + 2 x 256 + 1,024 / 8 MiB on an H100 (sgl-project/sglang 10975)."""
    plan = plan_of("sglang", H100)
    assert workspace_bytes(plan, 1, 131_072, plan.prefill_chunk) == 13_440 * MIB


@pytest.mark.parametrize(("name", "gib"), [("qwen3-4b", 0.65), ("qwen3-30b-a3b", 0.75)])
def test_activations_of_mlx(name: str, gib: float) -> None:
    """Peak memory less weights and cache at a prompt of 2,048 tokens (ml-explore/mlx-lm, BENCHMARKS.md); roughly."""
    plan = plan_of("mlx", M3_MAX, name)
    found = workspace_bytes(plan, 1, 4096, plan.prefill_chunk) / GIB - plan.backend.runtime_mib / 1024
    assert gib / 2 < found < gib * 2


def test_a_prompt_that_passes_whole_needs_room_for_what_there_is() -> None:
    """Transformers does not split prompts: activations grow with the context, and no further."""
    plan = plan_of("transformers", H100)
    short, long = (workspace_bytes(plan, 1, limit, plan.prefill_chunk) for limit in (1024, 4096))
    per_token = 5 * 2 * (14_336 + 4096)
    assert long - short == 3072 * per_token
    assert memory_of(plan, 4096).fits


@pytest.mark.parametrize(("name", "backend"), backends())
def test_workspace_grows_with_what_it_is_for(name: str, backend: str) -> None:
    spec = engine(name)
    device = next(
        entry
        for entry in (catalog.hardware(each) for each in (RTX_4090, MI300X, M3_MAX, ARC_B580, EPYC, *OTHERS))
        if runs_on(spec.backends[backend], entry)
    )
    plan = plan_of(f"{name}:{backend}", device.id)

    def size(chunk: int, sequences: int = 1) -> Any:
        return workspace_bytes(plan, sequences, 65_536, chunk)

    assert 0 < size(1) <= size(512) <= size(8192) < size(32_768)
    assert size(512, 1) <= size(512, 64)
    assert isinstance(size(512), int)


OTHERS = ("qualcomm-snapdragon-x-elite", "google-tpu-v5e", RX_7900_XTX)


def test_every_engine_answers() -> None:
    """Each with its defaults on a device of its own."""
    for name in ENGINES:
        device = M3_MAX if name.startswith("mlx") else RTX_4090
        answer = rl.estimate("llama-3.1-8b", device, engine=name)
        assert 0 < answer.decode.tokens_per_s.expected <= answer.decode.tokens_per_s.ideal
        assert answer.memory.workspace_bytes > 0


def test_systems_of_several_devices() -> None:
    two = SystemSpec(name="two", device=catalog.hardware(RTX_4090), count=2)
    assert rl.estimate("llama-3.1-8b", two, engine="ollama").memory.placement[1].layers > 0
    with pytest.raises(RooflineError, match="tensor_parallel=2"):
        rl.estimate("llama-3.1-8b", two, engine="vllm")
