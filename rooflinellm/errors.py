"""The exception tree: every mistake a user or a file can make is a `RooflineError`.

A message says what is wrong, where, which value was met, what is allowed, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_VALUE = 60


def met(value: object) -> str:
    """A value for a message: short, on one line, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # a whole number of too many digits, or an object that cannot even say what it is
        return f"{type(value).__name__} that cannot be shown"
    return " ".join(text[:LONGEST_VALUE].split())


class RooflineError(Exception):
    """Base of all errors this library raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong, with the value met and what is allowed.
    where : str, optional
        File, line and field, or the argument's name.
    next_step : str, optional
        What the reader can do about it.

    Attributes
    ----------
    exit_code : int
        The exit status of the command line: 1 the answer is no, 2 what was typed, 3 what a file holds.
    """

    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None, next_step: str | None = None) -> None:
        self.message = message
        self.where = where
        self.next_step = next_step
        super().__init__(message, where, next_step)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n{self.next_step}" if self.next_step else text


class InvalidRequest(RooflineError, ValueError):
    """Arguments that describe nothing possible: a negative count, a prompt beyond the configured context."""


class UnknownName(RooflineError, LookupError):
    """A name that is no entry.

    Attributes
    ----------
    suggestions : tuple of str
        The nearest names that exist; never used in place of what was typed.
    """

    def __init__(
        self,
        message: str,
        *,
        suggestions: Iterable[str] = (),
        where: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.suggestions = tuple(suggestions)
        if next_step is None and self.suggestions:
            next_step = "Did you mean: " + ", ".join(self.suggestions) + "?"
        super().__init__(message, where=where, next_step=next_step)


class AmbiguousName(RooflineError, LookupError):
    """A name that fits several entries.

    Attributes
    ----------
    candidates : tuple of str
        The entries it fits.
    """

    def __init__(self, message: str, *, candidates: Iterable[str] = (), where: str | None = None) -> None:
        self.candidates = tuple(candidates)
        super().__init__(message, where=where, next_step="Say which: " + ", ".join(self.candidates) + ".")


class MissingSpec(RooflineError):
    """A value that the entry does not hold and the answer needs: unknown is absent, never guessed."""

    exit_code = 3


class InvalidSpec(RooflineError):
    """A file or a specification whose content breaks the schema or contradicts itself."""

    exit_code = 3


class UnsupportedModel(RooflineError):
    """A model with a layer kind that is not described; the answer would be wrong, so there is none."""

    exit_code = 3


class UnreadableFile(RooflineError):
    """A file that cannot be opened, decoded or found."""

    exit_code = 3


class DoesNotFit(RooflineError):
    """The model does not fit the memory; raised only where a caller asked for that to be an error."""

    exit_code = 1


class RooflineWarning(UserWarning):
    """Category of all warnings this library issues."""
