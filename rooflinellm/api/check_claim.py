"""Judge a claimed rate: whether it is possible, what would explain it, and what the claim leaves out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from rooflinellm import catalog
from rooflinellm._numeric import is_array, plain
from rooflinellm.api import lookup
from rooflinellm.api.arguments import count, one_of, positive
from rooflinellm.api.estimate import MAX_TOKENS, estimate
from rooflinellm.api.lookup import Name
from rooflinellm.engine.memory import LARGEST_BATCH
from rooflinellm.errors import InvalidRequest, RooflineError, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, Prediction
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import count_text, fits_text, interval_text, params_text, weights_text, what_text
from rooflinellm.units import MILLI, TERA, significant

Verdict = Literal["impossible", "fast", "plausible", "slow"]
PhaseName = Literal["decode", "prefill"]

BATCHES = tuple(2**power for power in range(1, 11))
"""Requests side by side that an unsaid aggregate is tried with. [-]"""
DRAFTS = tuple(range(1, 9))
"""Drafted tokens a step that unsaid speculation is tried with; more are hardly ever drafted. [token]"""
MAX_DRAFTS = 64
CONTEXTS = tuple(2**power for power in range(12, 21))
"""Tokens in the cache that a slow claim is tried with. [token]"""
PROMPTS = (128, 512, 2_048, 8_192, 32_768)
"""Prompt lengths that a claim without one is tried with. [token]"""
SPARSE_GAIN = 2
"""Peak with 2:4 sparsity over the dense one. [-]"""
SPILL = 0.15
"""From this much over the usable memory on, a rate within the interval cannot be reached from elsewhere. [-]

The low end of an interval is about half of the expected rate, and host memory gives a tenth of a card's bandwidth or
less: a seventh of the bytes from there takes more than as long again.
"""
SECONDS_PER_MINUTE = 60

FIELDS: Mapping[str, tuple[str, ...]] = {
    "model": ("model",),
    "hardware": ("hardware",),
    "phase": ("phase",),
    "weight format": ("weights",),
    "KV cache type": ("kv",),
    "engine": ("engine",),
    "batch": ("batch",),
    "per request or aggregate": ("aggregate",),
    "occupied context": ("context_tokens",),
    "prompt length": ("prompt_tokens",),
    "output length": ("output_tokens",),
    "cache state": ("cached_tokens",),
    "speculation": ("speculation", "draft_tokens"),
    "a second prompt length": (),
}
"""What a rate must say to mean something, and the keywords of `check_claim` that say it."""


def left_out(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Name what a record of a rate does not say.

    Parameters
    ----------
    record : mapping of str to Any
        By the keywords of `check_claim`; None counts as not said. ``prompt_tokens`` may hold several lengths.

    Returns
    -------
    tuple of str
        Keys of `FIELDS`, in their order: all of them for ``{"tok/s": 50}``.
    """
    prompts = record.get("prompt_tokens")
    lengths = {*prompts} if isinstance(prompts, Sequence) and not isinstance(prompts, str) else {prompts} - {None}
    said = {name for name, keys in FIELDS.items() if any(record.get(key) is not None for key in keys)}
    said -= set() if lengths else {"prompt length"}
    said |= {"a second prompt length"} if len(lengths) > 1 else set()
    return tuple(name for name in FIELDS if name not in said)


@dataclass(frozen=True)
class ClaimResult:
    """The answer of `check_claim`.

    Attributes
    ----------
    verdict : {'impossible', 'fast', 'plausible', 'slow'}
        Above the ideal (or far beyond the memory), above the interval, within it, below it.
    claimed : float
        The claimed rate. [tokens/s]
    ideal, expected, low, high : float
        What is predicted for the claim as stated, each unsaid value as in `assumed`. [tokens/s]
    unit : str
        ``tokens/s``.
    reasons : tuple of str
        Sentences with their arithmetic: the comparison, then what would explain the claim, the likeliest first.
    left_out : tuple of str
        What the claim does not say.
    assumed : mapping of str to str
        Of what is left out, the value it was judged with.
    phase : str
        ``decode`` or ``prefill``.
    aggregate : bool
        Whether the rate is of all requests together.
    speculation : int
        Drafted tokens a step. [token]
    model, hardware : object
        The `ModelSpec` and the `SystemSpec`.
    weights, kv, engine : str
        Canonical names.
    workload : mapping of str to Any
        The request that was judged.
    basis : str
        Where the expectation comes from.
    warnings : tuple of str
        What makes the answer an "as if".
    """

    verdict: Verdict
    claimed: float
    ideal: float
    expected: float
    low: float
    high: float
    unit: str
    reasons: tuple[str, ...]
    left_out: tuple[str, ...]
    assumed: Mapping[str, str]
    phase: PhaseName
    aggregate: bool
    speculation: int
    model: ModelSpec
    hardware: SystemSpec
    weights: str
    kv: str
    engine: str
    workload: Mapping[str, Any]
    basis: str
    warnings: tuple[str, ...]
    _what: str

    @property
    def possible(self) -> bool:
        """Whether the claim can hold as stated."""
        return self.verdict != "impossible"

    @property
    def ratio_to_ideal(self) -> float:
        """The claimed rate over the ideal one. [-]"""
        return self.claimed / self.ideal

    def __repr__(self) -> str:
        return (
            f"ClaimResult({self.model.id} {self.weights} on {self.hardware.id}: {self.phase} at "
            f"{self.claimed:.4g} {self.unit} is {self.verdict}, {self.ratio_to_ideal:.2f} of the ideal)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units, the unit in each key."""
        rates = ("claimed", "ideal", "expected", "low", "high")
        return {
            "model": self.model.id,
            "hardware": self.hardware.id,
            "weights": self.weights,
            "kv": self.kv,
            "engine": self.engine,
            "phase": self.phase,
            "aggregate": self.aggregate,
            "speculation": self.speculation,
            "workload": {name: plain(value) for name, value in self.workload.items()},
            "verdict": self.verdict,
            "possible": self.possible,
            **{f"{name}_tokens_per_s": getattr(self, name) for name in rates},
            "ratio_to_ideal": self.ratio_to_ideal,
            "unit": self.unit,
            "basis": self.basis,
            "reasons": list(self.reasons),
            "left_out": list(self.left_out),
            "assumed": dict(self.assumed),
            "warnings": list(self.warnings),
        }

    def tables(self) -> list[Table]:
        """The rates, the reasons, and what the claim leaves out."""
        rows = [
            [name, significant(rate), f"{significant(100 * rate / self.ideal)} %"]
            for name, rate in (
                ("claimed", self.claimed),
                ("ideal, at most", self.ideal),
                ("high", self.high),
                ("expected", self.expected),
                ("low", self.low),
            )
        ]
        whose = ""
        if self.workload["batch"] > 1:
            whose = f", all {self.workload['batch']:,} requests" if self.aggregate else ", each request"
        columns = [Column(f"{self.phase}{whose}", "left"), Column("tok/s"), Column("of ideal", drop=1)]
        tables = [
            Table(columns, rows, self._what, answer=self.verdict),
            Table((), (), "why", [f"- {text}" for text in self.reasons]),
        ]
        if self.left_out:
            taken = {name: f": judged with {value}" for name, value in self.assumed.items()}
            said = [f"- {name}{taken.get(name, '')}" for name in self.left_out]
            tables.append(Table((), (), "what the claim leaves out", said))
        return tables

    def __str__(self) -> str:
        return "\n\n".join(table.to_text() for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def check_claim(
    model: Name | ModelEntry | ModelSpec | None,
    hardware: Name | HardwareSpec | SystemSpec | None,
    *,
    tokens_per_s: float,
    phase: PhaseName = "decode",
    weights: str | FormatSpec | None = None,
    kv: str | None = None,
    engine: str | None = None,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    context_tokens: int | None = None,
    batch: int | None = None,
    aggregate: bool | None = None,
    speculation: int | None = None,
    **others: Any,
) -> ClaimResult:
    """Say whether a claimed rate is possible, what would explain it, and what it leaves out.

    Parameters
    ----------
    model, hardware, weights, kv, engine, prompt_tokens, output_tokens, context_tokens, batch, **others
        As in `estimate`; None is what the claim does not say, and is judged with the default of `estimate`.
    tokens_per_s : float
        The claimed rate. [tokens/s]
    phase : {'decode', 'prefill'}
        What it is a rate of.
    aggregate : bool, optional
        Of all requests together, or of each.
    speculation : int, optional
        Drafted tokens a step, 0 for none: a step gives at most one more token than are drafted. [token]

    Returns
    -------
    ClaimResult

    Raises
    ------
    InvalidRequest
        A rate that is none; a claim that can be compared with nothing, such as one without model, or of several
        requests without saying whether of each or of all.
    UnknownName, AmbiguousName, MissingSpec
        As in `estimate`.
    """
    rate = positive("tokens_per_s", tokens_per_s)
    phase = one_of("phase", phase, get_args(PhaseName))
    stated: dict[str, Any] = {
        "weights": weights,
        "kv": kv,
        "engine": engine,
        "prompt_tokens": _single("prompt_tokens", prompt_tokens, 0),
        "output_tokens": _single("output_tokens", output_tokens, 0),
        "context_tokens": _single("context_tokens", context_tokens, 0),
        "batch": _single("batch", batch, 1, LARGEST_BATCH),
        **others,
    }
    drafts = _single("speculation", _as_count(speculation), 0, MAX_DRAFTS)
    record = {"model": model, "hardware": hardware, "phase": phase, "aggregate": aggregate, "speculation": drafts}
    missing = left_out({**record, **stated})
    if model is None or hardware is None:
        raise InvalidRequest(
            "comparable with nothing: the claim leaves out " + ", ".join(missing),
            where="model" if model is None else "hardware",
            next_step="Ask for them.",
        )
    _comparable(stated["batch"], aggregate)
    keywords = {name: value for name, value in stated.items() if value is not None}
    claim = _Claim(rate, phase, bool(aggregate), drafts or 0, lookup.model(model), lookup.system(hardware), keywords)
    base = claim.ask()
    predicted = claim.predict(base)
    if is_array(predicted.ideal):
        raise InvalidRequest(
            "a claim is of one case; give one value for each argument, no arrays", where="tokens_per_s"
        )
    if not predicted.ideal > 0:
        raise InvalidRequest("there is no token to prefill, so there is no rate", where="prompt_tokens")
    verdict = claim.judge(predicted)
    beyond = _beyond_memory(base)
    if beyond and verdict in ("fast", "plausible"):
        verdict = "impossible"
    return ClaimResult(
        verdict=verdict,
        claimed=rate,
        **{name: float(getattr(predicted, name)) for name in ("ideal", "expected", "low", "high")},
        unit="tokens/s",
        reasons=tuple(_reasons(claim, base, predicted, verdict, said=_said(missing))),
        left_out=missing,
        assumed=_assumed(missing, base),
        phase=phase,
        aggregate=claim.aggregate,
        speculation=claim.drafts,
        model=base.model,
        hardware=base.hardware,
        weights=base.weights,
        kv=base.kv,
        engine=base.engine,
        workload=base.workload,
        basis=predicted.basis,
        warnings=base.warnings,
        _what=what_text(base),
    )


def _single(name: str, value: Any, least: int, most: int = MAX_TOKENS) -> int | None:
    """One whole number, or None."""
    if value is None:
        return None
    checked = count(name, value, least, most)
    if is_array(checked):
        raise InvalidRequest("a claim is of one case; give one whole number", where=name)
    return int(checked)


def _as_count(speculation: Any) -> Any:
    """False is no draft; how many True means is not known."""
    if speculation is True:
        raise InvalidRequest(
            "how many tokens are drafted for a step is not said, so that the bound is open",
            where="speculation",
            next_step="Give the number of drafted tokens, 0 for none.",
        )
    return 0 if speculation is False else speculation


def _comparable(batch: int | None, aggregate: bool | None) -> None:
    """Refuse a rate that may be one of two things far apart."""
    if aggregate not in (None, True, False):
        raise InvalidRequest(f"{aggregate!r:.60} is neither True nor False", where="aggregate")
    if aggregate is None and batch is not None and batch > 1:
        raise InvalidRequest(
            f"not comparable: of {batch:,} requests, the rate of each and of all together are {batch:,} times apart",
            where="batch",
            next_step="Say which of the two is claimed: the aggregate or the rate per request.",
        )
    if aggregate and batch is None:
        raise InvalidRequest(
            "not comparable: an aggregate of an unknown number of requests has no bound",
            where="aggregate",
            next_step="Say how many requests there are: the batch.",
        )


def _said(missing: Iterable[str]) -> frozenset[str]:
    return frozenset(FIELDS) - frozenset(missing)


def _assumed(missing: Sequence[str], base: Estimate) -> dict[str, str]:
    """What stands in for what is left out."""
    workload = base.workload
    taken = {
        "weight format": weights_text(base.weights),
        "KV cache type": base.kv,
        "engine": base.engine,
        "batch": count_text(workload["batch"]),
        "per request or aggregate": "per request",
        "occupied context": f"{workload['context_tokens']:,} tokens before the prompt",
        "prompt length": f"{workload['prompt_tokens']:,} tokens",
        "output length": f"{workload['output_tokens']:,} tokens",
        "cache state": "no token of the prompt cached",
        "speculation": "none",
    }
    return {name: taken[name] for name in missing if name in taken}


def _beyond_memory(base: Estimate) -> bool:
    """Whether so much lies elsewhere that no rate of the interval can be reached."""
    memory = base.memory
    return memory.usable_bytes is not None and memory.total_bytes > (1 + SPILL) * memory.usable_bytes


@dataclass(frozen=True, slots=True)
class _Claim:
    """What is claimed, and how to ask again with something changed."""

    rate: float
    phase: PhaseName
    aggregate: bool
    drafts: int
    model: ModelSpec
    system: SystemSpec
    keywords: Mapping[str, Any]

    def ask(self, model: ModelSpec | None = None, **changed: Any) -> Estimate:
        """The estimate of the claim's case, changed; errors as in `estimate`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflineWarning)
            return estimate(model or self.model, self.system, **{**self.keywords, **changed})

    def predict(self, item: Estimate, *, aggregate: bool | None = None) -> Prediction:
        """The rate that is claimed, as predicted."""
        phase = item.decode if self.phase == "decode" else item.prefill
        together = self.aggregate if aggregate is None else aggregate
        return self.drafted(phase.aggregate_tokens_per_s if together else phase.tokens_per_s, self.drafts)

    def drafted(self, rate: Prediction, drafts: int) -> Prediction:
        """At best each step gives the drafted tokens and one more; at worst the drafts are in vain."""
        if self.phase == "prefill":
            return rate
        return replace(rate, ideal=rate.ideal * (drafts + 1), high=rate.high * (drafts + 1))

    def judge(self, predicted: Prediction, rate: float | None = None) -> Verdict:
        """Where a rate, the claimed one if none is given, lies."""
        rate = self.rate if rate is None else rate
        if rate > predicted.ideal:
            return "impossible"
        if rate > predicted.high:
            return "fast"
        return "slow" if rate < predicted.low else "plausible"


class _Other(NamedTuple):
    """Another reading of a claim: how it begins a sentence, the sum behind its ideal, and what it predicts."""

    how: str
    sum: str
    predicted: Prediction
    rate: float | None = None


def _reasons(
    claim: _Claim, base: Estimate, predicted: Prediction, verdict: Verdict, said: frozenset[str]
) -> Iterator[str]:
    """The comparison, then what would explain the claim."""
    ideal, expected = significant(predicted.ideal), significant(predicted.expected)
    claimed, beyond = f"{significant(claim.rate)} tokens/s", _beyond_memory(base)
    if base.memory.fits is False:
        then = "the rest comes from elsewhere, which costs speed"
        if beyond and verdict == "impossible":
            then = "with the rest from elsewhere it is far slower than claimed"
        yield f"{fits_text(base.memory)}; {then}"
    share_of_ideal, share = (
        f"{significant(100 * claim.rate / rate)} %" for rate in (predicted.ideal, predicted.expected)
    )
    if claim.rate > predicted.ideal:
        yield f"{claimed} is {significant(claim.rate / predicted.ideal)} × the ideal of {ideal} tokens/s, the roofline"
    elif claim.rate > predicted.high:
        yield f"{claimed} is {share} of the expected {expected} and {share_of_ideal} of the ideal {ideal} tokens/s"
    elif claim.rate < predicted.low:
        yield f"{claimed} is {share} of the expected {expected} ({interval_text(predicted)}) tokens/s"
    else:
        within = ", if all of it were in memory" if base.memory.fits is False else ""
        yield f"{claimed} lies in {interval_text(predicted)}, expected {expected} of at most {ideal} tokens/s{within}"
    if claim.drafts and claim.phase == "decode":
        once = replace(claim, drafts=0).predict(base).ideal
        yield (
            f"a step gives at most {claim.drafts} drafted tokens and 1 more: "
            f"ideal ({claim.drafts} + 1) × {significant(once)} = {ideal} tokens/s, if every draft is accepted"
        )
    if verdict == "plausible":
        return
    found = list(_explanations(claim, base, predicted, verdict, said))
    yield from (text for likely, text in found if likely)
    yield from (text for likely, text in found if not likely)
    if verdict == "slow":
        yield (
            f"the hardware may give {share} of what it can: a limit of power or heat, fewer memory modules, other "
            "programs, layers or cache on the host, an older build or another backend"
        )
    elif not found:
        yield "no other reading that was tried explains it"


def _explanations(
    claim: _Claim, base: Estimate, predicted: Prediction, verdict: Verdict, said: frozenset[str]
) -> Iterator[tuple[bool, str]]:
    """Of each kind of other reading the first that fits best: whether it is plausible, and the sentence."""
    if verdict == "impossible" and _beyond_memory(base):  # whatever else is said, it must be smaller
        for others in (_formats(claim, base, said, larger=False), _smaller_models(claim, base)):
            for other in others:
                judged = claim.judge(other.predicted)
                if judged != "impossible":
                    yield judged == "plausible", _sentence(other, f"fit and be {_WORDS[judged]}")
                    break
        return
    if verdict == "slow":
        kinds = [
            (_longer_context(claim, base, said), True),
            (_other_prompts(claim, said), True),
            (_formats(claim, base, said, larger=True), True),
            (_shares(claim, said), True),
            (_with_prefill(claim, base), True),
        ]
    else:
        strict = verdict == "fast"
        kinds = [
            (_aggregates(claim, base, said), strict),
            (_cached(claim, base, said), strict),
            (_sparse(claim, base), strict),
            (_speculation(claim, base, said), strict),
            (_formats(claim, base, said, larger=False), strict),
            (_smaller_models(claim, base), strict),
            (_other_prompts(claim, said), strict),
            (_with_prompt(claim, base), True),
        ]
    for others, strict in [*kinds, (_other_phase(claim, base), True), (_other_units(claim, predicted), True)]:
        possible = None
        for other in others:
            judged = claim.judge(other.predicted, other.rate)
            if judged == "plausible":
                yield True, _sentence(other, f"be {_WORDS[judged]}")
                break
            if judged == "fast" and possible is None and not strict:
                possible = other
        else:
            if possible is not None:
                yield False, _sentence(possible, f"be {_WORDS['fast']}")


_WORDS = {"plausible": "plausible", "fast": "possible, though fast", "slow": "possible, even slow"}


def _sentence(other: _Other, would: str) -> str:
    ideal, rest = significant(other.predicted.ideal), f"expected {significant(other.predicted.expected)}"
    rest += f" ({interval_text(other.predicted)}) tokens/s"
    return f"{other.how} it would {would}: ideal {other.sum}{ideal}, {rest}"


def _tried(claim: _Claim, model: ModelSpec | None = None, **changed: Any) -> Estimate | None:
    """The estimate, or None where there is none or it does not fit."""
    try:
        item = claim.ask(model, **changed)
    except RooflineError:
        return None
    return None if item.memory.fits is False else item


def _over(tokens: float, time: Prediction) -> Prediction:
    """The rate of some tokens in a time."""
    rate = {"ideal": tokens / time.ideal, "expected": tokens / time.expected}
    return Prediction(**rate, low=tokens / time.high, high=tokens / time.low, unit="tokens/s", basis=time.basis)


def _aggregates(claim: _Claim, base: Estimate, said: frozenset[str]) -> Iterator[_Other]:
    """The rate of several requests together: of the stated ones, or of as many as it takes."""
    stated = base.workload["batch"]
    if claim.aggregate:
        batches: Sequence[int] = [each for each in BATCHES if each > stated]
    elif stated > 1:
        batches = [stated]
    elif {"batch", "per request or aggregate"} & said:
        batches = []
    else:
        batches = BATCHES
    for batch in batches:
        item = _tried(claim, batch=batch)
        if item is None:
            return
        each, together = claim.predict(item, aggregate=False), claim.predict(item, aggregate=True)
        yield _Other(f"as an aggregate of {batch:,} requests", f"{batch:,} × {significant(each.ideal)} = ", together)


def _shares(claim: _Claim, said: frozenset[str]) -> Iterator[_Other]:
    """The rate of one of several requests."""
    if "batch" in said:
        return
    for batch in BATCHES:
        item = _tried(claim, batch=batch)
        if item is None:
            return
        each, together = claim.predict(item, aggregate=False), claim.predict(item, aggregate=True)
        how = f"as the rate of each of {batch:,} requests side by side"
        yield _Other(how, f"{significant(together.ideal)} / {batch:,} = ", each)


def _cached(claim: _Claim, base: Estimate, said: frozenset[str]) -> Iterator[_Other]:
    """The whole prompt over the time of what is not cached."""
    prompt = base.workload["prompt_tokens"]
    if claim.phase != "prefill" or "cache state" in said:
        return
    batch = base.workload["batch"] if claim.aggregate else 1
    left = prompt // 2
    while left >= 1:
        item = _tried(claim, cached_tokens=prompt - left)
        if item is None:
            return
        rate = _over(prompt * batch, item.prefill.time_s)
        tokens = f"{batch:,} × {prompt:,}" if batch > 1 else f"{prompt:,}"
        how = f"with {prompt - left:,} of {prompt:,} tokens of the prompt cached and counted"
        yield _Other(how, f"{tokens} tokens / {significant(item.prefill.time_s.ideal / MILLI)} ms = ", rate)
        left //= 2


def _sparse(claim: _Claim, base: Estimate) -> Iterator[_Other]:
    """Peaks that count the zeros of 2:4 sparsity as work, which no engine here uses."""
    device = base.hardware.device
    if device.kind not in ("gpu", "accelerator"):
        return
    doubled = {
        f"hardware.peaks.{index}.tflops": SPARSE_GAIN * peak.tflops for index, peak in enumerate(device.peak_list)
    }
    item = _tried(claim, overrides={**(claim.keywords.get("overrides") or {}), **doubled})
    if item is not None:
        phase, faster = (each.decode if claim.phase == "decode" else each.prefill for each in (base, item))
        if faster.time_s.ideal < phase.time_s.ideal:
            peak = significant(phase.peak_flop_per_s / TERA)
            how = f"with the peak of 2:4 sparsity ({SPARSE_GAIN} × {peak} TFLOP/s; ordinary weights are dense)"
            yield _Other(how, "", claim.predict(item))


def _speculation(claim: _Claim, base: Estimate, said: frozenset[str]) -> Iterator[_Other]:
    """Several tokens a step: the bound is of accepted drafts that cost nothing."""
    if claim.phase == "prefill" or "speculation" in said:
        return
    for drafts in DRAFTS:
        once = claim.predict(base)
        rate = claim.drafted(once, drafts)
        how = f"with {drafts} drafted token{'s' if drafts > 1 else ''} a step, all accepted,"
        yield _Other(how, f"({drafts} + 1) × {significant(once.ideal)} = ", rate)


def _formats(claim: _Claim, base: Estimate, said: frozenset[str], *, larger: bool) -> Iterator[_Other]:
    """Formats of the same family, the nearest in size first; larger ones only where none is stated."""
    if larger and "weight format" in said:
        return
    family, size = base.weights.partition(":")[0], base.memory.resident_weight_bytes
    found = []
    for listed in catalog.list_formats():
        if listed.id.partition(":")[0] == family and listed.id != base.weights:
            item = _tried(claim, weights=listed.id, engine=base.engine)
            if item is not None and (item.memory.resident_weight_bytes > size) == larger:
                found.append(item)
    found.sort(key=lambda item: (abs(item.memory.resident_weight_bytes - size), item.weights))
    for item in found:
        rate = claim.predict(item)
        how = f"in {weights_text(item.weights)} instead of {weights_text(base.weights)}"
        yield _Other(how, _ratio(claim, base, rate), rate)


def _ratio(claim: _Claim, base: Estimate, rate: Prediction) -> str:
    """The other ideal as a multiple of the stated one."""
    ideal = claim.predict(base).ideal
    return f"{significant(rate.ideal / ideal)} × {significant(ideal)} = "


def _smaller_models(claim: _Claim, base: Estimate) -> Iterator[_Other]:
    """Smaller models of the same makers, the nearest in size first."""
    found = []
    for listed in catalog.list_models():
        try:
            other = lookup.model(listed.id)
        except RooflineError:
            continue
        smaller = other.active_params < base.model.active_params and other.total_params < base.model.total_params
        if smaller and other.family == base.model.family:
            found.append(other)
    for other in sorted(found, key=lambda spec: (-spec.active_params, spec.id)):
        item = _tried(claim, other)
        if item is not None:
            rate = claim.predict(item)
            how = f"of the smaller {other.id} ({params_text(other.active_params)} active, not "
            yield _Other(f"{how}{params_text(base.model.active_params)})", _ratio(claim, base, rate), rate)


def _longer_context(claim: _Claim, base: Estimate, said: frozenset[str]) -> Iterator[_Other]:
    """More in the cache than the claim says, as far as the model is made for it."""
    if "occupied context" in said:
        return
    workload = base.workload
    room = base.model.max_context_tokens - workload["prompt_tokens"] - workload["output_tokens"]
    for tokens in [*(each for each in CONTEXTS if each < room), *([room] if room > 0 else [])]:
        item = _tried(claim, context_tokens=tokens)
        if item is None:
            return
        yield _Other(f"with {tokens:,} tokens in the cache", "", claim.predict(item))


def _other_prompts(claim: _Claim, said: frozenset[str]) -> Iterator[_Other]:
    """Another prompt than the one that stands in for an unsaid one; for decode, what is in the cache."""
    if "prompt length" in said:
        return
    for tokens in PROMPTS if claim.phase == "prefill" else (0,):
        item = _tried(claim, prompt_tokens=tokens)
        if item is not None and tokens + item.workload["output_tokens"] <= item.model.max_context_tokens:
            yield _Other(f"with a prompt of {tokens:,} tokens", "", claim.predict(item))


def _other_phase(claim: _Claim, base: Estimate) -> Iterator[_Other]:
    """The rate of the other phase."""
    if claim.drafts or not base.workload["prompt_tokens"]:
        return
    other: PhaseName = "prefill" if claim.phase == "decode" else "decode"
    yield _Other(f"as a rate of {other}", "", replace(claim, phase=other).predict(base))


def _with_prompt(claim: _Claim, base: Estimate) -> Iterator[_Other]:
    """Tokens of the prompt counted as if they had been written."""
    workload = base.workload
    prompt, output = workload["prompt_tokens"], workload["output_tokens"]
    if claim.phase == "prefill" or claim.drafts or not prompt or not output:
        return
    batch = workload["batch"] if claim.aggregate else 1
    rate = _over(batch * (prompt + output), base.e2e_s)
    tokens = f"({prompt:,} + {output:,})" if batch == 1 else f"{batch:,} × ({prompt:,} + {output:,})"
    how = "counting the tokens of the prompt too"
    yield _Other(how, f"{tokens} tokens / {significant(base.e2e_s.ideal)} s = ", rate)


def _with_prefill(claim: _Claim, base: Estimate) -> Iterator[_Other]:
    """The output over the whole time, prefill included."""
    output = base.workload["output_tokens"]
    if claim.phase == "prefill" or claim.drafts or not output:
        return
    batch = base.workload["batch"] if claim.aggregate else 1
    rate = _over(batch * output, base.e2e_s)
    yield _Other(
        "counting the time of the prompt too",
        f"{batch * output:,} tokens / {significant(base.e2e_s.ideal)} s = ",
        rate,
    )


def _other_units(claim: _Claim, predicted: Prediction) -> Iterator[_Other]:
    """The number in another unit."""
    number = significant(claim.rate)
    for how, rate in (
        (f"as {number} ms a token, 1,000 / {number} = ", 1 / (claim.rate * MILLI)),
        (f"as {number} tokens a minute, {number} / 60 = ", claim.rate / SECONDS_PER_MINUTE),
    ):
        yield _Other(f"{how}{significant(rate)} tokens/s,", "", predicted, rate)
