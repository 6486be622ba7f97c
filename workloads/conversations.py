"""Which requests of a batch wait for each other: sessions whose turns follow the answers, turn by turn."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from workloads.batch import OPEN_LOOP, RequestBatch

Conversation: TypeAlias = list[list[int]]
"""Turn by turn the rows of the requests that are sent together; each turn waits for the answers to the one before."""


def conversations(batch: RequestBatch) -> list[Conversation]:
    """The requests of a batch by conversation, in order of their first requests.

    A request that waits for no other, in a session where none does, is a conversation of its own::

        row        0     1     2     3     4        -> [[[0]], [[1], [3, 4]], [[2]]]
        session    -     A     -     A     A
        turn       0     0     0     1     1
        think_ns  -1    -1    -1     5     9

    >>> from workloads.batch import from_table
    >>> content, tokens = np.ones((5, 2), np.uint64), np.full((5, 2), 4)
    >>> sessions, turns = [None, "A", None, "A", "A"], np.array([0, 0, 0, 1, 1])
    >>> waits = {"sessions": sessions, "turn": turns, "think_ns": np.array([-1, -1, -1, 5, 9])}
    >>> conversations(from_table(list("abcde"), np.zeros(5, np.int64), content, tokens, **waits))
    [[[0]], [[1], [3, 4]], [[2]]]
    """
    waiting = batch.think_ns > OPEN_LOOP
    if not waiting.any():
        return [[[row]] for row in range(len(batch))]
    closed = {batch.sessions[row] for row in np.flatnonzero(waiting).tolist()}
    found: list[Conversation] = []
    last: dict[str | None, tuple[Conversation, int]] = {}
    for row, (session, turn) in enumerate(zip(batch.sessions, batch.turn.tolist(), strict=True)):
        if session in closed and session in last:
            talk, before = last[session]
            if turn == before:
                talk[-1].append(row)
                continue
            talk.append([row])
        else:
            talk = [[row]]
            found.append(talk)
        last[session] = (talk, turn)
    return found
