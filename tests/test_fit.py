"""`fit`: the answer, the formats, the alternatives, and the exit code that scripts rely on."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.api.fit import fit
from rooflinellm.cli import main
from rooflinellm.errors import RooflineWarning

AD_HOC = "24GiB,1000GB/s,100TFLOP/s@fp16,200TFLOP/s@int8"
NO_CAPACITY = """
schema: 1
id: no-capacity
name: No Capacity
vendor: nvidia
architecture: ada
kind: gpu
memory: {type: GDDR6, bandwidth_gb_s: {value: 500, kind: estimate, source: made-up}}
peaks:
  - {precision: fp16, accumulate: fp32, unit: matrix, tflops: 100, kind: estimate, source: made-up}
sources: {made-up: {title: Made up, publisher: A test}}
"""


def needed(context: int, hardware: str = AD_HOC, **named: Any) -> int:
    """Bytes by `estimate`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        plan = rl.estimate(
            "llama-3.1-8b", hardware, prompt_tokens=0, output_tokens=0, context_limit=context, **named
        ).memory
    assert isinstance(plan.total_bytes, int)
    return plan.total_bytes


def test_it_is_the_memory_plan_of_estimate() -> None:
    result = fit("llama-3.1-8b", AD_HOC, context_limit=16384, batch=2)
    assert result.fits is True
    assert result.memory.total_bytes == needed(16384, batch=2)
    assert result.memory.kv_allocated_bytes == 2 * 16384 * rl.model("llama-3.1-8b").kv_bytes_per_token("f16")
    assert result.headroom_bytes == result.memory.usable_bytes - result.memory.total_bytes
    assert (result.weights, result.kv, result.engine) == ("gguf:q4_k_m", "f16", "llama.cpp:cuda")


def test_the_longest_context_is_the_edge() -> None:
    small = "8GiB,1000GB/s,100TFLOP/s@fp16,200TFLOP/s@int8"
    result = fit("llama-3.1-8b", small, context_limit=1024)
    edge, usable = result.memory.max_context_tokens, result.memory.usable_bytes
    assert usable is not None
    assert 1024 < edge < 131072
    assert needed(edge, small) <= usable < needed(edge + 256, small)
    assert fit("llama-3.1-8b", small, context_limit=edge).fits is True
    assert fit("llama-3.1-8b", small, context_limit=edge + 256).fits is False


@pytest.mark.parametrize(("spare", "longest"), [(0, 4096), (-1, 4096 - 256)])
def test_the_longest_context_may_fill_the_card_to_the_last_byte(spare: int, longest: int) -> None:
    usable = {"hardware.memory.usable_gib": (needed(4096, "rtx-4090") + spare) / 2**30}
    result = fit("llama-3.1-8b", "rtx-4090", context_limit=1024, overrides=usable)
    assert result.memory.usable_bytes == needed(4096, "rtx-4090") + spare
    assert result.memory.max_context_tokens == longest


def test_the_formats_of_the_engine_the_largest_first() -> None:
    result = fit("llama-3.1-8b", AD_HOC)
    sizes = [each.resident_weight_bytes for each in result.formats]
    assert sizes == sorted(sizes, reverse=True)
    assert {each.weights.partition(":")[0] for each in result.formats} == {"gguf"}
    usable = result.memory.usable_bytes
    assert usable is not None
    assert all(each.fits is (each.total_bytes <= usable) for each in result.formats)
    by_name = {each.weights: each for each in result.formats}
    assert by_name["gguf:f16"].bits_per_weight == pytest.approx(16, abs=0.02)
    assert by_name["gguf:q8_0"].decode_tokens_per_s < by_name["gguf:q4_k_m"].decode_tokens_per_s
    assert by_name["gguf:q4_k_m"].total_bytes == result.memory.total_bytes
    best = result.best_format
    assert best is not None
    assert best.resident_weight_bytes == max(each.resident_weight_bytes for each in result.formats if each.fits)
    # No line at the edge is lost where only some formats are shown.
    shown = {row[0].removesuffix(" *") for row in result.tables(all_formats=False)[-1].rows}
    assert {"Q4_K_M", best.weights.removeprefix("gguf:").upper()} <= shown


def test_other_engines_have_other_formats() -> None:
    result = fit("llama-3.1-8b", "h100-sxm", engine="vllm")
    assert {each.weights.partition(":")[0] for each in result.formats} == {"hf"}


def test_what_would_hold_it() -> None:
    result = fit("llama-3.3-70b", "rtx-4090")
    assert result.fits is False
    assert result.headroom_bytes is not None
    assert result.headroom_bytes < 0
    assert result.alternatives[0].hardware == "2x nvidia-geforce-rtx-4090"
    assert len(result.alternatives) > 2
    for each in result.alternatives:
        again = fit("llama-3.3-70b", each.hardware)
        assert again.fits is True
        assert again.memory.total_bytes == each.total_bytes <= each.usable_bytes
    bandwidth = rl.hardware("rtx-4090").memory_bandwidth_bytes_per_s
    for each in result.alternatives:
        assert rl.system(each.hardware).device.memory_bandwidth_bytes_per_s >= bandwidth / 4
    assert fit("llama-3.3-70b", "m3-max-40c@36GiB").alternatives[0].hardware == "apple-m3-max-40c@64GiB"
    assert fit("llama-3.1-8b", "rtx-4090").alternatives == ()


def test_what_if_the_card_had_less() -> None:
    path = "hardware.memory.usable_gib"
    result = fit("llama-3.1-8b", "rtx-4090", overrides={path: 4})
    assert result.fits is False
    assert all(each.usable_bytes > 4 * 2**30 for each in result.alternatives[1:])


def test_several_devices_show_what_lies_where() -> None:
    result = fit("llama-3.3-70b", "2x rtx-4090")
    assert sum(part.weight_bytes for part in result.memory.placement) == result.memory.resident_weight_bytes
    assert any(table.columns[0].heading == "placement" for table in result.tables())


@pytest.fixture
def no_capacity(tmp_path: Path) -> str:
    path = tmp_path / "no-capacity.yaml"
    path.write_text(NO_CAPACITY, encoding="utf-8")
    return str(path)


def test_an_unknown_capacity_is_not_a_yes(no_capacity: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = fit("llama-3.1-8b", no_capacity)
    assert result.fits is None
    assert result.headroom_bytes is None
    assert (result.memory.max_context_tokens, result.memory.max_batch) == (None, None)
    assert result.best_format is None
    assert all(each.fits is None for each in result.formats)
    assert main(["fit", "llama-3.1-8b", no_capacity]) == 1
    assert "no-capacity@64GiB" in capsys.readouterr().out
    assert main(["fit", "llama-3.1-8b", no_capacity, "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["fits"] is None
    assert "no-capacity@64GiB" in captured.err


def test_the_exit_code_guards_a_download(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "llama-3.1-8b", AD_HOC]) == 0
    assert "fits: " in capsys.readouterr().out
    assert main(["fit", "llama-3.1-8b", AD_HOC, "--weights", "F32"]) == 1
    assert "does not fit: " in capsys.readouterr().out
    assert main(["fit", "llama-3.1-8b", AD_HOC, "--context", "1m"]) == 1
    assert "beyond the 131,072" in capsys.readouterr().err


def test_the_json_is_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "llama-3.1-8b", "rtx-4090", "--context", "16k", "--kv", "q8_0", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    expected = fit("llama-3.1-8b", "rtx-4090", context_limit=16384, kv="q8_0").to_dict()
    assert {key: answer[key] for key in expected} == json.loads(json.dumps(expected, allow_nan=False))


def test_it_warns_of_the_context_and_stays_quiet_about_the_answer() -> None:
    result = fit("llama-3.3-70b", "rtx-4090", context_limit=2**20)  # a warning would be an error here
    assert len(result.warnings) == 1
    assert "beyond" in result.warnings[0]


@pytest.mark.parametrize(("name", "value"), [("context_limit", 0), ("context_limit", -1), ("batch", 0), ("batch", 1.5)])
def test_impossible_numbers(name: str, value: Any) -> None:
    with pytest.raises(rl.InvalidRequest, match=name):
        fit("llama-3.1-8b", AD_HOC, **{name: value})


def test_it_shows_itself() -> None:
    result = fit("llama-3.1-8b", AD_HOC)
    assert repr(result).startswith("FitResult(llama-3.1-8b gguf:q4_k_m on ")
    assert str(result).splitlines()[0].startswith("Llama 3.1 8B · Q4_K_M · ")
    assert "<table>" in result._repr_html_()


def test_formats_that_nobody_publishes_are_not_proposed() -> None:
    # One and two bits that models are trained in: ggml-org/llama.cpp#21273 (Q1_0) and #8151 (TQ1_0, TQ2_0).
    found = rl.fit("llama-3.3-70b", "rtx-4090")
    rare = {each.weights for each in found.formats if not each.common}
    assert rare == {"gguf:q1_0", "gguf:q2_0"}
    shown = {row[0].removesuffix(" *") for row in found.tables(all_formats=False)[-2].rows}
    assert "IQ2_XS" in shown and not {"Q1_0", "Q2_0", "TQ1_0", "TQ2_0"} & shown
    assert found.best_format is not None and found.best_format.weights == "gguf:iq2_xs"
    asked = rl.fit("llama-3.3-70b", "rtx-4090", weights="Q2_0").tables(all_formats=False)
    assert any(row[0] == "Q2_0 *" for table in asked for row in table.rows)


def test_a_family_is_proposed_the_format_it_was_trained_in() -> None:
    found = rl.fit("bitnet-b1.58-2b-4t", "7950x@64GiB")
    assert {each.weights for each in found.formats if not each.common} == {"gguf:q1_0", "gguf:q2_0"}
    assert any(each.weights == "gguf:tq2_0" and each.common for each in found.formats)
