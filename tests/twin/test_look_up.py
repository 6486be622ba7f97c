"""What a router is told of a replica's prefix cache: the hit that the twin finds then, at every step of random runs."""

from __future__ import annotations

import pytest

from sim.core.inbox import looked_at
from tests.twin.drawn import seeded_case
from tests.twin.lockstep import LockStep
from tests.twin.ours import arrivals
from tests.twin.request import Request

SEEDS = range(90)
STEPS = 150


def asked_all_along(seed: int) -> tuple[int, int]:
    """Run a random case and ask about every request before every step: answers above 0, and requests that ended."""
    settings, asks = seeded_case(seed)
    both = LockStep(settings)
    both.submit(asks)
    probes = [(looked_at(arrivals([each])), Request(each)) for each in asks[:8]]
    hits = 0
    for _ in range(STEPS):
        for (spans, row), request in probes:
            found = both.ours.machine.cached_tokens(spans, row)
            assert found == both.twin.scheduler.manager.look_up(request)
            hits += found > 0
        if both.step() != "stepped":
            break
        both.check()
    return hits, len(both.ours.finished)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_answer_is_the_hit_and_asking_changes_nothing(seed: int) -> None:
    """The run goes on beside the twin, which nobody asked anything that it notes."""
    asked_all_along(seed)


def test_there_was_something_to_hit() -> None:
    found = [asked_all_along(seed) for seed in range(20)]
    assert sum(hits > 0 for hits, _ in found) > 5
    assert sum(finished > 0 for _, finished in found) > 15
