"""What was worked out before, by the objects it follows from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """A limited number of results; when there are more, it starts anew.

    Entries of the databases are large and frozen: identity is a cheaper key than content. They are kept alive beside
    the result, so that no other object takes their place.

    Parameters
    ----------
    most : int
        Results that are kept. [-]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Hashable, tuple[T, tuple[Any, ...]]] = {}

    def of(self, objects: tuple[Any, ...], names: tuple[Any, ...], make: Callable[[], T]) -> T:
        """The result for some objects and names, made where it is not known; what raises is not kept."""
        key = (*map(id, objects), names)
        known = self._found.get(key)
        if known is None:
            known = make(), objects
            if len(self._found) >= self._most:
                self._found.clear()  # at once: other threads may be looking
            self._found[key] = known
        return known[0]
