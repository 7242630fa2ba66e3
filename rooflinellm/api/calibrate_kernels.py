"""Fit the curves of single kernels and collectives to measured ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rooflinellm import catalog
from rooflinellm._shown import one_line
from rooflinellm.api.arguments import id_of, path_of
from rooflinellm.api.kernels import KernelScores, predicted_s, scores_of
from rooflinellm.calibration.kernels import SOURCE, fit
from rooflinellm.errors import InvalidRequest
from rooflinellm.measurements.kernels import read
from rooflinellm.render import Table
from rooflinellm.specs.common import Source
from rooflinellm.specs.profile import ProfileSpec

TITLE = (
    "Fitted by `rooflinellm calibrate --kernels` to hardware_db/measurements/kernels.csv.gz, whose rows name their "
    "sources"
)
HEAD = """# Written by `rooflinellm calibrate --kernels`; not by hand.
# Collectives: the quickest of latency + hop (t - 1) + f(t) M / (share b); f of a sum is t - 1 in one shot,
# 2 (t - 1) / t in two shots or around a ring, 1 + 1 / t in a switch; of the rest (t - 1) / t.
# Curves: floor + max(bytes / (bandwidth_share b), FLOPs (1 + half_tokens / tokens) / (peak_share P)).
"""


@dataclass(frozen=True)
class KernelFit:
    """Fitted curves and how they do.

    Attributes
    ----------
    profile : ProfileSpec
        The curves as a profile.
    seen, unseen : KernelScores
        Errors of the curves, and of fits that have not seen the device.
    """

    profile: ProfileSpec
    seen: KernelScores
    unseen: KernelScores

    __repr__ = one_line

    def to_yaml(self) -> str:
        """The profile as a file; the same rows give the same bytes."""
        import yaml

        data = self.profile.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        first = {"schema": 1, "id": self.profile.id, "name": self.profile.name, "basis": self.profile.basis}
        ordered = first | {name: value for name, value in data.items() if name not in first}
        return HEAD + yaml.safe_dump(ordered, sort_keys=False, width=120, allow_unicode=True, default_flow_style=None)

    def tables(self) -> list[Table]:
        """The errors as tables."""
        return [*self.seen.tables(), *self.unseen.tables()]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"seen": self.seen.to_dict(), "unseen": self.unseen.to_dict()}

    def records(self) -> list[dict[str, Any]]:
        """A row a score."""
        pairs = (("seen", self.seen), ("unseen", self.unseen))
        return [{"fit": name} | record for name, scores in pairs for record in scores.records()]


def calibrate_kernels(
    file: str | os.PathLike[str] | None = None,
    *,
    profile_id: str = catalog.KERNELS,
    progress: Callable[[int, int], None] | None = None,
) -> KernelFit:
    """Fit curves to measured kernels and collectives, and score them.

    Without a file, the rows that come with the package are fitted, which gives the profile of kernels that comes with
    it, byte for byte.

    Parameters
    ----------
    file : path, optional
        A table with the columns of `hardware_db/measurements/kernels.csv.gz`.
    profile_id : str
        Id of the profile.
    progress : callable, optional
        Called with the steps that are done and all there are.

    Returns
    -------
    KernelFit

    Raises
    ------
    InvalidRequest
        An id that is none, or too few rows.
    UnreadableFile, InvalidSpec, UnknownName
        As in `rooflinellm.measurements.kernels.read`.
    """
    id_of("profile_id", profile_id)
    rows = list(read(path_of("file", file)))
    nominal = catalog.profile(catalog.NOMINAL)
    fitted = fit(rows, progress or (lambda _done, _of: None))
    if not fitted.collectives and not fitted.curves:
        raise InvalidRequest(f"{len(rows)} rows are too few to fit a curve to", where="file")
    profile = ProfileSpec.model_validate(
        {
            "schema": 1,
            "id": profile_id,
            "name": "Fitted curves of kernels and collectives",
            "basis": "calibrated",
            "decode_power_fraction": nominal.decode_power_fraction,
            "prefill_power_fraction": nominal.prefill_power_fraction,
            "collectives": fitted.collectives,
            "curves": fitted.curves,
            "sources": {SOURCE: Source(title=TITLE)},
        }
    )
    missing = int((fitted.unseen_s != fitted.unseen_s).sum())
    return KernelFit(
        profile,
        KernelScores(scores_of(rows, predicted_s([profile], rows))),
        KernelScores(scores_of(rows, fitted.unseen_s), "device", missing),
    )
