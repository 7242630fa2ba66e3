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
        from rooflinellm.cli.app import run

        return run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED
