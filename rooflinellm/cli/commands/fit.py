"""`fit`: does it fit, which formats and contexts do, and what would hold it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.inputs import COUNT, PLACING, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say

if TYPE_CHECKING:
    from rooflinellm.api.fit import FitResult

ANSWER_IS_NO = 1


@subcommand(
    "fit llama-3.3-70b rtx-4090 --context 16k",
    "fit gpt-oss-120b m3-max-40c@96GiB && echo it fits",
    "fit llama-3.3-70b 'rtx-4090 + ddr5-6000x2@64GiB' --reserve 1",
    "fit qwen3-32b '2x rtx-3090' --weights Q6_K --kv q8_0 --json",
    "fit --all 'rtx-4060-laptop + ddr5-5600x2@32GiB' --context 16k",
    "fit --all qwen rtx-4090 --format csv",
)
@click.argument("names", nargs=-1, required=True, metavar="[MODEL] HARDWARE")
@click.option("--all", "all_models", is_flag=True, help="Which models fit; MODEL is then a part of names, or left out.")
@click.option(
    *("--min-bits", "min_bits_per_weight"), type=float, metavar="B", help="Of --all: no fewer bits.  [default: 4]"
)
@click.option(
    *("-c", "--context", "--context-limit", "context_limit"),
    type=COUNT,
    default=8_192,
    metavar="N",
    help="Context to hold for each request.  [default: 8192]",
)
@workload_options(
    *("weights", "kv", "engine", "batch", "tensor_parallel", "pipeline_parallel", "expert_parallel"),
    *("data_parallel", *PLACING, "draft"),
)
@click.option("-v", "--verbose", is_flag=True, help="Show every format of the engine, or every model.")
@output_options
def command(
    names: Sequence[str],
    all_models: bool,
    min_bits_per_weight: float | None,
    context_limit: int,
    keywords: dict[str, Any],
    verbose: bool,
    output: Output,
) -> int:
    """Whether it fits, in which formats, or on what instead.

    Where the hardware names a host, the fastest placement that fits is found: which layers or experts stay there.

    With --all the question is which models fit: each in its best format, and how fast.

    The exit code is 1 where it does not fit, or where the capacity is not known.
    """
    if len(names) > 2:
        raise click.UsageError(f"Got unexpected extra argument ({names[2]})")
    if all_models:
        chosen = {} if min_bits_per_weight is None else {"min_bits_per_weight": min_bits_per_weight}
        keywords |= {"context_limit": context_limit, **chosen}
        return _all_models("".join(names[:-1]), names[-1], keywords, verbose, output)
    if len(names) < 2:
        raise click.UsageError(f"HARDWARE: missing behind {names[0]}; or ask for every model with --all")
    if min_bits_per_weight is not None:
        raise click.UsageError("--min-bits: only with --all; without it every format is listed")
    from rooflinellm.api.fit import fit, state_capacity

    model, hardware = names
    result = fit(model, hardware, context_limit=context_limit, **keywords)
    for text in result.warnings:
        say("warning", as_typed(text))
    output.write(
        tables=lambda: result.tables(all_formats=verbose), payload=result.to_dict, records=lambda: _records(result)
    )
    if result.fits is None and not output.is_text:
        say("error", f"the capacity of {result.hardware.device.id} is not known\n{state_capacity(result.hardware)}")
    return 0 if result.fits else ANSWER_IS_NO


def _all_models(query: str, hardware: str, keywords: dict[str, Any], verbose: bool, output: Output) -> int:
    """Which models fit."""
    from rooflinellm.api.fit_models import fit_models

    found = fit_models(hardware, query=query, **keywords)
    output.write(
        tables=lambda: found.tables(most=None) if verbose else found.tables(),
        payload=found.to_dict,
        records=found.to_records,
    )
    return 0 if found else ANSWER_IS_NO


def _records(result: FitResult) -> list[dict[str, Any]]:
    """A row a format."""
    shared = {
        "model": result.model.id,
        "hardware": result.hardware.id,
        "kv": result.kv,
        "engine": result.engine,
        "context_limit": result.context_limit,
        "batch": result.batch,
        "usable_bytes": result.memory.usable_bytes,
    }
    return [{**shared, **each.to_dict()} for each in result.formats]
