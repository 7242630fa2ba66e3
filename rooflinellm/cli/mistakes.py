"""What to do next about an option that a command does not have: other tools' names, near ones, other commands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

import click

NEAR = 0.7

SYNONYMS: dict[str, tuple[str, ...]] = {
    "--weights": (
        *(
            "-q",
            "--quant",
            "--quants",
            "--quantization",
            "--quantize",
            "--qtype",
            "--quant-type",
            "--weight",
            "--wtype",
        ),
        *("--dtype", "--precision", "--bits"),
    ),
    "--kv": (
        *("--kv-type", "--kv-cache", "--kv-quant", "--kv-dtype", "--kv-cache-dtype", "--kv-cache-type"),
        *("--cache-type", "--cache-type-k", "--cache-type-v", "-ctk", "-ctv"),
    ),
    "--engine": ("--backend", "--runtime", "--framework"),
    "--prompt": (
        "--prompts",
        "--prompt-tokens",
        "--input",
        "--input-len",
        "--input-tokens",
        "--n-prompt",
        "--pp-tokens",
    ),
    "--output": ("--output-tokens", "--output-len", "--max-tokens", "--n-predict", "--n-gen", "--gen", "--generate"),
    "--batch": ("--batch-size", "--batches", "--users", "--requests", "--concurrency", "--parallel", "--n-parallel"),
    "--concurrency": ("--users", "--clients", "--batch"),
    "--context": ("-c", "--ctx", "--depth", "-d", "--n-depth", "--context-tokens", "--context-length"),
    "--context-limit": (
        *("-c", "--ctx", "--ctx-size", "--context-size", "--context-length", "--n-ctx", "--num-ctx", "--max-context"),
        *("--max-model-len", "--max-ctx"),
    ),
    "--tp": ("--tensor-parallel", "--tensor-parallel-size", "--gpus", "--num-gpus"),
    "--pp": ("--pipeline-parallel", "--pipeline-parallel-size"),
    "--ep": ("--expert-parallel", "--enable-expert-parallel"),
    "--dp": ("--data-parallel", "--data-parallel-size"),
    "--gpu-layers": ("--ngl", "--n-gpu-layers", "--num-gpu", "--offload"),
    "--cpu-moe": ("--n-cpu-moe", "--ncmoe"),
    "--tensor-split": ("--ts", "-ts"),
    "--draft": ("--draft-model", "--model-draft", "--md", "--speculative-model"),
    "--draft-tokens": ("--draft-max", "--num-speculative-tokens"),
    "--min-tokens-per-s": ("--tps", "--target-tps", "--min-tps", "--rate", "--speed"),
    "--tokens-per-s": ("--tps", "--rate", "--speed"),
    "--format": ("--csv", "--md", "--markdown", "--output-format", "--fmt"),
    "--chart": ("--plot", "--out", "--output-file", "--save"),
    "--out": ("--output-file", "--save", "--file"),
    "--set": ("--override", "--overrides", "--what-if"),
    "--over": ("--axis", "--vary"),
    "HARDWARE": ("-g", "--gpu", "--gpus", "--hw", "--hardware", "--device", "--devices", "--system", "--vram", "--ram"),
    "MODEL": ("-m", "--model", "--hf", "--repo", "--name"),
}
"""What an option, or an argument, is called elsewhere."""


def next_step(error: click.NoSuchOption) -> str:
    """What to do about an unknown option: the command's own name for it, a near one, or the commands that have it."""
    typed, ctx = error.option_name, error.ctx
    if ctx is None:
        return ""
    own = [flag for parameter in ctx.command.get_params(ctx) for flag in parameter.opts if flag[:1] == "-"]
    usage = ctx.command.collect_usage_pieces(ctx)
    meant = [name for name, others in SYNONYMS.items() if typed in others]
    options = [name for name in meant if name in own]
    if not options and not typed.startswith("--") and len(typed) == 2:
        options = [flag for flag in own if flag.lower() == typed.lower()]
    options += difflib.get_close_matches(typed, [flag for flag in own if flag not in options], n=2, cutoff=NEAR)
    if options:
        return f"Did you mean {' or '.join(dict.fromkeys(options))}?"
    for name in meant:
        if any(name in piece for piece in usage):
            return f"{name} needs no option: {ctx.command_path} {' '.join(usage[1:])}."
    return _elsewhere({typed, *meant}, ctx)


def _elsewhere(names: Iterable[str], ctx: click.Context) -> str:
    """The other commands that have one of these options."""
    having = {name: [each for each, flags in _commands(ctx) if name in flags] for name in names}
    found = {name: commands for name, commands in having.items() if commands}
    if not found:
        return ""
    name, commands = max(found.items(), key=lambda each: len(each[1]))
    return f"{name} is an option of {', '.join(commands)}."


def _commands(ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
    program = ctx.find_root()
    if isinstance(program.command, click.Group):
        for name in program.command.list_commands(program):
            command = program.command.get_command(program, name)
            if command is not None:
                yield name, [flag for parameter in command.params for flag in parameter.opts]


def as_given(option: str) -> str:
    """The name by which an option was typed, such as ``-o`` for ``--chart``; the words are kept by the program."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return option
    words: list[str] = ctx.find_root().obj or []
    for parameter in ctx.command.params:
        if option in parameter.opts:
            for flag in parameter.opts:
                short = len(flag) == 2
                if any(word.partition("=")[0] == flag or (short and word.startswith(flag)) for word in words):
                    return flag
    return option
