"""Intervals from what fits have not seen: quantiles of the size of held-out errors (conformal prediction).

An interval holds for all results of a group of kernels, but some kinds are less certain than others. So a kind of
memory, which tells apart rented processors (whose bandwidth is measured), desktop ones, cards and systems on a chip,
and a kind of model, a mixture or one with recurrent layers, has an interval of its own where the group's would hold
too few or too many of its held-out errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rooflinellm.calibration.samples import Sample
from rooflinellm.specs.profile import Interval, Level, Widths

COVERAGE = 0.8
"""Share of unseen results that an interval is to hold. [-]"""
ENOUGH, TOO_MUCH = 0.75, 0.9
"""Share of a kind's held-out errors between which it keeps its group's interval. [-]"""
LEAST_SAMPLES = 20
"""Samples below which a kind keeps its group's interval. [-]"""
FEW_SAMPLES = 10
"""Samples below which a phase's interval is no narrower than the nominal one. [-]"""
LEAST_DEVICES = 5
"""Devices below which a kind may have a wider interval than its group, but no narrower one. [-]"""
PHASES = ("decode", "prefill")
MEMORIES = ("DDR*", "GDDR*", "HBM*", "LPDDR*")
"""Kinds of memory that devices are told apart by; other names stand for themselves."""
OPERATORS = ("experts", "recurrent")
"""Kinds of operators that models are told apart by."""


def kinds_of(sample: Sample) -> list[tuple[Level, str]]:
    """What a sample is told apart by: the level, and the pattern that its device or model is under."""
    name = sample.entries[0].names.get("memory_type", "")
    memory = next((pattern for pattern in MEMORIES if name.startswith(pattern.rstrip("*"))), name)
    has = {entry.names["kind"] for entry in sample.entries}
    return [("memory_type", memory), *(("kind", kind) for kind in OPERATORS if kind in has)]


def half_width(errors: Any, weights: Any) -> float | None:
    """Factor that holds `COVERAGE` of some errors on either side: a weighted quantile of their size. [-]

    None where there are no errors; NaN is none.
    """
    known = ~np.isnan(errors)
    sizes, shares = np.abs(errors[known]), weights[known]
    if not len(sizes):
        return None
    order = np.argsort(sizes)
    reached = np.cumsum(shares[order]) / np.sum(shares)
    place = min(int(np.searchsorted(reached, COVERAGE)), len(order) - 1)
    return round(float(np.exp(sizes[order][place])), 3)


def device_weights(samples: Sequence[Sample]) -> Any:
    """Weights with which every device counts the same. [-]"""
    counts = Counter(sample.device for sample in samples)
    return np.array([1 / counts[sample.device] for sample in samples])


def is_batched(sample: Sample) -> bool:
    """Several sequences decode side by side, which is less certain than one by itself."""
    return sample.phase == "decode" and sample.sequences > 1


def interval(samples: Sequence[Sample], seen: Any, unseen: Any, source: str, otherwise: Widths) -> Interval:
    """Measure the interval of a group of kernels.

    Parameters
    ----------
    samples : sequence of Sample
        Its samples.
    seen, unseen : ndarray
        Logarithms of predicted over measured time, without a sample's series, and without its device; NaN where there
        is no prediction. [-]
    source : str
        Key of the profile's source.
    otherwise : Widths
        What holds for a phase without any held-out error.

    Returns
    -------
    Interval
    """
    own: dict[str, float | None] = {}
    by: dict[tuple[Level, str], dict[str, float]] = {}
    for phase in PHASES:
        places = [place for place, sample in enumerate(samples) if sample.phase == phase and not is_batched(sample)]
        part = [samples[place] for place in places]
        for errors, suffix in ((seen[places], ""), (unseen[places], "_unseen")):
            nominal = getattr(otherwise, phase + suffix) or getattr(otherwise, phase)
            width = half_width(errors, device_weights(part))
            own[phase + suffix] = nominal if width is None else _or_nominal(width, part, errors, nominal)
            for kind, other in ({} if width is None else _kinds(part, errors, width)).items():
                by.setdefault(kind, {})[phase + suffix] = other
    batched = [place for place, sample in enumerate(samples) if is_batched(sample)]
    if batched:
        weights = device_weights([samples[place] for place in batched])
        own["decode_batched"] = half_width(seen[batched], weights)
    tables: dict[Level, dict[str, Widths]] = {}
    for (level, pattern), widths in sorted(by.items()):
        tables.setdefault(level, {})[pattern] = Widths(**widths)
    return Interval.model_validate({**own, "by": tables, "source": source})


def _or_nominal(width: float, samples: Sequence[Sample], errors: Any, nominal: float) -> float:
    """The width of held-out errors; the nominal one if it is wider and few results, or those of one device, told it."""
    held = [sample.device for sample, error in zip(samples, errors, strict=True) if not np.isnan(error)]
    return width if len(held) >= FEW_SAMPLES and len(set(held)) > 1 else max(width, nominal)


def _kinds(samples: Sequence[Sample], errors: Any, width: float) -> dict[tuple[Level, str], float]:
    """Widths of the kinds of devices and of models that the group's does not suit.

    Devices weigh n^-1/2 a sample, as in a fit: a kind may have few, of which one has a single result.
    """
    found = {}
    kinds = [kinds_of(sample) for sample in samples]
    for kind in sorted({each for some in kinds for each in some}):
        places = [place for place, some in enumerate(kinds) if kind in some and not np.isnan(errors[place])]
        part = [samples[place] for place in places]
        if len(part) < LEAST_SAMPLES:
            continue
        weights = device_weights(part) ** 0.5
        inside = np.abs(errors[places]) <= np.log(width)
        share = float(np.sum(weights[inside]) / np.sum(weights))
        narrower = share > TOO_MUCH and len({sample.device for sample in part}) >= LEAST_DEVICES
        if share < ENOUGH or narrower:
            own = half_width(errors[places], weights)
            assert own is not None
            found[kind] = own
    return found
