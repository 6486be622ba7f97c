"""Every array of the machine: its shape, its unit and what it means.

The state is a NamedTuple of small NamedTuples, and a function takes the narrowest it can do with: Numba unpacks the
fields of an argument one by one, and one flat tuple of all arrays would double its run and load time. Scalars that
change live in small int64 arrays, indexed by the constants below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.hashing import Spans
from sim.core.output import Output
from sim.core.seen import Seen

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Int64s = NDArray[np.int64]
Keys = NDArray[np.uint64]

NEVER = 1 << 62
"""A token count or a time in ns that is never reached."""


KV_NONE, KV_PRODUCER, KV_CONSUMER = range(3)
FULL, SLIDING_WINDOW, CHUNKED_LOCAL, MAMBA_NONE, MAMBA_ALIGN, CIRCULAR, RSWA, CROSS, REPLAY = range(9)


class Plan(NamedTuple):
    """What does not change during a run: vLLM's flags and the KV cache groups (G of them, K different specs)."""

    block_size: Int64s  # [G] tokens in a block
    kind: Int64s  # [G] one of the kinds below
    window: Int64s  # [G] tokens: sliding window, chunk of chunked local attention, outputs R-SWA keeps; else 0
    kept_window: Int64s  # [G] the same with what several draft modules may read again below it
    spec_blocks: Int64s  # [G] blocks for the states of speculative tokens (Mamba)
    checkpoint_alignment: Int64s  # [G] tokens between states the backend can export inside a chunk; 0 = none (Mamba)
    admission_cap: Int64s  # [G] blocks a request can hold at most; NEVER where nothing is recycled
    spec_offsets: Int64s  # [K+1] into spec_groups: groups that share a spec are looked up together
    spec_groups: Int64s  # [G] group ids, full attention first
    scheduler_block_size: int  # tokens; the least common multiple of all block sizes
    hash_block_size: int  # tokens
    hit_alignment: int  # tokens; hits end on its multiples: one of the two above
    partial_hits: bool  # hits may end inside a block
    split_block_size: int  # tokens; prefill chunks end on its multiples where Mamba states are kept; 0 = no rule
    split_alignment: int  # tokens between states that all groups can export inside a final chunk; 0 = none
    prefix_replay_tokens: int  # at the end of a hit that are computed again for groups of kind REPLAY
    encoder_tokens: int  # of a request that does not say; the encoder's longest input
    encoder_budget: int  # encoder tokens per step, and of batches in flight; 0 = no encoder
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_active_seqs: int  # requests that may run; at most max_num_seqs
    long_prefill_token_threshold: int
    long_prefill_token_threshold_adaptive: bool
    prefill_schedule_interval: int  # steps
    retention_interval: int  # tokens; -1 = dense, 0 = replay boundaries only
    watermark_blocks: int
    max_concurrent_batches: int
    pipeline_parallel_size: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    priority_policy: bool
    scheduler_reserve_full_isl: bool
    async_scheduling: bool
    num_spec_tokens: int  # drafts proposed after each token; 0 = none, and nothing of what follows matters
    asks_for_drafts: bool  # drafts are asked for once their batch is done, before its output is processed
    acceptance: Int64s  # [num_spec_tokens] of 2^53: how often the drafts up to this one are all accepted
    draft_word: np.uint64  # the draws of acceptance begin with it
    num_lookahead_tokens: int  # slots taken beyond the scheduled tokens, for what the draft model writes
    draft_slots: int  # tokens of the budget that each scheduled request's draft takes besides
    prefill_lookahead: int  # tokens past a prefill chunk that the draft reads with it
    hash_lookahead: int  # tokens past a block that its key covers too
    drops_last_block: bool  # whether hits lose their last block in some groups
    drops: Int64s  # [G] 1 in those groups, and in others of one spec with them
    junction_states: bool  # whether a state is kept at a junction inside a block too
    kv_role: int  # KV_PRODUCER keeps finished prompts' blocks until they are fetched, KV_CONSUMER fetches them
    load_ns: int  # what fetching a prompt's blocks takes besides
    load_ns_per_block: int


# --- block pool -----------------------------------------------------------------------------------------------------
NEXT, PREV, REF, DUP_NEXT, DUP_PREV, SECOND_KEY = range(6)
BLOCK_FIELDS = 6
NULL_BLOCK = 0
FREE_BLOCKS, EVICTED_BLOCKS, NUM_BLOCKS, UNUSED_KEY, SPARE_KEY, NUM_EVENTS = range(6)
POOL_COUNTERS = 6
HELD_LIVE, HELD_CACHED = range(2)


class Pool(NamedTuple):
    """The blocks, rows for E second keys of blocks (``second_keys.py``; 0 unless hits end inside blocks), a sentinel.

    The last row of ``links`` is the sentinel of the free queue's ring. What leads from row to row is unsigned: before a
    signed index is used, it is tested for counting from the end.
    """

    links: UInt32s  # [num_blocks+E+1, 6] free-queue neighbours, references, ring of rows with one key, first second key
    key: Keys  # [num_blocks+E] prefix-cache key of the block; NO_KEY = not cached
    counters: Int64s  # [6] FREE_BLOCKS now; EVICTED_BLOCKS so far (keys lost to reuse); NUM_BLOCKS; rows of second keys
    events: Keys  # [V, 7] log of KV cache events, NUM_EVENTS of them, when one is kept (``kv_events.py``); else V = 0
    group: Int32s  # [num_blocks] the group a block was last taken for; empty unless blocks are counted by group
    held: Int64s  # [G, 2] blocks that tables name, free blocks with a key; empty likewise


class Cache(NamedTuple):
    """Map from block key to the oldest row of the pool that carries it: at each place a chain of rows."""

    first: UInt32s  # [M] first row of the place's chain; NULL_BLOCK = none; M a power of two
    following: UInt32s  # [num_blocks+E] the row after it in its chain; NULL_BLOCK = none
    key: Keys  # [num_blocks+E] the pool's own array


# --- requests: rows of int64 [Q, REQUEST_FIELDS], one per live request ("slot") ---------------------------------------
(
    COMPUTED,  # tokens scheduled so far (vLLM's num_computed_tokens, optimistic)
    NUM_TOKENS,  # prompt plus outputs processed so far
    PLACEHOLDERS,  # outputs of batches in flight (async scheduling)
    IN_FLIGHT,  # tokens of batches not yet processed
    GROW_AT,  # tokens that may be scheduled until the block tables need another block
    FREE_AT,  # processed tokens at which a block leaves some window
    CACHE_AT,  # tokens at which another block can be cached
    ROW,  # row of the block tables; -1 when the request holds none
    STATUS,
    PROMPT,
    MAX_TOKENS,
    OUTPUT,  # outputs until the end-of-sequence token; only commit may look
    STALE,  # in-flight tokens of before a preemption
    ELIGIBLE_STEP,  # first schedule() call that may decode again (pipeline stages with async scheduling)
    FIRST_SPAN,
    SPAN_COUNT,
    JUNCTION,  # tokens of a prefix proven to be shared and worth keeping; 0 = none
    PREEMPTIONS,
    PREFILLING,  # 1: the last chunk scheduled was not the last of the request's known tokens
    DEFERRED,  # 1: passed over by a scan of the waiting queue since it was queued
    BATCH_POSITION,  # place in the batch being scheduled; -1 = not in it
    ARRIVAL,  # ns
    PRIORITY,
    TIE,  # rank of the id as a string among equal arrivals
    SKIP_CACHE,
    ORDINAL,  # running number of the request in its workload
    FIRST_SCHEDULED,  # ns; -1 = not yet
    FIRST_TOKEN,  # ns; -1 = not yet
    SAMPLE_END,  # ns: end of the batch that gives its latest output (pipeline stages)
    CACHED_TOKENS,  # hit at the first admission
    KEY_1,  # order in the waiting queue: smaller first
    KEY_2,
    KEY_3,
    ENCODER_TOKENS,  # of its input to the encoder, whose cross attention is stored once; 0 = none
    DROPS_STALE,  # 1: its stale outputs are not delivered: it was taken off by a reset of the prefix cache
    SPEC,  # drafts to schedule with the next token
    REMOTE,  # 1: its prompt was computed elsewhere and is to be fetched
    LOAD_END,  # ns: its blocks are here
) = range(38)
REQUEST_FIELDS = 38
FREE_SLOT, WAITING, RUNNING, PREEMPTED, FINISHED, LOADING, SENDING = range(7)
STATUSES = 7

HEAD, LENGTH, CACHED, LAST_STATE, ALLOCATED, CHECKPOINT, CHECKPOINT_INDEX, TAIL, COPIED_FROM, COPIED_TO = range(10)
TABLE_MARKS = 10


class Tables(NamedTuple):
    """Block tables of requests that hold blocks; pages of memory never touched stay unmapped.

    Marks of a table: entries before HEAD are null blocks (left behind the window), LENGTH entries in all, CACHED of
    them already offered to the prefix cache. For Mamba besides: LAST_STATE, the entry the running state was copied from
    (-1: none), whether a chunk was given blocks, and the token and the entry of a checkpoint that this chunk writes (0:
    none). For R-SWA LAST_STATE is the first block of the gap that is still kept. TAIL: one more than the entry that has
    to be copied before it is written on, and the two blocks of the copy just made (0: none).
    """

    blocks: Int32s  # [rows+1, G, row_length] block ids; the last row holds what the look-up in progress has found
    marks: Int32s  # [rows, G, 10]


# --- queues ---------------------------------------------------------------------------------------------------------
RUNNING_LIST, WAITING_HEAP, SKIPPED_LIST, INBOX_RING, FREE_SLOT_STACK, FREE_ROW_STACK, LOADING_LIST = range(7)
SLOT_LISTS = 7
(E_SLOT, E_TOKENS, E_SAMPLES, E_DRAFTS), ENTRY_FIELDS = range(4), 4
D_PREEMPTED, D_ADMITTED, D_HIT, D_PREEMPTED_FOR = range(4)
DECISION_FIELDS = 4
C_GROUP, C_FROM, C_TO = range(3)
BATCH_REQUESTS, BATCH_TOKENS, BATCH_END = range(3)
(
    NUM_RUNNING,
    NUM_WAITING,
    NUM_SKIPPED,
    INBOX_HEAD,
    NUM_INBOX,
    NUM_FREE_SLOTS,
    NUM_FREE_ROWS,
    BATCH_HEAD,
    NUM_BATCHES,
    NUM_FINISHED_IDS,
    FRONT_POSITION,
    BACK_POSITION,
    NUM_PREEMPTED,
    NUM_ADMITTED,
    BLOCKED_ORDINAL,  # the head of the queue that did not fit when last asked; -1 = none
    BLOCKED_TOKENS,  # its tokens then
    BLOCKED_NEED,  # free blocks it needs at least while its first missing key is still missing
    NUM_DEFERRED,  # waiting requests with the DEFERRED mark
    CAPACITY_BOUND,  # 1: the last scan that was free to admit left requests waiting
    LAST_PREFILL_STEP,  # step that last carried prefill
    CARRIES_PREFILL,  # 1: the batch being scheduled was given prefill
    NUM_FRESH,
    ENCODER_LEFT,  # encoder tokens the step being scheduled may still take in
    ENCODER_ROOM,  # encoder tokens that fit beside those of batches in flight
    NUM_COPIES,  # of blocks, by the last schedule()
    FAILURE,  # why vLLM's own scheduler would have failed by now (``failures.py``); 0 = it would not
    DRAFTS_USED,  # 1: a request in the batch being scheduled may use the drafts made after it
    NUM_LOADING,  # requests whose prompt is on its way, or here and not admitted yet
    LINK_END,  # ns: the last of the prompts on their way is here
) = range(29)
QUEUE_COUNTERS = 29


class Queues(NamedTuple):
    """Who runs, who waits, who has yet to arrive, and the batches in flight."""

    lists: Int32s  # [7, Q] running in vLLM's order; waiting (heap); skipped; inbox (ring); two free stacks; loading
    entries: Int64s  # [D, max_num_seqs, 4] of each batch: slot, tokens, whether it gets one, drafts (-n: n of padding)
    batch: Int64s  # [D, 3] requests, tokens, completion in ns
    decided: Int64s  # [max_num_seqs+1, 4] by the last schedule(): slots preempted, for whom; slots admitted, hits
    counters: Int64s  # [29] indexed by the constants above
    fresh: Keys  # [F] keys of Mamba states cached by this step, which no other request can read yet
    missed: Keys  # [2] the first key that full attention missed: in the last look-up; in that of the blocked head


class State(NamedTuple):
    """The whole machine."""

    pool: Pool
    cache: Cache
    requests: Int64s  # [Q, REQUEST_FIELDS]
    spans: Spans
    tables: Tables
    queues: Queues
    output: Output
    seen: Seen
