"""Commands that measure what an estimate predicts, word by word, for each engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rooflinellm import catalog
from rooflinellm._numeric import is_array
from rooflinellm.errors import InvalidRequest
from rooflinellm.launch.llama import BATCH_TOKENS
from rooflinellm.launch.repositories import DTYPES, gguf_name, repository
from rooflinellm.results import Estimate

WHERE = "launch_command"
ALL_LAYERS = 99
"""More layers than models have, as people write it."""


class Written(NamedTuple):
    """A command.

    Attributes
    ----------
    text : str
        What to type.
    left_out : tuple of str
        What of the estimate it does not say, and what is to be put in its place.
    """

    text: str
    left_out: tuple[str, ...] = ()


class BenchTest(NamedTuple):
    """What a benchmark runs: tokens of the prompt that were cached are context before it, which takes the same time.

    Of a prompt that was cached whole the last token is computed, as in the estimate.
    """

    prompt: int
    output: int
    before: int


def bench_test(estimate: Estimate) -> BenchTest:
    """The test of an estimate."""
    workload = estimate.workload
    prompt = workload["prompt_tokens"]
    cached = min(workload["cached_tokens"], max(prompt - 1, 0))
    return BenchTest(prompt - cached, workload["output_tokens"], workload["context_tokens"] + cached)


def write(estimate: Estimate) -> Written:
    """The command that measures an estimate; errors as in `rooflinellm.launch_command`."""
    engine = estimate.engine.partition(":")[0]
    if engine not in _WRITERS:
        raise InvalidRequest(
            f"no command known for {engine}", where=WHERE, next_step=f"Known are {', '.join(_WRITERS)}."
        )
    arrays = [name for name, value in estimate.workload.items() if is_array(value)]
    if arrays:
        raise InvalidRequest(
            f"a command measures one case; arrays are {', '.join(arrays)}",
            where=WHERE,
            next_step="Estimate one of them.",
        )
    return _WRITERS[engine](estimate)


def phase_benches(estimates: Sequence[Estimate]) -> list[str]:
    """Commands of llama.cpp for the phases apart, over tests of the same settings that differ in their prompts."""
    first, tests = estimates[0], [bench_test(item) for item in estimates]
    batch, steps = first.workload["batch"], max(tests[0].output, 1)
    model = " ".join(_llama_settings(first))
    if batch > 1:
        cells = batch * max(item.workload["context_limit"] for item in estimates)
        lengths = ",".join(str(test.prompt) for test in tests if test.prompt)
        return [f"llama-batched-bench {model} -c {cells} -npp {lengths or 1} -ntg {steps} -npl {batch}"]
    prompts: dict[int, list[str]] = {}
    for test in tests:
        if test.prompt:
            prompts.setdefault(test.before, []).append(str(test.prompt))
    depths = ",".join(str(test.before + test.prompt) for test in tests)
    return [
        *(
            f"llama-bench {model} -p {','.join(lengths)} -n 0" + (f" -d {before}" if before else "")
            for before, lengths in prompts.items()
        ),
        f"llama-bench {model} -p 0 -n {steps} -d {depths}",
    ]


def llama_settings(estimate: Estimate) -> tuple[str, ...]:
    """All flags of llama.cpp but those of the lengths; estimates with the same can share a command."""
    return tuple(_llama_settings(estimate))


def _llama_settings(estimate: Estimate) -> list[str]:
    """Model, placement, type of the cache, tokens that pass at once, and how devices share the work."""
    workload = estimate.workload
    layers = workload["gpu_layers"]
    if layers is None and estimate.hardware.device.kind != "cpu":
        layers = ALL_LAYERS
    words = ["-m", gguf_name(estimate.model, estimate.weights)]
    words += [] if layers is None else ["-ngl", str(layers)]
    if workload["cpu_moe_layers"]:
        words += ["-ncmoe", str(workload["cpu_moe_layers"])]
    if estimate.kv != "f16":
        keys, _, values = estimate.kv.partition("/")
        words += ["-ctk", keys, "-ctv", values or keys]
    chunk = workload["prefill_chunk"]
    if chunk is not None:
        words += [*(["-b", str(chunk)] if chunk > BATCH_TOKENS else []), "-ub", str(chunk)]
    tensor = workload.get("tensor_parallel", 1)
    if tensor > 1:  # the shares say how many devices there are, which the mode does not
        words += ["-sm", "tensor", "-ts", "/".join("1" * tensor)]
    elif estimate.hardware.device_count > 1:
        words += ["-sm", "layer"]
    return [*words, "-fa", "1"]


def _degrees(estimate: Estimate, *names: str) -> Iterator[str]:
    """Degrees of parallelism that a program has no flag for."""
    for name in names:
        if (degree := estimate.workload.get(name, 1)) > 1:
            yield f"the command has no flag for {name}={degree}"


def _llama_left_out(estimate: Estimate) -> list[str]:
    tensor = estimate.workload.get("tensor_parallel", 1)
    # Layers in a row are what llama.cpp does by itself, but not beside layers that are shared.
    names = ("expert_parallel", "data_parallel", *(("pipeline_parallel",) if tensor > 1 else ()))
    return list(_degrees(estimate, *names))


def _llama(estimate: Estimate) -> Written:
    drafts = estimate.speculation
    if drafts is not None and drafts.draft_model is not None:
        return _llama_server(estimate)
    batch = estimate.workload["batch"]
    prompt, output, before = bench_test(estimate)
    settings, left_out = _llama_settings(estimate), [*_llama_left_out(estimate), *_without_drafts(estimate)]
    if batch > 1:
        if before or not prompt:
            raise _from_nothing("llama-batched-bench")
        cells = batch * estimate.workload["context_limit"]
        lengths = ["-c", cells, "-npp", prompt, "-ntg", output, "-npl", batch]
        return _written(["llama-batched-bench", *settings, *lengths], left_out)
    lengths = ["-p", prompt, "-n", 0 if prompt else max(output, 1)]
    if prompt and output:
        lengths += ["-pg", f"{prompt},{output}"]
    return _written(["llama-bench", *settings, *lengths, "-d", before], left_out)


def _llama_server(estimate: Estimate) -> Written:
    """The server with a draft model, since llama.cpp's benchmarks draft nothing."""
    workload, drafts = estimate.workload, estimate.speculation
    words = ["llama-server", *_llama_settings(estimate), "-c", workload["batch"] * workload["context_limit"]]
    words += ["-np", workload["batch"], "-md", gguf_name(drafts.draft_model, drafts.draft_weights)]
    words += ["--spec-draft-n-max", drafts.draft_tokens]
    left_out = [*_llama_left_out(estimate), _lengths_text(estimate, "send the server"), _acceptance_text(estimate)]
    return _written(words, left_out)


def _vllm(estimate: Estimate) -> Written:
    workload, drafts = estimate.workload, estimate.speculation
    _starts_empty(estimate, "vllm bench latency")
    model, own, left_out = repository(estimate.model, estimate.weights, "vllm")
    words: list[Any] = ["vllm", "bench", "latency", "--model", model, *own]
    words += ["--input-len", workload["prompt_tokens"], "--output-len", workload["output_tokens"]]
    words += ["--batch-size", workload["batch"], "--max-model-len", workload["context_limit"]]
    if estimate.kv != catalog.engine("vllm")[0].kv.default:
        words += ["--kv-cache-dtype", DTYPES.get({"f16": "fp16"}.get(estimate.kv, estimate.kv), estimate.kv)]
    if workload["prefill_chunk"] is not None:
        words += ["--max-num-batched-tokens", workload["prefill_chunk"]]
    degrees = {name: workload.get(f"{name}_parallel", 1) for name in ("tensor", "pipeline", "data", "expert")}
    for flag, name in (("-tp", "tensor"), ("-pp", "pipeline"), ("-dp", "data")):
        words += [flag, degrees[name]] if degrees[name] > 1 else []
    if degrees["expert"] > 1:
        words.append("--enable-expert-parallel")
    said = [*left_out]
    if degrees["expert"] not in (1, degrees["tensor"] * degrees["data"]):
        said += _degrees(estimate, "expert_parallel")
    if drafts is not None and drafts.draft_model is not None:
        draft, _, unknown = repository(drafts.draft_model, drafts.draft_weights, "vllm")
        config = {"method": "draft_model", "model": draft, "num_speculative_tokens": drafts.draft_tokens}
        words += ["--speculative-config", shlex.quote(json.dumps(config))]
        said += [*unknown, _acceptance_text(estimate)]
    return _written(words, [*said, *_without_drafts(estimate)])


def _mlx(estimate: Estimate) -> Written:
    workload, drafts, engine = estimate.workload, estimate.speculation, catalog.engine("mlx")[0]
    _starts_empty(estimate, "mlx_lm.benchmark")
    if estimate.kv != engine.kv.default or workload["prefill_chunk"] not in (None, engine.prefill_chunk):
        raise InvalidRequest(
            "mlx_lm.benchmark has no flag for the type of the cache or for the tokens that pass at once",
            where=WHERE,
            next_step="Leave kv and prefill_chunk out.",
        )
    model, _, left_out = repository(estimate.model, estimate.weights, "mlx")
    if drafts is not None and drafts.draft_model is not None and workload["batch"] == 1:
        draft, _, unknown = repository(drafts.draft_model, drafts.draft_weights, "mlx")
        words = ["mlx_lm.generate", "--model", model, "--draft-model", draft]
        words += ["--num-draft-tokens", drafts.draft_tokens, "-m", workload["output_tokens"]]
        said = [*left_out, *unknown, _lengths_text(estimate, "give it"), _acceptance_text(estimate)]
        return _written(words, said)
    words = ["-p", workload["prompt_tokens"], "-g", workload["output_tokens"], "-b", workload["batch"]]
    without = _without_drafts(estimate, any_kind=True)
    return _written(["mlx_lm.benchmark", "--model", model, *words], [*left_out, *without])


_WRITERS: dict[str, Callable[[Estimate], Written]] = {"llama.cpp": _llama, "vllm": _vllm, "mlx": _mlx}


def _written(words: Sequence[Any], left_out: Sequence[str]) -> Written:
    return Written(" ".join(map(str, words)), tuple(left_out))


def _without_drafts(estimate: Estimate, *, any_kind: bool = False) -> Iterator[str]:
    """That a command measures without drafts, where what drafts is no model of its own (or whatever it is)."""
    drafts = estimate.speculation
    if drafts is not None and (any_kind or drafts.draft_model is None):
        yield (
            f"the command measures without speculation ({drafts.draft}, {drafts.draft_tokens} tokens drafted a cycle)"
        )


def _lengths_text(estimate: Estimate, how: str) -> str:
    workload = estimate.workload
    prompt, output = workload["prompt_tokens"], workload["output_tokens"]
    return f"the command does not say the lengths: {how} a prompt of {prompt:,} tokens and ask for {output:,}"


def _acceptance_text(estimate: Estimate) -> str:
    return (
        "how many drafts are accepted depends on the text: the estimate counts "
        f"{estimate.speculation.tokens_per_cycle:.2f} tokens a cycle"
    )


def _starts_empty(estimate: Estimate, program: str) -> None:
    workload = estimate.workload
    if workload["context_tokens"] or workload["cached_tokens"] or not workload["prompt_tokens"]:
        raise _from_nothing(program)
    if not workload["output_tokens"]:
        raise InvalidRequest(
            f"{program} measures an answer of at least one token", where=WHERE, next_step="Ask for output."
        )


def _from_nothing(program: str) -> InvalidRequest:
    return InvalidRequest(
        f"no command known: {program} starts from a prompt and an empty cache",
        where=WHERE,
        next_step="Ask for a prompt, with no context or cached tokens before it.",
    )
