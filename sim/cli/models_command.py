"""``hybridkv models``: the models known by name, what one token of theirs costs, and what their layers save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sim.capacity import request_blocks
from sim.cli.console import print_json, print_tables
from sim.engine_config import EngineConfig
from sim.errors import InputError, nearest
from sim.models import Model, load_model, model_names
from sim.models.catalogue import catalogue
from sim.planning import KVCacheMemoryError, KVCachePlan, Memory, layer_specs, plan_kv_cache
from sim.report.tables import Table, number
from sim.specs import MambaSpec
from sim.units import GIB

_LENGTHS: Final = (1024, 32768, 131072)
_COMPARED_AT: Final = 32768
_MEMORY: Final = Memory(kv_cache_memory_bytes=40 * GIB)
_ENOUGH: Final = Memory(num_gpu_blocks_override=1 << 30)


def models_command(parts: Sequence[str], *, as_json: bool) -> int:
    """Print the models whose name or checkpoint holds one of ``parts``; InputError where a part holds nowhere."""
    for part in parts:
        if not any(_holds(name, part) for name in model_names()):
            close = nearest(part.lower(), model_names())
            hint = f"; nearest is {close!r}" if close else ""
            raise InputError(f"no model's name holds {part!r}{hint}", where="PART")
    names = [name for name in model_names() if not parts or any(_holds(name, part) for part in parts)]
    entries = [_described(load_model(name)) for name in names]
    if as_json:
        print_json(entries)
    else:
        print_tables([_table(entries)])
    return 0


def _holds(name: str, part: str) -> bool:
    return part.lower() in f"{name} {catalogue()[name]['checkpoint']}".lower()


def _described(model: Model) -> dict[str, Any]:
    """Groups and blocks on an H100, bytes per token at some lengths, and tokens in 40 GiB."""
    engine = EngineConfig(
        max_model_len=model.max_model_len,
        max_num_batched_tokens=8192,
        max_num_seqs=256,
        enable_prefix_caching=model.prefix_caching_by_default,
        enable_chunked_prefill=not model.has_encoder,
    )
    plan = plan_kv_cache(model, engine, _ENOUGH)
    return {
        "name": model.name,
        "checkpoint": catalogue()[model.name]["checkpoint"],
        "layer_counts": model.layer_counts,
        "num_groups": len(plan.groups),
        "block_sizes": sorted({group.block_size for group in plan.groups}),
        "max_model_len": model.max_model_len,
        "dtype": model.dtype,
        "bytes_per_token": {tokens: _bytes_per_token(plan, engine, tokens) for tokens in _LENGTHS},
        "kv_cache_size_tokens_40_gib": _tokens_in_memory(model, engine),
        "saving_at_32k": _saving(model, plan, engine),
    }


def _bytes_per_token(plan: KVCachePlan, engine: EngineConfig, tokens: int) -> int | None:
    """Bytes of the blocks that a request of ``tokens`` tokens keeps, over its tokens; None where it is too long."""
    if tokens > engine.max_model_len:
        return None
    resident = sum(blocks.resident_blocks for blocks in request_blocks(plan, engine, tokens))
    return resident * plan.block_bytes // tokens


def _tokens_in_memory(model: Model, engine: EngineConfig) -> int:
    """The tokens vLLM would print for 40 GiB, at the longest request that fits."""
    try:
        return plan_kv_cache(model, engine, _MEMORY).kv_cache_size_tokens
    except KVCacheMemoryError as refusal:
        fitting = replace(engine, max_model_len=refusal.estimated_max_len)
        return plan_kv_cache(model, fitting, _MEMORY).kv_cache_size_tokens


def _saving(model: Model, plan: KVCachePlan, engine: EngineConfig) -> float | None:
    """Share of the bytes at 32k that windows, chunks and states save against layers that all keep every token.

    A layer with a state counts as one of the model's full attention, what waits for compression not at all. None where
    the model has no attention, or is too short.
    """
    held = _bytes_per_token(plan, engine, _COMPARED_AT)
    specs = [spec for spec in layer_specs(model, engine).values() if getattr(spec, "dtype", "") != "float32"]
    per_token = [spec.unpadded_page_size_bytes / spec.block_size for spec in specs if not isinstance(spec, MambaSpec)]
    if held is None or not per_token:
        return None
    kept = [spec.unpadded_page_size_bytes / spec.block_size for spec in specs if spec.num_skipped_tokens(1 << 30) == 0]
    like = max(kept, default=max(per_token))
    return 1 - held / (sum(per_token) + like * (len(specs) - len(per_token)))


def _table(entries: Sequence[dict[str, Any]]) -> Table:
    rows = [
        (
            entry["name"],
            _layers(entry["layer_counts"]),
            number(entry["num_groups"]),
            ", ".join(map(number, entry["block_sizes"])),
            *(number(entry["bytes_per_token"][tokens]) for tokens in _LENGTHS),
            number(entry["kv_cache_size_tokens_40_gib"]),
            "-" if entry["saving_at_32k"] is None else f"{100 * max(0.0, entry['saving_at_32k']):.0f} %",
        )
        for entry in entries
    ]
    header = ("name", "layers", "groups", "block_size", "B/token at 1k", "at 32k", "at 128k", "in 40 GiB", "saves")
    notes = [
        "on an H100; B/token: blocks a request of that length keeps, over its tokens",
        "in 40 GiB: tokens as vLLM prints them; saves: at 32k, against layers that all keep every token",
        "a model that is not here: hybridkv plan config.json",
    ]
    return Table("Models", header, rows, notes)


def _layers(counts: dict[str, int]) -> str:
    """Layers by kind without those that have no cache, and without drafts."""
    kinds = {kind: count for kind, count in counts.items() if kind != "no_cache" and not kind.endswith("(draft)")}
    return " + ".join(f"{count} {kind.replace('sliding_window', 'swa')}" for kind, count in kinds.items())
