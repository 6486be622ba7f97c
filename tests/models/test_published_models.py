"""Every model vLLM 0.33.0 was asked about elsewhere: specs, groups, bytes and blocks equal, refusals shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.models import model_from_config
from tests.models.published import answer, engine_of, entries, our_layers, plan_in_40_gib, published_layers, same_spec

LEFT_OUT = {
    "GLM-5.2-NVFP4": "refused by the kernels, so once it is planned",
}
"""Models that were not served elsewhere for a reason that is not in their config."""


def test_the_data_is_what_it_was(shared_data: Path) -> None:
    found = entries(shared_data)
    assert sum(entry["supported"] for entry in found) >= 152
    assert sum(len(entry.get("variants", {})) for entry in found) >= 977


def test_specs_in_construction_order(shared_data: Path) -> None:
    compared = 0
    for entry in entries(shared_data):
        theirs = published_layers(entry) if entry["supported"] else None
        if theirs is None:
            continue
        ours = our_layers(entry)
        assert len(ours) == len(theirs), entry["name"]
        for position, (mine, vllms) in enumerate(zip(ours, theirs, strict=True)):
            assert same_spec(mine, vllms) == [], f"{entry['name']}, layer {position}"
        compared += len(ours)
    assert compared > 6_000


def test_groups_blocks_and_concurrency(shared_data: Path) -> None:
    for entry in entries(shared_data):
        if not entry["supported"]:
            continue
        model = model_from_config(entry["raw"])
        assert (model.dtype, model.max_model_len) == (entry["dtype"], entry["max_model_len"]), entry["name"]
        published = entry["plan_40GiB"]
        if published is None:
            assert all(layer.kind == "no_cache" for layer in model.layers), entry["name"]
            continue
        plan = plan_in_40_gib(model, engine_of(model, "h100_tp1"))
        assert [group.block_size for group in plan.groups] == [group["block_size"] for group in entry["groups"]]
        assert [len(group.layer_names) for group in plan.groups] == [group["n_layers"] for group in entry["groups"]]
        assert plan.block_bytes == entry["pool_bytes_per_block"], entry["name"]
        assert list(plan.admission_blocks) == published["blocks_per_request_at_max_len"], entry["name"]
        assert plan.max_concurrency == pytest.approx(published["max_concurrency"], abs=5e-5), entry["name"]
        names = ["num_blocks", "kv_cache_size_tokens"]
        if entry["prefix_caching"]:  # nobody reads the others without
            names += ["scheduler_block_size", "hash_block_size", "cache_hit_alignment_tokens"]
        for name in names:
            assert getattr(plan, name) == published[name], f"{entry['name']}: {name}"


@pytest.mark.parametrize("variant", ["h100_tp2", "h100_tp4", "h100_tp8", "h100_noapc", "h100_fp8", "h100_int8ph"])
def test_flags_on_h100(shared_data: Path, variant: str) -> None:
    assert compared(shared_data, variant) >= 106


@pytest.mark.parametrize(("variant", "least"), [("h100_nohma", 106), ("h100_bs64", 11), ("h100_mtp1", 10)])
def test_manager_off_blocks_given_and_drafts(shared_data: Path, variant: str, least: int) -> None:
    assert compared(shared_data, variant) >= least


@pytest.mark.parametrize(("variant", "least"), [("b200_tp1", 106), ("a100_tp1", 106), ("b200_keepquant", 2)])
def test_other_gpus(shared_data: Path, variant: str, least: int) -> None:
    assert compared(shared_data, variant) >= least


def compared(folder: Path, variant: str) -> int:
    """How many answers to this variant were compared, all of them equal or refused alike."""
    count = 0
    for entry in entries(folder):
        theirs = entry.get("variants", {}).get(variant)
        if theirs is None:
            continue
        ours = answer(entry["raw"], variant)
        if theirs.get("groups") == []:
            assert "no layer has a KV cache" in ours["error"]
        elif "error" in theirs or "error" in ours:
            assert ("error" in theirs) == ("error" in ours), f"{entry['name']}: {ours.get('error')}"
        else:
            assert ours == {key: value for key, value in comparable(theirs).items() if key in ours}, entry["name"]
        count += 1
    return count


def comparable(theirs: dict[str, Any]) -> dict[str, Any]:
    """A published variant with the block size of the smallest group, as ours has it."""
    groups = theirs.get("groups") or []
    return theirs | {"block_size": min((group[2] for group in groups), default=theirs["block_size"])}


def test_what_vllm_refuses_is_refused(shared_data: Path) -> None:
    for entry in entries(shared_data):
        if entry["supported"] or entry["name"] in LEFT_OUT:
            continue
        with pytest.raises(InputError) as caught:
            model_from_config(entry["raw"])
        assert "\n" not in str(caught.value), entry["name"]
    glm = next(entry for entry in entries(shared_data) if entry["name"] == "GLM-5.2-NVFP4")
    assert "no valid attention backend found" in answer(glm["raw"], "h100_tp1")["error"]
