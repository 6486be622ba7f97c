"""Small cases for the checks: a model and flags as a scenario, on a processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_check.case import Case
from gpu_check.claims import Claim, Verdict
from gpu_check.device import choose_device
from sim.scenario.config import build_scenario
from sim.scenario.strict_yaml import Document

CPU = choose_device("cpu")

TOY = {
    "layers": [{"kind": "full", "count": 2}, {"kind": "sliding_window", "count": 4, "window": 32}],
    "num_kv_heads": 1,
    "head_size": 64,
    "max_model_len": 1024,
}


def case_of(model: Any, blocks: int, budget: int = 12_000_000, **sections: Any) -> Case:
    """A case of a model with a pool of ``blocks``; ``sections`` are those of a scenario."""
    value = {"model": model, "memory": {"num_gpu_blocks_override": blocks}, **sections}
    return Case(build_scenario(Document("case.yaml", value), Path.cwd()), budget)


def verdicts(claims: list[Claim]) -> dict[str, Verdict]:
    """What became of each claim, by its words."""
    return {claim.claim: claim.verdict for claim in claims}


def refuted(claims: list[Claim]) -> list[Claim]:
    """The claims that do not hold."""
    return [claim for claim in claims if claim.verdict is Verdict.REFUTED]
