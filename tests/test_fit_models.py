"""Which models fit: each in the best format that does, by the estimates that anyone can ask for."""

import csv
import io
import json
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.api.ladder import ladder
from rooflinellm.cli import main

LAPTOP = "rtx-4060-laptop + ddr5-5600x2@32GiB"
MODELS = ("qwen3-8b", "qwen3-0.6b", "qwen3-30b-a3b", "gpt-oss-20b", "qwen3-32b", "deepseek-v3", "phi-2")
CONTEXT = 16_384
FOUND = rl.fit_models(LAPTOP, models=MODELS, context_limit=CONTEXT)


def asked(model: str, weights: str, **changed: Any) -> Any:
    request = {"prompt_tokens": 512, "output_tokens": 0, "context_tokens": CONTEXT - 512, "context_limit": CONTEXT}
    return rl.estimate(model, LAPTOP, weights=weights, **{**request, **changed})


@pytest.mark.filterwarnings("ignore::rooflinellm.RooflineWarning")
def test_each_model_has_the_best_format_that_is_all_on_the_device() -> None:
    here = {each.model.id: each.estimate.weights for each in FOUND.met if each.on_devices}
    best = {}
    for model in ("qwen3-8b", "qwen3-0.6b", "qwen3-30b-a3b", "gpt-oss-20b", "qwen3-32b"):
        steps = [step for step in ladder(rl.model(model), ("gguf",)) if step.bits_per_weight >= 4]
        layers = len(rl.model(model).layers)
        fitting = (step.weights for step in steps if asked(model, step.weights, gpu_layers=layers + 1).memory.fits)
        if (weights := next(fitting, None)) is not None:
            best[model] = weights
    assert here == best
    assert set(here) == {"qwen3-8b", "qwen3-0.6b"}


def test_others_leave_a_part_on_the_host_and_the_rest_is_counted() -> None:
    hosted = {each.model.id: each for each in FOUND.met if not each.on_devices}
    assert set(hosted) == {"qwen3-30b-a3b", "gpt-oss-20b", "qwen3-32b"}
    assert hosted["gpt-oss-20b"].estimate.weights == "gguf:mxfp4"
    for name, each in hosted.items():
        again = asked(name, each.estimate.weights)
        assert again.decode.tokens_per_s == each.estimate.decode.tokens_per_s
        assert again.memory.fits and again.workload["gpu_layers"] is not None
    assert (FOUND.too_large, FOUND.too_short, FOUND.not_run) == (("deepseek-v3",), ("phi-2",), ())
    assert FOUND.models == len(MODELS)


def test_the_largest_come_first_on_the_device_and_the_fastest_with_the_host() -> None:
    here = [each.model.total_params for each in FOUND.met if each.on_devices]
    hosted = [each.estimate.decode.tokens_per_s.expected for each in FOUND.met if not each.on_devices]
    assert here == sorted(here, reverse=True) and hosted == sorted(hosted, reverse=True)
    assert [each.on_devices for each in FOUND.met] == sorted((each.on_devices for each in FOUND.met), reverse=True)


def test_tables_show_so_many_and_count_the_rest() -> None:
    here, hosted, notes = FOUND.tables(most=1)
    assert (len(here.rows), len(hosted.rows)) == (1, 1)
    assert "1 more: -v" in here.notes and "2 more: -v" in hosted.notes
    assert here.answer == "5 of 7 models fit"
    assert {"1 more do not fit", "1 more are made for less than 16k of context"} <= set(notes.notes)
    assert "qwen3-8b" in str(FOUND) and repr(FOUND).endswith("5 of 7 models at 16,384 tokens)")


def test_without_a_host_nothing_is_left_there() -> None:
    found = rl.fit_models("rtx-4060-laptop", models=MODELS, context_limit=CONTEXT)
    assert {each.model.id for each in found.met} == {"qwen3-8b", "qwen3-0.6b"}
    assert "gpt-oss-20b" in found.too_large
    (only,) = rl.fit_models("rtx-4060-laptop", models=["qwen3-8b"], weights="Q3_K_M").met
    assert only.estimate.weights == "gguf:q3_k_m"


def test_engines_that_share_layers_do_so_over_several_devices() -> None:
    (only,) = rl.fit_models("2x rtx-4090", models=["qwen3-8b"], engine="vllm").met
    assert only.estimate.workload["tensor_parallel"] == 2
    assert not rl.fit_models("2x rtx-4090", models=["deepseek-v3"], engine="vllm")


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"query": "no such model"}, "no model is found"),
        ({"models": []}, "no model is found"),
        ({"models": ["qwen3-8b"], "kv": "q9"}, "q9"),
        ({"gpu_layers": 3}, "gpu_layers"),
        ({"context_limit": 0}, "context_limit"),
        ({"prompt_tokens": 10_000}, "prompt_tokens"),
        ({"min_bits_per_weight": -1}, "min_bits_per_weight"),
    ],
)
def test_what_is_not_possible_is_refused(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(rl.RooflineError, match=said):
        rl.fit_models("rtx-4090", **keywords)
    with pytest.raises(rl.InvalidRequest, match="how much memory"):
        rl.fit_models("7950x")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["fit", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def test_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    code, out, err = run(capsys, "--all", "qwen3-30b", LAPTOP, "--context", "16k")
    assert (code, err) == (0, "")
    assert "a part on the host" in out and "qwen3-30b-a3b" in out and "experts" in out
    _, out, _ = run(capsys, "--all", "qwen3-8b", "rtx-4090", "--json")
    found = json.loads(out)
    (qwen,) = (each for each in found["met"] if each["model"] == "qwen3-8b")
    assert qwen["on_devices"] is True
    assert set(qwen["ttft_s"]) == {"ideal", "expected", "low", "high"}
    _, out, _ = run(capsys, "--all", "qwen3-8b", "rtx-4090", "-f", "csv")
    row = next(csv.DictReader(io.StringIO(out)))
    assert float(row["decode_tokens_per_s_low"]) <= float(row["decode_tokens_per_s_expected"])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--all", "deepseek-v3.1", "rtx-4090"), 1, ""),
        (("--all", "nothing-at-all", "rtx-4090"), 2, "MODEL: no model is found"),
        (("--all", "a", "b", "c"), 2, "unexpected extra argument"),
        (("llama-3.1-8b",), 2, "HARDWARE: missing behind llama-3.1-8b"),
        (("llama-3.1-8b", "rtx-4090", "--min-bits", "3"), 2, "--min-bits: only with --all"),
        (("--all", "qwen3-8b", "rtx-4090", "--gpu-layers", "3"), 2, "--gpu-layers:"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str) -> None:
    found, _, err = run(capsys, *arguments)
    assert found == code and said in err
