"""What a measured row is compared with: a model on a system, the arguments of an estimate, one of its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm import units
from rooflinellm.engine.parallel import ALONE, Parallel
from rooflinellm.engine.placement import Offload
from rooflinellm.errors import RooflineError
from rooflinellm.measurements.cpu import rented_cpu, threads_per_core
from rooflinellm.measurements.drafts import Drafts, drafts_of
from rooflinellm.measurements.host import Host, host_of, network_of, offload_of
from rooflinellm.measurements.local import local_workload
from rooflinellm.measurements.names import Names, default_names, quant_in
from rooflinellm.measurements.row import Row
from rooflinellm.measurements.server import server_workload
from rooflinellm.measurements.variants import with_active_experts
from rooflinellm.measurements.workload import Quantity, SkipRow, whole
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec

OTHER_PARAMETERS = 1.6
"""Factor between a row's parameter count and its model's from which on they cannot be the same."""

BACKENDS = {
    "cuda": "cuda",
    "rocm": "rocm",
    "hip": "rocm",
    "vulkan": "vulkan",
    "metal": "metal",
    "mtl": "metal",
    "sycl": "sycl",
    "opencl": "opencl",
    "cpu": "cpu",
    "blas": "cpu",
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a row measures, in this library's terms.

    Attributes
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        Devices and how many.
    keywords : dict
        Arguments of `rooflinellm.estimate` beside model and hardware.
    quantity : Quantity
        Which number of the estimate the measured one stands beside.
    resident_weight_bytes : int or None
        Size of the weight file, where the row has it: it replaces the format's own sum. [byte]
    fmt, engine : FormatSpec, EngineSpec
        The entries behind the keywords.
    backend : str or None
        The engine's backend that was used, None where the device decides.
    build : str or None
        Month of the build.
    bounded : bool
        Whether the system's figures are a bound. A rented CPU's measured bandwidth is none.
    offload : Offload or None
        What stays on the host.
    drafts : Drafts or None
        What is drafted, by the model's own module.
    parallel : Parallel
        How the devices share the work.
    """

    model: ModelSpec
    system: SystemSpec
    keywords: dict[str, Any]
    quantity: Quantity
    resident_weight_bytes: int | None
    fmt: FormatSpec
    engine: EngineSpec
    backend: str | None
    build: str | None = None
    bounded: bool = True
    offload: Offload | None = None
    drafts: Drafts | None = None
    parallel: Parallel = ALONE


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a row cannot be compared.

    Attributes
    ----------
    reason : str
        In words; equal reasons have equal words.
    detail : str
        What is special about this row.
    """

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def resolve(row: Row, names: Names | None = None) -> Resolved | Skip:
    """Find what a row measures.

    The size of the weight file, where the row has it, is what is resident; the format then only tells how it is
    computed. ``tgN`` at depth d is N decode steps after d tokens of context without a prompt, ``ppN`` a prefill of N
    tokens there. Rates of a batch are of all its sequences together. llama.cpp on several devices splits by layers. A
    rented CPU is what its row says: virtual CPUs, instruction set, measured bandwidth. A server row counts in its own
    unit.

    Parameters
    ----------
    row : Row
        The row.
    names : Names, optional
        Names of entries; those of the packaged databases and of the user where absent.

    Returns
    -------
    Resolved or Skip
        Never an error: whatever a row holds, it is compared or skipped with a reason.
    """
    try:
        return _resolve(row, names or default_names())
    except SkipRow as skip:
        return Skip(skip.reason, skip.detail)
    except RooflineError as error:
        return Skip(error.message)


def _resolve(row: Row, names: Names) -> Resolved:
    if row.problem:
        raise SkipRow("the row cannot be read", row.problem)
    for found, reason in _not_modelled(row):
        if found:
            raise SkipRow(reason)
    if not row.engine:
        raise SkipRow("the row does not name an engine")
    drafts = drafts_of(row)
    engine = names.engine(row.engine)
    model = names.model((row.hf_model_id, row.model), row.params_b)
    _check_parameters(row, model)
    model = with_active_experts(model, (row.extra or {}).get("active_experts"))
    backend = _backend(row, engine)
    system, bounded = _system(row, names, backend)
    parallel = _parallel(row)
    if parallel != ALONE:
        count = parallel.devices
        system = system.model_copy(update={"count": count, "name": f"{count}x {system.device.id}"})
        parallel.checked(model, count)
    elif system.count > 1 and engine.several_devices != "layer_split":
        raise SkipRow("the row does not say how the model is spread over several devices")
    offload = offload_of(row, model, _on_cpu(row, backend))
    if offload is not None and not system.device.memory.unified:
        host = host_of(row, names)
        system = _with_host(system, host)
        bounded = bounded and host.named
    fmt = _weights(row, engine, model, names)
    workload = local_workload(row) if row.kind == "local" else server_workload(row, engine)
    keywords: dict[str, Any] = {"weights": fmt.id, **workload.arguments}
    build = _build(row)
    keywords["engine"] = engine.id + (f":{backend}" if backend else "") + (f"@{build}" if build else "")
    kv = names.kv(row.kv_type or row.kv_dtype or "default", engine) if row.kind == "local" else workload.kv
    if kv is not None:
        keywords["kv"] = kv
    size = None if row.file_size_gib is None else round(row.file_size_gib * units.GIB)
    if size is not None and size <= 0:
        raise SkipRow("the row cannot be read", "file_size_gib is 0")
    if offload is None:
        _check_capacity(size, system)
    else:
        keywords |= {"gpu_layers": offload.gpu_layers, "cpu_moe_layers": offload.cpu_moe_layers}
    return Resolved(
        model=model,
        system=system,
        keywords=keywords,
        quantity=workload.quantity,
        resident_weight_bytes=size,
        fmt=fmt,
        engine=engine,
        backend=backend,
        build=build,
        bounded=bounded and workload.bounded,
        offload=offload,
        drafts=drafts,
        parallel=parallel,
    )


def _not_modelled(row: Row) -> Iterator[tuple[bool, str]]:
    """What this library does not model yet, each with the words it is counted under."""
    kind, extra = row.test_kind or "", row.extra or {}
    yield kind.endswith("_disagg"), "disaggregated prefill and decode is not modelled yet"
    yield kind == "energy", "energy is not a speed"
    beside = kind != "offload_decode" and "offload" in extra
    yield beside, "prefill of a server with parts on its host is not modelled yet"
    yield "gpu_expert_ratio" in extra, "a part of the experts of each layer on the host is not modelled yet"
    several = row.kind == "server" and (row.device_count or 1) > 1
    yield several and not row.tp, "the row does not say how the model is spread over several devices"


_TENSOR_PARALLEL = re.compile(r"\btp=(?P<degree>[0-9]+)")


def _parallel(row: Row) -> Parallel:
    """How the devices of a row share the work; those that no degree accounts for are copies of the experts' owners."""
    extra, devices = row.extra or {}, whole("device_count", row.device_count or 1)
    degrees = {name: whole(name, getattr(row, name) or 1) for name in ("tp", "pp", "ep", "dp")}
    noted = _TENSOR_PARALLEL.search(row.note or "")
    if noted is not None and degrees["tp"] == 1:
        degrees["tp"] = max(int(noted["degree"]), 1)
    if str(extra.get("split_mode", "layer")) in ("row", "tensor"):
        degrees["tp"] = devices
    parallel = Parallel(degrees["tp"], degrees["pp"], degrees["ep"], degrees["dp"])
    left = devices // parallel.devices
    if parallel.expert > 1 and left > 1 and parallel.data == 1:
        parallel = replace(parallel, data=left)
    if parallel == ALONE:
        return parallel
    if parallel.devices != devices and devices > 1:
        raise SkipRow("the row does not say how the model is spread over several devices")
    if parallel.replicas > 1:
        raise SkipRow("copies of a model, each with requests of its own, are not modelled yet")
    return parallel


def _check_parameters(row: Row, model: ModelSpec) -> None:
    """Refuse a row whose model is another by its own parameter count: a wrong label, or a pruned model."""
    if row.params_b is None or row.collection == "localmaxxing":  # there it is often rounded or of a draft model
        return
    ratio = row.params_b * units.GIGA / model.total_params
    if not 1 / OTHER_PARAMETERS < ratio < OTHER_PARAMETERS:
        raise SkipRow("the row's parameter count is another model's", f"{row.params_b:g} B, {model.id}")


def _backend(row: Row, engine: EngineSpec) -> str | None:
    """The engine's backend by the row's, None where the row names none or the engine has only one."""
    words = re.split(r"[,\s+]+", (row.backend or "").strip().lower())
    known = [BACKENDS[word] for word in words if word in BACKENDS]
    gpu = [name for name in known if name != "cpu"]
    name = next(iter(gpu or known), None)
    if name is None or name in engine.backends:
        return name
    if engine.format_families == ("mlx",) and name == "metal":
        return None
    raise SkipRow(f"{engine.id} has no backend {name}")


def _system(row: Row, names: Names, backend: str | None) -> tuple[SystemSpec, bool]:
    on_cpu = _on_cpu(row, backend)
    if on_cpu and row.vcpus:
        return _rented(row), False
    device = _device(row, names)
    if on_cpu and device.kind != "cpu":
        raise SkipRow("the CPU of a system on a chip or of a computer named by its GPU is not known", device.id)
    if on_cpu and row.threads and device.compute_units and row.threads < 0.75 * device.compute_units:
        raise SkipRow("fewer threads than cores are not modelled yet", f"{row.threads:.0f} of {device.compute_units}")
    count = 1 if on_cpu else whole("device_count", row.device_count or 1)
    name = device.id if count == 1 else f"{count}x {device.id}"
    joined = network_of(row) if count > 1 else None
    return SystemSpec(name=name, device=device, count=count, network=joined), True


def _on_cpu(row: Row, backend: str | None) -> bool:
    return backend == "cpu" or (row.backend or "").upper().startswith("CPU")


def _with_host(system: SystemSpec, host: Host) -> SystemSpec:
    behind = host.memory.name
    if host.processor is not None:
        count = "" if host.sockets == 1 else f"{host.sockets}x "
        behind = f"{count}{host.processor.id} + {behind}"
    update = {"name": f"{system.name} + {behind}", "host": host.memory, "host_cpu": host.processor}
    return system.model_copy(update=update)


def _device(row: Row, names: Names) -> HardwareSpec:
    given = [text for text in (row.device_id, row.device_key, row.device) if text]
    if not given:
        raise SkipRow("the row names no device")
    problem: RooflineError | None = None
    for text in given:
        try:
            return names.device(text)
        except RooflineError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _rented(row: Row) -> SystemSpec:
    if not row.measured_bandwidth_gb_s:
        raise SkipRow("the bandwidth of the rented CPU was not measured")
    isa, vcpus = row.isa or "", whole("vcpus", row.vcpus or 0)
    threads = None if row.threads is None else whole("threads", row.threads)
    smt = threads_per_core(row.note, row.isa)
    device = rented_cpu(row.device or "rented CPU", vcpus, threads, smt, isa, row.measured_bandwidth_gb_s)
    return SystemSpec(name=f"{device.name}, {vcpus} vCPU", device=device)


def _weights(row: Row, engine: EngineSpec, model: ModelSpec, names: Names) -> FormatSpec:
    texts = (row.quant or "", row.weight_dtype or "", quant_in(row.model or "") or "")
    given = [text for text in texts if text]
    if not given:
        if row.hf_model_id and (found := quant_in(row.hf_model_id)):
            given = [found]
        else:
            raise SkipRow("the row does not name the type of the weights")
    problem: RooflineError | None = None
    for text in given:
        try:
            return names.weight_format(text, engine, model)
        except RooflineError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _check_capacity(size: int | None, system: SystemSpec) -> None:
    capacity = system.device.memory_bytes
    if size is None or capacity is None:
        return
    if size > capacity * system.count:
        raise SkipRow("the weights do not fit the devices: part of them must have been elsewhere")


def _build(row: Row) -> str | None:
    match = re.match(r"(\d{4})-(0[1-9]|1[0-2])", row.source_date or "")
    return match[0] if match else None
