"""Everything ``plan`` has to say, before it is put into words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sim.capacity import RequestBlocks
from sim.footprint import Waterfall
from sim.planning import KVCachePlan, effective_engine
from sim.planning.backends import layer_backends
from sim.planning.sizing import charged_blocks
from sim.planning.state_alignment import align_blocks, state_spec
from sim.releases import Grouping, Printed
from sim.scenario import Scenario
from sim.specs import FullAttentionSpec, MambaSpec
from sim.what_if import Alternative

Requests = dict[int, list[RequestBlocks]]
"""Per request length in tokens, the three block numbers of every group."""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """One engine's plan, where its memory comes from, and the same under other settings.

    ``auto_fitted_from``: the model's own length, where ``--max-model-len -1`` asked for the longest that fits.
    ``releases``, ``release_changes``: what other releases print and why, where asked for; ``groupings`` likewise.
    ``ignored`` and ``uncounted``: flags and what they touch, see ``sim.vllm_flags.settings.ServeSettings``.
    """

    scenario: Scenario
    plan: KVCachePlan
    requests: Requests
    waterfall: Waterfall
    alternatives: tuple[Alternative, ...] = ()
    auto_fitted_from: int | None = None
    gpu_given: bool = True
    notes: tuple[str, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    uncounted: tuple[tuple[str, str], ...] = ()
    releases: tuple[Printed, ...] = ()
    release_changes: tuple[str, ...] = ()
    groupings: tuple[Grouping, ...] = ()

    @property
    def startup_line(self) -> str:
        """The line vLLM 0.33.0 prints at start (vllm 0.33.0 v1/core/kv_cache_utils.py:1147)."""
        device = "CPU" if self.scenario.gpu == "CPU" else "GPU"
        return (
            f"{device} KV cache size: {self.plan.kv_cache_size_tokens:,} tokens, Maximum concurrency for"
            f" {self.plan.max_model_len:,} tokens per request: {self.plan.max_concurrency:.2f}x"
        )

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token of a long request costs: of the groups that keep every token."""
        engine, plan = self.scenario.engine, self.plan
        spans = [
            group.spec.token_span(engine.decode_context_parallel_size)
            for group in plan.groups
            if isinstance(group.spec, FullAttentionSpec)
        ]
        return sum(plan.block_bytes / span for span in spans)

    @property
    def fixed_bytes(self) -> int:
        """Bytes a long request is charged whatever its length: windows with the batches in flight, and states."""
        engine, plan = self.scenario.engine, self.plan
        return plan.block_bytes * sum(
            charged_blocks(group.spec, engine, plan.max_model_len)
            for group in plan.groups
            if not isinstance(group.spec, FullAttentionSpec)
        )

    @property
    def padding_share(self) -> float:
        """Share of the pool's blocks that layers of padding take, over all groups."""
        layers = sum(len(group.layer_names) for group in self.plan.groups)
        return self.plan.padding_layers / (layers + self.plan.padding_layers)

    @property
    def state_padding_share(self) -> float | None:
        """How much larger than its state a padded page is, None without states."""
        for spec in (spec for group in self.plan.groups for spec in group.layer_specs):
            if isinstance(spec, MambaSpec):
                return spec.page_size_bytes / spec.unpadded_page_size_bytes - 1
        return None

    @property
    def max_num_seqs_limit(self) -> int | None:
        """The most ``--max-num-seqs`` may be: state blocks, where CUDA graphs of decoding need one each.

        None without states (vllm 0.33.0 config/compilation.py:1517).
        """
        has_states = any(isinstance(group.spec, MambaSpec) for group in self.plan.groups)
        return self.plan.num_blocks if has_states else None

    @property
    def kernels(self) -> tuple[str, ...]:
        """The attention kernels vLLM picks on this hardware, empty for a model written out in a scenario."""
        engine = effective_engine(self.scenario.model, self.scenario.engine)
        picked = (backend.name for backend in layer_backends(self.scenario.model, engine) if backend is not None)
        return tuple(dict.fromkeys(picked))

    def block_size_reason(self) -> str:
        """Why blocks have the size they have."""
        scenario = self.scenario
        engine = effective_engine(scenario.model, scenario.engine)
        sizes = sorted({group.block_size for group in self.plan.groups})
        shown = ", ".join(f"{size:,}" for size in sizes)
        blocks = align_blocks(scenario.model, engine)
        kernels = ", ".join(self.kernels)
        if (state := self._state_bytes()) is not None and blocks.block_size > (engine.block_size or 16):
            token = self._page_bytes() // blocks.block_size
            why = f"an attention page ({token:,} bytes a token and layer) must hold a state of {state:,} bytes"
        elif engine.block_size is not None:
            why = "as asked for"
        else:
            default = 128 if engine.device_capability == "cpu" else 16
            why = "vLLM's default" if blocks.block_size == default else "what the attention kernels want"
        if len(sizes) > 1:
            why += "; pages of several sizes are made equal by longer blocks"
        return f"{shown} tokens: {why}{f' ({kernels})' if kernels else ''}"

    def _page_bytes(self) -> int:
        return max(group.page_size_bytes for group in self.plan.groups)

    def _state_bytes(self) -> int | None:
        model, engine = self.scenario.model, self.scenario.engine
        states = [layer.state for layer in model.layers if layer.state is not None and not layer.draft]
        if not states:
            return None
        return max(state_spec(state, model, engine, None).unpadded_page_size_bytes for state in states)

    def as_data(self) -> dict[str, Any]:
        """What the tables say beside the plan itself, as JSON-ready data."""
        fall = self.waterfall
        return {
            "startup_line": self.startup_line,
            "gpu": self.scenario.gpu,
            "gpu_assumed": not self.gpu_given,
            "attention_kernels": list(self.kernels),
            "auto_fitted_from": self.auto_fitted_from,
            "block_size_reason": self.block_size_reason(),
            "padding_share": self.padding_share,
            "state_padding_share": self.state_padding_share,
            "max_num_seqs_limit": self.max_num_seqs_limit,
            "fixed_bytes_per_request": self.fixed_bytes,
            "bytes_per_token": self.bytes_per_token,
            "memory": {
                name: {"bytes": amount.num_bytes, "source": amount.source, "spread_bytes": amount.spread_bytes}
                for name, amount in fall.steps()
            },
            "gpu_memory_utilization": fall.utilization,
            "alternatives": [_alternative(item) for item in self.alternatives],
            "notes": list(self.notes),
            "ignored_flags": dict(self.ignored),
            "uncounted_flags": dict(self.uncounted),
            "releases": [asdict(printed) for printed in self.releases],
            "release_changes": list(self.release_changes),
            "groupings": [asdict(grouping) for grouping in self.groupings],
        }


def _alternative(item: Alternative) -> dict[str, Any]:
    return {name: getattr(item, name) for name in Alternative.__dataclass_fields__}
