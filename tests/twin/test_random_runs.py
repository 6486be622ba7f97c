"""Whole runs of random settings and requests, the machine and its twin in lock-step."""

from __future__ import annotations

import pytest

from tests.twin.drawn import seeded_case
from tests.twin.lockstep import LockStep


@pytest.mark.parametrize("seed", range(200))
def test_a_random_run(seed: int) -> None:
    settings, asks = seeded_case(seed)
    both = LockStep(settings)
    both.submit(asks)
    assert both.run() == "idle"
    assert len(both.ours.finished) == len(asks)
