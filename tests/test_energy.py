"""Energy of a token: rated power, the share that decode draws, and the time of a token."""

from __future__ import annotations

import pytest

import rooflinellm as rl

SHARE = 0.7
"""Of the rated power in decode: the profile's."""


def energy_over_power(system: str, watts: float) -> tuple[float, float, float]:
    found = rl.estimate("llama-3.1-8b", system)
    assert found.energy_j_per_token is not None
    each = (found.energy_j_per_token, found.tpot_s)
    low, expected, high = (
        getattr(each[0], kind) / (getattr(each[1], kind) * watts * SHARE) for kind in ("low", "expected", "high")
    )
    return low, expected, high


@pytest.mark.parametrize(("system", "watts"), [("rtx-4090", 450), ("2x rtx-3090", 700), ("rtx-4090 + rtx-3090", 800)])
def test_all_devices_are_charged_at_their_own_rated_power(system: str, watts: float) -> None:
    assert energy_over_power(system, watts) == pytest.approx((1, 1, 1))


def test_the_interval_spans_what_may_be_set() -> None:
    # AMD's product page: 55 W, configurable from 45 to 120 W; boards of desktops are set to the upper end.
    assert energy_over_power("strix-halo", 55) == pytest.approx((45 / 55, 1, 120 / 55))
    said = next(text for text in rl.estimate("llama-3.1-8b", "strix-halo").assumptions if text.startswith("energy: "))
    assert said.startswith("energy: 70% of the rated power in decode, 55 W (45 to 120 W may be set")


def test_a_layer_split_says_that_waiting_devices_are_charged() -> None:
    def said(system: str, **keywords: int) -> str:
        found = rl.estimate("llama-3.1-8b", system, **keywords)
        return str(next(text for text in found.assumptions if text.startswith("energy: ")))

    assert "wait for their layers" in said("2x rtx-3090")
    assert "wait for their layers" not in said("rtx-3090")
    assert "wait for their layers" not in said("2x rtx-3090", tensor_parallel=2)


def test_without_a_rated_power_there_is_none() -> None:
    found = rl.estimate("llama-3.1-8b", "24GiB,1008GB/s,165TFLOP/s@fp16")
    assert found.energy_j_per_token is None
    assert "energy: not known, for want of a rated power" in found.assumptions
