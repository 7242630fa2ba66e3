"""Requests over time: waiting, prefill, first token and decode, of one request or of the first ones of a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from rooflinellm._numeric import is_array
from rooflinellm.api.load_result import LoadResult, load_text
from rooflinellm.errors import InvalidRequest
from rooflinellm.plotting import style
from rooflinellm.plotting.sweep_chart import check_size
from rooflinellm.results import Estimate
from rooflinellm.summary import bases_text, basis_text, system_text, weights_text, what_text
from rooflinellm.units import MILLI, format_seconds

FIRST, MOST = 40, 400
"""Requests of a load that are shown, unless more are asked for; and at most. [-]"""
MARKED = 60
"""Up to so many rows bars differ in height and first tokens have a marker; more rows are too thin for that. [-]"""
TICKS = (1, 2, 5, 10, 20, 50)
"""Distances of numbered rows. [row]"""


class Part(NamedTuple):
    """How a part of a request looks: its bar's colour, height [row] and hatching."""

    name: str
    color: str
    height: float
    hatch: str


WAITING = Part("waiting", style.FAINT, 0.5, "")
PREFILL = Part("prefill", style.VERMILLION, 0.78, "////")
DECODE = Part("decode", style.BLUE, 0.5, "")
PARTS = (WAITING, PREFILL, DECODE)


class Row(NamedTuple):
    """A request: when it arrives, when prefill and decode begin, when its first and its last token come. [s]"""

    name: str
    arrival_s: float
    start_s: float
    decode_s: float
    first_token_s: float
    finish_s: float
    words: str = ""


def timeline(
    of: Estimate | LoadResult,
    *,
    requests: int | None = None,
    ax: Axes | None = None,
    label_size: float = style.LABEL_SIZE,
) -> Axes:
    """Draw requests over time, a row each: a thin bar while they wait, a high one for prefill, then decode.

    Parameters
    ----------
    of : Estimate or LoadResult
        What `rooflinellm.estimate` returned for one request: expected over ideal; or what `rooflinellm.simulate_load`
        returned: its first requests.
    requests : int, optional
        Of a load, how many to show, at most 400; None is 40. [-]
    ax : Axes, optional
        Where to draw; None makes a figure.
    label_size : float
        Size of the labels. [point]

    Returns
    -------
    Axes
        `describe` says in words what it shows.

    Raises
    ------
    InvalidRequest
        Neither of these, an estimate of several requests, or a number of requests out of range.
    """
    check_size(label_size)
    if isinstance(of, Estimate):
        if requests is not None:
            raise InvalidRequest("an estimate is one request", where="requests")
        rows, title, basis = _rows_of_estimate(of), what_text(of), bases_text([of])
        said = f"prompt {of.workload['prompt_tokens']:,}, answer {of.workload['output_tokens']:,} tokens"
    elif isinstance(of, LoadResult):
        rows, title, basis = (
            _rows_of_load(of, FIRST if requests is None else requests),
            _load_title(of),
            basis_text(of.basis, of.evidence),
        )
        said = load_text(of)
    else:
        raise InvalidRequest(f"{type(of).__name__} is no result of estimate or simulate_load", where="of")
    with style.styled():
        axes = style.axes_for(ax)
        _draw(axes, rows, "\n".join([title, *said.split("; ")]), float(label_size))
    style.set_description(axes, _description(of, rows, title, said, basis))
    return axes


def _rows_of_estimate(item: Estimate) -> list[Row]:
    if any(is_array(value) for value in item.workload.values() if value is not None) or is_array(item.e2e_s.expected):
        raise InvalidRequest("the estimate is of several requests; draw one at a time", where="of")
    prompted = item.workload["prompt_tokens"] > 0
    rows = []
    for kind in ("expected", "ideal"):
        prefill, ttft, e2e = (float(getattr(each, kind)) for each in (item.prefill.time_s, item.ttft_s, item.e2e_s))
        if prompted:
            row = Row(kind, 0.0, ttft - prefill, ttft, ttft, e2e)
            parts = {"waiting": row.start_s, "prefill": prefill, "decode": e2e - ttft}
        else:  # the first token is a decode step, after whatever comes before
            row = Row(kind, 0.0, 0.0, 0.0, ttft, e2e)
            parts = {"first token": ttft, "further tokens": e2e - ttft}
        words = [f"{name} {format_seconds(each)}" for name, each in parts.items() if each > 1e-9 * e2e]
        rows.append(row._replace(words=" · ".join([*words, f"in all {format_seconds(e2e)}"])))
    return rows


def _rows_of_load(load: LoadResult, count: Any) -> list[Row]:
    if type(count) is not int or not 1 <= count <= MOST:
        raise InvalidRequest(f"{count!r:.40} is not a whole number from 1 to {MOST}", where="requests")
    each = load.requests
    columns = (each.arrival_s, each.start_s, each.first_token_s, each.first_token_s, each.finish_s)
    times = np.column_stack([column[:count] for column in columns]).tolist()
    return [Row(str(number), *row) for number, row in enumerate(times, 1)]


def _load_title(load: LoadResult) -> str:
    parts = [load.model.name, weights_text(load.weights), system_text(load.hardware), load.engine.replace(":", " ")]
    return " · ".join(parts)


def _draw(ax: Axes, rows: Sequence[Row], title: str, size: float) -> None:
    last = max(row.finish_s for row in rows)
    unit, name = (MILLI, "ms") if 0 < last < 1 else (1.0, "s")
    places, thin = np.arange(len(rows)), len(rows) > MARKED
    times = np.array([row[1:6] for row in rows]) / unit
    handles: list[Any] = []
    for part, (begin, end) in zip(PARTS, ((0, 1), (1, 2), (2, 4)), strict=True):
        bars = ax.barh(
            places, times[:, end] - times[:, begin], 1.0 if thin else part.height, times[:, begin], color=part.color,
            edgecolor=style.PAPER, hatch="" if thin else part.hatch, linewidth=0.0, label=part.name, zorder=2.0,
        )  # fmt: skip
        if np.any(times[:, end] > times[:, begin]):
            handles.append(bars)
        for number, bar in enumerate(bars):
            bar.set_gid(f"{part.name}-{number}")
    if not thin:
        handles += ax.plot(
            times[:, 3], places, linestyle="none", color=style.INK, label="first token", zorder=3.0,
            gid="first-tokens", marker="|", markersize=9, markeredgewidth=1.6,
        )  # fmt: skip
    for place, row in enumerate(rows):
        if row.words:
            ax.annotate(
                row.words, (0.0, place + 0.38), xytext=(3, -2), textcoords="offset points", va="top", fontsize=size,
                color=style.INK, parse_math=False, gid=f"words-{place}",
            )  # fmt: skip
    worded = bool(rows[0].words)
    ax.set_ylim(len(rows) - (0.1 if worded else 0.4), -0.6)
    ax.set_xlim(0.0, max(last / unit, 1e-12) * 1.02)
    if worded:
        ax.set_yticks(places, [row.name for row in rows])
    else:
        apart = next((each for each in TICKS if len(rows) / each <= 12), TICKS[-1])
        numbered = sorted({1, *range(apart, len(rows) + 1, apart)})
        ax.set_yticks([number - 1 for number in numbered], [str(number) for number in numbered])
        ax.set_ylabel("Request, in order of arrival", fontsize=9)
    ax.set_xlabel(f"Time [{name}]", fontsize=9)
    style.set_title(ax, title, fontsize=10, pad=20)
    ax.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, frameon=False, fontsize=size,
        borderpad=0.0, handlelength=1.6, borderaxespad=0.3, columnspacing=1.6,
    )  # fmt: skip
    ax.set_gid("rooflinellm-timeline")
    style.frame(ax)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)


def _description(of: Estimate | LoadResult, rows: Sequence[Row], title: str, said: str, basis: str) -> str:
    sentences = [f"Requests over time, {title}; {said}."]
    if isinstance(of, Estimate):
        sentences += [
            f"{row.name[0].upper()}{row.name[1:]}: {row.words.replace(' · ', ', ')}; first token after "
            f"{format_seconds(row.first_token_s)}."
            for row in rows
        ]
    else:
        waited = sum(row.start_s > row.arrival_s for row in rows)
        ends = max(row.finish_s for row in rows)
        sentences.append(
            f"The first {len(rows):,} requests, the last of which ends after {format_seconds(ends)}; "
            f"before prefill {waited:,} of them had to wait, the longest "
            f"{format_seconds(max(row.start_s - row.arrival_s for row in rows))}."
        )
        spread = of.ttft_s
        sentences.append(
            f"First token of all {len(of.requests.arrival_s):,}: median {format_seconds(spread.p50)}, "
            f"99 % within {format_seconds(spread.p99)}."
        )
    return " ".join([*sentences, f"Basis: {basis}."])
