"""What the commands about the databases share: lists, and the report of a check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rooflinellm.cli.output import Output

if TYPE_CHECKING:
    from rooflinellm.api.lint import LintResult
    from rooflinellm.api.lists import Listing
    from rooflinellm.render import Table

FILE = 3


def write_listing(output: Output, key: str, listing: Listing, query: str) -> None:
    """Write entries: in JSON as the one list of the answer.

    Raises
    ------
    UnknownName
        None has the words of the query; programs get their empty list before.
    """
    if listing or not query or not output.is_text:
        output.write(
            tables=lambda: [listing.table()],
            payload=lambda: {key: listing.records()},
            records=listing.records,
        )
    if query and not listing:
        from rooflinellm import catalog

        raise catalog.unknown_entry(key, query)


def write_lint(output: Output, result: LintResult) -> int:
    """Write what a check found; the exit code tells whether there are errors."""

    def table() -> Table:
        from rooflinellm.render import Table

        counts = [
            f"{count:,} {noun}" + ("" if count == 1 else "s")
            for count, noun in ((result.files, "file"), (result.errors, "error"), (result.warnings, "warning"))
        ]
        answer = f"{counts[0]}: {counts[1]}, {counts[2]}"
        return Table((), (), answer, [str(problem) for problem in result.problems])

    output.write(
        tables=lambda: [table()],
        payload=result.to_dict,
        records=lambda: [problem.to_dict() for problem in result.problems],
    )
    return 0 if result.ok else FILE


def sources_table(sources: Mapping[str, Any]) -> Table:
    """The sources of an entry, a line each."""
    from rooflinellm.render import Table

    lines = []
    for key, source in sources.items():
        parts = [source.title, source.publisher, source.year, source.note, source.url]
        lines.append(f"{key}: " + ", ".join(str(part) for part in parts if part is not None))
    return Table((), (), "sources", lines)
