"""Judge a claimed rate: whether it is possible, what would explain it, and what the claim leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from rooflinellm._numeric import is_array, plain
from rooflinellm.api import lookup
from rooflinellm.api.arguments import count, one_of, positive, single_values
from rooflinellm.api.claim_readings import Claim, PhaseName, Verdict, beyond_memory, reasons
from rooflinellm.api.estimate import MAX_TOKENS
from rooflinellm.api.lookup import Name
from rooflinellm.engine.memory import LARGEST_BATCH
from rooflinellm.errors import InvalidRequest, met
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import count_text, weights_text, what_text
from rooflinellm.units import significant

MAX_DRAFTS = 64

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
    single_values(others, "a claim is of one case")
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
    claim = Claim(rate, phase, bool(aggregate), drafts or 0, lookup.model(model), lookup.system(hardware), keywords)
    base = claim.ask()
    predicted = claim.predict(base)
    if is_array(predicted.ideal):
        raise InvalidRequest(
            "a claim is of one case; give one value for each argument, no arrays", where="tokens_per_s"
        )
    if not predicted.ideal > 0:
        raise InvalidRequest("there is no token to prefill, so there is no rate", where="prompt_tokens")
    verdict = claim.judge(predicted)
    beyond = beyond_memory(base)
    if beyond and verdict in ("fast", "plausible"):
        verdict = "impossible"
    return ClaimResult(
        verdict=verdict,
        claimed=rate,
        **{name: float(getattr(predicted, name)) for name in ("ideal", "expected", "low", "high")},
        unit="tokens/s",
        reasons=tuple(reasons(claim, base, predicted, verdict, said=_said(missing))),
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
        raise InvalidRequest(f"{met(aggregate)} is neither True nor False", where="aggregate")
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
