"""Scenarios: a YAML file in, a checked configuration with every default filled in out."""

from __future__ import annotations

from sim.scenario.config import DEFAULT_VARIANTS, Scenario, build_scenario, load_scenario
from sim.scenario.find import find_scenario, shipped_scenarios
from sim.scenario.overrides import Override, parse_override
from sim.scenario.steps import read_step_time, write_step_time
from sim.scenario.strict_yaml import Document, dump_yaml
from sim.scenario.variants import run_variants

__all__ = [
    "DEFAULT_VARIANTS",
    "Document",
    "Override",
    "Scenario",
    "build_scenario",
    "dump_yaml",
    "find_scenario",
    "load_scenario",
    "parse_override",
    "read_step_time",
    "run_variants",
    "shipped_scenarios",
    "write_step_time",
]
