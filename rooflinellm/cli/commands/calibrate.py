"""`calibrate`: fit an efficiency profile to measured results."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

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

    found = calibrate(files or None, quality=quality)
    if out is not None:
        _write(Path(out), found.to_yaml())
    records: list[dict[str, Any]] = [asdict(score) for score in found.scores]
    output.write(tables=lambda: [found.table()], payload=lambda: {"scores": records}, records=lambda: records)
    return 0


def _write(path: Path, text: str) -> None:
    """Write a whole file or none."""
    from rooflinellm.errors import InvalidRequest

    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InvalidRequest(f"cannot write: {error.strerror or error}", where=str(path)) from error
