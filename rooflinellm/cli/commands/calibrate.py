"""`calibrate`: fit an efficiency profile to measured results."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from rooflinellm.cli.files import target_of, write_whole
from rooflinellm.cli.inputs import subcommand
from rooflinellm.cli.output import Output, output_options


@subcommand("calibrate", "calibrate my-llama-bench.json results.csv -o my-profile.yaml")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-o", "--out", metavar="PROFILE.yaml", help="Write the profile to this file.")
@click.option("--quality", metavar="ABC", default="AB", help="Qualities of results to fit.  [default: AB]")
@output_options
def command(files: tuple[str, ...], out: str | None, quality: str, output: Output) -> int:
    """Fit an efficiency profile to measured results, and score it.

    FILE is as for `validate`. Without one, the results that come with the program are fitted, which gives the profile
    that comes with it, byte for byte.
    """
    from rooflinellm.api.calibrate import calibrate

    target = None if out is None else target_of(out, "--out")
    found = calibrate(files or None, quality=quality)
    if target is not None:
        write_whole(target, "--out", lambda path: path.write_text(found.to_yaml(), encoding="utf-8"))
    records: list[dict[str, Any]] = [asdict(score) for score in found.scores]
    output.write(tables=lambda: [found.table()], payload=lambda: {"scores": records}, records=lambda: records)
    return 0
