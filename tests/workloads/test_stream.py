"""The stream: batches, ties, limit, jitter and time scale."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from workloads import RequestBatch
from workloads.replay import JITTER_STREAM


def same(a: RequestBatch, b: RequestBatch) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))


def ticks(n: int, every: int, seed: int = 0) -> str:
    """A native trace with ids in no order, several per tick."""
    rng = random.Random(seed)
    ids = rng.sample(range(10 * n), n)
    time, lines = 0, []
    for name in ids:
        time += every * rng.choice((0, 0, 0, 1))
        lines.append(f'{{"id": "{name}", "arrival_s": {time}, "prompt_tokens": {name + 1}, "output_tokens": 1}}')
    return "\n".join(lines)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100, 10_000])
@pytest.mark.parametrize("config", [{}, {"jitter_s": 4.5}, {"jitter_s": 2, "time_scale": 1e-9}, {"limit": 77}])
def test_the_batch_size_changes_nothing(write: Any, read: Any, rows: int, config: dict[str, Any]) -> None:
    write(ticks(300, 3))
    assert same(read(trace="trace.txt", rows=rows, **config), read(trace="trace.txt", **config))


def test_a_second_pass_is_the_same(write: Any, opened: Any) -> None:
    write(ticks(100, 3))
    workload = opened(trace="trace.txt", jitter_s=3)
    first, second = (next(iter(workload.batches(1000))) for _ in range(2))
    assert same(first, second)


def test_ties_rank_by_id_as_a_string(write: Any, read: Any) -> None:
    write("arrival_s,prompt_tokens,output_tokens\n" + "0,1,1\n" * 12)
    batch = read(trace="trace.txt", rows=2)
    assert batch.ids == [str(i) for i in range(12)]
    assert batch.tie_rank.tolist() == [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3]


def test_jitter_is_exact_across_blocks(write: Any, read: Any) -> None:
    """The streamed window gives what sorting the whole trace would."""
    n = 60_000  # several blocks of the file
    times = np.arange(n) // 20 * 3
    write("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{t},{i + 1},1\n" for i, t in enumerate(times)))
    for jitter_s in (3.0, 500.0, 1e5):
        batch = read(seed=5, trace="trace.txt", jitter_s=jitter_s, time_scale=0.5)
        rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(JITTER_STREAM,)))
        moved = times * 10**9 + np.floor(rng.random(n) * round(jitter_s * 1e9)).astype(np.int64)
        moved = np.rint(moved * 0.5).astype(np.int64)
        order = np.argsort(moved, kind="stable")
        assert np.array_equal(batch.arrival_ns, moved[order])
        assert np.array_equal(batch.prompt_tokens, order + 1)


def test_jitter_depends_on_the_seed_alone(write: Any, read: Any) -> None:
    write(ticks(200, 3))
    a, b = (read(seed=seed, trace="trace.txt", jitter_s=3) for seed in (1, 2))
    assert not np.array_equal(a.arrival_ns, b.arrival_ns)
    assert sorted(a.ids) == sorted(b.ids)


def test_time_scale_stretches_every_time(write: Any, read: Any) -> None:
    write("arrival_s,prompt_tokens,output_tokens\n0.5,1,1\n1.5,1,1\n")
    assert read(trace="trace.txt", time_scale=2).arrival_ns.tolist() == [1_000_000_000, 3_000_000_000]


def test_limit_reads_no_further(write: Any, read: Any, opened: Any) -> None:
    write("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,1,1\nnonsense\n")
    assert len(read(trace="trace.txt", limit=2)) == 2
    assert opened(trace="trace.txt", limit=2).expected_requests == 2
    assert opened(trace="trace.txt").expected_requests == 3
    assert opened(trace="trace.txt", limit=9).describe()["complete"] is False


def test_limit_counts_requests_not_rows_left_out(write: Any, read: Any) -> None:
    rows = "".join(f"2023-11-16 18:17:0{i}.0000000,{i % 2},1\n" for i in range(9))
    write("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert read(trace="trace.txt", limit=3).ids == ["1", "3", "5"]


def test_rows_below_one_is_a_mistake_of_the_caller(write: Any, opened: Any) -> None:
    write(ticks(3, 3))
    with pytest.raises(ValueError, match="rows must be at least 1"):
        list(opened(trace="trace.txt").batches(0))
