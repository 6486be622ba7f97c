"""GPUs as their data sheets describe them: memory, bandwidth, peak rates, link speed.

The numbers stand in ``hardware.csv`` next to this file, one GPU a line, each line with its source and how sure it is.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sim.errors import InputError, nearest

_FACTS = Path(__file__).with_name("hardware.csv")


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
    with _FACTS.open(encoding="utf-8", newline="") as lines:
        return {row["name"]: _gpu(row) for row in csv.DictReader(lines)}


def _gpu(row: dict[str, str]) -> Gpu:
    return Gpu(
        name=row["name"],
        capability=row["capability"],
        usable_gib=float(row["usable_gib"]),
        mem_gb=float(row["mem_gb"]),
        mem_bw_gbs=float(row["mem_bw_gbs"]),
        bf16_tflops=float(row["bf16_tflops"]),
        fp8_tflops=float(row["fp8_tflops"]) if row["fp8_tflops"] else None,
        link_gbs=float(row["link_gbs"]),
        confidence=row["confidence"],
        source=row["source"],
        note=row["note"],
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
