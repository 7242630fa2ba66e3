"""Score held-out predictions by population."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflinellm.calibration.samples import Sample
from rooflinellm.specs.profile import Interval, ProfileSpec


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors of predictions that have not seen what they predict.

    Attributes
    ----------
    median, p90 : float
        Median and 90th percentile of the absolute error of the rate, over the measured rate. [-]
    inside : float
        Share within the interval. [-]
    width : float
        Median of high over low. [-]
    """

    median: float
    p90: float
    inside: float
    width: float


@dataclass(frozen=True, slots=True)
class Score:
    """One population's errors; None where nothing could be held out."""

    population: str
    series: int
    devices: int
    seen: HeldOut | None
    unseen: HeldOut | None


def scores(
    profile: ProfileSpec, held_out: Mapping[str, tuple[Sequence[Sample], Mapping[str, Any]]]
) -> tuple[Score, ...]:
    """Errors by population; one vote a series, devices weigh the same.

    Parameters
    ----------
    profile : ProfileSpec
        Its intervals are scored.
    held_out : mapping
        By group, its samples and the times predicted for them, ``seen`` and ``unseen``. [s]

    Returns
    -------
    tuple of Score
        Largest population first.
    """
    intervals = {f"{group.engines[0]}:{group.backends[0]}": group.interval for group in profile.groups}
    lines: dict[str, list[tuple[Sample, float, float, Interval]]] = defaultdict(list)
    for name, (samples, times) in held_out.items():
        for sample, seen, unseen in zip(samples, times["seen"], times["unseen"], strict=True):
            lines[sample.population].append((sample, float(seen), float(unseen), intervals[name]))
    found = [_score(population, group) for population, group in lines.items()]
    return tuple(sorted(found, key=lambda score: (-score.series, score.population)))


def _score(population: str, lines: Sequence[tuple[Sample, float, float, Interval]]) -> Score:
    counts = Counter(sample.device for sample, *_ in lines)
    seen = [(sample, time, _factor(sample, interval, "")) for sample, time, _, interval in lines]
    unseen = [(sample, time, _factor(sample, interval, "_unseen")) for sample, _, time, interval in lines]
    return Score(population, len(lines), len(counts), _held_out(seen, counts), _held_out(unseen, counts))


def _factor(sample: Sample, interval: Interval, suffix: str) -> float:
    """The interval of a sample as `efficiency.rates` gives it."""
    found: float = getattr(interval, sample.phase + suffix) or getattr(interval, sample.phase)
    if sample.phase == "decode" and sample.sequences > 1:
        return max(interval.decode_batched or interval.decode_unseen or interval.decode, found)
    return found


def _held_out(lines: Sequence[tuple[Sample, float, float]], counts: Mapping[str, int]) -> HeldOut | None:
    known = [(sample, time, factor) for sample, time, factor in lines if not np.isnan(time)]
    if not known:
        return None
    measured = np.array([sample.measured_s for sample, *_ in known])
    expected = np.array([time for _, time, _ in known])
    factors = np.array([factor for *_, factor in known])
    ideal = np.array([sample.ideal_s for sample, *_ in known])
    weights = np.array([1 / counts[sample.device] for sample, *_ in known])
    # The error of the rate: predicted over measured rate is measured over predicted time.
    errors = np.abs(measured / expected - 1)
    shortest, longest = np.maximum(expected / factors, ideal), expected * factors
    inside = (measured >= shortest) & (measured <= longest)
    return HeldOut(
        median=_quantile(errors, weights, 0.5),
        p90=_quantile(errors, weights, 0.9),
        inside=float(np.sum(weights[inside]) / np.sum(weights)),
        width=_quantile(longest / shortest, weights, 0.5),
    )


def _quantile(values: Any, weights: Any, share: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = min(int(np.searchsorted(reached, share * reached[-1])), len(order) - 1)
    return float(values[order][place])
