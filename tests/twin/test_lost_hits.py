"""Why hits end where they do, against sets of prefixes in plain Python: every admission of random runs."""

from __future__ import annotations

from typing import Any

import pytest

from sim.core.advance import STEPPED
from sim.core.seen import (
    EVICTED,
    L_ADMITTED,
    L_GROUP,
    L_HIT,
    L_LOST,
    L_ORDINAL,
    L_RESUMED,
    L_SEEN,
    L_TOKENS,
    LOST_ROWS,
    NUM_CAUSES,
    RESET,
)
from tests.twin.drawn import seeded_case
from tests.twin.explained import ExplainedManager
from tests.twin.ours import Ours, arrivals, make_machine
from tests.twin.settings import Ask, Settings, ask
from tests.twin.twin import Twin

MOST_STEPS = 1000
"""Of runs in which requests preempt each other for ever, that much is compared."""


def our_rows(settings: Settings, asks: list[Ask]) -> list[dict[str, Any]]:
    """What the machine says of each admission of a run."""
    machine = make_machine(settings, log_tables=False, explain=True)
    ordered = sorted(asks, key=lambda ask: ask.arrival_ns)
    machine.submit(arrivals(ordered))
    for _ in range(MOST_STEPS):
        if machine.advance(one_step=True) != STEPPED:
            break
    seen = machine.state.seen
    return [
        {
            "name": ordered[row[L_ORDINAL]].name,
            "resumed": bool(row[L_RESUMED]),
            "tokens": row[L_TOKENS],
            "hit": row[L_HIT],
            "seen": row[L_SEEN],
            "admitted": row[L_ADMITTED],
            "lost": row[L_LOST:L_GROUP],
            "groups": row[L_GROUP:],
        }
        for row in seen.lost[: seen.counters[LOST_ROWS]].tolist()
    ]


def twins_rows(settings: Settings, asks: list[Ask]) -> list[dict[str, Any]]:
    """The same, said slowly."""
    twin = Twin(settings)
    manager = ExplainedManager(settings)
    twin.scheduler.manager = manager
    twin.submit(asks)
    for _ in range(MOST_STEPS):
        if twin.advance()[0] != "stepped":
            break
    return (
        manager.rows
        if settings.enable_prefix_caching and any(group.in_prefix_cache for group in manager.groups)
        else []
    )


SEEDS = [seed for seed in range(600) if seed < 150 or seeded_case(seed)[0].drafts.computed_again > 0]
"""Any run, and more of those with several draft modules."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_admission_of_a_random_run(seed: int) -> None:
    settings, asks = seeded_case(seed)
    expected = twins_rows(settings, asks)
    assert our_rows(settings, asks) == expected
    for row in expected:
        assert row["hit"] + sum(row["lost"]) == row["seen"] <= row["admitted"] <= row["tokens"] - 1


def test_the_runs_lose_tokens_to_every_cause_they_can() -> None:
    """So that the comparison says something: both kinds of group, before and after a preemption."""
    rows = [row for seed in SEEDS for row in our_rows(*seeded_case(seed))]
    lost = [sum(bool(row["lost"][cause]) for row in rows) for cause in range(NUM_CAUSES)]
    assert min(lost) >= 5, lost
    assert any(row["resumed"] and sum(row["lost"]) for row in rows)


def test_what_a_reset_took_was_not_evicted() -> None:
    """b finds nothing of a after the reset; c finds b's; in a pool of five blocks d, of three, has evicted one."""
    again = [ask(name, 1000 * i, [(1, 13)], 1) for i, name in enumerate("abc")]
    rows = our_rows(Settings(resets=((500, False),)), again)
    assert [(row["hit"], row["lost"][RESET], row["lost"][EVICTED]) for row in rows] == [
        (0, 0, 0),
        (0, 12, 0),
        (12, 0, 0),
    ]
    other = [again[0], again[1], ask("d", 1500, [(2, 11)], 1), again[2]]
    rows = our_rows(Settings(resets=((500, False),), num_blocks=6, max_model_len=16), other)
    assert [(row["name"], row["hit"], row["lost"][RESET], row["lost"][EVICTED]) for row in rows[2:]] == [
        ("d", 0, 0, 0),
        ("c", 8, 0, 4),
    ]


def test_explaining_changes_no_decision() -> None:
    for seed in range(20):
        settings, asks = seeded_case(seed)
        plain = Ours(settings)
        explained = Ours(settings, explain=True)
        assert explained.run(*asks) == plain.run(*asks)
        assert plain.machine.state.seen.key.size == 0
