"""hybridkv: what a vLLM engine with its hybrid KV cache manager will do, simulated block for block.

    from sim import load_scenario, simulate, plan, compare, sweep

:mod:`sim.api` says what each does. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api import Comparison, Fit, Simulation, compare, load_scenario, plan, simulate, sweep

__all__ = ["Comparison", "Fit", "Simulation", "compare", "load_scenario", "plan", "simulate", "sweep"]


def __getattr__(name: str) -> Any:
    """The names of the Python API, imported when they are first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'sim' has no attribute {name!r}; it offers {', '.join(__all__)}")
    from sim import api

    return getattr(api, name)
