"""The kinds of KV cache group, and the questions each answers in a file of its own.

kind             what may be freed, what counts as a hit            file
FULL             nothing; a run from the start                      full.py
SLIDING_WINDOW   what is behind the window; what is inside it       sliding_window.py
CHUNKED_LOCAL    the chunks before; the run inside the last chunk   chunked_local.py
MAMBA_NONE       all states but the last; never asked               (here)
MAMBA_ALIGN      all states but the last; the last cached state     mamba.py
CIRCULAR         nothing, it is one block; it takes no part         tables.py
"""

from __future__ import annotations

from sim.core import chunked_local, full, mamba, sliding_window
from sim.core._jit import i64, internal
from sim.core.hashing import Spans
from sim.core.state import (
    CHUNKED_LOCAL,
    MAMBA_ALIGN,
    MAMBA_NONE,
    NEVER,
    SLIDING_WINDOW,
    Cache,
    Int64s,
    Keys,
    Plan,
    Tables,
)

_full_hit = full.longest_hit
_window_hit = sliding_window.longest_hit
_window_skipped = sliding_window.num_skipped_tokens
_window_reachable = sliding_window.is_reachable
_chunk_hit = chunked_local.longest_hit
_chunk_skipped = chunked_local.num_skipped_tokens
_chunk_free_at = chunked_local.free_at
_state_hit = mamba.longest_hit
_state_reachable = mamba.is_reachable


@internal
def num_skipped_blocks(plan: Plan, group: int, num_computed: int) -> int:
    """Whole blocks at the start of a table that no later token will look at."""
    kind = plan.kind[group]
    if kind == SLIDING_WINDOW:
        return i64(_window_skipped(plan.window[group], num_computed) // plan.block_size[group])
    if kind == CHUNKED_LOCAL:
        return i64(_chunk_skipped(plan.window[group], num_computed) // plan.block_size[group])
    if kind in (MAMBA_ALIGN, MAMBA_NONE):
        return i64(max(num_computed - 1, 0) // plan.block_size[group])
    return 0


@internal
def free_at(plan: Plan, group: int, head: int) -> int:
    """Processed tokens at which the block ``head``, the first that is still kept, can be freed."""
    kind = plan.kind[group]
    end_of_block = (head + 1) * plan.block_size[group]
    if kind == SLIDING_WINDOW:
        return i64(end_of_block + plan.window[group] - 1)
    if kind == CHUNKED_LOCAL:
        return i64(_chunk_free_at(plan.window[group], end_of_block))
    if kind == MAMBA_NONE:
        return i64(end_of_block + 1)
    return NEVER


@internal
def is_reachable(plan: Plan, request: Int64s, group: int, index: int) -> bool:
    """Whether a full block can ever serve a hit, so is worth a key."""
    kind = plan.kind[group]
    if kind == SLIDING_WINDOW:
        return _window_reachable(plan, request, group, index)
    if kind == MAMBA_ALIGN:
        return _state_reachable(plan, request, group, index)
    return True


@internal
def longest_hit(
    plan: Plan,
    cache: Cache,
    spans: Spans,
    request: Int64s,
    tables: Tables,
    spec: int,
    max_tokens: int,
    missed: Keys,
) -> int:
    """Tokens of the longest cached prefix of at most ``max_tokens`` in the groups of one spec; notes its blocks."""
    kind = plan.kind[plan.spec_groups[plan.spec_offsets[spec]]]
    if kind == SLIDING_WINDOW:
        return _window_hit(plan, cache, spans, request, tables, spec, max_tokens)
    if kind == CHUNKED_LOCAL:
        return _chunk_hit(plan, cache, spans, request, tables, spec, max_tokens)
    if kind == MAMBA_ALIGN:
        return _state_hit(plan, cache, spans, request, tables, spec, max_tokens)
    return _full_hit(plan, cache, spans, request, tables, spec, max_tokens, missed)
