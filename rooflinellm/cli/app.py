"""The program around the commands: finds them, runs one, and turns whatever goes wrong into a line and an exit code."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from rooflinellm import __version__
from rooflinellm.cli import INTERRUPTED, commands
from rooflinellm.cli.inputs import EXIT_CODES, Group, as_typed
from rooflinellm.cli.terminal import say
from rooflinellm.errors import RooflineError, RooflineWarning, UnreadableFile

PROGRAM = "rooflinellm"
USAGE, FILE, BUG, BROKEN_PIPE = 2, 3, 70, 141
DEBUG_VARIABLE = "ROOFLINELLM_DEBUG"
COMPLETE_VARIABLE = "_ROOFLINELLM_COMPLETE"

_OPTION = re.compile(r"--[a-z][a-z-]*(?=:)")

ORDER = (
    *(
        "estimate",
        "compare",
        "fit",
        "recommend",
        "roofline",
        "sweep",
        "sensitivity",
        "check",
        "load",
        "disaggregate",
        "trace",
        "report",
    ),
    *("validate", "calibrate", "probe", "hardware", "model", "format"),
)
"""The order in which help lists the commands; others come behind."""

EPILOG = f"""\b
Names:
  MODEL     llama-3.1-8b, a Hugging Face id, or a file (config.json, GGUF, YAML)
  HARDWARE  rtx-4090, m3-max-40c@64GiB, "2x rtx-3090 + ddr5-5600x2@64GiB",
            a YAML file, or figures: 24GiB,1008GB/s,165TFLOP/s@fp16

{EXIT_CODES}"""


class Commands(Group):
    """The commands that lie in `commands`, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of `ORDER`."""
        found = [module.name for module in pkgutil.iter_modules(commands.__path__)]
        return sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"{commands.__name__}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


def _print_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from rooflinellm.api.lists import data_version

        click.echo(f"{PROGRAM} {__version__}, data {data_version()}")
        ctx.exit()


program = Commands(
    PROGRAM,
    help="Predict how fast a language model runs on given hardware, and why.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version of the program and of its data.",
        )
    ],
)


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; nothing but a bug under ``ROOFLINELLM_DEBUG=1`` raises."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    collecting = gc.isenabled()
    gc.disable()  # a command is short, and its imports make much that stays
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # to look for them reads every installed package
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # whatever the locale, what cannot be written is written another way
            stream.reconfigure(errors="backslashreplace")
    if COMPLETE_VARIABLE in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(program, {}, PROGRAM, COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
    try:
        with _warnings_said():
            code = _invoke(arguments)
            sys.stdout.flush()
            return code
    except OSError as error:
        return _lost_output(error)
    finally:
        if collecting:
            gc.enable()


def _invoke(arguments: list[str]) -> int:
    try:
        with program.make_context(PROGRAM, list(arguments), obj=arguments) as context:
            answer = program.invoke(context)
            return answer if isinstance(answer, int) else 0
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        say("error", _as_spelt(_usage(error), arguments))
        return USAGE
    except RooflineError as error:
        text = str(error) if isinstance(error, UnreadableFile) else as_typed(str(error))  # a file has its own names
        say("error", _as_spelt(text, arguments))
        return USAGE if text.startswith("--set ") else error.exit_code  # a value that was typed is in no file
    except (KeyboardInterrupt, OSError):
        raise
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        say("error", f"a bug in {PROGRAM}: {type(error).__name__}: {error}\nSet {DEBUG_VARIABLE}=1 to see where.")
        return BUG


def _as_spelt(text: str, arguments: Sequence[str]) -> str:
    """A message that begins with an option, with the option's name that was typed: ``-o`` for ``--out``."""
    command: click.Command | None = program
    for word in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
    named = _OPTION.match(text)
    if named is None or command is None:
        return text
    names = next((each.opts for each in command.params if named[0] in each.opts), [])
    typed = (name for name in names for word in arguments if _is_typed(name, word))
    return next(typed, named[0]) + text[named.end() :]


def _is_typed(name: str, word: str) -> bool:
    """Whether a word is an option of that name, its value behind it or not."""
    if name.startswith("--"):
        return word.partition("=")[0] == name
    return word.startswith(name) and not word.startswith("--")


def _usage(error: click.ClickException) -> str:
    """What click says, in the style of our own errors: one line, and one with what to do."""
    text = error.format_message()
    if isinstance(error, click.BadParameter) and error.param is not None:
        names = error.param.opts if isinstance(error.param, click.Option) else [error.param.human_readable_name]
        text = f"{names[-1]}: {error.message}" if error.message else f"{'/'.join(names)}: missing"
    if "\n" in text:
        return text
    if "unexpected extra argument" in text:
        return f"{text}\nPut a name with spaces in quotes: '2x rtx-3090'."
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else PROGRAM
    help_of = f"See {where} --help."
    if isinstance(error, click.NoSuchOption):
        from rooflinellm.cli.mistakes import next_step

        return f"no option is called '{error.option_name[:80]}'\n{next_step(error)} {help_of}".replace("\n ", "\n")
    return f"{text}\n{help_of}"


def _lost_output(error: OSError) -> int:
    """Standard output is gone: quietly where the reader has read enough, with a word where the disk is full."""
    if error.filename is not None:  # a file, not the output
        say("error", f"{error.filename}: {error.strerror or error}")
        return FILE
    quiet = isinstance(error, BrokenPipeError) or error.errno in (errno.EPIPE, errno.EINVAL)
    with suppress(OSError, ValueError, AttributeError):  # nothing may be flushed into it when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if quiet:
        return BROKEN_PIPE
    say("error", f"cannot write the output: {error.strerror or error}")
    return FILE


@contextmanager
def _warnings_said() -> Iterator[None]:
    """The library's warnings as one line each on standard error, each once."""
    said: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", RooflineWarning)
        elsewhere = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if not issubclass(category, RooflineWarning):
                elsewhere(message, category, *rest, **named)
            elif str(message) not in said:
                said.add(str(message))
                say("warning", as_typed(str(message)))

        warnings.showwarning = show
        yield
