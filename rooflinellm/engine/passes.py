"""Passes through a model, as runs of equal ones in a row. Numbers and arrays go through the same lines.

A pass computes `new_tokens` of each of `sequences` on top of `cached` tokens. Prefill is a run of chunks, decode a
run of one-token passes; the cache grows by `new_tokens` from pass to pass. So a one-token prefill is a decode step.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from rooflinellm._numeric import is_array, maximum
from rooflinellm.efficiency.rates import share_of_many

Sight = Literal["packed", "attended", "recurrent"]
"""How operators see the passes of a phase, see `Passes`."""


class Run(NamedTuple):
    """Passes of equal length in a row.

    Attributes
    ----------
    sequences : array_like
        Sequences in the batch, B. [-]
    new_tokens : array_like
        Tokens a pass computes for each sequence, S. [token]
    passes : array_like
        Number of passes, n. [-]
    cached : array_like
        Tokens in each sequence's cache before the first pass. [token]
    logits : array_like
        Positions of a sequence whose logits a pass computes: 1, or 0 for a chunk that is not the last. [-]
    of_one : array_like, optional
        Tokens of a pass that belong to one prompt, where several are packed behind one another; None is all of
        `new_tokens`. [token]
    """

    sequences: Any
    new_tokens: Any
    passes: Any
    cached: Any
    logits: Any = 1
    of_one: Any = None

    @property
    def tokens(self) -> Any:
        """Tokens of a pass over all sequences. [token]"""
        return self.sequences * self.new_tokens

    @property
    def many(self) -> Any:
        """Where the floors of a pass lie between those of a decode step and of a long prompt. [-]"""
        return share_of_many(maximum(self.new_tokens if self.of_one is None else self.of_one, 1))


class Passes(NamedTuple):
    """The passes of a phase, as products with weights see them and as attention does.

    An engine fills a chunk with tokens of whatever prompts are waiting, prompt after prompt: `packed` counts the chunks
    of all of them in a row, while each sequence's own tokens meet its own cache, chunk by chunk, in `by_sequence`.

    Attributes
    ----------
    packed, by_sequence : tuple of Run
        They compute the same tokens.
    recurrent : tuple of Run
        As recurrent layers see them, to whom sequences of different contexts are alike; empty is `by_sequence`.
    """

    packed: tuple[Run, ...]
    by_sequence: tuple[Run, ...]
    recurrent: tuple[Run, ...] = ()

    @property
    def passes(self) -> Any:
        """Passes through the model. [-]"""
        return sum([run.passes for run in self.packed])

    def each(self) -> tuple[Passes, ...]:
        """The runs one by one; a single packed one holds all that the sequences do."""
        if len(self.packed) == 1:
            return (self,)
        return tuple(Passes((packed,), (own,)) for packed, own in zip(self.packed, self.by_sequence, strict=True))

    def seen(self, sight: Sight) -> tuple[Run, ...]:
        """The passes as some operators see them, without runs that plainly have none."""
        if sight == "packed":
            runs = self.packed
        else:
            runs = self.recurrent if sight == "recurrent" and self.recurrent else self.by_sequence
        return tuple([run for run in runs if is_array(passes := run.passes) or passes])
