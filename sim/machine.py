"""One replica of the engine: the compiled core with its plan, its state and the little it takes to drive it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.advance import RECORDS_FULL, advance
from sim.core.block_pool import free_queue
from sim.core.coordinator import blocks_needed
from sim.core.hashing import NO_KEY, Spans, first_word, key_of
from sim.core.inbox import Arrivals, submit, with_memory
from sim.core.look_up import cached_tokens
from sim.core.make_state import MOST_ROWS, make_state
from sim.core.output import NEXT_RESET, NOW, R_DONE, STEPS
from sim.core.price import Price
from sim.core.remote import release_sent
from sim.core.state import (
    C_FROM,
    C_GROUP,
    CACHED,
    ENCODER_TOKENS,
    FREE_BLOCKS,
    FREE_SLOT,
    KV_CONSUMER,
    KV_NONE,
    LENGTH,
    NEVER,
    NUM_COPIES,
    NUM_LOADING,
    NUM_RUNNING,
    NUM_TOKENS,
    NUM_WAITING,
    ORDINAL,
    ROW,
    RUNNING_LIST,
    SENDING,
    STATUS,
    WAITING_HEAP,
    Int64s,
    Plan,
    State,
)
from sim.engine_config import EngineConfig, joint_rates
from sim.group_kinds import (
    checkpoint_alignment,
    extra_retained,
    kind_of,
    split_alignment,
    split_block_size,
    window_of,
)
from sim.planning import KVCachePlan
from sim.planning.drafts import dropping_groups, keeps_junction_states
from sim.specs import CrossAttentionSpec

DENSE = -1
"""The core's word for ``prefix_cache_retention_interval: null``."""
DRAWN = 1 << 53
"""Draws of acceptance are below this."""


class Role(NamedTuple):
    """A replica's part where prefill and decode are apart: its role, and what fetching a prompt's blocks takes."""

    kv_role: int = KV_NONE
    load_ns: int = 0
    load_ns_per_block: int = 0


ALONE = Role()
FIRST_SLOTS = 4096
"""Requests a machine has room for before it grows; never fewer than rows of tables."""


def make_plan(plan: KVCachePlan, engine: EngineConfig, seed: int = 0, role: Role = ALONE) -> Plan:
    """The numbers of a KV cache plan and of the engine's flags as the core wants them.

    With an encoder vLLM turns chunked prefill and its
    threshold off by itself (vllm 0.33.0 config/scheduler.py:296). Recycling groups are capped at admission as vLLM's
    manager does it (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:2622); full attention is not. ``seed`` decides
    which drafts are accepted.
    """
    interval = engine.prefix_cache_retention_interval
    specs = [group.spec for group in plan.groups]
    encoder = any(isinstance(spec, CrossAttentionSpec) for spec in specs)
    return Plan(
        kind=np.array([kind_of(spec) for spec in specs], np.int64),
        block_size=np.array(plan.group_block_sizes, np.int64),
        window=np.array([window_of(group) for group in plan.groups], np.int64),
        kept_window=np.array([window_of(group) + extra_retained(group) for group in plan.groups], np.int64),
        spec_blocks=np.array([getattr(spec, "num_speculative_blocks", 0) for spec in specs], np.int64),
        checkpoint_alignment=np.array([checkpoint_alignment(spec) for spec in specs], np.int64),
        admission_cap=np.array([NEVER if cap is None else cap for cap in plan.admission_caps], np.int64),
        spec_offsets=np.cumsum([0, *(len(ids) for ids in plan.spec_groups)]).astype(np.int64),
        spec_groups=np.array([group for ids in plan.spec_groups for group in ids], np.int64),
        scheduler_block_size=plan.scheduler_block_size,
        hash_block_size=plan.hash_block_size,
        hit_alignment=plan.cache_hit_alignment_tokens,
        partial_hits=plan.enable_partial_hash_hits,
        split_block_size=split_block_size(plan),
        split_alignment=split_alignment(specs),
        prefix_replay_tokens=max((spec.prefix_replay_tokens for spec in specs), default=0),
        encoder_tokens=plan.encoder_tokens,
        encoder_budget=engine.max_num_encoder_input_tokens if encoder else 0,
        max_model_len=engine.max_model_len,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_num_active_seqs=engine.max_running_requests,
        long_prefill_token_threshold=0 if encoder else engine.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive=engine.long_prefill_token_threshold_adaptive,
        prefill_schedule_interval=engine.prefill_schedule_interval,
        retention_interval=DENSE if interval is None else interval,
        watermark_blocks=int(engine.watermark * plan.num_blocks),
        max_concurrent_batches=engine.max_concurrent_batches,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        enable_prefix_caching=engine.enable_prefix_caching,
        enable_chunked_prefill=engine.enable_chunked_prefill and not encoder,
        priority_policy=engine.scheduling_policy == "priority",
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
        async_scheduling=engine.async_scheduling,
        num_spec_tokens=engine.num_speculative_tokens,
        asks_for_drafts=_asks_for_drafts(engine),
        acceptance=np.round(np.array(joint_rates(engine)) * DRAWN).astype(np.int64),
        draft_word=np.uint64(first_word(np.uint64(seed))),
        num_lookahead_tokens=engine.num_lookahead_tokens,
        draft_slots=engine.draft_slots,
        prefill_lookahead=engine.num_prefill_lookahead_tokens,
        hash_lookahead=engine.num_hash_lookahead_tokens,
        drops_last_block=engine.drops_last_block,
        drops=np.array(dropping_groups(plan), np.int64),
        junction_states=keeps_junction_states(plan, engine),
        **role._asdict(),
    )


def _asks_for_drafts(engine: EngineConfig) -> bool:
    """Whether drafts come between a batch's end and its output: with pipeline stages, without async scheduling.

    vllm 0.33.0 v1/engine/core.py:699 and :708.
    """
    return engine.num_speculative_tokens > 0 and not engine.async_scheduling and engine.pipeline_parallel_size > 1


class Machine:
    """A replica: submit windows of requests, advance to a horizon, read what happened.

    Times are int64 nanoseconds. Between two calls of :meth:`advance` the machine may be read freely; whatever the
    properties return is live, not a copy.
    """

    def __init__(
        self,
        plan: Plan,
        price: Price,
        num_blocks: int,
        *,
        log_tables: bool = False,
        log_events: bool = False,
        resets: Sequence[tuple[int, bool]] = (),
        explain: bool = False,
    ) -> None:
        self.plan = plan
        self.price = price
        self._missed = np.full(1, NO_KEY)
        slots = FIRST_SLOTS if plan.kv_role == KV_NONE else MOST_ROWS
        self.state: State = make_state(
            plan, num_blocks, slots=slots, log_tables=log_tables, log_events=log_events, resets=resets, explain=explain
        )

    def submit(self, window: Arrivals) -> None:
        """Hand over requests that arrive from now on, in order of arrival."""
        self.state = submit(self.state, window, remote=self.plan.kv_role == KV_CONSUMER)

    def cached_tokens(self, spans: Spans, request: Int64s) -> int:
        """Tokens of a request that would hit if it were looked up now; see :func:`sim.core.inbox.looked_at`."""
        state = self.state
        return int(cached_tokens(self.plan, state.cache, spans, request, state.tables, self._missed))

    def release_sent(self, ordinal: int, now_ns: int) -> None:
        """Free the blocks of a prompt that was kept here until it was fetched, at ``now_ns``."""
        requests = self.state.requests
        (slots,) = np.nonzero((requests[:, STATUS] == SENDING) & (requests[:, ORDINAL] == ordinal))
        release_sent(self.plan, self.state, int(slots[0]), now_ns)

    def advance(self, horizon_ns: int = NEVER, *, one_step: bool = False, stop_on_finish: bool = False) -> int:
        """Run until the horizon, the end of one step, or another reason of :mod:`sim.core.advance`; returns it."""
        reason = int(advance(self.plan, self.price, self.state, horizon_ns, one_step, stop_on_finish))
        if reason == RECORDS_FULL:
            self.state = with_memory(self.state)
        return reason

    @property
    def now_ns(self) -> int:
        """The machine's clock: the instant of its last schedule or output."""
        return int(self.state.output.counters[NOW])

    @property
    def num_running(self) -> int:
        """Requests that hold a place in the running list."""
        return int(self.state.queues.counters[NUM_RUNNING])

    @property
    def num_waiting(self) -> int:
        """Requests that have arrived and are not running."""
        counters = self.state.queues.counters
        return int(counters[NUM_WAITING] + counters[NUM_LOADING])

    @property
    def num_steps(self) -> int:
        """schedule() calls so far that scheduled something."""
        return int(self.state.output.counters[STEPS])

    @staticmethod
    def block_key(name: int, group: int) -> int:
        """The prefix-cache key of a prefix's name in a group."""
        return int(key_of(np.uint64(name), np.uint64(group)))

    def resets_done(self) -> list[bool]:
        """For each reset of the prefix cache that came up, whether it was done or refused."""
        output = self.state.output
        return [bool(done) for done in output.resets[: output.counters[NEXT_RESET], R_DONE].tolist()]

    def free_queue(self) -> NDArray[np.int32]:
        """Ids of the free blocks, the next one to be taken first; of a ring that does not close, as many as blocks."""
        return np.array(free_queue(self.state.pool), np.int32)

    def block_table(self, slot: int) -> list[list[int]]:
        """Block ids of a request per group, null blocks (0) in place; empty lists when it holds none."""
        tables = self.state.tables
        row = int(self.state.requests[slot, ROW])
        if row < 0:
            return [[] for _ in range(self.plan.block_size.size)]
        return [
            [0] * head + tables.blocks[row, group, head:length].tolist()
            for group, (head, length) in enumerate(tables.marks[row, :, :CACHED].tolist())
        ]

    def copies(self) -> list[list[int]]:
        """Source and destination of the blocks that the last schedule() has to copy, group by group."""
        listed = self.state.output.copies[: self.state.queues.counters[NUM_COPIES]]
        pairs: list[list[int]] = listed[np.argsort(listed[:, C_GROUP], kind="stable"), C_FROM:].tolist()
        return pairs

    def table_lengths(self, slot: int) -> list[int]:
        """Entries of a running request's tables, per group."""
        lengths: list[int] = self.state.tables.marks[self.state.requests[slot, ROW], :, LENGTH].tolist()
        return lengths

    def stall_reason(self, ids: list[str]) -> str:
        """Why the first waiting request (or the first running one) cannot go on, in numbers of blocks."""
        free = int(self.state.pool.counters[FREE_BLOCKS])
        queues = self.state.queues
        slot = int(queues.lists[WAITING_HEAP if queues.counters[NUM_WAITING] else RUNNING_LIST, 0])
        tokens = int(self.state.requests[slot, NUM_TOKENS])
        name = ids[int(self.state.requests[slot, ORDINAL])]
        encoder = int(self.state.requests[slot, ENCODER_TOKENS])
        need = int(blocks_needed(self.plan, self.state.pool, self.state.tables, tokens, 0, 0, True, 0, encoder))
        return f"request {name!r} holds {tokens} tokens and needs up to {need} blocks, {free} are free"

    def holding_slots(self) -> Iterator[int]:
        """Slots of the requests that hold blocks: those that run, and prompts on their way from or to here."""
        requests = self.state.requests
        return iter(np.flatnonzero((requests[:, STATUS] != FREE_SLOT) & (requests[:, ROW] >= 0)).tolist())

    def running_slots(self) -> Iterator[int]:
        """Slots of the running requests in vLLM's order."""
        return iter(self.state.queues.lists[RUNNING_LIST, : self.num_running].tolist())
