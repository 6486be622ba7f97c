"""A saved ``/metrics`` page: ``vllm:cache_config_info`` carries the cache's settings as labels, unrounded."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, Final

from sim.startup_log.facts import LogFacts

_INFO = re.compile(r"^[ \t]*vllm[:_]cache_config_info\{(.*)\}\s+\S+", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_NUMBERS: Final = {
    "num_gpu_blocks": "num_gpu_blocks",
    "kv_cache_size_tokens": "tokens",
    "kv_cache_max_concurrency": "concurrency",
    "kv_cache_memory_bytes": "available_bytes",
    "available_kv_cache_memory_bytes": "available_bytes",
}
_ARGS: Final = {
    "cache_dtype": "kv_cache_dtype",
    "block_size": "resolved_block_size",
    "enable_prefix_caching": "enable_prefix_caching",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "mamba_cache_mode": "mamba_cache_mode",
    "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
    "mamba_cache_dtype": "mamba_cache_dtype",
    "mamba_block_size": "resolved_mamba_block_size",
    "num_gpu_blocks_override": "num_gpu_blocks_override",
}

_MOST = 1e18
"""What is larger is no count of anything on a GPU."""


def is_metrics(text: str) -> bool:
    """Whether ``text`` is a page of metrics rather than a log."""
    return _INFO.search(text) is not None


def read_metrics(text: str, facts: LogFacts) -> None:
    """Take the labels of ``vllm:cache_config_info`` into ``facts``; of several engines' the first."""
    info = _INFO.search(text)
    if info is None:
        return
    line = text.count("\n", 0, info.start()) + 1
    labels = dict(_LABEL.findall(info[1]))
    for label, name in _NUMBERS.items():
        value = _value(labels.get(label))
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST:
            facts.add(name, float(value), line, f'{label}="{labels[label]}"')
    facts.args |= {key: value for label, key in _ARGS.items() if (value := _value(labels.get(label))) is not None}
    facts.args.pop("mamba_cache_dtype" if facts.args.get("mamba_cache_dtype") == "auto" else "", None)
    model = re.search(r'model_name="([^"]+)"', text)
    facts.model = model[1] if model else None
    concurrency, tokens = facts.last("concurrency"), facts.last("tokens")
    block = facts.args.pop("resolved_block_size", None)
    if isinstance(block, int):
        facts.add("cache_block_size", block, line, f'block_size="{block}"')
    mamba = facts.args.pop("resolved_mamba_block_size", None)
    if isinstance(mamba, int) and mamba != block:  # without prefix caching it is max_model_len
        facts.add("max_concurrency_len", mamba, line, f'mamba_block_size="{mamba}"')
    elif concurrency and tokens and concurrency >= 0.01:
        length = _roundest(math.ceil(tokens / concurrency), int((tokens + 1) / concurrency))
        facts.add("max_concurrency_len", length, line, "kv_cache_size_tokens / kv_cache_max_concurrency")


def _roundest(low: int, high: int) -> int:
    """Of the lengths that give these tokens the one divisible by two most often: people choose such.

    >>> _roundest(262_143, 262_145)
    262144
    """
    high = max(low, min(high, low + 4096))
    return max(range(low, high + 1), key=lambda length: length & -length)


def _value(text: str | None) -> Any:
    if text is None or text in ("None", "", "nan"):
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
