"""What profiling finds beside the weights: activations, logits, the CUDA context, CUDA graphs. Estimates.

The dummy run's peak is the sampler, not the layers: logits of ``max_num_seqs`` requests in several copies, so it grows
with the vocabulary and not with the model. ``measured.csv`` next to this file holds startup logs that print both sides;
the spread stated here is what the estimate is off by there.
"""

from __future__ import annotations

from typing import Final

from sim.footprint.amount import Amount
from sim.models import Model
from sim.units import GIB

BYTES_PER_LOGIT: Final = 16.0
"""Bytes of all copies of one logit while vLLM 0.33.0 profiles its sampler; releases up to 0.13 sorted, and took 38."""

BYTES_PER_SORTED_LOGIT: Final = 38.4
"""The same, for releases whose sampler sorted all logits."""

_CONTEXT = int(0.14 * GIB)
_COLLECTIVES = int(0.42 * GIB)
_BYTES_PER_HIDDEN: Final = 32
"""Bytes of hidden states, and of what a layer makes of them, per token and element of the hidden size."""

_SHARE, _LEAST = 0.45, int(0.5 * GIB)


def activation_bytes(
    model: Model,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    num_ranks: int = 1,
    vocab_size: int,
    bytes_per_logit: float = BYTES_PER_LOGIT,
) -> Amount:
    """Peak of the profiling run beside the weights, with the CUDA context and the buffers of collectives."""
    logits = int(min(max_num_seqs, max_num_batched_tokens) * vocab_size * bytes_per_logit)
    tokens = max_num_batched_tokens * model.hidden_size * _BYTES_PER_HIDDEN
    total = _CONTEXT + (_COLLECTIVES if num_ranks > 1 else 0) + max(logits, tokens)
    return Amount(total, "estimate", _LEAST + int(_SHARE * total))


def graph_bytes(model: Model, *, enabled: bool) -> Amount:
    """What vLLM expects CUDA graphs to take, which it takes off the KV cache since 0.21."""
    if not enabled:
        return Amount(0, "exact")
    total = int((0.2 + 0.008 * model.num_hidden_layers) * GIB)
    return Amount(total, "estimate", total)
