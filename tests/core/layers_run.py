"""Runs of a few layers of any kind: specs in, step log out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.engine import Engine
from sim.engine_config import EngineConfig
from sim.invariants import check_invariants
from sim.kv_events import KVEvents
from sim.machine import Machine, make_plan
from sim.models import model_from_mapping
from sim.planning import KVCachePlan, Memory, plan_layers
from sim.specs import FullAttentionSpec, MambaSpec, Spec
from sim.step_log import StepLog
from sim.step_time import make_step_time
from tests.oracle.our_side import batch_of

BLOCK = 4
MODEL = model_from_mapping({"layers": [{"kind": "full"}], "num_kv_heads": 1, "head_size": 8, "max_model_len": 64})


def full() -> FullAttentionSpec:
    """A layer of full attention whose page has 128 bytes."""
    return FullAttentionSpec(BLOCK, 1, 8, "bfloat16")


def state(mode: str, **fields: Any) -> MambaSpec:
    """A layer with a state of 128 bytes."""
    return MambaSpec(BLOCK, shapes=((64,),), dtypes=("bfloat16",), mamba_cache_mode=mode, **fields)  # type: ignore[arg-type]


def planned(layers: list[Spec], num_blocks: int = 60, **flags: Any) -> tuple[KVCachePlan, EngineConfig]:
    """The plan of a few layers, and the engine it is for."""
    engine = EngineConfig(
        **{
            "max_model_len": 64,
            "max_num_batched_tokens": 64,
            "max_num_seqs": 8,
            "block_size": BLOCK,
            "async_scheduling": False,
            **flags,
        }
    )
    named = {f"layers.{i}": spec for i, spec in enumerate(layers)}
    return plan_layers(named, engine, Memory(num_gpu_blocks_override=num_blocks)), engine


def machine_of(
    layers: list[Spec],
    num_blocks: int = 60,
    *,
    log_events: bool = False,
    resets: Sequence[tuple[int, bool]] = (),
    **flags: Any,
) -> Machine:
    """An empty machine for a few layers; a step takes a nanosecond."""
    plan, engine = planned(layers, num_blocks, **flags)
    price = make_step_time({"kind": "constant", "seconds": 1e-9}, MODEL, engine, None).price
    numbers = make_plan(plan, engine)
    return Machine(numbers, price, plan.num_blocks, log_tables=True, log_events=log_events, resets=resets)


def run(layers: list[Spec], requests: list[dict[str, Any]], num_blocks: int = 60, **flags: Any) -> list[dict[str, Any]]:
    """The step log; each step also tells the tables of running requests as they are after scheduling.

    With ``log_events`` it tells the KV cache events since the step before, with ``resets`` what became of them so far.
    """
    machine = machine_of(layers, num_blocks, **flags)
    groups = planned(layers, num_blocks, **{key: flags[key] for key in flags if key not in ("log_events", "resets")})
    events = KVEvents(lambda ordinal: loop.ids[ordinal], groups[0].groups)
    batch = batch_of(requests)
    log = StepLog(lambda ordinal: loop.ids[ordinal])
    lines: list[dict[str, Any]] = []

    def on_step(machine: Machine) -> None:
        lines.extend(log.entries(machine))
        check_invariants(machine)
        lines[-1] |= {"kv_events": list(events.entries(machine)), "resets": machine.resets_done()}
        lines[-1]["tables"] = [machine.block_table(slot) for slot in machine.running_slots()]

    loop = Engine(machine, iter([batch]), on_step=on_step)
    loop.run()
    return lines + list(log.finished(machine))


def asked(name: str, prompt: list[list[Any]], outputs: int, arrival_ns: int = 0) -> dict[str, Any]:
    """One request; its outputs are its own."""
    return {
        "id": name,
        "arrival_ns": arrival_ns,
        "prompt": prompt,
        "output": None,
        "output_tokens": outputs,
        "max_tokens": outputs,
    }


def steps(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries that are steps."""
    return [line for line in log if "step" in line]
