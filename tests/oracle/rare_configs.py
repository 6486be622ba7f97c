"""Random configurations of what few models have: an encoder, windows that are replayed, ranks that share out tokens.

Each needs a configuration of its own sort, and would be met too seldom among all kinds of layers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.oracle.case_configs import Config, random_flags
from tests.oracle.case_layers import Entry, keeps_states
from tests.oracle.case_requests import Request
from tests.oracle.kind_configs import LayerDraw, fitted, lengths, schedule_flags

REPLAYED = "replayed window"
"""A window over latent vectors that takes no part in prefix caching."""
ENCODER_MIXTURES: tuple[tuple[str, ...], ...] = (
    ("full_attention", "cross_attention"),
    ("full_attention", "cross_attention"),
    ("full_attention", "sliding_window", "cross_attention"),
    ("cross_attention",),
)


REPLAY_MIXTURES: tuple[tuple[str, ...], ...] = (
    ("mla_attention", REPLAYED),
    ("mla_attention", REPLAYED, "sliding_window_mla"),
    ("mla_attention", REPLAYED, "circular_buffer"),
    ("full_attention", REPLAYED, "sliding_window"),
    ("mla_attention", REPLAYED, "mamba"),
    ("sliding_window_mla", REPLAYED),
    (REPLAYED,),
)


SHARED_OUT_MIXTURES: tuple[tuple[str, ...], ...] = (
    ("full_attention",),
    ("mla_attention",),
    ("full_attention", "sliding_window"),
    ("full_attention", "sliding_window", "sliding_window"),
    ("mla_attention", "sliding_window_mla"),
    ("full_attention", "full_attention"),
    ("full_attention", "chunked_local_attention"),
    ("full_attention", "mamba"),
    ("full_attention", "sliding_window", "mamba"),
    ("full_attention", "hidden_state"),
    ("mla_attention", "circular_buffer"),
    ("mla_attention", REPLAYED),
    ("full_attention", "rswa"),
)


def rare_config(rng: np.random.Generator, sort: int) -> Config:
    """One configuration of a sort; every choice is drawn from ``rng``."""
    block_size, max_model_len = lengths(rng)
    return SORTS[sort](rng, random_flags(rng, block_size, max_model_len))


def replay_config(rng: np.random.Generator, config: Config) -> Config:
    """Windows that are replayed after a hit: of one size, rarely of two, which vLLM refuses."""
    config["enable_prefix_caching"] = bool(rng.random() < 0.95)
    config |= schedule_flags(rng, config)
    return drawn(rng, config, REPLAY_MIXTURES)


def shared_out_config(rng: np.random.Generator, config: Config) -> Config:
    """Tokens dealt out to the ranks of decode context parallelism; windows mostly held whole on each of them."""
    ranks = int(rng.choice([2, 3, 4, 8]))
    config |= {"tensor_parallel_size": ranks, "decode_context_parallel_size": ranks}
    config["max_model_len"] *= int(rng.choice([1, 2]))
    config |= schedule_flags(rng, config)
    return drawn(rng, config, SHARED_OUT_MIXTURES)


def encoder_config(rng: np.random.Generator, config: Config) -> Config:
    """A decoder beside an encoder: no prefix caching, and batches that hold a whole prompt; both rarely otherwise."""
    longest = config["max_model_len"]
    config["enable_prefix_caching"] = bool(rng.random() < 0.04)
    config["max_num_batched_tokens"] = int(rng.integers(longest, 3 * longest)) if rng.random() < 0.95 else longest - 1
    config["max_num_seqs"] = min(config["max_num_seqs"], config["max_num_batched_tokens"])
    budget = config["max_num_batched_tokens"]
    config["max_source_positions"] = int(rng.integers(1, budget + 1 + (budget if rng.random() < 0.05 else 0)))
    return drawn(rng, config, ENCODER_MIXTURES)


def drawn(rng: np.random.Generator, config: Config, mixtures: tuple[tuple[str, ...], ...]) -> Config:
    """The configuration with layers of one of the mixtures, and a pool and stages that fit them."""
    draw = RareDraw(rng, config)
    config["kv_cache_layout"] = "BLHNC" if draw.varied and rng.random() < 0.7 else "LBNHC"
    config["layers"] = draw.layers(mixtures[int(rng.integers(len(mixtures)))])
    if keeps_states(config) and config["enable_prefix_caching"]:
        config["enable_chunked_prefill"] = True  # vLLM insists
    count = sum(entry["count"] for entry in config["layers"])
    config["pipeline_parallel_size"] = min(config["pipeline_parallel_size"], count)
    return fitted(rng, config)


class RareDraw(LayerDraw):
    """Draws layers, replayed windows among them, and some that every context-parallel rank holds whole."""

    def spec(self, kind: str) -> Entry:
        """One kind of layer."""
        entry = self._replayed() if kind == REPLAYED else super().spec(kind)
        if self.config.get("decode_context_parallel_size", 1) > 1 and kind != "mamba":
            whole = 0.97 if "full_attention" not in kind and "mla_attention" not in kind else 0.2
            entry["dcp_sharded"] = bool(self.rng.random() >= whole)
        return entry

    def _replayed(self) -> Entry:
        entry = super().spec("sliding_window_mla") | {"bounded_replay": True}
        if self.rng.random() < 0.7:
            entry["sliding_window"] = int(self.rng.integers(1, 3 * self.block_size))
        return entry


def with_encoder_inputs(rng: np.random.Generator, config: Config, requests: list[Request]) -> list[Request]:
    """The requests with an input to the encoder where there is one: mostly the longest, as padded audio is."""
    if "max_source_positions" not in config:
        return requests
    longest = config["max_source_positions"]
    most = config["max_num_batched_tokens"]
    return [request | {"encoder_tokens": _encoder_tokens(rng, longest, most)} for request in requests]


def _encoder_tokens(rng: np.random.Generator, longest: int, most: int) -> int:
    choice = rng.random()
    if choice < 0.6:
        return longest
    return int(rng.integers(1, most + 1)) if choice < 0.98 else most + 1


SORTS: tuple[Callable[[np.random.Generator, Config], Config], ...] = (
    encoder_config,
    replay_config,
    shared_out_config,
)
