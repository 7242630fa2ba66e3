"""Mixture of experts: resident are all experts, multiplied are k a token, read are those that some token chose."""

from __future__ import annotations

from typing import Any

from rooflinellm._numeric import Numeric, maximum, minimum

MEASURED_SKEW = 0.33
"""Skew of real routing: 12.44 and 19.61 of 128 experts at 2 and 4 tokens, 8 each (nibor1896/Crow, issue 38). [-]"""


def expected_distinct(experts: int, active: int, tokens: Numeric, skew: Numeric = 0.0) -> Any:
    """Experts of a layer that T tokens touch.

    With uniform, independent routing E (1 - (1 - k/E)^T). Real routing is correlated, and any unevenness touches fewer
    (the sum is concave in the experts' shares): T tokens count as fewer independent ones, all of them with a skew of 0,
    a single one with a skew of 1, so that D leads from k up to E:

        D = E (1 - (1 - k/E)^(T^(1 - skew)))

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
    Huang et al. (2025), "MoESD", arXiv:2505.19645, for uniform routing.
    """
    independent = tokens ** (1.0 - skew)
    return experts * (1.0 - (1.0 - active / experts) ** independent)


def busiest_over_mean(experts: int, distinct: Numeric, ranks: int) -> Any:
    """How many experts the busiest of some devices reads, over what each reads on average.

    Of E experts, an equal part on each of e devices, D are touched. The part of one device has the mean and variance
    of draws without replacement, D (1/e) (1 - 1/e) (E - D) / (E - 1). The parts add up to D, so that they are
    correlated by -1 / (e - 1), and their largest is as far above their mean as that of e independent normal variables
    of a variance larger by e / (e - 1):

        min(max(mu + z sigma, 1), E / e, D) / mu,    mu = D / e,
        sigma^2 = D (1/e) (E - D) / (E - 1),    z = Phi^-1((e - 3/8) / (e + 1/4))

    Parameters
    ----------
    experts : int
        Routed experts, E. [-]
    distinct : array_like
        Experts touched, D. [-]
    ranks : int
        Devices, e. [-]

    Returns
    -------
    float or ndarray
        At least 1. [-]

    References
    ----------
    Blom (1958), "Statistical Estimates and Transformed Beta-Variables".
    """
    if ranks == 1:
        return 1.0
    from statistics import NormalDist

    mean = distinct / ranks
    variance = mean * maximum(experts - distinct, 0) / (experts - 1)
    largest = mean + NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) * variance**0.5
    return maximum(minimum(minimum(maximum(largest, 1), experts / ranks), distinct) / mean, 1.0)
