"""Five hundred answers, kept: what changes them shows by how much.

    python tests/snapshot/snapshot.py            # what differs from the kept answers
    python tests/snapshot/snapshot.py --update   # keep the answers of now

The cases stand here, the answers in `estimates.csv`: seconds of prefill and of an output token, each ideal, expected,
low and high, and bytes in all. A fit of the efficiency profiles changes what is expected and no ideal; say in the
commit what changed and why.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
import warnings
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("estimates.csv")
ENDS = ("ideal", "expected", "low", "high")
VALUES = (*(f"{phase}_{end}_s" for phase in ("prefill", "tpot") for end in ENDS), "total_bytes")
HEADER = ("model", "hardware", "request", *VALUES, "error")
TOLERANCE = 1e-9
COUNT = 500
Case = tuple[str, str, dict[str, Any]]

# Dense, windows, mixtures, latent and linear attention, state spaces; small to very large.
MODELS = (
    *("llama-3.1-8b", "qwen3-0.6b", "gemma-3-27b", "gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b", "llama-3.3-70b"),
    *("deepseek-v3", "qwen3-next-80b-a3b", "gpt-oss-120b", "mistral-7b-v0.1", "deepseek-v2-lite", "gemma-2-9b"),
)
LOCAL = (
    *("rtx-4090", "rtx-3090", "rtx-5090", "tesla-p40", "rx-7900-xtx", "arc-b580", "m3-max-40c", "apple-m2-ultra-76c"),
    *("strix-halo", "dgx-spark", "7950x", "2x rtx-3090", "24GiB,1000GB/s,100TFLOP/s@fp16"),
)
SERVERS = ("h100-sxm", "nvidia-h200-sxm-141gb", "mi300x", "a100-sxm-80gb", "l40s", "b200", "rtx-4090")
LLAMA_FORMATS = ("Q4_K_M", "Q8_0", "Q4_0", "IQ2_XXS", "F16", "Q6_K", "MXFP4")
VLLM_FORMATS = ("bf16", "fp8", "awq", None)
REQUESTS: tuple[dict[str, Any], ...] = (
    {},
    {"prompt_tokens": 4096, "output_tokens": 256},
    {"batch": 8},
    {"context_tokens": 16_384, "prompt_tokens": 100},
    {"batch": 32, "prompt_tokens": 1024, "context_limit": 4096},
    {"prompt_tokens": 0, "context_tokens": 2000, "output_tokens": 64},
    {"prompt_tokens": 9000, "cached_tokens": 8000, "output_tokens": 1},
    {"prompt_tokens": 1, "output_tokens": 1},
    {"prompt_tokens": 2000, "prefill_chunk": 256, "kv": "q8_0"},
)
HOSTS = ("rtx-4090 + ddr5-5600x2@96GiB", "rtx-3090 + 7950x + ddr5-6000x2@128GiB", "2x rtx-3090 + ddr4-3200x8@512GiB")


def cases() -> Iterator[Case]:
    """The requests, the same in the same order each time."""
    found: list[Case] = []
    formats, requests = cycle(LLAMA_FORMATS), cycle(REQUESTS)
    for model in MODELS:
        for hardware in LOCAL:
            found.append((model, hardware, {"weights": next(formats), "engine": "llama.cpp", **next(requests)}))
    formats, requests = cycle(VLLM_FORMATS), cycle(request for request in REQUESTS if "kv" not in request)
    for model in MODELS:
        for hardware in SERVERS:
            engine = {"weights": next(formats), "engine": ("vllm", "sglang", "tensorrt-llm")[len(found) % 3]}
            found.append((model, hardware, {**engine, **next(requests)}))
    for model in ("gpt-oss-120b", "qwen3-30b-a3b", "llama-3.3-70b", "deepseek-v3", "mixtral-8x7b"):
        for hardware in HOSTS:
            placed: tuple[dict[str, Any], ...] = ({}, {"gpu_layers": 12}, {"gpu_layers": 0, "batch": 4})
            moe: tuple[dict[str, Any], ...] = ({"cpu_moe_layers": 20, "prompt_tokens": 3000},)
            for request in (*placed, *(moe if model != "llama-3.3-70b" else ())):
                found.append((model, hardware, {"weights": "Q4_K_M", **request}))
    for model, degrees in (
        ("llama-3.3-70b", ({"tensor_parallel": 8}, {"tensor_parallel": 4, "pipeline_parallel": 2})),
        ("deepseek-v3", ({"tensor_parallel": 8}, {"tensor_parallel": 8, "expert_parallel": 8})),
        ("gpt-oss-120b", ({"data_parallel": 8, "expert_parallel": 8}, {"tensor_parallel": 2, "data_parallel": 4})),
    ):
        for hardware in ("8x h100-sxm", "8x mi300x", "8x b200"):
            for degree in degrees:
                for batch in (1, 64):
                    found.append((model, hardware, {"engine": "vllm", **degree, "batch": batch}))
    for hardware in ("rtx-4090", "h100-sxm", "m3-max-40c", "mi300x"):
        for model, draft in (
            ("llama-3.1-8b", "llama-3.2-1b"),
            ("qwen3-30b-a3b", "qwen3-0.6b"),
            ("qwen3-30b-a3b", None),
        ):
            for tokens, acceptance in ((4, 0.7), (8, {"length": 3.1}), (3, [0.8, 0.6, 0.4])):
                found.append((model, hardware, {"draft": draft, "draft_tokens": tokens, "acceptance": acceptance}))
    for hardware in LOCAL[:9]:
        for model in MODELS:
            found.append(
                (model, hardware, {"weights": "Q5_K_M", "batch": 3, "prompt_tokens": 777, "output_tokens": 33})
            )
    yield from found[:COUNT]


def answer(case: Case) -> dict[str, Any]:
    """The row of a case."""
    import rooflinellm as rl

    model, hardware, request = case
    row: dict[str, Any] = {"model": model, "hardware": hardware, "request": json.dumps(request)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rl.RooflineWarning)
        try:
            found = rl.estimate(model, hardware, **request)
        except (rl.MissingSpec, rl.InvalidRequest) as error:
            return row | {"error": type(error).__name__}
    for name, prediction in (("prefill", found.prefill.time_s), ("tpot", found.tpot_s)):
        row |= {f"{name}_{end}_s": float(f"{getattr(prediction, end):.12g}") for end in ENDS}
    return row | {"total_bytes": int(found.memory.total_bytes), "error": ""}


def kept() -> list[dict[str, Any]]:
    """The rows of the file."""
    with FILE.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [
        {
            name: text if name in ("model", "hardware", "request", "error") else float(text)
            for name, text in row.items()
            if text
        }
        for row in rows
    ]


def change(old: dict[str, Any], new: dict[str, Any]) -> float:
    """The largest relative change of a row's values; infinite where an answer became an error, or the reverse."""
    if old.get("error", "") != new.get("error", ""):
        return math.inf
    found = 0.0
    for name in VALUES:
        before, after = old.get(name, 0.0), new.get(name, 0.0)
        if before != after:
            found = max(found, abs(after - before) / before if before else math.inf)
    return found


def difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    """What changed, in a few lines; empty where nothing did."""
    keys = [[tuple(row[name] for name in HEADER[:3]) for row in rows] for rows in (old, new)]
    if keys[0] != keys[1]:
        return (
            f"the cases changed: {len(set(keys[0]) ^ set(keys[1]))} of them are in one list only, or the order differs"
        )
    changes = [(change(*pair), *pair) for pair in zip(old, new, strict=True)]
    moved = sorted((each for each in changes if each[0] > TOLERANCE), key=lambda each: -each[0])
    if not moved:
        return ""
    sizes = [each[0] for each in moved]
    median = statistics.median(sizes)
    lines = [f"{len(moved)} of {len(new)} answers changed: median {median:.2g}, largest {sizes[0]:.2g} (relative)"]
    for kind in ("ideal", "expected", "total_bytes"):
        names = [name for name in VALUES if kind in name]
        count = sum(any(row.get(name) != after.get(name) for name in names) for _, row, after in moved)
        lines.append(f"  {kind}: {count} of them")
    for size, row, after in moved[:5]:
        lines.append(f"  {size:.2g}: {row['model']} on {row['hardware']}, {row['request']}")
        lines += [
            f"      {name}: {row.get(name)} -> {after.get(name)}"
            for name in (*VALUES, "error")
            if row.get(name) != after.get(name)
        ]
    lines.append("If that is meant: python tests/snapshot/snapshot.py --update")
    return "\n".join(lines)


def main() -> int:
    """Say what changed; with ``--update`` keep it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    new = [answer(case) for case in cases()]
    said = difference(kept(), new) if FILE.exists() else f"{len(new)} new answers"
    print(said or "nothing changed")
    if "--update" in sys.argv[1:]:
        with FILE.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, HEADER, lineterminator="\n", restval="")
            writer.writeheader()
            writer.writerows(new)
        return 0
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
