"""How vLLM words the numbers it prints at start: one pattern per wording, releases 0.6 to 0.33 and their plugins."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NUMBER: Final = r"(-?\d[\d,]*(?:\.\d+)?)"


class Wording(NamedTuple):
    """A pattern, the names of the numbers its groups hold, and what such a number means."""

    pattern: re.Pattern[str]
    names: tuple[str, ...]


def _word(pattern: str, *names: str) -> Wording:
    return Wording(re.compile(pattern.replace("#", NUMBER), re.IGNORECASE), names)


WORDINGS: Final = (
    _word(r"Available KV cache memory: # ?GiB", "available_gib"),
    _word(r"rest of the memory reserved for KV Cache is # ?GiB", "available_gib"),
    _word(r"kv_cache_size=# ?GiB", "available_gib"),
    _word(r"(?:Explicitly|Auto) set \(#/#\) GiB for KV cache", "available_gib", "node_gib"),
    _word(r"for CPU backend is not set, using # by default", "available_gib"),
    _word(r"# ?GiB reserved for KV ?cache", "available_gib"),
    _word(r"reserved # ?GiB memory for KV ?Cache as specified by kv_cache_memory_bytes", "available_gib"),
    _word(r"Available memory: #, total memory: #", "available_bytes", "total_bytes"),
    _word(r"Available KV cache memory: #(?: bytes| B)\b", "available_bytes"),
    _word(r"Current kv cache memory in use is # bytes", "available_bytes"),
    _word(r"Overriding num_gpu_blocks=# with num_gpu_blocks_override=#", "profiled_blocks", "num_gpu_blocks"),
    _word(r"KV cache size: # tokens", "tokens"),
    _word(r"Maximum concurrency for # tokens per request: #x", "max_concurrency_len", "concurrency"),
    _word(r"\b(?:GPU|NPU|HPU|XPU|TPU|cuda|neuron) blocks: #", "num_gpu_blocks"),
    _word(r"(?<!Overriding )num_gpu_blocks(?: is|=|:) ?#", "num_gpu_blocks"),
    _word(r"Setting attention block size to # tokens", "attention_block_size"),
    _word(r"Padding mamba page size by #%", "mamba_padding_percent"),
    _word(r"Add # padding layers, may waste at most #%", "padding_layers", "padding_percent"),
    _word(r"max seq len \(#\), \(?# ?GiB KV cache is needed", "needed_for_len", "needed_gib"),
    _word(r"larger than the available KV cache memory \(# ?GiB\)", "available_gib"),
    _word(r"estimated maximum model length is #", "estimated_max_len"),
    _word(r"max seq len \(#\) is larger than the maximum .* KV cache \(#\)", "needed_for_len", "tokens"),
    _word(r"exceeds available Mamba cache blocks \(#\)", "mamba_blocks"),
    _word(r"max_num_seqs \(#\) exceeds", "max_num_seqs"),
    _word(r"Model loading took # ?Gi?B", "weights_gib"),
    _word(r"Actual usage is # GiB for weight\b", "weights_gib"),
    _word(r"# GiB for peak activation", "activations_gib"),
    _word(r"PyTorch activation peak memory takes # ?GiB", "activations_gib"),
    _word(r"# GiB for (?:CUDA|NPU) ?Graph memory", "graphs_gib"),
    _word(r"CUDA graph pool memory: # GiB \(actual\), # GiB \(estimated\)", "graphs_gib", "graphs_estimate_gib"),
    _word(r"Estimated CUDA graph memory: # GiB", "graphs_estimate_gib"),
    _word(r"Free memory on device \(#/# GiB\) on startup", "free_gib", "device_gib"),
    _word(r"total_gpu_memory \(# ?GiB\) x gpu_memory_utilization \(#\)", "device_gib", "gpu_memory_utilization"),
    _word(r"Desired GPU memory utilization is \(#, # GiB\)", "gpu_memory_utilization", "requested_gib"),
    _word(r"Loading model weights took # ?Gi?B", "weights_gib"),
    _word(r"model weights take # ?GiB", "weights_gib"),
    _word(r"Graph capturing finished in .* took # ?GiB", "graphs_gib"),
    _word(r"Using max model len #", "max_seq_len"),
    _word(r"Chunked prefill is enabled with max_num_batched_tokens ?= ?#", "max_num_batched_tokens"),
    _word(r"Auto-fit max_model_len: reduced from # to #", "auto_fit_from", "auto_fit_to"),
    _word(r"max_seq_len=#", "max_seq_len"),
)

MEANINGS: Final = {
    "available_gib": "memory left for the KV cache on one rank",
    "available_bytes": "memory left for the KV cache on one rank",
    "tokens": "tokens of one request of that length, times how many of them fit",
    "concurrency": "requests of that length that fit at once, charged in full",
    "num_gpu_blocks": "blocks of the pool, the null block included",
    "attention_block_size": "tokens per block, so that a page of attention holds a state",
    "mamba_padding_percent": "how much of a state's page is padding",
    "padding_layers": "layers' worth of a block that no layer uses, in one kind of layer",
    "padding_percent": "those, in per cent of that kind's layers",
    "needed_gib": "what one request of max_model_len is charged",
    "estimated_max_len": "the longest request the memory holds",
    "mamba_blocks": "blocks of the pool: the most max_num_seqs may be",
    "weights_gib": "weights on one rank",
    "activations_gib": "peak of activations while profiling",
    "graphs_gib": "what capturing CUDA graphs took, after the KV cache",
    "graphs_estimate_gib": "what capturing them was expected to take, off the KV cache since 0.21",
    "device_gib": "memory of the GPU",
    "free_gib": "memory free when the server came up",
    "requested_gib": "the share of it that vLLM may fill",
    "profiled_blocks": "blocks that memory would hold; num_gpu_blocks_override counts instead",
    "auto_fit_to": "the longest request that fits, taken as max_model_len",
}
"""What each number means."""

OLD_TOKENS: Final = "blocks // groups * block size: of one group, not of the model"
"""What the tokens line meant up to 0.20."""
