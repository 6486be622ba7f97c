"""What a multimodal model takes beside text, and how many tokens the longest image, video or sound of it has.

Rules: vllm 0.33.0 model_executor/models/gemma4_mm.py:265-296, gemma4_unified.py:168, bagel.py:209, moondream3.py:908,
gemma3_mm.py:87, molmo2.py:1559, paligemma.py:108.
"""

from __future__ import annotations

from typing import Final

from sim.models.config import Config
from sim.models.hf import HFConfig

FRAMES: Final = 32
"""Frames that are taken of a video of Gemma 4 at most."""

FRAME_TOKENS: Final = 70 + 2 + 6
"""Tokens of each: its own, two that enclose it, and those of its time."""

_SOUND: Final = 750
"""Tokens of the longest sound, as Gemma 4's processor has it."""

NAMED: Final = frozenset({"gemma4", "gemma4_unified", "bagel", "moondream3"})
"""Model types whose class names the tokens of an item before there is a processor, so that a batch is made for them."""

_UNKNOWN: Final[dict[str, tuple[str, ...]]] = {
    "molmo2": ("image", "video"),
    "qwen2_vl": ("image", "video"),
    "qwen2_5_vl": ("image", "video"),
    "qwen3_vl": ("image", "video"),
    "qwen3_vl_moe": ("image", "video"),
    "glm4v": ("image", "video"),
    "glm4v_moe": ("image", "video"),
    "glm_ocr": ("image", "video"),
}
"""Modalities whose items only a processor measures."""


def items_of(config: HFConfig) -> tuple[tuple[str, int], ...]:
    """The modalities with the tokens of their longest item, 0 where only the model's processor knows them.

    Empty for a model of text alone, and for one whose modalities do not matter here.

    >>> from sim.models.hf import read_hf_config
    >>> gemma = {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}}
    >>> gemma["vision_config"] = {"default_output_length": 280}
    >>> items_of(read_hf_config(gemma))
    (('image', 280), ('video', 2496))
    """
    kind, top = config.top.model_type, config.top
    vision = top.part("vision_config")
    if kind in ("gemma4", "gemma4_unified"):
        return _gemma4(top, vision)
    if kind == "bagel":
        return (("image", top.integer("vit_max_num_patch_per_side", 70) ** 2),)
    if kind == "moondream3":
        return (("image", 730),)
    if kind == "gemma3":
        return (("image", top.integer("mm_tokens_per_image", 256)),)
    if kind == "paligemma":
        side = vision.integer("image_size", 224) // vision.integer("patch_size", 14) if vision else 0
        return (("image", side**2),)
    return tuple((modality, 0) for modality in _UNKNOWN.get(kind, ()))


def _gemma4(top: Config, vision: Config | None) -> tuple[tuple[str, int], ...]:
    """An image as long as the vision tower says; where it says nothing, vLLM fails to tell, and no item is known."""
    key, default = ("default_output_length", 0) if top.model_type == "gemma4" else ("num_soft_tokens", 280)
    image = ("image", vision.integer(key, default) if vision else 0)
    if not image[1]:
        return (("image", 0), ("video", 0))
    sound = (("audio", _SOUND),) if top.has("audio_config") else ()
    return (image, *sound, ("video", FRAMES * FRAME_TOKENS))
