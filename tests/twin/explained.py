"""The ladder of caches once more, slow and obvious: sets of whole prefixes, each boundary tried in each cache."""

from __future__ import annotations

import math
from typing import Any

from sim.core.seen import ALIGNMENT, EAGLE_DROP, EVICTED, NEVER_KEPT, NUM_CAUSES, REPLAY, WINDOW_GAP
from tests.twin.kinds.chunked_local import ChunkedLocal
from tests.twin.kinds.full import FullAttention
from tests.twin.kinds.sliding_window import SlidingWindow
from tests.twin.kinds.states import AlignedStates
from tests.twin.manager import KVCacheManager
from tests.twin.pool import Key
from tests.twin.request import Request
from tests.twin.settings import Settings, Token, last_boundary

Text = tuple[int, tuple[Token, ...]]
"""A salt and the tokens of a prefix."""


class ExplainedManager(KVCacheManager):
    """Remembers all texts and all keys there ever were; ``rows`` explain each admission (:mod:`sim.core.lost_hits`)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.ever: set[Key] = set()
        self.offered: list[Text] = []
        self.admitted: list[Text] = []
        self.written: set[Key] = set()
        self.rows: list[dict[str, Any]] = []
        self._last: dict[Request, int] = {}  # tokens offered, or found to make no difference

    def admit(self, request: Request, hit: int, new: int, others_running: bool) -> bool:
        """Explain before the admission changes the cache."""
        row = self._explain(request, hit)
        self._last[request] = -1
        if not super().admit(request, hit, new, others_running):
            return False
        if not request.ask.skip_cache:
            self.rows.append(row)
        self.admitted.append((request.ask.salt, request.tokens[: request.known]))
        return True

    def cache(self, request: Request, tokens: int) -> None:
        """Remember states that are written, and the text when a block more can be offered."""
        if self._offers_more(request, tokens):
            self.offered.append((request.ask.salt, request.tokens[:tokens]))
        self._last[request] = max(self._last[request], tokens)
        unit = 1 if self.settings.partial_hits else self.settings.scheduler_block_size
        for group in self.groups:
            if isinstance(group, AlignedStates):
                self._note_states(group, request, tokens // unit * unit)
        super().cache(request, tokens)
        self.ever |= self.pool.cache.blocks.keys()

    def _note_states(self, group: AlignedStates, request: Request, tokens: int) -> None:
        table = group.tables[request]
        ends = [(i + 1) * group.size for i in range(group.offered[request], tokens // group.size) if table[i]]
        if request in group.checkpoints:
            ends.append(group.checkpoints[request][0])
        self.written |= {group.key(request, end) for end in ends}

    def _offers_more(self, request: Request, tokens: int) -> bool:
        """Whether a block has become full, or the prompt's tail is reached; always at an admission."""
        if self._last[request] < 0:
            return True
        unit = 1 if self.settings.partial_hits else self.settings.scheduler_block_size
        taking_part = [group for group in self.groups if group.in_prefix_cache]
        following = [math.ceil((group.offered[request] + 1) * group.size / unit) * unit for group in taking_part]
        if self.settings.partial_hits:
            tail = last_boundary(request.ask.prompt_tokens, self.settings.hash_block_size)
            last = self._last[request]
            if self.settings.drafts.count:  # what is rejected makes the tail's turn come again
                following += (
                    [last + 1] if last <= request.ask.prompt_tokens + self.settings.drafts.drops_last_block else []
                )
            else:
                following += [tail] if tail > last else []
        return tokens >= min(following, default=tokens + 1)

    def free(self, request: Request) -> None:
        """Remember what was processed of a text."""
        if request in self.groups[0].tables:
            processed = request.computed - request.in_flight
            self.offered.append((request.ask.salt, request.tokens[:processed]))
        super().free(request)

    def _explain(self, request: Request, hit: int) -> dict[str, Any]:
        limit = request.known - 1
        seen = max(min(self._known(request, self.offered), limit), hit)
        unit = self.settings.hit_alignment
        lost, groups, before = [0] * NUM_CAUSES, [-1] * NUM_CAUSES, hit
        for cause in range(ALIGNMENT):
            reach = max((n for n in range(unit, seen + 1, unit) if self._blocker(request, n, cause) < 0), default=0)
            if reach > before:
                lost[cause], groups[cause], before = reach - before, self._blocker(request, reach, cause - 1), reach
        lost[ALIGNMENT] = seen - before
        if 0 < hit + lost[EAGLE_DROP] <= self.settings.replay_tokens:
            lost[EAGLE_DROP], lost[REPLAY] = 0, lost[EAGLE_DROP]
        admitted = max(min(self._known(request, self.admitted), limit), seen)
        found = {"name": request.name, "resumed": request.preemptions > 0, "tokens": request.known, "hit": hit}
        return {**found, "seen": seen, "admitted": admitted, "lost": lost, "groups": groups}

    def _known(self, request: Request, texts: list[Text]) -> int:
        """Tokens of the longest prefix of a request's text that begins one of ``texts``."""
        known = 0
        for salt, text in texts:
            while salt == request.ask.salt and text[: known + 1] == request.tokens[: known + 1] and known < len(text):
                known += 1
        return known

    def _blocker(self, request: Request, tokens: int, cache: int) -> int:
        """The first group that cannot resume after ``tokens`` tokens in one of the ladder's caches; -1: all can."""
        for members in self._specs():
            for end in self._ends(self.groups[members[0]], tokens, cache):
                for group in members:
                    if not self._is_there(self.groups[group], request, end, tokens, cache):
                        return group
        return -1

    def _ends(self, rules: FullAttention, tokens: int, cache: int) -> list[int]:
        """Where the blocks end that a group must have; of windows the last one first, it decides about a gap."""
        last = tokens // rules.size
        whole = [(i + 1) * rules.size for i in range(last)]
        if isinstance(rules, SlidingWindow):
            return [] if cache >= NEVER_KEPT else [whole[-1], *whole[-max(rules.tail, 1) : -1]]
        if isinstance(rules, ChunkedLocal):
            looked_back_on = whole[rules.skipped_blocks(tokens) :]
            return [] if cache >= EVICTED else [*looked_back_on[-1:], *looked_back_on[:-1]]
        if isinstance(rules, AlignedStates):
            return [] if cache > NEVER_KEPT else [tokens]
        inside = [tokens] if tokens % rules.size else []
        if cache >= NEVER_KEPT:
            return []
        return inside if cache >= EVICTED else whole + inside

    def _is_there(self, rules: FullAttention, request: Request, end: int, tokens: int, cache: int) -> bool:
        """Whether a cache of the ladder has a block; WINDOW_GAP's has what once was, but for the last one."""
        key = rules.key(request, end)
        spared = isinstance(rules, SlidingWindow | ChunkedLocal) and cache == WINDOW_GAP and end != tokens
        if cache >= NEVER_KEPT:
            return key in self.written or key in self.ever
        return key in (self.ever if cache >= EVICTED or spared else self.pool.cache.blocks)
