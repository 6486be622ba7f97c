"""Parallel tool calls: after some answers a session sends several requests side by side, and goes on when all are back.

A call, to a sub-agent say, reads what its session has read and written so far and a text of its own::

    turn 0   |- prefix -|- new 1 -| -> out 1
    turn 1   |- prefix -|- new 1 -|- out 1 -|- call 1 -| -> its answer      } side by side
    turn 1   |- prefix -|- new 1 -|- out 1 -|- call 2 -| -> its answer      }
    turn 2   |- prefix -|- new 1 -|- out 1 -|- new 2 -| -> out 2            when both are answered

What the calls found is part of the next turn's new tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workloads.batch import RequestBatch, concat, from_spans, offsets, ranges
from workloads.content import I64, SESSION, named_pair
from workloads.generate.draws import Distribution, distribution, stream
from workloads.settings import Settings

KEYS = ("share", "calls", "new_tokens", "output_tokens", "wait_s")
MAX_CALLS = 1000


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """With chance ``share`` an answer, other than a session's last, is followed by ``calls`` requests."""

    share: float
    calls: Distribution
    new_tokens: Distribution
    output_tokens: Distribution
    wait_s: Distribution

    @classmethod
    def from_settings(cls, settings: Settings, base_dir: Path, seed: int) -> ToolCalls | None:
        """Read ``tool_calls: {share, calls, new_tokens, output_tokens, wait_s}``; None when it is not there."""
        if "tool_calls" not in settings:
            return None
        if not settings.boolean("closed_loop", default=False):
            raise settings.error("tool_calls", "calls follow an answer: set closed_loop: true beside them")
        own = Settings(settings.get("tool_calls"), settings.path("tool_calls"), KEYS)
        return cls(
            own.number("share", 0, 1, 1.0),
            distribution(own, "calls", "tokens", base_dir, seed),
            distribution(own, "new_tokens", "tokens", base_dir, seed),
            distribution(own, "output_tokens", "tokens", base_dir, seed),
            distribution(own, "wait_s", "seconds", base_dir, seed, default=0.0),
        )


class CallDraws:
    """The calls of successive blocks of sessions."""

    def __init__(self, calls: ToolCalls, seed: int) -> None:
        self.calls = calls
        self.rngs = {name: stream(seed, f"tool call {name}") for name in (*KEYS,)}

    def among(self, batch: RequestBatch) -> RequestBatch:
        """Whole sessions, one request a turn, with their calls between the turns; turns are numbered anew."""
        n = len(batch)
        same = np.array([one == other for one, other in zip(batch.sessions, [*batch.sessions[1:], None], strict=True)])
        follows = self.rngs["share"].random(n) < self.calls.share
        drawn = np.minimum(self.calls.calls.tokens(self.rngs["calls"], n), MAX_CALLS)
        counts = np.where(same & follows, drawn, 0)
        fields = {name: getattr(batch, name) for name in RequestBatch.__slots__}
        turns = RequestBatch(**(fields | {"turn": 2 * batch.turn}))
        rows: I64 = np.repeat(np.arange(n, dtype=np.int64), counts)
        if not len(rows):
            return turns
        place = np.concatenate([np.arange(n), rows + 0.5])
        return concat([turns, self._calls(batch, rows, counts)]).take(place.argsort(kind="stable"))

    def _calls(self, batch: RequestBatch, rows: I64, counts: I64) -> RequestBatch:
        """The calls after the answers to ``rows``."""
        number = ranges(np.zeros_like(counts), counts)
        new = self.calls.new_tokens.tokens(self.rngs["new_tokens"], len(rows))
        out = self.calls.output_tokens.tokens(self.rngs["output_tokens"], len(rows))
        wait = self.calls.wait_s.draw(self.rngs["wait_s"], len(rows))
        read = np.diff(batch.span_offsets)[rows]
        first = offsets(read + 2)
        content = np.empty(first[-1], dtype=np.uint64)
        tokens = np.empty(first[-1], dtype=np.int64)
        own = np.zeros(first[-1], dtype=np.bool_)
        own[first[1:] - 1] = own[first[1:] - 2] = True
        spans = ranges(batch.span_offsets[rows], read)
        content[~own], tokens[~own] = batch.span_content[spans], batch.span_tokens[spans]
        answer = batch.span_content[batch.span_offsets[rows + 1] - 1]
        for side, lengths in enumerate((new, out)):
            where = first[1:] - 2 + side
            content[where], tokens[where] = named_pair(answer, 2 * number + side, SESSION), lengths
        names = [batch.sessions[row] for row in rows.tolist()]
        ids = [f"{batch.ids[row]}.{call}" for row, call in zip(rows.tolist(), number.tolist(), strict=True)]
        return from_spans(
            ids,
            batch.arrival_ns[rows],
            batch.prompt_tokens[rows] + batch.output_tokens[rows] + new,
            out,
            prompt_spans=read + 1,
            span_counts=read + 2,
            span_content=content,
            span_tokens=tokens,
            sessions=names,
            turn=2 * batch.turn[rows] + 1,
            think_ns=np.rint(wait * 1e9).astype(np.int64),
        )
