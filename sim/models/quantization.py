"""What a checkpoint's quantization says of the KV cache, and of the dtypes the rest may run in.

Rules: vllm 0.33.0 utils/torch_utils.py:443-495 (modelopt), model_executor/layers/attention/attention.py:284 and
transformers_utils/model_arch_config_convertor.py:255 (which method it is).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sim.errors import RefusalError
from sim.models.config import Config
from sim.models.hf import HFConfig

_ALGORITHMS: Final = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "MIXED_PRECISION")
"""What ModelOpt may have done to the weights."""

_BFLOAT16: Final = ("mxfp4", "gpt_oss_mxfp4", "fp_quant", "mxfp8", "modelopt_mxfp8")
_HALVES: Final = (
    *("fp8", "deepseek_v4_fp8", "fbgemm_fp8", "awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq"),
    *("experts_int8", "quark", "moe_wna16", "inc", "humming"),
)
"""Methods whose kernels run in bfloat16 only, and in either half precision."""


def checkpoint_kv_cache_dtype(config: HFConfig) -> str | None:
    """The ``--kv-cache-dtype`` that ``auto`` stands for, None where the checkpoint names none.

    >>> from sim.models.hf import read_hf_config
    >>> scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    >>> checkpoint_kv_cache_dtype(read_hf_config({"quantization_config": scheme}))
    'fp8'
    """
    quantization = _part(config)
    if quantization is None:
        return None
    method = _method(quantization)
    if method.startswith("modelopt"):
        return _modelopt(quantization) if config.top.has("quantization_config") else None
    return "fp8" if method == "compressed-tensors" and quantization.has("kv_cache_scheme") else None


def runs_in(config: HFConfig) -> tuple[str, ...]:
    """The dtypes that the checkpoint's quantization runs in, () where it takes any.

    vllm 0.33.0 config/vllm.py:937 and get_supported_act_dtypes of model_executor/layers/quantization/*.py; the experts
    of Kimi-K3 are read as MXFP4 (model_executor/models/config.py:492).

    >>> from sim.models.hf import read_hf_config
    >>> [runs_in(read_hf_config({"quantization_config": {"quant_method": method}})) for method in ("mxfp4", "fp8")]
    [('bfloat16',), ('bfloat16', 'float16')]
    """
    quantization = _part(config)
    if quantization is None:
        return ()
    packed = "KimiK3" in "".join(config.architectures) and quantization.get("format") == "mxfp4-pack-quantized"
    method = "mxfp4" if packed else _method(quantization)
    if method in _BFLOAT16:
        return ("bfloat16",)
    return ("bfloat16", "float16") if method in _HALVES or method.startswith("modelopt") else ()


def _part(config: HFConfig) -> Config | None:
    quantization = config.top.part("quantization_config") or config.top.part("compression_config")
    return quantization or config.text.part("quantization_config")


def _method(quantization: Config) -> str:
    """What the checkpoint says, or, of an export by ModelOpt with its algorithm named in ``quantization``, that."""
    producer, inner = quantization.get("producer"), quantization.get("quantization")
    named = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    if isinstance(inner, Mapping) and (named or "modelopt_quant_config" in inner) and inner.get("quant_algo"):
        if str(inner["quant_algo"]).upper() not in _ALGORITHMS:
            message = f"ModelOpt's quant_algo {inner['quant_algo']!r} is unknown to vLLM, which refuses to start"
            raise RefusalError(f"{message}; it knows {', '.join(_ALGORITHMS)}", where=quantization.where)
        return "modelopt"
    return (quantization.word("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")


def _modelopt(quantization: Config) -> str | None:
    """``fp8`` is fp8_e4m3 by its full name; what vLLM does not know stays ``auto``."""
    inner = quantization.part("quantization") or quantization
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    scheme = next((part.get(key) for key in keys for part in (inner, quantization) if part.get(key)), None)
    name = _scheme_name(scheme)
    return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(str(name))


def _scheme_name(scheme: Any) -> str | None:
    if isinstance(scheme, str):
        return scheme.lower()
    if not isinstance(scheme, Mapping) or scheme.get("type") != "float":
        return None
    if scheme.get("num_bits") == 4:
        return "nvfp4"
    return "fp8" if scheme.get("num_bits") == 8 and scheme.get("dynamic") is False else None
