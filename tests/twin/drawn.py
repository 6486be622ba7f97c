"""Random settings and requests, small on purpose: two letters of content, few blocks, so that rules meet.

Everything is drawn through ``Draw``, a function from (least, most) to an integer, so that a seeded generator and
Hypothesis, which shrinks what fails, share one description.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.twin.settings import Ask, Group, Settings, Span

Draw = Callable[[int, int], int]


def chance(draw: Draw, percent: int) -> bool:
    """True in ``percent`` of 100 cases; shrinks to False."""
    return draw(0, 99) >= 100 - percent


def drawn_groups(draw: Draw) -> tuple[Group, ...]:
    """One to four groups, full attention and windows, blocks of sizes that divide each other or do not."""
    size = draw(1, 5)
    found = []
    for _ in range(draw(1, 2) if chance(draw, 60) else draw(1, 4)):
        block = size * (1 if chance(draw, 80) else draw(2, 3))
        window = draw(1, 4 * block + 2) if chance(draw, 60) else 0
        found.append(Group(block, window))
    return tuple(found)


def drawn_settings(draw: Draw) -> Settings:
    """Any engine that vLLM would start."""
    groups = drawn_groups(draw)
    max_model_len = draw(8, 60)
    max_num_seqs = draw(1, 6)
    chunked = not chance(draw, 15)
    priority = chance(draw, 40)
    budget = max(max_num_seqs, draw(2, 12 if chance(draw, 40) else 70)) if chunked else max_model_len + draw(0, 20)
    without_pool = Settings(
        groups=groups,
        max_model_len=max_model_len,
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        enable_prefix_caching=not chance(draw, 10),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(1, 6 if chance(draw, 60) else max_model_len) if chance(draw, 40) else 0,
        priority_policy=priority,
        scheduler_reserve_full_isl=not chance(draw, 25),
        async_scheduling=chance(draw, 50),
        pipeline_parallel_size=draw(1, 3) if chance(draw, 30) else 1,
        step_ns=draw(1, 3) * 7,
    )
    unit = without_pool.scheduler_block_size
    intervals = (None, 0, unit * draw(1, 4))
    longest = without_pool.blocks_of_longest
    values = {name: getattr(without_pool, name) for name in Settings.__dataclass_fields__}
    values["retention_interval"] = intervals[draw(0, 2)]
    values["num_blocks"] = 1 + longest + draw(0, longest) * draw(0, 4) // 4
    values["watermark_blocks"] = draw(0, min(5, values["num_blocks"] - 1)) if chance(draw, 25) else 0
    return Settings(**values)


def drawn_asks(draw: Draw, settings: Settings, count: int) -> list[Ask]:
    """Requests in order of arrival: bursts, multiples of a step, at times a long gap; ids that sort differently."""
    asks: list[Ask] = []
    now = 0
    for number in range(count):
        now += settings.step_ns * draw(0, 3) if draw(0, 4) else draw(0, 20 * settings.step_ns)
        asks.append(drawn_ask(draw, settings, f"r{draw(0, 9)}{number}", now, asks))
    return asks


def seeded_case(seed: int, most: int = 30) -> tuple[Settings, list[Ask]]:
    """Settings and requests of a seed."""
    rng = np.random.default_rng(seed)

    def draw(least: int, most: int) -> int:
        return int(rng.integers(least, most + 1))

    settings = drawn_settings(draw)
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
