"""How answers are written: as tables, Markdown, JSON or CSV, always on standard output."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rooflinellm.cli.terminal import Terminal

if TYPE_CHECKING:
    from rooflinellm.render import Table

F = TypeVar("F", bound=Callable[..., Any])

_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""What JSON leaves as it is and a terminal obeys: control characters beyond ASCII, and those that turn text around."""

FORMATS = ("table", "md", "json", "csv")


class Output:
    """Writes an answer in the format that was asked for; what is not asked for is not computed."""

    def __init__(self, form: str) -> None:
        self.form = form

    @property
    def is_text(self) -> bool:
        """Whether people read it."""
        return self.form in ("table", "md")

    def write(
        self,
        tables: Callable[[], Sequence[Table]],
        payload: Callable[[], Mapping[str, Any]],
        records: Callable[[], Sequence[Mapping[str, Any]]],
    ) -> None:
        """Write the answer.

        Parameters
        ----------
        tables : callable
            Gives the tables, for people.
        payload : callable
            Gives the content of the JSON object.
        records : callable
            Gives the rows of the CSV file, nested values by dotted keys.
        """
        if self.form == "json":
            self.json(payload())
        elif self.form == "csv":
            self.csv(records())
        else:
            self.tables(tables())

    def tables(self, tables: Sequence[Table]) -> None:
        """Write tables with an empty line between them."""
        terminal = Terminal.of(sys.stdout)
        if self.form == "md":
            text = terminal.text("\n\n".join(table.to_markdown() for table in tables))
        else:
            rule = terminal.text("─")
            shown = [table.map(terminal.text) for table in tables]
            text = "\n\n".join(table.to_text(terminal.width, terminal.dress, rule) for table in shown)
            text = "\n".join([text, *(terminal.dress("note", line) for line in _left_out(shown, terminal.width))])
        click.echo(text, color=terminal.colour)

    def json(self, payload: Mapping[str, Any]) -> None:
        """Write one JSON object that begins with the versions."""
        text = json.dumps(
            {**versions(), **payload},
            indent=2,
            allow_nan=False,
            ensure_ascii=not Terminal.of(sys.stdout).unicode,
        )
        click.echo(_UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text))

    def csv(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write a line a record, under the keys of all of them."""
        from rooflinellm.render import printable

        rows = [dict(_flat(record)) for record in records]
        buffer = io.StringIO()
        writer = csv.DictWriter(
            buffer, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n", restval=""
        )
        writer.writeheader()
        writer.writerows(
            {key: printable(cell) if isinstance(cell, str) else cell for key, cell in row.items()} for row in rows
        )
        click.echo(Terminal.of(sys.stdout).text(buffer.getvalue()), nl=False)


MOST_NAMED = 8
"""Columns that are named where some are left out. [-]"""


def _left_out(tables: Sequence[Table], width: int) -> list[str]:
    """Which columns a terminal is too narrow for, and how to see them; nothing where all are shown."""
    from rooflinellm.render import wrapped

    names = list(dict.fromkeys(name for table in tables for name in table.left_out(width) if name))
    if not names:
        return []
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    needed = max(table.full_width for table in tables)
    return wrapped(
        f"columns left out: {', '.join(names[:MOST_NAMED])}{more}; COLUMNS={needed} or -f md shows them", width
    )


def versions() -> dict[str, Any]:
    """What every JSON answer begins with."""
    from rooflinellm import __version__
    from rooflinellm.api.lists import data_version
    from rooflinellm.results import SCHEMA_VERSION

    return {
        "schema_version": SCHEMA_VERSION,
        "rooflinellm_version": __version__,
        "data_version": data_version(),
    }


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted keys; lists of words in one cell, other lists left to JSON."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield prefix + key, str(value).lower()
        elif isinstance(value, list | tuple):
            if all(isinstance(item, str) for item in value):
                yield prefix + key, "; ".join(value)
        else:
            yield prefix + key, value


def output_options(function: F) -> F:
    """Give a command ``--format`` and ``--json``; its function gets an `Output` as `output`."""

    @wraps(function)
    def command(*args: Any, form: str | None, as_json: bool, **named: Any) -> Any:
        if as_json and form not in (None, "json"):
            raise click.UsageError(f"--json and --format {form} exclude each other")
        return function(*args, output=Output("json" if as_json else form or "table"), **named)

    wrapped: Any = click.option("--json", "as_json", is_flag=True, help="Short for --format json.")(command)
    wrapped = click.option(
        *("-f", "--format", "form"),
        type=click.Choice(FORMATS),
        metavar="FORM",
        help=f"{', '.join(FORMATS)}.  [default: table]",
    )(wrapped)
    return wrapped  # type: ignore[no-any-return]
