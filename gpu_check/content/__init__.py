"""The check of contents: the scenario's own steps replayed with real keys, values and states in real blocks.

Importing this package brings torch when a check runs, not before.
"""

from __future__ import annotations

from pathlib import Path

from gpu_check.case import Case
from gpu_check.claims import Claim
from gpu_check.device import Device


def content_claims(case: Case, device: Device, out: Path) -> list[Claim]:
    """What was found about the contents of the blocks of ``case``; writes nothing to ``out``."""
    from gpu_check.content.check import check_content

    del out
    return check_content(case, device)
