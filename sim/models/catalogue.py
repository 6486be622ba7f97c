"""The models known by name, read from ``catalogue.yaml``: published config fields, each entry with its origin."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sim.errors import InputError, nearest
from sim.models.from_config import model_from_config
from sim.models.model import Model
from sim.models.sources import find_config, read_config

_CATALOGUE = Path(__file__).with_name("catalogue.yaml")


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Every entry of the catalogue by name, in the order of the file.

    ``checkpoint``, ``architecture``, ``config`` (of the text model) and ``origin``; of composite models what is outside
    the text model, and where weights are published and not counted, ``params``.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast, where it was built
    entries: dict[str, dict[str, Any]] = yaml.load(_CATALOGUE.read_text(encoding="utf-8"), Loader=loader)
    return entries


def model_names() -> list[str]:
    """The names ``load_model`` knows, in the order of the catalogue."""
    return list(catalogue())


def load_model(name: str, *, where: str | None = None, allow_download: bool = False) -> Model:
    """The model called ``name`` in the catalogue or on the hub, or whose config.json lies at ``name``.

    A file, a folder, or an id of the hub that lies in its local cache (:mod:`sim.models.sources`), which
    ``allow_download`` fills. Raises InputError for an unknown one, with the nearest name.

    >>> load_model("gemma-3-27b").layer_counts
    {'sliding_window 1024': 52, 'full': 10}
    """
    entries = catalogue()
    name = next((known for known, entry in entries.items() if entry["checkpoint"] == name), name)
    if name not in entries:
        path = find_config(name, allow_download=allow_download)
        if path is not None:
            return model_from_config(read_config(path), name=_short(name), where=str(path))
        hint = nearest(name.lower(), entries)
        meant = f" (nearest: '{hint}')" if hint else ""
        raise InputError(
            f"unknown model '{name}'{meant}; 'hybridkv models' lists {len(entries)}, a path to a config.json will do",
            where=where,
        )
    return _model(name, entries[name])


def _short(name: str) -> str:
    """The last part of a path or an id that says something."""
    path = Path(name)
    return path.resolve().parent.name if path.name == "config.json" else path.resolve().name.removesuffix(".json")


def config_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The config.json of an entry, as far as it is known."""
    architectures = {"architectures": [entry["architecture"]]}
    if "composite" in entry:
        return {**architectures, **entry["composite"], "text_config": entry["config"]}
    return {**architectures, **entry["config"]}


def _model(name: str, entry: dict[str, Any]) -> Model:
    model = model_from_config(config_of(entry), name=name, where=f"catalogue: {name}")
    bits = entry.get("weight_bits", 16)
    model = replace(
        model,
        weight_bytes_per_param=bits / 8,
        expert_bytes_per_param=entry.get("expert_weight_bits", bits) / 8,
        origin={**model.origin, "config": entry["origin"]},
    )
    if "params" not in entry:
        return model
    params = entry["params"]
    sizes = {"params_total": params["total"], "params_active": params["active"], "expert_params": params["expert"]}
    return replace(model, **sizes, origin={**model.origin, "params_total": "published"})
