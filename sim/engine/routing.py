"""Which replica a request goes to: in turn, to the least loaded, or where the longest prefix of it is, or was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.core.hashing import END, START, Spans
from sim.core.inbox import Arrivals, looked_at
from sim.core.state import FREE_BLOCKS, NUM_BLOCKS, NUM_INBOX, PROMPT, Int64s
from sim.errors import InputError
from sim.machine import Machine

Router = Callable[[Arrivals], int]
"""The replica for a window of one request; asked once per request, in order of arrival."""


def make_router(policy: str, machines: Sequence[Machine], load_bound: float) -> Router:
    """The router of a policy. Raises InputError for one that is none."""
    if policy == "round_robin":
        return lambda window: int(window.ordinal[0]) % len(machines)
    if policy == "least_loaded":
        least = LeastLoaded(machines)
        return lambda _: least.next()
    if policy in _PREFIXES:
        return ByPrefix(machines, _PREFIXES[policy](machines), load_bound)
    allowed = ", ".join(("round_robin", "least_loaded", *_PREFIXES))
    raise InputError(f"got {policy!r}; allowed are {allowed}", where="replicas.routing")


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


class Cached:
    """What each replica's prefix cache holds of a request at this instant: its own hit search, asked from outside.

    ``prefix_aware``: the tokens are those it would hit if it were admitted now. Requests that arrived with it and wait
    have cached nothing yet. Routers that follow the engines' KV cache events come close to this, late by the events'
    way (llm-d's precise prefix-cache scorer, Dynamo's KV router).
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines

    def tokens(self, spans: Spans, request: Int64s) -> list[int]:
        """Tokens of the request's longest cached prefix, per replica."""
        return [machine.cached_tokens(spans, request) for machine in self._machines]

    def note(self, spans: Spans, request: Int64s, replica: int) -> None:
        """Nothing has to be remembered."""


class Sent:
    """What each replica was sent before, as if none ever forgot: all that a router knows that does not ask them.

    ``prefix_sent``: after vLLM's production stack (``prefixaware``) and llm-d's approximate scorer, which forgets what
    it sent long ago. A prefix is remembered by the names of its spans, with the most tokens seen of each.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._sent: list[dict[int, int]] = [{} for _ in machines]

    def tokens(self, spans: Spans, request: Int64s) -> list[int]:
        """Tokens of the request's longest prefix that was sent, per replica."""
        prompt = _prompt(spans, request)
        return [_known(sent, prompt) for sent in self._sent]

    def note(self, spans: Spans, request: Int64s, replica: int) -> None:
        """Remember where a request went."""
        sent = self._sent[replica]
        for base, tokens in _prompt(spans, request):
            sent[base] = max(sent.get(base, 0), tokens)


_PREFIXES: dict[str, type[Cached | Sent]] = {"prefix_aware": Cached, "prefix_sent": Sent}


class ByPrefix:
    """The replica that knows most of a request, among those within a bound on the load; the least loaded for new ones.

    A replica whose load (:func:`score`) is above ``load_bound`` times the mean, and one more, is not chosen. Of those
    that know as much, the less loaded.
    """

    def __init__(self, machines: Sequence[Machine], prefixes: Cached | Sent, load_bound: float) -> None:
        self._machines = machines
        self._prefixes = prefixes
        self._load_bound = load_bound
        self._least = LeastLoaded(machines)

    def __call__(self, window: Arrivals) -> int:
        """The replica for a request."""
        spans, request = looked_at(window)
        known = self._prefixes.tokens(spans, request)
        loads = [score(machine) for machine in self._machines]
        bound = self._load_bound * sum(loads) / len(loads) + 1
        least = self._least.next()
        allowed = [replica for replica in range(len(loads)) if loads[replica] <= bound]
        best = max(allowed, key=lambda replica: (known[replica], -loads[replica], replica == least))
        chosen = best if known[best] else least
        self._prefixes.note(spans, request, chosen)
        return chosen


def _prompt(spans: Spans, request: Int64s) -> list[tuple[int, int]]:
    """The spans of a request's prompt: the name of what precedes each and its text, and its tokens."""
    prompt = int(request[PROMPT])
    bounds = zip(spans.base.tolist(), spans.bounds[:, START].tolist(), spans.bounds[:, END].tolist(), strict=True)
    return [(base, min(end, prompt) - start) for base, start, end in bounds if start < prompt]


def _known(sent: dict[int, int], spans: Sequence[tuple[int, int]]) -> int:
    """Tokens of the longest prefix that was sent; names chain, so that each span stands for all before it too.

    spans   | name 1: 8 tokens | name 2: 4 |      sent: of 1 ten tokens, of 2 three -> 8 + 3

    >>> _known({1: 10, 2: 3}, [(1, 8), (2, 4)]), _known({1: 5, 2: 4}, [(1, 8), (2, 4)]), _known({2: 4}, [(1, 8)])
    (11, 5, 0)
    """
    tokens = 0
    for base, length in spans:
        known = min(length, sent.get(base, 0))
        tokens += known
        if known < length:
            break
    return tokens
