"""What people type: token counts, values to replace, and the options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rooflinellm.units import KIB, MIB

if TYPE_CHECKING:
    _Type = click.ParamType[Any]  # older releases have no generic one
else:
    _Type = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])

_COUNT = re.compile(r"(?P<sign>[-+]?)(?P<number>[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?)(?P<suffix>[kKmM]?)")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+")
_SUFFIXES = {"": 1, "k": KIB, "m": MIB}


class Count(_Type):
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


class Lengths(Counts):
    """Numbers of tokens separated by commas, none of which may be meant to separate thousands."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text; repeated numbers count once."""
        if isinstance(value, str):
            value = without_thousands(value, lambda message: self.fail(message, param, ctx))
        return super().convert(value, param, ctx)


def without_thousands(text: str, fail: Callable[[str], Any]) -> str:
    """Numbers of tokens without commas that separate thousands, as in ``131,072``; `fail` where that is not clear.

    A group that begins with a zero belongs to the one before. ``8,192`` is either; two numbers of three digits
    (``128,512``) are two lengths, unless both together are a power of two, as limits of contexts are.
    """
    if _THOUSANDS.fullmatch(text.strip()) is None:
        return text
    first, *others = text.strip().split(",")
    whole = int(first + "".join(others))
    if any(group.startswith("0") for group in others):
        return str(whole)
    if whole.bit_count() == 1 or (len(others) == 1 and len(first) < 3):
        apart = ", ".join([first, *others])
        fail(f"'{text.strip()}' may be one number or {len(others) + 1}; write {whole} for one, '{apart}' for several")
    return text


class Replacement(_Type):
    """``path=value`` with a YAML scalar as the value."""

    name = "path=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        path, equals, text = value.partition("=")
        if not equals or not path.strip() or not text.strip():
            self.fail(f"'{value[:80]}' is no path=value; write it like hardware.memory.bandwidth_gb_s=1100", param, ctx)
        if path.strip().partition(".")[0] not in ROOTS or "." not in path:
            self.fail(f"'{path[:80]}' is no path of a value; it starts with hardware. or model.", param, ctx)
        from rooflinellm import _yaml
        from rooflinellm.errors import InvalidSpec

        try:
            number = _yaml.parse(text)
        except InvalidSpec:
            number = None
        if isinstance(number, dict | list) or number is None:
            self.fail(f"'{text[:80]}' is no single value", param, ctx)
        return path.strip(), number


class Acceptance(_Type):
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


class Price(_Type):
    """``hardware=price`` with a number as the price; the name may hold an equals sign itself."""

    name = "hardware=price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        name, _, text = value.rpartition("=")
        try:
            return name.strip() or self.fail(f"'{value[:80]}' names no hardware; write rtx-3090=700"), float(text)
        except ValueError:
            self.fail(f"'{value[:80]}' is no hardware=price; write it like rtx-3090=700", param, ctx)


class Parts(_Type):
    """Parts of several devices: ``3,1``."""

    name = "parts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if not isinstance(value, str):
            return value
        try:
            return tuple(float(part) for part in re.split("[,/]", value))
        except ValueError:
            self.fail(f"'{value[:80]}' is no list of parts; write it like 3,1", param, ctx)


class Shared(NamedTuple):
    """An option that several commands have; `of_options` where it is an attribute of `rooflinellm.Options`."""

    flags: tuple[str, ...]
    type: Any
    metavar: str | None
    help: str
    of_options: bool = False


EXIT_CODES = """\b
Exit codes:
  0  ok
  1  the answer is no (fit, check, recommend; validate --max-error)
  2  what was typed: usage, unknown or ambiguous name, impossible number
  3  what a file holds: unreadable, invalid, unsupported, missing spec
  130  interrupted
"""

ROOTS = ("hardware", "model")

COUNT, COUNTS, LENGTHS = Count(), Counts(), Lengths()

OPTIONS: dict[str, Shared] = {
    "weights": Shared(("-w", "--weights"), str, "NAME", "Weight format: Q4_K_M, fp8, awq, mlx-4bit …"),
    "kv": Shared(("--kv",), str, "TYPE", "Type of the KV cache: f16, q8_0, fp8 … or q8_0/f16."),
    "engine": Shared(("-e", "--engine"), str, "NAME", "Engine, backend, build: llama.cpp:vulkan@2024-05."),
    "output_tokens": Shared(("-n", "--output"), COUNT, "N", "Tokens of the answer.  [default: 128]"),
    "batch": Shared(("-b", "--batch"), COUNT, "N", "Equal requests side by side.  [default: 1]"),
    "context_tokens": Shared(("--context",), COUNT, "N", "Tokens in the cache before the prompt."),
    "context_limit": Shared(("--context-limit",), COUNT, "N", "Configured context of a request (memory only)."),
    "cached_tokens": Shared(("--cached",), COUNT, "N", "Tokens of the prompt that need no prefill."),
    "prefill_chunk": Shared(("--chunk",), COUNT, "N", "Tokens of a prompt that pass at once."),
    "tensor_parallel": Shared(("--tp",), COUNT, "N", "Devices that share each layer.  [default: 1]"),
    "pipeline_parallel": Shared(("--pp",), COUNT, "N", "Devices in a row.  [default: 1]"),
    "expert_parallel": Shared(("--ep",), COUNT, "N", "Devices that share the experts.  [default: 1]"),
    "data_parallel": Shared(("--dp",), COUNT, "N", "Copies of the model.  [default: 1]"),
    "gpu_layers": Shared(("--gpu-layers",), COUNT, "N", "Layers on the accelerator, the others on the host."),
    "cpu_moe_layers": Shared(("--cpu-moe",), COUNT, "N", "Layers whose experts stay on the host."),
    "kv_on_host": Shared(("--kv-on-host",), bool, None, "Keep cache and attention on the host.", True),
    "tensor_split": Shared(("--tensor-split",), Parts(), "N,N", "Parts of the devices in the layers: 3,1.", True),
    "reserved_gib": Shared(("--reserve",), float, "GIB", "Memory that other programs hold on each device.", True),
    "overcommit": Shared(
        ("--overcommit",), click.Choice(["paging"]), "HOW", "paging: the driver pages what a device lacks.", True
    ),
    "draft": Shared(("--draft",), str, "MODEL", "Draft model for speculative decoding."),
    "draft_tokens": Shared(("--draft-tokens",), COUNT, "N", "Tokens drafted for a step."),
    "acceptance": Shared(("--acceptance",), Acceptance(), "A", "Drafts accepted: 0.8, 0.8,0.6,0.4, length=2.8."),
    "queue_s": Shared(("--queue",), float, "S", "Seconds a request waits before prefill."),
}
"""By keyword of `rooflinellm.estimate`, or of its `Options`."""

PLACING = ("gpu_layers", "cpu_moe_layers", "kv_on_host", "tensor_split", "reserved_gib", "overcommit")
"""Options that say where a model lies."""

_FLAG_OF = {keyword: option.flags[-1] for keyword, option in OPTIONS.items()} | {
    "prompt_tokens": "--prompt",
    "overrides": "--set",
    "threads": "--threads",
    "min_tokens_per_s": "--min-tokens-per-s",
    "max_ttft_s": "--max-ttft",
    "max_power_w": "--max-power",
    "min_bits_per_weight": "--min-bits",
    "seconds": "--seconds",
    "rate": "--rate",
    "link": "--link",
    "prefill_batch": "--prefill-batch",
    "concurrency": "--concurrency",
    "requests": "--requests",
    "seed": "--seed",
    "trace": "--trace",
    "think_s": "--think",
    "max_tpot_s": "--max-tpot",
    "max_sequences": "--max-sequences",
    "price_per_hour": "--price-per-hour",
    "budget": "--budget",
    "query": "MODEL",
    "prices": "--price",
    "launch_command": "--show-command",
}
_KEYWORDS = "|".join(sorted(_FLAG_OF, key=len, reverse=True))
_JOINED = "|".join(sorted((each for each in _FLAG_OF if "_" in each), key=len, reverse=True))
# A keyword of several words is one wherever it stands; one like `batch` may be a word of the sentence.
_KEYWORD = re.compile(
    rf"(?<![\w./\-])(?:(?:{_KEYWORDS})(?=:|, or leave| is not available)|(?:{_JOINED})(?!\w|[=.(\[]\S))"
)
_GIVEN = re.compile(rf"(?<![\w./\-])({_KEYWORDS})=([\d.]*\d)")
_PYTHON = {
    "prefill=…, decode=…": "--prefill-parallel tp=…, --decode-parallel tp=….",
    'prices={"rtx-3090": 700}': "--price rtx-3090=700",
    '{"accepted_over_drafted": 0.6}, {"length": 2.9}, or a list such as [0.77, 0.38]': (
        "accepted_over_drafted=0.6, length=2.9, or shares by position such as 0.77,0.38"
    ),
}
"""Other arguments as messages write them, and how they are typed."""


def as_typed(text: str) -> str:
    """A message of the library with its keywords written as the options they were typed as."""
    for python, typed in _PYTHON.items():
        text = text.replace(python, typed)
    text = _GIVEN.sub(lambda match: f"{_FLAG_OF[match[1]]} {match[2]}", text)
    text = _KEYWORD.sub(lambda match: _FLAG_OF[match[0]], text)
    text = re.sub(r"^(--[a-z-]+): \1 ", r"\1 ", text)
    return re.sub(r"^overrides, ", "--set ", text)


def workload_options(*keywords: str) -> Callable[[F], F]:
    """Give a command the shared options of these keywords, and ``--set``.

    The command's function gets one argument `keywords` for all of them: those that were typed, ready for the library.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def command(*args: Any, replacements: Sequence[tuple[str, Any]] = (), **named: Any) -> Any:
            typed = {keyword: value for keyword in keywords if (value := named.pop(keyword)) is not None}
            settings = {keyword: typed.pop(keyword) for keyword in list(typed) if OPTIONS[keyword].of_options}
            if settings:
                from rooflinellm.api.options import Options

                typed["options"] = Options(**settings)
            if replacements:
                typed["overrides"] = dict(replacements)
            return function(*args, keywords=typed, **named)

        replaced = click.option(
            "--set",
            "replacements",
            type=Replacement(),
            multiple=True,
            metavar="P=V",
            help="What if: hardware.memory.bandwidth_gb_s=1100 (repeatable).",
        )
        wrapped: Any = replaced(command)
        for keyword in reversed(keywords):
            option = OPTIONS[keyword]
            kind: dict[str, Any] = {"type": option.type, "metavar": option.metavar}
            if option.type is bool:
                kind = {"is_flag": True, "default": None}
            wrapped = click.option(*option.flags, keyword, help=option.help, **kind)(wrapped)
        return wrapped  # type: ignore[no-any-return]

    return decorate


def examples(*lines: str) -> str:
    """The end of a command's help: examples, and the exit codes."""
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", heading, *(f"  rooflinellm {line}" for line in lines), "", EXIT_CODES])


def subcommand(*lines: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with examples at the end of its help."""
    return click.command(epilog=examples(*lines))


def one_table(files: Sequence[str]) -> str | None:
    """The one table of measured kernels that was named, if any."""
    if len(files) > 1:
        raise click.UsageError("--kernels takes one FILE")
    return files[0] if files else None


@click.pass_context
def _show_help(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class Group(click.Group):
    """Commands below a name; without one it shows its help, and an unknown one brings suggestions."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, invoke_without_command=True, callback=_show_help, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            import difflib

            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], names, cutoff=0.5)
            hint = f"Did you mean: {', '.join(near)}?" if near else f"There is {', '.join(names)}."
            raise click.UsageError(f"no command is called '{args[0][:80]}'\n{hint}")
        return super().resolve_command(ctx, args)
