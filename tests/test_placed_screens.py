"""Screens of systems with a host: where things lie, what each place costs, and what `fit` makes of it."""

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import rooflinellm as rl
from rooflinellm.api.fit import fit
from rooflinellm.cli import main
from rooflinellm.errors import RooflineWarning
from rooflinellm.results import MemoryPlan
from rooflinellm.summary import fits_text, placement_flags, placement_text

RIG = "rtx-4090 + ddr5-6000x2@64GiB"
PAIR = "2x rtx-3090 + ddr5-6000x2@96GiB"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> Answer:
        code = main(arguments)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        yield


# --- results


@pytest.mark.parametrize(
    ("model", "hardware", "named"),
    [
        ("llama-3.3-70b", RIG, {}),
        ("gpt-oss-120b", PAIR, {}),
        ("gpt-oss-120b", RIG, {"cpu_moe_layers": 30}),
        ("llama-3.1-8b", "rtx-3090 + rtx-4060-ti-16gb", {}),
        ("qwen3-235b-a22b", f"{RIG} + nvme-gen4@2TB", {}),
        ("llama-3.1-8b", "rtx-4090", {"batch": 4}),
        ("llama-3.1-8b", "7950x + ddr5-6000x2@64GiB", {}),
    ],
)
def test_places_add_up_to_the_phase(model: str, hardware: str, named: dict[str, Any]) -> None:
    answer = rl.estimate(model, hardware, **named)
    for phase in (answer.prefill, answer.decode):
        places = phase.by_place
        assert sum(each.read_bytes for each in places) == pytest.approx(phase.read_bytes, rel=1e-12)
        assert sum(each.time_s for each in places) == pytest.approx(phase.time_s.expected, rel=1e-9)
        assert sum(each.share_of_expected for each in places) == pytest.approx(1, rel=1e-9)
        assert sum(each.share_of_read for each in places) == pytest.approx(1, rel=1e-9)
        assert sum(each.weight_bytes for each in places) == answer.memory.resident_weight_bytes
        assert sum(each.layers for each in places) == len(answer.model.layers) + 1
        # The same operators, the same times.
        on_host = sum(item.time_s for item in phase.operators if item.name.endswith(", host"))
        assert sum(each.time_s for each in places if each.tier == "host") == pytest.approx(on_host, rel=1e-9)


def test_parts_of_a_place_add_up() -> None:
    memory = rl.estimate("qwen3.8-27b", "rtx-3060-12gb + ddr4-3200x2@32GiB", prompt_tokens=4096).memory
    assert len(memory.placement) == 2
    for part in memory.placement:
        assert part.weight_bytes + part.kv_bytes + part.state_bytes + part.workspace_bytes == part.bytes
    assert sum(part.kv_bytes for part in memory.placement) == memory.kv_allocated_bytes
    assert sum(part.state_bytes for part in memory.placement) == memory.state_bytes
    assert sum(part.workspace_bytes for part in memory.placement) == memory.workspace_bytes


def test_arrays_have_places_too() -> None:
    many = rl.estimate("llama-3.3-70b", RIG, overrides={"hardware.memory.bandwidth_gb_s": [800, 1008]}, gpu_layers=40)
    one = rl.estimate("llama-3.3-70b", RIG, gpu_layers=40)
    for array, single in zip(many.decode.by_place, one.decode.by_place, strict=True):
        assert array.time_s[1] == pytest.approx(single.time_s, rel=1e-9)


# --- words


def test_device_and_host_are_not_added_up() -> None:
    memory = rl.estimate("llama-3.3-70b", RIG).memory
    device, host = memory.placement
    text = fits_text(memory)
    assert text == (
        f"fits: {device.bytes / 2**30:.1f} of 23.6 GiB on the device, {host.bytes / 2**30:.1f} of 64.0 GiB on the host"
    )
    assert "on 2 devices" in fits_text(rl.estimate("gpt-oss-120b", PAIR).memory)
    assert "on the drive" in fits_text(rl.estimate("qwen3-235b-a22b", f"{RIG} + nvme-gen4@2TB").memory)
    assert fits_text(rl.estimate("llama-3.1-8b", "rtx-4090").memory).count("GiB") == 1
    unknown: MemoryPlan = rl.estimate("llama-3.3-70b", "rtx-4090 + ddr5-6000x2").memory
    assert unknown.fits is None
    assert fits_text(unknown).startswith("not known whether it fits")


@pytest.mark.parametrize(
    ("placed", "flags", "words"),
    [
        ({"gpu_layers": None, "cpu_moe_layers": None}, "", ""),
        ({"gpu_layers": 45, "cpu_moe_layers": 0}, "-ngl 45", "36 of 81 layers"),
        ({"gpu_layers": 81, "cpu_moe_layers": 23}, "-ngl 81 -ncmoe 23", "the experts of 23 layers"),
        ({"gpu_layers": 70, "cpu_moe_layers": 80}, "-ngl 70 -ncmoe 80", "11 of 81 layers and the experts of 80 layers"),
    ],
)
def test_the_engines_options(placed: dict[str, int | None], flags: str, words: str) -> None:
    assert placement_flags(placed, "llama.cpp:cuda@2025-01") == flags
    assert placement_flags(placed, "ktransformers:cuda") == ""
    assert placement_text(placed, 80) == words


# --- estimate


def test_the_screen_says_where_it_lies_and_what_more_would_bring(run: Any) -> None:
    answer = run("estimate", "llama-3.3-70b", RIG, "-p", "512")
    assert answer.code == 0
    assert max(map(len, answer.out.split("measure it")[0].splitlines())) <= 80
    found = rl.estimate("llama-3.3-70b", RIG, prompt_tokens=512)
    here = found.workload["gpu_layers"]
    assert f"{81 - here} of 81 layers on the host: -ngl {here}" in answer.out
    assert f"-ngl {here} -fa 1 -p 512" in answer.out  # how to measure it
    more = rl.estimate("llama-3.3-70b", RIG, prompt_tokens=512, gpu_layers=here + 1)
    gain = more.decode.tokens_per_s.expected / found.decode.tokens_per_s.expected - 1
    assert more.memory.fits is False
    assert f"one more layer on the device (-ngl {here + 1}): {100 * gain:+.1f} % decode, but it does not fit" in (
        answer.out
    )
    for each in found.decode.by_place:
        assert each.place in answer.out


def test_one_more_layer_that_fits(run: Any) -> None:
    answer = run("estimate", "llama-3.3-70b", RIG, "-p", "512", "--gpu-layers", "20")
    assert "(-ngl 21): +1." in answer.out
    assert "does not fit" not in answer.out
    experts = run("estimate", "gpt-oss-120b", RIG, "-p", "512", "--cpu-moe", "36")
    assert "the experts of one more layer on the device (-ngl 37 -ncmoe 35): +" in experts.out


def test_no_such_table_where_all_is_on_the_device(run: Any) -> None:
    for hardware in ("rtx-4090", RIG):
        assert "by place" not in run("estimate", "llama-3.1-8b", hardware, "-p", "512").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("llama-3.3-70b", RIG, "--kv-on-host"), 0, ""),
        (("llama-3.1-8b", "2x rtx-3090", "--tensor-split", "3,1"), 0, ""),
        (("llama-3.1-8b", "rtx-3090", "--overcommit", "paging"), 0, ""),
        (("llama-3.1-8b", "rtx-3090", "--reserve", "1.5"), 0, ""),
        (("llama-3.1-8b", "2x rtx-3090", "--tensor-split", "3,x"), 2, "parts"),
        (("llama-3.1-8b", "2x rtx-3090", "--tensor-split", "3,1,1"), 2, "2 devices"),
        (("llama-3.1-8b", "rtx-3090", "--reserve", "40"), 2, "leave nothing"),
        (("llama-3.1-8b", "rtx-3090", "--overcommit", "swap"), 2, "paging"),
        (("llama-3.1-8b", "rtx-3090", "--gpu-layers", "99"), 2, "--gpu-layers"),
        (("llama-3.1-8b", RIG, "--cpu-moe", "3"), 2, "no experts"),
        (("llama-3.1-8b", "rtx-3090", "--gpu-layers", "3"), 2, "ddr5-5600x2@64GiB"),
    ],
)
def test_options_and_exit_codes(run: Any, arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = run("estimate", *arguments, "-p", "512")
    assert (answer.code, "Traceback" in answer.err) == (code, False)
    assert said in answer.err


def test_verbose_json_has_places(run: Any) -> None:
    import json

    answer = json.loads(run("estimate", "llama-3.3-70b", RIG, "-p", "512", "-v", "--json").out)
    places = {each["place"]: each for each in answer["decode"]["by_place"]}
    assert places["host"]["share_of_expected"] > 0.5
    assert {part["tier"] for part in answer["memory"]["placement"]} == {"device", "host"}


# --- fit


def test_fit_places_and_says_so(run: Any) -> None:
    result = fit("llama-3.3-70b", RIG)
    assert result.fits is True
    assert result.gpu_layers is not None
    assert result.devices_alone is not None
    assert result.devices_alone.fits is False
    assert result.longest_context_tokens is not None
    assert result.memory.max_context_tokens < result.longest_context_tokens
    # It does hold that context, and the next block not.
    assert fit("llama-3.3-70b", RIG, context_limit=result.longest_context_tokens).fits is True
    wanted = next(each for each in result.formats if each.weights == result.weights)
    assert (wanted.gpu_layers, wanted.decode_tokens_per_s) == (result.gpu_layers, result.decode_tokens_per_s)
    answer = run("fit", "llama-3.3-70b", RIG)
    assert answer.code == 0
    assert f"fits with {81 - result.gpu_layers} of 81 layers on the host (-ngl {result.gpu_layers})" in answer.out
    assert "all on the device needs 42.2 of 23.6 GiB" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_fit_without_a_host_is_as_before(run: Any) -> None:
    answer = run("fit", "llama-3.3-70b", "rtx-4090")
    assert answer.code == 1
    assert "on the host" not in answer.out
    assert fit("llama-3.1-8b", RIG).gpu_layers is None


def test_more_memory_of_the_host_would_hold_it(run: Any) -> None:
    result = fit("qwen3-235b-a22b", RIG)
    assert result.fits is False
    first, *others = result.alternatives
    assert first.hardware == "nvidia-geforce-rtx-4090 + ddr5-6000x2@128GiB"
    for each in (first, others[0]):
        again = fit("qwen3-235b-a22b", each.hardware)
        assert again.fits is True
        assert again.decode_tokens_per_s == pytest.approx(each.decode_tokens_per_s, rel=1e-9)
    answer = run("fit", "qwen3-235b-a22b", RIG)
    assert answer.code == 1
    assert "device and host together hold 87.6 GiB" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_wish_that_does_not_fit(run: Any) -> None:
    result = fit("llama-3.3-70b", RIG, gpu_layers=60)
    assert result.fits is False
    assert result.alternatives[0].hardware == rl.system(RIG).id
    assert run("fit", "llama-3.3-70b", RIG, "--gpu-layers", "60").code == 1
    assert run("fit", "llama-3.3-70b", RIG, "--gpu-layers", "40").code == 0


def test_explain_shows_places() -> None:
    assert "decode, by place" in rl.estimate("llama-3.3-70b", RIG).explain()
    assert "decode, by place" not in rl.estimate("llama-3.1-8b", RIG).explain()


def test_a_host_of_unknown_memory_is_asked_for(run: Any) -> None:
    answer = run("fit", "llama-3.3-70b", "rtx-4090 + ddr5-6000x2")
    assert answer.code == 1
    assert "ddr5-6000x2@64GiB" in answer.out
    answer = run("fit", "llama-3.3-70b", f"{RIG} + nvme-gen4@2TB", "-w", "F16")
    assert answer.code == 0
    assert "of it on a drive" in answer.out
