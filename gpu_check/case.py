"""What is checked: a scenario, its plan, and the log of every step the simulator takes on it."""

from __future__ import annotations

import io
import json
from functools import cached_property
from typing import Any

from sim.errors import InputError
from sim.planning import KVCachePlan, effective_engine, plan_kv_cache
from sim.run import Result, run_scenario
from sim.scenario import Scenario
from sim.scenario.checking import located


class Case:
    """One scenario under check; ``budget_bytes`` is the memory that a check may fill on the device.

    Raises what loading and planning raise; InputError for scenarios that are not one GPU's business.
    """

    def __init__(self, scenario: Scenario, budget_bytes: int) -> None:
        self.scenario = scenario
        self.budget_bytes = budget_bytes
        with located(scenario.document):
            self.engine = effective_engine(scenario.model, scenario.engine)
            self.plan: KVCachePlan = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
        if scenario.engine.data_parallel_size > 1:
            raise InputError("a check takes one replica; set it to 1", where="engine.data_parallel_size")

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The entries of the step log, in order (:mod:`sim.step_log`); the simulation runs once."""
        return self._run[0]

    @cached_property
    def result(self) -> Result:
        """What the simulator says about the run."""
        return self._run[1]

    @cached_property
    def _run(self) -> tuple[list[dict[str, Any]], Result]:
        self.scenario.require_workload()
        stream = io.StringIO()
        with located(self.scenario.document):
            result = run_scenario(self.scenario, step_log=stream)
        return [json.loads(line) for line in stream.getvalue().splitlines()], result
