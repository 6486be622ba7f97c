"""Images, audio and video as far as they decide about kernels and batches: what is served, and what has to fit.

Rules: vllm 0.33.0 config/model.py:925-1040, engine/arg_utils.py:3100-3130 and 3200-3217, platforms/cuda.py:335,
multimodal/encoder_budget.py:39-125, v1/core/encoder_cache_manager.py:333-380.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.engine_config import EngineConfig
from sim.engine_config.media import frames_of, limit_of, served_modalities
from sim.errors import RefusalError
from sim.models import Model
from sim.models.items import FRAME_TOKENS, FRAMES


def reads_both_ways(model: Model, engine: EngineConfig) -> bool:
    """Whether tokens of an image read each other both ways; not where no prompt can hold one.

    >>> from sim.models import load_model
    >>> budgets = {"max_model_len": 4096, "max_num_batched_tokens": 4096, "max_num_seqs": 8}
    >>> gemma = load_model("gemma-3-27b")
    >>> (
    ...     reads_both_ways(gemma, EngineConfig(**budgets)),
    ...     reads_both_ways(gemma, EngineConfig(**budgets, limit_mm_per_prompt={"image": 0})),
    ... )
    (True, False)
    """
    if model.kernels is None or not model.kernels.mm_prefix:
        return False
    modalities = [modality for modality, _ in model.kernels.items]
    if not modalities:
        return engine.enable_mm_embeds or not engine.language_model_only
    return bool(served_modalities(modalities, engine))


def smallest_batch(model: Model, flags: Mapping[str, Any]) -> int:
    """Tokens that vLLM makes room for in a batch unless told how large one is: an item that may not be cut.

    ``flags``: the engine's keys as far as they are given. All items of the model count, also those that the limits
    rule out, as long as one is served.
    """
    kernels = model.kernels
    if kernels is None or not kernels.mm_prefix or not kernels.items_named:
        return 0
    limits, only_text = flags.get("limit_mm_per_prompt"), bool(flags.get("language_model_only"))
    served = any(limit_of(modality, limits, language_model_only=only_text) for modality, _ in kernels.items)
    if not served and not flags.get("enable_mm_embeds"):
        return 0
    return max(_longest(modality, tokens, limits, named=True) for modality, tokens in kernels.items)


def _longest(modality: str, tokens: int, limits: Mapping[str, Any] | None, *, named: bool) -> int:
    """Tokens of the longest item; of a video whose frames the limits name, fewer."""
    frames = frames_of(limits)
    if modality != "video" or frames is None or not named:
        return tokens
    return min(FRAMES, frames) * FRAME_TOKENS


def check_items(model: Model, engine: EngineConfig) -> None:
    """Raise RefusalError for a batch that has no room for an item that may not be cut, and for items that must be.

    Prefix caching of states has to cut where it likes (vllm 0.33.0 config/vllm.py:3413).
    """
    has_states = any(layer.state is not None for layer in model.layers)
    if engine.disable_chunked_mm_input and has_states and engine.enable_prefix_caching:
        raise RefusalError(
            "prefix caching of states has to cut images where it likes: vLLM refuses to start; leave it out",
            where="engine.disable_chunked_mm_input",
        )
    whole = engine.disable_chunked_mm_input or reads_both_ways(model, engine)
    if model.kernels is None or not whole:
        return
    items, limits = dict(model.kernels.items), engine.limit_mm_per_prompt
    served = served_modalities(items, engine)
    sizes = {name: _longest(name, items[name], limits, named=model.kernels.items_named) for name in served}
    longest = max(sizes, key=lambda name: sizes[name], default=None)
    if longest is not None and sizes[longest] > engine.max_num_batched_tokens:
        raise RefusalError(
            f"{engine.max_num_batched_tokens} is smaller than the {sizes[longest]} tokens of the longest {longest},"
            f" which {model.name} takes whole: vLLM refuses to start; raise it, or set limit_mm_per_prompt to 0 for it",
            where="engine.max_num_batched_tokens",
        )
