"""What ``--over`` takes: ``name=start:stop:count`` or ``name=value,value``."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import click

from rooflinellm.cli.inputs import COUNT, OPTIONS, Count, _Type, without_thousands

COUNTS_OF = {
    "prompt": "prompt_tokens",
    "output": "output_tokens",
    "cached": "cached_tokens",
    "context": "context_tokens",
    "context-limit": "context_limit",
    "batch": "batch",
    "chunk": "prefill_chunk",
    "gpu-layers": "gpu_layers",
    "cpu-moe": "cpu_moe_layers",
    "draft-tokens": "draft_tokens",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "ep": "expert_parallel",
    "dp": "data_parallel",
}
LENGTHS = ("prompt", "output", "cached", "context", "context-limit", "chunk")
"""Axes of so many tokens that someone may write a comma after the thousands."""
WORDS_OF = {"weights": "weights", "kv": "kv", "engine": "engine", "draft": "draft"}
AXES = COUNTS_OF | WORDS_OF
"""Keywords of `rooflinellm.sweep` by what is typed."""
MOST = 250_000


class Axis(NamedTuple):
    """An axis as it was typed."""

    keyword: str
    values: tuple[Any, ...]


class Over(_Type):
    """``context=0:131072:33`` (start, stop and count, both ends included), ``batch=1,2,4``, ``weights=Q4_K_M,Q8_0``."""

    name = "axis"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        name, equals, text = (part.strip() for part in value.partition("="))
        name = name.lstrip("-")
        if not equals or not text:
            self.fail(f"'{value[:80]}' is no axis; write it like context=0:131072:33 or batch=1,2,4", param, ctx)
        path = name.partition(".")[0] in ("hardware", "model") and "." in name
        if name not in AXES and not path:
            known = ", ".join(AXES)
            self.fail(f"'{name[:40]}' is no axis; there is {known}, and paths such as hardware.…", param, ctx)
        if name in WORDS_OF:
            return Axis(WORDS_OF[name], tuple(dict.fromkeys(part.strip() for part in text.split(","))))

        def read(part: str) -> float:
            return self._number(part, param, ctx) if path else COUNT.convert(part, param, ctx)

        if name in LENGTHS:
            text = without_thousands(text, lambda message: self.fail(message, param, ctx))
        ends = text.split(":")
        if len(ends) == 1:
            numbers = [read(part) for part in text.split(",")]
        elif len(ends) == 3:
            count = Count().convert(ends[2], param, ctx)
            if not 1 <= count <= MOST:
                self.fail(f"{count:,} values; from 1 to {MOST:,} are allowed", param, ctx)
            numbers = spaced(read(ends[0]), read(ends[1]), count, whole=not path)
        else:
            self.fail(f"'{text[:60]}' is neither start:stop:count nor values separated by commas", param, ctx)
        return Axis(AXES.get(name, name), tuple(dict.fromkeys(numbers)))

    def _number(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"'{text[:40]}' is no number", param, ctx)
        return int(number) if number == int(number) else number


def spaced(start: float, stop: float, count: int, *, whole: bool) -> list[float]:
    """Evenly spaced numbers from start to stop, both included; to whole numbers where asked."""
    steps = [start + (stop - start) * step / (count - 1) for step in range(count)] if count > 1 else [start]
    return [round(step) for step in steps] if whole else steps


def flag_of(keyword: str) -> str:
    """The option that gives one value of an axis."""
    return "--prompt" if keyword == "prompt_tokens" else OPTIONS[keyword].flags[-1]
