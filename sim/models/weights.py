"""How many bytes a model's weights take on one GPU: from its parameter count and the bits of each weight."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.model import Model
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Weights of a whole model and of the fullest GPU, in bytes; ``num_params`` counts them once.

    ``exact``: every weight was counted and has the size it is stored in; else an estimate.
    """

    num_params: int
    total_bytes: int
    rank_bytes: int
    exact: bool


def weight_bytes(model: Model, *, tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1) -> WeightBytes:
    """The weights of ``model``, dealt out evenly to the ranks of all stages.

    More than one rank makes it an estimate: norms, and KV heads below one per rank, are held by each, and the stages
    with the embedding and the output head are fuller.

    >>> from sim.models import load_model
    >>> weight_bytes(load_model("llama-3.1-8b"), tensor_parallel_size=2).rank_bytes
    8029995008
    """
    dense = model.params_total - model.expert_params
    total = round(dense * model.weight_bytes_per_param + model.expert_params * model.expert_bytes_per_param)
    ranks = tensor_parallel_size * pipeline_parallel_size
    return WeightBytes(model.params_total, total, cdiv(total, ranks), exact=False)
