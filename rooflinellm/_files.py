"""Files that are written whole or not at all, whatever interrupts the writing."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

LONGEST_STEM = 60


def write_whole(target: str | os.PathLike[str], save: Callable[[Path], object]) -> None:
    """Let `save` write a file beside the target, and put it in its place when it is done.

    What is no regular file, such as a device or a pipe, is written to as it is; of a link, the file behind it is
    replaced, and one that is there keeps its permissions.

    Parameters
    ----------
    target : str or path
        The file to write.
    save : callable
        Writes the file of a path, whose ending is that of the target.

    Raises
    ------
    OSError
        It cannot be written; nothing is left then, and what was there stays.
    """
    target = Path(os.path.realpath(target))
    there = os.path.exists(target)
    if there and not os.path.isfile(target):
        save(target)
        return
    own = f"{os.getpid()}-{threading.get_ident():x}"
    beside = target.with_name(f".{target.stem[:LONGEST_STEM]}-{own}{target.suffix}")
    try:
        save(beside)
        if there:
            shutil.copymode(target, beside)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
