"""What a checkpoint's quantization says of the KV cache.

Rules: vllm 0.33.0 utils/torch_utils.py:443-495 (modelopt), model_executor/layers/attention/attention.py:284 and
transformers_utils/model_arch_config_convertor.py:255 (which method it is).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import InputError
from sim.models.config import Config
from sim.models.hf import HFConfig


def checkpoint_kv_cache_dtype(config: HFConfig) -> str | None:
    """The ``--kv-cache-dtype`` that ``auto`` stands for, None where the checkpoint names none.

    >>> from sim.models.hf import read_hf_config
    >>> scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    >>> checkpoint_kv_cache_dtype(read_hf_config({"quantization_config": scheme}))
    'fp8'
    """
    quantization = config.top.part("quantization_config") or config.top.part("compression_config")
    quantization = quantization or config.text.part("quantization_config")
    if quantization is None:
        return None
    if _method(quantization).startswith("modelopt"):
        return _modelopt(quantization)
    return "fp8" if quantization.has("kv_cache_scheme") else None


def _method(quantization: Config) -> str:
    producer, inner = quantization.get("producer"), quantization.get("quantization")
    named = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    if named or (isinstance(inner, Mapping) and "modelopt_quant_config" in inner):
        return "modelopt"
    return quantization.word("quant_method") or ""


def _modelopt(quantization: Config) -> str | None:
    """``fp8`` is fp8_e4m3 by its full name; what vLLM does not know stays ``auto``."""
    inner = quantization.part("quantization") or quantization
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    scheme = next((part.get(key) for key in keys for part in (inner, quantization) if part.get(key)), None)
    name = _scheme_name(scheme)
    if name == "nvfp4":
        raise InputError("an NVFP4 KV cache is not modelled; give --kv-cache-dtype", where=quantization.where)
    return "fp8_e4m3" if name == "fp8" else None


def _scheme_name(scheme: Any) -> str | None:
    if isinstance(scheme, str):
        return scheme.lower()
    if not isinstance(scheme, Mapping) or scheme.get("type") != "float":
        return None
    if scheme.get("num_bits") == 4:
        return "nvfp4"
    return "fp8" if scheme.get("num_bits") == 8 and scheme.get("dynamic") is False else None
