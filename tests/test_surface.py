"""The whole public surface: whatever is given, the answer is finite and ordered, or a `RooflineError`.

``ROOFLINELLM_SURFACE_EXAMPLES`` sets how many calls each function gets; each of its arguments meets each value of
`HOSTILE` when the number is large.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflinellm as rl

EXAMPLES = int(os.environ.get("ROOFLINELLM_SURFACE_EXAMPLES", "60"))
MODEL, DEVICE = "qwen3-0.6b", "rtx-4090"


class Broken:
    """An object whose every protocol fails."""

    def __bool__(self) -> bool:
        raise rl.InvalidRequest("no truth")

    def __repr__(self) -> str:
        return "broken"


HOSTILE: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 1.5, -0.0, 1e-300, 1e308, math.nan, math.inf, -math.inf, 2**31, 10**18),
    *(10**400, -(10**400), 10**5000, "", " ", "many", "1", "\0", "\udc80", "x" * 3000, "a,b", "../x", "~", ".", "/"),
    *(b"x", [], [1, 2], [1.5, None], [[1], [1, 2]], [math.nan], ["a"], (), (1,), {}, {"a": 1}, {1: 2}, {"a": object()}),
    *(object(), Broken(), lambda: 1, range(3), {1, 2}, iter(()), type, Ellipsis, 1j, Decimal("NaN"), Decimal(3)),
    *(
        Fraction(1, 3),
        np.array([]),
        np.array([1, 2]),
        np.array([[1, 2], [3, 4]]),
        np.array(["a"]),
        np.array([math.nan]),
    ),
    *(np.int64(5), np.float32(2.5), np.array(7), np.datetime64("2024-01-01"), np.array([None]), Path("."), Path("/")),
    *(DEVICE, MODEL, "Q8_0", "vllm", "8x h100-sxm", rl.Options(), rl.Options(must_fit=True)),
)


def small(**others: Any) -> dict[str, Any]:
    return {"weights": "Q8_0", "engine": "llama.cpp", **others}


REQUEST = {
    "kv", "prompt_tokens", "output_tokens", "cached_tokens", "context_tokens", "context_limit", "batch",
    "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel", "gpu_layers", "cpu_moe_layers", "draft",
    "draft_tokens", "acceptance", "prefill_chunk", "queue_s", "tokenize_s", "options", "overrides",
}  # fmt: skip


def _launch(**named: Any) -> Any:
    return rl.launch_command(rl.estimate(MODEL, DEVICE, **named))


def _options(**named: Any) -> Any:
    return rl.estimate(MODEL, "2x rtx-3090 + ddr5-5600x2@64GiB", options=rl.Options(**named))


# A function, the arguments of a call that is answered, and how many times as long as an estimate it takes.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
    "estimate": (rl.estimate, {"model": MODEL, "hardware": DEVICE, **small()}, 1),
    "estimate of arrays": (
        rl.estimate,
        {"model": MODEL, "hardware": DEVICE, **small(prompt_tokens=[1, 500], batch=np.array([[1], [4]]))},
        2,
    ),
    "sweep": (rl.sweep, {"models": MODEL, "hardware": DEVICE, **small(context_tokens=[0, 100])}, 2),
    "compare": (rl.compare, {"model": MODEL, "hardware": [DEVICE, "rtx-3090"], **small(prompt_tokens=[10, 99])}, 3),
    "fit": (rl.fit, {"model": MODEL, "hardware": DEVICE, **small(context_limit=512, batch=1)}, 10),
    "fit_models": (
        rl.fit_models,
        {
            "hardware": DEVICE, "models": [MODEL], "query": "", "context_limit": 512, "prompt_tokens": 100, "batch": 1,
            "min_bits_per_weight": 4.0, **small(),
        },
        100,
    ),
    "recommend": (
        rl.recommend,
        {
            "model": MODEL, "hardware": [DEVICE], "min_tokens_per_s": 10.0, "context": 512, "max_ttft_s": 5.0,
            "max_power_w": 500, "prompt_tokens": 100, "prices": {DEVICE: 1.0}, "budget": 9.0, **small(),
        },
        5,
    ),
    "sensitivity": (rl.sensitivity, {"model": MODEL, "hardware": DEVICE, "with_swaps": False, **small()}, 10),
    "check_claim": (
        rl.check_claim,
        {"model": MODEL, "hardware": DEVICE, "tokens_per_s": 100.0, "phase": "decode", **small(), "speculation": None},
        5,
    ),
    "simulate_load": (
        rl.simulate_load,
        {
            "model": MODEL, "hardware": DEVICE, "rate": 2.0, "requests": 10, "prompt_tokens": 100, "output_tokens": 10,
            "seed": 0, **small(), "trace": None, "think_s": 0.0, "max_ttft_s": 1.0, "max_sequences": 4,
            "concurrency": None, "chunked_prefill": True, "price_per_hour": 1.0,
        },
        8,
    ),
    "questions": (rl.questions, {"model": MODEL, "hardware": DEVICE, **small(prompts=[64], contexts=[0, 512])}, 3),
    "prefix_cache": (
        rl.prefix_cache,
        {"model": MODEL, "hardware": DEVICE, "turns": [(100, 10), {"new_tokens": 5}], **small()},
        4,
    ),
    "largest_batch": (
        rl.largest_batch,
        {"model": MODEL, "hardware": DEVICE, **small(max_tpot_s=0.1, max_ttft_s=2.0, at="expected")},
        20,
    ),
    "mixed_step": (
        rl.mixed_step,
        {
            "model": MODEL, "hardware": DEVICE, "contexts": [10, 20], "chunk_tokens": 64,
            "chunk_context": 0, "last_chunk": True, **small(),
        },
        2,
    ),
    "chunked_prefill": (
        rl.chunked_prefill,
        {"model": MODEL, "hardware": DEVICE, **small(prompt_tokens=600, contexts=[10, 20], budgets=[128, 256])},
        5,
    ),
    "from_command": (rl.from_command, {"text": "llama-server -m x-Q8_0.gguf -c 4096", "model": MODEL}, 1),
    "launch_command": (_launch, small(prompt_tokens=10, batch=1), 1),
    "options": (_options, {each.name: each.default for each in fields(rl.Options)}, 1),
    "model": (rl.model, {"name": MODEL}, 1),
    "hardware": (rl.hardware, {"name": DEVICE}, 1),
    "system": (rl.system, {"text": "2x rtx-3090 + ddr5-5600x2@64GiB"}, 1),
    "list_hardware": (rl.list_hardware, {"query": "rtx"}, 5),
    "list_models": (rl.list_models, {"query": "qwen3"}, 5),
    "list_formats": (rl.list_formats, {"query": "q8"}, 5),
    "sweep_blocks": (
        lambda **call: list(rl.sweep_blocks(**call)),
        {"models": MODEL, "hardware": DEVICE, "block_points": 2, **small(context_tokens=[0, 100, 200])},
        2,
    ),
    "parallel_choices": (rl.parallel_choices, {"model": MODEL, "hardware": f"2x {DEVICE}"}, 1),
    "best_parallel": (
        rl.best_parallel,
        {
            "model": MODEL, "hardware": f"2x {DEVICE}", "weights": "bf16", "engine": "vllm", "batches": (1, 4),
            "max_ttft_s": 5.0, "max_tpot_s": 1.0, "at": "expected", "parallel": "all",
        },
        10,
    ),
    "disaggregated": (
        rl.disaggregated,
        {
            "model": MODEL, "prefill_hardware": DEVICE, "decode_hardware": DEVICE, "weights": "bf16", "engine": "vllm",
            "link": "400gbe", "overlap": True, "prefill": None, "decode": None, "prefill_batch": 1,
        },
        3,
    ),
    "kernel_time": (
        rl.kernel_time,
        {"operator": "gemm", "hardware": "h100-sxm", "precision": "bf16", "library": "vllm", "m": 16, "n": 64, "k": 64},
        1,
    ),
    "validate_kernels": (rl.validate_kernels, {"file": None, "profile": None, "leave_out": None}, 300),
    "calibrate_kernels": (rl.calibrate_kernels, {"file": "/dev/null", "profile_id": "own"}, 300),
    "validate": (rl.validate, {"files": [], "quality": "A", "leave_out": None, "model": None, "profile": None}, 10),
    "calibrate": (rl.calibrate, {"files": [], "quality": "A", "profile_id": "own", "hardware": None}, 10),
    "report": (
        rl.report,
        {"model": MODEL, "hardware": DEVICE, **small(prompts=[64], context=[512], date="2026-01-01")},
        300,
    ),
}  # fmt: skip
TAKE_REQUESTS = {
    *("estimate", "sweep", "compare", "sensitivity", "questions", "prefix_cache", "largest_batch", "mixed_step"),
    *("chunked_prefill", "check_claim", "fit", "simulate_load", "launch_command"),
}


def variations(name: str, count: int) -> Iterator[dict[str, Any]]:
    """Calls with one or two arguments replaced; each argument with each value, in an order that is shuffled once."""
    _, base, _ = CALLS[name]
    named = {*base, *(REQUEST if name in TAKE_REQUESTS else ())}
    pairs = list(itertools.product(sorted(named), range(len(HOSTILE))))
    rng = random.Random(name)
    rng.shuffle(pairs)
    for index, (argument, which) in enumerate(pairs[:count]):
        call = {**base, argument: HOSTILE[which]}
        if index % 3 == 0:
            other, value = rng.choice(pairs)
            call[other] = HOSTILE[value]
        yield call


def numbers_of(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """All numbers of an answer, by their paths."""
    if depth > 8 or value is None or isinstance(value, str | bool | Path):
        return
    if isinstance(value, int | float | np.number):
        yield path, float(value)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "iuf":
            for each in value.flat:
                yield path, float(each)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from numbers_of(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers_of(item, path, depth + 1)


def check_ordered(value: Any, path: str = "") -> None:
    """Every prediction within an answer is ordered and finite."""
    if isinstance(value, Mapping):
        if {"ideal", "expected", "low", "high"} <= value.keys():
            ends = [np.asarray(value[end], dtype=float) for end in ("ideal", "low", "expected", "high")]
            assert all(np.isfinite(end).all() for end in ends), (path, value)
            ideal, low, expected, high = ends
            assert (low <= expected).all() and (expected <= high).all(), (path, value)
            assert ((ideal >= high) | (ideal <= low)).all(), (path, value)
        for key, item in value.items():
            check_ordered(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            check_ordered(item, path)


def check(answer: Any) -> None:
    """What holds of any answer: it can be written down, has no NaN and orders its predictions."""
    assert repr(answer)
    if hasattr(answer, "to_dict"):
        plain = answer.to_dict()
        json.dumps(plain, allow_nan=False)
        check_ordered(plain)
    elif is_dataclass(answer) and not isinstance(answer, type):
        plain = {field.name: getattr(answer, field.name) for field in fields(answer)}
    else:
        return
    for path, number in numbers_of(plain):
        assert not math.isnan(number), path


def outcome(function: Callable[..., Any], call: Mapping[str, Any]) -> str | None:
    """What is wrong with a call, if anything is."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", rl.RooflineWarning)
        try:
            check(function(**call))
        except rl.RooflineError as error:
            if not str(error) or len(str(error)) > 5_000:
                return f"a message of {len(str(error))} characters"
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                return f"TypeError: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
    return None


@pytest.mark.parametrize("name", CALLS)
def test_any_argument_is_answered_or_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function, base, weight = CALLS[name]
    assert outcome(function, base) is None
    count = max(3, EXAMPLES // (1 + weight // 5))
    wrong = {}
    for call in variations(name, count):
        if (said := outcome(function, call)) is not None:
            changed = {key: f"{type(call[key]).__name__}" for key in call if call[key] is not base.get(key, call)}
            wrong[f"{changed}"] = said
    assert not wrong, "\n".join(f"{call}: {said}" for call, said in wrong.items())


def test_every_public_function_is_called() -> None:
    public = {name for name in rl.__all__ if inspect.isfunction(getattr(rl, name))}
    called = {function.__name__ for function, _, _ in CALLS.values()} | {*CALLS} | {"launch_command"}
    assert public - called == {"probe"}  # it measures this computer
