"""A KV connector that fetches the prompts of all requests, as NIXL's pull scheduler has them fetched; no data moves.

Runs inside the oracle environment only. What it says to vLLM's scheduler is what
``vllm 0.33.0 distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py:36`` says for a request with
``do_remote_prefill``: the whole prompt beyond the local hit, once, asynchronously; what has to be read are the blocks
without a hash (:116).
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorBase_V1, SupportsHMA
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata


class Fetches(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """``begun`` lists the loads that began since it was last emptied: request and number of blocks.

    ``here``: tokens of a prompt that needed no fetching, by request, until somebody takes them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.begun: list[tuple[str, int]] = []
        self.here: dict[str, int] = {}
        self._asked: set[str] = set()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """All of the prompt that is not here, the first time."""
        if request.request_id in self._asked:
            return 0, False
        self.here[request.request_id] = num_computed_tokens
        return request.num_prompt_tokens - num_computed_tokens, True

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Note what has to be fetched."""
        if num_external_tokens > 0:
            self._asked.add(request.request_id)
            self.begun.append((request.request_id, sum(map(len, blocks.get_unhashed_block_ids_all_groups()))))

    def build_connector_meta(self, *_: Any) -> KVConnectorMetadata:
        """Nothing for a worker to do."""
        return KVConnectorMetadata()

    def request_finished(self, *_: Any) -> tuple[bool, None]:
        """Its blocks may be freed at once."""
        return False, None

    def request_finished_all_groups(self, *_: Any) -> tuple[bool, None]:
        """Its blocks may be freed at once."""
        return False, None

    def start_load_kv(self, *args: Any, **kwargs: Any) -> None:
        """Of a worker."""

    def wait_for_layer_load(self, *args: Any, **kwargs: Any) -> None:
        """Of a worker."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """Of a worker."""

    def wait_for_save(self, *args: Any, **kwargs: Any) -> None:
        """Of a worker."""


class Link:
    """Fetches one prompt after another, in the order in which they were given blocks."""

    def __init__(self, scheduler: Any, ns: int, ns_per_block: int) -> None:
        self._scheduler, self._ns, self._ns_per_block = scheduler, ns, ns_per_block
        self._end_ns = 0
        self._ends: dict[str, int] = {}

    def next_ns(self) -> int | None:
        """When the first of the prompts on their way is here."""
        return min(self._ends.values(), default=None)

    def report(self, now_ns: int) -> bool:
        """Tell the scheduler which prompts are here by now, as a worker's output would; whether any is."""
        from vllm.v1.outputs import KVConnectorOutput

        here = {name for name, end in self._ends.items() if end <= now_ns}
        if here:
            self._scheduler._update_from_kv_xfer_finished(KVConnectorOutput(finished_recving=here))
            self._ends = {name: end for name, end in self._ends.items() if name not in here}
        return bool(here)

    def take(self, now_ns: int) -> None:
        """Queue what the last schedule call wants fetched."""
        for name, blocks in self._scheduler.connector.begun:
            self._end_ns = max(now_ns, self._end_ns) + self._ns + blocks * self._ns_per_block
            self._ends[name] = self._end_ns
        self._scheduler.connector.begun.clear()
