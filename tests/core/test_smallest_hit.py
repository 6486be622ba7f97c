"""The shortest prompt that can hit, against the machine: sent twice it hits, and one token less does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.planning import SmallestHit, smallest_hit
from sim.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MLAAttentionSpec,
    RSWASpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
)
from tests.core.layers_run import asked, full, planned, run, state, steps


def window(tokens: int, block_size: int = 4) -> SlidingWindowSpec:
    """A layer with a window."""
    return SlidingWindowSpec(block_size, 1, 8, "bfloat16", sliding_window=tokens)


def replayed(tokens: int) -> SlidingWindowMLASpec:
    """A layer with a window that is computed again."""
    return SlidingWindowMLASpec(4, 1, 16, "bfloat16", sliding_window=tokens, bounded_replay=True)


LATENT = MLAAttentionSpec(4, 1, 16, "bfloat16")
CHUNKED = ChunkedLocalAttentionSpec(4, 1, 8, "bfloat16", attention_chunk_size=8)
EXPORTS = {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 1}
LAYERS: dict[str, tuple[list[Spec], dict[str, Any], int]] = {
    "full": ([full()], {}, 5),
    "full, blocks of 16": ([FullAttentionSpec(16, 1, 8, "bfloat16")], {"block_size": 16}, 17),
    "window": ([window(6)], {}, 5),
    "full and window": ([full(), window(6)], {}, 5),
    "full and window, dense": ([full(), window(6)], {"prefix_cache_retention_interval": None}, 5),
    "full and window, an interval": ([full(), window(6)], {"prefix_cache_retention_interval": 16}, 5),
    "window longer than the model": ([full(), window(100)], {}, 5),
    "full and chunks": ([full(), CHUNKED], {}, 5),
    "R-SWA": ([RSWASpec(4, 1, 8, "bfloat16", rswa_window=4)], {}, 5),
    "full and states": ([full(), state("align")], {}, 5),
    "states in chunks of 3": ([full(), state("align")], {"max_num_batched_tokens": 3, "max_num_seqs": 3}, 5),
    "states that are exported": ([full(), state("align", **EXPORTS)], {}, 5),
    "states alone": ([state("align")], {}, 5),
    "blocks of two sizes": ([full(), FullAttentionSpec(6, 1, 8, "bfloat16", page_size_padded=256)], {}, 25),
    "hits inside a block": ([full(), state("align")], {"prefix_match_unit": 2}, 3),
    "bounded replay of less than a block": ([LATENT, replayed(3)], {}, 5),
    "bounded replay of a block": ([LATENT, replayed(4)], {}, 9),
    "bounded replay of two blocks": ([LATENT, replayed(9)], {}, 13),
    "async": ([full(), window(6), state("align")], {"async_scheduling": True}, 5),
}


def hit_when_resent(layers: list[Spec], tokens: int, **flags: Any) -> int:
    """Tokens a prompt hits that was sent before, long enough ago to have ended."""
    log = run(layers, [asked("a", [["x", tokens]], 2), asked("b", [["x", tokens]], 2, arrival_ns=10**6)], **flags)
    hits = dict(hit for step in steps(log) for hit in step["hits"])
    return int(hits["b"])


@pytest.mark.parametrize("name", LAYERS)
def test_it_hits_and_one_token_less_does_not(name: str) -> None:
    layers, flags, expected = LAYERS[name]
    answer = smallest_hit(*planned(layers, **flags))
    assert answer is not None
    assert answer.prompt_tokens == expected
    assert hit_when_resent(layers, expected, **flags) == expected - 1
    assert hit_when_resent(layers, expected - 1, **flags) == 0


def answer(layers: list[Spec], **flags: Any) -> SmallestHit:
    """What is said about layers."""
    found = smallest_hit(*planned(layers, **flags))
    assert found is not None
    return found


def test_it_says_why() -> None:
    assert answer([full()]).why == (
        "a prompt shorter than 5 tokens can never hit: hits end at multiples of the block size, 4, and the last token"
        " is computed again"
    )
    assert "states are kept at multiples of 4," in answer([full(), state("align")]).why
    assert "blocks of 6, 8 tokens meet at multiples of 24," in answer(LAYERS["blocks of two sizes"][0]).why


def test_no_prompt_can_hit() -> None:
    off = answer([full()], enable_prefix_caching=False)
    assert (off.prompt_tokens, off.why) == (None, "no prompt can hit: prefix caching is off")
    short = answer([full()], max_model_len=5)
    assert short.prompt_tokens is None
    assert short.why.endswith("but prompts have at most 4 tokens")
    assert answer([full()], max_model_len=6).prompt_tokens == 5


def test_a_window_of_one_token_never_hits() -> None:
    layers: list[Spec] = [full(), window(1)]
    assert answer(layers).prompt_tokens is None
    assert hit_when_resent(layers, 40) == 0
    assert hit_when_resent(layers, 40, prefix_cache_retention_interval=None) == 0


def test_with_a_draft_nothing_is_said() -> None:
    plan, engine = planned([full()])
    draft = replace(engine, speculative_method="eagle", num_speculative_tokens=1)
    assert smallest_hit(plan, draft) is None
