"""The keys of a scenario file, their types and ranges; what vLLM refuses is left to EngineConfig and planning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sim.scenario.numbers import human_readable_int

MAX_TOKENS = 100_000_000
"""An upper bound for token counts: far above any context length, far below what could overflow anything."""


def _readable_int(value: Any) -> Any:
    return human_readable_int(value) if isinstance(value, str) else value


def _empty_for_null(value: Any) -> Any:
    return {} if value is None else value


Section = Annotated[dict[str, Any], BeforeValidator(_empty_for_null)]
"""A mapping whose keys are checked later; a key with nothing behind it is an empty one."""
PositiveInt = Annotated[int, Field(ge=1)]
TokenCount = Annotated[int, BeforeValidator(_readable_int), Field(ge=1, le=MAX_TOKENS)]
ByteCount = Annotated[int, BeforeValidator(_readable_int), Field(ge=1, le=1 << 50)]
NonNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Keys(BaseModel):
    """A mapping whose keys are all known and whose values are taken as written, never coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EngineKeys(Keys):
    """vLLM's flags, spelled with underscores; whatever is left out gets vLLM 0.33.0's default."""

    max_model_len: TokenCount | None = None
    block_size: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    kv_cache_dtype: str | None = None
    kv_cache_dtype_skip_layers: list[str | int] | None = None
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    pipeline_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    max_num_batched_tokens: TokenCount | None = None
    max_num_seqs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    enable_prefix_caching: bool | None = None
    prefix_cache_retention_interval: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    enable_chunked_prefill: bool | None = None
    long_prefill_token_threshold: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: Annotated[float, Field(ge=0, lt=1)] | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    allow_chunked_local_attn_with_hybrid_kv_cache: bool | None = None
    kv_cache_layout: str | None = None
    decode_context_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    data_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    enable_expert_parallel: bool | None = None
    all2all_backend: str | None = None
    prefix_match_unit: TokenCount | None = None
    mamba_cache_mode: str | None = None
    mamba_block_size: TokenCount | None = None
    mamba_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    enable_mamba_shared_prefix_checkpoint: bool | None = None
    flashinfer_gdn_prefill: bool | None = None
    device_capability: str | None = None
    max_num_active_seqs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    long_prefill_token_threshold_adaptive: bool | None = None
    prefill_schedule_interval: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    speculative_method: str | None = None
    num_speculative_tokens: Annotated[int, Field(ge=0, le=1024)] | None = None
    num_mtp_modules: Annotated[int, Field(ge=1, le=1024)] | None = None
    disable_eagle_block_drop: bool | None = None
    disable_lookahead_block_hashes: bool | None = None
    language_model_only: bool | None = None
    limit_mm_per_prompt: dict[str, int | dict[str, int | None]] | None = None
    enable_mm_embeds: bool | None = None
    disable_chunked_mm_input: bool | None = None
    mm_encoder_tp_mode: str | None = None
    acceptance_rate: Rate | None = None
    synthetic_acceptance_rates: list[Rate] | None = None
    synthetic_acceptance_length: Annotated[float, Field(ge=1, le=1025)] | None = None


NULL_MEANS_SOMETHING = frozenset({"prefix_cache_retention_interval"})
"""Engine keys for which ``null`` is a setting of its own; for the others it means "vLLM's default"."""


class HardwareKeys(Keys):
    """The GPU, and whether vLLM runs as the API server or as the offline class: it sets the default budgets."""

    gpu: str | None = "H100-80GB"
    usage: Literal["server", "offline"] = "server"


class MemoryKeys(Keys):
    """The memory for the KV cache; exactly one of the three is given."""

    num_gpu_blocks_override: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    kv_cache_memory_bytes: ByteCount | None = None
    available_kv_cache_memory_gib: Annotated[float, Field(gt=0, le=1 << 20)] | None = None


class ClientKeys(Keys):
    """How many clients send the requests, each waiting for its answer; left out, nobody waits for an answer."""

    max_concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    think_s: Any = None


class TraceKeys(ClientKeys):
    """A recorded trace: a path relative to the scenario file, or ``sample:NAME`` for a shipped excerpt."""

    trace: Annotated[str, Field(min_length=1)]
    format: str = "auto"
    limit: PositiveInt | None = None
    time_scale: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    jitter_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    arrival: dict[str, Any] | None = None
    closed_loop: bool | None = None
    block_size: PositiveInt | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    columns: dict[str, str] | None = None
    tokenizer: str | None = None
    chars_per_token: Annotated[float, Field(ge=0.1, le=100)] | None = None
    turn_think_s: Annotated[float, Field(ge=0, le=1e9)] | None = None


class SyntheticKeys(ClientKeys):
    """Requests drawn from distributions; the generator's own keys are checked where it is built."""

    synthetic: dict[str, Any]


class ResetKeys(Keys):
    """One call of vLLM's ``reset_prefix_cache``: when, and whether running requests are taken off for it."""

    at_s: Annotated[float, Field(ge=0, le=1e9)]
    reset_running_requests: bool = False


class ReplicaKeys(Keys):
    """So many servers of the same engine behind a router; vLLM's own ``data_parallel_size`` is one server's flag.

    ``prefill`` and ``decode`` instead of ``count``: servers that compute prompts, and servers that fetch what was
    computed and go on. What a block takes on its way is given as seconds, or as the bandwidth of the link of each GPU
    that fetches (10^9 bytes per second); ``transfer_latency_s`` comes on top once per prompt.
    """

    count: Annotated[int, Field(ge=1, le=1024)] = 1
    prefill: Annotated[int, Field(ge=1, le=1024)] | None = None
    decode: Annotated[int, Field(ge=1, le=1024)] | None = None
    routing: Literal["round_robin", "least_loaded", "prefix_aware", "prefix_sent"] = "round_robin"
    load_bound: Annotated[float, Field(ge=1, le=1e6)] = 1.25
    decode_routing: Literal["round_robin", "least_loaded", "prefix_aware", "prefix_sent"] | None = None
    transfer_s_per_block: Annotated[float, Field(ge=0, le=1e3)] | None = None
    transfer_gb_per_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    transfer_latency_s: Annotated[float, Field(ge=0, le=1e3)] | None = None

    @property
    def servers(self) -> int:
        """All servers together."""
        return (self.prefill or 0) + (self.decode or 0) or self.count


class WarmStartKeys(Keys):
    """How many requests, by order of arrival, warm the engine up before anything is measured; the cache is kept."""

    requests: PositiveInt


class MeasureKeys(Keys):
    """Which part of the run is measured, in seconds of simulated time, or from a warm start on."""

    after_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    until_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    warm_start: dict[str, Any] | None = None


class ScenarioKeys(Keys):
    """The top level of a scenario file."""

    name: Name | None = None
    question: str = ""
    expected: str = ""
    model: Any
    hardware: Section = Field(default_factory=dict)
    engine: Section = Field(default_factory=dict)
    memory: Section = Field(default_factory=dict)
    workload: Section = Field(default_factory=dict)
    step_time: Section = Field(default_factory=dict)
    replicas: Section = Field(default_factory=dict)
    measure: Section = Field(default_factory=dict)
    reset_prefix_cache: list[dict[str, Any]] = Field(default_factory=list)
    variants: dict[Name, Section] = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
