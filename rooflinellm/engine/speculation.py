"""Speculative decoding: cycles of drafting and verifying in place of steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rooflinellm import units
from rooflinellm._numeric import divide, maximum, mean, plain
from rooflinellm.engine.acceptance import alpha_of_share, tokens_per_cycle
from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.phases import PhaseTime, phase_time
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request, decode_time, in_turn
from rooflinellm.operators.model import ModelSpec
from rooflinellm.results import Prediction

LONGEST_DRAFT = 16
"""Most tokens that the search for the best draft tries. [token]"""
_TOTALS = (
    "ideal_s", "expected_s", "floor_s", "crossing_s", "compute_s", "memory_s", "link_s", "flops", "read_bytes"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are drafted.

    Attributes
    ----------
    draft_tokens : int
        Tokens that a pass verifies beside its own, gamma. [token]
    draft_steps : int
        Passes of the drafter in a cycle: gamma of a chain, the depth of a tree. [-]
    cycle_tokens : float
        Tokens that a cycle gives, the verifier's own included, E. [token]
    amortisation : float or None
        Share of a further position's cost that a verifying pass saves; None leaves it to the engine's kernels. [-]
    """

    draft_tokens: int
    draft_steps: int
    cycle_tokens: float
    amortisation: float | None = None


def speculative_time(plan: Plan, request: Request, steps: Any) -> PhaseTime:
    """Decode some tokens in cycles of drafting and verifying.

    A cycle takes the passes of the drafter and, behind them, one pass of gamma + 1 tokens of each sequence; it gives E
    tokens. With a stated amortisation a, verifying takes T_1 (1 + (1 - a) gamma) in the expectation. The cache grows by
    E a cycle, and all cycles are counted at the middle one's.

        T = steps / E (gamma T_draft + T_verify(gamma + 1) + T_choose)

    Choosing a token from its logits is part of every step; here only those tokens are counted that drafting and
    verifying choose beyond one.

    Parameters
    ----------
    plan : Plan
        The plan, with what drafts.
    request : Request
        The request, with how it drafts.
    steps : array_like
        Tokens to decode. [token]

    Returns
    -------
    PhaseTime
    """
    how: Speculation = request.speculation
    cycles = steps / how.cycle_tokens
    middle = request.decode_start + maximum(steps - how.cycle_tokens, 0) // 2
    width = how.draft_tokens + 1
    verify = _passes(plan, request, Run(request.sequences, width, 1, middle, logits=width))
    if how.amortisation is not None:
        single = _passes(plan, request, Run(request.sequences, 1, 1, middle))
        stated = maximum(single.expected_s * (1 + (1 - how.amortisation) * how.draft_tokens), verify.ideal_s)
        scale = verify.expected_scale * divide(verify.expected_s, stated, empty=1.0)
        verify = replace(verify, expected_s=stated, expected_scale=scale)
    parts = [("", verify)]
    if plan.drafter is not None and plan.drafter.plan is not None and how.draft_steps:
        run = Run(request.sequences, 1, how.draft_steps, middle)
        parts.append(("draft: ", _passes(plan.drafter.plan, request, run)))
    summed = {name: cycles * sum(getattr(part, name) for _, part in parts) for name in _TOTALS}
    chosen = how.draft_tokens + (how.draft_steps if len(parts) > 1 else 0)
    logit_s = plan.engine.sampling_ns_per_logit * units.NANO
    sampling = cycles * request.sequences * chosen * plan.model.vocabulary * logit_s
    summed["expected_s"] = summed["expected_s"] + sampling
    return replace(verify, **summed, parts=tuple(parts), repeats=cycles, sampling_s=sampling)


def _passes(plan: Plan, request: Request, run: Run) -> PhaseTime:
    passes = Passes((run,), (run,))
    return phase_time(plan, passes, passes, request.skew, request.overlap, in_turn=in_turn(plan, request.sequences))


@dataclass(frozen=True, repr=False)
class SpeculationResult:
    """What drafting brings.

    Attributes
    ----------
    draft : str
        What drafts.
    draft_tokens : int
        Tokens drafted in a cycle. [token]
    tokens_per_cycle : float
        Tokens that a cycle gives. [token]
    alpha : float
        Probability that a drafted token is accepted, the same at each position. [-]
    cycle_s : Prediction
        Time of a cycle, which is the gap between streamed pieces. [s]
    verify_steps : float or ndarray
        Expected time of a verifying pass over that of a step without drafts. [-]
    draft_share : float or ndarray
        Share of a cycle's expected time that drafting takes. [-]
    speedup : float or ndarray
        Expected speed over that without drafts; below 1 drafting does not pay. [-]
    """

    draft: str
    draft_tokens: int
    tokens_per_cycle: float
    alpha: float
    cycle_s: Prediction
    verify_steps: Any
    draft_share: Any
    speedup: Any
    _plan: Plan
    _request: Request

    def __repr__(self) -> str:
        return (
            f"SpeculationResult({self.draft}, {self.draft_tokens} drafted: {self.tokens_per_cycle:.3g} tokens/cycle, "
            f"speed-up {float(mean(self.speedup)):.3g})"
        )

    @property
    def draft_model(self) -> ModelSpec | None:
        """The model that drafts; None where what drafts is a part of the model, or no model."""
        drafter = self._plan.drafter
        return drafter.plan.model if drafter is not None and drafter.separate and drafter.plan is not None else None

    @property
    def draft_weights(self) -> str | None:
        """The format of the model that drafts, where one does."""
        drafter = self._plan.drafter
        return drafter.plan.fmt.id if drafter is not None and drafter.separate and drafter.plan is not None else None

    @cached_property
    def best_draft_tokens(self) -> int:
        """The draft length from 0 to 16 that is expected to be fastest at this acceptance of each token. [token]"""

        def seconds(length: int) -> float:
            if not length:
                time = decode_time(self._plan, replace(self._request, speculation=None), 1)
            else:
                how = Speculation(
                    length, length, tokens_per_cycle(self.alpha, length), self._request.speculation.amortisation
                )
                time = speculative_time(self._plan, replace(self._request, speculation=how), 1)
            return float(mean(time.expected_s))

        return min(range(LONGEST_DRAFT + 1), key=seconds)

    def to_dict(self) -> dict[str, Any]:
        """JSON keys as the command line prints them."""
        return {
            "draft": self.draft,
            "draft_tokens": self.draft_tokens,
            "tokens_per_cycle": self.tokens_per_cycle,
            "alpha": self.alpha,
            "cycle_s": self.cycle_s.to_dict(),
            "verify_steps": plain(self.verify_steps),
            "draft_share": plain(self.draft_share),
            "speedup": plain(self.speedup),
            "best_draft_tokens": self.best_draft_tokens,
        }


def speculation_result(plan: Plan, request: Request, tpot: Prediction) -> SpeculationResult | None:
    """What drafting brings at the start of decode, None without drafts.

    Parameters
    ----------
    plan, request
        As in `speculative_time`.
    tpot : Prediction
        Time of a token over the whole decode. [s]
    """
    how: Speculation | None = request.speculation
    if how is None:
        return None
    without = decode_time(plan, replace(request, speculation=None), 1).expected_s
    cycle = speculative_time(plan, request, how.cycle_tokens)
    verify = cycle.parts[0][1].expected_s
    drafter = plan.drafter
    return SpeculationResult(
        draft="drafts that cost nothing" if drafter is None else drafter.name,
        draft_tokens=how.draft_tokens,
        tokens_per_cycle=how.cycle_tokens,
        alpha=alpha_of_share((how.cycle_tokens - 1) / how.draft_tokens, how.draft_tokens),
        cycle_s=tpot.scaled(how.cycle_tokens),
        verify_steps=divide(verify, without),
        draft_share=1 - divide(verify, cycle.expected_s),
        speedup=divide(without, cycle.expected_s / how.cycle_tokens),
        _plan=plan,
        _request=request,
    )
