"""Prefill and decode on machines of their own: hand values, and what has to hold."""

import csv
import io
import json
from itertools import pairwise
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.cli import main

MODEL, MACHINE = "llama-3.1-8b", "h100-sxm"
SERVED: dict[str, Any] = {"weights": "fp8", "engine": "vllm", "prompt_tokens": 8192, "output_tokens": 256}
TOKEN_BYTES = 32 * 2 * 8 * 128 * 2
"""32 layers, keys and values of 8 heads of 128 in 16 bits (meta-llama/Llama-3.1-8B, config.json). [byte/token]"""
SHARE, LATENCY_S = 0.8, 150e-6
"""Of a network's rate, and of a message: hardware_db/engines/profiles, ways, network."""


def split(**asked: Any) -> Any:
    return rl.disaggregated(MODEL, MACHINE, MACHINE, **{**SERVED, **asked})


def test_the_cache_is_that_of_the_prompt() -> None:
    """8,192 tokens of 131,072 bytes are 1 GiB; what lies before the prompt is sent too."""
    assert split().kv_bytes == 8192 * TOKEN_BYTES == 2**30
    assert split(context_tokens=1024).kv_bytes == 9216 * TOKEN_BYTES


def test_a_transfer_layer_by_layer_leaves_the_last_layer() -> None:
    """2^30 bytes over 50 GB/s: 21.5 ms printed, 1/32 of which is behind the prefill."""
    found = split(link="400gbe")
    assert found.transfer_s.ideal == pytest.approx(2**30 / 50e9)
    assert found.exposed_s.ideal == pytest.approx(2**30 / 32 / 50e9)
    assert found.exposed_s.expected == pytest.approx(2**30 / 32 / (SHARE * 50e9) + LATENCY_S)
    assert found.ttft_s.expected == pytest.approx(found.prefill.ttft_s.expected + found.exposed_s.expected)


def test_without_overlap_all_of_it_is_behind() -> None:
    found = split(link=50.0, overlap=False)
    assert found.exposed_s.expected == pytest.approx(2**30 / (SHARE * 50e9) + LATENCY_S)
    assert found.exposed_s.expected == found.transfer_s.expected
    assert found.ttft_s.expected > split(link=50.0).ttft_s.expected


def test_a_slow_link_piles_up() -> None:
    """Over 1 GB/s the first layer is sent from T/32 on, and the link is busy from then: TTFT = T/32 + K/b + a."""
    found = split(link=1.0)
    prefill_s = found.prefill.prefill.time_s.expected
    assert found.ttft_s.expected == pytest.approx(prefill_s / 32 + 2**30 / (SHARE * 1e9) + LATENCY_S)


def test_a_faster_link_is_no_worse_and_overlap_never_hurts() -> None:
    for overlap in (True, False):
        times = [split(link=rate, overlap=overlap).ttft_s for rate in (0.1, 1.0, 10.0, 100.0, 1e6)]
        for slow, fast in pairwise(times):
            assert fast.expected <= slow.expected
            assert fast.ideal <= fast.low <= fast.expected <= fast.high
    exposed = split(link=1.0).exposed_s
    assert exposed.ideal <= exposed.low <= exposed.expected <= exposed.high


def test_decode_is_that_of_one_machine_without_prompts_beside() -> None:
    """The steps behind a prompt are those of an estimate on the same machine."""
    together = rl.estimate(MODEL, MACHINE, **SERVED, batch=16)
    found = split(batch=16)
    assert found.tpot_s.expected == pytest.approx(together.tpot_s.expected)
    assert found.e2e_s.expected == pytest.approx(found.ttft_s.expected + 255 * found.tpot_s.expected)


def test_the_ratio_of_machines() -> None:
    """t_pre : N T_step / B."""
    found = split(batch=16)
    per_answer = 255 * found.tpot_s.expected / 16
    assert found.prefill_per_decode == pytest.approx(found.prefill.prefill.time_s.expected / per_answer)
    assert found.device_tokens_per_s == pytest.approx(256 / per_answer / (1 + found.prefill_per_decode))
    assert split(batch=16, output_tokens=1024).prefill_per_decode < found.prefill_per_decode
    slow = split(batch=16, link=1.0)  # 1.34 s for each prompt, longer than its prefill
    assert slow.prefill_per_decode == pytest.approx(2**30 / (SHARE * 1e9) / per_answer)


def test_machines_differ_in_parallelism() -> None:
    found = rl.disaggregated(
        "llama-3.3-70b", "4x h200-sxm", "8x h200-sxm", prefill={"tensor_parallel": 4}, decode={"tensor_parallel": 8},
        **SERVED,
    )  # fmt: skip
    assert (found.prefill.hardware.device_count, found.decode.hardware.device_count) == (4, 8)
    latent = {"weights": "fp8", "engine": "vllm", "prompt_tokens": 1024}
    one, eight = (
        rl.disaggregated("deepseek-v3", f"{n}x b200", "8x b200", prefill={"tensor_parallel": n},
                         decode={"tensor_parallel": 8}, **latent)
        for n in (8, 16)
    )  # fmt: skip
    assert one.kv_bytes == eight.kv_bytes == 1024 * 61 * 576 * 2  # a latent is sent once, whoever holds copies


def test_the_first_token_may_come_behind_the_transfer() -> None:
    found, later = split(), split(options=rl.Options(first_token="extra_step"))
    assert later.ttft_s.expected == pytest.approx(found.ttft_s.expected + found.decode.ttft_s.expected)


def test_views() -> None:
    found = split()
    assert found.to_dict()["ttft_s"]["expected"] == found.ttft_s.expected
    text = found.table().to_text(80)
    assert "first token" in text
    assert "1.00 GiB of cache" in text


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"link": "carrier pigeon"}, "no network"),
        ({"link": 0}, "link"),
        ({"link": None}, "link"),
        ({"output_tokens": 1}, "at least 2"),
        ({"prompt_tokens": 0}, "prompt_tokens"),
        ({"prompt_tokens": [1, 2]}, "prompt_tokens"),
        ({"context_tokens": [1, 2]}, "one value"),
        ({"prefill": {"batch": 4}}, "no degree"),
        ({"decode": 8}, "mapping"),
        ({"prefill_batch": 0}, "prefill_batch"),
        ({"decode": {"tensor_parallel": 2}}, "2 devices"),
    ],
)
def test_what_cannot_be(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=says):
        split(**asked)


def test_what_does_not_fit_is_said_with_its_machine() -> None:
    with pytest.warns(rl.RooflineWarning, match=r"^decode: memory"):
        found = rl.disaggregated(MODEL, MACHINE, "rtx-3080-10gb", **SERVED | {"weights": "bf16"})
    assert found.decode.memory.fits is False


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["disaggregate", MODEL, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (MACHINE, MACHINE, "-w", "fp8", "-e", "vllm", "-p", "8192", "-n", "256", "-b", "4")
    found = split(batch=4)
    code, out, err = run(capsys, *asked)
    assert (code, err) == (0, "")
    assert "first token" in out and "prefill machines for each that decodes" in out
    code, out, _ = run(capsys, *asked, "--json")
    assert code == 0
    assert json.loads(json.dumps(found.to_dict())).items() <= json.loads(out).items()
    code, out, _ = run(capsys, *asked, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["prompt_tokens"], row["output_tokens"], row["batch"]) == ("8192", "256", "4")
    assert float(row["ttft_s_expected"]) == found.ttft_s.expected
    code, out, _ = run(capsys, *asked, "--link", "1", "--no-overlap", "--json")
    assert json.loads(out)["ttft_s"]["expected"] == split(batch=4, link=1.0, overlap=False).ttft_s.expected


def test_either_machine_has_degrees_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    several = (f"2x {MACHINE}", f"4x {MACHINE}", "-w", "fp8", "--decode-parallel", "tp=2,dp=2")
    code, out, _ = run(capsys, *several, "--prefill-parallel", "tp=2", "--json")
    assert code == 0
    assert json.loads(out)["decode"]["workload"]["data_parallel"] == 2
    code, _, err = run(capsys, *several)
    assert code == 2 and "to prefill" in err and "--prefill-parallel" in err
    for wrong in ("tp", "tp=x", "xp=2", ""):
        code, _, err = run(capsys, *several, "--prefill-parallel", wrong)
        assert code == 2 and "no list of degrees" in err


@pytest.mark.parametrize(("arguments", "said"), [(("-n", "1"), "at least 2"), (("--link", "tin-can"), "no network")])
def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, MACHINE, MACHINE, *arguments)
    assert (code, out) == (2, "") and said in err
