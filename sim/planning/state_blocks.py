"""``max_num_seqs`` against the pool: every running request holds a state, and the pool holds only so many."""

from __future__ import annotations

from sim.engine_config import EngineConfig
from sim.planning.group import KVCacheGroup
from sim.planning.plan import KVCachePlan
from sim.specs import MambaSpec, resident_blocks


def most_running(plan: KVCachePlan, engine: EngineConfig) -> int:
    """Requests that can hold blocks at once, each the fewest that a request can do with: those of one token."""
    return (plan.num_blocks - 1) // sum(_fewest_blocks(group, engine) for group in plan.groups)


def _fewest_blocks(group: KVCacheGroup, engine: EngineConfig) -> int:
    return max(
        1,
        resident_blocks(
            group.spec,
            1,
            dcp_world_size=engine.decode_context_parallel_size,
            max_encoder_tokens=engine.max_num_encoder_input_tokens,
        ),
    )


def seqs_warning(plan: KVCachePlan, engine: EngineConfig) -> str | None:
    """What is to be said when ``max_num_seqs`` is more than a pool with states can hold; None when all is well.

    vLLM asks for one block per request where it captures CUDA graphs of decoding, and refuses to start with fewer
    (vllm 0.33.0 config/compilation.py:1517). With enough blocks for that it starts, but a running request holds a block
    of every group, so fewer run together.

    >>> from sim.models import load_model
    >>> from sim.planning import Memory, plan_kv_cache
    >>> engine = EngineConfig(max_model_len=4096, max_num_batched_tokens=8192, max_num_seqs=1024)
    >>> for gib in (6, 40, 200):
    ...     plan = plan_kv_cache(load_model("granite-4.0-h-small"), engine, Memory(available_kv_cache_memory_gib=gib))
    ...     print(plan.num_blocks, seqs_warning(plan, engine))
    744 max_num_seqs 1,024 is more than the 744 blocks of states: vLLM refuses to start with CUDA graphs; lower it to at
    most 744 (at most 74 requests can run at once)
    4964 max_num_seqs 1,024 is more than the 496 requests that can run at once: each holds at least one block of each of
    10 groups, of 4,963 in all
    24824 None
    """
    if not any(isinstance(group.spec, MambaSpec) for group in plan.groups):
        return None
    asked, most = engine.max_num_seqs, most_running(plan, engine)
    if asked > plan.num_blocks:
        return (
            f"max_num_seqs {asked:,} is more than the {plan.num_blocks:,} blocks of states: vLLM refuses to start with"
            f" CUDA graphs; lower it to at most {plan.num_blocks:,} (at most {most:,} requests can run at once)"
        )
    if asked > most:
        return (
            f"max_num_seqs {asked:,} is more than the {most:,} requests that can run at once: each holds at least one"
            f" block of each of {len(plan.groups)} groups, of {plan.num_blocks - 1:,} in all"
        )
    return None
