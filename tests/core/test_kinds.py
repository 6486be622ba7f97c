"""Chunked local, Mamba, R-SWA and circular groups, and the prefill cadence: literal tables after each step."""

from __future__ import annotations

from sim.specs import ChunkedLocalAttentionSpec, CircularBufferSpec, RSWASpec
from tests.core.layers_run import asked, full, run, state, steps

CHUNKED = ChunkedLocalAttentionSpec(4, 1, 8, "bfloat16", attention_chunk_size=8)


def test_chunked_local_frees_the_chunk_before() -> None:
    """13 tokens in chunks of 8: once they are processed, the two blocks of the first chunk go."""
    log = run([full(), CHUNKED], [asked("a", [["x", 13]], 4)], enable_prefix_caching=False)
    assert [step["tables"][0][1] for step in steps(log)] == [[5, 6, 7, 8]] + 3 * [[0, 0, 7, 8]]


def test_chunked_local_hits_only_need_the_last_chunk() -> None:
    """17 tokens, 12 of them known: the first chunk counts as computed, as null blocks; block 7 is a real hit."""
    first = asked("a", [["x", 13]], 1)
    second = asked("b", [["x", 13], ["y", 4]], 1, arrival_ns=10)
    log = run([full(), CHUNKED], [first, second])
    assert steps(log)[1]["hits"] == [["b", 12]]
    assert steps(log)[1]["tables"] == [[[1, 2, 3, 8, 4], [0, 0, 7, 9, 10]]]


def test_chunked_local_alone_hits_what_it_never_saw() -> None:
    """Everything before the last chunk counts as computed even in an empty cache: vLLM does the same."""
    log = run([CHUNKED], [asked("a", [["x", 13]], 1)])
    assert steps(log)[0]["hits"] == [["a", 8]]
    assert steps(log)[0]["tables"] == [[[0, 0, 1, 2]]]


def test_mamba_chunks_end_at_block_boundaries_and_old_states_retire() -> None:
    """A budget of 8 of 13 tokens: 8, then 4 (the last boundary below the end), then 1; a state lives two steps."""
    log = run([full(), state("align")], [asked("a", [["x", 13]], 5)], max_num_batched_tokens=8)
    assert [step["scheduled"][0][1] for step in steps(log)] == [8, 4, 1, 1, 1, 1, 1]
    assert [step["tables"][0][1] for step in steps(log)] == [
        [0, 3],
        [0, 3, 5],
        [0, 0, 5, 6],
        [0, 0, 0, 6],
        [0, 0, 0, 6],
        [0, 0, 0, 6],
        [0, 0, 0, 6, 8],
    ]


def test_mamba_checkpoint_is_a_second_state_inside_the_last_chunk() -> None:
    """14 tokens in one chunk: the state at 12 is exported into a block of its own, and a sibling resumes there."""
    states = state("align", num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)
    log = run([full(), states], [asked("a", [["x", 14]], 2), asked("b", [["x", 14], ["z", 3]], 2, arrival_ns=20)])
    assert steps(log)[0]["scheduled"] == [["a", 14]]
    assert steps(log)[0]["tables"] == [[[1, 2, 3, 4], [0, 0, 5, 6]]]
    assert steps(log)[2]["hits"] == [["b", 12]]
    assert steps(log)[2]["tables"] == [[[1, 2, 3, 6, 4], [0, 0, 5, 7, 8]]]


def test_mamba_states_of_a_step_are_hit_in_the_next() -> None:
    """Two equal prompts at once: the second waits a step for the state the first is computing, then shares it."""
    log = run([full(), state("align")], [asked("a", [["x", 13]], 2), asked("b", [["x", 13]], 2)])
    assert [step["scheduled"] for step in steps(log)][:2] == [[["a", 12]], [["a", 1], ["b", 1]]]
    assert steps(log)[1]["hits"] == [["b", 12]]
    assert [tables[1] for tables in steps(log)[1]["tables"]] == [[0, 0, 4, 6], [0, 0, 4, 8]]


def test_mamba_without_prefix_caching_keeps_the_last_block() -> None:
    """Mode none, here with a block smaller than the sequence: blocks before the last computed token's are freed."""
    log = run([full(), state("none")], [asked("a", [["x", 9]], 2)], enable_prefix_caching=False)
    assert [step["tables"][0][1] for step in steps(log)] == [[4, 5, 6], [0, 0, 6]]


def test_rswa_keeps_the_prompt_and_a_window_of_outputs() -> None:
    """Prompt 6, window 4: block 2 holds tokens 8 to 11, all behind the window once 16 tokens are processed."""
    layer = RSWASpec(4, 1, 8, "bfloat16", rswa_window=4)
    log = run([layer], [asked("a", [["x", 6]], 14)], enable_prefix_caching=False)
    tables = [step["tables"][0][0] for step in steps(log)]
    assert tables[10:12] == [[1, 2, 3, 4], [1, 2, 0, 4, 3]]


def test_a_circular_buffer_is_one_block_per_request() -> None:
    """However long the request grows."""
    ring = CircularBufferSpec(4, 1, 8, "bfloat16")
    log = run([full(), ring], [asked("a", [["x", 9]], 3)], enable_prefix_caching=False)
    assert [step["tables"][0][1] for step in steps(log)] == 3 * [[4]]


def test_prefill_cadence_holds_an_admission_back() -> None:
    """b arrives in the third step; with an interval of 4 it is admitted four steps after the last prefill."""
    log = run(
        [full()], [asked("a", [["x", 3]], 8), asked("b", [["y", 9]], 2, arrival_ns=2)], prefill_schedule_interval=4
    )
    assert [[name for name, _ in step["scheduled"]] for step in steps(log)][:5] == 4 * [["a"]] + [["a", "b"]]


def test_max_num_active_seqs_limits_who_runs() -> None:
    """Two may hold a slot, one may run."""
    requests = [asked("a", [["x", 3]], 2), asked("b", [["y", 3]], 2)]
    log = run([full()], requests, max_num_active_seqs=1)
    assert [[name for name, _ in step["scheduled"]] for step in steps(log)] == [["a"], ["a"], ["b"], ["b"]]
