"""Generated workloads: the laws of what was asked for, and bounded memory."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest

from workloads import RequestBatch, WorkloadError, open_workload
from workloads.content import PREFIX_POOL, named

POISSON = {"kind": "poisson", "rate_per_s": 10}
PLAIN: dict[str, Any] = {"requests": 20_000, "arrival": POISSON, "prompt_tokens": 100, "output_tokens": 10}
AGENTIC: dict[str, Any] = {
    "requests": 3_000,
    "arrival": {"kind": "poisson", "rate_per_s": 0.05},
    "prompt_tokens": {"kind": "lognormal", "median": 20_000, "sigma": 0.4},
    "output_tokens": {"kind": "lognormal", "mean": 450, "cv": 1.5},
    "shared_prefix": {"pools": 3, "tokens": 13_000, "zipf": 1, "share": 0.9},
    "sessions": {
        "turns": {"kind": "uniform", "min": 10, "max": 70},
        "think_s": {"kind": "exponential", "mean": 20},
        "new_tokens": {"kind": "lognormal", "mean": 3_000, "cv": 2},
        "max_prompt_tokens": 120_000,
    },
}


def same(a: RequestBatch, b: RequestBatch) -> bool:
    """Whether two batches are equal in every column."""
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))


@pytest.mark.parametrize("config", [PLAIN, AGENTIC], ids=["plain", "sessions"])
def test_only_the_seed_matters(read: Any, config: dict[str, Any]) -> None:
    config = config | {"requests": 2_500}
    whole = read(seed=3, synthetic=config)
    assert len(whole) == 2_500
    for rows in (1, 17, 2_000):
        assert same(whole, read(seed=3, synthetic=config, rows=rows))
    assert not same(whole, read(seed=4, synthetic=config))


def test_more_requests_begin_with_the_same_ones(read: Any) -> None:
    short, long = (read(synthetic=PLAIN | {"requests": n}) for n in (9_000, 20_000))
    assert same(short, long.slice(0, 9_000))


@pytest.mark.parametrize(("kind", "cv"), [("poisson", 1.0), ("gamma", 3.0), ("gamma", 0.3), ("constant", 0.0)])
def test_arrivals_have_the_rate_and_the_spread_asked_for(read: Any, kind: str, cv: float) -> None:
    arrival = {"kind": kind, "rate_per_s": 10, **({"cv": cv} if kind == "gamma" else {})}
    gaps = np.diff(read(synthetic=PLAIN | {"arrival": arrival}).arrival_ns) / 1e9
    assert gaps.mean() == pytest.approx(0.1, rel=0.07)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.07, abs=1e-6)


def test_a_constant_rate_does_not_drift(read: Any) -> None:
    batch = read(synthetic=PLAIN | {"arrival": {"kind": "constant", "rate_per_s": 3}})
    assert batch.arrival_ns[[0, 1, 2, 3, 19_998]].tolist() == [0, 333_333_333, 666_666_667, 10**9, 6_666 * 10**9]


def test_all_at_once_is_one_batch(opened: Any) -> None:
    workload = opened(synthetic=PLAIN | {"arrival": {"kind": "all_at_once"}})
    (batch,) = workload.batches(64)
    assert len(batch) == 20_000
    assert sorted(batch.ids)[:3] == [batch.ids[i] for i in np.argsort(batch.tie_rank)[:3]]


@pytest.mark.parametrize(
    ("given", "mean", "low", "high"),
    [
        (512, 512, 512, 512),
        ({"kind": "fixed", "value": 7}, 7, 7, 7),
        ({"kind": "uniform", "min": 10, "max": 20}, 15, 10, 20),
        ({"kind": "lognormal", "mean": 2_000, "cv": 1}, 2_000, 1, 100_000),
        ({"kind": "lognormal", "median": 1_000, "sigma": 0.5, "min": 900, "max": 1_100}, 1_000, 900, 1_100),
        ({"kind": "exponential", "mean": 300}, 300, 1, 10_000),
        ({"kind": "empirical", "values": [5, 50], "weights": [1, 3]}, 38.75, 5, 50),
    ],
)
def test_lengths_follow_their_distribution(read: Any, given: Any, mean: float, low: int, high: int) -> None:
    prompt = read(synthetic=PLAIN | {"prompt_tokens": given}).prompt_tokens
    assert prompt.mean() == pytest.approx(mean, rel=0.05)
    assert low <= prompt.min() <= prompt.max() <= high


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
def test_lengths_can_be_those_of_a_trace(read: Any, column: str) -> None:
    there = getattr(read(trace="sample:azure-conv-2023"), column)
    here = read(
        synthetic=PLAIN | {"prompt_tokens": {"kind": "empirical", "trace": "sample:azure-conv-2023", "column": column}}
    )
    assert set(here.prompt_tokens.tolist()) <= set(there.tolist())
    assert here.prompt_tokens.mean() == pytest.approx(there.mean(), rel=0.02)


def test_shared_prefixes_have_their_share_and_popularity(read: Any) -> None:
    batch = read(synthetic=PLAIN | {"shared_prefix": {"pools": 4, "tokens": 64, "zipf": 1, "share": 0.75}})
    shared = batch.prompt_spans == 2
    assert shared.mean() == pytest.approx(0.75, abs=0.02)
    assert set(batch.prompt_tokens[shared].tolist()) == {164}
    assert set(batch.prompt_tokens[~shared].tolist()) == {100}
    first = batch.span_content[batch.span_offsets[:-1]][shared]
    counts = np.array([(first == text).mean() for text in named(np.arange(4), PREFIX_POOL)])
    assert counts == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.02)


def test_a_turn_repeats_the_turn_before_and_its_output(read: Any) -> None:
    batch = read(synthetic=AGENTIC)
    last: dict[str | None, list[tuple[int, int]]] = {}
    repeated = 0
    for i in range(len(batch)):
        start, stop = batch.span_offsets[i : i + 2]
        spans = list(zip(batch.span_content[start:stop].tolist(), batch.span_tokens[start:stop].tolist(), strict=True))
        before = last.get(batch.sessions[i], [])
        assert spans[: len(before)] == before
        assert batch.prompt_spans[i] == len(spans) - 1
        assert not before or len(spans) == len(before) + 2
        repeated += sum(tokens for _, tokens in before)
        last[batch.sessions[i]] = spans
    assert batch.prompt_tokens.max() <= 120_000
    assert repeated / batch.prompt_tokens.sum() == pytest.approx(0.94, abs=0.02)


def test_turns_arrive_in_order_and_sessions_interleave(read: Any) -> None:
    batch = read(synthetic=AGENTIC)
    turns: dict[str | None, int] = {}
    for name, session in zip(batch.ids, batch.sessions, strict=True):
        assert name == f"{session}.{turns.get(session, 0)}"
        turns[session] = turns.get(session, 0) + 1
    assert len(set(batch.sessions[:200])) > 5


def test_a_closed_loop_waits_where_the_open_one_has_a_gap(read: Any) -> None:
    opened = read(synthetic=AGENTIC)
    closed = read(synthetic=AGENTIC | {"sessions": AGENTIC["sessions"] | {"closed_loop": True}})
    row = {name: i for i, name in enumerate(opened.ids)}
    same = [row[name] for name in closed.ids if name in row]
    assert len(same) > 0.9 * len(closed)
    starts = {name: opened.arrival_ns[row[f"{name}.0"]] for name in set(opened.sessions)}
    for i, (name, session) in enumerate(zip(closed.ids, closed.sessions, strict=True)):
        turn = int(closed.turn[i])
        if name not in row or session not in starts:
            continue
        assert closed.arrival_ns[i] == starts[session]
        assert closed.prompt_tokens[i] == opened.prompt_tokens[row[name]]
        before = opened.arrival_ns[row[f"{session}.{turn - 1}"]] if turn else 0
        assert closed.think_ns[i] == (opened.arrival_ns[row[name]] - before if turn else -1)


def test_tool_calls_run_side_by_side_on_what_their_session_wrote(read: Any) -> None:
    calls = {"share": 0.5, "calls": {"kind": "uniform", "min": 2, "max": 4}, "new_tokens": 70, "output_tokens": 9}
    sessions = AGENTIC["sessions"] | {"closed_loop": True, "tool_calls": calls | {"wait_s": 0.25}}
    batch = read(synthetic=AGENTIC | {"sessions": sessions, "requests": 3000})
    paths = [path(batch, i) for i in range(len(batch))]
    main = {name: i for i, name in enumerate(batch.ids) if name.count(".") == 1}
    called: Counter[tuple[Any, int]] = Counter()
    for i, name in enumerate(batch.ids):
        assert batch.turn[i] % 2 == (name.count(".") == 2)
        if name.count(".") == 2:
            parent = main[name.rpartition(".")[0]]
            assert paths[i][:-2] == paths[parent]
            assert paths[i][-2][1] == 70
            assert batch.think_ns[i] == 250_000_000
            assert batch.turn[i] == batch.turn[parent] + 1
            called[batch.sessions[i], int(batch.turn[i])] += 1
    assert len(batch) == 3000
    assert {2, 3, 4} <= set(called.values())
    own = [span for i, name in enumerate(batch.ids) if name.count(".") == 2 for span in paths[i][-2:]]
    assert len(set(own)) == len(own)


def test_a_shared_prefix_grows(read: Any) -> None:
    growing = {"tokens": 100, "grow_tokens": 7, "grow_every_s": 10}
    batch = read(synthetic=PLAIN | {"shared_prefix": growing, "requests": 500})
    first = batch.span_offsets[:-1]
    assert batch.span_tokens[first].tolist() == (100 + 7 * (batch.arrival_ns // (10 * 10**9))).tolist()
    assert len(set(batch.span_content[first].tolist())) == 1
    assert len(set(batch.span_tokens[first].tolist())) > 2


def path(batch: Any, i: int) -> list[tuple[int, int]]:
    """The spans of one request."""
    where = slice(*batch.span_offsets[i : i + 2])
    return list(zip(batch.span_content[where].tolist(), batch.span_tokens[where].tolist(), strict=True))


def test_private_content_is_never_shared(read: Any) -> None:
    batch = read(synthetic=PLAIN)
    assert len(np.unique(batch.span_content)) == 2 * len(batch)


@pytest.mark.parametrize("config", [PLAIN, AGENTIC | {"requests": 0}], ids=["plain", "sessions"])
def test_a_long_stream_needs_no_more_memory(opened: Any, config: dict[str, Any]) -> None:
    peaks = []
    for requests in (20_000, 80_000):
        workload = opened(synthetic=config | {"requests": requests})
        tracemalloc.start()
        assert sum(map(len, workload.batches(512))) == requests
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_describe_says_what_was_generated(opened: Any) -> None:
    workload = opened(seed=9, synthetic=PLAIN)
    assert (workload.name, workload.expected_requests) == ("synthetic", 20_000)
    described = workload.describe()
    assert (described["parameters"], described["seed"], described["requests"]) == (PLAIN, 9, 0)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"request": 5}, r"workload\.synthetic: unknown key 'request' \(did you mean 'requests'\?\)"),
    "no requests": ({"requests": None}, r"workload\.synthetic: missing key 'requests'"),
    "zero requests": ({"requests": 0}, r"synthetic\.requests: 0 given; allowed: whole numbers from 1"),
    "no arrival": ({"arrival": None}, "missing key 'arrival'"),
    "arrival kind": ({"arrival": {"kind": "poison"}}, r"arrival: unknown kind 'poison' \(did you mean 'poisson'\?\)"),
    "rate 0": ({"arrival": {"kind": "poisson", "rate_per_s": 0}}, r"rate_per_s: 0 given; allowed: numbers above 0"),
    "no rate": ({"arrival": {"kind": "poisson"}}, "arrival: missing key 'rate_per_s'"),
    "rate for all at once": ({"arrival": {"kind": "all_at_once", "rate_per_s": 1}}, "unknown key 'rate_per_s'"),
    "cv of poisson": ({"arrival": POISSON | {"cv": 2}}, "arrival: unknown key 'cv'"),
    "cv 0": ({"arrival": {"kind": "gamma", "rate_per_s": 1, "cv": 0}}, "cv: 0 given; allowed: numbers from 0.01"),
    "too slow": ({"arrival": {"kind": "constant", "rate_per_s": 1e-6}}, "beyond 10\\^9 s; allowed: a higher rate"),
    "prompt 0": ({"prompt_tokens": 0}, "synthetic.prompt_tokens: 0 given; allowed: whole numbers from 1 to 1000000000"),
    "prompt as text": ({"prompt_tokens": "many"}, "synthetic.prompt_tokens: 'many' given"),
    "length kind": ({"prompt_tokens": {"kind": "normal"}}, "prompt_tokens: unknown kind 'normal'"),
    "length key": (
        {"prompt_tokens": {"kind": "fixed", "values": 3}},
        r"unknown key 'values' \(did you mean 'value'\?\)",
    ),
    "mean and median": (
        {"output_tokens": {"kind": "lognormal", "mean": 5, "median": 5, "cv": 1}},
        "exactly one of mean",
    ),
    "no spread": ({"output_tokens": {"kind": "lognormal", "mean": 5}}, "exactly one of cv and sigma"),
    "min above max": ({"output_tokens": {"kind": "uniform", "min": 5, "max": 3}}, "min: 5 is above max, 3"),
    "no values": (
        {"output_tokens": {"kind": "empirical", "values": []}},
        "expected a list of one or more whole numbers",
    ),
    "a bad value": (
        {"output_tokens": {"kind": "empirical", "values": [1, 0]}},
        "expected a list of one or more whole num",
    ),
    "weights": ({"output_tokens": {"kind": "empirical", "values": [1], "weights": [1, 2]}}, "2 weights for 1 values"),
    "weights of 0": ({"output_tokens": {"kind": "empirical", "values": [1], "weights": [0]}}, "sum to a finite number"),
    "values and trace": ({"output_tokens": {"kind": "empirical"}}, "exactly one of values and trace"),
    "trace is missing": ({"output_tokens": {"kind": "empirical", "trace": "no.csv"}}, "no.csv: no such trace file"),
    "column": (
        {"output_tokens": {"kind": "empirical", "trace": "sample:azure-conv-2023", "column": "x"}},
        "column 'x'",
    ),
    "share above 1": ({"shared_prefix": {"tokens": 5, "share": 1.2}}, "share: 1.2 given; allowed: numbers from 0 to 1"),
    "prefix of nothing": ({"shared_prefix": {"pools": 2}}, "shared_prefix: missing key 'tokens'"),
    "prefix is a list": ({"shared_prefix": [1]}, r"shared_prefix: expected a mapping of pools, tokens, .* got \[1\]"),
    "sessions key": ({"sessions": {"turn": 3}}, r"sessions: unknown key 'turn' \(did you mean 'turns'\?\)"),
    "think in traces": (
        {
            "sessions": {
                "turns": 3,
                "new_tokens": 5,
                "think_s": {"kind": "empirical", "trace": "sample:azure-conv-2023"},
            }
        },
        "a trace gives token counts, not seconds",
    ),
    "negative think": (
        {"sessions": {"turns": 3, "new_tokens": 5, "think_s": -1}},
        "think_s: -1 given; allowed: numbers fr",
    ),
    "long think": ({"sessions": {"turns": 9, "new_tokens": 5, "think_s": 5e8}}, "a session lasts beyond 10\\^9 s"),
    "long context": (
        {"sessions": {"turns": 9, "new_tokens": 500_000_000, "think_s": 1}},
        "a prompt grows beyond 10\\^9 tokens",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_setting_gets_one_line(name: str, opened: Any) -> None:
    change, expected = BAD[name]
    with pytest.raises(WorkloadError, match=expected):
        list(opened(synthetic=PLAIN | change).batches(100))


def test_synthetic_that_is_no_mapping(tmp_path: Any) -> None:
    with pytest.raises(WorkloadError, match=r"workload\.synthetic: expected a mapping of requests, arrival"):
        open_workload({"synthetic": 3}, tmp_path, 0)
