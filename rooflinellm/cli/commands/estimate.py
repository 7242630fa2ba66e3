"""`estimate`: the four questions, on one screen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rooflinellm.cli.inputs import COUNTS, PLACING, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say

if TYPE_CHECKING:
    from rooflinellm.render import Table
    from rooflinellm.results import Estimate

MORE_TOKENS = 512
"""Prompt on top of each context for which prefill is shown. [token]"""
CONTEXTS = (0, 4_096, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576)
SHORT_CONTEXTS = (0, 512, 1_024, 2_048, 4_096)
SHORT = 16_384
"""Below this limit `SHORT_CONTEXTS` are shown. [token]"""


class Growth(NamedTuple):
    """Estimates over amounts of context: of the next decode step, and of a little more prompt."""

    decode: list[Estimate]
    prefill: list[Estimate]


@subcommand(
    "estimate llama-3.1-8b rtx-4090 --weights Q4_K_M",
    "estimate qwen3-30b-a3b m3-max-40c@64GiB --prompt 2k,32k --kv q8_0",
    "estimate llama-3.3-70b '2x rtx-3090' --context 16k -v",
    "estimate gpt-oss-20b rtx-4090 --set hardware.memory.bandwidth_gb_s=1100 --json",
)
@click.argument("model")
@click.argument("hardware")
@click.option(
    *("-p", "--prompt", "prompts"),
    type=COUNTS,
    default="512,8192",
    metavar="N,N",
    help="Lengths of the prompt; 8k is 8192, as everywhere.  [default: 512,8192]",
)
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *(*PLACING, "draft", "draft_tokens", "acceptance", "queue_s"),
)
@click.option("-v", "--verbose", is_flag=True, help="Add every operator and every assumption.")
@output_options
def command(
    model: str, hardware: str, prompts: Sequence[int], keywords: dict[str, Any], verbose: bool, output: Output
) -> None:
    """Speed of prefill, first token and decode, and whether it fits.

    One row for each prompt length, then how both phases slow down as the context fills.
    """
    from rooflinellm.errors import RooflineWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below, once for all prompt lengths
        estimates = _estimates(model, hardware, prompts, keywords)
        growth = Growth([], []) if output.form == "csv" else _growth(model, hardware, keywords, estimates[0])
    for text in _distinct(text for item in estimates for text in item.warnings):
        say("warning", as_typed(text))
    output.write(
        tables=lambda: _tables(
            estimates, growth, keywords, verbose, _place_tables(model, hardware, keywords, estimates)
        ),
        payload=lambda: _payload(estimates, growth, keywords, verbose),
        records=lambda: [item.to_dict() for item in estimates],
    )


def _estimates(model: str, hardware: str, prompts: Sequence[int], keywords: Mapping[str, Any]) -> list[Estimate]:
    from rooflinellm.api.estimate import estimate

    return [estimate(model, hardware, prompt_tokens=prompt, **keywords) for prompt in prompts]


def _growth(model: str, hardware: str, keywords: Mapping[str, Any], first: Estimate) -> Growth:
    """The next decode step, and the prefill of a little more, over amounts of context."""
    from rooflinellm.api.estimate import estimate

    most = min(first.model.max_context_tokens, keywords.get("context_limit", first.model.max_context_tokens))
    contexts = [tokens for tokens in (SHORT_CONTEXTS if most < SHORT else CONTEXTS) if tokens < most] + [most]
    own = ("output_tokens", "context_tokens", "context_limit", "cached_tokens", "queue_s")
    others = {name: value for name, value in keywords.items() if name not in own} | {"output_tokens": 0}

    # One by one, not as an array: these few cost less than numpy takes to load.
    def over(prompt: int) -> list[Estimate]:
        return [estimate(model, hardware, prompt_tokens=prompt, context_tokens=each, **others) for each in contexts]

    return Growth(over(0), over(MORE_TOKENS))


def _place_tables(model: str, hardware: str, keywords: Mapping[str, Any], estimates: Sequence[Estimate]) -> list[Table]:
    """Where the model lies for the longest prompt, what that costs, and what one more layer on the device would bring.

    A server keeps its placement from prompt to prompt, so the longest one decides.
    """
    from rooflinellm.api.estimate import estimate
    from rooflinellm.api.next_layer import next_layer
    from rooflinellm.summary import host_text, is_placed, place_table, placement_flags, placement_text

    last = max(estimates, key=lambda item: int(item.workload["prompt_tokens"]))
    if not is_placed(last):
        return []
    notes = []
    if placement_text(last.workload, len(last.model.layers)):
        prompt = f", for a prompt of {last.workload['prompt_tokens']:,}" if len(estimates) > 1 else ""
        flags = placement_flags(last.workload, last.engine)
        notes.append(f"{host_text(last)}{prompt}" + (f": {flags}" if flags else ""))
    others = {name: value for name, value in keywords.items() if name not in ("gpu_layers", "cpu_moe_layers")}
    ask = partial(estimate, model, hardware, prompt_tokens=last.workload["prompt_tokens"], **others)
    more = next_layer(last, ask)
    if more is not None:
        what = "the experts of one more layer" if more.experts else "one more layer"
        flags = placement_flags(more.estimate.workload, more.estimate.engine)
        but = {True: "", False: ", but it does not fit", None: ""}[more.fits]
        notes.append(f"{what} on the device{f' ({flags})' if flags else ''}: {100 * more.gain:+.1f} % decode{but}")
    return [replace(place_table(last), notes=notes)]


def _distinct(texts: Iterable[str]) -> list[str]:
    """Of several texts that begin with the same code, as in ``memory: …``, the last."""
    return list({text.partition(":")[0]: text for text in texts}.values())


def _tables(
    estimates: Sequence[Estimate], growth: Growth, keywords: Mapping[str, Any], verbose: bool, places: Sequence[Table]
) -> list[Table]:
    from rooflinellm.render import Table
    from rooflinellm.summary import LIMIT_NOTE, basis_text, estimate_table, growth_table, operator_table

    first = estimates[0]
    tables = [replace(estimate_table(estimates), notes=()), *places]
    if growth.decode:
        tables.append(growth_table(*growth))
    if verbose:
        for item in estimates:
            prompt = f"prompt {item.workload['prompt_tokens']:,} · "
            details = [operator_table(phase) for phase in (item.prefill, item.decode) if phase.time_s.expected > 0]
            tables += [replace(table, title=prompt + table.title) for table in details]
        said = dict.fromkeys(text for item in estimates for text in item.assumptions)
        tables.append(Table((), (), "assumptions", [f"- {text}" for text in said]))
    notes = [f"basis: {basis_text(first.decode.time_s.basis)}", LIMIT_NOTE]
    if replaced := keywords.get("overrides"):
        notes.append("what if: " + ", ".join(f"{path} = {value}" for path, value in replaced.items()))
    if places and not {"gpu_layers", "cpu_moe_layers"} & keywords.keys():
        notes.append("each row and each amount of context has the placement that suits it best")
    if not verbose:
        notes.append("every operator and assumption: -v")
    if any(item.memory.fits is False for item in estimates):
        notes.append("what would fit: rooflinellm fit, with the same model and hardware")
    checks = _check_it(estimates)
    if checks:
        notes.append("measure it yourself:")
    return [*tables, Table((), (), notes=notes, commands=checks)]


def _check_it(estimates: Sequence[Estimate]) -> list[str]:
    """The commands that measure the same on the real thing."""
    first = estimates[0]
    engine, _, _ = first.engine.partition(":")
    workload = first.workload
    lengths = ",".join(str(item.workload["prompt_tokens"]) for item in estimates if item.workload["prompt_tokens"])
    repository = next((alias for alias in first.model.aliases if "/" in alias), first.model.id)
    batch, context, steps = workload["batch"], workload["context_tokens"], max(workload["output_tokens"], 1)
    prompt = max(*(item.workload["prompt_tokens"] for item in estimates), 1)
    if engine == "llama.cpp":
        from rooflinellm.summary import placement_flags, weights_text

        keys, _, values = first.kv.partition("/")
        cache = "" if first.kv == "f16" else f" -ctk {keys} -ctv {values or keys}"
        longest = max(estimates, key=lambda item: int(item.workload["prompt_tokens"]))
        flags = placement_flags(longest.workload, longest.engine)
        file = f"-m {first.model.id}-{weights_text(first.weights)}.gguf{cache}{' ' if flags else ''}{flags}"
        if batch > 1:
            cells = batch * max(item.workload["context_limit"] for item in estimates)
            return [f"llama-batched-bench {file} -c {cells} -npp {lengths or 1} -ntg {steps} -npl {batch}"]
        depth = f" -d {context}" if context else ""
        depths = ",".join(str(context + item.workload["prompt_tokens"]) for item in estimates)
        prefill = [f"llama-bench {file} -p {lengths} -n 0{depth}"] if lengths else []
        return [*prefill, f"llama-bench {file} -p 0 -n {steps} -d {depths}"]
    if engine == "vllm":
        return [
            f"vllm bench latency --model {repository} --input-len {prompt} --output-len {steps} --batch-size {batch}"
        ]
    if engine == "mlx":
        return [f"mlx_lm.benchmark --model {repository} -p {prompt} -g {steps} -b {batch}"]
    return []


def _payload(
    estimates: Sequence[Estimate], growth: Growth, keywords: Mapping[str, Any], verbose: bool
) -> dict[str, Any]:
    results = []
    for item in estimates:
        result = item.to_dict()
        if replaced := keywords.get("overrides"):
            result["overrides"] = dict(replaced)
        if verbose:
            for phase in (item.prefill, item.decode):
                result[phase.name]["by_place"] = [place.to_dict() for place in phase.by_place]
                result[phase.name]["operators"] = [operator.to_dict() for operator in phase.operators]
        results.append(result)
    content = results[0] if len(results) == 1 else {"results": results}
    return {**content, "by_context": _by_context(growth)}


def _by_context(growth: Growth) -> list[dict[str, Any]]:
    """A row for each amount of context."""
    return [
        {
            "context_tokens": decode.workload["context_tokens"],
            "decode_tokens_per_s": decode.decode.tokens_per_s.to_dict(),
            "prefill_tokens_per_s": prefill.prefill.tokens_per_s.to_dict(),
            "kv_occupied_bytes": decode.memory.kv_occupied_bytes,
            "total_bytes": decode.memory.total_bytes,
            "fits": decode.memory.fits,
        }
        for decode, prefill in zip(growth.decode, growth.prefill, strict=True)
    ]
