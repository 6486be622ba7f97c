"""Where a GPU's memory goes before the KV cache gets the rest: weights, activations, CUDA graphs."""

from __future__ import annotations

from sim.footprint.amount import Amount
from sim.footprint.overhead import activation_bytes, graph_bytes
from sim.footprint.waterfall import DEFAULT_UTILIZATION, Deployment, Waterfall, estimate_waterfall, given_waterfall
from sim.footprint.weights import rank_weights

__all__ = [
    "DEFAULT_UTILIZATION",
    "Amount",
    "Deployment",
    "Waterfall",
    "activation_bytes",
    "estimate_waterfall",
    "given_waterfall",
    "graph_bytes",
    "rank_weights",
]
