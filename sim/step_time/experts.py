"""Experts spread over ranks: who holds how many, and what is sent so that tokens and experts meet.

With ``enable_expert_parallel`` the tensor-parallel ranks of all data-parallel engines hold the experts together. Within
one engine every rank has all tokens anyway, and what it adds to them is summed by the all-reduce that is there without
experts too. Between engines tokens are sent out to the experts and their results back (vllm 0.33.0
model_executor/layers/fused_moe/config.py:1035, :1198-1230), by the default backend as an all-gather and a
reduce-scatter of all tokens (distributed/device_communicators/all2all.py:55), by the others to the experts chosen::

    engine 0   rank 0  | x x x x |         all-gather: every rank gets the tokens of all others, (EP - 1) / EP of them
               rank 1  | x x x x |         all-to-all: a token goes to its k experts, (EP - 1) / EP of them elsewhere
    engine 1   rank 2  | x x x x |
               rank 3  | x x x x |   EP = 4, 4 tokens held by each rank
"""

from __future__ import annotations

from sim.engine_config import EngineConfig
from sim.models import Model
from sim.units import dtype_bytes

_GATHERING = ("allgather_reducescatter", "naive", "pplx")
"""Backends that send every token to all: the default, and old names of it (vllm 0.33.0 config/parallel.py:537)."""


def sharing_engines(model: Model, engine: EngineConfig) -> int:
    """Data-parallel engines that hold the experts together; 1 where each has all of them.

    They are taken to have batches alike: their ranks wait for each other in every layer.
    """
    return engine.data_parallel_size if engine.enable_expert_parallel and model.num_experts else 1


def touched_per_token(model: Model, engines: int) -> float:
    """Experts that a token of one engine touches, so that ``n`` of them touch what ``n`` of each engine do.

    Of E experts with k a token, ``n`` tokens of each of D engines leave (1 - k/E)^(nD) untouched: the same as with
    E (1 - (1 - k/E)^D) experts a token.
    """
    if not model.num_experts:
        return float(model.experts_per_token)
    untouched = 1.0 - model.experts_per_token / model.num_experts
    return model.num_experts * (1.0 - untouched**engines) if engines > 1 else float(model.experts_per_token)


def exchanged_bytes(model: Model, engine: EngineConfig) -> float:
    """Bytes over one rank's link per token of its engine: out to the experts and back, in all layers.

    Every decoder layer is taken to have experts. The tokens of an engine are dealt out to its ranks for this (vllm
    0.33.0 config/parallel.py:769); a hidden state goes out in the model's data type, as it comes back.
    """
    engines = sharing_engines(model, engine)
    if engines == 1:
        return 0.0
    ranks = engine.tensor_parallel_size * engines
    state = model.hidden_size * dtype_bytes(model.dtype)
    chosen = model.experts_per_token / engine.tensor_parallel_size
    copies = engines if engine.all2all_backend in _GATHERING else chosen
    return 2.0 * model.num_hidden_layers * state * copies * (ranks - 1) / ranks
