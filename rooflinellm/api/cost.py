"""What speed costs, where the user gives a price: the library knows none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflinellm._numeric import divide
from rooflinellm.api import lookup
from rooflinellm.api.arguments import positive
from rooflinellm.errors import InvalidRequest
from rooflinellm.results import Prediction
from rooflinellm.specs.hardware import SystemSpec
from rooflinellm.units import MEGA

SECONDS_PER_HOUR = 3_600


def cost_per_million_tokens(price_per_hour: float, tokens_per_s: Prediction) -> Prediction:
    """Price of a million tokens on rented hardware: 1e6 p / (3600 r).

    Parameters
    ----------
    price_per_hour : float
        Rent p of all of the hardware. [currency/h]
    tokens_per_s : Prediction
        Rate r of all requests together. [tokens/s]

    Returns
    -------
    Prediction
        The higher rate gives the lower cost. [currency/1e6 tokens]
    """

    def cost(rate: Any) -> Any:
        return divide(MEGA * price_per_hour, SECONDS_PER_HOUR * rate)

    return Prediction(
        cost(tokens_per_s.ideal),
        cost(tokens_per_s.expected),
        cost(tokens_per_s.high),
        cost(tokens_per_s.low),
        "currency/1e6 tokens",
        tokens_per_s.basis,
    )


class Prices:
    """Prices of systems and of single devices, by name."""

    def __init__(self, prices: Mapping[str, float] | None, where: str) -> None:
        if prices is not None and not isinstance(prices, Mapping):
            raise InvalidRequest("give a mapping of hardware to prices", where=where)
        self._of: dict[str, float] = {}
        for name, price in ({} if prices is None else prices).items():
            self._of[lookup.system(name).id] = positive(f"{where}, {name}", price)

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, system: SystemSpec) -> float | None:
        """Price of a system: its own, or that of its devices, host not included; None where it is not known."""
        if system.id in self._of:
            return self._of[system.id]
        total = 0.0
        for group in system.groups:
            own = lookup.system(group.device).id
            price = self._of.get(own)
            if price is None and group.device.kind == "cpu":
                price = self._of.get(group.device.id)  # the memory, whatever there is, is not included
            if price is None:
                return None
            total += group.count * price
        return total
