"""Which models fit this hardware: each model in its best format that does, where it lies, and how fast it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rooflinellm import catalog
from rooflinellm.api import lookup
from rooflinellm.api.arguments import name_of, positive, scalar_count, single_values
from rooflinellm.api.estimate import estimate
from rooflinellm.api.fit import state_capacity
from rooflinellm.api.ladder import Step, ladder, sized
from rooflinellm.api.lists import list_models
from rooflinellm.api.lookup import Name
from rooflinellm.api.plans import choose
from rooflinellm.api.recommend import CONTEXT, ENGINES, LEAST_BITS, PROMPT
from rooflinellm.engine.kernels import choose_backend
from rooflinellm.engine.memory import usable_of_device
from rooflinellm.errors import InvalidRequest, RooflineError, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Estimate, data_frame, flat_record
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import (
    bases_text,
    gib_text,
    interval_text,
    params_text,
    placement_text,
    system_text,
    tokens_text,
    weights_text,
)
from rooflinellm.units import BITS_PER_BYTE, format_seconds, significant

ROWS = 15
"""Models of each kind that a table shows unless all are asked for."""
ABOUT = 1.1
"""Formats with up to so many times the bits of another are of about its size. [-]"""


@dataclass(frozen=True)
class ModelFit:
    """A model that fits.

    Attributes
    ----------
    model : ModelSpec
        The model.
    estimate : Estimate
        The prompt that ends the context, and the decode step behind it.
    bits_per_weight : float
        Of the format. [bit]
    on_devices : bool
        Whether all of it is on the devices; else a part is on the host.
    """

    model: ModelSpec
    estimate: Estimate
    bits_per_weight: float
    on_devices: bool

    @property
    def device_bytes(self) -> int:
        """What the devices hold; embeddings that are only looked up may be on the host in any case. [byte]"""
        return sum(int(part.bytes) for part in self.estimate.memory.placement if part.tier == "device")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in base units."""
        answer, memory = self.estimate, self.estimate.memory
        return {
            "model": self.model.id,
            "total_params": self.model.total_params,
            "active_params": self.model.active_params,
            "weights": answer.weights,
            "bits_per_weight": self.bits_per_weight,
            "engine": answer.engine,
            "kv": answer.kv,
            "on_devices": self.on_devices,
            "gpu_layers": answer.workload["gpu_layers"],
            "cpu_moe_layers": answer.workload["cpu_moe_layers"],
            "device_bytes": self.device_bytes,
            "total_bytes": memory.total_bytes,
            "usable_bytes": memory.usable_bytes,
            "decode_tokens_per_s": answer.decode.tokens_per_s.to_dict(),
            "ttft_s": answer.ttft_s.to_dict(),
            "basis": answer.decode.time_s.basis,
        }


@dataclass(frozen=True)
class ModelFits:
    """The answer of `fit_models`; true where a model fits.

    Attributes
    ----------
    hardware : SystemSpec
        The devices.
    context_limit, prompt_tokens, batch : int
        Context of each request, prompt that ends it, requests side by side. [token], [token], [-]
    met : tuple of ModelFit
        Models that fit: those on the devices, the largest first, then those with a part on the host, the fastest first.
    models : int
        Models that were looked at. [-]
    too_large, too_short, not_run : tuple of str
        Models that do not fit, that are made for less context, and that the engine cannot run there.
    least_bits : float
        Bits per weight below which no format was tried. [bit]
    """

    hardware: SystemSpec
    context_limit: int
    prompt_tokens: int
    batch: int
    met: tuple[ModelFit, ...]
    models: int
    too_large: tuple[str, ...]
    too_short: tuple[str, ...]
    not_run: tuple[str, ...]
    least_bits: float

    def __bool__(self) -> bool:
        return bool(self.met)

    def __repr__(self) -> str:
        return (
            f"ModelFits({self.hardware.id}: {len(self.met):,} of {self.models:,} models at "
            f"{self.context_limit:,} tokens)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            "hardware": self.hardware.id,
            "context_limit": self.context_limit,
            "prompt_tokens": self.prompt_tokens,
            "batch": self.batch,
            "models": self.models,
            "met": [each.to_dict() for each in self.met],
            "too_large": list(self.too_large),
            "too_short": list(self.too_short),
            "not_run": list(self.not_run),
            "min_bits_per_weight": self.least_bits,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a model that fits."""
        shared = {"hardware": self.hardware.id, "context_limit": self.context_limit}
        return [{**shared, **flat_record(each.to_dict())} for each in self.met]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def tables(self, *, most: int | None = ROWS) -> list[Table]:
        """Models on the devices and models with a part on the host, so many of each; None is all."""
        title = f"{system_text(self.hardware)} · context {tokens_text(self.context_limit)}"
        title += "" if self.batch == 1 else f" for each of {self.batch:,} requests"
        answer = f"{len(self.met):,} of {self.models:,} models fit"
        tables = []
        for here in (True, False):
            rows = [each for each in self.met if each.on_devices is here]
            if rows:
                tables.append(_table(rows, most, here=here))
        first, notes = (tables or [Table((), ())])[0], [*self._notes()]
        tables[:1] = [Table(first.columns, first.rows, title, first.notes, answer)]
        return [*tables, Table((), (), notes=notes)]

    def _notes(self) -> Iterable[str]:
        for names, why in (
            (self.too_large, "do not fit"),
            (self.too_short, f"are made for less than {tokens_text(self.context_limit)} of context"),
            (self.not_run, "cannot be run by the engine there"),
        ):
            if names:
                yield f"{len(names):,} more {why}"
        if self.met:
            yield (
                f"decode and first token (of a prompt of {self.prompt_tokens:,}) with the context full; "
                f"basis: {bases_text(each.estimate for each in self.met)}"
            )
        if self.least_bits:
            yield f"formats below {self.least_bits:g} bits per weight were not tried: --min-bits 0 tries them"

    def __str__(self) -> str:
        return "\n\n".join(table.to_text() for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def _table(met: Sequence[ModelFit], most: int | None, *, here: bool) -> Table:
    where = "all on the device" if here else "a part on the host"
    columns = [
        Column(where, "left"),
        Column("parameters", drop=2),
        Column("weights", "left"),
        Column("bits", drop=5),
        Column("GiB", drop=4) if here else Column("device", group="GiB", drop=4),
        *([] if here else [Column("host", group="GiB", drop=4), Column("on the host", "left", drop=3)]),
        Column("tok/s", group="decode"),
        Column("range", "left", group="decode", drop=1),
        Column("time", group="first token"),
        Column("range", "left", group="first token", drop=6),
    ]
    rows = []
    for each in met[:most]:
        answer, rate, first = each.estimate, each.estimate.decode.tokens_per_s, each.estimate.ttft_s
        rows.append(
            [
                each.model.id,
                params_text(each.model.total_params),
                weights_text(answer.weights),
                f"{each.bits_per_weight:.2f}",
                gib_text(each.device_bytes),
                *([] if here else [gib_text(answer.memory.total_bytes - each.device_bytes)]),
                *([] if here else [placement_text(answer.workload, len(each.model.layers))]),
                significant(rate.expected),
                interval_text(rate),
                format_seconds(first.expected),
                f"{format_seconds(first.low)}–{format_seconds(first.high)}",
            ]
        )
    how = (
        "each in the format of most bits that is all on the device; the largest first"
        if here
        else "each in a format of about the fewest bits that were tried; the fastest first"
    )
    hidden = len(met) - len(rows)
    return Table(columns, rows, notes=[how, *([f"{hidden} more: -v"] if hidden else [])])


class _Place(NamedTuple):
    """Where models are to run.

    Attributes
    ----------
    system : SystemSpec
        The devices.
    devices_bytes, all_bytes : int
        Memory that programs get of the devices, and with the host. [byte]
    keywords : dict of str to Any
        Of every estimate.
    """

    system: SystemSpec
    devices_bytes: int
    all_bytes: int
    keywords: dict[str, Any]

    @property
    def has_choice(self) -> bool:
        """Whether a part of a model can be on the host."""
        return self.system.host is not None and self.system.device.kind != "cpu"

    def lacks(self, model: ModelSpec, least_bits: float) -> bool:
        """Whether a model cannot fit, with so many bits for each weight."""
        return model.total_params * least_bits > self.all_bytes * BITS_PER_BYTE

    def ask(self, model: ModelSpec, weights: str, gpu_layers: int | None) -> Estimate:
        """The answer in a format; errors as in `estimate`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflineWarning)
            return estimate(
                model, self.system, weights=weights, gpu_layers=gpu_layers, output_tokens=0, **self.keywords
            )

    def on_devices(self, model: ModelSpec, steps: Sequence[Step]) -> ModelFit | None:
        """All on the devices, in the format of most bits that fits there."""
        for step in steps:
            if step.resident_bytes > self.devices_bytes:  # some of them are on the host in any case: an upper bound
                continue
            answer = self.ask(model, step.weights, len(model.layers) + 1 if self.has_choice else None)
            if answer.memory.fits is True:
                return ModelFit(model, answer, step.bits_per_weight, on_devices=True)
        return None

    def with_host(self, model: ModelSpec, steps: Sequence[Step]) -> ModelFit | None:
        """A part on the host, in about the fewest bits, which leaves the most on the devices."""
        if not self.has_choice or not steps or steps[-1].resident_bytes > self.all_bytes:
            return None
        # A mixture whose experts keep their own format has others of about the same size: then its own.
        step = next(step for step in steps if step.bits_per_weight <= ABOUT * steps[-1].bits_per_weight)
        answer = self.ask(model, step.weights, None)
        return ModelFit(model, answer, step.bits_per_weight, on_devices=False) if answer.memory.fits else None


def fit_models(
    hardware: Name | HardwareSpec | SystemSpec,
    *,
    query: str = "",
    models: Name | ModelEntry | ModelSpec | Sequence[Name | ModelEntry | ModelSpec] | None = None,
    context_limit: int = CONTEXT,
    prompt_tokens: int | None = None,
    batch: int = 1,
    weights: str | None = None,
    min_bits_per_weight: float = LEAST_BITS,
    engine: str | None = None,
    **others: Any,
) -> ModelFits:
    """List the models that fit hardware, each in its best format that does, with its speed.

    Parameters
    ----------
    hardware : str, path or spec
        As in `rooflinellm.system`; with a host, parts of a model may be there.
    query : str
        Only models that `rooflinellm.list_models` finds by it.
    models : str, path or spec, or a sequence of them, optional
        Models to choose from, in place of those of the database.
    context_limit : int
        Context to hold for each request. [token]
    prompt_tokens : int, optional
        Prompt that ends the context; None is 512, or the context if that is shorter. [token]
    batch : int
        Requests side by side. [-]
    weights : str, optional
        The one format to try; None is one of each common size, up to what a model was released in.
    min_bits_per_weight : float
        Formats of fewer bits are not tried, unless one is named. [bit]
    engine : str, optional
        As in `rooflinellm.estimate`; None is llama.cpp, and vLLM on devices that it does not run on.
    **others
        As in `rooflinellm.estimate`: ``kv``, ``tensor_parallel``, ``options`` and the like.

    Returns
    -------
    ModelFits
        A model is listed with the format of most bits that is all on the devices; where there is none and the system
        has a host, with a format of about the fewest bits and the fastest placement.

    Raises
    ------
    InvalidRequest
        Numbers that describe nothing possible, a placement, or a capacity that is not known.
    UnknownName, AmbiguousName
        A name that is no entry, or that fits several.
    RooflineError
        The engine does not run there: what `rooflinellm.estimate` raises.
    """
    context = scalar_count("context_limit", context_limit)
    prompt = min(PROMPT, context) if prompt_tokens is None else scalar_count("prompt_tokens", prompt_tokens)
    if prompt > context:
        raise InvalidRequest(f"{prompt:,} tokens of prompt do not fit a context of {context:,}", where="prompt_tokens")
    for name in ("gpu_layers", "cpu_moe_layers", "context_tokens", "cached_tokens", "output_tokens"):
        if name in others:
            raise InvalidRequest("it is chosen for each model, and cannot be given", where=name)
    single_values(others)
    bits = 0.0 if min_bits_per_weight == 0 else positive("min_bits_per_weight", min_bits_per_weight)
    system = lookup.system(hardware)
    found = _found(name_of("query", query) if query != "" else "", models)
    engine = _engine(found[0], weights, engine, system)
    if weights is not None:
        weights = catalog.weight_format(weights, catalog.engine(engine)[0].format_families).id
    tokens = {"prompt_tokens": prompt, "context_tokens": context - prompt, "context_limit": context}
    place = _place(system, engine, {**tokens, "batch": scalar_count("batch", batch), "engine": engine, **others})
    met: list[ModelFit] = []
    left: dict[str, list[str]] = {"large": [], "short": [], "not run": []}
    errors: list[RooflineError] = []
    for spec in found:
        if spec.max_context_tokens < context:
            left["short"].append(spec.id)
            continue
        try:
            steps = [] if place.lacks(spec, bits) else _steps(spec, engine, weights, bits, place)
            fitting = place.on_devices(spec, steps) or place.with_host(spec, steps)
        except RooflineError as error:  # a layer or a format that the engine does not compute there
            left["not run"].append(spec.id)
            errors.append(error)
            continue
        if fitting is None:
            left["large"].append(spec.id)
        else:
            met.append(fitting)
    if errors and not met and not left["large"]:  # then it is no matter of the model
        raise errors[0]
    return ModelFits(
        hardware=system,
        context_limit=context,
        prompt_tokens=prompt,
        batch=place.keywords["batch"],
        met=tuple(sorted(met, key=_rank)),
        models=len(found),
        too_large=tuple(left["large"]),
        too_short=tuple(left["short"]),
        not_run=tuple(left["not run"]),
        least_bits=0.0 if weights is not None else bits,
    )


def _found(query: str, models: Any) -> list[ModelSpec]:
    """The models that were named, else those of the database that a query finds."""
    if models is not None:
        named = models if isinstance(models, list | tuple) else [models]
        found = [lookup.model(each) for each in named]
    else:
        found = [lookup.model(each.id) for each in list_models(query)]
    if not found:
        raise InvalidRequest(f"no model is found by '{query[:80]}'", where="query" if models is None else "models")
    return found


def _rank(each: ModelFit) -> tuple[Any, ...]:
    """Sort key: the largest first on the devices, the fastest first where the host takes part."""
    by = each.model.total_params if each.on_devices else float(each.estimate.decode.tokens_per_s.expected)
    return (not each.on_devices, -by, each.model.id)


def _engine(model: ModelSpec, weights: str | None, engine: str | None, system: SystemSpec) -> str:
    """The engine that is meant: of those to try the first that runs on the device."""
    names = (engine,) if engine is not None else ENGINES if weights is None else (choose(model, weights, None)[1].id,)
    errors: list[RooflineError] = []
    for name in names:
        spec, backend, _ = catalog.engine(name)
        try:
            choose_backend(spec, system.device, backend)
        except RooflineError as error:
            errors.append(error)
            continue
        return name
    raise errors[0]


def _place(system: SystemSpec, engine: str, keywords: dict[str, Any]) -> _Place:
    spec = catalog.engine(engine)[0]
    sizes = [(usable_of_device(group.device, spec), group.count) for group in system.groups]
    host = 0 if system.host is None else system.host.capacity_bytes
    if host is None or any(size is None for size, _ in sizes):
        raise InvalidRequest(
            f"how much memory {system.id} has is not known", where="hardware", next_step=state_capacity(system)
        )
    here = sum((size or 0) * count for size, count in sizes)
    if spec.several_devices == "tensor_parallel" and system.device_count > 1:
        keywords = {"tensor_parallel": system.device_count, **keywords}
    return _Place(system, here, here + host, keywords)


def _steps(model: ModelSpec, engine: str, weights: str | None, least_bits: float, place: _Place) -> list[Step]:
    """Formats to try, the most bits first; of a model that was released in fewer bits its own."""
    families = catalog.engine(engine)[0].format_families
    if weights is not None:
        return sized(model, [catalog.weight_format(weights, families).id])
    most = BITS_PER_BYTE * place.devices_bytes / model.total_params
    steps = ladder(model, families, least_bits=least_bits, most_bits=max(most, least_bits * ABOUT))
    return [step for step in steps if step.bits_per_weight >= least_bits] or ladder(model, families)[:1]
