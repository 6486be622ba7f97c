"""Turns of recorded sessions: which number a request has, and how long after the answer before it came."""

from __future__ import annotations

from workloads.batch import OPEN_LOOP


class Turns:
    """Gives requests, in order of arrival, their turns.

    A request that comes before the answer to the one before it was complete runs beside it: it has the same turn.

    >>> turns = Turns()
    >>> [turns.next("s", 0, 10), turns.next("s", 12, 20), turns.next("s", 15, 30), turns.next("s", 31, 40)]
    [(0, -1), (1, 2), (1, 5), (2, 1)]
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int, int]] = {}

    def next(self, session: str, arrival_ns: int, end_ns: int) -> tuple[int, int]:
        """Turn and think time (`OPEN_LOOP` in the first turn) of a request and its answer's end."""
        before = self._last.get(session)
        if before is None:
            self._last[session] = (0, arrival_ns, end_ns)
            return 0, OPEN_LOOP
        turn, answered, end = before
        if arrival_ns < end:
            self._last[session] = (turn, answered, max(end, end_ns))
            return turn, arrival_ns - answered if turn else OPEN_LOOP
        self._last[session] = (turn + 1, end, end_ns)
        return turn + 1, arrival_ns - end
