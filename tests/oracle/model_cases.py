"""Random configs of every family: models of the catalogue with other depths, heads, windows, states and flags."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sim.models.catalogue import catalogue, config_of
from sim.models.hf import config_defaults

LEFT_OUT = (
    *("llama-3.3-nemotron-super-49b", "mimo-7b", "internlm2-7b"),  # their config classes come with the checkpoint
    *("apertus-8b", "kimi-k3"),  # constructing them reads values, or needs the driver of a GPU
    *("devstral-small-2-24b", "minimax-m3", "minicpm3-4b"),  # need more of the config than the catalogue has
)

PER_LAYER = (
    *("layer_types", "mlp_layer_types", "no_rope_layers", "hybrid_layer_pattern", "moe_layer_freq", "compress_ratios"),
    *("indexer_types", "layers_block_type"),
)
ROPE = {
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
}
"""What the catalogue leaves out, as no cache depends on it, and vLLM's classes need."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "sliding_window": (128, 512, 1000, 4096),
    "sliding_window_pattern": (2, 3, 4, 5),
    "full_attention_interval": (2, 3, 4),
    "mamba_d_state": (16, 64, 128, 256),
    "ssm_state_size": (16, 64, 128, 256),
    "attention_chunk_size": (1024, 4096),
    "index_topk_freq": (1, 2, 3),
    "max_position_embeddings": (2048, 16384, 65536),
}

SKIPPED = (["sliding_window"], ["0"], ["3"], ["0", "1", "2"], ["sliding_window", "5"], ["1", "3", "5", "7"])
MEDIA: tuple[dict[str, Any], ...] = (
    {"language_model_only": True},
    {"limit_mm_per_prompt": {"image": 0, "video": 0}},
    {"limit_mm_per_prompt": {"video": {"count": 1, "num_frames": 40}}},
    {"language_model_only": True, "enable_mm_embeds": True},
    {"disable_chunked_mm_input": True},
    {"max_num_batched_tokens": 2048},
)


def model_cases(seed: int, count: int, folder: Path | None = None) -> Iterator[dict[str, Any]]:
    """``count`` cases: ``name`` of the model, ``config``, ``flags``; the models of the catalogue or ``folder`` in turn.

    The models as they are come first, of a folder without flags.
    """
    configs = _configs(folder)
    names = list(configs)
    for number in range(count):
        name = names[number % len(names)]
        rng = np.random.default_rng([seed, number])
        config = copy.deepcopy(configs[name])
        text = config.get("text_config", config)
        if number >= len(names):  # the models as they are come first
            _vary(rng, text)
        _complete(config, text)
        flags = {} if folder and number < len(names) else _flags(rng, name)
        yield {"name": f"{name}, seed {seed}, number {number}", "config": config, "flags": flags}


def _configs(folder: Path | None) -> dict[str, dict[str, Any]]:
    """Configs by name."""
    if folder is None:
        return {name: config_of(entry) for name, entry in catalogue().items() if name not in LEFT_OUT}
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def _vary(rng: np.random.Generator, text: dict[str, Any]) -> None:
    """Other sizes, of the fields that the config has."""
    known = config_defaults().get(text.get("model_type", ""), {}).get("defaults", {})
    depth = int(rng.choice([4, 6, 7, 9, 12]))
    if "hybrid_override_pattern" in text:
        start = int(rng.integers(0, len(text["hybrid_override_pattern"]) - depth))
        text["hybrid_override_pattern"] = text["hybrid_override_pattern"][start : start + depth]
    shortened = [key for key in PER_LAYER if isinstance(text.get(key), list)]
    for key in shortened:
        text[key] = text[key][: max(depth, 8)]
    text["num_layers" if text.get("model_type") == "longcat_flash" else "num_hidden_layers"] = (
        max(depth, 8) if shortened else depth
    )
    if text.get("num_kv_shared_layers"):
        text["num_kv_shared_layers"] = int(rng.integers(0, 3))
    if isinstance(text.get("head_dim"), int) and "num_key_value_heads" in text and rng.random() < 0.6:
        text["num_key_value_heads"] = int(rng.choice([1, 2, 4, 8]))
        text["num_attention_heads"] = text["num_key_value_heads"] * int(rng.choice([1, 2, 4, 8]))
    for key, values in CHOICES.items():
        value = text.get(key, known.get(key))
        if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.4:
            text[key] = int(rng.choice(values))
    if text.get("linear_num_value_heads") and text.get("linear_num_key_heads") and rng.random() < 0.5:
        text["linear_num_key_heads"] = int(rng.choice([4, 8, 16]))
        text["linear_num_value_heads"] = text["linear_num_key_heads"] * int(rng.choice([1, 2, 4]))
    text["dtype"] = str(rng.choice(["bfloat16", "bfloat16", "float16", "float32"]))


def _complete(config: dict[str, Any], text: dict[str, Any]) -> None:
    """Details, most of them rotary, that no cache depends on."""
    for key in ("rope_scaling", "rope_parameters"):
        rope = text.get(key)
        if isinstance(rope, dict):
            kind = rope.get("rope_type", rope.get("type"))
            text[key] = {**ROPE.get(str(kind), {}), **rope}
            if kind in ("longrope", "su"):
                size = text.get("qk_rope_head_dim") or text.get("head_dim")
                size = size or text["hidden_size"] // text["num_attention_heads"]
                size = int(size * text.get("partial_rotary_factor", 1.0))
                text[key] |= {"long_factor": [1.0] * (size // 2), "short_factor": [1.0] * (size // 2)}
                text[key] |= {"long_mscale": 1.0, "short_mscale": 1.0}
    if text.get("model_type") == "kimi_linear":
        text["mla_use_nope"] = True


def _flags(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """Flags that specs depend on."""
    flags: dict[str, Any] = {}
    chance = rng.random()
    if chance < 0.27:
        flags["kv_cache_dtype"] = "fp8" if chance < 0.17 else "int8_per_token_head" if chance < 0.23 else "nvfp4"
        if rng.random() < 0.4:
            flags["kv_cache_dtype_skip_layers"] = SKIPPED[int(rng.integers(len(SKIPPED)))]
    if rng.random() < 0.2:
        flags["enable_prefix_caching"] = False
    if rng.random() < 0.15:
        flags["block_size"] = int(rng.choice([32, 64, 128]))
    if rng.random() < 0.1:
        flags["mamba_ssm_cache_dtype"] = str(rng.choice(["float32", "bfloat16"]))
    if rng.random() < 0.4:
        flags["tensor_parallel_size"] = int(rng.choice([2, 4]))
    if rng.random() < 0.15:
        flags |= MEDIA[int(rng.integers(len(MEDIA)))]
    return flags
