"""What one more layer on the devices would bring."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from rooflinellm._numeric import is_array
from rooflinellm._shown import one_line
from rooflinellm.errors import RooflineWarning
from rooflinellm.results import Estimate


@dataclass(frozen=True, slots=True)
class NextLayer:
    """A placement with one more layer, or the experts of one more, on the devices.

    Attributes
    ----------
    estimate : Estimate
        Of that placement.
    experts : bool
        Whether it is about experts.
    gain : float
        Decode rate over that of the placement it started from, less 1. [-]
    """

    estimate: Estimate
    experts: bool
    gain: float

    __repr__ = one_line

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where the capacity is not known."""
        return None if self.estimate.memory.fits is None else bool(self.estimate.memory.fits)


def next_layer(estimate: Estimate, ask: Callable[..., Estimate]) -> NextLayer | None:
    """Ask for the same with one layer less on the host; of experts first, if there are any.

    Parameters
    ----------
    estimate : Estimate
        With something on the host.
    ask : callable
        Estimates the same for other `gpu_layers` and `cpu_moe_layers`.

    Returns
    -------
    NextLayer or None
        None where nothing is on the host, where a drive holds a part, which no such wish can name, and for arrays.
    """
    here, experts = estimate.workload["gpu_layers"], estimate.workload["cpu_moe_layers"] or 0
    whole = len(estimate.model.layers) + 1
    if here is None or is_array(estimate.decode.tokens_per_s.expected) or (here >= whole and not experts):
        return None
    if any(part.tier == "disk" and part.bytes for part in estimate.memory.placement):
        return None
    # With all experts on the host, whole layers without theirs come first.
    of_experts = bool(experts) and here >= whole
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        found = ask(
            gpu_layers=here if of_experts else here + 1,
            cpu_moe_layers=(experts - 1 if of_experts else experts) or None,
        )
    gain = found.decode.tokens_per_s.expected / estimate.decode.tokens_per_s.expected - 1
    return NextLayer(found, of_experts, float(gain))
