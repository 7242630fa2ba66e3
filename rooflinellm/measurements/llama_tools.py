"""Output of llama.cpp's own tools: llama-bench, llama-batched-bench and llama-sweep-bench."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rooflinellm import units
from rooflinellm.errors import InvalidSpec
from rooflinellm.measurements.row import Row, from_cells

ENGINE = "llama.cpp"
_TEST = re.compile(
    r"(?P<kind>pp|tg)\s*(?P<tokens>\d{1,18})(?:\+tg\s*(?P<more>\d{1,18}))?(?:\s*@\s*d\s*(?P<depth>\d{1,18}))?"
)
_RATE = re.compile(r"(?P<mean>[\d.]+)\s*(?:±\s*(?P<sd>[\d.]+))?")
_BUILD = re.compile(r"build:\s*(?P<build>[0-9a-f]{6,}\s*\(\d+\))")
_SETTINGS = re.compile(r"(?P<name>[a-z_]+) = (?P<value>-?\d{1,18}\b)")
_DEVICES = (
    re.compile(r"^\s*Device \d+: (?P<name>[^,]+),"),  # CUDA and ROCm
    re.compile(r"ggml_vulkan: \d+ = (?P<name>[^|]+?)\s*(?:\([^|]*\)\s*)?\|"),
    re.compile(r"GPU name:\s+(?P<name>\S.*)$"),  # Metal
)
_HEADINGS = {
    "model": "model",
    "size": "size",
    "params": "params",
    "backend": "backend",
    "ngl": "ngl",
    "n_cpu_moe": "n_cpu_moe",
    "threads": "threads",
    "n_batch": "n_batch",
    "n_ubatch": "n_ubatch",
    "fa": "flash_attn",
    "type_k": "type_k",
    "type_v": "type_v",
    "sm": "split_mode",
    "test": "test",
    "t/s": "rate",
}


def is_table(line: str) -> bool:
    """Tell whether a line heads a Markdown table of one of the tools."""
    cells = _cells(line)
    return {"model", "test", "t/s"} <= set(cells) or {"PP", "TG", "S_PP t/s", "S_TG t/s"} <= set(cells)


def _cells(line: str) -> list[str]:
    text = line.strip().lstrip("> ").strip()
    return [cell.strip() for cell in text.strip("|").split("|")] if text.startswith("|") else []


def from_markdown(lines: Sequence[str], start: int, file: str) -> Iterator[Row]:
    """Rows of all tables of a log, the first of which is headed by line `start` (from 0).

    What the tools log before a table (devices, build, settings) counts for it.
    """
    header: list[str] = []
    context: dict[str, Any] = {}
    devices: list[str] = []
    for line in lines[:start]:
        _note_context(line, context, devices)
    found = False
    for index in range(start, len(lines)):
        line = lines[index]
        cells = _cells(line)
        if not cells:
            if header:
                header = []
                devices = [] if devices and _device_in(line) else devices
            _note_context(line, context, devices)
        elif is_table(line):
            header = cells
            _note_later(lines[index:], context)
        elif header and not all(set(cell) <= set("-: ") for cell in cells):
            found = True
            if len(cells) != len(header):
                raise InvalidSpec(
                    f"{len(cells)} cells in a table of {len(header)} columns", where=f"{file}, line {index + 1}"
                )
            named = dict(zip(header, cells, strict=True))
            shared = {**context, **_device_cells(devices)}
            if "test" in named:
                yield _bench_line(named, shared, file, index + 1)
            else:
                yield from _batched_line(named, shared, file, index + 1)
    if not found:
        raise InvalidSpec("a table without results", where=f"{file}, line {start + 1}")


def _device_in(line: str) -> str | None:
    return next((match["name"].strip() for pattern in _DEVICES if (match := pattern.search(line))), None)


def _note_context(line: str, context: dict[str, Any], devices: list[str]) -> None:
    device = _device_in(line)
    if device:
        devices.append(device)
    elif match := _BUILD.search(line):
        context["engine_build"] = match["build"]
    elif "n_kv_max" in line:
        context |= {match["name"]: int(match["value"]) for match in _SETTINGS.finditer(line)}


def _note_later(lines: Sequence[str], context: dict[str, Any]) -> None:
    """llama-bench prints its build below the table."""
    for line in lines:
        if match := _BUILD.search(line):
            context["engine_build"] = match["build"]
            return


def _device_cells(devices: Sequence[str]) -> dict[str, Any]:
    if not devices:
        return {}
    return {"device": " + ".join(dict.fromkeys(devices)), "device_count": len(devices)}


def _amount(text: str, factors: Mapping[str, float]) -> float | None:
    match = re.fullmatch(r"(\d{1,18}(?:\.\d*)?)\s*([A-Za-z]+)", text)
    return float(match[1]) * factors[match[2]] if match and match[2] in factors else None


def _bench_line(cells: Mapping[str, str], context: Mapping[str, Any], file: str, line: int) -> Row:
    named = {_HEADINGS[heading]: cell for heading, cell in cells.items() if heading in _HEADINGS}
    test, rate = _TEST.fullmatch(named["test"]), _RATE.match(named["rate"])
    size = _amount(named.get("size", ""), {"GiB": 1, "MiB": 1 / 1024})
    backend = named.get("backend", "")
    result: dict[str, Any] = {
        **{
            key: named.get(key) for key in ("model", "ngl", "n_cpu_moe", "threads", "n_batch", "n_ubatch", "flash_attn")
        },
        **{key: context.get(key) for key in ("device", "device_count", "engine_build")},
        "params_b": _amount(named.get("params", ""), {"B": 1, "M": 1e-3}),
        "file_size_gib": size,
        "backend": backend,
        "kv_type": _kv(named.get("type_k"), named.get("type_v")),
        "engine": ENGINE,
        "batch_size": 1,
        "tokens_per_s": rate["mean"] if rate else named["rate"],
        "tokens_per_s_sd": rate["sd"] if rate else None,
        **(_test(test) if test else {"test_kind": named["test"]}),
    }
    return from_cells(result, kind="local", file=file, line=line, extra=_extra(split_mode=named.get("split_mode")))


def _test(match: re.Match[str]) -> dict[str, Any]:
    tokens, depth = int(match["tokens"]), int(match["depth"] or 0)
    if match["kind"] == "pp" and match["more"]:
        return _lengths(tokens, int(match["more"]), depth)
    return _lengths(tokens, 0, depth) if match["kind"] == "pp" else _lengths(0, tokens, depth)


def _lengths(prompt: int, output: int, depth: int) -> dict[str, Any]:
    kind = "mixed" if prompt and output else "prefill" if prompt else "decode"
    return {"test_kind": kind, "prompt_tokens": prompt, "gen_tokens": output, "depth_tokens": depth}


def _kv(keys: str | None, values: str | None) -> str:
    """Type of the cache; llama-bench shows it only where it is not f16."""
    return f"{keys or 'f16'}/{values or 'f16'}"


def _extra(**given: Any) -> dict[str, Any] | None:
    kept = {key: value for key, value in given.items() if value not in (None, "")}
    return kept or None


def from_record(record: Mapping[str, Any], file: str, line: int) -> Row:
    """A row of an object of ``llama-bench -o json|jsonl``, or of a line of ``-o csv``."""
    gpus = [name.strip() for name in str(record.get("gpu_info") or "").split(", ") if name.strip()]
    backend = str(record.get("backends") or record.get("backend") or "")
    if not backend:  # older builds have one column for each
        flags = {
            "cuda": "CUDA",
            "hip": "ROCm",
            "vulkan": "Vulkan",
            "metal": "Metal",
            "sycl": "SYCL",
            "opencl": "OpenCL",
        }
        backend = next((name for key, name in flags.items() if str(record.get(key)).lower() in ("1", "true")), "CPU")
    on_gpu = bool(gpus) and backend not in ("CPU", "BLAS")
    used = gpus if on_gpu else [str(record.get("cpu_info") or "").strip()]
    size, params = record.get("model_size"), record.get("model_n_params")
    problem = None
    try:
        lengths = _lengths(*(int(str(record.get(key) or 0)) for key in ("n_prompt", "n_gen", "n_depth")))
        gib = None if size in (None, "") else int(str(size)) / units.GIB
        billions = None if params in (None, "") else int(str(params)) / units.GIGA
    except (ValueError, OverflowError):
        lengths, gib, billions, problem = {}, None, None, "n_prompt, n_gen, n_depth or model_size is no whole number"
    row = from_cells(
        {
            **lengths,
            "device": " + ".join(dict.fromkeys(used)),
            "device_count": len(used) if on_gpu else 1,
            "backend": backend,
            "engine": ENGINE,
            "engine_build": " ".join(filter(None, (str(record.get("build_commit") or ""), _number_of(record)))),
            "model": _model(record),
            "params_b": billions,
            "file_size_gib": gib,
            "kv_type": _kv(_text(record, "type_k"), _text(record, "type_v")),
            "flash_attn": record.get("flash_attn"),
            "ngl": record.get("n_gpu_layers") if on_gpu else 0,
            "n_cpu_moe": record.get("n_cpu_moe"),
            "threads": record.get("n_threads"),
            "n_batch": record.get("n_batch"),
            "n_ubatch": record.get("n_ubatch"),
            "batch_size": 1,
            "tokens_per_s": record.get("avg_ts"),
            "tokens_per_s_sd": record.get("stddev_ts"),
            "source_date": str(record.get("test_time") or "")[:10],
        },
        kind="local",
        file=file,
        line=line,
        extra=_extra(
            split_mode=record.get("split_mode"),
            tensor_overrides=_text(record, "tensor_buft_overrides"),
            no_kv_offload=record.get("no_kv_offload")
            if str(record.get("no_kv_offload")).lower() in ("1", "true")
            else None,
            rpc=_text(record, "rpc_servers"),
            cpu=_text(record, "cpu_info"),
        ),
    )
    return replace(row, problem=problem) if problem and not row.problem else row


def _text(record: Mapping[str, Any], key: str) -> str | None:
    text = str(record.get(key) or "").strip()
    return None if text in ("", "none") else text


def _number_of(record: Mapping[str, Any]) -> str:
    number = _text(record, "build_number")
    return f"({number})" if number else ""


def _model(record: Mapping[str, Any]) -> str:
    """File name and type, as in ``Qwen2.5-7B-Instruct-Q4_K_M.gguf (qwen2 7B Q4_K - Medium)``."""
    name = re.split(r"[/\\]", str(record.get("model_filename") or ""))[-1]
    kind = str(record.get("model_type") or "")
    return f"{name} ({kind})" if name and kind else name or kind


def from_batched_record(record: Mapping[str, Any], file: str, line: int) -> Iterator[Row]:
    """Rows of an object of ``llama-batched-bench --output-format jsonl``: prefill and decode, of all sequences."""
    cells = {
        "PP": record.get("pp"), "TG": record.get("tg"), "B": record.get("pl", 1),
        "S_PP t/s": record.get("speed_pp"), "S_TG t/s": record.get("speed_tg"),
    }  # fmt: skip
    yield from _batched_line({key: str(cell) for key, cell in cells.items() if cell is not None}, record, file, line)


def _batched_line(cells: Mapping[str, str], context: Mapping[str, Any], file: str, line: int) -> Iterator[Row]:
    """Two rows of a line of llama-batched-bench, or of llama-sweep-bench, whose N_KV stood in the cache before."""
    batch = cells.get("B", "1")
    sweep = "B" not in cells
    depth = cells.get("N_KV", "0") if sweep else "0"
    shared = {
        **{key: context.get(key) for key in ("device", "device_count", "engine_build", "model", "n_batch", "n_ubatch")},
        "flash_attn": context.get("flash_attn"),
        "ngl": context.get("n_gpu_layers"),
        "threads": context.get("n_threads"),
        "engine": ENGINE,
        "batch_size": batch,
    }
    many = batch not in ("1", "1.0")
    common = {"shared_prompt": 1 if str(context.get("is_pp_shared", 0)) in ("1", "True") else None}
    before = _sum(depth, cells["PP"])
    yield from_cells(
        shared
        | {
            "id": f"{file}:{line}:pp",
            "test_kind": "batched_prefill" if many else "prefill",
            "prompt_tokens": cells["PP"],
            "gen_tokens": 0,
            "depth_tokens": depth,
            "tokens_per_s": cells["S_PP t/s"],
        },
        kind="local",
        file=file,
        line=line,
        extra=_extra(**common),
    )
    yield from_cells(
        shared
        | {
            "id": f"{file}:{line}:tg",
            "test_kind": "batched_decode" if many else "decode",
            "prompt_tokens": 0,
            "gen_tokens": cells["TG"],
            "depth_tokens": before,
            "tokens_per_s": cells["S_TG t/s"],
        },
        kind="local",
        file=file,
        line=line,
        extra=_extra(**common),
    )


def _sum(depth: str, prompt: str) -> str:
    try:
        return str(int(float(depth)) + int(float(prompt)))
    except (ValueError, OverflowError):
        return prompt
