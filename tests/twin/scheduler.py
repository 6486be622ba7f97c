"""The twin's scheduler: who computes how many tokens next, who is taken off, who comes in."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.twin.chunks import aligned_chunk, leave_lookahead
from tests.twin.manager import KVCacheManager
from tests.twin.request import PREEMPTED, RUNNING, WAITING, Request
from tests.twin.settings import Settings


@dataclass(slots=True)
class Batch:
    """What one schedule() decided."""

    tokens: dict[Request, int] = field(default_factory=dict)
    samples: set[Request] = field(default_factory=set)
    drafts: dict[Request, int] = field(default_factory=dict)  # -n: n places that nothing was drafted for
    preempted: list[Request] = field(default_factory=list)
    admitted: list[tuple[Request, int]] = field(default_factory=list)
    copies: list[list[int]] = field(default_factory=list)
    prefills: bool = False  # whether some prefill is in it
    wants_drafts: bool = False  # whether somebody may use the drafts made after it
    end_ns: int = 0


class Scheduler:
    """vllm 0.33.0 v1/core/sched/scheduler.py:734 (schedule), :1799 (preemption), v1/core/sched/async_scheduler.py."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.manager = KVCacheManager(settings)
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.calls = 0
        self.unreported_ends = 0
        self.executed_steps = 0
        self.last_prefill_step = -settings.prefill_schedule_interval
        self.capacity_bound = False
        self.passed_over: set[Request] = set()
        self.looked_up = {False: [0, 0], True: [0, 0]}  # by "was preempted": tokens asked for, tokens hit
        self.preemptions = 0
        self.encoder_room = settings.encoder_budget

    @property
    def has_requests(self) -> bool:
        """Whether the engine has a reason to call schedule()."""
        return bool(self.running or self.waiting or self.unreported_ends)

    def enqueue(self, request: Request, *, in_front: bool = False) -> None:
        """Let a request wait: at the back, at the front, or where its priority puts it."""
        self.waiting.insert(0 if in_front else len(self.waiting), request)
        if self.settings.priority_policy:
            self.waiting.sort(key=lambda waiting: waiting.urgency)

    def schedule(self, now_ns: int) -> Batch:
        """Decide one batch."""
        self.calls += 1
        self.manager.new_step()
        batch = Batch()
        threshold, held = self._threshold(), self._holds_prefill()
        self._schedule_running(batch, threshold, held=held)
        if not batch.preempted:
            self._schedule_waiting(batch, threshold, now_ns, held=held)
            if not held:
                self.capacity_bound = len(self.waiting) > len(self.passed_over)
        self.executed_steps += bool(batch.tokens)
        if batch.prefills and self.settings.prefill_schedule_interval > 1:
            self.last_prefill_step = self.executed_steps
        batch.copies = self.manager.take_copies()
        for request, tokens in batch.tokens.items():
            self._count_as_computed(batch, request, tokens)
        self.unreported_ends = 0
        return batch

    def _threshold(self) -> int:
        """Most tokens of a prompt per step; 0: no limit (vllm 0.33.0 v1/core/sched/scheduler.py:752-767)."""
        eligible = len(self.running) + len(self.waiting)
        threshold = self.settings.long_prefill_token_threshold
        if not threshold or eligible <= 1:
            return 0
        fair = self.settings.max_num_batched_tokens // eligible
        return max(threshold, fair) if self.settings.long_prefill_token_threshold_adaptive else threshold

    def _holds_prefill(self) -> bool:
        """Whether prefill has to wait for a later step (vllm 0.33.0 v1/core/sched/scheduler.py:769-791)."""
        since = self.executed_steps + 1 - self.last_prefill_step
        return (
            since < self.settings.prefill_schedule_interval
            and not self.capacity_bound
            and any(not request.prefilling for request in self.running)
        )

    def _left(self, batch: Batch) -> int:
        """Tokens that the next request may have; its draft takes a part of its own."""
        spent = sum(batch.tokens.values()) + self.settings.drafts.draft_slots * (len(batch.tokens) + 1)
        return self.settings.max_num_batched_tokens - spent

    # --- running requests

    def _schedule_running(self, batch: Batch, threshold: int, *, held: bool) -> None:
        """In order of the running list; who finds no blocks makes another give way, or itself."""
        place = 0
        while place < len(self.running) and self._left(batch) > 0:
            request = self.running[place]
            new = self._next_tokens(request, threshold, self._left(batch))
            if new > 0 and not (held and request.prefilling):
                given_up = False
                while not given_up and not self.manager.grow(request, new):
                    victim = self._least_urgent()
                    place -= self.running.index(victim) < place
                    self._preempt(batch, victim)
                    given_up = victim is request
                if given_up:
                    if self.settings.priority_policy:
                        continue
                    return
                self._put(batch, request, new)
                drafts = new + request.computed - request.known - request.placeholders
                if min(drafts, request.drafts) > 0:
                    batch.drafts[request] = min(drafts, request.drafts)
                request.drafts = 0
                batch.prefills |= request.prefilling
            place += 1

    @staticmethod
    def _put(batch: Batch, request: Request, new: int) -> None:
        """Schedule tokens; drafts are no use amid a prefill, or if the next token is sure to be the last."""
        batch.tokens[request] = new
        if request.computed + new >= request.known:
            outputs = request.known - request.ask.prompt_tokens
            batch.wants_drafts |= outputs + 1 < request.ask.max_tokens

    def _next_tokens(self, request: Request, threshold: int, left: int) -> int:
        """Tokens a running request could compute now; 0: none."""
        last_possible = request.ask.prompt_tokens + request.ask.max_tokens
        if request.placeholders and request.computed + 2 - request.placeholders >= last_possible:
            return 0
        if self.calls < request.eligible_call:
            return 0
        new = request.known + request.drafts + request.placeholders - request.computed
        if 0 < threshold < new:
            new = threshold
        new = min(new, left, self.settings.max_model_len - request.computed - 1)
        new = aligned_chunk(self.settings, request, request.computed, new)
        return leave_lookahead(self.settings, request, request.computed, new)

    def _least_urgent(self) -> Request:
        """Who gives way: the last one, or with priorities the first of the least urgent, latest ones."""
        if self.settings.priority_policy:
            return max(self.running, key=lambda request: (request.ask.priority, request.ask.arrival_ns))
        return self.running[-1]

    def _preempt(self, batch: Batch, victim: Request) -> None:
        """Take a request off; it starts again from nothing, and what it has in flight no longer counts."""
        self.running.remove(victim)
        batch.tokens.pop(victim, None)
        batch.drafts.pop(victim, None)
        batch.preempted.append(victim)
        self.preemptions += 1
        self.manager.free(victim)
        victim.status = PREEMPTED
        victim.drops_stale = victim.drops_stale and victim.stale > 0
        victim.computed = 0
        victim.stale = victim.in_flight
        self.encoder_room += victim.ask.encoder_tokens
        victim.placeholders = 0
        victim.drafts = 0
        victim.preemptions += 1
        self.enqueue(victim, in_front=True)

    def reset_prefix_cache(self, *, take_all_off: bool) -> bool:
        """Forget what is cached; running requests can be made to come back later (v1/core/sched/scheduler.py:3184)."""
        while take_all_off and self.running:
            victim = self.running[-1]
            self._preempt(Batch(), victim)
            victim.drops_stale = True
        return self.manager.reset()

    # --- waiting requests

    def _schedule_waiting(self, batch: Batch, threshold: int, now_ns: int, *, held: bool) -> None:
        """In order of the waiting list, until one does not fit; who has stale outputs in flight is passed over."""
        others, with_prefill = bool(batch.tokens), batch.prefills
        encoder_left = self.settings.encoder_budget
        for request in list(self.waiting):
            if self._left(batch) <= 0 or len(self.running) >= self.settings.max_running:
                return
            if request.stale and not request.drops_stale:
                self.passed_over.add(request)
                continue
            hit = self.manager.look_up(request)
            if held and request.known - hit > 1:
                return
            again = min(hit, self.settings.replay_tokens)
            as_wide = not with_prefill and (others or hit > 0)
            new, padding = self._first_chunk(batch, request, hit, threshold, as_wide=as_wide)
            if new == 0:
                return
            new = leave_lookahead(self.settings, request, hit - again, new)
            encoder = request.ask.encoder_tokens
            if new == 0 or encoder > min(self.encoder_room, encoder_left):
                self.passed_over.add(request)
                continue
            if not self.manager.admit(request, hit, max(new - again, 0), bool(self.running)):
                self.encoder_room += encoder
                return
            encoder_left -= encoder
            self.encoder_room -= encoder
            self._start(batch, request, hit, new, now_ns)
            if padding:
                batch.drafts[request] = -padding

    def _first_chunk(
        self, batch: Batch, request: Request, hit: int, threshold: int, *, as_wide: bool
    ) -> tuple[int, int]:
        """Tokens of a new request's chunk, and places for drafts among them; 0 where nobody enters any more."""
        new = request.known - hit + min(hit, self.settings.replay_tokens)
        padding = self._padding(new, hit) if as_wide else 0
        if padding and 1 + padding > self._left(batch):
            return 0, 0
        new += padding
        if 0 < threshold < new:
            new = threshold
        if new > self._left(batch) and not self.settings.enable_chunked_prefill:
            return 0, 0
        wanted = min(new, self._left(batch))
        new = aligned_chunk(self.settings, request, hit, wanted)
        return (1, 0) if padding and 0 < new < wanted else (new, padding)

    def _padding(self, new: int, hit: int) -> int:
        """Places for drafts of a request with one token left, so that it is as wide as those that run."""
        count = self.settings.drafts.count
        return count if new == 1 and hit + 1 + count + 1 <= self.settings.max_model_len else 0

    def _start(self, batch: Batch, request: Request, hit: int, new: int, now_ns: int) -> None:
        self.waiting.remove(request)
        self.passed_over.discard(request)
        self.running.append(request)
        again = min(hit, self.settings.replay_tokens)
        batch.prefills |= hit - again < request.known - 1
        assert request.status in (WAITING, PREEMPTED)
        request.status = RUNNING
        request.computed = hit - again
        if request.first_scheduled is None:
            request.first_scheduled = now_ns
            request.cached = hit
        if self.settings.enable_prefix_caching and not request.ask.skip_cache:
            totals = self.looked_up[request.preemptions > 0]
            totals[0] += request.known
            totals[1] += hit
        self._put(batch, request, new)
        batch.admitted.append((request, hit))

    def _count_as_computed(self, batch: Batch, request: Request, tokens: int) -> None:
        """The next call may come before this batch is back, so its tokens count at once."""
        request.computed += tokens
        request.in_flight += tokens
        request.prefilling = request.computed < request.known + request.placeholders
        if not request.prefilling:
            batch.samples.add(request)
            if self.settings.async_scheduling:
                request.placeholders += 1 + abs(batch.drafts.get(request, 0))
                request.drafts = self.settings.drafts.count
                request.eligible_call = self.calls + self.settings.pipeline_parallel_size
