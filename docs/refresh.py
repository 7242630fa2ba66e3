"""Bring what the pages show up to date: output of commands, values behind ``# →``, the help of the command line.

    python docs/refresh.py          rewrite README.md, CONTRIBUTING.md and docs/pages
    python docs/refresh.py FILE…    rewrite these

Every block of commands or Python is run, each page in a folder of its own. What marks a page up:

- A ``text`` block behind a block is what that prints; ``<!-- lines 1-12 -->`` above it shows only these lines.
- In Python, ``# → 1.25 s`` behind an expression is its value, to three digits, with a unit or words of the page's own.
- ``# exit code 1`` behind a command says that it does not end with 0.
- ``<!-- not run: REASON -->`` above a block leaves it out; ``<!-- file: NAME -->`` writes it to the folder.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rooflinellm.cli import main
from rooflinellm.errors import RooflineWarning

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "pages"
COMMAND_LINE = PAGES / "reference" / "cli.md"
WIDTH = 100
COMMANDS, PYTHON, OUTPUT = ("bash", "sh"), ("python",), "text"

FENCE = re.compile(r"^```(\w*)$")
MARK = re.compile(r"^<!-- (not run|file|lines)[: ] *(.*?) -->$")
VALUE = re.compile(r"(?P<code>.*# → )(?P<value>\[[^]]*\]|\{[^}]*\}|'[^']*'|\S+)(?P<rest>.*)")


class ExampleError(Exception):
    """An example of a page that does not do what the page says."""


@dataclass
class Block:
    """A fenced block: its language, the mark above it, and its lines as ``lines[start:stop]`` of the page."""

    language: str
    mark: str
    said: str
    start: int
    stop: int


def pages() -> list[Path]:
    """All pages with examples."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(PAGES.rglob("*.md"))]


def blocks(lines: list[str]) -> Iterator[Block]:
    """The fenced blocks of a page."""
    opened: Block | None = None
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if opened is not None:
            opened.stop = number
            yield opened
            opened = None
        else:
            above = next((each for each in reversed(lines[:number]) if each.strip()), "")
            mark = MARK.match(above)
            opened = Block(fence[1], mark[1] if mark else "", mark[2] if mark else "", number + 1, number + 1)


def commands(code: str) -> Iterator[tuple[list[str], int]]:
    """Arguments and exit code of each call of ``rooflinellm`` in lines of a shell."""
    for line in code.replace("\\\n", " ").splitlines():
        found = re.search(r"(?:^|/|&& )rooflinellm (.*)", line)
        if found is None:
            continue
        said = re.search(r"# exit code (\d+)", line)
        words = shlex.split(found[1], comments=True)
        ends = [words.index(each) for each in ("&&", "||", "|", ">") if each in words]
        yield words[: min(ends, default=len(words))], int(said[1]) if said else 0


def run_commands(code: str) -> str:
    """What the commands print."""
    written = io.BytesIO()
    for arguments, expected in commands(code):
        out = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
        errors = io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            exit_code = main(arguments)
        out.detach()
        if exit_code != expected:
            raise ExampleError(f"rooflinellm {shlex.join(arguments)}\nends with {exit_code}: {errors.getvalue()}")
    return written.getvalue().decode()


def run_python(lines: list[str], names: dict[str, Any]) -> str:
    """What the code prints; the values behind ``# →`` are put into its lines."""
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        for statement in ast.parse("\n".join(lines)).body:
            last = (statement.end_lineno or statement.lineno) - 1
            stated = VALUE.fullmatch(lines[last])
            if isinstance(statement, ast.Expr) and stated:
                value = eval(compile(ast.Expression(statement.value), "<page>", "eval"), names)
                lines[last] = stated["code"] + shown(value) + stated["rest"]
            else:
                exec(compile(ast.Module([statement], []), "<page>", "exec"), names)
    return printed.getvalue()


def shown(value: Any) -> str:
    """A value as the pages write it: three digits of a fraction, all of a whole number."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {shown(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, bool | None) or not isinstance(value, int | float):
        return repr(value)
    if isinstance(value, int):
        return f"{value:,}"
    rounded = float(f"{value:.3g}")
    if not rounded:
        return "0"
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:#.3g}".rstrip(".")


def part(output: str, lines: str) -> list[str]:
    """The lines of an output that a page shows, with an ellipsis where others are left out."""
    whole = output.rstrip("\n").split("\n")
    if not lines:
        return whole
    first, last = (int(each) for each in lines.split("-"))
    before, behind = ["…"] * (first > 1), ["…"] * (last < len(whole))
    return [*before, *whole[first - 1 : last], *behind]


def refreshed(text: str) -> str:
    """A page with everything that its blocks print and say as it is now.

    Raises
    ------
    ExampleError
        A command with another exit code than the page says.
    """
    lines = text.split("\n")
    names: dict[str, Any] = {"__name__": "page"}
    made: list[str] = []
    done, output = 0, None
    with _own_folder():
        for block in blocks(lines):
            between = lines[done : block.start - 1]
            code = lines[block.start : block.stop]
            if block.language == OUTPUT and output is not None and not any(map(_is_prose, between)):
                code, output = part(output, block.said if block.mark == "lines" else ""), None
            else:
                output = None
                if block.mark == "file":
                    Path(block.said).write_text("\n".join(code) + "\n", encoding="utf-8")
                elif block.mark == "not run":
                    pass
                elif block.language in PYTHON:
                    output = run_python(code, names)
                elif block.language in COMMANDS:
                    output = run_commands("\n".join(code))
            made += [*between, lines[block.start - 1], *code, lines[block.stop]]
            done = block.stop + 1
    return "\n".join([*made, *lines[done:]])


def images_of(page: Path, into: Path) -> list[Path]:
    """Run a page's blocks and return the images they make, below a folder."""
    lines = page.read_text(encoding="utf-8").split("\n")
    names: dict[str, Any] = {"__name__": "page"}
    with _own_folder() as folder:
        for block in blocks(lines):
            if block.language in PYTHON and not block.mark:
                run_python(lines[block.start : block.stop], names)
        made = sorted((folder / "images").iterdir())
        return [Path(into / each.name) for each in made if (into / each.name).write_bytes(each.read_bytes())]


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A working folder of a page's own, with a width and a configuration that are the same for everyone."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as name, chdir(name):
        folder = Path(name)
        (folder / "images").mkdir()
        os.environ.pop("ROOFLINELLM_PATH", None)
        os.environ.update(COLUMNS=str(WIDTH), XDG_CONFIG_HOME=str(folder / "config"), MPLBACKEND="Agg")
        try:
            yield folder
        finally:
            os.environ.clear()
            os.environ.update(before)


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and not MARK.match(line)


def command_line_page() -> str:
    """The reference of the command line: the help of every command."""
    from rooflinellm.cli.app import PROGRAM, program

    said = [
        "# Command line",
        "",
        "Every command with its options, as `--help` prints it. Answers go to standard output, hints to",
        "standard error; `--json` gives plain numbers in base units with the unit in each key.",
        "",
    ]
    settings = {**program.context_settings, "max_content_width": WIDTH}
    root = click.Context(program, info_name=PROGRAM, terminal_width=WIDTH, **settings)
    said += [*_help(program, root), *_all_help(program, root, 2)]
    return "\n".join(said)


def _all_help(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(command, parent=context, info_name=name)
        yield from (f"{'#' * level} {name if level == 2 else below.command_path.partition(' ')[2]}", "")
        yield from _help(command, below)
        if isinstance(command, click.Group):
            yield from _all_help(command, below, level + 1)


def _help(command: click.Command, context: click.Context) -> list[str]:
    """The help, without the exit codes that every command repeats."""
    text = command.get_help(context)
    if context.parent is not None:
        text = text.partition("  Exit codes:")[0]
    return ["```text", *text.rstrip().split("\n"), "```", ""]


def refresh(files: list[Path]) -> None:
    """Rewrite pages."""
    for file in files:
        before = file.read_text(encoding="utf-8")
        after = command_line_page() if file == COMMAND_LINE else refreshed(before)
        if after != before:
            file.write_text(after, encoding="utf-8")
            print(f"rewritten: {file.relative_to(ROOT)}")


if __name__ == "__main__":
    COMMAND_LINE.touch()
    refresh([Path(each).resolve() for each in sys.argv[1:]] or pages())
