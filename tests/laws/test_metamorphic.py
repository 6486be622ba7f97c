"""Changes of the input that must not matter, or must matter in a known way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.twin.drawn import seeded_case
from tests.twin.ours import Ours
from tests.twin.settings import Ask, Group, Settings, ask

SEEDS = range(200, 225)
LONG = 10_000
"""A window no sequence reaches."""


def outcome(settings: Settings, asks: list[Ask]) -> tuple[list[Any], list[int], list[dict[str, Any]]]:
    """Log entries, the free queue at the end, and the records of a run."""
    ours = Ours(settings)
    return ours.run(*asks), ours.free_queue(), ours.finished


def renamed(value: Any, names: dict[str, str]) -> Any:
    """A log entry or record with other names in it."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    return value


def untimed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without their times."""
    return [{key: value for key, value in record.items() if not key.endswith("_ns")} for record in records]


def timed(records: list[dict[str, Any]], shift: int = 0, factor: int = 1) -> list[dict[str, Any]]:
    """Records at other times."""
    return [
        {key: value * factor + shift if key.endswith("_ns") else value for key, value in record.items()}
        for record in records
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_other_ids_change_nothing(seed: int) -> None:
    """First come, first served: ids are labels. They sort the other way round here."""
    settings, asks = seeded_case(seed, plain=True)
    settings = replace(settings, priority_policy=False)
    names = {request.name: f"{9999 - number}" for number, request in enumerate(asks)}
    log, free, records = outcome(settings, asks)
    others = outcome(settings, [replace(request, name=names[request.name]) for request in asks])
    assert others == (renamed(log, names), free, renamed(records, names))


@pytest.mark.parametrize("seed", SEEDS)
def test_other_words_change_nothing(seed: int) -> None:
    """What a text says does not matter, only which texts are the same."""
    settings, asks = seeded_case(seed, plain=True)

    def translated(spans: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple((content ^ 0x5DEECE66D, tokens) for content, tokens in spans)

    others = [
        replace(request, prompt=translated(request.prompt), output=translated(request.output)) for request in asks
    ]
    assert outcome(settings, others) == outcome(settings, asks)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_salt_for_all_changes_nothing(seed: int) -> None:
    settings, asks = seeded_case(seed, plain=True)
    unsalted = [replace(request, salt=0) for request in asks]
    assert outcome(settings, [replace(request, salt=77) for request in asks]) == outcome(settings, unsalted)


@pytest.mark.parametrize("seed", SEEDS)
def test_another_time_of_day_changes_nothing(seed: int) -> None:
    settings, asks = seeded_case(seed, plain=True)
    hour = 3600 * 10**9
    log, free, records = outcome(settings, asks)
    later = outcome(settings, [replace(request, arrival_ns=request.arrival_ns + hour) for request in asks])
    assert later == (log, free, timed(records, shift=hour))


@pytest.mark.parametrize("seed", SEEDS)
def test_slower_steps_and_later_arrivals_are_the_same_film_in_slow_motion(seed: int) -> None:
    """Whole shares of a step for each pipeline stage, so that nothing is rounded."""
    settings, asks = seeded_case(seed, plain=True)
    settings = replace(settings, step_ns=6 * settings.step_ns)
    log, free, records = outcome(settings, asks)
    slow = replace(settings, step_ns=5 * settings.step_ns)
    stretched = [replace(request, arrival_ns=5 * request.arrival_ns) for request in asks]
    assert outcome(slow, stretched) == (log, free, timed(records, factor=5))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_window_that_nothing_outgrows_is_full_attention(seed: int, groups: int) -> None:
    """With every prefix kept and in a pool of the same size; beside full attention, too.

    Admission charges a window at most the longest sequence and a block, so its cap does not bind either.
    """
    settings, asks = seeded_case(seed, plain=True)
    size = settings.groups[0].block_size
    full = replace(settings, groups=(Group(size),) * groups, retention_interval=None)
    full = replace(full, num_blocks=1 + full.blocks_of_longest + settings.num_blocks % 7)
    window = replace(full, groups=(*full.groups[1:], Group(size, LONG)))
    assert outcome(window, asks) == outcome(full, asks)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_caching_there_are_no_hits(seed: int) -> None:
    settings, asks = seeded_case(seed, plain=True)
    ours = Ours(replace(settings, enable_prefix_caching=False, retention_interval=None))
    log = ours.run(*asks)
    assert all(hit == 0 for entry in log for _, hit in entry.get("hits", []))
    assert not ours.machine.state.pool.key.any()
    assert all(record["cached"] == 0 for record in ours.finished)


@pytest.mark.parametrize("seed", SEEDS)
def test_texts_of_their_own_hit_nothing_but_themselves(seed: int) -> None:
    """Only a request that was preempted finds cached blocks: its own."""
    settings, asks = seeded_case(seed, plain=True)
    private = [
        replace(
            request, prompt=((2 * number, request.prompt_tokens),), output=((2 * number + 1, request.output_tokens),)
        )
        for number, request in enumerate(asks)
    ]
    ours = Ours(settings)
    log = ours.run(*private)
    seen: set[str] = set()
    for entry in log:
        for name, hit in entry.get("hits", []):
            assert hit == 0 or name in seen
            seen.add(name)


@pytest.mark.parametrize("seed", SEEDS)
def test_skipped_look_ups_never_hit_and_leave_blocks_behind(seed: int) -> None:
    settings, asks = seeded_case(seed, plain=True)
    ours = Ours(settings)
    log = ours.run(*(replace(request, skip_cache=True) for request in asks))
    assert all(hit == 0 for entry in log for _, hit in entry.get("hits", []))


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_priorities_are_no_priorities(seed: int) -> None:
    """Where nobody is preempted; who is, comes back to the front first come, first served, but by arrival otherwise."""
    settings, asks = seeded_case(seed, plain=True)
    roomy = replace(settings, num_blocks=2000, watermark_blocks=0)
    alike = [replace(request, name=f"r{number:03}", priority=3) for number, request in enumerate(asks)]
    by_priority = outcome(replace(roomy, priority_policy=True), alike)
    assert by_priority == outcome(replace(roomy, priority_policy=False), alike)
    assert not any(entry.get("preempted") for entry in by_priority[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_every_token_is_scheduled_once(seed: int) -> None:
    """Without preemption, that is: its text but the last output, less what it found cached."""
    settings, asks = seeded_case(seed, plain=True)
    ours = Ours(replace(settings, async_scheduling=False))
    totals = dict.fromkeys((request.name for request in asks), 0)
    for entry in ours.run(*asks):
        for name, tokens in entry.get("scheduled", []):
            totals[name] += tokens
    prompts = {request.name: request.prompt_tokens for request in asks}
    for record in ours.finished:
        once = prompts[record["name"]] + record["outputs"] - 1 - record["cached"]
        assert record["preemptions"] or totals[record["name"]] == once


def test_a_request_alone_is_served_in_the_same_time_in_any_pool() -> None:
    """With no one else there, blocks beyond the longest request buy nothing."""
    alone = [ask("a", 0, [(1, 50)], 14)]
    found = [untimed(outcome(Settings(num_blocks=blocks), alone)[2]) for blocks in (17, 30, 500)]
    assert found[0] == found[1] == found[2]
