"""Where one GPU's memory goes, as a waterfall from all of it down to the KV cache."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from sim.footprint import Waterfall
from sim.report.style import BLUE, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure, save, styled, titled
from sim.units import GIB

_LOOKS = {
    "total": ("GPU memory", GREY),
    "reserved": ("kept back by\ngpu_memory_utilization", SKY),
    "weights": ("weights", VERMILION),
    "activations": ("activations", ORANGE),
    "graphs": ("CUDA graphs", PURPLE),
    "kv_cache": ("KV cache", BLUE),
}


def write_waterfall_figure(path: Path, waterfall: Waterfall, subtitle: str) -> None:
    """Draw the waterfall into the PNG at ``path``."""
    with styled():
        save(waterfall_figure(waterfall, subtitle), path)


def waterfall_figure(waterfall: Waterfall, subtitle: str) -> Figure:
    """One bar a step, each hanging where the one before ended; estimates carry their spread."""
    figure, (axis,) = new_figure(9, 4.8)
    titled(figure, "Where does the memory of one GPU go, and what is left for the KV cache?", subtitle)
    amounts = dict(waterfall.steps())
    names: list[str] = []
    top = 0.0
    for name in ("total", "reserved", "weights", "activations", "graphs", "kv_cache"):
        amount = amounts.get(name)
        if name == "reserved" and {"total", "requested"} <= amounts.keys():
            size, spread, known = (amounts["total"].num_bytes - amounts["requested"].num_bytes) / GIB, 0.0, ""
        elif amount is None:
            continue
        else:
            size, spread, known = amount.num_bytes / GIB, amount.spread_bytes / GIB, amount.source
        label, colour = _LOOKS[name]
        bottom = 0.0 if name in ("total", "kv_cache") else top - size
        axis.bar(len(names), size, bottom=bottom, color=colour, width=0.62, yerr=spread or None, capsize=4)
        words = f"{size:.2f} GiB" + (f"\n{known}" if known else "") + (f" ± {spread:.2f}" if spread else "")
        at = (len(names), bottom + size + spread)
        axis.annotate(words, at, xytext=(0, 4), textcoords="offset points", ha="center")
        top = size if name == "total" else bottom
        names.append(label)
    axis.set_xticks(range(len(names)), names)
    axis.set(xlabel="from all of it to what is left", ylabel="GiB of one GPU")
    axis.margins(y=0.16)
    axis.grid(visible=False, axis="x")
    return figure
