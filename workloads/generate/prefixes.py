"""Shared prefixes: system prompts drawn from a pool with Zipf popularity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.columns import MAX_SECONDS, MAX_TOKENS
from workloads.content import I64, PREFIX_POOL, U64, named
from workloads.errors import WorkloadError
from workloads.generate.draws import F64, stream
from workloads.settings import Settings

MAX_POOLS = 10**6


@dataclass(frozen=True, slots=True)
class Prefixes:
    """A prompt starts, with chance ``share``, with the first ``tokens`` tokens of one of the pool's texts.

    ``cumulative[k]`` is the chance that a drawn text is one of the first k + 1; text k has weight 1 / (k + 1)^zipf. The
    texts grow, as system prompts do: by ``grow_tokens`` every ``grow_every_ns``, and what was there stays the same.
    """

    tokens: int
    share: float
    cumulative: F64
    grow_tokens: int = 0
    grow_every_ns: int = 1

    @classmethod
    def from_settings(cls, settings: Settings) -> Prefixes | None:
        """Read ``shared_prefix: {pools, tokens, zipf, share, grow_tokens, grow_every_s}``; None without it."""
        if "shared_prefix" not in settings:
            return None
        keys = ("pools", "tokens", "zipf", "share", "grow_tokens", "grow_every_s")
        own = Settings(settings.get("shared_prefix"), settings.path("shared_prefix"), keys)
        pools = own.integer("pools", 1, MAX_POOLS, 1)
        weights = np.arange(1, pools + 1, dtype=np.float64) ** -own.number("zipf", 0, 10, 0.0)
        cumulative = np.cumsum(weights)
        grows = "grow_tokens" in own or "grow_every_s" in own
        return cls(
            own.integer("tokens", 1, MAX_TOKENS),
            own.number("share", 0, 1, 1.0),
            cumulative / cumulative[-1],
            own.integer("grow_tokens", 1, MAX_TOKENS) if grows else 0,
            max(round(own.number("grow_every_s", 0, MAX_SECONDS, above=True) * 1e9), 1) if grows else 1,
        )


class PrefixDraws:
    """The prefixes of successive requests or sessions."""

    def __init__(self, prefixes: Prefixes | None, seed: int) -> None:
        self.prefixes = prefixes
        self.share = stream(seed, "prefix share")
        self.text = stream(seed, "prefix text")

    def next(self, times_ns: I64) -> tuple[U64, I64]:
        """Content and tokens (0 for none) of the prefixes of requests, or sessions, that start at these times."""
        n = len(times_ns)
        if self.prefixes is None:
            return np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.int64)
        places = np.searchsorted(self.prefixes.cumulative, self.text.random(n), side="right")
        places = np.minimum(places, len(self.prefixes.cumulative) - 1).astype(np.int64)
        grown = self.prefixes.tokens + self.prefixes.grow_tokens * (times_ns // self.prefixes.grow_every_ns)
        if grown.max(initial=0) > MAX_TOKENS:
            raise WorkloadError("a shared prefix grows beyond 10^9 tokens", where="workload.synthetic.shared_prefix")
        tokens = np.where(self.share.random(n) < self.prefixes.share, grown, 0)
        return named(places, PREFIX_POOL), tokens.astype(np.int64)
