"""Units: the only place where a factor of ten or of 1024 stands.

Inside the library quantities are bytes, seconds, FLOP, FLOP/s, tokens and watts; GB, GiB and TFLOP/s appear in the YAML
files and in what is printed. GB and GB/s are decimal, GiB is binary, and the two are never mixed.
"""

from __future__ import annotations

import re

from rooflinellm.errors import InvalidRequest

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB, TIB, PIB = 2**10, 2**20, 2**30, 2**40, 2**50
MEGA, GIGA, TERA, PETA = 1e6, 1e9, 1e12, 1e15
NANO, MICRO, MILLI = 1e-9, 1e-6, 1e-3
BITS_PER_BYTE = 8

_DECIMAL = {"": 1.0, "K": KB, "M": MB, "G": GB, "T": TB, "P": PETA}
_BINARY = {"KI": float(KIB), "MI": float(MIB), "GI": float(GIB), "TI": float(TIB), "PI": float(PIB)}
_PREFIX = _DECIMAL | _BINARY
_NUMBER = r"(?P<number>\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?|\.\d+)"
_FLAGS = re.IGNORECASE | re.ASCII
_BYTES = re.compile(_NUMBER + r"\s*(?P<prefix>[kmgtp]i?|)(?P<unit>b)", _FLAGS)
_BANDWIDTH = re.compile(_NUMBER + r"\s*(?P<prefix>[kmgtp]i?|)(?P<unit>b)\s*(?:/|p)\s*s(?:ec)?", _FLAGS)
_RATE = re.compile(_NUMBER + r"\s*(?P<prefix>[kmgtp]|)(?:flops|flop/s|ops|op/s)", _FLAGS)


def _parse(pattern: re.Pattern[str], text: str, what: str, example: str) -> float:
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(f"'{text}' is no {what}; write it like {example}.")
    # Networks count bits: 'Gb/s' is an eighth of 'GB/s', so a lower-case b is refused rather than guessed.
    if match.groupdict().get("unit") == "b":
        raise InvalidRequest(f"'{text}': write B for bytes; a lower-case b means bits. Write it like {example}.")
    value = float(match["number"].replace("_", "")) * _PREFIX[match["prefix"].upper()]
    if not 0 < value < float("inf"):
        raise InvalidRequest(f"'{text}' is no {what}: it must be more than 0 and finite.")
    return value


def parse_bytes(text: str) -> float:
    """Read an amount of memory, such as ``24GiB`` (binary) or ``18 GB`` (decimal). [byte]"""
    return _parse(_BYTES, text, "amount of memory", "24GiB or 18GB")


def parse_bandwidth(text: str) -> float:
    """Read a bandwidth, such as ``1008GB/s`` or ``1.2 TB/s`` (decimal; ``GiB/s`` is binary). [byte/s]"""
    return _parse(_BANDWIDTH, text, "bandwidth", "1008GB/s or 1.2TB/s")


def parse_compute_rate(text: str) -> float:
    """Read a compute rate, such as ``165TFLOP/s``, ``165 TFLOPS`` or ``660TOPS``. [FLOP/s]"""
    return _parse(_RATE, text, "compute rate", "165TFLOP/s or 660TOPS")


def significant(value: float, digits: int = 3) -> str:
    """Write a number with so many significant digits, thousands separated: ``12,300``, ``4.56``, ``0.0123``."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = int(f"{abs(rounded):e}".split("e")[1])
    if exponent < -4:
        return f"{rounded:.{digits - 1}e}"
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"


def format_gib(count: float, digits: int = 3) -> str:
    """Write bytes as ``5.62 GiB``."""
    return f"{significant(count / GIB, digits)} GiB"


def format_seconds(seconds: float) -> str:
    """Write a duration in the unit that suits it: ``41 µs``, ``7.1 ms``, ``2.31 s``, ``4.2 min``."""
    if seconds == 0:
        return "0 s"
    if seconds < MILLI:
        return f"{significant(seconds / MICRO, 2)} µs"
    if seconds < 1:
        return f"{significant(seconds / MILLI, 3)} ms"
    if seconds < 120:
        return f"{significant(seconds, 3)} s"
    return f"{significant(seconds / 60, 3)} min"
