"""Single passes: batches of unequal contexts, and prompts that are computed beside running answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rooflinellm._numeric import ceil_div, maximum, round_up
from rooflinellm._shown import one_line
from rooflinellm.api.arguments import count, flag, one_of, options_of, scalar_count, sequence, share, single_values
from rooflinellm.api.estimate import MAX_TOKENS
from rooflinellm.api.lookup import Name
from rooflinellm.api.placing import choose_placement
from rooflinellm.api.plans import Setup, parallel_of, settle
from rooflinellm.engine.memory import LARGEST_BATCH
from rooflinellm.engine.mixed import mixed_passes, mixed_time
from rooflinellm.engine.phases import PhaseTime, decode_interval, prefill_interval
from rooflinellm.engine.plan import Plan
from rooflinellm.engine.request import Request, prefill_time, time_prediction
from rooflinellm.errors import InvalidRequest
from rooflinellm.operators.experts import MEASURED_SKEW
from rooflinellm.operators.model import ModelSpec
from rooflinellm.render import Column, Table
from rooflinellm.results import Prediction, data_frame, flat_record
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec
from rooflinellm.specs.model import ModelEntry
from rooflinellm.summary import basis_text, count_text, system_text, weights_text
from rooflinellm.units import GIGA, format_seconds, significant

Model = Name | ModelEntry | ModelSpec
Hardware = Name | HardwareSpec | SystemSpec
MOST_STEPS = 1_000_000
TAKEN = (
    *("weights", "kv", "engine", "options", "overrides", "gpu_layers", "cpu_moe_layers", "prefill_chunk"),
    *("tensor_parallel", "expert_parallel", "data_parallel"),
)
"""Arguments of `estimate` that say how a single pass runs."""
BUDGETS = (512, 1024, 2048, 8192)
"""Tokens of a pass that are shown where none are asked for. [token]"""


@dataclass(frozen=True)
class MixedStep:
    """The answer of `mixed_step`.

    Attributes
    ----------
    time_s : Prediction
        Time of the pass: the gap between tokens that each running request sees. [s]
    decode_s : Prediction or None
        Time of the same pass without the chunk; None where nothing decodes. [s]
    flops, read_bytes : int
        Totals of the pass that cannot be avoided. [FLOP], [byte]
    """

    time_s: Prediction
    decode_s: Prediction | None
    flops: Any
    read_bytes: Any

    __repr__ = one_line

    @property
    def slowdown(self) -> float | None:
        """Expected time of the pass over that without the chunk. [-]"""
        return None if self.decode_s is None else self.time_s.expected / self.decode_s.expected

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            "time_s": self.time_s.to_dict(),
            "decode_s": None if self.decode_s is None else self.decode_s.to_dict(),
            "slowdown": self.slowdown,
            "flops": self.flops,
            "read_bytes": self.read_bytes,
        }


def mixed_step(
    model: Model,
    hardware: Hardware,
    *,
    contexts: Sequence[int],
    chunk_tokens: int = 0,
    chunk_context: int = 0,
    last_chunk: bool = True,
    **request: Any,
) -> MixedStep:
    """Time of one pass over sequences of unequal contexts, and a chunk of another prompt beside them.

    Weights are read once for all tokens; each sequence's attention reads its own cache, so unequal contexts cost the
    sum of what each costs, not the longest for all. Whether all of it fits is `estimate`'s to say.

    Parameters
    ----------
    model, hardware
        As in `estimate`.
    contexts : sequence of int
        Tokens in the cache of each request that decodes; may be empty. [token]
    chunk_tokens, chunk_context : int
        Tokens of a prompt that are computed in the pass, and of that prompt in the cache before them. [token]
    last_chunk : bool
        Whether the chunk ends its prompt, so that its logits are computed.
    **request
        As in `estimate`: weights, kv, engine, options, overrides, placement, and degrees of parallelism but for groups
        of layers; of several copies of the model it is one.

    Returns
    -------
    MixedStep

    Raises
    ------
    InvalidRequest
        Nothing to compute, or impossible numbers; and as `estimate`.
    """
    lengths = _contexts(contexts)
    single_values({"chunk_tokens": chunk_tokens, "chunk_context": chunk_context})
    new = int(count("chunk_tokens", chunk_tokens, 0, MAX_TOKENS))
    before = int(count("chunk_context", chunk_context, 0, MAX_TOKENS))
    if not lengths and not new:
        raise InvalidRequest("no sequence decodes and no chunk is computed", where="contexts")
    bench = _Bench(model, hardware, request, lengths, before + new)
    whole = bench.step(lengths, new, before, logits=int(flag("last_chunk", last_chunk)))
    alone = bench.step(lengths, 0, 0, logits=0) if lengths else None
    return MixedStep(
        time_s=bench.prediction(whole, chunk=new > 0),
        decode_s=None if alone is None else bench.prediction(alone, chunk=False),
        flops=whole.flops,
        read_bytes=whole.read_bytes,
    )


@dataclass(frozen=True, slots=True)
class ChunkedRow:
    """A prompt that arrives while others decode, at one budget.

    Attributes
    ----------
    budget_tokens : int or None
        Most tokens of a pass, those that decode included; None computes the prompt in one go while the others wait.
    steps : int
        Passes until the prompt is computed. [-]
    ttft_s : Prediction
        Time to first token of the prompt. [s]
    longest_gap_s : Prediction
        Longest gap between tokens of the others. [s]
    read_bytes : int
        Weights and cache that these passes read at least. [byte]
    """

    budget_tokens: int | None
    steps: int
    ttft_s: Prediction
    longest_gap_s: Prediction
    read_bytes: int

    __repr__ = one_line

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {key: each.to_dict() if isinstance(each, Prediction) else each for key, each in values.items()}


@dataclass(frozen=True)
class ChunkedPrefill:
    """The answer of `chunked_prefill`.

    Attributes
    ----------
    rows : tuple of ChunkedRow
        One a budget, the one without chunks first.
    decode_s : Prediction
        Time of a step of the running requests before the prompt arrives. [s]
    prompt_tokens, sequences : int
        Length of the prompt, and requests that run. [token], [-]
    title : str
        Model, format, devices and engine.
    evidence : int
        Series of the device itself that the times were fitted to, as in `Estimate`. [-]
    """

    rows: tuple[ChunkedRow, ...]
    decode_s: Prediction
    prompt_tokens: int
    sequences: int
    title: str
    evidence: int

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in base units."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "sequences": self.sequences,
            "decode_s": self.decode_s.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON; NaN and infinity never occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row a budget."""
        return [flat_record(row.to_dict()) for row in self.rows]

    def to_dataframe(self) -> Any:
        """`to_records` as a pandas data frame.

        Raises
        ------
        MissingSpec
            pandas is not installed.
        """
        return data_frame(self.to_records())

    def table(self) -> Table:
        """A row a budget."""
        columns = [
            Column("tokens a pass"), Column("passes"), Column("first token"), Column("longest gap"),
            Column("times a step", drop=1), Column("GB read", drop=2),
        ]  # fmt: skip
        rows = [
            [
                "prompt alone" if row.budget_tokens is None else count_text(row.budget_tokens),
                count_text(row.steps),
                format_seconds(row.ttft_s.expected),
                format_seconds(row.longest_gap_s.expected),
                f"{significant(row.longest_gap_s.expected / self.decode_s.expected, 2)}x",
                significant(row.read_bytes / GIGA, 3),
            ]
            for row in self.rows
        ]
        said = f"a prompt of {self.prompt_tokens:,} beside {self.sequences:,} running requests"
        step = f"a step of theirs without it: {format_seconds(self.decode_s.expected)}"
        return Table(
            columns, rows, self.title, [step, f"basis: {basis_text(self.decode_s.basis, self.evidence)}"], said
        )

    def __repr__(self) -> str:
        parts = [
            f"{row.budget_tokens or 'whole'}: gap {row.longest_gap_s.expected:.3g} s, TTFT {row.ttft_s.expected:.3g} s"
            for row in self.rows
        ]
        return f"ChunkedPrefill({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        return self.table().to_html()


def chunked_prefill(
    model: Model,
    hardware: Hardware,
    *,
    prompt_tokens: int,
    contexts: Sequence[int],
    budgets: Sequence[int] = BUDGETS,
    **request: Any,
) -> ChunkedPrefill:
    """What a prompt does to running answers, whole and in chunks.

    Whole, the others wait for it: their longest gap is its prefill and a step. In chunks each pass takes a token of
    each running request and as many of the prompt as the budget leaves: gaps are bounded by the time of one such pass,
    and the first token comes later, as weights are read again for each chunk and the cache of the earlier ones too:

        n = ceil(S / (tau - B)), weights n times, sum_i i (tau - B) cached tokens

    Parameters
    ----------
    model, hardware
        As in `estimate`.
    prompt_tokens : int
        Length of the prompt that arrives, S. [token]
    contexts : sequence of int
        Tokens in the cache of each running request, B of them. [token]
    budgets : sequence of int
        Most tokens of a pass, tau, more than there are running requests (vLLM's ``max_num_batched_tokens``). [token]
    **request
        As in `mixed_step`.

    Returns
    -------
    ChunkedPrefill

    Raises
    ------
    InvalidRequest
        No running request, a budget that leaves nothing for the prompt, or impossible numbers; and as `estimate`.
    """
    lengths = _contexts(contexts)
    prompt = scalar_count("prompt_tokens", prompt_tokens, MAX_TOKENS)
    if not lengths:
        raise InvalidRequest("no request is running", where="contexts", next_step="Use estimate for a prompt alone.")
    asked = [scalar_count("budgets", each, MAX_TOKENS) for each in sequence("budgets", budgets)]
    for budget in asked:
        if budget <= len(lengths):
            raise InvalidRequest(
                f"{budget:,} tokens a pass leave nothing for the prompt beside {len(lengths):,} running requests",
                where="budgets",
            )
        if -(-prompt // (budget - len(lengths))) > MOST_STEPS:
            raise InvalidRequest(f"more than {MOST_STEPS:,} passes", where="budgets")
    bench = _Bench(model, hardware, request, lengths, prompt)
    step = bench.step(lengths, 0, 0, logits=0)
    decode_s = bench.prediction(step, chunk=False)
    alone = prefill_time(bench.plan, replace(bench.request, prompt_tokens=prompt, sequences=1))
    prefill_s = bench.prediction(alone)
    whole = ChunkedRow(None, 1, prefill_s, prefill_s + decode_s, int(alone.read_bytes + step.read_bytes))
    rows = [whole, *(bench.row(lengths, prompt, budget) for budget in asked)]
    plan = bench.plan
    title = [
        plan.model.name,
        weights_text(plan.fmt.id),
        system_text(plan.system),
        plan.engine_name.replace(":", " "),
    ]
    return ChunkedPrefill(tuple(rows), decode_s, prompt, len(lengths), " · ".join(title), plan.evidence)


class _Bench:
    """A plan on which single passes are timed."""

    def __init__(
        self, model: Model, hardware: Hardware, request: Mapping[str, Any], contexts: Sequence[int], prompt: int
    ) -> None:
        for name in request:
            if name not in TAKEN:
                raise InvalidRequest(f"not among {', '.join(TAKEN)}", where=name)
        single_values(request)
        options = options_of(request.get("options"))
        chunk = request.get("prefill_chunk", options.ubatch)
        chunk = None if chunk is None else scalar_count("prefill_chunk", chunk)
        named = {name: request.get(name) for name in ("weights", "kv", "engine", "overrides")}
        degrees = {name: value for name, value in request.items() if name.endswith("_parallel")}
        setup = Setup(**named, chunk=chunk, options=options, parallel=parallel_of(**degrees))
        settled = settle(model, hardware, setup)
        # Caches are of unequal length; what they take together decides where the model is placed.
        sequences = len(contexts) + (1 if prompt else 0)
        occupied = ceil_div(sum(contexts) + prompt, sequences) + 1
        self.request = Request(
            prompt_tokens=0,
            output_tokens=1,
            cached_tokens=0,
            context_tokens=0,
            sequences=sequences,
            chunk=chunk,
            skew=MEASURED_SKEW if options.routing_skew is None else share("routing_skew", options.routing_skew),
            overlap=one_of("overlap", options.overlap, ("operator", "phase", "none")),
        )
        limit = round_up(occupied, settled.engine.kv.block_tokens)
        largest = replace(self.request, context_tokens=occupied - 1)
        wish = (request.get("gpu_layers"), request.get("cpu_moe_layers"))
        self.plan: Plan = choose_placement(settled, largest, limit, *wish).plan
        self.sequences = max(len(contexts), 1)

    def step(
        self, contexts: Sequence[int], chunk_tokens: Any, chunk_context: Any, *, grown: Any = 0, logits: Any
    ) -> PhaseTime:
        """One pass, or several where there are arrays."""
        passes = mixed_passes(contexts, chunk_tokens, chunk_context, grown=grown, logits=logits)
        return mixed_time(self.plan, passes, self.request.skew, self.request.overlap)

    def prediction(self, time: PhaseTime, *, chunk: bool = True) -> Prediction:
        """Its time, with a chunk in the wider of the two phases' intervals. [s]"""
        width = decode_interval(self.plan, time, self.sequences)
        if chunk:
            width = maximum(width, prefill_interval(self.plan, time))
        return time_prediction(time, width, self.plan.rates.basis)

    def row(self, contexts: Sequence[int], prompt: int, budget: int) -> ChunkedRow:
        """The prompt in chunks, all passes as one array; the last one computes logits."""
        import numpy as np

        chunk = budget - len(contexts)
        steps = ceil_div(prompt, chunk)
        number = np.arange(steps, dtype=float)
        done = number * chunk
        time = self.step(
            contexts, np.minimum(chunk, prompt - done), done, grown=number, logits=(number == steps - 1).astype(float)
        )
        each = self.prediction(time)
        return ChunkedRow(
            budget_tokens=budget,
            steps=steps,
            ttft_s=each.map(lambda values: float(values.sum())),
            longest_gap_s=each.map(lambda values: float(values.max())),
            read_bytes=int(time.read_bytes.sum()),
        )


def _contexts(given: Any) -> list[int]:
    """Contexts of sequences as whole numbers."""
    given = sequence("contexts", given)
    if len(given) > LARGEST_BATCH:
        raise InvalidRequest(f"{len(given):,} sequences; at most {LARGEST_BATCH:,}", where="contexts")
    if len(given) == 0:
        return []
    checked = count("contexts", list(given), 0, MAX_TOKENS)
    return [int(each) for each in checked.ravel()]
