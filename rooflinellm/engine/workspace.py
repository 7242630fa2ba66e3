"""Memory beside weights and cache: compute buffers and what the runtime itself takes."""

from __future__ import annotations

from typing import Any

from rooflinellm import units
from rooflinellm._numeric import minimum
from rooflinellm.engine.plan import Plan
from rooflinellm.specs.model import GatedFFN, MixtureOfExperts, ModelEntry, PlainFFN

LLAMA_CPP_BUFFER_BYTES = 4
PROFILED_COPIES = 3
PROFILED_SEQUENCES = 256
PROFILED_SAMPLER_BYTES = 6


def workspace_bytes(plan: Plan, sequences: Any, chunk: int) -> Any:
    """Compute buffer and runtime of one device, by the engine's rule.

    ``llama.cpp``
        The buffer holds the logits of one chunk and the hidden states beside them, in 32 bits,
        ``chunk (vocabulary + hidden) 4``, or the widest feed-forward activations if they are more. It reproduces the
        logged ``compute buffer size`` of current builds with flash attention: Llama 3.1 8B 258.5 MiB, 70B 266.5 MiB,
        gpt-oss-20b 398.4 MiB.
    ``profiled``
        vLLM and SGLang measure the peak of one pass of ``batch_tokens`` tokens, about three copies of the widest
        activations, and add logits and sampler buffers of 256 sequences; a first model, to be calibrated on logs.
    ``activations``
        One copy of the widest activations of one chunk.

    Parameters
    ----------
    plan : Plan
        The plan.
    sequences : array_like
        Sequences in the batch. [-]
    chunk : int
        Tokens of a prompt that pass at once. [token]

    Returns
    -------
    int or ndarray
        [byte]
    """
    model, engine = plan.model, plan.engine
    runtime = round((plan.backend.runtime_mib + engine.workspace.graphs_mib) * units.MIB)
    widest = plan.widest_features
    if engine.workspace.rule == "llama.cpp":
        return runtime + chunk * LLAMA_CPP_BUFFER_BYTES * max(model.vocabulary + model.hidden, widest)
    activations = engine.batch_tokens * engine.activation_bytes * widest
    if engine.workspace.rule == "activations":
        return runtime + activations
    logits = minimum(sequences, PROFILED_SEQUENCES) * model.vocabulary * PROFILED_SAMPLER_BYTES
    return runtime + PROFILED_COPIES * activations + logits


def widest_features(entry: ModelEntry) -> int:
    """Features of one token that are live at once at the widest place: twice the feed-forward width, four hidden
    states.

    Parameters
    ----------
    entry : ModelEntry
        The model.

    Returns
    -------
    int
        [-]
    """
    widths = (_width(block.ffn) for group in entry.layers for block in group.pattern)
    return 2 * max(widths) + 4 * entry.hidden


def _width(ffn: object) -> int:
    """Features that the feed-forward part of a layer makes of one token. [-]"""
    if isinstance(ffn, MixtureOfExperts):
        return ffn.active * ffn.intermediate + (ffn.shared_intermediate or 0)
    if isinstance(ffn, GatedFFN | PlainFFN):
        return ffn.intermediate
    return 0
