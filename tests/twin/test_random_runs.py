"""Whole runs of random settings and requests, the machine and its twin in lock-step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.twin.drawn import Draw, drawn_ask, drawn_settings
from tests.twin.lockstep import LockStep
from tests.twin.settings import Ask


def draw_from(rng: np.random.Generator) -> Draw:
    """Uniform integers of a seeded generator, both ends included."""
    return lambda least, most: int(rng.integers(least, most + 1))


@pytest.mark.parametrize("seed", range(80))
def test_a_random_run(seed: int) -> None:
    draw = draw_from(np.random.default_rng(seed))
    settings = drawn_settings(draw)
    both = LockStep(settings)
    asks: list[Ask] = []
    now = 0
    for number in range(draw(3, 30)):
        now += settings.step_ns * draw(0, 3) if draw(0, 4) else draw(0, 20 * settings.step_ns)
        asks.append(drawn_ask(draw, settings, f"r{draw(0, 9)}{number}", now, asks))
    both.submit(asks)
    assert both.run() == "idle"
    assert len(both.ours.finished) == len(asks)
