"""Memory beside weights and cache: compute buffers and what the runtime itself takes."""

from __future__ import annotations

from typing import Any

from rooflinellm import units
from rooflinellm._numeric import minimum
from rooflinellm.engine.paths import fits_architecture
from rooflinellm.engine.plan import Plan, Stage
from rooflinellm.specs.engine import EngineSpec, Limits
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.model import GatedFFN, MixtureOfExperts, ModelEntry, PlainFFN

FLOAT_BYTES = 4


def workspace_bytes(plan: Plan, sequences: Any, limit: Any, chunk: int, stage: Stage | None = None) -> Any:
    """Compute buffer, graphs and runtime of one device, by the engine's rule; of the host, the compute buffer alone.

    With a chunk of S tokens, room for B sequences, vocabulary V, hidden size d, the widest feed-forward part F and
    activations of b bytes:

    ``llama.cpp``
        4 S max(V + d, 2 F + 2 d): the logits of a chunk with the hidden states they are made of, or a feed-forward part
        between hidden states, in 32 bits. Of current builds with flash attention; servers that ask for few logits
        reserve less.
    ``profiled``
        max(copies b S (F + d), logit_bytes B V): the engine runs a full pass and a full sampler when it starts and
        keeps what they needed at most.
    ``activations``
        copies b S (F + d) + logit_bytes n V, with n sequences in the batch and S no more than the context: nothing is
        reserved ahead.
    ``reserved``
        mib_per_token S + mib_per_sequence B: the engine sets memory aside by its own formula.

    Parameters
    ----------
    plan : Plan
        The plan.
    sequences : array_like
        Sequences in the batch, n. [-]
    limit : array_like
        Configured context of one sequence. [token]
    chunk : int
        Tokens of a prompt that pass at once, S. [token]
    stage : Stage, optional
        Whose device it is; None is the first one.

    Returns
    -------
    int or ndarray
        [byte]

    References
    ----------
    The engines' files name the logs and the source that each rule was checked on.
    """
    stage = stage or plan.main
    key = "workspace", id(stage), chunk  # a plan keeps its stages
    if key not in plan.memo:
        plan.memo[key] = _terms(plan, chunk, stage)
    fixed, token, logits = plan.memo[key]
    return fixed + token * minimum(chunk, limit) + logits * sequences if token or logits else fixed


def _terms(plan: Plan, chunk: int, stage: Stage) -> tuple[int, int, int]:
    """What a workspace takes whatever the request, for each token that passes, and for each sequence. [byte]"""
    model, engine, rules = plan.model, plan.engine, plan.engine.workspace
    room = batch_limits(engine, stage.device).sequences
    fixed = runtime_bytes(plan, stage)
    if rules.rule == "llama.cpp":
        widest = max(model.vocabulary + model.hidden, 2 * plan.widest_features)
        return fixed + chunk * FLOAT_BYTES * widest, 0, 0
    if rules.rule == "reserved":
        return fixed + round((chunk * rules.mib_per_token + room * rules.mib_per_sequence) * units.MIB), 0, 0
    token = round(rules.copies * engine.activation_bytes * plan.widest_features)
    logits = round(rules.logit_bytes * model.vocabulary)
    if rules.rule == "activations":
        return fixed, token, logits
    return fixed + max(token * chunk, logits * room), 0, 0


def runtime_bytes(plan: Plan, stage: Stage) -> int:
    """What the runtime and its graphs take of a device, whatever the request; 0 on the host. [byte]"""
    if stage.tier != "device":
        return 0
    return round((plan.engine.backends[stage.backend_name].runtime_mib + plan.engine.workspace.graphs_mib) * units.MIB)


def batch_limits(engine: EngineSpec, device: HardwareSpec) -> Limits:
    """Chunk and number of sequences that an engine is set to on a device, unless it is told otherwise.

    Parameters
    ----------
    engine : EngineSpec
        The engine.
    device : HardwareSpec
        The device; its capacity and architecture decide.

    Returns
    -------
    Limits
    """
    capacity = device.memory_bytes
    for limits in engine.smaller_devices:
        small = limits.below_gib is None or (capacity is not None and capacity < limits.below_gib * units.GIB)
        if small and fits_architecture(limits.architectures, device):
            return limits
    return Limits(prefill_chunk=engine.prefill_chunk, sequences=engine.sequences)


def widest_features(entry: ModelEntry) -> int:
    """Features of one token that a layer holds at its widest place: those of the feed-forward part and hidden ones.

    Parameters
    ----------
    entry : ModelEntry
        The model.

    Returns
    -------
    int
        F + d. [-]
    """
    widths = (_width(block.ffn) for group in entry.layers for block in group.pattern)
    return max(widths) + entry.hidden


def _width(ffn: object) -> int:
    """Features that the feed-forward part of a layer makes of one token. [-]"""
    if isinstance(ffn, MixtureOfExperts):
        return ffn.active * ffn.intermediate + (ffn.shared_intermediate or 0)
    if isinstance(ffn, GatedFFN | PlainFFN):
        return ffn.intermediate
    return 0
