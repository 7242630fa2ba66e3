"""What a row drafts, and how much of it was accepted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rooflinellm.engine.acceptance import cycle_tokens
from rooflinellm.engine.speculation import Speculation
from rooflinellm.measurements.row import Row
from rooflinellm.measurements.workload import SkipRow

_DRAFTS = re.compile(r"spec|mtp|dflash|eagle", re.IGNORECASE)
_LENGTH = re.compile(r"--(?:spec-)?draft(?:-n)?-max[ =](?P<length>\d{1,3})")
_ACCEPTED = re.compile(r"accept(?:ance)?_rate=(?P<share>[01](?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafts by the model's own module.

    Attributes
    ----------
    speculation : Speculation
        How many are drafted and accepted.
    """

    speculation: Speculation


def drafts_of(row: Row) -> Drafts | None:
    """What a row drafts, None where it drafts nothing.

    Raises
    ------
    SkipRow
        It does not say how much, or how much was accepted.
    """
    kind, extra = row.test_kind or "", row.extra or {}
    speculates = kind.startswith("spec_decode") or bool(extra.get("speculation"))
    if not speculates and _DRAFTS.search(row.kv_type or "") is None:
        return None
    if row.kind == "server":
        raise SkipRow("a server's speculation is not modelled yet")
    note = row.note or ""
    length, share = _LENGTH.search(note), _ACCEPTED.search(note)
    if length is None or share is None:
        raise SkipRow("the row does not say how many tokens were drafted and accepted")
    if "draft-mtp" not in note:
        raise SkipRow("the row does not say what drafted")
    drafted = int(length["length"])
    accepted = {"accepted_over_drafted": float(share["share"])}
    return Drafts(Speculation(drafted, drafted, cycle_tokens(accepted, drafted)))
