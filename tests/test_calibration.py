"""Profiles: how factors multiply, how a fit finds them, and what comes with the package."""

import math
import random
from typing import Any

import numpy as np
import pytest

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm.calibration.fit import PULL, START, encoding_class, fit_group, predict
from rooflinellm.calibration.profile import COVERAGE, by_group, folds, half_width
from rooflinellm.calibration.samples import Entry, Sample
from rooflinellm.efficiency.rates import FEW, MANY, rates, value
from rooflinellm.specs.profile import Factors


def test_factors_multiply_and_what_is_not_named_counts_as_one() -> None:
    factors = Factors(base=0.8, by={"architecture": {"ada": 1.1, "turing": 0.5}, "encoding": {"iq*": 0.9}})
    assert value(factors, {"architecture": "ada", "encoding": "iq4_xs"}) == pytest.approx(0.8 * 1.1 * 0.9)
    assert value(factors, {"architecture": "hopper", "encoding": "q4_k"}) == 0.8
    assert value(factors, {}) == 0.8


def test_a_share_is_never_more_than_all_of_it() -> None:
    device = rl.hardware("rtx-4090")
    found = rates(catalog.profiles("nominal"), device, "llama.cpp", "cuda")
    best = found.group.model_copy(update={"memory": Factors(base=3.0), "compute": Factors(base=2.0)})
    profile = catalog.profile("nominal").model_copy(update={"groups": (best,)})
    found = rates([profile], device, "llama.cpp", "cuda")
    assert found.memory("linear", "q4_k") == 1
    assert found.compute("linear", "q4_k", "int8.int32") == 1


def sample(number: int, device: str, architecture: str, memory_s: float, launches: float, efficiency: float) -> Sample:
    names: dict[Any, str] = {"kind": "linear", "regime": FEW, "architecture": architecture, "device": device}
    entry = Entry(names, launches, memory_s, 0.0, 0.0, math.inf)
    time = memory_s / efficiency + launches * 12e-6
    return Sample(f"{number}", "e:b", "decode", device, f"series {number}", "decode", 1, time, memory_s, (entry,))


def made_up(count: int = 120) -> list[Sample]:
    """Decode of made-up devices: two families of which one sustains 0.9 and the other 0.6; floors of 12 µs."""
    chance = random.Random(1)
    found = []
    for number in range(count):
        fast = number % 2 == 0
        device = f"{'fast' if fast else 'slow'}-{number % 8}"
        memory_s, launches = chance.uniform(1e-3, 20e-3), chance.uniform(50, 400)
        found.append(sample(number, device, "fast" if fast else "slow", memory_s, launches, 0.9 if fast else 0.6))
    return found


def test_a_fit_finds_what_made_the_times() -> None:
    samples = made_up()
    fit = fit_group(samples)
    errors = np.abs(np.log(predict(fit, samples)) - np.log([each.measured_s for each in samples]))
    assert np.median(errors) < 0.005
    shares = fit.factors("memory")
    by = shares.by.get("architecture", {})
    fast = shares.base * by.get("fast", 1)
    slow = shares.base * by.get("slow", 1)
    assert slow / fast == pytest.approx(0.6 / 0.9, rel=0.1)
    assert fit.evidence == {name: 15 for name in sorted({each.device for each in samples})}


def test_an_unseen_device_inherits_its_family() -> None:
    samples = made_up()
    kept = [each for each in samples if each.device != "slow-1"]
    held = [each for each in samples if each.device == "slow-1"]
    errors = np.abs(np.log(predict(fit_group(kept), held)) - np.log([each.measured_s for each in held]))
    # Some of a family is drawn into its devices; from the base alone the error would be a fifth.
    assert np.median(errors) < 0.06


def test_one_absurd_result_does_not_move_a_fit() -> None:
    samples = made_up()
    plain = predict(fit_group(samples), samples)
    absurd = [*samples, sample(999, "fast-0", "fast", 5e-3, 100, 0.009)]
    assert np.max(np.abs(np.log(predict(fit_group(absurd), samples) / plain))) < 0.05


def test_a_prediction_never_beats_the_bound() -> None:
    samples = made_up(16)
    fit = fit_group(samples)
    fit.logs = {key: 5.0 if key[0] == "memory" else -20.0 for key in fit.logs}
    assert np.all(predict(fit, samples) >= [each.ideal_s for each in samples])


@pytest.mark.parametrize("key", ["series", "device"])
def test_folds_hold_whole_values_out_and_every_sample_once(key: str) -> None:
    samples = made_up(40)
    held_once: list[int] = []
    for kept, held in folds(samples, key, 4):
        assert not {getattr(samples[i], key) for i in kept} & {getattr(samples[i], key) for i in held}
        held_once += held
    assert sorted(held_once) == list(range(len(samples)))


def test_an_interval_holds_the_share_it_aims_at() -> None:
    errors = np.linspace(-1, 1, 2001)
    assert math.log(half_width(errors, np.ones(2001))) == pytest.approx(COVERAGE, abs=2e-3)
    assert half_width(np.array([np.nan]), np.ones(1)) == 1


def test_small_groups_stay_with_the_nominal_profile() -> None:
    assert by_group(made_up(10)) == {}
    assert list(by_group(made_up(40))) == ["e:b"]


def test_encodings_are_pooled_by_class() -> None:
    assert {encoding_class(name) for name in ("q4_k", "q6_k")} == {"*_k"}
    assert encoding_class("iq4_xs") == "iq*"
    assert encoding_class("q8_0") == "q8_0"


def test_every_level_has_a_pull_and_every_part_a_start() -> None:
    fitted = catalog.profile("calibrated")
    for group in fitted.groups:
        for part in START:
            assert set(getattr(group, part).by) <= set(PULL)


def test_the_shipped_profile_is_sound() -> None:
    fitted = catalog.profile("calibrated")
    names = [(group.engines, group.backends) for group in fitted.groups]
    assert len(set(names)) == len(names)
    for group in fitted.groups:
        assert sum(group.evidence.values()) >= 10  # at least 20 were fitted; those of old builds are no evidence
        assert 1 <= group.interval.decode <= 4
        assert set(group.evidence) and all(count >= 1 for count in group.evidence.values())


def test_a_measured_device_has_a_narrower_interval_than_an_unseen_one() -> None:
    seen = rates(catalog.profiles(), rl.hardware("l4"), "llama.cpp", "cuda")
    unseen = rates(catalog.profiles(), rl.hardware("rtx-4080-super"), "llama.cpp", "cuda")
    assert seen.evidence > 0 == unseen.evidence
    assert seen.decode_interval(1) < unseen.decode_interval(1)
    assert seen.decode_interval(1) <= seen.decode_interval(8)
    assert rl.estimate("llama-3.1-8b", "rtx-4080-super").decode.time_s.basis == "calibrated"


def test_what_no_fit_covers_is_nominal() -> None:
    found = rates(catalog.profiles(), rl.hardware("h100-sxm"), "vllm", "cuda")
    assert found.basis == "nominal"
    assert rl.estimate("llama-3.1-8b", "h100-sxm", weights="fp8").decode.time_s.basis == "nominal"


def test_a_prompt_has_floors_of_its_own() -> None:
    found = rates(catalog.profiles(), rl.hardware("rtx-4090"), "llama.cpp", "cuda")
    assert found.floor_s("linear", MANY) != found.floor_s("linear", FEW)


def test_shipped_results_validate_below_their_bound() -> None:
    result = rl.validate()
    assert result.overall is not None
    assert result.overall.rows > 4000
    for each in result.by("population"):
        assert each.above_ideal in (None, 0)
