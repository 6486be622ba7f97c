"""One engine configuration and one request, as plain data that both the machine and its twin are made from."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

Span = tuple[int, int]
"""The first n tokens of an endless text: (content, n)."""
Token = tuple[int, int]
"""One token of that text: (content, offset)."""


@dataclass(frozen=True, slots=True)
class Group:
    """A KV cache group: its block size in tokens and its sliding window (0 = full attention)."""

    block_size: int
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Flags by vLLM's names, the groups and the pool, and what one step takes (ns)."""

    groups: tuple[Group, ...] = (Group(4),)
    num_blocks: int = 20
    max_model_len: int = 64
    max_num_batched_tokens: int = 64
    max_num_seqs: int = 8
    enable_prefix_caching: bool = True
    retention_interval: int | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    priority_policy: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark_blocks: int = 0
    async_scheduling: bool = False
    pipeline_parallel_size: int = 1
    step_ns: int = 10

    @property
    def scheduler_block_size(self) -> int:
        """Tokens on whose multiples hits end: the least common multiple of the groups' blocks."""
        return math.lcm(*(group.block_size for group in self.groups))

    @property
    def max_concurrent_batches(self) -> int:
        """Batches scheduled before the first one's output is processed."""
        return self.pipeline_parallel_size + int(self.async_scheduling)

    def admission_cap(self, group: Group) -> int | None:
        """Blocks that admission charges one request for at most; None where nothing is recycled.

        vllm 0.33.0 v1/kv_cache_interface.py (SlidingWindowSpec.max_admission_blocks_per_request).
        """
        if group.window == 0:
            return None
        in_flight = self.max_concurrent_batches * self.max_num_batched_tokens
        return math.ceil(min(group.window - 1 + in_flight, self.max_model_len) / group.block_size) + 1

    @property
    def blocks_of_longest(self) -> int:
        """Blocks vLLM wants to have for one request of max_model_len tokens."""
        return sum(
            self.admission_cap(group) or math.ceil(self.max_model_len / group.block_size) for group in self.groups
        )


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
