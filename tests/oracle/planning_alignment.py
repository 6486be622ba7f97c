"""Block sizes of models with states beside attention: random geometries, ours against vLLM's platform code.

The first half makes cases and answers them; ``theirs`` runs inside the oracle environment.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.engine_config import EngineConfig
from sim.models import model_from_mapping
from sim.planning import layer_specs
from sim.specs import MambaSpec, Spec

Case = dict[str, Any]


def alignment_case(rng: np.random.Generator) -> Case:
    """One attention layer, one or two states of one kind of kernel, and flags."""
    exports = bool(rng.random() < 0.3)
    return {
        "mla": bool(rng.random() < 0.3),
        "num_kv_heads": int(rng.choice([1, 2, 4, 8])),
        "head_size": int(rng.choice([64, 128, 192, 256])),
        "kv_cache_dtype": str(rng.choice(["auto", "auto", "fp8"])),
        "block_size": int(rng.choice([16, 16, 32, 48, 64, 128])),
        "shapes": [[int(rng.integers(2, 5)), int(rng.choice([512, 1000, 8192]))], [int(rng.choice([8, 32])), 64, 96]],
        "ssm_dtype": str(rng.choice(["auto", "float32", "bfloat16"])),
        "enable_prefix_caching": bool(rng.random() < 0.7),
        "mamba_block_size": None,
        "checkpoint_alignment": int(rng.choice([16, 64, 100])) if exports else None,
        "prefix_match_unit": int(rng.choice([16, 48])) if rng.random() < 0.2 else None,
    }


def ours(case: Case) -> Case:
    """Our block sizes and padding."""
    heads = {"num_kv_heads": case["num_kv_heads"], "head_size": case["head_size"]}
    attention = {"kind": "mla", "head_size": 576} if case["mla"] else {"kind": "full"}
    state: Case = {"kind": "mamba", "state_shapes": case["shapes"]}
    if case["checkpoint_alignment"]:
        state |= {"checkpoints": 1, "checkpoint_alignment": case["checkpoint_alignment"], "on_block_grid": True}
    model = model_from_mapping({"layers": [attention, state], **heads, "max_model_len": 65536})
    engine = EngineConfig(
        max_model_len=4096,
        max_num_batched_tokens=4096,
        max_num_seqs=8,
        block_size=case["block_size"],
        kv_cache_dtype=case["kv_cache_dtype"],
        mamba_ssm_cache_dtype=case["ssm_dtype"],
        enable_prefix_caching=case["enable_prefix_caching"],
        prefix_match_unit=case["prefix_match_unit"],
    )
    return answer(*layer_specs(model, engine).values())


def answer(attention: Spec, state: Spec) -> Case:
    """The numbers that are compared."""
    assert isinstance(state, MambaSpec)
    return {
        "block_size": attention.block_size,
        "page": attention.page_size_bytes,
        "mamba_block_size": state.block_size,
        "mamba_page_size_padded": state.page_size_padded,
        "state": state.unpadded_page_size_bytes,
        "checkpoint": [state.num_prefill_checkpoint_blocks, state.prefill_checkpoint_alignment],
    }


def theirs(case: Case) -> Case:
    """vLLM's, with its platform's alignment on a described model (vllm 0.33.0 platforms/interface.py:940)."""
    from unittest.mock import patch

    import torch
    from vllm.model_executor.layers.mamba import abstract
    from vllm.model_executor.models import ModelRegistry
    from vllm.platforms.interface import Platform
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1.attention.backend import MultipleOf

    settings = described(case)
    kernel = 64 if case["mla"] and case["kv_cache_dtype"] == "fp8" else 16
    backend = SimpleNamespace(
        customize_spec=lambda spec: spec, get_supported_kernel_block_sizes=lambda: [MultipleOf(kernel)]
    )
    ssm = torch.bfloat16 if case["ssm_dtype"] == "auto" else STR_DTYPE_TO_TORCH_DTYPE[case["ssm_dtype"]]
    shapes, dtypes = tuple(map(tuple, case["shapes"])), (torch.bfloat16, ssm)
    described_class = SimpleNamespace(
        get_mamba_state_shape_from_config=lambda _: shapes, get_mamba_state_dtype_from_config=lambda _: dtypes
    )
    layer = SimpleNamespace(get_prefill_checkpoint_alignment=lambda: case["checkpoint_alignment"])
    layers = {"one": layer}
    if settings.cache_config.block_size % kernel:
        settings.cache_config.block_size = kernel
    with (
        patch.object(ModelRegistry, "resolve_model_cls", lambda *_, **__: (described_class, "")),
        patch.object(abstract, "get_layers_from_vllm_config", lambda *_: layers),
        patch.object(Platform, "_find_non_ssm_backends", classmethod(lambda *_: [backend])),
        patch("vllm.config.vllm.set_current_vllm_config", lambda _: __import__("contextlib").nullcontext()),
    ):
        Platform._align_hybrid_block_size(settings, backend)
        grid = abstract.get_mamba_prefill_checkpoint_grid(settings) if case["checkpoint_alignment"] else None
    return built(case, settings, shapes, dtypes, grid)


def described(case: Case) -> Any:
    """As much of a VllmConfig as the alignment asks about, mamba block sizes set as for any model with states."""
    import torch

    caching = case["enable_prefix_caching"]
    cache = SimpleNamespace(
        cache_dtype=case["kv_cache_dtype"],
        block_size=case["block_size"],
        mamba_cache_mode="align" if caching else "none",
        mamba_block_size=case["block_size"] if caching else 4096,
        mamba_page_size_padded=None,
        kv_cache_dtype_skip_layers=[],
        prefix_match_unit=case["prefix_match_unit"],
    )
    model = SimpleNamespace(
        use_mla=case["mla"],
        dtype=torch.bfloat16,
        architecture="",
        get_num_kv_heads=lambda _: 1 if case["mla"] else case["num_kv_heads"],
        get_head_size=lambda: 576 if case["mla"] else case["head_size"],
    )
    return SimpleNamespace(cache_config=cache, model_config=model, parallel_config=None)


def built(case: Case, settings: Any, shapes: Any, dtypes: Any, grid: int | None) -> Case:
    """The specs vLLM builds after the alignment, as numbers."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec

    cache, model = settings.cache_config, settings.model_config
    dtype = torch.bfloat16 if case["kv_cache_dtype"] == "auto" else torch.float8_e4m3fn
    attention = (MLAAttentionSpec if case["mla"] else FullAttentionSpec)(
        block_size=cache.block_size,
        num_kv_heads=model.get_num_kv_heads(None),
        head_size=model.get_head_size(),
        dtype=dtype,
    )
    padded = cache.mamba_page_size_padded
    state = MambaSpec(block_size=cache.mamba_block_size, shapes=shapes, dtypes=dtypes, page_size_padded=padded)
    exports = grid is not None and cache.mamba_cache_mode == "align"
    return {
        "block_size": cache.block_size,
        "page": attention.page_size_bytes,
        "mamba_block_size": cache.mamba_block_size,
        "mamba_page_size_padded": padded,
        "state": state.real_page_size_bytes,
        "checkpoint": [1, grid] if exports else [0, None],
    }
