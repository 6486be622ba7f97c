"""Attention blocks large enough to hold a state, and states padded to the page: models of attention and Mamba layers.

All groups draw blocks of one size from one pool, so a page of attention must be as large as a state. vLLM raises the
attention block size until it is, which is where blocks of 528 or 2,096 tokens come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sim.engine_config import EngineConfig
from sim.models import LayerShape, Model, StateShape
from sim.planning.backend import Backend, resolved_kv_cache_dtype
from sim.planning.backends import kinds_of_kernels, preferred_block_size
from sim.planning.skip_layers import packed_bytes, shared_page
from sim.specs import MambaSpec
from sim.units import cdiv, dtype_bytes

_MLA_BLOCK = 128
"""Tokens that blocks of hybrids of MLA and states are a multiple of."""


@dataclass(frozen=True, slots=True)
class BlockAlignment:
    """Tokens per attention block and per block of states; bytes that states are padded to, None: not at all.

    ``shared_page``: bytes that layers with a window are padded to, where some layers are left out of quantization.
    """

    block_size: int
    mamba_block_size: int
    mamba_page_size_padded: int | None
    shared_page: int | None = None


def align_blocks(model: Model, engine: EngineConfig) -> BlockAlignment:
    """The block sizes of a model's layers (vllm 0.33.0 platforms/interface.py:940-1137).

    >>> from sim.models import load_model
    >>> flags = {"max_model_len": 131072, "max_num_batched_tokens": 8192, "max_num_seqs": 256}
    >>> align_blocks(load_model("granite-4.0-h-small"), EngineConfig(**flags))
    BlockAlignment(block_size=528, mamba_block_size=528, mamba_page_size_padded=2162688, shared_page=None)
    """
    backends = kinds_of_kernels(model, engine) if model.kernels is not None else []
    blocks = _aligned_to_states(model, engine, backends)
    padded = blocks.mamba_page_size_padded
    block_size, page = shared_page(model, engine, backends, blocks.block_size, padded)
    return replace(
        blocks,
        block_size=block_size,
        mamba_page_size_padded=padded if page is None or padded is None else page,
        shared_page=page,
    )


def _aligned_to_states(model: Model, engine: EngineConfig, backends: list[Backend]) -> BlockAlignment:
    kernels, block_size = _kernel_blocks(model, engine, backends)
    align = engine.resolved_mamba_cache_mode == "align"
    of_its_own = engine.mamba_block_size or (block_size if align else engine.max_model_len)
    states = [layer.state for layer in model.layers if layer.state is not None and not layer.draft]
    per_token = _bytes_per_token(model, engine, backends)
    if not states or not per_token:
        return BlockAlignment(block_size, of_its_own, None)
    state_bytes = max(state_spec(state, model, engine, None).unpadded_page_size_bytes for state in states)
    unit = max(kernels[0], block_size)
    own = _own_attention(model)
    if own is not None and own.kind == "mla":
        unit = max(unit, _MLA_BLOCK)
    if align:
        unit = math.lcm(unit, _common_grid(states, model, engine))
    common = math.lcm(*kernels)
    fitting = unit * cdiv(state_bytes, unit * per_token)
    block_size = max(block_size, cdiv(fitting, common) * common)
    page = block_size * per_token
    return BlockAlignment(block_size, block_size if align else of_its_own, None if page == state_bytes else page)


def _kernel_blocks(model: Model, engine: EngineConfig, backends: list[Backend]) -> tuple[list[int], int]:
    """The smallest block of each kind of kernel, and the engine's block size, or theirs where none is given.

    Of a model written out in a scenario only what it says itself is known; MLA kernels that read a quantized cache want
    64 on Hopper.
    """
    if model.kernels is not None:
        default = 128 if engine.device_capability == "cpu" else 16
        block_size = engine.block_size or preferred_block_size(backends, default)
        return [min(backend.sizes) for backend in backends] or [1], block_size
    quantized = engine.kv_cache_dtype.startswith("fp8") and any(layer.kind == "mla" for layer in model.layers)
    kernel = max(model.kernel_block_size, 64 if quantized else 1)
    given = engine.block_size or 16
    block_size = given if given % kernel == 0 else kernel
    return [16 if kernel == 1 and block_size % 16 == 0 else kernel], block_size


def _bytes_per_token(model: Model, engine: EngineConfig, backends: list[Backend]) -> int:
    """Bytes of one token in one layer of the model's own attention, 0 if it has none."""
    dtype = resolved_kv_cache_dtype(model, engine)
    dtype = model.dtype if dtype == "auto" else dtype
    layer = _own_attention(model)
    if layer is None:
        return 0
    heads = max(1, layer.num_kv_heads // engine.tensor_parallel_size)
    return heads * packed_bytes(backends[0] if backends else None, layer.head_size, layer.head_size_v, dtype)


def _own_attention(model: Model) -> LayerShape | None:
    """The first layer of the model's own attention."""
    return next((layer for layer in model.layers if layer.is_own_attention), None)


def _common_grid(states: list[StateShape], model: Model, engine: EngineConfig) -> int:
    """Tokens that blocks are a multiple of so that kernels can export states at their edges, 1 if one cannot."""
    if not all(state.on_block_grid and _exports(state, model, engine) for state in states):
        return 1
    return math.lcm(*(state.checkpoint_alignment or 1 for state in states))


def _exports(state: StateShape, model: Model, engine: EngineConfig) -> bool:
    """Whether this device has a kernel that exports such states; on Blackwell only for keys of 128.

    vllm 0.33.0 model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py:240-262 and models/kimi_k3/nvidia/kda.py:363.
    """
    if state.needs_hopper:
        return model.dtype == "bfloat16" and engine.device_capability.startswith(("9.", "10.", "12."))
    if not state.on_block_grid:
        return True
    blackwell = engine.device_capability.startswith(("10.", "12.")) and state.mamba_type == "gdn_attn"
    return engine.flashinfer_gdn_prefill and not (blackwell and state.shapes[-1][-1] != 128)


def state_spec(state: StateShape, model: Model, engine: EngineConfig, blocks: BlockAlignment | None) -> MambaSpec:
    """The spec of a layer with a state; without ``blocks``, as far as its page goes.

    Exported states on the grid of blocks need prefix caching, and kernels for it (vllm 0.33.0
    model_executor/layers/mamba/abstract.py:72-129).
    """
    mode = engine.resolved_mamba_cache_mode
    checkpoints, alignment = state.checkpoints, state.checkpoint_alignment
    if not _exports(state, model, engine):
        checkpoints, alignment = 0, None
    block_size = blocks.mamba_block_size if blocks else 1
    if state.on_block_grid:
        exports = mode == "align" and _exports(state, model, engine)
        unit = engine.prefix_match_unit
        grid = block_size if unit is None else math.lcm(unit, alignment or 1)
        checkpoints, alignment = (checkpoints, grid) if exports else (0, None)
    return MambaSpec(
        block_size,
        page_size_padded=blocks.mamba_page_size_padded if blocks else None,
        shapes=_rank_shapes(state, engine),
        dtypes=_dtypes(state, model, engine),
        mamba_type=state.mamba_type,
        mamba_cache_mode=mode,
        num_speculative_blocks=engine.num_speculative_tokens,
        num_prefill_checkpoint_blocks=checkpoints,
        prefill_checkpoint_alignment=alignment,
        tp_replicated=state.tp_replicated,
    )


def _rank_shapes(state: StateShape, engine: EngineConfig) -> tuple[tuple[int, ...], ...]:
    ranks = 1 if state.tp_replicated else engine.tensor_parallel_size
    shapes = []
    for position, shape in enumerate(state.shapes):
        sizes = list(shape)
        divided = -1 if position == 0 and len(sizes) == 2 else 0
        if position == 0 and state.groups:
            sizes[divided] += (_groups_for(state.groups, ranks) - state.groups) * state.group_channels
        sizes[divided] //= ranks
        if position == 0 and state.grows_with_drafts:
            sizes[0] += engine.num_speculative_tokens
        shapes.append(tuple(sizes))
    return tuple(shapes)


def _groups_for(groups: int, ranks: int) -> int:
    """Groups of channels after replication: ranks that do not divide them get one each."""
    return groups if groups % ranks == 0 else ranks


def _dtypes(state: StateShape, model: Model, engine: EngineConfig) -> tuple[str, ...]:
    """The convolution's dtype by flag or the model's; the other tensors' by flag, by the family, or the same."""
    first = model.dtype if engine.mamba_cache_dtype == "auto" else engine.mamba_cache_dtype
    others = None if engine.mamba_ssm_cache_dtype == "auto" else engine.mamba_ssm_cache_dtype
    chosen = [first, *(others or given or first for given in state.dtypes[1:])]
    for dtype in chosen:
        dtype_bytes(dtype)
    return tuple(chosen)
