"""The life of a request, told by a watch that reads the machine: held to the step log of the same run."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pytest

from sim.errors import InputError
from sim.report.story_tables import story_tables
from sim.run import Result, run_scenario
from sim.scenario import Scenario, load_scenario
from sim.story import RequestWatch

TRAFFIC = """{
  requests: 30,
  arrival: {kind: gamma, rate_per_s: 40, cv: 2},
  shared_prefix: {pools: 2, tokens: 64, zipf: 1},
  prompt_tokens: {kind: lognormal, mean: 90, cv: 1, max: 200},
  output_tokens: {kind: lognormal, mean: 180, cv: 1, max: 300},
}"""
BUSY = (
    "engine.max_model_len=512",
    "memory.kv_cache_memory_bytes=5_000_000",
    "engine.max_num_seqs=8",
    "engine.max_num_batched_tokens=128",
    f"workload.synthetic={TRAFFIC}",
)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """A pool too small for its requests, which share prefixes: they wait, hit, and are preempted."""
    return load_scenario("toy", BUSY)


@pytest.fixture(scope="module")
def logged(scenario: Scenario) -> tuple[Result, list[dict[str, Any]]]:
    """The run and its step log."""
    stream = io.StringIO()
    result = run_scenario(scenario, step_log=stream, explain=True)
    return result, [json.loads(line) for line in stream.getvalue().splitlines()]


def watched(scenario: Scenario, name: str) -> RequestWatch:
    """A request watched through the same run."""
    watch = RequestWatch(name)
    run_scenario(scenario, explain=True, watchers=[watch])
    return watch


def busiest(result: Result) -> list[str]:
    """The request preempted most, the one that waited longest, the one with most hits."""
    rows = result.requests
    return list(
        dict.fromkeys(rows["id"][int(rows[key].argmax())] for key in ("preemptions", "queue_s", "cached_tokens"))
    )


def test_the_run_has_something_to_tell(logged: tuple[Result, list[dict[str, Any]]]) -> None:
    result, _ = logged
    assert result.summary["preemptions"] > 3
    assert result.summary["prefix_cache_hit_tokens"] > 500
    assert result.summary["peak_waiting"] > 5


def test_a_story_agrees_with_the_step_log(scenario: Scenario, logged: tuple[Result, list[dict[str, Any]]]) -> None:
    result, entries = logged
    steps = [entry for entry in entries if "step" in entry]
    for name in busiest(result):
        watch = watched(scenario, name)
        told = Counter[str]()
        for one in watch.happenings:
            told[one["kind"]] += one.get("tokens", 1)
        scheduled = sum(tokens for entry in steps for own, tokens in entry["scheduled"] if own == name)
        assert told["prefilled"] + told["decoded"] == scheduled
        admissions = [(entry["step"], hit) for entry in steps for own, hit in entry["hits"] if own == name]
        mine = [one for one in watch.happenings if one["kind"] == "admitted"]
        assert [(one["step"], one["hit_tokens"]) for one in mine] == admissions
        preempted = [entry["step"] for entry in steps if name in entry["preempted"]]
        assert [one["step"] for one in watch.happenings if one["kind"] == "preempted"] == preempted
        taken = [entry["new_blocks"] for entry in steps]
        got = [block for new in taken for own, groups in new if own == name for ids in groups for block in ids if block]
        gone = [
            block for one in watch.happenings if one["kind"] == "freed" for _, ids in one["blocks"] for block in ids
        ]
        assert set(gone) <= set(got)


def test_who_was_preempted_for_whom(scenario: Scenario, logged: tuple[Result, list[dict[str, Any]]]) -> None:
    result, entries = logged
    rows = result.requests
    victims = [rows["id"][i] for i in range(len(rows["id"])) if rows["preemptions"][i]]
    for name in victims[:3]:
        for one in watched(scenario, name).happenings:
            if one["kind"] == "preempted":
                entry = next(entry for entry in entries if entry.get("step") == one["step"])
                served = {own for own, _ in entry["scheduled"]}
                assert one["by"] == name or one["by"] in served
                assert one["by"] == name or any(own == one["by"] for own, _ in entry["new_blocks"])


def test_waiting_covers_every_step_from_arrival_to_admission(
    scenario: Scenario, logged: tuple[Result, list[dict[str, Any]]]
) -> None:
    result, _ = logged
    rows = result.requests
    name = busiest(result)[1]
    watch = watched(scenario, name)
    first = next(one for one in watch.happenings if one["kind"] == "admitted")
    waits = watch.happenings[: watch.happenings.index(first)]
    assert {one["kind"] for one in waits} == {"waited"}
    assert sum(one["steps"] for one in waits) == first["step"] - waits[0]["step"] > 100
    assert waits[0]["time_s"] >= rows["arrival_s"][rows["id"].index(name)]
    assert {reason for one in waits for reason in [one["reason"]] if "places" in reason or "blocks" in reason}


def test_the_story_in_words_names_what_happened(
    scenario: Scenario, logged: tuple[Result, list[dict[str, Any]]]
) -> None:
    result, _ = logged
    rows = result.requests
    name = busiest(result)[0]
    at = rows["id"].index(name)
    watch = watched(scenario, name)
    row = {key: values[at] for key, values in rows.items()}
    story, blocks = story_tables(row, watch, result.plan)
    text = "\n".join(line[2] for line in story.rows)
    assert text.count("preempted: ") == row["preemptions"]
    assert text.startswith("arrives with a prompt of")
    assert "admitted: hits" in text
    assert "in the queue" in text.splitlines()[-1]
    assert len(blocks.rows) == len(result.plan.groups)


def test_a_request_is_watched_in_its_own_engine_alone(scenario: Scenario) -> None:
    """Engines number their requests alike: what follows in the others is not of this one."""
    pair = load_scenario("toy", [*BUSY, "engine.data_parallel_size=2"])
    rows = run_scenario(pair).requests
    at = max(range(len(rows["id"])), key=lambda i: (rows["replica"][i] == 0, rows["queue_s"][i]))
    watch = watched(pair, rows["id"][at])
    assert all(one["time_s"] <= rows["finish_s"][at] for one in watch.happenings)
    assert sum(one["kind"] == "preempted" for one in watch.happenings) == rows["preemptions"][at]
    with pytest.raises(InputError, match="one replica"):
        watched(load_scenario("toy", [*BUSY, "replicas={count: 2}"]), "0")
