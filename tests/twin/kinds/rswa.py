"""Reference sliding window attention."""

from __future__ import annotations

import math

from tests.twin.kinds.full import FullAttention
from tests.twin.request import Request


class ReferenceWindow(FullAttention):
    """Reads the prompt and the last outputs (vllm 0.33.0 v1/core/single_type_kv_cache_manager.py:884)."""

    def free_unread(self, request: Request, processed: int) -> None:
        """Free the blocks that hold outputs only, all of them behind the window."""
        prompt = request.ask.prompt_tokens
        window_begins = max(prompt, processed - self.group.window)
        self._free(self.tables[request], range(math.ceil(prompt / self.size), window_begins // self.size))
