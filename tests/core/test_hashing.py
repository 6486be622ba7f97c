"""Names of prefixes, on texts small enough to see."""

from __future__ import annotations

import numpy as np

from sim.core.hashing import Spans, identity, link_spans, mix, prefix_name, seek


def link(*texts: list[tuple[int, int]], salts: list[int] | None = None) -> tuple[Spans, list[int]]:
    """Texts as lists of (content, tokens), linked; and where each one's spans begin."""
    flat = [span for text in texts for span in text]
    firsts = np.cumsum([0, *map(len, texts)])
    out = Spans(np.zeros(len(flat), np.uint64), np.zeros((len(flat), 2), np.int64))
    link_spans(
        np.array([content for content, _ in flat], np.uint64),
        np.array([tokens for _, tokens in flat], np.int64),
        firsts.astype(np.int64),
        np.array(salts or [0] * len(texts), np.uint64),
        out,
        0,
    )
    return out, firsts.tolist()


def name(spans: Spans, first: int, tokens: int) -> int:
    """The name of the first ``tokens`` tokens of the text whose spans begin at ``first``."""
    return int(prefix_name(spans, seek(spans, first, tokens), tokens))


def test_one_text_serves_every_block_size() -> None:
    spans, (one, other, _) = link([(7, 100)], [(7, 30), (9, 70)])
    assert [name(spans, one, n) == name(spans, other, n) for n in (1, 16, 30, 31, 100)] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_same_words_after_another_beginning_are_another_prefix() -> None:
    spans, (one, other, _) = link([(1, 4), (5, 8)], [(2, 4), (5, 8)])
    assert name(spans, one, 12) != name(spans, other, 12)


def test_a_text_begun_anew_is_not_its_continuation() -> None:
    spans, (one, other, _) = link([(1, 8)], [(1, 4), (1, 4)])
    assert name(spans, one, 4) == name(spans, other, 4)
    assert name(spans, one, 8) != name(spans, other, 8)


def test_a_salt_is_a_namespace() -> None:
    spans, (plain, salted, again, _) = link([(1, 8)], [(1, 8)], [(1, 8)], salts=[0, 3, 3])
    assert name(spans, plain, 8) != name(spans, salted, 8)
    assert name(spans, salted, 8) == name(spans, again, 8)


def test_the_arithmetic_is_that_of_64_bit_words() -> None:
    assert int(mix(np.uint64(0))) == 0
    assert int(mix(np.uint64(0x9E3779B97F4A7C15))) == 0xE220A8397B1DCDAF  # splitmix64's first output for seed 0
    assert int(identity(np.uint64(0), np.uint64(2))) == 0x6E789E6AA1B965F4  # and its second
    assert int(identity(np.uint64(2**64 - 1), np.uint64(1))) == int(mix(np.uint64(0x9E3779B97F4A7C14)))
