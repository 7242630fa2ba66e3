"""The tables of a report: what is expected, how far it may be off, and what no run beats."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rooflinellm.api.compare import ComparedSystem, Comparison
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, Phase, Prediction
from rooflinellm.summary import bases_text, count_text, fits_text, gib_text, interval_text, limit_shares, what_text
from rooflinellm.units import GIGA, format_seconds, significant

SEEN = "expected: "
"""How the assumption begins that says what the expectation rests on."""


def rate_cells(rate: Prediction) -> list[str]:
    """A rate, its interval and what it cannot exceed."""
    return [significant(rate.expected), interval_text(rate), f"≤ {significant(rate.ideal)}"]


def time_cells(time: Prediction) -> list[str]:
    """A time, its interval and what it cannot fall below."""
    low, high = format_seconds(time.low), format_seconds(time.high)
    low = low.partition(" ")[0] if low.partition(" ")[2] == high.partition(" ")[2] else low
    interval = f"{low}–{high}"
    return [format_seconds(time.expected), interval, f"≥ {format_seconds(time.ideal)}"]


def lines(comparison: Comparison) -> Iterator[tuple[str, Estimate]]:
    """Each estimate with the name of its system, which stands in the first line of each."""
    for row in comparison.rows:
        for number, item in enumerate(row.estimates):
            yield "" if number else row.name, item


def prompt_text(item: Estimate) -> str:
    """Length of the prompt. [token]"""
    return count_text(item.workload["prompt_tokens"])


def answer_table(row: ComparedSystem) -> Table:
    """The answer for one system: prefill, first token and decode of each prompt, and whether it fits."""
    rows = []
    for item in row.estimates:
        prompt = item.workload["prompt_tokens"]
        rows.append([f"prompt of {prompt:,}" if prompt else "no prompt", "", "", ""])
        rows += [["prefill, tok/s", *rate_cells(item.prefill.tokens_per_s)]] if prompt else []
        rows.append(["first token", *time_cells(item.ttft_s)])
        rows.append(["decode, tok/s", *rate_cells(item.decode.tokens_per_s)])
    largest = largest_of(row)
    columns = [Column("", "left"), Column("expected"), Column("range"), Column("ideal")]
    answer = fits_text(largest.memory, largest.workload["context_limit"])
    return Table(columns, rows, row.name, [what_text(largest)], answer)


def largest_of(row: ComparedSystem) -> Estimate:
    """The estimate with the longest prompt."""
    return max(row.estimates, key=lambda item: int(item.workload["prompt_tokens"]))


def prefill_table(comparison: Comparison) -> Table:
    """How long prefill takes at each prompt length."""
    rows = [
        [name, prompt_text(item), *time_cells(item.prefill.time_s), significant(item.prefill.tokens_per_s.expected)]
        for name, item in lines(comparison)
        if item.workload["prompt_tokens"]
    ]
    columns = [
        *(Column("hardware", "left"), Column("prompt")),
        *(Column(each, group="time") for each in ("expected", "range", "ideal")),
        Column("tok/s"),
    ]
    return Table(columns, rows, "Time of prefill")


def first_token_table(comparison: Comparison) -> Table:
    """When the first token comes."""
    rows = [[name, prompt_text(item), *time_cells(item.ttft_s)] for name, item in lines(comparison)]
    columns = [Column("hardware", "left"), Column("prompt")]
    columns += [Column(each) for each in ("expected", "range", "ideal")]
    return Table(columns, rows, "Time to first token (TTFT)")


def decode_table(comparison: Comparison) -> Table:
    """How fast one request decodes behind each prompt."""
    rows = [
        [name, prompt_text(item), *rate_cells(item.decode.tokens_per_s), format_seconds(item.tpot_s.expected)]
        for name, item in lines(comparison)
    ]
    columns = [
        *(Column("hardware", "left"), Column("prompt")),
        *(Column(each, group="tok/s of one request") for each in ("expected", "range", "ideal")),
        Column("time per token"),
    ]
    return Table(columns, rows, "Decode of a single request")


def side_by_side(comparison: Comparison) -> Table:
    """The table of the comparison."""
    table = comparison.table()
    return Table(table.columns, table.rows, "Side by side, one request", table.notes)


def batch_tables(together: Comparison, batch: int) -> list[Table]:
    """Several requests side by side: what each gets, and apart from it what all get together."""

    def table(title: str, rate: Callable[[Phase], Prediction]) -> Table:
        rows = []
        for name, item in lines(together):
            prefill = rate_cells(rate(item.prefill)) if item.workload["prompt_tokens"] else ["–", "", ""]
            rows.append([name, prompt_text(item), *prefill, *rate_cells(rate(item.decode))])
        columns = [Column("hardware", "left"), Column("prompt")]
        for group in ("prefill, tok/s", "decode, tok/s"):
            columns += [Column(each, group=group) for each in ("expected", "range", "ideal")]
        return Table(columns, rows, title)

    return [
        table(f"Each of {batch:,} requests", lambda phase: phase.tokens_per_s),
        table(f"All {batch:,} requests together (aggregate)", lambda phase: phase.aggregate_tokens_per_s),
    ]


def memory_of_all(comparison: Comparison) -> Table:
    """What takes the memory of each system at the longest prompt, against what it has."""
    items = [(row.name, largest_of(row)) for row in comparison.rows if row.estimates]
    kinds = {
        "weights": "resident_weight_bytes", "KV cache": "kv_allocated_bytes", "state": "state_bytes",
        "workspace": "workspace_bytes", "draft": "draft_bytes", "total": "total_bytes",
    }  # fmt: skip
    shown = {name: key for name, key in kinds.items() if any(getattr(item.memory, key) for _, item in items)}
    rows = []
    for name, item in items:
        memory = item.memory
        usable, longest, most = memory.usable_bytes, memory.max_context_tokens, memory.max_batch
        rows.append(
            [
                name,
                *(gib_text(getattr(memory, key)) for key in shown.values()),
                "?" if usable is None else gib_text(usable),
                {True: "yes", False: "no", None: "?"}[memory.fits],
                "–" if not longest else count_text(longest),
                "–" if not most else count_text(most),
            ]
        )
    columns = [
        Column("hardware", "left"),
        *(Column(name, group="GiB") for name in shown),
        Column("usable", group="GiB"),
    ]
    columns += [Column("fits", "left"), Column("longest context"), Column("most requests")]
    rooms = dict.fromkeys(count_text(item.workload["context_limit"]) for _, item in items)
    notes = [
        f"At {' or '.join(rooms)} tokens of context for each request. Longest context: what fits of one request, at "
        "most what the model is made for. Most requests: how many of this context fit at once.",
    ]
    return Table(columns, rows, "Memory by part", notes)


def limit_table(comparison: Comparison) -> Table:
    """What limits each phase, and where it stands on the roofline."""
    rows = []
    for name, item in lines(comparison):
        start = [name, prompt_text(item)]
        for phase in (item.prefill, item.decode):
            if not phase.time_s.expected:
                continue
            shares = limit_shares(phase)
            word = max(shares, key=shares.__getitem__)
            rows.append(
                [
                    *start,
                    phase.name,
                    f"{word} {100 * shares[word]:.0f} %",
                    str(phase.bound),
                    significant(phase.arithmetic_intensity),
                    significant(phase.ridge_point),
                    significant(phase.flops / GIGA),
                    significant(phase.read_bytes / GIGA),
                    f"{100 * phase.time_s.ideal / phase.time_s.expected:.0f} %",
                ]
            )
            start = ["", ""]
    columns = [
        *(Column("hardware", "left"), Column("prompt"), Column("phase", "left"), Column("most of the time", "left")),
        *(Column("bound", "left"), Column("FLOP/byte"), Column("ridge point"), Column("GFLOP")),
        *(Column("GB read"), Column("of ideal")),
    ]
    notes = [
        "Bound: what limits the ideal; below the ridge point (FLOP/byte) that is memory bandwidth, above it compute. "
        "Of ideal: how much of the roofline's speed is expected.",
    ]
    return Table(columns, rows, "What limits each phase", notes)


def evidence(row: ComparedSystem) -> str:
    """What the expectation of a system rests on: the basis, and what was measured of it."""
    item = row.estimates[0]
    said = [text.removeprefix(SEEN) for text in item.assumptions if text.startswith(SEEN)]
    return "; ".join([bases_text([item]), *said])
