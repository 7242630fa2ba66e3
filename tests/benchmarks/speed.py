"""How fast rooflinellm is. Not part of the tests, which time nothing:

    pip install -e ".[bench]"
    python -m pytest tests/benchmarks/speed.py

The best of several rounds is the figure to compare; nothing else should run beside it.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import rooflinellm as rl

pytest.importorskip("pytest_benchmark", reason='needs pytest-benchmark: pip install "rooflinellm[bench]"')

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3")
"""Dense, a mixture, sliding windows, latent attention."""
CARD = "rtx-4090"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rl.RooflineWarning)
        yield


def _read_all(found: Any) -> None:
    """Read what an estimate computes when it is asked for."""
    for phase in (found.prefill, found.decode):
        assert phase.operators and phase.by_place
        assert phase.mfu >= 0
    assert found.memory.max_context_tokens is not None
    assert found.memory.max_batch is not None


@pytest.mark.parametrize("model", MODELS)
def test_warm_estimate(benchmark: Any, model: str) -> None:
    """One estimate with everything read, its plan compiled before."""
    benchmark(lambda: _read_all(rl.estimate(model, CARD)))


@pytest.mark.parametrize("model", MODELS)
def test_sweep(benchmark: Any, model: str) -> None:
    """250,000 points of context and batch; the points of a second are in the last column of ``extra_info``."""
    axes = {"context_tokens": np.arange(500) * 100, "batch": np.arange(1, 501)}
    found = benchmark.pedantic(rl.sweep, (model, CARD), axes, rounds=7, warmup_rounds=1)
    benchmark.extra_info["points_per_s"] = found.size / benchmark.stats.stats.min


def test_sweep_in_blocks(benchmark: Any) -> None:
    """Two million points, part after part."""

    def run() -> int:
        parts = rl.sweep_blocks(MODELS[0], CARD, context_tokens=range(0, 130_000, 26), batch=range(1, 401))
        return sum(part.size for part in parts)

    points = benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    assert points == 2_000_000
    benchmark.extra_info["points_per_s"] = points / benchmark.stats.stats.min


def test_ten_thousand_pairs(benchmark: Any) -> None:
    """A hundred models on a hundred devices, each pair once: no plan is known before."""
    models, devices = ([entry.id for entry in entries[::3]][:100] for entries in (rl.list_models(), rl.list_hardware()))

    def run() -> int:
        answered = 0
        for model, device in product(models, devices):
            try:
                rl.estimate(model, device)
                answered += 1
            except rl.RooflineError:  # the engine does not run there
                continue
        return answered

    assert benchmark.pedantic(run, rounds=1) > 9_000


def _process(code: list[str]) -> Callable[[], None]:
    """Run Python on its own."""
    return lambda: subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL).check_returncode()


PROCESSES = {
    "bare Python": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import rooflinellm": ["-c", "import rooflinellm"],
    "estimate": ["-m", "rooflinellm", "estimate", MODELS[0], CARD],
    "hardware list": ["-m", "rooflinellm", "hardware", "list"],
}


@pytest.mark.parametrize("name", PROCESSES)
def test_process(benchmark: Any, name: str) -> None:
    """From start to end of a process."""
    benchmark.pedantic(_process(PROCESSES[name]), rounds=10, warmup_rounds=1)


def test_load_all_devices(benchmark: Any) -> None:
    """Read and validate every device of the database, in a process that has read none."""
    code = (
        "import time, rooflinellm as rl\n"
        "names = [entry.id for entry in rl.list_hardware()]\n"
        "start = time.perf_counter()\n"
        "for name in names: rl.hardware(name)\n"
        "print(time.perf_counter() - start)"
    )

    def run() -> float:
        return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)

    seconds = [run() for _ in range(7)]
    benchmark.pedantic(run, rounds=1)
    benchmark.extra_info["load_s"] = min(seconds)
