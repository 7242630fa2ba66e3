"""Compute paths: which of a device's peaks an engine's kernels use for given weights, cache and pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rooflinellm.errors import MissingSpec
from rooflinellm.specs.engine import AttentionRule, Backend, PathRule
from rooflinellm.specs.hardware import HardwareSpec


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


def weight_paths(backend: Backend, device: HardwareSpec, encoding: str, *, where: str) -> Paths:
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

    Raises
    ------
    MissingSpec
        No rule covers the encoding, or the device has none of the peaks that the rules use.
    """
    rules = [
        rule
        for rule in backend.rules
        if _matches(rule.weights, encoding) and _has_architecture(rule.architectures, device)
    ]
    if not rules:
        raise MissingSpec(
            f"no compute path for weights in {encoding} on {device.id}",
            where=f"{where}, field rules",
            next_step="Choose another format or engine: `rooflinellm format list`.",
        )
    starts = sorted({0, *(int(rule.tokens.lstrip(">=<")) for rule in rules if rule.tokens)})
    expected: list[ComputePath] = []
    for start in starts:
        key = _first_available((rule for rule in rules if _covers(rule, start)), device)
        if key is not None and (not expected or expected[-1].key != key):
            expected.append(ComputePath(start, key))
    return Paths(tuple(expected), _fastest(rules, device, f"weights in {encoding}", where))


def attention_paths(backend: Backend, device: HardwareSpec, kv: Iterable[str], *, where: str) -> Paths:
    """Paths of attention over a cache of the given types; as `weight_paths`."""
    kv = tuple(kv)
    rules = [
        rule
        for rule in backend.attention
        if all(_matches(rule.kv, name) for name in kv) and _has_architecture(rule.architectures, device)
    ]
    fastest = _fastest(rules, device, f"a cache in {'/'.join(kv)}", where)
    key = _first_available(rules, device)
    return Paths((ComputePath(0, key or fastest),), fastest)


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def _has_architecture(architectures: tuple[str, ...] | None, device: HardwareSpec) -> bool:
    return architectures is None or _matches(architectures, device.architecture)


def _covers(rule: PathRule, tokens: int) -> bool:
    if rule.tokens is None:
        return True
    limit = int(rule.tokens.lstrip(">=<"))
    return tokens >= limit if rule.tokens.startswith(">=") else tokens < limit


def _first_available(rules: Iterable[PathRule | AttentionRule], device: HardwareSpec) -> str | None:
    return next((key for rule in rules for key in rule.use if key in device.peaks), None)


def _fastest(rules: Iterable[PathRule | AttentionRule], device: HardwareSpec, what: str, where: str) -> str:
    wanted = [key for rule in rules for key in rule.use]
    available = [key for key in wanted if key in device.peaks]
    if not available:
        raise MissingSpec(
            f"{device.id} has none of the peaks that {where} uses for {what}: {', '.join(dict.fromkeys(wanted)) or 'none'}"
            f" (it has {', '.join(device.peaks)})",
            where=f"{device.id}, field peaks",
        )
    return max(available, key=device.peaks.__getitem__)
