"""Why a hit ended where it did: one small run for each cause, and what adds up in all of them."""

from __future__ import annotations

from typing import Any

from sim.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MLAAttentionSpec,
    RSWASpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
)
from tests.core.explained_run import explained, losses
from tests.core.layers_run import asked, full, state

WINDOW = SlidingWindowSpec(4, 1, 8, "bfloat16", sliding_window=9)
"""Looks back on two blocks of 4."""
CHUNKED = ChunkedLocalAttentionSpec(4, 1, 8, "bfloat16", attention_chunk_size=8)
DENSE: dict[str, Any] = {"prefix_cache_retention_interval": None}


def one_by_one(*prompts: list[list[Any]]) -> list[dict[str, Any]]:
    """Requests a, b, c … of two outputs, each long after the one before has ended."""
    return [asked(name, prompt, 2, 1000 * i) for i, (name, prompt) in enumerate(zip("abcdefg", prompts, strict=False))]


def test_alignment_is_what_lies_past_the_last_boundary() -> None:
    """b shares 14 tokens and hits 12."""
    assert losses([full()], one_by_one([["x", 14], ["y", 9]], [["x", 14], ["z", 9]])) == {
        "b": (12, {"alignment": 2}),
    }


def test_the_last_token_is_nobodys_loss() -> None:
    """Of 13 tokens sent again, 12 are hit; the 13th is computed again."""
    assert losses([full()], one_by_one([["x", 13]], [["x", 13]])) == {}


def test_nothing_is_lost_that_was_never_seen() -> None:
    assert losses([full()], one_by_one([["x", 20]], [["y", 20]])) == {}


def test_evicted() -> None:
    """11 blocks to have. c takes ten of them, so that of a's four blocks, freed from the tail on, the first is left."""
    assert losses([full()], one_by_one([["x", 17]], [["y", 38]], [["x", 17]]), 12, max_model_len=44) == {
        "c": (4, {"evicted": (12, 0)}),
    }


def test_never_kept_under_retention_0() -> None:
    """The window keeps what a resend of a needs, before token 20, and nothing before token 16, where b leaves a."""
    prompts = one_by_one([["x", 16], ["y", 5]], [["x", 16], ["z", 5]], [["x", 16], ["w", 5]])
    assert losses([full(), WINDOW], prompts) == {"b": (0, {"never kept: retention": (16, 1)})}
    assert losses([full(), WINDOW], prompts, **DENSE) == {}


def test_a_window_gap() -> None:
    """a outgrows the first of the two blocks that its window kept before token 16, so that one is freed first.

    Of eight blocks y takes seven: all but the last of the two, which alone is of no use.
    """
    requests = [asked("a", [["x", 17]], 6), asked("y", [["y", 26]], 2, 1000), asked("c", [["x", 17]], 2, 2000)]
    assert losses([WINDOW], requests, 9, max_model_len=28) == {"c": (0, {"window gap": (16, 0)})}


def test_what_was_never_kept_is_no_gap() -> None:
    """b leaves a at token 16, inside the two blocks that a's window kept before 20: one of them is of no use alone."""
    prompts = one_by_one([["x", 16], ["y", 5]], [["x", 16], ["z", 5]])
    assert losses([WINDOW], prompts) == {"b": (0, {"never kept: retention": (16, 0)})}


def test_chunks_hit_what_was_never_seen() -> None:
    """The 8 tokens before the last chunk of 13 count as computed though nothing was: a hit in vLLM, no loss."""
    _, explanation = explained([CHUNKED], [asked("a", [["x", 13]], 2)])
    summary = explanation.summary()
    assert summary is not None
    assert (summary["prompts"]["hit"], summary["prompts"]["never_seen"]) == (8, 4)
    assert losses([full(), CHUNKED], one_by_one([["x", 13]], [["x", 13]])) == {}


def test_a_state_that_was_written_but_not_kept() -> None:
    """A budget of 8 writes states at 8 and 16; retention 0 keeps the one at 16, the end of a's prompt."""
    prompts = one_by_one([["x", 17]], [["x", 9], ["y", 8]])
    layers: list[Spec] = [full(), state("align")]
    assert losses(layers, prompts, max_num_batched_tokens=8) == {
        "b": (0, {"never kept: retention": (8, 1), "alignment": 1}),
    }
    assert losses(layers, prompts, max_num_batched_tokens=8, **DENSE) == {"b": (8, {"alignment": 1})}


def test_a_boundary_that_no_chunk_ended_at() -> None:
    """With room for the whole prompt in one chunk, the only state before its end is the one at 16."""
    prompts = one_by_one([["x", 17]], [["x", 9], ["y", 8]])
    for flags in ({}, DENSE):
        assert losses([full(), state("align")], prompts, **flags) == {
            "b": (0, {"state not at a boundary": (8, 1), "alignment": 1}),
        }


def test_an_evicted_state() -> None:
    """Four blocks to have besides: y takes the state of x at 16, then none is left before it."""
    prompts = one_by_one([["x", 17]], [["y", 30]], [["x", 17]])
    assert losses([full(), state("align")], prompts, 14, max_model_len=40) == {"c": (0, {"evicted": (16, 0)})}


def test_an_exported_state_counts_as_written() -> None:
    exports = state("align", num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)
    assert losses([full(), exports], one_by_one([["x", 18]], [["x", 18]])) == {"b": (16, {"alignment": 1})}


def test_the_gap_of_rswa_is_kept_until_it_is_evicted() -> None:
    """The outputs behind the window are freed early and cached all the same."""
    layer = RSWASpec(4, 1, 8, "bfloat16", rswa_window=4)
    first = {**asked("a", [["x", 6]], 20), "output": [["o", 20]]}
    again = asked("b", [["x", 6], ["o", 15]], 2, 5000)
    assert losses([layer], [first, again]) == {}
    assert losses([layer], [first, asked("y", [["y", 12]], 2, 2000), again], 9, max_model_len=32)["b"] == (
        8,
        {"evicted": (12, 0)},
    )


def test_the_first_group_that_cannot_resume_is_named() -> None:
    """In vLLM's order: full attention before windows. Here both have lost their blocks."""
    prompts = one_by_one([["x", 17]], [["y", 45]], [["x", 17]])
    assert losses([WINDOW, full()], prompts, 26, max_model_len=48, **DENSE) == {"c": (0, {"evicted": (16, 1)})}


def test_hits_of_a_preempted_request_are_told_apart() -> None:
    """Two requests of 8 + 9 tokens in 7 blocks: one is preempted, and computes again what it had."""
    requests = [asked("a", [["x", 8]], 9), asked("b", [["y", 8]], 9)]
    loop, explanation = explained([full()], requests, 8, max_model_len=24)
    summary = explanation.summary()
    assert summary is not None
    assert loop.records.request_columns(loop.ids, loop.sessions, 0)["preemptions"].tolist() == [0, 1]
    assert (summary["prompts"]["tokens"], summary["prompts"]["never_seen"]) == (16, 14)
    resumed = summary["resumed"]
    assert resumed["last_tokens"] == 1
    assert resumed["hit"] + sum(resumed["lost"].values()) == resumed["tokens"] - 1


def test_what_is_still_being_computed() -> None:
    """b comes while a, in chunks of 8, has computed 8 of the 20 tokens they share; b hits those."""
    requests = [asked("a", [["x", 20], ["y", 9]], 2), asked("b", [["x", 20], ["z", 9]], 2)]
    _, explanation = explained([full()], requests, max_num_batched_tokens=12, long_prefill_token_threshold=8)
    summary = explanation.summary()
    assert summary is not None
    prompts = summary["prompts"]
    assert {key: prompts[key] for key in ("tokens", "hit", "being_computed", "never_seen", "last_tokens")} == {
        "tokens": 58,
        "hit": 8,
        "being_computed": 12,
        "never_seen": 36,
        "last_tokens": 2,
    }
    assert not any(prompts["lost"].values())


def test_a_request_that_skips_the_cache_is_not_explained_but_remembered() -> None:
    first = {**asked("a", [["x", 14]], 2), "skip_cache": True}
    loop, explanation = explained([full()], [first, asked("b", [["x", 14]], 2, 1000)])
    columns = explanation.request_columns(loop.records.ordinals())
    assert columns["seen_tokens"].tolist() == [0, 13]
    assert columns["lost_alignment_tokens"].tolist() == [0, 1]


def test_without_prefix_caching_there_is_nothing_to_explain() -> None:
    _, explanation = explained([full()], one_by_one([["x", 9]], [["x", 9]]), enable_prefix_caching=False)
    assert explanation.summary() is None


def test_blocks_of_two_sizes_meet_late() -> None:
    """Blocks of 8 and 6 tokens: hits end at 24, so 15 of 39 shared tokens are lost to alignment."""
    layers: list[Spec] = [full(), FullAttentionSpec(6, 1, 8, "bfloat16", page_size_padded=256)]
    assert losses(layers, one_by_one([["x", 39], ["y", 9]], [["x", 39], ["z", 9]])) == {"b": (24, {"alignment": 15})}


def test_hits_that_end_inside_a_block() -> None:
    """Blocks of 4, a unit of 2: a leaves states at 8 and, as the tail of its prompt, at 10; so b and c hit.

    d parts from a at 6, where no chunk ended.
    """
    prompts = one_by_one([["x", 12]], [["x", 12]], [["x", 9], ["y", 5]], [["x", 6], ["z", 6]])
    assert losses([full(), state("align")], prompts, prefix_match_unit=2) == {
        "b": (10, {"alignment": 1}),
        "c": (8, {"alignment": 1}),
        "d": (0, {"state not at a boundary": (6, 1)}),
    }


def test_a_hit_no_longer_than_the_window_computed_again_is_none() -> None:
    """Bounded replay of a window of 9: 8 tokens of a hit would all be computed again, 12 are worth it."""
    layers: list[Spec] = [
        MLAAttentionSpec(4, 1, 16, "bfloat16"),
        SlidingWindowMLASpec(4, 1, 16, "bfloat16", sliding_window=9, bounded_replay=True),
    ]
    prompts = one_by_one([["x", 10]], [["x", 10]], [["y", 14]], [["y", 14]])
    assert losses(layers, prompts) == {
        "b": (0, {"alignment": 1, "bounded replay": 8}),
        "d": (12, {"alignment": 1}),
    }
