"""Limits on images, audio and video: what ``--limit-mm-per-prompt`` and its kin leave of a model's modalities.

Rules: vllm 0.33.0 config/multimodal.py:700 (limits), config/model.py:925-1040 (when a model is served as text only).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sim.errors import InputError, nearest

if TYPE_CHECKING:
    from sim.engine_config.config import EngineConfig

TP_MODES: Final = ("weights", "data")
"""Values of ``--mm-encoder-tp-mode``."""

_UNLIMITED: Final = 999
_OPTIONS: Final = {
    "image": ("count", "width", "height"),
    "video": ("count", "num_frames", "width", "height"),
    "audio": ("count", "length"),
}
"""What may be said about a modality beside the number of its items."""


def check_limits(given: Any, where: str = "engine.limit_mm_per_prompt") -> None:
    """Raise InputError for limits that are none: ``{"image": 2, "video": {"count": 1, "num_frames": 32}}`` is right."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InputError(f'expected a mapping like {{"image": 2}}, got {given!r}', where=where)
    for modality, limit in given.items():
        options = limit if isinstance(limit, Mapping) else {"count": limit}
        for key, value in options.items():
            allowed = _OPTIONS.get(str(modality))
            if allowed is not None and key not in allowed:
                hint = nearest(str(key), allowed)
                meant = f" (nearest: '{hint}')" if hint else ""
                raise InputError(f"{modality}.{key}{meant} is none of {', '.join(allowed)}", where=where)
            least = 0 if key == "count" else 1
            if value is None and key != "count":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"{modality}.{key}: expected an integer of at least {least}, got {value!r}", where=where
                )


def limit_of(modality: str, limits: Mapping[str, Any] | None, *, language_model_only: bool = False) -> int:
    """Items of ``modality`` that one prompt may have.

    >>> limit_of("image", {"image": 0}), limit_of("video", {"image": 0}), limit_of("video", {"video": {"count": 2}})
    (0, 999, 2)
    """
    if language_model_only:
        return 0
    given = (limits or {}).get(modality, _UNLIMITED)
    return int(given.get("count", _UNLIMITED) if isinstance(given, Mapping) else given)


def frames_of(limits: Mapping[str, Any] | None) -> int | None:
    """Frames of a video as the limits name them."""
    given = (limits or {}).get("video")
    return given.get("num_frames") if isinstance(given, Mapping) else None


def served_modalities(modalities: Iterable[str], engine: EngineConfig) -> list[str]:
    """Which of ``modalities`` a prompt may hold; with ``enable_mm_embeds`` all of them, as embeddings at least."""
    return [
        modality
        for modality in modalities
        if engine.enable_mm_embeds
        or limit_of(modality, engine.limit_mm_per_prompt, language_model_only=engine.language_model_only)
    ]
