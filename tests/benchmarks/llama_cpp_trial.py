"""Probe this computer, predict llama.cpp on it, run llama.cpp, and compare: the whole way that a user goes.

Not a test: it takes a quarter of an hour and about 15 GB of disk. It needs

- an installed `rooflinellm`, and the packages `gguf` and `xllamacpp` (llama.cpp in a wheel);
- a computer that does nothing else: llama.cpp's threads wait for each other, and a busy core stops them all. The script
  waits for idle processors before each run (Linux), for `--patience` seconds at most.

    python tests/benchmarks/llama_cpp_trial.py --folder trial

Files of random weights in three shapes and four formats are made in the folder if they are not there. Each is timed as
llama-bench does, by the best of several runs that nothing disturbed: a prompt, and tokens after a short one. The server
inside `xllamacpp` is used, whose times contain a sampled token's argmax and little else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

SHORT_PROMPT, ANSWER = 8, 33
"""Tokens of the prompt before decode, and of the answer."""
TARGETS = {"decode": 0.20, "prefill": 0.30}
"""Errors aimed at."""
BUSY = 0.10
"""Share of the processors' time that other processes may take before and during a run. [-]"""
ATTEMPTS = 3
"""Runs at most, over those that are wanted undisturbed. [-]"""


@dataclass(frozen=True)
class Rates:
    """Best and median rate [token/s] of the runs that no other process disturbed, and how many these are.

    Of all runs where each was disturbed.
    """

    best: float
    median: float
    quiet: int


@dataclass(frozen=True)
class Timed:
    """The phases of a file."""

    prefill: Rates
    decode: Rates


def wait_for_idle(patience: float) -> None:
    """Wait until the processors have been idle for a second, or patience ends. [s]"""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = _busy_and_total()
        time.sleep(1)
        after = _busy_and_total()
        if before is None or after is None or after[0] - before[0] <= BUSY * (after[1] - before[1]):
            return


def _busy_and_total() -> tuple[int, int] | None:
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    counts = [int(part) for part in first.split()[1:9]]
    return sum(counts) - counts[3] - counts[4], sum(counts)


def time_file(path: Path, prompt: int, threads: int, repeats: int, patience: float) -> Timed:
    """Rates of one file, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_time_file, (path, prompt, threads, repeats, patience))


def _time_file(path: Path, prompt_tokens: int, threads: int, repeats: int, patience: float) -> Timed:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = prompt_tokens + 256, 1, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)

    def run(prompt: int, answer: int) -> tuple[dict[str, float], bool]:
        """Times, and whether no other process disturbed them."""
        wait_for_idle(patience)
        request = {
            "prompt": [random.randrange(300, 32_000) for _ in range(prompt)],  # never one that is cached
            "n_predict": answer,
            "cache_prompt": False,
            "ignore_eos": True,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        before, own = _busy_and_total(), _own_ticks()
        reply: Any = server.handle_completions(request)
        after, own = _busy_and_total(), _own_ticks() - own
        timings = (json.loads(reply) if isinstance(reply, str) else reply)["timings"]
        assert isinstance(timings, dict)
        if before is None or after is None:
            return timings, True
        return timings, after[0] - before[0] - own <= BUSY * (after[1] - before[1])

    def rates(prompt: int, answer: int, rate: Callable[[dict[str, float]], float]) -> Rates:
        quiet, disturbed = [], []
        while len(quiet) < repeats and len(quiet) + len(disturbed) < ATTEMPTS * repeats:
            timings, undisturbed = run(prompt, answer)
            (quiet if undisturbed else disturbed).append(rate(timings))
        return Rates(max(quiet or disturbed), statistics.median(quiet or disturbed), len(quiet))

    return Timed(
        prefill=rates(prompt_tokens, 1, lambda timings: timings["prompt_per_second"]),
        # A token more than the steps that are timed: the first comes from the prompt.
        decode=rates(SHORT_PROMPT, ANSWER, lambda timings: 1000 / timings["predicted_per_token_ms"]),
    )


def _own_ticks() -> float:
    times = os.times()
    return (times.user + times.system) * os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.0


def main() -> None:
    """Run the trial and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("trial"))
    parser.add_argument("--device", type=Path, help="a device file; probed if it is not given")
    parser.add_argument("--seconds", type=float, default=30, help="time of the probe")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for idle processors before a run")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt whose prefill is timed")
    parser.add_argument("--formats", default="F16,Q8_0,Q4_0,Q4_K")
    parser.add_argument("--shapes", default="0.4b,1.1b,3.0b")
    parser.add_argument("--largest-gb", type=float, default=8, help="leave out larger files")
    arguments = parser.parse_args()

    import random_gguf

    import rooflinellm as rl

    arguments.folder.mkdir(exist_ok=True)
    device = arguments.device
    if device is None:
        device = arguments.folder / "my-machine.yaml"
        wait_for_idle(arguments.patience)
        found = rl.probe(seconds=arguments.seconds, id="my-machine")
        device.write_text(found.to_yaml(), encoding="utf-8")
        print(found, "\n")
    threads = rl.hardware(device).compute_units or os.cpu_count() or 1

    print("| shape | format | GB | phase | measured | median run | quiet runs | expected | low–high | ideal | error |")
    print("| --- | --- | --: | --- | --: | --: | --: | --: | --: | --: | --: |", flush=True)
    errors: dict[str, list[float]] = {phase: [] for phase in TARGETS}
    for shape in (each for each in random_gguf.SHAPES if each.name in arguments.shapes.split(",")):
        for form in arguments.formats.split(","):
            path = arguments.folder / f"{shape.name}-{form}.gguf"
            if not path.exists():
                random_gguf.write(path, shape, form)
            size = path.stat().st_size / 1e9
            if size > arguments.largest_gb:
                continue
            timed = time_file(path, arguments.prompt, threads, arguments.repeats, arguments.patience)
            for phase, (prompt, answer) in {"prefill": (arguments.prompt, 1), "decode": (SHORT_PROMPT, ANSWER)}.items():
                estimate = rl.estimate(path, device, engine="llama.cpp:cpu", prompt_tokens=prompt, output_tokens=answer)
                rate = getattr(estimate, phase).tokens_per_s
                found: Rates = getattr(timed, phase)
                error = rate.expected / found.best - 1
                if found.quiet:  # a run among others says nothing
                    errors[phase].append(error)
                print(
                    f"| {shape.name} | {form} | {size:.2f} | {phase} | {found.best:.1f} | {found.median:.1f}"
                    f" | {found.quiet} | {rate.expected:.1f} | {rate.low:.1f}–{rate.high:.1f} | {rate.ideal:.1f}"
                    f" | {error:+.0%} |",
                    flush=True,
                )
    print()
    for phase, target in TARGETS.items():
        sizes = [abs(error) for error in errors[phase]]
        if not sizes:
            continue
        within = sum(size <= target for size in sizes)
        print(
            f"{phase}: {within} of {len(sizes)} within {target:.0%}; median error {statistics.median(sizes):.0%},"
            f" median bias {statistics.median(errors[phase]):+.0%}"
        )


if __name__ == "__main__":
    main()
