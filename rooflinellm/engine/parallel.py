"""Several devices at once on every layer: what each holds, what is held twice, and what they tell one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rooflinellm._numeric import minimum
from rooflinellm.efficiency.collectives import quickest_s
from rooflinellm.engine.layout import Layout, OperatorRow
from rooflinellm.engine.passes import Run
from rooflinellm.engine.plan import Collective, Link
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.graph import Operator
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.formats import Encoding
from rooflinellm.specs.model import (
    Attention,
    Block,
    CompressedAttention,
    Indexer,
    LatentAttention,
    MixtureOfExperts,
    NoFFN,
    NoMixer,
)

ON_EVERY_DEVICE = ("ffn_gate_inp", "attn_q_a", "attn_kv", "attn_kv_a_mqa")
"""Matrices that every device multiplies for itself, as it does those of an indexer: routers, and what makes latents."""
DIVIDED_BY_INPUT = ("attn_output", "attn_output_b", "ssm_out", "ffn_down", "ffn_down_exps", "ffn_down_shexp")
"""Matrices of which each device has some of the input features, along which blocks are packed."""
UNALIGNED = ("mxfp4", "nf4", "nf4_dq")
"""Encodings whose blocks a border between devices may cut: engines pad the rows, or blocks run over the matrix."""


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
            if isinstance(mixer, Attention | LatentAttention | CompressedAttention):
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
                    next_step=f"Allowed: {', '.join(str(n) for n in range(1, self.team + 1) if not count % n)}.",
                )
        if self.pipeline > len(model.layers):
            raise InvalidRequest(
                f"{self.pipeline} groups of {len(model.layers)} layers",
                where="pipeline_parallel",
                next_step=f"Give at most {len(model.layers)}.",
            )
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

    def check_blocks(self, layout: Layout, encodings: Mapping[str, Encoding]) -> None:
        """Refuse borders between devices that cut blocks which share a scale.

        Raises
        ------
        InvalidRequest
            Rows of a matrix whose part on one device is no multiple of the encoding's block.
        """
        for row in layout.rows:
            if row.encoding is None or row.encoding in UNALIGNED or row.operator.kind not in ("linear", "experts"):
                continue
            encoding = encodings[row.encoding]
            tile = encoding.tile or (1, 1)
            block = encoding.block_elements if encoding.block_elements > 1 else tile[1]
            sharing = self.tensor if row.operator.kind == "linear" else self.team // self.expert
            for tensor in row.operator.tensors:
                if sharing > 1 and tensor.name in DIVIDED_BY_INPUT and tensor.columns % (sharing * block):
                    able = [n for n in range(2, sharing) if not sharing % n and not tensor.columns % (n * block)]
                    fewer = f"Give tensor_parallel={able[-1]}" if able else "Share whole layers (pipeline_parallel)"
                    experts = f", expert_parallel={self.team}" if row.operator.kind == "experts" else ""
                    raise InvalidRequest(
                        f"{tensor.columns:,} features of {tensor.name} over {sharing} devices cut blocks of {block} in "
                        f"{row.encoding}",
                        where="tensor_parallel",
                        next_step=f"{fewer}{experts}, or take weights without such blocks.",
                    )

    def _held(self, operator: Operator) -> float:
        """How often the devices of one copy hold and multiply an operator's matrices between them. [-]"""
        if operator.kind == "experts" or self.tensor == 1:
            return 1
        if operator.kv_share is not None:
            kv_heads, share = operator.kv_share
            return 1 + share * (max(1.0, self.tensor / kv_heads) - 1)
        matrices = [tensor for tensor in operator.tensors if tensor.use == "matrix"]
        total = sum(tensor.params for tensor in matrices)
        alike = sum(t.params for t in matrices if t.name in ON_EVERY_DEVICE or t.name.startswith("indexer"))
        return 1 + (self.tensor - 1) * alike / total if alike else 1

    def weight_copies(self, row: OperatorRow) -> float:
        """How often a team holds the weights of an operator; with experts of all devices, the rest once a copy. [-]"""
        operator = row.operator
        if operator.kind == "vector":
            return self.team
        return self._held(operator) * (1 if operator.kind == "experts" else self.team // self.tensor)

    def work_copies(self, row: OperatorRow) -> float:
        """How many devices of a copy compute the same products. [-]"""
        mixing = row.operator.mixing
        if mixing is not None and isinstance(mixing.cache, Indexer):
            return self.tensor
        return self._held(row.operator)

    def activation_copies(self, row: OperatorRow) -> int:
        """How many devices of a copy move the same activations: norms and lookups are not divided. [-]"""
        return self.tensor if row.operator.kind in ("vector", "embedding") else 1

    def cache_copies(self, row: OperatorRow) -> float:
        """How often a team holds what an operator caches. [-]"""
        mixing = row.operator.mixing
        if mixing is None:
            return 1
        if isinstance(mixing.cache, Attention):
            return max(1.0, self.tensor / mixing.cache.kv_heads)
        return self.tensor


ALONE = Parallel()


def collectives(model: ModelSpec, parallel: Parallel, activation_bytes: int, link: Link) -> tuple[Collective, ...]:
    """What the devices of a team tell one another in a pass.

    A sum over t devices behind attention and behind the feed-forward part of each layer (one behind both where they
    work side by side) and behind the embedding, and a gathering of logits. Copies that share experts send tokens to
    them and back instead of a sum; a token goes once to each of the e devices that its k experts lie on, on average

        e (1 - (1 - 1/e)^k)
    """
    wide, copies = model.hidden * activation_bytes, parallel.team // parallel.tensor
    mixtures = [b.ffn for b in model.layers if isinstance(b.ffn, MixtureOfExperts)] if copies > 1 else []
    found = []
    if parallel.tensor > 1:
        sums = sum(map(_sums, model.layers)) + 1 - len(mixtures)
        found.append(Collective("sum", sums, wide / copies, parallel.tensor, link))
        logits = model.entry.vocabulary * activation_bytes
        found.append(Collective("gather", 1, logits / copies, parallel.tensor, link))
    if mixtures:
        ranks = parallel.expert
        reached = ranks * (1 - (1 - 1 / ranks) ** mixtures[0].active)
        found.append(Collective("exchange", 2 * len(mixtures), wide * reached, ranks, link))
    return tuple(found)


def _sums(block: Block) -> int:
    """Sums over devices in a layer: one where a single norm feeds both parts, which are then added first. [-]"""
    parts = any(not isinstance(mixer, NoMixer) for mixer in block.mixers) + (not isinstance(block.ffn, NoFFN))
    return min(parts, block.norms) if block.norms else parts


def collective_s(collective: Collective, tokens: Any, bandwidth: float, latency_s: float) -> Any:
    """Time of one collective over t devices with a message of M bytes on each, over links that were not measured.

    A sum goes out at once, or is reduced in parts that are then gathered; whichever is shorter:

        min(a + (t - 1) M / b, 2 a + 2 (t - 1) / t M / b)

    In an exchange each device sends the part of its share of the tokens that belongs elsewhere, and in a gathering it
    receives what it has not:

        a + M (t - 1) / t^2 / b,    a + M (t - 1) / t / b

    Parameters
    ----------
    collective : Collective
        What is told.
    tokens : array_like
        Tokens of the pass; of a gathering, those that have logits. [token]
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
    if collective.kind == "gather":
        return latency_s + message * (t - 1) / t
    return minimum(latency_s + (t - 1) * message, 2 * latency_s + 2 * (t - 1) / t * message)


def expected_collective_s(collective: Collective, tokens: Any) -> Any:
    """Expected time of one collective: by the measured protocols of its link, else as in `collective_s`. [s]

    Parameters
    ----------
    collective : Collective
        What is told.
    tokens : array_like
        As in `collective_s`. [token]
    """
    link = collective.link
    laws = dict(link.laws).get(collective.kind)
    if laws is None:
        return collective_s(collective, tokens, link.sustained_bandwidth, link.latency_s)
    message = tokens * collective.bytes_per_token / link.bandwidth
    # In an exchange each device has its share of the tokens.
    return quickest_s(laws, collective.ranks, message / collective.ranks if collective.kind == "exchange" else message)


def collectives_s(found: tuple[Collective, ...], runs: tuple[Run, ...]) -> Any:
    """Expected time of all collectives over some passes. [s]"""
    total: Any = 0.0
    for collective in found:
        for run in runs:
            logits = run.sequences * run.logits
            tokens, often = (logits, minimum(logits, 1)) if collective.kind == "gather" else (run.tokens, 1)
            each = expected_collective_s(collective, tokens)
            total = total + run.passes * collective.count * each * often
    return total


def least_collectives_s(found: tuple[Collective, ...], runs: tuple[Run, ...]) -> Any:
    """Least time of all collectives: in a sum every device receives each message once, however it is added up. [s]

    Tokens may be sent to experts on their own device, and logits may be chosen from where they are.
    """
    total: Any = 0.0
    for collective in found:
        if collective.kind == "sum":
            for run in runs:
                moved = run.tokens * collective.bytes_per_token / collective.link.bandwidth
                total = total + run.passes * collective.count * moved
    return total
