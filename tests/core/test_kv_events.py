"""KV cache events: who is stored, removed and cleared, in vLLM's order, with the group; literal logs."""

from __future__ import annotations

from typing import Any

import pytest

from sim.kv_events import KVEvents
from sim.specs import FullAttentionSpec, SlidingWindowSpec
from tests.core.layers_run import asked, full, machine_of, planned, run, state, steps

WINDOW = SlidingWindowSpec(4, 1, 8, "bfloat16", sliding_window=6)


def events_of(layers: list[Any], requests: list[dict[str, Any]], **flags: Any) -> list[list[dict[str, Any]]]:
    """The events of each step."""
    return [step["kv_events"] for step in steps(run(layers, requests, log_events=True, **flags))]


def brief(event: dict[str, Any]) -> tuple[Any, ...]:
    """An event without its hashes."""
    if event["type"] == "AllBlocksCleared":
        return ("cleared",)
    if event["type"] == "BlockRemoved":
        return ("removed", event["group_idx"])
    return ("stored", event["group_idx"], len(event["block_hashes"]), event["tokens"], event["request"])


def test_full_blocks_are_stored_with_what_precedes_them() -> None:
    """9 tokens are two blocks; with the 12th token the third is full, and names the second as its parent."""
    log = events_of([full()], [asked("a", [["x", 9]], 5)])
    (first,), *middle, (later,) = [events for events in log if events]
    assert not middle
    assert brief(first) == ("stored", 0, 2, [0, 8], "a")
    assert brief(later) == ("stored", 0, 1, [8, 12], "a")
    assert (first["parent_block_hash"], later["parent_block_hash"]) == (None, first["block_hashes"][1])
    assert (first["kv_cache_spec_kind"], first["block_size"]) == ("full_attention", 4)


def test_groups_report_one_after_the_other_and_what_is_not_worth_a_key_as_empty() -> None:
    """Window 6, retention 0: of the three blocks of 13 tokens only the two before token 12 can be hit."""
    (events, *_) = events_of([full(), WINDOW], [asked("a", [["x", 13]], 2)])
    assert [brief(event) for event in events] == [("stored", 0, 3, [0, 12], "a"), ("stored", 1, 2, [0, 12], "a")]
    assert events[1]["block_hashes"] == events[0]["block_hashes"][1:]
    assert events[1]["kv_cache_spec_sliding_window"] == 6
    (events, *_) = events_of([full(), WINDOW], [asked("a", [["x", 13]], 2)], max_num_batched_tokens=8)
    assert [brief(event)[:3] for event in events] == [("stored", 0, 2), ("stored", 1, 1)]


def test_a_block_that_is_taken_is_removed_from_its_group_first() -> None:
    """Pool of 4: b takes a's two cached blocks, the one freed first going first, then stores its own."""
    log = events_of(
        [full()], [asked("a", [["x", 9]], 1), asked("b", [["y", 13]], 1, 9)], num_blocks=5, max_model_len=16
    )
    stored = log[0][0]["block_hashes"]
    assert [brief(event) for event in log[1]] == [("removed", 0), ("removed", 0), ("stored", 0, 3, [0, 12], "b")]
    assert [event["block_hashes"] for event in log[1][:2]] == [[stored[1]], [stored[0]]]


def test_a_hit_is_no_event() -> None:
    """b finds both blocks of a and stores only what it adds."""
    log = events_of([full()], [asked("a", [["x", 9]], 1), asked("b", [["x", 9], ["y", 4]], 1, 9)])
    assert [brief(event) for event in log[1]] == [("stored", 0, 1, [8, 12], "b")]
    assert log[1][0]["parent_block_hash"] == log[0][0]["block_hashes"][1]


def test_two_blocks_of_one_content_are_removed_one_by_one() -> None:
    """b does not look: its block is stored under the hash of a's; both go when needed, each with an event."""
    twins = [asked("a", [["x", 5]], 1), asked("b", [["x", 5]], 1) | {"skip_cache": True}]
    log = events_of([full()], [*twins, asked("c", [["y", 15]], 1, 9)], num_blocks=5, max_model_len=16)
    assert log[0][0]["block_hashes"] == log[0][1]["block_hashes"]
    removed = [event["block_hashes"] for event in log[1] if event["type"] == "BlockRemoved"]
    assert removed == [log[0][0]["block_hashes"]] * 2


def test_states_report_their_checkpoint_in_hash_units() -> None:
    """14 tokens in one chunk: the state at 12 is exported into a block of its own."""
    states = state("align", num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)
    (events, *_) = events_of([full(), states], [asked("a", [["x", 14]], 2)])
    assert [brief(event) for event in events] == [
        ("stored", 0, 3, [0, 12], "a"),
        ("stored", 1, 1, [0, 12], "a"),
    ]
    assert events[1]["block_hashes"] == events[0]["block_hashes"][2:]


def test_the_tail_inside_a_larger_block_is_stored_where_nobody_looks() -> None:
    """Blocks of 8 beside blocks of 4, 15 tokens: vLLM keys token 12 in group 0 too, although hits end at eights."""
    wide = FullAttentionSpec(8, 1, 4, "bfloat16")
    log = events_of([wide, full()], [asked("a", [["x", 15]], 2)], kv_cache_layout="BLHNC")
    events = [event for events in log for event in events]
    tails = [event for event in events if event["block_size"] == 4 and event["group_idx"] == 0]
    assert [brief(event) for event in tails] == [("stored", 0, 1, [8, 12], "a")]


def test_without_a_log_nothing_is_kept_and_nothing_changes() -> None:
    """The same steps, tables and free counts with the log and without."""
    requests = [asked("a", [["x", 9]], 6), asked("b", [["x", 9], ["y", 4]], 6, 3)]
    plain, logged = (steps(run([full(), WINDOW], requests, log_events=log)) for log in (False, True))
    assert any(step["kv_events"] for step in logged)
    assert not any(step["kv_events"] for step in plain)
    assert [step | {"kv_events": None} for step in plain] == [step | {"kv_events": None} for step in logged]


def test_a_log_that_ran_over_says_so() -> None:
    machine = machine_of([full()], log_events=True)
    machine.state.pool.counters[-1] = machine.state.pool.events.shape[0] + 1
    with pytest.raises(AssertionError, match="KV cache events in one step, room for"):
        list(KVEvents(str, planned([full()])[0].groups).entries(machine))
