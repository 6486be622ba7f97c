"""An empty machine: the arrays of :mod:`sim.core.state`, allocated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.core.hashing import Spans
from sim.core.kv_events import EVENT_FIELDS
from sim.core.output import FINISH_FIELDS, LOAD_FIELDS, OUTPUT_COUNTERS, SHARES, STEP_FIELDS, Output
from sim.core.seen import FIRST_PLACES, make_seen
from sim.core.state import (
    BLOCK_FIELDS,
    BLOCKED_ORDINAL,
    CROSS,
    DECISION_FIELDS,
    ENCODER_ROOM,
    ENTRY_FIELDS,
    FREE_BLOCKS,
    FREE_ROW_STACK,
    FREE_SLOT_STACK,
    FULL,
    KV_CONSUMER,
    KV_NONE,
    LAST_PREFILL_STEP,
    NEXT,
    NUM_BLOCKS,
    NUM_FREE_ROWS,
    NUM_FREE_SLOTS,
    POOL_COUNTERS,
    PREV,
    QUEUE_COUNTERS,
    REQUEST_FIELDS,
    RSWA,
    SLOT_LISTS,
    TABLE_MARKS,
    UNUSED_KEY,
    Cache,
    Plan,
    Pool,
    Queues,
    State,
    Tables,
)

MOST_ROWS = 8192
"""Prompts that run or are on their way at the same time, at most, where prompts are sent."""


def make_pool(num_blocks: int, second_keys: int = 0, events: int = 0, counted_groups: int = 0) -> tuple[Pool, Cache]:
    """A pool whose free queue holds blocks 1 … num_blocks-1 in order; block 0 is the null block.

    ``second_keys``, ``events``: rows for those; memory of rows never used stays unmapped. ``counted_groups``: groups
    whose blocks are counted.
    vllm 0.33.0 v1/core/block_pool.py:187-191.
    """
    rows = num_blocks + second_keys
    links = np.zeros((rows + 1, BLOCK_FIELDS), np.uint32)
    order = np.append(np.arange(1, num_blocks, dtype=np.uint32), np.uint32(rows))
    links[order, NEXT] = np.roll(order, -1)
    links[order, PREV] = np.roll(order, 1)
    counters = np.zeros(POOL_COUNTERS, np.int64)
    counters[FREE_BLOCKS] = num_blocks - 1
    counters[NUM_BLOCKS] = counters[UNUSED_KEY] = num_blocks
    log = np.empty((events, EVENT_FIELDS), np.uint64)
    group = np.zeros(num_blocks if counted_groups else 0, np.int32)
    pool = Pool(links, np.zeros(rows, np.uint64), counters, log, group, np.zeros((counted_groups, 2), np.int64))
    return pool, make_cache(pool, 4 << (num_blocks - 1).bit_length())


def make_cache(pool: Pool, places: int) -> Cache:
    """An empty map over the pool's keys; ``places`` is a power of two, at least 16 are made."""
    places = max(places, 16)
    return Cache(np.zeros(places, np.uint32), np.zeros(pool.key.size, np.uint32), pool.key)


def _boundaries_within(plan: Plan) -> int:
    """At how many boundaries inside it a block of attention can have a key, besides the one of its own at its end."""
    sizes = plan.block_size[np.isin(plan.kind, (FULL, RSWA))]
    return int(sizes.max(initial=plan.hash_block_size) // plan.hash_block_size) - 1


def make_tables(plan: Plan, num_blocks: int) -> Tables:
    """Empty tables: a row for every request that can run, an entry for every block of the longest request.

    Each running request has allocated at least one block in every group itself, so the pool bounds the rows too; of
    cross attention only where it has an input to the encoder, and perhaps none while it computes a hit's end again.
    """
    groups = plan.block_size.size
    taking = max(1, int(np.count_nonzero(plan.kind != CROSS)))
    rows = min(plan.max_num_seqs, num_blocks // taking + 1) if plan.prefix_replay_tokens == 0 else plan.max_num_seqs
    if plan.kv_role != KV_NONE:  # prompts on their way hold blocks too
        rows = min(max(plan.max_num_seqs, MOST_ROWS), num_blocks // taking + 1)
    longest = max(plan.max_model_len, plan.encoder_budget)
    row_length = int((longest // plan.block_size + plan.spec_blocks).max()) + 2
    return Tables(np.zeros((rows + 1, groups, row_length), np.int32), np.zeros((rows, groups, TABLE_MARKS), np.int32))


def make_queues(plan: Plan, slots: int, rows: int) -> Queues:
    """Empty queues for ``slots`` live requests, at least as many as can run."""
    depth, width = plan.max_concurrent_batches, plan.max_num_seqs
    lists = np.zeros((SLOT_LISTS, slots), np.int32)
    lists[FREE_SLOT_STACK] = np.arange(slots - 1, -1, -1)
    lists[FREE_ROW_STACK, :rows] = np.arange(rows - 1, -1, -1)
    counters = np.zeros(QUEUE_COUNTERS, np.int64)
    counters[BLOCKED_ORDINAL] = -1
    counters[LAST_PREFILL_STEP] = -plan.prefill_schedule_interval
    counters[ENCODER_ROOM] = plan.encoder_budget
    counters[NUM_FREE_ROWS] = rows
    counters[NUM_FREE_SLOTS] = slots
    return Queues(
        lists=lists,
        entries=np.zeros((depth, width, ENTRY_FIELDS), np.int64),
        batch=np.zeros((depth, 3), np.int64),
        decided=np.zeros((width + 1, DECISION_FIELDS), np.int64),
        counters=counters,
        fresh=np.zeros((6 + plan.num_spec_tokens) * (depth + 1) * (width + 1) * plan.block_size.size, np.uint64),
        missed=np.zeros(2, np.uint64),
    )


def _kept_per_step(plan: Plan) -> int:
    """Most blocks that get a key between two looks at the memory: full ones of a batch, and what waited for them."""
    tokens, tails = plan.scheduler_block_size, 1
    if plan.num_spec_tokens > 0:
        tokens, tails = tokens + plan.num_spec_tokens + plan.prefill_lookahead, 5
    waiting = (plan.max_num_seqs + 1) * (-(-tokens // plan.block_size) + tails)
    return int(2 * (plan.max_num_batched_tokens // plan.block_size + waiting).sum())


def make_state(
    plan: Plan,
    num_blocks: int,
    *,
    slots: int = 4096,
    records: int = 16384,
    log_tables: bool = False,
    log_events: bool = False,
    resets: Sequence[tuple[int, bool]] = (),
    explain: bool = False,
) -> State:
    """An empty machine with ``num_blocks`` blocks at time 0, with room for ``slots`` live requests.

    With ``explain`` the run remembers what an unlimited cache would, and says why hits end where they do.
    ``records`` rows of steps and of finished requests are buffered before the caller must drain them. With
    ``log_tables`` the tables of finished requests are kept for the step log, with ``log_events`` the KV cache events of
    one step; that memory is only mapped when touched. ``resets``: (ns, with running requests) of the prefix cache.
    """
    tables = make_tables(plan, num_blocks)
    events = 8 * (num_blocks + tables.marks.size + plan.max_num_batched_tokens * plan.block_size.size)
    second_keys = num_blocks * _boundaries_within(plan) if plan.partial_hits or log_events else 0
    pool, cache = make_pool(
        num_blocks, second_keys, events if log_events else 0, plan.block_size.size if explain else 0
    )
    slots = max(slots, plan.max_num_seqs + 1)
    width = 2 * tables.blocks.size + 64 * tables.marks.size if log_tables else 0
    copying = plan.partial_hits or plan.drops_last_block  # a tail that is found inside its block has to be copied
    output = Output(
        counters=np.zeros(OUTPUT_COUNTERS, np.int64),
        steps=np.zeros((records, STEP_FIELDS), np.int64),
        finished=np.zeros((records + plan.max_num_seqs, FINISH_FIELDS), np.int64),
        tables=np.empty(width, np.int64),
        resets=np.array([(at, running, 0) for at, running in sorted(resets)], np.int64).reshape(-1, 3),
        shares=np.zeros((records if explain else 0, plan.block_size.size, SHARES), np.int32),
        loads=np.zeros((tables.marks.shape[0] if plan.kv_role == KV_CONSUMER else 0, LOAD_FIELDS), np.int64),
        copies=np.zeros((copying * (plan.max_num_seqs + 1) * plan.block_size.size, 3), np.int32),
    )
    spans = Spans(np.zeros(2 * slots, np.uint64), np.zeros((2 * slots, 2), np.int64))
    requests = np.zeros((slots, REQUEST_FIELDS), np.int64)
    explained = explain and plan.enable_prefix_caching and plan.spec_offsets.size > 1
    places = FIRST_PLACES if explained else 0
    names = _kept_per_step(plan) + (pool.key.size if resets else 0)
    seen = make_seen(places, records + plan.max_num_seqs, plan.spec_offsets.size, names)
    return State(pool, cache, requests, spans, tables, make_queues(plan, slots, tables.marks.shape[0]), output, seen)
