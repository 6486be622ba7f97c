"""Windowed attention over a paged KV cache: FlashAttention or FlashInfer where installed, Triton, or torch alone.

Importing this package imports neither torch nor Triton.
"""

from gpu_check.kernels.batch import Batch, make_batch, padded_table
from gpu_check.kernels.paged import KERNELS, paged_attention, prepare
from gpu_check.kernels.shape import AttentionShape

__all__ = ["KERNELS", "AttentionShape", "Batch", "make_batch", "padded_table", "paged_attention", "prepare"]
