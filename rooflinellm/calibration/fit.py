"""Fit the factors of one group of kernels: a robust, partially pooled regression in logarithms.

The model of a sample's time is the engine's own,

    t = sum over operators of  n floor + max(B / (eta_m b), min((F + F_1 T_half) / (eta_c P), F / (v V)))

with each of eta_m, eta_c, v, T_half and the floor a product of factors by level (`specs.profile`). Every factor but the
bases is drawn towards 1 by a ridge penalty, the more the finer its level, so that what was measured little keeps
close to its family (partial pooling). Residuals are logarithms of predicted over measured time, under a loss that
grows linearly for outliers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix, diags, vstack

from rooflinellm import units
from rooflinellm.calibration.samples import Entry, Sample, log_times
from rooflinellm.specs.profile import Factors, Level

Part = Literal["memory", "compute", "few_tokens", "half_tokens", "floor_us"]
PARTS: tuple[Part, ...] = get_args(Part)

LEVELS: Mapping[Part, tuple[Level, ...]] = {
    "memory": ("kind", "encoding", "memory_type", "cores", "architecture", "device", "era"),
    "compute": ("kind", "path", "encoding", "cores", "architecture", "device", "era"),
    "few_tokens": ("encoding", "cores", "architecture"),
    "half_tokens": ("kind",),
    "floor_us": ("kind", "regime", "cores", "architecture", "device", "era"),
}
"""Levels that each part depends on, coarse to fine."""

PULL: Mapping[Level | Literal["base"], float] = {
    "base": 0.1,
    "kind": 1.0,
    "regime": 0.5,
    "path": 1.0,
    "encoding": 2.0,
    "memory_type": 1.5,
    "cores": 0.8,
    "architecture": 0.8,
    "device": 0.7,
    "era": 0.5,
}
"""Strength of the pull towards 1 by level, chosen by cross-validation over devices. [-]"""

START: Mapping[Part, float] = {"memory": 0.8, "compute": 0.4, "few_tokens": 1.0, "half_tokens": 48.0, "floor_us": 10.0}
"""Where the bases start, and what they are drawn to. In the units of `specs.profile.KernelGroup`."""

CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("iq*", ("iq", "tq")),
    ("*_k", ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k")),
    ("*f*16", ("f16", "bf16")),
)
"""Classes that encodings are pooled in: the pattern that a profile shows, and what begins so."""

OUTLIER = 0.1
"""Residual from which on the loss grows linearly. [-]"""
MAX_EVALUATIONS = 60
TOLERANCE = 1e-5
"""Relative change of cost or factors at which a fit has converged. [-]"""

Parameter = tuple[Part, Level | Literal["base"], str]


def encoding_class(encoding: str) -> str:
    """The pattern of the class that an encoding is pooled in; its own name where it stands alone."""
    return next((pattern for pattern, starts in CLASSES if encoding.startswith(starts)), encoding)


@dataclass
class GroupFit:
    """Fitted logarithms of factors, and the samples' evidence.

    Attributes
    ----------
    logs : dict of Parameter to float
        Logarithm of each factor; of a base, of its value. [-]
    evidence : dict of str to int
        Samples of current builds, by device. [-]
    """

    logs: dict[Parameter, float] = field(default_factory=dict)
    evidence: dict[str, int] = field(default_factory=dict)

    def factors(self, part: Part) -> Factors:
        """One part as a profile writes it: three digits, factors that are 1 to that precision left out."""
        by: dict[Level, dict[str, float]] = {}
        for level in LEVELS[part]:
            table = {
                name: _round(np.exp(log))
                for (its_part, its_level, name), log in sorted(self.logs.items())
                if its_part == part and its_level == level
            }
            table = {name: factor for name, factor in table.items() if factor != 1}
            if table:
                by[level] = table
        base = self.logs.get((part, "base", ""), float(np.log(START[part])))
        return Factors(base=_round(np.exp(base)), by=by)


def _round(value: Any) -> float:
    return float(f"{float(value):.3g}")


def _names(entry: Entry, part: Part) -> list[Parameter]:
    parameters: list[Parameter] = [(part, "base", "")]
    for level in LEVELS[part]:
        name = entry.names.get(level)
        if name is not None:
            parameters.append((part, level, encoding_class(name) if level == "encoding" else name))
    return parameters


class _Design:
    """Samples as arrays, and which factors each entry multiplies."""

    def __init__(self, samples: Sequence[Sample], index: dict[Parameter, int], *, grow: bool) -> None:
        entries = [(number, entry) for number, sample in enumerate(samples) for entry in sample.entries]
        size = len(entries)
        self.launches = np.array([entry.launches for _, entry in entries]) * units.MICRO
        self.memory = np.array([entry.memory_s for _, entry in entries])
        self.tile = np.array([entry.tile_s for _, entry in entries])
        self.tile_fixed = np.array([entry.tile_fixed_s for _, entry in entries])
        self.vector = np.array([entry.vector_s for _, entry in entries])
        self.offsets = {part: np.zeros(size) for part in PARTS}
        places: dict[Part, tuple[list[int], list[int]]] = {part: ([], []) for part in PARTS}
        for row, (_, entry) in enumerate(entries):
            for part in PARTS:
                for parameter in _names(entry, part):
                    column = index.setdefault(parameter, len(index)) if grow else index.get(parameter)
                    if column is not None:
                        places[part][0].append(row)
                        places[part][1].append(column)
                    elif parameter[1] == "base":
                        self.offsets[part][row] = np.log(START[part])
        width = len(index)
        self.select = {
            part: csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(size, width))
            for part, (rows, columns) in places.items()
        }
        numbers = [number for number, _ in entries]
        self.sum = csr_matrix((np.ones(size), (numbers, range(size))), shape=(len(samples), size))

    def evaluate(self, x: Any) -> tuple[Any, dict[Part, Any]]:
        """Predicted times of the samples, and what each entry's time grows by with the logarithm of each part. [s]"""
        log = {part: self.select[part] @ x + self.offsets[part] for part in PARTS}
        memory_share, compute_share = np.minimum(log["memory"], 0), np.minimum(log["compute"], 0)
        memory = self.memory * np.exp(-memory_share)
        fixed = self.tile_fixed * np.exp(log["half_tokens"])
        full = self.tile * np.exp(-compute_share)
        tile = full + fixed * np.exp(-compute_share)
        few = self.vector * np.exp(-log["few_tokens"])
        vector = np.maximum(few, full)
        floor = self.launches * np.exp(log["floor_us"])
        by_vector = vector < tile
        compute = np.where(by_vector, vector, tile)
        by_memory = memory >= compute
        by_tile = ~by_memory & ~by_vector
        by_full = ~by_memory & by_vector & (full > few)
        slopes: dict[Part, Any] = {
            "memory": np.where(by_memory & (log["memory"] < 0), -memory, 0.0),
            "compute": np.where((by_tile | by_full) & (log["compute"] < 0), -compute, 0.0),
            "few_tokens": np.where(~by_memory & by_vector & ~by_full, -few, 0.0),
            "half_tokens": np.where(by_tile, fixed * np.exp(-compute_share), 0.0),
            "floor_us": floor,
        }
        return self.sum @ (floor + np.where(by_memory, memory, compute)), slopes

    def jacobian(self, slopes: Mapping[Part, Any]) -> Any:
        """Derivative of the samples' times by the logarithms of the factors. [s]"""
        return self.sum @ sum(diags(slopes[part]) @ self.select[part] for part in PARTS)


def weights(samples: Sequence[Sample]) -> Any:
    """Weights of samples, by device and phase: many results of one device count less each, n to the power -1/2."""
    counts = Counter((sample.device, sample.phase) for sample in samples)
    each = np.array([counts[sample.device, sample.phase] ** -0.25 for sample in samples])
    return each * np.sqrt(len(samples) / np.sum(each**2))


def fit_group(samples: Sequence[Sample], pull: Mapping[Level | Literal["base"], float] = PULL) -> GroupFit:
    """Fit one group of kernels.

    Parameters
    ----------
    samples : sequence of Sample
        Of one engine and backend.
    pull : mapping of level to float
        Strength of the pull towards 1. [-]

    Returns
    -------
    GroupFit
    """
    index: dict[Parameter, int] = {}
    design = _Design(samples, index, grow=True)
    target, weight = log_times(samples), weights(samples)
    strength = np.array([pull[level] for _, level, _ in index])
    start = np.array([np.log(START[part]) if level == "base" else 0.0 for part, level, _ in index])

    def residuals(x: Any) -> Any:
        times, _ = design.evaluate(x)
        return np.concatenate([weight * (np.log(times) - target), strength * (x - start)])

    def jacobian(x: Any) -> Any:
        times, slopes = design.evaluate(x)
        return vstack([diags(weight / times) @ design.jacobian(slopes), diags(strength)], format="csr")

    solution = least_squares(
        residuals,
        start,
        jacobian,
        loss="soft_l1",
        f_scale=OUTLIER,
        max_nfev=MAX_EVALUATIONS,
        tr_solver="lsmr",
        ftol=TOLERANCE,
        xtol=TOLERANCE,
    )
    logs = {parameter: float(solution.x[column]) for parameter, column in index.items()}
    # What only builds of an older era have shown is no evidence of how a current one does.
    names = [sample.entries[0].names for sample in samples]
    current = Counter(name["device"] for name in names if "era" not in name)
    return GroupFit(logs, dict(sorted(current.items())))


def predict(fit: GroupFit, samples: Sequence[Sample]) -> Any:
    """Times that a fit expects; factors it has not seen are 1. [s]"""
    index = {parameter: column for column, parameter in enumerate(fit.logs)}
    times, _ = _Design(samples, index, grow=False).evaluate(np.array(list(fit.logs.values())))
    return np.maximum(times, [sample.ideal_s for sample in samples])
