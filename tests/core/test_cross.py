"""Cross attention: the encoder's tokens are stored at admission, once; what a step may take in is limited twice."""

from __future__ import annotations

from typing import Any

import pytest

from sim.core._jit import i64
from sim.core.cross import num_blocks
from sim.errors import InputError, RefusalError
from sim.specs import CrossAttentionSpec
from tests.core.layers_run import asked, full, run, state, steps

CROSS = CrossAttentionSpec(4, 1, 8, "bfloat16")


def heard(name: str, prompt: int, encoder: int, outputs: int = 2, arrival_ns: int = 0) -> dict[str, Any]:
    """A request with an input to the encoder."""
    return asked(name, [[name, prompt]], outputs, arrival_ns) | {"encoder_tokens": encoder}


def decode(requests: list[dict[str, Any]], **flags: Any) -> list[dict[str, Any]]:
    """The steps of a decoder with a layer of each of both kinds."""
    return steps(run([full(), CROSS], requests, **{"enable_prefix_caching": False, **flags}))


def test_blocks_of_the_encoder_are_taken_at_once_and_never_more() -> None:
    """10 tokens of audio are 3 blocks, from the first step to the last, while the decoder grows from 1 block to 2."""
    tables = [step["tables"][0] for step in decode([heard("a", 3, 10, outputs=4)])]
    assert tables == [[[1], [2, 3, 4]]] * 2 + [[[1, 5], [2, 3, 4]]] * 2


def test_equal_audio_is_stored_twice() -> None:
    """Nothing of cross attention is shared, even where the texts are the same."""
    twins = [heard("a", 3, 5), heard("b", 3, 5)]
    twins[1]["prompt"] = twins[0]["prompt"]
    assert decode(twins)[0]["tables"] == [[[1], [2, 3]], [[4], [5, 6]]]


def test_a_request_whose_audio_does_not_fit_the_step_is_passed_over() -> None:
    """64 encoder tokens a step: b would be the 65th to 104th and waits, c behind it goes first."""
    log = decode([heard("a", 3, 60), heard("b", 3, 40), heard("c", 3, 4)], num_blocks=100)
    assert [[name for name, _ in step["scheduled"]] for step in log[:2]] == [["a", "c"], ["a", "c", "b"]]


def test_audio_in_flight_counts_too() -> None:
    """With two batches in flight the second step finds 4 of 64 tokens of room, and b waits for the first output."""
    requests = [heard("a", 3, 60, outputs=6), heard("b", 3, 40, arrival_ns=0)]
    flags = {"async_scheduling": True, "num_blocks": 100, "max_num_seqs": 2}
    log = decode([*requests], **flags)
    assert [[name for name, _ in step["scheduled"]] for step in log[:3]] == [["a"], ["a"], ["a", "b"]]


def test_an_admission_needs_the_blocks_of_both() -> None:
    """10 usable blocks: a holds 1 + 5 of them, b would need as many and waits until a has ended."""
    requests = [heard("a", 3, 20, outputs=3), heard("b", 3, 20, arrival_ns=1)]
    log = decode(requests, num_blocks=11, max_model_len=16, max_num_batched_tokens=24)
    assert [[name for name, _ in step["scheduled"]] for step in log] == [["a"], ["a"], ["a"], ["b"], ["b"]]


def test_a_preempted_request_hears_its_audio_again() -> None:
    """Both fit until each wants a second block; b is taken off and stored anew, with the outputs it had."""
    requests = [heard("a", 4, 8, outputs=3), heard("b", 4, 8, outputs=3)]
    log = decode(requests, num_blocks=7, max_model_len=8, max_num_batched_tokens=16)
    assert [step["preempted"] for step in log[:2]] == [[], ["b"]]
    back = next(step for step in log[2:] if ["b", 5] in step["scheduled"])
    assert [len(table) for table in back["tables"][-1]] == [2, 2]


def test_prompts_are_never_cut() -> None:
    """vLLM turns chunked prefill and its threshold off by itself: the second prompt waits for a whole budget."""
    log = decode([heard("a", 40, 4), heard("b", 40, 4)], enable_chunked_prefill=True, long_prefill_token_threshold=8)
    assert [step["scheduled"] for step in log[:2]] == [[["a", 40]], [["a", 1], ["b", 40]]]


def test_refusals() -> None:
    with pytest.raises(RefusalError, match="max_num_batched_tokens: 63 is smaller than max_model_len"):
        decode([heard("a", 3, 4)], max_num_batched_tokens=63)
    with pytest.raises(RefusalError, match="enable_prefix_caching: cross attention cannot be cached"):
        decode([heard("a", 3, 4)], enable_prefix_caching=True)
    with pytest.raises(InputError, match="request 'a' has encoder_tokens, but the model has no encoder"):
        run([full(), state("none")], [heard("a", 3, 4)], enable_prefix_caching=False)


def test_an_input_no_batch_holds_is_rejected() -> None:
    """65 tokens of audio, 64 in a batch: vLLM turns such a request away, as it does too long a prompt."""
    assert decode([heard("a", 3, 65), heard("b", 3, 64)])[0]["scheduled"] == [["b", 3]]


def test_blocks_are_whole() -> None:
    assert [num_blocks(i64(tokens), i64(4)) for tokens in (1, 4, 5)] == [1, 1, 2]
