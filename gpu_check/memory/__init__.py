"""The check of memory: the plan's buffers, allocated and viewed as vLLM's worker does it, and what fits into them.

Importing this package brings torch when a check runs, not before.
"""

from __future__ import annotations

from pathlib import Path

from gpu_check.case import Case
from gpu_check.claims import Claim
from gpu_check.device import Device


def memory_claims(case: Case, device: Device, out: Path) -> list[Claim]:
    """What was found about the bytes of ``case``; writes nothing to ``out``."""
    from gpu_check.memory.check import check_memory

    del out
    return check_memory(case, device)
