"""The twin's KV cache manager: block tables as lists, looked up, begun, extended, freed and cached group by group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from tests.twin.attention import SlidingWindow, attention_of
from tests.twin.pool import NULL, BlockPool, Key
from tests.twin.request import Request
from tests.twin.settings import Settings


@dataclass(slots=True)
class Table:
    """One group's blocks of one request, and how many of them were offered to the prefix cache."""

    blocks: list[int]
    offered: int


class KVCacheManager:
    """vllm 0.33.0 v1/core/kv_cache_manager.py and v1/core/kv_cache_coordinator.py."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pool = BlockPool(settings.num_blocks)
        self.groups = [attention_of(group, settings) for group in settings.groups]
        self.tables: dict[Request, list[Table]] = {}

    # --- looking up

    def look_up(self, request: Request) -> int:
        """Tokens of the prefix that every group has cached; notes where a prefix is shared but not kept by all."""
        request.junction = 0
        if not self.settings.enable_prefix_caching or request.ask.skip_cache:
            return 0
        hit, longest = self._agree(request, request.known - 1)
        if longest > hit:
            request.junction = longest
        return hit

    def _agree(self, request: Request, limit: int) -> tuple[int, int]:
        """What all specs agree on, and the longest answer any of them gave on the way.

        Each spec in turn shortens the candidate, full attention first and only once, until a whole round changes
        nothing. Of full attention and one other spec, one round is asked; of one spec alone, one answer.
        """
        specs = self._specs()
        hit, longest = limit, 0
        of_full: dict[int, int] = {}
        while True:
            candidate = hit
            for number, members in enumerate(specs):
                spec = self.groups[members[0]]
                if number in of_full:
                    candidate = min(candidate, of_full[number])
                    continue
                candidate = spec.longest_hit(candidate, partial(self._is_cached, request, members))
                longest = max(longest, candidate)
                if not isinstance(spec, SlidingWindow):
                    of_full[number] = candidate
            agreed = candidate == hit
            hit = candidate
            if agreed or len(specs) == 1 or (len(specs) == 2 and 0 in of_full):
                return hit, longest

    def _specs(self) -> list[list[int]]:
        """Group numbers by spec, full attention first."""
        found: dict[object, list[int]] = {}
        for number, group in enumerate(self.settings.groups):
            found.setdefault(group, []).append(number)
        return sorted(found.values(), key=lambda members: isinstance(self.groups[members[0]], SlidingWindow))

    def _key(self, request: Request, group: int, index: int) -> Key:
        """Everything a block depends on: all tokens up to its end."""
        return (group, request.ask.salt, request.tokens[: (index + 1) * self.groups[group].size])

    def _cached_block(self, request: Request, group: int, index: int) -> int | None:
        return self.pool.cache.find(self._key(request, group, index))

    def _is_cached(self, request: Request, groups: list[int], index: int) -> bool:
        return all(self._cached_block(request, group, index) is not None for group in groups)

    def _hit_blocks(self, request: Request, group: int, hit: int) -> list[int]:
        """The start of a table for a hit: null blocks behind the window, cached ones after."""
        rules = self.groups[group]
        skipped = rules.skipped_blocks(hit)
        found = [self._cached_block(request, group, i) for i in range(skipped, hit // rules.size)]
        assert None not in found
        return [NULL] * skipped + [block for block in found if block is not None]

    # --- allocating

    def admit(self, request: Request, hit: int, new: int, others_running: bool) -> bool:
        """Begin a request's tables with its hit and give it blocks for ``new`` more tokens; False when it cannot be.

        vllm 0.33.0 v1/core/kv_cache_manager.py:505.
        """
        spare = self.settings.watermark_blocks if others_running else 0
        longest = self.settings.max_model_len
        free = len(self.pool.free)
        if (
            self.settings.scheduler_reserve_full_isl
            and self._needed(request, min(request.known, longest), hit, capped=True) + spare > free
        ):
            return False
        end = min(hit + new, longest)
        if self._needed(request, end, hit, capped=False) + spare > free:
            return False
        begun = [self._hit_blocks(request, group, hit) for group in range(len(self.groups))]
        self.tables[request] = [Table(blocks, len(blocks)) for blocks in begun]
        for blocks in begun:
            for block in blocks:
                if block != NULL:
                    self.pool.touch(block)
        self._extend(request, end)
        self.cache(request, min(hit + new, request.known))
        return True

    def grow(self, request: Request, new: int) -> bool:
        """Give a running request blocks for ``new`` more tokens; False when there are too few."""
        self._free_behind_windows(request, request.computed - request.in_flight)
        end = min(request.computed + new, self.settings.max_model_len)
        missing = [
            max(0, math.ceil(end / rules.size) - len(table.blocks))
            for rules, table in zip(self.groups, self.tables[request], strict=True)
        ]
        if sum(missing) > len(self.pool.free):
            return False
        self._extend(request, end)
        self.cache(request, min(request.computed + new, request.known))
        return True

    def _needed(self, request: Request, tokens: int, hit: int, *, capped: bool) -> int:
        """Free blocks an admission uses up: new ones, and cached ones that nobody else holds."""
        total = 0
        for number, rules in enumerate(self.groups):
            required = math.ceil(tokens / rules.size)
            cap = self.settings.admission_cap(self.settings.groups[number])
            if capped and cap is not None:
                required = min(required, cap)
            begun = self._hit_blocks(request, number, hit)
            total += max(0, required - len(begun))
            total += sum(1 for block in begun if block != NULL and self.pool.references[block] == 0)
        return total

    def _extend(self, request: Request, tokens: int) -> None:
        for rules, table in zip(self.groups, self.tables[request], strict=True):
            table.blocks += self.pool.take(max(0, math.ceil(tokens / rules.size) - len(table.blocks)))

    # --- freeing and caching

    def _free_behind_windows(self, request: Request, processed: int) -> None:
        """Put the null block where no later token will look, the last such block first."""
        for rules, table in zip(self.groups, self.tables[request], strict=True):
            behind = range(min(rules.skipped_blocks(processed), len(table.blocks)))
            self.pool.release(table.blocks[i] for i in reversed(behind))
            for i in behind:
                table.blocks[i] = NULL

    def cache(self, request: Request, tokens: int) -> None:
        """Give keys to the full blocks of the first ``tokens`` tokens that a hit may use one day."""
        if not self.settings.enable_prefix_caching:
            return
        unit = self.settings.scheduler_block_size
        for number, (rules, table) in enumerate(zip(self.groups, self.tables[request], strict=True)):
            full = tokens // unit * unit // rules.size
            for i in range(table.offered, full):
                if table.blocks[i] != NULL and rules.is_worth_a_key(i, request):
                    self.pool.cache.add(self._key(request, number, i), table.blocks[i])
            table.offered = max(table.offered, full)

    def free(self, request: Request) -> None:
        """Take all blocks back, group by group, the end of the text first."""
        for table in self.tables.pop(request, []):
            self.pool.release(reversed(table.blocks))

    def block_tables(self, request: Request) -> list[list[int]]:
        """Block ids per group; empty lists for a request that holds none."""
        tables = self.tables.get(request)
        return [list(table.blocks) for table in tables] if tables else [[] for _ in self.groups]
