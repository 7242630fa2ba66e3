"""The README counts what there is; `test_docs` runs its examples."""

from __future__ import annotations

import re
from pathlib import Path

import rooflinellm as rl
from rooflinellm.catalog import list_engines

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_entries_are_counted() -> None:
    stated = [
        int(re.search(rf"(\d+) {what}", README)[1]) for what in ("devices from", "models", "weight formats", "engines")
    ]  # type: ignore[index]
    assert stated == [len(each()) for each in (rl.list_hardware, rl.list_models, rl.list_formats, list_engines)]
