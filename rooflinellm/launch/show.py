"""The command that checks an estimate on the real thing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.launch.written import llama_settings, phase_benches, write
from rooflinellm.results import Estimate

_OF_A_TEST = ("output_tokens", "context_tokens", "cached_tokens", "batch")


class Checks(NamedTuple):
    """Commands that measure what estimates predict.

    Attributes
    ----------
    commands : list of str
        What to type; empty where no command is known.
    notes : list of str
        What of the estimates no command says, or why there is none.
    """

    commands: list[str]
    notes: list[str]


def launch_command(estimate: Estimate) -> str:
    """The command that measures what an estimate predicts.

    Parameters
    ----------
    estimate : Estimate
        Of one request or batch; none of its arguments an array.

    Returns
    -------
    str
        For llama.cpp ``llama-bench``, ``llama-batched-bench`` for a batch, or ``llama-server`` where a model drafts;
        for vLLM ``vllm bench latency``; for MLX ``mlx_lm.benchmark``, or ``mlx_lm.generate`` where a model drafts.
        Where no repository of the model is known in the format, the model is named as such a file or folder is called.

    Raises
    ------
    InvalidRequest
        No command is known for the engine, or none that starts from such a cache.

    Warns
    -----
    RooflineWarning
        For each thing that the estimate counts and the command does not say, such as what drafts, and for a model of
        which no repository is known in the format.

    Notes
    -----
    `rooflinellm.from_command` reads the same workload out of it. Tokens of the prompt that were cached count as context
    before it, which takes the same time. Tensor parallelism of llama.cpp is its ``-sm tensor``, several devices without
    it ``-sm layer``. Options of an estimate, such as a cache on the host, are not in it.
    """
    command = write(estimate)
    for text in command.left_out:
        warnings.warn(text, RooflineWarning, stacklevel=2)
    return command.text


def launch_commands(estimates: Sequence[Estimate]) -> Checks:
    """The command of each estimate, each once; errors as in `launch_command`."""
    written = [write(item) for item in estimates]
    return _checks([item.text for item in written], [text for item in written for text in item.left_out])


def check_commands(estimates: Sequence[Estimate]) -> Checks:
    """Commands that measure both phases apart, over the prompt lengths of several estimates.

    Parameters
    ----------
    estimates : sequence of Estimate
        Of the same model, hardware and engine.
    """
    try:
        alike = len({tuple(item.workload[name] for name in _OF_A_TEST) for item in estimates}) == 1
        llama = estimates[0].engine.partition(":")[0] == "llama.cpp"
        if alike and llama and all(item.speculation is None for item in estimates):
            # A longer prompt may leave fewer layers on the device, and a command has one number of them.
            groups: dict[tuple[str, ...], list[Estimate]] = {}
            for item in estimates:
                groups.setdefault(llama_settings(item), []).append(item)
            notes = [text for item in estimates for text in write(item).left_out]
            return _checks([command for group in groups.values() for command in phase_benches(group)], notes)
        longest = max(estimates, key=lambda item: int(item.workload["prompt_tokens"]))
        return launch_commands([longest] if alike else estimates)
    except InvalidRequest as error:
        return Checks([], [error.message])


def _checks(commands: Sequence[str], notes: Sequence[str]) -> Checks:
    return Checks(list(dict.fromkeys(commands)), list(dict.fromkeys(notes)))
