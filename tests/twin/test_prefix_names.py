"""Names of prefixes: equal exactly when the tokens up to there are equal, whatever spans they came in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sim.core.hashing import NO_KEY, Spans, block_key, link_spans, prefix_name, seek
from tests.twin.ours import arrivals
from tests.twin.settings import Ask, Span, Token, ask

spans = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4)
texts = st.lists(st.tuples(spans, st.integers(0, 2)), min_size=1, max_size=5)


def linked(asks: list[Ask]) -> tuple[Spans, list[int]]:
    """The spans of requests as the core links them, and where each request's begin."""
    window = arrivals(asks)
    room = window.span_content.size + 3
    out = Spans(np.zeros(room, np.uint64), np.zeros((room, 2), np.int64))
    link_spans(window.span_content, window.span_tokens, window.span_offsets, window.salt, out, 3)
    return out, (window.span_offsets[:-1] + 3).tolist()


def names_of(given_texts: list[tuple[list[Span], int]]) -> list[tuple[int, tuple[Token, ...], int]]:
    """(salt, tokens, name) of every prefix of every text."""
    asks = [ask(f"r{i}", 0, text, said=((9, 1),), salt=salt) for i, (text, salt) in enumerate(given_texts)]
    out, firsts = linked(asks)
    found = []
    for request, first in zip(asks, firsts, strict=True):
        cursor = first
        for end in range(1, len(request.tokens) + 1):
            cursor = seek(out, cursor, end)
            found.append((request.salt, request.tokens[:end], int(prefix_name(out, cursor, end))))
    return found


@given(texts)
@hypothesis_settings(max_examples=300)
def test_equal_names_mean_equal_tokens(given_texts: list[tuple[list[Span], int]]) -> None:
    by_name: dict[int, tuple[int, tuple[Token, ...]]] = {}
    by_tokens: dict[tuple[int, tuple[Token, ...]], int] = {}
    for salt, tokens, name in names_of(given_texts):
        assert by_name.setdefault(name, (salt, tokens)) == (salt, tokens)
        assert by_tokens.setdefault((salt, tokens), name) == name


@given(spans, st.data())
def test_the_cursor_may_start_anywhere(text: list[Span], data: st.DataObject) -> None:
    out, (first,) = linked([ask("r", 0, text, said=((9, 1),))])
    total = sum(count for _, count in text) + 1
    end = data.draw(st.integers(1, total))
    start = data.draw(st.integers(first, first + len(text)))
    cursor = seek(out, start, end)
    assert out.bounds[cursor, 0] < end <= out.bounds[cursor, 1]


@given(st.integers(0, 2**64 - 1), st.integers(0, 7), st.integers(0, 7))
def test_groups_have_keys_of_their_own(name: int, one: int, other: int) -> None:
    first = block_key(np.uint64(name), np.uint64(one))
    second = block_key(np.uint64(name), np.uint64(other))
    assert (first == second) == (one == other)
    assert first != NO_KEY
