"""EAGLE and MTP beside the prefix cache: keys that look ahead, the dropped block and its margin, several modules."""

from __future__ import annotations

from typing import Any

import pytest

from sim.specs import FullAttentionSpec, SlidingWindowSpec, Spec
from tests.core.layers_run import BLOCK, asked, full, run, steps

EAGLE: dict[str, Any] = {"speculative_method": "eagle", "num_speculative_tokens": 2, "acceptance_rate": 0}
DROP: dict[str, Any] = {**EAGLE, "disable_lookahead_block_hashes": True}
MTP: dict[str, Any] = {"speculative_method": "mtp", "num_speculative_tokens": 3, "num_mtp_modules": 3}


def draft() -> FullAttentionSpec:
    """A layer of the draft model."""
    return FullAttentionSpec(BLOCK, 1, 8, "bfloat16", is_draft=True)


def window(tokens: int, **fields: Any) -> SlidingWindowSpec:
    """A layer with a window whose page has 128 bytes."""
    return SlidingWindowSpec(BLOCK, 1, 8, "bfloat16", sliding_window=tokens, **fields)


def hit(layers: list[Spec], first: list[list[Any]], second: list[list[Any]], **flags: Any) -> int:
    """Tokens the second prompt hits after the first has been computed."""
    log = run(layers, [asked("a", first, 1), asked("b", second, 1, arrival_ns=100)], **flags)
    return int(next(hits for step in steps(log) for name, hits in step["hits"] if name == "b"))


SAME_9, SAME_8 = [["x", 8], ["y", 1], ["z", 3]], [["x", 8], ["w", 4]]
PROMPT = [["x", 8], ["y", 4]]


@pytest.mark.parametrize(("flags", "nine", "eight"), [({}, 8, 8), (EAGLE, 8, 4), (DROP, 4, 4)])
def test_a_block_counts_where_the_token_after_it_is_known(flags: dict[str, Any], nine: int, eight: int) -> None:
    """Two blocks are shared. A key that looks ahead tells whether token 8 is too; a dropped block never asks."""
    assert (hit([full()], PROMPT, SAME_9, **flags), hit([full()], PROMPT, SAME_8, **flags)) == (nine, eight)


@pytest.mark.parametrize(("layers", "resent"), [([full()], 4), ([full(), window(5), draft()], 8)])
def test_a_group_among_others_may_match_a_block_more_than_it_keeps(layers: list[Spec], resent: int) -> None:
    """Of 12 tokens 11 may hit: two blocks. A single group drops one of them; beside others the third may prove both.

    With one layer the group is the draft's too, as no layer is known to be.
    """
    dense = {**DROP, "prefix_cache_retention_interval": None}
    assert hit(layers, PROMPT, PROMPT, **dense) == resent


def test_only_groups_with_draft_layers_drop() -> None:
    """A window of the draft drops its block, and full attention follows; unmarked, the window does not either."""
    dense = {**DROP, "prefix_cache_retention_interval": None}
    longer = [*PROMPT, ["w", 8]]
    assert hit([full(), window(5, is_draft=True)], PROMPT, longer, **dense) == 8
    assert hit([full(), window(5), draft()], PROMPT, longer, **dense) == 8
    assert hit([full(), window(5)], PROMPT, longer, prefix_cache_retention_interval=None) == 12


def test_retention_keeps_the_block_that_is_dropped_too() -> None:
    """Retention 0: a resend of 12 tokens and what goes on after them resume at 8, which the third block proves."""
    layers: list[Spec] = [full(), window(5, is_draft=True)]
    assert hit(layers, PROMPT, PROMPT, **DROP) == 8
    assert hit(layers, PROMPT, [*PROMPT, ["w", 8]], **DROP) == 8


def test_several_modules_leave_their_lookahead_to_the_last_chunk() -> None:
    """A budget of 10 for 12 tokens: two would be left, three modules read three ahead."""
    log = run([full()], [asked("a", PROMPT, 1)], max_num_batched_tokens=10, **MTP, acceptance_rate=0)
    assert [step["scheduled"] for step in steps(log)] == [[["a", 9]], [["a", 3]]]


def test_several_modules_keep_more_than_the_window() -> None:
    """Window 5 of one module frees the first block once 8 tokens are processed, three modules need two tokens more."""
    held = {}
    for modules in (1, 3):
        flags = {**MTP, "num_mtp_modules": modules, "acceptance_rate": 0, "enable_prefix_caching": False}
        log = steps(run([full(), window(5)], [asked("a", [["x", 16]], 1)], max_num_batched_tokens=8, **flags))
        held[modules] = log[1]["tables"][0][1][:2]
    assert held == {1: [0, 5], 3: [4, 5]}
