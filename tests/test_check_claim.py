"""Claims: impossible, fast, plausible or slow; what would explain them; what they leave out."""

import csv
import io
import json
import re
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.api.check_claim import FIELDS, left_out
from rooflinellm.cli import main
from rooflinellm.units import significant

MODEL, CARD = "llama-3.1-8b", "rtx-4090"
STATED: dict[str, Any] = {
    **{"weights": "Q4_K_M", "kv": "f16", "engine": "llama.cpp", "prompt_tokens": 512, "output_tokens": 128},
    **{"context_tokens": 0, "batch": 1, "aggregate": False, "speculation": 0, "cached_tokens": 0},
}


def reasons(rate: float, model: str = MODEL, card: str = CARD, **named: Any) -> str:
    return "\n".join(rl.check_claim(model, card, tokens_per_s=rate, **named).reasons)


def line(text: str, words: str) -> str:
    (found,) = [each for each in text.splitlines() if words in each]
    return found


# --- verdicts


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_the_verdict_follows_from_the_estimate(phase: str) -> None:
    rate = getattr(rl.estimate(MODEL, CARD, weights="Q4_K_M"), phase).tokens_per_s
    for claimed, verdict in (
        (rate.ideal * 1.001, "impossible"),
        ((rate.high + rate.ideal) / 2, "fast"),
        (rate.expected, "plausible"),
        (rate.low * 0.99, "slow"),
    ):
        result = rl.check_claim(MODEL, CARD, tokens_per_s=claimed, phase=phase, weights="Q4_K_M")
        assert result.verdict == verdict
        assert (result.ideal, result.expected, result.low, result.high) == (
            *(rate.ideal, rate.expected, rate.low, rate.high),
        )
        assert result.ratio_to_ideal == pytest.approx(claimed / rate.ideal)
        assert result.possible == (verdict != "impossible")
        assert result.reasons
        assert significant(claimed) in result.reasons[0]


@pytest.mark.parametrize(
    ("model", "card", "rate", "verdict"),
    [
        ("llama-3.1-8b", "rtx-4090", 1000, "impossible"),
        ("llama-3.1-8b", "rtx-4090", 130, "plausible"),
        ("llama-3.1-8b", "rtx-4090", 20, "slow"),
        ("qwen3-30b-a3b", "m3-max-40c", 50, "plausible"),
        ("llama-3.3-70b", "m3-max-40c@64GiB", 30, "impossible"),
    ],
)
def test_real_claims(model: str, card: str, rate: float, verdict: str) -> None:
    assert rl.check_claim(model, card, tokens_per_s=rate).verdict == verdict


def test_an_aggregate_is_compared_with_the_aggregate() -> None:
    rate = rl.estimate(MODEL, CARD, batch=8).decode.aggregate_tokens_per_s
    assert rl.check_claim(MODEL, CARD, tokens_per_s=800, batch=8, aggregate=True).ideal == rate.ideal
    assert rl.check_claim(MODEL, CARD, tokens_per_s=800, batch=8, aggregate=True).verdict == "plausible"
    assert rl.check_claim(MODEL, CARD, tokens_per_s=800, batch=8, aggregate=False).verdict == "impossible"


def test_stated_drafts_lift_the_bound() -> None:
    plain, drafted = (rl.check_claim(MODEL, CARD, tokens_per_s=300, speculation=each) for each in (0, 4))
    assert (plain.verdict, drafted.verdict) == ("impossible", "plausible")
    assert drafted.ideal == pytest.approx(5 * plain.ideal)
    assert drafted.low == plain.low
    assert "(4 + 1) ×" in "\n".join(drafted.reasons)
    assert rl.check_claim(MODEL, CARD, tokens_per_s=300, speculation=False).ideal == plain.ideal
    prefill = [rl.check_claim(MODEL, CARD, tokens_per_s=9, phase="prefill", speculation=each) for each in (0, 4)]
    assert prefill[0].ideal == prefill[1].ideal


def test_what_does_not_fit_is_no_plausible_claim() -> None:
    result = rl.check_claim("llama-3.3-70b", CARD, tokens_per_s=20)
    assert result.verdict == "impossible"
    assert result.ratio_to_ideal < 1
    assert re.match(r"does not fit: [\d.]+ of [\d.]+ GiB", result.reasons[0])
    assert "if all of it were in memory" in result.reasons[1]
    assert "it would fit and be" in line("\n".join(result.reasons), "instead of Q4_K_M")
    assert "drafted" not in "\n".join(result.reasons)
    assert result.warnings
    slow = rl.check_claim("llama-3.3-70b", CARD, tokens_per_s=2)
    assert slow.verdict == "slow"
    assert "which costs speed" in slow.reasons[0]


# --- reasons


def test_an_aggregate_explains() -> None:
    text = line(reasons(500), "as an aggregate of")
    batch = int(re.search(r"aggregate of (\d+) requests it would be plausible", text)[1])  # type: ignore[index]
    item = rl.estimate(MODEL, CARD, batch=batch).decode
    ideal, each = significant(item.aggregate_tokens_per_s.ideal), significant(item.tokens_per_s.ideal)
    assert f"ideal {batch} × {each} = {ideal}, expected {significant(item.aggregate_tokens_per_s.expected)}" in text
    assert item.aggregate_tokens_per_s.low <= 500 <= item.aggregate_tokens_per_s.high
    assert reasons(500).splitlines()[1] == text, "the likeliest comes first"
    assert "as an aggregate of 8 requests" in reasons(800, batch=8, aggregate=False)
    assert "aggregate" not in reasons(500, batch=1)
    assert "as an aggregate of 16 requests" in reasons(1700, batch=8, aggregate=True)


def test_a_smaller_format_explains() -> None:
    text = line(reasons(150, weights="Q8_0"), "instead of Q8_0")
    name = re.match(r"in (\S+) instead", text)[1]  # type: ignore[index]
    rate = rl.estimate(MODEL, CARD, weights=name).decode.tokens_per_s
    assert rate.high >= 150
    assert text.endswith(f"({significant(rate.low)}–{significant(rate.high)}) tokens/s")
    assert f" = {significant(rate.ideal)}, " in text


def test_a_smaller_model_explains() -> None:
    text = line(reasons(500), "of the smaller llama-3")
    name = re.match(r"of the smaller (\S+)", text)[1]  # type: ignore[index]
    assert f"{significant(rl.estimate(name, CARD).decode.tokens_per_s.ideal)}, expected" in text


def test_the_peak_of_sparsity_explains_prefill() -> None:
    rate = rl.estimate(MODEL, "h100-sxm", weights="bf16", prompt_tokens=4096).prefill.tokens_per_s
    claim: dict[str, Any] = {"phase": "prefill", "weights": "bf16", "prompt_tokens": 4096}
    text = line(reasons(rate.ideal * 1.1, card="h100-sxm", **claim), "2:4 sparsity")
    assert re.search(r"\(2 × (989|990) TFLOP/s", text)
    assert f"ideal {significant(2 * rate.ideal)}" in text
    assert "sparsity" not in reasons(500), "bandwidth is the limit of decode"
    faster = {"hardware.memory.bandwidth_gb_s": 5000}
    assert "2:4 sparsity" in reasons(rate.ideal * 1.1, card="h100-sxm", overrides=faster, **claim)


def test_speculation_explains() -> None:
    ideal = rl.estimate(MODEL, CARD).decode.tokens_per_s.ideal
    text = line(reasons(ideal * 1.5), "drafted token")
    assert re.match(
        rf"with \d drafted tokens? a step, all accepted, .*ideal \(\d \+ 1\) × {significant(ideal)} = ", text
    )
    assert "drafted" not in reasons(ideal * 1.5, speculation=0)
    assert "drafted" not in reasons(1e6, phase="prefill")


def test_a_cached_prefix_explains_prefill() -> None:
    text = line(reasons(70_000, phase="prefill"), "cached and counted")
    cached = int(re.match(r"with (\d+) of 512 tokens", text)[1])  # type: ignore[index]
    time = rl.estimate(MODEL, CARD, cached_tokens=cached).prefill.time_s
    assert f"{significant(time.ideal * 1000)} ms = {significant(512 / time.ideal)}" in text
    assert 512 / time.high <= 70_000 <= 512 / time.low
    assert "cached" not in reasons(70_000, phase="prefill", cached_tokens=0)


def test_another_unit_explains() -> None:
    text = line(reasons(7.5), "ms a token")
    assert "1,000 / 7.50 = 133 tokens/s, it would be plausible" in text
    assert "8,000 / 60 = 133 tokens/s, it would be plausible" in line(reasons(8000, **STATED), "a minute")


def test_another_phase_or_what_is_counted_explains() -> None:
    item = rl.estimate(MODEL, CARD)
    assert "as a rate of prefill it would be plausible" in reasons(item.prefill.tokens_per_s.expected)
    assert "as a rate of decode it would be plausible" in reasons(item.decode.tokens_per_s.expected, phase="prefill")
    assert "the tokens of the prompt too it would be plausible" in reasons(640 / item.e2e_s.expected)
    long = {"prompt_tokens": 16384, "context_tokens": 0}
    late = 128 / rl.estimate(MODEL, CARD, **long).e2e_s.expected
    assert f"128 tokens / {significant(128 / late)[:1]}" not in reasons(130)
    assert "counting the time of the prompt too it would be plausible: ideal 128 tokens /" in reasons(late, **long)


def test_a_prompt_that_was_not_said_explains() -> None:
    rate = rl.estimate(MODEL, CARD, prompt_tokens=128).prefill.tokens_per_s
    other = rl.estimate(MODEL, CARD).prefill.tokens_per_s
    assert rate.low < other.low
    slow = (rate.low + other.low) / 2
    assert "with a prompt of 128 tokens it would be plausible" in reasons(slow, phase="prefill")
    assert "with a prompt of" not in reasons(slow, phase="prefill", prompt_tokens=512)


def test_what_makes_a_claim_slow() -> None:
    text = reasons(40)
    context = int(re.search(r"with ([\d,]+) tokens in the cache", text)[1].replace(",", ""))  # type: ignore[index]
    rate = rl.estimate(MODEL, CARD, context_tokens=context).decode.tokens_per_s
    assert rate.low <= 40 <= rate.high
    assert re.search(
        r"as the rate of each of \d+ requests side by side it would be plausible: ideal [\d,]+ / \d+", text
    )
    assert text.splitlines()[-1].startswith("the hardware may give")
    assert "instead of Q4_K_M" in reasons(60)
    stated = reasons(40, **STATED)
    assert len(stated.splitlines()) == 2, "nothing is open but the hardware"


def test_nothing_explains_a_wild_claim() -> None:
    assert reasons(1e9, **STATED).splitlines()[-1] == "no other reading that was tried explains it"


# --- what is left out


def test_a_bare_number_leaves_out_everything() -> None:
    assert left_out({"tok/s": 50}) == tuple(FIELDS)
    assert set(FIELDS) >= {
        *("model", "weight format", "KV cache type", "engine", "batch", "occupied context", "prompt length"),
        *("per request or aggregate", "cache state", "speculation", "a second prompt length"),
    }
    with pytest.raises(rl.InvalidRequest) as caught:
        rl.check_claim(None, None, tokens_per_s=50)
    for name in FIELDS.keys() - {"phase"}:
        assert name in str(caught.value)


def test_what_is_said_is_not_left_out() -> None:
    said = {"model": MODEL, "hardware": CARD, "phase": "decode", **STATED}
    assert left_out(said) == ("a second prompt length",)
    assert left_out({**said, "prompt_tokens": (512, 8192)}) == ()
    assert left_out({**said, "prompt_tokens": None}) == ("prompt length", "a second prompt length")
    assert left_out({**said, "prompt_tokens": []}) == ("prompt length", "a second prompt length")
    for key in STATED:
        assert len(left_out({**said, key: None})) == 2
    bare = rl.check_claim(MODEL, CARD, tokens_per_s=130)
    assert bare.left_out == tuple(name for name in FIELDS if name not in ("model", "hardware", "phase"))
    assert set(bare.assumed) == set(bare.left_out) - {"a second prompt length"}
    assert bare.assumed["weight format"] == "Q4_K_M"
    full = rl.check_claim(MODEL, CARD, tokens_per_s=130, **STATED)
    assert (full.left_out, dict(full.assumed)) == (("a second prompt length",), {})


# --- refused


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"tokens_per_s": 0}, "0 is not a number above 0"),
        ({"tokens_per_s": -5}, "-5 is not a number above 0"),
        ({"tokens_per_s": float("nan")}, "nan is not"),
        ({"tokens_per_s": float("inf")}, "inf is not"),
        ({"tokens_per_s": "fast"}, "'fast' is not"),
        ({"tokens_per_s": True}, "True is not"),
        ({"phase": "total"}, "not one of decode, prefill"),
        ({"batch": 8}, "8 times apart"),
        ({"aggregate": True}, "unknown number of requests"),
        ({"aggregate": "yes"}, "neither True nor False"),
        ({"speculation": True}, "how many tokens are drafted"),
        ({"speculation": -1}, "-1 is not a whole number"),
        ({"batch": 0}, "0 is not a whole number"),
        ({"prompt_tokens": [512, 8192]}, "a claim is of one case"),
        ({"cached_tokens": [0, 1], "phase": "prefill"}, "a claim is of one case"),
        ({"phase": "prefill", "prompt_tokens": 0}, "no token to prefill"),
        ({"context_limit": 10}, "more than the configured"),
    ],
)
def test_bad_input_is_refused(named: dict[str, Any], words: str) -> None:
    with pytest.raises(rl.InvalidRequest, match=re.escape(words)):
        rl.check_claim(MODEL, CARD, **{"tokens_per_s": 50, **named})


def test_names_are_looked_up() -> None:
    with pytest.raises(rl.UnknownName):
        rl.check_claim("llama-9-8b", CARD, tokens_per_s=50)
    with pytest.raises(rl.AmbiguousName):
        rl.check_claim(MODEL, "3080", tokens_per_s=50)


# --- how it shows


def test_how_a_result_shows_itself() -> None:
    result = rl.check_claim(MODEL, CARD, tokens_per_s=500)
    assert repr(result).startswith("ClaimResult(llama-3.1-8b gguf:q4_k_m on ")
    assert "decode at 500 tokens/s is impossible" in repr(result)
    assert str(result).splitlines()[0].endswith("impossible")
    page = result._repr_html_()
    assert "<table" in page
    assert "as an aggregate of" in page
    text = json.dumps(result.to_dict(), allow_nan=False)
    assert json.loads(text)["reasons"] == list(result.reasons)


# --- command line


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(("check", MODEL, CARD, *arguments))
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


@pytest.mark.parametrize(("rate", "code"), [("500", 1), ("200", 0), ("130", 0), ("5", 0)])
@pytest.mark.parametrize("form", ["table", "md", "json", "csv"])
def test_exit_codes(capsys: pytest.CaptureFixture[str], rate: str, code: int, form: str) -> None:
    answer = check(capsys, "--tokens-per-s", rate, "--format", form)
    assert answer[0] == code
    assert answer[1]
    assert not answer[2]


def test_json_keys(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = check(capsys, "--tokens-per-s", "800", "--batch", "8", "--aggregate", "--weights", "Q4_K_M", "--json")
    answer = json.loads(out)
    assert list(answer)[:3] == ["schema_version", "rooflinellm_version", "data_version"]
    assert {
        *("model", "hardware", "weights", "kv", "engine", "phase", "aggregate", "speculation", "workload", "verdict"),
        *("claimed_tokens_per_s", "ideal_tokens_per_s", "expected_tokens_per_s", "low_tokens_per_s"),
        *("high_tokens_per_s", "ratio_to_ideal", "unit", "reasons", "left_out", "assumed", "warnings", "possible"),
    } <= answer.keys()
    assert (answer["verdict"], answer["aggregate"], answer["workload"]["batch"]) == ("plausible", True, 8)
    assert "weight format" not in answer["left_out"]
    expected = rl.check_claim(MODEL, CARD, tokens_per_s=800, batch=8, aggregate=True, weights="Q4_K_M").to_dict()
    assert {key: answer[key] for key in expected} == json.loads(json.dumps(expected))


def test_csv_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = check(capsys, "--tokens-per-s", "70000", "--phase", "prefill", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["verdict"], row["phase"], row["possible"]) == ("impossible", "prefill", "false")
    _, out, _ = check(capsys, "--tokens-per-s", "30", "--speculation", "0", "--format", "md")
    assert "| claimed" in out
    assert "speculation" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--tokens-per-s"),
        (("--tokens-per-s", "fast"), "--tokens-per-s"),
        (("--tokens-per-s", "0"), "not a number above 0"),
        (("--tokens-per-s", "nan"), "not a number above 0"),
        (("--tokens-per-s", "50", "--phase", "total"), "--phase"),
        (("--tokens-per-s", "50", "--batch", "8"), "--batch: not comparable"),
        (("--tokens-per-s", "50", "--prompt", "-1"), "--prompt: -1"),
    ],
)
def test_mistakes_at_the_command_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = check(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_warning_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(("check", "llama-3.3-70b", CARD, "--tokens-per-s", "100"))
    captured = capsys.readouterr()
    assert code == 1
    assert captured.err.startswith("warning: memory: does not fit")
