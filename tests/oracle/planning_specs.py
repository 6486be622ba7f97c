"""Random layers of every kind, as plain data, and the project's specs made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from sim.specs import (
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KernelBlocks,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
)

Case = dict[str, Any]

CLASSES: dict[str, type[Spec]] = {
    spec.kind: spec
    for spec in (
        FullAttentionSpec,
        SlidingWindowSpec,
        ChunkedLocalAttentionSpec,
        MambaSpec,
        MLAAttentionSpec,
        SlidingWindowMLASpec,
        CrossAttentionSpec,
        SinkFullAttentionSpec,
        RSWASpec,
        CircularBufferSpec,
        HiddenStateCacheSpec,
    )
}
WINDOWS = (1, 2, 7, 15, 16, 17, 32, 33, 64, 100, 128, 1000, 5000)
DTYPES = ("bfloat16", "bfloat16", "bfloat16", "fp8", "float32", "int8_per_token_head", "int4_per_token_head")
MIXTURES = (
    ("full_attention", "sliding_window"),
    ("full_attention", "chunked_local_attention"),
    ("full_attention", "sliding_window", "chunked_local_attention"),
    ("full_attention", "mamba"),
    ("full_attention", "sliding_window", "mamba"),
    ("mla_attention", "mamba"),
    ("mla_attention",),
    ("mla_attention", "sliding_window"),
    ("mla_attention", "sliding_window_mla"),
    ("mla_attention", "sliding_window_mla", "circular_buffer"),
    ("mla_attention", "mamba", "circular_buffer"),
    ("full_attention", "rswa"),
    ("full_attention", "hidden_state"),
    ("full_attention", "sliding_window", "hidden_state"),
    ("mla_attention", "hidden_state"),
    ("full_attention", "cross_attention"),
    ("full_attention", "sink_full_attention"),
    tuple(CLASSES),
)
"""Kinds that are drawn together; the last mixture is all of them."""


def our_spec(entry: Case) -> Spec:
    """The project's spec of one layer of a case."""
    given = {name: value for name, value in entry.items() if name not in ("name", "kind")}
    if "shapes" in given:
        given |= {"shapes": tuple(map(tuple, given["shapes"])), "dtypes": tuple(given["dtypes"])}
    if "states_per_token" in given:
        given["tokens_per_state"] = Fraction(1, given.pop("states_per_token"))
    if "kernel_blocks" in given:
        given["block_stride_alignment"] = KernelBlocks(given.pop("kernel_blocks"))
    made: Callable[..., Spec] = CLASSES[entry["kind"]]
    return made(**given)


def random_layers(rng: np.random.Generator, engine: Case) -> list[Case]:
    """Up to 40 layers of up to four kinds, in a repeating pattern or at random."""
    mixture = MIXTURES[int(rng.integers(len(MIXTURES)))] if rng.random() < 0.75 else MIXTURES[0]
    one_size = rng.random() < 0.6
    block_size = int(rng.choice([1, 4, 8, 16, 32]))
    draw = Draw(rng, engine, block_size, one_size)
    kinds = [draw.spec(str(kind)) for kind in rng.choice(list(mixture), size=int(rng.choice([1, 2, 2, 2, 3, 4])))]
    order = random_order(rng, len(kinds), int(rng.integers(1, 41)))
    layers = [{"name": f"layers.{position}", **kinds[kind]} for position, kind in enumerate(order)]
    if engine.get("speculative_method"):
        for entry in layers[-int(rng.integers(0, 3)) or len(layers) :]:
            entry["is_draft"] = entry["kind"] != "mamba"
    return layers


def random_order(rng: np.random.Generator, num_kinds: int, number: int) -> Sequence[int]:
    """Which of the kinds each of ``number`` layers is."""
    if rng.random() < 0.5:
        pattern = [int(kind) for kind in rng.integers(0, num_kinds, size=int(rng.integers(1, 8)))]
        return [pattern[position % len(pattern)] for position in range(number)]
    weights = rng.dirichlet(np.ones(num_kinds))
    return [int(kind) for kind in rng.choice(num_kinds, size=number, p=weights)]


class Draw:
    """Draws specs; with ``one_size`` all attention layers of a case have one page size."""

    def __init__(self, rng: np.random.Generator, engine: Case, block_size: int, one_size: bool) -> None:
        self.rng = rng
        self.engine = engine
        self.block_size = block_size
        self.one_size = one_size

    def spec(self, kind: str) -> Case:
        """One kind of layer."""
        entry = self.mamba() if kind == "mamba" else self.latent(kind) if "mla" in kind else self.attention(kind)
        if kind in ("sliding_window", "sliding_window_mla"):
            entry["sliding_window"] = int(self.rng.choice(WINDOWS))
        if kind == "full_attention" and self.rng.random() < 0.1:
            entry["sliding_window"] = int(self.rng.choice(WINDOWS))
        if kind == "chunked_local_attention":
            entry["attention_chunk_size"] = int(self.rng.choice([8, 16, 24, 64, 100, 512]))
        if kind == "rswa":
            entry["rswa_window"] = int(self.rng.choice([8, 64]))
        if kind == "sink_full_attention":
            entry["sink_len"] = entry["block_size"]
        replicated = 0.3 if kind in ("full_attention", "mla_attention") else 0.9
        if self.engine["decode_context_parallel_size"] > 1 and kind != "mamba" and self.rng.random() < replicated:
            entry["dcp_sharded"] = False
        if self.rng.random() < 0.05:
            entry["block_stride_alignment"] = int(self.rng.choice([8, 96, 512]))
        elif self.rng.random() < 0.05:
            entry["kernel_blocks"] = int(self.rng.choice([4, 8, 16]))
        return entry

    def attention(self, kind: str) -> Case:
        """Heads of keys and values."""
        rng, one_size = self.rng, self.one_size
        head_size = 64 if one_size else int(rng.choice([64, 64, 96, 128]))
        entry = {
            "kind": kind,
            "block_size": self.block_size if one_size or rng.random() < 0.8 else self.any_block_size(),
            "num_kv_heads": 2 if one_size else int(rng.choice([1, 2, 2, 4])),
            "head_size": head_size,
            "head_size_v": head_size if one_size or rng.random() < 0.8 else int(rng.choice([32, 64, 128])),
            "dtype": "bfloat16" if one_size else str(rng.choice(DTYPES)),
        }
        if kind == "hidden_state":
            entry |= {"num_kv_heads": int(rng.choice([1, 3])), "head_size_v": 0, "dtype": "bfloat16"}
            entry["head_size"] = int(rng.choice([64, 640, 9000]))
        elif kind in ("full_attention", "sliding_window") and rng.random() < 0.05:
            entry["states_per_token"] = int(rng.choice([2, 3]))
        return entry

    def latent(self, kind: str) -> Case:
        """One latent vector per token, or per several; an indexer beside it; pages rounded up."""
        rng = self.rng
        entry: Case = {
            "kind": kind,
            "block_size": self.block_size,
            "num_kv_heads": 1,
            "head_size": 128,
            "dtype": "bfloat16",
        }
        if not self.one_size:
            entry["block_size"] = self.any_block_size() if rng.random() < 0.3 else self.block_size
            entry["head_size"] = int(rng.choice([64, 128, 132, 576, 584]))
            entry["dtype"] = str(rng.choice(["bfloat16", "bfloat16", "uint8", "fp8_ds_mla"]))
            if rng.random() < 0.3 and entry["block_size"] % 4 == 0:
                entry["tokens_per_state"] = int(rng.choice([2, 4]))
            if rng.random() < 0.2:
                entry["alignment"] = int(rng.choice([512, 576]))
        if kind == "mla_attention" and rng.random() < 0.3:
            entry |= {"cache_role": "indexer", "topk_buffer_width": None}
        if kind == "mla_attention" and rng.random() < 0.2:
            entry["is_index_group_leader"] = True
        if kind == "sliding_window_mla" and rng.random() < 0.2:
            entry["bounded_replay"] = True
        return entry

    def mamba(self) -> Case:
        """States smaller and larger than an attention page, sometimes padded to one."""
        rng = self.rng
        caching = self.engine["enable_prefix_caching"]
        entry: Case = {"kind": "mamba", "mamba_cache_mode": "align" if caching else "none"}
        multiple = int(rng.choice([1, 1, 1, 2, 4, 8]))
        entry["block_size"] = self.block_size * multiple if caching else self.engine["max_model_len"]
        entry["shapes"] = [[int(rng.choice([3, 4])), int(rng.choice([8, 64, 100]))], [int(rng.choice([4, 16])), 16, 8]]
        entry["dtypes"] = ["bfloat16", str(rng.choice(["bfloat16", "float32"]))]
        entry["num_speculative_blocks"] = self.engine.get("num_speculative_tokens", 0)
        if rng.random() < 0.3:
            entry["num_prefill_checkpoint_blocks"] = 1
            entry["prefill_checkpoint_alignment"] = int(rng.choice([1, self.block_size]))
        if rng.random() < 0.5:
            entry["page_size_padded"] = 65536
        return entry

    def any_block_size(self) -> int:
        """The case's block size or a small multiple."""
        return self.block_size * int(self.rng.choice([1, 2, 4]))
