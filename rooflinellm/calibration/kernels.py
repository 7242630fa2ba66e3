"""Fit curves of single kernels and of collectives, by generation, and score them with each device left out.

Residuals are logarithms of predicted over measured time, under a loss that grows linearly for outliers; parameters are
drawn a little to where they start, so that what rows do not tell stays a plain number.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from rooflinellm import units
from rooflinellm.calibration.fit import rounded
from rooflinellm.efficiency.collectives import passes
from rooflinellm.measurements.kernels import COLLECTIVES, KERNELS, KernelRow, expected_s, times_at_peak
from rooflinellm.specs.curves import CollectiveCurve, KernelCurve, KernelOf, Protocol, ProtocolName

SOURCE = "kernels"
"""Key of the one source of the fitted profile."""
OUTLIER = 0.15
"""Residual from which on the loss grows linearly. [-]"""
PULL = 0.1
"""Strength of the pull to where parameters start, in logarithms. [-]"""
LEAST_ROWS = 20
"""Rows below which a generation has no curve of its own. [-]"""
ALIKE = {"fp16": "bf16"}
"""Precisions whose kernels are fitted together: the other's name."""

KernelKey = tuple[str, str, str, str]
"""Operator, precision, architecture and memory."""
CollectiveKey = tuple[str, str, float, str]
"""Collective, kind of link, its generation, and library."""

# Floor [µs], share of the bandwidth, share of the peak, tokens at half of it.
STARTS: Mapping[KernelOf, tuple[float, float, float, float]] = {
    "gemm": (4.0, 0.8, 0.7, 48.0),
    "experts": (20.0, 0.75, 0.4, 24.0),
    "attention_decode": (12.0, 0.85, 0.5, 0.0),
    "latent_decode": (16.0, 0.8, 0.6, 0.0),
    "attention_prefill": (16.0, 0.8, 0.55, 600.0),
}
LOWEST, HIGHEST = (0.3, 0.05, 0.05, 0.1), (100.0, 1.0, 1.0, 5000.0)

# Latency [µs], what a device adds [µs], share of the link.
PROTOCOLS: Mapping[ProtocolName, tuple[float, float, float]] = {
    "one_shot": (4.0, 0.3, 0.6),
    "two_shot": (6.0, 0.5, 0.5),
    "ring": (20.0, 1.0, 0.7),
    "in_switch": (20.0, 0.3, 0.65),
    "low_latency": (8.0, 0.8, 0.3),
    "bulk": (20.0, 0.3, 0.65),
}
LEAST_LAW, MOST_LAW = (0.3, 0.001, 0.02), (200.0, 20.0, 1.0)
SPREAD = (1.0, 0.6, 1.7)
"""Factors on all starts, of which the best fit is kept: the quickest of some protocols has several optima. [-]"""
SWITCHES_ADD_FROM = 4.0
"""Generation of NVLink from which on switches add up (NVLink SHARP: third generation of NVSwitch). [-]"""

ENGINES: Mapping[str, tuple[str, ...]] = {
    "tensorrt-llm": ("tensorrt-llm",),
    "vllm": ("vllm", "sglang"),
    "nccl": ("*",),
    "oneccl": ("*",),
}
"""Engines that add up with a library; in order of precedence."""
PCIE_DEVICES: Mapping[str, tuple[str, ...]] = {"oneccl": ("intel-*",)}
"""Devices that curves over PCIe hold for; those that stand for all others are of one that reads another's memory over
it, as GeForce drivers do not let cards do."""
READ_EACH_OTHER = ("nvidia-[!g]*",)


def kernel_key(row: KernelRow) -> KernelKey:
    """What rows share a curve of one kind of kernel."""
    return (row.operator, ALIKE.get(row.precision, row.precision), *row.generation)


def collective_key(row: KernelRow) -> CollectiveKey:
    """What rows share a curve of a collective; all generations of PCIe have one."""
    link = row.link
    return row.operator, link.kind, 0.0 if link.kind == "pcie" else link.generation or 0.0, row.library


def _weights(rows: Sequence[KernelRow]) -> Any:
    """Rows of a device and library count the less the more there are, n to the power -1/2."""
    counts = Counter((row.device.id, row.library) for row in rows)
    each = np.array([counts[row.device.id, row.library] ** -0.25 for row in rows])
    return each * math.sqrt(len(rows) / float(np.sum(each**2)))


def _solve(rows: Sequence[KernelRow], times: Callable[[Any], Any], starts: Sequence[Any], low: Any, high: Any) -> Any:
    """Logarithms of the parameters that fit best, from several starts."""
    target, weight = np.log([row.time_s for row in rows]), _weights(rows)
    low, high = np.log(low), np.log(high)
    best: Any = None
    for start in starts:
        first = np.clip(np.log(start), low + 1e-6, high - 1e-6)

        def residuals(x: Any, first: Any = first) -> Any:
            return np.concatenate([weight * (np.log(times(x)) - target), PULL * (x - first)])

        found = least_squares(residuals, first, loss="soft_l1", f_scale=OUTLIER, bounds=(low, high), max_nfev=200)
        if best is None or found.cost < best.cost:
            best = found
    return np.exp(best.x)


def fit_kernels(rows: Sequence[KernelRow], *, everywhere: bool = False, of_library: bool = False) -> KernelCurve:
    """Fit one curve to rows of one operator.

    Parameters
    ----------
    rows : sequence of KernelRow
        Of one operator and precision.
    everywhere : bool
        Let it hold for devices of any generation.
    of_library : bool
        Let it hold for the engine of the rows' library only.
    """
    operator: KernelOf = next(name for name in KERNELS if name == rows[0].operator)
    base = STARTS[operator]
    memory, compute, tokens = (np.array(each) for each in zip(*map(times_at_peak, rows), strict=True))
    size = 4 if base[3] else 3

    def curve(p: Any) -> KernelCurve:
        names = {"bf16", "fp16"} if ALIKE.get(rows[0].precision, rows[0].precision) == "bf16" else {rows[0].precision}
        return KernelCurve(
            of=operator,
            precisions=tuple(sorted(names)),
            engines=(rows[0].library,) if of_library else ("*",),
            architectures=("*",) if everywhere else tuple(sorted({row.device.architecture for row in rows})),
            memories=("*",) if everywhere else (rows[0].generation[1],),
            floor_us=rounded(p[0]),
            bandwidth_share=rounded(p[1]),
            peak_share=rounded(p[2]),
            half_tokens=rounded(p[3]) if size == 4 else 0.0,
            evidence=_evidence(rows),
            source=SOURCE,
        )

    def times(x: Any) -> Any:
        p = np.exp(x)
        half = p[3] if size == 4 else 0.0
        return p[0] * units.MICRO + np.maximum(memory / p[1], compute * (1 + half / tokens) / p[2])

    return curve(_solve(rows, times, [base[:size]], LOWEST[:size], HIGHEST[:size]))


def protocols_of(row: KernelRow) -> tuple[ProtocolName, ...]:
    """The protocols that may carry a collective over a link."""
    if row.operator != "sum":
        return ("low_latency", "bulk")
    link = row.link
    in_switch: tuple[ProtocolName, ...] = ("in_switch",)
    return ("one_shot", "two_shot", "ring") + (
        in_switch if link.kind == "nvlink" and (link.generation or 0) >= SWITCHES_ADD_FROM else ()
    )


def fit_collective(rows: Sequence[KernelRow]) -> CollectiveCurve:
    """Fit one curve to rows of one collective over links of one generation, of one library."""
    first = rows[0]
    names = protocols_of(first)
    ranks = np.array([row.shape["ranks"] for row in rows])
    message = np.array([row.message_s for row in rows])
    counts = [passes(name, ranks) for name in names]
    start = np.array([PROTOCOLS[name] for name in names])

    def times(x: Any) -> Any:
        p = np.exp(x).reshape(-1, 3)
        each = [(a + h * (ranks - 1)) * units.MICRO + f * message / s for f, (a, h, s) in zip(counts, p, strict=True)]
        return np.min(each, axis=0)

    spread = [(start * (factor, factor, 1)).ravel() for factor in SPREAD]
    found = _solve(rows, times, spread, LEAST_LAW * len(names), MOST_LAW * len(names)).reshape(-1, 3)
    link = first.link
    return CollectiveCurve(
        of=next(name for name in COLLECTIVES if name == first.operator),
        over=link.kind,
        generation=None if link.kind == "pcie" else link.generation,
        engines=ENGINES[first.library] if first.operator == "sum" else ("*",),
        devices=PCIE_DEVICES.get(first.library, READ_EACH_OTHER) if link.kind == "pcie" else ("*",),
        protocols={
            name: Protocol(latency_us=rounded(a), hop_us=rounded(h), share=rounded(s))
            for name, (a, h, s) in zip(names, found, strict=True)
        },
        evidence=_evidence(rows),
        source=SOURCE,
    )


def _evidence(rows: Sequence[KernelRow]) -> dict[str, int]:
    return dict(sorted(Counter(row.device.id for row in rows).items()))


@dataclass(frozen=True, slots=True)
class Fitted:
    """Fitted curves, and the time of each row by a fit that has not seen its device.

    Attributes
    ----------
    collectives : tuple of CollectiveCurve
        In order of precedence.
    curves : tuple of KernelCurve
        Likewise: of a library, of a generation, of all.
    unseen_s : ndarray
        Predicted times; NaN where no other device was measured. [s]
    """

    collectives: tuple[CollectiveCurve, ...]
    curves: tuple[KernelCurve, ...]
    unseen_s: Any


Groups = dict[Any, list[KernelRow]]


def fit(rows: Sequence[KernelRow], progress: Callable[[int, int], None] = lambda _done, _of: None) -> Fitted:
    """Fit all curves, and predict every row by those that have not seen its device.

    A device that is left out is predicted by the others of its generation. One that is alone in it is predicted by the
    nearest generation of the kind of link, of collectives, and by all other generations, of kernels.
    """
    together, kernels = _grouped([row for row in rows if row.is_collective], collective_key), _kernel_groups(rows)
    places = {id(row): place for place, row in enumerate(rows)}
    unseen = np.full(len(rows), np.nan)
    finest = _grouped([row for row in rows if not row.is_collective], _finest_key)
    steps = len(together) + len(finest) + sum(map(len, kernels))
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(done, steps)

    def leave_out(group: Sequence[KernelRow], others: Callable[[str], Sequence[KernelRow]], build: Any) -> None:
        for device in sorted({row.device.id for row in group}):
            if left := others(device):
                curve = build(left)
                for row in group:
                    if row.device.id == device:
                        unseen[places[id(row)]] = expected_s(row, curve)
        step()

    for key, group in together.items():
        leave_out(group, lambda device, key=key: _near(together, key, device), fit_collective)  # type: ignore[misc]
    for key, group in finest.items():
        leave_out(group, lambda device, key=key: _wider(rows, key, device), fit_kernels)  # type: ignore[misc]
    curves = []
    for level, groups in enumerate(kernels):
        for _, group in sorted(groups.items()):
            curves.append(fit_kernels(group, everywhere=level == len(kernels) - 1, of_library=level == 0))
            step()
    order = list(ENGINES)
    ranked = sorted(sorted(together, key=str), key=lambda key: order.index(key[3]))
    return Fitted(tuple(fit_collective(together[key]) for key in ranked), tuple(curves), unseen)


def _grouped(rows: Sequence[KernelRow], key: Callable[[KernelRow], Any]) -> Groups:
    groups: Groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)


def _finest_key(row: KernelRow) -> tuple[str, ...]:
    """What a kernel's curve is of: products are alike in all libraries, attention and experts are not."""
    return (*kernel_key(row), "" if row.operator == "gemm" else row.library)


def _kernel_groups(rows: Sequence[KernelRow]) -> tuple[Groups, Groups, Groups]:
    """Rows of kernels by library, by generation and all: those that are enough for a curve of their own."""
    single = [row for row in rows if not row.is_collective]
    generations = _grouped(single, kernel_key)
    mixed = {key for key, group in generations.items() if len({row.library for row in group}) > 1}
    finest = _grouped([row for row in single if kernel_key(row) in mixed and row.operator != "gemm"], _finest_key)
    enough = [{key: group for key, group in each.items() if len(group) >= LEAST_ROWS} for each in (finest, generations)]
    return enough[0], enough[1], _grouped(single, lambda row: kernel_key(row)[:2])


def _near(groups: Groups, key: CollectiveKey, device: str) -> Sequence[KernelRow]:
    """Rows of other devices: of the link's generation, else of the nearest of its kind."""
    of, kind, generation, library = key
    alike = [each for each in groups if each[0] == of and each[1] == kind and each[3] == library]
    for each in sorted(alike, key=lambda each: (abs(each[2] - generation), each[2])):
        if found := [row for row in groups[each] if row.device.id != device]:
            return found
    return ()


def _wider(rows: Sequence[KernelRow], key: tuple[str, ...], device: str) -> Sequence[KernelRow]:
    """Rows of other devices: of the generation and library, else of the library, else of any, in the precision."""
    others = [row for row in rows if row.device.id != device and not row.is_collective]
    others = [row for row in others if kernel_key(row)[:2] == key[:2]]
    same = [row for row in others if _finest_key(row) == key]
    return same or [row for row in others if _finest_key(row)[4] == key[4]] or others
