"""Curves of single kernels and collectives: their formulas, what they were fitted to, and what the engine takes."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflinellm as rl
from rooflinellm import catalog
from rooflinellm._resources import database
from rooflinellm.api.kernels import KernelScores, scores_of
from rooflinellm.api.measured import measured_rows
from rooflinellm.calibration.kernels import fit, fit_collective, fit_kernels
from rooflinellm.cli import main
from rooflinellm.efficiency.collectives import Law, curve_for, laws_of, passes, quickest_s
from rooflinellm.efficiency.kernels import PRECISIONS, curve_s, peak_of
from rooflinellm.engine.parallel import expected_collective_s
from rooflinellm.engine.plan import Collective, Link
from rooflinellm.measurements.kernels import COLLECTIVES, KernelRow, expected_s, read, work
from rooflinellm.specs.curves import KernelCurve

H100, B200 = "nvidia-h100-sxm5-80gb", "nvidia-b200-sxm-180gb"
FILE = Path(str(database("hardware_db"))) / "measurements" / "kernels.csv.gz"


@pytest.fixture(scope="module")
def rows() -> list[KernelRow]:
    return list(read())


@pytest.fixture(scope="module")
def scores() -> KernelScores:
    return rl.validate_kernels()


def row(operator: str, device: str = H100, precision: str = "bf16", time_s: float = 1e-3, **shape: float) -> KernelRow:
    return KernelRow(operator, catalog.hardware(device), precision, "vllm", shape, time_s, "a source")


# ------------------------------------------------------------------------------------------------------------ formulas


@pytest.mark.parametrize(
    ("name", "ranks", "times"),
    [("one_shot", 8, 7), ("two_shot", 8, 1.75), ("ring", 2, 1), ("in_switch", 8, 1.125), ("bulk", 4, 0.75)],
)
def test_how_often_a_link_carries_the_message(name: Any, ranks: int, times: float) -> None:
    assert passes(name, ranks) == times
    law = Law(name, 3e-6, 1e-6, 0.5)
    assert law.time_s(ranks, 1e-3) == pytest.approx(3e-6 + (ranks - 1) * 1e-6 + times * 2e-3, rel=1e-12)


def test_the_quickest_protocol_carries_a_message() -> None:
    laws = (Law("one_shot", 3e-6, 0, 0.5), Law("ring", 20e-6, 0, 0.75))
    assert quickest_s(laws, 8, 0) == 3e-6
    assert quickest_s(laws, 8, 1e-3) == pytest.approx(20e-6 + 1.75e-3 / 0.75, rel=1e-12)
    mixed = quickest_s(laws, 8, np.array([0, 1e-3]))
    assert mixed.tolist() == [quickest_s(laws, 8, 0), quickest_s(laws, 8, 1e-3)]


def test_a_curve_is_a_floor_and_a_roofline() -> None:
    curve = KernelCurve(
        of="gemm", precisions=("bf16",), floor_us=3, bandwidth_share=0.8, peak_share=0.5, half_tokens=64, source="s"
    )
    assert curve_s(curve, 8e-6, 0, 1) == pytest.approx(3e-6 + 10e-6, rel=1e-12)
    # 64 tokens reach half of half of the peak.
    assert curve_s(curve, 0, 1e-6, 64) == pytest.approx(3e-6 + 4e-6, rel=1e-12)
    assert curve_s(curve, 0, 1e-3, 1e9) == pytest.approx(3e-6 + 2e-3, rel=1e-6)


def test_work_of_kernels() -> None:
    assert work(row("gemm", m=16, n=4096, k=8192)) == (
        4096 * 8192 * 2 + 16 * 8192 * 2 + 16 * 4096 * 2, 2 * 16 * 4096 * 8192, 16
    )  # fmt: skip
    # Eight requests read 1,000 keys and values of 8 heads each, and multiply them with 64 heads.
    moved, flops, _ = work(row("attention_decode", batch=8, heads=64, kv_heads=8, head_dim=128, cached=1000))
    assert moved == 8 * (1000 * 2 * 8 * 128 * 2 + 2 * 64 * 128 * 2)
    assert flops == 4 * 8 * 64 * 1000 * 128
    # DeepSeek's latents: 512 + 64 numbers a token for all heads.
    moved, flops, _ = work(row("latent_decode", batch=1, heads=16, latent=512, rope=64, cached=4096))
    assert moved == 4096 * 576 * 2 + 16 * (576 + 512) * 2
    assert flops == 2 * 16 * 4096 * (576 + 512)
    # Half of the pairs of a prompt.
    _, flops, tokens = work(row("attention_prefill", batch=1, heads=32, kv_heads=8, head_dim=128, tokens=2048))
    assert (flops, tokens) == (4 * 32 * 128 * 2048**2 / 2, 2048)


def test_work_of_experts() -> None:
    shape = {"hidden": 4096, "width": 1536, "active": 8, "experts": 128, "expert": 1}
    matrices = 3 * 4096 * 1536
    moved, flops, tokens = work(row("experts", **shape, tokens=4, tensor=1))
    assert flops == 2 * 4 * 8 * matrices
    assert tokens == 1  # 32 experts, one token each
    assert moved == 32 * matrices * 2 + 32 * (4096 * 4 + 4 * 1536)
    moved, flops, tokens = work(row("experts", **shape, tokens=1024, tensor=8))
    assert (flops, tokens) == (2 * 8192 * matrices / 8, 64)
    assert moved == pytest.approx(128 * matrices / 8 * 2 + 8192 * (4096 * 4 + 4 * 1536 / 8))


def test_peaks_of_precisions() -> None:
    h100, b200 = catalog.hardware(H100), catalog.hardware(B200)
    assert peak_of(h100, "bf16") == h100.peak("bf16.fp32")
    assert peak_of(b200, "nvfp4") == b200.peak("fp4.fp32.block")
    with pytest.raises(rl.MissingSpec, match="no precision"):
        peak_of(h100, "fp3")
    with pytest.raises(rl.MissingSpec):
        peak_of(h100, "nvfp4")


# ------------------------------------------------------------------------------------------------------------- the file


def test_every_row_is_of_a_known_device_and_has_a_public_source(rows: list[KernelRow]) -> None:
    assert len(rows) > 15_000
    assert all(":" in each.source and "/" in each.source for each in rows)
    assert len({(r.operator, r.device.id, r.precision, r.library, str(r.shape)) for r in rows}) == len(rows)
    assert {each.operator for each in rows} >= set(COLLECTIVES)


def test_no_row_moves_its_message_faster_than_the_link(rows: list[KernelRow]) -> None:
    # Whatever adds up: each device receives the message once.
    sums = [each for each in rows if each.operator == "sum"]
    assert all(each.time_s > each.message_s for each in sums)


def test_bad_rows_are_named(tmp_path: Path) -> None:
    head = "operator,device,precision,library,shape,time_us,source\n"
    good = f"sum,{H100},bf16,vllm,bytes=1024 ranks=8,5,a source\n"
    for bad in ("dance,h100-sxm,bf16,vllm,m=1,5,s", "gemm,h100-sxm,bf16,vllm,m=1,5,s", "gemm,h100-sxm,bf16,x,m,5,s",
                "sum,h100-sxm,bf16,vllm,bytes=1 ranks=8,-1,s"):  # fmt: skip
        file = tmp_path / "kernels.csv"
        file.write_text(head + good + bad + "\n")
        with pytest.raises(rl.InvalidSpec, match="line 3"):
            rl.validate_kernels(file)
    with pytest.raises(rl.UnreadableFile):
        rl.validate_kernels(tmp_path / "none.csv")


def test_kernels_are_no_results_of_whole_models() -> None:
    whole = sum(1 for _ in measured_rows(None, {}))
    lines = 0
    for name in ("single-user.csv.gz", "server.csv.gz"):
        with gzip.open(str(FILE.parent / name), "rt", encoding="utf-8") as stream:
            lines += sum(1 for _ in stream) - 1
    assert whole == lines


# ------------------------------------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("operator", ["gemm", *COLLECTIVES])
def test_curves_are_within_a_fifth_of_measured_kernels(operator: str, scores: KernelScores) -> None:
    found = [each for each in scores.scores if each.operator == operator]
    assert len(found) >= 20
    assert {f"{each.device} {each.size}": each.mdape for each in found if each.mdape > 0.2} == {}


def test_scores_count_every_row(scores: KernelScores, rows: list[KernelRow]) -> None:
    assert sum(each.rows for each in scores.scores) + scores.skipped == len(rows)
    assert scores.skipped == 0


def test_scores_are_medians_by_device_and_size() -> None:
    some = [row("sum", bytes=size, ranks=8, time_s=1e-3) for size in (10, 20, 30, 2**30)]
    found = scores_of(some, [1.1e-3, 1.3e-3, 0.8e-3, math.nan])
    assert [(each.size, each.rows) for each in found] == [("small", 3)]
    assert found[0].mdape == pytest.approx(0.2)


@pytest.mark.slow
def test_the_profile_is_what_the_rows_give() -> None:
    found = rl.calibrate_kernels()
    shipped = (database("hardware_db") / "engines" / "profiles" / "kernels.yaml").read_text(encoding="utf-8")
    assert found.to_yaml() == shipped
    # A device whose generation was measured on others, and is left out.
    left = {(each.operator, each.device, each.size): each.mdape for each in found.unseen.scores}
    for device in (H100, "nvidia-h200-sxm-141gb", B200, "nvidia-gb200-nvl72", "nvidia-gb300-nvl72"):
        for operator in ("sum", "gather", "scatter", "exchange"):
            assert max(left[operator, device, size] for size in ("small", "middle", "large")) < 0.2
        assert max(left["gemm", device, size] for size in ("decode", "middle", "prefill")) < 0.2


def test_a_fit_finds_what_made_the_times() -> None:
    law = Law("bulk", 15e-6, 0.5e-6, 0.6)
    exchange = [
        row("exchange", bytes=float(size), ranks=float(ranks))
        for ranks in (2, 4, 8) for size in (2**10, 2**14, 2**18, 2**20, 2**22, 2**24, 2**26, 2**28)
    ]  # fmt: skip
    made = [
        KernelRow(r.operator, r.device, r.precision, r.library, r.shape,
                  law.time_s(int(r.shape["ranks"]), r.message_s), "s")
        for r in exchange
    ]  # fmt: skip
    curve = fit_collective(made)
    assert max(abs(expected_s(each, curve) / each.time_s - 1) for each in made) < 0.05
    bulk = curve.protocols["bulk"]
    assert bulk.share == pytest.approx(0.6, rel=0.03)
    products = [
        row("gemm", m=m, n=n, k=n) for m in (1, 16, 256, 384, 512, 768, 1024, 8192) for n in (1024, 4096, 16384)
    ]
    true = KernelCurve(
        of="gemm", precisions=("bf16",), floor_us=5, bandwidth_share=0.7, peak_share=0.6, half_tokens=100, source="s"
    )
    made = [
        KernelRow(r.operator, r.device, r.precision, r.library, r.shape, expected_s(r, true), "s") for r in products
    ]
    found = fit_kernels(made)
    assert max(abs(expected_s(each, found) / each.time_s - 1) for each in made) < 0.02
    for name in ("floor_us", "bandwidth_share", "peak_share"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.05)
    assert found.half_tokens == pytest.approx(100, rel=0.2)


def test_a_device_that_is_left_out_takes_the_others_of_its_generation(rows: list[KernelRow]) -> None:
    names = {H100, "nvidia-h200-sxm-141gb", "nvidia-a100-sxm4-80gb"}
    some = [each for each in rows if each.operator == "gather" and each.device.id in names]
    found = fit(some)
    by: dict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(some):
        by[each.device.id].append(place)
    # The curve without H100 is that of H200, of the same generation of NVLink.
    own = fit_collective([some[place] for place in by["nvidia-h200-sxm-141gb"]])
    assert [expected_s(some[place], own) for place in by[H100]] == pytest.approx(found.unseen_s[by[H100]].tolist())


# ----------------------------------------------------------------------------------------------------------- the engine


def law_of(engine: str, device: str = H100, of: Any = "sum") -> Any:
    link = max(catalog.hardware(device).links, key=lambda link: link.gb_s_per_direction.value)
    return curve_for(catalog.profiles(), of, link.kind, link.generation, engine, device)


def test_engines_have_their_own_sums() -> None:
    # A sum of a token of Llama 70B over eight H100: 3.5 us by TensorRT-LLM's kernels, 5.3 us by vLLM's, 19 us by NCCL.
    small = {
        engine: quickest_s(laws_of(law_of(engine)), 8, 16_384 / 450e9) * 1e6
        for engine in ("tensorrt-llm", "vllm", "sglang", "transformers")
    }
    assert small["vllm"] == small["sglang"]
    assert small["tensorrt-llm"] == pytest.approx(3.6, rel=0.15)
    assert small["vllm"] == pytest.approx(5.3, rel=0.15)
    assert small["transformers"] == pytest.approx(19, rel=0.25)


def test_links_that_were_not_measured_take_the_nearest_generation_of_their_kind() -> None:
    assert law_of("vllm", "nvidia-rubin-r200") == law_of("vllm", B200)
    assert law_of("vllm", "nvidia-v100-sxm2-32gb") == law_of("vllm", "nvidia-a100-sxm4-80gb")
    assert law_of("vllm", "amd-instinct-mi300x") is None


def test_cards_that_do_not_read_each_other_are_not_taken_for_those_that_do() -> None:
    assert law_of("vllm", "nvidia-rtx-pro-6000-blackwell-server") is not None
    assert law_of("vllm", "nvidia-geforce-rtx-4090") is None


def test_the_engine_takes_the_protocols_of_the_link() -> None:
    law = Law("one_shot", 5e-6, 0, 0.5)
    link = Link("nvlink", 400e9, 300e9, 1e-6, (("sum", (law,)), ("exchange", (Law("bulk", 8e-6, 0, 0.5),))))
    added = expected_collective_s(Collective("sum", 1, 100, 4, link), 1e4)
    assert added == pytest.approx(5e-6 + 3 * 1e6 / 200e9, rel=1e-12)
    # Each device holds a quarter of the tokens, and sends three quarters of that.
    sent = expected_collective_s(Collective("exchange", 1, 100, 4, link), 1e4)
    assert sent == pytest.approx(8e-6 + 0.75 * 0.25e6 / 200e9, rel=1e-12)
    # What was not measured over a link goes by its latency and bandwidth.
    gathered = expected_collective_s(Collective("gather", 1, 100, 4, link), 1e4)
    assert gathered == pytest.approx(1e-6 + 0.75 * 1e6 / 300e9, rel=1e-12)


def test_bridges_between_pairs_do_not_join_more() -> None:
    def moved(count: int) -> float:
        found = rl.estimate(
            "llama-3.1-8b", f"{count}x rtx-3090", weights="bf16", engine="vllm", tensor_parallel=count,
            prompt_tokens=8192, output_tokens=1,
        )  # fmt: skip
        assert found.prefill is not None
        return next(r.time_s for r in found.prefill.operators if r.name == "exchange between devices")

    # Two share an NVLink of 56 GB/s, four a PCIe of half of that, and tell one another half again as much.
    assert moved(4) > 2 * moved(2)


def test_no_link_is_faster_than_printed() -> None:
    for profile in catalog.profiles():
        for curve in profile.collectives:
            for ranks in (2, 4, 8, 72):
                for message_s in (0, 1e-6, 1e-3, 1.0):
                    least = message_s if curve.of == "sum" else message_s * (ranks - 1) / ranks
                    assert quickest_s(laws_of(curve), ranks, message_s) > least


# ------------------------------------------------------------------------------------------------------------ interface


def test_time_of_a_kernel() -> None:
    # 1.3 us a MB is what HBM3 takes at most: 33.5 MB of weights in 16 bits, 10 us at the printed 3.35 TB/s.
    one = rl.kernel_time("gemm", "h100-sxm", m=1, n=4096, k=4096)
    assert 33.6e6 / 3.35e12 < one < 2 * 33.6e6 / 3.35e12
    assert rl.kernel_time("gemm", "h100-sxm", m=1, n=4096, k=4096, precision="fp8") != one
    # Turing was not measured: what all generations reach, of its own bandwidth.
    assert rl.kernel_time("gemm", "rtx-2080-ti", m=1, n=4096, k=4096, precision="fp16") > 33.6e6 / 616e9
    fast, slow = (rl.kernel_time("sum", "h100-sxm", bytes=4096, ranks=8, library=x) for x in ("tensorrt-llm", "nccl"))
    assert fast < slow


@pytest.mark.parametrize(
    ("operator", "given", "where"),
    [
        ("dance", {}, "operator"),
        ("gemm", {"m": 1, "n": 1}, "shape"),
        ("gemm", {"m": 1, "n": 1, "k": 0}, "k"),
        ("sum", {"bytes": 1, "ranks": 2, "m": 1}, "shape"),
    ],
)
def test_bad_kernels_are_refused(operator: str, given: dict[str, float], where: str) -> None:
    with pytest.raises(rl.InvalidRequest) as caught:
        rl.kernel_time(operator, "h100-sxm", **given)
    assert caught.value.where == where
    with pytest.raises(rl.MissingSpec):
        rl.kernel_time("sum", "mi300x", bytes=1024, ranks=8)


def test_validation_of_kernels_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(str(FILE), "rt", encoding="utf-8") as stream:
        lines = stream.read().splitlines()
    file = tmp_path / "some.csv"
    file.write_text("\n".join([lines[0], *(x for x in lines[1:] if x.startswith(("scatter", "gather")))]))
    assert main(["validate", "--kernels", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["operator"] for each in found["scores"]} == {"gather", "scatter"}
    assert max(each["mdape"] for each in found["scores"]) < 0.2
    assert main(["validate", "--kernels", str(file), "--max-error", "1"]) == 1
    told = capsys.readouterr()
    assert "nvidia-a100-sxm4-80gb" in told.out
    assert "more than 1 %" in told.err
    assert main(["calibrate", "--kernels", str(file), "-o", str(tmp_path / "my-curves.yaml")]) == 0
    profile = catalog.profile(str(tmp_path / "my-curves.yaml"))
    assert (profile.id, len(profile.curves), {each.of for each in profile.collectives}) == (
        "my-curves", 0, {"gather", "scatter"}
    )  # fmt: skip
    with pytest.raises(rl.InvalidRequest):
        rl.validate_kernels(file, leave_out="device", profile="kernels")
    assert main(["validate", "--kernels", str(file), str(file)]) == 2


def test_precisions_are_those_that_rows_name(rows: list[KernelRow]) -> None:
    assert {each.precision for each in rows} <= set(PRECISIONS)
