"""The retention interval: which blocks of a window keep a key, and how a shared prefix earns one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.twin.ours import Ours, steps
from tests.twin.settings import Group, Settings, ask

SIBLINGS = [
    ask("a", 0, [(1, 16), (2, 5)], 2),
    ask("b", 100, [(1, 16), (3, 5)], 2),
    ask("c", 200, [(1, 16), (4, 5)], 2),
    ask("resent", 300, [(1, 16), (2, 5)], 2),
]


def settings(interval: int | None, window: int = 5) -> Settings:
    """Full attention and a window that looks back on one block of 4."""
    return Settings(groups=(Group(4), Group(4, window)), num_blocks=60, max_model_len=40, retention_interval=interval)


def hits(interval: int | None) -> list[list[Any]]:
    """Every admission: name and cached tokens."""
    return [hit for step in steps(Ours(settings(interval)).run(*SIBLINGS)) for hit in step["hits"]]


def test_dense_retention_hits_wherever_texts_part() -> None:
    assert hits(None) == [["a", 0], ["b", 16], ["c", 16], ["resent", 20]]


def test_retention_0_keeps_what_a_resend_needs_and_pins_a_junction_once_it_is_seen() -> None:
    """b shares 16 tokens that only full attention still knows: no hit, but its window now keeps the block before 16."""
    assert hits(0) == [["a", 0], ["b", 0], ["c", 16], ["resent", 20]]


def test_an_interval_keeps_the_tail_of_every_so_many_tokens() -> None:
    assert hits(8) == [["a", 0], ["b", 16], ["c", 16], ["resent", 20]]
    assert hits(12) == [["a", 0], ["b", 12], ["c", 16], ["resent", 20]]


def keyed_blocks(ours: Ours) -> list[int]:
    """Which blocks of a's window have a key, counted from 1."""
    keyed = ours.machine.state.pool.key[ours.tables()["a"][1]] != 0
    return [number for number, has_key in enumerate(keyed.tolist(), 1) if has_key]


@pytest.mark.parametrize(
    ("interval", "window", "kept"),
    [
        (None, 5, [1, 2, 3, 4, 5]),
        (0, 5, [5]),
        (8, 5, [2, 4, 5]),
        (12, 5, [3, 5]),
        (0, 6, [4, 5]),
        (12, 6, [2, 3, 4, 5]),
        (12, 12, [1, 2, 3, 4, 5]),
        (None, 1, []),
    ],
)
def test_blocks_of_a_window_that_get_a_key(interval: int | None, window: int, kept: list[int]) -> None:
    """Of a prompt of 21 tokens, five full blocks, the fifth ends where a resend would resume: at token 20."""
    ours = Ours(settings(interval, window))
    ours.submit([ask("a", 0, [(1, 21)], 2)])
    ours.advance()
    assert keyed_blocks(ours) == kept


@pytest.mark.parametrize(("prompt", "kept"), [(20, [4]), (21, [5]), (24, [5]), (4, []), (5, [1])])
def test_a_resend_is_cut_short_by_a_token_and_so_is_what_is_kept_for_it(prompt: int, kept: list[int]) -> None:
    """A resent prompt of 20 tokens may use 19 at most, so 16: block 4 is kept and block 5 is not."""
    ours = Ours(settings(0))
    ours.submit([ask("a", 0, [(1, prompt)], 2)])
    ours.advance()
    assert keyed_blocks(ours) == kept
