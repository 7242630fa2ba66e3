"""Efficiency profiles: how far real runs stay from the roofline, as factors that can be read and argued with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rooflinellm.specs.common import Entry, Positive, Spec
from rooflinellm.specs.curves import CollectiveCurve, KernelCurve

Level = Literal[
    "kind", "regime", "path", "encoding", "memory_type", "cores", "architecture", "device", "era", "variant"
]
"""What a factor may depend on: operator kind, few or many tokens of a sequence in a pass, compute path, encoding of
the weights, properties of the device (cores of CPUs to the nearest power of two), the age of the engine's build, and
the engine itself where it is a variant of another."""


class Factors(Spec):
    """A number as a product: the base, times one factor a level for the name that is at hand.

    Names are patterns (``iq*``), of which the first that matches counts; a name that none matches has the factor 1,
    so that an unmeasured device inherits from its architecture, and that from the base.
    """

    base: Positive
    by: dict[Level, dict[str, Positive]] = {}


Width = Annotated[float, Field(ge=1)]


class Widths(Spec):
    """Factors that an expected time is divided and multiplied by for the ends of its interval.

    The `unseen` ones hold for devices that the fit has not seen, `decode_batched` for several sequences side by side;
    None takes the wider of the others.
    """

    decode: Width | None = None
    prefill: Width | None = None
    decode_unseen: Width | None = None
    prefill_unseen: Width | None = None
    decode_batched: Width | None = None


class Interval(Widths):
    """The widths of a group of kernels, and of kinds of devices and models that are more or less certain than others.

    `by` holds the latter by level and pattern, as in `Factors`, of models by the kinds of operators that they have.
    What a kind leaves out, the group says; where a device's and a model's differ, the wider holds.
    """

    decode: Width
    prefill: Width
    by: dict[Level, dict[str, Widths]] = {}
    source: str


class KernelGroup(Spec):
    """What the kernels of some engines and backends reach on some devices; the first group that matches decides.

    Attributes
    ----------
    engines, backends, devices : tuple of str
        Patterns of their ids.
    memory : Factors
        Share of the printed bandwidth that operators sustain; a product above 1 counts as 1. [-]
    compute : Factors
        Share of a path's peak that products of many tokens reach; a product above 1 counts as 1. [-]
    few_tokens : Factors
        Rate of matrix-vector kernels over the device's 32-bit vector peak; they serve passes of few tokens. [-]
    half_tokens : Factors
        Tokens of a pass (of an expert, in a mixture) at which products reach half of that share. [token]
    floor_us : Factors
        Time below which a launch of an operator does not fall. [µs]
    interval : Interval
        Width of the interval.
    evidence : dict
        Series of current builds that the fit saw, by device.
    """

    engines: tuple[str, ...] = ("*",)
    backends: tuple[str, ...] = ("*",)
    devices: tuple[str, ...] = ("*",)
    memory: Factors
    compute: Factors
    few_tokens: Factors
    half_tokens: Factors
    floor_us: Factors
    interval: Interval
    evidence: dict[str, Annotated[int, Field(ge=1)]] = {}
    source: str


class Way(Spec):
    """A way between places: what part of its printed bandwidth copies reach, and what each takes at least.

    `gb_s` stands for the printed bandwidth where the device's file has none.
    """

    share: Annotated[float, Field(gt=0, le=1)]
    latency_us: Annotated[float, Field(ge=0)]
    gb_s: Positive | None = None
    source: str


WayName = Literal[
    "devices",
    "host",
    "weights",
    "network",
    "disk",
    "paging",
    "collectives over nvlink",
    "collectives over xgmi",
    "collectives over pcie",
    "collectives over network",
]
"""What copies go between: devices, a device and its host; weights that are copied to a device; layers in several
computers; drives; what a driver pages; and what devices that share a layer tell one another, by their link."""


class ProfileSpec(Entry):
    """An efficiency profile.

    Its basis is ``nominal`` (round numbers), ``calibrated`` (fitted to results of many devices) or ``measured`` (fitted
    to results of the very devices that it covers). A profile of `collectives` and `curves` of single kernels may do
    without groups; what it says of collectives holds beside any other profile.
    """

    basis: Literal["nominal", "calibrated", "measured"]
    groups: tuple[KernelGroup, ...] = ()
    decode_power_fraction: Annotated[float, Field(gt=0, le=1)]
    prefill_power_fraction: Annotated[float, Field(gt=0, le=1)]
    ways: dict[WayName, Way] = {}
    collectives: tuple[CollectiveCurve, ...] = ()
    curves: tuple[KernelCurve, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> ProfileSpec:
        if not (self.groups or self.collectives or self.curves):
            raise ValueError("a profile has groups, or curves of kernels or collectives")
        return self
