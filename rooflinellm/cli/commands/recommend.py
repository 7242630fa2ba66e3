"""`recommend`: which hardware, with which format, is fast enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rooflinellm.cli.inputs import COUNT, OPTIONS, Price, subcommand
from rooflinellm.cli.output import Output, output_options

ANSWER_IS_NO = 1


@subcommand(
    "recommend llama-3.3-70b --min-tokens-per-s 10 --context 8k",
    "recommend qwen3-32b -x 20 --max-ttft 5 --prompt 4k --max-power 600",
    "recommend qwen3-8b -x 40 --hardware rtx-3090 --hardware m3-max-40c -w Q8_0",
    "recommend qwen3-32b -x 15 --price rtx-3090=700 --price rtx-4090=1800 --budget 2000",
)
@click.argument("model")
@click.option(
    *("-x", "--min-tokens-per-s", "min_tokens_per_s"),
    type=float,
    metavar="R",
    help="Least decode rate of each request, with the context full.",
)
@click.option("-c", "--context", type=COUNT, metavar="N", help="Context to hold for each request.  [default: 8192]")
@click.option("--max-ttft", "max_ttft_s", type=float, metavar="S", help="Longest time to first token, in seconds.")
@click.option(
    *("-p", "--prompt", "prompt_tokens"),
    type=COUNT,
    metavar="N",
    help="Length of the prompt that ends the context.  [default: 512]",
)
@click.option("--max-power", "max_power_w", type=float, metavar="W", help="Most rated power of all devices.")
@click.option("-b", "--batch", type=COUNT, metavar="N", help=OPTIONS["batch"].help)
@click.option("-w", "--weights", multiple=True, metavar="NAME", help="Format to choose from (repeatable).")
@click.option(
    *("--min-bits", "min_bits_per_weight"), type=float, metavar="B", help="Try no formats of fewer bits.  [default: 4]"
)
@click.option("--hardware", multiple=True, metavar="NAME", help="System to choose from (repeatable).  [default: all]")
@click.option("--kv", metavar="TYPE", help=OPTIONS["kv"].help)
@click.option("-e", "--engine", metavar="NAME", help=OPTIONS["engine"].help)
@click.option("--price", "prices", type=Price(), multiple=True, metavar="H=P", help="Price to buy: rtx-3090=700.")
@click.option("--price-per-hour", "rents", type=Price(), multiple=True, metavar="H=P", help="Price to rent.")
@click.option("--budget", type=float, metavar="P", help="Most that it may cost to buy.")
@click.option("-v", "--verbose", is_flag=True, help="Show every system that does.")
@output_options
def command(
    model: str,
    weights: Sequence[str],
    hardware: Sequence[str],
    prices: Sequence[tuple[str, float]],
    rents: Sequence[tuple[str, float]],
    verbose: bool,
    output: Output,
    **wish: Any,
) -> int:
    """Hardware that is fast enough, and its format.

    The exit code is 1 where nothing is; what comes nearest is shown with what it lacks.
    """
    from rooflinellm.api.recommend import recommend

    found = recommend(
        model,
        weights=list(weights) or None,
        hardware=list(hardware) or None,
        prices=dict(prices) or None,
        prices_per_hour=dict(rents) or None,
        **{name: value for name, value in wish.items() if value is not None},
    )
    output.write(
        tables=lambda: found.tables(most=None) if verbose else found.tables(),
        payload=found.to_dict,
        records=found.to_records,
    )
    return 0 if found else ANSWER_IS_NO
