"""Every kind of layer: its tensors by hand on small numbers, and real models to the byte and the FLOP.

The values of real models were derived twice outside this library, from the shapes in their config.json: as a closed
form for a layer, and as a list of tensors. A checkpoint's weights are BF16 here, its cache 16 bits; llama.cpp keeps
recurrent states in 32 bits, vLLM the part that waits in convolutions in 16.
"""

from __future__ import annotations

from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm.errors import InvalidSpec
from rooflinellm.operators import attention, recurrent
from rooflinellm.operators.cache import CacheTypes
from rooflinellm.operators.graph import block_operators
from rooflinellm.operators.layers import attention_tensors, block_tensors, mixer_tensors, mtp_tensors
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import validate
from rooflinellm.specs.formats import packaged_encodings
from rooflinellm.specs.model import (
    Attention,
    Block,
    CompressedAttention,
    DeltaNet,
    ExtraTensor,
    GatedFFN,
    Indexer,
    KimiDelta,
    LatentAttention,
    LayerGroup,
    LightningAttention,
    Mamba,
    Mamba2,
    MixtureOfExperts,
    ModelEntry,
    MtpModule,
    NoFFN,
    NoMixer,
    ShortConvolution,
)

ROOMY = "8TiB,1TB/s,1000TFLOP/s@bf16"
NOTHING = NoFFN(kind="none")


def checkpoint(model: str, **request: Any) -> Any:
    """A Hugging Face checkpoint in BF16 under vLLM."""
    return rl.estimate(model, ROOMY, weights="hf:bf16", engine="vllm", **request)


def decode_step(model: str, *, cached: int = 0, batch: int = 1) -> Any:
    """One step on top of so many cached tokens in each sequence."""
    return checkpoint(model, prompt_tokens=0, context_tokens=cached, output_tokens=1, batch=batch).decode


def exactly(found: Any, expected: int) -> None:
    """The same whole number, as a whole number."""
    assert type(found) is int
    assert found == expected


def read_by(phase: Any, *names: str) -> int:
    """Bytes that operators of these names read; behind a name may stand which of several it is."""
    return sum(row.read_bytes for row in phase.operators if row.name.partition(" (")[0] in names)


# ------------------------------------------------------------------------------------------- real models, to the unit


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # 27 state spaces, 25 feed-forward layers without a gate, 4 attentions, each with one norm.
        ("nemotron-nano-9b-v2", 8_888_227_328),
        # 64 layers, one group, a tied head of 50,288 rows.
        ("mamba2-2.7b", 2_702_599_680),
        ("deepseek-v3", 671_026_419_200),
        ("deepseek-v2-lite", 15_706_484_224),
        ("qwen3-next-80b-a3b", 79_674_391_296),
        ("kimi-linear-48b-a3b", 49_122_681_728),
        ("minimax-text-01", 456_089_655_296),
        ("jamba-v0.1", 51_570_323_328),
        ("granite-4.0-h-small", 32_207_337_984),
        ("falcon-h1-7b", 7_585_654_880),
        ("lfm2-1.2b", 1_170_340_608),
        ("llama-4-scout", 107_769_861_120),
        ("gemma-3n-e4b", 6_866_696_688),
        ("gemma-4-26b-a4b", 25_233_141_790),
        ("nemotron-3-super-120b-a12b", 120_668_687_360),
        ("llama-3.3-nemotron-super-49b", 49_867_145_216),
        # As many as DeepseekV4ForCausalLM of Transformers 5.24.0 has, with its tables of experts by token.
        ("deepseek-v4-flash", 284_332_230_231 + 2_337_280),
        ("minimax-m3", 426_174_565_632 + 7_296),
    ],
)
def test_total_parameters(name: str, total: int) -> None:
    exactly(rl.model(name).total_params, total)


@pytest.mark.parametrize(
    ("name", "active"),
    [
        # Eight of 256 experts and a shared one in 58 of 61 layers; no embedding, norms or biases.
        ("deepseek-v3", 36_624_596_992),
        # Convolutions, decays and step sizes are no matrices.
        ("nemotron-nano-9b-v2", 8_298_823_680),
        ("mamba2-2.7b", 2_700_369_920),
    ],
)
def test_multiplied_parameters(name: str, active: int) -> None:
    exactly(rl.model(name).active_params, active)


@pytest.mark.parametrize(
    ("name", "counted", "copies"),
    [
        # What the repository counts: the text model, the module, the tower, and copies of embedding and head.
        ("deepseek-r1", 684_489_845_504, 2),
        ("deepseek-v3.2", 685_355_329_792, 2),
        ("glm-4.5", 358_337_791_296, 2),
        ("glm-4.6", 356_785_898_816, 0),
        ("glm-5", 753_864_139_008, 0),
        ("glm-5.2", 753_329_940_480, 0),
        ("nemotron-3-super-120b-a12b", 123_611_012_096, 0),
        ("mimo-7b", 7_833_409_536, 0),
        ("ling-3.0-flash", 127_486_405_600, 0),
        ("qwen3.5-27b", 27_781_427_952, 0),
        ("qwen3.5-122b-a10b", 125_086_497_008, 0),
    ],
)
def test_repositories_hold_the_prediction_module_too(name: str, counted: int, copies: int) -> None:
    model = rl.model(name)
    around = copies * model.hidden * model.vocabulary + (model.entry.tower_params or 0)
    assert model.mtp_params > 0
    exactly(model.total_params + model.mtp_params + around, counted)


def test_a_latent_is_cached_once() -> None:
    # 61 layers x (512 + 64) elements of 2 bytes.
    exactly(rl.model("deepseek-v3").kv_bytes_per_token("bf16"), 70_272)


def test_windows_of_gemma3_hold_no_more_than_themselves() -> None:
    found = checkpoint("gemma-3-27b", prompt_tokens=32_768, output_tokens=0)
    exactly(found.memory.kv_occupied_bytes, 3_120_562_176)
    exactly(decode_step("gemma-3-27b", cached=32_768).read_bytes, 57_139_254_784)


def test_decode_while_windows_fill() -> None:
    # Gemma 3 27B on 3,350 GB/s: 54,018,692,608 bytes of weights, 10 layers that grow, 52 that stop at 1,024 tokens, of
    # 8,192 bytes each; 2,000 steps from 600 cached tokens on.
    found = rl.estimate(
        "gemma-3-27b",
        "8TiB,3350GB/s,989.4TFLOP/s@bf16",
        weights="hf:bf16",
        engine="vllm",
        prompt_tokens=0,
        context_tokens=600,
        output_tokens=2000,
    ).decode
    capped = 54_018_692_608 * 2000 + 8192 * sum(10 * (600 + i) + 52 * min(600 + i, 1024) for i in range(2000))
    assert capped / 3350e9 == pytest.approx(32.57715861779104, rel=1e-12)
    exactly(found.read_bytes, capped)


@pytest.mark.parametrize(("name", "size"), [("qwen3-next-80b-a3b", 79_036_416), ("mamba2-2.7b", 171_900_928)])
def test_state_of_a_sequence(name: str, size: int) -> None:
    # Qwen3-Next: 36 layers x (32 x 128 x 128 + 3 x (2 x 16 x 128 + 32 x 128)) x 4 bytes.
    # Mamba2: 64 layers x (5,120 x 128 + 3 x (5,120 + 2 x 128)) x 4 bytes.
    found = rl.estimate(name, ROOMY, weights="gguf:bf16", engine="llama.cpp", prompt_tokens=16, output_tokens=0)
    exactly(found.memory.state_bytes, size)


def test_states_outweigh_weights_in_a_batch() -> None:
    # Mamba2 2.7B, 64 sequences: 5,405,199,360 bytes of weights in BF16 and each state read and written in 32 bits make
    # 27,408,518,144. GGUF files keep vectors in 32 bits: 2 bytes more for what is no matrix.
    model = rl.model("mamba2-2.7b")
    found = rl.estimate(
        model, ROOMY, weights="gguf:bf16", engine="llama.cpp", prompt_tokens=0, output_tokens=1, batch=64
    )
    vectors = model.total_params - model.active_params
    exactly(found.decode.read_bytes - 2 * vectors, 27_408_518_144)


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        # 5 x 5,120 x 128 FLOPs of recurrence and 2 x 4 x 5,376 of convolution for a token and layer, the head once.
        ("mamba2-2.7b", 21_937_339_809_792),
        ("nemotron-nano-9b-v2", 64_597_784_526_848),
    ],
)
@pytest.mark.parametrize("chunk", [None, 512])
def test_prefill_of_state_spaces(name: str, flops: int, chunk: int | None) -> None:
    found = checkpoint(name, prompt_tokens=4096, output_tokens=0, prefill_chunk=chunk)
    exactly(found.prefill.flops, flops)


def test_sparse_attention_reads_a_choice_and_all_index_keys() -> None:
    # DeepSeek V3.2, 61 layers: 132 bytes of key and scale for all 131,072 tokens, 2,048 latents of 1,152 bytes.
    exactly(read_by(decode_step("deepseek-v3.2", cached=131_072), "attention", "indexer"), 1_199_308_800)


def test_layers_that_share_an_indexer_hold_no_index_keys() -> None:
    # GLM-5 chooses in all 78 layers, GLM-5.2 in 21 of them.
    keys = {name: read_by(decode_step(name, cached=1000), "indexer") for name in ("glm-5", "glm-5.2")}
    assert keys == {"glm-5": 78 * 132_000, "glm-5.2": 21 * 132_000}
    difference = rl.model("glm-5").kv_bytes_per_token() - rl.model("glm-5.2").kv_bytes_per_token()
    exactly(difference, 57 * 132)


def test_compressed_attention_reads_a_window_and_entries() -> None:
    # DeepSeek-V4 Flash, 43 layers of one latent of 512: all read 128 tokens; 21 read 512 entries of 4 tokens that an
    # indexer chose by keys of 132 bytes for 4 tokens; 20 read an entry for 128 tokens.
    step = decode_step("deepseek-v4-flash", cached=131_072)
    exactly(read_by(step, "attention"), 43 * 128 * 1024)
    exactly(read_by(step, "attention to entries"), 21 * 512 * 1024 + 20 * 1024 * 1024)
    exactly(read_by(step, "indexer"), 21 * 131_072 // 4 * 132)


def test_absorbed_latents_cost_more_pairs_and_no_expansion() -> None:
    absorbed, expanded = attention.flops_per_pair(128, 576, 512), attention.flops_per_pair(128, 192, 128)
    assert absorbed / expanded == pytest.approx(3.4, rel=1e-12)
    # A pair over the bytes of a cached token: H (576 + 512) / 576.
    assert absorbed / (2 * 576) == pytest.approx(241.77777777777777, rel=1e-12)
    # One token takes the absorbed form, a whole prompt the expanded one.
    layer = rl.model("deepseek-v3").layers[5]
    (mixing,) = (operator.mixing for operator in block_operators(layer, 7168) if operator.mixing is not None)
    assert mixing.flops_per_pair == absorbed
    assert mixing.expanded_flops_per_pair == expanded
    step, prompt = decode_step("deepseek-v3", cached=4096), checkpoint("deepseek-v3", prompt_tokens=4096).prefill
    assert sum(row.flops for row in step.operators if row.name == "attention") == 61 * 4097 * absorbed
    assert sum(row.flops for row in prompt.operators if row.name == "attention") == 61 * 4096 * 4097 // 2 * expanded


def test_chunks_bound_what_llama4_reads() -> None:
    # 36 of 48 layers see the rest of their chunk of 8,192 tokens, 12 see everything; 2 x 8 x 128 elements a token.
    step = decode_step("llama-4-scout", cached=20_000)
    exactly(read_by(step, "attention"), 4096 * (12 * 20_000 + 36 * (20_000 % 8192)))


def test_tables_and_unused_projections_are_resident_and_not_read() -> None:
    # Gemma 3n E4B: a table of 262,144 x 35 x 256 and the key and value projections of 15 layers without a cache.
    model = rl.model("gemma-3n-e4b")
    found = decode_step("gemma-3n-e4b")
    unused = 262_144 * 35 * 256 + 15 * 2 * 512 * 2048
    exactly(found.read_bytes, 2 * (model.total_params - unused))
    memory = checkpoint("gemma-3n-e4b", prompt_tokens=16, output_tokens=0).memory
    exactly(memory.resident_weight_bytes, 2 * model.total_params)
    # Of 35 layers 20 hold a cache; 2 heads of 256, keys and values.
    exactly(model.kv_bytes_per_token(), 20 * 2 * 2 * 256 * 2)


def test_global_layers_of_gemma4_have_heads_of_their_own() -> None:
    # 25 local layers of 8 x 256, 5 global ones of 2 x 512, keys cached as values too.
    exactly(rl.model("gemma-4-26b-a4b").kv_bytes_per_token(), 2 * (25 * 2 * 8 * 256 + 5 * 2 * 2 * 512))
    exactly(rl.model("gemma-4-12b").kv_bytes_per_token(), 2 * (40 * 2 * 8 * 256 + 8 * 2 * 512))


# --------------------------------------------------------------------------------------------------- tensors, by hand


def params(mixer: Any, hidden: int = 10) -> int:
    return sum(tensor.params for tensor in mixer_tensors(mixer, hidden))


def vectors(mixer: Any, hidden: int = 10) -> int:
    return sum(tensor.params for tensor in mixer_tensors(mixer, hidden) if tensor.use == "vector")


def test_latent_attention() -> None:
    latent = LatentAttention(kind="latent", heads=2, kv_rank=6, nope_dim=4, rope_dim=2, v_head_dim=3)
    # q 12 x 10, kv_a 8 x 10, norm 6, k_b and v_b 2 x (4 + 3) x 6, output 10 x 6.
    assert params(latent) == 120 + 80 + 6 + 84 + 60
    ranked = latent.model_copy(update={"q_rank": 5})
    assert params(ranked) - params(latent) == 5 * 10 + 5 + 12 * 5 - 120
    sparse = latent.model_copy(update={"indexer": Indexer(heads=3, head_dim=4, top_k=7)})
    # Queries 12 x 10, keys 4 x 10, weights 3 x 10, a norm with a bias.
    assert params(sparse) - params(latent) == 120 + 40 + 30 + 8
    pooled = latent.model_copy(update={"indexer": Indexer(heads=3, head_dim=4, top_k=7, ratio=5)})
    assert params(pooled) - params(sparse) == 4 * 10 + 5 * 4
    shared = latent.model_copy(update={"indexer": Indexer(heads=3, head_dim=4, top_k=7, shared=True)})
    assert params(shared) == params(latent)


def test_indexed_grouped_attention() -> None:
    plain = Attention(kind="attention", heads=4, kv_heads=2, head_dim=8)
    sparse = plain.model_copy(update={"indexer": Indexer(heads=3, head_dim=4, top_k=6)})
    assert params(sparse) - params(plain) == 120 + 40 + 8
    names = [operator.name for operator in block_operators(Block(mixer=sparse, ffn=NOTHING), 10)]
    assert names == ["QKV projection", "indexer projection", "indexer", "attention", "attention output", *names[5:]]
    (mixing,) = (o.mixing for o in block_operators(Block(mixer=sparse, ffn=NOTHING), 10) if o.name == "attention")
    assert mixing is not None
    assert mixing.window == 6


def test_an_indexed_cache_is_held_whole() -> None:
    # MiniMax M3: 57 of 60 layers read 2,048 tokens, all hold what was written, and 57 hold index keys.
    found = checkpoint("minimax-m3", prompt_tokens=16_384, output_tokens=0).memory
    exactly(found.kv_occupied_bytes, 16_384 * (60 * 2 * 4 * 128 * 2 + 57 * 132))
    step = decode_step("minimax-m3", cached=16_384)
    exactly(read_by(step, "attention"), 2048 * (3 * 8 + 57) * 2048)


def test_compressed_attention() -> None:
    local = CompressedAttention(
        kind="compressed", heads=4, head_dim=6, q_rank=5, output_groups=2, output_rank=3, window=8
    )
    # q_a 5 x 10, its norm, q_b 24 x 5, kv 6 x 10, its norm, sinks, output 6 x 12 and 10 x 6.
    base = 50 + 5 + 120 + 60 + 6 + 4 + 72 + 60
    assert params(local) == base
    heavy = local.model_copy(update={"ratio": 16})
    assert params(heavy) == base + 2 * 6 * 10 + 16 * 6 + 6
    sparse = local.model_copy(update={"ratio": 4, "indexer": Indexer(heads=3, head_dim=2, top_k=7, ratio=4)})
    # Entries overlap: twice as wide; the indexer's keys are made alike.
    indexing = 6 * 5 + 3 * 10 + 2 * 4 * 10 + 4 * 4 + 2
    assert params(sparse) == base + 2 * 12 * 10 + 4 * 12 + 6 + indexing
    cache = CacheTypes.parse("f16", packaged_encodings())
    cells = [
        (operator.name, cache.token_bytes(operator.mixing.cache), operator.mixing.window)
        for operator in block_operators(Block(mixer=sparse, ffn=NOTHING), 10)
        if operator.mixing is not None
    ]
    # Index keys of 2 + 4 bytes for 4 tokens, rounded up; 7 entries of 4 tokens; latents of 12 bytes.
    assert cells == [("indexer", 2, None), ("attention", 12, 8), ("attention to entries", 3, 28)]
    # Queries of 4 x 6 are read; what was mixed, as wide, is written, and the token's own latent of 6.
    (attention,) = [each for each in block_operators(Block(mixer=local, ffn=NOTHING), 10) if each.name == "attention"]
    assert (attention.inputs, attention.outputs) == (24, 24 + 6)


def test_delta_nets() -> None:
    delta = DeltaNet(kind="delta", key_heads=2, value_heads=4, key_dim=3, value_dim=5)
    # Channels 2 x 2 x 3 + 4 x 5 = 32; projections 32 + 20 and 2 x 4 rows, output 10 x 20.
    assert params(delta) == 52 * 10 + 8 * 10 + 200 + vectors(delta)
    assert vectors(delta) == 4 * 32 + 4 + 4 + 5
    assert recurrent.state_elements(delta, 10) == (4 * 3 * 5, 3 * 32)
    assert recurrent.flops_per_token(delta, 10) == 7 * 60 + 2 * 4 * 32
    kimi = KimiDelta(kind="kda", heads=2, head_dim=4)
    # Queries, keys, values and output of 8; decay and gate of rank 4; step sizes for 2 heads.
    assert params(kimi) == 4 * 80 + 2 * (4 * 10 + 8 * 4) + 2 * 10 + vectors(kimi)
    assert vectors(kimi) == 4 * 24 + 2 + 8 + 4
    assert params(kimi.model_copy(update={"full_rank": True})) == 4 * 80 + 2 * 8 * 10 + 2 * 10 + vectors(kimi)
    assert recurrent.state_elements(kimi, 10) == (2 * 16, 3 * 24)


def test_state_spaces() -> None:
    first = Mamba(kind="mamba", inner=20, state=3, dt_rank=2)
    # in 40 x 10, x (2 + 6) x 20, dt 20 x 2, output 10 x 20; convolution 4 x 20 and its bias, dt bias, A 60, D 20.
    assert params(first) == 400 + 160 + 40 + 200 + 80 + 20 + 20 + 60 + 20
    assert params(first.model_copy(update={"inner_norms": True})) - params(first) == 2 + 3 + 3
    assert recurrent.state_elements(first, 10) == (60, 60)
    second = Mamba2(kind="mamba2", heads=4, head_dim=5, state=3, groups=2)
    # Channels 20 + 2 x 2 x 3 = 32; in (20 + 32 + 4) x 10, output 10 x 20.
    assert params(second) == 560 + 200 + vectors(second)
    assert vectors(second) == 4 * 32 + 32 + 3 * 4 + 20
    assert params(second.model_copy(update={"projection_bias": True})) - params(second) == 56 + 10
    assert recurrent.flops_per_token(second, 10) == 5 * 60 + 2 * 4 * 32


def test_convolutions_and_lightning() -> None:
    convolution = ShortConvolution(kind="short_conv", kernel=3)
    assert params(convolution) == 30 * 10 + 10 * 10 + 3 * 10
    assert recurrent.state_elements(convolution, 10) == (0, 20)
    lightning = LightningAttention(kind="lightning", heads=2, head_dim=4)
    assert params(lightning) == 3 * 80 + 80 + 80 + 8
    assert recurrent.state_elements(lightning, 10) == (2 * 16, 0)


def test_layers_without_a_cache_do_not_multiply_their_projections() -> None:
    shared = Attention(kind="attention", heads=4, kv_heads=2, head_dim=8, kv="shared", qk_norm="head")
    assert [tensor.name for tensor in attention_tensors(shared, 10) if tensor.use == "lookup"] == ["attn_k", "attn_v"]
    operators = block_operators(Block(mixer=shared, ffn=NOTHING), 10)
    assert sum(operator.active_params for operator in operators) == 2 * 32 * 10
    bare = shared.model_copy(update={"kv_projections": False})
    assert params(shared) - params(bare) == 2 * 16 * 10 + 8


def test_two_mixers_side_by_side() -> None:
    first = Attention(kind="attention", heads=4, kv_heads=2, head_dim=8)
    second = Mamba2(kind="mamba2", heads=4, head_dim=5, state=3)
    block = Block(mixer=first, beside=second, ffn=GatedFFN(kind="gated", intermediate=6))
    assert sum(tensor.params for tensor in block_tensors(block, 10)) == params(first) + params(second) + 180 + 20
    kinds = {operator.kind for operator in block_operators(block, 10)}
    assert {"attention", "recurrent", "linear", "vector"} <= kinds


def test_tables_of_a_layer_are_not_read() -> None:
    table = ExtraTensor(name="table", rows=100, columns=2, use="lookup")
    branch = ExtraTensor(name="branch", rows=3, columns=10)
    block = Block(mixer=NoMixer(kind="none"), ffn=NOTHING, norms=1, extra=(table, branch))
    found = {operator.name: operator.kind for operator in block_operators(block, 10)}
    assert found == {"side branches": "linear", "tables": "embedding", "norms and residuals": "vector"}


def test_products_one_behind_the_other_read_what_the_ones_before_wrote() -> None:
    # 10 features become 3, and these 10 again; a norm rides along and moves none of its own.
    down, up = ExtraTensor(name="down", rows=3, columns=10), ExtraTensor(name="up", rows=10, columns=3)
    norm = ExtraTensor(name="norm", rows=1, columns=10, use="vector")
    block = Block(mixer=NoMixer(kind="none"), ffn=NOTHING, norms=0, extra=(down, up, norm))
    (branches,) = (operator for operator in block_operators(block, 10) if operator.kind == "linear")
    assert (branches.inputs, branches.outputs) == (10 + 3, 3 + 10)
    assert len(branches.tensors) == 3


def test_a_prediction_module_is_counted_apart() -> None:
    layer = Block(mixer=NoMixer(kind="none"), ffn=GatedFFN(kind="gated", intermediate=6), norms=1)
    entry = ModelEntry(
        id="tiny",
        name="Tiny",
        family="tiny",
        hidden=10,
        vocabulary=50,
        tied_embeddings=True,
        max_context_tokens=8,
        native_format="hf:bf16",
        layers=(LayerGroup(pattern=(layer,)),),
        mtp=MtpModule(pattern=(layer,), extra=(ExtraTensor(name="eh_proj", rows=10, columns=20),)),
    )
    model = ModelSpec(entry)
    assert model.mtp_params == sum(tensor.params for tensor in mtp_tensors(entry)) == 180 + 10 + 200
    assert model.total_params == 180 + 10 + 10 + 500
    assert ModelSpec(entry.model_copy(update={"mtp": None})).mtp_params == 0


@pytest.mark.parametrize(
    ("mixer", "message"),
    [
        ({"kind": "attention", "heads": 3, "kv_heads": 2, "head_dim": 4}, "no multiple of kv_heads"),
        ({"kind": "attention", "heads": 2, "kv_heads": 2, "head_dim": 4, "window": 8, "chunk": 8}, "not both"),
        ({"kind": "attention", "heads": 2, "kv_heads": 2, "head_dim": 4, "kv_projections": False}, "cache of its own"),
        (
            {
                "kind": "attention",
                "heads": 2,
                "kv_heads": 2,
                "head_dim": 4,
                "window": 8,
                "indexer": {"heads": 1, "head_dim": 2, "top_k": 3},
            },
            "whole cache",
        ),
        (
            {
                "kind": "compressed",
                "heads": 2,
                "head_dim": 4,
                "q_rank": 2,
                "output_groups": 3,
                "output_rank": 1,
                "window": 4,
            },
            "output_groups",
        ),
        ({"kind": "hyena", "heads": 2}, "hyena"),
    ],
)
def test_impossible_mixers_are_refused(mixer: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        validate(Block, {"mixer": mixer, "ffn": {"kind": "none"}}, where="block")


def test_experts_may_work_in_a_smaller_size() -> None:
    experts = MixtureOfExperts(kind="moe", experts=4, active=2, intermediate=3, gated=False, expert_hidden=5)
    block = Block(mixer=NoMixer(kind="none"), ffn=experts, norms=0)
    # A router of 4 x 10, and up and down of 3 x 5 four times.
    assert sum(tensor.params for tensor in block_tensors(block, 10)) == 40 + 4 * 30
