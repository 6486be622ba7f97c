"""The claims about contents, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from gpu_check.case import Case
from gpu_check.claims import Claim, at_most, equal, not_tested
from gpu_check.content.held import Findings
from gpu_check.content.recording import Recording, record
from gpu_check.content.replay import Replay
from gpu_check.content.small import Size, SmallCache, not_replayed, small_cache
from gpu_check.device import Device

LIMITS = {"float32": 1e-5, "bfloat16": 2e-2}
"""Largest error of attention and states, by the dtype that keys and values are stored in."""
_COUNTED = {
    "finished tables": "block tables at a request's end, as the rules of its layers leave them",
    "free blocks": "steps with the free blocks that the rules leave",
    "fresh blocks": "blocks given out that nobody held",
    "chunks with a slot for each token": "chunks with a slot for each token",
    "hit blocks": "hit blocks that computing again would write the same",
}
_COVERED = ("steps", "hits", "preemptions", "copied blocks", "blocks freed behind a window or state")


def check_content(case: Case, device: Device) -> list[Claim]:
    """Record the scenario's steps and replay them in float32 and in bfloat16."""
    engine = case.engine
    why = not_replayed(case.plan.groups)
    if engine.num_speculative_tokens:
        why = "drafts are written and taken back: not replayed here"
    if engine.decode_context_parallel_size > 1:
        why = "context-parallel ranks hold parts of blocks: not replayed here"
    if why:
        return [not_tested("content", "contents of blocks", why)]
    recording = record(case)
    claims: list[Claim] = []
    for dtype, limit in LIMITS.items():
        cache = sized_cache(case, dtype)
        replay = Replay(case.plan, recording, cache, getattr(torch, dtype), device.torch_device)
        with torch.inference_mode(), _one_thread(device):
            replay.run()
        if not claims:
            claims += _counts(replay.findings, _coverage(recording, cache, replay.findings), skip=())
        else:
            claims += _counts(replay.findings, "", skip=[what for what in _COUNTED if what != "hit blocks"])
        claims += [
            at_most(
                "content",
                f"{what}, {dtype}: largest error",
                error,
                limit,
                note=f"{replay.findings.compared[what]:,} compared",
            )
            for what, error in sorted(replay.errors.items())
        ]
    return claims


@contextmanager
def _one_thread(device: Device) -> Iterator[None]:
    """On a CPU one thread: the tensors are small, and waiting for each other takes longer than the work."""
    threads = torch.get_num_threads()
    if not device.is_cuda:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def sized_cache(case: Case, dtype: str) -> SmallCache:
    """The small cache of the case, smaller where the budget asks for it."""
    size = Size()
    while True:
        cache = small_cache(case.plan.groups, case.plan.num_blocks, case.engine.kv_cache_layout, dtype, size)
        if cache.num_bytes <= case.budget_bytes or (size.kv_heads, size.layers) == (1, 1):
            return cache
        size = replace(size, layers=1) if size.layers > 1 else replace(size, kv_heads=1)


def _counts(findings: Findings, coverage: str, *, skip: tuple[str, ...] | list[str]) -> list[Claim]:
    """Claims of the form: of so many compared, so many right."""
    claims = []
    for what, words in _COUNTED.items():
        if what in skip:
            continue
        total = findings.compared[what]
        if total == 0:
            claims.append(not_tested("content", words, "the scenario has none"))
            continue
        note = findings.first.get(what, "")
        note = f"first wrong in {note}" if note else coverage if what == "finished tables" else ""
        claims.append(equal("content", words, total, total - findings.wrong[what], note=note))
    return claims


def _coverage(recording: Recording, cache: SmallCache, findings: Findings) -> str:
    """What the replay went through, in one sentence."""
    counts = ", ".join(f"{findings.compared[what]:,} {what}" for what in _COVERED)
    return f"{len(recording.texts):,} requests, {counts}; replayed with {cache.size.described()}"
