"""The claims about memory, in the order of the report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_check.case import Case
from gpu_check.claims import Claim, equal
from gpu_check.device import Device
from gpu_check.memory import probes
from gpu_check.memory.buffers import Buffers
from gpu_check.memory.cuda import free_memory_claim, largest_pool_claim, warm_up
from gpu_check.memory.fitting import requests_that_fit
from gpu_check.memory.layout import layer_places
from sim.engine import WINDOW
from sim.planning import KVCacheGroup, Memory, stage_names
from sim.planning.sizing import block_bytes_of
from sim.planning.stages import split_groups
from workloads import open_workload


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool that is allocated: the scenario's own, or as many of its blocks as the budget holds.

    ``groups`` are those of the pipeline stage whose blocks are the largest.
    """

    groups: tuple[KVCacheGroup, ...]
    block_bytes: int
    num_blocks: int
    note: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the pool."""
        return self.block_bytes * self.num_blocks


def check_memory(case: Case, device: Device) -> list[Claim]:
    """Allocate the pool, probe it, fill it with requests; on a GPU also look at the driver's numbers."""
    pool = pool_of(case)
    warm_up(device)
    largest = largest_pool_claim(device, pool.block_bytes)
    before = device.free_bytes()
    places = layer_places(pool.groups, pool.num_blocks, case.engine.kv_cache_layout, pool.block_bytes)
    buffers = Buffers(places, pool.num_bytes, device.torch_device)
    after = device.free_bytes()
    claims = [
        equal(
            "memory", "bytes of the pool", pool.num_bytes, buffers.raw.untyped_storage().nbytes(),
            unit="bytes", note=pool.note,
        ),
        free_memory_claim(device, pool.num_bytes, before, after),
        probes.filled_bytes(buffers, pool.groups),
        probes.foreign_bytes(buffers),
        probes.strides(buffers),
        probes.addresses(buffers),
    ]  # fmt: skip
    if len({spec.page_size_bytes for group in pool.groups for spec in group.layer_specs}) == 1:
        claims.append(probes.shared_regions(buffers, pool.groups))
    claims.append(requests_that_fit(buffers, case.plan, case.engine, request_tokens(case)))
    return [*claims, largest]


def pool_of(case: Case) -> Pool:
    """The scenario's pool, or a smaller one of the same blocks where the budget does not hold it."""
    stages = split_groups(case.plan.groups, stage_names(case.scenario.model, case.engine))
    outermost = case.engine.block_outermost
    groups = max(stages, key=lambda stage: block_bytes_of(stage, block_outermost=outermost))
    block_bytes = block_bytes_of(groups, block_outermost=outermost)
    held = Memory(kv_cache_memory_bytes=case.budget_bytes).num_blocks(block_bytes)
    if case.plan.num_blocks <= held:
        return Pool(groups, block_bytes, case.plan.num_blocks, "the scenario's own pool")
    note = f"{held:,} of the scenario's {case.plan.num_blocks:,} blocks: as many as {case.budget_bytes:,} bytes hold"
    return Pool(groups, block_bytes, held, note)


def request_tokens(case: Case) -> int:
    """The length of the scenario's requests: prompt and output, on average; max_model_len where there are none."""
    longest = case.engine.max_model_len
    if not case.scenario.workload:
        return longest
    workload = open_workload(case.scenario.workload, case.scenario.base_dir, case.scenario.seed)
    lengths = [batch.prompt_tokens + batch.output_tokens for batch in workload.batches(WINDOW)]
    return min(longest, round(float(np.concatenate(lengths).mean())))
