"""Random requests for the oracle: shared prefixes, sessions, forks and resends whose junctions lie inside blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

Span = list[Any]
Request = dict[str, Any]


def cut(spans: list[Span], tokens: int) -> list[Span]:
    """The first ``tokens`` tokens of a list of spans.

    >>> cut([["a", 4], ["b", 5]], 6)
    [['a', 4], ['b', 2]]
    """
    kept: list[Span] = []
    for content, count in spans:
        if tokens <= 0:
            break
        kept.append([content, min(count, tokens)])
        tokens -= count
    return kept


def length(spans: list[Span]) -> int:
    """Tokens in a list of spans."""
    return sum(count for _, count in spans)


class RequestMaker:
    """Makes requests that fit ``max_model_len``, each from fresh text, a common opening, or an earlier request."""

    def __init__(self, rng: np.random.Generator, max_model_len: int) -> None:
        self.rng, self.longest = rng, max_model_len
        self.made: list[Request] = []
        self.openings = [[f"opening{i}", int(rng.integers(1, max_model_len))] for i in range(int(rng.integers(1, 4)))]
        self.fresh_texts = 0
        self.short = bool(rng.random() < 0.5)

    def prompt(self) -> list[Span]:
        """A prompt of 1 to ``max_model_len - 1`` tokens."""
        earlier = self.made[int(self.rng.integers(len(self.made)))] if self.made else None
        choice = self.rng.random()
        if earlier is None or choice < 0.2:
            spans: list[Span] = []
        elif choice < 0.5:
            spans = [list(self.openings[int(self.rng.integers(len(self.openings)))])]
            spans = cut(spans, int(self.rng.integers(1, spans[0][1] + 1))) if self.rng.random() < 0.5 else spans
        elif choice < 0.7:  # the next turn of a session: everything said so far
            spans = [list(span) for span in [*earlier["prompt"], *(earlier["output"] or [])]]
        elif choice < 0.9:  # a fork somewhere inside an earlier prompt
            spans = cut(earlier["prompt"], int(self.rng.integers(1, length(earlier["prompt"]) + 1)))
        else:  # the same prompt again
            return [list(span) for span in earlier["prompt"]]
        self.fresh_texts += 1
        room = max(2, self.longest // 4 if self.short else self.longest)
        spans.append([f"text{self.fresh_texts}", int(self.rng.integers(1, room))])
        return cut(spans, self.longest - 1)

    def request(self, name: str, arrival_ns: int) -> Request:
        """One request; it stops at ``max_tokens``, at an end of its own before that, or at ``max_model_len``."""
        prompt = self.prompt()
        if self.rng.random() < 0.02:  # more than the model takes
            prompt.append(["endless", self.longest])
        room = max(1, self.longest - length(prompt))
        top = min(room, 40) if self.rng.random() < 0.85 else room + 10
        count = int(self.rng.integers(1, max(2, top + 1)))
        allowed = count + (int(self.rng.integers(1, 30)) if self.rng.random() < 0.4 else 0)
        made = {
            "id": name,
            "arrival_ns": arrival_ns,
            "prompt": prompt,
            "output": self.output(name, count),
            "output_tokens": count,
            "max_tokens": allowed,
            "priority": int(self.rng.integers(0, 3)),
            "cache_salt": str(self.rng.choice(["pepper", "mint"])) if self.rng.random() < 0.08 else None,
            "skip_cache": bool(self.rng.random() < 0.06),
        }
        if length(prompt) < self.longest:
            self.made.append(made)
        return made

    def output(self, name: str, count: int) -> list[Span] | None:
        """What is said: something private, a text of its own, one that others say too, or both."""
        choice = self.rng.random()
        if choice < 0.35:
            return None
        if choice < 0.75:
            return [[f"said by {name}", count]]
        if choice < 0.9:
            return [["what all say", count]]
        first = int(self.rng.integers(1, count + 1))
        return [span for span in ([["what all say", first], [f"said by {name}", count - first]]) if span[1]]


def arrivals_ns(rng: np.random.Generator, count: int, step_ns: int) -> list[int]:
    """Sorted arrival times: bursts, multiples of the step (they meet completions), anything, at times a long gap."""
    times, now = [], 0
    for _ in range(count):
        choice = rng.random()
        if choice < 0.35:
            gap = 0
        elif choice < 0.65:
            gap = step_ns * int(rng.integers(0, 12))
        elif choice < 0.95:
            gap = int(rng.integers(0, 10 * step_ns))
        else:
            gap = 200 * step_ns
        now += gap
        times.append(now)
    return times


def random_requests(rng: np.random.Generator, config: dict[str, Any]) -> list[Request]:
    """Requests in file order; their ids sort differently as strings than by arrival."""
    count = int(rng.integers(3, 45))
    step_ns = round(config["step_seconds"] * 1e9)
    maker = RequestMaker(rng, config["max_model_len"])
    names = [f"r{number}" for number in rng.permutation(count)]
    return [maker.request(names[index], time) for index, time in enumerate(arrivals_ns(rng, count, step_ns))]
