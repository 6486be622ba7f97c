"""Runs of a few layers of any kind that say why hits end where they do."""

from __future__ import annotations

from typing import Any

from sim.engine import Engine
from sim.explanation import CAUSES, Explanation
from sim.machine import Machine, make_plan
from sim.specs import Spec
from sim.step_time import make_step_time
from tests.core.layers_run import MODEL, planned
from tests.oracle.our_side import batch_of


def explained(
    layers: list[Spec], requests: list[dict[str, Any]], num_blocks: int = 60, **flags: Any
) -> tuple[Engine, Explanation]:
    """The engine after the run, and what it says of its hits."""
    plan, engine = planned(layers, num_blocks, **flags)
    price = make_step_time({"kind": "constant", "seconds": 1e-9}, MODEL, engine, None).price
    machine = Machine(make_plan(plan, engine), price, plan.num_blocks, explain=True)
    loop = Engine(machine, iter([batch_of(requests)]))
    loop.run()
    return loop, loop.explanation


def losses(layers: list[Spec], requests: list[dict[str, Any]], num_blocks: int = 60, **flags: Any) -> dict[str, Any]:
    """Per request that lost tokens: its hit, then the tokens lost to each cause and the group (None: all alike)."""
    loop, explanation = explained(layers, requests, num_blocks, **flags)
    columns = explanation.request_columns(loop.records.ordinals())
    cached = loop.records.request_columns(loop.ids, loop.sessions, 0)["cached_tokens"].tolist()
    found: dict[str, Any] = {}
    for i, name in enumerate(loop.ids):
        lost: dict[str, Any] = {}
        for cause, words in CAUSES.items():
            if tokens := int(columns[f"lost_{cause}_tokens"][i]):
                group = int(columns[f"lost_{cause}_group"][i])
                lost[words] = tokens if group < 0 else (tokens, group)
        assert cached[i] + sum(columns[f"lost_{cause}_tokens"][i] for cause in CAUSES) == columns["seen_tokens"][i]
        if lost:
            found[name] = (cached[i], lost)
    return found
