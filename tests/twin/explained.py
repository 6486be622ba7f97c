"""The ladder of caches once more, slow and obvious: sets of whole prefixes, each boundary tried in each cache."""

from __future__ import annotations

from typing import Any

from sim.core.seen import (
    ALIGNMENT,
    EAGLE_DROP,
    EVICTED,
    NEVER_KEPT,
    NO_STATE,
    NOT_FINAL,
    NUM_CAUSES,
    REPLAY,
    RESET,
    WINDOW_GAP,
)
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
        self.denied: set[Key] = set()  # offered and given a key, or not
        self.written: set[Key] = set()
        self.reset_lost: set[Key] = set()  # taken by a reset and not given since
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
        """Remember states that are written, what is offered, and the text when a block more can be offered."""
        if self._offers_more(request, tokens):
            self.offered.append((request.ask.salt, self._covered(request, tokens)))
        self._last[request] = max(self._last[request], tokens)
        before = [group.offered.get(request, 0) for group in self.groups]
        super().cache(request, tokens)
        for group, first in zip(self.groups, before, strict=True):
            if group.in_prefix_cache:
                self._note_offered(group, request, first, tokens)
        self.ever |= self.pool.cache.blocks.keys()
        self.reset_lost -= self.pool.cache.blocks.keys()

    def _note_offered(self, group: FullAttention, request: Request, first: int, tokens: int) -> None:
        table = group.tables[request]
        unit = 1 if self.settings.partial_hits or self.settings.drafts.count else self.settings.scheduler_block_size
        full = tokens // unit * unit // group.size
        ends = [(i + 1) * group.size for i in range(first, full) if table[i]]
        offered = group.offered[request] if self.settings.drafts.count else full
        self.denied |= {group.key(request, end) for end in ends if end <= offered * group.size}
        if isinstance(group, AlignedStates):
            if request in group.checkpoints:
                self.denied.add(group.key(request, group.checkpoints[request][0]))
            self.written |= {group.key(request, end) for end in ends}

    def _covered(self, request: Request, tokens: int) -> tuple[Token, ...]:
        """The tokens that keys of so many depend on, as far as they are known; an end of the sequence is not text."""
        known = request.known - request.said_end
        return request.tokens[: min(tokens + self.settings.drafts.hash_lookahead, known)]

    def _offers_more(self, request: Request, tokens: int) -> bool:
        """Whether a block more can have a key, or the prompt's tail is reached; always at an admission.

        Always, too, where drafts are verified before the token they follow: what is processed may then be taken back.
        """
        if self._last[request] < 0 or self.settings.asks_for_drafts:
            return True
        following = [self._key_at(group, request) for group in self.groups if group.in_prefix_cache]
        if self.settings.partial_hits:
            drafts, last = self.settings.drafts, self._last[request]
            tail = last_boundary(request.ask.prompt_tokens, self.settings.hash_block_size)
            if not drafts.count:
                following += [tail] if tail > last else []
            elif last <= request.ask.prompt_tokens + drafts.hash_lookahead + drafts.prefill_lookahead:
                following.append(
                    last + (drafts.hash_lookahead == 0)
                )  # what is rejected makes the tail's turn come again
        return tokens >= min(following, default=tokens + 1)

    def _key_at(self, group: FullAttention, request: Request) -> int:
        """Tokens at which a group's next block can have a key; where one is dropped, a tail in it already."""
        block, dropped = group.offered[request], len(self.groups) > 1 and self.settings.drops(group.number)
        wanted = block * group.size + (self.settings.hash_block_size if dropped else group.size)
        tokens = wanted
        while self._cacheable(group, tokens) < wanted:
            tokens += 1
        return tokens

    def reset(self) -> bool:
        """Remember what it takes."""
        keys = set(self.pool.cache.blocks)
        done = super().reset()
        self.reset_lost |= keys if done else set()
        return done

    def free(self, request: Request) -> None:
        """Remember what was processed of a text."""
        if request in self.groups[0].tables:
            processed = request.computed - request.in_flight
            self.offered.append((request.ask.salt, self._covered(request, processed)))
        super().free(request)

    def _explain(self, request: Request, hit: int) -> dict[str, Any]:
        limit, ahead = request.known - self.settings.last_tokens, self.settings.drafts.hash_lookahead
        seen = max(min(self._known(request, self.offered) - ahead, limit), hit)
        unit = self.settings.hit_alignment
        lost, groups, before = [0] * NUM_CAUSES, [-1] * NUM_CAUSES, hit
        for cause in range(ALIGNMENT):
            reach = max((n for n in range(unit, seen + 1, unit) if self._blocker(request, n, cause) < 0), default=0)
            if reach > before:
                lost[cause], groups[cause], before = reach - before, self._blocker(request, reach, cause - 1), reach
        lost[ALIGNMENT] = seen - before
        if 0 < hit + lost[EAGLE_DROP] <= self.settings.replay_tokens:
            lost[EAGLE_DROP], lost[REPLAY] = 0, lost[EAGLE_DROP]
        admitted = max(min(self._known(request, self.admitted) - ahead, limit), seen)
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
        if cache >= NO_STATE or (cache >= NOT_FINAL and not isinstance(rules, AlignedStates)):
            return []
        whole = [(i + 1) * rules.size for i in range(tokens // rules.size)]
        if isinstance(rules, SlidingWindow):
            return [whole[-1], *whole[-max(rules.tail, 1) : -1]]
        if isinstance(rules, ChunkedLocal):
            looked_back_on = whole[rules.skipped_blocks(tokens) :]
            return [*looked_back_on[-1:], *looked_back_on[:-1]]
        if isinstance(rules, AlignedStates):
            return [tokens]
        return [*whole, *[tokens] * (tokens % rules.size > 0 and cache < NEVER_KEPT)]

    def _is_there(self, rules: FullAttention, request: Request, end: int, tokens: int, cache: int) -> bool:
        """Whether a cache of the ladder has a block; those from WINDOW_GAP on have what once was but the last one."""
        key = rules.key(request, end)
        if key in self.pool.cache.blocks or (cache >= RESET and key in self.reset_lost):
            return True
        spared = isinstance(rules, SlidingWindow | ChunkedLocal) and cache >= WINDOW_GAP and end != tokens
        if (cache >= EVICTED or spared) and (key in self.ever or self._always_kept(rules, end)):
            return True
        if cache >= NEVER_KEPT and (
            key in self.denied or (not self.settings.drafts.count and not isinstance(rules, AlignedStates))
        ):
            return True
        return cache >= NOT_FINAL and key in self.written

    def _always_kept(self, rules: FullAttention, end: int) -> bool:
        """Whether every block of a group that was ever full got a key."""
        return (
            end % rules.size == 0
            and not self.settings.drafts.count
            and not isinstance(rules, SlidingWindow | AlignedStates)
        )
