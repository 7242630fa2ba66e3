"""Mixture of experts: resident are all experts, multiplied are k a token, read are those that some token chose."""

from __future__ import annotations

from typing import Any

from rooflinellm._numeric import Numeric


def expected_distinct(experts: int, active: int, tokens: Numeric, skew: Numeric = 0.0) -> Any:
    """Experts of a layer that T tokens touch.

    With uniform, independent routing E (1 - (1 - k/E)^T). Real routing is correlated, and any unevenness touches fewer
    (the sum is concave in the experts' shares), so a skew between 0 (uniform) and 1 (all tokens agree) leads down to k:

        D = k + (1 - skew) (D_uniform - k)

    Parameters
    ----------
    experts : int
        Experts of a layer, E. [-]
    active : int
        Experts each token chooses, k. [-]
    tokens : array_like
        Tokens of the pass, T, at least 1. [token]
    skew : array_like
        0 uniform … 1 all tokens agree. [-]

    Returns
    -------
    float or ndarray
        Between k and E. [-]

    References
    ----------
    Huang et al. (2025), "MoESD", arXiv:2505.19645.
    """
    uniform = experts * (1.0 - (1.0 - active / experts) ** tokens)
    return active + (1.0 - skew) * (uniform - active)
