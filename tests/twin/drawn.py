"""Random settings and requests, small on purpose: two letters of content, few blocks, so that rules meet.

Everything is drawn through ``Draw``, a function from (least, most) to an integer, so that a seeded generator and
Hypothesis, which shrinks what fails, share one description.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.twin.drafts import CERTAIN, Drafts
from tests.twin.settings import FULL_LIKE, Ask, Group, Settings, Span

Draw = Callable[[int, int], int]


def chance(draw: Draw, percent: int) -> bool:
    """True in ``percent`` of 100 cases; shrinks to False."""
    return draw(0, 99) >= 100 - percent


MIXTURES = (
    ("full", "chunked_local"),
    ("full", "sliding_window", "chunked_local"),
    ("chunked_local",),
    ("full", "mamba_align"),
    ("full", "mamba_align"),
    ("full", "full", "mamba_align"),
    ("full", "sliding_window", "mamba_align"),
    ("sliding_window", "mamba_align"),
    ("full", "mamba_align", "mamba_align"),
    ("mamba_align",),
    ("full", "mamba_none"),
    ("sliding_window", "mamba_none"),
    ("rswa",),
    ("full", "rswa"),
    ("rswa", "sliding_window"),
    ("full", "circular"),
    ("full", "sliding_window", "circular"),
    ("full", "mamba_align", "circular"),
    ("full", "cross"),
    ("full", "sliding_window", "cross"),
    ("full", "replay"),
    ("full", "replay"),
    ("full", "sliding_window", "replay"),
)
"""Kinds that are drawn together beside full attention and windows, of which half of the cases consist."""


def drawn_groups(draw: Draw, max_model_len: int, *, plain: bool = False) -> tuple[Group, ...]:
    """One to four groups; blocks of sizes that divide each other or do not, of one size where vLLM insists.

    ``plain``: full attention and windows only.
    """
    size = draw(1, 5)
    if not plain and chance(draw, 50):
        mixture = MIXTURES[draw(0, len(MIXTURES) - 1)]
        exports = size * draw(0, 2) if chance(draw, 50) else draw(0, 1)
        equal = "chunked_local" in mixture or chance(draw, 60)
        return tuple(drawn_group(draw, kind, size, exports, max_model_len, equal=equal) for kind in mixture)
    found = []
    for _ in range(draw(1, 2) if chance(draw, 60) else draw(1, 4)):
        block = size * (1 if chance(draw, 80) else draw(2, 3))
        window = draw(1, 4 * block + 2) if chance(draw, 60) else 0
        found.append(Group(block, window))
    return tuple(found)


def drawn_group(draw: Draw, kind: str, size: int, exports: int, max_model_len: int, *, equal: bool) -> Group:
    """A group of some kind; ``exports``: tokens between states that kernels can take out of a chunk."""
    block = size if equal else size * draw(1, 3)
    if kind == "mamba_none":
        return Group(max_model_len if chance(draw, 70) else block, kind=kind, spec_blocks=draw(0, 2))
    if kind == "mamba_align":
        return Group(block, kind=kind, spec_blocks=draw(0, 2) if chance(draw, 40) else 0, export_tokens=exports)
    if kind == "circular":
        return Group(size, kind=kind)
    window = draw(1, 4 * block + 2) if kind in ("sliding_window", "chunked_local", "rswa", "replay") else 0
    return Group(block, window, kind)


def drawn_settings(draw: Draw, *, plain: bool = False) -> Settings:
    """Any engine that vLLM would start; ``plain``: with full attention and windows only, without drafts."""
    max_model_len = draw(8, 60)
    groups = drawn_groups(draw, max_model_len, plain=plain)
    kinds = {group.kind for group in groups}
    ranks = draw(2, 3) if not plain and kinds <= {"full", "mamba_align"} and chance(draw, 30) else 1
    if ranks > 1:
        groups = tuple(replace(group, sharded=group.kind == "full" and not chance(draw, 15)) for group in groups)
    max_num_seqs = draw(1, 6)
    chunked = "mamba_align" in kinds or not chance(draw, 15)
    priority = chance(draw, 40)
    budget = max(max_num_seqs, draw(2, 12 if chance(draw, 40) else 70)) if chunked else max_model_len + draw(0, 20)
    without_pool = Settings(
        groups=groups,
        max_model_len=max_model_len,
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        max_num_active_seqs=draw(1, max_num_seqs) if chance(draw, 20) else None,
        enable_prefix_caching="mamba_align" in kinds or (not kinds & {"mamba_none", "cross"} and not chance(draw, 10)),
        prefix_match_unit=drawn_unit(draw, groups),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(1, 6 if chance(draw, 60) else max_model_len) if chance(draw, 40) else 0,
        long_prefill_token_threshold_adaptive=chance(draw, 30),
        prefill_schedule_interval=draw(2, 6) if chance(draw, 30) else 1,
        priority_policy=priority,
        scheduler_reserve_full_isl=not chance(draw, 25),
        async_scheduling=chance(draw, 50),
        pipeline_parallel_size=draw(1, 3) if chance(draw, 30) else 1,
        decode_context_parallel_size=ranks,
        step_ns=draw(1, 3) * 7,
        resets=drawn_resets(draw) if not plain and chance(draw, 15) else (),
        encoder_budget=draw(1, 40) if "cross" in kinds else 0,
    )
    if not plain and "cross" not in kinds and chance(draw, 60 if without_pool.partial_hits else 30):
        without_pool = with_drafts(draw, without_pool)
    unit = without_pool.scheduler_block_size
    intervals = (None, 0, unit * draw(1, 4))
    longest = without_pool.blocks_of_longest
    num_blocks = 1 + longest + draw(0, longest) * draw(0, 4) // 4
    return replace(
        without_pool,
        retention_interval=intervals[draw(0, 2)],
        num_blocks=num_blocks,
        watermark_blocks=draw(0, min(5, num_blocks - 1)) if chance(draw, 25) else 0,
    )


def drawn_resets(draw: Draw) -> tuple[tuple[int, bool], ...]:
    """Resets of the prefix cache, some of which take running requests off, in order of time."""
    times = sorted(draw(0, 400) for _ in range(draw(1, 3)))
    return tuple((time, chance(draw, 60)) for time in times)


def with_drafts(draw: Draw, settings: Settings) -> Settings:
    """The same with drafts, and with room for them where vLLM insists: a state for each, budget, threshold."""
    count = draw(1, 4)
    rates = [(0, CERTAIN // 4, CERTAIN // 2, CERTAIN)[draw(0, 3)] for _ in range(count)]
    model = chance(draw, 75)
    eagle = model and chance(draw, 75) and all(group.kind != "chunked_local" for group in settings.groups)
    places = range(len(settings.groups) if eagle and chance(draw, 60) else 0)
    lookahead = int(eagle)
    if eagle and count <= settings.scheduler_block_size and chance(draw, 50):
        lookahead = count
    full_first = any(group.kind in FULL_LIKE for group in settings.groups)
    covered = lookahead if settings.enable_prefix_caching and (full_first or lookahead < 2) and chance(draw, 50) else 0
    drafts = Drafts(
        acceptance=tuple(rates),
        seed=draw(0, 99),
        num_lookahead_tokens=count if model else 0,
        draft_slots=draw(0, 1) if model else 0,
        prefill_lookahead=lookahead,
        hash_lookahead=covered,
        drops_last_block=eagle and covered == 0,
        shared_prefix_checkpoint=eagle and chance(draw, 80),
        draft_groups=frozenset(i for i in places if chance(draw, 50)),
    )
    threshold = settings.long_prefill_token_threshold
    return replace(
        settings,
        drafts=drafts,
        groups=tuple(for_drafts(group, count, settings.hash_block_size) for group in settings.groups),
        max_num_batched_tokens=max(settings.max_num_batched_tokens, count + 2),
        long_prefill_token_threshold=max(threshold, 1 + count) if threshold else 0,
    )


def for_drafts(group: Group, count: int, unit: int) -> Group:
    """A group that keeps a state per draft; none is exported where drafts reach past a hash unit."""
    if group.kind == "mamba_align":
        return replace(group, spec_blocks=count, export_tokens=group.export_tokens if count < unit else 0)
    return replace(group, spec_blocks=count) if group.kind == "mamba_none" else group


def drawn_unit(draw: Draw, groups: tuple[Group, ...]) -> int | None:
    """A hash unit finer than the blocks, now and then, where states can be hit inside a block."""
    fine = len(groups) > 1 and {"mamba_align"} < {group.kind for group in groups} <= {"full", "mamba_align"}
    sizes = [group.block_size for group in groups]
    units = [unit for unit in range(1, min(sizes) + 1) if all(size % unit == 0 for size in sizes)]
    return units[draw(0, max(len(units) - 2, 0))] if fine and chance(draw, 60) else None


def drawn_asks(draw: Draw, settings: Settings, count: int) -> list[Ask]:
    """Requests in order of arrival: bursts, multiples of a step, at times a long gap; ids that sort differently."""
    asks: list[Ask] = []
    now = 0
    for number in range(count):
        now += settings.step_ns * draw(0, 3) if draw(0, 4) else draw(0, 20 * settings.step_ns)
        asks.append(drawn_ask(draw, settings, f"r{draw(0, 9)}{number}", now, asks))
    return asks


def seeded_case(seed: int, most: int = 30, *, plain: bool = False) -> tuple[Settings, list[Ask]]:
    """Settings and requests of a seed; ``plain``: with full attention and windows only, without drafts."""
    rng = np.random.default_rng(seed)

    def draw(least: int, most: int) -> int:
        return int(rng.integers(least, most + 1))

    settings = drawn_settings(draw, plain=plain)
    return settings, drawn_asks(draw, settings, draw(3, most))


def drawn_ask(draw: Draw, settings: Settings, name: str, arrival_ns: int, earlier: list[Ask]) -> Ask:
    """A request with a fresh text, a known opening, a fork or the next turn of an earlier one, or a resend."""
    kind = draw(0, 6) if earlier else draw(0, 1)
    spans: list[Span] = []
    if kind >= 2:
        before = earlier[draw(0, len(earlier) - 1)]
        if kind == 2:
            spans = list(before.prompt)
        elif kind == 3:
            spans = [*before.prompt, *before.output]
        else:
            spans = list(cut(before.prompt, draw(1, before.prompt_tokens)))
    elif kind == 1:
        spans = [(draw(1, 2), draw(1, settings.max_model_len))]
    if kind != 2 or not spans:
        spans.append((draw(1, 2) if chance(draw, 30) else fresh(name), draw(1, settings.max_model_len)))
    prompt = cut(spans, settings.max_model_len - 1)
    room = settings.max_model_len - sum(count for _, count in prompt)
    outputs = draw(1, room + 3 if chance(draw, 10) else min(room, 12))
    return Ask(
        name=name,
        arrival_ns=arrival_ns,
        prompt=prompt,
        output=((fresh(name) + 1, outputs),),
        max_tokens=outputs + (draw(1, 9) if chance(draw, 30) else 0),
        priority=draw(0, 2),
        salt=draw(1, 2) if chance(draw, 8) else 0,
        skip_cache=chance(draw, 6),
        encoder_tokens=draw(1, settings.encoder_budget) if settings.encoder_budget else 0,
    )


def fresh(name: str) -> int:
    """A text of a request's own."""
    return 1000 + 2 * int.from_bytes(name.encode()[-6:], "big")


def cut(spans: list[Span] | tuple[Span, ...], tokens: int) -> tuple[Span, ...]:
    """The first ``tokens`` tokens of a list of spans.

    >>> cut([(7, 4), (9, 5)], 6)
    ((7, 4), (9, 2))
    """
    kept = []
    for content, count in spans:
        if tokens > 0:
            kept.append((content, min(count, tokens)))
        tokens -= count
    return tuple(kept)
