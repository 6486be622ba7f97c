"""What ``hybridkv trace`` prints: a trace's statistics, its first requests, what was read and what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.report.tables import Table, number, seconds, share

COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")
REASONS = {
    "zero_output_tokens": "no output: they failed, or were cut off",
    "zero_prompt_tokens": "no prompt",
    "copy_of_another_session": "copies of another session",
    "other_events": "events that are no requests",
    "spans_of_something_else": "spans that are no requests",
    "failed": "failed requests",
    "no_output_tokens": "no output length",
    "conversation_without_an_answer": "conversations without an answer",
    "waits_for_a_whole_turn": "wait for a whole turn of their play, and in the file for less of it, or for a dispatch",
    "a_week_added_where_the_clock_starts_again": "a week added: the file's clock starts again",
}
"""Why a row was changed or left out, in words."""


def rows_line(described: Mapping[str, Any]) -> str:
    """How many rows of a trace became requests, were changed on the way, or left out."""
    parts = [f"{number(described['requests'])} requests"]
    for key, word in (("rows_changed", "changed"), ("rows_skipped", "left out")):
        for reason, rows in described[key].items():
            parts.append(f"{number(rows)} {word} ({REASONS.get(reason, reason.replace('_', ' '))})")
    return "; ".join(parts)


def provenance_rows(described: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where a trace comes from, how it was read, and what was counted on the way."""
    rows = [("trace", str(described["source"])), ("format", str(described["format"])), ("rows", rows_line(described))]
    notes = {
        "trace_block_size": "{} tokens per block id",
        "clock": "times are {}",
        "token_counts": "tokens: {}",
        "shared_prefix": "shared prefixes {}",
    }
    told = [text.format(described[key]) for key, text in notes.items() if key in described]
    if described.get("closed_loop"):
        told.append("turns wait for answers")
    return [*rows, ("read as", "; ".join(told))] if told else rows


def stats_tables(described: Mapping[str, Any], stats: Mapping[str, Any]) -> list[Table]:
    """The tables of ``trace stats``."""
    return [
        Table(
            "Trace", ("", ""), [*provenance_rows(described), *_arrival_rows(stats), *_session_rows(stats)], prose=True
        ),
        Table(
            "Tokens per request",
            ("", *COLUMNS),
            [(name, *(number(stats[key][column]) for column in COLUMNS)) for name, key in _LENGTHS],
        ),
        *_sharing_tables(stats),
    ]


_LENGTHS = (("prompt", "prompt_tokens"), ("output", "output_tokens"))


def _arrival_rows(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    arrivals = stats["arrivals"]
    tied = arrivals["same_time_as_before"]
    ties = f"; {number(tied)} at the same instant as the one before (jitter_s spreads them)" if tied else ""
    spread = ", ".join(f"{number(arrivals[f'dispersion_{w}s'])} in {w} s" for w in (1, 10, 60))
    return [
        ("arrivals", f"{number(arrivals['rate_per_s'])} per s over {seconds(arrivals['span_s'])}{ties}"),
        ("burstiness", f"CV of gaps {number(arrivals['gap_cv'])}; variance/mean of counts {spread} (Poisson: 1)"),
    ]


def _session_rows(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    sessions = stats["sessions"]
    if not sessions["sessions"]:
        return []
    per = sessions["requests_per_session"]
    think = sessions["think_s_mean"]
    waits = (
        f"; {number(sessions['waiting_for_answers'])} turns wait, {seconds(think)} on average"
        if think is not None
        else ""
    )
    return [
        (
            "sessions",
            f"{number(sessions['sessions'])} of {number(per['mean'])} requests (p50 {number(per['p50'])}){waits}",
        )
    ]


def _sharing_tables(stats: Mapping[str, Any]) -> list[Table]:
    sharing, reuse = stats["prefix_sharing"], stats["reuse"]
    depths = [
        (f"{number(row['from'])} to {number(row['to'])}", number(row["tokens"]), share(row["share"], 1))
        for row in sharing["by_depth"]
    ]
    all_, blocks, answers = (share(sharing[f"share{kind}"], 1) for kind in ("", "_in_whole_blocks", "_with_answers"))
    notes = [
        f"in all {all_}; in whole blocks of {sharing['block_size']} {blocks}; with answers kept as well {answers}",
        "a cache that keeps everything, each request there at once for the next: no server hits more",
    ]
    tables = [Table("Shared prefixes, by depth in the prompt", ("tokens", "prompt tokens", "hit"), depths, notes)]
    if reuse["lru"]:
        tables.append(_reuse_table(reuse))
    return tables


def _reuse_table(reuse: Mapping[str, Any]) -> Table:
    best = reuse["lru"][-1]["share"]
    rows: list[tuple[str, ...]] = []
    shown = 0.0
    for point in reuse["lru"]:  # sizes between which little is gained are left out
        if point["share"] - shown > 0.03 * best or point is reuse["lru"][-1]:
            shown = point["share"]
            rows.append((number(point["cache_tokens"]), share(shown, 1), share(shown, best)))
    sets = ", ".join(
        f"{number(round(tokens))} in {seconds(float(window))}" for window, tokens in reuse["working_set_tokens"].items()
    )
    notes = [
        f"an LRU cache of blocks of {reuse['block_size']} tokens, served in order of arrival; of full attention alone",
        f"working set: {number(reuse['distinct_tokens'])} distinct tokens; {sets} (means over the windows)",
    ]
    return Table("Cache size that reuse needs", ("cache tokens", "blocks hit", "of all reuse"), rows, notes)


def head_table(described: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    """The first requests of a trace."""
    header = ("id", "arrival", "prompt", "output", "shared", "session", "turn", "waits")
    cells = [
        (
            row["id"],
            f"{row['arrival_s']:.6f} s",
            number(row["prompt_tokens"]),
            number(row["output_tokens"]),
            number(row["shared_tokens"]),
            row["session"] or "-",
            str(row["turn"]),
            "-" if row["think_s"] is None else seconds(row["think_s"]),
        )
        for row in rows
    ]
    notes = ["shared: leading prompt tokens that the requests above began with; waits: after the answer before"]
    return Table(f"First requests of {described['source']} ({described['format']})", header, cells, notes)


_LOAD = (
    ("rate_per_s", "requests per s"),
    ("gap_cv", "CV of gaps"),
    ("dispersion_10s", "variance/mean in 10 s"),
    ("dispersion_60s", "variance/mean in 60 s"),
)


def closeness_table(
    told: Sequence[tuple[str, str]], given: Mapping[str, Any], made: Mapping[str, Any], rate: float
) -> Table:
    """A trace and a synthetic one side by side; ``told`` stands below as notes."""
    rows = [
        (f"{label} tokens, {column}", number(given[key][column]), number(made[key][column]))
        for label, key in _LENGTHS
        for column in ("mean", "p50", "p95", "p99")
    ]
    for key, label in _LOAD:
        rows.append((label, number(given["arrivals"][key]), number(made["arrivals"][key])))
    one, other = given["prefix_sharing"], made["prefix_sharing"]
    rows.append(("prompt tokens shared", share(one["share"], 1), share(other["share"], 1)))
    for mine, theirs in zip(one["by_depth"], other["by_depth"], strict=False):
        rows.append((f"  from {number(mine['from'])} tokens on", share(mine["share"], 1), share(theirs["share"], 1)))
    rows += _cache_rows(given["reuse"], made["reuse"])
    notes = [f"{name}: {text}" for name, text in told]
    if rate != 1.0:
        notes.append(f"the synthetic trace is meant to be {number(rate)} times as fast")
    return Table("How close the synthetic trace is", ("", "trace", "synthetic"), rows, notes)


def _cache_rows(given: Mapping[str, Any], made: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Hits of LRU caches of a few sizes, those in which the trace's hits grow."""
    if not given["lru"] or given["block_size"] != made["block_size"]:
        return []
    ours = {point["cache_tokens"]: point["share"] for point in made["lru"]}
    last = max(ours.values(), default=0.0)
    best = given["lru"][-1]["share"]
    return [
        (
            f"blocks hit by {number(point['cache_tokens'])} tokens of cache",
            share(point["share"], 1),
            share(ours.get(point["cache_tokens"], last), 1),
        )
        for point in given["lru"]
        if point["share"] > 0.1 * best
    ]
