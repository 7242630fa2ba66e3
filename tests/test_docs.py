"""The pages say what the library does: examples are run, links lead somewhere, every public name is described."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import rooflinellm as rl
from rooflinellm.cli.app import program

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def load_refresh() -> ModuleType:
    spec = spec_from_file_location("docs_refresh", DOCS / "refresh.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


refresh = load_refresh()
PAGES: list[Path] = refresh.pages()
EXAMPLES = [page for page in PAGES if page != refresh.COMMAND_LINE]
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE_CODE = re.compile(r"`([^`]+)`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


# --------------------------------------------------------------------------------------------------------- the examples


@pytest.mark.parametrize("page", EXAMPLES, ids=name_of)
def test_examples_do_what_the_page_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert refresh.refreshed(text) == text, f"out of date; run: python docs/refresh.py {name_of(page)}"


def test_the_help_of_the_command_line_is_current() -> None:
    # Word by word: releases of click break lines in different places, and 8.1 puts COMMAND in no brackets.
    written = refresh.COMMAND_LINE.read_text(encoding="utf-8")
    now = refresh.command_line_page()
    pages = [page.replace("[COMMAND]", "COMMAND").split() for page in (written, now)]
    assert pages[0] == pages[1], "run: python docs/refresh.py"


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words begin with, and the words behind its name."""
    command: click.Command = program
    while isinstance(command, click.Group) and words and words[0] in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None
        command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_text_have_the_options_they_are_shown_with(page: Path) -> None:
    for code in INLINE_CODE.findall(prose(page)):
        if not code.startswith("rooflinellm ") or "/" in code.split()[1]:
            continue
        command, rest = command_of(shlex.split(code)[1:])
        assert command is not program or rest[0].startswith("-"), code
        options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        options |= {"-h", "--help"}
        for word in rest:
            assert not word.startswith("-") or word in options, f"{code}: {word}"


def test_a_skipped_example_says_why() -> None:
    for page in EXAMPLES:
        for block in refresh.blocks(page.read_text(encoding="utf-8").split("\n")):
            assert block.mark != "not run" or len(block.said.split()) >= 2, name_of(page)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1234567, "1,234,567"),
        (1234.5, "1,230"),
        (999.6, "1,000"),
        (129.04, "129"),
        (0.0123456, "0.0123"),
        (5.0, "5.00"),
        (0.0, "0"),
        (True, "True"),
        ("memory", "'memory'"),
        ([1, 2.5], "[1, 2.50]"),
    ],
)
def test_values_are_written_to_three_digits(value: Any, written: str) -> None:
    assert refresh.shown(value) == written


def test_an_example_is_corrected() -> None:
    page = [
        *("```python", "2 * 3  # → 5 apples", "print('a')", "```", "", "```text", "b", "```", ""),
        *(
            "```bash",
            "rooflinellm format list --help  # exit code 0",
            "```",
            "",
            "<!-- lines 1-1 -->",
            "```text",
            "```",
        ),
    ]
    lines = refresh.refreshed("\n".join(page)).split("\n")
    assert lines[1] == "2 * 3  # → 6 apples"
    assert lines[6] == "a"
    assert lines[15].startswith("Usage: rooflinellm format list") and lines[16] == "…"


def test_an_example_with_another_exit_code_is_refused() -> None:
    with pytest.raises(refresh.ExampleError, match="ends with 2"):
        refresh.refreshed("```bash\nrooflinellm estimate no-such-model rtx-4090\n```")


# ------------------------------------------------------------------------------------------------------------ the links


def anchors(page: Path) -> set[str]:
    """Ids of a page's headings, and of what its reference describes."""
    text = prose(page)
    slugs = {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    return slugs | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    code = "".join(FENCED.findall(page.read_text(encoding="utf-8")))
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file() or f'"{path}"' in code, f"{link}: no such file, and no example writes it"
        if target.suffix == ".md":
            assert target.is_relative_to(ROOT) and (not anchor or anchor in anchors(target)), link
        # The site has what lies below its pages; the files beside the README stand in the repository alone.
        assert page.parent == ROOT or target.is_relative_to(refresh.PAGES), link


def test_the_navigation_has_every_page_once() -> None:
    navigation = (DOCS / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted(page.relative_to(refresh.PAGES).as_posix() for page in refresh.PAGES.rglob("*.md"))


# -------------------------------------------------------------------------------------------------------- the reference


def described() -> set[str]:
    return {name for page in refresh.PAGES.rglob("*.md") for name in anchors(page) if name.startswith("rooflinellm.")}


def test_what_is_described_exists() -> None:
    assert described()
    for name in described():
        parts = name.split(".")
        for depth in range(len(parts) - 1, 0, -1):
            try:
                found: Any = import_module(".".join(parts[:depth]))
            except ModuleNotFoundError:
                continue
            break
        for part in parts[depth:]:
            found = getattr(found, part)
        assert found.__doc__, name


def test_every_public_name_is_described() -> None:
    public = {name: f"{rl._PUBLIC[name]}.{name}" for name in rl._PUBLIC}
    missing = sorted(name for name, where in public.items() if where not in described())
    assert not missing, f"add to docs/pages/reference/api.md: {', '.join(f'::: {public[name]}' for name in missing)}"


def test_every_chart_is_described() -> None:
    charts = {getattr(rl.plotting, name) for name in rl.plotting.__all__}
    assert {f"{chart.__module__}.{chart.__qualname__}" for chart in charts} <= described()


def test_the_text_names_what_there_is() -> None:
    for page in PAGES:
        for name in re.findall(r"\brl\.([A-Za-z_]+)", page.read_text(encoding="utf-8")):
            assert hasattr(rl, name), f"{name_of(page)}: rl.{name}"
