"""Results of one's own on top of the shipped profile: what they tell, how much better it gets, and the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm.api.calibrate import Calibration, calibrate
from rooflinellm.calibration.own import PULL_SEEN, PULL_UNSEEN, fit_own
from rooflinellm.calibration.profile import covering
from rooflinellm.calibration.samples import Sample, samples
from rooflinellm.cli import main
from rooflinellm.efficiency.rates import rates
from rooflinellm.errors import InvalidRequest, UnknownName
from rooflinellm.measurements.evaluate import Evaluator
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.readers import read
from rooflinellm.measurements.resolver import Resolved, resolve

UNSEEN, SEEN = "NVIDIA GeForce RTX 4070 SUPER", "NVIDIA L4"
UNSEEN_ID, SEEN_ID = "nvidia-geforce-rtx-4070-super", "nvidia-l4"
DEVICES = {UNSEEN: UNSEEN_ID, SEEN: SEEN_ID}
TESTS = [("Q4_K_M", 512, 0, 0), ("Q4_K_M", 2048, 0, 0), ("Q8_0", 512, 0, 0)]
TESTS += [("Q4_K_M", 0, 128, 0), ("Q4_K_M", 0, 128, 4096), ("Q8_0", 0, 128, 0)]


def results(path: Path, device: str, *, prefill: float = 1.0, decode: float = 1.0, tests: Any = TESTS) -> Path:
    """Output of llama-bench on a device that is faster than expected by these factors."""
    written = []
    for weights, prompt, generated, depth in tests:
        est = rl.estimate(
            "llama-3.1-8b",
            DEVICES[device],
            weights=weights,
            prompt_tokens=prompt,
            output_tokens=generated,
            context_tokens=depth,
        )
        phase, factor = (est.prefill, prefill) if prompt else (est.decode, decode)
        written.append(
            {
                "build_commit": "b6500", "build_number": 6500, "backends": "CUDA", "gpu_info": device,
                "model_filename": f"Meta-Llama-3.1-8B-Instruct-{weights}.gguf", "model_n_params": 8030261312,
                "model_type": "llama 8B " + {"Q4_K_M": "Q4_K - Medium"}.get(weights, weights),
                "model_size": est.memory.resident_weight_bytes, "n_batch": 2048, "n_ubatch": 512, "type_k": "f16",
                "type_v": "f16", "n_gpu_layers": 99, "n_prompt": prompt, "n_gen": generated, "n_depth": depth,
                "avg_ts": phase.tokens_per_s.expected * factor, "stddev_ts": 1.0,
            }
        )  # fmt: skip
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


def votes(path: Path) -> list[Sample]:
    names = Names()
    rows = [(row, found) for row in read(path) if isinstance(found := resolve(row, names), Resolved)]
    return samples(rows, Evaluator())


def factors(path: Path) -> dict[str, float]:
    upon = covering(catalog.profiles(), "llama.cpp:cuda")
    return {part: float(np.exp(log)) for (part, _, _), log in fit_own(votes(path), upon).logs.items()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    path = results(tmp_path_factory.mktemp("own") / "my-llama-bench.json", UNSEEN, prefill=1.5, decode=1.1)
    return calibrate(path, profile_id="my-profile")


def test_it_gets_better_on_series_that_it_has_not_seen(found: Calibration) -> None:
    prefill, decode, total = found.scores
    assert [each.name for each in found.scores] == [f"{UNSEEN_ID}, prefill", f"{UNSEEN_ID}, decode", "all"]
    for score, before in ((prefill, 1 - 1 / 1.5), (decode, 1 - 1 / 1.1)):
        assert score.first is not None and score.second is not None
        assert score.first.mdape == pytest.approx(before, rel=0.02)
        assert score.second.mdape < score.first.mdape * 0.7
        assert (score.first.series, score.second.series) == (3, 3)
    assert total.first is not None and total.first.series == 6
    text = "\n".join(table.to_text() for table in found.tables())
    assert "before ─" in text and "after, held out" in text and "What they change" in text
    assert f"{total.first.mdape:.1%} before" in text


def test_it_covers_the_measured_device_only(found: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "my-profile.yaml"
    path.write_text(found.to_yaml(), encoding="utf-8")
    own = rl.Options(profile=path)
    usual = rl.estimate("llama-3.1-8b", UNSEEN_ID, weights="Q4_K_M")
    mine = rl.estimate("llama-3.1-8b", UNSEEN_ID, weights="Q4_K_M", options=own)
    assert (usual.decode.time_s.basis, mine.decode.time_s.basis) == ("calibrated", "measured")
    gained = mine.prefill.tokens_per_s.expected / usual.prefill.tokens_per_s.expected
    assert 1.3 < gained <= 1.5  # drawn to the usual one
    assert mine.prefill.tokens_per_s.ideal == usual.prefill.tokens_per_s.ideal
    # An unseen device has become a measured one.
    assert mine.decode.tokens_per_s.high / mine.decode.tokens_per_s.low < (
        usual.decode.tokens_per_s.high / usual.decode.tokens_per_s.low
    )
    other = [rl.estimate("llama-3.1-8b", "rtx-3090", weights="Q4_K_M", options=each) for each in (own, None)]
    assert other[0].decode.tokens_per_s == other[1].decode.tokens_per_s
    served = [rl.estimate("llama-3.1-8b", "h100-sxm", weights="fp8", options=each) for each in (own, None)]
    assert served[0].engine == "vllm:cuda"
    assert served[0].decode.time_s == served[1].decode.time_s
    assert catalog.profile(path) == found.profile
    scored = rl.validate(results(tmp_path / "again.json", UNSEEN, prefill=1.5, decode=1.1), profile=path)
    assert scored.overall is not None and scored.overall.mdape < 0.1


def test_a_profile_that_is_changed_is_read_again(found: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(found.to_yaml(), encoding="utf-8")
    first = rl.estimate("llama-3.1-8b", UNSEEN_ID, options=rl.Options(profile=str(path)))
    (group,) = found.profile.groups
    slower = group.model_copy(update={"memory": group.memory.model_copy(update={"base": group.memory.base / 2})})
    changed = Calibration(found.profile.model_copy(update={"groups": (slower,)}), (), {})
    path.write_text(changed.to_yaml() + "# longer\n", encoding="utf-8")
    second = rl.estimate("llama-3.1-8b", UNSEEN_ID, options=rl.Options(profile=str(path)))
    assert second.decode.tokens_per_s.expected < 0.9 * first.decode.tokens_per_s.expected


def test_what_results_do_not_touch_stays(tmp_path: Path) -> None:
    told = factors(results(tmp_path / "decode.json", UNSEEN, decode=1.1, tests=TESTS[3:]))
    assert told["compute"] == pytest.approx(1, abs=1e-3)
    assert told["memory"] > 1.03
    told = factors(results(tmp_path / "prefill.json", UNSEEN, prefill=1.3, tests=TESTS[:3]))
    assert 1 <= told["memory"] < 1.1 < 1.2 < told["compute"]


def test_results_that_were_expected_change_nothing(tmp_path: Path) -> None:
    told = factors(results(tmp_path / "as-expected.json", UNSEEN))
    assert list(told.values()) == pytest.approx([1, 1, 1], abs=1e-4)


def test_a_device_that_was_measured_before_moves_less(tmp_path: Path) -> None:
    assert PULL_SEEN > PULL_UNSEEN
    few = TESTS[:1]
    seen = factors(results(tmp_path / "seen.json", SEEN, prefill=1.2, tests=few))
    unseen = factors(results(tmp_path / "unseen.json", UNSEEN, prefill=1.2, tests=few))
    assert 1 < seen["compute"] < unseen["compute"] < 1.35


def test_a_single_series_tells_something_but_not_how_well(tmp_path: Path) -> None:
    found = calibrate(results(tmp_path / "one.json", UNSEEN, decode=1.1, tests=TESTS[3:4]))
    (score,) = found.scores
    assert score.first is not None and score.second is None
    assert "not known" in found.tables()[0].to_text()
    assert found.factors[f"{UNSEEN_ID}, llama.cpp:cuda"]["memory"] > 1
    # Its prefill was not measured, so that the interval of an unseen device stays.
    own, usual = (
        rates(profiles, rl.hardware(UNSEEN_ID), "llama.cpp", "cuda")
        for profiles in (catalog.profiles(found.profile), catalog.profiles())
    )
    assert own.prefill_interval() == usual.prefill_interval()


def test_nothing_to_fit(tmp_path: Path) -> None:
    path = results(tmp_path / "strange.json", UNSEEN, tests=TESTS[:1])
    path.write_text(path.read_text(encoding="utf-8").replace(UNSEEN, "Abacus 3000"), encoding="utf-8")
    with pytest.raises(InvalidRequest, match="none of the results"):
        calibrate(path)
    with pytest.raises(InvalidRequest):
        calibrate([])
    with pytest.raises(UnknownName):
        rl.estimate("llama-3.1-8b", UNSEEN_ID, options=rl.Options(profile="nobody's"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    bench = results(tmp_path / "my-llama-bench.json", UNSEEN, prefill=1.5, decode=1.1)
    profile = tmp_path / "My profile.yaml"
    assert main(["calibrate", str(bench), "-o", str(profile), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in answer["scores"]][-1] == "all"
    assert answer["scores"][-1]["after_held_out"]["mdape"] < answer["scores"][-1]["before"]["mdape"]
    assert "id: my-profile\n" in profile.read_text(encoding="utf-8")
    arguments = ["estimate", "llama-3.1-8b", UNSEEN_ID, "--weights", "Q4_K_M", "--profile", str(profile)]
    assert main(arguments) == 0
    assert "basis: measured" in capsys.readouterr().out
    assert main([*arguments[:-1], "nobody's"]) == 2
    capsys.readouterr()


def test_a_profile_in_the_folder_of_own_entries_goes_by_its_name(
    found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hardware_db" / "engines" / "profiles"
    folder.mkdir(parents=True)
    (folder / "my-profile.yaml").write_text(found.to_yaml(), encoding="utf-8")
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    mine = rl.estimate("llama-3.1-8b", UNSEEN_ID, options=rl.Options(profile="my-profile"))
    assert mine.decode.time_s.basis == "measured"


@pytest.mark.slow
def test_the_shipped_profile_is_the_fit_to_the_shipped_results() -> None:
    found = calibrate()
    shipped = catalog.profile("calibrated")
    assert not found.own and found.profile.sources == shipped.sources
    told, kept = found.profile.model_dump(), shipped.model_dump()
    # Byte for byte on one machine; another one's linear algebra may round otherwise.
    for first, second in zip(told["groups"], kept["groups"], strict=True):
        assert first["evidence"] == second["evidence"]
        for name in ("memory", "compute", "floor_us"):
            assert first[name]["base"] == pytest.approx(second[name]["base"], rel=0.02)
            assert first[name]["by"].keys() == second[name]["by"].keys()
        for name in ("decode", "prefill", "decode_unseen", "prefill_unseen"):
            assert first["interval"][name] == pytest.approx(second["interval"][name], rel=0.05)
    by_name = {score.name: score for score in found.scores}
    desktop = by_name["CPU prefill"].first  # three devices, that weigh the same whatever their number of results
    assert desktop is not None and desktop.coverage is not None and 0.6 <= desktop.coverage <= 0.9
    for score in found.scores:
        for accuracy in (score.first, score.second):  # a result of Gemma 4 on an M5, and none else
            assert accuracy is not None and (accuracy.above_ideal or 0) <= 0.002
