"""What a report says, section by section."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import fill
from typing import Any

from rooflinellm import __version__, plotting
from rooflinellm.api.compare import ComparedSystem, Comparison
from rooflinellm.api.lists import data_version
from rooflinellm.api.questions import MORE_TOKENS, ByContext, of_any_context
from rooflinellm.api.sweep import sweep
from rooflinellm.errors import RooflineWarning
from rooflinellm.launch.show import check_commands
from rooflinellm.reporting import tables
from rooflinellm.reporting.blocks import Block, Bullets, Cards, Chart, Commands, Heading, Page, Section, Terms, Words
from rooflinellm.reporting.origins import origins
from rooflinellm.results import Estimate, Prediction
from rooflinellm.summary import (
    count_text,
    host_text,
    is_placed,
    params_text,
    place_table,
    placement_flags,
    placement_table,
    placement_text,
    weights_text,
)
from rooflinellm.units import format_seconds, significant

WIDE, NARROW = 8.6, 3.9
"""Widths of a chart on wide and on narrow screens. [inch]"""
LETTERS = 40
"""Letters of a label that a narrow chart has room for. [-]"""
ONE_PROMPT = "prompts: one length hides how speed changes with it; two are better, an everyday one and a long one"
NOT_MODELLED = (
    "The quality of answers: a smaller weight format may answer worse, and nothing here weighs that.",
    "Prices, noise, availability and what a device can do beside this model.",
    "The single machine: driver, cooling, power limit, other programs and the luck of its parts. The expectation is "
    "for the median run of its kind, the range for most of them.",
    "Loading the model, and tokenisation, networks and queues beyond the seconds that were asked for.",
    "Requests that arrive one by one: those of a batch are equal and start together.",
    "Sampling and whatever a program does between two tokens; thinking counts as output like any other.",
)


@dataclass(frozen=True)
class Findings:
    """What a report is made of.

    Attributes
    ----------
    comparison : Comparison
        Of one request.
    together : Comparison
        Of the batch that was asked for; the same where that is 1. Memory is of this one.
    growths : mapping of str to ByContext
        By the name of the system.
    prompts, contexts : tuple of int
        Lengths of prompts, and amounts of occupied context. [token]
    request : mapping of str to Any
        Keywords of an estimate.
    date : str or None
        When it was made, as the reader is told.
    named : bool
        Whether somebody named the lengths of the prompts.
    """

    comparison: Comparison
    together: Comparison
    growths: Mapping[str, ByContext]
    prompts: tuple[int, ...]
    contexts: tuple[int, ...]
    request: Mapping[str, Any]
    date: str | None
    named: bool

    @property
    def batch(self) -> int:
        """Requests side by side. [-]"""
        return int(self.request.get("batch", 1))

    @property
    def running(self) -> list[ComparedSystem]:
        """Systems on which it can run, with the memory of the batch."""
        return [row for row in self.together.rows if row.estimates]

    @property
    def first(self) -> Estimate:
        """The first estimate, for what all share."""
        return self.comparison.estimates[0]

    @property
    def alone(self) -> dict[str, Any]:
        """Keywords of an estimate of one request."""
        return {name: value for name, value in self.request.items() if name != "batch"}


def warnings_of(found: Findings) -> tuple[str, ...]:
    """Warnings about the systems, of those that begin alike that of the batch, and one about the prompts."""
    several = [*found.comparison.warnings, *found.together.warnings]
    said = list({tuple(text.split(": ")[:2]): text for text in several}.values())
    return (*said, ONE_PROMPT) if found.named and len(found.prompts) == 1 else tuple(said)


def page(found: Findings) -> Page:
    """Put a report together."""
    hardware = ", ".join(row.name for row in found.comparison.rows)
    made = [f"rooflinellm {__version__}", f"data {data_version()}", *([found.date] if found.date else [])]
    sections = [
        Section("answer", "The answer", list(_answer(found))),
        Section("question", "What was asked", list(_question(found))),
        Section("prefill", "1. How long does the prompt take?", _first_question(found)),
        Section("first-token", "2. When does the first token come?", _second_question(found)),
        Section("decode", "3. How fast does one request decode?", _third_question(found)),
        Section("context", "4. How does that change as the context fills?", list(_fourth_question(found))),
    ]
    if found.batch > 1:
        sections.append(Section("batch", f"{found.batch:,} requests side by side", list(_batch(found))))
    sections += [
        Section("side-by-side", "Side by side", list(_side_by_side(found))),
        Section("memory", "Memory", list(_memory(found))),
        Section("why", "Why: the roofline", list(_why(found))),
        Section("basis", "What the numbers rest on", list(_basis(found))),
        Section("not-modelled", "What this does not model", [Bullets(NOT_MODELLED)]),
        Section("check", "Check it yourself", list(_check(found))),
        Section("sources", "Sources", list(origins([row.estimates[0] for row in found.running]))),
    ]
    model = found.comparison.model
    return Page(
        f"{model.name} on {hardware}",
        "Predicted speed and memory, from the roofline model and published measurements",
        sections,
        " · ".join(made),
    )


def verdict(found: Findings) -> str:
    """The answer in a sentence or two."""
    holding = [row for row in found.running if row.estimates[-1].memory.fits is not False]
    if not holding:
        where = "it" if len(found.together.rows) == 1 else "any of them"
        return f"It does not fit on {where}. The numbers below are as if it did; what would fit: rooflinellm fit."
    alone = {row.name: row for row in found.comparison.rows}
    chosen = [alone[row.name] for row in holding]
    prompt = max(found.prompts)
    if len(chosen) == 1:
        item = tables.largest_of(chosen[0])
        fits = "It fits" if holding[0].estimates[-1].memory.fits else "Whether it fits is open"
        where = "" if len(found.together.rows) == 1 else f" on {chosen[0].name} alone"
        after = f" after a prompt of {prompt:,}" if prompt else ""
        return (
            f"{fits}{where}. One request{after} gets its first token after about "
            f"{format_seconds(item.ttft_s.expected)}, then about {significant(item.decode.tokens_per_s.expected)} "
            "tokens/s."
        )
    items = {row.name: tables.largest_of(row) for row in chosen}
    soonest = min(items, key=lambda name: float(items[name].ttft_s.expected))
    fastest = max(items, key=lambda name: float(items[name].decode.tokens_per_s.expected))
    first, rate = items[soonest].ttft_s, items[fastest].decode.tokens_per_s
    some = "" if len(chosen) == len(found.together.rows) else f"Of the {len(chosen)} that can hold it: "
    said = [
        f"{some}{fastest} is expected to decode fastest, about {significant(rate.expected)} tokens/s"
        + _close(rate, {name: each.decode.tokens_per_s for name, each in items.items() if name != fastest}),
    ]
    if prompt:
        what = f"{soonest} is expected to give" if soonest != fastest else "It also gives"
        said.append(
            f"{what} the first token of a prompt of {prompt:,} soonest, after about {format_seconds(first.expected)}"
            + _close(first, {name: each.ttft_s for name, each in items.items() if name != soonest})
        )
    return ". ".join(said) + "."


def _close(best: Prediction, others: Mapping[str, Prediction]) -> str:
    """A caution where the ranges do not tell the best from others."""
    near = [name for name, each in others.items() if each.low < best.high and best.low < each.high]
    return f" (its range and that of {_listed(near)} overlap)" if near else ""


def _answer(found: Findings) -> Iterator[Block]:
    yield Words(verdict(found), "lead")
    shown = {row.name: row for row in found.together.rows}
    cards = []
    for row in found.comparison.rows:
        if row.estimates:
            table = tables.answer_table(row)
            held = tables.answer_table(shown[row.name]).answer if shown[row.name].estimates else "cannot run the batch"
            cards.append(replace(table, answer=held))
    yield Cards(cards)
    cannot = [f"{row.name} cannot run it: {row.reason}" for row in found.comparison.rows if row.reason]
    said = [*cannot, *warnings_of(found)]
    if said:
        yield Bullets(said)
    yield Words(
        "Expected: the median run. Range: where most runs lie. Ideal: the roofline's bound, which no run beats. "
        "Rates are of a single request.",
        "note",
    )


def _question(found: Findings) -> Iterator[Block]:
    item, model = found.first, found.comparison.model
    several = {name: _shared(found, name) for name in ("weights", "kv", "engine")}
    is_mixture = any(text.startswith("experts:") for text in item.assumptions)
    active = f", {params_text(model.active_params)} active" if is_mixture else ""
    workload = item.workload
    pairs = [
        ("model", f"{model.name} ({params_text(model.total_params)} parameters{active})"),
        ("weights", several["weights"]),
        ("KV cache", several["kv"]),
        ("engine", several["engine"]),
        ("hardware", "; ".join(f"{row.name} ({row.system.id})" for row in found.comparison.rows)),
        ("prompts", f"{_listed([count_text(each) for each in found.prompts])} tokens"),
        ("answer", f"{workload['output_tokens']:,} tokens"),
    ]
    if workload["context_tokens"]:
        pairs.append(("context before the prompt", f"{workload['context_tokens']:,} tokens"))
    if workload["cached_tokens"]:
        pairs.append(("cached of the prompt", f"{workload['cached_tokens']:,} tokens"))
    if (limit := found.request.get("context_limit")) is not None:
        pairs.append(("configured context", f"{limit:,} tokens for each request (allocation only)"))
    pairs.append(("requests side by side", f"{found.batch:,}"))
    if found.request.get("draft_tokens"):
        pairs.append(("drafted", f"{found.request['draft_tokens']:,} tokens a cycle"))
    if replaced := found.request.get("overrides"):
        pairs.append(("what if", ", ".join(f"{path} = {value}" for path, value in replaced.items())))
    yield Terms(pairs)


def _shared(found: Findings, name: str) -> str:
    """What all systems share, or what each has."""
    write: Callable[[Any], str] = weights_text if name == "weights" else lambda value: str(value).replace(":", " ")
    by_value: dict[str, list[str]] = {}
    for row in found.comparison.rows:
        for item in row.estimates[:1]:
            by_value.setdefault(write(getattr(item, name)), []).append(row.name)
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value} on {', '.join(names)}" for value, names in by_value.items())


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _first_question(found: Findings) -> list[Block]:
    if not any(found.prompts):
        return [Words("There is no prompt.")]
    return [
        tables.prefill_table(found.comparison),
        Words("Prefill reads the whole prompt at once and is mostly limited by compute.", "note"),
    ]


def _second_question(found: Findings) -> list[Block]:
    return [
        tables.first_token_table(found.comparison),
        Words("Prefill, the first token, and the waiting and tokenisation that were asked for.", "note"),
    ]


def _third_question(found: Findings) -> list[Block]:
    return [
        tables.decode_table(found.comparison),
        Words(
            "Decode reads the weights and the cache again for every token and is mostly limited by memory bandwidth. "
            "The rate is the mean over the answer, behind the prompt.",
            "note",
        ),
    ]


def _fourth_question(found: Findings) -> Iterator[Block]:
    for name, growth in found.growths.items():
        yield replace(growth.table(), title=name)
    yield Words(
        f"By tokens in the cache: the rate of the next token, and of {MORE_TOKENS:,} more tokens of prompt. Of one "
        "request; k is 1,024.",
        "note",
    )
    if len(found.contexts) > 1:
        for key, prompt, path, what in (
            ("decode-by-context", 0, "decode.tokens_per_s", "Decode rate of one request"),
            ("prefill-by-context", MORE_TOKENS, "prefill.tokens_per_s", f"Prefill rate of {MORE_TOKENS:,} more tokens"),
        ):
            draw = partial(_drawn_growth, found, prompt, path)
            yield Chart(key, f"{what} as the context fills", draw, (WIDE, 4.4), (NARROW, 3.9))


def _drawn_growth(found: Findings, prompt: int, path: str, ax: Any) -> Any:
    systems = [row.system for row in found.running]
    keywords = of_any_context(found.alone) | {"prompt_tokens": prompt, "context_tokens": list(found.contexts)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        grown = sweep(found.comparison.model, systems[0] if len(systems) == 1 else systems, **keywords)
    return plotting.sweep(grown, x="context_tokens", y=path, ax=ax)


def _batch(found: Findings) -> Iterator[Block]:
    yield from tables.batch_tables(found.together, found.batch)
    yield Words("The two tables must not be mixed: what all get together is no rate that any one of them sees.", "note")


def _side_by_side(found: Findings) -> Iterator[Block]:
    rows = len(found.comparison.rows)
    yield tables.side_by_side(found.comparison)
    if rows > 1:
        draw = partial(_drawn_comparison, found)
        title = f"Prefill and decode side by side, prompt of {max(found.prompts):,}"
        yield Chart("comparison", title, draw, (WIDE, 1.6 + 0.75 * rows), (NARROW, 2.0 + 0.75 * rows))


def _drawn_comparison(found: Findings, ax: Any) -> Any:
    axes = plotting.compare(found.comparison, ax=ax)
    if ax.figure.get_figwidth() < WIDE:
        axes.set_xlabel(fill(axes.get_xlabel(), LETTERS))
        names = [
            "\n".join(fill(line, LETTERS // 3) for line in tick.get_text().split("\n")) for tick in ax.get_yticklabels()
        ]
        axes.set_yticks(axes.get_yticks(), names, parse_math=False)
    return axes


def _memory(found: Findings) -> Iterator[Block]:
    yield tables.memory_of_all(found.together)
    for number, row in enumerate(found.running, 1):
        item = tables.largest_of(row)
        bars = sum(part.tier == "device" or bool(part.bytes) for part in item.memory.placement)
        heights = 1.3 + 0.55 * bars, 1.7 + 0.55 * bars
        draw = partial(_drawn_memory, item)
        yield Chart(f"memory-{number}", f"Memory of {row.name}", draw, (WIDE, heights[0]), (NARROW, heights[1]))
        if bars > 1:
            yield replace(placement_table(item.memory), title=f"{row.name}: what lies where, GiB")
        if is_placed(item):
            layers = len(item.model.layers)
            flags = placement_flags(item.workload, item.engine)
            placed = placement_text(item.workload, layers)
            notes = [host_text(item) + (f": {flags}" if flags else "")] if placed else []
            yield replace(place_table(item), title=f"{row.name}: what each place costs in decode", notes=notes)


def _drawn_memory(item: Estimate, ax: Any) -> Any:
    return plotting.memory(item, ax=ax)


def _why(found: Findings) -> Iterator[Block]:
    yield tables.limit_table(found.comparison)
    draw = partial(_drawn_roofline, found)
    yield Chart(
        "roofline", "Roofline: prefill and decode below what the hardware can do", draw, (WIDE, 5.2), (NARROW, 4.5)
    )


def _drawn_roofline(found: Findings, ax: Any) -> Any:
    others = {name: value for name, value in found.alone.items() if name != "context_limit"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        return plotting.roofline(
            [row.system for row in found.running],
            found.comparison.model,
            prompt_tokens=max(found.prompts),
            batches=(1,),
            ax=ax,
            **others,
        )


def _basis(found: Findings) -> Iterator[Block]:
    yield Terms([(row.name, tables.evidence(row)) for row in found.comparison.rows if row.estimates])
    if found.comparison.differences:
        yield Heading("What is not the same on all systems")
        yield Bullets(found.comparison.differences)
    said = {
        row.name: list(dict.fromkeys(text for item in row.estimates for text in item.assumptions))
        for row in found.running
    }
    shared = [text for text in next(iter(said.values())) if all(text in each for each in said.values())]
    yield Heading("Assumptions" if len(said) == 1 else "Assumptions for all systems")
    yield Bullets(shared)
    for name, texts in said.items():
        own = [text for text in texts if text not in shared and not text.startswith(tables.SEEN)]
        if own:
            yield Heading(f"Assumptions for {name}")
            yield Bullets(own)


def _check(found: Findings) -> Iterator[Block]:
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for row in found.comparison.rows:
        if row.estimates:
            commands, notes = check_commands(row.estimates)
            known.setdefault((tuple(commands), tuple(notes)), []).append(row.name)
    yield Words(
        "These commands measure what is predicted here. rooflinellm check says what may explain a number that differs."
    )
    for (checks, said), names in known.items():
        yield Heading(f"On {_listed(names)}")
        if checks:
            yield Commands(checks)
        if said:
            yield Bullets(said)
