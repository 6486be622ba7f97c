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


def small_workload(requests: int, prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Requests that share two prefixes, close upon each other."""
    return {
        "synthetic": {
            "requests": requests,
            "arrival": {"kind": "gamma", "rate_per_s": 40, "cv": 2},
            "shared_prefix": {"pools": 2, "tokens": prompt_tokens * 3 // 4, "zipf": 1},
            "prompt_tokens": {"kind": "lognormal", "mean": prompt_tokens, "cv": 0.8, "max": 2 * prompt_tokens},
            "output_tokens": {"kind": "lognormal", "mean": output_tokens, "cv": 0.8, "max": 3 * output_tokens},
        }
    }
