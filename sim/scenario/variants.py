"""Running every variant of a scenario, where a refusal of vLLM's is an answer too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sim.errors import RefusalError
from sim.scenario.config import Scenario

R = TypeVar("R")


def run_variants(scenario: Scenario, run: Callable[[str, Scenario], R]) -> tuple[dict[str, R], dict[str, str]]:
    """What ``run`` makes of each variant, and for those vLLM refuses to start the line it is refused with.

    Both by name, in the scenario's order. Raises the first RefusalError where every variant is refused.
    """
    answers: dict[str, R] = {}
    refusals: dict[str, RefusalError] = {}
    for name in scenario.compared():
        try:
            answers[name] = run(name, scenario.variant(name))
        except RefusalError as error:
            refusals[name] = error
    if not answers:
        raise next(iter(refusals.values()))
    return answers, {name: str(error) for name, error in refusals.items()}
