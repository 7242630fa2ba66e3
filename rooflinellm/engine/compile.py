"""Compile a model, a system, a format and an engine into a plan."""

from __future__ import annotations

from collections.abc import Sequence

from rooflinellm import catalog
from rooflinellm._kept import Kept
from rooflinellm.engine.layout import Layout, lay_out
from rooflinellm.engine.memory import LARGEST_DISK, usable_of_device
from rooflinellm.engine.parallel import ALONE, Parallel, collectives
from rooflinellm.engine.paths import other_engines
from rooflinellm.engine.placement import Offload, Place, Placement, place
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.stages import StageBuilder
from rooflinellm.engine.workspace import batch_limits, widest_features
from rooflinellm.errors import InvalidRequest, RooflineError
from rooflinellm.operators.cache import CacheTypes
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import Encodings, FormatSpec
from rooflinellm.specs.hardware import SystemSpec
from rooflinellm.specs.index import Listed
from rooflinellm.specs.profile import ProfileSpec

_layouts = Kept[Layout](512)


def layout_of(model: ModelSpec, fmt: FormatSpec, encodings: Encodings) -> Layout:
    """The model in the format, from memory where it is known."""
    return _layouts.of((model.entry, fmt, encodings), (), lambda: lay_out(model, fmt, encodings.encodings))


def compile_plan(
    model: ModelSpec,
    system: SystemSpec,
    fmt: FormatSpec,
    engine: EngineSpec,
    backend_name: str,
    profiles: Sequence[ProfileSpec],
    encodings: Encodings,
    *,
    kv: str,
    resident_weight_bytes: int | None = None,
    prefill_chunk: int | None = None,
    expanded: bool = False,
    build: str | None = None,
    offload: Offload | None = None,
    parallel: Parallel = ALONE,
) -> Plan:
    """Turn everything declarative into coefficients.

    Parameters
    ----------
    model, system, fmt, engine, encodings
        The entries.
    profiles : sequence of ProfileSpec
        Efficiency profiles, the preferred one first.
    backend_name : str
        Backend of the engine.
    kv : str
        Type of the cache, or ``K/V``.
    resident_weight_bytes : int, optional
        Size of the actual file, where it is known; the recipe's bytes are scaled to it. [byte]
    prefill_chunk : int, optional
        Tokens of a prompt that pass at once; None takes the engine's default. [token]
    expanded : bool
        Latents are cached expanded, even if the engine would absorb them.
    build : str, optional
        Date of the engine's build, as ``2024-05``; None is a current one.
    offload : Offload, optional
        What stays on the host; None is nothing.
    parallel : Parallel
        How the devices share the work.

    Returns
    -------
    Plan

    Raises
    ------
    InvalidRequest
        The engine cannot run the format or the cache type, or leave anything on the host, or there is no host; or
        devices would cut the format's blocks.
    MissingSpec
        A peak or an efficiency that is needed is not known.
    """
    if fmt.family not in engine.format_families:
        raise InvalidRequest(
            f"{engine.id} does not run {fmt.id}; it runs {', '.join(engine.format_families)} formats",
            where="weights",
            next_step=other_engines(system.device, family=fmt.family),
        )
    cache = CacheTypes.parse(kv, encodings)
    for name in cache.names:
        if name not in engine.kv.types:
            raise InvalidRequest(
                f"{engine.id} has no cache type '{name}'; it has {', '.join(engine.kv.types)}", where="kv"
            )
    layout = layout_of(model, fmt, encodings)
    if fmt.family == "hf":  # a GGUF file's rows may be cut anywhere
        parallel.check_blocks(layout, encodings.encodings)
    resident = resident_weight_bytes or layout.resident_bytes
    offload = offload or Offload()
    builder = StageBuilder(
        system, engine, profiles, cache, build, model.hidden, expanded or engine.kv.latent == "expanded",
        1 if resident_weight_bytes is None else resident_weight_bytes / layout.resident_bytes, layout,
        offload.cache_on_host, parallel,
    )  # fmt: skip
    placement = placed(model, system, engine, offload, build, parallel)
    stages = builder.stages(placement, backend_name, resident)
    return Plan(
        model=model,
        system=system,
        fmt=fmt,
        engine=engine,
        kv=cache.name,
        layout=layout,
        stages=stages,
        crossings=builder.crossings(placement),
        widest_features=widest_features(model.entry),
        resident_weight_bytes=resident,
        prefill_chunk=prefill_chunk or batch_limits(engine, system.device).prefill_chunk,
        build=build,
        offload=offload,
        parallel=parallel,
        collectives=()
        if parallel.team == 1
        else collectives(model, parallel, engine.activation_bytes, builder.collective_link()),
    )


def placed(
    model: ModelSpec,
    system: SystemSpec,
    engine: EngineSpec,
    offload: Offload,
    build: str | None = None,
    parallel: Parallel = ALONE,
) -> Placement:
    """Divide a model over a system by an engine's rule.

    Parameters
    ----------
    model, system, engine
        The entries.
    offload : Offload
        What stays on the host.
    build : str, optional
        Date of the engine's build, as ``2024-05``; None is a current one.

    Returns
    -------
    Placement

    Raises
    ------
    InvalidRequest
        The engine leaves nothing on the host, or the system names no memory of the host.
    """
    rules = engine.offload
    if offload.uses_host and system.device.kind != "cpu":
        if rules is None:
            able = [entry.id for entry in map(_engine, catalog.list_engines()) if entry is not None and entry.offload]
            raise InvalidRequest(
                f"{engine.id} leaves nothing on the host", where="gpu_layers", next_step=f"{', '.join(able)} do."
            )
        if system.host is None and not system.device.memory.unified:
            raise InvalidRequest(
                "layers, experts or a cache on the host need its memory, which the system does not name",
                where=f"hardware '{system.name}'",
                next_step=f"Write it behind: '{system.name} + ddr5-5600x2@64GiB'.",
            )
    on_host = rules is not None and rules.embedding_on_host and system.host is not None
    return place(
        len(model.layers),
        places(system, engine, parallel),
        offload,
        embedding_on_host=on_host,
        computes_on_host=rules is None or rules.mode == "layers",
        head_last=rules is not None and _before(build, rules.head_last_until),
    )


def _before(build: str | None, month: str | None) -> bool:
    """Whether a build is older than a month; one without a date is current."""
    return build is not None and month is not None and build[: len(month)] < month


def places(system: SystemSpec, engine: EngineSpec, parallel: Parallel = ALONE) -> tuple[Place, ...]:
    """Where a system can hold weights and cache: its devices, the host where the engine uses it, and a drive.

    Devices that work on every layer together are one place; copies of the whole model are alike: one stands for all.
    """
    alike = parallel.team * parallel.replicas
    found = [
        Place("device", index, usable_of_device(group.device, engine))
        for index, group in enumerate(system.groups)
        for _ in range(group.count // alike)
    ]
    has_host = system.host is not None or system.device.memory.unified
    if engine.offload is not None and has_host and system.device.kind != "cpu":
        found.append(Place("host", usable_bytes=None if system.host is None else system.host.capacity_bytes))
        if system.disk is not None:
            found.append(Place("disk", usable_bytes=system.disk.capacity_bytes or LARGEST_DISK))
    return tuple(found)


def _engine(listed: Listed) -> EngineSpec | None:
    """An engine by its listing; a broken file troubles only those who ask for it."""
    try:
        return catalog.engine(listed.id)[0]
    except RooflineError:
        return None
