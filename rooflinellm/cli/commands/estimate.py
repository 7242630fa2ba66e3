"""`estimate`: the four questions, on one screen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.inputs import LENGTHS, PLACING, as_typed, subcommand, workload_options
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.prompts import asked_warnings, default_prompts
from rooflinellm.cli.terminal import say

if TYPE_CHECKING:
    from rooflinellm.api.questions import ByContext
    from rooflinellm.render import Table
    from rooflinellm.results import Estimate

SHOWN = ("placement: ", "weights: ", "engine: ")
"""How the assumptions begin that the screen says without being asked."""
TESTED = ("prompt_tokens", "output_tokens", "context_tokens", "batch")
"""What differs between the tests of a benchmark's command."""


@subcommand(
    "estimate llama-3.1-8b rtx-4090 --weights Q4_K_M",
    "estimate qwen3-30b-a3b m3-max-40c@64GiB --prompt 2k,32k --kv q8_0",
    "estimate llama-3.3-70b '2x rtx-3090' --context 16k -v",
    "estimate gpt-oss-20b rtx-4090 --set hardware.memory.bandwidth_gb_s=1100 --json",
    "estimate rtx-4090 --from 'llama-server -m qwen3-8b-Q4_K_M.gguf -c 32768'",
)
@click.argument("names", nargs=-1, required=True, metavar="[MODEL] HARDWARE")
@click.option(
    *("-p", "--prompt", "prompts"),
    type=LENGTHS,
    metavar="N,N",
    help="Lengths of the prompt; 8k is 8192, as everywhere.  [default: 512,8192]",
)
@click.option("--from", "launch", metavar="COMMAND", help="Model and settings of a launch command.")
@click.option("--show-command", is_flag=True, help="Show only the command that would measure it.")
@workload_options(
    *("weights", "kv", "engine", "output_tokens", "batch", "context_tokens", "context_limit", "cached_tokens"),
    *("prefill_chunk", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"),
    *(*PLACING, "draft", "draft_tokens", "acceptance", "queue_s"),
)
@click.option("--profile", metavar="NAME", help="Efficiency profile to prefer, or its file: see calibrate.")
@click.option("-v", "--verbose", is_flag=True, help="Add every operator and every assumption.")
@output_options
def command(
    names: Sequence[str],
    prompts: Sequence[int] | None,
    launch: str | None,
    show_command: bool,
    keywords: dict[str, Any],
    profile: str | None,
    verbose: bool,
    output: Output,
) -> None:
    """Speed of prefill, first token and decode; does it fit.

    One row for each prompt length, then how both phases slow down as the context fills. MODEL may be left to the
    command of --from (llama.cpp, vLLM or MLX); options go before what it says.
    """
    from rooflinellm.api.questions import ByContext, by_context
    from rooflinellm.errors import RooflineWarning

    model, hardware, keywords = _asked(names, launch, keywords)
    if profile is not None:
        from dataclasses import replace

        from rooflinellm.api.options import Options

        keywords["options"] = replace(keywords.get("options") or Options(), profile=profile)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)  # said below, once for all prompt lengths
        typed = keywords if prompts is None else {**keywords, "prompt_tokens": prompts}
        if prompts is None and "prompt_tokens" not in keywords:
            prompts = default_prompts(model, keywords)
        cases = _cases(prompts, keywords)
        estimates = _estimates(model, hardware, cases)
        if show_command:
            _show_commands(estimates, output)
            return
        growth = ByContext() if output.form == "csv" else by_context(model, hardware, **cases[0])
    said = (text for item in estimates for text in item.warnings)
    for text in _distinct(asked_warnings(said, model, typed)):
        say("warning", as_typed(text))
    output.write(
        tables=lambda: _tables(
            estimates, growth, keywords, verbose, _place_tables(model, hardware, keywords, estimates)
        ),
        payload=lambda: _payload(estimates, growth, keywords, verbose),
        records=lambda: [item.to_dict() for item in estimates],
    )


def _asked(names: Sequence[str], launch: str | None, keywords: dict[str, Any]) -> tuple[Any, str, dict[str, Any]]:
    """Model, hardware and keywords, of what was typed and of a launch command."""
    if len(names) > 2:
        raise click.UsageError(f"Got unexpected extra argument ({names[2]})")
    if launch is None:
        if len(names) < 2:
            raise click.UsageError(f"HARDWARE: missing behind {names[0]}; or name a command with --from")
        return names[0], names[1], keywords
    from rooflinellm.launch.command import from_command

    found = from_command(launch, names[0] if len(names) == 2 else None)
    for text in found.assumptions:
        say("note", text)
    return found.model, names[-1], {**found.keywords, **keywords}


def _estimates(model: Any, hardware: str, cases: Iterable[Mapping[str, Any]]) -> list[Estimate]:
    from rooflinellm.api.estimate import estimate

    return [estimate(model, hardware, **case) for case in cases]


def _cases(prompts: Sequence[int] | None, keywords: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Keywords of each estimate: the tests of a benchmark's command one by one, or the prompt lengths."""
    lists = {name: value for name, value in keywords.items() if isinstance(value, list) and name in TESTED}
    points = [dict(zip(lists, point, strict=True)) for point in zip(*lists.values(), strict=True)] or [{}]
    if prompts is not None:
        points = [{**point, "prompt_tokens": prompt} for point in points for prompt in prompts]
    return [{**keywords, **point} for index, point in enumerate(points) if point not in points[:index]]


def _show_commands(estimates: Sequence[Estimate], output: Output) -> None:
    """Only the commands that measure the same, to be copied or piped."""
    from rooflinellm.launch.show import launch_commands
    from rooflinellm.render import Table

    shown, left_out = launch_commands(estimates)
    for text in left_out:
        say("note", as_typed(text))
    if output.form == "table":
        click.echo("\n".join(shown))
        return
    output.write(
        tables=lambda: [Table((), (), commands=shown)],
        payload=lambda: {"commands": shown},
        records=lambda: [{"command": each} for each in shown],
    )


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
    estimates: Sequence[Estimate],
    growth: ByContext,
    keywords: Mapping[str, Any],
    verbose: bool,
    places: Sequence[Table],
) -> list[Table]:
    from rooflinellm.launch.show import check_commands
    from rooflinellm.render import Table
    from rooflinellm.summary import bases_text, estimate_table, operator_table, request_notes

    tables = [replace(estimate_table(estimates), notes=()), *places]
    if growth.decode:
        tables.append(growth.table())
    if verbose:
        for item in estimates:
            prompt = f"prompt {item.workload['prompt_tokens']:,} · "
            details = [operator_table(phase) for phase in (item.prefill, item.decode) if phase.time_s.expected > 0]
            tables += [replace(table, title=prompt + table.title) for table in details]
        said = dict.fromkeys(text for item in estimates for text in item.assumptions)
        tables.append(Table((), (), "assumptions", [f"- {text}" for text in said]))
    chosen = dict.fromkeys(text for item in estimates for text in item.assumptions if text.startswith(SHOWN))
    notes = [*request_notes(estimates), f"basis: {bases_text(estimates)}", *_distinct(chosen)]
    if replaced := keywords.get("overrides"):
        notes.append("what if: " + ", ".join(f"{path} = {value}" for path, value in replaced.items()))
    if places and not {"gpu_layers", "cpu_moe_layers"} & keywords.keys():
        notes.append("each row and each amount of context has the placement that suits it best")
    if not verbose:
        notes.append("every operator and assumption: -v")
    if any(item.memory.fits is False for item in estimates):
        notes.append("what would fit: rooflinellm fit, with the same model and hardware")
    checks, left_out = check_commands(estimates)
    unsaid = list(map(as_typed, left_out))
    notes += [*unsaid, "measure it yourself:"] if checks else [f"measure it yourself: {text}" for text in unsaid]
    return [*tables, Table((), (), notes=notes, commands=checks)]


def _payload(
    estimates: Sequence[Estimate], growth: ByContext, keywords: Mapping[str, Any], verbose: bool
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
    return {**content, "by_context": growth.to_records()}
