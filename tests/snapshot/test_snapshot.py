"""Answers stay as they are until someone means to change them, and a change is said in numbers."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _snapshot_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_five_hundred_answers_are_as_they_were() -> None:
    import snapshot

    old = snapshot.kept()
    assert len(old) == snapshot.COUNT
    assert sum(not row.get("error") for row in old) > 0.95 * snapshot.COUNT
    said = snapshot.difference(old, [snapshot.answer(case) for case in snapshot.cases()])
    assert not said, f"\n{said}"


def test_a_change_is_said_in_numbers() -> None:
    import snapshot

    old = snapshot.kept()[:4]
    new = [dict(row) for row in old]
    assert snapshot.difference(old, new) == ""
    new[1]["tpot_expected_s"] *= 1 + 1e-10  # below the tolerance
    assert snapshot.difference(old, new) == ""
    new[1]["tpot_expected_s"] = old[1]["tpot_expected_s"] * 1.25
    new[2]["prefill_ideal_s"] = old[2]["prefill_ideal_s"] * 0.5
    new[3]["total_bytes"] = old[3]["total_bytes"] * 1.01
    said = snapshot.difference(old, new)
    assert said.startswith("3 of 4 answers changed: median 0.25, largest 0.5")
    assert f"{old[2]['model']} on {old[2]['hardware']}" in said
    assert "--update" in said
    assert "the cases changed" in snapshot.difference(old, new[:3])
    new[0] = {**new[0], "error": "MissingSpec"}
    assert "4 of 4 answers changed" in snapshot.difference(old, new)
