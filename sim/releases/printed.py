"""The startup numbers of a release before 0.33, by the rules it had, and what changed between two of them.

Groups, blocks and the two printed lines follow the rules of :mod:`sim.startup_log.releases`, which reproduce public
startup logs of those releases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from sim.engine_config import EngineConfig
from sim.errors import InputError
from sim.models import Model
from sim.startup_log.recompute import Layout, Setting, checkpoints
from sim.startup_log.releases import Release, Rules, release_of_text, rules_of

OLDEST, NEWEST = (0, 10), (0, 33)
_LATENT = ("mla", "sliding_window_mla")


@dataclass(frozen=True, slots=True)
class Printed:
    """What a release makes of an engine; ``pool_bytes`` per GPU are what it was given, of which blocks use whole ones.

    ``gpu_memory_utilization`` is None where the KV cache's memory was given outright.
    """

    release: str
    gpu_memory_utilization: float | None
    pool_bytes: int
    num_groups: int
    padding_layers: int
    block_size: int
    block_bytes: int
    num_blocks: int
    tokens: int
    max_concurrency: float
    request_blocks: int
    prefix_caching: bool


def release_named(text: str, flag: str) -> Release:
    """A release as people write it. Raises InputError outside 0.10 … 0.33.

    >>> release_named("v0.20.1", "--vllm"), release_named("0.33", "--vllm")
    ((0, 20), (0, 33))
    """
    found = release_of_text(text.removeprefix("v"))
    if found is None or not OLDEST <= found <= NEWEST:
        raise InputError(f"got {text!r}; releases 0.10 to 0.33 are known, as in 0.20", where=flag)
    return found


def as_printed(
    model: Model,
    engine: EngineConfig,
    given: Collection[str],
    release: Release,
    pool: Callable[[float], tuple[int, bool]],
) -> Printed:
    """What ``release`` prints for ``engine``, of which the keys in ``given`` were asked for and others are defaults.

    ``pool(utilization)`` gives the bytes for the KV cache at that default utilization, and whether it mattered. Raises
    what planning raises for what vLLM refuses.
    """
    rules = rules_of(release)
    pool_bytes, estimated = pool(rules.gpu_memory_utilization)
    layout = Layout(Setting(model, _engine_of(model, engine, given, rules), rules))
    blocks = layout.num_blocks(pool_bytes)
    return Printed(
        release=_name(release),
        gpu_memory_utilization=rules.gpu_memory_utilization if estimated else None,
        pool_bytes=pool_bytes,
        num_groups=len(layout.groups),
        padding_layers=sum(group.padding_layers for group in layout.groups),
        block_size=layout.block_size,
        block_bytes=layout.block_bytes,
        num_blocks=blocks,
        tokens=layout.tokens(blocks),
        max_concurrency=layout.concurrency(blocks),
        request_blocks=layout.charged_blocks,
        prefix_caching=layout.engine.enable_prefix_caching,
    )


def _name(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def _engine_of(model: Model, engine: EngineConfig, given: Collection[str], rules: Rules) -> EngineConfig:
    """The flags with the defaults that the release had."""
    changes: dict[str, object] = {}
    if rules.batches_in_flight == 1:
        changes["async_scheduling"] = False
    if not rules.caches_states and _has_states(model) and "enable_prefix_caching" not in given:
        changes["enable_prefix_caching"] = False
    latent = any(layer.kind in _LATENT for layer in model.layers)
    if not rules.asks_kernels and not latent and engine.block_size is None:
        changes["block_size"] = 16
    return replace(engine, **changes)  # type: ignore[arg-type]  # the values are those of the fields


def _has_states(model: Model) -> bool:
    return any(layer.state is not None for layer in model.layers if not layer.draft)


def _has_windows(model: Model) -> bool:
    return any(layer.window or layer.chunk_size for layer in model.layers)


def changes_between(model: Model, one: Release, other: Release) -> list[str]:
    """Why the two may print different numbers for this model, each reason in a sentence; the older one comes first.

    >>> from sim.models import load_model
    >>> changes_between(load_model("llama-3.1-8b"), (0, 11), (0, 20))
    []
    >>> [reason.split(":")[0] for reason in changes_between(load_model("gemma-3-27b"), (0, 19), (0, 21))]
    ['tokens line, since 0.21', 'windows, since 0.20']
    """
    older, newer = sorted((one, other))
    return list(_reasons(model, rules_of(older), rules_of(newer)))


def _reasons(model: Model, older: Rules, newer: Rules) -> Iterator[str]:
    if older.old_tokens != newer.old_tokens:
        yield (
            "tokens line, since 0.21: int(concurrency x max_model_len), so it changes with the length asked for; "
            "before, blocks // groups x block_size, the tokens of one group. The pool did not change"
        )
    if older.batches_in_flight != newer.batches_in_flight and _has_windows(model):
        yield (
            "windows, since 0.20: with async scheduling a window is charged for two batches in flight "
            "(2 x max_num_batched_tokens), before for one, so a request costs more and concurrency falls"
        )
    if older.smallest_bucket != newer.smallest_bucket and (_has_windows(model) or _has_states(model)):
        yield (
            "groups, since 0.12: as many layers as the larger kind where it is less than half again as large as the "
            "smaller one; before, always as many as the smaller"
        )
    if older.caches_states != newer.caches_states and _has_states(model):
        yield (
            "states, since 0.20: prefix caching is on by default, so a request is charged two states and blocks are "
            "aligned; before, one state"
        )
    if checkpoints(older) != checkpoints(newer) and any(
        layer.state and layer.state.checkpoints for layer in model.layers
    ):
        yield "states, since 0.31: kernels export a state from inside a chunk, and a request is charged a block for it"
    if older.asks_kernels != newer.asks_kernels:
        yield "block size, since 0.30: the attention kernels choose it; before, 16 tokens unless attention is latent"
    if older.gpu_memory_utilization != newer.gpu_memory_utilization:
        yield "memory, since 0.22: --gpu-memory-utilization is 0.92 by default, before 0.9"
