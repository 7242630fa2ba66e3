"""Probe this computer, predict llama.cpp on it, run llama.cpp, and compare: the whole way that a user goes.

Not a test: it takes a quarter of an hour and about 15 GB of disk. It needs

- an installed `rooflinellm`, and the packages `gguf` and `xllamacpp` (llama.cpp in a wheel);
- a computer that does nothing else: llama.cpp's threads wait for each other, and a busy core stops them all. The script
  waits for idle processors before each run (Linux), for `--patience` seconds at most.

    python tests/benchmarks/llama_cpp_trial.py --folder trial

Files of random weights in three shapes and four formats are made in the folder if they are not there. Each is timed as
llama-bench does, by the best of several runs: a prompt of so many tokens, and so many tokens after a short one. The
server inside `xllamacpp` is used, whose times contain a sampled token's argmax and little else.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

PROMPT, SHORT_PROMPT, ANSWER = 128, 8, 33
"""Tokens of the prompt whose prefill is timed; of the prompt before decode, and of the answer."""
TARGETS = {"decode": 0.20, "prefill": 0.30}
"""Errors aimed at."""
BUSY = 0.10
"""Share of the processors' time that others may take before a run. [-]"""


@dataclass(frozen=True)
class Timed:
    """Best and median rate of a file. [token/s]"""

    prefill: float
    decode: float
    prefill_median: float
    decode_median: float


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


def time_file(path: Path, threads: int, repeats: int, patience: float) -> Timed:
    """Rates of one file, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_time_file, (path, threads, repeats, patience))


def _time_file(path: Path, threads: int, repeats: int, patience: float) -> Timed:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 512, 1, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)

    def run(prompt: int, answer: int) -> dict[str, float]:
        wait_for_idle(patience)
        request = {
            "prompt": [random.randrange(300, 32_000) for _ in range(prompt)],  # never one that is cached
            "n_predict": answer,
            "cache_prompt": False,
            "ignore_eos": True,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        reply: Any = server.handle_completions(request)
        timings = (json.loads(reply) if isinstance(reply, str) else reply)["timings"]
        assert isinstance(timings, dict)
        return timings

    prefill = [run(PROMPT, 1)["prompt_per_second"] for _ in range(repeats)]
    # A token more than the steps that are timed: the first comes from the prompt.
    decode = [1000 / run(SHORT_PROMPT, ANSWER)["predicted_per_token_ms"] for _ in range(repeats)]
    return Timed(max(prefill), max(decode), statistics.median(prefill), statistics.median(decode))


def main() -> None:
    """Run the trial and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("trial"))
    parser.add_argument("--device", type=Path, help="a device file; probed if it is not given")
    parser.add_argument("--seconds", type=float, default=30, help="time of the probe")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for idle processors before a run")
    parser.add_argument("--formats", default="F16,Q8_0,Q4_0,Q4_K")
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

    print("| shape | format | GB | phase | measured | median run | expected | low–high | ideal | error |")
    print("| --- | --- | --: | --- | --: | --: | --: | --: | --: | --: |", flush=True)
    errors: dict[str, list[float]] = {phase: [] for phase in TARGETS}
    for shape in random_gguf.SHAPES:
        for form in arguments.formats.split(","):
            path = arguments.folder / f"{shape.name}-{form}.gguf"
            if not path.exists():
                random_gguf.write(path, shape, form)
            size = path.stat().st_size / 1e9
            if size > arguments.largest_gb:
                continue
            timed = time_file(path, threads, arguments.repeats, arguments.patience)
            answers = {
                "prefill": rl.estimate(path, device, engine="llama.cpp:cpu", prompt_tokens=PROMPT, output_tokens=1),
                "decode": rl.estimate(
                    path, device, engine="llama.cpp:cpu", prompt_tokens=SHORT_PROMPT, output_tokens=ANSWER
                ),
            }
            for phase, answer in answers.items():
                rate = getattr(answer, phase).tokens_per_s
                measured, middle = getattr(timed, phase), getattr(timed, f"{phase}_median")
                error = rate.expected / measured - 1
                errors[phase].append(error)
                print(
                    f"| {shape.name} | {form} | {size:.2f} | {phase} | {measured:.1f} | {middle:.1f}"
                    f" | {rate.expected:.1f} | {rate.low:.1f}–{rate.high:.1f} | {rate.ideal:.1f} | {error:+.0%} |",
                    flush=True,
                )
    print()
    for phase, target in TARGETS.items():
        sizes = [abs(error) for error in errors[phase]]
        within = sum(size <= target for size in sizes)
        print(
            f"{phase}: {within} of {len(sizes)} within {target:.0%}; median error {statistics.median(sizes):.0%},"
            f" median bias {statistics.median(errors[phase]):+.0%}"
        )


if __name__ == "__main__":
    main()
