"""Random layers, flags and memories for the comparison of plans, from one seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.hardware import gpus
from sim.planning import get_kv_cache_groups
from sim.planning.sizing import block_bytes_of
from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec

Case = dict[str, Any]

WINDOWS = (1, 2, 7, 15, 16, 17, 32, 33, 64, 100, 128, 1000, 5000)
DTYPES = ("bfloat16", "bfloat16", "bfloat16", "fp8", "float32", "int8_per_token_head", "int4_per_token_head")
LONGEST = 20_000


def cases(seed: int, count: int) -> list[Case]:
    """``count`` plans and a tenth as many default budgets; the first ``n`` do not depend on how many follow."""
    made = [plan_case(np.random.default_rng([seed, number])) for number in range(count)]
    return made + [budget_case(np.random.default_rng([seed, number, 1])) for number in range(count // 10)]


def plan_case(rng: np.random.Generator) -> Case:
    """Layers, flags, memory that is often too small, and prompt lengths to step through."""
    layers = random_layers(rng)
    engine = random_engine(rng, len(layers))
    memory = random_memory(rng, layers, engine)
    limit = min(engine["max_model_len"] - 1, 40 * engine["max_num_batched_tokens"])
    requests = sorted({int(rng.integers(1, limit + 1)) for _ in range(2)}) if limit >= 1 else []
    return {"layers": layers, "engine": engine, "requests": requests, **memory}


def random_layers(rng: np.random.Generator) -> list[Case]:
    """Up to 40 layers of up to four kinds, in a repeating pattern or at random."""
    one_size = rng.random() < 0.6
    block_size = int(rng.choice([1, 4, 8, 16, 32]))
    kinds = [random_spec(rng, block_size, one_size) for _ in range(int(rng.choice([1, 2, 2, 2, 3, 4])))]
    number = int(rng.integers(1, 41))
    if rng.random() < 0.5:
        pattern = [int(kind) for kind in rng.integers(0, len(kinds), size=int(rng.integers(1, 8)))]
        order = [pattern[position % len(pattern)] for position in range(number)]
    else:
        weights = rng.dirichlet(np.ones(len(kinds)))
        order = [int(kind) for kind in rng.choice(len(kinds), size=number, p=weights)]
    return [{"name": f"layers.{position}", **kinds[kind]} for position, kind in enumerate(order)]


def random_spec(rng: np.random.Generator, block_size: int, one_size: bool) -> Case:
    """One kind of layer; with ``one_size`` all kinds of a case have one page size."""
    head_size = 64 if one_size else int(rng.choice([64, 64, 96, 128]))
    full = rng.random() < 0.45
    window = int(rng.choice(WINDOWS))
    return {
        "kind": "full_attention" if full else "sliding_window",
        "block_size": block_size if one_size or rng.random() < 0.8 else block_size * int(rng.choice([1, 2, 4])),
        "num_kv_heads": 2 if one_size else int(rng.choice([1, 2, 2, 4])),
        "head_size": head_size,
        "head_size_v": head_size if one_size or rng.random() < 0.8 else int(rng.choice([32, 64, 128])),
        "dtype": "bfloat16" if one_size else str(rng.choice(DTYPES)),
        "page_size_padded": None,
        "sliding_window": None if full and rng.random() < 0.9 else window,
    }


def random_engine(rng: np.random.Generator, num_layers: int) -> Case:
    """Flags of EngineConfig; some combinations vLLM refuses."""
    max_model_len = int(np.exp(rng.uniform(0, np.log(LONGEST))))
    budget = int(np.exp(rng.uniform(0, np.log(LONGEST))))
    interval = int(rng.choice([1, 8, 32, 64, 96, 100]))
    return {
        "max_model_len": max_model_len,
        "max_num_batched_tokens": budget,
        "max_num_seqs": int(rng.integers(1, budget + 1)) if rng.random() < 0.95 else budget + 1,
        "block_size": 16,
        "pipeline_parallel_size": int(min(num_layers, rng.choice([1, 1, 1, 2, 3, 4]))),
        "enable_prefix_caching": bool(rng.random() < 0.8),
        "prefix_cache_retention_interval": None if rng.random() < 0.2 else interval if rng.random() < 0.15 else 0,
        "enable_chunked_prefill": bool(rng.random() < 0.95),
        "long_prefill_token_threshold": int(rng.integers(0, max_model_len + 2)) if rng.random() < 0.1 else 0,
        "async_scheduling": bool(rng.random() < 0.6),
        "disable_hybrid_kv_cache_manager": bool(rng.random() < 0.25),
    }


def random_memory(rng: np.random.Generator, layers: Sequence[Case], engine: Case) -> Case:
    """Between six tenths and four times what one request of max_model_len takes, in bytes or in blocks."""
    try:
        groups = get_kv_cache_groups({entry["name"]: our_spec(entry) for entry in layers})
    except InputError:
        return {"memory_bytes": 1 << 30, "num_gpu_blocks_override": None}
    in_flight = (engine["pipeline_parallel_size"] + 1) * engine["max_num_batched_tokens"]
    needed = sum(group.spec.max_admission_blocks(in_flight, engine["max_model_len"]) for group in groups)
    blocks = 1 + needed * float(np.exp(rng.uniform(-0.5, 1.5))) if rng.random() < 0.97 else float(rng.random() * 2)
    if rng.random() < 0.3:
        return {"memory_bytes": None, "num_gpu_blocks_override": max(1, int(blocks))}
    return {"memory_bytes": max(1, int(blocks * block_bytes_of(groups))), "num_gpu_blocks_override": None}


def our_spec(entry: Case) -> Spec:
    """The project's spec of one layer of a case."""
    kind = FullAttentionSpec if entry["kind"] == "full_attention" else SlidingWindowSpec
    spec: Spec = kind(**{field.name: entry[field.name] for field in fields(kind)})
    return spec


def our_engine(case: Case) -> EngineConfig:
    """The project's engine flags of a case; raises what they raise."""
    return EngineConfig(**case["engine"])


def budget_case(rng: np.random.Generator) -> Case:
    """A GPU of the catalogue and budgets that are given or left to vLLM."""
    known = list(gpus().values())
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
