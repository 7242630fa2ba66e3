"""Safetensors: the header of one file, and which files make a model. No tensor data is read.

A header is JSON that may come from anywhere: it is taken apart entry by entry, so that neither depth nor size of what
it holds matters. Counts, offsets and sizes are checked before they are believed; every fault is an `UnreadableFile`.

References
----------
huggingface/safetensors, README (format) and safetensors/src/tensor.rs (checks).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rooflinellm.errors import UnreadableFile, UnsupportedModel, met
from rooflinellm.specs.index import regular_status

MAX_HEADER_BYTES = 2**24  # far above any real one; the format allows 100 MB
MAX_INDEX_BYTES = 2**25
MAX_ENTRY_CHARACTERS = 2**12
MAX_TENSORS = 2**16
MAX_TENSORS_OF_ALL = 2**18
MAX_FILES = 1_000
MAX_DIMENSIONS = 8
INDEX = ".safetensors.index.json"
SUFFIX = ".safetensors"

DTYPE_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}

_PART = re.compile(r"(?P<prefix>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.safetensors", re.DOTALL)
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_KEY = re.compile(rf"\s*+({_STRING})\s*+:\s*+")
_USUAL = re.compile(
    r'"((?!__metadata__")[^"\\\x00-\x1f]*+)":\{"dtype":"([A-Z0-9_]{2,12})","shape":\[((?:[0-9]{1,18}(?:,(?=[0-9]))?){0,8})\],'
    r'"data_offsets":\[([0-9]{1,18}),([0-9]{1,18})\]\}'
)
"""An entry as the format's own library writes it."""
_FLAT = re.compile(rf"\{{(?:[^{{}}\"]++|{_STRING})*+\}}")
_TEXTS = re.compile(rf"null|\{{\s*+(?:{_STRING}\s*+:\s*+{_STRING}\s*+(?:,\s*+(?=\")|(?=\}})))*+\}}")
_PAIR = re.compile(rf"\s*+({_STRING})\s*+:\s*+({_STRING})\s*+")
_END = re.compile(r"\s*+\}\s*+")
_OPEN, _CLOSE, _COMMA = re.compile(r"\s*+\{"), re.compile(r"\s*+\}"), re.compile(r"\s*+,")
_SCALAR = re.compile(rf"{_STRING}|[-+.0-9a-zA-Z]++")


class SafeTensor(NamedTuple):
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def bytes(self) -> int:
        """Size. [byte]"""
        return self.end - self.start

    @property
    def elements(self) -> int:
        """Numbers as they are stored. [-]"""
        return math.prod(self.shape)


def read_header(path: str | os.PathLike[str]) -> tuple[SafeTensor, ...]:
    """Read the header of one file.

    Parameters
    ----------
    path : str or path
        A ``*.safetensors``.

    Returns
    -------
    tuple of SafeTensor
        In the order of the header.

    Raises
    ------
    UnreadableFile
        The file is not there, is none of these, is cut short, or says what cannot be.
    """
    path = Path(path)
    text, size = _header_text(path)
    tensors = []
    names: set[str] = set()
    for name, value in _entries(text, path):
        if name in names:
            raise fault(path, f"tensor {name!r:.100} occurs twice")
        names.add(name)
        if len(names) > MAX_TENSORS:
            raise fault(path, f"more than {MAX_TENSORS:,} tensors; no file has so many")
        if name != "__metadata__":
            tensors.append(_tensor(name, value, path))
    _check_places(tensors, size, path)
    return tuple(tensors)


def fault(path: Path, message: str) -> UnreadableFile:
    """Make the error for what is wrong with a file."""
    return UnreadableFile(message, where=str(path))


def _open(path: Path, most: int) -> tuple[bytes, int]:
    """The first bytes of a regular file, and its size."""
    try:
        regular_status(path)
        with open(path, "rb") as stream:
            return stream.read(most), os.fstat(stream.fileno()).st_size
    except (OSError, ValueError) as error:
        raise fault(path, getattr(error, "strerror", None) or str(error)) from error


def _header_text(path: Path) -> tuple[str, int]:
    """The header's JSON, and the bytes of data behind it."""
    start, size = _open(path, 256)
    if start.startswith(b"version https://git-lfs"):
        raise fault(path, "a pointer of Git LFS, not the file itself; fetch it with `git lfs pull`")
    if size < 10:
        raise fault(path, f"{size} bytes are too few for a header; the file is empty or cut short")
    length = int.from_bytes(start[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise fault(path, f"no safetensors file: a header of {length:,} bytes; at most {MAX_HEADER_BYTES:,} are read")
    if length > size - 8:
        raise fault(path, "the file ends within its header; it is cut short, download it again")
    raw, _ = _open(path, 8 + length)
    if len(raw) < 8 + length:
        raise fault(path, "the file ends within its header; it is cut short, download it again")
    try:
        return raw[8:].decode("utf-8"), size - 8 - length
    except UnicodeDecodeError as error:
        raise fault(path, "the header is no valid UTF-8; it is no safetensors file") from error


def _entries(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Keys and values of a JSON object whose values are objects without objects in them; others are refused."""
    if not text.startswith("{"):
        raise fault(path, "the header is no JSON object; it is no safetensors file")
    at, more = 1, _CLOSE.match(text, 1) is None
    while more:
        usual = _USUAL.match(text, at)
        if usual is not None:
            name, dtype, shape, start, end = usual.groups()
            lengths = [int(length) for length in shape.split(",")] if shape else []
            yield name, {"dtype": dtype, "shape": lengths, "data_offsets": [int(start), int(end)]}
            at = usual.end()
        else:
            name, value, at = _entry(text, at, path)
            yield name, value
        comma = _COMMA.match(text, at)
        more = comma is not None
        at = at if comma is None else comma.end()
    end_of_all = _END.match(text, at)
    if end_of_all is None or end_of_all.end() != len(text):
        raise fault(path, f"no valid JSON at character {at:,} of the header")


def _entry(text: str, at: int, path: Path) -> tuple[str, Any, int]:
    """Key, value and end of one entry that is not written the usual way."""
    key = _KEY.match(text, at)
    if key is None:
        raise fault(path, f"no valid JSON at character {at:,} of the header")
    name = _loads(key[1], path)
    if name == "__metadata__":
        texts = _TEXTS.match(text, key.end())
        if texts is None:
            raise fault(path, "'__metadata__' is no object of texts")
        return name, None, texts.end()
    value = _FLAT.match(text, key.end())
    if value is None or value.end() - value.start() > MAX_ENTRY_CHARACTERS:
        raise fault(path, f"tensor {name!r:.100} is described by no object of the expected kind")
    return name, _loads(value[0], path), value.end()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)


def _loads(text: str, path: Path) -> Any:
    """A small piece of JSON: no key twice, no number that is none."""
    if text[0] == '"' and "\\" not in text:
        return text[1:-1]
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise fault(path, f"no valid JSON: {error!s:.100}") from error


def _tensor(name: str, value: Any, path: Path) -> SafeTensor:
    """One entry of the header, checked by itself."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise fault(path, f"tensor {name!r:.100} needs dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise fault(path, f"tensor {name!r:.100} is of dtype {dtype!r:.40}, which is not known")
    if not _naturals(shape) or len(shape) > MAX_DIMENSIONS:
        raise fault(path, f"tensor {name!r:.100} has shape {met(shape)}; expected at most {MAX_DIMENSIONS} lengths")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise fault(path, f"tensor {name!r:.100} lies at {met(offsets)}; expected its start and its end")
    tensor = SafeTensor(name, dtype, tuple(shape), *offsets)
    if tensor.elements * DTYPE_BITS[dtype] != 8 * tensor.bytes:
        raise fault(path, f"tensor {name!r:.100} of shape {met(shape)} in {dtype} does not take {tensor.bytes:,} bytes")
    return tensor


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_places(tensors: Sequence[SafeTensor], size: int, path: Path) -> None:
    """Whether the tensors fill the data, one behind the other."""
    at, before = 0, ""
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start < at:
            raise fault(path, f"tensors {before!r:.100} and {tensor.name!r:.100} overlap")
        if tensor.start > at:
            raise fault(path, f"{tensor.start - at:,} bytes before tensor {tensor.name!r:.100} belong to no tensor")
        at, before = tensor.end, tensor.name
    if at > size:
        raise fault(
            path,
            f"tensor {before!r:.100} ends {at - size:,} bytes behind the end of the file; it is cut short, download it"
            " again",
        )
    if at < size:
        raise fault(path, f"{size - at:,} bytes behind the last tensor belong to no tensor")


# --- which files make a model


@dataclass(frozen=True)
class Files:
    """The files of a model.

    Attributes
    ----------
    folder : Path
        Where they lie, with the configuration.
    paths : tuple of Path
        All of them, in order.
    index : dict
        The number of the file that must hold a tensor, by the hash of its name; empty where nothing says.
    """

    folder: Path
    paths: tuple[Path, ...]
    index: Mapping[int, int] = field(default_factory=dict)


def locate(path: Path) -> Files:
    """Find the files of a model.

    Parameters
    ----------
    path : Path
        A file, one of several parts, an index, or the folder.

    Returns
    -------
    Files

    Raises
    ------
    UnreadableFile
        Not there, or a part is missing.
    UnsupportedModel
        A folder whose files do not say which of them belong together.
    """
    if path.name.lower().endswith(INDEX):
        return _indexed(path)
    if not os.path.isdir(path):
        _open(path, 1)
        part = _PART.fullmatch(path.name)
        index = None if part is None else path.with_name(f"{part['prefix']}{INDEX}")
        if part is None:
            return Files(path.parent, (path,))
        return _indexed(index) if index is not None and os.path.isfile(index) else _parts(path, part)
    try:
        names = sorted(name for name in os.listdir(path) if not name.startswith("."))
    except OSError as error:
        raise fault(path, error.strerror or str(error)) from error
    indices = [name for name in names if name.endswith(INDEX)]
    weights = [name for name in names if name.endswith(SUFFIX) and not name.startswith(("consolidated", "adapter_"))]
    if f"model{INDEX}" in indices or len(indices) == 1:
        return _indexed(path / (f"model{INDEX}" if f"model{INDEX}" in indices else indices[0]))
    if "model.safetensors" in weights or len(weights) == 1:
        return Files(path, (path / ("model.safetensors" if "model.safetensors" in weights else weights[0]),))
    parts = [part for name in weights if (part := _PART.fullmatch(name)) is not None]
    if not parts or len({(part["prefix"], part["count"]) for part in parts}) > 1 or len(parts) < len(weights):
        found = ", ".join(weights[:4]) or "none"
        raise UnsupportedModel(
            f"the folder does not say which files make the model (*{SUFFIX}: {found})",
            where=str(path),
            next_step=f"Name one of them, or add the index that came with them (model{INDEX}).",
        )
    return _parts(path / parts[0][0], parts[0])


def _parts(path: Path, part: re.Match[str]) -> Files:
    """All parts, by their names."""
    count = int(part["count"])
    if not 1 <= count <= MAX_FILES:
        raise fault(path, f"{count:,} parts; no model has so many")
    paths = tuple(path.with_name(f"{part['prefix']}-{n:05}-of-{count:05}{SUFFIX}") for n in range(1, count + 1))
    for number, each in enumerate(paths, start=1):
        if not os.path.exists(each):
            raise fault(path, f"part {number} of {count} is missing: {each.name}")
    return Files(path.parent, paths)


def _indexed(index: Path) -> Files:
    """The files that an index names."""
    raw, size = _open(index, MAX_INDEX_BYTES)
    if size > MAX_INDEX_BYTES:
        raise fault(index, f"an index of {size:,} bytes; at most {MAX_INDEX_BYTES:,} are read")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fault(index, "no valid UTF-8") from error
    files: dict[str, int] = {}
    held: dict[int, int] = {}
    for name, file in _weight_map(text, index):
        number = files.setdefault(file, len(files))
        if hash(name) in held:
            raise fault(index, f"tensor {name!r:.100} occurs twice")
        held[hash(name)] = number
        if len(files) > MAX_FILES or len(held) > MAX_TENSORS_OF_ALL:
            raise fault(index, "more files or tensors than any model has")
    if not files:
        raise fault(index, "the weight map is empty")
    paths = []
    for file in files:
        if "/" in file or "\\" in file or not file.endswith(SUFFIX):
            raise fault(index, f"{file!r:.100} is no name of a safetensors file beside it")
        path = index.with_name(file)
        if not os.path.exists(path):
            raise fault(index, f"a file that it names is missing: {file}")
        paths.append(path)
    return Files(index.parent, tuple(paths), held)


def _weight_map(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Pairs of tensor and file, taken one by one."""
    start = _OPEN.match(text)
    found = False
    at = start.end() if start is not None else len(text)
    while (key := _KEY.match(text, at)) is not None:
        if key[1] == '"weight_map"':
            if found:
                raise fault(path, "'weight_map' occurs twice")
            found = True
            at = key.end()
            if not text.startswith("{", at):
                raise fault(path, "'weight_map' is no object")
            at += 1
            while (pair := _PAIR.match(text, at)) is not None:
                yield _loads(pair[1], path), _loads(pair[2], path)
                at = pair.end()
                if not text.startswith(",", at):
                    break
                at += 1
            closing = _CLOSE.match(text, at)
            if closing is None:
                raise fault(path, f"no valid JSON at character {at:,}")
            at = closing.end()
        else:
            value = _FLAT.match(text, key.end()) or _SCALAR.match(text, key.end())
            if value is None:
                raise fault(path, f"no valid JSON at character {key.end():,}")
            at = value.end()
        comma = _COMMA.match(text, at)
        if comma is None:
            break
        at = comma.end()
    end = _END.match(text, at)
    if not found or end is None or end.end() != len(text):
        raise fault(path, f"no index of safetensors files: no valid JSON at character {at:,}, or no 'weight_map'")
