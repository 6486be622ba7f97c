"""Compare the project with vLLM's own scheduler, step by step (`make oracle`).

    python tests/oracle/compare.py                        # random cases of four sorts, sessions, real models, trace
    python tests/oracle/compare.py --only d --cases 2000 --seed 7
    python tests/oracle/compare.py --long                 # ten times the random cases, all four runs of the trace
    python tests/oracle/compare.py --forever              # random cases until stopped; saves the smallest failing one
    python tests/oracle/compare.py --case failing.json    # one case from a file, as printed by a failing run
    python tests/oracle/compare.py --vllm 0.34.0          # another release: lists first differences, does not fail

Ends with 1 at the first difference, after printing the smallest failing configuration found and the first differing
step, and with a line of what was compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.oracle import build_venv
from tests.oracle.cases import (
    Case,
    draft_case,
    kind_case,
    mooncake_cases,
    random_case,
    rare_case,
    remote_case,
    session_cases,
    with_extras,
)
from tests.oracle.difference import Tally
from tests.oracle.oracle import OracleError
from tests.oracle.real_models import real_cases
from tests.oracle.team import Team

LONG = 10
MUST_HAPPEN = ("hits", "preemptions", "evictions", "states")
"""What has to occur in a full set of random cases, or the comparison looks at nothing."""
MUST_RUN = (
    *("full_attention", "sliding_window", "chunked_local_attention", "mamba none", "mamba align", "mla_attention"),
    *("sliding_window_mla", "hidden_state", "circular_buffer", "rswa"),
)
"""Kinds of layers that have to run in a full set of random cases of every kind."""
RARE_MUST_RUN = ("cross_attention", "bounded_replay", "context parallel")
EXTRA_MUST_RUN = ("kv events", "resets")
"""The same of the cases of what few models have, and of random cases of any sort."""
MUST_HAPPEN_WITH_DRAFTS = ("drafts", "rejected", "looked_ahead", "dropped")
"""What has to occur in a full set of random cases with drafts."""


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
    with Team(python, our_side, options.workers) as team:
        try:
            differing = _compare(team, options, listing=listing)
        except OracleError as error:
            print(error, file=sys.stderr)
            return 2
    seconds = time.monotonic() - began
    print(f"vLLM {team.version or version}, {seconds:.0f} s: {team.total}: {differing or 'no'} differences")
    if listing:
        return 0
    return 1 if differing or not _saw_enough(options, team.total) else 0


def _compare(team: Team, options: argparse.Namespace, *, listing: bool) -> int:
    """How many cases differ: all where they are listed, else 1 at most, or those found until the user stops it."""
    differing, saved = 0, Smallest(options.save) if options.forever else None
    try:
        for case, difference in team.differences(_cases(options)):
            differing += 1
            print(f"{case['name']}: {difference}", flush=True)
            if listing:
                continue
            if saved is not None:
                saved.offer(case)
            small = team.explain(case, difference)
            if saved is None:
                break
            saved.offer(small)
    except KeyboardInterrupt:
        print("stopped")
    return differing


class Smallest:
    """Keeps the smallest case offered, in a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, sys.maxsize

    def offer(self, case: Case) -> None:
        """Save the case if it is smaller than any before."""
        text = json.dumps(case)
        if len(text) < self.size:
            self.size = len(text)
            self.path.write_text(text + "\n")
            print(f"saved in {self.path}", flush=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", type=Path, help="Python of an environment with vLLM (default: tests/oracle/build's)"
    )
    parser.add_argument("--vllm", help="another release, built by tests/oracle/build VERSION")
    parser.add_argument("--cases", type=int, default=500, help="random cases of each sort (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random cases (default: %(default)s)")
    parser.add_argument(
        "--only",
        choices=["a", "b", "c", "d", "e", "f", "g"],
        help="a random with full and sliding-window layers, b Mooncake trace, c sessions, d every kind and real models,"
        " e what few models have, f drafts over every kind",
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes of vLLM (default: %(default)s)"
    )
    parser.add_argument("--trace-requests", type=int, default=1000, help="of the Mooncake trace (default: %(default)s)")
    parser.add_argument("--long", action="store_true", help=f"{LONG} times the random cases")
    parser.add_argument("--forever", action="store_true", help="random cases of the four sorts until stopped")
    parser.add_argument(
        "--save",
        type=Path,
        default=Path("oracle-failing-case.json"),
        help="where --forever keeps the smallest failing case (default: %(default)s)",
    )
    parser.add_argument("--list-differences", action="store_true", help="go on after a difference, end with 0")
    parser.add_argument("--case", type=Path, help="compare the one case in this JSON file")
    return parser.parse_args(arguments)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    """The cases asked for, each sort announced."""
    if options.case is not None:
        yield json.loads(options.case.read_text())
        return
    wanted = options.only or "abcdefg"
    if options.forever:
        every = (("a", random_case), ("d", kind_case), ("e", rare_case), ("f", draft_case))
        made = [make for sort, make in every if sort in wanted]
        endless = (with_extras(make, options.seed, index) for index in itertools.count() for make in made)
        yield from _announced("random", endless, None)
    count = options.cases * (LONG if options.long else 1)

    def drawn(make: Callable[[int, int], Case]) -> Iterator[Case]:
        return (with_extras(make, options.seed, index) for index in range(count))

    if "a" in wanted:
        yield from _announced("random", drawn(random_case), count)
    if "c" in wanted:
        yield from _announced("sessions", session_cases(options.seed), None)
    if "d" in wanted:
        yield from _announced("every kind", drawn(kind_case), count)
        yield from _shared("real models", real_cases(options.seed))
    if "e" in wanted:
        yield from _announced("rare", drawn(rare_case), count)
    if "f" in wanted:
        yield from _announced("drafts", drawn(draft_case), count)
    if "g" in wanted:
        fetched = ({**case, "resets": []} for case in drawn(remote_case))  # which are not modelled there
        yield from _announced("prompts from elsewhere", fetched, count)
    if "b" in wanted:
        yield from _shared("Mooncake trace", mooncake_cases(options.trace_requests, every=options.long))


def _shared(what: str, cases: Iterator[Case]) -> Iterator[Case]:
    """Cases that need data beside the checkout."""
    made = list(cases)
    if not made:
        print(f"{what}: skipped, ../shared/data is not here")
    yield from _announced(what, made, len(made))


def _announced(what: str, cases: Iterable[Case], count: int | None) -> Iterator[Case]:
    for number, case in enumerate(cases, 1):
        if (count and count < 20) or number % 50 == 0:
            print(f"{what}: {number}{f' of {count}' if count else ''}", flush=True)
        yield case


def _saw_enough(options: argparse.Namespace, total: Tally) -> bool:
    """Whether what has to happen did; only full sets of random cases are judged."""
    if options.case or options.cases < 100 or options.only in ("b", "c"):
        return True
    missing = [name for name in MUST_HAPPEN if getattr(total, name) == 0]
    kinds = (EXTRA_MUST_RUN if options.only != "f" else ()) + (MUST_RUN if options.only in (None, "d") else ())
    kinds += RARE_MUST_RUN if options.only in (None, "e") else ()
    missing += [f"case with {kind}" for kind in kinds if total.kinds[kind] == 0]
    missing += ["copies"] * (options.only in (None, "d") and total.copies == 0)
    if options.only in (None, "f"):
        missing += [name for name in MUST_HAPPEN_WITH_DRAFTS if getattr(total, name) == 0]
    if missing:
        print(f"these cases show too little: no {', no '.join(missing)}", file=sys.stderr)
    return not missing


if __name__ == "__main__":
    sys.exit(main())
