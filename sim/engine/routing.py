"""Which replica a request goes to: in turn, to the least loaded, or where the longest prefix of it was sent before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sim.core.inbox import Arrivals
from sim.core.state import FREE_BLOCKS, NUM_BLOCKS, NUM_INBOX
from sim.errors import InputError
from sim.machine import Machine

LOAD_BOUND = 1.25
"""A replica gets a request for its prefix only while its load is at most this times the mean, plus one request."""

Router = Callable[[Arrivals, int], int]
"""The replica for one row of a window; asked once per request, in order of arrival."""


def make_router(policy: str, machines: Sequence[Machine]) -> Router:
    """The router of a policy. Raises InputError for one that is none."""
    if policy == "round_robin":
        return lambda window, row: int(window.ordinal[row]) % len(machines)
    if policy == "least_loaded":
        least = LeastLoaded(machines)
        return lambda _window, _row: least.next()
    if policy == "prefix_aware":
        return PrefixAware(machines)
    raise InputError(f"got {policy!r}; allowed are round_robin, least_loaded, prefix_aware", where="replicas.routing")


def score(machine: Machine) -> float:
    """How loaded a replica is, as vLLM's front end counts it: requests, and those that wait the more the fuller it is.

    vllm 0.33.0 v1/engine/core_client.py:1779-1790, with counts of this instant; vLLM refreshes its own every 100 ms.
    """
    waiting = machine.num_waiting + int(machine.state.queues.counters[NUM_INBOX])
    pool = machine.state.pool.counters
    usage = 1 - int(pool[FREE_BLOCKS]) / max(int(pool[NUM_BLOCKS]) - 1, 1)
    return waiting + machine.num_running + waiting * 6.0 * max(0.0, usage - 0.5)


class LeastLoaded:
    """The replica with the lowest score; among equals the next one in turn."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._start = 0

    def next(self) -> int:
        """The replica for the next request."""
        size = len(self._machines)
        order = [(self._start + i) % size for i in range(size)]
        self._start = (self._start + 1) % size
        return min(order, key=lambda replica: score(self._machines[replica]))


class PrefixAware:
    """The replica that was sent the longest prefix of the request before, within a bound on its load.

    Like routers in the field it goes by what it sent, not by what a replica still holds. A prefix is remembered by its
    spans: the first tokens of one text, then of the next; a branch of a tree per replica.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._least = LeastLoaded(machines)
        self._sent: list[dict[int, Any]] = [{} for _ in machines]

    def __call__(self, window: Arrivals, row: int) -> int:
        """The replica for a request."""
        spans = _prompt(window, row)
        loads = [score(machine) for machine in self._machines]
        bound = LOAD_BOUND * sum(loads) / len(loads) + 1
        least = self._least.next()
        known = [_known(tree, spans) for tree in self._sent]
        allowed = [replica for replica in range(len(loads)) if loads[replica] <= bound]
        best = max(allowed, key=lambda replica: (known[replica], -loads[replica], replica == least), default=least)
        chosen = best if allowed and known[best] else least
        _remember(self._sent[chosen], spans)
        return chosen


def _prompt(window: Arrivals, row: int) -> list[tuple[int, int]]:
    """The spans of a request's prompt: content and tokens, namespaced by its salt."""
    first, last = int(window.span_offsets[row]), int(window.span_offsets[row + 1])
    left = int(window.prompt_tokens[row])
    spans = [(int(window.salt[row]), 0)]
    for content, tokens in zip(
        window.span_content[first:last].tolist(), window.span_tokens[first:last].tolist(), strict=True
    ):
        if left <= 0:
            break
        spans.append((content, min(tokens, left)))
        left -= tokens
    return spans


def _known(tree: dict[int, Any], spans: Sequence[tuple[int, int]]) -> int:
    """Tokens of the longest prefix of ``spans`` that was remembered.

    >>> tree = {}
    >>> _remember(tree, [(1, 8), (2, 4)])
    >>> _known(tree, [(1, 8), (2, 9)]), _known(tree, [(1, 5), (2, 4)]), _known(tree, [(3, 8)])
    (12, 5, 0)
    """
    tokens = 0
    for content, length in spans:
        if content not in tree:
            break
        longest, branches = tree[content]
        tokens += min(length, longest)
        if length not in branches:
            break
        tree = branches[length]
    return tokens


def _remember(tree: dict[int, Any], spans: Sequence[tuple[int, int]]) -> None:
    """Add a prefix: per content the most tokens of it, and what followed after how many."""
    for content, length in spans:
        longest, branches = tree.get(content, (0, {}))
        tree[content] = (max(longest, length), branches)
        tree = branches.setdefault(length, {})
