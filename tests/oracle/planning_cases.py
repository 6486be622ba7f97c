"""Random layers, flags and memories for the comparison of plans, from one seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.hardware import gpus
from sim.planning import engine_groups
from sim.planning.sizing import block_bytes_of, blocks_per_request
from tests.oracle.planning_alignment import alignment_case
from tests.oracle.planning_specs import Case, our_spec, random_layers

LONGEST = 20_000
NOT_STEPPED = ("cross_attention", "sink_full_attention")
"""Kinds whose cases take no prompt through vLLM's scheduler: one needs an encoder, one has no working manager."""


def cases(seed: int, count: int) -> list[Case]:
    """``count`` plans, a tenth as many default budgets, and block sizes of half as many models with states.

    The first ``n`` of each do not depend on how many follow.
    """
    made = [plan_case(np.random.default_rng([seed, number])) for number in range(count)]
    made += [budget_case(np.random.default_rng([seed, number, 1])) for number in range(count // 10)]
    return made + [
        {"alignment": alignment_case(np.random.default_rng([seed, number, 2]))} for number in range(count // 2)
    ]


def plan_case(rng: np.random.Generator) -> Case:
    """Layers, flags, memory that is often too small, and prompt lengths to step through."""
    engine = random_engine(rng)
    layers = random_layers(rng, engine)
    if any(entry["kind"] == "cross_attention" for entry in layers):
        engine["enable_prefix_caching"] = False  # vLLM's default for such models, and nothing else works
        for entry in layers:
            if entry["kind"] == "mamba":
                entry |= {"mamba_cache_mode": "none", "block_size": engine["max_model_len"]}
    engine["pipeline_parallel_size"] = min(len(layers), engine["pipeline_parallel_size"])
    memory = random_memory(rng, layers, engine)
    limit = min(engine["max_model_len"] - 1, 40 * engine["max_num_batched_tokens"])
    requests = sorted({int(rng.integers(1, limit + 1)) for _ in range(2)}) if limit >= 1 else []
    if engine["speculative_method"] or any(entry["kind"] in NOT_STEPPED for entry in layers):
        requests = []
    if {entry["kind"] for entry in layers} == {"chunked_local_attention"} and engine["enable_prefix_caching"]:
        requests = []  # nothing but chunks: vLLM takes all before the last chunk for a hit, even in an empty cache
    return {"layers": layers, "engine": engine, "requests": requests, **memory}


def random_engine(rng: np.random.Generator) -> Case:
    """Flags of EngineConfig; some combinations vLLM refuses."""
    max_model_len = int(np.exp(rng.uniform(0, np.log(LONGEST))))
    budget = int(np.exp(rng.uniform(1.6, np.log(LONGEST))))
    interval = int(rng.choice([1, 32, 64, 96, 100, 128, 256, 512, 512]))
    dcp = int(rng.choice([2, 4])) if rng.random() < 0.12 else 1
    method = str(rng.choice(["eagle", "mtp", "ngram"])) if rng.random() < 0.2 else None
    return {
        "max_model_len": max_model_len,
        "max_num_batched_tokens": budget,
        "max_num_seqs": int(rng.integers(1, budget + 1)) if rng.random() < 0.98 else budget + 1,
        "block_size": 16,
        "pipeline_parallel_size": int(rng.choice([1, 1, 1, 2, 3, 4])),
        "tensor_parallel_size": dcp,
        "decode_context_parallel_size": dcp,
        "enable_prefix_caching": bool(rng.random() < 0.8),
        "prefix_cache_retention_interval": None if rng.random() < 0.2 else interval if rng.random() < 0.12 else 0,
        "prefix_match_unit": int(rng.choice([1, 4, 4, 8, 16, 48])) if rng.random() < 0.15 else None,
        "enable_chunked_prefill": bool(rng.random() < 0.97),
        "long_prefill_token_threshold": int(rng.integers(0, max_model_len + 2)) if rng.random() < 0.1 else 0,
        "async_scheduling": bool(rng.random() < 0.6),
        "disable_hybrid_kv_cache_manager": bool(rng.random() < 0.12),
        "kv_cache_layout": "BLHNC" if rng.random() < 0.25 else "LBNHC",
        "speculative_method": method,
        "num_speculative_tokens": int(rng.integers(1, 5)) if method else 0,
        "num_mtp_modules": int(rng.integers(1, 4)),
        "disable_lookahead_block_hashes": bool(rng.random() < 0.5),
    }


def random_memory(rng: np.random.Generator, layers: Sequence[Case], engine: Case) -> Case:
    """Between eight tenths and four times what one request of max_model_len takes, in bytes or in blocks."""
    try:
        flags = our_engine({"engine": engine})
        groups = engine_groups({entry["name"]: our_spec(entry) for entry in layers}, flags)
        needed = blocks_per_request(groups, flags, flags.max_model_len)
    except InputError:
        return {"memory_bytes": 1 << 30, "num_gpu_blocks_override": None}
    blocks = 1 + needed * float(np.exp(rng.uniform(-0.2, 1.5))) if rng.random() < 0.97 else float(rng.random() * 2)
    if rng.random() < 0.3:
        return {"memory_bytes": None, "num_gpu_blocks_override": max(1, int(blocks))}
    block_bytes = block_bytes_of(groups, block_outermost=flags.block_outermost)
    return {"memory_bytes": max(1, int(blocks * block_bytes)), "num_gpu_blocks_override": None}


def our_engine(case: Case) -> EngineConfig:
    """The project's engine flags of a case; raises what they raise."""
    return EngineConfig(**case["engine"])


def budget_case(rng: np.random.Generator) -> Case:
    """A GPU of the catalogue (no CPU) and budgets that are given or left to vLLM."""
    known = [gpu for gpu in gpus().values() if gpu.capability != "cpu"]
    gpu = known[int(rng.integers(len(known)))]
    given = [None if rng.random() < 0.6 else int(np.exp(rng.uniform(0, 10))) for _ in range(2)]
    return {
        "gpu": gpu.name.split("-")[0],
        "catalogue_name": gpu.name,
        "memory_bytes": int(gpu.mem_gb * 1e9),
        "usage": str(rng.choice(["server", "offline"])),
        "max_model_len": int(np.exp(rng.uniform(0, 13))),
        "max_num_batched_tokens": given[0],
        "max_num_seqs": given[1],
        "enable_chunked_prefill": bool(rng.random() < 0.8),
    }
