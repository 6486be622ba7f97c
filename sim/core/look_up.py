"""The search for a request's cached prefix: by the scheduler, and asked from outside, where nothing is noted.

A router asks each replica about a request that none of them has. The answer is the one the scheduler would get for that
request at the head of the waiting queue; the blocks found are left in the row that the next search writes over.
"""

from __future__ import annotations

from sim.core._jit import compiled, i64, inlined
from sim.core.coordinator import longest_hit
from sim.core.eagle import chunk_past_keys, longest_left, looks_past_keys
from sim.core.hashing import NO_KEY, Spans
from sim.core.replay import kept_hit
from sim.core.state import NUM_TOKENS, SKIP_CACHE, Cache, Int64s, Keys, Plan, Tables


@inlined
def search(plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, missed: Keys) -> tuple[int, int]:
    """Tokens of a request's longest cached prefix, and of the longest one that some group knows.

    At least the last token, or all that a key covers, is left out. (-1, 0) where vLLM's look-up fails. ``missed[0]``
    becomes the first key that full attention missed.
    """
    if not plan.enable_prefix_caching or request[SKIP_CACHE] != 0:
        return 0, 0
    if looks_past_keys(plan, request):
        return -1, 0
    missed[0] = NO_KEY
    most = i64(request[NUM_TOKENS]) - longest_left(plan)
    hit, longest = longest_hit(plan, cache, spans, request, tables, most, missed)
    if chunk_past_keys(plan, request, longest):
        return -1, 0
    return hit, longest


@compiled
def cached_tokens(plan: Plan, cache: Cache, spans: Spans, request: Int64s, tables: Tables, missed: Keys) -> int:
    """Tokens of the longest prefix of a request that is cached now, in all groups; 0 where vLLM's look-up would fail.

    ``request`` is a row of :class:`sim.core.state.State`'s requests whose spans are in ``spans``; ``missed`` is
    written over.
    """
    hit, _ = search(plan, cache, spans, request, tables, missed)
    return kept_hit(max(hit, 0), plan.prefix_replay_tokens)
