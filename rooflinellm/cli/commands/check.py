"""`check`: is a claimed rate possible, and what does the claim leave out."""

from __future__ import annotations

from typing import Any

import click

from rooflinellm.cli.inputs import COUNT, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say

ANSWER_IS_NO = 1


@subcommand(
    "check llama-3.1-8b rtx-4090 --tokens-per-s 500",
    "check llama-3.3-70b h100-sxm -w fp8 --tokens-per-s 2400 --batch 64 --aggregate",
    "check qwen3-8b m3-max-40c --phase prefill --prompt 4k --tokens-per-s 9000 --json",
)
@click.argument("model")
@click.argument("hardware")
@click.option(
    *("-x", "--tokens-per-s", "tokens_per_s"),
    type=float,
    required=True,
    metavar="X",
    help="The claimed rate.",
)
@click.option(
    "--phase",
    type=click.Choice(("decode", "prefill")),
    default="decode",
    metavar="PHASE",
    help="What it is a rate of: decode or prefill.  [default: decode]",
)
@click.option("-p", "--prompt", "prompt_tokens", type=COUNT, metavar="N", help="Length of the prompt.")
@click.option(
    "--aggregate/--per-request",
    "aggregate",
    default=None,
    help="A rate of all requests together, or of each.",
)
@click.option("--speculation", type=COUNT, metavar="N", help="Tokens drafted for a step, 0 for none.")
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *("gpu_layers", "cpu_moe_layers"),
)
@output_options
def command(model: str, hardware: str, keywords: dict[str, Any], output: Output, **claim: Any) -> int:
    """Is a claimed number possible, and what the claim leaves out.

    Say what the claim says and leave out the rest. The exit code is 1 where it is impossible as stated.
    """
    from rooflinellm.api.check_claim import check_claim

    result = check_claim(model, hardware, **claim, **keywords)
    for text in result.warnings:
        say("warning", as_typed(text))
    output.write(tables=result.tables, payload=result.to_dict, records=lambda: [result.to_dict()])
    return 0 if result.possible else ANSWER_IS_NO
