"""What a roofline chart says: its title, its caption and small print, and its description in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rooflinellm import __version__
from rooflinellm.plotting.workload import Device, Point, Workload
from rooflinellm.summary import placement_text, weights_text
from rooflinellm.units import TERA, significant

NO_BREAK = "\N{NO-BREAK SPACE}"


def title(devices: Sequence[Device]) -> str:
    """``Llama 3.1 8B Q4_K_M on RTX 4090``."""
    where = ", ".join(device.name for device in devices)
    workloads = devices[0].workloads
    if not workloads:
        return f"Roofline of {where}"
    models = ", ".join(item.estimate.model.name for item in workloads)
    formats = "/".join(dict.fromkeys(weights_text(item.estimate.weights) for item in workloads))
    return f"{models} {formats} on {where}"


def caption(devices: Sequence[Device]) -> tuple[str, ...]:
    """Which bytes are in the intensity, and which peak applies; at length and in brief."""
    device, workloads = devices[0], devices[0].workloads
    if not workloads:
        return ("Dense peaks at the advertised clock; printed bandwidth.",)
    intensity, brief = "Intensity: FLOPs per byte of weights and KV cache read.", "Bytes: weights, KV cache."
    if len(devices) > 1 or len(workloads) > 1:
        some_do_not = any(not roof.applies for each in devices for roof in each.roofs)
        applies = " Thick roofs: peaks that apply." if some_do_not else ""
        return intensity + applies, brief + applies
    linear = _peak_names(device, workloads[0].linear_keys)
    attention = _peak_names(device, workloads[0].attention_keys)
    if linear == attention or not attention:
        return f"{intensity} Peak that applies: {linear}.", f"{brief} Peak: {linear}."
    return (
        f"{intensity} Peak that applies: {linear} for weights, {attention} for attention.",
        f"{brief} Peaks: {linear}; {attention} in attention.",
    )


def _peak_names(device: Device, keys: Sequence[str]) -> str:
    names = {key: roof.short_name for roof in device.roofs for key in roof.keys}
    return "/".join(dict.fromkeys(names.get(key, key) for key in keys))


def small_print(devices: Sequence[Device]) -> tuple[str, ...]:
    """Assumptions and version; at length and in brief."""
    version = f"rooflinellm {__version__}".replace(" ", NO_BREAK)
    workloads = [item for device in devices for item in device.workloads]
    if not workloads:
        return (version,)
    first = workloads[0].estimate
    parts = [", ".join(dict.fromkeys(item.estimate.engine for item in workloads)), f"KV {first.kv}"]
    if on_host := placement_text(first.workload, len(first.model.layers)):
        parts.append(f"{on_host} on the host")
    if first.workload["context_tokens"]:
        parts.append(f"{first.workload['context_tokens']:,} tokens of context before the prompt")
    parts.append(f"filled: expected ({first.decode.time_s.basis}), tick: ideal")
    if any(item.measured for item in workloads):
        parts.append("hollow: measured")
    exceptions = list(dict.fromkeys(text for device in devices for text in _exceptions(device, len(devices) > 1)))
    return (
        "; ".join([*parts, *exceptions, "roofs at the advertised clock", version]),
        "; ".join(["filled: expected, tick: ideal", *exceptions, version]),
    )


def _exceptions(device: Device, several: bool) -> Iterator[str]:
    where = f" on {device.name}" if several else ""
    for item in device.workloads:
        what = f"{item.estimate.model.name} " if len(device.workloads) > 1 else ""
        if item.estimate.memory.fits is False:
            yield f"{what}does not fit{where}: as if it did"
        elif item.left_out:
            yield f"{what}batch {item.left_out[0]:,} does not fit{where}"
        if item.one_at_a_time:
            yield f"one request uses one device at a time{where}"


def description(devices: Sequence[Device], limits: tuple[float, float]) -> str:
    """What the chart shows, with its numbers."""
    said = [
        "Roofline chart, both axes logarithmic: compute rate in TFLOP/s over arithmetic intensity from "
        f"{significant(limits[0], 2)} to {significant(limits[1], 2)} FLOP/byte."
    ]
    for device in devices:
        lines = [f"{slope.name} {slope.amount}" for slope in device.slopes]
        lines += [
            f"{roof.name} {roof.amount} with its ridge point at {significant(roof.ridge, 3)} FLOP/byte"
            for roof in device.roofs
        ]
        said.append(f"Roofs of {device.name}: {'; '.join(lines)}.")
        for item in device.workloads:
            said += _workload_said(device, item)
    return " ".join(said)


def _workload_said(device: Device, item: Workload) -> Iterator[str]:
    answer = item.estimate
    points = [_point_said(point, "expected", answer.workload["prompt_tokens"]) for point in item.expected]
    points += [_point_said(point, "measured", answer.workload["prompt_tokens"]) for point in item.measured]
    yield (
        f"{answer.model.name} {weights_text(answer.weights)} on {device.name} ({answer.engine}, KV {answer.kv}): "
        f"{'; '.join(points)}."
    )
    if answer.memory.fits is False:
        yield "It does not fit the memory; the points are as if it did."
    elif item.left_out:
        yield f"Left out, since they do not fit the memory: batch {', '.join(map(str, item.left_out))}."


def _point_said(point: Point, how: str, prompt_tokens: int) -> str:
    what = f"decode at batch {point.batch:,}" if point.phase == "decode" else f"prefill of {prompt_tokens:,} tokens"
    rate, ideal = significant(point.flop_per_s / TERA, 3), significant(point.ideal_flop_per_s / TERA, 3)
    return (
        f"{what} at {significant(point.intensity, 3)} FLOP/byte, {rate} TFLOP/s {how} of {ideal} ideal, "
        f"{significant(point.tokens_per_s, 3)} tokens/s each, bound by {point.bound}"
    )
