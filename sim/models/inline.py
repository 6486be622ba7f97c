"""A model written out in a scenario: layers, heads, and as much of its size as the author cares to give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sim.errors import InputError, nearest
from sim.models.model import LayerKind, LayerShape, Model
from sim.units import dtype_bytes

_MODEL_KEYS: Final = (
    "name",
    "layers",
    "num_kv_heads",
    "head_size",
    "head_size_v",
    "dtype",
    "max_model_len",
    "hidden_size",
    "num_attention_heads",
    "params_total",
    "params_active",
    "expert_params",
    "num_experts",
    "experts_per_token",
    "weight_bytes_per_param",
    "expert_bytes_per_param",
)
_LAYER_KEYS: Final = ("kind", "count", "window", "num_kv_heads", "head_size", "head_size_v")
_KINDS: Final[tuple[LayerKind, ...]] = ("full", "sliding_window")

_MOST_LAYERS: Final = 10_000
_LARGEST: Final = 1 << 48
"""Above any size that means something; keeps a slip of the keyboard from becoming a number of 400 digits."""


def model_from_mapping(mapping: Mapping[str, Any], where: str = "model") -> Model:
    """The model of an inline description, ``{layers: [{kind, count, window}], num_kv_heads, head_size, ...}``.

    ``where`` is the key path that errors name. Raises InputError for an unknown key, a missing one, a wrong type or a
    value out of range. Sizes that are not given are estimated, and ``origin`` says so: as many attention heads as KV
    heads, a hidden size of heads × head size, 12 × hidden² weights a layer, all of them active.
    """
    _check_keys(mapping, _MODEL_KEYS, where)
    for key in ("layers", "num_kv_heads", "head_size", "max_model_len"):
        if key not in mapping:
            raise InputError(f"'{key}' is missing; an inline model needs layers, heads and max_model_len", where=where)
    dtype = mapping.get("dtype", "bfloat16")
    if not isinstance(dtype, str):
        raise InputError(f"must be the name of a dtype, such as bfloat16, got {dtype!r}", where=f"{where}.dtype")
    dtype_bytes(dtype, where=f"{where}.dtype")
    layers = tuple(_layers(mapping, where))
    sizes, origin = _sizes(mapping, layers, where)
    return Model(
        name=str(mapping.get("name", "inline")),
        layers=layers,
        max_model_len=_integer(mapping, "max_model_len", where),
        dtype=dtype,
        weight_bytes_per_param=_number(mapping, "weight_bytes_per_param", where),
        expert_bytes_per_param=_number(mapping, "expert_bytes_per_param", where),
        origin=origin,
        **sizes,
    )


def _layers(mapping: Mapping[str, Any], where: str) -> Iterator[LayerShape]:
    entries = mapping["layers"]
    if not isinstance(entries, list) or not entries:
        raise InputError("must be a list of at least one {kind, count, window}", where=f"{where}.layers")
    total = 0
    for position, entry in enumerate(entries):
        here = f"{where}.layers[{position}]"
        if not isinstance(entry, Mapping):
            raise InputError(f"must be a mapping with kind, count, window, got {entry!r}", where=here)
        _check_keys(entry, _LAYER_KEYS, here)
        count = _integer(entry, "count", here, default=1)
        total += count
        if total > _MOST_LAYERS:
            raise InputError(f"more than {_MOST_LAYERS:,} layers in all", where=f"{here}.count")
        yield from [_layer(entry, mapping, here, where)] * count


def _layer(entry: Mapping[str, Any], mapping: Mapping[str, Any], here: str, where: str) -> LayerShape:
    kind = entry.get("kind")
    if kind not in _KINDS:
        raise InputError(f"must be one of {', '.join(_KINDS)}, got {kind!r}", where=f"{here}.kind")
    if kind == "full" and entry.get("window") is not None:
        raise InputError("a full layer has no window; leave it out or use kind: sliding_window", where=f"{here}.window")
    window = _integer(entry, "window", here) if kind == "sliding_window" else None

    def own_or_common(key: str, default: int | None = None) -> int:
        source, place = (entry, here) if key in entry else (mapping, where)
        return _integer(source, key, place, default=default)

    head_size = own_or_common("head_size")
    return LayerShape(
        kind=kind,
        window=window,
        num_kv_heads=own_or_common("num_kv_heads"),
        head_size=head_size,
        head_size_v=own_or_common("head_size_v", default=head_size),
    )


def _sizes(
    mapping: Mapping[str, Any], layers: tuple[LayerShape, ...], where: str
) -> tuple[dict[str, int], dict[str, str]]:
    """The sizes that cost time, given or estimated, and for each of them which of the two."""
    heads = _integer(mapping, "num_attention_heads", where, default=max(layer.num_kv_heads for layer in layers))
    widest = max(layer.head_size for layer in layers)
    hidden = _integer(mapping, "hidden_size", where, default=heads * widest)
    total = _integer(mapping, "params_total", where, default=12 * hidden * hidden * len(layers))
    sizes = {
        "num_attention_heads": heads,
        "hidden_size": hidden,
        "params_total": total,
        "params_active": _integer(mapping, "params_active", where, default=total),
        "expert_params": _integer(mapping, "expert_params", where, default=0, least=0),
        "num_experts": _integer(mapping, "num_experts", where, default=0, least=0),
        "experts_per_token": _integer(mapping, "experts_per_token", where, default=0, least=0),
    }
    if sizes["experts_per_token"] > sizes["num_experts"]:
        raise InputError(f"cannot exceed num_experts ({sizes['num_experts']})", where=f"{where}.experts_per_token")
    return sizes, {key: "given" if key in mapping else "estimated" for key in sizes}


def _check_keys(mapping: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in mapping:
        if key not in allowed:
            hint = nearest(str(key), allowed)
            meant = f" (nearest: '{hint}')" if hint else ""
            raise InputError(f"unknown key '{key}'{meant}; allowed: {', '.join(allowed)}", where=where)


def _integer(mapping: Mapping[str, Any], key: str, where: str, *, default: int | None = None, least: int = 1) -> int:
    value = mapping.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise InputError(f"must be an integer of at least {least}, got {value!r}", where=f"{where}.{key}")
    return value


def _number(mapping: Mapping[str, Any], key: str, where: str) -> float:
    value = mapping.get(key, 2.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 16:
        raise InputError(f"must be a number of bytes above 0 and at most 16, got {value!r}", where=f"{where}.{key}")
    return float(value)
