"""Several oracles at work on one stream of cases, each with a process of vLLM of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from tests.oracle.cases import Case
from tests.oracle.difference import Difference, Line, Tally
from tests.oracle.oracle import Oracle
from tests.oracle.session import Session

AHEAD = 4
"""Cases handed out per oracle before the first of them is waited for."""


class Team:
    """Sessions that share a stream of cases; a context manager. What differs does not depend on their number."""

    def __init__(self, python: Path | str, our_side: Callable[[Case], Iterator[Line]], workers: int) -> None:
        self._stack = ExitStack()
        self.sessions = [Session(self._stack.enter_context(Oracle(python)), our_side) for _ in range(workers)]
        self._idle: SimpleQueue[Session] = SimpleQueue()
        for session in self.sessions:
            self._idle.put(session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def total(self) -> Tally:
        """What all sessions have compared so far."""
        total = Tally()
        for session in self.sessions:
            total += session.total
        return total

    @property
    def version(self) -> str:
        """The release that answered; empty before the first answer."""
        return max(session.version for session in self.sessions)

    def differences(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Difference]]:
        """The cases that differ, in the order of the cases. Raises OracleError where a side of vLLM breaks down."""
        pending: deque[tuple[Case, Future[Difference | None]]] = deque()
        with ThreadPoolExecutor(len(self.sessions)) as pool:
            try:
                for case in cases:
                    pending.append((case, pool.submit(self._compare, case)))
                    if len(pending) == AHEAD * len(self.sessions):
                        yield from _differing(*pending.popleft())
                while pending:
                    yield from _differing(*pending.popleft())
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def explain(self, case: Case, found: Difference) -> Case:
        """Shrink a failing case and print it with its first difference; the small case."""
        with self._session() as session:
            return session.explain(case, found)

    def _compare(self, case: Case) -> Difference | None:
        with self._session() as session:
            return session.compare(case)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """A session that nobody else uses meanwhile."""
        session = self._idle.get()
        try:
            yield session
        finally:
            self._idle.put(session)


def _differing(case: Case, answer: Future[Difference | None]) -> Iterator[tuple[Case, Difference]]:
    difference = answer.result()
    if difference is not None:
        yield case, difference
