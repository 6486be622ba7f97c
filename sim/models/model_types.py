"""The ``model_type`` of a config.json: those that something at vLLM's side can read, all others are refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from sim.errors import RefusalError, nearest
from sim.models.hf import HFConfig

_TYPES = Path(__file__).with_name("model_types.txt")

_UNTYPED: Final = frozenset({"LongcatFlashForCausalLM"})
"""Architectures whose published configs name no model type (vllm 0.33.0 transformers_utils/config.py:188)."""


@cache
def model_types() -> frozenset[str]:
    """Every model type that has a config class, in transformers, in vLLM or beside published weights."""
    lines = _TYPES.read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def check_model_type(config: HFConfig) -> None:
    """Raise InputError where there is none, RefusalError for one that nothing reads; with the nearest that is known.

    A config that names a class of its own in ``auto_map`` is read by that class. ``AutoConfig.from_pretrained`` of
    transformers 5.20; vllm 0.33.0 transformers_utils/config.py:400-450.

    >>> from sim.models.hf import read_hf_config
    >>> check_model_type(read_hf_config({"architectures": ["LlamaForCausalLM"], "model_type": "lama"}))
    Traceback (most recent call last):
    ...
    sim.errors.RefusalError: config.json: model_type: 'lama' is unknown to vLLM and transformers (nearest: 'llama'), ...
    """
    top = config.top
    if not top.model_type:
        if config.architectures[0] in _UNTYPED:
            return
        raise top.missing("model_type")
    own = top.get("auto_map")
    if top.model_type in model_types() or (isinstance(own, Mapping) and "AutoConfig" in own):
        return
    hint = nearest(top.model_type, sorted(model_types()))
    meant = f" (nearest: '{hint}')" if hint else ""
    raise RefusalError(
        f"model_type: '{top.model_type[:60]}' is unknown to vLLM and transformers{meant}, and no auto_map names a class"
        " for it: vLLM refuses to start",
        where=top.where,
    )
