"""GPUs as their data sheets describe them: memory, bandwidth, peak rates, link speed.

The numbers stand in ``hardware.yaml`` next to this file, each entry with its source and how sure it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sim.errors import InputError, nearest

_FACTS = Path(__file__).with_name("hardware.yaml")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: dense peak rates (no sparsity), ``link_gbs`` in one direction per GPU.

    ``capability`` is CUDA's, an AMD architecture, or ``cpu``: it decides which kernels run, and so which block sizes
    there are. Units: ``mem_gb`` GB (as sold), ``usable_gib`` GiB (as PyTorch reports it, within 0.2), ``mem_bw_gbs``
    and ``link_gbs`` GB/s, ``bf16_tflops`` and ``fp8_tflops`` TFLOP/s; ``fp8_tflops`` is None where the GPU has no FP8.
    ``confidence`` is high, medium or low.
    """

    name: str
    capability: str
    mem_gb: float
    usable_gib: float
    mem_bw_gbs: float
    bf16_tflops: float
    fp8_tflops: float | None
    link_gbs: float
    confidence: str
    source: str
    note: str

    @property
    def exports_gdn_states(self) -> bool:
        """Whether FlashInfer's kernel of gated delta nets runs here, which exports states from inside a chunk.

        On Blackwell it wants CUDA 13 and keys of 128 (vllm 0.33.0
        model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py:240-262).
        """
        return self.capability.startswith(("9.", "10.", "12."))


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs of the catalogue by name, in the order of the file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast, where it was built
    entries: dict[str, dict[str, Any]] = yaml.load(_FACTS.read_text(encoding="utf-8"), Loader=loader)
    return {name: _gpu(name, entry) for name, entry in entries.items()}


def _gpu(name: str, entry: dict[str, Any]) -> Gpu:
    fp8 = entry["fp8_tflops"]
    return Gpu(
        name=name,
        capability=entry["capability"],
        usable_gib=float(entry["usable_gib"]),
        mem_gb=float(entry["mem_gb"]),
        mem_bw_gbs=float(entry["mem_bw_gbs"]),
        bf16_tflops=float(entry["bf16_tflops"]),
        fp8_tflops=None if fp8 is None else float(fp8),
        link_gbs=float(entry["link_gbs"]),
        confidence=entry["confidence"],
        source=entry["source"],
        note=entry.get("note", ""),
    )


def find_gpu(name: str, *, where: str | None = None) -> Gpu:
    """The GPU called ``name``, or the first one that is called so up to its first dash; InputError for an unknown one.

    >>> find_gpu("H200-141GB").mem_bw_gbs, find_gpu("h100").usable_gib
    (4800.0, 79.19)
    """
    known = gpus()
    name = next((full for full in known if full.upper().split("-")[0] == name.upper()), name)
    if name not in known:
        hint = nearest(name, known) or nearest(name.upper(), known)
        meant = f" (nearest: '{hint}')" if hint else ""
        raise InputError(f"unknown GPU '{name}'{meant}; known: {', '.join(known)}", where=where)
    return known[name]
