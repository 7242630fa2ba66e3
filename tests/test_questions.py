"""The four questions: each block is made of estimates, the command shows the same, and one prompt is not enough."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.cli import main
from rooflinellm.errors import InvalidRequest

MODEL, CARD = "qwen3-8b", "rtx-4090"


def test_four_blocks_of_estimates() -> None:
    found = rl.questions(MODEL, CARD, prompts=[500, 20_000, 30_000], contexts=[0, 10_000], output_tokens=100)
    assert [item.workload["prompt_tokens"] for item in found.estimates] == [500, 20_000, 30_000]
    for item in found.estimates:
        one = rl.estimate(MODEL, CARD, prompt_tokens=item.workload["prompt_tokens"], output_tokens=100)
        assert item.to_dict() == one.to_dict()
    for at, context in enumerate((0, 10_000)):
        step = rl.estimate(MODEL, CARD, prompt_tokens=0, context_tokens=context, output_tokens=0)
        more = rl.estimate(MODEL, CARD, prompt_tokens=512, context_tokens=context, output_tokens=0)
        row = found.by_context.to_records()[at]
        assert row["context_tokens"] == context
        assert row["decode_tokens_per_s"] == step.decode.tokens_per_s.to_dict()
        assert row["prefill_tokens_per_s"] == more.prefill.tokens_per_s.to_dict()
        assert (row["kv_occupied_bytes"], row["fits"]) == (step.memory.kv_occupied_bytes, step.memory.fits)
    assert json.loads(found.to_json()) == found.to_dict()
    assert len(found.to_records()) == len(found.to_dataframe()) == 6
    assert found._repr_html_().count("<table") == 2


def test_contexts_go_from_empty_to_what_the_model_is_made_for() -> None:
    found = rl.questions(MODEL, CARD)
    contexts = [row["context_tokens"] for row in found.by_context.to_records()]
    assert contexts == [0, 4096, 16_384, 32_768, rl.model(MODEL).max_context_tokens]
    limited = rl.questions(MODEL, CARD, prompts=(512, 2048), context_limit=4096)
    assert [row["context_tokens"] for row in limited.by_context.to_records()] == [0, 512, 1024, 2048, 4096]


def test_the_command_shows_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", MODEL, CARD, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    found = rl.questions(MODEL, CARD).to_dict()
    assert shown["by_context"] == found["by_context"]
    assert [each["ttft_s"] for each in shown["results"]] == [each["ttft_s"] for each in found["results"]]


def test_one_prompt_length_is_not_enough() -> None:
    with pytest.warns(rl.RooflineWarning, match="prompts"):
        rl.questions(MODEL, CARD, prompts=[512], contexts=[0])


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        ({"prompts": []}, "prompts"),
        ({"prompts": 512}, "prompts"),
        ({"prompts": [0, 512]}, "prompts"),
        ({"contexts": [-1]}, "contexts"),
        ({"prompt_tokens": 512}, "prompt_tokens"),
        ({"batch": [1, 2]}, "batch"),
    ],
)
def test_impossible_requests_are_refused(request_: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        rl.questions(MODEL, CARD, **request_)
