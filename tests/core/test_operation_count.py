"""Time grows with steps and blocks: counted in lines of the core that are executed, never in seconds.

Not with tokens, not with the pool, not with the queue behind its head. The same laws fail when a loop over tokens or
over the pool is put into the step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.counted_run import GROUPS

ROOT = Path(__file__).resolve().parents[2]
CHAINS = 0.01
"""The part by which counts may differ because keys share a place of the cache."""


def counted(*flags: str) -> dict[str, int]:
    """The counts of ``counted_run.py``, in a process that compiles nothing."""
    search = os.pathsep.join([*filter(None, sys.path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.core.counted_run", *flags],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": search},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return counted()


def test_longer_prompts_in_as_many_larger_blocks_cost_the_same(counts: dict[str, int]) -> None:
    for kind in GROUPS:
        small = counts[f"{kind}, blocks of 4"]
        for size in (8, 32):
            assert counts[f"{kind}, blocks of {size}"] == pytest.approx(small, rel=CHAINS), kind


def test_every_further_request_costs_the_same(counts: dict[str, int]) -> None:
    ten, twenty, thirty = (counts[f"{number} requests"] for number in (10, 20, 30))
    assert thirty - twenty == pytest.approx(twenty - ten, rel=CHAINS)
    assert twenty == pytest.approx(2 * ten, rel=CHAINS)


def test_a_larger_pool_costs_nothing(counts: dict[str, int]) -> None:
    assert counts["pool of 6000"] == pytest.approx(counts["pool of 600"], rel=CHAINS)


def test_every_further_step_without_block_work_costs_the_same(counts: dict[str, int]) -> None:
    hundred, two, three = (counts[f"{outputs} steps"] for outputs in (100, 200, 300))
    assert three - two == two - hundred


def test_every_further_decoding_request_costs_the_same_per_step(counts: dict[str, int]) -> None:
    one, two, three = (counts[f"{number} decode"] for number in (1, 2, 3))
    assert three - two == pytest.approx(two - one, rel=CHAINS)
    assert (two - one) / 100 < 80  # lines per request and step, its admission included


def test_what_was_computed_before_costs_nothing(counts: dict[str, int]) -> None:
    assert counts["prompt of 1000"] == counts["prompt of 10"]


def test_who_waits_behind_the_first_costs_nothing(counts: dict[str, int]) -> None:
    assert counts["40 wait"] == pytest.approx(counts["20 wait"], rel=0.05)


def test_a_loop_over_the_pool_is_noticed() -> None:
    spoilt = counted("--spoil", "scan")
    assert spoilt["pool of 6000"] > 2 * spoilt["pool of 600"]


def test_a_loop_over_tokens_is_noticed() -> None:
    spoilt = counted("--spoil", "tokens")
    assert spoilt["full, blocks of 32"] > 2 * spoilt["full, blocks of 4"]
    assert spoilt["prompt of 1000"] > 2 * spoilt["prompt of 10"]
