"""What was printed against what a setting gives: blocks within the rounding, tokens to the token, two decimals."""

from __future__ import annotations

from dataclasses import dataclass

from sim.startup_log.facts import LogFacts
from sim.startup_log.recompute import Layout
from sim.units import GIB, cdiv

_SLACK = 2
"""Blocks on either side of what the printed GiB allow, since old releases rounded twice."""


LAYOUT_CHECKS = ("attention_block_size", "mamba_padding_percent", "padding_layers")
"""Checks of sizes that depend on neither memory nor batches."""


@dataclass(frozen=True, slots=True)
class Check:
    """One printed number, what it should be, and whether they agree."""

    name: str
    printed: str
    recomputed: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one setting; ``num_blocks`` is the pool they agree on, or the one nearest."""

    checks: tuple[Check, ...]
    num_blocks: int | None

    @property
    def agrees(self) -> bool:
        """Whether there is something to check and all of it agrees."""
        return bool(self.checks) and all(check.agrees for check in self.checks)


def check_layout(layout: Layout, facts: LogFacts, rank: int = 0) -> Verdict:
    """Every printed number against ``layout``; ``rank``: which of the printed memories counts, smallest first."""
    checks = [*_sizes(layout, facts)]
    ranges = facts.memory_ranges()
    blocks = _pool(layout, facts, ranges[rank : rank + 1])
    if blocks is not None:
        checks += _capacity(layout, facts, blocks)
    if facts.last("needed_gib") is not None:
        checks += _refusal(layout, facts, ranges[rank : rank + 1])
    return Verdict(tuple(checks), blocks)


@dataclass(frozen=True, slots=True)
class Implied:
    """A number that a log does not print and that follows from those it does: its least and its largest value."""

    name: str
    least: float
    most: float


def implied(layout: Layout, facts: LogFacts) -> tuple[Implied, ...]:
    """Blocks, tokens and concurrency of the memory printed, or the memory of the blocks, where that is all there is."""
    if blocks := facts.integer("num_gpu_blocks") or facts.integer("mamba_blocks"):
        size = blocks * layout.block_bytes / GIB
        found = [Implied("available_gib", size, size + layout.block_bytes / GIB)]
        span = (blocks, blocks)
    elif ranges := facts.memory_ranges():
        span = (layout.num_blocks(ranges[0][0]), layout.num_blocks(ranges[0][1]))
        found = [Implied("num_gpu_blocks", *span)]
    else:
        return ()
    found.append(Implied("tokens", *map(layout.tokens, span)))
    found.append(Implied("concurrency", *map(layout.concurrency, span)))
    return tuple(item for item in found if item.name not in facts.numbers)


def _sizes(layout: Layout, facts: LogFacts) -> list[Check]:
    checks = []
    if (size := facts.integer("attention_block_size")) is not None:
        checks.append(_equal("attention_block_size", size, layout.attention_block_size))
    printed, padding = facts.last("mamba_padding_percent"), layout.state_padding_percent
    if printed is not None:
        found = round(padding or 0.0, 2)
        checks.append(Check("mamba_padding_percent", f"{printed:.2f}", f"{found:.2f}", abs(found - printed) < 0.011))
    if (layers := facts.integer("padding_layers")) is not None:
        share = facts.last("padding_percent") or 0.0
        told = [(count, round(percent, 2)) for count, percent in layout.paddings]
        shown = ", ".join(f"{count} ({percent:.2f} %)" for count, percent in told) or "none"
        agrees = any(count == layers and abs(percent - share) < 0.011 for count, percent in told)
        checks.append(Check("padding_layers", f"{layers} ({share:.2f} %)", shown, agrees))
    return checks


def _equal(name: str, printed: int, found: int) -> Check:
    return Check(name, f"{printed:,}", f"{found:,}", printed == found)


def _pool(layout: Layout, facts: LogFacts, ranges: list[tuple[int, int]]) -> int | None:
    """Blocks of the pool: as printed, else those in the memory that agree best with the other lines."""
    named = facts.integer("num_gpu_blocks") or facts.integer("mamba_blocks")
    if named is not None:
        return named
    tokens, concurrency = _lines(facts)
    if not ranges:
        return _from_lines(layout, tokens, concurrency)
    least, most = (layout.num_blocks(num_bytes) for num_bytes in ranges[0])
    if tokens is None and concurrency is None:
        return None
    guess = _from_lines(layout, tokens, concurrency)
    return None if guess is None else min(max(guess, least), most)


def _lines(facts: LogFacts) -> tuple[int | None, float | None]:
    """The tokens and concurrency lines of the rank with the least memory."""
    tokens = facts.smallest("tokens")
    return None if tokens is None else int(tokens), facts.smallest("concurrency")


def _fits(layout: Layout, blocks: int, tokens: int | None, concurrency: float | None) -> bool:
    if tokens is not None and layout.tokens(blocks) != tokens:
        return False
    return concurrency is None or _same(layout.concurrency(blocks), concurrency)


def _same(found: float, printed: float) -> bool:
    """Equal to the decimals printed: two in a log, all in a page of metrics."""
    return round(found, 2) == printed or abs(found - printed) < 1e-9 or f"{found:.2f}" == f"{printed:.2f}"


def _from_lines(layout: Layout, tokens: int | None, concurrency: float | None) -> int | None:
    """The number of blocks that the tokens line stands for, and if there is none the concurrency line."""
    if tokens is not None and layout.setting.rules.old_tokens:
        per_group = cdiv(tokens, layout.block_size * layout.engine.decode_context_parallel_size)
        first = per_group * len(layout.groups)
        pools = range(first, first + len(layout.groups))
        return next((blocks for blocks in pools if _fits(layout, blocks, tokens, concurrency)), first)
    charged = layout.charged_blocks
    if tokens is not None:
        first = cdiv(tokens * charged, layout.engine.max_model_len)
        near = range(max(1, first - _SLACK), first + _SLACK + 1)
        return next((blocks for blocks in near if _fits(layout, blocks, tokens, concurrency)), first)
    return None if concurrency is None else round(concurrency * charged)


def _capacity(layout: Layout, facts: LogFacts, blocks: int) -> list[Check]:
    checks = []
    for least, most in facts.memory_ranges()[:1]:
        low, high = layout.num_blocks(least), layout.num_blocks(most)
        if facts.integer("num_gpu_blocks") is not None:
            span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            checks.append(Check("num_gpu_blocks", f"{blocks:,}", span, low <= blocks <= high))
    tokens, concurrency = _lines(facts)
    if tokens is not None:
        checks.append(_equal("tokens", tokens, layout.tokens(blocks)))
    if concurrency is not None:
        found = layout.concurrency(blocks)
        checks.append(Check("concurrency", f"{concurrency:g}x", f"{found:.2f}x", _same(found, concurrency)))
    return checks


def _refusal(layout: Layout, facts: LogFacts, ranges: list[tuple[int, int]]) -> list[Check]:
    length = facts.integer("needed_for_len") or layout.engine.max_model_len
    needed = facts.last("needed_gib") or 0.0
    found = round(layout.request_blocks(length) * layout.block_bytes / GIB, 2)
    checks = [Check("needed_gib", f"{needed:.2f} GiB", f"{found:.2f} GiB", abs(found - needed) < 0.0051)]
    estimate = facts.integer("estimated_max_len")
    if estimate is not None and ranges:
        least, most = ranges[0]
        spans = [(layout.longest(least - off), layout.longest(most - off)) for off in (layout.block_bytes, 0)]
        agrees = any(low <= estimate <= high for low, high in spans)
        shown = f"{spans[0][0]:,} to {spans[1][1]:,}"
        checks.append(Check("estimated_max_len", f"{estimate:,}", shown, agrees))
    return checks
