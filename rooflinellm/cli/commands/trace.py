"""`trace`: a conversation or an agent under prefix caching, turn by turn."""

from __future__ import annotations

import warnings
from typing import Any

import click

from rooflinellm.cli.inputs import as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say


@subcommand(
    "trace qwen3-8b rtx-4090 turns.csv",
    "trace qwen3.5-9b rtx-4090 turns.json --weights Q4_K_M --json",
)
@click.argument("model")
@click.argument("hardware")
@click.argument("turns")
@workload_options(
    *("weights", "kv", "engine", "batch", "context_tokens", "context_limit", "prefill_chunk"),
    *("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *("gpu_layers", "cpu_moe_layers", "draft", "draft_tokens", "acceptance", "queue_s"),
)
@output_options
def command(model: str, hardware: str, turns: str, keywords: dict[str, Any], output: Output) -> None:
    """A conversation with prefix caching, turn by turn.

    TURNS is a CSV file with the columns new_tokens, output_tokens and edit_at, or a JSON list of such objects, a line a
    request. Each prompt is all that was said before with new_tokens behind; edit_at is the position of the first token
    that changed since (0: the system message).
    """
    from rooflinellm.api.prefix import prefix_cache
    from rooflinellm.api.turns import read_turns
    from rooflinellm.errors import RooflineWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below
        found = prefix_cache(model, hardware, read_turns(turns), **keywords)
    for text in found.estimate.warnings:
        say("warning", as_typed(text))
    output.write(tables=lambda: [found.table()], payload=found.to_dict, records=found.to_records)
