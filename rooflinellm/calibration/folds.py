"""Predict what a fit has not seen: whole series or whole devices left out, the others fitted, fold by fold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rooflinellm.calibration.fit import GroupFit, fit_group, predict
from rooflinellm.calibration.samples import Sample
from rooflinellm.specs.profile import KernelGroup

Key = Literal["series", "device"]
COUNTS: Mapping[Key, int] = {"series": 5, "device": 8}
"""Folds by what is left out whole. [-]"""
SEED = 20_24

Progress = Callable[[int, int], None]
"""Called with how many steps are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Fold:
    """What one fit has not seen, and the fit."""

    held: frozenset[str]
    fit: GroupFit


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One group of kernels, predicted without what it predicts.

    Attributes
    ----------
    key : {'series', 'device'}
        What was left out whole.
    samples : sequence of Sample
        The samples.
    times : ndarray
        Predicted times, NaN where nothing was left to fit on. [s]
    folds : tuple of Fold
        The fits.
    """

    key: Key
    samples: Sequence[Sample]
    times: Any
    folds: tuple[Fold, ...]

    @property
    def errors(self) -> Any:
        """Logarithms of predicted over measured time. [-]"""
        return np.log(self.times) - np.log([sample.measured_s for sample in self.samples])

    def fold_of(self, value: str) -> int | None:
        """The fold that has not seen a series or device; None if every one has, or none could."""
        return next((number for number, fold in enumerate(self.folds) if value in fold.held), None)

    def kept(self, fold: int) -> list[int]:
        """Places of the samples that a fold has seen."""
        held = self.folds[fold].held
        return [place for place, sample in enumerate(self.samples) if getattr(sample, self.key) not in held]


def fold_count(samples: Sequence[Sample], key: Key) -> int:
    """How many fits leaving out takes. [-]"""
    return min(COUNTS[key], len({getattr(sample, key) for sample in samples}))


def splits(samples: Sequence[Sample], key: Key, count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Split samples into those to fit on and those to predict, whole values of an attribute at a time.

    Parameters
    ----------
    samples : sequence of Sample
        The samples.
    key : {'series', 'device'}
        The attribute.
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


def leave_out(
    samples: Sequence[Sample],
    key: Key,
    done: Callable[[], None] = lambda: None,
    *,
    count: int | None = None,
    fit: Callable[[Sequence[Sample]], GroupFit] = fit_group,
    upon: KernelGroup | None = None,
) -> LeftOut:
    """Predict each sample of one group by a fit that has not seen its series, or its device.

    Parameters
    ----------
    samples : sequence of Sample
        Of one engine and backend.
    key : {'series', 'device'}
        What is left out whole.
    done : callable
        Called after each fit.
    count : int, optional
        Number of folds; None is that of `COUNTS`. [-]
    fit : callable
        Fits some samples.
    upon : KernelGroup, optional
        What the fitted factors are multiplied to.
    """
    times = np.full(len(samples), np.nan)
    folds = []
    for kept, held in splits(samples, key, count or COUNTS[key]):
        found = fit([samples[place] for place in kept])
        unseen = [samples[place] for place in held]
        times[held] = predict(found.logs, unseen, upon)
        folds.append(Fold(frozenset(getattr(sample, key) for sample in unseen), found))
        done()
    return LeftOut(key, samples, times, tuple(folds))
