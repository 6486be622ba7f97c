"""What vLLM 0.33.0 has and this model leaves out: under which flags it is asked for, and what it would change."""

from __future__ import annotations

from typing import Final, NamedTuple


class Unmodelled(NamedTuple):
    """A feature that is left out: vLLM's flags (with underscores) that ask for it, and what it would change."""

    name: str
    changes: str
    flags: tuple[str, ...]


UNMODELLED: Final = (
    Unmodelled(
        "HiSparse",
        "sparse attention would keep its cold pages in host memory, so that more requests hold blocks",
        ("hisparse_config",),
    ),
    Unmodelled(
        "multimodal encoder budgets",
        "images and audio would take encoder budget and encoder cache, and chunks would end before an input that has"
        " no room",
        (
            *("max_num_encoder_input_tokens", "encoder_cache_size", "mm_processor_kwargs", "mm_processor_cache_gb"),
            *("mm_encoder_only", "skip_mm_profiling"),
        ),
    ),
    Unmodelled(
        "KV connectors and offload tiers",
        "blocks would be loaded from and saved to other memory: more hits, requests that wait for loads, blocks held"
        " until they are sent",
        (
            *("kv_transfer_config", "kv_offloading_size", "kv_offloading_backend", "ec_transfer_config"),
            *("ec_manager_config", "cpu_offload_gb"),
        ),
    ),
    Unmodelled(
        "LoRA limits",
        "at most max_loras adapters would run at once, requests of others would be passed over, and each adapter would"
        " be a namespace of the prefix cache",
        ("enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras", "lora_dtype", "default_mm_loras"),
    ),
    Unmodelled(
        "streaming sessions",
        "a request would keep its blocks while it waits for more input, and count as running",
        ("resumable",),
    ),
    Unmodelled(
        "structured output",
        "requests would wait until their grammar is compiled, and drafts that break it would be cut",
        ("structured_outputs_config",),
    ),
    Unmodelled(
        "pooling and diffusion models",
        "prompts would end without a token, or a whole canvas of tokens would be computed again and again",
        ("runner", "convert", "pooler_config", "diffusion_config"),
    ),
    Unmodelled(
        "DP prefill throttling",
        "data-parallel ranks would hold prefills back together; data_parallel_size gives replicas that share nothing",
        ("data_parallel_size_local", "data_parallel_backend", "dp_sync_interval"),
    ),
    Unmodelled(
        "prefill context parallelism",
        "the tokens of a prompt would be dealt out to ranks, and a block would stand for more of them",
        ("prefill_context_parallel_size",),
    ),
    Unmodelled(
        "dynamic draft lengths",
        "the number of drafts would follow the batch, and with it look-ahead slots and accepted tokens",
        ("num_speculative_tokens_per_batch_size",),
    ),
)
"""Left out of this model, each with what it would change."""

OTHER_FLAGS: Final = frozenset(
    {
        "attention_config",
        "calculate_kv_scales",
        "compilation_config",
        "dtype",
        "enable_adaptive_verification",
        "enforce_eager",
        "gpu_memory_utilization",
        "load_format",
        "max_num_partial_prefills",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
        "max_num_scheduled_tokens",
        "parallel_drafting",
        "performance_mode",
        "quantization",
        "rejection_sample_method",
        "speculative_config",
        "stream_interval",
        "swap_space",
    }
)
"""More flags of vLLM that people set and that are no key here."""

_BY_FLAG = {flag: feature for feature in UNMODELLED for flag in feature.flags}


def unmodelled(flag: str) -> str | None:
    """What to say about a flag of vLLM, with underscores, that is not modelled; None for any other word.

    >>> unmodelled("prefill_context_parallel_size")
    'not modelled, remove it: prefill context parallelism (the tokens of a prompt would be dealt out to ranks, and a
    block would stand for more of them)'
    >>> unmodelled("dtype"), unmodelled("max_num_seqs")
    ('a vLLM flag that is not modelled; remove it', None)
    """
    if feature := _BY_FLAG.get(flag):
        return f"not modelled, remove it: {feature.name} ({feature.changes})"
    return "a vLLM flag that is not modelled; remove it" if flag in OTHER_FLAGS else None
