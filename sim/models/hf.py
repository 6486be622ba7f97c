"""A config.json as vLLM reads it: which class of config it is, which part describes the text model, what defaults add.

Rules: vllm 0.33.0 transformers_utils/config.py:342-470 and 1258; transformers 5.20 configuration_utils.py:1499. The
defaults of the config classes stand in ``config_defaults.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError
from sim.models.config import Config

_DEFAULTS = Path(__file__).with_name("config_defaults.json")
_TEXT_PARTS: Final = ("text_config", "llm_config", "language_config", "thinker_config", "text_encoder", "decoder")
"""Where the text model of a composite config may stand."""


@dataclass(frozen=True, slots=True)
class HFConfig:
    """The whole config and the part that describes the text model; for a text model the two are one."""

    top: Config
    text: Config
    architectures: tuple[str, ...]


@cache
def config_defaults() -> dict[str, dict[str, Any]]:
    """Per model type: ``defaults`` and ``aliases`` of fields, and of composite ones the ``text`` part."""
    known: dict[str, dict[str, Any]] = json.loads(_DEFAULTS.read_text(encoding="utf-8"))
    return known


def read_hf_config(raw: Any, where: str = "config.json") -> HFConfig:
    """The config whose JSON is ``raw``; InputError where it is none."""
    if not isinstance(raw, Mapping):
        raise InputError(f"expected a mapping with the fields of a config.json, got {type(raw).__name__}", where=where)
    top = _config(raw, None, where)
    text = _text_part(top, where)
    names = top.words("architectures") or []
    return HFConfig(top, text, tuple(names))


def _config(raw: Mapping[str, Any], fallback: str | None, where: str) -> Config:
    model_type = raw.get("model_type", fallback)
    if model_type is None:
        model_type = ""
    if not isinstance(model_type, str):
        raise InputError(f"model_type: expected a text, got {model_type!r}", where=where)
    known = config_defaults().get(model_type, {})
    return Config(model_type, raw, known.get("defaults", {}), known.get("aliases", {}), where)


def _text_part(config: Config, where: str) -> Config:
    """The text model inside ``config``, or ``config`` itself."""
    known = config_defaults().get(config.model_type, {})
    kind = known.get("text")
    for key in (known["part"],) if "part" in known else _TEXT_PARTS:
        part = config.values.get(key)
        if isinstance(part, Mapping):
            inner = _config(part, kind, f"{where}: {key}")
            if known.get("text_always"):
                inner = replace(inner, defaults={**inner.defaults, **known["text_defaults"]})
            return _text_part(inner, inner.where)
        if part is not None and key == "text_config":
            raise config.wrong(key, "a mapping", part)
    if kind is None:
        return config
    flat = config.values if known.get("flat") else {}
    inner = _config({key: value for key, value in flat.items() if key != "model_type"}, kind, where)
    return Config(kind, inner.values, {**inner.defaults, **known.get("text_defaults", {})}, inner.aliases, where)
