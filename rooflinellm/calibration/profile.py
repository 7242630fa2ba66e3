"""From samples to a profile: one fit a group of kernels, and intervals from what the fits have not seen."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rooflinellm.calibration.fit import GroupFit, fit_group, predict
from rooflinellm.calibration.samples import Sample
from rooflinellm.specs.common import Source
from rooflinellm.specs.profile import Interval, KernelGroup, ProfileSpec

COVERAGE = 0.8
"""Share of unseen results that an interval is to hold. [-]"""
SERIES_FOLDS = 5
DEVICE_FOLDS = 8
LEAST_SAMPLES = 20
"""Samples below which a group of kernels stays with the nominal profile. [-]"""
LEAST_DEVICES = 2
SEED = 20_24
PHASES = ("decode", "prefill")


def by_group(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Samples by engine and backend; only groups that are large enough to be fitted."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(sample)
    return {
        name: group
        for name, group in sorted(groups.items())
        if len(group) >= LEAST_SAMPLES and len({sample.device for sample in group}) >= LEAST_DEVICES
    }


def folds(samples: Sequence[Sample], key: str, count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Split samples into those to fit on and those to predict, whole values of an attribute at a time.

    Parameters
    ----------
    samples : sequence of Sample
        The samples.
    key : str
        ``series`` or ``device``.
    count : int
        Number of splits. [-]

    Yields
    ------
    tuple of list of int
        Places to fit on, and places to predict.
    """
    values = sorted({getattr(sample, key) for sample in samples})
    random.Random(SEED).shuffle(values)
    fold_of = {value: number % count for number, value in enumerate(values)}
    for fold in range(min(count, len(values))):
        held = [place for place, sample in enumerate(samples) if fold_of[getattr(sample, key)] == fold]
        kept = [place for place, sample in enumerate(samples) if fold_of[getattr(sample, key)] != fold]
        if kept and held:
            yield kept, held


def held_out(samples: Sequence[Sample], key: str, count: int) -> Any:
    """Predict each sample by a fit that has not seen its series, or device; NaN where none is left to fit on. [s]"""
    times = np.full(len(samples), np.nan)
    for kept, held in folds(samples, key, count):
        fit = fit_group([samples[place] for place in kept])
        times[held] = predict(fit, [samples[place] for place in held])
    return times


def log_errors(samples: Sequence[Sample], times: Any) -> Any:
    """Logarithms of predicted over measured time. [-]"""
    return np.log(times) - np.log([sample.measured_s for sample in samples])


def half_width(errors: Any, weights: Any) -> float:
    """Factor that holds `COVERAGE` of some errors on either side: a weighted quantile of their size. [-]"""
    known = ~np.isnan(errors)
    sizes, shares = np.abs(errors[known]), weights[known]
    if not len(sizes):
        return 1.0
    order = np.argsort(sizes)
    reached = np.cumsum(shares[order]) / np.sum(shares)
    place = min(int(np.searchsorted(reached, COVERAGE)), len(order) - 1)
    return float(np.exp(sizes[order][place]))


def _device_weights(samples: Sequence[Sample]) -> Any:
    counts: dict[str, int] = defaultdict(int)
    for sample in samples:
        counts[sample.device] += 1
    return np.array([1 / counts[sample.device] for sample in samples])


def kernel_group(name: str, samples: Sequence[Sample], source: str) -> tuple[KernelGroup, Mapping[str, Any]]:
    """Fit one group, and measure its intervals by leaving out series and devices.

    Parameters
    ----------
    name : str
        Engine and backend, as ``llama.cpp:cuda``.
    samples : sequence of Sample
        Its samples.
    source : str
        Key of the profile's source.

    Returns
    -------
    tuple
        The group, and the times predicted without a sample's series (``seen``) and without its device (``unseen``). [s]
    """
    fit = fit_group(samples)
    times = {
        "seen": held_out(samples, "series", SERIES_FOLDS),
        "unseen": held_out(samples, "device", DEVICE_FOLDS),
    }
    widths: dict[str, float] = {}
    for phase in PHASES:
        chosen = [place for place, each in enumerate(samples) if each.phase == phase and not _batched(each)]
        part = [samples[place] for place in chosen]
        weights = _device_weights(part)
        for regime, suffix in (("seen", ""), ("unseen", "_unseen")):
            errors = log_errors(part, times[regime][chosen]) if part else np.array([])
            widths[phase + suffix] = round(half_width(errors, weights), 3)
    batched = [place for place, sample in enumerate(samples) if _batched(sample)]
    if batched:
        part = [samples[place] for place in batched]
        widths["decode_batched"] = round(half_width(log_errors(part, times["seen"][batched]), _device_weights(part)), 3)
    engine, _, backend = name.partition(":")
    return _group(fit, engine, backend, Interval(**widths, source=source), source), times


def _batched(sample: Sample) -> bool:
    """Several sequences decode side by side, which is less certain than one by itself."""
    return sample.phase == "decode" and sample.sequences > 1


def _group(fit: GroupFit, engine: str, backend: str, interval: Interval, source: str) -> KernelGroup:
    return KernelGroup(
        engines=(engine,),
        backends=(backend,),
        memory=fit.factors("memory"),
        compute=fit.factors("compute"),
        few_tokens=fit.factors("few_tokens"),
        half_tokens=fit.factors("half_tokens"),
        floor_us=fit.factors("floor_us"),
        interval=interval,
        evidence=fit.evidence,
        source=source,
    )


def fitted_profile(samples: Sequence[Sample], nominal: ProfileSpec) -> tuple[ProfileSpec, dict[str, Any]]:
    """Fit a profile.

    Parameters
    ----------
    samples : sequence of Sample
        Of any groups.
    nominal : ProfileSpec
        What is not fitted is taken from here.

    Returns
    -------
    tuple
        The profile; and by group its samples and held-out times, for scoring.
    """
    groups, scored = [], {}
    for name, group in by_group(samples).items():
        fitted, times = kernel_group(name, group, "fit")
        groups.append(fitted)
        scored[name] = (group, times)
    profile = ProfileSpec.model_validate(
        {
            "schema": 1,
            "id": "calibrated",
            "name": "Fitted efficiencies",
            "basis": "calibrated",
            "groups": groups,
            "decode_power_fraction": nominal.decode_power_fraction,
            "prefill_power_fraction": nominal.prefill_power_fraction,
            "sources": {
                "fit": Source(
                    title="Fitted by `rooflinellm calibrate` to hardware_db/measurements, whose rows name their sources"
                )
            },
        }
    )
    return profile, scored
