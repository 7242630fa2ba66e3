"""Results of one's own device on top of a profile: what they can tell, and nothing else, is fitted.

A device gets one factor for its bandwidth, one for its arithmetic and one for its floors, each drawn to the profile's
own value (partial pooling): a few results move it a little, many as far as they say, and what they do not touch, such
as arithmetic where only decode was measured, stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np

from rooflinellm.calibration.design import Design, Parameter, Part
from rooflinellm.calibration.fit import GroupFit, rounded, solve
from rooflinellm.calibration.folds import LeftOut, leave_out
from rooflinellm.calibration.intervals import device_weights, half_width, is_batched
from rooflinellm.calibration.profile import SOURCE
from rooflinellm.calibration.samples import Sample
from rooflinellm.efficiency.rates import value, width
from rooflinellm.specs.common import Source
from rooflinellm.specs.profile import Factors, Interval, KernelGroup, Level, ProfileSpec

OWN_PARTS: tuple[Part, ...] = ("memory", "compute", "floor_us")
"""What a device has a factor of."""
PULL_SEEN, PULL_UNSEEN = 1.0, 0.4
"""Strength of the pull towards the profile's value, of devices that it was fitted to and of others. [-]

Chosen by taking two to eight results of each of 70 shipped devices and predicting its others.
"""
MOST_FOLDS = 20
"""Fits by which held-out errors are measured; up to so many series, each has its own. [-]"""
ENOUGH = 10
"""Held-out errors of a phase from which on they alone decide how wide its interval is. [-]"""
DEVICE_LEVELS: tuple[Level, ...] = ("device", "architecture", "memory_type", "cores")
"""Levels of which a profile for some devices keeps their own names only."""
WIDTHS = ("decode", "prefill", "decode_batched")


def device_id(sample: Sample) -> str:
    """The entry of a sample's device."""
    return sample.entries[0].names["device"]


def fit_own(samples: Sequence[Sample], upon: KernelGroup) -> GroupFit:
    """Fit the factors of the samples' devices.

    Parameters
    ----------
    samples : sequence of Sample
        Of one engine and backend.
    upon : KernelGroup
        What a profile says of these.
    """
    devices = sorted({device_id(sample) for sample in samples})
    parameters: list[Parameter] = [(part, "device", device) for device in devices for part in OWN_PARTS]
    index = {parameter: place for place, parameter in enumerate(parameters)}
    design = Design(samples, index, upon=upon)
    pull = np.array([PULL_SEEN if device in upon.evidence else PULL_UNSEEN for _, _, device in index])
    found = solve(design, samples, np.zeros(len(index)), pull)
    current = Counter(device_id(sample) for sample in samples if "era" not in sample.entries[0].names)
    return GroupFit(dict(zip(index, map(float, found), strict=True)), dict(sorted(current.items())))


def leave_out_own(samples: Sequence[Sample], upon: KernelGroup) -> LeftOut:
    """Predict each series by a fit to the others, on top of a profile."""
    fit = partial(fit_own, upon=upon)
    return leave_out(samples, "series", count=MOST_FOLDS, fit=fit, upon=upon)


def own_group(name: str, fit: GroupFit, upon: KernelGroup, samples: Sequence[Sample], errors: Any) -> KernelGroup:
    """What a profile says of an engine and backend, for some devices, with their factors multiplied in.

    Parameters
    ----------
    name : str
        Engine and backend.
    fit : GroupFit
        Factors of the devices.
    upon : KernelGroup
        What the profile says.
    samples : sequence of Sample
        What was fitted.
    errors : ndarray
        Their held-out errors, logarithms; NaN where there is none. [-]
    """
    engine, _, backend = name.partition(":")
    names = {level: {sample.entries[0].names.get(level, "") for sample in samples} for level in DEVICE_LEVELS}
    own: Mapping[Part, Mapping[str, float]] = {
        part: {device: fit.logs.get((part, "device", device), 0.0) for device in sorted(names["device"])}
        for part in OWN_PARTS
    }
    parts = {
        part: _narrowed(getattr(upon, part), names, own.get(part, {}))
        for part in ("memory", "compute", "few_tokens", "half_tokens", "floor_us")
    }
    return KernelGroup(
        engines=(engine,),
        backends=(backend,),
        devices=tuple(sorted(names["device"])),
        interval=own_interval(samples, errors, upon),
        evidence=fit.evidence,
        source=SOURCE,
        **parts,
    )


def _narrowed(factors: Factors, names: Mapping[Level, set[str]], own: Mapping[str, float]) -> Factors:
    """Factors without those of other devices, and with the logarithms of their own multiplied in."""
    by: dict[Level, dict[str, float]] = {}
    for level, table in factors.by.items():
        kept = table
        if level in names:
            kept = {key: each for key, each in table.items() if any(fnmatchcase(name, key) for name in names[level])}
        if kept and level != "device":
            by[level] = kept
    shipped = Factors(base=1, by={"device": factors.by.get("device", {})})
    devices = {name: rounded(value(shipped, {"device": name}) * np.exp(own.get(name, 0.0))) for name in names["device"]}
    devices = {name: factor for name, factor in sorted(devices.items()) if factor != 1}
    if devices:
        by["device"] = devices
    return Factors(base=factors.base, by=by)


def own_interval(samples: Sequence[Sample], errors: Any, upon: KernelGroup) -> Interval:
    """The interval of measured devices: of their own held-out errors; while these are few, no narrower than others'.

    Where there is none at all, it is the profile's: the wide one of unseen devices for a device that it has not seen.

    Parameters
    ----------
    samples : sequence of Sample
        What was fitted.
    errors : ndarray
        Held-out errors, logarithms; NaN where there is none. [-]
    upon : KernelGroup
        What the profile says.
    """
    unseen = {device_id(sample) for sample in samples} - upon.evidence.keys()
    found: dict[str, float] = {}
    for name in WIDTHS:
        places = [place for place, sample in enumerate(samples) if _kind(sample) == name]
        part, known = [samples[place] for place in places], errors[places]
        held = int(np.sum(~np.isnan(known)))
        shown = f"{name}_unseen" if unseen and not held and name != "decode_batched" else name
        before = [_width(upon.interval, shown, sample) for sample in samples]
        least = max((each for each in before if each is not None), default=None)
        own = half_width(known, device_weights(part)) if held else None
        widest = [each for each in (own, None if held >= ENOUGH else least) if each is not None]
        if widest:
            found[name] = max(widest)
    return Interval.model_validate({**found, "source": SOURCE})


def _width(interval: Interval, name: str, sample: Sample) -> Any:
    names, kinds = sample.entries[0].names, {entry.names["kind"] for entry in sample.entries}
    return width(interval, name, names, kinds) or width(interval, name.removesuffix("_unseen"), names, kinds)


def _kind(sample: Sample) -> str:
    return "decode_batched" if is_batched(sample) else sample.phase


def own_profile(groups: Sequence[KernelGroup], base: ProfileSpec, profile_id: str, files: Sequence[str]) -> ProfileSpec:
    """A profile of measured devices alone; for all others the one it was fitted on top of still holds.

    Parameters
    ----------
    groups : sequence of KernelGroup
        Of `own_group`.
    base : ProfileSpec
        What they were fitted on top of.
    profile_id : str
        Its id: the name of its file.
    files : sequence of str
        Names of the files of results.
    """
    title = f"Fitted by `rooflinellm calibrate` to {', '.join(files)}, on top of the profile '{base.id}'"
    return ProfileSpec.model_validate(
        {
            "schema": 1,
            "id": profile_id,
            "name": "Efficiencies of own measurements",
            "basis": "measured",
            "groups": list(groups),
            "decode_power_fraction": base.decode_power_fraction,
            "prefill_power_fraction": base.prefill_power_fraction,
            "sources": {SOURCE: Source(title=title)},
        }
    )
