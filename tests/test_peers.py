"""The comparison with other tools, as far as it needs none of them."""

import sys
from pathlib import Path

import pytest

import rooflinellm as rl
from rooflinellm.measurements import Resolved, Row, resolve
from rooflinellm.measurements.names import Names

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))

import peer_tools
import peers


def asked(**cells):
    row = {
        "kind": "local", "id": "a", "device_id": "nvidia-geforce-rtx-4090", "backend": "CUDA", "engine": "llama.cpp",
        "hf_model_id": "meta-llama/Llama-2-7b-hf", "quant": "Q4_0", "test_kind": "decode", "gen_tokens": 128,
        "tokens_per_s": 150.0, "file_size_gib": 3.56,
    }  # fmt: skip
    resolved = resolve(Row(**(row | cells)))
    assert isinstance(resolved, Resolved), resolved
    return peer_tools.question_of(resolved)


def test_llmfits_rule():
    # its README: 0.55 · bandwidth / size; its fit.rs compares 7B Q4_0 on an M1 Max (400 GB/s) with 61 token/s measured
    assert peer_tools.llmfit_rule(400e9, 3.56 * 2**30) == pytest.approx(57.6, abs=0.1)
    question = asked()
    assert peer_tools._ask_llmfit(question) == pytest.approx(0.55 * 1008e9 / (3.56 * 2**30), rel=1e-3)
    assert peer_tools._ask_bandwidth(question) == pytest.approx(1008e9 / (3.56 * 2**30), rel=1e-3)


def test_rules_are_not_asked_what_they_do_not_know():
    for cells, why in (
        ({"test_kind": "prefill", "prompt_tokens": 512}, "prefill"),
        ({"depth_tokens": 32768}, "long contexts"),
        ({"hf_model_id": "mistralai/Mixtral-8x7B-v0.1", "file_size_gib": 20}, "mixtures"),
    ):
        with pytest.raises(peer_tools.NotAsked, match=why):
            peer_tools._ask_llmfit(asked(**cells))


def test_questions_are_of_one_request_or_a_server():
    assert asked().mean_context == 64
    assert asked(test_kind="batched_decode", batch_size=4) is None
    server = {
        "kind": "server", "engine": "vLLM", "backend": None, "quant": None, "weight_dtype": "FP8", "value": 20.0,
        "unit": "ms", "test_kind": "tpot", "input_tokens": 1000, "output_tokens": 500, "batch_size_or_concurrency": 8,
        "file_size_gib": None, "device_id": "nvidia-h100-sxm5-80gb", "hf_model_id": "meta-llama/Llama-3.1-70B-Instruct",
        "device_count": 4, "tp": 4,
    }  # fmt: skip
    question = asked(**server)
    assert (question.of, question.devices, question.batch, question.mean_context) == ("tpot", 4, 8, 1250)
    assert asked(**(server | {"tp": 2, "pp": 2})) is None


def test_names_of_ours_exist():
    """A device, model or format that was renamed would silently be asked no more."""
    tables = {name: set(table) for name, table in vars(peer_tools).items() if isinstance(table, dict)}
    devices = set().union(*(table for name, table in tables.items() if name.endswith("_DEVICES")))
    models = set().union(*(table for name, table in tables.items() if name.endswith("_MODELS")))
    formats = set().union(*(table for name, table in tables.items() if name.endswith(("_FORMATS", "_NEAREST"))))
    engines = set(peer_tools.RIDGEPOINT_ENGINES) | set(peer_tools.LLAMA_CPP)
    assert devices <= {each.id for each in rl.list_hardware()}
    assert models <= {each.id for each in rl.list_models()}
    assert {Names().engine(name).id for name in engines} == engines
    from rooflinellm import catalog

    assert formats <= {catalog.weight_format(name).id for name in formats}


def test_scores():
    rates = peers.score([110.0, 50.0, 300.0], [100.0, 100.0, 100.0], is_time=False)
    assert (rates.mdape, rates.near) == (pytest.approx(0.5), pytest.approx(1 / 3))
    assert rates.p90 == pytest.approx(0.5 + 0.8 * 1.5)  # of 10 %, 50 % and 200 %, linear between ranks
    assert rates.bias == pytest.approx(0.1)
    times = peers.score([2.0, 2.0], [1.0, 1.0], is_time=True)
    assert (times.mdape, times.bias) == (pytest.approx(1.0), pytest.approx(-0.5))  # twice the time is half the speed


def test_a_peer_that_is_not_installed_has_no_version():
    assert peer_tools.Peer("none", "rooflinellm-has-no-such-peer", lambda _question: 1.0).version is None
    assert peer_tools.Peer("rule", None, lambda _question: 1.0).version == ""
