"""Groups, blocks and printed numbers of one setting, under the rules of one release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sim.engine_config import EngineConfig
from sim.models import Model
from sim.planning import KVCacheGroup, effective_engine, layer_specs, stage_names
from sim.planning.grouping import get_kv_cache_groups, group_size
from sim.planning.plan import mark_eagle
from sim.planning.sizing import block_bytes_of, blocks_per_request
from sim.planning.stages import split_groups
from sim.planning.state_alignment import align_blocks
from sim.specs import MambaSpec
from sim.startup_log.releases import Rules

_NO_CHECKPOINTS = (0, 31)
"""Releases before it export no states from inside a chunk."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything the printed numbers follow from, but the memory."""

    model: Model
    engine: EngineConfig
    rules: Rules
    layers_per_group: int | None = None


class Layout:
    """The groups of a setting, and the numbers vLLM would print for a given number of blocks.

    Raises what planning raises for a setting that vLLM refuses.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        rules = setting.rules
        model = setting.model if checkpoints(rules) else _without_checkpoints(setting.model)
        self.model = model
        self.engine = effective_engine(model, setting.engine)
        layers = layer_specs(model, self.engine)
        self.groups = mark_eagle(
            get_kv_cache_groups(
                layers,
                disable_hybrid_kv_cache_manager=self.engine.disable_hybrid_kv_cache_manager,
                block_outermost=self.engine.block_outermost,
                layers_per_group=self._layers_per_group,
            ),
            layers,
        )
        one = self.engine.pipeline_parallel_size == 1
        self.stages = [self.groups] if one else split_groups(self.groups, stage_names(model, self.engine))

    def _layers_per_group(self, buckets: Sequence[int]) -> int:
        if self.setting.layers_per_group is not None:
            return self.setting.layers_per_group
        return min(buckets) if self.setting.rules.smallest_bucket else group_size(buckets)

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of a block on the fullest stage."""
        return max(self._block_bytes(stage) for stage in self.stages)

    def _block_bytes(self, groups: Sequence[KVCacheGroup]) -> int:
        return block_bytes_of(groups, block_outermost=self.engine.block_outermost)

    def request_blocks(self, tokens: int) -> int:
        """Blocks one request of ``tokens`` tokens is charged."""
        return blocks_per_request(self.groups, self.engine, tokens)

    def num_blocks(self, num_bytes: int) -> int:
        """Blocks in ``num_bytes`` on each rank."""
        return num_bytes // self.block_bytes

    def tokens(self, num_blocks: int) -> int:
        """The tokens line: of one group up to 0.20, of requests of max_model_len since."""
        if self.setting.rules.old_tokens:
            per_group = num_blocks // len(self.groups)
            return per_group * self.block_size * self.engine.decode_context_parallel_size
        return int(self.concurrency(num_blocks) * self.engine.max_model_len)

    def concurrency(self, num_blocks: int) -> float:
        """The concurrency line, unrounded."""
        return num_blocks / self.charged_blocks

    @cached_property
    def charged_blocks(self) -> int:
        """Blocks one request of max_model_len is charged."""
        return self.request_blocks(self.engine.max_model_len)

    @property
    def block_size(self) -> int:
        """Tokens of the shortest block."""
        return min(group.block_size for group in self.groups)

    @property
    def attention_block_size(self) -> int:
        """Tokens of a block of the model's own attention: rings and what compresses keys have shorter ones."""
        return align_blocks(self.model, self.engine).block_size

    @property
    def state_padding_percent(self) -> float | None:
        """How much larger than the state its page is, None without states."""
        specs = [spec for group in self.groups for spec in group.layer_specs if isinstance(spec, MambaSpec)]
        if not specs:
            return None
        largest = max(specs, key=lambda spec: spec.unpadded_page_size_bytes)
        return 100 * (largest.page_size_bytes / largest.unpadded_page_size_bytes - 1)

    @property
    def paddings(self) -> list[tuple[int, float]]:
        """Per kind of layers that are padded: padding layers, and those in per cent of the kind's layers."""
        kinds: dict[tuple[str, int | None], list[KVCacheGroup]] = {}
        for group in self.groups:
            kinds.setdefault((group.kind, group.window or group.chunk_size), []).append(group)
        found = []
        for groups in kinds.values():
            longest = max(len(group.layer_names) for group in groups)
            uneven = sum(longest - len(group.layer_names) for group in groups)
            padding = max(uneven, sum(group.padding_layers for group in groups))
            layers = sum(len(group.layer_names) for group in groups)
            if padding:
                found.append((padding, 100 * padding / layers))
        return found

    def longest(self, usable_bytes: int) -> int:
        """Tokens of the longest request that ``usable_bytes`` hold, at most max_model_len; 0 if none does."""
        longest, low, high = 0, 1, self.engine.max_model_len
        while low <= high:
            middle = (low + high) // 2
            if self.block_bytes * self.request_blocks(middle) <= usable_bytes:
                longest, low = middle, middle + 1
            else:
                high = middle - 1
        return longest


def checkpoints(rules: Rules) -> bool:
    """Whether a release exports states from inside a chunk."""
    return (rules.release or (0, 33)) >= _NO_CHECKPOINTS


def _without_checkpoints(model: Model) -> Model:
    layers = tuple(
        replace(layer, state=replace(layer.state, checkpoints=0)) if layer.state is not None else layer
        for layer in model.layers
    )
    return replace(model, layers=layers)
