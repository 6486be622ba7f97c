"""Sliding windows: what is behind them is freed on the processed-token basis, null blocks keep the places."""

from __future__ import annotations

from tests.twin.ours import Ours, steps
from tests.twin.settings import Group, Settings, ask

FULL, WINDOW = Group(16), Group(16, 32)
TOY = Settings(
    groups=(FULL, WINDOW, WINDOW),
    num_blocks=40,
    max_model_len=160,
    max_num_batched_tokens=160,
    enable_prefix_caching=False,
)


def test_a_prompt_holds_all_its_blocks_until_its_first_decode_step() -> None:
    """112 tokens at window 32 hold 7, 7, 7 blocks, then 8, 3, 3: tokens 0 to 80 are out of sight, five whole blocks."""
    ours = Ours(TOY)
    log = ours.run(ask("a", 0, [(1, 112)], 4))
    assert [step["free_blocks"] for step in steps(log)] == [39 - 21, 39 - 14, 39 - 14, 39 - 14]
    assert steps(log)[1]["new_blocks"] == [["a", [[19], [18], [17]]]]
    assert log[-1] == {
        "finished": "a",
        "tables": [[1, 2, 3, 4, 5, 6, 7, 19], [0, 0, 0, 0, 0, 13, 14, 18], [0, 0, 0, 0, 0, 20, 21, 17]],
    }
    assert ours.free_queue()[:14] == [17, 21, 20, 18, 14, 13, 19, 7, 6, 5, 4, 3, 2, 1]


def test_chunks_free_behind_the_window_of_the_chunk_before() -> None:
    """Chunk 3 starts with 64 processed tokens: 33 of them, two blocks, are freed before its own are taken."""
    ours = Ours(Settings(groups=(FULL, WINDOW), num_blocks=40, max_model_len=160, max_num_batched_tokens=32))
    log = ours.run(ask("a", 0, [(1, 112)], 4))
    assert [step["free_blocks"] for step in steps(log)] == [35, 31, 29, 29, 28, 28, 28]
    assert log[-1]["tables"] == [[1, 2, 5, 6, 9, 10, 13, 15], [0, 0, 0, 0, 0, 12, 14, 16]]


def test_async_scheduling_frees_a_step_later() -> None:
    """At the second schedule() nothing is processed yet, so the window group holds 8 blocks beside its new one."""
    settings = Settings(
        groups=(FULL, WINDOW), num_blocks=40, max_model_len=160, max_num_batched_tokens=160, async_scheduling=True
    )
    log = Ours(settings).run(ask("a", 0, [(1, 112)], 4))
    assert [step["free_blocks"] for step in steps(log)] == [25, 23, 28, 28]


def test_one_block_leaves_as_the_window_moves() -> None:
    """Window 4, blocks of 2: of the prompt of 6, 3 tokens are out of sight, one block; then a block every 2 tokens."""
    ours = Ours(Settings(groups=(Group(2, 4),), num_blocks=10, enable_prefix_caching=False))
    ours.submit([ask("a", 0, [(1, 6)], 6)])
    tables = []
    while ours.advance()[0] == "stepped":
        tables.append(ours.tables()["a"][0])
    assert tables == [
        [1, 2, 3],
        [0, 2, 3, 1],
        [0, 0, 3, 1],
        [0, 0, 3, 1, 2],
        [0, 0, 0, 1, 2],
        [0, 0, 0, 1, 2, 3],
    ]


def test_a_window_of_one_token_keeps_only_the_block_it_writes() -> None:
    ours = Ours(Settings(groups=(Group(2, 1),), num_blocks=10))
    ours.submit([ask("a", 0, [(1, 4)], 4)])
    tables = []
    while ours.advance()[0] == "stepped":
        tables.append(ours.tables()["a"][0])
    assert tables == [[1, 2], [0, 0, 2], [0, 0, 2], [0, 0, 0, 2]]
