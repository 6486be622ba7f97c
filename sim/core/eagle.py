"""What drafts that read hidden states (EAGLE, MTP) ask of the prefix cache.

A draft model's keys and values at a position depend on the *next* token too, so the last block of a hit may have been
computed for another continuation. vLLM has two ways out:

    look-ahead hashes   a block's key covers the token after it too (with several modules, that many tokens)
    block drop          a hit that matches is cut by its last block, in groups with draft layers; so a look-up may
                        match one block past the candidate length first (the proof margin)

    drop, block 4     | 0 hit | 1 hit | 2 hit |        8 tokens: block 2 only proves the token after block 1

Several modules besides compute the last tokens of a prefill again, which are not cached before that.
vllm 0.33.0 v1/core/kv_cache_coordinator.py:63, :346, :757 and :860-900, v1/core/kv_cache_utils.py:950.
"""

from __future__ import annotations

from sim.core._jit import i64, inlined
from sim.core.state import (
    CHUNKED_LOCAL,
    MAMBA_ALIGN,
    MAX_TOKENS,
    NEVER,
    NUM_TOKENS,
    OUTPUT,
    PROMPT,
    SLIDING_WINDOW,
    Int64s,
    Plan,
)


@inlined
def look_up_limit(plan: Plan, request: Int64s, group: int, candidate: int) -> int:
    """Tokens a group that drops its last block may match to prove ``candidate`` tokens.

    States are not dropped, and a single group gets no margin (its answer simply is a block shorter). Where hits may end
    inside a block the margin is a hash block.
    """
    if plan.kind[group] == MAMBA_ALIGN or plan.block_size.size == 1:
        return candidate
    unit = plan.hash_block_size
    margin = min(i64(plan.block_size[group]), plan.hit_alignment if plan.partial_hits else NEVER)
    return i64(min(candidate + margin, request[NUM_TOKENS] // unit * unit))


@inlined
def looks_past_keys(plan: Plan, request: Int64s) -> bool:
    """Whether vLLM's look-up fails: it begins at a block whose key covers more tokens than the request has.

        block 4, keys 3 ahead   | 0 … 3 | 4 … 7 | 8      asked for two blocks, but only the first can have a key

    Full attention, where there is some, is asked first and goes no further than keys; nor does a search inside blocks.
    """
    if plan.hash_lookahead <= 1 or plan.partial_hits or plan.spec_groups.size == 0:
        return False
    first = plan.spec_groups[0]
    if plan.kind[first] not in (SLIDING_WINDOW, MAMBA_ALIGN):
        return False
    known = max(request[NUM_TOKENS] - plan.hash_lookahead, 0)
    return bool((request[NUM_TOKENS] - 1) // plan.block_size[first] > known // plan.block_size[first])


@inlined
def _asks_chunks_first(plan: Plan) -> bool:
    """Whether a look-up begins with chunked local attention, which needs no keys before its own chunk."""
    return bool(plan.spec_groups.size > 0 and plan.kind[plan.spec_groups[0]] == CHUNKED_LOCAL)


@inlined
def longest_left(plan: Plan) -> int:
    """Tokens of a text that no look-up hits: the last one, or all that a key covers past its block."""
    return 1 if _asks_chunks_first(plan) else i64(max(plan.hash_lookahead, 1))


@inlined
def chunk_past_keys(plan: Plan, request: Int64s, found: int) -> bool:
    """Whether vLLM's look-up in a chunk, asked first, went on past ``found`` tokens to a block that has no key yet.

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1370.
    """
    if plan.hash_lookahead <= 1 or not _asks_chunks_first(plan):
        return False
    end = found + plan.block_size[plan.spec_groups[0]]
    return bool(end < request[NUM_TOKENS] < end + plan.hash_lookahead)


@inlined
def cacheable_tokens(plan: Plan, group: int, num_tokens: int) -> int:
    """Tokens of a prefix of ``num_tokens`` whose blocks may get keys in a group.

    Where blocks are dropped, one block past the last multiple of the scheduler block size is matched too.
    """
    again = max(plan.prefill_lookahead - 1, 0)
    if plan.block_size.size == 1:
        return max(num_tokens - again, 0)
    aligned = num_tokens if plan.partial_hits else num_tokens - num_tokens % plan.scheduler_block_size
    if plan.drops[group] == 0 or aligned == 0:
        return aligned
    final = max(num_tokens - again, 0)
    if plan.partial_hits:
        return final
    return i64(min(final, final - final % plan.scheduler_block_size + plan.block_size[group]))


@inlined
def full_blocks(plan: Plan, request: Int64s, group: int, num_tokens: int) -> int:
    """Blocks at the start of a table that may have keys once ``num_tokens`` tokens are final.

    A key that covers tokens after its block exists once they do.
    """
    tokens = cacheable_tokens(plan, group, num_tokens)
    if plan.hash_lookahead > 0:
        tokens = max(min(tokens, i64(request[NUM_TOKENS]) - plan.hash_lookahead), 0)
    return i64(tokens // plan.block_size[group])


@inlined
def covered_tokens(plan: Plan, request: Int64s, num_tokens: int) -> int:
    """Tokens of a text that the keys of its first ``num_tokens`` tokens cover; an end of the sequence is not of it."""
    known = i64(request[NUM_TOKENS] - (1 if said_end(request) else 0))
    return i64(min(num_tokens + plan.hash_lookahead, known))


@inlined
def cacheable_at(plan: Plan, group: int, block: int) -> int:
    """Tokens at which block ``block`` of a table can get a key: the least :func:`cacheable_tokens` holds it for.

    Past a multiple of the scheduler block size, a prompt that ends within the block may give it one early.
    """
    size, step = i64(plan.block_size[group]), 1 if plan.partial_hits else plan.scheduler_block_size
    end = (block + 1) * size
    again = max(plan.prefill_lookahead - 1, 0)
    if plan.block_size.size == 1:
        return end + again
    if plan.drops[group] == 0:
        return -(-end // step) * step
    early = block * size + plan.hash_block_size
    return max(step, again + max(early, -(-(block * size) // step) * step))


@inlined
def tail_at(plan: Plan, request: Int64s, cached: int) -> int:
    """Tokens at which the tail of a prompt can get a key, after ``cached`` tokens were offered; beside drafts, earlier.

    With keys that look ahead it takes some tokens more until the last of those exists; an output alone may bring it,
    with no token computed since.
    """
    if plan.num_spec_tokens == 0:
        tail = (request[PROMPT] - 1) // plan.hash_block_size * plan.hash_block_size
        return i64(tail) if tail > cached else NEVER
    last = request[PROMPT] + plan.hash_lookahead + plan.prefill_lookahead
    return i64(cached + (plan.hash_lookahead == 0)) if cached <= last else NEVER


@inlined
def replay_boundaries(prompt: int, scheduler_block_size: int) -> tuple[int, int]:
    """Where a resend of a prompt, and one that goes on after it, resume when hits lose their last block.

        scheduler block 16, prompt 32:   | 0 … 15 | 16 … 31 |      a resend matches 16 of 31 tokens and loses them;
                                                                   a longer text matches 32 and keeps 16

    >>> replay_boundaries(32, 16), replay_boundaries(33, 16)
    ((0, 16), (16, 16))
    """
    resend = (prompt - 1) // scheduler_block_size - 1
    extension = prompt // scheduler_block_size - 1
    return max(resend, 0) * scheduler_block_size, max(extension, 0) * scheduler_block_size


@inlined
def said_end(request: Int64s) -> bool:
    """Whether the request's last token ends the sequence: it is not the text's, so a key that covers it is nobody's."""
    return bool(request[NUM_TOKENS] - request[PROMPT] == request[OUTPUT] and request[OUTPUT] < request[MAX_TOKENS])
