"""What an unlimited cache would still know: the texts a run has put through the engine, and which states it kept.

A growing map from 64-bit names to two numbers, never emptied. Texts are remembered by span: the base of a span names
all that precedes it and its content, so the longest known prefix of a request is found span by span, to the token:

    request   | span A, 100 tokens | span B, 50 tokens | ...
    known     | A: 100 of it       | B: 30 of it       | -> 130 tokens

All arrays are empty in a run that is not explained, and then nothing is remembered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core._jit import apart, compiled, i64, inlined
from sim.core.hashing import END, NO_KEY, START, Spans, seek

OFFERED, ADMITTED = range(2)
"""Of a span: its tokens offered to the prefix cache or processed; those of requests that were admitted."""
RESET_COLUMN = 1
"""Of a block's key: 1 while it is missing because a reset of the prefix cache took it."""
NUM_SEEN, SEEN_RESERVE, LOST_ROWS, NAMES_PER_STEP, NUM_RESETS = range(5)

EAGLE_DROP, WINDOW_GAP, RESET, EVICTED, NEVER_KEPT, NOT_FINAL, NO_STATE, ALIGNMENT, REPLAY = range(9)
"""Why tokens were not hit; what each means stands in :mod:`sim.core.lost_hits`."""
NUM_CAUSES = 9
L_ORDINAL, L_RESUMED, L_TOKENS, L_HIT, L_SEEN, L_ADMITTED, L_LOST = range(7)
L_GROUP = L_LOST + NUM_CAUSES
LOST_FIELDS = L_GROUP + NUM_CAUSES
"""A row of ``lost``: the request, whether it was preempted before, its tokens, its hit, the prefix that was seen and
the one that admitted requests hold (at most all tokens but the last); then the tokens lost to each cause, and the group
that could not resume, -1 where nothing was lost or all groups are alike."""

FIRST_PLACES = 1 << 12
_UPPER = np.uint64(24)


class Seen(NamedTuple):
    """Names of spans and of kept boundaries, and a row for each admission explained (:mod:`sim.core.lost_hits`)."""

    key: NDArray[np.uint64]  # [N] open addressing, N a power of two; NO_KEY = empty place
    value: NDArray[np.int32]  # [N, 2]
    counters: NDArray[np.int64]  # [5] names, names there must be room for, rows of ``lost``, names a step adds, resets
    lost: NDArray[np.int32]  # [rows, LOST_FIELDS]
    scratch: NDArray[np.int64]  # [7, specs or stages] of the explanation in progress


def make_seen(places: int, rows: int, specs: int, names_per_step: int) -> Seen:
    """An empty memory for ``rows`` admissions; with ``places`` 0 one that remembers nothing.

    ``names_per_step``: the most names of kept blocks that one step can add.
    """
    width = max(specs, NUM_CAUSES) if places else 0
    return Seen(
        np.zeros(places, np.uint64),
        np.zeros((places, 2), np.int32),
        np.array([0, 0, 0, names_per_step, 0], np.int64),
        np.zeros((rows if places else 0, LOST_FIELDS), np.int32),
        np.zeros((7, width), np.int64),
    )


@inlined
def _first_place(seen: Seen, key: np.uint64) -> int:
    """Where the search for a name begins: its upper bits, since the lower ones of a text's keys follow each other."""
    return i64((key >> _UPPER) & np.uint64(seen.key.size - 1))


@apart
def find(seen: Seen, key: np.uint64) -> int:
    """The place of a name, or -1."""
    mask = seen.key.size - 1
    place = _first_place(seen, key)
    while seen.key[place] != NO_KEY:
        if seen.key[place] == key:
            return place
        place = (place + 1) & mask
    return -1


@apart
def raise_to(seen: Seen, key: np.uint64, column: int, value: int) -> int:
    """Let a name's number be at least ``value``; returns what it was before."""
    mask = seen.key.size - 1
    place = _first_place(seen, key)
    while seen.key[place] != key and seen.key[place] != NO_KEY:
        place = (place + 1) & mask
    if seen.key[place] == NO_KEY:
        seen.key[place] = key
        seen.counters[NUM_SEEN] += 1
    before = i64(seen.value[place, column])
    if value > before:
        seen.value[place, column] = value
    return before


@apart
def note_reset(seen: Seen, keys: NDArray[np.uint64], rows: int) -> None:
    """Remember that a reset of the prefix cache takes the keys of the first ``rows`` rows of the pool."""
    seen.counters[NUM_RESETS] += 1
    for row in range(rows):
        if keys[row] != NO_KEY:
            raise_to(seen, keys[row], RESET_COLUMN, 1)


@inlined
def was_reset(seen: Seen, key: np.uint64) -> bool:
    """Whether a key was there until a reset of the prefix cache, and has not been given since."""
    place = find(seen, key)
    return bool(place >= 0 and seen.value[place, RESET_COLUMN] != 0)


@inlined
def note_given(seen: Seen, key: np.uint64) -> None:
    """Remember that a key is there again."""
    place = find(seen, key)
    if place >= 0:
        seen.value[place, RESET_COLUMN] = 0


@apart
def note_text(seen: Seen, spans: Spans, first: int, tokens: int, column: int) -> None:
    """Remember the first ``tokens`` tokens of the text whose spans begin at ``first``.

    From the last span backwards, until one is known as a whole: those before it are known then.
    """
    if tokens <= 0:
        return
    cursor = seek(spans, first, tokens)
    last = cursor
    while cursor >= first:
        length = min(spans.bounds[cursor, END], tokens) - spans.bounds[cursor, START]
        if raise_to(seen, spans.base[cursor], column, i64(length)) >= length and cursor < last:
            return
        cursor -= 1


@apart
def known_prefix(seen: Seen, spans: Spans, first: int, tokens: int, column: int) -> int:
    """Tokens of the longest prefix, of at most ``tokens``, that is remembered."""
    cursor, known = first, 0
    while known < tokens:
        place = find(seen, spans.base[cursor])
        if place < 0:
            return known
        length = min(i64(spans.bounds[cursor, END]), tokens) - i64(spans.bounds[cursor, START])
        have = min(i64(seen.value[place, column]), length)
        known += have
        if have < length:
            return known
        cursor += 1
    return known


@inlined
def is_short(seen: Seen, width: int) -> bool:
    """Whether one more schedule(), which admits ``width`` requests at most, could fill half the map or all the rows."""
    if seen.key.size == 0:
        return False
    names = seen.counters[NUM_SEEN] + seen.counters[SEEN_RESERVE]
    return bool(4 * names > 3 * seen.key.size or seen.counters[LOST_ROWS] + width > seen.lost.shape[0])


@compiled
def _move(old: Seen, new: Seen) -> None:
    for place in range(old.key.size):
        if old.key[place] != NO_KEY:
            raise_to(new, old.key[place], 0, i64(old.value[place, 0]))
            raise_to(new, old.key[place], 1, i64(old.value[place, 1]))


def with_room(seen: Seen, spans: int) -> Seen:
    """The memory with room for ``spans`` more spans and a step's names, in larger arrays where these are too small."""
    reserve = spans + int(seen.counters[NAMES_PER_STEP])
    seen.counters[SEEN_RESERVE] = reserve
    names = int(seen.counters[NUM_SEEN]) + reserve
    if 4 * names <= 3 * seen.key.size:
        return seen
    places = 1 << (2 * names - 1).bit_length()
    grown = seen._replace(key=np.zeros(places, np.uint64), value=np.zeros((places, 2), np.int32))
    seen.counters[NUM_SEEN] = 0
    _move(seen, grown)
    return grown
