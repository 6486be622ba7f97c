"""A generator fitted to a trace: lengths, burstiness and the tree of shared prefixes, without any request of it."""

from __future__ import annotations

from workloads.synthesis.fit import Fit, fit
from workloads.synthesis.generate import generate

__all__ = ["Fit", "fit", "generate"]
