"""The cases the oracle is asked.

(a) Random ones with full and sliding-window layers, (b) a production trace on Gemma-3-27B, (c) shared-prefix sessions,
(d) random ones with every kind of layer; those of real models are in ``real_models.py``. (e) random ones with an
encoder, (f) those of (d) with drafts, (g) those of (a) whose prompts come from another engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracle.case_configs import random_config
from tests.oracle.case_requests import RequestMaker, random_requests
from tests.oracle.draft_configs import draft_config
from tests.oracle.kind_configs import kind_config
from tests.oracle.rare_configs import SORTS, rare_config, with_encoder_inputs

Case = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent
MOONCAKE = ROOT.parent / "shared" / "data" / "traces" / "mooncake" / "conversation_trace.jsonl"
MOONCAKE_BLOCK = 512


def random_case(seed: int, index: int) -> Case:
    """Random case ``index`` of a seed; independent of how many cases are asked for."""
    rng = np.random.default_rng([seed, index])
    return _random(f"random-{seed}-{index}", rng, random_config(rng))


def kind_case(seed: int, index: int) -> Case:
    """Random case ``index`` of a seed with layers of any kind that runs; independent of how many are asked for."""
    rng = np.random.default_rng([seed, index, 4])
    return _random(f"kinds-{seed}-{index}", rng, kind_config(rng), max_steps=4000)


def with_extras(make: Callable[[int, int], Case], seed: int, index: int) -> Case:
    """A random case, at times with what any may ask for: KV cache events, resets of the prefix cache while it runs."""
    case = make(seed, index)
    rng = np.random.default_rng([seed, index, 99])
    if rng.random() < 0.25:
        case["config"]["enable_kv_cache_events"] = True
    if rng.random() < 0.15:
        last = case["requests"][-1]["arrival_ns"] + round(20e9 * case["config"]["step_seconds"])
        times = sorted(rng.integers(0, last + 1, int(rng.integers(1, 6))).tolist())
        case["resets"] = [[at, bool(rng.random() < 0.6)] for at in times]
    return case


def rare_case(seed: int, index: int) -> Case:
    """Random case ``index`` of a seed of what few models have, each sort in turn; independent of how many are asked."""
    sort = index % len(SORTS)
    rng = np.random.default_rng([seed, index // len(SORTS), 5 + sort])
    case = _random(f"rare-{seed}-{index}", rng, rare_config(rng, sort), max_steps=4000)
    return case | {"requests": with_encoder_inputs(rng, case["config"], case["requests"])}


def draft_case(seed: int, index: int) -> Case:
    """Random case ``index`` of a seed with drafts; independent of how many are asked for."""
    rng = np.random.default_rng([seed, index, 6])
    case = _random(f"drafts-{seed}-{index}", rng, draft_config(rng), max_steps=4000)
    return case | {"requests": with_encoder_inputs(rng, case["config"], case["requests"])}


def remote_case(seed: int, index: int) -> Case:
    """Random case ``index`` of a seed of an engine that fetches every prompt from another one.

    Without async scheduling: with it vLLM frees blocks later than this model does.
    """
    rng = np.random.default_rng([seed, index, 7])
    config = random_config(rng) | {
        "async_scheduling": False,
        "pipeline_parallel_size": 1,
        "scheduling_policy": "fcfs",
        "prefill_schedule_interval": 1,
    }
    step_ns = 1e9 * config["step_seconds"]
    times = [round(step_ns * float(rng.choice([0, 0.001, 0.07, 1.3]))) for _ in range(2)]
    config["remote_prefill"] = [times[0], times[1] // int(rng.choice([1, 10]))]
    return _random(f"remote-{seed}-{index}", rng, config, max_steps=4000)


def _random(name: str, rng: np.random.Generator, config: dict[str, Any], max_steps: int = 20_000) -> Case:
    """The configuration under random requests."""
    return {
        "name": name,
        "config": config,
        "requests": random_requests(rng, config),
        "sample_every": int(rng.choice([1, 5, 20])),
        "max_steps": max_steps,
    }


def gemma3_27b(**engine: Any) -> dict[str, Any]:
    """Gemma-3-27B: 62 layers, five of window 1,024 then one full, in vLLM's default engine for an H100 server."""
    shape = {"num_kv_heads": 16, "head_size": 128, "dtype": "bfloat16"}
    windows = {"kind": "sliding_window", "window": 1024, **shape}
    full = {"kind": "full", "window": None, "count": 1, **shape}
    layers = [layer for _ in range(10) for layer in (dict(windows, count=5), dict(full))] + [dict(windows, count=2)]
    config: dict[str, Any] = {
        "layers": layers,
        "block_size": 16,
        "num_gpu_blocks": 120_000,
        "max_model_len": 131_072,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1024,
        "enable_prefix_caching": True,
        "prefix_cache_retention_interval": 0,
        "scheduler_reserve_full_isl": True,
        "watermark": 0.0,
        "scheduling_policy": "fcfs",
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "async_scheduling": True,
        "pipeline_parallel_size": 1,
        "disable_hybrid_kv_cache_manager": False,
        "step_seconds": 0.1,
    }
    return config | engine


def mooncake_requests(count: int) -> list[dict[str, Any]]:
    """The first requests of the conversation trace; block id X is the text X, its last block shorter."""
    requests = []
    with MOONCAKE.open() as lines:
        for index, line in zip(range(count), lines, strict=False):
            row = json.loads(line)
            last = row["input_length"] - MOONCAKE_BLOCK * (len(row["hash_ids"]) - 1)
            prompt = [[block, MOONCAKE_BLOCK] for block in row["hash_ids"][:-1]] + [[row["hash_ids"][-1], last]]
            requests.append(
                {
                    "id": str(index),
                    "arrival_ns": row["timestamp"] * 1_000_000,
                    "prompt": prompt,
                    "output": None,
                    "output_tokens": max(1, row["output_length"]),
                }
            )
    return requests


def mooncake_cases(count: int = 1000, *, every: bool = True) -> Iterator[Case]:
    """Asynchronous and synchronous scheduling, an adequate pool and a starved one; nothing where the trace is not.

    Unless ``every`` combination is wanted: asynchronous and adequate, synchronous and starved.
    """
    if not MOONCAKE.exists():
        return
    requests = mooncake_requests(count)
    variants: dict[str, dict[str, Any]] = {
        "async": {},
        "sync": {"async_scheduling": False},
        "async-starved": {"num_gpu_blocks": 30_000},
        "sync-starved": {"async_scheduling": False, "num_gpu_blocks": 30_000, "scheduler_reserve_full_isl": False},
    }
    for name, engine in variants.items():
        if not every and name in ("sync", "async-starved"):
            continue
        yield {
            "name": f"mooncake-{name}",
            "config": gemma3_27b(**engine),
            "requests": requests,
            "sample_every": 500,
        }


STATES: list[dict[str, Any]] = [
    {"kind": "mamba", "mamba_cache_mode": "align", "block_size": 64, "shapes": [[512], [1024]],
     "dtypes": ["bfloat16", "bfloat16"], "page_size_padded": 4096, "count": 6},
    {"kind": "full_attention", "block_size": 64, "num_kv_heads": 2, "head_size": 8, "head_size_v": 8,
     "dtype": "bfloat16", "count": 2},
]  # fmt: skip
"""Three layers of states to one of attention, in blocks of 64."""


_SHAPE: dict[str, Any] = {"block_size": 16, "num_kv_heads": 2, "head_size": 8, "head_size_v": 8, "dtype": "bfloat16"}
EAGLE: dict[str, Any] = {
    "layers": [
        {"kind": "sliding_window", "sliding_window": 100, "count": 10, **_SHAPE},
        {"kind": "full_attention", "count": 2, **_SHAPE},
        {"kind": "full_attention", "count": 1, "is_draft": True, **_SHAPE},
    ],
    "speculative_method": "eagle",
    "num_speculative_tokens": 3,
    "acceptance_rate": 0.7,
    "disable_lookahead_block_hashes": True,
}
"""An EAGLE draft layer in the group of the full attention layers, whose hits lose their last block."""


def session_cases(seed: int) -> Iterator[Case]:
    """Sessions over one system prompt under each retention, with windows, pipelines, priorities, states and drafts."""
    variants: list[dict[str, Any]] = [
        {},
        {"prefix_cache_retention_interval": None},
        {"prefix_cache_retention_interval": 64, "async_scheduling": False},
        {"num_gpu_blocks": 900, "scheduling_policy": "priority"},
        {"pipeline_parallel_size": 2, "num_gpu_blocks": 1100},
        {"disable_hybrid_kv_cache_manager": True},
        {"layers": STATES, "prefix_match_unit": 16},
        {"layers": STATES, "prefix_match_unit": 8, "num_gpu_blocks": 100, "async_scheduling": False},
        EAGLE,
        EAGLE | {"num_gpu_blocks": 900, "async_scheduling": False, "prefix_cache_retention_interval": None},
    ]
    for index, engine in enumerate(variants):
        rng = np.random.default_rng([seed, 77, index])
        shape = {"num_kv_heads": 2, "head_size": 8, "dtype": "bfloat16"}
        layers = [
            {"kind": "sliding_window", "window": 100, "count": 5, **shape},
            {"kind": "full", "window": None, "count": 1, **shape},
        ]
        config = gemma3_27b(layers=layers * 2, num_gpu_blocks=2000, max_model_len=2048, max_num_batched_tokens=512)
        config |= {"max_num_seqs": 32, "step_seconds": 0.15} | engine
        yield {
            "name": f"sessions-{seed}-{index}",
            "config": config,
            "requests": session_requests(rng, sessions=30, turns=5),
            "sample_every": 50,
        }


def session_requests(rng: np.random.Generator, sessions: int, turns: int) -> list[dict[str, Any]]:
    """Each turn's prompt is everything said before plus new text; turns of different sessions overlap in time."""
    system: list[list[Any]] = [["system prompt", 437]]
    requests: list[dict[str, Any]] = []
    for session in range(sessions):
        now = int(rng.integers(0, 20_000_000_000))
        said: list[list[Any]] = list(system)
        for turn in range(turns):
            said = [*said, [f"user {session}.{turn}", int(rng.integers(5, 150))]]
            answer: list[Any] = [f"answer {session}.{turn}", int(rng.integers(5, 80))]
            requests.append(
                {
                    "id": f"s{session}.{turn}",
                    "arrival_ns": now,
                    "prompt": said,
                    "output": [answer],
                    "output_tokens": answer[1],
                    "max_tokens": answer[1] + int(rng.integers(0, 2)) * 20,
                    "priority": int(rng.integers(0, 2)),
                }
            )
            said = [*said, answer]
            now += int(rng.integers(2_000_000_000, 9_000_000_000))
    requests.sort(key=itemgetter("arrival_ns"))
    return requests


__all__ = [
    "Case",
    "RequestMaker",
    "draft_case",
    "kind_case",
    "mooncake_cases",
    "random_case",
    "rare_case",
    "session_cases",
    "with_extras",
]
