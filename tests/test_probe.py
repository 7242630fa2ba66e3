"""Measuring this computer: what is read from the system, what is made of it, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm import _yaml, units
from rooflinellm.api import probe as probe_module
from rooflinellm.api.lint import lint_hardware
from rooflinellm.api.probe import Probe, blas_threads
from rooflinellm.api.probe_entry import free_id, gpu_entry
from rooflinellm.cli import INTERRUPTED, main
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.measurements import computer as computer_module
from rooflinellm.measurements import speed, torch_speed
from rooflinellm.measurements.computer import Computer, this_computer
from rooflinellm.measurements.cpu import FP32_PER_CLOCK, INT8_PER_CLOCK, MEASURED, architecture_of, rented_cpu
from rooflinellm.measurements.speed import Reading
from rooflinellm.measurements.torch_speed import Gpu

ZEN3 = Computer(
    name="AMD EPYC 7763 64-Core Processor",
    system="Linux 6.1, x86_64",
    isa=("avx2", "avx", "fma", "f16c"),
    threads=8,
    cores=4,
    cache_bytes=32 * units.MIB,
    memory_bytes=32 * units.GIB,
    available_bytes=30 * units.GIB,
)
BANDWIDTH = Reading((40e9, 36e9, 39e9), 4, 256 * units.MIB, {1: 15e9, 8: 38e9})
PRODUCTS = Reading((400e9, 380e9), None, 2048, {1024: 350e9})


@pytest.fixture
def as_if(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Another computer with known rates, in place of this one."""

    def put(computer: Computer = ZEN3, read: Reading = BANDWIDTH, product: Reading = PRODUCTS) -> None:
        monkeypatch.setattr(probe_module, "this_computer", lambda: computer)
        monkeypatch.setattr(speed, "read_bandwidth", lambda *_arguments: read)
        monkeypatch.setattr(speed, "matmul_rate", lambda *_arguments: product)
        monkeypatch.setattr(torch_speed, "bf16_on_cpu", lambda _seconds: None)

    return put


@pytest.fixture
def measured(as_if: Callable[..., None]) -> Probe:
    as_if()
    return rl.probe()


# --- what is made of the measurements


def test_the_values_are_what_was_measured(measured: Probe) -> None:
    device = measured.hardware
    assert device.memory_bandwidth_bytes_per_s == 40e9
    assert device.peaks == {"fp32.fp32": 400e9, "int8.int32": 800e9}
    assert (device.memory_bytes, device.usable_bytes) == (32 * units.GIB, 30 * units.GIB)
    assert device.cache_bytes == 32 * units.MIB
    assert (device.compute_units, device.architecture, device.kind, device.vendor) == (4, "avx2-amd", "cpu", "amd")
    assert device.memory.type == MEASURED


def test_every_value_says_how_it_was_found(measured: Probe) -> None:
    kinds = {record["value_of"]: record["evidence"] for record in measured.records()}
    assert kinds.pop("peak int8.int32") == "derived"
    assert set(kinds.values()) == {"measured"}
    read = measured.hardware.sources[measured.hardware.memory.bandwidth_gb_s.source]
    assert read.note is not None
    assert "4 threads of numpy.bitwise_or.reduce over 256 MiB, nothing written" in read.note
    assert "best of 3 runs 40.0, median 39.0 GB/s; best with other thread counts: 1: 15.0, 8: 38.0" in read.note
    product = measured.hardware.sources[measured.hardware.peak_list[0].source]
    assert product.note is not None
    assert "2048 x 2048" in product.note and "up to 8 threads" in product.note
    assert all("measured on 20" in source.title for source in (read, product))


def test_the_file_is_the_device(as_if: Callable[..., None], tmp_path: Path) -> None:
    as_if()
    file = tmp_path / "my-machine.yaml"
    measured = rl.probe(id=file.stem)
    file.write_text(measured.to_yaml(), encoding="utf-8")
    assert rl.hardware(file) == measured.hardware
    assert rl.hardware(str(file)) == measured.hardware
    assert not [str(each) for each in lint_hardware([str(file)]).problems if each.level == "error"]
    assert list(_yaml.load(file))[-2:] == ["sources", "notes"]


def test_estimates_take_the_file(as_if: Callable[..., None], tmp_path: Path) -> None:
    as_if()
    file = tmp_path / "my-machine.yaml"
    file.write_text(rl.probe(id=file.stem).to_yaml(), encoding="utf-8")
    for weights in ("Q4_K_M", "Q8_0", "F16", "BF16", "IQ4_XS"):
        found = rl.estimate("llama-3.2-1b", str(file), weights=weights, prompt_tokens=128)
        assert found.engine.startswith("llama.cpp")
        rate = found.decode.tokens_per_s
        assert 0 < rate.low <= rate.expected <= rate.high <= rate.ideal
        assert found.memory.fits is True


def test_twice_the_bandwidth_decodes_faster(as_if: Callable[..., None]) -> None:
    rates = []
    for factor in (1, 2):
        as_if(read=Reading((factor * 40e9,), 4, 256 * units.MIB))
        rates.append(rl.estimate("llama-3.1-8b", rl.probe().hardware).decode.tokens_per_s)
    assert rates[1].ideal == pytest.approx(2 * rates[0].ideal, rel=0.02)
    assert rates[0].expected < rates[1].expected < 2 * rates[0].expected


@pytest.mark.parametrize(
    ("isa", "peaks", "architecture"),
    [
        (("avx2",), {"int8.int32": 2}, "avx2"),
        (("avx_vnni", "avx2"), {"int8.int32": 4}, "avx2"),
        (("avx512f", "avx2"), {"int8.int32": 2}, "avx512f"),
        (("avx512_vnni", "avx512f", "avx2"), {"int8.int32": 4}, "avx512-vnni"),
        (
            ("amx_int8", "amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f"),
            {"int8.int32": 32, "bf16.fp32": 16},
            "amx-int8",
        ),
        (("asimd", "asimddp"), {"int8.int32": 4}, "baseline"),
        (("asimd",), {}, "baseline"),
        (("avx",), {}, "baseline"),
    ],
)
def test_other_precisions_follow_from_the_instructions(
    as_if: Callable[..., None], isa: tuple[str, ...], peaks: dict[str, int], architecture: str
) -> None:
    as_if(Computer("Some CPU", "Linux", isa, 4, 4))
    device = rl.probe().hardware
    assert device.peaks == {"fp32.fp32": 400e9} | {key: ratio * 400e9 for key, ratio in peaks.items()}
    assert device.architecture == architecture
    assert (device.memory_bytes, device.usable_bytes, device.cache_bytes) == (None, None, 0)


@pytest.mark.parametrize(
    ("name", "known", "architecture"),
    [
        ("AMD EPYC-Milan Processor", {"avx2"}, "avx2-amd"),
        ("AMD EPYC 9R14", {"avx2", "avx512f", "avx512_vnni", "avx512_bf16"}, "avx512-bf16-amd"),
        ("Intel(R) Xeon(R) CPU E5-2676 v3 @ 2.40GHz", {"avx2"}, "avx2"),
        ("AWS Graviton3 AWS Graviton3 CPU @ 2.6GHz (Neoverse-V1)", set(), "neoverse-v1"),
        ("Cortex-A72", set(), "baseline"),
    ],
)
def test_what_tells_rented_processors_apart(name: str, known: set[str], architecture: str) -> None:
    assert architecture_of(known, name) == architecture


@pytest.mark.parametrize("isa", ["avx2", "avx512f", "avx512f avx512_vnni", "avx512f avx512_vnni amx_int8"])
def test_the_ratios_are_those_that_the_profile_was_fitted_with(as_if: Callable[..., None], isa: str) -> None:
    as_if(Computer("Some CPU", "Linux", tuple(isa.split()), 4, 4))
    rented, own = rented_cpu("Some CPU", 4, None, 1, isa, 20.0), rl.probe().hardware
    ratios = [device.peak("int8.int32") / device.peak("fp32.fp32") for device in (rented, own)]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-3)
    assert rented.architecture == own.architecture
    assert rented.memory.type == own.memory.type
    assert {*INT8_PER_CLOCK, *FP32_PER_CLOCK} - {""} <= {*computer_module.FLAGS}


def test_bf16_is_measured_where_pytorch_can(as_if: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(Computer("Some CPU", "Linux", ("avx512_bf16", "avx512_vnni", "avx512f"), 4, 4))
    monkeypatch.setattr(torch_speed, "bf16_on_cpu", lambda _seconds: Reading((700e9,), None, 2048))
    found = {peak.key: (peak.flop_per_s, peak.kind) for peak in rl.probe().hardware.peak_list}
    assert found["bf16.fp32"] == (700e9, "measured")


def test_an_unsteady_measurement_is_said(as_if: Callable[..., None]) -> None:
    as_if(read=Reading((40e9, 10e9, 10e9), 2, 2**28))
    with pytest.warns(RooflineWarning, match="read bandwidth: the median run is below 75% of the best"):
        assert rl.probe().hardware.memory_bandwidth_bytes_per_s == 40e9


def test_ids_are_not_those_of_other_devices() -> None:
    assert free_id("my-machine") == "my-machine"
    assert free_id("My Machine (2)") == "my-machine-2"
    assert free_id("AMD Ryzen 9 7950X") == "probed-amd-ryzen-9-7950x"
    assert free_id("¿?") == "computer"
    assert len(free_id("long " * 100)) <= 80


# --- what the system says


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def cpu_files(cpu: int, siblings: str, caches: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    base = f"sys/devices/system/cpu/cpu{cpu}"
    files = {f"{base}/topology/thread_siblings_list": siblings + "\n"}
    for index, (level, size, shared) in caches.items():
        files |= {f"{base}/cache/{index}/level": level, f"{base}/cache/{index}/size": size}
        files |= {f"{base}/cache/{index}/shared_cpu_list": shared, f"{base}/cache/{index}/type": "Unified"}
    return files


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two cores with two threads each, and a last-level cache a core."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(computer_module, "_allowed_cpus", lambda: [0, 1, 2, 3])
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t\t: fpu avx avx2 fma avx512f\n\n"
        "processor\t: 1\nmodel name\t: Another\n",
        "proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n",
    }
    for cpu, core in enumerate((0, 0, 1, 1)):
        shared = f"{2 * core}-{2 * core + 1}"
        files |= cpu_files(cpu, shared, {"index2": ("2", "1024K", shared), "index3": ("3", "16M", shared)})
    return write(tmp_path, files)


def test_linux(linux: Path) -> None:
    found = this_computer(linux)
    assert found.name == "Some CPU @ 2.50GHz"
    assert found.isa == ("avx512f", "avx2", "avx", "fma")
    assert (found.threads, found.cores) == (4, 2)
    assert found.cache_bytes == 32 * units.MIB
    assert (found.memory_bytes, found.available_bytes) == (16 * units.GIB, 8 * units.GIB)


def test_a_container_limits_what_counts(linux: Path) -> None:
    write(linux, {"sys/fs/cgroup/cpu.max": "150000 100000\n", "sys/fs/cgroup/memory.max": str(4 * units.GIB)})
    found = this_computer(linux)
    assert (found.threads, found.cores) == (2, 2)
    assert (found.memory_bytes, found.available_bytes) == (4 * units.GIB, 4 * units.GIB)
    write(linux, {"sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"})
    assert this_computer(linux).threads == 4
    assert this_computer(linux).memory_bytes == 16 * units.GIB


def test_a_system_that_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(computer_module, "_allowed_cpus", lambda: [0, 1])
    found = this_computer(tmp_path)
    assert found.name
    assert (found.isa, found.threads, found.cores) == ((), 2, 2)
    assert (found.cache_bytes, found.memory_bytes, found.available_bytes) == (None, None, None)


def test_a_board_without_a_model_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    files = {"proc/cpuinfo": "processor: 0\nFeatures\t: fp asimd asimddp\n", "proc/device-tree/model": "Some Board\0"}
    found = this_computer(write(tmp_path, files))
    assert (found.name, found.isa) == ("Some Board", ("asimd", "asimddp"))


def test_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "machdep.cpu.brand_string": b"Apple M3 Max\0",
        "hw.memsize": (64 * units.GIB).to_bytes(8, sys.byteorder),
        "hw.logicalcpu": (16).to_bytes(4, sys.byteorder),
        "hw.physicalcpu": (16).to_bytes(4, sys.byteorder),
        "hw.perflevel0.l2cachesize": (16 * units.MIB).to_bytes(8, sys.byteorder),
        "hw.perflevel1.l2cachesize": (4 * units.MIB).to_bytes(8, sys.byteorder),
        "hw.optional.arm.FEAT_DotProd": (1).to_bytes(4, sys.byteorder),
        "hw.optional.arm.FEAT_BF16": (0).to_bytes(4, sys.byteorder),
    }
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(computer_module, "_sysctl", values.get)
    found = this_computer()
    assert (found.name, found.isa) == ("Apple M3 Max", ("asimddp",))
    assert (found.threads, found.cores, found.cache_bytes) == (16, 16, 16 * units.MIB)
    assert (found.memory_bytes, found.available_bytes) == (64 * units.GIB, None)


def test_windows_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    found = this_computer()
    assert (found.memory_bytes, found.isa) == (None, ())
    assert found.cores == found.threads >= 1


# --- measuring


def test_counts_of_threads() -> None:
    assert speed.thread_counts(1, 1) == [1]
    assert speed.thread_counts(2, 2) == [1, 2]
    assert speed.thread_counts(6, 12) == [1, 2, 4, 6, 8, 12]


def test_the_array_is_beyond_the_cache_and_within_memory() -> None:
    assert speed.array_bytes(None, None) == 256 * units.MIB
    assert speed.array_bytes(512 * units.MIB, 64 * units.GIB) == 2 * units.GIB
    assert speed.array_bytes(32 * units.MIB, 512 * units.MIB) == 128 * units.MIB
    assert speed.array_bytes(2**40, 2**60) == speed.MOST_BYTES


def test_rates_are_of_the_whole_array() -> None:
    found = speed.read_bandwidth(cores=1, threads=2, size=units.MIB, seconds=0)
    assert found.threads in (1, 2)
    assert set(found.others) == {1, 2} - {found.threads}
    assert len(found.rates) == speed.LEAST_RUNS
    assert found.best == max(found.rates) >= found.median > 0


def test_durations_make_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    def durations(run: Callable[[], object], _seconds: float) -> Iterator[float]:
        for seconds in (0.5, 0.25):
            run()
            yield seconds

    monkeypatch.setattr(speed, "durations", durations)
    assert list(speed._read(2, units.MIB, 1)) == [2 * units.MIB, 4 * units.MIB]
    assert list(speed._multiply(64, 1)) == [2 * 64**3 / 0.5, 2 * 64**3 / 0.25]


def test_products_grow_while_there_is_time() -> None:
    assert speed.matmul_rate(0, largest=64, smallest=32).size == 32
    found = speed.matmul_rate(5, largest=64, smallest=32)
    assert {found.size, *found.others} == {32, 64}


def test_no_thread_stays_behind_an_interrupt() -> None:
    import threading

    before = threading.active_count()
    readings = speed._read(2, units.MIB, 60)
    next(readings)
    assert threading.active_count() == before + 2
    with pytest.raises(KeyboardInterrupt):
        readings.throw(KeyboardInterrupt)
    assert threading.active_count() == before


def test_too_little_memory_is_said(as_if: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    as_if()
    monkeypatch.undo()
    monkeypatch.setattr(probe_module, "this_computer", lambda: ZEN3)
    monkeypatch.setattr(speed, "thread_counts", lambda *_counts: [2])
    monkeypatch.setattr(speed, "array_bytes", lambda *_sizes: 2**62)
    with pytest.raises(InvalidRequest, match="too little memory") as caught:
        rl.probe()
    assert caught.value.next_step


def test_the_name_of_the_blas() -> None:
    assert speed.blas_name()


# --- a GPU

H200 = Gpu(
    name="NVIDIA H200",
    architecture="hopper",
    isa="sm_90",
    compute_units=132,
    memory_bytes=140 * units.GIB,
    available_bytes=139 * units.GIB,
    cache_bytes=60 * units.MIB,
    bandwidth=Reading((4.2e12, 4.1e12), None, 4 * units.GIB),
    peaks={
        "fp16.fp32": Reading((750e12,), None, 8192),
        "int8.int32": Reading((1400e12,), None, 8192),
        "fp32.fp32": Reading((50e12,), None, 8192),
    },
    software="PyTorch 2.9, CUDA 13.0",
)


def test_a_gpu_is_a_device(tmp_path: Path) -> None:
    found = Probe(gpu_entry(H200))
    file = tmp_path / "gpu.yaml"
    file.write_text(found.to_yaml(), encoding="utf-8")
    device = rl.hardware(file)
    assert device == found.hardware
    assert device.peaks == {"fp16.fp32": 750e12, "int8.int32": 1400e12, "fp32.fp32": 50e12}
    assert [device.peak_unit(key) for key in device.peaks] == ["matrix", "matrix", "vector"]
    rate = rl.estimate("llama-3.1-8b", file).decode.tokens_per_s
    assert 0 < rate.expected <= rate.ideal


def test_a_gpu_needs_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(InvalidRequest, match="PyTorch, which is not installed") as caught:
        rl.probe(device="cuda")
    assert caught.value.next_step
    assert torch_speed.bf16_on_cpu(0.01) is None


# --- what is typed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": "10"}, "seconds"),
        ({"threads": 0}, "threads"),
        ({"threads": -1}, "threads"),
        ({"threads": 1.5}, "threads"),
        ({"threads": True}, "threads"),
        ({"threads": 9}, "threads"),
        ({"device": "tpu"}, "device"),
        ({"device": "cuda", "threads": 2}, "threads"),
    ],
)
def test_impossible_arguments(as_if: Callable[..., None], arguments: dict[str, Any], named: str) -> None:
    as_if()
    with pytest.raises(InvalidRequest) as caught:
        rl.probe(**arguments)
    assert caught.value.where == named


def test_fewer_threads_than_blas_has_taken(as_if: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    as_if()
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    with pytest.raises(InvalidRequest, match="cannot be held to 2 threads"):
        rl.probe(threads=2)
    assert rl.probe(threads=8).hardware.compute_units == 4


def test_blas_is_told_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.setattr("builtins.__import__", lambda name, *_rest: sys.modules.setdefault(name, numpy))
    with blas_threads(3, needed=True):
        assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "3"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


# --- the command


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, as_if: Callable[..., None]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    as_if()


@pytest.mark.usefixtures("plain")
def test_the_command_writes_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my-machine.yaml"
    assert main(["probe", "-o", str(file)]) == 0
    shown, said = capsys.readouterr()
    assert said == ""
    assert "AMD EPYC 7763 64-Core Processor, 4 cores" in shown
    assert re.search(r"read bandwidth +40\.0 +GB/s +measured\n", shown)
    assert re.search(r"last-level cache +32\.0 +MiB +measured\n", shown)
    assert f"rooflinellm estimate llama-3.2-3b {file} --engine llama.cpp:cpu" in shown
    assert rl.hardware(file).id == "my-machine"
    assert [each.name for each in tmp_path.iterdir()] == ["my-machine.yaml"]
    assert main(["estimate", "llama-3.2-3b", str(file), "--engine", "llama.cpp:cpu"]) == 0
    assert main(["hardware", "show", str(file)]) == 0
    assert "numpy.bitwise_or.reduce" in capsys.readouterr().out


@pytest.mark.usefixtures("plain")
def test_without_a_file_it_says_how_to_keep_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 0
    assert "rooflinellm probe -o my-machine.yaml" in capsys.readouterr().out


@pytest.mark.usefixtures("plain")
def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my-machine.yaml"
    assert main(["probe", "--json", "-o", str(file)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"schema_version", "rooflinellm_version", "data_version"} <= answer.keys()
    assert answer["memory_bandwidth_bytes_per_s"] == 40e9
    assert answer["peaks_flop_per_s"] == {"fp32.fp32": 400e9, "int8.int32": 800e9}
    assert answer["usable_bytes"] == 30 * units.GIB
    assert answer["file"] == str(file)
    assert {each["evidence"] for each in answer["values"]} == {"measured", "derived"}
    for form in ("csv", "md"):
        assert main(["probe", "--format", form]) == 0
        assert "read bandwidth" in capsys.readouterr().out


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "there.yaml"], "'there.yaml' is there already"),
        (["-o", "machine.json"], "ends in none of .yaml, .yml"),
        (["-o", "nowhere/machine.yaml"], "which is no folder"),
        (["-o", "."], "is a folder"),
        (["--threads", "0"], "--threads"),
        (["--threads", "9"], "there are 8"),
        (["--threads", "many"], "--threads"),
        (["--seconds", "-1"], "--seconds"),
        (["--device", "tpu"], "--device"),
    ],
)
def test_what_cannot_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.yaml").write_text("kept", encoding="utf-8")
    assert main(["probe", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert [each.name for each in tmp_path.iterdir()] == ["there.yaml"]
    assert (tmp_path / "there.yaml").read_text(encoding="utf-8") == "kept"


@pytest.mark.usefixtures("plain")
def test_a_folder_that_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda *_arguments: False)
    assert main(["probe", "-o", str(tmp_path / "machine.yaml")]) == 2
    assert "not yours to write in" in capsys.readouterr().err


@pytest.mark.usefixtures("plain")
def test_force_replaces(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text("old", encoding="utf-8")
    assert main(["probe", "-o", str(file), "--force"]) == 0
    assert rl.hardware(file).id == "machine"


@pytest.mark.usefixtures("plain")
def test_an_interrupt_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object) -> Reading:
        raise KeyboardInterrupt

    monkeypatch.setattr(speed, "matmul_rate", interrupted)
    assert main(["probe", "-o", str(tmp_path / "machine.yaml")]) == INTERRUPTED
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in capsys.readouterr().err
