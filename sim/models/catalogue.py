"""The models known by name, read from ``catalogue.yaml``: published config fields, each with its origin."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sim.errors import InputError, nearest
from sim.models.families import layers_of
from sim.models.model import Model
from sim.models.params import ParamCounts, count_params

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""What the number of routed experts is called, family by family."""

_CATALOGUE = Path(__file__).with_name("catalogue.yaml")


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Every entry of the catalogue by name, in the order of the file.

    ``checkpoint``, ``config`` and ``origin``; where weights are published and not counted, ``params`` too.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast, where it was built
    entries: dict[str, dict[str, Any]] = yaml.load(_CATALOGUE.read_text(encoding="utf-8"), Loader=loader)
    return entries


def model_names() -> list[str]:
    """The names ``load_model`` knows, in the order of the catalogue."""
    return list(catalogue())


def load_model(name: str, *, where: str | None = None) -> Model:
    """The model called ``name``; raises InputError for an unknown one, with the nearest name.

    >>> load_model("gemma-3-27b").layer_counts
    {'sliding_window 1024': 52, 'full': 10}
    """
    entries = catalogue()
    if name not in entries:
        hint = nearest(name.lower(), entries)
        meant = f" (nearest: '{hint}')" if hint else ""
        raise InputError(f"unknown model '{name}'{meant}; known: {', '.join(entries)}", where=where)
    return _model(name, entries[name])


def _model(name: str, entry: dict[str, Any]) -> Model:
    config, origin = entry["config"], entry["origin"]
    params = ParamCounts(**entry["params"]) if "params" in entry else count_params(config)
    return Model(
        name=name,
        layers=layers_of(config),
        max_model_len=config["max_position_embeddings"],
        dtype=config["torch_dtype"],
        hidden_size=config["hidden_size"],
        num_attention_heads=config["num_attention_heads"],
        params_total=params.total,
        params_active=params.active,
        expert_params=params.expert,
        num_experts=next((config[key] for key in _EXPERTS if key in config), 0),
        experts_per_token=config.get("num_experts_per_tok", 0),
        weight_bytes_per_param=config.get("weight_bits", 16) / 8,
        expert_bytes_per_param=config.get("expert_weight_bits", config.get("weight_bits", 16)) / 8,
        num_layers=config["num_hidden_layers"],
        max_source_positions=config.get("max_source_positions", 0),
        kernel_block_size=config.get("kernel_block_size", 1),
        kv_cache_layout=config.get("kv_cache_layout"),
        origin={field: origin.get(field, origin["default"]) for field in config},
    )
