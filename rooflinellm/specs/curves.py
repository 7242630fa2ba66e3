"""Curves of single kernels: what products, attention, experts and collectives reach, by generation and precision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rooflinellm.specs.common import Spec
from rooflinellm.specs.hardware import LinkKind

Share = Annotated[float, Field(gt=0, le=1)]
Microseconds = Annotated[float, Field(ge=0)]

KernelOf = Literal["gemm", "attention_decode", "latent_decode", "attention_prefill", "experts"]
"""What a kernel does: a product with weights, attention of one new token, the same over latents (absorbed), causal
attention of a prompt, and the products of a mixture's experts."""

CollectiveOf = Literal["sum", "gather", "scatter", "exchange"]
"""What devices tell one another: all-reduce, all-gather, reduce-scatter and all-to-all."""

ProtocolName = Literal["one_shot", "two_shot", "ring", "in_switch", "low_latency", "bulk"]
"""How: of a sum, every device reads all others (one shot), or reduces a part that all then gather (two shots, or around
a ring), or switches add up; of the rest, flags with the data (low latency), or whole buffers (bulk)."""


class Protocol(Spec):
    """What one way of a collective takes: a latency, what each further device adds, and a share of the link.

    `latency_us` of two devices is with the `hop_us` of one; `share` is of the printed bandwidth in one direction.
    """

    latency_us: Microseconds
    hop_us: Microseconds
    share: Share


class CollectiveCurve(Spec):
    """One collective over one kind of link; of several curves that match, the first holds.

    Attributes
    ----------
    of : str
        What is done.
    over : str
        The kind of link.
    generation : float, optional
        Of the link; one that has no curve takes the nearest that has. None is any. [-]
    engines, devices : tuple of str
        Patterns of the ids that it holds for.
    protocols : dict
        The ways; the quickest for a message is taken.
    evidence : dict
        Rows that the fit saw, by device.
    """

    of: CollectiveOf
    over: LinkKind
    generation: Annotated[float, Field(gt=0, le=10)] | None = None
    engines: tuple[str, ...] = ("*",)
    devices: tuple[str, ...] = ("*",)
    protocols: Annotated[dict[ProtocolName, Protocol], Field(min_length=1)]
    evidence: dict[str, Annotated[int, Field(ge=1)]] = {}
    source: str


class KernelCurve(Spec):
    """One kind of kernel in some precisions; of several curves that match, the first holds.

    A curve without architectures holds for devices whose generation was not measured.

    Attributes
    ----------
    of : str
        What the kernel does.
    precisions : tuple of str
        Of its operands, as `rooflinellm.efficiency.kernels.PRECISIONS` names them.
    engines, architectures, memories : tuple of str
        Patterns of the engine's id (or of the library's name), of the architecture and of the memory's type.
    floor_us : float
        What a launch takes at least. [µs]
    bandwidth_share : float
        Of the printed bandwidth. [-]
    peak_share : float
        Of the dense peak of the precision, with many tokens. [-]
    half_tokens : float
        Tokens at which half of that is reached; 0 where it does not depend on them. [token]
    evidence : dict
        Rows that the fit saw, by device.
    """

    of: KernelOf
    precisions: Annotated[tuple[str, ...], Field(min_length=1)]
    engines: tuple[str, ...] = ("*",)
    architectures: tuple[str, ...] = ("*",)
    memories: tuple[str, ...] = ("*",)
    floor_us: Microseconds
    bandwidth_share: Share
    peak_share: Share
    half_tokens: Annotated[float, Field(ge=0)]
    evidence: dict[str, Annotated[int, Field(ge=1)]] = {}
    source: str
