"""How many tokens the longest image or video of a model has, where vLLM knows it from the config alone."""

from __future__ import annotations

from typing import Final

from sim.models.hf import HFConfig

_GEMMA4_VIDEO: Final = 32 * (70 + 2 + 6)
"""Frames of a video times the tokens of each: its own, two that enclose it, and those of its time."""


def largest_item_tokens(config: HFConfig) -> int:
    """The tokens, 0 where only the model's processor knows them.

    Rules: vllm 0.33.0 model_executor/models/gemma4_mm.py:272, gemma4_unified.py:168, bagel.py:212 and
    moondream3.py:927; other classes whose items may not be cut name no number beforehand.

    >>> from sim.models.hf import read_hf_config
    >>> gemma = {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}, "vision_config": {}}
    >>> largest_item_tokens(read_hf_config(gemma))
    2496
    """
    kind, vision = config.top.model_type, config.top.part("vision_config")
    if kind in ("gemma4", "gemma4_unified"):
        key = "default_output_length" if kind == "gemma4" else "num_soft_tokens"
        image = vision.integer(key, 280) if vision else 0
        return max(image, _GEMMA4_VIDEO)
    if kind == "bagel":
        return config.top.integer("vit_max_num_patch_per_side", 70) ** 2
    return 0
