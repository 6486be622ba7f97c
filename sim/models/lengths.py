"""The longest request a model takes and the dtype it is served in, as vLLM derives them from a config.

Rules: vllm 0.33.0 config/model.py:2545-2670 (length) and :2423-2515 (dtype), model_arch_config_convertor.py:375.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sim.models.config import Config
from sim.models.hf import HFConfig

_LENGTH_KEYS: Final = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_target_positions", "max_sequence_length", "max_seq_length", "seq_len"),
)
_NO_LENGTH: Final = 2048
"""What vLLM assumes where a config names no length."""

_ALREADY_SCALED: Final = frozenset(
    {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "telechat3-yarn"}
)
"""Kinds of rotary scaling whose factor is in ``max_position_embeddings`` already."""

_NO_FLOAT16: Final = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
_DTYPES: Final = ("float16", "bfloat16", "float32")


def max_model_len(config: HFConfig) -> int:
    """Tokens of the longest request.

    >>> from sim.models.hf import read_hf_config
    >>> rope = {"rope_type": "linear", "factor": 4.0}
    >>> max_model_len(read_hf_config({"model_type": "x", "max_position_embeddings": 4096, "rope_scaling": rope}))
    16384
    """
    text = config.text
    lengths = [length for key in _LENGTH_KEYS if (length := text.maybe_integer(key, least=1)) is not None]
    length = text.maybe_integer("model_max_length", least=1) or min(lengths, default=_NO_LENGTH)
    scalings = list(_rope_scalings(config.top))
    if any(_rope_type(text, scaling) in ("su", "longrope") for scaling in scalings):
        return config.top.integer("original_max_position_embeddings", length)
    if "gemma3" in config.top.model_type:
        return length
    factor = 1.0
    for scaling in scalings:
        kind = _rope_type(text, scaling)
        if kind not in _ALREADY_SCALED:
            factor = Config("rope_scaling", scaling, where=text.where).number("factor", factor)
    if factor <= 0:
        raise text.wrong("rope_scaling", "a factor above 0", factor)
    return int(length * factor)


def _rope_type(config: Config, scaling: Mapping[str, Any]) -> str:
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if not isinstance(kind, str):
        raise config.wrong("rope_scaling", "a rope_type that is a text", kind)
    return kind


def _rope_scalings(config: Config) -> Iterator[Mapping[str, Any]]:
    """The rotary parameters: one mapping, or one per kind of layer."""
    for key in ("rope_parameters", "rope_scaling"):
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise config.wrong(key, "a mapping", value)
        nested = [part for part in value.values() if isinstance(part, Mapping)]
        yield from nested or [value]
        return


def model_dtype(config: HFConfig, *, encoder_only: bool = False) -> str:
    """The dtype of ``--dtype auto``: what the config names, bfloat16 where it names float32 or nothing.

    Encoders are served in float16 then.

    >>> from sim.models.hf import read_hf_config
    >>> [model_dtype(read_hf_config({"torch_dtype": dtype})) for dtype in ("float16", "float32", None)]
    ['float16', 'bfloat16', 'bfloat16']
    """
    dtype = None
    for part in (config.top, config.text, *(config.top.part(key) for key in ("vision_config", "encoder_config"))):
        dtype = dtype or (None if part is None else part.word("dtype") or part.word("torch_dtype"))
    name = (dtype or "float32").removeprefix("torch.")
    if name not in _DTYPES:
        raise config.top.wrong("dtype", f"one of {', '.join(_DTYPES)}", dtype)
    if name == "float32" or (name == "float16" and config.top.model_type in _NO_FLOAT16):
        return "float16" if encoder_only else "bfloat16"
    return name
