"""Good inputs of every command, spoilt from a seed: a scenario, a config, a trace, a sweep, points, a line, a log."""

from __future__ import annotations

import gzip
import io
import json
import random
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import yaml

from sim.models.catalogue import catalogue, config_of
from tests.calibrate.bench_result import BENCH
from tests.cli.bad_cases import TRACE
from tests.cli.mutations import spoiled, spoiled_bytes, spoiled_text, spoiled_words
from tests.workloads.examples import EXAMPLES

Files = dict[str, bytes]
Input = tuple[tuple[str, ...], Files]

LOGS = Path(__file__).parents[1] / "startup_log" / "excerpts"
LAYERS = {
    "layers": [{"kind": "full", "count": 2}, {"kind": "sliding_window", "count": 4, "window": 32}],
    "num_kv_heads": 1,
    "head_size": 64,
    "max_model_len": 1024,
}
DRAWN = {
    "requests": 20,
    "arrival": {"kind": "gamma", "rate_per_s": 8, "cv": 2},
    "shared_prefix": {"pools": 2, "tokens": 64, "zipf": 1, "grow_tokens": 5, "grow_every_s": 1},
    "prompt_tokens": {"kind": "lognormal", "mean": 150, "cv": 1.2, "max": 400},
    "output_tokens": {"kind": "uniform", "min": 1, "max": 20},
}
CALLS = {"share": 0.5, "calls": 2, "new_tokens": 30, "output_tokens": 5}
TALKS = {
    **DRAWN,
    "sessions": {"turns": 3, "new_tokens": 20, "think_s": 5, "closed_loop": True, "tool_calls": CALLS},
}
SCENARIOS: tuple[dict[str, Any], ...] = (
    {
        "name": "case",
        "question": "Does it fit?",
        "model": LAYERS,
        "engine": {"max_num_seqs": 8, "max_num_batched_tokens": 256, "block_size": 16, "watermark": 0.1},
        "memory": {"num_gpu_blocks_override": 400},
        "workload": {"trace": "trace.jsonl", "format": "native", "limit": 5, "time_scale": 2.0},
        "step_time": {"kind": "constant", "seconds": 0.01},
        "reset_prefix_cache": [{"at_s": 1, "reset_running_requests": True}],
        "measure": {"after_s": 0.5, "until_s": 60},
        "variants": {"a": {"engine.max_num_seqs": 4}, "b": {"engine": {"block_size": 32}}},
    },
    {
        "model": "gpt-oss-20b",
        "hardware": {"gpu": "H100-80GB", "usage": "server"},
        "engine": {"tensor_parallel_size": 2, "max_model_len": "8k"},
        "memory": {"available_kv_cache_memory_gib": 2},
        "workload": {"synthetic": DRAWN},
        "replicas": {"count": 2, "routing": "prefix_aware"},
        "seed": 3,
    },
    {
        "model": {"base": "gpt-oss-20b", "draft_layers": [{"kind": "full"}]},
        "engine": {
            "speculative_method": "eagle3",
            "num_speculative_tokens": 3,
            "acceptance_rate": 0.7,
        },
        "memory": {"kv_cache_memory_bytes": "5G"},
        "workload": {"synthetic": TALKS},
        "step_time": {
            "kind": "table",
            "decodes": [0, 8],
            "context_tokens": [0, 1000],
            "prefill_tokens": [0, 512],
            "seconds": [[[0.01, 0.02], [0.01, 0.02]], [[0.02, 0.03], [0.02, 0.04]]],
        },
    },
)
STEP_TIMES = (SCENARIOS[2]["step_time"], {"kind": "additive", "a": 0.5, "c0_ms": 4, "origin": {"points": 3}})
SWEEP: dict[str, Any] = {
    "name": "points",
    "question": "Which is best?",
    "scenario": "case.yaml",
    "set": {"seed": 2},
    "grid": {"engine.block_size": [16, 32], "engine.disable_hybrid_kv_cache_manager": [False, True]},
    "columns": ["prefix_cache_hit_rate", "ttft_s.p99"],
    "best": {"column": "ttft_s.p99", "want": "lowest"},
    "plot": ["engine.block_size", "ttft_s.p99"],
}
POINTS = """\
concurrency,input_len,input_len_min,output_len,output_len_min,tensor_parallel_size,mean_ttft_ms,mean_tpot_ms
2,64,50,10,8,8,36.7,3.99
4,64,50,10,8,2,64.6,5.77
4,128,100,10,8,2,119.4,10.94
"""
LINES = (
    "plan gemma-3-27b --available-kv-cache-memory-gib 20 --max-model-len 8k -tp 2 --gpu L4 --request-tokens 1k",
    "plan gpt-oss-120b --kv-cache-dtype fp8 --gpu-memory-utilization 0.95 --max-num-seqs 64 --diff 0.20 0.21",
    "plan qwen3-next-80b-a3b -tp 4 --num-gpu-blocks-override 900 --vllm 0.20 --what-if-group-size gcd --json",
    "plan -- vllm serve google/gemma-3-27b-it --max-model-len 65536 --gpu-memory-utilization 0.95 --port 80",
    "plan -- docker run --gpus all -e A=b vllm/vllm-openai:v0.33.0 --model openai/gpt-oss-20b --max-model-len -1",
    """plan -- vllm serve gpt-oss-20b --speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'""",
    """plan -- vllm serve gpt-oss-20b --hf-overrides '{"max_position_embeddings": 65536}' -dcp 1 -tp 4""",
    "new out.yaml --trace trace.jsonl --gpu H100-80GB --gpu L4 gpt-oss-20b --max-model-len 16384",
    "models gemma gpt-oss --json",
    "run case.yaml --no-figures --out out --json --check --explain",
    "run case.yaml --no-figures --out out --step-log steps.jsonl --kv-events events.jsonl",
    "curve case.yaml --out out --request-tokens 64 --request-tokens 1k",
    "compare case.yaml --no-figures --out out --set engine.max_num_seqs=4",
    "trace synth trace.jsonl drawn.jsonl --seed 3",
    "trace sample trace.jsonl part.jsonl --share 0.5",
)
OVERRIDES = (
    "engine.max_num_seqs=64",
    "engine={block_size: 32, watermark: 0.2}",
    "model.layers.0.count=3",
    "model={layers: [{kind: mamba, state_shapes: [[4, 4]]}], num_kv_heads: 2, head_size: 8, max_model_len: 99}",
    "workload={synthetic: {requests: 3, prompt_tokens: 10, output_tokens: 2, arrival: {kind: all_at_once}}}",
    "reset_prefix_cache=[{at_s: 1}]",
    "step_time={kind: constant, seconds: 0.5}",
    "variants={x: {seed: 4}}",
    "memory.available_kv_cache_memory_gib=0.5",
)
RUN = ("run", "case.yaml", "--no-figures", "--out", "out")
ON_SCENARIOS = (
    RUN,
    ("compare", "case.yaml", "--no-figures", "--out", "out"),
    ("curve", "case.yaml", "--out", "out"),
    ("plan", "case.yaml"),
)
GOOD = {"case.yaml": yaml.dump(SCENARIOS[0], sort_keys=False).encode(), "trace.jsonl": TRACE.encode()}


def _written(value: Any, rng: random.Random, *, as_json: bool = False) -> bytes:
    """A spoilt tree as a file: spoilt as a tree, as text, as both, or as bytes."""
    how = rng.random()
    tree = spoiled(value, rng, rng.choice([1, 1, 1, 2, 4])) if how < 0.7 else value
    text = json.dumps(tree) if as_json else yaml.dump(tree, sort_keys=False, allow_unicode=True)
    if how > 0.6:
        text = spoiled_text(text, rng, rng.choice([1, 1, 2, 5]))
    raw = text.encode("utf-8", "surrogatepass")
    return spoiled_bytes(raw, rng) if how > 0.97 else raw


def scenario(rng: random.Random) -> Input:
    """A scenario that runs, is compared, drawn as a curve or planned."""
    return rng.choice((RUN, RUN, *ON_SCENARIOS)), {**GOOD, "case.yaml": _written(rng.choice(SCENARIOS), rng)}


def config(rng: random.Random) -> Input:
    """A config.json of any model class of the catalogue."""
    raw = config_of(rng.choice(list(catalogue().values())))
    flags = rng.choice([(), ("-tp", "2"), ("--available-kv-cache-memory-gib", "20")])
    return ("plan", "config.json", *flags), {"config.json": _written(raw, rng, as_json=True)}


def trace(rng: random.Random) -> Input:
    """A trace of any format, as text, gzip or Parquet, that is run, counted, shown, converted or made anonymous."""
    name = rng.choice(["native", *EXAMPLES])
    text, more = (TRACE, {}) if name == "native" else EXAMPLES[name]
    text = spoiled_text(text, rng, rng.choice([1, 1, 2, 5]))
    raw, file = text.encode("utf-8", "surrogatepass"), rng.choice(["trace.jsonl", "trace.csv", "trace.txt"])
    how = rng.random()
    if how < 0.1:
        raw, file = spoiled_bytes(gzip.compress(raw, mtime=0), rng, rng.choice([0, 3])), "trace.jsonl.gz"
    elif how < 0.2:
        raw, file = spoiled_bytes(_parquet(rng), rng, rng.choice([0, 1, 3])), "trace.parquet"
    keys = [f"{key}={json.dumps(value)}" for key, value in more.items()]
    set_ = tuple(word for key in keys for word in ("--set", f"workload.{key}"))
    run = (*RUN, "--set", f"workload={{trace: {file}}}", *set_, "--set", "memory.num_gpu_blocks_override=4000")
    command = rng.choice(
        [
            run,
            ("trace", "stats", file),
            ("trace", "head", file),
            ("trace", "convert", file, rng.choice(["to.jsonl", "to.parquet", "to.csv"])),
            ("trace", "anonymize", file, "to.jsonl"),
        ]
    )
    return command, {**GOOD, file: raw}


def _parquet(rng: random.Random) -> bytes:
    """A Parquet table of a native CSV, perhaps with a column or a value changed."""
    text = "id,arrival_s,prompt_tokens,output_tokens\na,0,100,4\nb,1.5,120,5\n"
    text = spoiled_text(text, rng) if rng.random() < 0.7 else text
    try:
        table = pyarrow.csv.read_csv(io.BytesIO(text.encode("utf-8", "surrogatepass")))
    except pyarrow.ArrowInvalid:
        return text.encode("utf-8", "surrogatepass")
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink)
    return sink.getvalue()


def sweep(rng: random.Random) -> Input:
    """A sweep file over a small scenario."""
    return ("sweep", "sweep.yaml", "--workers", "1", "--out", "out"), {**GOOD, "sweep.yaml": _written(SWEEP, rng)}


def points(rng: random.Random) -> Input:
    """Measured points as CSV, or as a result of vLLM's benchmark."""
    if rng.random() < 0.7:
        text = spoiled_text(POINTS, rng, rng.choice([1, 1, 2, 5]))
        return ("calibrate", "points.csv", "gpt-oss-20b"), {"points.csv": text.encode("utf-8", "surrogatepass")}
    return ("calibrate", "result.json", "gpt-oss-20b"), {"result.json": _written(BENCH, rng, as_json=True)}


def line(rng: random.Random) -> Input:
    """A command line with words changed."""
    words = tuple(shlex.split(rng.choice(LINES)))
    for _ in range(rng.choice([1, 1, 2])):
        words = spoiled_words(words, rng) if len(words) > 1 else words
    return words, GOOD


def override(rng: random.Random) -> Input:
    """A scenario changed by a spoilt ``--set``."""
    text = spoiled_text(rng.choice(OVERRIDES), rng, rng.choice([1, 2])).replace("\0", "")
    return (*RUN, "--set", text), GOOD


def log(rng: random.Random) -> Input:
    """A startup log or a page of metrics with lines and numbers changed."""
    path = rng.choice(sorted(LOGS.iterdir()))
    text = spoiled_text(path.read_text("utf-8", "replace"), rng, rng.choice([1, 3, 6]))
    return ("explain-log", "start.log"), {"start.log": text.encode("utf-8", "surrogatepass")}


def step_time(rng: random.Random) -> Input:
    """A step-time file behind a scenario."""
    command = (*RUN, "--set", "step_time={file: step.yaml}")
    return command, {**GOOD, "step.yaml": _written(rng.choice(STEP_TIMES), rng)}


def unspoilt() -> Iterator[Input]:
    """What the inputs above are made from."""
    for value in SCENARIOS:
        written = yaml.dump(value, sort_keys=False).encode()
        yield from ((command, {**GOOD, "case.yaml": written}) for command in ON_SCENARIOS)
    yield from ((tuple(shlex.split(text)), GOOD) for text in LINES)
    yield from (((*RUN, "--set", text), GOOD) for text in OVERRIDES)
    for value in STEP_TIMES:
        yield (*RUN, "--set", "step_time={file: step.yaml}"), {**GOOD, "step.yaml": yaml.dump(value).encode()}
    yield ("sweep", "sweep.yaml", "--workers", "1", "--out", "out"), {**GOOD, "sweep.yaml": yaml.dump(SWEEP).encode()}
    yield ("calibrate", "points.csv", "gpt-oss-20b"), {"points.csv": POINTS.encode()}
    yield ("calibrate", "result.json", "gpt-oss-20b"), {"result.json": json.dumps(BENCH).encode()}


SORTS: dict[str, Callable[[random.Random], Input]] = {
    made.__name__: made for made in (scenario, config, trace, sweep, points, line, override, log, step_time)
}
"""Each sort of input, by name: from a generator to a command line and the files it finds."""


def drawn(sort: str, seed: int) -> Input:
    """The input of that sort and seed, the same every time."""
    return SORTS[sort](random.Random(f"{sort} {seed}"))
