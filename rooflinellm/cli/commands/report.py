"""`report`: the answer on one page, to read before buying."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.files import target_of, write_whole
from rooflinellm.cli.inputs import LENGTHS, PLACING, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say

if TYPE_CHECKING:
    from rooflinellm.reporting.report import Report

ENDINGS = (".html", ".md")


@subcommand(
    "report llama-3.1-8b rtx-4090 -o report.html",
    "report qwen3-30b-a3b '2x rtx-3090' m3-max-40c@64GiB strix-halo -p 500,32k -o report.html",
    "report gpt-oss-120b 'rtx-4090 + 7950x + ddr5-6000x2@96GiB' --contexts 0,16k,64k -o report.md",
)
@click.argument("model")
@click.argument("hardware", nargs=-1, required=True, metavar="HARDWARE...")
@click.option("-o", "--out", "path", required=True, metavar="FILE", help="Report to write: .html or .md.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option(
    *("-p", "--prompt", "prompts"),
    type=LENGTHS,
    metavar="N,N",
    help="Lengths of the prompt, an everyday and a long one; 8k is 8192.  [default: 512,8192]",
)
@click.option("--contexts", type=LENGTHS, metavar="N,N", help="Amounts of occupied context to show.")
@click.option("--date", metavar="TEXT", help="A date to print; none is printed without.")
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *(*PLACING, "draft", "draft_tokens", "acceptance", "queue_s"),
)
@output_options
def command(
    model: str,
    hardware: Sequence[str],
    path: str,
    force: bool,
    prompts: Sequence[int] | None,
    contexts: Sequence[int] | None,
    date: str | None,
    keywords: dict[str, Any],
    output: Output,
) -> None:
    """A report to read before buying: fit, speed, memory, sources.

    One file that needs nothing else; beside a .md file its charts. Prints the file's name and the answer in a sentence.
    """
    target = target_of(path, "--out", ENDINGS)
    _refuse([] if force else [target])
    from rooflinellm.errors import RooflineWarning
    from rooflinellm.reporting.report import report

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below
        found = report(model, hardware, prompts=prompts, context=contexts, date=date, **keywords)
    files = found.files(target)
    _refuse([] if force else list(files))
    for text in found.warnings:
        say("warning", as_typed(text))
    for file, text in files.items():
        write_whole(file, "--out", _writer(text))
    beside = [file.name for file in files if file != target]
    output.write(
        tables=lambda: _tables(path, found, beside),
        payload=lambda: {"file": path, "charts": beside, "answer": found.answer, **found.comparison.to_dict()},
        records=found.comparison.to_records,
    )


def _refuse(files: Sequence[Path]) -> None:
    """Raise where one of some files is there."""
    from rooflinellm.errors import InvalidRequest

    for file in files:
        if file.exists():
            raise InvalidRequest(
                f"'{file}' is there already", where="--out", next_step="Name another file, or add --force."
            )


def _writer(text: str) -> Any:
    return lambda file: file.write_text(text, encoding="utf-8", newline="\n")


def _tables(path: str, found: Report, beside: Sequence[str]) -> list[Any]:
    from rooflinellm.render import Table

    charts = [f"charts beside it: {', '.join(beside)}"] if beside else []
    return [Table((), (), path, [found.answer, *charts])]
