"""vLLM's engine loop in virtual time, around its real scheduler. Runs inside the oracle environment only.

The loop is the one of ``vllm 0.33.0 v1/engine/core.py:669-822`` (``step`` and ``step_with_batch_queue``, which for a
queue of one batch are the same, and ``post_step``): fill the queue of batches while the scheduler has something, else
wait for the oldest; then ask for the drafts of the batch just scheduled. Time is integer nanoseconds; requests that
arrived by ``now`` enter before the schedule call at ``now``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request

from tests.oracle.acceptance import accepted
from tests.oracle.remote_vllm import Link
from tests.oracle.tokens import EOS, spans_tokens

NS = 1_000_000_000


@dataclass(slots=True)
class Batch:
    """One scheduled batch in flight: when it completes, which of its requests sample a token, and who is padded."""

    completion_ns: int
    output: Any
    samples: list[tuple[str, bool]]
    padded: set[str]


@dataclass(slots=True)
class Timing:
    """CPU-seconds spent inside vLLM: its schedule calls, its update calls, and building requests (hashing prompts)."""

    schedule: float = 0.0
    update: float = 0.0
    requests: float = 0.0


@dataclass
class EngineLoop:
    """One run of one case.

    ``on_schedule(output)`` is called after each schedule call, before outputs are processed; ``preempted`` then holds
    the ids that call preempted, in order. ``prebuild`` makes every request before the first step (for timing).
    ``remote_prefill``: all prompts are fetched, which takes so many ns, and so many per block.
    ``resets`` are those of the prefix cache, (ns, with running requests), ``resets_done`` what became of each.
    """

    scheduler: Any
    block_hasher: Callable[..., Any] | None
    requests: list[dict[str, Any]]
    step_ns: int
    on_schedule: Callable[[Any], None] = lambda _: None
    prebuild: bool = False
    resets: list[tuple[int, bool]] = field(default_factory=list)
    remote_prefill: tuple[int, int] | None = None
    max_steps: int = 2_000_000
    acceptance: list[float] = field(default_factory=list)
    draft_seed: int = 0
    timing: Timing = field(default_factory=Timing)
    steps: int = 0
    preemptions: int = 0
    preempted: list[str] = field(default_factory=list)
    stalled: list[str] | None = None
    resets_done: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._arrivals: deque[tuple[dict[str, Any], Request | None]] = deque()
        self._outputs: dict[str, list[int]] = {}
        self._ordinals: dict[str, int] = {}
        self._batches: deque[Batch] = deque()
        self._last_completion_ns = 0
        self._sample_ns: dict[str, int] = {}
        self._fruitless = 0
        self._link = Link(self.scheduler, *self.remote_prefill) if self.remote_prefill else None
        original = self.scheduler._preempt_request

        def preempt(request: Request, *args: Any, **kwargs: Any) -> Any:
            self.preempted.append(request.request_id)
            return original(request, *args, **kwargs)

        self.scheduler._preempt_request = preempt

    def run(self) -> None:
        """Run until every request has finished, nothing can proceed any more (``stalled``), or ``max_steps``."""
        config = self.scheduler.vllm_config
        queue_size, stages = config.max_concurrent_batches, config.parallel_config.pipeline_parallel_size
        for ordinal, item in enumerate(sorted(self.requests, key=lambda item: item["arrival_ns"])):
            self._ordinals[item["id"]] = ordinal
            self._arrivals.append((item, self._request(item) if self.prebuild else None))
        now = 0
        while self.steps < self.max_steps:
            self._drain(now)
            if self._fruitless > queue_size + stages + 2:
                upcoming = self._next_ns()
                if upcoming is None:
                    self.stalled = list(self.scheduler.requests)
                    return
                self._fruitless, now = 0, max(now, upcoming)
            elif self.scheduler.has_requests():
                executed = self._schedule(now, stages)
                newest = self._batches[-1]
                if len(self._batches) == queue_size or not (executed or self.scheduler.has_requests()):
                    now = max(now, self._process_oldest())
                if executed:
                    now = max(now, self._hand_over_drafts(newest))
            elif self._batches:
                now = max(now, self._process_oldest())
            elif self._arrivals:
                now = self._next_arrival_ns()
            else:
                return

    def _next_ns(self) -> int | None:
        """When a request or a prompt arrives next."""
        fetched = self._link.next_ns() if self._link else None
        times = [time for time in (fetched, self._next_arrival_ns() if self._arrivals else None) if time is not None]
        return min(times, default=None)

    def _next_arrival_ns(self) -> int:
        return int(self._arrivals[0][0]["arrival_ns"])

    def _drain(self, now: int) -> None:
        while self.resets and self.resets[0][0] <= now:
            _, running = self.resets.pop(0)
            self.resets_done.append(self.scheduler.reset_prefix_cache(reset_running_requests=running))
        while self._arrivals and self._next_arrival_ns() <= now:
            item, request = self._arrivals.popleft()
            self.scheduler.add_request(request or self._request(item))
            self._fruitless = 0

    def _schedule(self, now: int, stages: int) -> bool:
        """One schedule call at ``now``; whether it scheduled any token."""
        self.preempted = []
        if self._link and self._link.report(now):
            self._fruitless = 0
        began = time.thread_time()
        output = self.scheduler.schedule()
        self.timing.schedule += time.thread_time() - began
        self.preemptions += len(self.preempted)
        if self._link:
            self._link.take(now)
        executed: bool = output.total_num_scheduled_tokens > 0
        self.on_schedule(output)
        duration = self.step_ns if executed else 0
        # The next batch leaves the last stage a stage's share of the step after the one before it.
        completion = max(now + duration, self._last_completion_ns + duration // stages)
        known = self.scheduler.requests
        samples = [(name, not known[name].is_prefill_chunk) for name in output.num_scheduled_tokens]
        if stages > 1 and executed:
            # Nor does it start before the tokens it takes in are sampled.
            completion = max(completion, *(self._sample_ns.get(name, 0) + duration for name, _ in samples))
            self._sample_ns |= {name: completion for name, sampled in samples if sampled}
        self._last_completion_ns = completion
        self._batches.append(Batch(completion, output, samples, self._padded(output)))
        self.steps += executed
        in_flight = any(batch.samples for batch in self._batches)
        self._fruitless = 0 if in_flight or self.preempted else self._fruitless + 1
        return executed

    def _process_oldest(self) -> int:
        batch = self._batches.popleft()
        names = [name for name, _ in batch.samples]
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[self._sampled(name, batch) if samples else [] for name, samples in batch.samples],
        )
        began = time.thread_time()
        self.scheduler.update_from_output(batch.output, result)
        self.timing.update += time.thread_time() - began
        return batch.completion_ns

    def _sampled(self, name: str, batch: Batch) -> list[int]:
        """The next output tokens of a request: their position is the number of tokens delivered so far.

        As many as drafts are accepted and one more; what lies past the end is anything, and cut off.
        """
        request = self.scheduler.requests.get(name)
        if request is None:  # finished while this batch was in flight
            return [EOS]
        first, count = request.num_output_tokens, 1
        drafts = len(batch.output.scheduled_spec_decode_tokens.get(name, ()))
        if drafts and name not in batch.padded:
            count += accepted(self.acceptance, self.draft_seed, self._ordinals[name], first, drafts)
        tokens = self._outputs[name][first : first + count]
        return tokens + [EOS] * (count - len(tokens))

    @staticmethod
    def _padded(output: Any) -> set[str]:
        """Requests that were just admitted with places for drafts that nobody made."""
        entered = {new.req_id for new in output.scheduled_new_reqs} | set(output.scheduled_cached_reqs.resumed_req_ids)
        padded: set[str] = entered & output.scheduled_spec_decode_tokens.keys()
        return padded

    def _hand_over_drafts(self, batch: Batch) -> int:
        """Without async scheduling, drafts are asked for after the call (vllm 0.33.0 v1/engine/core.py:699).

        That is when the batch is done; the time from which the loop goes on. The worker makes none where the scheduler
        says that nobody would use them.
        """
        config = self.scheduler.vllm_config
        if not config.num_speculative_tokens or config.scheduler_config.async_scheduling:
            return 0
        began = time.thread_time()
        names = [name for name, _ in batch.samples]
        count = 0 if batch.output.skip_drafts else batch.output.num_spec_tokens_to_schedule
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[-1] * count for _ in names]))
        self.timing.update += time.thread_time() - began
        return batch.completion_ns

    def _request(self, item: dict[str, Any]) -> Request:
        began = time.thread_time()
        name, count = item["id"], item["output_tokens"]
        max_tokens = item.get("max_tokens") or count
        output = spans_tokens(item.get("output") or [[f"private output of {name}", count]])
        if count < max_tokens:
            output[count - 1] = EOS
        self._outputs[name] = output
        request = Request(
            request_id=name,
            prompt_token_ids=spans_tokens(item["prompt"]),
            sampling_params=SamplingParams(
                max_tokens=max_tokens,
                stop_token_ids=[EOS],
                temperature=0.0,
                skip_reading_prefix_cache=bool(item.get("skip_cache", False)),
            ),
            pooling_params=None,
            arrival_time=item["arrival_ns"] / NS,
            priority=item.get("priority", 0),
            cache_salt=item.get("cache_salt"),
            mm_features=encoder_input(name, item.get("encoder_tokens", 0)),
            block_hasher=self.block_hasher,
        )
        self.timing.requests += time.thread_time() - began
        return request


def encoder_input(name: str, tokens: int) -> list[MultiModalFeatureSpec]:
    """A request's input to the encoder, as vLLM's processors hand it over for encoder-decoder models: at position 0."""
    if tokens == 0:
        return []
    return [MultiModalFeatureSpec(None, "audio", f"audio of {name}", PlaceholderRange(offset=0, length=tokens))]
