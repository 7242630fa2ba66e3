"""`load`: a server with many users."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.files import CHARTS, target_of, write_whole
from rooflinellm.cli.inputs import COUNT, Count, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import progress, say

if TYPE_CHECKING:
    from rooflinellm.api.load_result import LoadResult
    from rooflinellm.render import Table

SIZE = (8.0, 5.0)
"""Width and height of the chart. [inch]"""
REQUESTS, PROMPT, OUTPUT = 1_000, 512, 128
"""What is simulated where nothing else is asked for: requests, and tokens of prompt and answer."""


class Length(Count):
    """``512``, or ``512~0.8``: 512 on average with a coefficient of variation of 0.8 (log-normal)."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        mean, tilde, text = value.partition("~")
        if not tilde:
            return super().convert(value, param, ctx)
        try:
            variation = float(text)
        except ValueError:
            variation = math.nan
        if not math.isfinite(variation):
            self.fail(f"'{value[:40]}' is no length; write it like 512, or 512~0.8 for a spread", param, ctx)
        return {"mean": super().convert(mean, param, ctx), "cv": variation}


LENGTH = Length()


@subcommand(
    "load llama-3.1-8b h100-sxm --weights fp8 --rate 20",
    "load llama-3.1-8b rtx-4090 --rate 2 --prompt 2k~1 --output 300~0.5 --max-ttft 1 --max-tpot 0.05",
    "load qwen3-30b-a3b rtx-5090 --concurrency 32 --requests 5000",
    "load llama-3.1-8b h100-sxm -w fp8 --trace trace.csv --price-per-hour 2.50 -o requests.png",
)
@click.argument("model")
@click.argument("hardware")
@click.option("--rate", type=float, metavar="R", help="Requests that arrive in a second, at random.")
@click.option("--concurrency", type=COUNT, metavar="N", help="Users that wait for one answer before they ask again.")
@click.option("--trace", metavar="FILE", help="Arrivals: CSV of arrival_s,prompt_tokens,output_tokens.")
@click.option("--requests", type=COUNT, metavar="N", help=f"How many.  [default: {REQUESTS}]")
@click.option(
    *("-p", "--prompt", "prompt_tokens"), type=LENGTH, metavar="N", help=f"Tokens, or mean~spread.  [default: {PROMPT}]"
)
@click.option(
    *("-n", "--output", "output_tokens"), type=LENGTH, metavar="N", help=f"Tokens, or mean~spread.  [default: {OUTPUT}]"
)
@click.option("--seed", type=int, default=0, metavar="N", help="Of chance; the same seed, the same answer.")
@click.option("--think", "think_s", type=float, metavar="S", help="Seconds a user of --concurrency waits between.")
@click.option("--max-ttft", "max_ttft_s", type=float, metavar="S", help="Limit of the first token, for the goodput.")
@click.option("--max-tpot", "max_tpot_s", type=float, metavar="S", help="Limit of each token after it.")
@click.option("--max-sequences", type=COUNT, metavar="N", help="Requests served at a time.  [default: the engine's]")
@click.option("--no-chunked-prefill", is_flag=True, help="Prompts stop decoding instead of sharing its steps.")
@click.option("--price-per-hour", type=float, metavar="P", help="Of the system, in any currency.")
@workload_options(
    *("weights", "kv", "engine", "context_tokens", "context_limit", "cached_tokens", "prefill_chunk"),
    *("tensor_parallel", "expert_parallel", "data_parallel", "gpu_layers", "cpu_moe_layers"),
)
@click.option("-o", "--chart", "path", metavar="FILE", help="Timeline of the first requests: .png, .svg or .pdf.")
@click.option("-v", "--verbose", is_flag=True, help="Add every assumption.")
@output_options
def command(
    model: str,
    hardware: str,
    no_chunked_prefill: bool,
    keywords: dict[str, Any],
    path: str | None,
    verbose: bool,
    output: Output,
    **asked: Any,
) -> None:
    """Many users: waiting, first token, goodput.

    Simulates a server step by step: continuous batching in which prompts pass in chunks beside what decodes, with a
    paged cache. CSV is a line a request.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    if sum(name in given for name in ("rate", "concurrency", "trace")) != 1:
        raise click.UsageError("give one of --rate, --concurrency and --trace")
    if "trace" not in given:
        given = {"requests": REQUESTS, "prompt_tokens": PROMPT, "output_tokens": OUTPUT} | given
    target = None if path is None else target_of(path, "--chart", CHARTS)
    from rooflinellm.api.simulate_load import simulate_load
    from rooflinellm.errors import RooflineWarning

    with warnings.catch_warnings(), progress("simulating") as told:
        warnings.simplefilter("ignore", RooflineWarning)  # said below, when the line of progress is gone
        found = simulate_load(
            model, hardware, chunked_prefill=not no_chunked_prefill, progress=told, **given, **keywords
        )
    for text in found.warnings:
        say("warning", as_typed(text))
    chart = {}
    if target is not None:
        from matplotlib.figure import Figure

        from rooflinellm import plotting

        drawn = plotting.timeline(found, ax=Figure(figsize=SIZE, layout="constrained").subplots())
        write_whole(target, "--chart", lambda file: plotting.save(drawn, file))
        chart = {"file": path, "description": plotting.describe(drawn)}
    output.write(
        tables=lambda: _tables(found, chart, verbose),
        payload=lambda: {**found.to_dict(), **({"chart": chart} if chart else {})},
        records=found.to_records,
    )


def _tables(found: LoadResult, chart: dict[str, Any], verbose: bool) -> list[Table]:
    from rooflinellm.render import Table

    tables = found.tables()
    if verbose:
        tables.append(Table((), (), "assumptions", [f"- {text}" for text in found.assumptions]))
    if chart:
        tables.append(Table((), (), chart["file"], [chart["description"]]))
    return tables
