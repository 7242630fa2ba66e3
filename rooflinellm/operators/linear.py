"""Linear layers: each weight is multiplied by each token and read once a pass."""

from __future__ import annotations

from typing import Any

from rooflinellm._numeric import Numeric


def flops(tokens: Numeric, params: Numeric) -> Any:
    """FLOPs of a linear layer: 2 N T, a multiplication and an addition for each weight and token.

    Parameters
    ----------
    tokens : array_like
        Tokens multiplied, T. [token]
    params : array_like
        Weights of the matrices, N. [-]

    Returns
    -------
    int, float or ndarray
        [FLOP]
    """
    return 2 * params * tokens


def activation_bytes(tokens: Numeric, inputs: Numeric, outputs: Numeric, bytes_per_value: Numeric) -> Any:
    """Bytes of activations read and written, T (inputs + outputs) b: an expectation counts them, a bound does not.

    Parameters
    ----------
    tokens : array_like
        Tokens, T. [token]
    inputs, outputs : array_like
        Features read and written for a token. [-]
    bytes_per_value : array_like
        Bytes of one activation, b. [byte]

    Returns
    -------
    int, float or ndarray
        [byte]
    """
    return tokens * (inputs + outputs) * bytes_per_value


def critical_tokens(peak: Numeric, bandwidth: Numeric, bytes_per_weight: Numeric) -> Any:
    """Tokens in a pass from which on a large linear layer is compute-bound: P b_w / (2 b).

    Parameters
    ----------
    peak : array_like
        Compute rate, P. [FLOP/s]
    bandwidth : array_like
        Memory bandwidth, b. [byte/s]
    bytes_per_weight : array_like
        b_w. [byte]

    Returns
    -------
    float or ndarray
        [token]

    References
    ----------
    Austin et al. (2025), "How to scale your model", Google DeepMind, chapter "All about rooflines".
    """
    return peak * bytes_per_weight / (2 * bandwidth)
