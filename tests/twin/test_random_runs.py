"""Whole runs of random settings and requests, the machine and its twin in lock-step."""

from __future__ import annotations

import pytest

from tests.twin.drawn import seeded_case
from tests.twin.kinds import CLASSES
from tests.twin.lockstep import ENDLESS, LockStep
from tests.twin.settings import Group, Settings, ask

SEEDS = range(300)
RARE = [seed for seed in range(300, 1500) if seeded_case(seed)[0].junction_states]
"""States at junctions need fine hits beside one module's drafts."""


@pytest.mark.parametrize("seed", [*SEEDS, *RARE])
def test_a_random_run(seed: int) -> None:
    """Equal to the end: all served, or both give up on requests that cannot be."""
    settings, asks = seeded_case(seed)
    both = LockStep(settings)
    both.submit(asks)
    reason = both.run()
    assert reason in ("idle", "stalled", ENDLESS)
    assert (len(both.ours.finished) == len(asks)) == (reason == "idle")


def test_blocks_of_speculative_states_have_room_at_the_end_of_a_long_text() -> None:
    """Their entries come after those of the longest text; without room they spilled into the next table."""
    states = Group(4, kind="mamba_align", spec_blocks=2)
    both = LockStep(Settings(groups=(states, Group(4)), max_model_len=30, num_blocks=20))
    both.submit([ask("a", 0, [(1, 27)], 3)])
    assert both.run() == "idle"


def test_the_seeds_draw_every_kind_and_flag() -> None:
    drawn = [seeded_case(seed)[0] for seed in SEEDS]
    assert {group.kind for settings in drawn for group in settings.groups} == set(CLASSES)
    states = [group for settings in drawn for group in settings.states]
    assert any(group.export_tokens for group in states)
    assert any(group.spec_blocks for group in states)
    for name in ("partial_hits", "max_num_active_seqs", "long_prefill_token_threshold_adaptive", "async_scheduling"):
        assert 5 < sum(bool(getattr(settings, name)) for settings in drawn) < len(SEEDS) - 5
    with_drafts = [settings for settings in drawn if settings.drafts.count]
    assert {settings.async_scheduling for settings in with_drafts} == {False, True}
    assert {bool(settings.drafts.num_lookahead_tokens) for settings in with_drafts} == {False, True}
    for several in (False, True):
        of_modules = [settings for settings in with_drafts if (settings.drafts.computed_again > 0) == several]
        assert {settings.drafts.drops_last_block for settings in of_modules} == {False, True}
        assert {settings.drafts.hash_lookahead > 0 for settings in of_modules} == {False, True}
    assert len(RARE) > 5
    ranked = [settings for settings in drawn if settings.decode_context_parallel_size > 1]
    assert {settings.partial_hits for settings in ranked} == {False, True}
    assert any(group.kind == "full" and not group.sharded for settings in ranked for group in settings.groups)
    assert sum(bool(settings.resets) for settings in drawn) > 10
    assert {settings.pipeline_parallel_size for settings in drawn} == {1, 2, 3}
    assert len({settings.prefill_schedule_interval for settings in drawn}) > 3
