"""Models of the catalogue against what vLLM 0.33.0 made of them: groups, bytes of a block, blocks in 40 GiB.

``facts.json``: per model and variant ``[[layers, block size] per group], bytes, blocks]``, or null where vLLM refuses;
taken from vLLM's own model classes and planner on a described GPU. ``weights.json``: how many parameters the text
parts of those classes have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.models import load_model, model_names, weight_bytes
from tests.models.published import engine_of, plan_in_40_gib

FACTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("facts.json").read_text(encoding="utf-8"))

WEIGHTS: dict[str, int] = json.loads(Path(__file__).with_name("weights.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "variant"), [(name, variant) for name in FACTS for variant in FACTS[name]])
def test_groups_and_blocks(name: str, variant: str) -> None:
    model, facts = load_model(name), FACTS[name][variant]
    if facts is None:
        with pytest.raises(InputError):
            plan_in_40_gib(model, engine_of(model, variant))
        return
    plan = plan_in_40_gib(model, engine_of(model, variant))
    groups = [[len(group.layer_names), group.block_size] for group in plan.groups]
    assert [groups, plan.block_bytes, plan.num_blocks] == facts


def test_the_catalogue_covers_every_kind() -> None:
    assert len(model_names()) >= 60
    kinds = {layer.kind for name in model_names() for layer in load_model(name).layers}
    assert kinds >= {
        "full",
        "sliding_window",
        "chunked_local",
        "mla",
        "sliding_window_mla",
        "mamba",
        "cross",
        "circular",
    }
    states = {layer.state.mamba_type for name in model_names() for layer in load_model(name).layers if layer.state}
    assert states == {"mamba1", "mamba2", "gdn_attn", "short_conv"}


@pytest.mark.parametrize("name", model_names())
def test_every_model_has_weights(name: str) -> None:
    model = load_model(name)
    assert 0 < model.params_active <= model.params_total
    assert 0 <= model.expert_params < model.params_total
    assert model.params_dense > 0
    assert weight_bytes(model, tensor_parallel_size=2).rank_bytes <= weight_bytes(model).rank_bytes


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_within_one_percent(name: str) -> None:
    assert load_model(name).params_total == pytest.approx(WEIGHTS[name], rel=0.01)
