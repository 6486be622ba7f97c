"""``layer_types`` of a config: as written, or as transformers' config class of that model type fills it in.

Rules: transformers 5.20 models/<type>/configuration_<type>.py, read by vllm 0.33.0's model classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sim.errors import RefusalError, nearest
from sim.models.config import Config

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
LINEAR: Final = "linear_attention"

_OLD_NAMES: Final = {
    "attention": FULL,
    "mamba": LINEAR,
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}
"""Names that transformers rewrites (transformers 5.20 configuration_utils.py:94)."""

_NAMES: Final = (
    *(FULL, SLIDING, LINEAR, "chunked_attention", "window_attention", "indexed_attention", "conv", "moe", "hybrid"),
    *("compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse", "hybrid_sliding"),
    "reference_sliding_attention",
)
"""Kinds that transformers lets pass (configuration_utils.py:68)."""

_Pattern = Callable[[Config, int], list[str]]


def layer_types(config: Config) -> list[str] | None:
    """One kind per layer, or None where the model type has no such field and none is written.

    >>> layer_types(Config("gemma3_text", {"num_hidden_layers": 7, "sliding_window_pattern": 3}))[1:4]
    ['sliding_attention', 'full_attention', 'sliding_attention']
    >>> layer_types(Config("llama", {"num_hidden_layers": 2})) is None
    True
    """
    layers = config.num_layers()
    written = config.words("layer_types", length=layers)
    if written is not None:
        types = [_OLD_NAMES.get(kind, kind) for kind in written]
    elif config.model_type in _PATTERNS:
        types = _PATTERNS[config.model_type](config, layers)
    else:
        return None
    if config.model_type in _LAST_IS_FULL and types:
        types[-1] = FULL
    return types


_WITH_DRAFTS: Final = ("step3p5", "step3p7", "step3p7_text")
"""Model types whose lists may go on with the layers of their draft (transformers 5.20 models/step3p7)."""


def check_layer_types(config: Config) -> None:
    """Raise InputError for kinds of layers that transformers refuses to read: not one per layer, or none it knows.

    transformers 5.20 configuration_utils.py:694. Kinds of MLPs are looked at only where the attention's are written.

    >>> check_layer_types(Config("llama", {"num_hidden_layers": 1, "layer_types": ["full_atention"]}))
    Traceback (most recent call last):
    ...
    sim.errors.InputError: config.json: layer_types: expected one of full_attention, ..., got 'full_atention' (nearest:
    'full_attention')
    """
    if "layer_types" not in config.values or config.maybe_integer("num_hidden_layers") is None:
        return
    layers = config.num_layers()
    drafts = config.integer("num_nextn_predict_layers", 0, least=0) if config.model_type in _WITH_DRAFTS else 0
    for key, allowed in (("layer_types", _NAMES), ("mlp_layer_types", ("sparse", "dense"))):
        written = config.words(key, length=layers)
        if written is None:
            return
        if len(written) not in (layers, layers + drafts):
            raise config.error(key, f"has {len(written)} entries and the model {layers} layers: vLLM refuses to start")
        for kind in written:
            if _OLD_NAMES.get(kind, kind) not in allowed:
                hint = nearest(kind, allowed)
                meant = f" (nearest: '{hint}')" if hint else ""
                raise config.error(key, f"expected one of {', '.join(allowed)}, got {kind[:40]!r}{meant}")


_QWEN: Final = ("qwen2", "qwen3", "mimo")
_INSIDE: Final = (
    *("qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen3_vl_text", "qwen3_asr_text"),
)
"""Model types that vLLM builds its Qwen2 model of: by themselves, and as the text part of another."""


def check_one_kind(config: Config, *, alone: bool) -> None:
    """Raise RefusalError for windows in some layers of Qwen2's model class, whose layers all have the same window.

    It lets them pass, and gives no layer a window, where ``max_window_layers`` is the number of layers (vllm 0.33.0
    model_executor/models/qwen2.py:351). ``alone``: the config is no part of another.

    >>> check_one_kind(Config("qwen2", {"num_hidden_layers": 2, "layer_types": [FULL, SLIDING]}), alone=True)
    Traceback (most recent call last):
    ...
    sim.errors.RefusalError: config.json: max_window_layers: is missing and layer_types has several kinds, ...
    """
    if config.model_type not in (_QWEN if alone else _INSIDE) or len(set(layer_types(config) or ())) < 2:
        return
    layers, given = config.num_layers(), config.maybe_integer("max_window_layers")
    if given != layers:
        what = "is missing" if given is None else f"is {given}, not the {layers} of num_hidden_layers,"
        raise RefusalError(
            f"max_window_layers: {what} and layer_types has several kinds, which vLLM's Qwen2 model does not support:"
            " vLLM refuses to start; write one kind, or as many max_window_layers as layers",
            where=config.where,
        )


def known_types(config: Config) -> list[str]:
    """The same; InputError where there are none."""
    types = layer_types(config)
    if types is None:
        raise config.missing("layer_types")
    return types


def window_of(config: Config) -> int | None:
    """Tokens of the sliding window, or None: 0, and a window that is switched off, are none.

    >>> window_of(Config("qwen2", {"sliding_window": 4096, "use_sliding_window": False})) is None
    True
    """
    if config.knows("use_sliding_window") and not config.flag("use_sliding_window"):
        return None
    if config.model_type == "modernbert-decoder":
        return config.integer("local_attention", 128) // 2 or None
    window = config.maybe_integer("sliding_window")
    if window and config.model_type in _WINDOW_TYPES and config.get("use_bidirectional_attention") in (True, "all"):
        window = window // 2 + 1
    return window or None


def model_window(config: Config) -> int | None:
    """The window of every layer that names none of its own: set only where no layer is full attention.

    vllm 0.33.0 engine/arg_utils.py:2288 and model_executor/layers/attention/attention.py:266.
    """
    types = layer_types(config)
    return window_of(config) if types is None or all(kind == SLIDING for kind in types) else None


def _every(default: int | None, *keys: str, first: bool = False, full: str = FULL, other: str = SLIDING) -> _Pattern:
    """Of every ``n`` layers the last one is full attention, or the first; ``n`` is a field or the default."""

    def pattern(config: Config, layers: int) -> list[str]:
        given = next((config.maybe_integer(key, least=0) for key in keys if config.has(key)), None)
        period = given if given is not None else default
        if not period:
            raise config.wrong(keys[0] if keys else "layer_types", "a period of at least 1", period)
        return [full if index % period == (0 if first else period - 1) else other for index in range(layers)]

    return pattern


def _exaone(config: Config, layers: int) -> list[str]:
    """3:1, and no windows at all where there is none to have."""
    if config.maybe_integer("sliding_window") is None:
        raise config.error("sliding_window", "is null and layer_types is not written: transformers divides by zero")
    return _every(4, "sliding_window_pattern")(config, layers)


def _qwen2(config: Config, layers: int) -> list[str]:
    """Windows from layer ``max_window_layers`` on, where they are switched on."""
    if window_of(config) is None:
        return [FULL] * layers
    first = config.integer("max_window_layers", layers, least=0)
    return [SLIDING if index >= first else FULL for index in range(layers)]


def _qwen2_moe(config: Config, layers: int) -> list[str]:
    """Windows in every other of the first ``max_window_layers`` layers, where they are switched on."""
    if window_of(config) is None:
        return [FULL] * layers
    last = config.integer("max_window_layers", layers, least=0)
    return [SLIDING if index % 2 == 0 and index < last else FULL for index in range(layers)]


def _smollm3(config: Config, layers: int) -> list[str]:
    """Windows in the layers without rotary embedding, where they are switched on."""
    if window_of(config) is None:
        return [FULL] * layers
    period = config.integer("no_rope_layer_interval", 4)
    rotary = config.integers("no_rope_layers", length=layers)
    rotary = rotary or [int((index + 1) % period != 0) for index in range(layers)]
    return [FULL if rotary[index] else SLIDING for index in range(layers)]


def _command_moe(config: Config, layers: int) -> list[str]:
    """3:1, counted anew after the dense layers at the beginning."""
    dense = min(config.integer("first_k_dense_replace", 0, least=0), layers)
    before = config.integer("prefix_dense_sliding_window_pattern", 1)
    prefix = [SLIDING if (index + 1) % before else FULL for index in range(dense)]
    return prefix + _every(4, "sliding_window_pattern")(config, layers - dense)


def _from_the_end(config: Config, layers: int) -> list[str]:
    """3:1, counted from the last layer, which is full attention."""
    del config
    return [FULL if (layers - 1 - index) % 4 == 0 else SLIDING for index in range(layers)]


def _linear(config: Config, layers: int) -> list[str]:
    """Three layers with a state, then attention; a model without any gets one at its end."""
    del config
    types = [FULL if index % 4 == 3 else LINEAR for index in range(layers)]
    return types if FULL in types else [*types[:-1], FULL]


def _all(kind: str) -> _Pattern:
    def pattern(config: Config, layers: int) -> list[str]:
        del config
        return [kind] * layers

    return pattern


_LAST_IS_FULL: Final = frozenset({"gemma4_text", "gemma4_unified_text", "diffusion_gemma_text"})
_WINDOW_TYPES: Final = frozenset({"gemma3_text", *_LAST_IS_FULL})

_STATES = _every(4, "full_attention_interval", other=LINEAR)

_PATTERNS: Final[dict[str, _Pattern]] = {
    "afmoe": _every(4, "global_attn_every_n_layers"),
    "beam": _all(SLIDING),
    "cohere2": _every(4, "sliding_window_pattern"),
    "cohere2_moe": _command_moe,
    "cohere_compass_text": _all(FULL),
    "cwm": _every(4, first=True),
    "diffusion_gemma_text": _every(6),
    "exaone4": _exaone,
    "exaone_moe": _exaone,
    "gemma2": _every(2),
    "gemma3_text": _every(6, "sliding_window_pattern"),
    "gemma3n_text": _every(5),
    "gemma4_text": _every(6),
    "gemma4_unified_text": _every(6),
    "gpt_oss": _every(2),
    "granite_swa": _every(4, first=True),
    "granitemoe_swa": _every(4, first=True),
    "granitemoehybrid": _all(LINEAR),
    "kolibri1": _every(5),
    "laguna": _all(FULL),
    "mellum": _all(FULL),
    "modernbert-decoder": _every(3, "global_attn_every_n_layers", first=True),
    "muse_glimmer_text": _from_the_end,
    "olmo3": _every(4),
    "olmo_hybrid": _linear,
    "qwen2": _qwen2,
    "qwen2_5_omni_text": _qwen2,
    "qwen2_5_vl_text": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen2_vl_text": _qwen2,
    "qwen3": _qwen2,
    "qwen3_5_moe_text": _STATES,
    "qwen3_5_text": _STATES,
    "qwen3_next": _STATES,
    "smollm3": _smollm3,
    "step3p5": _all(FULL),
    "vaultgemma": _every(2),
}
"""What the config class of each model type writes where nothing is written."""
