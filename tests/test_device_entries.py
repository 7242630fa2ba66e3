"""Every device entry of the database: schema, naming, plausible physics, and figures of published datasheets."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import ValidationError

from rooflinellm import units
from rooflinellm.errors import InvalidRequest, MissingSpec
from rooflinellm.specs.common import cited_sources, load
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.index import key_of

FOLDER = Path(__file__).resolve().parents[1] / "hardware_db" / "devices"
FILES = sorted(FOLDER.rglob("*.yaml"))
KEY_ORDER = [
    "schema", "id", "name", "aliases", "products", "vendor", "architecture", "kind", "release_date", "memory", "cache",
    "clock", "peaks", "compute_units", "isa", "links", "power", "sources", "notes",
]  # fmt: skip
ARCHITECTURES = {
    "nvidia": "kepler maxwell pascal volta turing ampere ada hopper blackwell blackwell-ultra rubin neoverse-v2",
    "amd": "gcn4 gcn5 cdna1 cdna2 cdna3 cdna4 cdna5 rdna1 rdna2 rdna3 rdna3.5 rdna4 zen2 zen3 zen4 zen4c zen5 zen5c",
    "intel": "xe-lp xe-hpg xe2 xe3 xe-hpc gaudi2 gaudi3 coffee-lake alder-lake raptor-lake arrow-lake ice-lake "
    "sapphire-rapids emerald-rapids granite-rapids",
    "apple": "apple7 apple8 apple9 apple10",
}
SRAM_ONLY = "SRAM"
"""Memory type of devices that keep the whole model on chip; their ridge points lie below those of the others."""


@cache
def device(name: str) -> HardwareSpec:
    (file,) = FOLDER.glob(f"*/{name}.yaml")
    return load(HardwareSpec, file)


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def entry(request: pytest.FixtureRequest) -> HardwareSpec:
    return device(request.param.stem)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_file_is_where_its_name_says(file: Path) -> None:
    entry = device(file.stem)
    assert entry.id == file.stem
    assert entry.vendor == file.parent.name
    text = file.read_text(encoding="utf-8")
    keys = re.findall(r"^(\w+):", text, flags=re.MULTILINE)
    assert keys == [key for key in KEY_ORDER if key in keys]
    assert max(map(len, text.splitlines())) <= 120


def test_the_architecture_has_its_uniform_name(entry: HardwareSpec) -> None:
    assert entry.architecture == entry.architecture.lower()
    if entry.vendor in ARCHITECTURES:
        assert entry.architecture in ARCHITECTURES[entry.vendor].split()


def test_every_listed_source_is_cited(entry: HardwareSpec) -> None:
    assert set(entry.sources) == set(cited_sources(entry))


def test_aliases_are_distinct_and_lower_case(entry: HardwareSpec) -> None:
    names = [key_of(name) for name in (entry.id, *entry.aliases)]
    assert len(set(names)) == len(names)
    assert all(alias == alias.lower() and " " not in alias for alias in entry.aliases)
    assert entry.aliases


def test_no_alias_is_the_id_of_another_device() -> None:
    ids = {key_of(file.stem): file.stem for file in FILES}
    for file in FILES:
        for alias in device(file.stem).aliases:
            assert ids.get(key_of(alias), file.stem) == file.stem


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "rtx-4090": {"nvidia-geforce-rtx-4090"},
        "4090": {"nvidia-geforce-rtx-4090"},
        "m3-max-40c": {"apple-m3-max-40c"},
        "h100-sxm": {"nvidia-h100-sxm5-80gb"},
        "strix-halo": {"amd-ryzen-ai-max-plus-395-8060s"},
        "dgx-spark": {"nvidia-dgx-spark-gb10"},
        "mi300x": {"amd-instinct-mi300x"},
        "7950x": {"amd-ryzen-9-7950x"},
        "a100-sxm-80gb": {"nvidia-a100-sxm4-80gb"},
        "3080": {"nvidia-geforce-rtx-3080-10gb", "nvidia-geforce-rtx-3080-12gb"},
        "5060 ti": {"nvidia-geforce-rtx-5060-ti-8gb", "nvidia-geforce-rtx-5060-ti-16gb"},
        "4060 ti": {"nvidia-geforce-rtx-4060-ti-8gb", "nvidia-geforce-rtx-4060-ti-16gb"},
        "h100": {"nvidia-h100-sxm5-80gb", "nvidia-h100-pcie-80gb", "nvidia-h100-nvl-94gb"},
        "m3 max": {"apple-m3-max-30c", "apple-m3-max-40c"},
        "a100": {f"nvidia-a100-{form}-{size}gb" for form in ("pcie", "sxm4") for size in (40, 80)},
        "v100": {f"nvidia-v100-{form}-{size}gb" for form in ("pcie", "sxm2") for size in (16, 32)},
        "7600": {"amd-radeon-rx-7600", "amd-ryzen-5-7600"},
    }.items(),
)
def test_what_people_type_names_one_device_or_all_that_it_fits(name: str, expected: set[str]) -> None:
    assert {f.stem for f in FILES if key_of(name) in map(key_of, device(f.stem).aliases)} == expected


def test_bandwidth_is_bus_times_rate(entry: HardwareSpec) -> None:
    memory = entry.memory
    if memory.bus_bits and memory.data_rate_gt_s:
        product = memory.bus_bits / 8 * memory.data_rate_gt_s
        assert product == pytest.approx(memory.bandwidth_gb_s.value, rel=0.03)


def test_usable_memory_is_most_of_the_memory(entry: HardwareSpec) -> None:
    if entry.kind == "cpu":
        assert entry.memory.unified and entry.memory.usable_gib is None
    if entry.kind == "gpu" and entry.architecture not in ("rubin", "cdna5"):
        assert entry.memory.usable_gib is not None
        assert 0.9 < entry.memory.usable_gib.value / entry.memory.capacity_gib.value < 1
    if entry.kind in ("soc", "apu"):
        assert entry.memory.unified and 0.4 < entry.memory.usable_fraction.value < 1


def test_ratios_of_the_peaks_are_plausible(entry: HardwareSpec) -> None:
    peaks = entry.peaks
    half = peaks.get("fp16.fp32") or peaks.get("bf16.fp32")
    if half is not None and "int8.int32" in peaks:
        assert peaks["int8.int32"] <= 4.1 * half
    if half is not None and "tf32.fp32" in peaks:
        assert peaks["tf32.fp32"] <= 1.01 * half
    if "fp16.fp32" in peaks and "fp16.fp16" in peaks:
        assert 0.99 <= peaks["fp16.fp16"] / peaks["fp16.fp32"] <= 2.02
    for wide, narrow in pairwise(("fp64.fp64", "fp32.fp32", "fp16.fp32", "fp8.fp32", "fp4.fp32.block")):
        if wide in peaks and narrow in peaks:
            assert peaks[wide] <= 1.01 * peaks[narrow]
    if "int4.int32" in peaks:
        assert 0.99 <= peaks["int4.int32"] / peaks["int8.int32"] <= 2.02


def test_general_arithmetic_is_no_matrix_arithmetic(entry: HardwareSpec) -> None:
    if entry.kind != "accelerator":
        assert {peak.unit for peak in entry.peak_list if peak.precision in ("fp32", "fp64")} <= {"vector"}
    if any(peak.unit == "matrix" for peak in entry.peak_list) and entry.vendor in ("nvidia", "amd"):
        assert {peak.unit for peak in entry.peak_list if peak.precision == "fp16"} == {"matrix"}


def test_the_ridge_point_of_the_fastest_peak_is_plausible(entry: HardwareSpec) -> None:
    ridge = max(entry.peaks.values()) / entry.memory_bandwidth_bytes_per_s
    lowest = 0.5 if entry.memory.type == SRAM_ONLY else 2
    highest = 4000 if entry.id == "nvidia-jetson-thor-t5000" else 3000  # its FP4 units meet LPDDR5X
    assert lowest < ridge < highest


def test_the_clock_headroom_is_plausible(entry: HardwareSpec) -> None:
    if entry.kind == "cpu":  # base clocks of processors rated for little power are far below what they boost to
        limit = 4.0 if entry.tdp_w is not None and entry.tdp_w <= 35 else 2.5
    else:
        limit = 1.9 if entry.id.endswith("-laptop") else 1.5
    assert 1 <= entry.clock_headroom <= limit


# --------------------------------------------------------------------------------------------------------------------
# Published figures. Peaks in TFLOPS, memory bandwidth in GB/s.

PUBLISHED = {
    # NVIDIA Ada GPU Architecture whitepaper, appendix
    "nvidia-geforce-rtx-4090": (
        1008,
        {
            "fp16.fp32": 165.2,
            "fp16.fp16": 330.3,
            "fp8.fp32": 330.3,
            "fp8.fp16": 660.6,
            "int8.int32": 660.6,
            "fp32.fp32": 82.6,
        },
    ),
    # NVIDIA Ampere GA102 GPU Architecture whitepaper
    "nvidia-geforce-rtx-3090": (936, {"fp16.fp32": 71, "fp16.fp16": 142, "tf32.fp32": 35.6, "int8.int32": 284}),
    "nvidia-geforce-rtx-3080-10gb": (760, {"fp16.fp32": 59.5, "fp16.fp16": 119, "int8.int32": 238}),
    # NVIDIA Turing GPU Architecture whitepaper, reference clocks
    "nvidia-geforce-rtx-2080-ti": (616, {"fp16.fp32": 53.8, "fp16.fp16": 107.6, "int8.int32": 215.2}),
    # NVIDIA RTX Blackwell GPU Architecture whitepaper
    "nvidia-geforce-rtx-5090": (
        1792,
        {"fp16.fp32": 209.5, "fp16.fp16": 419, "fp8.fp32": 419, "fp4.fp32.block": 1676, "int8.int32": 838},
    ),
    # H100 datasheet: half of the printed figures, which count sparsity
    "nvidia-h100-sxm5-80gb": (3350, {"fp16.fp32": 989.4, "fp8.fp32": 1979, "fp32.fp32": 67, "fp64.fp64": 34}),
    "nvidia-h100-pcie-80gb": (2000, {"fp16.fp32": 756, "fp8.fp32": 1513, "fp32.fp32": 51}),
    # H200 datasheet
    "nvidia-h200-sxm-141gb": (4800, {"fp16.fp32": 989.4, "fp8.fp32": 1979}),
    # DGX B200 datasheet: a sixteenth of the printed figures (eight GPUs, sparsity)
    "nvidia-b200-sxm-180gb": (8000, {"fp16.fp32": 2250, "fp8.fp32": 4500, "fp4.fp32.block": 9000}),
    # A100 datasheet
    "nvidia-a100-sxm4-80gb": (2039, {"fp16.fp32": 312, "tf32.fp32": 156, "int8.int32": 624, "fp32.fp32": 19.5}),
    "nvidia-a100-pcie-40gb": (1555, {"bf16.fp32": 312, "fp64.fp64": 9.7}),
    # V100, T4, A10, A40, L4, L40S and P40 datasheets
    "nvidia-v100-sxm2-16gb": (900, {"fp16.fp32": 125, "fp32.fp32": 15.7, "fp64.fp64": 7.8}),
    "nvidia-t4": (320, {"fp16.fp32": 65, "int8.int32": 130, "int4.int32": 260}),
    "nvidia-a10": (600, {"fp16.fp32": 125, "int8.int32": 250, "fp32.fp32": 31.2}),
    "nvidia-a40": (696, {"fp16.fp32": 149.7, "int8.int32": 299.3}),
    "nvidia-l4": (300, {"fp16.fp32": 121, "fp8.fp32": 242}),
    "nvidia-l40s": (864, {"fp16.fp32": 362, "fp8.fp32": 733}),
    "nvidia-tesla-p40": (346, {"int8.int32": 47, "fp32.fp32": 11.76}),
    # AMD Instinct datasheets
    "amd-instinct-mi300x": (5325, {"fp16.fp32": 1307.4, "fp8.fp32": 2614.9, "tf32.fp32": 653.7, "fp32.fp32": 163.4}),
    "amd-instinct-mi325x": (6000, {"fp16.fp32": 1307.4, "fp8.fp32": 2614.9}),
    "amd-instinct-mi355x": (8000, {"fp16.fp32": 2516.6, "fp8.fp32": 5033.2, "fp4.fp32.block": 10066}),
    "amd-instinct-mi250x": (3277, {"fp16.fp32": 383, "int8.int32": 383, "fp32.fp32": 47.9}),
    # AMD Radeon RX 7900 XTX product page: 123 TFLOPS of half precision
    "amd-radeon-rx-7900-xtx": (960, {"fp16.fp32": 123, "fp32.fp32": 61.4}),
    # lhl/strix-halo-testing
    "amd-ryzen-ai-max-plus-395-8060s": (256, {"fp16.fp32": 59.4}),
    # Apple: 512 bit of LPDDR5-6400, printed as 400 GB/s; and 128 FP32 lanes a core
    "apple-m3-max-40c": (409.6, {"fp16.fp32": 14.1, "fp32.fp32": 14.1}),
    "apple-m1-max-32c": (409.6, {"fp32.fp32": 10.6}),  # Apple prints 10.4 TFLOPS
    # lhl/intel-inference: 233 INT8 TOPS in Intel ARK
    "intel-arc-b580": (456, {"int8.int32": 233}),
    # Intel Gaudi 3 at the clock that shipped, stas00/ml-engineering
    "intel-gaudi3-hl325l": (3700, {"bf16.fp32": 1677, "fp8.fp32": 1677}),
    # Cloud TPU documentation
    "google-tpu-v6e": (1640, {"bf16.fp32": 918, "int8.int32": 1836}),
    # AWS Neuron documentation
    "aws-trainium2": (2900, {"bf16.fp32": 667, "fp8.fp32": 1299}),
    # FluidX3D: 461 GB/s a socket; two 256-bit FMA pipes a core at 2.4 GHz
    "amd-epyc-9654": (460.8, {"fp32.fp32": 7.37}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures(name: str) -> None:
    bandwidth, peaks = PUBLISHED[name]
    entry = device(name)
    assert entry.memory.bandwidth_gb_s.value == pytest.approx(bandwidth, rel=2e-3)
    for key, tflops in peaks.items():
        assert entry.peak(key) / units.TERA == pytest.approx(tflops, rel=1e-2 if tflops < 150 else 5e-3), key


SPARSE = {  # what the datasheets print first, counting the zeros of 2:4 sparsity as work
    "nvidia-h100-sxm5-80gb": {"fp16.fp32": 1979, "fp8.fp32": 3958, "tf32.fp32": 989},
    "nvidia-h200-sxm-141gb": {"fp16.fp32": 1979, "fp8.fp32": 3958},
    "nvidia-a100-sxm4-80gb": {"fp16.fp32": 624, "int8.int32": 1248},
    "nvidia-l40s": {"fp16.fp32": 733, "fp8.fp32": 1466},
    "nvidia-l4": {"fp16.fp32": 242, "fp8.fp32": 485},
    "nvidia-rtx-a6000": {"fp16.fp32": 309.7},
    "nvidia-rtx-6000-ada": {"fp8.fp32": 1457},
    "nvidia-geforce-rtx-4090": {"fp16.fp32": 330.4, "int8.int32": 1321},
    "nvidia-geforce-rtx-5090": {"fp4.fp32.block": 3352},
    "nvidia-b200-sxm-180gb": {"fp4.fp32.block": 18000, "fp8.fp32": 9000},
    "nvidia-dgx-spark-gb10": {"fp4.fp32.block": 1000},
    "nvidia-jetson-thor-t5000": {"fp4.fp32.block": 2070},
    "amd-instinct-mi300x": {"fp16.fp32": 2614.9, "fp8.fp32": 5229.8},
    "amd-instinct-mi355x": {"fp8.fp32": 10066},
    "aws-trainium2": {"fp8.fp32": 2563},
}


@pytest.mark.parametrize("name", SPARSE)
def test_no_peak_counts_sparsity(name: str) -> None:
    for key, tflops in SPARSE[name].items():
        assert device(name).peak(key) < 0.6 * tflops * units.TERA, key


def test_disputed_values_keep_the_alternative() -> None:
    def others(name: str) -> list[float]:
        return [alternative.value for alternative in device(name).memory.bandwidth_gb_s.alternatives]

    assert others("nvidia-b200-sxm-180gb") == [7700]
    assert others("nvidia-rtx-pro-6000-blackwell-server") == [1597]
    assert others("nvidia-dgx-spark-gb10") == [301]
    assert others("intel-arc-a770-16gb") == [512]
    notes = {peak.key: peak.note for peak in device("nvidia-dgx-spark-gb10").peak_list}
    assert "62.5" in notes["bf16.fp32"]


def test_a_power_limit_slows_the_peaks_and_neither_bandwidth_nor_ideal() -> None:
    entry = device("nvidia-geforce-rtx-3090")
    assert entry.peaks
    held = entry.with_power_limit(245)
    share = (245 / 350) ** 0.5
    assert held.peak("fp16.fp32") == pytest.approx(share * entry.peak("fp16.fp32"))
    for key in entry.peaks:
        ideal = entry.peak(key) * entry.clock_headroom
        assert held.peak(key) * held.clock_headroom == pytest.approx(ideal)
    assert held.memory == entry.memory
    assert held.tdp_w == 245
    assert set(cited_sources(held)) <= set(held.sources)
    assert entry.with_power_limit(400) is entry
    for watts in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest):
            entry.with_power_limit(watts)
    with pytest.raises(MissingSpec, match="rated power and clock"):
        device("google-tpu-v6e").with_power_limit(100)


def test_power_ranges_hold_the_rated_power_and_cite_what_others_can_find(entry: HardwareSpec) -> None:
    if entry.power_range_w is None:
        return
    low, high = entry.power_range_w
    assert low < high
    assert entry.tdp_w is not None
    assert low <= entry.tdp_w <= high
    assert entry.power is not None and entry.power.range_w is not None
    source = entry.sources[entry.power.range_w.source]
    assert source.publisher or source.url
    if low < entry.tdp_w:
        assert entry.with_power_limit(low).power_range_w is None


def test_the_known_power_ranges() -> None:
    assert device("amd-ryzen-ai-max-plus-395-8060s").power_range_w == (45, 120)
    assert device("nvidia-geforce-rtx-4090-laptop").power_range_w == (80, 150)
    assert device("nvidia-b300-sxm-288gb").power_range_w == (1000, 1400)
    assert device("nvidia-geforce-rtx-4090").power_range_w is None
    assert all(device(file.stem).power_range_w for file in FILES if file.stem.endswith("-laptop"))


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [(130, 150, "not in range_w, 130 to 150"), (60, 100, "not in range_w"), (150, 80, "not in range_w"),
     (120, 120, "no range")],
)  # fmt: skip
def test_a_power_range_must_hold_the_rated_power(low: float, high: float, message: str) -> None:
    values = device("nvidia-geforce-rtx-4090-laptop").model_dump(mode="json", by_alias=True, exclude_none=True)
    values["power"]["range_w"] |= {"min": low, "max": high}
    with pytest.raises(ValidationError, match=message):
        HardwareSpec.model_validate(values)


def test_an_asked_amount_of_memory_cites_a_listed_source() -> None:
    entry = device("apple-m3-max-40c").with_capacity(64 * 2**30)
    assert entry.usable_bytes == pytest.approx(48 * 2**30, rel=0.2)
    assert set(cited_sources(entry)) <= set(entry.sources)
    values = entry.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert HardwareSpec.model_validate(values) == entry


# --------------------------------------------------------------------------------------------------------------------
# Derived by hand: units x clock [GHz] x operations a clock, and bus [bit] x data rate [GT/s].

BY_HAND = {
    # 128 SM x 2.52 x 512 = 165.15; 384 / 8 x 21 = 1008
    "nvidia-geforce-rtx-4090": (128, 2.52, 512, "fp16.fp32", 384, 21),
    # 82 SM x 1.695 x 512 = 71.16; 384 / 8 x 19.5 = 936
    "nvidia-geforce-rtx-3090": (82, 1.695, 512, "fp16.fp32", 384, 19.5),
    # 170 SM x 2.407 x 512 = 209.5; 512 / 8 x 28 = 1792
    "nvidia-geforce-rtx-5090": (170, 2.407, 512, "fp16.fp32", 512, 28),
    # 108 SM x 1.41 x 2048 = 311.9; 5120 / 8 x 3.186 = 2039
    "nvidia-a100-sxm4-80gb": (108, 1.41, 2048, "fp16.fp32", 5120, 3.186),
    # 132 SM x 1.83 x 4096 = 989.4; 5120 / 8 x 5.234 = 3350
    "nvidia-h100-sxm5-80gb": (132, 1.83, 4096, "fp16.fp32", 5120, 5.234),
    # 148 SM x 1.855 x 8192 = 2249; printed bandwidth is rounded to 8 TB/s
    "nvidia-b200-sxm-180gb": (148, 1.855, 8192, "bf16.fp32", 8192, 7.8125),
    # 40 SM x 1.59 x 1024 = 65.1; 256 / 8 x 10 = 320
    "nvidia-t4": (40, 1.59, 1024, "fp16.fp32", 256, 10),
    # 30 SM x 1.531 x 1024 = 47.0; 384 / 8 x 7.232 = 347.1
    "nvidia-tesla-p40": (30, 1.531, 1024, "int8.int32", 384, 7.232),
    # 304 CU x 2.1 x 2048 = 1307.4; 8192 / 8 x 5.2 = 5325
    "amd-instinct-mi300x": (304, 2.1, 2048, "fp16.fp32", 8192, 5.2),
    # 96 CU x 2.498 x 512 = 122.8; 384 / 8 x 20 = 960
    "amd-radeon-rx-7900-xtx": (96, 2.498, 512, "fp16.fp32", 384, 20),
    # 40 CU x 2.9 x 512 = 59.4; 256 / 8 x 8 = 256
    "amd-ryzen-ai-max-plus-395-8060s": (40, 2.9, 512, "fp16.fp32", 256, 8),
    # 20 Xe-cores x 2.67 x 2048 = 109.4 (233 INT8 TOPS at 2.85); 192 / 8 x 19 = 456
    "intel-arc-b580": (20, 2.85, 4096, "int8.int32", 192, 19),
    # 40 cores x 1.38 x 256 = 14.1; 512 / 8 x 6.4 = 409.6
    "apple-m3-max-40c": (40, 1.38, 256, "fp16.fp32", 512, 6.4),
    # 96 cores x 2.4 x 32 = 7.37; 12 channels of 64 bit / 8 x 4.8 = 460.8
    "amd-epyc-9654": (96, 2.4, 32, "fp32.fp32", 768, 4.8),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_figures_derived_by_hand(name: str) -> None:
    count, clock, operations, key, bus, rate = BY_HAND[name]
    entry = device(name)
    assert entry.compute_units == count
    assert entry.peak(key) == pytest.approx(count * clock * units.GIGA * operations, rel=5e-3)
    assert entry.memory_bandwidth_bytes_per_s == pytest.approx(bus / 8 * rate * units.GB, rel=5e-3)


# --------------------------------------------------------------------------------------------------------------------
# What has been reached in public measurements: no peak, at the highest clock, may lie below. TFLOPS and GB/s.

MATMUL_REACHED = {
    # stas00/ml-engineering, compute/accelerator/README.md: mamf-finder
    "nvidia-a100-sxm4-80gb": {"bf16.fp32": 271.2},
    "nvidia-a100-pcie-80gb": {"bf16.fp32": 252.9},
    "nvidia-h100-sxm5-80gb": {"bf16.fp32": 794.5, "fp8.fp32": 1402.6},
    "nvidia-h200-sxm-141gb": {"fp8.fp32": 1453.4},
    "nvidia-gh200-144gb": {"bf16.fp32": 828.6, "fp8.fp32": 1535},
    "nvidia-b200-sxm-180gb": {"bf16.fp32": 1745, "fp8.fp32": 3432.5},
    "nvidia-b300-sxm-288gb": {"bf16.fp32": 1769, "fp8.fp32": 3353.3},
    "nvidia-gb200-nvl72": {"bf16.fp32": 1822, "fp8.fp32": 3615.6},
    "amd-instinct-mi300x": {"bf16.fp32": 668.4},
    "amd-instinct-mi325x": {"bf16.fp32": 784.9},
    "amd-instinct-mi355x": {"bf16.fp32": 1565},
    "intel-gaudi2-hl225": {"bf16.fp32": 418.7, "fp8.fp32": 826.5},
    "intel-gaudi3-hl325l": {"bf16.fp32": 1243, "fp8.fp32": 1289.5},
    # QuantumDrizzy/BLACKWALL; the card clocks higher than it is advertised
    "nvidia-geforce-rtx-5060-ti-16gb": {
        **{"tf32.fp32": 23.8, "bf16.fp32": 47.0, "fp16.fp16": 87.9},
        **{"fp8.fp32.block": 184.6, "fp4.fp32.block": 341.9},
    },
    # torch.matmul, and instructions in main-horse.github.io/posts/5090-mm-perf. A program of that page reads 370.6 in
    # BF16 with FP32 accumulation, 1.8 times what the units hold: not believed.
    "nvidia-geforce-rtx-5090": {
        **{"bf16.fp32": 224.3, "tf32.fp32": 92.8, "fp8.fp32": 370, "fp8.fp16": 737.1, "fp8.fp32.block": 737.1},
        **{"fp4.fp32.block": 1474.2, "int8.int32": 745.7},
    },
    "nvidia-rtx-pro-6000-blackwell-max-q": {"fp16.fp32": 243},
    "nvidia-dgx-spark-gb10": {"fp4.fp32.block": 356, "fp8.fp32": 188},
    "nvidia-l20": {"fp16.fp32": 115},
    "nvidia-a10g": {"fp16.fp32": 67.1},
    # lhl/strix-halo-testing, lhl/intel-inference
    "amd-ryzen-ai-max-plus-395-8060s": {"bf16.fp32": 36.9},
    "intel-core-ultra-7-258v-arc-140v": {"bf16.fp32": 24.4, "fp16.fp32": 24.6, "int8.int32": 41.1, "fp32.fp32": 3.9},
    "apple-a19-5c": {"fp16.fp32": 7.5, "int8.int32": 13.5, "fp32.fp32": 1.88},
    "apple-m5-10c": {"fp32.fp32": 3.76},
    "amd-radeon-780m-phoenix": {"fp32.fp32": 4.7},
}
BANDWIDTH_REACHED = {
    # te42kyfo/gpu-benches, gpu-stream: the largest read. These come closest to what is printed
    **{"amd-radeon-rx-6900-xt": 505, "nvidia-l40": 844, "nvidia-a40": 679, "nvidia-h100-pcie-80gb": 1942},
    **{"nvidia-v100-pcie-16gb": 866, "amd-instinct-mi100": 1181, "nvidia-a100-sxm4-40gb": 1490},
    # ProjectPhysX/OpenCL-Benchmark
    "nvidia-titan-xp": 510.6,
    # ProjectPhysX/FluidX3D, table of single GPUs and CPUs; those of several sockets are not of one device
    **{"nvidia-geforce-rtx-4070-laptop": 237.6, "nvidia-rtx-2000-ada": 206.7, "nvidia-geforce-rtx-4060": 246.9},
    **{"nvidia-geforce-rtx-3060-ti": 404.5, "nvidia-geforce-rtx-3090": 829, "apple-m1-pro-16c": 184.2},
    **{
        "apple-m2-max-38c": 368,
        "apple-m1-max-24c": 362.5,
        "amd-instinct-mi355x": 4648.1,
        "amd-instinct-mi300x": 3498.7,
    },
}
CACHED = {"intel-arc-b580": 586.3}
"""ProjectPhysX/OpenCL-Benchmark reads more than bus x rate: presumably compressed or partly cached."""


@pytest.mark.parametrize("name", MATMUL_REACHED)
def test_no_peak_is_below_what_was_reached(name: str) -> None:
    entry = device(name)
    for key, tflops in MATMUL_REACHED[name].items():
        assert entry.peak(key) * entry.clock_headroom >= tflops * units.TERA, key
        assert tflops * units.TERA > 0.5 * entry.peak(key), key


def test_no_bandwidth_is_below_what_was_reached() -> None:
    for name, reached in BANDWIDTH_REACHED.items():
        assert reached * units.GB < device(name).memory_bandwidth_bytes_per_s, name
    for name, reached in CACHED.items():
        assert reached * units.GB > device(name).memory_bandwidth_bytes_per_s, name
