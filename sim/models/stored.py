"""How a checkpoint stores its weights: bytes of one weight of each kind, as its ``quantization_config`` says.

Scales are counted with the weights they belong to: a byte per 16 of NVFP4 and per 32 of MXFP4, two or more per group of
integers. Embeddings and the output head stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from sim.models.config import Config
from sim.models.hf import HFConfig

_PLAIN: Final = 2.0
_FIXED: Final = {"fp8": 1.0, "fbgemm_fp8": 1.0, "mxfp4": 0.53125, "gpt_oss_mxfp4": 0.53125, "mxfp8": 1.03125}
_ALGORITHMS: Final = {"NVFP4": 0.5625, "FP8": 1.0, "FP8_PB_WO": 1.0, "FP8_PER_CHANNEL_PER_TOKEN": 1.0}
_IGNORED: Final = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
_ATTENTION: Final = ("self_attn.q_proj", "self_attn.kv_a_proj_with_mqa", "linear_attn.in_proj_qkv")
_MLP: Final = ("mlp.gate_proj", "mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj")
_EXPERT: Final = ("mlp.experts.0.gate_proj", "block_sparse_moe.experts.0.w1", "mlp.experts")


def stored_bytes(config: HFConfig, *, layers: int, routed: bool) -> tuple[float, float]:
    """``(others, experts)``: bytes of a weight outside of routed experts, embeddings and head, and of routed experts.

    Others are what attention is in a model with ``routed`` experts, what the MLP is in one without; one layer in the
    middle stands for all. 2 bytes where nothing is quantized, or in a way that is not known here.

    >>> from sim.models.hf import read_hf_config
    >>> experts = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    >>> stored_bytes(read_hf_config({"quantization_config": experts}), layers=4, routed=True)
    (2.0, 0.53125)
    """
    given = config.top.part("quantization_config") or config.top.part("compression_config")
    given = given or config.text.part("quantization_config")
    if given is None:
        return _PLAIN, _PLAIN
    inner = given.get("quantization")
    part = Config("quantization", {**given.values, **inner}) if isinstance(inner, Mapping) else given
    middle = f"layers.{layers // 2}"
    names = [f"{middle}.{name}" for name in (_ATTENTION if routed else _MLP)]
    experts = _of_module(part, [f"{middle}.{name}" for name in _EXPERT])
    return _of_module(part, names), _FIXED["mxfp4"] if config.text.get("expert_dtype") == "fp4" else experts


def _of_module(part: Config, names: Sequence[str]) -> float:
    """Bytes of a weight of a module that may be called any of ``names``."""
    ignored = [pattern for key in _IGNORED for pattern in _texts(part.get(key))]
    if any(_matches(pattern, name) for pattern in ignored for name in names):
        return _PLAIN
    groups = part.get("config_groups")
    if isinstance(groups, Mapping):
        return _of_groups([group for group in groups.values() if isinstance(group, Mapping)], names)
    method = str(part.get("quant_method") or "").lower()
    algorithm = str(part.get("quant_algo") or "").upper()
    if algorithm in _ALGORITHMS:
        return _ALGORITHMS[algorithm]
    if method == "bitsandbytes":
        return 0.5625 if part.get("load_in_4bit") else 1.0
    bits = next((value for key in ("bits", "w_bit", "weight_bits") if isinstance(value := part.get(key), int)), None)
    return _FIXED.get(method, _PLAIN) if bits is None else _of_integers(bits, part.get("group_size"))


def _of_groups(groups: Sequence[Mapping[str, Any]], names: Sequence[str]) -> float:
    """The group that names the module, or the one for all linear layers."""
    targets = [list(_texts(group.get("targets"))) for group in groups]
    named = [one for one, of in zip(groups, targets, strict=True) if any(_matches(t, n) for t in of for n in names)]
    chosen = named or [one for one, of in zip(groups, targets, strict=True) if "Linear" in of]
    weights = chosen[0].get("weights") if chosen else None
    bits = weights.get("num_bits") if isinstance(weights, Mapping) else None
    if not isinstance(weights, Mapping) or not isinstance(bits, int):
        return _PLAIN
    if weights.get("type") != "float":
        return _of_integers(bits, weights.get("group_size"))
    group = weights.get("group_size")
    return bits / 8 + (1 / group if isinstance(group, int) and 0 < group < 128 else 0)


def _of_integers(bits: int, group: Any) -> float:
    """Integers with a scale of two bytes, and a zero point as wide as a weight, for each group."""
    overhead = (2 + bits / 8) / group if isinstance(group, int) and group > 0 else 0
    return min(_PLAIN, bits / 8 + overhead)


def _texts(value: Any) -> Iterable[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, Sequence) else []


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern means the module ``name`` (from ``layers`` on), or what it is a part of.

    >>> [_matches(pattern, "layers.3.self_attn.q_proj") for pattern in ("model.layers.3*", "self_attn", "re:.*q_proj$")]
    [True, True, True]
    >>> [_matches(pattern, "layers.3.mlp.gate_proj") for pattern in ("gate", "model.layers.30.*", "lm_head")]
    [False, False, False]
    """
    if pattern.startswith("re:"):
        try:
            return re.search(pattern[3:], f"model.{name}") is not None
        except re.error:
            return False
    _, found, rest = pattern.rpartition("layers.")
    if not found:
        return pattern.strip("*.") in name.split(".")
    wanted = f"layers.{rest}"
    return fnmatchcase(name, wanted) or name.startswith(f"{wanted}.") or fnmatchcase(name, f"{wanted}.*")
