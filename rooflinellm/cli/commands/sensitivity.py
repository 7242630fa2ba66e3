"""`sensitivity`: which resource to pay for."""

from __future__ import annotations

import warnings
from typing import Any

import click

from rooflinellm.cli.files import CHARTS, target_of, write_whole
from rooflinellm.cli.inputs import COUNT, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.prompts import asked_warnings
from rooflinellm.cli.terminal import say

WIDTH = 8.0
"""Width of the chart. [inch]"""


@subcommand(
    "sensitivity llama-3.1-8b rtx-4090",
    "sensitivity llama-3.3-70b 'rtx-4090 + ddr5-5600x2@64GiB' --context 8k",
    "sensitivity qwen3-30b-a3b '2x rtx-3090' --prompt 4k --batch 8 -o sensitivity.png",
)
@click.argument("model")
@click.argument("hardware")
@click.option("-p", "--prompt", "prompt_tokens", type=COUNT, metavar="N", help="Length of the prompt.  [default: 512]")
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *("gpu_layers", "cpu_moe_layers", "draft", "draft_tokens", "acceptance"),
)
@click.option("--no-swaps", is_flag=True, help="Only resources, no concrete changes.")
@click.option("-o", "--chart", "path", metavar="FILE", help="Chart to write too: .png, .svg or .pdf.")
@output_options
def command(
    model: str,
    hardware: str,
    prompt_tokens: int | None,
    keywords: dict[str, Any],
    no_swaps: bool,
    path: str | None,
    output: Output,
) -> None:
    """Which resource to pay for.

    How each rate changes with each resource, and what other devices, more memory or fewer bits would bring.
    """
    target = None if path is None else target_of(path, "--chart", CHARTS)
    from rooflinellm.api.sensitivity import sensitivity
    from rooflinellm.errors import RooflineWarning

    given = keywords if prompt_tokens is None else {"prompt_tokens": prompt_tokens, **keywords}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below
        found = sensitivity(model, hardware, with_swaps=not no_swaps, **given)
    for text in asked_warnings(found.estimate.warnings, model, given):
        say("warning", as_typed(text))
    chart: dict[str, Any] = {}
    if target is not None:
        from matplotlib.figure import Figure

        from rooflinellm import plotting

        figure = Figure(figsize=(WIDTH, plotting_height(len(found.elasticities))), layout="constrained")
        axes = plotting.sensitivity(found, ax=figure.subplots())
        write_whole(target, "--chart", lambda file: plotting.save(axes, file))
        chart = {"file": path, "description": plotting.describe(axes)}
    output.write(
        tables=lambda: [*found.tables(), *_chart_table(chart)],
        payload=lambda: {**found.to_dict(), **({"chart": chart} if chart else {})},
        records=found.to_records,
    )


def plotting_height(rows: int) -> float:
    """Height of a chart with so many resources. [inch]"""
    return 1.5 + 0.45 * rows


def _chart_table(chart: dict[str, Any]) -> list[Any]:
    from rooflinellm.render import Table

    return [Table((), (), chart["file"], [chart["description"]])] if chart else []
