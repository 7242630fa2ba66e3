"""Fit the factors of one group of kernels: a robust, partially pooled regression in logarithms.

Every factor but the bases is drawn towards 1 by a ridge penalty, the more the finer its level, so that what was
measured little keeps close to its family (partial pooling). Residuals are logarithms of predicted over measured time,
under a loss that grows linearly for outliers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix, diags, vstack

from rooflinellm.calibration.design import LEVELS, START, Design, Parameter, Part
from rooflinellm.calibration.samples import Sample, log_times
from rooflinellm.specs.profile import Factors, KernelGroup, Level

PULL: Mapping[Level | Literal["base"], float] = {
    "base": 0.1,
    "kind": 1.5,
    "regime": 0.5,
    "path": 1.5,
    "encoding": 2.2,
    "memory_type": 1.5,
    "cores": 0.8,
    "architecture": 0.5,
    "device": 0.85,
    "era": 0.5,
    "variant": 1.0,
}
"""Strength of the pull towards 1 by level, chosen by cross-validation over series and devices. [-]"""

OUTLIER = 0.1
"""Residual from which on the loss grows linearly. [-]"""
MAX_EVALUATIONS = 60
TOLERANCE = 1e-5
"""Relative change of cost or factors at which a fit has converged. [-]"""


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
                name: rounded(np.exp(log))
                for (its_part, its_level, name), log in sorted(self.logs.items())
                if its_part == part and its_level == level
            }
            table = {name: factor for name, factor in table.items() if factor != 1}
            if table:
                by[level] = table
        base = self.logs.get((part, "base", ""), float(np.log(START[part])))
        return Factors(base=rounded(np.exp(base)), by=by)


def rounded(value: Any) -> float:
    """A factor as profiles show it: three digits."""
    return float(f"{float(value):.3g}")


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
    design = Design(samples, index, grow=True)
    start = np.array([np.log(START[part]) if level == "base" else 0.0 for part, level, _ in index])
    found = solve(design, samples, start, np.array([pull[level] for _, level, _ in index]))
    logs = {parameter: float(found[place]) for parameter, place in index.items()}
    # What only builds of an older era have shown is no evidence of how a current one does.
    names = [sample.entries[0].names for sample in samples]
    current = Counter(name["device"] for name in names if "era" not in name)
    return GroupFit(logs, dict(sorted(current.items())))


def solve(design: Design, samples: Sequence[Sample], start: Any, strength: Any) -> Any:
    """Find the logarithms of factors that fit the samples' times best, each drawn to where it starts. [-]"""
    target, weight = log_times(samples), weights(samples)
    pulls = csr_matrix(diags(strength))
    last: tuple[Any, Any] = None, None

    def evaluated(x: Any) -> Any:
        """Times and slopes; the slopes are asked for where the times just were."""
        nonlocal last
        if not np.array_equal(x, last[0]):
            last = x.copy(), design.evaluate(x)
        return last[1]

    def residuals(x: Any) -> Any:
        times, _ = evaluated(x)
        return np.concatenate([weight * (np.log(times) - target), strength * (x - start)])

    def jacobian(x: Any) -> Any:
        times, slopes = evaluated(x)
        found = design.jacobian(slopes)
        found.sort_indices()
        found.data *= np.repeat(weight / times, np.diff(found.indptr))
        return vstack([found, pulls], format="csr")

    return least_squares(
        residuals,
        start,
        jacobian,
        loss="soft_l1",
        f_scale=OUTLIER,
        max_nfev=MAX_EVALUATIONS,
        tr_solver="lsmr",
        ftol=TOLERANCE,
        xtol=TOLERANCE,
    ).x


def predict(logs: Mapping[Parameter, float], samples: Sequence[Sample], upon: KernelGroup | None = None) -> Any:
    """Times under some factors; others are 1. [s]

    Parameters
    ----------
    logs : mapping of Parameter to float
        Logarithms of factors.
    samples : sequence of Sample
        What to predict.
    upon : KernelGroup, optional
        What the factors are multiplied to.
    """
    index = {parameter: place for place, parameter in enumerate(logs)}
    times, _ = Design(samples, index, upon=upon).evaluate(np.array(list(logs.values())))
    return np.maximum(times, [sample.ideal_s for sample in samples])
