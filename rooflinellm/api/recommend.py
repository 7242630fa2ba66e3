"""Which hardware meets a wish: a search over devices and formats, pruned by what the roofline rules out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooflinellm import catalog
from rooflinellm.api import candidates, lookup
from rooflinellm.api.arguments import positive, scalar_count
from rooflinellm.api.cost import Prices
from rooflinellm.api.estimate import estimate
from rooflinellm.api.ladder import ladder
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import Options
from rooflinellm.api.plans import choose
from rooflinellm.api.recommendation import Met, NearMiss, Need, Recommendation, Shortfall, Wish, severity
from rooflinellm.engine.evaluate import ideal_memory_s
from rooflinellm.engine.kernels import choose_backend
from rooflinellm.engine.memory import usable_of_device
from rooflinellm.engine.plan import Machine
from rooflinellm.errors import InvalidRequest, RooflineError, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.results import Estimate
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.units import BITS_PER_BYTE, GB

CONTEXT = 8_192
PROMPT = 512
"""Length of the prompt where none is asked for, as in `estimate`. [token]"""
LEAST_BITS = 4.0
"""Bits per weight below which no format is tried unasked: nearly all hardware meets nearly all wishes there. [bit]"""
ENGINES = ("llama.cpp", "vllm")
"""Engines to try where none is named: the next one on devices that the first does not run on."""
REFERENCE = "1024TiB,1TB/s," + ",".join(
    f"1TFLOP/s@{name}" for name in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4")
)
"""A device that holds every model and computes in every precision: bytes and FLOPs do not depend on the device."""
NEAREST = 5
"""Systems that are named where none meets the wish."""


def recommend(
    model: Name | ModelEntry | ModelSpec,
    *,
    min_tokens_per_s: float | None = None,
    context: int = CONTEXT,
    max_ttft_s: float | None = None,
    max_power_w: float | None = None,
    prompt_tokens: int | None = None,
    batch: int = 1,
    hardware: Any = None,
    weights: Any = None,
    min_bits_per_weight: float = LEAST_BITS,
    kv: str | None = None,
    engine: str | None = None,
    prices: Mapping[str, float] | None = None,
    prices_per_hour: Mapping[str, float] | None = None,
    budget: float | None = None,
    options: Options | None = None,
    context_tokens: int | None = None,
) -> Recommendation:
    """Name the hardware that runs a model as fast as is wished for, each with a weight format.

    The cheapest comes first where prices are given, else what has the least memory.

    Parameters
    ----------
    model : str, path or spec
        As in `rooflinellm.model`.
    min_tokens_per_s : float, optional
        Least decode rate of each request, with the context full. [tokens/s]
    context : int
        Context to hold for each request. [token]
    max_ttft_s : float, optional
        Longest time to the first token of a prompt that ends the context. [s]
    max_power_w : float, optional
        Most rated power of all devices, without the host. [W]
    prompt_tokens : int, optional
        Length of that prompt; None is 512, or the context where that is shorter. [token]
    batch : int
        Requests side by side. [-]
    hardware : sequence of str, path or spec, optional
        Systems to choose from, as in `rooflinellm.system`, processors in the least amount of memory that does unless
        they say how much; None is every device of the database in the least amount of
        memory that does, two and four of the common cards, and cards of desktops with layers on a host.
    weights : str or sequence of str, optional
        Formats to choose from; None is one of each common size, up to what the model was released in.
    min_bits_per_weight : float
        Formats of fewer bits are not tried, unless they are named. [bit]
    kv, engine, options
        As in `rooflinellm.estimate`; engine None is llama.cpp, and vLLM on devices that it does not run on.
    prices, prices_per_hour : mapping of str to float, optional
        Price of a device or of a system, to buy and to rent, in any currency.
    budget : float, optional
        Most that it may cost to buy; hardware without a price is then left out.
    context_tokens : int, optional
        Another name of `context`. [token]

    Returns
    -------
    Recommendation
        What meets the wish in expectation. Each system has the format with the most bits that does. Several devices
        share the work as the engine has it by itself, or each layer where only that does and the engine can. Systems
        are ranked by price, where there are prices, else by the size of their memory, and by rated power where that is
        equal.

    Raises
    ------
    InvalidRequest
        Numbers that describe nothing possible.
    UnknownName, AmbiguousName
        A name that is no entry, or that fits several.
    RooflineError
        It can run on none of the systems: what `rooflinellm.estimate` raises for the first.

    Warns
    -----
    RooflineWarning
        The context is beyond what the model is made for; the answer is "as if".

    Notes
    -----
    A system is ruled out without an estimate where weights and cache exceed its memory, where a decode step's bytes at
    the printed bandwidth, or the prompt's FLOPs at the fastest peak, take longer than is wished for: no run beats
    these. All others are estimated.
    """
    spec = lookup.model(model)
    if context_tokens is not None:
        if context != CONTEXT:
            raise InvalidRequest("says the same as context; leave one out", where="context_tokens")
        context = context_tokens
    context = scalar_count("context", context)
    prompt = min(PROMPT, context) if prompt_tokens is None else scalar_count("prompt_tokens", prompt_tokens)
    if prompt > context:
        raise InvalidRequest(f"{prompt:,} tokens of prompt do not fit a context of {context:,}", where="prompt_tokens")
    wish = Wish(
        min_tokens_per_s=_positive_or_none("min_tokens_per_s", min_tokens_per_s),
        max_ttft_s=_positive_or_none("max_ttft_s", max_ttft_s),
        max_power_w=_positive_or_none("max_power_w", max_power_w),
        budget=_positive_or_none("budget", budget),
        context=context,
        prompt_tokens=prompt,
        batch=scalar_count("batch", batch),
    )
    if budget is not None and (prices is None or (isinstance(prices, Mapping) and not prices)):
        raise InvalidRequest("a budget needs prices", where="budget", next_step='Give prices={"rtx-3090": 700}.')
    bits = 0.0 if min_bits_per_weight == 0 else positive("min_bits_per_weight", min_bits_per_weight)
    chosen = candidates.database() if hardware is None else candidates.named(_listed("hardware", hardware))
    buy, rent = Prices(prices, "prices"), Prices(prices_per_hour, "prices_per_hour")
    if weights is None and spec.entry.file is not None:
        weights = spec.entry.file.fmt.id  # a file has the format it has
    asked = None if weights is None else _listed("weights", weights)
    search = Search(spec, wish, asked, bits, kv, engine, options)
    met: list[Met] = []
    missed: list[NearMiss] = []
    for candidate in chosen:
        found = search.best(candidate, buy)
        if isinstance(found, NearMiss):
            missed.append(found)
        elif found is not None:
            need, answer = found
            met.append(Met(answer, wish, need.bits_per_weight, buy.of(answer.hardware), rent.of(answer.hardware)))
    if not met and not missed:
        nothing = f"no format of {spec.id} has {bits:g} bits per weight"
        raise search.errors[0] if search.errors else InvalidRequest(nothing, where="min_bits_per_weight")
    met.sort(key=lambda each: each.rank(priced=bool(buy)))
    missed.sort(key=lambda each: each.severity)
    for text in search.warnings:
        warnings.warn(text, RooflineWarning, stacklevel=2)
    return Recommendation(
        model=spec,
        wish=wish,
        met=tuple(met),
        nearest=tuple(missed[:NEAREST]),
        needs=tuple(search.all_needs()),
        systems=len(chosen),
        ruled_out=search.ruled_out,
        estimates=search.estimates,
        least_bits=0.0 if asked is not None else bits,
        warnings=tuple(search.warnings),
    )


def _positive_or_none(name: str, value: Any) -> float | None:
    return None if value is None else positive(name, value)


def _listed(name: str, value: Any) -> list[Any]:
    """One or several."""
    if isinstance(value, list | tuple):
        if not value:
            raise InvalidRequest("give at least one", where=name)
        return list(value)
    return [value]


class Search:
    """Looks for the format with the most bits that meets a wish, system by system."""

    def __init__(
        self,
        model: ModelSpec,
        wish: Wish,
        weights: Sequence[str | FormatSpec] | None,
        least_bits: float,
        kv: str | None,
        engine: str | None,
        options: Options | None,
    ) -> None:
        self.model, self.wish, self.weights, self.least_bits = model, wish, weights, least_bits
        self.kv, self.options = kv, options
        self.engines: tuple[str, ...] = (engine,) if engine is not None else ENGINES
        if engine is None and weights is not None:
            self.engines = tuple(dict.fromkeys(choose(model, each, None)[1].id for each in weights))
        self._engines = {name: catalog.engine(name) for name in self.engines}
        self._formats: dict[str, FormatSpec] = {}
        self._needs: dict[str, list[Need]] = {}
        self.estimates, self.ruled_out = 0, 0
        self.errors: list[RooflineError] = []
        self.warnings: dict[str, None] = {}

    def needs(self, engine: str) -> list[Need]:
        """What each format takes under an engine, the most bits first."""
        if engine not in self._needs:
            self._needs[engine] = sorted(self._needed(engine), key=lambda each: -each.bits_per_weight)
        return self._needs[engine]

    def all_needs(self) -> Iterator[Need]:
        """What was looked at."""
        for needs in self._needs.values():
            yield from needs

    def _needed(self, engine: str) -> Iterator[Need]:
        spec = self._engines[engine][0]
        families = spec.format_families
        steps: Sequence[str | FormatSpec]
        if self.weights is None:
            steps = [each.weights for each in ladder(self.model, families) if each.bits_per_weight >= self.least_bits]
        elif len(self.engines) == 1:
            steps = self.weights
        else:
            steps = [each for each in self.weights if choose(self.model, each, None)[0].family in families]
        for weights in steps:
            fmt = choose(self.model, weights, engine)[0]
            try:
                answer = self._ask(lookup.system(REFERENCE), fmt, engine, 1)
            except RooflineError as error:  # the engine does not compute with it
                self.errors.append(error)
                continue
            memory = answer.memory
            self._formats[answer.weights] = fmt
            self.warnings |= dict.fromkeys(text for text in answer.warnings if not text.startswith("memory:"))
            yield Need(
                weights=answer.weights,
                bits_per_weight=memory.resident_weight_bytes * BITS_PER_BYTE / self.model.total_params,
                engine=spec.id,
                held_bytes=memory.resident_weight_bytes + memory.kv_allocated_bytes + memory.state_bytes,
                step_bytes=answer.decode.read_bytes,
                prompt_flops=answer.prefill.flops,
            )

    def best(self, candidate: candidates.Candidate, prices: Prices) -> tuple[Need, Estimate] | NearMiss | None:
        """The format with the most bits that meets the wish; else what comes nearest; None where nothing runs."""
        nearest: NearMiss | None = None
        for engine in self.engines:
            spec, backend, _ = self._engines[engine]
            try:
                choose_backend(spec, candidate.systems[0].device, backend)
            except RooflineError as error:
                self.errors.append(error)
                continue
            runs = False
            for need in self.needs(engine):
                try:
                    answer, missing, system = self._on(candidate, need, engine, spec, prices)
                except RooflineError as error:  # no compute path, or several devices that the engine cannot use
                    self.errors.append(error)
                    continue
                runs = True
                if answer is not None and not missing:
                    if candidate.with_host and not _uses_host(answer):
                        continue
                    return need, answer
                near = NearMiss(system, need.weights, tuple(missing), answer)
                if nearest is None or near.severity < nearest.severity:
                    nearest = near
            if runs:
                break
        return nearest

    def _on(
        self, candidate: candidates.Candidate, need: Need, engine: str, spec: EngineSpec, prices: Prices
    ) -> tuple[Estimate | None, list[Shortfall], SystemSpec]:
        """The answer on the least memory that holds a format, with what is short of the wish."""
        answer: Estimate | None = None
        for system in candidate.systems:
            last = system is candidate.systems[-1]
            missing = self._ruled_out(system, need, spec, prices)
            if missing:
                if _lacks_memory(missing) and not last:
                    continue
                self.ruled_out += 1
                break
            answer, missing = self._shared(system, self._formats[need.weights], engine)
            if not _lacks_memory(missing):
                break
        return answer, missing, system

    def _shared(self, system: SystemSpec, fmt: FormatSpec, engine: str) -> tuple[Estimate, list[Shortfall]]:
        """The answer where devices share the work as the engine has it by itself, else as it does where asked to."""
        found: list[tuple[Estimate, list[Shortfall]]] = []
        for degree in self.degrees(system, engine):
            try:
                answer = self._ask(system, fmt, engine, degree)
            except InvalidRequest:  # heads that so many devices cannot share
                if not found:
                    raise
                continue
            self.estimates += 1
            found.append((answer, self._short(answer)))
            if not found[-1][1]:
                break
        return min(found, key=lambda each: severity(each[1]))

    def degrees(self, system: SystemSpec, engine: str) -> tuple[int, ...]:
        """Degrees of tensor parallelism to try, the engine's own way first."""
        spec, named, _ = self._engines[engine]
        count, split = system.device_count, spec.tensor_split
        if spec.several_devices == "tensor_parallel":
            return (count,)
        if split is None or count == 1 or system.others or system.host is not None:
            return (1,)
        mixers = {block.mixer.kind for block in self.model.layers}
        fitting = (self.kv or spec.kv.default) in split.kv and not mixers & {*split.mixers_without}
        return (1, count) if fitting and choose_backend(spec, system.device, named) in split.backends else (1,)

    def _ask(self, system: SystemSpec, fmt: FormatSpec, engine: str, degree: int) -> Estimate:
        """The prompt that ends the context, and the decode step behind it, layers shared by so many devices."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflineWarning)
            return estimate(
                self.model,
                system,
                weights=fmt,
                kv=self.kv,
                engine=engine,
                prompt_tokens=self.wish.prompt_tokens,
                output_tokens=0,
                context_tokens=self.wish.context - self.wish.prompt_tokens,
                context_limit=self.wish.context,
                batch=self.wish.batch,
                tensor_parallel=degree,
                options=self.options,
            )

    def _ruled_out(self, system: SystemSpec, need: Need, engine: EngineSpec, prices: Prices) -> list[Shortfall]:
        """What cannot be met whatever an estimate says."""
        wish = self.wish
        found = list(_fixed(wish, system, prices))
        usable = [(usable_of_device(group.device, engine), group.count) for group in system.groups]
        on_devices = None if any(size is None for size, _ in usable) else sum((size or 0) * n for size, n in usable)
        host = 0 if system.host is None else system.host.capacity_bytes
        if on_devices is not None and host is not None and need.held_bytes > on_devices + host:
            found.append(Shortfall("memory", need.held_bytes, on_devices + host))
        if system.disk is not None or system.others:
            return found
        if wish.min_tokens_per_s is not None:
            least = _least_step_s(system, need.step_bytes, on_devices)
            if least * wish.min_tokens_per_s > 1:
                found.append(Shortfall("decode", wish.min_tokens_per_s, 1 / least, is_bound=True))
        if wish.max_ttft_s is not None and system.host is None:
            fastest = max(system.device.peaks.values()) * system.device.clock_headroom * system.count
            if need.prompt_flops > fastest * wish.max_ttft_s:
                found.append(Shortfall("first token", wish.max_ttft_s, need.prompt_flops / fastest, is_bound=True))
        return found

    def _short(self, answer: Estimate) -> list[Shortfall]:
        """What is short of the wish in expectation."""
        wish, memory = self.wish, answer.memory
        found = []
        if memory.fits is not True:
            usable = memory.usable_bytes
            found.append(Shortfall("memory", memory.total_bytes, usable))
        rate, first = answer.decode.tokens_per_s.expected, answer.ttft_s.expected
        if wish.min_tokens_per_s is not None and rate < wish.min_tokens_per_s:
            found.append(Shortfall("decode", wish.min_tokens_per_s, rate))
        if wish.max_ttft_s is not None and first > wish.max_ttft_s:
            found.append(Shortfall("first token", wish.max_ttft_s, first))
        return found


def _lacks_memory(missing: Sequence[Shortfall]) -> bool:
    return any(each.what == "memory" for each in missing)


def _uses_host(answer: Estimate) -> bool:
    return answer.workload["gpu_layers"] is not None or answer.workload["cpu_moe_layers"] is not None


def _fixed(wish: Wish, system: SystemSpec, prices: Prices) -> Iterator[Shortfall]:
    """What no format changes."""
    power = system.rated_power_w
    if wish.max_power_w is not None and (power is None or power > wish.max_power_w):
        yield Shortfall("power", wish.max_power_w, power)
    if wish.budget is not None:
        price = prices.of(system)
        if price is None or price > wish.budget:
            yield Shortfall("price", wish.budget, price)


def _least_step_s(system: SystemSpec, step_bytes: float, on_devices: float | None) -> float:
    """Least time of a decode step: its bytes from the devices' memory, those that they cannot hold from the host's. [s]

    Parts that work side by side, or in turn, take no less than the devices together at their printed bandwidth.
    """
    device = system.device
    machine = Machine(
        device.memory_bandwidth_bytes_per_s, device.cache_bytes, device.cache_bandwidth_bytes_per_s, system.count
    )
    here = step_bytes if on_devices is None else min(step_bytes, on_devices)
    least = float(ideal_memory_s(here, 1, machine, system.count)) / system.count
    if system.host is None:
        return least
    links = (link.gb_s_per_direction.value * GB for link in device.links)  # the way of weights that are copied
    return max(least, (step_bytes - here) / max(system.host.bandwidth_bytes_per_s, *links))
