"""Where a model's layers lie: which device holds which weights and which part of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rooflinellm._numeric import ceil_div
from rooflinellm.engine.layout import Layout
from rooflinellm.engine.plan import Cache, DeviceShare, Kernel


def split_by_layers(
    layout: Layout, kernels: Sequence[Kernel], devices: int, resident_weight_bytes: int
) -> tuple[DeviceShare, ...]:
    """Split a model evenly by layers over equal devices, in order.

    The head counts as one more layer behind the last, and a layer on the border goes to the earlier device, as
    llama.cpp does both; the embedding is counted on the first device.

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
    bounds = [ceil_div(device * len(sizes), devices) for device in range(devices + 1)]
    spans = [range(start, stop) for start, stop in pairwise(bounds)]
    scale = resident_weight_bytes / layout.resident_bytes
    weights = [round(sum(sizes[span.start : span.stop]) * scale) for span in spans]
    weights[0] += resident_weight_bytes - sum(weights)  # the embedding, and what rounding left
    shares = []
    for span, weight in zip(spans, weights, strict=True):
        held: dict[tuple[str, int | None], int] = {}
        state = 0
        for row, kernel in zip(layout.rows, kernels, strict=True):
            here = sum(layer in span for layer in row.layers)
            state += here * (kernel.state_bytes // kernel.count)
            if kernel.kv_owned_bytes_per_token:
                key = kernel.cache_kind, cache_span(kernel)
                held[key] = held.get(key, 0) + here * (kernel.kv_owned_bytes_per_token // kernel.count)
        caches = tuple(Cache(kind, most, size) for (kind, most), size in held.items())
        shares.append(DeviceShare(len(span), weight, caches, state))
    return tuple(shares)


def cache_span(kernel: Kernel) -> int | None:
    """Tokens that a sequence needs to hold for an operator: a window or a chunk; None for all. [token]

    Sparse attention reads a choice of the cache and must hold all of it.
    """
    return kernel.window or kernel.chunk if kernel.cache_kind == "sliding" else None
