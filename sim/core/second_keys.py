"""Second keys of a block: a full block of attention may be found at a boundary inside it as well.

A block has one key of its own, the one that counts as *cached* and that decides where a freed block goes. When a prompt
ended inside it, it keeps the key of that boundary beside that of all its tokens:

    block 16, hash unit 4, prompt 10:   | 0 . . . 4 . . . 8 . . . 12 . . . |   own key at 16, second key at 8

A second key lies in a row of the pool of its own, behind those of the blocks; its REF names the block, its NEXT the
block's next second key. They go when the block is taken for something else or gets another key of its own.
vllm 0.33.0 v1/core/block_pool.py:171 (cached_block_hashes_by_block), :665 (_insert_block_hash).
"""

from __future__ import annotations

import numpy as np

from sim.core._jit import apart, i64
from sim.core.kv_events import forget
from sim.core.prefix_cache import insert
from sim.core.state import NEXT, NUM_BLOCKS, REF, SECOND_KEY, SPARE_KEY, UNUSED_KEY, Cache, Pool

NO_ROW = 0


@apart
def add_second_key(pool: Pool, cache: Cache, key: np.uint64, block: int) -> bool:
    """Let a block that has a key be found under another one too; False when it is already."""
    links = pool.links
    row = i64(links[block, SECOND_KEY])
    while row != NO_ROW:
        if pool.key[row] == key:
            return False
        row = i64(links[row, NEXT])
    row = i64(pool.counters[SPARE_KEY])
    if row != NO_ROW:
        pool.counters[SPARE_KEY] = links[row, NEXT]
    else:
        row = i64(pool.counters[UNUSED_KEY])
        pool.counters[UNUSED_KEY] += 1
    links[row, REF] = block
    links[row, NEXT] = links[block, SECOND_KEY]
    links[block, SECOND_KEY] = row
    insert(pool, cache, key, row)
    return True


@apart
def drop_second_keys(pool: Pool, cache: Cache, block: int) -> None:
    """Take all second keys off a block."""
    links = pool.links
    row = i64(links[block, SECOND_KEY])
    links[block, SECOND_KEY] = NO_ROW
    while row != NO_ROW:
        following = i64(links[row, NEXT])
        forget(pool, cache, row)
        links[row, NEXT] = pool.counters[SPARE_KEY]
        pool.counters[SPARE_KEY] = row
        row = following


@apart
def owner(pool: Pool, row: int) -> int:
    """The block that a row found in the cache stands for."""
    return i64(pool.links[row, REF]) if row >= pool.counters[NUM_BLOCKS] else row
