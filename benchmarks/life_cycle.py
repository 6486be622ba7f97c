"""A block's life cycle, compiled: taken from the free queue, its old key evicted, a new key inserted, freed.

    python -m benchmarks.life_cycle [--blocks 12000] [--rounds 3000]

Two hundred blocks at a time, as a request of 3,200 tokens takes them; every block taken carries a key. Prints the
nanoseconds per block, best of seven.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from sim.core import block_pool, prefix_cache
from sim.core._jit import compiled, i64
from sim.core.hashing import Spans, block_key, mix, prefix_name
from sim.core.make_state import make_pool
from sim.core.state import Cache, Int32s, Pool

BLOCK_SIZE, BLOCKS_AT_A_TIME = 16, 200
take_run, release_run, insert = block_pool.take_run, block_pool.release_run, prefix_cache.insert


def _life_cycles(pool: Pool, cache: Cache, spans: Spans, entries: Int32s, rounds: int, first: int) -> None:
    """So many rounds of every entry's block; texts differ from round to round."""
    for i in range(rounds):
        take_run(pool, cache, entries, 0, entries.size, 0)
        spans.base[0] = mix(np.uint64(first + i))
        for j in range(entries.size):
            name = prefix_name(spans, 0, (j + 1) * BLOCK_SIZE)
            insert(pool, cache, block_key(name, np.uint64(0)), i64(entries[j]))
        release_run(pool, entries, 0, entries.size)


life_cycles = compiled(_life_cycles)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3_000)
    options = parser.parse_args()
    pool, cache = make_pool(options.blocks)
    spans = Spans(np.zeros(1, np.uint64), np.array([[0, 1 << 40]]))
    entries = np.zeros(BLOCKS_AT_A_TIME, np.int32)
    life_cycles(pool, cache, spans, entries, options.blocks // BLOCKS_AT_A_TIME + 1, 0)
    best = float("inf")
    for turn in range(1, 8):
        began = time.perf_counter()
        life_cycles(pool, cache, spans, entries, options.rounds, turn * options.rounds)
        best = min(best, time.perf_counter() - began)
    print(
        f"{best / options.rounds / BLOCKS_AT_A_TIME * 1e9:.1f} ns per life cycle in a pool of {options.blocks:,} blocks"
    )


if __name__ == "__main__":
    main()
