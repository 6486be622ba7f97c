"""Statistics of traces against slow and obvious countings: sets of token prefixes, lists as LRU caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.published import FACTS, shared
from workloads import RequestBatch, open_workload
from workloads.batch import concat, from_spans
from workloads.stats.prefixes import hit_tokens, whole_blocks
from workloads.stats.reuse import block_names, previous_use, reuse_distances, smaller_before, working_sets
from workloads.stats.summary import arrivals, describe

SPAN = st.tuples(st.integers(1, 3), st.integers(1, 5))
REQUEST = st.tuples(st.lists(SPAN, min_size=1, max_size=4), st.lists(SPAN, min_size=1, max_size=2))
REQUESTS = st.lists(REQUEST, min_size=1, max_size=12)


def batch_of(requests: list[Any]) -> RequestBatch:
    """Requests of given prompt and output spans, one a second."""
    spans = [span for prompt, output in requests for span in (*prompt, *output)]
    n = len(requests)
    return from_spans(
        [str(i) for i in range(n)],
        np.arange(n) * 10**9,
        np.array([sum(tokens for _, tokens in prompt) for prompt, _ in requests]),
        np.array([sum(tokens for _, tokens in output) for _, output in requests]),
        prompt_spans=np.array([len(prompt) for prompt, _ in requests]),
        span_counts=np.array([len(prompt) + len(output) for prompt, output in requests]),
        span_content=np.array([content for content, _ in spans], dtype=np.uint64),
        span_tokens=np.array([tokens for _, tokens in spans]),
    )


def tokens_of(spans: list[Any]) -> tuple[Any, ...]:
    """The tokens of spans: each by its text, its offset in it, and where the spans before ended."""
    found: list[Any] = []
    path: tuple[Any, ...] = ()
    for content, tokens in spans:
        found += [(path, content, offset) for offset in range(tokens)]
        path = (*path, (content, tokens))
    return tuple(found)


def slow_hits(requests: list[Any], *, answers: bool) -> list[int]:
    """Leading tokens of each prompt that are a prefix of something before it."""
    seen: set[tuple[Any, ...]] = set()
    hits = []
    for prompt, output in requests:
        tokens = tokens_of(prompt)
        hits.append(max((n for n in range(len(tokens) + 1) if n == 0 or tokens[:n] in seen), default=0))
        whole = tokens_of([*prompt, *output]) if answers else tokens
        seen |= {whole[:n] for n in range(1, len(whole) + 1)}
    return hits


@settings(max_examples=300, deadline=None)
@given(requests=REQUESTS, answers=st.booleans())
def test_hits_are_those_of_sets_of_prefixes(requests: list[Any], answers: bool) -> None:
    assert hit_tokens(batch_of(requests), answers=answers).tolist() == slow_hits(requests, answers=answers)


@settings(max_examples=200, deadline=None)
@given(requests=REQUESTS, size=st.integers(1, 4))
def test_names_of_blocks_are_equal_where_prefixes_are(requests: list[Any], size: int) -> None:
    owner, names = block_names(batch_of(requests), size)
    prefixes = [
        (i, tokens_of(prompt)[: stop * size])
        for i, (prompt, _) in enumerate(requests)
        for stop in range(1, len(tokens_of(prompt)) // size + 1)
    ]
    assert owner.tolist() == [i for i, _ in prefixes]
    by_name: dict[int, set[Any]] = {}
    for name, (_, prefix) in zip(names.tolist(), prefixes, strict=True):
        by_name.setdefault(name, set()).add(prefix)
    assert all(len(same) == 1 for same in by_name.values())
    assert len(by_name) == len({prefix for _, prefix in prefixes})


@settings(max_examples=200, deadline=None)
@given(accesses=st.lists(st.integers(0, 9), max_size=60))
def test_reuse_distances_are_places_in_an_lru_list(accesses: list[int]) -> None:
    stack: list[int] = []
    expected = []
    for name in accesses:
        if name in stack:
            expected.append(stack.index(name))
            stack.remove(name)
        stack.insert(0, name)
    assert reuse_distances(previous_use(np.array(accesses, dtype=np.uint64))).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(-3, 9), max_size=70))
def test_smaller_values_before(values: list[int]) -> None:
    expected = [sum(other <= value for other in values[:i]) for i, value in enumerate(values)]
    assert smaller_before(np.array(values, dtype=np.int64)).tolist() == expected


def test_working_sets_count_each_block_once_per_window() -> None:
    owner, names = np.array([0, 0, 1, 2]), np.array([7, 8, 7, 7], dtype=np.uint64)
    times = np.array([0, 59, 61]) * 10**9
    assert working_sets(owner, names, times, 16, (60, 3600)) == {60: 16 * 3 / 2, 3600: 32.0}


def test_poisson_arrivals_look_like_poisson() -> None:
    times = np.cumsum(np.random.default_rng(0).exponential(1e9 / 50, 200_000)).astype(np.int64)
    found = arrivals(times)
    assert found["rate_per_s"] == pytest.approx(50, rel=0.01)
    assert found["gap_cv"] == pytest.approx(1, abs=0.01)
    assert [found[f"dispersion_{w}s"] for w in (1, 10)] == pytest.approx([1, 1], abs=0.15)


def test_one_request_alone_has_statistics() -> None:
    stats = describe(batch_of([([(1, 5)], [(2, 3)])]), 16)
    assert stats["prefix_sharing"]["share"] == 0
    assert stats["arrivals"]["rate_per_s"] is None
    assert stats["reuse"]["lru"] == []


@pytest.mark.parametrize("name", [name for name, facts in FACTS.items() if facts.infinite_cache is not None])
def test_sharing_is_the_published_one(name: str) -> None:
    facts = FACTS[name]
    path = shared(facts.path)
    batch = concat(list(open_workload({"trace": path.name, **facts.settings}, path.parent, 0).batches(1 << 20)))
    share = hit_tokens(batch).sum() / batch.prompt_tokens.sum()
    assert share == pytest.approx(facts.infinite_cache, abs=0.0006)


@pytest.mark.parametrize(("name", "share"), [("mooncake conversation", 0.373), ("mooncake synthetic", 0.650)])
def test_sharing_in_whole_blocks_is_the_published_one(name: str, share: float) -> None:
    path = shared(FACTS[name].path)
    batch = concat(list(open_workload({"trace": str(path)}, path.parent, 0).batches(1 << 20)))
    hits = whole_blocks(hit_tokens(batch), batch.prompt_tokens, 512)
    assert hits.sum() / batch.prompt_tokens.sum() == pytest.approx(share, abs=0.0006)
