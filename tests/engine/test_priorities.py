"""Priorities through the engine: ties by arrival, then by the id as a string, in whatever window they come."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.serving import serve
from tests.twin.settings import Settings, ask

ONE_AT_A_TIME = Settings(max_num_seqs=1, priority_policy=True)


def order(ids: list[str], settings: Settings = ONE_AT_A_TIME, **columns: list[int]) -> list[str]:
    """Ids in order of service; all arrive together unless ``arrival`` says otherwise."""
    arrival = columns.get("arrival", [0] * len(ids))
    priority = columns.get("priority", [0] * len(ids))
    asks = [
        ask(name, at, [(number, 4)], priority=urgency)
        for number, (name, at, urgency) in enumerate(zip(ids, arrival, priority, strict=True), 1)
    ]
    requests = serve(asks, settings).requests
    return [requests["id"][i] for i in np.argsort(requests["first_scheduled_s"])]


def test_equal_priorities_and_arrivals_go_by_the_id_as_a_string() -> None:
    assert order(["10", "9", "100", "a", "B", "é"]) == ["10", "100", "9", "B", "a", "é"]


def test_arrival_comes_before_the_id() -> None:
    assert order(["c", "b", "a"], arrival=[0, 1, 2]) == ["c", "b", "a"]


def test_priority_comes_before_arrival() -> None:
    """z is served first because it is there first; then the most urgent ones, negative numbers included."""
    assert order(["z", "b", "a", "c"], arrival=[0, 1, 2, 3], priority=[9, 1, 0, -5]) == ["z", "c", "a", "b"]


def test_first_come_first_served_keeps_the_order_of_the_file() -> None:
    assert order(["10", "9", "a"], Settings(max_num_seqs=1)) == ["10", "9", "a"]


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_ties_are_ranked_in_any_window(rows: int) -> None:
    asks = [ask(f"{name}{group}", 5 * group, [(1, 4)], 3) for group in range(4) for name in ("b", "a", "c")]
    requests = serve(asks, ONE_AT_A_TIME, rows=rows).requests
    by_service = [requests["id"][i] for i in np.argsort(requests["first_scheduled_s"])]
    assert by_service == [f"{name}{group}" for group in range(4) for name in ("a", "b", "c")]
