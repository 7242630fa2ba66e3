"""What no other point beats."""

from __future__ import annotations

from typing import Any


def frontier(x: Any, y: Any) -> Any:
    """Tell which points no other one beats: none has as much of both, and more of one.

    Parameters
    ----------
    x, y : ndarray
        Two values of each point, both the better the higher.

    Returns
    -------
    ndarray of bool
    """
    no_less = (x[None] >= x[:, None]) & (y[None] >= y[:, None])
    more = (x[None] > x[:, None]) | (y[None] > y[:, None])
    return ~(no_less & more).any(axis=1)
