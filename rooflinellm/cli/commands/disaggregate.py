"""`disaggregate`: prefill on one machine, decode on another."""

from __future__ import annotations

import warnings
from typing import Any

import click

from rooflinellm.cli.inputs import COUNT, _Type, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say

PROMPT = 512
"""Length of the prompt where none is asked for. [token]"""
DEGREES = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "ep": "expert_parallel",
    "dp": "data_parallel",
}


class Degrees(_Type):
    """Degrees of parallelism of one machine: ``tp=8,ep=8``."""

    name = "degrees"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        found = {}
        for part in value.split(","):
            name, _, number = part.strip().partition("=")
            if name not in DEGREES or not number.strip().isdecimal():
                self.fail(f"'{value[:80]}' is no list of degrees; write it like tp=8 or tp=4,dp=2", param, ctx)
            found[DEGREES[name]] = int(number)
        return found


@subcommand(
    "disaggregate llama-3.1-8b h100-sxm h100-sxm -w fp8 -p 8k -n 256 -b 32",
    "disaggregate llama-3.3-70b '4x h100-sxm' '8x h200-sxm' -w fp8 --prefill-parallel tp=4 --decode-parallel tp=8",
    "disaggregate llama-3.1-8b h100-sxm l40s -w fp8 -p 4k --link 100gbe --no-overlap",
)
@click.argument("model")
@click.argument("prefill_hardware", metavar="PREFILL")
@click.argument("decode_hardware", metavar="DECODE")
@click.option(
    "--link", default="400gbe", metavar="NET", help="Network between them, or its GB/s one way.  [default: 400gbe]"
)
@click.option("--no-overlap", is_flag=True, help="Send the cache behind the prefill, not layer by layer during it.")
@click.option("--prefill-parallel", "prefill", type=Degrees(), metavar="TP=N", help="Of PREFILL alone: tp=4,ep=4.")
@click.option("--decode-parallel", "decode", type=Degrees(), metavar="TP=N", help="Of DECODE alone: tp=8.")
@click.option("--prefill-batch", type=COUNT, default=1, metavar="N", help="Prompts at a time.  [default: 1]")
@click.option(
    *("-p", "--prompt", "prompt_tokens"),
    type=COUNT,
    default=PROMPT,
    metavar="N",
    help=f"Tokens of the prompt.  [default: {PROMPT}]",
)
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel", "queue_s"),
)
@output_options
def command(
    model: str,
    prefill_hardware: str,
    decode_hardware: str,
    link: str,
    no_overlap: bool,
    keywords: dict[str, Any],
    output: Output,
    **asked: Any,
) -> None:
    """Prefill on one machine, decode on another.

    The cache of each prompt is sent from the one to the other. Says when the first token comes, how fast an answer
    runs that no prompt holds up, and how many machines of either kind keep each other busy.
    """
    from rooflinellm.api.disaggregated import disaggregated
    from rooflinellm.errors import RooflineWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below
        found = disaggregated(
            model, prefill_hardware, decode_hardware, link=_rate(link), overlap=not no_overlap, **asked, **keywords
        )
    for text in found.warnings:
        say("warning", as_typed(text))
    output.write(tables=lambda: [found.table()], payload=found.to_dict, records=found.to_records)


def _rate(link: str) -> str | float:
    """A number of GB/s, or the name of a network."""
    try:
        return float(link)
    except ValueError:
        return link
