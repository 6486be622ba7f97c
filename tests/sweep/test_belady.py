"""No run hits more than Belady's bound, nor that more than an endless cache; the bound itself against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.belady import Ceilings, Units, ceilings, intervals, most_kept
from sim.engine import WINDOW
from sim.run import Result, run_scenario
from sim.scenario import dump_yaml, load_scenario
from workloads import open_workload
from workloads.batch import concat

SEEDS = range(60)
LAYERS: tuple[list[dict[str, Any]], ...] = (
    [{"kind": "full", "count": 2}],
    [{"kind": "full", "count": 2}, {"kind": "sliding_window", "count": 4, "window": 48}],
    [{"kind": "full", "count": 2}, {"kind": "chunked_local", "count": 2, "chunk_size": 64}],
    [{"kind": "sliding_window", "count": 2, "window": 40}],
)


def drawn(seed: int) -> dict[str, Any]:
    """A small scenario: shared prefixes or conversations, in a pool that is too small for all of them."""
    rng = np.random.default_rng([7, seed])
    synthetic: dict[str, Any] = {
        "requests": int(rng.integers(80, 200)),
        "arrival": {"kind": "poisson", "rate_per_s": float(rng.choice([5.0, 20.0, 200.0]))},
        "prompt_tokens": {"kind": "uniform", "min": 10, "max": 120},
        "output_tokens": int(rng.integers(1, 30)),
    }
    if rng.random() < 0.6:
        synthetic["shared_prefix"] = {
            "pools": int(rng.integers(4, 20)),
            "tokens": int(rng.integers(20, 200)),
            "zipf": 0.5,
        }
    else:
        synthetic["sessions"] = {"turns": 4, "new_tokens": 20, "think_s": 0.5, "closed_loop": bool(rng.random() < 0.5)}
    engine: dict[str, Any] = {
        "max_num_batched_tokens": int(rng.choice([64, 256])),
        "max_num_seqs": 8,
        "async_scheduling": bool(rng.random() < 0.5),
        "prefix_cache_retention_interval": [0, None][int(rng.integers(2))],
    }
    if rng.random() < 0.2 and not synthetic.get("sessions", {}).get("closed_loop"):
        engine["data_parallel_size"] = 2
    return {
        "model": {"layers": LAYERS[seed % len(LAYERS)], "num_kv_heads": 1, "head_size": 64, "max_model_len": 400},
        "engine": engine,
        "memory": {"num_gpu_blocks_override": len(LAYERS[seed % len(LAYERS)]) * int(rng.integers(28, 90)) + 10},
        "step_time": {"kind": "constant", "seconds": 0.01},
        "workload": {"synthetic": synthetic},
        "seed": seed,
    }


def bounded(folder: Path, scenario: dict[str, Any]) -> tuple[Result, Ceilings]:
    """A run, and what could have been hit in it."""
    (folder / "case.yaml").write_text(dump_yaml(scenario))
    read = load_scenario(folder / "case.yaml")
    result = run_scenario(read)
    texts = concat(list(open_workload(read.workload, read.base_dir, read.seed).batches(WINDOW)))
    return result, ceilings(result.plan, result.requests, texts)


def test_hits_are_no_more_than_the_bound_and_that_no_more_than_the_endless_cache(tmp_path: Path) -> None:
    below, apart, preempted = 0, 0, 0
    for seed in SEEDS:
        result, bounds = bounded(tmp_path, drawn(seed))
        hits = result.summary["prefix_cache_hit_tokens"]
        assert hits <= bounds.belady_tokens <= bounds.endless_tokens, seed
        below += hits < bounds.belady_tokens
        apart += bounds.belady_tokens < bounds.endless_tokens
        preempted += result.summary["preemptions"] > 0
    assert min(below, apart, preempted) > 5


def test_more_memory_raises_the_bound_of_the_same_run_up_to_the_endless_cache(tmp_path: Path) -> None:
    scenario = drawn(0)
    result, _ = bounded(tmp_path, scenario)
    texts = concat(list(open_workload(scenario["workload"], tmp_path, 0).batches(WINDOW)))
    plans = [replace(result.plan, num_blocks=blocks) for blocks in (2, 20, 60, 120, 10_000)]
    found = [ceilings(plan, result.requests, texts) for plan in plans]
    hits = [bounds.belady_tokens for bounds in found]
    assert hits == sorted(hits)
    assert hits[0] < hits[-1] == found[-1].endless_tokens


@pytest.mark.parametrize("seed", range(200))
def test_intervals_kept_are_the_most_that_can_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    begin = rng.integers(0, 8, 7).astype(np.float64)
    end = begin + rng.integers(1, 6, 7)
    places = int(rng.integers(1, 4))

    def fits(chosen: tuple[int, ...]) -> bool:
        return all(sum(begin[i] <= moment < end[i] for i in chosen) <= places for moment in range(14))

    most = max(size for size in range(8) if any(fits(chosen) for chosen in combinations(range(7), size)))
    assert most_kept(begin, end, np.ones(7, np.int64), places) == most
    twice = most_kept(begin, end, np.full(7, 2), 2 * places)
    assert twice == 2 * most


@pytest.mark.parametrize("seed", range(50))
def test_no_policy_finds_more_units(seed: int) -> None:
    """One unit a request, held for no time: pages, as Belady had them; evicting the oldest, the last used, or any."""
    rng = np.random.default_rng(seed)
    pages = rng.zipf(1.4, 80) % 12
    places = int(rng.integers(2, 8))
    when = np.arange(80, dtype=np.float64)
    units = Units(np.arange(80), pages.astype(np.uint64), np.ones(80, np.bool_), when)
    begin, end = intervals(units, when)
    bound = most_kept(begin, end, np.ones(len(begin), np.int64), places)
    found = {policy: _found(pages.tolist(), places, policy, rng) for policy in ("fifo", "lru", "any")}
    assert max(found.values()) <= bound
    assert bound <= len(begin) == 80 - len(set(pages.tolist()))


def _found(pages: list[int], places: int, policy: str, rng: np.random.Generator) -> int:
    """Pages found in a cache of so many places."""
    held: list[int] = []
    found = 0
    for page in pages:
        if page in held:
            found += 1
            if policy == "lru":
                held.remove(page)
                held.append(page)
            continue
        if len(held) == places:
            held.pop(int(rng.integers(places)) if policy == "any" else 0)
        held.append(page)
    return found
