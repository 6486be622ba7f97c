"""Which layers of a model have a window: one rule per model family, read off vLLM 0.33.0's model classes.

A rule gets the fields of a config.json and the index of a layer and answers the window of that layer, or None for
full attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sim.errors import InputError
from sim.models.hybrid_families import LAYER_RULES
from sim.models.model import LayerShape

Config = Mapping[str, Any]
WindowRule = Callable[[Config, int], int | None]


def _full(config: Config, index: int) -> int | None:
    del config, index
    return None


def _every_layer(config: Config, index: int) -> int | None:
    """Mistral 0.1: one window for all layers (vllm 0.33.0 model_executor/layers/attention/attention.py:271)."""
    del index
    window: int | None = config.get("sliding_window")
    return window


def _even_layers(config: Config, index: int) -> int | None:
    """Gemma 2 and gpt-oss: layers 0, 2, 4, ... have the window.

    vllm 0.33.0 model_executor/models/gpt_oss.py:175 and model_executor/models/gemma2.py:156.
    """
    window: int = config["sliding_window"]
    return window if index % 2 == 0 else None


def _all_but_every_nth(config: Config, index: int) -> int | None:
    """Gemma 3 (5:1), OLMo 3 and Command A (3:1): the last layer of each pattern is full attention.

    >>> gemma = {"sliding_window": 1024, "sliding_window_pattern": 6}
    >>> [_all_but_every_nth(gemma, i) for i in range(4, 8)]
    [1024, None, 1024, 1024]
    """
    window: int = config["sliding_window"]
    return window if (index + 1) % config.get("sliding_window_pattern", 4) else None


def _command_a(config: Config, index: int) -> int | None:
    """As above with one token more: Cohere's window leaves the current token out.

    vllm 0.33.0 model_executor/models/commandr.py:244.
    """
    window = _all_but_every_nth(config, index)
    return None if window is None else window + 1


WINDOW_RULES: dict[str, WindowRule] = {
    "llama": _full,
    "qwen3": _full,
    "mistral": _every_layer,
    "gemma2": _even_layers,
    "gpt_oss": _even_layers,
    "gemma3_text": _all_but_every_nth,
    "olmo3": _all_but_every_nth,
    "cohere2": _command_a,
}
"""The rule of each ``model_type`` that is known."""


def layers_of(config: Config) -> tuple[LayerShape, ...]:
    """The layers of the model that ``config`` (fields of a config.json) describes, in construction order.

    Raises InputError for a ``model_type`` without a rule.
    """
    model_type = config["model_type"]
    if model_type in LAYER_RULES:
        return tuple(LAYER_RULES[model_type](config))
    rule = WINDOW_RULES.get(model_type)
    if rule is None:
        known = ", ".join((*WINDOW_RULES, *LAYER_RULES))
        raise InputError(f"model_type '{model_type}' is not modelled; known: {known}")
    windows = [rule(config, index) for index in range(config["num_hidden_layers"])]
    return tuple(
        LayerShape(
            kind="full" if window is None else "sliding_window",
            window=window,
            num_kv_heads=config["num_key_value_heads"],
            head_size=config["head_dim"],
            head_size_v=config["head_dim"],
        )
        for window in windows
    )
