"""``--max-model-len -1``: the longest request that the KV cache memory holds, found as vLLM finds it."""

from __future__ import annotations

from dataclasses import replace

from sim.engine_config import EngineConfig
from sim.errors import RefusalError
from sim.models import Model
from sim.planning.layers import layer_specs, stage_names
from sim.planning.plan import effective_engine, engine_groups
from sim.planning.refusals import check_model
from sim.planning.sizing import Memory, block_bytes_of, longest_that_fits
from sim.planning.stages import split_groups


def auto_fit(model: Model, engine: EngineConfig, memory: Memory) -> EngineConfig:
    """``engine`` with the longest ``max_model_len``, up to its own, at which one request fits on every stage.

    Groups are those of the full length; only the null block is set aside (vllm 0.33.0
    v1/core/kv_cache_planning.py:1339). Raises RefusalError where not even one token fits.

    >>> from sim.models import load_model
    >>> full = EngineConfig(max_model_len=131072, max_num_batched_tokens=8192, max_num_seqs=256)
    >>> auto_fit(load_model("llama-3.1-8b"), full, Memory(available_kv_cache_memory_gib=4)).max_model_len
    32752
    """
    check_model(model, engine)
    resolved = effective_engine(model, engine)
    groups = engine_groups(layer_specs(model, resolved), resolved)
    longest = engine.max_model_len
    for stage in split_groups(groups, stage_names(model, resolved)):
        block_bytes = block_bytes_of(stage, block_outermost=resolved.block_outermost)
        usable = memory.bytes_for(block_bytes) - block_bytes
        longest = min(longest, longest_that_fits(stage, resolved, usable))
    if longest <= 0:
        raise RefusalError(
            "the KV cache memory does not hold a single token, so max_model_len cannot be fitted: vLLM refuses to"
            " start; give more memory",
            where="memory",
        )
    return replace(engine, max_model_len=longest)
