"""Speculative decoding as flags say it: a mapping, or its three parts, by method or by the draft model's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sim.errors import InputError, RefusalError

_PARTS: Final = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
_TAKEN: Final = {
    "num_speculative_tokens": "num_speculative_tokens",
    "disable_eagle_block_drop": "disable_eagle_block_drop",
    "synthetic_acceptance_rates": "synthetic_acceptance_rates",
    "synthetic_acceptance_length": "synthetic_acceptance_length",
}


def draft_keys(values: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """The engine's keys for the draft; empty where there is none (vllm 0.33.0 engine/arg_utils.py:2100).

    >>> draft_keys({"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}, {})
    {'speculative_method': 'mtp', 'num_speculative_tokens': 1}
    """
    config = _config(values, places)
    if not config:
        return {}
    where = places.get("speculative_config", "--speculative-config")
    method = _method(config, where)
    if config.get("num_speculative_tokens") is None:
        raise InputError("num_speculative_tokens is missing; give it", where=where)
    keys = {ours: config[theirs] for theirs, ours in _TAKEN.items() if theirs in config}
    return {"speculative_method": method, **keys}


def _config(values: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    given = values.get("speculative_config") or {}
    if not isinstance(given, Mapping):
        raise InputError(f"expected a mapping in JSON, got {given!r}", where=places["speculative_config"])
    config = {str(key).replace("-", "_"): value for key, value in given.items()}
    for flag, key in _PARTS.items():
        if values.get(flag) is None:
            continue
        if key in config:
            raise RefusalError(f"cannot stand beside {key!r} in --speculative-config: vLLM refuses", where=places[flag])
        config[key] = values[flag]
    return config


def _method(config: Mapping[str, Any], where: str) -> str:
    """The method given, or told by the draft's name (vllm 0.33.0 config/speculative.py:1134)."""
    method, draft = config.get("method"), str(config.get("model") or "").lower()
    if method is None:
        if not draft:
            raise InputError("names neither a method nor a draft model; give one", where=where)
        known = ("eagle3", "eagle", "dflash", "mtp", "ngram")
        return next((name for name in known if name in draft.replace("-", "")), "draft_model")
    method = str(method)
    return "mtp" if method.endswith("_mtp") else method
