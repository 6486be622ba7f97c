"""Reset of the prefix cache: refused while blocks are in use, or with running requests taken off; literal steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.core.block_pool import take
from sim.core.make_state import make_pool
from sim.core.prefix_cache import insert, lookup
from sim.core.reset import clear
from sim.core.state import EVICTED_BLOCKS
from tests.core.layers_run import asked, full, run, steps

KEY = np.uint64(77)
ONCE = asked("a", [["x", 9]], 3)
AGAIN = asked("b", [["x", 9], ["y", 4]], 2, arrival_ns=20)


def log_of(requests: list[dict[str, Any]], **flags: Any) -> list[dict[str, Any]]:
    """The steps of a run."""
    return steps(run([full()], requests, **flags))


def test_an_idle_reset_forgets_everything() -> None:
    """Between the two requests: without it b hits 8 tokens, with it none."""
    assert log_of([ONCE, AGAIN])[3]["hits"] == [["b", 8]]
    after = log_of([ONCE, AGAIN], resets=[(10, False)])[3]
    assert (after["hits"], after["resets"]) == ([["b", 0]], [True])


def test_a_reset_is_refused_while_blocks_are_in_use() -> None:
    """a runs at 1 ns: nothing changes, and b hits what a left."""
    log = log_of([ONCE, AGAIN], resets=[(1, False)])
    assert log[1]["resets"] == [False]
    assert log[3]["hits"] == [["b", 8]]


def test_running_requests_give_their_blocks_back_and_come_back_in_order() -> None:
    """a and b are taken off before the third step, come back in the same step, and compute all they know again."""
    requests = [asked("a", [["x", 9]], 4), asked("b", [["y", 5]], 4)]
    third = log_of(requests, resets=[(2, True)])[2]
    assert third["scheduled"] == [["a", 11], ["b", 7]]
    assert third["hits"] == [["a", 0], ["b", 0]]
    assert (third["resets"], third["preempted"]) == ([True], [])


def test_what_is_in_flight_at_a_reset_is_thrown_away() -> None:
    """Async: the reset after the first step meets one output in flight; a gets its four tokens all the same, later."""
    plain = log_of([asked("a", [["x", 5]], 4)], async_scheduling=True)
    reset = log_of([asked("a", [["x", 5]], 4)], async_scheduling=True, resets=[(1, True)])
    assert [step["scheduled"][0][1] for step in plain] == [5, 1, 1, 1]
    assert [step["scheduled"][0][1] for step in reset] == [5, 1, 6, 1, 1]


def test_a_cleared_pool_keeps_the_order_of_its_free_queue() -> None:
    pool, cache = make_pool(5)
    block = take(pool, cache, 0)
    insert(pool, cache, KEY, block)
    assert not clear(pool, cache)
    assert lookup(cache, KEY) == block
    pool, cache = make_pool(5)
    insert(pool, cache, KEY, 3)
    assert clear(pool, cache)
    assert lookup(cache, KEY) == -1
    assert [take(pool, cache, 0) for _ in range(4)] == [1, 2, 3, 4]
    assert pool.counters[EVICTED_BLOCKS] == 0


def test_the_event_of_a_reset_comes_between_those_around_it() -> None:
    log = steps(run([full()], [ONCE, AGAIN], log_events=True, resets=[(10, False)]))
    types = [event["type"] for step in log for event in step["kv_events"]]
    assert types == ["BlockStored", "AllBlocksCleared", "BlockStored"]
