"""Compute paths: which of a device's peaks an engine's kernels use for given weights, cache and pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from rooflinellm import catalog
from rooflinellm.errors import InvalidRequest, MissingSpec, RooflineError
from rooflinellm.specs.engine import Backend, PathRule, Rule
from rooflinellm.specs.hardware import HardwareSpec

MONTH = len("2024-05")

AnyRule = TypeVar("AnyRule", bound=Rule)


@dataclass(frozen=True, slots=True)
class ComputePath:
    """The peak an operator computes at from so many tokens in a pass on.

    Attributes
    ----------
    min_tokens : int
        Tokens of a pass from which on the path is taken. [token]
    key : str
        ``precision.accumulate``.
    """

    min_tokens: int
    key: str


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths of one operator: by tokens for the expectation, the fastest of all for the ideal."""

    expected: tuple[ComputePath, ...]
    ideal_key: str


def weight_paths(
    backend: Backend, device: HardwareSpec, encoding: str, *, where: str, build: str | None = None
) -> Paths:
    """Paths of a product with weights of one encoding.

    Parameters
    ----------
    backend : Backend
        The engine's rules for this kind of device.
    device : HardwareSpec
        The device.
    encoding : str
        Encoding of the weights, such as ``q4_k``.
    where : str
        Engine and backend, for the message.
    build : str, optional
        Date of the engine's build, as ``2024-05``; None is a current one.

    Raises
    ------
    InvalidRequest
        No rule covers the encoding: the engine cannot compute with it.
    MissingSpec
        The device has none of the peaks that the rules use.
    """
    rules = [rule for rule in backend.rules if fits_any(rule.weights, encoding) and _applies(rule, device, build)]
    if not rules:
        raise InvalidRequest(
            f"{where} does not compute with weights in {encoding} on {device.name}",
            where="weights",
            next_step=other_engines(device, encoding=encoding),
        )
    starts = sorted({0, *(int(rule.tokens.lstrip(">=<")) for rule in rules if rule.tokens)})
    expected: list[ComputePath] = []
    for start in starts:
        key = _first_available((rule for rule in rules if _covers(rule, start)), device)
        if key is not None and (not expected or expected[-1].key != key):
            expected.append(ComputePath(start if expected else 0, key))
    return Paths(tuple(expected), _fastest(_reached(rules, device), device, f"weights in {encoding}", where))


def attention_paths(
    backend: Backend, device: HardwareSpec, kv: Iterable[str], *, where: str, build: str | None = None
) -> Paths:
    """Paths of attention over a cache of the given types; as `weight_paths`."""
    kv = tuple(kv)
    rules = [
        rule
        for rule in backend.attention
        if all(fits_any(rule.kv, name) for name in kv) and _applies(rule, device, build)
    ]
    if not rules:
        raise InvalidRequest(
            f"{where} does not compute with a cache in {'/'.join(kv)} on {device.name}",
            where="kv",
            next_step="Choose another type for the cache, or leave it out.",
        )
    fastest = _fastest(_reached(rules, device), device, f"a cache in {'/'.join(kv)}", where)
    return Paths((ComputePath(0, _first_available(rules, device) or fastest),), fastest)


def runs_on(backend: Backend, device: HardwareSpec) -> bool:
    """Whether a backend is made for a device: its vendor, its kind and its architecture. All are for an ad hoc one."""
    if device.ad_hoc:
        return True
    vendor_fits = "*" in backend.vendors or device.vendor.lower() in backend.vendors
    kind_fits = backend.kinds is None or device.kind in backend.kinds
    return vendor_fits and kind_fits and fits_architecture(backend.architectures, device)


def other_engines(device: HardwareSpec, *, encoding: str | None = None, family: str | None = None) -> str:
    """What to do next where an engine cannot run a request: the engines that can, by name.

    Parameters
    ----------
    device : HardwareSpec
        The device.
    encoding : str, optional
        An encoding that they must compute with.
    family : str, optional
        A family of formats that they must read.

    Returns
    -------
    str
        A sentence.
    """
    able = []
    for listed in catalog.list_engines():
        try:
            engine = catalog.engine(listed.id)[0]
        except RooflineError:  # a broken file troubles only those who ask for it
            continue
        if family is not None and family not in engine.format_families:
            continue
        backends = [backend for backend in engine.backends.values() if runs_on(backend, device)]
        if any(encoding is None or _computes_with(backend, device, encoding) for backend in backends):
            able.append(engine.id)
    what = encoding or (f"{family} formats" if family else "models")
    if not able:
        return f"No engine in the database runs {what} on {device.name}."
    return f"Engines that run {what} on {device.name}: {', '.join(able)}."


def fits_architecture(patterns: Iterable[str] | None, device: HardwareSpec) -> bool:
    """Whether a pattern fits the device's architecture or its instruction set; None fits all."""
    if patterns is None:
        return True
    patterns = tuple(patterns)
    return fits_any(patterns, device.architecture) or (device.isa is not None and fits_any(patterns, device.isa))


def fits_any(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns fits a name; case does not matter."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _applies(rule: Rule, device: HardwareSpec, build: str | None) -> bool:
    """Whether a rule holds on the device and for a build of that date."""
    if not fits_architecture(rule.architectures, device):
        return False
    if build is None:
        return rule.until is None
    month = build[:MONTH]
    return (rule.since is None or month >= rule.since) and (rule.until is None or month < rule.until)


def _computes_with(backend: Backend, device: HardwareSpec, encoding: str) -> bool:
    rules = (rule for rule in backend.rules if fits_any(rule.weights, encoding) and _applies(rule, device, None))
    return _first_available(rules, device) is not None


def _reached(rules: Sequence[AnyRule], device: HardwareSpec) -> Sequence[AnyRule]:
    """The rules that passes of some size come to: up to the first for all sizes whose peak the device has."""
    for index, rule in enumerate(rules):
        for_all = not isinstance(rule, PathRule) or rule.tokens is None
        if for_all and _first_available([rule], device) is not None:
            return rules[: index + 1]
    return rules


def _covers(rule: PathRule, tokens: int) -> bool:
    if rule.tokens is None:
        return True
    limit = int(rule.tokens.lstrip(">=<"))
    return tokens >= limit if rule.tokens.startswith(">=") else tokens < limit


def _first_available(rules: Iterable[Rule], device: HardwareSpec) -> str | None:
    return next((key for rule in rules for key in rule.use if key in device.peaks), None)


def _fastest(rules: Iterable[Rule], device: HardwareSpec, what: str, where: str) -> str:
    wanted = [key for rule in rules for key in rule.use]
    available = [key for key in wanted if key in device.peaks]
    if not available:
        raise MissingSpec(
            f"{device.id} has none of the peaks that {where} uses for {what}: {', '.join(dict.fromkeys(wanted))}"
            f" (it has {', '.join(device.peaks)})",
            where=f"{device.id}, field peaks",
            next_step="Add the peak to the device's file with its source, or choose another format or engine.",
        )
    return max(available, key=device.peaks.__getitem__)
