"""What is planned exactly and not run: settings a run refuses, some because vLLM itself would fail on the way."""

from __future__ import annotations

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.planning import KVCachePlan
from sim.specs import CrossAttentionSpec, FullAttentionSpec


def refuse_unsimulated(plan: KVCachePlan, engine: EngineConfig) -> None:
    """Raise InputError for settings whose blocks are planned exactly, but whose run is not modelled yet."""
    drafts = engine.num_speculative_tokens
    reasons = {
        "engine.async_scheduling": drafts
        and not engine.async_scheduling
        and engine.pipeline_parallel_size > 1
        and "drafts over pipeline stages without it, which vLLM asks for before the output they follow,",
        "engine.num_mtp_modules": engine.num_hash_lookahead_tokens > 1
        and plan.spec_groups != ()
        and not isinstance(plan.groups[plan.spec_groups[0][0]].spec, FullAttentionSpec)
        and "prefix caching with several modules and no full attention, where vLLM's own look-up fails,",
        "engine.num_speculative_tokens": drafts >= plan.hash_block_size
        and any(getattr(group.spec, "num_prefill_checkpoint_blocks", 0) for group in plan.groups)
        and "more drafts than fit a hash block, where vLLM cannot name the state it exports among them,",
        "engine.long_prefill_token_threshold": 0 < engine.long_prefill_token_threshold <= drafts
        and "a threshold within a token and its drafts, where vLLM's own scheduler fails,",
        "engine.speculative_method": drafts
        and any(isinstance(group.spec, CrossAttentionSpec) for group in plan.groups)
        and "drafts beside an encoder",
    }
    for where, what in reasons.items():
        if what:
            raise InputError(f"{what} is planned but not simulated yet; use `plan`", where=where)
