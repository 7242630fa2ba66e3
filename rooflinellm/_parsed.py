"""What the YAML files of the databases say, worked out when the package was built: read in a sixth of the time.

A wheel carries it beside the databases; a checkout has none and reads its YAML. A text is known by its digest: where
a file was changed since, the file itself counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from rooflinellm import _resources

UNKNOWN = object()
"""What `known` returns of a text that was not there, or was another one."""


def known(text: str) -> Any:
    """The plain values of a text, a new copy each time; `UNKNOWN` of one that is not among them."""
    places, values = _packaged()
    place = places.get(_digest(text)) if places else None
    try:
        return UNKNOWN if place is None else json.loads(values[place[0] : place[1]])
    except ValueError:  # a damaged file
        return UNKNOWN


def written(parsed: Iterable[tuple[str, Any]]) -> bytes:
    """Texts and their plain values as a file: a line that says where each one's values are, and the values behind it.

    Parameters
    ----------
    parsed : iterable of tuple
        Each text with its values, whose keys are all text.
    """
    places: dict[str, tuple[int, int]] = {}
    values = b""
    for text, found in parsed:
        data = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
        places[_digest(text)] = len(values), len(values) + len(data)
        values += data
    return json.dumps(places, separators=(",", ":")).encode() + b"\n" + values


@cache
def _packaged() -> tuple[dict[str, tuple[int, int]], bytes]:
    """Where the values of each text are, and the values."""
    data = _resources.parsed()
    places, _, values = data.partition(b"\n")
    try:
        return (json.loads(places) if places else {}), values
    except ValueError:  # a damaged file
        return {}, b""


def _digest(text: str) -> str:
    from hashlib import blake2b  # not at import time: it brings OpenSSL

    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
