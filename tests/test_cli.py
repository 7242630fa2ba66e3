"""The command line: answers in every format, exit codes, and no traceback whatever is typed."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

import rooflinellm as rl
from rooflinellm.api.lint import lint_hardware, lint_models
from rooflinellm.api.lists import data_version, list_formats, list_hardware, list_models
from rooflinellm.cli import main
from rooflinellm.cli.app import program
from rooflinellm.cli.axes import Over
from rooflinellm.cli.inputs import COUNT, COUNTS, LENGTHS, as_typed
from rooflinellm.errors import RooflineWarning
from rooflinellm.render import Column, Table
from rooflinellm.summary import estimate_table, growth_table, operator_table, tokens_text

ROOT = Path(__file__).resolve().parents[1]
FORMATS = ("table", "md", "json", "csv")
CARD = (ROOT / "hardware_db/devices/nvidia/nvidia-geforce-rtx-4090.yaml").read_text(encoding="utf-8")
FASTER = "precision: fp16, accumulate: fp32, unit: matrix, tflops: 400"
AD_HOC = "24GiB,1000GB/s,100TFLOP/s@fp16,200TFLOP/s@int8"


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} in JSON")

        return json.loads(self.out, parse_constant=refuse)


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Answer:
        code = main(arguments)
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(code, captured.out, captured.err)


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ROOFLINELLM_PATH", "ROOFLINELLM_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def program_in_new_process(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONUTF8": "0", **settings}
    return subprocess.run(
        [sys.executable, "-m", "rooflinellm", *arguments], env=environment, capture_output=True, text=True, check=False
    )


# --- estimate


def test_the_first_screen_answers_the_four_questions(run: Run) -> None:
    answer = run("estimate", "llama-3.1-8b", "rtx-4090", "--weights", "Q4_K_M")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("Llama 3.1 8B · Q4_K_M · RTX 4090 · llama.cpp cuda")
    assert re.search(r"fits: [\d.]+ of [\d.]+ GiB at 8,448 tokens$", lines[0])
    assert [line.split()[0] for line in lines[3:5]] == ["512", "8,192"]
    (growing,) = [line for line in lines if line.startswith("as the context fills")]
    assert growing.split()[4:] == ["0", "4k", "16k", "32k", "64k", "128k"]
    assert "basis: calibrated" in answer.out
    assert "llama-bench" in answer.out


def test_the_screen_shows_the_numbers_of_the_library(run: Run) -> None:
    answer = run("estimate", "llama-3.1-8b", "rtx-4090", "--prompt", "1k", "--json").json()
    expected = rl.estimate("llama-3.1-8b", "rtx-4090", prompt_tokens=1024).to_dict()
    assert {key: answer[key] for key in expected} == json.loads(json.dumps(expected))
    assert {"schema_version", "rooflinellm_version", "data_version"} <= answer.keys()
    assert list(answer)[:3] == ["schema_version", "rooflinellm_version", "data_version"]


def test_json_with_several_prompts(run: Run) -> None:
    answer = run("estimate", "llama-3.1-8b", "rtx-4090", "--json").json()
    assert [result["workload"]["prompt_tokens"] for result in answer["results"]] == [512, 8192]
    assert "prefill" not in answer
    for result in answer["results"]:
        for phase in ("prefill", "decode"):
            rate = result[phase]["tokens_per_s"]
            assert 0 < rate["low"] <= rate["expected"] <= rate["high"] <= rate["ideal"]
    rates = [row["decode_tokens_per_s"]["expected"] for row in answer["by_context"]]
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == len(rates)


def test_verbose_adds_operators_and_assumptions(run: Run) -> None:
    short, long = (run("estimate", "llama-3.1-8b", AD_HOC, *more) for more in ((), ("-v",)))
    assert "FFN gate and up" not in short.out
    assert "FFN gate and up" in long.out
    assert "\nassumptions\n" in long.out
    answer = run("estimate", "llama-3.1-8b", AD_HOC, "-v", "--json", "-p", "512").json()
    assert sum(row["share_of_expected"] for row in answer["decode"]["operators"]) == pytest.approx(1)


def test_csv_has_a_line_for_each_prompt(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("estimate", "llama-3.1-8b", AD_HOC, "--format", "csv").out)))
    assert [row["workload.prompt_tokens"] for row in rows] == ["512", "8192"]
    assert float(rows[0]["decode.tokens_per_s.expected"]) > 0
    assert rows[0]["memory.fits"] == "true"


def test_markdown_is_a_table(run: Run) -> None:
    lines = run("estimate", "llama-3.1-8b", AD_HOC, "--format", "md").out.splitlines()
    heading = next(index for index, line in enumerate(lines) if line.startswith("| prompt"))
    assert set(lines[heading + 1]) <= set("|-: ")
    assert {line.count("|") for line in lines[heading : heading + 4]} == {lines[heading].count("|")}


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize(
    "arguments",
    [
        ("estimate", "llama-3.1-8b", "rtx-4090", "-v"),
        ("estimate", "llama-3.1-8b", "rtx-4090", "--batch", "8"),
        ("fit", "llama-3.1-8b", "rtx-4090"),
        ("hardware", "show", "rtx-4090"),
        ("hardware", "list", "rtx"),
        ("model", "show", "llama-3.1-8b"),
        ("format", "show", "q4_k_m"),
    ],
)
def test_nothing_is_wider_than_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    commands = ("  llama-bench", "  llama-batched-bench")  # to be copied, so never wrapped
    words = 60  # a name or an address that is longer than the terminal is not broken
    lines = [line for line in run(*arguments).out.splitlines() if not line.startswith(commands)]
    assert [line for line in lines if len(line) > width and max(map(len, line.split())) < words] == []


def test_batches_show_the_sum_of_all(run: Run) -> None:
    answer = run("estimate", "llama-3.1-8b", "rtx-4090", "--batch", "8", "-p", "512")
    assert "all 8" in answer.out
    assert "llama-batched-bench" in answer.out


def test_a_prompt_of_nothing_is_decode_only(run: Run) -> None:
    answer = run("estimate", "llama-3.1-8b", AD_HOC, "-p", "0")
    assert answer.code == 0
    assert "prefill ─" not in answer.out


def test_values_can_be_replaced(run: Run) -> None:
    path = "hardware.memory.bandwidth_gb_s"
    rates = [
        run("estimate", "llama-3.1-8b", "rtx-4090", "-p", "512", "--json", "--set", f"{path}={value}").json()["decode"][
            "tokens_per_s"
        ]["expected"]
        for value in ("504", "1008")
    ]
    assert rates[1] > 1.5 * rates[0]
    shown = run("estimate", "llama-3.1-8b", "rtx-4090", "--set", f"{path}=504").out
    assert f"what if: {path} = 504" in shown


def test_programs_get_an_empty_list_where_nothing_is_called_so(run: Run) -> None:
    answer = run("hardware", "list", "steam deck", "--json")
    assert answer.code == 2
    assert answer.json()["hardware"] == []


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (("estimate", "qwen3-32b", "rtx-5090", "--context", "32768"), False),
        (("estimate", "qwen3-32b", "rtx-5090", "--context", "32768", "-p", "8704"), True),
        (("estimate", "qwen3-32b", "rtx-5090", "--context", "40960"), False),
        (("estimate", "qwen3-32b", "rtx-5090", "--context", "40961"), True),
        (("compare", "qwen3-32b", "rtx-5090", "--context", "32768"), False),
        (("compare", "qwen3-32b", "rtx-5090", "--context", "32768", "-p", "8704"), True),
        (("sweep", "qwen3-32b", "rtx-5090", "--over", "context=0:40960:3"), False),
        (("sweep", "qwen3-32b", "rtx-5090", "--over", "context=0:40960:3", "-p", "1"), True),
        (("sensitivity", "qwen3-32b", "rtx-5090", "--context", "40960", "--no-swaps"), False),
    ],
)
def test_only_lengths_that_were_typed_are_too_long(run: Run, arguments: tuple[str, ...], warned: bool) -> None:
    """qwen3-32b is made for 40,960 tokens; the prompts and answers that nobody asked for are no one's mistake."""
    answer = run(*arguments)
    assert answer.code == 0
    assert ("tokens are beyond" in answer.err) is warned


def test_prompts_that_nobody_asked_for_are_those_that_fit(run: Run) -> None:
    for command in ("estimate", "compare"):
        answer = run(command, "qwen3-32b", "rtx-5090", "--context", "32768")
        assert re.search(r"\b512\b", answer.out)
        assert not re.search(r"\b8,192\b", answer.out)


TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(("file", "id_"), [("tiny.yaml", "tiny"), ("My Tiny.yaml", "llama-2x")])
def test_an_imported_model_has_the_name_of_its_file(run: Run, tmp_path: Path, file: str, id_: str) -> None:
    source = tmp_path / "llama-2x"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(TINY))
    answer = run("model", "import", str(source), "-o", str(tmp_path / file))
    assert answer.code == 0
    assert f"its id is {id_}" in answer.err
    assert f"id: {id_}\n" in (tmp_path / file).read_text()
    assert run("model", "lint", str(tmp_path / file)).code == (0 if id_ == "tiny" else 3)


def test_warnings_are_said_once_and_are_in_the_answer(run: Run) -> None:
    answer = run("estimate", "llama-3.3-70b", "rtx-4090", "--json")
    assert answer.code == 0
    assert answer.err.count("warning: ") == 1
    assert "does not fit" in answer.err
    assert ".py" not in answer.err
    assert all("does not fit" in result["warnings"][0] for result in answer.json()["results"])


@pytest.mark.parametrize(
    ("engine", "command"), [("llama.cpp", "llama-bench -m llama-3.1-8b-Q4_K_M.gguf"), ("vllm", "vllm bench latency")]
)
def test_how_to_measure_it(run: Run, engine: str, command: str) -> None:
    assert command in run("estimate", "llama-3.1-8b", "rtx-4090", "--engine", engine).out


def test_a_cache_type_is_passed_on_to_the_measurement(run: Run) -> None:
    assert "-ctk q8_0 -ctv f16" in run("estimate", "llama-3.1-8b", "rtx-4090", "--kv", "q8_0/f16").out


# --- numbers as people type them


@pytest.mark.parametrize(
    ("text", "count"),
    [("512", 512), ("8k", 8192), ("128K", 131072), ("1m", 1048576), ("1.5k", 1536), ("8_192", 8192), ("-5", -5)],
)
def test_counts(text: str, count: int) -> None:
    assert COUNT.convert(text, None, None) == count
    assert COUNTS.convert(f"{text},{text},7", None, None) == (count, 7)


@pytest.mark.parametrize(
    "text", ["", "k", "1.5", "1e3", "0x10", "٣", "8kk", "8 k", "1__0", "nan", "inf", "9" * 50 + ".5", "5,"]
)
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no whole number"):
        COUNTS.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("512,8192", (512, 8192)),
        ("128,512", (128, 512)),
        ("64,128,256", (64, 128, 256)),
        ("0,512", (0, 512)),
        ("8, 192", (8, 192)),
        ("131,072", (131072,)),
        ("1,000", (1000,)),
        ("1,048,576", (1048576,)),
    ],
)
def test_lengths_with_commas(text: str, read: tuple[int, ...]) -> None:
    assert LENGTHS.convert(text, None, None) == read
    assert Over().convert(f"context={text}", None, None) == ("context_tokens", read)


@pytest.mark.parametrize("text", ["8,192", "16,384", "2,500", "262,144", "524,288"])
def test_lengths_that_may_be_one_number(text: str) -> None:
    for kind, value in ((LENGTHS, text), (Over(), f"prompt={text}")):
        with pytest.raises(click.BadParameter, match=f"write {text.replace(',', '')} for one"):
            kind.convert(value, None, None)
    assert Over().convert("batch=8,128", None, None) == ("batch", (8, 128))


# --- what goes wrong


E = ("estimate", "llama-3.1-8b")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*E, "rtx-9999"), ["no device is called 'rtx-9999'", "Did you mean: nvidia-geforce-rtx"]),
        ((*E, "3080"), ["fits 2 entries", "nvidia-geforce-rtx-3080-10gb, nvidia-geforce-rtx-3080-12gb"]),
        (("estimate", "lama-3.1-8b", "rtx-4090"), ["no model", "llama-3.1-8b"]),
        (("estimate", "", "rtx-4090"), ["no name"]),
        ((*E, "rtx-4090", "--prompt", "-5"), ["--prompt: -5 is not a whole number from 0"]),
        ((*E, "rtx-4090", "--prompt", "abc"), ["--prompt: 'abc' is no whole number", "8k"]),
        ((*E, "rtx-4090", "--prompt", "512,,8"), ["--prompt: '' is no whole number"]),
        ((*E, "rtx-4090", "--prompt", "9" * 30), ["is not a whole number from 0 to 1,000,000,000"]),
        ((*E, "rtx-4090", "--batch", "0"), ["--batch: 0 is not a whole number from 1"]),
        ((*E, "rtx-4090", "--cached", "600", "-p", "512"), ["--cached: 600", "at most the whole prompt"]),
        ((*E, "rtx-4090", "--context-limit", "600"), ["--context-limit:", "640 tokens", "600"]),
        ((*E, "rtx-4090", "--queue", "nan"), ["--queue: nan is not a duration"]),
        ((*E, "rtx-4090", "--queue", "soon"), ["--queue:", "soon"]),
        ((*E, "rtx-4090", "--set", "foo=1"), ["--set: 'foo' is no path", "hardware. or model."]),
        ((*E, "rtx-4090", "--set", "hardware.memory.foo=1"), ["no field 'foo'", "bandwidth_gb_s"]),
        ((*E, "rtx-4090", "--set", "hardware.memory.bandwidth_gb_s=-1"), ["greater than 0"]),
        ((*E, "rtx-4090", "--set", "hardware.memory.bandwidth_gb_s=1e400"), ["finite"]),
        ((*E, "rtx-4090", "--set", "hardware.memory.bandwidth_gb_s=[1, 2]"), ["no single value"]),
        ((*E, "rtx-4090", "--set", "hardware.memory.bandwidth_gb_s={"), ["no single value"]),
        ((*E, "rtx-4090", "--set", "hardware.memory"), ["no path=value"]),
        ((*E, "rtx-4090", "--weights", "q4"), ["--weights: 'q4' is mlx:4bit", "RTX 4090", "gguf:q4_k_m"]),
        ((*E, "rtx-4090", "--weights", "8-bit"), ["--weights: '8-bit' is mlx:8bit", "gguf:q8_0"]),
        ((*E, "rtx-4090", "--engine", "mlx"), ["--engine: mlx does not run on"]),
        ((*E, "rtx-4090", "--prompt", "8,192"), ["--prompt: '8,192' may be one number or 2; write 8192"]),
        ((*E, "rtx-4090", "--weights", "nope"), ["no weight format is called 'nope'"]),
        ((*E, "rtx-4090", "--kv", "q9"), ["'q9'", "q8_0"]),
        ((*E, "rtx-4090", "--engine", "nope"), ["no engine is called 'nope'", "llama.cpp"]),
        ((*E, "rtx-4090", "--acceptance", "often"), ["no acceptance"]),
        ((*E, "2x", "rtx-3090"), ["'2x rtx-3090'"]),
        (E, ["HARDWARE: missing"]),
        ((*E, "rtx-4090", "--foo"), ["no option is called '--foo'"]),
        ((*E, "rtx-4090", "--quant", "q4_0"), ["'--quant'", "Did you mean --weights?"]),
        ((*E, "rtx-4090", "-q", "q4_0"), ["'-q'", "Did you mean --weights?"]),
        ((*E, "rtx-4090", "--weight", "q4_0"), ["Did you mean --weights?"]),
        ((*E, "rtx-4090", "--ctx", "8k"), ["Did you mean --context or --context-limit?"]),
        ((*E, "--gpu", "rtx-4090"), ["HARDWARE needs no option: rooflinellm estimate [MODEL] HARDWARE."]),
        (("recommend", "llama-3.1-8b", "--tp", "2"), ["'--tp'", "--tp is an option of estimate, compare, fit"]),
        (("estimate", "rtx-4090", "llama-3.1-8b"), ["no model", "'rtx-4090' is a device: the model comes first"]),
        (("fit", "2x 3080 + ddr5-5600x2", "llama-3.1-8b"), ["'3080' is a device: the model comes first"]),
        ((*E, "qwen3-8b"), ["no device", "'qwen3-8b' is a model: the model comes first"]),
        (("estimate", "rtx-4090", "--from", "ollama run llama3.1:8b"), ["of ollama are not read", "--engine ollama"]),
        (("sweep", *E[1:], "4090", "--over", "batch=1,2", "-o", "s.csv"), ["-o: 's.csv'", "-f csv > s.csv"]),
        (("compare", *E[1:], "4090", "--chart", "s.json"), ["--chart: 's.json'", "-f json > s.json"]),
        (("roofline", *E[1:], "4090", "-os.md"), ["-o: 's.md'", "-f md > s.md"]),
        ((*E, "rtx-4090", "--format", "xml"), ["'xml'", "json"]),
        ((*E, "rtx-4090", "--json", "--format", "csv"), ["exclude each other"]),
        (("estimat",), ["no command is called 'estimat'", "Did you mean: estimate?"]),
        (("hardware", "list", "iphne"), ["no device is called 'iphne'", "apple-a18-pro-6c"]),
        (("hardware", "list", "steam", "deck"), ["no device is called 'steam deck'", "`rooflinellm hardware list`"]),
        (("model", "list", "llamma-3.1"), ["no model is called 'llamma-3.1'", "llama-3.1-8b"]),
        (("format", "list", "zz"), ["no weight format is called 'zz'"]),
        (("hardware", "foo"), ["no command is called 'foo'", "list"]),
        (("fit", "llama-3.1-8b", "rtx-4090", "--context", "0"), ["--context: 0 is not a whole number from 1"]),
        (("format", "show", "mxfp4"), ["gguf:mxfp4", "hf:mxfp4"]),
        (("roofline", "llama-3.1-8b", "rtx-4090", "-o", "chart.txt"), ["-o: 'chart.txt'", ".png, .svg, .pdf"]),
        (("roofline", "llama-3.1-8b", "rtx-4090", "-o", "no/such/folder/chart.png"), ["is no folder"]),
        (("roofline", "llama-3.1-8b", "-o", "chart.png"), ["HARDWARE"]),
        (("roofline", "llama-3.1-8b", "rtx-4090"), ["-o/--output: missing"]),
        (("report", "llama-3.1-8b", "rtx-4090", "-o", "report.txt"), ["-o: 'report.txt'"]),
        (("report", "llama-3.1-8b", "rtx-4090", "--out=report.txt"), ["--out: 'report.txt'"]),
        ((*E, "rtx-4090", "-b0"), ["-b: 0 is not a whole number from 1"]),
        ((*E, "rtx-4090", "--acceptance", "0.7"), ["--draft-tokens:", "Give --draft-tokens 4 or the like"]),
        ((*E, "rtx-4090", "--draft-tokens", "3"), ["--acceptance:", "accepted_over_drafted=0.6, length=2.9"]),
        ((*E, "2x rtx-4090", "-e", "vllm"), ["--tp: vllm", "Give --tp 2,"]),
        ((*E, "rtx-4090", "-e", "ollama", "--show-command"), ["--show-command: no command known for ollama"]),
        (("recommend", "qwen3-8b", "-x", "5", "--budget", "9"), ["--budget:", "Give --price rtx-3090=700"]),
    ],
)
def test_what_was_typed_is_exit_code_2(run: Run, arguments: tuple[str, ...], said: list[str]) -> None:
    answer = run(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) <= 2
    for words in said:
        assert words in answer.err


BROKEN = {
    "twice.yaml": ("schema: 1\nid: twice\nid: again\n", ["line 3", "duplicate key 'id'"]),
    "type.yaml": (CARD.replace("bus_bits: 384", "bus_bits: wide"), ["line 13", "memory.bus_bits", "'wide'"]),
    "missing.yaml": (re.sub(r"  bandwidth_gb_s: .*\n", "", CARD), ["memory.bandwidth_gb_s", "required"]),
    "unknown.yaml": (CARD + "colour: green\n", ["colour"]),
    "binary.yaml": ("\x00\x01\udcff", ["UTF-8"]),
    "empty.yaml": ("", ["expected a mapping"]),
    "list.yaml": ("- 1\n", ["expected a mapping"]),
    "tag.yaml": ("a: !!python/object:os.system {}\n", ["line 1"]),
}


@pytest.mark.parametrize("name", [*BROKEN, "folder.yaml", "absent.yaml"])
def test_what_a_file_holds_is_exit_code_3(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text, said = BROKEN.get(name, (None, []))
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    elif name == "folder.yaml":
        path.mkdir()
    for command in (("estimate", "llama-3.1-8b"), ("hardware", "show"), ("hardware", "lint")):
        answer = run(*command, str(path))
        assert answer.code == 3, command
        shown = answer.out + answer.err
        assert name in shown
        for words in said:
            assert words in " ".join(shown.split()), command


def test_an_interruption_is_exit_code_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rooflinellm.api.estimate.estimate", interrupted)
    assert run("estimate", "llama-3.1-8b", "rtx-4090") == (130, "", "")


def test_a_bug_is_one_line_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any, **_named: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("rooflinellm.api.estimate.estimate", broken)
    answer = run("estimate", "llama-3.1-8b", "rtx-4090")
    assert answer.code == 70
    assert "a bug in rooflinellm: ZeroDivisionError: oh" in answer.err
    monkeypatch.setenv("ROOFLINELLM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["estimate", "llama-3.1-8b", "rtx-4090"])


def test_a_reader_who_has_enough_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rooflinellm", "hardware", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_messages_name_options() -> None:
    assert as_typed("prompt_tokens: -5 is not") == "--prompt: -5 is not"
    assert as_typed("tensor_parallel: tensor_parallel is not available yet") == "--tp is not available yet"
    assert as_typed("/data/batch: no such file") == "/data/batch: no such file"
    assert as_typed("overrides, hardware.x: no field 'x'") == "--set hardware.x: no field 'x'"


# --- terminals


def test_colours_are_for_terminals_or_on_demand(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("fit", "llama-3.1-8b", AD_HOC)
    plain = run(*arguments).out
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run(*arguments).out
    assert "\x1b[32m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(*arguments).out == plain


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding_will_do(encoding: str) -> None:
    settings = {"PYTHONIOENCODING": encoding, "LC_ALL": "C", "COLUMNS": "100"}
    done = program_in_new_process("estimate", "llama-3.1-8b", "rtx-4090", "-v", **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "<= " in done.stdout
    assert "\\u" not in done.stdout


def test_help_and_version_load_nothing_heavy() -> None:
    code = """
import sys
from rooflinellm.cli import main
main(["--help"]); main(["estimate", "--help"]); main([])
heavy = {"numpy", "pydantic", "yaml", "matplotlib", "scipy", "rich", "pandas"} & set(sys.modules)
print("heavy:", sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("heavy: []\n")


def test_an_estimate_loads_no_charts_and_no_statistics() -> None:
    code = """
import sys
from rooflinellm.cli import main
main(["estimate", "llama-3.1-8b", "rtx-4090"])
print("heavy:", sorted({"matplotlib", "scipy", "rich", "pandas"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout.endswith("heavy: []\n")


def test_python_dash_m_and_the_version() -> None:
    done = program_in_new_process("--version")
    assert done.returncode == 0
    assert re.fullmatch(rf"rooflinellm {re.escape(rl.__version__)}, data [0-9a-f]{{12}}\n", done.stdout)


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    with click.Context(group) as context:
        found = []
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            found += commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
        return found


@pytest.mark.parametrize("path", commands(program), ids=" ".join)
def test_every_command_explains_itself(run: Run, path: tuple[str, ...]) -> None:
    answer = run(*path, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"rooflinellm {' '.join(path)}" in answer.out.split("Example", 1)[1]
    assert "Exit codes:" in answer.out


def test_help_shows_whole_sentences(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (("--help",), ("hardware",), ("model",), ("format",)):
        assert "..." not in run(*arguments).out.replace("[ARGS]...", "")


# --- the databases


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "arguments",
    [
        ("hardware", "list", "rtx", "3090"),
        ("hardware", "show", "rtx-4090"),
        ("hardware", "diff", "rtx-3090", "rtx-4090"),
        ("hardware", "lint", str(ROOT / "hardware_db/devices/apple")),
        ("model", "list", "llama-3.1"),
        ("model", "show", "gpt-oss-20b"),
        ("model", "lint", str(ROOT / "model_db/llama")),
        ("format", "list", "q4"),
        ("format", "show", "Q4_K_M"),
        ("fit", "llama-3.1-8b", "rtx-4090"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_every_format_of_every_answer(run: Run, arguments: tuple[str, ...], form: str) -> None:
    answer = run(*arguments, "--format", form)
    assert (answer.code, answer.err) == (0, "")
    if form == "json":
        assert "data_version" in answer.json()
    elif form == "csv":
        assert csv.reader(io.StringIO(answer.out))
    else:
        assert answer.out.strip()


@pytest.mark.parametrize(
    ("command", "key", "listing"),
    [("hardware", "hardware", list_hardware), ("model", "models", list_models), ("format", "formats", list_formats)],
)
def test_a_list_in_json_is_one_list(run: Run, command: str, key: str, listing: Any) -> None:
    answer = run(command, "list", "--json").json()
    assert [name for name, value in answer.items() if isinstance(value, list)] == [key]
    assert [(entry["id"], entry["name"]) for entry in answer[key]] == [(entry.id, entry.name) for entry in listing()]
    assert not any("error" in entry for entry in answer[key])


def test_a_query_narrows_the_list() -> None:
    assert {entry.id for entry in list_hardware("4090 laptop")} == {"nvidia-geforce-rtx-4090-laptop"}
    assert list_models("no such model") == []


def test_lists_render_themselves() -> None:
    found = list_hardware("rtx 4090")
    assert "nvidia-geforce-rtx-4090" in str(found)
    assert repr(found).startswith(f"<{len(found)} devices: ")
    assert "<table>" in found._repr_html_()


def test_a_broken_entry_of_the_user_spoils_no_list(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "hardware_db" / "devices" / "own"
    folder.mkdir(parents=True)
    (folder / "my-card.yaml").write_text("name: My card\nid: my-card\n", encoding="utf-8")
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    answer = run("hardware", "list", "my card")
    assert answer.code == 0
    assert "my-card" in answer.out
    assert "warning:" in answer.out
    (entry,) = run("hardware", "list", "my-card", "--json").json()["hardware"]
    assert "my-card.yaml" in entry["error"]


def test_show_prints_units_evidence_and_sources(run: Run) -> None:
    answer = run("hardware", "show", "rtx-4090").out
    assert re.search(r"memory bandwidth +1,008 GB/s +whitepaper +ada-whitepaper", answer)
    assert "ada-whitepaper: NVIDIA Ada GPU Architecture" in answer
    # NVIDIA Ada GPU Architecture whitepaper: boost clock 2520 MHz; what cards reach beyond it is not printed
    assert re.search(r"advertised clock +2,520 MHz +whitepaper", answer)
    assert re.search(r"highest clock +2,820 MHz +estimate", answer)
    assert "highest clock: cards of this family run up to" in answer
    shown = run("hardware", "show", "rtx-4090", "--json").json()
    assert shown["memory_bandwidth_bytes_per_s"] == 1.008e12
    assert shown["peaks_flop_per_s"]["fp16.fp32"] == pytest.approx(165.2e12)


def test_diff_gives_ratios(run: Run) -> None:
    rows = {
        row["field"]: row for row in run("hardware", "diff", "rtx-3090", "rtx-4090", "--json").json()["differences"]
    }
    assert rows["memory bandwidth"]["ratio"] == pytest.approx(1008 / 936)
    assert "vendor" not in rows
    assert "no differences" in run("hardware", "diff", "rtx-4090", "4090").out


def test_show_a_model_with_its_layers_and_sizes(run: Run) -> None:
    shown = run("model", "show", "llama-3.1-8b", "--json").json()
    spec = rl.model("llama-3.1-8b")
    assert shown["total_params"] == spec.total_params
    assert shown["kv_bytes_per_token"]["f16"] == spec.kv_bytes_per_token("f16")
    assert sum(layer["count"] for layer in shown["layers"]) == 32
    sizes = {each["weights"]: each for each in shown["sizes"]}
    assert sizes["hf:bf16"]["bits_per_weight"] == pytest.approx(16, abs=0.01)
    assert "32 x attention: heads 32, kv heads 8, head dim 128" in run("model", "show", "llama-3.1-8b").out


def test_the_databases_pass_the_lint() -> None:
    for result in (lint_hardware(), lint_models()):
        assert [str(problem) for problem in result.problems if problem.level == "error"] == []
        assert result.files > 100


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (CARD.replace("id: nvidia-geforce-rtx-4090", "id: other"), "file-name"),
        (CARD.replace("[rtx-4090,", "[nvidia-geforce-rtx-3090,"), "names"),
        (CARD.replace("[rtx-4090,", "[rtx-4090, RTX_4090,"), "aliases"),
        (CARD.replace("sources:\n", "sources:\n  idle: {title: Idle, publisher: Nobody}\n"), "sources-used"),
        (re.sub(r"    publisher: PCI-SIG\n    note: transfer.*\n", "", CARD), "sources-found"),
        (CARD.replace("precision: fp16, accumulate: fp32, unit: matrix, tflops: 165.2", FASTER), "peak-order"),
        (CARD.replace("vendor: nvidia", "vendor: Someone Else"), "folder"),
    ],
)  # fmt: skip
def test_lint_finds(run: Run, tmp_path: Path, text: str, rule: str) -> None:
    assert text != CARD
    folder = tmp_path / "nvidia"
    folder.mkdir()
    path = folder / "nvidia-geforce-rtx-4090.yaml"
    path.write_text(text, encoding="utf-8")
    result = lint_hardware([path])
    assert rule in {problem.rule for problem in result.problems}
    assert run("hardware", "lint", str(path)).code == (0 if result.ok else 3)


def test_the_packaged_card_has_no_problems() -> None:
    assert lint_hardware([ROOT / "hardware_db/devices/nvidia/nvidia-geforce-rtx-4090.yaml"]).problems == ()


def test_the_version_of_the_data_follows_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged = data_version()
    assert re.fullmatch("[0-9a-f]{12}", packaged)
    assert data_version() == packaged
    own = tmp_path / "hardware_db" / "devices" / "own" / "card.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("id: card\n", encoding="utf-8")
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path))
    with_own = data_version()
    assert with_own != packaged
    own.write_bytes(b"id: card\r\n")
    assert data_version() == with_own
    own.write_text("id: cord\n", encoding="utf-8")
    assert data_version() not in (packaged, with_own)


# --- the chart


def test_the_chart_is_written_and_described(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    answer = run("roofline", "llama-3.1-8b", "rtx-4090", "m3-max-40c", "-o", str(path), "--batches", "1,8")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(str(path))
    assert "RTX 4090" in answer.out
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == [path.name]


# --- tables


def table() -> Table:
    columns = [
        Column("name", "left"),
        Column("a", group="group", drop=2),
        Column("bb", group="group"),
        Column("note", "left", drop=1),
    ]
    return Table(columns, [["x", "1", "22", "a | b"], ["yy", "333", "4", "<i>"]], "title", ["a note"], "answer")


def test_a_table_loses_columns_and_not_letters() -> None:
    wide = table().to_text(60)
    assert wide.splitlines()[0] == "title" + " " * 49 + "answer"
    assert [line.rstrip() for line in wide.splitlines()[1:5]] == [
        "      group ─",
        "name    a  bb  note",
        "x       1  22  a | b",
        "yy    333   4  <i>",
    ]
    assert table().to_text(18).splitlines()[2].split() == ["name", "bb", "note"]
    assert table().to_text(1).splitlines()[-3].split() == ["x", "22"]
    long = Table((), (), "a title", ["word " * 10], "and its answer").to_text(20).splitlines()
    assert long[:2] == ["a title", "and its answer"]
    assert all(len(line) <= 20 for line in long)


def test_a_table_in_markdown_html_and_csv() -> None:
    markdown = table().to_markdown()
    assert "| name | group: a | group: bb | note |" in markdown
    assert "a \\| b" in markdown
    html = table().to_html()
    assert "&lt;i&gt;" in html
    assert 'colspan="2"' in html
    assert "color" not in html
    assert table().to_csv().splitlines()[1] == "x,1,22,a | b"


def test_control_characters_stay_out_of_terminals() -> None:
    text = Table([Column("a")], [["\x1b[31mred\n\x07"]], "t\x1b").to_text()
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (512, "512"), (4096, "4k"), (2**20, "1M"), (5000, "5,000")])
def test_lengths_of_context(count: int, text: str) -> None:
    assert tokens_text(count) == text


def test_arrays_give_a_row_each() -> None:
    estimate = rl.estimate("llama-3.1-8b", AD_HOC, prompt_tokens=[512, 1024], batch=[[1], [4]])
    shown = estimate_table([estimate])
    assert [column.heading for column in shown.columns][:2] == ["prompt", "batch"]
    assert [row[:2] for row in shown.rows] == [["512", "1"], ["1,024", "1"], ["512", "4"], ["1,024", "4"]]
    single = estimate_table([rl.estimate("llama-3.1-8b", AD_HOC, prompt_tokens=1024, batch=4)])
    assert shown.rows[3][-3:] == single.rows[0][-3:]
    assert "<table>" in estimate._repr_html_()
    many = rl.estimate("llama-3.1-8b", AD_HOC, prompt_tokens=list(range(1, 201)))
    assert len(estimate_table([many]).rows) == 24


def test_growth_from_an_array_and_from_single_estimates() -> None:
    contexts = [0, 4096, 32768]
    array = rl.estimate("llama-3.1-8b", AD_HOC, prompt_tokens=0, output_tokens=0, context_tokens=contexts)
    single = [
        rl.estimate("llama-3.1-8b", AD_HOC, prompt_tokens=0, output_tokens=0, context_tokens=each) for each in contexts
    ]
    assert growth_table([array]).rows == growth_table(single).rows


def test_operator_shares_are_of_the_phase() -> None:
    rows = operator_table(rl.estimate("llama-3.1-8b", AD_HOC).decode).rows
    assert 97 <= sum(int(row[6].removesuffix(" %")) for row in rows) <= 103


def test_the_library_still_warns_in_python() -> None:
    with pytest.warns(RooflineWarning, match="does not fit"):
        rl.estimate("llama-3.3-70b", AD_HOC)
