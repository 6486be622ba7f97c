"""Who is let in, with how many tokens, and who has to wait at the head of the queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.twin.ours import Ours, steps
from tests.twin.settings import Ask, Group, Settings, ask


def scheduled(settings: Settings, *asks: Ask) -> list[list[list[Any]]]:
    """What every step of a run schedules."""
    return [step["scheduled"] for step in steps(Ours(settings).run(*asks))]


def test_running_requests_come_first_then_waiting_ones_in_order() -> None:
    found = scheduled(
        Settings(max_num_seqs=2), ask("a", 0, [(1, 4)], 2), ask("b", 0, [(2, 4)], 1), ask("c", 0, [(3, 4)], 1)
    )
    assert found == [[["a", 4], ["b", 4]], [["a", 1], ["c", 4]]]


def test_a_prompt_is_cut_to_what_is_left_of_the_budget() -> None:
    found = scheduled(
        Settings(max_num_batched_tokens=12, max_model_len=12),
        ask("a", 0, [(1, 8)], 2),
        ask("b", 0, [(2, 8)], 2),
        ask("c", 0, [(3, 2)], 1),
    )
    assert found == [[["a", 8], ["b", 4]], [["a", 1], ["b", 4], ["c", 2]], [["b", 1]]]


def test_without_chunked_prefill_a_prompt_waits_for_a_step_with_room_and_nobody_overtakes_it() -> None:
    found = scheduled(
        Settings(max_num_batched_tokens=12, max_model_len=12, enable_chunked_prefill=False),
        ask("a", 0, [(1, 8)], 2),
        ask("b", 0, [(2, 8)], 2),
        ask("c", 0, [(3, 2)], 1),
    )
    assert found == [[["a", 8]], [["a", 1], ["b", 8], ["c", 2]], [["b", 1]]]


def test_long_prefills_are_cut_unless_the_request_is_alone() -> None:
    found = scheduled(
        Settings(long_prefill_token_threshold=5),
        ask("a", 0, [(1, 12)], 2),
        ask("b", 0, [(2, 4)], 2),
        ask("alone", 40, [(3, 12)], 1),
    )
    assert found == [[["a", 5], ["b", 4]], [["a", 5], ["b", 1]], [["a", 2]], [["a", 1]], [["alone", 12]]]


def test_a_whole_prompt_is_reserved_at_admission() -> None:
    """Pool of 6: while a grows to 4 blocks, b's 4 blocks do not fit; without the reservation its first chunk would."""
    small = Settings(num_blocks=7, max_model_len=24, max_num_batched_tokens=8)
    asks = ask("a", 0, [(1, 12)], 2), ask("b", 0, [(2, 16)], 1)
    assert scheduled(small, *asks) == [[["a", 8]], [["a", 4]], [["a", 1]], [["b", 8]], [["b", 8]]]
    without = scheduled(replace(small, scheduler_reserve_full_isl=False), *asks)
    assert without == [[["a", 8]], [["a", 4], ["b", 4]], [["a", 1]], [["b", 8]], [["b", 4]]]


def test_a_window_reserves_no_more_than_it_can_hold() -> None:
    """40 tokens are ten blocks; window 5 and 8 tokens in flight never hold more than 4, so a pool of 4 will do."""
    ours = Ours(Settings(groups=(Group(4, 5),), num_blocks=5, max_num_batched_tokens=8))
    log = ours.run(ask("a", 0, [(1, 40)], 2))
    assert [step["free_blocks"] for step in steps(log)] == [2, 1, 1, 1, 1, 2]
    assert ours.finished[0]["outputs"] == 2


def test_the_watermark_holds_while_others_run() -> None:
    """A free pool of 3 after a and b: c needs 1, but 3 are to stay free until they are gone."""
    settings = Settings(num_blocks=9, max_model_len=32, watermark_blocks=3)
    found = scheduled(settings, ask("a", 0, [(1, 8)], 2), ask("b", 0, [(2, 12)], 2), ask("c", 0, [(3, 4)], 1))
    assert found == [[["a", 8], ["b", 12]], [["a", 1], ["b", 1]], [["c", 4]]]


def test_the_watermark_does_not_keep_out_the_only_request() -> None:
    assert scheduled(Settings(num_blocks=5, watermark_blocks=4), ask("a", 0, [(1, 16)], 1)) == [[["a", 16]]]


def test_a_hit_in_the_free_queue_takes_up_free_blocks() -> None:
    """b needs 4 blocks of which 2 are cached but free: with x holding 2 of 6 it fits, holding 3 it does not."""
    for blocks, expected in ((2, [["b", 8]]), (3, [])):
        ours = Ours(Settings(num_blocks=7, max_model_len=24))
        log = ours.run(ask("a", 0, [(1, 9)]), ask("x", 100, [(2, 4 * blocks - 1)], 2), ask("b", 105, [(1, 9), (3, 7)]))
        assert steps(log)[2]["hits"] == expected


def test_a_refused_request_is_looked_up_again_as_its_prefix_grows() -> None:
    """b waits until a has computed what they share: 5 blocks of its 6 are then in use, and one is free."""
    ours = Ours(Settings(num_blocks=8, max_model_len=28, max_num_batched_tokens=6, max_num_seqs=2))
    log = steps(ours.run(ask("a", 0, [(1, 21)], 4), ask("b", 0, [(1, 21), (2, 2)], 1)))
    admitted = next(step for step in log if step["hits"] and step["hits"][0][0] == "b")
    assert (admitted["step"], admitted["hits"]) == (4, [["b", 20]])


def test_a_look_up_of_another_request_does_not_hide_a_longer_hit() -> None:
    """A was refused with the first 8 tokens cached; before it is asked again C fills block 2 and B is looked up.

    vLLM 0.33.0 admits A in step 4 with 12 cached tokens.
    """
    ours = Ours(Settings(num_blocks=14, max_model_len=52, long_prefill_token_threshold=3, priority_policy=True))
    log = steps(
        ours.run(
            ask("C", 0, [(1, 24)], 4),
            ask("D", 0, [(2, 8)], 1),
            ask("A", 20, [(1, 20), (3, 28)], 2, priority=1),
            ask("B", 30, [(4, 8)], 4),
        )
    )
    assert [step["hits"] for step in log[:4]] == [[["C", 0], ["D", 0]], [], [], [["B", 0], ["A", 12]]]
    assert log[3]["scheduled"] == [["C", 3], ["B", 3], ["A", 3]]
