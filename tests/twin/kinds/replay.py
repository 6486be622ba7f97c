"""Windows that are computed again."""

from __future__ import annotations

from tests.twin.kinds.sliding_window import SlidingWindow
from tests.twin.request import Request


class ReplayedWindow(SlidingWindow):
    """A window that nobody caches; after a hit it begins empty (vllm 0.33.0 v1/kv_cache_interface.py:1015)."""

    in_prefix_cache = False

    def cache(self, request: Request, tokens: int) -> None:
        """It takes no part in prefix caching."""
