"""A simulator with a fault, checked: run as a script, it prints the claims that the check refutes.

    NUMBA_DISABLE_JIT=1 python -m tests.gpu_check.cases_mutated FAULT

Without compilation the core's functions are plain Python, and a fault is a function in another's place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from gpu_check.content.check import check_content
from sim.core import block_pool, full, kv_cache_manager, prefix_cache, tables
from sim.core.block_pool import touch
from tests.gpu_check.cases import CPU, case_of, refuted, small_workload


def nothing() -> None:
    """No fault at all: the check must confirm."""


def frees_a_block_too_early() -> None:
    """Windows give a block back when the token after next would no longer read it."""
    free_skipped = tables.free_skipped

    def early(plan: Any, pool: Any, own: Any, row: int, processed: int, prompt: int) -> None:
        free_skipped(plan, pool, own, row, processed + 16, prompt)

    vars(kv_cache_manager)["free_skipped"] = early


def shares_a_block_between_groups() -> None:
    """Now and then the second group gets the block that the first one has just taken."""
    take_run = block_pool.take_run
    last = [0]

    def shared(pool: Any, cache: Any, entries: Any, first: int, end: int, group: int) -> None:
        take_run(pool, cache, entries, first, end, group)
        if group == 0 and end > first:
            last[0] = int(entries[end - 1])
        elif group == 1 and end > first and last[0]:
            touch(pool, last[0])
            entries[end - 1] = last[0]

    vars(tables)["take_run"] = shared


def hits_with_a_wrong_block() -> None:
    """Full attention finds the block that the look-up before found."""
    lookup = prefix_cache.lookup
    found = [-1]

    def wrong(cache: Any, key: Any) -> int:
        block = int(lookup(cache, key))
        before, found[0] = found[0], block
        return before if block >= 0 and before >= 0 else block

    vars(full)["lookup"] = wrong


def takes_a_block_that_is_in_use() -> None:
    """A new block for the first group is the one its request began with."""
    take_run = block_pool.take_run

    def again(pool: Any, cache: Any, entries: Any, first: int, end: int, group: int) -> None:
        take_run(pool, cache, entries, first, end, group)
        if group == 0 and end > first > 3:
            touch(pool, int(entries[0]))
            entries[end - 1] = entries[0]

    vars(tables)["take_run"] = again


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        nothing,
        frees_a_block_too_early,
        shares_a_block_between_groups,
        hits_with_a_wrong_block,
        takes_a_block_that_is_in_use,
    )
}


def main(fault: str) -> None:
    """Check a small case with this fault and print what is refuted."""
    FAULTS[fault]()
    caching = fault not in ("nothing", "frees_a_block_too_early")
    engine = {"max_model_len": 512, "max_num_batched_tokens": 128, "max_num_seqs": 4, "enable_prefix_caching": caching}
    case = case_of("gpt-oss-20b", 200, engine=engine, workload=small_workload(6, 160, 24))
    found = refuted(check_content(case, CPU))
    print(json.dumps([[claim.claim, claim.note] for claim in found]))


if __name__ == "__main__":
    main(sys.argv[1])
