"""The engine's settings: vLLM's own flags under vLLM's names, with the defaults and the refusals of vLLM 0.33.0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.engine_config.acceptance import check_acceptance
from sim.engine_config.checks import check_combinations, check_fields
from sim.engine_config.media import check_limits
from sim.specs import MambaCacheMode


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Resolved engine flags; what each means is documented by vLLM under the same name.

    Lengths, thresholds and budgets are in tokens, ``watermark`` is a share of the blocks. A value of the wrong type or
    range raises InputError, a combination vLLM refuses at start raises RefusalError; both name the key ``engine.x``.
    ``block_size`` None is what the model's kernels want, 16 or more; a model written out in a scenario takes any.
    ``device_capability`` is CUDA's, an AMD architecture or ``cpu``: which kernels there are.

    Not flags of their own in vLLM: ``allow_chunked_local_attn_with_hybrid_kv_cache`` and ``kv_cache_layout`` are
    environment variables there (with ``VLLM_`` before them; kernels choose the layout otherwise), the keys from
    ``speculative_method`` on are keys of ``--speculative-config`` (``speculative_method`` its ``method``), and
    ``num_mtp_modules`` is read from the draft's config. ``flashinfer_gdn_prefill``: the GPU has the kernels that
    export a gated delta net's states from inside a chunk (H100 has, A100 has not). ``mamba_cache_mode`` decides
    nothing: vLLM turns ``align`` on with prefix caching and off without. ``acceptance_rate`` is no key of vLLM's: how
    often a draft is accepted when all before it are, where one rate will do (:mod:`sim.engine_config.acceptance`).
    """

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    kv_cache_dtype_skip_layers: tuple[str, ...] = ()
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enable_prefix_caching: bool = True
    prefix_cache_retention_interval: int | None = 0
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    async_scheduling: bool = True
    disable_hybrid_kv_cache_manager: bool = False
    allow_chunked_local_attn_with_hybrid_kv_cache: bool = True
    kv_cache_layout: str = "LBNHC"
    decode_context_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    all2all_backend: str = "allgather_reducescatter"
    prefix_match_unit: int | None = None
    mamba_cache_mode: str | None = None
    mamba_block_size: int | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    enable_mamba_shared_prefix_checkpoint: bool = False
    flashinfer_gdn_prefill: bool = True
    device_capability: str = "9.0"
    max_num_active_seqs: int | None = None
    long_prefill_token_threshold_adaptive: bool = False
    prefill_schedule_interval: int = 1
    speculative_method: str | None = None
    num_speculative_tokens: int = 0
    num_mtp_modules: int = 1
    disable_eagle_block_drop: bool = False
    disable_lookahead_block_hashes: bool = False
    language_model_only: bool = False
    limit_mm_per_prompt: Mapping[str, Any] | None = None
    enable_mm_embeds: bool = False
    disable_chunked_mm_input: bool = False
    mm_encoder_tp_mode: str = "weights"
    acceptance_rate: float | None = None
    synthetic_acceptance_rates: tuple[float, ...] | None = None
    synthetic_acceptance_length: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_limits(self.limit_mm_per_prompt)
        check_combinations(self)
        check_acceptance(self)

    @property
    def max_concurrent_batches(self) -> int:
        """Batches that may be scheduled before the first one's output is processed (vllm 0.33.0 config/vllm.py:588).

        One per pipeline stage, and one more with async scheduling.
        """
        return self.pipeline_parallel_size + 1 if self.async_scheduling else self.pipeline_parallel_size

    @property
    def max_in_flight_tokens(self) -> int:
        """Most tokens scheduled and not yet processed, which keep their blocks (vllm 0.33.0 config/vllm.py:601)."""
        return self.max_concurrent_batches * self.max_num_batched_tokens

    @property
    def resolved_mamba_cache_mode(self) -> MambaCacheMode:
        """``align`` with prefix caching, ``none`` without, whatever was asked for.

        vllm 0.33.0 model_executor/models/config.py:763-785.
        """
        return "align" if self.enable_prefix_caching else "none"

    @property
    def block_outermost(self) -> bool:
        """Whether the layout keeps all layers of a block together (vllm 0.33.0 v1/kv_cache_layout.py:57)."""
        return self.kv_cache_layout.startswith("B")

    @property
    def max_num_encoder_input_tokens(self) -> int:
        """Tokens of the encoder's longest input, taken to be a whole batch (vllm 0.33.0 config/scheduler.py:306)."""
        return self.max_num_batched_tokens

    @property
    def max_running_requests(self) -> int:
        """Most requests that run at once: fewer than asked for where a draft's queries would not fit the batch.

        vllm 0.33.0 config/vllm.py:2378-2396.
        """
        asked = self.max_num_active_seqs or self.max_num_seqs
        if self.speculative_method != "dflash":
            return asked
        return min(asked, self.max_num_batched_tokens // self.num_lookahead_tokens)

    @property
    def use_eagle(self) -> bool:
        """Whether the draft reads the target's hidden states (vllm 0.33.0 config/speculative.py:2116)."""
        return self.speculative_method in ("eagle", "eagle3", "mtp", "dflash")

    @property
    def uses_draft_layers(self) -> bool:
        """Whether the draft has attention layers, which take their share of every block."""
        return self.use_eagle or self.speculative_method == "draft_model"

    @property
    def use_eagle_block_drop(self) -> bool:
        """Whether groups with draft layers are marked as such (vllm 0.33.0 config/speculative.py:2122-2149)."""
        return self.use_eagle and self.speculative_method != "dflash" and not self.disable_eagle_block_drop

    @property
    def num_lookahead_tokens(self) -> int:
        """Tokens beyond the scheduled ones that blocks are taken for (vllm 0.33.0 config/vllm.py:626)."""
        if self.speculative_method == "dflash":
            return self.num_speculative_tokens + 1
        return self.num_speculative_tokens if self.uses_draft_layers else 0

    @property
    def num_prefill_lookahead_tokens(self) -> int:
        """Prompt tokens beyond a chunk that the draft reads with it (vllm 0.33.0 config/vllm.py:655).

        >>> budgets = {"max_model_len": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 8}
        >>> three = EngineConfig(**budgets, speculative_method="mtp", num_speculative_tokens=3, num_mtp_modules=3)
        >>> three.num_prefill_lookahead_tokens, three.extra_retained_tokens
        (3, 2)
        """
        if not self.use_eagle:
            return 0
        several = self.speculative_method == "mtp" and min(self.num_mtp_modules, self.num_speculative_tokens) > 1
        return self.num_speculative_tokens if several else 1

    @property
    def extra_retained_tokens(self) -> int:
        """Tokens below every window that several draft modules keep (vllm 0.33.0 v1/core/kv_cache_planning.py:1636)."""
        return max(0, self.num_prefill_lookahead_tokens - 1)

    @property
    def num_hash_lookahead_tokens(self) -> int:
        """Tokens after a block that its hash covers, 0 where the last block of a hit is dropped instead.

        vllm 0.33.0 config/vllm.py:678.
        """
        lookahead = self.use_eagle_block_drop and not self.disable_lookahead_block_hashes
        return self.num_prefill_lookahead_tokens if lookahead and self.enable_prefix_caching else 0

    @property
    def drops_last_block(self) -> bool:
        """Whether hits of draft groups lose their last block (vllm 0.33.0 v1/core/sched/scheduler.py:330-345)."""
        return self.use_eagle_block_drop and self.num_hash_lookahead_tokens == 0

    @property
    def draft_slots(self) -> int:
        """Tokens of the batch that each request's draft takes beside its scheduled ones.

        vllm 0.33.0 config/speculative.py:2058: a draft model keeps one token of its own.
        """
        return 1 if self.speculative_method == "draft_model" else 0
