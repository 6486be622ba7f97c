"""Startup logs of vLLM, any release since 0.8: what they print, what it means, and whether it adds up."""

from __future__ import annotations

from sim.startup_log.explain import Explanation, explain_text
from sim.startup_log.facts import LogFacts
from sim.startup_log.reading import read_log

__all__ = ["Explanation", "LogFacts", "explain_text", "read_log"]
