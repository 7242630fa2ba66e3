"""Weight formats in steps: those that people choose from, the most bits first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rooflinellm import catalog
from rooflinellm.api import lookup
from rooflinellm.api.lists import model_sizes
from rooflinellm.operators.model import ModelSpec

STEPS = {
    "gguf": (
        *("bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "iq3_xxs", "q2_k", "iq2_xs", "iq2_xxs"),
        "iq1_m",
    ),
    "hf": ("bf16", "fp8", "w4a16"),
    "mlx": ("bf16", "8bit", "6bit", "5bit", "4bit", "3bit"),
    "exl": ("exl3-8.0", "exl3-6.0", "exl3-5.0", "exl3-4.0", "exl3-3.5", "exl3-3.0", "exl3-2.5"),
}
"""One format for each size, by family: the common one of those that take about the same."""
TYPICAL, FAR = "llama-3.1-8b", 0.8
"""A model of common shapes, and how far formats of others may be from it: experts or embeddings may keep their own."""
NO_MORE_BITS = 1.06
"""A format with more bits than this many times those of the model as it was released holds nothing more. [-]"""

SAME_BITS = 0.98
"""Formats with at least this share of another's bits count as the same size. [-]"""


class Step(NamedTuple):
    """A weight format of a model.

    Attributes
    ----------
    weights : str
        The format.
    bits_per_weight : float
        All weights over all parameters. [bit]
    resident_bytes : int
        All weights. [byte]
    """

    weights: str
    bits_per_weight: float
    resident_bytes: int


def sized(model: ModelSpec, formats: Iterable[str]) -> list[Step]:
    """Formats of a model, the most bits first; errors as in `rooflinellm.catalog.weight_format`."""
    found = [Step(*each.values()) for each in model_sizes(model, formats)]
    return sorted(found, key=lambda step: (-step.bits_per_weight, step.weights))


@lru_cache(maxsize=256)
def _typical_bits(name: str) -> float:
    """Bits per weight of a format in a dense model of common shapes. [bit]"""
    return sized(lookup.model(TYPICAL), [name])[0].bits_per_weight


def ladder(
    model: ModelSpec, families: Iterable[str], *, least_bits: float = 0.0, most_bits: float = math.inf
) -> list[Step]:
    """The steps of some families, the most bits first, from what the model was released in downwards.

    Parameters
    ----------
    model : ModelSpec
        The model; its native format stands for the family's of that name, and for what no format can exceed.
    families : iterable of str
        Families of formats that an engine reads, as in `EngineSpec.format_families`.
    least_bits, most_bits : float
        Formats that typically have far fewer or far more are not looked at, as it takes time. [bit]

    Returns
    -------
    list of Step
    """
    native = catalog.weight_format(model.native_format)
    own = native.id.partition(":")[2]
    (released,) = sized(model, [native.id])
    found: list[Step] = []
    for family in families:
        known = {entry.id for entry in catalog.list_formats() if entry.id.startswith(f"{family}:")}
        names = [name for step in dict.fromkeys((own, *STEPS[family])) if (name := f"{family}:{step}") in known]
        names = [
            name
            for name in names
            if name == f"{family}:{own}" or least_bits * FAR < _typical_bits(name) < most_bits / FAR
        ]
        steps = sized(model, names)
        most = next((step.bits_per_weight for step in steps if step.weights == f"{family}:{own}"), None)
        most = released.bits_per_weight * NO_MORE_BITS if most is None else most
        found += _apart([step for step in steps if step.bits_per_weight <= most] or steps[-1:])
    return sorted(found, key=lambda step: (-step.bits_per_weight, step.weights))


def _apart(steps: list[Step]) -> list[Step]:
    """The steps without those about as large as the one before: a model's experts may keep their own format."""
    found = steps[:1]
    for step in steps[1:]:
        if step.bits_per_weight < SAME_BITS * found[-1].bits_per_weight:
            found.append(step)
    return found
