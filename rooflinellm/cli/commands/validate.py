"""`validate`: predicted against measured."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.files import CHARTS, target_of, write_whole
from rooflinellm.cli.inputs import COUNT, subcommand
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import progress, say

if TYPE_CHECKING:
    from rooflinellm.measurements.accuracy import ValidationResult

SIZE = (6.0, 6.0)
"""Width and height. [inch]"""
RESOLUTION_DPI = 120
"""Thousands of points stay below 200 kB. [pixel/inch]"""
FITTED_TO = "results the profile was fitted to"
GROUPINGS = ("population", "engine", "phase", "device", "model")
LEAVE_OUT = ("series", "device")
QUALITIES = ("A", "AB", "ABC", "B", "BC", "AC", "C")


@subcommand(
    "validate llama-bench.json",
    "validate results.csv --by device --rows rows.csv",
    "validate log.md --hardware rtx-4090 --max-error 25",
    "validate profile_export_aiperf.json --hardware '8x h100-sxm' --tp 8 --weights fp8 --engine vllm",
    "validate --leave-out device",
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--rows", "rows_out", metavar="OUT.csv", help="Also write a line a row, predicted or skipped and why.")
@click.option("--plot", metavar="OUT.png", help="Also draw a chart: .png, .svg or .pdf; by engine without --by.")
@click.option(
    "--quality",
    type=click.Choice(QUALITIES, case_sensitive=False),
    metavar="ABC",
    default="AB",
    help="Qualities of results to score.  [default: AB]",
)
@click.option("--by", type=click.Choice(GROUPINGS), metavar="GROUP", help=f"{', '.join(GROUPINGS)}.")
@click.option(
    "--max-error", type=click.FloatRange(min=0), metavar="PCT", help="Exit 1 if the median error of all is larger."
)
@click.option("--model", metavar="MODEL", help="The model, where a file does not say.")
@click.option("--hardware", metavar="HARDWARE", help="The hardware, where a file does not say: '2x rtx-3090'.")
@click.option("--weights", metavar="NAME", help="The weight format, where a file does not say.")
@click.option("--engine", metavar="NAME", help="The engine, where a file does not say.")
@click.option("--tp", "tensor_parallel", type=COUNT, metavar="N", help="Devices a layer, where a file does not say.")
@click.option("--concurrency", type=COUNT, metavar="N", help="Requests under way, where a file does not say.")
@click.option("--profile", metavar="NAME", help="Efficiency profile to score, in place of the usual one; or its file.")
@click.option(
    "--leave-out",
    type=click.Choice(LEAVE_OUT),
    metavar="series|device",
    help="Predict each result by a fit to the others: those of other series, or of other devices.",
)
@output_options
def command(
    files: tuple[str, ...], plot: str | None, by: Any, max_error: float | None, output: Output, **options: Any
) -> int:
    """How far predictions are from measured results.

    FILE is output of llama-bench, llama-batched-bench, vLLM, SGLang, trtllm-bench, GenAI-Perf or AIPerf, or a CSV table
    of results; gzipped or not. Without one, the results that come with the program are scored.

    The usual profile was fitted to these. With --leave-out it is fitted again, in folds, each time without what it then
    predicts: `series` says how well devices are predicted of which other results are known (a series agrees in device,
    model, format, test and lengths), `device` how well those are of which none is. That takes a minute.
    """
    from rooflinellm.api.validate import validate

    target = None if plot is None else target_of(plot, "--plot", CHARTS)
    with progress("fitting") if options["leave_out"] else nullcontext() as told:
        result = validate(files or None, progress=told, **options)
    grouping: Any = by or "population"
    output.write(
        tables=lambda: result.tables(grouping),
        payload=lambda: result.to_dict(grouping),
        records=lambda: [asdict(each) for each in result.by(grouping)],
    )
    if target is not None:
        fitted_to = not files and options["profile"] is None and options["leave_out"] is None
        _draw(result, target, by or "engine", FITTED_TO if fitted_to else None)
    if max_error is None:
        return 0
    if result.overall is None:
        say("error", "no row could be predicted, so no error can be stated")
        return 1
    error = 100 * result.overall.mdape
    if error > max_error:
        say("error", f"the median error of all is {error:.1f} %, more than {max_error:g} %")
        return 1
    return 0


def _draw(result: ValidationResult, target: Path, by: Any, note: str | None) -> None:
    from matplotlib.figure import Figure

    from rooflinellm import plotting

    figure = Figure(figsize=SIZE, layout="constrained")
    axes = plotting.validation(result, by=by, ax=figure.subplots(), note=note)
    write_whole(target, "--plot", lambda path: plotting.save(axes, path, dpi=RESOLUTION_DPI))
