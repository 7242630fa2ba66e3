"""Serving metrics by the definitions that the field uses, and conversions between them. No hardware here.

Every function takes numbers or arrays. Tools differ in what they call by the same name: where they do, the function
says which definition it follows, and which option gives the others (see the glossary in the documentation).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from rooflinellm._numeric import Numeric, anywhere, divide
from rooflinellm.errors import InvalidRequest

TpotDefinition = Literal["gaps", "tokens", "whole_answer"]


def ttft_s(
    queue_s: Numeric = 0.0, tokenize_s: Numeric = 0.0, prefill_s: Numeric = 0.0, first_token_s: Numeric = 0.0
) -> Any:
    """Time to first token: from sending the request to the first token of any kind, thinking included.

        TTFT = queue + tokenisation + prefill + first token

    Parameters
    ----------
    queue_s, tokenize_s, prefill_s : array_like
        Waiting, tokenisation and prefill. [s]
    first_token_s : array_like
        What the first token takes on top: sampling, as it comes out of prefill's logits; or, by the convention that
        counts it apart, one decode step. [s]

    Returns
    -------
    float or ndarray
        [s]

    References
    ----------
    NVIDIA NIM, LLM benchmarking, "Metrics".
    """
    return queue_s + tokenize_s + prefill_s + first_token_s


def first_answer_token_s(first_s: Numeric, thinking_tokens: Numeric, token_s: Numeric) -> Any:
    """Time to the first token of the answer proper, behind a reasoning model's thinking: TTFT + n_thinking TPOT.

    Parameters
    ----------
    first_s, token_s : array_like
        TTFT, and TPOT while it thinks. [s]
    thinking_tokens : array_like
        Tokens before the answer. [token]

    Returns
    -------
    float or ndarray
        [s]

    References
    ----------
    vllm-project/guidellm, pull request 742.
    """
    return first_s + thinking_tokens * token_s


def e2e_s(first_s: Numeric, token_s: Numeric, output_tokens: Numeric) -> Any:
    """Time to the last token: TTFT + (N - 1) TPOT; N tokens have N - 1 gaps.

    Parameters
    ----------
    first_s, token_s : array_like
        TTFT and TPOT. [s]
    output_tokens : array_like
        N, at least 1. [token]

    Returns
    -------
    float or ndarray
        [s]
    """
    _at_least("output_tokens", output_tokens, 1)
    return first_s + (output_tokens - 1) * token_s


def tpot_s(whole_s: Numeric, first_s: Numeric, output_tokens: Numeric, definition: TpotDefinition = "gaps") -> Any:
    """Time per output token.

    ``gaps``
        (E2E - TTFT) / (N - 1), of vLLM's and SGLang's benchmarks; undefined for one token.
    ``tokens``
        (E2E - TTFT) / N: smaller by the factor (N - 1) / N.
    ``whole_answer``
        E2E / N, with queue and prefill in it: guidellm's ``time_per_output_token``.

    Parameters
    ----------
    whole_s, first_s : array_like
        E2E and TTFT of a request. [s]
    output_tokens : array_like
        N. [token]
    definition : str
        As above.

    Returns
    -------
    float or ndarray
        [s]

    Raises
    ------
    InvalidRequest
        Fewer tokens than the definition needs, an end before the first token, or another definition.
    """
    _at_least("output_tokens", output_tokens, 2 if definition == "gaps" else 1)
    if anywhere(whole_s < first_s):
        raise InvalidRequest("the last token comes before the first", where="whole_s")
    if definition == "gaps":
        return (whole_s - first_s) / (output_tokens - 1)
    if definition == "tokens":
        return (whole_s - first_s) / output_tokens
    if definition == "whole_answer":
        return whole_s / output_tokens
    raise InvalidRequest(f"'{definition}' is not one of gaps, tokens, whole_answer", where="definition")


def gaps_s(arrivals_s: Sequence[float]) -> list[float]:
    """Inter-token latencies: gaps between the pieces of one stream, one less than there are pieces.

    A piece holds one token, or, with speculation, the tokens of a cycle.

    Parameters
    ----------
    arrivals_s : sequence of float
        When each piece arrived, in order. [s]

    Returns
    -------
    list of float
        [s]

    Raises
    ------
    InvalidRequest
        Times that run backwards.
    """
    gaps = [later - earlier for earlier, later in pairwise(arrivals_s)]
    if any(gap < 0 for gap in gaps):
        raise InvalidRequest("times of arrival that run backwards", where="arrivals_s")
    return gaps


def mean_itl_s(streams_s: Sequence[Sequence[float]]) -> float:
    """Mean inter-token latency over all gaps of several streams: sum of gaps / (pieces - streams).

    Long answers weigh more than in the mean of TPOT over requests, to which each request contributes one number. The
    divisor counts gaps, not tokens.

    Parameters
    ----------
    streams_s : sequence of sequences of float
        Times of arrival by stream. [s]

    Returns
    -------
    float
        [s]

    Raises
    ------
    InvalidRequest
        No gap at all.

    References
    ----------
    NVIDIA/TensorRT-LLM, pull request 8378.
    """
    gaps = [gap for stream in streams_s for gap in gaps_s(stream)]
    if not gaps:
        raise InvalidRequest("no stream has two pieces, so there is no gap", where="streams_s")
    return sum(gaps) / len(gaps)


def itl_s(token_s: Numeric, tokens_per_piece: Numeric = 1.0) -> Any:
    """Gap between streamed pieces that hold several tokens: TPOT times the tokens of a piece.

    Parameters
    ----------
    token_s : array_like
        TPOT. [s]
    tokens_per_piece : array_like
        Tokens that arrive together: 1, or those that a cycle of speculation accepts. [token]

    Returns
    -------
    float or ndarray
        [s]
    """
    return token_s * tokens_per_piece


def tokens_per_s(token_s: Numeric) -> Any:
    """Rate of one request from its TPOT: 1 / TPOT, which some tools call tokens per second per user. [tokens/s]"""
    _above_zero("token_s", token_s)
    return 1 / token_s


def tpot_of_rate_s(rate: Numeric) -> Any:
    """TPOT from the rate of one request. [s]"""
    _above_zero("rate", rate)
    return 1 / rate


def per_request_tokens_per_s(aggregate: Numeric, *, concurrency: Numeric) -> Any:
    """Rate that each of some requests sees, of what all of them get together.

    Parameters
    ----------
    aggregate : array_like
        Rate of all requests. [tokens/s]
    concurrency : array_like
        Requests at the same time. Without it the two rates cannot be told apart. [-]

    Returns
    -------
    float or ndarray
        [tokens/s]
    """
    _above_zero("concurrency", concurrency)
    return aggregate / concurrency


def aggregate_tokens_per_s(per_request: Numeric, *, concurrency: Numeric) -> Any:
    """Rate of all of some requests while they all decode; prefill in between makes it less.

    Parameters
    ----------
    per_request : array_like
        Rate of one. [tokens/s]
    concurrency : array_like
        Requests at the same time. [-]

    Returns
    -------
    float or ndarray
        [tokens/s]
    """
    _above_zero("concurrency", concurrency)
    return per_request * concurrency


def per_device_tokens_per_s(aggregate: Numeric, *, devices: Numeric) -> Any:
    """Aggregate rate over the devices that serve it. [tokens/s]"""
    _above_zero("devices", devices)
    return aggregate / devices


def throughput_tokens_per_s(requests: Numeric, output_tokens: Numeric, *, duration_s: Numeric) -> Any:
    """Output tokens of a whole run over the time on the clock, prefill and waiting included.

    Parameters
    ----------
    requests : array_like
        Requests that finished. [-]
    output_tokens : array_like
        Output tokens of each. [token]
    duration_s : array_like
        From the first request to the last token. [s]

    Returns
    -------
    float or ndarray
        [tokens/s]
    """
    _above_zero("duration_s", duration_s)
    return requests * output_tokens / duration_s


def slo_attainment(
    first_s: Sequence[float],
    token_s: Sequence[float],
    *,
    max_ttft_s: float | None = None,
    max_tpot_s: float | None = None,
) -> float:
    """Share of requests that meet all objectives; a request of one token has a TPOT of 0.

    Parameters
    ----------
    first_s, token_s : sequence of float
        TTFT and TPOT by request. [s]
    max_ttft_s, max_tpot_s : float, optional
        Objectives; None is none. [s]

    Returns
    -------
    float
        [-]

    Raises
    ------
    InvalidRequest
        No requests, or lists of different lengths.
    """
    if not first_s or len(first_s) != len(token_s):
        raise InvalidRequest(
            f"{len(first_s)} times to first token and {len(token_s)} per token; give both of each request",
            where="first_s",
        )
    met = sum(
        (max_ttft_s is None or first <= max_ttft_s) and (max_tpot_s is None or each <= max_tpot_s)
        for first, each in zip(first_s, token_s, strict=True)
    )
    return met / len(first_s)


def goodput_per_s(
    first_s: Sequence[float],
    token_s: Sequence[float],
    *,
    duration_s: float,
    max_ttft_s: float | None = None,
    max_tpot_s: float | None = None,
) -> float:
    """Requests a second that meet all objectives.

    Parameters
    ----------
    first_s, token_s, max_ttft_s, max_tpot_s
        As in `slo_attainment`.
    duration_s : float
        Time in which the requests were served. [s]

    Returns
    -------
    float
        [1/s]

    References
    ----------
    Zhong et al. (2024), "DistServe", arXiv:2401.09670, who look for the highest rate at which 90 % meet them.
    """
    _above_zero("duration_s", duration_s)
    share = slo_attainment(first_s, token_s, max_ttft_s=max_ttft_s, max_tpot_s=max_tpot_s)
    return share * len(first_s) / duration_s


def mbu(read_bytes: Numeric, time_s: Numeric, bandwidth: Numeric) -> Any:
    """Memory bandwidth utilisation: bytes that must be read over what the printed bandwidth moves in the time.

        MBU = (weights + cache) / (T b)

    Parameters
    ----------
    read_bytes : array_like
        Weights and occupied cache. [byte]
    time_s : array_like
        Time, such as TPOT. [s]
    bandwidth : array_like
        Printed, of all devices that take part. [byte/s]

    Returns
    -------
    float or ndarray
        [-]

    References
    ----------
    Agarwal et al. (2023), "LLM Inference Performance Engineering: Best Practices", Databricks.
    """
    return _utilisation(read_bytes, time_s, bandwidth, "bandwidth")


def mfu(flops: Numeric, time_s: Numeric, peak: Numeric) -> Any:
    """Model FLOPs utilisation: FLOPs of the model over what the dense peak computes in the time.

        MFU = F / (T P)

    Parameters
    ----------
    flops : array_like
        FLOPs of products and attention. [FLOP]
    time_s : array_like
        [s]
    peak : array_like
        Dense, at the advertised clock, of all devices that take part; never a figure for sparse matrices. [FLOP/s]

    Returns
    -------
    float or ndarray
        [-]

    References
    ----------
    Chowdhery et al. (2022), "PaLM", appendix B, arXiv:2204.02311.
    """
    return _utilisation(flops, time_s, peak, "peak")


def _utilisation(amount: Any, time_s: Any, rate: Any, name: str) -> Any:
    possible = time_s * rate
    if anywhere((possible <= 0) & (amount > 0)):
        raise InvalidRequest("work in no time, or at no rate", where=f"time_s or {name}")
    return divide(amount, possible)


def _above_zero(name: str, value: Any) -> None:
    if anywhere(value <= 0):
        raise InvalidRequest(f"{_first(value)} is not above 0", where=name)


def _at_least(name: str, value: Any, least: int) -> None:
    if anywhere(value < least):
        raise InvalidRequest(f"{_first(value)} is less than {least}", where=name)


def _first(value: Any) -> Any:
    """The number, or the least of an array, for a message."""
    return value.min() if hasattr(value, "min") else value
