"""Evaluate a profile for one device, engine and backend."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, TypeVar

from rooflinellm import units
from rooflinellm._kept import Kept
from rooflinellm._numeric import where
from rooflinellm.errors import MissingSpec
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.profile import Factors, Interval, KernelGroup, Level, ProfileSpec, Way, WayName, Widths

Names = Mapping[Level, str]
T = TypeVar("T")
NO_WIDTHS = Widths()

FEW_TOKENS = 8
"""Tokens of a pass up to which matrix-vector kernels serve it: a decode step or a very short prompt. [token]"""
FEW, MANY = "few", "many"
"""Names on the level `regime`: floors of a decode step, and those that long prompts come to."""
MANY_HALF = 64
"""Tokens after the first at which floors are half way from the one to the other. [token]"""


def value(factors: Factors, names: Names) -> float:
    """The product of a base and the factors of the names at hand.

    Parameters
    ----------
    factors : Factors
        Base and factors by level.
    names : mapping of Level to str
        The name on each level; a level that is absent has the factor 1.

    Returns
    -------
    float
        In the unit of the base.
    """
    product = factors.base
    for level, table in factors.by.items():
        name = names.get(level)
        if name is not None:
            product *= _matching(table, name, 1.0)
    return product


def _matching(table: Mapping[str, T], name: str, otherwise: T) -> T:
    """What a table says of a name: under the name itself, else under the first pattern that matches it."""
    exact = table.get(name)
    if exact is not None:
        return exact
    return next((said for pattern, said in table.items() if fnmatchcase(name, pattern)), otherwise)


def width(interval: Interval, name: str, names: Names, kinds: Collection[str] = ()) -> Any:
    """One of the widths of an interval.

    Parameters
    ----------
    interval : Interval
        A group's.
    name : str
        Which, as a field of `specs.profile.Widths`.
    names : mapping of Level to str
        The device's name on each level.
    kinds : collection of str
        Kinds of operators that the model has.

    Returns
    -------
    float or None
        Of the kind of device or of model where that has its own, the widest of several, else the group's; None where
        neither says. [-]
    """
    found = [
        getattr(_matching(table, each, NO_WIDTHS), name)
        for level, table in interval.by.items()
        for each in (kinds if level == "kind" else (names.get(level, ""),))
    ]
    return max((own for own in found if own is not None), default=getattr(interval, name))


def share_of_many(new_tokens: Any) -> Any:
    """Where floors of a pass lie between those of few and of many tokens of a sequence: 0 for a decode step. [-]

    w = (T - 1) / (T - 1 + `MANY_HALF`)
    """
    more = new_tokens - 1
    return more / (more + MANY_HALF)


@dataclass(frozen=True)
class Rates:
    """What a profile says of one device under one engine.

    Attributes
    ----------
    group : KernelGroup
        The part of the profile that applies.
    names : mapping of Level to str
        The device's names on the levels that factors may depend on.
    basis : str
        ``nominal``, ``calibrated`` or ``measured``.
    decode_power_fraction, prefill_power_fraction : float
        Share of the rated power that a phase draws. [-]
    """

    group: KernelGroup
    names: Names
    basis: str
    decode_power_fraction: float
    prefill_power_fraction: float

    def decode_interval(self, sequences: Any, kinds: frozenset[str] = frozenset()) -> Any:
        """Factor between the expected decode time of a batch and either end of its interval. [-]

        `kinds` are those of the operators that the model has.
        """
        seen = self._width("decode", kinds)
        unseen = self._width("decode_unseen", kinds) or seen
        alone = seen if self.evidence else unseen
        return where(sequences > 1, self._width("decode_batched", kinds) or max(unseen, alone), alone)

    def prefill_interval(self, kinds: frozenset[str] = frozenset()) -> float:
        """Factor between the expected prefill time and either end of its interval, `kinds` as in decode. [-]"""
        seen: float = self._width("prefill", kinds)
        return seen if self.evidence else self._width("prefill_unseen", kinds) or seen

    def _width(self, name: str, kinds: frozenset[str]) -> Any:
        key = name, kinds
        if key not in self._widths:
            self._widths[key] = width(self.group.interval, name, self.names, kinds)
        return self._widths[key]

    @cached_property
    def _widths(self) -> dict[tuple[str, frozenset[str]], Any]:
        """Widths that were looked up already."""
        return {}

    def memory(self, kind: str, encoding: str | None) -> float:
        """Share of the printed bandwidth that an operator sustains. [-]"""
        return min(self._value("memory", kind, encoding), 1.0)

    def compute(self, kind: str, encoding: str | None, path: str) -> float:
        """Share of a path's peak that an operator reaches with many tokens. [-]"""
        return min(self._value("compute", kind, encoding, "path", path), 1.0)

    def few_tokens(self, kind: str, encoding: str | None) -> float:
        """Rate of matrix-vector kernels over the 32-bit vector peak. [-]"""
        return self._value("few_tokens", kind, encoding)

    def half_tokens(self, kind: str, encoding: str | None, path: str) -> float:
        """Tokens at which a product reaches half of its share. [token]"""
        return self._value("half_tokens", kind, encoding, "path", path)

    def floor_s(self, kind: str, regime: str) -> float:
        """Least time of an operator in passes of few or many tokens. [s]"""
        return self._value("floor_us", kind, None, "regime", regime) * units.MICRO

    @property
    def evidence(self) -> int:
        """Series that the fit saw on this device. [-]"""
        return self.group.evidence.get(self.names["device"], 0)

    @cached_property
    def _known(self) -> dict[tuple[str, ...], float]:
        """What was looked up already."""
        return {}

    def _value(
        self, field: str, kind: str, encoding: str | None, level: Literal["path", "regime"] = "path", name: str = ""
    ) -> float:
        """What a field of the group says of an operator, on one more level where its name is given."""
        key = field, kind, encoding or "", name
        if key not in self._known:
            names: dict[Level, str] = {**self.names, "kind": kind}
            if encoding is not None:
                names["encoding"] = encoding
            if name:
                names[level] = name
            self._known[key] = value(getattr(self.group, field), names)
        return self._known[key]


def rates(
    profiles: Sequence[ProfileSpec],
    device: HardwareSpec,
    engine: str,
    backend: str,
    era: str | None = None,
    variant: str | None = None,
) -> Rates:
    """Look up what profiles say: the first group of the first profile that matches engine, backend and device.

    Parameters
    ----------
    profiles : sequence of ProfileSpec
        The profiles, the preferred one first.
    device : HardwareSpec
        The device.
    engine, backend : str
        Ids, such as ``llama.cpp`` and ``cuda``.
    era : str, optional
        Of the engine's build, see `EngineSpec.era`; None is the current one.
    variant : str, optional
        Id of the engine that is asked for, where it is a variant of `engine`.

    Returns
    -------
    Rates

    Raises
    ------
    MissingSpec
        No profile says anything about the engine and backend.
    """
    names = engine, backend, era, variant
    return _kept.of((*profiles, device), names, lambda: _rates(profiles, device, *names))


def _rates(
    profiles: Sequence[ProfileSpec],
    device: HardwareSpec,
    engine: str,
    backend: str,
    era: str | None,
    variant: str | None,
) -> Rates:
    found = group_for(profiles, engine, backend, device.id)
    if found is None:
        known = ", ".join(profile.id for profile in profiles)
        raise MissingSpec(f"no efficiency for {engine} on {backend}", where=f"profiles {known}, field groups")
    profile, group = found
    power = profile.decode_power_fraction, profile.prefill_power_fraction
    return Rates(group, _names_of(device, era, variant), profile.basis, *power)


_kept = Kept[Rates](1024)


def group_for(
    profiles: Sequence[ProfileSpec], engine: str, backend: str, device: str
) -> tuple[ProfileSpec, KernelGroup] | None:
    """The first group of the first profile whose patterns match some ids, and that profile."""
    for profile in profiles:
        for group in profile.groups:
            patterns = ((group.engines, engine), (group.backends, backend), (group.devices, device))
            if all(_matches(*pair) for pair in patterns):
                return profile, group
    return None


def way(profiles: Sequence[ProfileSpec], name: WayName) -> Way:
    """Look up what copies between places reach: the first profile that says.

    Raises
    ------
    MissingSpec
        No profile says anything about it.
    """
    for profile in profiles:
        if name in profile.ways:
            return profile.ways[name]
    known = ", ".join(profile.id for profile in profiles)
    raise MissingSpec(f"no rate for copies of kind {name}", where=f"profiles {known}, field ways")


def _names_of(device: HardwareSpec, era: str | None, variant: str | None) -> dict[Level, str]:
    names: dict[Level, str] = {
        "memory_type": device.memory.type.partition("-")[0],
        "architecture": device.architecture,
        "device": device.id,
    }
    if device.kind == "cpu" and device.compute_units is not None:
        names["cores"] = str(2 ** round(math.log2(device.compute_units)))
    if era is not None:
        names["era"] = era
    if variant is not None:
        names["variant"] = variant
    return names


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
