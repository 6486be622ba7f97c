"""Layer sets of real models, as vLLM's model classes made them, under a little traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracle.case_layers import Entry, has_encoder, keeps_states
from tests.oracle.case_requests import cut, random_requests
from tests.oracle.kind_configs import needs
from tests.oracle.rare_configs import with_encoder_inputs

ROOT = Path(__file__).resolve().parent.parent.parent
SPECS = ROOT.parent / "shared" / "data" / "model_specs.jsonl"
NAMES = (
    "gemma-3-27b-it",
    "gemma-4-31B-it",
    "gpt-oss-120b",
    "Llama-4-Scout-17B-16E-Instruct",
    "Qwen3-Next-80B-A3B",
    "Qwen3.5-27B",
    "Nemotron-H-56B-Base-8K",
    "Kimi-Linear-48B-A3B",
    "LFM2-1.2B",
    "DeepSeek-V3.2",
    "DeepSeek-V4-Flash",
    "whisper-large-v3",
)
_EAGLE = {"speculative_method": "eagle3", "num_speculative_tokens": 3, "acceptance_rate": 0.7}
DRAFTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt-oss-120b", _EAGLE),
    ("gpt-oss-120b", _EAGLE | {"disable_lookahead_block_hashes": True}),
    ("Qwen3-Next-80B-A3B", {"speculative_method": "mtp", "num_speculative_tokens": 2, "acceptance_rate": 0.8}),
)
"""Models that are run with drafts too: one more full attention layer, grouped with theirs; states for every draft."""
KINDS = {
    "FullAttentionSpec": "full_attention",
    "SlidingWindowSpec": "sliding_window",
    "ChunkedLocalAttentionSpec": "chunked_local_attention",
    "MambaSpec": "mamba",
    "MLAAttentionSpec": "mla_attention",
    "SlidingWindowMLASpec": "sliding_window_mla",
    "CrossAttentionSpec": "cross_attention",
}
TAKEN = (
    *("block_size", "num_kv_heads", "head_size", "head_size_v", "dtype", "sliding_window", "attention_chunk_size"),
    *("alignment", "tokens_per_state", "topk_buffer_width", "is_index_group_leader", "page_size_padded"),
)
STATE_TAKEN = (
    *("block_size", "shapes", "dtypes", "page_size_padded", "mamba_cache_mode", "num_speculative_blocks"),
    *("num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment"),
)

MOST_REQUESTS = 20
MOST_OUTPUT = 40
WHISPER_POSITIONS = 1500
"""Tokens of every input to Whisper's encoder: ``max_source_positions``, which audio is padded to."""
STATE_WINDOWS = (('["mla", "per_state=4"]', '["swa_mla", 8]'), ('["mla", "per_state=128"]', '["swa_mla", 128]'))
"""Tags in a row of which the second means its last spec: compressor states, which share a window with others."""


def real_cases(seed: int) -> Iterator[dict[str, Any]]:
    """Each model's layers twice, with blocks for one long request and for several; nothing where the file is not."""
    if not SPECS.exists():
        return
    with SPECS.open() as lines:
        rows = {row["name"]: row for row in map(json.loads, lines) if row["name"] in NAMES}
    for index, name in enumerate(NAMES):
        for times in (1.2, 3.0):
            yield _case(np.random.default_rng([seed, 55, index, int(times)]), rows[name], times, {})
    for index, (name, drafts) in enumerate(DRAFTS):
        for times in (1.2, 3.0):
            yield _case(np.random.default_rng([seed, 56, index, int(times)]), rows[name], times, drafts)


def _case(rng: np.random.Generator, row: dict[str, Any], times: float, drafts: dict[str, Any]) -> dict[str, Any]:
    """One model: requests of a few blocks, chunks of about one; with flags of drafts, if any."""
    layers = layers_with_drafts(layers_of(row), drafts)
    block = max(spec["block_size"] for spec in row["specs"])
    longest = max(1024, 5 * block)
    config: dict[str, Any] = {
        "layers": layers,
        "block_size": min(spec["block_size"] for spec in row["specs"]),
        "max_model_len": longest,
        "max_num_batched_tokens": max(256, block + block // 3),
        "max_num_seqs": 8,
        "enable_prefix_caching": row["prefix_caching"],
        "prefix_cache_retention_interval": 0 if times < 2 or not keeps_states({"layers": layers}) else None,
        "async_scheduling": times < 2,
        "kv_cache_layout": row["layout"],
        "step_seconds": 0.01,
        **drafts,
    }
    if has_encoder(config):
        config |= {"max_source_positions": WHISPER_POSITIONS, "max_num_batched_tokens": 2 * WHISPER_POSITIONS + 100}
    config["num_gpu_blocks"] = 1 + int(times * needs(config)[0])
    requests = [_brief(request) for request in random_requests(rng, config)[:MOST_REQUESTS]]
    return {
        "name": f"{row['name']}-{times:g}{'-drafts' if drafts else ''}",
        "config": config,
        "requests": with_encoder_inputs(rng, config, requests),
        "sample_every": 50,
        "max_steps": 3000,
    }


def _brief(request: dict[str, Any]) -> dict[str, Any]:
    """The request with an output of some dozen tokens, so that prompts are what steps are spent on."""
    count = min(request["output_tokens"], MOST_OUTPUT)
    output = cut(request["output"], count) if request["output"] else None
    return request | {"output": output, "output_tokens": count, "max_tokens": min(request["max_tokens"], count + 10)}


def layers_of(row: dict[str, Any]) -> list[Entry]:
    """The layers of a row of the file in the planning form, in construction order."""
    by_tag: dict[str, list[Entry]] = {}
    for spec in row["specs"]:
        by_tag.setdefault(json.dumps(spec["tag"]), []).append(_entry(spec))
    runs = row["layers_rle"]
    if isinstance(runs, dict):
        runs = [*runs["repeat"] * runs["times"], *runs["rest"]]
    layers, before = [], ""
    for *tag, count in runs:
        name = json.dumps(tag)
        layers.append(dict(by_tag[name][-1 if (before, name) in STATE_WINDOWS else 0], count=count))
        before = name
    return layers


def layers_with_drafts(layers: list[Entry], drafts: dict[str, Any]) -> list[Entry]:
    """The layers with a state for every draft, and a draft layer like the last of full attention; or as they are."""
    if not drafts:
        return layers
    own = [
        entry | {"num_speculative_blocks": drafts["num_speculative_tokens"]} if entry["kind"] == "mamba" else entry
        for entry in layers
    ]
    full = [entry for entry in layers if entry["kind"] == "full_attention"]
    return [*own, full[-1] | {"count": 1, "is_draft": True}]


def _entry(spec: dict[str, Any]) -> Entry:
    """One spec of the file in the planning form; rows of 584 bytes only vLLM's own class knows are left to padding."""
    kind = KINDS[spec["kind"]]
    entry: Entry = {"kind": kind} | {
        key: spec[key] for key in (STATE_TAKEN if kind == "mamba" else TAKEN) if key in spec
    }
    if entry.get("dtype") == "uint8" and spec.get("state_content_bytes"):
        entry["head_size"] = spec["state_content_bytes"]
    if spec.get("cache_role") == "INDEXER":
        entry["cache_role"] = "indexer"
    stride = str(spec.get("block_stride_alignment", ""))
    if stride.startswith("MultipleOf"):
        entry["kernel_blocks"] = int(stride.removeprefix("MultipleOf(").removesuffix(")"))
    elif stride:
        entry["block_stride_alignment"] = int(stride)
    return entry
