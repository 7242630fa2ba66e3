"""Passes in which sequences decode while a chunk of another one's prompt is computed; contexts may differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.phases import PhaseTime, phase_time
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import in_turn
from rooflinellm.roofline import Overlap


def mixed_passes(
    contexts: Sequence[int], chunk_tokens: Any, chunk_context: Any, *, grown: Any = 0, logits: Any
) -> Passes:
    """One pass over sequences that decode, each on its own cache, and a chunk of a prompt on its own.

    Weights are read once for all B + S tokens; attention of each sequence reads its own cache.

    Parameters
    ----------
    contexts : sequence of int
        Tokens in the cache of each sequence that decodes, B of them. [token]
    chunk_tokens, chunk_context : array_like
        Tokens of the chunk, S, and of its prompt in the cache before it; 0 tokens are no chunk. [token]
    grown : array_like
        Tokens by which all contexts have grown since. [token]
    logits : array_like
        Positions of the chunk whose logits are computed: 1 of the last chunk of a prompt, else 0. [-]

    Returns
    -------
    Passes
    """
    own = [Run(number, 1, 1, context + grown) for context, number in sorted(Counter(contexts).items())]
    decoding = (Run(len(contexts), 1, 1, 0),) if contexts else ()
    if isinstance(chunk_tokens, int) and chunk_tokens == 0:
        return Passes(decoding, tuple(own), decoding)
    chunk = Run(1, chunk_tokens, 1, chunk_context, logits=logits)
    together, last = len(contexts) + chunk_tokens, len(contexts) + logits
    packed = Run(1, together, 1, chunk_context, logits=last, of_one=chunk_tokens)
    return Passes((packed,), (*own, chunk), (*decoding, chunk))


def mixed_time(plan: Plan, passes: Passes, skew: Any, overlap: Overlap) -> PhaseTime:
    """Time of such a pass.

    Parameters
    ----------
    plan : Plan
        The plan.
    passes : Passes
        From `mixed_passes`; arrays in it are several passes, each with its own time.
    skew : array_like
        Routing skew of a mixture. [-]
    overlap : str
        What may overlap in the expectation.

    Returns
    -------
    PhaseTime
    """
    (packed,) = passes.packed
    return phase_time(plan, passes, passes, skew, overlap, in_turn=in_turn(plan, packed.tokens))
