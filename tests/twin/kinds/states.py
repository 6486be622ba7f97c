"""Mamba, linear attention, short convolution: each token replaces the state of the one before."""

from __future__ import annotations

import math

from tests.twin.kinds.full import FullAttention, Hit, IsCached
from tests.twin.pool import NULL, BlockPool, Key
from tests.twin.request import Request
from tests.twin.settings import Settings

NEVER_FITS = 1 << 40


class LastState(FullAttention):
    """Without prefix caching: the last state and those of speculative tokens (``mamba_cache_mode: none``).

    vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1420 (MambaManager).
    """

    shorter_is_a_hit_too = False

    def skipped_blocks(self, computed: int) -> int:
        """All blocks before the one of the last token."""
        return max(0, computed - 1) // self.size

    def needed(self, request: Request, begun: list[int], start: int, end: int, *, capped: bool = False) -> int:
        """As others, for so many blocks more."""
        return super().needed(request, begun, start, end + self.group.spec_blocks * self.size, capped=capped)

    def extend(self, request: Request, end: int) -> None:
        """As others, for so many blocks more."""
        super().extend(request, end + self.group.spec_blocks * self.size)


class AlignedStates(LastState):
    """States kept at block boundaries, so that requests can resume there (``mamba_cache_mode: align``)."""

    draft_model_writes = False

    def __init__(self, number: int, settings: Settings, pool: BlockPool) -> None:
        super().__init__(number, settings, pool)
        self.given_blocks: set[Request] = set()
        self.copied_from: dict[Request, int] = {}  # index of the state that the running one was made from
        self.retired: dict[Request, int] = {}  # blocks at the start of a table that were freed for good
        self.checkpoints: dict[Request, tuple[int, int]] = {}  # of this chunk: tokens, index of the block
        self.fresh: set[Key] = set()  # cached in this step: the states do not exist yet

    # --- looking up

    def longest_hit(self, limit: int, is_cached: IsCached, *, drop: bool = False) -> Hit:
        """The prefix that ends at the last cached state, which is never dropped."""
        del drop
        unit = min(self.size, self.settings.hit_alignment)
        for tokens in range(limit, 0, -1):
            if tokens % unit == 0 and tokens % self.settings.hit_alignment == 0 and is_cached(tokens):
                return tokens, [0] * (math.ceil(tokens / self.size) - 1) + [tokens]
        return 0, []

    # --- taking blocks

    def plan_chunk(self, request: Request, start: int, end: int, prefill_end: int) -> None:
        """Note whether this chunk writes a second state, at the last boundary before its end."""
        self.checkpoints.pop(request, None)
        if self._checkpoint(request, start, end, prefill_end):
            index = math.ceil(end / self.size) - 2
            self.checkpoints[request] = (self.settings.state_boundary(end, self.settings.hit_alignment), index)

    def _checkpoint(self, request: Request, start: int, end: int, prefill_end: int) -> bool:
        table = self.tables.get(request, [])
        position, index = self.settings.state_boundary(end, self.settings.hit_alignment), math.ceil(end / self.size) - 2
        if self.settings.retention_interval != 0:
            prefill_end = 0
        if not self.group.export_tokens or end < prefill_end or index < 0:
            return False
        if not self.settings.can_export(start, end, position, self.size, self.group.export_tokens):
            return False
        scratch = request in self.given_blocks and index >= len(table) - self.group.spec_blocks
        return index >= len(table) or table[index] == NULL or scratch

    def needed(self, request: Request, begun: list[int], start: int, end: int, *, capped: bool = False) -> int:
        """One block for the chunk's state, besides those of checkpoints, copies and speculative tokens."""
        del capped
        if begun and begun[-1] != NULL and self.pool.cache.key_of(begun[-1]) in self.fresh:
            return NEVER_FITS
        prefill_end = max(request.ask.prompt_tokens, request.known - 1)
        checkpoint = self._checkpoint(request, start, end, prefill_end)
        copy = (bool(begun) and start % self.size > 0) or request in self.shared_tail
        new = math.ceil(end / self.size) + self.group.spec_blocks - len(begun) - len(self.tables.get(request, []))
        if copy:
            new = max(new, 0) + 1
        if new > 0:
            new = min(new, 1 + copy + checkpoint + (0 if request in self.given_blocks else self.group.spec_blocks))
        return new + self._free_ones(begun)

    def extend(self, request: Request, end: int) -> None:
        """Null blocks where no state is kept, then blocks for a checkpoint, the state and speculative tokens.

        vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:1797.
        """
        table, spec = self.tables[request], self.group.spec_blocks
        checkpoint = int(request in self.checkpoints)
        ran, before = request in self.given_blocks, len(table)
        self.given_blocks.add(request)
        required = math.ceil(end / self.size) + spec
        if required <= before and not checkpoint and request not in self.shared_tail:
            return
        if ran:
            self.copied_from[request] = before - 1 - spec
        elif before:
            self.copied_from[request] = before - 1
        state_at = required - spec - 1
        table += [NULL] * (state_at - checkpoint - before)
        if ran:
            for index in range(before - spec, before):
                if index < state_at - checkpoint:
                    table.append(table[index])
                    table[index] = NULL
        if request in self.shared_tail:
            self._copy_state(request, self.shared_tail.pop(request), ran=ran)
        table += self.pool.take(max(0, required - len(table)))

    def _copy_state(self, request: Request, index: int, *, ran: bool) -> None:
        """A new request goes on in the copy; one that runs goes on where it was, and the copy is what others find."""
        if not ran:
            self._copy_tail(self.tables[request], index)
            return
        source = self.tables[request][index]
        (copy,) = self.pool.take(1)
        self.pool.references[source] += 1
        self.copies.append((source, copy))
        keys = self.pool.cache.keys_of(source)
        self.pool.cache.drop(source)
        for key in keys:
            self.pool.cache.add(key, copy)
        self.fresh |= set(keys[:1])

    # --- giving blocks back, and keys

    def free_unread(self, request: Request, processed: int) -> None:
        """Free states before the last token's, and the one that the running state was made from."""
        table = self.tables[request]
        if processed > 1:
            last = min(self.skipped_blocks(processed), len(table))
            self._free(table, range(self.retired.get(request, 0), last))
            self.retired[request] = max(self.retired.get(request, 0), last)
        source = self.copied_from.get(request)
        if source is not None and source < math.ceil(processed / self.size) - 1:
            self._free(table, range(source, source + 1))

    def cache(self, request: Request, tokens: int) -> None:
        """Keys to full blocks as others; then to the checkpoint, or to the state at the prompt's last unit."""
        first = self.offered[request]
        full = max(first, min(tokens, self.hashed(request)) // self.size)
        super().cache(request, tokens)
        self._cache_boundary(request, tokens)
        keys = [self.pool.cache.key_of(block) for block in self.tables[request][first:full] if block != NULL]
        self.fresh |= {key for key in keys if key is not None}

    def is_worth_a_key(self, index: int, request: Request) -> bool:
        """Whether a state ends a segment, or lies where a resend or a sibling would resume."""
        interval, unit = self.settings.retention_interval, self.settings.hit_alignment
        if interval is None or self._ends_segment(index):
            return True
        resumes = [*self.settings.replay_boundaries(request.ask.prompt_tokens), *self.junctions(request)]
        return any(tokens // unit * unit // self.size - 1 == index for tokens in resumes)

    def _ends_segment(self, index: int) -> bool:
        interval = self.settings.retention_interval
        return interval is None or (interval > 0 and (index + 1) % max(1, interval // self.size) == 0)

    def cache_tail(self, request: Request, tokens: int) -> None:
        """See :meth:`_cache_boundary`."""

    def _cache_boundary(self, request: Request, tokens: int) -> None:
        """vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:2020 (_cache_partial_tail_block)."""
        cache, table = self.pool.cache, self.tables[request]
        if request in self.checkpoints:
            position, index = self.checkpoints[request]
            at_the_end = position == self.settings.state_boundary(
                request.ask.prompt_tokens, self.settings.hit_alignment
            )
            in_segment = position % self.size == 0 and self._ends_segment(position // self.size - 1)
            if not at_the_end and not in_segment and position != request.junction:
                cache.drop(table[index])
            elif cache.tokens_of(table[index]) != position:
                cache.drop(table[index])
                self._name_state(request, table[index], position)
            return
        tail = self.settings.state_boundary(request.ask.prompt_tokens, self.settings.hash_block_size)
        if self.settings.junction_states and tokens == request.junction <= request.ask.prompt_tokens:
            tail = tokens if request.computed < tokens else tail
        if tokens <= 0 or tokens != tail:
            return
        index = math.ceil(tokens / self.size) - 1
        if index >= len(table) or table[index] == NULL or cache.tokens_of(table[index]) == tokens:
            return
        if 0 < cache.tokens_of(table[index]) < tokens:
            cache.drop(table[index])
        self._name_state(request, table[index], tokens)
        if tokens % self.size:
            self.shared_tail[request] = index
            self.offered[request] = index

    def _name_state(self, request: Request, block: int, tokens: int) -> None:
        key = self.key(request, tokens)
        self.pool.cache.add(key, block)
        self.fresh.add(key)

    def free(self, request: Request) -> None:
        """Forget the request altogether."""
        super().free(request)
        self.given_blocks.discard(request)
        for notes in (self.copied_from, self.retired, self.checkpoints):
            notes.pop(request, None)
