"""Prefill and decode on different replicas: everybody is served, blocks move and are freed, times add up by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.core.output import L_BLOCKS, LOAD_ROWS
from sim.core.state import FREE_BLOCKS, KV_CONSUMER, KV_PRODUCER
from sim.disaggregation import TTFT_PARTS, seen_by_clients
from sim.engine import DisaggregatedFleet, Engine
from sim.errors import InputError
from sim.invariants import check_invariants
from sim.machine import Machine
from sim.report.run_tables import run_tables
from sim.run import run_scenario
from sim.scenario import Scenario, load_scenario
from sim.step_time import constant_price
from tests.engine.scenarios import SPLIT, check_sweep_is_the_same_anywhere, loaded
from tests.engine.serving import batch_of, serve
from tests.engine.test_clients import clients, mixed, talks
from tests.twin.ours import core_plan
from tests.twin.settings import Ask, Group, Settings, ask
from workloads.batch import RequestBatch

ROOMY = Settings(num_blocks=200, max_num_seqs=16)
CROWDED = Settings(num_blocks=40, max_num_seqs=6, async_scheduling=True)
WINDOWS = replace(CROWDED, groups=(Group(4), Group(4, window=6)), num_blocks=60, async_scheduling=False)


def machine(settings: Settings, role: int, load_ns: int = 0, per_block: int = 0) -> Machine:
    """An empty machine with a role."""
    plan = core_plan(settings)._replace(kv_role=role, load_ns=load_ns, load_ns_per_block=per_block)
    return Machine(plan, constant_price(settings.step_ns), settings.num_blocks)


def split(
    asks: list[Ask] | RequestBatch,
    settings: Settings = ROOMY,
    *,
    sizes: tuple[int, int] = (1, 1),
    load_ns: int = 0,
    per_block: int = 0,
    number: int = 0,
) -> tuple[DisaggregatedFleet, dict[str, Any]]:
    """A fleet that has served requests, and these as their clients saw them."""
    made = DisaggregatedFleet(
        [machine(settings, KV_PRODUCER) for _ in range(sizes[0])],
        [machine(settings, KV_CONSUMER, load_ns, per_block) for _ in range(sizes[1])],
        iter([asks if isinstance(asks, RequestBatch) else batch_of(asks)]),
        "least_loaded",
        "prefix_aware",
        load_bound=1.25,
        on_drain=check_invariants,
        clients=clients(number) if number else None,
    )
    made.run()
    rows = [server.records.request_columns(made.traffic.ids, made.traffic.sessions, 0) for server in made.servers]
    ordinals = [server.records.ordinals() for server in made.servers]
    first = made.num_prefill
    seen = seen_by_clients(rows[:first], rows[first:], (ordinals[:first], ordinals[first:]), made.loads())
    return made, seen


def ns(seconds: Any) -> list[int]:
    """Seconds as ns."""
    times: list[int] = (np.asarray(seconds) * 1e9).round().astype(int).tolist()
    return times


@pytest.mark.parametrize("settings", [ROOMY, CROWDED, WINDOWS])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize(("load_ns", "per_block", "number"), [(0, 0, 0), (7, 3, 0), (0, 25, 5)])
def test_everybody_is_served_and_all_blocks_are_free(
    settings: Settings, sizes: tuple[int, int], load_ns: int, per_block: int, number: int
) -> None:
    for batch in (batch_of(mixed()), talks()):
        made, seen = split(batch, settings, sizes=sizes, load_ns=load_ns, per_block=per_block, number=number)
        assert sorted(seen["id"]) == sorted(batch.ids)
        for server in made.servers:
            assert server.machine.state.pool.counters[FREE_BLOCKS] == settings.num_blocks - 1
            assert not list(server.machine.holding_slots())
            check_invariants(server.machine)
        alone = serve(batch, ROOMY).requests
        assert dict(zip(seen["id"], seen["output_tokens"].tolist(), strict=True)) == dict(
            zip(alone["id"], alone["output_tokens"].tolist(), strict=True)
        )
        parts = sum(np.asarray(seen[part]) for part in TTFT_PARTS)
        assert ns(parts) == ns(seen["ttft_s"])
        assert all(min(ns(seen[part])) >= 0 for part in TTFT_PARTS)


def test_the_times_of_one_request_by_hand() -> None:
    """Five blocks of four tokens: one step, the fetch, the step of the last prompt token; then a step per output."""
    _, seen = split([ask("a", 100, [(1, 20)], 3)], load_ns=7, per_block=3)
    assert [ns(seen[part])[0] for part in TTFT_PARTS] == [0, 10, 0, 7 + 5 * 3, 10]
    assert (ns(seen["ttft_s"]), ns(seen["e2e_s"]), ns(seen["tpot_s"])) == ([42], [62], [10])


def test_what_the_decode_replica_has_is_not_fetched_again() -> None:
    made, seen = split([ask("a", 0, [(1, 16), (2, 4)], 2), ask("b", 1000, [(1, 16), (3, 8)], 2)], per_block=3)
    assert made.loads()[:, L_BLOCKS].tolist() == [5, 2]
    assert seen["decode_cached_tokens"].tolist() == [0, 16]
    assert ns(seen["transfer_s"]) == [15, 6]


def test_blocks_behind_a_window_are_not_fetched() -> None:
    """Of 40 tokens in blocks of four: all ten of full attention, and of a window of 6 those of the last five or so."""
    made, _ = split([ask("a", 0, [(1, 40)], 1)], replace(WINDOWS, num_blocks=100))
    assert made.loads()[:, L_BLOCKS].tolist() == [10 + 2]


def test_the_link_serves_one_prompt_after_another() -> None:
    _, seen = split([ask("a", 0, [(1, 20)], 1), ask("b", 0, [(2, 12)], 1)], per_block=10)
    assert ns(seen["transfer_s"]) == [50, 50 + 30]


def test_the_prefill_replica_holds_a_prompt_until_it_is_fetched() -> None:
    """Nine blocks do not hold two prompts of five: the second waits for the first one's way."""
    asks = [ask("a", 0, [(1, 20)], 1), ask("b", 1, [(2, 20)], 1)]
    for per_block, begun in ((0, 10), (20, 10 + 5 * 20)):
        _, seen = split(asks, replace(ROOMY, num_blocks=10), per_block=per_block)
        assert ns(seen["first_scheduled_s"]) == [0, begun]


def test_a_decode_replica_runs_as_an_engine_alone_that_is_sent_the_same_prompts() -> None:
    made, _ = split(batch_of(mixed()), CROWDED, sizes=(1, 2), per_block=3)
    by_name = {each.name: each for each in mixed()}
    for server in made.servers[1:]:
        own = server.records.request_columns(made.traffic.ids, made.traffic.sessions, 0)
        at = ns(own["arrival_s"])
        asks = [replace(by_name[name], arrival_ns=time) for name, time in zip(own["id"], at, strict=True)]
        alone = machine(CROWDED, KV_CONSUMER, 0, 3)
        engine = Engine(alone, iter([batch_of(asks)]), on_drain=_forget_loads)
        engine.run()
        again = engine.records.request_columns(engine.ids, engine.sessions, 0)
        finished = dict(zip(again["id"], again["finish_s"].tolist(), strict=True))
        assert [finished[name] for name in own["id"]] == own["finish_s"].tolist()


def _forget_loads(machine: Machine) -> None:
    machine.state.output.counters[LOAD_ROWS] = 0


def test_with_nothing_to_wait_for_a_prefill_replica_is_an_engine_that_answers_with_one_token() -> None:
    """Fetched at once, its blocks are free as soon as a prompt is computed."""
    asks = mixed()
    _, seen = split(batch_of(asks), ROOMY)
    alone = serve([ask(r.name, r.arrival_ns, r.prompt, 1) for r in asks], ROOMY).requests
    prefilled = dict(zip(seen["id"], (seen["queue_s"] + seen["prefill_s"]).tolist(), strict=True))
    assert ns([prefilled[name] for name in alone["id"]]) == ns(alone["e2e_s"])


@pytest.mark.parametrize("settings", [ROOMY, CROWDED, WINDOWS])
def test_slower_transfers_never_make_a_lone_client_faster(settings: Settings) -> None:
    times = [float(split(batch_of(mixed()), settings, per_block=n, number=1)[1]["ttft_s"].sum()) for n in (0, 1, 5, 50)]
    assert times == sorted(times)
    assert times[0] < times[-1]


def scenario(folder: Path, *sets: str) -> Scenario:
    """The scenario with changes."""
    return loaded(folder, SPLIT, *sets)


def test_a_scenario_with_prefill_and_decode(tmp_path: Path) -> None:
    asked = scenario(tmp_path)
    result = run_scenario(asked, check=True)
    summary = result.summary
    assert summary["finished"] == summary["requests"] == len(result.requests["id"]) == 120
    assert [own["role"] for own in summary["replicas"]] == ["prefill", "decode", "decode"]
    assert summary["output_tokens"] == int(result.requests["output_tokens"].sum())
    assert sum(own["finished"] for own in summary["replicas"]) == 240
    means = [summary["ttft_parts"][part]["mean"] for part in TTFT_PARTS]
    assert sum(means) == pytest.approx(summary["ttft_s"]["mean"], rel=1e-9)
    assert summary["decode_prefix_cache_hit_tokens"] == 0  # nobody resumes where windows were not fetched
    full = run_scenario(scenario(tmp_path, "model.layers=[{kind: full, count: 2}]")).summary
    assert 0 < full["decode_prefix_cache_hit_tokens"] < full["decode_prefix_cache_queries_tokens"]
    assert summary["fetched_blocks"] == int(result.requests["fetched_blocks"].sum()) > 0
    replicas, latencies = run_tables(asked, result, "here")[1:]
    assert [row[0] for row in replicas.rows] == ["0 prefill", "1 decode", "2 decode"]
    assert "  waits for the link, transfer" in [row[0] for row in latencies.rows]
    again = load_scenario(_written(tmp_path, asked))
    assert run_scenario(again).summary == {**summary, "name": again.name}


def _written(folder: Path, asked: Scenario) -> Path:
    from sim.report.results import write_resolved

    write_resolved(folder, asked)
    return folder / "scenario.resolved.yaml"


def test_the_bandwidth_of_the_link_and_its_time_per_block_are_two_words_for_one_thing(tmp_path: Path) -> None:
    asked = scenario(tmp_path)
    block_bytes = run_scenario(asked).plan.block_bytes
    link = f"replicas={{prefill: 1, decode: 2, transfer_latency_s: 0.001, transfer_gb_per_s: {block_bytes / 5e5}}}"
    assert run_scenario(scenario(tmp_path, link)).summary == run_scenario(asked).summary


def test_the_split_is_the_same_in_any_number_of_processes(tmp_path: Path) -> None:
    check_sweep_is_the_same_anywhere(tmp_path, SPLIT, "grid: {replicas.prefill: [1, 2], seed: [0, 1]}\n")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("replicas={prefill: 1, transfer_gb_per_s: 1}",), "replicas.prefill.*needs prefill: n and decode: m"),
        (("replicas={count: 2, transfer_gb_per_s: 1}",), "replicas.transfer_gb_per_s.*needs prefill"),
        (("replicas={prefill: 1, decode: 1}",), "give one of transfer_s_per_block and transfer_gb_per_s"),
        (("replicas.count=2",), "replicas.count.*cannot stand beside prefill and decode"),
        (("engine.data_parallel_size=2",), "replicas.prefill.*cannot stand beside data_parallel_size"),
        (("engine.scheduling_policy=priority",), "priority policy.*not modelled for prefill and decode"),
        (("reset_prefix_cache=[{at_s: 1}]",), "resets.*not modelled"),
        (("model.layers=[{kind: full, count: 1}, {kind: mamba2, count: 1}]",), "."),
    ],
)
def test_what_does_not_go_together_gets_one_line(tmp_path: Path, sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_scenario(scenario(tmp_path, *sets))


def test_hits_are_not_explained_and_steps_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hits are explained of replicas that do all"):
        run_scenario(scenario(tmp_path), explain=True)
