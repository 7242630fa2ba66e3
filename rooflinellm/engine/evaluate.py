"""Evaluate operators: FLOPs, bytes and seconds of runs of passes. Numbers and arrays go through the same lines.

What a product with weights takes does not depend on the cache: it is the same in each pass of a run. Attention grows
with the cache, and is added up over a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rooflinellm._numeric import ceil_div, is_array, maximum, minimum, total, where
from rooflinellm.engine.passes import Passes, Run
from rooflinellm.engine.plan import Kernel, Machine, Speeds
from rooflinellm.operators import attention, experts
from rooflinellm.roofline import sum_of_max


class Work(NamedTuple):
    """What an operator must do over some runs: the ideal counts nothing else. [FLOP], [byte]"""

    flops: Any
    read_bytes: Any

    def times(self, passes: Any) -> Work:
        """The same in each of some passes."""
        return self if type(passes) is int and passes == 1 else Work(passes * self.flops, passes * self.read_bytes)


NO_WORK = Work(0, 0)


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
    runs = passes.seen(kernel.sight)
    if kernel.kind == "attention":
        done = [attention_work(kernel, run) for run in runs]
    else:
        done = [pass_work(kernel, run).times(run.passes) for run in runs]
    return done[0] if len(done) == 1 else Work(*map(total, zip(*done, strict=True))) if done else NO_WORK


def pass_work(kernel: Kernel, run: Run) -> Work:
    """FLOPs and bytes of anything but attention in one pass of a run."""
    if kernel.kind == "embedding":
        return NO_WORK
    tokens, weight_reads = multiplied(kernel, run)
    moved = weight_reads * kernel.weight_bytes
    if kernel.state_bytes:
        moved = moved + run.sequences * 2 * kernel.state_bytes
    return Work(tokens * kernel.flops_per_token, moved)


def attention_work(kernel: Kernel, run: Run) -> Work:
    """FLOPs and bytes of attention over a run."""
    pairs, tokens = _attended(kernel, run)
    flops, read = _attention_flops(kernel, run, pairs), tokens * kernel.kv_bytes_per_token
    return Work(run.sequences * flops, run.sequences * read)


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


def expect(kernel: Kernel, speeds: Speeds, passes: Passes, skew: Any) -> Expectation:
    """Time that an operator is expected to take: floor + max(bytes / (eta b), FLOPs / (eta P)) for each pass.

    Parameters
    ----------
    kernel : Kernel
        The operator.
    speeds : Speeds
        What the device reaches in it.
    passes : Passes
        The passes.
    skew : array_like
        Routing skew of a mixture, 0 uniform … 1 all tokens agree. [-]

    Returns
    -------
    Expectation
    """
    floors = [run.passes * pass_floor_s(kernel, speeds, run.logits, run.many) for run in passes.seen("packed")]
    runs = passes.seen(kernel.sight)
    if kernel.kind == "attention":
        parts = [attention_busy(kernel, speeds, run) for run in runs]
    else:
        parts = [pass_busy(kernel, speeds, run, skew).times(run.passes) for run in runs]
    busy = parts[0] if len(parts) == 1 else Busy(*map(total, zip(*parts, strict=True))) if parts else IDLE
    return Expectation(total(floors), *busy)


def pass_floor_s(kernel: Kernel, speeds: Speeds, logits: Any, many: Any) -> Any:
    """Floor of an operator in one pass, by `Run.logits` and `Run.many`. [s]"""
    if kernel.kind == "head":  # however long the prompt, few of its positions
        return kernel.count * minimum(logits, 1) * speeds.floor_s
    return kernel.count * (speeds.floor_s + many * (speeds.floor_many_s - speeds.floor_s))


class Busy(NamedTuple):
    """Time of memory alone, of compute alone, and of the longer of both pass by pass. [s]"""

    memory_s: Any
    compute_s: Any
    busy_s: Any

    def times(self, passes: Any) -> Busy:
        """The same in each of some passes."""
        if type(passes) is int and passes == 1:
            return self
        return Busy(passes * self.memory_s, passes * self.compute_s, passes * self.busy_s)


IDLE = Busy(0.0, 0.0, 0.0)


def pass_busy(kernel: Kernel, speeds: Speeds, run: Run, skew: Any) -> Busy:
    """Time of a product with weights, a lookup, vectors or a recurrence in one pass of a run."""
    tokens, weight_reads = multiplied(kernel, run)
    moved, share = _moved_bytes(kernel, run, tokens, weight_reads, skew)
    memory = moved / speeds.sustained_bandwidth
    compute = _compute_s(kernel, speeds, tokens, run.tokens, share) if speeds.paths else 0.0
    if kernel.ranks > 1:
        busiest = experts.busiest_over_mean(kernel.experts, share * kernel.active, kernel.ranks)
        memory, compute = busiest * memory, busiest * compute
    return Busy(memory, compute, maximum(memory, compute) if speeds.paths else memory)


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


def _compute_s(kernel: Kernel, speeds: Speeds, tokens: Any, pass_tokens: Any, share: Any) -> Any:
    """Time to multiply the weights with some tokens: of tile kernels or of matrix-vector kernels, whichever is shorter.

    A tile kernel pays for whole tiles: T tokens take (T + T_half) / rate, so that it reaches half of its rate at T_half
    tokens. In a mixture each of the D experts touched pays: T_half D / k. Matrix-vector kernels take T / rate', and are
    no faster than the others with many tokens.

    Parameters
    ----------
    kernel : Kernel
        The operator.
    speeds : Speeds
        What the device reaches in it.
    tokens, pass_tokens : array_like
        Tokens multiplied, and tokens of the pass, which choose the path. [token]
    share : array_like
        Experts touched over experts active; 1 elsewhere. [-]

    Returns
    -------
    float or ndarray
        [s]
    """
    paths = speeds.paths
    full, half = paths[0].flop_per_s, paths[0].half_tokens
    for path in paths[1:]:
        taken = pass_tokens >= path.min_tokens
        full, half = where(taken, path.flop_per_s, full), where(taken, path.half_tokens, half)
    few = minimum(speeds.few_tokens_flop_per_s, full)
    return kernel.flops_per_token * minimum((tokens + half * share) / full, tokens / few)


def attention_busy(kernel: Kernel, speeds: Speeds, run: Run) -> Busy:
    """Time of attention over a run, exact over the growing cache.

    Passes of several tokens within chunks take the longer of both totals instead.
    """
    if kernel.chunk is not None and (is_array(run.new_tokens) or run.new_tokens != 1):
        flops, moved = attended_work(kernel, run)
        memory, compute = moved / speeds.sustained_bandwidth, flops / speeds.paths[0].flop_per_s
        return Busy(memory, compute, maximum(memory, compute))
    # Of one sequence; equal ones side by side take as often as much of both.
    per_cached = kernel.kv_bytes_per_token / speeds.sustained_bandwidth
    written = run.new_tokens * written_per_token(kernel) / speeds.sustained_bandwidth
    flop_per_s = speeds.paths[0].flop_per_s
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
        return IDLE
    return Busy(*(sums[0] if len(sums) == 1 else map(total, zip(*sums, strict=True)))).times(run.sequences)


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
