"""Estimates for several values of an override: one after the other, their answers stacked into arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.results import Estimate, MemoryPlan, Phase

MAX_CASES = 100_000


def each(ask: Callable[..., Estimate], overrides: Mapping[str, Any], numbers: Mapping[str, Any]) -> Estimate:
    """Ask once for each element of the arrays, and stack the answers.

    Parameters
    ----------
    ask : callable
        Takes `overrides` and the numbers as keywords.
    overrides : mapping of str to Any
        Values by path, some of them arrays.
    numbers : mapping of str to Any
        Further keywords that may be arrays; all arrays broadcast together.

    Returns
    -------
    Estimate
        With arrays of the common shape.

    Raises
    ------
    InvalidRequest
        Arrays that do not broadcast, or too many cases.
    """
    import numpy as np

    paths, names = list(overrides), list(numbers)
    values = [*overrides.values(), *numbers.values()]
    try:
        arrays = [np.asarray(value, dtype=object) for value in values]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        raise InvalidRequest(f"arrays do not broadcast: {error}", where="overrides") from error
    cases = [np.broadcast_to(array, shape).ravel().tolist() for array in arrays]
    if not 1 <= len(cases[0]) <= MAX_CASES:
        raise InvalidRequest(f"{len(cases[0]):,} cases; from 1 to {MAX_CASES:,} are allowed", where="overrides")
    answers = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        for case in zip(*cases, strict=True):
            tried = dict(zip(paths, case[: len(paths)], strict=True))
            answers.append(ask(overrides=tried, **dict(zip(names, case[len(paths) :], strict=True))))
    return stack(answers, shape)


def stack(answers: Sequence[Estimate], shape: tuple[int, ...]) -> Estimate:
    """One estimate that holds, at each index, what the estimate of that index holds.

    Parameters
    ----------
    answers : sequence of Estimate
        In the order of a flattened array.
    shape : tuple of int
        The array's shape.

    Returns
    -------
    Estimate
        Model and hardware are those of the first.
    """
    first = answers[0]
    changed = {
        field.name: _stacked([getattr(answer, field.name) for answer in answers], shape)
        for field in fields(Estimate)
        if field.name not in ("model", "hardware", "_assumptions", "warnings", "weights", "kv", "engine", "evidence")
    }
    said = tuple(dict.fromkeys(text for answer in answers for text in answer.warnings))
    return replace(first, **changed, warnings=said)


def _stacked(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    first = values[0]
    if is_dataclass(first) and not isinstance(first, type):
        own = {
            field.name: _stacked([getattr(value, field.name) for value in values], shape)
            for field in fields(first)
            if not field.name.startswith("_")
        }
        return replace(first, **own, **_views(values, shape))
    if isinstance(first, Mapping):
        return {key: _stacked([value[key] for value in values], shape) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(list(group), shape) for group in zip(*values, strict=True))
    if first is None or (isinstance(first, str) and all(value == first for value in values)):
        return first
    import numpy as np

    return np.array(values).reshape(shape)


def _views(values: Sequence[Any], shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """What a result computes when it is read."""
    if isinstance(values[0], Phase):
        return {
            "_ratios": lambda: _stacked([phase.ratios for phase in values], shape),
            "_operators": lambda: _stacked([phase.operators for phase in values], shape),
            "_by_place": lambda: _stacked([phase.by_place for phase in values], shape),
        }
    if isinstance(values[0], MemoryPlan):
        return {
            "_largest_context": lambda: _stacked([memory.max_context_tokens for memory in values], shape),
            "_largest_batch": lambda: _stacked([memory.max_batch for memory in values], shape),
        }
    return {}
