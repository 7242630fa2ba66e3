"""What people type: token counts, values to replace, and the options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from rooflinellm.units import KIB, MIB

F = TypeVar("F", bound=Callable[..., Any])

_COUNT = re.compile(r"(?P<sign>[-+]?)(?P<number>[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?)(?P<suffix>[kKmM]?)")
_SUFFIXES = {"": 1, "k": KIB, "m": MIB}


class Count(click.ParamType):
    """A whole number, as ``8192``, ``8_192`` or ``8k`` (k = 1024, m = 1024²)."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        match = _COUNT.fullmatch(value.strip())
        count = 0.5
        if match is not None and len(value) < 40:
            size = _SUFFIXES[match["suffix"].lower()]
            digits = match["number"].replace("_", "")
            count = float(digits) * size if "." in digits else int(digits) * size
        if count != int(count):
            self.fail(f"'{value[:40]}' is no whole number; write it like 8192 or 8k (k = 1024)", param, ctx)
        return -int(count) if match is not None and match["sign"] == "-" else int(count)


class Counts(Count):
    """Whole numbers separated by commas."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text; repeated numbers count once."""
        if not isinstance(value, str):
            return value
        read = super().convert
        return tuple(dict.fromkeys(read(part, param, ctx) for part in value.split(",")))


class Replacement(click.ParamType):
    """``path=value`` with a YAML scalar as the value."""

    name = "path=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        path, equals, text = value.partition("=")
        if not equals or not path.strip() or not text.strip():
            self.fail(
                f"'{value[:80]}' is no path=value; write it like hardware.memory.bandwidth_gb_s=1100", param, ctx
            )
        from rooflinellm import _yaml

        number = _yaml.parse(text, where=f"--set {path}")
        if isinstance(number, dict | list) or number is None:
            self.fail(f"'{text[:80]}' is no single value", param, ctx)
        return path.strip(), number


class Acceptance(click.ParamType):
    """``0.8`` per token, ``0.8,0.6,0.4`` cumulative by position, ``length=2.8`` or ``accepted_over_drafted=0.6``."""

    name = "acceptance"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        kind, equals, text = value.rpartition("=")
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            self.fail(f"'{value[:80]}' is no acceptance; write 0.8, 0.8,0.6,0.4 or length=2.8", param, ctx)
        if equals:
            return {kind.strip(): numbers[0] if len(numbers) == 1 else numbers}
        return numbers[0] if len(numbers) == 1 else numbers


class Shared(NamedTuple):
    """An option that several commands have."""

    flags: tuple[str, ...]
    type: Any
    help: str


COUNT, COUNTS = Count(), Counts()

OPTIONS: dict[str, Shared] = {
    "weights": Shared(("-w", "--weights"), str, "Weight format: Q4_K_M, fp8, awq, mlx-4bit … (see format list)."),
    "kv": Shared(("--kv",), str, "Type of the KV cache: f16, q8_0, fp8 …, or K/V as q8_0/f16."),
    "engine": Shared(("-e", "--engine"), str, "Engine, backend, build: llama.cpp, vllm, llama.cpp:vulkan@2024-05."),
    "output_tokens": Shared(("-n", "--output"), COUNT, "Tokens of the answer.  [default: 128]"),
    "batch": Shared(("-b", "--batch"), COUNT, "Equal requests side by side.  [default: 1]"),
    "context_tokens": Shared(("--context",), COUNT, "Tokens in the cache before the prompt.  [default: 0]"),
    "context_limit": Shared(("--context-limit",), COUNT, "Configured context of each request, for the memory."),
    "cached_tokens": Shared(("--cached",), COUNT, "Tokens of the prompt that need no prefill.  [default: 0]"),
    "prefill_chunk": Shared(("--chunk",), COUNT, "Tokens of a prompt that pass at once."),
    "tensor_parallel": Shared(("--tp",), COUNT, "Devices that share each layer.  [default: 1]"),
    "pipeline_parallel": Shared(("--pp",), COUNT, "Devices in a row.  [default: 1]"),
    "expert_parallel": Shared(("--ep",), COUNT, "Devices that share the experts.  [default: 1]"),
    "data_parallel": Shared(("--dp",), COUNT, "Copies of the model.  [default: 1]"),
    "gpu_layers": Shared(("--gpu-layers",), COUNT, "Layers on the accelerator; the others run on the host."),
    "cpu_moe_layers": Shared(("--cpu-moe",), COUNT, "Layers whose experts stay on the host."),
    "draft": Shared(("--draft",), str, "Draft model for speculative decoding."),
    "draft_tokens": Shared(("--draft-tokens",), COUNT, "Tokens drafted for a step."),
    "acceptance": Shared(("--acceptance",), Acceptance(), "Drafts accepted: 0.8, 0.8,0.6,0.4 or length=2.8."),
    "queue_s": Shared(("--queue",), float, "Seconds a request waits before prefill.  [default: 0]"),
}
"""By keyword of `rooflinellm.estimate`."""

_FLAG_OF = {keyword: option.flags[-1] for keyword, option in OPTIONS.items()} | {
    "prompt_tokens": "--prompt",
    "overrides": "--set",
}
_KEYWORD = re.compile(rf"(?<![\w.\-]){'|'.join(sorted(_FLAG_OF, key=len, reverse=True))}(?![\w.])")
_KEYWORD = re.compile(rf"(?<![\w.\-])(?:{'|'.join(sorted(_FLAG_OF, key=len, reverse=True))})(?=:| is not available|, or leave)")


def as_typed(text: str) -> str:
    """A message of the library with its keywords written as the options they were typed as."""
    return _KEYWORD.sub(lambda match: _FLAG_OF[match[0]], text)


def workload_options(*keywords: str) -> Callable[[F], F]:
    """Give a command the shared options of these keywords, and ``--set``.

    The command's function gets one argument `keywords` for all of them: those that were typed, ready for the library.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def command(*args: Any, replacements: Sequence[tuple[str, Any]] = (), **named: Any) -> Any:
            typed = {keyword: value for keyword in keywords if (value := named.pop(keyword)) is not None}
            if replacements:
                typed["overrides"] = dict(replacements)
            return function(*args, keywords=typed, **named)

        replaced = click.option(
            "--set",
            "replacements",
            type=Replacement(),
            multiple=True,
            help="What-if: replace a value of the entries, as hardware.memory.bandwidth_gb_s=1100. Repeatable.",
        )
        wrapped: Any = replaced(command)
        for keyword in reversed(keywords):
            option = OPTIONS[keyword]
            metavar = {"count": "N", "counts": "N,N"}.get(getattr(option.type, "name", ""))
            wrapped = click.option(*option.flags, keyword, type=option.type, metavar=metavar, help=option.help)(wrapped)
        return wrapped  # type: ignore[no-any-return]

    return decorate


def typed_options(keywords: Mapping[str, Any]) -> str:
    """The options as one would type them, for a hint."""
    return " ".join(f"{_FLAG_OF[name]} {value}" for name, value in keywords.items() if name != "overrides")
