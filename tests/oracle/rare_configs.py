"""Random configurations of what few models have: an encoder, windows that are replayed, ranks that share out tokens.

Each needs a configuration of its own sort, and would be met too seldom among all kinds of layers.
"""

from __future__ import annotations

import numpy as np

from tests.oracle.case_configs import Config, random_flags
from tests.oracle.case_requests import Request
from tests.oracle.kind_configs import LayerDraw, fitted, lengths

ENCODER_MIXTURES: tuple[tuple[str, ...], ...] = (
    ("full_attention", "cross_attention"),
    ("full_attention", "cross_attention"),
    ("full_attention", "sliding_window", "cross_attention"),
    ("cross_attention",),
)


def rare_config(rng: np.random.Generator) -> Config:
    """One configuration; every choice is drawn from ``rng``."""
    block_size, max_model_len = lengths(rng)
    config = random_flags(rng, block_size, max_model_len)
    return encoder_config(rng, config)


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
    draw = LayerDraw(rng, config)
    config["kv_cache_layout"] = "BLHNC" if draw.varied and rng.random() < 0.7 else "LBNHC"
    config["layers"] = draw.layers(mixtures[int(rng.integers(len(mixtures)))])
    count = sum(entry["count"] for entry in config["layers"])
    config["pipeline_parallel_size"] = min(config["pipeline_parallel_size"], count)
    return fitted(rng, config)


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
