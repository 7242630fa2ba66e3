"""What the flags of programs mean to an estimate, as data: a table for each program.

Three kinds: flags that set something an estimate knows (with the name of the setting), flags that matter for speed or
memory and that an estimate cannot say (`NOTED`), and flags that make no difference (`SILENT`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SILENT, NOTED = "", "?"


@dataclass(frozen=True, slots=True)
class Flag:
    """The meaning of a flag.

    Attributes
    ----------
    key : str
        Setting that it gives; `SILENT` or `NOTED`.
    takes : {'value', 'values', 'nothing', 'maybe'}
        Whether a value follows. ``values`` are all words up to the next flag, ``maybe`` is a word such as ``on``.
    word : str
        What stands for the value where none follows.
    why : str
        What a reader of the note should know.
    """

    key: str
    takes: Literal["value", "values", "nothing", "maybe"] = "value"
    word: str = "on"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is known by its command line.

    Attributes
    ----------
    name : str
        As people call it.
    engine : str
        The engine it runs.
    flags : mapping of str to Flag
        By name as typed.
    positional : str
        Setting that a word without a flag gives; empty where there is none.
    defaults : mapping of str to str
        Settings of the workload where no flag gives them.
    lists : bool
        Values may be lists with commas, and flags be repeated, for a test of each.
    """

    name: str
    engine: str
    flags: Mapping[str, Flag]
    positional: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
    lists: bool = False


def _table(rows: Mapping[str, Flag]) -> dict[str, Flag]:
    """Rows whose keys list all names of a flag, by single name."""
    return {name: flag for names, flag in rows.items() for name in names.split()}


def _all(names: str, flag: Flag) -> dict[str, Flag]:
    return dict.fromkeys(names.split(), flag)


_SWITCH = Flag(SILENT, "nothing")
_OF_DRAFT = Flag(NOTED, why="of the draft model")
_THE_HARDWARE = Flag(NOTED, why="the devices are those of the hardware named")

# ggml-org/llama.cpp, common/arg.cpp as listed in tools/server/README.md; older names beside them.
_LLAMA = {
    **_table(
        {
            "-m --model": Flag("model"),
            "-mu --model-url": Flag("model"),
            "-hf -hfr --hf-repo": Flag("repository"),
            "-hff --hf-file": Flag("repository_file"),
            "-ngl --gpu-layers --n-gpu-layers": Flag("gpu_layers"),
            "-ot --override-tensor": Flag("override"),
            "-cmoe --cpu-moe": Flag("experts_on_host", "nothing", "all"),
            "-ncmoe --n-cpu-moe": Flag("experts_on_host"),
            "-c --ctx-size": Flag("context"),
            "-np --parallel": Flag("slots"),
            "-kvu --kv-unified": Flag("kv_unified", "nothing"),
            "-no-kvu --no-kv-unified": Flag("kv_unified", "nothing", "off"),
            "-b --batch-size": Flag("batch_tokens"),
            "-ub --ubatch-size": Flag("chunk"),
            "-ctk --cache-type-k": Flag("kv_keys"),
            "-ctv --cache-type-v": Flag("kv_values"),
            "-fa --flash-attn": Flag("flash_attention", "maybe"),
            "-nkvo --no-kv-offload": Flag("kv_on_host", "maybe"),
            "-kvo --kv-offload": Flag("kv_on_host", "nothing", "off"),
            "--swa-full": Flag("swa_full", "nothing"),
            "-ts --tensor-split": Flag("tensor_split"),
            "-sm --split-mode": Flag("split_mode"),
            "-t --threads -tb --threads-batch": Flag("threads"),
            "-md --model-draft --spec-draft-model": Flag("draft"),
            "-hfd -hfrd --hf-repo-draft --spec-draft-hf": Flag("draft"),
            "--draft --draft-n --draft-max --spec-draft-n-max": Flag("draft_tokens"),
            "--rpc -rpc": Flag(NOTED, why="devices behind a network"),
            "--lora --lora-scaled --control-vector --control-vector-scaled": Flag(NOTED),
            "-mm --mmproj -mmu --mmproj-url": Flag(NOTED, why="only the text model is predicted"),
            "-dev --device": _THE_HARDWARE,
            "--numa": Flag(NOTED),
            "-ncffn --n-cpu-ffn --moe-cache-mib --moe-cache -lzm --lazy-mode": Flag(NOTED),
            "--cache-reuse -lcs --lookup-cache-static -lcd --lookup-cache-dynamic": Flag(NOTED),
            "--spec-type --spec-synth-len --spec-synth-rates --spec-draft-sampling": Flag(NOTED, why="speculation"),
            "--kv-unified-per-slot --override-kv": Flag(NOTED),
            "-nopo --no-op-offload -nr --no-repack --no-host": Flag(NOTED, "maybe"),
            "--spec-default": Flag(NOTED, "nothing", why="speculation"),
            "--embedding --embeddings --rerank --reranking": Flag(NOTED, "nothing", why="no text is generated"),
            "--models-dir --models-preset": Flag(NOTED, why="a router of several models"),
        }
    ),
    **_all(
        "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl -devd --device-draft --spec-draft-device "
        "-cd --ctx-size-draft -ctkd --cache-type-k-draft --spec-draft-type-k -ctvd --cache-type-v-draft "
        "--spec-draft-type-v --draft-min --draft-n-min --spec-draft-n-min --draft-p-min --spec-draft-p-min "
        "--draft-p-split --spec-draft-p-split -td --threads-draft -tbd --threads-batch-draft "
        "-otd --override-tensor-draft -ncmoed --n-cpu-moe-draft",
        _OF_DRAFT,
    ),
    **_all("-cmoed --cpu-moe-draft", Flag(NOTED, "nothing", why=_OF_DRAFT.why)),
    **_all(
        "-h --help --usage --version -cl --cache-list --cpu-mask-batch --perf --no-perf -e --escape --no-escape "
        "--repack --op-offload --check-tensors --log-disable --log-jsonl --log-prefix --log-timestamps -v --verbose "
        "--log-verbose --offline --list-devices --ignore-eos -bs --backend-sampling --mlock --mmap --no-mmap "
        "--direct-io --no-direct-io --cont-batching -cb --context-shift --no-context-shift -sp --special --warmup "
        "--no-warmup --spm-infill --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload "
        "--reuse-port --ui --no-ui --webui --no-webui --jinja --no-jinja --metrics --props --slots --no-slots "
        "--cache-prompt --no-cache-prompt --cache-idle-slots --no-cache-idle-slots --prefill-assistant "
        "--no-prefill-assistant --reasoning-preserve --no-reasoning-preserve --models-autoload --no-models-autoload "
        "-ag --agent --no-agent -cnv --conversation -no-cnv --no-conversation -i --interactive -if "
        "--interactive-first -st --single-turn --simple-io --color -co --no-display-prompt --display-prompt "
        "--multiline-input -mli --verbose-prompt --show-timings --no-show-timings --skip-chat-parsing "
        "--lora-init-without-apply --prompt-cache-all --prompt-cache-ro --in-prefix-bos",
        _SWITCH,
    ),
    **_all("-nocb --no-cont-batching", Flag(NOTED, "nothing", why="requests then wait for each other")),
    **_all("--log-colors -fit --fit -rea --reasoning", Flag(SILENT, "maybe")),
    **_all(
        "-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb -Crb --cpu-range-batch --cpu-strict-batch "
        "--prio-batch --poll-batch --keep --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale "
        "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -dt --defrag-thold "
        "-lm --load-mode -mg --main-gpu -fitt --fit-target -fitc --fit-ctx --control-vector-layer-range -hft "
        "--hf-token --log-file -lv --verbosity --log-verbosity --samplers -s --seed --sampler-seq --sampling-seq "
        "--temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --xtc-probability --xtc-threshold "
        "--typical --typical-p --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty "
        "--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker "
        "--adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent "
        "-l --logit-bias --grammar --grammar-file -j --json-schema -jf --json-schema-file -ctxcp --ctx-checkpoints "
        "--swa-checkpoints -cms --checkpoint-min-step -cram --cache-ram -r --reverse-prompt --pooling "
        "--image-min-tokens --image-max-tokens -a --alias --tags --embd-normalize --host --port --path --api-prefix "
        "--cors-origins --cors-methods --cors-headers --ui-config --ui-config-file --webui-config --tools "
        "--tools-runtime --mcp-servers-config --mcp-servers-json --api-key --api-key-file --ssl-key-file "
        "--ssl-cert-file --chat-template-kwargs -to --timeout --sse-ping-interval --threads-http --slot-save-path "
        "--media-path --models-max --reasoning-format --reasoning-effort --reasoning-budget "
        "--reasoning-budget-message --chat-template --chat-template-file -sps --slot-prompt-similarity "
        "--sleep-idle-seconds --log-prompts-dir -sys --system-prompt -sysf --system-prompt-file --prompt-cache "
        "--in-prefix --in-suffix --image --audio -gan -gaw --grp-attn-n --grp-attn-w",
        Flag(SILENT),
    ),
}
_SERVER = _LLAMA | _all("-n --predict --n-predict", Flag(NOTED, why="a limit of the answer; name its length"))
_CLI = _LLAMA | _table(
    {
        "-n --predict --n-predict": Flag("predict"),
        "-p --prompt -f --file": Flag(NOTED, why="name the prompt's length in tokens"),
    }
)
# tools/llama-bench/README.md: every value may be a list
_BENCH = _LLAMA | {
    **_table(
        {
            "-p --n-prompt": Flag("bench_prompt"),
            "-n --n-gen": Flag("bench_output"),
            "-pg": Flag("bench_both"),
            "-d --n-depth": Flag("bench_depth"),
            "-embd": Flag(NOTED, "maybe"),
            "-mmp --mmap -dio --direct-io": Flag(SILENT, "maybe"),
        }
    ),
    **_all("-r --repetitions -o --output -oe --output-err --delay --n-gen-warmup", Flag(SILENT)),
    **_all("--progress", _SWITCH),
}
_BATCHED_BENCH = _LLAMA | {
    **_table(
        {
            "-npp": Flag("batched_prompt"),
            "-ntg": Flag("batched_output"),
            "-npl": Flag("batched_sequences"),
            "-pps": Flag(NOTED, "nothing", why="all sequences share one prompt"),
        }
    ),
    **_all("--output-format", Flag(SILENT)),
    **_all("-tgs", _SWITCH),
}

# vllm-project/vllm, vllm/engine/arg_utils.py and vllm/entrypoints/openai/cli_args.py
_VLLM = {
    **_table(
        {
            "--model": Flag("model"),
            "--max-model-len": Flag("context"),
            "--tensor-parallel-size -tp": Flag("tensor_parallel"),
            "--pipeline-parallel-size -pp": Flag("pipeline_parallel"),
            "--data-parallel-size -dp": Flag("data_parallel"),
            "--enable-expert-parallel -ep": Flag("expert_parallel", "nothing"),
            "--kv-cache-dtype": Flag("kv"),
            "--quantization -q": Flag("quantization"),
            "--dtype": Flag("dtype"),
            "--max-num-batched-tokens": Flag("chunk"),
            "--speculative-config -sc": Flag("speculation"),
            "--speculative-model": Flag("draft"),
            "--num-speculative-tokens": Flag("draft_tokens"),
            "--enable-chunked-prefill": Flag("chunked", "maybe"),
            "--no-enable-chunked-prefill": Flag("chunked", "nothing", "off"),
            "--max-num-seqs": Flag(NOTED, why="a limit; name the batch for a full server"),
            "--gpu-memory-utilization": Flag(NOTED, why="memory counts the engine's default share"),
            "--cpu-offload-gb --kv-offloading-size --swap-space": Flag(NOTED, why="memory of the host"),
            "--block-size --num-gpu-blocks-override --kv-cache-memory-bytes": Flag(NOTED),
            "--enforce-eager": Flag(NOTED, "nothing", why="without CUDA graphs decode is slower"),
            "--compilation-config -O -cc --optimization-level": Flag(NOTED),
            "-O0 -O1 -O2 -O3": Flag(NOTED, "nothing"),
            "--attention-backend --moe-backend --all2all-backend --attention-config --kernel-config": Flag(NOTED),
            "--load-format": Flag(SILENT),
            "--enable-lora --enable-eplb --enable-dbo --async-scheduling --disable-custom-all-reduce": Flag(
                NOTED, "nothing"
            ),
            "--max-loras --max-lora-rank --kv-transfer-config --device --additional-config": Flag(NOTED),
            "--decode-context-parallel-size -dcp --prefill-context-parallel-size": Flag(NOTED),
            "--num-scheduler-steps --max-num-partial-prefills --long-prefill-token-threshold": Flag(NOTED),
            "--max-seq-len-to-capture": Flag(NOTED),
            "--lora-modules --cuda-graph-sizes --cudagraph-capture-sizes": Flag(NOTED, "values"),
            "--served-model-name --middleware": Flag(SILENT, "values"),
            "--disable-sliding-window": Flag(NOTED, "nothing"),
            "--mamba-ssm-cache-dtype --mamba-cache-dtype": Flag(NOTED),
        }
    ),
    **_all(
        "--trust-remote-code --enable-auto-tool-choice --disable-log-requests --enable-log-requests "
        "--disable-log-stats --no-enable-log-requests --enable-prefix-caching --no-enable-prefix-caching "
        "--enable-server-load-tracking --disable-uvicorn-access-log --disable-fastapi-docs --skip-tokenizer-init "
        "--enable-reasoning --enable-request-id-headers --return-tokens-as-token-ids --enable-prompt-tokens-details "
        "--calculate-kv-scales --no-async-scheduling --language-model-only --skip-mm-profiling --headless "
        "--enable-sleep-mode --use-tqdm-on-load --disable-frontend-multiprocessing",
        _SWITCH,
    ),
    **_all(
        "--host --port --api-key --tokenizer --tokenizer-mode --tokenizer-revision --revision "
        "--code-revision --download-dir --config-format --hf-config-path --hf-overrides --hf-token --seed "
        "--chat-template --chat-template-content-format --response-role --tool-call-parser --tool-parser-plugin "
        "--reasoning-parser --reasoning-config --uvicorn-log-level --allowed-origins --allowed-methods "
        "--allowed-headers --ssl-keyfile --ssl-certfile --root-path --max-logprobs --logprobs-mode "
        "--max-log-len --generation-config --override-generation-config --guided-decoding-backend "
        "--structured-outputs-config --limit-mm-per-prompt --mm-processor-kwargs --mm-processor-cache-gb "
        "--mm-encoder-tp-mode --allowed-local-media-path --distributed-executor-backend --nnodes --node-rank "
        "--master-addr --master-port --data-parallel-address --data-parallel-rpc-port --api-server-count "
        "--scheduling-policy --rope-scaling --rope-theta --task --runner --model-impl --otlp-traces-endpoint "
        "--default-chat-template-kwargs --prefix-caching-hash-algo --collect-detailed-traces --config",
        Flag(SILENT),
    ),
}
_LATENCY = _VLLM | {
    **_table({"--input-len": Flag("prompt"), "--output-len": Flag("output"), "--batch-size": Flag("batch")}),
    **_all("--num-iters --num-iters-warmup --output-json --n", Flag(SILENT)),
    **_all("--disable-detokenize --profile", _SWITCH),
    **_all("--use-beam-search", Flag(NOTED, "nothing")),
}
_LOAD = _VLLM | {
    **_table(
        {
            "--random-input-len --input-len": Flag("prompt"),
            "--random-output-len --output-len": Flag("output"),
            "--max-concurrency": Flag("batch"),
            "--random-prefix-len": Flag("context_before"),
            "--request-rate --burstiness --random-range-ratio": Flag(NOTED, why="requests here are equal"),
            "--dataset-path --sharegpt-output-len": Flag(NOTED, why="name the lengths in tokens"),
        }
    ),
    **_all(
        "--backend --endpoint --base-url --num-prompts --dataset-name --percentile-metrics --metric-percentiles "
        "--result-dir --result-filename --goodput --num-warmups",
        Flag(SILENT),
    ),
    **_all("--ignore-eos --save-result --save-detailed --append-result", _SWITCH),
}

# ml-explore/mlx-lm, mlx_lm/{generate,server,benchmark}.py
_MLX = {
    **_table(
        {
            "--model": Flag("model"),
            "--max-tokens -m": Flag("output"),
            "--max-kv-size": Flag("context"),
            "--kv-bits": Flag("kv_bits"),
            "--draft-model": Flag("draft"),
            "--num-draft-tokens": Flag("draft_tokens"),
            "--prefill-step-size": Flag("chunk"),
            "--adapter-path": Flag(NOTED),
            "--kv-group-size --quantized-kv-start": Flag(NOTED),
            "--quantize-activations -qa": Flag(NOTED, "nothing"),
            "--decode-concurrency --prompt-concurrency": Flag(NOTED, why="a limit; name the batch for a full server"),
            "--pipeline": Flag(NOTED, "nothing", why="several computers"),
            "--prompt -p": Flag(NOTED, why="name the prompt's length in tokens"),
            "--extra-eos-token": Flag(SILENT, "values"),
        }
    ),
    **_all("--trust-remote-code --ignore-chat-template --use-default-chat-template", _SWITCH),
    **_all(
        "--temp --top-p --min-p --top-k --xtc-probability --xtc-threshold --min-tokens-to-keep --seed --system-prompt "
        "--prefill-response --chat-template --chat-template-config --chat-template-args --verbose "
        "--prompt-cache-file --host --port --log-level --prompt-cache-size --prompt-cache-bytes",
        Flag(SILENT),
    ),
}
_MLX_BENCH = {
    **_MLX,
    **_table(
        {
            "--prompt-tokens -p": Flag("prompt"),
            "--generation-tokens -g": Flag("output"),
            "--batch-size -b": Flag("batch"),
            "--num-trials -n --delay": Flag(SILENT),
        }
    ),
}

_SERVE = Program("vllm serve", "vllm", _VLLM, positional="model")
_SERVER_PROGRAM = Program("llama-server", "llama.cpp", _SERVER)
_CLI_PROGRAM = Program("llama-cli", "llama.cpp", _CLI)
_GENERATE = Program("mlx_lm.generate", "mlx", _MLX)
_MLX_SERVER = Program("mlx_lm.server", "mlx", _MLX)
_MLX_BENCHMARK = Program("mlx_lm.benchmark", "mlx", _MLX_BENCH, defaults={"prompt": "512", "output": "1024"})

PROGRAMS: dict[tuple[str, ...], Program] = {
    ("llama-server",): _SERVER_PROGRAM,
    ("llama-cli",): _CLI_PROGRAM,
    ("llama-completion",): _CLI_PROGRAM,
    ("main",): _CLI_PROGRAM,
    ("llama-bench",): Program(
        "llama-bench",
        "llama.cpp",
        _BENCH,
        defaults={"bench_prompt": "512", "bench_output": "128", "bench_depth": "0"},
        lists=True,
    ),
    ("llama-batched-bench",): Program("llama-batched-bench", "llama.cpp", _BATCHED_BENCH),
    ("vllm", "serve"): _SERVE,
    ("vllm", "bench", "latency"): Program(
        "vllm bench latency", "vllm", _LATENCY, defaults={"prompt": "32", "output": "128", "batch": "8"}
    ),
    ("vllm", "bench", "throughput"): Program("vllm bench throughput", "vllm", _LOAD),
    ("vllm", "bench", "serve"): Program("vllm bench serve", "vllm", _LOAD),
    ("vllm.entrypoints.openai.api_server",): _SERVE,
    ("vllm.entrypoints.cli.main", "serve"): _SERVE,
    ("vllm-openai",): _SERVE,  # the container
    ("mlx_lm.generate",): _GENERATE,
    ("mlx_lm.chat",): _GENERATE,
    ("mlx_lm.server",): _MLX_SERVER,
    ("mlx_lm.benchmark",): _MLX_BENCHMARK,
    ("mlx_lm", "generate"): _GENERATE,
    ("mlx_lm", "chat"): _GENERATE,
    ("mlx_lm", "server"): _MLX_SERVER,
    ("mlx_lm", "benchmark"): _MLX_BENCHMARK,
}
"""Programs by the words they are called by."""
CONTAINERS = {"llama.cpp:server": "llama-server", "vllm-openai": "vllm-openai"}
"""Images that start a program, by how their names begin."""

LAUNCHERS = frozenset(
    ("sudo", "env", "nohup", "time", "exec", "nice", "uv", "uvx", "run", "poetry", "docker", "podman", "$", ">")
)
"""Words before a program that make no difference."""
QUIET_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HF_", "HUGGING_FACE_")
"""How environment variables begin that make no difference beside the hardware that is named."""
WORDS = frozenset(["on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled"])
"""Values that may follow a flag whose value may be missing."""

UNREAD = {
    "ollama": "ollama",
    "lms": "lm-studio",
    "koboldcpp": "koboldcpp",
    "koboldcpp.py": "koboldcpp",
    "sglang": "sglang",
    "sglang.launch_server": "sglang",
    "trtllm-serve": "tensorrt-llm",
    "trtllm-bench": "tensorrt-llm",
    "mlc_llm": "mlc-llm",
}
"""Engines whose commands are not read, by the program: what they start stands elsewhere, or in flags of their own."""
