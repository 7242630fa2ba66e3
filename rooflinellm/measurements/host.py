"""What a row leaves on the host, and which host that is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rooflinellm.engine.placement import Offload
from rooflinellm.errors import RooflineError
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.row import Row
from rooflinellm.measurements.workload import SkipRow, whole
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.hardware import HardwareSpec, HostMemory, Network
from rooflinellm.specs.parsing import host_memory, memory_of, network, split_count

ALL_LAYERS = ("", "all", "auto", "-1")
UNSTATED_MEMORY = "ddr5-5600x2"
"""Memory of a computer whose result does not name it: what new ones come with."""
UNSTATED_NETWORK = "2.5gbe"
"""What joins computers whose result does not name it."""

CACHE_LAYERS, CACHE_COUNTED_UNTIL = 3, "2023-12"
"""Layers that llama.cpp counted behind the last (the head, values and keys of the cache), in builds before this month.

ggml-org/llama.cpp, pull request 4309.
"""

_MODULES = re.compile(r"DDR(?P<generation>[345])-(?P<rate>\d{4})", re.IGNORECASE)
_CHANNELS = re.compile(
    r"(?P<channels>\d{1,2})\s*ch\b|(?P<dual>dual)[- ]channel|(?P<quad>quad)[- ]channel", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Host:
    """The computer around the devices.

    Attributes
    ----------
    memory : HostMemory
        Its memory.
    processor : HardwareSpec or None
        Its processor, or all of its board as one, where the row names one that has an entry.
    sockets : int
        How many there are. [-]
    named : bool
        Whether the row tells which memory that is, by itself or by its processor's rated one.
    """

    memory: HostMemory
    processor: HardwareSpec | None
    sockets: int
    named: bool


def offload_of(row: Row, model: ModelSpec, on_cpu: bool) -> Offload | None:
    """What stays on the host: layers beyond `ngl`, experts of `n_cpu_moe` layers, the cache. None is nothing.

    Raises
    ------
    SkipRow
        It cannot be told.
    """
    if on_cpu:
        return None
    layers = len(model.layers)
    lowest = (row.extra or {}).get("lowest_offload_device")
    if lowest == "GPU":
        return None
    if lowest is not None:
        raise SkipRow("the row does not say how much of the model the device holds", f"the rest on {str(lowest)[:20]}")
    return _none_if_nothing(
        Offload(
            gpu_layers=_gpu_layers(row, layers),
            cpu_moe_layers=_expert_layers(row, model),
            cache_on_host=_cache_on_host(row, layers),
        ),
        row,
    )


def _none_if_nothing(offload: Offload, row: Row) -> Offload | None:
    if offload.uses_host:
        return offload
    said = row.population == "offload" or row.test_kind == "offload_decode" or "+CPU" in (row.backend or "")
    if said:
        raise SkipRow("the row does not say what stays on the host")
    return None


def _gpu_layers(row: Row, layers: int) -> int | None:
    text = (row.ngl or "").strip().lower()
    if text in ALL_LAYERS:
        return None
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        raise SkipRow("the row cannot be read", f"ngl '{text[:40]}' is no number of layers") from None
    return number if 0 <= number <= layers else None


def _cache_on_host(row: Row, layers: int) -> bool:
    """Whether the cache stays on the host: as asked, or in old builds, which moved it last of all."""
    if (row.extra or {}).get("no_kv_offload"):
        return True
    text, date = (row.ngl or "").strip(), row.source_date or ""
    return text.isdigit() and int(text) < layers + CACHE_LAYERS and "" < date[:7] < CACHE_COUNTED_UNTIL


def _expert_layers(row: Row, model: ModelSpec) -> int:
    """Layers whose experts stay on the host: a number, or all where the row moves all experts."""
    mixtures = sum(getattr(block.ffn, "kind", "") == "moe" for block in model.layers)
    found = re.match(r"\d+", row.n_cpu_moe or "")
    number = int(found[0]) if found else 0
    extra = row.extra or {}
    words = " ".join(str(text or "") for text in (row.note, extra.get("tensor_overrides"), extra.get("offload")))
    if not number and re.search(r"exps=CPU|ffn=CPU|experts on (?:the )?CPU", f"{words} {row.device or ''}"):
        return len(model.layers) if mixtures else 0
    if number and not mixtures:
        raise SkipRow("parts of dense layers on the host are not modelled")
    return min(number, len(model.layers))


def host_of(row: Row, names: Names) -> Host:
    """The host of a row, by what stands behind the plus sign in its device, or in its notes.

    Raises
    ------
    SkipRow
        A server, whose memory differs too much from one to the next to be guessed, and no processor is named.
    """
    behind = str((row.extra or {}).get("cpu") or (row.device or "").partition("+")[2])
    said = f"{behind} {row.memory_note or ''}"
    count, behind = split_count(behind) or ("1", behind)
    sockets = whole("processors", float(count))
    processor = _processor(behind, names)
    if processor is None and row.kind == "server":
        raise SkipRow(f"no entry for processor '{behind[:60]}'" if behind else "the row does not name the host")
    processor = processor and processor.as_one(sockets)
    modules = _MODULES.search(said)
    if modules is not None:
        channels = _CHANNELS.search(said)
        width = 2
        if channels is not None:
            width = int(channels["channels"] or (2 if channels["dual"] else 4))
        elif processor is not None and processor.memory.bus_bits:
            width = processor.memory.bus_bits // 64
        memory = host_memory(f"ddr{modules['generation']}-{modules['rate']}x{width}")
    elif processor is not None:
        memory = memory_of(processor, sockets)
    else:
        memory = host_memory(UNSTATED_MEMORY)
    assert memory is not None
    return Host(memory, processor, sockets, modules is not None or processor is not None)


def _processor(text: str, names: Names) -> HardwareSpec | None:
    plain = re.sub(r"\(.*|\d+\s*GB.*|DDR.*", "", text).strip(" ,")
    if not plain:
        return None
    for called in (plain, plain.partition(" ")[2]):  # with its maker's name, or without
        try:
            found = names.device(called)
        except RooflineError:
            continue
        if found.kind == "cpu":
            return found
    return None


def network_of(row: Row) -> Network | None:
    """The network between computers that share a model, None where there is one computer."""
    if "RPC" not in (row.note or "") and not (row.extra or {}).get("rpc"):
        return None
    return network(UNSTATED_NETWORK)
