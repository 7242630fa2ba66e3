"""Prefix caching: from which token on a prompt must be computed that begins like an earlier one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rooflinellm._numeric import ceil_div, round_up
from rooflinellm.engine.plan import Plan
from rooflinellm.errors import MissingSpec


@dataclass(frozen=True, slots=True)
class PrefixCaching:
    """Where an engine can resume a prompt to a model.

    Attributes
    ----------
    block_tokens : int
        What hits are rounded down to. [token]
    at_checkpoints : bool
        Whether it can only resume where a checkpoint was saved.
    checkpoint_tokens : int or None
        Tokens between checkpoints within a prompt; None saves one at its end only. [token]
    checkpoints : int or None
        Most that are kept; None is without limit. [-]
    checkpoint_bytes : int
        Size of one: windows and recurrent state of a sequence; 0 where none are needed. [byte]
    """

    block_tokens: int
    at_checkpoints: bool
    checkpoint_tokens: int | None = None
    checkpoints: int | None = None
    checkpoint_bytes: int = 0

    def hit_tokens(self, common_tokens: int, prompt_tokens: int, saved: Iterable[int] = ()) -> int:
        """Tokens of a prompt that need not be computed; its last one always is, for its logits.

        Parameters
        ----------
        common_tokens : int
            Tokens from the beginning on that are the same as in the cache. [token]
        prompt_tokens : int
            Length of the prompt. [token]
        saved : iterable of int
            Checkpoints, by the tokens before them. [token]

        Returns
        -------
        int
            [token]
        """
        usable = max(min(common_tokens, prompt_tokens - 1), 0)
        if self.at_checkpoints:
            return max((tokens for tokens in saved if tokens <= usable), default=0)
        return usable // self.block_tokens * self.block_tokens

    def save(self, saved: Iterable[int], hit_tokens: int, prompt_tokens: int) -> tuple[int, ...]:
        """Checkpoints after a prompt was computed from a hit on; those beyond the hit are no longer valid.

        Parameters
        ----------
        saved : iterable of int
            Those before. [token]
        hit_tokens, prompt_tokens : int
            Where computing began and ended. [token]

        Returns
        -------
        tuple of int
            The latest ones, in order. [token]
        """
        if not self.at_checkpoints:
            return ()
        points = {tokens for tokens in saved if tokens <= hit_tokens} | {prompt_tokens}
        if self.checkpoint_tokens is not None:
            points |= set(range(hit_tokens + self.checkpoint_tokens, prompt_tokens, self.checkpoint_tokens))
        kept = sorted(points)
        return tuple(kept if self.checkpoints is None else kept[-self.checkpoints :])


def prefix_caching(plan: Plan, *, full_windows: bool = False) -> PrefixCaching:
    """The engine's rules for the model of a plan.

    Parameters
    ----------
    plan : Plan
        The plan.
    full_windows : bool
        Sliding layers hold every token, so that they can resume anywhere.

    Returns
    -------
    PrefixCaching

    Raises
    ------
    MissingSpec
        The engine's file states no rules.
    """
    rules = plan.engine.kv.prefix
    if rules is None:
        raise MissingSpec(
            f"{plan.engine.id} is not known to reuse prefixes", where=f"hardware_db/engines/{plan.engine.id}: kv.prefix"
        )
    shares = [share for stage in plan.stages for share in stage.shares]
    anywhere = full_windows or plan.engine.kv.sliding == "full"
    windows = [] if anywhere else [cache for share in shares for cache in share.caches if cache.span is not None]
    state = sum(share.state_bytes for share in shares)
    stops = (bool(windows) and rules.sliding == "checkpoint") or (state > 0 and rules.recurrent == "checkpoint")
    if stops:
        held = sum(cache.bytes_per_token * (cache.span or 0) for cache in windows)
        return PrefixCaching(
            rules.block_tokens, True, rules.checkpoint_tokens, rules.checkpoints, checkpoint_bytes=held + state
        )
    block = rules.block_tokens if not state else round_up(_tokens_of_state(plan), rules.block_tokens)
    return PrefixCaching(max(block, rules.block_tokens), False)


def _tokens_of_state(plan: Plan) -> int:
    """Tokens of one attention layer's cache that are as large as one recurrent layer's state. [token]"""
    state = max((kernel.state_bytes // kernel.count for kernel in plan.kernels if kernel.state_bytes), default=0)
    attention = [
        kernel.kv_owned_bytes_per_token // kernel.count for kernel in plan.kernels if kernel.kind == "attention"
    ]
    token = max(attention, default=0)
    return int(ceil_div(state, token)) if token else 1
