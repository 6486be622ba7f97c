"""A request refused at the head of the queue is let in by the very schedule() call in which it fits."""

from __future__ import annotations

from tests.twin.ours import Ours, steps
from tests.twin.settings import Settings, ask


def test_a_look_up_of_another_request_does_not_hide_a_longer_hit() -> None:
    """A was refused with the first 8 tokens cached; before it is asked again C fills block 2 and B is looked up.

    vLLM 0.33.0 admits A in step 4 with 12 cached tokens.
    """
    ours = Ours(Settings(num_blocks=14, max_model_len=52, long_prefill_token_threshold=3, priority_policy=True))
    log = steps(
        ours.run(
            ask("C", 0, [(1, 24)], 4),
            ask("D", 0, [(2, 8)], 1),
            ask("A", 20, [(1, 20), (3, 28)], 2, priority=1),
            ask("B", 30, [(4, 8)], 4),
        )
    )
    assert [step["hits"] for step in log[:4]] == [[["C", 0], ["D", 0]], [], [], [["B", 0], ["A", 12]]]
    assert log[3]["scheduled"] == [["C", 3], ["B", 3], ["A", 3]]
