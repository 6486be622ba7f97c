"""A model written out in a scenario: layers, heads, and as much of its size as the author cares to give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sim.errors import InputError
from sim.models.catalogue import load_model
from sim.models.inline_layers import read_layers
from sim.models.model import LayerShape, Model
from sim.models.reading import check_keys, integer, number
from sim.units import dtype_bytes

_MODEL_KEYS: Final = (
    "name",
    "layers",
    "repeat",
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
    "kernel_block_size",
    "max_source_positions",
)

_WEIGHTS: Final = ("weight_bytes_per_param", "expert_bytes_per_param")
_BASE_KEYS: Final = ("name", "base", "draft_layers", *_WEIGHTS)


def model_from_mapping(mapping: Mapping[str, Any], where: str = "model") -> Model:
    """The model of an inline description, ``{layers: [{kind, count, window}], num_kv_heads, head_size, ...}``.

    Or ``{base, ...}``: a model of the catalogue with other ``draft_layers`` than its own, or quantized otherwise.
    ``where`` is the key path that errors name. Raises InputError for an unknown key, a missing one, a wrong type or a
    value out of range. Sizes that are not given are estimated, and ``origin`` says so: as many attention heads as KV
    heads, a hidden size of heads × head size, 12 × hidden² weights a layer, all of them active.
    """
    if "base" in mapping:
        return _changed(mapping, where)
    check_keys(mapping, _MODEL_KEYS, where)
    for key in ("layers", "num_kv_heads", "head_size", "max_model_len"):
        if key not in mapping:
            raise InputError(f"'{key}' is missing; an inline model needs layers, heads and max_model_len", where=where)
    dtype = mapping.get("dtype", "bfloat16")
    if not isinstance(dtype, str):
        raise InputError(f"must be the name of a dtype, such as bfloat16, got {dtype!r}", where=f"{where}.dtype")
    dtype_bytes(dtype, where=f"{where}.dtype")
    layers = tuple(read_layers(mapping, where))
    sizes, origin = _sizes(mapping, layers, where)
    encoder = any(layer.kind == "cross" for layer in layers)
    if encoder != ("max_source_positions" in mapping):
        problem = "is missing; cross attention reads an encoder" if encoder else "is for models with cross attention"
        raise InputError(f"{problem}, whose longest input has so many tokens", where=f"{where}.max_source_positions")
    return Model(
        name=str(mapping.get("name", "inline")),
        layers=layers,
        max_model_len=integer(mapping, "max_model_len", where),
        dtype=dtype,
        weight_bytes_per_param=number(mapping, "weight_bytes_per_param", where),
        expert_bytes_per_param=number(mapping, "expert_bytes_per_param", where),
        kernel_block_size=integer(mapping, "kernel_block_size", where, default=1),
        max_source_positions=integer(mapping, "max_source_positions", where) if encoder else 0,
        origin=origin,
        **sizes,
    )


def _changed(mapping: Mapping[str, Any], where: str) -> Model:
    """A model of the catalogue with weights of other sizes, other draft layers, or both."""
    check_keys(mapping, _BASE_KEYS, where)
    changed = [key for key in _BASE_KEYS[2:] if key in mapping]
    if not isinstance(mapping["base"], str) or not changed:
        raise InputError(
            f"needs the name of a model of the catalogue, and one of {', '.join(_BASE_KEYS[2:])} beside it",
            where=f"{where}.base",
        )
    base = load_model(mapping["base"], where=f"{where}.base")
    weights: dict[str, Any] = {key: number(mapping, key, where) for key in _WEIGHTS if key in mapping}
    model = replace(base, name=str(mapping.get("name", base.name)), **weights)
    return _with_draft(model, mapping, where) if "draft_layers" in mapping else model


def _with_draft(base: Model, mapping: Mapping[str, Any], where: str) -> Model:
    """The model with other draft layers, whose heads are those of its attention unless given."""
    like = next(layer for layer in base.layers if layer.num_kv_heads)
    heads = {"num_kv_heads": like.num_kv_heads, "head_size": like.head_size, "head_size_v": like.head_size_v}
    drafts = read_layers({"layers": mapping["draft_layers"], **heads}, where, key="draft_layers")
    own = tuple(layer for layer in base.layers if not layer.draft)
    added = tuple(replace(layer, draft=True, depth=depth) for depth, layer in enumerate(drafts))
    name = str(mapping.get("name", f"{base.name} with a draft"))
    return replace(base, name=name, layers=own + added)


def _sizes(
    mapping: Mapping[str, Any], layers: tuple[LayerShape, ...], where: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The sizes that cost time, given or estimated, and for each of them which of the two."""
    heads = integer(mapping, "num_attention_heads", where, default=max(1, *(layer.num_kv_heads for layer in layers)))
    widest = max(1, *(layer.head_size for layer in layers))
    hidden = integer(mapping, "hidden_size", where, default=heads * widest)
    total = integer(mapping, "params_total", where, default=12 * hidden * hidden * len(layers))
    sizes = {
        "num_attention_heads": heads,
        "hidden_size": hidden,
        "params_total": total,
        "params_active": integer(mapping, "params_active", where, default=total),
        "expert_params": integer(mapping, "expert_params", where, default=0, least=0),
        "num_experts": integer(mapping, "num_experts", where, default=0, least=0),
        "experts_per_token": integer(mapping, "experts_per_token", where, default=0, least=0),
    }
    if sizes["experts_per_token"] > sizes["num_experts"]:
        raise InputError(f"cannot exceed num_experts ({sizes['num_experts']})", where=f"{where}.experts_per_token")
    return sizes, {key: "given" if key in mapping else "estimated" for key in sizes}
