"""Startup logs of vLLM, any release since 0.8: what they print, what it means, and whether it adds up.

``hybridkv plan`` reads the rules of releases too, and needs none of the patterns: names are imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.startup_log.explain import Explanation, explain_text
    from sim.startup_log.facts import LogFacts
    from sim.startup_log.reading import read_log

__all__ = ["Explanation", "LogFacts", "explain_text", "read_log"]

_MODULES = {"Explanation": "explain", "LogFacts": "facts", "explain_text": "explain", "read_log": "reading"}


def __getattr__(name: str) -> Any:
    """One of the names above, from the module that has it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'sim.startup_log' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(f"sim.startup_log.{_MODULES[name]}"), name)
