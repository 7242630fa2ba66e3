"""Take a command apart: program, flags with their values, and whatever stands around."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from rooflinellm.errors import InvalidRequest, met
from rooflinellm.launch.flags import (
    CONTAINERS,
    LAUNCHERS,
    NOTED,
    PROGRAMS,
    QUIET_VARIABLES,
    SILENT,
    UNREAD,
    WORDS,
    Program,
)

WHERE = "command"
LONGEST = 100_000
"""Characters of a command."""

_CONTINUED = re.compile(r"[\\^`][ \t]*\r?\n")
_WINDOWS = re.compile(r"(?:^|[\s\"'=])(?:[A-Za-z]:\\|\.{1,2}\\)|\.exe\b", re.IGNORECASE)
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(r"-\.?\d")
_PYTHON = re.compile(r"python[\d.]*|py|-m")
_CONTROL = re.compile(r"&&|\|\|?|;|&|&?\d*[<>].*")
_SWITCHES = re.compile(r"--(?:no|enable|disable|use)-")


@dataclass(slots=True)
class Parsed:
    """A command in parts.

    Attributes
    ----------
    program : Program
        What is started.
    given : dict of str to list of tuple
        By setting: flags as typed and their values, in order.
    unused : list of str
        What matters or is unknown, in words.
    """

    program: Program
    given: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Take a command apart.

    Raises
    ------
    InvalidRequest
        A quotation that does not end, no program that is known, or a flag without its value.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest(f"{met(text)} is no command", where=WHERE, next_step=_known())
    if len(text) > LONGEST:
        raise InvalidRequest(f"{len(text):,} characters are no command", where=WHERE)
    words = _words(_CONTINUED.sub(" ", text))
    for segment in _segments(words):
        found = _program(segment)
        if found is not None:
            start, end, program = found
            parsed = Parsed(program)
            _before(parsed, segment[:start])
            _arguments(parsed, segment[end:])
            return parsed
    engine = next((UNREAD[name] for name in map(_called, words) if name in UNREAD), None)
    if engine is not None:
        step = f"Name the model itself, and --engine {engine} (in Python: engine='{engine}'). {_known()}"
        raise InvalidRequest(f"commands of {engine} are not read", where=WHERE, next_step=step)
    raise InvalidRequest(f"no known program in '{text.strip()[:60]}'", where=WHERE, next_step=_known())


def _known() -> str:
    return "Known are " + ", ".join(dict.fromkeys(program.name for program in PROGRAMS.values())) + "."


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if _WINDOWS.search(text):
        lexer.escape = ""
    try:
        return list(lexer)
    except ValueError as error:
        raise InvalidRequest(
            f"the command cannot be split into words: {str(error).lower()}",
            where=WHERE,
            next_step="Close the quotation, or take the stray quotation mark out.",
        ) from error


def _segments(words: Sequence[str]) -> list[list[str]]:
    """Commands that are joined by ``&&``, ``|`` and the like."""
    segments: list[list[str]] = [[]]
    for word in words:
        if _CONTROL.fullmatch(word) and (word != ">" or segments[-1]):  # a prompt may stand before the command
            segments.append([])
        elif word.endswith(";"):
            segments[-1].append(word[:-1])
            segments.append([])
        else:
            segments[-1].append(word)
    return segments


def _called(word: str) -> str:
    """A program's name without its path and ending; of a container's image the program it starts."""
    name = re.split(r"[/\\]", word)[-1]
    name = name[:-4] if name.lower().endswith(".exe") else name
    return next((program for image, program in CONTAINERS.items() if name.startswith(image)), name)


def _program(words: Sequence[str]) -> tuple[int, int, Program] | None:
    """Where the first known program stands: from, to, and which it is."""
    names = [_called(word) for word in words]
    for start in range(len(names)):
        for length in (3, 2, 1):
            program = PROGRAMS.get(tuple(names[start : start + length]))
            if program is not None:
                return start, min(start + length, len(names)), program
    return None


def _before(parsed: Parsed, words: Sequence[str]) -> None:
    """Environment and launchers; the arguments of a container are its own."""
    contained = any(_called(word) in ("docker", "podman") for word in words)
    wrapper: list[str] = []
    for word in words:
        if match := _VARIABLE.fullmatch(word):
            if not match["name"].startswith(QUIET_VARIABLES):
                parsed.unused.append(match["name"])
        elif not contained and not _PYTHON.fullmatch(_called(word)) and _called(word) not in LAUNCHERS:
            wrapper.append(word)
    if wrapper:
        parsed.unused.append(" ".join(wrapper))


def _arguments(parsed: Parsed, words: Sequence[str]) -> None:
    flags, position = parsed.program.flags, 0
    while position < len(words):
        typed, equals, value = words[position].partition("=")
        position += 1
        if not typed.startswith("-") or _NUMBER.match(typed) or typed == "-":
            _positional(parsed, words[position - 1])
            continue
        name = "--" + typed[2:].replace("_", "-") if typed.startswith("--") else typed
        flag = flags.get(name) or flags.get(name.partition(".")[0])
        following = words[position] if position < len(words) else None
        if flag is None:
            parsed.unused.append(f"{typed} (unknown to {parsed.program.name})")
            if not equals and following is not None and not _is_flag(following) and not _SWITCHES.match(name):
                position += 1
            continue
        if not equals:
            value = flag.word
            if flag.takes in ("value", "values"):
                if following is None or following in flags:
                    raise InvalidRequest(
                        "a value must follow" + (f", not {following}" if following else ""),
                        where=f"{WHERE}, {typed}",
                        next_step="Give the value, or leave the flag out.",
                    )
                value, position = following, position + 1
            elif flag.takes == "maybe" and following is not None and following.partition(",")[0].lower() in WORDS:
                value, position = following, position + 1
        while flag.takes == "values" and position < len(words) and not _is_flag(words[position]):
            position += 1
        if "." in name and name not in flags:
            parsed.unused.append(typed)
        elif flag.key == NOTED:
            shown = "" if flag.takes == "nothing" else f" {value[:40]}"
            parsed.unused.append(f"{typed}{shown}" + (f" ({flag.why})" if flag.why else ""))
        elif flag.key != SILENT:
            parsed.given.setdefault(flag.key, []).append((typed, value))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not _NUMBER.match(word)


def _positional(parsed: Parsed, word: str) -> None:
    key = parsed.program.positional
    if key and key not in parsed.given:
        parsed.given[key] = [(key.upper(), word)]
    else:
        parsed.unused.append(word[:40])
