"""`sweep`: how the answers change over lengths, batches, formats and what-if values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.axes import AXES, Axis, Over, flag_of
from rooflinellm.cli.files import CHARTS, target_of, write_whole
from rooflinellm.cli.inputs import COUNT, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.prompts import asked_warnings
from rooflinellm.cli.terminal import say

if TYPE_CHECKING:
    from rooflinellm.api.sweep_result import Sweep
    from rooflinellm.render import Table

SIZE = (8.0, 5.0)
"""Width and height. [inch]"""
ANSWER_IS_NO = 1
ROWS = 200
"""Rows that a table shows at most."""
RATES = {"decode": "decode.tokens_per_s", "prefill": "prefill.tokens_per_s", "ttft": "ttft_s", "tpot": "tpot_s"}
RATES |= {"aggregate": "decode.aggregate_tokens_per_s", "e2e": "e2e_s", "energy": "energy_j_per_token"}


@subcommand(
    "sweep llama-3.1-8b rtx-4090 --over context=0:131072:33 -o context.png",
    "sweep llama-3.1-8b rtx-4090 m3-max-40c --over batch=1,2,4,8,16 --context 4k",
    "sweep qwen3-32b rtx-5090 --over weights=Q4_K_M,Q6_K,Q8_0 --over context=0,16k -f csv",
    "sweep llama-3.1-8b rtx-4090 --over prompt=512:32768:16 -o prompt.svg --y ttft",
    "sweep llama-3.3-70b '8x h100-sxm' -w fp8 --parallel --over batch=1,8,64 --pareto -o front.png",
    "sweep llama-3.3-70b '8x h200-sxm' '8x b200' -w fp8 --parallel --max-tpot 0.03 --max-ttft 2",
)
@click.argument("model")
@click.argument("hardware", nargs=-1, required=True, metavar="HARDWARE...")
@click.option(
    "--over",
    "axes",
    type=Over(),
    multiple=True,
    metavar="AXIS",
    help="name=start:stop:count or name=a,b,c (repeatable): context, prompt, batch, weights, kv …",
)
@click.option("--parallel", is_flag=True, help="Every way to share the model over all devices, and the best.")
@click.option("--max-ttft", "max_ttft_s", type=float, metavar="S", help="With --parallel: limit of first token.")
@click.option(
    "--max-tpot", "max_tpot_s", type=float, metavar="S", help="With --parallel: limit of each token after it."
)
@click.option("-p", "--prompt", "prompt_tokens", type=COUNT, metavar="N", help="Length of the prompt.  [default: 512]")
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *("gpu_layers", "cpu_moe_layers", "draft", "draft_tokens", "acceptance", "queue_s"),
)
@click.option("-o", "--chart", "path", metavar="FILE", help="Chart to write too: .png, .svg or .pdf.")
@click.option("--pareto", is_flag=True, help="The chart: rate of all requests against that of each, over batch.")
@click.option("--x", metavar="NAME", help="Axis to the right in the chart.  [default: the longest]")
@click.option(
    "--y", type=click.Choice([*RATES]), default="decode", metavar="NAME", help=f"In the chart: {', '.join(RATES)}."
)
@click.option("--plot", is_flag=True, help="Add the decode rate as a bar to each row.")
@output_options
def command(
    model: str,
    hardware: Sequence[str],
    axes: Sequence[Axis],
    parallel: bool,
    max_ttft_s: float | None,
    max_tpot_s: float | None,
    prompt_tokens: int | None,
    keywords: dict[str, Any],
    path: str | None,
    pareto: bool,
    x: str | None,
    y: str,
    plot: bool,
    output: Output,
) -> int:
    """How speed changes over context, batch, formats ….

    A row for each combination of the axes, with first token and memory; with -o also a chart. With --parallel the ways
    to share the model that no other one beats, at the batches of --over, and the highest throughput within the limits;
    the exit code is 1 where nothing keeps to them.
    """
    arguments = _arguments(axes, prompt_tokens, keywords)
    target = None if path is None else target_of(path, "--chart", CHARTS)
    systems: Any = hardware[0] if len(hardware) == 1 else list(dict.fromkeys(hardware))
    limits: dict[str, Any] = {"max_ttft_s": max_ttft_s, "max_tpot_s": max_tpot_s}
    if (x is not None or pareto) and target is None:
        raise click.UsageError("--x and --pareto describe a chart; name its file with -o")
    if parallel:
        if x is not None or plot:
            raise click.UsageError("--parallel shows a front over batches; leave out --x and --plot")
        return _share(model, systems, axes, arguments, limits, (path, target), output)
    if any(limit is not None for limit in limits.values()):
        raise click.UsageError("--max-ttft and --max-tpot choose among ways to share a model; give --parallel")
    if not axes:
        raise click.UsageError("--over: missing; or give --parallel")
    along = None if x is None else AXES.get(x, x)
    if along is not None and along not in {axis.keyword for axis in axes}:
        raise click.UsageError(f"--x: '{x}' is not one of the axes of --over")
    from rooflinellm.api.sweep import sweep
    from rooflinellm.errors import RooflineWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below
        found = sweep(model, systems, **arguments)
    for text in asked_warnings(found.warnings, model, arguments):
        say("warning", as_typed(text))
    chart = {}
    if target is not None:

        def draw(ax: Any) -> Any:
            from rooflinellm import plotting

            return plotting.pareto(found, ax=ax) if pareto else plotting.sweep(found, x=along, y=RATES[y], ax=ax)

        chart = _written(draw, path, target)
    output.write(
        tables=lambda: _tables(found, chart, plot),
        payload=lambda: {**found.to_dict(), **({"chart": chart} if chart else {})},
        records=found.to_records,
    )
    return 0


def _share(
    model: str,
    systems: Any,
    axes: Sequence[Axis],
    arguments: dict[str, Any],
    limits: dict[str, Any],
    chart_to: tuple[str | None, Path | None],
    output: Output,
) -> int:
    """Ways to share a model; 1 where none keeps to the limits."""
    from rooflinellm.api.best_parallel import best_parallel
    from rooflinellm.api.parallel_choices import DEGREES

    other = next((axis.keyword for axis in axes if axis.keyword != "batch"), None)
    if other is not None:
        raise click.UsageError(f"--parallel goes over batches only, not over {other}; give one value")
    degree = next((name for name in DEGREES if name in arguments), None)
    if degree is not None:
        raise click.UsageError(f"--parallel tries every degree; leave out {flag_of(degree)}")
    batches = arguments.pop("batch", None)
    if batches is not None:
        arguments["batches"] = batches if isinstance(batches, list) else [batches]
    found = best_parallel(model, systems, **limits, **arguments)
    chart = {}
    path, target = chart_to
    if target is not None:

        def draw(ax: Any) -> Any:
            from rooflinellm import plotting

            return plotting.pareto(found.sweep, ax=ax, max_tpot_s=limits["max_tpot_s"])

        chart = _written(draw, path, target)
    output.write(
        tables=lambda: [*found.tables(), *_chart_table(chart)],
        payload=lambda: {**found.to_dict(), **({"chart": chart} if chart else {})},
        records=found.to_records,
    )
    return 0 if found else ANSWER_IS_NO


def _written(draw: Callable[[Any], Any], path: str | None, target: Path) -> dict[str, Any]:
    """Draw a chart, write it, and say in words what it shows."""
    from matplotlib.figure import Figure

    from rooflinellm import plotting

    drawn = draw(Figure(figsize=SIZE, layout="constrained").subplots())
    write_whole(target, "--chart", lambda file: plotting.save(drawn, file))
    return {"file": path, "description": plotting.describe(drawn)}


def _chart_table(chart: dict[str, Any]) -> list[Table]:
    from rooflinellm.render import Table

    return [Table((), (), chart["file"], [chart["description"]])] if chart else []


def _arguments(axes: Sequence[Axis], prompt_tokens: int | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords of the library, each given once."""
    arguments = dict(keywords) | ({} if prompt_tokens is None else {"prompt_tokens": prompt_tokens})
    overrides = dict(arguments.get("overrides", {}))
    seen = set()
    for axis in axes:
        path = "." in axis.keyword
        if axis.keyword in seen:
            raise click.UsageError(f"--over: {axis.keyword} is given twice")
        if axis.keyword in (overrides if path else arguments):
            option = "--set" if path else flag_of(axis.keyword)
            raise click.UsageError(f"--over {axis.keyword} and {option} exclude each other")
        seen.add(axis.keyword)
        if path:
            overrides[axis.keyword] = list(axis.values)
            arguments["overrides"] = overrides
        else:
            arguments[axis.keyword] = list(axis.values)
    return arguments


def _tables(found: Sweep, chart: dict[str, Any], plot: bool) -> list[Table]:
    table = found.table(most=ROWS, bars=plot)
    notes = [note for note in table.notes if not note.startswith("warning: ")]
    return [replace(table, notes=notes), *_chart_table(chart)]
