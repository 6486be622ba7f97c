"""Queueing laws: what theory says of any queue, and of the simplest one, holds of this one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sim.engine import WINDOW
from tests.engine.serving import Served, batch_of, serve
from tests.twin.drawn import seeded_case
from tests.twin.settings import Group, Settings, ask
from workloads.batch import RequestBatch, from_table

NS = 1e-9


def held(served: Served) -> int:
    """Integral over time of the requests in the system as the step records see it, in request-nanoseconds."""
    steps = served.steps
    lengths = np.rint((steps["end_s"] - steps["start_s"]) / NS).astype(np.int64)
    return int((lengths * (steps["running_requests"] + steps["waiting_requests"])).sum())


@pytest.mark.parametrize("seed", range(300, 312))
def test_littles_law_is_exact_when_arrivals_fall_on_steps(seed: int) -> None:
    """L = λW: time-average in the system = arrival rate x mean time in the system, preemptions and all.

    Each side is counted on its own, one from the steps, one from the requests; over the time T of the run,
    L T = sum of in-system counts x step lengths and λW T = sum of times in the system.
    """
    settings, asks = seeded_case(seed, plain=True)
    settings = replace(settings, async_scheduling=False, pipeline_parallel_size=1, step_ns=10, watermark_blocks=0)
    batch = batch_of([ask(a.name, 10 * i // 3 * 10, a.prompt, a.output_tokens) for i, a in enumerate(asks)])
    served = serve(batch, settings)
    in_system = np.rint(served.requests["e2e_s"] / NS).astype(np.int64)
    assert held(served) == int(in_system.sum())


def test_littles_law_up_to_the_wait_for_a_step_to_end() -> None:
    """Arrivals at any time: the steps see a request from the next schedule on, less than one step late."""
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.integers(1, 60, 400)).tolist()
    asks = [ask(f"r{i}", at, [(i, int(rng.integers(1, 30)))], int(rng.integers(1, 12))) for i, at in enumerate(times)]
    served = serve(asks, Settings(num_blocks=60, max_num_seqs=4))
    in_system = int(np.rint(served.requests["e2e_s"] / NS).sum())
    assert 0 < in_system - held(served) < 10 * len(asks)


def poisson_arrivals(count: int, load: float, step_ns: int, seed: int) -> RequestBatch:
    """Requests of one step each at Poisson times: ``load`` of them a step."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(step_ns / load, count)).astype(np.int64)
    content = np.stack([np.arange(count), np.arange(count) + count], axis=1).astype(np.uint64)
    return from_table([f"r{i}" for i in range(count)], times, content, np.tile(np.array([4, 1], np.int64), (count, 1)))


@pytest.mark.parametrize(("load", "seed"), [(0.3, 1), (0.7, 2), (0.85, 3)])
def test_one_request_at_a_time_is_an_m_d_1_queue(load: float, seed: int) -> None:
    """Pollaczek-Khinchine: a mean wait of ρD / 2(1 - ρ), and a share of 1 - ρ that does not wait at all.

    Waits of neighbours are alike, so the error of their mean is estimated from the means of 100 stretches of 2,000,
    long against the queue's memory of about 1 / (1 - ρ)^2 services; the run is let warm up first.
    """
    step_ns, stretch = 1_000_000, 2_000
    settings = Settings(max_num_seqs=1, enable_prefix_caching=False, step_ns=step_ns)
    served = serve(poisson_arrivals(101 * stretch, load, step_ns, seed), settings, rows=WINDOW, checked=False)
    waits = served.requests["queue_s"][stretch:] / (step_ns * NS)
    means = waits.reshape(100, stretch).mean(axis=1)
    error = means.std(ddof=1) / math.sqrt(len(means))
    expected = load / (2 * (1 - load))
    assert error < 0.03 * expected + 0.002
    assert abs(means.mean() - expected) < 4 * error
    at_once = (waits < 1e-9).reshape(100, stretch).mean(axis=1)
    assert abs(at_once.mean() - (1 - load)) < 4 * at_once.std(ddof=1) / 10


def test_the_utilisation_is_the_load() -> None:
    """Busy time over makespan: work brought over time, whatever the order of service."""
    step_ns, load = 1_000_000, 0.6
    batch = poisson_arrivals(40_000, load, step_ns, 4)
    served = serve(batch, Settings(max_num_seqs=1, enable_prefix_caching=False, step_ns=step_ns), checked=False)
    span = served.requests["finish_s"].max() - served.requests["arrival_s"].min()
    assert served.engine.records.busy_s == pytest.approx(40_000 * step_ns * NS)
    assert served.engine.records.busy_s / span == pytest.approx(load, abs=4 * load / math.sqrt(40_000))


def test_batching_a_queue_serves_all_who_wait_in_one_step() -> None:
    """With room for everyone nobody waits longer than the rest of the step under way."""
    step_ns = 1_000_000
    settings = Settings(
        max_num_seqs=64, num_blocks=400, max_num_batched_tokens=512, enable_prefix_caching=False, step_ns=step_ns
    )
    served = serve(poisson_arrivals(20_000, 8.0, step_ns, 6), settings, checked=False)
    assert served.requests["queue_s"].max() < step_ns * NS
    assert served.requests["queue_s"].mean() == pytest.approx(step_ns * NS / 2, rel=0.03)


def test_mean_blocks_in_use_are_those_of_the_steps() -> None:
    """What the records integrate while a run goes on is what its steps add up to at the end."""
    settings = Settings(groups=(Group(4), Group(4, 9)), num_blocks=80)
    asks = [ask(f"r{i}", 17 * i, [(1, 8), (i, 9)], 12) for i in range(30)]
    served = serve(asks, settings)
    used = served.steps["used_blocks"] * np.rint((served.steps["end_s"] - served.steps["start_s"]) / NS)
    assert served.engine.records.used_block_seconds / NS == pytest.approx(used.sum())
