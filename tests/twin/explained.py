"""The ladder of caches once more, slow and obvious: sets of whole prefixes, each boundary tried in each cache."""

from __future__ import annotations

from typing import Any

from sim.core.seen import ALIGNMENT, EAGLE_DROP, EVICTED, NEVER_KEPT, NUM_CAUSES, WINDOW_GAP
from tests.twin.kinds.sliding_window import SlidingWindow
from tests.twin.manager import KVCacheManager
from tests.twin.pool import Key
from tests.twin.request import Request
from tests.twin.settings import Settings, Token

Text = tuple[int, tuple[Token, ...]]
"""A salt and the tokens of a prefix."""


class ExplainedManager(KVCacheManager):
    """Remembers all texts and all keys there ever were; ``rows`` explain each admission (:mod:`sim.core.lost_hits`)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.offered: list[Text] = []
        self.admitted: list[Text] = []
        self.ever: set[Key] = set()
        self.rows: list[dict[str, Any]] = []
        self._offered_by: dict[Request, int] = {}

    def admit(self, request: Request, hit: int, new: int, others_running: bool) -> bool:
        """Explain before the admission changes the cache."""
        row = self._explain(request, hit)
        self._offered_by[request] = -1
        if not super().admit(request, hit, new, others_running):
            return False
        if not request.ask.skip_cache:
            self.rows.append(row)
        self.admitted.append((request.ask.salt, request.tokens[: request.known]))
        return True

    def cache(self, request: Request, tokens: int) -> None:
        """Remember keys, and the text when another block of the scheduler's size is full."""
        super().cache(request, tokens)
        self.ever |= self.pool.cache.blocks.keys()
        full = tokens // self.settings.scheduler_block_size
        if full > self._offered_by[request]:
            self._offered_by[request] = full
            self.offered.append((request.ask.salt, request.tokens[:tokens]))

    def free(self, request: Request) -> None:
        """Remember what was processed of a text."""
        if request in self.groups[0].tables:
            processed = request.computed - request.in_flight
            self.offered.append((request.ask.salt, request.tokens[:processed]))
        super().free(request)

    def _explain(self, request: Request, hit: int) -> dict[str, Any]:
        limit = request.known - 1
        seen = max(min(self._known(request, self.offered), limit), hit)
        unit = self.settings.scheduler_block_size
        lost, groups, before = [0] * NUM_CAUSES, [-1] * NUM_CAUSES, hit
        for cause in range(ALIGNMENT):
            reach = max((n for n in range(unit, seen + 1, unit) if self._blocker(request, n, cause) < 0), default=0)
            if reach > before:
                lost[cause], groups[cause], before = reach - before, self._blocker(request, reach, cause - 1), reach
        lost[ALIGNMENT] = seen - before
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
            rules = self.groups[members[0]]
            last = tokens // rules.size
            blocks = list(range(last))
            if isinstance(rules, SlidingWindow):
                if cache >= NEVER_KEPT:
                    continue
                blocks = [last - 1, *blocks[-max(rules.tail, 1) : -1]]  # the last one decides whether there is a gap
            elif cache >= EVICTED:
                continue
            for index in blocks:
                spared = cache >= EVICTED or (
                    cache == WINDOW_GAP and isinstance(rules, SlidingWindow) and index != last - 1
                )
                for group in members:
                    found = self.ever if spared else self.pool.cache.blocks
                    if self.groups[group].key(request, (index + 1) * rules.size) not in found:
                        return group
        return -1


assert EAGLE_DROP == 0
