"""`compare`: one model on several systems, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import click

from rooflinellm.cli.files import CHARTS, target_of, write_whole
from rooflinellm.cli.inputs import LENGTHS, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.prompts import asked_warnings, default_prompts
from rooflinellm.cli.terminal import say

WIDTH = 8.0
"""Width of the chart. [inch]"""


@subcommand(
    "compare llama-3.1-8b '2x rtx-3090' rtx-4090 m3-max-40c",
    "compare qwen3-30b-a3b rtx-5090 strix-halo --prompt 2k,32k --weights Q4_K_M -o compare.png",
)
@click.argument("model")
@click.argument("hardware", nargs=-1, required=True, metavar="HARDWARE...")
@click.option(
    *("-p", "--prompt", "prompts"),
    type=LENGTHS,
    metavar="N,N",
    help="Lengths of the prompt; 8k is 8192, as everywhere.  [default: 512,8192]",
)
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *("gpu_layers", "cpu_moe_layers", "draft", "draft_tokens", "acceptance", "queue_s"),
)
@click.option("-o", "--chart", "path", metavar="FILE", help="Chart to write too: .png, .svg or .pdf.")
@output_options
def command(
    model: str,
    hardware: Sequence[str],
    prompts: Sequence[int] | None,
    keywords: dict[str, Any],
    path: str | None,
    output: Output,
) -> None:
    """Several devices side by side: fit, speed, power.

    A system on which it cannot run is a row with the reason.
    """
    target = None if path is None else target_of(path, "--chart", CHARTS)
    from rooflinellm.api.compare import compare
    from rooflinellm.errors import RooflineWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below
        typed = keywords if prompts is None else {**keywords, "prompt_tokens": prompts}
        shown = default_prompts(model, keywords) if prompts is None else prompts
        found = compare(model, hardware, prompt_tokens=shown, **keywords)
    for text in asked_warnings(found.warnings, model, typed):
        say("warning", as_typed(text))
    chart: dict[str, Any] = {}
    if target is not None:
        from matplotlib.figure import Figure

        from rooflinellm import plotting

        figure = Figure(figsize=(WIDTH, plotting_height(len(found.rows))), layout="constrained")
        axes = plotting.compare(found, ax=figure.subplots())
        write_whole(target, "--chart", lambda file: plotting.save(axes, file))
        chart = {"file": path, "description": plotting.describe(axes)}
    output.write(
        tables=lambda: [found.table(), *_chart_table(chart)],
        payload=lambda: {**found.to_dict(), **({"chart": chart} if chart else {})},
        records=found.to_records,
    )


def plotting_height(rows: int) -> float:
    """Height of a chart with so many systems. [inch]"""
    return 1.6 + 0.75 * rows


def _chart_table(chart: dict[str, Any]) -> list[Any]:
    from rooflinellm.render import Table

    return [Table((), (), chart["file"], [chart["description"]])] if chart else []
