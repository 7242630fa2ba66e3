"""What there is: devices, models and weight formats, and which version of the data.

What only lists of models and formats need is imported where it is used: a list of devices does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflinellm import _resources, catalog
from rooflinellm.errors import RooflineError
from rooflinellm.render import Column, Table
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.index import YAML_SUFFIXES, Listed
from rooflinellm.units import BITS_PER_BYTE, GB, GIB, KIB, TERA, significant

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from rooflinellm.operators.model import ModelSpec

DATABASES = ("hardware_db", "model_db")
VERSION_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Detail:
    """A column of a list: the key of its value, its heading, how the value is written."""

    key: str
    column: Column
    write: Callable[[Any], str]


class Listing(list[Listed]):
    """Entries by id and name, in the order of their ids; printed, a table with what the entries hold.

    Listing reads the heads of the files only; the entries are read when the table or the records are asked for.
    """

    def __init__(
        self,
        noun: str,
        items: Sequence[Listed],
        details: Sequence[Detail],
        read: Callable[[str], Mapping[str, Any]],
        note: str = "",
    ) -> None:
        super().__init__(items)
        self._noun, self._details, self._read, self._note = noun, tuple(details), read, note

    def records(self) -> list[dict[str, Any]]:
        """Names and details by key, in base units; of a broken entry the names, and what is wrong under ``error``."""
        records = []
        for item in self:
            record: dict[str, Any] = {"id": item.id, "name": item.name, "aliases": list(item.aliases)}
            try:
                record |= self._read(item.id)
            except RooflineError as error:
                record["error"] = str(error)
            records.append(record)
        return records

    def table(self) -> Table:
        """One row an entry."""
        rows, notes = [], [self._note] if self._note and self else []
        for record in self.records():
            values = [(detail, record.get(detail.key)) for detail in self._details]
            cells = ["–" if value is None else detail.write(value) for detail, value in values]
            rows.append([record["id"], record["name"], *cells])
            if "error" in record:
                notes.append(f"warning: {record['error']}")
        columns = [Column("id", "left"), Column("name", "left", drop=1), *(detail.column for detail in self._details)]
        return Table(columns, rows, _counted(len(self), self._noun), notes)

    def __str__(self) -> str:
        return self.table().to_text()

    def __repr__(self) -> str:
        more = ", …" if len(self) > 3 else ""
        return f"<{_counted(len(self), self._noun)}: {', '.join(item.id for item in self[:3])}{more}>"

    def _repr_html_(self) -> str:
        return self.table().to_html()


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _params_text(count: float) -> str:
    from rooflinellm.summary import params_text

    return params_text(count)


_HARDWARE = (
    Detail("kind", Column("kind", "left", drop=3), str),
    Detail("memory_bytes", Column("GiB"), lambda value: f"{value / GIB:,.4g}"),
    Detail("memory_bandwidth_bytes_per_s", Column("GB/s"), lambda value: f"{value / GB:,.0f}"),
    Detail("peak_16bit_flop_per_s", Column("16-bit TFLOP/s"), lambda value: significant(value / TERA, 3)),
    Detail("tdp_w", Column("W", drop=2), lambda value: f"{value:,.0f}"),
)
_MODELS = (
    Detail("total_params", Column("parameters"), _params_text),
    Detail("active_params", Column("active", drop=2), _params_text),
    Detail("layers", Column("layers", drop=4), str),
    Detail("max_context_tokens", Column("context"), lambda value: f"{value:,}"),
    Detail("kv_bytes_per_token", Column("KV KiB/token", drop=3), lambda value: significant(value / KIB, 3)),
)
_FORMATS = (
    Detail("bits_per_weight", Column("bits per weight"), lambda value: f"{value:.2f}"),
    Detail("main_encoding", Column("mostly", "left", drop=2), str),
    Detail("main_encoding_bits", Column("bits of it", drop=3), lambda value: f"{value:.4g}"),
)
REFERENCE_MODEL = "llama-3.1-8b"
"""The model whose bits per weight stand for a format: the share of its embedding and head is a common one."""


def list_hardware(query: str = "") -> Listing:
    """List devices.

    Parameters
    ----------
    query : str
        Words, each of which must occur in id, name, aliases or products; "" lists all.

    Returns
    -------
    Listing
        Items have `id`, `name` and `aliases`.

    Raises
    ------
    InvalidRequest
        The query is no text.
    """
    return Listing("device", catalog.list_hardware(query), _HARDWARE, _hardware_details)


def list_models(query: str = "") -> Listing:
    """List models; parameters, result and errors as in `list_hardware`."""
    return Listing("model", catalog.list_models(query), _MODELS, _model_details)


def list_formats(query: str = "") -> Listing:
    """List weight formats; parameters, result and errors as in `list_hardware`."""
    note = f"bits per weight of {REFERENCE_MODEL}"
    return Listing("format", catalog.list_formats(query), _FORMATS, _format_details, note)


def fastest_16bit(device: HardwareSpec) -> float | None:
    """The fastest dense peak with 16-bit inputs, whatever it accumulates in; None without one. [FLOP/s]"""
    return max((peak.flop_per_s for peak in device.peak_list if peak.precision in ("fp16", "bf16")), default=None)


def _hardware_details(name: str) -> dict[str, Any]:
    device = catalog.hardware(name)
    return {
        "products": list(device.products),
        "vendor": device.vendor,
        "kind": device.kind,
        "memory_bytes": device.memory_bytes,
        "usable_bytes": device.usable_bytes,
        "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
        "peak_16bit_flop_per_s": fastest_16bit(device),
        "tdp_w": device.tdp_w,
    }


def _model_details(name: str) -> dict[str, Any]:
    from rooflinellm.api.lookup import model

    spec = model(name)
    return {
        "family": spec.family,
        "total_params": spec.total_params,
        "active_params": spec.active_params,
        "layers": spec.entry.layer_count,
        "max_context_tokens": spec.max_context_tokens,
        "kv_bytes_per_token": spec.kv_bytes_per_token("f16"),
        "native_format": spec.native_format,
    }


def _format_details(name: str) -> dict[str, Any]:
    from rooflinellm.api.lookup import model
    from rooflinellm.engine.layout import lay_out

    spec, table = catalog.weight_format(name), catalog.encodings().encodings
    reference = model(REFERENCE_MODEL)
    layout = lay_out(reference, spec, table)
    by_encoding: dict[str, int] = {}
    for row in layout.rows:
        if row.encoding is not None:
            by_encoding[row.encoding] = by_encoding.get(row.encoding, 0) + row.weight_bytes
    main = max(by_encoding, key=by_encoding.__getitem__)
    return {
        "family": spec.family,
        "bits_per_weight": layout.resident_bytes * BITS_PER_BYTE / reference.total_params,
        "main_encoding": main,
        "main_encoding_bits": table[main].bits_per_element,
    }


def model_sizes(spec: ModelSpec, formats: Iterable[str]) -> list[dict[str, Any]]:
    """What a model weighs in some formats.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    formats : iterable of str
        Names of formats.

    Returns
    -------
    list of dict
        ``weights``, ``bits_per_weight`` and ``resident_weight_bytes`` of each.
    """
    from rooflinellm.engine.layout import lay_out

    sizes = []
    for name in formats:
        fmt = catalog.weight_format(name)
        size = lay_out(spec, fmt, catalog.encodings().encodings).resident_bytes
        bits = size * BITS_PER_BYTE / spec.total_params
        sizes.append({"weights": fmt.id, "bits_per_weight": bits, "resident_weight_bytes": size})
    return sizes


def data_version() -> str:
    """Name the data that answers come from: the first 12 hexadecimal digits of a SHA-256.

    It runs over the name and the content of every YAML file of the packaged databases and of the user's own, in order
    of their names, with line ends as on Unix: the same data give the same version from a checkout, a wheel or a zip
    file, on every system, and any change of a value gives another. It takes about 15 ms.
    """
    import hashlib

    digest = hashlib.sha256()
    folders: list[tuple[str, Traversable]] = [(name, _resources.database(name)) for name in DATABASES]
    for folder in _resources.user_directories():
        folders += [(f"user/{name}", folder / name) for name in DATABASES]
    for prefix, root in folders:
        for name, file in sorted(_yaml_files(root, prefix), key=lambda found: found[0]):
            try:
                content = file.read_bytes().replace(b"\r\n", b"\n")
            except OSError:
                content = b"unreadable"
            digest.update(b"%s\0%d\0" % (name.encode("utf-8", "surrogateescape"), len(content)))
            digest.update(content)
    return digest.hexdigest()[:VERSION_DIGITS]


def _yaml_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    """YAML files below a folder, with their paths from it; what cannot be listed holds none."""
    try:
        for child in folder.iterdir():
            name = f"{prefix}/{child.name}"
            if child.name.startswith("."):
                continue
            if child.name.endswith(YAML_SUFFIXES):
                yield name, child
            elif child.is_dir():
                yield from _yaml_files(child, name)
    except OSError:
        return
