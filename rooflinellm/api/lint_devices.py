"""Rules of devices: figures that must follow from each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from rooflinellm import units
from rooflinellm.api.lint_rates import LINK_GB_S, PCIE_GB_S, RATES, Rates
from rooflinellm.api.lint_rules import ENTRY_RULES, Context, Finding, Rule, in_folder, unused_sources
from rooflinellm.specs.hardware import HardwareSpec, Peak, Precision

BANDWIDTH_TOLERANCE = 0.02
"""How far bandwidth may be from bus x data rate without a note. [-]"""
PEAK_TOLERANCE = 0.05
"""How far a peak may be from units x clock x operations without a note. [-]"""
LINK_TOLERANCE = 0.03
"""How far a link may be from lanes x rate without a note. [-]"""
LEAST_USABLE = 0.4
"""The smallest share of the memory that a system leaves to programs. [-]"""
FIRST_YEAR = 2005

_WIDER: tuple[tuple[Precision, Precision], ...] = (("fp64", "fp32"), ("fp32", "fp16"), ("fp16", "fp8"), ("fp8", "fp4"))
"""Floating point only: integers have paths of their own, and makers cut them."""


def _folder(device: HardwareSpec, context: Context) -> Iterator[Finding]:
    return in_folder(device.vendor, context)


def _bandwidth(device: HardwareSpec, _context: Context) -> Iterator[Finding]:
    memory = device.memory
    stated = memory.bandwidth_gb_s
    if memory.bus_bits and memory.data_rate_gt_s and not stated.note:
        product = memory.bus_bits / units.BITS_PER_BYTE * memory.data_rate_gt_s
        if abs(product / stated.value - 1) > BANDWIDTH_TOLERANCE:
            message = (
                f"{stated.value:g} GB/s, but {memory.bus_bits} bit x {memory.data_rate_gt_s:g} GT/s is {product:.1f}; "
                "mend one of them, or say in a note why they differ"
            )
            yield Finding("memory.bandwidth_gb_s", message)


def _usable(device: HardwareSpec, _context: Context) -> Iterator[Finding]:
    memory = device.memory
    if memory.usable_fraction is not None:
        share, field = memory.usable_fraction.value, "memory.usable_fraction"
    elif memory.usable_gib is not None and memory.capacity_gib is not None:
        share, field = memory.usable_gib.value / memory.capacity_gib.value, "memory.usable_gib"
    else:
        return
    if not LEAST_USABLE <= share <= 1:
        message = f"{share:.0%} of the printed memory is usable; expected {LEAST_USABLE:.0%} to 100%: is the unit GiB?"
        yield Finding(field, message)


def _peaks(device: HardwareSpec, _context: Context) -> Iterator[Finding]:
    """Of the designs of an architecture, the one that fits best; figures without clock or units cannot be checked."""
    clock, count = device.clock, device.compute_units
    designs = RATES.get(device.architecture, ())
    if clock is None or count is None or not designs:
        return
    clocks = (clock.advertised_mhz, clock.max_mhz or clock.advertised_mhz)
    yield from min((list(_peaks_of(device, count, clocks, design)) for design in designs), key=len)


def _peaks_of(device: HardwareSpec, count: int, clocks: tuple[float, float], design: Rates) -> Iterator[Finding]:
    for index, peak in enumerate(device.peak_list):
        operations = design.operations.get(peak.key)
        if operations is None or peak.note:
            continue
        derived = [count * mhz * units.MEGA * operations / units.TERA for mhz in clocks]
        if all(abs(peak.tflops / rate - 1) > PEAK_TOLERANCE for rate in derived):
            named = f"{device.architecture} {design.name}".strip()
            message = (
                f"{peak.key} is {peak.tflops:g}, but {count} units x {clocks[0]:g} MHz x {operations:g} ({named}) is "
                f"{derived[0]:.4g} TFLOP/s; mend one of them, or say in a note on the peak why they differ"
            )
            yield Finding(f"peaks.{index}.tflops", message)


def _peak_order(device: HardwareSpec, _context: Context) -> Iterator[Finding]:
    def of(peak: Peak) -> tuple[str, str, str, bool]:
        return peak.precision, peak.accumulate, peak.unit, peak.block_scaled

    peaks = {of(peak): (index, peak) for index, peak in enumerate(device.peak_list)}
    for (precision, accumulate, unit, scaled), (_, wider) in peaks.items():
        for wide, narrow in _WIDER:
            found = peaks.get((narrow, accumulate, unit, scaled)) if precision == wide else None
            if found is not None and found[1].tflops < 0.99 * wider.tflops and not found[1].note:
                message = (
                    f"{narrow} ({found[1].tflops:g}) is slower than {wide} ({wider.tflops:g} TFLOP/s) on the same "
                    f"{unit} units; mend one of them, or say in a note on the peak why"
                )
                yield Finding(f"peaks.{found[0]}.tflops", message)


def _links(device: HardwareSpec, _context: Context) -> Iterator[Finding]:
    for index, link in enumerate(device.links):
        rate, note = link.gb_s_per_direction.value, link.gb_s_per_direction.note
        field = f"links.{index}.gb_s_per_direction"
        if link.kind == "pcie":
            lane = PCIE_GB_S.get(link.generation or 0)
            if lane is None or link.lanes is None:
                yield Finding(f"links.{index}", "a PCIe link without generation and lanes; add both")
            elif abs(rate / (lane * link.lanes) - 1) > LINK_TOLERANCE and not note:
                message = (
                    f"{rate:g} GB/s, but PCIe {link.generation:g} x{link.lanes} carries {lane * link.lanes:.4g} one "
                    "way; give one direction, or say in a note why they differ"
                )
                yield Finding(field, message)
            if link.domain > 1:
                yield Finding(f"links.{index}.domain", "PCIe joins a device and its host; drop the domain")
            continue
        most = LINK_GB_S.get((link.kind, link.generation or 0))
        if most is not None and rate > most * (1 + LINK_TOLERANCE):
            message = (
                f"{rate:g} GB/s is more than {link.kind} {link.generation:g} carries one way ({most:g}); "
                "halve what is printed for both directions"
            )
            yield Finding(field, message)
        if rate > device.memory.bandwidth_gb_s.value and not note:
            message = f"{rate:g} GB/s is faster than the memory behind it; say in a note why, or mend it"
            yield Finding(field, message)


def _date(device: HardwareSpec, _context: Context) -> Iterator[Finding]:
    text = device.release_date
    if text is None:
        return
    match = re.fullmatch(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?", text)
    try:
        released = date(int(match[1]), int(match[2] or 1), int(match[3] or 1)) if match else None
    except ValueError:
        released = None
    if released is None:
        yield Finding("release_date", f"'{text[:20]}' is no date; write 2024, 2024-05 or 2024-05-31")
    elif not date(FIRST_YEAR, 1, 1) <= released <= date.today():
        message = f"{text} is before {FIRST_YEAR} or to come; leave it out until the device is released"
        yield Finding("release_date", message)


DEVICE_RULES = (
    *ENTRY_RULES,
    Rule("sources-used", "warning", "every source that is listed is cited", unused_sources),
    Rule("folder", "warning", "the file lies in the folder of its vendor", _folder),
    Rule("bandwidth", "error", "bandwidth is bus x data rate within 2 %, or a note says why not", _bandwidth),
    Rule("usable-memory", "error", "40 to 100 % of the printed memory is usable", _usable),
    Rule("peaks", "error", "a peak is units x clock x operations within 5 %, or its note says why not", _peaks),
    Rule(
        "peak-order", "error", "narrower floating point is no slower on the same units, or a note says why", _peak_order
    ),
    Rule("links", "error", "links state one direction, PCIe lanes x rate within 3 %", _links),
    Rule("dates", "warning", "the release date is one, and past", _date),
)
