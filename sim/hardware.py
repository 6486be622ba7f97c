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

    Units: ``mem_gb`` GB (as sold), ``mem_bw_gbs`` and ``link_gbs`` GB/s, ``bf16_tflops`` and ``fp8_tflops`` TFLOP/s;
    ``fp8_tflops`` is None where the GPU has no FP8. ``confidence`` is high, medium or low.
    """

    name: str
    mem_gb: float
    mem_bw_gbs: float
    bf16_tflops: float
    fp8_tflops: float | None
    link_gbs: float
    confidence: str
    source: str
    note: str


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs of the catalogue by name, in the order of the file."""
    with _FACTS.open(encoding="utf-8", newline="") as lines:
        return {row["name"]: _gpu(row) for row in csv.DictReader(lines)}


def _gpu(row: dict[str, str]) -> Gpu:
    return Gpu(
        name=row["name"],
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
    """The GPU called ``name``; raises InputError for an unknown one, with the nearest name.

    >>> find_gpu("H200-141GB").mem_bw_gbs
    4800.0
    """
    known = gpus()
    if name not in known:
        hint = nearest(name, known) or nearest(name.upper(), known)
        meant = f" (nearest: '{hint}')" if hint else ""
        raise InputError(f"unknown GPU '{name}'{meant}; known: {', '.join(known)}", where=where)
    return known[name]
