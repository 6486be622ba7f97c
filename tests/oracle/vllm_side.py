"""The oracle: vLLM's real scheduler and KV cache manager, one case after another, in the oracle environment.

Reads one case as JSON per line on standard input and writes JSON Lines on standard output: the step log in the
project's ``--step-log`` format, a ``state`` line at each sample step, ``{"failed": what and where}`` if vLLM's
scheduler raises on the way, and one last line per case, which is one of
``{"done": {...}}``, ``{"refused": message}`` (vLLM refuses the configuration) or ``{"error": traceback}``.
``tests/oracle/README.md`` has the format of a case.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from typing import IO, Any

from tests.oracle.event_names import Event, EventNames


def main() -> None:
    """Answer cases until standard input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1 << 20)
    os.dup2(2, 1)  # whatever a library prints goes to standard error, never into the log
    os.environ.update(VLLM_USE_V2_MODEL_RUNNER="1", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import __version__

    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        answer(json.loads(line), out, __version__)
        out.flush()


def answer(case: dict[str, Any], out: IO[str], version: str) -> None:
    """Run one case and write its lines; nothing escapes as an exception."""
    from tests.oracle.vllm_build import build_scheduler

    quiet = bool(case.get("quiet", False))
    try:
        scheduler, hasher = build_scheduler(case["config"], default_hash=quiet)
    except (ValueError, NotImplementedError, TypeError, AssertionError) as refusal:  # as planning_vllm.plan takes them
        emit(out, {"refused": " ".join(str(refusal).split())})
        return
    except Exception:  # noqa: BLE001  # the other side prints it
        emit(out, {"error": traceback.format_exc()})
        return
    try:
        emit(out, {"done": run_case(case, scheduler, hasher, out, quiet) | {"vllm": version}})
    except Exception:  # noqa: BLE001
        emit(out, {"error": traceback.format_exc()})


def run_or_fail(loop: Any) -> str | None:
    """Run the loop; what vLLM's own scheduler raised and where, if it did."""
    try:
        loop.run()
    except Exception as failure:
        place = traceback.extract_tb(failure.__traceback__)[-1]
        _, inside, file = place.filename.replace(os.sep, "/").rpartition("/vllm/v1/core/")
        if not inside:
            raise
        return f"{type(failure).__name__} at v1/core/{file}:{place.lineno}"
    return None


def run_case(case: dict[str, Any], scheduler: Any, hasher: Any, out: IO[str], quiet: bool) -> dict[str, Any]:
    """Drive one case to its end; the summary that goes into the ``done`` line."""
    from tests.oracle.acceptance import rates_of
    from tests.oracle.vllm_build import describe_plan
    from tests.oracle.vllm_loop import NS, EngineLoop

    step_ns = round(case["config"]["step_seconds"] * NS)
    room = scheduler.encoder_cache_manager.cache_size
    fitting = [request for request in case["requests"] if fits(request, case["config"]["max_model_len"], room)]
    resets = sorted((at, running) for at, running in case.get("resets", []))
    loop = EngineLoop(scheduler, hasher, fitting, step_ns, prebuild=quiet, resets=resets)
    if remote := case["config"].get("remote_prefill"):
        loop = EngineLoop(scheduler, hasher, fitting, step_ns, remote_prefill=tuple(remote))
    loop.max_steps = case.get("max_steps", loop.max_steps)
    if case["config"].get("num_speculative_tokens"):
        loop.acceptance, loop.draft_seed = rates_of(case["config"]), case["config"].get("draft_seed", 0)
    log = None
    if not quiet:
        emit(out, {"plan": describe_plan(scheduler)})
        log = StepLog(loop, out, case.get("sample_every", 0))
    began = time.perf_counter()
    failed = run_or_fail(loop)
    total = time.perf_counter() - began
    if failed:
        emit(out, {"failed": failed})
    elif loop.stalled is not None:
        emit(out, {"stalled": sorted(loop.stalled)})
    elif log is not None and log.pool.enable_kv_cache_events and loop.steps < loop.max_steps:
        emit(out, {"events": log.take_events()})
    if log is not None and log.drafts[0] and loop.steps < loop.max_steps and not failed:
        emit(out, {"drafts": log.drafts})
    timing = loop.timing
    return {
        "steps": loop.steps,
        "requests": len(fitting),
        "preemptions": loop.preemptions,
        "gave_up": loop.steps >= loop.max_steps,
        "evictions": log.evictions if log else None,
        "hit_tokens": log.hit_tokens if log else None,
        **(log.beside_drafts() if log else {}),
        "seconds": round(timing.schedule + timing.update, 6),
        "request_seconds": round(timing.requests, 6),
        "total_seconds": round(total, 6),
    }


def fits(request: dict[str, Any], max_model_len: int, encoder_cache_size: int) -> bool:
    """Whether the prompt leaves room for a token and the encoder takes its input, or vLLM refuses the request.

    vllm 0.33.0 v1/engine/input_processor.py:557 and :635.
    """
    prompt = sum(int(count) for _, count in request["prompt"])
    return prompt < max_model_len and request.get("encoder_tokens", 0) <= encoder_cache_size


def emit(out: IO[str], line: dict[str, Any]) -> None:
    """Write one compact JSON line."""
    out.write(json.dumps(line, separators=(",", ":")) + "\n")


class StepLog:
    """Writes the step log of a loop by watching vLLM's scheduler from outside."""

    def __init__(self, loop: Any, out: IO[str], sample_every: int) -> None:
        self.loop, self.out, self.sample_every = loop, out, sample_every
        self.scheduler = loop.scheduler
        self.manager = loop.scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.names = EventNames()
        self.events: list[Event] = []
        self.evictions = self.hit_tokens = self.hits = 0
        self.drafts = [0, 0, 0]
        self.step = 0
        loop.on_schedule = self.scheduled
        self._wrap(self.scheduler, "_free_request", self._finished)
        self._wrap(self.pool, "_maybe_evict_cached_block", None, self._evicted)
        self.scheduler.make_spec_decoding_stats = self._verified
        if self.pool.enable_kv_cache_events:
            take = self.manager.take_events

            def watched() -> Any:
                events = take()
                self._keep(events)
                return events

            self.manager.take_events = watched

    def _wrap(self, owner: Any, name: str, before: Any, after: Any = None) -> None:
        original = getattr(owner, name)

        def watched(subject: Any, *args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before(subject)
            result = original(subject, *args, **kwargs)
            if after is not None:
                after(result)
            return result

        setattr(owner, name, watched)

    def _tables(self, name: str) -> list[list[int]]:
        return [[block.block_id for block in group] for group in self.manager.coordinator.get_blocks(name)]

    def _finished(self, request: Any) -> None:
        emit(self.out, {"finished": request.request_id, "tables": self._tables(request.request_id)})

    def _evicted(self, evicted: bool) -> None:
        self.evictions += evicted

    def beside_drafts(self) -> dict[str, int]:
        """Hits by what drafts did to them."""
        dropped = bool(self.manager.coordinator.drop_eagle_group_ids)
        lookahead = bool(self.manager.block_pool.num_hash_lookahead_tokens)
        return {"dropped": self.hits * dropped, "looked_ahead": self.hits * lookahead}

    def _verified(self, stats: Any, num_draft_tokens: int, num_accepted_tokens: int, **_: Any) -> Any:
        """Count an output with drafts: such outputs, their drafts, the accepted ones."""
        self.drafts = [self.drafts[0] + 1, self.drafts[1] + num_draft_tokens, self.drafts[2] + num_accepted_tokens]
        return stats

    def scheduled(self, output: Any) -> None:
        """Log one schedule call; calls that schedule nothing are neither numbered nor logged."""
        if not output.num_scheduled_tokens:
            return
        self.step += 1
        hits, new_blocks = self._admissions_and_blocks(output)
        order = list(output.num_scheduled_tokens)
        line = {
            "step": self.step,
            "scheduled": [[name, count] for name, count in output.num_scheduled_tokens.items()],
            "preempted": self.loop.preempted,
            "hits": [[name, hits[name]] for name in order if name in hits],
            "new_blocks": [[name, new_blocks[name]] for name in order if any(new_blocks[name])],
            "free_blocks": self.manager.block_pool.get_num_free_blocks(),
        }
        copies = getattr(output, "kv_cache_block_copies", None)  # from 0.33 on
        if copies:
            line["copies"] = [[copy.src_block_id, copy.dst_block_id] for copy in copies]
        if self.pool.enable_kv_cache_events:
            line["kv_events"] = self.take_events()
        if self.loop.resets or self.loop.resets_done:
            line["resets"] = list(self.loop.resets_done)
        self.hit_tokens += sum(hits.values())
        self.hits += sum(hit > 0 for hit in hits.values())
        emit(self.out, line)
        if self.sample_every and (self.step - 1) % self.sample_every == 0:
            self._state()

    def take_events(self) -> list[Event]:
        """The KV cache events since the last call, in the form both sides share."""
        self.manager.take_events()
        events, self.events = self.events, []
        return events

    def _keep(self, events: list[Any]) -> None:
        """Keep what vLLM takes out of its queue of events, at the end of every step."""
        for event in events:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.events.append(self.names.cleared())
            elif kind == "BlockRemoved":
                self.events.append(self.names.removed(event.block_hashes, event.group_idx))
            else:
                described = event.group_idx, event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window
                self.events.append(
                    self.names.stored(
                        event.block_hashes,
                        event.parent_block_hash,
                        len(event.token_ids),
                        event.block_size,
                        *described,
                    )
                )

    def _admissions_and_blocks(self, output: Any) -> tuple[dict[str, int], dict[str, list[list[int]]]]:
        hits: dict[str, int] = {}
        blocks: dict[str, list[list[int]]] = {}
        here = self.scheduler.connector.here if self.scheduler.connector else {}
        for new in output.scheduled_new_reqs:
            hits[new.req_id] = here.pop(new.req_id, new.num_computed_tokens)  # told with what was fetched
            if new.num_computed_tokens and self.scheduler.prefix_replay_tokens:
                hits[new.req_id] += self.scheduler.prefix_replay_tokens  # told without what is computed again
            blocks[new.req_id] = [list(group) for group in new.block_ids]
        running = output.scheduled_cached_reqs
        for index, name in enumerate(running.req_ids):
            blocks[name] = [list(group) for group in running.new_block_ids[index] or ()]
            if name in running.resumed_req_ids:  # the version 1 model runner reports resumed requests here
                hits[name] = running.num_computed_tokens[index]
        return hits, blocks

    def _state(self) -> None:
        tables = {name: self._tables(name) for name in self.scheduler.requests}
        held = {name: table for name, table in tables.items() if any(table)}
        free = [block.block_id for block in self.manager.block_pool.free_block_queue.get_all_free_blocks()]
        emit(self.out, {"state": self.step, "tables": held, "free": free})


if __name__ == "__main__":
    main()
