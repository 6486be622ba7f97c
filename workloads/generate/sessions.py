"""Multi-turn sessions whose context grows: each prompt repeats the one before, its output, and adds new tokens.

Open loop, the arrival of every turn is known before anything runs, whatever the server's speed. With ``closed_loop``
a turn arrives ``think_s`` after the answer to the one before::

    turn 1   |- prefix -|-- new 1 --|          -> out 1
    turn 2   |- prefix -|-- new 1 --|- out 1 -|- new 2 -|          -> out 2
    turn 3   |- prefix -|-- new 1 --|- out 1 -|- new 2 -|- out 2 -|- new 3 -|   -> out 3

The spans of a turn are thus the first ones of its session's one list of spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workloads.arrivals import Arrivals
from workloads.batch import OPEN_LOOP, RequestBatch, from_spans, offsets, ranges
from workloads.columns import MAX_SECONDS, MAX_TOKENS
from workloads.content import I64, SESSION, U64, named_pair
from workloads.errors import WorkloadError
from workloads.generate.draws import Distribution, distribution, stream
from workloads.generate.prefixes import PrefixDraws, Prefixes
from workloads.generate.tool_calls import CallDraws, ToolCalls
from workloads.settings import Settings

SESSIONS_AT_ONCE = 64
MAX_TURNS = 10_000


@dataclass(frozen=True, slots=True)
class Sessions:
    """How sessions go on after their first turn."""

    turns: Distribution
    think_s: Distribution
    new_tokens: Distribution
    max_prompt_tokens: int | None
    closed_loop: bool = False
    tool_calls: ToolCalls | None = None

    @classmethod
    def from_settings(cls, settings: Settings, base_dir: Path, seed: int) -> Sessions | None:
        """Read the mapping ``sessions``; None when it is not there."""
        if "sessions" not in settings:
            return None
        keys = ("turns", "think_s", "new_tokens", "max_prompt_tokens", "closed_loop", "tool_calls")
        own = Settings(settings.get("sessions"), settings.path("sessions"), keys)
        return cls(
            distribution(own, "turns", "tokens", base_dir, seed),
            distribution(own, "think_s", "seconds", base_dir, seed),
            distribution(own, "new_tokens", "tokens", base_dir, seed),
            own.integer("max_prompt_tokens", 1, MAX_TOKENS) if "max_prompt_tokens" in own else None,
            own.boolean("closed_loop", default=False),
            ToolCalls.from_settings(own, base_dir, seed),
        )


@dataclass(frozen=True, slots=True)
class SessionDraws:
    """Draws the sessions of a workload one block after another."""

    sessions: Sessions
    arrivals: Arrivals
    prompt: Distribution
    output: Distribution
    prefixes: Prefixes | None
    seed: int

    def chunks(self, requests: int) -> Iterator[tuple[RequestBatch, int]]:
        """Whole sessions, in order of their start, until they hold ``requests`` requests; the last one is cut.

        Each chunk comes with the start of its last session, before which no later request arrives.
        """
        rngs = {name: stream(self.seed, name) for name in ("arrival", "turns", "think", "prompt", "new", "output")}
        prefixes = PrefixDraws(self.prefixes, self.seed)
        calls = None if self.sessions.tool_calls is None else CallDraws(self.sessions.tool_calls, self.seed)
        left, number, start_ns = requests, 0, 0
        while left > 0:
            starts = self.arrivals.times(rngs["arrival"], number, SESSIONS_AT_ONCE, start_ns)
            turns = np.minimum(self.sessions.turns.tokens(rngs["turns"], SESSIONS_AT_ONCE), MAX_TURNS)
            first = self.prompt.tokens(rngs["prompt"], SESSIONS_AT_ONCE)
            content, prefix = prefixes.next(starts)
            total = int(turns.sum())
            think_ns = np.rint(self.sessions.think_s.draw(rngs["think"], total) * 1e9).astype(np.int64)
            new = self.sessions.new_tokens.tokens(rngs["new"], total)
            out = self.output.tokens(rngs["output"], total)
            heads = offsets(turns)[:-1]
            think_ns[heads], new[heads] = starts, first
            block = SessionBlock(number, turns, think_ns, new, out, content, prefix)
            batch = block.requests(self.sessions.max_prompt_tokens, left, closed_loop=self.sessions.closed_loop)
            if calls is not None:
                batch = calls.among(batch)
                batch = batch.slice(0, min(left, len(batch)))
            yield batch, int(starts[-1])
            left -= len(batch)
            number += SESSIONS_AT_ONCE
            start_ns = int(starts[-1])


@dataclass(frozen=True, slots=True)
class SessionBlock:
    """The draws of consecutive sessions; ``gaps_ns``, ``new`` and ``out`` have one entry per turn.

    The gap of a first turn is its session's start; ``prefix[s]`` is 0 for a session without a shared prefix.
    """

    first_session: int
    turns: I64
    gaps_ns: I64
    new: I64
    out: I64
    prefix_content: U64
    prefix: I64

    def requests(self, max_prompt_tokens: int | None, limit: int, *, closed_loop: bool) -> RequestBatch:
        """The first ``limit`` requests; a session ends before the first later turn with too long a prompt."""
        session = np.repeat(np.arange(len(self.turns)), self.turns)
        turn = ranges(np.zeros_like(self.turns), self.turns)
        output = self.out
        prompt = self.prefix[session] + within(self.new + self.out, self.turns) - output
        fits = np.ones(len(prompt), dtype=np.bool_) if max_prompt_tokens is None else prompt <= max_prompt_tokens
        kept = np.flatnonzero(fits | (turn == 0))[:limit]
        if len(kept) and int(prompt[kept].max()) > MAX_TOKENS:
            raise WorkloadError(
                "a prompt grows beyond 10^9 tokens; allowed: a smaller max_prompt_tokens, fewer turns or shorter ones",
                where="workload.synthetic.sessions",
            )
        arrival = within(self.gaps_ns, self.turns)
        if int(arrival.max()) > MAX_SECONDS * 10**9:
            raise WorkloadError(
                "a session lasts beyond 10^9 s; allowed: a shorter think_s or fewer turns",
                where="workload.synthetic.sessions.think_s",
            )
        starts, content, tokens = self.spans()
        think = np.where(turn > 0, self.gaps_ns, OPEN_LOOP) if closed_loop else np.full_like(turn, OPEN_LOOP)
        if closed_loop:
            arrival = self.gaps_ns[offsets(self.turns)[:-1]][session]
        session, turn = session[kept], turn[kept]
        prompt_spans = (self.prefix[session] > 0) + 2 * turn + 1
        spans = ranges(starts[session], prompt_spans + 1)
        names = [f"s{self.first_session + s}" for s in session.tolist()]
        return from_spans(
            [f"{name}.{t}" for name, t in zip(names, turn.tolist(), strict=True)],
            arrival[kept],
            prompt[kept],
            output[kept],
            prompt_spans=prompt_spans,
            span_counts=prompt_spans + 1,
            span_content=content[spans],
            span_tokens=tokens[spans],
            sessions=names,
            turn=turn,
            think_ns=think[kept],
        )

    def spans(self) -> tuple[I64, U64, I64]:
        """Where each session's spans start, and their content and tokens: [prefix], new 1, out 1, new 2, out 2, ..."""
        has_prefix = self.prefix > 0
        counts = 2 * self.turns + has_prefix
        starts = offsets(counts)[:-1]
        place = ranges(np.zeros_like(counts), counts) + ~np.repeat(has_prefix, counts)
        number = self.first_session + np.repeat(np.arange(len(counts)), counts)
        content = named_pair(number, place, SESSION)
        tokens = np.empty(len(content), dtype=np.int64)
        tokens[place > 0] = np.stack([self.new, self.out], axis=1).ravel()
        tokens[starts[has_prefix]] = self.prefix[has_prefix]
        content[starts[has_prefix]] = self.prefix_content[has_prefix]
        return starts, content, tokens


def within(values: I64, counts: I64) -> I64:
    """Running sums that start again with each group of ``counts`` values (each at least 1).

    >>> within(np.array([1, 2, 3, 4]), np.array([2, 2])).tolist()
    [1, 3, 3, 7]
    """
    sums = np.cumsum(values)
    ends = np.cumsum(counts)[:-1]
    before: I64 = np.concatenate(([0], sums[ends - 1]))
    return np.asarray(sums - np.repeat(before, counts), dtype=np.int64)
