"""The command line: a file for each command in `commands`, nothing computed here.

This module is what starts, so it imports nothing; see `app` for what happens then.
"""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; None takes those of the process.

    Returns
    -------
    int
        The exit code: 0 ok, 1 the answer is no, 2 what was typed, 3 what a file holds, 130 interrupted.
    """
    try:
        _open_streams()
        from rooflinellm.cli.app import run

        return run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def _open_streams() -> None:
    """Give closed standard streams somewhere to write to, as Python leaves them out."""
    import os
    import sys

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open as long as the process
