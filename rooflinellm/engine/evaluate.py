"""Evaluate a plan: FLOPs, bytes and seconds of runs of passes. Numbers and arrays go through the same lines.

A pass computes `new_tokens` of each of `sequences` on top of `cached` tokens. Prefill is a run of chunks, decode a
run of one-token passes; the cache grows by `new_tokens` from pass to pass. So a one-token prefill is a decode step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rooflinellm._numeric import ceil_div, is_array, maximum, minimum, total, where
from rooflinellm.efficiency.rates import share_of_many
from rooflinellm.engine.plan import Kernel, Machine
from rooflinellm.operators import attention, experts
from rooflinellm.roofline import sum_of_max


@dataclass(frozen=True, slots=True)
class Run:
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
    tokens : array_like
        Tokens of a pass over all sequences. [token]
    many : array_like
        Where the floors of a pass lie between those of a decode step and of a long prompt. [-]
    exists : bool
        Whether there may be any passes: not where their number is plainly 0.
    """

    sequences: Any
    new_tokens: Any
    passes: Any
    cached: Any
    logits: Any = 1
    of_one: Any = None

    tokens: Any = field(init=False, repr=False, compare=False)
    many: Any = field(init=False, repr=False, compare=False)
    exists: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Each operator asks for these: they are worked out once.
        own = self.new_tokens if self.of_one is None else self.of_one
        object.__setattr__(self, "tokens", self.sequences * self.new_tokens)
        object.__setattr__(self, "many", share_of_many(maximum(own, 1)))
        object.__setattr__(self, "exists", is_array(self.passes) or bool(self.passes != 0))


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of a phase, as products with weights see them and as attention does.

    An engine fills a chunk with tokens of whatever prompts are waiting, prompt after prompt: `packed` counts the chunks
    of all of them in a row, while each sequence's own tokens meet its own cache, chunk by chunk, in `by_sequence`.

    Attributes
    ----------
    packed, by_sequence : tuple of Run
        They compute the same tokens.
    recurrent : tuple of Run
        As recurrent layers see them, to whom sequences of different contexts are alike; empty is `by_sequence`.
    launched : tuple of Run
        The packed runs that have passes.
    """

    packed: tuple[Run, ...]
    by_sequence: tuple[Run, ...]
    recurrent: tuple[Run, ...] = ()
    launched: tuple[Run, ...] = field(init=False, repr=False, compare=False)
    _attended: tuple[Run, ...] = field(init=False, repr=False, compare=False)
    _recurrent: tuple[Run, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        attended = tuple([run for run in self.by_sequence if run.exists])
        recurrent = tuple([run for run in self.recurrent if run.exists]) if self.recurrent else attended
        object.__setattr__(self, "launched", tuple([run for run in self.packed if run.exists]))
        object.__setattr__(self, "_attended", attended)
        object.__setattr__(self, "_recurrent", recurrent)

    @property
    def count(self) -> Any:
        """Passes through the model. [-]"""
        return sum(run.passes for run in self.packed)

    def each(self) -> tuple[Passes, ...]:
        """The runs one by one; a single packed one holds all that the sequences do."""
        if len(self.packed) == 1:
            return (self,)
        return tuple(Passes((packed,), (own,)) for packed, own in zip(self.packed, self.by_sequence, strict=True))

    def of(self, kernel: Kernel) -> tuple[Run, ...]:
        """The passes as an operator sees them, without runs that have none."""
        kind = kernel.kind
        if kind == "attention":
            return self._attended
        return self._recurrent if kind == "recurrent" else self.launched


class Work(NamedTuple):
    """What an operator must do over some runs: the ideal counts nothing else. [FLOP], [byte]"""

    flops: Any
    read_bytes: Any


class Expectation(NamedTuple):
    """Time an operator is expected to take over some runs. [s]

    `busy_s` is the sum over its passes of the longer of memory and compute, with what copies of weights add;
    `memory_s`, `compute_s` and `link_s` are the sums of each alone.
    """

    floor_s: Any
    memory_s: Any
    compute_s: Any
    busy_s: Any
    link_s: Any = 0.0


def work(kernel: Kernel, passes: Passes) -> Work:
    """FLOPs and bytes that cannot be avoided: no activations, logits or cache writes; k experts whatever the batch.

    Parameters
    ----------
    kernel : Kernel
        The operator.
    passes : Passes
        The passes.

    Returns
    -------
    Work
    """
    if kernel.kind == "embedding":
        return NO_WORK
    runs = passes.of(kernel)
    if len(runs) == 1:
        return _run_work(kernel, runs[0])
    done = [_run_work(kernel, run) for run in runs]
    return Work(total(flops for flops, _ in done), total(read for _, read in done))


NO_WORK = Work(0, 0)


def _run_work(kernel: Kernel, run: Run) -> Work:
    """FLOPs and bytes of one run."""
    if kernel.kind == "attention":
        pairs, tokens = _attended(kernel, run)
        flops, read = _attention_flops(kernel, run, pairs), tokens * kernel.kv_bytes_per_token
        return Work(run.sequences * flops, run.sequences * read)
    tokens, weight_reads = multiplied(kernel, run)
    moved = weight_reads * kernel.weight_bytes
    if kernel.state_bytes:
        moved = moved + run.sequences * 2 * kernel.state_bytes
    return Work(run.passes * tokens * kernel.flops_per_token, run.passes * moved)


def _attended(kernel: Kernel, run: Run) -> tuple[Any, Any]:
    """Query-key pairs of a sequence over a run, and cached tokens that its passes read."""
    new, passes, cached = run.new_tokens, run.passes, run.cached
    if kernel.chunk is not None:
        pairs = attention.chunked_pairs(passes * new, cached, kernel.chunk)
        return pairs, attention.chunk_tokens_read_in_run(passes, new, cached, kernel.chunk)
    pairs = attention.causal_pairs(passes * new, cached, kernel.window)
    return pairs, attention.cached_tokens_read_in_run(passes, new, cached, kernel.window)


def _attention_flops(kernel: Kernel, run: Run, pairs: Any) -> Any:
    """FLOPs of a sequence's attention over a run; of latent attention, each pass in the cheaper of its two forms."""
    if not kernel.expanded_flops_per_pair:
        return pairs * kernel.flops_per_pair
    return sum(
        part.passes * part.flops + part.flops_step * _triangle(part.passes) for part in attention_parts(kernel, run)
    )


class _Part(NamedTuple):
    """Passes of a run over which the attention of a sequence grows by the same from pass to pass, `repeats` times over.

    `read` cached tokens and `flops` are those of its first pass. [token], [FLOP]
    """

    repeats: Any
    passes: Any
    read: Any
    read_step: Any
    flops: Any
    flops_step: Any


def attention_parts(kernel: Kernel, run: Run) -> Iterator[_Part]:
    """A run in parts that grow linearly.

    With a window: the passes that end within it; at most one that straddles it; and those that start beyond it, which
    are all alike. Within chunks (of steps of one token): the rest of the first chunk, whole chunks, and the last one.
    """
    new, passes, cached, window = run.new_tokens, run.passes, run.cached, kernel.window
    if kernel.chunk is not None:
        chunk = kernel.chunk
        rest = minimum(passes, chunk - cached % chunk)
        whole, last = (passes - rest) // chunk, (passes - rest) % chunk
        yield from _in_cheaper_form(kernel, new, 1, rest, cached % chunk, grows=True)
        yield from _in_cheaper_form(kernel, new, whole, chunk, 0, grows=True)
        yield from _in_cheaper_form(kernel, new, 1, last, 0, grows=True)
    elif window is None:
        yield from _in_cheaper_form(kernel, new, 1, passes, cached, grows=True)
    else:
        growing = attention.passes_below(window - new + 1, passes, new, cached)
        straddling = maximum(attention.passes_below(window, passes, new, cached) - growing, 0)
        yield from _in_cheaper_form(kernel, new, 1, growing, cached, grows=True)
        yield from _in_cheaper_form(kernel, new, 1, straddling, cached + growing * new, grows=False)
        yield from _in_cheaper_form(kernel, new, 1, passes - growing - straddling, maximum(cached, window), grows=False)


def _in_cheaper_form(
    kernel: Kernel, new: Any, repeats: Any, passes: Any, cached: Any, *, grows: bool
) -> Iterator[_Part]:
    """A part; of latent attention two, where one form is the cheaper before some pass and the other behind it.

    Absorbed attention takes more for each pair, expanded attention expands every cached token: which is cheaper depends
    on new and cached tokens. Both grow linearly, so that they cross once.
    """
    if not is_array(passes) and passes == 0:
        return
    pairs, read = (
        attention.causal_pairs(new, cached, kernel.window),
        attention.cached_tokens_read(cached, kernel.window),
    )
    pairs_step, read_step = (new * new, new) if grows else (0, 0)
    flops, flops_step = pairs * kernel.flops_per_pair, pairs_step * kernel.flops_per_pair
    if not kernel.expanded_flops_per_pair:
        yield _Part(repeats, passes, read, read_step, flops, flops_step)
        return
    other = pairs * kernel.expanded_flops_per_pair + read * kernel.expansion_flops_per_token
    other_step = pairs_step * kernel.expanded_flops_per_pair + read_step * kernel.expansion_flops_per_token
    ahead, step = other - flops, other_step - flops_step
    to_crossing = ceil_div(abs(ahead), maximum(abs(step), 1))
    before = where((ahead < 0) == (step < 0), passes, minimum(to_crossing, passes))
    for count, skipped, absorbed in ((before, 0, ahead >= 0), (passes - before, before, ahead < 0)):
        first = where(absorbed, flops + skipped * flops_step, other + skipped * other_step)
        grown = where(absorbed, flops_step, other_step)
        yield _Part(repeats, count, read + skipped * read_step, read_step, first, grown)


def _triangle(passes: Any) -> Any:
    """Sum of 0 … n - 1."""
    return passes * (passes - 1) // 2


def multiplied(kernel: Kernel, run: Run) -> tuple[Any, Any]:
    """Tokens that a pass multiplies the weights with, and how often it reads them at least. [token], [-]"""
    if kernel.kind == "head":
        return run.sequences * run.logits, minimum(run.logits, 1)
    return run.tokens, kernel.active if kernel.kind == "experts" else 1


def expect(kernel: Kernel, passes: Passes, skew: Any) -> Expectation:
    """Time that an operator is expected to take: floor + max(bytes / (eta b), FLOPs / (eta P)) for each pass.

    Parameters
    ----------
    kernel : Kernel
        The operator.
    passes : Passes
        The passes.
    skew : array_like
        Routing skew of a mixture, 0 uniform … 1 all tokens agree. [-]

    Returns
    -------
    Expectation
    """
    runs, launched = passes.of(kernel), passes.launched
    if len(runs) == 1 and len(launched) == 1:
        return Expectation(_floor_s(kernel, launched[0]), *_busy(kernel, runs[0], skew))
    parts = [_busy(kernel, run, skew) for run in runs]
    memory, compute, busy = (total(values) for values in zip(*parts, strict=True)) if parts else (0.0, 0.0, 0.0)
    return Expectation(total(_floor_s(kernel, run) for run in launched), memory, compute, busy)


def _busy(kernel: Kernel, run: Run, skew: Any) -> tuple[Any, Any, Any]:
    """Memory, compute and longer-of-both seconds over a run."""
    return _expect_attention(kernel, run) if kernel.kind == "attention" else _expect_product(kernel, run, skew)


def _floor_s(kernel: Kernel, run: Run) -> Any:
    """Floors of the passes of a run. [s]"""
    if kernel.kind == "head":  # however long the prompt, few of its positions
        return run.passes * minimum(run.logits, 1) * kernel.floor_s
    return run.passes * (kernel.floor_s + run.many * (kernel.floor_many_s - kernel.floor_s))


def _expect_product(kernel: Kernel, run: Run, skew: Any) -> tuple[Any, Any, Any]:
    """Memory, compute and longer-of-both seconds of a product with weights, a lookup or vectors over a run."""
    tokens, weight_reads = multiplied(kernel, run)
    moved, share = _moved_bytes(kernel, run, tokens, weight_reads, skew)
    passes = run.passes
    if kernel.ranks > 1:
        passes = passes * experts.busiest_over_mean(kernel.experts, share * kernel.active, kernel.ranks)
    memory = passes * (moved / kernel.sustained_bandwidth)
    if not kernel.paths:
        return memory, 0.0 * memory, memory
    compute = passes * _compute_s(kernel, tokens, run.tokens, share)
    return memory, compute, maximum(memory, compute)


def moved_bytes(kernel: Kernel, run: Run, skew: Any) -> tuple[Any, Any]:
    """Bytes that a pass is expected to move for a product, a lookup or vectors: weights, activations and state.

    Parameters
    ----------
    kernel : Kernel
        The operator.
    run : Run
        The passes.
    skew : array_like
        Routing skew of a mixture. [-]

    Returns
    -------
    tuple
        Bytes of one pass; and experts touched over experts active, 1 elsewhere. [byte], [-]
    """
    return _moved_bytes(kernel, run, *multiplied(kernel, run), skew)


def _moved_bytes(kernel: Kernel, run: Run, tokens: Any, weight_reads: Any, skew: Any) -> tuple[Any, Any]:
    """The same, of so many tokens and reads of the weights."""
    share: Any = 1
    if kernel.kind == "experts":
        weight_reads = experts.expected_distinct(kernel.experts, kernel.active, maximum(tokens, 1), skew)
        share = weight_reads / kernel.active
    elif kernel.kind == "embedding":
        weight_reads = 0
    moved = weight_reads * kernel.weight_bytes + tokens * kernel.activation_bytes_per_token
    return (moved + run.sequences * 2 * kernel.state_bytes if kernel.state_bytes else moved), share


def _compute_s(kernel: Kernel, tokens: Any, pass_tokens: Any, share: Any) -> Any:
    """Time to multiply the weights with some tokens: of tile kernels or of matrix-vector kernels, whichever is shorter.

    A tile kernel pays for whole tiles: T tokens take (T + T_half) / rate, so that it reaches half of its rate at T_half
    tokens. In a mixture each of the D experts touched pays: T_half D / k. Matrix-vector kernels take T / rate', and are
    no faster than the others with many tokens.

    Parameters
    ----------
    kernel : Kernel
        The operator.
    tokens, pass_tokens : array_like
        Tokens multiplied, and tokens of the pass, which choose the path. [token]
    share : array_like
        Experts touched over experts active; 1 elsewhere. [-]

    Returns
    -------
    float or ndarray
        [s]
    """
    paths = kernel.paths
    full, half = paths[0].flop_per_s, paths[0].half_tokens
    for path in paths[1:]:
        taken = pass_tokens >= path.min_tokens
        full, half = where(taken, path.flop_per_s, full), where(taken, path.half_tokens, half)
    few = minimum(kernel.few_tokens_flop_per_s, full)
    return kernel.flops_per_token * minimum((tokens + half * share) / full, tokens / few)


def _expect_attention(kernel: Kernel, run: Run) -> tuple[Any, Any, Any]:
    """Memory, compute and longer-of-both seconds of attention over a run, exact over the growing cache.

    Passes of several tokens within chunks take the longer of both totals instead.
    """
    if kernel.chunk is not None and (is_array(run.new_tokens) or run.new_tokens != 1):
        flops, moved = attended_work(kernel, run)
        memory, compute = moved / kernel.sustained_bandwidth, flops / kernel.paths[0].flop_per_s
        return memory, compute, maximum(memory, compute)
    # Of one sequence; equal ones side by side take as often as much of both.
    per_cached = kernel.kv_bytes_per_token / kernel.sustained_bandwidth
    written = run.new_tokens * written_per_token(kernel) / kernel.sustained_bandwidth
    flop_per_s = kernel.paths[0].flop_per_s
    sums = []
    for part in attention_parts(kernel, run):
        moved_s, moved_step = written + per_cached * part.read, per_cached * part.read_step
        compute_s, compute_step = part.flops / flop_per_s, part.flops_step / flop_per_s
        memory = part.passes * moved_s + moved_step * _triangle(part.passes)
        compute = part.passes * compute_s + compute_step * _triangle(part.passes)
        busy = sum_of_max(part.passes, moved_s, moved_step, compute_s, compute_step)
        repeated = is_array(part.repeats) or part.repeats != 1
        sums.append([part.repeats * each for each in (memory, compute, busy)] if repeated else (memory, compute, busy))
    if not sums:
        return 0.0, 0.0, 0.0
    alone = sums[0] if len(sums) == 1 else [total(values) for values in zip(*sums, strict=True)]
    memory, compute, busy = (run.sequences * each for each in alone)
    return memory, compute, busy


def written_per_token(kernel: Kernel) -> int:
    """Bytes of activations and of new cache entries that attention moves for a token. [byte/token]"""
    return kernel.activation_bytes_per_token + kernel.kv_owned_bytes_per_token


def attended_work(kernel: Kernel, run: Run) -> tuple[Any, Any]:
    """FLOPs of attention over a run, and bytes it is expected to move: cache, new entries and activations.

    Parameters
    ----------
    kernel : Kernel
        The operator.
    run : Run
        The passes.

    Returns
    -------
    tuple
        [FLOP], [byte]
    """
    pairs, tokens = _attended(kernel, run)
    read = run.sequences * tokens * kernel.kv_bytes_per_token
    written = run.passes * run.tokens * written_per_token(kernel)
    return run.sequences * _attention_flops(kernel, run, pairs), read + written


def ideal_memory_s(read_bytes: Any, passes: Any, machine: Machine, devices: int) -> Any:
    """Least time to move bytes: once a pass the last-level cache may hold some of them.

        max(max(0, B - n C) / b, B / b_C)

    Parameters
    ----------
    read_bytes : array_like
        Bytes read over all passes, B. [byte]
    passes : array_like
        Passes, n. [-]
    machine : Machine
        Bandwidth b, cache C and its bandwidth b_C of one device.
    devices : int
        Devices whose caches hold a share each. [-]

    Returns
    -------
    float or ndarray
        Time on one device's bandwidth. [s]
    """
    from_memory = maximum(read_bytes - passes * (machine.cache_bytes * devices), 0) / machine.bandwidth
    return maximum(from_memory, read_bytes / machine.cache_bandwidth)
