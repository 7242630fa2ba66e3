"""Profiles: how factors multiply, how a fit finds them, and what comes with the package."""

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm._resources import database
from rooflinellm.calibration.design import PARTS, START, Design, Parameter, encoding_class, longer
from rooflinellm.calibration.fit import PULL, fit_group, predict
from rooflinellm.calibration.folds import leave_out, splits
from rooflinellm.calibration.intervals import COVERAGE, half_width, interval, kinds_of
from rooflinellm.calibration.profile import by_group, covering
from rooflinellm.calibration.samples import Entry, Sample, group_of, is_of_kernels
from rooflinellm.calibration.samples import samples as samples_of
from rooflinellm.efficiency.rates import FEW, MANY, rates, value, width
from rooflinellm.measurements.evaluate import Evaluator
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.readers import read
from rooflinellm.measurements.resolver import Resolved, resolve
from rooflinellm.measurements.row import Row
from rooflinellm.roofline import sum_of_max
from rooflinellm.specs.profile import Factors, Interval, Widths


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
    entry = Entry(names, launches, memory_s)
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
    errors = np.abs(np.log(predict(fit.logs, samples)) - np.log([each.measured_s for each in samples]))
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
    errors = np.abs(np.log(predict(fit_group(kept).logs, held)) - np.log([each.measured_s for each in held]))
    # Some of a family is drawn into its devices; from the base alone the error would be a fifth.
    assert np.median(errors) < 0.06


def test_one_absurd_result_does_not_move_a_fit() -> None:
    samples = made_up()
    plain = predict(fit_group(samples).logs, samples)
    absurd = [*samples, sample(999, "fast-0", "fast", 5e-3, 100, 0.009)]
    assert np.max(np.abs(np.log(predict(fit_group(absurd).logs, samples) / plain))) < 0.05


def test_a_prediction_never_beats_the_bound() -> None:
    samples = made_up(16)
    fit = fit_group(samples)
    fit.logs = {key: 5.0 if key[0] == "memory" else -20.0 for key in fit.logs}
    assert np.all(predict(fit.logs, samples) >= [each.ideal_s for each in samples])


@pytest.mark.parametrize("key", ["series", "device"])
def test_folds_hold_whole_values_out_and_every_sample_once(key: Any) -> None:
    samples = made_up(40)
    held_once: list[int] = []
    for kept, held in splits(samples, key, 4):
        assert not {getattr(samples[i], key) for i in kept} & {getattr(samples[i], key) for i in held}
        held_once += held
    assert sorted(held_once) == list(range(len(samples)))


def test_an_interval_holds_the_share_it_aims_at() -> None:
    errors = np.linspace(-1, 1, 2001)
    width = half_width(errors, np.ones(2001))
    assert width is not None and math.log(width) == pytest.approx(COVERAGE, abs=2e-3)
    assert half_width(np.array([np.nan]), np.ones(1)) is None


def test_small_groups_stay_with_the_nominal_profile() -> None:
    assert by_group(made_up(10)) == {}
    assert list(by_group(made_up(40))) == ["e:b"]


def shipped_rows() -> list[tuple[Row, Resolved]]:
    """The results that come with the package."""
    names = Names()
    file = database("hardware_db") / "measurements" / "single-user.csv.gz"
    return [(row, found) for row in read(file) if isinstance(found := resolve(row, names), Resolved)]


def test_the_fit_expects_what_the_engine_does() -> None:
    rows = [each for each in shipped_rows() if is_of_kernels(each[1])]
    deep = [each for each in rows if each[1].keywords.get("context_tokens")]
    batched = [each for each in rows if each[1].keywords.get("batch", 1) > 1]
    sampler = random.Random(7)
    chosen = [each for kind, count in ((rows, 200), (deep, 40), (batched, 20)) for each in sampler.sample(kind, count)]
    evaluator = Evaluator()
    for row, resolved in chosen:
        (vote,) = samples_of([(row, resolved)], evaluator)
        upon = covering(evaluator.profiles, group_of(resolved))
        assert resolved.quantity.measured
        engine = vote.measured_s * resolved.quantity.measured / evaluator.predict(resolved).expected
        assert predict({}, [vote], upon)[0] == pytest.approx(engine, rel=1e-9), row.id


def test_the_longer_of_two_growing_times_pass_by_pass() -> None:
    chance = np.random.default_rng(5)
    count = chance.integers(1, 40, 300).astype(float)
    a, b = chance.uniform(0, 5, 300), chance.uniform(0, 5, 300)
    a_step, b_step = chance.uniform(0, 0.5, 300), chance.uniform(0, 0.5, 300)
    b_step[::7] = a_step[::7]
    of_a, of_b = longer(count, a, a_step, b, b_step)
    for place in range(300):
        steps = np.arange(count[place])
        first, second = a[place] + steps * a_step[place], b[place] + steps * b_step[place]
        assert of_a[place] == pytest.approx(np.sum(first[first >= second]), abs=1e-9)
        assert of_b[place] == pytest.approx(np.sum(second[first < second]), abs=1e-9)
    assert of_a + of_b == pytest.approx(sum_of_max(count, a, a_step, b, b_step), rel=1e-12)


def test_slopes_are_those_of_the_times() -> None:
    rows = random.Random(3).sample(shipped_rows(), 60)
    votes = samples_of(rows, Evaluator())
    index: dict[Parameter, int] = {}
    design = Design(votes, index, grow=True)
    x = np.array([math.log(START[part]) if level == "base" else 0.0 for part, level, _ in index])
    times, slopes = design.evaluate(x)
    found = design.jacobian(slopes).toarray()
    step = 1e-6
    for part in PARTS:
        place = index[part, "base", ""]
        moved = x.copy()
        moved[place] += step
        change = (design.evaluate(moved)[0] - times) / step
        assert found[:, place] / times == pytest.approx(change / times, abs=1e-4)


def kinds(error: float, spread: float, name: str, devices: int, each: int) -> tuple[list[Sample], list[float]]:
    """Samples of one kind of memory, and errors of them."""
    made, errors = [], []
    for number in range(devices * each):
        one = sample(number, f"{name}-{number % devices}", "family", 1e-3, 100, 0.9)
        for entry in one.entries:
            entry.names["memory_type"] = name
        made.append(one)
        errors.append(error + spread * (number / (devices * each) - 0.5))
    return made, errors


def test_a_kind_that_is_less_certain_has_an_interval_of_its_own() -> None:
    many, small = kinds(0.0, 0.4, "measured", 20, 10)
    few, large = kinds(0.8, 0.4, "DDR5", 1, 25)
    errors = np.array(small + large)
    found = interval([*many, *few], errors, errors, "fit", Widths(decode=1.5, prefill=2.5))
    assert found.prefill == found.prefill_unseen == 2.5  # there is no prefill among them
    own = found.by["memory_type"]["DDR*"]
    assert own.decode is not None and own.decode > math.exp(0.8) > found.decode
    # The other is suited by the interval of all, so that it keeps that one.
    assert "measured" not in found.by["memory_type"]
    assert ("memory_type", "DDR*") in kinds_of(few[0])


@pytest.mark.parametrize(("devices", "narrower"), [(4, False), (5, True)])
def test_a_narrower_interval_takes_more_devices_than_a_wider_one(devices: int, narrower: bool) -> None:
    rough, large = kinds(0.0, 2.0, "HBM3", 10, 5)
    fine, small = kinds(0.0, 0.1, "GDDR6", devices, 10)
    errors = np.array(large + small)
    found = interval([*rough, *fine], errors, errors, "fit", Widths(decode=1.5, prefill=2.5))
    assert ("GDDR*" in found.by.get("memory_type", {})) is narrower


@pytest.mark.parametrize(("devices", "each", "width"), [(1, 20, 1.5), (2, 4, 1.5), (2, 5, math.exp(0.1))])
def test_few_results_or_one_device_promise_no_more_than_the_nominal_profile(
    devices: int, each: int, width: float
) -> None:
    made, errors = kinds(0.1, 0.0, "HBM3", devices, each)
    found = interval(made, np.array(errors), np.array(errors), "fit", Widths(decode=1.5, prefill=2.5))
    assert found.decode == pytest.approx(width, abs=1e-3)


def test_an_interval_is_that_of_the_kind_of_device() -> None:
    widths = Interval(decode=1.1, prefill=1.2, source="x", by={"memory_type": {"GDDR*": Widths(decode=1.3)}})
    fitted = catalog.profile("calibrated")
    group = next(each for each in fitted.groups if each.backends == ("cuda",) and each.engines == ("llama.cpp",))
    profile = fitted.model_copy(update={"groups": (group.model_copy(update={"interval": widths}),)})
    card, chip = (rates([profile], rl.hardware(name), "llama.cpp", "cuda") for name in ("l4", "h100-sxm"))
    assert (card.decode_interval(1), card.prefill_interval()) == (1.3, 1.2)
    assert (chip.decode_interval(1), chip.prefill_interval()) == (1.1, 1.2)


def test_mixtures_have_an_interval_of_their_own_where_they_are_less_certain() -> None:
    dense, small = kinds(0.1, 0.1, "GDDR6", 10, 10)
    mixed, large = kinds(0.6, 0.2, "GDDR6", 4, 10)
    experts = [replace(each, entries=(*each.entries, Entry({"kind": "experts"}))) for each in mixed]
    errors = np.array(small + large)
    found = interval([*dense, *experts], errors, errors, "fit", Widths(decode=1.5, prefill=2.5))
    own = found.by["kind"]["experts"].decode
    assert own is not None and math.exp(0.6) < own < math.exp(0.9)
    assert width(found, "decode", {}, {"linear", "experts"}) == own
    assert width(found, "decode", {}, {"linear"}) == found.decode < own


def test_the_wider_holds_where_a_device_and_a_model_have_intervals_of_their_own() -> None:
    by = {"memory_type": {"GDDR*": Widths(decode=1.3)}, "kind": {"experts": Widths(decode=1.2)}}
    found = Interval.model_validate({"decode": 1.1, "prefill": 1.1, "source": "x", "by": by})
    assert width(found, "decode", {"memory_type": "GDDR6"}, ["experts"]) == 1.3
    assert width(found, "decode", {"memory_type": "HBM3"}, ["experts"]) == 1.2
    assert width(found, "decode", {"memory_type": "HBM3"}, ["linear"]) == 1.1


def test_desktop_processors_have_an_interval_of_their_own() -> None:
    """On held-out series, that of all processors, nearly all of them rented, held a third of what it should."""
    found = covering(catalog.profiles(), "llama.cpp:cpu").interval
    own = found.by["memory_type"]["DDR*"].prefill
    assert own is not None and own > found.prefill


def test_what_is_left_out_does_not_move_its_own_prediction() -> None:
    made = made_up(64)
    moved = [replace(each, measured_s=each.measured_s * 1.5) if each.device == "slow-1" else each for each in made]
    plain, changed = leave_out(made, "device"), leave_out(moved, "device")
    held = [each.device == "slow-1" for each in made]
    assert plain.times[held] == pytest.approx(changed.times[held], rel=1e-12)
    assert not np.allclose(plain.times, changed.times)
    fold = plain.fold_of("slow-1")
    assert fold is not None and "slow-1" not in plain.folds[fold].fit.evidence
    assert all(made[place].device != "slow-1" for place in plain.kept(fold))
    assert plain.fold_of("nobody") is None


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
    unseen = rates(catalog.profiles(), rl.hardware("rtx-4070-super"), "llama.cpp", "cuda")
    assert seen.evidence > 0 == unseen.evidence
    assert seen.decode_interval(1) < unseen.decode_interval(1)
    assert seen.decode_interval(1) <= seen.decode_interval(8)
    assert rl.estimate("llama-3.1-8b", "rtx-4070-super").decode.time_s.basis == "calibrated"


def test_what_no_fit_covers_is_nominal() -> None:
    found = rates(catalog.profiles(), rl.hardware("mi300x"), "vllm", "rocm")
    assert found.basis == "nominal"
    assert rl.estimate("llama-3.1-8b", "mi300x", weights="fp8").decode.time_s.basis == "nominal"


def test_a_prompt_has_floors_of_its_own() -> None:
    found = rates(catalog.profiles(), rl.hardware("rtx-4090"), "llama.cpp", "cuda")
    assert found.floor_s("linear", MANY) != found.floor_s("linear", FEW)


def test_shipped_results_validate_below_their_bound() -> None:
    result = rl.validate()
    assert result.overall is not None
    assert result.overall.rows > 4000
    # Layers that share the caches of others need not see a prompt; MLX leaves them out, the ideal counts them.
    assert [(each.example, each.rows) for each in result.above_ideal] == [("ax_engine-00029", 1)]
    assert all((each.above_ideal or 0) <= 0.01 for each in result.by("population"))
