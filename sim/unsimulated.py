"""What is planned exactly and not run: settings a run refuses."""

from __future__ import annotations

from sim.engine_config import EngineConfig
from sim.errors import InputError


def refuse_unsimulated(engine: EngineConfig) -> None:
    """Raise InputError for settings whose blocks are planned exactly, but whose run is not modelled yet."""
    if engine.num_speculative_tokens and not engine.async_scheduling and engine.pipeline_parallel_size > 1:
        raise InputError(
            "drafts over pipeline stages without it, which vLLM asks for before the output they follow, is planned but"
            " not simulated yet; use `plan`",
            where="engine.async_scheduling",
        )
