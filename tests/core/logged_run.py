"""A few small runs as one text: run as a script by the test that compares compiled with plain Python."""

from __future__ import annotations

import json
import sys

from tests.twin.drawn import seeded_case
from tests.twin.ours import Ours
from tests.twin.settings import Ask, Group, Settings, ask

RUNS = 12


def logged() -> str:
    """Step logs, free queues, keys and records of every run, a JSON value a line."""
    lines = []
    for seed in range(RUNS):
        settings, asks = seeded_case(seed, 6)
        lines += log_of(settings, asks)
    tight = Settings(groups=(Group(4), Group(4, 6)), num_blocks=12, max_model_len=20, async_scheduling=True)
    lines += log_of(tight, [ask("a", 0, [(1, 8)], 8), ask("b", 0, [(1, 5), (2, 3)], 8), ask("c", 20, [(1, 8)], 2)])
    return "\n".join(lines)


def log_of(settings: Settings, asks: list[Ask]) -> list[str]:
    """One run."""
    ours = Ours(settings)
    entries = ours.run(*asks)
    assert ours.machine.num_steps <= 200
    pool = ours.machine.state.pool
    return [json.dumps(value) for value in (*entries, ours.free_queue(), pool.key.tolist(), ours.finished)]


if __name__ == "__main__":
    sys.stdout.write(logged())
