"""Settings as a command gives them: text turned into numbers, with errors that name the flag."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rooflinellm.errors import InvalidRequest, RooflineError
from rooflinellm.launch.shell import WHERE, Parsed

LARGEST = 10**9
"""Of a count."""
MOST_VALUES = 10_000
"""Values of a list."""

_HUMAN = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[kKmMgG]?)")
_HUMAN_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
_RANGE = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+)(?:(?P<how>[+*])(?P<step>\d+))?)?")
_OFF = ("off", "0", "false", "disabled")


class Settings:
    """What the flags of a command give, the last one of each counting, and what is said about them.

    Attributes
    ----------
    unused : list of str
        What is not taken into account.
    said : list of str
        How the command is read.
    """

    def __init__(self, parsed: Parsed) -> None:
        self.program = parsed.program
        self.unused, self.said = parsed.unused, list[str]()
        self._given = parsed.given

    def typed(self, key: str) -> str:
        """The flag as it was typed."""
        return self._given[key][-1][0]

    def text(self, key: str) -> str | None:
        """The value, or the program's own; None without either. Of a benchmark's list the first, which is said."""
        if key not in self._given:
            return self.program.defaults.get(key)
        if not self.program.lists:
            return self._given[key][-1][1].strip()
        values = ",".join(value for _, value in self._given[key])
        first, comma, _ = values.partition(",")
        if comma:
            self.said.append(f"{self.typed(key)} {values[:60]}: the first of the list")
        return first.strip()

    def texts(self, key: str) -> list[tuple[str, str]]:
        """Flags and values in order, where a flag may be repeated."""
        return self._given.get(key, [])

    def on(self, key: str) -> bool | None:
        """Whether something is switched on; None where nothing is said."""
        value = self.text(key)
        return None if value is None else value.lower() not in _OFF

    def count(self, key: str, *, least: int = 0) -> int | None:
        """A whole number; None where nothing is said."""
        value = self.text(key)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d{1,10}", value) or not least <= int(value) <= LARGEST:
            raise self.error(key, f"'{value[:40]}' is not a whole number from {least:,} to {LARGEST:,}")
        return int(value)

    def human(self, key: str) -> int | None:
        """A whole number as vLLM reads it: ``32k`` is 32,000 and ``32K`` 32,768; None for ``auto``."""
        value = self.text(key)
        if value is None or value in ("auto", "-1"):
            return None
        match = _HUMAN.fullmatch(value)
        number = float(match["number"]) * _HUMAN_UNITS[match["unit"]] if match and len(value) < 20 else 0.0
        if not 1 <= number <= LARGEST:
            raise self.error(key, f"'{value[:40]}' is not a whole number from 1 to {LARGEST:,}")
        return int(number)

    def counts(self, key: str) -> list[int]:
        """Whole numbers of a list with commas, of ranges as llama-bench writes them, and of repeated flags."""
        default = self.program.defaults.get(key)
        values = [value for _, value in self.texts(key)] or ([default] if default else [])
        return [number for value in values for part in value.split(",") for number in self._range(key, part.strip())]

    def _range(self, key: str, text: str) -> Iterable[int]:
        match = _RANGE.fullmatch(text) if len(text) < 60 else None
        if match is None or int(match["first"]) > LARGEST:
            raise self.error(key, f"'{text[:40]}' is neither a whole number nor a range such as 128-1024*2")
        number, last = int(match["first"]), int(match["last"] or match["first"])
        times, step = match["how"] == "*", int(match["step"] or 1)
        if last > LARGEST or step < (2 if times else 1) or (times and not number):
            raise self.error(key, f"'{text[:40]}' is a range without an end")
        found = []
        while number <= last:
            found.append(number)
            if len(found) > MOST_VALUES:
                raise self.error(key, f"'{text[:40]}' are more than {MOST_VALUES:,} values")
            number = number * step if times else number + step
        return found

    def error(self, key: str, message: str, next_step: str | None = None) -> InvalidRequest:
        """An error that names the flag."""
        where = f"{WHERE}, {self.typed(key)}" if key in self._given else WHERE
        return InvalidRequest(message, where=where, next_step=next_step)

    def rewrite(self, key: str, error: RooflineError, next_step: str | None = None) -> InvalidRequest:
        """The same error with the flag as its place."""
        return self.error(key, error.message, next_step or error.next_step)
