"""Numbered invariants of the machine, checked at idle points under ``--check`` and in tests.

1 blocks conserved    free queue + blocks in use + null block = num_blocks, and the free queue's ring is whole
2 references          a block's reference count = table entries that name it; 0 exactly in the free queue; what a copy
                      holds beyond that is let go by the end of schedule()
3 cache keys          a cached key maps to blocks that carry it, and every block with a key is found under it
4 null block          never free, never cached, never counted
5 rows and slots      a row per request that runs, is fetched or is kept to be sent; slots are free, waiting to arrive,
                      waiting, running or in flight
6 lengths             a running request has room for its computed tokens in the table of every group, and the thresholds
                      say so; it computed no more than is known
7 second keys         a second key belongs to a block that has a key of its own, and the block leads to it
8 null gaps           a table has null blocks only where its kind leaves some: behind a window (which several draft
                      modules keep blocks behind, and hits do not fill), between states, in a gap of R-SWA
9 most blocks         a request holds no more blocks of a kind that gives blocks back than what is read and in flight
"""

from __future__ import annotations

import numpy as np

from sim.core import state as core
from sim.core.hashing import NO_KEY
from sim.core.prefix_cache import lookup
from sim.core.second_keys import NO_ROW
from sim.machine import Machine


class InvariantError(AssertionError):
    """The machine contradicts itself: a defect of hybridkv, never of the input."""


def check_invariants(machine: Machine) -> None:
    """Raise InvariantError with the number and the figures of the first invariant that does not hold."""
    free = machine.free_queue()
    references = _references(machine)
    _check_blocks(machine, free, references)
    _check_cache(machine)
    _check_second_keys(machine)
    _check_requests(machine)
    for slot in machine.running_slots():
        for group, table in enumerate(machine.block_table(slot)):
            _check_table(machine, slot, group, table)


def _fail(number: int, text: str) -> None:
    raise InvariantError(f"invariant {number} broken: {text}")


def _references(machine: Machine) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How often the tables of requests that hold blocks name each block."""
    counted = np.zeros(int(machine.state.pool.counters[core.NUM_BLOCKS]), np.int64)
    tables = machine.state.tables
    for slot in machine.holding_slots():
        row = int(machine.state.requests[slot, core.ROW])
        for group in range(machine.plan.block_size.size):
            head, length = tables.marks[row, group, core.HEAD], tables.marks[row, group, core.LENGTH]
            np.add.at(counted, tables.blocks[row, group, head:length], 1)
    counted[core.NULL_BLOCK] = 0
    return counted


def _check_blocks(
    machine: Machine,
    free: np.ndarray[tuple[int], np.dtype[np.int32]],
    references: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> None:
    pool = machine.state.pool
    num_blocks = int(pool.counters[core.NUM_BLOCKS])
    in_use = int((references > 0).sum())
    counter = int(pool.counters[core.FREE_BLOCKS])
    if len(free) != counter or len(free) + in_use + 1 != num_blocks:
        _fail(1, f"{len(free)} free (counter {counter}) + {in_use} in use + 1 null != {num_blocks}")
    sentinel = pool.links.shape[0] - 1
    ring = np.array([sentinel, *free.tolist(), sentinel])
    broken = np.flatnonzero(pool.links[ring[1:], core.PREV] != ring[:-1])
    if broken.size:
        _fail(1, f"block {ring[broken[0] + 1]} of the free queue does not lead back to {ring[broken[0]]}")
    held = pool.links[:num_blocks, core.REF].astype(np.int64)
    held[core.NULL_BLOCK] = 0
    wrong = np.flatnonzero(held != references)
    if wrong.size:
        block = int(wrong[0])
        _fail(2, f"block {block} counts {held[block]} references, tables name it {references[block]} times")
    if references[free].any():
        _fail(2, "a block in the free queue is named by a table")
    if core.NULL_BLOCK in free or pool.key[core.NULL_BLOCK] != NO_KEY:
        _fail(4, "the null block is free or cached")


def _check_cache(machine: Machine) -> None:
    """Every chain leads to an end over blocks that answer for their key, every ring over blocks with one key."""
    pool, cache = machine.state.pool, machine.state.cache
    found = 0
    for place in np.flatnonzero(cache.first).tolist():
        oldest = int(cache.first[place])
        while oldest != core.NULL_BLOCK:
            key = pool.key[oldest]
            if lookup(cache, key) != oldest:
                _fail(3, f"block {oldest} is kept under key {int(key):#x} and not found there")
            found += _check_ring(machine, oldest)
            oldest = int(cache.following[oldest])
            if found > pool.key.size:
                _fail(3, f"the chain of place {place} does not end")
    keyed = int((pool.key[: pool.counters[core.UNUSED_KEY]] != NO_KEY).sum())
    if found != keyed:
        _fail(3, f"{keyed} blocks carry a key, {found} are found under one")


def _check_ring(machine: Machine, oldest: int) -> int:
    """Number of the blocks that carry the key of the oldest of them."""
    pool = machine.state.pool
    count, block = 0, oldest
    while count <= pool.key.size:
        count += 1
        if pool.key[block] != pool.key[oldest]:
            _fail(3, f"block {block} is listed under the key of block {oldest} and carries {int(pool.key[block]):#x}")
        block = int(pool.links[block, core.DUP_NEXT])
        if block == oldest:
            break
    return count


def _check_second_keys(machine: Machine) -> None:
    pool = machine.state.pool
    first, last = pool.counters[[core.NUM_BLOCKS, core.UNUSED_KEY]].tolist()
    for row in (first + np.flatnonzero(pool.key[first:last] != NO_KEY)).tolist():
        block = int(pool.links[row, core.REF])
        if pool.key[block] == NO_KEY:
            _fail(7, f"row {row} is a second key of block {block}, which has none of its own")
        led_to, steps = int(pool.links[block, core.SECOND_KEY]), 0
        while led_to not in (NO_ROW, row) and steps < last - first:
            led_to, steps = int(pool.links[led_to, core.NEXT]), steps + 1
        if led_to != row:
            _fail(7, f"row {row} is a second key of block {block}, which does not lead to it")


def _check_requests(machine: Machine) -> None:
    state = machine.state
    count = state.queues.counters
    running = list(machine.running_slots())
    rows = state.tables.marks.shape[0] - int(count[core.NUM_FREE_ROWS])
    holding = len(list(machine.holding_slots()))
    if rows != holding:
        _fail(5, f"{rows} rows of the tables are taken by {holding} requests")
    statuses = np.bincount(state.requests[:, core.STATUS], minlength=core.STATUSES)
    if statuses[core.FREE_SLOT] != count[core.NUM_FREE_SLOTS] or statuses[core.RUNNING] != len(running):
        _fail(5, f"slots by status {statuses.tolist()}, {count[core.NUM_FREE_SLOTS]} free, {len(running)} running")
    queued = statuses[core.WAITING] + statuses[core.PREEMPTED] + statuses[core.LOADING]
    known = count[core.NUM_WAITING] + count[core.NUM_LOADING] + count[core.NUM_INBOX]
    if queued != known or holding != len(running) + count[core.NUM_LOADING] + statuses[core.SENDING]:
        _fail(5, f"{queued} requests wait, {known} queued, fetched or to arrive; slots by status {statuses.tolist()}")
    for slot in running:
        request = state.requests[slot]
        room = int(request[core.GROW_AT])
        drafts = 0 if machine.plan.async_scheduling else machine.plan.num_spec_tokens
        known = request[core.NUM_TOKENS] + request[core.PLACEHOLDERS] + drafts
        if request[core.COMPUTED] > room or request[core.COMPUTED] > known:
            _fail(6, f"slot {slot}: computed {request[core.COMPUTED]}, room {room}, known {known}")
        for group in range(machine.plan.block_size.size):
            slots = _slots(machine, slot, group)
            if slots < request[core.COMPUTED]:
                _fail(6, f"slot {slot}, group {group}: computed {request[core.COMPUTED]}, the table holds {slots}")


def _slots(machine: Machine, slot: int, group: int) -> int:
    """Tokens a group's table has room for; one of a fixed number of blocks has room for all."""
    kind = int(machine.plan.kind[group])
    length = int(machine.state.tables.marks[machine.state.requests[slot, core.ROW], group, core.LENGTH])
    if kind in (core.CIRCULAR, core.CROSS):
        encoder = int(machine.state.requests[slot, core.ENCODER_TOKENS])
        needed = 1 if kind == core.CIRCULAR else -(-encoder // int(machine.plan.block_size[group]))
        return core.NEVER if length >= needed else 0
    return (length - int(machine.plan.spec_blocks[group])) * int(machine.plan.block_size[group])


def _check_table(machine: Machine, slot: int, group: int, table: list[int]) -> None:
    allowed = _null_entries(machine, slot, group)
    present = [i for i, block in enumerate(table) if block != core.NULL_BLOCK]
    misplaced = [i for i in range(len(table)) if table[i] == core.NULL_BLOCK and i not in allowed]
    if misplaced:
        _fail(8, f"slot {slot}, group {group}: entry {misplaced[0]} is a null block, allowed {allowed}")
    most = _most_blocks(machine, slot, group)
    if len(present) > most:
        _fail(9, f"slot {slot}, group {group}: {len(present)} blocks, at most {most}")


def _null_entries(machine: Machine, slot: int, group: int) -> range:
    """Entries of a table that may be null blocks."""
    plan, request = machine.plan, machine.state.requests[slot]
    marks = machine.state.tables.marks[request[core.ROW], group]
    kind, size = int(plan.kind[group]), int(plan.block_size[group])
    if kind in (core.FULL, core.CIRCULAR, core.CROSS):
        return range(0)
    if kind == core.RSWA:
        return range(-(-int(request[core.PROMPT]) // size), int(marks[core.LAST_STATE]))
    if kind == core.MAMBA_ALIGN:
        return range(int(marks[core.LENGTH] - plan.spec_blocks[group]) - 1)
    if kind == core.CHUNKED_LOCAL:  # a hit takes what lies before the chunk of its last token as computed
        chunk = int(plan.window[group])
        return range(max(int(marks[core.HEAD]), int(request[core.NUM_TOKENS]) // chunk * chunk // size))
    if plan.kept_window[group] > plan.window[group]:  # what several draft modules keep, a hit does not bring back
        return range(max(int(marks[core.HEAD]), int(request[core.COMPUTED] - plan.window[group] + 1) // size))
    return range(int(marks[core.HEAD]))


def _most_blocks(machine: Machine, slot: int, group: int) -> int:
    """Blocks of a table that may be present: what is still read, what is in flight, one begun at either end.

    Of states each chunk leaves one, and where drafts were rejected one in each block that they reached.

    vllm 0.33.0 v1/kv_cache_interface.py:918 (max_admission_blocks_per_request) has the same sum for a window.
    """
    plan, request = machine.plan, machine.state.requests[slot]
    kind, size, spec = int(plan.kind[group]), int(plan.block_size[group]), int(plan.spec_blocks[group])
    in_flight = plan.max_concurrent_batches * plan.max_num_batched_tokens + plan.num_lookahead_tokens
    if kind == core.CIRCULAR:
        return 1
    if kind == core.CROSS:
        return -(-int(request[core.ENCODER_TOKENS]) // size)
    if kind == core.MAMBA_ALIGN:
        per_chunk = max(1 + int(plan.checkpoint_alignment[group] > 0), -(-(1 + plan.num_spec_tokens) // size))
        return 1 + plan.max_concurrent_batches * per_chunk + spec + int(plan.partial_hits)
    read = int(plan.kept_window[group])
    if kind == core.FULL:
        return -(-plan.max_model_len // size)
    if kind == core.RSWA:
        read += -(-int(request[core.PROMPT]) // size) * size
    return -(-(read + in_flight) // size) + 1 + spec
