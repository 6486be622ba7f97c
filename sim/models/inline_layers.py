"""The layers of a model written out in a scenario: a list of ``{kind, count, ...}``, each kind with keys of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sim.errors import InputError
from sim.models.model import LayerKind, LayerShape, StateShape
from sim.models.reading import check_keys, integer
from sim.units import dtype_bytes

_HEADS: Final = ("num_kv_heads", "head_size", "head_size_v", "dtype")
_LATENT: Final = ("head_size", "dtype", "state_bytes", "tokens_per_state", "alignment", "block_size")
_STATE: Final = (
    *("state_shapes", "state_dtypes", "mamba_type", "groups", "group_channels"),
    *("checkpoints", "checkpoint_alignment", "on_block_grid", "tp_replicated"),
)
_OWN_KEYS: Final[dict[LayerKind, tuple[str, ...]]] = {
    "full": _HEADS,
    "sliding_window": (*_HEADS, "window"),
    "chunked_local": (*_HEADS, "chunk_size"),
    "mamba": _STATE,
    "mla": (*_LATENT, "cache_role"),
    "sliding_window_mla": (*_LATENT, "window", "bounded_replay"),
    "cross": _HEADS,
    "sink": (*_HEADS, "sink_len"),
    "rswa": (*_HEADS, "window"),
    "circular": (*_HEADS, "block_size"),
    "hidden_state": ("num_kv_heads", "head_size", "dtype"),
    "no_cache": (),
}
_COMMON: Final = ("kind", "count", "draft")
_LATENT_KINDS: Final = ("mla", "sliding_window_mla", "hidden_state")
_GROWING: Final = ("mamba2", "gdn_attn")
"""Kinds of states whose convolution keeps one row more per draft token."""

_MOST_LAYERS: Final = 10_000


def read_layers(mapping: Mapping[str, Any], where: str, *, key: str = "layers") -> Iterator[LayerShape]:
    """The layers in construction order: the list as written, ``repeat`` times over.

    Raises InputError for an unknown kind, a key that the kind does not have, or a value out of range.
    """
    entries = mapping["layers"]
    if not isinstance(entries, list) or not entries:
        raise InputError("must be a list of at least one {kind, count, window}", where=f"{where}.{key}")
    repeat = integer(mapping, "repeat", where, default=1)
    once: list[LayerShape] = []
    for position, entry in enumerate(entries):
        here = f"{where}.{key}[{position}]"
        if not isinstance(entry, Mapping):
            raise InputError(f"must be a mapping with kind, count, window, got {entry!r}", where=here)
        layer = _layer(entry, mapping, here, where)
        count = integer(entry, "count", here, default=1)
        if (len(once) + count) * repeat > _MOST_LAYERS:
            raise InputError(f"more than {_MOST_LAYERS:,} layers in all", where=f"{here}.count")
        once += [layer] * count
    for _ in range(repeat):
        yield from once


def _layer(entry: Mapping[str, Any], mapping: Mapping[str, Any], here: str, where: str) -> LayerShape:
    every_key = sorted({*_COMMON, *(key for keys in _OWN_KEYS.values() for key in keys)})
    check_keys(entry, tuple(every_key), here)
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _OWN_KEYS:
        raise InputError(f"must be one of {', '.join(_OWN_KEYS)}, got {kind!r}", where=f"{here}.kind")
    allowed = (*_COMMON, *_OWN_KEYS[kind])
    for key in entry:
        if key not in allowed and entry[key] is not None:
            raise InputError(_foreign(key, kind, allowed), where=f"{here}.{key}")
    if kind in ("mamba", "no_cache"):
        state = _state(entry, here) if kind == "mamba" else None
        return LayerShape(kind, None, 0, 0, 0, state=state, draft=_flag(entry, "draft", here))
    return _attention(kind, entry, mapping, here, where)


def _foreign(key: str, kind: str, allowed: tuple[str, ...]) -> str:
    if key == "window" and kind == "full":
        return "a full layer has no window; leave it out or use kind: sliding_window"
    return f"a {kind} layer has none; it has {', '.join(allowed)}"


def _attention(
    kind: LayerKind, entry: Mapping[str, Any], mapping: Mapping[str, Any], here: str, where: str
) -> LayerShape:
    def own_or_common(key: str, default: int | None = None, least: int = 1) -> int:
        source, place = (entry, here) if key in entry else (mapping, where)
        return integer(source, key, place, default=default, least=least)

    def own(key: str, needed: bool = False) -> int | None:
        return integer(entry, key, here) if key in entry or needed else None

    latent = kind in _LATENT_KINDS
    head_size = own_or_common("head_size")
    return LayerShape(
        kind=kind,
        window=own("window", needed=True) if "window" in _OWN_KEYS[kind] else None,
        num_kv_heads=integer(entry, "num_kv_heads", here, default=1) if latent else own_or_common("num_kv_heads"),
        head_size=head_size,
        head_size_v=0 if latent else own_or_common("head_size_v", default=head_size, least=0),
        chunk_size=own("chunk_size", needed=kind == "chunked_local"),
        dtype=_dtype(entry, "dtype", here),
        state_bytes=own("state_bytes"),
        tokens_per_state=integer(entry, "tokens_per_state", here, default=1),
        block_size=own("block_size", needed=kind == "circular"),
        alignment=own("alignment"),
        cache_role=_choice(entry, "cache_role", ("sparse", "indexer"), here),
        bounded_replay=_flag(entry, "bounded_replay", here),
        sink_len=own("sink_len", needed=kind == "sink"),
        draft=_flag(entry, "draft", here),
    )


def _state(entry: Mapping[str, Any], here: str) -> StateShape:
    shapes = entry.get("state_shapes")
    if not isinstance(shapes, list) or not shapes or not all(isinstance(shape, list) and shape for shape in shapes):
        raise InputError(
            f"must be a list of shapes, such as [[3, 8192], [32, 128, 128]], got {shapes!r}",
            where=f"{here}.state_shapes",
        )
    dtypes = entry.get("state_dtypes", [None] * len(shapes))
    if not isinstance(dtypes, list) or len(dtypes) != len(shapes):
        raise InputError(f"must be a list of {len(shapes)} dtypes, got {dtypes!r}", where=f"{here}.state_dtypes")
    sizes = [
        tuple(integer({"size": size}, "size", f"{here}.state_shapes[{number}]") for size in shape)
        for number, shape in enumerate(shapes)
    ]
    kind = entry.get("mamba_type", "mamba2")
    return StateShape(
        tuple(sizes),
        tuple(_dtype({"dtype": dtype}, "dtype", f"{here}.state_dtypes") for dtype in dtypes),
        str(kind),
        grows_with_drafts=kind in _GROWING and len(sizes[0]) == 2,
        groups=integer(entry, "groups", here, default=0, least=0),
        group_channels=integer(entry, "group_channels", here, default=0, least=0),
        checkpoints=integer(entry, "checkpoints", here, default=0, least=0),
        checkpoint_alignment=integer(entry, "checkpoint_alignment", here) if "checkpoint_alignment" in entry else None,
        on_block_grid=_flag(entry, "on_block_grid", here),
        tp_replicated=_flag(entry, "tp_replicated", here),
    )


def _dtype(entry: Mapping[str, Any], key: str, here: str) -> str | None:
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(f"must be the name of a dtype, such as bfloat16, got {value!r}", where=f"{here}.{key}")
    if value != "fp8_ds_mla":
        dtype_bytes(value, where=f"{here}.{key}")
    return value


def _flag(entry: Mapping[str, Any], key: str, here: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"must be true or false, got {value!r}", where=f"{here}.{key}")
    return value


def _choice(entry: Mapping[str, Any], key: str, allowed: tuple[str, ...], here: str) -> str:
    value = entry.get(key, allowed[0])
    if value not in allowed:
        raise InputError(f"must be one of {', '.join(allowed)}, got {value!r}", where=f"{here}.{key}")
    return str(value)
