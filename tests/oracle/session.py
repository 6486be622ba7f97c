"""One oracle, our side, and what was compared so far."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

from tests.oracle.case_layers import kinds_of
from tests.oracle.cases import Case
from tests.oracle.difference import Comparison, Difference, Line, Tally
from tests.oracle.oracle import Oracle, OracleError
from tests.oracle.shrink import shrink


class Session:
    """One oracle, our side, and the running tally."""

    def __init__(self, oracle: Oracle, our_side: Callable[[Case], Iterator[Line]]) -> None:
        self.oracle, self.our_side = oracle, our_side
        self.total = Tally()
        self.version = ""

    def compare(self, case: Case) -> Difference | None:
        """The first difference of a case; adds to the tally."""
        comparison = Comparison(Tally(cases=1))
        difference = self._run(comparison, case)
        self.version = comparison.version or self.version
        ran = not comparison.tally.refused
        comparison.tally.kinds.update(kinds_of(case["config"]) + ["resets"] * ("resets" in case) if ran else ())
        self.total += comparison.tally
        return difference

    def _run(self, comparison: Comparison, case: Case) -> Difference | None:
        with closing(self.oracle.lines(case)) as theirs:
            return comparison.run(self._guarded(case), theirs)

    def _guarded(self, case: Case) -> Iterator[Line]:
        """Our lines; an exception of ours is a difference, not the end of the run."""
        try:
            yield from self.our_side(case)
        except Exception as error:  # noqa: BLE001
            yield {"raised": f"{type(error).__name__}: {error}"}

    def explain(self, case: Case, found: Difference) -> Case:
        """Shrink a failing case and print it with its first difference; the small case."""
        print("shrinking (up to a minute) …", flush=True)
        small = shrink(case, lambda candidate: self._differs(candidate, found))
        difference = self._run(Comparison(), small)
        print(f"smallest failing case (save it and run --case FILE):\n{json.dumps(small)}\n{difference}", flush=True)
        return small

    def _differs(self, candidate: Case, found: Difference) -> bool:
        """Whether a smaller case still shows a difference of the sort found."""
        try:
            difference = self._run(Comparison(), candidate)
        except OracleError:  # nothing vLLM can be asked
            return False
        return difference is not None and difference.sort == found.sort
