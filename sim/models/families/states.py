"""Shapes of the states of Mamba, gated delta nets, delta attention and short convolutions, before ranks divide them.

Rules: vllm 0.33.0 model_executor/layers/mamba/mamba_utils.py:120-260 and
model_executor/layers/mamba/abstract.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.models.config import Config
from sim.models.model import LayerShape, StateShape


def state_layer(state: StateShape, depth: int) -> LayerShape:
    """A layer whose cache is ``state``."""
    return LayerShape("mamba", None, 0, 0, 0, state=state, depth=depth)


def mamba1(inner: int, taps: int, size: int) -> StateShape:
    """Mamba: a convolution of ``taps`` and ``size`` numbers per channel."""
    return StateShape(((taps - 1, inner), (inner, size)), (None, None), "mamba1")


def mamba2(
    inner: int, taps: int, size: int, *, heads: int, head_dim: int, groups: int, dtype: str | None = None
) -> StateShape:
    """Mamba 2: keys and values of each group go through the convolution with the input."""
    return StateShape(
        ((taps - 1, inner + 2 * groups * size), (heads, head_dim, size)),
        (None, dtype),
        "mamba2",
        grows_with_drafts=True,
        groups=groups,
        group_channels=2 * size,
        checkpoints=1,
        checkpoint_alignment=1,
    )


def gated_delta_net(config: Config, dtype: str | None) -> StateShape:
    """Qwen's linear attention; FlashInfer's kernel exports states every 64 tokens."""
    key_heads, value_heads = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    key_dim, value_dim = config.integer("linear_key_head_dim"), config.integer("linear_value_head_dim")
    taps = config.integer("linear_conv_kernel_dim")
    return delta_net((key_heads, value_heads), (key_dim, value_dim), taps, dtype)


def delta_net(heads: Sequence[int], sizes: Sequence[int], taps: int, dtype: str | None) -> StateShape:
    """A gated delta net with ``heads`` of keys and of values, and the ``sizes`` of one head of each."""
    channels = 2 * heads[0] * sizes[0] + heads[1] * sizes[1]
    return StateShape(
        ((taps - 1, channels), (heads[1], sizes[1], sizes[0])),
        (None, dtype),
        "gdn_attn",
        grows_with_drafts=True,
        checkpoints=1,
        checkpoint_alignment=64,
        on_block_grid=True,
    )


def delta_attention(heads: int, head_dim: int, taps: int) -> StateShape:
    """Kimi's delta attention, whose state is float32 unless a flag says otherwise."""
    shapes = ((taps - 1, 3 * heads * head_dim), (heads, head_dim, head_dim))
    return StateShape(shapes, (None, "float32"), "gdn_attn", grows_with_drafts=True)


def short_conv(channels: int, taps: int) -> StateShape:
    """A convolution over the last ``taps`` tokens."""
    return StateShape(((taps - 1, channels),), (None,), "short_conv")
