"""Prefix hits: how long, with which blocks, and what several groups agree on."""

from __future__ import annotations

from typing import Any

from tests.twin.ours import Ours, steps
from tests.twin.settings import Ask, Group, Settings, ask

FULL = Group(4)


def hits(settings: Settings, *asks: Ask) -> list[list[Any]]:
    """Every admission of a run: name and cached tokens."""
    return [hit for step in steps(Ours(settings).run(*asks)) for hit in step["hits"]]


def test_the_last_token_of_a_resent_prompt_is_computed_again() -> None:
    sizes = {8: 4, 9: 8, 10: 8}
    for tokens, expected in sizes.items():
        found = hits(Settings(), ask("a", 0, [(1, tokens)]), ask("b", 100, [(1, tokens)]))
        assert found == [["a", 0], ["b", expected]]


def test_a_hit_ends_where_the_texts_part() -> None:
    found = hits(Settings(), ask("a", 0, [(1, 12)]), ask("b", 100, [(1, 7), (2, 5)]), ask("c", 200, [(1, 8), (2, 5)]))
    assert found == [["a", 0], ["b", 4], ["c", 8]]


def test_outputs_are_cached_with_the_prompt() -> None:
    """The last output is never computed, so of 6 + 7 tokens three blocks are."""
    said = ((9, 7),)
    found = hits(Settings(), ask("a", 0, [(1, 6)], said=said), ask("b", 100, [(1, 6), (9, 7), (3, 4)]))
    assert found == [["a", 0], ["b", 12]]


def test_two_requests_of_one_step_share_what_the_first_is_about_to_compute() -> None:
    log = Ours(Settings()).run(ask("a", 0, [(1, 8)], 2), ask("b", 0, [(1, 8)], 2))
    assert steps(log)[0]["new_blocks"] == [["a", [[1, 2]]], ["b", [[1, 3]]]]
    assert steps(log)[0]["hits"] == [["a", 0], ["b", 4]]


def test_without_caching_there_is_no_hit_and_blocks_are_reused_at_once() -> None:
    log = Ours(Settings(enable_prefix_caching=False)).run(ask("a", 0, [(1, 8)], 2), ask("b", 100, [(1, 8)], 2))
    assert [step["hits"] for step in steps(log)] == [[["a", 0]], [], [["b", 0]], []]
    assert steps(log)[2]["new_blocks"] == [["b", [[3, 2]]]]


def test_a_salt_and_a_skipped_look_up_do_not_hit() -> None:
    found = hits(
        Settings(),
        ask("a", 0, [(1, 12)]),
        ask("salted", 100, [(1, 12)], salt=5),
        ask("skips", 200, [(1, 12)], skip_cache=True),
        ask("again", 300, [(1, 12)], salt=5),
    )
    assert found == [["a", 0], ["salted", 0], ["skips", 0], ["again", 8]]


def test_a_window_needs_only_the_blocks_it_looks_back_on() -> None:
    """Window 5 looks back 4 tokens: one block. Blocks 0 and 1 come back as null blocks, block 2 as a hit."""
    log = Ours(Settings(groups=(Group(4, 5),))).run(ask("a", 0, [(1, 13)]), ask("b", 100, [(1, 13)]))
    assert steps(log)[1]["hits"] == [["b", 12]]
    assert steps(log)[1]["new_blocks"] == [["b", [[0, 0, 3, 4]]]]


def test_a_window_finds_its_longest_prefix_from_the_right() -> None:
    """A shorter run than the window looks back on counts only at the start of the text."""
    wide = Settings(groups=(Group(4, 12),), num_blocks=30)
    found = hits(wide, ask("a", 0, [(1, 8)]), ask("b", 100, [(1, 40)]), ask("c", 200, [(1, 9)]))
    assert found == [["a", 0], ["b", 8], ["c", 8]]


def test_full_attention_is_shortened_to_what_the_window_still_has() -> None:
    """As the window moved on, its blocks 6 and 7 were freed long before those of full attention, and x took them."""
    ours = Ours(Settings(groups=(FULL, Group(4, 5)), num_blocks=13, max_model_len=28))
    ours.run(ask("a", 0, [(1, 13)], 12))
    assert ours.free_queue()[:6] == [6, 5, 7, 8, 11, 9]
    log = ours.run(ask("x", 200, [(2, 8)]), ask("b", 300, [(1, 13)]))
    assert steps(log)[0]["new_blocks"] == [["x", [[6, 5], [7, 8]]]]
    assert steps(log)[1]["hits"] == [["b", 0]]


def test_groups_with_one_spec_hit_together() -> None:
    """Two windows alike: a block counts when both have it."""
    log = Ours(Settings(groups=(Group(4, 6), Group(4, 6)), num_blocks=30)).run(
        ask("a", 0, [(1, 13)]), ask("b", 100, [(1, 13)])
    )
    assert steps(log)[1]["hits"] == [["b", 12]]
    assert steps(log)[1]["new_blocks"] == [["b", [[0, 2, 3, 8], [0, 6, 7, 4]]]]


def test_hits_end_on_multiples_of_all_block_sizes() -> None:
    """Blocks of 4 and of 6 meet every 12 tokens."""
    mixed = Settings(groups=(Group(4), Group(6)), num_blocks=40)
    found = hits(mixed, ask("a", 0, [(1, 30)]), ask("b", 100, [(1, 30)]), ask("c", 200, [(1, 23)]))
    assert found == [["a", 0], ["b", 24], ["c", 12]]
