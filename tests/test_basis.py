"""Where an expectation comes from: of this device, of its family, or of neither, on every screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.summary import basis_text, estimate_table

MODEL, CARD, AD_HOC = "llama-3.1-8b", "rtx-4090", "24GiB,1008GB/s,165TFLOP/s@fp16"
FAMILY = "calibrated on its family"
SERVED: dict[str, Any] = {"requests": 3, "prompt_tokens": 100, "output_tokens": 10, "rate": 1}
SCREENS: dict[str, Callable[[str], str]] = {
    "estimate": lambda device: estimate_table([rl.estimate(MODEL, device)]).to_text(),
    "compare": lambda device: rl.compare(MODEL, [device]).table().to_text(),
    "recommend": lambda device: str(rl.recommend(MODEL, min_tokens_per_s=10, hardware=[device])),
    "sensitivity": lambda device: rl.sensitivity(MODEL, device, with_swaps=False)._repr_html_(),
    "load": lambda device: rl.simulate_load(MODEL, device, **SERVED)._repr_html_(),
    "sweep": lambda device: rl.sweep(MODEL, device, batch=[1, 2])._repr_html_(),
    "prefix": lambda device: rl.prefix_cache(MODEL, device, [(100, 10)])._repr_html_(),
    "chunked": lambda device: rl.chunked_prefill(MODEL, device, prompt_tokens=600, contexts=[10]).table().to_text(),
    "repr": lambda device: repr(rl.estimate(MODEL, device)),
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_says_whether_the_device_itself_was_measured(name: str) -> None:
    assert FAMILY in SCREENS[name](AD_HOC)
    own = SCREENS[name](CARD)
    assert FAMILY not in own
    assert "calibrated" in own


def test_the_result_counts_the_series_of_the_device() -> None:
    assert rl.estimate(MODEL, CARD).evidence >= 10
    assert rl.estimate(MODEL, AD_HOC).evidence == 0
    assert rl.estimate(MODEL, AD_HOC).to_dict()["evidence_series"] == 0
    assert rl.estimate(MODEL, AD_HOC).decode.time_s.basis == "calibrated"


def test_systems_that_differ_are_named() -> None:
    note = next(each for each in rl.compare(MODEL, [CARD, AD_HOC]).table().notes if each.startswith("basis: "))
    assert note.startswith("basis: RTX 4090: calibrated (efficiencies")
    assert FAMILY in note


def test_only_what_is_calibrated_has_a_family() -> None:
    assert basis_text("nominal", 0).startswith("nominal (")
    assert basis_text("measured", 0).startswith("measured (")


def test_no_assumption_claims_a_share_of_the_bandwidth() -> None:
    # Factors of the fit come with a least time for each operator: alone they read as if all bandwidth were reached.
    assert not any("sustained" in text for text in rl.estimate(MODEL, CARD).assumptions)
