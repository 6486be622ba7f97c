"""What all points of a calibration share: model, GPU, flags and memory, from a model's name or a scenario."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.footprint.waterfall import Deployment, estimate_waterfall
from sim.hardware import find_gpu
from sim.scenario import Document, Override, Scenario, build_scenario
from sim.scenario.find import find_scenario, shipped_scenarios
from sim.scenario.overrides import apply
from sim.scenario.strict_yaml import read_yaml
from sim.units import GIB

_SHARED = ("model", "hardware", "engine", "memory", "seed")


def calibration_base(target: str, overrides: Iterable[Override]) -> dict[str, Any]:
    """The shared sections of a scenario, as plain data; where no memory is given it is estimated as ``plan`` does.

    ``target`` is a model (a name, a folder, a config.json) or a scenario, of which traffic and step times are left out.
    Raises InputError for what is neither, RefusalError where the weights leave no memory.
    """
    document = Document(target, {"model": target})
    if target in shipped_scenarios() or Path(target).suffix in (".yaml", ".yml"):
        document = read_yaml(find_scenario(target), target)
    if not isinstance(document.value, dict):
        raise InputError("expected a model's name or a scenario", where=target)
    shared = {key: value for key, value in document.value.items() if key in _SHARED}
    document = apply(Document(target, shared, document.places), list(overrides))
    value: dict[str, Any] = document.value
    given = bool(value.get("memory"))
    if not given:
        value["memory"] = {"num_gpu_blocks_override": 1}
    scenario = build_scenario(document, Path.cwd())
    if not given:
        value["memory"] = {"available_kv_cache_memory_gib": _estimated_gib(scenario)}
    return value


def _estimated_gib(scenario: Scenario) -> float:
    engine: EngineConfig = scenario.engine
    if scenario.gpu is None:
        raise InputError("is missing; calibration needs a GPU's peaks", where="hardware.gpu")
    left = estimate_waterfall(scenario.model, engine, find_gpu(scenario.gpu), Deployment())
    return round(left.kv_cache.num_bytes / GIB, 2)
