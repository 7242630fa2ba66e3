"""`calibrate`: fit an efficiency profile to measured results."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rooflinellm.cli.files import target_of, write_whole
from rooflinellm.cli.inputs import one_table, subcommand
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import progress

_UNFIT = re.compile(r"[^a-z0-9]+")


@subcommand(
    "calibrate my-llama-bench.json -o my-profile.yaml",
    "calibrate log.md --hardware rtx-4090 -o my-profile.yaml",
    "estimate llama-3.1-8b rtx-4090 --profile my-profile.yaml",
    "calibrate --kernels -o kernels.yaml",
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--kernels", is_flag=True, help="Fit the curves of single kernels and collectives instead.")
@click.option("-o", "--out", metavar="PROFILE.yaml", help="Write the profile to this file.")
@click.option("--quality", metavar="ABC", default="AB", help="Qualities of results to fit.  [default: AB]")
@click.option("--model", metavar="MODEL", help="The model, where a file does not say.")
@click.option("--hardware", metavar="HARDWARE", help="The hardware, where a file does not say.")
@click.option("--weights", metavar="NAME", help="The weight format, where a file does not say.")
@click.option("--engine", metavar="NAME", help="The engine, where a file does not say.")
@output_options
def command(files: tuple[str, ...], kernels: bool, out: str | None, output: Output, **options: Any) -> int:
    """Fit an efficiency profile to your results, and score it.

    FILE is as for `validate`. The devices in it get factors of their own on top of the usual profile, as far as the
    results tell; how much better that is, is measured on series that the fit has not seen. `estimate --profile` and
    `validate --profile` take the file.

    Without FILE, the results that come with the program are fitted anew, which gives the usual profile, byte for byte.
    With --kernels, FILE is one table of measured kernels, as hardware_db/measurements/kernels.csv.gz is.
    """
    from rooflinellm.api.calibrate import OWN_ID, calibrate

    target = None if out is None else target_of(out, "--out")
    profile_id = OWN_ID if target is None else _UNFIT.sub("-", Path(target).stem.lower()).strip("-") or OWN_ID
    if kernels:
        return _kernels(files, target, profile_id, output)
    with progress("fitting") as told:
        found = calibrate(files or None, profile_id=profile_id, progress=told, **options)
    if target is not None:
        write_whole(target, "--out", lambda path: path.write_text(found.to_yaml(), encoding="utf-8"))
    records: list[dict[str, Any]] = [asdict(score) for score in found.scores]
    first, second = (label.replace(",", "").replace(" ", "_") for label in found.labels)
    records = [{"name": each["name"], first: each["first"], second: each["second"]} for each in records]
    output.write(
        tables=found.tables, payload=lambda: {"scores": records, "factors": found.factors}, records=lambda: records
    )
    return 0


def _kernels(files: tuple[str, ...], target: Path | None, profile_id: str, output: Output) -> int:
    from rooflinellm.api.calibrate_kernels import calibrate_kernels

    named = {} if target is None else {"profile_id": profile_id}
    with progress("fitting") as told:
        found = calibrate_kernels(one_table(files), progress=told, **named)
    if target is not None:
        write_whole(target, "--out", lambda path: path.write_text(found.to_yaml(), encoding="utf-8"))
    output.write(tables=found.tables, payload=found.to_dict, records=found.records)
    return 0
