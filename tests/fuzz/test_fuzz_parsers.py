"""Every parser on mutated input, the same in each run; ``ROOFLINELLM_FUZZ_RUNS`` sets how often.

A long run is ``python tests/fuzz/fuzz.py --runs 1000000``.
"""

from __future__ import annotations

import os
import random

import pytest
from fuzz import LONGEST_S, campaign, mutated, place, tried
from fuzz_targets import TARGETS

from rooflinellm.errors import RooflineError

RUNS = int(os.environ.get("ROOFLINELLM_FUZZ_RUNS", "60"))


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_read(name: str) -> None:
    # Else mutations would start from what every parser refuses at once.
    target = TARGETS[name]
    answers = [tried_or_error(target.read, seed) for seed in target.seeds()]
    assert answers
    fine = sum(answer is None for answer in answers)
    assert fine >= 0.6 * len(answers), answers


def tried_or_error(read: object, data: bytes) -> BaseException | None:
    try:
        read(data)  # type: ignore[operator]
    except RooflineError as error:
        return error
    return None


@pytest.mark.parametrize("name", TARGETS)
def test_any_input_is_an_answer_or_an_error_of_ours(name: str) -> None:
    done, _, found = campaign(name, RUNS, 0, None, float("inf"))
    assert done == RUNS
    assert not found


def test_the_fuzzer_finds() -> None:
    def divides(data: bytes) -> None:
        1 / (len(data) % 7)

    rng = random.Random(1)
    errors = [tried(divides, mutated(b"a seed", [b"another"], [b"99"], 100, rng)) for _ in range(200)]
    kinds = {place(error) for error in errors if error is not None}
    assert len(kinds) == 1 and next(iter(kinds)).startswith("ZeroDivisionError")
    assert LONGEST_S > 0
