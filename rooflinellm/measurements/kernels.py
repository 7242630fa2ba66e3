"""Measured kernels: what each row computes, moves or tells, and how large it is."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rooflinellm import _resources, catalog, units
from rooflinellm.efficiency.collectives import curve_for as collective_curve_for
from rooflinellm.efficiency.collectives import laws_of, quickest_s
from rooflinellm.efficiency.kernels import PRECISIONS, curve_s, peak_of
from rooflinellm.efficiency.kernels import curve_for as kernel_curve_for
from rooflinellm.errors import InvalidSpec, MissingSpec, UnreadableFile
from rooflinellm.specs.curves import CollectiveCurve, CollectiveOf, KernelCurve, KernelOf
from rooflinellm.specs.hardware import HardwareSpec, Link
from rooflinellm.specs.profile import ProfileSpec

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

FILE = "kernels.csv.gz"
"""In hardware_db/measurements."""
KERNELS: tuple[KernelOf, ...] = get_args(KernelOf)
COLLECTIVES: tuple[CollectiveOf, ...] = get_args(CollectiveOf)
HBM, GDDR = "hbm*", "gddr*"
GENERATIONS = {"blackwell-ultra": "blackwell"}
"""Architectures whose kernels are those of another."""

SMALL_BYTES, LARGE_BYTES = 256 * 1024, 8 * 2**20
"""Messages of collectives below which they count as small, and above which as large. [byte]"""
FEW, MANY = 16, 512
"""Tokens up to which a product counts as decode, and above which as prefill. [token]"""
SHORT, LONG = 1024, 4096
"""Prompts of attention up to which they are short, and above which long. [token]"""
SMALL_CACHE, LARGE_CACHE = 16e6, 256e6
"""Caches read by attention in decode, likewise. [byte]"""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One measured kernel.

    Attributes
    ----------
    operator, precision, library : str
        What it does, in which precision (`rooflinellm.efficiency.kernels.PRECISIONS`), of which library.
    device : HardwareSpec
        Where.
    shape : mapping of str to float
        Sizes, as the file names them.
    time_s : float
        [s]
    source : str
        Where it was published.
    """

    operator: str
    device: HardwareSpec
    precision: str
    library: str
    shape: Mapping[str, float]
    time_s: float
    source: str

    @property
    def is_collective(self) -> bool:
        """Whether several devices take part."""
        return self.operator in COLLECTIVES

    @property
    def generation(self) -> tuple[str, str]:
        """Architecture and kind of memory, which share curves."""
        name = GENERATIONS.get(self.device.architecture, self.device.architecture)
        memory = self.device.memory.type.lower()
        return name, next((kind for kind in (HBM, GDDR) if memory.startswith(kind[:-1])), memory)

    @property
    def link(self) -> Link:
        """The way that collectives take: the fastest link to devices of the kind."""
        return max(
            (link for link in self.device.links if link.kind != "nvlink-c2c"),
            key=lambda link: link.gb_s_per_direction.value,
        )

    @property
    def message_s(self) -> float:
        """The message of a collective over the link's printed bandwidth in one direction. [s]"""
        return self.shape["bytes"] / (self.link.gb_s_per_direction.value * units.GB)

    @property
    def size(self) -> str:
        """The class of size that errors are counted by."""
        shape = self.shape
        if self.is_collective:
            return _class(shape["bytes"], SMALL_BYTES - 1, LARGE_BYTES, ("small", "middle", "large"))
        if self.operator == "attention_prefill":
            return _class(shape["tokens"], SHORT, LONG, ("short", "middle", "long"))
        if self.operator in ("attention_decode", "latent_decode"):
            return _class(work(self)[0], SMALL_CACHE, LARGE_CACHE, ("small", "middle", "large"))
        return _class(shape["m" if self.operator == "gemm" else "tokens"], FEW, MANY, ("decode", "middle", "prefill"))


def _class(value: float, low: float, high: float, names: tuple[str, str, str]) -> str:
    return names[0] if value <= low else names[1] if value <= high else names[2]


def work(row: KernelRow) -> tuple[float, float, float]:
    """What a kernel moves and computes, and tokens that share what it reads.

    A product of m tokens by n x k weights moves weights, inputs and 16-bit outputs. Attention of a decode step reads
    keys and values (latent attention one latent and its rotated part, for all heads); of a prompt it computes half of
    all pairs. Experts are routed evenly: T tokens with k experts each touch min(E, T k) of E, three matrices each; of
    tensor parallelism t each has 1 / t of its width, of expert parallelism e a device has 1 / e of experts and tokens.

    Parameters
    ----------
    row : KernelRow
        The kernel.

    Returns
    -------
    tuple of float
        [byte], [FLOP], [token]
    """
    shape, precision = row.shape, PRECISIONS[row.precision]
    weight, activation = precision.weight_bytes, precision.activation_bytes
    if row.operator == "gemm":
        m, n, k = shape["m"], shape["n"], shape["k"]
        return n * k * weight + m * k * activation + m * n * 2, 2 * m * n * k, m
    if row.operator == "experts":
        tokens, hidden, width = shape["tokens"], shape["hidden"], shape["width"] / shape["tensor"]
        routed = tokens * shape["active"] / shape["expert"]
        touched = min(shape["experts"], tokens * shape["active"]) / shape["expert"]
        matrices = 3 * hidden * width
        moved = touched * matrices * weight + routed * (hidden * (activation + 2) + 2 * width * 2)
        return moved, 2 * routed * matrices, routed / touched
    batch, heads = shape["batch"], shape["heads"]
    if row.operator == "latent_decode":
        latent, key = shape["latent"], shape["latent"] + shape["rope"]
        pairs = batch * heads * shape["cached"]
        return batch * (shape["cached"] * key * weight + heads * (key + latent) * 2), 2 * pairs * (key + latent), 1
    of_heads = shape["kv_heads"] * shape["head_dim"] * 2 * weight, heads * shape["head_dim"] * 2 * 2
    if row.operator == "attention_decode":
        pairs = batch * heads * shape["cached"]
        return batch * (shape["cached"] * of_heads[0] + of_heads[1]), 4 * pairs * shape["head_dim"], 1
    tokens = shape["tokens"]
    return batch * tokens * sum(of_heads), 2 * batch * heads * tokens**2 * shape["head_dim"], tokens


def times_at_peak(row: KernelRow) -> tuple[float, float, float]:
    """Bytes over the printed bandwidth and FLOPs over the precision's dense peak, and tokens. [s], [s], [token]"""
    moved, flops, tokens = work(row)
    return moved / row.device.memory_bandwidth_bytes_per_s, flops / peak_of(row.device, row.precision), tokens


def expected_s(row: KernelRow, curve: KernelCurve | CollectiveCurve) -> float:
    """Time of a kernel under a curve. [s]"""
    if isinstance(curve, KernelCurve):
        return float(curve_s(curve, *times_at_peak(row)))
    return float(quickest_s(laws_of(curve), int(row.shape["ranks"]), row.message_s))


def curve_of(profiles: Sequence[ProfileSpec], row: KernelRow) -> KernelCurve | CollectiveCurve:
    """The curve that profiles hold for a kernel; collectives as the engine of their library has them.

    Raises
    ------
    MissingSpec
        They hold none.
    """
    if row.operator in KERNELS:
        operator: KernelOf = next(name for name in KERNELS if name == row.operator)
        return kernel_curve_for(profiles, operator, row.precision, row.device, row.library)
    of: CollectiveOf = next(name for name in COLLECTIVES if name == row.operator)
    link = row.link
    found = collective_curve_for(profiles, of, link.kind, link.generation, row.library, row.device.id)
    if found is None:
        raise MissingSpec(f"no curve of a {of} over {link.kind}", where="field collectives")
    return found


def read(path: Path | Traversable | None = None) -> Iterator[KernelRow]:
    """Read measured kernels.

    Parameters
    ----------
    path : path, optional
        A table with the columns of `hardware_db/measurements/kernels.csv.gz`, gzipped or not; None is that file.

    Yields
    ------
    KernelRow

    Raises
    ------
    UnreadableFile
        The file is not there, or no such archive.
    InvalidSpec
        A row that is no kernel.
    UnknownName
        A device that is not in the database.
    """
    file = _resources.database("hardware_db") / "measurements" / FILE if path is None else path
    try:
        content = file.read_bytes()
        text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)[:80]
        raise UnreadableFile(f"cannot be read: {reason}", where=str(file)[:200]) from error
    device = cache(catalog.hardware)
    for number, cells in enumerate(csv.DictReader(io.StringIO(text)), 2):
        where = f"{file}, line {number}"
        try:
            shape = {name: float(value) for name, _, value in (p.partition("=") for p in cells["shape"].split())}
            row = KernelRow(
                operator=cells["operator"],
                device=device(cells["device"]),
                precision=cells["precision"],
                library=cells["library"],
                shape=shape,
                time_s=float(cells["time_us"]) * units.MICRO,
                source=cells["source"],
            )
            if row.operator not in (*KERNELS, *COLLECTIVES) or row.precision not in PRECISIONS or not row.time_s > 0:
                raise ValueError(f"{row.operator} in {row.precision}, {row.time_s} s")
            if not row.is_collective:
                work(row)
        except (KeyError, ValueError, AttributeError, ZeroDivisionError) as error:
            raise InvalidSpec(f"no measured kernel: {error}", where=where) from error
        yield row
