"""What a unit of each architecture computes in a clock: the table behind the check of peaks.

Operations per unit (SM, CU, core) and clock, dense, a multiply-add counted as two. Matrix rates of NVIDIA, AMD and
Intel GPUs were collected apart from the device files and checked against published totals. The others (vector units,
CPUs, Apple) were set with the device files at hand: for those the check finds slips, and no error that all share.
The documents named describe the design; not each has been read for each number.
"""

from __future__ import annotations

from typing import NamedTuple


class Rates(NamedTuple):
    """One design of an architecture.

    Attributes
    ----------
    name : str
        Which design, "" where there is one.
    source : str
        Where the rates come from.
    operations : dict of str to float
        Operations per unit and clock by peak, as ``fp16.fp32``.
    """

    name: str
    source: str
    operations: dict[str, float]


def _matrix(half: float, **others: float) -> dict[str, float]:
    """FP16 and BF16 with FP32 accumulation at the same rate, and others, with ``_`` for the dot."""
    return {"fp16.fp32": half, "bf16.fp32": half} | {name.replace("_", "."): rate for name, rate in others.items()}


def _lanes(lanes: float, **others: float) -> dict[str, float]:
    """FP32 of so many lanes, and others."""
    return {"fp32.fp32": 2 * lanes} | {name.replace("_", "."): rate for name, rate in others.items()}


_AMPERE = "NVIDIA Ampere GA102 GPU Architecture whitepaper"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix"
_BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture whitepaper; RTX 5060 Ti measured in QuantumDrizzy/BLACKWALL"
_ZEN = "AMD software optimization guides for the Zen family: two FMA pipes a core"
_GF = {"fp16_fp16": 1024, "tf32_fp32": 256, "int8_int32": 2048}
_PRO = {"fp16_fp16": 1024, "tf32_fp32": 512, "int8_int32": 2048}
_AVX2 = {"fp32.fp32": 32.0, "fp64.fp64": 16.0}
_AVX512 = {"fp32.fp32": 64.0, "fp64.fp64": 32.0}
_XMX = _matrix(2048, int8_int32=4096, int4_int32=8192) | _lanes(128)
_RDNA3 = _matrix(512, fp16_fp16=512, int8_int32=512, int4_int32=1024) | _lanes(128, fp64_fp64=8)
_APPLE = _lanes(128, fp16_fp32=256, fp16_fp16=256)
_AMX = _matrix(1024, int8_int32=2048) | _AVX512
_CORTEX = {"fp16.fp16": 32.0, "int8.int32": 64.0, "fp32.fp32": 16.0, "fp64.fp64": 8.0}
_NEOVERSE = {"fp16.fp16": 64.0, "bf16.fp32": 128.0, "int8.int32": 256.0, "fp32.fp32": 32.0, "fp64.fp64": 16.0}

RATES: dict[str, tuple[Rates, ...]] = {
    "kepler": (Rates("", "NVIDIA Kepler GK110 whitepaper", _lanes(192, fp64_fp64=128)),),
    "maxwell": (
        Rates("gm200", "NVIDIA GeForce GTX 980 whitepaper", _lanes(128, fp64_fp64=8)),
        Rates("gm20b", "NVIDIA Tegra X1 whitepaper", _lanes(128, fp16_fp16=512, fp64_fp64=8)),
    ),
    "pascal": (
        Rates("gp100", "NVIDIA Tesla P100 whitepaper", _lanes(64, fp16_fp16=256, fp64_fp64=64)),
        Rates("gp102", "NVIDIA GeForce GTX 1080 whitepaper", _lanes(128, int8_int32=1024, fp64_fp64=8)),
    ),
    "volta": (
        Rates("gv100", "NVIDIA Tesla V100 GPU Architecture whitepaper",
              {"fp16.fp32": 1024.0, "fp16.fp16": 1024.0, "int8.int32": 512.0} | _lanes(64, fp64_fp64=64)),
        Rates("xavier", "NVIDIA Jetson AGX Xavier datasheet: 11 TFLOPS and 22 TOPS of the GPU",
              {"fp16.fp32": 1024.0, "int8.int32": 2048.0} | _lanes(64, fp64_fp64=64)),
    ),
    "turing": (
        Rates("geforce", "NVIDIA Turing GPU Architecture whitepaper",
              {"fp16.fp32": 512.0, "fp16.fp16": 1024.0, "int8.int32": 2048.0, "int4.int32": 4096.0}
              | _lanes(64, fp64_fp64=4)),
        Rates("quadro and tesla", "NVIDIA Turing GPU Architecture whitepaper; Quadro RTX 6000 Passive datasheet",
              {"fp16.fp32": 1024.0, "fp16.fp16": 1024.0, "int8.int32": 2048.0, "int4.int32": 4096.0}
              | _lanes(64, fp64_fp64=4)),
        Rates("gtx 16", "NVIDIA Turing GPU Architecture whitepaper",
              _lanes(64, fp16_fp16=256, int8_int32=512, fp64_fp64=4)),
    ),
    "ampere": (
        Rates("geforce", _AMPERE, _matrix(512, **_GF, int4_int32=4096) | _lanes(128, fp64_fp64=4)),
        Rates("professional", _AMPERE + "; A40 datasheet", _matrix(1024, **_PRO, int4_int32=4096)
              | _lanes(128, fp64_fp64=4)),
        Rates("ga100", "NVIDIA A100 Tensor Core GPU Architecture whitepaper",
              _matrix(2048, fp16_fp16=2048, tf32_fp32=1024, int8_int32=4096, int4_int32=8192)
              | _lanes(64, fp64_fp64=64)),
        Rates("orin", "NVIDIA Jetson AGX Orin technical brief",
              _matrix(2048, fp16_fp16=2048, tf32_fp32=1024, int8_int32=4096) | _lanes(128, fp64_fp64=4)),
    ),
    "ada": (
        Rates("geforce", _ADA, _matrix(512, **_GF, int4_int32=4096, fp8_fp32=1024, fp8_fp16=2048)
              | _lanes(128, fp64_fp64=4)),
        Rates("professional", _ADA + "; L40S datasheet",
              _matrix(1024, **_PRO, int4_int32=4096, fp8_fp32=2048) | _lanes(128, fp64_fp64=4)),
    ),
    "hopper": (
        Rates("", "NVIDIA H100 Tensor Core GPU Architecture whitepaper",
              _matrix(4096, fp16_fp16=4096, tf32_fp32=2048, fp8_fp32=8192, int8_int32=8192)
              | _lanes(128, fp64_fp64=128)),
    ),
    "blackwell": (
        Rates("geforce", _BLACKWELL,
              _matrix(512, **_GF, fp8_fp32=1024, fp8_fp16=2048, fp6_fp32=1024) | _lanes(128, fp64_fp64=4)
              | {"fp8.fp32.block": 2048.0, "fp4.fp32.block": 4096.0}),
        Rates("professional", _BLACKWELL + "; RTX PRO 6000 in NVIDIA aiconfigurator",
              _matrix(1024, **_PRO, fp8_fp32=2048, fp6_fp32=2048) | _lanes(128, fp64_fp64=4)
              | {"fp8.fp32.block": 2048.0, "fp4.fp32.block": 4096.0}),
        Rates("data center", "NVIDIA DGX B200 datasheet: 148 SM at 1.855 GHz",
              _matrix(8192, fp16_fp16=8192, tf32_fp32=4096, fp8_fp32=16384, fp6_fp32=16384, int8_int32=16384)
              | _lanes(128, fp64_fp64=128) | {"fp8.fp32.block": 16384.0, "fp4.fp32.block": 32768.0}),
    ),
    "blackwell-ultra": (
        Rates("", "NVIDIA DGX B300 datasheet: 148 SM at 1.855 GHz; INT8 and FP64 cut",
              _matrix(8192, fp16_fp16=8192, tf32_fp32=4096, fp8_fp32=16384, fp6_fp32=16384)
              | _lanes(128) | {"fp8.fp32.block": 16384.0, "fp4.fp32.block": 49152.0}),
    ),
    "gcn4": (Rates("", "AMD GCN3 instruction set", _lanes(64, fp16_fp16=128)),),
    "gcn5": (
        Rates("", "AMD Vega 7nm instruction set",
              _lanes(64, fp16_fp32=256, fp16_fp16=256, int8_int32=512, int4_int32=1024, fp64_fp64=64)),
        Rates("radeon", "AMD Vega 7nm instruction set; Radeon VII with FP64 at a quarter of FP32",
              _lanes(64, fp16_fp32=256, fp16_fp16=256, int8_int32=512, int4_int32=1024, fp64_fp64=32)),
        Rates("vega 10", "AMD Vega instruction set: packed FP16, no dot products",
              _lanes(64, fp16_fp16=256, fp64_fp64=8)),
    ),
    "cdna1": (
        Rates("", "AMD CDNA whitepaper",
              {"fp16.fp32": 1024.0, "bf16.fp32": 512.0, "int8.int32": 1024.0} | _lanes(64, fp64_fp64=64)),
    ),
    "cdna2": (Rates("", "AMD CDNA 2 whitepaper", _matrix(1024, int8_int32=1024) | _lanes(64, fp64_fp64=128)),),
    "cdna3": (
        Rates("", "AMD CDNA 3 whitepaper",
              _matrix(2048, tf32_fp32=1024, fp8_fp32=4096, int8_int32=4096) | _lanes(128, fp64_fp64=128)),
    ),
    "cdna4": (
        Rates("", "AMD CDNA 4 whitepaper",
              _matrix(4096, fp8_fp32=8192, fp6_fp32=16384, int8_int32=8192) | _lanes(128, fp64_fp64=128)
              | {"fp8.fp32.block": 8192.0, "fp4.fp32.block": 16384.0}),
    ),
    "rdna1": (Rates("", "AMD RDNA whitepaper", _lanes(64, fp16_fp16=256, fp64_fp64=8)),),
    "rdna2": (
        Rates("", "AMD RDNA 2 instruction set",
              _lanes(64, fp16_fp32=256, fp16_fp16=256, int8_int32=512, int4_int32=1024, fp64_fp64=8)),
    ),
    "rdna3": (Rates("", "AMD RDNA 3 instruction set; lhl/strix-halo-testing", _RDNA3),),
    "rdna3.5": (Rates("", "AMD RDNA 3.5 instruction set; lhl/strix-halo-testing", _RDNA3),),
    "rdna4": (
        Rates("", "AMD: 195 FP16 and 389 FP8 TFLOPS of the RX 9070 XT",
              _matrix(1024, fp16_fp16=1024, fp8_fp32=2048, int8_int32=2048, int4_int32=4096)
              | _lanes(128, fp64_fp64=8)),
    ),
    "zen2": (Rates("", _ZEN, _AVX2 | {"int8.int32": 64.0}),),
    "zen3": (Rates("", _ZEN, _AVX2 | {"int8.int32": 64.0}),),
    "zen4": (Rates("", _ZEN, _AVX2 | {"bf16.fp32": 64.0, "int8.int32": 128.0}),),
    "zen4c": (Rates("", _ZEN, _AVX2 | {"bf16.fp32": 64.0, "int8.int32": 128.0}),),
    "zen5": (Rates("", _ZEN, _AVX512 | {"bf16.fp32": 128.0, "int8.int32": 256.0}),),
    "zen5c": (Rates("", _ZEN, _AVX512 | {"bf16.fp32": 128.0, "int8.int32": 256.0}),),
    "xe-lp": (
        Rates("", "Intel oneAPI GPU optimization guide: operations of an execution unit",
              _lanes(8, fp16_fp16=32, int8_int32=64)),
    ),
    "xe-hpg": (Rates("", "lhl/intel-inference: 16 XMX an Xe-core", _XMX),),
    "xe2": (Rates("", "lhl/intel-inference: 8 wider XMX an Xe-core; Arc Pro B60 at 197 TOPS", _XMX),),
    "xe3": (Rates("", "Intel: as Xe2, 8 XMX an Xe-core", _XMX),),
    "xe-hpc": (
        Rates("", "Intel Data Center GPU Max Series technical overview",
              _matrix(4096, tf32_fp32=2048, int8_int32=8192) | _lanes(128, fp64_fp64=256)),
    ),
    "coffee-lake": (Rates("", "Intel optimization manual: two 256-bit FMA ports", _AVX2 | {"int8.int32": 64.0}),),
    "ice-lake": (Rates("", "Intel optimization manual: two 512-bit FMA ports", _AVX512 | {"int8.int32": 256.0}),),
    "sapphire-rapids": (Rates("", "Intel optimization manual: one AMX tile unit a core", _AMX),),
    "emerald-rapids": (Rates("", "Intel optimization manual: one AMX tile unit a core", _AMX),),
    "granite-rapids": (Rates("", "Intel optimization manual: one AMX tile unit a core", _AMX),),
    "apple7": (Rates("", "philipturner/metal-benchmarks", _APPLE),),
    "apple8": (Rates("", "philipturner/metal-benchmarks", _APPLE),),
    "apple9": (Rates("", "philipturner/metal-benchmarks", _APPLE),),
    "apple10": (
        Rates("", "Apple: a neural accelerator in each core",
              {"fp16.fp32": 1024.0, "fp16.fp16": 1024.0, "int8.int32": 2048.0} | _lanes(128)),
    ),
    "neoverse-n1": (Rates("", "Arm Neoverse N1 software optimization guide", _CORTEX),),
    "neoverse-v1": (Rates("", "Arm Neoverse V1 software optimization guide", _NEOVERSE),),
    "neoverse-v2": (Rates("", "Arm Neoverse V2 software optimization guide", _NEOVERSE),),
    "cortex-a72": (Rates("", "Arm Cortex-A72 software optimization guide", {"fp32.fp32": 8.0, "fp64.fp64": 4.0}),),
    "cortex-a76": (Rates("", "Arm Cortex-A76 software optimization guide", _CORTEX),),
    "cortex-a720": (Rates("", "Arm Cortex-A720 software optimization guide", _CORTEX | {"int8.int32": 128.0}),),
}  # fmt: skip
"""Designs by the architecture that device files name; the figures of others cannot be checked this way."""

LINK_GB_S: dict[tuple[str, float], float] = {
    ("nvlink", 1): 80, ("nvlink", 2): 150, ("nvlink", 3): 300, ("nvlink", 4): 450, ("nvlink", 5): 900,
    ("nvlink", 6): 1800,
}  # fmt: skip
"""The most that a device's links of a generation carry one way, half of what NVIDIA prints. [GB/s]"""
PCIE_GB_S: dict[float, float] = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""A lane of PCI Express one way, after line encoding. [GB/s]"""
