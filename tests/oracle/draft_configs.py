"""Random configurations with drafts over every kind of layer: EAGLE, MTP of several modules, draft models, n-grams.

A configuration of ``kind_configs.py``, at times of ``rare_configs.py``, gets a method, drafts, layers of a draft model
and rates of acceptance, and a new pool, since states of drafts and slots looked ahead take blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.case_configs import Config
from tests.oracle.case_layers import Entry
from tests.oracle.kind_configs import fitted, kind_config
from tests.oracle.rare_configs import SORTS, rare_config

METHODS = ("eagle", "eagle3", "mtp", "mtp", "ngram", "draft_model", "dflash")
OWN_LAYERS = ("eagle", "eagle3", "mtp", "draft_model", "dflash")
"""Methods whose draft has attention layers."""
READS_HIDDEN_STATES = ("eagle", "eagle3", "mtp", "dflash")
CAN_DRAFT = ("full_attention", "sliding_window", "mla_attention", "sliding_window_mla")


def draft_config(rng: np.random.Generator) -> Config:
    """One configuration; every choice is drawn from ``rng``."""
    config = kind_config(rng) if rng.random() < 0.75 else rare_config(rng, int(rng.integers(len(SORTS))))
    method = METHODS[int(rng.integers(len(METHODS)))]
    drafts = int(rng.choice([1, 2, 3, 4, 5, 7], p=[0.25, 0.2, 0.25, 0.15, 0.1, 0.05]))
    config |= {
        "speculative_method": method,
        "num_speculative_tokens": drafts,
        "num_mtp_modules": int(rng.integers(1, 5)),
        "disable_lookahead_block_hashes": bool(rng.random() < 0.5),
        "disable_eagle_block_drop": bool(rng.random() < 0.08),
        "draft_seed": int(rng.integers(0, 1 << 62)),
        **acceptance(rng, drafts),
    }
    _make_room(rng, config, drafts)
    config["layers"] = [_for_drafts(entry, drafts) for entry in config["layers"]]
    if method in OWN_LAYERS:
        config["layers"] += draft_layers(rng, config["layers"])
    _avoid_what_vllm_cannot(rng, config)
    chunks = any(entry["kind"] == "chunked_local_attention" for entry in config["layers"])
    if chunks and method in READS_HIDDEN_STATES:
        config["disable_hybrid_kv_cache_manager"] = True  # as vLLM does (vllm 0.33.0 config/vllm.py:2235)
    return fitted(rng, config)


def acceptance(rng: np.random.Generator, drafts: int) -> dict[str, Any]:
    """One rate, or vLLM's list of them: never, seldom, often, always."""
    if rng.random() < 0.6:
        return {"acceptance_rate": float(rng.choice([0.0, 0.3, 0.6, 0.85, 1.0]))}
    rates = np.sort(rng.random(drafts))[::-1].round(3).tolist()
    return {"synthetic_acceptance_rates": rates}


def _make_room(rng: np.random.Generator, config: Config, drafts: int) -> None:
    """Mostly leave out what vLLM refuses, or fails at sooner or later."""
    config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"], drafts + 2)
    if config["long_prefill_token_threshold"] and rng.random() < 0.9:
        least = 1 + drafts
        config["long_prefill_token_threshold"] = max(config["long_prefill_token_threshold"], least)
        if least > config["max_model_len"]:
            config["long_prefill_token_threshold"] = 0


def _avoid_what_vllm_cannot(rng: np.random.Generator, config: Config) -> None:
    """Mostly leave out what both sides cannot run: modules without full attention, states exported among drafts."""
    kinds = {entry["kind"] for entry in config["layers"]}
    if not kinds & {"full_attention", "mla_attention", "hidden_state"} and rng.random() < 0.9:
        config["num_mtp_modules"] = 1
    smallest = min(entry["block_size"] for entry in config["layers"])
    if config["num_speculative_tokens"] >= smallest and rng.random() < 0.9:
        for entry in config["layers"]:
            entry.pop("num_prefill_checkpoint_blocks", None)
            entry.pop("prefill_checkpoint_alignment", None)


def _for_drafts(entry: Entry, drafts: int) -> Entry:
    """The layer with a state for each draft, where it has states."""
    return entry | {"num_speculative_blocks": drafts} if entry["kind"] == "mamba" else entry


def draft_layers(rng: np.random.Generator, layers: list[Entry]) -> list[Entry]:
    """One to three layers of a draft model: one of the target's own kinds, or full attention; at times unmarked."""
    able = [entry for entry in layers if entry["kind"] in CAN_DRAFT]
    if not able:
        return []
    shape = able[int(rng.integers(len(able)))]
    if rng.random() < 0.4 and "sliding_window" in shape:
        kind = "full_attention" if shape["kind"] == "sliding_window" else "mla_attention"
        shape = {key: value for key, value in shape.items() if key not in ("sliding_window", "bounded_replay")}
        shape["kind"] = kind
    marked = {"is_draft": True} if rng.random() < 0.85 else {}
    return [shape | {"count": int(rng.integers(1, 4)), **marked}]
