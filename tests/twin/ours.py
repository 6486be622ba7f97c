"""The machine under test behind the twin's interface: settings and requests in, log entries out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sim.core.advance import IDLE, RECORDS_FULL, STALLED, STEPPED
from sim.core.hashing import first_word
from sim.core.inbox import Arrivals
from sim.core.output import (
    F_CACHED,
    F_FINISH,
    F_FIRST_SCHEDULED,
    F_FIRST_TOKEN,
    F_ORDINAL,
    F_OUTPUT,
    F_PREEMPTIONS,
    F_REASON,
    FINISH_ROWS,
    STEP_ROWS,
)
from sim.core.state import (
    CHUNKED_LOCAL,
    CIRCULAR,
    CROSS,
    FREE_SLOT,
    FULL,
    MAMBA_ALIGN,
    MAMBA_NONE,
    NEVER,
    ORDINAL,
    REPLAY,
    ROW,
    RSWA,
    SLIDING_WINDOW,
    STATUS,
    Plan,
)
from sim.engine_config import EngineConfig
from sim.machine import Machine, make_plan
from sim.planning import Memory, plan_layers
from sim.planning.block_sizes import partial_hash_hits_enabled, resolve_block_sizes
from sim.planning.group import KVCacheGroup
from sim.records import REASONS
from sim.specs import FullAttentionSpec, MambaSpec, Spec
from sim.step_log import StepLog
from sim.step_time import constant_price
from tests.twin.settings import FULL_LIKE, PRIVATE, Ask, Settings

Entry = dict[str, Any]
KINDS = {
    "full": FULL,
    "sliding_window": SLIDING_WINDOW,
    "chunked_local": CHUNKED_LOCAL,
    "rswa": RSWA,
    "mamba_none": MAMBA_NONE,
    "mamba_align": MAMBA_ALIGN,
    "circular": CIRCULAR,
    "cross": CROSS,
    "replay": REPLAY,
}


def engine_config(settings: Settings) -> EngineConfig:
    """The settings as engine flags."""
    return EngineConfig(
        block_size=settings.groups[0].block_size,
        max_model_len=settings.max_model_len,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        enable_prefix_caching=settings.enable_prefix_caching,
        prefix_cache_retention_interval=settings.retention_interval,
        enable_chunked_prefill=settings.enable_chunked_prefill,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        scheduling_policy="priority" if settings.priority_policy else "fcfs",
        scheduler_reserve_full_isl=settings.scheduler_reserve_full_isl,
        watermark=(settings.watermark_blocks + 0.5) / settings.num_blocks if settings.watermark_blocks else 0.0,
        async_scheduling=settings.async_scheduling,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        max_num_active_seqs=settings.max_num_active_seqs,
        long_prefill_token_threshold_adaptive=settings.long_prefill_token_threshold_adaptive,
        prefill_schedule_interval=settings.prefill_schedule_interval,
    )


def core_plan(settings: Settings) -> Plan:
    """The settings as the core wants them: the plan of a model with one group, with other groups in its place."""
    config = engine_config(settings)
    alone = replace(config, prefix_cache_retention_interval=None)
    layer = FullAttentionSpec(settings.groups[0].block_size, 1, 8, "bfloat16")
    enough = Memory(num_gpu_blocks_override=settings.max_model_len + 2)
    layers = {f"layers.{i}": layer for i in range(settings.pipeline_parallel_size)}
    one = make_plan(replace(plan_layers(layers, alone, enough), num_blocks=settings.num_blocks), config)
    groups = settings.groups
    shared = [i for i, group in enumerate(groups) if group.kind not in PRIVATE]
    specs = sorted(dict.fromkeys(groups[i] for i in shared), key=lambda group: group.kind not in FULL_LIKE)
    members = [[i for i in shared if groups[i] == spec] for spec in specs]
    caps = [settings.admission_cap(group) for group in groups]
    exports = [group.export_tokens for group in settings.states]
    repeated = {name: np.repeat(value, len(groups)) for name, value in one._asdict().items() if np.ndim(value)}
    changed: dict[str, Any] = {
        **repeated,
        "kind": column(KINDS[group.kind] for group in groups),
        "block_size": column(settings.span(group) for group in groups),
        "window": column(group.window for group in groups),
        "kept_window": column(settings.kept_window(group) for group in groups),
        "spec_blocks": column(group.spec_blocks for group in groups),
        "checkpoint_alignment": column(group.export_tokens for group in groups),
        "admission_cap": column(NEVER if cap is None else cap for cap in caps),
        "spec_offsets": np.cumsum([0, *map(len, members)]).astype(np.int64),
        "spec_groups": column(i for ids in members for i in ids),
        "scheduler_block_size": settings.scheduler_block_size,
        "hash_block_size": settings.hash_block_size,
        "hit_alignment": settings.hit_alignment,
        "partial_hits": settings.partial_hits,
        "num_spec_tokens": settings.drafts.count,
        "asks_for_drafts": settings.asks_for_drafts,
        "acceptance": column(settings.drafts.acceptance),
        "draft_word": np.uint64(first_word(np.uint64(settings.drafts.seed))),
        "num_lookahead_tokens": settings.drafts.num_lookahead_tokens,
        "draft_slots": settings.drafts.draft_slots,
        "prefill_lookahead": settings.drafts.prefill_lookahead,
        "hash_lookahead": settings.drafts.hash_lookahead,
        "junction_states": settings.junction_states,
        "drops_last_block": settings.drafts.drops_last_block,
        "drops": column(settings.drops(i) for i in range(len(groups))),
        "encoder_budget": settings.encoder_budget,
        "prefix_replay_tokens": settings.replay_tokens,
        "split_block_size": settings.chunk_unit if exports else 0,
        "split_alignment": exports[0] if exports and all(exports) else 0,
    }
    if settings.decode_context_parallel_size > 1:
        changed |= context_parallel(settings)
    return one._replace(**changed)


def context_parallel(settings: Settings) -> dict[str, Any]:
    """The sizes that planning finds where blocks of full attention span the ranks."""
    dcp, groups = settings.decode_context_parallel_size, []
    for number, group in enumerate(settings.groups):
        spec: Spec = FullAttentionSpec(group.block_size, 1, 8, "bfloat16", dcp_sharded=group.sharded)
        if group.kind == "mamba_align":
            spec = MambaSpec(group.block_size, shapes=((8,),), dtypes=("bfloat16",), mamba_cache_mode="align")
        groups.append(KVCacheGroup((f"layers.{number}",), spec, (spec,)))
    scheduled, unit = resolve_block_sizes(
        groups,
        enable_prefix_caching=settings.enable_prefix_caching,
        prefix_match_unit=settings.prefix_match_unit,
        dcp_world_size=dcp,
    )
    fine = settings.enable_prefix_caching and len(groups) > 1 and partial_hash_hits_enabled(groups, unit, dcp)
    return {
        "block_size": column(group.spec.token_span(dcp) for group in groups),
        "scheduler_block_size": scheduled,
        "hash_block_size": unit,
        "partial_hits": fine,
        "hit_alignment": unit if fine else scheduled,
    }


def column(values: Iterable[int]) -> Any:
    """A column of integers as the core takes them."""
    return np.array(list(values), np.int64)


def make_machine(settings: Settings, *, log_tables: bool = True, explain: bool = False) -> Machine:
    """An empty machine with these settings."""
    price = constant_price(settings.step_ns)
    return Machine(
        core_plan(settings), price, settings.num_blocks, log_tables=log_tables, resets=settings.resets, explain=explain
    )


def arrivals(asks: Sequence[Ask], first_ordinal: int = 0) -> Arrivals:
    """Requests, sorted by arrival, as the columns the core takes."""
    names = [ask.name for ask in asks]
    ties = [sorted(a.name for a in asks if a.arrival_ns == ask.arrival_ns).index(ask.name) for ask in asks]
    spans = [(*ask.prompt, *ask.output) for ask in asks]
    flat = [span for spans_of_one in spans for span in spans_of_one]

    return Arrivals(
        ordinal=np.arange(first_ordinal, first_ordinal + len(names), dtype=np.int64),
        arrival_ns=column(ask.arrival_ns for ask in asks),
        prompt_tokens=column(ask.prompt_tokens for ask in asks),
        output_tokens=column(ask.output_tokens for ask in asks),
        max_tokens=column(ask.max_tokens for ask in asks),
        priority=column(ask.priority for ask in asks),
        tie_rank=column(ties),
        skip_cache=np.array([ask.skip_cache for ask in asks], np.bool_),
        encoder_tokens=column(ask.encoder_tokens for ask in asks),
        salt=np.array([ask.salt for ask in asks], np.uint64),
        span_offsets=np.cumsum([0, *map(len, spans)]).astype(np.int64),
        span_content=np.array([content for content, _ in flat], np.uint64),
        span_tokens=column(count for _, count in flat),
    )


class Ours:
    """The machine, one schedule() at a time, speaking of requests by name."""

    def __init__(self, settings: Settings, *, explain: bool = False) -> None:
        self.machine = make_machine(settings, explain=explain)
        self.names: list[str] = []
        self.finished: list[dict[str, Any]] = []
        self._log = StepLog(self.names.__getitem__)

    def submit(self, asks: Sequence[Ask]) -> None:
        """Hand over requests that arrive from now on."""
        ordered = sorted(asks, key=lambda ask: ask.arrival_ns)
        window = arrivals(ordered, len(self.names))
        self.names += [ask.name for ask in ordered]
        self.machine.submit(window)

    def advance(self) -> tuple[str, list[Entry]]:
        """Go on to the next step: ("stepped" | "idle" | "stalled", what happened on the way)."""
        reason = RECORDS_FULL
        while reason == RECORDS_FULL:
            reason = self.machine.advance(one_step=True)
            self.drain()
        if reason == STEPPED:
            return "stepped", list(self._log.entries(self.machine))
        assert reason in (IDLE, STALLED)
        return ("idle" if reason == IDLE else "stalled"), list(self._log.finished(self.machine))

    def run(self, *asks: Ask, most_steps: int = 3000) -> list[Entry]:
        """Submit requests and go on until nothing is left to do; everything that happened.

        Requests may preempt each other without end, as in vLLM: of such a run the first ``most_steps`` steps.
        """
        self.submit(asks)
        found: list[Entry] = []
        for _ in range(most_steps):
            reason, entries = self.advance()
            found += entries
            if reason != "stepped":
                break
        return found

    def drain(self) -> None:
        """Take over the records of finished requests and empty the machine's buffers."""
        output = self.machine.state.output
        for row in output.finished[: output.counters[FINISH_ROWS]].tolist():
            self.finished.append(
                {
                    "name": self.names[row[F_ORDINAL]],
                    "first_scheduled_ns": row[F_FIRST_SCHEDULED],
                    "first_token_ns": row[F_FIRST_TOKEN],
                    "finish_ns": row[F_FINISH],
                    "outputs": row[F_OUTPUT],
                    "cached": row[F_CACHED],
                    "preemptions": row[F_PREEMPTIONS],
                    "reason": REASONS[row[F_REASON]],
                }
            )
        output.counters[[STEP_ROWS, FINISH_ROWS]] = 0

    def tables(self) -> dict[str, list[list[int]]]:
        """The block tables of every request that holds blocks."""
        requests = self.machine.state.requests
        held = np.flatnonzero((requests[:, STATUS] != FREE_SLOT) & (requests[:, ROW] >= 0)).tolist()
        return {self.names[int(requests[slot, ORDINAL])]: self.machine.block_table(slot) for slot in held}

    def free_queue(self) -> list[int]:
        """Free blocks, the next one to be taken first."""
        free: list[int] = self.machine.free_queue().tolist()
        return free


def steps(entries: list[Entry]) -> list[Entry]:
    """The entries that are steps."""
    return [entry for entry in entries if "step" in entry]
