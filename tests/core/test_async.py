"""Async scheduling and pipeline stages: batches run ahead of their outputs."""

from __future__ import annotations

from tests.twin.ours import Ours, steps
from tests.twin.settings import Settings, ask


def test_an_end_of_sequence_costs_a_step_that_was_scheduled_ahead() -> None:
    """a says its last token in step 2, but step 3 was scheduled before that was known."""
    asks = ask("a", 0, [(1, 4)], 2, max_tokens=9), ask("b", 0, [(2, 4)], 3)
    ahead = Ours(Settings(async_scheduling=True)).run(*asks)
    assert [step["scheduled"] for step in steps(ahead)] == [
        [["a", 4], ["b", 4]],
        [["a", 1], ["b", 1]],
        [["a", 1], ["b", 1]],
    ]
    behind = Ours(Settings()).run(*asks)
    assert [step["scheduled"] for step in steps(behind)] == [[["a", 4], ["b", 4]], [["a", 1], ["b", 1]], [["b", 1]]]


def test_max_tokens_is_known_ahead_and_costs_nothing() -> None:
    log = steps(Ours(Settings(async_scheduling=True)).run(ask("a", 0, [(1, 4)], 2)))
    assert [step["scheduled"] for step in log] == [[["a", 4]], [["a", 1]]]


def test_an_arrival_enters_a_step_later_than_without() -> None:
    """b comes at 10, when step 2 is scheduled or, with async scheduling, already under way."""
    asks = ask("a", 0, [(1, 4)], 4), ask("b", 10, [(2, 4)], 1)
    first_of_b = {
        ahead: next(
            s["step"] for s in steps(Ours(Settings(async_scheduling=ahead)).run(*asks)) if s["hits"] == [["b", 0]]
        )
        for ahead in (False, True)
    }
    assert first_of_b == {False: 2, True: 3}


def test_a_block_of_outputs_is_cached_when_they_are_known() -> None:
    """Step 5 fills a block with outputs 1 to 4; with async scheduling output 4 is not known before step 6."""
    keyed: dict[bool, list[int]] = {}
    for ahead in (False, True):
        ours = Ours(Settings(async_scheduling=ahead))
        ours.submit([ask("a", 0, [(1, 4)], 8)])
        keyed[ahead] = []
        while ours.advance()[0] == "stepped":
            keyed[ahead].append(int((ours.machine.state.pool.key != 0).sum()))
    assert keyed == {False: [1, 1, 1, 1, 2, 2, 2, 2], True: [1, 1, 1, 1, 1, 2, 2, 2]}


def test_pipeline_stages_hold_a_batch_each() -> None:
    """Two stages: the second batch starts while the first is under way, with whoever waits for no token."""
    ours = Ours(Settings(pipeline_parallel_size=2))
    log = steps(ours.run(ask("a", 0, [(1, 4)], 3), ask("c", 0, [(3, 9)], 2), ask("d", 0, [(4, 60)], 1)))
    assert log[0]["scheduled"] == [["a", 4], ["c", 9], ["d", 51]]
    assert log[1]["scheduled"] == [["d", 9]]
    assert log[2]["scheduled"] == [["a", 1], ["c", 1]]
    assert [(end["name"], end["finish_ns"]) for end in ours.finished] == [("d", 15), ("c", 20), ("a", 30)]


def test_with_stages_and_async_scheduling_a_request_decodes_every_so_many_calls() -> None:
    """Two stages: a decodes in calls 1, 3, 5, each a whole step after the token it takes in; c in between."""
    ours = Ours(Settings(pipeline_parallel_size=2, async_scheduling=True))
    log = steps(ours.run(ask("a", 0, [(1, 4)], 3), ask("c", 5, [(3, 4)], 2)))
    assert [step["scheduled"] for step in log] == [[["a", 4]], [["a", 1]], [["c", 4]], [["a", 1]], [["c", 1]]]
    assert [(end["name"], end["first_token_ns"], end["finish_ns"]) for end in ours.finished] == [
        ("a", 10, 30),
        ("c", 25, 35),
    ]
