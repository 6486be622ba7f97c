"""Replicas behind a router: dealt out in turn they are independent engines; loads and prefixes decide as they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.core.inbox import Arrivals, looked_at
from sim.engine import Fleet
from sim.errors import InputError
from sim.invariants import check_invariants
from sim.report.run_tables import run_tables
from sim.run import run_scenario
from sim.scenario import Scenario
from tests.engine.scenarios import ALIKE, check_sweep_is_the_same_anywhere, loaded
from tests.engine.serving import batch_of, cut, serve
from tests.engine.test_clients import CROWDED, clients, mixed, talks
from tests.twin.ours import make_machine
from tests.twin.settings import Settings, ask
from workloads.batch import RequestBatch

ROUTINGS = ["round_robin", "least_loaded", "prefix_aware", "prefix_sent"]


def fleet(
    batch: RequestBatch,
    replicas: int,
    routing: str,
    *,
    rows: int = 4096,
    number: int = 0,
    delay: int = 0,
    load_bound: float = 1.25,
    settings: Settings = CROWDED,
) -> tuple[Fleet, list[dict[str, Any]]]:
    """A fleet that has served a batch, and its replicas' requests."""
    made = Fleet(
        [make_machine(settings, log_tables=False) for _ in range(replicas)],
        iter(cut(batch, rows)),
        routing,
        load_bound=load_bound,
        on_drain=check_invariants,
        clients=clients(number) if number else None,
        answer_delay_ns=delay,
    )
    made.run()
    traffic = made.traffic
    return made, [server.records.request_columns(traffic.ids, traffic.sessions, 0) for server in made.servers]


def test_dealt_out_in_turn_each_replica_runs_as_it_would_alone() -> None:
    batch = batch_of(mixed())
    made, found = fleet(batch, 3, "round_robin")
    for replica, columns in enumerate(found):
        alone = serve(batch.take(np.arange(replica, len(batch), 3)), CROWDED)
        assert repr(columns) == repr(alone.requests)
        assert made.servers[replica].machine.state.output.counters.tolist() == alone.counters
    assert made.sent == [20, 20, 20]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("number", "delay"), [(0, 0), (5, 0), (5, 3)])
def test_a_fleet_of_one_is_an_engine(routing: str, number: int, delay: int) -> None:
    for batch in (batch_of(mixed()), talks()):
        alone = serve(batch, CROWDED, clients=clients(number) if number else None, answer_delay_ns=delay)
        _, (columns,) = fleet(batch, 1, routing, number=number, delay=delay)
        assert repr(columns) == repr(alone.requests)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("number", [0, 2, 9])
def test_everybody_is_served_once_in_any_window(routing: str, number: int) -> None:
    for batch in (batch_of(mixed()), talks()):
        whole, found = fleet(batch, 3, routing, number=number)
        assert sorted(name for columns in found for name in columns["id"]) == sorted(batch.ids)
        assert sum(whole.sent) == len(batch)
        assert repr(fleet(batch, 3, routing, number=number, rows=5)[1]) == repr(found)


@pytest.mark.parametrize("routing", ["round_robin", "least_loaded"])
def test_each_replica_of_a_closed_loop_runs_as_in_an_open_one(routing: str) -> None:
    """What clients send to a replica, sent again at the same times to an engine alone, gives the same run."""
    _, found = fleet(batch_of(mixed()), 3, routing, number=7)
    for columns in found:
        at = dict(zip(columns["id"], (columns["arrival_s"] * 1e9).round().astype(int).tolist(), strict=True))
        asks = [
            ask(r.name, at[r.name], r.prompt, r.output_tokens, priority=r.priority) for r in mixed() if r.name in at
        ]
        again = serve(asks, CROWDED).requests
        order = [again["id"].index(name) for name in columns["id"]]
        assert again["finish_s"][order].tolist() == columns["finish_s"].tolist()


def test_the_least_loaded_replica_is_spared_a_long_request() -> None:
    asks = [ask("long", 0, [(1, 8)], 40), *(ask(f"r{i}", 10 + 60 * i, [(10 + i, 8)], 3) for i in range(4))]
    made, found = fleet(batch_of(asks), 2, "least_loaded")
    assert found[0]["id"] == ["long"] or found[1]["id"] == ["long"]
    assert sorted(made.sent) == [1, 4]


@pytest.mark.parametrize("routing", ["prefix_aware", "prefix_sent"])
def test_a_prefix_goes_where_it_was_sent_before_unless_that_replica_is_loaded(routing: str) -> None:
    asks = [ask(f"r{i}", 1000 * i, [(i % 2, 16), (10 + i, 4)], 1) for i in range(12)]
    _, found = fleet(batch_of(asks), 2, routing)
    assert sorted(len({int(name[1:]) % 2 for name in columns["id"]}) for columns in found) == [1, 1]
    together = [ask(f"r{i}", 3 + i, [(0, 16), (10 + i, 4)], 9) for i in range(12)]
    first = ask("first", 0, [(0, 16)], 1)
    assert min(fleet(batch_of([first, *together]), 2, routing)[0].sent) >= 3
    assert sorted(fleet(batch_of([first, *together]), 2, routing, load_bound=100)[0].sent) == [0, 13]


def test_who_asks_the_cache_knows_what_is_gone_and_who_remembers_does_not() -> None:
    """After "a", served by replica 0, four long requests in turn take every block of both; it is replica 1's turn."""
    long = [ask(f"long{i}", 1000 + 1000 * i, [(20 + i, 60)], 1) for i in range(4)]
    asks = [ask("a", 0, [(1, 16), (2, 4)], 1), *long, ask("again", 10_000, [(1, 16), (4, 4)], 1)]
    for routing, replica in (("prefix_sent", 0), ("prefix_aware", 1)):
        _, found = fleet(batch_of(asks), 2, routing, settings=replace(CROWDED, num_blocks=17))
        assert "a" in found[0]["id"]
        assert "again" in found[replica]["id"]
        assert sum(columns["cached_tokens"].sum() for columns in found) == 0


@pytest.mark.parametrize("routing", ["prefix_aware", "prefix_sent"])
def test_a_request_is_looked_at_once(routing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[int] = []

    def counted(window: Arrivals) -> Any:
        linked.extend(window.ordinal.tolist())
        return looked_at(window)

    monkeypatch.setattr("sim.engine.routing.looked_at", counted)
    fleet(batch_of(mixed()), 3, routing)
    assert linked == list(range(60))


def test_no_such_routing() -> None:
    with pytest.raises(InputError, match="round_robin, least_loaded, prefix_aware, prefix_sent"):
        fleet(batch_of([ask("a")]), 2, "random")


def scenario(folder: Path, *sets: str) -> Scenario:
    """The scenario with changes."""
    return loaded(folder, ALIKE, *sets)


def test_in_turn_behind_a_router_is_data_parallel(tmp_path: Path) -> None:
    routed = run_scenario(scenario(tmp_path, "replicas.count=3"), check=True)
    dealt = run_scenario(scenario(tmp_path, "engine.data_parallel_size=3"))
    assert routed.summary.pop("routing") == "round_robin"
    pairs = zip((routed.summary, *routed.summary["replicas"]), (dealt.summary, *dealt.summary["replicas"]), strict=True)
    for ours, theirs in pairs:  # records are taken over at other times, and sums of seconds made in that order
        for name in ("mean_running", "mean_used_blocks", "busy_s"):
            assert ours.pop(name) == pytest.approx(theirs.pop(name), rel=1e-12)
    assert routed.summary == dealt.summary
    assert repr(routed.requests) == repr(dealt.requests)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_scenario_says_how_many_and_how(tmp_path: Path, routing: str) -> None:
    loop = ("workload.max_concurrency=12", "workload.synthetic.arrival={kind: all_at_once}")
    for sets in ((), loop):
        asked = scenario(tmp_path, "replicas.count=3", f"replicas.routing={routing}", *sets)
        result = run_scenario(asked, check=True, explain=True)
        assert result.summary["finished"] == result.summary["requests"] == 200
        assert [own["finished"] > 0 for own in result.summary["replicas"]] == [True] * 3
        assert f"{routing}" == result.summary["routing"]
        assert run_scenario(asked, explain=True).summary == result.summary
        assert any("requests go" in note or "modulo" in note for note in run_tables(asked, result, "")[1].notes)


def test_routing_by_prefix_hits_more_than_in_turn(tmp_path: Path) -> None:
    hits = {
        routing: run_scenario(scenario(tmp_path, "replicas.count=3", f"replicas.routing={routing}")).summary
        for routing in ("round_robin", "prefix_aware")
    }
    assert hits["prefix_aware"]["prefix_cache_hit_tokens"] > hits["round_robin"]["prefix_cache_hit_tokens"]


def test_replicas_are_the_same_in_any_number_of_processes(tmp_path: Path) -> None:
    routings = f"[{', '.join(ROUTINGS)}]"
    sweep = f"set: {{replicas.count: 3}}\ngrid: {{replicas.routing: {routings}, seed: [0, 1]}}\n"
    check_sweep_is_the_same_anywhere(tmp_path, ALIKE, sweep)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("replicas.count=0",), "replicas.count.*greater than or equal to 1"),
        (("replicas.routing=random",), "replicas.routing.*allowed are"),
        (("replicas.count=2", "engine.data_parallel_size=2"), "replicas.count.*cannot stand beside"),
    ],
)
def test_bad_replicas_get_one_line(tmp_path: Path, sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_scenario(scenario(tmp_path, *sets))


def test_sessions_that_wait_are_not_torn_apart(tmp_path: Path) -> None:
    waiting = "workload.synthetic.sessions={turns: 3, think_s: 0.1, new_tokens: 20, closed_loop: true}"
    with pytest.raises(InputError, match=r"replicas: \{count: n"):
        run_scenario(scenario(tmp_path, waiting, "engine.data_parallel_size=2"))
    result = run_scenario(scenario(tmp_path, waiting, "replicas={count: 2, routing: prefix_aware}"))
    assert result.summary["finished"] == 200
