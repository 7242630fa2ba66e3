"""Mutated GGUF and safetensors files: whatever a file holds, the answer is a model or a `RooflineError`, and soon."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz_seeds import CONFIG, gguf, packed, safetensors_header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflinellm.catalog import encodings
from rooflinellm.engine.layout import lay_out
from rooflinellm.errors import RooflineError, UnreadableFile
from rooflinellm.importers import gguf_model, safetensors, safetensors_model
from rooflinellm.importers.gguf import read_all
from rooflinellm.operators.model import ModelSpec

BOUNDED = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LONGEST_S = 2.0  # one second is promised; the machine may be busy

# --- mutations

EXTREMES = st.sampled_from([0, 1, 2, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1])


@st.composite
def mutated(draw: st.DrawFn, seed: bytes, header: int) -> bytes:
    """A few changes within the header: other bytes, numbers at their limits, pieces cut, doubled or swapped."""
    data = bytearray(seed)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, header - 1))
        match draw(st.integers(0, 5)):
            case 0:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                width = draw(st.sampled_from([4, 8]))
                data[at : at + width] = (draw(EXTREMES) % 2 ** (8 * width)).to_bytes(width, "little")
            case 2:
                del data[at : at + draw(st.integers(1, 40))]
            case 3:
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case 4:
                data[at:at] = draw(st.binary(min_size=1, max_size=12))
            case 5:
                data = data[: draw(st.integers(0, len(data)))]
    return bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated_json(draw: st.DrawFn, seed: dict[str, Any]) -> Any:
    """A JSON object with one of its values, at any depth, replaced, renamed or taken away."""
    value = json.loads(json.dumps(seed))
    node: Any = value
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return value
        key = draw(st.sampled_from(keys))
        inner = node[key]
        if isinstance(inner, dict | list) and inner and draw(st.booleans()):
            node = inner
            continue
        match draw(st.integers(0, 2)):
            case 0:
                node[key] = draw(JSON)
            case 1:
                del node[key]
            case 2 if isinstance(node, dict):
                node[draw(st.text(max_size=20))] = inner
        return value


# --- properties


def answered(read: Callable[[Path], Any], path: Path) -> None:
    """Read a file: a model whose bytes are all accounted for, or an error of ours, within the time."""
    started = time.perf_counter()
    try:
        entry = read(path)
        model = ModelSpec(entry)
    except RooflineError as error:
        assert str(error) and len(str(error)) < 5000
    else:
        file = model.entry.file
        assert file is not None
        assert lay_out(model, file.fmt, encodings().encodings).resident_bytes == file.total_bytes
        assert model.total_params > 0
    assert time.perf_counter() - started < LONGEST_S


SEEDS = [gguf(), gguf(experts=True)]


@pytest.mark.parametrize("seed", SEEDS, ids=["dense", "experts"])
def test_the_seed_is_a_model(seed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(seed)
    assert ModelSpec(gguf_model.read(path)).total_params > 0
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(packed(safetensors_header()))
    assert ModelSpec(safetensors_model.read(tmp_path)).total_params > 0


@BOUNDED
@given(data=st.data())
@pytest.mark.parametrize("seed", SEEDS, ids=["dense", "experts"])
def test_mutated_gguf(seed: bytes, data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data.draw(mutated(seed, 2_000)))
    answered(gguf_model.read, path)


@BOUNDED
@given(content=st.binary(max_size=400))
def test_noise_behind_the_magic(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + content)
    answered(gguf_model.read, path)


@BOUNDED
@given(data=st.data())
def test_mutated_bytes_of_a_safetensors_header(data: st.DataObject, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    seed = packed(safetensors_header())
    (tmp_path / "model.safetensors").write_bytes(data.draw(mutated(seed, 1_500)))
    answered(safetensors_model.read, tmp_path)


@BOUNDED
@given(header=mutated_json(safetensors_header()))
def test_mutated_values_of_a_safetensors_header(header: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(packed(header))
    answered(safetensors_model.read, tmp_path)


@BOUNDED
@given(config=mutated_json(CONFIG | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}))
def test_mutated_configurations(config: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(packed(safetensors_header()))
    answered(safetensors_model.read, tmp_path)


@BOUNDED
@given(
    index=mutated_json(
        {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(safetensors_header(), "a.safetensors")}
    )
)
def test_mutated_indices(index: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "a.safetensors").write_bytes(packed(safetensors_header()))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    answered(safetensors_model.read, tmp_path)


@BOUNDED
@given(header=mutated_json(safetensors_header()))
def test_we_read_what_the_library_reads(header: Any, tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors")
    path = tmp_path / "x.safetensors"
    path.write_bytes(packed(header))
    try:
        with theirs.safe_open(path, framework="np") as opened:
            expected = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except Exception:  # whatever their reader refuses, ours may refuse too
        return
    try:
        read = {each.name: each.shape for each in safetensors.read_header(path)}
    except UnreadableFile:
        # Stricter on purpose: nothing but dtype, shape and data_offsets, and few dimensions.
        assert any(
            set(each) != {"dtype", "shape", "data_offsets"} or len(each["shape"]) > 8 for each in _tensors(header)
        )
    else:
        assert read == expected


def _tensors(header: Any) -> list[dict[str, Any]]:
    return [each for name, each in header.items() if name != "__metadata__" and isinstance(each, dict)]


def test_the_reader_of_headers_alone_is_as_safe(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for length in range(0, 1_200, 11):
        path.write_bytes(SEEDS[0][:length])
        with pytest.raises(UnreadableFile):
            read_all(path)
