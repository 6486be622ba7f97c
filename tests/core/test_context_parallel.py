"""Decode context parallelism: a block of full attention holds the tokens of all ranks, what is replicated its own."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import RefusalError
from sim.specs import ChunkedLocalAttentionSpec, SlidingWindowSpec
from tests.core.layers_run import asked, full, run, state, steps

RANKS = {"tensor_parallel_size": 2, "decode_context_parallel_size": 2}


def window(**fields: Any) -> SlidingWindowSpec:
    """A layer with a window of 6 tokens."""
    return SlidingWindowSpec(4, 1, 8, "bfloat16", sliding_window=6, **fields)


def test_blocks_stand_for_the_tokens_of_all_ranks() -> None:
    """13 tokens in blocks of 4 on each of two ranks: 2 blocks, where one rank would have 4."""
    assert steps(run([full()], [asked("a", [["x", 13]], 1)], **RANKS))[0]["tables"] == [[[1, 2]]]
    assert steps(run([full()], [asked("a", [["x", 13]], 1)]))[0]["tables"] == [[[1, 2, 3, 4]]]


def test_hits_end_with_the_blocks_of_all_ranks() -> None:
    """13 of 16 tokens are the same: 8 are hit, a whole block of both ranks."""
    again = asked("b", [["x", 13], ["y", 3]], 1, arrival_ns=9)
    assert steps(run([full()], [asked("a", [["x", 13]], 1), again], **RANKS))[1]["hits"] == [["b", 8]]


def test_a_replicated_window_keeps_its_own_blocks() -> None:
    """Each rank holds the whole window, in blocks of 4, and frees it as it would alone."""
    log = steps(
        run(
            [full(), window(dcp_sharded=False)],
            [asked("a", [["x", 13]], 2)],
            prefix_cache_retention_interval=None,
            **RANKS,
        )
    )
    assert [step["tables"][0] for step in log] == [[[1, 2], [3, 4, 5, 6]], [[1, 2], [0, 0, 5, 6]]]


def test_a_state_is_one_on_every_rank() -> None:
    """A state is not dealt out: one block per request, however many tokens."""
    log = steps(run([full(), state("none")], [asked("a", [["x", 3]], 2)], enable_prefix_caching=False, **RANKS))
    assert [step["tables"][0] for step in log] == [[[1], [2]]] * 2


def test_what_cannot_be_dealt_out_is_refused() -> None:
    with pytest.raises(RefusalError, match="a sliding window cannot be dealt out"):
        run([full(), window()], [asked("a", [["x", 3]], 1)], **RANKS)
    chunks = ChunkedLocalAttentionSpec(4, 1, 8, "bfloat16", attention_chunk_size=8)
    with pytest.raises(RefusalError, match="a group of chunked_local_attention cannot be dealt out"):
        run([full(), chunks], [asked("a", [["x", 3]], 1)], **RANKS)
