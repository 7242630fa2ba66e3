"""The workload of a row of local results: one prompt, one answer, at some depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rooflinellm.measurements.row import Row
from rooflinellm.measurements.workload import Quantity, SkipRow, Workload, tokens, whole

DEFAULT_OUTPUT = 128
"""Output tokens where a decode result does not state them: what llama-bench does by default. [token]"""


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Lengths of a local row, whole and with their defaults. [token]"""

    prompt: int
    output: int
    depth: int
    batch: int
    chunk: int | None = None


def local_workload(row: Row) -> Workload:
    """The workload of a row of llama-bench or the like."""
    if not row.tokens_per_s:
        raise SkipRow("the row holds no rate")
    batch = whole("batch_size", row.batch_size or 1)
    lengths = _Lengths(tokens(row.prompt_tokens), tokens(row.gen_tokens), tokens(row.depth_tokens), batch, _chunk(row))
    kind = row.test_kind or ""
    make = _KINDS.get(kind)
    if make is None:
        raise SkipRow("a kind of test that is not known", kind[:40])
    return make(row, lengths)


def _chunk(row: Row) -> int | None:
    """Tokens of all sequences that pass at once; None where the row does not say."""
    stated = [int(size) for size in (row.n_ubatch, row.n_batch) if size]
    if not stated or not (row.n_ubatch or (row.n_batch and row.n_batch < 512)):
        return None
    return max(min(stated), 1)


def _prefill(row: Row, lengths: _Lengths) -> Workload:
    if not lengths.prompt:
        raise SkipRow("the row does not state the length of the prompt")
    arguments: dict[str, Any] = {
        "prompt_tokens": lengths.prompt,
        "output_tokens": 0,
        "context_tokens": lengths.depth,
        "batch": lengths.batch,
    }
    if lengths.chunk is not None:
        arguments["prefill_chunk"] = lengths.chunk
    shared = lengths.batch > 1 and _shared_prompt(row)
    return Workload(arguments, Quantity("prefill", "tokens/s", row.tokens_per_s or 0.0), bounded=not shared)


def _decode(row: Row, lengths: _Lengths) -> Workload:
    output = lengths.output or DEFAULT_OUTPUT
    if _includes_prefill(row):
        arguments = {"prompt_tokens": max(lengths.depth, 1), "output_tokens": output, "batch": lengths.batch}
        return Workload(arguments, Quantity("run", "tokens/s", row.tokens_per_s or 0.0))
    arguments = {
        "prompt_tokens": 0,
        "output_tokens": output,
        "context_tokens": lengths.depth,
        "batch": lengths.batch,
    }
    shared = lengths.batch > 1 and _shared_prompt(row)
    # A client counts N tokens over the N - 1 steps between the first and the last.
    scale = output / (output - 1) if _by_client(row) and output > 1 else 1.0
    return Workload(arguments, Quantity("decode", "tokens/s", row.tokens_per_s or 0.0, scale), bounded=not shared)


def _mixed(row: Row, lengths: _Lengths) -> Workload:
    """``pg`` of llama-bench: prompt and output tokens over the time of both."""
    if not lengths.prompt or not lengths.output:
        raise SkipRow("the row does not state the lengths of prompt and output")
    arguments: dict[str, Any] = {
        "prompt_tokens": lengths.prompt,
        "output_tokens": lengths.output + 1,  # the first comes out of prefill, and as many steps are timed after it
        "context_tokens": lengths.depth,
        "batch": lengths.batch,
    }
    if lengths.chunk is not None:
        arguments["prefill_chunk"] = lengths.chunk
    counted = lengths.prompt + lengths.output
    return Workload(arguments, Quantity("run", "tokens/s", row.tokens_per_s or 0.0, tokens=counted))


_KINDS: dict[str, Callable[[Row, _Lengths], Workload]] = {
    "prefill": _prefill,
    "batched_prefill": _prefill,
    "decode": _decode,
    "batched_decode": _decode,
    "spec_decode": _decode,
    "mixed": _mixed,
}


def _shared_prompt(row: Row) -> bool:
    return "shared prompt" in (row.note or "") or bool((row.extra or {}).get("shared_prompt"))


def _includes_prefill(row: Row) -> bool:
    note = row.note or ""
    return "includes prefill" in note or "includes short-prompt prefill" in note


def _by_client(row: Row) -> bool:
    return "HTTP server timing" in (row.note or "") or "llama-server" in (row.engine or "")
