"""Acceptance of drafted tokens: the forms in which it is stated, and what follows from it. No hardware here."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rooflinellm.errors import InvalidRequest, met

FORMS = 'a probability such as 0.8, {"accepted_over_drafted": 0.6}, {"length": 2.9}, or a list such as [0.77, 0.38]'


def tokens_per_cycle(alpha: float, draft_tokens: int) -> float:
    """Tokens that a cycle of drafting and verifying is expected to give, the verifier's own included.

        E = sum_{i=0}^{gamma} alpha^i = (1 - alpha^(gamma + 1)) / (1 - alpha)

    Parameters
    ----------
    alpha : float
        Probability that a drafted token is accepted, given that those before it were. [-]
    draft_tokens : int
        Drafted tokens, gamma. [token]

    Returns
    -------
    float
        [token]

    References
    ----------
    Leviathan et al. (2023), "Fast Inference from Transformers via Speculative Decoding", equation 1, arXiv 2211.17192.
    """
    return math.fsum(alpha**i for i in range(draft_tokens + 1))


def alpha_of_share(share: float, draft_tokens: int) -> float:
    """The probability behind a share of accepted over drafted tokens: the root of

        sum_{i=1}^{gamma} alpha^i = gamma share

    Parameters
    ----------
    share : float
        Accepted over drafted tokens. [-]
    draft_tokens : int
        Drafted tokens in a cycle, gamma. [token]

    Returns
    -------
    float
        [-]
    """
    low, high = 0.0, 1.0
    for _ in range(60):  # bisection down to the last bit
        middle = (low + high) / 2
        low, high = (
            (middle, high) if tokens_per_cycle(middle, draft_tokens) - 1 < draft_tokens * share else (low, middle)
        )
    return (low + high) / 2


def speedup(cycle_tokens: float, draft_tokens: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """Speed with drafts over speed without: E / (gamma rho + v).

    Parameters
    ----------
    cycle_tokens : float
        Tokens of a cycle, E. [token]
    draft_tokens : int
        Drafted tokens, gamma. [token]
    draft_cost, verify_cost : float
        Time of a drafted token, rho, and of the verifying pass, v, over that of a step without drafts. [-]

    Returns
    -------
    float
        [-]

    References
    ----------
    Leviathan et al. (2023), theorem 3.8, with v = 1.
    """
    return cycle_tokens / (draft_tokens * draft_cost + verify_cost)


def operations_factor(cycle_tokens: float, draft_tokens: int, draft_cost: float) -> float:
    """Operations with drafts over operations without: (gamma rho + gamma + 1) / E.

    Parameters
    ----------
    cycle_tokens : float
        Tokens of a cycle, E. [token]
    draft_tokens : int
        Drafted tokens, gamma. [token]
    draft_cost : float
        Operations of a drafted token over those of a step, rho. [-]

    References
    ----------
    Leviathan et al. (2023), theorem 3.11.
    """
    return (draft_tokens * draft_cost + draft_tokens + 1) / cycle_tokens


def tree_tokens_per_cycle(nodes: Mapping[str, float]) -> float:
    """Tokens of a cycle whose drafts form a tree: 1 and, for each node, the probability that its path is accepted.

    Parameters
    ----------
    nodes : mapping of str to float
        Conditional acceptance of each node by its path, such as ``{"a": 0.7, "b": 0.15, "aa": 0.6}``; a path's parent
        is the path without its last letter, and siblings exclude one another. [-]

    Returns
    -------
    float
        [token]

    Raises
    ------
    InvalidRequest
        A node without its parent, or siblings that are accepted more than always.
    """
    reach = {"": 1.0}
    for path in sorted(nodes, key=len):
        parent = path[:-1]
        if not path or parent not in reach:
            raise InvalidRequest(f"node '{path}' of the tree has no parent '{parent}'", where="acceptance")
        siblings = math.fsum(share for other, share in nodes.items() if other[:-1] == parent)
        if not 0 <= nodes[path] <= 1 or siblings > 1 + 1e-9:
            raise InvalidRequest(
                f"the nodes under '{parent}' of the tree are accepted {siblings:g} times in one", where="acceptance"
            )
        reach[path] = reach[parent] * nodes[path]
    return math.fsum(reach.values())


def cycle_tokens(acceptance: Any, draft_tokens: int) -> float:
    """Tokens of a cycle, from acceptance in whatever form it is stated.

    Parameters
    ----------
    acceptance : float, mapping or sequence of float
        The probability of each token; ``{"accepted_over_drafted": x}``, which logs call acceptance rate;
        ``{"length": x}``, tokens of a cycle with the verifier's own; or the share of cycles that accept the first
        token, the first two, and so on. [-]
    draft_tokens : int
        Drafted tokens, gamma. [token]

    Returns
    -------
    float
        From 1 to gamma + 1. [token]

    Raises
    ------
    InvalidRequest
        Another form, or a number out of range.
    """
    if isinstance(acceptance, Mapping):
        return _named(acceptance, draft_tokens)
    if isinstance(acceptance, Sequence) and not isinstance(acceptance, str):
        return _by_position([_share(each) for each in acceptance], draft_tokens)
    if acceptance is None or isinstance(acceptance, bool) or not isinstance(acceptance, numbers.Real):
        raise InvalidRequest(
            f"{met(acceptance)} does not say how many drafted tokens are accepted",
            where="acceptance",
            next_step=f"Give {FORMS}.",
        )
    return tokens_per_cycle(_share(acceptance), draft_tokens)


def _named(acceptance: Mapping[str, Any], draft_tokens: int) -> float:
    if set(acceptance) == {"accepted_over_drafted"}:
        return 1 + draft_tokens * _share(acceptance["accepted_over_drafted"])
    if set(acceptance) == {"length"}:
        length = acceptance["length"]
        if (
            isinstance(length, bool)
            or not isinstance(length, numbers.Real)
            or not 1 <= float(length) <= draft_tokens + 1
        ):
            raise InvalidRequest(
                f"{met(length)} tokens of a cycle; with {draft_tokens} drafted ones it is 1 to {draft_tokens + 1}",
                where="acceptance",
            )
        return float(length)
    named = ", ".join(map(str, acceptance)) or "nothing"
    raise InvalidRequest(f"acceptance by {named:.60}", where="acceptance", next_step=f"Give {FORMS}.")


def _by_position(shares: Sequence[float], draft_tokens: int) -> float:
    if len(shares) != draft_tokens:
        raise InvalidRequest(
            f"{len(shares)} shares for {draft_tokens} drafted tokens; give one for each position", where="acceptance"
        )
    if any(later > earlier for earlier, later in pairwise(shares)):
        raise InvalidRequest(
            "the shares grow from one position to the next; they are of cycles that accept all tokens up to there",
            where="acceptance",
        )
    return 1 + math.fsum(shares)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= float(value) <= 1:
        raise InvalidRequest(f"{met(value)} is not a number from 0 to 1", where="acceptance")
    return float(value)
