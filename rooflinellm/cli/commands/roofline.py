"""`roofline`: the chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rooflinellm.cli.files import CHARTS, target_of, write_whole
from rooflinellm.cli.inputs import COUNT, COUNTS, PLACING, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options

SIZE = (8.0, 5.0)
"""Width and height. [inch]"""


@subcommand(
    "roofline llama-3.1-8b rtx-4090 -o roofline.png",
    "roofline qwen3-30b-a3b rtx-4090 m3-max-40c -o compare.svg --batches 1,8,64",
)
@click.argument("model")
@click.argument("hardware", nargs=-1, required=True, metavar="HARDWARE...")
@click.option("-o", "--output", "path", required=True, metavar="FILE", help="Chart to write: .png, .svg or .pdf.")
@click.option("-p", "--prompt", type=COUNT, metavar="N", help="Length of the prompt.  [default: 512]")
@click.option("--batches", type=COUNTS, metavar="N,N", help="Batches to decode.  [default: 1,2,4 … 64]")
@click.option("--precision", "precisions", multiple=True, metavar="P", help="Peak to show, as fp16 (repeatable).")
@click.option("--memory-levels", is_flag=True, help="Show caches, host memory and links too.")
@workload_options("weights", "kv", "engine", "context_tokens", *PLACING)
@output_options
def command(
    model: str,
    hardware: Sequence[str],
    path: str,
    prompt: int | None,
    batches: Sequence[int] | None,
    precisions: Sequence[str],
    memory_levels: bool,
    keywords: dict[str, Any],
    output: Output,
) -> None:
    """Roofline chart of devices, with a model below it.

    Prints the file's name and what the chart shows, in words.
    """
    target = target_of(path, "--output", CHARTS)
    from matplotlib.figure import Figure

    from rooflinellm import plotting

    given = {"prompt_tokens": prompt, "batches": batches, "precisions": precisions or None}
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = plotting.roofline(
        list(hardware),
        model,
        ax=figure.subplots(),
        memory_levels=memory_levels,
        **{name: value for name, value in given.items() if value is not None},
        **keywords,
    )
    write_whole(target, "--output", lambda file: plotting.save(axes, file))
    text = plotting.describe(axes)
    output.write(
        tables=lambda: _tables(path, text),
        payload=lambda: {"file": path, "description": text},
        records=lambda: [{"file": path, "description": text}],
    )


def _tables(path: str, text: str) -> list[Any]:
    from rooflinellm.render import Table

    return [Table((), (), path, [text])]
