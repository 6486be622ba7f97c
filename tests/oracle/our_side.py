"""Our side of the oracle: one case through the machine, as the same log lines that vLLM's side writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sim.core.output import ACCEPTED_COUNT, LOAD_ROWS, VERIFIED_COUNT
from sim.core.price import Price
from sim.core.state import FREE_SLOT, KV_CONSUMER, NUM_WAITING, ORDINAL, ROW, STATUS, WAITING_HEAP
from sim.engine import Engine
from sim.engine_config import EngineConfig
from sim.errors import FailureError, RefusalError, StallError
from sim.invariants import check_invariants
from sim.kv_events import KVEvents
from sim.machine import ALONE, Machine, Role, make_plan
from sim.models import Model, load_model, model_from_mapping
from sim.planning import KVCacheGroup, KVCachePlan, Memory, plan_kv_cache, plan_layers
from sim.step_log import StepLog
from sim.step_time import make_step_time
from tests.oracle.case_layers import is_short, named_layers
from tests.oracle.event_names import Event, EventNames
from tests.oracle.planning_specs import our_spec
from workloads.batch import RequestBatch, from_spans, tie_ranks
from workloads.content import content_id, salt_id

Line = dict[str, Any]


class _EndlessError(Exception):
    """More steps than the case allows: requests preempt each other for ever, or nearly so."""


def our_side(case: dict[str, Any]) -> Iterator[Line]:
    """The log of a case: ``plan``, steps, ``finished``, ``state`` at sample steps, ``stalled``.

    Or one line: ``refused``. The machine's invariants are checked at sample steps.
    """
    try:
        plan, engine = plan_of(case["config"])
        remote = case["config"].get("remote_prefill")
        role = Role(KV_CONSUMER, *remote) if remote else ALONE
        numbers = make_plan(plan, engine, case["config"].get("draft_seed", 0), role)
    except RefusalError as refusal:
        yield {"refused": str(refusal)}
        return
    machine = Machine(
        numbers,
        price_of(case["config"], engine),
        plan.num_blocks,
        log_tables=True,
        log_events=bool(case["config"].get("enable_kv_cache_events")),
        resets=[(at, running) for at, running in case.get("resets", [])],
    )
    yield {"plan": _describe(plan)}
    lines: list[Line] = []
    try:
        _run(machine, case, plan.groups, lines)
    except Exception:
        yield from lines  # so that the exception comes at its step
        raise
    yield from lines


def _run(machine: Machine, case: dict[str, Any], groups: Sequence[KVCacheGroup], lines: list[Line]) -> None:
    """Add what happens in the machine from the first request to the last, or to the stall."""
    every = case.get("sample_every", 0)

    def on_step(machine: Machine) -> None:
        machine.state.output.counters[LOAD_ROWS] = 0
        lines.extend(log.entries(machine))
        if machine.state.pool.events.size:
            lines[-1]["kv_events"] = [_event(names, entry) for entry in events.entries(machine)]
        if case.get("resets"):
            lines[-1]["resets"] = machine.resets_done()
        step = lines[-1]["step"]
        if step > case.get("max_steps", 1_000_000):
            raise _EndlessError
        if every and (step - 1) % every == 0:
            check_invariants(machine)
            lines.append({"state": step, **_state(machine, loop.ids)})

    loop = Engine(machine, iter([batch_of(case["requests"])]), on_step=on_step)
    log = StepLog(lambda ordinal: loop.ids[ordinal])
    events, names = KVEvents(lambda ordinal: loop.ids[ordinal], groups), EventNames()
    try:
        loop.run()
    except StallError:
        lines += log.finished(machine)
        lines.append({"stalled": sorted(_unfinished(machine, loop.ids))})
    except FailureError as failure:
        lines += log.finished(machine)
        lines.append({"failed": str(failure)})
        return
    except _EndlessError:
        return
    else:
        lines += log.finished(machine)
        if machine.state.pool.events.size:
            lines.append({"events": [_event(names, entry) for entry in events.entries(machine)]})
    drafts = machine.state.output.counters[VERIFIED_COUNT : ACCEPTED_COUNT + 1].tolist()
    if drafts[0]:
        lines.append({"drafts": drafts})


def _event(names: EventNames, entry: Line) -> Event:
    """One of our events in the form both sides share."""
    if entry["type"] == "AllBlocksCleared":
        return names.cleared()
    if entry["type"] == "BlockRemoved":
        return names.removed(entry["block_hashes"], entry["group_idx"])
    start, end = entry["tokens"]
    described = entry["group_idx"], entry["kv_cache_spec_kind"], entry["kv_cache_spec_sliding_window"]
    return names.stored(entry["block_hashes"], entry["parent_block_hash"], end - start, entry["block_size"], *described)


def plan_of(config: dict[str, Any]) -> tuple[KVCachePlan, EngineConfig]:
    """The plan and the engine of a case's configuration. Raises RefusalError where vLLM refuses.

    Layers in the short form take the way of a scenario's model; those in the planning form are specs already.
    """
    engine = EngineConfig(**{key: config[key] for key in EngineConfig.__dataclass_fields__ if key in config})
    memory = Memory(num_gpu_blocks_override=config["num_gpu_blocks"])
    if is_short(config):
        return plan_kv_cache(_model(config), engine, memory), engine
    specs = {entry["name"]: our_spec(entry) for entry in named_layers(config)}
    return plan_layers(specs, engine, memory, encoder_tokens=config.get("max_source_positions", 0)), engine


def price_of(config: dict[str, Any], engine: EngineConfig) -> Price:
    """The constant step time of a case, which no model has a part in."""
    settings = {"kind": "constant", "seconds": config["step_seconds"]}
    return make_step_time(settings, load_model("llama-3.1-8b"), engine, None).price


def _model(config: dict[str, Any]) -> Model:
    first = config["layers"][0]
    layers = [{k: layer[k] for k in ("kind", "count", "window", "num_kv_heads", "head_size") if layer[k] is not None}
              for layer in config["layers"]]  # fmt: skip
    return model_from_mapping(
        {
            "layers": layers,
            "num_kv_heads": first["num_kv_heads"],
            "head_size": first["head_size"],
            "dtype": first["dtype"],
            "max_model_len": config["max_model_len"],
        }
    )


def batch_of(requests: list[dict[str, Any]]) -> RequestBatch:
    """The requests of a case as columns, sorted by arrival."""
    ordered = sorted(requests, key=lambda item: int(item["arrival_ns"]))
    ids = [item["id"] for item in ordered]
    arrival = np.array([item["arrival_ns"] for item in ordered], np.int64)
    outputs = [item["output"] or [[f"private output of {item['id']}", item["output_tokens"]]] for item in ordered]
    spans = [[*item["prompt"], *output] for item, output in zip(ordered, outputs, strict=True)]
    flat = [span for request in spans for span in request]
    salts = [item.get("cache_salt") for item in ordered]
    return from_spans(
        ids,
        arrival,
        prompt_tokens=np.array([sum(n for _, n in item["prompt"]) for item in ordered], np.int64),
        output_tokens=np.array([item["output_tokens"] for item in ordered], np.int64),
        prompt_spans=np.array([len(item["prompt"]) for item in ordered], np.int64),
        span_counts=np.array([len(request) for request in spans], np.int64),
        span_content=np.array([content_id(content) for content, _ in flat], np.uint64),
        span_tokens=np.array([n for _, n in flat], np.int64),
        max_tokens=np.array([item.get("max_tokens") or item["output_tokens"] for item in ordered], np.int64),
        priority=np.array([item.get("priority", 0) for item in ordered], np.int64),
        encoder_tokens=np.array([item.get("encoder_tokens", 0) for item in ordered], np.int64),
        skip_cache=np.array([bool(item.get("skip_cache", False)) for item in ordered], np.bool_),
        salt=np.array([0 if salt is None else salt_id(salt) for salt in salts], np.uint64),
        tie_rank=tie_ranks(ids, arrival),
    )


def _describe(plan: KVCachePlan) -> Line:
    return {
        "groups": [
            {
                "kind": group.kind,
                "window": group.window,
                "layers": list(group.layer_names),
                "block_size": group.block_size,
                "page_size_bytes": group.spec.page_size_bytes,
            }
            for group in plan.groups
        ],
        "num_blocks": plan.num_blocks,
        "scheduler_block_size": plan.scheduler_block_size,
        "hash_block_size": plan.hash_block_size,
    }


def _state(machine: Machine, ids: list[str]) -> Line:
    requests = machine.state.requests
    held = np.flatnonzero((requests[:, STATUS] != FREE_SLOT) & (requests[:, ROW] >= 0)).tolist()
    tables = {ids[int(requests[slot, ORDINAL])]: machine.block_table(slot) for slot in held}
    return {"tables": tables, "free": machine.free_queue().tolist()}


def _unfinished(machine: Machine, ids: list[str]) -> list[str]:
    queues = machine.state.queues
    slots = [*machine.running_slots(), *queues.lists[WAITING_HEAP, : queues.counters[NUM_WAITING]].tolist()]
    return [ids[int(machine.state.requests[slot, ORDINAL])] for slot in slots]
