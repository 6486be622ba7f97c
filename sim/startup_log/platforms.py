"""What a log says of the hardware: how it is recognised, and how many tokens a block holds there by default."""

from __future__ import annotations

from typing import Final

_MARKERS: Final = {
    "CPU KV cache size": "CPU",
    "detected platform cpu": "CPU",
    "VLLM_CPU_KVCACHE_SPACE": "CPU",
    "cpu_worker.py": "CPU",
    "NPU KV cache": "NPU",
    "NPU blocks": "NPU",
    "NPUWorker": "NPU",
    "NPU memory": "NPU",
    "vllm_ascend": "NPU",
    "vllm-ascend": "NPU",
    "plugin ascend": "NPU",
    "XPU KV cache size": "XPU",
    "detected platform xpu": "XPU",
    "xpu_worker.py": "XPU",
    "HPU blocks": "HPU",
    "hpu_worker.py": "HPU",
    "vllm_gaudi": "HPU",
    "TPU KV cache size": "TPU",
    "detected platform tpu": "TPU",
    "tpu_runner.py": "TPU",
    "tpu_jax_runner.py": "TPU",
    "tpu_worker.py": "TPU",
    "tpu_inference": "TPU",
}

_BLOCK_SIZES: Final[dict[str, tuple[int, ...]]] = {
    "CPU": (128, 16),
    "NPU": (128,),
    "HPU": (128,),
    "XPU": (64, 16),
    "TPU": (16, 32, 64, 128, 256),
}
"""Tokens of a block unless a flag says otherwise, the likeliest first: it changed between releases and kernels."""


def platform_of(line: str) -> str | None:
    """The platform that a line of a log gives away, None for most lines.

    >>> platform_of("INFO Platform plugin ascend is activated"), platform_of("GPU KV cache size: 1 tokens")
    ('NPU', None)
    """
    return next((platform for marker, platform in _MARKERS.items() if marker in line), None)


def default_block_sizes(platform: str) -> tuple[int, ...]:
    """The block sizes a platform starts with; none where the kernels decide, as on GPUs.

    >>> default_block_sizes("CPU"), default_block_sizes("GPU")
    ((128, 16), ())
    """
    return _BLOCK_SIZES.get(platform, ())
