"""Every shipped scenario answers its question as its ``expected`` says, and in far less than 50 seconds."""

from __future__ import annotations

import functools
import io
import json
from typing import Any

import pytest

from sim.capacity import capacity_curve, request_blocks
from sim.planning import plan_kv_cache
from sim.run import Result, run_scenario
from sim.scenario import Scenario, load_scenario, shipped_scenarios


@functools.cache
def ran(name: str, variant: str | None = None) -> Result:
    """The result of a shipped scenario, or of one of its variants, with the invariants checked."""
    scenario = load_scenario(name)
    return run_scenario(scenario.variant(variant) if variant else scenario, check=True)


def summaries(name: str, *variants: str | None) -> list[dict[str, Any]]:
    """The summaries of some variants."""
    return [ran(name, variant).summary for variant in variants]


def hit_rate(summary: dict[str, Any]) -> float:
    """Per cent of the prompt tokens that came from the prefix cache."""
    return float(100 * summary["prefix_cache_hit_tokens"] / summary["prefix_cache_queries_tokens"])


def toy() -> Scenario:
    """The toy."""
    return load_scenario("toy")


def test_toy_blocks_of_a_request() -> None:
    plan = plan_kv_cache(toy().model, toy().engine, toy().memory)
    blocks = request_blocks(plan, toy().engine, 112)
    assert plan.num_blocks == 300
    assert [group.kind for group in plan.groups] == ["full_attention", "sliding_window", "sliding_window"]
    assert [group.resident_blocks for group in blocks] == [7, 2, 2]
    assert [group.peak_blocks for group in blocks] == [7, 7, 7]


def test_toy_run_block_by_block() -> None:
    log = io.StringIO()
    result = run_scenario(toy(), step_log=log, check=True)
    *steps, end = map(json.loads, log.getvalue().splitlines())
    assert result.summary["peak_used_blocks"] == 24
    assert [299 - step["free_blocks"] for step in steps] == [21, 24, *[14] * 6]
    assert [sum(block > 0 for block in table) for table in end["tables"]] == [8, 3, 3]


def test_gemma_capacity() -> None:
    scenario = load_scenario("gemma-3-27b-capacity")
    curve = capacity_curve(scenario.model, scenario.engine, scenario.memory, [512, 1_023, 128_000])
    short, below, long = curve.points
    assert (short.resident_blocks, int(short.max_concurrency)) == (224, 284)
    assert (long.resident_blocks, long.peak_blocks) == (8_384, 14_528)
    assert (round(long.max_concurrency, 1), round(long.all_full_max_concurrency or 0, 1)) == (4.5, 1.3)
    assert (curve.break_even_resident_tokens, curve.break_even_tokens) == (1_183, 20_097)
    assert round(100 * (below.saving or 0)) == -13
    assert round(100 * (long.saving or 0)) == 83


def test_gemma_capacity_run() -> None:
    summary = ran("gemma-3-27b-capacity").summary
    assert summary["finished"] == 36
    assert 20 <= summary["peak_running"] <= 30


def test_hybrid_against_all_full() -> None:
    hybrid, full = summaries("hybrid-vs-all-full", "hybrid", "all-full")
    assert 1.7 <= hybrid["mean_running"] / full["mean_running"] <= 2.3
    assert hybrid["ttft_s"]["mean"] < 10
    assert full["ttft_s"]["mean"] > 100
    assert hybrid["preemptions"] * 5 < full["preemptions"]
    assert 1.5 <= hybrid["tpot_s"]["mean"] / full["tpot_s"]["mean"] <= 2.5
    assert all(3 <= hit_rate(summary) <= 5 for summary in (hybrid, full))


def test_agentic_sessions() -> None:
    hybrid, full = summaries("agentic-sessions", "hybrid", "all-full")
    assert 92 <= hit_rate(hybrid) <= 95
    assert hybrid["preemptions"] == 0
    assert hybrid["ttft_s"]["mean"] < 1
    assert 70 <= hit_rate(full) <= 85
    assert full["ttft_s"]["mean"] > 10 * hybrid["ttft_s"]["mean"]


def test_memory_starved() -> None:
    hybrid, full = summaries("memory-starved", "hybrid", "all-full")
    assert hybrid["peak_used_blocks"] == hybrid["num_blocks"] - 1
    assert 15 <= hybrid["mean_running"] <= 30
    assert 50 <= hybrid["preemptions"] <= 150
    assert 30 <= hybrid["ttft_s"]["mean"] <= 90
    assert full["preemptions"] >= 3 * hybrid["preemptions"]
    assert full["ttft_s"]["mean"] > hybrid["ttft_s"]["mean"]


def test_prefix_retention() -> None:
    boundaries, dense, every = (
        hit_rate(summary) for summary in summaries("prefix-retention", "retention-0", "dense", "every-4096")
    )
    assert 65 <= boundaries <= 71
    assert 60 <= dense <= 67
    assert 70 <= every <= 77
    assert dense < boundaries < every


def test_eagle_drafter() -> None:
    plain, eagle, nothing = summaries("eagle-drafter", "plain", "eagle-3", "nothing-accepted")
    assert 0.94 <= eagle["num_blocks"] / plain["num_blocks"] <= 0.96
    assert 0.42 <= eagle["tpot_s"]["mean"] / plain["tpot_s"]["mean"] <= 0.5
    assert 0.45 <= eagle["mean_running"] / plain["mean_running"] <= 0.55
    assert eagle["mean_used_blocks"] < plain["mean_used_blocks"]
    assert 2 <= nothing["tpot_s"]["mean"] / plain["tpot_s"]["mean"] <= 2.5
    assert nothing["peak_used_blocks"] >= 0.99 * nothing["num_blocks"]


def test_prefill_and_decode_apart() -> None:
    alike, one, two = summaries("prefill-decode", "four-alike", "one-prefill", "two-prefill")
    assert alike["ttft_s"]["mean"] < 0.4
    assert 0.014 <= alike["tpot_s"]["mean"] <= 0.020
    assert alike["tpot_s"]["p99"] > 0.040
    assert 1.5 <= two["ttft_s"]["mean"] <= 3
    assert 0.007 <= two["tpot_s"]["mean"] <= 0.009
    assert two["tpot_s"]["p99"] < 0.010
    assert one["ttft_s"]["mean"] > 20
    assert one["ttft_parts"]["queue_s"]["mean"] > 0.9 * one["ttft_s"]["mean"]
    assert one["tpot_s"]["mean"] < 0.006
    assert max(each["ttft_parts"]["transfer_s"]["mean"] for each in (one, two)) < 0.006


@pytest.mark.parametrize("name", shipped_scenarios())
def test_everybody_finishes_unharmed(name: str) -> None:
    summary = ran(name).summary
    assert summary["finished"] == summary["requests"]
    assert summary["rejected"] == summary["truncated"] == 0


def test_chat_with_documents() -> None:
    (summary,) = summaries("chat-with-documents", None)
    assert summary["ttft_s"]["p99"] < 1.5
    assert summary["tpot_s"]["p90"] < 0.030
    assert summary["preemptions"] == 0
