"""GGUF: the header of a file, or of the files a model is split into, without its tensor data.

A header is read in pieces of one MiB; long arrays, and strings that nobody asks for, are skipped. What it says is
checked before it is believed: counts against the size of the file, types, shapes, and that tensors lie in the file,
aligned and apart from each other. Every fault is an `UnreadableFile`, found within bounded time and memory.

References
----------
ggml-org/ggml, docs/gguf.md (versions 2 and 3); ggml-org/llama.cpp, ggml/src/gguf.cpp and src/llama-model-loader.cpp.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rooflinellm.errors import UnreadableFile, met
from rooflinellm.specs.index import regular_status

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
SPLIT_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL | re.IGNORECASE)

# Bounds far above any real file, which keep a hostile one from taking long or much.
CHUNK_BYTES = 2**20
MAX_BYTES_READ = 2**27
MAX_ITEMS = 2**21  # keys, tensors and strings of arrays
MAX_TENSORS = 2**15
MAX_SPLITS = 1_000
MAX_KEPT_BYTES = 2**22  # keys, names and short strings
MAX_KEPT_STRING = 2**12
MAX_KEPT_ARRAY = 2**14
MAX_KEPT_ELEMENTS = 2**19

GGML_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 36),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
    42: ("q2_0", 64, 18),
}
"""Tensor types: name, elements of a block, bytes of a block. The gaps are types that were withdrawn."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CODES = {order + kind: struct.Struct(order + kind) for order in "<>" for kind in "IQ"}


@dataclass(frozen=True)
class Skipped:
    """A value that was passed over: the strings of a vocabulary, a chat template. `count` elements or bytes."""

    count: int


Value = bool | int | float | str | tuple[bool | int | float, ...] | Skipped
"""What a key may hold."""


class GgufTensor(NamedTuple):
    """One tensor: its shape begins with the length of a row."""

    name: str
    shape: tuple[int, ...]
    encoding: str
    offset: int
    bytes: int

    @property
    def columns(self) -> int:
        """Elements of a row. [-]"""
        return self.shape[0] if self.shape else 1

    @property
    def elements(self) -> int:
        """Elements. [-]"""
        return math.prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """What one file, or the files of a split model together, say before the data.

    Attributes
    ----------
    path : Path
        The first file.
    version : int
    big_endian : bool
    metadata : dict
        Keys and values; long ones are `Skipped`.
    tensors : tuple of GgufTensor
        Offsets are from the start of the file's data. [byte]
    data_offset : int
        Where the data of the first file starts. [byte]
    files : int
        Files. [-]
    bytes_read : int
        Bytes that were read. [byte]
    """

    path: Path
    version: int
    big_endian: bool
    metadata: dict[str, Value]
    tensors: tuple[GgufTensor, ...]
    data_offset: int
    files: int = 1
    bytes_read: int = 0

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, padding apart. [byte]"""
        return sum(tensor.bytes for tensor in self.tensors)


@dataclass
class _Budget:
    """What all files of a model may take together."""

    read: int = MAX_BYTES_READ
    items: int = MAX_ITEMS
    tensors: int = MAX_TENSORS
    kept_bytes: int = MAX_KEPT_BYTES
    kept_elements: int = MAX_KEPT_ELEMENTS


@dataclass
class _Reader:
    """Reads forward through a file, a chunk at a time."""

    stream: BinaryIO
    size: int
    path: Path
    budget: _Budget
    order: str = "<"
    bytes_read: int = 0
    _buffer: bytes = b""
    _start: int = 0
    _at: int = 0
    _names: set[str] = field(default_factory=set)

    @property
    def position(self) -> int:
        """Offset in the file. [byte]"""
        return self._start + self._at

    @property
    def remaining(self) -> int:
        """Bytes behind the position. [byte]"""
        return self.size - self.position

    def fault(self, message: str) -> UnreadableFile:
        """Make the error for what is wrong here."""
        return UnreadableFile(message, where=f"{self.path}, byte {self.position:,}")

    def count(self, items: int, what: str, least_bytes: int) -> None:
        """Check a count of items of at least so many bytes against the file and against reason."""
        if items * least_bytes > self.remaining:
            raise self.fault(f"{items:,} {what} do not fit into the {self.remaining:,} bytes that are left of the file")
        if items > self.budget.items:
            raise self.fault(f"{items:,} {what}; no model has so many")
        self.budget.items -= items

    def _fill(self, size: int) -> None:
        """Have the next bytes in the buffer."""
        if size > self.remaining:
            raise self.fault("the file ends within its header; it is cut short, download it again")
        start = self.position
        self.stream.seek(start)
        wanted = min(max(size, CHUNK_BYTES), self.size - start)
        if wanted > self.budget.read:
            raise self.fault(f"more than {MAX_BYTES_READ:,} bytes of header; no model has so many")
        self._buffer = self.stream.read(wanted)
        self._start, self._at = start, 0
        self.bytes_read += len(self._buffer)
        self.budget.read -= len(self._buffer)
        if len(self._buffer) < size:
            raise self.fault("the file ends within its header; it is cut short, download it again")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if self._at + size > len(self._buffer):
            self._fill(size)
        taken = self._buffer[self._at : self._at + size]
        self._at += size
        return taken

    def skip(self, size: int) -> None:
        """Pass over bytes, without reading what is not in the buffer."""
        if size > self.remaining:
            raise self.fault(f"a value of {size:,} bytes; {self.remaining:,} are left of the file")
        self._at += size
        if self._at > len(self._buffer):
            self._start, self._at, self._buffer = self.position, 0, b""

    def number(self, kind: str) -> int:
        """The next number, by its struct code."""
        code = _CODES[self.order + kind]
        return int(code.unpack(self.take(code.size))[0])

    def text(self, what: str, longest: int) -> str:
        """The next string, which is kept."""
        length = self.number("Q")
        if length > longest or length > self.remaining:
            raise self.fault(f"{what} of {length:,} bytes; at most {longest:,} are allowed")
        if length > self.budget.kept_bytes:
            raise self.fault(f"more than {MAX_KEPT_BYTES:,} bytes of keys and names; no model has so many")
        self.budget.kept_bytes -= length
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fault(f"{what} is no valid UTF-8") from error

    def skip_strings(self, count: int) -> None:
        """Pass over an array of strings: each begins with its length."""
        self.count(count, "strings", 8)
        unpack = _CODES[self.order + "Q"].unpack_from
        left, buffer, at, end = count, self._buffer, self._at, len(self._buffer) - 8
        while left:
            if at > end:
                self._at = at
                self._fill_at(at)
                buffer, at, end = self._buffer, self._at, len(self._buffer) - 8
            at += 8 + unpack(buffer, at)[0]
            left -= 1
        self._at = at
        if self.remaining < 0:
            self._at = len(self._buffer)
            raise self.fault("a string that is longer than the file")

    def _fill_at(self, at: int) -> None:
        """Go on at a position relative to the buffer, which may lie behind it."""
        if self._start + at + 8 > self.size:
            self._at = min(at, len(self._buffer))
            raise self.fault("a string that is longer than the file")
        self._start, self._at, self._buffer = self._start + at, 0, b""
        self._fill(8)

    def value(self, kind: int, key: str) -> Value:
        """The next value of a type."""
        if kind == _STRING:
            return self._string(key)
        if kind == _ARRAY:
            return self._array(key)
        code = _SCALARS.get(kind)
        if code is None:
            raise self.fault(f"key {met(key)} has type {kind}; there are 0 to 12")
        value: bool | int | float = struct.unpack(self.order + code, self.take(struct.calcsize(f"={code}")))[0]
        return value

    def _string(self, key: str) -> Value:
        length = self.number("Q")
        if length > MAX_KEPT_STRING:
            self.skip(length)
            return Skipped(length)
        self.budget.kept_bytes -= length
        if self.budget.kept_bytes < 0:
            raise self.fault(f"more than {MAX_KEPT_BYTES:,} bytes of keys and names; no model has so many")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fault(f"the value of key {met(key)} is no valid UTF-8") from error

    def _array(self, key: str) -> Value:
        kind, count = self.number("I"), self.number("Q")
        if kind == _STRING:
            self.skip_strings(count)
            return Skipped(count)
        code = _SCALARS.get(kind)
        if code is None:
            inner = "arrays" if kind == _ARRAY else f"type {kind}"
            raise self.fault(f"key {met(key)} is an array of {inner}; it may hold numbers or strings")
        size = struct.calcsize(f"={code}")
        if count > MAX_KEPT_ARRAY or key.startswith("tokenizer."):
            self.skip(count * size)
            return Skipped(count)
        if count * size > self.remaining:
            raise self.fault(f"an array of {count:,} numbers; {self.remaining:,} bytes are left of the file")
        self.budget.kept_elements -= count
        if self.budget.kept_elements < 0:
            raise self.fault(f"more than {MAX_KEPT_ELEMENTS:,} numbers in arrays; no model has so many")
        return struct.unpack(f"{self.order}{count}{code}", self.take(count * size))


def read_header(path: str | os.PathLike[str]) -> GgufHeader:
    """Read the header of one file.

    Parameters
    ----------
    path : str or path
        A ``*.gguf`` of version 2 or 3, in either byte order.

    Returns
    -------
    GgufHeader

    Raises
    ------
    UnreadableFile
        The file is not there, is no GGUF, is cut short, or says what cannot be.
    """
    return _read_one(Path(path), _Budget())


def _read_one(path: Path, budget: _Budget) -> GgufHeader:
    try:
        regular_status(path)
        with open(path, "rb") as stream:
            return _parse(_Reader(stream, os.fstat(stream.fileno()).st_size, path, budget))
    except (OSError, ValueError) as error:
        raise UnreadableFile(getattr(error, "strerror", None) or str(error), where=str(path)) from error


def _parse(reader: _Reader) -> GgufHeader:
    version, tensor_count, key_count = _start(reader)
    reader.count(key_count, "keys", 8 + 4 + 1)
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = reader.text("a key", 2**16 - 1)
        if not key or key in metadata:
            raise reader.fault(f"key {met(key)} occurs twice" if key else "a key without a name")
        metadata[key] = reader.value(reader.number("I"), key)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise reader.fault(f"general.alignment {met(alignment)} is no power of two")
    reader.count(tensor_count, "tensors", 8 + 4 + 4 + 8)
    if tensor_count > reader.budget.tensors:
        raise reader.fault(f"{tensor_count:,} tensors; no model has so many")
    reader.budget.tensors -= tensor_count
    tensors = tuple([_tensor(reader, alignment) for _ in range(tensor_count)])
    data_offset = -(-reader.position // alignment) * alignment
    _check_places(reader, tensors, data_offset)
    return GgufHeader(
        path=reader.path,
        version=version,
        big_endian=reader.order == ">",
        metadata=metadata,
        tensors=tensors,
        data_offset=data_offset,
        bytes_read=reader.bytes_read,
    )


def _start(reader: _Reader) -> tuple[int, int, int]:
    """Version and the two counts; sets the byte order, which the version tells."""
    if reader.size < 24:
        raise reader.fault(f"{reader.size} bytes are too few for a GGUF header; the file is empty or cut short")
    magic = reader.take(4)
    if magic == b"vers":
        raise reader.fault("a pointer of Git LFS, not the file itself; fetch it with `git lfs pull`")
    if magic != MAGIC:
        raise reader.fault(f"no GGUF file: it starts with {magic!r}, not {MAGIC!r}")
    raw = reader.take(4)
    reader.order = ">" if raw[:2] == b"\0\0" and raw[2:] != b"\0\0" else "<"
    version = int.from_bytes(raw, "big" if reader.order == ">" else "little")
    if version not in VERSIONS:
        raise reader.fault(f"GGUF version {version}; versions {VERSIONS[0]} and {VERSIONS[1]} can be read")
    return version, reader.number("Q"), reader.number("Q")


def _tensor(reader: _Reader, alignment: int) -> GgufTensor:
    """The next entry of the list of tensors, checked by itself."""
    name = reader.text("a tensor name", 255)
    if name in reader._names:
        raise reader.fault(f"tensor {name!r} occurs twice")
    reader._names.add(name)
    dimensions = reader.number("I")
    if dimensions > MAX_DIMENSIONS:
        raise reader.fault(f"tensor {name!r} has {dimensions:,} dimensions; at most {MAX_DIMENSIONS} are allowed")
    numbers = struct.unpack(f"{reader.order}{dimensions}QIQ", reader.take(8 * dimensions + 12))
    shape, (type_id, offset) = numbers[:dimensions], numbers[dimensions:]
    if type_id not in GGML_TYPES:
        raise reader.fault(f"tensor {name!r} is of type {type_id}, which is unknown or withdrawn")
    encoding, block, block_bytes = GGML_TYPES[type_id]
    elements = 1
    for length in shape:
        elements *= length
    if not elements:
        raise reader.fault(f"tensor {name!r} is empty, shape {shape}")
    if (shape[0] if shape else 1) % block:
        raise reader.fault(f"rows of {shape[0] if shape else 1:,} of tensor {name!r} are no whole blocks of {encoding}")
    size = elements // block * block_bytes
    if size > reader.size:
        raise reader.fault(
            f"tensor {name!r} of shape {shape} takes {size:,} bytes, more than the whole file has; it is cut short"
        )
    if offset % alignment:
        raise reader.fault(f"tensor {name!r} starts at {offset:,}, which is no multiple of the alignment {alignment}")
    return GgufTensor(name, shape, encoding, offset, size)


def _check_places(reader: _Reader, tensors: Sequence[GgufTensor], data_offset: int) -> None:
    """Whether all tensors lie in the file, and none over another."""
    available = reader.size - data_offset
    placed = sorted(tensors, key=lambda tensor: tensor.offset)
    for tensor, following in pairwise(placed):
        if tensor.offset + tensor.bytes > following.offset:
            raise reader.fault(f"tensors {tensor.name!r} and {following.name!r} overlap")
    if placed and placed[-1].offset + placed[-1].bytes > available:
        raise reader.fault(
            f"tensor {placed[-1].name!r} ends {placed[-1].offset + placed[-1].bytes - available:,} bytes behind the end"
            " of the file; it is cut short, download it again"
        )


def read_all(path: str | os.PathLike[str]) -> GgufHeader:
    """Read a file and, where it is one part of a split model, all the others beside it.

    Parameters
    ----------
    path : str or path
        Any of the parts ``NAME-00001-of-00003.gguf``, or the one file.

    Returns
    -------
    GgufHeader
        Metadata of the first part, tensors of all.

    Raises
    ------
    UnreadableFile
        As `read_header`; a part that is missing, or parts that do not belong together.
    """
    budget = _Budget()
    header = _read_one(Path(path), budget)
    count = _integer(header, "split.count", 1)
    if count <= 1:
        return header
    where = str(header.path)
    name = SPLIT_NAME.fullmatch(header.path.name)
    number = _integer(header, "split.no", -1)
    if name is None or int(name["count"]) != count or int(name["number"]) != number + 1:
        raise UnreadableFile(
            f"part {number + 1} of {count} by its header, which its name does not say",
            where=where,
            next_step=f"The parts are found by their names: rename it to NAME-{number + 1:05}-of-{count:05}.gguf.",
        )
    if count > MAX_SPLITS:
        raise UnreadableFile(f"{count:,} parts; no model has so many", where=where)
    parts = []
    for part in range(count):
        file = header.path.with_name(f"{name['prefix']}-{part + 1:05}-of-{count:05}{header.path.suffix}")
        if part != number and not os.path.exists(file):
            raise UnreadableFile(f"part {part + 1} of {count} is missing: {file.name}", where=where)
        parts.append(header if part == number else _read_one(file, budget))
    return _joined(parts, count)


def _joined(parts: Sequence[GgufHeader], count: int) -> GgufHeader:
    """The parts of a split model as one header."""
    names: set[str] = set()
    for number, part in enumerate(parts):
        where = str(part.path)
        said = _integer(part, "split.no", -1), _integer(part, "split.count", 1)
        if said != (number, count):
            raise UnreadableFile(
                f"its header says part {said[0] + 1} of {said[1]}, not {number + 1} of {count}", where=where
            )
        for tensor in part.tensors:
            if tensor.name in names:
                raise UnreadableFile(f"tensor {tensor.name!r} is in another part too", where=where)
            names.add(tensor.name)
    first = parts[0]
    total = _integer(first, "split.tensors.count", -1)
    if total != len(names):
        raise UnreadableFile(
            f"split.tensors.count is {total:,}, the parts hold {len(names):,} tensors", where=str(first.path)
        )
    return GgufHeader(
        path=first.path,
        version=first.version,
        big_endian=first.big_endian,
        metadata=first.metadata,
        tensors=tuple(tensor for part in parts for tensor in part.tensors),
        data_offset=first.data_offset,
        files=len(parts),
        bytes_read=sum(part.bytes_read for part in parts),
    )


def _integer(header: GgufHeader, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnreadableFile(f"{key} is {met(value)}, not a whole number", where=str(header.path))
    return value
