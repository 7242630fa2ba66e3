"""How results read: tables of estimates, memory and operators, and the words in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflinellm._numeric import is_array
from rooflinellm.render import Column, Table
from rooflinellm.results import FAMILY, Estimate, MemoryPlan, Phase, Prediction
from rooflinellm.units import GIB, GIGA, KIB, MIB, format_gib, format_seconds, significant

MAX_CASES = 24
MOST_NAMED = 4
"""Systems that a line about several names. [-]"""


def spread(value: Any, write: Callable[[float], str]) -> str:
    """A number as text, or the first and last of an array."""
    if is_array(value) and getattr(value, "size", 1) > 1:
        flat = value.ravel()
        return f"{write(float(flat[0]))} … {write(float(flat[-1]))}"
    return write(float(value.item() if is_array(value) else value))


def count_text(value: float) -> str:
    """A count with its thousands separated."""
    return f"{value:,.0f}"


def tokens_text(value: float) -> str:
    """A length of context as people name it: ``512``, ``4k``, ``128k``, ``1M`` (k and M are binary)."""
    count = round(value)
    for size, letter in ((MIB, "M"), (KIB, "k")):
        if count and count % size == 0:
            return f"{count // size:,}{letter}"
    return f"{count:,}"


def params_text(count: float) -> str:
    """A number of parameters, as ``8.03 B``."""
    return f"{significant(count / GIGA, 3)} B"


def rate_text(prediction: Prediction, *, bound: bool = False) -> str:
    """A rate with its interval, as ``143 (95–215)``; with the bound, ``143 (95–215) of ≤ 218``."""
    text = f"{spread(prediction.expected, significant)} ({interval_text(prediction)})"
    return f"{text} of ≤ {spread(prediction.ideal, significant)}" if bound else text


def interval_text(prediction: Prediction) -> str:
    """The ends of a prediction's interval, as ``95–215``."""
    return f"{spread(prediction.low, significant)}–{spread(prediction.high, significant)}"


BOUNDS = ("memory", "compute", "link", "overhead")
"""What can limit an operator."""
LIMIT_NOTE = "limit: what most of the expected time is spent on, and its share"


def limit_shares(phase: Phase) -> dict[str, Any]:
    """Shares of a phase's expected time in operators bound by ``memory``, ``compute``, ``link`` or ``overhead``. [-]"""
    return {word: sum(item.share_of_expected * (item.bound == word) for item in phase.operators) for word in BOUNDS}


def basis_text(basis: str, evidence: int = 1) -> str:
    """Where the expectation comes from, in words; `evidence` counts the results of the device itself behind it."""
    if basis == "calibrated" and not evidence:
        return f"calibrated{FAMILY}; no current measurements of this device itself"
    return {
        "nominal": "nominal (typical efficiencies, not fitted to measurements)",
        "calibrated": "calibrated (efficiencies fitted to measurements)",
        "measured": "measured (efficiencies fitted to measurements of this very device)",
    }.get(basis, basis)


def bases_text(estimates: Iterable[Estimate]) -> str:
    """`basis_text` of several estimates: where not all rest on the same, each basis with its systems."""
    return bases_by_system((item.decode.time_s.basis, item.evidence, system_text(item.hardware)) for item in estimates)


def bases_by_system(found: Iterable[tuple[str, int, str]]) -> str:
    """The same of basis, evidence and name of each system."""
    systems: dict[str, dict[str, None]] = {}
    for basis, evidence, name in found:
        systems.setdefault(basis_text(basis, evidence), {})[name] = None
    if len(systems) == 1:
        return next(iter(systems))
    return ". ".join(
        f"{', '.join(names) if len(names) <= MOST_NAMED else f'{len(names)} systems'}: {text}"
        for text, names in systems.items()
    )


def weights_text(weights: str) -> str:
    """A weight format as its makers write it: ``gguf:q4_k_m`` is ``Q4_K_M``."""
    family, _, name = weights.rpartition(":")
    if family == "gguf":
        return name.upper()
    return f"{family} {name}" if family in ("mlx",) else name


def device_text(device: Any) -> str:
    """A device's name without its maker's: ``RTX 4090``; with the amount of memory where one was asked for."""
    name = str(device.name)
    for prefix in ("NVIDIA GeForce ", "NVIDIA ", "AMD ", "Intel "):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    capacity = device.memory.capacity_gib
    return f"{name} {capacity.value:g} GiB" if capacity is not None and capacity.source == "as asked" else name


def system_text(system: Any) -> str:
    """Devices, host and drive, as ``2x RTX 3090 + ddr5-5600x2``."""
    parts = [
        device_text(group.device) if group.count == 1 else f"{group.count}x {device_text(group.device)}"
        for group in system.groups
    ]
    if system.host_cpu is not None:
        parts.append(device_text(system.host_cpu))
    elif system.host is not None:
        parts.append(system.host.name)
    if system.disk is not None:
        parts.append(system.disk.name)
    return " + ".join(parts)


def what_text(estimate: Estimate) -> str:
    """What an estimate is of: model, format, devices and engine."""
    parts = [estimate.model.name, weights_text(estimate.weights)]
    if estimate.kv not in ("f16", "bf16"):
        parts.append(f"KV {estimate.kv}")
    return " · ".join([*parts, devices_text(estimate), estimate.engine.replace(":", " ")])


def devices_text(estimate: Estimate) -> str:
    """The devices and how they share the work, as ``8x H100 SXM5 80GB TP4 PP2``."""
    names = {"TP": "tensor", "PP": "pipeline", "EP": "expert", "DP": "data"}
    degrees = {short: estimate.workload.get(f"{name}_parallel", 1) for short, name in names.items()}
    said = [f"{short}{degree}" for short, degree in degrees.items() if degree > 1]
    return " ".join([system_text(estimate.hardware), *said])


def fits_text(memory: MemoryPlan, tokens: Any = None) -> str:
    """Whether it fits, with the numbers; `tokens` is the context that there is room for."""
    at = "" if tokens is None else f" at {spread(tokens, count_text)} tokens"
    total = spread(memory.total_bytes, format_gib)
    if len(_tiers(memory)) > 1:
        answer = {True: "fits", False: "does not fit", None: "not known whether it fits"}
        fits = memory.fits if not is_array(memory.fits) else bool(memory.fits.all())
        return f"{answer[fits]}: {', '.join(_tier_text(memory, tier) for tier in _tiers(memory))}{at}"
    if memory.usable_bytes is None:
        return f"needs {total}{at}; the capacity is not known"
    usable = format_gib(memory.usable_bytes)
    fits = memory.fits
    if is_array(fits) and fits.size > 1:
        return f"fits: {int(fits.sum())} of {fits.size} cases, {total} of {usable}{at}"
    return f"{'fits' if bool(fits) else 'does not fit'}: {total.removesuffix(' GiB')} of {usable}{at}"


_WHERE = {"device": "on the device", "host": "on the host", "disk": "on the drive"}


def _tiers(memory: MemoryPlan) -> list[str]:
    """Tiers that hold something, the devices first."""
    return list(dict.fromkeys(part.tier for part in memory.placement if _last(part.bytes) or part.tier == "device"))


def _tier_text(memory: MemoryPlan, tier: str) -> str:
    """What a tier holds of what it can, as ``23.3 of 23.6 GiB on the device``."""
    parts = [part for part in memory.placement if part.tier == tier]
    count = sum(part.tier == "device" for part in memory.placement)
    where = f"on {count} devices" if tier == "device" and count > 1 else _WHERE[tier]
    total: Any = sum(part.bytes for part in parts)
    text = spread(total, format_gib)
    if tier == "disk" or any(part.usable_bytes is None for part in parts):
        return f"{text} {where}"
    usable = format_gib(sum(part.usable_bytes or 0 for part in parts))
    return f"{text.removesuffix(' GiB')} of {usable} {where}"


LLAMA_FLAGS = ("llama.cpp", "ik_llama.cpp")
"""Engines that take llama.cpp's options."""


def placement_flags(workload: Mapping[str, Any], engine: str) -> str:
    """llama.cpp's options for a placement, as ``-ngl 81 -ncmoe 23``; empty for other engines and for no placement."""
    layers, experts = workload.get("gpu_layers"), workload.get("cpu_moe_layers")
    if layers is None or engine.partition(":")[0] not in LLAMA_FLAGS:
        return ""
    return f"-ngl {layers}" + (f" -ncmoe {experts}" if experts else "")


def placement_text(workload: Mapping[str, Any], layers: int) -> str:
    """What stays on the host, in words: ``35 of 81 layers``, ``the experts of 23 layers``; empty for nothing."""
    here, experts = workload.get("gpu_layers"), workload.get("cpu_moe_layers")
    words = [] if here is None or here > layers else [f"{layers + 1 - here} of {layers + 1} layers"]
    words += [f"the experts of {experts} layers"] if experts else []
    return " and ".join(words)


def host_text(estimate: Estimate) -> str:
    """`placement_text` of an estimate, with what of it lies on a drive."""
    words = placement_text(estimate.workload, len(estimate.model.layers))
    on_drive: Any = sum(part.bytes for part in estimate.memory.placement if part.tier == "disk")
    return (
        f"{words} on the host, {spread(on_drive, format_gib)} of it on a drive" if on_drive else f"{words} on the host"
    )


def place_table(estimate: Estimate) -> Table:
    """Where a model lies and what each place costs: layers, weights, share of the bytes and of the time of a step."""
    decode = estimate.decode
    experts = estimate.workload.get("cpu_moe_layers") or 0
    rows = []
    for each in decode.by_place:
        layers = [str(each.layers)] if each.layers else []
        layers += [f"experts of {experts}"] if experts and each.tier == "host" else []
        rows.append(
            [
                each.place,
                " + ".join(layers),
                gib_text(each.weight_bytes) if each.weight_bytes else "",
                _percent(each.share_of_read) if each.tier != "link" else "",
                _percent(each.share_of_expected),
            ]
        )
    columns = [
        Column("decode, by place", "left"), Column("layers"), Column("weights, GiB", drop=1), Column("of bytes read"),
        Column("of the time"),
    ]  # fmt: skip
    return Table(columns, rows)


def is_placed(estimate: Estimate) -> bool:
    """Whether the host or a drive takes part in decode, beyond looking up embeddings."""
    return any(
        each.tier in ("host", "disk") and float(_last(each.share_of_expected)) > 0 for each in estimate.decode.by_place
    )


def _percent(share: Any) -> str:
    return spread(share, lambda value: f"{significant(100 * value, 2 if value < 0.1 else 3)} %")


@dataclass(frozen=True, slots=True)
class _Case:
    """One point of an estimate whose arguments may be arrays."""

    estimate: Estimate
    shape: tuple[int, ...]
    index: int

    def at(self, value: Any) -> Any:
        """The value at this point."""
        if not is_array(value):
            return value
        import numpy as np

        return np.broadcast_to(value, self.shape).ravel()[self.index].item()

    def prediction(self, prediction: Prediction) -> Prediction:
        """The prediction at this point."""
        return replace(
            prediction,
            **{name: self.at(getattr(prediction, name)) for name in ("ideal", "expected", "low", "high")},
        )

    def limit(self, phase: Phase) -> str:
        """What limits the phase here, and the share of its time."""
        shares = {word: self.at(share) for word, share in limit_shares(phase).items()}
        word = max(shares, key=shares.__getitem__)
        return f"{word} {100 * shares[word]:.0f} %"


def _cases(estimate: Estimate) -> tuple[list[_Case], int]:
    """The points of an estimate, at most `MAX_CASES` of them spread evenly; and how many there are."""
    arrays = [value for value in (*estimate.workload.values(), estimate.ttft_s.expected) if is_array(value)]
    if not arrays:
        return [_Case(estimate, (), 0)], 1
    import numpy as np

    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    size = int(np.prod(shape, dtype=int))
    chosen = dict.fromkeys(round(index) for index in np.linspace(0, size - 1, min(size, MAX_CASES)))
    return [_Case(estimate, shape, index) for index in chosen], size


_AXES = {
    "context_tokens": "context",
    "cached_tokens": "cached",
    "output_tokens": "output",
    "batch": "batch",
}


def estimate_table(estimates: Sequence[Estimate]) -> Table:
    """The four questions over prompt lengths: prefill time, first token, decode, and how they change with context.

    Parameters
    ----------
    estimates : sequence of Estimate
        Of the same model and hardware; arrays in them give a row for each element.
    """
    first = estimates[0]
    largest = max(estimates, key=lambda item: float(_last(item.memory.total_bytes)))
    counted = [_cases(estimate) for estimate in estimates]
    cases = [case for found, _ in counted for case in found]
    hidden = sum(size for _, size in counted) - len(cases)

    def values(name: str) -> list[Any]:
        return [case.at(case.estimate.workload[name]) for case in cases]

    axes = [name for name in _AXES if len(set(values(name))) > 1]
    batches = set(values("batch"))
    columns = [Column("prompt"), *(Column(_AXES[name]) for name in axes)]
    with_prompt = any(values("prompt_tokens"))
    if with_prompt:
        name = "prefill" if batches == {1} else "prefill, each"
        columns += [
            Column("tok/s", group=name),
            Column("range", "left", group=name, drop=1),
            Column("time", group=name, drop=3),
            Column("limit", "left", group=name, drop=4, note=LIMIT_NOTE),
        ]
    each = "decode, one request" if batches == {1} else "decode, each request"
    columns += [
        Column("first token"),
        Column("tok/s", group=each),
        Column("range", "left", group=each, drop=1),
        Column("ideal", group=each),
    ]
    if batches != {1}:
        columns.append(Column("all" if len(batches) > 1 else f"all {batches.pop():,.0f}", group=each))
    columns.append(Column("limit", "left", group=each, drop=2, note=LIMIT_NOTE))
    batched = any(column.heading.startswith("all") for column in columns)
    rows = [_row(case, axes, with_prompt=with_prompt, batched=batched) for case in cases]
    answer = fits_text(largest.memory, largest.workload["context_limit"])
    notes = [*request_notes(estimates), f"basis: {bases_text(estimates)}"]
    if hidden:
        notes.append(f"{len(cases)} of {len(cases) + hidden:,} cases")
    notes += [f"warning: {text}" for text in dict.fromkeys(text for item in estimates for text in item.warnings)]
    return Table(columns, rows, what_text(first), notes, answer)


def request_notes(estimates: Sequence[Estimate]) -> list[str]:
    """What the rows of `estimate_table` do not say of a request: what is in the cache already, and what drafts."""
    notes = [text for item in estimates for text in (_cached_text(item), _context_text(item)) if text]
    notes += [text for text in map(speculation_text, estimates[-1:]) if text]
    return list(dict.fromkeys(notes))


def _cached_text(estimate: Estimate) -> str:
    cached, prompt = estimate.workload["cached_tokens"], estimate.workload["prompt_tokens"]
    if is_array(cached) or is_array(prompt) or not cached:
        return ""
    computed = max(prompt - cached, 1)  # of a prompt that is cached whole, the last token
    return (
        f"prompt of {count_text(prompt)}: {count_text(cached)} tokens are cached; prefill rate and time are those of "
        f"the other {count_text(computed)}"
    )


def _context_text(estimate: Estimate) -> str:
    context = estimate.workload["context_tokens"]
    return "" if is_array(context) or not context else f"in the cache before the prompt: {count_text(context)} tokens"


def speculation_text(estimate: Estimate) -> str:
    """What drafts, how many tokens, what a cycle gives and how much faster that is; empty without drafts."""
    drafts = estimate.speculation
    if drafts is None:
        return ""
    best = drafts.best_draft_tokens
    better = "" if best == drafts.draft_tokens else f"; fastest with {best}" if best else "; faster without"
    return (
        f"speculation: {_drafter_text(drafts)}, {drafts.draft_tokens} tokens drafted, {drafts.tokens_per_cycle:.2f} "
        f"tokens a cycle: {spread(drafts.speedup, lambda value: f'{value:.2f}')} times the speed without{better}"
    )


def _drafter_text(drafts: Any) -> str:
    model = drafts.draft_model
    return str(drafts.draft) if model is None else f"{model.id} {weights_text(drafts.draft_weights)}"


def _last(value: Any) -> Any:
    return value.ravel()[-1] if is_array(value) else value


def _row(case: _Case, axes: Sequence[str], *, with_prompt: bool, batched: bool) -> list[str]:
    workload, prefill, decode = case.estimate.workload, case.estimate.prefill, case.estimate.decode
    cells = [count_text(case.at(workload[name])) for name in ("prompt_tokens", *axes)]
    if case.at(workload["prompt_tokens"]):
        rate = case.prediction(prefill.tokens_per_s)
        time = format_seconds(case.at(prefill.time_s.expected))
        cells += [significant(rate.expected), interval_text(rate), time, case.limit(prefill)]
    elif with_prompt:
        cells += ["–", "", "", ""]
    cells.append(format_seconds(case.at(case.estimate.ttft_s.expected)))
    rate = case.prediction(decode.tokens_per_s)
    cells += [significant(rate.expected), interval_text(rate), f"≤ {significant(rate.ideal)}"]
    if batched:
        cells.append(significant(case.at(decode.aggregate_tokens_per_s.expected)))
    return [*cells, case.limit(decode)]


def growth_table(decode: Sequence[Estimate], prefill: Sequence[Estimate] = ()) -> Table:
    """How speed and memory change as the context fills: a column for each amount of context.

    Parameters
    ----------
    decode : sequence of Estimate
        Without a prompt, over amounts of context (an array in one of them, or one each).
    prefill : sequence of Estimate
        With a prompt on top of the same contexts.
    """
    cases = [case for estimate in decode for case in _cases(estimate)[0]]
    columns = [Column("as the context fills", "left")]
    for index, case in enumerate(cases):
        tokens = case.at(case.estimate.workload["context_tokens"])
        columns.append(Column(tokens_text(tokens), drop=1 if index % 2 else 0))
    rates = [case.prediction(case.estimate.decode.tokens_per_s) for case in cases]
    rows = [
        ["decode tok/s", *(significant(rate.expected) for rate in rates)],
        ["  ideal", *(f"≤ {significant(rate.ideal)}" for rate in rates)],
    ]
    more = [case for estimate in prefill for case in _cases(estimate)[0]]
    if more:
        name = f"prefill of {count_text(more[0].at(more[0].estimate.workload['prompt_tokens']))} more"
        rows.append([name, *(significant(case.at(case.estimate.prefill.tokens_per_s.expected)) for case in more)])
    notes = []
    if more:
        tokens, chunk = more[0].at(more[0].estimate.workload["prompt_tokens"]), more[0].estimate.prefill_chunk
        if tokens < chunk:
            short, long = count_text(tokens), count_text(chunk)
            notes.append(f"prefill of {short} more is one short pass; the rates of long prompts have passes of {long}")
    memory = [case.estimate.memory for case in cases]
    fits = [case.at(plan.fits) for case, plan in zip(cases, memory, strict=True)]
    for name, key in (("KV cache, GiB", "kv_occupied_bytes"), ("total memory, GiB", "total_bytes")):
        sizes = [case.at(getattr(plan, key)) for case, plan in zip(cases, memory, strict=True)]
        rows.append([name, *map(gib_text, sizes)])
    if False in fits:
        rows.append(["  fits", *("yes" if each else "no" for each in fits)])
    return Table(columns, rows, notes=notes)


def operator_table(phase: Phase) -> Table:
    """Costs by operator: what each moves and multiplies, and what limits it."""
    rows = []
    for item in phase.operators:
        rows.append(
            [
                item.name,
                str(item.count),
                spread(item.flops, lambda value: significant(value / GIGA, 3)),
                spread(item.read_bytes, lambda value: significant(value / GIGA, 3)),
                item.compute_path or "–",
                spread(item.time_s, format_seconds),
                spread(item.share_of_expected, lambda value: f"{value:.0%}".replace("%", " %")),
                spread(item.percent_of_ideal, lambda value: f"{value:.0f} %"),
                str(item.bound) if not is_array(item.bound) else "/".join(dict.fromkeys(item.bound.ravel().tolist())),
            ]
        )
    columns = [
        Column("operator", "left"), Column("layers", drop=3), Column("GFLOP", drop=1), Column("GB read", drop=1),
        Column("computes in", "left", drop=2), Column("time"), Column("share"), Column("of ideal"),
        Column("limited by", "left"),
    ]  # fmt: skip
    answer = (
        f"{spread(phase.time_s.expected, format_seconds)}, "
        f"intensity {spread(phase.arithmetic_intensity, significant)} FLOP/byte, "
        f"ridge point {spread(phase.ridge_point, significant)} FLOP/byte"
    )
    return Table(columns, rows, phase.name, answer=answer)


BAR_CELLS = 40


def memory_table(memory: MemoryPlan) -> Table:
    """What takes the memory, by part, each with a bar; the whole is the usable memory, or the total if that is more."""
    parts = [
        ("weights", memory.resident_weight_bytes),
        ("KV cache", memory.kv_allocated_bytes),
        ("state", memory.state_bytes),
        ("workspace", memory.workspace_bytes),
    ]
    usable, total = memory.usable_bytes, memory.total_bytes
    whole = max(total, usable or 0)
    rows = []
    done = 0
    for name, size in parts:
        if not size and name == "state":
            continue
        start, stop = round(BAR_CELLS * done / whole), round(BAR_CELLS * (done + size) / whole)
        rows.append([name, format_gib(size), " " * start + "█" * max(stop - start, 1 if size else 0)])
        done += size
    if usable is not None:
        name = "headroom" if total <= usable else "lacking"
        start = round(BAR_CELLS * min(total, usable) / whole)
        mark = "░" if total <= usable else "!"
        rows.append([name, format_gib(abs(usable - total)), " " * start + mark * (BAR_CELLS - start)])
    return Table([Column("", "left"), Column(""), Column("", "left", drop=1)], rows)


def placement_table(memory: MemoryPlan) -> Table:
    """What each device, the host and a drive hold, and what they can."""
    kinds = {
        "weights": "weight_bytes", "KV cache": "kv_bytes", "state": "state_bytes", "workspace": "workspace_bytes",
        "total, GiB": "bytes",
    }  # fmt: skip
    shown = {name: key for name, key in kinds.items() if any(getattr(part, key) for part in memory.placement)}
    drops = {"total, GiB": 0, "weights": 1}
    alike: dict[tuple[str, ...], list[str]] = {}
    for part in memory.placement:
        cells = (
            str(part.layers) if part.layers else "",
            *(gib_text(getattr(part, key)) for key in shown.values()),
            "?" if part.usable_bytes is None else gib_text(part.usable_bytes),
        )
        kind = part.device.partition(",")[0].partition(" #")[0]
        alike.setdefault((kind, *cells), []).append(part.device)
    rows = [
        [names[0] if len(names) == 1 else f"{len(names)} × {kind}", *cells] for (kind, *cells), names in alike.items()
    ]
    sizes = [Column(name, drop=drops.get(name, 2)) for name in shown]
    return Table([Column("placement", "left"), Column("layers", drop=1), *sizes, Column("usable")], rows)


def explain_estimate(estimate: Estimate) -> str:
    """Where each number of an estimate comes from, in words."""
    lines = [estimate_table([estimate]).to_text(), ""]
    if is_placed(estimate):
        lines += [place_table(estimate).to_text(), ""]
    for phase in (estimate.prefill, estimate.decode):
        lines += [operator_table(phase).to_text(), ""]
    lines += [*(f"- {text}" for text in estimate.assumptions)]
    return "\n".join(lines)


def gib_text(count: float) -> str:
    """Bytes as GiB without the unit, for a column that names it."""
    return significant(count / GIB, 3)
