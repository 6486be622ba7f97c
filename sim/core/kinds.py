"""The kinds of KV cache group, and the questions each answers in a file of its own.

kind             what may be freed, what counts as a hit            file
FULL             nothing; a run from the start                      full.py
SLIDING_WINDOW   what is behind the window; what is inside it       sliding_window.py
CHUNKED_LOCAL    the chunks before; the run inside the last chunk   chunked_local.py
MAMBA_NONE       all states but the last; never asked               (here)
MAMBA_ALIGN      all states but the last; the last cached state     mamba.py
RSWA             outputs behind the window; a run from the start    rswa.py
REPLAY           what is behind the window; it takes no part        replay.py
CIRCULAR         nothing, it is one block; it takes no part         tables.py
CROSS            nothing, it holds the encoder's tokens; none       cross.py

Where hits may end inside a block, FULL, RSWA and MAMBA_ALIGN find and keep the tails of prompts: partial.py.
"""

from __future__ import annotations

from sim.core import chunked_local, full, mamba, sliding_window
from sim.core._jit import inlined
from sim.core.hashing import Spans
from sim.core.state import (
    CHUNKED_LOCAL,
    CIRCULAR,
    CROSS,
    FULL,
    MAMBA_ALIGN,
    MAMBA_NONE,
    NEVER,
    REPLAY,
    RSWA,
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
_window_blocks = sliding_window.blocks_for_hit
_chunk_hit = chunked_local.longest_hit
_chunk_skipped = chunked_local.num_skipped_tokens
_chunk_free_at = chunked_local.free_at
_state_hit = mamba.longest_hit


@inlined
def looks_up_once(kind: int) -> bool:
    """Whether a hit of this kind stays a hit when it is cut shorter, so that one look-up is enough.

    >>> looks_up_once(FULL), looks_up_once(SLIDING_WINDOW)
    (True, False)
    """
    return kind in (FULL, RSWA)


@inlined
def is_cacheable(kind: int) -> bool:
    """Whether groups of this kind take part in prefix caching.

    >>> is_cacheable(RSWA), is_cacheable(REPLAY)
    (True, False)
    """
    return kind not in (CIRCULAR, REPLAY, CROSS)


@inlined
def num_skipped_blocks(kind: int, window: int, block_size: int, num_computed: int) -> int:
    """Whole blocks at the start of a table that no later token will look at.

        block 4, window 6, computed 15:   | 0 … 3 | 4 … 7 | 8 … 11 | 12 … 14 | 15      it sees 10 … 15 -> 2
        block 4, a state, computed 15:    | 0 … 3 | 4 … 7 | 8 … 11 | 12 … 14 | 15      it reads the last -> 3

    >>> num_skipped_blocks(SLIDING_WINDOW, 6, 4, 15), num_skipped_blocks(MAMBA_ALIGN, 0, 4, 15)
    (2, 3)
    >>> num_skipped_blocks(CHUNKED_LOCAL, 8, 4, 15), num_skipped_blocks(FULL, 0, 4, 15)
    (2, 0)
    """
    if kind in (SLIDING_WINDOW, REPLAY):
        return _window_skipped(window, num_computed) // block_size
    if kind == CHUNKED_LOCAL:
        return _chunk_skipped(window, num_computed) // block_size
    if kind in (MAMBA_ALIGN, MAMBA_NONE):
        return max(num_computed - 1, 0) // block_size
    return 0


@inlined
def free_at(kind: int, window: int, block_size: int, head: int) -> int:
    """Processed tokens at which the block ``head``, the first that is still kept, can be freed.

        block 4, window 6:   | 0 … 3 x | 4 … 7 |      block 0 holds what token 8 sees, and nothing token 9 does

    >>> free_at(SLIDING_WINDOW, 6, 4, 0), free_at(CHUNKED_LOCAL, 8, 4, 0), free_at(MAMBA_NONE, 0, 4, 0)
    (9, 8, 5)
    """
    end_of_block = (head + 1) * block_size
    if kind in (SLIDING_WINDOW, REPLAY):
        return end_of_block + window - 1
    if kind == CHUNKED_LOCAL:
        return _chunk_free_at(window, end_of_block)
    if kind == MAMBA_NONE:
        return end_of_block + 1
    return NEVER


@inlined
def tail_blocks(kind: int, window: int, block_size: int) -> int:
    """Blocks that must be cached before a resume point, so that others need no key; -1: every full block gets one.

        block 4, window 6:   | . | . | x | x | resume      of states the last one alone

    >>> tail_blocks(SLIDING_WINDOW, 6, 4), tail_blocks(MAMBA_ALIGN, 0, 4), tail_blocks(FULL, 0, 4)
    (2, 1, -1)
    """
    if kind == SLIDING_WINDOW:
        return _window_blocks(window, block_size)
    if kind == MAMBA_ALIGN:
        return 1
    return -1


@inlined
def longest_hit(
    plan: Plan,
    cache: Cache,
    spans: Spans,
    request: Int64s,
    tables: Tables,
    spec: int,
    max_tokens: int,
    drop: int,
    missed: Keys,
) -> int:
    """Tokens of the longest cached prefix of at most ``max_tokens`` in the groups of one spec; notes its blocks.

    ``drop`` 1: a hit loses its last block (see :mod:`sim.core.eagle`); states and chunks never do.
    """
    kind = plan.kind[plan.spec_groups[plan.spec_offsets[spec]]]
    if kind == SLIDING_WINDOW:
        return _window_hit(plan, cache, spans, request, tables, spec, max_tokens, drop)
    if kind == CHUNKED_LOCAL:
        return _chunk_hit(plan, cache, spans, request, tables, spec, max_tokens)
    if kind == MAMBA_ALIGN:
        return _state_hit(plan, cache, spans, request, tables, spec, max_tokens)
    return _full_hit(plan, cache, spans, request, tables, spec, max_tokens, drop, missed)
