"""Full attention, and what other kinds have in common with it: tables as lists of block ids."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.twin.pool import NULL, BlockPool, Key
from tests.twin.request import Request
from tests.twin.settings import Settings

IsCached = Callable[[int], bool]
"""Whether, in every group of a spec, some block is cached whose content ends after so many tokens of a request."""
Hit = tuple[int, list[int]]
"""Tokens hit, and of each block of the table the tokens up to its end that are cached; 0 for a null block."""


class FullAttention:
    """Reads every token before it (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:739)."""

    in_prefix_cache = True
    draft_model_writes = True
    """Whether tables need room for what a draft model writes beyond the scheduled tokens."""
    shorter_is_a_hit_too = True
    """Whether one look-up is enough: every prefix of a hit is a hit."""

    def __init__(self, number: int, settings: Settings, pool: BlockPool) -> None:
        self.number, self.settings, self.pool = number, settings, pool
        self.group = settings.groups[number]
        self.size = settings.span(self.group)
        self.tables: dict[Request, list[int]] = {}
        self.offered: dict[Request, int] = {}  # blocks of a table that were offered to the prefix cache
        self.shared_tail: dict[Request, int] = {}  # the table's block that must not be written: a copy is due
        self.copies: list[tuple[int, int]] = []  # of this step: source, destination

    # --- looking up

    def key(self, request: Request, tokens: int) -> Key:
        """Everything a block depends on: all tokens up to its end, and those that a draft module read past it."""
        covered = tokens + self.settings.drafts.hash_lookahead
        return (self.number, request.ask.salt, tokens, request.known_tokens[:covered])

    def hashed(self, request: Request) -> int:
        """Tokens of the units that have a key, as far as the tokens are known that it covers."""
        unit = self.settings.hash_block_size
        return max(0, request.known - self.settings.drafts.hash_lookahead) // unit * unit

    def longest_hit(self, limit: int, is_cached: IsCached, *, drop: bool = False) -> Hit:
        """The longest cached prefix of at most ``limit`` tokens; ``drop``: without its last block or unit."""
        ends: list[int] = []
        while len(ends) + 1 <= limit // self.size and is_cached((len(ends) + 1) * self.size):
            ends.append((len(ends) + 1) * self.size)
        unit, whole = self.settings.hit_alignment, len(ends) * self.size
        if unit >= self.size:
            hit = max(whole - drop * self.size, 0) // unit * unit
            return hit, ends[: hit // self.size]
        inside = range(whole + self.size - unit, whole, -unit)
        ends += [tokens for tokens in inside if tokens <= limit and is_cached(tokens)][:1]
        hit = max(max(ends, default=0) - drop * unit, 0)
        return hit, ends[: math.ceil(hit / self.size)]

    def skipped_blocks(self, computed: int) -> int:
        """Blocks that are never read again once ``computed`` tokens are computed."""
        del computed
        return 0

    # --- taking blocks

    def plan_chunk(self, request: Request, start: int, end: int, prefill_end: int) -> None:
        """Hear what a chunk is about to compute; states care."""

    def needed(self, request: Request, begun: list[int], start: int, end: int, *, capped: bool = False) -> int:
        """Free blocks it takes to hold ``end`` tokens, ``begun`` being the blocks of a new request's hit."""
        required = math.ceil(end / self.size)
        cap = self.settings.admission_cap(self.group)
        if capped and cap is not None:
            required = min(required, cap)
        if request in self.tables:
            return max(0, required - len(self.tables[request]))
        skipped = self.skipped_blocks(start)
        copy = bool(begun) and start % self.size > 0
        return max(0, required - max(skipped, len(begun))) + self._free_ones(begun[skipped:]) + copy

    def _free_ones(self, blocks: list[int]) -> int:
        return sum(1 for block in blocks if block != NULL and self.pool.references[block] == 0)

    def begin(self, request: Request, begun: list[int], hit: int) -> None:
        """Begin a table with the blocks of a hit, null blocks where no token will look."""
        skipped = self.skipped_blocks(hit)
        for block in begun[skipped:]:
            if block != NULL:
                self.pool.touch(block)
        self.tables[request] = [NULL] * skipped + begun[skipped:]
        self.offered[request] = len(self.tables[request])
        if begun[skipped:] and hit % self.size > 0:
            self.shared_tail[request] = hit // self.size
            self.offered[request] = hit // self.size

    def extend(self, request: Request, end: int) -> None:
        """Take the blocks that are missing to hold ``end`` tokens."""
        table = self.tables[request]
        if request in self.shared_tail:
            self._copy_tail(table, self.shared_tail.pop(request))
        table += self.pool.take(max(0, math.ceil(end / self.size) - len(table)))

    def _copy_tail(self, table: list[int], index: int) -> None:
        """Go on in a copy of a block that others read; both stay until the step is under way."""
        (copy,) = self.pool.take(1)
        self.pool.references[copy] += 1
        self.copies.append((table[index], copy))
        table[index] = copy

    # --- giving blocks back, and keys

    def free_unread(self, request: Request, processed: int) -> None:
        """Put the null block where no later token will look, the last such block first."""
        self._free(self.tables[request], range(self.skipped_blocks(processed)))

    def _free(self, table: list[int], indices: range) -> None:
        present = [i for i in indices if i < len(table)]
        self.pool.release(table[i] for i in reversed(present))
        for i in present:
            table[i] = NULL

    def cache(self, request: Request, tokens: int) -> None:
        """Give keys to the full blocks of the first ``tokens`` tokens that a hit may use one day."""
        table, full = self.tables[request], min(tokens, self.hashed(request)) // self.size
        for i in range(self.offered[request], full):
            if table[i] != NULL and self.is_worth_a_key(i, request):
                self.pool.cache.rename(self.key(request, (i + 1) * self.size), table[i])
        self.offered[request] = max(self.offered[request], full)
        if self.size != self.settings.hash_block_size:
            self.cache_tail(request, tokens)

    def junctions(self, request: Request) -> list[int]:
        """Where a sibling resumes; one that parts right after the junction has no block there to lose."""
        if not request.junction:
            return []
        return [request.junction, *[request.junction - self.size] * self.settings.drops(self.number)]

    def is_worth_a_key(self, index: int, request: Request) -> bool:
        """Whether a later hit can use a block."""
        del index, request
        return True

    def cache_tail(self, request: Request, tokens: int) -> None:
        """Let the block in which the prompt's last unit ends be found there too."""
        unit = self.settings.hash_block_size
        end = request.ask.prompt_tokens - (not self.settings.drops(self.number))
        boundary = min(end // unit * unit, self.hashed(request))
        if 0 < boundary <= tokens and boundary % self.size > 0:
            key = self.key(request, boundary)
            block = self.tables[request][boundary // self.size]
            if 0 < self.pool.cache.tokens_of(block) < boundary:
                self.pool.cache.drop(block)
            self.pool.cache.add(key, block)

    def free(self, request: Request) -> None:
        """Take all blocks back, the end of the text first."""
        self.pool.release(reversed(self.tables.pop(request, [])))
        self.offered.pop(request, None)
        self.shared_tail.pop(request, None)
