"""The rows that explain the hits of a random configuration with drafts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.core.seen import LOST_FIELDS, LOST_ROWS, Seen
from sim.core.state import Plan
from sim.engine import Engine
from sim.errors import FailureError, RefusalError, StallError
from sim.explanation import Explanation
from sim.machine import Machine, make_plan
from tests.oracle.our_side import batch_of, plan_of, price_of


class _EnoughError(Exception):
    """Requests may preempt each other for ever."""


class _Rows(Explanation):
    """Keeps every row."""

    def __init__(self) -> None:
        super().__init__(1)
        self.rows = [np.zeros((0, LOST_FIELDS), np.int32)]

    def drain(self, seen: Seen) -> None:
        """Take over the rows as they are."""
        self.rows.append(seen.lost[: seen.counters[LOST_ROWS]].copy())
        seen.counters[LOST_ROWS] = 0


def lost_rows(case: dict[str, Any], most_steps: int) -> tuple[Plan, NDArray[np.int32]] | None:
    """The core's plan and a row for each admission; None where vLLM refuses."""
    config = case["config"]
    try:
        plan, engine = plan_of(config)
        numbers = make_plan(plan, engine, config.get("draft_seed", 0))
    except RefusalError:
        return None
    resets = [(at, running) for at, running in case.get("resets", [])]
    machine = Machine(numbers, price_of(config, engine), plan.num_blocks, explain=True, resets=resets)
    steps = 0

    def on_step(_: Machine) -> None:
        nonlocal steps
        steps += 1
        if steps > most_steps:
            raise _EnoughError

    loop = Engine(machine, iter([batch_of(case["requests"])]), on_step=on_step)
    loop.explanation = kept = _Rows()
    try:
        loop.run()
    except (StallError, FailureError, _EnoughError):
        kept.drain(machine.state.seen)
    return numbers, np.concatenate(kept.rows)
