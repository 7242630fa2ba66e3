"""One measured number, whatever tool it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

Kind = Literal["local", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measured result. Every field is what the source says; None where it does not say.

    A ``local`` row holds `tokens_per_s`, a ``server`` row a `value` in its own `unit`. Columns of the two kinds of
    tables stand side by side; `resolve` knows which to read.

    Attributes
    ----------
    kind : {'local', 'server'}
        Which columns hold the result.
    id : str
        Identifier, unique in its file.
    file, line : str, int
        Where it was read from, the line counted from 1.
    problem : str or None
        Why the row cannot be read, such as a cell that is no number.
    device, device_id, device_key, device_count
        Name of the device as printed, its entry if the table names one, and how many there were.
    backend, engine, engine_build, engine_version
        What ran it.
    model, hf_model_id, arch_note, params_b, file_size_gib
        The model as printed, its repository, billions of parameters and size of the weight file. [10⁹], [GiB]
    quant, weight_dtype, kv_type, kv_dtype
        Types of weights and cache.
    ngl, n_cpu_moe, threads, n_batch, n_ubatch, flash_attn
        Settings of llama.cpp.
    tp, pp, ep, dp
        Ways of spreading over devices.
    batch_size, batch_size_or_concurrency
        Sequences side by side. [-]
    test_kind : str
        ``prefill``, ``decode``, ``batched_decode``, ``ttft``, ``throughput_offline`` …
    prompt_tokens, gen_tokens, depth_tokens, input_tokens, output_tokens
        Lengths; depth is what the cache held before. [token]
    tokens_per_s, tokens_per_s_sd : float
        Result of a local row and its standard deviation. [tokens/s]
    value, unit
        Result of a server row.
    extra : mapping
        Whatever else the source says.
    measured_bandwidth_gb_s, vcpus, isa
        What is known of a rented CPU. [GB/s], [-]
    memory_note, source, source_date, note, collection
        Words of the source.
    quality : str or None
        ``A`` tool output with size, build and device in one place; ``B`` one of them inferred; ``C`` breadth only.
    population : str or None
        ``gpu_mainline``, ``gpu_other``, ``cpu`` or ``offload``.
    """

    kind: Kind
    id: str
    file: str = ""
    line: int = 0
    problem: str | None = None

    device: str | None = None
    device_id: str | None = None
    device_key: str | None = None
    device_count: float | None = None
    backend: str | None = None
    engine: str | None = None
    engine_build: str | None = None
    engine_version: str | None = None
    model: str | None = None
    hf_model_id: str | None = None
    arch_note: str | None = None
    params_b: float | None = None
    file_size_gib: float | None = None
    quant: str | None = None
    weight_dtype: str | None = None
    kv_type: str | None = None
    kv_dtype: str | None = None
    flash_attn: str | None = None
    ngl: str | None = None
    n_cpu_moe: str | None = None
    threads: float | None = None
    n_batch: float | None = None
    n_ubatch: float | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dp: float | None = None
    batch_size: float | None = None
    batch_size_or_concurrency: float | None = None
    test_kind: str | None = None
    prompt_tokens: float | None = None
    gen_tokens: float | None = None
    depth_tokens: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_sd: float | None = None
    value: float | None = None
    unit: str | None = None
    extra: Mapping[str, Any] | None = None
    measured_bandwidth_gb_s: float | None = None
    vcpus: float | None = None
    isa: str | None = None
    memory_note: str | None = None
    source: str | None = None
    source_date: str | None = None
    note: str | None = None
    collection: str | None = None
    quality: str | None = None
    population: str | None = None


_TYPES = {field.name: str(field.type) for field in fields(Row)}
NUMBERS = frozenset(name for name, kind in _TYPES.items() if kind == "float | None")
TEXTS = frozenset(name for name, kind in _TYPES.items() if kind == "str | None") - {"problem"}
MAX_TEXT = 20_000
MAX_NUMBER = 1e15
"""Larger numbers are no measurements of anything here."""


def number(text: str) -> float:
    """Read a cell as a number of at least 0 that can be a measurement.

    Raises
    ------
    ValueError
        It is none.
    """
    value = float(text)
    if not 0 <= value < MAX_NUMBER:
        raise ValueError(text)
    return value


def from_cells(
    cells: Mapping[str, Any], *, kind: Kind, file: str, line: int, extra: Mapping[str, Any] | None = None
) -> Row:
    """Make a row of named cells; those that no field is called after are left out.

    A cell that should be a number and is none does not stop the reading: it becomes the row's `problem`.

    Parameters
    ----------
    cells : mapping of str to Any
        Texts and numbers by field.
    kind : {'local', 'server'}
        Which columns hold the result.
    file, line : str, int
        Where they stand.
    extra : mapping, optional
        Whatever else is known.
    """
    values: dict[str, Any] = {}
    problem: str | None = None
    for name, cell in cells.items():
        text = "" if cell is None else str(cell).strip()
        if not text:
            continue
        if name in TEXTS:
            values[name] = text[:MAX_TEXT]
        elif name in NUMBERS:
            try:
                values[name] = number(text)
            except ValueError:
                problem = problem or f"{name} '{text[:40]}' is no number of at least 0"
    given = values.pop("id", None) or str(cells.get("id") or "").strip()
    row_id = given or f"{file}:{line}"
    return Row(kind=kind, id=row_id, file=file, line=line, problem=problem, extra=extra, **values)
