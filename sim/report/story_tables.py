"""The life of one request in words, and its block tables when they were fullest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from sim.explanation import CAUSES
from sim.planning import KVCachePlan
from sim.report.plan_tables import group_label
from sim.report.tables import Table, number, seconds
from sim.story import RequestWatch


def story_tables(row: Mapping[str, Any], watch: RequestWatch, plan: KVCachePlan) -> list[Table]:
    """The tables ``explain`` prints: what happened when, and which blocks the request held."""
    labels = [group_label(group) for group in plan.groups]
    lines = [_arrival(row), *_lines(watch.happenings, labels), _end(row)]
    story = Table(f"The life of {row['id']}", ("time", "steps", "what happened"), lines, prose=True)
    return [story, _blocks(watch.fullest, plan, labels)]


def _arrival(row: Mapping[str, Any]) -> tuple[str, ...]:
    return _clock(row["arrival_s"]), "", f"arrives with a prompt of {number(row['prompt_tokens'])} tokens"


def _end(row: Mapping[str, Any]) -> tuple[str, ...]:
    words = {
        "length": "at max_tokens",
        "stop": "with its end-of-sequence token",
        "truncated": "cut at max_model_len",
    }[row["finish_reason"]]
    text = (
        f"ends {words} after {number(row['output_tokens'])} output tokens: {seconds(row['queue_s'])} in the queue, "
        f"{seconds(row['ttft_s'])} to the first token, {seconds(row['tpot_s'])} per further one; "
        "its blocks go back to the pool, cached ones can still be hit"
    )
    return _clock(row["finish_s"]), "", text


def _clock(time_s: float) -> str:
    return f"{time_s:,.3f} s"


def _lines(happenings: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One line a happening; neighbours that free blocks while decoding or prefilling goes on are told together."""
    for kind, some in groupby(happenings, key=lambda one: _CHAPTER.get(one["kind"], one["kind"])):
        chapter = list(some)
        if kind == "computing":
            yield from _computing(chapter, labels)
        else:
            for one in chapter:
                yield _clock(one["time_s"]), _steps([one]), _TOLD[one["kind"]](one, labels)


_CHAPTER = dict.fromkeys(("prefilled", "decoded", "freed", "copied"), "computing")


def _computing(chapter: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Prefill, then decoding, with what was given back and copied in the meantime."""
    for kind, verb in (("prefilled", "prefill"), ("decoded", "decoding")):
        own = [one for one in chapter if one["kind"] == kind]
        if not own:
            continue
        tokens = [one["tokens"] for one in own]
        chunks = f" in {len(own)} chunks ({_few(tokens)})" if kind == "prefilled" and len(own) > 1 else ""
        drafts = " scheduled" if kind == "decoded" else ""
        yield _clock(own[0]["time_s"]), _steps(own), f"{verb}: {number(sum(tokens))} tokens{drafts}{chunks}"
    for one in (one for one in chapter if one["kind"] == "copied"):
        pairs = ", ".join(f"{source} to {target}" for source, target in one["blocks"])
        yield _clock(one["time_s"]), _steps([one]), f"copies before writing: block {pairs}"
    yield from _freed([one for one in chapter if one["kind"] == "freed"], labels)


def _freed(happenings: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What each kind of group gave back; groups of one kind give back alike."""
    by_group: dict[int, list[int]] = {}
    when: dict[int, list[Mapping[str, Any]]] = {}
    for one in happenings:
        for group, ids in one["blocks"]:
            by_group.setdefault(group, []).extend(ids)
            when.setdefault(group, []).append(one)
    for label in dict.fromkeys(labels[group] for group in sorted(by_group)):
        groups = [group for group in sorted(by_group) if labels[group] == label]
        own = [one for group in groups for one in when[group]]
        count = _count(sum(len(by_group[group]) for group in groups), "block")
        where = f"group {groups[0]}" if len(groups) == 1 else f"groups {_runs(groups)}"
        first = _runs(by_group[groups[0]])
        text = f"{where} ({label}) let go of {count} left behind, those of group {groups[0]}: {first}"
        yield _clock(own[0]["time_s"]), _steps(sorted(own, key=lambda one: int(one["step"]))), text


def _steps(happenings: Sequence[Mapping[str, Any]]) -> str:
    first, last = happenings[0]["step"], happenings[-1].get("until_step", happenings[-1]["step"])
    return number(first) if first == last else f"{number(first)}-{number(last)}"


def _waited(one: Mapping[str, Any], _: Sequence[str]) -> str:
    return f"waits {_count(one['steps'], 'step')}, until {_clock(one['until_s'])}: {one['reason']}"


def _admitted(one: Mapping[str, Any], labels: Sequence[str]) -> str:
    hit, known, seen = one["hit_tokens"], one["known_tokens"], one["seen_tokens"]
    lost = "".join(f"; {number(tokens)} lost: {_by(cause, group, labels)}" for cause, tokens, group in one["lost"])
    before = f"{number(seen)} were seen before" if seen else "nothing of it was seen before"
    held = f"{_count(sum(one['blocks']), 'block')} ({_few(one['blocks'])} by group)"
    return f"admitted: hits {number(hit)} of its {number(known)} tokens, {before}{lost}; it holds {held}"


def _by(cause: str, group: int, labels: Sequence[str]) -> str:
    return CAUSES[cause] + (f" in group {group} ({labels[group]})" if 0 <= group < len(labels) else "")


def _preempted(one: Mapping[str, Any], _: Sequence[str]) -> str:
    if one["by"] is None:
        by = "the prefix cache was reset"
    elif one["by"] == one["name"]:
        by = "it needed blocks itself and was the last in line"
    else:
        by = f"{one['by']} needed blocks"
    return f"preempted: {by}; all its blocks go back to the pool and it will compute again what is not hit"


_TOLD = {"waited": _waited, "admitted": _admitted, "preempted": _preempted}


def _blocks(tables: Sequence[Sequence[int]], plan: KVCachePlan, labels: Sequence[str]) -> Table:
    """One row a group: how many entries, how many null, and the block ids in order."""
    rows = [
        (
            str(group),
            label,
            number(size),
            number(len(table)),
            number(sum(block == 0 for block in table)),
            _runs(table),
        )
        for group, (label, size, table) in enumerate(zip(labels, plan.group_block_sizes, tables, strict=False))
    ]
    header = ("group", "kind", "block_size", "entries", "null", "block ids in order, null blocks as 0")
    return Table("Its block tables when they named most blocks", header, rows, prose=True)


def _runs(blocks: Sequence[int]) -> str:
    """Block ids with runs made short.

    >>> _runs([0, 0, 0, 7, 8, 9, 5, 4, 3, 11])
    '0 x3, 7-9, 5-3, 11'
    """
    runs: list[tuple[int, int, int]] = []
    for block in blocks:
        first, last, count = runs[-1] if runs else (block, block, 0)
        step = block - last
        goes_on = step == (last - first) // (count - 1) if count > 1 else step in (-1, 1) or block == last == 0
        if count and goes_on:
            runs[-1] = (first, block, count + 1)
        else:
            runs.append((block, block, 1))
    return _shortened([_run(*run) for run in runs])


def _run(first: int, last: int, count: int) -> str:
    if count == 1:
        return str(first)
    return f"{first} x{count}" if first == last else f"{first}-{last}"


def _few(values: Sequence[int]) -> str:
    return _shortened([number(value) for value in values])


def _shortened(words: Sequence[str], most: int = 8) -> str:
    """The first and last words of a long list.

    >>> _shortened([str(i) for i in range(20)])
    '0, 1, 2, 3, …, 16, 17, 18, 19'
    """
    half = most // 2
    return ", ".join(words if len(words) <= most else [*words[:half], "…", *words[-half:]])


def _count(n: int, word: str) -> str:
    return f"{number(n)} {word}{'' if n == 1 else 's'}"
