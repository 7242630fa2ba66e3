"""Several devices at once on every layer: what each holds, what is held twice, and what they tell one another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rooflinellm._numeric import minimum
from rooflinellm.engine.evaluate import Run
from rooflinellm.engine.layout import OperatorRow
from rooflinellm.engine.plan import Collective, Link
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.model import Attention, Indexer, LatentAttention, MixtureOfExperts

ON_EVERY_DEVICE = ("router", "QKV down projection", "indexer projection")
"""Products that every device of a team computes for itself."""
PER_LAYER = 2
"""Sums over all devices in a layer: behind attention and behind the feed-forward part. [-]"""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How devices share the work.

    Attributes
    ----------
    tensor : int
        Devices that share every product, t. [-]
    pipeline : int
        Groups of layers, one after the other. [-]
    expert : int
        Devices that share the experts of a layer. [-]
    data : int
        Copies that serve requests of their own; with `expert`, of all but the experts. [-]
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    data: int = 1

    @property
    def devices(self) -> int:
        """All devices. [-]"""
        return self.tensor * self.pipeline * self.data

    @property
    def team(self) -> int:
        """Devices that work on the same layer at the same time. [-]"""
        return self.tensor * (self.data if self.expert > 1 else 1)

    @property
    def replicas(self) -> int:
        """Copies of the whole model, each with a share of the requests. [-]"""
        return 1 if self.expert > 1 else self.data

    @property
    def keywords(self) -> dict[str, int]:
        """The degrees as arguments of `rooflinellm.estimate`."""
        return {f"{name}_parallel": degree for name, degree in asdict(self).items()}

    def __str__(self) -> str:
        """As teams write it: ``TP4 DP2``; degrees of 1 are left out."""
        named = (("TP", self.tensor), ("PP", self.pipeline), ("EP", self.expert), ("DP", self.data))
        return " ".join(f"{name}{degree}" for name, degree in named if degree > 1) or "TP1"

    def checked(self, model: ModelSpec, devices: int) -> Parallel:
        """The same, if it can be done with a model on so many devices.

        Raises
        ------
        InvalidRequest
            Degrees that do not make up the devices, or that do not divide heads, experts or layers.
        """
        if self.devices != devices:
            raise InvalidRequest(
                f"tensor {self.tensor} x pipeline {self.pipeline} x data {self.data} are {self.devices} devices; "
                f"the system has {devices}",
                where="tensor_parallel",
                next_step=f"Name {self.devices} devices, or give degrees whose product is {devices}.",
            )
        for mixer in dict.fromkeys(mixer for block in model.layers for mixer in block.mixers):
            if isinstance(mixer, Attention | LatentAttention):
                self._check_heads(mixer.heads, getattr(mixer, "kv_heads", None))
        experts = {b.ffn.experts for b in model.layers if isinstance(b.ffn, MixtureOfExperts)}
        if self.expert > 1 and not experts:
            raise InvalidRequest(f"{model.id} has no experts", where="expert_parallel")
        for count in experts:
            if count % self.expert or self.expert > self.team:
                raise InvalidRequest(
                    f"{self.expert} devices share {count} experts; it must divide them, and at most the {self.team} "
                    "devices of tensor x data take part",
                    where="expert_parallel",
                )
        if self.pipeline > len(model.layers):
            raise InvalidRequest(f"{self.pipeline} groups of {len(model.layers)} layers", where="pipeline_parallel")
        return self

    def _check_heads(self, heads: int, kv_heads: int | None) -> None:
        t = self.tensor
        if heads % t or (kv_heads is not None and kv_heads % t and t % kv_heads):
            able = [
                n
                for n in range(1, heads + 1)
                if not heads % n and (not kv_heads or not kv_heads % n or not n % kv_heads)
            ]
            of = f"{heads} heads" + ("" if kv_heads is None else f" and {kv_heads} KV heads")
            raise InvalidRequest(
                f"{t} devices cannot share {of} evenly",
                where="tensor_parallel",
                next_step=f"Allowed: {', '.join(map(str, able[:12]))}.",
            )

    def weight_copies(self, row: OperatorRow) -> float:
        """How often a team holds the weights of an operator. [-]"""
        operator = row.operator
        if operator.kind == "experts":
            return 1
        attention_copies = self.team // self.tensor  # with experts of all devices, the rest is there once a copy
        if operator.kind == "vector" or operator.name in ON_EVERY_DEVICE:
            return self.team
        if operator.name == "QKV projection" and operator.kv_share is not None:
            kv_heads, share = operator.kv_share
            return attention_copies * (1 - share + share * max(1.0, self.tensor / kv_heads))
        return attention_copies

    def cache_copies(self, row: OperatorRow) -> float:
        """How often a team holds what an operator caches. [-]"""
        mixing = row.operator.mixing
        if mixing is None:
            return 1
        if isinstance(mixing.cache, LatentAttention | Indexer) or not isinstance(mixing.cache, Attention):
            return self.tensor
        return max(1.0, self.tensor / mixing.cache.kv_heads)


ALONE = Parallel()


def collectives(model: ModelSpec, parallel: Parallel, activation_bytes: int, link: Link) -> tuple[Collective, ...]:
    """What the devices of a team tell one another in a pass.

    A sum over t devices behind attention and behind the feed-forward part of each layer and behind the embedding, and a
    gathering of logits. With experts on different devices, tokens go to them and back instead of a sum.
    """
    if parallel.team == 1:
        return ()
    layers, wide = len(model.layers), model.hidden * activation_bytes
    mixtures = sum(isinstance(block.ffn, MixtureOfExperts) for block in model.layers) if parallel.expert > 1 else 0
    found = []
    if parallel.tensor > 1:
        sums = PER_LAYER * layers + 1 - mixtures
        found.append(Collective("sum", sums, wide, parallel.tensor, link))
    if mixtures:
        active = next(b.ffn.active for b in model.layers if isinstance(b.ffn, MixtureOfExperts))
        found.append(Collective("exchange", 2 * mixtures, wide * active, parallel.expert, link))
    return tuple(found)


def collective_s(collective: Collective, tokens: Any, bandwidth: float, latency_s: float) -> Any:
    """Time of one collective over t devices with a message of M bytes on each.

    A sum goes out at once, or is reduced in parts that are then gathered; whichever is shorter:

        min(a + (t - 1) M / b, 2 a + 2 (t - 1) / t M / b)

    In an exchange each device sends the part of its share of the tokens that belongs elsewhere:

        a + M (t - 1) / t^2 / b

    Parameters
    ----------
    collective : Collective
        What is told.
    tokens : array_like
        Tokens of the pass. [token]
    bandwidth : float
        Of the link of one device, in one direction, b. [byte/s]
    latency_s : float
        Of a small message, a. [s]

    Returns
    -------
    float or ndarray
        [s]
    """
    t, message = collective.ranks, tokens * collective.bytes_per_token / bandwidth
    if collective.kind == "exchange":
        return latency_s + message * (t - 1) / t**2
    return minimum(latency_s + (t - 1) * message, 2 * latency_s + 2 * (t - 1) / t * message)


def collectives_s(found: tuple[Collective, ...], runs: tuple[Run, ...]) -> Any:
    """Expected time of all collectives over some passes. [s]"""
    total: Any = 0.0
    for collective in found:
        link = collective.link
        for run in runs:
            each = collective_s(collective, run.tokens, link.sustained_bandwidth, link.latency_s)
            total = total + run.passes * collective.count * each
    return total


def least_collectives_s(found: tuple[Collective, ...], runs: tuple[Run, ...]) -> Any:
    """Least time of all collectives: every device receives each message once, however it is added up. [s]"""
    total: Any = 0.0
    for collective in found:
        share = 1 if collective.kind == "sum" else (collective.ranks - 1) / collective.ranks**2
        for run in runs:
            moved = run.tokens * collective.bytes_per_token * share / collective.link.bandwidth
            total = total + run.passes * collective.count * moved
    return total
