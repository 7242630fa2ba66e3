"""From samples to profiles: a fit a group of kernels, intervals from what fits have not seen, and profiles by fold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from rooflinellm.calibration.fit import GroupFit, fit_group
from rooflinellm.calibration.folds import Key, LeftOut, Progress, fold_count, leave_out
from rooflinellm.calibration.intervals import interval
from rooflinellm.calibration.samples import Sample
from rooflinellm.efficiency.rates import group_for
from rooflinellm.errors import MissingSpec
from rooflinellm.specs.common import Source
from rooflinellm.specs.profile import Interval, KernelGroup, ProfileSpec

LEAST_SAMPLES = 20
"""Samples below which a group of kernels stays with the nominal profile. [-]"""
LEAST_DEVICES = 2
SOURCE = "fit"
"""Key of the one source of a fitted profile."""
FITTED_TO = "Fitted by `rooflinellm calibrate` to hardware_db/measurements, whose rows name their sources"


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


def cross_validate(
    samples: Sequence[Sample], keys: Sequence[Key], progress: Progress = lambda _done, _of: None
) -> dict[Key, dict[str, LeftOut]]:
    """Leave series or devices out of the fit of every group that is large enough.

    Parameters
    ----------
    samples : sequence of Sample
        Of any groups.
    keys : sequence of {'series', 'device'}
        What to leave out.
    progress : callable
        Called after each fit.

    Returns
    -------
    dict
        By what was left out, and by group.
    """
    groups = by_group(samples)
    # A fold's time grows with the samples that are left to fit on, so that they are what progress is counted in.
    total = sum(fold_count(group, key) * len(group) for key in keys for group in groups.values())
    reached = 0
    found: dict[Key, dict[str, LeftOut]] = {}
    for key in keys:
        found[key] = {}
        for name, group in groups.items():

            def done(size: int = len(group)) -> None:
                nonlocal reached
                reached += size
                progress(reached, total)

            found[key][name] = leave_out(group, key, done)
    return found


def kernel_group(name: str, fit: GroupFit, width: Interval) -> KernelGroup:
    """A fitted group as a profile has it; its name is engine and backend, as ``llama.cpp:cuda``."""
    engine, _, backend = name.partition(":")
    return KernelGroup(
        engines=(engine,),
        backends=(backend,),
        memory=fit.factors("memory"),
        compute=fit.factors("compute"),
        few_tokens=fit.factors("few_tokens"),
        half_tokens=fit.factors("half_tokens"),
        floor_us=fit.factors("floor_us"),
        interval=width,
        evidence=fit.evidence,
        source=SOURCE,
    )


def fitted_profile(left_out: Mapping[Key, Mapping[str, LeftOut]], nominal: ProfileSpec) -> ProfileSpec:
    """Fit a profile to all samples, with intervals from what the fits by fold have not seen.

    Parameters
    ----------
    left_out : mapping
        Of `cross_validate`, with series and with devices left out.
    nominal : ProfileSpec
        What is not fitted is taken from here.
    """
    groups = []
    for name, seen in left_out["series"].items():
        unseen = left_out["device"][name].errors
        width = interval(seen.samples, seen.errors, unseen, SOURCE, _unfitted(name, nominal))
        groups.append(kernel_group(name, fit_group(seen.samples), width))
    return profile_of(groups, nominal)


def _unfitted(name: str, nominal: ProfileSpec) -> Interval:
    """The interval of an engine and backend that nothing is fitted to."""
    return covering((nominal,), name).interval


def covering(profiles: Sequence[ProfileSpec], name: str) -> KernelGroup:
    """What profiles say of an engine and backend, whatever the device."""
    engine, _, backend = name.partition(":")
    found = group_for(profiles, engine, backend, "")
    if found is None:
        known = ", ".join(profile.id for profile in profiles)
        raise MissingSpec(f"no efficiency for {name} on every device", where=f"profiles {known}, field groups")
    return found[1]


def profile_of(groups: Sequence[KernelGroup], nominal: ProfileSpec) -> ProfileSpec:
    """A profile of fitted groups; what is not fitted is the nominal one's."""
    return ProfileSpec.model_validate(
        {
            "schema": 1,
            "id": "calibrated",
            "name": "Fitted efficiencies",
            "basis": "calibrated",
            "groups": list(groups),
            "decode_power_fraction": nominal.decode_power_fraction,
            "prefill_power_fraction": nominal.prefill_power_fraction,
            "sources": {SOURCE: Source(title=FITTED_TO)},
        }
    )


class FoldProfiles:
    """The profiles that have not seen a result.

    A fold's intervals are of the errors of the other folds, so that nothing of a prediction has seen what it predicts.

    Parameters
    ----------
    left_out : mapping of str to LeftOut
        By group.
    build : callable
        Makes the profile of a group's fold, such as `fold_profile`.
    """

    def __init__(self, left_out: Mapping[str, LeftOut], build: Callable[[str, LeftOut, int], ProfileSpec]) -> None:
        self.left_out, self._build = left_out, build
        self._built: dict[tuple[str, int], ProfileSpec] = {}

    def without(self, group: str, series: str, device: str) -> ProfileSpec | None:
        """The profile that has not seen a series, or the device; None where every fit has, or none covers the group."""
        found = self.left_out.get(group)
        if found is None:
            return None
        fold = found.fold_of(series if found.key == "series" else device)
        if fold is None:
            return None
        if (group, fold) not in self._built:
            self._built[group, fold] = self._build(group, found, fold)
        return self._built[group, fold]


def fold_profile(nominal: ProfileSpec, group: str, found: LeftOut, fold: int) -> ProfileSpec:
    """The profile of one fold of a group."""
    kept = found.kept(fold)
    errors = found.errors[kept]
    samples = [found.samples[place] for place in kept]
    width = interval(samples, errors, errors, SOURCE, _unfitted(group, nominal))
    return profile_of([kernel_group(group, found.folds[fold].fit, width)], nominal)
