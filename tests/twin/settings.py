"""One engine configuration and one request, as plain data that both the machine and its twin are made from."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

from tests.twin.drafts import NO_DRAFTS, Drafts

Span = tuple[int, int]
"""The first n tokens of an endless text: (content, n)."""
Token = tuple[int, int]
"""One token of that text: (content, offset)."""


def last_boundary(tokens: int, unit: int) -> int:
    """The last multiple of ``unit`` before the last token, which is always computed again.

    >>> last_boundary(33, 16), last_boundary(32, 16), last_boundary(9, 16)
    (32, 16, 0)
    """
    return (tokens - 1) // unit * unit


@dataclass(frozen=True, slots=True)
class Group:
    """A KV cache group: tokens of a block, of the window or chunk (0 = none), and its kind (tests/twin/kinds)."""

    block_size: int
    window: int = 0
    kind: str = ""
    spec_blocks: int = 0  # for states of speculative tokens
    export_tokens: int = 0  # tokens between states that can be taken out of a chunk; 0 = none
    sharded: bool = False  # its tokens are dealt out to context-parallel ranks, block_size of them to each

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", "sliding_window" if self.window else "full")


FULL_LIKE = ("full", "rswa")
PRIVATE = ("circular", "cross", "replay")
"""Kinds that take no part in prefix caching."""
FINE_GRAINED = ("full", "rswa", "mamba_align")
"""Kinds whose hits may end inside a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Flags by vLLM's names, the groups and the pool, and what one step takes (ns)."""

    groups: tuple[Group, ...] = (Group(4),)
    num_blocks: int = 20
    max_model_len: int = 64
    max_num_batched_tokens: int = 64
    max_num_seqs: int = 8
    max_num_active_seqs: int | None = None
    enable_prefix_caching: bool = True
    prefix_match_unit: int | None = None
    retention_interval: int | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    prefill_schedule_interval: int = 1
    priority_policy: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark_blocks: int = 0
    async_scheduling: bool = False
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    drafts: Drafts = NO_DRAFTS
    encoder_budget: int = 0  # encoder tokens that a step, and all batches in flight, may take in; 0 = no encoder
    step_ns: int = 10
    resets: tuple[tuple[int, bool], ...] = ()  # of the prefix cache: when (ns), and whether running requests give way

    def span(self, group: Group) -> int:
        """Tokens that one block of a group stands for, over all ranks (vllm 0.33.0 v1/core/kv_cache_utils.py:740)."""
        return group.block_size * (self.decode_context_parallel_size if group.sharded else 1)

    @property
    def chunk_unit(self) -> int:
        """Tokens on whose multiples chunks end where states are kept: of a block on one rank."""
        return min(group.block_size for group in self.groups if group.kind not in PRIVATE)

    @property
    def shared_block_sizes(self) -> list[int]:
        """Tokens of the blocks of groups that take part in prefix caching; of all where none does."""
        spans = [self.span(group) for group in self.groups if group.kind not in PRIVATE]
        return spans or [self.span(group) for group in self.groups]

    @property
    def scheduler_block_size(self) -> int:
        """The least common multiple of the groups' blocks."""
        return math.lcm(*map(self.span, self.groups))

    @property
    def hash_block_size(self) -> int:
        """Tokens of the blocks that are hashed."""
        return self.prefix_match_unit or math.gcd(*self.shared_block_sizes)

    @property
    def partial_hits(self) -> bool:
        """Whether hits may end inside a block (vllm 0.33.0 v1/core/kv_cache_utils.py:762).

        Beside context parallelism a state's block may be as small as a unit: the blocks of attention are larger.
        """
        unit, alone = self.hash_block_size, self.decode_context_parallel_size == 1
        shared = [group for group in self.groups if group.kind not in PRIVATE]
        return (
            self.enable_prefix_caching
            and any(group.kind == "mamba_align" and group.block_size >= unit + alone for group in shared)
            and all(group.kind in FINE_GRAINED or self.span(group) == unit for group in shared)
        )

    @property
    def hit_alignment(self) -> int:
        """Tokens on whose multiples hits end."""
        return self.hash_block_size if self.partial_hits else self.scheduler_block_size

    @property
    def replay_tokens(self) -> int:
        """Tokens at the end of a hit that are computed again."""
        return max((group.window for group in self.groups if group.kind == "replay"), default=0)

    @property
    def states(self) -> list[Group]:
        """The groups that keep states at block boundaries."""
        return [group for group in self.groups if group.kind == "mamba_align"]

    def can_export(self, start: int, end: int, position: int, size: int, export_tokens: int) -> bool:
        """Whether kernels can take the state at ``position`` out of a chunk (vllm 0.33.0 v1/kv_cache_interface.py)."""
        return (
            start % self.hash_block_size == 0
            and math.ceil(end / size) - 2 > (start - 1) // size
            and start + self.hash_block_size <= position
            and start < position < end
            and (position - start) % export_tokens == 0
        )

    def drops(self, number: int) -> bool:
        """Whether hits lose their last block in a group (vllm 0.33.0 v1/core/kv_cache_coordinator.py:125, :733)."""
        marked = self.drafts.draft_groups or range(len(self.groups))
        return self.drafts.drops_last_block and any(self.groups[i] == self.groups[number] for i in marked)

    def state_boundary(self, tokens: int, unit: int) -> int:
        """Where a text's last useful state lies (vllm 0.33.0 v1/kv_cache_interface.py:1169)."""
        if self.drafts.drops_last_block:
            return max(tokens // unit - 1, 0) * unit
        return max(0, (tokens - self.last_tokens) // unit * unit)

    @property
    def last_tokens(self) -> int:
        """Tokens at the end of a text that no hit covers: one, or as many as the key before them would look ahead."""
        return max(1, self.drafts.hash_lookahead)

    @property
    def junction_states(self) -> bool:
        """Whether a state is kept at a junction inside a block (vllm 0.33.0 v1/core/kv_cache_manager.py:183)."""
        of_drafts = self.drafts.drops_last_block or bool(self.drafts.draft_groups)
        wanted = self.drafts.shared_prefix_checkpoint and self.partial_hits
        return wanted and of_drafts and self.drafts.computed_again == 0

    def kept_window(self, group: Group) -> int:
        """Tokens that a window keeps blocks for: several draft modules may read again below it."""
        windows = ("sliding_window", "replay")
        return group.window + (self.drafts.computed_again if group.kind in windows else 0)

    def replay_boundaries(self, prompt: int) -> list[int]:
        """Where a resend of a prompt, or a longer one, resumes (vllm 0.33.0 v1/core/kv_cache_coordinator.py:65)."""
        if not self.drafts.drops_last_block:
            return [prompt - 1]
        unit = self.scheduler_block_size
        return [max(tokens // unit - 1, 0) * unit for tokens in (prompt - 1, prompt)]

    @property
    def max_running(self) -> int:
        """Requests that may run together."""
        return min(self.max_num_seqs, self.max_num_active_seqs or self.max_num_seqs)

    @property
    def asks_for_drafts(self) -> bool:
        """Whether drafts are waited for while an earlier batch's output is still to come."""
        return self.drafts.count > 0 and not self.async_scheduling and self.pipeline_parallel_size > 1

    @property
    def max_concurrent_batches(self) -> int:
        """Batches scheduled before the first one's output is processed."""
        return self.pipeline_parallel_size + int(self.async_scheduling)

    def admission_cap(self, group: Group) -> int | None:
        """Blocks that admission charges one request for at most; None where nothing is recycled.

        vllm 0.33.0 v1/kv_cache_interface.py (max_admission_blocks_per_request of windows and chunks).
        """
        in_flight = self.max_concurrent_batches * self.max_num_batched_tokens
        if group.kind in ("sliding_window", "replay"):
            return math.ceil(min(self.kept_window(group) - 1 + in_flight, self.max_model_len) / self.span(group)) + 1
        if group.kind == "chunked_local":
            return math.ceil(min(group.window + in_flight, self.max_model_len) / self.span(group))
        return None

    @property
    def blocks_of_longest(self) -> int:
        """Blocks vLLM wants to have for one request of max_model_len tokens."""
        return sum(self._blocks_of_longest(group) for group in self.groups)

    def _blocks_of_longest(self, group: Group) -> int:
        if group.kind == "circular":
            return 1
        if group.kind == "cross":
            return math.ceil(self.encoder_budget / self.span(group))
        if group.kind == "mamba_align":
            return 2 + group.spec_blocks + (group.export_tokens > 0)
        return self.admission_cap(group) or math.ceil(self.max_model_len / self.span(group)) + group.spec_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a client sends, and what the model will say to it.

    An output that is shorter than ``max_tokens`` ends with an end-of-sequence token.
    """

    name: str
    arrival_ns: int
    prompt: tuple[Span, ...]
    output: tuple[Span, ...]
    max_tokens: int
    priority: int = 0
    salt: int = 0
    skip_cache: bool = False
    encoder_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(count for _, count in self.prompt)

    @property
    def output_tokens(self) -> int:
        """Tokens until the end of the output."""
        return sum(count for _, count in self.output)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Every token, prompt and output.

        >>> Ask(name="a", arrival_ns=0, prompt=((7, 2),), output=((9, 1),), max_tokens=1).tokens
        ((7, 0), (7, 1), (9, 0))
        """
        return tuple((content, i) for content, count in (*self.prompt, *self.output) for i in range(count))


def ask(
    name: str,
    arrival_ns: int = 0,
    prompt: tuple[Span, ...] | list[Span] = ((1, 8),),
    output: int = 1,
    *,
    max_tokens: int | None = None,
    said: tuple[Span, ...] | None = None,
    priority: int = 0,
    salt: int = 0,
    skip_cache: bool = False,
) -> Ask:
    """A request in few words: its output is private unless ``said``, and ends at max_tokens unless told otherwise."""
    private = zlib.crc32(name.encode()) + (1 << 40)
    return Ask(
        name=name,
        arrival_ns=arrival_ns,
        prompt=tuple(prompt),
        output=said or ((private, output),),
        max_tokens=max_tokens or (sum(n for _, n in said) if said else output),
        priority=priority,
        salt=salt,
        skip_cache=skip_cache,
    )
