"""The whole machine once more, slow and obvious: the engine's loop over time around the twin's scheduler.

Nothing here knows :mod:`sim`. Rules: vllm 0.33.0 v1/engine/core.py:673 (step), :708 (step_with_batch_queue) and
v1/core/sched/scheduler.py:2259 (update_from_output).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.twin.request import FINISHED, RUNNING, Request
from tests.twin.scheduler import Batch, Scheduler
from tests.twin.settings import Ask, Settings

Entry = dict[str, Any]
FRUITLESS_CALLS = 20
"""Empty schedule() calls in a row, with nothing on the GPU, after which only an arrival can change anything."""


class Twin:
    """One replica: submit requests, advance step by step, read what happened."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.scheduler = Scheduler(settings)
        self.now_ns = 0
        self.inbox: list[Request] = []
        self.batches: list[Batch] = []
        self.steps = 0
        self.submitted = 0
        self.resets = list(settings.resets)
        self.resets_done: list[bool] = []
        self.verified = [0, 0, 0]  # outputs with drafts, drafts, those accepted
        self.finished: list[dict[str, Any]] = []
        self._last_end_ns = 0
        self._sample_ns: dict[str, int] = {}
        self._fruitless = 0
        self._must_process = False
        self._newest: Batch | None = None  # whose drafts are still to be asked for
        self._entries: list[Entry] = []
        self._logged: dict[Request, list[int]] = {}

    def submit(self, asks: Sequence[Ask]) -> None:
        """Hand over requests that arrive from now on."""
        for ask in sorted(asks, key=lambda ask: ask.arrival_ns):
            self.inbox.append(Request(ask, ordinal=self.submitted))
            self.submitted += 1

    def advance(self) -> tuple[str, list[Entry]]:
        """Go on to the next step: ("stepped" | "idle" | "stalled", what happened on the way)."""
        self._entries = []
        return self._advance(), self._entries

    def _advance(self) -> str:
        while True:
            if not self._must_process:
                self._ask_for_drafts()
                self._reset_prefix_cache()
                self._deliver()
                if self.scheduler.has_requests and self._fruitless <= FRUITLESS_CALLS:
                    batch = self._launch()
                    if batch.tokens:
                        return "stepped"
                    continue
                if not self.batches:
                    if not self.inbox:
                        return "stalled" if self.scheduler.has_requests else "idle"
                    self.now_ns = max(self.now_ns, self.inbox[0].ask.arrival_ns)
                    self._fruitless = 0
                    continue
            self._must_process = False
            oldest = self.batches.pop(0)
            self.now_ns = max(self.now_ns, oldest.end_ns)
            self._process(oldest)

    def _ask_for_drafts(self) -> None:
        """Without async scheduling the engine waits for the last batch's drafts (vllm 0.33.0 v1/engine/core.py:699)."""
        batch, self._newest = self._newest, None
        if batch and self.settings.drafts.count and not self.settings.async_scheduling:
            self.now_ns = max(self.now_ns, batch.end_ns)
            made = batch.wants_drafts or not self.settings.drafts.num_lookahead_tokens
            for request in batch.tokens:
                if request.status != FINISHED:
                    request.drafts = self.settings.drafts.count if made and not request.prefilling else 0

    def _reset_prefix_cache(self) -> None:
        for _, take_all_off in [reset for reset in self.resets if reset[0] <= self.now_ns]:
            del self.resets[0]
            self.resets_done.append(self.scheduler.reset_prefix_cache(take_all_off=take_all_off))

    def _deliver(self) -> None:
        while self.inbox and self.inbox[0].ask.arrival_ns <= self.now_ns:
            self.scheduler.enqueue(self.inbox.pop(0))

    def _launch(self) -> Batch:
        """Schedule a batch, perhaps an empty one, and queue it; the queue is filled before anything is processed."""
        batch = self.scheduler.schedule(self.now_ns)
        batch.end_ns = max(self.now_ns, self._last_end_ns)
        if batch.tokens:
            took = self.settings.step_ns
            share = took // self.settings.pipeline_parallel_size
            batch.end_ns = max(self.now_ns + took, self._last_end_ns + share)
            if self.settings.pipeline_parallel_size > 1:
                known = [self._sample_ns.get(request.name, 0) for request in batch.tokens]
                batch.end_ns = max(batch.end_ns, max(known) + took)
                self._sample_ns |= {request.name: batch.end_ns for request in batch.samples}
            self.steps += 1
            self._fruitless = 0
            self._newest = batch
            self._entries.append(self._step_entry(batch))
        elif self._last_end_ns <= self.now_ns:
            self._fruitless += 1
        self._last_end_ns = batch.end_ns
        self.batches.append(batch)
        has_room = len(self.batches) < self.settings.max_concurrent_batches
        self._must_process = not (has_room and (batch.tokens or self.scheduler.has_requests))
        return batch

    def _step_entry(self, batch: Batch) -> Entry:
        """The step as the step log words it; an admitted request's whole table is new."""
        manager = self.scheduler.manager
        admitted = [request for request, _ in batch.admitted]
        new_blocks = []
        for request in batch.tokens:
            known = [0] * len(manager.groups) if request in admitted else self._logged[request]
            tables = manager.block_tables(request)
            new = [table[length:] for table, length in zip(tables, known, strict=True)]
            self._logged[request] = [len(table) for table in tables]
            if any(new):
                new_blocks.append([request.name, new])
        copies = {"copies": batch.copies} if batch.copies else {}
        return {
            "step": self.steps,
            "scheduled": [[request.name, tokens] for request, tokens in batch.tokens.items()],
            "preempted": [request.name for request in batch.preempted],
            "hits": [[request.name, hit] for request, hit in batch.admitted],
            "new_blocks": new_blocks,
            "free_blocks": len(manager.pool.free),
            **copies,
        }

    # --- outputs

    def _process(self, batch: Batch) -> None:
        """Take in the output of a batch: tokens for each request that got any, in the order of the batch."""
        for request, tokens in batch.tokens.items():
            request.in_flight -= tokens
            stale = request.stale > 0
            if stale:
                request.stale -= tokens
            if request.status == FINISHED or (stale and request.drops_stale):
                continue
            if request.computed:  # once more with every output
                self.scheduler.encoder_room += request.ask.encoder_tokens
            if request in batch.samples:
                sampled = 1 + self._verify(request, batch.drafts.get(request, 0), stale=stale)
                self._take_output(request, sampled, stale=stale)

    def _verify(self, request: Request, drafts: int, *, stale: bool) -> int:
        """Drafts that are accepted; the tokens of the others were not computed after all."""
        outputs = request.known - request.ask.prompt_tokens
        accepted = self.settings.drafts.accepted(request.ordinal, outputs, drafts)
        rejected = abs(drafts) - accepted
        if not stale:
            request.computed -= rejected
            request.placeholders -= rejected if request.placeholders else 0
        if drafts:
            self.verified = [n + more for n, more in zip(self.verified, (1, abs(drafts), accepted), strict=True)]
        return accepted

    def _take_output(self, request: Request, sampled: int, *, stale: bool) -> None:
        reason = None
        taken = 0
        while taken < sampled and not reason:
            taken += 1
            request.known += 1
            reason = request.stop_reason(self.settings.max_model_len)
        if request.first_token is None:
            request.first_token = self.now_ns
        if not stale and (request.placeholders or self.settings.drafts.count):
            request.computed -= sampled - taken
            request.placeholders -= sampled if request.placeholders else 0
            if request.status == RUNNING:
                self.scheduler.manager.cache(request, request.computed - request.in_flight)
        if reason:
            self._finish(request, reason)

    def _finish(self, request: Request, reason: str) -> None:
        scheduler = self.scheduler
        self._entries.append({"finished": request.name, "tables": scheduler.manager.block_tables(request)})
        (scheduler.running if request.status == RUNNING else scheduler.waiting).remove(request)
        scheduler.passed_over.discard(request)
        scheduler.manager.free(request)
        scheduler.encoder_room += request.ask.encoder_tokens
        scheduler.unreported_ends += 1
        request.status = FINISHED
        self.finished.append(
            {
                "name": request.name,
                "first_scheduled_ns": request.first_scheduled,
                "first_token_ns": request.first_token,
                "finish_ns": self.now_ns,
                "outputs": request.known - request.ask.prompt_tokens,
                "cached": request.cached,
                "preemptions": request.preemptions,
                "reason": reason,
            }
        )

    # --- reading

    def tables(self) -> dict[str, list[list[int]]]:
        """The block tables of every request that holds blocks."""
        manager = self.scheduler.manager
        return {request.name: manager.block_tables(request) for request in manager.holders()}

    def free_queue(self) -> list[int]:
        """Free blocks, the next one to be taken first."""
        return list(self.scheduler.manager.pool.free)
