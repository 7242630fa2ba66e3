"""Fit an efficiency profile to measured results: to all that come with the package, or to one's own on top of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rooflinellm import catalog
from rooflinellm._shown import one_line
from rooflinellm.api.arguments import id_of
from rooflinellm.api.held_out import chooser, quietly, too_few, votes
from rooflinellm.api.measured import Paths, asked_qualities, given_files, measured_rows
from rooflinellm.api.validate import fixed, score
from rooflinellm.calibration.folds import LeftOut
from rooflinellm.calibration.intervals import COVERAGE
from rooflinellm.calibration.own import OWN_PARTS, fit_own, leave_out_own, own_group, own_profile
from rooflinellm.calibration.profile import FoldProfiles, covering, cross_validate, fitted_profile, fold_profile
from rooflinellm.calibration.samples import Sample
from rooflinellm.errors import InvalidRequest
from rooflinellm.measurements.accuracy import Accuracy, RowResult, accuracy_of
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.row import Row
from rooflinellm.render import Column, Table
from rooflinellm.specs.profile import KernelGroup, ProfileSpec

OWN_ID = "own"
"""Id of a profile of one's own results that has no other."""
PART_NAMES = {"memory": "bandwidth", "compute": "arithmetic", "floor_us": "floors"}


@dataclass(frozen=True)
class Score:
    """Errors of some results before and after, or with a series and with a device left out.

    Attributes
    ----------
    name : str
        What they have in common: a population; a device and a phase.
    first, second : Accuracy or None
        Of the two ways to predict them; None where there is none.
    """

    name: str
    first: Accuracy | None
    second: Accuracy | None

    __repr__ = one_line


@dataclass(frozen=True)
class Calibration:
    """A fitted profile and how it does on what it has not seen.

    Attributes
    ----------
    profile : ProfileSpec
        The profile.
    scores : tuple of Score
        Without own results: errors by population, with series and with devices left out. With own results: errors by
        device and phase, of the profile that comes with the package, and of a fit to the other series.
    factors : mapping of str to mapping of str to float
        By device, what own results multiply its bandwidth, arithmetic and floors by; empty without. [-]
    """

    profile: ProfileSpec
    scores: tuple[Score, ...]
    factors: Mapping[str, Mapping[str, float]]

    __repr__ = one_line

    @property
    def own(self) -> bool:
        """Whether it was fitted to own results on top of the profile that comes with the package."""
        return self.profile.basis == "measured"

    @property
    def labels(self) -> tuple[str, str]:
        """What `Score.first` and `Score.second` are."""
        return ("before", "after, held out") if self.own else ("seen device", "unseen device")

    def to_yaml(self) -> str:
        """The profile as a file; the same results give the same bytes."""
        import yaml

        data = self.profile.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        ordered = {"schema": 1, "id": self.profile.id, "name": self.profile.name, "basis": self.profile.basis}
        ordered |= {name: value for name, value in data.items() if name not in ordered}
        head = "# Written by `rooflinellm calibrate`; not by hand. Factors multiply: base x one a level.\n"
        return head + yaml.safe_dump(ordered, sort_keys=False, width=120, allow_unicode=True)

    def tables(self) -> list[Table]:
        """The scores, and the factors of own results, as tables."""
        inside = f"inside: share within the interval, which aims at {COVERAGE:.0%}"
        if not self.own:
            votes = "one vote a series, devices weigh the same"
            notes = [
                f"seen: the series was left out of the fit; unseen: the device was; {votes}",
                f"{inside}; width: median high over low",
            ]
            return [self._scores("Held-out error of the fitted profile", "population", notes)]
        compared = "before: the profile that comes with rooflinellm; after: fitted to your other series on top of it"
        header = [Column("device", "left"), *(Column(name) for name in PART_NAMES.values())]
        moved = [[device, *(f"×{each[part]:.2f}" for part in OWN_PARTS)] for device, each in self.factors.items()]
        note = "floors: time of a launch, so that more than 1 is slower; 1.00 is what your results do not tell"
        return [
            self._scores("Error on your results", "device, phase", [compared, inside, self._verdict()]),
            Table(header, moved, "What they change", [note]),
        ]

    def _scores(self, title: str, heading: str, notes: Sequence[str]) -> Table:
        shown = ("MdAPE", "P90", "inside", "width")[: 3 if self.own else 4]  # the name of a device needs the room
        columns = [Column(heading, "left"), Column("series"), Column("devices")]
        columns += [Column(name, group=group) for group in self.labels for name in shown]
        rows = [
            [each.name, *_counts(each), *_cells(each.first)[: len(shown)], *_cells(each.second)[: len(shown)]]
            for each in self.scores
        ]
        return Table(columns, rows, title, list(notes))

    def _verdict(self) -> str:
        total = self.scores[-1]
        if total.second is None:
            return "a single series cannot be predicted from others: how much better it got is not known"
        assert total.first is not None
        before, after = total.first.mdape, total.second.mdape
        if after < before:
            return f"median error of all: {before:.1%} before, {after:.1%} after"
        return f"no better: the median error of all was {before:.1%} and is {after:.1%}; keep the usual profile"


def _counts(score: Score) -> list[str]:
    error = score.first or score.second
    return ["–", "–"] if error is None else [f"{error.series:,}", str(error.devices)]


def _cells(error: Accuracy | None) -> list[str]:
    if error is None:
        return ["–", "–", "–", "–"]
    inside = "–" if error.coverage is None else f"{error.coverage:.0%}"
    return [f"{error.mdape:.1%}", f"{error.p90:.0%}", inside, "–" if error.width is None else f"{error.width:.2f}"]


def calibrate(
    files: Paths | None = None,
    *,
    quality: str = "AB",
    model: str | None = None,
    hardware: str | None = None,
    weights: str | None = None,
    engine: str | None = None,
    profile_id: str = OWN_ID,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Fit a profile to results of single-phase tests, and score it on what each fit has not seen.

    Without files, the results that come with the package are fitted, which gives the profile that comes with it, byte
    for byte. With files, the devices in them get factors of their own on top of it: as far as the results tell, and
    drawn to what it says. Such a profile covers these devices only; for all others the usual one holds.

    Parameters
    ----------
    files : path or iterable of path, optional
        Files of one's own results, as in `validate`.
    quality : str
        Qualities to take, of ``A``, ``B`` and ``C``; rows without one always count. [-]
    model, hardware, weights, engine : str, optional
        What files do not say themselves, such as the device in a table of llama-bench.
    profile_id : str
        Id of a profile of one's own results; that of a file in the folder of own entries is its name.
    progress : callable, optional
        Called with the steps that are done and all there are.

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidRequest
        Too few results to fit anything.
    UnreadableFile, InvalidSpec
        As in `validate`.
    """
    quality = asked_qualities(quality)
    id_of("profile_id", profile_id)
    stated = {"model": model, "hardware": hardware, "weights": weights, "engine": engine}
    if files is None:
        return _shipped(list(measured_rows(None, stated)), quality, progress or quietly)
    given = given_files(files)
    titles = sorted({os.path.basename(os.fspath(file)) for file in given})
    return _own(list(measured_rows(given, stated)), quality, titles, profile_id)


def _shipped(rows: Sequence[Row], quality: str, progress: Callable[[int, int], None]) -> Calibration:
    nominal, names = catalog.profile(catalog.NOMINAL), Names()
    found = votes(rows, quality, names, catalog.NOMINAL)
    left_out = cross_validate(found, ("series", "device"), progress)
    profile = fitted_profile(left_out, nominal)
    if not profile.groups:
        raise too_few(len(found))
    by: list[dict[str, Accuracy]] = []
    for group in left_out.values():
        profiles = FoldProfiles(group, partial(fold_profile, nominal))
        result = score(rows, quality, names, chooser(profiles))
        by.append({each.name: each for each in result.by("population")})
    seen, unseen = by
    populations = sorted(seen.keys() | unseen.keys(), key=lambda name: (-_series(seen.get(name)), name))
    scores = tuple(Score(name, seen.get(name), unseen.get(name)) for name in populations)
    return Calibration(profile, scores, {})


def _series(error: Accuracy | None) -> int:
    return 0 if error is None else error.series


def _own(rows: Sequence[Row], quality: str, titles: Sequence[str], profile_id: str) -> Calibration:
    profiles, names = catalog.profiles(), Names()
    base = profiles[0]
    by_group: dict[str, list[Sample]] = {}
    for sample in votes(rows, quality, names, None):
        by_group.setdefault(sample.group, []).append(sample)
    if not by_group:
        raise InvalidRequest(
            "none of the results can be fitted to",
            where="files",
            next_step="Give prefill or decode rates on one device; `rooflinellm validate` says why rows are skipped.",
        )
    upon = {name: covering(profiles, name) for name in by_group}
    left_out = {name: leave_out_own(group, upon[name]) for name, group in by_group.items()}
    groups: list[KernelGroup] = []
    factors: dict[str, dict[str, float]] = {}
    for name, group in sorted(by_group.items()):
        fit = fit_own(group, upon[name])
        groups.append(own_group(name, fit, upon[name], group, left_out[name].errors))
        for (part, _, device), log in fit.logs.items():
            factors.setdefault(f"{device}, {name}", {})[part] = math.exp(log)
    profile = own_profile(groups, base, profile_id, titles)

    def fold(name: str, found: LeftOut, number: int) -> ProfileSpec:
        places = found.kept(number)
        kept = [found.samples[place] for place in places]
        group = own_group(name, found.folds[number].fit, upon[name], kept, found.errors[places])
        return own_profile([group], base, profile_id, titles)

    before = score(rows, quality, names, fixed())
    after = score(rows, quality, names, chooser(FoldProfiles(left_out, fold)))
    fitted = {sample.series for group in by_group.values() for sample in group}
    return Calibration(profile, _compared(before.rows, after.rows, fitted), factors)


def _compared(before: Sequence[RowResult], after: Sequence[RowResult], fitted: set[str]) -> tuple[Score, ...]:
    """Errors by device and phase of the results that were fitted to, before and after."""
    pairs = [
        (first, second)
        for first, second in zip(before, after, strict=True)
        if first.status == "predicted" and repr(first.series) in fitted
    ]
    groups: dict[str, list[tuple[RowResult, RowResult]]] = {}
    for pair in pairs:
        groups.setdefault(f"{pair[0].device}, {pair[0].phase}", []).append(pair)
    if len(groups) > 1:
        groups["all"] = pairs
    return tuple(
        Score(
            name,
            accuracy_of(name, [first for first, _ in group]),
            accuracy_of(name, [second for _, second in group if second.status == "predicted"]),
        )
        for name, group in groups.items()
    )
