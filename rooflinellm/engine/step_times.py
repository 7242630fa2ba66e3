"""Times of single steps of a server: passes in which some sequences decode and prompts are computed beside them.

The engine answers once, over arrays; after that a step is a look-up. With B sequences decoding over c tokens each on
average, and chunks of p_i tokens over q_i cached ones,

    T = w(B + sum p_i) + f(max p_i) + h(B + prompts that end) + s(B) + B (a(c) - a(0)) + sum s_p(p_i, q_i)

w is the time of products with weights, f what floors of prompts take over those of decode steps, h the time of the
head, s and s_p that of attention and recurrent state; all of them are times of `engine.phases`, which adds operators up
and attention sequence by sequence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from rooflinellm.efficiency.rates import FEW_TOKENS
from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.phases import phase_time
from rooflinellm.engine.plan import Plan
from rooflinellm.roofline import Overlap

NOTHING = Run(1, 1, 0, 0)
"""Passes of which there are none."""
BLOCK = 65_536
"""Points that the engine evaluates at a time. [-]"""
RATIO = 1.12
"""Spacing of the grid of chunks: it keeps the error of interpolation in a product of two lengths below 0.4 %. [-]"""
MULTIPLES = 64
"""Full chunks of one prompt whose times are exact. [-]"""


class StepTimes:
    """Times of steps of one plan.

    Parameters
    ----------
    plan : Plan
        The plan.
    skew : float
        Routing skew of a mixture. [-]
    overlap : {'operator', 'none'}
        What may overlap in the expectation.
    step_tokens : int
        Most tokens of a step. [token]
    sequences : int
        Most sequences in a step. [-]
    context : int
        Most tokens of a sequence. [token]
    chunks : iterable of int
        Lengths of chunks whose times are to be exact. [token]
    in_flight : int
        Steps that devices in a row work on at the same time. [-]
    """

    def __init__(
        self,
        plan: Plan,
        skew: Any,
        overlap: Overlap,
        *,
        step_tokens: int,
        sequences: int,
        context: int,
        chunks: Iterable[int] = (),
        in_flight: int = 1,
    ) -> None:
        self._plan, self._skew, self._overlap, self._in_flight = plan, skew, overlap, in_flight
        exact = tuple(chunks)
        self._again = partial(
            StepTimes, plan, skew, overlap, step_tokens=step_tokens, sequences=sequences, context=context, chunks=exact
        )
        self._pipelined = {in_flight: self}
        together, each = np.arange(1, sequences + 1), np.arange(context + 2)
        alone = np.arange(1, max(step_tokens, sequences + FEW_TOKENS) + 1)
        head, head_of_many = self._heads(1, together), self._heads(max(step_tokens, FEW_TOKENS + 1), together)
        own = self._own(lambda count: Run(count, 1, 1, 0), together)
        attended = self._own(lambda cached: Run(1, 1, 1, cached), each)
        weights = self._packed(lambda count: Run(1, count, 1, 0, logits=0, of_one=1), alone)
        longer = self._packed(lambda longest: Run(1, step_tokens, 1, 0, logits=0, of_one=longest), alone)
        self._prompt = _from_none(longer - longer[0])
        self._weights, self._beside = map(_from_none, (weights, own))
        self._head, self._head_of_many = map(_from_none, (head, head_of_many))
        self._grown: list[float] = (attended - attended[0]).tolist()
        self._sum_grown: list[float] = [0.0, *accumulate(self._grown)]
        self._decode: list[float] = [sum(parts) for parts in zip(self._weights, self._head, self._beside, strict=False)]
        self._new = _knots(1, step_tokens, (step_tokens, *exact))
        starts = [step_tokens * count for count in range(1, MULTIPLES)]
        starts += [end - less for end in _attention_ends(plan, context) for less in (1, 0)]
        self._cached = _knots(0, context, starts)
        new, cached = np.meshgrid(np.array(self._new), np.array(self._cached), indexing="ij")
        grid = self._own(lambda points: Run(1, points[0], 1, points[1]), np.stack([new.ravel(), cached.ravel()]))
        self._chunk: list[list[float]] = grid.reshape(new.shape).tolist()

    def pipelined(self, in_flight: int) -> StepTimes:
        """The same with so many steps at the same time on devices in a row."""
        if in_flight not in self._pipelined:
            self._pipelined[in_flight] = self._again(in_flight=in_flight)
        return self._pipelined[in_flight]

    def decode_s(self, sequences: int, total: int, steps: int) -> float:
        """Time of decode steps in a row.

        Parameters
        ----------
        sequences : int
            Sequences, at least 1. [-]
        total : int
            Tokens in all their caches before the first step. [token]
        steps : int
            Steps, at least 1. [-]

        Returns
        -------
        float
            [s]
        """
        below, over = divmod(total, sequences)
        share, sums = over / sequences, self._sum_grown
        grown = sums[below + steps] - sums[below]
        if over:
            grown += share * (sums[below + 1 + steps] - sums[below + 1] - grown)
        return steps * self._decode[sequences] + sequences * grown

    def mixed_s(self, sequences: int, total: int, chunks: Sequence[tuple[int, int]], ending: int) -> float:
        """Time of a step in which chunks of prompts are computed.

        Parameters
        ----------
        sequences : int
            Sequences that decode in it. [-]
        total : int
            Tokens in all their caches. [token]
        chunks : sequence of tuple
            New and cached tokens of each chunk. [token]
        ending : int
            Prompts that end with it. [-]

        Returns
        -------
        float
            [s]
        """
        prompt, longest = sum(new for new, _ in chunks), max((new for new, _ in chunks), default=0)
        seconds = self._weights[sequences + prompt] + self._prompt[longest]
        head = self._head if prompt <= FEW_TOKENS else self._head_of_many  # on the host, it matters
        seconds += head[sequences + ending] + self._beside[sequences]
        if sequences:
            below, over = divmod(total, sequences)
            grown = self._grown[below]
            seconds += sequences * (grown + over / sequences * (self._grown[below + 1] - grown))
        return seconds + sum(self._chunk_s(new, cached) for new, cached in chunks)

    def _chunk_s(self, new: int, cached: int) -> float:
        """Attention and state of a chunk, linear between the nearest points of the grid. [s]"""
        row, along = _between(self._new, new)
        column, across = _between(self._cached, cached)
        first, second = self._chunk[row], self._chunk[row + 1]
        here = first[column] + across * (first[column + 1] - first[column])
        there = second[column] + across * (second[column + 1] - second[column])
        return here + along * (there - here)

    def _packed(self, run: Any, counts: Any) -> Any:
        """Times of what meets all tokens of a pass alike. [s]"""
        return self._seconds(lambda part: Passes((run(part),), (NOTHING,)), counts)

    def _heads(self, tokens: int, counts: Any) -> Any:
        """Times of the head over so many positions, in passes of so many tokens. [s]"""
        without = self._packed(lambda _: Run(1, tokens, 1, 0, logits=0), counts[:1])
        return self._packed(lambda count: Run(1, tokens, 1, 0, logits=count), counts) - without

    def _own(self, run: Any, points: Any) -> Any:
        """Times of what meets each sequence's own cache or state. [s]"""
        return self._seconds(lambda part: Passes((NOTHING,), (run(part),)), points)

    def _seconds(self, passes: Any, points: Any) -> Any:
        found = []
        for start in range(0, points.shape[-1], BLOCK):
            part = passes(points[..., start : start + BLOCK])
            time = phase_time(
                self._plan, part, part, self._skew, self._overlap, in_turn=False, in_flight=self._in_flight
            )
            found.append(np.broadcast_to(time.expected_s, points[..., start : start + BLOCK].shape[-1:]))
        return np.concatenate(found)


def _from_none(seconds: Any) -> list[float]:
    """Times by count, that of none before the first. [s]"""
    return [0.0, *seconds.tolist()]


def _attention_ends(plan: Plan, context: int) -> Iterator[int]:
    """Lengths of the cache at which attention within windows or chunks changes. [token]"""
    for kernel in plan.kernels:
        if kernel.window is not None:
            yield kernel.window
        if kernel.chunk is not None:
            yield from range(kernel.chunk, context, kernel.chunk)


def _knots(first: int, last: int, exact: Iterable[int]) -> list[int]:
    """Points of a grid, all of them at first and then in a constant ratio, with some in between; at least two."""
    found = {first, first + 1, max(last, first + 1)}
    point = first
    while point < last:
        found.add(point)
        point = max(point + 1, int(point * RATIO))
    return sorted(found | {each for each in exact if first <= each <= last})


def _between(knots: Sequence[int], value: int) -> tuple[int, float]:
    """The interval of a grid that a value lies in, and how far along it. [-]"""
    place = min(bisect_right(knots, value) - 1, len(knots) - 2)
    below = knots[place]
    return place, (value - below) / (knots[place + 1] - below)
