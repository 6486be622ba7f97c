"""Bounded replay: a hit's last window is computed again, for a group that nobody caches; literal tables and tokens."""

from __future__ import annotations

from typing import Any

from sim.specs import MLAAttentionSpec, SlidingWindowMLASpec, Spec
from tests.core.layers_run import asked, run, steps

LATENT = MLAAttentionSpec(4, 1, 16, "bfloat16")
PROMPT = [["x", 13]]


def replayed(window: int) -> Spec:
    """A window of latent vectors that takes no part in prefix caching."""
    return SlidingWindowMLASpec(4, 1, 16, "bfloat16", sliding_window=window, bounded_replay=True)


def resent(window: int, **flags: Any) -> list[dict[str, Any]]:
    """The steps of a prompt of 13 tokens and of the same again, once the first is through: a hit of 12."""
    again = asked("b", [*PROMPT, ["y", 3]], 2, arrival_ns=9)
    return steps(run([LATENT, replayed(window)], [asked("a", PROMPT, 2), again], **flags))


def test_a_hit_computes_its_last_window_again() -> None:
    """16 tokens, 12 of them known, window 5: computing begins at token 7, in the block that was never cached.

    The window of the next token, 12, begins at token 8: table 1 starts with two null blocks, and block 2 is its own.
    """
    second = resent(5)[2]
    assert second["scheduled"] == [["b", 9]]
    assert second["hits"] == [["b", 12]]
    assert second["tables"] == [[[1, 2, 3, 8], [0, 0, 7, 4]]]


def test_a_hit_no_longer_than_the_window_is_none() -> None:
    """Window 12 of a hit of 12: all of it would be computed again."""
    assert resent(12)[2]["hits"] == [["b", 0]]
    assert resent(12)[2]["scheduled"] == [["b", 16]]
    assert resent(11)[2]["hits"] == [["b", 12]]


def test_a_chunk_may_end_inside_what_is_computed_again() -> None:
    """6 tokens a step, window 9, known 12: tokens 3 to 8 take no new block for their own sake, 9 to 14 then do."""
    log = resent(9, max_num_batched_tokens=6, max_model_len=24, max_num_seqs=4)
    second = [step for step in log if step["scheduled"][0][0] == "b"]
    assert [step["scheduled"][0][1] for step in second] == [6, 6, 1, 1]
    assert [len(step["tables"][0][0]) for step in second] == [3, 4, 4, 5]


def test_the_window_itself_is_freed_as_any_other() -> None:
    """Window 5: once 13 tokens are processed the next sees 9 … 13, and the first two blocks of its table are gone."""
    assert [step["tables"][0][1] for step in resent(5)[:2]] == [[5, 6, 7, 8], [0, 0, 7, 8]]
