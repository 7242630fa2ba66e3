"""Samples as arrays: their times under a profile's factors, and how these change with each factor.

The model of a sample's time is the engine's own,

    t = sum over operators of  n floor + max(B / (eta_m b), min((F + F_1 T_half) / (eta_c P), F / (v V)))

with each of eta_m, eta_c, v, T_half and the floor a product of factors by level (`specs.profile`). It is restated here
for its slopes and for speed; a test holds it to the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from scipy.sparse import csr_matrix

from rooflinellm import units
from rooflinellm.calibration.samples import COLUMNS, Sample
from rooflinellm.efficiency.rates import value
from rooflinellm.specs.profile import KernelGroup, Level

Part = Literal["memory", "compute", "few_tokens", "half_tokens", "floor_us"]
PARTS: tuple[Part, ...] = get_args(Part)

LEVELS: Mapping[Part, tuple[Level, ...]] = {
    "memory": ("kind", "encoding", "memory_type", "cores", "architecture", "device", "era", "variant"),
    "compute": ("kind", "path", "encoding", "cores", "architecture", "device", "era", "variant"),
    "few_tokens": ("encoding", "cores", "architecture"),
    "half_tokens": ("kind",),
    "floor_us": ("kind", "regime", "cores", "architecture", "device", "era", "variant"),
}
"""Levels that each part depends on, coarse to fine."""

START: Mapping[Part, float] = {"memory": 0.8, "compute": 0.4, "few_tokens": 0.3, "half_tokens": 48.0, "floor_us": 10.0}
"""Where the bases start, and what they are drawn to. In the units of `specs.profile.KernelGroup`."""

CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("iq*", ("iq", "tq")),
    ("*_k", ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k")),
    ("*f*16", ("f16", "bf16")),
)
"""Classes that encodings are pooled in: the pattern that a profile shows, and what begins so."""

Parameter = tuple[Part, Level | Literal["base"], str]


def encoding_class(encoding: str) -> str:
    """The pattern of the class that an encoding is pooled in; its own name where it stands alone."""
    return next((pattern for pattern, starts in CLASSES if encoding.startswith(starts)), encoding)


def parameters_of(names: Mapping[Level, str], part: Part) -> list[Parameter]:
    """The factors that a part of an entry of such names is the product of."""
    parameters: list[Parameter] = [(part, "base", "")]
    for level in LEVELS[part]:
        name = names.get(level)
        if name is not None:
            parameters.append((part, level, encoding_class(name) if level == "encoding" else name))
    return parameters


class Design:
    """Samples as arrays, and which factors each entry multiplies.

    Parameters
    ----------
    samples : sequence of Sample
        The samples.
    index : dict of Parameter to int
        Places of the factors; those of a sample that are not in it are 1.
    grow : bool
        Give every factor of the samples a place.
    upon : KernelGroup, optional
        What the factors are multiplied to; None starts from `START`.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        index: dict[Parameter, int],
        *,
        grow: bool = False,
        upon: KernelGroup | None = None,
    ) -> None:
        columns = np.concatenate([sample.columns for sample in samples]).T
        by_name = dict(zip(COLUMNS, columns, strict=True))
        self.launches = by_name["launches"] * units.MICRO
        self.memory, self.memory_step = by_name["memory_s"], by_name["memory_step_s"]
        self.tile, self.tile_step, self.tile_fixed = by_name["tile_s"], by_name["tile_step_s"], by_name["tile_fixed_s"]
        self.vector, self.passes = by_name["vector_s"], by_name["passes"]

        # Many entries are of the same names: their factors are looked up once.
        known: dict[tuple[tuple[Level, str], ...], int] = {}
        kinds = np.array([known.setdefault(names, len(known)) for sample in samples for names in sample.names])
        offsets = np.zeros((len(PARTS), len(known)))
        places: list[list[int]] = []
        parts: list[list[int]] = []
        for kind, names in enumerate(known):
            of_kind: list[tuple[int, int]] = []
            for number, part in enumerate(PARTS):
                if upon is not None:
                    offsets[number, kind] = np.log(value(getattr(upon, part), dict(names)))
                for parameter in parameters_of(dict(names), part):
                    place = index.setdefault(parameter, len(index)) if grow else index.get(parameter)
                    if place is not None:
                        of_kind.append((place, number))
                    elif parameter[1] == "base" and upon is None:
                        offsets[number, kind] = np.log(START[part])
            of_kind.sort()
            places.append([place for place, _ in of_kind])
            parts.append([number for _, number in of_kind])
        self.offsets = dict(zip(PARTS, offsets[:, kinds], strict=True))

        # Each entry's factors: their places, and which part each belongs to.
        lengths = np.array([len(each) for each in places])
        starts = np.cumsum(lengths) - lengths
        ends = np.cumsum(lengths[kinds])
        self._rows = np.repeat(np.arange(len(kinds)), lengths[kinds])
        picked = np.arange(len(self._rows)) - (ends - lengths[kinds] - starts[kinds])[self._rows]
        self._part = np.array([number for each in parts for number in each], dtype=int)[picked]
        self._factors = csr_matrix(
            (
                np.ones(len(picked)),
                np.array([place for each in places for place in each], dtype=int)[picked],
                np.concatenate([[0], ends]),
            ),
            shape=(len(kinds), len(index)),
        )
        self.select = {part: self._scaled(self._part == number).copy() for number, part in enumerate(PARTS)}
        for each in self.select.values():
            each.eliminate_zeros()
        numbers = np.repeat(np.arange(len(samples)), [len(sample.names) for sample in samples])
        self.sum = csr_matrix((np.ones(len(kinds)), (numbers, range(len(kinds)))), shape=(len(samples), len(kinds)))

    def evaluate(self, x: Any) -> tuple[Any, dict[Part, Any]]:
        """Predicted times of the samples, and what each entry's time grows by with the logarithm of each part. [s]"""
        log = {part: self.select[part] @ x + self.offsets[part] for part in PARTS}
        memory_scale = np.exp(-np.minimum(log["memory"], 0))
        compute_scale = np.exp(-np.minimum(log["compute"], 0))
        memory = self.memory * memory_scale
        fixed = self.tile_fixed * np.exp(log["half_tokens"])
        full = self.tile * compute_scale
        tile = full + fixed * compute_scale
        few = self.vector * np.exp(-log["few_tokens"])
        vector = np.maximum(few, full)
        floor = self.launches * np.exp(log["floor_us"])
        by_vector = vector < tile
        by_few = by_vector & (full <= few)
        memory_s, compute_s = longer(
            self.passes,
            memory,
            self.memory_step * memory_scale,
            np.where(by_vector, vector, tile),
            self.tile_step * compute_scale,
        )
        slopes: dict[Part, Any] = {
            "memory": np.where(log["memory"] < 0, -memory_s, 0.0),
            "compute": np.where(~by_few & (log["compute"] < 0), -compute_s, 0.0),
            "few_tokens": np.where(by_few, -compute_s, 0.0),
            "half_tokens": np.where(~by_vector & (compute_s > 0), fixed * compute_scale, 0.0),
            "floor_us": floor,
        }
        return self.sum @ (floor + memory_s + compute_s), slopes

    def jacobian(self, slopes: Mapping[Part, Any]) -> Any:
        """Derivative of the samples' times by the logarithms of the factors. [s]"""
        by_part = np.stack([slopes[part] for part in PARTS])
        return self.sum @ self._scaled(by_part[self._part, self._rows])

    def _scaled(self, data: Any) -> Any:
        """The factors of each entry, each times a number."""
        return csr_matrix((data.astype(float), self._factors.indices, self._factors.indptr), self._factors.shape)


def longer(count: Any, a: Any, a_step: Any, b: Any, b_step: Any) -> tuple[Any, Any]:
    """Sum of max(a + i a_step, b + i b_step) over i = 0 … count-1, apart by which of them it is.

    Parameters
    ----------
    count : ndarray
        Number of steps, at least 1. [-]
    a, b : ndarray
        The two at step 0.
    a_step, b_step : ndarray
        What each grows by from step to step.

    Returns
    -------
    tuple of ndarray
        Sums of the steps at which `a` is the longer, and of those at which `b` is; together `roofline.sum_of_max`.
    """
    ahead, gain = a - b, a_step - b_step
    first_a = ahead >= 0
    crosses = np.where(first_a, gain < 0, gain > 0)
    reach = np.ceil(np.abs(ahead) / np.where(crosses, np.abs(gain), 1.0))
    head = np.where(crosses, np.minimum(reach, count), count)

    def total(steps: Any, first: Any, step: Any) -> Any:
        return steps * first + step * (steps * (steps - 1) / 2)

    a_head, b_head = total(head, a, a_step), total(head, b, b_step)
    a_tail, b_tail = total(count, a, a_step) - a_head, total(count, b, b_step) - b_head
    return np.where(first_a, a_head, a_tail), np.where(first_a, b_tail, b_head)
