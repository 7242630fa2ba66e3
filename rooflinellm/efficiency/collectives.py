"""What collectives take: the quickest of a few protocols, each a latency and a share of the link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

from rooflinellm import units
from rooflinellm._numeric import minimum
from rooflinellm.specs.curves import CollectiveCurve, CollectiveOf, ProtocolName
from rooflinellm.specs.hardware import LinkKind
from rooflinellm.specs.profile import ProfileSpec

OF: tuple[CollectiveOf, ...] = ("sum", "gather", "scatter", "exchange")


@dataclass(frozen=True, slots=True)
class Law:
    """One protocol of one collective: seconds, and the printed bandwidth it comes close to.

    Attributes
    ----------
    name : str
        The protocol.
    latency_s, hop_s : float
        Of a small message, and what each device adds. [s]
    share : float
        Of the printed bandwidth. [-]
    """

    name: ProtocolName
    latency_s: float
    hop_s: float
    share: float

    def time_s(self, ranks: int, message_s: Any) -> Any:
        """Time of a message over some devices.

        With a the latency, h what a device adds, and M / b the message over the printed bandwidth in one direction,

            a + h (t - 1) + f(t) M / (eta b),

        where f is t - 1 in one shot, 2 (t - 1) / t in two or around a ring, 1 + 1 / t in a switch (which each device
        sends the message and takes a sum from), and (t - 1) / t of gatherings, scatterings and exchanges.

        Parameters
        ----------
        ranks : int
            Devices that take part, t. [-]
        message_s : array_like
            The whole message (what a device has of a sum or an exchange; what all have of a gathering) over the
            printed bandwidth, M / b. [s]

        Returns
        -------
        float or ndarray
            [s]
        """
        return self.latency_s + self.hop_s * (ranks - 1) + passes(self.name, ranks) * message_s / self.share


def passes(name: ProtocolName, ranks: Any) -> Any:
    """How often the busiest direction of a device's link carries the message. [-]"""
    if name == "one_shot":
        return ranks - 1
    if name == "in_switch":
        return 1 + 1 / ranks
    return (2 if name in ("two_shot", "ring") else 1) * (ranks - 1) / ranks


def quickest_s(laws: Sequence[Law], ranks: int, message_s: Any) -> Any:
    """Time of the quickest protocol for a message. [s]"""
    return reduce(minimum, (law.time_s(ranks, message_s) for law in laws))


def laws_of(curve: CollectiveCurve) -> tuple[Law, ...]:
    """The protocols of a curve."""
    return tuple(
        Law(name, each.latency_us * units.MICRO, each.hop_us * units.MICRO, each.share)
        for name, each in curve.protocols.items()
    )


def curve_for(
    profiles: Sequence[ProfileSpec],
    of: CollectiveOf,
    over: LinkKind,
    generation: float | None,
    engine: str,
    device: str,
) -> CollectiveCurve | None:
    """The curve of a collective: of the link's generation, else of the nearest that was measured.

    Parameters
    ----------
    profiles : sequence of ProfileSpec
        The profiles, the preferred one first.
    of : str
        The collective.
    over : str
        The kind of link.
    generation : float, optional
        Of the link. [-]
    engine, device : str
        Ids.

    Returns
    -------
    CollectiveCurve or None
        None where no profile says anything of such links.
    """
    for profile in profiles:
        able = [
            curve
            for curve in profile.collectives
            if (curve.of, curve.over) == (of, over)
            and any(fnmatchcase(engine, pattern) for pattern in curve.engines)
            and any(fnmatchcase(device, pattern) for pattern in curve.devices)
        ]
        if able:
            return min(able, key=lambda curve: _apart(curve.generation, generation))
    return None


def _apart(one: float | None, other: float | None) -> float:
    """How many generations lie between two links; the older of two equally near ones is first in a profile."""
    return 0.0 if one is None or other is None else abs(one - other)
