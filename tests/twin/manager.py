"""The twin's KV cache manager: what the groups agree on, and each request's tables from admission to the end."""

from __future__ import annotations

import math
from functools import partial

from tests.twin.kinds import group_managers
from tests.twin.kinds.full import FullAttention
from tests.twin.pool import NULL, BlockPool
from tests.twin.request import Request
from tests.twin.settings import FULL_LIKE, Settings


class KVCacheManager:
    """vllm 0.33.0 v1/core/kv_cache_manager.py and v1/core/kv_cache_coordinator.py."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pool = BlockPool(settings.num_blocks)
        self.groups = group_managers(settings, self.pool)
        self.hit_ends: list[list[int]] = []  # of the last look-up, per group: tokens at the ends of the blocks found

    def new_step(self) -> None:
        """Begin a step: what was computed in the last one is there now."""
        for group in self.groups:
            getattr(group, "fresh", set()).clear()

    def reset(self) -> bool:
        """Forget all that is cached, unless a block is in use."""
        return self.pool.clear()

    # --- looking up

    def look_up(self, request: Request) -> int:
        """Tokens of the prefix that every group has cached; notes where a prefix is shared but not kept by all."""
        request.junction = 0
        self.hit_ends = [[] for _ in self.groups]
        if not self.settings.enable_prefix_caching or request.ask.skip_cache:
            return 0
        hit, longest = self._agree(request, request.known - self.settings.last_tokens)
        for group, ends in zip(self.groups, self.hit_ends, strict=True):
            if group.shorter_is_a_hit_too:
                del ends[math.ceil(hit / group.size) :]
        if longest > hit:
            request.junction = longest
        if hit <= self.settings.replay_tokens:  # all of it would be computed again
            self.hit_ends = [[] for _ in self.groups]
            return 0
        return hit

    def _agree(self, request: Request, limit: int) -> tuple[int, int]:
        """What all specs agree on, and the longest answer any of them gave on the way.

        Each spec in turn shortens the candidate, full attention first and only once, until a whole round changes
        nothing. Of full attention and one other spec, one round is asked; of one group alone, one answer.
        """
        specs = self._specs()
        hit, longest = limit, 0
        of_full: dict[int, int] = {}
        dropped: set[int] = set()  # specs that lost their last block to come to this candidate
        while specs:
            candidate = hit
            for number, members in enumerate(specs):
                spec = self.groups[members[0]]
                if number in of_full:
                    candidate = min(candidate, of_full[number])
                    continue
                drop = self.settings.drops(members[0]) and number not in dropped
                limit = self._proof_limit(request, spec, candidate) if drop else candidate
                found, ends = spec.longest_hit(limit, partial(self._is_cached, request, members), drop=drop)
                if drop:
                    dropped.add(number)
                elif found < candidate:
                    dropped.clear()
                candidate = found
                for member in members:
                    self.hit_ends[member] = list(ends)
                longest = max(longest, candidate)
                if spec.shorter_is_a_hit_too:
                    of_full[number] = candidate
            agreed = candidate == hit
            hit = candidate
            if agreed or len(self.groups) == 1 or (len(specs) == 2 and 0 in of_full):
                return hit, longest
        return 0, 0

    def _proof_limit(self, request: Request, spec: FullAttention, candidate: int) -> int:
        """Tokens a spec may match to lose its last block and still have ``candidate`` tokens."""
        if len(self.groups) == 1 or not spec.draft_model_writes:
            return candidate
        unit = self.settings.hash_block_size
        fine = self.settings.partial_hits and spec.size > unit
        return min(candidate + (unit if fine else spec.size), request.known // unit * unit)

    def _specs(self) -> list[list[int]]:
        """Numbers of the groups that take part, by spec, full attention first."""
        found: dict[object, list[int]] = {}
        for number, group in enumerate(self.settings.groups):
            if self.groups[number].in_prefix_cache:
                found.setdefault(group, []).append(number)
        return sorted(found.values(), key=lambda members: self.settings.groups[members[0]].kind not in FULL_LIKE)

    def _is_cached(self, request: Request, groups: list[int], tokens: int) -> bool:
        keys = (self.groups[group].key(request, tokens) for group in groups)
        return all(self.pool.cache.find(key) is not None for key in keys)

    def _found(self, request: Request) -> list[list[int]]:
        """The blocks of the last look-up, per group."""
        found = []
        for group, ends in zip(self.groups, self.hit_ends, strict=True):
            blocks = [self.pool.cache.find(group.key(request, end)) if end else NULL for end in ends]
            assert None not in blocks
            found.append([block for block in blocks if block is not None])
        return found

    # --- allocating

    def admit(self, request: Request, hit: int, new: int, others_running: bool) -> bool:
        """Begin a request's tables with its hit and give it blocks for ``new`` more tokens; False when it cannot be.

        vllm 0.33.0 v1/core/kv_cache_manager.py:505.
        """
        spare = self.settings.watermark_blocks if others_running else 0
        longest = self.settings.max_model_len
        free = len(self.pool.free)
        begun = self._found(request)
        pairs = list(zip(self.groups, begun, strict=True))
        whole = min(request.known, longest)
        if self.settings.scheduler_reserve_full_isl:
            needed = sum(group.needed(request, blocks, hit, whole, capped=True) for group, blocks in pairs)
            if needed + spare > free:
                return False
        end = min(hit + new, longest)
        self._plan_chunk(request, hit, end)
        if sum(group.needed(request, blocks, hit, self._slots(group, end)) for group, blocks in pairs) + spare > free:
            return False
        for group, blocks in pairs:
            group.begin(request, blocks, hit)
        self._extend(request, end)
        self.cache(request, min(hit + new, request.known))
        return True

    def grow(self, request: Request, new: int) -> bool:
        """Give a running request blocks for ``new`` more tokens; False when there are too few."""
        processed = max(0, request.computed - request.in_flight)  # in flight may be what no longer counts
        for group in self.groups:
            group.free_unread(request, processed)
        end = min(request.computed + new, self.settings.max_model_len)
        self._plan_chunk(request, request.computed, end)
        needed = (group.needed(request, [], request.computed, self._slots(group, end)) for group in self.groups)
        if sum(needed) > len(self.pool.free):
            return False
        self._extend(request, end)
        self.cache(request, min(request.computed + new, request.known))
        return True

    def _plan_chunk(self, request: Request, start: int, end: int) -> None:
        for group in self.groups:
            group.plan_chunk(request, start, end, max(request.ask.prompt_tokens, request.known - 1))

    def _extend(self, request: Request, end: int) -> None:
        for group in self.groups:
            group.extend(request, self._slots(group, end))

    def _slots(self, group: FullAttention, end: int) -> int:
        """Tokens a table has to have room for, with those that a draft model writes beyond the scheduled ones."""
        beyond = self.settings.drafts.num_lookahead_tokens if group.draft_model_writes else 0
        return min(end + beyond, self.settings.max_model_len)

    # --- keys, copies, and the end

    def cache(self, request: Request, tokens: int) -> None:
        """Give keys to the blocks of the first ``tokens`` tokens that a hit may use one day."""
        if self.settings.enable_prefix_caching:
            for group in self.groups:
                group.cache(request, self._cacheable(group, tokens))

    def _cacheable(self, group: FullAttention, tokens: int) -> int:
        """Tokens whose blocks may get keys: where a block is dropped, one past the last place where hits end.

        What several draft modules compute again is not final (vllm 0.33.0 v1/core/kv_cache_coordinator.py:346, :758).
        """
        unit = 1 if self.settings.partial_hits else self.settings.scheduler_block_size
        final = max(0, tokens - self.settings.drafts.computed_again)
        if len(self.groups) == 1:
            return final
        if self.settings.drops(group.number) and tokens >= unit:
            return min(final, final // unit * unit + group.size)
        return tokens // unit * unit

    def take_copies(self) -> list[list[int]]:
        """The copies this step has to make, source and destination; they are let go of now."""
        copies = [pair for group in self.groups for pair in group.copies]
        self.pool.release(block for pair in copies for block in pair)
        for group in self.groups:
            group.copies.clear()
        return [list(pair) for pair in copies]

    def free(self, request: Request) -> None:
        """Take all blocks back, group by group."""
        for group in self.groups:
            group.free(request)

    def holders(self) -> list[Request]:
        """Requests that hold tables."""
        return list(self.groups[0].tables)

    def block_tables(self, request: Request) -> list[list[int]]:
        """Block ids per group; empty lists for a request that holds none."""
        return [list(group.tables.get(request, [])) for group in self.groups]
