"""Recommendations: what is named meets the wish by its own estimate, and nothing that would is left out."""

import json
import math
from itertools import product
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.api.candidates import COMMON, HOSTED, database
from rooflinellm.api.cost import cost_per_million_tokens
from rooflinellm.api.ladder import ladder
from rooflinellm.api.recommend import Search
from rooflinellm.api.recommendation import Recommendation, Shortfall
from rooflinellm.cli import main
from rooflinellm.results import Estimate

pytestmark = pytest.mark.filterwarnings("ignore::rooflinellm.RooflineWarning")

MODEL = "qwen3-32b"
SOME = [
    "rtx-3060-12gb", "rtx-3090", "2x rtx-3090", "4x rtx-3090", "rtx-4090", "rtx-5090", "2x rtx-5060-ti-16gb", "a6000",
    "m3-max-40c@64GiB", "m2-ultra-76c@64GiB", "strix-halo@64GiB", "7950x@64GiB", "rx-7900-xtx", "h100-sxm", "mi300x",
    "rtx-4090 + ddr5-5600x2@64GiB", "nvidia-tesla-p40",
]  # fmt: skip
ALL = rl.recommend("llama-3.3-70b", min_tokens_per_s=10, context=8192)
FEW = rl.recommend(MODEL, min_tokens_per_s=20, hardware=SOME)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def asked(model: str, hardware: Any, weights: str, **changed: Any) -> Estimate:
    """The request that a wish for a context of 8192 tokens is about."""
    request = {"prompt_tokens": 512, "output_tokens": 0, "context_tokens": 8192 - 512, "context_limit": 8192}
    return rl.estimate(model, hardware, weights=weights, **{**request, **changed})


# --- what is named, and what is not


def test_what_is_named_meets_the_wish_by_its_own_estimate() -> None:
    assert len(ALL.met) > 50
    for each in ALL.met[::7]:
        degree = each.estimate.workload.get("tensor_parallel", 1)
        again = asked("llama-3.3-70b", each.system.id, each.weights, tensor_parallel=degree)
        assert again.to_dict() == {**each.estimate.to_dict(), "engine": again.engine}
        assert again.memory.fits is True
        assert again.decode.tokens_per_s.expected >= 10
        assert each.safe == (again.decode.tokens_per_s.low >= 10)
    assert {each.safe for each in ALL.met} == {True, False}


def test_the_search_finds_what_trying_everything_finds() -> None:
    best = {}
    for name in SOME:
        count = rl.system(name).device_count
        for step, degree in product(ladder(rl.model(MODEL), ("gguf",)), dict.fromkeys((1, count))):
            answer = asked(MODEL, name, step.weights, tensor_parallel=degree)
            if step.bits_per_weight >= 4 and answer.memory.fits is True and answer.decode.tokens_per_s.expected >= 20:
                best[answer.hardware.id] = (step.weights, degree)
                break
    found = {each.system.id: (each.weights, each.to_dict()["tensor_parallel"]) for each in FEW.met}
    assert found == best
    assert 3 < len(best) < len(SOME)
    assert FEW.ruled_out > 0


def test_layers_are_shared_where_only_that_does_and_it_is_said() -> None:
    def found(rate: float, **others: Any) -> Any:
        return rl.recommend("llama-3.3-70b", min_tokens_per_s=rate, hardware="2x rtx-5090", weights="Q4_K_M", **others)

    slow, fast = found(25), found(40)
    assert (slow.best.to_dict()["tensor_parallel"], fast.best.to_dict()["tensor_parallel"]) == (1, 2)
    assert "several devices without TP: layers in a row" in slow.tables()[0].to_text()
    text = fast.tables()[0].to_text()
    assert "2x RTX 5090 TP2" in text and "TP: the devices share each layer, which the engine calls experimental" in text
    assert not found(40, kv="q8_0")  # which llama.cpp does not share


@pytest.mark.parametrize(
    ("model", "hardware", "degrees"),
    [
        ("llama-3.3-70b", "2x rtx-3090", {1, 2}),
        ("llama-3.3-70b", "2x amd-radeon-rx-7900-xtx", {1}),  # only the CUDA backend is faster for it
        ("deepseek-v2-lite", "2x rtx-3090", {1}),  # latent attention
        ("llama-3.3-70b", "rtx-3090 + rtx-4090", {1}),
    ],
)
def test_where_layers_can_be_shared(model: str, hardware: str, degrees: set[int]) -> None:
    found = rl.recommend(model, min_tokens_per_s=100_000, hardware=hardware, weights="IQ2_XS", context=512)
    assert not found
    search = Search(rl.model(model), found.wish, ["IQ2_XS"], 0.0, None, "llama.cpp", None)
    assert {*search.degrees(rl.system(hardware), "llama.cpp")} == degrees


def test_what_the_roofline_rules_out_is_beyond_its_ideal() -> None:
    fast = rl.recommend(MODEL, min_tokens_per_s=60, max_ttft_s=0.2, hardware=SOME)
    beyond = [each for each in fast.nearest if each.estimate is None]
    assert beyond
    for each in beyond:
        answer = asked(MODEL, each.system, each.weights)
        for short in each.shortfalls:
            if short.what == "decode":
                assert answer.decode.tokens_per_s.ideal <= (short.got or 0) * (1 + 1e-9) < 60
            elif short.what == "first token":
                assert answer.ttft_s.ideal >= (short.got or 0) * (1 - 1e-9) > 0.2
            else:
                assert answer.memory.fits is False


@pytest.mark.parametrize(
    "harder",
    [
        {"min_tokens_per_s": 30},
        {"max_ttft_s": 1.0},
        {"max_power_w": 400},
        {"context": 32_768},
        {"batch": 8},
        {"weights": "Q8_0"},
    ],
)
def test_a_harder_wish_leaves_a_part(harder: dict[str, Any]) -> None:
    less = rl.recommend(MODEL, **{"min_tokens_per_s": 20, "hardware": SOME, **harder})
    easy, hard = ({each.system.id for each in found.met} for found in (FEW, less))
    assert hard < easy


def test_more_bits_are_preferred_and_fewer_tried_only_when_asked() -> None:
    (low,) = rl.recommend(MODEL, min_tokens_per_s=38, hardware="rtx-3090", min_bits_per_weight=0).met
    assert low.bits_per_weight < 4
    assert not rl.recommend(MODEL, min_tokens_per_s=38, hardware="rtx-3090")
    (named,) = rl.recommend(MODEL, min_tokens_per_s=25, hardware="rtx-3090", weights=["Q2_K", "Q4_K_M", "Q8_0"]).met
    assert named.weights == "gguf:q4_k_m"


def test_every_device_is_looked_at_with_the_least_memory_that_does() -> None:
    assert len(database()) > len(rl.list_hardware())
    assert all(rl.hardware(name).kind in ("gpu", "accelerator") for name in COMMON)
    assert set(HOSTED) <= set(COMMON)
    sized = {each.system.device.id: each for each in ALL.met if each.system.device.memory.unified}
    for name in ("apple-m2-ultra-76c", "apple-m3-ultra-80c"):
        sizes = rl.hardware(name).memory.configurations_gib
        taken = sized[name].memory_bytes / 2**30
        assert taken in sizes
        smaller = [size for size in sizes if size < taken]
        if smaller:
            below = asked("llama-3.3-70b", f"{name}@{smaller[-1]:g}GiB", sized[name].weights)
            assert below.memory.fits is False


def test_cards_with_a_host_are_listed_only_for_what_lies_there() -> None:
    found = rl.recommend("gpt-oss-120b", min_tokens_per_s=15)
    hosted = [each for each in found.met if each.system.host is not None]
    assert hosted
    for each in hosted:
        workload = each.estimate.workload
        assert workload["gpu_layers"] is not None or workload["cpu_moe_layers"] is not None


def test_other_engines_serve_devices_that_llama_cpp_does_not_run_on() -> None:
    found = rl.recommend("qwen3-8b", min_tokens_per_s=10, hardware=["google-tpu-v5p", "rtx-4090"])
    engines = {each.system.device.id: each.estimate.engine.partition(":")[0] for each in found.met}
    assert engines == {"google-tpu-v5p": "vllm", "nvidia-geforce-rtx-4090": "llama.cpp"}


def test_several_devices_share_every_product_under_engines_that_work_so() -> None:
    found = rl.recommend("llama-3.3-70b", min_tokens_per_s=30, hardware=["h100-sxm", "4x h100-sxm"], weights="fp8")
    best = found.best
    assert best is not None and best.system.count == 1
    (four,) = [each for each in found.met if each.system.count == 4]
    again = asked("llama-3.3-70b", "4x h100-sxm", "fp8", tensor_parallel=4)
    assert again.decode.to_dict() == four.estimate.decode.to_dict()


# --- order and cost


def test_the_smallest_memory_comes_first_then_the_lowest_power() -> None:
    ranks = [each.rank(priced=False)[2:4] for each in ALL.met]
    assert ranks == sorted(ranks)
    first = ALL.best
    assert first is not None and first.memory_bytes == min(each.memory_bytes for each in ALL.met)


def test_prices_order_and_bound_what_is_named() -> None:
    prices = {"rtx-3090": 700.0, "rtx-4090": 1800.0, "rtx-5090": 2500.0, "4x rtx-3090": 2500.0}
    found = rl.recommend(MODEL, min_tokens_per_s=20, hardware=SOME, prices=prices)
    paid = [each.price for each in found.met if each.price is not None]
    assert paid == sorted(paid) and {700.0, 1400.0} <= set(paid)  # two cards cost twice as much
    assert all(each.price is None for each in found.met[len(paid) :])
    limited = rl.recommend(MODEL, min_tokens_per_s=20, hardware=SOME, prices=prices, budget=1400)
    assert {each.price for each in limited.met} <= {700.0, 1400.0}
    best = limited.best
    assert best is not None and best.price_per_token_per_s == pytest.approx(
        700 / best.estimate.decode.aggregate_tokens_per_s.expected
    )


def test_the_cost_of_a_million_tokens_is_rent_over_rate() -> None:
    (rented,) = rl.recommend(MODEL, hardware="h100-sxm", prices_per_hour={"h100-sxm": 3.6}, batch=4).met
    cost, rate = rented.cost_per_million_tokens, rented.estimate.decode.aggregate_tokens_per_s
    assert cost is not None
    assert cost.expected == pytest.approx(1e6 * 3.6 / (3600 * rate.expected))
    assert cost.ideal <= cost.low <= cost.expected <= cost.high
    assert cost_per_million_tokens(7.2, rate).expected == pytest.approx(2 * cost.expected)
    assert rented.price is None and rented.price_per_token_per_s is None


def test_energy_is_that_of_the_estimate() -> None:
    row = FEW.to_dict()["met"][0]
    energy = FEW.met[0].estimate.energy_j_per_token
    assert energy is not None and row["energy_j_per_token"] == energy.to_dict()


# --- where nothing does


def test_where_nothing_does_it_says_what_comes_nearest_and_what_is_lacking() -> None:
    found = rl.recommend("llama-3.3-70b", min_tokens_per_s=25, hardware=["rtx-4090", "m3-max-40c@64GiB", "a6000"])
    assert not found and found.best is None
    assert found.nearest[0].system.device.id == "nvidia-rtx-a6000"
    factors = [each.worst for each in found.nearest]
    assert factors == sorted(factors) and min(factors) > 1
    (short,) = found.nearest[0].shortfalls
    assert short.what == "decode" and short.factor == pytest.approx(25 / (short.got or 0))
    assert "decode" in found.tables()[0].to_text()


def test_shortfalls_are_factors_in_their_own_units() -> None:
    assert Shortfall("memory", 48e9, 24e9).factor == 2
    assert Shortfall("first token", 2.0, 3.0).factor == 1.5
    assert Shortfall("power", 300.0, None).factor == math.inf
    assert Shortfall("power", 300.0, None).to_dict()["factor"] is None
    assert Shortfall("decode", 10.0, 8.0, is_bound=True).text() == "decode at most 8.00 of 10.0 tok/s"


def test_unknown_power_or_capacity_meets_no_limit() -> None:
    mac = rl.recommend(MODEL, max_power_w=1000, hardware="m2-ultra-76c@64GiB")
    assert not mac and mac.nearest[0].shortfalls == (Shortfall("power", 1000.0, None),)
    bare = rl.recommend(MODEL, hardware="rtx-3060-12gb + ddr5-5600x2")
    assert not bare and bare.nearest[0].shortfalls[0].what == "memory"
    assert "not known" in bare.nearest[0].shortfalls[0].text()


def test_a_processor_gets_the_memory_it_needs() -> None:
    for name in ("7950x", "7950x + ddr5-5600x2"):
        (found,) = rl.recommend("qwen3-8b", hardware=name, weights="Q8_0").met
        assert found.memory_bytes == 16 * 2**30
        assert found.estimate.to_dict() == asked("qwen3-8b", found.system.id, "Q8_0").to_dict()


def test_a_context_beyond_the_model_is_said() -> None:
    with pytest.warns(rl.RooflineWarning, match="beyond the 40,960"):
        found = rl.recommend("qwen3-8b", context=65_536, hardware="rtx-4090", weights="Q4_K_M")
    assert len(found.warnings) == 1


def test_where_it_runs_nowhere_the_reason_is_raised() -> None:
    with pytest.raises(rl.RooflineError, match="does not run on"):
        rl.recommend(MODEL, hardware="google-tpu-v5p", engine="llama.cpp")


@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"min_tokens_per_s": 0}, "min_tokens_per_s"),
        ({"min_tokens_per_s": math.nan}, "min_tokens_per_s"),
        ({"max_ttft_s": -1}, "max_ttft_s"),
        ({"max_power_w": "x"}, "max_power_w"),
        ({"context": 0}, "context"),
        ({"context": 256, "prompt_tokens": 512}, "prompt_tokens"),
        ({"batch": 0}, "batch"),
        ({"hardware": []}, "hardware"),
        ({"weights": []}, "weights"),
        ({"budget": 100}, "budget"),
        ({"prices": {"rtx-4090": -1}}, "prices, rtx-4090"),
        ({"prices": 3}, "prices"),
        ({"min_bits_per_weight": -1}, "min_bits_per_weight"),
        ({"min_bits_per_weight": 64}, "min_bits_per_weight"),
        ({"engine": "vllm", "weights": "Q4_K_M"}, "weights"),
    ],
)
def test_impossible_arguments_are_refused(keywords: dict[str, Any], where: str) -> None:
    with pytest.raises(rl.InvalidRequest) as caught:
        rl.recommend(MODEL, **{"hardware": ["rtx-4090"], **keywords})
    assert caught.value.where == where


def test_names_are_names() -> None:
    for keywords in ({"hardware": "rtx-4091"}, {"weights": "Q9_9"}, {"prices": {"rtx-4091": 1}}):
        with pytest.raises(rl.UnknownName):
            rl.recommend(MODEL, **{"hardware": ["rtx-4090"], **keywords})


# --- tables and command


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("of", [ALL, FEW, rl.recommend(MODEL, min_tokens_per_s=9000, hardware=SOME)])
def test_tables_fit_and_keep_the_answer(of: Recommendation, width: int) -> None:
    texts = [table.to_text(width) for table in of.tables()]
    assert max(len(line) for line in texts[0].splitlines()) <= width
    assert f"of {of.systems} systems" in texts[0]
    assert ("safe" if of else "lacks") in texts[0]
    assert "what it takes at least" in texts[1]


def test_the_least_bandwidth_is_a_steps_bytes_times_the_rate() -> None:
    row = next(each for each in ALL.to_dict()["needs"] if each["weights"] == "gguf:q4_k_m")
    read = asked("llama-3.3-70b", "rtx-4090", "Q4_K_M").decode.read_bytes
    assert row["least_bandwidth_bytes_per_s"] == pytest.approx(10 * read)


def test_the_command_and_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    few = [part for name in SOME for part in ("--hardware", name)]
    code, out, err = run(capsys, "recommend", MODEL, "--min-tokens-per-s", "20", *few, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert {key: content[key] for key in FEW.to_dict()} == json.loads(FEW.to_json())
    code, out, _ = run(capsys, "recommend", MODEL, "-x", "20", *few, "-f", "csv")
    assert (code, len(out.splitlines())) == (0, 1 + len(FEW.met))
    code, out, _ = run(capsys, "recommend", MODEL, "-x", "20", *few, "--price", "rtx-3090=700", "-f", "md")
    assert code == 0 and "| RTX 3090 |" in out and "700" in out
    code, out, _ = run(capsys, "recommend", MODEL, "-x", "20", "--hardware", "rtx-3060-12gb")
    assert code == 1 and "none of 1 systems does" in out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--min-tokens-per-s", "0"), "--min-tokens-per-s: 0.0 is not a number above 0"),
        (("--price", "rtx-3090"), "--price"),
        (("--price", "rtx-3090=cheap"), "no hardware=price"),
        (("--hardware", "rtx-4091"), "no device is called"),
        (("--budget", "100"), "a budget needs prices"),
        (("--context", "256", "--prompt", "512"), "--prompt: 512 tokens of prompt do not fit"),
    ],
)
def test_mistakes_are_said_in_a_line(capsys: pytest.CaptureFixture[str], typed: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, "recommend", MODEL, *typed)
    assert (code, out) == (2, "") and said in err


def test_context_has_the_name_of_other_functions_too() -> None:
    named = {"hardware": "rtx-4090", "weights": "Q4_K_M", "min_tokens_per_s": 10}
    assert rl.recommend("llama-3.1-8b", context_tokens=4096, **named).wish.context == 4096
    with pytest.raises(rl.InvalidRequest, match="context_tokens"):
        rl.recommend("llama-3.1-8b", context_tokens=4096, context=2048, **named)
