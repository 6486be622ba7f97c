"""What a request would hit if it were looked up now, asked from outside: nothing is taken, noted or counted.

A router asks each replica this about a request that none of them has. The answer is the one
:func:`sim.core.kv_cache_manager.find_computed` would give to the request at the head of the waiting queue; the blocks
found are left in the row that the next look-up writes over.
"""

from __future__ import annotations

from sim.core._jit import compiled, i64
from sim.core.coordinator import longest_hit
from sim.core.eagle import chunk_past_keys, longest_left, looks_past_keys
from sim.core.hashing import Spans
from sim.core.replay import kept_hit
from sim.core.state import NUM_TOKENS, SKIP_CACHE, Cache, Int64s, Keys, Plan, Tables


@compiled
def cached_tokens(plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, missed: Keys) -> int:
    """Tokens of the longest prefix of a request that is cached now, in all groups; 0 where vLLM's look-up would fail.

    ``request`` is a row of :class:`sim.core.state.State`'s requests whose spans are in ``spans``; ``missed`` is
    written over.
    """
    if not plan.enable_prefix_caching or request[SKIP_CACHE] != 0 or looks_past_keys(plan, request):
        return 0
    most = i64(request[NUM_TOKENS]) - longest_left(plan)
    hit, longest = longest_hit(plan, cache, spans, request, tables, most, missed)
    if chunk_past_keys(plan, request, longest):
        return 0
    return kept_hit(hit, plan.prefix_replay_tokens)
