"""What is fuzzed: every parser of the library as a function of bytes, with the texts that mutations start from.

Each function returns, or raises a `RooflineError`; whatever else it raises is a finding. A specification that is read
is also asked for an answer, which must be finite and ordered.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import fuzz_seeds as seeds

import rooflinellm as rl
from rooflinellm import _strict_yaml, _yaml, catalog
from rooflinellm.api import turns, workloads
from rooflinellm.catalog import encodings
from rooflinellm.engine.layout import lay_out
from rooflinellm.errors import RooflineError, RooflineWarning
from rooflinellm.importers import gguf_model, huggingface, safetensors_model
from rooflinellm.measurements import readers, resolve
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import validate
from rooflinellm.specs.formats import Encodings, FormatSpec
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.model import ModelEntry

DATA_BYTES = 2**16  # tensors of a mutated header may point this far behind it
DEVICE = "24GiB,1000GB/s,100TFLOP/s@fp16"
MODEL = "qwen3-0.6b"
_edits = count(1)


class Target(NamedTuple):
    """A parser: what reads the bytes, where mutations start, and pieces that they are made of."""

    read: Callable[[bytes], Any]
    seeds: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...] = ()
    header: int = 1 << 30  # mutations stay before this byte


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        yield


def check_answer(found: Any) -> None:
    """An estimate of numbers: finite, ordered, and no bytes below 0."""
    for phase in (found.prefill, found.decode):
        for rate in (phase.tokens_per_s, phase.aggregate_tokens_per_s):
            assert 0 <= rate.low <= rate.expected <= rate.high <= rate.ideal < math.inf, rate
        assert 0 <= phase.flops < math.inf and 0 <= phase.read_bytes < math.inf
    for time in (found.prefill.time_s, found.decode.time_s, found.ttft_s, found.tpot_s, found.itl_s, found.e2e_s):
        assert 0 <= time.ideal <= time.low <= time.expected <= time.high < math.inf, time
    assert 0 < found.memory.total_bytes < math.inf
    json.dumps(found.to_dict(), allow_nan=False)


def _ask(model: Any, hardware: Any, **request: Any) -> None:
    with _quiet():
        check_answer(rl.estimate(model, hardware, **request))


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


# --- entries


def _validated(spec: Any, data: bytes) -> Any:
    text = _text(data)
    return validate(spec, _yaml.parse(text, where="x.yaml"), where="x.yaml", text=text)


def read_yaml(data: bytes) -> None:
    """Both readers of YAML give the same."""
    text = _text(data)
    found = []
    for read in (_yaml.parse, lambda text: _strict_yaml.parse_fully(text, "text")):
        try:
            found.append(repr(read(text)))
        except RooflineError as error:
            found.append(str(error))
    assert found[0] == found[1]


def read_device(data: bytes) -> None:
    """A device that validates answers, or says what it lacks."""
    device = _validated(HardwareSpec, data)
    _ask(MODEL, device, weights="Q8_0")


def read_model(data: bytes) -> None:
    """A model that validates answers, or says what is not supported."""
    model = ModelSpec(_validated(ModelEntry, data))
    assert model.total_params > 0
    _ask(model, DEVICE)


def read_format(data: bytes) -> None:
    """A format that validates answers."""
    fmt = _validated(FormatSpec, data)
    _ask(MODEL, DEVICE, weights=fmt)


def read_encodings(data: bytes) -> None:
    """The table of encodings."""
    for encoding in _validated(Encodings, data).encodings.values():
        assert 0 < encoding.bits_per_element < math.inf


def read_engine(data: bytes) -> None:
    """An engine's file that is read answers."""
    with _file(data, "engine.yaml") as path:
        _ask(MODEL, DEVICE, engine=str(path))


def read_profile(data: bytes) -> None:
    """A profile that is read answers."""
    with _file(data, "profile.yaml") as path:
        _ask(MODEL, DEVICE, weights="Q8_0", options=rl.Options(profile=path))


# --- files of models


@cache
def _folder() -> Path:
    import atexit

    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="rooflinellm-fuzz-", dir=base))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def _file(data: bytes, name: str, hole: int = 0) -> Iterator[Path]:
    path = _folder() / name
    with open(path, "wb") as stream:
        stream.write(data)
        stream.truncate(len(data) + hole)
    stamp = next(_edits) * 10**9  # a clock of a few milliseconds would make two contents one
    os.utime(path, ns=(stamp, stamp))
    yield path


def _model_of_file(entry: ModelEntry) -> None:
    model = ModelSpec(entry)
    file = model.entry.file
    assert model.total_params > 0
    if file is not None:
        assert lay_out(model, file.fmt, encodings().encodings).resident_bytes == file.total_bytes


def read_gguf(data: bytes) -> None:
    """All bytes of a GGUF file are accounted for."""
    with _file(data, "x.gguf", DATA_BYTES) as path:
        _model_of_file(gguf_model.read(path))


def read_safetensors(data: bytes) -> None:
    """The header of a checkpoint beside its configuration."""
    folder = _folder() / "checkpoint"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(seeds.CONFIG))
    with _file(data, "checkpoint/model.safetensors") as path:
        _model_of_file(safetensors_model.read(path.parent))


def read_config(data: bytes) -> None:
    """A configuration of Hugging Face's kind; what is read of it answers."""
    with _file(data, "config.json") as path:
        model = ModelSpec(huggingface.read(path))
    assert model.total_params > 0
    _ask(model, DEVICE, prompt_tokens=7, output_tokens=3)


def read_index(data: bytes) -> None:
    """The index of a checkpoint in several files."""
    folder = _folder() / "split"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(seeds.CONFIG))
    (folder / "a.safetensors").write_bytes(seeds.packed(seeds.safetensors_header()))
    with _file(data, "split/model.safetensors.index.json") as path:
        _model_of_file(safetensors_model.read(path.parent))


# --- what people type


def read_command(data: bytes) -> None:
    """A launch command; its keywords are those of `estimate`."""
    with _quiet():
        launch = rl.from_command(_text(data), MODEL)
        degrees = (launch.keywords.get(f"{name}_parallel", 1) for name in ("tensor", "pipeline", "data"))
        rl.estimate(launch.model, f"{min(math.prod(degrees), 64)}x h100-sxm", **launch.keywords).to_json()


def read_system(data: bytes) -> None:
    """A system has a canonical name, which reads the same."""
    found = rl.system(_text(data))
    assert rl.system(found.name) == found, found.name


def read_ad_hoc(data: bytes) -> None:
    """A device by its figures answers."""
    device = rl.hardware(_text(data))
    assert math.isfinite(device.memory_bandwidth_bytes_per_s)
    _ask(MODEL, device)


def read_axis(data: bytes) -> None:
    """What ``--over`` and the types of options take; click's own errors are answers too."""
    import click

    from rooflinellm.cli import axes, inputs

    text = _text(data)
    for kind in (axes.Over(), inputs.COUNT):
        try:
            kind.convert(text, None, None)
        except click.ClickException:
            continue


def read_overrides(data: bytes) -> None:
    """What ``--set`` takes."""
    path, _, value = _text(data).partition("=")
    try:
        number: Any = json.loads(value)
    except (ValueError, RecursionError):
        number = value
    with _quiet():
        found = rl.estimate(MODEL, "rtx-4090", weights="Q8_0", overrides={path: number})
        if isinstance(number, list):
            found.to_json()
        else:
            check_answer(found)


def read_names(data: bytes) -> None:
    """Names of models, formats, types of cache and engines."""
    text = _text(data)
    for read in (catalog.kv_type, catalog.engine, catalog.weight_format, rl.list_hardware, catalog.model):
        try:
            read(text)
        except RooflineError as error:
            assert str(error)


# --- results and traces


def read_results(data: bytes) -> None:
    """Results of benchmarks: each row is resolved, skipped with a reason, or broken with one."""
    with _file(data, "results.txt") as path:
        rows = list(readers.read(path))
    for row in rows[:4]:
        resolve(row)


def read_turns(data: bytes) -> None:
    """Turns of a conversation, as CSV and as JSON."""
    for name in ("turns.csv", "turns.json"):
        with _file(data, name) as path:
            try:
                turns.read_turns(path)
            except RooflineError as error:
                assert str(error)


def read_trace(data: bytes) -> None:
    """Arrivals and lengths of requests."""
    with _file(data, "trace.csv") as path:
        trace = workloads.trace(path)
    assert all(map(math.isfinite, trace.arrival_s))


NUMBERS = (
    *(b"0", b"-1", b"1", b"1e308", b"1e400", b"-0", b"nan", b".nan", b"inf", b"-inf", b"9" * 25, b"1e-300", b"0.5"),
    *(b"4294967295", b"18446744073709551616", b"null", b"true", b"[]", b"{}", b'""', b"\xff", b"\0", "é".encode()),
)
YAML_TOKENS = (*NUMBERS, b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system", b"- ", b": ", b"\n", b"  ", b"|", b">")
JSON_TOKENS = (*NUMBERS, b"{", b"}", b"[", b"]", b",", b":", b'"', b"NaN", b"Infinity", b"\\ud800")
WORDS = (*NUMBERS, b"x", b"@", b"+", b",", b" ", b"GiB", b"GB/s", b"TFLOP/s", b"@fp16", b"=", b":", b"'", b'"', b"\\")
CSV_TOKENS = (*JSON_TOKENS, b"\n", b"\r", b"|", b"pp512", b"tg128", b" @ d512", b";", b"\t")

TARGETS: dict[str, Target] = {
    "yaml": Target(read_yaml, seeds.yaml_texts, YAML_TOKENS),
    "device": Target(read_device, seeds.devices, YAML_TOKENS),
    "model": Target(read_model, seeds.models, YAML_TOKENS),
    "format": Target(read_format, seeds.formats, YAML_TOKENS),
    "encodings": Target(read_encodings, seeds.encodings, YAML_TOKENS),
    "engine": Target(read_engine, seeds.engines, YAML_TOKENS),
    "profile": Target(read_profile, seeds.profiles, YAML_TOKENS),
    "gguf": Target(read_gguf, lambda: [seeds.gguf(), seeds.gguf(experts=True)], header=2_000),
    "safetensors": Target(
        read_safetensors, lambda: [seeds.packed(seeds.safetensors_header())], JSON_TOKENS, header=1_500
    ),
    "config": Target(read_config, seeds.configs, JSON_TOKENS),
    "index": Target(read_index, seeds.indices, JSON_TOKENS),
    "command": Target(read_command, seeds.commands, (*WORDS, b"-ngl", b"-c", b"-ctk", b"q8_0", b"-ot", b"-ts", b"-np")),
    "system": Target(read_system, seeds.systems, (*WORDS, b"rtx-3090", b"ddr5-5600x2", b"nvme-gen4", b"10gbe")),
    "ad_hoc": Target(read_ad_hoc, seeds.ad_hoc, WORDS),
    "axis": Target(read_axis, seeds.axes, WORDS),
    "overrides": Target(read_overrides, seeds.overrides, JSON_TOKENS),
    "names": Target(read_names, seeds.names, WORDS),
    "results": Target(read_results, seeds.results, CSV_TOKENS),
    "turns": Target(read_turns, seeds.turns, CSV_TOKENS),
    "trace": Target(read_trace, seeds.traces, CSV_TOKENS),
}
