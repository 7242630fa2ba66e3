"""`probe`: measure this computer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rooflinellm.cli.files import target_of, write_whole
from rooflinellm.cli.inputs import subcommand
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say

if TYPE_CHECKING:
    from rooflinellm.api.probe import Probe
    from rooflinellm.render import Table

ENDINGS = (".yaml", ".yml")
EXAMPLE_MODEL = "llama-3.2-3b"


@subcommand("probe", "probe -o my-machine.yaml", "probe --device cuda -o my-gpu.yaml")
@click.option("-o", "--out", metavar="DEVICE.yaml", help="Write the device to this file.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--seconds", type=float, metavar="S", default=10.0, help="Time to spend, about.  [default: 10]")
@click.option("--threads", type=int, metavar="N", help="Threads of the CPU to use at most.  [default: all]")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default="cpu", help="What to measure.  [default: cpu]")
@output_options
def command(out: str | None, force: bool, seconds: float, threads: int | None, device: str, output: Output) -> int:
    """Measure this computer, as a device for estimates.

    Read bandwidth, matrix products, memory and cache; close other programs first. The file is a device like any other:
    its path may stand wherever HARDWARE does. A GPU needs PyTorch.
    """
    from rooflinellm.errors import InvalidRequest

    target = None if out is None else target_of(out, "--out", ENDINGS)
    if target is not None and target.exists() and not force:
        raise InvalidRequest(f"'{out}' is there already", where="--out", next_step="Name another file, or add --force.")

    from rooflinellm.api.probe import probe

    watched = sys.stderr.isatty()
    found = probe(
        seconds=seconds,
        threads=threads,
        device=device,
        id=None if target is None else target.stem,
        progress=(lambda text: say("measuring", text)) if watched else None,
    )
    if target is not None:
        write_whole(target, "--out", lambda path: path.write_text(found.to_yaml(), encoding="utf-8"))
    output.write(
        tables=lambda: [found.table(), _next_steps(found, target, out)],
        payload=lambda: {**found.to_dict(), "file": None if target is None else str(target)},
        records=found.records,
    )
    return 0


def _next_steps(found: Probe, target: Path | None, typed: str | None) -> Table:
    from rooflinellm.render import Table

    if target is None:
        return Table((), (), "to keep it as a device", commands=["rooflinellm probe -o my-machine.yaml"])
    path = f"'{typed}'" if " " in str(typed) else str(typed)
    engine = " --engine llama.cpp:cpu" if found.hardware.kind == "cpu" else ""
    commands = [
        f"rooflinellm estimate {EXAMPLE_MODEL} {path}{engine}",
        f"rooflinellm fit {EXAMPLE_MODEL} {path}",
        f"rooflinellm hardware show {path}",
    ]
    return Table((), (), f"written to {typed}; what it can do", commands=commands)
