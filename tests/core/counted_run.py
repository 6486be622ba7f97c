"""How much the core does, counted in executed lines of its source: a script for plain Python (NUMBA_DISABLE_JIT=1).

Prints a JSON object: the name of each run, and its count. ``--spoil scan`` and ``--spoil tokens`` put a loop over the
pool, or over a chunk's tokens, into every step: what the counts are there to notice.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import sim.core
from sim.core import advance
from tests.twin.ours import arrivals, make_machine
from tests.twin.settings import Ask, Group, Settings, ask

CORE = str(Path(sim.core.__file__).parent)
GROUPS: dict[str, Callable[[int], Group]] = {
    "full": Group,
    "sliding_window": lambda size: Group(size, 3 * size),
    "chunked_local": lambda size: Group(size, 4 * size, "chunked_local"),
    "rswa": lambda size: Group(size, 2 * size, "rswa"),
    "mamba_align": lambda size: Group(size, kind="mamba_align", export_tokens=size),
    "circular": lambda size: Group(size, kind="circular"),
}
SPOILS = {
    "scan": "def spoil(plan, state):\n    for _ in range(state.pool.key.size):\n        pass\n",
    "tokens": "def spoil(plan, state):\n    for _ in range(state.requests[:, 0].sum()):\n        pass\n",
}


def lines_of(settings: Settings, asks: list[Ask]) -> int:
    """Lines of the core that are executed until all requests are served."""
    machine = make_machine(settings, log_tables=False)
    machine.submit(arrivals(asks))
    count = 0

    def on_line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, argument: object) -> Any:
        return on_line if frame.f_code.co_filename.startswith(CORE) else None

    sys.settrace(on_call)
    try:
        machine.advance()
    finally:
        sys.settrace(None)
    return count


def engine(size: int, kind: str = "full", num_blocks: int = 600, **flags: Any) -> Settings:
    """An engine whose lengths are all so many blocks, whatever a block's size."""
    groups = (GROUPS[kind](size), Group(size)) if kind != "full" else (Group(size),)
    budget = {"max_model_len": 64 * size, "max_num_batched_tokens": 12 * size, "retention_interval": 0}
    return Settings(groups=groups, num_blocks=num_blocks, **{**budget, **flags})


def prompts(number: int, tokens: int, *, apart_ns: int = 10_000) -> list[Ask]:
    """Requests with texts of their own and one output each, one after the other."""
    return [ask(f"r{i}", i * apart_ns, [(100 + i, tokens)], 1) for i in range(number)]


def decoding(number: int, outputs: int, prompt: int = 10) -> list[Ask]:
    """Requests that come together and decode for long."""
    return [ask(f"r{i}", 0, [(100 + i, prompt)], outputs) for i in range(number)]


def counts() -> dict[str, int]:
    """The count of every run."""
    found = {}
    for kind in GROUPS:
        for size in (4, 8, 32):
            found[f"{kind}, blocks of {size}"] = lines_of(engine(size, kind), prompts(3, 40 * size + 1))
    for number in (10, 20, 30):
        found[f"{number} requests"] = lines_of(engine(4), prompts(number, 41))
    for num_blocks in (600, 6000):
        found[f"pool of {num_blocks}"] = lines_of(engine(4, num_blocks=num_blocks), prompts(10, 41))
    wide = engine(4096, max_num_seqs=4)
    for outputs in (100, 200, 300):
        found[f"{outputs} steps"] = lines_of(wide, decoding(2, outputs))
    for number in (1, 2, 3):
        found[f"{number} decode"] = lines_of(wide, decoding(number, 100))
    for prompt in (10, 1000):
        found[f"prompt of {prompt}"] = lines_of(wide, decoding(2, 100, prompt))
    short = engine(4, num_blocks=31, max_num_seqs=1)
    for number in (20, 40):
        first = ask("first", 0, [(1, 41)], 60)
        behind = [ask(f"r{i}", 0, [(100 + i, 41)], 1) for i in range(number)]
        alone, waited = lines_of(short, behind), lines_of(short, [first, *behind])
        found[f"{number} wait"] = waited - alone
    return found


def main() -> None:
    """Count, perhaps with a loop that should not be there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spoil", choices=SPOILS)
    spoil = parser.parse_args().spoil
    if spoil:
        made: dict[str, Any] = {}
        exec(compile(SPOILS[spoil], f"{CORE}/spoilt.py", "exec"), made)
        module: Any = advance
        schedule = module.schedule
        module.schedule = lambda plan, state: (made["spoil"](plan, state), schedule(plan, state))[1]
    json.dump(counts(), sys.stdout)


if __name__ == "__main__":
    main()
