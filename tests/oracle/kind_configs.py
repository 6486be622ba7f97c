"""Random configurations with every kind of layer that runs: chunks, states, latent vectors, hidden states, rings.

Layers are in the planning form (``planning_specs.our_spec``), so that page sizes, state shapes and block sizes can be
anything. The pool and the retention interval follow the project's plan, and vLLM then says whether it starts.
"""

from __future__ import annotations

import math

import numpy as np

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.planning import engine_groups, resolve_block_sizes
from sim.planning.sizing import blocks_per_request
from tests.oracle.case_configs import Config, pool_factor, random_flags
from tests.oracle.case_layers import Entry, keeps_states, named_layers
from tests.oracle.planning_specs import our_spec, random_order

MIXTURES: tuple[tuple[str, ...], ...] = (
    ("full_attention", "sliding_window"),
    ("full_attention", "chunked_local_attention"),
    ("full_attention", "sliding_window", "chunked_local_attention"),
    ("chunked_local_attention",),
    ("full_attention", "mamba"),
    ("full_attention", "mamba"),
    ("full_attention", "sliding_window", "mamba"),
    ("full_attention", "chunked_local_attention", "mamba"),
    ("sliding_window", "mamba"),
    ("full_attention", "mamba", "mamba"),
    ("mamba",),
    ("rswa", "mamba"),
    ("mla_attention", "mamba"),
    ("mla_attention",),
    ("mla_attention", "sliding_window_mla"),
    ("mla_attention", "sliding_window"),
    ("mla_attention", "sliding_window_mla", "circular_buffer"),
    ("mla_attention", "mamba", "circular_buffer"),
    ("full_attention", "hidden_state"),
    ("full_attention", "sliding_window", "hidden_state"),
    ("mla_attention", "hidden_state"),
)
RARE_MIXTURES = (("full_attention", "sink_full_attention"), ("rswa",), ("full_attention", "rswa"))
"""Drawn now and then: vLLM 0.33.0 cannot start with sinks of their own, and both sides refuse."""

RECYCLING = ("sliding_window", "sliding_window_mla", "mamba")
"""Kinds a retention interval acts on."""
TOKEN_BYTES = 512
"""Of one layer and token where all layers have one page size."""
BLOCK_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 32)
LARGE_BLOCK_SIZES = (48, 80, 176, 528, 1056)


def kind_config(rng: np.random.Generator) -> Config:
    """One configuration; every choice is drawn from ``rng``."""
    block_size, max_model_len = lengths(rng)
    config = random_flags(rng, block_size, max_model_len)
    config |= schedule_flags(rng, config)
    mixtures = MIXTURES if rng.random() < 0.97 else RARE_MIXTURES
    mixture = mixtures[int(rng.integers(len(mixtures)))]
    if "mamba" in mixture:
        config["enable_prefix_caching"] = bool(rng.random() < 0.75)
        config["prefix_match_unit"] = _match_unit(rng, block_size) if rng.random() < 0.4 else None
        config["enable_mamba_shared_prefix_checkpoint"] = bool(rng.random() < 0.2)
    draw = LayerDraw(rng, config)
    config["kv_cache_layout"] = "BLHNC" if draw.varied and rng.random() < 0.7 else "LBNHC"
    config["layers"] = draw.layers(mixture)
    if keeps_states(config) and config["enable_prefix_caching"]:
        config["enable_chunked_prefill"] = True  # vLLM insists
    if mixture[1:] in (("sliding_window",), ("chunked_local_attention",)) and rng.random() < 0.1:
        config["disable_hybrid_kv_cache_manager"] = True
    config["pipeline_parallel_size"] = min(config["pipeline_parallel_size"], len(named_layers(config)))
    return fitted(rng, config)


def schedule_flags(rng: np.random.Generator, config: Config) -> Config:
    """Flags of the scheduler that few set."""
    return {
        "max_num_active_seqs": int(rng.integers(1, config["max_num_seqs"] + 1)) if rng.random() < 0.25 else None,
        "long_prefill_token_threshold_adaptive": bool(rng.random() < 0.3),
        "prefill_schedule_interval": int(rng.choice([1, 2, 3, 5, 9], p=[0.6, 0.1, 0.1, 0.1, 0.1])),
    }


def lengths(rng: np.random.Generator) -> tuple[int, int]:
    """Block size and ``max_model_len`` in tokens: mostly small, at times as large as blocks beside states are."""
    if rng.random() < 0.06:
        block_size = int(rng.choice(LARGE_BLOCK_SIZES))
        return block_size, int(block_size * rng.uniform(1.5, 6))
    block_size = int(rng.choice(BLOCK_SIZES))
    return block_size, int(rng.integers(24, 200)) if block_size < 16 else int(rng.integers(64, 400))


def _match_unit(rng: np.random.Generator, block_size: int) -> int:
    """A unit that divides the block size; seldom one that does not, which vLLM refuses."""
    if rng.random() < 0.03:
        return block_size + 1
    return int(rng.choice([unit for unit in range(1, block_size + 1) if block_size % unit == 0]))


def fitted(rng: np.random.Generator, config: Config) -> Config:
    """The configuration with a pool around what one request needs, and a retention interval that may be a stride."""
    needed, scheduler_block = needs(config)
    config["num_gpu_blocks"] = 1 + math.ceil(needed * pool_factor(rng))
    choice = rng.random()
    config["prefix_cache_retention_interval"] = 0 if choice < 0.45 else None
    recycling = any(entry["kind"] in RECYCLING for entry in config["layers"])
    if choice > 0.7 and config["enable_prefix_caching"] and recycling:
        config["prefix_cache_retention_interval"] = scheduler_block * int(rng.integers(1, 6))
    return config


def needs(config: Config) -> tuple[int, int]:
    """Blocks for one request of ``max_model_len``, and tokens of a scheduler block; of a guess where we refuse."""
    try:
        engine = engine_of(config)
        groups = engine_groups({entry["name"]: our_spec(entry) for entry in named_layers(config)}, engine)
        block_sizes = resolve_block_sizes(
            groups,
            enable_prefix_caching=engine.enable_prefix_caching,
            dcp_world_size=engine.decode_context_parallel_size,
        )
        return blocks_per_request(groups, engine, engine.max_model_len), block_sizes[0]
    except InputError:
        return 100, int(config["block_size"])


def engine_of(config: Config) -> EngineConfig:
    """The project's engine flags of a case's configuration; raises what they raise."""
    return EngineConfig(**{key: config[key] for key in EngineConfig.__dataclass_fields__ if key in config})


class LayerDraw:
    """Draws layers; unless ``varied``, all of a case have pages of one size."""

    def __init__(self, rng: np.random.Generator, config: Config) -> None:
        self.rng, self.config = rng, config
        self.block_size: int = config["block_size"]
        self.varied = bool(rng.random() < 0.35)
        self.exports: int | None = None
        """Tokens between states the kernels export from inside a chunk, mostly the same for all; 0 for none."""
        self.one_export = bool(rng.random() < 0.7)

    def layers(self, mixture: tuple[str, ...]) -> list[Entry]:
        """One to a dozen layers of the mixture's kinds, each at least once where there is room, in any order."""
        kinds = [self.spec(kind) for kind in mixture]
        order = [*self.rng.permutation(len(kinds)).tolist(), *random_order(self.rng, len(kinds), self._extra())]
        return [dict(kinds[int(kind)], count=1 + int(self.rng.random() < 0.2)) for kind in order]

    def _extra(self) -> int:
        return int(self.rng.integers(0, 10))

    def spec(self, kind: str) -> Entry:
        """One kind of layer."""
        if kind == "mamba":
            return self.state()
        entry = self.latent(kind) if "mla" in kind or kind == "hidden_state" else self.heads(kind)
        if kind in ("sliding_window", "sliding_window_mla"):
            entry["sliding_window"] = self.width()
        if kind == "chunked_local_attention":
            entry["attention_chunk_size"] = self.width()
        if kind == "rswa":
            entry["rswa_window"] = self.width()
        if kind == "sink_full_attention":
            entry["sink_len"] = entry["block_size"]
        return entry

    def width(self) -> int:
        """A window or chunk in tokens: tiny, near a multiple of the block, anything, or beyond the longest sequence."""
        rng, longest = self.rng, self.config["max_model_len"]
        choice = rng.random()
        if choice < 0.1:
            return int(rng.integers(1, 4))
        if choice < 0.55:
            return max(1, self.block_size * int(rng.integers(1, 6)) + int(rng.choice([0, 0, -1, 1])))
        return int(rng.integers(1, longest + (10 if choice > 0.95 else -longest // 3)))

    def any_block_size(self, chance: float) -> int:
        """The case's block size, or with some chance two or four times it."""
        return self.block_size * int(self.rng.choice([2, 4]) if self.rng.random() < chance else 1)

    def heads(self, kind: str) -> Entry:
        """Keys and values of some heads."""
        heads = int(self.rng.choice([1, 2, 4])) if self.varied else 2
        block_size = self.any_block_size(0.3 if self.varied and kind != "chunked_local_attention" else 0.0)
        shape = {"num_kv_heads": heads, "head_size": 64, "head_size_v": 64, "dtype": "bfloat16"}
        return {"kind": kind, "block_size": block_size, **shape}

    def latent(self, kind: str) -> Entry:
        """One vector per token, or per several."""
        rng = self.rng
        entry: Entry = {"kind": kind, "block_size": self.block_size, "num_kv_heads": 1, "dtype": "bfloat16"}
        entry |= {"head_size": TOKEN_BYTES // 2, "head_size_v": 0}
        if self.varied:
            entry["block_size"] = self.any_block_size(0.3)
            entry["head_size"] = int(rng.choice([64, 128, 256, 576]))
            if "mla" in kind and entry["block_size"] % 4 == 0 and rng.random() < 0.4:
                entry["tokens_per_state"] = int(rng.choice([2, 4]))
            if "mla" in kind and rng.random() < 0.2:
                entry["alignment"] = 576
        if kind == "sliding_window_mla" and rng.random() < 0.03:
            entry["bounded_replay"] = True
        return entry

    def state(self) -> Entry:
        """A state no larger than an attention page, padded to one; with pages of any size, of any size too."""
        rng, config = self.rng, self.config
        caching = config["enable_prefix_caching"]
        page = TOKEN_BYTES * self.block_size
        elements = int(rng.integers(1, page // 4 + 1))
        entry: Entry = {"kind": "mamba", "mamba_cache_mode": "align" if caching else "none"}
        entry |= {"shapes": [[elements], [elements]], "dtypes": ["bfloat16", "bfloat16"], "page_size_padded": page}
        entry["block_size"] = config["max_model_len"]
        if caching:
            entry["block_size"] = self.any_block_size(0.3 if self.varied else 0.0)
        if self.varied and rng.random() < 0.4:
            entry["page_size_padded"] = page * int(rng.choice([2, 4]))
        if rng.random() < 0.5:
            alignments = [1, 1, 1, 2, self.block_size, entry["block_size"]]
            drawn = alignments[int(rng.integers(len(alignments)))]
            self.exports = self.exports if self.exports is not None and self.one_export else drawn
        elif not self.one_export:
            self.exports = 0
        self.exports = self.exports or 0
        if self.exports:
            entry |= {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": self.exports}
            if rng.random() < 0.03:
                entry["prefill_checkpoint_alignment"] = None
        return entry
