"""The largest batch that fits and keeps to limits of time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from rooflinellm._shown import one_line
from rooflinellm.api.arguments import one_of, positive, single_values
from rooflinellm.api.estimate import estimate
from rooflinellm.api.lookup import Name
from rooflinellm.engine.memory import LARGEST_BATCH
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.results import Estimate
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry

End = Literal["ideal", "expected", "low", "high"]


@dataclass(frozen=True)
class LargestBatch:
    """The answer of `largest_batch`.

    Attributes
    ----------
    batch : int
        Most requests side by side that meet every limit; 0 where not even one does. [-]
    limited_by : str
        ``memory``, ``max_tpot_s`` or ``max_ttft_s``: what the next request would break; empty where nothing limits.
    by_memory, by_tpot, by_ttft : int or None
        Most by each limit alone; None where memory is not known, or no limit was given. [-]
    estimate : Estimate
        Of that batch; of a single request where it is 0.
    """

    batch: int
    limited_by: str
    by_memory: int | None
    by_tpot: int | None
    by_ttft: int | None
    estimate: Estimate

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"estimate": self.estimate.to_dict()}


def largest_batch(
    model: Name | ModelEntry | ModelSpec,
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    max_tpot_s: float | None = None,
    max_ttft_s: float | None = None,
    at: End = "expected",
    **request: Any,
) -> LargestBatch:
    """Find the largest batch that fits in memory and keeps to limits of time.

    All prompts of the batch are prefilled together, so TTFT is that of the last one; TPOT is that of each request.
    Neither falls as the batch grows, so bisection finds the largest that meets a limit.

    Parameters
    ----------
    model, hardware
        As in `estimate`.
    max_tpot_s, max_ttft_s : float, optional
        Longest time per output token, and to first token. [s]
    at : {'expected', 'low', 'high', 'ideal'}
        Which end of a prediction has to keep to the limits: ``high`` is the cautious choice.
    **request
        As in `estimate`, single values; without batch.

    Returns
    -------
    LargestBatch

    Raises
    ------
    InvalidRequest
        Impossible numbers or arrays; and as `estimate`.
    """
    one_of("at", at, ("ideal", "expected", "low", "high"))
    single_values(request)
    if "batch" in request:
        raise InvalidRequest("this is what is looked for", where="batch")
    limits = {
        name: positive(name, value)
        for name, value in (("max_tpot_s", max_tpot_s), ("max_ttft_s", max_ttft_s))
        if value is not None
    }

    def ask(batch: int) -> Estimate:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflineWarning)  # batches that are only tried
            return estimate(model, hardware, batch=batch, **request)

    one = ask(1)
    found: dict[str, int | None] = {"memory": one.memory.max_batch}
    found |= {
        name: _most(lambda batch, name=name: getattr(getattr(ask(batch), name[4:]), at) <= limits[name])  # type: ignore[misc]
        for name in limits
    }
    known = {name: value for name, value in found.items() if value is not None}
    batch = min([*known.values(), LARGEST_BATCH])
    binding = [name for name, value in known.items() if value == batch and batch < LARGEST_BATCH]
    return LargestBatch(
        batch=batch,
        limited_by=binding[0] if binding else "",
        by_memory=found["memory"],
        by_tpot=found.get("max_tpot_s"),
        by_ttft=found.get("max_ttft_s"),
        estimate=ask(batch) if batch else one,
    )


def _most(meets: Callable[[int], bool]) -> int:
    """The largest batch that meets a limit, by bisection; 0 where not even 1 does."""
    low, high = 0, LARGEST_BATCH
    while low < high:
        middle = min(2 * low + 1, (low + high + 1) // 2)  # most answers are small
        low, high = (middle, high) if meets(middle) else (low, middle - 1)
    return low
