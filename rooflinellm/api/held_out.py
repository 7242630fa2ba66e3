"""Which profile has not seen a result: the same folds serve `validate` and `calibrate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from rooflinellm import catalog
from rooflinellm.calibration.folds import Key
from rooflinellm.calibration.profile import FoldProfiles, cross_validate, fold_profile
from rooflinellm.calibration.samples import Sample, group_of, is_of_kernels, samples, series_of
from rooflinellm.errors import InvalidRequest
from rooflinellm.measurements.evaluate import Chooser, Evaluator
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.resolver import Resolved, resolve
from rooflinellm.measurements.row import Row
from rooflinellm.specs.profile import ProfileSpec

FEW = "too few results of its engine and backend to fit some and predict others"
OTHER = "profiles are not fitted to results of its kind"


def quietly(_done: int, _of: int) -> None:
    """Report no progress."""


def resolved_rows(rows: Iterable[Row], quality: str, names: Names) -> Iterator[tuple[Row, Resolved]]:
    """The rows of some qualities, or of none that is known, that can be predicted."""
    for row in rows:
        if row.quality and row.quality not in quality:
            continue
        found = resolve(row, names)
        if isinstance(found, Resolved):
            yield row, found


def votes(rows: Iterable[Row], quality: str, names: Names, profile: str | ProfileSpec | None) -> list[Sample]:
    """The samples that profiles are fitted to, one a series."""
    return samples(resolved_rows(rows, quality, names), Evaluator(profile))


def chooser(profiles: FoldProfiles) -> Chooser:
    """Choose for each row the profile that has not seen it."""
    evaluators: dict[int, Evaluator] = {}  # by identity of a profile, which `profiles` keeps alive

    def choose(row: Row, resolved: Resolved) -> Evaluator | str:
        if not is_of_kernels(resolved):
            return OTHER
        group = group_of(resolved)
        profile = profiles.without(group, series_of(row, resolved), resolved.system.name)
        if profile is None:
            return OTHER if group in profiles.left_out else FEW
        if id(profile) not in evaluators:
            evaluators[id(profile)] = Evaluator(profile)
        return evaluators[id(profile)]

    return choose


def unseen(
    rows: Iterable[Row], quality: str, names: Names, key: Key, progress: Callable[[int, int], None] | None
) -> Chooser:
    """Fit profiles by fold to some rows, and choose for each the one that has not seen its series, or its device.

    Raises
    ------
    InvalidRequest
        Too few results to leave any out.
    """
    found = votes(rows, quality, names, catalog.NOMINAL)
    left_out = cross_validate(found, [key], progress or quietly)[key]
    if not left_out:
        raise too_few(len(found))
    return chooser(FoldProfiles(left_out, partial(fold_profile, catalog.profile(catalog.NOMINAL))))


def too_few(series: int) -> InvalidRequest:
    """The error of results that are too few."""
    return InvalidRequest(
        f"{series} series of results are too few to fit a profile",
        where="files",
        next_step="Give more results, of several devices.",
    )
