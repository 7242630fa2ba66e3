"""Softmax attention over cached keys and values: pairs, FLOPs and bytes.

`cached` tokens stand in the cache before the pass, `new` tokens are computed in it. A window counts the newest token
itself: with window W a query sees itself and at most W - 1 tokens before it. The cache of such a layer holds the last W
tokens, and a pass reads what it holds: min(c, W).
"""

from __future__ import annotations

from typing import Any

from rooflinellm._numeric import Numeric, anywhere, maximum, minimum, where


def _pairs_up_to(tokens: Numeric, window: int | None) -> Any:
    """Pairs of the first `tokens` queries of an empty cache: G(n) = n(n+1)/2, from n = W on n W - W(W-1)/2."""
    if window is None:
        return tokens * (tokens + 1) // 2
    full = minimum(tokens, window)
    return full * (full + 1) // 2 + maximum(tokens - window, 0) * window


def causal_pairs(new: Numeric, cached: Numeric, window: int | None = None) -> Any:
    """Query-key pairs that a causal pass computes: G(cached + new) - G(cached).

    Parameters
    ----------
    new : array_like
        Tokens computed in the pass, S. [token]
    cached : array_like
        Tokens in the cache before it, c. [token]
    window : int, optional
        Window W, the token itself included; None attends to everything. [token]

    Returns
    -------
    int, float or ndarray
        S c + S(S+1)/2 without a window. [-]
    """
    return _pairs_up_to(cached + new, window) - _pairs_up_to(cached, window)


def flops_per_pair(heads: int, key_dim: int, value_dim: int) -> int:
    """FLOPs of one query-key pair over all query heads: 2 H (d_k + d_v), for the score and the weighted value.

    Grouped key/value heads save bytes, not FLOPs.

    Parameters
    ----------
    heads : int
        Query heads, H. [-]
    key_dim, value_dim : int
        Width of a key and of a value head. [-]

    Returns
    -------
    int
        [FLOP]
    """
    return 2 * heads * (key_dim + value_dim)


def cached_tokens_read(cached: Numeric, window: int | None = None) -> Any:
    """Cached tokens that a pass reads for one sequence: min(c, W), all that the layer's cache holds.

    Parameters
    ----------
    cached : array_like
        Tokens in the cache before the pass, c. [token]
    window : int, optional
        Window W, the token itself included. [token]

    Returns
    -------
    int, float or ndarray
        [token]
    """
    return cached if window is None else minimum(cached, window)


def cached_tokens_read_in_run(passes: Numeric, new: Numeric, cached: Numeric, window: int | None = None) -> Any:
    """Cached tokens read over a run of passes, each adding `new` tokens: sum over i of min(c + i S, W).

    Closed form: the passes that start below the window are an arithmetic series, the others read W each.

    Parameters
    ----------
    passes : array_like
        Number of passes, n. [-]
    new : array_like
        Tokens each adds, S. [token]
    cached : array_like
        Tokens in the cache before the first, c. [token]
    window : int, optional
        Window W, the token itself included. [token]

    Returns
    -------
    int, float or ndarray
        [token]
    """
    if window is None:
        return passes * cached + new * (passes * (passes - 1) // 2)
    growing = passes_below(window, passes, new, cached)
    return growing * cached + new * (growing * (growing - 1) // 2) + (passes - growing) * window


def passes_below(limit: int, passes: Numeric, new: Numeric, cached: Numeric) -> Any:
    """How many of a run's passes start with fewer than `limit` cached tokens: min(n, ceil((limit - c) / S)).

    Parameters
    ----------
    limit : int
        [token]
    passes, new, cached : array_like
        As in `cached_tokens_read_in_run`.

    Returns
    -------
    int, float or ndarray
        [-]
    """
    step = maximum(new, 1)
    return minimum(maximum(-((cached - limit) // step), 0), passes)


def _chunked_pairs_up_to(tokens: Numeric, chunk: int) -> Any:
    """Pairs of the first `tokens` queries within chunks of A: q A(A+1)/2 + r(r+1)/2 with q, r = divmod(n, A)."""
    whole, rest = tokens // chunk, tokens % chunk
    return whole * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2


def chunked_pairs(new: Numeric, cached: Numeric, chunk: int) -> Any:
    """Query-key pairs of a causal pass whose queries see nothing before their own chunk.

    Parameters
    ----------
    new, cached : array_like
        Tokens computed in the pass, and in the cache before it. [token]
    chunk : int
        Length of a chunk, A. [token]

    Returns
    -------
    int, float or ndarray
        [-]

    References
    ----------
    Meta (2025), Llama 4 model card: chunked attention of 8,192 tokens.
    """
    return _chunked_pairs_up_to(cached + new, chunk) - _chunked_pairs_up_to(cached, chunk)


def chunk_tokens_read_in_run(passes: Numeric, new: Numeric, cached: Numeric, chunk: int) -> Any:
    """Cached tokens read over a run of passes within chunks: sum over i of (c + i S) mod A.

    The first query of a pass sees what its chunk already holds. The sum of remainders is the plain arithmetic series
    less A times a sum of quotients, which Euclid's algorithm gives in as many steps as a greatest common divisor.

    Parameters
    ----------
    passes, new, cached : array_like
        As in `cached_tokens_read_in_run`.
    chunk : int
        Length of a chunk, A. [token]

    Returns
    -------
    int, float or ndarray
        [token]
    """
    start = cached % chunk
    series = passes * start + new * (passes * (passes - 1) // 2)
    return series - chunk * _sum_of_quotients(passes, chunk, new, start)


def _sum_of_quotients(count: Numeric, divisor: Numeric, step: Numeric, start: Numeric) -> Any:
    """Sum over i = 0 … count-1 of floor((step i + start) / divisor)."""
    total: Any = 0
    while anywhere(count > 0):
        total = total + where(count > 0, (step // divisor) * (count * (count - 1) // 2) + (start // divisor) * count, 0)
        step, start = step % divisor, start % divisor
        last = step * count + start
        # Swap the roles of rows and columns under the line; what is done stays at a count of 0.
        count, start, divisor, step = where(count > 0, last // divisor, 0), last % divisor, maximum(step, 1), divisor
    return total


def decode_read_bytes(
    sequences: Numeric,
    cached_tokens: Numeric,
    kv_heads: int,
    key_dim: int,
    value_dim: int,
    bytes_per_key: float,
    bytes_per_value: float,
    window: int | None = None,
) -> Any:
    """Bytes of KV cache that one decode step must read in one layer.

    Each sequence attends to its cached tokens (the newest token's key and value are still on chip), at most a window of
    them:

        B min(c, W) H_kv (d_k b_k + d_v b_v)

    Parameters
    ----------
    sequences : array_like
        Sequences in the batch, B. [-]
    cached_tokens : array_like
        Tokens in the cache before the step, c; broadcasts with `sequences`. [token]
    kv_heads : int
        Key/value heads, H_kv. [-]
    key_dim, value_dim : int
        Width of a key and of a value head. [-]
    bytes_per_key, bytes_per_value : float
        Bytes of one cached element, scales included (q8_0: 34/32). [byte]
    window : int, optional
        Window W, the token itself included. [token]

    Returns
    -------
    int, float or ndarray
        [byte]

    References
    ----------
    Shazeer (2019), "Fast Transformer Decoding: One Write-Head is All You Need", section 3.
    """
    per_token = kv_heads * (key_dim * bytes_per_key + value_dim * bytes_per_value)
    return sequences * cached_tokens_read(cached_tokens, window) * per_token
