"""What each kind of layer does with blocks, one small class per kind, each said by looking at every candidate."""

from __future__ import annotations

from tests.twin.kinds.chunked_local import ChunkedLocal
from tests.twin.kinds.circular import CircularBuffer
from tests.twin.kinds.cross import CrossAttention
from tests.twin.kinds.full import FullAttention
from tests.twin.kinds.replay import ReplayedWindow
from tests.twin.kinds.rswa import ReferenceWindow
from tests.twin.kinds.sliding_window import SlidingWindow
from tests.twin.kinds.states import AlignedStates, LastState
from tests.twin.pool import BlockPool
from tests.twin.settings import Settings

CLASSES: dict[str, type[FullAttention]] = {
    "full": FullAttention,
    "sliding_window": SlidingWindow,
    "chunked_local": ChunkedLocal,
    "rswa": ReferenceWindow,
    "mamba_none": LastState,
    "mamba_align": AlignedStates,
    "circular": CircularBuffer,
    "cross": CrossAttention,
    "replay": ReplayedWindow,
}


def group_managers(settings: Settings, pool: BlockPool) -> list[FullAttention]:
    """One manager per group, in the order of the groups."""
    return [CLASSES[group.kind](number, settings, pool) for number, group in enumerate(settings.groups)]
