"""The shortest prompt that the prefix cache can help at all, and why it is no shorter."""

from __future__ import annotations

from dataclasses import dataclass

from sim.engine_config import EngineConfig
from sim.planning.plan import KVCachePlan


@dataclass(frozen=True, slots=True)
class SmallestHit:
    """``prompt_tokens`` of the shortest prompt that can hit, None: none can; ``why`` in one sentence."""

    prompt_tokens: int | None
    why: str


def smallest_hit(plan: KVCachePlan, engine: EngineConfig) -> SmallestHit | None:
    """The shortest prompt that hits when it is sent again to an engine that has lost nothing since.

    The last token of a prompt is computed again for its logits, and hits end where all groups can resume, so a prompt
    of as many tokens is one too short:

        hits end at 16    |0 ... 15|16 ...    17 tokens: 16 are hit, one is computed
                          |0 ... 15|          16 tokens: at most 15 may be hit, so none

    What a resend needs is always kept, whatever the retention interval (vllm 0.33.0 v1/core/kv_cache_manager.py:262,
    v1/core/kv_cache_coordinator.py:63). None, no answer, with a draft that reads hidden states: its hits end earlier.

    >>> from sim.models import load_model
    >>> from sim.planning import Memory, plan_kv_cache
    >>> flags = {"max_num_batched_tokens": 8192, "max_num_seqs": 256}
    >>> for length in (32_000, 512):
    ...     engine = EngineConfig(max_model_len=length, **flags)
    ...     plan = plan_kv_cache(load_model("granite-4.0-h-small"), engine, Memory(available_kv_cache_memory_gib=20))
    ...     print(smallest_hit(plan, engine).why)
    a prompt shorter than 529 tokens can never hit: states are kept at multiples of 528, and the last token is computed
    again
    no prompt can hit: states are kept at multiples of 528, and the last token is computed again, but prompts have at
    most 511 tokens
    """
    if engine.use_eagle:
        return None
    step = plan.cache_hit_alignment_tokens
    if not engine.enable_prefix_caching:
        return SmallestHit(None, "no prompt can hit: prefix caching is off")
    if not plan.spec_groups:
        return SmallestHit(None, "no prompt can hit: no group takes part in prefix caching")
    if any(plan.groups[i].window == 1 for ids in plan.spec_groups for i in ids):
        return SmallestHit(None, "no prompt can hit: a window of 1 token looks back on no block that could be kept")
    reason = f"{_reason(plan)}, and the last token is computed again"
    replay = max(group.spec.prefix_replay_tokens for group in plan.groups)
    if replay:
        reason += f", and so is a window of {replay:,} tokens of every hit"
    prompt = replay // step * step + step + 1
    if prompt >= engine.max_model_len:
        longest = engine.max_model_len - 1
        return SmallestHit(None, f"no prompt can hit: {reason}, but prompts have at most {longest:,} tokens")
    return SmallestHit(prompt, f"a prompt shorter than {prompt:,} tokens can never hit: {reason}")


def _reason(plan: KVCachePlan) -> str:
    """Where hits end, and whose blocks decide that."""
    step = plan.cache_hit_alignment_tokens
    sizes = sorted({size for ids in plan.spec_groups for size in (plan.group_block_sizes[i] for i in ids)})
    if plan.enable_partial_hash_hits:
        return f"hits end at multiples of the match unit, {step:,}"
    if any(plan.groups[i].kind == "mamba" for ids in plan.spec_groups for i in ids):
        return f"states are kept at multiples of {step:,}"
    if len(sizes) > 1 and step not in sizes:
        return f"blocks of {', '.join(f'{size:,}' for size in sizes)} tokens meet at multiples of {step:,}"
    return f"hits end at multiples of the block size, {step:,}"
