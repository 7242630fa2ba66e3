"""Ask other tools what the shipped results measured, and put their errors beside ours on the same rows.

Not a test: it fits the profile anew for every fold (seven minutes on two cores), and needs packages that nothing else
here does.

    pip install rooflinellm ridgepoint servcalc llm-cal llm-flops
    python tests/benchmarks/peers.py

A tool that is not installed is left out, and named. llmfit is a program in Rust; its rule is one formula, and always
asked. `peer_tools.py` has the names by which each tool knows our devices, models and formats.

Our predictions are held out: `validate(leave_out="series")`, whose fits have seen other results of the device, and
`validate(leave_out="device")`, whose fits have seen none. A tool is scored where both are known. Every row has a vote.
`--series` and `--device` take files that ``rooflinellm validate --leave-out … --rows`` wrote before, instead.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from peer_tools import PEERS, NotAsked, Peer, Question, question_of

import rooflinellm as rl
from rooflinellm.api.measured import measured_rows
from rooflinellm.measurements import Resolved, resolve
from rooflinellm.measurements.names import Names

ASKED = {"decode": "decode", "prefill": "prefill", "ttft": "TTFT", "tpot": "TPOT"}
SMALL = 5e9
"""Parameters below which launches, not bandwidth, decide on a GPU; counted apart. [-]"""
NEAR = 0.20
"""Error within which an answer is near. [-]"""
TIMED = 300
"""Questions that are timed at most. [-]"""
ROW_COLUMNS = (
    *("tool", "asked", "id", "device", "devices", "model", "weights", "engine", "prompt", "output", "context", "batch"),
    *("measured", "theirs", "ours_series", "ours_device"),
)


@dataclass(frozen=True)
class Answer:
    """A row that a peer answered: what was measured, what it says, and what we said without having seen it."""

    id: str
    question: Question
    measured: float
    theirs: float
    series: float
    device: float

    @property
    def is_time(self) -> bool:
        """Whether these are seconds, and not tokens a second."""
        return self.question.of in ("ttft", "tpot")

    @property
    def small(self) -> bool:
        """Whether the model is a small one."""
        return self.question.resolved.model.total_params < SMALL


@dataclass
class Asked:
    """What became of the questions to one peer."""

    peer: Peer
    answers: list[Answer] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Score:
    """Errors of some predictions.

    Attributes
    ----------
    mdape, p90 : float
        Median and 90th percentile of the absolute error over the measured number. [-]
    bias : float
        Median of predicted over measured speed, less 1: more than 0 is too fast. [-]
    near : float
        Share of the errors within 20 %. [-]
    """

    mdape: float
    p90: float
    bias: float
    near: float

    def __str__(self) -> str:
        return f"{self.mdape:,.0%} / {self.p90:,.0%} / {self.bias:+,.0%} / {self.near:.0%}"


def score(predicted: Sequence[float], measured: Sequence[float], is_time: bool) -> Score:
    """Errors of predictions, a vote a row."""
    ratios = [p / m for p, m in zip(predicted, measured, strict=True)]
    errors = [abs(ratio - 1) for ratio in ratios]
    speed = median(1 / ratio if is_time else ratio for ratio in ratios)
    return Score(
        median(errors), float(np.quantile(errors, 0.9)), speed - 1, sum(e <= NEAR for e in errors) / len(errors)
    )


def held_out(leave_out: Literal["series", "device"], path: str | None) -> dict[str, float]:
    """Our held-out predictions by row, from a file of rows or by fitting."""
    if path is None:
        print(f"Fitting without each {leave_out} …", file=sys.stderr)
        rows = rl.validate(leave_out=leave_out).rows
        return {row.id: row.expected for row in rows if row.expected is not None}
    with open(path, encoding="utf-8", newline="") as stream:
        return {row["id"]: float(row["expected"]) for row in csv.DictReader(stream) if row["expected"]}


def questions() -> list[tuple[str, float, Question]]:
    """Identifier, measured number and question of every shipped result that is one of those compared."""
    names, found = Names(), []
    for row in measured_rows(None, {}):
        resolved = resolve(row, names)
        if isinstance(resolved, Resolved) and (question := question_of(resolved)) is not None:
            found.append((row.id, resolved.quantity.measured, question))
    return found


def ask(
    peer: Peer,
    asked: Iterable[tuple[str, float, Question]],
    series: Mapping[str, float],
    device: Mapping[str, float],
) -> Asked:
    """Ask one peer everything it can answer."""
    result = Asked(peer)
    for row, measured, question in asked:
        try:
            theirs = peer.ask(question)
        except NotAsked as reason:
            result.reasons[str(reason)] += 1
            continue
        if row not in series or row not in device:
            result.reasons["rows without a held-out prediction of ours"] += 1
            continue
        scale = question.resolved.quantity.scale
        theirs = theirs / scale if question.of in ("ttft", "tpot") else theirs * scale
        result.answers.append(Answer(row, question, measured, theirs, series[row], device[row]))
    return result


def groups(answers: Sequence[Answer]) -> Iterable[tuple[str, list[Answer]]]:
    """Answers by what was asked, small models apart."""
    for of, name in ASKED.items():
        for small in (False, True):
            found = [each for each in answers if each.question.of == of and each.small == small]
            if found:
                yield name + (f", models below {SMALL / 1e9:.0f} B" if small else ""), found


def table(results: Sequence[Asked]) -> str:
    """The scores as Markdown: median / 90th percentile / bias / share within 20 %."""
    lines = [
        "| tool | asked | rows | devices | its error | ours, device seen | ours, device unseen |",
        "| --- | --- | --: | --: | --- | --- | --- |",
    ]
    for result in results:
        for name, found in groups(result.answers):
            measured, is_time = [each.measured for each in found], found[0].is_time
            devices = len({each.question.device for each in found})
            cells = [
                score([getattr(each, of) for each in found], measured, is_time) for of in ("theirs", "series", "device")
            ]
            lines.append(
                f"| {f'{result.peer.name} {result.peer.version}'.strip()} | {name} | {len(found)} | {devices} | "
                + " | ".join(map(str, cells))
                + " |"
            )
    return "\n".join(lines)


def seconds_per_question(result: Asked) -> tuple[float, float]:
    """Time of one question to the peer and of the same one to `rooflinellm.estimate`, both warm. [s]"""
    step = max(len(result.answers) // TIMED, 1)
    asked = [each.question for each in result.answers][::step]

    def ours(question: Question) -> None:
        parallel = question.resolved.parallel
        keywords = dict(question.resolved.keywords, tensor_parallel=parallel.tensor, expert_parallel=parallel.expert)
        found = rl.estimate(question.resolved.model, question.resolved.system, **keywords)
        _ = (found.prefill.tokens_per_s if question.of in ("prefill", "ttft") else found.tpot_s).expected

    times = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rl.RooflineWarning)  # rows ran, whatever the memory plan says
        for call in (result.peer.ask, ours):
            for question in asked:
                call(question)
            start = time.perf_counter()
            for question in asked:
                call(question)
            times.append((time.perf_counter() - start) / len(asked))
    return times[0], times[1]


def write_rows(path: str, results: Sequence[Asked]) -> None:
    """A line an answer."""
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(ROW_COLUMNS)
        for result in results:
            for each in result.answers:
                asked, resolved = each.question, each.question.resolved
                writer.writerow(
                    [result.peer.name, asked.of, each.id, asked.device, asked.devices, resolved.model.id]
                    + [resolved.fmt.id, resolved.engine.id + (f":{resolved.backend}" if resolved.backend else "")]
                    + [asked.prompt, asked.output, asked.context, asked.batch]
                    + [f"{value:.6g}" for value in (each.measured, each.theirs, each.series, each.device)]
                )


def worst(results: Sequence[Asked], count: int) -> str:
    """Rows of which a peer is nearer than we are, by how far off we are with the device seen."""
    better: dict[str, tuple[float, str, Answer]] = {}
    for result in results:
        for each in result.answers:
            ours, theirs = (abs(math.log(value / each.measured)) for value in (each.series, each.theirs))
            if theirs < ours and ours > better.get(each.id, (0.0,))[0]:
                better[each.id] = (ours, result.peer.name, each)
    lines = []
    for _, name, each in sorted(better.values(), key=lambda found: -found[0])[:count]:
        asked, resolved = each.question, each.question.resolved
        lines.append(
            f"{each.id} {asked.of} {resolved.system.name} {resolved.model.id} {resolved.fmt.id} {resolved.engine.id} "
            f"prompt {asked.prompt} output {asked.output} context {asked.context} batch {asked.batch}: measured "
            f"{each.measured:.4g}, ours {each.series:.4g} ({each.device:.4g} unseen), {name} {each.theirs:.4g}"
        )
    return "\n".join(lines)


def main() -> None:
    """Ask, score and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", help="rows of `rooflinellm validate --leave-out series`")
    parser.add_argument("--device", help="rows of `rooflinellm validate --leave-out device`")
    parser.add_argument("--rows", help="also write a line an answer to this CSV file")
    parser.add_argument("--worst", type=int, default=20, help="rows to list where a peer is nearer than we are")
    parser.add_argument("--no-time", action="store_true", help="do not time the questions")
    arguments = parser.parse_args()

    installed = [peer for peer in PEERS if peer.version is not None]
    for peer in PEERS:
        if peer.version is None:
            print(f"{peer.name} is not installed: left out", file=sys.stderr)
    series, device = held_out("series", arguments.series), held_out("device", arguments.device)
    asked = questions()
    results = [ask(peer, asked, series, device) for peer in installed]

    print(f"rooflinellm {rl.__version__}; {len(asked):,} questions. Median / P90 / bias / within {NEAR:.0%}\n")
    print(table(results))
    print("\nNot asked, for its")
    for result in results:
        print(f"- {result.peer.name}: " + ", ".join(f"{why} {n:,}" for why, n in result.reasons.most_common()))
    if not arguments.no_time:
        print("\nTime of a question, warm [ms]: theirs, ours")
        for result in results:
            if result.answers:
                theirs, ours = seconds_per_question(result)
                print(f"- {result.peer.name}: {theirs * 1e3:.3f}, {ours * 1e3:.3f}")
    if arguments.worst:
        print(f"\nA peer is nearer, by our error\n{worst(results, arguments.worst)}")
    if arguments.rows:
        write_rows(arguments.rows, results)


if __name__ == "__main__":
    main()
