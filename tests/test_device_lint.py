"""The rules for device files: what each finds, and that none finds anything in the database."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rooflinellm.api.lint import hardware_rules, lint_hardware, lint_models
from rooflinellm.api.lint_devices import DEVICE_RULES
from rooflinellm.api.lint_rates import RATES
from rooflinellm.api.lint_stats import KINDS, evidence_counts
from rooflinellm.cli import main
from rooflinellm.specs.hardware import HardwareSpec

ROOT = Path(__file__).resolve().parents[1]
DEVICES = ROOT / "hardware_db" / "devices"
CARD = (DEVICES / "nvidia/nvidia-geforce-rtx-4090.yaml").read_text(encoding="utf-8")
UNCHECKED = {  # no table of operations a clock: cores of two kinds, or units that the makers do not describe
    *("alder-lake", "raptor-lake", "arrow-lake", "gaudi2", "gaudi3", "cdna5", "rubin"),
    *("neuroncore-v2", "neuroncore-v3", "neuroncore-v4", "wse-3", "tsp", "da-vinci", "cloud-ai-100", "sn40l"),
    *("tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x", "snapdragon-8", "snapdragon-x"),
    *("blackhole", "wormhole"),
}

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Put a text where the RTX 4090 would lie."""

    def file(text: str) -> Path:
        path = tmp_path / "nvidia" / "nvidia-geforce-rtx-4090.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return file


def changed(old: str, new: str) -> str:
    assert CARD.count(old) == 1, old
    return CARD.replace(old, new)


FP16 = "{precision: fp16, accumulate: fp32, unit: matrix, tflops: 165.2, kind: whitepaper, source: ada-whitepaper}"
FP8 = "precision: fp8, accumulate: fp32, unit: matrix, tflops: 330.3"
PCIE = "gb_s_per_direction: {value: 31.5, kind: derived, source: pcie}"
BANDWIDTH = "{value: 1008, kind: whitepaper, source: ada-whitepaper}"

BROKEN = {
    "valid": (changed("bus_bits: 384", "bus_width: 384"), "", "Extra inputs"),
    "file-name": (changed("id: nvidia-geforce-rtx-4090", "id: my-card"), "id", "rename the file my-card.yaml"),
    "names": (changed("[rtx-4090,", "[nvidia-geforce-rtx-3090,"), "aliases", "drop it"),
    "aliases": (changed("[rtx-4090,", "[rtx-4090, RTX_4090,"), "aliases", "says nothing new"),
    "aliases-shared": (changed("[rtx-4090,", "[m3-max,"), "aliases", "apple-m3-max-30c, apple-m3-max-40c"),
    "sources-found": (changed("    publisher: NVIDIA\n", ""), "sources.ada-whitepaper", "add its publisher or url"),
    "sources-used": (
        changed("sources:\n", "sources:\n  idle: {title: Idle, publisher: Nobody}\n"),
        "sources.idle",
        "cite it or drop it",
    ),
    "folder": (changed("vendor: nvidia", "vendor: someone else"), "", "expected 'someone-else'"),
    "bandwidth": (changed("value: 1008", "value: 1033"), "memory.bandwidth_gb_s", "384 bit x 21 GT/s is 1008.0"),
    "usable-memory": (changed("value: 23.64", "value: 6"), "memory.usable_gib", "25% of the printed memory"),
    "peaks": (changed(FP16, FP16.replace("165.2", "330.3")), "peaks.0.tflops",
              "128 units x 2520 MHz x 512 (ada geforce) is 165.2 TFLOP/s"),
    "peak-order": (changed(FP8, FP8.replace("330.3", "82")), "peaks.4.tflops",
                   "fp8 (82) is slower than fp16 (165.2 TFLOP/s)"),
    "links": (changed("{value: 31.5, kind: derived", "{value: 63, kind: derived"), "links.0.gb_s_per_direction",
              "PCIe 4 x16 carries 31.5 one way"),
    "dates": (changed("2022-10-12", "2022-13-12"), "release_date", "is no date"),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_finds_what_breaks_it(write: Write, rule: str) -> None:
    text, field, message = BROKEN[rule]
    problems = [each for each in lint_hardware([write(text)]).problems if each.rule == rule]
    assert len(problems) == 1
    assert problems[0].field == field
    assert message in problems[0].message


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    names = [rule.name for rule in hardware_rules()]
    assert len(set(names)) == len(names)
    assert set(names) == set(BROKEN)


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("bandwidth", BANDWIDTH, BANDWIDTH.replace("1008", "1033").replace("}", ", note: rounded}")),
        ("peaks", FP16, FP16.replace("165.2", "200").replace("}", ", note: overclocked}")),
        ("links", PCIE, PCIE.replace("31.5", "25").replace("}", ", note: measured}")),
    ],
)
def test_a_note_explains_what_a_rule_would_find(write: Write, rule: str, old: str, new: str) -> None:
    assert rule not in {each.rule for each in lint_hardware([write(changed(old, new))]).problems}
    text = changed(old, re.sub(", note: [a-z]+", "", new))
    assert rule in {each.rule for each in lint_hardware([write(text)]).problems}


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (", generation: 4, lanes: 16,", ",", "links.0"),
        (", generation: 4, lanes: 16,", ", generation: 4, lanes: 16, domain: 2,", "links.0.domain"),
        (f"{{kind: pcie, generation: 4, lanes: 16, {PCIE}}}",
         "{kind: nvlink, generation: 3, gb_s_per_direction: {value: 600, kind: derived, source: pcie}}",
         "links.0.gb_s_per_direction"),
        (f"{{kind: pcie, generation: 4, lanes: 16, {PCIE}}}",
         "{kind: other, gb_s_per_direction: {value: 2000, kind: derived, source: pcie}}",
         "links.0.gb_s_per_direction"),
    ],
)  # fmt: skip
def test_links_state_one_direction(write: Write, old: str, new: str, field: str) -> None:
    problems = lint_hardware([write(changed(old, new))]).problems
    assert [(each.rule, each.field) for each in problems] == [("links", field)]


def test_a_bare_number_is_told_how_a_value_is_written(write: Write) -> None:
    bare = re.sub(r"bandwidth_gb_s: \{.*\}", "bandwidth_gb_s: 1008", CARD)
    problems = lint_hardware([write(bare)]).problems
    assert [each.rule for each in problems] == ["valid"]
    assert "memory.bandwidth_gb_s" in problems[0].message
    assert "{value: 1008, kind: datasheet, source: …}" in problems[0].message


def test_how_the_highest_clock_is_known_needs_a_highest_clock(write: Write) -> None:
    problems = lint_hardware([write(changed("  max_mhz: 2820\n", ""))]).problems
    assert [each.rule for each in problems] == ["valid"]
    assert "give max_mhz, or leave max_kind out" in problems[0].message


@pytest.mark.parametrize(("text", "wrong"), [("2022", 0), ("2022-10", 0), ("1999-01-01", 1), ("2999", 1), ("soon", 1)])
def test_dates_may_be_coarse_and_must_be_past(write: Write, text: str, wrong: int) -> None:
    problems = lint_hardware([write(changed("2022-10-12", f'"{text}"'))]).problems
    assert [each.rule for each in problems] == ["dates"] * wrong


def test_an_estimate_may_have_a_note_in_place_of_a_publisher(write: Write) -> None:
    vague = changed("    publisher: PCI-SIG\n", "")
    assert not lint_hardware([write(vague)]).problems
    silent = vague.replace("    note: transfer rate x lanes, after line encoding, one direction\n", "")
    assert [each.rule for each in lint_hardware([write(silent)]).problems] == ["sources-found"]


def test_the_database_has_no_problems() -> None:
    result = lint_hardware()
    assert [str(problem) for problem in result.problems] == []
    assert result.files == len(list(DEVICES.rglob("*.yaml")))


def test_peaks_are_checked_wherever_the_rates_are_known(devices: dict[str, HardwareSpec]) -> None:
    assert {device.architecture for device in devices.values()} - set(RATES) == UNCHECKED
    assert set(RATES) <= {device.architecture for device in devices.values()}
    checked = [
        peak
        for device in devices.values()
        if device.clock is not None and device.compute_units is not None
        for peak in device.peak_list
        if any(peak.key in design.operations for design in RATES.get(device.architecture, ()))
    ]
    assert len(checked) > 0.85 * sum(len(device.peak_list) for device in devices.values())


@pytest.fixture(scope="module")
def devices() -> dict[str, HardwareSpec]:
    import rooflinellm as rl

    return {file.stem: rl.hardware(file.stem) for file in DEVICES.rglob("*.yaml")}


def test_engines_and_formats_are_checked_as_such() -> None:
    assert lint_hardware([ROOT / "hardware_db/engines"]).ok
    assert lint_models([ROOT / "model_db/formats/gguf/q4_k_m.yaml"]).ok


def test_the_command_prints_rule_file_field_and_message(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    path = write(changed("value: 1008", "value: 1033"))
    assert main(["hardware", "lint", str(path)]) == 3
    shown = capsys.readouterr().out
    assert f"error [bandwidth] {path}: memory.bandwidth_gb_s: 1033 GB/s, but" in shown
    assert main(["hardware", "lint", "--rules"]) == 0
    listed = capsys.readouterr().out
    assert all(rule.name in listed and rule.holds in listed for rule in DEVICE_RULES)
    assert main(["hardware", "lint", "--rules", str(path)]) == 2


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "rtx-5090"),
        ("show", "amd-ryzen-ai-max-plus-395-8060s"),
        ("show", "b300"),
        ("diff", "rtx-3090", "mi300x"),
        ("diff", "m3-max-40c", "strix-halo"),
        ("diff", "nvidia-rtx-pro-6000-blackwell-workstation", "intel-core-ultra-x7-358h-arc-b390"),
        ("stats",),
        ("lint", "--rules"),
    ],
    ids=" ".join,
)
def test_answers_fit_the_terminal(
    arguments: tuple[str, ...], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["hardware", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "http" not in line) <= width
    heading = {"show": "evidence ", "diff": "unit ", "stats": "estimate", "lint": "rules"}[arguments[0]]
    assert any(heading in line for line in lines)


def test_matrix_and_vector_units_are_compared_by_what_they_compute(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "diff", "m3-max-40c", "strix-halo", "--json"]) == 0
    rows = {row["field"]: row for row in json.loads(capsys.readouterr().out)["differences"]}
    assert rows["peak fp16.fp32"]["ratio"] == pytest.approx(59.39 / 14.13, rel=1e-3)
    assert main(["hardware", "diff", "rtx-3090", "3090"]) == 0
    assert "no differences" in capsys.readouterr().out


def test_values_are_counted_by_evidence(devices: dict[str, HardwareSpec]) -> None:
    counted = evidence_counts()
    assert counted.devices == len(devices) and not counted.broken
    assert sum(counted.counts["peaks"].values()) == sum(len(device.peak_list) for device in devices.values())
    assert sum(counted.counts["bandwidth"].values()) == len(devices)
    assert set(counted.total) == set(KINDS)
    assert counted.total["estimate"] < 0.25 * sum(counted.total.values())


def test_the_guide_for_contributors_works_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    entry = re.search(r"```yaml\n(.+?)```", guide, re.DOTALL)
    commands = re.search(r"use it:\n\n```sh\n(.+?)```", guide, re.DOTALL)
    assert entry is not None and commands is not None
    mine = tmp_path / "hardware_db" / "devices" / "nvidia"
    mine.mkdir(parents=True)
    (mine / "nvidia-geforce-rtx-9090.yaml").write_text(entry[1], encoding="utf-8")
    monkeypatch.chdir(mine)
    for line in commands[1].splitlines():
        assert main(line.split()[1:]) == 0, line
    assert lint_hardware([mine]).problems == ()
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    assert main(["estimate", "llama-3.1-8b", "rtx 9090"]) == 0
    assert "RTX 9090" in capsys.readouterr().out
