"""Where a model's layers lie: which device holds which weights and which part of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rooflinellm.engine.layout import Layout
from rooflinellm.engine.plan import DeviceShare, Kernel


def split_by_layers(
    layout: Layout, kernels: Sequence[Kernel], devices: int, resident_weight_bytes: int
) -> tuple[DeviceShare, ...]:
    """Split a model evenly by layers over equal devices, in order.

    The head counts as one more layer behind the last, as llama.cpp counts it; the embedding lies on the first device.

    Parameters
    ----------
    layout : Layout
        Bytes by layer.
    kernels : sequence of Kernel
        The plan's kernels, one for each row of the layout.
    devices : int
        [-]
    resident_weight_bytes : int
        Weights as they are on disk; the layout's bytes are scaled to it. [byte]

    Returns
    -------
    tuple of DeviceShare
        One for each device; weights and cache add up to the model's.
    """
    sizes = [*layout.layer_bytes, layout.head_bytes]
    bounds = [round(device * len(sizes) / devices) for device in range(devices + 1)]
    spans = [range(start, stop) for start, stop in pairwise(bounds)]
    scale = resident_weight_bytes / layout.resident_bytes
    weights = [round(sum(sizes[span.start : span.stop]) * scale) for span in spans]
    weights[0] += resident_weight_bytes - sum(weights)  # the embedding, and what rounding left
    shares = []
    for span, weight in zip(spans, weights, strict=True):
        kv: dict[int | None, int] = {}
        for row, kernel in zip(layout.rows, kernels, strict=True):
            if kernel.kind == "attention":
                here = sum(layer in span for layer in row.layers)
                held = here * (kernel.kv_bytes_per_token // kernel.count)
                kv[kernel.window] = kv.get(kernel.window, 0) + held
        shares.append(DeviceShare(len(span), weight, tuple(kv.items())))
    return tuple(shares)
