"""Fuzzing by hand: spoilt inputs by the thousand, each in a process of its own with bounded memory and work.

``python -m tests.cli.fuzz --cases 2000`` prints what a user must never see; ``--sort scenario --seed 17`` shows one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from sim.cli import main
from tests.cli.spoilt_inputs import SORTS, Input, drawn

MEMORY_BYTES = 6 << 30
SECONDS = 20
"""Of the processor: how long a machine that is busy with other things lets an input wait is nobody's fault."""
WAITING_S = 15 * SECONDS
"""On the clock, for what sleeps or waits for ever."""
RESUMED = {"out", "out/points.jsonl"}
"""The finished points of a sweep stay, so that a mended file goes on where it was."""


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    """Write the files of an input."""
    for name, raw in files.items():
        (folder / name).write_bytes(raw)


def complaints(code: int, out: str, err: str, left: set[str]) -> list[str]:
    """What is wrong with how a command ended: its exit code, what it said, and the files it left besides."""
    found = []
    if code not in (0, 1, 2):
        found.append(f"exit code {code}")
    if "Traceback" in out + err or "internal error" in err:
        found.append("a traceback or an internal error")
    if code and (err.count("\n") != 1 or not err.startswith("hybridkv: error: ")):
        found.append("not one line on stderr")
    if code and out:
        found.append("an answer beside an error")
    if code and left - RESUMED:
        found.append(f"left behind {sorted(left)}")
    if any(".tmp" in name or name.startswith(".") for name in left):
        found.append(f"half written {sorted(left)}")
    return found


def ended(argv: tuple[str, ...], files: dict[str, bytes], folder: Path) -> dict[str, Any]:
    """Run a command in this process, in a folder that holds the files."""
    lay_out(files, folder)
    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")} - set(files)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue(), "left": sorted(left)}


def forked(made: Input) -> dict[str, Any]:
    """Run a command in a child with bounds; what it said, its seconds of the processor, or the signal it died of."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    report = folder.parent / f"{folder.name}.json"
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(WAITING_S)
        report.write_text(json.dumps(ended(*made, folder)))
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    answer = {"code": -os.waitstatus_to_exitcode(status), "out": "", "err": "", "left": []}
    if report.exists() and not status:
        answer = json.loads(report.read_text())
    report.unlink(missing_ok=True)
    shutil.rmtree(folder)
    return {**answer, "seconds": used.ru_utime + used.ru_stime}


def show(sort: str, seed: int, made: Input, answer: dict[str, Any], *, files: bool) -> None:
    """Print one input and how it ended."""
    print(f"{sort} {seed}: exit {answer['code']} in {answer['seconds']:.1f} s: {' '.join(made[0])}")
    print(f"  {answer['err'].strip()[:800]}")
    if files:
        for name, raw in made[1].items():
            print(f"--- {name}\n{raw.decode('utf-8', 'replace')}")
        print(answer["out"])


def fuzz(sorts: list[str], seeds: range, slow_s: float, *, every: bool) -> int:
    """Run the inputs of all sorts and seeds; print those that end badly or slowly, and count how all ended."""
    codes: dict[str, dict[int, int]] = {sort: {} for sort in sorts}
    bad = 0
    for seed in seeds:
        for sort in sorts:
            made = drawn(sort, seed)
            answer = forked(made)
            codes[sort][answer["code"]] = codes[sort].get(answer["code"], 0) + 1
            found = complaints(answer["code"], answer["out"], answer["err"], set(answer["left"]))
            if answer["seconds"] > slow_s:
                found.append("slow")
            bad += bool(found)
            if found or every:
                print("; ".join(found) or "well")
                show(sort, seed, made, answer, files=False)
                sys.stdout.flush()
    for sort, counts in codes.items():
        print(f"{sort:10} {dict(sorted(counts.items()))}")
    return 1 if bad else 0


def arguments() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="seeds of each sort")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--sort", choices=sorted(SORTS), action="append", help="only these sorts")
    parser.add_argument("--seed", type=int, help="show one input in full")
    parser.add_argument("--slow", type=float, default=5.0, metavar="S", help="complain about more seconds than these")
    parser.add_argument("--every", action="store_true", help="print the line of every input")
    return parser.parse_args()


def run() -> int:
    """The command."""
    given = arguments()
    sorts = given.sort or list(SORTS)
    with tempfile.TemporaryDirectory() as warm:
        ended(("run", "toy", "--no-figures", "--out", "out"), {}, Path(warm))
        os.chdir("/")
    if given.seed is not None:
        made = drawn(sorts[0], given.seed)
        show(sorts[0], given.seed, made, forked(made), files=True)
        return 0
    return fuzz(sorts, range(given.first, given.first + given.cases), given.slow, every=given.every)


if __name__ == "__main__":
    raise SystemExit(run())
