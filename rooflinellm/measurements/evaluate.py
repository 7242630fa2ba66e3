"""Predict what a resolved row measured, through the engine that answers every estimate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rooflinellm import catalog
from rooflinellm.engine.compile import compile_plan
from rooflinellm.engine.drafters import module_drafter
from rooflinellm.engine.kernels import choose_backend
from rooflinellm.engine.memory import Allocation, memory_plan
from rooflinellm.engine.phases import PhaseTime, decode_interval, prefill_interval
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request, decode_time, prefill_time
from rooflinellm.engine.speculation import speculative_time
from rooflinellm.errors import InvalidRequest
from rooflinellm.measurements.resolver import Resolved
from rooflinellm.measurements.row import Row
from rooflinellm.measurements.server import SMALLEST_KV
from rooflinellm.measurements.under_load import mean_ttft_s
from rooflinellm.results import MemoryPlan
from rooflinellm.specs.profile import ProfileSpec

PLANS_KEPT = 4096
MOST_SEQUENCES = 2048
"""Sequences that a server runs side by side at most, whatever its memory holds. [-]"""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction of one measured number, in its unit. `ideal` is None where there is no bound."""

    ideal: float | None
    expected: float
    low: float
    high: float
    basis: str


class Evaluator:
    """Compiles plans, keeps them, and predicts.

    Parameters
    ----------
    profile : str or ProfileSpec, optional
        Efficiency profile; None is the one that estimates take.
    """

    def __init__(self, profile: str | ProfileSpec | None = None) -> None:
        self.profiles = catalog.profiles(profile)
        self.encodings = catalog.encodings()
        self._loads: dict[Any, float] = {}
        self._plans: OrderedDict[Any, tuple[Any, Plan]] = OrderedDict()

    def plan(self, resolved: Resolved, kv: str | None = None) -> Plan:
        """The plan of a row; `kv` in place of its type of cache."""
        keywords = resolved.keywords
        engine, system = resolved.engine, resolved.system
        chunk = keywords.get("prefill_chunk")
        kv = kv or keywords.get("kv") or engine.kv.default
        size = resolved.resident_weight_bytes
        key = (
            id(resolved.model),
            id(system.device),
            system.count,
            resolved.fmt.id,
            engine.id,
            resolved.backend,
            kv,
            chunk,
            size,
            resolved.build,
            resolved.offload,
            resolved.drafts is None,
            resolved.parallel,
            system.name,
            system.network and system.network.name,
        )
        if key not in self._plans:
            compile_for = partial(
                compile_plan,
                system=system,
                engine=engine,
                backend_name=choose_backend(engine, system.device, resolved.backend),
                profiles=self.profiles,
                encodings=self.encodings,
                kv=kv,
                prefill_chunk=chunk,
                build=resolved.build,
                parallel=resolved.parallel,
            )
            plan = compile_for(resolved.model, fmt=resolved.fmt, resident_weight_bytes=size, offload=resolved.offload)
            if resolved.drafts is not None:
                drafter = module_drafter(resolved.model, resolved.fmt, lambda model, fmt: compile_for(model, fmt=fmt))
                plan = replace(plan, drafter=drafter)
            self._plans[key] = (resolved, plan)  # the row keeps alive what the key identifies
            if len(self._plans) > PLANS_KEPT:
                self._plans.popitem(last=False)
        return self._plans[key][1]

    def predict(self, resolved: Resolved) -> Predicted:
        """Predict the number that a row measured.

        Raises
        ------
        RooflineError
            As in `rooflinellm.estimate`: a peak that is not known, an engine that does not run on the device.
        """
        of = resolved.quantity.of
        if of == "prefill":
            return self._phase(resolved, "prefill")
        if of == "decode":
            return self._phase(resolved, "decode")
        if of == "serving":
            return self._serving(resolved)
        return self._seconds(resolved)

    def request(self, resolved: Resolved, **changed: Any) -> Request:
        """The request that a row measured; of a server's, as many at a time as its memory holds, while others wait."""
        keywords = {**resolved.keywords, **changed}
        if resolved.quantity.of in ("tpot", "serving") and keywords.get("batch", 1) > 1:
            # It ran, so that what the engine is assumed to reserve cannot have left no room at all.
            keywords["batch"] = max(min(keywords["batch"], self._room(self.plan(resolved), resolved)), 1)
        return Request(
            prompt_tokens=keywords["prompt_tokens"],
            output_tokens=keywords["output_tokens"],
            cached_tokens=0,
            context_tokens=keywords.get("context_tokens", 0),
            sequences=keywords.get("batch", 1),
            chunk=keywords.get("prefill_chunk"),
            speculation=None if resolved.drafts is None else resolved.drafts.speculation,
        )

    def _phase(self, resolved: Resolved, phase: str) -> Predicted:
        """A rate of one phase: tokens of all sequences over its time."""
        plan, request = self.plan(resolved), self.request(resolved)
        if phase == "prefill":
            time = prefill_time(plan, request)
            factor = prefill_interval(plan, time)
            counted = request.sequences * request.computed_tokens
        else:
            steps = max(request.decode_steps, 1)
            decode_of = decode_time if request.speculation is None else speculative_time
            time = decode_of(plan, request, steps)
            factor = decode_interval(plan, time, request.sequences)
            counted = request.sequences * steps
        return self._rate(resolved, plan, counted, time.ideal_s, time.expected_s, factor)

    def _rate(
        self, resolved: Resolved, plan: Plan, counted: float, ideal_s: float, expected_s: float, factor: float
    ) -> Predicted:
        counted = counted * resolved.quantity.scale
        if not resolved.bounded:
            expected = counted / expected_s
            return Predicted(None, expected, expected / factor, expected * factor, plan.rates.basis)
        expected_s = max(expected_s, ideal_s)
        low_s = max(expected_s / factor, ideal_s)
        return Predicted(
            counted / ideal_s, counted / expected_s, counted / (expected_s * factor), counted / low_s, plan.rates.basis
        )

    def _seconds(self, resolved: Resolved) -> Predicted:
        """A time, or tokens over the time of a whole run."""
        quantity = resolved.quantity
        plan, request = self.plan(resolved), self.request(resolved)
        if quantity.of == "tpot":
            return self._tpot(resolved)
        if quantity.of == "loaded_ttft":
            return self._loaded_ttft(resolved)
        prefill = prefill_time(plan, request)
        ideal, expected = prefill.ideal_s, prefill.expected_s
        factor = prefill_interval(plan, prefill)
        low, high = max(expected / factor, ideal), expected * factor
        if quantity.of != "ttft" and request.decode_steps > 0:
            decode = decode_time(plan, request, request.decode_steps)
            factor = decode_interval(plan, decode, request.sequences)
            ideal, expected = ideal + decode.ideal_s, expected + decode.expected_s
            low, high = low + max(decode.expected_s / factor, decode.ideal_s), high + decode.expected_s * factor
        basis = plan.rates.basis
        if quantity.of == "run":
            counted = request.sequences * (quantity.tokens or request.output_tokens) * quantity.scale
            bound = counted / ideal if resolved.bounded else None
            return Predicted(bound, counted / expected, counted / high, counted / low, basis)
        return Predicted(ideal if resolved.bounded else None, expected, low, high, basis)

    def _loaded_ttft(self, resolved: Resolved) -> Predicted:
        """Mean time to first token at a constant number of requests; the bound is a prompt by itself."""
        plan, request = self.plan(resolved), self.request(resolved)
        alone = self._alone(plan, request)
        key = (id(plan), request.prompt_tokens, request.output_tokens, request.sequences)
        if key not in self._loads:
            self._loads[key] = mean_ttft_s(plan, request)
        ideal, expected = alone.ideal_s, max(self._loads[key], alone.ideal_s)
        factor = prefill_interval(plan, alone)
        bound = ideal if resolved.bounded else None
        return Predicted(bound, expected, max(expected / factor, ideal), expected * factor, plan.rates.basis)

    def _tpot(self, resolved: Resolved) -> Predicted:
        """Time per output token of a server that holds C requests.

        A step of all C, and in the time of one request's N steps the prefill of the C - 1 others, which delays it:

            t = t_step(C) + (C - 1) t_prefill / N

        The bound is a step of one request alone: how many share a step at a time is not known.
        """
        plan, request = self.plan(resolved), self.request(resolved)
        steps = max(request.decode_steps, 1)
        others = request.sequences - 1
        decode = decode_time(plan, request, steps)
        waits = others * self._alone(plan, request).expected_s / steps
        expected = decode.expected_s / steps + waits
        single = replace(request, sequences=1)
        bound_plan = self._smallest_cache(resolved)
        ideal = decode_time(bound_plan, single, steps).ideal_s / steps
        factor = decode_interval(plan, decode, request.sequences)
        expected = max(expected, ideal)
        bound = ideal if resolved.bounded else None
        return Predicted(bound, expected, max(expected / factor, ideal), expected * factor, plan.rates.basis)

    def _alone(self, plan: Plan, request: Request) -> PhaseTime:
        """Prefill of one request by itself."""
        return prefill_time(plan, replace(request, sequences=1))

    def _smallest_cache(self, resolved: Resolved) -> Plan:
        """The plan that a bound may count on: where the row names no type of cache, the smallest the engine has."""
        kinds = resolved.engine.kv.types
        unstated = "kv" not in resolved.keywords or resolved.keywords["kv"] == SMALLEST_KV
        return self.plan(resolved, SMALLEST_KV if unstated and SMALLEST_KV in kinds else None)

    def _serving(self, resolved: Resolved) -> Predicted:
        """Throughput of a server that is kept busy with B requests of S and N tokens.

        In the time of N steps of all B, B requests are prefilled; their chunks share the machine with the steps:

            expected: B N / (B t_prefill + N t_step(B))
            bound: B N / max(compute of both, bytes of the steps)

        B is the concurrency, in the expectation at most what the engine's memory holds. Where it is not known it is
        that, at most `MOST_SEQUENCES`, and what the whole memory holds beside the weights in the bound.
        """
        quantity, stated = resolved.quantity, resolved.keywords.get("batch")
        plan, bound_plan = self.plan(resolved), self._smallest_cache(resolved)
        most = self._most_room(bound_plan, resolved)
        if not most:
            raise InvalidRequest("the model does not fit the device with a single request")
        request = self.request(resolved, batch=stated or MOST_SEQUENCES)
        expected_batch, ideal_batch = request.sequences, stated or max(most, request.sequences)
        widest = replace(request, sequences=ideal_batch)
        steps = max(request.decode_steps, 1)
        counted = (quantity.tokens or request.output_tokens) * quantity.scale
        decode, prefill = decode_time(plan, request, steps), prefill_time(plan, request)
        expected = counted * expected_batch / (decode.expected_s + prefill.expected_s)
        ideal_decode, ideal_prefill = decode_time(bound_plan, widest, steps), prefill_time(bound_plan, widest)
        busy_s = max(ideal_decode.compute_s + ideal_prefill.compute_s, ideal_decode.memory_s) / plan.device_count
        ideal = max(counted * ideal_batch / busy_s, expected)
        factor = max(decode_interval(plan, decode, request.sequences), prefill_interval(plan, prefill))
        return Predicted(
            ideal if resolved.bounded else None,
            expected,
            expected / factor,
            min(expected * factor, ideal),
            plan.rates.basis,
        )

    def _room(self, plan: Plan, resolved: Resolved) -> int:
        """Requests whose whole cache fits beside the weights, as the engine allocates it."""
        keywords = resolved.keywords
        tokens = keywords["prompt_tokens"] + keywords["output_tokens"]
        room = _memory(plan, tokens).max_batch
        return MOST_SEQUENCES if room is None else int(room)

    def _most_room(self, plan: Plan, resolved: Resolved) -> int:
        """Requests whose cache, half of the output written, fits beside the weights in all of the memory."""
        keywords, capacity = resolved.keywords, plan.system.device.memory_bytes
        if capacity is None:
            return MOST_SEQUENCES
        memory = _memory(plan, keywords["prompt_tokens"] + keywords["output_tokens"] // 2)
        held = memory.kv_occupied_bytes + memory.state_bytes
        left = capacity * plan.system.count - plan.resident_weight_bytes
        return int(left // held) if held else MOST_SEQUENCES


def _memory(plan: Plan, tokens: int) -> MemoryPlan:
    """Memory of one request of so many tokens."""
    allocation = Allocation(unified=plan.engine.kv.unified, full_windows=False, chunk=plan.prefill_chunk)
    return memory_plan(plan, 1, max(tokens, 1), max(tokens, 1), allocation)


Chooser = Callable[[Row, Resolved], Evaluator | str]
"""Says what a row is predicted with, or why it is not."""
