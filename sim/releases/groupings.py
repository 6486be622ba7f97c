"""The same layers in groups of another size: what padding, block tables and tokens would be.

vLLM's own size is the smaller kind's count, or the larger one's where that is less than half again as large
(vllm 0.33.0 v1/core/kv_cache_planning.py:416).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError, nearest
from sim.models import Model
from sim.planning import effective_engine, layer_specs
from sim.planning.grouping import get_kv_cache_groups, group_size
from sim.startup_log.recompute import Layout, Setting
from sim.startup_log.releases import rules_of
from sim.units import cdiv

FLAG = "--what-if-group-size"
_NAMED: dict[str, Callable[[Sequence[int]], int]] = {
    "min": min,
    "max": max,
    "gcd": lambda counts: gcd(*counts),
    "per-layer": lambda _: 1,
}


@dataclass(frozen=True, slots=True)
class Grouping:
    """One size of groups and what comes of it in the same pool.

    ``table_entries`` are those of one request of max_model_len; ``padding_share`` is that of every block, over all
    groups. All but the size are None where vLLM would refuse to start, ``refusal`` then says why.
    """

    label: str
    layers_per_group: int
    num_groups: int | None = None
    padding_layers: int | None = None
    padding_share: float | None = None
    table_entries: int | None = None
    num_blocks: int | None = None
    tokens: int | None = None
    max_concurrency: float | None = None
    refusal: str | None = None


def other_groupings(model: Model, engine: EngineConfig, pool_bytes: int, sizes: Sequence[str]) -> tuple[Grouping, ...]:
    """vLLM's own grouping, then those of ``sizes``: a number of layers, ``min``, ``max``, ``gcd`` or ``per-layer``.

    Raises InputError for another word, and for a model whose layers are not dealt out into groups of one size.

    >>> from sim.models import load_model
    >>> engine = EngineConfig(max_model_len=32768, max_num_batched_tokens=8192, max_num_seqs=256)
    >>> for found in other_groupings(load_model("gemma-3-27b"), engine, 40 << 30, ["gcd", "per-layer"]):
    ...     print(found.label, found.layers_per_group, found.num_groups, found.padding_layers, found.table_entries)
    vLLM's own 10 7 8 14336
    gcd 2 31 0 63488
    per-layer 1 62 0 126976
    """
    counts = _counts(model, engine)
    asked = [("vLLM's own", group_size(counts)), *((size, _size(size, counts)) for size in sizes)]
    return tuple(_grouping(label, size, model, engine, pool_bytes) for label, size in asked)


def _counts(model: Model, engine: EngineConfig) -> list[int]:
    """Layers of each kind, as vLLM's rule for the size of groups sees them."""
    seen: list[int] = []

    def note(counts: Sequence[int]) -> int:
        seen[:] = counts
        return group_size(counts)

    resolved = effective_engine(model, engine)
    get_kv_cache_groups(
        layer_specs(model, resolved),
        disable_hybrid_kv_cache_manager=resolved.disable_hybrid_kv_cache_manager,
        block_outermost=resolved.block_outermost,
        layers_per_group=note,
    )
    if not seen:
        raise InputError(
            f"the layers of {model.name} are not dealt out into groups of one size: they are of one kind, or packed "
            "block by block; there is no other size to try",
            where=FLAG,
        )
    return seen


def _size(text: str, counts: Sequence[int]) -> int:
    if text in _NAMED:
        return _NAMED[text](counts)
    if text.isdecimal() and 1 <= int(text) <= max(counts):
        return int(text)
    hint = nearest(text, [*_NAMED])
    raise InputError(
        f"got {text!r}{f'; nearest is {hint}' if hint else ''}; allowed are {', '.join(_NAMED)} and 1 to {max(counts)}",
        where=FLAG,
    )


def _grouping(label: str, size: int, model: Model, engine: EngineConfig, pool_bytes: int) -> Grouping:
    try:
        layout = Layout(Setting(model, engine, rules_of(None), size))
    except RefusalError as error:
        return Grouping(label, size, refusal=str(error))
    padding = sum(group.padding_layers for group in layout.groups)
    layers = sum(len(group.layer_names) for group in layout.groups)
    blocks = layout.num_blocks(pool_bytes)
    return Grouping(
        label=label,
        layers_per_group=size,
        num_groups=len(layout.groups),
        padding_layers=padding,
        padding_share=padding / (layers + padding),
        table_entries=sum(cdiv(engine.max_model_len, group.block_size) for group in layout.groups),
        num_blocks=blocks,
        tokens=layout.tokens(blocks),
        max_concurrency=layout.concurrency(blocks),
    )
