"""Where a chunk of a prompt ends when states are kept at block boundaries."""

from __future__ import annotations

from tests.twin.request import Request
from tests.twin.settings import Settings


def aligned_chunk(settings: Settings, request: Request, start: int, new: int) -> int:
    """Tokens of a chunk of at most ``new`` that ends at a position worth keeping.

    vllm 0.33.0 v1/core/sched/scheduler.py:566 (_mamba_block_aligned_split).
    """
    prefill_end = max(request.ask.prompt_tokens, request.known - 1)
    if not settings.states or start >= prefill_end:
        return new
    block = settings.chunk_unit
    end = start + new
    from_inside = end >= prefill_end and _exported(settings, start, end, prefill_end)
    if end < prefill_end:
        chunk = settings.max_num_batched_tokens
        if settings.long_prefill_token_threshold:
            chunk = min(chunk, settings.long_prefill_token_threshold)
        if end // block * block > start or block <= chunk:
            end = end // block * block
    stops = []
    if start % block and not from_inside:
        stops.append((start // block + 1) * block)
    last = 0 if from_inside else settings.state_boundary(request.known, block)
    stops.append(last)
    if settings.partial_hits and not from_inside:
        tail = settings.state_boundary(request.ask.prompt_tokens, settings.hash_block_size)
        stops.append(tail if tail > last else 0)
    if start < request.junction < end:
        inside_block = settings.junction_states and request.junction <= request.ask.prompt_tokens
        stops.append(request.junction if inside_block else start + (request.junction - start) // block * block)
    return max(min([stop for stop in stops if start < stop < end], default=end) - start, 0)


def leave_lookahead(settings: Settings, request: Request, start: int, new: int) -> int:
    """Tokens of a chunk that ends with the prefill, or leaves to draft modules all that they read past its end.

    vllm 0.33.0 v1/core/sched/scheduler.py:678 (_reserve_prefill_lookahead).
    """
    left = request.known - start - new
    wanted = settings.drafts.prefill_lookahead
    return max(0, new - (wanted - left)) if 0 < left < wanted else new


def _exported(settings: Settings, start: int, end: int, prefill_end: int) -> bool:
    """Whether the prompt's last boundary can be taken out of the chunk by the kernels of all groups of states."""
    if not all(group.export_tokens for group in settings.states):
        return False
    unit = settings.hash_block_size if settings.partial_hits else settings.scheduler_block_size
    position = settings.state_boundary(prefill_end, unit)
    size = settings.chunk_unit
    return settings.can_export(start, end, position, size, settings.states[0].export_tokens)
