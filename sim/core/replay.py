"""Bounded replay: a window that no one caches; a request that hits computes the hit's last window again instead.

    window 4, hit of 12 tokens:   0 ……… 7 | 8 9 10 11 | 12 …       8 … 11 are computed again, for this window's sake:
                                  hit     | replayed   | new       the other groups' blocks of them stay as they are

A hit no longer than the window would save nothing, and is none. While the request runs, the group is a window like
others. vllm 0.33.0 v1/core/sched/scheduler.py:1221 and :3447, v1/kv_cache_interface.py:1015 (bounded_replay).
"""

from __future__ import annotations

from sim.core._jit import inlined


@inlined
def kept_hit(hit: int, replay_tokens: int) -> int:
    """The hit, or 0 where all of it would be computed again.

        window 4:   | 0 … 7 hit | 8 … 11 again |      12 are hit        | 0 … 3 again |      nothing is

    >>> kept_hit(12, 4), kept_hit(4, 4), kept_hit(4, 0)
    (12, 0, 4)
    """
    return hit if hit > replay_tokens else 0


@inlined
def num_replayed(hit: int, replay_tokens: int) -> int:
    """Tokens of a kept hit that are computed again.

    >>> num_replayed(12, 4), num_replayed(0, 4)
    (4, 0)
    """
    return min(hit, replay_tokens)
