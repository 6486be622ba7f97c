"""Compare the project with vLLM's own scheduler, step by step (`make oracle`).

    python tests/oracle/compare.py                        # 300 random cases, the Mooncake trace, sessions
    python tests/oracle/compare.py --only a --cases 2000 --seed 7
    python tests/oracle/compare.py --long                 # ten times the random cases, of another seed
    python tests/oracle/compare.py --case failing.json    # one case from a file, as printed by a failing run
    python tests/oracle/compare.py --vllm 0.34.0          # another release: lists first differences, does not fail

Ends with 1 at the first difference, after printing the smallest failing configuration found and the first differing
step, and with a line of what was compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.oracle import build_venv
from tests.oracle.cases import Case, mooncake_cases, random_case, session_cases
from tests.oracle.difference import Comparison, Difference, Line, Tally
from tests.oracle.oracle import Oracle, OracleError
from tests.oracle.shrink import shrink

LONG = 10
MUST_HAPPEN = ("hits", "preemptions", "evictions", "states")
"""What has to occur in a full set of random cases, or the comparison looks at nothing."""


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 equal (or listing), 1 a difference, 2 the comparison could not be made."""
    options = _options(arguments)
    version = options.vllm or build_venv.pinned_version()
    listing = options.list_differences or version != build_venv.pinned_version()
    python = options.python or build_venv.python_of(build_venv.folder(version))
    if not Path(python).exists():
        print(
            f"{python} is missing: run tests/oracle/build, or name the oracle's Python with --python", file=sys.stderr
        )
        return 2
    from tests.oracle.our_side import our_side

    began = time.monotonic()
    total, differing = Tally(), 0
    with Oracle(python) as oracle:
        session = _Session(oracle, our_side, total)
        try:
            for case in _cases(options):
                difference = session.compare(case)
                if difference is None:
                    continue
                differing += 1
                print(f"{case['name']}: {difference}", flush=True)
                if not listing:
                    session.explain(case, difference)
                    break
        except OracleError as error:
            print(error, file=sys.stderr)
            return 2
    print(
        f"vLLM {session.version or version}, {time.monotonic() - began:.0f} s: {total}: {differing or 'no'} differences"
    )
    if listing:
        return 0
    return 1 if differing or not _saw_enough(options, total) else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", type=Path, help="Python of an environment with vLLM (default: tests/oracle/build's)"
    )
    parser.add_argument("--vllm", help="another release, built by tests/oracle/build VERSION")
    parser.add_argument("--cases", type=int, default=300, help="random cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random cases (default: %(default)s)")
    parser.add_argument("--only", choices=["a", "b", "c"], help="a random, b Mooncake trace, c sessions")
    parser.add_argument("--trace-requests", type=int, default=1000, help="of the Mooncake trace (default: %(default)s)")
    parser.add_argument("--long", action="store_true", help=f"{LONG} times the random cases")
    parser.add_argument("--list-differences", action="store_true", help="go on after a difference, end with 0")
    parser.add_argument("--case", type=Path, help="compare the one case in this JSON file")
    return parser.parse_args(arguments)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    if options.case is not None:
        yield json.loads(options.case.read_text())
        return
    wanted = options.only or "abc"
    if "a" in wanted:
        count = options.cases * (LONG if options.long else 1)
        yield from _announced("random", (random_case(options.seed, index) for index in range(count)), count)
    if "c" in wanted:
        yield from _announced("sessions", session_cases(options.seed), None)
    if "b" in wanted:
        cases = list(mooncake_cases(options.trace_requests))
        if not cases:
            print("Mooncake trace: skipped, ../shared/data/traces/mooncake is not here")
        yield from _announced("Mooncake trace", cases, len(cases))


def _announced(what: str, cases: Iterable[Case], count: int | None) -> Iterator[Case]:
    for number, case in enumerate(cases, 1):
        if count is None or count < 20 or number % 50 == 0:
            print(f"{what}: {number}{f' of {count}' if count else ''}", flush=True)
        yield case


def _saw_enough(options: argparse.Namespace, total: Tally) -> bool:
    missing = [name for name in MUST_HAPPEN if getattr(total, name) == 0]
    if options.case or options.cases < 100 or options.only in ("b", "c") or not missing:
        return True
    print(f"these cases show nothing: no {', no '.join(missing)} happened", file=sys.stderr)
    return False


class _Session:
    """One oracle, our side, and the running tally."""

    def __init__(self, oracle: Oracle, our_side: Callable[[Case], Iterator[Line]], total: Tally) -> None:
        self.oracle, self.our_side, self.total = oracle, our_side, total
        self.version = ""

    def compare(self, case: Case) -> Difference | None:
        """The first difference of a case; adds to the tally."""
        comparison = Comparison(Tally(cases=1))
        difference = self._run(comparison, case)
        self.version = comparison.version or self.version
        for item in fields(Tally):
            setattr(self.total, item.name, getattr(self.total, item.name) + getattr(comparison.tally, item.name))
        return difference

    def _run(self, comparison: Comparison, case: Case) -> Difference | None:
        theirs = self.oracle.lines(case)
        try:
            return comparison.run(self._guarded(case), theirs)
        finally:
            theirs.close()  # type: ignore[attr-defined]

    def _guarded(self, case: Case) -> Iterator[Line]:
        """Our lines; an exception of ours is a difference, not the end of the run."""
        try:
            yield from self.our_side(case)
        except Exception as error:  # noqa: BLE001
            yield {"raised": f"{type(error).__name__}: {error}"}

    def explain(self, case: Case, found: Difference) -> None:
        """Shrink a failing case and print it with its first difference."""
        print("shrinking (up to a minute) …", flush=True)
        small = shrink(case, lambda candidate: self._differs(candidate, found))
        difference = self._run(Comparison(), small)
        print(f"smallest failing case (save it and run --case FILE):\n{json.dumps(small)}\n{difference}", flush=True)

    def _differs(self, candidate: Case, found: Difference) -> bool:
        """Whether a smaller case still shows a difference of the sort found."""
        try:
            difference = self._run(Comparison(), candidate)
        except OracleError:  # nothing vLLM can be asked
            return False
        return difference is not None and difference.sort == found.sort


if __name__ == "__main__":
    sys.exit(main())
