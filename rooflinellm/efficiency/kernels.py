"""What single kernels take: floor + max(bytes / (share b), FLOPs (1 + half / tokens) / (share P))."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rooflinellm import units
from rooflinellm._numeric import maximum
from rooflinellm.errors import MissingSpec
from rooflinellm.specs.curves import KernelCurve, KernelOf
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.profile import ProfileSpec


@dataclass(frozen=True, slots=True)
class Precision:
    """What operands of a precision take, and which arithmetic multiplies them.

    Attributes
    ----------
    weight_bytes, activation_bytes : float
        Of a weight (of a cached number, in attention) and of an activation, scales included. [byte]
    peaks : tuple of str
        Keys of the dense peaks that may be meant; the first that a device has counts.
    """

    weight_bytes: float
    activation_bytes: float
    peaks: tuple[str, ...]


PRECISIONS: Mapping[str, Precision] = {
    "bf16": Precision(2, 2, ("bf16.fp32", "fp16.fp32")),
    "fp16": Precision(2, 2, ("fp16.fp32",)),
    "fp8": Precision(1, 1, ("fp8.fp32",)),
    "fp8_block": Precision(1 + 4 / 128**2, 1 + 4 / 128, ("fp8.fp32",)),
    "nvfp4": Precision(0.5625, 0.5625, ("fp4.fp32.block",)),
    "mxfp4": Precision(0.53125, 1.03125, ("fp8.fp32",)),
    "mxfp4_weights": Precision(0.53125, 2, ("bf16.fp32",)),
    "int8": Precision(1, 1, ("int8.int32",)),
    "int8_weights": Precision(1, 2, ("fp16.fp32",)),
    "int4_weights": Precision(0.53125, 2, ("fp16.fp32",)),
    "fp8_cache": Precision(1, 2, ("bf16.fp32",)),
}
"""By name. `*_weights` are multiplied in 16 bits, `fp8_cache` is attention in 16 bits over a cache of 8."""


def peak_of(device: HardwareSpec, precision: str) -> float:
    """The dense peak that kernels of a precision are held against. [FLOP/s]

    Raises
    ------
    MissingSpec
        The device has none of them, or there is no such precision.
    """
    known = PRECISIONS.get(precision)
    if known is None:
        raise MissingSpec(f"no precision {precision!r:.40}; known: {', '.join(PRECISIONS)}", where="precision")
    key = next((key for key in known.peaks if key in device.peaks), known.peaks[0])
    return device.peak(key)


def curve_for(
    profiles: Sequence[ProfileSpec], of: KernelOf, precision: str, device: HardwareSpec, engine: str
) -> KernelCurve:
    """The curve of a kernel: of the device's generation, else of all that were measured in the precision.

    Parameters
    ----------
    profiles : sequence of ProfileSpec
        The profiles, the preferred one first.
    of : str
        What the kernel does.
    precision : str
        Of its operands.
    device : HardwareSpec
        The device.
    engine : str
        Id of the engine, or name of the library.

    Raises
    ------
    MissingSpec
        No profile says anything about such kernels.
    """
    for profile in profiles:
        for curve in profile.curves:
            if curve.of == of and precision in curve.precisions and _holds(curve, device, engine):
                return curve
    known = sorted({name for each in profiles for curve in each.curves if curve.of == of for name in curve.precisions})
    raise MissingSpec(f"no curve of {of} in {precision}; there are {', '.join(known) or 'none'}", where="field curves")


def _holds(curve: KernelCurve, device: HardwareSpec, engine: str) -> bool:
    pairs = (
        (curve.engines, engine),
        (curve.architectures, device.architecture),
        (curve.memories, device.memory.type.lower()),
    )
    return all(any(fnmatchcase(name, pattern) for pattern in patterns) for patterns, name in pairs)


def curve_s(curve: KernelCurve, memory_s: Any, compute_s: Any, tokens: Any) -> Any:
    """Time of a kernel.

        floor + max(t_m / eta_m, t_c (1 + T_half / T) / eta_c)

    Parameters
    ----------
    curve : KernelCurve
        Floor, shares eta and half-saturation T_half.
    memory_s, compute_s : array_like
        Bytes over the printed bandwidth, and FLOPs over the dense peak, t_m and t_c. [s]
    tokens : array_like
        Tokens of the pass (of an expert; new ones of a prompt), T. [token]

    Returns
    -------
    float or ndarray
        [s]
    """
    busy = maximum(memory_s / curve.bandwidth_share, compute_s * (1 + curve.half_tokens / tokens) / curve.peak_share)
    return curve.floor_us * units.MICRO + busy
