"""The claims about contents, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

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
SIZES = {"cpu": Size(), "cuda": Size(head_size=64)}
"""What is replayed where."""
_COUNTED = {
    "finished tables": "block tables at a request's end, as the masks of its layers leave them",
    "free blocks": "steps with as many free blocks as the masks leave",
    "fresh blocks": "blocks given out that nobody held",
    "chunks with a slot for each token": "chunks with a slot for each token",
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
        cache = sized_cache(case, dtype, SIZES[device.kind])
        kernel = "triton" if device.is_cuda and find_spec("triton") else "gather"
        replay = Replay(case.plan, recording, cache, getattr(torch, dtype), device.torch_device, kernel)
        with torch.inference_mode(), _one_thread(device):
            replay.run()
        if not claims:
            claims += _of_the_log(replay.findings, _coverage(recording, cache, replay))
        claims += _of_blocks(replay, dtype, limit)
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


def sized_cache(case: Case, dtype: str, size: Size) -> SmallCache:
    """The small cache of the case, smaller where the budget asks for it."""
    while True:
        cache = small_cache(case.plan.groups, case.plan.num_blocks, case.engine.kv_cache_layout, dtype, size)
        if cache.num_bytes <= case.budget_bytes or (size.kv_heads, size.layers) == (1, 1):
            return cache
        size = replace(size, layers=1) if size.layers > 1 else replace(size, kv_heads=1)


def _of_the_log(findings: Findings, coverage: str) -> list[Claim]:
    """Claims about the log itself, which no dtype changes; the first carries what was covered."""
    claims = [_counted(findings, what, words) for what, words in _COUNTED.items()]
    return [replace(claims[0], note=f"{coverage}; {claims[0].note}".removesuffix("; ")), *claims[1:]]


def _of_blocks(replay: Replay, dtype: str, limit: float) -> list[Claim]:
    """Claims about what blocks hold and what is computed from them."""
    words = f"hit blocks that computing again would write the same, {dtype}"
    claims = [_counted(replay.findings, "hit blocks", words)]
    for what, error in sorted(replay.errors.items()):
        note = f"{replay.findings.compared[what]:,} compared"
        claims.append(at_most("content", f"largest error of {what}, {dtype}", error, limit, note=note))
    return claims


def _counted(findings: Findings, what: str, words: str) -> Claim:
    """A claim of the form: of so many compared, so many right."""
    total = findings.compared[what]
    if total == 0:
        return not_tested("content", words, "the scenario has none")
    first = findings.first.get(what)
    note = f"first wrong in {first}" if first else ""
    return equal("content", words, total, total - findings.wrong[what], note=note)


def _coverage(recording: Recording, cache: SmallCache, replay: Replay) -> str:
    """What the replay went through, in one sentence."""
    counts = ", ".join(f"{replay.findings.compared[what]:,} {what}" for what in _COVERED)
    kernels = ", ".join(replay.kernels) or "no attention"
    return (
        f"{len(recording.texts):,} requests, {counts}; replayed with {cache.size.described()}, attention by {kernels}"
    )
