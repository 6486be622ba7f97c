"""hybridkv in Python: what the commands do, with pandas frames for answers.

    >>> from sim import load_scenario, simulate
    >>> run = simulate(load_scenario("toy"))
    >>> run.summary["peak_used_blocks"]
    24
    >>> run.requests[["prompt_tokens", "output_tokens", "preemptions"]].to_dict("records")
    [{'prompt_tokens': 112, 'output_tokens': 8, 'preemptions': 0}]

Whatever cannot be used raises InputError or WorkloadError, what vLLM refuses at start RefusalError: one line each, with
the place at fault.
"""

from __future__ import annotations

from sim.api.answers import Comparison, Fit, Simulation
from sim.api.calls import compare, plan, simulate, sweep
from sim.scenario import load_scenario

__all__ = ["Comparison", "Fit", "Simulation", "compare", "load_scenario", "plan", "simulate", "sweep"]
