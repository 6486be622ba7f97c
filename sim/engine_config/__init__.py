"""Engine flags: vLLM's names, defaults and refusals."""

from __future__ import annotations

from sim.engine_config.acceptance import joint_rates
from sim.engine_config.budgets import USAGES, default_budgets
from sim.engine_config.checks import KV_CACHE_DTYPES, POLICIES, SPECULATIVE_METHODS
from sim.engine_config.config import EngineConfig

__all__ = [
    "KV_CACHE_DTYPES",
    "POLICIES",
    "SPECULATIVE_METHODS",
    "USAGES",
    "EngineConfig",
    "default_budgets",
    "joint_rates",
]
