"""What is asked of an estimate for a row, and which number of it is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["prefill", "decode", "run", "ttft", "loaded_ttft", "tpot", "request", "serving"]
Unit = Literal["tokens/s", "s"]
MAX_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured number and what it is of.

    Attributes
    ----------
    of : str
        ``prefill``: prompt tokens over prefill; ``decode``: tokens over decode steps; ``run``: tokens over both, one
        after the other; ``ttft``, ``tpot``, ``request``: seconds; ``loaded_ttft``: the mean of clients that keep a
        number of requests under way; ``serving``: tokens over time of a server that is kept busy, with prefill and
        decode of its requests mixed. Rates are of all sequences together.
    unit : str
        ``tokens/s`` or ``s``.
    measured : float
        The measured number, in that unit.
    scale : float
        What a predicted rate is multiplied by before it is compared, or a predicted time divided. [-]
    tokens : int or None
        Tokens of one sequence that a ``run`` or ``serving`` rate counts; None: the output. [token]
    """

    of: Phase
    unit: Unit
    measured: float
    scale: float = 1.0
    tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Arguments of an estimate and the quantity; `kv` is the cache's type (None: the engine's default).

    `bounded` is False where the ideal of the estimate is no bound of what was measured.
    """

    arguments: dict[str, Any]
    quantity: Quantity
    kv: str | None = None
    bounded: bool = True


class SkipRow(Exception):
    """A row that is not compared, and why."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(reason, detail)


def tokens(value: float | None) -> int:
    """A length as a whole number, 0 where it is not stated. [token]

    Raises
    ------
    SkipRow
        More than any cache holds.
    """
    if value is None:
        return 0
    if value > MAX_TOKENS:
        raise SkipRow("the row cannot be read", f"{value:g} tokens")
    return round(value)


def whole(name: str, value: float) -> int:
    """A count from 1 to 1024, such as of devices; raises `SkipRow`."""
    if value != int(value) or not 1 <= value <= 1024:
        raise SkipRow("the row cannot be read", f"{name} {value:g} is no whole number from 1 to 1024")
    return int(value)
