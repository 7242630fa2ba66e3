"""Read measured results: which tool wrote a file is told from its content, never from its name."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflinellm.errors import InvalidSpec, UnreadableFile
from rooflinellm.measurements import llama_tools, load_clients, server_tools, trtllm_bench
from rooflinellm.measurements.row import Row, from_cells

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MAX_FILE_BYTES = 512 * 2**20
MAX_CELL = 10_000_000
GZIP = b"\x1f\x8b"
KINDS = (
    "a table of results (CSV), or output of llama-bench, llama-batched-bench, llama-sweep-bench, vLLM, SGLang, "
    "trtllm-bench, GenAI-Perf or AIPerf"
)

csv.field_size_limit(MAX_CELL)


def read(path: str | os.PathLike[str] | Traversable) -> Iterator[Row]:
    """Read the results of a file, gzipped or not.

    Parameters
    ----------
    path : str, path or Traversable
        CSV with the columns of this project's tables of local or of server results; llama-bench output (Markdown, CSV,
        JSON, JSONL); a table or JSONL of llama-batched-bench; ``vllm bench serve``, ``latency`` or ``throughput`` JSON;
        ``sglang.bench_serving`` JSONL; a report of ``trtllm-bench``, JSON or as printed; the summary of GenAI-Perf or
        AIPerf, JSON or CSV.

    Yields
    ------
    Row
        One for each number. A row that cannot be read says so in its `problem`.

    Raises
    ------
    UnreadableFile
        The file is not there, no text, too large or a broken archive.
    InvalidSpec
        The content is of none of these kinds, or breaks off.
    """
    if isinstance(path, str | os.PathLike):
        name = os.fspath(path)
        yield from parse(_text(Path(os.path.expanduser(name)), name), name)
    else:
        yield from parse(_text(path, path.name), path.name)


def parse(text: str, name: str = "text") -> Iterator[Row]:
    """Read the results of a text; errors as in `read`."""
    start = text.lstrip()[:1]
    if not start:
        raise InvalidSpec("the file is empty", where=name)
    if trtllm_bench.is_report(text):
        yield from trtllm_bench.from_text(text, name)
        return
    if start in "[{":
        yield from _from_json(text, name)
        return
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if llama_tools.is_table(line):
            yield from llama_tools.from_markdown(lines, index, name)
            return
        if line.lstrip()[:1] == "{" and not _looks_like_header(lines[0]):
            # a log before the first object of JSONL
            yield from _from_json("\n" * index + "\n".join(lines[index:]), name)
            return
    yield from _from_csv(text, name)


def _text(path: Path | Traversable, name: str) -> str:
    try:
        if isinstance(path, Path) and path.exists() and not path.is_file():
            raise UnreadableFile("a folder, or no regular file", where=name)
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if data[:2] == GZIP:
            with gzip.open(io.BytesIO(data)) as archive:
                data = archive.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise UnreadableFile(getattr(error, "strerror", None) or str(error), where=name) from error
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableFile(f"larger than {MAX_FILE_BYTES >> 20} MiB", where=name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"not UTF-8 text (byte {error.start})", where=name) from error


def _looks_like_header(line: str) -> bool:
    return line.count(",") >= 3


def _from_csv(text: str, name: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = [cell.strip() for cell in next(reader)]
        columns = set(header)
        if header[:2] in (["Metric", "avg"], ["Metric", "Value"]):
            yield from load_clients.from_csv([header, *reader], name)
            return
        make: Callable[[Mapping[str, Any], str, int], Row]
        if {"avg_ts", "n_prompt", "n_gen"} <= columns:
            make = llama_tools.from_record
        elif {"tokens_per_s", "test_kind"} <= columns:
            make = _local
        elif {"value", "unit", "test_kind"} <= columns:
            make = _server
        else:
            raise InvalidSpec(
                f"no results that are known: columns {', '.join(header[:6])!r:.200}",
                where=f"{name}, line 1",
                next_step=f"Give {KINDS}.",
            )
        if len(columns) < len(header):
            raise InvalidSpec("a column stands twice in the header", where=f"{name}, line 1")
        start = reader.line_num + 1
        for cells in reader:
            line, start = start, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            row = make(dict(zip(header, cells, strict=False)), name, line)
            if len(cells) != len(header):
                yield broken(row, f"{len(cells)} cells in a table of {len(header)} columns")
            else:
                yield row
    except csv.Error as error:
        raise InvalidSpec(f"no valid CSV: {error}", where=f"{name}, line {reader.line_num}") from error


def _local(cells: Mapping[str, Any], name: str, line: int) -> Row:
    return from_cells(cells, kind="local", file=name, line=line)


def _server(cells: Mapping[str, Any], name: str, line: int) -> Row:
    text = str(cells.get("extra") or "").strip()
    extra: Any = None
    problem = None
    if text:
        try:
            extra = json.loads(text)
        except ValueError:
            problem = "extra is no JSON"
        if not isinstance(extra, dict):
            extra, problem = None, problem or "extra is no JSON object"
    row = from_cells(
        {key: cell for key, cell in cells.items() if key != "extra"}, kind="server", file=name, line=line, extra=extra
    )
    return broken(row, problem) if problem else row


def broken(row: Row, problem: str) -> Row:
    """The same row with a reason why it cannot be read, unless it has one."""
    return row if row.problem else replace(row, problem=problem)


def _from_json(text: str, name: str) -> Iterator[Row]:
    """One document, or one a line."""
    counted = "line"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        documents = list(_lines_of_json(text, name))
    else:
        listed = document if isinstance(document, list) else [document]
        documents = list(enumerate(listed, start=1))
        counted = "result"
    if not documents:
        raise InvalidSpec("a list without results", where=name)
    for line, item in documents:
        where = f"{name}, {counted} {line}"
        if not isinstance(item, dict):
            raise InvalidSpec(f"expected an object with results, found {type(item).__name__}", where=where)
        if {"avg_ts", "n_prompt", "n_gen"} <= item.keys():
            yield llama_tools.from_record(item, name, line)
        elif {"pp", "tg", "speed_pp", "speed_tg"} <= item.keys():
            yield from llama_tools.from_batched_record(item, name, line)
        elif server_tools.is_known(item):
            yield from server_tools.from_record(item, name, line)
        elif trtllm_bench.is_known(item):
            yield from trtllm_bench.from_record(item, name, line)
        elif load_clients.is_known(item):
            yield from load_clients.from_record(item, name, line)
        elif hint := load_clients.raw_hint(item):
            raise InvalidSpec("a record of every request, not a result", where=where, next_step=hint)
        else:
            keys = ", ".join(map(str, list(item)[:6]))
            raise InvalidSpec(f"no results that are known: keys {keys!r:.200}", where=where, next_step=f"Give {KINDS}.")


def _lines_of_json(text: str, name: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip()[:1] != "{":
            if line.strip() and line.lstrip()[:1] in "[]":
                raise InvalidSpec("the JSON breaks off or is not valid", where=f"{name}, line {number}")
            continue  # a log line between results
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidSpec(f"no valid JSON: {error}", where=f"{name}, line {number}") from error
