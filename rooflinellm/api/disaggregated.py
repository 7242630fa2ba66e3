"""Prefill and decode on machines of their own, with the cache sent from one to the other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm import catalog
from rooflinellm._numeric import plain
from rooflinellm._shown import one_line
from rooflinellm.api import lookup
from rooflinellm.api.arguments import positive, scalar_count, single_values
from rooflinellm.api.estimate import estimate
from rooflinellm.api.lookup import Name
from rooflinellm.api.options import Options
from rooflinellm.api.parallel_choices import DEGREES
from rooflinellm.efficiency.rates import way
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, Prediction, flat_record
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.specs.parsing import network
from rooflinellm.summary import bases_text, system_text
from rooflinellm.units import GB, MICRO, format_gib, format_seconds, significant

LINK = "400gbe"
"""One port of 400 Gbit/s."""
_TIMES = ("ttft_s", "tpot_s", "e2e_s", "transfer_s", "exposed_s")
_SINGLE = ("kv_bytes", "prefill_per_decode", "device_tokens_per_s")
_LENGTHS = ("context_tokens", "prompt_tokens", "cached_tokens", "context_limit", "prefill_chunk")
_ALONE = {"count": 1, "others": (), "host": None, "host_cpu": None, "disk": None, "network": None}


@dataclass(frozen=True)
class Disaggregated:
    """The answer of `disaggregated`.

    Attributes
    ----------
    prefill, decode : Estimate
        Either machine alone: the prompts without an answer, and the answers behind them.
    ttft_s, tpot_s, e2e_s : Prediction
        Of a request: prefill and what is left of the transfer; a token after the first; all of it. [s]
    kv_bytes : int
        Cache and state of one request's context and prompt, which are sent. [byte]
    transfer_s, exposed_s : Prediction
        Time to send them for all prompts of a prefill, and what of it comes behind the prefill. [s]
    prefill_per_decode : float
        Prefill machines that keep a decode machine busy, in expectation. [-]
    device_tokens_per_s : float
        Output tokens by device where machines are in this ratio, in expectation. [tokens/s]
    assumptions, warnings : tuple of str
        What the answer rests on, and what makes it an "as if".
    """

    prefill: Estimate
    decode: Estimate
    ttft_s: Prediction
    tpot_s: Prediction
    e2e_s: Prediction
    kv_bytes: int
    transfer_s: Prediction
    exposed_s: Prediction
    prefill_per_decode: float
    device_tokens_per_s: float
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            **{name: getattr(self, name).to_dict() for name in _TIMES},
            **{name: getattr(self, name) for name in _SINGLE},
            "prefill": self.prefill.to_dict(),
            "decode": self.decode.to_dict(),
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row: the machines, the request and what comes out."""
        request = {name: plain(value) for name, value in self.decode.workload.items() if name == "batch"}
        lengths = {name: plain(value) for name, value in self.prefill.workload.items() if name in _LENGTHS}
        shown = {name: value for name, value in self.to_dict().items() if name in (*_TIMES, *_SINGLE)}
        return [
            {
                "model": self.decode.model.id,
                "prefill_hardware": self.prefill.hardware.id,
                "decode_hardware": self.decode.hardware.id,
                "weights": self.decode.weights,
                "kv": self.decode.kv,
                "engine": self.decode.engine,
                **lengths,
                "output_tokens": int(self.decode.workload["output_tokens"]) + 1,
                **request,
                **flat_record(shown),
            }
        ]

    def table(self) -> Table:
        """Times of a request, and how many machines of either kind go together."""
        named = (
            ("prefill", self.prefill.prefill.time_s),
            ("transfer behind it", self.exposed_s),
            ("first token", self.ttft_s),
            ("each after it", self.tpot_s),
            ("whole request", self.e2e_s),
        )
        rows = [
            [name, *(format_seconds(value) for value in (time.expected, time.low, time.high, time.ideal))]
            for name, time in named
        ]
        prefill, decode = system_text(self.prefill.hardware), system_text(self.decode.hardware)
        title = f"{self.decode.model.name} · prefill on {prefill}, decode on {decode}"
        notes = [
            f"{significant(self.prefill_per_decode)} prefill machines for each that decodes; together "
            f"{significant(self.device_tokens_per_s)} output tokens/s by device",
            *self.assumptions,
            f"basis: {bases_text([self.prefill, self.decode])}",
            *(f"warning: {text}" for text in self.warnings),
        ]
        columns = [Column("", "left"), *(Column(name) for name in ("expected", "low", "high", "ideal"))]
        return Table(columns, rows, title, notes)

    def _repr_html_(self) -> str:
        return self.table().to_html()


def disaggregated(
    model: Name | ModelEntry | ModelSpec,
    prefill_hardware: Name | HardwareSpec | SystemSpec,
    decode_hardware: Name | HardwareSpec | SystemSpec,
    *,
    link: str | float = LINK,
    overlap: bool = True,
    prefill: Mapping[str, int] | None = None,
    decode: Mapping[str, int] | None = None,
    prefill_batch: int = 1,
    batch: int = 1,
    prompt_tokens: int = 512,
    output_tokens: int = 128,
    cached_tokens: int = 0,
    context_tokens: int = 0,
    context_limit: int | None = None,
    queue_s: float = 0.0,
    tokenize_s: float = 0.0,
    options: Options | None = None,
    **request: Any,
) -> Disaggregated:
    """Predict a server that prefills on one machine and decodes on another.

    Parameters
    ----------
    model : str, path or spec
        As in `estimate`.
    prefill_hardware, decode_hardware : str, path or spec
        One machine of either kind, as in `rooflinellm.system`.
    link : str or float
        What a prefill machine sends caches over, all its ports together: a network such as ``400gbe``, or its rate in
        one direction. [-] or [GB/s]
    overlap : bool
        Send the cache layer by layer while later layers are computed; else all of it behind the prefill.
    prefill, decode : mapping of str to int, optional
        Degrees of parallelism of either machine, such as ``{"tensor_parallel": 4}``.
    prefill_batch, batch : int
        Prompts that are prefilled together, and requests that decode side by side. [-]
    prompt_tokens, output_tokens, cached_tokens, context_tokens, context_limit, queue_s, tokenize_s, options
        As in `estimate`, single values; at least 2 output tokens.
    **request
        Further arguments of `estimate` for both machines.

    Returns
    -------
    Disaggregated

    Raises
    ------
    InvalidRequest
        No network, a degree that is none, fewer than 2 output tokens, arrays; and as `estimate`.

    Warns
    -----
    RooflineWarning
        As `estimate`, for either machine.

    Notes
    -----
    Of a cache of K bytes over L layers on a link of rate b and latency a, a prefill of time T leaves exposed

        max(K / (L b), K / b - T (L - 1) / L) + a

    the last layer where the link keeps up, or all that has piled up; without overlap K / b + a. Decode steps see no
    prompts. With N steps of time S, prefill and decode machines go together in the ratio

        max(T / P, K_1 / b) : N S / B

    for P prompts and B requests at a time, K_1 the cache of one request. The first token comes out of prefill, or with
    ``Options(first_token="extra_step")`` out of a step behind the transfer.

    References
    ----------
    Zhong et al. (2024), "DistServe", arXiv 2401.09670; Patel et al. (2024), "Splitwise", arXiv 2311.18677: transfers
    layer by layer.
    """
    options = options or Options()
    lengths = {"context_tokens": context_tokens, "cached_tokens": cached_tokens, "context_limit": context_limit}
    single_values({**request, **lengths, "queue_s": queue_s, "tokenize_s": tokenize_s})
    prompts, requests = scalar_count("prefill_batch", prefill_batch), scalar_count("batch", batch)
    prompt, output = scalar_count("prompt_tokens", prompt_tokens), scalar_count("output_tokens", output_tokens)
    if output < 2:
        raise InvalidRequest(
            f"{output} is too few, at least 2 are needed: the first token is the prefill's", where="output_tokens"
        )
    model, source = lookup.model(model), lookup.system(prefill_hardware)
    shared = {**request, "context_limit": context_limit, "options": replace(options, first_token="prefill")}
    asked = {**shared, **lengths, "prompt_tokens": prompt, "output_tokens": 0}
    waits = {"queue_s": queue_s, "tokenize_s": tokenize_s}
    single: dict[str, Any] = {name: value for name, value in asked.items() if name not in DEGREES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below, with the machine they are about
        first = _machine("prefill", model, source, **asked | waits | _degrees("prefill", prefill), batch=prompts)
        behind = {**shared, "context_tokens": context_tokens + prompt, "prompt_tokens": 0, "output_tokens": output - 1}
        rest = _machine("decode", model, decode_hardware, **behind | _degrees("decode", decode), batch=requests)
        alone = estimate(model, source.model_copy(update=_ALONE), **single)  # without copies of what is shared
    size = int(alone.memory.kv_occupied_bytes + alone.memory.state_bytes)
    printed = _rate_of(link)
    found = way(catalog.profiles(options.profile), "network")
    sustained, latency = printed * found.share, found.latency_us * MICRO
    taken, layers = first.prefill.time_s, len(model.layers)

    def exposed_s(time_s: float, rate: float, latency_s: float) -> float:
        whole = prompts * size / rate
        return latency_s + (max(whole / layers, whole - time_s * (layers - 1) / layers) if overlap else whole)

    # What is left of a transfer shrinks as the prefill grows; their sum does not.
    left = Prediction(
        ideal=exposed_s(taken.ideal, printed, 0.0),
        expected=exposed_s(taken.expected, sustained, latency),
        low=exposed_s(taken.low, sustained, latency),
        high=exposed_s(taken.high, sustained, latency),
        unit="s",
        basis=taken.basis,
    )
    ttft = first.ttft_s + left
    if options.first_token == "extra_step":
        ttft = ttft + rest.ttft_s
    whole = prompts * size / sustained + latency
    prompt_s = max(taken.expected / prompts, size / sustained)
    answer_s = (output - 1) * rest.tpot_s.expected / requests
    ratio = prompt_s / answer_s
    said = tuple(f"{name}: {text}" for name, each in (("prefill", first), ("decode", rest)) for text in each.warnings)
    for text in said:
        warnings.warn(text, RooflineWarning, stacklevel=2)
    return Disaggregated(
        prefill=first,
        decode=rest,
        ttft_s=ttft,
        tpot_s=rest.tpot_s,
        e2e_s=ttft + rest.decode.time_s,
        kv_bytes=size,
        transfer_s=Prediction(prompts * size / printed, whole, whole, whole, "s", taken.basis),
        exposed_s=replace(left, low=left.high, high=left.low),
        prefill_per_decode=ratio,
        device_tokens_per_s=output / answer_s / (rest.hardware.device_count + ratio * first.hardware.device_count),
        assumptions=(
            f"{format_gib(size)} of cache for each request over {significant(printed / GB)} GB/s, of which "
            f"{found.share:.0%} are reached; {'sent layer by layer' if overlap else 'sent behind the prefill'}",
            f"prompts prefilled {prompts:,} at a time; requests decoded {requests:,} at a time, no prompts between",
        ),
        warnings=said,
    )


def _machine(name: str, model: Any, hardware: Any, **request: Any) -> Estimate:
    """The answer of one machine; an error about its degrees says whose they are."""
    try:
        return estimate(model, hardware, **request)
    except InvalidRequest as error:
        if error.where not in DEGREES:
            raise
        beside = "Degrees may be of one machine alone: prefill=…, decode=…"
        next_step = f"{error.next_step} {beside}" if error.next_step else beside
        raise InvalidRequest(f"to {name}, {error.message}", where=error.where, next_step=next_step) from error


def _degrees(where: str, degrees: Any) -> dict[str, Any]:
    """The degrees of a machine, checked."""
    if degrees is None:
        return {}
    if not isinstance(degrees, Mapping):
        raise InvalidRequest("give a mapping of degrees to numbers", where=where)
    for name in degrees:
        if name not in DEGREES:
            raise InvalidRequest(f"'{name!s:.40}' is no degree; there is {', '.join(DEGREES)}", where=where)
    return dict(degrees)


def _rate_of(link: Any) -> float:
    """Rate of a link in one direction. [byte/s]"""
    if isinstance(link, str):
        known = network(link)
        if known is None:
            raise InvalidRequest(
                f"'{link[:40]}' is no network", where="link", next_step="Write 400gbe, or a number of GB/s."
            )
        return known.bandwidth_bytes_per_s
    return positive("link", link) * GB
