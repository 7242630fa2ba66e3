"""Fit an efficiency profile to measured results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rooflinellm import catalog
from rooflinellm.api.validate import measured_files
from rooflinellm.calibration.profile import COVERAGE, fitted_profile
from rooflinellm.calibration.samples import Sample, samples
from rooflinellm.calibration.score import Score, scores
from rooflinellm.errors import InvalidRequest
from rooflinellm.measurements.evaluate import Evaluator
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.readers import read
from rooflinellm.measurements.resolver import Resolved, resolve
from rooflinellm.measurements.row import Row
from rooflinellm.render import Column, Table
from rooflinellm.specs.profile import ProfileSpec

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class Calibration:
    """A fitted profile and how it does on what it has not seen.

    Attributes
    ----------
    profile : ProfileSpec
        The profile.
    scores : tuple of Score
        Errors by population, with series and with devices left out.
    """

    profile: ProfileSpec
    scores: tuple[Score, ...]

    def to_yaml(self) -> str:
        """The profile as a file; the same results give the same bytes."""
        import yaml

        data = self.profile.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        ordered = {"schema": 1, "id": self.profile.id, "name": self.profile.name, "basis": self.profile.basis}
        ordered |= {name: value for name, value in data.items() if name not in ordered}
        head = "# Written by `rooflinellm calibrate`; not by hand. Factors multiply: base x one a level.\n"
        return head + yaml.safe_dump(ordered, sort_keys=False, width=120, allow_unicode=True)

    def table(self) -> Table:
        """The scores as a table."""
        columns = [
            Column("population", "left"), Column("series"), Column("devices"), Column("MdAPE", group="seen device"),
            Column("P90", group="seen device"), Column("inside", group="seen device"),
            Column("width", group="seen device"), Column("MdAPE", group="unseen device"),
            Column("P90", group="unseen device"), Column("inside", group="unseen device"),
            Column("width", group="unseen device"),
        ]  # fmt: skip
        rows = [
            [score.population, f"{score.series:,}", str(score.devices), *_cells(score.seen), *_cells(score.unseen)]
            for score in self.scores
        ]
        notes = [
            "seen: the sample's series was left out of the fit; unseen: its device was; one vote a series,"
            " devices weigh the same",
            f"inside: share within the interval, which aims at {COVERAGE:.0%}; width: median high over low",
        ]
        return Table(columns, rows, "Held-out error of the fitted profile", notes)


def _cells(error: Any) -> list[str]:
    if error is None:
        return ["–", "–", "–", "–"]
    return [f"{error.median:.1%}", f"{error.p90:.0%}", f"{error.inside:.0%}", f"{error.width:.2f}"]


def calibrate(files: Paths | None = None, *, quality: str = "AB") -> Calibration:
    """Fit a profile to results of single-phase tests, and score it on what each fit has not seen.

    Parameters
    ----------
    files : path or iterable of path, optional
        Files of results, as in `validate`; None takes those that come with the package.
    quality : str
        Qualities to take, of ``A``, ``B`` and ``C``; rows without one always count. [-]

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
    names, evaluator = Names(), Evaluator(catalog.NOMINAL)

    def resolved() -> Iterator[tuple[Row, Resolved]]:
        for path in measured_files(files):
            for row in read(path):
                if row.quality and row.quality not in quality.upper():
                    continue
                found = resolve(row, names)
                if isinstance(found, Resolved):
                    yield row, found

    votes: list[Sample] = samples(resolved(), evaluator)
    profile, held_out = fitted_profile(votes, catalog.profile(catalog.NOMINAL))
    if not profile.groups:
        raise InvalidRequest(
            f"{len(votes)} series of results are too few to fit a profile",
            where="files",
            next_step="Give more results.",
        )
    return Calibration(profile, scores(profile, held_out))
