"""What the README prints and says is what the library does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rooflinellm as rl
from rooflinellm.catalog import list_engines
from rooflinellm.cli import main
from rooflinellm.results import Estimate

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first block of a language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_first_command_prints_what_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = block("bash").rpartition("rooflinellm ")[2].split()
    assert main(command) == 0
    assert capsys.readouterr().out == block("text")


def test_the_notebook_runs_and_says_what_its_comments_say() -> None:
    names: dict[str, object] = {}
    exec(block("python"), names)
    est = names["est"]
    assert isinstance(est, Estimate)
    bound = re.search(r"est\.decode\.bound +# '(\w+)'", README)
    assert bound is not None and est.decode.bound == bound[1]
    assert est.memory.fits is True


def test_the_entries_are_counted() -> None:
    stated = [
        int(re.search(rf"(\d+) {what}", README)[1]) for what in ("devices from", "models", "weight formats", "engines")
    ]  # type: ignore[index]
    assert stated == [len(each()) for each in (rl.list_hardware, rl.list_models, rl.list_formats, list_engines)]
