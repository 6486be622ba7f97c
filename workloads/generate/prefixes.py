"""Shared prefixes: system prompts drawn from a pool with Zipf popularity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.columns import MAX_TOKENS
from workloads.content import I64, PREFIX_POOL, U64, named
from workloads.generate.draws import F64, stream
from workloads.settings import Settings

MAX_POOLS = 10**6


@dataclass(frozen=True, slots=True)
class Prefixes:
    """A prompt starts, with chance ``share``, with the first ``tokens`` tokens of one of the pool's texts.

    ``cumulative[k]`` is the chance that a drawn text is one of the first k + 1; text k has weight 1 / (k + 1)^zipf.
    """

    tokens: int
    share: float
    cumulative: F64

    @classmethod
    def from_settings(cls, settings: Settings) -> Prefixes | None:
        """Read ``shared_prefix: {pools, tokens, zipf, share}``; None when it is not there."""
        if "shared_prefix" not in settings:
            return None
        keys = ("pools", "tokens", "zipf", "share")
        own = Settings(settings.get("shared_prefix"), settings.path("shared_prefix"), keys)
        pools = own.integer("pools", 1, MAX_POOLS, 1)
        weights = np.arange(1, pools + 1, dtype=np.float64) ** -own.number("zipf", 0, 10, 0.0)
        cumulative = np.cumsum(weights)
        return cls(own.integer("tokens", 1, MAX_TOKENS), own.number("share", 0, 1, 1.0), cumulative / cumulative[-1])


class PrefixDraws:
    """The prefixes of successive requests or sessions."""

    def __init__(self, prefixes: Prefixes | None, seed: int) -> None:
        self.prefixes = prefixes
        self.share = stream(seed, "prefix share")
        self.text = stream(seed, "prefix text")

    def next(self, n: int) -> tuple[U64, I64]:
        """Content and tokens (0 for none) of the next ``n`` prefixes."""
        if self.prefixes is None:
            return np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.int64)
        places = np.searchsorted(self.prefixes.cumulative, self.text.random(n), side="right")
        places = np.minimum(places, len(self.prefixes.cumulative) - 1).astype(np.int64)
        tokens = np.where(self.share.random(n) < self.prefixes.share, self.prefixes.tokens, 0)
        return named(places, PREFIX_POOL), tokens.astype(np.int64)
