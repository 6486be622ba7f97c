"""Preemption: who gives way, what is freed, how a request comes back."""

from __future__ import annotations

from dataclasses import replace

from tests.twin.ours import Ours, steps
from tests.twin.settings import Settings, ask

TIGHT = Settings(num_blocks=7, max_model_len=20)
BY_PRIORITY = replace(TIGHT, priority_policy=True)
AHEAD = replace(TIGHT, async_scheduling=True)


def test_the_last_to_come_gives_way_and_comes_back_to_its_own_blocks() -> None:
    """a takes b's unkeyed block 6; b's keyed ones stay and are hit when a is gone: 13 tokens known, 8 cached."""
    ours = Ours(TIGHT)
    log = steps(ours.run(ask("a", 0, [(1, 8)], 8), ask("b", 0, [(2, 8)], 8)))
    assert [step["preempted"] for step in log] == [[]] * 5 + [["b"]] + [[]] * 5
    assert log[5]["scheduled"] == [["a", 1]]
    assert log[5]["new_blocks"] == [["a", [[6]]]]
    assert log[8]["hits"] == [["b", 8]]
    assert log[8]["scheduled"] == [["b", 5]]
    assert log[8]["new_blocks"] == [["b", [[3, 4, 6, 5]]]]
    assert [(end["name"], end["preemptions"], end["outputs"]) for end in ours.finished] == [("a", 0, 8), ("b", 1, 8)]


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    """c is more urgent than b and would fit into what b leaves behind in step 6, but has to wait for step 7."""
    ours = Ours(BY_PRIORITY)
    asks = ask("a", 0, [(1, 8)], 8), ask("b", 0, [(2, 8)], 8, priority=2), ask("c", 45, [(3, 4)], 1, priority=1)
    log = steps(ours.run(*asks))
    assert (log[5]["preempted"], log[5]["hits"], log[5]["free_blocks"]) == (["b"], [], 2)
    assert log[6]["hits"] == [["c", 0]]


def test_with_priorities_the_least_urgent_one_preempts_itself() -> None:
    """a, first in the running list, needs a block that is not there: it is the one to go, and b after it still runs."""
    ours = Ours(BY_PRIORITY)
    log = steps(ours.run(ask("a", 0, [(1, 8)], 8, priority=1), ask("b", 1, [(2, 8)], 8, priority=0)))
    assert (log[5]["preempted"], log[5]["scheduled"], log[5]["free_blocks"]) == (["a"], [["b", 1]], 3)


def test_of_equally_urgent_ones_the_latest_to_arrive_goes() -> None:
    ours = Ours(BY_PRIORITY)
    log = steps(ours.run(ask("a", 1, [(1, 8)], 8), ask("b", 0, [(2, 8)], 8)))
    assert [step["preempted"] for step in log if step["preempted"]] == [["a"]]


def test_a_victim_already_in_the_batch_gives_its_tokens_back() -> None:
    """Running order low, high. In step 3 low gets a token, then high finds no block and takes low's out again."""
    ours = Ours(Settings(num_blocks=5, max_model_len=16, priority_policy=True))
    log = steps(ours.run(ask("low", 0, [(1, 5)], 8, priority=2), ask("high", 1, [(2, 7)], 6, priority=1)))
    preempting = next(step for step in log if step["preempted"])
    assert (preempting["preempted"], preempting["scheduled"]) == (["low"], [["high", 1]])
    assert [step["step"] for step in log] == list(range(1, len(log) + 1))


def test_who_has_stale_outputs_in_flight_waits_for_them() -> None:
    """Three stages. Of equals the first in the running list is preempted: a, with its first two outputs in flight.

    There would be room for it in step 5, but both outputs come back first, and with the second one it is done.
    """
    settings = Settings(
        num_blocks=8,
        max_model_len=20,
        max_num_batched_tokens=15,
        priority_policy=True,
        async_scheduling=True,
        pipeline_parallel_size=3,
    )
    ours = Ours(settings)
    log = ours.run(ask("a", 0, [(1, 12)], 2, max_tokens=7), ask("b", 0, [(2, 12)], 1, max_tokens=6))
    assert [(step["scheduled"], step["preempted"]) for step in steps(log)] == [
        ([["a", 12], ["b", 3]], []),
        ([["b", 9]], []),
        ([["a", 1]], []),
        ([["b", 1]], ["a"]),
    ]
    assert [entry for entry in log if "finished" in entry] == [
        {"finished": "b", "tables": [[4, 5, 6, 7]]},
        {"finished": "a", "tables": [[]]},
    ]
    assert [(end["name"], end["outputs"], end["reason"]) for end in ours.finished] == [
        ("b", 1, "stop"),
        ("a", 2, "stop"),
    ]


def test_stale_outputs_are_delivered_and_the_request_waits_for_them() -> None:
    """Async: b is preempted with a token in flight; the token still counts, and only then b may come back."""
    ours = Ours(AHEAD)
    log = steps(ours.run(ask("a", 0, [(1, 8)], 8), ask("b", 0, [(2, 8)], 8)))
    preempted_at = next(step["step"] for step in log if step["preempted"])
    returned = next(step for step in log if step["step"] > preempted_at and step["hits"])
    assert returned["hits"] == [["b", 8]]
    assert returned["scheduled"] == [["b", 5]]
    assert [end["outputs"] for end in ours.finished] == [8, 8]


def test_a_stale_output_may_end_a_waiting_request() -> None:
    """b's last token is in flight when it is preempted: it ends while it waits, without blocks."""
    ours = Ours(AHEAD)
    log = ours.run(ask("a", 0, [(1, 8)], 8), ask("b", 0, [(2, 8)], 5, max_tokens=9))
    ended = next(entry for entry in log if entry.get("finished") == "b")
    assert ended["tables"] == [[]]
    assert [(end["name"], end["reason"]) for end in ours.finished] == [("b", "stop"), ("a", "length")]
