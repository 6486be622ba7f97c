"""Hits that end inside a block: copies, the tail a request makes for others, what an admission counts, second keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.core.block_pool import release, take
from sim.core.hashing import NO_KEY
from sim.core.make_state import make_pool
from sim.core.prefix_cache import insert, lookup
from sim.core.second_keys import add_second_key, owner
from sim.core.state import EVICTED_BLOCKS
from sim.specs import Spec
from tests.core.layers_run import asked, full, run, state, steps

LAYERS: list[Spec] = [full(), state("align")]
"""Blocks of 4; group 0 is full attention, group 1 keeps states."""


def log_of(*requests: dict[str, Any], **flags: Any) -> list[dict[str, Any]]:
    """The steps of a run whose hits end at multiples of 2."""
    return steps(run(LAYERS, list(requests), prefix_match_unit=2, **flags))


def test_the_tail_of_a_prompt_is_kept_and_its_state_moves_to_a_copy() -> None:
    """12 tokens: 8, then 2 up to the last unit, kept in block 5; the next chunk writes on in 5, and 6 has the key."""
    log = log_of(asked("a", [["x", 12]], 2))
    assert [step["scheduled"][0][1] for step in log] == [8, 2, 2, 1]
    assert [step["tables"][0][1] for step in log] == [[0, 3], [0, 3, 5], [0, 0, 5], [0, 0, 5, 8]]
    assert [step.get("copies") for step in log] == [None, None, [[5, 6]], None]


def test_a_hit_inside_a_block_gets_copies_of_both_blocks() -> None:
    """b goes on at 10 of 12 tokens, in copies of blocks 4 and 6; its own tail, at 14 of 15, needs a copy later."""
    log = log_of(asked("a", [["x", 12]], 5), asked("b", [["x", 12], ["y", 3]], 2, arrival_ns=20))
    assert log[7]["hits"] == [["b", 10]]
    assert log[7]["copies"] == [[4, 8], [6, 5]]
    assert log[7]["tables"] == [[[1, 2, 8], [0, 0, 5]]]
    assert [step["scheduled"][0][1] for step in log[7:]] == [2, 2, 1, 1]
    assert log[9]["copies"] == [[10, 11]]


def test_without_a_match_unit_the_same_requests_share_whole_blocks_only() -> None:
    log = steps(run(LAYERS, [asked("a", [["x", 12]], 5), asked("b", [["x", 12], ["y", 3]], 2, arrival_ns=20)]))
    assert [hit for step in log for hit in step["hits"]] == [["a", 0], ["b", 8]]
    assert not any("copies" in step for step in log)


def test_neither_a_state_nor_a_copy_of_this_step_is_hit() -> None:
    """b could go on at 8, at 10, then at 10 in the copy; each is made in the very step that asks, until the fourth."""
    log = log_of(asked("a", [["x", 12]], 3), asked("b", [["x", 12]], 3))
    assert [step["hits"] for step in log[:4]] == [[["a", 0]], [], [], [["b", 10]]]
    assert log[2]["copies"] == [[5, 6]]
    assert log[3]["copies"] == [[4, 9], [6, 10]]


def test_an_admission_counts_a_block_more_for_each_copy() -> None:
    """b resends 7 tokens and hits 6: a copy of full attention's block in use, one of a free state, which leaves too."""
    requests = (asked("a", [["x", 7]], 9), asked("b", [["x", 7]], 1, arrival_ns=5))
    roomy, short = (log_of(*requests, max_model_len=16, num_blocks=number) for number in (8, 7))
    assert [log[4]["free_blocks"] for log in (roomy, short)] == [2, 1]
    assert roomy[5]["hits"] == [["b", 6]]  # a lets its old state go first: 3 free, 3 taken, 1 source let go
    assert roomy[5]["copies"] == [[3, 4], [5, 2]]
    assert roomy[5]["free_blocks"] == 1
    assert short[5]["hits"] == []


def test_a_tail_is_found_in_a_block_that_has_become_full() -> None:
    """a has filled block 3 with outputs by step 4; at step 6 b hits the 6 tokens of the prompt in it."""
    log = log_of(asked("a", [["x", 7]], 9), asked("b", [["x", 7]], 1, arrival_ns=5), max_model_len=16)
    assert log[5]["hits"] == [["b", 6]]
    assert log[5]["copies"][0][0] == log[1]["new_blocks"][0][1][0][0] == 3


def test_a_block_answers_to_all_its_keys_until_it_is_taken() -> None:
    pool, cache = make_pool(4, 6)
    block = take(pool, cache, 0)
    keys = [np.uint64(key) for key in (11, 22, 33)]
    insert(pool, cache, keys[0], block)
    for key in (*keys[1:], keys[1]):
        add_second_key(pool, cache, key, block)
    assert [owner(pool, lookup(cache, key)) for key in keys] == [block] * 3
    release(pool, block, pool.links.shape[0] - 1)
    assert [take(pool, cache, 0) for _ in range(3)] == [2, 3, block]
    assert [lookup(cache, key) for key in keys] == [-1] * 3
    assert pool.counters[EVICTED_BLOCKS] == 1
    assert (pool.key == NO_KEY).all()


def test_rows_of_second_keys_are_used_again() -> None:
    pool, cache = make_pool(3, 2)
    for turn in range(4):
        block = take(pool, cache, 0)
        insert(pool, cache, np.uint64(100 + turn), block)
        for key in (1, 2):
            add_second_key(pool, cache, np.uint64(10 * turn + key), block)
        release(pool, block, pool.links.shape[0] - 1)
        take(pool, cache, 0)
        take(pool, cache, 0)
        for taken in (1, 2):
            release(pool, taken, pool.links.shape[0] - 1)
    assert (pool.key == NO_KEY).all()
