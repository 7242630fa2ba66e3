"""Other readings of a claimed rate: what it would be the rate of, if it is not the one it is said to be."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from rooflinellm import catalog
from rooflinellm._shown import one_line
from rooflinellm.api import lookup
from rooflinellm.api.estimate import estimate
from rooflinellm.errors import RooflineError, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.results import Estimate, Prediction
from rooflinellm.specs.hardware import SystemSpec
from rooflinellm.summary import fits_text, interval_text, params_text, weights_text
from rooflinellm.units import MILLI, TERA, significant

Verdict = Literal["impossible", "fast", "plausible", "slow"]
PhaseName = Literal["decode", "prefill"]

BATCHES = tuple(2**power for power in range(1, 11))
"""Requests side by side that an unsaid aggregate is tried with. [-]"""
DRAFTS = tuple(range(1, 9))
"""Drafted tokens a step that unsaid speculation is tried with; more are hardly ever drafted. [token]"""
CONTEXTS = tuple(tokens for power in range(12, 21) for tokens in (2**power, 3 * 2 ** (power - 1)))
"""Tokens in the cache that a slow claim is tried with. [token]"""
PROMPTS = (128, 512, 2_048, 8_192, 32_768)
"""Prompt lengths that a claim without one is tried with. [token]"""
SPARSE_GAIN = 2
"""Peak with 2:4 sparsity over the dense one. [-]"""
SECONDS_PER_MINUTE = 60
SPILL = 0.15
"""From this much over the usable memory on, a rate within the interval cannot be reached from elsewhere. [-]

The low end of an interval is about half of the expected rate, and host memory gives a tenth of a card's bandwidth or
less: a seventh of the bytes from there takes more than as long again.
"""


def beyond_memory(base: Estimate) -> bool:
    """Whether so much lies elsewhere that no rate of the interval can be reached."""
    memory = base.memory
    return memory.usable_bytes is not None and memory.total_bytes > (1 + SPILL) * memory.usable_bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed, and how to ask again with something changed."""

    rate: float
    phase: PhaseName
    aggregate: bool
    drafts: int
    model: ModelSpec
    system: SystemSpec
    keywords: Mapping[str, Any]

    __repr__ = one_line

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


class Reading(NamedTuple):
    """Another reading of a claim: how it begins a sentence, the sum behind its ideal, and what it predicts."""

    how: str
    sum: str
    predicted: Prediction
    rate: float | None = None


def reasons(
    claim: Claim, base: Estimate, predicted: Prediction, verdict: Verdict, said: frozenset[str]
) -> Iterator[str]:
    """The comparison, then what would explain the claim."""
    ideal, expected = significant(predicted.ideal), significant(predicted.expected)
    claimed, beyond = f"{significant(claim.rate)} tokens/s", beyond_memory(base)
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
    claim: Claim, base: Estimate, predicted: Prediction, verdict: Verdict, said: frozenset[str]
) -> Iterator[tuple[bool, str]]:
    """Of each kind of other reading the first that fits best: whether it is plausible, and the sentence."""
    if verdict == "impossible" and beyond_memory(base):  # whatever else is said, it must be smaller
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


def _sentence(other: Reading, would: str) -> str:
    ideal, rest = significant(other.predicted.ideal), f"expected {significant(other.predicted.expected)}"
    rest += f" ({interval_text(other.predicted)}) tokens/s"
    return f"{other.how} it would {would}: ideal {other.sum}{ideal}, {rest}"


def _tried(claim: Claim, model: ModelSpec | None = None, **changed: Any) -> Estimate | None:
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


def _aggregates(claim: Claim, base: Estimate, said: frozenset[str]) -> Iterator[Reading]:
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
        yield Reading(f"as an aggregate of {batch:,} requests", f"{batch:,} × {significant(each.ideal)} = ", together)


def _shares(claim: Claim, said: frozenset[str]) -> Iterator[Reading]:
    """The rate of one of several requests."""
    if "batch" in said:
        return
    for batch in BATCHES:
        item = _tried(claim, batch=batch)
        if item is None:
            return
        each, together = claim.predict(item, aggregate=False), claim.predict(item, aggregate=True)
        how = f"as the rate of each of {batch:,} requests side by side"
        yield Reading(how, f"{significant(together.ideal)} / {batch:,} = ", each)


def _cached(claim: Claim, base: Estimate, said: frozenset[str]) -> Iterator[Reading]:
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
        yield Reading(how, f"{tokens} tokens / {significant(item.prefill.time_s.ideal / MILLI)} ms = ", rate)
        left //= 2


def _sparse(claim: Claim, base: Estimate) -> Iterator[Reading]:
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
            yield Reading(how, "", claim.predict(item))


def _speculation(claim: Claim, base: Estimate, said: frozenset[str]) -> Iterator[Reading]:
    """Several tokens a step: the bound is of accepted drafts that cost nothing."""
    if claim.phase == "prefill" or "speculation" in said:
        return
    for drafts in DRAFTS:
        once = claim.predict(base)
        rate = claim.drafted(once, drafts)
        how = f"with {drafts} drafted token{'s' if drafts > 1 else ''} a step, all accepted,"
        yield Reading(how, f"({drafts} + 1) × {significant(once.ideal)} = ", rate)


def _formats(claim: Claim, base: Estimate, said: frozenset[str], *, larger: bool) -> Iterator[Reading]:
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
        yield Reading(how, _ratio(claim, base, rate), rate)


def _ratio(claim: Claim, base: Estimate, rate: Prediction) -> str:
    """The other ideal as a multiple of the stated one."""
    ideal = claim.predict(base).ideal
    return f"{significant(rate.ideal / ideal)} × {significant(ideal)} = "


def _smaller_models(claim: Claim, base: Estimate) -> Iterator[Reading]:
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
            yield Reading(f"{how}{params_text(base.model.active_params)})", _ratio(claim, base, rate), rate)


def _longer_context(claim: Claim, base: Estimate, said: frozenset[str]) -> Iterator[Reading]:
    """More in the cache than the claim says, as far as the model is made for it."""
    if "occupied context" in said:
        return
    workload = base.workload
    room = base.model.max_context_tokens - workload["prompt_tokens"] - workload["output_tokens"]
    for tokens in [*(each for each in CONTEXTS if each < room), *([room] if room > 0 else [])]:
        item = _tried(claim, context_tokens=tokens)
        if item is None:
            return
        yield Reading(f"with {tokens:,} tokens in the cache", "", claim.predict(item))


def _other_prompts(claim: Claim, said: frozenset[str]) -> Iterator[Reading]:
    """Another prompt than the one that stands in for an unsaid one; for decode, what is in the cache."""
    if "prompt length" in said:
        return
    for tokens in PROMPTS if claim.phase == "prefill" else (0,):
        item = _tried(claim, prompt_tokens=tokens)
        if item is not None and tokens + item.workload["output_tokens"] <= item.model.max_context_tokens:
            yield Reading(f"with a prompt of {tokens:,} tokens", "", claim.predict(item))


def _other_phase(claim: Claim, base: Estimate) -> Iterator[Reading]:
    """The rate of the other phase."""
    if claim.drafts or not base.workload["prompt_tokens"]:
        return
    other: PhaseName = "prefill" if claim.phase == "decode" else "decode"
    yield Reading(f"as a rate of {other}", "", replace(claim, phase=other).predict(base))


def _with_prompt(claim: Claim, base: Estimate) -> Iterator[Reading]:
    """Tokens of the prompt counted as if they had been written."""
    workload = base.workload
    prompt, output = workload["prompt_tokens"], workload["output_tokens"]
    if claim.phase == "prefill" or claim.drafts or not prompt or not output:
        return
    batch = workload["batch"] if claim.aggregate else 1
    rate = _over(batch * (prompt + output), base.e2e_s)
    tokens = f"({prompt:,} + {output:,})" if batch == 1 else f"{batch:,} × ({prompt:,} + {output:,})"
    how = "counting the tokens of the prompt too"
    yield Reading(how, f"{tokens} tokens / {significant(base.e2e_s.ideal)} s = ", rate)


def _with_prefill(claim: Claim, base: Estimate) -> Iterator[Reading]:
    """The output over the whole time, prefill included."""
    output = base.workload["output_tokens"]
    if claim.phase == "prefill" or claim.drafts or not output:
        return
    batch = base.workload["batch"] if claim.aggregate else 1
    rate = _over(batch * output, base.e2e_s)
    yield Reading(
        "counting the time of the prompt too",
        f"{batch * output:,} tokens / {significant(base.e2e_s.ideal)} s = ",
        rate,
    )


def _other_units(claim: Claim, predicted: Prediction) -> Iterator[Reading]:
    """The number in another unit."""
    number = significant(claim.rate)
    for how, rate in (
        (f"as {number} ms a token, 1,000 / {number} = ", 1 / (claim.rate * MILLI)),
        (f"as {number} tokens a minute, {number} / 60 = ", claim.rate / SECONDS_PER_MINUTE),
    ):
        yield Reading(f"{how}{significant(rate)} tokens/s,", "", predicted, rate)
