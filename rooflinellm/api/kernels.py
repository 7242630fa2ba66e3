"""Single kernels: how long one takes, and how far the curves are from measured ones."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rooflinellm import catalog
from rooflinellm._shown import one_line
from rooflinellm.api.arguments import name_of, one_of, path_of, positive
from rooflinellm.errors import InvalidRequest, MissingSpec
from rooflinellm.measurements.kernels import COLLECTIVES, KERNELS, KernelRow, curve_of, expected_s, read
from rooflinellm.render import Column, Table
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.profile import ProfileSpec

SHAPES: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "experts": ("tokens", "hidden", "width", "active", "experts", "tensor", "expert"),
    "attention_decode": ("batch", "heads", "kv_heads", "head_dim", "cached"),
    "latent_decode": ("batch", "heads", "latent", "rope", "cached"),
    "attention_prefill": ("batch", "heads", "kv_heads", "head_dim", "tokens"),
} | dict.fromkeys(COLLECTIVES, ("bytes", "ranks"))
"""What each operator's size is given by."""
ALONE = {"tensor": 1.0, "expert": 1.0}
"""What may be left out."""


@dataclass(frozen=True, slots=True)
class KernelScore:
    """Errors over measured kernels of one operator, device and class of size.

    Attributes
    ----------
    operator, device, size : str
        Which.
    rows : int
        Measured kernels. [-]
    mdape, p90 : float
        Median and 90th percentile of |predicted / measured - 1|. [-]
    """

    operator: str
    device: str
    size: str
    rows: int
    mdape: float
    p90: float

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class KernelScores:
    """How far curves are from measured kernels.

    Attributes
    ----------
    scores : tuple of KernelScore
        By operator, device and class of size.
    left_out : str or None
        ``device`` where each was predicted by a fit that has not seen its device.
    skipped : int
        Rows that no curve covers. [-]
    """

    scores: tuple[KernelScore, ...]
    left_out: str | None = None
    skipped: int = 0

    __repr__ = one_line

    @property
    def mdape(self) -> float:
        """Median of the medians by operator, device and size; NaN without any. [-]"""
        return statistics.median(each.mdape for each in self.scores) if self.scores else float("nan")

    def tables(self) -> list[Table]:
        """The errors as a table: sizes side by side."""
        by: dict[tuple[str, str], list[KernelScore]] = defaultdict(list)
        for score in self.scores:
            by[score.operator, score.device].append(score)
        columns = [Column("operator", "left"), Column("device", "left"), Column("rows")]
        columns += [Column(name, group=size) for size in ("small", "middle", "large") for name in ("MdAPE", "P90")]
        rows = []
        for (operator, device), scores in by.items():
            placed = {SIZES.index(each.size) % 3: each for each in scores}
            cells = (
                cell
                for place in range(3)
                for cell in (
                    (f"{placed[place].mdape:.1%}", f"{placed[place].p90:.0%}") if place in placed else ("–", "–")
                )
            )
            rows.append([operator, device, f"{sum(each.rows for each in scores):,}", *cells])
        within = sum(score.mdape <= 0.2 for score in self.scores)
        notes = [
            "small: messages below 256 KiB, passes of up to 16 tokens, prompts of up to 1,024, caches of up to 16 MB; "
            "large: above 8 MiB, 512 tokens, 4,096 tokens, 256 MB",
            f"{within} of {len(self.scores)} medians within 20 %",
        ]
        notes += [f"{self.skipped:,} rows without a curve"] if self.skipped else []
        how = ", each device left out" if self.left_out else ""
        return [Table(columns, rows, f"Predicted against measured kernels{how}", notes)]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"left_out": self.left_out, "skipped": self.skipped, "scores": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """A row a score."""
        return [asdict(score) for score in self.scores]


SIZES = ("small", "middle", "large", "decode", "middle", "prefill", "short", "middle", "long")


def scores_of(rows: Sequence[KernelRow], times_s: Iterable[float]) -> tuple[KernelScore, ...]:
    """Errors by operator, device and class of size; rows without a time (NaN) are left out."""
    errors: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row, time_s in zip(rows, times_s, strict=True):
        if time_s == time_s:
            errors[row.operator, row.device.id, row.size].append(abs(time_s / row.time_s - 1))
    order: list[str] = [*COLLECTIVES, *KERNELS]
    keys = sorted(errors, key=lambda key: (order.index(key[0]), key[1], SIZES.index(key[2]) % 3))
    return tuple(KernelScore(*key, len(errors[key]), statistics.median(errors[key]), _p90(errors[key])) for key in keys)


def _p90(values: Sequence[float]) -> float:
    return sorted(values)[int(0.9 * (len(values) - 1))]


def kernel_time(
    operator: str,
    hardware: str | HardwareSpec,
    *,
    precision: str = "bf16",
    library: str = "vllm",
    profile: str | os.PathLike[str] | ProfileSpec | None = None,
    **shape: float,
) -> float:
    """Time that one kernel is expected to take by the curves that were fitted to measured ones. [s]

    Parameters
    ----------
    operator : str
        ``gemm`` (m, n, k), ``attention_decode`` (batch, heads, kv_heads, head_dim, cached), ``latent_decode`` (batch,
        heads, latent, rope, cached), ``attention_prefill`` (batch, heads, kv_heads, head_dim, tokens), ``experts``
        (tokens, hidden, width, active, experts, and tensor and expert for their parallelism); of several devices
        ``sum``, ``gather``, ``scatter`` or ``exchange`` (bytes, ranks).
    hardware : str or HardwareSpec
        The device.
    precision : str
        Of the operands, as `rooflinellm.efficiency.kernels.PRECISIONS` names them.
    library : str
        Engine whose kernels and collectives are meant: ``vllm``, ``tensorrt-llm`` …; ``nccl`` for sums of none.
    profile : str, path or ProfileSpec, optional
        Whose curves; None is the one that comes with the package.
    **shape : float
        The size. [-], bytes in [byte]

    Raises
    ------
    InvalidRequest
        No such operator, or a size that is missing, unknown or not positive.
    MissingSpec
        No curve covers it, or the device lacks the arithmetic or a link.
    """
    needed = SHAPES[one_of("operator", operator, tuple(SHAPES))]
    name_of("precision", precision)
    name_of("library", library)
    given = {name: value for name, value in ALONE.items() if name in needed} | shape
    if set(given) != set(needed):
        listed = ", ".join(given) or "none"
        raise InvalidRequest(f"{operator} takes {', '.join(needed)}, each above 0; given: {listed}", where="shape")
    given = {name: positive(name, value) for name, value in given.items()}
    device = catalog.hardware(hardware)
    if operator in COLLECTIVES and not device.links:
        raise MissingSpec(f"{device.id} names no link", where=f"{device.id}, field links")
    row = KernelRow(operator, device, precision, library, given, 1.0, "")
    return expected_s(row, curve_of(catalog.profiles(catalog.KERNELS if profile is None else profile), row))


def validate_kernels(
    file: str | os.PathLike[str] | None = None,
    *,
    profile: str | os.PathLike[str] | ProfileSpec | None = None,
    leave_out: Literal["device"] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> KernelScores:
    """Predict measured kernels and collectives, and say how far off the predictions are.

    Parameters
    ----------
    file : path, optional
        A table with the columns of the one that comes with the package; None is that one.
    profile : str, path or ProfileSpec, optional
        Whose curves; None is the one that comes with the package, which was fitted to these rows.
    leave_out : {'device'}, optional
        Predict each row by a fit that has not seen its device: by the others of its generation, else by the nearest.
    progress : callable, optional
        Called with the steps that are done and all there are, while curves are fitted.

    Returns
    -------
    KernelScores

    Raises
    ------
    InvalidRequest
        Something else to leave out, or a profile beside it.
    UnreadableFile, InvalidSpec, UnknownName
        As in `rooflinellm.measurements.kernels.read`.
    """
    path = path_of("file", file)
    if leave_out is not None:
        one_of("leave_out", leave_out, ("device",))
        if profile is not None:
            raise InvalidRequest(
                "curves are fitted to what is not left out, so that none can be named", where="profile"
            )
    rows = list(read(path))
    if leave_out is not None:
        from rooflinellm.calibration.kernels import fit  # fitting needs scipy, plain validation does not

        fitted = fit(rows, progress or (lambda _done, _of: None))
        return KernelScores(
            scores_of(rows, fitted.unseen_s), leave_out, int((fitted.unseen_s != fitted.unseen_s).sum())
        )
    times = predicted_s(catalog.profiles(catalog.KERNELS if profile is None else profile), rows)
    return KernelScores(scores_of(rows, times), None, sum(time != time for time in times))


def predicted_s(profiles: Sequence[ProfileSpec], rows: Sequence[KernelRow]) -> list[float]:
    """Times of measured kernels by the curves of some profiles; NaN where they have none. [s]"""
    found: dict[tuple[str, str, str, str], Any] = {}
    times = []
    for row in rows:
        key = row.operator, row.device.id, row.precision, row.library
        if key not in found:
            try:
                found[key] = curve_of(profiles, row)
            except MissingSpec:
                found[key] = None
        times.append(float("nan") if found[key] is None else expected_s(row, found[key]))
    return times
