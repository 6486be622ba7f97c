"""How requests end, and in which order they are served."""

from __future__ import annotations

import pytest

from tests.twin.ours import Ours, steps
from tests.twin.settings import Ask, Settings, ask


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize(
    ("request_", "outputs", "reason"),
    [
        (ask("a", 0, [(1, 4)], 3), 3, "length"),
        (ask("a", 0, [(1, 4)], 3, max_tokens=7), 3, "stop"),
        (ask("a", 0, [(1, 4)], 1, max_tokens=7), 1, "stop"),
        (ask("a", 0, [(1, 4)], 4), 4, "length"),
        (ask("a", 0, [(1, 4)], 5), 4, "truncated"),
        (ask("a", 0, [(1, 4)], 5, max_tokens=9), 4, "truncated"),
        (ask("a", 0, [(1, 4)], 4, max_tokens=9), 4, "stop"),
        (ask("a", 0, [(1, 7)], 9), 1, "truncated"),
        (ask("a", 0, [(1, 7)], 1), 1, "length"),
    ],
)
def test_an_end_has_a_reason(request_: Ask, outputs: int, reason: str, async_scheduling: bool) -> None:
    """The model holds 8 tokens."""
    ours = Ours(Settings(max_model_len=8, async_scheduling=async_scheduling))
    ours.run(request_)
    assert [(end["outputs"], end["reason"]) for end in ours.finished] == [(outputs, reason)]


def served(settings: Settings, *asks: Ask) -> list[str]:
    """Names in order of admission."""
    return [name for step in steps(Ours(settings).run(*asks)) for name, _ in step["hits"]]


CROWD = [
    ask("z", 0, [(9, 4)], priority=9),
    ask("b10", 0, [(1, 4)], priority=1),
    ask("b9", 0, [(2, 4)], priority=1),
    ask("a", 5, [(3, 4)], priority=1),
    ask("u", 6, [(4, 4)], priority=0),
]


def test_first_come_first_served() -> None:
    assert served(Settings(max_num_seqs=1), *CROWD) == ["z", "b10", "b9", "a", "u"]


def test_priority_then_arrival_then_the_id_as_a_string() -> None:
    """u, the most urgent, comes while b10 runs; b9 is served before a, which sorts before it but came later."""
    assert served(Settings(max_num_seqs=1, priority_policy=True), *CROWD) == ["b10", "u", "b9", "a", "z"]


def test_an_arrival_at_the_very_moment_of_a_schedule_precedes_it() -> None:
    log = steps(Ours(Settings()).run(ask("a", 0, [(1, 4)], 3), ask("b", 10, [(3, 4)]), ask("c", 11, [(4, 4)])))
    assert [step["hits"] for step in log] == [[["a", 0]], [["b", 0]], [["c", 0]]]
