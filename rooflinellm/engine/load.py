"""A server under load: continuous batching, one step after the other, as vLLM schedules it.

A step computes a token of every sequence that decodes, and with what is left of its budget of tokens, prompts in the
order of their arrival, in chunks. A request is admitted when a slot is free and its whole prompt finds room in the
cache; where sequences outgrow the room, the one admitted last is thrown out and later computed anew.

Between an arrival, a completion and a shortage of room the same sequences decode, so that many steps are one jump.

References
----------
Agrawal et al. (2024), "Taming throughput-latency tradeoff in LLM inference with Sarathi-Serve", arXiv 2403.02310;
Kwon et al. (2023), "Efficient memory management for large language model serving with PagedAttention", arXiv
2309.06180;
vllm-project/vllm, vllm/v1/core/sched/scheduler.py.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflinellm._numeric import ceil_div
from rooflinellm.engine.cache_room import CacheRoom
from rooflinellm.engine.step_times import StepTimes

REPORT_EVERY = 1_000
"""Completions between two reports of progress. [-]"""


@dataclass(frozen=True)
class Workload:
    """The requests, arrays of one element each.

    Attributes
    ----------
    arrival_s : ndarray or None
        When they arrive, in order; None is a closed loop. [s]
    clients : int
        Clients of a closed loop, each of which sends its next request after the last one is done; 0 elsewhere. [-]
    think_s : float
        What a client waits between. [s]
    computed_tokens : ndarray
        Prompt tokens that prefill computes. [token]
    cached_tokens : ndarray
        Tokens in the cache before that. [token]
    output_tokens : ndarray
        Tokens of the answers. [token]
    """

    arrival_s: Any
    clients: int
    think_s: float
    computed_tokens: Any
    cached_tokens: Any
    output_tokens: Any

    @property
    def count(self) -> int:
        """Requests. [-]"""
        return len(self.output_tokens)


@dataclass(frozen=True)
class Server:
    """What serves.

    Attributes
    ----------
    steps : StepTimes
        Times of steps.
    room : CacheRoom
        Room for caches.
    step_tokens : int
        Most tokens of a step. [token]
    sequences : int
        Most requests at a time. [-]
    chunked : bool
        Prompts share steps with sequences that decode; else these wait until the prompts are done.
    in_flight : int
        Steps that devices in a row can work on at the same time. [-]
    """

    steps: StepTimes
    room: CacheRoom
    step_tokens: int
    sequences: int
    chunked: bool = True
    in_flight: int = 1


@dataclass(frozen=True)
class Served:
    """What happened; times from the first arrival on.

    Attributes
    ----------
    arrival_s, start_s, first_token_s, finish_s : ndarray
        Of each request: when it arrives, its prefill begins, its first and its last token come. [s]
    preemptions : ndarray
        How often each was thrown out. [-]
    duration_s : float
        Until the last token. [s]
    decode_s, prefill_s : float
        Time in steps that only decode, and in those that compute prompts. [s]
    system_s, decoding_s : float
        Sums over time of the requests that wait or are served, and of the sequences that decode. [s]
    held_byte_s : float
        Sum over time of the bytes that caches take. [byte s]
    held_peak_bytes : int
        Most bytes that caches take. [byte]
    computed_tokens : int
        Prompt tokens that were computed, repetitions included. [token]
    steps : int
        Passes through the model. [-]
    backlog : int
        Requests that wait or are served when the last one arrives. [-]
    """

    arrival_s: Any
    start_s: Any
    first_token_s: Any
    finish_s: Any
    preemptions: Any
    duration_s: float
    decode_s: float
    prefill_s: float
    system_s: float
    decoding_s: float
    held_byte_s: float
    held_peak_bytes: int
    computed_tokens: int
    steps: int
    backlog: int


def serve(server: Server, work: Workload, progress: Callable[[int, int], None] | None = None) -> Served:
    """Let a server work off all requests.

    Parameters
    ----------
    server : Server
        What serves; the longest request alone must find room.
    work : Workload
        The requests.
    progress : callable, optional
        Called with the requests that are done and all there are.

    Returns
    -------
    Served
    """
    return _Simulation(server, work).run(progress)


class _Simulation:
    """The state of a server; `clock` counts decode steps, so that a sequence's length is its `base` and the clock."""

    def __init__(self, server: Server, work: Workload) -> None:
        count = work.count
        self.server, self.work, self.steps, self.room = server, work, server.steps, server.room
        self.block, self.most_for_a_block = server.room.block_tokens, server.room.most_for_a_block
        self.capacity = server.room.capacity_bytes
        self.held_by_blocks = server.room.held_bytes.tolist()
        self.computed, self.outputs = work.computed_tokens.tolist(), np.maximum(work.output_tokens, 1).tolist()
        self.cached = work.cached_tokens.tolist()
        self.arrival, self.start, self.first, self.finish = ([-1.0] * count for _ in range(4))
        self.thrown_out, self.produced = [0] * count, [0] * count
        self.todo, self.at, self.admitted = [0] * count, [0] * count, [0] * count
        self.coming: list[tuple[float, int]] = []
        self.to_come, self.taken = 0, 0
        self.waiting: deque[int] = deque()
        self.prefilling: list[int] = []
        self.prefilling_bytes = 0
        self.decoding: list[int] = []
        self.place = [-1] * count
        self.base = np.zeros(server.sequences, dtype=np.int64)
        self.ends: list[tuple[int, int]] = []
        self.end_of = [-1] * count
        self.clock, self.total, self.used = 0, 0, 0
        self.now, self.done, self.turn = 0.0, 0, 0
        self.decode_s = self.prefill_s = self.system_s = self.decoding_s = self.held_byte_s = 0.0
        self.held_peak, self.passes, self.computed_sum, self.backlog = 0, 0, 0, 0

    def run(self, progress: Callable[[int, int], None] | None) -> Served:
        work, count = self.work, self.work.count
        if work.arrival_s is None:
            self.coming = [(0.0, number) for number in range(min(work.clients, count))]
            self.to_come = len(self.coming)
        else:
            self.coming = list(zip(work.arrival_s.tolist(), range(count), strict=True))
            self.to_come = count
        told = 0
        while self.done < count:
            self._take_arrivals()
            if not (self.waiting or self.prefilling or self.decoding):
                self.now = self.coming[0][0]
                continue
            if not self._make_room():
                self._admit()
            if self.prefilling and (left := self._budget()) > 0:
                self._mixed_step(left)
            else:
                self._decode_steps()
            if progress is not None and self.done >= told + REPORT_EVERY:
                told = self.done
                progress(told, count)
        return Served(
            arrival_s=np.array(self.arrival),
            start_s=np.array(self.start),
            first_token_s=np.array(self.first),
            finish_s=np.array(self.finish),
            preemptions=np.array(self.thrown_out),
            duration_s=self.now,
            decode_s=self.decode_s,
            prefill_s=self.prefill_s,
            system_s=self.system_s,
            decoding_s=self.decoding_s,
            held_byte_s=self.held_byte_s,
            held_peak_bytes=self.held_peak,
            computed_tokens=self.computed_sum,
            steps=self.passes,
            backlog=self.backlog,
        )

    def _budget(self) -> int:
        """Tokens of prompts that a step has room for beside the sequences that decode. [token]"""
        return self.server.step_tokens - (len(self.decoding) if self.server.chunked else 0)

    def _take_arrivals(self) -> None:
        while self.coming and self.coming[0][0] <= self.now:
            at, number = heapq.heappop(self.coming)
            self.arrival[number] = at
            self.system_s += self.now - at
            self.waiting.append(number)
            self.taken += 1
            if self.taken == self.work.count:
                self.backlog = len(self.waiting) + len(self.prefilling) + len(self.decoding)

    def _admit(self) -> None:
        """Admit the requests that wait, in order, while there are slots, room, and tokens left in the step."""
        if not self.waiting:
            return
        left = self._budget() - sum(self.todo[number] for number in self.prefilling)
        running = len(self.prefilling) + len(self.decoding)
        ahead = len(self.decoding) * self.most_for_a_block  # what the sequences that decode take in the step itself
        exact = False
        while self.waiting and running < self.server.sequences and left > 0:
            number = self.waiting[0]
            again = self.produced[number]
            needed = self._bytes(self.cached[number] + self.computed[number] + again)
            if self.capacity is not None and self.used + ahead + needed > self.capacity:
                if exact:
                    return
                ahead, exact = self._held(1) - self.used, True
                continue
            self.waiting.popleft()
            self.todo[number], self.at[number] = self.computed[number] + again, self.cached[number]
            self.turn += 1
            self.admitted[number] = self.turn
            self.prefilling.append(number)
            self.prefilling_bytes += needed
            self.used += needed
            self.held_peak = max(self.held_peak, self.used)
            running, left = running + 1, left - self.todo[number]

    def _held(self, ahead: int) -> int:
        """What all caches take after so many more decode steps. [byte]"""
        blocks = (self.base[: len(self.decoding)] + (self.clock + ahead + self.block - 1)) // self.block
        return int(self.room.held_bytes.take(blocks).sum()) + self.prefilling_bytes

    def _bytes(self, tokens: int) -> int:
        """What a cache of so many tokens takes. [byte]"""
        taken: int = self.held_by_blocks[-(-tokens // self.block)]
        return taken

    def _make_room(self) -> bool:
        """Throw out the sequences admitted last until the next step has room; tell whether any had to go."""
        if self.capacity is None or self.used + len(self.decoding) * self.most_for_a_block <= self.capacity:
            return False
        found = False
        while self.decoding and self._held(1) > self.capacity:
            self._throw_out(max((*self.prefilling, *self.decoding), key=self.admitted.__getitem__))
            found = True
        return found

    def _throw_out(self, number: int) -> None:
        self.thrown_out[number] += 1
        if self.place[number] >= 0:
            self._leave(number)
        else:
            self.used -= self._end_prefill(number)
        self.waiting.appendleft(number)

    def _end_prefill(self, number: int) -> int:
        """Take a request from those whose prompts are computed, and return what its cache takes. [byte]"""
        self.prefilling.remove(number)
        taken = self._bytes(self.cached[number] + self.computed[number] + self.produced[number])
        self.prefilling_bytes -= taken
        return taken

    def _mixed_step(self, left: int) -> None:
        """One step with chunks of prompts in it."""
        decoding = len(self.decoding) if self.server.chunked else 0
        chunks, ending = [], []
        for number in self.prefilling:
            new = min(self.todo[number], left)
            chunks.append((new, self.at[number]))
            if self.start[number] < 0:
                self.start[number] = self.now
            self.at[number] += new
            self.todo[number] -= new
            left -= new
            self.computed_sum += new
            if not self.todo[number]:
                ending.append(number)
            if not left:
                break
        steps = self.steps
        if self.server.in_flight > 1 and not decoding:
            longest = max(self.computed[number] for number in self.prefilling[: len(chunks)])
            steps = steps.pipelined(min(ceil_div(longest, self.server.step_tokens), self.server.in_flight))
        seconds = steps.mixed_s(decoding, self.total, chunks, len(ending))
        self.prefill_s += seconds
        self._advance(seconds, decoding, int(decoding > 0))
        self.passes += not decoding
        for number in ending:
            taken = self._end_prefill(number)
            if self.first[number] < 0:
                self.first[number] = self.now
            self.produced[number] += 1
            if self.produced[number] >= self.outputs[number]:
                self.used -= taken
                self._complete(number)
            else:
                self._join(number)

    def _decode_steps(self) -> None:
        """As many decode steps as nothing changes in."""
        count = len(self.decoding)
        while self.end_of[self.ends[0][1]] != self.ends[0][0]:
            heapq.heappop(self.ends)  # it was thrown out
        steps = self.ends[0][0] - self.clock
        capacity = self.capacity
        if capacity is not None and self.used + count * self.most_for_a_block * ceil_div(steps, self.block) > capacity:
            steps = _most(steps, lambda ahead: self._held(ahead) <= capacity)
        seconds = self.steps.decode_s(count, self.total, steps)
        # Those who wait by now wait for a slot or for room, which no step but the last one brings.
        if self.coming and not self.waiting and count < self.server.sequences:
            until = self.coming[0][0] - self.now
            if until < seconds:
                decode_s, total = self.steps.decode_s, self.total
                steps = 1 + _most(steps, lambda ahead: decode_s(count, total, ahead) < until, least=0)
                seconds = decode_s(count, total, steps)
        self.decode_s += seconds
        self._advance(seconds, count, steps)

    def _advance(self, seconds: float, decoding: int, steps: int) -> None:
        """Let time pass in which so many sequences decode so many steps."""
        self.now += seconds
        in_system = len(self.waiting) + len(self.prefilling) + len(self.decoding)
        self.system_s += in_system * seconds
        self.decoding_s += decoding * seconds
        self.passes += steps
        before = self.used
        self.clock += steps
        if decoding:
            self.total += decoding * steps
            self.used = self._held(0)
            self.held_peak = max(self.held_peak, self.used)
        self.held_byte_s += (before + self.used) / 2 * seconds
        while self.ends and self.ends[0][0] <= self.clock:
            end, number = heapq.heappop(self.ends)
            if self.end_of[number] == end:
                self._leave(number)
                self._complete(number)

    def _join(self, number: int) -> None:
        """Start to decode: the cache holds the prompt and all tokens but the last."""
        length = self.cached[number] + self.computed[number] + self.produced[number] - 1
        self.place[number] = len(self.decoding)
        self.base[len(self.decoding)] = length - self.clock
        self.decoding.append(number)
        self.total += length
        self.end_of[number] = self.clock + self.outputs[number] - self.produced[number]
        heapq.heappush(self.ends, (self.end_of[number], number))

    def _leave(self, number: int) -> None:
        """Stop to decode, and let the last of the list take the place."""
        place, last = self.place[number], self.decoding.pop()
        length = int(self.base[place]) + self.clock
        self.total -= length
        self.used -= self._bytes(length)
        self.produced[number] = self.outputs[number] - (self.end_of[number] - self.clock)
        if last != number:
            self.decoding[place], self.place[last] = last, place
            self.base[place] = self.base[len(self.decoding)]
        self.place[number] = self.end_of[number] = -1

    def _complete(self, number: int) -> None:
        self.finish[number] = self.now
        self.done += 1
        if self.work.arrival_s is None and self.to_come < self.work.count:
            heapq.heappush(self.coming, (self.now + self.work.think_s, self.to_come))
            self.to_come += 1


def _most(most: int, holds: Callable[[int], bool], least: int = 1) -> int:
    """The largest count from `least`, for which it is known to hold, to `most` for which it holds, by bisection."""
    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
